//! Graphs in memory as compressed sparse rows.

use super::build::{self, Chunk, Rule};
pub use super::csr_error::CsrError;
pub(crate) use super::csr_error::check_offsets;
use super::csr_error::{check_neighbours, check_weights};
use super::ids::Ids;
pub(crate) use super::lists::with_neighbours;
pub use super::lists::{MAX_NARROW_VERTICES, Neighbours, VertexId, Weights};
use crate::graph::parallel;
use crate::setters::setters;
use std::cmp::Reverse;
use std::ops::Range;

/// Order of the neighbours in each list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourOrder {
    /// Ascending by number.
    ById,
    /// Descending by degree, and ascending by number for equal degrees.
    ByDegree,
}

/// Options of [`Csr::from_edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CsrOptions {
    /// True if each pair is one arc. Otherwise each pair is an edge that is stored at both ends.
    pub directed: bool,
    /// True to keep edges from a vertex to itself. They matter to PageRank only.
    pub keep_self_loops: bool,
    /// True to use 64-bit neighbours even where 32 bits suffice.
    pub wide: bool,
}

setters!(CsrOptions { directed: bool, keep_self_loops: bool, wide: bool });

/// A graph as compressed sparse rows: the neighbours of vertex `v` are `neighbours[offsets[v] .. offsets[v + 1]]`, in
/// the order [`Csr::order`], without duplicates.
///
/// Vertices are numbered from 0. [`Csr::ids`] maps the numbers to the input's identifiers. An undirected edge is stored
/// at both ends, so [`Csr::arcs`] is twice [`Csr::edges`]. Self-loops, where they are kept, are stored once.
///
/// # Examples
///
/// ```
/// use warpbell::graph::{Csr, CsrOptions};
///
/// let csr = Csr::from_edges(3, &[(0, 1), (0, 2)], CsrOptions::default())?;
/// // Undirected unless told otherwise: each edge is there in both directions.
/// assert_eq!((csr.vertices(), csr.edges(), csr.arcs()), (3, 2, 4));
/// assert_eq!(csr.neighbours_of(0).collect::<Vec<_>>(), [1, 2]);
/// assert_eq!(csr.degree(2), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Csr {
    offsets: Vec<u64>,
    neighbours: Neighbours,
    weights: Option<Weights>,
    directed: bool,
    ids: Ids,
    order: NeighbourOrder,
}

impl Csr {
    /// Makes a graph of existing parts. `offsets` must ascend from 0 to the number of neighbours. Neighbours must be
    /// below the number of vertices. There must be as many weights as neighbours, all finite and not negative.
    ///
    /// Lists that are not sorted are sorted here; duplicates and self-loops are dropped. An undirected graph must hold
    /// both directions of each edge, with equal weights.
    ///
    /// # Errors
    /// [`CsrError::Offsets`], [`CsrError::Offset`], [`CsrError::Neighbour`], [`CsrError::Weights`] or
    /// [`CsrError::Weight`] for parts that break these rules; [`CsrError::OneWay`] for an undirected graph without an
    /// equal opposite of each edge.
    pub fn from_parts(
        offsets: Vec<u64>,
        neighbours: Neighbours,
        weights: Option<Weights>,
        directed: bool,
        ids: Ids,
    ) -> Result<Self, CsrError> {
        Self::from_parts_with(offsets, neighbours, weights, directed, ids, false)
    }

    pub(crate) fn from_parts_with(
        offsets: Vec<u64>,
        neighbours: Neighbours,
        weights: Option<Weights>,
        directed: bool,
        ids: Ids,
        keep_self_loops: bool,
    ) -> Result<Self, CsrError> {
        check_offsets(&offsets, neighbours.len() as u64, ids.len())?;
        check_neighbours(&neighbours, ids.len())?;
        if let Some(weights) = &weights {
            check_weights(weights, neighbours.len() as u64)?;
        }
        let mut csr = Self { offsets, neighbours, weights, directed, ids, order: NeighbourOrder::ById };
        if !csr.is_simple(keep_self_loops) {
            csr = csr.rebuilt(csr.directed, Rule { mirror: false, keep_self_loops }, false);
        }
        if !directed && let Some((from, to)) = csr.one_way_edge() {
            return Err(CsrError::OneWay { from, to });
        }
        Ok(csr)
    }

