//! Assignment of vertices to PEs and slots.

use crate::graph::csr::{self, Csr, MAX_NARROW_VERTICES, NeighbourOrder, Neighbours, VertexId, with_neighbours};
use crate::graph::edges::PlacementOptions;
use crate::graph::order::Order;
use crate::graph::parallel;
use crate::graph::pe_order;
use crate::graph::{BfsOptions, GraphError, GraphOnEngine, occupied};
use crate::storage::{Plan, Volume};
use rayon::prelude::*;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

/// Divisor of the number of slots of a PE, so that its part of a bitmap consists of whole lines of 128 bytes.
const SLOTS_MULTIPLE: u64 = 1024;

/// Partition of a graph across PEs. Vertices are assigned in descending order of degree: to PEs 0, 1, and so on, then
/// back in reverse order, and so on. Vertices and edges are thus balanced for any degrees.
///
/// Kernels name a vertex by its *slot*: owner * span + number within the owner. Vertices of high degree have low
/// numbers, so the bits that searches read most often lie together.
///
/// The plan borrows the graph, from which it makes the parts. Placed parts and their searches share the numbers of the
/// vertices with the plan, and need neither plan nor graph.
#[derive(Debug)]
pub struct PartitionPlan<'g> {
    csr: &'g Csr,
    inward: Option<Csr>,
    assignment: Arc<Assignment>,
    /// Order of the vertices in which those of a PE stand together, once it is asked for.
    order: OnceLock<Arc<Order>>,
}

/// Vertices of each PE, and their slots.
#[derive(Debug)]
pub(super) struct Assignment {
    pub whole: Whole,
    /// Vertices in the order in which they were assigned.
    pub order: Neighbours,
    /// Index of each vertex in that order.
    pub rank: Neighbours,
}

/// Lists of one PE.
#[derive(Debug)]
pub struct Part {
    pub(super) pe: usize,
    pub(super) assignment: Arc<Assignment>,
    /// Number that the parts of one stored graph have in common, or 0.
    pub(super) import: u64,
    pub(super) out: Csr,
    pub(super) inward: Option<Csr>,
}

/// Numbers of the whole graph that every PE knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub pes: usize,
    pub vertices: u64,
    pub arcs: u64,
    pub connected: u64,
    /// Number of slots of each PE.
    pub span: u64,
    /// True if slots have 64 bits.
    pub wide: bool,
}

impl Whole {
    /// `wide` is true if identifiers have 64 bits.
    pub(super) fn new(pes: usize, vertices: u64, arcs: u64, connected: u64, wide: bool) -> Self {
        let span = vertices.div_ceil(pes as u64).max(1).next_multiple_of(SLOTS_MULTIPLE);
        let wide = wide || span * pes as u64 > MAX_NARROW_VERTICES;
        Self { pes, vertices, arcs, connected, span, wide }
    }

    pub(super) fn slots(&self) -> u64 {
        self.span * self.pes as u64
    }

    pub(super) fn id_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Returns the PE that gets the vertex of this rank, and the vertex's number within that PE.
    pub(super) fn place(&self, rank: u64) -> (usize, u64) {
        let (round, turn) = (rank / self.pes as u64, (rank % self.pes as u64) as usize);
        (if round % 2 == 0 { turn } else { self.pes - 1 - turn }, round)
    }

    fn rank(&self, pe: usize, local: u64) -> u64 {
        pe_order::rank(self.pes, pe, local)
    }

    pub(super) fn slot_of_rank(&self, rank: u64) -> u64 {
        let (pe, local) = self.place(rank);
        pe as u64 * self.span + local
    }

    /// Returns the number of vertices of a PE.
    pub(super) fn vertices_of(&self, pe: usize) -> u64 {
        pe_order::count(self.vertices, self.pes, pe)
    }
}

