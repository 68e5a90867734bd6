//! Runs the part of `warpbell bench nvme --compare cufile` that is about cuFile.

use crate::args::NvmeArgs;
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text};
use crate::workloads::cufile::{self, Api, Cufile, CufileJob, CufileRow, Facts, Shape};
use crate::workloads::error::MeasureError;
use crate::workloads::fio::Direction;
use crate::workloads::nvme::{NvmeJob, NvmeRun};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use warpbell::engine::Engine;
use warpbell::spec::Name;
use warpbell::units::{decimal_rate, si, three_digits};

/// A comparison that is prepared: the file of the device, and the loaded library.
pub struct Comparison {
    cufile: Cufile,
    path: PathBuf,
    direct: bool,
    threads: Option<u32>,
    /// The file, if this program created it.
    _created: Option<Created>,
}

/// A file that is removed at the end.
struct Created(PathBuf);

impl Drop for Created {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a file of the comparison was not removed");
        }
    }
}

/// Figures of cuFile for the JSON report.
#[derive(Debug, Serialize)]
pub struct Compared {
    #[serde(flatten)]
    facts: Facts,
    /// True if the file was opened with O_DIRECT.
    direct: bool,
    rows: Vec<Entry>,
}

/// Figures of one interface: the median run, or the reason why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Entry {
    Measured(Box<CufileRow>),
    Failed { api: Api, error: String },
}

impl Comparison {
    /// Finds the device's file, creates it with `bytes` bytes if the job writes, and loads libcufile. Called before the
    /// engine has threads.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the device is not one file of a software controller, [`Failure::Error`] if the library
    /// cannot be loaded or the file cannot be created.
    pub fn prepare(args: &NvmeArgs, bytes: u64, writes: bool) -> Result<Self, Failure> {
        let (path, direct) = subject(args)?;
        // SAFETY: the threads of this program at this point (signals, `--timeout`) do not use the environment.
        let cufile = unsafe { Cufile::load() }?;
        let created = if writes { create(&path, bytes).map_err(|e| Failure::about(path.display(), e))? } else { None };
        Ok(Self { cufile, path, direct, threads: args.compare_threads, _created: created })
    }

    /// Measures all interfaces and prints the table, with the figures of warpbell first.
    ///
    /// # Errors
    /// [`Failure::Error`] if the library cannot be opened or the user stopped the program. The second result is the error
    /// if an interface failed.
    pub fn run(
        self,
        engine: &Engine,
        (job, in_flight, own): (NvmeJob, u64, &NvmeRun),
        (block_bytes, runs): (usize, u32),
        text: &Text,
        interrupt: &Interrupt,
    ) -> Result<(Compared, Option<Failure>), Failure> {
        interrupt.doing("opening cuFile");
        let session = self.cufile.open().map_err(MeasureError::from)?;
        let facts = session.facts();
        for line in facts.to_string().lines() {
            text.line(format_args!("# {line}"))?;
        }
        let opened = if self.direct { "with O_DIRECT" } else { "through the page cache" };
        text.line(format_args!("# file {}, which cuFile opens {opened}", self.path.display()))?;
        interrupt.doing("measuring cuFile");
        text.line(format_args!("{}", head()))?;
        rows("warpbell", in_flight, own).iter().try_for_each(|row| text.line(format_args!("{row}")))?;
        let of =
            CufileJob { path: &self.path, direct: self.direct, job: job.clone(), block_bytes, threads: self.threads };
        let (mut entries, mut failures, mut unregistered) = (Vec::new(), Vec::new(), None);
        for api in Api::ALL {
            let measured: Result<Vec<CufileRow>, _> =
                (0..runs).map(|_| cufile::measure(&session, engine, &of, api)).collect();
            match measured {
                Ok(mut all) => {
                    all.sort_by(|a, b| a.run.iops().total_cmp(&b.run.iops()));
                    let median = all.swap_remove(all.len() / 2);
                    let lines = rows(&median.shape.words(api), median.shape.in_flight().into(), &median.run);
                    lines.iter().try_for_each(|row| text.line(format_args!("{row}")))?;
                    unregistered = unregistered.or_else(|| median.unregistered.clone());
                    entries.push(Entry::Measured(Box::new(median)));
                }
                Err(e @ MeasureError::Stopped) => return Err(e.into()),
                Err(e) => {
                    let name = Shape::of(api, job.in_flight(), self.threads, facts.max_batch).words(api);
                    text.line(format_args!("{name:<NAME_WIDTH$} failed: {e}"))?;
                    failures.push(format!("{name}: {e}"));
                    entries.push(Entry::Failed { api, error: e.to_string() });
                }
            }
        }
        if let Some(reason) = unregistered {
            text.line(format_args!("# the memory is not registered with cuFile: {reason}"))?;
        }
        if job.verify && job.reads() && failures.is_empty() {
            text.line(format_args!("  verified: every block that cuFile read has the data that was written"))?;
        }
        let failure = failures.first().map(|first| {
            Failure::Error(format!("{} of {} interfaces of cuFile failed; {first}", failures.len(), Api::ALL.len()))
        });
        Ok((Compared { facts, direct: self.direct, rows: entries }, failure))
    }
}

