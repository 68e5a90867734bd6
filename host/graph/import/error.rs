//! How imports and generators fail: one line that names the file, the place, what was found and what to do.

use crate::graph::csr::CsrError;
use crate::units::grouped;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The endings of the files that can be read.
pub const KNOWN_ENDINGS: &str = ".el .txt .wel .mtx .v .e .sg .wsg";

/// Bytes in the unit that suits them.
#[derive(Clone, Copy, Debug)]
struct Size(u128);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut unit = 0;
        let mut value = self.0 as f64;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if unit == 0 { write!(f, "{} bytes", self.0) } else { write!(f, "{value:.1} {}", UNITS[unit]) }
    }
}

/// What is wrong with a line of text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// A vertex was expected.
    #[error("`{found}` is not a vertex identifier, which is a whole number from 0 to 18446744073709551615")]
    NotAVertex {
        /// What stands there.
        found: String,
    },
    /// Columns with commas between them.
    #[error("`{found}`: columns are separated by blanks or tabs, not by commas; replace them, as `tr , ' '` does")]
    Commas {
        /// What stands there.
        found: String,
    },
    /// A vertex identifier below zero.
    #[error(
        "vertex {found} is negative; identifiers are whole numbers from 0 to 18446744073709551615, so renumber the vertices"
    )]
    NegativeVertex {
        /// What stands there.
        found: String,
    },
    /// A vertex identifier of more than 64 bits.
    #[error("vertex {found} is larger than 18446744073709551615 (64 bits); renumber the vertices")]
    HugeVertex {
        /// What stands there.
        found: String,
    },
    /// The line ends too early, or goes on for too long.
    #[error("{found} column(s) where {expected} {}", if *.expected == 1 { "is expected" } else { "are expected" })]
    Columns {
        /// Columns of the line.
        found: usize,
        /// Columns that the format, or the first line of the file, asks for.
        expected: usize,
    },
    /// An `.el` file with a third column.
    #[error("a third column in an unweighted list; if it holds weights, rename the file to end in .wel")]
    UnexpectedWeight,
    /// A weight was expected.
    #[error("`{found}` is not a weight, which is a number such as 3 or 0.25")]
    NotAWeight {
        /// What stands there.
        found: String,
    },
    /// Shortest paths are not defined for what this is.
    #[error("weight {found} is negative; shortest paths need weights of zero or more")]
    NegativeWeight {
        /// What stands there.
        found: String,
    },
    /// NaN, infinite, or too large for the precision.
    #[error("weight {found} is not a finite number")]
    NotFinite {
        /// What stands there.
        found: String,
    },
    /// An integer weight of more than 32 bits.
    #[error("integer weight {found} is larger than 4294967295; write it as {found}.0 to work with real weights")]
    HugeWeight {
        /// What stands there.
        found: String,
    },
    /// Something that no text holds.
    #[error("a byte {byte:#04x}: this is not a text file (GAP's binary graphs end in .sg or .wsg)")]
    Binary {
        /// The byte.
        byte: u8,
    },
    /// A line without end.
    #[error("more than {} bytes without an end of line: this is not an edge list", grouped(.limit))]
    LongLine {
        /// Longest line that is read.
        limit: u64,
    },
    /// Matrix Market: beyond the size line.
    #[error("vertex {found} is larger than the {} {what} that the header names", grouped(.limit))]
    BeyondHeader {
        /// The vertex.
        found: u64,
        /// Rows or columns.
        what: &'static str,
        /// What the header says.
        limit: u64,
    },
    /// Matrix Market: vertices are counted from 1.
    #[error("vertex 0 in a Matrix Market file, whose rows and columns are counted from 1")]
    ZeroIndex,
    /// Matrix Market: first line.
    #[error("`{found}` is not a Matrix Market header; it begins `%%MatrixMarket matrix coordinate`")]
    Banner {
        /// What stands there.
        found: String,
    },
    /// Matrix Market: a kind of matrix that is no graph.
    #[error("{what} `{found}` is not supported; {advice}")]
    Unsupported {
        /// Which word of the header.
        what: &'static str,
        /// What stands there.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// Matrix Market: the line with rows, columns and entries.
    #[error("`{found}` is not a size line, which is three whole numbers: rows, columns, entries")]
    SizeLine {
        /// What stands there.
        found: String,
    },
    /// Matrix Market: not square.
    #[error("{} rows and {} columns: the matrix of a graph is square", grouped(.rows), grouped(.columns))]
    NotSquare {
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
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
        /// What stands there.
        found: String,
    },
}

