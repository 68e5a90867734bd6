//! Partitioned searches against serial ones, on graphs of every awkward shape.

use super::*;
use crate::engine::{CpuImage, Engine, RunError};
use crate::graph::algorithm_tests::{serial_depths, shapes, skewed, sources, uniform};
use crate::graph::{BfsOptions, BfsResult, Csr, CsrOptions, Direction, GraphError, Placement, UNREACHED, hub, verify};
use crate::shmem::World;
use crate::storage::{Cache, Drive, Volume};
use std::time::Duration;

/// Runs `work` on every PE of a world for searches over `deal`, each on a thread of its own, and answers what they answered.
fn on_pes<R: Send>(deal: &Deal<'_>, threads: usize, work: impl Fn(World) -> R + Sync) -> Vec<R> {
    let engine = || Engine::cpu_with(threads, &CpuImage::shipped().unwrap(), None).unwrap();
    let engines = (0..deal.pes()).map(|_| engine()).collect();
    let worlds = World::local_on(engines, deal.heap_bytes(&BfsOptions::default())).unwrap();
    let work = &work;
    std::thread::scope(|s| {
        let threads: Vec<_> = worlds.into_iter().map(|world| s.spawn(move || work(world))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// This PE's part on a device in memory that it just fits, behind a cache for a quarter of its edges.
fn on_storage(world: &World, part: &Part, spec: &str) -> Placement {
    let bytes = part.plan().bytes().next_multiple_of(4096);
    let drive = Drive::open(&format!("soft:mem:{bytes}{spec}")).unwrap();
    let volume = Volume::on(world.engine(), [drive]).queues(1).depth(64).build().unwrap();
    Placement::Storage(Cache::on(&volume).bytes((part.edge_bytes() / 4).max(16 << 10)).page(512).build().unwrap())
}

/// One after another from each source; what PE 0 got.
fn search_all(
    deal: &Deal<'_>,
    options: &PartitionedBfsOptions,
    sources: &[u64],
    placement: impl Fn(&World, &Part) -> Placement + Sync,
) -> Vec<(BfsResult, u64)> {
    let mut all = on_pes(deal, 1, |world| {
        let part = deal.part(world.my_pe());
        let graph = PartitionedGraph::place(&world, deal, &part, placement(&world, &part)).unwrap();
        let mut search = PartitionedBfs::new(&graph, options).unwrap();
        let one = |&source: &u64| {
            let result = search.run(deal, source).unwrap();
            let put = result.put_bytes;
            search.gather(deal, result).unwrap().map(|r| (r, put))
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

fn forced(alpha: u64, beta: u64, news: News) -> PartitionedBfsOptions {
    PartitionedBfsOptions { search: BfsOptions { alpha, beta, ..BfsOptions::default() }, news }
}

#[test]
fn depths_and_parents_are_those_of_a_serial_search() {
    let default = BfsOptions::default();
    let ways = [
        forced(default.alpha, default.beta, News::Auto),
        forced(0, 1, News::Lists),
        forced(0, 1, News::Bitmaps),
        // Bottom-up from the start, and never back.
        forced(u64::MAX, u64::MAX, News::Auto),
        // Bottom-up from the start, and back as soon as the frontier shrinks.
        forced(u64::MAX, 1, News::Lists),
    ];
    for (i, shape) in shapes().iter().enumerate() {
        let csr = &shape.csr;
        let sources = sources(csr);
        for (k, pes) in [1, 2, 3, 4, 8].into_iter().enumerate() {
            let deal = Deal::new(csr, pes, true);
            // Every way with every number of PEs, on different shapes.
            for way in [&ways[(i + k) % ways.len()], &ways[(i + k + 2) % ways.len()]] {
                let some = &sources[(i + k) % 2 * 2..][..2];
                let results = search_all(&deal, way, some, |_, _| Placement::Gpu);
                for (source, (result, put)) in some.iter().zip(&results) {
                    check(csr, *source, result, &format!("{}, {pes} PEs, {way:?}", shape.name));
                    assert_eq!(*put > 0, pes > 1);
                }
            }
        }
    }
}
