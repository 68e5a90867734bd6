//! Tests `bench gather`: gathers of rows of a table that it fills.

use super::program::*;
use serde_json::Value;

/// Returns the arguments of a short measurement on CPU threads.
fn gather<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["bench", "gather", "--engine", "cpu", "--rows", "3000", "--batch", "500", "--batches", "4"], more].concat()
}

fn report(args: &[&str]) -> Value {
    serde_json::from_str(&succeeds(&[args, &["--json", "-"]].concat())).unwrap()
}

/// Returns a counter of a run, of the sources of its rows.
fn from(run: &Value, source: &str) -> u64 {
    run["from"][source].as_u64().unwrap_or_else(|| panic!("no {source} in {run}"))
}

#[test]
fn rows_are_gathered_and_checked_in_all_formats() {
    let folder = folder();
    let [json_file, csv] = ["gather.json", "gather.csv"].map(|file| folder.path().join(file));
    let text = succeeds(&gather(&["--runs", "3", "--json", name(&json_file), "--csv", name(&csv)]));
    mentions(
        &text,
        &[
            "# 3,000 rows of 512 bytes (1.5 MiB)  indices uniform  batch 500  in flight 1\n#   seed 1\n",
            "gather: ",
            "2,000 rows in 4 batches",
            "batch: median ",
            "rows from: another row of the batch ",
            "device reads: ",
            "verified: every byte of every row",
            "3 runs: rows/s min ",
        ],
    );
    let report = json(&json_file);
    assert_eq!((&report["command"], &report["config"]["indices"]), (&"bench gather".into(), &"uniform".into()));
    assert_eq!((&report["config"]["job"]["row_bytes"], &report["results"]["verified"]), (&512.into(), &true.into()));
    let runs = report["results"]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!((&run["rows"], &run["batches"], &run["latency"]["samples"]), (&2000.into(), &4.into(), &4.into()));
        assert!(run["rows_per_s"].as_f64().unwrap() > 0.0);
        // Without a cache, every row but duplicates is a command.
        assert_eq!(from(run, "rows"), 2000);
        assert_eq!(from(run, "duplicates") + from(run, "device_reads"), 2000);
        assert_eq!(run["read_commands"], run["from"]["device_reads"]);
    }
    let lines: Vec<String> = std::fs::read_to_string(&csv).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].starts_with("run,batches,rows,"), "{lines:?}");
    for (i, line) in lines.iter().enumerate().skip(1) {
        assert!(line.starts_with(&format!("{i},4,2000,1024000,")), "{line}");
        assert_eq!(line.split(',').count(), lines[0].split(',').count());
    }
    let piped = succeeds(&gather(&["--csv", "-"]));
    assert!(piped.starts_with("run,") && piped.lines().count() == 2, "{piped}");
    let o = warpbell(&gather(&["--csv", name(&csv), "--json", name(&csv)]));
    assert_eq!(o.status.code(), Some(2));
}

#[test]
fn indices_are_chosen_and_caches_are_used() {
    let folder = folder();
    let trace = write(&folder, "trace.txt", "# rows\n7\n7\n99\n");
    let run = |more: &[&str]| report(&gather(more))["results"]["runs"][0].clone();
    // A trace of two rows.
    let r = report(&["bench", "gather", "--engine", "cpu", "--indices", &trace, "--batch", "300", "--batches", "2"]);
    assert_eq!(r["config"]["job"]["rows"], 100);
    let traced = &r["results"]["runs"][0];
    assert_eq!((from(traced, "device_reads"), from(traced, "duplicates")), (4, 596));
    // Popular rows come from memory.
    let hot = run(&["--indices", "zipf:1.2", "--hot", "10%"]);
    assert!(from(&hot, "hot_hits") > 500, "{hot}");
    let cached = run(&["--indices", "zipf:0.99", "--cache", "20%", "--host-cache", "30%", "--warmup", "30"]);
    assert!(from(&cached, "cache_hits") > 0 && from(&cached, "device_reads") < 1000, "{cached}");
    // Neighbourhoods name each vertex once.
    let sampled = ["bench", "gather", "--engine", "cpu", "--indices", "sample:kron:9", "--fanout", "3,2"];
    let r = report(&[&sampled[..], &["--batch", "16", "--batches", "2", "--row-size", "64"]].concat());
    assert_eq!((&r["config"]["job"]["rows"], &r["config"]["fanout"]), (&512.into(), &serde_json::json!([3, 2])));
    assert_eq!(from(&r["results"]["runs"][0], "duplicates"), 0);
    // Several batches in flight, rows that are no whole blocks, a time instead of a number of batches.
    let odd = ["bench", "gather", "--engine", "cpu", "--rows", "3000", "--batch", "500", "--row-size", "100"];
    let odd = report(&[&odd[..], &["--in-flight", "4", "--runtime", "20ms", "--iodepth", "7"]].concat());
    assert!(odd["results"]["runs"][0]["batches"].as_u64().unwrap() > 0);
    assert_eq!(odd["config"]["job"]["in_flight"], 4);
}