    /// Makes a graph of the builder's result.
    pub(crate) fn assemble<V: VertexId, W: build::EdgeWeight>(
        built: build::Built<V, W>,
        directed: bool,
        ids: Ids,
    ) -> Self {
        Self {
            offsets: built.offsets,
            neighbours: build::wrap(built.neighbours),
            weights: W::wrap(built.weights),
            directed,
            ids,
            order: NeighbourOrder::ById,
        }
    }

    /// Makes a part of a larger graph: the lists of some of its vertices, neighbours of the highest degree first.
    /// Neighbours are numbered as in the larger graph. A part can be placed and read, but is no graph of its own, since
    /// its neighbours need not be vertices of it.
    pub(crate) fn part(offsets: Vec<u64>, neighbours: Neighbours, directed: bool) -> Self {
        let ids = Ids::dense(0, offsets.len() as u64 - 1);
        Self { offsets, neighbours, weights: None, directed, ids, order: NeighbourOrder::ByDegree }
    }

    /// Makes a graph of lists that another graph had, in their order. The caller has checked offsets and neighbours.
    pub(crate) fn stored(
        offsets: Vec<u64>,
        neighbours: Neighbours,
        weights: Option<Weights>,
        directed: bool,
        ids: Ids,
        order: NeighbourOrder,
    ) -> Self {
        Self { offsets, neighbours, weights, directed, ids, order }
    }

    /// Builds a graph of the vertices `0 .. vertices` from pairs.
    ///
    /// # Errors
    /// [`CsrError::Neighbour`] if a vertex of a pair is not below `vertices`.
    pub fn from_edges(vertices: u64, edges: &[(u64, u64)], options: CsrOptions) -> Result<Self, CsrError> {
        Self::build_from(vertices, edges.len(), options, |i| (edges[i].0, edges[i].1, ()))
    }

    /// Builds a graph as [`Csr::from_edges`] does, with integer weights.
    ///
    /// # Errors
    /// As for [`Csr::from_edges`].
    pub fn from_weighted_edges(
        vertices: u64,
        edges: &[(u64, u64, u32)],
        options: CsrOptions,
    ) -> Result<Self, CsrError> {
        Self::build_from(vertices, edges.len(), options, |i| edges[i])
    }

    /// Builds a graph as [`Csr::from_edges`] does, with real weights in single precision.
    ///
    /// # Errors
    /// As for [`Csr::from_edges`]; also [`CsrError::Weight`] for a weight that is negative or not finite.
    pub fn from_real_edges(vertices: u64, edges: &[(u64, u64, f32)], options: CsrOptions) -> Result<Self, CsrError> {
        if let Some(index) = edges.iter().position(|e| !(e.2.is_finite() && e.2 >= 0.0)) {
            return Err(CsrError::Weight { index: index as u64, found: edges[index].2.to_string() });
        }
        Self::build_from(vertices, edges.len(), options, |i| edges[i])
    }

