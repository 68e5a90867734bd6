//! Compares algorithms over mirrored parts with those over the whole graph on one PE.

use super::*;
use crate::engine::{Engine, RunError, testing};
use crate::graph::algorithm_tests::{is_due, serial_components, shapes, skewed, uniform};
use crate::graph::{
    BfsOptions, CdlpOptions, CdlpResult, ComponentsOptions, ComponentsResult, Csr, CsrOptions, Distances, GraphError,
    GraphOnEngine, PageRankOptions, PageRankResult, Placement, PlacementOptions, SsspOptions, SsspResult, bfs, cdlp,
    clustering, components, pagerank, sssp, triangles, verify,
};
use crate::shmem::World;
use crate::storage::{Cache, Drive, Volume};
use std::time::Duration;

/// Runs `work` on every PE of a world, each on a thread of its own, over its part of the graph.
fn on_pes<R: Send>(
    csr: &Csr,
    (pes, threads): (usize, usize),
    needs: PlacementOptions,
    placement: impl Fn(&World, &MirroredPart) -> Placement + Sync,
    work: impl Fn(&World, GraphOnEngine) -> R + Sync,
) -> Vec<R> {
    let plan = PartitionPlan::new(csr, pes, true);
    let engines = (0..pes).map(|_| Engine::builder().threads(threads).cpu().unwrap()).collect();
    let worlds = World::local_on(engines, plan.mirrored_heap_bytes()).unwrap();
    let one = |world: World| {
        let part = plan.mirrored_part(world.my_pe()).unwrap();
        let graph = GraphOnEngine::place_mirrored(&world, &part, placement(&world, &part), needs).unwrap();
        work(&world, graph)
    };
    std::thread::scope(|s| {
        let one = &one;
        let threads: Vec<_> = worlds.into_iter().map(|world| s.spawn(move || one(world))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Runs an algorithm on several PEs, twice. Returns the second result, which all PEs have.
fn run<R: Send>(
    csr: &Csr,
    pes: usize,
    needs: PlacementOptions,
    twice: impl Fn(&GraphOnEngine) -> R + Sync,
    same: impl Fn(&R, &R) -> bool,
) -> R {
    let mut all = on_pes(csr, (pes, 1 + pes % 2), needs, |_, _| Placement::Gpu, |_, graph| twice(&graph));
    let last = all.pop().unwrap();
    assert!(all.iter().all(|other| same(other, &last)), "all PEs have the same result");
    last
}

/// Returns a placement of this PE's part on a device in memory that just holds it, with a cache for a quarter of its edges.
fn on_storage(world: &World, part: &MirroredPart, needs: PlacementOptions, spec: &str) -> Placement {
    let bytes = part.plan(needs).bytes().next_multiple_of(4096);
    let drive = Drive::open(&format!("soft:mem:{bytes}{spec}")).unwrap();
    let volume = Volume::on(world.engine(), [drive]).queues(1).depth(64).build().unwrap();
    let cache = (part.edge_bytes(needs) / 4).max(16 << 10);
    Placement::Storage(Cache::on(&volume).bytes(cache).page(512).build().unwrap())
}

fn labels(graph: &GraphOnEngine) -> ComponentsResult {
    components(graph, &ComponentsOptions::default()).unwrap()
}

fn communities(graph: &GraphOnEngine) -> CdlpResult {
    cdlp(graph, &CdlpOptions::default().work_space(4096)).unwrap()
}

fn ranks(graph: &GraphOnEngine) -> PageRankResult {
    pagerank(graph, &PageRankOptions::default().tolerance(Some(1e-9)).personalization(vec![(0, 1.0), (1, 2.0)]))
        .unwrap()
}

/// Adds a weight to each edge: small integers, of which some are 0.
fn weighted(csr: &Csr, of: impl Fn(u64) -> u32) -> Csr {
    let list = |v: u64| csr.neighbours_of(v).map(move |n| (v, n));
    let edges: Vec<_> = (0..csr.vertices())
        .flat_map(list)
        .filter(|(v, n)| csr.directed() || v <= n)
        .map(|(v, n)| (v, n, of(v.min(n) * 31 + v.max(n))))
        .collect();
    let wide = csr.neighbours().as_u64().is_some();
    Csr::from_weighted_edges(
        csr.vertices(),
        &edges,
        CsrOptions { directed: csr.directed(), wide, ..Default::default() },
    )
    .unwrap()
}

#[test]
fn components_and_communities_are_those_of_one_pe() {
    for (i, shape) in shapes().iter().enumerate() {
        let csr = &shape.csr;
        let alone = GraphOnEngine::place(&testing::cpu(), csr, Placement::Gpu, PlacementOptions::CDLP).unwrap();
        let expected = communities(&alone);
        for (k, pes) in [1, 2, 3, 4, 7].into_iter().enumerate() {
            if !is_due(i, k, 5) {
                continue;
            }
            let what = format!("{} on {pes} PEs", shape.name);
            let found = run(csr, pes, PlacementOptions::COMPONENTS, labels, |a, b| a.label == b.label);
            assert_eq!(found.label, serial_components(csr), "{what}");
            verify::components(csr, &found.label).unwrap();
            let roots = (0..csr.vertices()).filter(|&v| found.label[v as usize] == v).count() as u64;
            assert_eq!(found.components, roots, "{what}");
            let found = run(csr, pes, PlacementOptions::CDLP, communities, |a, b| a.label == b.label);
            assert_eq!(found.label, expected.label, "{what}");
            assert_eq!(found.communities, expected.communities, "{what}");
            let counts = |r: &CdlpResult| r.iterations.iter().map(|i| (i.changed, i.scanned)).collect::<Vec<_>>();
            assert_eq!(counts(&found), counts(&expected), "{what}");
        }
    }
}

#[test]
fn coefficients_and_triangles_are_those_of_one_pe() {
    let needs = PlacementOptions::CLUSTERING;
    for (i, shape) in shapes().iter().enumerate() {
        let csr = &shape.csr;
        let alone = GraphOnEngine::place(&testing::cpu(), csr, Placement::Gpu, needs).unwrap();
        let expected = clustering(&alone).unwrap();
        for (k, pes) in [1, 2, 3, 4, 7].into_iter().enumerate() {
            if !is_due(i, k, 5) {
                continue;
            }
            let what = format!("{} on {pes} PEs", shape.name);
            let both = |graph: &GraphOnEngine| {
                let mut each = crate::graph::Clustering::new(graph).unwrap();
                let first = each.run().unwrap();
                let second = each.run().unwrap();
                assert!(first.coefficient == second.coefficient, "each run begins anew");
                second
            };
            let found = run(csr, pes, needs, both, |a, b| a.coefficient == b.coefficient);
            assert!(found.coefficient == expected.coefficient, "{what}");
            verify::clustering(csr, csr.directed().then(|| csr.transpose()).as_ref(), &found.coefficient).unwrap();
            if csr.directed() {
                continue;
            }
            let expected = triangles(&alone).unwrap();
            let count = |graph: &GraphOnEngine| triangles(graph).unwrap();
            let found = run(csr, pes, needs, count, |a, b| a.triangles == b.triangles && a.total == b.total);
            assert_eq!((found.total, &found.triangles), (expected.total, &expected.triangles), "{what}");
            // Every PE knows how many vertices all have taken, of which each message takes all.
            let taken: u64 = found.steps.iter().filter(|s| s.name == "count").map(|s| s.vertices).sum();
            assert!(taken.is_multiple_of(csr.vertices().max(1)), "{what}: {taken}");
            // Lists that exceed a message come in several.
            assert!(taken > csr.vertices() || pes == 1 || csr.arcs() < 4 * csr.vertices(), "{what}: {taken}");
        }
    }
}

#[test]
fn ranks_are_those_of_one_pe() {
    for (i, shape) in shapes().iter().enumerate().filter(|(_, s)| s.csr.vertices() > 1) {
        let csr = &shape.csr;
        let alone = GraphOnEngine::place(&testing::cpu(), csr, Placement::Gpu, PlacementOptions::PAGERANK).unwrap();
        let expected = ranks(&alone);
        for (k, pes) in [1, 2, 3, 5].into_iter().enumerate() {
            if !is_due(i, k, 4) {
                continue;
            }
            let found = run(csr, pes, PlacementOptions::PAGERANK, ranks, |a, b| a.rank == b.rank);
            assert_eq!(found.iterations.len(), expected.iterations.len(), "{} on {pes} PEs", shape.name);
            let away: f64 = found.rank.iter().zip(&expected.rank).map(|(a, b)| (a - b).abs()).sum();
            assert!(away < 1e-12, "{} on {pes} PEs: {away}", shape.name);
            let scanned = |r: &PageRankResult| r.iterations.iter().map(|i| i.scanned).collect::<Vec<_>>();
            assert_eq!(scanned(&found), scanned(&expected), "{} on {pes} PEs", shape.name);
        }
    }
}

#[test]
fn distances_and_parents_are_those_of_shortest_paths() {
    let zero_and_more = |hash: u64| (hash % 4) as u32;
    let large = |hash: u64| 1 << (hash % 20);
    for (i, shape) in shapes().iter().enumerate().filter(|(_, s)| s.csr.vertices() > 0) {
        let csr = if i % 2 == 0 { weighted(&shape.csr, zero_and_more) } else { weighted(&shape.csr, large) };
        let last = csr.vertices() - 1;
        let alone = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::SSSP).unwrap();
        for (k, pes) in [1, 2, 3, 6].into_iter().enumerate() {
            if !is_due(i, k, 4) {
                continue;
            }
            for (source, options) in [
                (0, SsspOptions::default().parents(true)),
                (last, SsspOptions::default().delta(Some(1.0)).parents(true).target(Some(last / 2))),
                (last / 2, SsspOptions::default().max_distance(Some(9.0))),
            ] {
                let what = format!("{} from {source} on {pes} PEs", shape.name);
                let search = |graph: &GraphOnEngine| -> SsspResult { sssp(graph, source, &options).unwrap() };
                let found = run(&csr, pes, PlacementOptions::SSSP, search, |a, b| {
                    a.distance == b.distance && a.parent == b.parent
                });
                assert_eq!(found.distance, search(&alone).distance, "{what}");
                let Distances::Integer(distances) = &found.distance else { panic!("integers") };
                let limit = options.max_distance;
                let search = verify::Search { source, target: options.target, limit };
                match &found.parent {
                    Some(parents) => {
                        verify::sssp_parents(&csr, search, verify::Distances::U64(distances), parents).unwrap()
                    }
                    None => verify::sssp(&csr, search, verify::Distances::U64(distances)).unwrap(),
                }
            }
        }
    }
}

#[test]
fn real_distances_are_those_of_one_pe() {
    for directed in [false, true] {
        let edges: Vec<_> =
            skewed(1500, 6000, 3).into_iter().map(|(u, v)| (u, v, ((u * 7 + v) % 100) as f32 / 64.0)).collect();
        let csr = Csr::from_real_edges(1500, &edges, CsrOptions { directed, ..Default::default() }).unwrap();
        let alone = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::SSSP).unwrap();
        let options = SsspOptions::default().parents(true);
        let search = |graph: &GraphOnEngine| sssp(graph, 5, &options).unwrap();
        let found =
            run(&csr, 3, PlacementOptions::SSSP, search, |a, b| a.distance == b.distance && a.parent == b.parent);
        let expected = search(&alone);
        assert_eq!(found.distance, expected.distance);
        assert_eq!(found.delta, expected.delta);
        let Distances::Real(distances) = &found.distance else { panic!("reals") };
        verify::sssp_parents(&csr, 5, verify::Distances::F64(distances), found.parent.as_deref().unwrap()).unwrap();
    }
}

#[test]
fn edges_on_each_pes_own_volume() {
    for directed in [false, true] {
        let csr =
            Csr::from_edges(2000, &skewed(2000, 12_000, 8), CsrOptions { directed, ..Default::default() }).unwrap();
        let csr = weighted(&csr, |hash| 1 + (hash % 7) as u32);
        let needs = PlacementOptions::ALL;
        let all = on_pes(
            &csr,
            (3, 1),
            needs,
            |world, part| {
                let placement = on_storage(world, part, needs, "");
                let Placement::Storage(cache) = &placement else { panic!("storage") };
                part.check_volume(cache.volume(), needs).unwrap();
                placement
            },
            |_, graph| {
                let reads = |io: Option<crate::storage::Stats>| assert!(io.unwrap().reads > 0);
                let found = labels(&graph);
                reads(found.io);
                let paths = sssp(&graph, 9, &SsspOptions::default()).unwrap();
                reads(paths.io);
                let near = clustering(&graph).unwrap();
                reads(near.io);
                (found.label, communities(&graph).label, ranks(&graph).rank, paths.distance, near.coefficient)
            },
        );
        let alone = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, needs).unwrap();
        for (label, community, rank, distance, coefficient) in &all {
            assert_eq!(*label, serial_components(&csr));
            assert_eq!(*community, communities(&alone).label);
            assert!(rank.iter().zip(&ranks(&alone).rank).all(|(a, b)| (a - b).abs() < 1e-12));
            assert_eq!(*distance, sssp(&alone, 9, &SsspOptions::default()).unwrap().distance);
            assert!(*coefficient == clustering(&alone).unwrap().coefficient);
        }
    }
}

#[test]
fn a_failure_of_one_pe_ends_the_run_on_all() {
    let csr = Csr::from_edges(3000, &uniform(3000, 24_000, 6), CsrOptions::default()).unwrap();
    let csr = weighted(&csr, |_| 1);
    let needs = PlacementOptions::ALL;
    let run_each = |graph: &GraphOnEngine| {
        [
            components(graph, &ComponentsOptions::default().giant(2.0)).map(drop),
            cdlp(graph, &CdlpOptions::default()).map(drop),
            pagerank(graph, &PageRankOptions::default()).map(drop),
            sssp(graph, 0, &SsspOptions::default()).map(drop),
            clustering(graph).map(drop),
            triangles(graph).map(drop),
        ]
    };
    let bad_blocks = |world: &World, part: &MirroredPart| {
        let placement = on_storage(world, part, needs, "");
        if world.my_pe() != 2 {
            return placement;
        }
        // All that the last PE has stored lies on bad blocks.
        GraphOnEngine::place_mirrored(world, part, placement.clone(), needs).unwrap();
        let Placement::Storage(cache) = placement else { panic!("storage") };
        let manifest = cache.volume().manifest().unwrap();
        let bad = |name: &str| {
            let entry = manifest.entries().iter().find(|e| e.name == name).unwrap();
            format!(",media-error=read:{}-{}", entry.offset / 512, entry.end() / 512)
        };
        on_storage(world, part, needs, &(bad("neighbours") + &bad("weighted-neighbours")))
    };
    let errors = on_pes(&csr, (3, 1), needs, bad_blocks, |_, graph| {
        graph.cool().unwrap();
        run_each(&graph).map(Result::unwrap_err)
    });
    let (failed, others) = errors.split_last().unwrap();
    for error in failed {
        assert!(matches!(error, GraphError::Run(RunError::Operations { .. })), "{error:?}");
    }
    for error in others.iter().flatten() {
        assert!(matches!(error, GraphError::OtherPe { pe: 2 }), "{error:?}");
    }
}

#[test]
fn a_pe_that_is_gone_ends_the_others_within_their_deadline() {
    let csr = Csr::from_edges(500, &uniform(500, 3000, 7), CsrOptions::default()).unwrap();
    let errors = on_pes(
        &csr,
        (2, 1),
        PlacementOptions::PAGERANK,
        |_, _| Placement::Gpu,
        |world, graph| {
            world.engine().set_deadline(Duration::from_millis(200)).unwrap();
            let mut ranks = crate::graph::PageRank::new(&graph, &PageRankOptions::default()).unwrap();
            if world.my_pe() == 1 {
                return None;
            }
            let first = ranks.run().unwrap_err();
            // Nobody knows at which step the other PE is.
            assert!(matches!(ranks.run(), Err(GraphError::OutOfStep)));
            Some(first)
        },
    );
    match &errors[0] {
        Some(GraphError::Run(RunError::Operations { errors, .. })) => assert_eq!(errors[0].device, 1, "{errors:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_calls_are_errors() {
    let csr = Csr::from_edges(4, &[(0, 1), (1, 2)], CsrOptions::default()).unwrap();
    let two = PartitionPlan::new(&csr, 2, true);
    assert!(matches!(two.mirrored_part(2), Err(GraphError::OtherWorld { partitioned: 2, pes: 3 })));
    on_pes(
        &csr,
        (2, 1),
        PlacementOptions::ALL,
        |_, _| Placement::Gpu,
        |world, graph| {
            let pe = world.my_pe();
            let place = |part: &MirroredPart| {
                GraphOnEngine::place_mirrored(world, part, Placement::Gpu, PlacementOptions::ALL).unwrap_err()
            };
            let other = place(&two.mirrored_part(1 - pe).unwrap());
            assert!(matches!(other, GraphError::OtherWorld { partitioned: 2, pes: 2 }));
            let three = PartitionPlan::new(&csr, 3, true);
            assert!(matches!(
                place(&three.mirrored_part(pe).unwrap()),
                GraphError::OtherWorld { partitioned: 3, pes: 2 }
            ));
            let error = bfs(&graph, 0, &BfsOptions::default()).unwrap_err().to_string();
            assert_eq!(
                error,
                "`Bfs`, unlike `PartitionedBfs`, runs on one PE, and this graph is distributed over the PEs of a world; place the whole graph on one engine"
            );
            assert!(matches!(crate::graph::cores(&graph), Err(GraphError::Distributed { .. })));
        },
    );
}
