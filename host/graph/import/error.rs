//! Errors of imports and generators. Each message is one line with the file, the place, the fault and the remedy.

use super::Format;
use crate::graph::csr::CsrError;
use crate::graph::external::SpillError;
use crate::graph::names::NameFault;
use crate::units::grouped;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Endings of the files that can be read, each also with `.gz` or `.zst` behind it.
pub const KNOWN_ENDINGS: &str =
    ".el .txt .edges .wel .csv .tsv .parquet .arrow .feather .mtx .gr .col .graph .v .e .sg .wsg";

/// Names of columns that are known, in words.
const KNOWN_COLUMNS: &str = "known are source, src, from, start, origin for sources, target, dst, dest, to, end for targets (each also with `id` or `node`), and weight, cost, distance, value, w";

/// Formats a number of bytes in the unit that suits it.
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
    /// A weight that is NaN, infinite, or too large for the precision.
    #[error("weight {found} is not a finite number")]
    NotFinite {
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
        /// What that word may be.
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

/// Fault in a GAP serialized graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SerializedFault {
    /// The file is shorter than the header.
    #[error("{found} bytes are too few for the 17 bytes of a header; the file is cut short or not a GAP graph")]
    Short {
        /// Bytes of the file.
        found: u64,
    },
    /// The direction byte is neither 0 nor 1.
    #[error("the first byte is {found}, it must be 0 (undirected) or 1 (directed); this is not a GAP graph")]
    Direction {
        /// The byte.
        found: u8,
    },
    /// A number of edges or vertices is out of range.
    #[error("the header names {found} {what}, which must lie between {low} and {high}; this is not a GAP graph")]
    Count {
        /// `edges` or `vertices`.
        what: &'static str,
        /// Number in the header.
        found: i64,
        /// Smallest allowed number.
        low: i64,
        /// Largest allowed number.
        high: i64,
    },
    /// The numbers in the header do not match the length of the file.
    #[error(
        "{} vertices and {} edges make {} bytes, the file has {}; it is cut short, or has {other} weights and must end in {ending}",
        grouped(.vertices), grouped(.edges), grouped(.expected), grouped(.found)
    )]
    Length {
        /// Vertices according to the header.
        vertices: u64,
        /// Edges according to the header.
        edges: u64,
        /// Bytes of a complete file.
        expected: u128,
        /// Bytes of the file.
        found: u64,
        /// Kind of weights that the other format has: `no` or `int32`.
        other: &'static str,
        /// Ending of the other format.
        ending: &'static str,
    },
    /// A negative weight, for which shortest paths are not defined.
    #[error("edge {} has the weight {found}; shortest paths need weights of zero or more", grouped(.index))]
    NegativeWeight {
        /// Index of the edge in the list.
        index: u64,
        /// The weight.
        found: i32,
    },
    /// The offsets or neighbours do not make a graph.
    #[error("{0}; the file is damaged")]
    Graph(#[from] CsrError),
}

