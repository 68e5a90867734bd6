//! Kernel launches.

use super::context::Context;
use super::driver::{CUstream, Driver, call};
use super::error::{CudaError, code};
use super::lane::Lane;
use super::module::{Function, Module};
use super::wait::Wait;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// While a kernel is younger than this, the wait polls without sleeping and notices its end within 1 to 2 microseconds.
/// A sleep can take much longer than requested: 4 ms was seen on a virtual machine whose timers follow a 250 Hz tick.
const WATCH: Duration = Duration::from_millis(100);

/// Launches kernels of several modules. Several may run at once.
#[derive(Debug)]
pub struct Launcher {
    context: Arc<Context>,
    modules: Vec<Module>,
}

/// A kernel in flight, or other code's work on a stream.
#[derive(Debug)]
pub struct Launch {
    launcher: Arc<Launcher>,
    /// `None` after the kernel has ended.
    lane: Option<Lane>,
    started: Instant,
    elapsed: Duration,
}

impl Launcher {
    /// Prepares launches of these modules' kernels. All modules are of `context`. No two kernels have the same name.
    pub fn new(context: &Arc<Context>, modules: Vec<Module>) -> Arc<Self> {
        Arc::new(Self { context: context.clone(), modules })
    }

    /// Returns the modules whose kernels this launches.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Returns the kernel with this name, if a module has it.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.modules.iter().find_map(|module| module.function(name))
    }

    /// Returns the number of blocks of `threads` threads of a kernel that one multiprocessor holds at once. The kernel is
    /// one of this launcher's.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver call fails.
    pub fn occupancy(&self, function: &Function, threads: u32) -> Result<u32, CudaError> {
        let _current = self.context.current()?;
        let mut blocks: c_int = 0;
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: writes one number; a `Function` belongs to a module that is loaded while this exists.
        unsafe {
            call!(
                self.context.driver(),
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.raw, threads, 0),
                "querying how many blocks fit"
            )
        }?;
        Ok(blocks.max(0) as u32)
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Begins a run of work that other code puts on a stream: it counts as a kernel in flight from now on, and its time
    /// starts at this point of the stream.
    ///
    /// # Errors
    /// - [`CudaError::Capturing`] if the stream is being captured.
    /// - [`CudaError::Call`] if the driver fails to create or to record an event.
    ///
    /// # Safety
    /// `stream` must be a stream of this context, and stay valid until the run has ended.
    pub unsafe fn external(self: &Arc<Self>, stream: CUstream) -> Result<Launch, CudaError> {
        const WHAT: &str = "beginning a run of the program's own kernels";
        let context = self.context();
        let current = context.current()?;
        refuse_capture(context.driver(), stream, WHAT)?;
        let lane = Lane::around(context.driver(), &current, stream)?;
        // SAFETY: an event of this context; the caller promises that the stream is one too.
        let marked = unsafe { call!(context.driver(), cuEventRecord(lane.start, stream), WHAT) };
        if let Err(e) = marked {
            context.give_lane_back(lane);
            return Err(e);
        }
        context.run_begins();
        let started = Instant::now();
        Ok(Launch { launcher: self.clone(), lane: Some(lane), started, elapsed: Duration::ZERO })
    }

    /// Starts a kernel on a stream of its own, with `blocks` blocks of `threads` threads.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver refuses the launch, or fails to create a stream or to raise
    /// the limit of local memory.
    ///
    /// # Safety
    /// `parameters` must hold the addresses of values of the types that the kernel takes. Memory that those values
    /// point to must stay valid until the kernel has ended. The function must be of this launcher's module.
    pub unsafe fn launch(
        self: &Arc<Self>,
        function: &Function,
        blocks: u32,
        threads: u32,
        parameters: &mut [*mut c_void],
    ) -> Result<Launch, CudaError> {
        let context = self.context();
        context.reserve_local_memory(function.local_bytes as usize)?;
        let lane = context.take_lane()?;
        context.run_begins();
        let started = Instant::now();
        // SAFETY: this function's caller makes the same promise.
        let launched = unsafe { self.enqueue(&lane, true, function, blocks, threads, parameters) };
        if let Err(e) = launched {
            // The driver refused the launch, or the context is lost: nothing of this run is on the GPU.
            context.give_lane_back(lane);
            context.run_ends();
            return Err(e);
        }
        Ok(Launch { launcher: self.clone(), lane: Some(lane), started, elapsed: Duration::ZERO })
    }

    /// Enqueues a kernel in a lane behind the lane's earlier kernels. Moves the lane's end event behind the kernel.
    /// With `first`, also records the lane's start event before it.
    ///
    /// # Safety
    /// As [`Launcher::launch`].
    pub(super) unsafe fn enqueue(
        &self,
        lane: &Lane,
        first: bool,
        function: &Function,
        blocks: u32,
        threads: u32,
        parameters: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        const WHAT: &str = "launching a kernel";
        let driver = self.context().driver();
        let _current = self.context().current()?;
        refuse_capture(self.context().driver(), lane.stream, WHAT)?;
        // SAFETY: own events, and a stream that lives as long as the lane; the caller is responsible for the parameters.
        unsafe {
            if first {
                call!(driver, cuEventRecord(lane.start, lane.stream), WHAT)?;
            }
            call!(
                driver,
                cuLaunchKernel(
                    function.raw,
                    blocks,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    0,
                    lane.stream,
                    parameters.as_mut_ptr(),
                    std::ptr::null_mut()
                ),
                WHAT
            )?;
            call!(driver, cuEventRecord(lane.end, lane.stream), WHAT)
        }
    }

    /// Moves the end event of a lane around another owner's stream behind all work that is there now. Returns false
    /// after `within` if the stream is being captured: its work then has no end yet.
    fn mark_end(&self, lane: &Lane, within: Duration) -> Result<bool, CudaError> {
        const WHAT: &str = "marking the end of the program's own kernels";
        let _current = self.context().current()?;
        match refuse_capture(self.context().driver(), lane.stream, WHAT) {
            Err(CudaError::Capturing { .. }) => {
                std::thread::sleep(within);
                return Ok(false);
            }
            other => other?,
        }
        // SAFETY: own event, and a stream that the run keeps.
        unsafe { call!(self.context().driver(), cuEventRecord(lane.end, lane.stream), WHAT) }?;
        Ok(true)
    }

    /// Waits at most `within` for a lane's end event. Returns the GPU time from the lane's start event to its end
    /// event, or `None` if the end was not reached. An error is a fault of a kernel: the kernel has ended.
    pub(super) fn await_end(
        &self,
        lane: &Lane,
        started: Instant,
        within: Duration,
    ) -> Result<Option<Duration>, CudaError> {
        const WHAT: &str = "waiting for a kernel";
        let driver = self.context().driver();
        let entered = Instant::now();
        let _current = self.context().current()?;
        let mut pauses = Wait::new();
        let answer = loop {
            // SAFETY: own event.
            let answer = unsafe { (driver.cuEventQuery)(lane.end) };
            if answer != code::NOT_READY {
                break answer;
            }
            let waited = entered.elapsed();
            if waited >= within {
                return Ok(None);
            }
            let ran = started.elapsed();
            if ran < WATCH {
                pauses.pause();
            } else {
                // A small part of the kernel's run time so far: waiting for a long kernel should not occupy a core.
                std::thread::sleep((ran / 64).min(Duration::from_millis(1)).min(within - waited));
            }
        };
        driver.check(answer, "cuEventQuery", WHAT)?;
        let mut milliseconds = 0f32;
        // SAFETY: the GPU has reached both events.
        unsafe { call!(driver, cuEventElapsedTime(&mut milliseconds, lane.start, lane.end), WHAT) }?;
        Ok(Some(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3)))
    }
}

