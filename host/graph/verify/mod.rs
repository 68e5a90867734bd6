//! Checks results against references that share no code with the kernels: plain serial searches, and for PageRank one
//! more step. The rules are those of the GAP Benchmark Suite (Beamer, Asanovic, Patterson, arXiv:1508.03619, and the
//! verifiers of its code); label propagation has those of LDBC Graphalytics.
//!
//! The results of searches, components and shortest paths are unique, so each check is an equality. Serial references
//! define the right values: a breadth-first search, a search or union-find over all vertices, and Dijkstra's algorithm.
//! The checks do not run them for a right result. All threads check rules that hold for the right values alone. If a rule
//! does not hold, the reference determines the first wrong vertex and its right value.

mod betweenness;
mod bfs;
mod cdlp;
mod components;
mod cores;
mod neighbourhood;
mod pagerank;
mod rules;
mod sssp;
mod sssp_parents;
mod strong;

#[cfg(feature = "internals")]
pub use betweenness::{SCORE_TOLERANCE, betweenness, betweenness_scores};
#[cfg(feature = "internals")]
pub use bfs::{UNREACHED, bfs, bfs_parents, breadth_first};
#[cfg(feature = "internals")]
pub use cdlp::{cdlp, propagated_labels};
#[cfg(feature = "internals")]
pub use components::{components, connected_components};
#[cfg(feature = "internals")]
pub use cores::{core_numbers, cores};
#[cfg(feature = "internals")]
pub use neighbourhood::{arcs_between_neighbours, clustering, triangles};
#[cfg(feature = "internals")]
pub use pagerank::{PageRank, pagerank, pagerank_after, pagerank_reference};
#[cfg(feature = "internals")]
pub use sssp::{
    Distances, REAL_TOLERANCE_DOUBLE, REAL_TOLERANCE_SINGLE, ROUNDED_WEIGHTS_TOLERANCE, dijkstra, dijkstra_real, sssp,
    sssp_of_exact_weights,
};
#[cfg(feature = "internals")]
pub use sssp_parents::sssp_parents;
#[cfg(feature = "internals")]
pub use strong::{strong_components, strongly_connected_components};

use super::csr::Csr;
use super::names::VertexName;
use std::fmt;

/// Search whose result is checked. A vertex number converts into a search from that vertex to all others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// Vertex from which the search starts.
    pub source: u64,
    /// Vertex that ends the search: vertices further away than this one must be unreached, if it is reached itself.
    pub target: Option<u64>,
    /// Largest depth or distance. Vertices further away must be unreached.
    pub limit: Option<f64>,
}

impl From<u64> for Search {
    fn from(source: u64) -> Self {
        Self { source, target: None, limit: None }
    }
}

impl Search {
    /// Returns the largest key that a vertex may have. `limit` is the key of the largest distance, and `key` that of a vertex.
    fn last_key(&self, limit: impl Fn(f64) -> u64, key: impl Fn(usize) -> u64) -> u64 {
        let target = self.target.map_or(rules::FAR, |v| key(v as usize));
        self.limit.map_or(rules::FAR, limit).min(target)
    }

    /// Returns the largest distance that a vertex may have, in real numbers.
    fn last_distance(&self, distance: &impl Fn(u64) -> Option<f64>) -> f64 {
        let target = self.target.and_then(distance).unwrap_or(f64::INFINITY);
        self.limit.unwrap_or(f64::INFINITY).min(target)
    }
}

/// A value that a vertex may lack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found<T>(pub Option<T>);

impl<T: fmt::Display> fmt::Display for Found<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("unreached"),
        }
    }
}

