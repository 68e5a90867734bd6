//! Handles Ctrl-C, SIGTERM, SIGHUP and `--timeout`: the engine's stop flag ends the run, so that devices are closed in
//! order.

use crate::operation;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;
use warpbell::engine::Engine;

/// Effect of an interrupt at this moment.
#[derive(Default)]
enum Phase {
    /// Nothing is open that needs an orderly end: the process exits at once.
    #[default]
    Idle,
    /// Kernels may be running: the interrupt stops them, and their error then ends the command.
    Kernels(Vec<Engine>),
    /// Host code is writing results: the interrupt is only noted, and `main` reads [`Interrupt::end`] afterwards.
    Careful,
    /// Host code waits for the end of the program, and looks for it often: the interrupt is noted.
    Awaited,
    /// Signals go to this function, which decides what to do.
    PassOn(Box<dyn Fn(i32) + Send>),
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The first request to end that was not passed on.
    end: Option<End>,
    /// The work in progress, as in `reading the graph`.
    doing: &'static str,
}

/// A request to end the program.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// A signal.
    Signal(i32),
    /// The time given with `--timeout` has passed.
    Timeout(Duration),
}

/// Time from the expiry of `--timeout` to the forced exit of the program.
const WIND_UP: Duration = Duration::from_secs(5);
/// Exit code of a command that exceeded `--timeout`, as coreutils' `timeout` has it.
const TIMED_OUT: u8 = 124;

/// Signals that end the program: number and name. The exit code is 128 plus the number, as in shells.
const SIGNALS: [(i32, &str); 3] = [(libc::SIGHUP, "SIGHUP"), (libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM")];

/// Shared record of the first request to end the program. Cheap to clone.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

/// Restores the previous phase when dropped.
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

    /// Returns the first request to end the program, if there was one.
    pub fn end(&self) -> Option<End> {
        self.state().end
    }

    /// Records the work that begins, for the message of a program that exceeds `--timeout`, and for lines of progress.
    pub fn doing(&self, work: &'static str) {
        self.state().doing = work;
        crate::progress::begin(work);
    }

    /// Requests the end of the program after `timeout`, and exits [`WIND_UP`] later if it still runs.
    ///
    /// # Errors
    /// [`std::io::Error`] if the timer thread cannot be started.
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

    /// Prints what ended the program and returns the exit code.
    pub fn conclude(&self, end: End) -> u8 {
        tell(end, self.state().doing)
    }

    /// Makes interrupts stop `engine`'s kernels until the guard is dropped.
    pub fn stops(&self, engine: &Engine) -> Guard<'_> {
        self.stops_all(std::slice::from_ref(engine))
    }

    /// Makes interrupts stop the kernels of all `engines` until the guard is dropped.
    pub fn stops_all(&self, engines: &[Engine]) -> Guard<'_> {
        self.enter(Phase::Kernels(engines.to_vec()))
    }

    /// Makes interrupts be noted only, until the guard is dropped.
    pub fn is_noted(&self) -> Guard<'_> {
        self.enter(Phase::Careful)
    }

    /// Makes interrupts, and the end of `--timeout`, be noted for a caller that waits for [`Interrupt::end`], until the
    /// guard is dropped.
    pub fn is_awaited(&self) -> Guard<'_> {
        self.enter(Phase::Awaited)
    }

    /// Passes the numbers of signals to `to`, instead of noting them, until the guard is dropped.
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
        // The results that are being written are complete: writing them may take until the forced exit.
        if let (Phase::Careful, End::Timeout(_)) = (&state.phase, end) {
            return;
        }
        let again = state.end.is_some();
        state.end.get_or_insert(end);
        match &state.phase {
            _ if again => leave(end, state.doing),
            Phase::Idle => leave(end, state.doing),
            Phase::Careful | Phase::Awaited | Phase::PassOn(_) => {}
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
            let during = if doing.is_empty() { String::new() } else { format!(", while {doing}") };
            eprintln!("error: not done after {timeout:?} (--timeout){during}; allow more time");
            TIMED_OUT
        }
    }
}

fn leave(end: End, doing: &str) -> ! {
    // Nothing that the other threads hold is dropped.
    operation::remove_socket();
    std::process::exit(tell(end, doing).into())
}

/// Returns true if the process was started with SIGHUP ignored, as `nohup` does.
fn ignores_hangup() -> bool {
    // SAFETY: zero is a value for every field of a `sigaction`.
    let mut action = unsafe { std::mem::zeroed::<libc::sigaction>() };
    // SAFETY: only queries the action; `action` lives for the call.
    let asked = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut action) } == 0;
    asked && action.sa_sigaction == libc::SIG_IGN
}

/// Makes a write beyond the limit of file sizes an error of the write, instead of the end of the process. A handler is
/// used, and SIGXFSZ is not ignored: programs that this one starts do not inherit it.
fn survive_file_limit() {
    extern "C" fn nothing(_signal: i32) {}
    // SAFETY: zero is a value for every field of a `sigaction`.
    let mut action = unsafe { std::mem::zeroed::<libc::sigaction>() };
    action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler does nothing, which is allowed at any time; both pointers are valid for the call.
    unsafe { libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut()) };
}

/// Starts to watch for SIGINT, SIGTERM and SIGHUP. Call it before any other thread starts: threads inherit the signal
/// mask.
pub fn watch() -> Interrupt {
    survive_file_limit();
    let interrupt = Interrupt::default();
    let seen = interrupt.clone();
    // `sigwait` receives a blocked signal even if the process ignores it.
    let ignored = ignores_hangup();
    let watched = SIGNALS.iter().map(|(n, _)| *n).filter(|n| *n != libc::SIGHUP || !ignored);
    // SAFETY: plain calls on a set that lives in this block.
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
            // SAFETY: both references live for the call.
            if unsafe { libc::sigwait(&signals, &mut signal) } == 0 {
                seen.raise(End::Signal(signal));
            }
        }
    });
    if watcher.is_err() {
        // Without the watcher thread the default action applies: the signal ends the process.
        // SAFETY: the reference lives for the call, and null asks for no old mask.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut()) };
    }
    interrupt
}
