//! Placement of a graph where kernels can read it.

use super::csr::{Csr, NeighbourOrder, Neighbours, VertexId, Weights};
use super::edges::{
    DEFAULT_LAUNCH_LIMIT, EdgeStore, GraphError, GraphOnEngine, Lists, NarrowEdge, Placement, PlacementOptions,
    WeightKind, Weighted, WideEdge,
};
use super::hub::{hub_neighbours, order_by_degree};
use super::occupied;
use super::params::GRAPH_PIECE_EDGES;
use crate::engine::Engine;
use crate::graph::parallel;
use crate::memory::{Place, Region};
use crate::storage::{Cache, Element, ElementType, Plan, Volume};
use bytemuck::Pod;
use std::borrow::Cow;
use std::ops::Range;

/// Number of weighted edges that are interleaved and written at a time.
const PART_EDGES: usize = 1 << 20;

// Arrays of a graph on a volume.
pub(super) const OFFSETS: &str = "offsets";
pub(super) const NEIGHBOURS: &str = "neighbours";
pub(super) const IN_OFFSETS: &str = "in-offsets";
pub(super) const IN_NEIGHBOURS: &str = "in-neighbours";
pub(super) const WEIGHTED: &str = "weighted-neighbours";

impl GraphOnEngine {
    /// Returns the arrays that [`GraphOnEngine::place`] writes to a volume. [`Plan::bytes`] returns the size that the
    /// volume needs.
    pub fn plan(csr: &Csr, needs: PlacementOptions) -> Plan {
        Self::plan_of(csr, (needs.inward && csr.directed()).then(|| csr.arcs()), needs)
    }

    /// Returns the plan for out-lists, and for in-lists of `inward` arcs.
    pub(super) fn plan_of(csr: &Csr, inward: Option<u64>, needs: PlacementOptions) -> Plan {
        let vertices = csr.vertices();
        let wide = csr.neighbours().as_u64().is_some();
        let list = |plan: Plan, offsets, neighbours, arcs| {
            let plan = plan.array::<u64>(offsets, vertices + 1);
            if wide { plan.array::<u64>(neighbours, arcs) } else { plan.array::<u32>(neighbours, arcs) }
        };
        let mut plan = Plan::new();
        if needs.lists {
            plan = list(plan, OFFSETS, NEIGHBOURS, csr.arcs());
        }
        if let Some(arcs) = inward {
            plan = list(plan, IN_OFFSETS, IN_NEIGHBOURS, arcs);
        }
        if needs.weighted {
            let bytes = if wide_weights(csr) { size_of::<WideEdge>() } else { size_of::<NarrowEdge>() };
            plan = plan.records(WEIGHTED, bytes as u32, csr.arcs());
        }
        plan
    }

    /// Copies a graph to memory that kernels can read. With [`Placement::Storage`] the edges are written to the cache's
    /// volume under a manifest, in place of everything that the volume held.
    ///
    /// Breadth-first search reads least with lists sorted by degree ([`NeighbourOrder::ByDegree`]). A graph without
    /// weights gets the weight 1 for every edge.
    ///
    /// # Errors
    /// [`GraphError::Memory`] without memory; [`GraphError::Storage`] if the volume is too small, or a device fails.
    pub fn place(
        engine: &Engine,
        csr: &Csr,
        placement: Placement,
        needs: PlacementOptions,
    ) -> Result<Self, GraphError> {
        let mut placed = Self::place_lists(engine, csr, transposed(csr, needs).as_ref(), placement, needs)?;
        placed.loops = self_loops(engine, csr.vertices(), |v| csr.has_self_loop(v))?;
        Ok(placed)
    }

    /// Checks that [`GraphOnEngine::place`] overwrites no foreign data on `volume`. Each device must hold no stored
    /// arrays, hold these same arrays, or be named in the [`OverwritePolicy`](crate::storage::OverwritePolicy) with
    /// which it was opened.
    ///
    /// Arrays are compared by layout. If the layout is the same, they are also compared by checksum.
    ///
    /// # Errors
    ///
    /// * [`GraphError::Occupied`] names a device that holds other data, and describes the data.
    /// * [`GraphError::Storage`] if a device cannot be read.
    pub fn check_volume(volume: &Volume, csr: &Csr, needs: PlacementOptions) -> Result<(), GraphError> {
        occupied::check(volume, &Self::plan(csr, needs), csr, || transposed(csr, needs).map(Cow::Owned), needs)
    }

