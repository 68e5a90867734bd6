//! Tests searches that end at a vertex or at a distance, and the parents and paths that they report.

use super::program::*;
use serde_json::Value;

/// Vertices 1 to 5 are a path with a shorter way from 1 to 4; vertices 8 and 9 are apart.
const WAYS: &str = "1 2\n2 3\n3 4\n4 5\n1 4\n8 9\n";

fn report(args: &[&str]) -> Value {
    serde_json::from_str(&succeeds(&[args, &["--json", "-"]].concat())).unwrap()
}

#[test]
fn a_path_is_printed_and_reported_with_its_length() {
    let folder = folder();
    let ways = write(&folder, "ways.el", WAYS);
    let bfs = ["graph", "bfs", &ways, "--undirected", "--source", "1"];
    for more in [&[][..], &["--pes", "2"], &["--edges", "gpu"]] {
        let args = [&bfs[..], more].concat();
        let text = succeeds(&[&args[..], &["--path", "5"]].concat());
        mentions(&text, &["verified (GAP rules)", "target 5   length 2   path 1 4 5\n"]);
        let target = &report(&[&args[..], &["--path", "5"]].concat())["results"]["highlights"][0]["target"];
        assert_eq!(*target, serde_json::json!({ "vertex": 5, "length": 2, "path": [1, 4, 5] }));

        mentions(&succeeds(&[&args[..], &["--path", "9"]].concat()), &["reached 5 in", "target 9   not reached\n"]);
        let text = succeeds(&[&args[..], &["--target", "3", "--max-depth", "1"]].concat());
        mentions(&text, &["reached 3 in 1 level ", "verified (GAP rules)", "target 3   not reached\n"]);
        mentions(&fails(&[&args[..], &["--target", "7"]].concat()), &["--target 7: ", "no such vertex", "from 1 to 9"]);
    }
    let full = report(&[&bfs[..], &["--target", "3", "--max-depth", "9"]].concat());
    assert_eq!((&full["config"]["target"], &full["config"]["max_depth"]), (&"3".into(), &9.into()));
    assert!(full["results"]["highlights"][0]["target"].get("path").is_none(), "it was not asked for");
}

#[test]
fn names_on_a_path_are_quoted_where_they_need_it() {
    let folder = folder();
    let named = write(&folder, "named.csv", "\"Doe, John\",ann\nann,\"Bo B\"\n");
    let text = succeeds(&["graph", "bfs", &named, "--directed", "--source", "\"Doe, John\"", "--path", "Bo B"]);
    mentions(&text, &["target \"Bo B\"   length 2   path \"Doe, John\" ann \"Bo B\"\n"]);
}

#[test]
fn parents_are_a_column_of_the_results() {
    let folder = folder();
    let ways = write(&folder, "ways.el", WAYS);
    let csv = folder.path().join("out.csv");
    let args = ["graph", "bfs", &ways, "--undirected", "--source", "1", "--parents"];
    for more in [&[][..], &["--pes", "2"]] {
        let written = succeeds(&[&args[..], more, &["--out", "-"]].concat());
        // Vertex 3 is as near from 2 as from 4.
        let expected = |three| format!("1 0 1\n2 1 1\n3 2 {three}\n4 1 1\n5 2 4\n8 inf -\n9 inf -\n");
        assert!([expected(2), expected(4)].contains(&written), "{written}");
        succeeds(&[&args[..], more, &["--max-depth", "1", "--out", name(&csv)]].concat());
        let table = std::fs::read_to_string(&csv).unwrap();
        assert_eq!(table, "vertex,depth,parent\n1,0,1\n2,1,1\n3,inf,\n4,1,1\n5,inf,\n8,inf,\n9,inf,\n");
    }
    let several = succeeds(&[&args[..], &["--source", "9", "--target", "8", "--out", "-"]].concat());
    assert!(several.starts_with("1 1 0 1\n") && several.ends_with("9 8 1 9\n9 9 0 9\n"), "{several}");
    assert_eq!(several.lines().filter(|line| line.starts_with("1 ")).count(), 7);
}
