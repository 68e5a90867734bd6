//! Votes: each rank tells all ranks if it succeeded in a step.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes the outcome of this rank's step for the other ranks.
pub(super) fn ballot<T: Serialize>(mine: &Result<T, String>) -> Vec<u8> {
    serde_json::to_vec(mine).unwrap_or_default()
}

/// Decodes the outcomes of all ranks, from rank 0 on.
///
/// Returns the value of each rank if all succeeded, otherwise the failed ranks with their reasons. `unreadable` makes
/// the reason for a rank whose bytes cannot be decoded.
pub(super) fn count<T: DeserializeOwned>(
    all: &[Vec<u8>],
    unreadable: fn(serde_json::Error) -> String,
) -> Result<Vec<T>, Vec<(usize, String)>> {
    let (mut answers, mut failures) = (Vec::with_capacity(all.len()), Vec::new());
    for (rank, bytes) in all.iter().enumerate() {
        match serde_json::from_slice(bytes).unwrap_or_else(|e| Err(unreadable(e))) {
            Ok(answer) => answers.push(answer),
            Err(reason) => failures.push((rank, reason)),
        }
    }
    if failures.is_empty() { Ok(answers) } else { Err(failures) }
}

/// Formats failures as one line: each reason once, with the ranks that gave it.
pub(super) fn failed(failures: &[(usize, String)]) -> String {
    by_rank(failures.iter().map(|(rank, reason)| (*rank, reason)))
}

/// Formats the statements of ranks, each distinct statement once: `ranks 0, 2-3: malloc; rank 1: free`.
pub(super) fn by_rank<'a>(said: impl Iterator<Item = (usize, &'a String)>) -> String {
    let mut groups: Vec<(&String, Vec<usize>)> = Vec::new();
    for (rank, what) in said {
        match groups.iter_mut().find(|(w, _)| *w == what) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((what, vec![rank])),
        }
    }
    let text = |(what, ranks): &(&String, Vec<usize>)| {
        let s = if ranks.len() == 1 { "" } else { "s" };
        format!("rank{s} {}: {what}", ranges(ranks))
    };
    groups.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// Formats ascending ranks as `3`, `0-3`, or `0-3, 7`.
pub(super) fn ranges(ranks: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for rank in ranks {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == *rank => *end = *rank,
            _ => parts.push((*rank, *rank)),
        }
    }
    let text = |(a, b): &(usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    parts.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_shortly() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3, 7, 9-10");
        assert_eq!(ranges(&[5]), "5");
    }

    #[test]
    fn one_failure_fails_the_vote() {
        let (yes, no) = (ballot(&Ok(7)), ballot::<u32>(&Err("full".to_owned())));
        let count = |all: &[Vec<u8>]| count::<u32>(all, |_| "unreadable".to_owned());
        assert_eq!(count(&[yes.clone(), yes.clone()]), Ok(vec![7, 7]));
        let failures = count(&[no.clone(), yes, b"?".to_vec(), no]).unwrap_err();
        assert_eq!(failed(&failures), "ranks 0, 3: full; rank 2: unreadable");
    }
}
