//! Compares the algorithms with plain serial ones, on graphs of many difficult shapes.

use super::import::Precision;
use super::*;
use crate::engine::{Engine, Outcome, RunError, testing};
use crate::storage::{Cache, Drive, Volume};
use crate::test_cases::all_are_wanted;
use std::collections::{BinaryHeap, VecDeque};

/// A graph to test, with a name.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) csr: Csr,
}

pub(super) fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |bound| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    }
}

/// Returns edges whose ends are mostly small numbers, as in a power-law graph.
pub(super) fn skewed(vertices: u64, edges: usize, seed: u64) -> Vec<(u64, u64)> {
    let mut next = random(seed);
    let mut pick = move || {
        let bound = next(vertices) + 1;
        let bound = next(bound) + 1;
        next(bound)
    };
    (0..edges).map(|_| (pick(), pick())).collect()
}

pub(super) fn uniform(vertices: u64, edges: usize, seed: u64) -> Vec<(u64, u64)> {
    let mut next = random(seed);
    (0..edges).map(|_| (next(vertices), next(vertices))).collect()
}

pub(super) fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for directed in [false, true] {
        for wide in [false, true] {
            let options = CsrOptions { directed, wide, keep_self_loops: true };
            // Wide graphs are sorted by number and others by degree, so that both orders are searched.
            let mut add = |name, vertices, edges: &[(u64, u64)]| {
                let mut csr = Csr::from_edges(vertices, edges, options).unwrap();
                if !wide {
                    hub::order_by_degree(&mut csr);
                }
                shapes.push(Shape { name, csr });
            };
            add("one vertex", 1, &[]);
            add("no edges", 70, &[]);
            add("self-loops", 3, &[(0, 0), (1, 1), (1, 2)]);
            add("duplicate edges", 4, &[(0, 1), (0, 1), (1, 0), (2, 3), (2, 3)]);
            add("path", 70, &(0..69).map(|v| (v, v + 1)).collect::<Vec<_>>());
            add("path, numbers scattered", 67, &(0..66).map(|v| (v * 25 % 67, (v + 1) * 25 % 67)).collect::<Vec<_>>());
            // The hubs' lists have several pieces.
            add("star", 5000, &(1..5000).map(|v| (0, v)).collect::<Vec<_>>());
            add("two stars, far ends", 6000, &(2..6000).map(|v| (6000 - v % 2 - 1, v - 1)).collect::<Vec<_>>());
            // Vertex 1's list has two edges before the first cut, and neighbours of higher degree after it.
            let before = (1..2).chain(3000..4021).map(|v| (0, v));
            let cut = before.chain((2..2999).map(|v| (1, v))).chain((10..20).map(|v| (v, v + 4100)));
            add("a short first piece", 4200, &cut.collect::<Vec<_>>());
            add("skewed, with isolated vertices", 3000, &skewed(2500, 20_000, 1));
            add("uniform", 2000, &uniform(2000, 16_000, 2));
            add("sparse, many components", 4000, &uniform(4000, 2500, 3));
        }
    }
    shapes
}

/// Returns true if shape number `i` is due for the `k`-th of `count` variants. Each of the twelve shapes comes directed and
/// undirected, narrow and wide, and has another variant each time, or all variants if more cases are wanted.
pub(super) fn is_due(i: usize, k: usize, count: usize) -> bool {
    all_are_wanted() || (i + i / 12) % count == k
}

pub(super) fn sources(csr: &Csr) -> Vec<u64> {
    let mut next = random(csr.arcs() + 17);
    let mut sources: Vec<u64> = (0..3).map(|_| next(csr.vertices())).collect();
    sources.push(0);
    sources
}

pub(super) fn in_edges(csr: &Csr) -> Csr {
    csr.transpose()
}

