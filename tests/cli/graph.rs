//! Graph algorithms: their results are right, and say where the edges came from.

use super::children::Meeting;
use super::program::*;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::{Output, Stdio};

#[test]
fn the_main_job_is_verified() {
    let folder = folder();
    let (out, report) = (folder.path().join("bfs.txt"), folder.path().join("bfs.json"));
    let text = succeeds(&["graph", "bfs", ENRON, "--source", "1", "--out", name(&out), "--json", name(&report)]);
    mentions(
        &text,
        &["engine ", "queues host", "36,691 vertices", "reached 33,695 in", "TEPS", "verified (GAP rules)"],
    );

    let distance = values(&out);
    assert_eq!(distance.len(), ENRON_VERTICES);
    assert_eq!(distance[&1], "0");
    assert_eq!(distance[&2], "1");
    assert_eq!(distance.values().filter(|v| *v != "inf").count(), ENRON_LARGEST_COMPONENT);

    let report = json(&report);
    assert_eq!(report["schema"], 1);
    assert_eq!(report["command"], "graph bfs");
    assert_eq!(report["path"]["queues"], "host");
    let runs = report["results"]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["verified"], true);
    assert_eq!(runs[0]["reached"], ENRON_LARGEST_COMPONENT);
    assert!(runs[0]["io"]["read_bytes"].as_u64().unwrap() > 0, "the edges came from somewhere else");
}

#[test]
fn components_are_named_by_their_smallest_vertex() {
    let folder = folder();
    let out = folder.path().join("cc.txt");
    let text = succeeds(&["graph", "cc", ENRON, "--cache", "50%", "--out", name(&out)]);
    mentions(&text, &["verified (GAP rules)"]);
    let component = values(&out);
    assert_eq!(component.len(), ENRON_VERTICES);
    let mut members: HashMap<&str, Vec<u64>> = HashMap::new();
    for (id, c) in &component {
        members.entry(c).or_default().push(*id);
    }
    for (c, ids) in &members {
        assert_eq!(c.parse::<u64>().unwrap(), *ids.iter().min().unwrap());
    }
    assert_eq!(members.values().map(Vec::len).max(), Some(ENRON_LARGEST_COMPONENT));
}

#[test]
fn ranks_sum_to_one() {
    let folder = folder();
    let out = folder.path().join("pr.txt");
    let text = succeeds(&["graph", "pagerank", ENRON, "--out", name(&out)]);
    mentions(&text, &["iterations", "verified (GAP rules)"]);
    let ranks = values(&out);
    assert_eq!(ranks.len(), ENRON_VERTICES);
    let sum: f64 = ranks.values().map(|v| v.parse::<f64>().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-3, "{sum}");
}

#[test]
fn shortest_paths_on_a_weighted_file() {
    let folder = folder();
    let input = write(&folder, "small.wel", "10 20 3\n20 30 4\n10 30 9\n40 50 1\n");
    let out = folder.path().join("sssp.txt");
    let text = succeeds(&["graph", "sssp", &input, "--directed", "--source", "10", "--out", name(&out)]);
    mentions(&text, &["reached 3 ", "verified (GAP rules)"]);
    let d = values(&out);
    let expected = [(10, "0"), (20, "3"), (30, "7"), (40, "inf"), (50, "inf")];
    assert_eq!(d.len(), expected.len());
    for (id, value) in expected {
        assert_eq!(d[&id], value, "{id}");
    }
}

#[test]
fn several_sources_and_runs_have_a_summary() {
    let text = succeeds(&["graph", "bfs", "kron:13", "--sources", "3", "--runs", "2", "--cache", "25%"]);
    assert_eq!(text.matches("verified (GAP rules)").count(), 6, "{text}");
    mentions(&text, &["harmonic mean"]);
}

