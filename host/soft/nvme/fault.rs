//! Fault injection: kinds of faults, and the commands and times at which they occur.
//!
//! `every` counts over all I/O queues of the device, so a plan has the same effect whatever the number of queues. With
//! one queue, the same plan and the same commands give the same faults. With several queues, the number of commands
//! that are hit stays the same, but the order in which the queues are processed decides which ones. Faults selected by
//! blocks always hit the same commands.

use crate::wire::nvme::{SqEntry, Status, io, status};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kind of commands that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads; for media errors also compares.
    Read,
    /// Writes; for media errors also write zeroes.
    Write,
    /// Both kinds.
    Both,
}

/// Blocks that cannot be read, or cannot be written, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaError {
    /// Range of logical blocks, in every namespace.
    pub blocks: RangeInclusive<u64>,
    /// Commands that fail. Reads fail with "unrecovered read error", writes with "write fault".
    pub access: Access,
}

/// Time between the execution of a command and its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Latency {
    /// No added time.
    #[default]
    None,
    /// Fixed time.
    Fixed(Duration),
    /// Time that is evenly distributed between the two.
    Uniform(Duration, Duration),
    /// Exponentially distributed time with this mean.
    Exponential(Duration),
}

impl Latency {
    fn sample(self, random: &mut SmallRng) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Fixed(d) => d,
            Self::Uniform(low, high) => low + high.saturating_sub(low).mul_f64(random.random::<f64>()),
            // 1 - x lies in (0, 1], so the logarithm is finite.
            Self::Exponential(mean) => mean.mul_f64(-(1.0 - random.random::<f64>()).ln()),
        }
    }
}

/// Selects I/O commands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selector {
    /// Each `n`th command over all queues, counted from 1 in the order of completion.
    Every(u64),
    /// Commands that access one of these blocks.
    Blocks(RangeInclusive<u64>),
}

/// Time at which a fault hits the whole controller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// After this number of I/O commands over all queues; 0 means as soon as the controller is enabled.
    After(u64),
    /// At this I/O command over all queues, counted from 1. After a reset it does not occur again.
    Once(u64),
    /// At each I/O command that accesses one of these blocks.
    Blocks(RangeInclusive<u64>),
}

/// Queue from which no more commands are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckQueue {
    /// Submission queue; `None` for each of them.
    pub queue: Option<u16>,
    /// Number of commands that the queue still processes.
    pub after: u64,
}

/// Writes of which only the first half of the blocks, rounded down, is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornWrite {
    /// Writes that are hit. `Every` counts the write commands of the device.
    pub which: Selector,
    /// True if the command still succeeds. Otherwise it fails with "write fault".
    pub silent: bool,
}

/// Data of which one bit is flipped, in commands that succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Commands that are hit. `Every` counts the commands of the device that `access` names.
    pub which: Selector,
    /// Reads: the data that is delivered. Writes: the data that is stored.
    pub access: Access,
}

/// Queue whose completions are posted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowDrain {
    /// Submission queue; `None` for each of them.
    pub queue: Option<u16>,
    /// Time between two completions of the queue.
    pub interval: Duration,
}

/// Namespaces that shrink while they are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrink {
    /// Number of logical blocks that each larger namespace has afterwards.
    pub blocks: u64,
    /// Number of I/O commands over all queues before that.
    pub after: u64,
}

/// Time at which the controller becomes ready after it was enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// At once.
    #[default]
    Prompt,
    /// After this time.
    Slow(Duration),
    /// Not at all.
    Never,
}

/// Time over which reordered completions are spread. It covers a full queue of commands, and is short compared with any
/// timeout.
const REORDER_WINDOW: Duration = Duration::from_micros(50);

