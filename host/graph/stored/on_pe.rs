//! A part of a stored graph on its PE: for the kernels of the PE, and for those that take its lists elsewhere.

use super::arcs::{ARCS_AT_ONCE, ArcReader};
use super::{StoredError, StoredGraph};
use crate::graph::distribution::Distribution;
use crate::graph::edges::{GraphError, GraphOnEngine, Placement, PlacementOptions};
use crate::graph::import::check_memory;
use crate::graph::parallel;
use crate::graph::pe_order;
use crate::shmem::World;
use crate::storage::Volume;

impl StoredGraph {
    /// Makes the part of a PE readable for the kernels of that PE: on its volume, where the edges stay, or copied to memory.
    /// `volume` is the one on which the part was opened. Algorithms over such a graph are collective: every PE of the world makes
    /// the same calls, and gets the values of all vertices.
    ///
    /// # Errors
    /// * [`GraphError::OtherWorld`] if the graph has not a part for each PE of the world.
    /// * [`StoredError::OtherPart`] if this is the part of another PE; [`StoredError::OtherImport`] if the parts are of different imports.
    /// * Otherwise as for [`StoredGraph::place`]; in memory all lists are checked, as [`StoredGraph::read`] does.
    pub fn place_part(
        &self,
        world: &World,
        volume: &Volume,
        placement: Placement,
        needs: PlacementOptions,
    ) -> Result<GraphOnEngine, GraphError> {
        self.check_part(world)?;
        let mut placed = self.place_in(volume, placement, needs)?;
        let firsts = pe_order::firsts(self.info.vertices, world.n_pes()).into();
        placed.distribution = Some(Distribution { world: world.clone(), firsts, arcs: self.info.arcs });
        Ok(placed)
    }

    /// Checks that this is the part of a PE, and of the import of the other PEs' parts. Collective.
    fn check_part(&self, world: &World) -> Result<(), GraphError> {
        let (pe, pes, own) = (world.my_pe(), world.n_pes(), self.info.part);
        check_import(world, own.map_or(0, |own| own.import))?;
        match own {
            Some(own) if own.parts == pes && own.part == pe => Ok(()),
            Some(own) if own.parts == pes => {
                Err(StoredError::OtherPart { name: self.name().to_string(), part: own.part, pe }.into())
            }
            own => Err(GraphError::OtherWorld { partitioned: own.map_or(1, |own| own.parts), pes }),
        }
    }

    /// Returns the number of vertices that have an edge in either direction.
    pub(crate) fn connected(&self) -> u64 {
        parallel::sum(self.info.vertices as usize, |v| u64::from(!self.is_alone(v as u64)))
    }

    /// Reads the lists of the vertices that are here. Returns their offsets, and the neighbours by their numbers in the order
    /// of the lists.
    pub(crate) fn own_lists(&self, volume: &Volume, inward: bool) -> Result<(Vec<u64>, Vec<u32>), GraphError> {
        let (own, arcs) = (self.own_vertices(), self.own_arcs(inward));
        let what = format!("reading graph `{}`", self.name());
        check_memory(
            &what,
            (own.end - own.start).into(),
            arcs.into(),
            u128::from(arcs) * size_of::<u32>() as u128,
            None,
        )?;
        let mut list = Vec::with_capacity(arcs as usize);
        let mut reader = ArcReader::new(self, volume, inward, false, ARCS_AT_ONCE)?;
        while let Some(piece) = reader.next_piece()? {
            parallel::extend(&mut list, piece.arcs.len(), |i| piece.arcs[i].0 as u32);
        }
        Ok((self.list_offsets(inward)[own.start as usize..=own.end as usize].to_vec(), list))
    }
}

/// Checks that all PEs have parts of one import. Collective.
pub(crate) fn check_import(world: &World, import: u64) -> Result<(), GraphError> {
    let all = world.allgather(&import.to_le_bytes())?;
    match all.iter().position(|other| *other != all[0]) {
        Some(pe) => Err(StoredError::OtherImport { pe }.into()),
        None => Ok(()),
    }
}