    /// Places a graph as [`GraphOnEngine::place`] does, with the in-lists given. Self-loops are not looked for: the
    /// neighbours of the parts of a search are not its vertices.
    pub(super) fn place_lists(
        engine: &Engine,
        csr: &Csr,
        transpose: Option<&Csr>,
        placement: Placement,
        needs: PlacementOptions,
    ) -> Result<Self, GraphError> {
        let mut stores = match &placement {
            Placement::Storage(cache) => Stores::on_volume(cache, csr, transpose, needs)?,
            Placement::Gpu => Stores::in_memory(engine, Place::Device, csr, transpose, needs)?,
            Placement::Pinned => Stores::in_memory(engine, Place::Host, csr, transpose, needs)?,
        };
        let out = lists(engine, csr, stores.out.take())?;
        let inward = transpose.map(|t| lists(engine, t, stores.inward.take())).transpose()?;
        let isolated = isolated(csr.offsets(), csr.directed(), transpose.map(Csr::offsets));
        let connected = parallel::sum(isolated.len(), |i| u64::from(isolated[i].count_zeros()));
        let weighted = stores.weighted.take().map(|edges| {
            let (kind, mean) = weight_kind(csr);
            Weighted { edges, kind, mean, wide: wide_weights(csr) }
        });
        Ok(Self {
            engine: engine.clone(),
            placement,
            vertices: csr.vertices(),
            arcs: csr.arcs(),
            directed: csr.directed(),
            wide: csr.neighbours().as_u64().is_some(),
            out,
            inward,
            weighted,
            order: None,
            isolated: device(engine, &isolated)?,
            loops: None,
            connected,
            launch_limit: DEFAULT_LAUNCH_LIMIT,
            #[cfg(feature = "shmem")]
            distribution: None,
        })
    }
}

/// The edges to be placed, each kind in the chosen memory or storage.
#[derive(Default)]
struct Stores {
    out: Option<EdgeStore>,
    inward: Option<EdgeStore>,
    weighted: Option<EdgeStore>,
}

impl Stores {
    fn in_memory(
        engine: &Engine,
        place: Place,
        csr: &Csr,
        transpose: Option<&Csr>,
        needs: PlacementOptions,
    ) -> Result<Self, GraphError> {
        let plain = |csr: &Csr| -> Result<EdgeStore, GraphError> {
            let bytes = csr.neighbours().bytes();
            let region = engine.allocate(place, bytes.len())?;
            region.write(0, bytes)?;
            Ok(EdgeStore::Memory(region))
        };
        let mut stores = Self::default();
        if needs.lists {
            stores.out = Some(plain(csr)?);
        }
        stores.inward = transpose.map(plain).transpose()?;
        if needs.weighted {
            let size = if wide_weights(csr) { size_of::<WideEdge>() } else { size_of::<NarrowEdge>() };
            let region = engine.allocate(place, csr.neighbours().len() * size)?;
            let mut at = 0;
            each_part(csr, |bytes| {
                region.write(at, bytes)?;
                at += bytes.len();
                Ok(())
            })?;
            stores.weighted = Some(EdgeStore::Memory(region));
        }
        Ok(stores)
    }