/// Plan of injected faults. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FaultPlan {
    /// Seed of all random choices.
    pub seed: u64,
    /// Blocks on which commands fail.
    pub media_errors: Vec<MediaError>,
    /// Added latency of commands.
    pub latency: Latency,
    /// Commands that are executed and get no completion.
    pub lose_completion: Option<Selector>,
    /// Completions with the wrong phase tag.
    pub wrong_phase: Option<Selector>,
    /// Each `n`th doorbell value over all submission queues is ignored, until its queue gets another one.
    pub lose_doorbell: Option<u64>,
    /// Queue that stops.
    pub stuck_queue: Option<StuckQueue>,
    /// Controller fatal status (CSTS.CFS).
    pub fatal: Option<Trigger>,
    /// Disappearance: registers then read all ones, and the device does nothing.
    pub disappear: Option<Trigger>,
    /// Each `n`th Flush of the device fails with "write fault" and flushes nothing.
    pub fail_flush: Option<u64>,
    /// Completions that are posted twice.
    pub repeat_completion: Option<Selector>,
    /// Writes that are stored in part.
    pub torn_write: Option<TornWrite>,
    /// Data that is changed without an error.
    pub corrupt: Vec<Corruption>,
    /// Completions that are posted one by one.
    pub slow_drain: Option<SlowDrain>,
    /// Namespaces that shrink.
    pub shrink: Option<Shrink>,
    /// Time until CSTS.RDY is set.
    pub ready: Readiness,
    /// True if completions are posted in random order.
    pub reorder: bool,
}

impl FaultPlan {
    /// Returns true if the plan affects commands.
    pub(super) fn touches_commands(&self) -> bool {
        *self != Self { seed: self.seed, ready: self.ready, ..Self::default() }
    }
}

/// Prints the plan as the options that [`super::SoftConfig::parse`] reads, each with a comma before it.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for m in &self.media_errors {
            write!(f, ",media-error={}{}", m.access, blocks(&m.blocks))?;
        }
        match self.latency {
            Latency::None => {}
            Latency::Fixed(d) => write!(f, ",latency={d:?}")?,
            Latency::Uniform(a, b) => write!(f, ",latency={a:?}-{b:?}")?,
            Latency::Exponential(mean) => write!(f, ",latency=exp:{mean:?}")?,
        }
        for (key, selector) in [
            ("lose-completion", &self.lose_completion),
            ("wrong-phase", &self.wrong_phase),
            ("repeat-completion", &self.repeat_completion),
        ] {
            if let Some(selector) = selector {
                write!(f, ",{key}={selector}")?;
            }
        }
        if let Some(n) = self.fail_flush {
            write!(f, ",fail-flush=every:{n}")?;
        }
        if let Some(TornWrite { which, silent }) = &self.torn_write {
            write!(f, ",torn-write={}{which}", if *silent { "silent:" } else { "" })?;
        }
        for Corruption { which, access } in &self.corrupt {
            write!(f, ",corrupt={access}{which}")?;
        }
        match self.slow_drain {
            None => {}
            Some(SlowDrain { queue: None, interval }) => write!(f, ",slow-drain={interval:?}")?,
            Some(SlowDrain { queue: Some(q), interval }) => write!(f, ",slow-drain={q}:{interval:?}")?,
        }
        if let Some(Shrink { blocks, after }) = self.shrink {
            write!(f, ",shrink={blocks}:after:{after}")?;
        }
        if let Some(n) = self.lose_doorbell {
            write!(f, ",lose-doorbell=every:{n}")?;
        }
        match self.stuck_queue {
            None => {}
            Some(StuckQueue { queue: None, after }) => write!(f, ",stuck-queue=after:{after}")?,
            Some(StuckQueue { queue: Some(q), after }) => write!(f, ",stuck-queue={q}:after:{after}")?,
        }
        for (key, trigger) in [("fatal", &self.fatal), ("disappear", &self.disappear)] {
            match trigger {
                None => {}
                Some(Trigger::After(n)) => write!(f, ",{key}=after:{n}")?,
                Some(Trigger::Once(n)) => write!(f, ",{key}=once:{n}")?,
                Some(Trigger::Blocks(b)) => write!(f, ",{key}={}", blocks(b))?,
            }
        }
        match self.ready {
            Readiness::Prompt => {}
            Readiness::Slow(d) => write!(f, ",slow-ready={d:?}")?,
            Readiness::Never => f.write_str(",never-ready")?,
        }
        if self.reorder {
            f.write_str(",reorder")?;
        }
        if self.seed != 0 {
            write!(f, ",seed={}", self.seed)?;
        }
        Ok(())
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read:",
            Self::Write => "write:",
            Self::Both => "",
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(n) => write!(f, "every:{n}"),
            Self::Blocks(b) => f.write_str(&blocks(b)),
        }
    }
}

