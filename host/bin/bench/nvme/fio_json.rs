//! Report in the shape of `fio --output-format=json` (fio 3), for programs that read that.

use super::Row;
use crate::workloads::fio::Direction;
use crate::workloads::nvme::NvmeJob;
use crate::workloads::report::PathReport;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use warpbell::engine::Engine;

/// Returns the document: a job for each row, with the figures of its middle run.
///
/// Leaves out what fio alone knows (times of the processor, submission latency, distributions of depths), so that no
/// reader takes a zero for a measurement.
pub fn document(rows: &[Row], engine: &Engine, path: &PathReport) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let jobs: Vec<Value> = rows.iter().enumerate().map(|(i, row)| job(i, row)).collect();
    json!({
        "fio version": format!("warpbell-{}", env!("CARGO_PKG_VERSION")),
        "timestamp": now.as_secs(),
        "timestamp_ms": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        "global options": { "ioengine": "warpbell", "filename": path.path.device.to_string(), "engine": engine.to_string() },
        "jobs": jobs,
    })
}

fn job(number: usize, row: &Row) -> Value {
    let run = row.median();
    let runtime = [&run.read, &run.write].into_iter().flatten().map(|d| d.runtime_ns).max().unwrap_or(0);
    let mut options = options(&row.job);
    options.extend(row.device.iter().map(|device| ("filename".to_owned(), Value::from(device.as_str()))));
    let mut job = json!({
        "jobname": row.name.clone().unwrap_or_else(|| format!("{}-{number}", row.job.rw)),
        "groupid": row.group.map_or(number, |group| group as usize),
        "error": 0,
        "job options": options,
        "job_runtime": runtime / 1_000_000,
    });
    for (name, side) in [("read", &run.read), ("write", &run.write)] {
        job[name] = direction(side.as_ref());
    }
    job["trim"] = direction(None);
    job
}

/// Returns the options as fio prints them: text.
fn options(job: &NvmeJob) -> Map<String, Value> {
    let mut options = Map::new();
    let mut set = |key: &str, value: String| options.insert(key.to_owned(), Value::String(value));
    set("rw", job.rw.to_string());
    if job.reads() && job.writes() {
        set("rwmixread", job.read_percent.to_string());
    }
    set("bs", job.most_bytes().to_string());
    set("iodepth", job.iodepth.to_string());
    set("numjobs", job.numjobs.to_string());
    set("size", job.size_bytes.to_string());
    set("offset", job.offset_bytes.to_string());
    if let Some(runtime) = job.runtime {
        set("runtime", format!("{}ms", runtime.as_millis()));
    }
    if let Some(bytes) = job.io_bytes {
        set("io_size", bytes.to_string());
    }
    if !job.ramp.is_zero() {
        set("ramp_time", format!("{}ms", job.ramp.as_millis()));
    }
    if !job.distribution.is_uniform() {
        set("random_distribution", job.distribution.to_string());
    }
    if job.norandommap {
        set("norandommap", "1".to_owned());
    }
    if job.verify {
        set("verify", "pattern".to_owned());
    }
    options
}

fn direction(side: Option<&Direction>) -> Value {
    let Some(d) = side else {
        return json!({ "io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0 });
    };
    let mut out = json!({
        "io_bytes": d.io_bytes,
        "io_kbytes": d.io_bytes >> 10,
        "bw_bytes": d.bytes_per_s as u64,
        "bw": (d.bytes_per_s / 1024.0) as u64,
        "iops": d.iops,
        "runtime": (d.runtime_ns / 1_000_000).max(1),
        "total_ios": d.commands,
        "short_ios": 0,
        "drop_ios": 0,
    });
    if let Some(l) = &d.latency {
        let percentiles: Map<String, Value> =
            l.percentiles_ns.iter().map(|(p, ns)| (format!("{p:.6}"), Value::from(*ns))).collect();
        // From before the command is submitted until its data is usable: fio's total latency. Submission is part of it.
        let latency = json!({
            "min": l.min_ns, "max": l.max_ns, "mean": l.mean_ns, "stddev": l.stddev_ns, "N": l.samples, "percentile": percentiles,
        });
        out["clat_ns"] = latency.clone();
        out["lat_ns"] = latency;
    }
    out
}
