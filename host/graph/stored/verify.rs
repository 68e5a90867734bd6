//! Complete verification of a stored graph.

use super::open::damaged;
use super::{HUBS, IN_HUBS, StoredGraph};
use crate::graph::csr::{Csr, Neighbours};
use crate::graph::edges::{GraphError, PlacementOptions};
use crate::graph::hub::hub_neighbours;
use crate::graph::place::{self, IN_NEIGHBOURS};
use crate::graph::shape::GraphShape;
use crate::storage::Volume;
use rayon::prelude::*;

impl StoredGraph {
    /// Reads the whole graph, compares each part with its checksum, and derived parts with the lists that they are
    /// derived from: in-lists, best-connected neighbours, self-loops and the number of edges.
    ///
    /// # Errors
    /// [`StoredError::Damaged`](super::StoredError::Damaged) with the part that differs; otherwise as for
    /// [`StoredGraph::read`].
    pub fn verify(&self, volume: &Volume) -> Result<(), GraphError> {
        let csr = self.read(volume)?;
        let differs = |what: &str| Err(damaged(self.name(), format!("{what} differ from its neighbour lists")));
        if !(0..csr.vertices()).into_par_iter().all(|v| csr.has_self_loop(v) == GraphShape::has_self_loop(self, v)) {
            return differs("the self-loops");
        }
        if csr.edges() != self.info().edges {
            return differs("the number of edges");
        }
        if self.stored_list(volume, HUBS, &csr)? != hub_neighbours(&csr) {
            return differs("the best-connected neighbours");
        }
        if let Some(inward) = place::transposed(&csr, PlacementOptions::BFS) {
            let same = self.in_offsets() == Some(inward.offsets())
                && self.stored_list(volume, IN_NEIGHBOURS, &csr)? == *inward.neighbours();
            if !same {
                return differs("the in-lists");
            }
            if self.stored_list(volume, IN_HUBS, &csr)? != hub_neighbours(&inward) {
                return differs("the best-connected in-neighbours");
            }
        }
        Ok(())
    }

    /// Reads an array of vertices of the width of the graph's neighbours.
    fn stored_list(&self, volume: &Volume, part: &str, like: &Csr) -> Result<Neighbours, GraphError> {
        let name = self.name().array(part);
        Ok(match like.neighbours() {
            Neighbours::U32(_) => Neighbours::U32(volume.read_array(&name)?),
            Neighbours::U64(_) => Neighbours::U64(volume.read_array(&name)?),
        })
    }
}
