//! State of a modelled drive: computes when each command completes from the time at which it arrives.
//!
//! All threads of a controller share the state, by relaxed atomics: a command takes one read-modify-write of the work, and one for
//! each unit that it occupies. Nothing is divided among queues, so one queue reaches the rate of the drive, and several do not
//! exceed it. Threads whose clocks are read at slightly different times see each other's commands in that order, which shifts a
//! command by less than the time between two polls.

use super::latency::Sampler;
use super::parameters::{Direction, DriveModel, REFERENCE_BYTES};
use crossbeam::utils::CachePadded;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Parts of a nanosecond in which the work of the drive is counted: ten million commands per second are 100 ns apart.
const PARTS: f64 = 64.0;
/// Time without commands that the drive makes up for, in nanoseconds. A thread that polls late otherwise takes from the rate.
const SLACK: u64 = 50_000;
/// Weight of one command in the part of writes, as a shift: about the last 256 commands count.
const SHARE_SHIFT: u32 = 8;
/// The part of writes that is all.
const ALL_WRITES: u32 = 1 << 24;

/// Kind of a command, as a model distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// Waits for the buffer of writes, unless that is protected.
    Flush,
    /// Transfers no data: takes as long as a small write of an idle drive.
    Other,
}

/// A command, as a model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) kind: Kind,
    /// Offset of the data on the drive in bytes.
    pub(crate) offset: u64,
    /// Size of the data in bytes.
    pub(crate) bytes: u64,
}

/// State of a modelled drive.
#[derive(Debug)]
pub(crate) struct Timing {
    model: DriveModel,
    reads: Sampler,
    writes: Sampler,
    mix_gain: f64,
    work: CachePadded<Work>,
    /// Time until which each unit is busy, in nanoseconds.
    units: Box<[AtomicU64]>,
}

/// Work that the drive has taken on, in parts of a nanosecond.
#[derive(Debug, Default)]
struct Work {
    /// Time until which the drive is busy with all of it.
    until: AtomicU64,
    /// Time until which it is busy with writes that the buffer has, or will have.
    buffered: AtomicU64,
    /// Time that the drive takes to empty a buffer that is full of writes like the last one.
    buffer: AtomicU64,
    /// Part of writes among the last commands, of [`ALL_WRITES`].
    share: AtomicU32,
}

/// State of one submission queue.
#[derive(Debug)]
pub(crate) struct Flow {
    random: SmallRng,
    /// Of the last read and of the last write: commands of one queue are alike.
    read: Size,
    write: Size,
}

/// Times that depend on the size of a command alone.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    bytes: u64,
    /// Shortest time between two commands of this size, in parts of a nanosecond.
    interval: u64,
    /// Time of the transfer in nanoseconds, less that of the reference size, which latencies include.
    transfer: i64,
}

impl Flow {
    /// Returns the state of a new queue. Its commands get the same random numbers for the same seed.
    pub(crate) fn new(seed: u64, queue: u16) -> Self {
        let random = SmallRng::seed_from_u64(seed ^ u64::from(queue).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { random, read: Size::default(), write: Size::default() }
    }
}

impl Timing {
    pub(crate) fn new(model: DriveModel) -> Self {
        let units = (0..model.units.count).map(|_| AtomicU64::new(0)).collect();
        Self {
            reads: Sampler::new(model.read.latency),
            writes: Sampler::new(model.write.latency),
            mix_gain: model.mix_gain(),
            work: CachePadded::default(),
            units,
            model,
        }
    }

    pub(crate) fn model(&self) -> &DriveModel {
        &self.model
    }

    /// Returns the time at which a command completes that was fetched at `now`. Both are nanoseconds since the same moment.
    pub(crate) fn completion(&self, flow: &mut Flow, now: u64, command: &Command) -> u64 {
        let random = flow.random.next_u64();
        match command.kind {
            Kind::Read => self.read(flow, now, command, random),
            Kind::Write => self.write(flow, now, command, random),
            Kind::Flush => self.drained(now) + self.writes.sample(random),
            Kind::Other => now + self.writes.sample(random),
        }
    }