impl Selector {
    /// Returns true if the selector selects the `nth` counted command, which accesses the blocks `range`.
    fn hits(&self, nth: u64, range: Option<&RangeInclusive<u64>>) -> bool {
        match self {
            Self::Every(n) => nth.is_multiple_of(*n),
            Self::Blocks(b) => range.is_some_and(|r| overlap(r, b)),
        }
    }
}

fn blocks(range: &RangeInclusive<u64>) -> String {
    format!("{}-{}", range.start(), range.end())
}

/// Returns the blocks that a command accesses, if it names blocks in dwords 10 to 12.
fn touched(e: &SqEntry) -> Option<RangeInclusive<u64>> {
    matches!(e.opcode(), io::READ | io::WRITE | io::COMPARE | io::WRITE_ZEROES | io::WRITE_UNCORRECTABLE)
        .then(|| e.slba()..=e.slba().saturating_add(u64::from(e.blocks()) - 1))
}

fn overlap(a: &RangeInclusive<u64>, b: &RangeInclusive<u64>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

/// Effect of the plan on a command before its execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultAction {
    /// The command runs, with this damage to its data.
    Run(Damage),
    Fail(Status),
    Fatal,
    Disappear,
}

/// Damage to the data of a command that runs. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    /// Status of a write of which only the first half is stored.
    pub(super) torn: Option<Status>,
    /// Random number that selects the bit to flip, modulo the bits that the command transfers.
    pub(super) flip: Option<u64>,
}

impl Damage {
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Effect of the plan on a command's completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) delay: Duration,
    pub(super) lost: bool,
    pub(super) wrong_phase: bool,
    pub(super) repeated: bool,
}

/// State of the plan for the device: counters over all of its I/O queues. A reset does not change them.
#[derive(Debug, Default)]
pub(super) struct DeviceFaults {
    fetched: AtomicU64,
    completed: AtomicU64,
    doorbells: AtomicU64,
    flushes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    shrunk: AtomicBool,
}

impl DeviceFaults {
    /// Returns the number of blocks to shrink namespaces to, once, at the first call after the plan's time.
    pub(super) fn shrinks(&self, plan: &FaultPlan) -> Option<u64> {
        let Shrink { blocks, after } = plan.shrink?;
        let due = self.fetched.load(Ordering::Relaxed) > after && !self.shrunk.swap(true, Ordering::Relaxed);
        due.then_some(blocks)
    }
}

/// Increments a counter and returns the new value, so the first is 1.
fn next(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}

/// State of the plan for one submission queue.
#[derive(Debug)]
pub(super) struct QueueFaults {
    random: SmallRng,
    fetched: u64,
    seen_tail: u32,
    ignored_tail: Option<u32>,
    stuck_after: Option<u64>,
    /// Time between two completions, and earliest time of the next one.
    drain: Option<(Duration, Instant)>,
}

