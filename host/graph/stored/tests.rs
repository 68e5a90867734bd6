//! Tests of stored graphs: what comes back, what is refused, and what is read.

use super::*;
use crate::engine::Engine;
use crate::graph::import::{
    Format, LoadOptions, Orientation, OrientationReason, Summary, WeightMode, WeightSource, load_bytes,
};
use crate::graph::{
    BfsOptions, ComponentsOptions, Csr, CsrOptions, GraphOnEngine, GraphShape, PageRankOptions, Placement,
    PlacementOptions, SsspOptions, Weights, bfs, components, hub, pagerank, sssp, teps,
};
use crate::storage::{Cache, Drive, MAX_ARRAYS, OverwritePolicy, StorageError};
use proptest::prelude::*;

pub(super) fn name(text: &str) -> GraphName {
    text.parse().unwrap()
}

pub(super) fn loaded(csr: Csr) -> Loaded {
    let summary = Summary {
        format: Format::Memory,
        orientation: OrientationReason::Requested,
        weights: if csr.weights().is_some() { WeightSource::Input } else { WeightSource::None },
        input_edges: csr.edges(),
        self_loops: 3,
        duplicates: 5,
        bytes: 7,
    };
    Loaded::new(csr, summary)
}

pub(super) fn volume(spec: &str) -> Volume {
    Volume::on(&Engine::cpu().unwrap(), [Drive::open(spec).unwrap()]).build().unwrap()
}

/// Stores a graph with plain lists, whose words tests change.
pub(super) fn store(volume: &Volume, graph: &str, csr: Csr) -> Result<(), GraphError> {
    GraphToStore::with_lists(name(graph), loaded(csr), ListForm::Plain).store(volume, false, &mut |_| ())
}

pub(super) fn open(volume: &Volume, graph: &str) -> Result<StoredGraph, GraphError> {
    StoredGraph::open(volume, &name(graph))
}

