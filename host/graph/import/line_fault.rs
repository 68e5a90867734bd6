//! Faults in lines of text and rows of tables. Each is a part of one line, behind the file and the number of the line.

use super::error::Size;
use crate::graph::names::NameFault;
use crate::units::grouped;

/// Names of columns that are known, in words.
pub(super) const KNOWN_COLUMNS: &str = "known are source, src, from, start, origin for sources, target, dst, dest, to, end for targets (each also with `id` or `node`), and weight, cost, distance, value, w";

/// Fault in a line of text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// A word where a vertex was expected.
    #[error("`{found}` is not a vertex identifier, which is a whole number from 0 to 18446744073709551615")]
    NotAVertex {
        /// The word.
        found: String,
    },
    /// A word in a file whose other vertices are numbers.
    #[error(
        "`{found}` is not a whole number, as other vertices of the file are; correct the line, or read all vertices as names"
    )]
    NameAmongNumbers {
        /// The word.
        found: String,
    },
    /// A word that no vertex can have as its name.
    #[error("`{found}`: {fault}")]
    Name {
        /// The word.
        found: String,
        /// The fault.
        fault: NameFault,
    },
    /// The names take more memory than is free.
    #[error("the names of vertices up to here take {} of memory, {} is free; free some, or number the vertices", Size((*.needed).into()), Size((*.free).into()))]
    NamesMemory {
        /// Bytes of the names and their table.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// Columns separated by commas.
    #[error(
        "`{found}`: columns of this format are separated by blanks or tabs, not by {separator}; read the file as CSV"
    )]
    Commas {
        /// The words.
        found: String,
        /// Name of the character between them in the plural: commas, semicolons or vertical bars.
        separator: &'static str,
    },
    /// A table whose first line has one column.
    #[error(
        "`{found}` is one column: no comma, semicolon, vertical bar or tab is in it; read the file as an edge list if blanks separate its columns"
    )]
    NoSeparator {
        /// The line.
        found: String,
    },
    /// A first line of words that name no known columns, above a line of numbers.
    #[error(
        "{found} above a line of numbers is a heading whose columns are not known; {KNOWN_COLUMNS}; rename the columns, begin the line with `#`, or choose the columns"
    )]
    UnknownHeading {
        /// The words.
        found: String,
    },
    /// A vertex that is not below the number of vertices that the options or another file give.
    #[error("vertex {found} is not one of the {} vertices that the graph has, which are 0 to {}", grouped(.vertices), grouped(.vertices.saturating_sub(1)))]
    BeyondVertices {
        /// The vertex.
        found: u64,
        /// Number of vertices.
        vertices: u64,
    },
    /// Attributes of an edge, as networkx writes them, that do not end or have something else in front of them.
    #[error("`{found}` is no list of attributes in braces, as in {{'weight': 3}}")]
    Attributes {
        /// The text behind the two vertices.
        found: String,
    },
    /// KONECT: a bipartite list whose two sets of vertices cannot be told apart.
    #[error(
        "the list is bipartite, so that a number is one vertex in the first column and another in the second; {reason}"
    )]
    Bipartite {
        /// The remedy.
        reason: &'static str,
    },
    /// A vertex identifier below zero.
    #[error(
        "vertex {found} is negative; identifiers are whole numbers from 0 to 18446744073709551615, so renumber the vertices"
    )]
    NegativeVertex {
        /// The word.
        found: String,
    },
    /// A vertex identifier of more than 64 bits.
    #[error("vertex {found} is larger than 18446744073709551615 (64 bits); renumber the vertices")]
    HugeVertex {
        /// The word.
        found: String,
    },
    /// The line has too few columns, or too many.
    #[error("{found} column(s) where {expected} {}", if *.expected == 1 { "is expected" } else { "are expected" })]
    Columns {
        /// Columns of the line.
        found: usize,
        /// Columns that the format, or the first line of the file, requires.
        expected: usize,
    },
    /// An `.el` file with a third column.
    #[error("a third column in an unweighted list; if it holds weights, rename the file to end in .wel")]
    UnexpectedWeight,
    /// A word where a weight was expected.
    #[error("`{found}` is not a weight, which is a number such as 3 or 0.25")]
    NotAWeight {
        /// The word.
        found: String,
    },
    /// A negative weight, for which shortest paths are not defined.
    #[error("weight {found} is negative; shortest paths need weights of zero or more")]
    NegativeWeight {
        /// The word.
        found: String,
    },
    /// A weight that is NaN or infinite, also after it was read: a number of 64 bits is at most 1.8e308.
    #[error("weight {found} is not a finite number")]
    NotFinite {
        /// The word.
        found: String,
    },
    /// A weight that is too large for 32 bits, where these were asked for ([`Precision::Single`](super::Precision::Single)).
    #[error(
        "weight {found} does not fit into 32 bits, whose largest number is 3.4028235e38; choose 64 bits, or leave the type of weights to the input"
    )]
    BeyondSingle {
        /// The word.
        found: String,
    },
    /// An integer weight of more than 32 bits.
    #[error("integer weight {found} is larger than 4294967295; write it as {found}.0 to work with real weights")]
    HugeWeight {
        /// The word.
        found: String,
    },
    /// A byte that does not occur in text.
    #[error("a byte {byte:#04x}: this is not a text file (GAP's binary graphs end in .sg or .wsg)")]
    Binary {
        /// The byte.
        byte: u8,
    },
    /// A line that is longer than the limit.
    #[error("more than {} bytes without an end of line: this is not an edge list", grouped(.limit))]
    LongLine {
        /// Length of the longest line that is read, in bytes.
        limit: u64,
    },
    /// Matrix Market, DIMACS, METIS: an index above the limit in the header.
    #[error("vertex {found} is larger than the {} {what} that the header names", grouped(.limit))]
    BeyondHeader {
        /// The vertex.
        found: u64,
        /// `rows`, `columns` or `vertices`.
        what: &'static str,
        /// Number in the header.
        limit: u64,
    },
    /// Matrix Market, DIMACS, METIS: a vertex 0, where vertices are counted from 1.
    #[error("vertex 0 in a file whose vertices are counted from 1")]
    ZeroIndex,
    /// Matrix Market: a wrong first line.
    #[error("`{found}` is not a Matrix Market header; it begins `%%MatrixMarket matrix coordinate`")]
    Banner {
        /// The line.
        found: String,
    },
    /// Matrix Market: the first line ends before its last word.
    #[error("`{found}` lacks the {missing}, which is {choice}; add it")]
    ShortBanner {
        /// The line.
        found: String,
        /// The first word that is missing.
        missing: &'static str,
        /// Words that may be there.
        choice: &'static str,
    },
    /// A kind of Matrix Market, DIMACS or METIS file that is not supported.
    #[error("{what} `{found}` is not supported; {advice}")]
    Unsupported {
        /// Part of the header that names the kind.
        what: &'static str,
        /// The word.
        found: String,
        /// The remedy.
        advice: &'static str,
    },
    /// Matrix Market: a wrong line of rows, columns and entries.
    #[error("`{found}` is not a size line, which is three whole numbers: rows, columns, entries")]
    SizeLine {
        /// The line.
        found: String,
    },
    /// Matrix Market: a matrix that is not square.
    #[error("{} rows and {} columns: the matrix of a graph is square", grouped(.rows), grouped(.columns))]
    NotSquare {
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
    },
    /// DIMACS: a line that is neither a comment, the problem line nor an arc, or in a wrong place.
    #[error("`{found}`: {reason}")]
    Dimacs {
        /// The line.
        found: String,
        /// The fault and the remedy.
        reason: &'static str,
    },
    /// METIS: a wrong first line.
    #[error(
        "`{found}` is not a METIS header, which is: vertices, edges, and optionally a format of three digits and the number of vertex weights"
    )]
    MetisHeader {
        /// The line.
        found: String,
    },
    /// METIS: a line ends in the middle of a neighbour and its weight, or before the vertex weights.
    #[error("the line has {found} numbers, but {expected}")]
    MetisColumns {
        /// Numbers of the line.
        found: usize,
        /// Numbers that the header requires.
        expected: &'static str,
    },
    /// CSV: a quoted field that does not end on its line.
    #[error("a quoted field does not end on this line; write each edge on one line")]
    OpenQuote,
    /// CSV: text behind the closing quote of a field.
    #[error("text follows the closing double quote of a field; double quotes inside of a quoted field are doubled")]
    BehindQuote,
    /// Parquet, Arrow: a null in a column of vertices or weights.
    #[error("column `{column}` is null; remove the row, or give it a value")]
    Null {
        /// Name of the column.
        column: String,
    },
    /// LDBC: an edge to a vertex that the vertex file does not name.
    #[error("vertex {found} is not in {vertex_file}; add it there")]
    NotListed {
        /// The vertex.
        found: u64,
        /// The file with the vertices.
        vertex_file: String,
    },
    /// LDBC: a property that is neither true nor false.
    #[error("`{found}` is neither true nor false")]
    NotABoolean {
        /// The word.
        found: String,
    },
}
