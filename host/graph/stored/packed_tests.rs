//! Tests of packed lists: algorithms over them find what they find over plain ones, and damage of each part is named.

use super::tests::{graph, loaded, name, open, volume};
use super::*;
use crate::graph::{
    Bfs, BfsOptions, CdlpOptions, ComponentsOptions, Csr, CsrOptions, Distances, GraphOnEngine, MultiBfs,
    MultiBfsOptions, PageRankOptions, Placement, PlacementOptions, Sssp, SsspOptions, betweenness, bfs, cdlp,
    clustering, components, cores, pagerank, sssp, triangles, verify,
};
use crate::storage::Cache;
use proptest::prelude::*;

const FORMS: [ListForm; 2] = [ListForm::Packed(VertexOrder::Degree), ListForm::Packed(VertexOrder::Input)];

fn store(volume: &Volume, csr: Csr, form: ListForm) {
    GraphToStore::with_lists(name("g"), loaded(csr), form).store(volume, false, &mut |_| ()).unwrap();
}

/// Returns the placements of a stored graph whose lists are packed.
fn placed(v: &Volume, needs: PlacementOptions) -> Vec<GraphOnEngine> {
    let stored = open(v, "g").unwrap();
    let cache = Cache::on(v).bytes(64 << 10).page(512).build().unwrap();
    let mut placed = vec![stored.place(&cache, needs).unwrap()];
    for placement in [Placement::Gpu, Placement::Pinned] {
        placed.push(stored.place_packed(v, placement, needs).unwrap());
    }
    placed
}

fn numbers(distances: &Distances) -> Vec<f64> {
    match distances {
        Distances::Integer(d) => d.iter().map(|d| if *d == u64::MAX { f64::INFINITY } else { *d as f64 }).collect(),
        Distances::Real(d) => d.clone(),
    }
}

