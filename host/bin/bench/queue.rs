//! Runs `warpbell bench queue`: the queue core alone, at each combination of the values that options list.

use super::sweep::{Change, Dimension, Lists, distinct};
use crate::args::QueueArgs;
use crate::engine;
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::rows::Rows;
use crate::workloads::queue::{self, QueueOptions, QueueRow, QueueSetting};
use crate::workloads::report::{Report, nanoseconds};
use serde_json::json;
use warpbell::engine::{Engine, EngineKind};

/// Entries of each queue, if `--depth` is absent.
const DEPTH: u32 = 1024;

/// Checks all points, measures them one after another, and prints a row for each.
///
/// # Errors
/// * [`Failure::Usage`] if there are too many points.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if the engine fails, a point cannot be measured, or a measurement fails. The rows before are in
///   the files all the same.
pub fn run(args: &QueueArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.measure.output)?;
    let engine = engine::open(&args.measure.engine)?;
    let _stop = interrupt.stops(&engine);
    let lists = lists(args, engine.kind());
    let options = lists.settings(&QueueOptions {
        queues: 1,
        depth: DEPTH,
        submitters: None,
        commands_each: args.commands,
        sms: None,
    })?;
    let settings = options.iter().map(|given| QueueSetting::new(&engine, given)).collect::<Result<Vec<_>, _>>()?;
    text.line(format_args!("# warpbell {}  bench queue  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    text.line(format_args!(
        "# ideal controller: kernels that complete every command at once; every command checked; runs {}",
        args.measure.runs
    ))?;
    text.line(format_args!("{}", queue::HEAD))?;
    let mut rows = Vec::new();
    // Numbers of threads that make the same whole blocks are one.
    let measured = distinct(settings).into_iter().try_for_each(|setting| {
        let row = queue::measure(&engine, setting, args.measure.runs)?;
        rows.push(row);
        print(&row, &text)
    });
    // The rows before a failure are written all the same.
    let written = if rows.is_empty() { Ok(()) } else { write(args, &engine, &lists, &rows) };
    measured.and(written)
}

/// Returns the options that take lists.
fn lists(args: &QueueArgs, engine: EngineKind) -> Lists<Change<QueueOptions>> {
    let queues: &[u32] = match (&args.queues[..], engine) {
        ([], EngineKind::Gpu) => &[1, 8, 32, 128],
        ([], EngineKind::Cpu) => &[1, 2],
        (given, _) => given,
    };
    Lists::new(vec![
        Dimension::setting("queues", queues, |given: &mut QueueOptions, n| given.queues = n),
        Dimension::setting("depth", &args.depth, |given, n| given.depth = n),
        Dimension::setting("submitters", &args.submitters, |given, n| given.submitters = Some(n)),
        Dimension::setting("sms", &args.sms, |given, n| given.sms = Some(n)),
    ])
}

/// Prints the row of a point, and what it says about one thread alone and about the GPU.
fn print(row: &QueueRow, text: &Text) -> Result<(), Failure> {
    text.line(format_args!("{row}"))?;
    if let (Some(_), Some(gpu)) = (row.setting.sms, &row.gpu) {
        text.line(format_args!("#{gpu}"))?;
    }
    if row.setting.submitters == 1 {
        text.line(format_args!("# one at a time: {:.2} us for a command (median)", 1e6 / row.commands_per_s.median))?;
    }
    Ok(())
}

/// Writes the rows as the options ask.
fn write(
    args: &QueueArgs,
    engine: &Engine,
    lists: &Lists<Change<QueueOptions>>,
    rows: &[QueueRow],
) -> Result<(), Failure> {
    if let Some(to) = &args.measure.output.csv {
        output::write_rows(&Rows::of(rows)?, to)?;
    }
    if let Some(path) = &args.measure.output.report.json {
        let config = json!({
            "runs": args.measure.runs,
            "swept": lists.swept(),
            "deadline_ns": nanoseconds(args.measure.engine.deadline),
        });
        output::write_json("bench queue", &Report::new(config, engine, None, rows), path)?;
    }
    Ok(())
}
