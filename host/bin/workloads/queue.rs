//! Measures the queue core alone: kernels that submit and wait, against an ideal controller made of kernels, which
//! completes every command at once. The figures are those of software only.

use super::error::{MeasureError, refuse};
use super::multiprocessors::{self, Compute, GpuCost};
use super::params::{QueueServiced as Serviced, QueueSubmitted as Submitted};
use super::spread::Spread;
use bytemuck::Zeroable;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use warpbell::args;
use warpbell::engine::{Engine, Grid, abi};
use warpbell::memory::{MemoryError, Place, Region};
use warpbell::units::{grouped, three_digits};

const CONTROLLER: &str = "wb_bench_ideal_controller";
const SUBMIT: &str = "wb_bench_queue";
const SUBMIT_ALONE: &str = "wb_bench_queue_alone";
/// Size of a submission queue entry in bytes (NVMe Base 2.1, 4.1.1).
const SQE: usize = 64;
/// Size of a completion queue entry in bytes (NVMe Base 2.1, 4.2.1).
const CQE: usize = 16;
/// Distance between doorbells in bytes: no two share a cache line.
const DOORBELL_STRIDE: usize = 128;
/// Submitting threads in a block.
const SUBMITTERS_PER_BLOCK: u32 = 256;
/// Warps of the ideal controller in a block: few, so that the controller has multiprocessors of its own.
const CONTROLLER_WARPS: u32 = 8;
/// Largest number of commands of a measurement.
const MOST_COMMANDS: u64 = u32::MAX as u64 * 4;
/// Time limit of one measurement.
const LIMIT: Duration = Duration::from_secs(120);

/// Parameters that options give. Those that are absent suit the engine.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Queue pairs.
    pub queues: u32,
    /// Entries of each queue.
    pub depth: u32,
    /// Threads that submit.
    pub submitters: Option<u32>,
    /// Commands per thread.
    pub commands_each: Option<u32>,
    /// Multiprocessors of a GPU that the kernels are kept to.
    pub sms: Option<u32>,
}

/// Parameters of a measurement, which [`QueueSetting::new`] has checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueueSetting {
    /// Queue pairs.
    pub queues: u32,
    /// Entries of each queue.
    pub depth: u32,
    /// Threads that submit; each waits for its command before it submits the next. More than one are whole blocks.
    pub submitters: u32,
    /// Commands per thread.
    pub commands_each: u32,
    /// Multiprocessors of a GPU that the kernels are kept to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
}

impl QueueSetting {
    /// Returns the parameters of a measurement on `engine`. Without options there are enough threads to keep the queues
    /// half full, as many as `sms` multiprocessors hold, and enough commands for tenths of a second.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if the depth is no power of two from 2 to 65536, the number of commands is too large,
    /// or the multiprocessors do not hold all threads beside the controller. [`MeasureError::Engine`] if the engine
    /// cannot run so many threads, or the query of a kernel's occupancy fails.
    pub fn new(engine: &Engine, given: &QueueOptions) -> Result<Self, MeasureError> {
        let QueueOptions { queues, depth, sms, .. } = *given;
        if !depth.is_power_of_two() || !(2..=1 << 16).contains(&depth) {
            return refuse!("a queue of {depth} entries: choose a power of two from 2 to 65536");
        }
        multiprocessors::checked(engine, sms)?;
        let most = sms.map(|_| most_submitters(engine, queues, sms)).transpose()?;
        let (submitters, commands) = match engine.is_gpu() {
            true => (queues.saturating_mul(512).clamp(1024, 1 << 16).min(most.unwrap_or(u32::MAX)), 2048),
            false => (queues * 2, 10_000),
        };
        let submitters = whole_blocks(given.submitters.unwrap_or(submitters), engine.info().warp_width);
        let setting = Self { queues, depth, submitters, commands_each: given.commands_each.unwrap_or(commands), sms };
        if setting.commands() > MOST_COMMANDS {
            return refuse!(
                "{submitters} threads with {} commands each are too many: give fewer --submitters or --commands",
                setting.commands_each
            );
        }
        if let (Some(sms), Some(most)) = (sms, most.filter(|most| submitters > *most)) {
            return refuse!(
                "--sms {sms}: {submitters} threads do not run at once there; give {most} --submitters or fewer"
            );
        }
        let width = engine.info().warp_width;
        engine.check_grid(CONTROLLER, setting.controller_grid(width))?;
        engine.check_grid(setting.kernel(), setting.grid(width))?;
        Ok(setting)
    }

