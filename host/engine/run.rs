//! A launched kernel is a value: finishing it returns its report, dropping it stops the kernel.

use super::args::Kept;
use super::{Args, Backend, Engine, EngineError, KernelArg, OperationError, Outcome, RunError, Stream, abi, cpu, gpu};
use crate::memory::{MemoryError, Place, Region, Space, WeakRegion};
use core::mem::offset_of;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Size of a launch: number of blocks, and threads per block.
///
/// # Examples
///
/// ```
/// use warpbell::engine::{Engine, Grid};
///
/// let engine = Engine::cpu()?;
/// // One block of as many threads as suit the engine.
/// let one_block = Grid { blocks: 1, ..engine.grid(256, 1) };
/// assert_eq!(one_block.threads, engine.warp_width());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of blocks.
    pub blocks: u32,
    /// Threads per block, a multiple of the warp width.
    pub threads: u32,
}

/// The stop flag, the abort flag, the error log and the deadline, which an engine's kernels read.
#[derive(Debug)]
pub(super) struct Control {
    control: Region,
    /// The error log, in host memory.
    log: Region,
    /// Flags in memory near the kernels. Many waiting warps read them often, and reads of one address over the bus are
    /// serialised.
    flags: Region,
    stopped: AtomicBool,
    /// Copy of the deadline: `control` may be in GPU memory.
    deadline_ns: AtomicU64,
    /// Copies of `control` that also name a fault word; see `view`.
    views: Mutex<Vec<WeakRegion>>,
}

/// Offset of the flag that a kernel raises when the run has failed.
const ABORT: usize = 0;
/// Offset of the flag that the host raises to end the run.
const STOP: usize = 4;

impl Control {
    pub(super) fn new(space: &Space) -> Result<Self, MemoryError> {
        let control = space.allocate(Place::Device, size_of::<abi::Control>())?;
        let log = space.allocate(Place::Host, size_of::<abi::ErrorLog>())?;
        let flags = space.allocate(Place::Device, 128)?;
        let (stopped, deadline_ns) = (AtomicBool::new(false), AtomicU64::new(0));
        let this = Self { control, log, flags, stopped, deadline_ns, views: Mutex::default() };
        this.set_deadline(super::DEFAULT_DEADLINE)?;
        Ok(this)
    }

    pub(super) fn address(&self) -> u64 {
        self.control.address()
    }

    /// Returns the error log, for tests that write entries as kernels do.
    #[cfg(test)]
    pub(super) fn log(&self) -> &Region {
        &self.log
    }

    pub(super) fn set_deadline(&self, deadline: Duration) -> Result<(), MemoryError> {
        let deadline_ns = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        let (abort, stop) = (self.flags.address() + ABORT as u64, self.flags.address() + STOP as u64);
        let error_log = self.log.address();
        let host_stop = error_log + offset_of!(abi::ErrorLog, stop) as u64;
        let mut views = self.views();
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        self.control
            .set(0, abi::Control { stop, abort, error_log, deadline_ns, host_stop, fault: 0, reserved: [0; 2] })?;
        views.retain(|view| view.upgrade().is_some());
        views
            .iter()
            .filter_map(WeakRegion::upgrade)
            .try_for_each(|v| v.set(offset_of!(abi::Control, deadline_ns), deadline_ns))
    }

    pub(super) fn deadline(&self) -> Duration {
        Duration::from_nanos(self.deadline_ns.load(Ordering::Relaxed))
    }

    /// Creates a copy of `wb_control` that also names a fault word in host memory, which long waits read.
    pub(super) fn view(&self, space: &Space, fault: u64) -> Result<Region, MemoryError> {
        let view = space.allocate(Place::Device, size_of::<abi::Control>())?;
        let mut views = self.views();
        view.set(0, abi::Control { fault, ..self.control.get(0)? })?;
        views.push(view.downgrade());
        Ok(view)
    }

