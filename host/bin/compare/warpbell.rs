//! Figures of this program's own reports. Their keys end with units, so all results are read by one rule.

use super::figure::{Figure, Samples, Subject, Unit};
use super::source::{Source, number, text};
use serde_json::Value;

/// Keys that tell one row from another, in the order in which a row names them.
const LABELS: [&str; 17] = [
    "test",
    "direction",
    "initiator",
    "pattern",
    "source",
    "scope",
    "bytes",
    "queues",
    "depth",
    "blocks",
    "threads",
    "lanes",
    "submitters",
    "collapsed",
    "inline",
    "inlined",
    "blue_flame",
];
/// Keys that are no results of the subject: they are settings, extremes, or times of preparation and checks.
const NO_FIGURES: [&str; 15] = [
    "environment",
    "job",
    "time_series",
    "phases",
    "graph",
    "highlights",
    "path",
    "from",
    "io",
    "runtime_ns",
    "min_ns",
    "max_ns",
    "stddev_ns",
    "verification_ns",
    "unit",
];
/// Key of the figures with plain loads and stores, in the row of those with the library's calls.
const RAW: &str = "raw";
/// Percentiles that are compared.
const PERCENTILES: [f64; 2] = [50.0, 99.0];
/// Settings that change how long a measurement is, and not what it measures.
const LENGTHS: [&str; 7] = ["runs", "runtime_ns", "duration_ns", "deadline_ns", "seed", "iterations", "verify"];

/// Reads the report of a command.
///
/// # Errors
/// A report of another schema.
pub fn read(document: &Value) -> Result<Source, String> {
    let schema = document.get("schema").and_then(Value::as_u64);
    if schema != Some(u64::from(crate::output::SCHEMA)) {
        let schema = schema.map_or_else(|| "no number".to_owned(), |n| n.to_string());
        let own = crate::output::SCHEMA;
        return Err(format!(
            "its schema is {schema}, and this program reads {own}; compare it with the program that wrote it"
        ));
    }
    let command = text(document, "command").unwrap_or_default();
    let environment = document.get("environment").unwrap_or(&Value::Null);
    let results = document.get("results").unwrap_or(&Value::Null);
    let runs = document.pointer("/config/runs").and_then(Value::as_u64).unwrap_or(1);
    let swept: Vec<&str> = document
        .pointer("/config/swept")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut walk = Walk { elapsed: command.starts_with("graph "), runs, swept: &swept, figures: Vec::new() };
    walk.value(results, &[], "");
    let device = document.pointer("/path/device").and_then(Value::as_str).map(str::to_owned);
    let is_software = |spec: &str| spec.contains("soft:");
    let transports = results.as_array().into_iter().flatten().filter_map(|r| r.pointer("/path/transport")?.as_str());
    let subject = match &device {
        Some(spec) if is_software(spec) => Subject::SoftwareDevice,
        Some(_) => Subject::Device,
        None if transports.into_iter().any(|t| t == "soft") => Subject::SoftwareDevice,
        None if text(environment, "engine") == Some("cpu") => Subject::SoftwareDevice,
        None => Subject::Device,
    };
    let debug = if environment.get("debug_build") == Some(&Value::Bool(true)) { " (debug build)" } else { "" };
    let mut settings = vec![("engine".to_owned(), text(environment, "engine_name").unwrap_or_default().to_owned())];
    flatten(document.get("config").unwrap_or(&Value::Null), "", &mut settings);
    if let Some(Value::Object(job)) = document.pointer("/results/0/job") {
        let same = job.iter().filter(|(key, _)| !swept.iter().any(|option| job_key(option) == *key));
        same.for_each(|(key, value)| flatten(value, key, &mut settings));
    }
    Ok(Source {
        tool: format!("warpbell {}{debug}, {command}", text(environment, "version").unwrap_or_default()),
        subject,
        device,
        settings,
        figures: walk.figures,
    })
}