pub(super) fn serial_depths(csr: &Csr, source: u64) -> Vec<u32> {
    let mut depth = vec![UNREACHED; csr.vertices() as usize];
    depth[source as usize] = 0;
    let mut queue = VecDeque::from([source]);
    while let Some(v) = queue.pop_front() {
        for n in csr.neighbours_of(v) {
            if depth[n as usize] == UNREACHED {
                depth[n as usize] = depth[v as usize] + 1;
                queue.push_back(n);
            }
        }
    }
    depth
}

fn check_bfs(shape: &Shape, graph: &GraphOnEngine, options: &BfsOptions) {
    let csr = &shape.csr;
    let backward = in_edges(csr);
    let mut search = Bfs::new(graph, options).unwrap();
    for source in sources(csr) {
        let result = search.run(source).unwrap();
        let expected = serial_depths(csr, source);
        assert_eq!(result.depth, expected, "{}, source {source}", shape.name);
        assert_eq!(result.reached, expected.iter().filter(|d| **d != UNREACHED).count() as u64);
        let parents = result.parent.unwrap();
        for v in 0..csr.vertices() {
            let (parent, depth) = (parents[v as usize], expected[v as usize]);
            match depth {
                UNREACHED => assert_eq!(parent, u64::MAX),
                0 => assert_eq!(parent, source),
                d => {
                    assert!(backward.neighbours_of(v).any(|u| u == parent), "{}: {parent} -> {v}", shape.name);
                    assert_eq!(expected[parent as usize] + 1, d, "{}: {parent} -> {v}", shape.name);
                }
            }
        }
    }
}

#[test]
fn depths_and_parents_are_those_of_a_serial_search() {
    let engine = testing::cpu();
    for shape in shapes() {
        let graph = GraphOnEngine::place(&engine, &shape.csr, Placement::Gpu, PlacementOptions::BFS).unwrap();
        for alpha in [0, 15] {
            check_bfs(&shape, &graph, &BfsOptions { alpha, ..BfsOptions::default() });
        }
        // Searches bottom-up from the start, and never switches back.
        check_bfs(&shape, &graph, &BfsOptions { alpha: u64::MAX, beta: u64::MAX, ..BfsOptions::default() });
    }
}

#[test]
fn a_directed_graph_without_in_edges_is_searched_top_down() {
    let engine = testing::cpu();
    let needs = PlacementOptions { inward: false, ..PlacementOptions::BFS };
    for shape in shapes().into_iter().filter(|s| s.csr.directed()) {
        let graph = GraphOnEngine::place(&engine, &shape.csr, Placement::Pinned, needs).unwrap();
        check_bfs(&shape, &graph, &BfsOptions { alpha: u64::MAX, ..BfsOptions::default() });
    }
}

pub(super) fn serial_components(csr: &Csr) -> Vec<u64> {
    let mut label: Vec<u64> = (0..csr.vertices()).collect();
    fn root(label: &mut [u64], mut v: u64) -> u64 {
        while label[v as usize] != v {
            label[v as usize] = label[label[v as usize] as usize];
            v = label[v as usize];
        }
        v
    }
    for v in 0..csr.vertices() {
        for n in csr.neighbours_of(v) {
            let (a, b) = (root(&mut label, v), root(&mut label, n));
            label[a.max(b) as usize] = a.min(b);
        }
    }
    (0..csr.vertices()).map(|v| root(&mut label, v)).collect()
}

#[test]
fn labels_are_the_smallest_vertices_of_components() {
    let engine = testing::cpu();
    for shape in shapes() {
        let graph = GraphOnEngine::place(&engine, &shape.csr, Placement::Gpu, PlacementOptions::COMPONENTS).unwrap();
        let expected = serial_components(&shape.csr);
        for giant in [0.0, 0.5, 2.0] {
            let options = ComponentsOptions { giant, ..ComponentsOptions::default() };
            let result = components(&graph, &options).unwrap();
            assert_eq!(result.label, expected, "{}", shape.name);
            let roots = expected.iter().enumerate().filter(|&(v, l)| v as u64 == *l).count();
            assert_eq!(result.components, roots as u64, "{}", shape.name);
        }
    }
}