/// Error of reading or generating a graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file operation failed.
    #[error("{}: {}", path.display(), plain(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
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
    /// A folder, device or pipe instead of a file.
    #[error("{}: is {what}; name a graph file ({KNOWN_ENDINGS})", path.display())]
    NotAFile {
        /// Path.
        path: PathBuf,
        /// Kind of the object, in words.
        what: &'static str,
    },
    /// The file's ending is not known.
    #[error("{}: {}", path.display(), unknown_ending(found))]
    UnknownEnding {
        /// File.
        path: PathBuf,
        /// The ending with its dot, or an empty string if there is none.
        found: String,
    },
    /// Standard input, whose format nothing tells.
    #[error("standard input has no ending, which tells the format; name the format ({formats})")]
    NoFormat {
        /// Names of the formats.
        formats: String,
    },
    /// Names were asked for, but the format numbers its vertices.
    #[error("{}: vertices of the format {format} are numbers; only edge lists and tables have names", path.display())]
    NumberedFormat {
        /// File.
        path: PathBuf,
        /// The format.
        format: Format,
    },
    /// The contents cannot be decompressed.
    #[error("{}: cannot be decompressed ({source}); the {compression} file is cut short or damaged", path.display())]
    Compressed {
        /// File.
        path: PathBuf,
        /// Kind of compression.
        compression: String,
        /// The error of the decompression.
        source: io::Error,
    },
    /// The first line or the schema of a table has columns twice, or lacks one of the two columns of vertices, or one that
    /// the options choose.
    #[error("{}: {found}; {KNOWN_COLUMNS}; rename the columns, or choose them", path.display())]
    Header {
        /// File.
        path: PathBuf,
        /// The fault, with the columns.
        found: String,
    },
    /// A number of vertices was given, and the input has one of its own, or names.
    #[error("{}: {reason}, so the number of vertices cannot be chosen", path.display())]
    CountedVertices {
        /// File.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Columns were chosen for a format that has none.
    #[error("{}: the columns of the format {format} cannot be chosen; only those of edge lists and tables can", path.display())]
    FixedColumns {
        /// File.
        path: PathBuf,
        /// The format.
        format: Format,
    },
    /// Open Graph Benchmark: the folder has the edges of several graphs in one list.
    #[error("{}: lists {} graphs, whose edges are all in one file; only a folder of one graph can be read", path.display(), grouped(.graphs))]
    SeveralGraphs {
        /// The list of the numbers of vertices.
        path: PathBuf,
        /// Number of graphs.
        graphs: u64,
    },
    /// METIS: vertices that are their own neighbours, which the format does not have.
    #[error("{}: vertex {vertex} is its own neighbour ({} self-loops in all), which METIS graphs do not have; remove the self-loops, or write the edges as an edge list", path.display(), grouped(.loops))]
    MetisLoops {
        /// File.
        path: PathBuf,
        /// The first such vertex, counted from 1.
        vertex: u64,
        /// Number of self-loops.
        loops: u64,
    },
    /// Zstandard: the window is larger than what is decompressed.
    #[error("{}: its Zstandard window has {}, more than the {} that are decompressed{}; {}", path.display(), Size((*.window).into()), Size((*.limit).into()), if *.by_memory { " within the limit of memory" } else { "" }, if *.by_memory { "raise the limit, or compress the file with a smaller window" } else { "decompress the file first, or compress it with a smaller window" })]
    LargeWindow {
        /// File.
        path: PathBuf,
        /// Bytes of the window.
        window: u64,
        /// Most bytes of a window.
        limit: u64,
        /// True if the limit of memory decides that number.
        by_memory: bool,
    },
    /// METIS: the number of lines is not the number of vertices in the header.
    #[error("{}: the header names {} vertices, the file has {} lines for vertices; it is cut short or was changed", path.display(), grouped(.expected), grouped(.found))]
    Rows {
        /// File.
        path: PathBuf,
        /// Vertices according to the header.
        expected: u64,
        /// Lines of the file behind the header.
        found: u64,
    },
    /// The file is empty.
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
        /// Its new length in bytes.
        at: u64,
    },
    /// A line has a fault.
    #[error("{} line {}: {fault}", path.display(), grouped(.line))]
    Line {
        /// File.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// The fault.
        fault: LineFault,
    },
    /// Parquet, Arrow: a row has a fault.
    #[error("{} row {}: {fault}", path.display(), grouped(.row))]
    Row {
        /// File.
        path: PathBuf,
        /// Number of the row, from 1.
        row: u64,
        /// The fault.
        fault: LineFault,
    },
    /// Parquet, Arrow: the columns are not those of an edge table, or the file cannot be decoded.
    #[error("{}: {reason}", path.display())]
    Table {
        /// File.
        path: PathBuf,
        /// The fault and the remedy.
        reason: String,
    },
    /// A format that this build of the library does not read.
    #[error("{}: this build does not read {format} files; build it with the feature `{feature}`, or write the edges as .csv", path.display())]
    Feature {
        /// File.
        path: PathBuf,
        /// The format.
        format: Format,
        /// The cargo feature that adds the format.
        feature: &'static str,
    },
    /// Matrix Market, DIMACS, METIS: the file ends before the line with its sizes.
    #[error("{}: ends before the line with its sizes ({what}); the file is cut short", path.display())]
    NoSizeLine {
        /// The sizes.
        what: &'static str,
        /// File.
        path: PathBuf,
    },
    /// Matrix Market, DIMACS, METIS: the number of entries is not the one in the header.
    #[error("{}: the header names {} entries, the file holds {}; it is cut short or was changed", path.display(), grouped(.expected), grouped(.found))]
    Entries {
        /// File.
        path: PathBuf,
        /// Entries according to the header.
        expected: u64,
        /// Entries of the file.
        found: u64,
    },
    /// Matrix Market, DIMACS, METIS: the header has more entries than fit into the file.
    #[error("{}: the header names {} entries, but {} bytes cannot hold more than {}", path.display(), grouped(.entries), grouped(.bytes), grouped(.most))]
    TooManyEntries {
        /// File.
        path: PathBuf,
        /// Entries according to the header.
        entries: u64,
        /// Length of the file.
        bytes: u64,
        /// Most entries that fit into the file.
        most: u64,
    },
    /// A GAP serialized graph is damaged.
    #[error("{}: {fault}", path.display())]
    Serialized {
        /// File.
        path: PathBuf,
        /// The fault.
        fault: SerializedFault,
    },
    /// The graph needs more memory than is free.
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
    /// The system does not allocate the memory.
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
    /// The text needs more memory than is free.
    #[error("{}: {} of text need at least {} of memory, {} is free; free some, or take a smaller graph", path.display(), Size((*.bytes).into()), Size((*.needed).into()), Size((*.free).into()))]
    LargeText {
        /// File.
        path: PathBuf,
        /// Length of the file in bytes.
        bytes: u64,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The vertices alone need more memory than the limit, however the edges are sorted.
    #[error("{what}: {} vertices need about {} of memory while their edges are sorted, the limit is {}; raise the limit", grouped(.vertices), Size((*.needed).into()), Size((*.limit).into()))]
    SmallBudget {
        /// File or generator.
        what: String,
        /// Vertices.
        vertices: u64,
        /// Bytes needed.
        needed: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A temporary file cannot be created, written or read.
    #[error("temporary file in {}: {source}; {}", folder.display(), temporary(source))]
    TemporaryFile {
        /// Folder of the file.
        folder: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The file has no vertices.
    #[error("{}: holds no vertex; a graph without edges can be given as .mtx or as .v and .e, which name their vertices", path.display())]
    NoVertices {
        /// File.
        path: PathBuf,
    },
    /// A generator has invalid parameters.
    #[error(
        "`{given}`: {reason}; generators are kron:SCALE[:EDGEFACTOR] and urand:SCALE[:EDGEFACTOR], as in kron:20:16"
    )]
    Generator {
        /// The text as given.
        given: String,
        /// The reason.
        reason: String,
    },
}

/// Describes an operating system error without its number.
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
        ".xz" | ".bz2" | ".lz4" => " (compress it with gzip or zstd instead)",
        ".tar" | ".zip" | ".tgz" => " (unpack it first)",
        _ => "",
    };
    format!("{found} is not a known ending of graph files; they end in {KNOWN_ENDINGS}{hint}")
}

impl From<SpillError> for ImportError {
    fn from(e: SpillError) -> Self {
        Self::TemporaryFile { folder: e.folder, source: e.source }
    }
}

fn temporary(error: &io::Error) -> &'static str {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space, allow more memory, or choose another folder"
        }
        _ => "choose another folder",
    }
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
