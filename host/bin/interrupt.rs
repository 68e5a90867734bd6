//! Ctrl-C: the run ends through the engine's stop flag, so that devices are closed in order.

use std::sync::{Arc, Mutex, MutexGuard};
use warpbell::engine::Engine;

/// What an interrupt should do right now.
#[derive(Default)]
enum Phase {
    /// Nothing is open that needs care: leave at once.
    #[default]
    Idle,
    /// Kernels may be running: stop them; the error that follows winds everything up.
    Kernels(Vec<Engine>),
    /// Between kernels: whoever works here looks at [`Interrupt::happened`].
    Careful,
    /// It is meant for others, who decide what becomes of it.
    PassOn(Box<dyn Fn(i32) + Send>),
}

#[derive(Default)]
struct State {
    phase: Phase,
    happened: bool,
}

/// Knows whether somebody pressed Ctrl-C. Cheap to clone.
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
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether it was pressed.
    pub fn happened(&self) -> bool {
        self.state().happened
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

    fn raise(&self, signal: i32) {
        let mut state = self.state();
        if let Phase::PassOn(to) = &state.phase {
            return to(signal);
        }
        let again = std::mem::replace(&mut state.happened, true);
        match &state.phase {
            _ if again => leave(),
            Phase::Idle => leave(),
            Phase::Careful | Phase::PassOn(_) => {}
            Phase::Kernels(engines) => {
                for engine in engines {
                    if let Err(e) = engine.cancel() {
                        eprintln!("error: the kernels cannot be stopped: {e}");
                        leave();
                    }
                }
            }
        }
    }
}

fn leave() -> ! {
    eprintln!("interrupted");
    std::process::exit(crate::output::INTERRUPTED.into())
}

/// Starts to watch for SIGINT and SIGTERM. Call before any other thread starts: they inherit the signal mask.
pub fn watch() -> Interrupt {
    let interrupt = Interrupt::default();
    let seen = interrupt.clone();
    // SAFETY: plain calls on a set that lives here.
    let signals = unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    let watcher = std::thread::Builder::new().name("wb-interrupt".to_owned()).spawn(move || {
        loop {
            let mut signal = 0;
            // SAFETY: both live for the call.
            if unsafe { libc::sigwait(&signals, &mut signal) } == 0 {
                seen.raise(signal);
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
