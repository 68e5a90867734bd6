//! Tests graphs whose vertices have names: read from a table, and opened as a stored graph.

use super::program::*;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

/// A path from `Doe, J` over `bob` and `10` to `x y`, with a shortcut, and an edge apart.
const TABLE: &str = "from,to,weight\n\"Doe, J\",bob,2\nbob,10,3\n10,x y,4\nbob,x y,9\nzoë,\"say \"\"hi\"\"\",1\n";

struct Named {
    folder: TempDir,
    table: String,
    device: String,
}

impl Named {
    /// Writes the table, and imports it as `stored:friends`.
    fn new() -> Self {
        let folder = folder();
        let table = write(&folder, "friends.csv", TABLE);
        let device = format!("soft:{}", name(&folder.path().join("graphs.img")));
        let import = ["graph", "import", &table, "--undirected", "--name", "friends", "--device", &device];
        mentions(&succeeds(&import), &["6 named vertices  5 edges"]);
        Self { folder, table, device }
    }

    /// Returns the arguments of a graph command on the device.
    fn on_device<'a>(&'a self, command: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
        [&["graph"], command, &["--device", &self.device], more].concat()
    }

    /// Runs an algorithm on the table and on the stored graph, which give the same. Returns the highlight of the first
    /// source, the results as text and as a table.
    fn run(&self, algorithm: &str, more: &[&str]) -> (Value, String, String) {
        let stored = ["--device", &self.device];
        let [of_table, of_stored] =
            [(&*self.table, &["--undirected"][..]), ("stored:friends", &stored)].map(|(input, own)| {
                let [report, text, table] = ["r.json", "r.txt", "r.csv"].map(|file| self.folder.path().join(file));
                for out in [&text, &table] {
                    succeeds(
                        &[&["graph", algorithm, input, "--out", name(out), "--json", name(&report)], own, more]
                            .concat(),
                    );
                }
                let highlight = json(&report)["results"]["highlights"][0].clone();
                (highlight, fs::read_to_string(text).unwrap(), fs::read_to_string(table).unwrap())
            });
        assert_eq!(of_table, of_stored, "{algorithm}");
        of_table
    }
}

#[test]
fn searches_give_their_results_by_name() {
    let named = Named::new();
    let depths = "10 2\n\"Doe, J\" 0\nbob 1\n\"say \"\"hi\"\"\" inf\n\"x y\" 2\nzoë inf\n";
    let (highlight, text, table) = named.run("bfs", &["--source", "\"Doe, J\""]);
    assert_eq!(highlight, json!({ "source": "Doe, J", "levels": [1, 1, 2], "farthest": "10" }));
    assert_eq!(text, depths);
    assert_eq!(table, "vertex,depth\n10,2\n\"Doe, J\",0\nbob,1\n\"say \"\"hi\"\"\",inf\nx y,2\nzoë,inf\n");

    let (highlight, text, _) = named.run("sssp", &["--source", "10", "--source", "zoë,x y", "--top", "1"]);
    let histogram = json!([{ "from": 0.0, "vertices": 4 }]);
    assert_eq!(highlight, json!({ "source": "10", "eccentricity": 5.0, "farthest": "Doe, J", "histogram": histogram }));
    mentions(&text, &["10 \"Doe, J\" 5\n", "zoë \"say \"\"hi\"\"\" 1\n", "\"x y\" \"x y\" 0\n", "\"x y\" bob 7\n"]);

    let out = named.folder.path().join("pes.txt");
    let args =
        ["graph", "bfs", &named.table, "--undirected", "--source", "\"Doe, J\"", "--pes", "2", "--out", name(&out)];
    mentions(&succeeds(&args), &["6 named vertices", "farthest 10", "verified (GAP rules)"]);
    assert_eq!(fs::read_to_string(out).unwrap(), depths);
    let text = succeeds(&["graph", "bfs", &named.table, "--undirected", "--source", "x y,zoë"]);
    mentions(&text, &["source \"x y\"  reached 4", "source zoë  levels 1, 1   farthest \"say \"\"hi\"\"\""]);
}

#[test]
fn components_and_ranks_are_given_by_name() {
    let named = Named::new();
    let (highlight, text, _) = named.run("cc", &[]);
    let largest = json!([{ "component": "10", "vertices": 4 }, { "component": "say \"hi\"", "vertices": 2 }]);
    assert_eq!(highlight, json!({ "components": 2, "largest": largest }));
    mentions(&text, &["\"Doe, J\" 10\n", "zoë \"say \"\"hi\"\"\"\n"]);
    let text = succeeds(&["graph", "cc", &named.table, "--undirected"]);
    mentions(&text, &["largest components 10: 4, \"say \"\"hi\"\"\": 2\n", "verified (GAP rules)"]);

    let args = |input| ["graph", "pagerank", input, "--top", "1", "--json", "-", "--device", &named.device];
    let highest = |text: String| {
        serde_json::from_str::<Value>(&text).unwrap()["results"]["highlights"][0]["highest"][0]["vertex"].clone()
    };
    assert_eq!(highest(succeeds(&args("stored:friends"))), "bob");
    let table = ["graph", "pagerank", &named.table, "--undirected", "--top", "1", "--json", "-"];
    assert_eq!(highest(succeeds(&table)), "bob");
    mentions(&succeeds(&["graph", "pagerank", &named.table, "--undirected"]), &["highest ranks bob: ", "\"x y\": "]);
}

