//! Streams: kernels that run one after another without the host between them.

mod awaited;

pub(crate) use awaited::Awaited;

use super::cpu_queue::{CpuQueue, Point};
use super::gpu::GpuQueue;
use super::run::{self, End, RunReport, STOP_GRACE};
use super::{Args, Backend, Engine, EngineError, Grid, NO_LIMIT, RunError};
use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kernels that run in the order of their launches. Each starts when the one before it has ended. Cheap to clone; clones
/// share the stream.
///
/// The stream keeps the memory that the arguments of its launches stand for, until [`Stream::synchronize`] has waited
/// for them. Dropping the last clone tells its kernels to end and waits a bounded time for that, as dropping a
/// [`Run`](super::Run) does.
///
/// After a kernel has failed, the kernels behind it do not start (CPU threads), or start and have all their waits end
/// at once (GPU). The next `synchronize` returns the error. The stream can then be used again.
///
/// On a GPU a stream is a CUDA stream, its own or the program's ([`Engine::adopt_stream`]). Other work on that CUDA
/// stream is ordered with the kernels. Kernels of the program that use memory or handles of this crate run within
/// [`Engine::external`].
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use warpbell::args;
/// use warpbell::engine::Engine;
/// use warpbell::memory::Place;
///
/// let engine = Engine::cpu()?;
/// let stream = engine.stream()?;
/// let out = engine.allocate(Place::Device, 100 * 8)?;
/// for start in [1u64, 500] {
///     // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
///     unsafe { stream.launch("wb_iota", engine.grid(256, 1), args!(&out, 100u64, start, 1u64)) }?;
/// }
/// stream.synchronize(Duration::from_secs(10))?;
/// // Kernels of a stream run one after the other: the second one wrote last.
/// assert_eq!(out.get_slice::<u64>(0, 3)?, [500, 501, 502]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a stream stops its kernels; call synchronize"]
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    engine: Engine,
    /// The CUDA stream, as a number; `None` on a CPU engine.
    raw: Option<usize>,
    state: Mutex<State>,
}

struct State {
    queue: Queue,
    /// True if kernels were launched since the last wait. They count as one run of the engine.
    busy: bool,
    failed_waits: u64,
    /// Names of those kernels, without consecutive repetitions.
    kernels: Vec<String>,
    /// Owners of the memory that the kernels may use, each once, keyed by address.
    kept: HashMap<usize, Arc<dyn Any + Send + Sync>>,
    /// Owners of steps that wait for a device.
    awaited: Vec<Arc<dyn Awaited>>,
}

enum Queue {
    Cpu(CpuQueue),
    Gpu(GpuQueue),
}

impl Queue {
    fn wait(&mut self, within: Duration) -> Result<bool, String> {
        match self {
            Self::Cpu(c) => c.wait(within),
            Self::Gpu(g) => g.wait(within),
        }
    }
}

impl State {
    /// Waits at most `within` for all work to end. Ends waits for devices that are late.
    fn wait(&mut self, within: Duration) -> Result<bool, String> {
        self.end_late();
        self.queue.wait(within)
    }
}

/// Largest number of kernel names in an error.
const NAMES: usize = 4;

impl Stream {
    pub(super) fn new(engine: &Engine) -> Result<Self, EngineError> {
        let queue = match &engine.0.backend {
            Backend::Cpu(_) => {
                let engine = engine.clone();
                // An unreadable log counts as a log with errors.
                Queue::Cpu(CpuQueue::new(move || engine.0.control.has_failed().unwrap_or(true))?)
            }
            Backend::Gpu(g) => Queue::Gpu(g.queue()?),
        };
        Ok(Self::with(engine, queue))
    }

