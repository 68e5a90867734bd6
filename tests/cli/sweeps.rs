//! Tests lists of values in options of `bench queue` and `bench shmem`. Those of `bench rdma` are in `rdma.rs`.

use super::program::*;
use serde_json::{Value, json as value};
use std::io::BufRead;
use std::process::{Command, Stdio};

/// Returns a measurement on CPU threads, without what the environment says about worlds.
fn bench(args: &[&str]) -> Command {
    let mut command = command(&[&["bench"], args, &["--engine", "cpu"]].concat());
    for variable in ["WARPBELL_TRANSPORT", "WARPBELL_SOFT_NIC"] {
        command.env_remove(variable);
    }
    command
}

/// Returns the words of the rows of a table.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().collect()).collect()
}

/// Returns the values of a report's rows by these keys.
fn keys<const N: usize>(rows: &Value, keys: [&str; N]) -> Vec<[u64; N]> {
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap_or_else(|| panic!("no {key} in {row}"));
    rows.as_array().unwrap().iter().map(|row| keys.map(|key| number(row, key))).collect()
}

/// Returns the lines of `--csv` behind the one with the columns.
fn lines(path: &std::path::Path) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count() - 1
}

/// Runs a measurement that is refused before anything is measured: no row is printed, and no report is written.
#[track_caller]
fn refused(args: &[&str], told: &[&str]) {
    let folder = folder();
    let [report, rows_file] = ["sweep.json", "sweep.csv"].map(|file| folder.path().join(file));
    let outputs = ["--json", name(&report), "--csv", name(&rows_file)];
    let o = bench(&[args, &outputs].concat()).output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{args:?}: {}", stdout(&o));
    mentions(&stderr(&o), told);
    assert!(rows(&stdout(&o)).is_empty(), "{args:?}: {}", stdout(&o));
    assert!(!std::fs::read(&report).is_ok_and(|report| !report.is_empty()), "{args:?}");
}

#[test]
fn the_queue_core_is_measured_at_each_combination() {
    let folder = folder();
    let [report, rows_file] = ["queue.json", "queue.csv"].map(|file| folder.path().join(file));
    let lists = ["queue", "--queues", "1,2", "--depth", "64,128", "--submitters", "2,4"];
    let more = ["--commands", "100", "--runs", "1", "--json", name(&report), "--csv", name(&rows_file)];
    let o = bench(&[&lists[..], &more].concat()).output().unwrap();
    assert!(o.status.success(), "{}", stderr(&o));
    let expected: Vec<[u64; 3]> = (0..8).map(|i| [[1, 2][i / 4], [64, 128][i / 2 % 2], [2, 4][i % 2]]).collect();
    let document = json(&report);
    assert_eq!(keys(&document["results"], ["queues", "depth", "submitters"]), expected);
    assert_eq!(document["config"]["swept"], value!(["queues", "depth", "submitters"]));
    let text = stdout(&o);
    let printed: Vec<Vec<u64>> =
        rows(&text).iter().map(|row| row[..3].iter().map(|cell| cell.parse().unwrap()).collect()).collect();
    assert_eq!(printed, expected.iter().map(|row| row.to_vec()).collect::<Vec<_>>(), "{text}");
    assert_eq!(lines(&rows_file), 8);
}

#[test]
fn a_point_of_the_queue_core_that_cannot_be_measured_is_named_before_any_is() {
    for (lists, told) in [
        (&["--depth", "64,100"][..], &["a queue of 100 entries", "power of two"][..]),
        (&["--depth", "64,131072"], &["a queue of 131072 entries", "65536"]),
        (&["--submitters", "1,20000"], &["20000", "4,096"]),
        (&["--submitters", "1,1000", "--commands", "4000000000"], &["1000 threads", "give fewer --submitters"]),
        (&["--queues", "1,1024", "--sms", "1,2"], &["--sms 1", "multiprocessors of a GPU"]),
    ] {
        refused(&[&["queue", "--runs", "1"], lists].concat(), told);
    }
    let many: Vec<String> = (1..=101).map(|n| n.to_string()).collect();
    let many = many.join(",");
    let o = bench(&["queue", "--queues", &many, "--submitters", &many]).output().unwrap();
    assert_eq!(o.status.code(), Some(2));
    mentions(&stderr(&o), &["more than 10000 combinations", "101 of queues", "101 of submitters"]);
}

