//! The controller memory buffer: memory in the controller for submission queues. The controller then need not fetch
//! commands over the bus (NVMe Base 2.1, 8.2.1).

use super::controller::{Controller, Ready};
use super::port::touch;
use super::{BarMapping, NvmeError, Port, PortError};
use crate::memory::{DmaRegion, FirstFit, IommuMap, Region, Space, WeakRegion};
use crate::wire::nvme::{Cap, register};
use parking_lot::Mutex;
use std::sync::Arc;

/// CMBMSC.CRE: makes the location and size registers readable.
const CRE: u64 = 1;
/// CMBMSC.CMSE: makes the controller decode the buffer's base address.
const CMSE: u64 = 1 << 1;
/// CMBSTS.CBAI: the controller rejects the base address.
const CBAI: u32 = 1;
/// CMBSZ.SQS: the buffer supports submission queues.
const SQS: u32 = 1;
/// Base address of the buffer for a device without an IOMMU. It lies above all host memory, because the controller
/// itself claims accesses to these addresses.
const BASE_WITHOUT_IOMMU: u64 = 1 << 52;
/// Alignment of the base address (CBA is bits 63:12), and of queues in the buffer.
const ALIGN: u64 = 4096;

/// An enabled controller memory buffer.
pub struct MemoryBuffer {
    /// Size in bytes.
    bytes: u64,
    /// Device address of the first byte.
    base: u64,
    /// Offset of the first byte in the mapped BAR.
    offset: u64,
    bar: u8,
    window: BarMapping,
    free: Mutex<FirstFit>,
    /// Regions through which kernels access the buffer, one for each address space: memory can be
    /// registered with a GPU only once.
    views: Mutex<Vec<WeakRegion>>,
    /// Keeps the BAR mapped.
    port: Arc<dyn Port>,
    iommu: Option<Arc<dyn IommuMap>>,
}

impl std::fmt::Debug for MemoryBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryBuffer({} bytes in BAR {} at {:#x}, at {:#x})", self.bytes, self.bar, self.offset, self.base)
    }
}

impl Drop for MemoryBuffer {
    fn drop(&mut self) {
        // Disables the buffer before its device addresses are used for other memory.
        if let Err(error) = write_space_control(self.port.as_ref(), 0) {
            tracing::warn!(%error, "the controller memory buffer stays enabled; its device addresses are not used again");
            return;
        }
        if let Some(iommu) = &self.iommu {
            iommu.free_iova(self.base, self.bytes);
        }
    }
}

/// A part of the buffer that is in use.
struct Part {
    buffer: Arc<MemoryBuffer>,
    start: u64,
    bytes: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.buffer.free.lock().give_back(self.start, self.bytes);
    }
}

/// Location, size and use of the buffer, from CMBLOC and CMBSZ (NVMe Base 2.1, 3.1.4.11 and 3.1.4.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    bar: u8,
    offset: u64,
    bytes: u64,
    submission_queues: bool,
}

impl Place {
    /// Decodes the registers. Returns `None` if the size is zero, or does not fit in 64 bits.
    fn read(location: u32, size: u32) -> Option<Self> {
        /// CMBSZ.SZU: unit 0 is 4 KiB, and each further unit is sixteen times the one before.
        const UNIT_SHIFT: u32 = 12;
        const LARGEST_UNIT: u32 = 6;
        let unit = size >> 8 & 0xf;
        if unit > LARGEST_UNIT {
            return None;
        }
        let scale = 1u64 << (UNIT_SHIFT + 4 * unit);
        let bytes = u64::from(size >> 12).checked_mul(scale)?;
        let offset = u64::from(location >> 12).checked_mul(scale)?;
        let place = Self { bar: (location & 7) as u8, offset, bytes, submission_queues: size & SQS != 0 };
        (bytes > 0 && offset.checked_add(bytes).is_some()).then_some(place)
    }
}

impl MemoryBuffer {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of bytes that no queue uses.
    pub fn free_bytes(&self) -> u64 {
        self.free.lock().free_bytes()
    }

    /// Returns the device address of the first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    fn view(&self, space: &Space) -> Result<Region, crate::memory::MemoryError> {
        let mut views = self.views.lock();
        views.retain(|v| v.upgrade().is_some());
        if let Some(region) = views.iter().filter_map(WeakRegion::upgrade).find(|r| r.space().same(space)) {
            return Ok(region);
        }
        // SAFETY: the buffer lies within the window, as `enable_buffer` has checked.
        let base = unsafe { self.window.base.add(self.offset as usize) };
        let (bytes, io) = (self.bytes as usize, self.window.io_memory);
        if io && space.gpu_context().is_some() {
            // SAFETY: within the window, which is mapped, and the offset is a multiple of the page size.
            unsafe { touch(base, bytes) };
        }
        // SAFETY: the port keeps the window mapped while it lives, and the region holds a share of the port.
        let region = unsafe { space.import_host(base, bytes, io, Arc::new(self.port.clone())) }?;
        views.push(region.downgrade());
        Ok(region)
    }

    /// Allocates `bytes` bytes for queues, accessible to kernels of `space` and to the controller.
    pub(super) fn allocate(
        self: &Arc<Self>,
        device: &str,
        space: &Space,
        bytes: usize,
    ) -> Result<DmaRegion, NvmeError> {
        let wanted = (bytes as u64).next_multiple_of(ALIGN);
        let (start, free) = {
            let mut all = self.free.lock();
            (all.take(wanted, ALIGN), all.free_bytes())
        };
        let start = start.ok_or_else(|| NvmeError::NoMemoryBuffer {
            device: device.to_owned(),
            reason: format!("{bytes} bytes of submission queues do not fit, {free} of its {} bytes are free; use fewer or shallower queues", self.bytes),
        })?;
        let guard = Arc::new(Part { buffer: self.clone(), start, bytes: wanted });
        let region = self.view(space)?;
        Ok(DmaRegion { region, offset: start as usize, bytes, iova: self.base + start, remote: None, guard })
    }
}

