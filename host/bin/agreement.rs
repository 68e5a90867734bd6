//! Compares what the ranks of a world were started with. A world of different graphs or options would search one graph
//! with the edges of another.

use crate::output::Failure;
use std::collections::BTreeMap;
use std::time::Duration;
use warpbell::shmem::bootstrap::{Bootstrap, BootstrapError};

/// Name of the fact that is the command itself.
pub const COMMAND: &str = "command";

/// Facts about one rank: name, as in `--seed`, and value.
pub type Facts = BTreeMap<String, String>;

/// Compares the facts of all ranks. Collective.
///
/// # Errors
/// [`Failure::Error`] if a rank has another value than rank 0, and if the ranks cannot be reached.
pub fn check(ranks: &dyn Bootstrap, mine: &Facts, within: Duration) -> Result<(), Failure> {
    let all = ranks.allgather(&serde_json::to_vec(mine)?, within)?;
    match difference(&all) {
        Some(text) => Err(BootstrapError::Disagree(text).into()),
        None => Ok(()),
    }
}

/// Returns the first difference between a rank and rank 0, with the remedy.
fn difference(all: &[Vec<u8>]) -> Option<String> {
    let read = |bytes: &[u8]| serde_json::from_slice::<Facts>(bytes).ok();
    let first = read(all.first()?);
    all.iter().enumerate().skip(1).find_map(|(rank, bytes)| {
        let (Some(first), Some(facts)) = (&first, read(bytes)) else {
            let none = if first.is_none() { 0 } else { rank };
            return Some(format!(
                "rank {none} runs another command, or another version of warpbell; start the same one on all ranks"
            ));
        };
        let command = COMMAND.to_owned();
        let names = std::iter::once(&command).chain(first.keys()).chain(facts.keys());
        let name = names.into_iter().find(|name| first.get(*name) != facts.get(*name))?;
        let value = |of: &Facts| of.get(name).map_or_else(|| "none".to_owned(), Clone::clone);
        let (theirs, zero) = (value(&facts), value(first));
        Some(match name.as_str() {
            COMMAND => format!("rank {rank} runs `{theirs}`, and rank 0 `{zero}`; start the same command on all ranks"),
            name if name.starts_with('-') => {
                format!("{name} is {theirs} on rank {rank}, and {zero} on rank 0; give all ranks the same options")
            }
            name => format!(
                "the {name} of rank {rank} is {theirs}, and that of rank 0 is {zero}; give all ranks the same {name}"
            ),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(all: &[&[(&str, &str)]]) -> Option<String> {
        let facts = |of: &&[(&str, &str)]| {
            let facts: Facts = of.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            serde_json::to_vec(&facts).unwrap()
        };
        difference(&all.iter().map(facts).collect::<Vec<_>>())
    }

    #[test]
    fn the_first_difference_is_named_with_its_rank() {
        let zero = &[(COMMAND, "graph bfs"), ("--seed", "1")][..];
        assert_eq!(told(&[zero, zero, zero]), None);
        let seed = told(&[zero, zero, &[(COMMAND, "graph bfs"), ("--seed", "2")]]).unwrap();
        assert_eq!(seed, "--seed is 2 on rank 2, and 1 on rank 0; give all ranks the same options");
        let absent = told(&[zero, &[(COMMAND, "graph bfs"), ("--seed", "1"), ("--source", "7")]]).unwrap();
        assert!(absent.starts_with("--source is 7 on rank 1, and none on rank 0"), "{absent}");
        let command = told(&[zero, &[(COMMAND, "bench shmem"), ("--iters", "7")]]).unwrap();
        assert!(command.contains("rank 1 runs `bench shmem`, and rank 0 `graph bfs`"), "{command}");
        let strange = difference(&[serde_json::to_vec(&Facts::new()).unwrap(), b"\xff".to_vec()]).unwrap();
        assert!(strange.contains("rank 1 runs another command"), "{strange}");
    }
}
