//! Graphs that do not fit into memory: their edges are numbered, sorted and merged in temporary files.

use super::error::ImportError;
use super::notice::Notice;
use super::raw::{Direction, Numbered, RawEdges, Read};
use super::{LoadOptions, Loaded, Progress, Stage, Summary, WeightSource};
use crate::graph::build::{Arc, EdgeWeight};
use crate::graph::csr::{VertexId, Weights};
use crate::graph::external::{self, Budget, FileLists, ListsWriter, Merge, Runs, SpillError};
use crate::graph::generate::{random_integer, random_real};
use crate::graph::ids::Ids;
use crate::graph::parallel;
use crate::graph::stored::WeightType;
use crate::memory::free_host_memory;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Least memory in bytes that each thread needs beside what grows with the vertices.
const LEAST_FOR_THREAD: u64 = 1 << 20;

/// A graph whose lists are in temporary files.
#[derive(Debug)]
pub(crate) struct SortedGraph {
    pub ids: Ids,
    pub directed: bool,
    pub out: FileLists,
    /// In-lists of a directed graph.
    pub inward: Option<FileLists>,
    /// Bitmap of the vertices with an edge to themselves.
    pub loops: Vec<u64>,
    /// The largest weight, if they are integers, and the mean.
    pub largest: f64,
    pub mean: f64,
    pub summary: Summary,
    /// Decisions that a user should see.
    pub notices: Vec<Notice>,
    /// Arcs that may be read into memory at a time.
    pub arcs_at_once: u64,
}

/// A graph that was read to be stored.
pub(crate) enum Imported {
    InMemory(Box<Loaded>),
    Sorted(Box<SortedGraph>),
}

/// Returns the limits that options set. Without a limit it is three quarters of the memory that is free, so that others
/// find some.
pub(crate) fn budget(options: &LoadOptions<'_>) -> Budget {
    let memory = options.memory.or_else(|| free_host_memory().map(|free| free / 4 * 3)).unwrap_or(u64::MAX);
    Budget { memory, folder: options.temp_dir.map_or_else(external::default_folder, Into::into) }
}

/// Returns the memory that tables of identifiers may take.
pub(super) fn table_bytes(budget: &Budget) -> u64 {
    budget.memory / 8
}

/// Makes the graph in memory if it fits, and otherwise in temporary files.
pub(crate) fn finish_or_sort(read: Read, options: &LoadOptions<'_>, budget: &Budget) -> Result<Imported, ImportError> {
    let numbered = Numbered::of(read, options, table_bytes(budget))?;
    let mut needed = numbered.peak_bytes();
    if numbered.direction != Direction::Undirected {
        // The in-lists are built beside the lists.
        needed += numbered.arcs() * u128::from(numbered.width() + numbered.weight_width());
    }
    if !numbered.pieces.is_spilled() && needed <= budget.memory.into() {
        return Ok(Imported::InMemory(Box::new(numbered.build(options)?)));
    }
    let shares = Shares::of(&numbered, budget)?;
    Ok(Imported::Sorted(Box::new(sort_numbered(numbered, options, &budget.folder, &shares)?)))
}

fn sort_numbered(
    numbered: Numbered,
    options: &LoadOptions<'_>,
    folder: &Path,
    shares: &Shares,
) -> Result<SortedGraph, ImportError> {
    let to = (options, folder, shares);
    match (numbered.weight_width(), numbered.real, numbered.double, numbered.wide) {
        (0, _, _, false) => sort::<u32, ()>(numbered, to, |_, _| ()),
        (0, _, _, true) => sort::<u64, ()>(numbered, to, |_, _| ()),
        (_, false, _, false) => sort::<u32, u32>(numbered, to, RawEdges::integer),
        (_, false, _, true) => sort::<u64, u32>(numbered, to, RawEdges::integer),
        (_, true, false, false) => sort::<u32, f32>(numbered, to, |piece, i| piece.real(i) as f32),
        (_, true, false, true) => sort::<u64, f32>(numbered, to, |piece, i| piece.real(i) as f32),
        (_, true, true, false) => sort::<u32, f64>(numbered, to, RawEdges::real),
        (_, true, true, true) => sort::<u64, f64>(numbered, to, RawEdges::real),
    }
}

