//! Tests the highlights below a result, the files of several sources, and the times of the phases.

use super::program::*;
use serde_json::{Value, json};
use std::fs;

/// A path of five vertices with a triangle at its end, and an edge apart.
const GRAPH: &str = "1 2\n2 3\n3 4\n4 5\n5 3\n10 20\n";

/// Runs a command on [`GRAPH`]. Returns the text and the report.
fn run(command: &[&str]) -> (String, Value) {
    let folder = folder();
    let (input, report) = (write(&folder, "small.el", GRAPH), folder.path().join("report.json"));
    let (algorithm, more) = command.split_first().unwrap();
    let args = [&["graph", algorithm, &input, "--undirected", "--json", name(&report)], more].concat();
    (succeeds(&args), json(&report))
}

#[test]
fn a_search_tells_its_levels_and_the_farthest_vertex() {
    for more in [&[][..], &["--pes", "2"]] {
        let (text, report) = run(&[&["bfs", "--source", "1"], more].concat());
        mentions(&text, &["\nlevels 1, 1, 1, 2   farthest 4\n"]);
        let highlights = json!([{ "source": 1, "levels": [1, 1, 1, 2], "farthest": 4 }]);
        assert_eq!(report["results"]["highlights"], highlights, "{more:?}");
    }
    let (text, report) = run(&["bfs", "--source", "1", "--source", "20", "--runs", "2"]);
    mentions(&text, &["source 1  levels 1, 1, 1, 2   farthest 4\n", "source 20  levels 1, 1   farthest 10\n"]);
    assert_eq!(report["results"]["highlights"].as_array().unwrap().len(), 2);
}

#[test]
fn shortest_paths_tell_the_eccentricity_and_how_far_vertices_are() {
    let (text, report) = run(&["sssp", "--source", "1", "--top", "2"]);
    mentions(&text, &["\neccentricity 3   farthest 4   distances from 0: 2, from 2: 3\n"]);
    let histogram = json!([{ "from": 0.0, "vertices": 2 }, { "from": 2.0, "vertices": 3 }]);
    let highlight = json!({ "source": 1, "eccentricity": 3.0, "farthest": 4, "histogram": histogram });
    assert_eq!(report["results"]["highlights"][0], highlight);
    let (text, _) = run(&["sssp", "--source", "1", "--top", "0"]);
    mentions(&text, &["eccentricity 3   farthest 4\n"]);
}

#[test]
fn the_largest_components_and_the_highest_ranks_are_named() {
    let (text, report) = run(&["cc"]);
    mentions(&text, &["2 components in", "\nlargest components 1: 5, 10: 2\n"]);
    let largest = json!([{ "component": 1, "vertices": 5 }, { "component": 10, "vertices": 2 }]);
    assert_eq!(report["results"]["highlights"], json!([{ "components": 2, "largest": largest }]));
    mentions(&run(&["cc", "--top", "1"]).0, &["\nlargest components 1: 5\n"]);

    // Of the directed graph the triangle is one component.
    let folder = folder();
    let input = write(&folder, "small.el", GRAPH);
    let text = succeeds(&["graph", "cc", &input, "--directed", "--strong", "-v"]);
    mentions(
        &text,
        &["5 components in", "verified (Tarjan's algorithm)", "\nlargest components 3: 3, 1: 1, 2: 1, 10: 1, 20: 1\n"],
    );
    mentions(&run(&["cc", "--strong"]).0, &["2 components in", "verified (GAP rules)"]);

    let (text, report) = run(&["bc", "--source", "1,20", "--top", "2", "-v"]);
    mentions(&text, &["\nsources 1, 20   highest betweenness 2: 3.00, 3: 2.00\n", "2 sources", "verified (GAP rules)"]);
    let highest = json!([
        { "vertex": 2, "betweenness": 3.0, "share": 1.0 },
        { "vertex": 3, "betweenness": 2.0, "share": 2.0 / 3.0 },
    ]);
    assert_eq!(report["results"]["highlights"], json!([{ "sources": [1, 20], "highest": highest }]));
    let (_, report) = run(&["bc", "--all"]);
    assert_eq!(report["results"]["highlights"][0]["sources"], Value::Null);
    let (_, report) = run(&["bc"]);
    assert_eq!(report["results"]["highlights"][0]["sources"].as_array().map(Vec::len), Some(4));

    // Pairs exchange their labels in each iteration.
    let (text, report) = run(&["cdlp"]);
    mentions(
        &text,
        &[
            "4 communities in 10 iterations",
            "verified (Graphalytics rules)",
            "\nlargest communities 2: 4, 1: 1, 10: 1, 20: 1\n",
        ],
    );
    let largest = &report["results"]["highlights"][0]["largest"][0];
    assert_eq!((&largest["label"], &largest["vertices"]), (&json!(2), &json!(4)));
    assert_eq!(report["results"]["runs"][0]["rules"], "Graphalytics rules");

    let (text, report) = run(&["pagerank", "--top", "1"]);
    mentions(&text, &["\nhighest ranks 3: "]);
    let highest = report["results"]["highlights"][0]["highest"].as_array().unwrap();
    assert_eq!((highest.len(), &highest[0]["vertex"]), (1, &json!(3)));
}

