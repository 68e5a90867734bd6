//! Tests of results in the engine's memory: their values, their owners, and kernels that read them.

use super::algorithm_tests::{Shape, shapes, skewed};
use super::*;
use crate::args;
use crate::engine::testing;
use crate::memory::MemoryError;
use crate::storage::{Cache, Drive, Element, ElementType, Volume};

fn on_engine(csr: &Csr) -> GraphOnEngine {
    GraphOnEngine::place(&testing::cpu(), csr, Placement::Gpu, PlacementOptions::ALL).unwrap()
}

/// Reads integers from the region itself.
fn integers(values: &VertexValues) -> Vec<u64> {
    let (region, count) = (values.region(), values.len());
    match values.element_type() {
        ElementType::U32 => region.get_slice::<u32>(0, count).unwrap().into_iter().map(u64::from).collect(),
        ElementType::U64 => region.get_slice(0, count).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn regions_hold_the_values_of_a_run() {
    for Shape { name, csr } in shapes() {
        let graph = on_engine(&csr);
        let id = if graph.id_bits() == 64 { ElementType::U64 } else { ElementType::U32 };
        let none = if graph.id_bits() == 64 { u64::MAX } else { u64::from(u32::MAX) };
        let narrow = |v: &u64| (*v).min(none);
        let source = csr.vertices() - 1;

        let mut search = Bfs::new(&graph, &BfsOptions::default()).unwrap();
        let (left, copied) = (search.run_on_device(source).unwrap(), search.run(source).unwrap());
        assert_eq!(left.depth.element_type(), ElementType::U32);
        assert_eq!(left.depth.region().get_slice::<u32>(0, left.depth.len()).unwrap(), copied.depth, "{name}");
        assert_eq!((left.reached, left.levels.len()), (copied.reached, copied.levels.len()), "{name}");
        // Several vertices may be a parent, so the second search may choose others.
        let parents = left.parent.as_ref().unwrap();
        assert_eq!((parents.element_type(), parents.len() as u64), (id, csr.vertices()));
        let found = left.clone().into_host().unwrap();
        assert_eq!(integers(parents), found.parent.as_ref().unwrap().iter().map(narrow).collect::<Vec<_>>());
        verify::bfs_parents(&csr, source, &found.depth, &found.parent.unwrap()).unwrap();

        let mut run = Components::new(&graph, &ComponentsOptions::default()).unwrap();
        let (left, copied) = (run.run_on_device().unwrap(), run.run().unwrap());
        assert_eq!((left.label.element_type(), left.components), (id, copied.components));
        assert_eq!(integers(&left.label), copied.label, "{name}");

        let mut run = Components::new(&graph, &ComponentsOptions::default().strong(true)).unwrap();
        let (left, copied) = (run.run_on_device().unwrap(), run.run().unwrap());
        assert_eq!((left.label.element_type(), left.components), (id, copied.components));
        assert_eq!(integers(&left.label), copied.label, "{name}");

        let mut run = Betweenness::new(&graph).unwrap();
        let (left, copied) = (run.run_on_device(&[source]).unwrap(), run.run(&[source]).unwrap());
        assert_eq!((left.score.element_type(), left.sources.len()), (ElementType::F64, copied.sources.len()));
        let scores = left.score.region().get_slice::<f64>(0, left.score.len()).unwrap();
        assert!(scores.iter().zip(&copied.score).all(|(a, b)| (a - b).abs() <= 1e-9 * b.max(1.0)), "{name}");

        let mut run = Cdlp::new(&graph, &CdlpOptions::default()).unwrap();
        let (left, copied) = (run.run_on_device().unwrap(), run.run().unwrap());
        assert_eq!((left.label.element_type(), left.communities), (id, copied.communities));
        assert_eq!(integers(&left.label), copied.label, "{name}");

        let mut run = PageRank::new(&graph, &PageRankOptions::default().tolerance(None).iterations(3)).unwrap();
        let (left, copied) = (run.run_on_device().unwrap(), run.run().unwrap());
        assert_eq!((left.rank.element_type(), left.converged), (ElementType::F64, copied.converged));
        let ranks = left.rank.region().get_slice::<f64>(0, left.rank.len()).unwrap();
        assert!(ranks.iter().zip(&copied.rank).all(|(a, b)| (a - b).abs() < 1e-12), "{name}");

        let mut search = Sssp::new(&graph, &SsspOptions::default()).unwrap();
        let (left, copied) = (search.run_on_device(source).unwrap(), search.run(source).unwrap());
        assert_eq!((left.distance.element_type(), left.delta), (id, copied.delta), "unit weights");
        let Distances::Integer(distances) = copied.distance else { panic!("{name}: integer weights") };
        assert_eq!(integers(&left.distance), distances.iter().map(narrow).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn distances_have_the_type_that_their_weights_need() {
    let options = CsrOptions::default();
    let long = Csr::from_weighted_edges(4, &[(0, 1, u32::MAX), (1, 2, u32::MAX)], options).unwrap();
    let left = Sssp::new(&on_engine(&long), &SsspOptions::default()).unwrap().run_on_device(0).unwrap();
    assert_eq!(left.distance.element_type(), ElementType::U64);
    let max = u64::from(u32::MAX);
    assert_eq!(integers(&left.distance), [0, max, 2 * max, u64::MAX]);

    let real = Csr::from_real_edges(3, &[(0, 1, 0.5)], options).unwrap();
    let left = Sssp::new(&on_engine(&real), &SsspOptions::default()).unwrap().run_on_device(0).unwrap();
    assert_eq!(left.distance.element_type(), ElementType::F64);
    let bits = left.distance.region().get_slice::<u64>(0, 3).unwrap();
    assert_eq!(bits, [0, 0.5f64.to_bits(), u64::MAX]);
    assert_eq!(left.into_host().unwrap().distance, Distances::Real(vec![0.0, 0.5, f64::INFINITY]));
}

#[test]
fn later_runs_leave_earlier_results_as_they_are() {
    let csr = Csr::from_weighted_edges(4, &[(0, 1, 1), (1, 2, 1), (2, 3, 1)], CsrOptions::default()).unwrap();
    let graph = on_engine(&csr);
    let mut search = Bfs::new(&graph, &BfsOptions::default()).unwrap();
    let first = search.run_on_device(0).unwrap();
    let kept = (first.depth.region().clone(), first.parent.clone().unwrap());
    let second = search.run_on_device(3).unwrap();
    assert!(search.run(9).is_err(), "there is no vertex 9");
    assert_eq!(search.run(1).unwrap().depth, [1, 0, 1, 2]);
    assert_eq!(first.into_host().unwrap().depth, [0, 1, 2, 3]);
    assert_eq!(second.into_host().unwrap().depth, [3, 2, 1, 0]);
    // A region or one of the arrays keeps its values as the whole result does.
    assert_eq!(kept.0.get_slice::<u32>(0, 4).unwrap(), [0, 1, 2, 3]);
    assert_eq!(integers(&kept.1), [0, 0, 1, 2]);

    let mut search = Sssp::new(&graph, &SsspOptions::default()).unwrap();
    let first = search.run_on_device(0).unwrap();
    search.run(3).unwrap();
    assert_eq!(first.into_host().unwrap().distance, Distances::Integer(vec![0, 1, 2, 3]));
    let mut run = PageRank::new(&graph, &PageRankOptions::default()).unwrap();
    let (first, second) = (run.run_on_device().unwrap(), run.run_on_device().unwrap());
    assert_ne!(first.rank.region().address(), second.rank.region().address());
    let mut run = Betweenness::new(&graph).unwrap();
    let (first, second) = (run.run_on_device(&[0]).unwrap(), run.run_on_device(&[3]).unwrap());
    assert_eq!(first.into_host().unwrap().score, [0.0, 2.0, 1.0, 0.0]);
    assert_eq!(second.into_host().unwrap().score, [0.0, 1.0, 2.0, 0.0]);
    let mut run = Cdlp::new(&graph, &CdlpOptions::default()).unwrap();
    let (first, second) = (run.run_on_device().unwrap(), run.run_on_device().unwrap());
    assert_ne!(first.label.region().address(), second.label.region().address());
    let mut run = Components::new(&graph, &ComponentsOptions::default()).unwrap();
    let (first, second) = (run.run_on_device().unwrap(), run.run_on_device().unwrap());
    assert_ne!(first.label.region().address(), second.label.region().address());
}

#[test]
fn memory_of_results_that_were_dropped_is_used_again() {
    let csr = Csr::from_edges(4, &[(0, 1), (1, 2)], CsrOptions::default()).unwrap();
    let mut search = Bfs::new(&on_engine(&csr), &BfsOptions::default()).unwrap();
    let addresses = |r: &BfsOnEngine| [r.depth.region().address(), r.parent.as_ref().unwrap().region().address()];
    let first = addresses(&search.run_on_device(0).unwrap());
    assert_eq!(addresses(&search.run_on_device(1).unwrap()), first);
    search.run(2).unwrap();
    assert_eq!(addresses(&search.run_on_device(1).unwrap()), first);
}

#[test]
fn a_result_outlives_its_search_its_graph_and_their_volume() {
    let csr = Csr::from_edges(500, &skewed(500, 3000, 4), CsrOptions::default()).unwrap();
    let expected = verify::breadth_first(&csr, 7).unwrap();
    let drive = Drive::open("soft:mem:4M").unwrap();
    let volume = Volume::on(&testing::cpu(), [drive]).build().unwrap();
    let cache = Cache::on(&volume).bytes(1 << 20).build().unwrap();
    let graph = GraphOnEngine::place(volume.engine(), &csr, Placement::Storage(cache), PlacementOptions::BFS).unwrap();
    let mut search = Bfs::new(&graph, &BfsOptions::default()).unwrap();
    let result = search.run_on_device(7).unwrap();
    assert!(result.io.as_ref().unwrap().read_bytes > 0);
    let parents = result.parent.clone().unwrap();
    drop((search, graph, volume, csr));
    assert_eq!(result.into_host().unwrap().depth, expected);
    assert_eq!(integers(&parents)[7], 7);
}

/// Lets a kernel copy values to a volume through a cache, and returns what it wrote there.
fn through_a_kernel<T: Element>(volume: &Volume, values: &VertexValues) -> Vec<T> {
    let cache = Cache::on(volume).bytes(1 << 20).page(512).build().unwrap();
    let array = cache.array::<T>(0, values.len() as u64).unwrap();
    let bytes = (values.len() * size_of::<T>()) as u64;
    let engine = volume.engine();
    let arguments = args!(&cache, 0u64, bytes, values);
    testing::start(engine, "wb_cache_write", engine.grid(128, 2), arguments).unwrap().finish().unwrap();
    array.read(0..values.len() as u64).unwrap()
}

#[test]
fn a_kernel_reads_the_values_where_they_are() {
    let csr = Csr::from_edges(3000, &skewed(3000, 9000, 2), CsrOptions::default()).unwrap();
    let volume = Volume::on(&testing::cpu(), [Drive::open("soft:mem:1M").unwrap()]).build().unwrap();
    let graph = Graph::from_csr(volume.engine(), csr.clone(), Placement::Gpu).unwrap();
    let depth = graph.bfs_on_device(5, &BfsOptions::default()).unwrap().depth;
    assert_eq!(through_a_kernel::<u32>(&volume, &depth), graph.bfs(5).unwrap().depth);
    let rank = graph.pagerank_on_device(&PageRankOptions::default()).unwrap().rank;
    assert_eq!(through_a_kernel::<f64>(&volume, &rank), rank.region().get_slice::<f64>(0, 3000).unwrap());
    let label = graph.components_on_device().unwrap().label;
    let labels = through_a_kernel::<u32>(&volume, &label);
    verify::components(&csr, &labels).unwrap();
}

#[test]
fn values_that_do_not_exist_are_out_of_bounds() {
    let csr = Csr::from_edges(3, &[(0, 1)], CsrOptions::default()).unwrap();
    let graph = Graph::from_csr(&testing::cpu(), csr, Placement::Gpu).unwrap();
    let depth = graph.bfs_on_device(0, &BfsOptions::default()).unwrap().depth;
    let beyond = depth.region().get_slice::<u32>(depth.region().len(), 1);
    assert!(matches!(beyond, Err(MemoryError::OutOfBounds { .. })));
    let empty = Csr::from_edges(0, &[], CsrOptions::default()).unwrap();
    let graph = Graph::from_csr(&testing::cpu(), empty, Placement::Gpu).unwrap();
    assert!(graph.components_on_device().unwrap().label.is_empty());
}