    /// Returns the number of commands of all threads.
    fn commands(&self) -> u64 {
        u64::from(self.submitters) * u64::from(self.commands_each)
    }

    /// Returns true if one thread submits. It has a kernel of its own, of one warp.
    fn is_alone(&self) -> bool {
        self.submitters == 1
    }

    /// Returns the name of the submitters' kernel.
    fn kernel(&self) -> &'static str {
        if self.is_alone() { SUBMIT_ALONE } else { SUBMIT }
    }

    /// Returns the number of submitting warps.
    fn warps(&self, width: u32) -> u32 {
        self.submitters.div_ceil(width)
    }

    /// Returns the grid of the submitters.
    fn grid(&self, width: u32) -> Grid {
        blocks_of(self.warps(width), SUBMITTERS_PER_BLOCK / 32, width)
    }

    /// Returns the grid of the ideal controller.
    fn controller_grid(&self, width: u32) -> Grid {
        blocks_of(self.queues, CONTROLLER_WARPS, width)
    }
}

/// Returns a number of submitters in whole blocks: every warp of the grid submits.
fn whole_blocks(submitters: u32, width: u32) -> u32 {
    match submitters {
        1 => 1,
        n if width == 32 && n > SUBMITTERS_PER_BLOCK => n.next_multiple_of(SUBMITTERS_PER_BLOCK),
        n => n.next_multiple_of(width),
    }
}

/// Returns the number of submitting threads that run at once beside the controller of so many queues.
fn most_submitters(engine: &Engine, queues: u32, sms: Option<u32>) -> Result<u32, MeasureError> {
    let all = multiprocessors::checked(engine, sms)?.unwrap_or(1);
    let controller = blocks_of(queues, CONTROLLER_WARPS, 32);
    let taken = controller.blocks.div_ceil(engine.occupancy(CONTROLLER, controller.threads)?.max(1));
    match all.checked_sub(taken) {
        None | Some(0) => refuse!(
            "--sms {all}: the controller of {queues} queues takes {taken}; give {} or more, or fewer --queues",
            taken + 1
        ),
        Some(left) => Ok(left * engine.occupancy(SUBMIT, SUBMITTERS_PER_BLOCK)?.max(1) * SUBMITTERS_PER_BLOCK),
    }
}

/// Rate of commands with one setting.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueueRow {
    /// Parameters of the measurement.
    #[serde(flatten)]
    pub setting: QueueSetting,
    /// Commands per second.
    pub commands_per_s: Spread,
    /// Commands per doorbell write, in the last run.
    pub commands_per_doorbell: f64,
    /// Share of a GPU that the submitters held, in the last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuCost>,
}

/// Head of the table: two lines that begin with `#`.
pub const HEAD: &str = "# queues     depth   threads  commands       min    median       max  cmds per\n#                                          Mcmd/s    Mcmd/s    Mcmd/s  doorbell";

impl fmt::Display for QueueRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, r) = (&self.setting, &self.commands_per_s);
        let commands = s.commands();
        let mega = |rate: f64| three_digits(rate / 1e6);
        write!(
            f,
            "{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            s.queues,
            s.depth,
            s.submitters,
            grouped(commands / 1000) + "k",
            mega(r.min),
            mega(r.median),
            mega(r.max),
            three_digits(self.commands_per_doorbell)
        )
    }
}

/// Queue pairs in the engine's memory that belong to no controller.
pub(super) struct Queues {
    queues: Region,
    rings: Region,
    doorbells: Region,
    words: Region,
    records: Region,
    count: usize,
    depth: usize,
}