    /// # Safety
    /// As [`Engine::adopt_stream`].
    pub(super) unsafe fn adopt(
        engine: &Engine,
        raw: *mut c_void,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, EngineError> {
        match &engine.0.backend {
            Backend::Cpu(_) => Err(EngineError::NoCudaStreams),
            // SAFETY: this function's caller makes the same promise.
            Backend::Gpu(g) => Ok(Self::with(engine, Queue::Gpu(unsafe { g.adopt(raw, keep) }?))),
        }
    }

    fn with(engine: &Engine, queue: Queue) -> Self {
        let raw = match &queue {
            Queue::Cpu(_) => None,
            Queue::Gpu(g) => Some(g.raw() as usize),
        };
        let state = Mutex::new(State {
            queue,
            busy: false,
            failed_waits: 0,
            kernels: Vec::new(),
            kept: HashMap::new(),
            awaited: Vec::new(),
        });
        Self(Arc::new(Inner { engine: engine.clone(), raw, state }))
    }

    /// Returns the engine that the stream belongs to.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Returns the `CUstream` (`cudaStream_t`), or `None` on a CPU engine. It is valid while a clone of the stream lives.
    /// Synchronising or capturing it is the program's own affair; a launch on a stream that is being captured fails.
    pub fn raw(&self) -> Option<*mut c_void> {
        self.0.raw.map(|raw| raw as *mut c_void)
    }

    /// Makes later work on this stream wait for all work that is on `other` now, the program's own included. The host
    /// does not wait. To order an own stream and one of the program both ways, call this on each with the other.
    ///
    /// # Errors
    /// - [`EngineError::ForeignStream`] if the streams belong to different engines.
    /// - [`EngineError::Cuda`] if one of them is being captured
    ///   ([`CudaError::Capturing`](crate::cuda::CudaError::Capturing)), or a driver call fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use warpbell::args;
    /// use warpbell::engine::Engine;
    /// use warpbell::memory::Place;
    ///
    /// let engine = Engine::cpu()?;
    /// let out = engine.allocate(Place::Device, 8)?;
    /// let (first, second) = (engine.stream()?, engine.stream()?);
    /// // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
    /// unsafe { first.launch("wb_iota", engine.grid(32, 1), args!(&out, 1u64, 1u64, 0u64)) }?;
    /// second.wait_for(&first)?;
    /// // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
    /// unsafe { second.launch("wb_iota", engine.grid(32, 1), args!(&out, 1u64, 2u64, 0u64)) }?;
    /// second.synchronize(Duration::from_secs(10))?;
    /// first.synchronize(Duration::from_secs(10))?;
    /// assert_eq!(out.get::<u64>(0)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_for(&self, other: &Stream) -> Result<(), EngineError> {
        if !self.engine().is_same(other.engine()) {
            return Err(EngineError::ForeignStream);
        }
        let point = other.end_point();
        // `other` is unlocked again: another thread may order the same streams the other way round.
        match (&mut self.0.state().queue, point, other.raw()) {
            (Queue::Cpu(c), Some(point), _) => c.wait_for(point),
            // SAFETY: `other` keeps its stream.
            (Queue::Gpu(g), _, Some(raw)) => unsafe { g.wait_for(raw) }?,
            _ => return Err(EngineError::ForeignStream),
        }
        Ok(())
    }

    /// Returns the end of the stream's kernels so far, or `None` on a GPU.
    pub(super) fn end_point(&self) -> Option<Point> {
        match &self.0.state().queue {
            Queue::Cpu(c) => Some(c.point()),
            Queue::Gpu(_) => None,
        }
    }

    /// Adds a kernel to the stream. It starts when all earlier kernels of the stream have ended.
    ///
    /// # Errors
    /// As [`Engine::launch`]. If a CPU thread cannot be started, [`Stream::synchronize`] returns the error instead.
    ///
    /// # Safety
    /// As [`Engine::launch`], until the stream has been waited for.
    pub unsafe fn launch(&self, kernel: &str, grid: Grid, mut args: Args) -> Result<(), EngineError> {
        let engine = self.engine();
        // Dropped after the locks if the launch fails, as for a run.
        let kept = args.take_kept();
        let mut state = self.0.state();
        let mut active = run::begin(engine)?;
        // SAFETY: the caller vouches for the arguments, and `kept` lives until the stream has been waited for.
        unsafe {
            match (&mut state.queue, &engine.0.backend) {
                (Queue::Cpu(queue), Backend::Cpu(c)) => queue.launch(c.prepare(kernel, grid, args)?),
                (Queue::Gpu(queue), Backend::Gpu(g)) => g.enqueue(queue, kernel, grid, args)?,
                _ => return Err(EngineError::ForeignStream),
            }
        }
        state.kept.extend(kept.into_iter().map(|k| (Arc::as_ptr(&k).cast::<()>() as usize, k)));
        if !state.busy {
            state.busy = true;
            *active += 1;
        }
        if state.kernels.last().is_none_or(|last| last != kernel) {
            state.kernels.push(kernel.to_owned());
        }
        Ok(())
    }

