//! Jobs of a job file that run at the same time: those up to the next `stonewall`.

use super::devices::{self, Engines, about};
use super::group::{self, Finished};
use super::{Row, describe, fill, fio_job, head_of, warn_of_depth};
use crate::args::NvmeArgs;
use crate::device;
use crate::interrupt::Interrupt;
use crate::job_file::FioJob;
use crate::output::{self, Failure, Text, with_remedy};
use crate::workloads::error::MeasureError;
use crate::workloads::nvme::together::{self, Scheduled};
use crate::workloads::nvme::{NvmeBench, NvmeJob, NvmeRun, Pattern, Rates};
use crate::workloads::report::PathReport;
use std::time::{Duration, Instant};
use warpbell::engine::RunError;
use warpbell::storage::Volume;
use warpbell::units::Bytes;

/// Measurement of a job file, batch by batch.
pub struct Measurement<'a> {
    pub args: &'a NvmeArgs,
    pub text: &'a Text,
    pub interrupt: &'a Interrupt,
    pub engines: Engines<'a>,
    /// Moment at which the first batch began, from which `startdelay` counts.
    pub started: Option<Instant>,
    /// Devices that were printed.
    pub announced: Vec<String>,
    pub rows: Vec<Row>,
    /// Data path of the device that was measured last.
    pub path: Option<PathReport>,
    pub failures: Failures,
}

/// Failures of jobs, each of which is printed when it occurs: other jobs go on, as with fio.
#[derive(Default)]
pub struct Failures {
    code: Option<u8>,
}

impl Failures {
    /// Prints the failure of a job. Returns one that ends the program.
    fn add(&mut self, failure: Failure) -> Result<(), Failure> {
        if !matches!(failure, Failure::Error(_)) {
            return Err(failure);
        }
        self.code = Some(output::conclude(Err(failure)));
        Ok(())
    }

    /// Returns the error of a program in which a job failed.
    pub fn end(self) -> Result<(), Failure> {
        self.code.map_or(Ok(()), |code| Err(Failure::Printed(code)))
    }
}

/// A job that can start.
struct Ready<'f, 'v> {
    /// Number among the jobs of the batch.
    number: usize,
    fio: &'f FioJob,
    volume: &'v Volume,
    bench: NvmeBench<'v>,
    runs: Vec<NvmeRun>,
}

impl Ready<'_, '_> {
    /// Returns true if the job, or its check afterwards, compares what it reads with what was written.
    fn checks(&self) -> bool {
        let job = self.bench.job();
        job.verify && (job.reads() || self.fio.verify.as_ref().is_some_and(|verify| verify.after_writes))
    }

    /// Returns true if both jobs access a block of one device.
    fn overlaps(&self, other: &Self) -> bool {
        let region = |job: &NvmeJob| (job.offset_bytes, job.offset_bytes + job.size_bytes);
        let (one, two) = (region(self.bench.job()), region(other.bench.job()));
        std::ptr::eq(self.volume, other.volume) && one.0 < two.1 && two.0 < one.1
    }
}

