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

#[test]
fn shortest_paths_have_parents_and_end_where_they_are_told_to() {
    let folder = folder();
    // The direct edge from 1 to 4 is the longest way, and 2 and 3 are at the same distance.
    let roads = write(&folder, "roads.wel", "1 2 2\n2 3 0\n3 2 0\n3 4 4\n1 4 7\n4 5 1.5\n8 9 1\n");
    let sssp = ["graph", "sssp", &roads, "--directed", "--source", "1"];
    for more in
        [&["--edges", "storage"][..], &["--edges", "pinned"], &["--edges", "gpu"], &["--pes", "2"], &["--pes", "3"]]
    {
        let args = [&sssp[..], more].concat();
        let text = succeeds(&[&args[..], &["--path", "5"]].concat());
        mentions(&text, &["verified (GAP rules)", "target 5   length 7.5   path 1 2 3 4 5\n"]);
        let written = succeeds(&[&args[..], &["--parents", "--out", "-"]].concat());
        assert_eq!(written, "1 0 1\n2 2 1\n3 2 2\n4 6 3\n5 7.5 4\n8 inf -\n9 inf -\n");
        let written = succeeds(&[&args[..], &["--parents", "--target", "4", "--out", "-"]].concat());
        assert_eq!(written, "1 0 1\n2 2 1\n3 2 2\n4 6 3\n5 inf -\n8 inf -\n9 inf -\n");
        let written = succeeds(&[&args[..], &["--max-distance", "2.5", "--target", "4", "--out", "-"]].concat());
        assert_eq!(written, "1 0\n2 2\n3 2\n4 inf\n5 inf\n8 inf\n9 inf\n");
        mentions(&succeeds(&[&args[..], &["--path", "8"]].concat()), &["reached 5 in", "target 8   not reached\n"]);
    }
    let report = report(&[&sssp[..], &["--path", "3", "--max-distance", "9"]].concat());
    let target = &report["results"]["highlights"][0]["target"];
    assert_eq!(*target, serde_json::json!({ "vertex": 3, "length": 2.0, "path": [1, 2, 3] }));
    assert_eq!((&report["config"]["max_distance"], &report["config"]["parents"]), (&9.0.into(), &true.into()));
}

#[test]
fn a_path_to_each_vertex_of_a_stored_graph_is_verified() {
    let folder = folder();
    let device = format!("soft:{}", name(&folder.path().join("g.img")));
    succeeds(&["graph", "import", "kron:10", "--name", "g", "--weights", "integers", "--device", &device]);
    for algorithm in ["bfs", "sssp"] {
        let args = ["graph", algorithm, "stored:g", "--device", &device, "--verify", "--sources", "3"];
        let text = succeeds(&[&args[..], &["--parents", "--path", "7"]].concat());
        assert_eq!(text.matches("verified (GAP rules)").count(), 3, "{text}");
        assert_eq!(text.matches("target 7   ").count(), 3, "{text}");
        mentions(&fails(&[&args[..], &["--target", "2000"]].concat()), &["--target 2000: stored:g has no such vertex"]);
    }
    // Rounded weights are verified by those of the file, too.
    let real = write(&folder, "real.wel", "1 2 0.1\n2 3 0.2\n1 3 0.35\n3 4 0.7\n");
    let text = succeeds(&["graph", "sssp", &real, "--source", "1", "--weights-type", "f32", "--path", "3"]);
    mentions(&text, &["verified (GAP rules), and by the file's weights", "path 1 2 3\n"]);
}

#[test]
fn searches_together_have_the_results_of_searches_one_after_the_other() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    for edges in ["storage", "gpu"] {
        let bfs = ["graph", "bfs", "kron:9", "--edges", edges, "--sources", "70"];
        let (alone, together) = (path("alone"), path("together"));
        succeeds(&[&bfs[..], &["--out", name(&alone)]].concat());
        let text = succeeds(&[&bfs[..], &["--together", "--out", name(&together), "-v"]].concat());
        mentions(&text, &["64 sources  reached ", "6 sources  reached ", "top-down", "reached by each 4"]);
        assert_eq!(text.matches("verified (GAP rules)").count(), 2, "{text}");
        let read = |path| std::fs::read_to_string(path).unwrap();
        assert!(read(&alone) == read(&together), "the files differ");
    }
    let ways = write(&folder, "ways.el", WAYS);
    let bfs = ["graph", "bfs", &ways, "--undirected", "--together", "--max-depth", "1"];
    let text = succeeds(&[&bfs[..], &["--source", "9,1", "--out", "-"]].concat());
    let first = "9 1 inf\n9 2 inf\n9 3 inf\n9 4 inf\n9 5 inf\n9 8 1\n9 9 0\n";
    assert_eq!(text, format!("{first}1 1 0\n1 2 1\n1 3 inf\n1 4 1\n1 5 inf\n1 8 inf\n1 9 inf\n"));
    assert!(succeeds(&[&bfs[..], &["--source", "1", "--out", "-"]].concat()).starts_with("1 0\n2 1\n3 inf\n"));
    let report = report(&[&bfs[..], &["--source", "9,1"]].concat());
    let (run, highlights) = (&report["results"]["runs"][0], &report["results"]["highlights"][0]);
    assert_eq!((&run["sources"], &run["reached"]), (&serde_json::json!([9, 1]), &5.into()));
    assert_eq!((&run["verified"], &report["config"]["together"]), (&true.into(), &true.into()));
    assert_eq!((&highlights["reached"], &highlights["levels"]), (&[2, 3].into(), &[2, 3].into()));
    let text = succeeds(&[&bfs[..], &["--source", "9,1", "--no-verify"]].concat());
    mentions(&text, &["2 sources  reached 5 in 1 level", "not verified", "reached by each 2 to 3"]);
}