/// What is wrong with a GAP serialized graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SerializedFault {
    /// Shorter than the header.
    #[error("{found} bytes are too few for the 17 bytes of a header; the file is cut short or not a GAP graph")]
    Short {
        /// Bytes of the file.
        found: u64,
    },
    /// The direction byte.
    #[error("the first byte is {found}, it must be 0 (undirected) or 1 (directed); this is not a GAP graph")]
    Direction {
        /// The byte.
        found: u8,
    },
    /// A count that cannot be.
    #[error("the header names {found} {what}, which must lie between {low} and {high}; this is not a GAP graph")]
    Count {
        /// Edges or vertices.
        what: &'static str,
        /// What the header says.
        found: i64,
        /// Least.
        low: i64,
        /// Most.
        high: i64,
    },
    /// The sizes of the header do not give the length of the file.
    #[error(
        "{} vertices and {} edges make {} bytes, the file has {}; it is cut short, or has {other} weights and must end in {ending}",
        grouped(.vertices), grouped(.edges), grouped(.expected), grouped(.found)
    )]
    Length {
        /// Vertices that the header names.
        vertices: u64,
        /// Edges that the header names.
        edges: u64,
        /// Bytes that a whole file would have.
        expected: u128,
        /// Bytes of the file.
        found: u64,
        /// "no" or "int32".
        other: &'static str,
        /// The other ending.
        ending: &'static str,
    },
    /// A weight that shortest paths are not defined for.
    #[error("edge {} has the weight {found}; shortest paths need weights of zero or more", grouped(.index))]
    NegativeWeight {
        /// Place in the edge list.
        index: u64,
        /// The weight.
        found: i32,
    },
    /// The offsets or neighbours do not make a graph.
    #[error("{0}; the file is damaged")]
    Graph(#[from] CsrError),
}

