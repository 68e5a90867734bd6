//! Runs `warpbell volume`: verifies stored arrays.

use crate::args::{DeadlineArgs, JsonArgs};
use crate::engine;
use crate::interrupt::Interrupt;
use crate::output::{Failure, say, write_json};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::ffi::OsString;
use warpbell::storage::{ArrayState, CheckedArray, DamagedRange, Drive, DriveSpec, LostCopy, Verification, Volume};
use warpbell::units::{Bytes, grouped};

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Read all stored arrays and compare them with their checksums (exit code 1: something is damaged)
    #[command(
        after_help = "Examples:\n  warpbell volume verify soft:graph.img\n  warpbell volume verify soft:a.img soft:b.img --replicate --repair"
    )]
    Verify(VerifyArgs),
}

#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// nvme:ADDRESS or soft:FILE, in the order in which they were stored; several are striped, or replicated
    #[arg(value_name = "DEVICE", required = true)]
    pub devices: Vec<OsString>,
    /// Stripe size of the stored volume: bytes on one device before the next one follows
    #[arg(long, value_name = "SIZE", default_value = "128k")]
    pub stripe_chunk: Bytes,
    /// Mirror: every device holds all data, and each is read
    #[arg(long)]
    pub replicate: bool,
    /// Rewrite damaged data from another device, page checksums from intact data, and all data of a device that was left out
    #[arg(long)]
    pub repair: bool,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub json: JsonArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    device: &'a str,
    intact: bool,
    /// Copies that were not read.
    lost: &'a [LostCopy],
    #[serde(flatten)]
    found: &'a Verification,
}

/// Verifies the arrays and prints the result.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed. [`Failure::Error`] if a device cannot be opened or read, an
/// array is damaged, or a copy was not read.
pub fn run(command: VolumeCommand, interrupt: &Interrupt) -> Result<(), Failure> {
    let VolumeCommand::Verify(args) = command;
    let specs = args.devices.iter().map(|d| DriveSpec::named(d)).collect::<Result<Vec<_>, _>>()?;
    DriveSpec::check_distinct(&specs)?;
    let drives = specs.iter().map(DriveSpec::open).collect::<Result<Vec<Drive>, _>>()?;
    let engine = engine::for_host(args.wait.deadline)?;
    interrupt.doing("reading the stored arrays");
    let volume = Volume::on(&engine, drives).chunk(args.stripe_chunk.0).replicated(args.replicate).build()?;
    let found = {
        let _stop = interrupt.stops(&engine);
        volume.verify(args.repair)?
    };
    let lost = volume.redundancy()?.lost;
    match &args.json.json {
        Some(path) => {
            let (device, intact) = (volume.name(), found.is_intact() && lost.is_empty());
            let report = Report { device, intact, lost: &lost, found: &found };
            write_json("volume verify", &report, path)?;
        }
        None => print(&volume, &found)?,
    }
    conclude(&volume, &found, &lost)
}

fn print(volume: &Volume, found: &Verification) -> Result<(), Failure> {
    say!("volume {}", volume.name())?;
    for a in &found.arrays {
        let copy = a.copy.as_ref().map_or_else(String::new, |c| format!("  on {c}"));
        say!("array `{}`  {} bytes{copy}  {}", a.name, grouped(a.bytes), words(a.state))?;
    }
    for DamagedRange { array, device, offset, bytes, lba, error, .. } in &found.damaged {
        let reason = error.as_ref().map_or_else(|| "wrong checksum".to_owned(), Clone::clone);
        say!("damaged: `{array}`, {} bytes at byte {offset}, LBA {lba} of {device}: {reason}", grouped(*bytes))?;
    }
    if !found.page_checksums {
        say!("no page checksums: damage is found but not located (graph --page-checksums stores them)")?;
    }
    match (found.wrong_checksums, found.rebuilt_checksums) {
        (0, _) => {}
        (wrong, 0) => {
            say!("wrong: {} page checksums contradict intact arrays, or their table is damaged", grouped(wrong))?
        }
        (_, rebuilt) => say!("{} page checksums were wrong, and were computed again", grouped(rebuilt))?,
    }
    for device in &found.restored {
        say!("restored: {device} holds all data again")?;
    }
    let repaired = match found.repaired_bytes {
        0 => String::new(),
        n => format!(", {} bytes written again", grouped(n)),
    };
    say!("read {} bytes{repaired}", grouped(found.bytes))
}

fn words(state: ArrayState) -> &'static str {
    match state {
        ArrayState::Intact => "intact",
        ArrayState::Changed => "changed since it was stored",
        ArrayState::Interrupted => "half changed by a program that ended before its flush",
        ArrayState::Repaired => "repaired",
        _ => "damaged",
    }
}

fn conclude(volume: &Volume, found: &Verification, lost: &[LostCopy]) -> Result<(), Failure> {
    if found.is_intact() {
        return match lost {
            [] => Ok(()),
            [LostCopy { name, reason, .. }, ..] => Err(Failure::Error(format!(
                "{name} is left out and was not read: {reason}; write all data to it again (--repair), or store the data again to restore this copy"
            ))),
        };
    }
    let is_wrong = |a: &&CheckedArray| matches!(a.state, ArrayState::Damaged | ArrayState::Interrupted);
    let (wrong, all) = (found.arrays.iter().filter(is_wrong).count(), found.arrays.len());
    if wrong == 0 {
        return Err(Failure::Error(format!(
            "{}: {} page checksums are wrong, and the data is intact; compute them again (--repair)",
            volume.name(),
            grouped(found.wrong_checksums)
        )));
    }
    let remedy = if volume.is_replicated() && found.repaired_bytes == 0 {
        "write them again from another copy (--repair), or store the data again"
    } else {
        "store the data again"
    };
    Err(Failure::Error(format!("{}: {wrong} of {all} arrays are not what was stored; {remedy}", volume.name())))
}
