//! Graphs on storage: import, generators, algorithms, verifiers.
//!
//! All modules use one definition of a graph, [`Csr`]: a *simple* graph. Edges that occur more than once in an input
//! count once, with their smallest weight. Self-loops are dropped unless the options keep them. An undirected edge is
//! stored once for each of its ends. Kernels, verifiers and written results all refer to this graph.

mod build;
pub mod csr;
mod csr_error;
mod digest;
pub mod generate;
pub mod highlights;
pub mod hub;
pub mod ids;
pub mod import;
pub mod input;
mod lists;
mod names;
pub mod output;
#[cfg(feature = "parquet")]
mod output_parquet;
mod parallel;
mod quoting;
pub mod teps;
pub mod verify;

pub use csr::{Csr, CsrError, CsrOptions, NeighbourOrder, Neighbours, VertexId, Weights};
pub use ids::{Ids, UnknownVertex};
pub use import::{IdKind, ImportError, LoadOptions, Loaded, Orientation, Progress, Stage, Summary, WeightMode};
pub use input::Input;
pub use names::{LONGEST_VERTEX_NAME, NameFault, Names, NamesError, VertexName};

mod bfs;
mod components;
mod edges;
mod external;
mod failure;
mod handle;
mod launch;
mod occupied;
mod pagerank;
#[allow(dead_code, reason = "generated: the host does not use all of it")]
mod params;
#[cfg(feature = "shmem")]
pub mod partition;
mod place;
mod placed_lists;
mod shape;
mod sssp;
pub mod stored;
mod vertex_values;

pub use bfs::{Bfs, BfsOnEngine, BfsOptions, BfsResult, Direction, LevelReport, UNREACHED, bfs};
pub use components::{Components, ComponentsOnEngine, ComponentsOptions, ComponentsResult, PhaseReport, components};
pub use edges::{DEFAULT_LAUNCH_LIMIT, GraphError, GraphOnEngine, Placement, PlacementOptions};
pub use handle::Graph;
pub use pagerank::{
    IterationReport, LEAST_TOLERANCE, PageRank, PageRankOnEngine, PageRankOptions, PageRankResult, pagerank,
};
pub use placed_lists::{PlacedLists, PlacedNeighbours};
pub use quoting::split_fields;
pub use shape::GraphShape;
pub use sssp::{BucketReport, Distances, Sssp, SsspOnEngine, SsspOptions, SsspResult, sssp};
pub use vertex_values::VertexValues;

#[cfg(test)]
mod algorithm_tests;
#[cfg(test)]
mod on_device_tests;
