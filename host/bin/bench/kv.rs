//! Runs `warpbell bench kv`.

use super::sweep::{Dimension, Lists};
use crate::args::KvArgs;
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::rows::Rows;
use crate::workloads::kv::{HEAD, KvBench, KvJob, KvRow, KvShape, STORE};
use crate::workloads::multiprocessors;
use crate::workloads::report::{Report, nanoseconds};
use crate::{device, engine};
use serde_json::json;
use std::fmt;
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

/// Value of an option that takes a list.
#[derive(Clone, Copy)]
enum Value {
    Tokens(u64),
    Hit(u32),
    Bs(Bytes),
    InFlight(u32),
    Sms(u32),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(n) => write!(f, "{n}"),
            Self::Hit(n) | Self::InFlight(n) | Self::Sms(n) => write!(f, "{n}"),
            Self::Bs(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// Stores and loads the pages of KV caches, and prints the figures.
///
/// # Errors
/// [`Failure::Usage`] if there are too many points, [`Failure::BrokenPipe`] if standard output was closed, and [`Failure::Error`] if a
/// device, the engine or the measurement fails, or a byte was wrong.
pub fn run(args: &KvArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.measure.output)?;
    let lists = Lists::new(vec![
        Dimension::new("tokens", &args.tokens, Value::Tokens),
        Dimension::new("hit", &args.hit, Value::Hit),
        Dimension::new("bs", &args.bs, Value::Bs),
        Dimension::new("in-flight", &args.in_flight, Value::InFlight),
        Dimension::new("sms", &args.sms, Value::Sms),
    ]);
    let points = lists.points()?;
    let engine = engine::open(&args.measure.engine)?;
    let _stop = interrupt.stops(&engine);
    let tokens = if engine.is_gpu() { GPU_TOKENS } else { CPU_TOKENS };
    let jobs: Vec<KvJob> = points.iter().map(|point| job(args, point, tokens)).collect();
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
    text.line(format_args!("# {}{HEAD}", lists.head()))?;
    let mut rows = Vec::new();
    let measured = jobs.iter().zip(&points).try_for_each(|(job, point)| -> Result<(), Failure> {
        for row in measure(&volume, *job, args.measure.runs)? {
            let cells = lists.cells(|name| value_of(point, name));
            text.line(format_args!("  {cells}{row}"))?;
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

fn value_of(point: &[&Value], name: &str) -> String {
    let is_named = |value: &&&Value| match value {
        Value::Tokens(_) => name == "tokens",
        Value::Hit(_) => name == "hit",
        Value::Bs(_) => name == "bs",
        Value::InFlight(_) => name == "in-flight",
        Value::Sms(_) => name == "sms",
    };
    point.iter().find(is_named).map_or_else(String::new, |value| value.to_string())
}

fn job(args: &KvArgs, point: &[&Value], tokens: u64) -> KvJob {
    let shape = KvShape {
        layers: args.layers,
        kv_heads: args.kv_heads,
        head_dim: args.head_dim,
        element_bytes: args.element_bytes,
        page_tokens: args.page_tokens,
    };
    let mut job = KvJob { shape, tokens, hit_percent: 100, command_bytes: COMMAND_BYTES, in_flight: 1, sms: None };
    for value in point {
        match **value {
            Value::Tokens(n) => job.tokens = n,
            Value::Hit(n) => job.hit_percent = n,
            Value::Bs(bytes) => job.command_bytes = bytes.0,
            Value::InFlight(n) => job.in_flight = n,
            Value::Sms(n) => job.sms = Some(n),
        }
    }
    job.tokens = job.tokens.next_multiple_of(shape.page_tokens.into());
    job
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
    let tokens = jobs.iter().map(|job| job.tokens).max().unwrap_or(0);
    text.line(format_args!(
        "# up to {tokens} tokens; runs {}, the median is shown; all data verified",
        args.measure.runs
    ))?;
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
