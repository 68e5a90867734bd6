//! Checks of the parts of a graph, and their error.

use super::lists::{Neighbours, VertexId, Weights, with_neighbours};
use crate::graph::parallel;

/// Error in the parts of a graph.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CsrError {
    /// The number of offsets is not the number of vertices plus one.
    #[error("{offsets} offsets do not fit {vertices} vertices: there must be one more than vertices")]
    Offsets {
        /// Offsets given.
        offsets: u64,
        /// Number of vertices.
        vertices: u64,
    },
    /// An offset is smaller than the one before it, or the first or last offset is wrong.
    #[error("offset {index} is {found}, it must lie between {low} and {high}")]
    Offset {
        /// Index of the offset.
        index: u64,
        /// Its value.
        found: u64,
        /// Smallest allowed value.
        low: u64,
        /// Largest allowed value.
        high: u64,
    },
    /// A neighbour is not a vertex of the graph.
    #[error("edge {index} leads to vertex {found}, but there are {vertices} vertices")]
    Neighbour {
        /// Index of the edge in the list.
        index: u64,
        /// The neighbour.
        found: u64,
        /// Number of vertices.
        vertices: u64,
    },
    /// The number of weights is not the number of edges.
    #[error("{weights} weights do not fit {edges} edges")]
    Weights {
        /// Weights given.
        weights: u64,
        /// Edges given.
        edges: u64,
    },
    /// A weight is negative or not finite.
    #[error("the weight {found} of edge {index} is negative or not finite")]
    Weight {
        /// Index of the edge in the list.
        index: u64,
        /// The weight.
        found: String,
    },
    /// The graph is declared undirected, but an edge is stored in one direction only, or with different weights.
    #[error("the graph is declared undirected, but {from} -> {to} has no equal edge {to} -> {from}")]
    OneWay {
        /// Vertex from which the edge leads, counted from 0.
        from: u64,
        /// Vertex to which the edge leads.
        to: u64,
    },
}

pub(crate) fn check_offsets(offsets: &[u64], edges: u64, vertices: u64) -> Result<(), CsrError> {
    if offsets.len() as u64 != vertices + 1 {
        return Err(CsrError::Offsets { offsets: offsets.len() as u64, vertices });
    }
    let bad =
        |index: usize, low: u64, high: u64| CsrError::Offset { index: index as u64, found: offsets[index], low, high };
    if offsets[0] != 0 {
        return Err(bad(0, 0, 0));
    }
    let step = parallel::position(offsets.len() - 1, |i| offsets[i + 1] < offsets[i] || offsets[i + 1] > edges);
    if let Some(i) = step {
        return Err(bad(i + 1, offsets[i], edges));
    }
    let last = offsets.len() - 1;
    if offsets[last] != edges { Err(bad(last, edges, edges)) } else { Ok(()) }
}

pub(crate) fn check_neighbours(neighbours: &Neighbours, vertices: u64) -> Result<(), CsrError> {
    let bad = with_neighbours!(neighbours, list => parallel::position(list.len(), |i| list[i].number() >= vertices));
    match bad {
        Some(i) => Err(CsrError::Neighbour { index: i as u64, found: neighbours.get(i), vertices }),
        None => Ok(()),
    }
}

pub(crate) fn check_weights(weights: &Weights, edges: u64) -> Result<(), CsrError> {
    if weights.len() as u64 != edges {
        return Err(CsrError::Weights { weights: weights.len() as u64, edges });
    }
    let is_weight = |w: f64| w.is_finite() && w >= 0.0;
    let bad = match weights {
        Weights::U32(_) => None,
        Weights::F32(w) => parallel::position(w.len(), |i| !is_weight(w[i].into())).map(|i| (i, w[i].into())),
        Weights::F64(w) => parallel::position(w.len(), |i| !is_weight(w[i])).map(|i| (i, w[i])),
    };
    match bad {
        Some((i, found)) => Err(CsrError::Weight { index: i as u64, found: found.to_string() }),
        None => Ok(()),
    }
}