    /// Waits at most `within` for every kernel of the stream to end. Kernels that have not ended by then are told to
    /// stop, and the call fails.
    ///
    /// # Errors
    /// As [`Run::finish_within`](super::Run::finish_within), for the first kernel that failed. [`RunError::Stopped`]
    /// also if kernels did not start because the engine's kernels were told to end.
    pub fn synchronize(&self, within: Duration) -> Result<RunReport, RunError> {
        let mut state = self.0.state();
        if !state.busy {
            return Ok(RunReport { elapsed: Duration::ZERO });
        }
        let ended = self.0.end(&mut state, within);
        self.close(&mut state, ended, within)
    }

    /// Returns true if both are clones of one stream.
    #[cfg(feature = "internals")]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Releases what the stream keeps for its kernels, if all of them have ended, without a wait. Returns true if so.
    ///
    /// # Errors
    /// As for [`Stream::synchronize`], for kernels that have ended.
    #[cfg(feature = "internals")]
    pub fn collect(&self) -> Result<bool, RunError> {
        let mut state = self.0.state();
        if !state.busy {
            return Ok(true);
        }
        match state.wait(Duration::ZERO) {
            Ok(false) => Ok(false),
            Ok(true) => self.close(&mut state, Ok(true), Duration::ZERO).map(|_| true),
            Err(reason) => Err(self.0.break_off(&mut state, reason)),
        }
    }

    /// Waits at most `within` for every kernel of the stream to end, and releases what the stream keeps for them, if only kernels called
    /// one of `names` were added since the last wait: their caller knows whether they failed. Kernels that have not ended go on.
    pub(crate) fn collect_only(&self, names: &[&str], within: Duration) {
        let ended = Instant::now() + within.min(NO_LIMIT);
        loop {
            let mut state = self.0.state();
            if !state.busy || !state.kernels.iter().all(|kernel| names.contains(&kernel.as_str())) {
                return;
            }
            let outcome = match state.wait(ended.saturating_duration_since(Instant::now()).min(run::LOOK)) {
                Ok(false) if Instant::now() < ended => continue,
                Ok(false) => return,
                Ok(true) => self.close(&mut state, Ok(true), Duration::ZERO).map(drop),
                Err(reason) => Err(self.0.break_off(&mut state, reason)),
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "kernels failed, of which their caller knows");
            }
            return;
        }
    }

    /// Reports on kernels of which none is in flight any more. `ended` is true if they were not told to stop after `within`.
    fn close(&self, state: &mut State, ended: Result<bool, RunError>, within: Duration) -> Result<RunReport, RunError> {
        let answer = ended.and_then(|in_time| {
            let skipped = match &mut state.queue {
                Queue::Cpu(c) => c.take_failed(),
                Queue::Gpu(_) => None,
            };
            let (kernel, skipped) = skipped.unwrap_or_else(|| (names(&state.kernels), 0));
            let steps = state.complete(!in_time || self.engine().is_told_to_end());
            let interrupted = self.engine().0.control.is_stopped();
            run::judge(self.engine(), &kernel, End { late: (!in_time).then_some(within), interrupted }, steps)?;
            match skipped {
                0 => Ok(()),
                _ => Err(RunError::Stopped {
                    kernel,
                    reason: format!(
                        "the engine's kernels were told to stop; {skipped} kernel(s) of the stream did not start"
                    ),
                    errors: Vec::new(),
                }),
            }
        });
        self.0.retire(state);
        state.failed_waits += u64::from(answer.is_err());
        answer.map(|()| RunReport {
            elapsed: match &state.queue {
                Queue::Cpu(c) => c.elapsed(),
                Queue::Gpu(g) => g.elapsed(),
            },
        })
    }

    /// Returns the number of waits that have failed. Kernels that were launched before such a wait may not have run.
    pub(crate) fn failed_waits(&self) -> u64 {
        self.0.state().failed_waits
    }

    /// Waits at most `within` for every kernel of the stream to end, or for one to fail. Returns true if so:
    /// [`Stream::synchronize`] is to be called then. Kernels that have not ended go on. For programs that do something else
    /// now and then while they wait.
    ///
    /// # Errors
    /// As for [`Stream::is_finished`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use warpbell::args;
    /// use warpbell::engine::Engine;
    /// use warpbell::memory::Place;
    ///
    /// let engine = Engine::cpu()?;
    /// let (stream, out) = (engine.stream()?, engine.allocate(Place::Device, 8)?);
    /// // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
    /// unsafe { stream.launch("wb_iota", engine.grid(32, 1), args!(&out, 1u64, 7u64, 0u64)) }?;
    /// while !stream.wait(Duration::from_millis(50))? {
    ///     println!("still waiting");
    /// }
    /// stream.synchronize(Duration::from_secs(10))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self, within: Duration) -> Result<bool, RunError> {
        let mut state = self.0.state();
        if !state.busy {
            return Ok(true);
        }
        // An unreadable log counts as a log with errors.
        let has_failed = || self.engine().0.control.has_failed();
        let ended = run::await_end(within, Duration::ZERO, has_failed, |slice| state.wait(slice));
        match ended {
            Ok(ended) => Ok(ended || has_failed().unwrap_or(true)),
            Err(reason) => Err(self.0.break_off(&mut state, reason)),
        }
    }

    /// Waits at most `within` for all work on the stream to end, also for work that other code put on the CUDA stream.
    /// Returns true if it has ended. [`Stream::synchronize`] knows the engine's kernels only.
    ///
    /// # Errors
    /// [`EngineError::Cuda`] if work on the CUDA stream failed, or the stream is being captured.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use warpbell::engine::Engine;
    ///
    /// let stream = Engine::cpu()?.stream()?;
    /// // A library that takes a `CUstream` gets `stream.raw()`.
    /// assert!(stream.drain(Duration::from_secs(10))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, within: Duration) -> Result<bool, EngineError> {
        match &mut self.0.state().queue {
            Queue::Cpu(c) => Ok(c.point().wait(within)),
            Queue::Gpu(g) => g.drain(within),
        }
    }

    /// Returns true if every kernel of the stream has ended. Errors in the log are left for [`Stream::synchronize`].
    ///
    /// # Errors
    /// [`RunError::Broken`] if a kernel faulted on the GPU, or a CPU thread that ran one panicked or could not be
    /// started.
    pub fn is_finished(&self) -> Result<bool, RunError> {
        let mut state = self.0.state();
        if !state.busy {
            return Ok(true);
        }
        let ended = state.wait(Duration::ZERO);
        ended.map_err(|reason| self.0.break_off(&mut state, reason))
    }

    /// Tells every wait inside the stream's kernels, and inside the engine's other kernels, to end.
    ///
    /// # Errors
    /// As [`Run::stop`](super::Run::stop).
    pub fn stop(&self) -> Result<(), RunError> {
        Ok(self.engine().0.control.stop()?)
    }
}

