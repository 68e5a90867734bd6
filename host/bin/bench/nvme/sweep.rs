//! Points of a sweep of `bench nvme`: each combination of the values that options list.

use super::Row;
use crate::args::NvmeArgs;
use crate::bench::sweep::{Dimension, Lists, latency_cells, latency_head};
use crate::output::Failure;
use crate::workloads::fio::Direction;
use crate::workloads::histogram::PERCENTILES;
use crate::workloads::nvme::distribution::Distribution;
use crate::workloads::nvme::sizes::Sizes;
use crate::workloads::nvme::steady::SteadyState;
use crate::workloads::nvme::{NvmeJob, Pattern, Rates};
use std::fmt;
use warpbell::units::{Bytes, BytesOrShare, decimal_rate, si};

/// Characters of a column of latencies.
const LATENCY: usize = 7;

/// Value of one option at one point.
#[derive(Clone, Debug)]
pub enum Value {
    Rw(Pattern),
    Mix(u32),
    Bytes(Bytes),
    Iodepth(u32),
    Numjobs(u32),
    Rate(Rates),
    Distribution(Distribution),
    Offset(BytesOrShare),
    Size(BytesOrShare),
    IoSize(Bytes),
    Sms(u32),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rw(v) => v.fmt(f),
            Self::Mix(v) | Self::Iodepth(v) | Self::Numjobs(v) | Self::Sms(v) => v.fmt(f),
            Self::Bytes(v) | Self::IoSize(v) => v.fmt(f),
            Self::Rate(v) => v.fmt(f),
            Self::Distribution(v) => v.fmt(f),
            Self::Offset(v) | Self::Size(v) => v.fmt(f),
        }
    }
}

/// All options that take lists.
pub struct Sweep {
    lists: Lists<Value>,
    writes: bool,
    most_bytes: u64,
}

impl Sweep {
    /// Reads the lists of the arguments.
    pub fn of(args: &NvmeArgs) -> Self {
        let mixes = args.rwmixread.iter().flat_map(|mix| args.rw.iter().map(|rw| rw.read_percent(*mix)));
        let most_bytes = match &args.bssplit {
            Some(sizes) => sizes.most(true, true),
            None => args.bs.iter().map(|b| b.0).max().unwrap_or(0),
        };
        let bs = if args.bssplit.is_some() { &[][..] } else { &args.bs };
        let all = vec![
            Dimension::new("rw", &args.rw, Value::Rw),
            Dimension::new("rwmixread", &args.rwmixread, Value::Mix),
            Dimension::new("random-distribution", &args.random_distribution, Value::Distribution),
            Dimension::new("rate", &args.rate, Value::Rate),
            Dimension::new("offset", &args.offset, Value::Offset),
            Dimension::new("size", &args.size, Value::Size),
            Dimension::new("io-size", &args.io_size, Value::IoSize),
            Dimension::new("bs", bs, Value::Bytes),
            Dimension::new("numjobs", &args.numjobs, Value::Numjobs),
            Dimension::new("iodepth", &args.iodepth, Value::Iodepth),
            Dimension::new("sms", &args.sms, Value::Sms),
        ];
        let writes = mixes.into_iter().any(|percent| percent < 100);
        Self { lists: Lists::new(all), writes, most_bytes }
    }

    /// Returns true if any point writes.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Returns the bytes of the largest command of all points.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Returns the lists alone.
    pub fn lists(&self) -> &Lists<Value> {
        &self.lists
    }

    /// Returns the jobs of all points on a device of `device_bytes` bytes.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there are too many points.
    pub fn jobs(&self, args: &NvmeArgs, device_bytes: u64) -> Result<Vec<NvmeJob>, Failure> {
        Ok(self.lists.points()?.iter().map(|point| job(args, point, device_bytes)).collect())
    }

    /// Returns the names of the table's columns.
    pub fn head(&self) -> String {
        let (swept, side, iops, bandwidth) = (self.lists.head(), "", "IOPS", "bandwidth");
        let left = if self.lists.swept().contains(&"sms") { "  compute" } else { "" };
        format!("# {swept}{side:<6}{iops:>7}{bandwidth:>10}{}{left}", latency_head(LATENCY))
    }

