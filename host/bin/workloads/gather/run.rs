//! Figures of one run.

use crate::workloads::graph::seconds;
use crate::workloads::histogram::Latency;
use crate::workloads::multiprocessors::GpuCost;
use crate::workloads::report::nanoseconds;
use serde::Serialize;
use std::fmt;
use std::ops::Sub;
use std::time::Duration;
use warpbell::storage::{Stats, TableStats};
use warpbell::units::{Bytes, decimal_rate, grouped, si};

/// Percentiles of the latencies of batches.
const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// Counters of the table and of the volume below it.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    pub table: TableStats,
    pub volume: Stats,
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { table: self.table - earlier.table, volume: self.volume - earlier.volume }
    }
}

/// Results of one run, whose rows are all checked: a wrong one is an error and has no report.
#[derive(Clone, Debug, Serialize)]
pub struct GatherRun {
    /// Batches.
    pub batches: u64,
    /// Rows of all batches.
    pub rows: u64,
    /// Bytes of these rows.
    pub bytes: u64,
    /// Time in which batches were in flight, in nanoseconds.
    pub elapsed_ns: u64,
    /// Rows per second.
    pub rows_per_s: f64,
    /// Bytes of rows per second.
    pub bytes_per_s: f64,
    /// Time from the start of a batch until all of its rows are there.
    pub latency: Latency,
    /// Counters of the run.
    #[serde(flatten, serialize_with = "named")]
    pub counters: Counters,
    /// Share of a GPU that gathers held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuCost>,
}

fn named<S: serde::Serializer>(c: &Counters, s: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        from: &'a TableStats,
        read_commands: u64,
        read_bytes: u64,
    }
    Named { from: &c.table, read_commands: c.volume.reads, read_bytes: c.volume.read_bytes }.serialize(s)
}

impl GatherRun {
    pub fn new(elapsed: Duration, rows: u64, row_bytes: u64, latencies_ns: Vec<u64>, counters: Counters) -> Self {
        let elapsed_s = elapsed.as_secs_f64();
        let rate = |count: u64| if elapsed_s > 0.0 { count as f64 / elapsed_s } else { 0.0 };
        let bytes = rows * row_bytes;
        Self {
            batches: latencies_ns.len() as u64,
            rows,
            bytes,
            elapsed_ns: nanoseconds(elapsed),
            rows_per_s: rate(rows),
            bytes_per_s: rate(bytes),
            latency: statistics(latencies_ns),
            counters,
            gpu: None,
        }
    }
}

impl fmt::Display for GatherRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: u64| seconds(Duration::from_nanos(ns));
        let (l, t, v) = (&self.latency, &self.counters.table, &self.counters.volume);
        writeln!(
            f,
            "  gather: {} rows/s   {}   {} rows in {} batches   {}",
            si(self.rows_per_s),
            decimal_rate(self.bytes_per_s),
            grouped(self.rows),
            grouped(self.batches),
            time(self.elapsed_ns)
        )?;
        let (median, p99) = (time(percentile(l, 50.0)), time(percentile(l, 99.0)));
        writeln!(f, "  batch: median {median}   99th {p99}   min {}   max {}", time(l.min_ns), time(l.max_ns))?;
        let share = |n: u64| if t.rows > 0 { n as f64 / t.rows as f64 * 100.0 } else { 0.0 };
        writeln!(
            f,
            "  rows from: another row of the batch {:.1} %   hot rows {:.1} %   cache {:.1} %\n             host cache {:.1} %   devices {:.1} %",
            share(t.duplicates),
            share(t.hot_hits),
            share(t.cache_hits),
            share(t.host_hits),
            share(t.device_reads)
        )?;
        write!(
            f,
            "  device reads: {} rows   {} commands   {}",
            grouped(t.device_reads),
            grouped(v.reads),
            Bytes(v.read_bytes)
        )?;
        self.gpu.iter().try_for_each(|gpu| write!(f, "\n{gpu}"))
    }
}

/// Returns the statistics of latencies; zeros if there are none.
fn statistics(mut ns: Vec<u64>) -> Latency {
    ns.sort_unstable();
    let count = ns.len() as f64;
    let mean = ns.iter().sum::<u64>() as f64 / count.max(1.0);
    let variance = ns.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / count.max(1.0);
    let at = |percent: f64| {
        let rank = (percent / 100.0 * count).ceil() as usize;
        ns.get(rank.max(1) - 1).copied().unwrap_or(0)
    };
    Latency {
        samples: ns.len() as u64,
        min_ns: ns.first().copied().unwrap_or(0),
        mean_ns: mean,
        stddev_ns: variance.sqrt(),
        max_ns: ns.last().copied().unwrap_or(0),
        percentiles_ns: PERCENTILES.iter().map(|p| (*p, at(*p))).collect(),
    }
}

fn percentile(latency: &Latency, percent: f64) -> u64 {
    latency.percentiles_ns.iter().find(|(p, _)| *p == percent).map_or(0, |(_, ns)| *ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> GatherRun {
        let mut table = TableStats::default();
        (table.rows, table.duplicates, table.cache_hits, table.device_reads) = (1000, 100, 500, 400);
        let mut volume = Stats::default();
        (volume.reads, volume.read_bytes) = (410, 410 * 4096);
        let latencies = (1..=100).rev().map(|ms| ms * 1_000_000).collect();
        GatherRun::new(Duration::from_secs(2), 1000, 512, latencies, Counters { table, volume })
    }

    #[test]
    fn text_tells_rates_latency_and_sources() {
        let text = run().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  gather: 500 rows/s   256KB/s   1,000 rows in 100 batches   2.000 s");
        assert_eq!(lines[1], "  batch: median 0.050 s   99th 0.099 s   min 1.00 ms   max 0.100 s");
        assert!(lines[2].ends_with("batch 10.0 %   hot rows 0.0 %   cache 50.0 %"));
        assert_eq!(lines[3], "             host cache 0.0 %   devices 40.0 %");
        assert_eq!(lines[4], "  device reads: 400 rows   410 commands   1.6 MiB");
    }

    #[test]
    fn json_names_the_sources() {
        let json = serde_json::to_value(run()).unwrap();
        assert_eq!((&json["from"]["cache_hits"], &json["read_commands"]), (&500.into(), &410.into()));
        assert_eq!(json["latency"]["samples"], 100);
    }

    #[test]
    fn no_batches_are_no_rate() {
        let none = Counters { table: TableStats::default(), volume: Stats::default() };
        let run = GatherRun::new(Duration::ZERO, 0, 512, Vec::new(), none);
        assert_eq!((run.rows_per_s, run.latency.max_ns), (0.0, 0));
        assert!(run.to_string().contains("devices 0.0 %"));
    }
}
