//! Options of loading a graph, and the progress that it reports.

use super::FileFormat;
use super::headings::ColumnNames;
use super::summary::WeightSource;
use crate::setters::setters;
use std::fmt;
use std::path::Path;

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
    /// 32 bits if each weight of the input is exactly such a number, otherwise 64. Random weights have 32.
    #[default]
    Auto,
    /// 32 bits. Weights are rounded ([`Notice::Rounded`](super::Notice::Rounded)).
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
    /// Columns of an edge list or a table. With `None` they are found by their names in the heading, or by their order.
    pub columns: Option<&'a ColumnNames>,
    /// Number of vertices, which are 0 to one less, for edge lists and tables of numbers. Vertices without edges are then
    /// part of the graph. With `None` the vertices are those that occur.
    pub vertices: Option<u64>,
    /// Choice between directed and undirected edges.
    pub orientation: Orientation,
    /// Choice of the weights.
    pub weights: WeightMode,
    /// Precision of real weights.
    pub precision: Precision,
    /// True to keep real weights that are rounded to 32 bits in 64 bits, too
    /// ([`Loaded::exact_weights`](super::Loaded::exact_weights)), if there is memory for that. Graphs that are stored
    /// have no such weights.
    pub exact_weights: bool,
    /// True to keep edges from a vertex to itself. They matter to PageRank only.
    pub keep_self_loops: bool,
    /// True to use 64-bit neighbours even where 32 bits suffice.
    pub wide: bool,
    /// Form of the lists of a graph that is to be stored.
    pub lists: ListForm,
    /// Seed of generators and random weights.
    pub seed: u64,
    /// Memory limit in bytes. With `None` the limit is the memory that is free. A graph that is to be stored may be larger
    /// ([`Graph::import`](crate::graph::Graph::import)).
    pub memory: Option<u64>,
    /// Folder of temporary files for graphs that are larger. With `None` it is the one that `TMPDIR` names, or `/var/tmp`.
    pub temp_dir: Option<&'a Path>,
    /// Function that is called as loading proceeds.
    pub progress: Option<ProgressFn<'a>>,
}

setters!(LoadOptions<'a> {
    format: Option<FileFormat>,
    ids: IdKind,
    columns: Option<&'a ColumnNames>,
    vertices: Option<u64>,
    orientation: Orientation,
    weights: WeightMode,
    precision: Precision,
    keep_self_loops: bool,
    wide: bool,
    lists: ListForm,
    seed: u64,
    memory: Option<u64>,
    temp_dir: Option<&'a Path>,
    progress: Option<ProgressFn<'a>>,
});
#[cfg(feature = "internals")]
setters!(LoadOptions<'a> { exact_weights: bool });

/// Form in which neighbour lists are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListForm {
    /// Gaps between neighbours, in groups of one width each: a third to a half of the bytes. Graphs with more than 2^32 - 2
    /// vertices are stored plain.
    Packed(VertexOrder),
    /// Identifiers of 32 or 64 bits.
    Plain,
}

impl Default for ListForm {
    fn default() -> Self {
        Self::Packed(VertexOrder::Degree)
    }
}

/// Order of packed lists, and of the numbers that they have for vertices. Programs see the identifiers of the input either
/// way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VertexOrder {
    /// By descending degree. Most neighbours then have small numbers, and gaps are short.
    #[default]
    Degree,
    /// That of the identifiers, for inputs whose order is a good one.
    Input,
}

/// Seed of GAP's generators.
pub const DEFAULT_SEED: u64 = 27_491_095;

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        Self {
            format: None,
            ids: IdKind::Auto,
            columns: None,
            vertices: None,
            orientation: Orientation::Auto,
            weights: WeightMode::Ignore,
            precision: Precision::Auto,
            exact_weights: false,
            keep_self_loops: false,
            wide: false,
            lists: ListForm::default(),
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
            .field("columns", &self.columns)
            .field("vertices", &self.vertices)
            .field("orientation", &self.orientation)
            .field("weights", &self.weights)
            .field("precision", &self.precision)
            .field("exact_weights", &self.exact_weights)
            .field("keep_self_loops", &self.keep_self_loops)
            .field("wide", &self.wide)
            .field("lists", &self.lists)
            .field("seed", &self.seed)
            .field("memory", &self.memory)
            .field("temp_dir", &self.temp_dir)
            .finish_non_exhaustive()
    }
}
