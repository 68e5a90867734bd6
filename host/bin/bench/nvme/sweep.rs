//! Points of a sweep of `bench nvme`: each combination of the values that options list.

use super::Row;
use crate::args::NvmeArgs;
use crate::output::Failure;
use crate::workloads::fio::Direction;
use crate::workloads::histogram::PERCENTILES;
use crate::workloads::nvme::distribution::Distribution;
use crate::workloads::nvme::sizes::Sizes;
use crate::workloads::nvme::steady::SteadyState;
use crate::workloads::nvme::{NvmeJob, Pattern, Rates};
use warpbell::units::{Bytes, BytesOrShare, decimal_rate, si, three_digits};

/// Maximum number of points.
const MOST_POINTS: usize = 10_000;

/// Value of one option at one point.
#[derive(Clone, Debug)]
enum Value {
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

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Rw(v) => v.to_string(),
            Self::Mix(v) | Self::Iodepth(v) | Self::Numjobs(v) | Self::Sms(v) => v.to_string(),
            Self::Bytes(v) | Self::IoSize(v) => v.to_string(),
            Self::Rate(v) => v.to_string(),
            Self::Distribution(v) => v.to_string(),
            Self::Offset(v) | Self::Size(v) => v.to_string(),
        }
    }
}

/// An option with its values.
struct Dimension {
    name: &'static str,
    values: Vec<Value>,
}

/// All options that take lists. The last one changes first.
pub struct Sweep {
    dimensions: Vec<Dimension>,
    writes: bool,
    most_bytes: u64,
}

fn dimension<T: Clone>(name: &'static str, list: &[T], value: impl Fn(T) -> Value) -> Dimension {
    Dimension { name, values: list.iter().cloned().map(value).collect() }
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
            dimension("rw", &args.rw, Value::Rw),
            dimension("rwmixread", &args.rwmixread, Value::Mix),
            dimension("random-distribution", &args.random_distribution, Value::Distribution),
            dimension("rate", &args.rate, Value::Rate),
            dimension("offset", &args.offset, Value::Offset),
            dimension("size", &args.size, Value::Size),
            dimension("io-size", &args.io_size, Value::IoSize),
            dimension("bs", bs, Value::Bytes),
            dimension("numjobs", &args.numjobs, Value::Numjobs),
            dimension("iodepth", &args.iodepth, Value::Iodepth),
            dimension("sms", &args.sms, Value::Sms),
        ];
        let writes = mixes.into_iter().any(|percent| percent < 100);
        Self { dimensions: all.into_iter().filter(|d| !d.values.is_empty()).collect(), writes, most_bytes }
    }

    /// Returns true if any point writes.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Returns the bytes of the largest command of all points.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Returns the names of the options that have several values.
    pub fn swept(&self) -> Vec<&'static str> {
        self.dimensions.iter().filter(|d| d.values.len() > 1).map(|d| d.name).collect()
    }

    /// Returns true if there are several points.
    pub fn is_swept(&self) -> bool {
        !self.swept().is_empty()
    }

    /// Returns the jobs of all points on a device of `device_bytes` bytes.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there are too many points.
    pub fn jobs(&self, args: &NvmeArgs, device_bytes: u64) -> Result<Vec<NvmeJob>, Failure> {
        let points = self.dimensions.iter().try_fold(1usize, |n, d| n.checked_mul(d.values.len()));
        if points.is_none_or(|n| n > MOST_POINTS) {
            let lists: Vec<String> =
                self.dimensions.iter().map(|d| format!("{} of {}", d.values.len(), d.name)).collect();
            return Err(Failure::Usage(format!(
                "the lists have more than {MOST_POINTS} combinations ({}); give shorter ones",
                lists.join(", ")
            )));
        }
        let mut points: Vec<Vec<&Value>> = vec![Vec::new()];
        for Dimension { values, .. } in &self.dimensions {
            points = points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
        }
        Ok(points.iter().map(|point| job(args, point, device_bytes)).collect())
    }

    /// Returns the names of the table's columns.
    pub fn head(&self) -> String {
        let columns: String = self.columns().map(|(name, width)| format!("{name:<width$}")).collect();
        let (side, iops, bandwidth, mean) = ("", "IOPS", "bandwidth", "mean us");
        let left = if self.columns().any(|(name, _)| name == "sms") { "  compute" } else { "" };
        format!("# {columns}{side:<6}{iops:>7}{bandwidth:>10}{mean:>8}{:>7}{:>7}{:>7}{left}", "p50", "p99", "p99.9")
    }

    /// Returns the table's lines of one point: one for each direction.
    pub fn lines(&self, row: &Row) -> Vec<String> {
        let labels: String = self.columns().map(|(name, width)| format!("{:<width$}", label(name, &row.job))).collect();
        let median = row.median();
        // The share of a computing kernel that is left.
        let left =
            median.gpu.and_then(|gpu| gpu.compute_left).map_or_else(String::new, |l| format!("{:>7.1} %", l * 100.0));
        let line = |d: &Direction| {
            let l = d.latency.as_ref();
            let us = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| three_digits(ns / 1e3));
            let percentile =
                |p: f64| us(l.and_then(|l| l.percentiles_ns.iter().find(|(of, _)| *of == p)).map(|(_, ns)| *ns as f64));
            format!(
                "  {labels}{:<6}{:>7}{:>10}{:>8}{:>7}{:>7}{:>7}{left}",
                d.direction,
                si(d.iops),
                decimal_rate(d.bytes_per_s),
                us(l.map(|l| l.mean_ns)),
                percentile(50.0),
                percentile(99.0),
                percentile(99.9)
            )
        };
        [&median.read, &median.write].into_iter().flatten().map(line).collect()
    }

    /// Returns the columns of what is swept: name and width.
    fn columns(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let swept = self.dimensions.iter().filter(|d| d.values.len() > 1);
        swept.map(|d| (d.name, d.values.iter().map(|v| v.text().len()).max().unwrap_or(0).max(d.name.len()) + 2))
    }
}

/// Returns a point with one value more.
fn with<'v>(point: &[&'v Value], value: &'v Value) -> Vec<&'v Value> {
    [point, &[value]].concat()
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
