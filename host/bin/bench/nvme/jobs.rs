//! Runs the jobs of a fio job file, one after another.

use super::{CPU_DEVICE, GPU_DEVICE, Row, Session, describe, fio_job, head_of, warn_of_depth, write};
use crate::args::{DeviceArg, NvmeArgs};
use crate::interrupt::Interrupt;
use crate::job_file::number::Amount;
use crate::job_file::{self, FioJob, JobFile};
use crate::output::{self, Failure, Text};
use crate::workloads::error::MeasureError;
use crate::workloads::nvme::{NvmeBench, NvmeJob, Pattern, Rates};
use crate::workloads::report::PathReport;
use crate::{device, engine};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};
use warpbell::engine::Engine;
use warpbell::storage::{DriveSpec, Volume};
use warpbell::units::Bytes;

/// Time between two looks at the engine while a job waits for its start.
const LOOK: Duration = Duration::from_millis(20);

/// Reads the job file, measures its jobs, and prints the figures.
///
/// # Errors
/// * [`Failure::Usage`] if jobs would have to run at the same time, or `--section` names none.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if the file cannot be read or has an error, a job cannot be made, or a measurement fails.
pub fn run(args: &NvmeArgs, path: &Path, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.output)?;
    let file = job_file::read(path)?;
    let jobs = chosen(&file, &args.section)?;
    one_after_another(&jobs)?;
    let engine = engine::open(&args.engine)?;
    text.line(format_args!("# warpbell {}  bench nvme  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    for note in file.notes() {
        text.line(format_args!("# {}: {}", note.place, note.text))?;
    }
    for option in &file.unapplied {
        text.line(format_args!("# {option}"))?;
    }
    let _stop = interrupt.stops(&engine);
    let mut session = Session { interrupt, runs: args.runs, filled: None, beside: None };
    let (started, mut rows, mut taken) = (Instant::now(), Vec::new(), None);
    let measured = jobs.into_iter().try_for_each(|fio| -> Result<(), Failure> {
        wait(fio.startdelay.saturating_sub(started.elapsed()), &engine)?;
        interrupt.doing("opening the device");
        let volume = open(args, fio, &engine)?;
        interrupt.doing("measuring");
        let path = device::path(&volume);
        if taken.as_ref().is_none_or(|before: &PathReport| before.path.device != path.path.device) {
            device::announce(&volume, "", false, &Text::commented(&text))?;
        }
        let job = fio_job::of(fio, volume.bytes(), volume.block_bytes() as u64).map_err(|e| about(fio, e))?;
        let bench = NvmeBench::new(&volume, job)?;
        warn_of_depth(bench.in_flight());
        let name = format!("# {}: ", fio.name);
        text.line(format_args!("{}", head_of(&name, &bench.job().settings(), bench.in_flight())))?;
        // Another device has other data.
        session.filled = None;
        let row = session.measure(&bench)?;
        describe(&row, &text)?;
        if fio.verify.as_ref().is_some_and(|verify| verify.after_writes) && !bench.job().reads() {
            read_back(&bench, &volume, &text)?;
        }
        taken = Some(device::path_after(&volume)?);
        rows.push(Row { name: Some(fio.name.clone()), ..row });
        Ok(())
    });
    // The figures before a failure are written all the same.
    let written = match taken {
        Some(taken) => write(args, &engine, taken, json!({ "runs": args.runs, "swept": ["name"] }), rows),
        None => Ok(()),
    };
    measured.and(written)
}

/// Returns the jobs of the sections that are named, or all.
fn chosen<'f>(file: &'f JobFile, sections: &[String]) -> Result<Vec<&'f FioJob>, Failure> {
    if let Some(absent) = sections.iter().find(|name| !file.jobs.iter().any(|job| job.section == **name)) {
        let known: Vec<&str> = file.jobs.iter().map(|job| job.section.as_str()).collect();
        return Err(Failure::Usage(format!("no section is called `{absent}`; there are: {}", known.join(", "))));
    }
    Ok(file.jobs.iter().filter(|job| sections.is_empty() || sections.contains(&job.section)).collect())
}

