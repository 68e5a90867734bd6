//! The controller as a driver accesses it: registers, doorbells, address space.

use super::Handle;
use super::core::{Core, halt};
use super::log::Event;
use super::manager::MPS_MAX;
use crate::memory::{DmaError, DmaRegion, Region, Space};
use crate::nvme::ring_service;
use crate::nvme::{DmaSpace, DoorbellPages, Port, PortError};
use crate::wire::nvme::csts;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Value of every register of a device that has disappeared from the bus.
const ALL_ONES: u32 = u32::MAX;

/// Returns the Controller Capabilities of a configuration.
pub(super) fn capabilities(config: &super::SoftConfig) -> u64 {
    let timeout = config.ready_timeout.as_millis().div_ceil(500).clamp(1, 255) as u64;
    ring_service::capabilities(config.max_queue_entries, timeout, config.doorbell_stride, MPS_MAX)
}

#[derive(Debug)]
pub(super) struct SoftPort(pub(super) Arc<Handle>);

impl SoftPort {
    fn core(&self) -> &Core {
        &self.0.core
    }
}

impl Port for SoftPort {
    fn read32(&self, offset: u32) -> Result<u32, PortError> {
        let core = self.core();
        Ok(if core.halted() & halt::GONE != 0 { ALL_ONES } else { core.shell.registers.read(offset) })
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
        let core = self.core();
        if core.halted() & halt::GONE != 0 {
            return Ok(());
        }
        if !core.shell.write(offset, value) && core.shell.registers.csts.load(Ordering::Relaxed) & csts::RDY != 0 {
            core.raise(Event::InvalidDoorbell);
        }
        Ok(())
    }

    fn doorbells(&self) -> Option<DoorbellPages> {
        self.core().shell.doorbells.window()
    }

    fn name(&self) -> String {
        self.core().shell.name.clone()
    }

    fn kind(&self) -> &'static str {
        "soft"
    }

    fn model(&self) -> Option<&str> {
        self.core().timing.as_ref().map(|timing| timing.model().name.as_str())
    }
}

#[derive(Debug)]
pub(super) struct SoftDma(pub(super) Arc<Handle>);

impl DmaSpace for SoftDma {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        self.0.core.shell.table.allocate(space, bytes)
    }

    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        self.0.core.shell.table.map(region)
    }
}