/// Returns the key of a job of `bench nvme` that an option sets.
fn job_key(option: &str) -> &str {
    match option {
        "bs" => "bytes",
        "size" => "size_bytes",
        "offset" => "offset_bytes",
        "io-size" => "io_bytes",
        "rwmixread" => "read_percent",
        "random-distribution" => "distribution",
        other => other,
    }
}

/// Collects the settings that a report has chosen.
fn flatten(value: &Value, key: &str, settings: &mut Vec<(String, String)>) {
    match value {
        Value::Object(all) => all.iter().for_each(|(key, value)| flatten(value, key, settings)),
        Value::Null => {}
        _ if LENGTHS.contains(&key) => {}
        Value::String(text) => settings.push((key.to_owned(), text.clone())),
        other => settings.push((key.to_owned(), other.to_string())),
    }
}

/// A walk over results.
struct Walk<'a> {
    /// True if the time of a run is a result. That of a benchmark is its length.
    elapsed: bool,
    /// Measurements of which a spread has been kept.
    runs: u64,
    /// Options of the job that differ from row to row.
    swept: &'a [&'a str],
    figures: Vec<Figure>,
}

impl Walk<'_> {
    /// Reads the figures in a value of the row with these labels, whose metrics begin with `prefix`.
    fn value(&mut self, value: &Value, labels: &[String], prefix: &str) {
        match value {
            // Elements have labels of their own, or are measurements of one row.
            Value::Array(all) => all.iter().for_each(|one| self.value(one, labels, prefix)),
            Value::Object(all) => {
                let own = LABELS.iter().filter_map(|key| label(key, all.get(*key)?));
                let job =
                    all.get("job").into_iter().flat_map(|job| self.swept.iter().map(move |option| (job, *option)));
                let point =
                    job.filter_map(|(job, option)| Some(format!("{option} {}", plain(job.get(job_key(option))?))));
                let labels: Vec<String> = labels.iter().cloned().chain(point).chain(own).collect();
                let repeated = all.contains_key("runs");
                for (key, value) in all {
                    // Of the runs, each value is there.
                    let is_kept_of_runs = repeated && spread(value).is_some();
                    if !is_kept_of_runs && !NO_FIGURES.contains(&key.as_str()) {
                        self.entry(key, value, &labels, prefix);
                    }
                }
            }
            _ => {}
        }
    }

    fn entry(&mut self, key: &str, value: &Value, labels: &[String], prefix: &str) {
        if key == "percentiles_ns" {
            let pairs = value.as_object().into_iter().flatten();
            let pairs = pairs.filter_map(|(percent, ns)| Some((percent.parse::<f64>().ok()?, ns.as_f64()?)));
            let wanted: Vec<_> = pairs.filter(|(percent, _)| PERCENTILES.contains(percent)).collect();
            for (percent, ns) in wanted {
                self.add(labels, &format!("{prefix} p{percent}"), Unit::Ns, Samples::Values(vec![ns]));
            }
            return;
        }
        let Some((metric, unit, scale)) = measure(key).filter(|_| self.elapsed || key != "elapsed_ns") else {
            let prefix = if key == "latency" { key } else { prefix };
            let labels: Vec<String> = labels.iter().cloned().chain((key == RAW).then(|| key.to_owned())).collect();
            return self.value(value, &labels, prefix);
        };
        let samples = match spread(value) {
            Some([min, median, max]) => {
                Samples::Spread { min: min * scale, median: median * scale, max: max * scale, count: self.runs }
            }
            None => match value.as_f64() {
                Some(one) => Samples::Values(vec![one * scale]),
                None => return,
            },
        };
        self.add(labels, &format!("{prefix} {metric}"), unit, samples);
    }

    fn add(&mut self, labels: &[String], metric: &str, unit: Unit, samples: Samples) {
        let row = if labels.is_empty() { "all".to_owned() } else { labels.join(", ") };
        Figure { row, metric: metric.trim().to_owned(), unit, samples }.add_to(&mut self.figures);
    }
}