    fn build_from<W: build::EdgeWeight>(
        vertices: u64,
        count: usize,
        options: CsrOptions,
        edge: impl Fn(usize) -> (u64, u64, W) + Sync,
    ) -> Result<Self, CsrError> {
        let bad = parallel::position(count, |i| edge(i).0.max(edge(i).1) >= vertices);
        if let Some(index) = bad {
            let (from, to, _) = edge(index);
            return Err(CsrError::Neighbour { index: index as u64, found: from.max(to), vertices });
        }
        let rule = Rule { mirror: !options.directed, keep_self_loops: options.keep_self_loops };
        let ids = Ids::dense(0, vertices);
        Ok(if options.wide || vertices > MAX_NARROW_VERTICES {
            let built = build::build(vertices as usize, count, rule, &|_, _| (), |r| Chunk::<u64, W>::of(r, &edge));
            Self::assemble(built, options.directed, ids)
        } else {
            let built = build::build(vertices as usize, count, rule, &|_, _| (), |r| Chunk::<u32, W>::of(r, &edge));
            Self::assemble(built, options.directed, ids)
        })
    }

    /// Returns the number of vertices.
    pub fn vertices(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// Returns the number of stored neighbours: the edges of a directed graph, twice the edges of an undirected one.
    pub fn arcs(&self) -> u64 {
        self.neighbours.len() as u64
    }

    /// Returns the number of edges. In an undirected graph each edge counts once.
    pub fn edges(&self) -> u64 {
        if self.directed {
            return self.arcs();
        }
        let loops: u64 = parallel::sum(self.vertices() as usize, |v| u64::from(self.has_self_loop(v as u64)));
        (self.arcs() - loops) / 2 + loops
    }

    /// Returns the offset of each vertex's first neighbour, and the number of arcs as the last element.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Returns the neighbour lists.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// Returns the weights, if the graph has some.
    pub fn weights(&self) -> Option<&Weights> {
        self.weights.as_ref()
    }

    /// Returns true if edges have a direction.
    pub fn directed(&self) -> bool {
        self.directed
    }

    /// Returns the input's identifiers.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Returns the order of the neighbour lists.
    pub fn order(&self) -> NeighbourOrder {
        self.order
    }

    /// Returns the number of neighbours of `v` (out-neighbours in a directed graph).
    ///
    /// # Panics
    /// If `v` is not a vertex.
    pub fn degree(&self, v: u64) -> u64 {
        self.offsets[v as usize + 1] - self.offsets[v as usize]
    }

    /// Returns the indices of `v`'s neighbours.
    ///
    /// # Panics
    /// If `v` is not a vertex.
    pub fn range(&self, v: u64) -> Range<usize> {
        self.offsets[v as usize] as usize..self.offsets[v as usize + 1] as usize
    }

    /// Returns the neighbours of `v`.
    ///
    /// # Panics
    /// If `v` is not a vertex.
    pub fn neighbours_of(&self, v: u64) -> impl Iterator<Item = u64> + '_ {
        self.range(v).map(|i| self.neighbours.get(i))
    }

    /// Returns true if `v` is its own neighbour.
    ///
    /// # Panics
    /// If `v` is not a vertex.
    pub(crate) fn has_self_loop(&self, v: u64) -> bool {
        self.has_arc(v, v)
    }

    /// Returns true if an arc leads from `from` to `to`.
    pub(crate) fn has_arc(&self, from: u64, to: u64) -> bool {
        with_neighbours!(&self.neighbours, list => {
            let list = &list[self.range(from)];
            match self.order {
                NeighbourOrder::ById => list.binary_search_by_key(&to, |&n| n.number()).is_ok(),
                NeighbourOrder::ByDegree => {
                    let key = |v: u64| (Reverse(self.degree(v)), v);
                    list.binary_search_by_key(&key(to), |&n| key(n.number())).is_ok()
                }
            }
        })
    }

    /// Returns a graph with each arc reversed: the in-neighbours of a directed graph, with their weights. An undirected
    /// graph is its own transpose, so this returns a copy of it.
    pub fn transpose(&self) -> Self {
        if self.directed { self.rebuilt(true, KEEP, true) } else { self.clone() }
    }

    /// Returns an undirected graph with each arc stored in both directions.
    pub(crate) fn mirrored(&self) -> Self {
        self.rebuilt(false, Rule { mirror: true, ..KEEP }, false)
    }

