//! Pauses of a polling thread: it spins, then yields, then sleeps. Uses `contention`.

use crate::contention::{self, Contention};
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

/// Rounds of a thread that has to be awake, of which one lets others have its processor.
const AWAKE_ROUNDS: u32 = 64;

/// Shortest and longest sleep instead of a yield while other programs compute.
const CONTENDED_NAPS: [Duration; 2] = [Duration::from_micros(5), Duration::from_micros(100)];

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
    contention: &'static Contention,
    pace: Pace,
    rounds: u32,
    /// Calls of [`Idle::next_awake`].
    awake: u32,
    since: Option<Instant>,
    spins: bool,
    /// Time of the last pause, if that was a yield.
    yielded: Option<Instant>,
    /// True if another program was taken to want the processor at the last pause that would have been a yield.
    is_contended: bool,
}

impl Idle {
    pub(crate) fn new(pace: Pace) -> Self {
        Self::with(contention::of_process(), pace)
    }

    fn with(contention: &'static Contention, pace: Pace) -> Self {
        let (spins, is_contended) = (!pace.spin.is_zero(), contention.holds());
        Self { contention, pace, rounds: 0, awake: 0, since: None, spins, yielded: None, is_contended }
    }

    /// Resets the pause after a poll that found work.
    pub(crate) fn busy(&mut self) {
        self.busy_at(Instant::now);
    }

    fn busy_at(&mut self, now: impl Fn() -> Instant) {
        self.end_yield(now);
        (self.rounds, self.since, self.spins) = (0, None, !self.pace.spin.is_zero());
    }

    /// Returns true if another program seems to want this thread's processor. Such a thread does best what others have no time for.
    pub(crate) fn is_contended(&self) -> bool {
        self.is_contended
    }

    /// Looks how long the yield before this poll was, if there was one. The poll itself is short beside a time slice.
    fn end_yield(&mut self, now: impl Fn() -> Instant) {
        if let Some(yielded) = self.yielded.take() {
            let now = now();
            self.contention.yielded(now.saturating_duration_since(yielded), now);
        }
    }

    /// Counts a poll that found no work, and returns the pause before the next one.
    pub(crate) fn next(&mut self) -> Pause {
        self.next_at(Instant::now)
    }

    /// As [`Idle::next`], for a thread that has work at a known time: it spins, lets others have its processor now and then, and sleeps
    /// only while another program wants that.
    pub(crate) fn next_awake(&mut self) -> Pause {
        self.next_awake_at(Instant::now)
    }

    fn next_awake_at(&mut self, now: impl Fn() -> Instant) -> Pause {
        self.awake = self.awake.wrapping_add(1);
        if !self.awake.is_multiple_of(AWAKE_ROUNDS) {
            return Pause::Spin;
        }
        match self.next_at(&now) {
            Pause::Nap(_) => self.yields(now()),
            pause => pause,
        }
    }

    fn next_at(&mut self, now: impl Fn() -> Instant) -> Pause {
        self.end_yield(&now);
        self.rounds = self.rounds.wrapping_add(1);
        if self.spins {
            // Reading the clock takes longer than a round.
            let looks = self.rounds.is_power_of_two() || self.rounds.is_multiple_of(256);
            let elapsed = if looks { self.elapsed(now()) } else { Duration::ZERO };
            if !looks || elapsed < self.pace.spin {
                return if elapsed < ALONE { Pause::Spin } else { self.yields(now()) };
            }
            (self.spins, self.rounds) = (false, 1);
        }
        if self.rounds <= self.pace.yields {
            return self.yields(now());
        }
        // Keeps the counter at the end of the yields, so that it never wraps into them.
        self.rounds = self.pace.yields;
        self.nap(now(), self.pace.naps)
    }

    /// Counts a poll that found no work, and pauses.
    pub(crate) fn rest(&mut self) {
        self.next().make(std::thread::sleep);
    }

    /// Returns a yield, or a sleep if yields are long at present.
    fn yields(&mut self, now: Instant) -> Pause {
        self.is_contended = self.contention.holds_at(now);
        if self.is_contended {
            return self.nap(now, CONTENDED_NAPS);
        }
        self.yielded = Some(now);
        Pause::Yield
    }

    fn nap(&mut self, now: Instant, [shortest, longest]: [Duration; 2]) -> Pause {
        Pause::Nap((self.elapsed(now) / 8).clamp(shortest, longest))
    }

    fn elapsed(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.since.get_or_insert(now))
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
    use std::cell::Cell;

    const PACE: Pace =
        Pace { spin: Duration::from_millis(5), yields: 3, naps: [Duration::from_micros(50), Duration::from_millis(2)] };

    /// Pauses of a program that has the processors for itself.
    fn idle_alone(pace: Pace) -> Idle {
        Idle::with(Box::leak(Box::new(Contention::new())), pace)
    }

