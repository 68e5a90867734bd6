//! Opens the volume that `--device` and the related options describe.

use crate::args::DeviceArgs;
use crate::output::{Failure, Text};
use crate::workloads::report::PathReport;
use std::ffi::OsStr;
use std::path::PathBuf;
use warpbell::engine::Engine;
use warpbell::memory::mapping::BackendChoice;
use warpbell::spec::{DeviceSpec, Name, PE, for_pe};
use warpbell::storage::{Drive, DriveSpec, OverwritePolicy, Plan, StorageError, Volume};
use warpbell::units::Bytes;

/// Opens the devices, together large enough for `plan`, as a volume with queues for commands of `transfer` bytes.
///
/// # Errors
/// * [`Failure::Usage`] if `--device`, `--stripe` and `--mapping` do not fit together.
/// * [`Failure::Error`] if a device cannot be opened, is too small, holds other data that `--yes-destroy` does not
///   name, or lacks the requested data path.
pub fn volume(args: &DeviceArgs, engine: &Engine, plan: &Plan, transfer: Bytes) -> Result<Volume, Failure> {
    let specs = specs(args)?;
    let policy = OverwritePolicy::to_destroy(&args.yes_destroy);
    let striped = if args.replicate { 1 } else { specs.len() };
    let each = plan.bytes_for_each(striped, args.stripe_chunk.0);
    let drives: Vec<Drive> = specs.iter().map(|s| s.create(each, &policy)).collect::<Result<_, _>>()?;
    build(args, engine, drives, transfer, Some(plan.has_page_checksums()))
}

/// Opens the devices for a measurement with commands of `transfer` bytes.
///
/// If `writes` is false, files and controllers are opened as they are. Otherwise, and for memory devices, the devices
/// are created with `bytes` bytes in total.
///
/// # Errors
/// * [`Failure::Usage`] if `--device`, `--stripe` and `--mapping` do not fit together.
/// * [`Failure::Error`] if a device cannot be opened, holds stored arrays or other data that would be overwritten, or
///   lacks the requested data path.
pub fn measured(
    args: &DeviceArgs,
    engine: &Engine,
    bytes: u64,
    transfer: Bytes,
    writes: bool,
) -> Result<Volume, Failure> {
    let specs = specs(args)?;
    if !writes && !specs.iter().all(|s| s.spec().is_memory()) {
        let drives: Vec<Drive> = specs.iter().map(DriveSpec::open).collect::<Result<_, _>>()?;
        return build(args, engine, drives, transfer, None);
    }
    let policy = OverwritePolicy::to_destroy(&args.yes_destroy);
    let striped = if args.replicate { 1 } else { specs.len() as u64 };
    // A size that cannot be rounded up to whole chunks becomes the maximum, which the drive then rejects.
    let each = bytes.div_ceil(striped).checked_next_multiple_of(args.stripe_chunk.0.max(1)).unwrap_or(u64::MAX);
    let drives: Vec<Drive> = specs.iter().map(|s| s.create(each, &policy)).collect::<Result<_, _>>()?;
    let volume = build(args, engine, drives, transfer, None)?;
    check_nothing_stored(&volume)?;
    Ok(volume)
}

/// Checks that the devices hold no stored arrays but those that `--yes-destroy` allows to overwrite.
///
/// # Errors
/// [`Failure::Error`] if they do, or cannot be read.
pub fn check_nothing_stored(volume: &Volume) -> Result<(), Failure> {
    match volume.stored()?.first() {
        Some(stored) => {
            let (path, found) =
                (stored.device.clone(), "it holds stored arrays, which this would overwrite".to_owned());
            Err(StorageError::NotOurs { path, found }.into())
        }
        None => Ok(()),
    }
}

/// Opens the devices for reading alone, as a volume with queues for commands of `transfer` bytes. Several programs may
/// read the same file at the same time.
///
/// # Errors
/// * [`Failure::Usage`] if no device is named, or the options do not fit together.
/// * [`Failure::Error`] if a device cannot be opened.
pub fn stored(args: &DeviceArgs, engine: &Engine, transfer: Bytes) -> Result<Volume, Failure> {
    open_stored(args, engine, transfer, true)
}

/// Opens the devices of a volume whose stored graphs or tables are to be changed.
///
/// # Errors
/// As for [`stored`].
pub fn changed(args: &DeviceArgs, engine: &Engine) -> Result<Volume, Failure> {
    open_stored(args, engine, DEFAULT_TRANSFER, false)
}

