//! Tests `bench nvme`: sweeps, fio's options, and reports in fio's shape.

use crate::program::*;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const JOB: [&str; 8] = ["bench", "nvme", "--engine", "cpu", "--size", "1M", "--runtime", "20ms"];

fn run(more: &[&str]) -> String {
    succeeds(&[&JOB[..], more].concat())
}

#[test]
fn each_point_of_a_sweep_has_its_row() {
    let folder = folder();
    let report = folder.path().join("sweep.json");
    let lists = ["--bs", "512,4k", "--iodepth", "1,4", "--rw", "randread,randrw", "--runs", "2", "--verify"];
    let text = run(&[&lists[..], &["--json", name(&report)]].concat());
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|l| !l.starts_with('#')).map(|l| l.split_whitespace().collect()).collect();
    // Reads alone have one row, reads and writes two.
    assert_eq!(rows.len(), 4 + 8, "{text}");
    assert_eq!((rows[0][0], &rows[0][1..3], rows[0][4]), ("randread", &["512", "B"][..], "read"), "{text}");
    assert_eq!((rows[11][0], &rows[11][1..3], rows[11][4]), ("randrw", &["4", "KiB"][..], "write"), "{text}");
    mentions(&text, &["# verified: every block that was read", "size 1 MiB  ", "p99.9"]);
    assert!(text.lines().skip(2).all(|line| line.len() <= 80), "{text}");
    let report = json(&report);
    assert_eq!(report["config"]["swept"], serde_json::json!(["rw", "bs", "iodepth"]));
    let points = report["results"].as_array().unwrap();
    let of = |point: &Value| {
        (point["job"]["bytes"].clone(), point["job"]["iodepth"].clone(), point["runs"].as_array().unwrap().len())
    };
    assert_eq!(of(&points[0]), (512.into(), 1.into(), 2));
    assert_eq!(of(&points[7]), (4096.into(), 4.into(), 2));
    // Two sweeps are compared point by point; one with itself has no difference.
    let same = folder.path().join("same.json");
    std::fs::copy(folder.path().join("sweep.json"), &same).unwrap();
    let compared = succeeds(&["compare", name(&folder.path().join("sweep.json")), name(&same)]);
    mentions(&compared, &["randrw, 4096 bytes, iodepth 4, write"]);
}

#[test]
fn points_before_one_that_fails_are_in_all_files() {
    let folder = folder();
    let [report, csv, chart] = ["a.json", "a.csv", "a.svg"].map(|file| folder.path().join(file));
    let files = ["--json", name(&report), "--csv", name(&csv), "--chart", name(&chart)];
    // The region holds no command of the last size.
    let o = warpbell(&[&JOB[..], &["--bs", "4k,16k,2M"], &files].concat());
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["--size of 1048576 bytes holds 0 commands of 2097152 bytes"]);
    let sizes: Vec<Value> =
        json(&report)["results"].as_array().unwrap().iter().map(|row| row["job"]["bytes"].clone()).collect();
    assert_eq!(sizes, [4096, 16384]);
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 3);
    mentions(&std::fs::read_to_string(&chart).unwrap(), &["<svg"]);
}

#[test]
fn points_before_an_interrupt_are_in_the_report() {
    let folder = folder();
    let report = folder.path().join("a.json");
    let endless = ["bench", "nvme", "--engine", "cpu", "--size", "1M", "--runtime", "0", "--io-size", "64k,1024T"];
    let mut command = command(&[&endless[..], &["--json", name(&report)]].concat());
    heed_signals(&mut command);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("64 KiB")), "the first point has no figures");
    // SAFETY: the process is ours and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let o = child.wait_with_output().unwrap();
    assert_eq!((o.status.code(), stderr(&o)), (Some(130), "interrupted by SIGINT\n".to_owned()));
    let rows = json(&report)["results"].clone();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["job"]["io_bytes"]), (1, &(64 << 10).into()));
}

