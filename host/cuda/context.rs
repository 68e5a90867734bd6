//! A GPU's primary context, and what has to wait while kernels run on it.

use super::copy::Copier;
use super::device::{self, DeviceInfo};
use super::driver::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUmodule, Driver, call};
use super::error::{CudaError, code};
use super::lane::{self, Lane};
use super::virtual_memory::Mapped;
use cudarc::driver::sys;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::any::Any;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Time that a kernel that was seen to end, or a copy, may still take to be over for the whole context.
const LAST_INSTRUCTIONS: Duration = Duration::from_micros(50);

/// A GPU's primary context. One for each GPU and process, shared: opening it again gives the same.
///
/// It is current on a thread only for the length of a call, so it gets in nobody's way.
#[derive(Debug)]
pub struct Context {
    driver: &'static Driver,
    device: CUdevice,
    raw: CUcontext,
    info: DeviceInfo,
    copier: Mutex<Copier>,
    /// Those that no launch has.
    lanes: Mutex<Vec<Lane>>,
    connections: usize,
    runs: Mutex<Runs>,
    /// Marks the end of all that runs; used under the lock of `runs`.
    all_done: CUevent,
    stack: Mutex<Option<StackLimit>>,
}

/// Bytes of local memory that each thread has in a context (`CU_LIMIT_STACK_SIZE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StackLimit {
    /// As it was found.
    pub found: usize,
    /// As it is: more where a kernel of this process needed it.
    pub now: usize,
}

// SAFETY: contexts may be made current on any thread (CUDA driver interface, "Context Management"); the rest is locked.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Kernels in flight, and what must not be freed before they have ended: `cuMemFree`, `cuMemFreeHost`, `cuMemHostUnregister` and
/// `cuModuleUnload` wait for every kernel of the context, and until they return no other thread gets a launch or a copy through (seen with
/// driver 580 on an H200). So a kernel that waits for the host would never end, and neither would one of a library beside this one that
/// waits for another rank (NCCL), if that rank waits for this process.
#[derive(Debug, Default)]
struct Runs {
    active: usize,
    garbage: Vec<Garbage>,
}

/// Memory whose owner is gone.
pub(super) enum Garbage {
    Device(CUdeviceptr),
    Pinned(*mut c_void),
    /// The parts of an image.
    Modules(Vec<CUmodule>),
    /// A handle of physical memory; the memory itself goes with its last mapping.
    Physical(u64),
    /// Reserved addresses, and what is mapped in them.
    Range {
        base: CUdeviceptr,
        bytes: usize,
        mapped: Vec<Mapped>,
    },
    /// With what owns the host memory: it must outlive the registration.
    Registered {
        base: *mut c_void,
        _keep: Arc<dyn Any + Send + Sync>,
    },
}

// SAFETY: addresses that only the driver uses, and an owner that may be dropped anywhere.
unsafe impl Send for Garbage {}

impl Garbage {
    /// Returns true if giving it back waits for every kernel of the context.
    fn waits(&self) -> bool {
        !matches!(self, Self::Physical(_) | Self::Range { .. })
    }
}

impl std::fmt::Debug for Garbage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(p) => write!(f, "Device({p:#x})"),
            Self::Pinned(p) => write!(f, "Pinned({p:p})"),
            Self::Modules(parts) => write!(f, "Modules({})", parts.len()),
            Self::Physical(handle) => write!(f, "Physical({handle:#x})"),
            Self::Range { base, bytes, mapped } => write!(f, "Range({base:#x} + {bytes}, {} mapped)", mapped.len()),
            Self::Registered { base, .. } => write!(f, "Registered({base:p})"),
        }
    }
}

impl Context {
    /// The primary context of the GPU with this ordinal.
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

