//! Runs `warpbell bench gather`: one measurement, or one for each point of a sweep.

mod points;
mod sweep;

use crate::args::{ChartKind, GatherArgs};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::progress::Loading;
use crate::rows::Rows;
use crate::workloads::gather::{self, GatherBench, GatherJob, GatherRun, Overlap, TABLE};
use crate::workloads::multiprocessors;
use crate::workloads::report::{PathReport, Report};
use crate::workloads::spread::Spread;
use crate::{chart, device, engine};
use points::{Planned, Setting};
use serde::Serialize;
use serde_json::{Value, json};
use sweep::Sweep;
use warpbell::engine::Engine;
use warpbell::storage::{StorageError, Table, Volume};
use warpbell::units::{Bytes, grouped, si};

/// Results of one point.
#[derive(Debug, Serialize)]
struct Row {
    job: GatherJob,
    /// Rows per second of all runs.
    rows_per_s: Option<Spread>,
    /// True: a wrong row is an error, without a report.
    verified: bool,
    /// All runs, in order.
    runs: Vec<GatherRun>,
    overlap: Option<Overlap>,
}

/// One run, as a row of `--csv`.
#[derive(Serialize)]
struct Line<'a> {
    job: &'a GatherJob,
    /// Number of the run, from 1.
    run: usize,
    #[serde(flatten)]
    figures: &'a GatherRun,
}

impl Row {
    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        (1..).zip(&self.runs).map(|(run, figures)| Line { job: &self.job, run, figures })
    }

    /// Returns the run in the middle, by its rate.
    fn median(&self) -> Option<&GatherRun> {
        let mut ordered: Vec<&GatherRun> = self.runs.iter().collect();
        ordered.sort_by(|a, b| a.rows_per_s.total_cmp(&b.rows_per_s));
        ordered.get(ordered.len() / 2).copied()
    }
}

/// Fills tables, measures gathers of their rows and prints the figures.
///
/// # Errors
/// * [`Failure::Usage`] if options contradict each other.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if a file, the engine, a device or a measurement fails, or a row is wrong.
pub fn run(args: &GatherArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.output)?;
    let sweep = Sweep::of(args);
    if args.overlap {
        sweep.lists().is_one_point_for("--overlap")?;
    }
    let points = sweep.points()?;
    let engine = engine::open(&args.engine)?;
    let _stop = interrupt.stops(&engine);
    points.iter().try_for_each(|point| multiprocessors::checked(&engine, point.sms).map(drop))?;
    let setting = Setting::new(args, engine.is_gpu())?;
    interrupt.doing("choosing the rows");
    let planned = setting.plan(points, args)?;
    text.line(format_args!("# warpbell {}  bench gather  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    interrupt.doing("opening the device");
    let volume = open(args, &engine, &planned)?;
    points::check_room(&planned, &volume)?;
    device::announce(&volume, "", false, &Text::commented(&text))?;
    describe(&text, &planned, &setting, &sweep)?;
    if sweep.lists().is_swept() {
        text.line(format_args!("{}", sweep.head()))?;
    }
    let mut session = Session { volume: &volume, interrupt, runs: args.runs, overlap: args.overlap, filled: None };
    let mut rows = Vec::new();
    let measured = planned.iter().try_for_each(|planned| {
        let row = session.measure(planned)?;
        let (point, median) = (&planned.point, row.median());
        let printed = match (sweep.lists().is_swept(), median) {
            (true, Some(median)) => text.line(format_args!("{}", sweep.line(point, median))),
            _ => print(&row, &text),
        };
        rows.push(row);
        printed
    });
    // A file is left without the table, so that the next measurement can be made there.
    let removed = if volume.is_in_memory() { Ok(()) } else { session.remove() };
    let measured = measured.and(removed);
    let config = json!({
        "shape": args.shape,
        "indices": setting.choice.to_string(),
        "fanout": planned.first().and_then(|planned| planned.indices.fanout()),
        "runs": args.runs,
        "swept": sweep.lists().swept(),
    });
    if measured.is_err() {
        // Points before a failure are written all the same, and the failure is the error.
        let path = device::path_after(&volume).unwrap_or_else(|_| device::path(&volume));
        return measured.and(if rows.is_empty() { Ok(()) } else { write(args, &engine, path, config, &rows) });
    }
    if sweep.lists().is_swept() {
        text.line(format_args!("# verified: every byte of every row"))?;
    }
    let taken = device::path_after(&volume)?;
    if taken.redundancy.is_some() {
        text.line(format_args!("{}", device::copies(&taken)))?;
    }
    write(args, &engine, taken, config, &rows)
}

/// Writes the rows as the options ask.
fn write(args: &GatherArgs, engine: &Engine, path: PathReport, config: Value, rows: &[Row]) -> Result<(), Failure> {
    if let Some(to) = &args.output.csv {
        output::write_rows(&Rows::of(rows.iter().flat_map(Row::lines))?, to)?;
    }
    let report = Report::new(config, engine, Some(path), rows);
    if let Some(to) = &args.output.report.json {
        output::write_json("bench gather", &report, to)?;
    }
    // Last: figures that make no chart are in the files all the same.
    if let Some(to) = &args.chart {
        let document = output::document("bench gather", &report)?;
        chart::write(to, &[("bench gather".to_owned(), document)], ChartKind::Auto)?;
    }
    Ok(())
}

/// Measurements of one run of the program.
struct Session<'a> {
    volume: &'a Volume,
    interrupt: &'a Interrupt,
    /// Measurements of each point.
    runs: u32,
    overlap: bool,
    /// Rows and their bytes in the table that the volume holds.
    filled: Option<(u64, u64)>,
}

