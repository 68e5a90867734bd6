//! Ctrl-C, SIGTERM, SIGHUP and `--timeout`: the run ends through the engine's stop flag, so that devices are closed in order.

use parking_lot::{Mutex, MutexGuard};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use warpbell::engine::Engine;

/// What an interrupt should do right now.
#[derive(Default)]
enum Phase {
    /// Nothing is open that needs care: leave at once.
    #[default]
    Idle,
    /// Kernels may be running: stop them; the error that follows winds everything up.
    Kernels(Vec<Engine>),
    /// Between kernels: whoever works here looks at [`Interrupt::signal`].
    Careful,
    /// It is meant for others, who decide what becomes of it.
    PassOn(Box<dyn Fn(i32) + Send>),
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The first demand to end that was not passed on.
    end: Option<End>,
    /// The work in progress, as in `reading the graph`.
    doing: &'static str,
}

/// A demand to end the program.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// A signal.
    Signal(i32),
    /// The time that `--timeout` gave is over.
    Timeout(Duration),
}

/// Time from the end of `--timeout` to the end of the program, whatever it is waiting for.
const WIND_UP: Duration = Duration::from_secs(5);
/// The exit code of a command that ran out of time, as `timeout` of coreutils has it.
const TIMED_OUT: u8 = 124;

/// Signals that end the program: number and name. Exit codes are 128 and the number, as shells have it.
const SIGNALS: [(i32, &str); 3] = [(libc::SIGHUP, "SIGHUP"), (libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM")];

/// Knows what asked the program to end, if anything did. Cheap to clone.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

/// Back to the phase before when dropped.
pub struct Guard<'a> {
    interrupt: &'a Interrupt,
    before: Phase,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.interrupt.state().phase = std::mem::take(&mut self.before);
    }
}

impl Interrupt {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Returns what asked for the end.
    pub fn end(&self) -> Option<End> {
        self.state().end
    }

    /// Notes the work that begins, for the message of a program that runs out of time.
    pub fn doing(&self, work: &'static str) {
        self.state().doing = work;
    }

    /// Ends the program in order when this time is over, and in any case [`WIND_UP`] later.
    pub fn expires_after(&self, timeout: Duration) -> std::io::Result<()> {
        let interrupt = self.clone();
        std::thread::Builder::new().name("wb-timeout".to_owned()).spawn(move || {
            std::thread::sleep(timeout);
            interrupt.raise(End::Timeout(timeout));
            std::thread::sleep(WIND_UP);
            leave(
                End::Timeout(timeout),
                &format!("{}, which took longer than {WIND_UP:?} to stop", interrupt.state().doing),
            );
        })?;
        Ok(())
    }

    /// Says what ended the program, and returns its exit code.
    pub fn conclude(&self, end: End) -> ExitCode {
        ExitCode::from(tell(end, self.state().doing))
    }

    /// From here on an interrupt stops `engine`'s kernels.
    pub fn stops(&self, engine: &Engine) -> Guard<'_> {
        self.stops_all(std::slice::from_ref(engine))
    }

    /// From here on an interrupt stops the kernels of all these.
    pub fn stops_all(&self, engines: &[Engine]) -> Guard<'_> {
        self.enter(Phase::Kernels(engines.to_vec()))
    }

    /// From here on an interrupt is only noted.
    pub fn is_noted(&self) -> Guard<'_> {
        self.enter(Phase::Careful)
    }

    /// From here on signals go to `to`, with their numbers, and are not noted.
    pub fn is_passed_on(&self, to: impl Fn(i32) + Send + 'static) -> Guard<'_> {
        self.enter(Phase::PassOn(Box::new(to)))
    }

    fn enter(&self, phase: Phase) -> Guard<'_> {
        let before = std::mem::replace(&mut self.state().phase, phase);
        Guard { interrupt: self, before }
    }

    fn raise(&self, end: End) {
        let mut state = self.state();
        if let (Phase::PassOn(to), End::Signal(signal)) = (&state.phase, end) {
            return to(signal);
        }
        // Results that are being written are complete: they get the time that winding up may take.
        if let (Phase::Careful, End::Timeout(_)) = (&state.phase, end) {
            return;
        }
        let again = state.end.is_some();
        state.end.get_or_insert(end);
        match &state.phase {
            _ if again => leave(end, state.doing),
            Phase::Idle => leave(end, state.doing),
            Phase::Careful | Phase::PassOn(_) => {}
            Phase::Kernels(engines) => {
                for engine in engines {
                    if let Err(e) = engine.cancel() {
                        eprintln!("error: the kernels cannot be stopped: {e}");
                        leave(end, state.doing);
                    }
                }
            }
        }
    }
}

fn tell(end: End, doing: &str) -> u8 {
    match end {
        End::Signal(signal) => {
            let name = SIGNALS.iter().find(|(n, _)| *n == signal).map_or("a signal", |(_, name)| name);
            eprintln!("interrupted by {name}");
            u8::try_from(128 + signal).unwrap_or(u8::MAX)
        }
        End::Timeout(timeout) => {
            eprintln!("error: not done after {timeout:?} (--timeout), while {doing}; allow more time");
            TIMED_OUT
        }
    }
}

fn leave(end: End, doing: &str) -> ! {
    std::process::exit(tell(end, doing).into())
}

/// Returns true if the process was started with SIGHUP ignored, as `nohup` does.
fn ignores_hangup() -> bool {
    // SAFETY: zero is a value for every field of a `sigaction`.
    let mut action = unsafe { std::mem::zeroed::<libc::sigaction>() };
    // SAFETY: only asks; `action` lives for the call.
    let asked = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut action) } == 0;
    asked && action.sa_sigaction == libc::SIG_IGN
}

/// Starts to watch for SIGINT, SIGTERM and SIGHUP. Call before any other thread starts: they inherit the signal mask.
pub fn watch() -> Interrupt {
    let interrupt = Interrupt::default();
    let seen = interrupt.clone();
    // A blocked signal is delivered to `sigwait` even if it is ignored.
    let ignored = ignores_hangup();
    let watched = SIGNALS.iter().map(|(n, _)| *n).filter(|n| *n != libc::SIGHUP || !ignored);
    // SAFETY: plain calls on a set that lives here.
    let signals = unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        watched.for_each(|n| {
            libc::sigaddset(&mut set, n);
        });
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    let watcher = std::thread::Builder::new().name("wb-interrupt".to_owned()).spawn(move || {
        loop {
            let mut signal = 0;
            // SAFETY: both live for the call.
            if unsafe { libc::sigwait(&signals, &mut signal) } == 0 {
                seen.raise(End::Signal(signal));
            }
        }
    });
    if watcher.is_err() {
        // Without the watcher the default has to do: the signal ends the process.
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut()) };
    }
    interrupt
}
