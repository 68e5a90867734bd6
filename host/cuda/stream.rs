//! An in-order queue of launches.

use super::error::CudaError;
use super::lane::Lane;
use super::launch::Launcher;
use super::module::Function;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kernels of one module, one after the other.
#[derive(Debug)]
pub struct Stream {
    launcher: Arc<Launcher>,
    /// Given back when the stream goes, unless kernels are in it.
    lane: Option<Lane>,
    /// When the first of the kernels in flight was launched; `None` when there are none.
    busy_since: Option<Instant>,
    /// GPU time from the start of the first of them to the end of the last, once they have ended.
    elapsed: Duration,
}

impl Stream {
    /// An empty one.
    pub fn new(launcher: &Arc<Launcher>) -> Result<Self, CudaError> {
        let lane = Some(launcher.context().take_lane()?);
        Ok(Self { launcher: launcher.clone(), lane, busy_since: None, elapsed: Duration::ZERO })
    }

    /// Adds a kernel: it starts when those before it have ended.
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
        // SAFETY: the caller's promise is the same.
        let launched = unsafe { self.launcher.enqueue(lane, first, function, blocks, threads, parameters) };
        match launched {
            Ok(()) => _ = self.busy_since.get_or_insert_with(Instant::now),
            Err(_) if first => self.launcher.context().run_ends(),
            Err(_) => {}
        }
        launched
    }

    /// Waits until all of them have ended, at most `within`; whether they have. An error is a kernel's own (a fault), and an end.
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

    /// GPU time of the kernels that ended last, from the start of the first to the end of the last.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

impl Drop for Stream {
    /// Kernels that would not end stay counted as running, and keep their queue: nothing that they may use is freed any more.
    fn drop(&mut self) {
        if self.busy_since.is_none()
            && let Some(lane) = self.lane.take()
        {
            self.launcher.context().give_lane_back(lane);
        }
    }
}
