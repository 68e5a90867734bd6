//! Options that several commands share.
//!
//! The structs have no doc comments: clap would show such a comment as the help of every command that has the options.

use super::MAX_RANKS;
use crate::output::{Failure, with_remedy};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use warpbell::shmem::Transport;
use warpbell::storage::{Cache, DriveSpec};
use warpbell::suggest::hint;
use warpbell::units::{Bytes, parse_duration};

/// File that an option makes a command write, or `-` for standard output. Every such option has this type, by which
/// `host/bin/command_line.rs` finds it: no output then destroys what the command reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile(PathBuf);

impl From<OsString> for OutputFile {
    fn from(path: OsString) -> Self {
        Self(path.into())
    }
}

impl Deref for OutputFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

/// Device that a command uses: its specification, which is parsed with the command line, or the error of it, which the
/// command reports.
#[derive(Clone, Debug)]
pub struct DeviceArg(Result<DriveSpec, String>);

impl DeviceArg {
    /// Returns the parser of an argument that names a device. It accepts every text.
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().map(|text| Self(DriveSpec::named(&text).map_err(|e| with_remedy(&e))))
    }

    /// Returns the specification.
    ///
    /// # Errors
    /// [`Failure::Error`] if it is invalid.
    pub fn spec(&self) -> Result<&DriveSpec, Failure> {
        self.0.as_ref().map_err(|e| Failure::Error(e.clone()))
    }
}

impl From<DriveSpec> for DeviceArg {
    fn from(spec: DriveSpec) -> Self {
        Self(Ok(spec))
    }
}

// For commands that always print text.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<OutputFile>,
}

// For commands whose results are rows.
#[derive(Args, Clone, Debug)]
pub struct RowsArgs {
    /// Write a line for each row of the results, with commas, to this file or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub csv: Option<OutputFile>,
    #[command(flatten)]
    pub report: ReportArgs,
}

// For commands that print either text or JSON.
#[derive(Args, Clone, Debug)]
pub struct JsonArgs {
    /// Write JSON instead, to standard output or to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OutputFile>,
}

// For measurements that kernels make several times.
#[derive(Args, Clone, Debug)]
pub struct MeasureArgs {
    /// Number of measurements; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    #[command(flatten)]
    pub output: RowsArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Value of `--deadline`, if the option is absent.
pub const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Engine that runs the kernels: auto takes a working GPU if there is one; gpu:N names one
    #[arg(long, value_name = "auto|gpu|cpu", default_value = "auto")]
    pub engine: EngineChoice,
    /// CPU engine: number of threads [default: as many as the machine has cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
    /// Time limit of one wait inside a kernel, and of one command of the host
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub deadline: Duration,
}

// For commands that use devices and start no kernels.
#[derive(Args, Clone, Debug)]
pub struct DeadlineArgs {
    /// Time limit of one command of a device; failing commands may take two seconds more in all (docs/devices.md)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub deadline: Duration,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "World")]
pub struct TransportArgs {
    /// Transport between PEs: auto, peer (loads and stores), mlx5, verbs or soft (docs/shmem.md) [default:
    /// $WARPBELL_TRANSPORT, or auto]
    #[arg(long, value_name = "TRANSPORT")]
    pub transport: Option<Transport>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "World")]
pub struct WorldArgs {
    /// Number of PEs, threads of this program; under a launcher its ranks are the PEs [default: one for each GPU; 2 on
    /// cpu]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    pub pes: Option<u32>,
    #[command(flatten)]
    pub transport: TransportArgs,
}

// For commands that use the page cache.
#[derive(Args, Clone, Debug)]
pub struct PageArgs {
    /// Size of a cache page, 512 to 64k
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub page_size: Bytes,
}

impl PageArgs {
    /// Returns the bytes that a command of the cache's volume must be able to move.
    pub fn transfer(&self) -> Bytes {
        Bytes(self.page_size.0.max(Cache::COMMAND_BYTES as u64))
    }
}

/// Value of `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    Auto,
    /// This GPU, or the first. The PEs of a world are distributed over all GPUs unless one is named.
    Gpu(Option<usize>),
    Cpu,
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Gpu(None) => f.write_str("gpu"),
            Self::Gpu(Some(n)) => write!(f, "gpu:{n}"),
            Self::Cpu => f.write_str("cpu"),
        }
    }
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
