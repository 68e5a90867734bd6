//! Runs `warpbell bench gather`.

use crate::args::{GatherArgs, GatherShape};
use crate::device;
use crate::engine;
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::progress::Loading;
use crate::rows::Rows;
use crate::workloads::error::MeasureError;
use crate::workloads::gather::{self, Choice, GatherBench, GatherJob, GatherRun, Indices, Overlap, TABLE};
use crate::workloads::report::{Report, Spread};
use serde::Serialize;
use serde_json::json;
use warpbell::engine::Engine;
use warpbell::storage::{StorageError, Table, Volume};
use warpbell::units::{Bytes, BytesOrShare, grouped, si};

/// Bytes of the table, if neither `--rows` nor the indices say how many rows it has.
const GPU_TABLE: u64 = 1 << 30;
const CPU_TABLE: u64 = 64 << 20;
/// Rows of such a table for each row of a batch, at least: few rows of a batch are then the same.
const GPU_SPREAD: u64 = 16;
const CPU_SPREAD: u64 = 1;
/// Bytes of the largest block of a device, as far as commands for whole rows are concerned.
const BLOCK: u64 = 4096;

/// Figures of a run, with its number.
#[derive(Serialize)]
struct Line<'a> {
    run: u32,
    #[serde(flatten)]
    figures: &'a GatherRun,
}

/// Values that options and shape leave, before the indices have decided on the number of rows.
struct Setting {
    row_bytes: u64,
    batch: u32,
    choice: Choice,
    fanout: Vec<u32>,
    rows: Option<u64>,
}

impl Setting {
    fn new(args: &GatherArgs, is_gpu: bool) -> Result<Self, Failure> {
        let (row_bytes, batch, choice, rows) = match args.shape {
            None => (512, None, Choice::Uniform, None),
            Some(GatherShape::Graphbolt) => (512, Some(669_000), Choice::Uniform, None),
            Some(GatherShape::Gids) => {
                let graph = if is_gpu { "kron:20" } else { "kron:14" };
                (4096, Some(1024), Choice::Sample(graph.to_owned()), None)
            }
            Some(GatherShape::Engram) => (256, Some(12_288), Choice::Uniform, Some(524_288)),
            Some(GatherShape::Kv) => (32 << 10, Some(32_768), Choice::Uniform, None),
        };
        let choice = args.indices.clone().unwrap_or(choice);
        let is_sample = matches!(choice, Choice::Sample(_));
        if !is_sample && !args.fanout.is_empty() {
            return Err(Failure::Usage(format!(
                "--fanout is about sampled indices, and these are {choice}; leave it out, or give --indices sample:GRAPH"
            )));
        }
        let fanout = if args.fanout.is_empty() { vec![10, 5, 5] } else { args.fanout.clone() };
        let batch = args.batch.or(batch).unwrap_or(if is_sample { 1024 } else { 1 << 16 });
        Ok(Self {
            row_bytes: args.row_size.map_or(row_bytes, |b| b.0),
            batch,
            choice,
            fanout,
            rows: args.rows.or(rows),
        })
    }

    /// Returns the number of rows for indices that need none in particular.
    fn default_rows(&self, is_gpu: bool) -> u64 {
        let (table, spread) = if is_gpu { (GPU_TABLE, GPU_SPREAD) } else { (CPU_TABLE, CPU_SPREAD) };
        (table / self.row_bytes.max(1)).max(u64::from(self.batch) * spread)
    }
}

