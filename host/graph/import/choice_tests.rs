//! Tests of columns, separators and numbers of vertices: those that the first lines show, and those that options choose.

use super::tests::{WEIGHTED, arcs, message, plain, read, weighted};
use super::*;
use crate::graph::csr::Weights;
use crate::graph::ids::Ids;
use proptest::prelude::*;
use std::fs;

fn columns(text: &str) -> ColumnNames {
    text.parse().unwrap()
}

fn noted(loaded: &Loaded) -> Vec<String> {
    loaded.notices.iter().map(ToString::to_string).collect()
}

#[test]
fn headings_of_known_names_are_taken() {
    for heading in [
        "node_1,node_2",
        "FromNodeId,ToNodeId",
        "src_id,dst_id",
        "Source Node,Target Node",
        ":START_ID(Person),:END_ID(Person)",
        "id1,id2",
        "Person1Id,Person2Id",
        "origin,dest",
        "from_node,to_node",
    ] {
        let loaded = plain("g.csv", &format!("{heading}\n5,6\n6,7\n"));
        assert_eq!(arcs(&loaded.csr), [(5, 6), (6, 7)], "{heading}");
        assert_eq!(noted(&loaded), [] as [&str; 0], "{heading}");
        if !heading.contains(' ') {
            let list = plain("g.txt", &format!("# x\n{}\n5 6\n6 7\n", heading.replace(',', "\t")));
            assert_eq!(list.csr, loaded.csr, "{heading}");
            let [first, second] = heading.split(',').collect::<Vec<_>>()[..] else { panic!() };
            assert_eq!(noted(&list), [format!("the first line is a heading: source `{first}`, target `{second}`")]);
        }
    }
    // Numbered words above words are names, and the user is told.
    for (name, text) in [("g.csv", "node1,node2\nnode2,node3\n"), ("g.el", "node1 node2\nnode2 node3\n")] {
        let loaded = plain(name, text);
        assert_eq!(loaded.csr.vertices(), 3);
        let first = text.lines().next().unwrap();
        assert_eq!(
            noted(&loaded),
            [format!("the first line, `{first}`, is read as an edge; if it is a heading, name its columns")]
        );
    }
    // One known word makes no heading of an edge list.
    assert_eq!(plain("g.el", "from ann\nann to\n").csr.vertices(), 3);
}

#[test]
fn columns_are_chosen_by_name_and_by_position() {
    let table = "distance,dest,origin,when\n5,2,1,9\n7,3,2,9\n";
    let expected = weighted("g.csv", "source,target,weight\n1,2,5\n2,3,7\n").csr;
    for choice in ["src=origin,dst=dest,weight=distance", "source=ORIGIN,target=2,weight=1", "src=3,dst=2,weight=1"] {
        for (name, text) in [("g.csv", table.to_owned()), ("g.txt", table.replace(',', " "))] {
            let loaded = read(name, &text, &WEIGHTED.columns(Some(&columns(choice)))).unwrap();
            assert_eq!(loaded.csr, expected, "{name} {choice}");
        }
    }
    // A part that is not chosen is found by its name.
    let loaded =
        read("g.csv", "src,dst,dist\n1,2,5\n2,3,7\n", &WEIGHTED.columns(Some(&columns("weight=dist")))).unwrap();
    assert_eq!(loaded.csr, expected);
    // Without a heading the choice is all that is read.
    let list = "1 2 1082040961 5\n2 3 1082040962 7\n";
    let chosen = |choice: &str| read("g.txt", list, &WEIGHTED.columns(Some(&columns(choice)))).unwrap();
    assert_eq!(chosen("src=1,dst=2,weight=4").csr, expected);
    assert_eq!(chosen("src=1,dst=2").csr.weights(), Some(&Weights::U32(vec![1, 1])));
    assert_eq!(arcs(&chosen("src=2,dst=1").csr), [(2, 1), (3, 2)]);
    // An unknown heading above numbers is no edge where columns are chosen.
    let named = columns("src=a,dst=b");
    let options = WEIGHTED.columns(Some(&named));
    assert_eq!(arcs(&read("g.csv", "a,b\n1,2\n", &options).unwrap().csr), [(1, 2)]);
    let positions = columns("src=1,dst=2");
    let options = WEIGHTED.columns(Some(&positions));
    assert_eq!(arcs(&read("g.el", "a b\n1 2\n", &options).unwrap().csr), [(1, 2)]);
    for (name, text, choice, expected) in [
        ("g.csv", "a,b\n1,2\n", "src=x", "g.csv: no column `x` among `a`, `b`; known are source"),
        ("g.el", "1 2\n", "dst=friend", "g.el: no column `friend` among `1`, `2`"),
        ("g.csv", "a,b\n1,2\n", "src=b,dst=2", "g.csv: column 2 is source and target among `a`, `b`"),
        ("g.el", "# x\n1\n", "src=1", "g.el line 2: 1 column(s) where 2 are expected"),
        ("g.csv", "1,2\n1\n", "src=1", "g.csv line 2: 1 column(s) where 2 are expected"),
        ("g.el", "1 2\n", "src=2", "g.el: column 2 is source and target among `1`, `2`"),
        ("g.el", "1 2\n", "dst=3", "g.el: no column `3` among `1`, `2`"),
        ("g.el", "1 2 3\n1 2\n", "src=1,dst=3", "g.el line 2: 2 column(s) where 3 are expected"),
        ("g.mtx", "x", "src=1", "columns of the format Matrix Market cannot be chosen"),
    ] {
        let found = message(read(name, text, &WEIGHTED.columns(Some(&columns(choice)))));
        assert!(found.contains(expected), "{found}");
    }
    for bad in ["", "src", "src=", "src=a,src=b", "from=a", "\"src=a"] {
        let found = bad.parse::<ColumnNames>().unwrap_err().to_string();
        assert!(found.starts_with(&format!("`{bad}` names no columns; write them as in src=")), "{found}");
    }
    assert_eq!(columns("\"src=a,b\",dst= c ").source.as_deref(), Some("a,b"));
}