impl QueueFaults {
    pub(super) fn new(plan: &FaultPlan, queue: u16) -> Self {
        Self {
            random: SmallRng::seed_from_u64(plan.seed ^ u64::from(queue).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            fetched: 0,
            seen_tail: 0,
            ignored_tail: None,
            stuck_after: plan.stuck_queue.filter(|s| s.queue.is_none_or(|q| q == queue)).map(|s| s.after),
            drain: plan
                .slow_drain
                .filter(|s| s.queue.is_none_or(|q| q == queue))
                .map(|s| (s.interval, Instant::now() + s.interval)),
        }
    }

    /// Returns true if a doorbell value is not lost.
    pub(super) fn is_delivered(&mut self, plan: &FaultPlan, device: &DeviceFaults, tail: u32) -> bool {
        if let Some(n) = plan.lose_doorbell
            && tail != self.seen_tail
        {
            self.seen_tail = tail;
            self.ignored_tail = next(&device.doorbells).is_multiple_of(n).then_some(tail);
        }
        self.ignored_tail != Some(tail)
    }

    /// Returns the number of commands that may still be fetched.
    pub(super) fn allowance(&self) -> u32 {
        self.stuck_after.map_or(u32::MAX, |n| n.saturating_sub(self.fetched).min(u64::from(u32::MAX)) as u32)
    }

    /// Counts a fetched command and returns the plan's effect on it.
    pub(super) fn fetch(&mut self, plan: &FaultPlan, device: &DeviceFaults, e: &SqEntry) -> FaultAction {
        self.fetched += 1;
        let nth = next(&device.fetched);
        let range = touched(e);
        let hit = |t: &Option<Trigger>| match t {
            None => false,
            Some(Trigger::After(n)) => nth > *n,
            Some(Trigger::Once(n)) => nth == *n,
            Some(Trigger::Blocks(b)) => range.as_ref().is_some_and(|r| overlap(r, b)),
        };
        if hit(&plan.disappear) {
            return FaultAction::Disappear;
        }
        if hit(&plan.fatal) {
            return FaultAction::Fatal;
        }
        if e.opcode() == io::FLUSH && plan.fail_flush.is_some_and(|n| next(&device.flushes).is_multiple_of(n)) {
            return FaultAction::Fail(status::WRITE_FAULT);
        }
        let Some(range) = range else { return FaultAction::Run(Damage::default()) };
        let writes = matches!(e.opcode(), io::WRITE | io::WRITE_ZEROES);
        let reads = matches!(e.opcode(), io::READ | io::COMPARE);
        for m in plan.media_errors.iter().filter(|m| overlap(&m.blocks, &range)) {
            if reads && m.access != Access::Write {
                return FaultAction::Fail(status::UNRECOVERED_READ_ERROR);
            }
            if writes && m.access != Access::Read {
                return FaultAction::Fail(status::WRITE_FAULT);
            }
        }
        FaultAction::Run(damage(plan, device, e.opcode(), &range))
    }

    /// Counts a command's completion and returns the plan's effect on it.
    pub(super) fn complete(&mut self, plan: &FaultPlan, device: &DeviceFaults, e: &SqEntry) -> Delivery {
        let nth = next(&device.completed);
        let hit = |s: &Option<Selector>| s.as_ref().is_some_and(|s| s.hits(nth, touched(e).as_ref()));
        let reorder = match plan.reorder {
            true => REORDER_WINDOW.mul_f64(self.random.random::<f64>()),
            false => Duration::ZERO,
        };
        let mut delay = plan.latency.sample(&mut self.random) + reorder;
        if let Some((interval, next)) = &mut self.drain {
            let now = Instant::now();
            let due = (now + delay).max(*next);
            *next = due + *interval;
            delay = due.duration_since(now);
        }
        Delivery {
            delay,
            lost: hit(&plan.lose_completion),
            wrong_phase: hit(&plan.wrong_phase),
            repeated: hit(&plan.repeat_completion),
        }
    }
}

/// Counts a read or a write and returns the damage to its data.
fn damage(plan: &FaultPlan, device: &DeviceFaults, opcode: u8, range: &RangeInclusive<u64>) -> Damage {
    let (nth, spared) = match opcode {
        io::READ => (next(&device.reads), Access::Write),
        io::WRITE => (next(&device.writes), Access::Read),
        _ => return Damage::default(),
    };
    let torn = plan.torn_write.as_ref().filter(|t| opcode == io::WRITE && t.which.hits(nth, Some(range)));
    let torn = torn.map(|t| if t.silent { status::SUCCESS } else { status::WRITE_FAULT });
    let corrupt = plan.corrupt.iter().find(|c| c.access != spared && c.which.hits(nth, Some(range)));
    // For the same command number, or the same blocks, the same bit is flipped.
    let flip = corrupt.map(|c| {
        let of = if matches!(c.which, Selector::Every(_)) { nth } else { *range.start() };
        SmallRng::seed_from_u64(plan.seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15)).random()
    });
    Damage { torn, flip }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(slba: u64, blocks: u32) -> SqEntry {
        let mut e = SqEntry::new(io::READ, 1, 1);
        e.set_range(slba, blocks);
        e
    }

