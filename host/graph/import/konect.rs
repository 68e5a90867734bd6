//! Header of KONECT's lists of edges, `out.*` (Kunegis, "KONECT: the Koblenz Network Collection", 2013): the comment
//! `% sym`, `% asym` or `% bip`, which the kind of weights follows, and the comment `% EDGES VERTICES VERTICES`.
//!
//! A third column is the weight, and a fourth the time of an edge. A bipartite list counts the vertices of both columns
//! from 1; the second of its numbers of vertices is that of the second column.

use std::path::Path;

/// Kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Konect {
    Undirected,
    Directed,
    /// Two sets of vertices, and the number of those in the first column if the header has it.
    Bipartite {
        first: Option<u64>,
    },
}

impl Konect {
    /// Parses the first comment of a file, without the character that begins it.
    pub fn of(comment: &str) -> Option<Self> {
        const WEIGHTS: [&str; 9] = [
            "unweighted",
            "positive",
            "posweighted",
            "signed",
            "multisigned",
            "weighted",
            "multiweighted",
            "dynamic",
            "multiposweighted",
        ];
        let mut words = comment.split_whitespace();
        let kind = match words.next()? {
            "sym" => Self::Undirected,
            "asym" => Self::Directed,
            "bip" => Self::Bipartite { first: None },
            _ => return None,
        };
        words.next().is_none_or(|word| WEIGHTS.contains(&word)).then_some(kind)
    }

    /// Adds the numbers of a later comment.
    pub fn with_sizes(self, comment: &str) -> Self {
        let sizes: Vec<u64> = comment.split_whitespace().map_while(|word| word.parse().ok()).collect();
        match (self, &sizes[..]) {
            (Self::Bipartite { .. }, [_, first, _]) => Self::Bipartite { first: Some(*first) },
            _ => self,
        }
    }
}

/// Returns true for the names of KONECT's files, such as `out.ucidata-zachary`.
pub(super) fn is_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"out."))
}
