//! Reads graph files in several formats.
//!
//! | ending | format |
//! |---|---|
//! | `.el`, `.txt` | edge list: two vertices on a line (`.txt` may have a weight in a third column) |
//! | `.wel` | weighted edge list: two vertices and a weight |
//! | `.csv`, `.tsv` | columns separated by commas or tabs; a header line may name them (`source`, `target`, `weight`) |
//! | `.parquet`, `.arrow`, `.feather` | edge tables with columns `source`, `target` and `weight` (feature `parquet`) |
//! | `.mtx` | Matrix Market: coordinate; general or symmetric; pattern, integer or real |
//! | `.gr` | DIMACS shortest paths: `p sp`, `a` lines |
//! | `.graph` | METIS: the neighbours of one vertex on each line |
//! | `.v` + `.e` | LDBC Graphalytics: vertices, edges with an optional weight, and `.properties` when there is one |
//! | `.sg`, `.wsg` | GAP Benchmark Suite's serialized graph, without and with int32 weights |
//!
//! A file may be compressed with gzip or zstd, and then ends in `.gz` or `.zst` behind its own ending. `-` is standard
//! input. [`LoadOptions::format`] chooses another format than the ending's.
//!
//! In edge lists `#` and `%` begin comment lines. Words are separated by blanks and tabs. Lines end in LF or CR LF.
//!
//! # Vertices
//!
//! * Edge lists have the vertices that occur in edges.
//! * Matrix Market, DIMACS and METIS files have the vertices from 1 to the number in their header.
//! * LDBC graphs have the vertices of the vertex file, or without one those that occur in the edge file.
//! * GAP graphs have the vertices `0 .. vertices`.
//!
//! # Numbers or names
//!
//! Vertices of edge lists and tables are numbers or names; the first line with an edge decides ([`IdKind::Auto`]). Names
//! are UTF-8, of 1 to 4096 bytes without control characters other than tabs. Words of edge lists have no blanks. A field
//! of a table may have any, and is quoted where the name has a comma (RFC 4180). Names in ascending order of their bytes
//! number the vertices, so that results depend neither on the order of the lines nor on the number of threads.
//!
//! # Directed or undirected
//!
//! [`Orientation::Auto`] follows the file. Some files do not state the orientation: edge lists without SNAP's header,
//! Matrix Market `general`, LDBC without properties. Such a graph is directed, unless each edge occurs in both
//! directions with equal weights. Then the graph is undirected, and each such pair is one edge.
//!
//! SNAP's header is a comment in front of the first edge of `.el`, `.txt` and `.wel`. A file with `# Undirected graph`
//! lists each edge once, and the graph is undirected. A file with `# Directed graph` may list each edge in both
//! directions; such a graph is undirected, too.

mod bytes;
#[cfg(feature = "parquet")]
mod columnar;
mod decompress;
mod dimacs;
mod edge_list;
mod error;
mod file_format;
mod ldbc;
mod matrix_market;
mod memory;
mod metis;
mod names;
mod pieces;
mod raw;
mod separated;
mod serialized;
mod sorted;
mod text;

pub use error::{ImportError, KNOWN_ENDINGS, LineFault, SerializedFault};
pub use file_format::{FileFormat, UnknownFormat};
pub(crate) use memory::check as check_memory;
pub(crate) use pieces::Pieces;
pub(crate) use raw::{RawEdges, Read, give_weights};
pub(crate) use sorted::{Imported, SortedGraph, budget, finish_or_sort};

use super::build;
use super::csr::Csr;
use super::external::Budget;
use crate::setters::setters;
use bytes::Bytes;
use std::fmt;
use std::path::{Path, PathBuf};
use text::{Header, PieceSizes, Plan};

/// Choice between directed and undirected edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Orientation {
    /// As the file states, or as its edges show.
    #[default]
    Auto,
    /// Each edge leads from its first vertex to its second only.
    Directed,
    /// Each edge leads in both directions.
    Undirected,
}