impl<'g> PartitionPlan<'g> {
    /// Partitions a graph across `pes` PEs. With `inward` the in-lists of a directed graph are partitioned too, so that
    /// searches can go bottom-up.
    pub fn new(csr: &'g Csr, pes: usize, inward: bool) -> Self {
        let inward = (csr.directed() && inward).then(|| csr.transpose());
        let pes = pes.max(1);
        let vertices = csr.vertices();
        let degree = |v: u64| csr.degree(v) + inward.as_ref().map_or(0, |i| i.degree(v));
        // Without in-lists a vertex may have in-edges that are not known here.
        let known = !csr.directed() || inward.is_some();
        let connected = parallel::sum(vertices as usize, |v| u64::from(!known || degree(v as u64) > 0));
        let whole = Whole::new(pes, vertices, csr.arcs(), connected, csr.neighbours().as_u64().is_some());
        let (order, rank) = if whole.wide {
            let (order, rank) = ranks::<u64>(vertices, degree);
            (Neighbours::U64(order), Neighbours::U64(rank))
        } else {
            let (order, rank) = ranks::<u32>(vertices, degree);
            (Neighbours::U32(order), Neighbours::U32(rank))
        };
        let assignment = Arc::new(Assignment { whole, order, rank });
        Self { csr, inward, assignment, order: OnceLock::new() }
    }

    /// Returns the number of PEs of the partition.
    pub fn pes(&self) -> usize {
        self.assignment.whole.pes
    }

    /// Returns the graph.
    pub fn csr(&self) -> &Csr {
        self.csr
    }

    pub(super) fn inward(&self) -> Option<&Csr> {
        self.inward.as_ref()
    }

    /// Returns the order of the vertices in which those of a PE stand together, each PE's by descending degree. There must
    /// be at most [`MAX_NARROW_VERTICES`].
    pub(super) fn order(&self) -> &Arc<Order> {
        self.order.get_or_init(|| {
            let own = &*self.assignment;
            let of = |pe| (0..own.whole.vertices_of(pe)).map(move |local| own.vertex(pe, local) as u32);
            Arc::new(Order::of((0..own.whole.pes).flat_map(of).collect()))
        })
    }

    pub(super) fn assignment(&self) -> &Arc<Assignment> {
        &self.assignment
    }

    /// Returns the bytes of symmetric heap that a search needs on each PE.
    pub fn heap_bytes(&self, options: &BfsOptions) -> usize {
        super::memory::search_heap_bytes(&self.assignment.whole, options.parents)
    }

    /// Returns the number of edges that a PE gets, as out-lists.
    #[cfg(test)]
    fn arcs_of(&self, pe: usize) -> u64 {
        let own = &*self.assignment;
        parallel::sum(own.whole.vertices_of(pe) as usize, |v| self.csr.degree(own.vertex(pe, v as u64)))
    }

    /// Returns the lists of a PE, which must be below [`PartitionPlan::pes`].
    pub fn part(&self, pe: usize) -> Part {
        let lists = |csr: &Csr| {
            if self.assignment.whole.wide {
                let (offsets, list) = self.lists::<u64>(csr, pe);
                Csr::part(offsets, Neighbours::U64(list), csr.directed())
            } else {
                let (offsets, list) = self.lists::<u32>(csr, pe);
                Csr::part(offsets, Neighbours::U32(list), csr.directed())
            }
        };
        let (out, inward) = (lists(self.csr), self.inward.as_ref().map(lists));
        Part { pe, assignment: self.assignment.clone(), import: 0, out, inward }
    }