impl Inner {
    /// Waits for the kernels to end. Returns true if they ended in time, and false if they were told to stop.
    fn end(&self, state: &mut State, within: Duration) -> Result<bool, RunError> {
        let broken = |state: &State, reason| run::broken(&self.engine, &names(&state.kernels), reason);
        let has_failed = || self.engine.0.control.has_failed();
        let ended = run::await_end(within, STOP_GRACE, has_failed, |slice| {
            if self.engine.is_told_to_end() {
                // Steps that wait for a device do not look at the stop flag.
                state.release();
            }
            state.wait(slice)
        });
        if ended.map_err(|r| broken(state, r))? {
            return Ok(true);
        }
        self.engine.0.control.stop()?;
        state.release();
        if state.queue.wait(STOP_GRACE).map_err(|r| broken(state, r))? {
            return Ok(false);
        }
        Err(run::stuck(&self.engine, names(&state.kernels), within))
    }

    /// Returns the error of kernels that broke, of which none is in flight any more.
    fn break_off(&self, state: &mut State, reason: String) -> RunError {
        let broken = run::broken(&self.engine, &names(&state.kernels), reason);
        self.retire(state);
        state.failed_waits += 1;
        broken
    }

    fn retire(&self, state: &mut State) {
        // Failures that nobody asked for: the stream broke, or is dropped.
        for failure in state.complete(false) {
            tracing::warn!(kernels = names(&state.kernels), %failure, "an operation of a stream failed");
        }
        state.busy = false;
        state.kernels.clear();
        *self.engine.0.active.lock() -= 1;
        // Dropping the last reference to a world ends it with a kernel of its own.
        state.kept.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn names(kernels: &[String]) -> String {
    let mut names = kernels.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if kernels.len() > NAMES {
        names.push_str(&format!(", and {} more", kernels.len() - NAMES));
    }
    names
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut state = self.state();
        if !state.busy {
            return;
        }
        if let Err(e) = self.end(&mut state, Duration::ZERO) {
            tracing::warn!(kernels = names(&state.kernels), error = %e, "a stream that was dropped failed");
        }
        self.retire(&mut state);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", names(&self.0.state().kernels))
    }
}

#[cfg(test)]
mod tests;