    fn views(&self) -> MutexGuard<'_, Vec<WeakRegion>> {
        self.views.lock()
    }

    /// Clears the flags and the log for a run that is alone. Nearly always they are clear already, and the check only
    /// reads host memory: a kernel raises the abort flag together with the log's count.
    fn reset(&self) -> Result<(), MemoryError> {
        if !self.has_failed()? {
            return Ok(());
        }
        self.log.fill(0, size_of::<abi::ErrorLog>(), 0)?;
        self.flags.set(ABORT, 0u32)?;
        self.flags.set(STOP, 0u32)?;
        self.stopped.store(false, Ordering::Release);
        Ok(())
    }

    pub(super) fn stop(&self) -> Result<(), MemoryError> {
        self.stopped.store(true, Ordering::Release);
        // The store to host memory always succeeds. The copy to GPU memory then takes effect at once if the driver is
        // free. The driver is busy while another thread is in a call that waits for the kernel to be stopped, such as
        // freeing memory.
        self.log.set(offset_of!(abi::ErrorLog, stop), 1u32)?;
        self.flags.set(STOP, 1u32)
    }

    /// Returns true if kernels were told to end, and none was started alone since.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Returns true if a kernel raised an error, or if all kernels were told to end.
    pub(super) fn has_failed(&self) -> Result<bool, MemoryError> {
        let count: u32 = self.log.get(offset_of!(abi::ErrorLog, count))?;
        Ok(count != 0 || self.is_stopped())
    }

    fn errors(&self) -> Result<(Vec<OperationError>, u32), MemoryError> {
        let count: u32 = self.log.get(offset_of!(abi::ErrorLog, count))?;
        let mut errors = Vec::new();
        for i in 0..(count as usize).min(abi::ERROR_LOG_ENTRIES) {
            let e: abi::ErrorEntry =
                self.log.get(offset_of!(abi::ErrorLog, entry) + i * size_of::<abi::ErrorEntry>())?;
            errors.push(OperationError {
                outcome: Outcome::from_word(e.status),
                device: e.device,
                queue: e.queue,
                command: e.command,
                opcode: e.opcode,
                lba: e.lba,
                blocks: e.blocks,
            });
        }
        // The errors that caused the others come first.
        errors.sort_by_key(|e| matches!(e.outcome, Outcome::Stopped | Outcome::Poisoned));
        Ok((errors, count))
    }
}

/// Report of a finished run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunReport {
    /// Time from the launch to the end of the last thread. On a GPU, the GPU's own time.
    pub elapsed: Duration,
}

/// A kernel in flight, or kernels that the program launches itself ([`Engine::external`]). Dropping it raises the stop
/// flag and waits a bounded time for the kernel to end.
///
/// A run keeps the memory that its arguments stand for, and what [`Run::keep`] adds. A forgotten run leaks that memory, so
/// its kernel never loses it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use warpbell::args;
/// use warpbell::engine::Engine;
/// use warpbell::memory::Place;
///
/// let engine = Engine::cpu()?;
/// let out = engine.allocate(Place::Device, 8)?;
/// // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
/// let run = unsafe { engine.launch("wb_iota", engine.grid(32, 1), args!(&out, 1u64, 42u64, 0u64)) }?;
/// // The run keeps `out` alive, also if the program drops it here.
/// let report = run.finish_within(Duration::from_secs(10))?;
/// println!("the kernel ran for {:?}", report.elapsed);
/// assert_eq!(out.get::<u64>(0)?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a run stops its kernel; call finish or finish_within"]
pub struct Run {
    engine: Engine,
    kernel: String,
    state: State,
    ended: bool,
    /// True if the engine's kernels had been told to end when this one was seen to have ended.
    interrupted: bool,
    kept: Kept,
    /// Stream of the program's own kernels. Dropped last: the memory above may be in use until the stream's end.
    stream: Option<Stream>,
}

enum State {
    Cpu(cpu::CpuRun),
    Gpu(gpu::GpuRun),
    /// Kernels that the program calls on its own threads.
    Called(Called),
}

