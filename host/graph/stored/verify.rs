//! Complete verification of a stored graph, in memory of the size of its vertices.

use super::arcs::{ARCS_AT_ONCE, ArcPiece, ArcReader, StoredArc};
use super::open::damaged;
use super::{HUBS, IN_HUBS, StoredGraph};
use crate::graph::csr::{NeighbourOrder, VertexId};
use crate::graph::edges::GraphError;
use crate::graph::generate::mix;
use crate::graph::parallel;
use crate::graph::params::GRAPH_HUBS;
use crate::graph::shape::GraphShape;
use crate::storage::{Element, Volume};
use std::cmp::Reverse;

/// Arcs that one task checks.
const ARCS_OF_TASK: usize = 1 << 13;

/// Lists of one direction.
struct Lists<'a, V> {
    graph: &'a StoredGraph,
    inward: bool,
    offsets: &'a [u64],
    hubs: &'a [V],
}

/// Key of a vertex: descending degree, then the vertex.
type Rank = (Reverse<u64>, u64);

/// Facts about arcs that are compared when all were read.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Sum of the hashes of all arcs from a smaller to a larger vertex, in the direction of the edge.
    ascending: u128,
    /// Sum of the hashes of the arcs from a larger to a smaller vertex. The hash of an arc is that of its opposite.
    descending: u128,
    /// Number of arcs from a vertex to itself.
    loops: u64,
    /// Number of arcs to a hub neighbour of their vertex.
    to_hubs: u64,
    largest_weight: f64,
}

impl Found {
    fn and(self, other: Self) -> Self {
        Self {
            ascending: self.ascending.wrapping_add(other.ascending),
            descending: self.descending.wrapping_add(other.descending),
            loops: self.loops + other.loops,
            to_hubs: self.to_hubs + other.to_hubs,
            largest_weight: self.largest_weight.max(other.largest_weight),
        }
    }
}

impl StoredGraph {
    /// Reads the whole graph in pieces, and compares each part with its checksum, and parts with each other. Takes 16
    /// bytes of memory for each vertex (32 with 64-bit neighbours) beside the open graph, and 16 MiB.
    ///
    /// * Each neighbour exists. Each list is sorted and names no neighbour twice.
    /// * The hub neighbours are those of the lists, and the self-loops, too.
    /// * In-lists have the arcs of the out-lists, and undirected edges are there in both directions with one weight.
    ///   Sums of 128-bit hashes of the arcs are compared for this, since the order of the arcs differs.
    /// * Weights are finite and not negative, and the largest integer is that of the header.
    ///
    /// Of a part of a graph, edges are not compared with those in the other direction, which may be in other parts.
    ///
    /// # Errors
    /// * [`StoredError::Damaged`](super::StoredError::Damaged) with the first part that contradicts others.
    /// * [`GraphError::Storage`] if the volume cannot be read, or a part does not match its checksum.
    /// * [`GraphError::Engine`] if the engine was cancelled.
    pub fn verify(&self, volume: &Volume) -> Result<(), GraphError> {
        self.verify_in_pieces(volume, ARCS_AT_ONCE)
    }

    pub(super) fn verify_in_pieces(&self, volume: &Volume, arcs: usize) -> Result<(), GraphError> {
        match self.info.neighbour_bytes {
            4 => self.verify_as::<u32>(volume, arcs),
            _ => self.verify_as::<u64>(volume, arcs),
        }
    }

    fn verify_as<V: VertexId + Element>(&self, volume: &Volume, arcs: usize) -> Result<(), GraphError> {
        let out = self.verify_lists::<V>(volume, false, arcs)?;
        let is_whole = self.info.part.is_none();
        if self.directed() {
            let inward = self.verify_lists::<V>(volume, true, arcs)?;
            if is_whole && (out.ascending, out.descending) != (inward.ascending, inward.descending) {
                return Err(self.differ("the in-lists"));
            }
        } else if is_whole && out.ascending != out.descending {
            let reason = "an undirected edge is missing in one direction, or has another weight there".to_owned();
            return Err(damaged(self.name(), reason));
        }
        Ok(())
    }