    fn read(&self, flow: &mut Flow, now: u64, command: &Command, random: u64) -> u64 {
        let size = flow.read.of(command.bytes, &self.model.read, self.model.link);
        let start = self.take_on(now, self.mixed(size.interval, false));
        // Data in the buffer is complete for the host, and waits for the medium behind the reads.
        let ahead = self.work.buffered.load(Ordering::Relaxed).saturating_sub(parts(now));
        let start = start.saturating_sub(ahead.min(self.work.buffer.load(Ordering::Relaxed)));
        let begin = nanoseconds(start).max(now);
        let ready = self.sense(begin, command);
        ready + size.after(self.reads.sample(random))
    }

    fn write(&self, flow: &mut Flow, now: u64, command: &Command, random: u64) -> u64 {
        let size = flow.write.of(command.bytes, &self.model.write, self.model.link);
        let interval = self.mixed(size.interval, true);
        let start = self.take_on(now, interval);
        let buffer = interval.saturating_mul(self.model.buffer.bytes / command.bytes.max(1));
        let accepted = nanoseconds(start.saturating_sub(buffer)).max(now);
        if buffer > 0 {
            self.work.buffered.fetch_max(start + interval, Ordering::Relaxed);
            self.work.buffer.store(buffer, Ordering::Relaxed);
        }
        let begun = self.program(accepted, command, random as u32);
        let ready = if buffer > 0 { accepted } else { begun };
        ready + size.after(self.writes.sample(random))
    }

    /// Takes on work at the end of what there is. Returns its beginning.
    fn take_on(&self, now: u64, interval: u64) -> u64 {
        let earliest = parts(now.saturating_sub(SLACK));
        let mut until = self.work.until.load(Ordering::Relaxed);
        loop {
            let start = until.max(earliest);
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.work.until.compare_exchange_weak(until, start + interval, success, failure) {
                Ok(_) => return start,
                Err(now) => until = now,
            }
        }
    }

    /// Counts a command in the part of writes, and returns its time in the present mix of reads and writes.
    fn mixed(&self, interval: u64, is_write: bool) -> u64 {
        let share = self.work.share.load(Ordering::Relaxed);
        let target = if is_write { ALL_WRITES } else { 0 };
        if share == target {
            return interval;
        }
        // Two threads may overwrite each other's command: each of them counts little.
        let step = share.abs_diff(target) >> SHARE_SHIFT;
        let next = match (step, is_write) {
            (0, _) => target,
            (_, true) => share + step,
            (_, false) => share - step,
        };
        self.work.share.store(next, Ordering::Relaxed);
        let writes = f64::from(next) / f64::from(ALL_WRITES);
        (interval as f64 * (1.0 + self.mix_gain * 4.0 * writes * (1.0 - writes))) as u64
    }

    /// Returns the time at which the buffer of writes is empty, if that has to be waited for.
    fn drained(&self, now: u64) -> u64 {
        if self.model.buffer.is_protected {
            return now;
        }
        nanoseconds(self.work.buffered.load(Ordering::Relaxed)).max(now)
    }

    /// Occupies the units that a read needs, and returns the time at which the last one begins.
    fn sense(&self, begin: u64, command: &Command) -> u64 {
        let time = self.model.units.read_ns as u64;
        let begins = self.stripes(command).map(|stripe| occupy(self.unit(stripe), begin, time));
        begins.max().unwrap_or(begin)
    }

    /// Occupies the units that the data of a write is programmed to, and returns the time at which the last program begins. A
    /// write that is a part of a program occupies a unit for each such part with the probability that it completes the program.
    fn program(&self, begin: u64, command: &Command, random: u32) -> u64 {
        let units = &self.model.units;
        let (time, each) = (units.program_ns as u64, u64::from(units.program_bytes));
        let completes = command.bytes % each * (1 << 32) / each > u64::from(random);
        let programs = command.bytes / each + u64::from(completes);
        let first = command.offset / u64::from(units.stripe_bytes);
        let step = self.stripes(command).count() as u64 / programs.max(1);
        let mut begun = begin;
        for program in 0..programs {
            let unit = self.unit(first + program * step.max(1));
            // A read waits for one program that runs and for one that follows it at most: the drive does others later.
            if unit.load(Ordering::Relaxed) <= begin + time {
                begun = begun.max(occupy(unit, begin, time));
            }
        }
        begun
    }

    /// Returns the numbers of the stripes that a command touches.
    fn stripes(&self, command: &Command) -> std::ops::RangeInclusive<u64> {
        let stripe = u64::from(self.model.units.stripe_bytes);
        command.offset / stripe..=(command.offset + command.bytes.max(1) - 1) / stripe
    }

