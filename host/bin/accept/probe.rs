//! Parts of steps that no other command does. Steps start them as processes.

mod reset;
mod world;

pub use world::BEGUN;

use crate::args::{DeviceArgs, EngineArgs, ReportArgs, WorldArgs};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure};
use crate::{device, engine};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::time::Duration;
use warpbell::storage::{Drive, OverwritePolicy, StorageError, Volume};
use warpbell::units::{Bytes, parse_duration};

#[derive(Debug, Subcommand)]
pub enum ProbeCommand {
    /// Tell if a device may be written to, without writing
    Contents(Box<DeviceProbeArgs>),
    /// Reset a controller under load, recover, and compare data
    Reset(Box<DeviceProbeArgs>),
    /// Build a world, let it rest, and look for failed connections
    Idle(WorldProbeArgs),
    /// Make calls between PEs until the time is over, or a PE is gone
    Exchange(WorldProbeArgs),
    /// Use a wrong key, see both PEs fail, and recover
    BadKey(WorldProbeArgs),
}

#[derive(Args, Clone, Debug)]
pub struct DeviceProbeArgs {
    /// Bytes that are written and read
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub size: Bytes,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args, Clone, Debug)]
pub struct WorldProbeArgs {
    /// Time without an operation, or of operations [default: none]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub rest: Option<Duration>,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub world: WorldArgs,
}

/// Runs one probe, and writes its report.
///
/// # Errors
/// [`Failure::Error`] if the probe fails; the message says how.
pub fn run(command: ProbeCommand, interrupt: &Interrupt) -> Result<(), Failure> {
    interrupt.doing("probing");
    let (name, report, found) = match &command {
        ProbeCommand::Contents(args) => ("accept probe contents", &args.report, contents(args)?),
        ProbeCommand::Reset(args) => ("accept probe reset", &args.report, reset::run(args, interrupt)?),
        ProbeCommand::Idle(args) => ("accept probe idle", &args.report, world::idle(args, interrupt)?),
        ProbeCommand::Exchange(args) => ("accept probe exchange", &args.report, world::exchange(args, interrupt)?),
        ProbeCommand::BadKey(args) => ("accept probe bad-key", &args.report, world::bad_key(args, interrupt)?),
    };
    report.json.as_ref().map_or(Ok(()), |to| output::write_json(name, &found, to))
}

/// Returns the reason why the device is not overwritten as `kept`, or null.
fn contents(args: &DeviceProbeArgs) -> Result<Value, Failure> {
    let engine = engine::open(&args.engine)?;
    let drive = create(args)?;
    let kept = match drive {
        Ok(drive) => {
            let volume = Volume::on(&engine, [drive]).queues(1).build()?;
            let stored = volume.stored()?.first().map(|s| s.device.clone());
            stored.map(|path| format!("{}: it holds stored arrays; nothing was written", path.display()))
        }
        Err(why) => Some(why),
    };
    Ok(json!({ "kept": kept }))
}

/// Opens the one device for writing. Returns the reason as text if it holds data that must be kept.
fn create(args: &DeviceProbeArgs) -> Result<Result<Drive, String>, Failure> {
    let policy = OverwritePolicy::to_destroy(&args.device.yes_destroy);
    let [named] = &args.device.devices[..] else {
        return Err(Failure::Usage("name one device".to_owned()));
    };
    match named.spec()?.create(args.size.0, &policy) {
        Ok(drive) => Ok(Ok(drive)),
        Err(e @ (StorageError::NotOurs { .. } | StorageError::InUse { .. })) => Ok(Err(e.to_string())),
        Err(e) => Err(e.into()),
    }
}

/// Opens the one device for writing, as a volume with the options of the data path, and returns its drive's controller
/// beside it.
fn volume(
    args: &DeviceProbeArgs,
    engine: &warpbell::engine::Engine,
    transfer: Bytes,
) -> Result<(Volume, std::sync::Arc<warpbell::nvme::Controller<warpbell::nvme::Ready>>), Failure> {
    let drive = create(args)?.map_err(Failure::Error)?;
    let controller = drive.controller().clone();
    let volume = device::of_drives(&args.device, engine, vec![drive], transfer)?;
    Ok((volume, controller))
}
