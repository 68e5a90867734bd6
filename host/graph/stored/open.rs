//! Opening of stored graphs.

use super::arcs::{ARCS_AT_ONCE, ArcReader, StoredWeight};
use super::header::{Raw, StoredIds};
use super::{GraphName, HEADER, HUBS, IDS, IN_HUBS, SELF_LOOPS, StoredError, StoredInfo, WeightType, entries};
use super::{gather, memory, names, packed};
use crate::graph::csr::{self, Csr, MAX_NARROW_VERTICES, NeighbourOrder, Neighbours, VertexId, Weights};
use crate::graph::edges::{
    DEFAULT_LAUNCH_LIMIT, EdgeStore, GraphError, GraphOnEngine, Lists, PlacedOrder, Placement, PlacementOptions,
    WeightKind, Weighted, WideEdge,
};
use crate::graph::ids::Ids;
use crate::graph::import::check_memory;
use crate::graph::order::Order;
use crate::graph::parallel;
use crate::graph::params::GRAPH_HUBS;
use crate::graph::pe_order;
use crate::graph::place::{self, IN_NEIGHBOURS, IN_OFFSETS, NEIGHBOURS, OFFSETS, WEIGHTED};
use crate::graph::shape::GraphShape;
use crate::memory::Place;
use crate::storage::{Cache, Element, ManifestError, StorageError, Volume};
use std::borrow::Cow;
use std::sync::Arc;

/// A stored graph that was opened: its offsets, identifiers and facts are in host memory, its edges on the volume.
#[derive(Clone, Debug)]
pub struct StoredGraph {
    name: GraphName,
    pub(super) info: StoredInfo,
    /// Offsets of the lists in the order of the identifiers.
    pub(super) offsets: Vec<u64>,
    /// Order of the lists, if it is another one, and their offsets in it: those that are here.
    reordered: Option<(Arc<Order>, Vec<u64>)>,
    /// Offsets of the in-lists of a directed graph, in the order of the lists: those that are here.
    in_offsets: Option<Vec<u64>>,
    /// Of a directed graph in parts, a bitmap of the vertices with in-edges, in the order of the lists.
    entered: Vec<u64>,
    pub(super) loops: Vec<u64>,
    ids: Ids,
}

/// Reads the header of a graph.
pub(super) fn header(volume: &Volume, name: &GraphName) -> Result<StoredInfo, GraphError> {
    let raw: Vec<Raw> = match volume.read_array(&name.array(HEADER)) {
        Ok(raw) => raw,
        Err(StorageError::Manifest { source: ManifestError::Absent | ManifestError::Unknown { .. }, .. }) => {
            return Err(unknown(volume, name)?.into());
        }
        Err(e) => return Err(e.into()),
    };
    let [raw] = raw[..] else { return Err(damaged(name, format!("it has {} headers", raw.len()))) };
    Ok(StoredInfo::parse(name, &raw)?)
}

pub(super) fn unknown(volume: &Volume, name: &GraphName) -> Result<StoredError, GraphError> {
    let arrays = entries(volume)?;
    let mut there: Vec<String> = arrays.iter().filter_map(|e| Some(GraphName::split(&e.name)?.0.to_string())).collect();
    there.sort();
    there.dedup();
    Ok(StoredError::Unknown { device: volume.name().to_owned(), name: name.to_string(), there })
}

/// Checks that no array is there which the header does not mention. A header that has lost weights, say, would hide them.
fn check_absent(volume: &Volume, name: &GraphName, info: &StoredInfo) -> Result<(), GraphError> {
    let parts = [
        (info.weights.is_some(), WEIGHTED),
        (info.directed, IN_NEIGHBOURS),
        (info.reordered, packed::ORDER),
        (info.loops > 0, SELF_LOOPS),
        (info.ids == StoredIds::Listed, IDS),
        (info.ids == StoredIds::Named, names::NAMES),
    ];
    let there = entries(volume)?;
    let hidden = parts.iter().find(|(said, part)| !said && there.iter().any(|e| e.name == name.array(part)));
    hidden.map_or(Ok(()), |(_, part)| {
        Err(damaged(name, format!("it has an array `{part}`, and its header says that it has none")))
    })
}