#[test]
fn triangles_coefficients_and_cores_are_told() {
    let (text, report) = run(&["tc", "--top", "3"]);
    mentions(&text, &["1 triangle in 2 steps", "verified (GAP rules)\nmost triangles 3: 1, 4: 1, 5: 1\n"]);
    let run_of = |report: &Value| report["results"]["runs"][0].clone();
    assert_eq!((&run_of(&report)["triangles"], &run_of(&report)["verified"]), (&json!(1), &json!(true)));
    let most = json!([3, 4, 5].map(|vertex| json!({ "vertex": vertex, "triangles": 1 })));
    assert_eq!(report["results"]["highlights"], json!([{ "triangles": 1, "most": most }]));

    // Two vertices have a coefficient of 1, one of 1/3, and four of 0.
    let (text, report) = run(&["lcc"]);
    mentions(&text, &["mean coefficient 0.3333 in 2 steps", "verified (LDBC rules)\nmean coefficient 0.333333\n"]);
    let mean = report["results"]["highlights"][0]["mean"].as_f64().unwrap();
    assert!((mean - 1.0 / 3.0).abs() < 1e-12 && run_of(&report)["mean_coefficient"] == mean, "{mean}");

    let (text, report) = run(&["kcore"]);
    mentions(
        &text,
        &["largest core number 2 in 2 levels", "verified (serial peeling)\nvertices by core number 2: 3, 1: 4\n"],
    );
    assert_eq!(run_of(&report)["largest_core"], 2);
    let cores = json!([{ "core": 2, "vertices": 3 }, { "core": 1, "vertices": 4 }]);
    assert_eq!(report["results"]["highlights"], json!([{ "largest": 2, "cores": cores }]));
}

#[test]
fn the_values_of_each_vertex_are_written() {
    let folder = folder();
    let input = write(&folder, "small.el", GRAPH);
    let written = |command: &str, direction: &str| succeeds(&["graph", command, &input, direction, "--out", "-"]);
    assert_eq!(written("tc", "--undirected"), "1 0\n2 0\n3 1\n4 1\n5 1\n10 0\n20 0\n");
    assert_eq!(written("lcc", "--undirected"), "1 0\n2 0\n3 0.3333333333333333\n4 1\n5 1\n10 0\n20 0\n");
    assert_eq!(written("lcc", "--directed"), "1 0\n2 0\n3 0.16666666666666666\n4 0.5\n5 0.5\n10 0\n20 0\n");
    for direction in ["--undirected", "--directed"] {
        assert_eq!(written("kcore", direction), "1 1\n2 1\n3 2\n4 2\n5 2\n10 1\n20 1\n");
    }
}