fn open_stored(args: &DeviceArgs, engine: &Engine, transfer: Bytes, read_only: bool) -> Result<Volume, Failure> {
    let mut specs = lasting(args)?;
    if read_only {
        specs.iter_mut().for_each(DriveSpec::set_read_only);
    }
    let drives: Vec<Drive> = specs.iter().map(DriveSpec::open).collect::<Result<_, _>>()?;
    build(args, engine, drives, transfer, None)
}

/// Parses the specification of a device that a command only looks at. Memory without a size gets one.
///
/// # Errors
/// [`Failure::Error`] if the specification is invalid.
pub fn to_look_at(device: &OsStr) -> Result<DriveSpec, Failure> {
    let spec = DriveSpec::named(device)?;
    Ok(spec.spec().clone().sized(LOOKED_AT.0).try_into()?)
}

/// Size of memory that a command only looks at.
const LOOKED_AT: Bytes = Bytes(64 << 20);
/// Size of commands where kernels do not read.
const DEFAULT_TRANSFER: Bytes = Bytes(4096);

/// Checks that the devices keep data beyond the end of the program, before a command reads what it stores there.
///
/// # Errors
/// [`Failure::Usage`] if one is memory, or the options do not fit together.
pub fn check_lasting(args: &DeviceArgs) -> Result<(), Failure> {
    lasting(args).map(drop)
}

/// Returns the specifications of devices that keep data beyond the end of the program.
fn lasting(args: &DeviceArgs) -> Result<Vec<DriveSpec>, Failure> {
    let specs = specs(args)?;
    match specs.iter().find(|s| s.spec().is_memory()) {
        Some(memory) => Err(Failure::Usage(format!(
            "{memory} ends with the program, so nothing is stored there for later; name a file or a controller, as in --device soft:graphs.img"
        ))),
        None => Ok(specs),
    }
}

/// Opens the devices as a volume that has space for `plan` beside what it holds. Files are created. After `check`, existing
/// files that are too small are made larger.
///
/// # Errors
/// * [`Failure::Usage`] if no device is named, or the options do not fit together.
/// * [`Failure::Error`] if a device cannot be opened, holds other data that `--yes-destroy` does not name, or if a file
///   cannot be made larger.
/// * Otherwise as for `check`.
pub fn with_space(
    args: &DeviceArgs,
    engine: &Engine,
    plan: &Plan,
    check: impl FnOnce(&Volume) -> Result<(), Failure>,
) -> Result<Volume, Failure> {
    let specs = lasting(args)?;
    let policy = OverwritePolicy::to_destroy(&args.yes_destroy);
    let striped = if args.replicate { 1 } else { specs.len() };
    let each = plan.bytes_for_each(striped, args.stripe_chunk.0);
    let open = || -> Result<Volume, Failure> {
        let drives: Vec<Drive> = specs.iter().map(|s| s.create(each, &policy)).collect::<Result<_, _>>()?;
        build(args, engine, drives, DEFAULT_TRANSFER, plan.has_page_checksums().then_some(true))
    };
    let volume = open()?;
    check(&volume)?;
    let needs = volume.needs_beside(plan)?;
    if needs <= volume.bytes() {
        return Ok(volume);
    }
    let each = volume.bytes_of_each_drive(needs);
    drop(volume);
    specs.iter().try_for_each(|s| s.grow(each))?;
    open()
}

/// Makes a volume of drives that the caller has opened, with the data path of the options and queues for commands of
/// `transfer` bytes.
///
/// # Errors
/// As for [`volume`].
pub fn of_drives(args: &DeviceArgs, engine: &Engine, drives: Vec<Drive>, transfer: Bytes) -> Result<Volume, Failure> {
    build(args, engine, drives, transfer, None)
}

fn build(
    args: &DeviceArgs,
    engine: &Engine,
    drives: Vec<Drive>,
    transfer: Bytes,
    page_checksums: Option<bool>,
) -> Result<Volume, Failure> {
    let mut builder = Volume::on(engine, drives)
        .chunk(args.stripe_chunk.0)
        .replicated(args.replicate)
        .transfer(page(transfer))
        .retry_budget(&args.retry_budget)
        .landing(args.landing.parse()?)
        .queue_memory(args.queue_memory.parse()?)
        .doorbell(args.doorbell.parse()?)
        .mapping(args.mapping.parse::<BackendChoice>().map_err(|e| Failure::Usage(e.to_string()))?);
    if let Some(wanted) = page_checksums {
        builder = builder.page_checksums(wanted);
    }
    if let Some(n) = args.queues {
        builder = builder.queues(n);
    }
    if let Some(n) = args.depth {
        builder = builder.depth(n);
    }
    Ok(builder.build()?)
}

