//! Tests `warpbell accept` as its users run it, on software devices with faults.

use crate::tree;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Options that make a run short.
const SHORT: [&str; 6] = ["--size", "256K", "--runtime", "20ms", "--soak", "20ms"];

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut c = Command::new(tree::program());
    c.current_dir(folder).arg("accept").args(words).stdin(Stdio::null());
    c
}

/// A run that has ended: its output, and its report.
struct Ended {
    output: Output,
    report: Value,
}

impl Ended {
    fn err(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn step(&self, name: &str) -> &Value {
        self.report["steps"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap()
    }

    fn status(&self, name: &str) -> &str {
        self.step(name)["status"].as_str().unwrap()
    }
}

fn accept(folder: &Path, words: &[&str]) -> Ended {
    let report = folder.join("report.json");
    let output = command(folder, words).arg("--json").arg(&report).output().unwrap();
    let text = std::fs::read(&report).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    Ended { output, report: serde_json::from_slice(&text).unwrap() }
}

fn storage(folder: &Path, device: &str, words: &[&str]) -> Ended {
    accept(folder, &[&["nvme", device], &SHORT[..], words].concat())
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Checks that a run failed at a step and not before, and returns its error.
#[track_caller]
fn failed_at(run: &Ended, step: &str) -> String {
    let steps = run.report["steps"].as_array().unwrap();
    let index = steps.iter().position(|s| s["name"] == step).unwrap();
    let states: Vec<_> = steps.iter().map(|s| s["status"].as_str().unwrap()).collect();
    assert!(states[..index].iter().all(|s| ["passed", "skipped"].contains(s)), "{step}: {states:?}\n{}", run.err());
    assert_eq!(states[index], "failed", "{step}: {states:?}\n{}", run.err());
    assert!(states[index + 1..].iter().all(|s| *s == "not-run"), "{step}: {states:?}");
    assert_eq!((run.output.status.code(), &run.report["accepted"]), (Some(1), &Value::Bool(false)));
    assert!(run.err().starts_with(&format!("error: step {step} failed: ")), "{}", run.err());
    assert!(!run.step(step)["remedy"].as_str().unwrap().is_empty());
    run.step(step)["detail"].as_str().unwrap().to_owned()
}

#[test]
fn a_software_device_passes_from_cold_to_done() {
    let folder = folder();
    let run = storage(folder.path(), "soft:new.img", &[]);
    assert!(run.output.status.success(), "{}", run.err());
    assert_eq!(run.report["command"], "accept nvme");
    for step in ["doctor", "identify", "format", "contents", "read", "cpu", "graph", "killed", "reset", "soak"] {
        assert_eq!(run.status(step), "passed", "{step}");
        assert!(run.step(step)["elapsed_ns"].as_u64().unwrap() > 0);
    }
    let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
    assert!(text.contains("accepted: ") && text.contains("restored  new.img removed"), "{text}");
    assert!(!folder.path().join("new.img").exists());
    assert!(run.report["subject"]["controller"]["firmware"].is_string());
    assert!(run.report["subject"]["machine"]["host"].as_str().unwrap().contains("Linux"));
}

/// Returns the engines and their threads, as the reports of a run's commands name them.
fn engines(run: &Ended) -> Vec<(&str, u64)> {
    let steps = run.report["steps"].as_array().unwrap();
    let environments =
        steps.iter().flat_map(|s| s["commands"].as_array().unwrap()).map(|c| &c["report"]["environment"]);
    let engines = environments.filter(|e| e.is_object());
    engines.map(|e| (e["engine"].as_str().unwrap(), e["engine_threads"].as_u64().unwrap())).collect()
}

#[test]
fn kernels_run_on_the_engine_that_the_option_names() {
    let folder = folder();
    let cpu = ["--engine", "cpu", "--threads", "3"];
    for run in [storage(folder.path(), "soft:new.img", &cpu), network(folder.path(), &cpu)] {
        assert!(run.output.status.success(), "{}", run.err());
        let engine = &run.report["engine"];
        assert_eq!((&engine["choice"], &engine["threads"]), (&"cpu".into(), &3.into()), "{engine}");
        let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
        assert!(text.lines().next().unwrap().ends_with("  engine cpu"), "{text}");
        let engines = engines(&run);
        assert!(engines.len() > 5 && engines.iter().all(|e| *e == ("cpu", 3)), "{engines:?}");
    }
    let run = storage(folder.path(), "soft:new.img", &["--engine", "cpu", "--until", "gpu-bounce"]);
    assert_eq!(run.step("gpu-bounce")["skipped"], "engine");
    assert!(run.err().contains("step gpu-bounce was asked for and left out: --engine cpu"), "{}", run.err());
    // No machine has this GPU. Where there is none at all, the doctor says so.
    let run = storage(folder.path(), "soft:new.img", &["--engine", "gpu:4000"]);
    assert_eq!(run.output.status.code(), Some(1), "{}", run.err());
    assert_eq!(run.report["engine"]["choice"], "gpu:4000");
    let wrong = command(folder.path(), &["nvme", "soft:mem", "--engine", "tpu"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn faults_of_storage_are_found_at_their_step() {
    let folder = folder();
    for (step, options, says) in [
        ("identify", "never-ready,ready-timeout=500ms", "did not become ready"),
        ("format", "fatal=after:0", "fatal"),
        ("contents", "media-error=read:0-2047", "unrecovered read error"),
        ("read", "media-error=read:0-2047", "unrecovered read error"),
        ("cpu", "corrupt=every:7", "other data"),
        ("graph", "media-error=0-2047", "write fault"),
        ("killed", "corrupt=every:7", "other data"),
        ("reset", "corrupt=every:7", "other data"),
        ("soak", "corrupt=every:7", "other data"),
    ] {
        let run = storage(folder.path(), "soft:a.img,block=512", &["--fault", &format!("{step}={options}")]);
        let said = failed_at(&run, step);
        assert!(said.to_lowercase().contains(says), "{step}: {said}");
        assert!(!folder.path().join("a.img").exists(), "{step}: the file is left");
    }
}

#[test]
fn a_refused_command_is_reported_with_its_bytes() {
    let folder = folder();
    let run = storage(folder.path(), "soft:a.img", &["--fault", "read=media-error=0-2047"]);
    failed_at(&run, "read");
    let refused = &run.step("read")["commands"][0]["refused"][0];
    assert_eq!((&refused["interface"], &refused["status"]), (&"nvme-io".into(), &0x281.into()), "{refused}");
    let (input, output) = (refused["input"].as_str().unwrap(), refused["output"].as_str().unwrap());
    // An entry of 64 bytes begins with its opcode, a read; a completion of 16 bytes ends with its status.
    assert_eq!((input.len(), output.len(), &input[..2]), (128, 32, "02"));
    assert!(refused["meaning"].as_str().unwrap().to_lowercase().contains("unrecovered read"), "{refused}");
    let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
    assert!(text.contains(input) && text.contains("command  warpbell bench nvme"), "{text}");
}

#[test]
fn data_is_kept_without_permission() {
    let folder = folder();
    let path = folder.path().join("data.img");
    let data: Vec<u8> = (0..2u32 << 20).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    std::fs::write(&path, &data).unwrap();
    let run = storage(folder.path(), "soft:data.img", &[]);
    assert_eq!(run.output.status.code(), Some(1));
    assert!(run.err().contains("give --yes-destroy soft:data.img"), "{}", run.err());
    assert_eq!((run.status("read"), run.status("cpu")), ("passed", "skipped"));
    assert_eq!(run.step("soak")["skipped"], "overwrite");
    assert!(std::fs::read(&path).unwrap() == data, "it was written to");
    // Steps that only read need no permission.
    let run = storage(folder.path(), "soft:data.img", &["--until", "read"]);
    assert!(run.output.status.success(), "{}", run.err());
    let run = storage(folder.path(), "soft:data.img", &["--until", "cpu", "--yes-destroy", "data.img"]);
    assert!(run.output.status.success(), "{}", run.err());
    assert!(path.exists() && std::fs::read(&path).unwrap() != data);
}

#[test]
fn the_last_step_is_chosen_by_name() {
    let folder = folder();
    let run = storage(folder.path(), "soft:mem", &["--until", "identify"]);
    assert!(run.output.status.success(), "{}", run.err());
    assert_eq!((run.status("identify"), run.status("format")), ("passed", "not-run"));
    let unknown = command(folder.path(), &["nvme", "soft:mem", "--until", "gpu"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("gpu-bounce"));
    for kind in ["nvme", "rdma"] {
        let list = command(folder.path(), &[kind, "--list"]).output().unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        assert!(list.starts_with("doctor") && list.lines().all(|l| l.len() > 16), "{list}");
    }
}

#[test]
fn an_interrupt_ends_the_run_and_leaves_nothing() {
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let folder = folder();
        let words = ["nvme", "soft:new.img", "--size", "1M", "--runtime", "10m", "--json", "report.json"];
        let mut child = command(folder.path(), &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("contents") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended before it read");
        }
        // Step `read` goes on for ten minutes.
        assert!(folder.path().join("new.img").exists());
        // SAFETY: a system call with values; the process is one that was started here and not waited for yet.
        unsafe { libc::kill(child.id() as i32, signal) };
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(code));
        assert!(!folder.path().join("new.img").exists(), "the file is left");
        let report: Value = serde_json::from_slice(&std::fs::read(folder.path().join("report.json")).unwrap()).unwrap();
        assert!(report["interrupted"].as_str().unwrap().starts_with("interrupted by "), "{report}");
        assert!(report["restored"][0].as_str().unwrap().contains("new.img"), "{report}");
    }
}

#[test]
fn a_time_limit_ends_the_run_in_order() {
    let folder = folder();
    let run =
        accept(folder.path(), &["nvme", "soft:new.img", "--size", "1M", "--runtime", "10m", "--timeout", "1500ms"]);
    assert_eq!(run.output.status.code(), Some(124), "{}", run.err());
    assert!(!folder.path().join("new.img").exists());
}

fn network(folder: &Path, words: &[&str]) -> Ended {
    accept(
        folder,
        &[&["rdma", "--device", "soft", "--max-size", "64", "--soak", "20ms", "--idle", "50ms"], words].concat(),
    )
}

#[test]
fn the_software_nic_passes_all_steps_that_it_has() {
    let folder = folder();
    let run = network(folder.path(), &[]);
    assert!(run.output.status.success(), "{}", run.err());
    for step in ["doctor", "soft", "ranks", "host-heap", "bad-key", "killed-peer", "soak"] {
        assert_eq!(run.status(step), "passed", "{step}");
    }
    assert_eq!(run.step("verbs")["skipped"], "lacking");
    assert!(run.step("bad-key")["detail"].as_str().unwrap().contains("remote access error"));
    assert!(run.step("killed-peer")["detail"].as_str().unwrap().contains("rank 1 is gone"));
}

#[test]
fn faults_of_the_network_are_found_at_their_step() {
    let folder = folder();
    for (step, options, says) in [
        ("soft", "fault=syndrome:0x15@nth:3", "0x15"),
        ("ranks", "fault=syndrome:0x13@nth:3", "0x13"),
        ("host-heap", "fault=syndrome:0x13@nth:9", "0x13"),
        ("bad-key", "fault=syndrome:0x13@nth:1", "0x13"),
        ("killed-peer", "fault=syndrome:0x13@nth:1", "rank 1 is gone"),
        ("soak", "fault=syndrome:0x13@nth:3", "0x13"),
    ] {
        let run = network(folder.path(), &["--fault", &format!("{step}={options}")]);
        let said = failed_at(&run, step);
        assert!(said.contains(says), "{step}: {said}");
    }
}

#[test]
fn two_hosts_meet_with_a_secret() {
    let folder = folder();
    let alone = command(folder.path(), &["rdma", "--device", "soft", "--peer", "127.0.0.1"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("WARPBELL_SECRET"));
}