/// Kernels that the program calls on its own threads, and those that are on a stream of the engine.
struct Called {
    stream: Stream,
    started: Instant,
    elapsed: Option<Duration>,
}

impl Called {
    fn wait(&mut self, within: Duration) -> bool {
        let ended = self.stream.end_point().is_none_or(|end| end.wait(within));
        if ended {
            self.elapsed.get_or_insert_with(|| self.started.elapsed());
        }
        ended
    }
}

impl State {
    fn wait(&mut self, within: Duration) -> Result<bool, String> {
        match self {
            Self::Cpu(c) => c.wait(within),
            Self::Gpu(g) => g.wait(within),
            Self::Called(c) => Ok(c.wait(within)),
        }
    }

    fn elapsed(&self) -> Duration {
        match self {
            Self::Cpu(c) => c.elapsed(),
            Self::Gpu(g) => g.elapsed(),
            Self::Called(c) => c.elapsed.unwrap_or_else(|| c.started.elapsed()),
        }
    }
}

/// Time that a kernel gets to end after it was told to stop. Its waits read the flag every few microseconds, and its
/// compute phases between waits are short.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(10);

/// Starts a kernel; see [`Engine::launch`], and [`begin_to`] for one that cleans up.
///
/// # Safety
/// As [`Engine::launch`].
pub(super) unsafe fn launch(
    engine: &Engine,
    cleans_up: bool,
    kernel: &str,
    grid: Grid,
    mut args: Args,
) -> Result<Run, EngineError> {
    // Dropped after the lock if the launch fails: an object among them may start a kernel at its end.
    let kept = args.take_kept();
    let mut active = begin_to(engine, cleans_up)?;
    // SAFETY: the caller vouches for the arguments, and `kept` lives until the run has ended.
    let state = unsafe {
        match &engine.0.backend {
            Backend::Cpu(c) => State::Cpu(c.launch(kernel, grid, args)?),
            Backend::Gpu(g) => State::Gpu(g.launch(kernel, grid, args)?),
        }
    };
    *active += 1;
    let (engine, kernel) = (engine.clone(), kernel.to_owned());
    Ok(Run { engine, kernel, state, ended: false, interrupted: false, kept, stream: None })
}

/// Begins a run of the program's own kernels; see [`Engine::external`].
pub(super) fn external(engine: &Engine, name: &str, stream: &Stream) -> Result<Run, EngineError> {
    if !engine.is_same(stream.engine()) {
        return Err(EngineError::ForeignStream);
    }
    let mut active = begin(engine)?;
    let state = match (&engine.0.backend, stream.raw()) {
        // SAFETY: a stream of this engine, which the run keeps.
        (Backend::Gpu(g), Some(raw)) => State::Gpu(unsafe { g.external(raw) }?),
        _ => State::Called(Called { stream: stream.clone(), started: Instant::now(), elapsed: None }),
    };
    *active += 1;
    let (engine, kernel, stream) = (engine.clone(), name.to_owned(), Some(stream.clone()));
    Ok(Run { engine, kernel, state, ended: false, interrupted: false, kept: Kept::new(), stream })
}

/// Checks that the engine starts kernels. Returns the locked number of runs, so that none begins or ends during the
/// launch.
pub(super) fn begin(engine: &Engine) -> Result<MutexGuard<'_, usize>, EngineError> {
    begin_to(engine, false)
}

/// As [`begin`]. A kernel that cleans up is also started after the engine was told to start no more kernels.
pub(super) fn begin_to(engine: &Engine, cleans_up: bool) -> Result<MutexGuard<'_, usize>, EngineError> {
    if engine.space().is_poisoned() {
        return Err(EngineError::Poisoned);
    }
    let active = engine.0.active.lock();
    if !cleans_up && engine.is_cancelled() {
        return Err(EngineError::Cancelled);
    }
    if let (false, Some(reason)) = (cleans_up, engine.stopped_for()) {
        return Err(EngineError::Stopped { reason: reason.to_owned() });
    }
    if *active == 0 {
        engine.0.control.reset()?;
    }
    Ok(active)
}

