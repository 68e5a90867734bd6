//! Devices that fail: the run ends, and says how.

use super::program::*;
use std::path::Path;
use std::time::{Duration, Instant};

/// A search over Enron on a device with this fault; the message, and how long it took.
fn fails_with(fault: &str, out: &Path) -> (String, Duration) {
    fails_on(fault, out, &[])
}

fn fails_on(fault: &str, out: &Path, more: &[&str]) -> (String, Duration) {
    let device = format!("soft:mem,{fault}");
    let started = Instant::now();
    let args = ["graph", "bfs", ENRON, "--source", "1", "--device", &device, "--deadline", "1s", "--out", name(out)];
    let message = fails(&[&args[..], more].concat());
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
    // Faults count over the device: there is a queue for each thread.
    for threads in ["1", "16", "64"] {
        let (message, took) = fails_on("lose-completion=every:40", &out, &["--threads", threads]);
        mentions(&message, &["read of ", "LBA ", "command ", "timed out"]);
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
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
fn a_copy_that_fails_is_reported_and_the_run_goes_on() {
    let folder = folder();
    for (fault, lost) in [("media-error=read:768-1000", 0), ("disappear=after:60", 1)] {
        let report = folder.path().join(format!("{lost}.json"));
        let copy = format!("soft:mem,{fault}");
        let devices = ["--device", "soft:mem", "--device", &copy, "--replicate", "--deadline", "2s"];
        let run = ["graph", "bfs", ENRON, "--source", "1", "--json", name(&report)];
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
