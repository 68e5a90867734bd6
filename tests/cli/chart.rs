//! Tests `chart`: of reports that the program has just written.

use super::program::*;
use roxmltree::Document;
use std::path::{Path, PathBuf};

fn measured(folder: &Path, file: &str, command: &[&str]) -> PathBuf {
    let path = folder.join(file);
    succeeds(&[&["bench"], command, &["--engine", "cpu", "--json", name(&path)]].concat());
    path
}

fn queue(folder: &Path, file: &str) -> PathBuf {
    measured(folder, file, &["queue", "--queues", "1,2", "--runs", "2", "--commands", "200"])
}

/// Returns the texts of a chart.
fn texts(chart: &str) -> Vec<String> {
    let document = Document::parse(chart).unwrap();
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts.filter_map(|node| Some(node.text()?.trim().to_owned())).collect()
}

#[track_caller]
fn says(chart: &str, words: &[&str]) {
    let texts = texts(chart);
    for word in words {
        assert!(texts.iter().any(|text| text.contains(word)), "no `{word}` in {texts:?}");
    }
}

#[test]
fn reports_are_drawn_to_a_file_or_to_standard_output() {
    let folder = folder();
    let [one, two] = ["one.json", "t<w>o.json"].map(|file| queue(folder.path(), file));
    let chart = folder.path().join("chart.svg");
    assert_eq!(succeeds(&["chart", name(&one), name(&two), "--output", name(&chart)]), "");
    let drawn = std::fs::read_to_string(&chart).unwrap();
    says(&drawn, &["bench queue", "CPU thread", "software device", "Queues", "Commands/s", "one.json", "t<w>o.json"]);
    let printed = succeeds(&["chart", name(&one), name(&two), "--kind", "sweep"]);
    assert_eq!(printed, drawn, "the same reports make the same chart");
}

#[test]
fn a_report_of_each_benchmark_has_a_chart() {
    let folder = folder();
    let short = ["--runtime", "100ms", "--size", "1M"];
    for (command, words) in [
        (
            &[&["nvme", "--iodepth", "4"], &short[..]].concat()[..],
            &["bench nvme", "soft:mem", "Percentile", "99 %"][..],
        ),
        (&["gather", "--rows", "1000", "--runtime", "100ms"], &["bench gather", "Percentile"]),
        (
            &["gather", "--rows", "1000", "--batches", "2", "--batch", "100,200", "--cache", "8k,64k"],
            &["bench gather", "Rows/s", "Latency", "Batch", "200", "cache 8 KiB", "99th percentile"],
        ),
        (&["gather", "--rows", "1000", "--batches", "2", "--row-size", "512,4k"], &["Row size", "4 KiB"]),
        (&["array", "--runs", "1", "--size", "1M"], &["bench array", "Loads/s", "plain", "cached", "sequential"]),
        (
            &["post", "--runs", "2", "--blocks", "1,2", "--posts", "500", "--iters", "200"],
            &["bench post", "Posts/s", "Blocks"],
        ),
        (&["shmem", "put_bw", "--runs", "2", "-e", "1k"], &["bench shmem", "GiB/s", "Size", "1 KiB"]),
        (&["shmem", "put_bw", "--runs", "1", "-e", "8", "-c", "1,2"], &["Blocks", "Operations/s", "put_bw"]),
        (&["rdma", "write_lat", "-n", "50"], &["bench rdma", "Latency", "kernel", "99th percentile"]),
        (
            &["rdma", "write_bw", "--transport", "soft", "-n", "50", "-l", "1,2,8", "-q", "1,2"],
            &[
                "bench rdma",
                "Post list",
                "Messages/s",
                "8",
                "queue pairs 1, initiator kernel",
                "queue pairs 2, initiator host",
            ],
        ),
        (
            &["rdma", "write_bw", "--transport", "soft", "-n", "50", "-s", "8,64,512", "-t", "16,64"],
            &["Message size", "MiB/s", "512 B", "tx depth 16", "tx depth 64"],
        ),
        (
            &["queue", "--depth", "64,128,256", "--submitters", "1,2", "--commands", "100", "--runs", "1"],
            &["bench queue", "Depth", "256", "Commands/s", "1 queue, 1 submitter", "2 queues, 2 submitters"],
        ),
        (&["stream", "read", "--iters", "20", "--chained", "4"], &["bench stream", "host", "stream", "one", "chained"]),
    ] {
        let report = measured(folder.path(), "report.json", command);
        says(&succeeds(&["chart", name(&report)]), words);
    }
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let folder = folder();
    let report = queue(folder.path(), "queue.json");
    let array = measured(folder.path(), "array.json", &["array", "--runs", "1", "--size", "1M"]);
    let before = std::fs::read(&report).unwrap();
    let replaced = warpbell(&["chart", name(&array), name(&report), "--output", name(&report)]);
    assert_eq!(replaced.status.code(), Some(2));
    mentions(&stderr(&replaced), &["would replace a file that the command uses"]);
    assert_eq!(std::fs::read(&report).unwrap(), before);
    let two = fails(&["chart", name(&array), name(&report)]);
    mentions(&two, &["array.json is a report of bench array", "queue.json one of bench queue", "by themselves"]);
    mentions(&fails(&["chart", name(&report), "--kind", "time"]), &["queue.json", "has no time series", "--kind auto"]);
    let other = write(&folder, "other.json", "{}");
    mentions(&fails(&["chart", &other]), &["other.json is no report that is known", "--json"]);
    mentions(&fails(&["chart", name(&folder.path().join("none.json"))]), &["none.json"]);
    assert_eq!(warpbell(&["chart"]).status.code(), Some(2));
}
