//! Other programs that compute on the processors of this one. Uses `per_process`, `processors` and `responsive`.
//!
//! A thread finds out by a yield that gave a whole time slice away, if this process does not have half of the processors itself. For a
//! while all of its threads then sleep where they would yield, since a short sleep is over sooner than another program's slice, and the
//! system is made to choose more often which thread goes on. By itself it does so at the ticks of its timer, 1 to 10 ms apart: a thread
//! that loses its processor at a tick gets it back at the next one, and the threads that wait for it, as those of a kernel do, wait as
//! long.

use crate::per_process::PerProcess;
use crate::responsive::Responsive;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Length of a yield that has given a time slice to another program.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// Shortest and longest time that another program is taken to compute after a long yield. Each time is twice the one before it, as long
/// as the first yield after it is long again.
const PERIODS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Least time over which this process's share of the processors is measured, and longest time after which a measurement is not begun
/// anew: before that the program may have had little to do.
const WINDOW: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// Time between two choices of the system on a processor.
const TURN: Duration = Duration::from_micros(200);

/// Knowledge about other programs.
#[derive(Debug)]
pub(crate) struct Contention {
    began: Instant,
    /// Time since `began` until which another program is taken to compute, in nanoseconds.
    until: AtomicU64,
    found: Mutex<Found>,
    has_turns: AtomicBool,
    processors: u32,
}

#[derive(Debug, Default)]
struct Found {
    /// Length of the time that was assumed last.
    period: Duration,
    /// Time since `began` of the long yield at which the measurement of the share began, and this process's processor time then.
    since: Option<[Duration; 2]>,
}

static CONTENTION: PerProcess<Contention> = PerProcess::new(Contention::new);

thread_local! {
    /// Settings of this thread while other programs compute.
    static RESPONSIVE: RefCell<Option<Responsive>> = const { RefCell::new(None) };
}

/// Returns what this process knows.
pub(crate) fn of_process() -> &'static Contention {
    CONTENTION.get()
}

/// Lets the calling thread, which waits for kernels, go on soon after it is woken, as long as other programs compute. The settings stay
/// between its waits: a change counts only after the time slice that began before it.
pub(crate) fn respond(contended: bool) {
    // A thread that ends needs nothing more.
    _ = RESPONSIVE.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if contended != kept.is_some() {
            *kept = contended.then(Responsive::enter);
        }
    });
}

