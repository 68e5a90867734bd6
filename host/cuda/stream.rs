//! An in-order queue of kernel launches, on a stream of its own or of other code.

use super::driver::{CUcontext, CUstream, call};
use super::error::{CudaError, code};
use super::lane::Lane;
use super::launch::{Launcher, refuse_capture};
use super::memory_operation::MemoryOperation;
use super::module::Function;
use super::wait::Wait;
use cudarc::driver::sys;
use std::any::Any;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// CU_STREAM_PER_THREAD (cuda.h): another stream on each thread.
const PER_THREAD: usize = 2;

/// Runs kernels of one launcher, one after the other.
#[derive(Debug)]
pub struct Stream {
    launcher: Arc<Launcher>,
    /// Given back when the stream is dropped, unless kernels are still in it.
    lane: Option<Lane>,
    raw: CUstream,
    /// Launch time of the first kernel in flight; `None` if no kernel is in flight.
    busy_since: Option<Instant>,
    /// GPU time of the last completed batch, from the start of its first kernel to the end of its last.
    elapsed: Duration,
    /// Owner of an adopted stream.
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: `raw` is a handle that may be used from any thread, and the lane of the stream has it too.
unsafe impl Send for Stream {}
// SAFETY: `&self` only copies the handle, which may be used from any thread.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates an empty stream.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver fails to create the stream.
    pub fn new(launcher: &Arc<Launcher>) -> Result<Self, CudaError> {
        Ok(Self::with(launcher, launcher.context().take_lane()?, None))
    }

    /// Uses a stream of other code. `keep` owns the stream, and lives until the last kernel on the stream has ended and
    /// `self` is dropped. Null stands for the legacy default stream.
    ///
    /// # Errors
    /// - [`CudaError::BadStream`] for the default stream of a thread, and for a stream of another context.
    /// - [`CudaError::Call`] if the driver does not know the stream, or fails to create events.
    ///
    /// # Safety
    /// `raw` must be a `CUstream` that stays valid while `keep` lives.
    pub unsafe fn adopt(
        launcher: &Arc<Launcher>,
        raw: *mut c_void,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, CudaError> {
        let bad = |reason| CudaError::BadStream { stream: raw as usize, reason };
        if raw as usize == PER_THREAD {
            return Err(bad("it is the default stream of whichever thread uses it; create a stream and pass that"));
        }
        let context = launcher.context();
        let current = context.current()?;
        let (stream, mut owner): (CUstream, CUcontext) = (raw.cast(), std::ptr::null_mut());
        // SAFETY: the caller promises that the handle is valid; writes one handle.
        unsafe { call!(context.driver(), cuStreamGetCtx(stream, &mut owner), "looking at a stream of the program") }?;
        if !context.is(owner) {
            return Err(bad(
                "it belongs to another context; pass a stream of the primary context of the engine's GPU, in which the CUDA runtime makes its streams",
            ));
        }
        Ok(Self::with(launcher, Lane::around(context.driver(), &current, stream)?, Some(keep)))
    }

    fn with(launcher: &Arc<Launcher>, lane: Lane, keep: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        let raw = lane.stream;
        launcher.context().note_stream(raw);
        Self { launcher: launcher.clone(), lane: Some(lane), raw, busy_since: None, elapsed: Duration::ZERO, keep }
    }

    /// Returns the `CUstream`, valid while `self` lives.
    pub fn raw(&self) -> CUstream {
        self.raw
    }

    /// Makes later work of this stream wait for the work that is on stream `other` now. The host does not wait.
    ///
    /// # Errors
    /// - [`CudaError::Capturing`] if one of the streams is being captured.
    /// - [`CudaError::Call`] if the driver fails to create or to record an event, or refuses the wait.
    ///
    /// # Safety
    /// `other` must be a valid stream.
    pub unsafe fn wait_for(&self, other: CUstream) -> Result<(), CudaError> {
        const WHAT: &str = "ordering a stream behind another";
        let context = self.launcher.context();
        let driver = context.driver();
        let _current = context.current()?;
        refuse_capture(driver, other, WHAT)?;
        refuse_capture(driver, self.raw, WHAT)?;
        let mut event = std::ptr::null_mut();
        let no_timing = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as c_uint;
        // SAFETY: writes one handle; then both streams are alive. An event may be destroyed before a stream has reached
        // it (CUDA driver interface, cuEventDestroy).
        unsafe {
            call!(driver, cuEventCreate(&mut event, no_timing), WHAT)?;
            let ordered = call!(driver, cuEventRecord(event, other), WHAT)
                .and_then(|()| call!(driver, cuStreamWaitEvent(self.raw, event, 0), WHAT));
            (driver.cuEventDestroy_v2)(event);
            ordered
        }
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

    /// Fails if the stream is being captured: a graph would repeat memory operations, and what they wait for happens once.
    ///
    /// # Errors
    /// [`CudaError::Capturing`], or [`CudaError::Call`] if the driver cannot tell.
    pub fn refuse_capture(&self) -> Result<(), CudaError> {
        let context = self.launcher.context();
        let _current = context.current()?;
        refuse_capture(context.driver(), self.raw, "adding memory operations to a stream")
    }

    /// Adds steps that no kernel executes. After an error some of them may be on the stream: wait for it in any case.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver refuses a step.
    ///
    /// # Safety
    /// The memory that the steps name must stay valid until the stream has been waited for.
    pub unsafe fn operate(&mut self, operations: &[MemoryOperation]) -> Result<(), CudaError> {
        const WHAT: &str = "adding memory operations to a stream";
        let Some(lane) = &self.lane else { return Ok(()) };
        let context = self.launcher.context();
        let driver = context.driver();
        let _current = context.current()?;
        if self.busy_since.is_none() {
            // SAFETY: own event and a live stream.
            unsafe { call!(driver, cuEventRecord(lane.start, lane.stream), WHAT) }?;
            context.run_begins();
            self.busy_since = Some(Instant::now());
        }
        // SAFETY: this function's caller makes the same promise.
        let added = operations.iter().try_for_each(|o| unsafe { o.enqueue(driver, lane.stream) });
        // SAFETY: own event and a live stream.
        let marked = unsafe { call!(driver, cuEventRecord(lane.end, lane.stream), WHAT) };
        added.and(marked)
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

    /// Waits at most `within` for all work on the stream to end, that of other code included. Returns true if it has
    /// ended. The thread keeps its core meanwhile.
    ///
    /// # Errors
    /// [`CudaError::Call`] if work on the stream failed.
    pub fn drain(&mut self, within: Duration) -> Result<bool, CudaError> {
        const WHAT: &str = "waiting for a stream";
        let Some(lane) = &self.lane else { return Ok(true) };
        let context = self.launcher.context();
        let driver = context.driver();
        let _current = context.current()?;
        let (entered, mut pauses) = (Instant::now(), Wait::new());
        // SAFETY: own event and a live stream.
        unsafe { call!(driver, cuEventRecord(lane.end, lane.stream), WHAT) }?;
        loop {
            // SAFETY: own event.
            match unsafe { (driver.cuEventQuery)(lane.end) } {
                code::NOT_READY if entered.elapsed() < within => pauses.pause(),
                code::NOT_READY => return Ok(false),
                answer => return driver.check(answer, "cuEventQuery", WHAT).map(|()| true),
            }
        }
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
        self.launcher.context().forget_stream(self.raw);
        if self.busy_since.is_some() {
            std::mem::forget(self.keep.take());
        } else if let Some(lane) = self.lane.take() {
            self.launcher.context().give_lane_back(lane);
        }
    }
}
