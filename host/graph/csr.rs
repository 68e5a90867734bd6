//! The graph in memory: compressed sparse rows.

use super::build::{self, Chunk, Rule};
use super::ids::Ids;
use rayon::prelude::*;
use std::fmt;
use std::ops::Range;

/// A vertex number as it is stored: 32 bits when they suffice, else 64.
pub trait VertexId: bytemuck::Pod + Ord + Default + Send + Sync + fmt::Debug + fmt::Display + 'static {
    /// The value that stands for "no vertex".
    const NONE: Self;
    /// From a number that is known to fit.
    fn from_index(index: usize) -> Self;
    /// As an index into arrays over the vertices.
    fn index(self) -> usize;
    /// In 64 bits.
    fn number(self) -> u64;
}

impl VertexId for u32 {
    const NONE: Self = Self::MAX;
    fn from_index(index: usize) -> Self {
        index as Self
    }
    fn index(self) -> usize {
        self as usize
    }
    fn number(self) -> u64 {
        self as u64
    }
}

impl VertexId for u64 {
    const NONE: Self = Self::MAX;
    fn from_index(index: usize) -> Self {
        index as Self
    }
    fn index(self) -> usize {
        self as usize
    }
    fn number(self) -> u64 {
        self
    }
}

/// Most vertices that 32-bit neighbours can number; the largest value stands for "no vertex".
pub const MAX_NARROW_VERTICES: u64 = u32::MAX as u64;

/// The neighbour lists, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// Graphs of fewer than 2^32 vertices.
    U32(Vec<u32>),
    /// Larger ones, or when it was asked for.
    U64(Vec<u64>),
}

/// Calls generic code with the slice of neighbours, whatever its width.
macro_rules! with_neighbours {
    ($neighbours:expr, $name:ident => $body:expr) => {
        match $neighbours {
            $crate::graph::csr::Neighbours::U32($name) => $body,
            $crate::graph::csr::Neighbours::U64($name) => $body,
        }
    };
}
pub(crate) use with_neighbours;

impl Neighbours {
    /// How many.
    pub fn len(&self) -> usize {
        with_neighbours!(self, list => list.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one: 4 or 8.
    pub fn width(&self) -> usize {
        match self {
            Self::U32(_) => 4,
            Self::U64(_) => 8,
        }
    }

    /// The one at `index`, which must be below [`Self::len`].
    pub fn get(&self, index: usize) -> u64 {
        match self {
            Self::U32(list) => u64::from(list[index]),
            Self::U64(list) => list[index],
        }
    }

    /// The bytes as they go to storage (native order).
    pub fn bytes(&self) -> &[u8] {
        with_neighbours!(self, list => bytemuck::cast_slice(list))
    }

    /// The list, when it is of 32-bit numbers.
    pub fn as_u32(&self) -> Option<&[u32]> {
        match self {
            Self::U32(list) => Some(list),
            Self::U64(_) => None,
        }
    }

    /// The list, when it is of 64-bit numbers.
    pub fn as_u64(&self) -> Option<&[u64]> {
        match self {
            Self::U32(_) => None,
            Self::U64(list) => Some(list),
        }
    }
}

/// Edge weights, in the order of the neighbours. None is negative, and real ones are finite.
#[derive(Clone, Debug, PartialEq)]
pub enum Weights {
    /// Integers.
    U32(Vec<u32>),
    /// Real numbers in single precision.
    F32(Vec<f32>),
    /// Real numbers in double precision.
    F64(Vec<f64>),
}

impl Weights {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::U32(w) => w.len(),
            Self::F32(w) => w.len(),
            Self::F64(w) => w.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one: 4 or 8.
    pub fn width(&self) -> usize {
        match self {
            Self::U32(_) | Self::F32(_) => 4,
            Self::F64(_) => 8,
        }
    }

    /// The bytes as they go to storage (native order).
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::U32(w) => bytemuck::cast_slice(w),
            Self::F32(w) => bytemuck::cast_slice(w),
            Self::F64(w) => bytemuck::cast_slice(w),
        }
    }

