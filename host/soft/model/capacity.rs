//! Models that this machine keeps up with.
//!
//! A short measurement at the opening of a device times what a model adds to a command on a service thread: the clock, the time of the
//! command, its place in the order of completions; and the copy of data. Most of a command's time are queue entries, doorbells and
//! memory that come from other processors, which a measurement by one thread does not see: [`MARGIN`] stands for these. A model
//! that needs more threads than there are is refused.

use super::parameters::DriveModel;
use super::timing::{Command, Flow, Kind, Timing};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

/// Measurements, of which the shortest counts: others are longer because the thread lost its processor.
const ROUNDS: usize = 6;
/// Commands of a measurement, and commands for which the clock is read once.
const COMMANDS: u64 = 1024;
const BATCH: u64 = 8;
/// Commands that wait for their completion meanwhile.
const WAITING: usize = 256;
/// Time of a command of a service thread as a multiple of the measured one. At 1.8 million commands of 512 bytes per second a service
/// thread took 170 ns of its processor for each, and the measurement 33 ns (two processors of an AMD EPYC, 2026-11-30). The multiple
/// leaves half as much again for processors that are farther from each other.
const MARGIN: f64 = 8.0;
/// Sizes of the copies, and of the memory that they read.
const COPY: usize = 64 << 10;
const MEMORY: usize = 4 << 20;

/// Time that commands take on this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Capacity {
    /// Time of a command without its data in nanoseconds.
    command_ns: f64,
    /// Time of a byte of data in nanoseconds.
    byte_ns: f64,
}

impl Capacity {
    /// Measures for about a millisecond.
    pub(crate) fn measure(model: &DriveModel) -> Self {
        let timing = Timing::new(model.clone());
        let shortest = |mut round: Box<dyn FnMut() -> f64 + '_>| (0..ROUNDS).map(|_| round()).fold(f64::MAX, f64::min);
        let command_ns = shortest(Box::new(|| commands(&timing)));
        let (from, mut to) = (vec![1u8; MEMORY], vec![0u8; COPY]);
        let byte_ns = shortest(Box::new(|| copies(&from, &mut to)));
        Self { command_ns: MARGIN * command_ns, byte_ns }
    }

    /// Returns the number of threads that the model needs at the rate that needs most, with that rate: bytes of a command and
    /// commands per second.
    pub(crate) fn threads(&self, model: &DriveModel) -> (f64, (u64, f64)) {
        let needs = |(bytes, iops): (u64, f64)| (iops * self.command(bytes) / 1e9, (bytes, iops));
        model.highest_rates().map(needs).fold((0.0, (0, 0.0)), |a, b| if b.0 > a.0 { b } else { a })
    }

    /// Checks that `threads` service threads on `processors` keep up with the model.
    ///
    /// # Errors
    /// The reason, with the numbers and a remedy.
    pub(crate) fn check(&self, model: &DriveModel, threads: usize, processors: usize) -> Result<(), String> {
        let running = threads.min(processors);
        let (needed, (bytes, iops)) = self.threads(model);
        if needed <= running as f64 {
            return Ok(());
        }
        let (each, count) = (1e9 / self.command(bytes), needed.ceil());
        let remedy = if count <= processors as f64 {
            format!("use threads={count}")
        } else {
            format!("use a machine with {count} processors or more, or a slower model")
        };
        Err(format!(
            "{model} completes {iops:.0} commands of {bytes} bytes per second, and {running} of {processors} processors as service \
             threads complete {:.0} on this machine, {each:.0} each; {remedy}",
            each * running as f64
        ))
    }

    fn command(&self, bytes: u64) -> f64 {
        self.command_ns + bytes as f64 * self.byte_ns
    }
}

/// Returns the time of one command in nanoseconds.
fn commands(timing: &Timing) -> f64 {
    let (began, mut flow) = (Instant::now(), Flow::new(1, 1));
    let mut waiting = BinaryHeap::with_capacity(WAITING + 1);
    let mut now = 0;
    for i in 0..COMMANDS {
        if i.is_multiple_of(BATCH) {
            now = began.elapsed().as_nanos() as u64;
        }
        let offset = i.wrapping_mul(0x9e37_79b9) & 0xffff_f000;
        let due = timing.completion(&mut flow, now, &Command { kind: Kind::Read, offset, bytes: 4096 });
        waiting.push(Reverse((due, i)));
        if waiting.len() > WAITING {
            black_box(waiting.pop());
        }
    }
    began.elapsed().as_nanos() as f64 / COMMANDS as f64
}

/// Returns the time of one byte in nanoseconds.
fn copies(from: &[u8], to: &mut [u8]) -> f64 {
    let began = Instant::now();
    for part in from.chunks_exact(to.len()) {
        to.copy_from_slice(black_box(part));
        black_box(&to);
    }
    began.elapsed().as_nanos() as f64 / from.len() as f64
}

#[cfg(test)]
mod tests {
    use super::super::parameters::tests::slow;
    use super::*;

    #[test]
    fn a_model_that_is_too_fast_is_refused_with_the_numbers() {
        // 10 us for a command and 10 ns for a byte: 51 us for 4 KiB.
        let machine = Capacity { command_ns: 10_000.0, byte_ns: 10.0 };
        let model = slow();
        // 128 KiB at 0.1 GB/s take 1.008 threads, and 10,000 commands of 4 KiB half a thread.
        let (threads, (bytes, iops)) = machine.threads(&model);
        assert_eq!(bytes, 131072);
        assert!((threads - 1.0076).abs() < 1e-3 && (iops - 762.94).abs() < 0.01, "{threads} {iops}");
        assert_eq!(machine.check(&model, 2, 2), Ok(()));
        let text = machine.check(&model, 1, 16).unwrap_err();
        assert!(
            text.starts_with("model slow completes 763 commands of 131072 bytes per second, and 1 of 16"),
            "{text}"
        );
        assert!(text.contains("complete 757 on this machine, 757 each; use threads=2"), "{text}");
        let text = machine.check(&model, 8, 1).unwrap_err();
        assert!(text.ends_with("use a machine with 2 processors or more, or a slower model"), "{text}");
    }

    #[test]
    fn every_machine_has_a_time() {
        let capacity = Capacity::measure(&slow());
        assert!(capacity.command_ns > 0.0 && capacity.byte_ns > 0.0);
    }
}
