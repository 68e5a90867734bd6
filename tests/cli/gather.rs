//! Tests `bench gather`: gathers of rows of a table that it fills.

use super::program::*;
use serde_json::{Value, json as value};

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
    let result = &report["results"][0];
    assert_eq!((&result["job"]["row_bytes"], &result["verified"]), (&512.into(), &true.into()));
    assert_eq!(report["config"]["swept"], value!([]));
    let runs = result["runs"].as_array().unwrap();
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
    assert!(lines[0].starts_with("job_rows,job_row_bytes,job_batch,"), "{lines:?}");
    assert!(lines[0].contains(",run,batches,rows,bytes,"), "{lines:?}");
    for (i, line) in lines.iter().enumerate().skip(1) {
        assert!(line.starts_with("3000,512,500,") && line.contains(&format!(",{i},4,2000,1024000,")), "{line}");
        assert_eq!(line.split(',').count(), lines[0].split(',').count());
    }
    let piped = succeeds(&gather(&["--csv", "-"]));
    assert!(piped.starts_with("job_rows,") && piped.lines().count() == 2, "{piped}");
    let o = warpbell(&gather(&["--csv", name(&csv), "--json", name(&csv)]));
    assert_eq!(o.status.code(), Some(2));
}

#[test]
fn points_before_one_that_fails_are_in_all_files() {
    let folder = folder();
    let [report, csv, chart] = ["a.json", "a.csv", "a.svg"].map(|file| folder.path().join(file));
    let files = ["--json", name(&report), "--csv", name(&csv), "--chart", name(&chart)];
    // The second table reaches blocks that cannot be read.
    let common = ["bench", "gather", "--engine", "cpu", "--rows", "3000,12000", "--batch", "500", "--batches", "8"];
    let bad = ["--device", "soft:mem:16M,media-error=read:8192-12287", "--runs", "1"];
    let o = warpbell(&[&common[..], &bad, &files].concat());
    assert_eq!(o.status.code(), Some(1), "{}", stdout(&o));
    mentions(&stderr(&o), &["unrecovered read error"]);
    let report = json(&report);
    let rows: Vec<&Value> = report["results"].as_array().unwrap().iter().map(|row| &row["job"]["rows"]).collect();
    assert_eq!(rows, [3000]);
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 2);
    mentions(&std::fs::read_to_string(&chart).unwrap(), &["<svg"]);
}

#[test]
fn indices_are_chosen_and_caches_are_used() {
    let folder = folder();
    let trace = write(&folder, "trace.txt", "# rows\n7\n7\n99\n");
    let run = |more: &[&str]| report(&gather(more))["results"][0]["runs"][0].clone();
    // A trace of two rows.
    let r = report(&["bench", "gather", "--engine", "cpu", "--indices", &trace, "--batch", "300", "--batches", "2"]);
    assert_eq!(r["results"][0]["job"]["rows"], 100);
    let traced = &r["results"][0]["runs"][0];
    assert_eq!((from(traced, "device_reads"), from(traced, "duplicates")), (4, 596));
    // Popular rows come from memory.
    let hot = run(&["--indices", "zipf:1.2", "--hot", "10%"]);
    assert!(from(&hot, "hot_hits") > 500, "{hot}");
    let cached = run(&["--indices", "zipf:0.99", "--cache", "20%", "--host-cache", "30%", "--warmup", "30"]);
    assert!(from(&cached, "cache_hits") > 0 && from(&cached, "device_reads") < 1000, "{cached}");
    // Neighbourhoods name each vertex once.
    let sampled = ["bench", "gather", "--engine", "cpu", "--indices", "sample:kron:9", "--fanout", "3,2"];
    let r = report(&[&sampled[..], &["--batch", "16", "--batches", "2", "--row-size", "64"]].concat());
    assert_eq!((&r["results"][0]["job"]["rows"], &r["config"]["fanout"]), (&512.into(), &serde_json::json!([3, 2])));
    assert_eq!(from(&r["results"][0]["runs"][0], "duplicates"), 0);
    // Several batches in flight, rows that are no whole blocks, a time instead of a number of batches.
    let odd = ["bench", "gather", "--engine", "cpu", "--rows", "3000", "--batch", "500", "--row-size", "100"];
    let odd = report(&[&odd[..], &["--in-flight", "4", "--runtime", "20ms", "--iodepth", "7"]].concat());
    assert!(odd["results"][0]["runs"][0]["batches"].as_u64().unwrap() > 0);
    assert_eq!(odd["results"][0]["job"]["in_flight"], 4);
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
        let job = &r["results"][0]["job"];
        assert_eq!((&job["row_bytes"], &job["batch"]), (&row_bytes.into(), &batch.into()), "{shape}");
        assert_eq!((&r["config"]["shape"], &r["config"]["indices"]), (&shape.into(), &indices.into()));
    }
}

