//! The program as its users run it.
#![cfg(feature = "cli")]

use serde_json::Value;
use std::collections::HashMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const ENRON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/email-enron.txt");
/// SNAP's page for the data set, less one: see examples/data/README.md.
const ENRON_VERTICES: usize = 36_691;
const ENRON_LARGEST_COMPONENT: usize = 33_695;

fn command(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_warpbell"));
    c.args(args).stdin(Stdio::null());
    c
}

fn warpbell(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn stdout(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).unwrap()
}

fn stderr(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

/// The output of a run that succeeds.
fn succeeds(args: &[&str]) -> String {
    let o = warpbell(args);
    assert!(o.status.success(), "{args:?}: {}\n{}\n{}", o.status, stdout(&o), stderr(&o));
    stdout(&o)
}

/// The message of a run that fails: exit code 1, exactly one line, nothing claimed.
fn fails(args: &[&str]) -> String {
    let o = warpbell(args);
    let (out, err) = (stdout(&o), stderr(&o));
    assert_eq!(o.status.code(), Some(1), "{args:?}:\n{out}\n{err}");
    assert_eq!(err.lines().count(), 1, "{args:?}:\n{err}");
    assert!(!out.contains("verified"), "{args:?}:\n{out}");
    err.strip_prefix("error: ").unwrap_or_else(|| panic!("{args:?}:\n{err}")).trim_end().to_owned()
}

#[track_caller]
fn mentions(message: &str, words: &[&str]) {
    for w in words {
        assert!(message.contains(w), "no `{w}` in: {message}");
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn write(folder: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// `ID VALUE` lines.
fn values(path: &Path) -> HashMap<u64, String> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: HashMap<_, _> = text
        .lines()
        .map(|l| {
            let (id, value) = l.split_once(' ').unwrap_or_else(|| panic!("`{l}`"));
            (id.parse().unwrap(), value.to_owned())
        })
        .collect();
    assert_eq!(lines.len(), text.lines().count(), "an identifier stands twice");
    lines
}

fn name(p: &Path) -> &str {
    p.to_str().unwrap()
}

// --- what succeeds -------------------------------------------------------------------------------------------------------

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

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn ranks_search_together() {
    let folder = folder();
    let out = folder.path().join("out");
    let store = format!("127.0.0.1:{}", free_port());
    let rank = |rank: &str| {
        command(&["graph", "bfs", "kron:9", "--source", "5", "--edges", "gpu", "--engine", "cpu", "--out", name(&out)])
            .envs([("WARPBELL_RANK", rank), ("WARPBELL_SIZE", "2"), ("WARPBELL_STORE", &store)])
            .env("WARPBELL_SECRET", "a secret of this test alone")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let said: Vec<Output> = ["0", "1"].map(rank).into_iter().map(|c| c.wait_with_output().unwrap()).collect();
    assert!(said.iter().all(|o| o.status.success()), "{}{}", stderr(&said[0]), stderr(&said[1]));
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
fn the_headers_are_where_the_program_says() {
    let text = succeeds(&["include-dir"]);
    assert!(Path::new(text.trim()).join("warpbell/abi.h").is_file(), "{text}");
}

#[test]
fn info_names_the_machine() {
    mentions(&succeeds(&["info"]), &["warpbell ", "cpu", "image"]);
}

// --- measuring -----------------------------------------------------------------------------------------------------------

#[test]
fn a_device_is_measured_and_checked() {
    let folder = folder();
    let report = folder.path().join("nvme.json");
    let text = succeeds(&[
        "bench",
        "nvme",
        "--rw",
        "randrw",
        "--bs",
        "4k",
        "--iodepth",
        "4",
        "--runtime",
        "200ms",
        "--size",
        "1M",
        "--verify",
        "--runs",
        "3",
        "--json",
        name(&report),
    ]);
    mentions(&text, &["# rw randrw", "read: IOPS=", "write: IOPS=", "99.00th=[", "verified: every block", "3 runs"]);
    let report = json(&report);
    assert_eq!(report["command"], "bench nvme");
    assert_eq!(report["config"]["job"]["command_bytes"], 4096);
    let runs = report["results"]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert!(run["read"]["iops"].as_f64().unwrap() > 0.0);
        assert_eq!(run["read"]["latency"]["samples"], run["read"]["commands"]);
        assert_eq!(run["verified"], true);
    }
}

#[test]
fn measurements_that_cannot_be_made_are_named() {
    mentions(&fails(&["bench", "nvme", "--bs", "1000", "--size", "1M"]), &["1000", "512"]);
    mentions(
        &fails(&["bench", "nvme", "--device", "soft:mem:1M", "--size", "2M", "--bs", "4k"]),
        &["2097152", "1048576"],
    );
    mentions(&fails(&["bench", "queue", "--depth", "100"]), &["100", "power of two"]);
    mentions(&fails(&["bench", "post", "--depth", "100"]), &["100", "power of two"]);
    mentions(&fails(&["bench", "array", "--size", "8"]), &["--size"]);
    let media = "soft:mem:1M,media-error=read:0-2047";
    mentions(&fails(&["bench", "nvme", "--device", media, "--runtime", "200ms"]), &["LBA", "nrecovered"]);
}

#[test]
fn a_volume_with_arrays_is_not_measured_by_writing() {
    let folder = folder();
    let device = format!("soft:{}", name(&folder.path().join("edges.img")));
    succeeds(&["graph", "bfs", "kron:8", "--source", "1", "--device", &device]);
    let write = ["bench", "nvme", "--rw", "randwrite", "--size", "64k", "--runtime", "50ms", "--device", &device];
    mentions(&fails(&write), &["edges.img", "--yes-destroy"]);
    succeeds(&["bench", "nvme", "--rw", "randread", "--size", "64k", "--runtime", "50ms", "--device", &device]);
}

#[test]
fn the_queue_core_and_the_cache_are_measured() {
    let text = succeeds(&["bench", "queue", "--queues", "1,2", "--depth", "64", "--commands", "500", "--runs", "1"]);
    assert_eq!(text.lines().filter(|l| !l.starts_with('#')).count(), 2, "{text}");
    let post = ["bench", "post", "--depth", "64", "--posts", "500", "--iters", "200", "--runs", "1"];
    for more in [&[][..], &["--inline", "--collapsed", "--blocks", "3", "--queues", "2"]] {
        let text = succeeds(&[&post[..], more].concat());
        let figures = text.lines().filter(|l| !l.starts_with('#')).count();
        assert!(figures >= if more.is_empty() { 3 } else { 2 }, "{text}");
    }
    let text = succeeds(&["bench", "array", "--size", "1M", "--runs", "1"]);
    mentions(&text, &["random 8 B", "sequential", "page handle", "for_each_chunk"]);
}

#[test]
fn an_interrupt_stops_the_kernels() {
    let mut child = command(&["bench", "nvme", "--runtime", "10m", "--size", "1M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap().starts_with("# rw")), "it never began");
    // SAFETY: the process is ours and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let o = child.wait_with_output().unwrap();
    assert_eq!(o.status.code(), Some(130));
    assert_eq!(stderr(&o), "interrupted\n");
}

// --- QEMU's controller ---------------------------------------------------------------------------------------------------

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

// --- what fails ----------------------------------------------------------------------------------------------------------

#[test]
fn usage_errors_are_exit_code_2() {
    for args in [
        &["graph", "bfs"][..],
        &["graph", "bfs", "kron:8", "--cache", "lots"],
        &["graph", "bfs", "kron:8", "--engine", "tpu"],
        &["graph", "bfs", "kron:8", "--directed", "--undirected"],
        &["graph", "bfs", "kron:8", "--pes", "0"],
        &["graph", "bfs", "kron:8", "--pes", "2", "--device", "soft:one.img"],
        &["bench", "nvme", "--rw", "sideways"],
        &["fly"],
    ] {
        let o = warpbell(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}");
        assert!(stdout(&o).is_empty(), "{args:?}");
    }
}

#[test]
fn inputs_that_cannot_be_read_are_named() {
    let folder = folder();
    let out: PathBuf = folder.path().join("out");
    let cases = [
        ("nowhere.el", None, &["nowhere.el"][..]),
        ("text.el", Some(&b"1 2\nthree 4\n"[..]), &["text.el", "line 2"]),
        ("short.el", Some(b"1 2\n3\n"), &["short.el", "line 2"]),
        ("empty.mtx", Some(b""), &["empty.mtx"]),
        ("cut.mtx", Some(b"%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n"), &["cut.mtx", "2"]),
        (
            "wide.mtx",
            Some(b"%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 9\n"),
            &["wide.mtx", "line 3", "9"],
        ),
        ("dense.mtx", Some(b"%%MatrixMarket matrix array real general\n1 1\n1.0\n"), &["dense.mtx", "array"]),
        (
            "huge.mtx",
            Some(b"%%MatrixMarket matrix coordinate pattern general\n99999999999 99999999999 1\n1 2\n"),
            &["huge.mtx"],
        ),
        ("cut.sg", Some(&[0, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]), &["cut.sg"]),
        ("huge.sg", Some(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 3, 0, 0, 0, 0, 0, 0, 0]), &["huge.sg"]),
        ("picture.png", Some(b"\x89PNG"), &["picture.png"]),
    ];
    for (file, content, words) in cases {
        let input = match content {
            Some(c) => write(&folder, file, c),
            None => name(&folder.path().join(file)).to_owned(),
        };
        mentions(&fails(&["graph", "cc", &input, "--out", name(&out)]), words);
        assert!(!out.exists(), "{file} left a partial result");
    }
    mentions(&fails(&["graph", "cc", name(folder.path())]), &[name(folder.path())]);
    mentions(&fails(&["graph", "cc", "kron:99"]), &["99"]);
}

#[test]
fn sources_that_do_not_exist_are_named() {
    mentions(&fails(&["graph", "bfs", ENRON, "--source", "999999"]), &["999999"]);
}

#[test]
fn settings_that_cannot_work_are_named() {
    let folder = folder();
    let file = write(&folder, "small.img", vec![0u8; 64 << 10]);
    let small = format!("soft:{file}");
    mentions(&fails(&["graph", "bfs", ENRON, "--source", "1", "--device", &small]), &["small.img"]);
    mentions(&fails(&["graph", "bfs", "kron:8", "--source", "1", "--depth", "100"]), &["100", "power of two"]);
    mentions(&fails(&["graph", "bfs", "kron:8", "--source", "1", "--page-size", "3000"]), &["3000"]);
    mentions(&fails(&["graph", "bfs", "kron:8", "--source", "1", "--cache", "4k"]), &["cache"]);
    mentions(&fails(&["graph", "bfs", "kron:8", "--source", "1", "--device", "floppy:a"]), &["floppy"]);
}

// --- faults --------------------------------------------------------------------------------------------------------------

/// A search over Enron on a device with this fault; the message, and how long it took.
fn fails_with(fault: &str, out: &Path) -> (String, Duration) {
    let device = format!("soft:mem,{fault}");
    let started = Instant::now();
    let message =
        fails(&["graph", "bfs", ENRON, "--source", "1", "--device", &device, "--deadline", "1s", "--out", name(out)]);
    assert!(!out.exists(), "{fault} left a partial result");
    (message, started.elapsed())
}

#[test]
fn faults_end_the_run_and_are_named() {
    let folder = folder();
    let out = folder.path().join("out");
    // The manifest and the offsets take the first 768 blocks; then come the edges.
    let (message, _) = fails_with("media-error=read:770", &out);
    mentions(&message, &["read of 8 block(s) at LBA 768", "nrecovered read error"]);
    // The host's own commands, which store the edges, are few.
    let (message, took) = fails_with("lose-completion=every:40", &out);
    mentions(&message, &["read of ", "LBA ", "command ", "timed out"]);
    assert!(took < Duration::from_secs(30), "{took:?}");
    for (fault, words) in [("fatal=after:60", "fatal"), ("disappear=after:60", "soft:mem")] {
        let (message, took) = fails_with(fault, &out);
        mentions(&message, &["timed out", words]);
        assert!(took < Duration::from_secs(30), "{fault}: {took:?}");
    }
}

#[test]
fn a_controller_that_is_never_ready_is_named() {
    let message = fails(&["graph", "bfs", "kron:6", "--device", "soft:mem,never-ready,ready-timeout=500ms"]);
    mentions(&message, &["soft:mem"]);
}

#[test]
fn slow_and_reordered_completions_change_nothing() {
    let device = "soft:mem,latency=20us-200us,reorder,seed=7";
    let text = succeeds(&["graph", "bfs", ENRON, "--source", "1", "--device", device]);
    mentions(&text, &["reached 33,695 in", "verified (GAP rules)"]);
}

#[test]
fn no_gpu_is_an_error_that_says_why() {
    let o = warpbell(&["graph", "bfs", "kron:6", "--sources", "1", "--engine", "gpu"]);
    if o.status.success() {
        eprintln!("SKIP: this machine has a GPU");
        return;
    }
    mentions(&fails(&["graph", "bfs", "kron:6", "--sources", "1", "--engine", "gpu"]), &["--engine cpu"]);
}

#[test]
fn a_device_that_holds_something_else_is_not_overwritten() {
    let folder = folder();
    let precious = write(&folder, "precious.img", b"precious".repeat(2 << 20));
    let device = format!("soft:{precious}");
    let args = ["graph", "bfs", "kron:8", "--source", "1", "--device", &device];
    mentions(&fails(&args), &["precious.img", "--yes-destroy"]);
    assert!(std::fs::read(&precious).unwrap().starts_with(b"precious"));
    let mut agreed = args.to_vec();
    agreed.extend(["--yes-destroy", &precious]);
    mentions(&succeeds(&agreed), &["verified (GAP rules)"]);
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    mentions(
        &fails(&["graph", "bfs", "kron:6", "--sources", "1", "--no-verify", "--out", "/nowhere/out"]),
        &["/nowhere/out"],
    );
}

#[test]
fn a_reader_that_leaves_is_not_an_error() {
    let mut child = command(&["graph", "bfs", "kron:8", "--sources", "2", "-v"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert_eq!(stderr(&o), "");
}

#[test]
fn ways_that_are_not_there_say_why() {
    let job = |more: &[&str]| {
        let all =
            [&["bench", "nvme", "--device", "soft:mem:1M", "--engine", "cpu", "--runtime", "10ms"], more].concat();
        fails(&all)
    };
    mentions(&job(&["--doorbell", "gpu"]), &["doorbell gpu is not available", "soft:mem:1M", "--engine gpu"]);
    mentions(&job(&["--mapping", "gdrdrv"]), &["mapping gdrdrv is not available", "--engine gpu"]);
    mentions(&job(&["--queue-memory", "cmb"]), &["queues cmb is not available", "CAP.CMBS is 0"]);
    mentions(&job(&["--queue-memory", "gpu"]), &["queues gpu is not available", "--engine gpu"]);
    let o = warpbell(&["bench", "nvme", "--mapping", "magic"]);
    assert_eq!(o.status.code(), Some(2));
    mentions(&stderr(&o), &["gdrdrv", "iommu-map-pa", "host"]);
}

#[test]
fn a_host_thread_rings_where_it_was_asked_to() {
    let args = [
        "bench",
        "nvme",
        "--device",
        "soft:mem:1M",
        "--engine",
        "cpu",
        "--runtime",
        "50ms",
        "--verify",
        "--doorbell",
        "cpu",
    ];
    let report: Value = serde_json::from_str(&succeeds(&[&args[..], &["--json", "-"]].concat())).unwrap();
    let path = &report["path"];
    assert_eq!((&path["doorbell"], &path["order"]), (&"cpu".into(), &"processor".into()), "{path}");
    assert_eq!(path["notes"], serde_json::json!(["doorbell cpu: it was asked for"]), "{path}");
    assert_eq!(path.get("mapping"), None);
}
