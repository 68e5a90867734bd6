//! Memory with one owner and up to three addresses: for the host, for kernels, and for a PCIe device.

pub(crate) mod copy;
mod failure;
mod first_fit;
mod iommu;
pub mod mapping;
mod region;
mod space;

use crate::remedy::{Remedies, Remedy, pass_on};
internal!(crate::this_host::free_host_memory);
pub(crate) use first_fit::FirstFit;
pub use iommu::IommuError;
internal!(iommu::{DmaAccess, IommuKind, IommuMap});
pub(crate) use region::WeakRegion;
pub use region::{DmaRegion, Region};
internal!(region::RemoteMemory);
pub use space::{Place, Space};

/// Error of allocating or accessing memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The host has no free memory.
    #[error("no host memory for {bytes} bytes: {source}")]
    Host {
        /// Requested length in bytes.
        bytes: usize,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// A call to the GPU driver failed.
    #[error("{what} ({bytes} bytes): {source}")]
    Cuda {
        /// Requested operation or kind of memory.
        what: &'static str,
        /// Requested length in bytes.
        bytes: usize,
        /// Error of the GPU driver.
        source: crate::cuda::CudaError,
    },
    /// Memory of other code is no memory that kernels of the space can use.
    #[error("{bytes} bytes at {pointer:#x} cannot be imported: {reason}")]
    NotImportable {
        /// Address of the first byte.
        pointer: u64,
        /// Length in bytes.
        bytes: usize,
        /// Cause and next step.
        reason: String,
    },
    /// Imported GPU memory is of a kind that third-party devices do not reach. Kernels can use it.
    #[error("devices do not reach {bytes} bytes of imported memory at {pointer:#x}: {cause}")]
    NotReachable {
        /// Address of the first byte.
        pointer: u64,
        /// Length in bytes.
        bytes: usize,
        /// Property of the memory that excludes devices.
        cause: &'static str,
        /// Kind of memory to use instead.
        next: &'static str,
    },
    /// A dma-buf of host memory was requested. Only GPU memory has one.
    #[error("{bytes} bytes of host memory have no dma-buf: only GPU memory is exported")]
    NoDmaBuf {
        /// Length of the memory in bytes.
        bytes: usize,
    },
    /// An access lies outside the region.
    #[error("{bytes} bytes from byte {offset} on do not lie within the region of {len} bytes")]
    OutOfBounds {
        /// Offset of the first byte.
        offset: usize,
        /// Number of bytes.
        bytes: usize,
        /// Length of the region in bytes.
        len: usize,
    },
}

impl Remedies for MemoryError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::Cuda { source, .. } => source.remedies(),
            Self::NotReachable { next, .. } => vec![Remedy::step(*next)],
            _ => Vec::new(),
        }
    }
}

/// Error of making memory accessible to a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmaError {
    /// The memory was not allocated or not accessible.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The IOMMU did not map the memory.
    #[error(transparent)]
    Iommu(#[from] IommuError),
    /// No mapping backend works for GPU memory, or the chosen one does not.
    #[error(transparent)]
    MappingBackends(#[from] mapping::MappingError),
    /// The device cannot access this memory.
    #[error("{device} cannot address this memory: {reason}")]
    Unreachable {
        /// Name of the device.
        device: String,
        /// Cause and remedy.
        reason: String,
    },
    /// The device's address space is full.
    #[error(
        "{device}: no room for {bytes} bytes in its address space ({free} free); use fewer queues, a smaller depth or a smaller cache"
    )]
    Exhausted {
        /// Name of the device.
        device: String,
        /// Requested length in bytes.
        bytes: usize,
        /// Total number of free bytes.
        free: usize,
    },
}

pass_on!(DmaError: Memory);
