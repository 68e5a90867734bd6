//! Tests searches that end at a vertex or at a distance, and the parents that they find.

use super::algorithm_tests::{on_storage, random, serial_depths, shapes, sources};
use super::*;
use crate::engine::testing;
use crate::test_cases::all_are_wanted;

/// Returns the depths that a search may have if `last` is the largest.
fn within(depths: &[u32], last: u32) -> Vec<u32> {
    depths.iter().map(|d| if *d > last { UNREACHED } else { *d }).collect()
}

#[test]
fn a_search_ends_at_its_target_or_its_depth() {
    let engine = testing::cpu();
    for (i, shape) in shapes().into_iter().enumerate() {
        let csr = &shape.csr;
        let placement = if i % 3 == 0 { on_storage(&engine, csr, PlacementOptions::BFS, "") } else { Placement::Gpu };
        let graph = GraphOnEngine::place(&engine, csr, placement, PlacementOptions::BFS).unwrap();
        for source in sources(csr).into_iter().take(2) {
            let all = serial_depths(csr, source);
            for target in sources(csr) {
                for (alpha, max_depth) in [(0, None), (15, Some(2)), (u64::MAX, Some(0)), (u64::MAX, Some(40))] {
                    let options = BfsOptions::default().alpha(alpha).target(Some(target)).max_depth(max_depth);
                    let found = bfs(&graph, source, &options).unwrap();
                    // The target is not reached if it is unreachable or too deep.
                    let last = all[target as usize].min(max_depth.unwrap_or(UNREACHED - 1));
                    assert_eq!(found.depth, within(&all, last), "{}: {source} to {target}, {options:?}", shape.name);
                    let limit = max_depth.map(f64::from);
                    let search = verify::Search { source, target: Some(target), limit };
                    verify::bfs_parents(csr, search, &found.depth, found.parent.as_ref().unwrap()).unwrap();
                    let path = found.path_to(target);
                    match found.depth[target as usize] {
                        UNREACHED => assert_eq!(path, None),
                        depth => check_path(csr, &path.unwrap(), source, target, depth),
                    }
                    // Depths of another search are not taken for those of this one.
                    if within(&all, last) != all {
                        verify::bfs(csr, search, &all).unwrap_err();
                        verify::bfs(csr, source, &found.depth).unwrap_err();
                    }
                }
            }
        }
    }
}

fn check_path(csr: &Csr, path: &[u64], source: u64, target: u64, depth: u32) {
    assert_eq!((path.first(), path.last(), path.len()), (Some(&source), Some(&target), depth as usize + 1));
    assert!(path.windows(2).all(|arc| csr.has_arc(arc[0], arc[1])), "{path:?}");
}

#[test]
fn targets_that_do_not_exist_are_errors() {
    let csr = Csr::from_weighted_edges(3, &[(0, 1, 1), (1, 2, 1)], CsrOptions::default()).unwrap();
    let graph = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::ALL).unwrap();
    let error = Bfs::new(&graph, &BfsOptions::default().target(Some(3))).unwrap_err();
    assert_eq!(error.to_string(), "vertex 3 does not exist: the graph has 3 vertices, numbered from 0");
    let search = verify::Search { target: Some(3), ..0.into() };
    assert_eq!(
        verify::bfs(&csr, search, &[0, 1, 2]),
        Err(verify::VerifyError::NoSuchVertex { vertex: 3, vertices: 3 })
    );
}

/// Searches and checks distances, parents and paths, with and without limits.
fn check_paths(name: &str, csr: &Csr, graph: &GraphOnEngine) {
    for delta in [None, Some(1e9)] {
        for source in sources(csr).into_iter().take(2) {
            let all = match sssp(graph, source, &SsspOptions::default().delta(delta)).unwrap().distance {
                Distances::Integer(d) => {
                    d.iter().map(|d| if *d == u64::MAX { f64::INFINITY } else { *d as f64 }).collect()
                }
                Distances::Real(d) => d,
            };
            for target in [None, Some(sources(csr)[2])] {
                let to_target = target.map_or(f64::INFINITY, |v| all[v as usize]);
                for limit in [None, Some(0.0), Some(3.5), Some(to_target).filter(|d| d.is_finite()), Some(1e300)] {
                    let options = SsspOptions::default().delta(delta).parents(true).target(target).max_distance(limit);
                    let found = sssp(graph, source, &options).unwrap();
                    let what = format!("{name}: {source}, {options:?}");
                    let parent = found.parent.as_ref().unwrap();
                    let distance = |v: usize| match &found.distance {
                        Distances::Integer(d) => Some(d[v]).filter(|d| *d != u64::MAX).map(|d| d as f64),
                        Distances::Real(d) => Some(d[v]).filter(|d| d.is_finite()),
                    };
                    let last = to_target.min(limit.unwrap_or(f64::INFINITY));
                    for (v, right) in all.iter().copied().enumerate() {
                        let expected = Some(right).filter(|d| d.is_finite() && *d <= last);
                        assert_eq!(distance(v), expected, "{what}, vertex {v}");
                        let path = found.path_to(v as u64);
                        assert_eq!(path.is_some(), expected.is_some(), "{what}, vertex {v}");
                        let path = path.unwrap_or_default();
                        assert!(path.windows(2).all(|arc| csr.has_arc(arc[0], arc[1])), "{what}: {path:?}");
                    }
                    let search = verify::Search { source, target, limit };
                    let found = match &found.distance {
                        Distances::Integer(d) => verify::sssp_parents(csr, search, verify::Distances::U64(d), parent),
                        Distances::Real(d) => verify::sssp_parents(csr, search, verify::Distances::F64(d), parent),
                    };
                    assert_eq!(found, Ok(()), "{what}");
                }
            }
        }
    }
}