/// Time between two reads of the error log while kernels run.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// Waits at most `within` for kernels to end. Once a kernel has raised an error or was told to end, waits at most
/// `grace` longer: a kernel that loops on values that could not be read may never end. Returns true if the kernels
/// ended. `wait` waits for the given time and returns true if they ended.
pub(super) fn await_end(
    within: Duration,
    grace: Duration,
    has_failed: impl Fn() -> Result<bool, MemoryError>,
    mut wait: impl FnMut(Duration) -> Result<bool, String>,
) -> Result<bool, String> {
    let started = Instant::now();
    let mut until = within;
    let mut failed = false;
    loop {
        let left = until.saturating_sub(started.elapsed());
        if wait(left.min(LOOK))? {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
        // An unreadable log counts as a log with errors.
        if !failed && has_failed().unwrap_or(true) {
            failed = true;
            until = until.min(started.elapsed() + grace);
        }
    }
}

/// Returns the error of kernels that did not end when they were told to. The memory that they may use is never freed.
pub(super) fn stuck(engine: &Engine, kernel: String, within: Duration) -> RunError {
    engine.space().poison();
    let (errors, count) = engine.0.control.errors().unwrap_or_default();
    RunError::Stuck { kernel, within, errors, count }
}

/// The way in which kernels ended.
#[derive(Clone, Copy)]
pub(super) struct End {
    /// The limit that they exceeded.
    pub(super) late: Option<Duration>,
    /// True if they may have ended because they were told to. A wait for a page that another thread reads then ends without
    /// an entry in the log.
    pub(super) interrupted: bool,
}

/// Returns the error of kernels that have ended, if any: of the engine's log, and of `steps` of their stream, which no
/// kernel executes.
pub(super) fn judge(
    engine: &Engine,
    kernel: &str,
    End { late, interrupted }: End,
    mut steps: Vec<OperationError>,
) -> Result<(), RunError> {
    let (logged, count) = engine.0.control.errors()?;
    if count > 0 {
        // Steps that did not begin because a kernel had failed.
        steps.retain(|step| step.outcome != Outcome::Stopped);
    }
    let count = count + steps.len() as u32;
    let errors: Vec<OperationError> = steps.into_iter().chain(logged).collect();
    // Waits that the stop has ended are no errors of their own. Others are: they may be the cause or the result of the stop.
    if is_of_stop(&errors) && (count > 0 || late.is_some() || interrupted) {
        if let Some(reason) = reason_to_end(engine) {
            return Err(RunError::Stopped { kernel: kernel.to_owned(), reason, errors });
        }
        if let Some(within) = late {
            return Err(RunError::TimedOut { kernel: kernel.to_owned(), within });
        }
    }
    if count > 0 { Err(RunError::Operations { kernel: kernel.to_owned(), errors, count }) } else { Ok(()) }
}

/// Returns true if the errors are only those of waits that ended because kernels were told to. A page whose read was
/// stopped counts as poisoned for other warps that wait for it.
fn is_of_stop(errors: &[OperationError]) -> bool {
    errors.is_empty()
        || errors.iter().any(|e| e.outcome == Outcome::Stopped)
            && errors.iter().all(|e| matches!(e.outcome, Outcome::Stopped | Outcome::Poisoned))
}

/// Returns the reason why the engine's kernels were told to end, if they were.
fn reason_to_end(engine: &Engine) -> Option<String> {
    let cancelled = || engine.is_cancelled().then(|| "the engine was cancelled".to_owned());
    engine.stopped_for().map(str::to_owned).or_else(cancelled)
}

/// Returns the error of a kernel that broke. Memory of a PE that is gone may fault before the kernel's waits see that
/// they should end.
pub(super) fn broken(engine: &Engine, kernel: &str, mut reason: String) -> RunError {
    if let Some(stopped_for) = engine.stopped_for() {
        reason = format!("{reason}; {stopped_for}");
    }
    RunError::Broken { kernel: kernel.to_owned(), reason }
}

impl Run {
    /// Waits for the kernel to end, without a limit: waits inside the kernel have deadlines. A kernel that continues
    /// after an error is told to stop.
    ///
    /// # Errors
    /// As [`Run::finish_within`].
    pub fn finish(self) -> Result<RunReport, RunError> {
        self.finish_within(super::NO_LIMIT)
    }

    /// Waits at most `within` for the kernel to end. If it has not ended by then, tells it to stop and returns an
    /// error.
    ///
    /// # Errors
    /// - [`RunError::Operations`] if operations inside the kernel failed.
    /// - [`RunError::Stopped`] if [`Engine::cancel`] or [`Engine::stop_for`] was called during the run.
    /// - [`RunError::TimedOut`] if the kernel ended only when it was told to stop; [`RunError::Stuck`] if it did not
    ///   end even then.
    /// - [`RunError::Broken`] if the kernel faulted on the GPU, or a CPU thread that ran it panicked.
    /// - [`RunError::Memory`] if the flags or the error log cannot be accessed.
    pub fn finish_within(mut self, within: Duration) -> Result<RunReport, RunError> {
        let engine = self.engine.clone();
        let in_time = await_end(within, STOP_GRACE, || engine.0.control.has_failed(), |slice| self.state.wait(slice));
        let in_time = self.heard(in_time)?;
        if !in_time {
            self.stop_and_wait(within)?;
        }
        let end = End { late: (!in_time).then_some(within), interrupted: self.interrupted };
        judge(&self.engine, &self.kernel, end, Vec::new())?;
        Ok(RunReport { elapsed: self.state.elapsed() })
    }

    /// Keeps the owner of memory until the run has ended, as an argument of the launch would: an array, a volume, a
    /// world, a team, a region. For memory that the program's own kernels use.
    pub fn keep(&mut self, owner: &(impl KernelArg + ?Sized)) {
        let mut args = Args::new();
        owner.push(&mut args);
        self.kept.append(&mut args.take_kept());
    }

    /// Returns true if the kernel has ended.
    ///
    /// # Errors
    /// [`RunError::Broken`] if the kernel faulted on the GPU, or a CPU thread that ran it panicked.
    pub fn is_finished(&mut self) -> Result<bool, RunError> {
        self.wait(Duration::ZERO)
    }

    /// Tells every wait inside the engine's running kernels to end.
    ///
    /// # Errors
    /// [`RunError::Memory`] if setting the stop flag in GPU memory fails. Long waits still see the copy of the flag in
    /// host memory.
    pub fn stop(&self) -> Result<(), RunError> {
        Ok(self.engine.0.control.stop()?)
    }

    fn wait(&mut self, within: Duration) -> Result<bool, RunError> {
        let ended = self.state.wait(within);
        self.heard(ended)
    }

    fn heard(&mut self, ended: Result<bool, String>) -> Result<bool, RunError> {
        match ended {
            Ok(ended) => {
                if ended && !self.ended {
                    self.ended = true;
                    self.interrupted = self.engine.0.control.is_stopped();
                }
                Ok(ended)
            }
            Err(reason) => {
                self.ended = true;
                Err(broken(&self.engine, &self.kernel, reason))
            }
        }
    }

    fn stop_and_wait(&mut self, within: Duration) -> Result<(), RunError> {
        self.stop()?;
        if !self.wait(STOP_GRACE)? {
            self.ended = true;
            // The kernel may still be on the program's stream, so the stream is not given up either.
            std::mem::forget(self.stream.take());
            return Err(stuck(&self.engine, self.kernel.clone(), within));
        }
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.ended
            && let Err(e) = self.stop_and_wait(Duration::ZERO)
        {
            tracing::warn!(kernel = self.kernel, error = %e, "a run that was dropped failed");
        }
        let mut active = self.engine.0.active.lock();
        *active -= 1;
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Run({})", self.kernel)
    }
}

#[cfg(test)]
mod tests;