/// Makes a graph with every kind of weights, identifiers and self-loops.
pub(super) fn graph(edges: &[(u64, u64, u32)], directed: bool, wide: bool, weights: u8) -> Csr {
    let options = CsrOptions { directed, wide, keep_self_loops: true };
    let csr = Csr::from_weighted_edges(50, edges, options).unwrap();
    let real = |csr: &Csr| match csr.weights() {
        Some(Weights::U32(w)) => w.iter().map(|w| f64::from(*w) / 7.0).collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    match weights {
        0 => csr.without_weights(),
        1 => csr,
        2 => {
            let w = real(&csr).into_iter().map(|w| w as f32).collect();
            csr.with_weights(Weights::F32(w))
        }
        _ => {
            let w = real(&csr);
            csr.with_weights(Weights::F64(w))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn what_is_stored_comes_back(
        edges in prop::collection::vec((0u64..50, 0u64..50, 1u32..100), 0..200),
        directed: bool, wide: bool, weights in 0u8..4, checksums: bool, form in 0usize..3,
    ) {
        let v = volume("soft:mem:4M");
        let csr = graph(&edges, directed, wide, weights);
        let form = [ListForm::Plain, ListForm::Packed(VertexOrder::Degree), ListForm::Packed(VertexOrder::Input)][form];
        let to_store = GraphToStore::with_lists(name("g"), loaded(csr.clone()), form).page_checksums(checksums);
        to_store.store(&v, false, &mut |_| ()).unwrap();
        let stored = open(&v, "g").unwrap();
        let mut ordered = csr.clone();
        if !stored.info().packed {
            hub::order_by_degree(&mut ordered);
        }
        prop_assert_eq!(stored.read(&v).unwrap(), ordered);
        prop_assert_eq!(stored.info(), to_store.info());
        for at_once in [1, 7, 1 << 18] {
            stored.verify_in_pieces(&v, at_once).unwrap();
        }
        prop_assert_eq!(GraphShape::edges(&stored), csr.edges());
        for vertex in 0..50 {
            prop_assert_eq!(GraphShape::degree(&stored, vertex), csr.degree(vertex));
            prop_assert_eq!(GraphShape::has_self_loop(&stored, vertex), csr.has_self_loop(vertex));
        }
        prop_assert_eq!(teps::pick_sources(&stored, 5, 9), teps::pick_sources(&csr, 5, 9));
        prop_assert_eq!(teps::traversed_edges(&stored, |v| v % 3 > 0), teps::traversed_edges(&csr, |v| v % 3 > 0));
        prop_assert!(v.verify(false).unwrap().is_intact());
    }
}

#[test]
fn opening_takes_the_memory_that_was_said_before() {
    let generated = |options: &LoadOptions<'_>| "kron:11".parse::<Input>().unwrap().load(options).unwrap().csr;
    let both = LoadOptions::default();
    let wide = both.wide(true).orientation(Orientation::Directed);
    let table: String = (0..90).map(|i| format!("person {i},town {}\n", i * i % 31)).collect();
    let named = load_bytes("g.csv", table.as_bytes(), &LoadOptions::default()).unwrap().csr;
    let gaps = load_bytes("g.el", b"1 70\n70 1234567\n", &LoadOptions::default()).unwrap().csr;
    let csrs = [generated(&both), generated(&wide), named, gaps];
    for (csr, inward) in csrs.into_iter().flat_map(|csr| [(csr.clone(), true), (csr, false)]) {
        let v = volume("soft:mem:8M");
        store(&v, "g", csr).unwrap();
        let needs = PlacementOptions { inward, weighted: false, ..PlacementOptions::ALL };
        let said = OpeningMemory::of(&v, &name("g"), needs).unwrap();
        let stored = open(&v, "g").unwrap();
        let ids = match stored.ids() {
            Ids::Dense { .. } => 0,
            Ids::Sparse(ids) => size_of_val(&ids[..]),
            Ids::Named(names) => names.text().len() + size_of_val(names.offsets()),
        };
        let offsets = size_of_val(&stored.offsets[..]) + stored.in_offsets().map_or(0, size_of_val);
        assert_eq!(said.host, (offsets + size_of_val(&stored.loops[..]) + ids) as u64);
        let placed = stored.place(&Cache::on(&v).bytes(1 << 20).build().unwrap(), needs).unwrap();
        let sides = [Some(&placed.out), placed.inward.as_ref()];
        let sides = sides.into_iter().flatten().flat_map(|side| [&side.offset, &side.hubs, &side.tile]);
        let regions: Vec<_> = sides.chain([&placed.isolated]).map(|region| region.len() as u64).collect();
        // The engine rounds each region up to pages.
        let (most, pages) = (regions.iter().sum::<u64>(), 4096 * regions.len() as u64);
        assert!(said.engine <= most && most < said.engine + pages, "{said:?}, {regions:?}");
    }
    assert!(OpeningMemory::of(&volume("soft:mem:1M"), &name("g"), PlacementOptions::ALL).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn damaged_parts_are_errors_and_never_panic(
        part in 0usize..7, at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 1..9),
    ) {
        let v = volume("soft:mem:1M");
        let edges: Vec<_> = (0..60u64).map(|i| (i % 50, i * 7 % 41, 3)).collect();
        store(&v, "g", graph(&edges, true, false, 1)).unwrap();
        let manifest = v.manifest().unwrap();
        let parts = ["header", "offsets", "in-offsets", "hubs", "in-hubs", "self-loops", "weighted-neighbours"];
        let entry = manifest.find(&format!("g/{}", parts[part])).unwrap();
        let place = entry.offset + at.index(entry.bytes() as usize) as u64;
        v.write_bytes(place, &bytes[..bytes.len().min((entry.end() - place) as usize)]).unwrap();
        let _ = stored_graphs(&v).unwrap();
        if let Ok(stored) = open(&v, "g") {
            prop_assert_eq!(stored.vertices(), stored.info().vertices);
            teps::traversed_edges(&stored, |_| true);
            let cache = Cache::on(&v).bytes(1 << 20).build().unwrap();
            if let Ok(placed) = stored.place(&cache, PlacementOptions::ALL) {
                // The lists may be others, but each search ends.
                let _ = bfs(&placed, 3, &BfsOptions::default());
                let _ = components(&placed, &ComponentsOptions::default());
            }
            let _ = stored.read(&v);
            let _ = stored.verify(&v);
        }
    }
}

#[test]
fn all_algorithms_give_what_they_give_on_the_graph_in_memory() {
    let edges: Vec<_> = (0..400u64).map(|i| (i * i % 50, i * 7 % 47, (i % 9 + 1) as u32)).collect();
    for (directed, weights) in [(false, 1), (true, 1), (true, 2), (false, 3)] {
        let v = volume("soft:mem:8M");
        let csr = graph(&edges, directed, false, weights);
        store(&v, "g", csr.clone()).unwrap();
        let cache = Cache::on(&v).bytes(1 << 20).build().unwrap();
        let stored = open(&v, "g").unwrap().place(&cache, PlacementOptions::ALL).unwrap();
        let mut ordered = csr;
        hub::order_by_degree(&mut ordered);
        let memory = GraphOnEngine::place(v.engine(), &ordered, Placement::Gpu, PlacementOptions::ALL).unwrap();
        let both = [&stored, &memory];
        let [a, b] = both.map(|g| bfs(g, 3, &BfsOptions::default()).unwrap().depth);
        assert_eq!(a, b);
        let [a, b] = both.map(|g| components(g, &ComponentsOptions::default()).unwrap().label);
        assert_eq!(a, b);
        let [a, b] = both.map(|g| pagerank(g, &PageRankOptions::default()).unwrap().rank);
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
        let [a, b] = both.map(|g| format!("{:?}", sssp(g, 3, &SsspOptions::default()).unwrap().distance));
        assert_eq!(a, b);
    }
}

#[test]
fn a_volume_that_holds_too_many_graphs_keeps_those_that_it_has() {
    let v = volume("soft:mem:16M");
    let path = || Csr::from_edges(3, &[(0, 1), (1, 2)], CsrOptions::default().directed(true)).unwrap();
    let most = MAX_ARRAYS / 7;
    for number in 0..most {
        store(&v, &format!("g{number}"), path()).unwrap();
    }
    let text = store(&v, "more", path()).unwrap_err().to_string();
    assert!(text.contains("a manifest names at most") && text.contains("remove stored arrays"), "{text}");
    assert_eq!(stored_graphs(&v).unwrap().len(), most);
    remove_stored_graph(&v, &name("g0")).unwrap();
    store(&v, "more", path()).unwrap();
    open(&v, "more").unwrap().verify(&v).unwrap();
}

#[test]
fn graphs_of_no_vertex_and_of_one_are_stored() {
    for (vertices, edges) in [(0, &[][..]), (1, &[]), (1, &[(0, 0)])] {
        for directed in [false, true] {
            let v = volume("soft:mem:1M");
            let options = CsrOptions { directed, wide: false, keep_self_loops: true };
            let csr = Csr::from_edges(vertices, edges, options).unwrap();
            store(&v, "small", csr.clone()).unwrap();
            let stored = open(&v, "small").unwrap();
            stored.verify(&v).unwrap();
            let back = stored.read(&v).unwrap();
            assert_eq!((back.vertices(), back.arcs(), back.edges()), (vertices, csr.arcs(), csr.edges()));
            let cache = Cache::on(&v).bytes(1 << 20).build().unwrap();
            let placed = stored.place(&cache, PlacementOptions::COMPONENTS).unwrap();
            assert_eq!(components(&placed, &ComponentsOptions::default()).unwrap().label.len() as u64, vertices);
        }
    }
}

#[test]
fn identifiers_with_gaps_are_kept() {
    let v = volume("soft:mem:1M");
    let options = LoadOptions::default().weights(WeightMode::Input);
    let loaded = load_bytes("x.wel", b"10 700 3\n700 30 4\n", &options).unwrap();
    GraphToStore::new(name("gaps"), loaded).store(&v, false, &mut |_| ()).unwrap();
    let stored = open(&v, "gaps").unwrap();
    assert_eq!(stored.ids(), &Ids::Sparse(vec![10, 30, 700]));
    assert_eq!(stored.info().input.format, Format::WeightedEdgeList);
}

/// Stores a directed graph of four vertices with names.
fn store_names(v: &Volume) -> Csr {
    let text = "source,target\nann,\"Doe, J\"\n\"Doe, J\",é\né,10\n";
    let loaded = load_bytes("x.csv", text.as_bytes(), &LoadOptions::default()).unwrap();
    let csr = loaded.csr.clone();
    GraphToStore::new(name("names"), loaded).store(v, false, &mut |_| ()).unwrap();
    csr
}

#[test]
fn names_are_kept() {
    let v = volume("soft:mem:1M");
    let csr = store_names(&v);
    let stored = open(&v, "names").unwrap();
    assert_eq!(stored.ids(), csr.ids());
    assert_eq!(stored.ids().names().unwrap().iter().collect::<Vec<_>>(), ["10", "Doe, J", "ann", "é"]);
    assert!(stored.info().has_names() && stored.info().input.format == Format::Separated);
    assert_eq!(stored.read(&v).unwrap().ids(), csr.ids());
    stored.verify(&v).unwrap();
    let at = v.manifest().unwrap().find("names/header").unwrap().offset;
    v.write_bytes(at + 32, &[3]).unwrap();
    let text = open(&v, "names").unwrap_err().to_string();
    assert!(text.contains("identifiers 3") && text.contains("0 to 2"), "{text}");
}

#[test]
fn damaged_names_are_refused() {
    // The text is `10Doe, Jannée` without the last e: offsets 0, 2, 8, 11, 13.
    for (array, offset, bytes, part) in [
        ("names", 0, &b"zz"[..], "name 1 is not above the name before it"),
        ("names", 11, b"\xff", "`names` is not UTF-8"),
        ("names", 8, b"a\n", "name 2: the name of a vertex has the control character 0x0a"),
        ("name-offsets", 0, &[1], "the offset 1 of name 0"),
        ("name-offsets", 8, &[9], "the offset 8 of name 2"),
        ("name-offsets", 8, &[0], "name 0: the name of a vertex is empty"),
        ("name-offsets", 24, &[12], "the offset 12 of name 3"),
        ("name-offsets", 32, &[255; 8], "the offset 18446744073709551615 of name 4"),
        ("header", 48, &[3], "3"),
    ] {
        let v = volume("soft:mem:1M");
        store_names(&v);
        let at = v.manifest().unwrap().find(&format!("names/{array}")).unwrap().offset;
        v.write_bytes(at + offset, bytes).unwrap();
        let text = open(&v, "names").unwrap_err().to_string();
        assert!(text.contains("`names` is damaged") && text.contains(part), "{array}: {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn no_bytes_in_a_dictionary_make_opening_panic(
        offsets: bool, at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 1..9),
    ) {
        let v = volume("soft:mem:1M");
        store_names(&v);
        let manifest = v.manifest().unwrap();
        let entry = manifest.find(if offsets { "names/name-offsets" } else { "names/names" }).unwrap();
        let place = entry.offset + at.index(entry.bytes() as usize) as u64;
        v.write_bytes(place, &bytes[..bytes.len().min((entry.end() - place) as usize)]).unwrap();
        if let Ok(stored) = open(&v, "names") {
            let names: Vec<&str> = stored.ids().names().unwrap().iter().collect();
            prop_assert!(names.len() == 4 && names.is_sorted_by(|a, b| a < b));
        }
    }
}

#[test]
fn several_graphs_share_a_volume() {
    let v = volume("soft:mem:2M");
    assert!(stored_graphs(&v).unwrap().is_empty());
    let text = open(&v, "a").unwrap_err().to_string();
    assert!(text.contains("no stored graph is called `a`; none is stored there"), "{text}");
    let path = |n: u64| Csr::from_edges(50, &[(0, n), (n, 2)], CsrOptions::default()).unwrap();
    for (i, graph) in ["b", "a", "c"].into_iter().enumerate() {
        store(&v, graph, path(i as u64 + 5)).unwrap();
    }
    let names = |v: &Volume| stored_graphs(v).unwrap().iter().map(|e| e.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&v), ["a", "b", "c"]);
    let text = store(&v, "a", path(9)).unwrap_err().to_string();
    assert!(text.contains("`a` already") && text.contains("nothing was written"), "{text}");
    GraphToStore::new(name("a"), loaded(path(9))).store(&v, true, &mut |_| ()).unwrap();
    assert_eq!(open(&v, "a").unwrap().degree(9), 2);
    remove_stored_graph(&v, &name("b")).unwrap();
    assert_eq!(names(&v), ["a", "c"]);
    let text = remove_stored_graph(&v, &name("b")).unwrap_err().to_string();
    assert!(text.contains("no stored graph is called `b`; there are `a`, `c`"), "{text}");
    assert_eq!(open(&v, "c").unwrap().degree(7), 2);
}

#[test]
fn every_unknown_value_of_a_header_is_refused_by_name() {
    let v = volume("soft:mem:1M");
    store(&v, "g", Csr::from_edges(50, &[(0, 1)], CsrOptions::default()).unwrap()).unwrap();
    let at = v.manifest().unwrap().find("g/header").unwrap().offset;
    let fields = [
        "version",
        "encoding",
        "permutation",
        "partition",
        "direction",
        "neighbour bytes",
        "order",
        "weights",
        "identifiers",
        "format",
        "orientation",
        "weight source",
    ];
    for (i, field) in fields.into_iter().enumerate() {
        let mut old = [0; 4];
        v.read_bytes(at + 4 * i as u64, &mut old).unwrap();
        v.write_bytes(at + 4 * i as u64, &77u32.to_le_bytes()).unwrap();
        let text = open(&v, "g").unwrap_err().to_string();
        assert!(text.contains(&format!("{field} 77")) && text.contains("newer warpbell"), "{field}: {text}");
        assert!(stored_graphs(&v).unwrap()[0].info.is_err());
        v.write_bytes(at + 4 * i as u64, &old).unwrap();
    }
    v.write_bytes(at + 248, &[1]).unwrap();
    assert!(open(&v, "g").unwrap_err().to_string().contains("further fields"));
}

#[test]
fn parts_that_contradict_each_other_are_named() {
    let edges: Vec<_> = (0..49).map(|i| (i, i + 1)).collect();
    let damaged = |array: &str, offset: u64, bytes: &[u8]| {
        let v = volume("soft:mem:1M");
        let options = CsrOptions { directed: true, keep_self_loops: true, ..Default::default() };
        let csr = Csr::from_edges(50, &[&edges[..], &[(4, 4)]].concat(), options).unwrap();
        store(&v, "g", csr).unwrap();
        let at = v.manifest().unwrap().find(&format!("g/{array}")).unwrap().offset;
        v.write_bytes(at + offset, bytes).unwrap();
        let cache = Cache::on(&v).bytes(1 << 20).build().unwrap();
        let outcome = open(&v, "g").and_then(|g| g.place(&cache, PlacementOptions::BFS).and_then(|_| g.read(&v)));
        outcome.unwrap_err().to_string()
    };
    for (array, offset, bytes, part) in [
        ("offsets", 8, [255u8; 8], "offset"),
        ("in-offsets", 16, [255; 8], "offset"),
        ("hubs", 0, [200, 0, 0, 0, 1, 0, 0, 0], "`hubs`"),
        ("self-loops", 0, [255; 8], "self-loops"),
        ("neighbours", 0, [99, 0, 0, 0, 99, 0, 0, 0], "leads to vertex 99"),
        // The header's numbers of arcs, of edges, and of vertices.
        ("header", 56, [9, 0, 0, 0, 0, 0, 0, 0], "9"),
        ("header", 64, [9, 0, 0, 0, 0, 0, 0, 0], "its lists have 50 edges, the header says 9"),
        ("header", 48, [0, 0, 0, 0, 2, 0, 0, 0], "cannot name 8589934592 vertices"),
        // Bits of vertices 49, without edges, and 63, which does not exist, instead of vertex 4.
        ("self-loops", 0, [0, 0, 0, 0, 0, 0, 2, 0], "vertex 49"),
        ("self-loops", 0, [0, 0, 0, 0, 0, 0, 0, 128], "vertex 63"),
    ] {
        let text = damaged(array, offset, &bytes);
        assert!(text.contains("`g` is damaged") && text.contains(part), "{array}: {text}");
    }
}

#[test]
fn opening_reads_no_edge() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.img").display().to_string();
    let edges: Vec<_> = (0..49).map(|i| (i, i + 1, 5)).collect();
    let drive = Drive::create(&format!("soft:{file}"), 4 << 20, &OverwritePolicy::none()).unwrap();
    let v = Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap();
    store(&v, "g", graph(&edges, true, false, 1)).unwrap();
    // Every block of an edge list is unreadable.
    let lists = ["g/neighbours", "g/in-neighbours", "g/weighted-neighbours"];
    let manifest = v.manifest().unwrap();
    let faults: String = lists
        .iter()
        .map(|a| manifest.find(a).unwrap())
        .map(|e| format!(",media-error=read:{}-{}", e.offset / 512, (e.end() - 1) / 512))
        .collect();
    drop(v);
    let v = volume(&format!("soft:{file},read-only{faults}"));
    let stored = open(&v, "g").unwrap();
    let cache = Cache::on(&v).bytes(1 << 20).build().unwrap();
    let placed = stored.place(&cache, PlacementOptions::ALL).unwrap();
    assert!(matches!(stored.read(&v), Err(GraphError::Storage(StorageError::Nvme(_)))));
    assert!(pagerank(&placed, &PageRankOptions::default()).is_err(), "the algorithm reads edges");
}

#[cfg(feature = "soft")]
#[test]
fn bytes_read_while_opening_are_bounded_by_the_offsets() {
    use crate::soft::nvme::{SoftConfig, SoftController};
    use crate::storage::MANIFEST_BYTES;
    use std::time::{Duration, Instant};

    const VERTICES: u64 = 8_000;
    let scattered = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % VERTICES;
    let edges: Vec<_> = (0..40 * VERTICES).map(|i| (i % VERTICES, scattered(i))).collect();
    let controller = SoftController::start(SoftConfig::parse("mem:32M").unwrap()).unwrap();
    let drive = Drive::attach(controller.attachment(), None).unwrap();
    let v = Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap();
    let csr = Csr::from_edges(VERTICES, &edges, CsrOptions::default()).unwrap();
    let arcs = csr.arcs();
    store(&v, "g", csr).unwrap();
    let before = controller.statistics().total().read_bytes;
    // The service thread publishes its counters after each batch.
    let read = |least: u64| {
        let deadline = Instant::now() + Duration::from_secs(30);
        let read = || controller.statistics().total().read_bytes - before;
        while read() < least && Instant::now() < deadline {
            std::thread::yield_now();
        }
        read()
    };
    let stored = open(&v, "g").unwrap();
    let (offsets, hubs) = (8 * (VERTICES + 1), 16 * VERTICES);
    // Each access to an array reads the manifest, too.
    let manifests = 10 * MANIFEST_BYTES as u64;
    assert!(offsets + hubs + manifests < 4 * arcs, "{arcs} edges would not be noticed");
    let opened = read(offsets);
    assert!((offsets..offsets + manifests).contains(&opened), "{opened} bytes for {offsets} of offsets");
    let cache = Cache::on(&v).bytes(1 << 20).build().unwrap();
    stored.place(&cache, PlacementOptions::BFS).unwrap();
    let placed = read(offsets + hubs);
    assert!((offsets + hubs..offsets + hubs + manifests).contains(&placed), "{placed} bytes for {hubs} of neighbours");
}

#[test]
fn a_graph_without_weights_says_so() {
    let v = volume("soft:mem:1M");
    store(&v, "g", Csr::from_edges(50, &[(0, 1)], CsrOptions::default()).unwrap()).unwrap();
    let cache = Cache::on(&v).bytes(1 << 20).build().unwrap();
    let text = open(&v, "g").unwrap().place(&cache, PlacementOptions::SSSP).unwrap_err().to_string();
    assert!(text.contains("`g` has no weights"), "{text}");
}

#[test]
fn several_readers_share_a_file_and_a_writer_needs_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.img").display().to_string();
    let drive = Drive::create(&format!("soft:{file}"), 1 << 20, &OverwritePolicy::none()).unwrap();
    let v = Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap();
    store(&v, "g", Csr::from_edges(50, &[(0, 1)], CsrOptions::default()).unwrap()).unwrap();
    drop(v);
    let readers = [volume(&format!("soft:{file},read-only")), volume(&format!("soft:{file},read-only"))];
    for reader in &readers {
        assert_eq!(open(reader, "g").unwrap().degree(1), 1);
    }
    assert!(Drive::open(&format!("soft:{file}")).unwrap_err().to_string().contains("has it locked"));
    let e = store(&readers[0], "h", Csr::from_edges(50, &[(0, 1)], CsrOptions::default()).unwrap()).unwrap_err();
    assert!(e.to_string().contains("write protected"), "{e}");
    assert_eq!(stored_graphs(&readers[1]).unwrap().len(), 1);
}
