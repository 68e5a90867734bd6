//! Decisions about an input that its user should see: what was rounded, taken for a heading, or left out.

use crate::units::grouped;
use std::fmt;

/// A decision about an input.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// Real weights were rounded to 32 bits ([`Precision::Single`](super::Precision::Single)).
    Rounded {
        /// `line`, or `row` of a table in columns.
        unit: &'static str,
        /// Number of the first line with such a weight, from 1.
        line: u64,
        /// The weight of that line.
        found: f64,
        /// The largest difference between a weight and its rounded value.
        difference: f64,
    },
    /// The first line of an edge list is a heading.
    Heading {
        /// The columns that are read, as in `source FromNodeId, target ToNodeId`.
        columns: String,
    },
    /// The first line may be a heading, and was read as an edge.
    NotAHeading {
        /// The line.
        found: String,
    },
    /// The columns of a table are separated by another character than its format has.
    Separator {
        /// Name of the character in the plural, as in `semicolons`.
        found: &'static str,
    },
    /// No column was read as the weight, though some hold numbers.
    NoWeight {
        /// Names of these columns.
        columns: Vec<String>,
    },
    /// Columns without a name were not read.
    Unread {
        /// Positions of the first and the last, from 1.
        columns: (usize, usize),
    },
    /// The column that was read as the weight looks like a time.
    TimeAsWeight {
        /// Its first value.
        found: String,
    },
    /// A bipartite list numbers two sets of vertices. Vertices of the second column follow those of the first.
    Bipartite {
        /// Vertices of the first column, which were added to the numbers of the second.
        first: u64,
    },
    /// A file beside the edges names the number of vertices.
    VerticesOf {
        /// Name of that file.
        file: String,
        /// The number.
        vertices: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rounded { unit, line, found, difference } => write!(
                f,
                "weights are rounded to 32 bits: {found} on {unit} {} becomes {}, the first of them; the largest difference is {difference}",
                grouped(*line),
                f64::from(*found as f32)
            ),
            Self::Heading { columns } => write!(f, "the first line is a heading: {columns}"),
            Self::NotAHeading { found } => {
                write!(f, "the first line, `{found}`, is read as an edge; if it is a heading, name its columns")
            }
            Self::Separator { found } => write!(f, "columns are separated by {found}"),
            Self::NoWeight { columns } => {
                let names = columns.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                write!(f, "no column is read as the weight; these hold numbers: {names}")
            }
            Self::Unread { columns: (first, last) } if first == last => write!(f, "column {first} is not read"),
            Self::Unread { columns: (first, last) } => write!(f, "columns {first} to {last} are not read"),
            Self::TimeAsWeight { found } => {
                write!(f, "column 3 is read as the weight, and looks like a time ({found})")
            }
            Self::Bipartite { first } => write!(
                f,
                "bipartite: {} is added to the vertices of the second column, which follow those of the first",
                grouped(*first)
            ),
            Self::VerticesOf { file, vertices } => write!(f, "{} vertices, as {file} says", grouped(*vertices)),
        }
    }
}
