//! Figures of fio's JSON (`json` and `json+`), whose rates are of jobs: `bw_bytes` in bytes per second, latencies in
//! nanoseconds.

use super::figure::{Figure, Subject, Unit};
use super::label::Label;
use super::source::{Distribution, Source, number, text};
use serde_json::Value;
use std::collections::BTreeSet;
use warpbell::units::Bytes;

/// Percentiles that are compared, as fio names them, and their metrics.
const PERCENTILES: [(&str, &str); 2] = [("50.000000", "latency p50"), ("99.000000", "latency p99")];

/// Jobs of one name and one group: `numjobs` makes several, which run at the same time.
struct Job<'a> {
    name: &'a str,
    entries: Vec<&'a Value>,
}

/// Reads fio's report.
///
/// # Errors
/// A job that failed.
pub fn read(document: &Value) -> Result<Source, String> {
    let version = text(document, "fio version").unwrap_or_default();
    let jobs = jobs(document)?;
    let (mut figures, mut distributions) = (Vec::new(), Vec::new());
    for job in &jobs {
        for direction in ["read", "write", "trim", "mixed"] {
            let parts: Vec<&Value> = job.entries.iter().filter_map(|entry| entry.get(direction)).collect();
            let row = if jobs.len() == 1 { direction.to_owned() } else { format!("{}: {direction}", job.name) };
            let labels = labels(document, job, direction);
            let found = of_direction(&row, &parts);
            if !found.is_empty() {
                distributions.extend(percentiles(&parts).map(|all| Distribution::read(&labels, all).0));
            }
            figures.extend(found.into_iter().map(|figure| Figure { labels: labels.clone(), ..figure }));
        }
    }
    let device = values_of(document, "filename");
    let subject = match device.as_deref() {
        Some(files) if files.contains("/dev/") => Subject::Device,
        // A report of this program in fio's shape.
        Some(spec) if spec.contains("soft:") => Subject::SoftwareDevice,
        _ => Subject::Unknown,
    };
    Ok(Source {
        tool: version.strip_prefix("fio-").map_or_else(|| format!("fio {version}"), |v| format!("fio {v}")),
        command: "fio".to_owned(),
        subject,
        device,
        settings: settings(document),
        figures,
        distributions,
        ..Source::default()
    })
}

fn jobs(document: &Value) -> Result<Vec<Job<'_>>, String> {
    let mut jobs: Vec<(Option<u64>, Job<'_>)> = Vec::new();
    for entry in document.get("jobs").and_then(Value::as_array).into_iter().flatten() {
        let name = text(entry, "jobname").unwrap_or_default();
        if let Some(error) = entry.get("error").and_then(Value::as_i64).filter(|error| *error != 0) {
            let reason = std::io::Error::from_raw_os_error(error as i32);
            return Err(format!("job `{name}` of fio failed ({reason}), so its figures are of a part of its work"));
        }
        let group = entry.get("groupid").and_then(Value::as_u64);
        match jobs.iter_mut().find(|(other, job)| *other == group && job.name == name) {
            Some((_, job)) => job.entries.push(entry),
            None => jobs.push((group, Job { name, entries: vec![entry] })),
        }
    }
    Ok(jobs.into_iter().map(|(_, job)| job).collect())
}

/// Returns the figures of one direction of jobs that ran at the same time: sums of rates, and the mean of all latencies.
fn of_direction(row: &str, parts: &[&Value]) -> Vec<Figure> {
    let sum = |key: &str| -> f64 { parts.iter().filter_map(|part| number(part, key)).sum() };
    if sum("total_ios") == 0.0 {
        return Vec::new();
    }
    let mut figures = vec![
        Figure::one(row, "iops", Unit::PerS, sum("iops")),
        Figure::one(row, "bytes per s", Unit::BytesPerS, sum("bw_bytes")),
    ];
    let latencies: Vec<(f64, f64)> = parts
        .iter()
        .filter_map(|part| part.get("clat_ns"))
        .filter_map(|of| Some((number(of, "N")?, number(of, "mean")?)))
        .filter(|(count, _)| *count > 0.0)
        .collect();
    let count: f64 = latencies.iter().map(|(count, _)| count).sum();
    if count > 0.0 {
        let mean = latencies.iter().map(|(count, mean)| count * mean).sum::<f64>() / count;
        figures.push(Figure::one(row, "latency mean", Unit::Ns, mean));
    }
    if let Some(percentiles) = percentiles(parts) {
        let found = PERCENTILES.iter().filter_map(|(key, metric)| Some((metric, number(percentiles, key)?)));
        figures.extend(found.map(|(metric, ns)| Figure::one(row, *metric, Unit::Ns, ns)));
    }
    figures
}

/// Returns the percentiles of the completion latency. Those of several jobs are not those of all their commands.
fn percentiles<'a>(parts: &[&'a Value]) -> Option<&'a Value> {
    let [part] = parts else { return None };
    part.get("clat_ns")?.get("percentile")
}