/// Returns a setting as text.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the words of a label, or `None` for a switch that is off.
fn label(key: &str, value: &Value) -> Option<String> {
    match (key, value) {
        (_, Value::Bool(on)) => on.then(|| key.replace('_', " ")),
        ("test" | "direction" | "pattern", Value::String(text)) => Some(text.clone()),
        ("bytes", Value::Number(n)) => Some(format!("{n} bytes")),
        ("queues" | "blocks" | "threads" | "lanes" | "submitters", Value::Number(n)) => Some(format!("{n} {key}")),
        (_, Value::String(text)) => Some(format!("{key} {text}")),
        (_, Value::Number(n)) => Some(format!("{key} {n}")),
        _ => None,
    }
}

/// Returns metric, unit and scale of a key that ends with a unit.
fn measure(key: &str) -> Option<(String, Unit, f64)> {
    let words = |of: &str| of.replace('_', " ");
    // As other programs of the field call them.
    let time = |of: &str| match of {
        "avg" => "latency mean".to_owned(),
        "typical" => "latency p50".to_owned(),
        "p99" => "latency p99".to_owned(),
        "p999" => "latency p99.9".to_owned(),
        other => words(other),
    };
    match key {
        "iops" => Some((key.to_owned(), Unit::PerS, 1.0)),
        "min_us" | "max_us" | "stdev_us" | "peak_bytes_per_s" => None,
        "average_bytes_per_s" => Some(("bytes per s".to_owned(), Unit::BytesPerS, 1.0)),
        _ if key.ends_with("bytes_per_s") => Some((words(key), Unit::BytesPerS, 1.0)),
        _ if key.ends_with("_per_s") => Some((words(key), Unit::PerS, 1.0)),
        _ => key.strip_suffix("_ns").map(|of| (time(of), Unit::Ns, 1.0)).or_else(|| {
            let of = key.strip_suffix("_us")?;
            Some((time(of), Unit::Ns, 1e3))
        }),
    }
}