impl Launch {
    /// Waits at most `within` for the kernel to end. Returns true if it has ended.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the kernel failed, for instance with an illegal address. The kernel has then ended.
    pub fn wait(&mut self, within: Duration) -> Result<bool, CudaError> {
        let Some(lane) = &self.lane else { return Ok(true) };
        if lane.is_adopted && !self.launcher.mark_end(lane, within)? {
            return Ok(false);
        }
        let ended = self.launcher.await_end(lane, self.started, within);
        if let Ok(None) = ended {
            return Ok(false);
        }
        if let Some(lane) = self.lane.take() {
            self.launcher.context().give_lane_back(lane);
        }
        self.launcher.context().run_ends();
        self.elapsed = ended?.unwrap_or_default();
        Ok(true)
    }

    /// Returns the GPU time from the kernel's start to its end. While the kernel runs, returns the
    /// host time since its launch.
    pub fn elapsed(&self) -> Duration {
        if self.lane.is_some() { self.started.elapsed() } else { self.elapsed }
    }
}

/// Fails with [`CudaError::Capturing`] if work on the stream would become part of a graph. The stream is alive.
pub(super) fn refuse_capture(driver: &Driver, stream: CUstream, what: &'static str) -> Result<(), CudaError> {
    /// CU_STREAM_CAPTURE_STATUS_NONE (cuda.h).
    const NOT_CAPTURED: c_int = 0;
    let mut status = NOT_CAPTURED;
    // SAFETY: writes one number; the callers hold the stream's owner.
    let answer = unsafe { (driver.cuStreamIsCapturing)(stream, &mut status) };
    // The second is for the legacy default stream while a stream that waits for it is captured.
    if (answer == code::SUCCESS && status != NOT_CAPTURED) || answer == code::CAPTURE_IMPLICIT {
        return Err(CudaError::Capturing { what });
    }
    driver.check(answer, "cuStreamIsCapturing", what)
}

// A launch that is dropped before its end stays counted as running, so nothing that the kernel may use is ever freed.
// The engine drops one only after it gave up on a kernel that did not end.
