//! Tests of triangles, clustering coefficients and cores: on difficult shapes against serial counts, and on random graphs
//! against networkx.

use super::algorithm_tests::{DIRECTED_EXAMPLE, Shape, UNDIRECTED_EXAMPLE, on_storage, shapes, skewed};
use super::*;
use crate::engine::testing;
use crate::storage::{Cache, Drive, Volume};
use crate::test_cases;
use serde_json::Value;

/// Returns shapes of many triangles, and those of all algorithms.
fn dense_shapes() -> Vec<Shape> {
    let mut shapes = shapes();
    for (directed, wide) in [(false, false), (false, true), (true, false), (true, true)] {
        let options = CsrOptions { directed, wide, keep_self_loops: true };
        let mut add = |name, vertices, edges: &[(u64, u64)]| {
            let mut csr = Csr::from_edges(vertices, edges, options).unwrap();
            if !wide {
                hub::order_by_degree(&mut csr);
            }
            shapes.push(Shape { name, csr });
        };
        let complete = |n: u64| (0..n).flat_map(move |a| (0..=a).map(move |b| (a, b)));
        add("complete, with self-loops", 40, &complete(40).collect::<Vec<_>>());
        add("wheel", 3000, &(1..3000).flat_map(|v| [(0, v), (v, v % 2999 + 1)]).collect::<Vec<_>>());
        add("skewed and dense", 400, &skewed(400, 30_000, 11));
        let both = skewed(300, 4000, 12)
            .into_iter()
            .flat_map(|(a, b)| [(a, b), (b, a)].into_iter().take(1 + (a % 3) as usize));
        add("arcs in one direction and in both", 300, &both.collect::<Vec<_>>());
        // Lists of all neighbours of these take seconds to read by the definition.
        if wide && !test_cases::all_are_wanted() {
            continue;
        }
        // Vertices with more neighbours of higher degree than a marker holds at a time: 1200 have more edges than the others.
        let hubs = (0..1200u64).flat_map(|h| (h + 1..1200).step_by(37).map(move |g| (h, g)));
        let many = (0..100u64).flat_map(|v| (0..1200).step_by(1 + v as usize % 7).map(move |h| (h, 1200 + v)));
        add("lists of several parts", 1300, &hubs.chain(many).collect::<Vec<_>>());
    }
    shapes
}

/// Places a shape for all algorithms here, in memory or on storage.
fn placed(i: usize, csr: &Csr) -> GraphOnEngine {
    let (engine, needs) = (testing::cpu(), PlacementOptions::CLUSTERING);
    let placement = if i.is_multiple_of(2) { Placement::Gpu } else { on_storage(&engine, csr, needs, "") };
    GraphOnEngine::place(&engine, csr, placement, needs).unwrap()
}