/// Compares every algorithm over packed lists with the same over plain ones in memory.
fn compare(csr: &Csr, form: ListForm, sources: &[u64]) {
    let v = volume("soft:mem:16M");
    store(&v, csr.clone(), form);
    let weighted = csr.weights().is_some();
    let engine = v.engine().clone();
    let needs = PlacementOptions::all_of(weighted);
    let plain = GraphOnEngine::place(&engine, csr, Placement::Gpu, needs).unwrap();
    let ranks = pagerank(&plain, &PageRankOptions::default()).unwrap().rank;
    let labels = components(&plain, &ComponentsOptions::default()).unwrap().label;
    for packed in placed(&v, needs) {
        let found = components(&packed, &ComponentsOptions::default()).unwrap();
        assert_eq!(found.label, labels, "{form:?}");
        // Without hubs every edge is read.
        let options = ComponentsOptions::default().rounds(0).giant(2.0);
        assert_eq!(components(&packed, &options).unwrap().label, labels, "{form:?}");
        let options = ComponentsOptions::default().strong(true);
        assert_eq!(
            components(&packed, &options).unwrap().label,
            components(&plain, &options).unwrap().label,
            "strong, {form:?}"
        );
        let options = CdlpOptions::default();
        assert_eq!(cdlp(&packed, &options).unwrap().label, cdlp(&plain, &options).unwrap().label, "{form:?}");
        let scores = [&packed, &plain].map(|graph| betweenness(graph, sources).unwrap().score);
        let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
        assert!(scores[0].iter().zip(&scores[1]).all(is_near), "{form:?}");
        assert_eq!(cores(&packed).unwrap().core, cores(&plain).unwrap().core, "{form:?}");
        assert_eq!(clustering(&packed).unwrap().coefficient, clustering(&plain).unwrap().coefficient, "{form:?}");
        if !csr.directed() {
            assert_eq!(triangles(&packed).unwrap().triangles, triangles(&plain).unwrap().triangles, "{form:?}");
        }
        let found = pagerank(&packed, &PageRankOptions::default()).unwrap().rank;
        assert!(found.iter().zip(&ranks).all(|(a, b)| (a - b).abs() < 1e-7), "{form:?}");
        let options =
            PageRankOptions::default().personalization(sources.iter().map(|v| (*v, 1.0 + *v as f64)).collect());
        let [found, expected] = [&packed, &plain].map(|graph| pagerank(graph, &options).unwrap().rank);
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-7), "personalised, {form:?}");
        let searches = |graph| MultiBfs::new(graph, &MultiBfsOptions::default()).unwrap().run(sources).unwrap();
        let (found, expected) = (searches(&packed), searches(&plain));
        assert_eq!((found.depth, found.reached_by), (expected.depth, expected.reached_by), "{form:?}");
        for &source in sources {
            for alpha in [0, 15, u64::MAX] {
                let options = BfsOptions { alpha, ..BfsOptions::default() };
                let (expected, found) =
                    (bfs(&plain, source, &options).unwrap(), bfs(&packed, source, &options).unwrap());
                assert_eq!(found.depth, expected.depth, "{form:?} from {source}");
                let parents = found.parent.unwrap();
                verify::bfs_parents(csr, source, &found.depth, &parents).unwrap();
            }
            // The ends of the searches, and paths in the engine's memory.
            let target = sources.iter().copied().find(|v| *v != source);
            let options = BfsOptions::default().target(target).max_depth(Some(3));
            let found = Bfs::new(&packed, &options).unwrap().run_on_device(source).unwrap();
            let path = target.map(|v| found.parent.as_ref().unwrap().path_to(v).unwrap());
            let found = found.into_host().unwrap();
            assert_eq!(found.depth, bfs(&plain, source, &options).unwrap().depth, "{form:?} from {source}");
            assert_eq!(path, target.map(|v| found.path_to(v)));
            let search = verify::Search { source, target, limit: Some(3.0) };
            verify::bfs_parents(csr, search, &found.depth, &found.parent.unwrap()).unwrap();
            if weighted {
                let options = SsspOptions::default();
                let (expected, found) =
                    (sssp(&plain, source, &options).unwrap(), sssp(&packed, source, &options).unwrap());
                assert_eq!(numbers(&found.distance), numbers(&expected.distance), "{form:?} from {source}");
                for (target, max_distance) in [(None, None), (target, None), (target, Some(60.0))] {
                    let options = SsspOptions::default().parents(true).target(target).max_distance(max_distance);
                    let found = Sssp::new(&packed, &options).unwrap().run_on_device(source).unwrap();
                    let path = found.parent.as_ref().unwrap().path_to(target.unwrap_or(source)).unwrap();
                    let found = found.into_host().unwrap();
                    assert_eq!(path, found.path_to(target.unwrap_or(source)));
                    let expected = sssp(&plain, source, &options).unwrap();
                    assert_eq!(numbers(&found.distance), numbers(&expected.distance), "{form:?} from {source}");
                    let distances = match &found.distance {
                        Distances::Integer(d) => verify::Distances::U64(d),
                        Distances::Real(d) => verify::Distances::F64(d),
                    };
                    let search = verify::Search { source, target, limit: max_distance };
                    verify::sssp_parents(csr, search, distances, &found.parent.unwrap()).unwrap();
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn algorithms_find_what_they_find_over_plain_lists(
        edges in prop::collection::vec((0u64..50, 0u64..50, 1u32..100), 1..300), directed: bool, weights in 0u8..4, form in 0usize..2,
    ) {
        compare(&graph(&edges, directed, false, weights), FORMS[form], &[0, 17]);
    }
}

#[test]
fn lists_of_several_blocks_are_walked_from_any_of_them() {
    // Vertex 7 has 5,000 neighbours, so that its list has pieces; every third vertex is also linked with its successors.
    let star = (0..5_000u64).filter(|v| *v != 7).map(|v| (7, v, 1 + (v % 9) as u32));
    let chain = (0..4_990u64).step_by(3).flat_map(|v| (1..6).map(move |k| (v, v + k, 2 + (v % 5) as u32)));
    let edges: Vec<_> = star.chain(chain).collect();
    for directed in [false, true] {
        let options = CsrOptions { directed, ..CsrOptions::default() };
        let csr = Csr::from_weighted_edges(5_100, &edges, options).unwrap();
        for form in FORMS {
            compare(&csr, form, &[7, 0, 5_050]);
        }
    }
}

#[test]
fn packed_lists_take_less_than_half_of_the_bytes() {
    // More blocks than are read at a time.
    let csr = "kron:14".parse::<Input>().unwrap().load(&LoadOptions::default()).unwrap().csr;
    let (v, arcs) = (volume("soft:mem:16M"), csr.arcs());
    store(&v, csr.clone(), FORMS[0]);
    let expected = verify::PageRank::default();
    for packed in placed(&v, PlacementOptions::PAGERANK) {
        let found = pagerank(&packed, &PageRankOptions::default()).unwrap();
        verify::pagerank(&csr, None, expected, &found.rank).unwrap();
    }
    let bytes = open(&v, "g").unwrap().edge_bytes(&v, PlacementOptions::COMPONENTS).unwrap();
    assert!(bytes * 8 < arcs * 10, "{} bits an arc", 8 * bytes / arcs);
}

#[test]
fn a_graph_of_the_longest_name_is_stored() {
    let v = volume("soft:mem:1M");
    let longest = "n".repeat(40);
    let csr = graph(&[(1, 2, 3), (4, 4, 5)], true, false, 1);
    GraphToStore::new(name(&longest), loaded(csr)).store(&v, false, &mut |_| ()).unwrap();
    open(&v, &longest).unwrap().verify(&v).unwrap();
}

#[test]
fn graphs_without_edges_or_vertices_are_stored_too() {
    for (vertices, edges) in [(0, &[][..]), (1, &[][..]), (5, &[][..]), (2, &[(0, 1)][..])] {
        for form in FORMS {
            let v = volume("soft:mem:1M");
            let csr = Csr::from_edges(vertices, edges, CsrOptions::default()).unwrap();
            store(&v, csr.clone(), form);
            let stored = open(&v, "g").unwrap();
            stored.verify(&v).unwrap();
            assert_eq!(stored.read(&v).unwrap(), csr);
            placed(&v, PlacementOptions::BFS);
        }
    }
}

#[test]
fn a_header_that_hides_weights_is_damaged() {
    for form in FORMS {
        let v = volume("soft:mem:1M");
        store(&v, graph(&[(0, 1, 5), (1, 2, 7)], false, false, 1), form);
        let header = v.manifest().unwrap().find("g/header").unwrap().offset;
        let mut weights = [0; 4];
        v.read_bytes(header + 28, &mut weights).unwrap();
        assert_eq!(weights, [1, 0, 0, 0], "the kind of the weights");
        v.write_bytes(header + 28, &[0; 4]).unwrap();
        let e = open(&v, "g").unwrap_err().to_string();
        assert!(e.contains("damaged: it has an array `weighted-neighbours`, and its header says"), "{e}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// A changed bit anywhere is an error of the opening or of the verification, and placing never panics.
    #[test]
    fn a_changed_bit_of_any_part_is_found(
        mut edges in prop::collection::vec((0u64..50, 0u64..50, 1u32..100), 30..200), directed: bool, loops: bool,
        form in 0usize..2, part in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let v = volume("soft:mem:1M");
        edges.retain(|(a, b, _)| loops || a != b);
        store(&v, graph(&edges, directed, false, 1), FORMS[form]);
        let parts = [
            "neighbours", "positions", "degrees", "degree-widths", "hubs", "order",
            "in-neighbours", "in-positions", "in-degrees", "in-degree-widths", "in-hubs",
            "weighted-neighbours", "weighted-positions", "header",
        ];
        // Weights of a directed graph and of self-loops stand once, and are compared with nothing; only the checksum, which
        // counts as unknown after a write, tells.
        let is_compared = |part: &&str| !directed && !loops || *part != "weighted-neighbours";
        let manifest = v.manifest().unwrap();
        let find = |part| Some((part, manifest.find(&format!("g/{part}")).ok().filter(|e| e.bytes() > 0)?));
        let there: Vec<_> = parts.into_iter().filter(is_compared).filter_map(find).collect();
        let (part, entry) = part.get(&there);
        let at = match *part {
            // Facts about the input, and the mean of the weights, are not compared with anything.
            "header" => *at.get(&(0..36).chain(48..72).collect::<Vec<_>>()),
            _ => at.index(entry.bytes() as usize),
        };
        let offset = entry.offset + at as u64;
        let mut byte = [0];
        v.read_bytes(offset, &mut byte).unwrap();
        v.write_bytes(offset, &[byte[0] ^ 1 << bit]).unwrap();
        let opened = open(&v, "g");
        let Ok(stored) = opened else { return Ok(()) };
        let cache = Cache::on(&v).bytes(64 << 10).page(512).build().unwrap();
        if let Ok(placed) = stored.place(&cache, PlacementOptions::ALL) {
            // Kernels read what is there: they end, with a result or an error.
            let _ = bfs(&placed, 3, &BfsOptions::default());
            let _ = sssp(&placed, 3, &SsspOptions::default());
            let _ = pagerank(&placed, &PageRankOptions::default());
        }
        let _ = stored.place_packed(&v, Placement::Gpu, PlacementOptions::ALL);
        prop_assert!(stored.verify(&v).is_err(), "{part} byte {at} is not missed");
    }
}