/// Returns the words of the lines of a table.
fn lines(text: &str) -> Vec<Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn each_point_of_a_sweep_has_its_row() {
    let folder = folder();
    let [report, same, chart] = ["sweep.json", "same.json", "sweep.svg"].map(|file| folder.path().join(file));
    let device = format!("soft:{}", name(&folder.path().join("rows.img")));
    let options = ["bench", "gather", "--engine", "cpu", "--rows", "3000", "--batches", "4", "--device", &device];
    let swept = ["--row-size", "512,4k", "--batch", "500,700", "--iodepth", "1,64", "--runs", "2"];
    let outputs = ["--json", name(&report), "--chart", name(&chart)];
    let text = succeeds(&[&options[..], &swept, &outputs].concat());
    mentions(
        &text,
        &[
            "# 3,000 rows  indices uniform  in flight 1  seed 1\n",
            "# row-size  batch  iodepth   rows/s bandwidth  mean us     p50     p99   p99.9\n",
            "# verified: every byte of every row",
        ],
    );
    let rows = lines(&text);
    assert_eq!(
        (rows.len(), &rows[0][..4], &rows[7][..4]),
        (8, &["512", "B", "500", "1"][..], &["4", "KiB", "700", "64"][..])
    );
    assert!(rows.iter().all(|row| row.len() == 10), "{text}");
    let document = json(&report);
    assert_eq!(document["config"]["swept"], value!(["row-size", "batch", "iodepth"]));
    let points = document["results"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    for (i, point) in points.iter().enumerate() {
        let (job, runs) = (&point["job"], point["runs"].as_array().unwrap());
        let (row_bytes, batch, iodepth) = ([512, 4096][i / 4], [500, 700][i / 2 % 2], [1, 64][i % 2]);
        assert_eq!((&job["row_bytes"], &job["batch"]), (&row_bytes.into(), &batch.into()));
        assert_eq!((&job["iodepth"], &point["verified"]), (&iodepth.into(), &true.into()));
        assert_eq!((runs.len(), &runs[1]["rows"]), (2, &(4 * batch).into()));
        assert_eq!(runs[1]["bytes"], 4 * batch * row_bytes);
    }
    mentions(&std::fs::read_to_string(&chart).unwrap(), &["bench gather", "Queue depth", "row 4 KiB, batch 700"]);
    // A file is left without any of the tables.
    mentions(&succeeds(&["table", "list", "--device", &device]), &["no table is stored"]);
    std::fs::copy(&report, &same).unwrap();
    let compared = succeeds(&["compare", name(&report), name(&same)]);
    mentions(&compared, &["iodepth 64, row bytes 4096, batch 700"]);
}

#[test]
fn shares_and_caches_are_swept_on_one_table() {
    let text = succeeds(&gather(&["--indices", "zipf:0.99", "--cache", "64k,20%", "--host-cache", "10%,0"]));
    mentions(
        &text,
        &["# 3,000 rows of 512 bytes (1.5 MiB)  indices zipf:0.99  batch 500", "# hot rows none  warm-up 1"],
    );
    let rows = lines(&text);
    assert_eq!((&rows[0][..4], &rows[3][..4]), (&["10", "%", "64", "KiB"][..], &["0", "B", "20", "%"][..]), "{text}");
    let r = report(&gather(&["--hot", "0,10%", "--warps", "1,2", "--in-flight", "1,2"]));
    let hot: Vec<bool> = r["results"].as_array().unwrap().iter().map(|p| from(&p["runs"][0], "hot_hits") > 0).collect();
    assert_eq!(hot, [[false; 4], [true; 4]].concat());
}

#[test]
fn a_point_that_cannot_be_measured_is_named_before_any_is() {
    let folder = folder();
    let [report, rows] = ["sweep.json", "sweep.csv"].map(|file| folder.path().join(file));
    for (lists, told) in [
        (&["--row-size", "512,102"][..], &["--row-size 102", "multiple of 4"][..]),
        (&["--row-size", "512,128k"], &["--row-size 131072", "64 to 65536"]),
        (&["--cache", "64k,1k"], &["--cache 1 KiB", "16 of 512 bytes have 8 KiB"]),
        (&["--batch", "500,1073741824", "--row-size", "64,65536"], &["of memory, and ", " is free", "smaller --batch"]),
        (&["--device", "soft:mem:1M", "--row-size", "64,512"], &["soft:mem:1M holds 1.0 MiB", "needs 1.6 MiB"]),
    ] {
        let o = warpbell(&gather(&[lists, &["--json", name(&report), "--csv", name(&rows)]].concat()));
        assert_eq!(o.status.code(), Some(1), "{lists:?}: {}", stdout(&o));
        mentions(&stderr(&o), told);
        assert_eq!(lines(&stdout(&o)).len(), 0, "{lists:?}: {}", stdout(&o));
    }
    let many: Vec<String> = (1..=101).map(|n| n.to_string()).collect();
    let many = many.join(",");
    let o = warpbell(&gather(&["--iodepth", &many, "--warps", &many]));
    assert_eq!(o.status.code(), Some(2));
    mentions(&stderr(&o), &["more than 10000 combinations", "101 of warps", "101 of iodepth"]);
    let o = warpbell(&gather(&["--overlap", "--warps", "1,2"]));
    mentions(&stderr(&o), &["--overlap measures one point; give one value for each option"]);
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
    mentions(&fails(&gather(&["--cache", "1k"])), &["--cache 1 KiB", "16 of 512 bytes have 8 KiB; give that or more"]);
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
        &["--in-flight", "1,9"],
        &["--overlap", "--warps", "1,2"],
    ] {
        let o = warpbell(&gather(usage));
        assert_eq!(o.status.code(), Some(2), "{usage:?}: {}", stderr(&o));
    }
    let media = "soft:mem:4M,media-error=read:0-8191";
    mentions(&fails(&gather(&["--device", media])), &["LBA", "nrecovered"]);
}
