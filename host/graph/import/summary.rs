//! A loaded graph, with facts about its input and the decisions made.

use super::notice::Notice;
use crate::graph::csr::Csr;
use std::fmt;

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
    /// `.graph` with `.properties`.
    BvGraph,
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
            Self::BvGraph => "BVGraph",
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
#[non_exhaustive]
pub struct Loaded {
    /// The graph.
    pub csr: Csr,
    /// Facts about the input, and decisions made.
    pub summary: Summary,
    /// Decisions that a user should see, in the order in which they were made.
    pub notices: Vec<Notice>,
    /// Weights of the input in 64 bits, one for each arc, if those of the graph are rounded and
    /// [`LoadOptions::exact_weights`](super::LoadOptions::exact_weights) asks for them.
    pub exact_weights: Option<Vec<f64>>,
}

impl Loaded {
    /// Makes a graph without notices, whose weights are exact.
    pub fn new(csr: Csr, summary: Summary) -> Self {
        Self { csr, summary, notices: Vec::new(), exact_weights: None }
    }
}
