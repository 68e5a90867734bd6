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
use crate::this_host::page_bytes;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE: usize = 4096;
const FIRST: usize = 0x800;

/// A page of registers, in memory that a descriptor can be mapped again from.
#[derive(Debug)]
struct Page {
    at: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: plain memory, accessed by atomic and volatile words.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Self {
        let bytes = page_bytes();
        // SAFETY: a name; the descriptor is new.
        let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"registers".as_ptr(), libc::MFD_CLOEXEC)) };
        // SAFETY: an open file.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) }, 0);
        Self { at: mapped(file.as_fd(), bytes), bytes, file }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, with this length.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Maps a file.
fn mapped(file: BorrowedFd<'_>, bytes: usize) -> NonNull<u8> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of an open file.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED).expect("memory")
}

// SAFETY: plain memory, accessed by atomic and volatile words.
unsafe impl Send for Register {}
// SAFETY: atomic and volatile accesses to the words may be made by several threads at the same time.
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
    // Pages live until the device is closed.
    pages: Vec<Page>,
    uncached: VecDeque<Register>,
    blue_flame: VecDeque<Register>,
    shared: Option<Register>,
    /// Registers in order of allocation.
    pub(super) taken: Vec<Register>,
}

impl Pool {
    /// Adds a page. Commands name it by the returned number.
    fn page(&mut self) -> (u32, NonNull<u8>) {
        let page = Page::new();
        let at = page.at;
        self.pages.push(page);
        (0x20 + self.pages.len() as u32, at)
    }

    /// Returns another descriptor of a page.
    fn export(&self, number: u32) -> io::Result<OwnedFd> {
        self.pages[number as usize - 0x21].file.try_clone()
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
pub(super) struct AllocatedRegister {
    pub(super) firmware: Firmware,
    pub(super) kind: UarKind,
    pub(super) name: String,
    pub(super) register: Register,
}

impl Uar for AllocatedRegister {
    fn page(&self) -> u32 {
        self.register.page
    }
    fn register(&self) -> NonNull<u8> {
        self.register.at
    }
    fn base(&self) -> NonNull<u8> {
        self.register.base()
    }
    fn export(&self) -> io::Result<OwnedFd> {
        if !self.firmware.log().capabilities.exports_registers {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        self.firmware.pool().export(self.register.page)
    }
}

impl Drop for AllocatedRegister {
    fn drop(&mut self) {
        self.firmware.log().gone(&self.name);
        self.firmware.pool().give_back(self.kind, self.register.clone());
    }
}

/// A GPU's driver: registered memory cannot be registered again, neither whole nor in part.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    pages: Arc<Mutex<BTreeSet<usize>>>,
    /// True if it maps registers by a dma-buf alone.
    exported_only: bool,
}

impl Driver {
    /// Returns a driver that maps no registers by their address.
    pub fn of_dma_bufs() -> Self {
        Self { exported_only: true, ..Self::default() }
    }
}

/// A second mapping of a page.
struct Exported {
    at: usize,
    bytes: usize,
    _keep: Arc<dyn Any + Send + Sync>,
}

impl Drop for Exported {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_exported`, with this length.
        unsafe { libc::munmap(self.at as *mut libc::c_void, self.bytes) };
    }
}

/// An error of the driver.
fn refused(name: &str, code: i32, text: &str, bytes: usize) -> MemoryError {
    let source = CudaError::Call(Box::new(FailedCall {
        what: "registering device registers as I/O memory",
        call: "cuMemHostRegister_v2",
        name: name.to_owned(),
        code,
        text: text.to_owned(),
        next: String::new(),
    }));
    MemoryError::Cuda { what: "importing registers", bytes, source }
}

struct Mapped {
    driver: Driver,
    page: usize,
    _keep: Arc<dyn Any + Send + Sync>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.driver.pages.lock().remove(&self.page);
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
        assert!(page.is_multiple_of(page_bytes()) && bytes == page_bytes(), "registrations are whole pages");
        if self.exported_only {
            return Err(refused("CUDA_ERROR_NOT_PERMITTED", 800, "operation not permitted", bytes));
        }
        if !self.pages.lock().insert(page) {
            let text = "part or all of the requested memory range is already mapped";
            return Err(refused("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", 712, text, bytes));
        }
        let keep = Arc::new(Mapped { driver: self.clone(), page, _keep: keep });
        // SAFETY: the caller's promise, which `keep` upholds.
        unsafe { Space::cpu().import_host(base, bytes, true, keep) }
    }

    unsafe fn map_exported(
        &self,
        _: NonNull<u8>,
        bytes: usize,
        dma_buf: OwnedFd,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError> {
        let at = mapped(dma_buf.as_fd(), bytes);
        let keep = Arc::new(Exported { at: at.as_ptr() as usize, bytes, _keep: keep });
        // SAFETY: mapped until `keep` is dropped.
        unsafe { Space::cpu().import_host(at, bytes, true, keep) }
    }
}
