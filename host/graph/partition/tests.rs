//! Compares partitioned searches with serial ones, on graphs of many difficult shapes.

use super::*;
use crate::engine::{Engine, RunError};
use crate::graph::algorithm_tests::{serial_depths, shapes, skewed, sources, uniform};
use crate::graph::{BfsOptions, BfsResult, Csr, CsrOptions, Direction, GraphError, Placement, UNREACHED, hub, verify};
use crate::shmem::World;
use crate::storage::{Cache, Drive, Volume};
use crate::test_cases::all_are_wanted;
use std::time::Duration;

/// Runs `work` on every PE of a world for searches over `plan`, each on a thread of its own. Returns the results of
/// `work`.
fn on_pes<R: Send>(plan: &PartitionPlan<'_>, threads: usize, work: impl Fn(World) -> R + Sync) -> Vec<R> {
    let engine = || Engine::builder().threads(threads).cpu().unwrap();
    let engines = (0..plan.pes()).map(|_| engine()).collect();
    let worlds = World::local_on(engines, plan.heap_bytes(&BfsOptions::default())).unwrap();
    let work = &work;
    std::thread::scope(|s| {
        let threads: Vec<_> = worlds.into_iter().map(|world| s.spawn(move || work(world))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Returns a placement of this PE's part on a device in memory that just holds it, with a cache for a quarter of its
/// edges.
fn on_storage(world: &World, part: &Part, spec: &str) -> Placement {
    let bytes = part.plan().bytes().next_multiple_of(4096);
    let drive = Drive::open(&format!("soft:mem:{bytes}{spec}")).unwrap();
    let volume = Volume::on(world.engine(), [drive]).queues(1).depth(64).build().unwrap();
    Placement::Storage(Cache::on(&volume).bytes((part.edge_bytes() / 4).max(16 << 10)).page(512).build().unwrap())
}

/// Searches from each source, one after another. Returns the results of PE 0.
fn search_all(
    plan: &PartitionPlan<'_>,
    options: &PartitionedBfsOptions,
    sources: &[u64],
    placement: impl Fn(&World, &Part) -> Placement + Sync,
) -> Vec<(BfsResult, u64)> {
    let mut all = on_pes(plan, 1, |world| {
        let part = plan.part(world.my_pe());
        let graph = PartitionedGraph::place(&world, plan, &part, placement(&world, &part)).unwrap();
        let mut search = PartitionedBfs::new(&graph, options).unwrap();
        let one = |&source: &u64| {
            let result = search.run(source).unwrap();
            let put = result.put_bytes;
            search.gather(result).unwrap().map(|r| (r, put))
        };
        sources.iter().filter_map(one).collect::<Vec<_>>()
    });
    assert!(all.iter().skip(1).all(Vec::is_empty), "PE 0 has the result");
    all.swap_remove(0)
}

fn check(csr: &Csr, source: u64, result: &BfsResult, what: &str) {
    let expected = serial_depths(csr, source);
    assert_eq!(result.depth, expected, "{what}, source {source}");
    assert_eq!(result.reached, expected.iter().filter(|d| **d != UNREACHED).count() as u64, "{what}");
    verify::bfs_parents(csr, source, &result.depth, result.parent.as_deref().unwrap()).unwrap();
}

fn forced(alpha: u64, beta: u64, frontier: FrontierFormat) -> PartitionedBfsOptions {
    PartitionedBfsOptions { search: BfsOptions { alpha, beta, ..BfsOptions::default() }, frontier }
}

#[test]
fn depths_and_parents_are_those_of_a_serial_search() {
    let default = BfsOptions::default();
    let ways = [
        forced(default.alpha, default.beta, FrontierFormat::Auto),
        forced(0, 1, FrontierFormat::Lists),
        forced(0, 1, FrontierFormat::Bitmaps),
        // Searches bottom-up from the start, and never switches back.
        forced(u64::MAX, u64::MAX, FrontierFormat::Auto),
        // Searches bottom-up from the start, and switches back as soon as the frontier shrinks.
        forced(u64::MAX, 1, FrontierFormat::Lists),
    ];
    for (i, shape) in shapes().iter().enumerate() {
        let csr = &shape.csr;
        let sources = sources(csr);
        for (k, pes) in [1, 2, 3, 4, 8].into_iter().enumerate() {
            // Five shapes have two numbers of PEs, the next five the next two, so that each way meets each number.
            if !all_are_wanted() && (k + 5 - i / 5 % 5) % 5 > 1 {
                continue;
            }
            let plan = PartitionPlan::new(csr, pes, true);
            // Each way runs with every number of PEs, on different shapes.
            let (way, some) = (&ways[(i + k) % ways.len()], &sources[(i + k) % 2 * 2..][..2]);
            let results = search_all(&plan, way, some, |_, _| Placement::Gpu);
            for (source, (result, put)) in some.iter().zip(&results) {
                check(csr, *source, result, &format!("{}, {pes} PEs, {way:?}", shape.name));
                assert_eq!(*put > 0, pes > 1);
            }
        }
    }
}

#[test]
fn all_pes_end_at_the_target_or_the_depth() {
    let csr = Csr::from_edges(3000, &skewed(3000, 6000, 12), CsrOptions::default()).unwrap();
    for (pes, alpha) in [(1, 40), (3, 0), (4, u64::MAX)] {
        let plan = PartitionPlan::new(&csr, pes, true);
        for source in sources(&csr) {
            let all = serial_depths(&csr, source);
            for (target, max_depth) in [(source, None), (2999, None), (1, Some(2)), (77, Some(1))] {
                let search = BfsOptions::default().alpha(alpha).target(Some(target)).max_depth(max_depth);
                let way = PartitionedBfsOptions::default().search(search);
                let results = search_all(&plan, &way, &[source], |_, _| Placement::Gpu);
                let last = all[target as usize].min(max_depth.unwrap_or(UNREACHED - 1));
                let expected: Vec<u32> = all.iter().map(|d| if *d > last { UNREACHED } else { *d }).collect();
                assert_eq!(results[0].0.depth, expected, "{source} to {target} on {pes} PEs");
                let search = verify::Search { source, target: Some(target), limit: max_depth.map(f64::from) };
                verify::bfs_parents(&csr, search, &expected, results[0].0.parent.as_ref().unwrap()).unwrap();
            }
        }
    }
    let plan = PartitionPlan::new(&csr, 2, true);
    let way = PartitionedBfsOptions::default().search(BfsOptions::default().target(Some(3000)));
    for error in on_pes(&plan, 1, |world| {
        let part = plan.part(world.my_pe());
        let graph = PartitionedGraph::place(&world, &plan, &part, Placement::Gpu).unwrap();
        PartitionedBfs::new(&graph, &way).unwrap().run(0).unwrap_err().to_string()
    }) {
        assert_eq!(error, "vertex 3000 does not exist: the graph has 3000 vertices, numbered from 0");
    }
}

#[test]
fn edges_on_each_pes_own_volume() {
    for (i, shape) in shapes().iter().filter(|s| s.csr.vertices() > 1000).enumerate() {
        let csr = &shape.csr;
        // Each of the six shapes, which come narrow and wide, with each number of PEs.
        for (k, (pes, alpha)) in [(2, 15), (3, u64::MAX)].into_iter().enumerate() {
            if !all_are_wanted() && (i + i / 6) % 2 != k {
                continue;
            }
            let plan = PartitionPlan::new(csr, pes, true);
            let way = forced(alpha, 18, FrontierFormat::Auto);
            let results = search_all(&plan, &way, &sources(csr)[2..], |w, part| on_storage(w, part, ""));
            for (source, (result, _)) in sources(csr)[2..].iter().zip(&results) {
                check(csr, *source, result, &format!("{} on {pes} volumes", shape.name));
                let io = result.io.unwrap();
                assert!(io.reads > 0 || result.scanned() == 0, "{}: {io:?}", shape.name);
            }
        }
    }
}

#[test]
fn a_directed_graph_without_in_edges_is_searched_top_down() {
    for shape in shapes().iter().filter(|s| s.csr.directed() && s.csr.vertices() > 100) {
        let plan = PartitionPlan::new(&shape.csr, 3, false);
        let way = forced(u64::MAX, 1, FrontierFormat::Auto);
        let results = search_all(&plan, &way, &[0], |_, _| Placement::Pinned);
        check(&shape.csr, 0, &results[0].0, shape.name);
        assert!(results[0].0.levels.iter().all(|l| l.direction == Direction::TopDown));
    }
}

#[test]
fn levels_are_those_of_a_search_of_one_pe() {
    let mut csr = Csr::from_edges(3000, &skewed(2500, 20_000, 4), CsrOptions::default()).unwrap();
    hub::order_by_degree(&mut csr);
    let counts = |pes| {
        let plan = PartitionPlan::new(&csr, pes, true);
        let results = search_all(&plan, &PartitionedBfsOptions::default(), &[7], |_, _| Placement::Gpu);
        let level = |l: &crate::graph::LevelReport| (l.level, l.direction, l.frontier, l.found);
        results[0].0.levels.iter().map(level).collect::<Vec<_>>()
    };
    let alone = counts(1);
    assert!(alone.iter().any(|l| l.1 == Direction::BottomUp) && alone[0].1 == Direction::TopDown, "{alone:?}");
    assert_eq!(counts(4), alone);
}

#[test]
fn several_threads_for_each_pe() {
    let csr = Csr::from_edges(4000, &skewed(4000, 30_000, 5), CsrOptions::default()).unwrap();
    for (alpha, frontier) in [(15, FrontierFormat::Auto), (0, FrontierFormat::Lists)] {
        let plan = PartitionPlan::new(&csr, 2, true);
        let options = forced(alpha, 18, frontier);
        let results = on_pes(&plan, 3, |world| {
            let part = plan.part(world.my_pe());
            let graph = PartitionedGraph::place(&world, &plan, &part, Placement::Gpu).unwrap();
            let mut search = PartitionedBfs::new(&graph, &options).unwrap();
            let result = search.run(11).unwrap();
            search.gather(result).unwrap()
        });
        check(&csr, 11, results[0].as_ref().unwrap(), "three threads");
    }
}

#[test]
fn a_failure_of_one_pe_ends_the_search_on_all() {
    let csr = Csr::from_edges(3000, &uniform(3000, 24_000, 6), CsrOptions::default()).unwrap();
    let plan = PartitionPlan::new(&csr, 3, true);
    let errors = on_pes(&plan, 1, |world| {
        let part = plan.part(world.my_pe());
        let place =
            |spec: &str| PartitionedGraph::place(&world, &plan, &part, on_storage(&world, &part, spec)).unwrap();
        let mut graph = place("");
        if world.my_pe() == 2 {
            // The last PE's edges lie on bad blocks.
            let Placement::Storage(cache) = graph.part().placement() else { panic!("storage") };
            let manifest = cache.volume().manifest().unwrap();
            let edges = manifest.entries().iter().find(|e| e.name == "neighbours").unwrap();
            graph = place(&format!(",media-error=read:{}-{}", edges.offset / 512, edges.end() / 512));
        }
        graph.part().cool().unwrap();
        let mut search = PartitionedBfs::new(&graph, &forced(0, 1, FrontierFormat::Auto)).unwrap();
        let error = search.run(0).unwrap_err();
        assert!(matches!(search.run(0), Err(GraphError::OutOfStep | GraphError::Shmem(_))));
        error
    });
    assert!(matches!(&errors[2], GraphError::Run(RunError::Operations { .. })), "{errors:?}");
    for error in &errors[..2] {
        assert!(matches!(error, GraphError::OtherPe { pe: 2 }), "{errors:?}");
    }
}

#[test]
fn a_pe_that_is_gone_ends_the_others_within_their_deadline() {
    let csr = Csr::from_edges(500, &uniform(500, 3000, 7), CsrOptions::default()).unwrap();
    let plan = PartitionPlan::new(&csr, 2, true);
    let results = on_pes(&plan, 1, |world| {
        world.engine().set_deadline(Duration::from_millis(200)).unwrap();
        let part = plan.part(world.my_pe());
        let graph = PartitionedGraph::place(&world, &plan, &part, Placement::Gpu).unwrap();
        let mut search = PartitionedBfs::new(&graph, &PartitionedBfsOptions::default()).unwrap();
        if world.my_pe() == 1 {
            // This PE comes to the start and no further.
            world.barrier_host().unwrap();
            return None;
        }
        Some(search.run(3).unwrap_err())
    });
    match &results[0] {
        Some(GraphError::Run(RunError::Operations { errors, .. })) => assert_eq!(errors[0].device, 1, "{errors:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_calls_are_errors() {
    let csr = Csr::from_edges(4, &[(0, 1), (1, 2)], CsrOptions::default()).unwrap();
    let plan = PartitionPlan::new(&csr, 2, true);
    let for_three = PartitionPlan::new(&csr, 3, true);
    on_pes(&plan, 1, |world| {
        let pe = world.my_pe();
        let other = PartitionedGraph::place(&world, &plan, &plan.part(1 - pe), Placement::Gpu);
        assert!(matches!(other, Err(GraphError::OtherWorld { partitioned: 2, pes: 2 })));
        let other = PartitionedGraph::place(&world, &for_three, &for_three.part(pe), Placement::Gpu);
        assert!(matches!(other, Err(GraphError::OtherWorld { partitioned: 3, pes: 2 })));
        let graph = PartitionedGraph::place(&world, &plan, &plan.part(pe), Placement::Gpu).unwrap();
        let mut search = PartitionedBfs::new(&graph, &PartitionedBfsOptions::default()).unwrap();
        assert!(matches!(search.run(4), Err(GraphError::NoSuchVertex { source_vertex: 4, vertices: 4 })));
        assert_eq!(search.run(2).unwrap().reached, 3);
    });
}
