//! Reads graph files.
//!
//! | ending | format |
//! |---|---|
//! | `.el`, `.txt` | edge list: two vertices on a line (`.txt` may have a weight in a third column) |
//! | `.wel` | weighted edge list: two vertices and a weight |
//! | `.mtx` | Matrix Market: coordinate; general or symmetric; pattern, integer or real |
//! | `.v` + `.e` | LDBC Graphalytics: vertices, edges with an optional weight, and `.properties` when there is one |
//! | `.sg`, `.wsg` | GAP Benchmark Suite's serialized graph, without and with int32 weights |
//!
//! In text files `#` and `%` begin comment lines, words are separated by blanks and tabs, and lines end in LF or CR LF.
//!
//! # Which vertices there are
//!
//! Edge lists: the identifiers that occur. Matrix Market: `1 ..= rows`. LDBC: those that the vertex file names (without
//! one, those that occur in the edge file). GAP: `0 .. vertices`.
//!
//! # Directed or undirected
//!
//! [`Orientation::Auto`] does what the file says. Files that say nothing (edge lists without SNAP's header, Matrix Market
//! `general`, LDBC without properties) are directed, unless each edge is there in both directions with equal weights: then
//! the graph is undirected, and each such pair is one edge.
//!
//! SNAP's header is a comment in front of the first edge of `.el`, `.txt` and `.wel`. `# Undirected graph` lists each edge
//! once, and the graph is undirected. `# Directed graph` also stands above lists that have each edge in both directions;
//! such a graph is undirected all the same.

mod edge_list;
mod error;
mod ldbc;
mod matrix_market;
mod memory;
mod raw;
mod serialized;
mod text;

pub use error::{ImportError, KNOWN_ENDINGS, LineFault, SerializedFault};
pub(crate) use memory::check as check_memory;

use super::csr::Csr;
use crate::setters::setters;
use std::fmt;
use std::path::{Path, PathBuf};
use text::Bytes;

/// Whether edges have a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Orientation {
    /// What the file says, or what its edges show.
    #[default]
    Auto,
    /// Each edge leads from its first vertex to its second.
    Directed,
    /// Each edge leads both ways.
    Undirected,
}

/// Which weights the edges get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WeightMode {
    /// None: weights of the input are not even looked at.
    #[default]
    Ignore,
    /// The input's: integers when all are, else real numbers. Files without weights get 1 for each edge, generated
    /// graphs get [`WeightMode::RandomIntegers`].
    Input,
    /// Uniform integers from 1 to 255, as GAP's generators give. They depend on the seed and the edge alone, so that both
    /// directions of an edge weigh the same.
    RandomIntegers,
    /// Uniform real numbers in [0, 1), as Graph500 has them, otherwise as [`WeightMode::RandomIntegers`].
    RandomReals,
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

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading and parsing; counted in bytes.
    Read,
    /// Generating edges and building neighbour lists; counted in edges, each of which is handled twice.
    Build,
}

/// How far loading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// How much of it is done.
    pub done: u64,
    /// How much there is.
    pub total: u64,
}

/// Called from many threads while a graph is loaded, a few times for each megabyte at most.
pub type ProgressFn<'a> = &'a (dyn Fn(Progress) + Sync);

/// How to load a graph.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LoadOptions<'a> {
    /// Directed or undirected.
    pub orientation: Orientation,
    /// Which weights.
    pub weights: WeightMode,
    /// Precision of real weights.
    pub precision: Precision,
    /// Keep edges from a vertex to itself; they matter to PageRank only.
    pub keep_self_loops: bool,
    /// Use 64-bit neighbours even where 32 bits suffice.
    pub wide: bool,
    /// Seed of generators and random weights.
    pub seed: u64,
    /// Bytes that may be used; `None` for what the machine has free.
    pub memory: Option<u64>,
    /// Called as loading goes on.
    pub progress: Option<ProgressFn<'a>>,
}

setters!(LoadOptions<'a> {
    orientation: Orientation,
    weights: WeightMode,
    precision: Precision,
    keep_self_loops: bool,
    wide: bool,
    seed: u64,
    memory: Option<u64>,
    progress: Option<ProgressFn<'a>>,
});

/// The seed of GAP's generators.
pub const DEFAULT_SEED: u64 = 27_491_095;

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        Self {
            orientation: Orientation::Auto,
            weights: WeightMode::Ignore,
            precision: Precision::Single,
            keep_self_loops: false,
            wide: false,
            seed: DEFAULT_SEED,
            memory: None,
            progress: None,
        }
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions")
            .field("orientation", &self.orientation)
            .field("weights", &self.weights)
            .field("precision", &self.precision)
            .field("keep_self_loops", &self.keep_self_loops)
            .field("wide", &self.wide)
            .field("seed", &self.seed)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// What kind of input a graph came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `.el` or `.txt`.
    EdgeList,
    /// `.wel`.
    WeightedEdgeList,
    /// `.mtx`.
    MatrixMarket,
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
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EdgeList => "edge list",
            Self::WeightedEdgeList => "weighted edge list",
            Self::MatrixMarket => "Matrix Market",
            Self::Ldbc => "LDBC Graphalytics",
            Self::Serialized => "GAP serialized graph",
            Self::WeightedSerialized => "GAP weighted serialized graph",
            Self::Kronecker => "Kronecker generator",
            Self::Uniform => "uniform generator",
        })
    }
}