    fn on_volume(
        cache: &Cache,
        csr: &Csr,
        transpose: Option<&Csr>,
        needs: PlacementOptions,
    ) -> Result<Self, GraphError> {
        let volume = cache.volume();
        let mut writer = volume.store(GraphOnEngine::plan_of(csr, transpose.map(Csr::arcs), needs), "the graph")?;
        each_array(csr, transpose, needs, |name, kind, bytes| Ok(writer.append_bytes(name, kind, bytes)?))?;
        writer.finish()?;
        // The cache may hold pages of the volume's previous content.
        cache.discard()?;
        let wide = csr.neighbours().as_u64().is_some();
        let open = |name| -> Result<EdgeStore, GraphError> {
            Ok(if wide { EdgeStore::Wide(cache.open(name)?) } else { EdgeStore::Narrow(cache.open(name)?) })
        };
        let mut stores = Self::default();
        if needs.lists {
            stores.out = Some(open(NEIGHBOURS)?);
        }
        if transpose.is_some() {
            stores.inward = Some(open(IN_NEIGHBOURS)?);
        }
        if needs.weighted {
            stores.weighted = Some(if wide_weights(csr) {
                EdgeStore::WeightedWide(cache.open(WEIGHTED)?)
            } else {
                EdgeStore::WeightedNarrow(cache.open(WEIGHTED)?)
            });
        }
        Ok(stores)
    }
}

/// Returns the in-lists that are placed beside the lists of a directed graph.
pub(super) fn transposed(csr: &Csr, needs: PlacementOptions) -> Option<Csr> {
    (csr.directed() && needs.inward).then(|| {
        let mut transpose = csr.transpose();
        if csr.order() == NeighbourOrder::ByDegree {
            order_by_degree(&mut transpose);
        }
        transpose
    })
}

/// Calls `take` with the name, type and bytes of each array for a volume, in pieces.
pub(super) fn each_array(
    csr: &Csr,
    transpose: Option<&Csr>,
    needs: PlacementOptions,
    mut take: impl FnMut(&str, ElementType, &[u8]) -> Result<(), GraphError>,
) -> Result<(), GraphError> {
    let mut plain = |csr: &Csr, offsets, neighbours| {
        take(offsets, u64::TYPE, bytemuck::cast_slice(csr.offsets()))?;
        let kind = if csr.neighbours().as_u64().is_some() { u64::TYPE } else { u32::TYPE };
        take(neighbours, kind, csr.neighbours().bytes())
    };
    if needs.lists {
        plain(csr, OFFSETS, NEIGHBOURS)?;
    }
    if let Some(transpose) = transpose {
        plain(transpose, IN_OFFSETS, IN_NEIGHBOURS)?;
    }
    if needs.weighted {
        each_part(csr, |bytes| take(WEIGHTED, ElementType::Record, bytes))?;
    }
    Ok(())
}

pub(super) fn device<T: Pod>(engine: &Engine, values: &[T]) -> Result<Region, GraphError> {
    let region = engine.allocate(Place::Device, size_of_val(values))?;
    region.set_slice(0, values)?;
    Ok(region)
}

fn lists(engine: &Engine, csr: &Csr, edges: Option<EdgeStore>) -> Result<Lists, GraphError> {
    Ok(Lists {
        offset: device(engine, csr.offsets())?,
        arcs: csr.arcs(),
        hubs: device(engine, hub_neighbours(csr).bytes())?,
        tile: match csr.neighbours() {
            Neighbours::U32(_) => device(engine, &tiles::<u32>(csr.offsets()))?,
            Neighbours::U64(_) => device(engine, &tiles::<u64>(csr.offsets()))?,
        },
        hubs_first: csr.order() == NeighbourOrder::ByDegree,
        by_degree: csr.order() == NeighbourOrder::ByDegree,
        edges,
    })
}

/// Returns true if weighted edges have 64-bit identifiers. Double weights also need them, so that an element's size is
/// a power of two.
pub(super) fn wide_weights(csr: &Csr) -> bool {
    csr.neighbours().as_u64().is_some() || matches!(csr.weights(), Some(Weights::F64(_)))
}

/// Returns the bytes of the edges with weights.
#[cfg(all(feature = "shmem", feature = "internals"))]
pub(super) fn weighted_bytes(csr: &Csr) -> u64 {
    csr.arcs() * if wide_weights(csr) { size_of::<WideEdge>() } else { size_of::<NarrowEdge>() } as u64
}

/// Returns the kind of the weights, and their mean.
pub(super) fn weight_kind(csr: &Csr) -> (WeightKind, f64) {
    let Some(weights) = csr.weights() else { return (WeightKind::Integer { largest: 1 }, 1.0) };
    let kind = match weights {
        Weights::U32(_) => WeightKind::Integer { largest: weights.max() as u64 },
        Weights::F32(_) | Weights::F64(_) => WeightKind::Real,
    };
    (kind, weights.sum() / csr.arcs().max(1) as f64)
}

