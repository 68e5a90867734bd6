//! The primary context of a GPU, and the memory that is freed only after running kernels have ended.

use super::copy::Copier;
use super::device::{self, DeviceInfo};
use super::driver::{CUcontext, CUdevice, CUevent, CUstream, Driver, call};
use super::error::{CudaError, code};
use super::garbage::Garbage;
use super::lane::{self, Lane};
use super::launch::refuse_capture;
use cudarc::driver::sys;
use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Longest wait for the whole context to become idle after the end of a kernel or copy was seen.
const LAST_INSTRUCTIONS: Duration = Duration::from_micros(50);
/// Longest time that a launch waits for memory that is being freed. Freeing takes less, unless it waits for a kernel of
/// other code.
const FREEING: Duration = Duration::from_millis(100);
const STACK_LIMIT: c_int = sys::CUlimit_enum::CU_LIMIT_STACK_SIZE as c_int;
/// CU_STREAM_CAPTURE_MODE_RELAXED (cuda.h).
const RELAXED: c_int = 2;

/// The primary context of a GPU. Each process has one per GPU: opening the GPU again returns the same context.
///
/// The context is current on a thread only during a call, so it does not disturb other CUDA code on that thread.
#[derive(Debug)]
pub struct Context {
    driver: &'static Driver,
    device: CUdevice,
    raw: CUcontext,
    info: DeviceInfo,
    copier: Mutex<Copier>,
    /// Lanes that no launch uses.
    lanes: Mutex<Vec<Lane>>,
    /// Streams that other code may capture into a graph: those that it gave, and those that it can get.
    shared: Mutex<Vec<SharedStream>>,
    connections: usize,
    runs: Mutex<Runs>,
    /// Signalled when a thread has freed memory.
    freed: Condvar,
    /// Event that marks the end of all work in the context. Used only under the lock of `runs`.
    all_done: CUevent,
    stack: Mutex<Option<StackLimit>>,
}

/// Local memory per thread in a context, in bytes (`CU_LIMIT_STACK_SIZE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StackLimit {
    /// Limit when this process first read it.
    pub found: usize,
    /// Current limit. It is larger than `found` if a kernel of this process needed more.
    pub now: usize,
}

// SAFETY: a context may be made current on any thread (CUDA driver interface, "Context
// Management"); locks guard the rest.
unsafe impl Send for Context {}
// SAFETY: a context may be made current on several threads at the same time (CUDA driver interface, "Context
// Management"); locks guard the rest.
unsafe impl Sync for Context {}

/// Handle of a stream, which is only compared and passed to the driver.
#[derive(Debug, PartialEq)]
struct SharedStream(CUstream);

// SAFETY: a handle that may be used from any thread.
unsafe impl Send for SharedStream {}

/// Kernels in flight, and memory that must not be freed before they have ended.
///
/// `cuMemFree`, `cuMemFreeHost`, `cuMemHostUnregister` and `cuModuleUnload` wait for every kernel of the context. Until
/// they return, no other thread can launch or copy (seen with driver 580 on an H200). A kernel that waits for the host
/// would then never end. A kernel of another library in this process (NCCL) that waits for another rank would not end
/// either, if that rank waits for this process.
#[derive(Debug, Default)]
struct Runs {
    active: usize,
    garbage: VecDeque<Garbage>,
    /// True while a thread frees memory.
    is_freeing: bool,
}

