//! Tests devices that fail: the run ends with a message that names the failure.

use super::program::*;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs a search on a device with this fault. Returns the message and the time that it took.
fn fails_with(fault: &str, out: &Path) -> (String, Duration) {
    fails_on(fault, out, &["--deadline", "1s"])
}

/// Returns the same of a fault that lets commands time out.
fn times_out_with(fault: &str, out: &Path, more: &[&str]) -> (String, Duration) {
    fails_on(fault, out, &[&["--deadline", "200ms"], more].concat())
}

fn fails_on(fault: &str, out: &Path, more: &[&str]) -> (String, Duration) {
    let device = format!("soft:mem,{fault}");
    let started = Instant::now();
    let args = ["graph", "bfs", UNIFORM, "--source", "1", "--device", &device, "--out", name(out)];
    let message = fails(&[&args[..], more].concat());
    assert!(!out.exists(), "{fault} left a partial result");
    (message, started.elapsed())
}

#[test]
fn faults_end_the_run_and_are_named() {
    let folder = folder();
    let out = folder.path().join("out");
    // The manifest and the offsets take the first 256 blocks, followed by the edges.
    let (message, _) = fails_with("media-error=read:770", &out);
    mentions(&message, &["read of 8 block(s) at LBA 768", "nrecovered read error"]);
    // The host submits few commands of its own to store the edges. Faults count over the device: there is a queue for
    // each thread.
    for threads in ["1", "16", "64"] {
        let (message, took) = times_out_with("lose-completion=every:40", &out, &["--threads", threads]);
        mentions(&message, &["read of ", "LBA ", "command ", "timed out"]);
        assert!(took < Duration::from_secs(300), "{took:?}");
    }
    for (fault, words) in [("fatal=after:60", "fatal"), ("disappear=after:60", "soft:mem")] {
        let (message, took) = times_out_with(fault, &out, &[]);
        mentions(&message, &["timed out", words]);
        assert!(took < Duration::from_secs(300), "{fault}: {took:?}");
    }
}

#[test]
fn what_a_device_does_to_writes_and_flushes_is_named() {
    let folder = folder();
    let out = folder.path().join("out");
    let (message, _) = fails_with("torn-write=770", &out);
    mentions(&message, &["write of ", "LBA ", "write fault"]);
    let (message, _) = fails_with("shrink=900:after:20", &out);
    mentions(&message, &["LBA out of range"]);
    // The check of the result notices edges that were changed on the device, or they lead outside the graph.
    let (message, _) = fails_with("corrupt=read:768-4000", &out);
    assert!(!message.is_empty());
    let file = folder.path().join("edges.img");
    let device = format!("soft:{},fail-flush=every:1", name(&file));
    mentions(&fails(&["graph", "bfs", "kron:8", "--device", &device]), &["flush of namespace 1", "write fault"]);
}

#[test]
fn a_deadline_bounds_the_hosts_commands_too() {
    let out = folder();
    // The first command of the host is lost, three times.
    let (message, _) = times_out_with("lose-completion=0-7", &out.path().join("out"), &[]);
    mentions(&message, &["read of ", "LBA 0 "]);
}

/// Runs a command without an end of its own, with a time limit. Returns its message.
fn expires(args: &[&str], timeout: &str) -> String {
    let o = warpbell(&[args, &["--timeout", timeout]].concat());
    assert_eq!(o.status.code(), Some(124), "{args:?}: {}", stderr(&o));
    let [message] = &messages(&o)[..] else { panic!("{}", stderr(&o)) };
    message.clone()
}

#[test]
fn a_command_that_runs_out_of_time_says_what_it_was_doing() {
    let measuring = expires(&["bench", "nvme", "--runtime", "10m", "--size", "1M", "--engine", "cpu"], "500ms");
    // A busy machine may still be filling the device by then.
    let told = ["filling the device", "measuring"]
        .map(|work| format!("error: not done after 500ms (--timeout), while {work}; allow more time"));
    assert!(told.contains(&measuring), "{measuring}");
    let asking = expires(&["nvme", "id", "soft:mem:1M,never-ready,ready-timeout=120s"], "500ms");
    mentions(&asking, &["not done after 500ms", "while asking the controller"]);
    succeeds(&["graph", "bfs", "kron:8", "--timeout", "1h"]);
}

/// Stores a graph and a table on a file. Returns it, and its name as a device whose commands complete after an hour.
fn slow_image() -> (Image, String) {
    let image = Image::of("graph");
    succeeds(&image.args(&["import", "kron:8", "--name", "g"], &[]));
    let text = format!("{:117}\n", "{'descr': '<u4', 'fortran_order': False, 'shape': (2, 16), }");
    let rows = write(&image.folder, "t.npy", [b"\x93NUMPY\x01\x00\x76\x00", text.as_bytes(), &[7; 128]].concat());
    succeeds(&["table", "import", &rows, "--name", "t", "--device", &image.device]);
    let slow = format!("{},latency=3600s", image.device);
    (image, slow)
}