    /// Declares the graph directed, with the same arcs.
    pub(crate) fn into_directed(mut self) -> Self {
        self.directed = true;
        self
    }

    /// Declares the graph undirected, with the same arcs. [`Csr::one_way_edge`] must have found none.
    pub(crate) fn into_undirected(mut self) -> Self {
        self.directed = false;
        self
    }

    /// Replaces the identifiers by these, one for each vertex.
    pub(crate) fn with_ids(mut self, ids: Ids) -> Self {
        debug_assert_eq!(ids.len(), self.vertices());
        self.ids = ids;
        self
    }

    /// Removes the weights.
    pub(crate) fn without_weights(mut self) -> Self {
        self.weights = None;
        self
    }

    /// Takes the weights out.
    pub(crate) fn take_weights(mut self) -> (Self, Option<Weights>) {
        let weights = self.weights.take();
        (self, weights)
    }

    /// Replaces the weights by these, one for each arc.
    pub(crate) fn with_weights(mut self, weights: Weights) -> Self {
        debug_assert_eq!(weights.len(), self.neighbours.len());
        self.weights = Some(weights);
        self
    }

    fn rebuilt(&self, directed: bool, rule: Rule, turn: bool) -> Self {
        match (&self.neighbours, &self.weights) {
            (Neighbours::U32(n), None) => self.rebuilt_as(n, |_| (), directed, rule, turn),
            (Neighbours::U32(n), Some(Weights::U32(w))) => self.rebuilt_as(n, |i| w[i], directed, rule, turn),
            (Neighbours::U32(n), Some(Weights::F32(w))) => self.rebuilt_as(n, |i| w[i], directed, rule, turn),
            (Neighbours::U32(n), Some(Weights::F64(w))) => self.rebuilt_as(n, |i| w[i], directed, rule, turn),
            (Neighbours::U64(n), None) => self.rebuilt_as(n, |_| (), directed, rule, turn),
            (Neighbours::U64(n), Some(Weights::U32(w))) => self.rebuilt_as(n, |i| w[i], directed, rule, turn),
            (Neighbours::U64(n), Some(Weights::F32(w))) => self.rebuilt_as(n, |i| w[i], directed, rule, turn),
            (Neighbours::U64(n), Some(Weights::F64(w))) => self.rebuilt_as(n, |i| w[i], directed, rule, turn),
        }
    }

    fn rebuilt_as<V: VertexId, W: build::EdgeWeight>(
        &self,
        neighbours: &[V],
        weight: impl Fn(usize) -> W + Sync,
        directed: bool,
        rule: Rule,
        turn: bool,
    ) -> Self {
        let built = build::build(self.offsets.len() - 1, neighbours.len(), rule, &|_, _| (), |arcs| {
            let mut from = self.offsets.partition_point(|&o| o as usize <= arcs.start) - 1;
            let mut chunk = Chunk::<V, W>::with_capacity(arcs.len());
            for i in arcs {
                while self.offsets[from + 1] as usize <= i {
                    from += 1;
                }
                let v = V::from_index(from);
                let pair = if turn { [neighbours[i], v] } else { [v, neighbours[i]] };
                chunk.push(pair, weight(i));
            }
            chunk
        });
        Self::assemble(built, directed, self.ids.clone())
    }

    /// Returns true if each list ascends strictly, and has no self-loop unless these are kept.
    fn is_simple(&self, keep_self_loops: bool) -> bool {
        with_neighbours!(&self.neighbours, list => parallel::all(self.vertices() as usize, |v| {
            let v = v as u64;
            let list = &list[self.range(v)];
            list.windows(2).all(|pair| pair[0] < pair[1])
                && (keep_self_loops || list.binary_search_by_key(&v, |&n| n.number()).is_err())
        }))
    }