impl Contention {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            until: AtomicU64::new(0),
            found: Mutex::default(),
            has_turns: AtomicBool::new(false),
            processors: crate::processors::of_system() as u32,
        }
    }

    /// Returns true if another program is taken to compute.
    pub(crate) fn holds_at(&self, now: Instant) -> bool {
        (self.since(now).as_nanos() as u64) < self.until.load(Ordering::Relaxed)
    }

    /// As [`Contention::holds_at`], now.
    pub(crate) fn holds(&self) -> bool {
        // Reads no clock where no other program was seen.
        self.until.load(Ordering::Relaxed) != 0 && self.holds_at(Instant::now())
    }

    /// Takes the length of a yield that ended now.
    pub(crate) fn yielded(&'static self, length: Duration, now: Instant) {
        if length < LONG_YIELD || self.holds_at(now) {
            return;
        }
        self.found(self.since(now), processor_time());
        if self.holds_at(now) && !self.has_turns.swap(true, Ordering::Relaxed) {
            let thread = std::thread::Builder::new().name("wb-turns".to_owned());
            // Without the thread the program is only slower. The next period tries again.
            if thread.spawn(|| self.make_turns()).is_err() {
                self.has_turns.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Takes a long yield that ended now, when this process has used so much processor time.
    fn found(&self, now: Duration, used: Duration) {
        let mut found = self.found.lock();
        let until = Duration::from_nanos(self.until.load(Ordering::Relaxed));
        let Some([since, used_then]) = found.since.filter(|[since, _]| now <= until.max(*since) + WINDOW[1]) else {
            found.since = Some([now, used]);
            return;
        };
        let elapsed = now.saturating_sub(since);
        if elapsed < WINDOW[0] {
            return;
        }
        found.since = Some([now, used]);
        // Threads of this process that compute while others of it wait are no reason to sleep longer.
        if 2 * used.saturating_sub(used_then) < elapsed * self.processors {
            let lasts = !until.is_zero() && now < until + PERIODS[0];
            found.period = if lasts { (2 * found.period).min(PERIODS[1]) } else { PERIODS[0] };
            self.until.store((now + found.period).as_nanos() as u64, Ordering::Relaxed);
        }
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Wakes a thread on each processor that this process may use, every [`TURN`], as long as another program computes.
    fn make_turns(&self) {
        std::thread::scope(|scope| {
            for processor in processors() {
                let turn = move || {
                    let _responsive = Responsive::enter();
                    if pin(processor) {
                        while self.holds() {
                            std::thread::sleep(TURN);
                        }
                    }
                };
                _ = std::thread::Builder::new().name("wb-turn".to_owned()).spawn_scoped(scope, turn);
            }
        });
        self.has_turns.store(false, Ordering::Relaxed);
    }
}

/// Returns the processor time that this process has used.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the processors that the calling thread may use.
fn processors() -> Vec<usize> {
    // SAFETY: a set of bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to the set, whose size it is told.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0;
    // SAFETY: the number is below that of the set's bits.
    (0..libc::CPU_SETSIZE as usize).filter(|p| !failed && unsafe { libc::CPU_ISSET(*p, &set) }).collect()
}

/// Lets the calling thread use one processor only. Returns false if that fails.
fn pin(processor: usize) -> bool {
    // SAFETY: a set of bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number is below that of the set's bits.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: the call reads the set, whose size it is told.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) == 0 }
}

#[cfg(test)]
impl Contention {
    /// As if this process had a small part of a large machine: its tests may use all processors. Its share is known after 10 ms.
    pub(crate) fn of_a_large_machine() -> &'static Self {
        let known = Box::leak(Box::new(Self { processors: 1 << 20, ..Self::new() }));
        known.found.get_mut().since = Some([Duration::ZERO, processor_time()]);
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn holds(known: &Contention, at: Duration) -> bool {
        known.holds_at(known.began + at)
    }

    #[test]
    fn it_is_assumed_for_longer_as_long_as_it_lasts() {
        let known = Contention::new();
        let (mut now, used) = (SECOND, Duration::ZERO);
        known.found(now, used);
        known.found(now + WINDOW[0] / 2, used);
        assert!(!holds(&known, now + WINDOW[0]), "the share is not known yet");
        now += WINDOW[0];
        for period in [50, 100, 200, 400, 800, 1_000, 1_000].map(Duration::from_millis) {
            known.found(now, used);
            assert!(holds(&known, now + period - Duration::from_nanos(1)) && !holds(&known, now + period));
            now += period;
        }
        now += WINDOW[1] + Duration::from_nanos(1);
        known.found(now, used);
        assert!(!holds(&known, now), "the share before is that of another time");
        known.found(now + WINDOW[0], used);
        assert!(holds(&known, now) && !holds(&known, now + WINDOW[0] + PERIODS[0]));
    }

    #[test]
    fn a_process_that_has_half_of_the_processors_waits_for_itself() {
        let known = Contention::new();
        let (half, most) = (WINDOW[0] * known.processors / 2, WINDOW[0] * known.processors);
        let ns = Duration::from_nanos(1);
        known.found(SECOND, most);
        known.found(SECOND + WINDOW[0], most + half);
        assert!(!holds(&known, SECOND + WINDOW[0]));
        known.found(SECOND + 2 * WINDOW[0], most + 2 * half - ns);
        assert!(holds(&known, SECOND + 2 * WINDOW[0]));
    }

    #[test]
    fn a_short_yield_is_no_sign_and_threads_for_turns_end() {
        let known = Contention::of_a_large_machine();
        // A second ahead of the clock, so that the threads do not end before they are looked for.
        let now = known.began + SECOND;
        known.found.lock().since = Some([SECOND - WINDOW[0], processor_time()]);
        known.yielded(LONG_YIELD - Duration::from_nanos(1), now);
        assert!(!known.holds_at(now) && !known.has_turns.load(Ordering::Relaxed));
        known.yielded(LONG_YIELD, now);
        assert!(known.holds_at(now) && known.has_turns.load(Ordering::Relaxed));
        while known.has_turns.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!known.holds());
    }

    #[test]
    fn a_waiting_thread_keeps_its_settings_until_no_program_computes() {
        let kept = || RESPONSIVE.with(|kept| kept.borrow().is_some());
        for contended in [false, true, true, false, false] {
            respond(contended);
            assert_eq!(kept(), contended);
        }
    }
}
