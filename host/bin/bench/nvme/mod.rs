//! Runs `warpbell bench nvme`: one measurement, or one for each point of a sweep.

mod batch;
mod beside;
mod devices;
mod fio_job;
mod fio_json;
mod group;
mod jobs;
mod sweep;

use super::compare::{Compared as CufileFigures, Comparison};
use crate::args::{ChartKind, Compared, NvmeArgs, ReportFormat};
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text};
use crate::progress::Loading;
use crate::reports;
use crate::rows::Rows;
use crate::workloads::error::MeasureError;
use crate::workloads::fio::Direction;
use crate::workloads::nvme::{DepthLimit, InFlight, NvmeBench, NvmeJob, NvmeRun};
use crate::workloads::report::{PathReport, Report};
use crate::workloads::spread::Spread;
use crate::{chart, compare};
use crate::{device, engine, output};
use beside::Beside;
use serde::Serialize;
use serde_json::{Value, json};
use sweep::Sweep;
use warpbell::engine::Engine;
use warpbell::storage::Volume;
use warpbell::units::{Bytes, BytesOrShare, si};

/// Size in bytes of a memory device on a GPU engine, if no size is given.
const GPU_DEVICE: u64 = 1 << 30;
/// Size in bytes of a memory device on a CPU engine, if no size is given.
const CPU_DEVICE: u64 = 64 << 20;

/// Results of one job.
#[derive(Debug, Serialize)]
struct Row {
    /// Name of the job in its job file.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Number of the job's group in its job file, as fio counts groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    /// Names of all jobs of a group that has one row. `job` is the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    jobs: Vec<String>,
    /// Device of the job of a job file; of a group that of its first job.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    job: NvmeJob,
    /// Commands in flight, after the limits of threads and queues.
    in_flight: u64,
    /// Commands per second of all runs.
    iops: Option<Spread>,
    /// All runs, the slowest first.
    runs: Vec<NvmeRun>,
    /// Figures of cuFile beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    cufile: Option<CufileFigures>,
    /// Comparison with a program that was measured in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<Value>,
}

/// One run in one direction, as a row of `--csv`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    job: &'a NvmeJob,
    in_flight: u64,
    /// Number of the run, from 1 for the slowest.
    run: usize,
    verified: bool,
    #[serde(flatten)]
    figures: Direction,
}

impl Row {
    /// Returns the results of these runs of a job.
    fn of(job: &NvmeJob, in_flight: u64, mut runs: Vec<NvmeRun>) -> Self {
        let iops = Spread::of(runs.iter().map(NvmeRun::iops));
        runs.sort_by(|a, b| a.iops().total_cmp(&b.iops()));
        let (name, group, jobs, device) = (None, None, Vec::new(), None);
        Self { name, group, jobs, device, job: job.clone(), in_flight, iops, runs, cufile: None, beside: None }
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let line = |(i, run): (usize, &'_ NvmeRun), figures: &Direction| Line {
            name: self.name.as_deref(),
            job: &self.job,
            in_flight: self.in_flight,
            run: i + 1,
            verified: run.verified,
            figures: Direction { time_series: None, ..figures.clone() },
        };
        let both = |(i, run): (usize, &NvmeRun)| {
            [&run.read, &run.write].into_iter().flatten().map(|d| line((i, run), d)).collect::<Vec<_>>()
        };
        self.runs.iter().enumerate().flat_map(both).collect()
    }

    /// Returns the run in the middle.
    fn median(&self) -> &NvmeRun {
        &self.runs[self.runs.len() / 2]
    }
}