    #[test]
    fn media_errors_hit_every_overlap_and_nothing_else() {
        let plan = FaultPlan {
            media_errors: vec![MediaError { blocks: 100..=107, access: Access::Read }],
            ..FaultPlan::default()
        };
        let (mut q, device) = (QueueFaults::new(&plan, 1), DeviceFaults::default());
        for (slba, n, bad) in [(99, 1, false), (99, 2, true), (107, 1, true), (108, 1, false), (0, 65_536, true)] {
            let expected = if bad {
                FaultAction::Fail(status::UNRECOVERED_READ_ERROR)
            } else {
                FaultAction::Run(Damage::default())
            };
            assert_eq!(q.fetch(&plan, &device, &read(slba, n)), expected, "{slba}+{n}");
        }
        let mut write = read(100, 1);
        write.cdw0 = (write.cdw0 & !0xff) | u32::from(io::WRITE);
        assert_eq!(q.fetch(&plan, &device, &write), FaultAction::Run(Damage::default()));
        assert_eq!(q.fetch(&plan, &device, &SqEntry::new(io::FLUSH, 1, 1)), FaultAction::Run(Damage::default()));
    }

    #[test]
    fn every_nth_is_counted_over_all_queues() {
        let plan = FaultPlan {
            lose_completion: Some(Selector::Every(3)),
            wrong_phase: Some(Selector::Every(2)),
            lose_doorbell: Some(3),
            ..FaultPlan::default()
        };
        // One queue per command, as on a machine with many processors.
        let device = DeviceFaults::default();
        let mut queues: Vec<_> = (1..=7).map(|id| QueueFaults::new(&plan, id)).collect();
        let ended: Vec<_> = queues.iter_mut().map(|q| q.complete(&plan, &device, &read(0, 1))).collect();
        let lost: Vec<bool> = ended.iter().map(|d| d.lost).collect();
        assert_eq!(lost, [false, false, true, false, false, true, false]);
        let wrong: Vec<bool> = ended.iter().map(|d| d.wrong_phase).collect();
        assert_eq!(wrong, [false, true, false, true, false, true, false]);
        let heard: Vec<bool> = queues.iter_mut().map(|q| q.is_delivered(&plan, &device, 1)).collect();
        assert_eq!(heard, [true, true, false, true, true, false, true]);
    }

    #[test]
    fn a_lost_doorbell_is_forgotten_when_the_next_one_rings() {
        let plan = FaultPlan { lose_doorbell: Some(2), ..FaultPlan::default() };
        let (mut q, device) = (QueueFaults::new(&plan, 1), DeviceFaults::default());
        assert!(q.is_delivered(&plan, &device, 4));
        assert!(!q.is_delivered(&plan, &device, 6));
        assert!(!q.is_delivered(&plan, &device, 6));
        assert!(q.is_delivered(&plan, &device, 9));
    }

    #[test]
    fn latencies_repeat_with_the_seed() {
        let plan = |seed| FaultPlan {
            seed,
            latency: Latency::Uniform(Duration::from_micros(10), Duration::from_micros(90)),
            ..FaultPlan::default()
        };
        let sample = |seed| {
            let p = plan(seed);
            let (mut q, device) = (QueueFaults::new(&p, 3), DeviceFaults::default());
            (0..32).map(|_| q.complete(&p, &device, &read(0, 1)).delay).collect::<Vec<_>>()
        };
        assert_eq!(sample(5), sample(5));
        assert_ne!(sample(5), sample(6));
        assert!(sample(5).iter().all(|d| (10..=90).contains(&d.as_micros())));
    }

    #[test]
    fn stuck_queues_serve_what_they_may() {
        let plan = FaultPlan { stuck_queue: Some(StuckQueue { queue: Some(2), after: 2 }), ..FaultPlan::default() };
        let (mut q, device) = (QueueFaults::new(&plan, 2), DeviceFaults::default());
        assert_eq!(q.allowance(), 2);
        q.fetch(&plan, &device, &read(0, 1));
        q.fetch(&plan, &device, &read(0, 1));
        assert_eq!(q.allowance(), 0);
        assert_eq!(QueueFaults::new(&plan, 1).allowance(), u32::MAX);
    }
}
