//! Compares label propagation, strongly connected components and betweenness centrality with values of networkx 3.6 and of
//! the rule of LDBC Graphalytics (tests/cli/networkx_values.py) on 40 random graphs.

use super::program::*;
use crate::tree;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;

struct Graph {
    values: Value,
    folder: tempfile::TempDir,
}

impl Graph {
    /// Writes a graph as LDBC Graphalytics does, so that isolated vertices are in it.
    fn new(values: &Value) -> Self {
        let folder = folder();
        let (mut vertices, mut edges) = (String::new(), String::new());
        for v in values["vertices"].as_array().unwrap() {
            writeln!(vertices, "{v}").unwrap();
        }
        for edge in values["edges"].as_array().unwrap() {
            writeln!(edges, "{} {}", edge[0], edge[1]).unwrap();
        }
        write(&folder, "g.v", vertices);
        write(&folder, "g.e", edges);
        Self { values: values.clone(), folder }
    }

    /// Runs an algorithm, which has to be verified. Returns the values of the vertices.
    fn run(&self, args: &[&str]) -> HashMap<u64, String> {
        let (input, out) = (self.folder.path().join("g.e"), self.folder.path().join("out"));
        let direction = if self.values["directed"] == true { "--directed" } else { "--undirected" };
        let (algorithm, more) = args.split_first().unwrap();
        let text = succeeds(&[&["graph", algorithm, name(&input), direction, "--out", name(&out)], more].concat());
        mentions(&text, &["verified ("]);
        values(&out)
    }

    /// Compares integers with those of `field`.
    fn check(&self, args: &[&str], field: &str) {
        let found = self.run(args);
        for (v, expected) in self.expected(field) {
            assert_eq!(found[&v], expected.to_string(), "{args:?}, vertex {v}: {}", self.values);
        }
    }

    /// Compares real numbers with those of `field`.
    fn check_real(&self, args: &[&str], field: &str) {
        let found = self.run(args);
        for (v, expected) in self.expected(field) {
            let (found, expected) = (found[&v].parse::<f64>().unwrap(), expected.as_f64().unwrap());
            assert!((found - expected).abs() < 1e-9, "{args:?}, vertex {v}: {found} {expected} {}", self.values);
        }
    }

    fn expected(&self, field: &str) -> impl Iterator<Item = (u64, &Value)> {
        let of = |field: &str| self.values[field].as_array().unwrap();
        of("vertices").iter().map(|v| v.as_u64().unwrap()).zip(of(field))
    }
}

fn graphs() -> Vec<Graph> {
    let text = std::fs::read_to_string(tree::file("tests/cli/networkx.json")).unwrap();
    let values: Value = serde_json::from_str(&text).unwrap();
    values["suites"].as_array().unwrap().iter().map(Graph::new).collect()
}

#[test]
fn labels_of_random_graphs_are_those_of_graphalytics() {
    for graph in graphs() {
        graph.check(&["cdlp", "--iterations", &graph.values["iterations"].to_string()], "labels");
    }
}

#[test]
fn strong_components_of_random_graphs_are_those_of_networkx() {
    for graph in graphs() {
        graph.check(&["cc", "--strong"], "strong");
    }
}

#[test]
fn betweenness_of_random_graphs_is_that_of_networkx() {
    for graph in graphs() {
        let sources: Vec<String> = graph.values["sources"].as_array().unwrap().iter().map(Value::to_string).collect();
        graph.check_real(&["bc", "--all"], "all");
        graph.check_real(&["bc", "--source", &sources.join(",")], "some");
    }
}
