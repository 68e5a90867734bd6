//! Results of one direction of a device measurement, in fio's format.

use super::histogram::Latency;
use super::report::nanoseconds;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use warpbell::units::{Bytes, binary_rate, decimal_rate, si, three_digits};

/// Reads or writes of one measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// `read` or `write`.
    pub direction: &'static str,
    /// Commands that completed.
    pub commands: u64,
    /// Bytes that these commands moved.
    pub io_bytes: u64,
    /// Duration of the measurement in nanoseconds.
    pub runtime_ns: u64,
    /// Commands per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Time from before a command was submitted until its data was usable; absent if nothing was timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Rates and latency over time, if they were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_series: Option<TimeSeries>,
}

/// Rates and latency of one direction over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeSeries {
    /// Length of each interval in nanoseconds.
    pub interval_ns: u64,
    /// Commands per second that completed in each interval.
    pub iops: Vec<f64>,
    /// Bytes per second.
    pub bytes_per_s: Vec<f64>,
    /// Mean latency of the commands that completed; 0 if none did.
    pub mean_latency_ns: Vec<f64>,
}

impl Direction {
    /// Computes the rates from the counts. There is no time series.
    pub fn new(
        direction: &'static str,
        commands: u64,
        io_bytes: u64,
        runtime: Duration,
        latency: Option<Latency>,
    ) -> Self {
        let seconds = runtime.as_secs_f64();
        let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        Self {
            direction,
            commands,
            io_bytes,
            runtime_ns: nanoseconds(runtime),
            iops: rate(commands),
            bytes_per_s: rate(io_bytes),
            latency,
            time_series: None,
        }
    }
}

/// Returns the unit of a set of latencies with maximum `greatest_ns`: its name, and its length in nanoseconds.
fn unit(greatest_ns: u64) -> (&'static str, f64) {
    match greatest_ns {
        0..100_000 => ("nsec", 1.0),
        100_000..100_000_000 => ("usec", 1e3),
        _ => ("msec", 1e6),
    }
}

impl fmt::Display for Direction {
    /// Prints as fio does: `read: IOPS=12.4M, BW=48.5GiB/s (52.1GB/s)(243GiB/5001msec)`, then the latencies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  {}: IOPS={}, BW={} ({})({}/{}msec)",
            self.direction,
            si(self.iops),
            binary_rate(self.bytes_per_s),
            decimal_rate(self.bytes_per_s),
            Bytes(self.io_bytes).to_string().replace(' ', ""),
            self.runtime_ns / 1_000_000
        )?;
        let Some(l) = &self.latency else { return Ok(()) };
        let (name, scale) = unit(l.max_ns);
        let whole = |ns: u64| (ns as f64 / scale).round();
        write!(
            f,
            "\n    clat ({name}): min={}, max={}, avg={}, stdev={}",
            whole(l.min_ns),
            whole(l.max_ns),
            three_digits(l.mean_ns / scale),
            three_digits(l.stddev_ns / scale)
        )?;
        write!(f, "\n    clat percentiles ({name}):")?;
        let width = l.percentiles_ns.iter().map(|(_, ns)| whole(*ns).to_string().len()).max().unwrap_or(0);
        for row in l.percentiles_ns.chunks(4) {
            let cells: Vec<String> = row.iter().map(|(p, ns)| format!("{p:5.2}th=[{:>width$}]", whole(*ns))).collect();
            write!(f, "\n     | {}", cells.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_fio_s() {
        let d = Direction::new("read", 62_000_000, 62_000_000 * 4096, Duration::from_millis(5001), None);
        assert_eq!(d.to_string(), "  read: IOPS=12.4M, BW=47.3GiB/s (50.8GB/s)(236.5GiB/5001msec)");
    }

    #[test]
    fn percentiles_stand_in_rows_of_four() {
        let latency = Latency {
            samples: 10,
            min_ns: 3_000,
            mean_ns: 20_500.0,
            stddev_ns: 4_100.0,
            max_ns: 812_000,
            percentiles_ns: vec![(1.0, 5_000), (50.0, 20_000), (99.0, 100_000), (99.9, 700_000), (99.99, 812_000)],
        };
        let text = Direction::new("write", 10, 40_960, Duration::from_secs(1), Some(latency)).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "    clat (usec): min=3, max=812, avg=20.5, stdev=4.10");
        assert_eq!(lines[3], "     |  1.00th=[  5], 50.00th=[ 20], 99.00th=[100], 99.90th=[700]");
        assert_eq!(lines[4], "     | 99.99th=[812]");
    }

    #[test]
    fn no_time_is_no_rate() {
        let d = Direction::new("read", 0, 0, Duration::ZERO, None);
        assert_eq!((d.iops, d.bytes_per_s), (0.0, 0.0));
    }
}
