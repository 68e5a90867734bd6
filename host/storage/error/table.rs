//! Errors of tables.

use crate::remedy::{Remedies, Remedy};
use crate::storage::element::ElementType;
use crate::storage::stored_name::{NAME_RULE, listing};
use std::path::PathBuf;

/// Error of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A name that no table can have.
    #[error("`{0}` cannot be the name of a table: {NAME_RULE}")]
    Name(String),
    /// No table has this name.
    #[error("{device}: no table is called `{name}`; {}", listing(.there))]
    Unknown {
        /// The volume.
        device: String,
        /// The name asked for.
        name: String,
        /// Names of the tables.
        there: Vec<String>,
    },
    /// Another table has this name.
    #[error("{device}: a table is called `{name}` already; nothing was written")]
    Exists {
        /// The volume.
        device: String,
        /// The name.
        name: String,
        /// Files and devices of the volume that an [`OverwritePolicy`](crate::storage::OverwritePolicy) does not name.
        protected: Vec<PathBuf>,
    },
    /// A part of the header has a value that this version does not know.
    #[error("table `{name}` has {field} {found}, and this program knows {known}: use a newer warpbell")]
    Format {
        /// Name of the table.
        name: String,
        /// The part of the header.
        field: &'static str,
        /// Its value.
        found: u64,
        /// Values that are known.
        known: &'static str,
    },
    /// Header and rows of the table contradict each other.
    #[error("table `{name}` is damaged: {reason}; store it again")]
    Damaged {
        /// Name of the table.
        name: String,
        /// Description of the contradiction.
        reason: String,
    },
    /// Rows of a size or shape that tables do not have.
    #[error("{0}")]
    Layout(String),
    /// Elements of another type than the table's.
    #[error("table `{name}` holds {found}, not {asked}: use that type")]
    Type {
        /// Name of the table.
        name: String,
        /// Type of the table's elements.
        found: ElementType,
        /// Type asked for.
        asked: ElementType,
    },
    /// An index that is no row.
    #[error("table `{name}`: index {index} at position {position} of the batch is no row; {}", numbers(*.rows))]
    Index {
        /// Name of the table.
        name: String,
        /// Position of the index in the batch: the lowest that was found.
        position: u64,
        /// The index.
        index: u64,
        /// Number of rows.
        rows: u64,
    },
    /// Rows of another number than indices.
    #[error("table `{name}`: {indices} indices need {needed} bytes of rows, and {given} were given; give as many")]
    Bytes {
        /// Name of the table.
        name: String,
        /// Number of indices.
        indices: u64,
        /// Bytes of as many rows.
        needed: u64,
        /// Bytes given.
        given: u64,
    },
}

fn numbers(rows: u64) -> String {
    match rows {
        0 => "the table has no rows".to_owned(),
        rows => format!("rows are numbered 0 to {}", rows - 1),
    }
}

impl Remedies for TableError {
    fn remedies(&self) -> Vec<Remedy> {
        let Self::Exists { protected, .. } = self else { return Vec::new() };
        let last = match &protected[..] {
            [one] => Remedy::Overwrite(one.clone()),
            _ => Remedy::step("delete that table first"),
        };
        vec![Remedy::step("choose another name"), last]
    }
}
