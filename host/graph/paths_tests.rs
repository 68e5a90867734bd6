//! Tests searches that end at a vertex or at a distance, and the parents that they find.

use super::algorithm_tests::{on_storage, serial_depths, shapes, sources};
use super::*;
use crate::engine::testing;

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
    assert_eq!(verify::bfs(&csr, search, &[0, 1, 2]), Err(verify::VerifyError::Target { vertex: 3, vertices: 3 }));
}