    /// Returns the number of self-loops of the lists that are here.
    fn own_loops(&self) -> u64 {
        let own = self.own_vertices();
        let inside = |v: u64| self.order().map_or(v, |order| order.inside(v));
        let is_own = |v: &u64| self.has_self_loop(*v) && own.contains(&inside(*v));
        (0..self.info.vertices).filter(is_own).count() as u64
    }

    fn differ(&self, what: &str) -> GraphError {
        damaged(self.name(), format!("{what} differ from its neighbour lists"))
    }

    fn verify_lists<V: VertexId + Element>(
        &self,
        volume: &Volume,
        inward: bool,
        arcs: usize,
    ) -> Result<Found, GraphError> {
        let offsets = self.list_offsets(inward);
        let hubs = self.hubs::<V>(volume, if inward { IN_HUBS } else { HUBS })?;
        let lists = Lists { graph: self, inward, offsets, hubs: &hubs };
        let weighted = self.info.weights.filter(|_| !inward);
        let mut reader = ArcReader::new(self, volume, inward, weighted.is_some(), arcs)?;
        let (mut found, mut before) = (Found::default(), None);
        while let Some(piece) = reader.next_piece()? {
            match lists.check(piece, before) {
                Ok(more) => found = found.and(more),
                Err(fault) => return Err(reader.or_checksum(fault)),
            }
            before = piece.arcs.last().map(|(to, _)| *to);
        }
        if found.loops != self.own_loops() {
            return Err(self.differ("the self-loops"));
        }
        if lists.count_hubs() != Some(found.to_hubs) {
            return Err(lists.wrong_hubs());
        }
        let (largest, said) = (found.largest_weight, self.info.largest_weight);
        let is_wrong = if self.info.part.is_some() { largest > said } else { largest != said };
        if weighted.is_some_and(|kind| kind == super::WeightType::U32) && is_wrong {
            return Err(damaged(self.name(), format!("its largest weight is {largest}, the header says {said}")));
        }
        Ok(found)
    }
}