    /// Returns the unit of a stripe. Consecutive stripes of a row are on different units, and rows begin at scattered ones, so that
    /// no distance between two accesses favours a unit.
    fn unit(&self, stripe: u64) -> &AtomicU64 {
        let count = self.units.len() as u64;
        let row = stripe / count;
        let offset = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.units[((stripe + offset) % count) as usize]
    }
}

impl Size {
    /// Returns the times of a command of this size.
    #[inline]
    fn of(&mut self, bytes: u64, direction: &Direction, link: f64) -> Self {
        if self.bytes != bytes || self.interval == 0 {
            *self = Self {
                bytes,
                interval: ((direction.interval(bytes) * PARTS).round() as u64).max(1),
                transfer: ((bytes as f64 - REFERENCE_BYTES as f64) / link).round() as i64,
            };
        }
        *self
    }

    /// Returns the time of a command from that of one of the reference size.
    fn after(self, latency: u64) -> u64 {
        latency.saturating_add_signed(self.transfer)
    }
}

/// Occupies a unit for `time` from `begin` on, or once it is free. Returns the time at which that begins.
fn occupy(unit: &AtomicU64, begin: u64, time: u64) -> u64 {
    let mut until = unit.load(Ordering::Relaxed);
    loop {
        let start = until.max(begin);
        match unit.compare_exchange_weak(until, start + time, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return start,
            Err(now) => until = now,
        }
    }
}

fn parts(nanoseconds: u64) -> u64 {
    nanoseconds * PARTS as u64
}

fn nanoseconds(parts: u64) -> u64 {
    parts / PARTS as u64
}

#[cfg(test)]
mod tests {
    use super::super::parameters::tests::slow;
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns a model whose mixes only share the time of the drive.
    fn plain() -> DriveModel {
        let mut model = slow();
        model.mixed.iops = 1e9 / (0.7 * model.read.interval(4096) + 0.3 * model.write.interval(4096));
        model
    }

    fn read(offset: u64) -> Command {
        Command { kind: Kind::Read, offset, bytes: 4096 }
    }

    fn write(offset: u64) -> Command {
        Command { kind: Kind::Write, offset, bytes: 4096 }
    }

    #[test]
    fn a_burst_of_writes_goes_to_the_buffer_and_is_slow_once_that_is_full() {
        let model = plain();
        let (interval, holds) = (model.write.interval(4096) as u64, model.buffer.bytes / 4096);
        let longest = model.write.latency.p99_99 as u64 + 1;
        let (timing, mut flow) = (Timing::new(model), Flow::new(1, 1));
        let times: Vec<u64> =
            (0..2 * holds).map(|i| timing.completion(&mut flow, SECOND, &write(i << 20)) - SECOND).collect();
        assert!(times[..holds as usize].iter().all(|t| *t <= longest));
        let last = times[times.len() - 1];
        // The drive makes up for a moment of idleness at first.
        assert!(last + SLACK + 2 * interval >= holds * interval && last <= holds * interval + longest, "{last}");
    }

    #[test]
    fn reads_do_not_wait_for_writes_in_the_buffer() {
        let mut model = plain();
        model.units.program_ns = 1e3;
        let longest = model.read.latency.p99_99 as u64 + 1;
        let (timing, mut flow) = (Timing::new(model), Flow::new(1, 1));
        for i in 0..200 {
            timing.completion(&mut flow, SECOND, &write(i << 20));
        }
        let time = timing.completion(&mut flow, SECOND, &read(0)) - SECOND;
        assert!(time <= longest + 2_000, "{time}");
    }

    #[test]
    fn a_read_waits_for_the_program_of_its_unit_alone() {
        let mut model = plain();
        model.units.program_bytes = 4096;
        let (program, shortest) = (model.units.program_ns as u64, model.read.latency.p0 as u64);
        let longest = model.read.latency.p99_99 as u64 + 1;
        let (timing, mut flow) = (Timing::new(model), Flow::new(1, 1));
        timing.completion(&mut flow, SECOND, &write(0));
        let same = timing.completion(&mut flow, SECOND, &read(4096)) - SECOND;
        let other = timing.completion(&mut flow, SECOND, &read(16384)) - SECOND;
        assert!(same >= program + shortest && same <= program + longest, "{same}");
        assert!(other <= longest, "{other}");
    }