    /// Returns offsets and neighbours of a PE's vertices, with neighbours as slots.
    fn lists<S: VertexId>(&self, csr: &Csr, pe: usize) -> (Vec<u64>, Vec<S>) {
        let Assignment { whole, rank, .. } = &*self.assignment;
        let vertex = |local| self.assignment.vertex(pe, local);
        let own = whole.vertices_of(pe);
        let mut offsets = Vec::with_capacity(own as usize + 1);
        let mut end = 0;
        offsets.push(end);
        for local in 0..own {
            end += csr.degree(vertex(local));
            offsets.push(end);
        }
        let mut lists = vec![S::default(); end as usize];
        let sorted = csr.order() == NeighbourOrder::ByDegree;
        with_neighbours!(csr.neighbours(), neighbours => {
            let parts = csr::blocks_mut(&offsets, &mut lists);
            parallel::each_part(parts, |ranks: &mut Vec<u64>, _, (locals, lists)| {
                let base = offsets[locals.start];
                for local in locals {
                    let list = &mut lists[(offsets[local] - base) as usize..(offsets[local + 1] - base) as usize];
                    let from = &neighbours[csr.range(vertex(local as u64))];
                    ranks.clear();
                    ranks.extend(from.iter().map(|n| rank.get(n.index())));
                    if !sorted {
                        ranks.sort_unstable();
                    }
                    for (slot, &rank) in list.iter_mut().zip(ranks.iter()) {
                        *slot = S::from_index(whole.slot_of_rank(rank) as usize);
                    }
                }
            });
        });
        (offsets, lists)
    }
}

impl Assignment {
    /// Returns the slot of a vertex, which must exist.
    pub(super) fn slot(&self, vertex: u64) -> u64 {
        self.whole.slot_of_rank(self.rank.get(vertex as usize))
    }

    /// Returns the PE that owns a vertex, and the vertex's number within that PE.
    pub(super) fn place(&self, vertex: u64) -> (usize, u64) {
        self.whole.place(self.rank.get(vertex as usize))
    }

    /// Returns the index of a vertex in the order by descending degree.
    pub(super) fn rank(&self, vertex: u64) -> u64 {
        self.rank.get(vertex as usize)
    }

    fn vertex(&self, pe: usize, local: u64) -> u64 {
        self.order.get(self.whole.rank(pe, local) as usize)
    }

    /// Returns one value for each vertex, from the values of each PE's vertices.
    pub(super) fn gather<T: Copy + Send + Sync>(&self, parts: &[Vec<T>]) -> Vec<T> {
        let whole = &self.whole;
        let value = |v: usize| {
            let (pe, local) = self.place(v as u64);
            parts[pe][local as usize]
        };
        parallel::map(whole.vertices as usize, value)
    }

    /// Returns the vertex in a slot, or `u64::MAX` for an empty slot.
    pub(super) fn vertex_in(&self, slot: u64) -> u64 {
        let whole = &self.whole;
        let (pe, local) = ((slot / whole.span) as usize, slot % whole.span);
        if pe < whole.pes && local < whole.vertices_of(pe) { self.vertex(pe, local) } else { u64::MAX }
    }
}

/// Returns the vertices by descending degree, and by number for equal degrees, and each vertex's index in that order.
fn ranks<V: VertexId>(vertices: u64, degree: impl Fn(u64) -> u64 + Sync) -> (Vec<V>, Vec<V>) {
    let mut order: Vec<V> = parallel::map(vertices as usize, V::from_index);
    order.par_sort_unstable_by_key(|&v| (Reverse(degree(v.number())), v));
    let mut rank = vec![V::default(); order.len()];
    for (at, v) in order.iter().enumerate() {
        rank[v.index()] = V::from_index(at);
    }
    (order, rank)
}

impl Part {
    /// Returns the PE of the part.
    pub fn pe(&self) -> usize {
        self.pe
    }

    /// Returns the number of vertices of the part.
    pub fn vertices(&self) -> u64 {
        self.out.vertices()
    }

    /// Returns the number of edges of the part, as out-lists.
    pub fn arcs(&self) -> u64 {
        self.out.arcs()
    }

    /// Returns the bytes of the part's edges, in both directions if the part has both.
    #[cfg(feature = "internals")]
    pub fn edge_bytes(&self) -> u64 {
        let bytes = |csr: &Csr| csr.neighbours().bytes().len() as u64;
        bytes(&self.out) + self.inward.as_ref().map_or(0, bytes)
    }

    /// Returns the arrays that placing the part writes to a volume. [`Plan::bytes`] returns the size that the volume
    /// needs.
    pub fn plan(&self) -> Plan {
        GraphOnEngine::plan_of(&self.out, self.inward.as_ref().map(Csr::arcs), PlacementOptions::BFS)
    }

