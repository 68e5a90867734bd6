use super::bits::{Big, BitOrder, Bits, Code, Little};
use super::record::{Codes, Shape};
use super::writer::{self, BitWriter, Written};
use super::*;
use crate::graph::external::Budget;
use crate::graph::import::{LoadOptions, PieceSizes, WeightMode, load, load_or_sort};
use proptest::prelude::*;

fn any_code() -> impl Strategy<Value = Code> {
    prop_oneof![
        Just(Code::Unary),
        Just(Code::Gamma),
        Just(Code::Delta),
        Just(Code::Omega),
        (1u32..=7).prop_map(Code::Zeta),
        (1u32..=4).prop_map(Code::Pi),
    ]
}

const USUAL: Codes = Codes {
    degrees: Code::Gamma,
    references: Code::Unary,
    block_counts: Code::Gamma,
    blocks: Code::Gamma,
    intervals: Code::Gamma,
    residuals: Code::Zeta(3),
};

fn shape(vertices: usize, window: u64, least_interval: u64) -> Shape {
    Shape { vertices: vertices as u64, arcs: 0, codes: USUAL, window, least_interval }
}

/// Lists of up to 60 vertices: some ranges and some others, so that every part of a list occurs.
fn any_lists() -> impl Strategy<Value = Vec<Vec<u64>>> {
    (1u64..60).prop_flat_map(|vertices| {
        let part = prop_oneof![
            (0..vertices).prop_map(|v| v..v + 1),
            (0..vertices, 2u64..9).prop_map(move |(v, length)| v..(v + length).min(vertices)),
        ];
        let list = prop::collection::vec(part, 0..6).prop_map(|parts| {
            let mut list: Vec<u64> = parts.into_iter().flatten().collect();
            list.sort_unstable();
            list.dedup();
            list
        });
        // Neighbouring lists are alike, as references want them.
        prop::collection::vec((list, any::<bool>()), vertices as usize).prop_map(|lists| {
            let mut all: Vec<Vec<u64>> = Vec::new();
            for (mut list, is_alike) in lists {
                if let (true, Some(last)) = (is_alike, all.last()) {
                    list.extend(last);
                    list.sort_unstable();
                    list.dedup();
                }
                all.push(list);
            }
            all
        })
    })
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let codes = (any_code(), any_code(), any_code(), any_code(), any_code(), any_code());
    let codes = codes.prop_map(|(degrees, references, block_counts, blocks, intervals, residuals)| Codes {
        degrees,
        references,
        block_counts,
        blocks,
        intervals,
        residuals,
    });
    (codes, prop_oneof![Just(0u64), Just(1), Just(7), Just(500)], prop_oneof![Just(0u64), 1u64..5])
        .prop_map(|(codes, window, least_interval)| Shape { vertices: 0, arcs: 0, codes, window, least_interval })
}

/// Reads a graph with segments of a size, and sorts it in files if `is_sorted` says so.
fn read(
    written: &Written,
    has_offsets: bool,
    piece: u64,
    options: &LoadOptions<'_>,
    is_sorted: bool,
) -> Result<Loaded, ImportError> {
    // Little memory sorts all but the smallest graphs in files, once their places and the lists that others refer to fit.
    let arcs = written.properties.lines().find_map(|line| line.strip_prefix("arcs=")?.parse::<u64>().ok());
    let budget = Budget { memory: 16 * 64 + 64 + 8 * arcs.unwrap_or(0), folder: std::env::temp_dir() };
    let reader = Reader::new(options, PieceSizes::of(piece), is_sorted.then_some(budget));
    let offsets = has_offsets.then_some(written.offsets.as_slice());
    let contents = reader.bvgraph_in(&written.graph, written.properties.as_bytes(), offsets)?;
    match contents {
        Contents::Edges(edges) => {
            assert!(is_sorted);
            raw::finish(edges, options)
        }
        contents => reader.in_memory(contents),
    }
}

fn lists_of(csr: &Csr) -> Vec<Vec<u64>> {
    (0..csr.vertices()).map(|v| csr.neighbours_of(v).collect()).collect()
}