#[test]
fn points_of_the_queue_core_before_an_interrupt_are_in_the_report() {
    let folder = folder();
    let [report, rows_file] = ["queue.json", "queue.csv"].map(|file| folder.path().join(file));
    // Some minutes, of which the first point is a short part.
    let many: Vec<String> = (1..=200).map(|n| n.to_string()).collect();
    let many = many.join(",");
    let swept = ["queue", "--queues", "1", "--submitters", &many, "--commands", "5000", "--runs", "1"];
    let mut command = bench(&[&swept[..], &["--json", name(&report), "--csv", name(&rows_file)]].concat());
    heed_signals(&mut command);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(printed.any(|line| !line.unwrap().starts_with('#')), "it never began");
    // SAFETY: the process is ours and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let o = child.wait_with_output().unwrap();
    assert_eq!((o.status.code(), stderr(&o).trim_end()), (Some(130), "interrupted by SIGINT"));
    let measured = keys(&json(&report)["results"], ["submitters"]);
    assert!((1..200).contains(&measured.len()), "{measured:?}");
    assert_eq!((measured[0], lines(&rows_file)), ([1], measured.len()));
}

#[test]
fn transfers_are_measured_with_each_number_of_blocks_and_threads() {
    let folder = folder();
    let report = folder.path().join("shmem.json");
    let few = ["-n", "10", "-w", "1", "--runs", "1", "--pes", "2", "--json", name(&report)];
    let lists = ["shmem", "put_bw", "-b", "8", "-e", "64", "-f", "8", "-c", "1,2", "-t", "1,3"];
    let o = bench(&[&lists[..], &few].concat()).output().unwrap();
    assert!(o.status.success(), "{}", stderr(&o));
    let document = json(&report);
    let expected: Vec<[u64; 3]> = (0..8).map(|i| [[1, 3][i / 4], [1, 2][i / 2 % 2], [8, 64][i % 2]]).collect();
    assert_eq!(keys(&document["results"]["rows"], ["threads", "blocks", "bytes"]), expected);
    assert_eq!(document["config"]["swept"], value!(["threads-per-cta", "ctas", "size"]));
    let text = stdout(&o);
    assert_eq!(text.matches("# put_bw ").count(), 2, "a head for each number of threads: {text}");
    mentions(&text, &["threads per CTA 1 ", "threads per CTA 3 "]);
    // Options that a test does not take make no points.
    let all = ["shmem", "all", "-c", "1,2", "-b", "8", "-e", "8", "--window", "4k"];
    let o = bench(&[&all[..], &few].concat()).output().unwrap();
    assert!(o.status.success(), "{}", stderr(&o));
    let measured = json(&report);
    let of = |test: &str| {
        let rows = measured["results"]["rows"].as_array().unwrap().iter().filter(|row| row["test"] == test);
        rows.map(|row| row["blocks"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((of("put_bw"), of("put_latency"), of("g_rate")), (vec![1, 2], vec![1], vec![1, 1, 2, 2]));
    // Ranks of a launcher walk the same points.
    let program = crate::tree::program();
    let ranks = ["run", "-n", "2", "--no-prefix", "--", name(program.as_ref()), "bench"];
    let few = ["-n", "10", "-w", "1", "--runs", "1", "--engine", "cpu", "--threads", "1"];
    let text = succeeds(&[&ranks[..], &lists, &few].concat());
    assert_eq!(rows(&text).len(), 8, "{text}");
}

#[test]
fn a_point_between_pes_that_cannot_be_measured_is_named_before_any_is() {
    for (lists, told) in [
        (&["put_bw", "-c", "1,5000"][..], &["a grid of 5000 blocks", "4,096"][..]),
        (&["put_latency", "-c", "1,2"], &["put_latency does not take more than one block"]),
        (&["broadcast", "-c", "1,65"], &["broadcast does not take so many blocks"]),
        (&["put_bw", "-t", "1,4096", "-c", "1,2"], &["2 blocks of 4096 threads", "4,096"]),
    ] {
        refused(&[&["shmem"], lists, &["-n", "10", "--runs", "1", "-e", "8"]].concat(), told);
    }
}

#[test]
fn points_between_pes_before_one_that_fails_are_in_the_report() {
    let folder = folder();
    let [report, rows_file] = ["shmem.json", "shmem.csv"].map(|file| folder.path().join(file));
    let swept =
        ["shmem", "put_bw", "-b", "8", "-e", "8", "-c", "1,2,3,4,5,6,7,8", "-n", "20", "-w", "1", "--runs", "1"];
    let more = ["--pes", "2", "--transport", "soft", "--json", name(&report), "--csv", name(&rows_file)];
    // A point has more than 20 requests.
    let o = bench(&[&swept[..], &more].concat())
        .env("WARPBELL_SOFT_NIC", "fault=syndrome:0x13/0x88@nth:50")
        .output()
        .unwrap();
    assert_eq!(o.status.code(), Some(1), "{}", stdout(&o));
    mentions(&stderr(&o), &["remote access error"]);
    let measured = keys(&json(&report)["results"]["rows"], ["blocks"]);
    assert!((1..3).contains(&measured.len()), "{measured:?}");
    assert_eq!((measured[0], lines(&rows_file)), ([1], measured.len()));
}