fn serial_ranks(csr: &Csr, damping: f64, iterations: u32, shares: &[f64]) -> Vec<f64> {
    let n = csr.vertices() as usize;
    let mut rank = vec![1.0 / n as f64; n];
    for _ in 0..iterations {
        let dangling: f64 = (0..n).filter(|&v| csr.degree(v as u64) == 0).map(|v| rank[v]).sum();
        let mut next: Vec<f64> = shares.iter().map(|share| (1.0 - damping + damping * dangling) * share).collect();
        for v in 0..n as u64 {
            let share = damping * rank[v as usize] / csr.degree(v).max(1) as f64;
            csr.neighbours_of(v).for_each(|u| next[u as usize] += share);
        }
        rank = next;
    }
    rank
}

#[test]
fn ranks_are_those_of_the_power_method() {
    let engine = testing::cpu();
    for (i, shape) in shapes().into_iter().enumerate() {
        let graph = GraphOnEngine::place(&engine, &shape.csr, Placement::Gpu, PlacementOptions::PAGERANK).unwrap();
        let variants = [(None, 1e-12), (Some(LEAST_TOLERANCE), 1e-12), (Some(1e-3), 1e-3)];
        for (_, (tolerance, close)) in variants.into_iter().enumerate().filter(|(k, _)| is_due(i, *k, 3)) {
            // Every other shape is ranked for three of its vertices, one of which occurs twice.
            let vertices = shape.csr.vertices();
            let named: Vec<(u64, f64)> =
                (i % 2 * 4..4).map(|k| (k as u64 % 3 * 7 % vertices, 1.0 + k as f64)).collect();
            let mut shares = vec![if named.is_empty() { 1.0 / vertices as f64 } else { 0.0 }; vertices as usize];
            named.iter().for_each(|(v, weight)| shares[*v as usize] += weight / 10.0);
            let options = PageRankOptions::default().tolerance(tolerance).iterations(12).personalization(named);
            let result = pagerank(&graph, &options).unwrap();
            let ran = result.iterations.len() as u32;
            let expected = serial_ranks(&shape.csr, options.damping, ran, &shares);
            let apart: f64 = expected.iter().zip(&result.rank).map(|(a, b)| (a - b).abs()).sum();
            // Single-precision contributions are accurate to 2^-24 each.
            let single = if close > 1e-6 { 1e-6 } else { close };
            assert!(apart < single, "{}: {apart}", shape.name);
            let sum: f64 = result.rank.iter().sum();
            assert!((sum - 1.0).abs() < 1e-6, "{}: the ranks sum to {sum}", shape.name);
            if let Some(t) = tolerance {
                assert_eq!(result.converged, result.iterations.last().unwrap().change < t);
            }
        }
    }
}

fn serial_distances<D: Copy + PartialOrd>(
    csr: &Csr,
    source: u64,
    [zero, far]: [D; 2],
    through: impl Fn(D, usize) -> D,
) -> Vec<D> {
    struct Entry<D>(D, u64);
    impl<D: PartialOrd> PartialEq for Entry<D> {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }
    impl<D: PartialOrd> Eq for Entry<D> {}
    impl<D: PartialOrd> PartialOrd for Entry<D> {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    impl<D: PartialOrd> Ord for Entry<D> {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            other.0.partial_cmp(&self.0).unwrap()
        }
    }
    let mut distance = vec![far; csr.vertices() as usize];
    distance[source as usize] = zero;
    let mut heap = BinaryHeap::from([Entry(zero, source)]);
    while let Some(Entry(d, v)) = heap.pop() {
        if d > distance[v as usize] {
            continue;
        }
        for i in csr.range(v) {
            let (n, d) = (csr.neighbours().get(i), through(d, i));
            if d < distance[n as usize] {
                distance[n as usize] = d;
                heap.push(Entry(d, n));
            }
        }
    }
    distance
}

