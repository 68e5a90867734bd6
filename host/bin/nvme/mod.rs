//! Runs `warpbell nvme`: commands for controllers, with nvme-cli's names.

mod bind;
mod error_log;
mod format_check;
mod id;
mod inspect;
mod list;
mod remote;
mod serve;
mod smart;

use crate::args::{BenchCommand, DeviceArg, NvmeArgs};
use crate::interrupt::Interrupt;
use crate::output::Failure;
use crate::progress;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum NvmeCommand {
    /// Take a controller from the kernel and give it to vfio-pci, so that warpbell can drive it
    #[command(after_help = "Example:\n  warpbell nvme bind 0000:01:00.0")]
    Bind(bind::BindArgs),
    /// Give a controller back to the kernel's driver
    Unbind(bind::UnbindArgs),
    /// List the controllers of this machine: drivers, models, namespaces
    #[command(after_help = "Example:\n  warpbell nvme list")]
    List(list::ListArgs),
    /// Print the Identify data of a controller and its namespaces
    #[command(visible_alias = "id-ctrl")]
    Id(inspect::InspectArgs),
    /// Print the SMART / health log of a controller
    #[command(visible_alias = "smart-log")]
    Smart(inspect::InspectArgs),
    /// Print the error log of a controller, newest entry first
    ErrorLog(inspect::InspectArgs),
    /// Show which namespaces are usable, why others are not, and the format command that helps (exit code 1: none is
    /// usable)
    FormatCheck(inspect::InspectArgs),
    /// List the subsystems of another machine that its discovery controller reports
    #[command(
        after_help = "Examples:\n  warpbell nvme discover 10.0.0.2\n  warpbell nvme discover 10.0.0.2 --transport rdma"
    )]
    Discover(remote::DiscoverArgs),
    /// Connect to a subsystem of another machine, print its limits, and disconnect; read and write no block
    #[command(after_help = "Example:\n  warpbell nvme connect-check nvmf:tcp://10.0.0.2/nqn.2026-01.org.example:data")]
    ConnectCheck(remote::ConnectCheckArgs),
    /// Export a device to other machines by NVMe over TCP until the program is interrupted
    #[command(after_help = "Example:\n  warpbell nvme serve soft:edges.img --listen 127.0.0.1:4420")]
    Serve(serve::ServeArgs),
    /// Measure a device: bench nvme --device DEVICE
    #[command(after_help = "Example:\n  warpbell nvme bench soft:mem --iodepth 64")]
    Bench(Box<BenchArgs>),
}

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// nvme:ADDRESS, soft:FILE or qtest:FILE, with options after commas (docs/devices.md)
    #[arg(value_name = "DEVICE", value_parser = DeviceArg::parser())]
    pub name: DeviceArg,
    #[command(flatten)]
    pub bench: NvmeArgs,
}

/// Runs one command.
///
/// # Errors
/// [`Failure::Usage`] if options contradict each other, [`Failure::BrokenPipe`] if standard output was closed, and
/// [`Failure::Error`] if the command fails.
pub fn run(command: NvmeCommand, interrupt: &Interrupt) -> Result<(), Failure> {
    interrupt.doing("asking the controller");
    match command {
        NvmeCommand::Bind(args) => bind::bind(&args),
        NvmeCommand::Unbind(args) => bind::unbind(&args),
        NvmeCommand::List(args) => list::run(&args),
        NvmeCommand::Id(args) => id::run(&args),
        NvmeCommand::Smart(args) => smart::run(&args),
        NvmeCommand::ErrorLog(args) => error_log::run(&args),
        NvmeCommand::FormatCheck(args) => format_check::run(&args),
        NvmeCommand::Discover(args) => remote::discover(&args),
        NvmeCommand::ConnectCheck(args) => remote::connect_check(&args),
        NvmeCommand::Serve(args) => {
            progress::silence();
            serve::run(&args, interrupt)
        }
        NvmeCommand::Bench(args) => {
            let BenchArgs { name, mut bench } = *args;
            bench.device.devices.insert(0, name);
            crate::bench::run(BenchCommand::Nvme(Box::new(bench)), interrupt)
        }
    }
}
