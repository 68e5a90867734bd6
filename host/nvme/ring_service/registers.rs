//! Registers of a controller that threads of this process operate.

use super::rings::RingSetup;
use crate::wire::nvme::register;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Registers of a controller (NVMe Base 2.1, 3.1.4).
#[derive(Debug)]
pub(crate) struct Registers {
    cap: u64,
    version: u32,
    cc: AtomicU32,
    pub(crate) csts: AtomicU32,
    interrupt_mask: AtomicU32,
    aqa: AtomicU32,
    asq: AtomicU64,
    acq: AtomicU64,
    /// Values written to CC that the controller has not processed yet. None may be lost.
    cc_writes: Mutex<Vec<u32>>,
}

/// Effect of a register write beyond the register itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// None.
    Stored,
    /// The controller has a write to CC to process.
    Configuration,
    /// The offset is that of a doorbell.
    Doorbell,
}

/// Position of CAP.MPSMAX.
const MPS_MAX_SHIFT: u32 = 52;

/// Returns the Controller Capabilities (NVMe Base 2.1, 3.1.4.1) of a controller with contiguous queues of at most `entries`
/// entries and the NVM command set, which gets ready in `timeout` units of 500 ms. Its doorbells are `4 << stride` bytes
/// apart, and its largest pages have `4096 << mps_max` bytes.
pub(crate) fn capabilities(entries: u32, timeout: u64, stride: u8, mps_max: u32) -> u64 {
    const CONTIGUOUS_QUEUES: u64 = 1 << 16;
    const NVM_COMMAND_SET: u64 = 1 << 37;
    u64::from(entries - 1)
        | CONTIGUOUS_QUEUES
        | timeout << 24
        | u64::from(stride) << 32
        | NVM_COMMAND_SET
        | u64::from(mps_max) << MPS_MAX_SHIFT
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
    pub(super) fn write(&self, offset: u32, value: u32) -> Written {
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

    /// Returns the largest value of CC.MPS (CAP.MPSMAX).
    pub(super) fn mps_max(&self) -> u32 {
        (self.cap >> MPS_MAX_SHIFT & 0xf) as u32
    }

    /// Returns the submission and the completion ring of the admin queue.
    pub(super) fn admin_rings(&self) -> (RingSetup, RingSetup) {
        let aqa = self.aqa.load(Ordering::SeqCst);
        let ring = |address: &AtomicU64, size: u32| RingSetup {
            id: 0,
            address: address.load(Ordering::SeqCst),
            entries: (size & 0xfff) + 1,
        };
        (ring(&self.asq, aqa), ring(&self.acq, aqa >> 16))
    }

    /// Clears bits of CSTS, and sets others.
    pub(crate) fn change_status(&self, set: u32, clear: u32) {
        let change = |old: u32| Some(old & !clear | set);
        // The closure always returns a value, so the update always succeeds.
        let _ = self.csts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    }

    /// Takes the writes to CC that were not processed yet, oldest first.
    pub(super) fn take_configurations(&self) -> Vec<u32> {
        std::mem::take(&mut *self.cc_writes.lock())
    }
}