impl Queues {
    /// Allocates `count` queues of `depth` entries.
    pub(super) fn new(engine: &Engine, count: u32, depth: u32) -> Result<Self, MeasureError> {
        let (count, depth) = (count as usize, depth as usize);
        let slots = count * depth;
        let device = |bytes| engine.allocate(Place::Device, bytes);
        Ok(Self {
            queues: device(count * size_of::<abi::Queue>())?,
            rings: device(slots * (SQE + CQE))?,
            doorbells: device(count * 2 * DOORBELL_STRIDE)?,
            // Slot words, marks and outcomes.
            words: device(slots * 3 * size_of::<u32>())?,
            records: device(slots * size_of::<abi::Record>())?,
            count,
            depth,
        })
    }

    /// Returns the structures of the queues.
    pub(super) fn table(&self) -> &Region {
        &self.queues
    }

    /// Returns the address of a queue's submission ring.
    pub(super) fn submission_ring(&self, queue: usize) -> u64 {
        self.rings.address() + (queue * self.depth * SQE) as u64
    }

    /// Resets the queues to the state of new ones: zeroes the rings, doorbells and words, and writes the structures, which
    /// `adjust` changes.
    pub(super) fn reset(&self, adjust: impl Fn(usize, abi::Queue) -> abi::Queue) -> Result<(), MemoryError> {
        for region in [&self.rings, &self.doorbells, &self.words] {
            region.fill(0, region.len(), 0)?;
        }
        let (queues, depth) = (self.count, self.depth);
        let slots = queues * depth;
        let all: Vec<abi::Queue> = (0..queues)
            .map(|q| {
                let at = |region: &Region, offset: usize| region.address() + offset as u64;
                let words = |list: usize| at(&self.words, (list * slots + q * depth) * size_of::<u32>());
                let queue = abi::Queue {
                    sq: self.submission_ring(q),
                    cq: at(&self.rings, slots * SQE + q * depth * CQE),
                    sq_doorbell: at(&self.doorbells, 2 * q * DOORBELL_STRIDE),
                    cq_doorbell: at(&self.doorbells, (2 * q + 1) * DOORBELL_STRIDE),
                    slot: words(0),
                    mark: words(1),
                    outcome: words(2),
                    record: at(&self.records, q * depth * size_of::<abi::Record>()),
                    depth: depth as u32,
                    log2_depth: depth.trailing_zeros(),
                    index: q as u32,
                    ..Zeroable::zeroed()
                };
                adjust(q, queue)
            })
            .collect();
        self.queues.set_slice(0, &all)
    }
}

