//! Parameters of a device measurement, by fio's names and with fio's meaning.

use super::distribution::Distribution;
use super::sizes::Sizes;
use super::steady::SteadyState;
use crate::workloads::histogram::PERCENTILES;
use crate::workloads::report::nanoseconds;
use clap::ValueEnum;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use warpbell::units::Bytes;

/// Access pattern, by fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Sequential reads and writes
    #[value(name = "rw", alias = "readwrite")]
    #[serde(rename = "rw")]
    Mixed,
    /// Reads at random addresses
    Randread,
    /// Writes at random addresses
    Randwrite,
    /// Reads and writes at random addresses
    Randrw,
}

impl Pattern {
    /// Returns true for random addresses. Others are consecutive, from the start again at the end.
    pub fn is_random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite | Self::Randrw)
    }

    /// Returns the percentage of reads, where a pattern with both has `mix` percent.
    pub fn read_percent(self, mix: u32) -> u32 {
        match self {
            Self::Read | Self::Randread => 100,
            Self::Write | Self::Randwrite => 0,
            Self::Mixed | Self::Randrw => mix,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Mixed => "rw",
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
            Self::Randrw => "randrw",
        })
    }
}

/// Parameters of a device measurement.
#[derive(Clone, Debug, Serialize)]
pub struct NvmeJob {
    /// Access pattern.
    pub rw: Pattern,
    /// Percentage of reads among the commands: 100 only reads, 0 only writes.
    pub read_percent: u32,
    /// Bytes in each command.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Commands in flight of one of the `numjobs` jobs.
    pub iodepth: u32,
    /// Equal jobs at the same time, which share the units of the region: see [`NvmeJob::in_flight`].
    pub numjobs: u32,
    /// First byte of the region that the commands access.
    pub offset_bytes: u64,
    /// Bytes of the region.
    pub size_bytes: u64,
    /// Limit of the bytes that the commands move in all; `None` for as many as the time allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_bytes: Option<u64>,
    /// Duration of the measurement; `None` until all bytes are moved.
    #[serde(rename = "runtime_ns", serialize_with = "as_nanoseconds_if", skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Duration>,
    /// Time before the measurement, in which commands are made and not counted.
    #[serde(rename = "ramp_ns", serialize_with = "as_nanoseconds", skip_serializing_if = "Duration::is_zero")]
    pub ramp: Duration,
    /// Bytes that a sequential pattern leaves out after each command.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_bytes: u64,
    /// Commands that follow one another from each random place: 1 for a place for each command.
    #[serde(skip_serializing_if = "is_one")]
    pub run: u32,
    /// True for random places that are drawn independently. False if each unit comes once before one comes again.
    pub norandommap: bool,
    /// Distribution of random addresses.
    #[serde(skip_serializing_if = "Distribution::is_uniform")]
    pub distribution: Distribution,
    /// Limits of the rates.
    #[serde(skip_serializing_if = "Rates::is_none")]
    pub rate: Rates,
    /// Interval of the time series that is recorded.
    #[serde(rename = "interval_ns", serialize_with = "as_nanoseconds_if", skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// Criterion by which the measurement ends before its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_state: Option<SteadyState>,
    /// Percentiles of the latency that are reported.
    #[serde(skip)]
    pub percentiles: Vec<f64>,
    /// Multiprocessors of a GPU that the kernel is kept to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
    /// True to check the data that is read, and to write data that a later check expects.
    pub verify: bool,
    /// Seed of the random addresses.
    pub seed: u64,
}

impl NvmeJob {
    /// Returns a job of one command at a time on the first `size_bytes` bytes, for 5 seconds, with fio's percentiles.
    pub fn new(rw: Pattern, sizes: Sizes, size_bytes: u64) -> Self {
        Self {
            rw,
            read_percent: rw.read_percent(50),
            sizes,
            iodepth: 1,
            numjobs: 1,
            offset_bytes: 0,
            size_bytes,
            io_bytes: None,
            runtime: Some(Duration::from_secs(5)),
            ramp: Duration::ZERO,
            skip_bytes: 0,
            run: 1,
            norandommap: false,
            distribution: Distribution::Uniform,
            rate: Rates::default(),
            interval: None,
            steady_state: None,
            sms: None,
            percentiles: PERCENTILES.to_vec(),
            verify: false,
            seed: 1,
        }
    }

    /// Returns the number of commands to keep in flight, of all jobs together.
    pub fn in_flight(&self) -> u32 {
        self.iodepth.saturating_mul(self.numjobs).max(1)
    }

    /// Returns true if the job makes reads.
    pub fn reads(&self) -> bool {
        self.read_percent > 0
    }

    /// Returns true if the job makes writes.
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }

    /// Returns the mean size of a command.
    pub fn mean_bytes(&self) -> f64 {
        let (read, write) = self.sizes.means();
        (read * f64::from(self.read_percent) + write * f64::from(100 - self.read_percent)) / 100.0
    }

    /// Returns the bytes of the region that whole commands of the largest size have: one pass.
    pub fn pass_bytes(&self) -> u64 {
        self.size_bytes - self.size_bytes % self.most_bytes().max(1)
    }

    /// Returns the bytes of the largest command.
    pub fn most_bytes(&self) -> u64 {
        self.sizes.most(self.reads(), self.writes())
    }
}