    fn retain(driver: &'static Driver, ordinal: usize) -> Result<Self, CudaError> {
        let device = device::find(driver, ordinal)?;
        let info = DeviceInfo::read(driver, device, ordinal)?;
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: writes one handle; the device is one that the driver gave.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&mut raw, device), "opening the GPU's context") }?;
        let connections = lane::connections(std::env::var(lane::CONNECTIONS_VARIABLE).ok().as_deref());
        let copier = {
            let current = Current::push(driver, raw);
            current.and_then(|current| Copier::new(driver, &current))
        };
        let copier = copier.inspect_err(|_| {
            // SAFETY: retained above and used by nobody.
            unsafe { (driver.cuDevicePrimaryCtxRelease_v2)(device) };
        })?;
        let (copier, lanes, runs, stack) = (Mutex::new(copier), Mutex::default(), Mutex::default(), Mutex::default());
        let all_done = std::ptr::null_mut();
        let mut this = Self { driver, device, raw, info, copier, lanes, connections, runs, all_done, stack };
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

    /// The GPU's properties.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The `CUcontext`, for programs that also talk to CUDA themselves. Valid while `self` lives.
    pub fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Free and all memory of the GPU, in bytes.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        let _current = self.current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes; the context is current.
        unsafe { call!(self.driver, cuMemGetInfo_v2(&mut free, &mut total), "reading the GPU's free memory") }?;
        Ok((free, total))
    }

    /// Copies bytes from GPU memory. Does not wait for kernels that run.
    pub fn copy_to_host(&self, from: u64, out: &mut [u8]) -> Result<(), CudaError> {
        let current = self.current()?;
        self.copier.lock().copy_out(&current, from, out)
    }

    /// Copies bytes to GPU memory. Does not wait for kernels that run.
    pub fn copy_to_device(&self, to: u64, data: &[u8]) -> Result<(), CudaError> {
        let current = self.current()?;
        self.copier.lock().copy_in(&current, to, data)
    }

    /// Sets bytes of GPU memory to one value. Does not wait for kernels that run.
    pub fn fill(&self, to: u64, bytes: usize, value: u8) -> Result<(), CudaError> {
        let current = self.current()?;
        self.copier.lock().fill(&current, to, bytes, value)
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Makes the context current on this thread until the guard goes.
    pub(super) fn current(&self) -> Result<Current, CudaError> {
        Current::push(self.driver, self.raw)
    }

    /// Returns the number of kernels of this process that are sure to run on the GPU at the same time if they fit there, so that they may
    /// wait for each other: one for each hardware queue but that of copies. `CUDA_DEVICE_MAX_CONNECTIONS` sets the number of queues (1 to 32; 8 unless
    /// set) for contexts that are opened after it.
    pub fn kernels_side_by_side(&self) -> usize {
        (self.connections - 1).max(1)
    }

    /// Makes sure that threads have this many bytes of local memory before a kernel that needs them starts. The driver would otherwise
    /// enlarge it at the launch. Either way all running kernels are waited for, and the memory (these bytes for each thread that the GPU
    /// can hold) is the whole context's, also that of others; so nothing is done where it is enough, nor while kernels run.
    pub fn reserve_local_memory(&self, bytes: usize) -> Result<(), CudaError> {
        const LIMIT: c_int = sys::CUlimit_enum::CU_LIMIT_STACK_SIZE as c_int;
        let mut stack = self.stack.lock();
        if stack.is_some_and(|s| bytes <= s.now) {
            return Ok(());
        }
        let _current = self.current()?;
        let mut now = 0;
        // SAFETY: writes one size; the context is current.
        unsafe { call!(self.driver, cuCtxGetLimit(&mut now, LIMIT), "reading the stack size") }?;
        let limit = stack.get_or_insert(StackLimit { found: now, now });
        limit.now = now;
        let runs = self.runs.lock();
        if bytes <= now || runs.active > 0 || !self.is_quiet(&runs) {
            return Ok(());
        }
        // SAFETY: as above; the value is only a size.
        unsafe {
            call!(self.driver, cuCtxSetLimit(LIMIT, bytes), "setting the stack size")?;
            call!(self.driver, cuCtxGetLimit(&mut limit.now, LIMIT), "reading the stack size")?;
        }
        tracing::info!(
            gpu = self.info.ordinal,
            from = now,
            to = limit.now,
            "the stack of the GPU's threads was enlarged"
        );
        Ok(())
    }

    /// Local memory of a thread, once a kernel was launched or a world built.
    pub fn stack_limit(&self) -> Option<StackLimit> {
        *self.stack.lock()
    }

    /// A stream that no launch has.
    pub(super) fn take_lane(&self) -> Result<Lane, CudaError> {
        let current = self.current()?;
        // Held while one is made: see there.
        let mut idle = self.lanes.lock();
        idle.pop().map_or_else(|| Lane::new(self.driver, &current), Ok)
    }

    pub(super) fn give_lane_back(&self, lane: Lane) {
        self.lanes.lock().push(lane);
    }

    /// A kernel is about to start: from here nothing is freed.
    pub(super) fn run_begins(&self) {
        self.runs.lock().active += 1;
    }

    /// A kernel has ended. What waited for the last one is freed.
    pub(super) fn run_ends(&self) {
        let mut runs = self.runs.lock();
        runs.active -= 1;
        self.free_if_idle(runs);
    }

    /// Frees memory as soon as no kernel runs.
    pub(super) fn release(&self, garbage: Garbage) {
        let mut runs = self.runs.lock();
        runs.garbage.push(garbage);
        self.free_if_idle(runs);
    }

    /// Frees what waits for kernels of others to end, if they have by now. Returns true if there was anything.
    pub(super) fn collect(&self) -> bool {
        let runs = self.runs.lock();
        let before = runs.garbage.len();
        self.free_if_idle(runs);
        self.runs.lock().garbage.len() < before
    }

    /// Returns true if nothing runs in the context: no kernel and no copy of this process, whoever started it.
    fn is_quiet(&self, _runs: &MutexGuard<'_, Runs>) -> bool {
        // SAFETY: own event, of this context; returns at once.
        if unsafe { (self.driver.cuCtxRecordEvent)(self.raw, self.all_done) } != code::SUCCESS {
            return false;
        }
        let asked = Instant::now();
        loop {
            // SAFETY: as above.
            match unsafe { (self.driver.cuEventQuery)(self.all_done) } {
                code::NOT_READY if asked.elapsed() < LAST_INSTRUCTIONS => std::hint::spin_loop(),
                answer => return answer == code::SUCCESS,
            }
        }
    }

    /// Frees under the lock, because a kernel that started meanwhile would be waited for; drops the owners of registered
    /// and of mapped memory after it, because they may own memory of this context themselves. While others' kernels run all stays for
    /// the next time: it would wait for them, and everybody for it.
    fn free_if_idle(&self, mut runs: MutexGuard<'_, Runs>) {
        if runs.active > 0 || runs.garbage.is_empty() {
            return;
        }
        let Ok(_current) = self.current() else {
            // The context is lost (the driver takes its memory back by itself), but host memory is still registered.
            std::mem::forget(std::mem::take(&mut runs.garbage));
            return;
        };
        // Mapped memory is given back without waiting for anybody.
        let quiet = runs.garbage.iter().all(|g| !g.waits()) || self.is_quiet(&runs);
        let (garbage, later) = std::mem::take(&mut runs.garbage).into_iter().partition(|g| quiet || !g.waits());
        runs.garbage = later;
        let garbage: Vec<Garbage> = garbage;
        for g in &garbage {
            let what = "giving memory back";
            // SAFETY: each was made by the matching call, its owner is gone, and no kernel runs.
            let freed = unsafe {
                match g {
                    Garbage::Device(p) => call!(self.driver, cuMemFree_v2(*p), what),
                    Garbage::Pinned(p) => call!(self.driver, cuMemFreeHost(*p), what),
                    Garbage::Modules(parts) => {
                        parts.iter().try_for_each(|part| call!(self.driver, cuModuleUnload(*part), what))
                    }
                    Garbage::Physical(handle) => call!(self.driver, cuMemRelease(*handle), what),
                    Garbage::Range { base, bytes, mapped } => mapped
                        .iter()
                        .try_for_each(|m| call!(self.driver, cuMemUnmap(m.at, m.memory.len()), what))
                        .and_then(|()| call!(self.driver, cuMemAddressFree(*base, *bytes), what)),
                    Garbage::Registered { base, .. } => call!(self.driver, cuMemHostUnregister(*base), what),
                }
            };
            if let Err(error) = freed {
                tracing::debug!(memory = ?g, %error, "memory could not be given back");
            }
        }
        drop(runs);
        drop(garbage);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.collect();
        let runs = self.runs.get_mut();
        if runs.active > 0 || !runs.garbage.is_empty() {
            // A kernel would not end, or one of others runs. Every call that frees waits for it, so all is left to the end of the process.
            std::mem::forget(std::mem::take(&mut runs.garbage));
            return;
        }
        if let Ok(current) = Current::push(self.driver, self.raw) {
            if !self.all_done.is_null() {
                // SAFETY: made by `retain`; nobody has it any more.
                unsafe { (self.driver.cuEventDestroy_v2)(self.all_done) };
            }
            for lane in self.lanes.get_mut() {
                lane.destroy(self.driver);
            }
            self.copier.get_mut().close(&current);
        }
        // SAFETY: retained by `open`; whoever made things in it holds the context, so nothing is left.
        let released =
            unsafe { call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.device), "closing the GPU's context") };
        if let Err(error) = released {
            tracing::debug!(%error, "the context did not close well");
        }
    }
}