#[test]
fn integer_distances_are_dijkstras() {
    let engine = testing::cpu();
    for (k, (largest, delta)) in [(1, None), (255, Some(40.0)), (u32::MAX, Some(1e9))].into_iter().enumerate() {
        for (i, shape) in shapes().into_iter().enumerate() {
            if !is_due(i, k, 3) {
                continue;
            }
            let mut next = random(5);
            let mut edges = Vec::new();
            for v in 0..shape.csr.vertices() {
                edges.extend(shape.csr.neighbours_of(v).map(|n| (v, n, (next(u64::from(largest)) + 1) as u32)));
            }
            let wide = shape.csr.neighbours().as_u64().is_some();
            let options = CsrOptions { directed: shape.csr.directed(), keep_self_loops: true, wide };
            let csr = Csr::from_weighted_edges(shape.csr.vertices(), &edges, options).unwrap();
            let Some(Weights::U32(weights)) = csr.weights() else { panic!("integer weights") };
            let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::SSSP).unwrap();
            let mut search = Sssp::new(&graph, &SsspOptions::default().delta(delta)).unwrap();
            for source in sources(&csr).into_iter().take(2) {
                let result = search.run(source).unwrap();
                let expected = serial_distances(&csr, source, [0, u64::MAX], |d, i| d + u64::from(weights[i]));
                assert_eq!(result.distance, Distances::Integer(expected), "{} from {source}", shape.name);
            }
        }
    }
}

#[test]
fn real_distances_are_dijkstras() {
    let engine = testing::cpu();
    for shape in shapes() {
        let mut next = random(6);
        let mut edges = Vec::new();
        for v in 0..shape.csr.vertices() {
            // Some weights are 0, so that many vertices have equal distances.
            edges.extend(shape.csr.neighbours_of(v).map(|n| (v, n, next(1000) as f32 / 997.0)));
        }
        let wide = shape.csr.neighbours().as_u64().is_some();
        let options = CsrOptions { directed: shape.csr.directed(), keep_self_loops: true, wide };
        let csr = Csr::from_real_edges(shape.csr.vertices(), &edges, options).unwrap();
        let Some(Weights::F32(weights)) = csr.weights() else { panic!("real weights") };
        let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::SSSP).unwrap();
        for delta in [None, Some(1e-9), Some(1e9)] {
            // Each distance has a range of its own.
            if delta.is_some_and(|d| d < 1.0) && csr.vertices() > 100 {
                continue;
            }
            let mut search = Sssp::new(&graph, &SsspOptions::default().delta(delta)).unwrap();
            let source = sources(&csr)[0];
            let result = search.run(source).unwrap();
            let expected = serial_distances(&csr, source, [0.0, f64::INFINITY], |d, i| d + f64::from(weights[i]));
            assert_eq!(result.distance, Distances::Real(expected), "{} from {source}", shape.name);
        }
    }
}

#[test]
fn ranges_of_a_chain_widen_unless_their_width_was_asked_for() {
    let engine = testing::cpu();
    let edges: Vec<_> = (0..4000).map(|v| (v, v + 1, 5)).collect();
    let csr = Csr::from_weighted_edges(4001, &edges, CsrOptions::default()).unwrap();
    let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::SSSP).unwrap();
    let run = |delta| Sssp::new(&graph, &SsspOptions::default().delta(delta)).unwrap().run(0).unwrap();
    let (chosen, asked) = (run(None), run(Some(100.0)));
    assert_eq!(chosen.distance, Distances::Integer((0..=4000).map(|v| 5 * v).collect()));
    assert_eq!(asked.distance, chosen.distance);
    let widths = |result: &SsspResult| -> Vec<f64> {
        result.buckets.windows(2).map(|pair| pair[1].threshold - pair[0].threshold).collect()
    };
    assert!(widths(&asked).iter().all(|w| *w == 100.0), "{:?}", asked.buckets);
    assert_eq!(chosen.delta, 8.0 * 5.0 / (8000.0 / 4001.0));
    assert!(widths(&chosen).is_sorted() && chosen.buckets.len() < 40, "{:?}", chosen.buckets);
}

