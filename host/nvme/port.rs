//! Interface between a controller and the driver: registers by offset, and memory that the controller can address.

use super::{CapsuleQueues, PciId};
use crate::memory::{DmaError, DmaRegion, IommuMap, Region, Space};
use crate::pci::Bdf;
use crate::wire::nvme::Cap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Error of a register access or function reset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The connection to the device failed, or a device model sent an invalid reply.
    #[error("{device}: register access at {offset:#x} failed: {reason}")]
    Lost {
        /// Name of the device.
        device: String,
        /// Register offset.
        offset: u32,
        /// Cause, as text.
        reason: String,
    },
    /// The port does not support a function reset, or the reset failed.
    #[error("{device}: no function level reset: {reason}")]
    Reset {
        /// Name of the device.
        device: String,
        /// Cause, as text.
        reason: String,
    },
}

/// Notice of the system about an open device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The system requests the device back (an orderly unplug, or its driver is to be unbound),
    /// and waits until it is closed.
    ReleaseRequested,
    /// The bus reported an uncorrectable error of the device (PCIe Advanced Error Reporting).
    /// The link may have been reset.
    BusError,
    /// The device has left the bus.
    Gone,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReleaseRequested => "the system requests the device back: close it",
            Self::BusError => "the bus reported an uncorrectable error",
            Self::Gone => "it has left the bus",
        })
    }
}

/// Mapped memory in which a store is a doorbell write, one page or more.
#[derive(Clone, Copy, Debug)]
pub struct DoorbellPages {
    /// Host address of register offset 0x1000.
    pub base: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
    /// True for device registers, which a GPU registers as I/O memory. False for ordinary memory
    /// that a software device polls.
    pub io_memory: bool,
}

/// Memory of the device behind one BAR, mapped into this process.
#[derive(Clone, Copy, Debug)]
pub struct BarMapping {
    /// Host address of the BAR's first byte.
    pub base: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
    /// True for memory on the bus, which a GPU registers as I/O memory. False for ordinary memory of a software device.
    pub io_memory: bool,
}

// SAFETY: the window is only an address; every access through it is volatile or atomic.
unsafe impl Send for BarMapping {}
// SAFETY: volatile and atomic accesses to the window may be made by several threads at the same time.
unsafe impl Sync for BarMapping {}

// SAFETY: the window is only an address; every access through it is volatile or atomic.
unsafe impl Send for DoorbellPages {}
// SAFETY: volatile and atomic accesses to the window may be made by several threads at the same time.
unsafe impl Sync for DoorbellPages {}

/// Reads one word of every page from `base` on. VFIO maps device memory page by page on first access, and a GPU driver
/// accepts only pages that are mapped.
///
/// # Safety
/// The range must be mapped, and `base` must be the start of a page.
pub(super) unsafe fn touch(base: NonNull<u8>, bytes: usize) {
    const PAGE: usize = 4096;
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: within the caller's range; the value is ignored.
        unsafe { base.add(offset).cast::<u32>().read_volatile() };
    }
}

/// A controller's registers. The software controller, QEMU's model over a socket, and a mapped BAR implement it.
pub trait Port: Send + Sync + fmt::Debug {
    /// Reads 32 bits at byte `offset`.
    ///
    /// # Errors
    /// [`PortError::Lost`] if the device or the connection to it fails.
    fn read32(&self, offset: u32) -> Result<u32, PortError>;
    /// Writes 32 bits at byte `offset`.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError>;
    /// Reads 64 bits at byte `offset`, low half first (NVMe PCIe Transport 1.1, 3.1: 64-bit registers may
    /// be accessed as two halves).
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn read64(&self, offset: u32) -> Result<u64, PortError> {
        Ok(u64::from(self.read32(offset)?) | u64::from(self.read32(offset + 4)?) << 32)
    }
    /// Writes 64 bits at byte `offset`, low half first.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn write64(&self, offset: u32, value: u64) -> Result<(), PortError> {
        self.write32(offset, value as u32)?;
        self.write32(offset + 4, (value >> 32) as u32)
    }
    /// Returns memory in which kernels write doorbells themselves. `None` means that a host
    /// thread must forward doorbells.
    fn doorbells(&self) -> Option<DoorbellPages>;
    /// Returns the name of the device, as in `soft:mem 256 MiB` or `qtest:edges.img`.
    fn name(&self) -> String;
    /// Returns the kind of the port: `soft`, `qtest`, `vfio`, ...
    fn kind(&self) -> &'static str;
    /// Returns the name of the model of a drive whose timing the device has; `None` for a device with a time of its own.
    fn model(&self) -> Option<&str> {
        None
    }
    /// Returns the identifiers of the PCI function, which select [`Quirks`](super::Quirks);
    /// `None` without a PCI function.
    fn pci_id(&self) -> Option<PciId> {
        None
    }
    /// Returns the most severe notice since the device was opened. Cheap enough to be called often.
    fn notice(&self) -> Option<Notice> {
        None
    }
    /// Resets the whole function (PCIe function level reset, or the system's substitute). Registers are then as after
    /// power-on: the controller is disabled and its queues are gone.
    ///
    /// # Errors
    /// [`PortError::Reset`] if this kind of device has no function reset, or the reset failed.
    fn reset_function(&self) -> Result<(), PortError> {
        Err(PortError::Reset { device: self.name(), reason: "this kind of device has none".to_owned() })
    }
    /// Returns the device's memory behind BAR number `bar`, mapped for as long as the port lives. Returns `None` if the
    /// device has no such memory, or this process cannot map it.
    fn memory(&self, _bar: u8) -> Option<BarMapping> {
        None
    }
    /// Returns true if the function signals interrupts by MSI-X. Its registers INTMS and INTMC must not be accessed then
    /// (NVMe Base 2.1, 3.1.4.3 and 3.1.4.4).
    fn uses_msix(&self) -> bool {
        false
    }
    /// Returns the capabilities register of a remote controller, as the controller itself has it. The register of this
    /// port holds for queues in this machine's memory. `None` for other controllers.
    fn remote_capabilities(&self) -> Option<Cap> {
        None
    }
    /// Returns the queues of a remote controller that kernels drive without host threads; `None` for other controllers.
    fn capsules(&self) -> Option<&dyn CapsuleQueues> {
        None
    }
    /// Returns the address of the PCI function, if it is one of this machine.
    fn bdf(&self) -> Option<Bdf> {
        None
    }
}

/// A device's address space: gives the device access to memory.
pub trait DmaSpace: Send + Sync + fmt::Debug {
    /// Allocates zeroed host memory that kernels of `space` and the device can access, with consecutive device
    /// addresses. `bytes` is rounded up to whole pages.
    ///
    /// # Errors
    /// - [`DmaError::Memory`] if there is no memory, or the GPU driver fails to register it.
    /// - [`DmaError::Iommu`] or [`DmaError::Exhausted`] if it cannot be mapped for the device.
    /// - [`DmaError::Unreachable`] if the device has no IOMMU, and no memory that it can address is available.
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError>;
    /// Gives the device access to existing memory.
    ///
    /// # Errors
    /// - [`DmaError::Unreachable`] if the device cannot address this memory.
    /// - [`DmaError::Iommu`] if the IOMMU does not map it.
    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError>;
    /// Returns the device's IOMMU, if there is one and this process maps memory through it.
    fn iommu(&self) -> Option<Arc<dyn IommuMap>> {
        None
    }
}

/// A controller without a driver: registers and address space.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Registers of the controller.
    pub port: Arc<dyn Port>,
    /// Address space of the controller.
    pub dma: Arc<dyn DmaSpace>,
}
