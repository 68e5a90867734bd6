//! The registers of a controller behind VFIO.

use super::bar::Bar;
use super::device::VfioDevice;
use super::error::VfioError;
use super::uapi::vfio::VFIO_PCI_BAR0_REGION_INDEX;
use crate::mmio;
use crate::nvme::{BarMapping, DoorbellPages, Notice, PciId, Port, PortError};
use crate::pci::Bdf;
use crate::wire::nvme::register;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Value that a read returns after the device has left the bus.
const ALL_ONES: u32 = u32::MAX;

/// BAR 0 of a device. It is unmapped before the device is closed.
#[derive(Debug)]
pub(super) struct VfioPort {
    bar: Bar,
    /// Other BARs that hold memory of the device, mapped on first use.
    others: Mutex<BTreeMap<u8, Bar>>,
    device: Arc<VfioDevice>,
    name: String,
}

impl VfioPort {
    pub(super) fn new(device: Arc<VfioDevice>) -> Result<Self, VfioError> {
        let bar = Bar::map(&device, VFIO_PCI_BAR0_REGION_INDEX)?;
        let least = u64::from(register::DOORBELLS) + 8;
        if bar.bytes() < least {
            let reason = format!("it has {} bytes, too few for the doorbells at 0x1000", bar.bytes());
            return Err(VfioError::Registers { device: device.bdf().to_string(), reason });
        }
        let name = format!("nvme:{}", device.bdf());
        Ok(Self { bar, others: Mutex::default(), device, name })
    }

    fn lost(&self, offset: u32, e: &io::Error) -> PortError {
        PortError::Lost { device: self.name.clone(), offset, reason: e.to_string() }
    }

    /// Returns true if the value may come from a device that has left. Some platforms return zeros instead of ones
    /// for it. The registers that are checked for zero are not zero on a present device, or so rarely that a
    /// second check costs nothing.
    fn is_suspicious(offset: u32, value: u64) -> bool {
        let zero = value == 0 && matches!(offset, register::CAP | register::VS | register::CSTS);
        zero || value == u64::MAX || value == u64::from(ALL_ONES)
    }
}

impl Port for VfioPort {
    fn read32(&self, offset: u32) -> Result<u32, PortError> {
        let value = self.bar.read32(&self.device, offset).map_err(|e| self.lost(offset, &e))?;
        if Self::is_suspicious(offset, value.into()) && self.device.is_gone() {
            return Ok(ALL_ONES);
        }
        Ok(value)
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
        // Data that the write announces to the device must be in memory first.
        mmio::flush();
        self.bar.write32(&self.device, offset, value).map_err(|e| self.lost(offset, &e))
    }

    fn read64(&self, offset: u32) -> Result<u64, PortError> {
        let value = self.bar.read64(&self.device, offset).map_err(|e| self.lost(offset, &e))?;
        if Self::is_suspicious(offset, value) && self.device.is_gone() {
            return Ok(u64::MAX);
        }
        Ok(value)
    }

    fn write64(&self, offset: u32, value: u64) -> Result<(), PortError> {
        mmio::flush();
        self.bar.write64(&self.device, offset, value).map_err(|e| self.lost(offset, &e))
    }

    fn doorbells(&self) -> Option<DoorbellPages> {
        let (base, bytes) = self.bar.window(register::DOORBELLS.into())?;
        Some(DoorbellPages { base, bytes, io_memory: true })
    }

    fn memory(&self, bar: u8) -> Option<BarMapping> {
        const BARS: u8 = 6;
        let window = |bar: &Bar| {
            let (base, bytes) = bar.window(0)?;
            Some(BarMapping { base, bytes, io_memory: true })
        };
        if bar == 0 {
            return window(&self.bar);
        }
        let mut others = self.others.lock();
        if bar < BARS && !others.contains_key(&bar) {
            match Bar::map(&self.device, VFIO_PCI_BAR0_REGION_INDEX + u32::from(bar)) {
                Ok(mapped) => _ = others.insert(bar, mapped),
                Err(error) => tracing::debug!(device = self.name, bar, %error, "its memory is not mapped"),
            }
        }
        others.get(&bar).and_then(window)
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn kind(&self) -> &'static str {
        "vfio"
    }

    fn notice(&self) -> Option<Notice> {
        self.device.notice()
    }

    fn reset_function(&self) -> Result<(), PortError> {
        let refused = |e: VfioError| PortError::Reset { device: self.name.clone(), reason: e.to_string() };
        self.device.reset().map_err(refused)
    }

    fn pci_id(&self) -> Option<PciId> {
        self.device.id().ok()
    }

    fn uses_msix(&self) -> bool {
        self.device.uses_msix()
    }

    fn bdf(&self) -> Option<Bdf> {
        Some(self.device.bdf())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_suspicious_only_where_there_are_none() {
        assert!(VfioPort::is_suspicious(register::VS, 0) && VfioPort::is_suspicious(register::CSTS, 0));
        assert!(!VfioPort::is_suspicious(register::CC, 0) && !VfioPort::is_suspicious(register::CSTS, 1));
        assert!(VfioPort::is_suspicious(register::CC, u64::from(u32::MAX)));
        assert!(VfioPort::is_suspicious(register::CAP, u64::MAX));
    }
}