impl Context {
    /// Returns the primary context of a GPU. `ordinal` is the GPU's position in the driver's list, from 0.
    ///
    /// # Errors
    /// - [`CudaError::NoDriver`] if libcuda does not load, [`CudaError::OldDriver`] if it lacks a function.
    /// - [`CudaError::NoDevice`] if there is no GPU with this ordinal.
    /// - [`CudaError::Call`] if the driver fails to open the context or to create its streams and buffers.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        static OPEN: OnceLock<Mutex<HashMap<usize, Weak<Context>>>> = OnceLock::new();
        let driver = Driver::get().map_err(|e| match e {
            CudaError::NoDevice { count, .. } => CudaError::NoDevice { ordinal, count },
            other => other,
        })?;
        let mut open = OPEN.get_or_init(Mutex::default).lock();
        if let Some(context) = open.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(context);
        }
        let context = Arc::new(Self::retain(driver, ordinal)?);
        open.insert(ordinal, Arc::downgrade(&context));
        Ok(context)
    }

    pub(super) fn retain(driver: &'static Driver, ordinal: usize) -> Result<Self, CudaError> {
        let device = device::find(driver, ordinal)?;
        let info = DeviceInfo::read(driver, device, ordinal)?;
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: writes one handle; the driver returned this device.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&mut raw, device), "opening the GPU's context") }?;
        let connections = lane::connections(std::env::var(lane::CONNECTIONS_VARIABLE).ok().as_deref());
        let copier = {
            let current = Current::push(driver, raw);
            current.and_then(|current| Copier::new(driver, &current))
        };
        let copier = copier.inspect_err(|_| {
            // SAFETY: retained above, and nothing uses it yet.
            unsafe { (driver.cuDevicePrimaryCtxRelease_v2)(device) };
        })?;
        let mut this = Self {
            driver,
            device,
            raw,
            info,
            copier: Mutex::new(copier),
            lanes: Mutex::default(),
            shared: Mutex::default(),
            connections,
            runs: Mutex::default(),
            freed: Condvar::new(),
            all_done: std::ptr::null_mut(),
            stack: Mutex::default(),
        };
        {
            let current = this.current()?;
            let no_timing = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as c_uint;
            // SAFETY: writes one handle; the context is current.
            unsafe { call!(driver, cuEventCreate(&mut this.all_done, no_timing), "preparing the context") }?;
            let mut lanes = this.lanes.lock();
            for _ in 0..lane::READY_LANES {
                lanes.push(Lane::new(driver, &current)?);
            }
        }
        Ok(this)
    }

    /// Returns the GPU's properties.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Returns the `CUcontext`, for programs that also call CUDA themselves. It is valid while `self` lives.
    pub fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Returns the GPU's free memory and its total memory, in bytes.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver call fails.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        let _current = self.current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes; the context is current.
        unsafe { call!(self.driver, cuMemGetInfo_v2(&mut free, &mut total), "reading the GPU's free memory") }?;
        Ok((free, total))
    }

    /// Copies bytes from GPU memory at address `from` into `out`. Does not wait for running kernels.
    ///
    /// # Errors
    /// - [`CudaError::Call`] if a driver call fails, for instance because the context is lost.
    /// - [`CudaError::NoAnswer`] if this copy, or an earlier one of the context, did not end within 60 s.
    pub fn copy_to_host(&self, from: u64, out: &mut [u8]) -> Result<(), CudaError> {
        let current = self.current()?;
        self.copier.lock().copy_out(&current, from, out)
    }

    /// Copies `data` to GPU memory at address `to`. Does not wait for running kernels.
    ///
    /// # Errors
    /// As [`Self::copy_to_host`].
    pub fn copy_to_device(&self, to: u64, data: &[u8]) -> Result<(), CudaError> {
        let current = self.current()?;
        self.copier.lock().copy_in(&current, to, data)
    }

    /// Sets `bytes` bytes of GPU memory at address `to` to `value`. Does not wait for running kernels.
    ///
    /// # Errors
    /// As [`Self::copy_to_host`].
    pub fn fill(&self, to: u64, bytes: usize, value: u8) -> Result<(), CudaError> {
        let current = self.current()?;
        self.copier.lock().fill(&current, to, bytes, value)
    }

    /// Returns true if `other` is this context.
    pub(super) fn is(&self, other: CUcontext) -> bool {
        self.raw == other
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Calls `f` with the context current on this thread.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver cannot make the context current.
    pub fn within<R>(&self, f: impl FnOnce() -> R) -> Result<R, CudaError> {
        let _current = self.current()?;
        Ok(f())
    }

    /// Makes the context current on this thread until the guard is dropped.
    pub(super) fn current(&self) -> Result<Current, CudaError> {
        Current::push(self.driver, self.raw)
    }

    /// Returns how many kernels of this process are sure to run concurrently if they fit on the GPU. So many may wait
    /// for each other. The number is one for each hardware queue except the queue of copies.
    /// `CUDA_DEVICE_MAX_CONNECTIONS` sets the number of queues (1 to 32; default 8) for contexts that are opened
    /// after the variable is set.
    pub fn kernels_side_by_side(&self) -> usize {
        (self.connections - 1).max(1)
    }

    /// Raises the context's limit of local memory to at least `bytes` bytes per thread, before a kernel that needs them
    /// starts. Otherwise the driver would raise the limit at the launch.
    ///
    /// Raising the limit waits for all running kernels. The memory (`bytes` for each thread that the GPU can
    /// hold) belongs to the whole context, including its other users. So this does nothing if the limit
    /// suffices or while kernels run. The limit that was found is set again when the context is dropped.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver fails to read or to set the limit.
    pub fn reserve_local_memory(&self, bytes: usize) -> Result<(), CudaError> {
        let mut stack = self.stack.lock();
        if stack.is_some_and(|s| bytes <= s.now) {
            return Ok(());
        }
        let _current = self.current()?;
        let mut now = 0;
        // SAFETY: writes one size; the context is current.
        unsafe { call!(self.driver, cuCtxGetLimit(&mut now, STACK_LIMIT), "reading the stack size") }?;
        let limit = stack.get_or_insert(StackLimit { found: now, now });
        limit.now = now;
        let runs = self.runs.lock();
        if bytes <= now || runs.active > 0 || !self.is_quiet(&runs) {
            return Ok(());
        }
        // SAFETY: writes one size and reads another; the context is current.
        unsafe {
            call!(self.driver, cuCtxSetLimit(STACK_LIMIT, bytes), "setting the stack size")?;
            call!(self.driver, cuCtxGetLimit(&mut limit.now, STACK_LIMIT), "reading the stack size")?;
        }
        tracing::info!(
            gpu = self.info.ordinal,
            from = now,
            to = limit.now,
            "the stack of the GPU's threads was enlarged"
        );
        Ok(())
    }

    /// Returns the local memory per thread, or `None` before the first launch or the first `reserve_local_memory`.
    pub fn stack_limit(&self) -> Option<StackLimit> {
        *self.stack.lock()
    }

    /// Returns a lane that no launch uses; creates one if there is none.
    pub(super) fn take_lane(&self) -> Result<Lane, CudaError> {
        let current = self.current()?;
        // Held while a lane is made, because `Lane::new` must not run twice at the same time.
        let mut idle = self.lanes.lock();
        idle.pop().map_or_else(|| Lane::new(self.driver, &current), Ok)
    }

    /// Takes a lane back that no launch uses any more. Only lanes with a stream of their own are used again.
    pub(super) fn give_lane_back(&self, mut lane: Lane) {
        if !lane.is_adopted {
            self.lanes.lock().push(lane);
        } else if let Ok(_current) = self.current() {
            lane.destroy(self.driver);
        }
    }

    /// Counts a kernel that is about to start. Nothing is freed until it has ended.
    ///
    /// If a thread frees memory, this waits for it, but not for long: that thread may wait for a kernel of other code.
    pub(super) fn run_begins(&self) {
        let mut runs = self.runs.lock();
        runs.active += 1;
        self.freed.wait_while_for(&mut runs, |runs| runs.is_freeing, FREEING);
    }

    /// Counts a kernel that has ended. After the last one, frees the waiting memory.
    pub(super) fn run_ends(&self) {
        let mut runs = self.runs.lock();
        runs.active -= 1;
        self.free_if_idle(runs);
    }

    /// Frees memory as soon as no kernel runs.
    pub(super) fn release(&self, garbage: Garbage) {
        let mut runs = self.runs.lock();
        runs.garbage.push_back(garbage);
        self.free_if_idle(runs);
    }

    /// Frees memory that waited for kernels of other code in this process, if those have ended.
    /// Returns true if any was freed.
    pub(super) fn collect(&self) -> bool {
        let mut runs = self.runs.lock();
        let by_another = runs.is_freeing;
        self.freed.wait_while_for(&mut runs, |runs| runs.is_freeing, FREEING);
        self.free_if_idle(runs) || by_another
    }

    /// Notes a stream that other code may capture, until [`Self::forget_stream`].
    pub(super) fn note_stream(&self, stream: CUstream) {
        self.shared.lock().push(SharedStream(stream));
    }

    pub(super) fn forget_stream(&self, stream: CUstream) {
        let mut shared = self.shared.lock();
        if let Some(at) = shared.iter().position(|s| s.0 == stream) {
            shared.swap_remove(at);
        }
    }

    /// Returns true if nothing runs in the context: no kernel and no copy of this process,
    /// including those of other libraries. Returns false while a noted stream is captured: marking the end of the
    /// context's work would invalidate the capture (CUDA driver interface, cuCtxRecordEvent).
    fn is_quiet(&self, _runs: &MutexGuard<'_, Runs>) -> bool {
        let is_captured = |s: &SharedStream| refuse_capture(self.driver, s.0, "freeing memory").is_err();
        if self.shared.lock().iter().any(is_captured) {
            return false;
        }
        // SAFETY: own event of this context; the call returns at once.
        if unsafe { (self.driver.cuCtxRecordEvent)(self.raw, self.all_done) } != code::SUCCESS {
            return false;
        }
        let asked = Instant::now();
        loop {
            // SAFETY: own event of this context; the call returns at once.
            match unsafe { (self.driver.cuEventQuery)(self.all_done) } {
                code::NOT_READY if asked.elapsed() < LAST_INSTRUCTIONS => std::hint::spin_loop(),
                answer => return answer == code::SUCCESS,
            }
        }
    }

    /// Frees the waiting memory if no kernel of this crate runs. While kernels of other code run, memory whose freeing
    /// waits stays for the next time: otherwise every thread would wait for them. Returns true if any was freed.
    ///
    /// The freeing calls are made without a lock. A kernel of other code may start just before one of them, which then
    /// waits for that kernel; other threads go on meanwhile. One thread frees at a time, and stops when a kernel of this
    /// crate is about to start.
    fn free_if_idle(&self, mut runs: MutexGuard<'_, Runs>) -> bool {
        if runs.active > 0 || runs.is_freeing || runs.garbage.is_empty() {
            return false;
        }
        let Ok(_current) = self.current() else {
            // The context is lost. The driver takes back its memory by itself, but host memory is still registered.
            std::mem::forget(std::mem::take(&mut runs.garbage));
            return false;
        };
        runs.is_freeing = true;
        let (mut later, mut has_freed) = (VecDeque::new(), false);
        while runs.active == 0
            && let Some(g) = runs.garbage.pop_front()
        {
            if g.waits() && !self.is_quiet(&runs) {
                later.push_back(g);
                continue;
            }
            // The owners of registered and mapped memory are dropped here too: they may own memory of this context
            // themselves.
            MutexGuard::unlocked(&mut runs, || g.free(self.driver));
            has_freed = true;
        }
        later.append(&mut runs.garbage);
        runs.garbage = later;
        runs.is_freeing = false;
        drop(runs);
        self.freed.notify_all();
        has_freed
    }

    /// Sets the limit of local memory that this process found, if it was raised since. Does nothing while other code's
    /// kernels run: setting the limit waits for them.
    fn restore_stack(&self) {
        let Some(stack) = *self.stack.lock() else { return };
        let Ok(_current) = self.current() else { return };
        if stack.now <= stack.found || !self.is_quiet(&self.runs.lock()) {
            return;
        }
        // SAFETY: the context is current; the value is only a size.
        let set = unsafe { call!(self.driver, cuCtxSetLimit(STACK_LIMIT, stack.found), "setting the stack size") };
        if let Err(error) = set {
            tracing::debug!(%error, "the stack of the GPU's threads keeps its size");
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.collect();
        let runs = self.runs.get_mut();
        if runs.active > 0 || !runs.garbage.is_empty() {
            // A kernel does not end, or other code's kernel runs. Every freeing call would wait for it, so
            // all is left to process exit.
            std::mem::forget(std::mem::take(&mut runs.garbage));
            return;
        }
        self.restore_stack();
        if let Ok(current) = Current::push(self.driver, self.raw) {
            if !self.all_done.is_null() {
                // SAFETY: made by `retain`, and nothing uses it any more.
                unsafe { (self.driver.cuEventDestroy_v2)(self.all_done) };
            }
            for lane in self.lanes.get_mut() {
                lane.destroy(self.driver);
            }
            self.copier.get_mut().close(&current);
        }
        // SAFETY: retained by `open`; every object made in the context holds it, so none is left.
        let released =
            unsafe { call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.device), "closing the GPU's context") };
        if let Err(error) = released {
            tracing::debug!(%error, "the context could not be closed");
        }
    }
}