/// Choice between numbers and names as the identifiers of vertices, for edge lists and tables. Other formats have
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum IdKind {
    /// Names, if a vertex of the first line with an edge is a word and not a number; otherwise numbers. A first line
    /// with words above a line of numbers is an error, because it may be a header.
    #[default]
    Auto,
    /// Whole numbers from 0 to 2^64 - 1.
    Numbers,
    /// Names, also those that look like numbers.
    Names,
}

/// Choice of the weights of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WeightMode {
    /// No weights. Weights of the input are not read.
    #[default]
    Ignore,
    /// Weights of the input: integers if all are integers, otherwise real numbers. Files without weights get 1 for each
    /// edge. Generated graphs get [`WeightMode::RandomIntegers`].
    Input,
    /// Weights of the input, if it has some.
    IfPresent,
    /// Uniform integers from 1 to 255, as GAP's generators give. They depend only on the seed and the edge, so both
    /// directions of an edge have the same weight.
    RandomIntegers,
    /// Uniform real numbers in [0, 1), as in Graph500, otherwise like [`WeightMode::RandomIntegers`].
    RandomReals,
}

impl WeightMode {
    /// Returns the source of the weights for an input with or without weights.
    pub(crate) fn source(self, weighted: bool) -> WeightSource {
        match self {
            Self::Input | Self::IfPresent if weighted => WeightSource::Input,
            Self::Ignore | Self::IfPresent => WeightSource::None,
            Self::Input => WeightSource::Unit,
            Self::RandomIntegers => WeightSource::RandomIntegers,
            Self::RandomReals => WeightSource::RandomReals,
        }
    }

    /// Returns the source of the weights of a generated graph.
    pub(crate) fn generated(self) -> WeightSource {
        match self {
            Self::Input => WeightSource::RandomIntegers,
            other => other.source(false),
        }
    }
}

/// Precision of real weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Precision {
    /// 32 bits.
    #[default]
    Single,
    /// 64 bits.
    Double,
}

/// Stage of loading a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading and decompressing, counted in compressed bytes.
    Decompress,
    /// Reading and parsing, counted in bytes.
    Read,
    /// Generating edges and building neighbour lists, counted in edges. Each edge is handled twice.
    Build,
    /// Sorting edges that do not fit into memory, counted in edges.
    Sort,
    /// Merging sorted edges, counted in ranges of them.
    Merge,
    /// Writing a graph to a volume, counted in bytes.
    Store,
}

/// Progress of loading a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Current stage.
    pub stage: Stage,
    /// Units done, in the stage's unit.
    pub done: u64,
    /// Total units.
    pub total: u64,
}

/// Function that many threads call while a graph is loaded, at most a few times for each megabyte.
pub type ProgressFn<'a> = &'a (dyn Fn(Progress) + Sync);

/// Options of loading a graph.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LoadOptions<'a> {
    /// Format of a file. With `None` the file's ending names it.
    pub format: Option<FileFormat>,
    /// Choice between numbers and names of vertices.
    pub ids: IdKind,
    /// Choice between directed and undirected edges.
    pub orientation: Orientation,
    /// Choice of the weights.
    pub weights: WeightMode,
    /// Precision of real weights.
    pub precision: Precision,
    /// True to keep edges from a vertex to itself. They matter to PageRank only.
    pub keep_self_loops: bool,
    /// True to use 64-bit neighbours even where 32 bits suffice.
    pub wide: bool,
    /// Seed of generators and random weights.
    pub seed: u64,
    /// Memory limit in bytes. With `None` the limit is the memory that is free. A graph that is to be stored may be larger
    /// ([`Graph::import`](super::Graph::import)).
    pub memory: Option<u64>,
    /// Folder of temporary files for graphs that are larger. With `None` it is the one that `TMPDIR` names, or `/var/tmp`.
    pub temp_dir: Option<&'a Path>,
    /// Function that is called as loading proceeds.
    pub progress: Option<ProgressFn<'a>>,
}