    /// Checks that placing the part overwrites no foreign data on `volume`: [`GraphOnEngine::check_volume`].
    ///
    /// # Errors
    ///
    /// As for [`GraphOnEngine::check_volume`].
    pub fn check_volume(&self, volume: &Volume) -> Result<(), GraphError> {
        let inward = || self.inward.as_ref().map(Cow::Borrowed);
        occupied::check(volume, &self.plan(), &self.out, inward, PlacementOptions::BFS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::CsrOptions;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_arc_is_in_one_part(
            edges in prop::collection::vec((0u64..40, 0u64..40), 0..300), pes in 1usize..9, directed: bool, wide: bool,
        ) {
            let options = CsrOptions { directed, wide, ..Default::default() };
            let csr = Csr::from_edges(40, &edges, options).unwrap();
            let plan = PartitionPlan::new(&csr, pes, true);
            let of = plan.assignment();
            let span = of.whole.span;
            let mut found = Vec::new();
            for pe in 0..pes {
                let part = plan.part(pe);
                prop_assert_eq!(part.arcs(), plan.arcs_of(pe));
                prop_assert_eq!(part.inward.is_some(), directed);
                for local in 0..part.vertices() {
                    let v = of.vertex_in(pe as u64 * span + local);
                    prop_assert_eq!(of.slot(v), pe as u64 * span + local);
                    let ranks: Vec<u64> = part.out.neighbours_of(local).map(|s| of.rank.get(of.vertex_in(s) as usize)).collect();
                    prop_assert!(ranks.is_sorted(), "lists begin with the neighbours of the highest degree");
                    found.extend(part.out.neighbours_of(local).map(|s| (v, of.vertex_in(s))));
                    for s in part.inward.iter().flat_map(|i| i.neighbours_of(local)) {
                        prop_assert!(csr.neighbours_of(of.vertex_in(s)).any(|n| n == v));
                    }
                }
            }
            found.sort_unstable();
            let expected: Vec<_> = (0..40).flat_map(|v| csr.neighbours_of(v).map(move |n| (v, n))).collect();
            prop_assert_eq!(found, expected);
            let values: Vec<Vec<u64>> =
                (0..pes).map(|pe| (0..span).map(|l| of.vertex_in(pe as u64 * span + l)).collect()).collect();
            prop_assert_eq!(of.gather(&values), (0..40).collect::<Vec<_>>());
        }

        #[test]
        fn edges_balance_but_for_the_largest_vertex(
            degrees in prop::collection::vec(0u64..30, 1..60), pes in 1usize..9,
        ) {
            // There is a star for each degree, and all stars share their leaves.
            let hubs = degrees.len() as u64;
            let edges: Vec<_> =
                degrees.iter().enumerate().flat_map(|(h, &d)| (0..d).map(move |i| (h as u64, hubs + i))).collect();
            let options = CsrOptions { directed: true, ..Default::default() };
            let csr = Csr::from_edges(hubs + 30, &edges, options).unwrap();
            let plan = PartitionPlan::new(&csr, pes, false);
            let arcs: Vec<u64> = (0..pes).map(|pe| plan.arcs_of(pe)).collect();
            let largest = degrees.iter().max().unwrap();
            prop_assert!(arcs.iter().max().unwrap() - arcs.iter().min().unwrap() <= *largest, "{arcs:?}");
        }
    }

    #[test]
    fn some_pes_may_have_nothing() {
        let csr = Csr::from_edges(2, &[(0, 1)], CsrOptions::default()).unwrap();
        let plan = PartitionPlan::new(&csr, 5, true);
        let own: Vec<u64> = (0..5).map(|pe| plan.part(pe).vertices()).collect();
        assert_eq!(own, [1, 1, 0, 0, 0]);
        assert_eq!(plan.assignment().vertex_in(4 * plan.assignment().whole.span), u64::MAX);
    }
}
