//! Runs `warpbell bench stream`: transfers between two kernels, by the host, by a kernel and by the stream.

use crate::args::{StreamArgs, StreamTest};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::rows::Rows;
use crate::workloads::report::{Report, nanoseconds};
use crate::workloads::stream::{Counts, HEAD, Puts, Row, VolumeTransfers};
use crate::world::Plan;
use crate::{device, engine};
use serde_json::json;
use warpbell::engine::Engine;
use warpbell::shmem::World;

/// Bytes of each heap beside those of messages.
const HEAP: usize = 1 << 20;

/// Measures the ways of one kind of transfer, and prints a table.
///
/// # Errors
/// [`Failure::Usage`] if `--pes` contradicts the launcher, [`Failure::BrokenPipe`] if standard output was closed, and
/// [`Failure::Error`] if a device, an engine, a world or the measurement fails, or data was wrong.
pub fn run(args: &StreamArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let counts = Counts { single: args.iters, chained: args.chained };
    let bytes = usize::try_from(args.bs.0).unwrap_or(usize::MAX);
    if args.test == StreamTest::Put {
        let plan = Plan::new(&args.world, &args.engine)?;
        let text = if plan.speaks() { Text::of_measurement(&args.output)? } else { Text::none() };
        let heap = bytes.saturating_mul(2).saturating_add(HEAP);
        plan.run(heap, interrupt, |world| puts(world, bytes, counts, &text, args))?;
        return Ok(());
    }
    let text = Text::of_measurement(&args.output)?;
    let engine = engine::open(&args.engine)?;
    let _stop = interrupt.stops(&engine);
    let all = args.bs.0.saturating_mul(args.chained.into());
    let volume = device::measured(&args.device, &engine, all, args.bs, true)?;
    let transfers = VolumeTransfers::new(&volume, bytes, args.test == StreamTest::Write, counts)?;
    head(&text, &engine.to_string(), args)?;
    device::announce(&volume, "", false, &Text::commented(&text))?;
    let rows = transfers.measure()?;
    table(&text, &rows)?;
    write(args, &engine, Some(device::path(&volume)), &rows)
}

fn puts(world: &World, bytes: usize, counts: Counts, text: &Text, args: &StreamArgs) -> Result<(), Failure> {
    let rows = Puts::new(world, bytes, counts)?.measure()?;
    if world.my_pe() != 0 {
        return Ok(());
    }
    head(text, &format!("{}, {} PEs", world.engine(), world.n_pes()), args)?;
    text.line(format_args!("# transport {}", world.path()))?;
    table(text, &rows)?;
    write(args, world.engine(), None, &rows)
}

fn head(text: &Text, engine: &str, args: &StreamArgs) -> Result<(), Failure> {
    text.line(format_args!("# warpbell {}  bench stream  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    text.line(format_args!(
        "# {}  bs {}  iters {}  chained {}; all data verified",
        args.test, args.bs, args.iters, args.chained
    ))?;
    Ok(())
}

fn table(text: &Text, rows: &[Row]) -> Result<(), Failure> {
    text.line(format_args!("{HEAD}"))?;
    for row in rows {
        text.line(format_args!("{row}"))?;
    }
    Ok(())
}

fn write(
    args: &StreamArgs,
    engine: &Engine,
    path: Option<crate::workloads::report::PathReport>,
    rows: &[Row],
) -> Result<(), Failure> {
    if let Some(to) = &args.output.csv {
        output::write_rows(&Rows::of(rows)?, to)?;
    }
    let Some(to) = &args.output.report.json else { return Ok(()) };
    let config = json!({
        "test": args.test.to_string(), "bytes": args.bs.0, "iters": args.iters, "chained": args.chained,
        "deadline_ns": nanoseconds(args.engine.deadline),
    });
    output::write_json("bench stream", &Report::new(config, engine, path, rows), to)?;
    Ok(())
}
