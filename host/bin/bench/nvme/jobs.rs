//! Runs the jobs of a fio job file: those between two stonewalls at the same time.

use super::batch::{Failures, Measurement};
use super::devices::Engines;
use super::write;
use crate::args::NvmeArgs;
use crate::interrupt::Interrupt;
use crate::job_file::{self, FioJob, JobFile};
use crate::output::{Failure, Text};
use serde_json::json;
use std::path::Path;
use warpbell::cuda::{CONNECTIONS_VARIABLE, MOST_CONNECTIONS};
use warpbell::engine::Engine;

/// Reads the job file, measures its jobs, and prints the figures.
///
/// # Errors
/// * [`Failure::Usage`] if a GPU does not run so many jobs at the same time, or `--section` names none.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Printed`] if jobs failed, whose errors were printed. The others are in the report.
/// * [`Failure::Error`] if the file cannot be read or has an error, or an engine cannot be opened.
pub fn run(args: &NvmeArgs, path: &Path, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.output)?;
    let file = job_file::read(path)?;
    let jobs = chosen(&file, &args.section)?;
    let batches: Vec<&[&FioJob]> = jobs.chunk_by(|_, next| !next.stonewall).collect();
    let engines = Engines::open(&args.engine)?;
    let engine = engines.one().clone();
    check_kernels(&batches, &engine)?;
    text.line(format_args!("# warpbell {}  bench nvme  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    for note in file.notes() {
        text.line(format_args!("# {}: {}", note.place, note.text))?;
    }
    for option in &file.unapplied {
        text.line(format_args!("# {option}"))?;
    }
    let _stop = interrupt.stops(&engine);
    let mut measurement = Measurement {
        args,
        text: &text,
        interrupt,
        engines,
        started: None,
        announced: Vec::new(),
        rows: Vec::new(),
        path: None,
        failures: Failures::default(),
    };
    let measured = batches.into_iter().try_for_each(|jobs| measurement.batch(jobs));
    let Measurement { rows, path, failures, .. } = measurement;
    // The figures of jobs that did not fail are written all the same.
    let written = match path {
        Some(path) if !rows.is_empty() => {
            write(args, &engine, path, json!({ "runs": args.runs, "swept": ["name"] }), rows)
        }
        _ => Ok(()),
    };
    measured.and(written).and(failures.end())
}

/// Returns the jobs of the sections that are named, or all.
fn chosen<'f>(file: &'f JobFile, sections: &[String]) -> Result<Vec<&'f FioJob>, Failure> {
    if let Some(absent) = sections.iter().find(|name| !file.jobs.iter().any(|job| job.section == **name)) {
        let known: Vec<&str> = file.jobs.iter().map(|job| job.section.as_str()).collect();
        return Err(Failure::Usage(format!("no section is called `{absent}`; there are: {}", known.join(", "))));
    }
    Ok(file.jobs.iter().filter(|job| sections.is_empty() || sections.contains(&job.section)).collect())
}

/// Checks that a GPU runs the kernels of each batch at the same time. Others would wait for the end of those, and have figures
/// of another load.
fn check_kernels(batches: &[&[&FioJob]], engine: &Engine) -> Result<(), Failure> {
    let Some(gpu) = engine.space().gpu_context() else { return Ok(()) };
    let most = gpu.kernels_side_by_side();
    let Some(batch) = batches.iter().find(|batch| batch.len() > most) else { return Ok(()) };
    let more = match most + 1 < MOST_CONNECTIONS {
        true => format!(", or set {CONNECTIONS_VARIABLE}={MOST_CONNECTIONS}"),
        false => String::new(),
    };
    Err(Failure::Usage(format!(
        "{}: {} jobs at the same time, and the GPU runs {most} kernels side by side; write stonewall between some, choose some by --section, or make equal ones by numjobs{more}",
        batch[0].place,
        batch.len()
    )))
}
