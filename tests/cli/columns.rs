//! Tests that reports fit in 80 columns, also in files and pipes: people paste them into pages and messages.

use super::program::*;

/// Widest line of a report.
const COLUMNS: usize = 80;

/// Returns the column behind a text, whose tabs reach to the next multiple of eight.
fn width(text: &str) -> usize {
    text.chars().fold(0, |at, c| if c == '\t' { (at / 8 + 1) * 8 } else { at + 1 })
}

/// Checks that no line is wider than a report, unless its only word is.
#[track_caller]
fn fits(args: &[&str], text: &str) {
    assert!(!text.is_empty(), "{args:?}");
    for line in text.lines().filter(|line| width(line) > COLUMNS) {
        let words = line.trim_start_matches(['#', ' ', '\t']).split_whitespace().count();
        assert!(words == 1, "{args:?}: {} columns could be fewer: {line}\n{text}", width(line));
    }
}

/// Runs commands on CPU threads, whose output has to fit.
#[track_caller]
fn all_fit(commands: &[&str]) {
    for command in commands {
        let args: Vec<&str> = command.split_whitespace().chain(["--engine", "cpu"]).collect();
        fits(&args, &succeeds(&args));
    }
}

#[test]
fn machines_and_devices_are_described_in_80_columns() {
    let folder = folder();
    let path = folder.path().join("long-name-".repeat(12));
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let long = format!("soft:{}", name(&path));
    for args in
        [&["info"][..], &["doctor"], &["nvme", "list"], &["nvme", "list", "--device", "soft:mem:1M", "--device", &long]]
    {
        let o = warpbell(args);
        assert!(o.status.success(), "{args:?}: {}", stderr(&o));
        let text = stdout(&o);
        fits(args, &text);
        assert_eq!(text.lines().any(|line| line == long), args.contains(&long.as_str()), "{text}");
    }
}

#[test]
fn queue_cores_and_the_cache_are_measured_in_80_columns() {
    all_fit(&[
        "bench queue --queues 1,2 --depth 64 --commands 100 --runs 1",
        "bench queue --queues 1 --submitters 1,64 --depth 64,65536 --commands 100 --runs 1",
        "bench post --depth 64 --posts 100 --iters 50 --runs 1",
        "bench post --depth 64 --posts 100 --iters 50 --runs 1 --blueflame --collapsed --inline --inlined",
        "bench post --depth 64 --posts 100 --iters 50 --runs 1 --capsules",
        "bench array --size 1M --runs 1",
        "bench kv --layers 2 --tokens 16,32 --hit 50,100 --runs 1",
    ]);
}

#[test]
fn gathers_are_measured_in_80_columns() {
    let folder = folder();
    let path = folder.path().join("long-name-".repeat(12));
    let gather = "bench gather --rows 3000 --batch 500 --batches 2 --seed 123456789";
    all_fit(&[
        &format!("{gather} --runs 2 --overlap"),
        &format!("{gather} --indices zipf:0.99 --cache 20% --host-cache 30% --hot 10%"),
        &format!("{gather} --row-size 512,64k --batch 100,1000 --iodepth 1,1024 --indices zipf:0.99"),
        &format!("{gather} --replicate --device soft:mem:16M --device soft:mem:16M"),
        &format!("{gather} --device soft:{}", name(&path)),
    ]);
}

#[test]
fn transfers_between_pes_are_measured_in_80_columns() {
    all_fit(&[
        "bench shmem all --pes 2 -b 8 -e 4k -f 512 -n 10 -w 2 --window 4k --runs 1",
        "bench shmem put_latency --pes 2 -b 8 -e 8 -n 20 --runs 1 --raw",
        "bench shmem put_bw --pes 2 -e 64k -f 64 -n 10 --runs 1 --transport soft --window 1M --bidirectional",
        "bench shmem atomic_rate --pes 2 -a fetch_add -n 50 --runs 1 --raw -c 1,16 -t 1,64",
        "bench stream read --device soft:mem -n 3 --chained 10",
        "bench stream put --pes 2 --transport soft -n 3 --chained 10",
    ]);
}

#[test]
fn adapters_are_measured_in_80_columns() {
    all_fit(&[
        "bench rdma write_bw --transport soft -s 2,65536 -n 20 -q 2 -b -l 2",
        "bench rdma atomic_bw --transport soft -n 20 --report-gbits",
        "bench rdma read_lat --transport soft -n 20 -s 2,4096",
        "bench rdma write_bw --transport soft -n 20 -s 8 -q 1,16 -t 128,15000 -l 1,4 -Q 1,100 -I 0,28",
        "bench rdma write_lat --transport soft -D 20ms",
    ]);
}