#[test]
fn a_column_that_may_be_the_weight_is_named() {
    let text = "src,dst,dist,who\n1,2,5,x\n2,3,7,y\n";
    let loaded = weighted("g.csv", text);
    assert_eq!(loaded.csr.weights(), Some(&Weights::U32(vec![1, 1])));
    assert_eq!(noted(&loaded), ["no column is read as the weight; these hold numbers: `dist`"]);
    assert_eq!(noted(&plain("g.csv", text)), [] as [&str; 0], "nobody asked for weights");
    assert_eq!(noted(&weighted("g.csv", "src,dst,weight,n\n1,2,5,6\n")), [] as [&str; 0]);
    assert_eq!(noted(&weighted("g.csv", "1,2,5,6\n")), ["column 4 is not read"]);
}

#[test]
fn separators_are_found_by_the_first_line() {
    let expected = weighted("g.csv", "1,2,5\n2,3,7\n").csr;
    for (name, separator, word) in [
        ("g.csv", ";", "semicolons"),
        ("g.csv", "|", "vertical bars"),
        ("g.csv", "\t", "tabs"),
        ("g.tsv", ",", "commas"),
    ] {
        for heading in ["", "source,target,weight\n"] {
            let text = format!("{heading}1,2,5\n2,3,7\n").replace(',', separator);
            let loaded = weighted(name, &text);
            assert_eq!(loaded.csr, expected, "{text}");
            assert_eq!(noted(&loaded), [format!("columns are separated by {word}")]);
        }
    }
    // Commas are decimal marks here, and no number has them.
    let found = message(read("g.csv", "1;2;0,5\n2;3;1,5\n", &WEIGHTED));
    assert!(found.contains("g.csv line 1: `0,5` is not a weight"), "{found}");
    assert_eq!(plain("g.csv", "1;2;0,5\n").csr.vertices(), 2);
    // The usual character counts where it gives columns.
    assert_eq!(plain("g.csv", "a;b,c\nc,d\n").csr.vertices(), 3);
    let found = message(read("g.el", "1;2\n", &WEIGHTED));
    assert!(found.contains("separated by blanks or tabs, not by semicolons; read the file as CSV"), "{found}");
}

