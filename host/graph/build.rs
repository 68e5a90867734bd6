//! Builds sorted neighbour lists from edges in any order, in parallel.
//!
//! Tasks first distribute the arcs of cache-sized chunks of the input to buckets of neighbouring vertices. Then each
//! bucket counts, places and sorts its lists on its own. Memory is accessed sequentially, and no thread writes where
//! another does. Every list is sorted by neighbour and weight, so the result does not depend on the number of threads.

use super::csr::{Neighbours, VertexId, Weights};
use super::stored::WeightType;
use crate::graph::parallel;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Edges of one piece of the input: two vertices each, and a weight (`()` if there are none).
pub(crate) struct Chunk<V, W> {
    arcs: Vec<Arc<V, W>>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Arc<V, W> {
    pub from: V,
    pub to: V,
    pub weight: W,
}

impl<V: VertexId, W: EdgeWeight> Chunk<V, W> {
    pub(crate) fn with_capacity(edges: usize) -> Self {
        Self { arcs: Vec::with_capacity(edges) }
    }

    pub(crate) fn push(&mut self, [from, to]: [V; 2], weight: W) {
        self.arcs.push(Arc { from, to, weight });
    }

    /// Makes a chunk of the edges that `edge` returns for the indices in `range`.
    pub(crate) fn of(range: Range<usize>, edge: &impl Fn(usize) -> (u64, u64, W)) -> Self {
        let mut chunk = Self::with_capacity(range.len());
        for i in range {
            let (from, to, weight) = edge(i);
            chunk.push([V::from_index(from as usize), V::from_index(to as usize)], weight);
        }
        chunk
    }
}

/// Type of a weight that the builder accepts.
pub(crate) trait EdgeWeight: bytemuck::Pod + Default + PartialOrd + Send + Sync {
    /// Kind of the weights in a stored graph.
    const KIND: Option<WeightType>;
    fn wrap(weights: Vec<Self>) -> Option<Weights>;
    /// Returns one of the weights, which are of this kind.
    fn at(weights: Option<&Weights>, index: usize) -> Self;
}

impl EdgeWeight for () {
    const KIND: Option<WeightType> = None;
    fn wrap(_: Vec<Self>) -> Option<Weights> {
        None
    }
    fn at(_: Option<&Weights>, _: usize) -> Self {}
}

macro_rules! edge_weight {
    ($type:ty: $kind:ident) => {
        impl EdgeWeight for $type {
            const KIND: Option<WeightType> = Some(WeightType::$kind);
            fn wrap(weights: Vec<Self>) -> Option<Weights> {
                Some(Weights::$kind(weights))
            }
            fn at(weights: Option<&Weights>, index: usize) -> Self {
                match weights {
                    Some(Weights::$kind(list)) => list[index],
                    _ => Self::default(),
                }
            }
        }
    };
}
edge_weight!(u32: U32);
edge_weight!(f32: F32);
edge_weight!(f64: F64);

/// Wraps a list of vertex numbers in [`Neighbours`] without copying it.
pub(crate) fn wrap<V: VertexId>(list: Vec<V>) -> Neighbours {
    let list: Box<dyn std::any::Any> = Box::new(list);
    match list.downcast::<Vec<u32>>() {
        Ok(narrow) => Neighbours::U32(*narrow),
        Err(other) => Neighbours::U64(other.downcast::<Vec<u64>>().map_or_else(|_| Vec::new(), |wide| *wide)),
    }
}

/// Treatment of edges by the builder.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    /// True to store each edge at both ends.
    pub mirror: bool,
    /// True to keep edges from a vertex to itself.
    pub keep_self_loops: bool,
}

/// The finished lists, and the numbers of self-loops and duplicates.
pub(crate) struct Built<V, W> {
    pub offsets: Vec<u64>,
    pub neighbours: Vec<V>,
    pub weights: Vec<W>,
    /// Edges of the input from a vertex to itself.
    pub self_loops: u64,
    /// Arcs that were dropped as duplicates.
    pub duplicates: u64,
}