    /// Finds an arc whose opposite is missing or has another weight. Lists must be sorted by number.
    ///
    /// The search looks for the opposite of each ascending arc, and counts. Different arcs have different opposites. If
    /// ascending and descending arcs are equal in number, each therefore has its opposite.
    pub(crate) fn one_way_edge(&self) -> Option<(u64, u64)> {
        with_neighbours!(&self.neighbours, list => self.one_way_edge_in(list))
    }

    /// Returns true if two vertices have an arc to each other, with any weights. Lists must be sorted by number.
    pub(crate) fn has_two_way_edge(&self) -> bool {
        let both = |v: u64, to: u64| v < to && self.has_arc(to, v);
        !parallel::all(self.vertices() as usize, |v| !self.neighbours_of(v as u64).any(|to| both(v as u64, to)))
    }

    fn one_way_edge_in<V: VertexId>(&self, list: &[V]) -> Option<(u64, u64)> {
        let split = |v: u64| self.range(v).start + list[self.range(v)].partition_point(|&n| n.number() <= v);
        let same = |a: usize, b: usize| match &self.weights {
            None => true,
            Some(Weights::U32(w)) => w[a] == w[b],
            Some(Weights::F32(w)) => w[a] == w[b],
            Some(Weights::F64(w)) => w[a] == w[b],
        };
        let opposite = |from: u64, to: u64| -> Option<usize> {
            let range = self.range(to);
            list[range.clone()].binary_search_by_key(&from, |&n| n.number()).ok().map(|i| range.start + i)
        };
        let missing = |v: u64, arcs: Range<usize>| {
            arcs.into_iter().find_map(|i| {
                let to = list[i].number();
                (!opposite(v, to).is_some_and(|o| same(i, o))).then_some((v, to))
            })
        };
        let vertices = self.vertices() as usize;
        let find = |arcs: &(dyn Fn(u64) -> Range<usize> + Sync)| {
            parallel::find_first(vertices, |v| missing(v as u64, arcs(v as u64)))
        };
        let ascending = find(&|v| split(v)..self.range(v).end);
        if ascending.is_some() {
            return ascending;
        }
        let excess: i64 = parallel::sum(vertices, |v| {
            let v = v as u64;
            let loops = usize::from(list[self.range(v)].binary_search_by_key(&v, |&n| n.number()).is_ok());
            let up = self.range(v).end - split(v);
            let down = self.range(v).len() - up - loops;
            up as i64 - down as i64
        });
        if excess == 0 {
            return None;
        }
        find(&|v| self.range(v).start..split(v))
    }

    /// Returns the parts of the graph, for code that sorts the lists in another order.
    pub(crate) fn parts_mut(&mut self) -> (&[u64], &mut Neighbours, Option<&mut Weights>, &mut NeighbourOrder) {
        (&self.offsets, &mut self.neighbours, self.weights.as_mut(), &mut self.order)
    }
}

/// Rule that drops nothing, for arcs of a graph that is simple already.
const KEEP: Rule = Rule { mirror: false, keep_self_loops: true };

/// Divides vertices into ranges of at most `vertices` vertices and `arcs` arcs, or of one vertex.
pub(crate) fn ranges(offsets: &[u64], vertices: usize, arcs: u64) -> impl Iterator<Item = Range<usize>> + '_ {
    let all = offsets.len() - 1;
    let mut first = 0usize;
    std::iter::from_fn(move || {
        let most = &offsets[first + 1..=all.min(first.saturating_add(vertices))];
        let limit = offsets[first].saturating_add(arcs);
        let range = first..first + most.partition_point(|&end| end <= limit).max(1);
        (first < all).then(|| {
            first = range.end;
            range
        })
    })
}