    /// A clock that this test moves.
    struct Clock(Cell<Instant>);

    impl Clock {
        fn new() -> Self {
            Self(Cell::new(Instant::now()))
        }

        fn pass(&self, time: Duration) {
            self.0.set(self.0.get() + time);
        }

        /// Returns the next pause, which then takes 0.1 us, or the time of a nap.
        fn pause(&self, idle: &mut Idle) -> Pause {
            let pause = idle.next_at(|| self.0.get());
            self.pass(if let Pause::Nap(nap) = pause { nap } else { Duration::from_nanos(100) });
            pause
        }
    }

    #[test]
    fn a_thread_spins_yields_and_naps_for_ever_longer() {
        let (mut idle, clock) = (idle_alone(PACE), Clock::new());
        for _ in 0..2 {
            let started = clock.0.get();
            let (mut yields, mut last) = (0u32, Pause::Spin);
            let first = loop {
                match clock.pause(&mut idle) {
                    Pause::Nap(nap) => break nap,
                    pause => last = pause,
                }
                yields += u32::from(last == Pause::Yield);
                // At first the thread keeps its processor.
                assert!(yields == 0 || clock.0.get() - started >= ALONE);
            };
            assert!(clock.0.get() - started >= PACE.spin && last == Pause::Yield);
            assert!(yields >= PACE.yields, "{yields}");
            let mut naps = vec![first];
            while naps.last() != Some(&PACE.naps[1]) {
                let Pause::Nap(nap) = clock.pause(&mut idle) else { panic!("a nap") };
                naps.push(nap);
            }
            assert!(naps.is_sorted() && naps[0] >= PACE.spin / 8, "{naps:?}");
            idle.busy_at(|| clock.0.get());
        }
    }

    #[test]
    fn after_a_long_yield_all_threads_nap_for_a_while() {
        let (known, clock) = (Contention::of_a_large_machine(), Clock::new());
        let idle = || Idle::with(known, Pace { spin: Duration::ZERO, ..PACE });
        let (mut one, mut other) = (idle(), idle());
        assert_eq!(clock.pause(&mut one), Pause::Yield);
        clock.pass(Duration::from_millis(10));
        let began = clock.0.get();
        while clock.0.get() < began + Duration::from_millis(40) {
            for idle in [&mut one, &mut other] {
                // Also after work.
                idle.busy_at(|| clock.0.get());
                assert_eq!(clock.pause(idle), Pause::Nap(CONTENDED_NAPS[0]));
                assert!(idle.is_contended());
            }
        }
        clock.pass(Duration::from_millis(10));
        for idle in [&mut one, &mut other] {
            assert_eq!(clock.pause(idle), Pause::Yield);
            assert!(!idle.is_contended());
        }
        assert_eq!(clock.pause(&mut one), Pause::Yield, "a short yield is no reason");
    }

    #[test]
    fn a_thread_that_has_work_soon_does_not_sleep() {
        let (mut idle, clock) = (idle_alone(PACE), Clock::new());
        let began = clock.0.get();
        let mut yields = 0;
        while clock.0.get() < began + 4 * PACE.spin {
            let pause = idle.next_awake_at(|| clock.0.get());
            assert!(!matches!(pause, Pause::Nap(_)));
            // By then it would not spin otherwise.
            yields += u32::from(clock.0.get() >= began + 2 * PACE.spin && pause == Pause::Yield);
            clock.pass(Duration::from_nanos(100));
        }
        // 10 ms of rounds of 0.1 us.
        let expected = 100_000 / AWAKE_ROUNDS;
        assert!((expected - 1..=expected + 1).contains(&yields), "{yields}");
        assert!(matches!(clock.pause(&mut idle), Pause::Nap(_)), "without the work it would sleep by now");
        // Beside another program it sleeps for moments.
        let (known, clock) = (Contention::of_a_large_machine(), Clock::new());
        let mut idle = Idle::with(known, Pace { spin: Duration::ZERO, ..PACE });
        let mut last_of_round = || (0..AWAKE_ROUNDS).map(|_| idle.next_awake_at(|| clock.0.get())).last();
        assert_eq!(last_of_round(), Some(Pause::Yield));
        clock.pass(Duration::from_millis(10));
        assert_eq!(last_of_round(), Some(Pause::Nap(CONTENDED_NAPS[0])));
    }

    #[test]
    fn what_is_not_wanted_is_left_out() {
        let mut idle = idle_alone(Pace { spin: Duration::ZERO, yields: 0, ..PACE });
        assert_eq!(idle.next(), Pause::Nap(PACE.naps[0]));
        let mut idle = idle_alone(Pace { spin: Duration::ZERO, ..PACE });
        assert_eq!(
            std::array::from_fn(|_| idle.next()),
            [Pause::Yield, Pause::Yield, Pause::Yield, Pause::Nap(PACE.naps[0])]
        );
    }
}