#[test]
fn published_shapes_have_their_sizes() {
    for (shape, more, row_bytes, batch, indices) in [
        ("graphbolt", &["--batch", "2000"][..], 512, 2000, "uniform"),
        ("gids", &["--indices", "sample:kron:8", "--batch", "10"], 4096, 10, "sample:kron:8"),
        ("engram", &["--rows", "9000"], 256, 12_288, "uniform"),
        ("kv", &["--batch", "32", "--rows", "64"], 32_768, 32, "uniform"),
    ] {
        let shaped = ["bench", "gather", "--engine", "cpu", "--shape", shape, "--batches", "1", "--warmup", "0"];
        let r = report(&[&shaped[..], more].concat());
        let job = &r["config"]["job"];
        assert_eq!((&job["row_bytes"], &job["batch"]), (&row_bytes.into(), &batch.into()), "{shape}");
        assert_eq!((&r["config"]["shape"], &r["config"]["indices"]), (&shape.into(), &indices.into()));
    }
}

#[test]
fn files_keep_what_they_hold_and_are_left_without_the_table() {
    let folder = folder();
    let image = folder.path().join("rows.img");
    let device = format!("soft:{}", name(&image));
    for _ in 0..2 {
        succeeds(&gather(&["--device", &device]));
        mentions(&succeeds(&["table", "list", "--device", &device]), &["no table is stored"]);
    }
    let kept = folder.path().join("kept.img");
    let device = format!("soft:{}", name(&kept));
    succeeds(&["graph", "import", "kron:6", "--name", "g", "--device", &device]);
    mentions(&fails(&gather(&["--device", &device])), &["kept.img", "stored arrays", "--yes-destroy"]);
    mentions(&succeeds(&["graph", "verify", "g", "--device", &device]), &["is intact"]);
}

#[test]
fn gathers_that_cannot_be_measured_are_named() {
    mentions(&fails(&gather(&["--row-size", "102"])), &["--row-size 102", "multiple of 4", "104"]);
    mentions(&fails(&gather(&["--row-size", "32"])), &["--row-size 32", "64 to 65536"]);
    mentions(&fails(&gather(&["--row-size", "128k"])), &["131072", "64 to 65536"]);
    mentions(&fails(&gather(&["--device", "soft:mem:1M"])), &["soft:mem:1M holds 1.0 MiB", "needs 1.6 MiB"]);
    let huge = ["bench", "gather", "--engine", "cpu", "--rows", "100000000", "--row-size", "64k"];
    mentions(&fails(&huge), &["of memory, and ", " is free", "--rows"]);
    mentions(&fails(&gather(&["--indices", "unifor"])), &["--indices unifor", "no such file", "uniform"]);
    mentions(&fails(&gather(&["--indices", "sample:kron:12"])), &["--rows 3000", "4096 vertices"]);
    mentions(&fails(&gather(&["--cache", "1k"])), &["row cache of 1.0 KiB", "one set needs 16"]);
    let folder = folder();
    let trace = write(&folder, "trace.txt", "1\n2999\n3000\n");
    mentions(&fails(&gather(&["--indices", &trace])), &["number 3 of the trace is row 3000", "give 3001"]);
    let bad = write(&folder, "bad.txt", "1\nx\n");
    mentions(&fails(&gather(&["--indices", &bad])), &["bad.txt: line 2 is `x`"]);
    for usage in [
        &["--fanout", "3"][..],
        &["--indices", "zipf:0"],
        &["--shape", "dlrm"],
        &["--runtime", "1s"],
        &["--in-flight", "9"],
    ] {
        let o = warpbell(&gather(usage));
        assert_eq!(o.status.code(), Some(2), "{usage:?}: {}", stderr(&o));
    }
    let media = "soft:mem:4M,media-error=read:0-8191";
    mentions(&fails(&gather(&["--device", media])), &["LBA", "nrecovered"]);
}
