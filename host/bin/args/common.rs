//! Options that several commands have. (A doc comment on such a struct would become its command's help.)

use super::MAX_RANKS;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use warpbell::shmem::Transport;
use warpbell::suggest::hint;
use warpbell::units::{Bytes, parse_duration};

// Of commands that print lines in any case.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

// Of commands that print either lines or JSON.
#[derive(Args, Clone, Debug)]
pub struct JsonArgs {
    /// Write JSON instead, to standard output or to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

// Of what is measured by kernels, several times.
#[derive(Args, Clone, Debug)]
pub struct MeasureArgs {
    /// Times to measure; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// Where kernels run: auto takes a GPU if there is one that works; gpu:N names one
    #[arg(long, value_name = "auto|gpu|cpu", default_value = "auto")]
    pub engine: EngineChoice,
    /// CPU engine: threads [default: as many as the machine has cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
    /// Limit of one wait inside a kernel, and of one command of the host
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub deadline: Duration,
}

#[derive(Args, Clone, Debug)]
pub struct TransportArgs {
    /// How PEs reach each other: auto, peer (loads and stores), mlx5, verbs or soft (docs/shmem.md) [default: $WARPBELL_TRANSPORT, or auto]
    #[arg(long, value_name = "TRANSPORT")]
    pub transport: Option<Transport>,
}

#[derive(Args, Clone, Debug)]
pub struct WorldArgs {
    /// PEs, as threads of this program; under a launcher its ranks are the PEs [default: one for each GPU; 2 on cpu]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    pub pes: Option<u32>,
    #[command(flatten)]
    pub transport: TransportArgs,
}

// Of what goes through the page cache.
#[derive(Args, Clone, Debug)]
pub struct PageArgs {
    /// Cache page, 512 to 64k
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub page_size: Bytes,
}

/// Which engine was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    Auto,
    /// This GPU, or the first; the PEs of a world are dealt out over all GPUs unless one is named.
    Gpu(Option<usize>),
    Cpu,
}

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Self::Auto),
            "gpu" => Ok(Self::Gpu(None)),
            "cpu" => Ok(Self::Cpu),
            _ => s
                .strip_prefix("gpu:")
                .and_then(|n| n.parse().ok())
                .map(|n| Self::Gpu(Some(n)))
                .ok_or_else(|| format!("write auto, gpu, gpu:N or cpu{}", hint(s, ["auto", "gpu", "cpu"]))),
        }
    }
}