#[test]
fn triangles_of_a_directed_graph_are_refused_before_a_device_is_opened() {
    let folder = folder();
    let input = write(&folder, "small.el", GRAPH);
    let device = format!("soft:{}", name(&folder.path().join("g.img")));
    let message = fails(&["graph", "tc", &input, "--directed", "--device", &device]);
    mentions(&message, &["triangle counting is defined for undirected graphs", "give --undirected"]);
    assert!(!folder.path().join("g.img").exists());
    succeeds(&["graph", "import", &input, "--directed", "--name", "g", "--device", &device]);
    mentions(&fails(&["graph", "tc", "stored:g", "--device", &device]), &["is directed; give --undirected"]);
}

#[test]
fn counts_of_the_enron_graph_are_those_of_networkx() {
    let text = fs::read_to_string(crate::tree::file("tests/cli/networkx_counts.json")).unwrap();
    let expected = serde_json::from_str::<Value>(&text).unwrap()["enron"].take();
    let highlight = |command: &str| {
        let report = succeeds(&["graph", command, ENRON, "--undirected", "--json", "-"]);
        serde_json::from_str::<Value>(&report).unwrap()["results"]["highlights"][0].take()
    };
    let pairs = |list: &Value, first: &str, second: &str| {
        Value::Array(list.as_array().unwrap().iter().map(|item| json!([item[first], item[second]])).collect())
    };
    let tc = highlight("tc");
    assert_eq!(tc["triangles"], expected["triangles"]);
    assert_eq!(pairs(&tc["most"], "vertex", "triangles"), expected["most"]);
    let [mean, wanted] = [&highlight("lcc")["mean"], &expected["mean"]].map(|m| m.as_f64().unwrap());
    assert!((mean - wanted).abs() < 1e-12, "{mean} {wanted}");
    assert_eq!(pairs(&highlight("kcore")["cores"], "core", "vertices"), expected["cores"]);
}

#[test]
fn results_of_all_sources_are_written() {
    let folder = folder();
    let input = write(&folder, "small.el", "1 2\n2 3\n");
    let search = |algorithm: &'static str, out: &str| {
        let sources = ["--source", "1", "--source", "3"];
        succeeds(&[&["graph", algorithm, &input, "--undirected", "--out", out], &sources[..]].concat())
    };
    let expected = "1 1 0\n1 2 1\n1 3 2\n3 1 2\n3 2 1\n3 3 0\n";
    let file = folder.path().join("all.txt");
    for algorithm in ["bfs", "sssp"] {
        mentions(&search(algorithm, name(&file)), &["source 3  "]);
        assert_eq!(fs::read_to_string(&file).unwrap(), expected, "{algorithm}");
        assert_eq!(search(algorithm, "-"), expected, "{algorithm}");
    }
    let table = folder.path().join("all.csv");
    search("sssp", name(&table));
    let lines = format!("source,vertex,distance\n{}", expected.replace(' ', ","));
    assert_eq!(fs::read_to_string(&table).unwrap(), lines);
    succeeds(&["graph", "cc", &input, "--undirected", "--out", name(&table)]);
    assert_eq!(fs::read_to_string(&table).unwrap(), "vertex,component\n1,1\n2,1\n3,1\n");
}

#[test]
fn the_time_of_each_phase_is_told() {
    for more in [&[][..], &["--pes", "2"]] {
        let (text, report) = run(&[&["bfs", "--source", "1"], more].concat());
        assert!(!text.contains("peak memory"), "{text}");
        let phases = &report["results"]["phases"];
        for phase in ["load_ns", "place_ns", "run_ns", "verify_ns", "write_ns", "peak_memory_bytes"] {
            assert!(phases[phase].as_u64().is_some_and(|n| n > 0), "{phase}: {phases}");
        }
        assert_eq!(phases["run_ns"], report["results"]["runs"][0]["elapsed_ns"]);
        let (text, _) = run(&[&["bfs", "--source", "1", "-v"], more].concat());
        mentions(&text, &["\nphases  load ", "  place ", "  run ", "  verify ", "  write ", "peak memory "]);
    }
}
