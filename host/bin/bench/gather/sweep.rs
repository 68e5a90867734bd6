//! Points of a sweep of `bench gather`: each combination of the values that options list.

use crate::args::GatherArgs;
use crate::bench::sweep::{Dimension, Lists, latency_cells, latency_head};
use crate::output::Failure;
use crate::workloads::gather::GatherRun;
use std::fmt;
use warpbell::units::{Bytes, BytesOrShare, decimal_rate, si};

/// Characters of a column of latencies: a batch may take seconds.
const LATENCY: usize = 8;

/// Value of one option at one point.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Rows(u64),
    RowSize(Bytes),
    Batch(u32),
    Hot(BytesOrShare),
    HostCache(BytesOrShare),
    Cache(BytesOrShare),
    Warps(u32),
    InFlight(u32),
    Iodepth(u32),
    Sms(u32),
}

impl Value {
    /// Returns the name of the option.
    fn option(self) -> &'static str {
        match self {
            Self::Rows(_) => "rows",
            Self::RowSize(_) => "row-size",
            Self::Batch(_) => "batch",
            Self::Hot(_) => "hot",
            Self::HostCache(_) => "host-cache",
            Self::Cache(_) => "cache",
            Self::Warps(_) => "warps",
            Self::InFlight(_) => "in-flight",
            Self::Iodepth(_) => "iodepth",
            Self::Sms(_) => "sms",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(v) => v.fmt(f),
            Self::RowSize(v) => v.fmt(f),
            Self::Batch(v) | Self::Warps(v) | Self::InFlight(v) | Self::Iodepth(v) | Self::Sms(v) => v.fmt(f),
            Self::Hot(v) | Self::HostCache(v) | Self::Cache(v) => v.fmt(f),
        }
    }
}

/// Values of the options at one point. Absent are those at their defaults.
#[derive(Clone, Debug, Default)]
pub struct Point {
    pub rows: Option<u64>,
    pub row_bytes: Option<u64>,
    pub batch: Option<u32>,
    pub hot: Option<BytesOrShare>,
    pub host_cache: Option<BytesOrShare>,
    pub cache: Option<BytesOrShare>,
    pub warps: Option<u32>,
    pub in_flight: Option<u32>,
    pub iodepth: Option<u32>,
    pub sms: Option<u32>,
    /// Names of the options with their values in words.
    words: Vec<(&'static str, String)>,
}

impl Point {
    fn of(values: &[&Value]) -> Self {
        let words = values.iter().map(|value| (value.option(), value.to_string())).collect();
        let mut point = Self { words, ..Self::default() };
        for value in values {
            match **value {
                Value::Rows(n) => point.rows = Some(n),
                Value::RowSize(bytes) => point.row_bytes = Some(bytes.0),
                Value::Batch(n) => point.batch = Some(n),
                Value::Hot(part) => point.hot = Some(part),
                Value::HostCache(part) => point.host_cache = Some(part),
                Value::Cache(part) => point.cache = Some(part),
                Value::Warps(n) => point.warps = Some(n),
                Value::InFlight(n) => point.in_flight = Some(n),
                Value::Iodepth(n) => point.iodepth = Some(n),
                Value::Sms(n) => point.sms = Some(n),
            }
        }
        point
    }

    /// Returns the value of an option in words. Empty for one at its default.
    pub fn word(&self, option: &str) -> String {
        self.words.iter().find(|(name, _)| *name == option).map_or_else(String::new, |(_, word)| word.clone())
    }
}

/// All options that take lists. Those that make another table change last.
pub struct Sweep {
    lists: Lists<Value>,
}

impl Sweep {
    /// Reads the lists of the arguments.
    pub fn of(args: &GatherArgs) -> Self {
        let lists = Lists::new(vec![
            Dimension::new("rows", &args.rows, Value::Rows),
            Dimension::new("row-size", &args.row_size, Value::RowSize),
            Dimension::new("batch", &args.batch, Value::Batch),
            Dimension::new("hot", &args.hot, Value::Hot),
            Dimension::new("host-cache", &args.host_cache, Value::HostCache),
            Dimension::new("cache", &args.cache, Value::Cache),
            Dimension::new("warps", &args.warps, Value::Warps),
            Dimension::new("in-flight", &args.in_flight, Value::InFlight),
            Dimension::new("iodepth", &args.iodepth, Value::Iodepth),
            Dimension::new("sms", &args.sms, Value::Sms),
        ]);
        Self { lists }
    }

    /// Returns the lists alone.
    pub fn lists(&self) -> &Lists<Value> {
        &self.lists
    }

    /// Returns all points.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there are too many points.
    pub fn points(&self) -> Result<Vec<Point>, Failure> {
        Ok(self.lists.points()?.iter().map(|values| Point::of(values)).collect())
    }

    /// Returns the names of the table's columns.
    pub fn head(&self) -> String {
        let left = if self.lists.swept().contains(&"sms") { "  compute" } else { "" };
        format!("# {}{:>7}{:>10}{}{left}", self.lists.head(), "rows/s", "bandwidth", latency_head(LATENCY))
    }

    /// Returns the table's line of a point, with the figures of its run in the middle.
    pub fn line(&self, point: &Point, run: &GatherRun) -> String {
        // The share of a computing kernel that is left.
        let left =
            run.gpu.and_then(|gpu| gpu.compute_left).map_or_else(String::new, |l| format!("{:>7.1} %", l * 100.0));
        format!(
            "  {}{:>7}{:>10}{}{left}",
            self.lists.cells(|option| point.word(option)),
            si(run.rows_per_s),
            decimal_rate(run.bytes_per_s),
            latency_cells(Some(&run.latency), LATENCY)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchCommand, Cli, Command};
    use clap::Parser;

    fn sweep(args: &[&str]) -> Sweep {
        match Cli::try_parse_from(["warpbell", "bench", "gather"].iter().chain(args)).unwrap().command {
            Command::Bench(BenchCommand::Gather(args)) => Sweep::of(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_number_that_is_a_setting_takes_a_list() {
        let all = sweep(&[
            "--rows=1,2",
            "--row-size=64,4k",
            "--batch=1,2",
            "--hot=1k,5%",
            "--host-cache=1k,5%",
            "--cache=0,5%",
            "--warps=1,2",
            "--in-flight=1,8",
            "--iodepth=1,2",
            "--sms=1,2",
        ]);
        assert_eq!(
            all.lists().swept(),
            ["rows", "row-size", "batch", "hot", "host-cache", "cache", "warps", "in-flight", "iodepth", "sms"]
        );
        let points = all.points().unwrap();
        let (first, last) = (&points[0], &points[1023]);
        assert_eq!((points.len(), first.rows, first.iodepth), (1024, Some(1), Some(1)));
        assert_eq!((last.row_bytes, last.in_flight, last.warps), (Some(4096), Some(8), Some(2)));
        assert_eq!((last.word("cache"), last.word("row-size")), ("5 %".to_owned(), "4 KiB".to_owned()));
    }

    #[test]
    fn one_value_is_one_point_and_no_column() {
        let one = sweep(&["--batch", "7"]);
        let points = one.points().unwrap();
        assert_eq!((points.len(), points[0].batch, points[0].in_flight), (1, Some(7), Some(1)));
        assert!(!one.lists().is_swept() && one.lists().is_one_point_for("--overlap").is_ok());
        assert_eq!((points[0].row_bytes, points[0].word("row-size")), (None, String::new()));
        assert_eq!(one.head().trim_start_matches("# ").split_whitespace().next(), Some("rows/s"));
    }
}
