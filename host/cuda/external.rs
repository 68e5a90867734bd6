//! Memory of another driver, mapped into the GPU by its dma-buf.
//!
//! cuda.h says of such imports: on Jetson from Thor on. Other drivers answer CUDA_ERROR_NOT_SUPPORTED.

use super::Context;
use super::driver::{CUdeviceptr, call};
use super::error::CudaError;
use super::garbage::Garbage;
use std::any::Any;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;

/// CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD (cuda.h of CUDA 13).
const DMA_BUF: c_int = 9;

/// CUDA_EXTERNAL_MEMORY_HANDLE_DESC for handles that are file descriptors.
#[repr(C)]
pub(super) struct Import {
    kind: c_int,
    /// A union of 16 bytes that begins with the descriptor.
    fd: c_int,
    _padding: [c_int; 3],
    bytes: u64,
    flags: c_uint,
    _reserved: [c_uint; 16],
}

/// CUDA_EXTERNAL_MEMORY_BUFFER_DESC.
#[repr(C)]
pub(super) struct Part {
    offset: u64,
    bytes: u64,
    flags: c_uint,
    _reserved: [c_uint; 16],
}

/// Memory behind a dma-buf, mapped into the GPU.
#[derive(Debug)]
pub struct ExternalMemory {
    context: Arc<Context>,
    /// Handle of the imported memory, an address of the driver.
    handle: usize,
    address: CUdeviceptr,
    keep: Arc<dyn Any + Send + Sync>,
}

impl ExternalMemory {
    /// Maps the first `bytes` bytes of a dma-buf into the GPU. `keep` owns the memory and lives until the mapping is gone.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver does not import the dma-buf.
    pub fn import(
        context: &Arc<Context>,
        dma_buf: OwnedFd,
        bytes: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, CudaError> {
        let _current = context.current()?;
        let driver = context.driver();
        let mut handle: *mut c_void = null_mut();
        let fd = dma_buf.as_raw_fd();
        let import = Import { kind: DMA_BUF, fd, _padding: [0; 3], bytes: bytes as u64, flags: 0, _reserved: [0; 16] };
        // SAFETY: an open descriptor; the call reads the structure and writes the handle.
        unsafe { call!(driver, cuImportExternalMemory(&mut handle, &import), "importing a dma-buf") }?;
        // The driver owns the descriptor now.
        let _ = dma_buf.into_raw_fd();
        let mut this = Self { context: context.clone(), handle: handle as usize, address: 0, keep };
        let part = Part { offset: 0, bytes: bytes as u64, flags: 0, _reserved: [0; 16] };
        // SAFETY: imported above; the call reads the structure and writes the address.
        unsafe {
            call!(driver, cuExternalMemoryGetMappedBuffer(&mut this.address, handle, &part), "mapping a dma-buf")
        }?;
        Ok(this)
    }

    /// Returns the GPU address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for ExternalMemory {
    fn drop(&mut self) {
        let (handle, at) = (self.handle as *mut c_void, self.address);
        self.context.release(Garbage::External { handle, at, _keep: self.keep.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;
    use std::mem::offset_of;

    #[test]
    fn structures_are_those_of_cuda_h() {
        type Desc = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st;
        assert_eq!((size_of::<Import>(), align_of::<Import>()), (size_of::<Desc>(), align_of::<Desc>()));
        assert_eq!(offset_of!(Import, bytes), offset_of!(Desc, size));
        assert_eq!(offset_of!(Import, flags), offset_of!(Desc, flags));
        assert_eq!(size_of::<Part>(), size_of::<sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC_st>());
    }
}
