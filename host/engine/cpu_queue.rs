//! Kernels on CPU threads that run one after another.

use super::cpu::Prepared;
use super::{EngineError, NO_LIMIT};
use crate::contention;
use crate::cuda::MemoryOperation;
use crate::idle::{Idle, Pace};
use crate::mmio;
use crate::responsive::Responsive;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Queue whose thread starts each kernel when the one before it has ended. After a kernel has failed, the thread starts
/// no more kernels until `wait` has reported the failure.
pub(super) struct CpuQueue {
    items: Sender<Item>,
    progress: Arc<Progress>,
}

enum Item {
    Launch(Prepared),
    /// Steps that no kernel executes, and what messages call them.
    Operate(&'static str, Vec<MemoryOperation>),
    /// Later items start when the point of another queue is reached.
    WaitFor(Point),
}

/// Point in a queue: the end of what was in the queue when the point was made.
pub(super) struct Point {
    progress: Arc<Progress>,
    item: u64,
}

impl Point {
    /// Waits at most `within` for the point. Returns true if it was reached.
    pub(super) fn wait(&self, within: Duration) -> bool {
        contention::respond(contention::of_process().holds());
        let mut state = self.progress.state();
        let behind = self.progress.changed.wait_while_for(&mut state, |state| state.ended < self.item, within);
        !behind.timed_out() || state.ended >= self.item
    }
}

struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of items that were added so far, and of those that have ended.
    added: u64,
    ended: u64,
    started: Option<Instant>,
    elapsed: Duration,
    /// The first kernel that failed, or that was not started because the engine's kernels were told to end. The reason
    /// is `None` if errors in the engine's log explain the failure.
    failed: Option<(String, Option<String>)>,
    /// Number of kernels that were not started.
    skipped: usize,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl CpuQueue {
    /// Creates the queue and its thread. `has_failed` returns true if a kernel of the engine has raised an error or was
    /// stopped.
    pub(super) fn new(has_failed: impl Fn() -> bool + Send + 'static) -> Result<Self, EngineError> {
        let (items, queue) = channel();
        let progress = Arc::new(Progress { state: Mutex::default(), changed: Condvar::new() });
        let theirs = progress.clone();
        let thread = std::thread::Builder::new().name("wb-stream".to_owned());
        thread.spawn(move || serve(&queue, &theirs, has_failed)).map_err(EngineError::Thread)?;
        Ok(Self { items, progress })
    }

    pub(super) fn launch(&mut self, kernel: Prepared) {
        let started = Instant::now();
        self.add(Item::Launch(kernel)).started.get_or_insert(started);
    }

    /// Adds steps that no kernel executes. They begin when all earlier kernels have ended.
    ///
    /// # Safety
    /// The memory that the steps name must stay valid until the queue has been waited for.
    pub(super) unsafe fn operate(&mut self, what: &'static str, operations: Vec<MemoryOperation>) {
        let started = Instant::now();
        self.add(Item::Operate(what, operations)).started.get_or_insert(started);
    }

    /// Makes later kernels wait for a point of another queue.
    pub(super) fn wait_for(&mut self, point: Point) {
        drop(self.add(Item::WaitFor(point)));
    }

    fn add(&mut self, item: Item) -> MutexGuard<'_, State> {
        let mut state = self.progress.state();
        // The thread receives items as long as the queue lives.
        if self.items.send(item).is_ok() {
            state.added += 1;
        }
        state
    }

    /// Returns the end of what is in the queue now.
    pub(super) fn point(&self) -> Point {
        Point { progress: self.progress.clone(), item: self.progress.state().added }
    }

    /// Waits at most `within` for all kernels to end. Returns true if they have ended.
    pub(super) fn wait(&mut self, within: Duration) -> Result<bool, String> {
        if !self.point().wait(within) {
            return Ok(false);
        }
        let mut state = self.progress.state();
        match &state.failed {
            Some((_, Some(reason))) => {
                let reason = reason.clone();
                (state.failed, state.skipped) = (None, 0);
                Err(reason)
            }
            _ => Ok(true),
        }
    }

    /// Takes the kernel that failed since the last call, and the number of kernels that were not started.
    pub(super) fn take_failed(&mut self) -> Option<(String, usize)> {
        let mut state = self.progress.state();
        let skipped = std::mem::take(&mut state.skipped);
        state.failed.take().map(|(kernel, _)| (kernel, skipped))
    }