#[test]
fn a_graph_without_weights_counts_edges() {
    let engine = testing::cpu();
    let csr = Csr::from_edges(500, &skewed(500, 3000, 9), CsrOptions::default()).unwrap();
    let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::ALL).unwrap();
    let depth = bfs(&graph, 3, &BfsOptions::default()).unwrap().depth;
    let hops = depth.iter().map(|&d| if d == UNREACHED { u64::MAX } else { u64::from(d) }).collect();
    assert_eq!(sssp(&graph, 3, &SsspOptions::default()).unwrap().distance, Distances::Integer(hops));
}

#[test]
fn wrong_calls_are_errors() {
    let engine = testing::cpu();
    let csr = Csr::from_edges(4, &[(0, 1), (1, 2)], CsrOptions { directed: true, ..CsrOptions::default() }).unwrap();
    let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::COMPONENTS).unwrap();
    let no_vertex = bfs(&graph, 4, &BfsOptions::default());
    assert!(matches!(no_vertex, Err(GraphError::NoSuchVertex { source_vertex: 4, vertices: 4 })));
    assert!(matches!(sssp(&graph, 0, &SsspOptions::default()), Err(GraphError::NotPlaced { .. })));
    assert!(matches!(pagerank(&graph, &PageRankOptions::default()), Err(GraphError::NotPlaced { .. })));
    assert!(matches!(cdlp(&graph, &CdlpOptions::default()), Err(GraphError::NotPlaced { .. })));
    let strong = components(&graph, &ComponentsOptions::default().strong(true));
    assert!(matches!(strong, Err(GraphError::NotPlaced { .. })));
    let no_vertex = betweenness(&graph, &[0, 4]);
    assert!(matches!(no_vertex, Err(GraphError::NoSuchVertex { source_vertex: 4, vertices: 4 })));
    for damping in [-0.1, 1.1, f64::NAN] {
        let options = PageRankOptions { damping, ..PageRankOptions::default() };
        assert!(matches!(pagerank(&graph, &options), Err(GraphError::Parameter { name: "damping", .. })));
    }
    let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::ALL).unwrap();
    for (named, why) in [
        (vec![(4, 1.0)], "vertex 4 does not exist"),
        (vec![(0, -1.0)], "a weight of the personalization is -1, it must be finite and 0 or more"),
        (vec![(0, f64::NAN)], "a weight of the personalization is NaN"),
        (vec![(0, 0.0), (1, 0.0)], "the sum of the personalization's weights is 0, it must be finite and above 0"),
        (vec![(0, f64::MAX), (1, f64::MAX)], "the sum of the personalization's weights is inf"),
    ] {
        let error = pagerank(&graph, &PageRankOptions::default().personalization(named)).unwrap_err().to_string();
        assert!(error.starts_with(why), "{error}");
    }
    for delta in [0.0, -1.0, f64::INFINITY] {
        let options = SsspOptions::default().delta(Some(delta));
        assert!(matches!(sssp(&graph, 0, &options), Err(GraphError::Parameter { name: "delta", .. })));
    }
    let limited = SsspOptions::default().rounds(1);
    assert!(matches!(sssp(&graph, 0, &limited), Err(GraphError::TooManyRounds { rounds: 1, .. })));
}

