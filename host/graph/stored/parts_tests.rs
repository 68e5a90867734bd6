//! Tests of graphs that are stored in parts: each PE opens its own, and results are those of the whole graph on one PE.

use super::*;
use crate::engine::{Engine, testing};
use crate::graph::partition::{PartitionedBfs, PartitionedBfsOptions, PartitionedGraph, heap_bytes};
use crate::graph::{
    BfsOptions, CdlpOptions, ComponentsOptions, GraphOnEngine, Orientation, PageRankOptions, Placement,
    PlacementOptions, SsspOptions, WeightMode, bfs, cdlp, clustering, components, pagerank, sssp, triangles,
};
use crate::shmem::World;
use crate::storage::{Cache, Drive, OverwritePolicy};

fn name() -> GraphName {
    "links".parse().unwrap()
}

/// Returns a volume on a device of memory that has a graph, or a part of one.
fn stored_on(engine: &Engine, graph: &GraphToStore) -> Volume {
    let bytes = graph.plan().bytes().next_multiple_of(4096) + (1 << 20);
    let drive = Drive::create(&format!("soft:mem:{bytes}"), bytes, &OverwritePolicy::none()).unwrap();
    let volume = Volume::on(engine, [drive]).queues(1).depth(64).build().unwrap();
    graph.store(&volume, false, &mut |_| ()).unwrap();
    volume
}

/// Calls `work` with each PE's world, its volume and its part, each on a thread of its own.
fn on_parts<R: Send>(graph: &GraphInParts, work: impl Fn(&World, &Volume, StoredGraph) -> R + Sync) -> Vec<R> {
    let engines = (0..graph.parts()).map(|_| Engine::builder().threads(1).cpu().unwrap()).collect();
    let of = |search| heap_bytes(graph.info().vertices, graph.parts(), search);
    let heap = of(None).max(of(Some(&BfsOptions::default())));
    let one = |world: World| {
        let volume = stored_on(world.engine(), &graph.part(world.my_pe()).unwrap());
        let part = StoredGraph::open(&volume, &name()).unwrap();
        work(&world, &volume, part)
    };
    std::thread::scope(|s| {
        let one = &one;
        let pes: Vec<_> =
            World::local_on(engines, heap).unwrap().into_iter().map(|world| s.spawn(move || one(world))).collect();
        pes.into_iter().map(|pe| pe.join().unwrap()).collect()
    })
}

/// Writes an edge list of a skewed graph whose identifiers leave gaps, with self-loops and a weight for each edge.
fn edge_list(folder: &std::path::Path) -> Input {
    let mut text = String::new();
    for (i, (u, v)) in crate::graph::algorithm_tests::skewed(2000, 30_000, 21).into_iter().enumerate() {
        text += &format!("{} {} {}\n", u * 3, v * 3, i * 7 % 40);
    }
    let path = folder.join("links.wel");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().parse().unwrap()
}

fn options<'a>(directed: bool) -> LoadOptions<'a> {
    let orientation = if directed { Orientation::Directed } else { Orientation::Undirected };
    LoadOptions::default().orientation(orientation).weights(WeightMode::Input).keep_self_loops(true)
}