    /// Returns the time from the launch of the first kernel to the end of the last.
    pub(super) fn elapsed(&self) -> Duration {
        self.progress.state().elapsed
    }
}

fn serve(queue: &Receiver<Item>, progress: &Progress, has_failed: impl Fn() -> bool) {
    let _responsive = Responsive::enter();
    for item in queue {
        match item {
            // The items before the point were added before, so no two queues wait for each other.
            Item::WaitFor(point) => _ = point.wait(NO_LIMIT),
            Item::Launch(launch) => {
                let kernel = launch.kernel().to_owned();
                run(&kernel, progress, &has_failed, || match launch.start() {
                    Err(e) => Some(Some(e.to_string())),
                    Ok(mut run) => match run.wait(NO_LIMIT) {
                        Err(reason) => Some(Some(reason)),
                        Ok(_) => has_failed().then_some(None),
                    },
                });
            }
            Item::Operate(what, operations) => run(what, progress, &has_failed, || {
                // SAFETY: the caller of `operate` promises that the memory stays valid until the queue was waited for.
                let done = operations.iter().all(|o| unsafe { execute(o, &has_failed) });
                (!done).then_some(None)
            }),
        }
        let mut state = progress.state();
        state.ended += 1;
        if state.ended == state.added
            && let Some(started) = state.started.take()
        {
            state.elapsed = started.elapsed();
        }
        progress.changed.notify_all();
    }
}

/// Pauses of a step that waits for a device. The device may be a thread that needs this processor.
const PACE: Pace = Pace { spin: Duration::from_micros(20), yields: 256, naps: [Duration::from_micros(50); 2] };

/// Executes one step. Returns false if the kernels were told to end before its wait was over.
///
/// # Safety
/// The memory that the step names must be valid.
unsafe fn execute(operation: &MemoryOperation, has_failed: &impl Fn() -> bool) -> bool {
    match *operation {
        MemoryOperation::Store32 { address, value } => {
            // The word may be a register of a device.
            mmio::flush();
            // SAFETY: the caller's promise; threads and devices read the word concurrently.
            unsafe { AtomicU32::from_ptr(address as *mut u32) }.store(value, Ordering::Release);
        }
        MemoryOperation::AwaitBit { address, mask, set, .. } => {
            // SAFETY: the caller's promise; threads and devices write the word concurrently.
            let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
            return poll(|| (word.load(Ordering::Acquire) & mask != 0) == set, has_failed);
        }
        MemoryOperation::Store64 { address, value } => {
            mmio::flush();
            // SAFETY: the caller's promise; threads and devices read the word concurrently.
            unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(value, Ordering::Release);
        }
        MemoryOperation::AwaitAtLeast64 { address, value, .. } => {
            // SAFETY: the caller's promise; threads and devices write the word concurrently.
            let word = unsafe { AtomicU64::from_ptr(address as *mut u64) };
            return poll(|| word.load(Ordering::Acquire).wrapping_sub(value) as i64 >= 0, has_failed);
        }
        // SAFETY: the caller's promise; the two ranges do not overlap.
        MemoryOperation::Copy { to, from, bytes } => unsafe {
            std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
        },
    }
    true
}

/// Waits for a word. Returns false if the kernels were told to end before.
fn poll(is_there: impl Fn() -> bool, has_failed: &impl Fn() -> bool) -> bool {
    let mut idle = Idle::new(PACE);
    while !is_there() {
        if has_failed() {
            return false;
        }
        idle.rest();
    }
    true
}

/// Runs a kernel or steps to their end, unless something before them has failed. `start` returns the failure, if any, and the reason
/// if it is not in the engine's log.
fn run(
    kernel: &str,
    progress: &Progress,
    has_failed: impl Fn() -> bool,
    start: impl FnOnce() -> Option<Option<String>>,
) {
    let begins = progress.state().failed.is_none() && !has_failed();
    let failed = if begins { start() } else { Some(None) };
    let mut state = progress.state();
    state.skipped += usize::from(!begins);
    if let (None, Some(reason)) = (&state.failed, failed) {
        state.failed = Some((kernel.to_owned(), reason));
    }
}