#[test]
fn json_goes_to_standard_output_alone() {
    let text = succeeds(&["graph", "bfs", "urand:8", "--source", "1", "--json", "-"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["results"]["runs"][0]["verified"], true);
}

#[test]
fn what_was_not_verified_is_not_called_verified() {
    let text = succeeds(&["graph", "bfs", "kron:8", "--sources", "1", "--no-verify"]);
    assert!(text.contains("not verified"), "{text}");
    assert!(!text.contains("verified (GAP rules)"), "{text}");
}

#[test]
fn edges_in_memory_give_the_same_distances() {
    let folder = folder();
    let mut results = Vec::new();
    for edges in ["storage", "pinned", "gpu"] {
        let out = folder.path().join(edges);
        succeeds(&["graph", "bfs", "kron:9", "--source", "5", "--edges", edges, "--out", name(&out)]);
        results.push(values(&out));
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn striped_and_file_backed_devices_give_the_same_distances() {
    let folder = folder();
    let mut results = Vec::new();
    let file = format!("soft:{}", name(&folder.path().join("edges.img")));
    for (i, device) in [&["--device", "soft:mem"][..], &["--stripe", "3", "--stripe-chunk", "8k"], &["--device", &file]]
        .iter()
        .enumerate()
    {
        let out = folder.path().join(i.to_string());
        let mut args = vec!["graph", "bfs", "kron:9", "--source", "5", "--out", name(&out)];
        args.extend(*device);
        succeeds(&args);
        results.push(values(&out));
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn a_graph_dealt_out_to_pes_gives_the_same_distances() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let bfs = |out: &Path, more: &[&str]| {
        let args = [&["graph", "bfs", ENRON, "--source", "1", "--out", name(out)], more].concat();
        succeeds(&args)
    };
    bfs(&path("alone"), &[]);
    let (out, report) = (path("three"), path("report"));
    let text = bfs(&out, &["--pes", "3", "-v", "--json", name(&report)]);
    mentions(&text, &["PEs 3", "PE 2 ", "reached 33,695 in 8 levels", "exchanged ", "verified (GAP rules)", "both"]);
    assert_eq!(values(&out), values(&path("alone")));
    let report = json(&report);
    let parts = report["results"]["pes"].as_array().unwrap();
    let sum = |what: &str| parts.iter().map(|p| p[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!((parts.len(), sum("vertices")), (3, ENRON_VERTICES as u64));
    assert_eq!(sum("stored_edges"), report["results"]["graph"]["stored_edges"]);
    assert!(report["results"]["runs"][0]["put_bytes"].as_u64().unwrap() > 0);
    assert!(report["results"]["runs"][0]["io"]["read_bytes"].as_u64().unwrap() > 0, "from the volumes of all PEs");

    let device = format!("soft:{}", name(&path("part-{pe}.img")));
    bfs(&path("files"), &["--pes", "2", "--device", &device, "--cache", "50%"]);
    assert_eq!(values(&path("files")), values(&out));
    assert!(path("part-0.img").is_file() && path("part-1.img").is_file());
}

#[test]
fn ranks_search_together() {
    let folder = folder();
    let out = folder.path().join("out");
    let meeting = Meeting::new();
    let rank = |rank: &str| {
        let mut c = command(
            &[
                &["graph", "bfs", "kron:9", "--source", "5", "--edges", "gpu", "--engine", "cpu", "--out"][..],
                &[name(&out)],
            ]
            .concat(),
        );
        c.envs([("WARPBELL_RANK", rank), ("WARPBELL_SIZE", "2"), ("WARPBELL_STORE", &meeting.store())]);
        c.env("WARPBELL_SECRET", "a secret of this test alone").stdout(Stdio::piped()).stderr(Stdio::piped());
        if rank == "0" {
            meeting.hand_to(&mut c);
        }
        c.spawn().unwrap()
    };
    let said: Vec<Output> = ["0", "1"].map(rank).into_iter().map(|c| c.wait_with_output().unwrap()).collect();
    let all = || said.iter().map(|o| format!("{}:\n{}{}", o.status, stdout(o), stderr(o))).collect::<String>();
    assert!(said.iter().all(|o| o.status.success()), "{}", all());
    mentions(&stdout(&said[0]), &["PEs 2", "exchanged", "verified (GAP rules)"]);
    assert!(stdout(&said[1]).is_empty(), "one of them speaks");
    let alone = folder.path().join("alone");
    succeeds(&["graph", "bfs", "kron:9", "--source", "5", "--edges", "gpu", "--out", name(&alone)]);
    assert_eq!(values(&out), values(&alone));
}

#[test]
fn a_fault_of_one_pes_device_is_named_with_the_pe() {
    let folder = folder();
    let out = folder.path().join("out");
    let bad = format!("soft:{},media-error=read:768-2000", name(&folder.path().join("bad.img")));
    let good = format!("soft:{}", name(&folder.path().join("good.img")));
    let message = fails(
        &[
            &["graph", "bfs", ENRON, "--source", "1", "--pes", "2", "--device", &good, "--device", &bad, "--out"][..],
            &[name(&out)],
        ]
        .concat(),
    );
    mentions(&message, &["PE 1: ", "nrecovered"]);
    assert!(!out.exists());
}

#[test]
fn slow_and_reordered_completions_change_nothing() {
    let device = "soft:mem,latency=20us-200us,reorder,seed=7";
    let text = succeeds(&["graph", "bfs", ENRON, "--source", "1", "--device", device]);
    mentions(&text, &["reached 33,695 in", "verified (GAP rules)"]);
}

/// Whether QEMU is here; where it has to be, its absence is a failure.
fn qemu() -> bool {
    let here = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|d| d.join("qemu-system-x86_64").is_file());
    if !here {
        assert!(std::env::var_os("WARPBELL_REQUIRE_QEMU").is_none(), "qemu-system-x86_64 is not installed");
        eprintln!("SKIP: qemu-system-x86_64 is not installed");
    }
    here
}

#[test]
fn the_main_job_runs_on_qemus_controller() {
    if !qemu() {
        return;
    }
    let folder = folder();
    let device = format!("qtest:{}", name(&folder.path().join("edges.img")));
    let text = succeeds(&["graph", "bfs", ENRON, "--source", "1", "--device", &device]);
    mentions(&text, &["qtest", "doorbell cpu", "reached 33,695 in", "verified (GAP rules)"]);
}