#[test]
fn a_run_without_a_limit_of_time_ends_with_its_work() {
    let text = succeeds(&[
        "bench",
        "nvme",
        "--engine",
        "cpu",
        "--runtime=0",
        "--size",
        "50%",
        "--rw=readwrite",
        "--offset=25%",
        "--bs=8k",
        "--json",
        "-",
    ]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let row = &report["results"][0];
    assert_eq!((&row["job"]["offset_bytes"], &row["job"]["size_bytes"]), (&(16 << 20).into(), &(32 << 20).into()));
    let moved: u64 = ["read", "write"].iter().map(|side| row["runs"][0][side]["io_bytes"].as_u64().unwrap()).sum();
    assert_eq!(moved, 32 << 20);
}

#[test]
fn a_report_in_fio_s_shape_is_read_as_fio_s() {
    let folder = folder();
    let (own, fio) = (folder.path().join("own.json"), folder.path().join("fio.json"));
    run(&["--rw", "randrw", "--percentile-list", "50,99,99.9", "--json", name(&own)]);
    run(&["--rw", "randrw", "--percentile-list", "50,99,99.9", "--output-format", "fio-json", "--json", name(&fio)]);
    let document = json(&fio);
    let job = &document["jobs"][0];
    for side in ["read", "write"] {
        let d = &job[side];
        let of = |key: &str| d[key].as_u64().unwrap();
        assert_eq!((of("io_bytes"), of("io_kbytes")), (of("total_ios") * 4096, of("total_ios") * 4));
        assert_eq!(of("bw"), of("bw_bytes") >> 10);
        let percentiles: Vec<&String> = d["clat_ns"]["percentile"].as_object().unwrap().keys().collect();
        assert_eq!(percentiles, ["50.000000", "99.000000", "99.900000"]);
    }
    assert_eq!((&job["job options"]["bs"], &job["trim"]["total_ios"]), (&"4096".into(), &0.into()));
    let o = warpbell(&["compare", name(&own), name(&fio), "--tolerance", "1000%"]);
    let text = stdout(&o);
    mentions(&text, &["B  fio warpbell-", "write  iops"]);
}

#[test]
fn times_beyond_all_bounds_are_refused_or_kept() {
    let refused = |more: &[&str], told: &[&str]| {
        let o = warpbell(&[&["bench", "nvme", "--engine", "cpu", "--size", "1M"], more].concat());
        assert_eq!(o.status.code(), Some(1), "{more:?}");
        mentions(&stderr(&o), told);
    };
    let steady = ["--runtime", "1s", "--steady-state", "iops:5%"];
    refused(&[&steady[..], &["--steady-state-duration", "0.001us"]].concat(), &["are too short", "1µs"]);
    refused(&[&steady[..], &["--time-series", "9999999999999999s"]].concat(), &["fewer than 4 intervals"]);
    refused(&["--runtime", "0", "--time-series", "1ms"], &["needs a limit of time; give --runtime"]);
    refused(&["--runtime", "1s", "--time-series", "0.1us"], &["are too short"]);
    // A rate so low that a command takes longer than any run.
    let text = run(&["--rate", "1", "--bs", "64k", "--iodepth", "4"]);
    mentions(&text, &["read: IOPS="]);
}

#[test]
fn lists_that_make_too_many_points_are_refused() {
    let many: Vec<String> = (1..=101).map(|n| n.to_string()).collect();
    let many = many.join(",");
    let o = warpbell(&[&JOB[..], &["--iodepth", &many, "--numjobs", &many]].concat());
    assert_eq!(o.status.code(), Some(2));
    mentions(&stderr(&o), &["more than 10000 combinations", "101 of numjobs", "101 of iodepth"]);
    let two = warpbell(&[&JOB[..], &["--filename", "x", "--bs", "4k,8k", "--compare", "cufile"]].concat());
    mentions(&stderr(&two), &["--compare measures one point"]);
}

#[test]
fn another_program_is_measured_in_turn() {
    let folder = folder();
    let other = folder.path().join("other.json");
    run(&["--output-format", "fio-json", "--json", name(&other)]);
    let (report, chart) = (folder.path().join("own.json"), folder.path().join("own.svg"));
    let command = format!("echo turn >> {0}.log; cat {0}", name(&other));
    let text = run(&["--runs", "3", "--beside", &command, "--json", name(&report), "--chart", name(&chart)]);
    mentions(&text, &["# A  warpbell", "# B  fio warpbell-", "read  iops", "B/A"]);
    let turns = std::fs::read_to_string(format!("{}.log", name(&other))).unwrap();
    assert_eq!(turns.lines().count(), 3);
    let pairs = json(&report)["results"][0]["beside"]["pairs"].as_array().unwrap().len();
    assert!(pairs >= 5, "{pairs} figures");
    mentions(&std::fs::read_to_string(&chart).unwrap(), &["<svg", "software device"]);
    // A process that the command leaves behind holds nothing up, and figures are kept although there is nothing to compare.
    let left = format!("sleep 60 2>/dev/null & cat {}", name(&other));
    run(&["--beside", &left]);
    let empty = folder.path().join("kept.json");
    let trims = "echo '{\"fio version\":\"fio-3.33\",\"jobs\":[{\"jobname\":\"a\",\"trim\":{\"total_ios\":1,\"iops\":1.0,\"bw_bytes\":1}}]}'";
    let o = warpbell(&[&JOB[..], &["--beside", trims, "--json", name(&empty)]].concat());
    mentions(&stderr(&o), &["no row is in both"]);
    assert!(json(&empty)["results"][0]["runs"][0]["read"]["commands"].as_u64().unwrap() > 0);
    for (command, told) in [("exit 3", "the command failed"), ("echo no", "is no report that is known")] {
        let o = warpbell(&[&JOB[..], &["--beside", command]].concat());
        mentions(&stderr(&o), &["--beside", command, told]);
    }
}