/// The context is current on this thread while this lives.
#[derive(Debug)]
pub(super) struct Current {
    driver: &'static Driver,
    /// Of this thread only.
    _here: std::marker::PhantomData<*mut ()>,
}

impl Current {
    fn push(driver: &'static Driver, raw: CUcontext) -> Result<Self, CudaError> {
        // SAFETY: the context is retained.
        unsafe { call!(driver, cuCtxPushCurrent_v2(raw), "using the GPU's context") }?;
        Ok(Self { driver, _here: std::marker::PhantomData })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut was: CUcontext = std::ptr::null_mut();
        // SAFETY: pushed on this thread (the guard cannot leave it), and guards end in reverse order.
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

    /// A kernel of somebody else: on a stream that this crate does not know, until a word is 1.
    struct Foreign {
        context: Arc<Context>,
        stream: super::super::driver::CUstream,
        stop: crate::memory::Region,
    }

    impl Foreign {
        fn start(engine: &crate::engine::Engine) -> Self {
            let context = engine.space().gpu_context().unwrap().clone();
            let stop = engine.allocate(crate::memory::Place::Host, 8).unwrap();
            let module = crate::cuda::Module::load(&context, &[UNTIL_TOLD]).unwrap();
            let function = module.function("until_told").unwrap().clone();
            std::mem::forget(module);
            let _current = context.current().unwrap();
            let (mut stream, mut word) = (std::ptr::null_mut(), stop.address());
            let non_blocking = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
            // SAFETY: writes one handle, then launches a kernel of one address, of a word that lives until it has ended.
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

    /// `until_told(uint32_t* word)`: looks at a word until it is not 0.
    const UNTIL_TOLD: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n\
        .visible .entry until_told(.param .u64 word)\n{\n\
        .reg .u64 %rd<2>;\n.reg .u32 %r<2>;\n.reg .pred %p<2>;\n\
        ld.param.u64 %rd1, [word];\n\
        again:\nld.volatile.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra again;\nret;\n}\n";

    /// With the calls that wait this test would never end: nobody tells the kernel to.
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
        // Launches and copies go through beside it.
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