/// Returns the path of the device's file, and true if the device bypasses the page cache.
fn subject(args: &NvmeArgs) -> Result<(PathBuf, bool), Failure> {
    let usage = |found: &str| {
        Failure::Usage(format!(
            "--compare cufile needs one file that both can open, and {found}; give one --device soft:FILE"
        ))
    };
    let device = &args.device;
    let [one] = &device.devices[..] else {
        return Err(usage(if device.devices.is_empty() { "soft:mem is none" } else { "several devices are given" }));
    };
    if device.stripe.is_some_and(|n| n > 1) {
        return Err(usage("a stripe has several"));
    }
    let spec = one.spec()?.spec();
    match spec.name() {
        _ if spec.options().iter().any(|o| o.key() == "file") => Err(usage("this controller has several")),
        Name::SoftFile(path) => Ok((path.clone(), spec.options().iter().any(|o| o.key() == "direct"))),
        Name::Memory { .. } => Err(usage("memory is none")),
        Name::QtestFile(_) => Err(usage("QEMU holds this one")),
        Name::Controller(_) | Name::Remote(_) => {
            Err(usage("the kernel has no file on a controller that this program drives"))
        }
    }
}

/// Creates a file without data unless it exists. A device that makes a new file would give it its name only later.
fn create(path: &Path, bytes: u64) -> io::Result<Option<Created>> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => {
            let created = Created(path.to_owned());
            file.set_len(bytes)?;
            Ok(Some(created))
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(e) => Err(e),
    }
}

/// Width of the column of names.
const NAME_WIDTH: usize = 32;

fn head() -> String {
    format!(
        "# {:<30}{:>10}{:>7}{:>10}{:>12}{:>11}{:>11}",
        "interface", "in flight", "", "IOPS", "bandwidth", "mean us", "p99 us"
    )
}

/// Returns the lines of the table for one interface: one for each direction.
fn rows(name: &str, in_flight: u64, run: &NvmeRun) -> Vec<String> {
    let micro = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| three_digits(ns / 1e3));
    let row = |d: &Direction| {
        let latency = d.latency.as_ref();
        let p99 = latency.and_then(|l| l.percentiles_ns.iter().find(|(p, _)| *p == 99.0)).map(|(_, ns)| *ns as f64);
        format!(
            "{name:<NAME_WIDTH$}{in_flight:>10}{:>7}{:>10}{:>12}{:>11}{:>11}",
            d.direction,
            si(d.iops),
            decimal_rate(d.bytes_per_s),
            micro(latency.map(|l| l.mean_ns)),
            micro(p99)
        )
    };
    [&run.read, &run.write].into_iter().flatten().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rows_stand_below_their_heads() {
        let read = Direction::new("read", 1_000_000, 4_096_000_000, Duration::from_secs(2), None);
        let run = NvmeRun { read: Some(read), ..NvmeRun::default() };
        let rows = rows("cuFile, 32 streams of 8", 256, &run);
        assert_eq!(rows[0].len(), head().len());
        for words in ["cuFile, 32 streams of 8 ", " 256 ", "read", "500k", "2.05GB/s", " - "] {
            assert!(format!("{} ", rows[0]).contains(words), "no `{words}` in {}", rows[0]);
        }
    }
}