/// Division of the budget.
struct Shares {
    /// Arcs that each thread sorts at a time.
    run_arcs: usize,
    /// Arcs of a range that is merged.
    range_arcs: u64,
    /// Bytes that one step may take beside what grows with the vertices.
    free: u64,
}

impl Shares {
    fn of(numbered: &Numbered, budget: &Budget) -> Result<Self, ImportError> {
        let vertices = numbered.numbers.ids().len();
        let lists = if numbered.direction == Direction::Undirected { 1 } else { 2 };
        let arc_bytes = 2 * numbered.width() + numbered.weight_width();
        let fixed = vertices.saturating_mul(8 * lists) + numbered.id_bytes() + vertices / 8;
        let threads = rayon::current_num_threads() as u64;
        let needed = fixed.saturating_add(threads * LEAST_FOR_THREAD);
        if needed > budget.memory {
            let what = numbered.path.display().to_string();
            return Err(ImportError::SmallBudget { what, vertices, needed, limit: budget.memory });
        }
        let free = budget.memory - fixed;
        let share = free / threads / arc_bytes;
        Ok(Self {
            // The arcs, and a piece of edges.
            run_arcs: (share / 2).min(1 << 28) as usize,
            // Encoded and decoded arcs, space to sort them, and results that wait.
            range_arcs: (share / 4 / lists).max(1),
            free,
        })
    }
}

