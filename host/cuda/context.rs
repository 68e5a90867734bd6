//! A GPU's primary context, and what has to wait while kernels run on it.

use super::copy::Copier;
use super::device::{self, DeviceInfo};
use super::driver::{CUcontext, CUdevice, CUdeviceptr, Driver, call};
use super::error::CudaError;
use super::lane::{self, Lane};
use super::virtual_memory::Mapped;
use std::any::Any;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

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
}

// SAFETY: contexts may be made current on any thread (CUDA driver interface, "Context Management"); the rest is locked.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Kernels in flight, and what must not be freed before they have ended: the driver's free functions wait for every kernel of
/// the context, so a kernel that waits for the host would never end.
#[derive(Debug, Default)]
struct Runs {
    active: usize,
    garbage: Vec<Garbage>,
}

/// Memory whose owner is gone.
pub(super) enum Garbage {
    Device(CUdeviceptr),
    Pinned(*mut c_void),
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

impl std::fmt::Debug for Garbage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(p) => write!(f, "Device({p:#x})"),
            Self::Pinned(p) => write!(f, "Pinned({p:p})"),
            Self::Physical(handle) => write!(f, "Physical({handle:#x})"),
            Self::Range { base, bytes, mapped } => write!(f, "Range({base:#x} + {bytes}, {} mapped)", mapped.len()),
            Self::Registered { base, .. } => write!(f, "Registered({base:p})"),
        }
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

impl Context {
    /// The primary context of the GPU with this ordinal.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        static OPEN: OnceLock<Mutex<HashMap<usize, Weak<Context>>>> = OnceLock::new();
        let driver = Driver::get().map_err(|e| match e {
            CudaError::NoDevice { count, .. } => CudaError::NoDevice { ordinal, count },
            other => other,
        })?;
        let mut open = lock(OPEN.get_or_init(Mutex::default));
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
        let (copier, lanes, runs) = (Mutex::new(copier), Mutex::default(), Mutex::default());
        let this = Self { driver, device, raw, info, copier, lanes, connections, runs };
        {
            let (current, mut lanes) = (this.current()?, lock(&this.lanes));
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
        lock(&self.copier).copy_out(&current, from, out)
    }

    /// Copies bytes to GPU memory. Does not wait for kernels that run.
    pub fn copy_to_device(&self, to: u64, data: &[u8]) -> Result<(), CudaError> {
        let current = self.current()?;
        lock(&self.copier).copy_in(&current, to, data)
    }

    /// Sets bytes of GPU memory to one value. Does not wait for kernels that run.
    pub fn fill(&self, to: u64, bytes: usize, value: u8) -> Result<(), CudaError> {
        let current = self.current()?;
        lock(&self.copier).fill(&current, to, bytes, value)
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

    /// A stream that no launch has.
    pub(super) fn take_lane(&self) -> Result<Lane, CudaError> {
        let current = self.current()?;
        // Held while one is made: see there.
        let mut idle = lock(&self.lanes);
        idle.pop().map_or_else(|| Lane::new(self.driver, &current), Ok)
    }

    pub(super) fn give_lane_back(&self, lane: Lane) {
        lock(&self.lanes).push(lane);
    }

    pub(super) fn has_runs(&self) -> bool {
        lock(&self.runs).active > 0
    }

    /// A kernel is about to start: from here nothing is freed.
    pub(super) fn run_begins(&self) {
        lock(&self.runs).active += 1;
    }

    /// A kernel has ended. What waited for the last one is freed.
    pub(super) fn run_ends(&self) {
        let mut runs = lock(&self.runs);
        runs.active -= 1;
        self.free_if_idle(runs);
    }

    /// Frees memory as soon as no kernel runs.
    pub(super) fn release(&self, garbage: Garbage) {
        let mut runs = lock(&self.runs);
        runs.garbage.push(garbage);
        self.free_if_idle(runs);
    }

    /// Frees under the lock, because a kernel that started meanwhile would be waited for; drops the owners of registered
    /// and of mapped memory after it, because they may own memory of this context themselves.
    fn free_if_idle(&self, mut runs: MutexGuard<'_, Runs>) {
        if runs.active > 0 || runs.garbage.is_empty() {
            return;
        }
        let garbage = std::mem::take(&mut runs.garbage);
        let Ok(_current) = self.current() else {
            // The context is lost (the driver takes its memory back by itself), but host memory is still registered.
            std::mem::forget(garbage);
            return;
        };
        for g in &garbage {
            let what = "giving memory back";
            // SAFETY: each was made by the matching call, its owner is gone, and no kernel runs.
            let freed = unsafe {
                match g {
                    Garbage::Device(p) => call!(self.driver, cuMemFree_v2(*p), what),
                    Garbage::Pinned(p) => call!(self.driver, cuMemFreeHost(*p), what),
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
        let runs = self.runs.get_mut().unwrap_or_else(|e| e.into_inner());
        if runs.active > 0 {
            // A kernel would not end. Every call that frees waits for it, so all is left to the end of the process.
            std::mem::forget(std::mem::take(&mut runs.garbage));
            return;
        }
        if let Ok(current) = Current::push(self.driver, self.raw) {
            for lane in self.lanes.get_mut().unwrap_or_else(|e| e.into_inner()) {
                lane.destroy(self.driver);
            }
            self.copier.get_mut().unwrap_or_else(|e| e.into_inner()).close(&current);
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

    /// Makes sure that threads have this many bytes of local memory from the start. The driver would otherwise enlarge it when
    /// a kernel that needs it is launched, and wait for all running kernels to do so.
    pub(super) fn reserve_local_memory(&self, bytes: usize) -> Result<(), CudaError> {
        use cudarc::driver::sys::CUlimit_enum::CU_LIMIT_STACK_SIZE;
        let mut now = 0;
        let limit = CU_LIMIT_STACK_SIZE as c_int;
        // SAFETY: writes one size; a context is current.
        unsafe { call!(self.driver, cuCtxGetLimit(&mut now, limit), "reading the stack size") }?;
        if bytes > now {
            // SAFETY: as above; the value is only a size.
            unsafe { call!(self.driver, cuCtxSetLimit(limit, bytes), "setting the stack size") }?;
        }
        Ok(())
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
}
