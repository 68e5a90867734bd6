//! Pauses of a polling thread: it spins, then yields, then sleeps. Uses no other module.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Limits of the pauses of one kind of thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time that the thread spins, which keeps a processor busy. After a moment it lets other threads have the processor.
    pub(crate) spin: Duration,
    /// Rounds after the spinning in which the thread yields the processor.
    pub(crate) yields: u32,
    /// Shortest and longest sleep. A sleep between them lasts an eighth of the pause so far, which bounds the latency
    /// of an event.
    pub(crate) naps: [Duration; 2],
}

/// Time after which a spinning thread lets others have its processor now and then. Programs compute on all processors between two
/// transfers, and their threads wait for each other.
const ALONE: Duration = Duration::from_micros(200);

/// One pause between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Spin,
    Yield,
    Nap(Duration),
}

impl Pause {
    /// Makes the pause. `nap` sleeps, or waits for an event that ends the sleep early.
    pub(crate) fn make(self, nap: impl FnOnce(Duration)) {
        match self {
            Self::Spin => std::hint::spin_loop(),
            Self::Yield => std::thread::yield_now(),
            Self::Nap(time) => nap(time),
        }
    }
}

/// Pause state of a polling thread: how long it has found no work.
#[derive(Debug)]
pub(crate) struct Idle {
    pace: Pace,
    rounds: u32,
    since: Option<Instant>,
    spins: bool,
}

impl Idle {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, rounds: 0, since: None, spins: !pace.spin.is_zero() }
    }

    /// Resets the pause after a poll that found work.
    pub(crate) fn busy(&mut self) {
        *self = Self::new(self.pace);
    }

    /// Counts a poll that found no work, and returns the pause before the next one.
    pub(crate) fn next(&mut self) -> Pause {
        self.rounds = self.rounds.wrapping_add(1);
        if self.spins {
            // Reading the clock takes longer than a round.
            let looks = self.rounds.is_power_of_two() || self.rounds.is_multiple_of(256);
            let elapsed = if looks { self.elapsed() } else { Duration::ZERO };
            if !looks || elapsed < self.pace.spin {
                return if elapsed < ALONE { Pause::Spin } else { Pause::Yield };
            }
            (self.spins, self.rounds) = (false, 1);
        }
        if self.rounds <= self.pace.yields {
            return Pause::Yield;
        }
        // Keeps the counter at the end of the yields, so that it never wraps into them.
        self.rounds = self.pace.yields;
        let [shortest, longest] = self.pace.naps;
        Pause::Nap((self.elapsed() / 8).clamp(shortest, longest))
    }

    /// Counts a poll that found no work, and pauses.
    pub(crate) fn rest(&mut self) {
        self.next().make(std::thread::sleep);
    }

    fn elapsed(&mut self) -> Duration {
        self.since.get_or_insert_with(Instant::now).elapsed()
    }
}

/// Waits until one of the descriptors is readable, or writable where that is wanted, or the time has passed.
pub(crate) fn wait(descriptors: &[(RawFd, bool)], time: Duration) {
    let mut polled: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|(fd, writes)| libc::pollfd {
            fd: *fd,
            events: libc::POLLIN | if *writes { libc::POLLOUT } else { 0 },
            revents: 0,
        })
        .collect();
    let time = libc::timespec {
        tv_sec: time.as_secs().min(3600) as libc::time_t,
        tv_nsec: time.subsec_nanos() as libc::c_long,
    };
    // SAFETY: the array has as many entries as the call is told, and the time is valid during the call. A failure, such
    // as an interruption, ends the wait early, which callers expect.
    unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &time, std::ptr::null()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace =
        Pace { spin: Duration::from_millis(5), yields: 3, naps: [Duration::from_micros(50), Duration::from_millis(2)] };

    #[test]
    fn a_thread_spins_yields_and_naps_for_ever_longer() {
        let mut idle = Idle::new(PACE);
        for _ in 0..2 {
            let started = Instant::now();
            let (mut yields, mut last) = (0u32, Pause::Spin);
            let first = loop {
                match idle.next() {
                    Pause::Nap(nap) => break nap,
                    pause => last = pause,
                }
                yields += u32::from(last == Pause::Yield);
                // At first the thread keeps its processor.
                assert!(yields == 0 || started.elapsed() >= ALONE);
            };
            assert!(started.elapsed() >= PACE.spin && last == Pause::Yield);
            assert!(yields >= PACE.yields, "{yields}");
            let mut naps = vec![first];
            while naps.last() != Some(&PACE.naps[1]) {
                let Pause::Nap(nap) = idle.next() else { panic!("a nap") };
                naps.push(nap);
                std::thread::sleep(nap);
            }
            assert!(naps.is_sorted() && naps[0] >= PACE.spin / 8, "{naps:?}");
            idle.busy();
        }
    }

    #[test]
    fn what_is_not_wanted_is_left_out() {
        let mut idle = Idle::new(Pace { spin: Duration::ZERO, yields: 0, ..PACE });
        assert_eq!(idle.next(), Pause::Nap(PACE.naps[0]));
        let mut idle = Idle::new(Pace { spin: Duration::ZERO, ..PACE });
        assert_eq!(
            std::array::from_fn(|_| idle.next()),
            [Pause::Yield, Pause::Yield, Pause::Yield, Pause::Nap(PACE.naps[0])]
        );
    }
}
