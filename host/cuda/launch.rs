//! Launches of kernels.

use super::context::Context;
use super::driver::call;
use super::error::{CudaError, code};
use super::lane::Lane;
use super::module::{Function, Module};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A kernel shorter than this is watched without sleeping: its end is then noticed within a microsecond or two. A sleep can be much
/// longer than asked for: 4 ms was seen on a virtual machine whose timers follow a 250 Hz tick.
const WATCH: Duration = Duration::from_millis(100);

/// Launches kernels of one module, several at a time.
#[derive(Debug)]
pub struct Launcher {
    module: Module,
}

/// A kernel in flight.
#[derive(Debug)]
pub struct Launch {
    launcher: Arc<Launcher>,
    /// Taken when the kernel has ended.
    lane: Option<Lane>,
    started: Instant,
    elapsed: Duration,
}

impl Launcher {
    /// Prepares launches of this module's kernels.
    pub fn new(module: Module) -> Arc<Self> {
        Arc::new(Self { module })
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.module.context()
    }

    /// Starts a kernel.
    ///
    /// # Safety
    /// `parameters` must be the addresses of values of the types that the kernel takes, and what those values point to must
    /// stay until the kernel has ended. The function must be of this launcher's module.
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
        // SAFETY: the caller's promise is the same.
        let launched = unsafe { self.enqueue(&lane, true, function, blocks, threads, parameters) };
        if let Err(e) = launched {
            // The launch itself was refused, or the context is lost: nothing of this run is on the GPU any more.
            context.give_lane_back(lane);
            context.run_ends();
            return Err(e);
        }
        Ok(Launch { launcher: self.clone(), lane: Some(lane), started, elapsed: Duration::ZERO })
    }

    /// Puts a kernel into a lane, after what is in it. The lane's end is then this kernel's; its start is, if it is the `first`.
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
        // SAFETY: own events and stream; the caller vouches for the parameters.
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

    /// Waits until a lane has come to its end, at most `within`, and answers the GPU time from its start to its end; `None` if it
    /// is not there yet. An error is a kernel's own (a fault), and an end.
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
                std::thread::yield_now();
            } else {
                // A small part of what the kernel took already: long kernels should not cost a core.
                std::thread::sleep((ran / 64).min(Duration::from_millis(1)).min(within - waited));
            }
        };
        driver.check(answer, "cuEventQuery", WHAT)?;
        let mut milliseconds = 0f32;
        // SAFETY: both events have been reached.
        unsafe { call!(driver, cuEventElapsedTime(&mut milliseconds, lane.start, lane.end), WHAT) }?;
        Ok(Some(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3)))
    }
}

impl Launch {
    /// Waits until the kernel has ended, at most `within`; whether it has. An error is the kernel's own (a fault), and ends it.
    pub fn wait(&mut self, within: Duration) -> Result<bool, CudaError> {
        let Some(lane) = &self.lane else { return Ok(true) };
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

    /// GPU time from the kernel's start to its end; host time so far while it runs.
    pub fn elapsed(&self) -> Duration {
        if self.lane.is_some() { self.started.elapsed() } else { self.elapsed }
    }
}

// A launch that is dropped before its end stays counted as running: nothing that the kernel may use is freed any more. The
// engine drops one only after it gave up on a kernel that would not end.
