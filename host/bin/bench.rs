//! Runs `warpbell bench`: measures and prints.

mod compare;
mod gather;
mod kv;
mod mapping;
mod nvme;
mod post;
mod queue;
mod rdma;
mod shmem;
mod stream;
mod sweep;

use crate::args::{ArrayArgs, BenchCommand};
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text};
use crate::rows::Rows;
use crate::workloads::array::{self, ArrayBench};
use crate::workloads::report::Report;
use crate::{device, engine, output};
use serde_json::json;
use warpbell::storage::{Cache, Drive, OverwritePolicy, Volume};
use warpbell::units::Bytes;

/// Runs one benchmark and prints its results.
///
/// # Errors
/// [`Failure::Usage`] if options contradict each other, [`Failure::BrokenPipe`] if standard output was closed, and
/// [`Failure::Error`] if a device, an engine or the measurement fails.
pub fn run(command: BenchCommand, interrupt: &Interrupt) -> Result<(), Failure> {
    interrupt.doing("measuring");
    match command {
        BenchCommand::Nvme(args) => nvme::run(&args, interrupt),
        BenchCommand::Queue(args) => queue::run(&args, interrupt),
        BenchCommand::Mapping(args) => mapping::run(&args, interrupt),
        BenchCommand::Post(args) => post::run(&args, interrupt),
        BenchCommand::Array(args) => array(&args, interrupt),
        BenchCommand::Gather(args) => gather::run(&args, interrupt),
        BenchCommand::Shmem(args) => shmem::run(&args, interrupt),
        BenchCommand::Rdma(args) => rdma::run(&args, interrupt),
        BenchCommand::Kv(args) => kv::run(&args, interrupt),
        BenchCommand::Stream(args) => stream::run(&args, interrupt),
    }
}

/// Size of the array in bytes on a GPU engine, if `--size` is absent.
const GPU_ARRAY: u64 = 8 << 30;
/// Size of the array in bytes on a CPU engine, if `--size` is absent.
const CPU_ARRAY: u64 = 16 << 20;
/// The cache gets this part (one in four) more bytes than the array: rounding takes up to an eighth of a cache.
const CACHE_SLACK: u64 = 4;
/// Minimum size of the cache in bytes.
const LEAST_CACHE: u64 = 1 << 20;

fn array(args: &ArrayArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.measure.output)?;
    let engine = engine::open(&args.measure.engine)?;
    let bytes = args.size.map_or(if engine.is_gpu() { GPU_ARRAY } else { CPU_ARRAY }, |b| b.0);
    text.line(format_args!("# warpbell {}  bench array  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    let _stop = interrupt.stops(&engine);
    // The benchmark causes no device I/O: the array's pages stay in the cache from the first write on.
    let volume = Volume::on(&engine, [Drive::create("soft:mem", bytes, &OverwritePolicy::none())?]).build()?;
    let cache = Cache::on(&volume)
        .bytes((bytes + bytes / CACHE_SLACK).max(LEAST_CACHE))
        .page(args.page.page_size.0 as usize)
        .build()?;
    text.line(format_args!("# {volume}  page {}  cache {}", args.page.page_size, Bytes(cache.bytes())))?;
    let bench = ArrayBench::new(&volume, &cache, bytes / 8)?;
    text.line(format_args!("# {} elements of 8 bytes  runs {}  median", bench.elements(), args.measure.runs))?;
    text.line(format_args!("{}", array::HEAD))?;
    let mut printed = Ok(());
    let rows = bench.run(args.measure.runs, |row| {
        if printed.is_ok() {
            printed = text.line(format_args!("{row}"));
        }
    })?;
    printed?;
    if let Some(to) = &args.measure.output.csv {
        output::write_rows(&Rows::of(&rows)?, to)?;
    }
    if let Some(path) = &args.measure.output.report.json {
        let config = json!({ "bytes": bytes, "page_bytes": args.page.page_size, "runs": args.measure.runs });
        let path_taken = Some(device::path(&volume));
        output::write_json("bench array", &Report::new(config, &engine, path_taken, rows), path)?;
    }
    Ok(())
}
