//! Graphs on storage: import, generators, algorithms, verifiers.

mod build;
pub mod csr;
pub mod ids;
pub use csr::{Csr, CsrError, CsrOptions, NeighbourOrder, Neighbours, VertexId, Weights};
pub use ids::Ids;

mod bfs;
mod components;
mod edges;
mod pagerank;
mod sssp;

pub use bfs::{Bfs, BfsOptions, BfsResult, Direction, LevelReport, UNREACHED, bfs};
pub use components::{Components, ComponentsOptions, ComponentsResult, PhaseReport, components};
pub use edges::{DEFAULT_LAUNCH_LIMIT, GraphError, GraphOnEngine, Needs, Placement};
pub use pagerank::{IterationReport, PageRank, PageRankOptions, PageRankResult, pagerank};
pub use sssp::{BucketReport, Distances, Sssp, SsspOptions, SsspResult, sssp};

#[cfg(test)]
mod algorithm_tests;
