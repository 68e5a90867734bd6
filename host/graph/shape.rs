//! Sizes, degrees and identifiers of a graph: all that searches and their reports need without reading an edge.

use super::csr::Csr;
use super::ids::Ids;

/// A graph without its edges.
#[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "for tests and tools"))]
pub trait GraphShape: Sync {
    /// Returns the offset of each vertex's first neighbour, and the number of arcs as the last element.
    fn offsets(&self) -> &[u64];

    /// Returns the input's identifiers.
    fn ids(&self) -> &Ids;

    /// Returns true if edges have a direction.
    fn directed(&self) -> bool;

    /// Returns the number of edges. In an undirected graph each edge counts once.
    fn edges(&self) -> u64;

    /// Returns true if `v` is its own neighbour.
    ///
    /// # Panics
    /// If `v` is not a vertex.
    fn has_self_loop(&self, v: u64) -> bool;

    /// Returns the number of vertices.
    fn vertices(&self) -> u64 {
        self.offsets().len() as u64 - 1
    }

    /// Returns the number of stored neighbours: the edges of a directed graph, twice the edges of an undirected one.
    fn arcs(&self) -> u64 {
        self.offsets().last().copied().unwrap_or_default()
    }

    /// Returns the number of neighbours of `v` (out-neighbours in a directed graph).
    ///
    /// # Panics
    /// If `v` is not a vertex.
    fn degree(&self, v: u64) -> u64 {
        self.offsets()[v as usize + 1] - self.offsets()[v as usize]
    }
}

impl GraphShape for Csr {
    fn offsets(&self) -> &[u64] {
        self.offsets()
    }

    fn ids(&self) -> &Ids {
        self.ids()
    }

    fn directed(&self) -> bool {
        self.directed()
    }

    fn edges(&self) -> u64 {
        self.edges()
    }

    fn has_self_loop(&self, v: u64) -> bool {
        self.has_self_loop(v)
    }
}
