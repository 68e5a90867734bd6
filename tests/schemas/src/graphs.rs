//! Reports of the algorithms of `graph`.

use crate::validator::{has, measured};

/// Runs an algorithm twice on a small graph, and checks the report.
#[track_caller]
fn graph(algorithm: &str, more: &str) -> serde_json::Value {
    let report = measured(&format!("graph {algorithm} kron:6 --runs 2 {more}"));
    has(&report, &["/results/runs/1/verified", "/results/summary/teps", "/results/highlights/0"]);
    report
}

#[test]
fn searches_are_described() {
    let path = graph("bfs", "--source 1 --path 9");
    has(&path, &["/results/highlights/0/target/path/0", "/path/device", "/results/runs/0/io/hit_ratio"]);
    graph("bfs", "--source 1 --target 9 --max-depth 1");
    graph("bfs", "--sources 3");
    has(&graph("bfs", "--sources 3 --together"), &["/results/runs/0/sources/2", "/results/highlights/0/sources/2"]);
    has(&graph("sssp", "--source 1 --path 9"), &["/results/highlights/0/target", "/results/highlights/0/histogram"]);
    graph("sssp", "--sources 2 --weights integers --parents");
}

#[test]
fn searches_of_several_pes_are_described() {
    for (algorithm, more) in
        [("bfs", "--source 1 --path 9"), ("bfs", "--source 1 --transport soft"), ("cc", "--edges pinned"), ("lcc", "")]
    {
        let report = graph(algorithm, &format!("{more} --pes 2"));
        has(&report, &["/config/pes", "/results/pes/1/edge_bytes", "/results/transport/pes"]);
    }
    graph("pagerank", "--pes 2");
}

#[test]
fn components_and_communities_are_described() {
    graph("cc", "");
    graph("cc", "--strong --directed");
    assert!(graph("cc", "--edges pinned").get("path").is_none());
    has(&graph("cc", "--replicate --device soft:mem --device soft:mem"), &["/path/redundancy"]);
    graph("cdlp", "");
}

#[test]
fn figures_of_vertices_are_described() {
    graph("pagerank", "");
    has(&graph("pagerank", "--personalize 1,2"), &["/config/personalize/1", "/results/runs/0/residual"]);
    assert!(graph("pagerank", "--iterations 3")["config"]["tolerance"].is_null());
    graph("tc", "");
    graph("lcc", "");
    graph("kcore", "");
    has(&graph("bc", "--sources 3"), &["/results/highlights/0/sources/2"]);
    graph("bc", "--all");
}
