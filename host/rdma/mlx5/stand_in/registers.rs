//! Doorbell registers as rdma-core allocates them, and a GPU driver that maps each page only once.
//!
//! A page of 4 KiB has registers from 0x800 on. Either four are not cached, 0x100 apart. Or two are write-combining,
//! with space for whole entries, 0x200 apart. The pool adds a page when no register of a kind is free. A freed register
//! goes to the end of its list.

use super::super::devx::{Uar, UarKind};
use super::super::doorbell::RegisterMapper;
use super::Firmware;
use crate::cuda::{CudaError, FailedCall};
use crate::memory::{MemoryError, Region, Space};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE: usize = 4096;
const FIRST: usize = 0x800;

/// A page of registers, in ordinary memory.
#[derive(Debug)]
#[repr(align(4096))]
struct Page([u8; PAGE]);

// SAFETY: plain memory, accessed by atomic and volatile words.
unsafe impl Send for Register {}
// SAFETY: as above.
unsafe impl Sync for Register {}

#[derive(Clone, Debug)]
pub(super) struct Register {
    pub(super) page: u32,
    pub(super) at: NonNull<u8>,
}

impl Register {
    /// Returns the address of the register's page.
    pub(super) fn base(&self) -> NonNull<u8> {
        let offset = self.at.as_ptr() as usize % PAGE;
        // SAFETY: the register is `offset` bytes behind the beginning of its page.
        unsafe { self.at.sub(offset) }
    }
}

/// The driver's registers of one device.
#[derive(Debug, Default)]
pub(super) struct Pool {
    // Boxed, since registers are addresses in the pages. Pages live until the device is closed.
    pages: Vec<Box<Page>>,
    uncached: VecDeque<Register>,
    blue_flame: VecDeque<Register>,
    shared: Option<Register>,
    /// Registers in order of allocation.
    pub(super) taken: Vec<Register>,
}

impl Pool {
    /// Adds a page. Commands name it by the returned number.
    fn page(&mut self) -> (u32, NonNull<u8>) {
        self.pages.push(Box::new(Page([0; PAGE])));
        let number = 0x20 + self.pages.len() as u32;
        (number, self.pages.last_mut().map(|p| NonNull::from(&mut p.0).cast()).expect("it was just added"))
    }

    pub(super) fn knows(&self, page: u64) -> bool {
        (0x21..=0x20 + self.pages.len() as u64).contains(&page)
    }

    /// Takes a register. With `alone`, its page has no other.
    pub(super) fn take(&mut self, kind: UarKind, alone: bool) -> Register {
        let register = self.free(kind, alone);
        self.taken.push(register.clone());
        register
    }

    fn free(&mut self, kind: UarKind, alone: bool) -> Register {
        let (count, apart) = if kind == UarKind::BlueFlame { (2, 0x200) } else { (4, 0x100) };
        let count = if alone { 1 } else { count };
        if kind == UarKind::SharedUncached {
            if self.shared.is_none() {
                let (page, base) = self.page();
                // SAFETY: within the page.
                self.shared = Some(Register { page, at: unsafe { base.add(FIRST) } });
            }
            return self.shared.clone().expect("made above");
        }
        let list = |pool: &mut Self| match kind {
            UarKind::BlueFlame => std::mem::take(&mut pool.blue_flame),
            _ => std::mem::take(&mut pool.uncached),
        };
        let mut free = list(self);
        if free.is_empty() {
            let (page, base) = self.page();
            // SAFETY: within the page: four times 0x100, or twice 0x200, from 0x800 on.
            free.extend((0..count).map(|i| Register { page, at: unsafe { base.add(FIRST + i * apart) } }));
        }
        let register = free.pop_front().expect("some were added");
        match kind {
            UarKind::BlueFlame => self.blue_flame = free,
            _ => self.uncached = free,
        }
        register
    }

    fn give_back(&mut self, kind: UarKind, register: Register) {
        match kind {
            UarKind::BlueFlame => self.blue_flame.push_back(register),
            UarKind::Uncached => self.uncached.push_back(register),
            UarKind::SharedUncached => {}
        }
    }
}

/// An allocated register.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) firmware: Firmware,
    pub(super) kind: UarKind,
    pub(super) name: String,
    pub(super) register: Register,
}

impl Uar for Taken {
    fn page(&self) -> u32 {
        self.register.page
    }
    fn register(&self) -> NonNull<u8> {
        self.register.at
    }
    fn base(&self) -> NonNull<u8> {
        self.register.base()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.firmware.log().gone(&self.name);
        self.firmware.pool().give_back(self.kind, self.register.clone());
    }
}

/// A GPU's driver: registered memory cannot be registered again, neither whole nor in part.
#[derive(Clone, Debug, Default)]
pub struct Driver(Arc<Mutex<BTreeSet<usize>>>);

struct Mapped {
    driver: Driver,
    page: usize,
    _keep: Arc<dyn Any + Send + Sync>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.driver.0.lock().remove(&self.page);
    }
}

impl RegisterMapper for Driver {
    unsafe fn map(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError> {
        let page = base.as_ptr() as usize;
        let system = crate::this_host::page_bytes();
        assert!(page.is_multiple_of(system) && bytes == system, "registrations are whole pages");
        if !self.0.lock().insert(page) {
            let source = CudaError::Call(Box::new(FailedCall {
                what: "registering device registers as I/O memory",
                call: "cuMemHostRegister_v2",
                name: "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED".to_owned(),
                code: 712,
                text: "part or all of the requested memory range is already mapped".to_owned(),
                next: String::new(),
            }));
            return Err(MemoryError::Cuda { what: "importing registers", bytes, source });
        }
        let keep = Arc::new(Mapped { driver: self.clone(), page, _keep: keep });
        // SAFETY: the caller's promise, which `keep` upholds.
        unsafe { Space::cpu().import_host(base, bytes, true, keep) }
    }
}
