//! Tests of vertices with names.

use super::tests::{WEIGHTED, message, plain, read};
use super::*;
use crate::graph::csr::Csr;
use crate::graph::csr::Weights;
use crate::graph::ids::Ids;
use crate::graph::quoting::{Field, Separator};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the names, and the arcs by name.
fn named(csr: &Csr) -> (Vec<String>, Vec<(String, String)>) {
    let Ids::Named(names) = csr.ids() else { panic!("no names: {:?}", csr.ids()) };
    let name = |v| names.get(v).to_owned();
    let arcs = (0..csr.vertices()).flat_map(|v| csr.neighbours_of(v).map(move |n| (name(v), name(n)))).collect();
    (names.iter().map(str::to_owned).collect(), arcs)
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn the_first_edge_decides_whether_vertices_have_names() {
    for (name, text) in [
        ("g.el", "# Ann knows\n\nbob 7\n7 ann\n"),
        ("g.txt", "bob\t7\r\n7 ann"),
        ("g.csv", "bob,7\n7,ann\n"),
        ("g.csv", "to,since,from\n7,1999,bob\n\"ann\",2001,7\n"),
        ("g.tsv", "\u{feff}bob\t7\n7\tann\n"),
    ] {
        let loaded = plain(name, text);
        let expected = (vec!["7".to_owned(), "ann".to_owned(), "bob".to_owned()], owned(&[("7", "ann"), ("bob", "7")]));
        assert_eq!(named(&loaded.csr), expected, "{name}");
        assert_eq!(loaded.csr.ids().vertex("bob"), Some(2));
    }
    assert_eq!(
        named(&read("g.wel", "a b 0.5\n2 1 3\n", &WEIGHTED.ids(IdKind::Names)).unwrap().csr).0,
        ["1", "2", "a", "b"]
    );
    assert_eq!(read("g.wel", "a b 0.5\n", &WEIGHTED).unwrap().csr.weights(), Some(&Weights::F32(vec![0.5])));
    // Numbers stay numbers, unless names are asked for.
    assert_eq!(plain("g.el", "10 9\n").csr.ids(), &Ids::dense(9, 2));
    assert_eq!(named(&read("g.el", "10 9\n", &LoadOptions::default().ids(IdKind::Names)).unwrap().csr).0, ["10", "9"]);
    assert_eq!(
        named(&read("g.el", "-1 1e5\n", &LoadOptions::default().ids(IdKind::Names)).unwrap().csr).0,
        ["-1", "1e5"]
    );
}

#[test]
fn a_word_among_numbers_is_an_error_that_names_the_choice() {
    const AMONG: &str = "is not a whole number, as other vertices of the file are";
    for (name, text, line, word) in [
        ("g.el", "1 2\n3 bob\n", 2, "bob"),
        ("g.csv", "source,target\n1,2\n1,Ann B\n", 3, "Ann B"),
        ("g.tsv", "1\t\n", 1, ""),
    ] {
        let found = message(read(name, text, &LoadOptions::default()));
        assert!(found.starts_with(&format!("{name} line {line}: `{word}` {AMONG}")), "{found}");
        if !word.is_empty() {
            assert!(read(name, text, &LoadOptions::default().ids(IdKind::Names)).is_ok(), "{text}");
        }
        let found = message(read(name, text, &LoadOptions::default().ids(IdKind::Numbers)));
        assert!(found.starts_with(&format!("{name} line {line}: `{word}` is not a vertex identifier")), "{found}");
    }
    // A heading is not one of the vertices, so names are no advice.
    for (name, text, words) in [
        ("g.el", "# x\nnode friend\n1 2\n", "`node`, `friend`"),
        ("g.csv", "node,friend,since\n# x\n1,2,3\n", "`node`, `friend`, `since`"),
    ] {
        let found = message(read(name, text, &LoadOptions::default()));
        let line = if name == "g.el" { 2 } else { 1 };
        assert!(
            found.starts_with(&format!("{name} line {line}: {words} above a line of numbers is a heading")),
            "{found}"
        );
        assert!(found.contains("known are source, src") && !found.contains("as names"), "{found}");
    }
    // Numbers that no vertex has are no names.
    for text in ["-1 2\n", "1.5 2\n", "18446744073709551616 1\n", "1,2\n", "\u{1}a b\n"] {
        assert!(read("g.el", text, &LoadOptions::default()).is_err(), "{text}");
    }
}

#[test]
fn words_that_are_no_names_are_refused_with_their_line() {
    let long = "x".repeat(4097);
    for (name, text, expected) in [
        ("g.csv", b"a,b\nc,\n".to_vec(), "g.csv line 2: ``: the name of a vertex is empty; a name has 1 to 4096 bytes"),
        ("g.csv", b"a,b\n\"\",c\n".to_vec(), "g.csv line 2: ``: the name of a vertex is empty"),
        ("g.csv", b"a,b\nc,\"d\n".to_vec(), "g.csv line 2: a quoted field does not end on this line"),
        ("g.csv", b"a,b\n\"c\"d,e\n".to_vec(), "g.csv line 2: text follows the closing double quote"),
        ("g.csv", b"a,b\nc\n".to_vec(), "g.csv line 2: 1 column(s) where 2 are expected"),
        (
            "g.el",
            b"a b\nc M\xfcller\n".to_vec(),
            "g.el line 2: `M\u{fffd}ller`: the name of a vertex is not UTF-8; convert",
        ),
        ("g.el", b"a \x02b\n".to_vec(), "g.el line 1: `\\u{2}b`: the name of a vertex has the control character 0x02"),
        ("g.el", format!("a b\na {long}\n").into_bytes(), "the name of a vertex has 4097 bytes; a name has 1 to 4096"),
        ("g.el", b"a b\na b c\n".to_vec(), "g.el line 2: a third column in an unweighted list"),
        ("g.txt", b"a b\na Doe, J\n".to_vec(), "g.txt line 2: 3 column(s) where 2 are expected"),
    ] {
        let found = message(load_bytes(name, &text, &LoadOptions::default().ids(IdKind::Names)));
        assert!(found.contains(expected), "{found}");
    }
    assert!(read("g.el", &format!("a {}\n", &long[1..]), &LoadOptions::default()).is_ok());
}

#[test]
fn formats_with_numbers_have_no_names() {
    for name in ["g.mtx", "g.gr", "g.graph", "g.e", "g.sg", "g.wsg"] {
        let found = message(read(name, "a b\n", &LoadOptions::default().ids(IdKind::Names)));
        assert!(
            found.contains(name) && found.contains("are numbers; only edge lists and tables have names"),
            "{found}"
        );
    }
}

#[test]
fn names_are_part_of_the_memory_that_is_checked() {
    let text: String = (0..20_000).map(|i| format!("vertex-{i} hub\n")).collect();
    let with = |memory| read("g.el", &text, &LoadOptions::default().memory(Some(memory)));
    let found = message(with(200_000));
    assert!(found.contains("the names of vertices up to here take") && found.contains("195.3 KiB is free"), "{found}");
    let found = message(with(1_500_000));
    assert!(found.contains("20,001 vertices and 20,000 edges need about"), "{found}");
    assert_eq!(with(8_000_000).unwrap().csr.vertices(), 20_001);
}

fn in_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

#[test]
fn many_names_grow_the_tables_and_meet_in_threads() {
    // Every name occurs in many pieces, and names share their first bytes.
    let text: String = (0..60_000u64).map(|i| format!("name-{} name-{}\n", i * 7919 % 10_007, i % 4099)).collect();
    let expected: BTreeSet<String> = text.split_whitespace().map(str::to_owned).collect();
    let one = in_threads(1, || load_pieces("g.el", text.as_bytes(), &LoadOptions::default(), 1 << 20)).unwrap();
    assert_eq!(named(&one.csr).0, expected.into_iter().collect::<Vec<_>>());
    for (threads, piece) in [(2, 1000), (7, 333), (16, 50_000)] {
        assert_eq!(
            in_threads(threads, || load_pieces("g.el", text.as_bytes(), &LoadOptions::default(), piece)).unwrap(),
            one
        );
    }
}

proptest! {
    #[test]
    fn tables_of_names_are_those_of_a_map(
        edges in prop::collection::vec(("[a-c1é,\" #\t]{1,5}", "[a-c1é,\"%]{1,3}", 0u32..9), 1..30),
        piece in 1u64..80, threads in 1usize..5,
    ) {
        let csv = |text: &str| Field { text, separator: Separator::Comma }.to_string();
        let table = edges.iter().fold("source,target,weight\n".to_owned(), |t, (a, b, w)| t + &format!("{},{},{w}\n", csv(a), csv(b)));
        let options = LoadOptions { orientation: Orientation::Directed, ids: IdKind::Names, keep_self_loops: true, ..WEIGHTED };
        let csr = in_threads(threads, || load_pieces("g.csv", table.as_bytes(), &options, piece)).unwrap().csr;
        let names: BTreeSet<&str> = edges.iter().flat_map(|(a, b, _)| [a.as_str(), b]).collect();
        let mut weights = BTreeMap::new();
        for (a, b, w) in &edges {
            let least = weights.entry((a.clone(), b.clone())).or_insert(*w);
            *least = (*least).min(*w);
        }
        let (found, arcs) = named(&csr);
        prop_assert_eq!(found, names.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(arcs, weights.keys().cloned().collect::<Vec<_>>());
        prop_assert_eq!(csr.weights(), Some(&Weights::U32(weights.into_values().collect())));
    }

    #[test]
    fn lists_of_names_do_not_depend_on_their_order(
        edges in prop::collection::vec(("[a-cé\"]{1,3}", "[a-c0-9]{1,3}"), 1..30).prop_shuffle(), piece in 1u64..80,
    ) {
        let options = LoadOptions::default().ids(IdKind::Names);
        let text = |edges: &[(String, String)]| edges.iter().map(|(a, b)| format!("{a} {b}\n")).collect::<String>();
        let csr = load_pieces("g.el", text(&edges).as_bytes(), &options, piece).unwrap().csr;
        let mut sorted = edges.clone();
        sorted.sort();
        prop_assert_eq!(&load_pieces("g.txt", text(&sorted).as_bytes(), &options, 1 << 20).unwrap().csr, &csr);
        let names: BTreeSet<String> = edges.into_iter().flat_map(|(a, b)| [a, b]).collect();
        prop_assert_eq!(named(&csr).0, names.into_iter().collect::<Vec<_>>());
    }
}
