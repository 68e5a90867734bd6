//! Arguments of `warpbell bench nvme`: fio's words, with fio's meaning.

use super::{DeviceArg, DeviceArgs, EngineArgs, OutputFile, RowsArgs};
use crate::workloads::nvme::distribution::Distribution;
use crate::workloads::nvme::sizes::Sizes;
use crate::workloads::nvme::steady::Criterion;
use crate::workloads::nvme::{Pattern, Rates};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use warpbell::storage::DriveSpec;
use warpbell::units::{Bytes, BytesOrShare, parse_duration};

#[derive(Args, Clone, Debug)]
pub struct NvmeArgs {
    /// Measure the jobs of this fio job file, those between two stonewalls at the same time (docs/fio-jobs.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rw", "bs", "bssplit", "iodepth", "numjobs", "sms", "runtime", "ramp_time", "size", "offset", "io_size", "rwmixread", "rate", "norandommap", "random_distribution", "time_series", "steady_state", "percentile_list", "verify", "seed", "compare", "filename"])]
    pub job: Option<PathBuf>,
    /// Measure only this section of the job file; again for more
    #[arg(long, value_name = "NAME", requires = "job")]
    pub section: Vec<String>,
    /// Access pattern; several with commas, as for every option that says LIST, are measured one after another
    #[arg(
        long,
        alias = "readwrite",
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "randread"
    )]
    pub rw: Vec<Pattern>,
    /// Bytes in each command
    #[arg(long, alias = "blocksize", value_name = "LIST", value_delimiter = ',', default_value = "4k")]
    pub bs: Vec<Bytes>,
    /// Sizes of the commands with their percentages, as in 4k/60:64k/40; for reads and writes with a comma between
    #[arg(long, value_name = "SIZES", conflicts_with = "bs")]
    pub bssplit: Option<Sizes>,
    /// Number of commands in flight, for each of the jobs
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "32", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub iodepth: Vec<u32>,
    /// Equal jobs at the same time: they share addresses and the amount of work, so that 4 jobs of depth 8 are as one of
    /// depth 32
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub numjobs: Vec<u32>,
    /// Multiprocessors of the GPU to use; a kernel that computes occupies the others, and the report says how much of it
    /// is left [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub sms: Vec<u32>,
    /// Duration of the measurement; 0 to end when --io-size (or once --size) is done
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub runtime: Runtime,
    /// Time before the measurement in which commands are made and not counted
    #[arg(long, alias = "ramp_time", value_name = "TIME", value_parser = parse_duration)]
    pub ramp_time: Option<Duration>,
    /// Size of the region to access, in bytes or as a share of the device [default: all of the device]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub size: Vec<BytesOrShare>,
    /// Start of the region, in bytes or as a share of the device
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub offset: Vec<BytesOrShare>,
    /// Bytes to move at most, in all
    #[arg(long, alias = "io_size", value_name = "LIST", value_delimiter = ',')]
    pub io_size: Vec<Bytes>,
    /// Percentage of reads in rw and randrw
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "50", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub rwmixread: Vec<u32>,
    /// Limit of bytes per second, of reads and writes each, or READS/WRITES
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub rate: Vec<Rates>,
    /// Draw each random address independently, instead of each place once before one comes again
    #[arg(long)]
    pub norandommap: bool,
    /// Distribution of random addresses: random, zipf:THETA, pareto:H, zoned:COMMANDS/AREA:... in percent
    #[arg(long, alias = "random_distribution", value_name = "LIST", value_delimiter = ',', default_value = "random")]
    pub random_distribution: Vec<Distribution>,
    /// Record rates and latency of each interval in the report
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub time_series: Option<Duration>,
    /// End when the rate is steady: iops:5%, bw:100M (largest distance from the mean), iops_slope:0.5%, bw_slope:1M
    #[arg(long, aliases = ["steadystate", "ss"], value_name = "CRITERION")]
    pub steady_state: Option<Criterion>,
    /// Time for which the rate has to be steady
    #[arg(long, aliases = ["steadystate_duration", "ss_dur"], value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub steady_state_duration: Duration,
    /// Percentiles of the latency to report [default: fio's, from 1 to 99.99]
    #[arg(long, alias = "percentile_list", value_name = "LIST", value_parser = parse_percentile, value_delimiter = ',')]
    pub percentile_list: Vec<f64>,
    /// Fill the device with a pattern first, and check every block that is read
    #[arg(long)]
    pub verify: bool,
    /// Seed of the random addresses
    #[arg(long, alias = "randseed", value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of measurements; the median is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Measure another library beside, on the same file with the same commands; the device is a soft:FILE
    #[arg(long, value_enum, value_name = "LIBRARY", conflicts_with_all = ["bssplit", "numjobs", "ramp_time", "offset", "io_size", "rate", "random_distribution", "time_series", "steady_state"])]
    pub compare: Option<Compared>,
    /// Threads that call cuFileRead or cuFileWrite [default: one for each command in flight, at most 128]
    #[arg(long, value_name = "N", requires = "compare", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub compare_threads: Option<u32>,
    /// Measure another program in turn (A B A B, --runs times): a command of the shell that prints its report, as in
    /// 'fio job.fio --output-format=json'
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["job", "compare"])]
    pub beside: Option<String>,
    /// Draw the figures as SVG to this file
    #[arg(long, value_name = "FILE")]
    pub chart: Option<OutputFile>,
    /// File to measure, as fio names it: --device soft:FILE
    #[arg(long, value_name = "FILE", conflicts_with = "devices", value_parser = file_parser())]
    pub filename: Option<DeviceArg>,
    /// Format of the report that --json writes
    #[arg(
        long,
        alias = "output_format",
        value_enum,
        value_name = "FORMAT",
        default_value = "warpbell",
        requires = "json"
    )]
    pub output_format: ReportFormat,
    #[command(flatten)]
    pub output: RowsArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Library to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compared {
    /// NVIDIA's libcufile (GPUDirect Storage): threads, batches and streams
    Cufile,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// This program's report (docs/schemas)
    Warpbell,
    /// fio's, for programs that read `fio --output-format=json`
    FioJson,
}