/// Returns a placement on a device in memory that just holds the graph, with a cache for a quarter of its edges.
pub(super) fn on_storage(engine: &Engine, csr: &Csr, needs: PlacementOptions, spec: &str) -> Placement {
    let bytes = GraphOnEngine::plan(csr, needs).bytes().next_multiple_of(4096);
    let drive = Drive::open(&format!("soft:mem:{bytes}{spec}")).unwrap();
    let volume = Volume::on(engine, [drive]).queues(2).depth(64).build().unwrap();
    let edges = csr.neighbours().bytes().len() as u64;
    Placement::Storage(Cache::on(&volume).bytes((edges / 4).max(16 << 10)).page(512).build().unwrap())
}

#[test]
fn every_shape_on_storage() {
    let engine = testing::cpu();
    // Each shape is stored directed and undirected: half of the shapes narrow, the others wide.
    for (_, shape) in shapes().into_iter().enumerate().filter(|(i, _)| is_due(*i, 0, 2)) {
        let csr = &shape.csr;
        let placement = on_storage(&engine, csr, PlacementOptions::ALL, "");
        let graph = GraphOnEngine::place(&engine, csr, placement, PlacementOptions::ALL).unwrap();
        verify_all(csr, &graph, 0);
        let top_down = BfsOptions { alpha: 0, trace_io: true, ..BfsOptions::default() };
        graph.cool().unwrap();
        let cold = bfs(&graph, 0, &top_down).unwrap();
        assert_eq!(cold.depth, serial_depths(csr, 0), "{}", shape.name);
        let traced: u64 = cold.levels.iter().map(|l| l.read_bytes.unwrap()).sum();
        assert_eq!(traced, cold.io.unwrap().read_bytes);
        assert_eq!(traced > 0, cold.scanned() > 0, "{}", shape.name);
    }
}

fn run_all(graph: &GraphOnEngine) -> [Result<(), GraphError>; 9] {
    [
        bfs(graph, 0, &BfsOptions::default()).map(drop),
        // The neighbours in memory alone would connect all vertices.
        components(graph, &ComponentsOptions::default().rounds(0).giant(2.0)).map(drop),
        cdlp(graph, &CdlpOptions::default()).map(drop),
        betweenness(graph, &[0]).map(drop),
        pagerank(graph, &PageRankOptions::default()).map(drop),
        sssp(graph, 0, &SsspOptions::default()).map(drop),
        triangles(graph).map(drop),
        clustering(graph).map(drop),
        cores(graph).map(drop),
    ]
}