setters!(LoadOptions<'a> {
    format: Option<FileFormat>,
    ids: IdKind,
    orientation: Orientation,
    weights: WeightMode,
    precision: Precision,
    keep_self_loops: bool,
    wide: bool,
    seed: u64,
    memory: Option<u64>,
    temp_dir: Option<&'a Path>,
    progress: Option<ProgressFn<'a>>,
});

/// Seed of GAP's generators.
pub const DEFAULT_SEED: u64 = 27_491_095;

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        Self {
            format: None,
            ids: IdKind::Auto,
            orientation: Orientation::Auto,
            weights: WeightMode::Ignore,
            precision: Precision::Single,
            keep_self_loops: false,
            wide: false,
            seed: DEFAULT_SEED,
            memory: None,
            temp_dir: None,
            progress: None,
        }
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions")
            .field("format", &self.format)
            .field("ids", &self.ids)
            .field("orientation", &self.orientation)
            .field("weights", &self.weights)
            .field("precision", &self.precision)
            .field("keep_self_loops", &self.keep_self_loops)
            .field("wide", &self.wide)
            .field("seed", &self.seed)
            .field("memory", &self.memory)
            .field("temp_dir", &self.temp_dir)
            .finish_non_exhaustive()
    }
}

/// Kind of input of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `.el` or `.txt`.
    EdgeList,
    /// `.wel`.
    WeightedEdgeList,
    /// `.csv` or `.tsv`.
    Separated,
    /// `.parquet`.
    Parquet,
    /// `.arrow` or `.feather`.
    Arrow,
    /// `.mtx`.
    MatrixMarket,
    /// `.gr`.
    Dimacs,
    /// `.graph`.
    Metis,
    /// `.v` and `.e`.
    Ldbc,
    /// `.sg`.
    Serialized,
    /// `.wsg`.
    WeightedSerialized,
    /// `kron:`.
    Kronecker,
    /// `urand:`.
    Uniform,
    /// Arrays in memory.
    Memory,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EdgeList => "edge list",
            Self::WeightedEdgeList => "weighted edge list",
            Self::Separated => "separated columns",
            Self::Parquet => "Parquet",
            Self::Arrow => "Arrow IPC",
            Self::MatrixMarket => "Matrix Market",
            Self::Dimacs => "DIMACS shortest paths",
            Self::Metis => "METIS",
            Self::Ldbc => "LDBC Graphalytics",
            Self::Serialized => "GAP serialized graph",
            Self::WeightedSerialized => "GAP weighted serialized graph",
            Self::Kronecker => "Kronecker generator",
            Self::Uniform => "uniform generator",
            Self::Memory => "arrays in memory",
        })
    }
}

/// Reason why a graph is directed or undirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrientationReason {
    /// The options chose it.
    Requested,
    /// The input states it.
    Declared,
    /// The input does not state it, and each edge occurs in both directions.
    Symmetric,
    /// The input does not state it, and some edges occur in one direction only.
    OneWay,
    /// The input does not state it, and no edge occurs in both directions.
    Once,
}

impl fmt::Display for OrientationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "as asked",
            Self::Declared => "as the input says",
            Self::Symmetric => "each edge is there in both directions",
            Self::OneWay => "not each edge is there in both directions",
            Self::Once => "each edge is there in one direction",
        })
    }
}

/// Source of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightSource {
    /// The graph has no weights.
    None,
    /// Weights of the input.
    Input,
    /// Weight 1 for each edge, since the input has no weights.
    Unit,
    /// Uniform integers from 1 to 255.
    RandomIntegers,
    /// Uniform real numbers in [0, 1).
    RandomReals,
}

impl fmt::Display for WeightSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no weights",
            Self::Input => "the input's weights",
            Self::Unit => "weight 1 for each edge",
            Self::RandomIntegers => "random weights 1 to 255",
            Self::RandomReals => "random weights in [0, 1)",
        })
    }
}

