//! Runs `warpbell accept`: proves the hardware paths of this machine, one variable at a time, from the safest to the
//! fastest.
//!
//! Each step runs commands of this program as processes, so each can be repeated by hand, and none takes the run down.

mod acceptance;
mod binding;
mod engine;
mod machine;
pub mod notes;
mod nvme;
mod probe;
mod rdma;
mod runner;
mod step;
#[cfg(test)]
mod tests;

use crate::args::{EngineArgs, ReportArgs};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text, say};
use acceptance::Acceptance;
use clap::{Args, Subcommand};
use engine::EngineReport;
use probe::ProbeCommand;
use runner::{Processes, Stop};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use step::{Procedure, Step};
use warpbell::units::{Bytes, parse_duration};

/// Help of `--engine`: steps choose among the engines that the option allows.
const ENGINE: &str = "Engine of the steps that do not name one: auto takes a working GPU if there is one; cpu leaves the steps \
                      of a GPU out; gpu requires one, and gpu:N names it";

#[derive(Debug, Subcommand)]
pub enum AcceptCommand {
    /// Prove the paths to an NVMe controller: bind it, read and write from the CPU, then from a GPU, faster path by
    /// faster path; contents are verified at each step
    #[command(
        after_help = "Examples:\n  warpbell accept nvme 0000:65:00.0 --json report.json\n  warpbell accept nvme soft:mem --engine cpu --until cpu\n  warpbell accept nvme --list",
        mut_arg("engine", |arg| arg.help(ENGINE))
    )]
    Nvme(Box<NvmeArgs>),
    /// Prove the paths to an RDMA device: verbs, then mlx5's queues and doorbells, faster path by faster path; contents
    /// are verified at each step
    #[command(
        after_help = "Examples:\n  warpbell accept rdma --device mlx5_0 --json report.json\n  warpbell accept rdma --serve          (on the peer)\n  warpbell accept rdma --peer node2     (beside it)",
        mut_arg("engine", |arg| arg.help(ENGINE))
    )]
    Rdma(Box<RdmaArgs>),
    /// Parts of steps that no other command does; steps start them.
    #[command(subcommand, hide = true)]
    Probe(ProbeCommand),
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Run")]
pub struct RunArgs {
    /// Duration of the last step, a verified load on the fastest path that passed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub soak: Duration,
    /// Duration of each measured load of the other steps
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub runtime: Duration,
    /// Print the names of all steps and what each proves, and do nothing
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    pub report: ReportArgs,
    /// Examine a fixture instead of this machine: a tree with sys, proc and dev below this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub root: Option<PathBuf>,
    /// Inject a fault into one step: `STEP=OPTIONS`, options of the software device.
    #[arg(long, value_name = "STEP=OPTIONS", hide = true)]
    pub fault: Option<String>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Args, Clone, Debug)]
pub struct NvmeArgs {
    /// PCI address, nvmeN or serial number of a controller of this machine; or soft:FILE, soft:mem or qtest:FILE, with
    /// options after commas (docs/devices.md)
    #[arg(value_name = "DEVICE", required_unless_present = "list")]
    pub device: Option<OsString>,
    /// Allow overwriting the data of this device (name it again here); without it, a device that holds data is only read
    #[arg(long, value_name = "DEVICE")]
    pub yes_destroy: Vec<OsString>,
    /// Allow a controller without an IOMMU: it can write to any memory of this machine
    #[arg(long)]
    pub unsafe_no_iommu: bool,
    /// Bytes at the start of the device that are written and read
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub size: Bytes,
    /// Last step to run (exit code 1 if it is left out)
    #[arg(long, value_name = "STEP", value_parser = names(nvme::STEPS))]
    pub until: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Clone, Debug)]
pub struct RdmaArgs {
    /// RDMA device, as in mlx5_0 or mlx5_0:1 with its port; or soft, with options of the software NIC after a colon
    /// [default: the one nearest to the GPU]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Also run between two hosts: the host where the same command runs with --serve (needs WARPBELL_SECRET)
    #[arg(long, value_name = "HOST", conflicts_with = "serve")]
    pub peer: Option<String>,
    /// Be the peer of another host's run: serve its step `hosts`
    #[arg(long)]
    pub serve: bool,
    /// TCP port where the two hosts meet
    #[arg(long, value_name = "PORT", default_value_t = 18_515)]
    pub port: u16,
    /// Largest message, in bytes; all powers of two from 2 on are sent
    #[arg(long, value_name = "SIZE", default_value = "8M")]
    pub max_size: Bytes,
    /// Time without an operation on each path, in which no queue pair may count as failed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub idle: Duration,
    /// Last step to run (exit code 1 if it is left out)
    #[arg(long, value_name = "STEP", value_parser = names(rdma::STEPS))]
    pub until: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

fn names(steps: &'static [Step]) -> clap::builder::PossibleValuesParser {
    steps.iter().map(|s| s.name).collect::<Vec<_>>().into()
}

/// Runs one acceptance run, or a part of one. `words` is the number of words of the command line.
///
/// # Errors
/// * [`Failure::Usage`] if an option has an invalid value.
/// * [`Failure::Error`] if a step fails, what was changed cannot be restored, or the report cannot be written.
/// * [`Failure::Status`] if the run was interrupted, or `timeout` was over.
/// * [`Failure::BrokenPipe`] if standard output was closed.
pub fn run(
    command: AcceptCommand,
    words: usize,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    match command {
        AcceptCommand::Probe(command) => {
            if let Some(timeout) = timeout {
                interrupt.expires_after(timeout)?;
            }
            probe::run(command, interrupt)
        }
        AcceptCommand::Nvme(args) => {
            if args.run.list {
                return list(nvme::STEPS);
            }
            let mut procedure = nvme::Storage::new(&args)?;
            accept("accept nvme", &mut procedure, &args.run, args.until, words, timeout, interrupt)
        }
        AcceptCommand::Rdma(args) => {
            if args.run.list {
                return list(rdma::STEPS);
            }
            let mut procedure = rdma::Network::new(&args)?;
            accept("accept rdma", &mut procedure, &args.run, args.until, words, timeout, interrupt)
        }
    }
}

fn list(steps: &[Step]) -> Result<(), Failure> {
    steps.iter().try_for_each(|s| say!("{:14}{}", s.name, s.proves))
}

fn accept(
    command: &'static str,
    procedure: &mut dyn Procedure,
    args: &RunArgs,
    until: Option<String>,
    words: usize,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let text = Text::beside(&args.report)?;
    let stop = Stop::after(timeout);
    let noted = stop.clone();
    // The commands are process groups of their own: only this process gets a terminal's Ctrl-C.
    let _passed_on = interrupt.is_passed_on(move |signal| noted.note(signal));
    let mut runner = Processes::new(words, stop.clone())?;
    text.line(format_args!("# warpbell {}  {command}  engine {}", env!("CARGO_PKG_VERSION"), args.engine.engine))?;
    let engine = EngineReport::of(&args.engine);
    let (report, printed) = Acceptance::new(procedure, &mut runner, &text, until, stop.clone()).run(engine);
    if let Some(to) = &args.report.json {
        output::write_json(command, &report, to)?;
    }
    report.outcome(&stop)?;
    printed
}