pub(super) fn damaged(name: &GraphName, reason: String) -> GraphError {
    StoredError::Damaged { name: name.to_string(), reason }.into()
}

impl StoredGraph {
    /// Opens a graph. Reads its header, offsets and identifiers: 8 bytes for each vertex, twice as much if it is
    /// directed, and 8 more if the identifiers leave gaps. Names are read with 8 bytes for each. No edge is read.
    ///
    /// # Errors
    /// * [`StoredError::Unknown`] if the volume holds no such graph, with the names of those that it holds.
    /// * [`StoredError::Format`] if a later version wrote it; [`StoredError::Damaged`] if its parts contradict each
    ///   other.
    /// * [`GraphError::Import`] if its offsets do not fit into memory.
    /// * [`GraphError::Storage`] if the volume cannot be read, or a part does not match its checksum.
    pub fn open(volume: &Volume, name: &GraphName) -> Result<Self, GraphError> {
        let info = header(volume, name)?;
        check_absent(volume, name, &info)?;
        let (vertices, arcs) = (info.vertices, info.arcs);
        if info.neighbour_bytes == 4 && vertices > MAX_NARROW_VERTICES {
            return Err(damaged(name, format!("neighbours of 4 bytes cannot name {vertices} vertices")));
        }
        let needed = memory::host_bytes(volume, name, &info)?;
        check_memory(&format!("opening graph `{name}`"), vertices.into(), arcs.into(), needed, None)?;
        let offsets = |part, words| -> Result<Vec<u64>, GraphError> {
            if info.packed {
                return packed::read_offsets(volume, name, words, vertices, arcs);
            }
            let offsets = volume.read_array::<u64>(&name.array(part))?;
            csr::check_offsets(&offsets, arcs, vertices).map_err(|e| damaged(name, e.to_string()))?;
            Ok(offsets)
        };
        let loops: Vec<u64> = if info.loops > 0 { volume.read_array(&name.array(SELF_LOOPS))? } else { Vec::new() };
        let found: u64 = loops.iter().map(|w| u64::from(w.count_ones())).sum();
        if found != info.loops || info.loops > 0 && loops.len() as u64 != vertices.div_ceil(64) {
            return Err(damaged(name, format!("it has {found} self-loops, the header says {}", info.loops)));
        }
        let edges = if info.directed { arcs } else { arcs.saturating_sub(found) / 2 + found };
        if info.edges != edges {
            return Err(damaged(name, format!("its lists have {edges} edges, the header says {}", info.edges)));
        }
        let ids = match info.ids {
            StoredIds::Dense if info.id_base.checked_add(vertices).is_none() => {
                return Err(damaged(name, format!("identifiers from {} on exceed 64 bits", info.id_base)));
            }
            StoredIds::Dense => Ids::dense(info.id_base, vertices),
            StoredIds::Listed => {
                let ids: Vec<u64> = volume.read_array(&name.array(IDS))?;
                if ids.len() as u64 != vertices || !parallel::all(ids.len().saturating_sub(1), |i| ids[i] < ids[i + 1])
                {
                    let reason = "its identifiers do not ascend, or are not one for each vertex";
                    return Err(damaged(name, reason.to_owned()));
                }
                Ids::Sparse(ids)
            }
            StoredIds::Named => Ids::Named(names::read(volume, name, vertices)?),
        };
        let own = info.own_vertices();
        let all = offsets(OFFSETS, NEIGHBOURS)?;
        let (offsets_outside, reordered) = if info.reordered {
            let order = packed::read_order(volume, name, vertices)?;
            (order.offsets_outside(&all), Some((Arc::new(order), pe_order::offsets_of(&own, all))))
        } else {
            (all, None)
        };
        let in_offsets = info.directed.then(|| offsets(IN_OFFSETS, IN_NEIGHBOURS)).transpose()?;
        let entered = match &in_offsets {
            Some(all) if info.part.is_some() => parallel::map(vertices.div_ceil(64) as usize, |word| {
                let first = word * 64;
                let is_entered = |v: usize| u64::from(all[v] < all[v + 1]);
                (first..all.len().min(first + 65) - 1).fold(0, |bits, v| bits | is_entered(v) << (v - first))
            }),
            _ => Vec::new(),
        };
        let stored = Self {
            name: name.clone(),
            offsets: offsets_outside,
            reordered,
            in_offsets: in_offsets.map(|all| pe_order::offsets_of(&own, all)),
            entered,
            info,
            loops,
            ids,
        };
        // Counts of traversed edges subtract a vertex's self-loop from its degree.
        let is_bad = |v: usize| {
            let v = v as u64;
            GraphShape::has_self_loop(&stored, v) && (v >= vertices || GraphShape::degree(&stored, v) == 0)
        };
        match parallel::position(stored.loops.len() * 64, is_bad) {
            Some(v) => {
                Err(damaged(name, format!("`{SELF_LOOPS}` names vertex {v}, which has no edges or does not exist")))
            }
            None => Ok(stored),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &GraphName {
        &self.name
    }

    /// Returns the order of the lists, if it is not that of the identifiers.
    pub(super) fn order(&self) -> Option<&Order> {
        self.reordered.as_ref().map(|(order, _)| &**order)
    }

    /// Returns the number of a vertex of the lists in the order of the identifiers.
    pub(crate) fn outside(&self, v: u64) -> u64 {
        self.order().map_or(v, |order| order.outside(v))
    }

    /// Returns the offsets of the lists here, in their order: of the in-lists of a directed graph if `inward` is set.
    pub(super) fn list_offsets(&self, inward: bool) -> &[u64] {
        let out = self.reordered.as_ref().map_or(&self.offsets[..], |(_, offsets)| offsets);
        self.in_offsets().filter(|_| inward).unwrap_or(out)
    }

    pub(super) fn in_offsets(&self) -> Option<&[u64]> {
        self.in_offsets.as_deref()
    }

    /// Returns the facts that the header holds.
    pub fn info(&self) -> &StoredInfo {
        &self.info
    }

    /// Returns true if `v` has no edge in either direction.
    ///
    /// # Panics
    /// If `v` is not a vertex.
    #[cfg(feature = "internals")]
    pub fn is_isolated(&self, v: u64) -> bool {
        self.is_alone(v)
    }

    pub(super) fn is_alone(&self, v: u64) -> bool {
        let at = self.order().map_or(v, |order| order.inside(v)) as usize;
        let is_entered = match &self.in_offsets {
            Some(_) if self.info.part.is_some() => self.entered[at / 64] >> (at % 64) & 1 == 1,
            Some(offsets) => offsets[at] < offsets[at + 1],
            None => false,
        };
        GraphShape::degree(self, v) == 0 && !is_entered
    }

    /// Makes the graph readable for kernels, which read its edges through the cache. Reads 16 bytes for each vertex (32
    /// with 64-bit neighbours; twice as much for a directed graph with in-lists): its best-connected neighbours.
    ///
    /// # Errors
    /// * [`StoredError::NoWeights`] if `needs` asks for weights and the graph has none.
    /// * [`StoredError::Part`] if only a part of the graph is here.
    /// * [`StoredError::Damaged`] if its parts contradict each other.
    /// * [`GraphError::Memory`] without memory; [`GraphError::Storage`] if the volume cannot be read.
    pub fn place(&self, cache: &Cache, needs: PlacementOptions) -> Result<GraphOnEngine, GraphError> {
        self.check_whole()?;
        self.place_in(cache.volume(), Placement::Storage(cache.clone()), needs)
    }

    /// Copies packed lists to memory that kernels read: [`Placement::Gpu`] or [`Placement::Pinned`]. They stay packed.
    /// `volume` is the one on which the graph was opened. Checks all lists, as [`StoredGraph::read`] does.
    ///
    /// # Errors
    /// As for [`StoredGraph::place`], and as for [`StoredGraph::read`].
    ///
    /// # Panics
    /// If the lists are not packed ([`StoredInfo::packed`]).
    #[cfg(feature = "internals")]
    pub fn place_packed(
        &self,
        volume: &Volume,
        placement: Placement,
        needs: PlacementOptions,
    ) -> Result<GraphOnEngine, GraphError> {
        assert!(self.info.packed, "plain lists are read and placed");
        self.check_whole()?;
        self.place_in(volume, placement, needs)
    }

    pub(super) fn place_in(
        &self,
        volume: &Volume,
        placement: Placement,
        needs: PlacementOptions,
    ) -> Result<GraphOnEngine, GraphError> {
        if self.info.neighbour_bytes == 4 {
            self.place_as::<u32>(volume, placement, needs)
        } else {
            self.place_as::<u64>(volume, placement, needs)
        }
    }

    /// Makes packed lists readable where the placement says.
    fn packed(
        &self,
        volume: &Volume,
        placement: &Placement,
        words: &str,
        weighted: bool,
    ) -> Result<EdgeStore, GraphError> {
        match placement {
            Placement::Storage(cache) => self.packed_on(cache, words, weighted),
            Placement::Gpu => self.packed_in_memory(volume, words, weighted, Place::Device),
            Placement::Pinned => self.packed_in_memory(volume, words, weighted, Place::Host),
        }
    }

    fn place_as<V: VertexId + Element>(
        &self,
        volume: &Volume,
        placement: Placement,
        needs: PlacementOptions,
    ) -> Result<GraphOnEngine, GraphError> {
        self.check_weights(needs)?;
        let engine = volume.engine();
        let edges = |part: &str| -> Result<EdgeStore, GraphError> {
            let name = self.name.array(part);
            Ok(match &placement {
                Placement::Storage(cache) if !self.info.packed && V::WIDTH == 4 => {
                    EdgeStore::Narrow(cache.open(&name)?)
                }
                Placement::Storage(cache) if !self.info.packed => EdgeStore::Wide(cache.open(&name)?),
                _ => self.packed(volume, &placement, part, false)?,
            })
        };
        let lists = |offsets: &[u64], hubs: &str, neighbours: Option<&str>| -> Result<Lists, GraphError> {
            Ok(Lists {
                offset: place::device(engine, offsets)?,
                arcs: offsets.last().copied().unwrap_or_default(),
                hubs: place::device(engine, &self.hubs::<V>(volume, hubs)?)?,
                tile: place::device(engine, &place::tiles::<V>(offsets))?,
                hubs_first: !self.info.packed && self.info.order == NeighbourOrder::ByDegree,
                // In a directed graph vertices are ordered by the degrees of both directions together, and in parts those of a
                // part stand together.
                by_degree: self.info.order == NeighbourOrder::ByDegree
                    || self.info.reordered && !self.info.directed && self.info.part.is_none(),
                edges: neighbours.map(edges).transpose()?,
            })
        };
        self.check_counts(volume, needs)?;
        let out = lists(self.list_offsets(false), HUBS, needs.lists.then_some(NEIGHBOURS))?;
        let in_offsets = self.in_offsets.as_deref().filter(|_| needs.inward);
        let inward = in_offsets.map(|offsets| lists(offsets, IN_HUBS, Some(IN_NEIGHBOURS))).transpose()?;
        let weighted = needs.weighted.then(|| self.weighted(volume, &placement)).transpose()?;
        let order = self.reordered.as_ref().map(|(order, _)| -> Result<_, GraphError> {
            let outside = place::device(engine, order.all_outside())?;
            Ok(PlacedOrder { host: order.clone(), outside })
        });
        let isolated = place::isolated(self.list_offsets(false), self.info.directed, in_offsets);
        Ok(GraphOnEngine {
            engine: engine.clone(),
            placement,
            vertices: self.info.vertices,
            arcs: self.own_arcs(false),
            directed: self.info.directed,
            wide: V::WIDTH == 8,
            out,
            inward,
            weighted,
            order: order.transpose()?,
            // The low half of a word has the lower vertices, as in words of 32 bits.
            loops: (!self.loops.is_empty()).then(|| place::device(engine, &self.loops_inside())).transpose()?,
            connected: parallel::sum(isolated.len(), |i| u64::from(isolated[i].count_zeros())),
            isolated: place::device(engine, &isolated)?,
            launch_limit: DEFAULT_LAUNCH_LIMIT,
            #[cfg(feature = "shmem")]
            distribution: None,
        })
    }

    /// Checks that the graph has weights if `needs` asks for them.
    ///
    /// # Errors
    /// [`StoredError::NoWeights`] if it has none.
    pub fn check_weights(&self, needs: PlacementOptions) -> Result<(), GraphError> {
        if needs.weighted && self.info.weights.is_none() {
            return Err(StoredError::NoWeights { name: self.name.to_string() }.into());
        }
        Ok(())
    }

    /// Returns the vertices with an edge to themselves, by the numbers of the lists.
    fn loops_inside(&self) -> Cow<'_, [u64]> {
        let Some(order) = self.order() else { return Cow::Borrowed(&self.loops) };
        let mut inside = vec![0; self.loops.len()];
        for v in (0..self.info.vertices).filter(|v| GraphShape::has_self_loop(self, *v)) {
            let at = order.inside(v);
            inside[at as usize / 64] |= 1u64 << (at % 64);
        }
        Cow::Owned(inside)
    }

    /// Returns the bytes of the lists that kernels read on `volume`, on which the graph was opened.
    ///
    /// # Errors
    /// [`GraphError::Storage`] if the volume cannot be read.
    #[cfg(feature = "internals")]
    pub fn edge_bytes(&self, volume: &Volume, needs: PlacementOptions) -> Result<u64, GraphError> {
        let parts = [
            (needs.lists, NEIGHBOURS),
            (needs.inward && self.info.directed, IN_NEIGHBOURS),
            (needs.weighted, WEIGHTED),
        ];
        let manifest = volume.manifest()?;
        let bytes = |part| {
            let array = self.name.array(part);
            manifest.entries().iter().find(|e| e.name == array).map_or(0, |e| e.bytes())
        };
        Ok(parts.into_iter().filter(|(needed, _)| *needed).map(|(_, part)| bytes(part)).sum())
    }

    /// Checks that each list of edges has as many elements as the header says.
    fn check_counts(&self, volume: &Volume, needs: PlacementOptions) -> Result<(), GraphError> {
        let parts = [
            (needs.lists, NEIGHBOURS),
            (needs.inward && self.info.directed, IN_NEIGHBOURS),
            (needs.weighted, WEIGHTED),
        ];
        let manifest = volume.manifest()?;
        let is_plain =
            |part: &str| !(self.info.packed && part != WEIGHTED || part == WEIGHTED && self.has_packed_weights());
        for (_, part) in parts.into_iter().filter(|(needed, part)| *needed && is_plain(part)) {
            let array = self.name.array(part);
            let count = manifest.entries().iter().find(|e| e.name == array).map_or(0, |e| e.count);
            self.check_count(&array, count)?;
        }
        Ok(())
    }

    /// Checks that an array with one element for each edge has as many as the header says.
    pub(super) fn check_count(&self, array: &str, count: u64) -> Result<(), GraphError> {
        let arcs = self.own_arcs(false);
        if count == arcs {
            return Ok(());
        }
        Err(damaged(&self.name, format!("`{array}` has {count} edges, the header says {arcs}")))
    }

    pub(super) fn hubs<V: VertexId + Element>(&self, volume: &Volume, part: &str) -> Result<Vec<V>, GraphError> {
        let mut hubs: Vec<V> = volume.read_array(&self.name.array(part))?;
        let (own, each) = (self.own_vertices(), u64::from(GRAPH_HUBS));
        let wanted = (own.end - own.start) * each;
        let is_good = |i: usize| hubs[i] == V::NONE || hubs[i].number() < self.info.vertices;
        if hubs.len() as u64 != wanted || !parallel::all(hubs.len(), is_good) {
            return Err(damaged(
                &self.name,
                format!("`{part}` names vertices that do not exist, or has not {wanted} entries"),
            ));
        }
        // The lists of other parts' vertices are empty here.
        let before = own.start * each;
        hubs.splice(..0, std::iter::repeat_n(V::NONE, before as usize));
        hubs.resize((self.info.vertices * each) as usize, V::NONE);
        Ok(hubs)
    }

    fn weighted(&self, volume: &Volume, placement: &Placement) -> Result<Weighted, GraphError> {
        let (name, wide) = (self.name.array(WEIGHTED), self.info.wide_weights());
        let edges = match placement {
            _ if self.has_packed_weights() => self.packed(volume, placement, WEIGHTED, true)?,
            Placement::Storage(cache) if wide => EdgeStore::WeightedWide(cache.open(&name)?),
            Placement::Storage(cache) => EdgeStore::WeightedNarrow(cache.open(&name)?),
            Placement::Gpu => self.plain_weights(volume, Place::Device)?,
            Placement::Pinned => self.plain_weights(volume, Place::Host)?,
        };
        let kind = match self.info.weights {
            Some(WeightType::U32) | None => WeightKind::Integer { largest: self.info.largest_weight as u64 },
            Some(WeightType::F32 | WeightType::F64) => WeightKind::Real,
        };
        Ok(Weighted { edges, kind, mean: self.info.mean_weight, wide })
    }

    /// Copies edges with weights of 64 bits to memory, and checks that they lead to vertices.
    fn plain_weights(&self, volume: &Volume, place: Place) -> Result<EdgeStore, GraphError> {
        let mut reader = ArcReader::new(self, volume, false, true, ARCS_AT_ONCE)?;
        let region = volume.engine().allocate(place, self.own_arcs(false) as usize * size_of::<WideEdge>())?;
        let mut at = 0;
        while let Some(piece) = reader.next_piece()? {
            let edges = parallel::map(piece.arcs.len(), |i| WideEdge { id: piece.arcs[i].0, weight: piece.arcs[i].1 });
            region.set_slice(at, &edges)?;
            at += size_of_val(&edges[..]);
        }
        Ok(EdgeStore::Memory(region))
    }

    /// Begins to read all arcs, in pieces that fit into memory. With `weights`, their weights are read, too, if the graph
    /// has some.
    ///
    /// # Errors
    /// [`StoredError::Damaged`] if a list has not as many edges as the header says; [`StoredError::Part`] if only a part of the
    /// graph is here; [`GraphError::Storage`] if the volume cannot be read.
    pub fn arcs<'a>(&'a self, volume: &'a Volume, weights: bool) -> Result<ArcReader<'a>, GraphError> {
        self.check_whole()?;
        ArcReader::new(self, volume, false, weights && self.info.weights.is_some(), ARCS_AT_ONCE)
    }

    /// Reads the whole graph into host memory, edges included.
    ///
    /// # Errors
    /// * [`StoredError::Part`] if only a part of the graph is here.
    /// * [`GraphError::Import`] if it does not fit into memory.
    /// * [`StoredError::Damaged`] if an edge leads to a vertex that does not exist.
    /// * [`GraphError::Storage`] if the volume cannot be read, or a part does not match its checksum.
    pub fn read(&self, volume: &Volume) -> Result<Csr, GraphError> {
        self.read_lists(volume, self.info.weights)
    }

    /// Reads the whole graph into host memory, but for weights. Algorithms other than shortest paths do not use them.
    ///
    /// # Errors
    /// As for [`StoredGraph::read`].
    #[cfg(feature = "internals")]
    pub fn read_without_weights(&self, volume: &Volume) -> Result<Csr, GraphError> {
        self.read_lists(volume, None)
    }

    fn read_lists(&self, volume: &Volume, weights: Option<WeightType>) -> Result<Csr, GraphError> {
        self.check_whole()?;
        let (vertices, arcs) = (self.info.vertices, self.info.arcs);
        let weight_bytes = weights.map_or(0, WeightType::bytes);
        // Lists in another order are there twice for a moment.
        let copies = if self.info.reordered { 2 } else { 1 };
        let needed = u128::from(arcs) * (self.info.neighbour_bytes + weight_bytes) as u128 * copies;
        let what = format!("reading graph `{}`", self.name);
        check_memory(&what, vertices.into(), arcs.into(), needed, None)?;
        let mut reader = self.arcs(volume, weights.is_some())?;
        let mut neighbours = match self.info.neighbour_bytes {
            4 => Neighbours::U32(Vec::with_capacity(arcs as usize)),
            _ => Neighbours::U64(Vec::with_capacity(arcs as usize)),
        };
        let mut weights = weights.map(|kind| match kind {
            WeightType::U32 => Weights::U32(Vec::with_capacity(arcs as usize)),
            WeightType::F32 => Weights::F32(Vec::with_capacity(arcs as usize)),
            WeightType::F64 => Weights::F64(Vec::with_capacity(arcs as usize)),
        });
        while let Some(piece) = reader.next_piece()? {
            match &mut neighbours {
                Neighbours::U32(list) => parallel::extend(list, piece.arcs.len(), |i| piece.arcs[i].0 as u32),
                Neighbours::U64(list) => parallel::extend(list, piece.arcs.len(), |i| piece.arcs[i].0),
            }
            match &mut weights {
                None => {}
                Some(Weights::U32(list)) => piece.append_weights(list, |w| w.real() as u32),
                Some(Weights::F32(list)) => piece.append_weights(list, |w| w.real() as f32),
                Some(Weights::F64(list)) => piece.append_weights(list, StoredWeight::real),
            }
        }
        let (neighbours, weights) = match (self.order(), neighbours) {
            (Some(order), Neighbours::U32(list)) => {
                let inside = self.list_offsets(false);
                let row = |v: usize| {
                    let at = order.inside(v as u64) as usize;
                    inside[at] as usize..inside[at + 1] as usize
                };
                let neighbour = |i: usize| order.outside(list[i].into()) as u32;
                let (list, weights) = gather::gathered(&self.offsets, weights.as_ref(), row, neighbour);
                (Neighbours::U32(list), weights)
            }
            (_, neighbours) => (neighbours, weights),
        };
        let (offsets, ids) = (self.offsets.clone(), self.ids.clone());
        Ok(Csr::stored(offsets, neighbours, weights, self.info.directed, ids, self.info.order))
    }
}

impl GraphShape for StoredGraph {
    fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    fn ids(&self) -> &Ids {
        &self.ids
    }

    fn directed(&self) -> bool {
        self.info.directed
    }

    fn edges(&self) -> u64 {
        self.info.edges
    }

    fn has_self_loop(&self, v: u64) -> bool {
        self.loops.get(v as usize / 64).is_some_and(|word| word >> (v % 64) & 1 == 1)
    }
}
