//! The CUDA driver calls that are used, as `Result`s. The only module that names cudarc.

use std::ptr::NonNull;
use std::sync::Arc;

/// A driver call that failed, or no driver at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// libcuda is not installed.
    #[error("no CUDA driver: libcuda.so.1 not found")]
    NoDriver,
}

/// A GPU's primary context.
#[derive(Debug)]
pub struct Context {}

#[allow(missing_docs)]
impl Context {
    pub fn copy_to_host(&self, _from: u64, _out: &mut [u8]) -> Result<(), CudaError> {
        Err(CudaError::NoDriver)
    }
    pub fn copy_to_device(&self, _to: u64, _data: &[u8]) -> Result<(), CudaError> {
        Err(CudaError::NoDriver)
    }
    pub fn fill(&self, _to: u64, _bytes: usize, _value: u8) -> Result<(), CudaError> {
        Err(CudaError::NoDriver)
    }
}

macro_rules! memory_stub {
    ($name:ident) => {
        #[derive(Debug)]
        #[allow(missing_docs)]
        pub struct $name {}
        #[allow(missing_docs)]
        impl $name {
            pub fn zeroed(_context: &Arc<Context>, _bytes: usize) -> Result<Self, CudaError> {
                Err(CudaError::NoDriver)
            }
            pub fn address(&self) -> u64 {
                0
            }
            pub fn host(&self) -> NonNull<u8> {
                NonNull::dangling()
            }
        }
    };
}
memory_stub!(DeviceMemory);
memory_stub!(PinnedMemory);
memory_stub!(RegisteredMemory);

#[allow(missing_docs)]
impl RegisteredMemory {
    /// # Safety
    /// None yet.
    pub unsafe fn new(_c: &Arc<Context>, _base: NonNull<u8>, _bytes: usize, _io: bool) -> Result<Self, CudaError> {
        Err(CudaError::NoDriver)
    }
}