#[test]
fn parents_lead_along_shortest_paths_also_over_weights_of_zero() {
    let engine = testing::cpu();
    for (i, shape) in shapes().into_iter().enumerate() {
        if shape.csr.vertices() > 1000 && !all_are_wanted() && (i + i / 12) % 2 == 0 {
            continue;
        }
        let mut next = random(7 + i as u64);
        let mut drawn = |most: u64| next(most);
        let arcs: Vec<(u64, u64)> =
            (0..shape.csr.vertices()).flat_map(|v| shape.csr.neighbours_of(v).map(move |n| (v, n))).collect();
        let wide = shape.csr.neighbours().as_u64().is_some();
        let options = CsrOptions { directed: shape.csr.directed(), keep_self_loops: true, wide };
        let vertices = shape.csr.vertices();
        // Most weights are 0: vertices form groups of equal distances, with circles.
        let csr = match i % 3 {
            0 => {
                let edges: Vec<_> = arcs.iter().map(|&(a, b)| (a, b, drawn(5).saturating_sub(3) as u32)).collect();
                Csr::from_weighted_edges(vertices, &edges, options)
            }
            1 => {
                let edges: Vec<_> =
                    arcs.iter().map(|&(a, b)| (a, b, drawn(5).saturating_sub(3) as f32 / 3.0)).collect();
                Csr::from_real_edges(vertices, &edges, options)
            }
            // Some weights are lost when they are added to others.
            _ => {
                let edges: Vec<_> =
                    arcs.iter().map(|&(a, b)| (a, b, [1e-9, 0.0, 7.5, 1e9][drawn(4) as usize])).collect();
                Csr::from_real_edges(vertices, &edges, options)
            }
        }
        .unwrap();
        let placement = if i % 2 == 0 { on_storage(&engine, &csr, PlacementOptions::SSSP, "") } else { Placement::Gpu };
        let graph = GraphOnEngine::place(&engine, &csr, placement, PlacementOptions::SSSP).unwrap();
        check_paths(shape.name, &csr, &graph);
    }
}

#[test]
fn options_of_shortest_paths_are_checked() {
    let csr = Csr::from_weighted_edges(3, &[(0, 1, 1), (1, 2, 1)], CsrOptions::default()).unwrap();
    let graph = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::SSSP).unwrap();
    let error = |options: SsspOptions| Sssp::new(&graph, &options).unwrap_err().to_string();
    assert_eq!(
        error(SsspOptions::default().target(Some(3))),
        "vertex 3 does not exist: the graph has 3 vertices, numbered from 0"
    );
    assert_eq!(
        error(SsspOptions::default().max_distance(Some(-1.0))),
        "the largest distance is -1, it must be 0 or more"
    );
    // Without the option there are no parents, and none are read.
    let plain = sssp(&graph, 0, &SsspOptions::default()).unwrap();
    assert_eq!((plain.parent.as_ref(), plain.parents_scanned, plain.path_to(2)), (None, 0, None));
}

#[test]
fn parents_of_earlier_runs_stay() {
    let csr = Csr::from_weighted_edges(4, &[(0, 1, 1), (1, 2, 0), (2, 3, 1)], CsrOptions::default()).unwrap();
    let graph = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::SSSP).unwrap();
    let mut search = Sssp::new(&graph, &SsspOptions::default().parents(true)).unwrap();
    let (first, second) = (search.run_on_device(0).unwrap(), search.run(3).unwrap());
    assert_eq!(second.parent.unwrap(), [1, 2, 3, 3]);
    assert_eq!(first.into_host().unwrap().parent.unwrap(), [0, 0, 1, 2]);
}