impl Measurement<'_> {
    /// Measures jobs at the same time: each starts after its `startdelay`, and runs to its own end. `--runs` repeats all of
    /// them together. Adds rows of those that complete.
    ///
    /// # Errors
    /// * [`Failure::Usage`] if options of the command line do not fit together.
    /// * [`Failure::BrokenPipe`] if standard output was closed.
    /// * [`Failure::Error`] if an engine cannot be opened, or the program is to end. Failures of jobs are printed and kept in
    ///   [`Measurement::failures`].
    pub fn batch(&mut self, jobs: &[&FioJob]) -> Result<(), Failure> {
        self.interrupt.doing("opening the device");
        let (planned, failures) = devices::plan(self.args, jobs);
        failures.into_iter().try_for_each(|failure| self.failures.add(failure))?;
        let engines = self.engines.first(planned.len())?.to_vec();
        let _stop = self.interrupt.stops_all(&engines);
        let mut opened = Vec::new();
        for (planned, engine) in planned.iter().zip(&engines) {
            self.goes_on()?;
            match planned.open(engine) {
                Ok(volume) => opened.push((volume, planned)),
                Err(e) => self.failures.add(e)?,
            }
        }
        let kernels = opened.iter().map(|(_, planned)| planned.jobs.len() as u32).sum();
        let mut ready = Vec::new();
        for (volume, planned) in &opened {
            self.announce(volume)?;
            for (number, fio) in &planned.jobs {
                match prepare(fio, volume, kernels) {
                    Ok(bench) => ready.push(Ready { number: *number, fio, volume, bench, runs: Vec::new() }),
                    Err(e) => self.failures.add(about(&[*fio], e))?,
                }
            }
        }
        ready.sort_by_key(|ready| ready.number);
        self.leave_out_false_errors(&mut ready)?;
        self.describe_all(&ready)?;
        self.fill(&mut ready)?;
        self.measure(&mut ready)?;
        let measured = self.read_back(ready)?;
        if let Some((volume, _)) = opened.last() {
            self.path = Some(device::path_after(volume).unwrap_or_else(|_| device::path(volume)));
        }
        self.report(measured, jobs.len())
    }

    /// Fails if the program is to end.
    fn goes_on(&self) -> Result<(), Failure> {
        if self.interrupt.end().is_some() { Err(MeasureError::Stopped.into()) } else { Ok(()) }
    }

    /// Prints a device that was not printed before.
    fn announce(&mut self, volume: &Volume) -> Result<(), Failure> {
        let name = volume.path().device.to_string();
        if !self.announced.contains(&name) {
            device::announce(volume, "", false, &Text::commented(self.text))?;
            self.announced.push(name);
        }
        Ok(())
    }

    /// Leaves out jobs that would find other data than they expect, because another job writes it at the same time. Jobs that
    /// verify write the same data to a block, and do not disturb one another.
    fn leave_out_false_errors(&mut self, ready: &mut Vec<Ready<'_, '_>>) -> Result<(), Failure> {
        let disturbs = |checked: &Ready<'_, '_>, other: &Ready<'_, '_>| {
            checked.checks() && other.bench.job().writes() && !other.bench.job().verify && checked.overlaps(other)
        };
        let refused: Vec<_> = ready
            .iter()
            .filter_map(|checked| {
                let other = &ready.iter().find(|other| disturbs(checked, other))?.fio.name;
                let text = format!(
                    "verify: `{other}` writes other data to the same blocks at the same time; give `{other}` verify, too, or another offset, or write stonewall between the two"
                );
                Some((checked.number, about(&[checked.fio], Failure::Error(text))))
            })
            .collect();
        ready.retain(|job| refused.iter().all(|(number, _)| *number != job.number));
        refused.into_iter().try_for_each(|(_, failure)| self.failures.add(failure))
    }

    /// Prints the jobs, and warns of those that have fewer commands in flight than they ask for.
    fn describe_all(&self, ready: &[Ready<'_, '_>]) -> Result<(), Failure> {
        for job in ready {
            warn_of_depth(job.bench.in_flight());
            let name = format!("# {}: ", job.fio.name);
            let (settings, in_flight) = (job.bench.job().settings(), job.bench.in_flight());
            self.text.line(format_args!("{}", head_of(&name, &settings, in_flight)))?;
        }
        for job in ready {
            let sharers: Vec<_> = ready.iter().filter(|other| std::ptr::eq(other.volume, job.volume)).collect();
            let asked: u64 = sharers.iter().map(|other| other.bench.in_flight().effective).sum();
            let holds = job.bench.queues_hold();
            if sharers[0].number == job.number && asked > holds {
                let names: Vec<&str> = sharers.iter().map(|other| other.fio.name.as_str()).collect();
                output::warn(format_args!(
                    "{}: {asked} commands in flight at the same time, and the queues of {} hold {holds}; raise --queues or --depth",
                    names.join(", "),
                    job.volume.path().device
                ));
            }
        }
        Ok(())
    }

    /// Fills the devices as the jobs need it, before any of them starts. Leaves out jobs for which that fails.
    fn fill(&mut self, ready: &mut Vec<Ready<'_, '_>>) -> Result<(), Failure> {
        self.interrupt.doing("measuring");
        let mut filled: Vec<(&Volume, Option<(u64, u64)>)> = Vec::new();
        let mut failed = Vec::new();
        for job in ready.iter() {
            let known = filled.iter().position(|(volume, _)| std::ptr::eq(*volume, job.volume));
            let at = known.unwrap_or(filled.len());
            if known.is_none() {
                filled.push((job.volume, None));
            }
            if let Err(e) = fill(&job.bench, &mut filled[at].1, self.interrupt) {
                self.goes_on()?;
                self.failures.add(about(&[job.fio], e.into()))?;
                failed.push(job.number);
            }
        }
        ready.retain(|job| !failed.contains(&job.number));
        Ok(())
    }

    /// Measures all jobs, `--runs` times, unless one fails.
    fn measure(&mut self, ready: &mut [Ready<'_, '_>]) -> Result<(), Failure> {
        let origin = *self.started.get_or_insert_with(Instant::now);
        let since = origin.elapsed();
        for _ in 0..self.args.runs {
            let schedule = |job: &Ready<'_, '_>| job.fio.startdelay.saturating_sub(since);
            let jobs: Vec<_> = ready.iter().map(|job| Scheduled { bench: &job.bench, delay: schedule(job) }).collect();
            let results = together::run(&jobs, origin);
            let mut failed: Vec<(&FioJob, &Volume, MeasureError)> = Vec::new();
            for (job, result) in ready.iter_mut().zip(results) {
                match result {
                    Ok(run) => job.runs.push(run),
                    // Runs that were complete before an interrupt are in the report.
                    Err(e) => failed.push((job.fio, job.volume, e)),
                }
            }
            if failed.is_empty() {
                continue;
            }
            if self.interrupt.end().is_none() {
                ready
                    .iter_mut()
                    .filter(|job| failed.iter().any(|f| std::ptr::eq(f.0, job.fio)))
                    .for_each(|job| job.runs.clear());
                self.tell(&failed)?;
            }
            break;
        }
        Ok(())
    }

    /// Prints the failures of jobs. Kernels of one device share a log of errors: one of them ends all.
    fn tell(&mut self, failed: &[(&FioJob, &Volume, MeasureError)]) -> Result<(), Failure> {
        let is_shared = |e: &MeasureError| matches!(e, MeasureError::Run(RunError::Operations { .. }));
        for (i, (fio, volume, e)) in failed.iter().enumerate() {
            let with = |other: &&(&FioJob, &Volume, MeasureError)| {
                std::ptr::eq(other.1, *volume) && is_shared(e) && is_shared(&other.2)
            };
            if failed[..i].iter().any(|other| with(&other)) {
                continue;
            }
            let others = failed[i + 1..].iter().filter(with).map(|other| other.0);
            let jobs: Vec<&FioJob> = std::iter::once(*fio).chain(others).collect();
            self.failures.add(about(&jobs, Failure::Error(with_remedy(e))))?;
        }
        Ok(())
    }

    /// Reads what jobs that verify have written, when all jobs have ended. Returns the jobs that have figures, each with the
    /// line about this check.
    fn read_back<'f>(&mut self, ready: Vec<Ready<'f, '_>>) -> Result<Vec<(Finished<'f>, Option<String>)>, Failure> {
        let mut measured = Vec::new();
        for job in ready {
            let Ready { fio, volume, bench, runs, .. } = job;
            let (job, in_flight) = (bench.job().clone(), bench.in_flight().effective);
            // Its buffer is free for the check.
            drop(bench);
            if runs.is_empty() {
                continue;
            }
            let checks = fio.verify.as_ref().is_some_and(|verify| verify.after_writes) && !job.reads();
            let read = if checks && self.interrupt.end().is_none() { read_back(fio, &job, volume) } else { Ok(None) };
            match read {
                Ok(line) => {
                    let device = volume.path().device.to_string();
                    measured.push((Finished { fio, job, device, in_flight, runs }, line));
                }
                Err(e) if self.interrupt.end().is_none() => self.failures.add(about(&[fio], e.into()))?,
                Err(_) => {}
            }
        }
        Ok(measured)
    }

    /// Adds the rows and prints the figures. Fails if the program is to end.
    fn report(&mut self, measured: Vec<(Finished<'_>, Option<String>)>, jobs: usize) -> Result<(), Failure> {
        let (finished, checks): (Vec<_>, Vec<_>) = measured.into_iter().unzip();
        let first = self.rows.len();
        self.rows.extend(group::rows(&finished));
        for row in &self.rows[first..] {
            if jobs > 1 {
                let name = row.name.clone().unwrap_or_default();
                let names = if row.jobs.is_empty() { name } else { row.jobs.join(", ") };
                self.text.line(format_args!("{names}:"))?;
            }
            describe(row, self.text)?;
        }
        for (job, check) in finished.iter().zip(&checks) {
            let of = if jobs > 1 { format!("{}: ", job.fio.name) } else { String::new() };
            check.iter().try_for_each(|check| self.text.line(format_args!("  {of}{check}")))?;
        }
        self.goes_on()
    }
}

/// Returns the measurement of a job on its opened device, beside the other kernels of the batch.
fn prepare<'v>(fio: &FioJob, volume: &'v Volume, kernels: u32) -> Result<NvmeBench<'v>, Failure> {
    let job = fio_job::of(fio, volume.bytes(), volume.block_bytes() as u64).map_err(Failure::Error)?;
    Ok(NvmeBench::beside(volume, job, kernels)?)
}

/// Reads what a job that verifies has written, and checks it. Returns the line about it; `None` if the job may not have written
/// all.
fn read_back(fio: &FioJob, job: &NvmeJob, volume: &Volume) -> Result<Option<String>, MeasureError> {
    if job.io_bytes.is_none_or(|bytes| bytes < job.pass_bytes()) || job.skip_bytes > 0 || job.norandommap {
        output::warn(format_args!(
            "{}: the job may have left blocks of its region as they were, and what it wrote is not read back; leave time_based, norandommap and small amounts out",
            fio.name
        ));
        return Ok(None);
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
    Ok(Some(format!("verified: {} read back, with the data that was written", Bytes(job.pass_bytes()))))
}
