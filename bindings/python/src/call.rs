//! Calls of the library from Python: without the interpreter, and with an eye on Ctrl-C.
//!
//! Python delivers signals on its main thread only, between its own steps. So the main thread passes a call to another thread, and
//! looks for signals while it waits. After a signal it stops the engine's kernels, and waits a moment for the call to end. A call that
//! does not end by then, because it reads a file or waits for a device, is left alone. It ends in the background, and later calls
//! of the engine wait for that.
//!
//! Gathers need no other thread: they are started on the main thread, which then waits for them in pieces.

use crate::error::{Failure, Kind};
use crate::fork;
use crate::held::Held;
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use warpbell::engine::{Engine, EngineError};

/// Longest time without a look for signals.
const POLL: Duration = Duration::from_millis(50);
/// Time that an interrupted call gets to end.
const GRACE: Duration = Duration::from_millis(700);
/// Time that runs of other threads get to end before an engine is used again.
const RESUME_WITHIN: Duration = Duration::from_secs(30);

/// Kernels that are in flight while Python goes on.
pub(crate) trait InFlight: Send + Sync {
    /// Waits at most this long. Returns true if the work is over, or has failed.
    fn wait(&self, within: Duration) -> bool;

    /// Waits until the work is over. Called after the engine was told to stop.
    fn complete(&self);
}

/// An engine, and the calls on it.
pub(crate) struct Shared {
    engine: Held<Engine>,
    /// Number of the engine's GPU.
    ordinal: Option<usize>,
    /// Interrupted calls that are not over.
    stopping: Mutex<usize>,
    stopped: Condvar,
    in_flight: Mutex<Vec<Weak<dyn InFlight>>>,
}

/// Tells work that its call was interrupted.
pub(crate) struct Stop(AtomicBool);

impl Stop {
    /// Fails after an interrupt. Long work of the host calls this now and then.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::new(Kind::Cancelled, "the call was interrupted; nothing was stored"));
        }
        Ok(())
    }
}

enum Outcome<T> {
    Awaited,
    Done(Result<T, Failure>),
    /// Nobody waits any more.
    Left,
}

/// The place in which a thread leaves the outcome of a call.
struct Slot<T> {
    outcome: Mutex<Outcome<T>>,
    done: Condvar,
}

impl<T> Slot<T> {
    fn wait(&self, within: Duration) -> Option<Result<T, Failure>> {
        let until = Instant::now() + within;
        let mut outcome = self.outcome.lock();
        while matches!(*outcome, Outcome::Awaited) {
            if self.done.wait_until(&mut outcome, until).timed_out() {
                break;
            }
        }
        match std::mem::replace(&mut *outcome, Outcome::Awaited) {
            Outcome::Done(result) => Some(result),
            _ => None,
        }
    }

    /// Leaves the result there. Returns it if nobody waits for it.
    fn fill(&self, result: Result<T, Failure>) -> Option<Result<T, Failure>> {
        let mut outcome = self.outcome.lock();
        if let Outcome::Left = *outcome {
            return Some(result);
        }
        *outcome = Outcome::Done(result);
        self.done.notify_all();
        None
    }

    /// Stops waiting. Returns the result if it has come meanwhile.
    fn leave(&self) -> Option<Result<T, Failure>> {
        match std::mem::replace(&mut *self.outcome.lock(), Outcome::Left) {
            Outcome::Done(result) => Some(result),
            _ => None,
        }
    }
}

