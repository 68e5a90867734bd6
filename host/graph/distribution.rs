//! Distribution of the lists of a graph over the PEs of a world.

use crate::shmem::World;
use std::ops::Range;
use std::sync::Arc;

/// Lists of a graph that are on other PEs, as one PE sees it.
#[derive(Clone, Debug)]
pub(super) struct Distribution {
    pub world: World,
    /// First vertex of each PE, in the order of the lists, and the number of vertices as the last element.
    pub firsts: Arc<[u64]>,
    /// Number of arcs of the whole graph.
    pub arcs: u64,
}

impl Distribution {
    /// Returns the vertices, in the order of the lists, whose lists are on this PE.
    pub fn own(&self) -> Range<u64> {
        let pe = self.world.my_pe();
        self.firsts[pe]..self.firsts[pe + 1]
    }
}
