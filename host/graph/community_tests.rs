//! Compares strongly connected components, betweenness centrality and label propagation with serial algorithms, on the shapes
//! of `algorithm_tests`.

use super::algorithm_tests::{
    DIRECTED_EXAMPLE, UNDIRECTED_EXAMPLE, in_edges, is_due, serial_components, serial_depths, shapes, sources,
};
use super::*;
use crate::engine::testing;

#[test]
fn strong_components_are_tarjans() {
    let engine = testing::cpu();
    let strong = ComponentsOptions::default().strong(true);
    for shape in shapes() {
        let placed = PlacementOptions::STRONG_COMPONENTS;
        let graph = GraphOnEngine::place(&engine, &shape.csr, Placement::Gpu, placed).unwrap();
        let result = components(&graph, &strong).unwrap();
        let expected = verify::strongly_connected_components(&shape.csr);
        assert_eq!(result.label, expected, "{}", shape.name);
        let roots = expected.iter().enumerate().filter(|&(v, l)| v as u64 == *l).count();
        assert_eq!(result.components, roots as u64, "{}", shape.name);
        assert!(shape.csr.directed() || expected == serial_components(&shape.csr), "{}", shape.name);
    }
}

#[test]
fn chains_of_strong_components_take_few_rounds() {
    let pairs = 400;
    // Pairs of vertices, each leading to the next: neither degrees nor a pivot resolve them.
    for up in [true, false] {
        let place = |v: u64| if up { v } else { 2 * pairs - 1 - v };
        let inside = (0..pairs).flat_map(|i| [(2 * i, 2 * i + 1), (2 * i + 1, 2 * i)]);
        let between = (1..pairs).map(|i| (2 * i - 1, 2 * i));
        let edges: Vec<_> = inside.chain(between).map(|(a, b)| (place(a), place(b))).collect();
        let csr = Csr::from_edges(2 * pairs, &edges, CsrOptions::default().directed(true)).unwrap();
        let graph = Graph::from_csr(&testing::cpu(), csr.clone(), Placement::Gpu).unwrap();
        let result = graph.components_with(&ComponentsOptions::default().strong(true)).unwrap();
        verify::strong_components(&csr, &result.label).unwrap();
        assert_eq!(result.components, pairs);
        assert!(result.phases.len() < 40, "{} phases", result.phases.len());
    }
}

fn check_scores(name: &str, found: &[f64], expected: &[f64]) {
    for (v, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-9 * b.max(1.0), "{name}: vertex {v} has {a}, not {b}");
    }
}

#[test]
fn scores_are_those_of_brandes() {
    let engine = testing::cpu();
    for shape in shapes() {
        let graph = GraphOnEngine::place(&engine, &shape.csr, Placement::Gpu, PlacementOptions::BETWEENNESS).unwrap();
        let mut run = Betweenness::new(&graph).unwrap();
        let sources = sources(&shape.csr);
        for some in [&sources[..], &sources[..1], &[]] {
            let result = run.run(some).unwrap();
            check_scores(shape.name, &result.score, &verify::betweenness_scores(&shape.csr, some).unwrap());
            verify::betweenness(&shape.csr, some, &result.score).unwrap();
            for report in &result.sources {
                let depths = serial_depths(&shape.csr, report.source);
                let reached = depths.iter().filter(|d| **d != UNREACHED);
                assert_eq!(report.reached, reached.clone().count() as u64, "{}", shape.name);
                assert_eq!(Some(&report.levels), reached.max(), "{}", shape.name);
            }
        }
    }
}

#[test]
fn more_paths_than_numbers_count_are_an_error() {
    // Two ways at each of 1100 steps: 2^1100 paths, which is more than 2^1024.
    let steps = 1100;
    let edges: Vec<_> = (0..steps)
        .flat_map(|i| [(3 * i, 3 * i + 1), (3 * i, 3 * i + 2), (3 * i + 1, 3 * i + 3), (3 * i + 2, 3 * i + 3)])
        .collect();
    let csr = Csr::from_edges(3 * steps + 1, &edges, CsrOptions::default()).unwrap();
    let graph = Graph::from_csr(&testing::cpu(), csr.clone(), Placement::Gpu).unwrap();
    let many = graph.betweenness(&[0]).unwrap_err();
    assert!(matches!(many, GraphError::TooManyPaths { source_vertex: 0 }), "{many}");
    // From the middle there are fewer.
    let middle = [3 * steps / 2];
    verify::betweenness(&csr, &middle, &graph.betweenness(&middle).unwrap().score).unwrap();
}

#[test]
fn labels_are_those_of_the_synchronous_rule() {
    let engine = testing::cpu();
    for (i, shape) in shapes().into_iter().enumerate() {
        let csr = &shape.csr;
        let graph = GraphOnEngine::place(&engine, csr, Placement::Gpu, PlacementOptions::CDLP).unwrap();
        let turned = in_edges(csr);
        // The work space for one vertex at a time, for several batches, and for all.
        let variants = [(1, 0), (2, 20_000), (10, 64 << 20)];
        for (_, (iterations, work_space)) in variants.into_iter().enumerate().filter(|(k, _)| is_due(i, *k, 3)) {
            // One batch for each vertex takes long.
            if work_space == 0 && csr.vertices() > 100 {
                continue;
            }
            let mut run = Cdlp::new(&graph, &CdlpOptions { iterations, work_space }).unwrap();
            let expected = verify::propagated_labels(csr, Some(&turned), iterations);
            for _ in 0..2 {
                let result = run.run().unwrap();
                assert_eq!(result.label, expected, "{}", shape.name);
                let mut labels = expected.clone();
                labels.sort_unstable();
                labels.dedup();
                assert_eq!(result.communities, labels.len() as u64, "{}", shape.name);
            }
        }
    }
}

#[test]
fn labels_are_those_of_the_examples_of_graphalytics() {
    // The examples of the specification, whose results are after two iterations.
    let cases = [
        (true, &DIRECTED_EXAMPLE[..], &[0, 1, 2, 3, 4, 1, 1, 2, 3, 2, 1][..]),
        (false, &UNDIRECTED_EXAMPLE, &[0, 1, 2, 3, 2, 2, 6, 5, 2, 5, 5]),
    ];
    for (directed, edges, labels) in cases {
        let csr = Csr::from_edges(11, edges, CsrOptions { directed, ..Default::default() }).unwrap();
        let graph = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::CDLP).unwrap();
        let result = cdlp(&graph, &CdlpOptions::default().iterations(2)).unwrap();
        assert_eq!(result.label, labels);
        verify::cdlp(&csr, Some(&csr.transpose()), 2, labels).unwrap();
    }
}
