//! Figures of this program's own reports. Their keys end with units, so all results are read by one rule.

use super::figure::{Figure, Samples, Subject, Unit};
use super::label::Label;
use super::source::{Distribution, Source, TimeSeries, as_number, number, text};
use serde_json::Value;

/// Keys that are no results of the subject: they are settings, extremes, or times of preparation and checks.
const NO_FIGURES: [&str; 15] = [
    "environment",
    "started_ns",
    "job",
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
/// Percentiles that are compared.
const PERCENTILES: [f64; 2] = [50.0, 99.0];
/// Settings that change how long a measurement is, and not what it measures.
const LENGTHS: [&str; 6] = ["runs", "runtime_ns", "deadline_ns", "seed", "iterations", "verify"];

/// Key of the name of a job in a job file.
const NAME: &str = "name";

/// Reads the report of a command.
///
/// # Errors
/// A report of another schema.
pub fn read(document: &Value) -> Result<Source, String> {
    let schema = document.get("schema").and_then(Value::as_u64);
    if schema != Some(u64::from(crate::reports::SCHEMA)) {
        let schema = schema.map_or_else(|| "no number".to_owned(), |n| n.to_string());
        let own = crate::reports::SCHEMA;
        return Err(format!("its schema is {schema}, and this program reads {own}; use the program that wrote it"));
    }
    let command = text(document, "command").unwrap_or_default();
    let environment = document.get("environment").unwrap_or(&Value::Null);
    let results = document.get("results").unwrap_or(&Value::Null);
    let runs = document.pointer("/config/runs").and_then(Value::as_u64).unwrap_or(1);
    let swept = swept(document);
    let source = Source { swept: swept.clone(), ..Source::default() };
    // Parameters that all rows of a job have in common are settings, and no part of their names.
    let jobs: Vec<_> = results.as_array().into_iter().flatten().filter_map(|row| row.get("job")?.as_object()).collect();
    let is_same = |key: &String, value: &Value| jobs.iter().all(|job| job.get(key) == Some(value));
    let first = jobs.first().copied().into_iter().flatten();
    let same: Vec<_> = first.filter(|(key, value)| !swept.contains(key) && is_same(key, value)).collect();
    let constant = same.iter().map(|(key, _)| (*key).clone()).collect();
    let elapsed = command.starts_with("graph ");
    let mut walk = Walk { elapsed, runs, swept, constant, in_run: false, source };
    walk.value(results, &[], "");
    let device = document.pointer("/path/device").and_then(Value::as_str).map(str::to_owned);
    let is_software = |spec: &str| spec.contains("soft:");
    let transports = results.as_array().into_iter().flatten().filter_map(|r| r.pointer("/path/transport")?.as_str());
    let subject = match &device {
        _ if has_model(document) => Subject::Model,
        Some(spec) if is_software(spec) => Subject::SoftwareDevice,
        Some(_) => Subject::Device,
        None if transports.into_iter().any(|t| t == "soft") => Subject::SoftwareDevice,
        None if text(environment, "engine") == Some("cpu") => Subject::SoftwareDevice,
        None => Subject::Device,
    };
    let debug = if environment.get("debug_build") == Some(&Value::Bool(true)) { " (debug build)" } else { "" };
    let mut settings = vec![("engine".to_owned(), text(environment, "engine_name").unwrap_or_default().to_owned())];
    flatten(document.get("config").unwrap_or(&Value::Null), "", &mut settings);
    // The configuration of some commands names parameters of their jobs, too.
    let is_new = |key: &String| settings.iter().all(|(known, _)| known != key);
    let more: Vec<_> = same.iter().filter(|(key, _)| is_new(key)).collect();
    more.into_iter().for_each(|(key, value)| flatten(value, key, &mut settings));
    Ok(Source {
        tool: format!("warpbell {}{debug}, {command}", text(environment, "version").unwrap_or_default()),
        command: command.to_owned(),
        engine: engine(environment),
        subject,
        device,
        settings,
        ..walk.source
    })
}

/// Returns where kernels ran, in words.
fn engine(environment: &Value) -> Option<String> {
    let threads = environment.get("engine_threads").and_then(Value::as_u64);
    match (text(environment, "engine")?, threads) {
        ("cpu", Some(1)) => Some("1 CPU thread".to_owned()),
        ("cpu", Some(threads)) => Some(format!("{threads} CPU threads")),
        ("cpu", None) => Some("CPU threads".to_owned()),
        _ => text(environment, "engine_name").map(str::to_owned),
    }
}

/// Returns the keys in rows of the options that a command went through, which its settings name as options.
fn swept(document: &Value) -> Vec<String> {
    let names = document.pointer("/config/swept").and_then(Value::as_array).into_iter().flatten();
    let is_of_messages = matches!(text(document, "command"), Some("bench rdma" | "bench shmem"));
    let key = |name: &str| match name {
        "bs" => "bytes".to_owned(),
        "size" if is_of_messages => "bytes".to_owned(),
        "qp" => "queue_pairs".to_owned(),
        "inline-size" => "inline_bytes".to_owned(),
        "ctas" => "blocks".to_owned(),
        "threads-per-cta" => "threads".to_owned(),
        "rwmixread" => "read_percent".to_owned(),
        "random-distribution" => "distribution".to_owned(),
        "size" | "offset" => format!("{name}_bytes"),
        "io-size" => "io_bytes".to_owned(),
        "row-size" => "row_bytes".to_owned(),
        "cache" | "host-cache" | "hot" => format!("{}_bytes", name.replace('-', "_")),
        other => other.replace('-', "_"),
    };
    names.filter_map(Value::as_str).map(key).collect()
}

/// Returns true if a device in the report, or that of one PE, has the timing of a model.
fn has_model(value: &Value) -> bool {
    match value {
        Value::Array(all) => all.iter().any(has_model),
        Value::Object(all) => {
            let models = all.get("path").and_then(|path| path.get("models")).and_then(Value::as_array);
            models.is_some_and(|models| !models.is_empty()) || all.values().any(has_model)
        }
        _ => false,
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
struct Walk {
    /// True if the time of a run is a result. That of a benchmark is its length.
    elapsed: bool,
    /// Measurements of which a spread has been kept.
    runs: u64,
    /// Keys that are labels in this report beside those that always are.
    swept: Vec<String>,
    /// Keys of labels that all rows have in common.
    constant: Vec<String>,
    /// True inside of one of several measurements of a row.
    in_run: bool,
    /// Collects the results.
    source: Source,
}

impl Walk {
    /// Reads the figures in a value of the row with these labels, whose metrics begin with `prefix`.
    fn value(&mut self, value: &Value, labels: &[Label], prefix: &str) {
        match value {
            // Elements have labels of their own, or are measurements of one row.
            Value::Array(all) => all.iter().for_each(|one| self.value(one, labels, prefix)),
            Value::Object(all) => {
                let of_job = all.get("job").and_then(Value::as_object);
                let mut labels = labels.to_vec();
                for own in of_job.into_iter().chain([all]).flat_map(|entries| Label::all_of(entries, &self.swept)) {
                    // The bytes of a run are those that it has moved.
                    let is_setting = !(self.in_run && own.key == "bytes");
                    if is_setting && labels.iter().all(|label| label.key != own.key) {
                        labels.push(own);
                    }
                }
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

    fn entry(&mut self, key: &str, value: &Value, labels: &[Label], prefix: &str) {
        match key {
            "percentiles_ns" => return self.percentiles(value, labels, prefix),
            "time_series" => return self.time_series(value, labels),
            "runs" => {
                self.in_run = true;
                self.value(value, labels, prefix);
                self.in_run = false;
                return;
            }
            _ => {}
        }
        let Some((metric, unit, scale)) = measure(key).filter(|_| self.elapsed || key != "elapsed_ns") else {
            // Figures of another library beside those of this one.
            let prefix = if matches!(key, "latency" | "raw") { key } else { prefix };
            return self.value(value, labels, prefix);
        };
        let samples = match spread(value) {
            Some([min, median, max]) => {
                Samples::Spread { min: min * scale, median: median * scale, max: max * scale, count: self.runs }
            }
            None => match as_number(value) {
                Some(one) => Samples::Values(vec![one * scale]),
                None => {
                    self.source.missing += 1;
                    return;
                }
            },
        };
        self.add(labels, &format!("{prefix} {metric}"), unit, samples);
    }

    fn percentiles(&mut self, value: &Value, labels: &[Label], prefix: &str) {
        let (distribution, missing) = Distribution::read(labels, value);
        self.source.missing += missing;
        for (percent, ns) in &distribution.percentiles {
            if PERCENTILES.contains(percent) {
                self.add(labels, &format!("{prefix} p{percent}"), Unit::Ns, Samples::Values(vec![*ns]));
            }
        }
        self.source.distributions.push(distribution);
    }

    fn time_series(&mut self, value: &Value, labels: &[Label]) {
        let Some(series) = TimeSeries::read(labels, value) else { return };
        self.source.missing += series.missing();
        self.source.series.push(series);
    }

    fn add(&mut self, labels: &[Label], metric: &str, unit: Unit, samples: Samples) {
        let name = labels.iter().find(|label| label.key == NAME);
        // The name of a job stands for its parameters, as it does for fio.
        let tells = |label: &&Label| match name {
            Some(_) => label.key == "direction",
            None => !self.constant.contains(&label.key),
        };
        let words: Vec<String> = labels.iter().filter(tells).map(Label::words).collect();
        let row = match (name.map(Label::value_words), words.is_empty()) {
            (Some(name), _) => format!("{name}: {}", words.join(", ")),
            (None, true) => "all".to_owned(),
            (None, false) => words.join(", "),
        };
        let figure = Figure { row, labels: labels.to_vec(), metric: metric.trim().to_owned(), unit, samples };
        figure.add_to(&mut self.source.figures);
    }
}

/// Returns metric, unit and scale of a key that ends with a unit.
fn measure(key: &str) -> Option<(String, Unit, f64)> {
    let words = |of: &str| of.replace('_', " ");
    // As other programs of the field call them.
    let time = |of: &str| match of {
        "avg" => "latency mean".to_owned(),
        "typical" | "p50" => "latency p50".to_owned(),
        "p99" => "latency p99".to_owned(),
        "p999" | "p99_9" => "latency p99.9".to_owned(),
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
        let report = json!({ "config": { "runs": 4 }, "schema": crate::reports::SCHEMA, "command": command, "environment": { "version": "1", "engine": "cpu" },
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
                              "latency": { "mean_ns": 9.5, "min_ns": 1, "percentiles_ns": [[50.0, 7], [95.0, 8], [99.0, 9]] } } })
        };
        let found = figures(
            "bench nvme",
            json!({ "iops": { "min": 1.0, "median": 2.0, "max": 3.0 }, "runs": [run(10.0), run(20.0)] }),
        );
        assert!(found.contains(&values("read", "iops", &[10.0, 20.0])), "{found:?}");
        assert!(found.contains(&values("read", "bytes per s", &[40960.0, 81920.0])));
        assert!(found.contains(&values("read", "latency mean", &[9.5, 9.5])));
        assert!(found.contains(&values("read", "latency p99", &[9.0, 9.0])));
        assert_eq!(found.len(), 5, "{found:?}");
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
            "rows": [{ "bytes": 8, "avg_us": 1.5, "max_us": 9.0, "typical_us": 1.25 }] }]),
        );
        assert_eq!(
            found,
            [
                values("initiator kernel, 8 bytes", "latency mean", &[1500.0]),
                values("initiator kernel, 8 bytes", "latency p50", &[1250.0]),
            ]
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
    fn bytes_that_a_run_has_moved_are_no_setting() {
        let run = |bytes: u64, rate: f64| json!({ "bytes": bytes, "rows_per_s": rate });
        let results =
            json!({ "runs": [run(100, 1.0), run(200, 2.0)], "rows_per_s": { "min": 1, "median": 1.5, "max": 2 } });
        assert_eq!(figures("bench gather", results), [values("all", "rows per s", &[1.0, 2.0])]);
    }

    #[test]
    fn points_of_gathers_are_told_apart_by_what_was_swept() {
        let point = |rows: u64, cache: u64, rate: f64| {
            let job = json!({ "rows": rows, "row_bytes": 512, "batch": 10, "cache_bytes": cache, "iodepth": null });
            // A run has rows, too: those of all batches.
            json!({ "job": job, "verified": true, "runs": [{ "rows": 40, "bytes": 20480, "rows_per_s": rate }] })
        };
        let report = json!({ "schema": crate::reports::SCHEMA, "command": "bench gather",
                             "config": { "runs": 1, "swept": ["rows", "cache"] }, "environment": { "engine": "cpu" },
                             "results": [point(100, 64, 1.0), point(100, 128, 2.0), point(200, 128, 3.0)] });
        let source = read(&report).unwrap();
        assert_eq!(source.swept, ["rows", "cache_bytes"]);
        let rows: Vec<&str> = source.figures.iter().map(|figure| figure.row.as_str()).collect();
        assert_eq!(rows, ["rows 100, cache bytes 64", "rows 100, cache bytes 128", "rows 200, cache bytes 128"]);
        assert!(source.settings.contains(&("row_bytes".to_owned(), "512".to_owned())), "{:?}", source.settings);
    }

    #[test]
    fn tables_of_an_adapter_are_told_apart_by_their_points() {
        let table = |post_list: u32, rate: f64| {
            json!({ "initiator": "kernel", "job": { "queue_pairs": 2, "post_list": post_list }, "path": {},
                    "rows": [{ "bytes": 8, "messages_per_s": rate }, { "bytes": 64, "messages_per_s": rate }] })
        };
        let config = json!({ "setting": { "queue_pairs": 2 }, "swept": ["post-list", "size"] });
        let report = json!({ "schema": crate::reports::SCHEMA, "command": "bench rdma", "config": config,
                             "environment": { "engine": "cpu" }, "results": [table(1, 1.0), table(32, 2.0)] });
        let source = read(&report).unwrap();
        assert_eq!(source.swept, ["post_list", "bytes"]);
        let rows: Vec<&str> = source.figures.iter().map(|figure| figure.row.as_str()).collect();
        assert_eq!(rows[..2], ["post list 1, initiator kernel, 8 bytes", "post list 1, initiator kernel, 64 bytes"]);
        assert_eq!((rows.len(), rows[3]), (4, "post list 32, initiator kernel, 64 bytes"));
        let of_pairs = source.settings.iter().filter(|(key, _)| key == "queue_pairs");
        assert_eq!(of_pairs.count(), 1, "{:?}", source.settings);
    }

    #[test]
    fn each_point_of_a_sweep_is_a_row_with_its_job() {
        let point = |depth: u32, iops: f64| {
            let latency = json!({ "percentiles_ns": { "50": 7, "99": 9 } });
            let series = json!({ "interval_ns": 1000, "iops": [iops, null], "bytes_per_s": [], "mean_latency_ns": [] });
            json!({ "job": { "rw": "randread", "bytes": 4096, "iodepth": depth, "numjobs": 2, "deadline_ns": 5 },
                    "runs": [{ "read": { "direction": "read", "iops": iops, "latency": latency, "time_series": series } }] })
        };
        let report = json!({ "schema": crate::reports::SCHEMA, "command": "bench nvme",
                             "config": { "runs": 1, "swept": ["iodepth", "numjobs"] },
                             "environment": { "engine": "cpu", "engine_threads": 2 },
                             "results": [point(1, 10.0), point(2, 20.0)] });
        let source = read(&report).unwrap();
        let rows: Vec<(&str, &str)> = source.figures.iter().map(|f| (f.row.as_str(), f.metric.as_str())).collect();
        let row = "iodepth 1, numjobs 2, read";
        assert_eq!(rows[..3], [(row, "iops"), (row, "latency p50"), (row, "latency p99")], "{rows:?}");
        assert_eq!(source.figures.len(), 6);
        assert_eq!((source.distributions.len(), source.series.len(), source.missing), (2, 2, 2));
        assert_eq!(source.series[1].labels, source.figures[5].labels);
        assert_eq!((source.engine.as_deref(), source.command.as_str()), (Some("2 CPU threads"), "bench nvme"));
    }

    #[test]
    fn methods_and_other_libraries_are_told_apart() {
        let stream = json!([{ "method": "host", "one_ns": 5 }, { "method": "stream", "one_ns": 3 }]);
        let found = figures("bench stream", stream);
        assert_eq!(found, [values("host", "one", &[5.0]), values("stream", "one", &[3.0])]);
        let shmem = json!([{ "bytes": 8, "p50_ns": 5, "raw": { "p50_ns": 6, "p99_9_ns": null } }]);
        let found = figures("bench shmem", shmem);
        let [own, raw] = ["latency p50", "raw latency p50"];
        assert_eq!(found, [values("8 bytes", own, &[5.0]), values("8 bytes", raw, &[6.0])]);
    }

    #[test]
    fn the_subject_is_named() {
        let subject = |path: Value, engine: &str| {
            let report = json!({ "schema": crate::reports::SCHEMA, "command": "bench nvme", "path": path,
                                 "environment": { "engine": engine }, "results": [] });
            read(&report).unwrap().subject
        };
        assert_eq!(subject(json!({ "device": "soft:mem:64M" }), "gpu"), Subject::SoftwareDevice);
        assert_eq!(subject(json!({ "device": "nvme:0000:65:00.0" }), "gpu"), Subject::Device);
        let modelled = json!({ "device": "soft:mem:64M,model=pm1743 (model pm1743)", "models": ["pm1743"] });
        assert_eq!(subject(modelled.clone(), "gpu"), Subject::Model);
        let pes = json!({ "schema": crate::reports::SCHEMA, "command": "graph bfs", "environment": { "engine": "cpu" },
                          "results": { "pes": [{ "path": modelled }] } });
        assert_eq!(read(&pes).unwrap().subject, Subject::Model);
        assert_eq!(subject(Value::Null, "cpu"), Subject::SoftwareDevice);
        assert_eq!(subject(Value::Null, "gpu"), Subject::Device);
        let other = json!({ "schema": crate::reports::SCHEMA + 1 });
        assert!(read(&other).unwrap_err().contains("use the program that wrote it"));
    }
}
