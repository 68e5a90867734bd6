//! Kernels on CPU threads, one after the other.

use super::EngineError;
use super::cpu::Prepared;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Long beyond every kernel: the waits inside one have limits.
const EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A thread that starts each kernel when the one before it has ended. After one that failed it starts no more until the queue has
/// been waited for.
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
    /// Kernels that were given and have not ended.
    left: usize,
    started: Option<Instant>,
    elapsed: Duration,
    /// The first kernel that failed, or that was not started because the engine's kernels were told to end; and why it failed, if not
    /// by errors in the engine's log.
    failed: Option<(String, Option<String>)>,
    /// Kernels that were not started.
    skipped: usize,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl CpuQueue {
    /// `has_failed` says whether a kernel of the engine has raised an error or was stopped.
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
        // The thread takes launches as long as there is a queue.
        if self.launches.send(kernel).is_err() {
            state.left -= 1;
        }
    }

    /// Waits until all kernels have ended, at most `within`; whether they have.
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

    /// The kernel that failed since this was last asked, and how many were not started.
    pub(super) fn take_failed(&mut self) -> Option<(String, usize)> {
        let mut state = self.progress.state();
        let skipped = std::mem::take(&mut state.skipped);
        state.failed.take().map(|(kernel, _)| (kernel, skipped))
    }

    /// From the launch of the first kernel to the end of the last.
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
