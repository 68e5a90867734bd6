//! Tests graph algorithms: their results are correct, and the output names the source of the edges.

use super::children::Meeting;
use super::program::*;
use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
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
fn personalised_ranks_are_those_of_the_vertices_named() {
    let folder = folder();
    // Vertex 4 has no out-edge: its rank goes to 1 and 3, the vertices named, as networkx has it. Nothing leads to 5.
    let input = write(&folder, "small.el", "1 2\n2 3\n3 1\n3 4\n5 1\n");
    let args = ["graph", "pagerank", &input, "--directed", "--personalize", "1", "--personalize", "3,1"];
    let (out, report) = (folder.path().join("out"), folder.path().join("report"));
    let more = ["--tolerance", "1e-12", "--out", name(&out), "--json", name(&report)];
    mentions(&succeeds(&[&args[..], &more].concat()), &["verified (GAP rules)"]);
    let ranks = values(&out);
    let rank = |v: u64| ranks[&v].parse::<f64>().unwrap();
    assert_eq!(ranks[&5], "0");
    // 1 is named twice, so two thirds of the jumps lead there.
    let jumps = 0.15 + 0.85 * rank(4);
    assert!((rank(1) - jumps * 2.0 / 3.0 - 0.85 * rank(3) / 2.0).abs() < 1e-10);
    assert!((rank(3) - jumps / 3.0 - 0.85 * rank(2)).abs() < 1e-10);
    assert_eq!(json(&report)["config"]["personalize"], serde_json::json!(["1", "3", "1"]));
    mentions(&succeeds(&[&args[..], &["--iterations", "7"]].concat()), &["7 iterations", "verified (GAP rules)"]);
    mentions(
        &fails(&["graph", "pagerank", &input, "--personalize", "9"]),
        &["--personalize 9: ", "no such vertex", "from 1 to 5"],
    );
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
fn graphs_are_read_from_tables_and_from_standard_input() {
    let folder = folder();
    let piped = |args: &[&str], input: &[u8]| {
        let mut child =
            command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    };
    let gzip = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 0x33, 0x54, 0x30, 0xe2, 0x32, 0x52, 0x30, 0xe6, 0x02, 0, 0xf5, 0xf1, 0x2b,
        0x96, 8, 0, 0, 0,
    ];
    for (text, format) in [(&b"1 2\n2 3\n"[..], "el"), (b"to,from\n2,1\n3,2\n", "csv"), (&gzip, "el")] {
        let o = piped(&["graph", "bfs", "-", "--format", format, "--source", "1", "--directed"], text);
        assert!(o.status.success(), "{}", stderr(&o));
        mentions(&stdout(&o), &["reached 3 in 2 levels", "verified (GAP rules)"]);
    }
    let o = piped(&["graph", "bfs", "-", "--source", "1"], b"1 2\n");
    assert_eq!((o.status.code(), stderr(&o).contains("--format")), (Some(2), true), "{}", stderr(&o));
    let table = write(&folder, "table.data", "src\tdst\tcost\n1\t2\t2.5\n");
    mentions(&fails(&["graph", "cc", &table]), &["table.data", ".data is not a known ending", "--format"]);
    mentions(&succeeds(&["graph", "sssp", &table, "--format", "tsv", "--source", "1"]), &["reached 2 ", "verified"]);
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
fn a_drawn_source_is_named_and_has_edges() {
    let folder = folder();
    let report = folder.path().join("report");
    for more in [&[][..], &["--pes", "2"]] {
        let text = succeeds(&[&["graph", "bfs", "kron:8", "--json", name(&report)], more].concat());
        let source = json(&report)["results"]["runs"][0]["source"].as_u64().unwrap();
        mentions(&text, &[&format!("source {source}  reached 239 in")]);
    }
    let text = succeeds(&["graph", "sssp", "kron:8"]);
    mentions(&text, &["source ", "  reached 239 in"]);
    // A source that was given is not repeated.
    assert!(!succeeds(&["graph", "bfs", ENRON, "--source", "1"]).contains("source 1"));

    let loops = write(&folder, "loops.el", "1 1\n2 2\n");
    for algorithm in ["bfs", "sssp"] {
        mentions(&fails(&["graph", algorithm, &loops]), &["loops.el", "no edges", "--source"]);
    }
}

#[test]
fn a_named_source_without_edges_is_warned_about() {
    let folder = folder();
    let alone = write(&folder, "alone.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n2 1\n");
    let list = write(&folder, "list.el", "1 2\n2 3\n");
    let warning = |args: &[&str]| {
        let o = warpbell(args);
        assert!(o.status.success(), "{args:?}: {}", stderr(&o));
        mentions(&stdout(&o), &["reached 1 in ", "verified (GAP rules)"]);
        stderr(&o)
    };
    for more in [&[][..], &["--pes", "2"]] {
        let said = warning(&[&["graph", "bfs", &alone, "--source", "3"], more].concat());
        assert_eq!(said, "warning: --source 3: the vertex has no edges, so the search reaches no other vertex\n");
    }
    mentions(&warning(&["graph", "sssp", &alone, "--source", "3"]), &["warning: --source 3: the vertex has no edges"]);
    let said = warning(&["graph", "bfs", &list, "--source", "3", "--directed"]);
    mentions(&said, &["warning: --source 3: no edge leaves the vertex"]);
    assert_eq!(stderr(&warpbell(&["graph", "bfs", &list, "--source", "1", "--undirected"])), "");
}

#[test]
fn a_list_says_whether_its_edges_are_directed() {
    let folder = folder();
    let says = |file: &str, text: &str, more: &[&str]| {
        let input = write(&folder, file, text);
        succeeds(&[&["graph", "cc", &input], more].concat())
    };
    let snap = "# Undirected graph: ../../data/output/com.txt\r\n# Nodes: 3 Edges: 2\r\n1\t2\r\n2\t3\r\n";
    mentions(&says("snap.txt", snap, &[]), &["2 edges (undirected, as the input says)"]);
    mentions(&says("asked.txt", snap, &["--directed"]), &["2 edges (directed, as asked)"]);
    let one_way = "# Directed graph (each unordered pair of nodes is saved once): a.txt\n1 2\n2 3\n";
    let text = says("directed.txt", one_way, &[]);
    mentions(&text, &["2 edges (directed, as the input says)"]);
    assert!(!text.contains("--undirected"), "{text}");
    // SNAP calls some lists directed that have each edge in both directions, Enron's among them.
    mentions(&says("both.txt", "# Directed graph: a.txt\n1 2\n2 1\n", &[]), &["1 edge (undirected, each edge"]);
    mentions(
        &succeeds(&["graph", "cc", ENRON]),
        &["183,830 edges (undirected, each edge is there in both directions)"],
    );
    // The file does not say whether it is directed, and no edge occurs twice.
    let hint = says("once.el", "1 2\n2 3\n", &[]);
    mentions(
        &hint,
        &["2 edges (directed, each edge is there in one direction; give --undirected if edges lead both ways)"],
    );
    let mixed = says("mixed.el", "1 2\n2 1\n2 3\n", &[]);
    mentions(&mixed, &["3 edges (directed, not each edge is there in both directions)"]);
}

#[test]
fn paths_need_not_be_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let folder = folder();
    let path = |name: &[u8]| folder.path().join(std::ffi::OsStr::from_bytes(name));
    let (input, out, report) = (path(b"gr\xe4ph.el"), path(b"\xff.out"), path(b"\xff.json"));
    std::fs::write(&input, "1 2\n2 1\n").unwrap();
    let run = |input: &Path| {
        let mut c = command(&["graph", "bfs"]);
        c.arg(input).args(["--source", "1", "--out"]).arg(&out).arg("--json").arg(&report);
        c.output().unwrap()
    };
    let o = run(&input);
    assert!(o.status.success(), "{}", stderr(&o));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "1 0\n2 1\n");
    assert!(json(&report)["config"]["input"].as_str().unwrap().ends_with(".el"));
    mentions(&stderr(&run(&path(b"\xe4.el"))), &["error: ", ".el: no such file"]);
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
fn a_partitioned_graph_gives_the_same_distances() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let bfs = |out: &Path, more: &[&str]| {
        let args = [&["graph", "bfs", UNIFORM, "--source", "1", "--out", name(out)], more].concat();
        succeeds(&args)
    };
    bfs(&path("alone"), &[]);
    let (out, report) = (path("three"), path("report"));
    let text = bfs(&out, &["--pes", "3", "-v", "--json", name(&report)]);
    mentions(
        &text,
        &["PEs 3", "PE 2 ", "reached 4,096 in 4 levels", "exchanged ", "verified (GAP rules)", "as the input says"],
    );
    assert_eq!(values(&out), values(&path("alone")));
    let report = json(&report);
    let parts = report["results"]["pes"].as_array().unwrap();
    let sum = |what: &str| parts.iter().map(|p| p[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!((parts.len(), sum("vertices")), (3, 4096));
    assert_eq!(sum("stored_edges"), report["results"]["graph"]["stored_edges"]);
    assert!(report["results"]["runs"][0]["put_bytes"].as_u64().unwrap() > 0);
    assert!(report["results"]["runs"][0]["io"]["read_bytes"].as_u64().unwrap() > 0, "from the volumes of all PEs");

    let device = format!("soft:{}", name(&path("part-{pe}.img")));
    bfs(&path("files"), &["--pes", "2", "--device", &device, "--cache", "50%"]);
    assert_eq!(values(&path("files")), values(&out));
    assert!(path("part-0.img").is_file() && path("part-1.img").is_file());
}

#[test]
fn algorithms_over_several_pes_give_the_same_results() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let device = format!("soft:{}", name(&path("part-{pe}.img")));
    for (algorithm, says) in [
        (&["cc"][..], "verified (GAP rules)"),
        (&["cdlp", "--iterations", "4"], "verified (Graphalytics rules)"),
        (&["sssp", "--sources", "2", "--weights", "integers"], "all verified"),
        (&["sssp", "--source", "7", "--weights", "reals"], "verified (GAP rules)"),
    ] {
        let run = |more: &[&str], out: &Path| {
            let text = succeeds(&[&["graph"][..], algorithm, &[UNIFORM, "--out", name(out)], more].concat());
            mentions(&text, &[says]);
        };
        run(&[], &path("alone"));
        for more in [&["--pes", "3"][..], &["--pes", "2", "--edges", "gpu", "--transport", "soft"]] {
            run(more, &path("several"));
            let written = |name: &str| std::fs::read_to_string(path(name)).unwrap();
            assert!(written("several") == written("alone"), "{algorithm:?} {more:?}");
        }
    }
    let report = path("report");
    let ranks = [
        "graph",
        "pagerank",
        UNIFORM,
        "--directed",
        "--tolerance",
        "1e-8",
        "--personalize",
        "1,2",
        "--pes",
        "2",
        "--runs",
        "2",
    ];
    let text = succeeds(&[&ranks[..], &["--device", &device, "--json", name(&report)]].concat());
    mentions(&text, &["PE 1 ", "all verified"]);
    let report = json(&report);
    assert_eq!(report["results"]["pes"].as_array().unwrap().len(), 2);
    for run in report["results"]["runs"].as_array().unwrap() {
        assert!(run["io"]["read_bytes"].as_u64().unwrap() > 0, "from the volumes of all PEs");
    }
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
    for (i, algorithm) in [
        &["bfs", "--source", "1"][..],
        &["cc", "--directed"],
        &["pagerank"],
        &["cdlp"],
        &["sssp", "--source", "1"],
        &["lcc", "--directed"],
        &["tc"],
    ]
    .into_iter()
    .enumerate()
    {
        let device = |what: &str| format!("soft:{}", name(&folder.path().join(format!("{what}-{i}.img"))));
        let (good, bad) = (device("good"), device("bad") + ",media-error=read:768-2000");
        let devices = [ENRON, "--pes", "2", "--device", &good, "--device", &bad, "--out", name(&out)];
        let message = fails(&[&["graph"][..], algorithm, &devices].concat());
        mentions(&message, &["PE 1: ", "nrecovered"]);
        assert!(!out.exists());
    }
}

#[test]
fn slow_and_reordered_completions_change_nothing() {
    let device = "soft:mem,latency=20us-200us,reorder,seed=7";
    let text = succeeds(&["graph", "bfs", ENRON, "--source", "1", "--device", device]);
    mentions(&text, &["reached 33,695 in", "verified (GAP rules)"]);
}

/// Returns true if QEMU is installed. If `WARPBELL_REQUIRE_QEMU` is set, its absence fails the test.
fn qemu() -> bool {
    let here = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|d| d.join("qemu-system-x86_64").is_file());
    if !here {
        assert!(std::env::var_os("WARPBELL_REQUIRE_QEMU").is_none(), "qemu-system-x86_64 is not installed");
        println!("SKIP: qemu-system-x86_64 is not installed");
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
