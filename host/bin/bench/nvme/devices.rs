//! Devices of the jobs of a job file that run at the same time: jobs that name the same file share one opened device.

use super::{CPU_DEVICE, GPU_DEVICE, fio_job};
use crate::args::{DeviceArg, DeviceArgs, EngineArgs, NvmeArgs};
use crate::job_file::FioJob;
use crate::job_file::number::Amount;
use crate::output::Failure;
use crate::{device, engine};
use std::ffi::OsString;
use std::path::PathBuf;
use warpbell::engine::Engine;
use warpbell::engine::abi::MAX_REGISTERED_REGIONS;
use warpbell::file_identity::FileIdentity;
use warpbell::storage::{DriveSpec, Volume};
use warpbell::units::Bytes;

/// Maximum number of jobs of one device at the same time: each registers a buffer of its own.
const MOST_SHARERS: usize = MAX_REGISTERED_REGIONS;

/// Engines of the devices that are open at the same time.
///
/// Each device has one of its own: an error of a device ends all kernels of its engine.
pub struct Engines<'a> {
    args: &'a EngineArgs,
    all: Vec<Engine>,
}

impl<'a> Engines<'a> {
    /// Opens the first engine.
    ///
    /// # Errors
    /// [`Failure::Error`] if the engine cannot be opened.
    pub fn open(args: &'a EngineArgs) -> Result<Self, Failure> {
        Ok(Self { args, all: vec![engine::open(args)?] })
    }

    /// Returns the first engine.
    pub fn one(&self) -> &Engine {
        &self.all[0]
    }

    /// Returns `count` engines, equal to the first one. They stay open.
    ///
    /// # Errors
    /// [`Failure::Error`] if an engine cannot be opened.
    pub fn first(&mut self, count: usize) -> Result<&[Engine], Failure> {
        while self.all.len() < count {
            self.all.push(engine::open(self.args)?);
        }
        Ok(&self.all[..count])
    }
}

/// A device, and its jobs.
pub struct Planned<'f> {
    device: DeviceArgs,
    /// Numbers of the jobs among those that run at the same time, and the jobs.
    pub jobs: Vec<(usize, &'f FioJob)>,
    /// Identity of the job's file; `None` for the devices of the command line.
    file: Option<FileIdentity>,
}

impl Planned<'_> {
    /// Opens the device for all of its jobs. A device that no job writes to is opened for reading alone, and needs to exist.
    ///
    /// # Errors
    /// [`Failure::Error`], which names the jobs, if they are too many, or the device cannot be opened or holds other data.
    /// [`Failure::Usage`] if options of the command line do not fit together.
    pub fn open(&self, engine: &Engine) -> Result<Volume, Failure> {
        let opened = || -> Result<Volume, Failure> {
            let sharers = self.jobs.len();
            if sharers > MOST_SHARERS {
                return Err(Failure::Error(format!(
                    "{sharers} jobs access one device at the same time, and {MOST_SHARERS} can; make equal ones by numjobs, or write stonewall between some"
                )));
            }
            let is_memory = self.device.devices.iter().all(|d| d.spec().is_ok_and(|spec| spec.spec().is_memory()));
            let writes = self.jobs.iter().any(|(_, job)| job.writes());
            // A job that only reads does not make a file larger that another job writes to.
            let sizing = self.jobs.iter().filter(|(_, job)| is_memory || job.writes());
            let bytes = sizing.map(|(_, job)| bytes_of(job, engine.is_gpu())).max().unwrap_or(0);
            let mut most = 0;
            for (_, job) in &self.jobs {
                most = most.max(fio_job::sizes_of(job).map_err(Failure::Error)?.most(job.reads(), job.writes()));
            }
            device::measured(&self.device, engine, bytes, Bytes(most), writes)
        };
        let jobs: Vec<&FioJob> = self.jobs.iter().map(|(_, job)| *job).collect();
        opened().map_err(|e| about(&jobs, e))
    }
}

/// Returns the devices of the jobs: those of the command line for all, or the file of each. A job without a device has an error
/// instead.
pub fn plan<'f>(args: &NvmeArgs, jobs: &[&'f FioJob]) -> (Vec<Planned<'f>>, Vec<Failure>) {
    let (mut devices, mut failures) = (Vec::<Planned<'f>>::new(), Vec::new());
    for (number, job) in jobs.iter().enumerate() {
        let placed = if args.device.devices.is_empty() { file_of(job).map(Some) } else { Ok(None) };
        let (file, device) = match placed {
            Err(e) => {
                failures.push(about(&[*job], e));
                continue;
            }
            Ok(None) => (None, args.device.clone()),
            Ok(Some((path, spec))) => {
                (Some(FileIdentity::of(&path)), DeviceArgs { devices: vec![spec], ..args.device.clone() })
            }
        };
        match devices.iter_mut().find(|planned| planned.file == file) {
            Some(planned) => planned.jobs.push((number, *job)),
            None => devices.push(Planned { device, jobs: vec![(number, *job)], file }),
        }
    }
    (devices, failures)
}

/// Returns the error of jobs, with their names.
pub fn about(jobs: &[&FioJob], e: Failure) -> Failure {
    match (e, jobs) {
        (Failure::Error(text), [first, ..]) => {
            let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
            Failure::about(format_args!("{}: {}", first.place, names.join(", ")), text)
        }
        (other, _) => other,
    }
}

/// Returns the bytes that the device of a job needs to have.
fn bytes_of(job: &FioJob, on_gpu: bool) -> u64 {
    let offset = match job.offset {
        Amount::Bytes(bytes) => bytes,
        Amount::Percent(_) => 0,
    };
    match (job.filesize, job.size) {
        (Some(bytes), _) => bytes,
        (None, Some(Amount::Bytes(bytes))) => bytes.saturating_add(offset),
        _ if on_gpu => GPU_DEVICE,
        _ => CPU_DEVICE,
    }
}

/// Returns the one file of a job, and its device.
fn file_of(job: &FioJob) -> Result<(PathBuf, DeviceArg), Failure> {
    let refused = |text: String| Err(Failure::Error(text));
    let paths = job.paths(0);
    let [path] = &paths[..] else {
        return refused(format!("{} files; give one by filename, or stripe devices by --device", paths.len()));
    };
    if job.numjobs > 1 && job.paths(1) != paths {
        return refused(format!("each of its {} clones has a file of its own; give one by filename", job.numjobs));
    }
    if path.to_string_lossy().contains(',') {
        return refused(format!("{} has a comma, behind which --device has options; rename it", path.display()));
    }
    let mut spec = OsString::from("soft:");
    spec.push(path);
    Ok((path.clone(), DriveSpec::named(&spec)?.into()))
}