/// Error in a result. Vertices have the input's identifiers. The first wrong vertex is reported.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The number of values is not the number of vertices.
    #[error("{found} values for {vertices} vertices")]
    Length {
        /// Number of values.
        found: u64,
        /// Number of vertices.
        vertices: u64,
    },
    /// The number of exact weights is not the number of arcs.
    #[error("{found} weights for {arcs} arcs")]
    Weights {
        /// Number of weights.
        found: u64,
        /// Number of arcs.
        arcs: u64,
    },
    /// The source is not a vertex.
    #[error("source {vertex} is not below the number of vertices, {vertices}")]
    Source {
        /// The source, counted from 0.
        vertex: u64,
        /// Number of vertices.
        vertices: u64,
    },
    /// A target, or a vertex of a personalization, is not a vertex of the graph.
    #[error("vertex {vertex} is not below the number of vertices, {vertices}")]
    NoSuchVertex {
        /// The vertex, counted from 0.
        vertex: u64,
        /// Number of vertices.
        vertices: u64,
    },
    /// BFS: a wrong depth.
    #[error("vertex {vertex}: depth {found}, the serial search has {expected}")]
    Depth {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Depth in the result.
        found: Found<u32>,
        /// Right depth.
        expected: Found<u32>,
    },
    /// BFS and shortest paths: a wrong parent.
    #[error("vertex {vertex}: parent {parent} {reason}")]
    Parent {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Parent in the result.
        parent: Found<VertexName<'static>>,
        /// Fault of the parent.
        reason: ParentFault,
    },
    /// Components: a wrong label.
    #[error("vertex {vertex}: component {found}, but the smallest vertex connected to it is {expected}")]
    Component {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Label in the result, as the identifier of a vertex if it is one.
        found: VertexName<'static>,
        /// The smallest vertex of the component.
        expected: VertexName<'static>,
    },
    /// Strongly connected components: a wrong label.
    #[error("vertex {vertex}: strongly connected component {found}, but its smallest vertex is {expected}")]
    StrongComponent {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Label in the result, as the identifier of a vertex if it is one.
        found: VertexName<'static>,
        /// The smallest vertex of the component.
        expected: VertexName<'static>,
    },
    /// Betweenness centrality: a wrong score.
    #[error("vertex {vertex}: betweenness {found:e}, Brandes' algorithm has {expected:e}")]
    Score {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Score in the result.
        found: f64,
        /// Right score.
        expected: f64,
    },
    /// Label propagation: a wrong label.
    #[error("vertex {vertex}: label {found}, the synchronous rule gives {expected}")]
    Label {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Label in the result, as the identifier of a vertex if it is one.
        found: VertexName<'static>,
        /// Right label.
        expected: VertexName<'static>,
    },
    /// PageRank: a rank that is negative or not finite.
    #[error("vertex {vertex}: rank {found} is not a number of zero or more")]
    Rank {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Rank in the result.
        found: f64,
    },
    /// PageRank: ranks that are no distribution.
    #[error("the ranks sum to {sum}, which is further from 1 than {tolerance:e}")]
    RankSum {
        /// Sum of the ranks.
        sum: f64,
        /// Largest allowed distance of the sum from 1.
        tolerance: f64,
    },
    /// PageRank: ranks that one more step, or the serial iterations, would change too much.
    #[error(
        "the ranks differ by {distance:e} in sum from {reference}, more than {tolerance:e}; vertex {vertex} differs most: {found:e}, not {expected:e}"
    )]
    Ranks {
        /// Name of the reference.
        reference: &'static str,
        /// Sum of the absolute differences.
        distance: f64,
        /// Largest allowed sum.
        tolerance: f64,
        /// The vertex with the largest difference.
        vertex: VertexName<'static>,
        /// Rank in the result.
        found: f64,
        /// Rank in the reference.
        expected: f64,
    },
    /// Shortest paths: a wrong distance.
    #[error("vertex {vertex}: distance {found}, Dijkstra's algorithm has {expected}")]
    Distance {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Distance in the result.
        found: Found<f64>,
        /// Right distance.
        expected: Found<f64>,
    },
    /// Shortest paths: an edge that would shorten a path.
    #[error(
        "edge {from} -> {to} of weight {weight} leads from distance {from_distance} to {to_distance}, which is too far"
    )]
    Relaxable {
        /// Vertex from which the edge leads.
        from: VertexName<'static>,
        /// Vertex to which the edge leads.
        to: VertexName<'static>,
        /// Weight of the edge.
        weight: f64,
        /// Distance of the first vertex.
        from_distance: f64,
        /// Distance of the second vertex.
        to_distance: Found<f64>,
    },
    /// Triangles: a wrong count.
    #[error("vertex {vertex}: {found} triangles, merged neighbour lists have {expected}")]
    Triangles {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Number of its triangles in the result.
        found: u64,
        /// Right number.
        expected: u64,
    },
    /// Triangles: a wrong total.
    #[error("{found} triangles in total, the counts of the vertices sum to three times {expected}")]
    TriangleTotal {
        /// Total of the result.
        found: u64,
        /// A third of the sum of the counts.
        expected: u64,
    },
    /// Clustering: a wrong coefficient.
    #[error("vertex {vertex}: clustering coefficient {found}, merged neighbour lists have {expected}")]
    Coefficient {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Its coefficient in the result.
        found: f64,
        /// Right coefficient.
        expected: f64,
    },
    /// Cores: a wrong core number.
    #[error("vertex {vertex}: core number {found}, serial peeling has {expected}")]
    Core {
        /// Vertex.
        vertex: VertexName<'static>,
        /// Its core number in the result.
        found: u64,
        /// Right core number.
        expected: u64,
    },
    /// Shortest paths: integer distances for real weights.
    #[error("integer distances cannot be checked against real weights; give real distances")]
    Kind,
}

/// Fault of a parent in a search tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParentFault {
    /// The source is not its own parent.
    #[error("of the source, which must be its own parent")]
    OfSource,
    /// A vertex that was not reached has a parent.
    #[error("of a vertex that the search does not reach")]
    OfUnreached,
    /// A vertex that was reached has no parent.
    #[error("of a vertex that the search reaches")]
    Missing,
    /// The parent is not one level up.
    #[error("is not one level up")]
    Level,
    /// No edge leads from the parent to the vertex.
    #[error("has no edge to it")]
    NoEdge,
    /// The edge from the parent does not give the vertex its distance.
    #[error("has no edge that gives it its distance")]
    Distance,
    /// The parents of the vertex form a circle.
    #[error("is not on a path from the source: parents lead in a circle")]
    Circle,
}

/// Returns the input's identifier of vertex `v`.
fn name(csr: &Csr, v: u64) -> VertexName<'static> {
    csr.ids().id(v).into_owned()
}

fn check_length(csr: &Csr, found: usize) -> Result<(), VerifyError> {
    let vertices = csr.vertices();
    if found as u64 == vertices { Ok(()) } else { Err(VerifyError::Length { found: found as u64, vertices }) }
}

fn check_source(csr: &Csr, vertex: u64) -> Result<(), VerifyError> {
    let vertices = csr.vertices();
    if vertex < vertices { Ok(()) } else { Err(VerifyError::Source { vertex, vertices }) }
}

/// Checks that the source and the target are vertices.
fn check_search(csr: &Csr, search: Search) -> Result<(), VerifyError> {
    check_source(csr, search.source)?;
    let vertices = csr.vertices();
    match search.target {
        Some(vertex) if vertex >= vertices => Err(VerifyError::NoSuchVertex { vertex, vertices }),
        _ => Ok(()),
    }
}