/// Returns the number of arcs between the neighbours of each vertex (edges of an undirected graph), and the number of
/// neighbours: the lists of all neighbours are read, as the definition has it.
fn serial_arcs(csr: &Csr) -> (Vec<u64>, Vec<u64>) {
    let transpose = csr.transpose();
    let mut near = vec![false; csr.vertices() as usize];
    let of = |v: u64| {
        let all = csr.neighbours_of(v).chain(transpose.neighbours_of(v).filter(|_| csr.directed()));
        let mut all: Vec<u64> = all.filter(|n| *n != v).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let count = |v: u64| {
        let all = of(v);
        all.iter().for_each(|n| near[*n as usize] = true);
        let between = |a: &u64| csr.neighbours_of(*a).filter(|b| b != a && near[*b as usize]).count() as u64;
        let arcs: u64 = all.iter().map(between).sum();
        all.iter().for_each(|n| near[*n as usize] = false);
        (if csr.directed() { arcs } else { arcs / 2 }, all.len() as u64)
    };
    (0..csr.vertices()).map(count).unzip()
}

#[test]
fn triangles_and_coefficients_are_those_of_all_neighbourhoods() {
    for (i, Shape { name, csr }) in dense_shapes().into_iter().enumerate() {
        let graph = placed(i, &csr);
        let (arcs, neighbours) = serial_arcs(&csr);
        let of_edge = if csr.directed() { 1.0 } else { 2.0 };
        let coefficient = |v: usize| match neighbours[v] as f64 {
            d if d < 2.0 => 0.0,
            d => of_edge * arcs[v] as f64 / (d * (d - 1.0)),
        };
        let mut run = Clustering::new(&graph).unwrap();
        let first = run.run_on_device().unwrap();
        let result = run.run().unwrap();
        assert_eq!(result.coefficient, (0..arcs.len()).map(coefficient).collect::<Vec<_>>(), "{name}");
        assert_eq!(first.into_host().unwrap().coefficient, result.coefficient, "{name}");
        let transpose = csr.directed().then(|| csr.transpose());
        verify::clustering(&csr, transpose.as_ref(), &result.coefficient).unwrap();
        assert!(result.io.is_some() == graph.is_stored());
        if csr.directed() {
            continue;
        }
        let mut run = Triangles::new(&graph).unwrap();
        let first = run.run_on_device().unwrap();
        let result = run.run().unwrap();
        assert_eq!(result.triangles, arcs, "{name}");
        assert_eq!(first.into_host().unwrap().triangles, arcs, "{name}");
        let taken = result.steps.iter().filter(|s| s.name == "count").map(|s| s.vertices);
        // Each pass takes every vertex once. From memory there is one.
        let taken: u64 = taken.sum();
        assert!(taken == csr.vertices() || graph.is_stored() && taken.is_multiple_of(csr.vertices()), "{name}");
        verify::triangles(&csr, &arcs, result.total).unwrap();
    }
}

#[test]
fn core_numbers_are_those_of_serial_peeling() {
    for (i, Shape { name, csr }) in dense_shapes().into_iter().enumerate() {
        let graph = placed(i, &csr);
        let mut run = Cores::new(&graph).unwrap();
        let first = run.run_on_device().unwrap();
        let result = run.run().unwrap();
        let transpose = csr.directed().then(|| csr.transpose());
        verify::cores(&csr, transpose.as_ref(), &result.core).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(first.into_host().unwrap().core, result.core, "{name}");
        assert_eq!(result.largest, result.core.iter().copied().max().unwrap_or(0), "{name}");
        for level in &result.levels {
            let vertices = result.core.iter().filter(|core| **core == level.core).count() as u64;
            assert_eq!(level.vertices, vertices, "{name}: core {}", level.core);
        }
        // Each list is read once, but for those of vertices without an edge to another one, whose core number is 0.
        let both = |v: usize| csr.degree(v as u64) + transpose.as_ref().map_or(0, |t| t.degree(v as u64));
        let peeled = (0..result.core.len()).filter(|v| result.core[*v] > 0).map(both);
        assert_eq!(result.scanned(), peeled.sum::<u64>(), "{name}");
    }
}

#[test]
fn lists_are_read_from_their_end_of_lower_degree() {
    // Every leaf has an edge to the hub. The list of the hub would be read for each of them.
    let edges: Vec<_> = (1..5000).map(|v| (0, v)).collect();
    for directed in [false, true] {
        let csr = Csr::from_edges(5000, &edges, CsrOptions::default().directed(directed)).unwrap();
        let graph = Graph::from_csr(&testing::cpu(), csr.clone(), Placement::Gpu).unwrap();
        // The list of the hub three times by each warp, which marks it, reads it and clears it.
        let result = graph.clustering().unwrap();
        assert!(result.scanned() <= 5 * graph.arcs(), "{} of {}", result.scanned(), graph.arcs());
        if directed {
            continue;
        }
        assert_eq!(graph.triangles().unwrap().scanned(), graph.arcs());
        // Lists that are not sorted by degree are marked.
        let graph = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::TRIANGLES).unwrap();
        let result = triangles(&graph).unwrap();
        assert!(result.scanned() <= 5 * graph.arcs(), "{} of {}", result.scanned(), graph.arcs());
    }
    // A complete graph has n over 3 triangles. Each is found once, by one edge that is read.
    let edges: Vec<_> = (0..200u64).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
    let csr = Csr::from_edges(200, &edges, CsrOptions::default()).unwrap();
    let graph = Graph::from_csr(&testing::cpu(), csr, Placement::Gpu).unwrap();
    let result = graph.triangles().unwrap();
    assert_eq!(result.total, 200 * 199 * 198 / 6);
    assert!(result.scanned() < 2 * graph.arcs() + result.total);
}