proptest! {
    #[test]
    fn every_code_is_read_back(
        code in any_code(), numbers in prop::collection::vec(prop_oneof![0u64..40, 0u64..1 << 33, Just((1 << 56) - 2)], 1..20),
        is_little_endian: bool,
    ) {
        fn check<O: BitOrder>(bytes: &[u8], code: Code, numbers: &[u64], end: u64) {
            let mut bits = Bits::<O>::new(bytes, 0);
            for number in numbers {
                assert_eq!(bits.read(code), Ok(*number));
            }
            assert_eq!(bits.at(), end);
        }
        let numbers: Vec<u64> = numbers.into_iter().map(|n| if code == Code::Unary { n % 300 } else { n }).collect();
        let mut writer = BitWriter::new(is_little_endian);
        numbers.iter().for_each(|n| writer.write(code, *n));
        let end = writer.len();
        let bytes = writer.into_bytes();
        if is_little_endian {
            check::<Little>(&bytes, code, &numbers, end);
        } else {
            check::<Big>(&bytes, code, &numbers, end);
        }
    }

    #[test]
    fn codes_end_for_any_bytes(code in any_code(), bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..40)) {
        fn run<O: BitOrder>(bytes: &[u8], code: Code) {
            let mut bits = Bits::<O>::new(bytes, 0);
            let mut before = 0;
            while bits.read_integer(code).is_ok() {
                assert!(bits.at() > before && bits.at() <= 8 * bytes.len() as u64);
                before = bits.at();
            }
        }
        run::<Big>(&bytes, code);
        run::<Little>(&bytes, code);
    }

    #[test]
    fn graphs_are_read_back(
        lists in any_lists(), shape in any_shape(), backs in prop::collection::vec(0u64..8, 60),
        (is_little_endian, has_offsets, is_sorted, wide) in any::<(bool, bool, bool, bool)>(),
        piece in prop_oneof![Just(1u64), 8u64..200, Just(1 << 20)],
    ) {
        let written = writer::write(&lists, &shape, is_little_endian, |v| backs[v as usize]);
        let options = LoadOptions::default().keep_self_loops(true).wide(wide);
        let loaded = read(&written, has_offsets, piece, &options, is_sorted).unwrap();
        prop_assert_eq!(lists_of(&loaded.csr), lists.clone());
        prop_assert!(loaded.csr.directed());
        prop_assert_eq!(loaded.csr.ids(), &Ids::dense(0, lists.len() as u64));
        prop_assert_eq!(loaded.summary.input_edges, lists.iter().map(Vec::len).sum::<usize>() as u64);
    }

    #[test]
    fn memory_and_files_give_the_same_graph(
        lists in any_lists(), keep: bool, wide: bool,
        orientation in prop_oneof![Just(Orientation::Auto), Just(Orientation::Directed), Just(Orientation::Undirected)],
        weights in prop_oneof![Just(WeightMode::Ignore), Just(WeightMode::Input), Just(WeightMode::RandomIntegers)],
    ) {
        let written = writer::write(&lists, &shape(lists.len(), 3, 2), false, |v| v % 4);
        let options = LoadOptions::default().orientation(orientation).weights(weights).keep_self_loops(keep).wide(wide);
        let in_memory = read(&written, false, 64, &options, false).unwrap();
        prop_assert_eq!(read(&written, false, 64, &options, true).unwrap(), in_memory);
    }

    /// A changed file is a graph, or an error of one line; nothing else.
    #[test]
    fn damage_is_an_error_or_a_graph(
        lists in any_lists(), shape in any_shape(), flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        (has_offsets, is_sorted, is_little_endian) in any::<(bool, bool, bool)>(), piece in prop_oneof![Just(1u64), Just(60)],
    ) {
        let mut written = writer::write(&lists, &shape, is_little_endian, |v| v % 5);
        if has_offsets && flips.len() == 3 {
            let at = flips[0].0.index(written.offsets.len());
            written.offsets[at] ^= 1 << flips[0].1;
        }
        for (at, bit) in &flips {
            let at = at.index(written.graph.len());
            written.graph[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            written.graph.truncate(cut.index(written.graph.len() + 1));
        }
        match read(&written, has_offsets, piece, &LoadOptions::default(), is_sorted) {
            Ok(loaded) => {
                for list in lists_of(&loaded.csr) {
                    prop_assert!(list.is_sorted_by(|a, b| a < b) && list.iter().all(|&v| v < lists.len() as u64));
                }
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
}

/// Each list is that of the vertex in front with one more successor, so that the last depends on all.
#[test]
fn chains_of_any_length_are_followed() {
    const VERTICES: u64 = 20_000;
    let lists: Vec<Vec<u64>> = (0..VERTICES)
        .map(|v| vec![v / 100, VERTICES - 1 - v / 150])
        .map(|mut list| {
            list.sort_unstable();
            list.dedup();
            list
        })
        .collect();
    let written = writer::write(&lists, &shape(lists.len(), 1, 0), false, |_| 1);
    let options = LoadOptions::default().keep_self_loops(true);
    for piece in [64, 100_000, 1 << 20] {
        assert_eq!(lists_of(&read(&written, false, piece, &options, false).unwrap().csr), lists);
    }
    // Pieces of edges, with the memory of the places and little more.
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget { memory: 16 * (VERTICES + 1), folder: folder.path().to_owned() };
    let reader = Reader::new(&options, PieceSizes::of(64), Some(budget));
    let Contents::Edges(edges) = reader.bvgraph_in(&written.graph, written.properties.as_bytes(), None).unwrap() else {
        panic!("it does not fit three times")
    };
    assert_eq!(lists_of(&raw::finish(edges, &options).unwrap().csr), lists);
}

fn refused(written: &Written, has_offsets: bool) -> String {
    read(written, has_offsets, 1 << 20, &LoadOptions::default(), false).map(|_| ()).unwrap_err().to_string()
}

fn small() -> Written {
    let lists = vec![vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5], vec![], vec![0, 5], vec![3], vec![4]];
    writer::write(&lists, &shape(lists.len(), 7, 4), false, |v| u64::from(v == 1))
}

#[test]
fn faults_name_the_file_the_vertex_and_the_remedy() {
    let mut written = small();
    let whole = written.graph.clone();
    written.graph.truncate(whole.len() - 1);
    let error = refused(&written, false);
    assert!(error.starts_with("g.graph: the list of vertex ") && error.contains("goes beyond the end"), "{error}");
    assert!(error.contains("cut short or damaged, or g.properties is that of another graph"), "{error}");
    written.graph = whole;

    let plain = written.properties.clone();
    written.properties = plain.replace("arcs=14", "arcs=15");
    assert_ne!(plain, written.properties);
    let error = refused(&written, false);
    assert!(error.contains("has 14 arcs, and g.properties names 15"), "{error}");
    written.properties = plain.replace("nodes=6", "nodes=6000");
    let error = refused(&written, false);
    assert!(error.contains("cannot hold the 6,000 nodes that g.properties names"), "{error}");
    written.properties = plain.replace("nodes=6", "nodes=0").replace("arcs=14", "arcs=0");
    assert!(refused(&written, false).contains("holds no vertex"));
    written.properties = plain;

    written.offsets[1] ^= 0x10;
    let error = refused(&written, true);
    assert!(error.contains("g.offsets") || error.contains("vertex"), "{error}");
    written.offsets.truncate(1);
    let error = refused(&written, true);
    assert!(error.starts_with("g.offsets: is not that of g.graph: ") && error.contains("remove it"), "{error}");
}

#[test]
fn a_list_that_no_list_can_be_is_refused() {
    // Each has 4 vertices, with a window of 2 and intervals from 2.
    let cases: [(&[(Code, u64)], &str); 8] = [
        (&[(Code::Gamma, 5)], "more successors than the graph has vertices"),
        (&[(Code::Gamma, 1), (Code::Unary, 1)], "not in the window"),
        // The first residual of vertex 0 is -1, then 4.
        (&[(Code::Gamma, 1), (Code::Unary, 0), (Code::Gamma, 0), (Code::Zeta(3), 1)], "no vertex of the graph"),
        (&[(Code::Gamma, 1), (Code::Unary, 0), (Code::Gamma, 0), (Code::Zeta(3), 8)], "no vertex of the graph"),
        (
            &[(Code::Gamma, 2), (Code::Unary, 0), (Code::Gamma, 1), (Code::Gamma, 0), (Code::Gamma, 1)],
            "intervals of more",
        ),
        (
            &[(Code::Gamma, 4), (Code::Unary, 0), (Code::Gamma, 1), (Code::Gamma, 6), (Code::Gamma, 0)],
            "no vertex of the graph",
        ),
        // A list of 0 and 1, and one that copies three of it.
        (
            &[
                (Code::Gamma, 2),
                (Code::Unary, 0),
                (Code::Gamma, 1),
                (Code::Gamma, 0),
                (Code::Gamma, 0),
                (Code::Gamma, 3),
                (Code::Unary, 1),
                (Code::Gamma, 1),
                (Code::Gamma, 3),
            ],
            "beyond the end of another list",
        ),
        (
            &[
                (Code::Gamma, 2),
                (Code::Unary, 0),
                (Code::Gamma, 1),
                (Code::Gamma, 0),
                (Code::Gamma, 0),
                (Code::Gamma, 1),
                (Code::Unary, 1),
                (Code::Gamma, 0),
            ],
            "copies more successors than it has",
        ),
    ];
    for (numbers, expected) in cases {
        let mut bits = BitWriter::new(false);
        numbers.iter().for_each(|(code, number)| bits.write(*code, *number));
        (0..4).for_each(|_| bits.write(Code::Gamma, 0));
        let lists = vec![Vec::new(); 4];
        let written = Written { graph: bits.into_bytes(), ..writer::write(&lists, &shape(4, 2, 2), false, |_| 0) };
        let error = refused(&written, false);
        assert!(error.contains(expected), "{numbers:?}: {error}");
    }
    // A successor twice: the interval 0 and 1, and 1 again.
    let mut bits = BitWriter::new(false);
    for (code, number) in
        [(Code::Gamma, 3), (Code::Unary, 0), (Code::Gamma, 1), (Code::Gamma, 0), (Code::Gamma, 0), (Code::Zeta(3), 2)]
    {
        bits.write(code, number);
    }
    (0..3).for_each(|_| bits.write(Code::Gamma, 0));
    let mut written = writer::write(&[vec![0, 1, 2], vec![], vec![], vec![]], &shape(4, 2, 2), false, |_| 0);
    written.graph = bits.into_bytes();
    assert!(refused(&written, false).contains("the list of vertex 0 has a successor twice"));
}

#[test]
fn properties_that_are_not_read_say_what_to_do() {
    let Written { properties, graph, .. } = small();
    let with = |from: &str, to: &str| {
        let properties = properties.replace(from, to);
        assert!(properties.contains(to));
        let error = load_bvgraph(&graph, properties.as_bytes(), None, &LoadOptions::default()).unwrap_err().to_string();
        assert!(error.starts_with("g.properties: ") && !error.contains('\n'), "{error}");
        error
    };
    assert!(with(".BVGraph", ".EFGraph").contains("`it.unimi.dsi.webgraph.EFGraph`; only it.unimi"));
    let labelled = with(".BVGraph", ".labelling.BitStreamArcLabelledImmutableGraph");
    assert!(labelled.contains("`underlyinggraph`"), "{labelled}");
    assert!(with("graphclass", "class").contains("has no `graphclass`"));
    assert!(with("nodes=6", "nodes=six").contains("nodes is `six`, and it must be a whole number"));
    assert!(with("nodes=6", "edges=6").contains("has no `nodes`"));
    assert!(with("arcs=14", "arcs=37").contains("6 nodes have no more than 6 arcs each"));
    assert!(with("version=0", "version=2").contains("from 0 to 1"));
    assert!(with("windowsize=7", "windowsize=70000").contains("from 0 to 65536"));
    assert!(with("RESIDUALS_ZETA3", "RESIDUALS_GOLOMB").contains("`RESIDUALS_GOLOMB`, which is not known"));
    assert!(with("RESIDUALS_ZETA3", "RESIDUALS_ZETA8").contains("not known"));
    assert!(with("version=0", "endianness=little").contains("in version 0"));
    assert!(with("version=0", "version=1\nendianness=middle").contains("neither big nor little"));
    assert!(with("version=0", "zetak=0").contains("zetak is 0"));
}

#[test]
fn java_names_the_code_of_counts_and_the_crate_does_not() {
    let parse = |text: &str| Properties::parse(text).unwrap();
    let java =
        "graphclass=class it.unimi.dsi.big.webgraph.BVGraph\nnodes=3\narcs=2\nversion=0\nzetak=5\ncompressionflags=";
    let codes = |text: &str| parse(text).shape.codes;
    assert_eq!(codes(java), Codes { residuals: Code::Zeta(5), ..USUAL });
    let delta = format!("{java}BLOCKS_DELTA | RESIDUALS_GAMMA | OFFSETS_DELTA");
    assert_eq!(codes(&delta), Codes { blocks: Code::Delta, residuals: Code::Gamma, ..USUAL });
    assert_eq!(parse(&delta).offsets, Code::Delta);
    assert_eq!(codes(&format!("{java}BLOCK_COUNT_UNARY")).block_counts, Code::Unary);
    let of_crate = codes(&format!("{java}BLOCKS_DELTA|OUTDEGREES_PI2\nendianness=big\n"));
    assert_eq!((of_crate.blocks, of_crate.block_counts, of_crate.degrees), (Code::Delta, Code::Delta, Code::Pi(2)));
}

#[test]
fn a_graph_that_does_not_fit_is_refused_before_it_is_read() {
    let written = small();
    let error = refused_with(&written, LoadOptions::default().memory(Some(100)));
    assert!(error.contains("6 vertices and 14 edges need about") && error.contains("100 bytes is free"), "{error}");
    // A file of few bytes may have many vertices, but not arcs that no memory holds.
    let zeros = Written {
        graph: vec![0xff; 1 << 10],
        properties: written.properties.replace("nodes=6", "nodes=8192").replace("arcs=14", "arcs=67108864"),
        offsets: Vec::new(),
    };
    let error = refused_with(&zeros, LoadOptions::default().memory(Some(1 << 20)));
    assert!(error.contains("8,192 vertices and 67,108,864 edges"), "{error}");
}

fn refused_with(written: &Written, options: LoadOptions<'_>) -> String {
    read(written, false, 1 << 20, &options, false).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn files_are_found_by_their_properties() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let written = small();
    std::fs::write(path("g.graph"), &written.graph).unwrap();
    let options = LoadOptions::default();
    let error = load(&path("g.graph"), &options).unwrap_err().to_string();
    assert!(
        error.contains("g.graph: is no text, as a METIS graph would be") && error.contains("g.properties"),
        "{error}"
    );
    let named = options.format(Some(FileFormat::BvGraph));
    let error = load(&path("g.graph"), &named).unwrap_err().to_string();
    assert!(error.contains("g.properties: no such file"), "{error}");

    std::fs::write(path("g.properties"), &written.properties).unwrap();
    let loaded = load(&path("g.graph"), &options).unwrap();
    assert_eq!((loaded.summary.format, loaded.csr.arcs()), (Format::BvGraph, 13));
    for (name, options) in [("g", options), ("g", named), ("g.graph", named)] {
        assert_eq!(load(&path(name), &options).unwrap(), loaded, "{name}");
    }
    std::fs::write(path("g.offsets"), &written.offsets).unwrap();
    assert_eq!(load(&path("g.graph"), &options).unwrap(), loaded);
    for name in ["g", "g.graph"] {
        let files = crate::graph::import::files(&path(name));
        assert!(["g.graph", "g.properties", "g.offsets"].iter().all(|name| files.contains(&path(name))), "{files:?}");
    }
    std::fs::write(path("g.offsets"), b"").unwrap();
    let error = load(&path("g.graph"), &options).unwrap_err().to_string();
    assert!(error.contains("g.offsets: is not that of"), "{error}");

    let error = load_or_sort(&path("g.graph"), &options.memory(Some(100))).map(|_| ()).unwrap_err();
    assert!(matches!(error, ImportError::SmallBudget { vertices: 6, needed: 112, limit: 100, .. }), "{error}");

    // Without properties beside it, a text is a METIS graph as ever.
    std::fs::write(path("m.graph"), "2 1\n2\n1\n").unwrap();
    assert_eq!(load(&path("m.graph"), &options).unwrap().summary.format, Format::Metis);
    let error = load(Path::new("-"), &named).unwrap_err().to_string();
    assert!(error.starts_with("standard input: a BVGraph cannot come from there"), "{error}");
}

/// Files that the crate webgraph 0.7.0 wrote.
#[test]
fn files_of_the_crate_are_read() {
    let lists: [&[u64]; 12] = [
        &[1, 2, 3, 4, 5, 9],
        &[1, 2, 3, 4, 5],
        &[],
        &[0, 2, 4, 6, 8, 10],
        &[0, 4, 6, 8, 10, 11],
        &[5],
        &[11],
        &[0, 1, 2, 3, 8, 9, 10, 11],
        &[0, 1, 2, 8, 9, 10, 11],
        &[3],
        &[],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    ];
    let usual =
        "version=0\nendianness=big\nminintervallength=4\nmaxrefcount=3\nwindowsize=7\ncompressionflags=\nzetak=3\n";
    let other = "version=1\nendianness=little\nminintervallength=2\nmaxrefcount=2\nwindowsize=3\ncompressionflags=OUTDEGREES_DELTA|REFERENCES_OMEGA|BLOCKS_PI2|INTERVALS_ZETA2|RESIDUALS_PI1\n";
    for (properties, graph, offsets) in [
        (usual, "3d34a66aa9feaaaaa3ad69d7168c4d8e922164ad24686874", "8607204017123434131a832000000000"),
        (other, "de2e68ac257ac96d9bcf4ef245893c12f72e4e902d1199498dc6060000000000", "8682283a1c14383c181c836000000000"),
    ] {
        let bytes = |hex: &str| {
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>()
        };
        let head = "#BVGraph properties\ngraphclass=it.unimi.dsi.webgraph.BVGraph\nnodes=12\narcs=53\n";
        let written =
            Written { graph: bytes(graph), offsets: bytes(offsets), properties: format!("{head}{properties}") };
        let options = LoadOptions::default().keep_self_loops(true);
        for has_offsets in [false, true] {
            assert_eq!(lists_of(&read(&written, has_offsets, 8, &options, false).unwrap().csr), lists);
        }
    }
}