    #[test]
    fn a_large_read_takes_a_unit_for_each_stripe() {
        let mut model = plain();
        model.read.bandwidth = 100.0;
        let (sense, shortest) = (model.units.read_ns as u64, model.read.latency.p0 as u64);
        let longest = model.read.latency.p99_99 as u64 + 1;
        let (timing, mut flow) = (Timing::new(model), Flow::new(1, 1));
        let large = Command { kind: Kind::Read, offset: 0, bytes: 65536 };
        timing.completion(&mut flow, SECOND, &large);
        let busy = |unit: &&AtomicU64| unit.load(Ordering::Relaxed) == SECOND + sense;
        assert_eq!(timing.units.iter().filter(busy).count(), 4);
        let behind = timing.completion(&mut flow, SECOND, &read(49152)) - SECOND;
        assert!(behind >= sense + shortest && behind <= sense + longest, "{behind}");
    }

    #[test]
    fn each_row_of_stripes_is_on_all_units() {
        let timing = Timing::new(plain());
        let count = timing.units.len() as u64;
        for row in [0, 1, 7, 1 << 30] {
            let on: std::collections::HashSet<_> =
                (0..count).map(|i| std::ptr::from_ref(timing.unit(row * count + i))).collect();
            assert_eq!(on.len() as u64, count);
        }
    }

    #[test]
    fn a_flush_waits_for_a_buffer_that_is_not_protected() {
        for is_protected in [true, false] {
            let mut model = plain();
            model.buffer.is_protected = is_protected;
            let (interval, longest) = (model.write.interval(4096) as u64, model.write.latency.p99_99 as u64 + 1);
            let (timing, mut flow) = (Timing::new(model), Flow::new(1, 1));
            for i in 0..200 {
                timing.completion(&mut flow, SECOND, &write(i << 20));
            }
            let flush = Command { kind: Kind::Flush, offset: 0, bytes: 0 };
            let time = timing.completion(&mut flow, SECOND, &flush) - SECOND;
            let drain = 200 * interval - SLACK;
            assert_eq!(time >= drain, !is_protected, "{time}");
            assert!(time <= longest + if is_protected { 0 } else { 200 * interval });
        }
    }

    #[test]
    fn two_threads_together_keep_to_the_rate_of_the_drive() {
        let model = slow();
        let rate = 1e9 / model.read.interval(4096);
        let timing = Timing::new(model);
        const EACH: u64 = 20_000;
        let last = std::thread::scope(|scope| {
            let threads = [1, 2].map(|queue| {
                let timing = &timing;
                scope.spawn(move || {
                    let mut flow = Flow::new(1, queue);
                    (0..EACH).map(|i| timing.completion(&mut flow, SECOND, &read((i * 7919) << 14))).max().unwrap()
                })
            });
            threads.map(|t| t.join().unwrap()).into_iter().max().unwrap()
        });
        let expected = 2.0 * EACH as f64 / rate * 1e9;
        let found = (last - SECOND) as f64;
        assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}");
    }

    proptest! {
        #[test]
        fn no_command_completes_before_its_shortest_time(
            commands in prop::collection::vec((0u8..4, 0u64..1 << 40, 1u64..=256, 0u64..1 << 20), 1..200), seed: u64,
        ) {
            let model = slow();
            let (link, read, write) = (model.link, model.read.latency.p0, model.write.latency.p0);
            let (timing, mut flow, mut now) = (Timing::new(model), Flow::new(seed, 3), 0);
            for (kind, offset, blocks, pause) in commands {
                now += pause;
                let kind = [Kind::Read, Kind::Write, Kind::Flush, Kind::Other][usize::from(kind)];
                let bytes = if matches!(kind, Kind::Read | Kind::Write) { blocks * 512 } else { 0 };
                let done = timing.completion(&mut flow, now, &Command { kind, offset: offset & !511, bytes });
                let shortest = if kind == Kind::Read { read } else { write };
                let transfer = if bytes > 0 { (bytes as f64 - 4096.0) / link } else { 0.0 };
                prop_assert!((done - now) as f64 + 2.0 >= shortest + transfer, "{kind:?} {bytes}: {}", done - now);
            }
        }
    }
}
