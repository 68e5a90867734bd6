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
