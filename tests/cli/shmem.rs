//! Tests `warpbell bench shmem` as its users run it, on CPU engines.

use crate::tree;
use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn bench(args: &[&str]) -> Output {
    let mut c = Command::new(tree::program());
    c.args(["bench", "shmem"]).args(args).args(["--engine", "cpu"]).stdin(Stdio::null()).output().unwrap()
}

/// Returns the output of a run, which must succeed.
fn succeeds(args: &[&str]) -> String {
    let o = bench(args);
    let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    assert!(o.status.success(), "{args:?}: {}\n{out}\n{err}", o.status);
    out.into_owned()
}

/// Returns the message of a run, which must fail.
fn fails(args: &[&str]) -> String {
    let o = bench(args);
    assert!(!o.status.success(), "{args:?}: {}", String::from_utf8_lossy(&o.stdout));
    String::from_utf8(o.stderr).unwrap()
}

/// Returns a table's lines without its heads.
fn lines(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|l| !l.starts_with('#'));
    rows.map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Returns the names of the columns, from the last head before the rows.
fn columns(text: &str) -> String {
    let heads = text.lines().rfind(|l| l.starts_with('#')).unwrap_or_default();
    heads.trim_start_matches('#').split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_table_has_a_row_for_each_size() {
    let text = succeeds(&["put_bw", "-b", "0", "-e", "4k", "-f", "64", "-n", "20", "--runs", "1", "--pes", "2"]);
    assert!(text.contains("# transport peer 2 PEs"), "{text}");
    assert!(text.contains("# put_bw  scope block"), "{text}");
    assert_eq!(columns(&text), "size(B) CTAs ops time(us) GB/s Mops/s wrong");
    let rows = lines(&text);
    assert_eq!(rows.iter().map(|r| r[0].as_str()).collect::<Vec<_>>(), ["0", "64", "4096"]);
    for row in rows {
        assert_eq!(row.len(), 7, "{row:?}");
        assert_eq!((row[2].as_str(), row[6].as_str()), ("20", "0"), "{row:?}");
    }
}

#[test]
fn latencies_have_percentiles_and_plain_accesses_stand_beside() {
    let text = succeeds(&["put_latency", "-b", "24", "-e", "24", "-n", "20", "--runs", "1", "--raw", "-s", "thread"]);
    assert_eq!(columns(&text), "size(B) CTAs ops time(us) GB/s Mops/s p50(us) p99(us) p99.9(us) wrong");
    let rows = lines(&text);
    assert_eq!((rows.len(), rows[0][0].as_str(), rows[1][0].as_str()), (2, "24", "raw"), "{text}");
    for row in &rows {
        let figures = |i: usize| row[i].parse::<f64>().unwrap();
        assert_eq!((row.len(), row[9].as_str()), (10, "0"), "{row:?}");
        assert!(figures(6) <= figures(7) && figures(7) <= figures(8), "{row:?}");
    }
}

#[test]
fn every_test_is_verified_with_one_to_three_pes() {
    for pes in ["1", "2", "3"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let file = path.to_str().unwrap();
        let short = ["-b", "8", "-e", "4k", "-f", "512", "-n", "10", "-w", "2", "--window", "4k", "--runs", "1"];
        succeeds(&[&["all", "--pes", pes, "--json", file][..], &short].concat());
        let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(report["command"], "bench shmem");
        assert_eq!(report["config"]["pes"].to_string(), pes);
        assert_eq!(report["results"]["engines"].as_array().unwrap().len().to_string(), pes);
        let rows = report["results"]["rows"].as_array().unwrap();
        let mut tests: Vec<&str> = rows.iter().map(|r| r["test"].as_str().unwrap()).collect();
        tests.dedup();
        assert_eq!(tests.len(), 16, "{tests:?}");
        for row in rows {
            assert_eq!(row["wrong"], 0, "{row}");
            assert!(row["time_ns"]["median"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["operations_per_s"]["median"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(
                row["p99_9_ns"].is_number(),
                !row["test"].as_str().unwrap().contains("_bw") && row["elements"] == 0,
                "{row}"
            );
        }
    }
}

#[test]
fn messages_are_verified_on_every_path() {
    let short =
        ["-b", "48", "-e", "2k", "-f", "8", "-n", "9", "-w", "2", "--window", "8k", "--runs", "1", "--json", "-"];
    for (test, copy) in [
        ("put_bw", "loads"),
        ("put_bw", "bulk"),
        ("put_bw", "buffer"),
        ("put_bw", "shared"),
        ("get_bw", "loads"),
        ("get_bw", "bulk"),
        ("get_bw", "buffer"),
    ] {
        let text = succeeds(&[&[test, "--pes", "2", "--copy", copy][..], &short].concat());
        let report: Value = serde_json::from_str(&text[text.find("{\n").expect("a report")..]).unwrap();
        let rows = report["results"]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{text}");
        assert!(rows.iter().all(|row| row["wrong"] == 0 && row["copy"] == copy), "{text}");
    }
    let refused = |words: &[&str]| fails(&[&["--pes", "2", "--runs", "1"], words].concat());
    let text = refused(&["get_bw", "--copy", "shared"]);
    assert!(text.contains("--copy shared") && text.contains("use bulk or buffer"), "{text}");
    let text = refused(&["put_bw", "--copy", "shared", "-b", "1M", "-e", "1M"]);
    assert!(text.contains("1048576 bytes") && text.contains("49024") && text.contains("-e"), "{text}");
    let text = refused(&["put_bw", "--copy", "shared", "-b", "8", "-e", "8", "--window", "1M"]);
    assert!(
        text.contains("131072 messages of 8 bytes") && text.contains("4096") && text.contains("--window"),
        "{text}"
    );
    let text = refused(&["p_rate", "--copy", "bulk"]);
    assert!(text.contains("p_rate does not take --copy"), "{text}");
}

#[test]
fn both_directions_at_once_and_every_atomic_operation() {
    let short = ["-n", "50", "--window", "1k", "--runs", "1", "--bidir"];
    for op in
        "inc add set and or xor swap compare_swap fetch fetch_inc fetch_add fetch_and fetch_or fetch_xor".split(' ')
    {
        let text = succeeds(&[&["atomic_rate", "-a", op][..], &short].concat());
        let rows = lines(&text);
        assert_eq!(rows.len(), 2, "{text}");
        assert!(rows.iter().all(|r| r.last().unwrap() == "0"), "{text}");
    }
    let text = succeeds(&[
        "get_bw",
        "-b",
        "100",
        "-e",
        "100",
        "-n",
        "10",
        "--bidirectional",
        "--pes",
        "3",
        "-c",
        "2",
        "-t",
        "3",
    ]);
    assert!(text.contains("every PE and the next one"), "{text}");
}

#[test]
fn messages_go_round_in_a_window_that_the_head_names() {
    let text = succeeds(&["put_bw", "-b", "24", "-e", "96", "--window", "1000", "-n", "50", "--raw", "--runs", "1"]);
    assert!(text.contains("put_bw  window 1000 B"), "{text}");
    // 50 messages of 24 bytes go round in 41 places. Plain stores have a row of their own below.
    assert_eq!(lines(&text).len(), 6, "{text}");
}

#[test]
fn what_cannot_be_is_said() {
    for (args, words) in [
        (&["put_bandwidth"][..], &["put_bandwidth", "put_bw", "all"][..]),
        (&["put_bw", "-s", "grid"], &["grid", "thread, warp, block"]),
        (&["put_bw", "-b", "4k", "-e", "8"], &["4096", "8"]),
        (&["put_bw", "-f", "1"], &["--step"]),
        (&["g_rate", "-b", "8"], &["g_rate", "--datatype"]),
        (&["put_latency", "-c", "2"], &["put_latency", "one block"]),
        (&["barrier", "--raw"], &["barrier", "--raw"]),
        (&["put_latency", "--raw", "--transport", "soft"], &["--raw", "transport soft", "leave --raw out"]),
        (&["reduce", "-b", "6", "-e", "6"], &["reduce", "4 bytes", "6 bytes"]),
        (&["put_bw", "-c", "5000"], &["4,096"]),
        (&["put_bw", "--pes", "0"], &["--pes"]),
        (&["put_latency", "--window", "1M"], &["put_latency", "--window"]),
        (&["put_bw", "--window", "18446744073709551615"], &["no symmetric heap", "use a smaller heap"]),
        (&["alltoall", "-b", "9223372036854775808", "-e", "9223372036854775808"], &["no symmetric heap"]),
    ] {
        let message = fails(args);
        for w in words {
            assert!(message.contains(w), "no `{w}` in: {message}");
        }
    }
}

/// Tests the script that runs NVSHMEM and NCCL beside the program, with made-up ones in their places.
#[test]
fn the_comparison_with_other_libraries_adds_up() {
    let mut tests = Command::new("python3");
    tests.arg(tree::root().join("benches/nvshmem/test_compare.py")).arg(tree::program());
    let o = tests.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).output();
    let o = o.unwrap_or_else(|e| panic!("python3: {e}; install it"));
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
}