impl Session<'_> {
    /// Fills the table of a point unless it is there, and measures.
    fn measure(&mut self, planned: &Planned) -> Result<Row, Failure> {
        if self.filled != Some(planned.table()) {
            self.remove()?;
            self.interrupt.doing("filling the table");
            let bar = Loading::new();
            // A failed filling leaves something to remove, too.
            self.filled = Some(planned.table());
            gather::fill(self.volume, &planned.layout, |done, total| bar.filled(done, total))?;
        }
        self.interrupt.doing("measuring");
        let mut bench = GatherBench::new(self.volume, planned.job, planned.indices.clone())?;
        bench.warm_up()?;
        let runs = (0..self.runs).map(|_| bench.run()).collect::<Result<Vec<_>, _>>()?;
        let overlap = self.overlap.then(|| bench.overlap()).transpose()?;
        let rows_per_s = Spread::of(runs.iter().map(|run| run.rows_per_s));
        Ok(Row { job: planned.job, rows_per_s, verified: true, runs, overlap })
    }

    /// Removes the table, if there is one.
    fn remove(&mut self) -> Result<(), Failure> {
        match self.filled.take() {
            Some(_) => Ok(Table::remove(self.volume, TABLE)?),
            None => Ok(()),
        }
    }
}

/// Prints a measurement that stands alone.
fn print(row: &Row, text: &Text) -> Result<(), Failure> {
    if let Some(median) = row.median() {
        text.line(format_args!("{median}"))?;
    }
    text.line(format_args!("  verified: every byte of every row"))?;
    if let (Some(s), true) = (row.rows_per_s, row.runs.len() > 1) {
        let (n, min, max) = (row.runs.len(), si(s.min), si(s.max));
        text.line(format_args!(
            "  {n} runs: rows/s min {min}, median {}, max {max}; the run above is the middle one",
            si(s.median)
        ))?;
    }
    if let Some(overlap) = &row.overlap {
        text.line(format_args!("{overlap}"))?;
    }
    Ok(())
}

/// Opens the devices, with room for the largest table and queues for commands of whole rows. What they hold is removed if
/// `--yes-destroy` allows it.
fn open(args: &GatherArgs, engine: &Engine, planned: &[Planned]) -> Result<Volume, Failure> {
    let Some(largest) = points::largest(planned) else {
        return Err(Failure::Usage("the lists have no values; give one for each option".to_owned()));
    };
    let plan = largest.layout.plan(TABLE).map_err(StorageError::from)?;
    let transfer = planned.iter().map(Planned::transfer).max().unwrap_or_default();
    let volume = device::volume(&args.device, engine, &plan, Bytes(transfer))?;
    device::check_nothing_stored(&volume)?;
    if let Ok(manifest) = volume.manifest() {
        let names: Vec<&str> = manifest.entries().iter().map(|e| e.name.as_str()).collect();
        if !names.is_empty() {
            volume.remove(&names)?;
        }
    }
    Ok(volume)
}

/// Prints what all points have in common.
fn describe(text: &Text, planned: &[Planned], setting: &Setting, sweep: &Sweep) -> Result<(), Failure> {
    let Some(first) = planned.first() else { return Ok(()) };
    let job = &first.job;
    let is_same = |value: fn(&GatherJob) -> u64| planned.iter().all(|other| value(&other.job) == value(job));
    let table = match (is_same(|job| job.rows), is_same(|job| job.row_bytes)) {
        (true, true) => format!(
            "{} rows of {} bytes ({})",
            grouped(job.rows),
            grouped(job.row_bytes),
            Bytes(job.rows.saturating_mul(job.row_bytes))
        ),
        (true, false) => format!("{} rows", grouped(job.rows)),
        (false, true) => format!("rows of {} bytes", grouped(job.row_bytes)),
        (false, false) => "rows of several sizes".to_owned(),
    };
    let fanout = first.indices.fanout().map_or_else(String::new, |f| {
        let layers: Vec<String> = f.iter().map(u32::to_string).collect();
        format!(" fan-out {}", layers.join(","))
    });
    let swept = sweep.lists().swept();
    // Columns of the table have what is swept.
    let unless_swept = |option: &str, words: String| if swept.contains(&option) { String::new() } else { words };
    text.line(format_args!(
        "# {table}  indices {}{fanout}{}{}  seed {}",
        setting.choice,
        unless_swept("batch", format!("  batch {}", grouped(job.batch))),
        unless_swept("in-flight", format!("  in flight {}", job.in_flight)),
        job.seed
    ))?;
    let part = |name: &str, option: &str, value: fn(&GatherJob) -> u64| {
        let words = match value(job) {
            0 => "none".to_owned(),
            bytes if is_same(value) => Bytes(bytes).to_string(),
            _ => first.point.word(option),
        };
        unless_swept(option, format!("{name} {words}  "))
    };
    let cache = part("cache", "cache", |job| job.cache_bytes);
    let host = part("host cache", "host-cache", |job| job.host_cache_bytes);
    let hot = part("hot rows", "hot", |job| job.hot_bytes);
    text.line(format_args!("# {cache}{host}{hot}warm-up {}", job.warmup))
}
