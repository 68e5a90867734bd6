//! Errors of stored graphs.

use crate::remedy::{Remedies, Remedy};
use crate::storage::{STORED_NAME_RULE as NAME_RULE, listing};
use std::path::PathBuf;

/// Error of a stored graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// A name that no stored graph can have.
    #[error("`{0}` cannot be the name of a stored graph: {NAME_RULE}")]
    Name(String),
    /// No stored graph has this name.
    #[error("{device}: no stored graph is called `{name}`; {}", listing(.there))]
    Unknown {
        /// The volume.
        device: String,
        /// The name asked for.
        name: String,
        /// Names of the stored graphs.
        there: Vec<String>,
    },
    /// Another stored graph has this name.
    #[error("{device}: a stored graph is called `{name}` already; nothing was written")]
    Exists {
        /// The volume.
        device: String,
        /// The name.
        name: String,
        /// Files and devices of the volume that an [`OverwritePolicy`](crate::storage::OverwritePolicy) does not name.
        protected: Vec<PathBuf>,
    },
    /// A part of the header has a value that this version does not know.
    #[error("stored graph `{name}` has {field} {found}, and this program knows {known}: use a newer warpbell")]
    Format {
        /// Name of the graph.
        name: String,
        /// The part of the header.
        field: &'static str,
        /// Its value.
        found: u64,
        /// Values that are known.
        known: &'static str,
    },
    /// The parts of the graph contradict each other.
    #[error("stored graph `{name}` is damaged: {reason}; import it again")]
    Damaged {
        /// Name of the graph.
        name: String,
        /// Description of the contradiction.
        reason: String,
    },
    /// Of a partitioned graph one part is here, and the call needs all.
    #[error(
        "stored graph `{name}` is part {part} of {parts} here, and this needs all parts: run the algorithm on {parts} PEs, each with the device of its part"
    )]
    Part {
        /// Name of the graph.
        name: String,
        /// Number of the part, from 0 on.
        part: usize,
        /// Number of parts.
        parts: usize,
    },
    /// A PE has opened the part of another PE.
    #[error(
        "stored graph `{name}` is part {part} here, and PE {pe} needs part {pe}: give each PE the device of its part"
    )]
    OtherPart {
        /// Name of the graph.
        name: String,
        /// Number of the part, from 0 on.
        part: usize,
        /// Number of the PE.
        pe: usize,
    },
    /// The parts of two PEs are of different imports, so that they may be of different graphs.
    #[error(
        "the parts of a stored graph on PE 0 and PE {pe} are of different imports; import the graph again in all parts"
    )]
    OtherImport {
        /// The first PE whose part is of another import than that of PE 0.
        pe: usize,
    },
    /// The graph was stored without weights.
    #[error("stored graph `{name}` has no weights, which shortest paths read")]
    NoWeights {
        /// Name of the graph.
        name: String,
    },
}

impl Remedies for StoredError {
    fn remedies(&self) -> Vec<Remedy> {
        let protected = match self {
            Self::Exists { protected, .. } => protected,
            Self::NoWeights { .. } => return vec![Remedy::StoreWeights],
            _ => return Vec::new(),
        };
        let last = match &protected[..] {
            [one] => Remedy::Overwrite(one.clone()),
            _ => Remedy::step("delete that graph first"),
        };
        vec![Remedy::step("choose another name"), last]
    }
}
