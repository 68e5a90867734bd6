//! Runs `warpbell bench shmem`: puts, gets, atomics, signals and collectives between PEs.

use super::sweep::{Change, Dimension, Lists, distinct};
use crate::args::{ShmemArgs, ShmemTest};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::rows::Rows;
use crate::workloads::report::{Report, nanoseconds};
use crate::workloads::shmem::{Row, Setting, ShmemBench, Test, head};
use crate::world::Plan;
use serde_json::{Value, json};
use warpbell::shmem::World;

/// Default factor from one size to the next for a single test.
const STEP: u64 = 2;
/// Default factor from one size to the next for `all`.
const STEP_OF_ALL: u64 = 64;

/// Runs one test or all on every PE of this process, and prints a table.
///
/// # Errors
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if a setting cannot be measured, the world or a measurement fails, or a value was wrong. The
///   rows before are in the files all the same.
/// * [`Failure::Usage`] if there are too many points, or `--pes` contradicts the launcher.
pub fn run(args: &ShmemArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let lists = lists(args);
    let settings = settings(args, &lists)?;
    for setting in &settings {
        setting.check()?;
    }
    let plan = Plan::new(&args.world, &args.measure.engine)?;
    let text = if plan.speaks() { Text::of_measurement(&args.measure.output)? } else { Text::none() };
    let engine = plan.engines().first();
    let heap_bytes =
        engine.map_or(0, |engine| settings.iter().map(|s| s.heap_bytes(engine, plan.pes())).max().unwrap_or(0));
    let has_sizes = engine.is_some_and(|engine| settings.iter().any(|s| s.sizes(engine).len() > 1));
    let swept: Vec<&str> = lists.swept().into_iter().chain(has_sizes.then_some("size")).collect();
    let rows = plan.run(heap_bytes, interrupt, |world| measure(world, &settings, &swept, &plan, &text, args))?;
    // All PEs return the same rows.
    let wrong: u64 = rows.first().map_or(0, |rows| rows.iter().map(Row::wrong).sum());
    if wrong > 0 {
        return Err(Failure::Error(format!("{wrong} values are wrong: see the column `wrong`")));
    }
    Ok(())
}

/// Returns the options that take lists.
fn lists(args: &ShmemArgs) -> Lists<Change<Setting>> {
    Lists::new(vec![
        Dimension::setting("sms", &args.sms, |s: &mut Setting, n| s.sms = Some(n)),
        Dimension::setting("threads-per-cta", &args.threads_per_cta, |s, n| s.threads = Some(n)),
        Dimension::setting("ctas", &args.ctas, |s, n| s.blocks = Some(n)),
    ])
}

/// Returns the settings of all points, in the same order on every PE.
fn settings(args: &ShmemArgs, lists: &Lists<Change<Setting>>) -> Result<Vec<Setting>, Failure> {
    let of = |test, step| {
        lists.settings(&Setting {
            scope: args.scope,
            min_bytes: args.min_size.map(|b| b.0),
            max_bytes: args.max_size.map(|b| b.0),
            factor: args.step.unwrap_or(step),
            iterations: args.iters,
            warmup: args.warmup_iters,
            op: args.op,
            datatype: args.datatype,
            window_bytes: args.window.map(|b| b.0),
            copy: args.copy,
            bidirectional: args.bidirectional,
            raw: args.raw,
            runs: args.measure.runs,
            ..Setting::new(test)
        })
    };
    match args.test {
        ShmemTest::One(test) => of(test, STEP),
        // A test is measured once for all values of an option that it does not take.
        ShmemTest::All => {
            let each = |test: &Test| -> Result<Vec<Setting>, Failure> {
                let all = of(*test, STEP_OF_ALL)?.into_iter();
                Ok(distinct(all.map(|setting| setting.without_what_does_not_apply(*test))))
            };
            Ok(Test::ALL.iter().map(each).collect::<Result<Vec<_>, _>>()?.concat())
        }
    }
}

/// Measures on one PE, and prints on PE 0.
fn measure(
    world: &World,
    settings: &[Setting],
    swept: &[&str],
    plan: &Plan,
    text: &Text,
    args: &ShmemArgs,
) -> Result<Vec<Row>, Failure> {
    let engines = world.allgather(world.engine().to_string().as_bytes())?;
    let engines: Vec<String> = engines.iter().map(|e| String::from_utf8_lossy(e).into_owned()).collect();
    settings.iter().try_for_each(|setting| ShmemBench::can_measure(world, setting))?;
    let speaks = world.my_pe() == 0;
    let line = |words: std::fmt::Arguments<'_>| if speaks { text.line(words) } else { Ok(()) };
    line(format_args!("# warpbell {}  bench shmem  {plan}", env!("CARGO_PKG_VERSION")))?;
    line(format_args!("# transport {}", world.path()))?;
    line(format_args!(
        "# runs {}, the median is shown; timed inside the kernels; all data verified",
        args.measure.runs
    ))?;
    let mut rows = Vec::new();
    let mut titled = None;
    let measured = settings.iter().try_for_each(|setting| -> Result<(), Failure> {
        let mut bench = ShmemBench::new(world, setting.clone())?;
        for bytes in setting.sizes(world.engine()) {
            let shape = bench.shape(bytes)?;
            let title = head(setting, &shape, world.n_pes());
            if titled.as_ref() != Some(&title) {
                line(format_args!("{title}"))?;
                titled = Some(title);
            }
            let row = bench.measure(bytes)?;
            line(format_args!("{row}"))?;
            if let (Some(_), Some(gpu)) = (row.sms, &row.gpu) {
                line(format_args!("#{gpu}"))?;
            }
            rows.push(row);
        }
        Ok(())
    });
    // The rows before a failure are written all the same.
    let written = match (speaks, &rows[..]) {
        (false, _) | (true, []) => Ok(()),
        (true, rows) => {
            let config = json!({
                "pes": world.n_pes(), "runs": args.measure.runs, "settings": settings, "swept": swept,
                "deadline_ns": nanoseconds(args.measure.engine.deadline),
            });
            let results = json!({ "engines": engines, "transport": world.path(), "rows": rows });
            write(args, rows, &Report::new(config, world.engine(), None, results))
        }
    };
    measured.and(written)?;
    Ok(rows)
}

/// Writes the rows and the report as the options ask.
fn write(args: &ShmemArgs, rows: &[Row], report: &Report<Value, Value>) -> Result<(), Failure> {
    if let Some(to) = &args.measure.output.csv {
        output::write_rows(&Rows::of(rows)?, to)?;
    }
    if let Some(path) = &args.measure.output.report.json {
        output::write_json("bench shmem", report, path)?;
    }
    Ok(())
}