/// Writes CMBMSC, high half first: controllers act on the low half, which holds the enable bits.
fn write_space_control(port: &dyn Port, value: u64) -> Result<(), PortError> {
    port.write32(register::CMBMSC + 4, (value >> 32) as u32)?;
    port.write32(register::CMBMSC, value as u32)
}

/// Disables a buffer that a previous driver may have enabled. A controller reset keeps the buffer's device addresses,
/// and memory of this process may use the same addresses.
pub(super) fn forget_buffer(port: &dyn Port, cap: Cap) -> Result<(), PortError> {
    if cap.memory_buffer() { write_space_control(port, 0) } else { Ok(()) }
}

impl Controller<Ready> {
    /// Returns the controller memory buffer. The first call enables it.
    ///
    /// # Errors
    /// - [`NvmeError::NoMemoryBuffer`] if there is none, it does not support submission queues, or
    ///   its BAR cannot be mapped.
    /// - [`NvmeError::Dma`] if the device's address space has no room for it.
    /// - [`NvmeError::Port`] if a register access fails.
    pub fn memory_buffer(&self) -> Result<Arc<MemoryBuffer>, NvmeError> {
        let mut known = self.state.buffer.lock();
        if let Some(buffer) = &*known {
            return Ok(buffer.clone());
        }
        let buffer = Arc::new(self.enable_buffer()?);
        *known = Some(buffer.clone());
        Ok(buffer)
    }

    /// Returns true if the controller reports a memory buffer (CAP.CMBS). Other registers tell more once it is enabled.
    pub fn offers_memory_buffer(&self) -> bool {
        self.core.cap.memory_buffer()
    }

    fn no_buffer(&self, reason: impl Into<String>) -> NvmeError {
        NvmeError::NoMemoryBuffer { device: self.name().to_owned(), reason: reason.into() }
    }

    fn enable_buffer(&self) -> Result<MemoryBuffer, NvmeError> {
        let port = self.port();
        if !self.offers_memory_buffer() {
            return Err(self.no_buffer("it has none (CAP.CMBS is 0); put the queues in host or GPU memory"));
        }
        write_space_control(port.as_ref(), CRE)?;
        let (location, size) = (port.read32(register::CMBLOC)?, port.read32(register::CMBSZ)?);
        let place = Place::read(location, size)
            .ok_or_else(|| self.no_buffer(format!("it has no size (CMBLOC {location:#010x}, CMBSZ {size:#010x})")))?;
        if !place.submission_queues {
            return Err(self.no_buffer(format!("submission queues may not be in it (CMBSZ is {size:#010x})")));
        }
        let window = port.memory(place.bar).ok_or_else(|| {
            self.no_buffer(format!("this process cannot map BAR {}; open the controller through VFIO", place.bar))
        })?;
        let end = place.offset + place.bytes;
        if end > window.bytes as u64 {
            let Place { bar, offset, bytes, .. } = place;
            return Err(self.no_buffer(format!(
                "{bytes} bytes at {offset:#x} do not lie in the {} bytes of BAR {bar}",
                window.bytes
            )));
        }
        let iommu = self.dma().iommu();
        let base = match &iommu {
            Some(i) => {
                i.allocate_iova(place.bytes, ALIGN.max(i.page_bytes())).map_err(crate::memory::DmaError::from)?
            }
            None => BASE_WITHOUT_IOMMU,
        };
        let buffer = MemoryBuffer {
            bytes: place.bytes,
            base,
            offset: place.offset,
            bar: place.bar,
            window,
            free: Mutex::new(FirstFit::new(std::iter::once(0..place.bytes))),
            views: Mutex::default(),
            port: port.clone(),
            iommu,
        };
        self.place_buffer(&buffer)?;
        Ok(buffer)
    }

    /// Sets the base address of the buffer in the controller, and enables it.
    fn place_buffer(&self, buffer: &MemoryBuffer) -> Result<(), NvmeError> {
        write_space_control(self.port().as_ref(), buffer.base | CMSE | CRE)?;
        let status = self.port().read32(register::CMBSTS)?;
        if status & CBAI != 0 {
            return Err(
                self.no_buffer(format!("the controller rejects the base address {:#x} (CMBSTS.CBAI)", buffer.base))
            );
        }
        Ok(())
    }

    /// Restores the base address after a reset, which may have cleared it.
    pub(super) fn restore_buffer(&self) -> Result<(), NvmeError> {
        match &*self.state.buffer.lock() {
            Some(buffer) => self.place_buffer(buffer),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn location_and_size_are_scaled() {
        // QEMU with cmb_size_mb=16: BAR 2, offset 0, 16 units of 1 MiB, all uses.
        let place = Place::read(0x2, 0x0001_021f).unwrap();
        assert_eq!(place, Place { bar: 2, offset: 0, bytes: 16 << 20, submission_queues: true });
        let place = Place::read(3 << 12 | 4, 5 << 12 | 1 << 8).unwrap();
        assert_eq!((place.bar, place.offset, place.bytes), (4, 3 << 16, 5 << 16));
        assert!(!place.submission_queues);
        assert_eq!(Place::read(0, 0), None);
        assert_eq!(Place::read(0, 1 << 12 | 7 << 8), None);
    }

    proptest! {
        #[test]
        fn no_register_contents_panic(location: u32, size: u32) {
            if let Some(p) = Place::read(location, size) {
                prop_assert!(p.bytes > 0 && p.offset.checked_add(p.bytes).is_some());
            }
        }
    }
}
