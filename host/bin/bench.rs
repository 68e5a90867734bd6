//! `warpbell bench`: measure and print.

use crate::args::{ArrayArgs, BenchCommand, QueueArgs};
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text};
use crate::{device, engine, output};
use serde_json::json;
use warpbell::bench::array::{self, ArrayBench};
use warpbell::bench::queue::{self, QueueSetting};
use warpbell::bench::report::Report;
use warpbell::bench::units::Bytes;
use warpbell::storage::{Cache, Consent, Drive, Volume};

pub fn run(command: BenchCommand, interrupt: &Interrupt) -> Result<(), Failure> {
    match command {
        BenchCommand::Array(args) => array(&args, interrupt),
        BenchCommand::Queue(args) => queue(&args, interrupt),
        BenchCommand::Nvme(_) => Ok(()),
    }
}

/// Bytes of the array unless told otherwise.
const GPU_ARRAY: u64 = 8 << 30;
const CPU_ARRAY: u64 = 16 << 20;
/// A cache loses up to an eighth to rounding.
const CACHE_SLACK: u64 = 4;

fn array(args: &ArrayArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::beside(args.json.as_deref());
    let engine = engine::open(&args.engine)?;
    let bytes = args.size.map_or(if engine.kind() == "gpu" { GPU_ARRAY } else { CPU_ARRAY }, |b| b.0);
    text.line(format_args!("# warpbell {}  bench array  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    let _stop = interrupt.stops(&engine);
    // No device is in play: the array's pages stay in the cache from the first write on.
    let volume = Volume::on(&engine, [Drive::create("soft:mem", bytes, &Consent::none())?]).build()?;
    let cache = Cache::on(&volume).bytes(bytes + bytes / CACHE_SLACK).page(args.page_size.0 as usize).build()?;
    text.line(format_args!("# {volume}  page {}  cache {}", args.page_size, Bytes(cache.bytes())))?;
    let bench = ArrayBench::new(&volume, &cache, bytes / 8)?;
    text.line(format_args!("# {} elements of 8 bytes  runs {}  median", bench.elements(), args.runs))?;
    text.line(format_args!("{}", array::HEAD))?;
    let mut printed = Ok(());
    let rows = bench.run(args.runs, |row| {
        if printed.is_ok() {
            printed = text.line(format_args!("{row}"));
        }
    })?;
    printed?;
    if let Some(path) = &args.json {
        let config = json!({ "bytes": bytes, "page_bytes": args.page_size, "runs": args.runs });
        let path_taken = Some(device::path(&volume));
        output::write_json(&Report::new("bench array", config, &engine, path_taken, rows), path)?;
    }
    Ok(())
}

fn queue(args: &QueueArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::beside(args.json.as_deref());
    let engine = engine::open(&args.engine)?;
    text.line(format_args!("# warpbell {}  bench queue  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    let _stop = interrupt.stops(&engine);
    let counts = match (args.queues.as_slice(), engine.kind()) {
        ([], "gpu") => vec![1, 8, 32, 128],
        ([], _) => vec![1, 2],
        (given, _) => given.to_vec(),
    };
    text.line(format_args!("# ideal controller on spare warps  runs {}  every command checked on both sides", args.runs))?;
    text.line(format_args!("{}", queue::HEAD))?;
    let mut rows = Vec::new();
    for queues in counts {
        let mut setting = QueueSetting::suited(&engine, queues, args.depth);
        setting.submitters = args.submitters.unwrap_or(setting.submitters);
        setting.commands_each = args.commands.unwrap_or(setting.commands_each);
        let row = queue::measure(&engine, setting, args.runs)?;
        text.line(format_args!("{row}"))?;
        rows.push(row);
    }
    if let Some(path) = &args.json {
        let config = json!({ "depth": args.depth, "runs": args.runs });
        output::write_json(&Report::new("bench queue", config, &engine, None, rows), path)?;
    }
    Ok(())
}
