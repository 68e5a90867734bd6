//! Parts of a search that are read from a stored graph in parts.

use super::plan::{Assignment, Part, Whole};
use super::search::PartitionedGraph;
use crate::graph::csr::{Csr, Neighbours};
use crate::graph::edges::{GraphError, Placement};
use crate::graph::parallel;
use crate::graph::pe_order;
use crate::graph::shape::GraphShape;
use crate::graph::stored::{StoredGraph, check_import};
use crate::shmem::World;
use crate::storage::Volume;
use std::sync::Arc;

impl Part {
    /// Reads the lists of a PE from its part of a stored graph, for breadth-first search. `volume` is the one on which the part was
    /// opened.
    ///
    /// # Errors
    /// * [`GraphError::OtherWorld`] if the graph is not stored in parts.
    /// * [`GraphError::Parameter`] if the slots of all PEs exceed 32 bits.
    /// * [`GraphError::Import`] if the lists do not fit into memory; otherwise as for [`StoredGraph::read`].
    #[cfg(feature = "internals")]
    pub fn read(stored: &StoredGraph, volume: &Volume) -> Result<Self, GraphError> {
        Self::of_stored(stored, volume)
    }

    fn of_stored(stored: &StoredGraph, volume: &Volume) -> Result<Self, GraphError> {
        let Some(own) = stored.info().part else { return Err(GraphError::OtherWorld { partitioned: 1, pes: 1 }) };
        let assignment = Arc::new(Assignment::of_stored(stored, own.parts)?);
        let lists = |inward: bool| -> Result<Csr, GraphError> {
            let (offsets, list) = stored.own_lists(volume, inward)?;
            let slots = assignment.slots(&offsets, list);
            Ok(Csr::part(offsets, Neighbours::U32(slots), stored.directed()))
        };
        let out = lists(false)?;
        let inward = stored.directed().then(|| lists(true)).transpose()?;
        Ok(Self { pe: own.part, assignment, import: own.import, out, inward })
    }
}

impl PartitionedGraph {
    /// Reads a PE's part of a stored graph, and copies it to memory that its kernels can read, or with [`Placement::Storage`] to a
    /// volume of its own. `volume` is the one on which the part was opened. Collective.
    ///
    /// # Errors
    /// * [`GraphError::OtherWorld`] if the graph has not a part for each PE of the world, or this is the part of another PE.
    /// * [`StoredError::OtherImport`](crate::graph::stored::StoredError::OtherImport) if the parts are of different imports.
    /// * [`GraphError::Parameter`] if the slots of all PEs exceed 32 bits.
    /// * [`GraphError::Import`] if the lists do not fit into memory; otherwise as for [`StoredGraph::read`] and
    ///   [`PartitionedGraph::place`].
    pub fn place_stored(
        world: &World,
        stored: &StoredGraph,
        volume: &Volume,
        placement: Placement,
    ) -> Result<Self, GraphError> {
        Self::place_read(world, &Part::of_stored(stored, volume)?, placement)
    }

    /// Copies a PE's part, which knows the partition. Collective.
    ///
    /// # Errors
    /// As for [`PartitionedGraph::place`]; also if parts of stored graphs are of different imports.
    #[cfg(feature = "internals")]
    pub fn place_part(world: &World, part: &Part, placement: Placement) -> Result<Self, GraphError> {
        Self::place_read(world, part, placement)
    }

    fn place_read(world: &World, part: &Part, placement: Placement) -> Result<Self, GraphError> {
        check_import(world, part.import)?;
        Self::place_own(world, part, placement)
    }
}

impl Assignment {
    fn of_stored(stored: &StoredGraph, parts: usize) -> Result<Self, GraphError> {
        let vertices = stored.vertices();
        let whole = Whole::new(parts, vertices, stored.info().arcs, stored.connected(), false);
        if whole.wide {
            let range = "so few that the slots of all PEs have 32 bits; store the graph in fewer parts";
            return Err(GraphError::Parameter { name: "the number of vertices", value: vertices as f64, range });
        }
        let firsts = pe_order::firsts(vertices, parts);
        let mut order = vec![0; vertices as usize];
        let mut rank = vec![0; vertices as usize];
        for (pe, first) in firsts[..parts].iter().enumerate() {
            for local in 0..firsts[pe + 1] - first {
                let (at, v) = (pe_order::rank(parts, pe, local), stored.outside(first + local));
                order[at as usize] = v as u32;
                rank[v as usize] = at as u32;
            }
        }
        Ok(Self { whole, order: Neighbours::U32(order), rank: Neighbours::U32(rank) })
    }

    /// Returns the slots of neighbours that are numbered in the order in which the vertices of a PE stand together. Each list then begins
    /// with the neighbours of the highest degree.
    fn slots(&self, offsets: &[u64], mut list: Vec<u32>) -> Vec<u32> {
        let whole = &self.whole;
        let firsts = pe_order::firsts(whole.vertices, whole.pes);
        let rank = |v: u32| {
            let pe = firsts.partition_point(|&first| first <= v.into()) - 1;
            pe_order::rank(whole.pes, pe, u64::from(v) - firsts[pe]) as u32
        };
        let parts = crate::graph::csr::blocks_mut(offsets, &mut list);
        parallel::each_part(parts, |(), _, (vertices, lists)| {
            let base = offsets[vertices.start];
            for v in vertices {
                let list = &mut lists[(offsets[v] - base) as usize..(offsets[v + 1] - base) as usize];
                list.iter_mut().for_each(|n| *n = rank(*n));
                list.sort_unstable();
                list.iter_mut().for_each(|n| *n = whole.slot_of_rank((*n).into()) as u32);
            }
        });
        list
    }
}