    /// The largest weight; 0 when there are none.
    pub fn max(&self) -> f64 {
        match self {
            Self::U32(w) => w.par_iter().copied().max().unwrap_or(0).into(),
            Self::F32(w) => w.par_iter().copied().reduce(|| 0.0, f32::max).into(),
            Self::F64(w) => w.par_iter().copied().reduce(|| 0.0, f64::max),
        }
    }
}

/// How each neighbour list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourOrder {
    /// By number, ascending.
    ById,
    /// By degree, descending; equal degrees by number, ascending.
    ByDegree,
}

/// Why parts do not make a graph.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CsrError {
    /// There must be one offset more than there are vertices.
    #[error("{offsets} offsets do not fit {vertices} vertices: there must be one more than vertices")]
    Offsets {
        /// Offsets given.
        offsets: u64,
        /// Vertices.
        vertices: u64,
    },
    /// An offset is smaller than the one before it, or the ends are wrong.
    #[error("offset {index} is {found}, it must lie between {low} and {high}")]
    Offset {
        /// Which one.
        index: u64,
        /// Its value.
        found: u64,
        /// Smallest value that it may have.
        low: u64,
        /// Largest value that it may have.
        high: u64,
    },
    /// A neighbour does not exist.
    #[error("edge {index} leads to vertex {found}, but there are {vertices} vertices")]
    Neighbour {
        /// Place in the edge list.
        index: u64,
        /// The neighbour.
        found: u64,
        /// Vertices.
        vertices: u64,
    },
    /// Not as many weights as edges.
    #[error("{weights} weights do not fit {edges} edges")]
    Weights {
        /// Weights given.
        weights: u64,
        /// Edges given.
        edges: u64,
    },
    /// A weight is negative or not finite.
    #[error("the weight {found} of edge {index} is negative or not finite")]
    Weight {
        /// Place in the edge list.
        index: u64,
        /// The weight.
        found: String,
    },
    /// The graph is said to be undirected, but an edge is stored in one direction only.
    #[error("the graph is said to be undirected, but {from} -> {to} has no equal edge {to} -> {from}")]
    OneWay {
        /// Where it leaves (counted from 0).
        from: u64,
        /// Where it leads.
        to: u64,
    },
}

/// How [`Csr::from_edges`] builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CsrOptions {
    /// Each pair is one arc; otherwise it is an edge that is stored at both ends.
    pub directed: bool,
    /// Keep edges from a vertex to itself. They matter to PageRank only.
    pub keep_self_loops: bool,
    /// Use 64-bit neighbours even where 32 bits suffice.
    pub wide: bool,
}

