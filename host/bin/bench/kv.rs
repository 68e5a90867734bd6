//! Runs `warpbell bench kv`.

use super::sweep::{Change, Dimension, Lists, distinct};
use crate::args::KvArgs;
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::rows::Rows;
use crate::workloads::kv::{HEAD, KvBench, KvJob, KvRow, KvShape, STORE};
use crate::workloads::multiprocessors;
use crate::workloads::report::{Report, nanoseconds};
use crate::{device, engine};
use serde_json::json;
use warpbell::engine::Engine;
use warpbell::storage::{KvStore, Volume};
use warpbell::units::Bytes;

/// Tokens of a request, if `--tokens` is absent.
const GPU_TOKENS: u64 = 8192;
const CPU_TOKENS: u64 = 64;
/// Bytes of the largest command, if `--bs` is absent.
const COMMAND_BYTES: u64 = 128 << 10;
/// Bytes of the device beside the objects' data: superblocks, and the beginnings of arrays.
const SLACK: u64 = 4 << 20;
/// Bytes of an object's record.
const RECORD: u64 = 128;

/// Stores and loads the pages of KV caches, and prints the figures.
///
/// # Errors
/// [`Failure::Usage`] if there are too many points, [`Failure::BrokenPipe`] if standard output was closed, and [`Failure::Error`] if a
/// device, the engine or the measurement fails, or a byte was wrong.
pub fn run(args: &KvArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.measure.output)?;
    let engine = engine::open(&args.measure.engine)?;
    let _stop = interrupt.stops(&engine);
    let tokens = if engine.is_gpu() { GPU_TOKENS } else { CPU_TOKENS };
    let lists = lists(args);
    let base =
        KvJob { shape: shape(args), tokens, hit_percent: 100, command_bytes: COMMAND_BYTES, in_flight: 1, sms: None };
    let whole = |job: KvJob| KvJob { tokens: job.tokens.next_multiple_of(args.page_tokens.into()), ..job };
    let jobs = distinct(lists.settings(&base)?.into_iter().map(whole));
    jobs.iter().try_for_each(|job| multiprocessors::checked(&engine, job.sms).map(drop))?;
    let needs = |job: &KvJob| job.options().bytes + job.objects() * RECORD + SLACK;
    let bytes = jobs.iter().map(needs).max().unwrap_or(SLACK);
    let largest = jobs.iter().map(|job| job.command_bytes).max().unwrap_or(COMMAND_BYTES);
    interrupt.doing("opening the device");
    let volume = device::measured(&args.device, &engine, bytes, Bytes(largest), true)?;
    interrupt.doing("measuring");
    text.line(format_args!("# warpbell {}  bench kv  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    device::announce(&volume, "", false, &Text::commented(&text))?;
    describe(&text, args, &jobs)?;
    text.line(format_args!("{HEAD}"))?;
    let mut rows = Vec::new();
    let measured = jobs.iter().try_for_each(|job| -> Result<(), Failure> {
        if lists.is_swept() {
            text.line(format_args!("# {job}"))?;
        }
        for row in measure(&volume, *job, args.measure.runs)? {
            text.line(format_args!("{row}"))?;
            if let Some(gpu) = &row.gpu {
                text.line(format_args!("#{gpu}"))?;
            }
            rows.push(row);
        }
        Ok(())
    });
    // The figures before a failure are written all the same.
    let written = write(args, &engine, &volume, &rows, &lists.swept());
    measured.and(written)
}

/// Returns the options that take lists.
fn lists(args: &KvArgs) -> Lists<Change<KvJob>> {
    Lists::new(vec![
        Dimension::setting("tokens", &args.tokens, |job: &mut KvJob, n| job.tokens = n),
        Dimension::setting("hit", &args.hit, |job, n| job.hit_percent = n),
        Dimension::setting("bs", &args.bs, |job, bytes| job.command_bytes = bytes.0),
        Dimension::setting("in-flight", &args.in_flight, |job, n| job.in_flight = n),
        Dimension::setting("sms", &args.sms, |job, n| job.sms = Some(n)),
    ])
}

fn shape(args: &KvArgs) -> KvShape {
    KvShape {
        layers: args.layers,
        kv_heads: args.kv_heads,
        head_dim: args.head_dim,
        element_bytes: args.element_bytes,
        page_tokens: args.page_tokens,
    }
}

/// Measures one point in a store of its own, which is removed afterwards.
fn measure(volume: &Volume, job: KvJob, runs: u32) -> Result<[KvRow; 2], Failure> {
    let bench = KvBench::new(volume, job)?;
    let rows = bench.run(runs);
    drop(bench);
    let removed = KvStore::remove(volume, STORE);
    let rows = rows?;
    removed?;
    Ok(rows)
}

fn describe(text: &Text, args: &KvArgs, jobs: &[KvJob]) -> Result<(), Failure> {
    text.line(format_args!(
        "# {} layers, {} heads of {} elements of {} bytes, pages of {} tokens",
        args.layers, args.kv_heads, args.head_dim, args.element_bytes, args.page_tokens
    ))?;
    if let [one] = jobs {
        text.line(format_args!("# {one}"))?;
    }
    text.line(format_args!("# runs {}, the median is shown; all data verified", args.measure.runs))?;
    Ok(())
}

fn write(args: &KvArgs, engine: &Engine, volume: &Volume, rows: &[KvRow], swept: &[&str]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    if let Some(to) = &args.measure.output.csv {
        output::write_rows(&Rows::of(rows)?, to)?;
    }
    let Some(path) = &args.measure.output.report.json else { return Ok(()) };
    let deadline_ns = nanoseconds(args.measure.engine.deadline);
    let config = json!({ "runs": args.measure.runs, "deadline_ns": deadline_ns, "swept": swept });
    output::write_json("bench kv", &Report::new(config, engine, Some(device::path_after(volume)?), rows), path)?;
    Ok(())
}
