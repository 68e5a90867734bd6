//! Steps of a stream that wait for a device, with no kernel of ours between the stream's kernels.
//!
//! A kernel's wait has a deadline and looks at the stop flag. A stream's wait for a word has neither. So the stream asks the owner of the
//! steps, while the host waits for the stream, whether their device is late, and the owner then stores the words itself.

use super::{Queue, State, Stream, run};
use crate::cuda::MemoryOperation;
use crate::engine::args::Kept;
use crate::engine::{EngineError, OperationError, Outcome};
use std::sync::Arc;

/// Owner of steps that wait for a device.
pub(crate) trait Awaited: Send + Sync {
    /// Ends the waits of steps whose device is past its deadline.
    fn end_late(&self);

    /// Ends all waits.
    fn release(&self);

    /// Returns the operations that failed, once the stream has executed all steps. Another call returns none.
    fn complete(&self) -> Vec<OperationError>;
}

impl Stream {
    /// Adds the steps that `steps` returns, which no kernel executes. The stream keeps `owner`, and the owners that `steps` returns with
    /// the steps, until it was waited for. Nobody waits for the stream while `steps` runs.
    ///
    /// # Errors
    /// [`EngineError::Cuda`] if the stream is being captured, or the driver refuses a step.
    ///
    /// # Safety
    /// The memory that the steps name must be valid while the owners live.
    pub(crate) unsafe fn operate(
        &self,
        what: &'static str,
        owner: Arc<dyn Awaited>,
        steps: impl FnOnce() -> (Vec<MemoryOperation>, Kept),
    ) -> Result<(), EngineError> {
        let mut state = self.0.state();
        let mut active = run::begin(self.engine())?;
        if let Queue::Gpu(g) = &state.queue {
            g.refuse_capture()?;
        }
        let (operations, kept) = steps();
        if operations.is_empty() {
            return Ok(());
        }
        let added = match &mut state.queue {
            Queue::Cpu(c) => {
                // SAFETY: this function's caller vouches for the memory, and the state keeps its owners.
                unsafe { c.operate(what, operations) };
                Ok(())
            }
            // SAFETY: this function's caller vouches for the memory, and the state keeps its owners.
            Queue::Gpu(g) => unsafe { g.operate(&operations) },
        };
        // After an error some of the steps may be on the stream.
        state.kept.extend(kept.into_iter().map(|k| (Arc::as_ptr(&k).cast::<()>() as usize, k)));
        if !state.awaited.iter().any(|known| Arc::ptr_eq(known, &owner)) {
            state.awaited.push(owner);
        }
        if !state.busy {
            state.busy = true;
            *active += 1;
        }
        if state.kernels.last().is_none_or(|last| last != what) {
            state.kernels.push(what.to_owned());
        }
        added
    }
}

impl State {
    pub(super) fn end_late(&self) {
        self.awaited.iter().for_each(|owner| owner.end_late());
    }

    pub(super) fn release(&self) {
        self.awaited.iter().for_each(|owner| owner.release());
    }

    /// Returns the failed operations of steps. The stream has executed all of them. `released` is true if the host ended
    /// their waits before their deadline.
    pub(super) fn complete(&mut self, released: bool) -> Vec<OperationError> {
        let failed = self.awaited.drain(..).flat_map(|owner| owner.complete());
        failed
            .map(|e| match e.outcome {
                Outcome::TimedOut if released => OperationError { outcome: Outcome::Stopped, ..e },
                _ => e,
            })
            .collect()
    }
}
