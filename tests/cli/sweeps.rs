//! Tests lists of values in options of `bench queue`.

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
