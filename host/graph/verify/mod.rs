//! Checks results against references that share nothing with the kernels: plain serial searches, and for PageRank one more
//! step. The rules are those of the GAP Benchmark Suite (Beamer, Asanovic, Patterson, arXiv:1508.03619, and the verifiers
//! of its code).
//!
//! Searches, components and shortest paths are unique, so each check is an equality: with a serial breadth-first search, a
//! serial search or union-find over all vertices, and Dijkstra's algorithm. Comparing runs on all threads.

mod bfs;
mod components;
mod pagerank;
mod sssp;

pub use bfs::{UNREACHED, bfs, bfs_parents, breadth_first};
pub use components::{components, connected_components};
pub use pagerank::{PageRank, pagerank, pagerank_after, pagerank_reference};
pub use sssp::{Distances, REAL_TOLERANCE_DOUBLE, REAL_TOLERANCE_SINGLE, dijkstra, dijkstra_real, sssp};

use super::csr::Csr;
use std::fmt;

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

/// How a result is wrong. Vertices are named by the input's identifiers, and the first that is wrong is named.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// Not one value for each vertex.
    #[error("{found} values for {vertices} vertices")]
    Length {
        /// Values given.
        found: u64,
        /// Vertices.
        vertices: u64,
    },
    /// The source is no vertex.
    #[error("source {vertex} is not below the number of vertices, {vertices}")]
    Source {
        /// The source, counted from 0.
        vertex: u64,
        /// Vertices.
        vertices: u64,
    },
    /// BFS: a depth.
    #[error("vertex {vertex}: depth {found}, the serial search has {expected}")]
    Depth {
        /// Vertex.
        vertex: u64,
        /// What the result says.
        found: Found<u32>,
        /// What is right.
        expected: Found<u32>,
    },
    /// BFS: a parent.
    #[error("vertex {vertex}: parent {parent} {reason}")]
    Parent {
        /// Vertex.
        vertex: u64,
        /// What the result says.
        parent: Found<u64>,
        /// What is wrong with it.
        reason: ParentFault,
    },
    /// Components: a label.
    #[error("vertex {vertex}: component {found}, but the smallest vertex connected to it is {expected}")]
    Component {
        /// Vertex.
        vertex: u64,
        /// What the result says: the identifier of a vertex, when it is one.
        found: u64,
        /// The smallest vertex of the component.
        expected: u64,
    },
    /// PageRank: not a rank.
    #[error("vertex {vertex}: rank {found} is not a number of zero or more")]
    Rank {
        /// Vertex.
        vertex: u64,
        /// What the result says.
        found: f64,
    },
    /// PageRank: the ranks do not make a distribution.
    #[error("the ranks sum to {sum}, which is further from 1 than {tolerance:e}")]
    RankSum {
        /// Their sum.
        sum: f64,
        /// How far it may be from 1.
        tolerance: f64,
    },
    /// PageRank: one more step (or the serial iterations) leads elsewhere.
    #[error(
        "the ranks are {distance:e} away from {reference} in sum, more than {tolerance:e}; vertex {vertex} is the furthest: {found:e}, not {expected:e}"
    )]
    Ranks {
        /// What the ranks were held against.
        reference: &'static str,
        /// Sum of all differences.
        distance: f64,
        /// How large it may be.
        tolerance: f64,
        /// The vertex with the largest difference.
        vertex: u64,
        /// What the result says.
        found: f64,
        /// What the reference says.
        expected: f64,
    },
    /// Shortest paths: a distance.
    #[error("vertex {vertex}: distance {found}, Dijkstra's algorithm has {expected}")]
    Distance {
        /// Vertex.
        vertex: u64,
        /// What the result says.
        found: Found<f64>,
        /// What is right.
        expected: Found<f64>,
    },
    /// Shortest paths: an edge that would shorten a path.
    #[error(
        "edge {from} -> {to} of weight {weight} leads from distance {from_distance} to {to_distance}, which is too far"
    )]
    Relaxable {
        /// Where it leaves.
        from: u64,
        /// Where it leads.
        to: u64,
        /// Its weight.
        weight: f64,
        /// Distance of the vertex that it leaves.
        from_distance: f64,
        /// Distance of the vertex that it leads to.
        to_distance: Found<f64>,
    },
    /// Shortest paths: integer distances of real weights.
    #[error("integer distances cannot be checked against real weights; give real distances")]
    Kind,
}

/// What is wrong with a parent in a search tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParentFault {
    /// The source is its own parent.
    #[error("of the source, which must be its own parent")]
    OfSource,
    /// A vertex that was not reached has none.
    #[error("of a vertex that the search does not reach")]
    OfUnreached,
    /// A vertex that was reached has one.
    #[error("of a vertex that the search reaches")]
    Missing,
    /// It must be one level up.
    #[error("is not one level up")]
    Level,
    /// There must be an edge.
    #[error("has no edge to it")]
    NoEdge,
}

fn check_length(csr: &Csr, found: usize) -> Result<(), VerifyError> {
    let vertices = csr.vertices();
    if found as u64 == vertices { Ok(()) } else { Err(VerifyError::Length { found: found as u64, vertices }) }
}

fn check_source(csr: &Csr, vertex: u64) -> Result<(), VerifyError> {
    let vertices = csr.vertices();
    if vertex < vertices { Ok(()) } else { Err(VerifyError::Source { vertex, vertices }) }
}