#[test]
fn a_number_of_vertices_makes_isolated_ones() {
    let five = LoadOptions::default().vertices(Some(5));
    for (name, text) in [("g.el", "1 2\n"), ("g.csv", "1,2\n"), ("g.tsv", "1\t2\n"), ("g.wel", "1 2 3\n")] {
        let csr = read(name, text, &five).unwrap().csr;
        assert_eq!((csr.ids(), csr.arcs()), (&Ids::dense(0, 5), 1), "{name}");
    }
    assert_eq!(read("g.el", "# nothing\n", &five).unwrap().csr.vertices(), 5);
    for (name, text, expected) in [
        (
            "g.el",
            "1 2\n\n4 5\n",
            "g.el line 3: vertex 5 is not one of the 5 vertices that the graph has, which are 0 to 4",
        ),
        ("g.csv", "1,2\n9,1\n", "g.csv line 2: vertex 9 is not one of the 5 vertices"),
        ("g.el", "a b\n", "g.el: its vertices have names, so the number of vertices cannot be chosen"),
        ("g.mtx", "x", "g.mtx: files of the format Matrix Market have their own, so the number"),
        ("out.x", "% bip\n% 1 1 1\n1 1\n", "a bipartite list has its own numbers of vertices"),
    ] {
        let found = message(read(name, text, &five));
        assert!(found.contains(expected), "{found}");
    }
    let found = message(read("g.el", "1 2\n", &LoadOptions::default().vertices(Some(1 << 50)).memory(Some(1 << 20))));
    assert!(found.contains("1,125,899,906,842,624 vertices and 1 edges need about"), "{found}");
}

#[test]
fn a_raw_folder_of_ogb_has_the_vertices_of_its_list() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    fs::create_dir(&raw).unwrap();
    fs::write(raw.join("edge.csv"), "0,1\n1,2\n").unwrap();
    assert_eq!(load(&raw.join("edge.csv"), &LoadOptions::default()).unwrap().csr.vertices(), 3);
    fs::write(raw.join("num-node-list.csv"), "5\n").unwrap();
    for path in [folder.path(), &raw, &raw.join("edge.csv")] {
        let loaded = load(path, &LoadOptions::default()).unwrap();
        assert_eq!(loaded.csr.ids(), &Ids::dense(0, 5));
        assert_eq!(noted(&loaded), ["5 vertices, as num-node-list.csv says"]);
        let Imported::InMemory(stored) = load_or_sort(path, &LoadOptions::default()).unwrap() else { panic!() };
        assert_eq!(*stored, loaded);
        // A program compares the files that it reads with those that it writes.
        assert!(["edge.csv", "num-node-list.csv"].iter().all(|name| files(path).contains(&raw.join(name))));
    }
    let chosen = load(&raw, &LoadOptions::default().vertices(Some(9))).unwrap();
    assert_eq!((chosen.csr.vertices(), noted(&chosen).len()), (9, 0));
    fs::write(raw.join("num-node-list.csv"), "3\n2\n").unwrap();
    let found = message(load(&raw, &LoadOptions::default()));
    assert!(found.contains("num-node-list.csv: lists 2 graphs, whose edges are all in one file"), "{found}");
    fs::write(raw.join("num-node-list.csv"), "x\n").unwrap();
    assert!(message(load(&raw, &LoadOptions::default())).contains("num-node-list.csv line 1: `x` is not a vertex"));
}

proptest! {
    #[test]
    fn a_chosen_order_of_columns_is_the_graph_of_the_usual_one(
        edges in prop::collection::vec((0u64..30, 0u64..30, 0u32..9), 1..30), piece in 1u64..60,
        order in Just([0usize, 1, 2, 3]).prop_shuffle(), separator in prop_oneof![Just(","), Just(";"), Just("|"), Just("\t")],
        by_name: bool, is_list: bool,
    ) {
        let separator = if is_list { " " } else { separator };
        let row = |fields: [String; 4]| order.map(|i| fields[i].clone()).join(separator) + "\n";
        let mut text = String::new();
        if by_name {
            text += &row(["a", "b", "c", "d"].map(str::to_owned));
        }
        edges.iter().for_each(|(a, b, w)| text += &row([a.to_string(), b.to_string(), w.to_string(), "0.5".to_owned()]));
        let place = |i: usize| match by_name {
            true => ["a", "b", "c"][i].to_owned(),
            false => (order.iter().position(|&at| at == i).unwrap() + 1).to_string(),
        };
        let chosen = columns(&format!("src={},dst={},weight={}", place(0), place(1), place(2)));
        let name = if is_list { "g.txt" } else { "g.csv" };
        let found = load_pieces(name, text.as_bytes(), &WEIGHTED.columns(Some(&chosen)), piece).unwrap();
        let plain: String = edges.iter().map(|(a, b, w)| format!("{a} {b} {w}\n")).collect();
        prop_assert_eq!(found.csr, weighted("g.wel", &plain).csr);
    }
}
