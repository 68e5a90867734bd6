use super::serialized_tests::serialize;
use super::*;
use crate::graph::csr::{Csr, CsrOptions, Neighbours, Weights};
use crate::graph::ids::Ids;
use crate::graph::teps::traversed_edges;
use crate::graph::verify;
use proptest::prelude::*;
use std::fs;

pub(super) fn read(name: &str, text: &str, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    load_bytes(name, text.as_bytes(), options)
}

pub(super) fn plain(name: &str, text: &str) -> Loaded {
    read(name, text, &LoadOptions::default()).unwrap()
}

pub(super) fn weighted(name: &str, text: &str) -> Loaded {
    read(name, text, &WEIGHTED).unwrap()
}

pub(super) const WEIGHTED: LoadOptions<'static> = LoadOptions {
    format: None,
    ids: IdKind::Auto,
    columns: None,
    vertices: None,
    orientation: Orientation::Auto,
    weights: WeightMode::Input,
    precision: Precision::Single,
    exact_weights: false,
    keep_self_loops: false,
    wide: false,
    lists: ListForm::Plain,
    seed: DEFAULT_SEED,
    memory: None,
    temp_dir: None,
    progress: None,
};

/// Returns the edges by the input's identifiers.
pub(super) fn arcs(csr: &Csr) -> Vec<(u64, u64)> {
    (0..csr.vertices())
        .flat_map(|v| csr.neighbours_of(v).map(move |n| (v, n)))
        .map(|(v, n)| (csr.ids().id(v).number().unwrap(), csr.ids().id(n).number().unwrap()))
        .collect()
}