/// Divides values that belong to arcs into parts of whole vertices, for tasks that write them: few vertices where lists are
/// long.
pub(crate) fn blocks_mut<'a, T>(offsets: &[u64], mut values: &'a mut [T]) -> Vec<(Range<usize>, &'a mut [T])> {
    ranges(offsets, 1 << 10, 1 << 15)
        .map(|range| {
            let count = (offsets[range.end] - offsets[range.start]) as usize;
            let (part, rest) = std::mem::take(&mut values).split_at_mut(count);
            values = rest;
            (range, part)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(offsets: &[u64], list: &[u32], weights: Option<Weights>, directed: bool) -> Result<Csr, CsrError> {
        Csr::from_parts(offsets.to_vec(), Neighbours::U32(list.to_vec()), weights, directed, Ids::dense(0, 3))
    }

    #[test]
    fn parts_that_are_a_graph_are_taken() {
        let csr = parts(&[0, 2, 3, 3], &[1, 2, 2], Some(Weights::F32(vec![0.5, 0.0, 1.0])), true).unwrap();
        assert_eq!((csr.vertices(), csr.arcs(), csr.edges(), csr.degree(0)), (3, 3, 3, 2));
        assert_eq!(csr.neighbours_of(0).collect::<Vec<_>>(), [1, 2]);
        let turned = csr.transpose();
        assert_eq!(turned.offsets(), [0, 0, 1, 3]);
        assert_eq!(turned.neighbours(), &Neighbours::U32(vec![0, 0, 1]));
        assert_eq!(turned.weights(), Some(&Weights::F32(vec![0.5, 0.0, 1.0])));
        let csr = parts(&[0, 1, 3, 4], &[1, 2, 0, 1], None, false).unwrap();
        assert_eq!((csr.edges(), csr.neighbours()), (2, &Neighbours::U32(vec![1, 0, 2, 1])));
        assert_eq!(csr.transpose(), csr);
    }

    #[test]
    fn parts_that_are_not_a_graph_are_refused() {
        let offset = |index, found, low, high| Err(CsrError::Offset { index, found, low, high });
        assert_eq!(parts(&[0, 1], &[1], None, true), Err(CsrError::Offsets { offsets: 2, vertices: 3 }));
        assert_eq!(parts(&[], &[], None, true), Err(CsrError::Offsets { offsets: 0, vertices: 3 }));
        assert_eq!(parts(&[1, 1, 1, 1], &[1], None, true), offset(0, 1, 0, 0));
        assert_eq!(parts(&[0, 2, 1, 2], &[1, 2], None, true), offset(2, 1, 2, 2));
        assert_eq!(parts(&[0, 1, 1, 1], &[1, 2], None, true), offset(3, 1, 2, 2));
        assert_eq!(parts(&[0, 0, 0, u64::MAX], &[1, 2], None, true), offset(3, u64::MAX, 0, 2));
        let beyond = CsrError::Neighbour { index: 1, found: 3, vertices: 3 };
        assert_eq!(parts(&[0, 2, 2, 2], &[1, 3], None, true), Err(beyond));
        let weights = |w: Vec<f64>| parts(&[0, 2, 2, 2], &[1, 2], Some(Weights::F64(w)), true);
        assert_eq!(weights(vec![1.0]), Err(CsrError::Weights { weights: 1, edges: 2 }));
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(weights(vec![0.0, bad]), Err(CsrError::Weight { index: 1, found: bad.to_string() }));
        }
        assert_eq!(parts(&[0, 1, 1, 1], &[2], None, false), Err(CsrError::OneWay { from: 0, to: 2 }));
        assert_eq!(parts(&[0, 0, 0, 1], &[0], None, false), Err(CsrError::OneWay { from: 2, to: 0 }));
        let pairs = [(0, 1), (0, 9)];
        let beyond = CsrError::Neighbour { index: 1, found: 9, vertices: 3 };
        assert_eq!(Csr::from_edges(3, &pairs, CsrOptions::default()), Err(beyond));
        let error = Csr::from_real_edges(3, &[(0, 1, -0.5)], CsrOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "the weight -0.5 of edge 0 is negative or not finite");
    }
}