/// Returns the name of a job, its block size and queue depth where they are given, and the direction.
fn labels(document: &Value, job: &Job<'_>, direction: &str) -> Vec<Label> {
    let options = |key: &str| {
        let own = job.entries.first().and_then(|entry| entry.get("job options"));
        own.into_iter().chain(document.get("global options")).find_map(|options| text(options, key))
    };
    let bytes = options("bs").and_then(|bs| bs.parse::<Bytes>().ok());
    let depth = options("iodepth").and_then(|depth| depth.parse::<u32>().ok());
    let mut labels = vec![Label::text("job", job.name)];
    labels.extend(bytes.map(|bytes| Label::number("bytes", bytes.0 as f64)));
    labels.extend(depth.map(|depth| Label::number("iodepth", depth.into())));
    labels.push(Label::text("direction", direction));
    labels
}

/// Returns all options of all jobs.
fn options(document: &Value) -> impl Iterator<Item = (String, String)> {
    let of_jobs = document.get("jobs").and_then(Value::as_array).into_iter().flatten();
    let all = document.get("global options").into_iter().chain(of_jobs.filter_map(|job| job.get("job options")));
    all.filter_map(Value::as_object).flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
}

/// Returns the values of an option, of all jobs that set it.
fn values_of(document: &Value, name: &str) -> Option<String> {
    let values: BTreeSet<String> = options(document).filter(|(key, _)| key == name).map(|(_, value)| value).collect();
    (!values.is_empty()).then(|| values.into_iter().collect::<Vec<_>>().join(", "))
}

/// Returns the options that change what a figure means.
fn settings(document: &Value) -> Vec<(String, String)> {
    let names = ["rw", "bs", "iodepth", "numjobs", "ioengine", "direct"];
    names.iter().filter_map(|name| Some(((*name).to_owned(), values_of(document, name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn direction(ios: u64, iops: f64, mean: f64) -> Value {
        json!({ "total_ios": ios, "iops": iops, "bw_bytes": iops * 4096.0, "bw_mean": 0.0,
                "clat_ns": { "N": ios, "mean": mean, "percentile": { "50.000000": 7, "99.000000": 9 } } })
    }

    fn document(jobs: &[(&str, u64, Value)]) -> Value {
        let jobs: Vec<_> = jobs
            .iter()
            .map(|(name, group, read)| {
                json!({ "jobname": name, "groupid": group, "error": 0, "read": read, "write": direction(0, 0.0, 0.0),
                        "job options": { "bs": "4k", "filename": "/dev/nvme0n1" } })
            })
            .collect();
        json!({ "fio version": "fio-3.33", "jobs": jobs })
    }

    fn value(source: &Source, row: &str, metric: &str) -> Option<f64> {
        let figure = source.figures.iter().find(|f| f.row == row && f.metric == metric)?;
        Some(figure.samples.middle())
    }

    #[test]
    fn one_job_has_rates_and_latencies() {
        let source = read(&document(&[("a", 0, direction(10, 500.0, 12.0))])).unwrap();
        assert_eq!((source.tool.as_str(), source.subject), ("fio 3.33", Subject::Device));
        assert_eq!(value(&source, "read", "iops"), Some(500.0));
        assert_eq!(value(&source, "read", "bytes per s"), Some(2_048_000.0));
        assert_eq!(value(&source, "read", "latency mean"), Some(12.0));
        assert_eq!(value(&source, "read", "latency p99"), Some(9.0));
        assert!(source.figures.iter().all(|f| f.row == "read"), "nothing was written");
        assert_eq!(source.settings, [("bs".to_owned(), "4k".to_owned())]);
        let labels = [Label::text("job", "a"), Label::number("bytes", 4096.0), Label::text("direction", "read")];
        assert_eq!(source.figures[0].labels, labels);
        let expected = Distribution { labels: labels.to_vec(), percentiles: vec![(50.0, 7.0), (99.0, 9.0)] };
        assert_eq!(source.distributions, [expected]);
    }

    #[test]
    fn clones_of_a_job_run_at_once_and_jobs_of_other_names_are_rows() {
        let clones = [("a", 0, direction(10, 500.0, 12.0)), ("a", 0, direction(30, 1500.0, 20.0))];
        let source = read(&document(&clones)).unwrap();
        assert_eq!(value(&source, "read", "iops"), Some(2000.0));
        assert_eq!(value(&source, "read", "latency mean"), Some(18.0));
        assert_eq!(value(&source, "read", "latency p99"), None);
        let jobs = [("a", 0, direction(10, 500.0, 12.0)), ("b", 1, direction(30, 1500.0, 20.0))];
        let source = read(&document(&jobs)).unwrap();
        assert_eq!((value(&source, "a: read", "iops"), value(&source, "b: read", "iops")), (Some(500.0), Some(1500.0)));
    }

    #[test]
    fn a_failed_job_has_no_figures() {
        let mut report = document(&[("a", 0, direction(10, 500.0, 12.0))]);
        report["jobs"][0]["error"] = json!(28);
        let error = read(&report).unwrap_err();
        assert!(error.contains("job `a` of fio failed (No space left"), "{error}");
    }
}
