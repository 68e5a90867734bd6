//! Errors of imports and generators. Each message is one line with the file, the place, the fault and the remedy.

use super::Format;
use super::line_fault::{KNOWN_COLUMNS, LineFault};
use crate::graph::csr::CsrError;
use crate::graph::external::SpillError;
use crate::units::grouped;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Endings of the files that can be read, each also with `.gz` or `.zst` behind it.
pub const KNOWN_ENDINGS: &str =
    ".el .txt .edges .wel .csv .tsv .parquet .arrow .feather .mtx .gr .col .graph .v .e .sg .wsg";

/// Formats a number of bytes in the unit that suits it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(pub u128);

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
    /// BVGraph: the properties or the offsets are not those of such a graph, or the graph cannot be decoded.
    #[error("{}: {reason}", path.display())]
    BvGraph {
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
    /// A graph cannot be stored in so many parts.
    #[error("graphs of at most 2^32 - 2 vertices can be stored in 2 to 65,535 parts, and {}", refused_parts(*.parts, *.vertices))]
    PartCount {
        /// Number of parts asked for.
        parts: usize,
        /// Number of vertices, if there are too many.
        vertices: Option<u64>,
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

fn refused_parts(parts: usize, vertices: Option<u64>) -> String {
    match vertices {
        Some(vertices) => format!("this one has {}; store it whole", grouped(vertices)),
        None => format!("{parts} were asked for"),
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