/// Returns the arguments for one of several PEs, each of which has its own devices.
///
/// `{pe}` in a device's name is replaced by the PE's number. Devices without it are assigned to the PEs in turn. Memory
/// devices are created once for each PE.
///
/// # Errors
/// [`Failure::Usage`] if the number of devices is no multiple of `pes` and no name contains `{pe}`. [`Failure::Error`]
/// if a specification is invalid or two name the same device.
pub fn of_pe(args: &DeviceArgs, pe: usize, pes: usize) -> Result<DeviceArgs, Failure> {
    let given = named(args)?;
    DriveSpec::check_distinct(&given)?;
    let devices = if has_pe(args)? || given.iter().all(|d| d.spec().is_memory()) {
        let for_pe = |d: &DriveSpec| Ok(DriveSpec::try_from(d.spec().clone().for_pe(pe))?.into());
        given.iter().map(for_pe).collect::<Result<_, Failure>>()?
    } else if given.len().is_multiple_of(pes) {
        given.into_iter().skip(pe).step_by(pes).map(Into::into).collect()
    } else {
        let each = if given.len() == 1 { "the one device" } else { "the devices" };
        return Err(Failure::Usage(format!(
            "{pes} PEs need devices of their own, and {each} given cannot be divided evenly among them; write {PE} for the PE's number, as in --device soft:edges-{PE}.img"
        )));
    };
    let destroyed = |path: &PathBuf| PathBuf::from(for_pe(path.as_os_str(), pe));
    let yes_destroy = args.yes_destroy.iter().map(destroyed).collect();
    Ok(DeviceArgs { devices, yes_destroy, sharers: pes, ..args.clone() })
}

/// Returns true if a device's name has the number of the PE in it.
///
/// # Errors
/// [`Failure::Error`] if a specification is invalid.
pub fn has_pe(args: &DeviceArgs) -> Result<bool, Failure> {
    Ok(named(args)?.iter().any(|d| d.spec().has_pe()))
}

/// Returns the arguments as if they named no device.
pub fn unnamed(args: &DeviceArgs) -> DeviceArgs {
    DeviceArgs { devices: Vec::new(), stripe: None, replicate: false, yes_destroy: Vec::new(), ..args.clone() }
}

/// Converts a number of bytes to `usize`; saturates.
pub fn page(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}

/// Returns the specifications given with `--device`.
fn named(args: &DeviceArgs) -> Result<Vec<DriveSpec>, Failure> {
    args.devices.iter().map(|d| d.spec().cloned()).collect()
}

fn specs(args: &DeviceArgs) -> Result<Vec<DriveSpec>, Failure> {
    let given: Vec<DeviceSpec> = named(args)?.iter().map(|d| d.spec().clone()).collect();
    let wanted = match (&given[..], args.stripe) {
        ([], n) => vec![DeviceSpec::memory(); n.unwrap_or(1) as usize],
        ([one], Some(2..)) if one.is_controller() => {
            return Err(Failure::Usage(format!(
                "{one} is one controller; to stripe, give --device once for each controller"
            )));
        }
        ([one], Some(2..)) if matches!(one.name(), Name::Remote(_)) => {
            return Err(Failure::Usage(format!(
                "{one} is one subsystem; to stripe, give --device once for each namespace"
            )));
        }
        ([one], Some(n @ 2..)) => (0..n).map(|i| one.clone().numbered(i)).collect(),
        ([_, _, ..], Some(n)) if n as usize != given.len() => {
            let given = given.len();
            return Err(Failure::Usage(format!(
                "--stripe {n} does not match the {given} devices of --device; leave --stripe out"
            )));
        }
        _ => given,
    };
    let shared = |mut spec: DeviceSpec| -> Result<DriveSpec, Failure> {
        if args.unsafe_no_iommu && spec.is_controller() {
            spec.set("unsafe-no-iommu", None)?;
        }
        let mut spec = DriveSpec::try_from(spec)?;
        spec.share_processors(args.sharers);
        Ok(spec)
    };
    let specs = wanted.into_iter().map(shared).collect::<Result<Vec<_>, _>>()?;
    DriveSpec::check_distinct(&specs)?;
    Ok(specs)
}

