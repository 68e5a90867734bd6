//! Tests of edge lists as other programs and collections write them, and of weights that are rounded.

use super::tests::{WEIGHTED, arcs, message, plain, read, weighted};
use super::*;
use crate::graph::csr::{Csr, Weights};
use proptest::prelude::*;

fn noted(loaded: &Loaded) -> Vec<String> {
    loaded.notices.iter().map(ToString::to_string).collect()
}

#[test]
fn remarks_behind_edges_are_passed_over() {
    for (name, text) in [
        ("g.el", "1 2 # trailing remark\n2 3\n"),
        ("g.txt", "1 2 % x 7\n2 3 #\n"),
        ("g.wel", "1 2 5 # five\n2 3 5\n"),
        ("g.e", "1 2 5 #\n2 3 5\n"),
        ("g.txt", "1 2 5 9 # four\n2 3 5 9\n"),
    ] {
        assert_eq!(arcs(&weighted(name, text).csr), [(1, 2), (2, 3)], "{text}");
    }
    let matrix = "%%MatrixMarket matrix coordinate integer general\n3 3 2\n1 2 5 % five\n2 3 5\n";
    assert_eq!(arcs(&weighted("g.mtx", matrix).csr), [(1, 2), (2, 3)]);
    // The second word is a vertex in any case.
    assert_eq!(plain("g.el", "ann #tag\n").csr.vertices(), 2);
    for text in ["1 2 # x\n1 2 3\n", "1 2 3 # x\n1 2 # 3\n"] {
        assert!(message(read("g.txt", text, &WEIGHTED)).contains("g.txt line 2: "), "{text}");
    }
}

