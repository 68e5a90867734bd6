//! Neighbour lists of a placed graph, for kernels of the program.

use super::edges::{EdgeStore, GraphOnEngine, Lists};
use super::params::GRAPH_HUBS;
use crate::memory::Region;
use crate::storage::Array;

/// Place of the neighbours of a placed graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PlacedNeighbours {
    /// Memory that kernels read: `u32[arcs]` or `u64[arcs]`.
    Memory(Region),
    /// A stored array that kernels read through a cache, identifiers of 32 bits.
    Narrow(Array<u32>),
    /// A stored array that kernels read through a cache, identifiers of 64 bits.
    Wide(Array<u64>),
    /// Packed lists in memory that kernels read, for edge sources of `kernels/graph/packed.cuh`.
    PackedMemory {
        /// Words: `u32[]`.
        words: Region,
        /// First word of each block of 1024 neighbours, and the number of words: `u64[blocks + 1]`.
        positions: Region,
    },
    /// Packed lists that kernels read through a cache.
    PackedStorage {
        /// Words.
        words: Array<u32>,
        /// First word of each block of 1024 neighbours, and the number of words: `u64[blocks + 1]`.
        positions: Region,
    },
}

/// Neighbour lists of a placed graph in one direction, as the kernels of the library read them. Clones share the memory.
///
/// A launch keeps what it is given as arguments; for kernels of the program, give the regions and the array to
/// [`Run::keep`](crate::engine::Run::keep).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlacedLists {
    /// Index of each vertex's first neighbour: `u64[vertices + 1]`.
    pub offset: Region,
    /// The neighbours.
    pub neighbours: PlacedNeighbours,
    /// The four neighbours of each vertex with the highest degrees, the highest first: identifiers of
    /// [`GraphOnEngine::id_bits`], `[vertices][4]`. Missing ones have the largest value. A list of at most four is here as
    /// a whole.
    pub hubs: Region,
    /// Number of neighbours at the front of each list that are its hubs, so that a kernel that has used `hubs` goes on after
    /// them; 0 if lists are in another order.
    pub hubs_first: u32,
    /// Bitmap of vertices without edges, and of bits past the last vertex: `u32[(vertices + 31) / 32]`.
    pub isolated: Region,
    /// The number that each vertex has for [`Graph`](super::Graph) and in results: `u32[vertices]`. `None` if lists have
    /// the same numbers.
    pub order: Option<Region>,
}

impl GraphOnEngine {
    /// Returns the lists of outgoing edges, or `None` if the graph was placed without them
    /// ([`PlacementOptions::lists`](super::PlacementOptions::lists)).
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, PlacedNeighbours, Placement};
    ///
    /// let csr = Csr::from_edges(3, &[(0, 1), (1, 2)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let lists = graph.on_engine().lists().expect("placed with its lists");
    /// assert_eq!(lists.offset.get_slice::<u64>(0, 4)?, [0, 1, 3, 4]);
    /// let PlacedNeighbours::Memory(neighbours) = &lists.neighbours else { unreachable!() };
    /// assert_eq!(neighbours.get_slice::<u32>(0, 4)?, [1, 0, 2, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lists(&self) -> Option<PlacedLists> {
        self.placed(&self.out)
    }

    /// Returns the lists of incoming edges: those of [`GraphOnEngine::lists`] for an undirected graph, and `None` if a
    /// directed graph was placed without them.
    pub fn inward_lists(&self) -> Option<PlacedLists> {
        if self.directed { self.inward.as_ref().and_then(|lists| self.placed(lists)) } else { self.lists() }
    }

    fn placed(&self, lists: &Lists) -> Option<PlacedLists> {
        let neighbours = match lists.edges.as_ref()? {
            EdgeStore::Memory(region) => PlacedNeighbours::Memory(region.clone()),
            EdgeStore::Narrow(array) => PlacedNeighbours::Narrow(array.clone()),
            EdgeStore::Wide(array) => PlacedNeighbours::Wide(array.clone()),
            EdgeStore::PackedMemory { words, positions } => {
                PlacedNeighbours::PackedMemory { words: words.clone(), positions: positions.clone() }
            }
            EdgeStore::PackedStorage { words, positions } => {
                PlacedNeighbours::PackedStorage { words: words.clone(), positions: positions.clone() }
            }
            EdgeStore::WeightedNarrow(_) | EdgeStore::WeightedWide(_) => return None,
        };
        Some(PlacedLists {
            offset: lists.offset.clone(),
            neighbours,
            hubs: lists.hubs.clone(),
            hubs_first: if lists.hubs_first { GRAPH_HUBS } else { 0 },
            isolated: self.isolated.clone(),
            order: self.order.as_ref().map(|order| order.outside.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::graph::{Csr, CsrOptions, Placement, PlacementOptions};
    use crate::storage::{Cache, Drive, OverwritePolicy, Volume};

    #[test]
    fn lists_of_a_directed_graph_have_both_directions_in_memory_and_on_storage() {
        let engine = Engine::cpu().unwrap();
        let options = CsrOptions { directed: true, ..CsrOptions::default() };
        let csr = Csr::from_edges(4, &[(0, 1), (0, 2), (3, 2)], options).unwrap();
        let drive = Drive::create("soft:mem", 4 << 20, &OverwritePolicy::none()).unwrap();
        let volume = Volume::on(&engine, [drive]).build().unwrap();
        let cache = Cache::on(&volume).bytes(1 << 20).build().unwrap();
        for placement in [Placement::Gpu, Placement::Storage(cache)] {
            let graph = GraphOnEngine::place(&engine, &csr, placement, PlacementOptions::BFS).unwrap();
            let all = |lists: &PlacedLists| match &lists.neighbours {
                PlacedNeighbours::Memory(region) => region.get_slice::<u32>(0, 3).unwrap(),
                PlacedNeighbours::Narrow(array) => array.read(0..3).unwrap(),
                _ => panic!("four vertices have narrow identifiers, and lists are placed plain"),
            };
            let (out, inward) = (graph.lists().unwrap(), graph.inward_lists().unwrap());
            assert_eq!(out.offset.get_slice::<u64>(0, 5).unwrap(), [0, 2, 2, 2, 3]);
            assert_eq!(all(&out), [1, 2, 2]);
            assert_eq!(inward.offset.get_slice::<u64>(0, 5).unwrap(), [0, 0, 1, 3, 3]);
            assert_eq!(all(&inward), [0, 0, 3]);
            assert_eq!(out.isolated.get::<u32>(0).unwrap(), !0b1111);
        }
        let outward = PlacementOptions { inward: false, ..PlacementOptions::BFS };
        let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, outward).unwrap();
        assert!(graph.inward_lists().is_none());
    }
}