pub(super) fn message(result: Result<Loaded, ImportError>) -> String {
    let text = result.unwrap_err().to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

#[test]
fn the_enron_graph_is_undirected_and_has_the_component_that_the_file_holds() {
    let path = crate::tree::root().join("examples/data/email-enron.txt");
    let Loaded { csr, summary, .. } = load(&path, &LoadOptions::default()).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().filter(|l| !l.starts_with('#')).count() as u64;
    assert_eq!((summary.input_edges, summary.duplicates, summary.self_loops), (lines, 0, 0));
    assert_eq!((csr.arcs(), csr.edges()), (lines, lines / 2));
    assert!(!csr.directed());
    assert_eq!(summary.orientation, OrientationReason::Symmetric);
    // The identifiers begin at 1 in this file and leave no gap.
    assert_eq!(csr.ids(), &Ids::dense(1, 36_691));
    let labels = verify::connected_components(&csr);
    let largest = labels.iter().filter(|&&l| l == 0).count();
    assert_eq!(largest, 33_695);
    assert_eq!(traversed_edges(&csr, |v| labels[v as usize] == 0), 180_810);
    let depths = verify::breadth_first(&csr, csr.ids().vertex(1).unwrap()).unwrap();
    assert_eq!(depths.iter().filter(|&&d| d != verify::UNREACHED).count(), largest);
}

/// Compares the degrees with those in Zachary's matrix (1977, figure 2).
#[test]
fn the_karate_club_is_undirected_by_its_header() {
    let Loaded { csr, summary, .. } =
        load(&crate::tree::root().join("examples/data/karate.txt"), &LoadOptions::default()).unwrap();
    assert_eq!((csr.vertices(), csr.edges(), csr.directed()), (34, 78, false));
    assert_eq!((summary.input_edges, summary.duplicates, summary.self_loops), (78, 0, 0));
    let degree = |id| csr.degree(csr.ids().vertex(id).unwrap());
    assert_eq!([1, 2, 3, 12, 33, 34].map(degree), [16, 9, 10, 1, 12, 17]);
}

#[test]
fn comments_blanks_tabs_and_line_ends_do_not_matter() {
    let text = "\u{feff}# head\r\n% too\r\n\r\n  1\t 2 \r\n\t2 3\n#1 9\n3 1";
    for name in ["g.el", "g.txt", "dir.d/G.TXT"] {
        let loaded = plain(name, text);
        assert_eq!(arcs(&loaded.csr), [(1, 2), (2, 3), (3, 1)], "{name}");
        assert!(loaded.csr.directed());
        assert_eq!(loaded.summary.orientation, OrientationReason::Once);
    }
}

#[test]
fn duplicates_count_once_and_self_loops_are_dropped_or_kept() {
    let text = "1 2\n1 2\n2 1\n2 2\n3 3\n";
    let loaded = plain("g.el", text);
    assert_eq!(arcs(&loaded.csr), [(1, 2), (2, 1)]);
    assert_eq!(loaded.csr.vertices(), 3, "a self-loop names its vertex");
    assert_eq!((loaded.summary.self_loops, loaded.summary.duplicates, loaded.summary.input_edges), (2, 1, 5));
    assert!(!loaded.csr.directed());
    let kept = read("g.el", text, &LoadOptions { keep_self_loops: true, ..Default::default() }).unwrap();
    assert_eq!(arcs(&kept.csr), [(1, 2), (2, 1), (2, 2), (3, 3)]);
    assert_eq!((kept.csr.edges(), kept.csr.directed()), (3, false));
    let one = plain("g.el", "7 7\n");
    assert_eq!((one.csr.vertices(), one.csr.arcs()), (1, 0));
}

#[test]
fn orientation_is_as_asked_or_as_seen() {
    let with = |text: &str, orientation| {
        let loaded = read("g.el", text, &LoadOptions { orientation, ..Default::default() }).unwrap();
        (loaded.csr.directed(), loaded.csr.arcs(), loaded.summary.orientation)
    };
    assert_eq!(with("0 1\n1 2\n", Orientation::Auto), (true, 2, OrientationReason::Once));
    assert_eq!(with("0 1\n1 2\n2 1\n", Orientation::Auto), (true, 3, OrientationReason::OneWay));
    assert_eq!(with("0 1\n1 2\n", Orientation::Undirected), (false, 4, OrientationReason::Requested));
    assert_eq!(with("0 1\n1 0\n", Orientation::Auto), (false, 2, OrientationReason::Symmetric));
    assert_eq!(with("0 1\n1 0\n", Orientation::Directed), (true, 2, OrientationReason::Requested));
    // Both directions occur, but have different weights.
    assert!(weighted("g.wel", "0 1 5\n1 0 6\n").csr.directed());
    assert!(!weighted("g.wel", "0 1 5\n1 0 5\n").csr.directed());
    assert!(!plain("g.wel", "0 1 5\n1 0 6\n").csr.directed());
}

#[test]
fn snaps_header_says_whether_a_list_is_directed() {
    let with = |header: &str, edges: &str, orientation| {
        let text = format!("{header}\n# Nodes: 3\n{edges}");
        let loaded = read("g.txt", &text, &LoadOptions { orientation, ..Default::default() }).unwrap();
        (loaded.csr.directed(), loaded.csr.arcs(), loaded.summary.orientation)
    };
    let (once, both) = ("0 1\n1 2\n", "0 1\n1 0\n");
    for header in ["# Undirected graph: a.txt", "#undirected Graph (each unordered pair of nodes is saved once)\r"] {
        assert_eq!(with(header, once, Orientation::Auto), (false, 4, OrientationReason::Declared));
        assert_eq!(with(header, both, Orientation::Auto), (false, 2, OrientationReason::Declared));
        assert_eq!(with(header, once, Orientation::Directed), (true, 2, OrientationReason::Requested));
    }
    let header = "\u{feff}# A title\n\n# Directed graph: a.txt";
    assert_eq!(with(header, once, Orientation::Auto), (true, 2, OrientationReason::Declared));
    assert_eq!(with(header, both, Orientation::Auto), (false, 2, OrientationReason::Symmetric));
    // Behind the first edge, or in other words, the line is an ordinary comment.
    for header in ["0 2\n# Undirected graph", "# An undirected graph", "# Undirected edges"] {
        assert!(with(header, once, Orientation::Auto).0, "{header}");
    }
    let weighted = weighted("g.wel", "# Undirected graph\n0 1 5\n1 0 6\n").csr;
    assert_eq!((weighted.edges(), weighted.weights()), (1, Some(&Weights::U32(vec![5, 5]))));
}

#[test]
fn sparse_and_huge_identifiers_are_kept() {
    let text = "9223372036854775808 3\n3 18446744073709551615\n4 3\n";
    let csr = plain("g.el", text).csr;
    assert_eq!(csr.ids(), &Ids::Sparse(vec![3, 4, 1 << 63, u64::MAX]));
    assert_eq!(arcs(&csr), [(3, u64::MAX), (4, 3), (1 << 63, 3)]);
    let csr = plain("g.el", "9223372036854775807 9223372036854775808\n").csr;
    assert_eq!(csr.ids(), &Ids::dense((1 << 63) - 1, 2));
}

#[test]
fn integer_weights_stay_integers_and_parallel_edges_keep_the_smallest() {
    let csr = weighted("g.wel", "0 1 5\n0 1 3\n1 1 1\n1 2 4294967295\n").csr;
    assert_eq!(csr.weights(), Some(&Weights::U32(vec![3, u32::MAX])));
    let loaded = weighted("g.txt", "0 1 5\n1 2 0.5\n2 0 1e-3\n");
    assert_eq!(loaded.csr.weights(), Some(&Weights::F32(vec![5.0, 0.5, 0.001])));
    assert_eq!(loaded.summary.weights, WeightSource::Input);
    let double = LoadOptions { precision: Precision::Double, wide: true, ..WEIGHTED };
    let csr = read("g.wel", "0 1 5\n1 2 0.1\n", &double).unwrap().csr;
    assert_eq!(csr.weights(), Some(&Weights::F64(vec![5.0, 0.1])));
    assert_eq!(csr.neighbours(), &Neighbours::U64(vec![1, 2]));
    // In an undirected graph both directions get the smaller weight.
    let options = LoadOptions { orientation: Orientation::Undirected, ..WEIGHTED };
    let csr = read("g.wel", "0 1 5\n1 0 3\n", &options).unwrap().csr;
    assert_eq!(csr.weights(), Some(&Weights::U32(vec![3, 3])));
}

#[test]
fn weights_that_nobody_asked_for_are_not_looked_at() {
    assert_eq!(plain("g.wel", "0 1 -5\n1 2 nan\n").csr.weights(), None);
    assert_eq!(plain("g.txt", "0 1 who\n1 2 cares\n").csr.arcs(), 2);
    let loaded = weighted("g.el", "0 1\n1 2\n");
    assert_eq!(loaded.csr.weights(), Some(&Weights::U32(vec![1, 1])));
    assert_eq!(loaded.summary.weights, WeightSource::Unit);
    let random = LoadOptions { weights: WeightMode::RandomIntegers, ..Default::default() };
    let loaded = read("g.wel", "0 1 7\n1 0 7\n", &random).unwrap();
    let Some(Weights::U32(w)) = loaded.csr.weights() else { panic!() };
    assert!(w[0] == w[1] && (1..=255).contains(&w[0]));
}

#[test]
fn bad_lines_are_named() {
    let huge = "18446744073709551616";
    for (name, text, expected) in [
        ("g.el", "1 2\n\n1\n", "g.el line 3: 1 column(s) where 2 are expected"),
        (
            "g.el",
            "1 2 3\n",
            "g.el line 1: a third column in an unweighted list; if it holds weights, rename the file to end in .wel",
        ),
        ("g.txt", "1 2\n1 2 3\n", "g.txt line 2: 3 column(s) where 2 are expected"),
        ("g.txt", "1 2 3\n1 2\n", "g.txt line 2: 2 column(s) where 3 are expected"),
        ("g.wel", "1 2 3 4 5\n1 2 3\n", "g.wel line 2: 3 column(s) where 5 are expected"),
        ("g.wel", "1 2\n", "g.wel line 1: 2 column(s) where 3 are expected"),
        (
            "g.el",
            "1 2\na 2\n",
            "g.el line 2: `a` is not a whole number, as other vertices of the file are; correct the line, or read all vertices as names",
        ),
        ("g.e", "1 a\n", "g.e line 1: `a` is not a vertex identifier"),
        ("g.el", "1 2.5\n", "g.el line 1: `2.5` is not a whole number"),
        ("g.el", "1 -2\n", "g.el line 1: vertex -2 is negative"),
        ("g.el", &format!("1 {huge}\n"), "line 1: vertex 18446744073709551616 is larger than 18446744073709551615"),
        ("g.el", "1 \u{0}2\n", "g.el line 1: a byte 0x00: this is not a text file"),
        (
            "g.el",
            "1,2\n",
            "g.el line 1: `1,2`: columns of this format are separated by blanks or tabs, not by commas; read the file as CSV",
        ),
        ("g.wel", "1 2 x\n", "g.wel line 1: `x` is not a weight"),
        ("g.wel", "1 2 -1\n", "g.wel line 1: weight -1 is negative; shortest paths need weights of zero or more"),
        ("g.wel", "1 2 NaN\n", "g.wel line 1: weight NaN is not a finite number"),
        ("g.wel", "1 2 inf\n", "g.wel line 1: weight inf is not a finite number"),
        ("g.wel", "1 2 1e999\n", "g.wel line 1: weight 1e999 is not a finite number"),
        ("g.wel", "1 2 1e39\n", "g.wel line 1: weight 1e39 does not fit into 32 bits"),
        ("g.wel", "1 2 4294967296\n", "integer weight 4294967296 is larger than 4294967295; write it as 4294967296.0"),
        ("g.el", "", "g.el: is empty (0 bytes)"),
        ("g.el", "# nothing\n\n", "g.el: holds no vertex"),
        (
            "g.graphml",
            "",
            "g.graphml: .graphml is not a known ending of graph files; they end in .el .txt .edges .wel .csv .tsv .parquet",
        ),
        ("g.el.xz", "", "(compress it with gzip or zstd instead)"),
        ("g", "", "g: has no ending, which tells the format; rename it"),
    ] {
        let found = message(read(name, text, &WEIGHTED));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn the_line_of_an_error_is_counted_over_all_pieces() {
    let text = format!("{}7 oops\n{}", "1 2\n".repeat(3113), "1 2\n".repeat(100));
    for piece in [1, 7, 64, 1000, 1 << 20] {
        let error = load_pieces("g.el", text.as_bytes(), &LoadOptions::default(), piece).unwrap_err().to_string();
        assert!(error.starts_with("g.el line 3,114: `oops` is not a whole number"), "{error}");
    }
}

const MTX: &str = "%%MatrixMarket matrix coordinate";

#[test]
fn matrices_are_graphs() {
    let loaded = plain("m.mtx", &format!("{MTX} pattern general\n% note\n\n4 4 3\n1 2\n2 3\n% in between\n3 1\n"));
    assert_eq!(arcs(&loaded.csr), [(1, 2), (2, 3), (3, 1)]);
    assert_eq!(loaded.csr.ids(), &Ids::dense(1, 4), "row 4 is an isolated vertex");
    assert!(loaded.csr.directed());

    let text = format!("{MTX} Real Symmetric\n3 3 3\n2 1 0.5\n3 3 9\n3 2 2\n");
    let loaded = weighted("m.mtx", &text);
    assert_eq!(arcs(&loaded.csr), [(1, 2), (2, 1), (2, 3), (3, 2)]);
    assert_eq!(loaded.csr.weights(), Some(&Weights::F32(vec![0.5, 0.5, 2.0, 2.0])));
    assert_eq!((loaded.csr.directed(), loaded.summary.orientation), (false, OrientationReason::Declared));
    let directed = read("m.mtx", &text, &LoadOptions { orientation: Orientation::Directed, ..WEIGHTED }).unwrap();
    assert!(directed.csr.directed());
    assert_eq!(arcs(&directed.csr), arcs(&loaded.csr), "one triangle stands for both");

    let csr = weighted("m.mtx", &format!("{MTX} integer general\n2 2 1\n1 2 7\n")).csr;
    assert_eq!(csr.weights(), Some(&Weights::U32(vec![7])));
    assert_eq!(plain("m.mtx", &format!("{MTX} pattern general\n1 1 0\n")).csr.vertices(), 1);
    // Negative values are errors only where weights are read.
    assert_eq!(plain("m.mtx", &format!("{MTX} real general\n2 2 1\n1 2 -7\n")).csr.arcs(), 1);
}

#[test]
fn bad_matrices_are_refused() {
    for (text, expected) in [
        ("", "m.mtx: is empty (0 bytes)"),
        (
            "%%MatrixMarket matrix coordinate pattern general\n",
            "m.mtx: ends before the line with its sizes (rows, columns and entries)",
        ),
        (
            "%%MatrixMarket matrix coordinate pattern general\n% x\n",
            "m.mtx: ends before the line with its sizes (rows, columns and entries)",
        ),
        ("1 2\n", "line 1: `1 2` is not a Matrix Market header"),
        ("%%MatrixMarket vector coordinate real general\n", "object `vector` is not supported"),
        (
            "%%MatrixMarket matrix array real general\n",
            "format `array` is not supported; write the non-zero entries in `coordinate` format",
        ),
        ("%%MatrixMarket matrix coordinate complex general\n", "field `complex` is not supported"),
        ("%%MatrixMarket matrix coordinate quaternion general\n", "field `quaternion` is not supported"),
        ("%%MatrixMarket matrix coordinate real skew-symmetric\n", "symmetry `skew-symmetric` is not supported"),
        ("%%MatrixMarket matrix coordinate real odd\n", "symmetry `odd` is not supported"),
        ("%%MatrixMarket matrix coordinate pattern general\n3 3\n", "line 2: `3 3` is not a size line"),
        (
            "%%MatrixMarket matrix coordinate pattern general\n3 4 1\n1 1\n",
            "line 2: 3 rows and 4 columns: the matrix of a graph is square",
        ),
        ("%%MatrixMarket matrix coordinate pattern general\n0 0 0\n", "m.mtx: holds no vertex"),
        (
            "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n% no more\n",
            "m.mtx: the header names 2 entries, the file holds 1; it is cut short",
        ),
        (
            "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n1 3\n",
            "the header names 1 entries, the file holds 2",
        ),
        (
            "%%MatrixMarket matrix coordinate pattern general\n3 3 999999999999\n1 2\n",
            "names 999,999,999,999 entries, but 70 bytes cannot hold more than",
        ),
        (
            "%%MatrixMarket matrix coordinate pattern general\n9999999999999999 9999999999999999 1\n1 2\n",
            "9,999,999,999,999,999 vertices and 1 edges need about",
        ),
        (
            "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n4 1\n",
            "line 3: vertex 4 is larger than the 3 rows that the header names",
        ),
        (
            "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 4\n",
            "line 3: vertex 4 is larger than the 3 columns that the header names",
        ),
        (
            "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n0 1\n",
            "line 3: vertex 0 in a file whose vertices are",
        ),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2\n", "line 3: 2 column(s) where 3 are expected"),
        (
            "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2 3\n",
            "line 3: 3 column(s) where 2 are expected",
        ),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 -3\n", "line 3: weight -3 is negative"),
    ] {
        let found = message(read("m.mtx", text, &LoadOptions { memory: Some(1 << 30), ..WEIGHTED }));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn ldbc_graphs_are_read_from_any_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("example.directed");
    let file = |ending: &str| PathBuf::from(format!("{}{ending}", prefix.display()));
    fs::write(file(".v"), "10\n20\n30\n40\n").unwrap();
    fs::write(file(".e"), "10 20 0.5\n30 20 1.25\n").unwrap();
    fs::write(file(".properties"), "# example\ngraph.example.directed = false\ngraph.example.vertex-file: x\n")
        .unwrap();
    for path in [file(".v"), file(".e"), prefix.clone()] {
        let loaded = load(&path, &WEIGHTED).unwrap();
        assert_eq!(loaded.csr.ids(), &Ids::Sparse(vec![10, 20, 30, 40]), "40 is an isolated vertex");
        assert_eq!(arcs(&loaded.csr), [(10, 20), (20, 10), (20, 30), (30, 20)]);
        assert_eq!(loaded.csr.weights(), Some(&Weights::F32(vec![0.5, 0.5, 1.25, 1.25])));
        assert_eq!(loaded.summary.orientation, OrientationReason::Declared);
    }
    fs::write(file(".properties"), "graph.example.directed = perhaps\n").unwrap();
    let found = message(load(&prefix, &WEIGHTED));
    assert!(found.ends_with("line 1: `perhaps` is neither true nor false"), "{found}");
    fs::remove_file(file(".properties")).unwrap();
    assert!(load(&prefix, &WEIGHTED).unwrap().csr.directed());

    fs::write(file(".e"), "10 20\n30 25\n").unwrap();
    let found = message(load(&prefix, &WEIGHTED));
    assert!(found.contains(".e line 2: vertex 25 is not in ") && found.contains(".v; add it there"), "{found}");
    fs::write(file(".v"), "10 1\n").unwrap();
    assert!(message(load(&prefix, &WEIGHTED)).contains("line 1: 2 column(s) where 1 is expected"));
    fs::remove_file(file(".v")).unwrap();
    assert_eq!(load(&file(".e"), &WEIGHTED).unwrap().csr.vertices(), 4, "the edges alone");
    assert!(message(load(&file(".v"), &WEIGHTED)).contains(".v: no such file, and "));
    fs::write(file(".v"), "10\n").unwrap();
    fs::remove_file(file(".e")).unwrap();
    assert!(message(load(&prefix, &WEIGHTED)).contains(".e: no such file, and "));
    fs::write(file(".e"), "").unwrap();
    let csr = load(&prefix, &WEIGHTED).unwrap().csr;
    assert_eq!((csr.vertices(), csr.arcs()), (1, 0));
}

#[test]
fn paths_that_are_no_graph_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.el");
    assert!(message(load(&missing, &WEIGHTED)).ends_with("missing.el: no such file"));
    assert!(message(load(&folder.path().join("missing"), &WEIGHTED)).ends_with("missing: no such file"));
    assert!(message(load(folder.path(), &WEIGHTED)).contains("is a folder; name a graph file"));
    let named = folder.path().join("folder.mtx");
    fs::create_dir(&named).unwrap();
    assert!(message(load(&named, &WEIGHTED)).contains("folder.mtx: is a folder"));
    let other = folder.path().join("graph.orc");
    fs::write(&other, "1,2\n").unwrap();
    assert!(message(load(&other, &WEIGHTED)).contains(".orc is not a known ending"));
    assert!(message(load(Path::new("/dev/null"), &WEIGHTED)).contains("/dev/null: is not a regular file"));
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_read() {
    let lists = vec![vec![]; 1000];
    let options = LoadOptions { memory: Some(1000), ..Default::default() };
    let found = message(load_bytes("g.sg", &serialize(false, &lists, false), &options));
    assert!(
        found.contains("g.sg: 1,000 vertices and 0 edges need about 7.8 KiB of memory, 1000 bytes is free"),
        "{found}"
    );
    let found = message(read("g.el", &"1 2\n".repeat(1000), &options));
    assert_eq!(
        found,
        "g.el: 3.9 KiB of text need at least 2.0 KiB of memory, 1000 bytes is free; free some, or take a smaller graph"
    );
    let options = LoadOptions { memory: Some(5000), ..Default::default() };
    let found = message(read("g.el", &"1 2\n".repeat(1000), &options));
    assert!(found.contains("2 vertices and 1,000 edges need about"), "{found}");
}

#[test]
fn a_star_has_one_long_list() {
    let text: String = (1..=20_000).map(|v| format!("0 {v}\n")).collect();
    let csr =
        read("g.el", &text, &LoadOptions { orientation: Orientation::Undirected, ..Default::default() }).unwrap().csr;
    assert_eq!((csr.degree(0), csr.degree(20_000), csr.edges()), (20_000, 1, 20_000));
}

#[test]
fn progress_reaches_the_end_of_each_stage() {
    let seen = parking_lot::Mutex::new(Vec::new());
    let progress = |p: Progress| seen.lock().push(p);
    let options = LoadOptions { progress: Some(&progress), ..Default::default() };
    let text = "1 2\n".repeat(1000);
    load_pieces("g.el", text.as_bytes(), &options, 100).unwrap();
    let seen = seen.into_inner();
    for (stage, total) in [(Stage::Read, 4000), (Stage::Build, 2000)] {
        let of: Vec<_> = seen.iter().filter(|p| p.stage == stage).collect();
        assert!(of.iter().all(|p| p.total == total && p.done <= total), "{of:?}");
        assert!(of.iter().any(|p| p.done == total), "{of:?}");
    }
}

fn options() -> impl Strategy<Value = LoadOptions<'static>> {
    let orientation = prop_oneof![Just(Orientation::Auto), Just(Orientation::Directed), Just(Orientation::Undirected)];
    let weights = prop_oneof![
        Just(WeightMode::Ignore),
        Just(WeightMode::Input),
        Just(WeightMode::RandomIntegers),
        Just(WeightMode::RandomReals)
    ];
    (orientation, weights, any::<bool>(), any::<bool>()).prop_map(|(orientation, weights, wide, keep_self_loops)| {
        LoadOptions { orientation, weights, wide, keep_self_loops, memory: Some(1 << 24), ..Default::default() }
    })
}

const NAMES: [&str; 16] = [
    "out.konect",
    "g.col",
    "g.parquet",
    "g.arrow",
    "g.el",
    "g.txt",
    "g.wel",
    "g.mtx",
    "g.v",
    "g.e",
    "g.sg",
    "g.wsg",
    "g.csv",
    "g.tsv",
    "g.gr",
    "g.graph",
];

proptest! {
    #[test]
    fn no_bytes_make_any_reader_panic(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "[0-9 \t\r\n#%.e+-]{0,200}".prop_map(String::into_bytes),
            "(a ?b( 1)?\n)?([0-9a-cé,\" \t\r\n]{0,9}\n?){0,20}".prop_map(String::into_bytes),
            "(source,target(,weight)?\n)?([0-9,\"\t\r\n]|[0-9],[0-9]\n){0,60}".prop_map(String::into_bytes),
            "(% (sym|asym|bip)( (un)?weighted)?\n(% 4 [0-3] 3\n)?)?([1-4] [1-4]( [0-9]{0,2}){0,2}\n){0,6}".prop_map(String::into_bytes),
            "(([a-c0-3] [a-c0-3])( ?\\{('weight': [0-9.]{0,3}(, 'a': '[b,}]')?)?\\}| #x)?\n){0,6}".prop_map(String::into_bytes),
            "((src_id|node_1)[,;|\t ](dst_id|node_2)([,;|\t ]dist)?\n)?([0-3][,;|\t ][0-3]([,;|\t ][0-9.]{1,3})?\n){0,6}".prop_map(String::into_bytes),
            "p (edge|col) [1-4] [0-4]\n(e [0-5] [0-5]\n){0,4}".prop_map(String::into_bytes),
            "(c x\n)?p sp [1-4] [0-4]\n(a [0-5] [0-5] [0-9]\n){0,4}".prop_map(String::into_bytes),
            "[1-4] [0-4]( [01]{1,3}( [0-2])?)?\n([0-5 ]{0,6}\n){0,5}".prop_map(String::into_bytes),
            "(%%MatrixMarket matrix coordinate (pattern|real|integer) (general|symmetric)\n)[1-4] [1-4] [0-4]\n([0-5] [0-5]( [0-9.-]{0,4})?\n){0,5}"
                .prop_map(String::into_bytes),
        ],
        piece in 1u64..64, options in options(),
        vertices in prop_oneof![3 => Just(None), 1 => (0u64..9).prop_map(Some)],
        columns in prop_oneof![4 => Just(None), 1 => "src=([1-3]|src_id)(,dst=([1-3]|to))?(,weight=3)?".prop_map(Some)],
        ids in prop_oneof![Just(IdKind::Auto), Just(IdKind::Numbers), Just(IdKind::Names)],
    ) {
        let columns: Option<ColumnNames> = columns.map(|text| text.parse().unwrap());
        let options = options.ids(ids).vertices(vertices).columns(columns.as_ref());
        for name in NAMES {
            match load_pieces(name, &bytes, &options, piece) {
                Ok(loaded) => {
                    prop_assert!(loaded.csr.vertices() > 0);
                    prop_assert_eq!(loaded.csr.offsets().last().copied(), Some(loaded.csr.arcs()));
                }
                Err(error) => prop_assert!(!error.to_string().contains('\n')),
            }
        }
    }

    #[test]
    fn changed_bytes_of_a_serialized_graph_never_panic(
        changes in prop::collection::vec((0usize..200, any::<u8>()), 0..6), cut in 0usize..200, directed: bool,
        weighted: bool, options in options(),
    ) {
        let lists = [vec![(1, 5), (2, 6)], vec![(0, 5), (2, 7)], vec![(0, 6), (1, 7)]];
        let mut bytes = serialize(directed, &lists, weighted);
        bytes.truncate(bytes.len().max(cut));
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let name = if weighted { "g.wsg" } else { "g.sg" };
        if let Ok(loaded) = load_bytes(name, &bytes, &options) {
            prop_assert_eq!(loaded.csr.offsets().last().copied(), Some(loaded.csr.arcs()));
        }
    }

    #[test]
    fn every_format_says_the_same_of_the_same_graph(
        edges in prop::collection::vec((0u64..12, 0u64..12, 0u32..9), 1..40), piece in 1u64..40, directed: bool,
    ) {
        let orientation = if directed { Orientation::Directed } else { Orientation::Undirected };
        let options = LoadOptions { orientation, ..WEIGHTED };
        let expected = Csr::from_weighted_edges(12, &edges, CsrOptions { directed, ..Default::default() }).unwrap();
        let lines = |base: u64| -> String {
            edges.iter().map(|(a, b, w)| format!("{} {} {w}\n", a + base, b + base)).collect()
        };
        // All vertices occur in edges, so that edge lists have them, too.
        let all: String = (0..12).map(|v| format!("{v} {v} 0\n")).collect();
        let list = load_pieces("g.wel", (all + &lines(0)).as_bytes(), &options, piece).unwrap();
        prop_assert_eq!(&list.csr, &expected);
        let matrix = format!("{MTX} integer general\n12 12 {}\n{}", edges.len(), lines(1));
        let matrix = load_pieces("g.mtx", matrix.as_bytes(), &options, piece).unwrap();
        prop_assert_eq!(matrix.csr.ids(), &Ids::dense(1, 12));
        prop_assert_eq!((matrix.csr.offsets(), matrix.csr.neighbours(), matrix.csr.weights()),
            (expected.offsets(), expected.neighbours(), expected.weights()));
        let same = |csr: &Csr| {
            (csr.offsets(), csr.neighbours(), csr.weights())
                == (expected.offsets(), expected.neighbours(), expected.weights())
        };
        let table = |separator: &str| -> String {
            let list: String = (0..12).map(|v| format!("{v} {v} 0\n")).collect();
            (list + &lines(0)).replace(' ', separator)
        };
        let header = format!("weight,to,x,from\n{}", (0..12).map(|v| format!("0,{v},,{v}\n")).collect::<String>()
            + &edges.iter().map(|(a, b, w)| format!("{w},\"{b}\",\"a, \"\"b\"\"\",{a}\n")).collect::<String>());
        for (name, text) in [("g.csv", table(",")), ("g.tsv", table("\t")), ("g.csv", header)] {
            prop_assert!(same(&load_pieces(name, text.as_bytes(), &options, piece).unwrap().csr), "{}", name);
        }
        let arcs: String = lines(1).lines().map(|l| format!("a {l}\n")).collect();
        let dimacs = format!("c roads\np sp 12 {}\n{arcs}", edges.len());
        prop_assert!(same(&load_pieces("g.gr", dimacs.as_bytes(), &options, piece).unwrap().csr));
        let Some(Weights::U32(weights)) = expected.weights() else { panic!() };
        if !directed {
            let row = |v| -> String {
                expected.range(v).map(|i| format!("{} {} ", expected.neighbours().get(i) + 1, weights[i])).collect()
            };
            let rows: String = (0..12).map(|v| row(v) + "\n").collect();
            let metis = format!("% lists\n12 {} 001\n{rows}\n", expected.edges());
            let metis = load_pieces("g.graph", metis.as_bytes(), &WEIGHTED, piece).unwrap();
            prop_assert!(same(&metis.csr));
            prop_assert_eq!(metis.summary.input_edges, expected.edges());
        }
        let lists: Vec<Vec<(u32, i32)>> = (0..12)
            .map(|v| expected.range(v).map(|i| (expected.neighbours().get(i) as u32, weights[i] as i32)).collect())
            .collect();
        let serialized = load_pieces("g.wsg", &serialize(directed, &lists, true), &WEIGHTED, piece).unwrap();
        prop_assert_eq!(&serialized.csr, &expected);
        let turned = expected.transpose();
        prop_assert_eq!(&turned.transpose(), &expected);
        prop_assert_eq!(turned == expected, expected.one_way_edge().is_none());
    }
}
