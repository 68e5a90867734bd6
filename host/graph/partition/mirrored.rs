//! Lists of one PE, for algorithms that have a copy of the values of all vertices on every PE.

use super::plan::PartitionPlan;
use crate::graph::csr::{Csr, MAX_NARROW_VERTICES, NeighbourOrder, Neighbours};
use crate::graph::distribution::Distribution;
use crate::graph::edges::{GraphError, GraphOnEngine, PlacedOrder, Placement, PlacementOptions, WeightKind};
use crate::graph::ids::Ids;
use crate::graph::order::Order;
use crate::graph::pe_order;
use crate::graph::stored::gather::gathered;
use crate::graph::{occupied, parallel, place};
use crate::shmem::World;
use crate::storage::{Plan, Volume};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Lists of one PE's vertices, for algorithms that keep the values of all vertices on every PE: PageRank, connected
/// components, label propagation, shortest paths, triangles and clustering coefficients. Each PE then takes some bytes of memory for every vertex of the graph, and the bytes of
/// its own edges.
///
/// # Examples
///
/// ```
/// use warpbell::graph::partition::PartitionPlan;
/// use warpbell::graph::{Csr, CsrOptions, GraphOnEngine, PageRankOptions, Placement, PlacementOptions, pagerank};
/// use warpbell::shmem::World;
///
/// let csr = Csr::from_edges(4, &[(0, 1), (0, 2), (0, 3)], CsrOptions::default())?;
/// let plan = PartitionPlan::new(&csr, 2, true);
/// let ranks = |world: World| -> Result<Vec<f64>, Box<dyn std::error::Error + Send + Sync>> {
///     let part = plan.mirrored_part(world.my_pe())?;
///     let graph = GraphOnEngine::place_mirrored(&world, &part, Placement::Gpu, PlacementOptions::PAGERANK)?;
///     Ok(pagerank(&graph, &PageRankOptions::default())?.rank)
/// };
/// // Two PEs with CPU engines, each in a thread of its own. Both get all ranks.
/// std::thread::scope(|s| {
///     let pes: Vec<_> = World::local(2)?.into_iter().map(|world| s.spawn(|| ranks(world))).collect();
///     for pe in pes {
///         let rank = pe.join().expect("no panic")?;
///         assert!(rank[0] > rank[1] && (rank.iter().sum::<f64>() - 1.0).abs() < 1e-6);
///     }
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct MirroredPart {
    pe: usize,
    pes: usize,
    /// First vertex of each PE in that order, and the number of vertices.
    firsts: Arc<[u64]>,
    /// Number of arcs of the whole graph.
    arcs: u64,
    /// Kind and mean of the weights of the whole graph.
    weights: (WeightKind, f64),
    out: Csr,
    inward: Option<Csr>,
    order: Arc<Order>,
}

impl PartitionPlan<'_> {
    /// Returns the lists of a PE for algorithms that keep the values of all vertices on every PE.
    ///
    /// # Errors
    /// [`GraphError::Parameter`] if the graph has more than 2^32 - 2 vertices: then the values take too much memory on each
    /// PE. [`GraphError::OtherWorld`] if the partition has no such PE.
    pub fn mirrored_part(&self, pe: usize) -> Result<MirroredPart, GraphError> {
        let csr = self.csr();
        let (vertices, pes) = (csr.vertices(), self.pes());
        if vertices > MAX_NARROW_VERTICES {
            let name = "the number of vertices";
            return Err(GraphError::Parameter {
                name,
                value: vertices as f64,
                range: "at most 2^32 - 2 for mirrored parts",
            });
        }
        if pe >= pes {
            return Err(GraphError::OtherWorld { partitioned: pes, pes: pe + 1 });
        }
        let firsts = pe_order::firsts(vertices, pes);
        let own = firsts[pe]..firsts[pe + 1];
        let lists = |csr: &Csr| self.mirrored_lists(csr, &own, &firsts);
        Ok(MirroredPart {
            pe,
            pes,
            arcs: csr.arcs(),
            weights: place::weight_kind(csr),
            out: lists(csr),
            inward: self.inward().map(lists),
            order: self.order().clone(),
            firsts: firsts.clone().into(),
        })
    }

    /// Returns the bytes of symmetric heap that an algorithm over mirrored parts needs on each PE.
    pub fn mirrored_heap_bytes(&self) -> usize {
        super::heap_bytes(self.csr().vertices(), self.pes(), None)
    }

    /// Returns the lists of own vertices in the order in which those of a PE stand together, and empty lists of all others.
    /// Neighbours of high degree come first.
    fn mirrored_lists(&self, csr: &Csr, own: &Range<u64>, firsts: &[u64]) -> Csr {
        let (order, assignment) = (self.order(), self.assignment());
        let vertices = csr.vertices();
        let mut end = 0;
        let ends = (0..vertices).map(|v| {
            end += if own.contains(&v) { csr.degree(order.outside(v)) } else { 0 };
            end
        });
        let offsets: Vec<u64> = std::iter::once(0).chain(ends).collect();
        let row = |v: usize| if own.contains(&(v as u64)) { csr.range(order.outside(v as u64)) } else { 0..0 };
        let neighbours = csr.neighbours();
        let (ranks, weights) = gathered(&offsets, csr.weights(), row, |i| assignment.rank(neighbours.get(i)) as u32);
        let inside = |i: usize| {
            let (pe, local) = assignment.whole.place(ranks[i].into());
            (firsts[pe] + local) as u32
        };
        let list = Neighbours::U32(parallel::map(ranks.len(), inside));
        let ids = Ids::dense(0, vertices);
        Csr::stored(offsets, list, weights, csr.directed(), ids, NeighbourOrder::ByDegree)
    }
}