impl NvmeJob {
    /// Returns the parameters that differ from the defaults, as options without their dashes, with their values.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let (bs, sizes) = self.sizes.setting();
        let mut all = vec![("rw", self.rw.to_string())];
        let mut add = |differs: bool, name, value: String| {
            if differs {
                all.push((name, value));
            }
        };
        add(self.reads() && self.writes(), "rwmixread", self.read_percent.to_string());
        add(true, bs, sizes);
        add(true, "iodepth", self.iodepth.to_string());
        add(self.numjobs > 1, "numjobs", self.numjobs.to_string());
        add(self.offset_bytes > 0, "offset", Bytes(self.offset_bytes).to_string());
        add(true, "size", Bytes(self.size_bytes).to_string());
        add(self.io_bytes.is_some(), "io-size", Bytes(self.io_bytes.unwrap_or(0)).to_string());
        add(self.runtime.is_some(), "runtime", format!("{:?}", self.runtime.unwrap_or_default()));
        add(!self.ramp.is_zero(), "ramp-time", format!("{:?}", self.ramp));
        add(self.skip_bytes > 0, "skip", Bytes(self.skip_bytes).to_string());
        add(self.run > 1, "run", self.run.to_string());
        add(!self.distribution.is_uniform(), "random-distribution", self.distribution.to_string());
        let draws = self.rw.is_random() && self.norandommap && self.distribution.is_uniform();
        add(draws, "norandommap", "on".to_owned());
        add(!self.rate.is_none(), "rate", self.rate.to_string());
        add(self.steady_state.is_some(), "steady-state", self.steady_state.map_or_else(String::new, |s| s.to_string()));
        add(true, "verify", if self.verify { "on" } else { "off" }.to_owned());
        all
    }
}

/// Limits of the bytes per second of reads and of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rates {
    /// Bytes per second of reads.
    #[serde(rename = "read_bytes_per_s", skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// Bytes per second of writes.
    #[serde(rename = "write_bytes_per_s", skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
}

impl Rates {
    /// Returns true if nothing is limited.
    pub fn is_none(&self) -> bool {
        self.read.is_none() && self.write.is_none()
    }
}

impl FromStr for Rates {
    type Err = String;

    /// Reads `1G` for both directions each, or `1G/`, `/1G`, `1G/2G` for reads and writes.
    fn from_str(text: &str) -> Result<Self, String> {
        let rate = |text: &str| -> Result<Option<u64>, String> {
            if text.is_empty() {
                return Ok(None);
            }
            match text.parse::<Bytes>() {
                Ok(Bytes(0)) => Err("a rate of 0 moves nothing: give bytes per second, as in 500M".to_owned()),
                Ok(Bytes(n)) => Ok(Some(n)),
                Err(e) => Err(e.to_string()),
            }
        };
        match text.split_once('/') {
            Some((read, write)) => Ok(Self { read: rate(read)?, write: rate(write)? }),
            None => rate(text).map(|both| Self { read: both, write: both }),
        }
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |rate: Option<u64>| rate.map_or_else(|| "any".to_owned(), |n| format!("{}/s", Bytes(n)));
        match self.read == self.write {
            true => f.write_str(&of(self.read)),
            false => write!(f, "{} of reads, {} of writes", of(self.read), of(self.write)),
        }
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

pub(in crate::workloads) fn as_nanoseconds<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(nanoseconds(*d))
}

pub(super) fn as_nanoseconds_if<S: Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(d.map_or(0, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_both_directions_or_of_each() {
        let of = |text: &str| text.parse::<Rates>().map(|r| (r.read, r.write));
        assert_eq!(of("1M"), Ok((Some(1 << 20), Some(1 << 20))));
        assert_eq!(of("1k/"), Ok((Some(1024), None)));
        assert_eq!(of("/2k"), Ok((None, Some(2048))));
        assert_eq!(of("1k/2k"), Ok((Some(1024), Some(2048))));
        assert!(of("0").unwrap_err().contains("moves nothing"));
        assert!(of("fast").unwrap_err().contains("not a size"));
    }

    #[test]
    fn patterns_have_fio_s_names() {
        let names: Vec<String> = Pattern::value_variants().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["read", "write", "rw", "randread", "randwrite", "randrw"]);
        for pattern in Pattern::value_variants() {
            let name = pattern.to_string();
            assert_eq!(Pattern::from_str(&name, false).as_ref(), Ok(pattern));
            assert_eq!(serde_json::to_value(pattern).unwrap(), name);
        }
        assert_eq!(<Pattern as ValueEnum>::from_str("readwrite", false), Ok(Pattern::Mixed));
        assert_eq!([Pattern::Read, Pattern::Randwrite, Pattern::Mixed].map(|p| p.read_percent(30)), [100, 0, 30]);
    }
}
