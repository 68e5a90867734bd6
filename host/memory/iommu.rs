//! The seam to an IOMMU: who maps memory for a device, and at which device addresses.
//!
//! VFIO implements it (type1 and iommufd); the ways to map GPU memory are built on it, and tests put a fake behind it.

use crate::pci::Bdf;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// What a device may do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaAccess {
    /// The device only reads.
    Read,
    /// The device only writes.
    Write,
    /// Both.
    ReadWrite,
}

impl DmaAccess {
    /// Whether the device may read.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether the device may write.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Which kernel interface maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IommuKind {
    /// A VFIO container with the type1v2 back end (linux/vfio.h).
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

/// Why memory was not mapped for a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IommuError {
    /// The kernel refused.
    #[error("{device}: {call} of {bytes} bytes at device address {iova:#x}: {source}")]
    Refused {
        /// Which device.
        device: String,
        /// The request in the kernel's words, as in `VFIO_IOMMU_MAP_DMA`.
        call: &'static str,
        /// Device address.
        iova: u64,
        /// Length in bytes.
        bytes: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// This interface cannot do it at all.
    #[error("{device}: {what} is not possible through {kind}: {reason}")]
    Unsupported {
        /// Which device.
        device: String,
        /// What was asked for, as in `mapping a dma-buf`.
        what: &'static str,
        /// The interface.
        kind: IommuKind,
        /// Why, and what to do.
        reason: String,
    },
    /// Addresses or lengths that are not whole pages of the IOMMU.
    #[error("{device}: {bytes} bytes at {address:#x} are not whole IOMMU pages of {page} bytes")]
    Unaligned {
        /// Which device.
        device: String,
        /// Host address, file offset or device address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Bytes of the smallest page.
        page: u64,
    },
    /// RLIMIT_MEMLOCK did not let the pages be pinned.
    #[error(
        "{device}: {needed} bytes to pin, {used} pinned already, the limit on locked memory is {allowed} bytes: raise it with `ulimit -l {}` (KiB), `LimitMEMLOCK=infinity` in the systemd unit, or `memlock` in /etc/security/limits.conf",
        needed.saturating_add(*used).div_ceil(1024)
    )]
    MemoryLock {
        /// Which device.
        device: String,
        /// Bytes that this mapping pins.
        needed: u64,
        /// Bytes that count against the limit already.
        used: u64,
        /// RLIMIT_MEMLOCK.
        allowed: u64,
    },
    /// No gap in the device's address space is wide enough.
    #[error(
        "{device}: no {bytes} consecutive device addresses left ({free} free); use fewer queues, a smaller depth or a smaller cache"
    )]
    NoAddress {
        /// Which device.
        device: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes free in all.
        free: u64,
    },
    /// The container holds as many mappings as it may.
    #[error(
        "{device}: all {limit} DMA mappings of the container are in use (dma_entry_limit of vfio_iommu_type1); use fewer and larger regions, or raise it in /etc/modprobe.d"
    )]
    NoEntry {
        /// Which device.
        device: String,
        /// Mappings that the container may hold.
        limit: u64,
    },
}

impl IommuError {
    /// The kernel's error number, where the kernel was asked.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// A device's address space behind an IOMMU.
///
/// Whoever maps first takes addresses with [`allocate_iova`](Self::allocate_iova), maps there, and at the end unmaps and gives
/// the addresses back, in this order and with the same lengths. All lengths and addresses are whole [pages](Self::page_bytes).
pub trait IommuMap: Send + Sync + fmt::Debug {
    /// Takes `bytes` consecutive device addresses that the IOMMU can translate, aligned to `align` (a power of two).
    fn allocate_iova(&self, bytes: u64, align: u64) -> Result<u64, IommuError>;

    /// Gives addresses back that nothing is mapped at any more.
    fn free_iova(&self, iova: u64, bytes: u64);

    /// Pins host memory, or a CPU mapping of device memory, and maps it at `iova`.
    ///
    /// Only type1 maps device memory, which counts against no limit on locked memory. Kernels before Linux 6.15 enter it page by
    /// page: about a second for 32 GB.
    ///
    /// # Safety
    /// `host..host + bytes` must be mapped into this process, and stay so until [`unmap`](Self::unmap): the device reads and
    /// writes it meanwhile as `access` says.
    unsafe fn map_host(&self, host: NonNull<u8>, bytes: u64, iova: u64, access: DmaAccess) -> Result<(), IommuError>;

    /// Maps `bytes` bytes of a dma-buf from `offset` at `iova`. The mapping holds a reference to the buffer.
    fn map_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
        iova: u64,
        access: DmaAccess,
    ) -> Result<(), IommuError>;

    /// Ends one whole mapping. The device's later accesses there are faults of the IOMMU.
    fn unmap(&self, iova: u64, bytes: u64) -> Result<(), IommuError>;

    /// Bytes of the smallest page that it maps.
    fn page_bytes(&self) -> u64;

    /// Which interface it is.
    fn kind(&self) -> IommuKind;

    /// The device.
    fn bdf(&self) -> Bdf;

    /// Interface and device in a few words, as in `vfio type1 (group 12) of 0000:65:00.0`.
    fn name(&self) -> String;
}
