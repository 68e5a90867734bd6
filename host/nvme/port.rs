//! The seam between a controller and everything above it: registers by offset, and memory that the controller can address.

use super::PciId;
use crate::memory::{DmaError, DmaRegion, IommuMap, Region, Space};
use crate::pci::Bdf;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Why a register could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The other end of a connection to a device model went away or answered nonsense.
    #[error("{device}: register access at {offset:#x} failed: {reason}")]
    Lost {
        /// Which device.
        device: String,
        /// Register offset.
        offset: u32,
        /// What happened.
        reason: String,
    },
    /// The function cannot be reset through this port, or the reset failed.
    #[error("{device}: no function level reset: {reason}")]
    Reset {
        /// Which device.
        device: String,
        /// Why.
        reason: String,
    },
}

/// What the system has said about a device that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Somebody wants it back (an orderly unplug, or its driver is to be unbound) and waits until it is closed.
    ReleaseRequested,
    /// An uncorrectable error was reported for it (PCIe Advanced Error Reporting); the link may have been reset under the driver.
    BusError,
    /// It has left the bus.
    Gone,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReleaseRequested => "the system wants it back: close it",
            Self::BusError => "the bus reported an uncorrectable error",
            Self::Gone => "it has left the bus",
        })
    }
}

/// A page or more of memory in which a store *is* a doorbell write.
#[derive(Clone, Copy, Debug)]
pub struct DoorbellPages {
    /// Host address of register offset 0x1000.
    pub base: NonNull<u8>,
    /// Bytes from there.
    pub bytes: usize,
    /// Device registers (to be registered with a GPU as I/O memory), or ordinary memory that a software device polls.
    pub io_memory: bool,
}

/// Memory of the device, mapped into this process.
#[derive(Clone, Copy, Debug)]
pub struct BarMapping {
    /// Host address of the first byte of the base address register.
    pub base: NonNull<u8>,
    /// Bytes from there.
    pub bytes: usize,
    /// Memory on the bus (to be registered with a GPU as I/O memory), or ordinary memory of a device made of software.
    pub io_memory: bool,
}

// SAFETY: the window is only an address; whoever stores through it uses volatile or atomic stores.
unsafe impl Send for BarMapping {}
// SAFETY: as above.
unsafe impl Sync for BarMapping {}

// SAFETY: the window is only an address; whoever stores through it uses volatile or atomic stores.
unsafe impl Send for DoorbellPages {}
// SAFETY: as above.
unsafe impl Sync for DoorbellPages {}

/// Reads one word of every page from `base` on: VFIO maps device memory page by page as it is touched, and a GPU driver only
/// takes pages that are there.
///
/// # Safety
/// The range must be mapped, and `base` at the start of a page.
pub(super) unsafe fn touch(base: NonNull<u8>, bytes: usize) {
    const PAGE: usize = 4096;
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: within the caller's range; what is read there is of no interest.
        unsafe { base.add(offset).cast::<u32>().read_volatile() };
    }
}

/// A controller's registers. Implemented by the software controller, by QEMU's model over a socket, and by a mapped BAR.
pub trait Port: Send + Sync + fmt::Debug {
    /// Reads 32 bits.
    fn read32(&self, offset: u32) -> Result<u32, PortError>;
    /// Writes 32 bits.
    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError>;
    /// Reads 64 bits, low half first (NVMe PCIe Transport 1.1, 3.1: 64-bit registers may be accessed as two halves).
    fn read64(&self, offset: u32) -> Result<u64, PortError> {
        Ok(u64::from(self.read32(offset)?) | u64::from(self.read32(offset + 4)?) << 32)
    }
    /// Writes 64 bits, low half first.
    fn write64(&self, offset: u32, value: u64) -> Result<(), PortError> {
        self.write32(offset, value as u32)?;
        self.write32(offset + 4, (value >> 32) as u32)
    }
    /// Where kernels can ring doorbells themselves; `None` means that a host thread must forward them.
    fn doorbells(&self) -> Option<DoorbellPages>;
    /// The device in a few words, as in `soft:mem 256 MiB` or `qtest:edges.img`.
    fn name(&self) -> String;
    /// The kind of device path: `soft`, `qtest`, `vfio`, ...
    fn kind(&self) -> &'static str;
    /// The PCI function behind it, by which controllers that need to be treated otherwise are known; `None` without one.
    fn pci_id(&self) -> Option<PciId> {
        None
    }
    /// The worst that the system has said about the device since it was opened; asked often, it costs little.
    fn notice(&self) -> Option<Notice> {
        None
    }
    /// Resets the whole function (PCIe function level reset, or what the system has instead). Registers are as after power-on:
    /// the controller is disabled and its queues are gone.
    fn reset_function(&self) -> Result<(), PortError> {
        Err(PortError::Reset { device: self.name(), reason: "this kind of device has none".to_owned() })
    }
    /// The device's memory behind base address register `bar`, mapped for as long as the port lives; `None` where it has none or
    /// this process cannot reach it.
    fn memory(&self, _bar: u8) -> Option<BarMapping> {
        None
    }
    /// Returns true if the function signals interrupts by MSI-X. Its registers INTMS and INTMC must not be accessed then
    /// (NVMe Base 2.1, 3.1.4.3 and 3.1.4.4).
    fn uses_msix(&self) -> bool {
        false
    }
    /// The PCI function, if it is one of this machine.
    fn bdf(&self) -> Option<Bdf> {
        None
    }
}

/// How a device gets addresses for memory.
pub trait DmaSpace: Send + Sync + fmt::Debug {
    /// Host memory that kernels of `space` and the device both reach, zeroed, with consecutive device addresses.
    /// `bytes` is rounded up to whole pages.
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError>;
    /// Gives the device access to memory that exists already. Refused where the device cannot reach it.
    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError>;
    /// The IOMMU that translates for the device, if there is one that this process maps through.
    fn iommu(&self) -> Option<Arc<dyn IommuMap>> {
        None
    }
}

/// A controller that nobody drives yet: registers and address space.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Registers.
    pub port: Arc<dyn Port>,
    /// Address space.
    pub dma: Arc<dyn DmaSpace>,
}