/// Why a graph could not be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The operating system refused.
    #[error("{}: {}", path.display(), plain(source))]
    Io {
        /// File.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that another one needs is missing.
    #[error("{}: no such file, and {} cannot be read without it", path.display(), beside.display())]
    MissingPart {
        /// The file that is missing.
        path: PathBuf,
        /// The file that was given.
        beside: PathBuf,
    },
    /// A folder, device or pipe.
    #[error("{}: is {what}; name a graph file ({KNOWN_ENDINGS})", path.display())]
    NotAFile {
        /// Path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// An ending that is not known.
    #[error("{}: {}", path.display(), unknown_ending(found))]
    UnknownEnding {
        /// File.
        path: PathBuf,
        /// Its ending with the dot; empty if it has none.
        found: String,
    },
    /// A file of no bytes.
    #[error("{}: is empty (0 bytes); was it copied or downloaded to its end?", path.display())]
    Empty {
        /// File.
        path: PathBuf,
    },
    /// The file became shorter while it was read.
    #[error("{}: ends at byte {}, but was longer when it was opened; is another program writing it?", path.display(), grouped(.at))]
    Shrunk {
        /// File.
        path: PathBuf,
        /// Where it ends now.
        at: u64,
    },
    /// A line is wrong.
    #[error("{} line {}: {fault}", path.display(), grouped(.line))]
    Line {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        fault: LineFault,
    },
    /// Matrix Market: the file ends before the size line.
    #[error("{}: ends before the line with rows, columns and entries; the file is cut short", path.display())]
    NoSizeLine {
        /// File.
        path: PathBuf,
    },
    /// Matrix Market: not as many entries as the header names.
    #[error("{}: the header names {} entries, the file holds {}; it is cut short or was changed", path.display(), grouped(.expected), grouped(.found))]
    Entries {
        /// File.
        path: PathBuf,
        /// Entries that the header names.
        expected: u64,
        /// Entries of the file.
        found: u64,
    },
    /// Matrix Market: more entries than the file has room for.
    #[error("{}: the header names {} entries, but {} bytes cannot hold more than {}", path.display(), grouped(.entries), grouped(.bytes), grouped(.most))]
    TooManyEntries {
        /// File.
        path: PathBuf,
        /// Entries that the header names.
        entries: u64,
        /// Length of the file.
        bytes: u64,
        /// Entries that fit.
        most: u64,
    },
    /// A GAP serialized graph is damaged.
    #[error("{}: {fault}", path.display())]
    Serialized {
        /// File.
        path: PathBuf,
        /// What is wrong.
        fault: SerializedFault,
    },
    /// The graph does not fit.
    #[error("{what}: {} vertices and {} edges need about {} of memory, {} is free; free some, or take a smaller graph", grouped(.vertices), grouped(.edges), Size(*.needed), Size(*.free))]
    Memory {
        /// File or generator.
        what: String,
        /// Vertices.
        vertices: u128,
        /// Edges.
        edges: u128,
        /// Bytes needed.
        needed: u128,
        /// Bytes free.
        free: u128,
    },
    /// The system does not give the memory.
    #[error("{what}: {} vertices and {} edges need about {} of memory, which the system refuses to give; raise the limit (`ulimit -v`), or take a smaller graph", grouped(.vertices), grouped(.edges), Size(*.needed))]
    Refused {
        /// File or generator.
        what: String,
        /// Vertices.
        vertices: u128,
        /// Edges.
        edges: u128,
        /// Bytes needed.
        needed: u128,
    },
    /// The text does not fit.
    #[error("{}: {} of text need at least {} of memory, {} is free; free some, or take a smaller graph", path.display(), Size((*.bytes).into()), Size((*.needed).into()), Size((*.free).into()))]
    LargeText {
        /// File.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// No vertex at all.
    #[error("{}: holds no vertex; a graph without edges can be given as .mtx or as .v and .e, which name their vertices", path.display())]
    NoVertices {
        /// File.
        path: PathBuf,
    },
    /// A generator's parameters.
    #[error(
        "`{given}`: {reason}; generators are kron:SCALE[:EDGEFACTOR] and urand:SCALE[:EDGEFACTOR], as in kron:20:16"
    )]
    Generator {
        /// What was given.
        given: String,
        /// Why not.
        reason: String,
    },
}

/// The words for an operating system error, without its number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied; it must be readable".to_owned(),
        _ => error.to_string(),
    }
}

fn unknown_ending(found: &str) -> String {
    const LIST: &str = "an edge list, two vertices on a line, ends in .el or .txt";
    let hint = match found {
        "" => return format!("has no ending, which tells the format; rename it to end in {KNOWN_ENDINGS} ({LIST})"),
        ".gz" | ".xz" | ".bz2" | ".zst" => " (uncompress it first)",
        ".tar" | ".zip" | ".tgz" => " (unpack it first)",
        ".csv" | ".tsv" => " (write two vertices on each line, with blanks or tabs between them, to a file in .el)",
        _ => "",
    };
    format!("{found} is not a known ending of graph files; they end in {KNOWN_ENDINGS}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0u64, "0"), (999, "999"), (1000, "1,000"), (3114, "3,114"), (9_000_000, "9,000,000")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(Size(1023).to_string(), "1023 bytes");
        assert_eq!(Size(3 << 29).to_string(), "1.5 GiB");
    }

    #[test]
    fn a_line_error_reads_as_one_line() {
        let fault = LineFault::BeyondHeader { found: 9_000_001, what: "rows", limit: 9_000_000 };
        let error = ImportError::Line { path: "/data/graph.mtx".into(), line: 3114, fault };
        assert_eq!(
            error.to_string(),
            "/data/graph.mtx line 3,114: vertex 9000001 is larger than the 9,000,000 rows that the header names"
        );
    }
}