/// Edges that one task handles at a time.
pub(crate) const CHUNK_EDGES: usize = 1 << 18;
/// Target number of arcs in a bucket: a few megabytes, so that placing them stays within a core's cache.
const BUCKET_ARCS: usize = 1 << 19;
/// Largest number of buckets: a core does not write more streams efficiently at once.
const MAX_BUCKETS: usize = 2048;
/// Length above which all threads together sort a list.
const LONG_LIST: usize = 1 << 17;

/// Builds lists from `count` edges. `make` returns the edges of any part of `0 .. count`. Calls `progress` with the
/// number of edges handled so far, and the total. The total is twice `count`, since each edge is handled twice.
pub(crate) fn build<V: VertexId, W: EdgeWeight>(
    vertices: usize,
    count: usize,
    rule: Rule,
    progress: &(dyn Fn(u64, u64) + Sync),
    make: impl Fn(Range<usize>) -> Chunk<V, W> + Sync,
) -> Built<V, W> {
    let parts = count.div_ceil(CHUNK_EDGES);
    build_parts(vertices, count, parts, rule, progress, |i| make(i * CHUNK_EDGES..count.min((i + 1) * CHUNK_EDGES)))
}

/// Builds lists as [`build`] does, from `parts` pieces that together hold `count` edges.
pub(crate) fn build_parts<V: VertexId, W: EdgeWeight>(
    vertices: usize,
    count: usize,
    parts: usize,
    rule: Rule,
    progress: &(dyn Fn(u64, u64) + Sync),
    make: impl Fn(usize) -> Chunk<V, W> + Sync,
) -> Built<V, W> {
    let layout = Buckets::new(vertices, count << usize::from(rule.mirror), BUCKET_ARCS);
    build_buckets(&layout, count, parts, rule, progress, make)
}

fn build_buckets<V: VertexId, W: EdgeWeight>(
    layout: &Buckets,
    count: usize,
    parts: usize,
    rule: Rule,
    progress: &(dyn Fn(u64, u64) + Sync),
    make: impl Fn(usize) -> Chunk<V, W> + Sync,
) -> Built<V, W> {
    let total = 2 * count as u64;
    let done = AtomicU64::new(0);
    let advance = |edges: usize| progress(done.fetch_add(edges as u64, Ordering::Relaxed) + edges as u64, total);

    let partitions: Vec<Partition<V, W>> = parallel::map(parts, |i| {
        let chunk = make(i);
        let edges = chunk.arcs.len();
        let partition = Partition::new(chunk, layout, rule);
        advance(edges);
        partition
    });
    let self_loops = partitions.iter().map(|p| p.self_loops).sum();
    let arcs: usize = partitions.iter().map(|p| p.arcs.len()).sum();

    let lists: Vec<Lists<V, W>> = parallel::map(layout.count, |bucket| {
        let lists = Lists::gather(bucket, &partitions, layout);
        advance(if arcs == 0 { 0 } else { (lists.gathered as u128 * count as u128 / arcs as u128) as usize });
        lists
    });
    drop(partitions);
    let built = concatenate(layout.vertices, lists);
    progress(total, total);
    Built { self_loops, duplicates: arcs as u64 - built.neighbours.len() as u64, ..built }
}

/// Assignment of vertices to buckets: a bucket holds the vertices whose numbers agree above the lowest `shift` bits.
struct Buckets {
    vertices: usize,
    shift: u32,
    count: usize,
}

impl Buckets {
    /// Makes as many buckets as hold about `each` arcs each.
    fn new(vertices: usize, arcs: usize, each: usize) -> Self {
        let wanted = (arcs / each).clamp(1, MAX_BUCKETS);
        let last = vertices.saturating_sub(1);
        let mut shift = 0;
        while last >> shift >= wanted {
            shift += 1;
        }
        Self { vertices, shift, count: if vertices == 0 { 0 } else { (last >> shift) + 1 } }
    }

    fn of<V: VertexId>(&self, v: V) -> usize {
        v.index() >> self.shift
    }

    fn range(&self, bucket: usize) -> Range<usize> {
        bucket << self.shift..self.vertices.min((bucket + 1) << self.shift)
    }
}

/// Arcs of one chunk, sorted by bucket.
struct Partition<V, W> {
    starts: Vec<u32>,
    arcs: Vec<Arc<V, W>>,
    self_loops: u64,
}