/// Guard: the context is current on this thread while the guard lives.
///
/// The thread's capture mode is relaxed meanwhile. While other code captures a stream into a graph, the driver otherwise
/// refuses allocations and event queries on every thread, and such a call invalidates the capture.
#[derive(Debug)]
pub(super) struct Current {
    driver: &'static Driver,
    /// Capture mode that the thread had.
    mode: c_int,
    /// Keeps the guard on this thread.
    _here: std::marker::PhantomData<*mut ()>,
}

impl Current {
    fn push(driver: &'static Driver, raw: CUcontext) -> Result<Self, CudaError> {
        // SAFETY: the context is retained.
        unsafe { call!(driver, cuCtxPushCurrent_v2(raw), "using the GPU's context") }?;
        let mut mode = RELAXED;
        // SAFETY: exchanges a number of this thread.
        unsafe { (driver.cuThreadExchangeStreamCaptureMode)(&mut mode) };
        Ok(Self { driver, mode, _here: std::marker::PhantomData })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // SAFETY: exchanges a number of this thread.
        unsafe { (self.driver.cuThreadExchangeStreamCaptureMode)(&mut self.mode) };
        let mut was: CUcontext = std::ptr::null_mut();
        // SAFETY: pushed on this thread, which the guard cannot leave; guards are dropped in reverse order.
        unsafe { (self.driver.cuCtxPopCurrent_v2)(&mut was) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_what_is_not_there_is_an_error() {
        let e = Context::open(usize::MAX >> 40).unwrap_err();
        assert!(
            matches!(
                e,
                CudaError::NoDriver | CudaError::NoDevice { .. } | CudaError::OldDriver { .. } | CudaError::Call(_)
            ),
            "{e}"
        );
    }

    /// A kernel of other code: it runs on a stream that this crate does not know, until a word is 1.
    struct Foreign {
        context: Arc<Context>,
        stream: super::super::driver::CUstream,
        stop: crate::memory::Region,
    }

    impl Foreign {
        fn start(engine: &crate::engine::Engine) -> Self {
            let context = engine.space().gpu_context().unwrap().clone();
            let stop = engine.allocate(crate::memory::Place::Host, 8).unwrap();
            let module = crate::cuda::Module::load(&context, UNTIL_TOLD).unwrap();
            let function = module.function("until_told").unwrap().clone();
            std::mem::forget(module);
            let _current = context.current().unwrap();
            let (mut stream, mut word) = (std::ptr::null_mut(), stop.address());
            let non_blocking = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
            // SAFETY: writes one handle, then launches a kernel with one address. That word lives
            // until the kernel has ended.
            unsafe {
                call!(context.driver, cuStreamCreate(&mut stream, non_blocking), "test").unwrap();
                let parameters = &mut [(&raw mut word).cast::<c_void>()];
                let (none, p) = (std::ptr::null_mut(), parameters.as_mut_ptr());
                call!(context.driver, cuLaunchKernel(function.raw, 1, 1, 1, 1, 1, 1, 0, stream, p, none), "test")
                    .unwrap();
            }
            Self { context: context.clone(), stream, stop }
        }
    }

    impl Drop for Foreign {
        fn drop(&mut self) {
            self.stop.set(0, 1u32).unwrap();
            let _current = self.context.current().unwrap();
            // SAFETY: own stream.
            unsafe { (self.context.driver.cuStreamDestroy_v2)(self.stream) };
        }
    }

    /// `until_told(uint32_t* word)`: polls a word until it is not 0.
    const UNTIL_TOLD: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n\
        .visible .entry until_told(.param .u64 word)\n{\n\
        .reg .u64 %rd<2>;\n.reg .u32 %r<2>;\n.reg .pred %p<2>;\n\
        ld.param.u64 %rd1, [word];\n\
        again:\nld.volatile.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra again;\nret;\n}\n";

    /// If a freeing call waited, this test would never end: nothing sets the kernel's word.
    #[test]
    #[ignore = "needs a GPU"]
    fn nothing_is_freed_while_kernels_of_others_run() {
        use crate::memory::Place;
        let engine = crate::engine::Engine::gpu(0).unwrap();
        let foreign = Foreign::start(&engine);
        let context = foreign.context.clone();
        let waiting = || context.runs.lock().garbage.len();
        let before = waiting();
        for place in [Place::Device, Place::Host] {
            drop(engine.allocate(place, 1 << 20).unwrap());
        }
        assert_eq!(waiting(), before + 2);
        // Launches and copies proceed meanwhile.
        let out = engine.allocate(Place::Device, 8).unwrap();
        let args = crate::args!(&out, 1u64, 7u64, 0u64);
        crate::engine::testing::start(&engine, "wb_iota", engine.grid(128, 1), args).unwrap().finish().unwrap();
        assert_eq!(out.get::<u64>(0).unwrap(), 7);
        assert_eq!(waiting(), before + 2);
        drop(foreign);
        let asked = Instant::now();
        while waiting() > 0 && asked.elapsed() < Duration::from_secs(60) {
            context.collect();
        }
        assert_eq!(waiting(), 0);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn the_stack_is_enlarged_for_kernels_that_need_it_and_this_is_told() {
        let engine = crate::engine::Engine::gpu(0).unwrap();
        let context = engine.space().gpu_context().unwrap();
        context.reserve_local_memory(1).unwrap();
        let before = context.stack_limit().unwrap();
        context.reserve_local_memory(before.now).unwrap();
        assert_eq!(context.stack_limit(), Some(before), "it is enough");
        context.reserve_local_memory(before.now + 512).unwrap();
        let after = engine.info().stack_limit.unwrap();
        assert!(after.now >= before.now + 512 && after.found == before.found, "{after:?}");
    }
}