fn sort<V: VertexId, W: EdgeWeight>(
    numbered: Numbered,
    (options, folder, shares): (&LoadOptions<'_>, &Path, &Shares),
    weight: impl Fn(&RawEdges, usize) -> W + Sync,
) -> Result<SortedGraph, ImportError> {
    // Unless edges lead both ways, the other direction is sorted, too: for in-lists, and to find out whether they do.
    let both = numbered.direction != Direction::Undirected;
    let sides = if both { 2 } else { 1 };
    let runs = (0..sides).map(|_| Runs::<V, W>::create(folder)).collect::<Result<Vec<_>, _>>()?;
    let (self_loops, pushed) = fill(&numbered, options, shares, &runs, weight)?;
    let merge = Merge::new(runs.into_iter().map(Runs::finish).collect(), shares.range_arcs);

    let source = numbered.weight_source(options);
    let kind = match source {
        WeightSource::None => None,
        WeightSource::Input => W::KIND,
        WeightSource::Unit | WeightSource::RandomIntegers => Some(WeightType::U32),
        WeightSource::RandomReals => Some(WeightType::F32),
    };
    let vertices = numbered.numbers.ids().len() as usize;
    let mut out = ListsWriter::create::<V>(folder, vertices, kind)?;
    let mut inward = both.then(|| ListsWriter::create::<V>(folder, vertices, None)).transpose()?;
    let mut found = Found::new(vertices);
    let weights = |arcs: &[Arc<V, W>]| weights(arcs, source, options.seed);
    // Several ranges are merged at a time, and stored in their order.
    for first in (0..merge.ranges()).step_by(rayon::current_num_threads()) {
        let last = merge.ranges().min(first + rayon::current_num_threads());
        let parts = parallel::map(last - first, |i| Part::merge(&merge, first + i, &weights));
        for part in parts.into_iter().collect::<Result<Vec<_>, SpillError>>()? {
            out.append(&part.neighbours, part.weights.as_ref())?;
            part.degrees.iter().for_each(|&(v, arcs)| out.count(v, arcs));
            if let Some(inward) = &mut inward {
                inward.append(&part.in_neighbours, None)?;
                part.in_degrees.iter().for_each(|&(v, arcs)| inward.count(v, arcs));
            }
            found.add(&part);
        }
        if let Some(progress) = options.progress {
            progress(Progress { stage: Stage::Merge, done: last as u64, total: merge.ranges() as u64 });
        }
    }
    drop(merge);
    let (directed, orientation) = numbered.directed(|| found.one_way, || found.has_two_way)?;
    let summary = numbered.summary(orientation, source, self_loops, pushed - found.arcs);
    let notices = numbered.notices(options);
    Ok(SortedGraph {
        ids: numbered.numbers.into_ids(),
        directed,
        out: out.finish(),
        inward: inward.filter(|_| directed).map(ListsWriter::finish),
        loops: found.loops,
        largest: match kind {
            None => 1.0,
            Some(WeightType::U32) => found.largest,
            Some(_) => 0.0,
        },
        mean: if kind.is_some() { found.sum / found.arcs.max(1) as f64 } else { 1.0 },
        summary,
        notices,
        arcs_at_once: (shares.free / 64).clamp(1 << 12, 1 << 22),
    })
}

/// Sorts all edges in runs: as they are, and on the second side turned round. Returns the number of self-loops and of
/// arcs.
fn fill<V: VertexId, W: EdgeWeight>(
    numbered: &Numbered,
    options: &LoadOptions<'_>,
    shares: &Shares,
    runs: &[Runs<V, W>],
    weight: impl Fn(&RawEdges, usize) -> W + Sync,
) -> Result<(u64, u64), ImportError> {
    let (done, total) = (AtomicU64::new(0), numbered.pieces.edges());
    let (loops, pushed) = (AtomicU64::new(0), AtomicU64::new(0));
    let most = shares.run_arcs >> u32::from(numbered.mirror);
    parallel::try_each_part(groups(numbered.pieces.lengths(), most), |_, pieces| {
        let edges: usize = numbered.pieces.lengths()[pieces.clone()].iter().sum();
        let mut arcs = Vec::with_capacity(edges << u32::from(numbered.mirror));
        let mut own_loops = 0;
        for piece in pieces {
            let piece = numbered.pieces.take(piece)?;
            for e in 0..piece.len() {
                let [from, to] = piece.pair(e).map(|id| V::from_index(numbered.vertex(id) as usize));
                let arc = Arc { from, to, weight: weight(&piece, e) };
                if from == to {
                    own_loops += 1;
                    if options.keep_self_loops {
                        arcs.push(arc);
                    }
                    continue;
                }
                arcs.push(arc);
                if numbered.mirror {
                    arcs.push(Arc { from: to, to: from, ..arc });
                }
            }
        }
        loops.fetch_add(own_loops, Ordering::Relaxed);
        pushed.fetch_add(arcs.len() as u64, Ordering::Relaxed);
        for (side, runs) in runs.iter().enumerate() {
            if side > 0 {
                arcs.iter_mut().for_each(|arc| std::mem::swap(&mut arc.from, &mut arc.to));
            }
            runs.add(&mut arcs)?;
        }
        if let Some(progress) = options.progress {
            let done = done.fetch_add(edges as u64, Ordering::Relaxed) + edges as u64;
            progress(Progress { stage: Stage::Sort, done, total });
        }
        Ok::<(), SpillError>(())
    })?;
    Ok((loops.into_inner(), pushed.into_inner()))
}

/// Divides pieces of some lengths into groups of at most `most` edges, or of one piece.
fn groups(lengths: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut edges = 0;
    for (i, length) in lengths.iter().enumerate() {
        edges += length;
        match groups.last_mut() {
            Some(group) if edges <= most => group.end = i + 1,
            _ => {
                groups.push(i..i + 1);
                edges = *length;
            }
        }
    }
    groups
}

/// Results of merging one range of keys.
struct Part<V> {
    neighbours: Vec<V>,
    weights: Option<Weights>,
    /// Vertices and numbers of their arcs in this range.
    degrees: Vec<(usize, u64)>,
    loops: Vec<usize>,
    in_neighbours: Vec<V>,
    in_degrees: Vec<(usize, u64)>,
    one_way: Option<(u64, u64)>,
    has_two_way: bool,
}

impl<V: VertexId> Part<V> {
    fn merge<W: EdgeWeight>(
        merge: &Merge<V, W>,
        range: usize,
        weights: &impl Fn(&[Arc<V, W>]) -> Option<Weights>,
    ) -> Result<Self, SpillError> {
        let (out, inward) = (merge.range(0, range)?, merge.range(1, range)?);
        let (one_way, has_two_way) = compare(&out, &inward);
        Ok(Self {
            weights: weights(&out),
            degrees: degrees(&out),
            loops: out.iter().filter(|a| a.from == a.to).map(|a| a.from.index()).collect(),
            neighbours: out.into_iter().map(|a| a.to).collect(),
            in_degrees: degrees(&inward),
            in_neighbours: inward.into_iter().map(|a| a.to).collect(),
            one_way,
            has_two_way,
        })
    }
}

/// Returns the vertices that arcs leave, with the numbers of their arcs.
fn degrees<V: VertexId, W>(arcs: &[Arc<V, W>]) -> Vec<(usize, u64)> {
    arcs.chunk_by(|a, b| a.from == b.from).map(|own| (own[0].from.index(), own.len() as u64)).collect()
}

/// Compares arcs with those turned round. Returns the first arc that is not in both with one weight, and whether an arc
/// between two vertices is in both.
fn compare<V: VertexId, W: EdgeWeight>(out: &[Arc<V, W>], turned: &[Arc<V, W>]) -> (Option<(u64, u64)>, bool) {
    let key = |arc: &Arc<V, W>| [arc.from, arc.to];
    let (mut one_way, mut has_two_way) = (None, false);
    let (mut a, mut b) = (out.iter().peekable(), turned.iter().peekable());
    while one_way.is_none() || !has_two_way {
        // `None` stands for the end of a side, and lies behind every arc.
        let (first, turned) = (a.peek().copied(), b.peek().copied());
        match (first, turned) {
            (None, None) => break,
            (Some(x), Some(y)) if key(x) == key(y) => {
                has_two_way |= x.from != x.to;
                if x.weight != y.weight {
                    one_way.get_or_insert((x.from.number(), x.to.number()));
                }
                a.next();
                b.next();
            }
            (Some(x), y) if y.is_none_or(|y| key(x) < key(y)) => {
                one_way.get_or_insert((x.from.number(), x.to.number()));
                a.next();
            }
            (_, Some(y)) => {
                one_way.get_or_insert((y.to.number(), y.from.number()));
                b.next();
            }
            (Some(_), None) => break,
        }
    }
    (one_way, has_two_way)
}

/// Returns the weights of arcs.
fn weights<V: VertexId, W: EdgeWeight>(arcs: &[Arc<V, W>], source: WeightSource, seed: u64) -> Option<Weights> {
    let ends = arcs.iter().map(|a| (a.from.number(), a.to.number()));
    match source {
        WeightSource::None => None,
        WeightSource::Input => W::wrap(arcs.iter().map(|a| a.weight).collect()),
        WeightSource::Unit => Some(Weights::U32(vec![1; arcs.len()])),
        WeightSource::RandomIntegers => Some(Weights::U32(ends.map(|(a, b)| random_integer(seed, a, b)).collect())),
        WeightSource::RandomReals => Some(Weights::F32(ends.map(|(a, b)| random_real(seed, a, b)).collect())),
    }
}

/// Totals of the ranges so far.
struct Found {
    loops: Vec<u64>,
    arcs: u64,
    largest: f64,
    sum: f64,
    one_way: Option<(u64, u64)>,
    has_two_way: bool,
}

impl Found {
    fn new(vertices: usize) -> Self {
        let loops = vec![0; vertices.div_ceil(64)];
        Self { loops, arcs: 0, largest: 0.0, sum: 0.0, one_way: None, has_two_way: false }
    }

    fn add<V>(&mut self, part: &Part<V>) {
        self.arcs += part.neighbours.len() as u64;
        part.loops.iter().for_each(|v| self.loops[v / 64] |= 1 << (v % 64));
        if let Some(weights) = &part.weights {
            self.largest = self.largest.max(weights.max());
            self.sum += weights.sum();
        }
        self.one_way = self.one_way.or(part.one_way);
        self.has_two_way |= part.has_two_way;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PieceSizes, Reader, WeightMode};
    use super::*;
    use crate::graph::Orientation;
    use crate::graph::csr::{Csr, Neighbours};
    use crate::graph::import::Precision;
    use crate::graph::import::bytes::Bytes;
    use crate::graph::import::{Contents, FileFormat, load_bytes};
    use proptest::prelude::*;

    /// Sorts a graph in runs of a few arcs.
    fn sorted(name: &str, text: &[u8], options: &LoadOptions<'_>, run_arcs: usize) -> Result<SortedGraph, ImportError> {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget { memory: 64, folder: folder.path().to_owned() };
        let reader = Reader::new(options, PieceSizes { bytes: 40, group: 3 }, Some(budget.clone()));
        let path = Path::new(name);
        let Contents::Edges(read) = reader.single(&Bytes::memory(path, text), FileFormat::of(path).unwrap()).unwrap()
        else {
            panic!("64 bytes hold no graph")
        };
        let shares = Shares { run_arcs, range_arcs: 1, free: 0 };
        let numbered = Numbered::of(read, options, table_bytes(&budget))?;
        let sorted = sort_numbered(numbered, options, &budget.folder, &shares);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "temporary files have no names");
        sorted
    }

    fn assert_same(sorted: &SortedGraph, loaded: &Loaded) {
        let csr = &loaded.csr;
        assert_eq!((sorted.directed, &sorted.ids, sorted.summary), (csr.directed(), csr.ids(), loaded.summary));
        assert_eq!(sorted.notices, loaded.notices);
        let all = 0..csr.vertices() as usize;
        let (neighbours, weights) = sorted.out.read(all.clone()).unwrap();
        assert_eq!((sorted.out.offsets(), &neighbours), (csr.offsets(), csr.neighbours()));
        assert_eq!(weights.as_ref(), csr.weights());
        assert_eq!(sorted.inward.is_some(), csr.directed());
        if let Some(inward) = &sorted.inward {
            let turned = csr.transpose();
            assert_eq!(inward.offsets(), turned.offsets());
            assert_eq!(&inward.read(all.clone()).unwrap().0, turned.neighbours());
        }
        for v in all {
            assert_eq!(sorted.loops[v / 64] >> (v % 64) & 1 == 1, csr.has_self_loop(v as u64));
        }
        let (largest, mean) = match csr.weights() {
            None => (1.0, 1.0),
            Some(w) => (
                if w.width() == 4 && matches!(w, Weights::U32(_)) { w.max() } else { 0.0 },
                w.sum() / csr.arcs().max(1) as f64,
            ),
        };
        assert!(sorted.largest == largest && (sorted.mean - mean).abs() < 1e-9, "{} {}", sorted.largest, sorted.mean);
    }

    fn options() -> impl Strategy<Value = LoadOptions<'static>> {
        let orientation =
            prop_oneof![Just(Orientation::Auto), Just(Orientation::Directed), Just(Orientation::Undirected)];
        let weights = prop_oneof![
            Just(WeightMode::Ignore),
            Just(WeightMode::Input),
            Just(WeightMode::IfPresent),
            Just(WeightMode::RandomIntegers),
            Just(WeightMode::RandomReals)
        ];
        let precision = prop_oneof![Just(Precision::Auto), Just(Precision::Single), Just(Precision::Double)];
        (orientation, weights, precision, any::<(bool, bool)>()).prop_map(
            |(orientation, weights, precision, (loops, wide))| {
                let options = LoadOptions::default().orientation(orientation).weights(weights).precision(precision);
                options.keep_self_loops(loops).wide(wide)
            },
        )
    }

    proptest! {
        #[test]
        fn a_sorted_graph_is_the_one_in_memory(
            edges in prop::collection::vec((0u64..20, 0u64..20, 0u32..4), 1..120),
            (stride, real, weighted, symmetric) in (prop_oneof![Just(1u64), Just(1 << 40)], any::<bool>(), any::<bool>(), any::<bool>()),
            run in 1usize..50, options in options(),
        ) {
            let mut text = String::new();
            for &(from, to, weight) in &edges {
                let weight = match (weighted, real) {
                    (false, _) => String::new(),
                    (true, false) => format!(" {weight}"),
                    (true, true) => format!(" {weight}.5"),
                };
                text += &format!("{} {}{weight}\n", from * stride, to * stride);
                if symmetric {
                    text += &format!("{} {}{weight}\n", to * stride, from * stride);
                }
            }
            let loaded = load_bytes("g.txt", text.as_bytes(), &options).unwrap();
            assert_same(&sorted("g.txt", text.as_bytes(), &options, run).unwrap(), &loaded);
        }

        #[test]
        fn other_formats_are_sorted_too(edges in prop::collection::vec((1u64..9, 1u64..9), 1..40), options in options()) {
            let mut matrix = format!("%%MatrixMarket matrix coordinate pattern symmetric\n9 9 {}\n", edges.len());
            edges.iter().for_each(|(a, b)| matrix += &format!("{a} {b}\n"));
            let loaded = load_bytes("g.mtx", matrix.as_bytes(), &options).unwrap();
            assert_same(&sorted("g.mtx", matrix.as_bytes(), &options, 7).unwrap(), &loaded);

            let mut lists = vec![Vec::new(); 9];
            edges.iter().filter(|(a, b)| a < b).for_each(|&(a, b)| {
                lists[a as usize].push(b);
                lists[b as usize].push(a);
            });
            lists.iter_mut().for_each(|list| {
                list.sort_unstable();
                list.dedup();
            });
            let count: usize = lists.iter().map(Vec::len).sum();
            let mut metis = format!("9 {}\n", count / 2);
            lists.iter().for_each(|list| {
                list.iter().for_each(|n| metis += &format!("{} ", n + 1));
                metis += "\n";
            });
            let loaded = load_bytes("g.graph", metis.as_bytes(), &options).unwrap();
            assert_same(&sorted("g.graph", metis.as_bytes(), &options, 7).unwrap(), &loaded);
        }

        #[test]
        fn serialized_graphs_are_sorted_too(
            edges in prop::collection::vec((0u64..30, 0u64..30, 0u32..9), 30..90), directed: bool, options in options(),
        ) {
            let csr = {
                let options = crate::graph::CsrOptions::default().directed(directed).keep_self_loops(true);
                Csr::from_weighted_edges(30, &edges, options).unwrap()
            };
            let mut file = vec![u8::from(directed)];
            file.extend((csr.arcs() as i64).to_ne_bytes());
            file.extend(30i64.to_ne_bytes());
            for side in [Some(&csr), directed.then(|| csr.transpose()).as_ref()].into_iter().flatten() {
                side.offsets().iter().for_each(|o| file.extend(o.to_ne_bytes()));
                let (Neighbours::U32(list), Some(Weights::U32(weights))) = (side.neighbours(), side.weights()) else {
                    panic!("32 bits and integers")
                };
                list.iter().zip(weights).for_each(|(n, w)| file.extend([n.to_ne_bytes(), w.to_ne_bytes()].concat()));
            }
            let mut loaded = load_bytes("g.wsg", &file, &options).unwrap();
            let sorted = sorted("g.wsg", &file, &options, 11).unwrap();
            // Such a file is counted otherwise where it is read as lists.
            loaded.summary.self_loops = sorted.summary.self_loops;
            loaded.summary.duplicates = sorted.summary.duplicates;
            assert_same(&sorted, &loaded);
        }
    }

    #[test]
    fn a_serialized_graph_that_is_not_symmetric_is_refused() {
        let mut file = vec![0];
        [2i64, 3, 0, 1, 1, 2].iter().for_each(|n| file.extend(n.to_ne_bytes()));
        [1u32, 1].iter().for_each(|n| file.extend(n.to_ne_bytes()));
        let error = sorted("g.sg", &file, &LoadOptions::default(), 5).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, load_bytes("g.sg", &file, &LoadOptions::default()).unwrap_err().to_string());
        assert!(error.contains("has no equal edge"), "{error}");
    }

    #[test]
    fn vertices_that_do_not_fit_are_refused_with_numbers() {
        let text: String = (0..300_000u64).map(|i| format!("{i} {}\n", i + 1)).collect();
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget { memory: 2 << 20, folder: folder.path().to_owned() };
        let options = LoadOptions::default();
        let reader = Reader::new(&options, PieceSizes::within(budget.memory), Some(budget.clone()));
        let bytes = Bytes::memory(Path::new("g.el"), text.as_bytes());
        let Contents::Edges(read) = reader.single(&bytes, FileFormat::El).unwrap() else { panic!("edges") };
        let error = finish_or_sort(read, &options, &budget).map(|_| ()).unwrap_err();
        assert!(matches!(error, ImportError::SmallBudget { vertices: 300_001, limit: 0x20_0000, .. }), "{error}");
        assert!(error.to_string().contains("raise the limit"), "{error}");
    }
}
