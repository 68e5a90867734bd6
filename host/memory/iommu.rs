//! Interface to an IOMMU: maps memory for a device, at device addresses that it allocates.
//!
//! VFIO implements it (type1 and iommufd). The mapping backends for GPU memory are built on it,
//! and tests implement a fake.

use crate::pci::Bdf;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Access of a device to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaAccess {
    /// The device only reads.
    Read,
    /// The device only writes.
    Write,
    /// The device reads and writes.
    ReadWrite,
}

impl DmaAccess {
    /// Returns true if the device may read.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Returns true if the device may write.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Kernel interface that maps memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IommuKind {
    /// A VFIO container with the type1v2 backend (linux/vfio.h).
    Type1,
    /// An I/O address space of iommufd (linux/iommufd.h).
    Iommufd,
}

impl fmt::Display for IommuKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1 => "type1",
            Self::Iommufd => "iommufd",
        })
    }
}

/// Error of mapping memory for a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IommuError {
    /// The kernel refused the request.
    #[error("{device}: {call} of {bytes} bytes at device address {iova:#x}: {source}")]
    Refused {
        /// PCI address of the device.
        device: String,
        /// Name of the request, as in `VFIO_IOMMU_MAP_DMA`.
        call: &'static str,
        /// Device address.
        iova: u64,
        /// Length in bytes.
        bytes: u64,
        /// Error of the system call.
        source: io::Error,
    },
    /// This interface does not support the request.
    #[error("{device}: {what} is not possible through {kind}: {reason}")]
    Unsupported {
        /// PCI address of the device.
        device: String,
        /// Requested operation, as in `mapping a dma-buf`.
        what: &'static str,
        /// Interface that was used.
        kind: IommuKind,
        /// Cause and remedy.
        reason: String,
    },
    /// An address or length is not a whole number of IOMMU pages.
    #[error("{device}: {bytes} bytes at {address:#x} are not whole IOMMU pages of {page} bytes")]
    Unaligned {
        /// PCI address of the device.
        device: String,
        /// Host address, file offset or device address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Size of the IOMMU's smallest page in bytes.
        page: u64,
    },
    /// The pages were not pinned because of RLIMIT_MEMLOCK.
    #[error(
        "{device}: {needed} bytes to pin, {used} pinned already, the limit on locked memory is {allowed} bytes: raise it with `ulimit -l {}` (KiB), `LimitMEMLOCK=infinity` in the systemd unit, or `memlock` in /etc/security/limits.conf",
        needed.saturating_add(*used).div_ceil(1024)
    )]
    MemoryLock {
        /// PCI address of the device.
        device: String,
        /// Bytes that this mapping pins.
        needed: u64,
        /// Bytes that already count against the limit.
        used: u64,
        /// RLIMIT_MEMLOCK in bytes.
        allowed: u64,
    },
    /// No gap in the device's address space is wide enough.
    #[error(
        "{device}: no {bytes} consecutive device addresses left ({free} free); use fewer queues, a smaller depth or a smaller cache"
    )]
    NoAddress {
        /// PCI address of the device.
        device: String,
        /// Requested length in bytes.
        bytes: u64,
        /// Total number of free bytes.
        free: u64,
    },
    /// The container holds the maximum number of mappings.
    #[error(
        "{device}: all {limit} DMA mappings of the container are in use (dma_entry_limit of vfio_iommu_type1); use fewer and larger regions, or raise it in /etc/modprobe.d"
    )]
    NoEntry {
        /// PCI address of the device.
        device: String,
        /// Maximum number of mappings of the container.
        limit: u64,
    },
}

impl IommuError {
    /// Returns the kernel's error number; `None` if the error does not come from a request to the kernel.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// A device's address space behind an IOMMU.
///
/// To map memory, first take addresses with [`allocate_iova`](Self::allocate_iova), then map at them. At the end, unmap
/// and then free the addresses, with the same lengths. All lengths and addresses are multiples of the
/// [page size](Self::page_bytes).
pub trait IommuMap: Send + Sync + fmt::Debug {
    /// Takes `bytes` consecutive device addresses that the IOMMU can translate, aligned to `align` (a power of two).
    ///
    /// # Errors
    /// - [`IommuError::Unaligned`] if `bytes` is 0 or not a multiple of the page size.
    /// - [`IommuError::NoAddress`] if no gap is wide enough.
    /// - [`IommuError::Unsupported`] if the device has no IOMMU.
    fn allocate_iova(&self, bytes: u64, align: u64) -> Result<u64, IommuError>;

    /// Frees device addresses. Nothing may be mapped at them any more.
    fn free_iova(&self, iova: u64, bytes: u64);

    /// Pins host memory, or a CPU mapping of device memory, and maps it at `iova`.
    ///
    /// Only type1 maps device memory, which counts against no limit on locked memory. Kernels before Linux 6.15 map it
    /// page by page: about a second for 32 GB.
    ///
    /// # Errors
    /// - [`IommuError::Unaligned`] if `host`, `iova` or `bytes` is not a multiple of the page size.
    /// - [`IommuError::MemoryLock`] if pinning exceeds RLIMIT_MEMLOCK.
    /// - [`IommuError::NoEntry`] if the container holds the maximum number of mappings (type1 only).
    /// - [`IommuError::Refused`] if the kernel refuses for another reason.
    /// - [`IommuError::Unsupported`] if the device has no IOMMU.
    ///
    /// # Safety
    /// `host..host + bytes` must be mapped into this process, and stay mapped until [`unmap`](Self::unmap). Until then
    /// the device reads and writes it as `access` permits.
    unsafe fn map_host(&self, host: NonNull<u8>, bytes: u64, iova: u64, access: DmaAccess) -> Result<(), IommuError>;

    /// Maps `bytes` bytes of a dma-buf, from `offset` bytes on, at `iova`. The mapping holds a reference to the buffer.
    ///
    /// # Errors
    /// - [`IommuError::Unsupported`] with type1, and with iommufd on kernels before Linux 6.13.
    /// - [`IommuError::Unaligned`] if `offset`, `iova` or `bytes` is not a multiple of the page size.
    /// - [`IommuError::Refused`] if the kernel refuses: iommufd maps dma-bufs from Linux 6.19 on.
    fn map_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
        iova: u64,
        access: DmaAccess,
    ) -> Result<(), IommuError>;

    /// Removes one whole mapping. Later accesses of the device to it are IOMMU faults.
    ///
    /// # Errors
    /// [`IommuError::Refused`] if the kernel refuses, or if another length was mapped there.
    fn unmap(&self, iova: u64, bytes: u64) -> Result<(), IommuError>;

    /// Returns the size of the smallest page that the IOMMU maps, in bytes.
    fn page_bytes(&self) -> u64;

    /// Returns the kernel interface that maps.
    fn kind(&self) -> IommuKind;

    /// Returns the PCI address of the device.
    fn bdf(&self) -> Bdf;

    /// Returns interface and device as text, as in `vfio type1 (group 12) of 0000:65:00.0`.
    fn name(&self) -> String;
}