/// Returns a command of each kind that uses stored data on `device`.
fn commands<'a>(device: &'a str, out: &'a str) -> Vec<Vec<&'a str>> {
    let mut all = vec![vec!["volume", "verify", device]];
    for words in [
        &["graph", "list"][..],
        &["graph", "info", "g"],
        &["graph", "verify", "g"],
        &["graph", "export", "g", "--out", out],
        &["graph", "delete", "g"],
        &["graph", "import", "kron:8", "--name", "other"],
        &["graph", "bfs", "stored:g"],
        &["table", "list"],
        &["table", "info", "t"],
        &["table", "verify", "t"],
        &["table", "delete", "t"],
    ] {
        all.push([words, &["--device", device]].concat());
    }
    all
}

#[test]
fn a_device_that_completes_nothing_ends_each_command_by_its_deadline() {
    let (image, slow) = slow_image();
    let out = image.folder.path().join("out.el");
    for command in commands(&slow, name(&out)) {
        let message = fails(&[&command[..], &["--deadline", "50ms"]].concat());
        assert!(message.contains("no completion of ") || message.contains("no command is submitted"), "{message}");
        mentions(&message, &["read of "]);
    }
    assert!(!out.exists());
    succeeds(&image.args(&["verify", "g"], &["--deadline", "60s"]));
}

#[test]
fn a_command_that_waits_for_a_device_ends_in_order() {
    let (image, slow) = slow_image();
    let out = image.folder.path().join("out.el");
    let mut all = commands(&slow, name(&out));
    all.push(vec!["bench", "nvme", "--device", "soft:mem,latency=3600s", "--size", "1M", "--engine", "cpu"]);
    all.push(vec!["graph", "bfs", "kron:8", "--device", "soft:mem,latency=3600s"]);
    for command in all {
        // A deadline beyond the end of the test: only the stop ends the wait.
        // A busy machine may need more time until the command waits, and more than the five seconds that an orderly end may take.
        let is_orderly = |timeout: &&str| {
            let message = expires(&[&command[..], &["--deadline", "3600s"]].concat(), timeout);
            mentions(&message, &[&format!("error: not done after {timeout} (--timeout)")]);
            message.contains(" (--timeout), while ") && !message.contains("took longer")
        };
        assert!(["300ms", "3s", "20s"].iter().any(is_orderly), "{command:?}");
    }
    assert!(!out.exists());
    succeeds(&image.args(&["verify", "g"], &[]));
}

#[test]
fn long_work_is_reported_where_no_terminal_shows_a_bar() {
    let asking = ["nvme", "id", "soft:mem:1M,slow-ready=6s,ready-timeout=60s"];
    let o = warpbell(&[&asking[..], &["--json"]].concat());
    assert!(o.status.success(), "{}", stderr(&o));
    mentions(&stderr(&o), &[" INFO progress: asking the controller, ", " s so far"]);
    serde_json::from_slice::<serde_json::Value>(&o.stdout).unwrap();
    assert_eq!(messages(&o).len(), 0, "{}", stderr(&o));
}

#[test]
fn a_controller_that_is_never_ready_is_named() {
    let message = fails(&["graph", "bfs", "kron:6", "--device", "soft:mem,never-ready,ready-timeout=500ms"]);
    mentions(&message, &["soft:mem"]);
}

#[test]
fn a_copy_that_fails_is_reported_and_the_run_goes_on() {
    let folder = folder();
    for (fault, lost) in [("media-error=read:768-1000", 0), ("disappear=after:30", 1)] {
        let report = folder.path().join(format!("{lost}.json"));
        let copy = format!("soft:mem,{fault}");
        let devices = ["--device", "soft:mem", "--device", &copy, "--replicate", "--deadline", "2s"];
        let run = ["graph", "bfs", UNIFORM, "--source", "1", "--json", name(&report)];
        let text = succeeds(&[&run[..], &devices].concat());
        mentions(&text, &[&format!("copies {} of 2", 2 - lost), "redirected reads"]);
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        let redundancy = &json["path"]["redundancy"];
        assert_eq!(redundancy["lost"].as_array().unwrap().len(), lost, "{redundancy}");
        let whole = lost == 0;
        assert_eq!(redundancy["repaired_blocks"].as_u64().unwrap() > 0, whole, "{redundancy}");
        if !whole {
            mentions(&text, &["degraded: soft:mem,disappear"]);
        }
    }
}

#[test]
fn data_that_is_not_what_was_stored_is_noticed_by_page_checksums() {
    let bfs = |more: &[&str]| {
        warpbell(&[&["graph", "bfs", UNIFORM, "--source", "1", "--engine", "cpu", "--page-checksums"], more].concat())
    };
    // Wrong permanently, and once: there are fewer than 200 reads.
    let bad = "soft:mem,corrupt=read:1000-1200";
    let o = bfs(&["--device", bad]);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["read of 8 block(s) at LBA 1", "the page does not match its stored checksum"]);
    let o = bfs(&["--device", "soft:mem,corrupt=read:every:100"]);
    assert!(o.status.success(), "{}", stderr(&o));
    mentions(&stdout(&o), &["verified"]);
    let o = bfs(&["--device", bad, "--device", "soft:mem", "--replicate", "--stripe-chunk", "8k"]);
    assert!(o.status.success(), "{}", stderr(&o));
    mentions(&stdout(&o), &["verified", "copies 2 of 2"]);
    assert!(!stdout(&o).contains("redirected reads 0"), "{}", stdout(&o));
}
