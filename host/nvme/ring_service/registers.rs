//! Registers of a controller that threads of this process operate.

use crate::wire::nvme::register;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Registers of a controller (NVMe Base 2.1, 3.1.4).
#[derive(Debug)]
pub(crate) struct Registers {
    pub(crate) cap: u64,
    pub(crate) version: u32,
    pub(crate) cc: AtomicU32,
    pub(crate) csts: AtomicU32,
    interrupt_mask: AtomicU32,
    pub(crate) aqa: AtomicU32,
    pub(crate) asq: AtomicU64,
    pub(crate) acq: AtomicU64,
    /// Values written to CC that the controller has not processed yet. None may be lost.
    cc_writes: Mutex<Vec<u32>>,
}

/// Effect of a register write beyond the register itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// None.
    Stored,
    /// The controller has a write to CC to process.
    Configuration,
    /// The offset is that of a doorbell.
    Doorbell,
}

const CAP_HIGH: u32 = register::CAP + 4;
const ASQ_HIGH: u32 = register::ASQ + 4;
const ACQ_HIGH: u32 = register::ACQ + 4;

fn set_half(register: &AtomicU64, high: bool, value: u32) {
    let merge = |old: u64| match high {
        true => Some(old & 0xffff_ffff | u64::from(value) << 32),
        false => Some(old & !0xffff_ffff | u64::from(value)),
    };
    // The closure always returns a value, so the update always succeeds.
    let _ = register.fetch_update(Ordering::SeqCst, Ordering::SeqCst, merge);
}

impl Registers {
    /// Returns the registers of a disabled controller.
    pub(crate) fn new(cap: u64, version: u32) -> Self {
        Self {
            cap,
            version,
            cc: AtomicU32::new(0),
            csts: AtomicU32::new(0),
            interrupt_mask: AtomicU32::new(0),
            aqa: AtomicU32::new(0),
            asq: AtomicU64::new(0),
            acq: AtomicU64::new(0),
            cc_writes: Mutex::new(Vec::new()),
        }
    }

    /// Reads 32 bits. Reserved registers, absent optional ones, and doorbells read as zero.
    pub(crate) fn read(&self, offset: u32) -> u32 {
        match offset {
            register::CAP => self.cap as u32,
            CAP_HIGH => (self.cap >> 32) as u32,
            register::VS => self.version,
            register::INTMS | register::INTMC => self.interrupt_mask.load(Ordering::SeqCst),
            register::CC => self.cc.load(Ordering::SeqCst),
            register::CSTS => self.csts.load(Ordering::SeqCst),
            register::AQA => self.aqa.load(Ordering::SeqCst),
            register::ASQ => self.asq.load(Ordering::SeqCst) as u32,
            ASQ_HIGH => (self.asq.load(Ordering::SeqCst) >> 32) as u32,
            register::ACQ => self.acq.load(Ordering::SeqCst) as u32,
            ACQ_HIGH => (self.acq.load(Ordering::SeqCst) >> 32) as u32,
            _ => 0,
        }
    }

    /// Writes 32 bits. Writes to read-only, reserved and absent registers have no effect.
    pub(crate) fn write(&self, offset: u32, value: u32) -> Written {
        match offset {
            register::INTMS => {
                self.interrupt_mask.fetch_or(value, Ordering::SeqCst);
            }
            register::INTMC => {
                self.interrupt_mask.fetch_and(!value, Ordering::SeqCst);
            }
            register::CC => {
                let mut writes = self.cc_writes.lock();
                self.cc.store(value, Ordering::SeqCst);
                writes.push(value);
                return Written::Configuration;
            }
            register::AQA => self.aqa.store(value & 0x0fff_0fff, Ordering::SeqCst),
            register::ASQ => set_half(&self.asq, false, value),
            ASQ_HIGH => set_half(&self.asq, true, value),
            register::ACQ => set_half(&self.acq, false, value),
            ACQ_HIGH => set_half(&self.acq, true, value),
            o if o >= register::DOORBELLS => return Written::Doorbell,
            _ => {}
        }
        Written::Stored
    }

    /// Takes the writes to CC that were not processed yet, oldest first.
    pub(crate) fn take_configurations(&self) -> Vec<u32> {
        std::mem::take(&mut *self.cc_writes.lock())
    }
}