/// Facts about the input, and decisions made while the graph was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Kind of input.
    pub format: Format,
    /// Reason why the graph is directed or undirected.
    pub orientation: OrientationReason,
    /// Source of the weights.
    pub weights: WeightSource,
    /// Number of edges of the input.
    pub input_edges: u64,
    /// Number of edges of the input from a vertex to itself.
    pub self_loops: u64,
    /// Number of arcs that were dropped as duplicates.
    pub duplicates: u64,
    /// Number of bytes read.
    pub bytes: u64,
}

/// A graph with a summary of its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The graph.
    pub csr: Csr,
    /// Facts about the input, and decisions made.
    pub summary: Summary,
}

/// Sizes that the header of a file names.
struct Sizes {
    vertices: u64,
    /// Number of entries behind the header.
    entries: u64,
    /// Length of the shortest entry.
    least_entry_bytes: u64,
    /// True if an entry stands for two arcs.
    mirrored: bool,
    /// True if weights are read.
    weighted: bool,
}

/// State that all formats share while they read.
pub(crate) struct Reader<'a> {
    pub options: &'a LoadOptions<'a>,
    pub piece_sizes: PieceSizes,
    /// Limits within which edges are read that need not fit into memory. `None` if they must.
    pub budget: Option<Budget>,
}

/// Contents of an input.
pub(crate) enum Contents {
    /// Edges, in any order.
    Edges(Read),
    /// A file of neighbour lists.
    Graph(Loaded),
}

/// Reads the graph file at `path`, or standard input for `-`. The path of an LDBC graph is that of either file, or their
/// common prefix.
///
/// # Errors
/// * [`ImportError::Io`], [`ImportError::MissingPart`], [`ImportError::NotAFile`], [`ImportError::Empty`],
///   [`ImportError::Shrunk`] or [`ImportError::Compressed`] if a file cannot be read.
/// * [`ImportError::NumberedFormat`] if [`LoadOptions::ids`] asks for names in a format that has numbers.
/// * [`ImportError::UnknownEnding`] if the ending is that of no format; [`ImportError::NoFormat`] for standard input
///   without [`LoadOptions::format`].
/// * [`ImportError::Line`], [`ImportError::NoSizeLine`], [`ImportError::Entries`], [`ImportError::TooManyEntries`],
///   [`ImportError::Rows`], [`ImportError::Header`], [`ImportError::Serialized`] or [`ImportError::NoVertices`] if the
///   contents are wrong.
/// * [`ImportError::Table`] or [`ImportError::Row`] if a Parquet or Arrow file is no edge table; [`ImportError::Feature`]
///   if this build does not read such files.
/// * [`ImportError::Memory`], [`ImportError::Refused`] or [`ImportError::LargeText`] if the graph does not fit into
///   memory.
pub fn load(path: &Path, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    Reader { options, piece_sizes: PieceSizes::of(text::PIECE), budget: None }.open(path)?.in_memory(options)
}

/// Reads the graph file at `path` as [`load`] does. A graph that does not fit into memory is sorted in temporary files.
///
/// # Errors
/// As for [`load`]; also [`ImportError::TemporaryFile`] if a temporary file cannot be written, and
/// [`ImportError::SmallBudget`] if the vertices alone do not fit into memory.
pub(crate) fn load_or_sort(path: &Path, options: &LoadOptions<'_>) -> Result<Imported, ImportError> {
    let budget = sorted::budget(options);
    let reader = Reader { options, piece_sizes: PieceSizes::within(budget.memory), budget: Some(budget.clone()) };
    match reader.open(path)? {
        Contents::Edges(read) => sorted::finish_or_sort(read, options, &budget),
        Contents::Graph(loaded) => Ok(Imported::InMemory(loaded)),
    }
}