/// Returns the volume's data path for a report.
pub fn path(volume: &Volume) -> PathReport {
    PathReport {
        path: volume.path().clone(),
        queue_pairs: volume.queues(),
        depth: volume.depth(),
        block_bytes: volume.block_bytes() as u64,
        redundancy: None,
    }
}

/// Returns the volume's data path after the runs. On a replicated volume, first rewrites the blocks that a copy failed
/// to return.
///
/// # Errors
/// [`Failure::Error`] if the repair or the query of the copies' state fails.
pub fn path_after(volume: &Volume) -> Result<PathReport, Failure> {
    if !volume.is_replicated() {
        return Ok(path(volume));
    }
    volume.repair()?;
    Ok(PathReport { redundancy: Some(volume.redundancy()?), ..path(volume) })
}

/// Returns the text line about the copies of a replicated volume after the runs; empty for other volumes.
pub fn copies(path: &PathReport) -> String {
    path.redundancy.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Prints a line such as `device soft:mem  queues host (2 x 128)  landing direct  doorbell cpu-engine`, followed by
/// `rest`.
///
/// If `verbose`, also prints the memory order and the reasons why better data paths are not used.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if it cannot be written.
pub fn announce(volume: &Volume, rest: &str, verbose: bool, text: &Text) -> Result<(), Failure> {
    text.line(format_args!("{}  {} x {} entries{rest}", volume.path(), volume.queues(), volume.depth()))?;
    if verbose {
        text.line(format_args!("  order {}", volume.path().order))?;
        for note in &volume.path().notes {
            text.line(format_args!("  {note}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        device: DeviceArgs,
    }

    #[test]
    fn each_pe_has_devices_of_its_own() {
        use clap::Parser;
        let devices = |line: &[&str], pe, pes| {
            let args = Line::try_parse_from(["x"].iter().chain(line)).unwrap().device;
            let named = |a: &DeviceArgs| a.devices.iter().map(|d| d.spec().unwrap().to_string()).collect::<Vec<_>>();
            of_pe(&args, pe, pes).map(|a| (named(&a), a.yes_destroy))
        };
        assert!(devices(&[], 1, 3).unwrap().0.is_empty());
        assert_eq!(devices(&["--device", "soft:mem:1G"], 1, 3).unwrap().0, ["soft:mem:1G"]);
        let (named, destroyed) =
            devices(&["--device", "soft:a-{pe}.img", "--yes-destroy", "a-{pe}.img"], 2, 3).unwrap();
        assert_eq!((&*named[0], destroyed), ("soft:a-2.img", vec![PathBuf::from("a-2.img")]));
        let four = ["--device", "soft:a", "--device", "soft:b", "--device", "soft:c", "--device", "soft:d"];
        assert_eq!(devices(&four, 1, 2).unwrap().0, ["soft:b", "soft:d"]);
        assert_eq!(devices(&four, 3, 4).unwrap().0, ["soft:d"]);
        assert!(matches!(devices(&four, 0, 3), Err(Failure::Usage(m)) if m.contains("{pe}")));
        assert!(devices(&["--device", "soft:a"], 0, 2).is_err());
        assert_eq!(devices(&["--device", "soft:a"], 0, 1).unwrap().0, ["soft:a"]);
    }

    #[test]
    fn stripes_and_a_missing_iommu_are_edits_of_what_was_named() {
        use clap::Parser;
        let named = |line: &[&str]| {
            let args = Line::try_parse_from(["x"].iter().chain(line)).unwrap().device;
            specs(&args).map(|specs| specs.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(named(&["--stripe", "2"]).unwrap(), ["soft:mem", "soft:mem"]);
        let striped = named(&["--device", r"soft:a\,b.img,io=mmap", "--stripe", "2"]).unwrap();
        assert_eq!(striped, [r"soft:a\,b.img.0,io=mmap", r"soft:a\,b.img.1,io=mmap"]);
        for given in ["nvme:x,api=cdev", "nvme:x,api=cdev,unsafe-no-iommu"] {
            let taken = named(&["--unsafe-no-iommu", "--device", given, "--device", "soft:mem"]).unwrap();
            assert_eq!(taken, ["nvme:x,api=cdev,unsafe-no-iommu", "soft:mem"]);
        }
        let one = named(&["--device", "nvme:x", "--stripe", "2"]);
        assert!(matches!(one, Err(Failure::Usage(m)) if m.starts_with("nvme:x is one controller")));
    }
}
