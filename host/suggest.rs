//! Suggestions for mistyped words.

/// Returns the known word that is the fewest typing errors away from `word`. An error is an insertion, a deletion, a
/// substitution, or an exchange of neighbours. Returns `None` if `word` is known, or if it has more than one error and
/// more than one per three letters.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 3).max(1);
    let distances = known.into_iter().map(|k| (strsim::osa_distance(word, k), k));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (1..=most).contains(&distance).then_some(nearest)
}

/// Returns the end of an error message about an unknown word: a question with the closest known word, or an empty
/// string.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, known).map_or_else(String::new, |k| format!("; did you mean `{k}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_lead_to_the_word() {
        let commands = ["bfs", "cc", "cdlp", "pagerank", "sssp"];
        for (typed, meant) in [("bsf", "bfs"), ("bf", "bfs"), ("c", "cc"), ("pagernak", "pagerank"), ("ssp", "sssp")] {
            assert_eq!(closest(typed, commands), Some(meant), "{typed}");
        }
        for typed in ["bfs", "dijkstra", "xyz", ""] {
            assert_eq!(closest(typed, commands), None, "{typed}");
        }
        assert_eq!(hint("men", ["mem", "file"]), "; did you mean `mem`?");
        assert_eq!(hint("edges.img", ["mem", "file"]), "");
    }
}
