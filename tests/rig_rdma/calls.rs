//! Tests the calls of a world between two processes whose heaps are out of each other's reach, over the proxy. It runs
//! the same programs of calls as over every other transport, benchmarks that verify their data, and a search.

use super::setting::{self, LINK, two_ranks, warpbell};
use super::tables::rows_of_bench;
use std::process::{Command, Stdio};

const TRANSPORT: &str = "verbs";

#[test]
#[ignore = "needs the rig"]
fn every_call_does_what_the_model_says() {
    setting::inside();
    let program = ["shmem_calls", "rank_of_a_world", "--exact", "--ignored", "--nocapture", "--test-threads=1"];
    let done = setting::run(&mut two_ranks(TRANSPORT, &program));
    assert!(done.well);
    assert_eq!(done.out.matches("as the model says").count(), 2);
}

#[test]
#[ignore = "needs the rig"]
fn benchmarks_find_nothing_wrong() {
    setting::inside();
    for (test, options) in [
        ("put_bw", &["-b", "8", "-e", "32k", "-f", "64", "-n", "50"][..]),
        ("get_bw", &["-b", "8", "-e", "32k", "-f", "64", "-n", "50"]),
        ("p_ping_pong", &["-n", "40"]),
        ("put_signal_ping_pong", &["-b", "8", "-e", "4k", "-f", "512", "-n", "40"]),
        ("p_rate", &["-n", "200", "--window", "4k"]),
        ("atomic_rate", &["-n", "200", "--window", "4k"]),
        ("barrier", &["-n", "20"]),
        ("broadcast", &["-b", "8", "-e", "4k", "-f", "512", "-n", "20"]),
        ("reduce", &["-b", "8", "-e", "4k", "-f", "512", "-n", "20"]),
        ("alltoall", &["-b", "8", "-e", "4k", "-f", "512", "-n", "20"]),
    ] {
        let mut arguments = vec!["warpbell", "bench", "shmem", test, "--engine", "cpu", "--threads", "1"];
        arguments.extend(options);
        arguments.extend(["-w", "2", "--runs", "1", "--deadline", "60s"]);
        let done = setting::run(&mut two_ranks(TRANSPORT, &arguments));
        assert!(done.well, "{test}");
        assert!(done.out.contains(TRANSPORT) && done.out.contains(setting::DEVICE), "{test} does not name its way");
        let rows = rows_of_bench(&done.out);
        assert!(
            !rows.is_empty() && rows.iter().all(|row| row.last().is_some_and(|wrong| wrong == "0")),
            "{test}: {rows:?}"
        );
    }
}

#[test]
#[ignore = "needs the rig"]
fn a_partitioned_search_is_verified() {
    setting::inside();
    let search = ["warpbell", "graph", "bfs", "kron:10", "--engine", "cpu", "--device", "soft:mem"];
    let done = setting::run(&mut two_ranks(TRANSPORT, &search));
    assert!(done.well && done.out.contains("verified (GAP rules)"));
}

/// Tests a network device that goes down during transfers between kernels: they end with the failure, and do not hang.
#[test]
#[ignore = "needs the rig"]
fn a_link_that_goes_down_is_a_named_failure() {
    setting::inside();
    let mut command =
        two_ranks(TRANSPORT, &["namespaces", "a_rank", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("WARPBELL_TEST_DEADLINE", "8").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    setting::show(&command);
    let mut child = command.spawn().unwrap();
    let (mut text, mut fallen) = (String::new(), false);
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    // Ends when both ranks have ended, at the latest by the launcher's limit.
    while std::io::BufRead::read_line(&mut lines, &mut text).unwrap() > 0 {
        if !fallen && text.contains("turn 3\n") {
            fallen = Command::new("ip").args(["link", "set", LINK, "down"]).status().unwrap().success();
        }
    }
    let status = child.wait().unwrap();
    print!("{text}");
    println!("({status})");
    assert!(Command::new("ip").args(["link", "set", LINK, "up"]).status().unwrap().success());
    assert!(fallen && !status.success());
    assert_ne!(status.code(), Some(124), "the launcher had to end them");
    let failed: Vec<&str> = text.lines().filter(|l| l.contains("failed: ")).collect();
    assert!(!failed.is_empty() && failed.iter().all(|l| l.contains("PE ") || l.contains("rank ")), "{failed:?}");
    // Later runs work again.
    let again =
        ["warpbell", "bench", "shmem", "put_bw", "--engine", "cpu", "--threads", "1", "-b", "8", "-e", "8", "-n", "10"];
    assert!(setting::run(&mut two_ranks(TRANSPORT, &again)).well);
}

#[test]
#[ignore = "needs the rig"]
fn info_names_the_transports() {
    setting::inside();
    let done = setting::run(&mut warpbell(&["info"]));
    assert!(done.well && done.out.contains(setting::DEVICE));
}