#[test]
fn results_are_those_of_the_whole_graph() {
    let folder = tempfile::tempdir().unwrap();
    let input = edge_list(folder.path());
    for (directed, parts, placed) in
        [(false, 2, "storage"), (true, 3, "storage"), (false, 3, "gpu"), (true, 2, "pinned")]
    {
        let options = options(directed);
        let csr = input.load(&options).unwrap().csr;
        let needs = PlacementOptions::ALL;
        let alone = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, needs).unwrap();
        let ranks = PageRankOptions::default().tolerance(Some(1e-9));
        let paths = SsspOptions::default().parents(true);
        let graph = GraphInParts::import(name(), &input, &options, parts).unwrap();
        assert_eq!((graph.parts(), graph.info().arcs), (parts, csr.arcs()));
        let all = on_parts(&graph, |world, volume, part| {
            part.verify(volume).unwrap();
            let placement = match placed {
                "storage" => Placement::Storage(Cache::on(volume).bytes(16 << 10).page(512).build().unwrap()),
                "gpu" => Placement::Gpu,
                _ => Placement::Pinned,
            };
            let graph = part.place_part(world, volume, placement, needs).unwrap();
            let found = (
                components(&graph, &ComponentsOptions::default()).unwrap(),
                cdlp(&graph, &CdlpOptions::default().work_space(4096)).unwrap(),
                pagerank(&graph, &ranks).unwrap(),
                sssp(&graph, 5, &paths).unwrap(),
                clustering(&graph).unwrap(),
                (!directed).then(|| triangles(&graph).unwrap()),
            );
            assert_eq!(found.2.io.is_some_and(|io| io.reads + io.hits > 0), placed == "storage");
            found
        });
        let what = format!("directed {directed}, {parts} parts, {placed}");
        let expected = sssp(&alone, 5, &paths).unwrap();
        for (labels, communities, found_ranks, found, coefficients, counts) in &all {
            assert_eq!(labels.label, components(&alone, &ComponentsOptions::default()).unwrap().label, "{what}");
            assert_eq!(communities.label, cdlp(&alone, &CdlpOptions::default()).unwrap().label, "{what}");
            let expected_ranks = pagerank(&alone, &ranks).unwrap().rank;
            let away = found_ranks.rank.iter().zip(&expected_ranks).map(|(a, b)| (a - b).abs());
            assert!(away.sum::<f64>() < 1e-9, "{what}");
            assert_eq!(found.distance, expected.distance, "{what}");
            assert!(coefficients.coefficient == clustering(&alone).unwrap().coefficient, "{what}");
            let Some(counts) = counts else { continue };
            assert!(counts.triangles == triangles(&alone).unwrap().triangles, "{what}");
        }
    }
}

#[test]
fn searches_read_their_part_alone() {
    let folder = tempfile::tempdir().unwrap();
    let input = edge_list(folder.path());
    for (directed, parts) in [(false, 3), (true, 2)] {
        let options = options(directed);
        let csr = input.load(&options).unwrap().csr;
        let alone = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::BFS).unwrap();
        let graph = GraphInParts::import(name(), &input, &options, parts).unwrap();
        let depths = on_parts(&graph, |world, volume, stored| {
            let graph = PartitionedGraph::place_stored(world, &stored, volume, Placement::Gpu).unwrap();
            let mut search = PartitionedBfs::new(&graph, &PartitionedBfsOptions::default()).unwrap();
            let result = search.run(7).unwrap();
            search.gather(result).unwrap().map(|result| result.depth)
        });
        let expected = bfs(&alone, 7, &BfsOptions::default()).unwrap().depth;
        assert_eq!(depths.into_iter().flatten().collect::<Vec<_>>(), [expected]);
    }
}

/// Returns the bytes of each array but the header.
fn arrays(volume: &Volume) -> Vec<(String, Vec<u8>)> {
    let manifest = volume.manifest().unwrap();
    let read = |e: &crate::storage::Entry| {
        let bytes = match e.bytes() / e.count.max(1) {
            8 => bytemuck::cast_slice(&volume.read_array::<u64>(&e.name).unwrap()).to_vec(),
            4 => bytemuck::cast_slice(&volume.read_array::<u32>(&e.name).unwrap()).to_vec(),
            _ => volume.read_array::<u8>(&e.name).unwrap(),
        };
        (e.name.clone(), bytes)
    };
    let own = |e: &&crate::storage::Entry| !e.name.ends_with("/header") && !e.name.ends_with("/weighted-neighbours");
    manifest.entries().iter().filter(own).map(read).collect()
}