impl<V: VertexId> Lists<'_, V> {
    /// Returns the key by which hub neighbours, and lists that are sorted by degree, ascend.
    fn rank(&self, v: u64) -> Rank {
        // In the order of degrees, numbers are the ranks.
        let degree =
            if self.graph.info.reordered { 0 } else { self.offsets[v as usize + 1] - self.offsets[v as usize] };
        (Reverse(degree), v)
    }

    /// Returns the hub neighbours of `v`, and the key of the last one if none is missing: neighbours that are no hubs
    /// come behind it.
    fn hubs_of(&self, v: u64) -> (&[V], Option<Rank>) {
        const COUNT: usize = GRAPH_HUBS as usize;
        let hubs = &self.hubs[v as usize * COUNT..][..COUNT];
        (hubs, hubs.last().filter(|hub| **hub != V::NONE).map(|hub| self.rank(hub.number())))
    }

    /// Checks the arcs of a piece. `before` is the neighbour in front of the first.
    fn check(&self, piece: ArcPiece<'_>, before: Option<u64>) -> Result<Found, GraphError> {
        let arcs = piece.arcs;
        let check = |part: ArcPiece<'_>| {
            let at = (part.first - piece.first) as usize;
            self.check_part(part, if at == 0 { before } else { Some(arcs[at - 1].0) })
        };
        let parts = piece.parts(ARCS_OF_TASK);
        let parts = parallel::map(parts.len(), |i| check(parts[i]));
        // Of several faults, the first is returned.
        parts.into_iter().try_fold(Found::default(), |sum, part| Ok(sum.and(part?)))
    }

    fn check_part(&self, part: ArcPiece<'_>, before: Option<u64>) -> Result<Found, GraphError> {
        let by_degree = self.graph.info.order == NeighbourOrder::ByDegree;
        let mut found = Found::default();
        let mut before = before.map(|v| self.rank(v));
        let mut hubs = None;
        for (arc, index) in part.arcs_inside().zip(part.first..) {
            let StoredArc { from, to, weight } = arc;
            let (is_first, rank) = (index == self.offsets[from as usize], self.rank(to));
            if let Some(before) = before.filter(|_| !is_first) {
                let follows = if by_degree { before < rank } else { before.1 < to };
                if !follows {
                    return Err(self.unsorted(from, before.1, to));
                }
            }
            before = Some(rank);
            let hubs = match &mut hubs {
                Some(hubs) if !is_first => hubs,
                hubs => hubs.insert(self.hubs_of(from)),
            };
            if hubs.0.iter().any(|hub| hub.number() == to) {
                found.to_hubs += 1;
            } else if hubs.1.is_none_or(|last| rank <= last) {
                return Err(self.wrong_hubs());
            }
            let weight = weight.map_or(0.0, |w| w.real());
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(self.wrong_weight(from, to, weight));
            }
            found.largest_weight = found.largest_weight.max(weight);
            if from == to {
                if !self.graph.has_self_loop(self.graph.outside(from)) {
                    return Err(self.graph.differ("the self-loops"));
                }
                found.loops += 1;
                continue;
            }
            // In-lists have no weights to compare.
            let bits = if self.graph.directed() { 0 } else { weight.to_bits() };
            let hash = hash(from.min(to), from.max(to), bits);
            let sum = if (from < to) != self.inward { &mut found.ascending } else { &mut found.descending };
            *sum = sum.wrapping_add(hash);
        }
        Ok(found)
    }

    /// Returns the number of hub neighbours, or `None` if those of a vertex are not in order, or not as many as it has
    /// neighbours.
    fn count_hubs(&self) -> Option<u64> {
        let of = |v: u64| {
            let hubs = self.hubs_of(v).0;
            let (there, missing) = hubs.split_at(hubs.iter().take_while(|hub| **hub != V::NONE).count());
            let is_sorted = there.is_sorted_by(|a, b| self.rank(a.number()) < self.rank(b.number()))
                && missing.iter().all(|hub| *hub == V::NONE);
            let count = there.len() as u64;
            let degree = self.offsets[v as usize + 1] - self.offsets[v as usize];
            (is_sorted && count == degree.min(GRAPH_HUBS.into())).then_some(count)
        };
        parallel::fold(
            self.graph.info.vertices as usize,
            || Some(0),
            |sum: Option<u64>, v| Some(sum? + of(v as u64)?),
            |a, b| Some(a? + b?),
        )
    }

    fn wrong_hubs(&self) -> GraphError {
        self.graph.differ(if self.inward {
            "the best-connected in-neighbours"
        } else {
            "the best-connected neighbours"
        })
    }

    fn unsorted(&self, from: u64, before: u64, to: u64) -> GraphError {
        let id = |v: u64| self.graph.ids().id(self.graph.outside(v));
        let list = if self.inward { "in-list" } else { "list" };
        let (from, before, after) = (id(from), id(before), id(to));
        damaged(self.graph.name(), format!("the {list} of vertex {from} has {after} behind {before}"))
    }

    fn wrong_weight(&self, from: u64, to: u64, weight: f64) -> GraphError {
        let id = |v: u64| self.graph.ids().id(self.graph.outside(v));
        let (from, to) = (id(from), id(to));
        damaged(self.graph.name(), format!("the weight {weight} of edge {from} -> {to} is negative or not finite"))
    }
}

/// Returns the hash of an edge. Sums of hashes of different sets of edges are equal with a probability near 2^-128.
fn hash(low: u64, high: u64, weight: u64) -> u128 {
    let half = |start: u64| mix(low.wrapping_add(mix(high.wrapping_add(mix(weight.wrapping_add(start))))));
    // Any two different constants make the halves independent; these are from the fractions of the roots of 2 and 3.
    u128::from(half(0x6a09_e667_f3bc_c908)) << 64 | u128::from(half(0xbb67_ae85_84ca_a73b))
}
