//! Tests `compare`: of reports that the program has just written, and of those of other programs.

use super::program::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Writes reports of `bench queue`.
fn measured(folder: &Path, count: usize) -> Vec<PathBuf> {
    let files: Vec<PathBuf> = (0..count).map(|i| folder.join(format!("{i}.json"))).collect();
    for file in &files {
        succeeds(&["bench", "queue", "--queues", "1", "--runs", "1", "--engine", "cpu", "--json", name(file)]);
    }
    files
}

/// Writes a copy of a report in which each rate is multiplied.
fn scaled(report: &Path, to: &Path, factor: f64) {
    let mut all = json(report);
    for row in all["results"].as_array_mut().unwrap() {
        for value in row["commands_per_s"].as_object_mut().unwrap().values_mut() {
            *value = Value::from(value.as_f64().unwrap() * factor);
        }
    }
    std::fs::write(to, all.to_string()).unwrap();
}

#[test]
fn a_worse_figure_is_an_error_and_a_better_one_is_none() {
    let folder = folder();
    let report = &measured(folder.path(), 1)[0];
    let [slow, fast] = ["slow.json", "fast.json"].map(|file| folder.path().join(file));
    scaled(report, &slow, 0.9);
    scaled(report, &fast, 1.2);
    let text = succeeds(&["compare", name(report), name(report)]);
    mentions(&text, &["bench queue", "software device", "commands per s", "1.000", "same", "1 figure: none worse"]);
    mentions(&fails(&["compare", name(report), name(&slow)]), &["1 of 1 figure worse"]);
    mentions(&succeeds(&["compare", name(report), name(&fast)]), &["1.200", "1 better"]);
    mentions(&succeeds(&["compare", name(report), name(&slow), "--tolerance", "20%"]), &["0.900", "same"]);
    let replaced = ["compare", name(report), name(&slow), "--json", name(report)];
    mentions(&stderr(&warpbell(&replaced)), &["would replace a file that the command uses"]);
}

#[test]
fn reports_of_a_folder_are_measurements_of_one_figure() {
    let (folder, out) = (folder(), folder());
    let files = measured(folder.path(), 3);
    let both = out.path().join("both.json");
    let csv = succeeds(&["compare", name(folder.path()), name(&files[0]), "--tolerance", "1000%", "--csv", "-"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "row,metric,unit,a,b,ratio,noise,outcome");
    assert!(lines[1].starts_with("\"1 queues, depth") && lines[1].ends_with(",same"), "{csv}");
    let list = files.iter().map(|file| name(file)).collect::<Vec<_>>().join(",");
    succeeds(&["compare", &list, name(&files[0]), "--tolerance", "1000%", "--json", name(&both)]);
    let report = json(&both);
    assert_eq!(report["a"]["reports"].as_array().unwrap().len(), 3);
    assert_eq!(report["pairs"][0]["measurements"], serde_json::json!([3, 1]));
    assert!(report["pairs"][0]["noise"].as_f64().unwrap() > 0.0);
    let before = std::fs::read(&files[1]).unwrap();
    let replaced = warpbell(&["compare", &list, name(&files[0]), "--tolerance", "1000%", "--csv", name(&files[1])]);
    mentions(&stderr(&replaced), &["would replace the report"]);
    assert_eq!(std::fs::read(&files[1]).unwrap(), before);
}

#[test]
fn rows_of_other_programs_are_joined_by_name_or_by_the_user() {
    let folder = folder();
    let [fio, gdsio] = ["fio.json", "gdsio.txt"].map(|file| folder.path().join(file));
    let read = r#"{"total_ios": 10, "iops": 1000.0, "bw_bytes": 4096000, "clat_ns": {"N": 0}}"#;
    std::fs::write(
        &fio,
        format!(r#"{{"fio version": "fio-3.33", "jobs": [{{"jobname": "a", "error": 0, "read": {read}}}]}}"#),
    )
    .unwrap();
    let line = "IoType: READ XferType: GPUD Threads: 8 DataSetSize: 1/1(KiB) IOSize: 4(KiB) Throughput: 1.0 GiB/sec, Avg_Latency: 5 usecs";
    std::fs::write(&gdsio, line).unwrap();
    let error = fails(&["compare", name(&fio), name(&gdsio)]);
    mentions(&error, &["no row is in both", "`read`", "`read, GPUD, 4 KiB, 8 threads`", "--row"]);
    let row = "--row=read=read, GPUD, 4 KiB, 8 threads";
    // 1 GiB/s is 1.07 GB/s.
    mentions(
        &succeeds(&["compare", name(&fio), name(&gdsio), row]),
        &["fio 3.33", "gdsio", "4.10MB/s", "1.07GB/s", "only in A"],
    );
    mentions(&fails(&["compare", name(&fio), name(&gdsio), "--row=x=y"]), &["A has no row `x`"]);
    std::fs::write(&gdsio, "{}").unwrap();
    mentions(&fails(&["compare", name(&fio), name(&gdsio)]), &["gdsio.txt is no report that is known", "nccl-tests"]);
}