#[test]
fn edges_that_cannot_be_trusted_or_read_are_errors_and_not_results() {
    let engine = testing::cpu();
    let csr = Csr::from_edges(2000, &uniform(2000, 16_000, 8), CsrOptions::default()).unwrap();
    let graph = GraphOnEngine::place(
        &engine,
        &csr,
        on_storage(&engine, &csr, PlacementOptions::ALL, ""),
        PlacementOptions::ALL,
    )
    .unwrap();
    let Placement::Storage(cache) = graph.placement() else { panic!("storage") };
    let volume = cache.volume();
    let edges: Vec<_> = volume.manifest().unwrap().entries().to_vec();
    let edges = || edges.iter().filter(|e| e.name.contains("neighbours"));
    // Overwrites the edges on the volume.
    for e in edges() {
        volume.write_bytes(e.offset, &vec![0xee; e.bytes() as usize]).unwrap();
    }
    graph.cool().unwrap();
    for result in run_all(&graph) {
        assert!(matches!(result, Err(GraphError::Corrupt { edges: 1.. })), "{result:?}");
    }
    // The second half of the edges lies on bad blocks.
    let faults: String =
        edges().map(|e| format!(",media-error=read:{}-{}", (e.offset + e.bytes() / 2) / 512, e.end() / 512)).collect();
    let placement = on_storage(&engine, &csr, PlacementOptions::ALL, &faults);
    let graph = GraphOnEngine::place(&engine, &csr, placement, PlacementOptions::ALL).unwrap();
    for result in run_all(&graph) {
        match result {
            Err(GraphError::Run(RunError::Operations { errors, .. })) => {
                assert!(matches!(errors[0].outcome, Outcome::DeviceError(_)), "{errors:?}");
                assert!(edges().any(|e| (e.offset / 512..=e.end() / 512).contains(&errors[0].lba)), "{errors:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The directed example graph of LDBC Graphalytics (`validation-graphs/example` of ldbc/ldbc_graphalytics).
pub(super) const DIRECTED_EXAMPLE: [(u64, u64); 17] = [
    (1, 3),
    (1, 5),
    (2, 4),
    (2, 5),
    (2, 10),
    (3, 1),
    (3, 5),
    (3, 8),
    (3, 10),
    (5, 3),
    (5, 4),
    (5, 8),
    (6, 3),
    (6, 4),
    (7, 4),
    (8, 1),
    (9, 4),
];
/// The undirected one.
pub(super) const UNDIRECTED_EXAMPLE: [(u64, u64); 12] =
    [(2, 3), (2, 4), (3, 4), (3, 5), (3, 8), (5, 6), (5, 8), (6, 7), (6, 8), (6, 9), (6, 10), (7, 9)];

/// Runs all algorithms on a placed graph, and checks their results with the verifiers.
fn verify_all(csr: &Csr, graph: &GraphOnEngine, source: u64) {
    let found = bfs(graph, source, &BfsOptions::default()).unwrap();
    verify::bfs_parents(csr, source, &found.depth, found.parent.as_deref().unwrap()).unwrap();
    verify::components(csr, &components(graph, &ComponentsOptions::default()).unwrap().label).unwrap();
    let ranked = pagerank(graph, &PageRankOptions::default()).unwrap();
    assert!(ranked.converged);
    let transpose = csr.directed().then(|| csr.transpose());
    verify::pagerank(csr, transpose.as_ref(), verify::PageRank::default(), &ranked.rank).unwrap();
    if !csr.directed() {
        let counted = triangles(graph).unwrap();
        verify::triangles(csr, &counted.triangles, counted.total).unwrap();
    }
    verify::clustering(csr, transpose.as_ref(), &clustering(graph).unwrap().coefficient).unwrap();
    verify::cores(csr, transpose.as_ref(), &cores(graph).unwrap().core).unwrap();
    let strong = components(graph, &ComponentsOptions::default().strong(true)).unwrap();
    verify::strong_components(csr, &strong.label).unwrap();
    let sources = [source, csr.vertices() / 2];
    verify::betweenness(csr, &sources, &betweenness(graph, &sources).unwrap().score).unwrap();
    let labelled = cdlp(graph, &CdlpOptions::default()).unwrap();
    verify::cdlp(csr, transpose.as_ref(), 10, &labelled.label).unwrap();
    let distances = sssp(graph, source, &SsspOptions::default()).unwrap().distance;
    match &distances {
        Distances::Integer(d) => verify::sssp(csr, source, verify::Distances::U64(d)).unwrap(),
        Distances::Real(d) => verify::sssp(csr, source, verify::Distances::F64(d)).unwrap(),
    }
}

#[test]
fn enron_and_generated_graphs_pass_the_verifiers() {
    let engine = testing::cpu();
    let enron = crate::tree::file("examples/data/email-enron.txt");
    let inputs = [
        (&enron[..], WeightMode::RandomIntegers, Precision::Single),
        ("kron:10", WeightMode::RandomReals, Precision::Single),
        ("urand:10", WeightMode::RandomReals, Precision::Double),
    ];
    for (input, weights, precision) in inputs {
        let options = LoadOptions { weights, precision, ..LoadOptions::default() };
        let mut csr = input.parse::<Input>().unwrap().load(&options).unwrap().csr;
        hub::order_by_degree(&mut csr);
        let graph = GraphOnEngine::place(&engine, &csr, Placement::Pinned, PlacementOptions::ALL).unwrap();
        verify_all(&csr, &graph, 1);
    }
}