/// Checks that no two jobs would run at the same time.
fn one_after_another(jobs: &[&FioJob]) -> Result<(), Failure> {
    match jobs.windows(2).find(|pair| !pair[1].stonewall) {
        Some([one, other]) => Err(Failure::Usage(format!(
            "{}: `{}` runs at the same time as `{}` for fio, and jobs are measured one after another; give `{}` the option stonewall, or choose one by --section",
            other.place, other.section, one.section, other.section
        ))),
        _ => Ok(()),
    }
}

/// Returns an error about a job.
fn about(fio: &FioJob, e: String) -> Failure {
    Failure::about(format_args!("{}: {}", fio.place, fio.name), e)
}

/// Waits for a time, unless the engine is told to stop.
fn wait(time: Duration, engine: &Engine) -> Result<(), Failure> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if engine.is_cancelled() {
            return Err(MeasureError::Stopped.into());
        }
        std::thread::sleep(LOOK.min(time));
    }
    Ok(())
}

/// Opens the job's file, or the devices of the command line, which replace it. A job that only reads opens it for reading
/// alone, and needs it to exist.
fn open(args: &NvmeArgs, fio: &FioJob, engine: &Engine) -> Result<Volume, Failure> {
    let mut device = args.device.clone();
    if device.devices.is_empty() {
        device.devices = vec![file_of(fio)?];
    }
    let default = if engine.is_gpu() { GPU_DEVICE } else { CPU_DEVICE };
    let offset = match fio.offset {
        Amount::Bytes(bytes) => bytes,
        Amount::Percent(_) => 0,
    };
    let bytes = match (fio.filesize, fio.size) {
        (Some(bytes), _) => bytes,
        (None, Some(Amount::Bytes(bytes))) => bytes.saturating_add(offset),
        _ => default,
    };
    let most = fio_job::sizes_of(fio).map_err(|e| about(fio, e))?.most(fio.reads(), fio.writes());
    device::measured(&device, engine, bytes, Bytes(most), fio.writes())
}

/// Returns the one file of a job.
fn file_of(fio: &FioJob) -> Result<DeviceArg, Failure> {
    let about = |e: String| about(fio, e);
    let paths = fio.paths(0);
    let clones_differ = fio.numjobs > 1 && fio.paths(1) != paths;
    let [path] = &paths[..] else {
        return Err(about(format!("{} files; give one by filename, or stripe devices by --device", paths.len())));
    };
    if clones_differ {
        return Err(about(format!("each of its {} clones has a file of its own; give one by filename", fio.numjobs)));
    }
    if path.to_string_lossy().contains(',') {
        return Err(about(format!("{} has a comma, behind which --device has options; rename it", path.display())));
    }
    let mut spec = OsString::from("soft:");
    spec.push(path);
    Ok(DriveSpec::named(&spec)?.into())
}

/// Reads what a job that verifies has written, and checks it.
fn read_back(bench: &NvmeBench<'_>, volume: &Volume, text: &Text) -> Result<(), Failure> {
    let job = bench.job();
    if job.io_bytes.is_none_or(|bytes| bytes < job.pass_bytes()) || job.skip_bytes > 0 || job.norandommap {
        output::warn(format_args!(
            "the job may have left blocks of its region as they were, and what it wrote is not read back; leave time_based, norandommap and small amounts out"
        ));
        return Ok(());
    }
    let read = NvmeJob {
        read_percent: 100,
        io_bytes: Some(job.pass_bytes()),
        steady_state: None,
        ramp: Duration::ZERO,
        rate: Rates::default(),
        ..NvmeJob { rw: Pattern::Read, ..job.clone() }
    };
    NvmeBench::new(volume, read)?.run()?;
    text.line(format_args!("  verified: {} read back, with the data that was written", Bytes(job.pass_bytes())))
}