/// A graph as compressed sparse rows: the neighbours of vertex `v` are
/// `neighbours[offsets[v] .. offsets[v + 1]]`, sorted as [`Csr::order`] says, without duplicates.
///
/// Vertices are numbered from 0; [`Csr::ids`] leads back to the input's identifiers. An undirected edge is stored at both
/// ends, so that [`Csr::arcs`] is twice [`Csr::edges`] (self-loops, where they are kept, are stored once).
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
    /// Takes parts as they are, after checking that they are a graph: offsets ascending from 0 to the number of
    /// neighbours, neighbours below the number of vertices, weights as many as neighbours and not negative.
    ///
    /// Lists need not be sorted and are sorted here; duplicates and self-loops are dropped. An undirected graph must hold
    /// both directions of each edge, with equal weights.
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

    /// Wraps what the builder made.
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

    /// Builds a graph of vertices `0 .. vertices` from pairs. Vertices of the pairs must be below `vertices`.
    pub fn from_edges(vertices: u64, edges: &[(u64, u64)], options: CsrOptions) -> Result<Self, CsrError> {
        Self::build_from(vertices, edges.len(), options, |i| (edges[i].0, edges[i].1, ()))
    }

    /// As [`Csr::from_edges`], with integer weights.
    pub fn from_weighted_edges(
        vertices: u64,
        edges: &[(u64, u64, u32)],
        options: CsrOptions,
    ) -> Result<Self, CsrError> {
        Self::build_from(vertices, edges.len(), options, |i| edges[i])
    }

    /// As [`Csr::from_edges`], with real weights in single precision, which must be finite and not negative.
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
        let bad = (0..count).into_par_iter().find_first(|&i| edge(i).0.max(edge(i).1) >= vertices);
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

    /// Number of vertices.
    pub fn vertices(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// Number of stored neighbours: edges of a directed graph, twice the edges of an undirected one.
    pub fn arcs(&self) -> u64 {
        self.neighbours.len() as u64
    }

    /// Number of edges: arcs of a directed graph; of an undirected one each edge counts once.
    pub fn edges(&self) -> u64 {
        if self.directed {
            return self.arcs();
        }
        let loops: u64 = (0..self.vertices()).into_par_iter().map(|v| u64::from(self.has_self_loop(v))).sum();
        (self.arcs() - loops) / 2 + loops
    }

    /// Where each vertex's neighbours begin; one more than there are vertices.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The neighbour lists.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// The weights, when the graph has some.
    pub fn weights(&self) -> Option<&Weights> {
        self.weights.as_ref()
    }

    /// Whether edges have a direction.
    pub fn directed(&self) -> bool {
        self.directed
    }

    /// The input's identifiers.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// How neighbour lists are sorted.
    pub fn order(&self) -> NeighbourOrder {
        self.order
    }

    /// Number of neighbours of `v` (out-neighbours when the graph is directed).
    pub fn degree(&self, v: u64) -> u64 {
        self.offsets[v as usize + 1] - self.offsets[v as usize]
    }

    /// Where the neighbours of `v` lie.
    pub fn range(&self, v: u64) -> Range<usize> {
        self.offsets[v as usize] as usize..self.offsets[v as usize + 1] as usize
    }

    /// The neighbours of `v`.
    pub fn neighbours_of(&self, v: u64) -> impl Iterator<Item = u64> + '_ {
        self.range(v).map(|i| self.neighbours.get(i))
    }

    /// Whether `v` is its own neighbour.
    pub fn has_self_loop(&self, v: u64) -> bool {
        with_neighbours!(&self.neighbours, list => {
            let list = &list[self.range(v)];
            match self.order {
                NeighbourOrder::ById => list.binary_search_by_key(&v, |&n| n.number()).is_ok(),
                NeighbourOrder::ByDegree => list.iter().any(|&n| n.number() == v),
            }
        })
    }

    /// The same vertices with each arc turned round: the in-neighbours of a directed graph, with their weights.
    /// An undirected graph is its own transpose, and a copy of it is what this gives.
    pub fn transpose(&self) -> Self {
        if self.directed { self.rebuilt(true, KEEP, true) } else { self.clone() }
    }

    /// The same vertices with each arc stored in both directions.
    pub(crate) fn mirrored(&self) -> Self {
        self.rebuilt(false, Rule { mirror: true, ..KEEP }, false)
    }

    /// Says that the arcs are those of a directed graph.
    pub(crate) fn into_directed(mut self) -> Self {
        self.directed = true;
        self
    }

    /// Says that the arcs are those of an undirected graph; [`Csr::one_way_edge`] must have found none.
    pub(crate) fn into_undirected(mut self) -> Self {
        self.directed = false;
        self
    }

    /// The same graph without weights.
    pub(crate) fn without_weights(mut self) -> Self {
        self.weights = None;
        self
    }

    /// The same graph with these weights, one for each arc.
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

    /// Whether each list ascends strictly, and has no self-loop unless they are kept.
    fn is_simple(&self, keep_self_loops: bool) -> bool {
        with_neighbours!(&self.neighbours, list => (0..self.vertices()).into_par_iter().all(|v| {
            let list = &list[self.range(v)];
            list.windows(2).all(|pair| pair[0] < pair[1])
                && (keep_self_loops || list.binary_search_by_key(&v, |&n| n.number()).is_err())
        }))
    }

    /// Finds an arc whose opposite is missing or has another weight. Lists must be sorted by number.
    ///
    /// It is enough to look for the opposite of each ascending arc, and to count: opposites of different arcs differ, so
    /// equal numbers of ascending and descending arcs leave none without its opposite.
    pub(crate) fn one_way_edge(&self) -> Option<(u64, u64)> {
        with_neighbours!(&self.neighbours, list => self.one_way_edge_in(list))
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
        let vertices = 0..self.vertices();
        let ascending = vertices.clone().into_par_iter().find_map_first(|v| missing(v, split(v)..self.range(v).end));
        if ascending.is_some() {
            return ascending;
        }
        let excess: i64 = vertices
            .clone()
            .into_par_iter()
            .map(|v| {
                let loops = usize::from(list[self.range(v)].binary_search_by_key(&v, |&n| n.number()).is_ok());
                let up = self.range(v).end - split(v);
                let down = self.range(v).len() - up - loops;
                up as i64 - down as i64
            })
            .sum();
        if excess == 0 {
            return None;
        }
        vertices.into_par_iter().find_map_first(|v| missing(v, self.range(v).start..split(v)))
    }

    /// For the code that sorts lists in another way.
    pub(crate) fn parts_mut(&mut self) -> (&[u64], &mut Neighbours, Option<&mut Weights>, &mut NeighbourOrder) {
        (&self.offsets, &mut self.neighbours, self.weights.as_mut(), &mut self.order)
    }
}

