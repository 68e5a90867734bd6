//! Bytes with one owner: a host view, the address that kernels use, and the address that a device on the bus uses.

pub(crate) mod copy;
mod first_fit;
mod iommu;
pub mod mapping;
mod region;
mod space;

use crate::remedy::{Remedies, Remedy, pass_on};
pub use crate::this_host::free_host_memory;
pub(crate) use first_fit::FirstFit;
pub use iommu::{DmaAccess, IommuError, IommuKind, IommuMap};
pub(crate) use region::WeakRegion;
pub use region::{DmaRegion, Region};
pub use space::{Place, Space};

/// Why memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The host has no more.
    #[error("no host memory for {bytes} bytes: {source}")]
    Host {
        /// Bytes asked for.
        bytes: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The GPU driver refused.
    #[error("{what} ({bytes} bytes): {source}")]
    Cuda {
        /// What was asked for.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The driver's answer.
        source: crate::cuda::CudaError,
    },
    /// Only GPU memory has a dma-buf.
    #[error("{bytes} bytes of host memory have no dma-buf: only GPU memory is exported")]
    NoDmaBuf {
        /// Length of the memory.
        bytes: usize,
    },
    /// An access outside the region.
    #[error("bytes {offset}..{} of a region of {len}", offset + bytes)]
    OutOfBounds {
        /// First byte.
        offset: usize,
        /// Number of bytes.
        bytes: usize,
        /// Bytes in the region.
        len: usize,
    },
}

impl Remedies for MemoryError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::Cuda { source, .. } => source.remedies(),
            _ => Vec::new(),
        }
    }
}

/// Why a device got no address for memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmaError {
    /// The memory itself.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The IOMMU.
    #[error(transparent)]
    Iommu(#[from] IommuError),
    /// No way to GPU memory, or not the one that was asked for.
    #[error(transparent)]
    MappingBackends(#[from] mapping::MappingError),
    /// The device cannot reach this memory.
    #[error("{device} cannot address this memory: {reason}")]
    Unreachable {
        /// Which device.
        device: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The device's address space is full.
    #[error(
        "{device}: no room for {bytes} bytes in its address space ({free} free); use fewer queues, a smaller depth or a smaller cache"
    )]
    Exhausted {
        /// Which device.
        device: String,
        /// Bytes asked for.
        bytes: usize,
        /// Bytes free.
        free: usize,
    },
}

pass_on!(DmaError: Memory);