impl<V: VertexId, W: EdgeWeight> Partition<V, W> {
    fn new(chunk: Chunk<V, W>, layout: &Buckets, rule: Rule) -> Self {
        let mut starts = vec![0u32; layout.count + 1];
        let mut self_loops = 0;
        for arc in &chunk.arcs {
            if arc.from == arc.to {
                self_loops += 1;
                starts[layout.of(arc.from) + 1] += u32::from(rule.keep_self_loops);
            } else {
                starts[layout.of(arc.from) + 1] += 1;
                starts[layout.of(arc.to) + 1] += u32::from(rule.mirror);
            }
        }
        for i in 0..layout.count {
            starts[i + 1] += starts[i];
        }
        let mut cursor = starts.clone();
        let mut arcs = vec![Arc::default(); starts[layout.count] as usize];
        let mut place = |arc: Arc<V, W>| {
            let at = &mut cursor[layout.of(arc.from)];
            arcs[*at as usize] = arc;
            *at += 1;
        };
        for arc in chunk.arcs {
            if arc.from != arc.to {
                place(arc);
                if rule.mirror {
                    place(Arc { from: arc.to, to: arc.from, weight: arc.weight });
                }
            } else if rule.keep_self_loops {
                place(arc);
            }
        }
        Self { starts, arcs, self_loops }
    }

    fn bucket(&self, bucket: usize) -> &[Arc<V, W>] {
        &self.arcs[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }
}

/// Finished lists of one bucket.
struct Lists<V, W> {
    degrees: Vec<u64>,
    entries: Vec<(V, W)>,
    gathered: usize,
}

impl<V: VertexId, W: EdgeWeight> Lists<V, W> {
    fn gather(bucket: usize, partitions: &[Partition<V, W>], layout: &Buckets) -> Self {
        let range = layout.range(bucket);
        let mut starts = vec![0usize; range.len() + 1];
        for partition in partitions {
            for arc in partition.bucket(bucket) {
                starts[arc.from.index() - range.start + 1] += 1;
            }
        }
        for i in 0..range.len() {
            starts[i + 1] += starts[i];
        }
        let gathered = starts[range.len()];
        let mut entries = vec![(V::default(), W::default()); gathered];
        let mut cursor = starts.clone();
        for partition in partitions {
            for arc in partition.bucket(bucket) {
                let at = &mut cursor[arc.from.index() - range.start];
                entries[*at] = (arc.to, arc.weight);
                *at += 1;
            }
        }
        let mut kept = 0;
        let degrees = (0..range.len())
            .map(|i| {
                let list = starts[i]..starts[i + 1];
                sort(&mut entries[list.clone()]);
                let first = kept;
                for at in list {
                    // The entry with the smallest weight comes first among equal edges.
                    if kept == first || entries[kept - 1].0 != entries[at].0 {
                        entries[kept] = entries[at];
                        kept += 1;
                    }
                }
                (kept - first) as u64
            })
            .collect();
        entries.truncate(kept);
        Self { degrees, entries, gathered }
    }
}

fn sort<V: VertexId, W: EdgeWeight>(list: &mut [(V, W)]) {
    // Weights are never NaN, so comparing them is a total order.
    let order =
        |a: &(V, W), b: &(V, W)| a.0.cmp(&b.0).then_with(|| a.1.partial_cmp(&b.1).unwrap_or(std::cmp::Ordering::Equal));
    if list.len() > LONG_LIST { list.par_sort_unstable_by(order) } else { list.sort_unstable_by(order) }
}

fn concatenate<V: VertexId, W: EdgeWeight>(vertices: usize, lists: Vec<Lists<V, W>>) -> Built<V, W> {
    let mut offsets = Vec::with_capacity(vertices + 1);
    let mut sum = 0;
    offsets.push(0);
    for degree in lists.iter().flat_map(|l| &l.degrees) {
        sum += degree;
        offsets.push(sum);
    }
    let mut neighbours = vec![V::default(); sum as usize];
    let mut weights = vec![W::default(); sum as usize];
    let mut places = Vec::with_capacity(lists.len());
    let (mut n, mut w) = (neighbours.as_mut_slice(), weights.as_mut_slice());
    for list in &lists {
        let (n_head, n_tail) = n.split_at_mut(list.entries.len());
        let (w_head, w_tail) = w.split_at_mut(list.entries.len());
        places.push((n_head, w_head));
        (n, w) = (n_tail, w_tail);
    }
    parallel::each_part(lists.into_iter().zip(places).collect(), |(), _, (list, (n, w))| {
        for (i, (neighbour, weight)) in list.entries.into_iter().enumerate() {
            n[i] = neighbour;
            w[i] = weight;
        }
    });
    Built { offsets, neighbours, weights, self_loops: 0, duplicates: 0 }
}

/// Returns the bytes that building takes at its peak. Importers check this before they begin.
pub(crate) fn peak_bytes(vertices: u128, arcs: u128, vertex_width: u128, weight_width: u128) -> u128 {
    let partitioned = arcs * (2 * vertex_width + weight_width);
    let lists = arcs * (vertex_width + weight_width);
    vertices * 24 + partitioned.max(lists) + lists
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Csr, CsrOptions, Ids, Neighbours, Weights};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Returns the lists that the builder must give, made in the simplest way.
    fn plain(vertices: u64, edges: &[(u64, u64, u32)], options: CsrOptions) -> Vec<Vec<(u64, u32)>> {
        let mut lists = vec![BTreeMap::new(); vertices as usize];
        for &(from, to, weight) in edges {
            if from == to && !options.keep_self_loops {
                continue;
            }
            for (a, b) in [(from, to), (to, from)].into_iter().take(if options.directed { 1 } else { 2 }) {
                let least = lists[a as usize].entry(b).or_insert(weight);
                *least = weight.min(*least);
            }
        }
        lists.into_iter().map(|l| l.into_iter().collect()).collect()
    }

