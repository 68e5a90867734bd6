//! Tests measurements: of devices, of the queue cores, of the cache.

use super::program::*;
use serde_json::Value;
use std::io::BufRead;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

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
    assert_eq!(report["results"][0]["job"]["bytes"], 4096);
    let runs = report["results"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert!(run["read"]["iops"].as_f64().unwrap() > 0.0);
        assert_eq!(run["read"]["latency"]["samples"], run["read"]["commands"]);
        assert_eq!(run["verified"], true);
    }
}

#[test]
fn measurements_that_cannot_be_made_are_named() {
    mentions(&fails(&["bench", "mapping", "--engine", "cpu"]), &["no GPU memory to map", "/dev/gdrdrv"]);
    mentions(&fails(&["bench", "mapping", "-e", "2M"]), &["2097152", "from 4 to 1048576"]);
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
    let alone = ["bench", "queue", "--queues", "1", "--submitters", "1", "--commands", "500", "--runs", "1"];
    mentions(&succeeds(&alone), &["one at a time: ", "us for a command"]);
    let post = ["bench", "post", "--depth", "64", "--posts", "500", "--iters", "200", "--runs", "1"];
    let others = ["--inline", "--collapsed", "--blocks", "3", "--queues", "2"];
    for more in [&[][..], &others, &["--capsules"], &["--capsules", "--blocks", "3", "--queues", "2"]] {
        let text = succeeds(&[&post[..], more].concat());
        let figures = text.lines().filter(|l| !l.starts_with('#')).count();
        assert!(figures >= if more.contains(&"--blocks") { 2 } else { 3 }, "{text}");
        assert_eq!(text.contains("command capsule"), more.contains(&"--capsules"), "{text}");
    }
    let text = succeeds(&["bench", "array", "--size", "1M", "--runs", "1"]);
    mentions(&text, &["random 8 B", "sequential", "page handle", "for_each_chunk"]);
}

/// Starts a measurement of ten minutes and sends these signals when it has begun. `hangup` is the disposition of SIGHUP
/// at its start. Returns the exit code and standard error.
fn stopped_by(signals: &[i32], hangup: libc::sighandler_t) -> (Option<i32>, String) {
    let mut command = command(&["bench", "nvme", "--runtime", "10m", "--size", "1M", "--engine", "cpu"]);
    let set = move || {
        // SAFETY: an async-signal-safe call with a disposition that is a constant.
        unsafe { libc::signal(libc::SIGHUP, hangup) };
        Ok(())
    };
    // SAFETY: the closure only makes that call.
    let command = unsafe { command.pre_exec(set) };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap().starts_with("# rw")), "it never began");
    for signal in signals {
        // SAFETY: the process is ours and has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, *signal) }, 0);
    }
    let o = child.wait_with_output().unwrap();
    (o.status.code(), stderr(&o))
}

#[test]
fn signals_stop_the_kernels_and_are_named() {
    for (signal, code, name) in
        [(libc::SIGINT, 130, "SIGINT"), (libc::SIGTERM, 143, "SIGTERM"), (libc::SIGHUP, 129, "SIGHUP")]
    {
        let said = stopped_by(&[signal], libc::SIG_DFL);
        assert_eq!(said, (Some(code), format!("interrupted by {name}\n")));
    }
}

#[test]
fn a_hang_up_that_is_ignored_stops_nothing() {
    let said = stopped_by(&[libc::SIGHUP, libc::SIGTERM], libc::SIG_IGN);
    assert_eq!(said, (Some(143), "interrupted by SIGTERM\n".to_owned()));
}

#[test]
fn memory_that_is_not_there_is_not_filled() {
    let common = ["bench", "nvme", "--engine", "cpu", "--runtime", "10ms", "--bs", "64k"];
    for more in [&["--rw", "randread"][..], &["--rw", "write"], &["--verify"]] {
        let message = fails(&[&common[..], &["--device", "soft:mem:64T"], more].concat());
        mentions(&message, &["the job fills 64 TiB of memory, and ", " is free", "--size"]);
    }
    succeeds(&[&common[..], &["--device", "soft:mem:64T", "--size", "1M"]].concat());
}

#[test]
fn commands_in_flight_are_told_where_they_are_others_than_were_asked_for() {
    let job = |more: &[&str]| {
        let all = ["bench", "nvme", "--engine", "cpu", "--threads", "2", "--size", "1M", "--runtime", "10ms"];
        let o = warpbell(&[&all[..], more].concat());
        assert!(o.status.success(), "{}", stderr(&o));
        (stdout(&o), stderr(&o))
    };
    let (text, warning) = job(&["--iodepth", "1000"]);
    mentions(&text, &["  iodepth 1000 (128 in flight)  "]);
    mentions(
        &warning,
        &["--iodepth 1000: 128 commands are in flight", "2 threads of the engine keep 64 each", "--threads"],
    );
    let (text, _) = job(&["--iodepth", "1000", "--json", "-"]);
    let row = &serde_json::from_str::<Value>(&text).unwrap()["results"][0];
    assert_eq!((&row["job"]["iodepth"], &row["in_flight"]), (&1000.into(), &128.into()));
    let (text, warning) = job(&["--iodepth", "32", "--queues", "2", "--depth", "8"]);
    mentions(&text, &["  iodepth 32 (14 in flight)  "]);
    mentions(&warning, &["--iodepth 32: 14 commands", "2 queue pairs hold 7 each", "--depth"]);
    let (text, warning) = job(&["--iodepth", "8"]);
    mentions(&text, &["  iodepth 8  "]);
    assert_eq!(warning, "");
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
    assert_eq!(path["notes"], serde_json::json!(["doorbell cpu: it was requested"]), "{path}");
    assert_eq!(path.get("mapping"), None);
}
