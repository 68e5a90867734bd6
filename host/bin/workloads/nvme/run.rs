//! Results of one run of a job, and those of several jobs as one.

use super::job::as_nanoseconds_if;
use super::steady::Steadiness;
use crate::workloads::fio::Direction;
use crate::workloads::histogram::Histogram;
use crate::workloads::multiprocessors::GpuCost;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Results of one measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NvmeRun {
    /// Results of reads, if the job has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Direction>,
    /// Results of writes, if the job has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Direction>,
    /// True if all data read equals the data written; false if it was not checked.
    pub verified: bool,
    /// Time from the start of the first job of a job file to the start of this run; absent without a job file.
    #[serde(rename = "started_ns", serialize_with = "as_nanoseconds_if", skip_serializing_if = "Option::is_none")]
    pub started: Option<Duration>,
    /// Steadiness of the rate, if the job has a criterion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steadiness: Option<Steadiness>,
    /// Share of the GPU that the kernel held of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuCost>,
    /// Latencies of reads and of writes.
    #[serde(skip)]
    pub histograms: [Histogram; 2],
}

impl NvmeRun {
    /// Returns the commands per second of both directions together.
    pub fn iops(&self) -> f64 {
        [&self.read, &self.write].into_iter().flatten().map(|d| d.iops).sum()
    }

    /// Returns the results of jobs that ran at the same time as one, as fio sums those of a group: amounts are sums, and the
    /// time is the longest. `None` without jobs.
    ///
    /// Steadiness and time series are those of a job alone, and are left out.
    pub fn of_group(jobs: &[&Self], percentiles: &[f64]) -> Option<Self> {
        let first = jobs.first()?;
        let mut histograms = first.histograms.clone();
        for job in &jobs[1..] {
            histograms.iter_mut().zip(&job.histograms).for_each(|(all, one)| all.merge(one));
        }
        let sum = |of: fn(&Self) -> &Option<Direction>, latencies: &Histogram| -> Option<Direction> {
            let parts: Vec<&Direction> = jobs.iter().filter_map(|job| of(job).as_ref()).collect();
            let longest = Duration::from_nanos(parts.iter().map(|part| part.runtime_ns).max()?);
            let commands = parts.iter().map(|part| part.commands).sum();
            let bytes = parts.iter().map(|part| part.io_bytes).sum();
            Some(Direction::new(parts[0].direction, commands, bytes, longest, latencies.latency(percentiles)))
        };
        Some(Self {
            read: sum(|job| &job.read, &histograms[0]),
            write: sum(|job| &job.write, &histograms[1]),
            verified: jobs.iter().all(|job| job.verified),
            started: jobs.iter().filter_map(|job| job.started).min(),
            steadiness: None,
            gpu: jobs.iter().filter_map(|job| job.gpu).reduce(GpuCost::beside),
            histograms,
        })
    }
}

impl fmt::Display for NvmeRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in [&self.read, &self.write].into_iter().flatten().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{d}")?;
        }
        self.steadiness.iter().try_for_each(|s| write!(f, "\n  {s}"))?;
        self.gpu.iter().try_for_each(|gpu| write!(f, "\n{gpu}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::params::{NVME_BENCH_BITS, NVME_BENCH_BUCKETS};

    /// A run of reads of 4 KiB with this latency each.
    fn run(commands: u64, time: Duration, latency_ns: u64) -> NvmeRun {
        let mut reads = Histogram::empty(NVME_BENCH_BITS, NVME_BENCH_BUCKETS);
        let writes = reads.clone();
        reads.add(latency_ns, commands);
        let read = Direction::new("read", commands, commands * 4096, time, reads.latency(&[50.0]));
        NvmeRun { read: Some(read), started: Some(time), histograms: [reads, writes], ..NvmeRun::default() }
    }

    #[test]
    fn a_group_has_the_sums_and_the_longest_time() {
        let (one, other) = (run(100, Duration::from_secs(1), 1_000), run(300, Duration::from_secs(2), 9_000));
        let group = NvmeRun::of_group(&[&one, &other], &[25.0, 99.0]).unwrap();
        let read = group.read.unwrap();
        assert_eq!((read.commands, read.io_bytes, read.runtime_ns), (400, 400 * 4096, 2_000_000_000));
        assert_eq!((read.iops, group.write.is_none()), (200.0, true));
        let latency = read.latency.unwrap();
        assert_eq!(latency.samples, 400);
        assert!(latency.percentiles_ns[0].1 < 1_100 && latency.percentiles_ns[1].1 >= 9_000, "{latency:?}");
        assert_eq!(group.started, Some(Duration::from_secs(1)));
        assert!(NvmeRun::of_group(&[], &[]).is_none());
    }
}