#[test]
fn wrong_calls_are_errors() {
    let engine = testing::cpu();
    let csr = Csr::from_edges(3, &[(0, 1), (1, 2)], CsrOptions::default().directed(true)).unwrap();
    let place = |csr: &Csr, needs| GraphOnEngine::place(&engine, csr, Placement::Gpu, needs).unwrap();
    let graph = place(&csr, PlacementOptions::ALL);
    assert!(matches!(triangles(&graph), Err(GraphError::Directed { algorithm: "triangle counting" })));
    let outward = place(&csr, PlacementOptions::TRIANGLES);
    for result in [clustering(&outward).map(drop), cores(&outward).map(drop)] {
        assert!(matches!(result, Err(GraphError::NotPlaced { missing: "in-neighbour lists", .. })), "{result:?}");
    }
    let undirected = Csr::from_edges(3, &[(0, 1), (1, 2)], CsrOptions::default()).unwrap();
    let weighted = place(&undirected, PlacementOptions::SSSP);
    for result in [triangles(&weighted).map(drop), clustering(&weighted).map(drop), cores(&weighted).map(drop)] {
        assert!(matches!(result, Err(GraphError::NotPlaced { missing: "neighbour lists", .. })), "{result:?}");
    }
}

/// Returns the values of tests/cli/networkx_counts.py.
fn networkx() -> Value {
    let text = std::fs::read_to_string(crate::tree::file("tests/cli/networkx_counts.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

fn are_close(found: &[f64], expected: &[f64]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12)
}

#[test]
fn random_graphs_are_those_of_networkx() {
    for (i, drawn) in networkx()["drawn"].as_array().unwrap().iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = String::new();
        for vertex in numbers(&drawn["vertices"]) {
            file += &format!("{vertex}\n");
        }
        std::fs::write(folder.path().join("g.v"), &file).unwrap();
        file.clear();
        for edge in drawn["edges"].as_array().unwrap() {
            file += &format!("{} {}\n", edge[0], edge[1]);
        }
        std::fs::write(folder.path().join("g.e"), &file).unwrap();
        let directed = drawn["directed"] == true;
        let orientation = if directed { Orientation::Directed } else { Orientation::Undirected };
        for keep_self_loops in [false, true] {
            let options = LoadOptions::default().orientation(orientation).keep_self_loops(keep_self_loops);
            let mut csr = import::load(&folder.path().join("g.v"), &options).unwrap().csr;
            if !i.is_multiple_of(3) {
                hub::order_by_degree(&mut csr);
            }
            let graph = placed(i / 2, &csr);
            assert_eq!(cores(&graph).unwrap().core, numbers(&drawn["cores"]), "graph {i}");
            let expected: Vec<f64> =
                drawn["coefficients"].as_array().unwrap().iter().map(|c| c.as_f64().unwrap()).collect();
            let found = clustering(&graph).unwrap().coefficient;
            assert!(are_close(&found, &expected), "graph {i}: {found:?}, not {expected:?}");
            if !directed {
                assert_eq!(triangles(&graph).unwrap().triangles, numbers(&drawn["triangles"]), "graph {i}");
            }
        }
    }
}

/// The example graphs and results of LDBC Graphalytics (`validation-graphs/example` of ldbc/ldbc_graphalytics).
#[test]
fn coefficients_of_the_examples_of_graphalytics() {
    let of_directed = [2.0 / 3.0, 1.0 / 6.0, 0.15, 0.05, 0.25, 0.0, 0.0, 5.0 / 6.0, 0.0, 0.0];
    let of_undirected = [1.0, 1.0 / 3.0, 1.0, 2.0 / 3.0, 0.2, 1.0, 2.0 / 3.0, 1.0, 0.0];
    for (edges, first, is_directed, expected) in
        [(&DIRECTED_EXAMPLE[..], 1, true, &of_directed[..]), (&UNDIRECTED_EXAMPLE[..], 2, false, &of_undirected[..])]
    {
        let edges: Vec<(u64, u64)> = edges.iter().map(|&(a, b)| (a - first, b - first)).collect();
        let csr = Csr::from_edges(expected.len() as u64, &edges, CsrOptions::default().directed(is_directed)).unwrap();
        let graph = Graph::from_csr(&testing::cpu(), csr, Placement::Gpu).unwrap();
        let found = graph.clustering().unwrap();
        assert!(are_close(&found.coefficient, expected), "{:?}", found.coefficient);
    }
}

#[test]
fn triangles_of_lists_that_exceed_the_cache_read_each_page_in_few_passes() {
    let engine = testing::cpu();
    let mut csr = Csr::from_edges(8000, &skewed(8000, 200_000, 5), CsrOptions::default()).unwrap();
    hub::order_by_degree(&mut csr);
    let placement = on_storage(&engine, &csr, PlacementOptions::TRIANGLES, "");
    let graph = GraphOnEngine::place(&engine, &csr, placement, PlacementOptions::TRIANGLES).unwrap();
    let result = triangles(&graph).unwrap();
    verify::triangles(&csr, &result.triangles, result.total).unwrap();
    // The cache has room for a quarter: eight passes, each of which reads the lists of the vertices and an eighth of all
    // once, and the pass that orders them.
    let read = result.io.unwrap().read_bytes / csr.neighbours().bytes().len() as u64;
    assert!(read <= 16, "each page was read {read} times");
}

#[test]
fn coefficients_of_lists_that_exceed_the_cache_read_each_page_in_few_passes() {
    let (engine, needs) = (testing::cpu(), PlacementOptions::CLUSTERING);
    let csr =
        Csr::from_edges(8000, &skewed(8000, 200_000, 5), CsrOptions { directed: true, ..Default::default() }).unwrap();
    let graph = GraphOnEngine::place(&engine, &csr, on_storage(&engine, &csr, needs, ""), needs).unwrap();
    let result = clustering(&graph).unwrap();
    verify::clustering(&csr, Some(&csr.transpose()), &result.coefficient).unwrap();
    // The cache has room for an eighth of both directions: sixteen passes, and two more since some have less than their share. Each
    // reads the lists of all vertices, and those of a part of their neighbours.
    let read = result.io.unwrap().read_bytes / (2 * csr.neighbours().bytes().len() as u64);
    assert!(read <= 24, "each page was read {read} times");
    let passes = result.steps.iter().map(|s| s.vertices).sum::<u64>() / csr.vertices();
    assert!((16..=20).contains(&passes), "{passes}");
}

#[test]
fn self_loops_of_a_stored_graph_are_not_counted() {
    for directed in [false, true] {
        // Names ascend, so that vertices keep their numbers.
        let lines: String = (0..70).map(|v| format!("{v} {v}\n{v} {}\n{v} {}\n", (v + 1) % 70, v * 7 % 70)).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("g.el");
        std::fs::write(&path, lines).unwrap();
        let drive = Drive::open("soft:mem:4M").unwrap();
        let volume = Volume::on(&testing::cpu(), [drive]).build().unwrap();
        let cache = Cache::on(&volume).bytes(1 << 20).build().unwrap();
        let orientation = if directed { Orientation::Directed } else { Orientation::Undirected };
        let options = LoadOptions::default().orientation(orientation);
        let stored = Graph::import(&cache, &"g".parse().unwrap(), &Input::File(path.clone()), &options).unwrap();
        let csr = import::load(&path, &options).unwrap().csr;
        assert!(stored.arcs() == csr.arcs() + 70, "each vertex has an edge to itself");
        let memory = Graph::from_csr(&testing::cpu(), csr, Placement::Gpu).unwrap();
        assert_eq!(stored.cores().unwrap().core, memory.cores().unwrap().core);
        assert_eq!(stored.clustering().unwrap().coefficient, memory.clustering().unwrap().coefficient);
        if !directed {
            assert_eq!(stored.triangles().unwrap().triangles, memory.triangles().unwrap().triangles);
        }
    }
}

#[test]
fn an_empty_graph_has_no_values() {
    for directed in [false, true] {
        let csr = Csr::from_edges(0, &[], CsrOptions::default().directed(directed)).unwrap();
        let graph = Graph::from_csr(&testing::cpu(), csr, Placement::Gpu).unwrap();
        assert_eq!(graph.clustering().unwrap().mean(), None);
        assert_eq!(graph.cores().unwrap().largest, 0);
        assert_eq!(graph.triangles().map(|r| r.total).ok(), (!directed).then_some(0));
    }
}
