//! The controller as a driver accesses it: registers, doorbells, address space.

use super::Handle;
use super::core::{Core, halt};
use super::identify::VERSION;
use super::log::Event;
use super::manager::MPS_MAX;
use crate::memory::{DmaError, DmaRegion, Region, Space};
use crate::nvme::{DmaSpace, DoorbellPages, Port, PortError};
use crate::wire::nvme::{csts, register};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
        let Some((word, (queue, _))) = target.filter(|(_, (q, c))| core.exists(*q, *c)) else {
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

fn set_half(register: &AtomicU64, high: bool, value: u32) {
    let merge = |old: u64| match high {
        true => Some(old & 0xffff_ffff | u64::from(value) << 32),
        false => Some(old & !0xffff_ffff | u64::from(value)),
    };
    // The closure always returns a value, so the update always succeeds.
    let _ = register.fetch_update(Ordering::SeqCst, Ordering::SeqCst, merge);
}

impl Port for SoftPort {
    fn read32(&self, offset: u32) -> Result<u32, PortError> {
        const ASQ_HIGH: u32 = register::ASQ + 4;
        const ACQ_HIGH: u32 = register::ACQ + 4;
        const CAP_HIGH: u32 = register::CAP + 4;
        let core = self.core();
        if core.halted() & halt::GONE != 0 {
            return Ok(ALL_ONES);
        }
        let r = &core.registers;
        Ok(match offset {
            register::CAP => r.cap as u32,
            CAP_HIGH => (r.cap >> 32) as u32,
            register::VS => VERSION,
            register::INTMS | register::INTMC => r.interrupt_mask.load(Ordering::SeqCst),
            register::CC => r.cc.load(Ordering::SeqCst),
            register::CSTS => r.csts.load(Ordering::SeqCst),
            register::AQA => r.aqa.load(Ordering::SeqCst),
            register::ASQ => r.asq.load(Ordering::SeqCst) as u32,
            ASQ_HIGH => (r.asq.load(Ordering::SeqCst) >> 32) as u32,
            register::ACQ => r.acq.load(Ordering::SeqCst) as u32,
            ACQ_HIGH => (r.acq.load(Ordering::SeqCst) >> 32) as u32,
            // Reserved registers, absent optional ones, and doorbells read as zero.
            _ => 0,
        })
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
        const ASQ_HIGH: u32 = register::ASQ + 4;
        const ACQ_HIGH: u32 = register::ACQ + 4;
        let core = self.core();
        if core.halted() & halt::GONE != 0 {
            return Ok(());
        }
        let r = &core.registers;
        match offset {
            register::INTMS => {
                r.interrupt_mask.fetch_or(value, Ordering::SeqCst);
            }
            register::INTMC => {
                r.interrupt_mask.fetch_and(!value, Ordering::SeqCst);
            }
            register::CC => {
                let mut writes = r.cc_writes.lock();
                r.cc.store(value, Ordering::SeqCst);
                writes.push(value);
                drop(writes);
                core.wake_manager();
            }
            register::AQA => r.aqa.store(value & 0x0fff_0fff, Ordering::SeqCst),
            register::ASQ => set_half(&r.asq, false, value),
            ASQ_HIGH => set_half(&r.asq, true, value),
            register::ACQ => set_half(&r.acq, false, value),
            ACQ_HIGH => set_half(&r.acq, true, value),
            o if o >= register::DOORBELLS => self.doorbell(o, value),
            // Writes to read-only, reserved and absent registers have no effect.
            _ => {}
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