/// Why a graph is directed or undirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrientationReason {
    /// It was asked for.
    Requested,
    /// The input says so.
    Declared,
    /// The input says nothing; each edge was there in both directions.
    Symmetric,
    /// The input says nothing; some edge was there in one direction only.
    OneWay,
    /// The input says nothing; no edge was there in both directions.
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

/// Where the weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightSource {
    /// There are none.
    None,
    /// The input.
    Input,
    /// The input has none; each edge weighs 1.
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

/// What was found and decided while a graph was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Kind of input.
    pub format: Format,
    /// Why the graph is directed or undirected.
    pub orientation: OrientationReason,
    /// Where the weights come from.
    pub weights: WeightSource,
    /// Edges of the input.
    pub input_edges: u64,
    /// Edges of the input from a vertex to itself.
    pub self_loops: u64,
    /// Arcs that were dropped because they were there already.
    pub duplicates: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// A graph and what is known about its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The graph.
    pub csr: Csr,
    /// What was found and decided.
    pub summary: Summary,
}

/// What the formats share while they read.
pub(crate) struct Reader<'a> {
    pub options: &'a LoadOptions<'a>,
    /// Bytes of text that one task parses.
    pub piece: u64,
}

/// Reads the graph file at `path`; an LDBC graph can be given by either file or by their common prefix.
pub fn load(path: &Path, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    let reader = Reader { options, piece: text::PIECE };
    match Kind::of(path) {
        Some(Kind::Ldbc) => reader.ldbc(&ldbc::Paths::of(path)),
        Some(Kind::Single(format)) => reader.single(&Bytes::open(path)?, format),
        None => {
            let parts = ldbc::Paths::from_prefix(path);
            if parts.vertices.is_file() || parts.edges.is_file() {
                return reader.ldbc(&parts);
            }
            // A path that cannot be opened says so before its ending is looked at.
            Bytes::open(path)?;
            Err(ImportError::UnknownEnding { path: path.to_owned(), found: ending(path) })
        }
    }
}

/// Reads a graph from memory, in the format that the ending of `name` tells; `.v` and `.e` are read as edge files alone.
pub fn load_bytes(name: &str, bytes: &[u8], options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    load_pieces(name, bytes, options, text::PIECE)
}

/// As [`load_bytes`], with pieces of a chosen size.
fn load_pieces(name: &str, bytes: &[u8], options: &LoadOptions<'_>, piece: u64) -> Result<Loaded, ImportError> {
    let (path, reader) = (Path::new(name), Reader { options, piece });
    let bytes = Bytes::memory(path, bytes);
    match Kind::of(path) {
        Some(Kind::Single(format)) => reader.single(&bytes, format),
        Some(Kind::Ldbc) => reader.ldbc_edges_alone(&bytes),
        None => Err(ImportError::UnknownEnding { path: path.to_owned(), found: ending(path) }),
    }
}

enum Kind {
    Single(Format),
    Ldbc,
}

impl Kind {
    fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match ending.as_str() {
            "el" | "txt" => Self::Single(Format::EdgeList),
            "wel" => Self::Single(Format::WeightedEdgeList),
            "mtx" => Self::Single(Format::MatrixMarket),
            "sg" => Self::Single(Format::Serialized),
            "wsg" => Self::Single(Format::WeightedSerialized),
            "v" | "e" => Self::Ldbc,
            _ => return None,
        })
    }
}

fn ending(path: &Path) -> String {
    path.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()))
}

impl Reader<'_> {
    fn single(&self, bytes: &Bytes<'_>, format: Format) -> Result<Loaded, ImportError> {
        if bytes.len() == 0 {
            return Err(Self::no_vertices(bytes));
        }
        match format {
            Format::MatrixMarket => self.matrix_market(bytes),
            Format::Serialized => self.serialized(bytes, false),
            Format::WeightedSerialized => self.serialized(bytes, true),
            Format::WeightedEdgeList => self.edge_list(bytes, edge_list::Columns::Three),
            _ if bytes.path().extension().is_some_and(|e| e.eq_ignore_ascii_case("el")) => {
                self.edge_list(bytes, edge_list::Columns::Two)
            }
            _ => self.edge_list(bytes, edge_list::Columns::AsFirstLine),
        }
    }

    /// Refuses text whose edges cannot fit. How many there are is not known yet; a line of two long numbers has about
    /// twice as many bytes as the numbers have in memory.
    fn check_text(&self, bytes: &Bytes<'_>) -> Result<(), ImportError> {
        memory::check_text(bytes.path(), bytes.len(), self.options.memory)
    }

    /// Whether weights of the input are read.
    fn wants_weights(&self) -> bool {
        self.options.weights == WeightMode::Input
    }

    fn no_vertices(bytes: &Bytes<'_>) -> ImportError {
        let path = PathBuf::from(bytes.path());
        if bytes.len() == 0 { ImportError::Empty { path } } else { ImportError::NoVertices { path } }
    }
}

#[cfg(test)]
mod tests;
