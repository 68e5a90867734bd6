//! Random faults, crashes, damage and hostile peers, run after run, each from its seed, until an outcome is wrong.
//!
//! ```text
//! cargo test --test campaign -- [CAMPAIGN]... [--runs N] [--time 30s] [--seed N] [--jobs N] [--state FILE]
//! ```
//!
//! Prints a table of the runs by campaign and kind, and each failure with the command line that repeats it. With `--state` the
//! totals are kept in a file, and the next call goes on behind them. CONTRIBUTING.md says what each campaign checks.
#![cfg(all(feature = "cli", target_os = "linux"))]

mod campaign;
#[path = "../children/mod.rs"]
mod children;
mod crashes;
mod family;
mod faults;
mod hostile;
mod middle;
mod program;
mod random;
mod sequences;
mod state;
mod table;
#[path = "../common/tree.rs"]
mod tree;
mod worlds;

use campaign::{Campaign, Outcome, attempt};
use clap::Parser;
use state::{Failure, State};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warpbell::units::parse_duration;

/// A campaign's name, and the function that makes it.
type Known = (&'static str, fn() -> Box<dyn Campaign>);

/// Every campaign, in the order in which they run.
const CAMPAIGNS: &[Known] = &[
    ("faults", || Box::new(faults::Faults::new())),
    ("sequences", || Box::new(sequences::Sequences)),
    ("crashes", || Box::new(crashes::Crashes::new())),
    ("worlds", || Box::new(worlds::Worlds)),
    ("hostile", || Box::new(hostile::Hostile)),
];

/// Seeds whose runs are complete before the totals are written.
const SEEDS_PER_JOB: u64 = 8;

/// Random faults, crashes, damage and hostile peers, run after run.
#[derive(Parser)]
#[command(name = "campaign")]
struct Args {
    /// Campaigns to run [default: all]
    names: Vec<String>,
    /// Runs of each campaign, those of earlier calls included
    #[arg(long)]
    runs: Option<u64>,
    /// Time for each campaign; a run that has begun is completed
    #[arg(long, value_parser = parse_duration, default_value = "30s")]
    time: Duration,
    /// First seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Runs at the same time [default: processors]
    #[arg(long)]
    jobs: Option<u64>,
    /// File with the totals of earlier calls, which this call continues
    #[arg(long)]
    state: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("campaign: {e}");
            ExitCode::from(2)
        }
    }
}

/// Runs the campaigns that were asked for. Returns true if no run has failed.
fn run(args: &Args) -> Result<bool, String> {
    let known = || CAMPAIGNS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if let Some(name) = args.names.iter().find(|n| CAMPAIGNS.iter().all(|(known, _)| known != n)) {
        return Err(format!("no campaign `{name}`; there are: {}", known()));
    }
    let mut state = args.state.as_deref().map_or_else(|| Ok(State::default()), State::read)?;
    for (name, make) in CAMPAIGNS.iter().filter(|(n, _)| args.names.is_empty() || args.names.iter().any(|a| a == n)) {
        let campaign = make();
        pursue(name, &*campaign, args, &mut state)?;
    }
    print!("{}", table::text(&state));
    for failure in &state.failures {
        println!("{failure}");
    }
    Ok(state.failures.is_empty())
}

/// Runs one campaign until its time or its number of runs is over.
fn pursue(name: &str, campaign: &dyn Campaign, args: &Args, state: &mut State) -> Result<(), String> {
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64)).max(1);
    let started = Instant::now();
    let mut first = state.next(name).max(args.seed);
    let end = args.runs.map_or(u64::MAX, |runs| args.seed.saturating_add(runs));
    while first < end && (args.runs.is_some() || started.elapsed() < args.time) {
        let last = end.min(first + jobs * SEEDS_PER_JOB);
        let (next, until) = (AtomicU64::new(first), args.runs.is_none().then_some(started + args.time));
        let work = || {
            let mut runs = Vec::new();
            // A seed that was taken is run, so that none is left out.
            while until.is_none_or(|until| runs.is_empty() || Instant::now() < until) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= last {
                    break;
                }
                let began = Instant::now();
                let (kind, outcome) = attempt(campaign, seed);
                runs.push((seed, began.elapsed(), kind, outcome));
            }
            runs
        };
        let mut runs: Vec<(u64, Duration, String, Outcome)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs.min(last - first)).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|w| w.join().unwrap_or_default()).collect()
        });
        runs.sort_by_key(|(seed, ..)| *seed);
        for (seed, took, kind, outcome) in runs {
            state.add(name, seed, &kind, took, &outcome);
            if let Err(what) = outcome {
                let failure = Failure { campaign: name.to_owned(), kind, seed, what };
                eprintln!("{failure}");
                state.failures.push(failure);
            }
        }
        first = state.next(name);
        if let Some(path) = &args.state {
            state.write(path)?;
        }
    }
    eprintln!("{name}: {} s", started.elapsed().as_secs());
    Ok(())
}