impl Contents {
    fn in_memory(self, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
        match self {
            Self::Edges(read) => raw::finish(read, options),
            Self::Graph(loaded) => Ok(loaded),
        }
    }
}

impl Reader<'_> {
    fn open(&self, path: &Path) -> Result<Contents, ImportError> {
        let is_stdin = path.as_os_str() == bytes::STDIN;
        match self.options.format.or_else(|| FileFormat::of(path)) {
            Some(FileFormat::Ldbc) if !is_stdin => {
                self.check_names(path, Format::Ldbc)?;
                Ok(Contents::Edges(self.ldbc(&ldbc::Paths::of(path))?))
            }
            Some(format) => self.single(&Bytes::open(path, self)?, format),
            None if is_stdin => Err(ImportError::NoFormat { formats: FileFormat::names() }),
            None => {
                let parts = ldbc::Paths::from_prefix(path, "");
                if parts.vertices.is_file() || parts.edges.is_file() {
                    self.check_names(path, Format::Ldbc)?;
                    return Ok(Contents::Edges(self.ldbc(&parts)?));
                }
                // A path that cannot be opened is reported before its ending is checked.
                Bytes::check(path)?;
                Err(ImportError::UnknownEnding { path: path.to_owned(), found: ending(path) })
            }
        }
    }
}

/// Reads a graph from memory, in the format of the ending of `name`. `.v` and `.e` are read as edge files alone.
///
/// # Errors
/// As for [`load`], apart from errors of files.
///
/// # Examples
///
/// ```
/// use warpbell::graph::import::{LoadOptions, load_bytes};
///
/// // An edge list, with identifiers of its own.
/// let loaded = load_bytes("pairs.el", b"10 20\n20 30\n", &LoadOptions::default())?;
/// assert_eq!(loaded.csr.vertices(), 3);
/// assert_eq!(loaded.csr.ids().vertex(30), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn load_bytes(name: &str, bytes: &[u8], options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    load_pieces(name, bytes, options, text::PIECE)
}

/// Reads a graph as [`load_bytes`] does, with pieces of a given size.
fn load_pieces(name: &str, bytes: &[u8], options: &LoadOptions<'_>, piece: u64) -> Result<Loaded, ImportError> {
    let (path, reader) = (Path::new(name), Reader { options, piece_sizes: PieceSizes::of(piece), budget: None });
    let Some(format) = options.format.or_else(|| FileFormat::of(path)) else {
        return Err(ImportError::UnknownEnding { path: path.to_owned(), found: ending(path) });
    };
    reader.single(&Bytes::decompressed(path, bytes.into(), &reader)?, format)?.in_memory(options)
}

/// Returns the ending of a path, in front of that of a compressed file, with its dot.
fn ending(path: &Path) -> String {
    let name = decompress::uncompressed_name(path);
    name.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()))
}