#[test]
fn a_name_that_no_vertex_has_is_an_error() {
    let named = Named::new();
    let message = fails(&["graph", "bfs", &named.table, "--source", "Bob"]);
    mentions(&message, &["--source Bob: ", "friends.csv has no such vertex; its names go from 10 to zoë"]);
    let message = fails(&["graph", "sssp", "stored:friends", "--source", "7", "--device", &named.device]);
    mentions(&message, &["--source 7: stored:friends has no such vertex; its names go from 10 to zoë"]);
    let o = warpbell(&["graph", "bfs", &named.table, "--directed", "--source", "x y"]);
    assert!(o.status.success(), "{}", stderr(&o));
    assert_eq!(
        stderr(&o),
        "warning: --source \"x y\": no edge leaves the vertex, so the search reaches no other vertex\n"
    );
}

#[test]
fn the_choice_of_names_is_named_where_it_is_missing() {
    let folder = folder();
    let mixed = write(&folder, "mixed.el", "1 2\n2 bob\n");
    let message = fails(&["graph", "cc", &mixed]);
    mentions(&message, &["mixed.el line 2: `bob` is not a whole number", "read all vertices as names, with --names"]);
    mentions(&succeeds(&["graph", "cc", &mixed, "--names"]), &["3 named vertices", "largest components 1: 3"]);
    mentions(&fails(&["graph", "cc", &mixed, "--numbers"]), &["line 2: `bob` is not a vertex identifier"]);
    let words = write(&folder, "words.el", "ann bob\n");
    mentions(&fails(&["graph", "cc", &words, "--numbers"]), &["line 1: `ann` is not a vertex identifier"]);
    let matrix = write(&folder, "m.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n2 2 1\n2 1\n");
    mentions(&fails(&["graph", "cc", &matrix, "--names"]), &["Matrix Market are numbers", "leave --names out"]);
    for (args, option) in [
        (["kron:6", "--names"], "--names"),
        (["stored:x", "--names"], "--names"),
        (["stored:x", "--numbers"], "--numbers"),
    ] {
        let o = warpbell(&[&["graph", "cc"], &args[..]].concat());
        assert_eq!(o.status.code(), Some(2), "{}", stderr(&o));
        mentions(&stderr(&o), &[option]);
    }
}

#[test]
fn exported_names_are_read_back() {
    let named = Named::new();
    let message =
        fails(&named.on_device(&["export", "friends"], &["--out", name(&named.folder.path().join("out.el"))]));
    mentions(&message, &["stored:friends", "\"Doe, J\"", "name a file that ends in .csv"]);
    let out = named.folder.path().join("out.csv");
    succeeds(&named.on_device(&["export", "friends"], &["--out", name(&out)]));
    let table = fs::read_to_string(&out).unwrap();
    mentions(
        &table,
        &["source,target,weight\n", "\n\"Doe, J\",bob,2\n", "\nbob,\"Doe, J\",2\n", "\nzoë,\"say \"\"hi\"\"\",1\n"],
    );
    succeeds(&named.on_device(&["import", name(&out), "--name", "again"], &[]));
    succeeds(&named.on_device(&["export", "again"], &["--out", name(&out)]));
    assert_eq!(fs::read_to_string(&out).unwrap(), table);
    mentions(&succeeds(&named.on_device(&["info", "again"], &[])), &["6 named vertices  5 edges (undirected"]);
    mentions(&succeeds(&named.on_device(&["list"], &[])), &["6 named vertices"]);
    mentions(&succeeds(&named.on_device(&["verify", "again"], &[])), &["is intact"]);

    // Names without blanks stand in a list as they are.
    let words = write(&named.folder, "words.el", "ann O\"Neil\nann #tag\n");
    succeeds(&named.on_device(&["import", &words, "--directed", "--name", "words"], &[]));
    let list = named.folder.path().join("list.el");
    mentions(
        &fails(&named.on_device(&["export", "words"], &["--out", name(&list)])),
        &["cannot have the name \"#tag\""],
    );
    let words = write(&named.folder, "words.el", "ann O\"Neil\n");
    succeeds(&named.on_device(&["import", &words, "--directed", "--name", "plain"], &[]));
    succeeds(&named.on_device(&["export", "plain"], &["--out", name(&list)]));
    assert_eq!(fs::read_to_string(&list).unwrap(), "ann O\"Neil\n");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn files_of_another_build_name_its_feature() {
    let folder = folder();
    for file in ["g.parquet", "g.arrow", "g.feather"] {
        let message = fails(&["graph", "cc", &write(&folder, file, "PAR1")]);
        mentions(&message, &[file, "this build does not read", "the feature `parquet`", "as .csv"]);
    }
    let out = folder.path().join("out.parquet");
    mentions(&fails(&["graph", "cc", "kron:6", "--out", name(&out)]), &["out.parquet", "the feature `parquet`"]);
    assert!(!out.exists());
}

#[cfg(feature = "parquet")]
#[test]
fn results_are_written_as_parquet() {
    let named = Named::new();
    let out = named.folder.path().join("out.parquet");
    succeeds(&["graph", "bfs", &named.table, "--source", "bob,10", "--undirected", "--out", name(&out)]);
    assert!(fs::read(&out).unwrap().starts_with(b"PAR1"));
    // The columns of sources and vertices are no edge table: they have no targets.
    mentions(&fails(&["graph", "cc", name(&out)]), &["out.parquet", "no column of targets"]);
}
