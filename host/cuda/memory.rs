//! Memory that kernels reach: the GPU's own, pinned host memory, and host memory that somebody else owns.

use super::context::{Context, Garbage};
use super::driver::{CUdeviceptr, call};
use super::error::{CudaError, code, next_step};
use cudarc::driver::sys;
use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// GPU memory. From `cuMemAlloc`, so that devices on the bus can be given its address (memory of a pool cannot).
///
/// Dropped while kernels run, it is freed when the last of them has ended.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Arc<Context>,
    address: CUdeviceptr,
}

impl DeviceMemory {
    /// Allocates and clears `bytes` bytes, at least one.
    pub fn zeroed(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
        let this = {
            let _current = context.current()?;
            let mut address: CUdeviceptr = 0;
            let driver = context.driver();
            // SAFETY: writes one address; the context is current.
            let answer = unsafe { (driver.cuMemAlloc_v2)(&mut address, bytes.max(1)) };
            if answer == code::OUT_OF_MEMORY {
                let free = context.memory().map_or(0, |(free, _)| free);
                let next = format!("{free} bytes are free; {}", next_step(answer));
                return Err(driver.failed(answer, "cuMemAlloc_v2", "allocating GPU memory", next).into());
            }
            driver.check(answer, "cuMemAlloc_v2", "allocating GPU memory")?;
            Self { context: context.clone(), address }
        };
        context.fill(this.address, bytes, 0)?;
        Ok(this)
    }

    /// Address of the first byte, on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.context.release(Garbage::Device(self.address));
    }
}

/// Pinned host memory, mapped into the GPU.
#[derive(Debug)]
pub struct PinnedMemory {
    context: Arc<Context>,
    host: NonNull<u8>,
    address: CUdeviceptr,
}

// SAFETY: addresses and their owner; the driver's memory calls may come from any thread.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; nothing is accessed through `&self`.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates and clears `bytes` bytes, at least one.
    pub fn zeroed(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
        const WHAT: &str = "allocating pinned host memory";
        let _current = context.current()?;
        let (driver, bytes) = (context.driver(), bytes.max(1));
        let mut p: *mut c_void = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: writes one address; the context is current.
        unsafe { call!(driver, cuMemHostAlloc(&mut p, bytes, flags), WHAT) }?;
        let host = NonNull::new(p.cast::<u8>()).ok_or_else(|| {
            driver.failed(code::OUT_OF_MEMORY, "cuMemHostAlloc", WHAT, next_step(code::OUT_OF_MEMORY))
        })?;
        let mut this = Self { context: context.clone(), host, address: 0 };
        // SAFETY: `bytes` bytes that were just allocated and that nobody else knows.
        unsafe { std::ptr::write_bytes(host.as_ptr(), 0, bytes) };
        // SAFETY: pinned memory that is mapped into the GPU; writes one address.
        unsafe { call!(driver, cuMemHostGetDevicePointer_v2(&mut this.address, p, 0), WHAT) }?;
        Ok(this)
    }

    /// Address of the first byte, on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Address of the first byte, on the host.
    pub fn host(&self) -> NonNull<u8> {
        self.host
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        self.context.release(Garbage::Pinned(self.host.as_ptr().cast()));
    }
}

/// Host memory of another owner, mapped into the GPU: ordinary pages, or a device's registers.
pub struct RegisteredMemory {
    context: Arc<Context>,
    base: NonNull<u8>,
    address: CUdeviceptr,
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: addresses and owners; the driver's memory calls may come from any thread.
unsafe impl Send for RegisteredMemory {}
// SAFETY: as above; nothing is accessed through `&self`.
unsafe impl Sync for RegisteredMemory {}

impl RegisteredMemory {
    /// Maps `base..base + bytes` into the GPU. Both must be multiples of the page size. `keep` owns the memory and lives until
    /// the mapping is gone.
    ///
    /// With `io` the range is a device's registers as mapped by VFIO or sysfs. One of them must have been read before: the
    /// mapping is filled in on demand, and the driver's look-up does not do that.
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
        // SAFETY: the caller promises that the range is mapped and stays so.
        let answer = unsafe { (driver.cuMemHostRegister_v2)(base.as_ptr().cast(), bytes, flags) };
        if answer != code::SUCCESS {
            let next = register_hint(answer, io, base.as_ptr() as usize, bytes);
            return Err(driver.failed(answer, "cuMemHostRegister_v2", what, next).into());
        }
        let mut this = Self { context: context.clone(), base, address: 0, keep };
        // SAFETY: registered above with DEVICEMAP; writes one address.
        unsafe { call!(driver, cuMemHostGetDevicePointer_v2(&mut this.address, base.as_ptr().cast(), 0), what) }?;
        Ok(this)
    }

    /// Address of the first byte, on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }
}

/// Why a registration is refused, as the driver's source has it (open-gpu-kernel-modules, osmemdesc.c and os-mlock.c).
fn register_hint(answer: i32, io: bool, base: usize, bytes: usize) -> String {
    const PAGE: usize = 4096;
    if !base.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
        return format!("{base:#x} + {bytes} bytes are not whole pages of {PAGE} bytes");
    }
    match (io, answer) {
        (true, code::NOT_PERMITTED | code::INVALID_VALUE | code::NOT_SUPPORTED) => {
            "run as root, or let the driver do it for users: options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" \
             in /etc/modprobe.d, rebuild the initramfs, reboot; or use the cpu doorbell"
                .to_owned()
        }
        (false, code::OUT_OF_MEMORY) => "the locked-memory limit may be too low: ulimit -l unlimited".to_owned(),
        _ => next_step(answer).to_owned(),
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
        for answer in [code::NOT_PERMITTED, code::INVALID_VALUE, code::NOT_SUPPORTED] {
            let hint = register_hint(answer, true, 0x1000, 4096);
            assert!(hint.contains("PeerMappingOverride") && hint.contains("root"), "{hint}");
        }
        assert!(register_hint(code::OUT_OF_MEMORY, false, 0x1000, 4096).contains("ulimit"));
        assert!(register_hint(code::INVALID_VALUE, false, 0x1010, 4096).contains("whole pages"));
    }
}