/// Returns minimum, median and maximum, if the value is such a spread.
fn spread(value: &Value) -> Option<[f64; 3]> {
    let [min, median, max] = ["min", "median", "max"].map(|key| number(value, key));
    Some([min?, median?, max?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figures(command: &str, results: Value) -> Vec<(String, String, Samples)> {
        let report = json!({ "config": { "runs": 4 }, "schema": crate::output::SCHEMA, "command": command, "environment": { "version": "1", "engine": "cpu" },
                             "results": results });
        read(&report).unwrap().figures.into_iter().map(|f| (f.row, f.metric, f.samples)).collect()
    }

    fn values(row: &str, metric: &str, values: &[f64]) -> (String, String, Samples) {
        (row.to_owned(), metric.to_owned(), Samples::Values(values.to_vec()))
    }

    #[test]
    fn runs_of_a_device_are_measurements_of_one_row() {
        let run = |iops: f64| {
            json!({ "read": { "direction": "read", "iops": iops, "bytes_per_s": iops * 4096.0, "runtime_ns": 1, "commands": 5,
                              "latency": { "mean_ns": 9.5, "min_ns": 1, "percentiles_ns": { "50": 7, "95": 8, "99": 9 } } } })
        };
        let found = figures(
            "bench nvme",
            json!([{ "job": { "bytes": 4096 }, "iops": { "min": 1.0, "median": 2.0, "max": 3.0 }, "runs": [run(10.0), run(20.0)] }]),
        );
        assert!(found.contains(&values("read", "iops", &[10.0, 20.0])), "{found:?}");
        assert!(found.contains(&values("read", "bytes per s", &[40960.0, 81920.0])));
        assert!(found.contains(&values("read", "latency mean", &[9.5, 9.5])));
        assert!(found.contains(&values("read", "latency p99", &[9.0, 9.0])));
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn points_of_a_sweep_are_rows_and_the_rest_of_the_job_is_settings() {
        let row = |bytes: u32, iops: f64| {
            json!({ "job": { "rw": "randread", "bytes": bytes, "iodepth": 8 },
                    "runs": [{ "read": { "direction": "read", "iops": iops } }] })
        };
        let report = json!({ "schema": crate::output::SCHEMA, "command": "bench nvme", "config": { "runs": 1, "swept": ["bs"] },
                             "environment": {}, "results": [row(512, 5.0), row(4096, 4.0)] });
        let source = read(&report).unwrap();
        let rows: Vec<&str> = source.figures.iter().map(|f| f.row.as_str()).collect();
        assert_eq!(rows, ["bs 512, read", "bs 4096, read"]);
        let has = |key: &str, value: &str| source.settings.contains(&(key.to_owned(), value.to_owned()));
        assert!(has("rw", "randread") && has("iodepth", "8") && !has("bytes", "512"), "{:?}", source.settings);
    }

    #[test]
    fn rows_have_the_settings_that_tell_them_apart() {
        let row = |queues: u32, rate: f64| {
            json!({ "queues": queues, "depth": 1024, "submitters": 4, "commands_each": 10,
                    "commands_per_s": { "min": rate, "median": rate + 1.0, "max": rate + 2.0 }, "commands_per_doorbell": 3.0 })
        };
        let found = figures("bench queue", json!([row(1, 5.0), row(2, 8.0)]));
        let spread = |min: f64| Samples::Spread { min, median: min + 1.0, max: min + 2.0, count: 4 };
        let expected = |row: &str, min| (row.to_owned(), "commands per s".to_owned(), spread(min));
        assert_eq!(
            found,
            [expected("1 queues, depth 1024, 4 submitters", 5.0), expected("2 queues, depth 1024, 4 submitters", 8.0)]
        );
        let found = figures(
            "bench rdma",
            json!([{ "initiator": "kernel", "path": { "transport": "soft" },
            "rows": [{ "bytes": 8, "avg_us": 1.5, "max_us": 9.0, "typical_us": 1.25 },
                     { "bytes": 2, "avg_us": 2.5, "messages_per_s": 4e5 }] }]),
        );
        assert_eq!(
            found,
            [
                values("initiator kernel, 8 bytes", "latency mean", &[1500.0]),
                values("initiator kernel, 8 bytes", "latency p50", &[1250.0]),
                values("initiator kernel, 2 bytes", "latency mean", &[2500.0]),
                values("initiator kernel, 2 bytes", "messages per s", &[4e5]),
            ]
        );
    }

    #[test]
    fn plain_accesses_are_a_row_of_their_own() {
        let row = json!({ "test": "put_latency", "bytes": 8, "p50_ns": 5.0, "raw": { "p50_ns": 3.0 } });
        let found = figures("bench shmem", json!({ "transport": {}, "rows": [row] }));
        assert_eq!(
            found,
            [values("put_latency, 8 bytes", "p50", &[5.0]), values("put_latency, 8 bytes, raw", "p50", &[3.0])]
        );
    }

    #[test]
    fn a_graph_is_compared_by_the_time_of_its_runs() {
        let results =
            || json!({ "phases": { "load_ns": 5 }, "runs": [{ "source": 3, "elapsed_ns": 7, "verification_ns": 2 }] });
        assert_eq!(figures("graph bfs", results()), [values("source 3", "elapsed", &[7.0])]);
        assert_eq!(figures("bench gather", results()), []);
    }

    #[test]
    fn the_subject_is_named() {
        let subject = |path: Value, engine: &str| {
            let report = json!({ "schema": crate::output::SCHEMA, "command": "bench nvme", "path": path,
                                 "environment": { "engine": engine }, "results": [] });
            read(&report).unwrap().subject
        };
        assert_eq!(subject(json!({ "device": "soft:mem:64M" }), "gpu"), Subject::SoftwareDevice);
        assert_eq!(subject(json!({ "device": "nvme:0000:65:00.0" }), "gpu"), Subject::Device);
        assert_eq!(subject(Value::Null, "cpu"), Subject::SoftwareDevice);
        assert_eq!(subject(Value::Null, "gpu"), Subject::Device);
        let other = json!({ "schema": crate::output::SCHEMA + 1 });
        assert!(read(&other).unwrap_err().contains("compare it with the program that wrote it"));
    }
}
