//! The queue core against an ideal controller: kernels submit and complete commands that spare warps serve at once, with no medium
//! behind them. What it measures is the cost of submission and completion.

use super::report::{Spread, nanoseconds};
use super::units::three_digits;
use crate::args;
use crate::engine::{Engine, EngineError, Grid, RunError, abi};
use crate::memory::{MemoryError, Place, Region};
use bytemuck::{Pod, Zeroable};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Why the queue core could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueBenchError {
    /// A launch.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// NVMe wants powers of two.
    #[error("a depth of {0} is not a power of two from 2 to 65536")]
    Depth(u32),
    /// Commands were lost, repeated or mixed up.
    #[error(
        "{queues} queue pair(s): {done} of {expected} commands came back as done, the controller served {served} ({wrong} of them \
         wrong), sums of addresses {submitted_sum:#x} and {served_sum:#x}"
    )]
    Wrong {
        /// Queue pairs.
        queues: u32,
        /// Completed as the submitters saw it.
        done: u64,
        /// Submitted.
        expected: u64,
        /// As the controller saw it.
        served: u64,
        /// Entries with a wrong identifier or opcode.
        wrong: u64,
        /// Sum of the addresses that came back as done.
        submitted_sum: u64,
        /// Sum of the addresses served.
        served_sum: u64,
    },
}

/// How long one measurement may take.
const LIMIT: Duration = Duration::from_secs(30);
/// The controller ends by itself after this time, should its stop word never come.
const CONTROLLER_LIMIT: Duration = Duration::from_secs(60);
/// Multiprocessors that the controller takes at most, and threads of a submitting block.
const CONTROLLER_BLOCKS: u32 = 32;
const THREADS_PER_BLOCK: u32 = 256;
/// A doorbell has a line of its own.
const DOORBELL_BYTES: usize = 128;

/// `warpbell::bench::served` of `kernels/bench/queue.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Served {
    commands: u64,
    sum: u64,
    wrong: u64,
    doorbells: u64,
}

/// `warpbell::bench::submitted` of `kernels/bench/queue.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Submitted {
    done: u64,
    failed: u64,
    sum: u64,
    doorbells: u64,
}

/// What to measure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueueSetting {
    /// Queue pairs.
    pub queues: u32,
    /// Entries in each queue.
    pub depth: u32,
    /// Threads that submit.
    pub submitters: u32,
    /// Commands of each.
    pub commands: u32,
    /// Measurements; one more warms up.
    pub runs: u32,
}

impl QueueSetting {
    /// Threads and commands that keep `queues` queue pairs of this engine busy for a few hundredths of a second.
    pub fn for_queues(engine: &Engine, queues: u32, depth: u32, runs: u32) -> Self {
        let (submitters, commands) = match (engine.kind(), queues) {
            ("gpu", 1..=3) => (1024 * queues, 2048),
            ("gpu", 4..=15) => (1024 * queues, 1024),
            ("gpu", _) => (65_536, 512),
            _ => (engine.threads() as u32, 20_000),
        };
        Self { queues, depth, submitters, commands, runs }
    }
}

/// One measured setting.
#[derive(Clone, Debug, Serialize)]
pub struct QueueRow {
    /// What was measured.
    #[serde(flatten)]
    pub setting: QueueSetting,
    /// Commands in a second.
    pub commands_per_s: Spread,
    /// Commands for each submission doorbell store, in the last run.
    pub commands_per_doorbell: f64,
}

/// The head of the table, two lines that begin with `#`.
pub const HEAD: &str = "# queues     depth   threads  commands   Mcmd/s    min    max  cmd/doorbell\n\
                        #                                        median";

impl fmt::Display for QueueRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mega = |rate: f64| three_digits(rate / 1e6);
        let (s, r) = (&self.setting, &self.commands_per_s);
        let total = u64::from(s.submitters) * u64::from(s.commands);
        write!(
            f,
            "{:>8}{:>10}{:>10}{total:>10}{:>9}{:>7}{:>7}{:>14.1}",
            s.queues,
            s.depth,
            s.submitters,
            mega(r.median),
            mega(r.min),
            mega(r.max),
            self.commands_per_doorbell
        )
    }
}

/// Rings, slot words and doorbells of `count` queue pairs, all in the kernels' own memory.
struct Queues {
    queues: Region,
    /// The rings that `queues` points into.
    _rings: Region,
}

impl Queues {
    fn new(engine: &Engine, count: u32, depth: u32) -> Result<Self, MemoryError> {
        let d = depth as usize;
        // Submission and completion ring, slot words, marks, outcomes, records, two doorbells; each part starts on a line.
        let parts = [d * 64, d * 16, d * 4, d * 4, d * 4, d * size_of::<abi::Record>(), DOORBELL_BYTES, DOORBELL_BYTES];
        let parts = parts.map(|bytes| bytes.next_multiple_of(DOORBELL_BYTES));
        let each: usize = parts.iter().sum();
        let rings = engine.allocate(Place::Device, each * count as usize)?;
        let queues = engine.allocate(Place::Device, size_of::<abi::Queue>() * count as usize)?;
        let list: Vec<abi::Queue> = (0..count)
            .map(|index| {
                let mut at = rings.address() + (each * index as usize) as u64;
                let [sq, cq, slot, mark, outcome, record, sq_doorbell, cq_doorbell] = parts.map(|bytes| {
                    let start = at;
                    at += bytes as u64;
                    start
                });
                abi::Queue {
                    sq,
                    cq,
                    sq_doorbell,
                    cq_doorbell,
                    slot,
                    mark,
                    outcome,
                    record,
                    depth,
                    log2_depth: depth.trailing_zeros(),
                    index,
                    ..abi::Queue::zeroed()
                }
            })
            .collect();
        queues.set_slice(0, &list)?;
        Ok(Self { queues, _rings: rings })
    }
}

