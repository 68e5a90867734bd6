//! Time that a command spends on its way between a thread of the host and a service thread.
//!
//! The times of a model are those that a host sees of the drive. The service thread counts them from the fetch of a command, to which
//! the way of the command and that of its completion would be added: cache lines that move between two processors. A short measurement
//! at the opening of a device makes two threads exchange such lines, as queues and doorbells do, and the controller takes the time
//! that it finds from each command.

use crossbeam::utils::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Exchanges of a measurement, if they take no longer than [`LIMIT`] altogether.
const EXCHANGES: usize = 1024;
const LIMIT: Duration = Duration::from_millis(2);
/// Fewest exchanges whose median says something.
const FEWEST: usize = 64;
/// Longest time of a way in nanoseconds. Longer ones are of threads that share a processor.
const LONGEST: u64 = 2_000;
/// Polls of a thread after which it lets others have its processor: the other thread may need it.
const POLLS: u32 = 256;
/// 8-byte words of a submission queue entry, and of a completion queue entry (NVMe Base 2.1, 4.1.1 and 4.2.1).
const ENTRY: usize = 8;
const ANSWER: usize = 2;

/// Lines of one exchange at a time: its number is in the doorbell, and in the last word of the answer.
#[derive(Default)]
struct Lines {
    entry: CachePadded<[AtomicU64; ENTRY]>,
    doorbell: CachePadded<AtomicU64>,
    answer: CachePadded<[AtomicU64; ANSWER]>,
    ends: CachePadded<AtomicBool>,
}

impl Lines {
    /// Waits until the word has this number. Returns false if the exchange ends before.
    fn await_number(&self, word: &AtomicU64, number: u64) -> bool {
        let mut polls = 0u32;
        while word.load(Ordering::Acquire) != number {
            if self.ends.load(Ordering::Relaxed) {
                return false;
            }
            polls += 1;
            if polls.is_multiple_of(POLLS) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        true
    }

    /// Replies to exchanges, as a controller does, until they end.
    fn answer_all(&self) {
        for number in 1.. {
            if !self.await_number(&self.doorbell, number) {
                return;
            }
            let sum = self.entry.iter().fold(0u64, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)));
            self.answer[0].store(sum, Ordering::Relaxed);
            self.answer[1].store(number, Ordering::Release);
        }
    }

    /// Makes one exchange, as a host does.
    fn ask(&self, number: u64) -> bool {
        self.entry.iter().for_each(|word| word.store(number, Ordering::Relaxed));
        self.doorbell.store(number, Ordering::Release);
        self.await_number(&self.answer[1], number)
    }

    /// Returns the times of exchanges in nanoseconds.
    fn exchange_all(&self) -> Vec<u64> {
        let began = Instant::now();
        let mut times = Vec::with_capacity(EXCHANGES);
        let mut before = began;
        for number in 1..=EXCHANGES as u64 {
            if !self.ask(number) {
                break;
            }
            let now = Instant::now();
            times.push((now - before).as_nanos() as u64);
            before = now;
            if now - began > LIMIT {
                break;
            }
        }
        times
    }
}

/// Ends the exchanges when it is dropped, also if the asking thread panics.
struct Ends<'l>(&'l Lines);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }
}

/// Returns the time in nanoseconds that a command and its completion are on their way: 0 if threads have no processors of their own,
/// so that there is no such time. Takes about two milliseconds at most.
pub(crate) fn measure() -> u64 {
    let lines = Lines::default();
    let times = std::thread::scope(|scope| {
        let ends = Ends(&lines);
        let answers =
            std::thread::Builder::new().name("soft-nvme-path".into()).spawn_scoped(scope, || lines.answer_all());
        // Without a thread the first exchange has no answer.
        let times = if answers.is_ok() { lines.exchange_all() } else { Vec::new() };
        drop(ends);
        times
    });
    of(times)
}

/// Returns the median, unless that is of threads that waited for each other's processor.
fn of(mut times: Vec<u64>) -> u64 {
    if times.len() < FEWEST {
        return 0;
    }
    let middle = times.len() / 2;
    let time = *times.select_nth_unstable(middle).1;
    if time <= LONGEST { time } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_that_of_threads_with_processors_of_their_own() {
        assert_eq!(of(vec![300; FEWEST - 1]), 0);
        let usual = (0..100).map(|i| if i < 60 { 300 + i } else { 50_000 }).collect();
        assert_eq!(of(usual), 350);
        assert_eq!(of(vec![50_000; 100]), 0);
        assert!(measure() <= LONGEST);
    }

    #[test]
    fn each_exchange_has_one_answer() {
        let lines = Lines::default();
        std::thread::scope(|scope| {
            let _ends = Ends(&lines);
            scope.spawn(|| lines.answer_all());
            for number in 1..=100 {
                assert!(lines.ask(number));
                assert_eq!(lines.answer[0].load(Ordering::Relaxed), ENTRY as u64 * number);
            }
        });
        assert!(!lines.ask(101), "the exchange has ended");
    }
}