/// Some of the weighted edges.
pub(super) enum Interleaved {
    Narrow(Vec<NarrowEdge>),
    Wide(Vec<WideEdge>),
}

impl Interleaved {
    /// Interleaves some neighbours and their weights, with 64-bit identifiers if `wide` is set. Without weights all are 1.
    pub(super) fn of(n: &Neighbours, weights: Option<&Weights>, range: Range<usize>, wide: bool) -> Self {
        let narrow_weight = |i: usize| match weights {
            Some(Weights::U32(w)) => w[i],
            Some(Weights::F32(w)) => w[i].to_bits(),
            Some(Weights::F64(_)) | None => 1,
        };
        let wide_weight = |i: usize| match weights {
            None => 1,
            Some(Weights::U32(w)) => u64::from(w[i]),
            Some(Weights::F32(w)) => f64::from(w[i]).to_bits(),
            Some(Weights::F64(w)) => w[i].to_bits(),
        };
        let first = range.start;
        if wide {
            let edge = |i: usize| WideEdge { id: n.get(first + i), weight: wide_weight(first + i) };
            Self::Wide(parallel::map(range.len(), edge))
        } else {
            let edge = |i: usize| NarrowEdge { id: n.get(first + i) as u32, weight: narrow_weight(first + i) };
            Self::Narrow(parallel::map(range.len(), edge))
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Narrow(edges) => bytemuck::cast_slice(edges),
            Self::Wide(edges) => bytemuck::cast_slice(edges),
        }
    }
}

/// Interleaves neighbours and weights, and calls `take` with one part at a time.
fn each_part(csr: &Csr, mut take: impl FnMut(&[u8]) -> Result<(), GraphError>) -> Result<(), GraphError> {
    let (n, wide) = (csr.neighbours(), wide_weights(csr));
    (0..n.len()).step_by(PART_EDGES).try_for_each(|first| {
        let part = first..n.len().min(first + PART_EDGES);
        take(Interleaved::of(n, csr.weights(), part, wide).bytes())
    })
}

/// Returns a bitmap of vertices that have no edge in either direction, and of bits past the last vertex.
pub(super) fn isolated(out: &[u64], directed: bool, inward: Option<&[u64]>) -> Vec<u32> {
    let vertices = out.len() - 1;
    let alone = |offsets: &[u64], v: usize| offsets[v] == offsets[v + 1];
    // Without in-lists a vertex may have in-edges that are not known here. Searches do not need to know then.
    let known = !directed || inward.is_some();
    parallel::map(vertices.div_ceil(32), |word| {
        (0..32).fold(0, |bits, bit| {
            let v = word * 32 + bit;
            let set = v >= vertices || known && alone(out, v) && inward.is_none_or(|i| alone(i, v));
            bits | u32::from(set) << bit
        })
    })
}

/// Returns a bitmap of the vertices with an edge to themselves, or `None` if there are none.
pub(super) fn self_loops(
    engine: &Engine,
    vertices: u64,
    has_loop: impl Fn(u64) -> bool + Sync,
) -> Result<Option<Region>, GraphError> {
    let bitmap = parallel::map(vertices.div_ceil(32) as usize, |word| {
        let first = word as u64 * 32;
        (first..vertices.min(first + 32)).fold(0u32, |bits, v| bits | u32::from(has_loop(v)) << (v - first))
    });
    bitmap.iter().any(|word| *word != 0).then(|| device(engine, &bitmap)).transpose()
}

/// Returns, for each tile of edges, the vertex that holds the tile's first edge.
pub(super) fn tiles<V: VertexId>(offsets: &[u64]) -> Vec<V> {
    let arcs = offsets.last().copied().unwrap_or_default();
    let tiles = arcs.div_ceil(GRAPH_PIECE_EDGES);
    let vertex = |t: usize| V::from_index(offsets.partition_point(|&o| o <= t as u64 * GRAPH_PIECE_EDGES) - 1);
    parallel::map(tiles as usize, vertex)
}