/// Measures one setting.
pub fn measure(engine: &Engine, setting: QueueSetting) -> Result<QueueRow, QueueBenchError> {
    let QueueSetting { queues, depth, submitters, commands, runs } = setting;
    if !depth.is_power_of_two() || !(2..=65_536).contains(&depth) {
        return Err(QueueBenchError::Depth(depth));
    }
    let width = engine.info().warp_width;
    let (controller_grid, submitter_grid) = grids(engine, queues, submitters, width);
    let threads = submitter_grid.blocks * submitter_grid.threads;
    let setting = QueueSetting { submitters: threads, ..setting };
    let warps = (threads / width) as usize;
    let memory = Queues::new(engine, queues, depth)?;
    let stop = engine.allocate(Place::Host, 4)?;
    let served = engine.allocate(Place::Device, queues as usize * size_of::<Served>())?;
    let progress = engine.allocate(Place::Device, queues as usize * 4)?;
    let submitted = engine.allocate(Place::Device, warps * size_of::<Submitted>())?;
    let control = engine.control_address();
    // A first launch may have to wait until nothing else runs (it can grow the GPU's local memory), and the controller never
    // stops running: every kernel is launched once before.
    engine.launch("wb_bench_queue", submitter_grid, args!(&memory.queues, queues, control, 0u32, &submitted))?.finish()?;

    let expected = u64::from(threads) * u64::from(commands);
    let mut rates = Vec::new();
    let mut doorbells = 0;
    for turn in 0..=runs.max(1) {
        stop.set(0, 0u32)?;
        served.fill(0, queues as usize * size_of::<Served>(), 0)?;
        let limit = CONTROLLER_LIMIT.as_nanos() as u64;
        let controller = engine.launch(
            "wb_bench_ideal_controller",
            controller_grid,
            args!(&memory.queues, queues, &stop, limit, &served, &progress),
        )?;
        let submitting = args!(&memory.queues, queues, control, commands, &submitted);
        let elapsed = engine.launch("wb_bench_queue", submitter_grid, submitting)?.finish_within(LIMIT);
        stop.set(0, 1u32)?;
        controller.finish_within(LIMIT)?;
        let elapsed = elapsed?.elapsed;

        let by_controller = served.get_slice::<Served>(0, queues as usize)?;
        let by_submitters = submitted.get_slice::<Submitted>(0, warps)?;
        let total = |f: fn(&Submitted) -> u64| by_submitters.iter().map(f).fold(0u64, u64::wrapping_add);
        let seen = |f: fn(&Served) -> u64| by_controller.iter().map(f).fold(0u64, u64::wrapping_add);
        let all = (u128::from(expected) * u128::from(expected.saturating_sub(1)) / 2) as u64;
        let (done, sums) = (total(|s| s.done), [total(|s| s.sum), seen(|s| s.sum)]);
        let (count, wrong) = (seen(|s| s.commands), seen(|s| s.wrong));
        if done != expected || count != expected || wrong != 0 || sums != [all, all] {
            return Err(QueueBenchError::Wrong {
                queues,
                done,
                expected,
                served: count,
                wrong,
                submitted_sum: sums[0],
                served_sum: sums[1],
            });
        }
        doorbells = total(|s| s.doorbells);
        if turn > 0 {
            rates.push(expected as f64 / (nanoseconds(elapsed).max(1) as f64 / 1e9));
        }
    }
    let commands_per_s = Spread::of(rates).unwrap_or(Spread { min: 0.0, median: 0.0, max: 0.0 });
    Ok(QueueRow { setting, commands_per_s, commands_per_doorbell: expected as f64 / doorbells.max(1) as f64 })
}

/// The controller's grid and the submitters'.
fn grids(engine: &Engine, queues: u32, submitters: u32, width: u32) -> (Grid, Grid) {
    if engine.kind() == "gpu" {
        let blocks = queues.min(CONTROLLER_BLOCKS);
        let threads = submitters.clamp(width, THREADS_PER_BLOCK).next_multiple_of(width);
        (
            Grid { blocks, threads: queues.div_ceil(blocks).min(1024 / width) * width },
            Grid { blocks: submitters.div_ceil(threads), threads },
        )
    } else {
        (Grid { blocks: 1, threads: width }, Grid { blocks: submitters.div_ceil(width), threads: width })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_on_both_sides() {
        let engine = Engine::cpu().unwrap();
        for queues in [1, 3] {
            let setting = QueueSetting { queues, depth: 8, submitters: 2, commands: 300, runs: 1 };
            let row = measure(&engine, setting).unwrap();
            assert!(row.commands_per_s.median > 0.0 && row.commands_per_doorbell >= 1.0, "{row:?}");
        }
    }

    #[test]
    fn a_depth_is_a_power_of_two() {
        let setting = QueueSetting { queues: 1, depth: 48, submitters: 1, commands: 1, runs: 1 };
        assert!(matches!(measure(&Engine::cpu().unwrap(), setting), Err(QueueBenchError::Depth(48))));
    }
}