#[test]
fn attributes_of_networkx_are_read() {
    let text = "1 2 {'weight': 3.0}\n2 3 {'weight': 1}\n1 4 {}\n";
    for name in ["g.el", "g.txt", "g.wel", "g.edgelist"] {
        let loaded = weighted(name, text);
        assert_eq!(arcs(&loaded.csr), [(1, 2), (1, 4), (2, 3)], "{name}");
        assert_eq!(loaded.csr.weights(), Some(&Weights::F32(vec![3.0, 1.0, 1.0])));
        assert_eq!(plain(name, text).csr.weights(), None);
        let none = weighted(name, "1 2 {}\n2 3 {'colour': 'red, {weight}'}\n");
        assert_eq!((none.csr.weights(), none.summary.weights), (Some(&Weights::U32(vec![1, 1])), WeightSource::Unit));
        let stored = read(name, "ann bob {}\n", &WEIGHTED.weights(WeightMode::IfPresent)).unwrap();
        assert_eq!((stored.csr.weights(), stored.csr.vertices()), (None, 2));
    }
    for (text, expected) in [
        ("1 2 {}\n1 2\n", "line 2: `` is no list of attributes in braces, as in {'weight': 3}"),
        ("1 2 {}\n1 2 {'weight': 3\n", "line 2: `{'weight': 3` is no list of attributes"),
        ("1 2 {'weight': 'heavy'}\n", "is not a weight"),
        ("1 2 {'weight': -1}\n", "line 1: weight -1 is negative"),
    ] {
        let found = message(read("g.el", text, &WEIGHTED));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn further_columns_are_not_read_and_named() {
    let loaded = weighted("n03.edges", "1 2 4.0 1200000000\n2 3 1 1200000001\n");
    assert_eq!(loaded.csr.weights(), Some(&Weights::F32(vec![4.0, 1.0])));
    assert_eq!(noted(&loaded), ["column 4 is not read"]);
    assert_eq!(noted(&plain("g.txt", "1 2 3 4 5\n")), ["columns 4 to 5 are not read"]);
    let loaded = weighted("g.txt", "1 2 1082040961\n3 4 1082155839\n");
    assert_eq!(loaded.csr.weights(), Some(&Weights::U32(vec![1_082_040_961, 1_082_155_839])));
    assert_eq!(noted(&loaded), ["column 3 is read as the weight, and looks like a time (1082040961)"]);
    assert_eq!(noted(&plain("g.txt", "1 2 1082040961\n")), [] as [&str; 0]);
}

#[test]
fn lists_of_konect_say_what_they_are() {
    let asym =
        "% asym posweighted\n1\t2\t4\t1100000000\n2\t1\t4\t1100000001\n2\t3\t1\t1100000001\n1\t2\t3\t1100000002\n";
    let loaded = weighted("out.small-asym", asym);
    assert!(loaded.csr.directed() && loaded.summary.orientation == OrientationReason::Declared);
    assert_eq!(arcs(&loaded.csr), [(1, 2), (2, 1), (2, 3)]);
    assert_eq!(loaded.csr.weights(), Some(&Weights::U32(vec![3, 4, 1])));
    assert_eq!(noted(&loaded), ["column 4 is not read"]);
    // Each edge in both directions is still directed: the header says so.
    assert!(plain("g.txt", "% asym unweighted\n1 2\n2 1\n").csr.directed());

    let loaded = weighted("out.small-trail", "% sym unweighted \n1 2 \n2 3 \n3 4 \n");
    assert_eq!((loaded.csr.directed(), loaded.csr.edges(), noted(&loaded).len()), (false, 3, 0));
    assert_eq!(loaded.csr.weights(), Some(&Weights::U32(vec![1; 6])));

    // Both columns count from 1.
    let text = "% bip unweighted\n% 4 2 3\n1 1\n1 2\n2 3\n2 1\n";
    let loaded = plain("out.small-bip", text);
    assert_eq!(arcs(&loaded.csr), [(1, 3), (1, 4), (2, 3), (2, 5), (3, 1), (3, 2), (4, 1), (5, 2)]);
    assert_eq!(
        noted(&loaded),
        ["bipartite: 2 is added to the vertices of the second column, which follow those of the first"]
    );
    let chosen: ColumnNames = "src=1,dst=2".parse().unwrap();
    assert_eq!(read("out.x", text, &LoadOptions::default().columns(Some(&chosen))).unwrap().csr, loaded.csr);
    for (text, expected) in [
        (
            "% bip\n1 1\n",
            "line 1: the list is bipartite, so that a number is one vertex in the first column and another",
        ),
        ("% bip\n% 1 1 1\na b\n", "give them different names, and remove the header"),
        (
            "% bip\n% 1 1 1\n2 1\n",
            "line 3: vertex 2 is larger than the 1 vertices of the first column that the header names",
        ),
        ("% bip\n% 1 1 1\n0 1\n", "line 3: vertex 0 in a file whose vertices are counted from 1"),
        ("% bip\n% 1 1 1\n1 18446744073709551615\n", "line 3: vertex 18446744073709551615 is larger than"),
    ] {
        let found = message(read("out.x", text, &LoadOptions::default()));
        assert!(found.contains(expected), "{found}");
    }
    // Other comments are no headers.
    assert_eq!(noted(&plain("g.txt", "% bip that\n1 1\n")), [] as [&str; 0]);
    assert_eq!(noted(&plain("g.txt", "# x\n% bip\n1 1\n")), [] as [&str; 0]);
}

#[test]
fn matrices_of_other_programs_are_read() {
    let entries = "4 4 3\n2 1\n3 2\n4 3\n";
    let one = plain("m.mtx", &format!("%MatrixMarket matrix coordinate pattern symmetric\n{entries}"));
    assert_eq!(one.csr, plain("m.mtx", &format!("%%MatrixMarket matrix coordinate pattern symmetric\n{entries}")).csr);
    let unsigned = "%%MatrixMarket matrix coordinate unsigned-integer general\n2 2 1\n1 2 4294967295\n";
    assert_eq!(weighted("m.mtx", unsigned).csr.weights(), Some(&Weights::U32(vec![u32::MAX])));
    for (header, expected) in [
        ("%%MatrixMarket matrix coordinate real", "lacks the symmetry, which is `general`, or `symmetric` if"),
        ("%%MatrixMarket matrix coordinate", "lacks the field, which is `pattern`, `integer` or `real`; add it"),
        ("%%MatrixMarket matrix", "lacks the format, which is `coordinate`; add it"),
        ("%MatrixMarket", "lacks the object, which is `matrix`; add it"),
        ("%%MatrixMarket matrix coordinate real general more", "is not a Matrix Market header"),
        ("%%Matrix", "is not a Matrix Market header"),
    ] {
        let found = message(read("m.mtx", &format!("{header}\n{entries}"), &WEIGHTED));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn graphs_of_colourings_are_undirected() {
    for problem in ["p edge 4 3", "p col 4 3", "p edge 4 6"] {
        for name in ["d.gr", "d.col"] {
            let loaded = weighted(name, &format!("c colouring\n{problem}\nn 1 2\ne 1 2\ne 2 3\ne 3 4\n"));
            assert_eq!((loaded.csr.vertices(), loaded.csr.edges(), loaded.csr.directed()), (4, 3, false), "{problem}");
            assert_eq!(loaded.csr.weights(), Some(&Weights::U32(vec![1; 6])));
        }
    }
    let both = plain("d.col", "p edge 3 2\ne 1 2\ne 2 1\ne 2 3\ne 3 2\n");
    assert_eq!((both.csr.edges(), both.summary.duplicates), (2, 4));
}

/// Reads weights, also exact ones.
fn exact(name: &str, text: &str) -> Loaded {
    read(name, text, &WEIGHTED.exact_weights(true)).unwrap()
}

#[test]
fn rounded_weights_are_named_with_the_first_line_and_the_largest_difference() {
    let text = "# x\n1 2 0.5\n1 3 16777217.0\n3 2 123456789\n";
    let loaded = exact("f.wel", text);
    assert_eq!(
        noted(&loaded),
        [
            "weights are rounded to 32 bits: 16777217 on line 3 becomes 16777216, the first of them; the largest difference is 3"
        ]
    );
    assert_eq!(loaded.csr.weights(), Some(&Weights::F32(vec![0.5, 16_777_216.0, 123_456_792.0])));
    assert_eq!(loaded.exact_weights, Some(vec![0.5, 16_777_217.0, 123_456_789.0]));
    // Without the exact weights the graph is the same.
    let rounded = weighted("f.wel", text);
    assert_eq!((rounded.csr, rounded.notices, rounded.exact_weights), (loaded.csr, loaded.notices, None));
    // Weights that 32 bits hold are not named, and neither are integers or weights of 64 bits.
    for text in ["1 2 0.5\n2 3 3\n", "1 2 123456789\n2 3 1\n"] {
        let loaded = exact("f.wel", text);
        assert_eq!((noted(&loaded).len(), loaded.exact_weights), (0, None), "{text}");
    }
    let double = read("f.wel", text, &WEIGHTED.precision(Precision::Double).exact_weights(true)).unwrap();
    assert_eq!((noted(&double).len(), double.exact_weights), (0, None));
    assert_eq!(noted(&plain("f.wel", text)), [] as [&str; 0]);
    // Directions with weights that are equal after rounding make an undirected graph in both cases.
    let text = "1 2 16777217.0\n2 1 16777216.0\n";
    let (loaded, rounded) = (exact("f.wel", text), weighted("f.wel", text));
    assert!(!loaded.csr.directed() && loaded.csr == rounded.csr);
    for (name, text, line) in [
        ("f.csv", "src,dst,w\n1,2,3\n1,2,0.1\n", 3),
        ("f.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 3\n1 3 0.1\n", 4),
        ("f.gr", "p sp 3 2\na 1 2 3\na 1 3 0.1\n", 3),
        ("f.graph", "3 2 1\n2 3 3 0.1\n1 3\n1 0.1\n", 2),
        ("f.e", "1 2 3\n1 3 0.1\n", 2),
        ("f.txt", "1 2 {'weight': 3}\n1 3 {'weight': 0.1}\n", 2),
    ] {
        let found = noted(&weighted(name, text));
        let expected = format!("weights are rounded to 32 bits: 0.1 on line {line} becomes 0.10000000149011612");
        assert!(found[0].starts_with(&expected), "{name}: {found:?}");
    }
}

#[test]
fn weights_that_32_bits_do_not_hold_have_64() {
    let weights = |text| read("f.wel", text, &WEIGHTED.precision(Precision::Auto).exact_weights(true)).unwrap();
    for (text, expected) in [
        ("1 2 0.5\n1 3 4\n", Weights::F32(vec![0.5, 4.0])),
        ("1 2 0.1\n1 3 4\n", Weights::F64(vec![0.1, 4.0])),
        ("1 2 0.5\n1 3 123456789\n", Weights::F64(vec![0.5, 123_456_789.0])),
        ("1 2 0.5\n1 3 1.79e308\n", Weights::F64(vec![0.5, 1.79e308])),
        ("1 2 0.5\n1 3 1e-310\n", Weights::F64(vec![0.5, 1e-310])),
        ("1 2 3\n1 3 123456789\n", Weights::U32(vec![3, 123_456_789])),
    ] {
        let loaded = weights(text);
        assert_eq!((loaded.csr.weights(), loaded.exact_weights), (Some(&expected), None), "{text}");
        assert_eq!(loaded.notices, [], "{text}");
    }
    let refused = read("f.wel", "1 2 0.5\n1 3 1.79e308\n", &WEIGHTED).unwrap_err().to_string();
    assert!(refused.contains("line 2") && refused.contains("1.79e308 does not fit into 32 bits"), "{refused}");
}

#[test]
fn exact_weights_are_left_out_where_memory_is_short() {
    let text: String = (0..1000).map(|i| format!("{i} {} 0.1\n", i + 1)).collect();
    let with = |memory| read("f.wel", &text, &WEIGHTED.exact_weights(true).memory(Some(memory)));
    assert!(with(1 << 20).unwrap().exact_weights.is_some());
    let enough = (1..64).map(|k| k << 10).find(|&memory| with(memory).is_ok()).unwrap();
    assert_eq!(with(enough).unwrap().exact_weights, None);
}

proptest! {
    #[test]
    fn the_rounding_does_not_depend_on_pieces(
        weights in prop::collection::vec(prop_oneof![
            (0u32..9).prop_map(|w| w.to_string()), any::<u32>().prop_map(|w| w.to_string()),
            (0.0f64..1e9).prop_map(|w| format!("{w:?}")), (0u8..8).prop_map(|w| format!("{}.5", w)),
        ], 1..40), piece in 1u64..60,
    ) {
        let text: String = weights.iter().enumerate().map(|(i, w)| format!("{} {} {w}\n", i, i + 1)).collect();
        let loaded = load_pieces("g.wel", text.as_bytes(), &WEIGHTED.exact_weights(true), piece).unwrap();
        let real = weights.iter().any(|w| w.contains('.'));
        let values: Vec<f64> = weights.iter().map(|w| w.parse().unwrap()).collect();
        let loss = |w: &f64| (f64::from(*w as f32) - w).abs();
        let first = values.iter().position(|w| loss(w) > 0.0).filter(|_| real);
        let expected = first.map(|i| Notice::Rounded {
            unit: "line", line: i as u64 + 1, found: values[i], difference: values.iter().map(loss).fold(0.0, f64::max),
        });
        prop_assert_eq!(&loaded.notices, &expected.iter().cloned().collect::<Vec<_>>());
        prop_assert_eq!(loaded.exact_weights, first.map(|_| values));
    }

    #[test]
    fn attributes_are_the_weights_of_a_list(
        edges in prop::collection::vec((0u64..20, 0u64..20, prop::option::of(0u32..9)), 1..30), piece in 1u64..60,
    ) {
        let line = |(a, b, w): &(u64, u64, Option<u32>)| match w {
            Some(w) => format!("{a} {b} {{'x': '}},', 'weight': {w}}}\n"),
            None => format!("{a} {b} {{}}\n"),
        };
        let text: String = edges.iter().map(line).collect();
        let list: String = edges.iter().map(|(a, b, w)| format!("{a} {b} {}\n", w.unwrap_or(1))).collect();
        let csr = |name, text: &str| -> Csr { load_pieces(name, text.as_bytes(), &WEIGHTED, piece).unwrap().csr };
        prop_assert_eq!(csr("g.el", &text), csr("g.wel", &list));
    }
}
