//! Memory that kernels access: GPU memory, pinned host memory, and registered host memory of another owner.

use super::context::Context;
use super::driver::{CUdeviceptr, call};
use super::error::{CudaError, code, next_step};
use super::garbage::Garbage;
use super::io_memory::IoMemoryFacts;
use cudarc::driver::sys;
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Size of a GPU page in bytes. Other PCIe devices get access to GPU memory in these units.
pub const GPU_PAGE: usize = 64 << 10;

/// GPU memory from `cuMemAlloc`, in whole GPU pages. Other PCIe devices can access such memory, but not memory of a
/// CUDA pool. Whole pages ensure that a device that gets access to this memory gets access to nothing else.
///
/// If it is dropped while kernels run, it is freed after the last of them has ended.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Arc<Context>,
    /// Address that the driver returned, which `cuMemFree` takes. `address` is this, aligned to a GPU page.
    allocation: CUdeviceptr,
    address: CUdeviceptr,
    #[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "for tests and tools"))]
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates and clears `bytes` bytes, rounded up to whole pages of [`GPU_PAGE`] and aligned to one.
    ///
    /// # Errors
    /// - [`CudaError::Call`] if the driver fails to allocate, for instance because GPU memory is exhausted.
    /// - [`CudaError::NoAnswer`] if the memory was not cleared within 60 s.
    pub fn zeroed(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
        let bytes = bytes.max(1).next_multiple_of(GPU_PAGE);
        let this = {
            let _current = context.current()?;
            let exact = Self::allocate(context, bytes, bytes)?;
            if exact.address.is_multiple_of(GPU_PAGE as u64) {
                exact
            } else {
                // The driver packs small allocations more densely than GPU pages.
                drop(exact);
                let mut roomy = Self::allocate(context, bytes + GPU_PAGE, bytes)?;
                roomy.address = roomy.allocation.next_multiple_of(GPU_PAGE as u64);
                roomy
            }
        };
        context.fill(this.address, bytes, 0)?;
        Ok(this)
    }

    fn allocate(context: &Arc<Context>, room: usize, bytes: usize) -> Result<Self, CudaError> {
        let mut address: CUdeviceptr = 0;
        let driver = context.driver();
        // SAFETY: writes one address; the context is current.
        let mut answer = unsafe { (driver.cuMemAlloc_v2)(&mut address, room) };
        if answer == code::OUT_OF_MEMORY && context.collect() {
            // SAFETY: writes one address; the context is current.
            answer = unsafe { (driver.cuMemAlloc_v2)(&mut address, room) };
        }
        if answer == code::OUT_OF_MEMORY {
            let free = context.memory().map_or(0, |(free, _)| free);
            let next = format!("{free} bytes are free; {}", next_step(answer));
            return Err(driver.failed(answer, "cuMemAlloc_v2", "allocating GPU memory", next).into());
        }
        driver.check(answer, "cuMemAlloc_v2", "allocating GPU memory")?;
        Ok(Self { context: context.clone(), allocation: address, address, bytes })
    }

    /// Returns the GPU address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length in bytes, a multiple of [`GPU_PAGE`].
    #[cfg(feature = "internals")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns false: the memory holds at least one page.
    #[cfg(feature = "internals")]
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Context {
    /// Exports GPU memory as a dma-buf. The range must be whole pages of one allocation. The memory stays in place
    /// while the file is open or a device is attached to it.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the GPU does not export dma-bufs, or the range is not whole pages of one allocation.
    pub fn export_dma_buf(&self, address: u64, bytes: usize) -> Result<OwnedFd, CudaError> {
        const WHAT: &str = "exporting GPU memory as dma-buf";
        const CALL: &str = "cuMemGetHandleForAddressRange";
        /// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD (cuda.h).
        const DMA_BUF_FD: c_int = 1;
        let driver = self.driver();
        if !self.info().dma_buf {
            let next = "use the open kernel modules of the driver (nvidia-open)";
            return Err(driver.failed(code::NOT_SUPPORTED, CALL, WHAT, next).into());
        }
        let _current = self.current()?;
        let mut fd: c_int = -1;
        // SAFETY: writes one descriptor; the driver refuses a range that is not part of one allocation.
        let answer = unsafe {
            (driver.cuMemGetHandleForAddressRange)(std::ptr::from_mut(&mut fd).cast(), address, bytes, DMA_BUF_FD, 0)
        };
        driver.check(answer, CALL, WHAT)?;
        if fd < 0 {
            return Err(driver.failed(code::UNKNOWN, CALL, WHAT, "the driver returned no file descriptor").into());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.context.release(Garbage::Device(self.allocation));
    }
}

/// Alignment of pinned memory: a page of the host, and of devices.
const HOST_PAGE: usize = 4096;

/// Pinned host memory, mapped into the GPU.
#[derive(Debug)]
pub struct PinnedMemory {
    context: Arc<Context>,
    /// Address that the driver returned, which `cuMemFreeHost` takes. `host` is this, aligned to a page.
    allocation: NonNull<u8>,
    host: NonNull<u8>,
    address: CUdeviceptr,
}

// SAFETY: addresses and their owner; the driver's memory calls may be made from any thread.
unsafe impl Send for PinnedMemory {}
// SAFETY: nothing is accessed through `&self`, and the driver's memory calls may be made from any thread.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates and clears `bytes` bytes, at least one, aligned to 4096.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver fails to allocate or to map the memory.
    pub fn zeroed(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
        let _current = context.current()?;
        let bytes = bytes.max(1);
        let exact = Self::allocate(context, bytes)?;
        let this = if exact.host.addr().get().is_multiple_of(HOST_PAGE) {
            exact
        } else {
            // The driver packs small allocations more densely than pages.
            drop(exact);
            let mut roomy = Self::allocate(context, bytes + HOST_PAGE)?;
            let head = roomy.allocation.as_ptr().align_offset(HOST_PAGE);
            // SAFETY: the allocation has a page more than `bytes`, and `head` is less than a page.
            roomy.host = unsafe { roomy.allocation.add(head) };
            roomy.address += head as u64;
            roomy
        };
        // SAFETY: `bytes` bytes that were just allocated and that nothing else uses.
        unsafe { std::ptr::write_bytes(this.host.as_ptr(), 0, bytes) };
        Ok(this)
    }

    fn allocate(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
        const WHAT: &str = "allocating pinned host memory";
        let driver = context.driver();
        let mut p: *mut c_void = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: writes one address; the context is current.
        unsafe { call!(driver, cuMemHostAlloc(&mut p, bytes, flags), WHAT) }?;
        let allocation = NonNull::new(p.cast::<u8>()).ok_or_else(|| {
            driver.failed(code::OUT_OF_MEMORY, "cuMemHostAlloc", WHAT, next_step(code::OUT_OF_MEMORY))
        })?;
        let mut this = Self { context: context.clone(), allocation, host: allocation, address: 0 };
        // SAFETY: pinned memory that is mapped into the GPU; writes one address.
        unsafe { call!(driver, cuMemHostGetDevicePointer_v2(&mut this.address, p, 0), WHAT) }?;
        Ok(this)
    }

    /// Returns the GPU address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the host address of the first byte.
    pub fn host(&self) -> NonNull<u8> {
        self.host
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        self.context.release(Garbage::Pinned(self.allocation.as_ptr().cast()));
    }
}

