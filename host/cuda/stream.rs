//! An in-order queue of kernel launches.

use super::error::CudaError;
use super::lane::Lane;
use super::launch::Launcher;
use super::module::Function;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs kernels of one module, one after the other.
#[derive(Debug)]
pub struct Stream {
    launcher: Arc<Launcher>,
    /// Returned to the context when the stream is dropped, unless kernels are still in it.
    lane: Option<Lane>,
    /// Launch time of the first kernel in flight; `None` if no kernel is in flight.
    busy_since: Option<Instant>,
    /// GPU time of the last completed batch, from the start of its first kernel to the end of its last.
    elapsed: Duration,
}

impl Stream {
    /// Creates an empty stream.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver fails to create the stream.
    pub fn new(launcher: &Arc<Launcher>) -> Result<Self, CudaError> {
        let lane = Some(launcher.context().take_lane()?);
        Ok(Self { launcher: launcher.clone(), lane, busy_since: None, elapsed: Duration::ZERO })
    }

    /// Adds a kernel of `blocks` blocks of `threads` threads. It starts when the kernels before it have ended.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver refuses the launch or fails to raise the limit of local memory.
    ///
    /// # Safety
    /// As [`Launcher::launch`].
    pub unsafe fn launch(
        &mut self,
        function: &Function,
        blocks: u32,
        threads: u32,
        parameters: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let Some(lane) = &self.lane else { return Ok(()) };
        let first = self.busy_since.is_none();
        if first {
            self.launcher.context().reserve_local_memory(function.local_bytes as usize)?;
            self.launcher.context().run_begins();
        }
        // SAFETY: this function's caller makes the same promise.
        let launched = unsafe { self.launcher.enqueue(lane, first, function, blocks, threads, parameters) };
        match launched {
            Ok(()) => _ = self.busy_since.get_or_insert_with(Instant::now),
            Err(_) if first => self.launcher.context().run_ends(),
            Err(_) => {}
        }
        launched
    }

    /// Waits at most `within` for all kernels of the stream to end. Returns true if they have ended.
    ///
    /// # Errors
    /// [`CudaError::Call`] if a kernel failed, for instance with an illegal address. The kernels have then ended.
    pub fn wait(&mut self, within: Duration) -> Result<bool, CudaError> {
        let (Some(lane), Some(since)) = (&self.lane, self.busy_since) else { return Ok(true) };
        let ended = self.launcher.await_end(lane, since, within);
        if let Ok(None) = ended {
            return Ok(false);
        }
        self.busy_since = None;
        self.launcher.context().run_ends();
        self.elapsed = ended?.unwrap_or_default();
        Ok(true)
    }

    /// Returns the GPU time of the last completed batch of kernels, from the start of its first to the end of its last.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

impl Drop for Stream {
    /// Keeps the lane of kernels that have not ended. They stay counted as running, so nothing
    /// that they may use is freed.
    fn drop(&mut self) {
        if self.busy_since.is_none()
            && let Some(lane) = self.lane.take()
        {
            self.launcher.context().give_lane_back(lane);
        }
    }
}