impl Reader<'_> {
    /// Reads a graph of one file, which is the file of edges of an LDBC graph.
    fn single(&self, bytes: &Bytes<'_>, format: FileFormat) -> Result<Contents, ImportError> {
        if bytes.len() == 0 {
            return Err(Self::no_vertices(bytes.path().to_owned(), 0));
        }
        let kind = format.kind();
        self.check_names(bytes.path(), kind)?;
        let read = match format {
            FileFormat::El => self.edge_list(bytes, kind, edge_list::Columns::Two),
            FileFormat::Wel => self.edge_list(bytes, kind, edge_list::Columns::Three),
            FileFormat::Txt => self.edge_list(bytes, kind, edge_list::Columns::AsFirstLine),
            FileFormat::Csv => self.separated(bytes, b','),
            FileFormat::Tsv => self.separated(bytes, b'\t'),
            #[cfg(feature = "parquet")]
            FileFormat::Parquet | FileFormat::Arrow => self.columnar(bytes, kind),
            #[cfg(not(feature = "parquet"))]
            FileFormat::Parquet | FileFormat::Arrow => {
                Err(ImportError::Feature { path: bytes.path().to_owned(), format: kind, feature: "parquet" })
            }
            FileFormat::Mtx => self.matrix_market(bytes),
            FileFormat::Gr => self.dimacs(bytes),
            FileFormat::Graph => self.metis(bytes),
            FileFormat::Ldbc => self.ldbc_edges_alone(bytes),
            FileFormat::Sg => return self.serialized(bytes, false),
            FileFormat::Wsg => return self.serialized(bytes, true),
        };
        Ok(Contents::Edges(read?))
    }

    /// Returns a place for the pieces of an input.
    fn pieces(&self) -> Pieces {
        Pieces::new(self.budget.as_ref())
    }

    /// Parses lines of edges.
    fn parse(
        &self,
        bytes: &Bytes<'_>,
        plan: &Plan<'_>,
        line: impl Fn(&mut RawEdges, &[u8]) -> Result<(), LineFault> + Sync,
    ) -> Result<Pieces, ImportError> {
        let mut pieces = self.pieces();
        text::parse(bytes, plan, line, |edges| pieces.push(edges))?;
        Ok(pieces)
    }

    /// Returns the range of all lines.
    fn whole(&self) -> Plan<'_> {
        self.lines_from(0, 1)
    }

    /// Returns the range of the lines from byte `start` on, of which the first has the number `first_line`.
    fn lines_from(&self, start: u64, first_line: u64) -> Plan<'_> {
        Plan { start, first_line, pieces: self.piece_sizes, progress: self.options.progress }
    }

    /// Returns the limit of the memory, if there is one.
    fn memory_limit(&self) -> Option<u64> {
        self.budget.as_ref().map_or(self.options.memory, |budget| Some(budget.memory))
    }

    /// Returns the memory that tables of identifiers may take.
    fn table_bytes(&self) -> u64 {
        self.budget.as_ref().map_or(u64::MAX, sorted::table_bytes)
    }

    /// Returns an error if the text's edges cannot fit into memory. The number of edges is not known yet. A line of two
    /// long numbers has about twice as many bytes as the numbers have in memory.
    fn check_text(&self, bytes: &Bytes<'_>) -> Result<(), ImportError> {
        match self.budget {
            Some(_) => Ok(()),
            None => memory::check_text(bytes.path(), bytes.len(), self.options.memory),
        }
    }

    /// Checks the sizes that a header names, before the entries behind it are read. Returns the range of their lines.
    fn plan_behind(&self, bytes: &Bytes<'_>, header: &Header<'_, '_>, sizes: &Sizes) -> Result<Plan<'_>, ImportError> {
        let (vertices, entries) = (sizes.vertices, sizes.entries);
        let most = (bytes.len() - header.offset()).div_ceil(sizes.least_entry_bytes);
        if entries > most {
            let path = bytes.path().to_owned();
            return Err(ImportError::TooManyEntries { path, entries, bytes: bytes.len(), most });
        }
        if vertices == 0 {
            return Err(Self::no_vertices(bytes.path().to_owned(), bytes.len()));
        }
        if self.budget.is_none() {
            let (vertices, entries) = (u128::from(vertices), u128::from(entries));
            let arcs = entries << u32::from(sizes.mirrored);
            let needed = build::peak_bytes(vertices, arcs, 4, if sizes.weighted { 4 } else { 0 });
            let what = bytes.path().display().to_string();
            check_memory(&what, vertices, entries, needed, self.options.memory)?;
        }
        Ok(self.lines_from(header.offset(), header.line() + 1))
    }

    /// Returns true if weights of the input are read.
    fn wants_weights(&self) -> bool {
        matches!(self.options.weights, WeightMode::Input | WeightMode::IfPresent)
    }

    fn no_vertices(path: PathBuf, bytes: u64) -> ImportError {
        if bytes == 0 { ImportError::Empty { path } } else { ImportError::NoVertices { path } }
    }
}

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod name_tests;
#[cfg(test)]
mod tests;