    /// Returns the table's lines of one point: one for each direction.
    pub fn lines(&self, row: &Row) -> Vec<String> {
        let swept = self.lists.cells(|name| label(name, &row.job));
        let median = row.median();
        // The share of a computing kernel that is left.
        let left =
            median.gpu.and_then(|gpu| gpu.compute_left).map_or_else(String::new, |l| format!("{:>7.1} %", l * 100.0));
        let line = |d: &Direction| {
            format!(
                "  {swept}{:<6}{:>7}{:>10}{}{left}",
                d.direction,
                si(d.iops),
                decimal_rate(d.bytes_per_s),
                latency_cells(d.latency.as_ref(), LATENCY)
            )
        };
        [&median.read, &median.write].into_iter().flatten().map(line).collect()
    }
}

/// Returns the text of an option's value in a job.
fn label(option: &str, job: &NvmeJob) -> String {
    match option {
        "rw" => job.rw.to_string(),
        "rwmixread" => job.read_percent.to_string(),
        "random-distribution" => job.distribution.to_string(),
        "rate" => job.rate.to_string(),
        "offset" => Bytes(job.offset_bytes).to_string(),
        "size" => Bytes(job.size_bytes).to_string(),
        "io-size" => job.io_bytes.map_or_else(String::new, |b| Bytes(b).to_string()),
        "bs" => Bytes(job.most_bytes()).to_string(),
        "numjobs" => job.numjobs.to_string(),
        "sms" => job.sms.map_or_else(String::new, |n| n.to_string()),
        _ => job.iodepth.to_string(),
    }
}

/// Returns the job of one point.
fn job(args: &NvmeArgs, point: &[&Value], device_bytes: u64) -> NvmeJob {
    let mut job = NvmeJob::new(Pattern::Randread, args.bssplit.clone().unwrap_or(Sizes::all(0)), device_bytes);
    let (mut mix, mut offset, mut size) = (50, None, None);
    for value in point {
        match value {
            Value::Rw(rw) => job.rw = *rw,
            Value::Mix(percent) => mix = *percent,
            Value::Bytes(b) => job.sizes = Sizes::all(b.0),
            Value::Iodepth(n) => job.iodepth = *n,
            Value::Numjobs(n) => job.numjobs = *n,
            Value::Rate(rates) => job.rate = *rates,
            Value::Distribution(d) => job.distribution = d.clone(),
            Value::Offset(b) => offset = Some(*b),
            Value::Size(b) => size = Some(*b),
            Value::IoSize(b) => job.io_bytes = Some(b.0),
            Value::Sms(n) => job.sms = Some(*n),
        }
    }
    job.read_percent = job.rw.read_percent(mix);
    job.offset_bytes = match offset {
        // A share begins at a place of a command.
        Some(share @ BytesOrShare::Share(_)) => share.of(device_bytes).next_multiple_of(job.most_bytes().max(1)),
        Some(BytesOrShare::Bytes(bytes)) => bytes.0,
        None => 0,
    };
    let rest = device_bytes.saturating_sub(job.offset_bytes);
    job.size_bytes = match size {
        Some(share @ BytesOrShare::Share(_)) => share.of(device_bytes).min(rest),
        Some(BytesOrShare::Bytes(bytes)) => bytes.0,
        None => rest,
    };
    job.runtime = args.runtime.0;
    if job.runtime.is_none() {
        job.io_bytes = job.io_bytes.or(Some(job.pass_bytes()));
    }
    job.ramp = args.ramp_time.unwrap_or_default();
    // Other programs draw their addresses independently.
    job.norandommap = args.norandommap || args.compare.is_some();
    job.interval = args.time_series;
    job.steady_state = args.steady_state.map(|criterion| SteadyState { criterion, window: args.steady_state_duration });
    job.percentiles = if args.percentile_list.is_empty() { PERCENTILES.to_vec() } else { args.percentile_list.clone() };
    job.verify = args.verify;
    job.seed = args.seed;
    job
}