/// Fills a table, measures gathers of its rows and prints the figures.
///
/// # Errors
/// * [`Failure::Usage`] if options contradict each other.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if a file, the engine, a device or a measurement fails, or a row is wrong.
pub fn run(args: &GatherArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.output)?;
    let engine = engine::open(&args.engine)?;
    let _stop = interrupt.stops(&engine);
    let setting = Setting::new(args, engine.is_gpu())?;
    interrupt.doing("choosing the rows");
    let (indices, rows) =
        Indices::new(&setting.choice, &setting.fanout, args.seed, setting.rows, setting.default_rows(engine.is_gpu()))?;
    let table_bytes = rows.saturating_mul(setting.row_bytes);
    let bytes = |size: Option<BytesOrShare>| size.map_or(0, |size| size.of(table_bytes));
    let job = GatherJob {
        rows,
        row_bytes: setting.row_bytes,
        batch: setting.batch,
        batches: args.batches,
        runtime: args.runtime,
        warmup: args.warmup,
        in_flight: args.in_flight,
        cache_bytes: bytes(args.cache),
        host_cache_bytes: bytes(args.host_cache),
        hot_bytes: bytes(args.hot),
        iodepth: args.iodepth,
        warps: args.warps,
        seed: args.seed,
    };
    let layout = job.layout()?;
    text.line(format_args!("# warpbell {}  bench gather  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    interrupt.doing("opening the device");
    let volume = open(args, &engine, &layout.plan(TABLE).map_err(StorageError::from)?, setting.row_bytes)?;
    device::announce(&volume, "", false, &Text::commented(&text))?;
    describe(&text, &job, &setting, &indices)?;
    interrupt.doing("filling the table");
    let bar = Loading::new();
    gather::fill(&volume, &layout, |done, total| bar.filled(done, total))?;
    drop(bar);
    let fanout = indices.fanout().map(<[u32]>::to_vec);
    interrupt.doing("measuring");
    let measured = measure(&volume, job, indices, args);
    // A file is left without the table, so that the next measurement can be made there.
    if !volume.is_in_memory() {
        let removed = Table::remove(&volume, TABLE);
        measured.as_ref().map_or(Ok(()), |_| removed)?;
    }
    let (runs, overlap) = measured?;
    let spread = Spread::of(runs.iter().map(|r| r.rows_per_s));
    let mut ordered: Vec<&GatherRun> = runs.iter().collect();
    ordered.sort_by(|a, b| a.rows_per_s.total_cmp(&b.rows_per_s));
    text.line(format_args!("{}", ordered[ordered.len() / 2]))?;
    text.line(format_args!("  verified: every byte of every row"))?;
    if let (Some(s), true) = (spread, runs.len() > 1) {
        let (n, min, max) = (runs.len(), si(s.min), si(s.max));
        text.line(format_args!(
            "  {n} runs: rows/s min {min}, median {}, max {max}; the run above is the middle one",
            si(s.median)
        ))?;
    }
    if let Some(overlap) = &overlap {
        text.line(format_args!("{overlap}"))?;
    }
    let taken = device::path_after(&volume)?;
    if taken.redundancy.is_some() {
        text.line(format_args!("{}", device::copies(&taken)))?;
    }
    if let Some(to) = &args.output.csv {
        let lines = (1..).zip(&runs).map(|(run, figures)| Line { run, figures });
        output::write_rows(&Rows::of(lines)?, to)?;
    }
    if let Some(path) = &args.output.report.json {
        let config = json!({
            "job": job, "shape": args.shape, "indices": setting.choice.to_string(), "fanout": fanout, "runs": args.runs,
        });
        let results = json!({ "rows_per_s": spread, "verified": true, "runs": runs, "overlap": overlap });
        output::write_json("bench gather", &Report::new(config, &engine, Some(taken), results), path)?;
    }
    Ok(())
}

fn measure(
    volume: &Volume,
    job: GatherJob,
    indices: Indices,
    args: &GatherArgs,
) -> Result<(Vec<GatherRun>, Option<Overlap>), MeasureError> {
    let mut bench = GatherBench::new(volume, job, indices)?;
    bench.warm_up()?;
    let runs = (0..args.runs).map(|_| bench.run()).collect::<Result<_, _>>()?;
    Ok((runs, args.overlap.then(|| bench.overlap()).transpose()?))
}

/// Opens the devices, with queues for commands of whole rows. What they hold is removed if `--yes-destroy` allows it.
fn open(args: &GatherArgs, engine: &Engine, plan: &warpbell::storage::Plan, row_bytes: u64) -> Result<Volume, Failure> {
    let whole = row_bytes.next_multiple_of(BLOCK);
    // Rows of another size begin and end within blocks.
    let transfer = if row_bytes.is_multiple_of(BLOCK) { whole } else { whole + BLOCK };
    let volume = device::volume(&args.device, engine, plan, Bytes(transfer))?;
    device::check_nothing_stored(&volume)?;
    if let Ok(manifest) = volume.manifest() {
        let names: Vec<&str> = manifest.entries().iter().map(|e| e.name.as_str()).collect();
        if !names.is_empty() {
            volume.remove(&names)?;
        }
    }
    Ok(volume)
}

fn describe(text: &Text, job: &GatherJob, setting: &Setting, indices: &Indices) -> Result<(), Failure> {
    let fanout = indices.fanout().map_or_else(String::new, |f| {
        let layers: Vec<String> = f.iter().map(u32::to_string).collect();
        format!(" fan-out {}", layers.join(","))
    });
    text.line(format_args!(
        "# {} rows of {} bytes ({})  indices {}{fanout}  batch {}  in flight {}  seed {}",
        grouped(job.rows),
        grouped(job.row_bytes),
        Bytes(job.rows.saturating_mul(job.row_bytes)),
        setting.choice,
        grouped(job.batch),
        job.in_flight,
        job.seed
    ))?;
    let size = |bytes: u64| if bytes == 0 { "none".to_owned() } else { Bytes(bytes).to_string() };
    let (cache, host, hot) = (size(job.cache_bytes), size(job.host_cache_bytes), size(job.hot_bytes));
    text.line(format_args!("# cache {cache}  host cache {host}  hot rows {hot}  warm-up {}", job.warmup))
}