/// Measures a device and prints the figures.
///
/// # Errors
/// * [`Failure::Usage`] if options contradict each other.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if the engine, the device or a measurement fails, or data is wrong.
pub fn run(args: &NvmeArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let args = &with_filename(args)?;
    if let Some(file) = &args.job {
        return jobs::run(args, file, interrupt);
    }
    let text = Text::of_measurement(&args.output)?;
    let sweep = Sweep::of(args);
    // A memory device is filled first, so that reads find data. Other devices are opened read-only unless a job writes.
    let writes = sweep.writes() || args.verify;
    let comparison = match args.compare {
        Some(Compared::Cufile) => {
            sweep.lists().is_one_point_for("--compare")?;
            Some(Comparison::prepare(args, device_bytes(args, CPU_DEVICE), writes)?)
        }
        None => None,
    };
    let engine = engine::open(&args.engine)?;
    text.line(format_args!("# warpbell {}  bench nvme  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    let _stop = interrupt.stops(&engine);
    let bytes = device_bytes(args, if engine.is_gpu() { GPU_DEVICE } else { CPU_DEVICE });
    interrupt.doing("opening the device");
    let volume = device::measured(&args.device, &engine, bytes, Bytes(sweep.most_bytes()), writes)?;
    interrupt.doing("measuring");
    device::announce(&volume, "", false, &Text::commented(&text))?;
    let beside = match &args.beside {
        Some(command) => {
            sweep.lists().is_one_point_for("--beside")?;
            Some(Beside::new(command, &engine))
        }
        None => None,
    };
    let mut session = Session { interrupt, runs: args.runs, filled: None, beside };
    let mut rows = Vec::new();
    let measured = measure_points(args, &sweep, &volume, &mut session, &mut rows, &text);
    let config = json!({ "runs": args.runs, "swept": sweep.lists().swept() });
    if measured.is_err() {
        // Points before a failure are written all the same, and the failure is the error.
        let path = device::path_after(&volume).unwrap_or_else(|_| device::path(&volume));
        return measured.and(if rows.is_empty() { Ok(()) } else { write(args, &engine, path, config, rows) });
    }
    if sweep.lists().is_swept() && args.verify {
        text.line(format_args!("# verified: every block that was read has the data that was written"))?;
    }
    let taken = device::path_after(&volume)?;
    if taken.redundancy.is_some() {
        text.line(format_args!("{}", device::copies(&taken)))?;
    }
    let compared = match (comparison, &rows[..]) {
        (Some(comparison), [row]) => {
            // The device's service threads sleep meanwhile.
            let measured = (row.job.clone(), row.in_flight, row.median());
            Some(comparison.run(&engine, measured, (volume.block_bytes(), args.runs), &text, interrupt)?)
        }
        _ => None,
    };
    let (figures, failure) = compared.unzip();
    if let (Some(row), figures @ Some(_)) = (rows.first_mut(), figures) {
        row.cufile = figures;
    }
    let mut failure = failure.flatten();
    if let Some(beside) = session.beside.take() {
        let report = Report::new(&config, &engine, Some(taken.clone()), &rows);
        let own = reports::of_document("bench nvme", &output::document("bench nvme", &report)?)?;
        match beside.finish().and_then(|other| compare::in_turn(own, other, &text)) {
            Ok(compared) => rows.iter_mut().for_each(|row| row.beside = Some(compared.clone())),
            // The figures that were measured are written all the same.
            Err(e) => failure = Some(e),
        }
    }
    write(args, &engine, taken, config, rows)?;
    failure.map_or(Ok(()), Err)
}

/// Measures all points, adds a row for each, and prints the figures.
fn measure_points(
    args: &NvmeArgs,
    sweep: &Sweep,
    volume: &Volume,
    session: &mut Session<'_>,
    rows: &mut Vec<Row>,
    text: &Text,
) -> Result<(), Failure> {
    for job in sweep.jobs(args, volume.bytes())? {
        let bench = NvmeBench::new(volume, job)?;
        warn_of_depth(bench.in_flight());
        if rows.is_empty() {
            let mut settings = bench.job().settings();
            settings.retain(|(name, _)| !sweep.lists().swept().contains(name));
            text.line(format_args!("{}", head_of("# ", &settings, bench.in_flight())))?;
            if sweep.lists().is_swept() {
                text.line(format_args!("{}", sweep.head()))?;
            }
        }
        let row = session.measure(&bench)?;
        let printed = match sweep.lists().is_swept() {
            true => sweep.lines(&row).iter().try_for_each(|line| text.line(format_args!("{line}"))),
            false => describe(&row, text),
        };
        rows.push(row);
        printed?;
    }
    Ok(())
}

/// Writes the rows as the options ask.
fn write(args: &NvmeArgs, engine: &Engine, path: PathReport, config: Value, rows: Vec<Row>) -> Result<(), Failure> {
    if let Some(to) = &args.output.csv {
        output::write_rows(&Rows::of(rows.iter().flat_map(Row::lines))?, to)?;
    }
    let report = Report::new(config, engine, Some(path.clone()), &rows);
    match (&args.output.report.json, args.output_format) {
        (None, _) => {}
        (Some(to), ReportFormat::FioJson) => output::write_document(&fio_json::document(&rows, engine, &path), to)?,
        (Some(to), ReportFormat::Warpbell) => output::write_json("bench nvme", &report, to)?,
    }
    // Last: figures that make no chart are in the files all the same.
    if let Some(to) = &args.chart {
        let name = "bench nvme".to_owned();
        chart::write(to, &[(name, output::document("bench nvme", &report)?)], ChartKind::Auto)?;
    }
    Ok(())
}

/// Measurements of one run of the program.
struct Session<'a> {
    interrupt: &'a Interrupt,
    /// Measurements of each job.
    runs: u32,
    /// Part of the device that has the data which a check expects.
    filled: Option<(u64, u64)>,
    /// Program that is measured in turn.
    beside: Option<Beside<'a>>,
}

impl Session<'_> {
    /// Fills the device if the job needs it, and measures.
    fn measure(&mut self, bench: &NvmeBench<'_>) -> Result<Row, Failure> {
        fill(bench, &mut self.filled, self.interrupt)?;
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            runs.push(bench.run()?);
            if let Some(beside) = &mut self.beside {
                self.interrupt.doing("measuring another program");
                beside.turn()?;
                self.interrupt.doing("measuring");
            }
        }
        Ok(Row::of(bench.job(), bench.in_flight().effective, runs))
    }
}

