//! Runs `warpbell top`: the activity of this user's processes.

use super::rates::{Interval, PeRates, QueueRates, Rates, time};
use super::{Observed, interval, socket};
use crate::output::{Failure, plain_or_styled, say};
use crate::reports::SCHEMA;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;
use warpbell::metrics::Snapshot;
use warpbell::units::si;

#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Numbers of the processes [default: all warpbell processes of this user]
    #[arg(value_name = "PID")]
    pids: Vec<u32>,
    /// Time between two refreshes, over which the rates are taken
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print once, after one interval
    #[arg(long)]
    once: bool,
    /// Print a line of JSON for each refresh
    #[arg(long)]
    json: bool,
    /// Show each queue pair, and each connection between PEs
    #[arg(long)]
    queues: bool,
}

/// Activity of a process, as JSON.
#[derive(Serialize)]
struct Shown {
    pid: u32,
    command: String,
    uptime_s: f64,
    #[serde(flatten)]
    rates: Rates,
    #[serde(skip_serializing_if = "Option::is_none")]
    queues: Option<Vec<QueueRates>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<Vec<PeRates>>,
}

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows the activity until the user ends it, or once.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed. [`Failure::Error`] if a process that was named shows no counters, or
/// the folder of the sockets is not this user's.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    let mut earlier = read(args)?;
    loop {
        std::thread::sleep(args.interval);
        let now = read(args)?;
        let shown: Vec<Shown> = now.values().filter_map(|now| shown(earlier.get(&now.pid)?, now, args)).collect();
        if args.json {
            let document = serde_json::json!({ "schema": SCHEMA, "command": "top", "processes": shown });
            plain_or_styled(&document.to_string())?;
        } else {
            if !args.once && io::stdout().is_terminal() {
                plain_or_styled(CLEAR)?;
            }
            print(&shown)?;
        }
        if args.once {
            return Ok(());
        }
        earlier = now;
    }
}

/// Reads the counters of the processes. Leaves out those that have ended, unless the user named them.
fn read(args: &TopArgs) -> Result<BTreeMap<u32, Observed>, Failure> {
    let pids = if args.pids.is_empty() { socket::processes()? } else { args.pids.clone() };
    let mut all = BTreeMap::new();
    for pid in pids {
        match socket::observe(pid) {
            Ok(observed) => {
                all.insert(pid, Observed { pid, ..observed });
            }
            Err(e) if args.pids.is_empty() => tracing::debug!(pid, error = %e, "a process shows no counters"),
            Err(e) => {
                return Err(Failure::Error(format!(
                    "process {pid} shows no counters: {e}; name a warpbell process of this user that runs graph, bench, table or volume"
                )));
            }
        }
    }
    Ok(all)
}

fn shown(earlier: &Observed, now: &Observed, args: &TopArgs) -> Option<Shown> {
    // Another process may have taken the number of one that ended.
    let is_same = now.counters.uptime_s >= earlier.counters.uptime_s;
    let none = Snapshot::default();
    let interval = Interval::new(if is_same { &earlier.counters } else { &none }, &now.counters);
    Some(Shown {
        pid: now.pid,
        command: now.command.clone(),
        uptime_s: now.counters.uptime_s,
        rates: interval.rates(),
        queues: args.queues.then(|| interval.queues()),
        connections: args.queues.then(|| interval.pes()),
    })
}

fn print(all: &[Shown]) -> Result<(), Failure> {
    say!(
        "{:>7} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>8}  {:<16} HITS",
        "PID",
        "IOPS r",
        "IOPS w",
        "MB/s r",
        "MB/s w",
        "IN FLIGHT",
        "LATENCY",
        "ERRORS",
        "FAULTS",
        "POSTED/S",
        "COMMAND"
    )?;
    for p in all {
        let r = &p.rates;
        say!(
            "{:>7} {:>7} {:>7} {:>9.1} {:>9.1} {:>9} {:>9} {:>6} {:>6} {:>8}  {:<16} {}",
            p.pid,
            si(r.read_iops),
            si(r.write_iops),
            r.read_bytes_per_s / 1e6,
            r.write_bytes_per_s / 1e6,
            r.in_flight,
            time(r.latency_ns),
            r.errors,
            r.faults,
            si(r.posted_per_s),
            p.command,
            r.hit_text(),
        )?;
        for q in p.queues.iter().flatten() {
            let (device, queue, iops) = (&q.device, &q.queue, si(q.iops));
            let (in_flight, depth, latency) = (q.in_flight, q.depth, time(q.latency_ns));
            say!(
                "          queue {queue:>3}  IOPS {iops:>6}  in flight {in_flight} of {depth}  lat {latency}  {device}"
            )?;
        }
        for c in p.connections.iter().flatten() {
            let (pe, peer, queue, posted) = (&c.pe, &c.peer, &c.queue, si(c.posted_per_s));
            let (in_flight, state) = (c.in_flight, if c.has_failed { "failed" } else { "ok" });
            say!("          PE {pe} to {peer}, queue {queue}  posted/s {posted:>6}  in flight {in_flight}  {state}")?;
        }
    }
    if all.is_empty() {
        say!("no warpbell process of this user runs graph, bench, table or volume")?;
    }
    Ok(())
}
