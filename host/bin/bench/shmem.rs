//! Runs `warpbell bench shmem`: puts, gets, atomics, signals and collectives between PEs.

use crate::args::{ShmemArgs, ShmemTest};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::rows::Rows;
use crate::workloads::report::{Report, nanoseconds};
use crate::workloads::shmem::{Row, Setting, ShmemBench, Test, head};
use crate::world::Plan;
use serde_json::json;
use warpbell::shmem::World;

/// Default factor from one size to the next for a single test.
const STEP: u64 = 2;
/// Default factor from one size to the next for `all`.
const STEP_OF_ALL: u64 = 64;

/// Runs one test or all on every PE of this process, and prints a table.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed. [`Failure::Error`] if a setting cannot be measured, the
/// world or a measurement fails, or a value was wrong. [`Failure::Usage`] if `--pes` contradicts the launcher.
pub fn run(args: &ShmemArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let settings = settings(args);
    for setting in &settings {
        setting.check()?;
    }
    let plan = Plan::new(&args.world, &args.measure.engine)?;
    let text = if plan.speaks() { Text::of_measurement(&args.measure.output)? } else { Text::none() };
    let heap_bytes = plan
        .engines()
        .first()
        .map_or(0, |engine| settings.iter().map(|s| s.heap_bytes(engine, plan.pes())).max().unwrap_or(0));
    let rows = plan.run(heap_bytes, interrupt, |world| measure(world, &settings, &plan, &text, args))?;
    // All PEs return the same rows.
    let wrong: u64 = rows.first().map_or(0, |rows| rows.iter().map(Row::wrong).sum());
    if wrong > 0 {
        return Err(Failure::Error(format!("{wrong} values are wrong: see the column `wrong`")));
    }
    Ok(())
}

fn settings(args: &ShmemArgs) -> Vec<Setting> {
    let of = |test, step, sms| Setting {
        sms,
        scope: args.scope,
        min_bytes: args.min_size.map(|b| b.0),
        max_bytes: args.max_size.map(|b| b.0),
        factor: args.step.unwrap_or(step),
        iterations: args.iters,
        warmup: args.warmup_iters,
        blocks: args.ctas,
        threads: args.threads_per_cta,
        op: args.op,
        datatype: args.datatype,
        window_bytes: args.window.map(|b| b.0),
        bidirectional: args.bidirectional,
        raw: args.raw,
        runs: args.measure.runs,
        ..Setting::new(test)
    };
    let with = |sms| match args.test {
        ShmemTest::One(test) => vec![of(test, STEP, sms)],
        ShmemTest::All => {
            Test::ALL.iter().map(|test| of(*test, STEP_OF_ALL, sms).without_what_does_not_apply(*test)).collect()
        }
    };
    if args.sms.is_empty() { with(None) } else { args.sms.iter().flat_map(|sms| with(Some(*sms))).collect() }
}

/// Measures on one PE, and prints on PE 0.
fn measure(
    world: &World,
    settings: &[Setting],
    plan: &Plan,
    text: &Text,
    args: &ShmemArgs,
) -> Result<Vec<Row>, Failure> {
    let engines = world.allgather(world.engine().to_string().as_bytes())?;
    let engines: Vec<String> = engines.iter().map(|e| String::from_utf8_lossy(e).into_owned()).collect();
    let speaks = world.my_pe() == 0;
    let line = |words: std::fmt::Arguments<'_>| if speaks { text.line(words) } else { Ok(()) };
    line(format_args!("# warpbell {}  bench shmem  {plan}", env!("CARGO_PKG_VERSION")))?;
    line(format_args!("# transport {}", world.path()))?;
    line(format_args!(
        "# runs {}, the median is shown; timed inside the kernels; all data verified",
        args.measure.runs
    ))?;
    let mut rows = Vec::new();
    for setting in settings {
        let mut bench = ShmemBench::new(world, setting.clone())?;
        let mut titled = None;
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
    }
    if let (true, Some(to)) = (speaks, &args.measure.output.csv) {
        output::write_rows(&Rows::of(&rows)?, to)?;
    }
    if let (true, Some(path)) = (speaks, &args.measure.output.report.json) {
        let config = json!({
            "pes": world.n_pes(), "runs": args.measure.runs, "settings": settings,
            "deadline_ns": nanoseconds(args.measure.engine.deadline),
        });
        let results = json!({ "engines": engines, "transport": world.path(), "rows": rows });
        output::write_json("bench shmem", &Report::new(config, world.engine(), None, results), path)?;
    }
    Ok(rows)
}