/// Fills the device if the job needs it. `filled` is the part that has the data which a check expects.
fn fill(bench: &NvmeBench<'_>, filled: &mut Option<(u64, u64)>, interrupt: &Interrupt) -> Result<(), MeasureError> {
    let job = bench.job();
    let region = (job.offset_bytes, job.offset_bytes + job.size_bytes);
    let has = |filled: (u64, u64)| filled.0 <= region.0 && region.1 <= filled.1;
    if bench.needs_fill() && !filled.is_some_and(has) {
        let bar = Loading::new();
        interrupt.doing("filling the device");
        bench.fill(|done, total| bar.filled(done, total))?;
        interrupt.doing("measuring");
        *filled = Some(region);
    }
    // Writes without a check leave other data.
    if job.writes() && !job.verify {
        *filled = None;
    }
    Ok(())
}

/// Returns the arguments with the file that `--filename` names as the device.
fn with_filename(args: &NvmeArgs) -> Result<NvmeArgs, Failure> {
    let mut args = args.clone();
    if args.filename.is_some() && !args.device.devices.is_empty() {
        return Err(Failure::Usage("--filename and a device are two devices; leave one of them out".to_owned()));
    }
    args.device.devices.extend(args.filename.clone());
    Ok(args)
}

/// Returns the bytes that a device needs for all points, or `default` where nothing gives bytes.
fn device_bytes(args: &NvmeArgs, default: u64) -> u64 {
    // Shares are of a device that has the default size.
    let end = |bytes: &BytesOrShare| match bytes {
        BytesOrShare::Bytes(bytes) => Some(bytes.0),
        BytesOrShare::Share(_) => None,
    };
    let most =
        |list: &[BytesOrShare]| list.iter().map(end).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
    let offset = args.offset.iter().filter_map(end).max().unwrap_or(0);
    most(&args.size).map_or(default.saturating_add(offset), |size| size.saturating_add(offset))
}

/// Returns the line about the job. `depth` tells the commands in flight if they differ from what was asked for.
fn head_of(before: &str, settings: &[(&'static str, String)], depth: InFlight) -> String {
    let words: Vec<String> = settings
        .iter()
        .map(|(name, value)| match *name {
            "iodepth" if depth.reason.is_some() => format!("{name} {value} ({} in flight)", depth.effective),
            _ => format!("{name} {value}"),
        })
        .collect();
    format!("{before}{}", words.join("  "))
}

fn warn_of_depth(depth: InFlight) {
    if let Some(reason) = depth.reason {
        let more = match reason {
            DepthLimit::Queues { .. } => "raise --queues or --depth",
            _ => "raise --threads",
        };
        let (asked, has) = (depth.requested, depth.effective);
        output::warn(format_args!("--iodepth {asked}: {has} commands are in flight, because {reason}; {more}"));
    }
}

/// Prints a measurement that stands alone.
fn describe(row: &Row, text: &Text) -> Result<(), Failure> {
    let median = row.median();
    text.line(format_args!("{median}"))?;
    if median.verified {
        text.line(format_args!("  verified: every block that was read has the data that was written"))?;
    }
    if let (Some(s), true) = (row.iops, row.runs.len() > 1) {
        let (n, min, max) = (row.runs.len(), si(s.min), si(s.max));
        text.line(format_args!(
            "  {n} runs: IOPS min {min}, median {}, max {max}; the run above is the middle one",
            si(s.median)
        ))?;
    }
    Ok(())
}