/// Duration of a measurement; `None` if the amount of work ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime(pub Option<Duration>);

impl FromStr for Runtime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<f64>() {
            Ok(0.0) => Ok(Self(None)),
            _ => parse_duration(text).map(|d| Self(Some(d))).map_err(|e| e.to_string()),
        }
    }
}

fn parse_percentile(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if p > 0.0 && p <= 100.0 => Ok(p),
        _ => Err("write a percentile above 0, at most 100, as in 50,99,99.9".to_owned()),
    }
}

/// Returns the parser of a file that is measured as a software device.
fn file_parser() -> impl TypedValueParser<Value = DeviceArg> {
    OsStringValueParser::new().try_map(|path| -> Result<DeviceArg, String> {
        let mut text = OsString::from("soft:");
        text.push(&path);
        DriveSpec::named(&text).map(DeviceArg::from).map_err(|e| e.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchCommand, Cli, Command};
    use clap::Parser;

    fn parse(args: &[&str]) -> Result<NvmeArgs, String> {
        match Cli::try_parse_from(["warpbell", "bench", "nvme"].iter().chain(args)) {
            Ok(Cli { command: Command::Bench(BenchCommand::Nvme(args)), .. }) => Ok(*args),
            Ok(other) => panic!("{other:?}"),
            Err(e) => Err(e.to_string()),
        }
    }

    #[test]
    fn fio_s_spellings_are_the_same_options() {
        let fio =
            ["--readwrite=rw", "--blocksize=8k", "--runtime=0", "--ramp_time=2", "--io_size=1m", "--filename=x.img"];
        let own = [
            "--rw",
            "rw",
            "--bs",
            "8k",
            "--runtime",
            "0s",
            "--ramp-time",
            "2s",
            "--io-size",
            "1M",
            "--device",
            "soft:x.img",
        ];
        let (fio, own) = (parse(&fio).unwrap(), parse(&own).unwrap());
        assert_eq!((fio.rw, fio.bs, fio.runtime, fio.ramp_time), (own.rw, own.bs, own.runtime, own.ramp_time));
        assert_eq!(fio.io_size, own.io_size);
        let spec = |device: &DeviceArg| device.spec().unwrap().to_string();
        assert_eq!(spec(&fio.filename.unwrap()), spec(&own.device.devices[0]));
    }

    #[test]
    fn lists_have_commas() {
        let args =
            parse(&["--bs", "512,4k", "--iodepth", "1,32", "--rw", "randread,randrw", "--rate", "1G/2G,3G"]).unwrap();
        assert_eq!((args.bs, args.iodepth), (vec![Bytes(512), Bytes(4096)], vec![1, 32]));
        assert_eq!((args.rw.len(), args.rate.len()), (2, 2));
        let split = parse(&["--bssplit", "4k/50:8k/50,16k/100"]).unwrap();
        assert_eq!(split.bssplit.unwrap().setting().1, "4k/50:8k/50 of reads, 16k/100 of writes");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (args, told) in [
            (&["--bs", "4k", "--bssplit", "4k"][..], "cannot be used with"),
            (&["--filename", "x", "--device", "soft:y"], "cannot be used with"),
            (&["--output-format", "fio-json"], "--json"),
            (&["--percentile-list", "0"], "above 0, at most 100"),
            (&["--compare", "cufile", "--rate", "1M"], "cannot be used with"),
            (&["--runtime=-1"], "not a time"),
        ] {
            let text = parse(args).unwrap_err();
            assert!(text.contains(told), "{args:?}: {text}");
        }
    }
}