    fn lists(csr: &Csr) -> Vec<Vec<(u64, u32)>> {
        let Some(Weights::U32(weights)) = csr.weights() else { panic!("integer weights") };
        (0..csr.vertices()).map(|v| csr.range(v).map(|i| (csr.neighbours().get(i), weights[i])).collect()).collect()
    }

    proptest! {
        #[test]
        fn lists_are_those_of_the_plain_builder(
            edges in prop::collection::vec((0u64..40, 0u64..40, 0u32..5), 0..300),
            directed: bool, keep_self_loops: bool, wide: bool,
        ) {
            let options = CsrOptions { directed, keep_self_loops, wide };
            let csr = Csr::from_weighted_edges(40, &edges, options).unwrap();
            prop_assert_eq!(lists(&csr), plain(40, &edges, options));
            prop_assert_eq!(matches!(csr.neighbours(), Neighbours::U64(_)), wide);
        }
    }

    proptest! {
        #[test]
        fn buckets_of_any_size_give_the_same_lists(
            edges in prop::collection::vec((0u64..300, 0u64..300, 0u32..5), 1..400),
            each in 1usize..100, piece in 1usize..100, mirror: bool,
        ) {
            let rule = Rule { mirror, keep_self_loops: false };
            let layout = Buckets::new(300, edges.len() << usize::from(mirror), each);
            let parts = edges.len().div_ceil(piece);
            let built = build_buckets::<u32, u32>(&layout, edges.len(), parts, rule, &|_, _| (), |i| {
                Chunk::of(i * piece..edges.len().min((i + 1) * piece), &|e| edges[e])
            });
            let loops = edges.iter().filter(|e| e.0 == e.1).count();
            prop_assert_eq!(built.self_loops, loops as u64);
            let arcs = ((edges.len() - loops) << usize::from(mirror)) as u64;
            prop_assert_eq!(built.duplicates + built.neighbours.len() as u64, arcs);
            let csr = Csr::assemble(built, !mirror, Ids::dense(0, 300));
            let options = CsrOptions { directed: !mirror, ..Default::default() };
            prop_assert_eq!(lists(&csr), plain(300, &edges, options));
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_lists() {
        // The input has two chunks, and lists that all threads sort together.
        let edges: Vec<_> = (0..CHUNK_EDGES as u64 + 9).map(|i| (i * i % 3, i % 150_000, (i % 7) as u32)).collect();
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let options = CsrOptions { directed: true, ..Default::default() };
            pool.install(|| Csr::from_weighted_edges(150_000, &edges, options).unwrap())
        };
        assert_eq!(with(1), with(5));
    }
}