impl Shared {
    pub(crate) fn new(engine: Engine) -> Self {
        let ordinal = engine.info().gpu.map(|gpu| gpu.ordinal);
        Self {
            engine: Held::new(engine),
            ordinal,
            stopping: Mutex::new(0),
            stopped: Condvar::new(),
            in_flight: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the number of the engine's GPU, or `None` for CPU threads.
    pub(crate) fn ordinal(&self) -> Option<usize> {
        self.ordinal
    }

    /// Returns the name that torch has for the device of the engine's memory.
    pub(crate) fn device(&self) -> String {
        self.ordinal.map_or_else(|| "cpu".to_owned(), |ordinal| format!("cuda:{ordinal}"))
    }

    /// Enters work that goes on when its call has returned.
    pub(crate) fn enter_in_flight(&self, work: Weak<dyn InFlight>) {
        let mut all = self.in_flight.lock();
        all.retain(|w| w.strong_count() > 0);
        all.push(work);
    }

    /// Stops the kernels of all calls, which then fail. The engine works again when they are over.
    pub(crate) fn cancel(&self) -> Result<(), Failure> {
        *self.stopping.lock() += 1;
        let cancelled = self.stop();
        self.one_less();
        cancelled
    }

    fn stop(&self) -> Result<(), Failure> {
        self.engine.cancel()?;
        let in_flight: Vec<_> = self.in_flight.lock().iter().filter_map(Weak::upgrade).collect();
        in_flight.iter().for_each(|work| work.complete());
        Ok(())
    }

    /// Notes that an interrupted call is over.
    fn one_less(&self) {
        let mut stopping = self.stopping.lock();
        *stopping -= 1;
        if *stopping == 0 {
            // Not yet if runs of other threads are still ending: the next call tries again.
            let _ = self.engine.resume();
        }
        self.stopped.notify_all();
    }

    /// Waits at most `within` until no interrupted call is left and the engine works. Returns true if so.
    fn is_ready(&self, within: Duration) -> Result<bool, Failure> {
        let until = Instant::now() + within;
        let mut stopping = self.stopping.lock();
        while *stopping > 0 {
            if self.stopped.wait_until(&mut stopping, until).timed_out() {
                return Ok(false);
            }
        }
        if !self.engine.is_cancelled() {
            return Ok(true);
        }
        match self.engine.resume() {
            Ok(()) => Ok(true),
            Err(EngineError::Busy { .. }) => {
                drop(stopping);
                thread::sleep(within.min(Duration::from_millis(5)));
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn await_ready(&self, py: Python<'_>) -> PyResult<()> {
        let begun = Instant::now();
        while !py.detach(|| self.is_ready(POLL))? {
            py.check_signals()?;
            if begun.elapsed() > RESUME_WITHIN && *self.stopping.lock() == 0 {
                let text = "the engine was stopped, and runs of other threads do not end; finish or drop what they have in flight";
                return Err(Failure::new(Kind::Cancelled, text).into());
            }
        }
        Ok(())
    }
}

/// Returns true on the thread on which Python handles signals.
fn is_main_thread() -> bool {
    // SAFETY: both calls only return a number. The C library of manylinux 2.28 has no function for the first one.
    unsafe { libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) }
}

fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // State that a panicking call leaves half done is behind the locks of the library, which is written for that.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(defect(panic.as_ref())))
}

fn defect(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown panic".to_owned());
    Failure::new(Kind::Internal, format!("defect in warpbell: {text}"))
}

/// Runs `work` without the interpreter. After Ctrl-C the call fails with `KeyboardInterrupt` within a second, and the engine works again
/// when the work is over.
pub(crate) fn call<T: Send + 'static>(
    py: Python<'_>,
    on: &Arc<Shared>,
    work: impl FnOnce(&Stop) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    fork::check()?;
    on.await_ready(py)?;
    finish(py, on, work)
}

/// Runs `work` as [`call`] does, also on an engine that was stopped and waits for this work to end.
pub(crate) fn finish<T: Send + 'static>(
    py: Python<'_>,
    on: &Arc<Shared>,
    work: impl FnOnce(&Stop) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    if !is_main_thread() {
        return Ok(py.detach(|| caught(|| work(&Stop(AtomicBool::new(false)))))?);
    }
    let stop = Arc::new(Stop(AtomicBool::new(false)));
    let slot = watched(Some(on.clone()), stop.clone(), work)?;
    let signal = match wait(py, &slot) {
        Ok(result) => return Ok(result?),
        Err(signal) => signal,
    };
    stop.0.store(true, Ordering::Relaxed);
    py.detach(|| {
        *on.stopping.lock() += 1;
        // The call may be over all the same; kernels that cannot be told to stop have deadlines.
        let _ = on.stop();
        // Otherwise the thread of the call notes the end.
        if slot.wait(GRACE).or_else(|| slot.leave()).is_some() {
            on.one_less();
        }
    });
    Err(signal)
}

/// Runs short `work` without the interpreter, and without a look for signals: it starts kernels and does not wait for them.
pub(crate) fn begin<T: Send>(
    py: Python<'_>,
    on: &Arc<Shared>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<T> {
    fork::check()?;
    on.await_ready(py)?;
    Ok(py.detach(|| caught(work))?)
}

/// Waits at most `within` for kernels in flight, without another thread. Returns true if they are over. Ctrl-C has the effect that it has in
/// [`call`].
pub(crate) fn await_in_flight(
    py: Python<'_>,
    on: &Arc<Shared>,
    work: &impl InFlight,
    within: Duration,
) -> PyResult<bool> {
    fork::check()?;
    let begun = Instant::now();
    loop {
        let left = within.saturating_sub(begun.elapsed());
        if py.detach(|| work.wait(left.min(POLL))) {
            return Ok(true);
        }
        if let Err(signal) = py.check_signals() {
            py.detach(|| {
                *on.stopping.lock() += 1;
                let _ = on.stop();
                work.complete();
                on.one_less();
            });
            return Err(signal);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

/// Runs `work` that uses no engine, as [`call`] does. After Ctrl-C it goes on in the background, and its result is dropped.
pub(crate) fn call_alone<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    fork::enter()?;
    if !is_main_thread() {
        return Ok(py.detach(|| caught(|| work(&Stop(AtomicBool::new(false)))))?);
    }
    let stop = Arc::new(Stop(AtomicBool::new(false)));
    let slot = watched(None, stop.clone(), work)?;
    match wait(py, &slot) {
        Ok(result) => Ok(result?),
        Err(signal) => {
            stop.0.store(true, Ordering::Relaxed);
            py.detach(|| drop(slot.leave()));
            Err(signal)
        }
    }
}

/// Starts the thread of a call.
fn watched<T: Send + 'static>(
    on: Option<Arc<Shared>>,
    stop: Arc<Stop>,
    work: impl FnOnce(&Stop) -> Result<T, Failure> + Send + 'static,
) -> Result<Arc<Slot<T>>, Failure> {
    let slot = Arc::new(Slot { outcome: Mutex::new(Outcome::Awaited), done: Condvar::new() });
    let filled = slot.clone();
    let body = move || {
        if let Some(result) = filled.fill(caught(|| work(&stop))) {
            drop(result);
            on.iter().for_each(|on| on.one_less());
        }
    };
    match thread::Builder::new().name("warpbell call".to_owned()).spawn(body) {
        Ok(_) => Ok(slot),
        Err(e) => Err(Failure::new(Kind::Device, format!("no thread can be started: {e}; use fewer threads"))),
    }
}

/// Waits for a call. Fails with the exception of a signal's handler.
fn wait<T: Send>(py: Python<'_>, slot: &Slot<T>) -> PyResult<Result<T, Failure>> {
    loop {
        if let Some(result) = py.detach(|| slot.wait(POLL)) {
            return Ok(result);
        }
        py.check_signals()?;
    }
}
