//! Options of `warpbell chart`.

use super::OutputFile;
use clap::{Args, ValueEnum};
use std::ffi::OsString;

#[derive(Args, Clone, Debug)]
pub struct ChartArgs {
    /// Reports of one command, of which each gets its own lines
    #[arg(value_name = "REPORT", required = true)]
    pub reports: Vec<OsString>,
    /// Write the chart as SVG to this file, or to standard output with -
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub output: OutputFile,
    /// Kind of chart; auto takes the first that the reports have
    #[arg(long, value_enum, value_name = "KIND", default_value_t = ChartKind::Auto)]
    pub kind: ChartKind,
}

/// Kind of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ChartKind {
    /// Rates and latencies over a swept setting
    Sweep,
    /// Rates and latencies over time
    Time,
    /// Latencies by percentile
    Latency,
    /// The first of these that the reports have
    #[default]
    Auto,
}
