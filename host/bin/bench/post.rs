//! Runs `warpbell bench post`: posts RDMA work requests without a physical adapter.

use crate::args::PostArgs;
use crate::engine;
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::rows::Rows;
use crate::workloads::post::{self, PostSetting};
use crate::workloads::report::{Report, nanoseconds};
use serde::Serialize;
use serde_json::json;
use warpbell::engine::EngineKind;

/// Row of one of the two lists of results, with the list's key.
#[derive(Serialize)]
struct Line<'a, R: Serialize> {
    list: &'static str,
    #[serde(flatten)]
    row: &'a R,
}

/// Measures the rate and the latency of posting, and prints both tables.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, and [`Failure::Error`] if the engine, a measurement or the
/// JSON report fails.
pub fn run(args: &PostArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.measure.output)?;
    let engine = engine::open(&args.measure.engine)?;
    let counts: Vec<u32> = match (&args.blocks[..], engine.kind()) {
        ([], EngineKind::Gpu) => vec![1, 2, 4, 8, 16, 32, 64],
        ([], EngineKind::Cpu) => vec![1, 2],
        (given, _) => given.to_vec(),
    };
    text.line(format_args!("# warpbell {}  bench post  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    let runs = args.measure.runs;
    if args.capsules {
        text.line(format_args!(
            "# ideal adapter and target: kernels, one warp for each queue, that respond at once; every capsule checked; runs {runs}"
        ))?;
        text.line(format_args!(
            "# command capsule of a read, one for each thread, a warp's posted together and waited for; queue {} entries; responses in completion entries",
            args.depth
        ))?;
    } else {
        text.line(format_args!(
            "# ideal adapter: kernels, one warp for each queue pair, that complete everything at once; every work request checked; runs {runs}"
        ))?;
        text.line(format_args!(
            "# write of 8 bytes{}, a work request for each thread, a warp's posted together, by functions {}; ring {} blocks; completions {}",
            if args.inline { " inline" } else { "" },
            if args.inlined { "inlined" } else { "called, as by a put" },
            args.depth,
            if args.collapsed { "collapsed" } else { "ring" }
        ))?;
    }
    if args.blueflame {
        text.line(format_args!(
            "# BlueFlame: the doorbell takes an entry that is announced alone; \"register\" is the share that the adapter took there"
        ))?;
    }
    let share = |from_register: f64| {
        if args.blueflame { format!(" {:>8.1}", 100.0 * from_register) } else { String::new() }
    };
    let head = |[names, units]: [&str; 2]| match args.blueflame {
        true => text.line(format_args!("{names} {:>8}\n{units} {:>8}", "register", "%")),
        false => text.line(format_args!("{names}\n{units}")),
    };
    let _stop = interrupt.stops(&engine);
    let suited = |blocks| {
        let suited = PostSetting::suited(&engine, blocks, args.depth);
        if args.capsules { suited.of_capsules() } else { suited }
    };
    let settings = counts.into_iter().map(|blocks| {
        let suited = suited(blocks);
        PostSetting {
            threads: args.threads_per_block.unwrap_or(suited.threads),
            queues: args.queues.unwrap_or(suited.queues),
            posts_each: args.posts.unwrap_or(suited.posts_each),
            inline: args.inline,
            collapsed: args.collapsed,
            blue_flame: args.blueflame,
            inlined: args.inlined,
            ..suited
        }
    });
    head(post::HEAD)?;
    let mut rows = Vec::new();
    for setting in settings {
        let row = post::measure(&engine, setting, args.measure.runs)?;
        text.line(format_args!("{row}{}", share(row.from_register)))?;
        rows.push(row);
    }
    let completion = if args.capsules { "the response" } else { "the completion of the write" };
    text.line(format_args!("# one thread posts alone: time in the call, and until {completion}"))?;
    head(post::LATENCY_HEAD)?;
    let alone = PostSetting {
        inline: args.inline,
        collapsed: args.collapsed,
        blue_flame: args.blueflame,
        inlined: args.inlined,
        ..suited(1)
    };
    let width = engine.info().warp_width;
    let mut latencies = Vec::new();
    for lanes in if width > 1 { vec![1, width] } else { vec![1] } {
        let row = post::measure_latency(&engine, alone, lanes, args.iters)?;
        text.line(format_args!("{row}{}", share(row.from_register)))?;
        latencies.push(row);
    }
    if let Some(to) = &args.measure.output.csv {
        let mut lines = Rows::of(rows.iter().map(|row| Line { list: "rates", row }))?;
        latencies.iter().try_for_each(|row| lines.add(Line { list: "latencies", row }))?;
        output::write_rows(&lines, to)?;
    }
    if let Some(path) = &args.measure.output.report.json {
        let config = json!({
            "runs": args.measure.runs, "depth": args.depth, "inline": args.inline, "collapsed": args.collapsed,
            "blueflame": args.blueflame, "inlined": args.inlined, "capsules": args.capsules, "deadline_ns": nanoseconds(args.measure.engine.deadline),
        });
        let results = json!({ "rates": rows, "latencies": latencies });
        output::write_json("bench post", &Report::new(config, &engine, None, results), path)?;
    }
    Ok(())
}
