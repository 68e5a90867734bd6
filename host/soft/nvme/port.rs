//! The controller as a driver accesses it: registers, doorbells, address space.

use super::Handle;
use super::core::{Core, halt};
use super::log::Event;
use super::manager::MPS_MAX;
use crate::memory::{DmaError, DmaRegion, Region, Space};
use crate::nvme::ring_service::Written;
use crate::nvme::{DmaSpace, DoorbellPages, Port, PortError};
use crate::wire::nvme::csts;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Value of every register of a device that has disappeared from the bus.
const ALL_ONES: u32 = u32::MAX;

/// Returns the Controller Capabilities of a configuration (NVMe Base 2.1, 3.1.4.1).
pub(super) fn capabilities(config: &super::SoftConfig) -> u64 {
    const CONTIGUOUS_QUEUES: u64 = 1 << 16;
    const NVM_COMMAND_SET: u64 = 1 << 37;
    let timeout = config.ready_timeout.as_millis().div_ceil(500).clamp(1, 255) as u64;
    u64::from(config.max_queue_entries - 1)
        | CONTIGUOUS_QUEUES
        | timeout << 24
        | u64::from(config.doorbell_stride) << 32
        | NVM_COMMAND_SET
        | u64::from(MPS_MAX) << 52
}

#[derive(Debug)]
pub(super) struct SoftPort(pub(super) Arc<Handle>);

impl SoftPort {
    fn core(&self) -> &Core {
        &self.0.core
    }

    fn doorbell(&self, offset: u32, value: u32) {
        let core = self.core();
        let target = core.doorbells.word(offset).zip(core.doorbells.which(offset));
        let Some((word, (queue, _))) = target.filter(|(_, (q, c))| core.existing.contains(*q, *c)) else {
            if core.registers.csts.load(Ordering::Relaxed) & csts::RDY != 0 {
                core.raise(Event::InvalidDoorbell);
            }
            return;
        };
        word.store(value, Ordering::Release);
        match queue {
            0 => core.wake_manager(),
            q => core.thread_of(q).wake(),
        }
    }
}

impl Port for SoftPort {
    fn read32(&self, offset: u32) -> Result<u32, PortError> {
        let core = self.core();
        Ok(if core.halted() & halt::GONE != 0 { ALL_ONES } else { core.registers.read(offset) })
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
        let core = self.core();
        if core.halted() & halt::GONE != 0 {
            return Ok(());
        }
        match core.registers.write(offset, value) {
            Written::Configuration => core.wake_manager(),
            Written::Doorbell => self.doorbell(offset, value),
            Written::Stored => {}
        }
        Ok(())
    }

    fn doorbells(&self) -> Option<DoorbellPages> {
        self.core().doorbells.window()
    }

    fn name(&self) -> String {
        self.core().name.clone()
    }

    fn kind(&self) -> &'static str {
        "soft"
    }
}

#[derive(Debug)]
pub(super) struct SoftDma(pub(super) Arc<Handle>);

impl DmaSpace for SoftDma {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        self.0.core.table.allocate(space, bytes)
    }

    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        self.0.core.table.map(region)
    }
}
