//! Compares highlights with values of networkx 3.6 (tests/cli/networkx_values.py): on the Enron graph and on random
//! graphs, read from their files and opened as stored graphs.

use super::program::*;
use crate::tree;
use serde_json::{Value, json};
use std::fmt::Write;

fn values() -> Value {
    let text = std::fs::read_to_string(tree::file("tests/cli/networkx.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Runs an algorithm on an input with more arguments; returns the first highlight.
fn highlight(args: &[&str]) -> Value {
    let report: Value = serde_json::from_str(&succeeds(&[&["graph"], args, &["--json", "-"]].concat())).unwrap();
    report["results"]["highlights"][0].clone()
}

fn check(expected: &Value, input: &[&str]) {
    let source = in_table(&expected["source"]);
    let bfs = highlight(&[&["bfs"], input, &["--source", &source]].concat());
    assert_eq!((&bfs["levels"], &bfs["farthest"]), (&expected["bfs"]["levels"], &expected["bfs"]["farthest"]));

    let cc = highlight(&[&["cc"], input].concat());
    let largest: Vec<Value> = cc["largest"].as_array().unwrap().iter().map(pair("component", "vertices")).collect();
    assert_eq!((&cc["components"], json!(largest)), (&expected["cc"]["components"], expected["cc"]["largest"].clone()));

    check_ranks(&expected["pagerank"], &[&["pagerank"], input].concat());
    let named: Vec<String> = expected["personalized"]["vertices"].as_array().unwrap().iter().map(in_table).collect();
    let named = named.join(",");
    let personalized = [&["pagerank"], input, &["--personalize", &named]].concat();
    check_ranks(&expected["personalized"]["highest"], &personalized);

    let strong = highlight(&[&["cc", "--strong"], input].concat());
    let sizes: Vec<Value> = strong["largest"].as_array().unwrap().iter().map(pair("component", "vertices")).collect();
    assert_eq!((&strong["components"], &json!(sizes)), (&expected["strong"]["count"], &expected["strong"]["largest"]));

    let cdlp = highlight(&[&["cdlp"], input].concat());
    let sizes: Vec<Value> = cdlp["largest"].as_array().unwrap().iter().map(pair("label", "vertices")).collect();
    assert_eq!((&cdlp["communities"], &json!(sizes)), (&expected["cdlp"]["count"], &expected["cdlp"]["largest"]));

    let sources: Vec<String> = expected["bc"]["sources"].as_array().unwrap().iter().map(in_table).collect();
    let scores = highlight(&[&["bc"], input, &["--source", &sources.join(",")]].concat());
    let (scores, wanted) = (scores["highest"].as_array().unwrap(), expected["bc"]["highest"].as_array().unwrap());
    assert_eq!(scores.len(), wanted.len());
    for (found, wanted) in scores.iter().zip(wanted) {
        // Scores that differ in rounding alone may have changed places.
        let [found, wanted] = [&found["betweenness"], &wanted[1]].map(|s| s.as_f64().unwrap());
        assert!((found - wanted).abs() < 1e-9 * wanted.max(1.0), "{found} {wanted}");
    }

    if let Some(paths) = expected.get("sssp") {
        let sssp = highlight(&[&["sssp"], input, &["--source", &source]].concat());
        let reached = sssp["histogram"].as_array().unwrap().iter().map(|r| r["vertices"].as_u64().unwrap()).sum();
        assert_eq!(sssp["eccentricity"].as_f64(), paths["eccentricity"].as_f64());
        assert_eq!((&sssp["farthest"], Some(reached)), (&paths["farthest"], paths["reached"].as_u64()));
    }
}

/// Compares the highest ranks. Vertices of equal ranks may be in another order.
fn check_ranks(expected: &Value, args: &[&str]) {
    let found = highlight(&[args, &["--tolerance", "1e-12"]].concat());
    let ranks = found["highest"].as_array().unwrap();
    let expected = expected.as_array().unwrap();
    assert_eq!(ranks.len(), expected.len());
    for (found, wanted) in ranks.iter().zip(expected) {
        let of = |vertex: &Value| expected.iter().find(|v| v[0] == *vertex).map(|v| v[1].as_f64().unwrap());
        let [rank, right] = [&found["rank"], &wanted[1]].map(|r| r.as_f64().unwrap());
        assert!((rank - right).abs() < 1e-9, "{rank} {right}");
        assert!(of(&found["vertex"]).is_none_or(|of| (of - rank).abs() < 1e-9), "{ranks:?}");
    }
}

/// Returns a vertex as a table has it: a name with a comma or a double quote is quoted.
fn in_table(vertex: &Value) -> String {
    match vertex.as_str() {
        Some(name) => format!("\"{}\"", name.replace('"', "\"\"")),
        None => vertex.to_string(),
    }
}

fn pair<'a>(first: &'a str, second: &'a str) -> impl Fn(&Value) -> Value + 'a {
    move |v| json!([v[first], v[second]])
}

/// Checks a file, and the stored graph that is imported from it.
fn check_both(expected: &Value, file: &str, direction: &str) {
    check(expected, &[file, direction]);
    let folder = folder();
    let device = format!("soft:{}", name(&folder.path().join("g.img")));
    succeeds(&["graph", "import", file, direction, "--name", "g", "--device", &device]);
    check(expected, &["stored:g", "--device", &device]);
}

#[test]
fn the_enron_graph_is_that_of_networkx() {
    check(&values()["enron"], &[ENRON, "--undirected"]);
}

#[test]
#[ignore = "takes minutes with the others like it: .ci/run soak"]
fn the_enron_graph_is_that_of_networkx_if_it_is_stored() {
    check_both(&values()["enron"], ENRON, "--undirected");
}

fn check_drawn(graphs: &str) {
    let folder = folder();
    for (i, graph) in values()[graphs].as_array().unwrap().iter().enumerate() {
        let mut lines = String::from("source,target,weight\n");
        for edge in graph["edges"].as_array().unwrap() {
            writeln!(lines, "{},{},{}", in_table(&edge[0]), in_table(&edge[1]), edge[2]).unwrap();
        }
        let file = write(&folder, &format!("{i}.csv"), lines);
        let direction = if graph["directed"] == true { "--directed" } else { "--undirected" };
        check_both(graph, &file, direction);
    }
}

#[test]
fn random_graphs_are_those_of_networkx() {
    check_drawn("drawn");
}

#[test]
fn random_graphs_with_names_are_those_of_networkx() {
    check_drawn("named");
}