/// Measures one setting `runs` times.
///
/// # Errors
/// [`MeasureError::Wrong`] if the two sides saw different commands, or a command failed. [`MeasureError::Memory`],
/// [`MeasureError::Engine`] or [`MeasureError::Run`] if memory or a kernel fails.
pub fn measure(engine: &Engine, setting: QueueSetting, runs: u32) -> Result<QueueRow, MeasureError> {
    let (width, commands) = (engine.info().warp_width, setting.commands());
    let (warps, grid) = (setting.warps(width) as usize, setting.grid(width));
    let compute = setting.sms.map(|_| Compute::measure(engine)).transpose()?;
    let queues = Queues::new(engine, setting.queues, setting.depth)?;
    let serviced = engine.allocate(Place::Device, setting.queues as usize * size_of::<Serviced>())?;
    let progress = engine.allocate(Place::Device, setting.queues as usize * size_of::<u32>())?;
    let submitted = engine.allocate(Place::Device, warps * size_of::<Submitted>())?;
    let stop = engine.allocate(Place::Host, size_of::<u32>())?;

    let mut rates = Vec::new();
    let mut per_doorbell = 0.0;
    let mut left = None;
    // One run more than requested: the first is a warm-up and does not count.
    for turn in 0..=runs {
        queues.reset(|_, queue| queue)?;
        serviced.fill(0, serviced.len(), 0)?;
        progress.fill(0, progress.len(), 0)?;
        submitted.fill(0, submitted.len(), 0)?;
        stop.set(0, 0u32)?;
        let limit_ns = LIMIT.as_nanos() as u64;
        let measured = || -> Result<Duration, MeasureError> {
            // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
            // ended.
            let controller = unsafe {
                engine.launch(
                    CONTROLLER,
                    setting.controller_grid(width),
                    args!(&queues.queues, setting.queues, &stop, limit_ns, &serviced, &progress),
                )
            }?;
            // The launch's error is returned only after the controller's kernel was told to stop.
            let (table, control, each) = (&queues.queues, engine.control_address(), setting.commands_each);
            // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
            // ended.
            let submitters = unsafe {
                match setting.is_alone() {
                    true => engine.launch(SUBMIT_ALONE, grid, args!(table, control, each, &submitted)),
                    false => engine.launch(SUBMIT, grid, args!(table, setting.queues, control, each, &submitted)),
                }
            };
            let ended = submitters.map(|run| run.finish_within(LIMIT));
            stop.set(0, 1u32)?;
            controller.finish_within(LIMIT)?;
            Ok(ended??.elapsed)
        };
        let elapsed;
        // The warm-up has all multiprocessors.
        let compute = compute.filter(|_| turn > 0);
        (elapsed, left) = Compute::beside(compute, engine, setting.sms, 2 * LIMIT, measured)?;

        let total = check(&setting, commands, &serviced, &submitted, warps)?;
        per_doorbell = commands as f64 / total.doorbells.max(1) as f64;
        if turn > 0 {
            rates.push(commands as f64 / elapsed.as_secs_f64());
        }
    }
    let commands_per_s = Spread::of(rates).unwrap_or(Spread { min: 0.0, median: 0.0, max: 0.0 });
    let gpu = GpuCost::of(engine, setting.kernel(), grid, setting.sms)?;
    let gpu = gpu.map(|gpu| GpuCost { compute_left: left, ..gpu });
    Ok(QueueRow { setting, commands_per_s, commands_per_doorbell: per_doorbell, gpu })
}

/// Returns a grid of `warps` warps. On the CPU engine a block is one warp.
fn blocks_of(warps: u32, warps_per_block: u32, width: u32) -> Grid {
    let each = if width == 32 { warps_per_block.min(warps) } else { 1 };
    Grid { blocks: warps.div_ceil(each), threads: each * width }
}

/// Checks that both sides saw every command exactly once, and returns the submitters' totals.
fn check(
    setting: &QueueSetting,
    commands: u64,
    serviced: &Region,
    submitted: &Region,
    warps: usize,
) -> Result<Submitted, MeasureError> {
    let mut controller = Serviced::default();
    for s in serviced.get_slice::<Serviced>(0, setting.queues as usize)? {
        controller.commands += s.commands;
        controller.sum = controller.sum.wrapping_add(s.sum);
        controller.wrong += s.wrong;
    }
    let mut threads = Submitted::default();
    for s in submitted.get_slice::<Submitted>(0, warps)? {
        threads.done += s.done;
        threads.failed += s.failed;
        threads.sum = threads.sum.wrapping_add(s.sum);
        threads.doorbells += s.doorbells;
    }
    let n = u128::from(commands);
    let sum = (n * n.saturating_sub(1) / 2) as u64;
    let checks = [
        ("the number of commands that failed", threads.failed, 0),
        ("the number of commands that were done", threads.done, commands),
        ("the sum of their addresses", threads.sum, sum),
        ("the number of commands that the controller saw", controller.commands, commands),
        ("the sum of the addresses that it saw", controller.sum, sum),
        ("the number of entries that it found wrong", controller.wrong, 0),
    ];
    match checks.into_iter().find(|(_, found, expected)| found != expected) {
        None => Ok(threads),
        Some((what, found, expected)) => {
            Err(MeasureError::Wrong(format!("{} queue(s): {what} is {found}, expected {expected}", setting.queues)))
        }
    }
}