#[test]
fn parts_sorted_in_files_are_those_of_memory_and_make_up_the_graph() {
    let folder = tempfile::tempdir().unwrap();
    let input: Input = "kron:14".parse().unwrap();
    // Each thread needs a part of the memory.
    let threads = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    for directed in [false, true] {
        let options = options(directed).weights(WeightMode::RandomIntegers);
        let csr = input.load(&options).unwrap().csr;
        let in_memory = GraphInParts::import(name(), &input, &options, 3).unwrap();
        let small = options.memory(Some(4 << 20)).temp_dir(Some(folder.path()));
        let in_files = threads.install(|| GraphInParts::import(name(), &input, &small, 3)).unwrap();
        assert!(in_files.is_in_files() && !in_memory.is_in_files());
        let engine = testing::cpu();
        let mut arcs = Vec::new();
        for part in 0..3 {
            let volume = stored_on(&engine, &in_memory.part(part).unwrap());
            let other = stored_on(&engine, &in_files.part(part).unwrap());
            assert!(arrays(&volume) == arrays(&other), "part {part}");
            let stored = StoredGraph::open(&volume, &name()).unwrap();
            let (offsets, list) = stored.own_lists(&volume, false).unwrap();
            let own = stored.own_vertices();
            for (v, range) in own.zip(offsets.windows(2)) {
                let neighbours = &list[range[0] as usize..range[1] as usize];
                arcs.extend(neighbours.iter().map(|n| (stored.outside(v), stored.outside((*n).into()))));
            }
        }
        arcs.sort_unstable();
        let expected: Vec<_> = (0..csr.vertices()).flat_map(|v| csr.neighbours_of(v).map(move |n| (v, n))).collect();
        assert_eq!(arcs, expected);
    }
}

#[test]
fn wrong_calls_are_errors() {
    let input: Input = "kron:6".parse().unwrap();
    let options = LoadOptions::default();
    for parts in [0, 1, 65_536] {
        let error = GraphInParts::import(name(), &input, &options, parts).unwrap_err();
        assert!(matches!(error, ImportError::PartCount { vertices: None, .. }), "{error}");
    }
    let graph = GraphInParts::import(name(), &input, &options, 2).unwrap();
    let again = GraphInParts::import(name(), &input, &options, 2).unwrap();
    let engine = testing::cpu();
    let volume = stored_on(&engine, &graph.part(1).unwrap());
    let part = StoredGraph::open(&volume, &name()).unwrap();
    let cache = Cache::on(&volume).bytes(1 << 16).build().unwrap();
    let refused = [
        part.read(&volume).map(drop),
        part.arcs(&volume, false).map(drop),
        part.place(&cache, PlacementOptions::BFS).map(drop),
        part.place_packed(&volume, Placement::Gpu, PlacementOptions::BFS).map(drop),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(matches!(error, GraphError::Stored(StoredError::Part { part: 1, parts: 2, .. })), "{error}");
        assert!(error.to_string().contains("run the algorithm on 2 PEs"), "{error}");
    }
    // A world of as many PEs, whose parts are swapped, or of two imports.
    let engines = vec![engine.clone(), testing::cpu()];
    let heap = heap_bytes(64, 2, None);
    let wrong = |world: World| {
        let place = |graph: &GraphInParts, pe: usize| {
            let volume = stored_on(world.engine(), &graph.part(pe).unwrap());
            let part = StoredGraph::open(&volume, &name()).unwrap();
            part.place_part(&world, &volume, Placement::Gpu, PlacementOptions::BFS).map(drop).unwrap_err()
        };
        let me = world.my_pe();
        (place(&graph, 1 - me), place(if me == 0 { &graph } else { &again }, me))
    };
    let errors: Vec<_> = std::thread::scope(|s| {
        let wrong = &wrong;
        let pes: Vec<_> =
            World::local_on(engines, heap).unwrap().into_iter().map(|w| s.spawn(move || wrong(w))).collect();
        pes.into_iter().map(|pe| pe.join().unwrap()).collect()
    });
    for (swapped, mixed) in errors {
        assert!(matches!(swapped, GraphError::Stored(StoredError::OtherPart { .. })), "{swapped}");
        assert!(matches!(mixed, GraphError::Stored(StoredError::OtherImport { pe: 1 })), "{mixed}");
    }
}
