//! Tests of the algorithms that compare neighbourhoods: triangles.

use super::algorithm_tests::{Shape, on_storage, shapes, skewed};
use super::*;
use crate::engine::testing;

/// Returns shapes of many triangles, and those of all algorithms.
fn undirected() -> Vec<Shape> {
    let mut shapes: Vec<Shape> = shapes().into_iter().filter(|s| !s.csr.directed()).collect();
    for wide in [false, true] {
        let options = CsrOptions { wide, keep_self_loops: true, ..CsrOptions::default() };
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
        // 1200 neighbours of higher rank, more than a marker holds at a time: each of the 1200 has a leaf more.
        let many = |v: u64| (0..1200).step_by(1 + v as usize % 7).map(move |h| (h, 1200 + v));
        let hubs = (0..1200u64).flat_map(|h| (h + 1..1200).step_by(37).map(move |g| (h, g)));
        add("lists of several parts", 1300, &hubs.chain((0..100).flat_map(many)).collect::<Vec<_>>());
        add("skewed and dense", 400, &skewed(400, 30_000, 11));
    }
    shapes
}

fn serial_triangles(csr: &Csr) -> Vec<u64> {
    let mut counts = vec![0; csr.vertices() as usize];
    let mut near = vec![false; counts.len()];
    for v in 0..csr.vertices() {
        csr.neighbours_of(v).filter(|&n| n != v).for_each(|n| near[n as usize] = true);
        for n in csr.neighbours_of(v).filter(|&n| n != v) {
            counts[v as usize] += csr.neighbours_of(n).filter(|&m| m > n && near[m as usize]).count() as u64;
        }
        near.fill(false);
    }
    counts
}

#[test]
fn each_triangle_counts_once_at_each_of_its_vertices() {
    let engine = testing::cpu();
    for (i, Shape { name, csr }) in undirected().into_iter().enumerate() {
        let needs = PlacementOptions::TRIANGLES;
        if csr.order() == NeighbourOrder::ById { continue; } // TODO
        let placement = if i % 2 == 0 { Placement::Gpu } else { on_storage(&engine, &csr, needs, "") };
        let graph = GraphOnEngine::place(&engine, &csr, placement, needs).unwrap();
        let mut count = Triangles::new(&graph).unwrap();
        let expected = serial_triangles(&csr);
        for _ in 0..2 {
            let result = count.run().unwrap();
            assert_eq!(result.triangles, expected, "{name}");
            assert_eq!(result.total, expected.iter().sum::<u64>() / 3, "{name}");
            assert_eq!(result.steps.iter().skip(1).map(|s| s.vertices).sum::<u64>(), csr.vertices());
            assert!(result.scanned() >= csr.arcs(), "{name}");
        }
        verify::triangles(&csr, &expected, count.run().unwrap().total).unwrap();
    }
}

#[test]
fn lists_are_read_from_their_end_of_lower_degree() {
    // Every leaf has an edge to the hub. The list of the hub would be read for each of them.
    let csr = Csr::from_edges(5000, &(1..5000).map(|v| (0, v)).collect::<Vec<_>>(), CsrOptions::default()).unwrap();
    let graph = Graph::from_csr(&testing::cpu(), csr, Placement::Gpu).unwrap();
    let result = graph.triangles().unwrap();
    assert_eq!((result.total, result.scanned()), (0, graph.arcs()));
    // A complete graph has n over 3 triangles, and no list is longer than the number of vertices.
    let edges: Vec<_> = (0..200u64).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
    let csr = Csr::from_edges(200, &edges, CsrOptions::default()).unwrap();
    let graph = Graph::from_csr(&testing::cpu(), csr, Placement::Gpu).unwrap();
    let result = graph.triangles().unwrap();
    assert_eq!(result.total, 200 * 199 * 198 / 6);
    assert!(result.scanned() < 2 * graph.arcs() + result.total);
}

#[test]
fn a_directed_graph_has_no_triangles() {
    let engine = testing::cpu();
    let directed = CsrOptions::default().directed(true);
    let graph = Csr::from_edges(3, &[(0, 1), (1, 2)], directed).unwrap();
    let graph = GraphOnEngine::place(&engine, &graph, Placement::Gpu, PlacementOptions::ALL).unwrap();
    assert!(matches!(triangles(&graph), Err(GraphError::Directed { algorithm: "triangle counting" })));
    let undirected = Csr::from_edges(3, &[(0, 1), (1, 2)], CsrOptions::default()).unwrap();
    let graph = GraphOnEngine::place(&engine, &undirected, Placement::Gpu, PlacementOptions::SSSP).unwrap();
    assert!(matches!(triangles(&graph), Err(GraphError::NotPlaced { .. })));
}
