//! Graphs on storage: import, generators, algorithms, verifiers.
//!
//! All modules use one definition of a graph, [`Csr`]: a *simple* graph. Edges that occur more than once in an input
//! count once, with their smallest weight. Self-loops are dropped unless the options keep them. An undirected edge is
//! stored once for each of its ends. Kernels, verifiers and written results all refer to this graph.

mod build;
mod csr;
mod csr_error;
mod digest;
#[cfg(feature = "internals")]
pub mod generate;
#[cfg(not(feature = "internals"))]
pub(crate) mod generate;
#[cfg(feature = "internals")]
pub mod highlights;
#[cfg(feature = "internals")]
pub mod hub;
#[cfg(not(feature = "internals"))]
pub(crate) mod hub;
mod ids;
pub mod import;
#[cfg(feature = "internals")]
pub mod input;
#[cfg(not(feature = "internals"))]
pub(crate) mod input;
mod lists;
mod names;
#[cfg(feature = "internals")]
pub mod output;
#[cfg(all(feature = "parquet", feature = "internals"))]
mod output_parquet;
mod parallel;
mod quoting;
#[cfg(feature = "internals")]
pub mod teps;
#[cfg(feature = "internals")]
pub mod verify;

pub use csr::{Csr, CsrError, CsrOptions, NeighbourOrder, Neighbours, VertexId, Weights};
pub use ids::{Ids, UnknownVertex};
pub use import::{
    IdKind, ImportError, ListForm, LoadOptions, Loaded, Orientation, Progress, Stage, Summary, VertexOrder, WeightMode,
};
pub use input::Input;
pub use names::{NameFault, Names, NamesError};
internal!(names::{LONGEST_VERTEX_NAME, VertexName});
internal!(packed::{Damage, Encoder, decode_block, pack_values, unpack_values});

mod batches;
mod betweenness;
mod bfs;
mod cdlp;
mod clustering;
mod components;
mod cores;
#[cfg(feature = "shmem")]
mod distribution;
mod edges;
mod external;
mod failure;
mod handle;
mod launch;
mod levels;
#[cfg_attr(not(feature = "shmem"), path = "alone.rs")]
mod mirrors;
mod multi_bfs;
mod near;
mod neighbourhood;
mod occupied;
mod order;
mod packed;
mod pagerank;
#[allow(dead_code, reason = "generated: the host does not use all of it")]
mod params;
#[cfg(feature = "shmem")]
pub mod partition;
mod paths;
mod pe_order;
mod place;
mod placed_lists;
mod ranges;
mod shape;
mod sssp;
pub mod stored;
mod strong;
mod triangles;
mod vertex_values;

pub use betweenness::{Betweenness, BetweennessOnEngine, BetweennessResult, BrandesReport, betweenness};
pub use bfs::{Bfs, BfsOnEngine, BfsResult, bfs};
pub use cdlp::{Cdlp, CdlpOnEngine, CdlpOptions, CdlpResult, PropagationReport, cdlp};
pub use clustering::{Clustering, ClusteringOnEngine, ClusteringResult, clustering};
pub use components::{Components, ComponentsOnEngine, ComponentsOptions, ComponentsResult, PhaseReport, components};
pub use cores::{CoreReport, Cores, CoresOnEngine, CoresResult, cores};
pub use edges::{GraphError, GraphOnEngine, Placement, PlacementOptions};
pub use levels::{BfsOptions, Direction, LevelReport, UNREACHED};
internal!(edges::DEFAULT_LAUNCH_LIMIT);
pub use handle::Graph;
pub use multi_bfs::{MOST_SEARCHES, MultiBfs, MultiBfsOnEngine, MultiBfsOptions, MultiBfsResult};
pub use neighbourhood::CountReport;
pub use pagerank::{
    IterationReport, LEAST_TOLERANCE, PageRank, PageRankOnEngine, PageRankOptions, PageRankResult, pagerank,
};
pub use placed_lists::{PlacedLists, PlacedNeighbours};
internal!(quoting::split_fields);
internal!(shape::GraphShape);
pub use sssp::{BucketReport, Distances, Sssp, SsspOnEngine, SsspOptions, SsspResult, sssp};
pub use triangles::{Triangles, TrianglesOnEngine, TrianglesResult, triangles};
pub use vertex_values::VertexValues;

#[cfg(test)]
mod algorithm_tests;
#[cfg(test)]
mod community_tests;
#[cfg(test)]
mod neighbourhood_tests;
#[cfg(test)]
mod on_device_tests;
#[cfg(test)]
mod paths_tests;
