//! Kernels on CPU threads that run one after another.

use super::EngineError;
use super::cpu::Prepared;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Longer than any kernel: the waits inside a kernel have deadlines.
const EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Queue whose thread starts each kernel when the one before it has ended. After a kernel has failed, the thread starts
/// no more kernels until `wait` has reported the failure.
pub(super) struct CpuQueue {
    launches: Sender<Prepared>,
    progress: Arc<Progress>,
}

struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Kernels that were launched and have not ended.
    left: usize,
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
        let (launches, queue) = channel();
        let progress = Arc::new(Progress { state: Mutex::default(), changed: Condvar::new() });
        let theirs = progress.clone();
        let thread = std::thread::Builder::new().name("wb-stream".to_owned());
        thread.spawn(move || serve(&queue, &theirs, has_failed)).map_err(EngineError::Thread)?;
        Ok(Self { launches, progress })
    }

    pub(super) fn launch(&mut self, kernel: Prepared) {
        let mut state = self.progress.state();
        if state.left == 0 {
            state.started = Some(Instant::now());
        }
        state.left += 1;
        // The thread receives launches as long as the queue lives.
        if self.launches.send(kernel).is_err() {
            state.left -= 1;
        }
    }

    /// Waits at most `within` for all kernels to end. Returns true if they have ended.
    pub(super) fn wait(&mut self, within: Duration) -> Result<bool, String> {
        let until = Instant::now() + within;
        let mut state = self.progress.state();
        while state.left != 0 {
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                return Ok(false);
            };
            self.progress.changed.wait_for(&mut state, left);
        }
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

fn serve(queue: &Receiver<Prepared>, progress: &Progress, has_failed: impl Fn() -> bool) {
    for launch in queue {
        let kernel = launch.kernel().to_owned();
        let begins = progress.state().failed.is_none() && !has_failed();
        let failed = if !begins {
            Some(None)
        } else {
            match launch.start() {
                Err(e) => Some(Some(e.to_string())),
                Ok(mut run) => match run.wait(EVER) {
                    Err(reason) => Some(Some(reason)),
                    Ok(_) => has_failed().then_some(None),
                },
            }
        };
        let mut state = progress.state();
        state.skipped += usize::from(!begins);
        if let (None, Some(reason)) = (&state.failed, failed) {
            state.failed = Some((kernel, reason));
        }
        state.left -= 1;
        if state.left == 0 {
            state.elapsed = state.started.take().map_or(Duration::ZERO, |s| s.elapsed());
            progress.changed.notify_all();
        }
    }
}