/// Host memory of another owner, mapped into the GPU: ordinary pages, or a device's registers.
pub struct RegisteredMemory {
    context: Arc<Context>,
    base: NonNull<u8>,
    address: CUdeviceptr,
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: addresses and owners; the driver's memory calls may be made from any thread.
unsafe impl Send for RegisteredMemory {}
// SAFETY: nothing is accessed through `&self`, and the driver's memory calls may be made from any thread.
unsafe impl Sync for RegisteredMemory {}

impl RegisteredMemory {
    /// Maps `base..base + bytes` into the GPU. `base` and `bytes` must be multiples of 4096. `keep` owns the memory and
    /// lives until the mapping is gone.
    ///
    /// With `io` the range holds a device's registers, mapped by VFIO or sysfs. The caller must have read one of them
    /// before: the kernel fills in such a mapping on first access, and the driver's look-up of its pages does not.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver refuses the registration. The error names the likely cause and the fix.
    ///
    /// # Safety
    /// The range must stay mapped in this process for as long as `keep` lives.
    pub unsafe fn new(
        context: &Arc<Context>,
        base: NonNull<u8>,
        bytes: usize,
        io: bool,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, CudaError> {
        let what = if io { "registering device registers as I/O memory" } else { "registering host memory" };
        let _current = context.current()?;
        let driver = context.driver();
        let io_flag = if io { sys::CU_MEMHOSTREGISTER_IOMEMORY } else { 0 };
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP | io_flag;
        // SAFETY: the caller promises that the range is mapped and stays mapped.
        let answer = unsafe { (driver.cuMemHostRegister_v2)(base.as_ptr().cast(), bytes, flags) };
        if answer != code::SUCCESS {
            let facts = io.then(|| IoMemoryFacts::of_this_process(context.info().driver_version.as_deref()));
            let next = register_hint(answer, facts.as_ref(), base.as_ptr() as usize, bytes);
            return Err(driver.failed(answer, "cuMemHostRegister_v2", what, next).into());
        }
        let mut this = Self { context: context.clone(), base, address: 0, keep };
        // SAFETY: registered above with DEVICEMAP; writes one address.
        unsafe { call!(driver, cuMemHostGetDevicePointer_v2(&mut this.address, base.as_ptr().cast(), 0), what) }?;
        Ok(this)
    }

    /// Returns the GPU address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }
}

/// Returns the next step after a refused registration. The causes follow the driver's source (open-gpu-kernel-modules,
/// osmemdesc.c and os-mlock.c).
fn register_hint(answer: i32, io: Option<&IoMemoryFacts>, base: usize, bytes: usize) -> String {
    const PAGE: usize = 4096;
    if !base.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
        return format!("{base:#x} + {bytes} bytes are not whole pages of {PAGE} bytes");
    }
    match (io, answer) {
        (Some(facts), _) => facts.advice(answer),
        (None, code::OUT_OF_MEMORY) => "the locked-memory limit may be too low: ulimit -l unlimited".to_owned(),
        (None, _) => next_step(answer).to_owned(),
    }
}

impl std::fmt::Debug for RegisteredMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RegisteredMemory({:p} at {:#x})", self.base, self.address)
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        self.context.release(Garbage::Registered { base: self.base.as_ptr().cast(), _keep: self.keep.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_registers_name_the_driver_option() {
        let facts = IoMemoryFacts::default();
        for answer in [code::NOT_PERMITTED, code::INVALID_VALUE] {
            let hint = register_hint(answer, Some(&facts), 0x1000, 4096);
            assert!(hint.contains("PeerMappingOverride") || hint.contains("follow_pfnmap"), "{hint}");
        }
        assert!(register_hint(code::OUT_OF_MEMORY, None, 0x1000, 4096).contains("ulimit"));
        assert!(register_hint(code::INVALID_VALUE, None, 0x1010, 4096).contains("whole pages"));
    }
}