/// Nothing is dropped: the arcs are already those of a simple graph.
const KEEP: Rule = Rule { mirror: false, keep_self_loops: true };

/// Cuts values that belong to arcs into parts of whole vertices, for tasks that write them.
pub(crate) fn blocks_mut<'a, T>(offsets: &[u64], mut values: &'a mut [T]) -> Vec<(Range<usize>, &'a mut [T])> {
    /// Vertices of a part.
    const VERTICES: usize = 1 << 10;
    let vertices = offsets.len() - 1;
    (0..vertices)
        .step_by(VERTICES)
        .map(|first| {
            let last = (first + VERTICES).min(vertices);
            let (part, rest) = std::mem::take(&mut values).split_at_mut((offsets[last] - offsets[first]) as usize);
            values = rest;
            (first..last, part)
        })
        .collect()
}

fn check_offsets(offsets: &[u64], edges: u64, vertices: u64) -> Result<(), CsrError> {
    if offsets.len() as u64 != vertices + 1 {
        return Err(CsrError::Offsets { offsets: offsets.len() as u64, vertices });
    }
    let bad =
        |index: usize, low: u64, high: u64| CsrError::Offset { index: index as u64, found: offsets[index], low, high };
    if offsets[0] != 0 {
        return Err(bad(0, 0, 0));
    }
    let step = offsets.par_windows(2).position_first(|w| w[1] < w[0] || w[1] > edges);
    if let Some(i) = step {
        return Err(bad(i + 1, offsets[i], edges));
    }
    let last = offsets.len() - 1;
    if offsets[last] != edges { Err(bad(last, edges, edges)) } else { Ok(()) }
}

fn check_neighbours(neighbours: &Neighbours, vertices: u64) -> Result<(), CsrError> {
    let bad = with_neighbours!(neighbours, list => list.par_iter().position_first(|&n| n.number() >= vertices));
    match bad {
        Some(i) => Err(CsrError::Neighbour { index: i as u64, found: neighbours.get(i), vertices }),
        None => Ok(()),
    }
}

fn check_weights(weights: &Weights, edges: u64) -> Result<(), CsrError> {
    if weights.len() as u64 != edges {
        return Err(CsrError::Weights { weights: weights.len() as u64, edges });
    }
    let bad = match weights {
        Weights::U32(_) => None,
        Weights::F32(w) => w.par_iter().position_first(|w| !(w.is_finite() && *w >= 0.0)).map(|i| (i, f64::from(w[i]))),
        Weights::F64(w) => w.par_iter().position_first(|w| !(w.is_finite() && *w >= 0.0)).map(|i| (i, w[i])),
    };
    match bad {
        Some((i, found)) => Err(CsrError::Weight { index: i as u64, found: found.to_string() }),
        None => Ok(()),
    }
}
