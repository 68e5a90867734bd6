//! Launches: a stream with the two events that bound a kernel's time.

use super::context::{Context, Current};
use super::driver::{CUevent, CUstream, call};
use super::error::{CudaError, code};
use super::module::{Function, Module};
use cudarc::driver::sys;
use std::ffi::{c_uint, c_void};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Kernels that can start side by side without making a stream first.
const READY_LANES: usize = 4;
/// A kernel shorter than this is watched without sleeping: its end is then noticed within a microsecond or two. A sleep can be much
/// longer than asked for: 4 ms was seen on a virtual machine whose timers follow a 250 Hz tick.
const WATCH: Duration = Duration::from_millis(100);

/// Launches kernels of one module, several at a time.
#[derive(Debug)]
pub struct Launcher {
    module: Module,
    idle: Mutex<Vec<Lane>>,
}

/// A stream that does not wait for others, and two events.
#[derive(Debug)]
pub(super) struct Lane {
    stream: CUstream,
    start: CUevent,
    end: CUevent,
}

// SAFETY: handles that may be used from any thread; one launch has them at a time.
unsafe impl Send for Lane {}

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
    pub fn new(module: Module) -> Result<Arc<Self>, CudaError> {
        let this = Self { module, idle: Mutex::default() };
        {
            let current = this.context().current()?;
            for _ in 0..READY_LANES {
                let lane = Lane::new(this.context(), &current)?;
                this.idle().push(lane);
            }
        }
        Ok(Arc::new(this))
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.module.context()
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Lane>> {
        self.idle.lock().unwrap_or_else(|e| e.into_inner())
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
        let lane = self.take_lane()?;
        context.run_begins();
        let started = Instant::now();
        // SAFETY: the caller's promise is the same.
        let launched = unsafe { self.enqueue(&lane, true, function, blocks, threads, parameters) };
        if let Err(e) = launched {
            // The launch itself was refused, or the context is lost: nothing of this run is on the GPU any more.
            self.idle().push(lane);
            context.run_ends();
            return Err(e);
        }
        Ok(Launch { launcher: self.clone(), lane: Some(lane), started, elapsed: Duration::ZERO })
    }

    /// An idle lane, or a new one.
    pub(super) fn take_lane(&self) -> Result<Lane, CudaError> {
        let current = self.context().current()?;
        let idle = self.idle().pop();
        idle.map_or_else(|| Lane::new(self.context(), &current), Ok)
    }

    pub(super) fn give_lane_back(&self, lane: Lane) {
        self.idle().push(lane);
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

impl Lane {
    fn new(context: &Context, _current: &Current) -> Result<Self, CudaError> {
        const WHAT: &str = "preparing launches";
        let driver = context.driver();
        let (stream, start, end) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let mut lane = Self { stream, start, end };
        let non_blocking = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
        let timed = sys::CUevent_flags_enum::CU_EVENT_DEFAULT as c_uint;
        // SAFETY: each writes one handle; a context is current.
        let made = unsafe {
            call!(driver, cuStreamCreate(&mut lane.stream, non_blocking), WHAT)
                .and_then(|()| call!(driver, cuEventCreate(&mut lane.start, timed), WHAT))
                .and_then(|()| call!(driver, cuEventCreate(&mut lane.end, timed), WHAT))
        };
        made.inspect_err(|_| lane.destroy(context))?;
        Ok(lane)
    }

    fn destroy(&mut self, context: &Context) {
        let driver = context.driver();
        for event in [&mut self.start, &mut self.end] {
            if !event.is_null() {
                // SAFETY: made by `new`, used by no launch.
                unsafe { (driver.cuEventDestroy_v2)(std::mem::replace(event, std::ptr::null_mut())) };
            }
        }
        if !self.stream.is_null() {
            // SAFETY: as above.
            unsafe { (driver.cuStreamDestroy_v2)(std::mem::replace(&mut self.stream, std::ptr::null_mut())) };
        }
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
            self.launcher.give_lane_back(lane);
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

impl Drop for Launcher {
    fn drop(&mut self) {
        let context = self.context().clone();
        if context.has_runs() {
            return;
        }
        if let Ok(_current) = context.current() {
            for mut lane in self.idle().drain(..) {
                lane.destroy(&context);
            }
        }
    }
}