impl MirroredPart {
    /// Returns the number of vertices whose lists the part has.
    #[cfg(feature = "internals")]
    pub fn vertices(&self) -> u64 {
        self.firsts[self.pe + 1] - self.firsts[self.pe]
    }

    /// Returns the number of edges of the part, as out-lists.
    #[cfg(feature = "internals")]
    pub fn arcs(&self) -> u64 {
        self.out.arcs()
    }

    /// Returns the bytes of the edges that placing the part stores.
    #[cfg(feature = "internals")]
    pub fn edge_bytes(&self, needs: PlacementOptions) -> u64 {
        let bytes = |csr: &Csr| csr.neighbours().bytes().len() as u64;
        let lists = if needs.lists { bytes(&self.out) } else { 0 };
        let inward = self.inward.as_ref().filter(|_| needs.inward).map_or(0, bytes);
        lists + inward + if needs.weighted { place::weighted_bytes(&self.out) } else { 0 }
    }

    /// Returns the arrays that placing the part writes to a volume. [`Plan::bytes`] returns the size that the volume
    /// needs.
    pub fn plan(&self, needs: PlacementOptions) -> Plan {
        GraphOnEngine::plan_of(&self.out, self.inward(needs).map(Csr::arcs), needs)
    }

    /// Checks that placing the part overwrites no foreign data on `volume`: [`GraphOnEngine::check_volume`].
    ///
    /// # Errors
    ///
    /// As for [`GraphOnEngine::check_volume`].
    pub fn check_volume(&self, volume: &Volume, needs: PlacementOptions) -> Result<(), GraphError> {
        let inward = || self.inward(needs).map(Cow::Borrowed);
        occupied::check(volume, &self.plan(needs), &self.out, inward, needs)
    }

    fn inward(&self, needs: PlacementOptions) -> Option<&Csr> {
        self.inward.as_ref().filter(|_| needs.inward)
    }
}

impl GraphOnEngine {
    /// Copies a PE's lists to memory that its kernels can read, or with [`Placement::Storage`] to its own volume. Algorithms
    /// over such a graph are collective: every PE of the world makes the same calls, and gets the values of all vertices.
    /// Counters of storage are those of the PE.
    ///
    /// # Errors
    /// [`GraphError::OtherWorld`] if the partition has another number of PEs than `world`, or `part` is that of another PE;
    /// otherwise as for [`GraphOnEngine::place`].
    pub fn place_mirrored(
        world: &World,
        part: &MirroredPart,
        placement: Placement,
        needs: PlacementOptions,
    ) -> Result<Self, GraphError> {
        let (partitioned, pes) = (part.pes, world.n_pes());
        if partitioned != pes || part.pe != world.my_pe() {
            return Err(GraphError::OtherWorld { partitioned, pes });
        }
        let mut placed = Self::place_lists(world.engine(), &part.out, part.inward(needs), placement, needs)?;
        if let Some(weighted) = &mut placed.weighted {
            (weighted.kind, weighted.mean) = part.weights;
        }
        // These lists are in the order of other degrees than those that they have here, and are not searched.
        let has_loop = |v: u64| part.out.neighbours_of(v).any(|n| n == v);
        placed.loops = place::self_loops(world.engine(), part.out.vertices(), has_loop)?;
        let outside = place::device(world.engine(), part.order.all_outside())?;
        placed.order = Some(PlacedOrder { host: part.order.clone(), outside });
        placed.distribution = Some(Distribution { world: world.clone(), firsts: part.firsts.clone(), arcs: part.arcs });
        Ok(placed)
    }
}
