//! Writers of doorbells: kernels write a register that is mapped into the GPU, or a CPU thread forwards a mailbox to
//! it.

use super::devx::{Devx, Uar, UarKind};
use crate::memory::{MemoryError, Place, Region, Space, WeakRegion};
use crate::mmio;
use crate::rdma::proxy::{RingUser, Service};
use crate::rdma::{DoorbellChoice, RdmaError, Transport};
use crate::this_host::page_bytes;
use crate::wire::mlx5::doorbell::{RecordMode, uar};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A doorbell register, mapped into the address space of kernels if they write it.
pub(super) struct Doorbell {
    // The mapping is dropped before the register. One page holds several registers.
    mapping: Option<(Region, usize)>,
    uar: Arc<dyn Uar>,
    /// Distance in bytes of the halves of a register that takes whole entries, and whose only user is one queue pair.
    flame: Option<u32>,
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registration_path = if self.mapping.is_some() { "mapped" } else { "host" };
        write!(f, "Doorbell({:p} of page {}, {registration_path})", self.register(), self.page())
    }
}

impl Doorbell {
    /// Returns the number of the register's page, as commands name it.
    pub fn page(&self) -> u32 {
        self.uar.page()
    }

    /// Returns the mapping with the register that a queue pair of this mode has, and the register's offset in it; `None`
    /// if kernels cannot access it.
    pub fn mapped(&self, mode: RecordMode) -> Option<(Region, usize)> {
        let apart = self.register_of(mode).as_ptr() as isize - self.register().as_ptr() as isize;
        self.mapping.as_ref().map(|(r, offset)| (r.clone(), offset.wrapping_add_signed(apart)))
    }

    /// Returns the register's address in this process.
    pub fn register(&self) -> NonNull<u8> {
        self.uar.register()
    }

    /// Returns the address in this process of the register that a queue pair of this mode has. Queue pairs without a
    /// doorbell record have one for each page.
    pub fn register_of(&self, mode: RecordMode) -> NonNull<u8> {
        match mode {
            RecordMode::Valid => self.register(),
            // SAFETY: a page of registers has 4 KiB at least.
            RecordMode::NoneExternal | RecordMode::NoneInternal => unsafe {
                self.uar.base().add(uar::SEND_WITHOUT_RECORD)
            },
        }
    }

    /// Returns the distance in bytes of the halves of a register that takes whole entries; 0 if it takes none.
    pub fn flame(&self) -> u32 {
        self.flame.filter(|_| self.mapping.is_some()).unwrap_or(0)
    }
}

/// Maps registers into the address space of kernels.
pub(super) trait RegisterMapper: Send + Sync + fmt::Debug {
    /// Maps `bytes` bytes of registers from `base`. The range is whole pages, none of which is mapped already: a GPU's
    /// driver maps a page only once (CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712).
    ///
    /// # Safety
    /// The registers must stay mapped in this process while `keep` lives.
    unsafe fn map(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError>;
    /// Maps the same by a dma-buf of the registers, where the GPU's driver cannot map them by their address.
    ///
    /// # Safety
    /// As for [`Self::map`].
    unsafe fn map_exported(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        dma_buf: OwnedFd,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError>;
}

impl RegisterMapper for Space {
    unsafe fn map(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.import_host(base, bytes, true, keep) }
    }

    unsafe fn map_exported(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        dma_buf: OwnedFd,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.import_exported(base, bytes, dma_buf, keep) }
    }
}

/// Keeps a page allocated while it is mapped.
struct Keep(#[expect(dead_code, reason = "held, not used")] Arc<dyn Uar>);

/// The writer of the doorbells: kernels or a CPU thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DoorbellWriter {
    Kernels,
    Cpu {
        /// Reason why kernels cannot; `None` if the CPU thread was requested.
        why: Option<String>,
    },
}

/// Largest number of registers of an adapter. NICs have few, and one 64-bit store can announce work of any queue pair.
const MOST_DOORBELLS: usize = 16;

/// Doorbells of an adapter. The first queue pairs each get their own; later ones share them.
#[derive(Debug)]
pub(super) struct Doorbells {
    mapper: Box<dyn RegisterMapper>,
    /// Distance of the halves of BlueFlame registers, if queue pairs get such registers.
    flame: Option<u32>,
    in_use: Mutex<UarUse>,
}

#[derive(Debug, Default)]
struct UarUse {
    all: Vec<Arc<Doorbell>>,
    /// Number of queue pairs that have one of these doorbells.
    users: usize,
    /// BlueFlame register that was probed, for the first queue pair.
    first_flame: Option<Arc<Doorbell>>,
    /// Number of BlueFlame registers allocated so far.
    flames: usize,
    /// Pages mapped for kernels, by address in this process.
    pages: HashMap<usize, WeakRegion>,
}

impl Doorbells {
    /// Creates the doorbells of an adapter. With `flame`, the first queue pairs each get a BlueFlame register with
    /// halves at that distance.
    pub fn new(mapper: Box<dyn RegisterMapper>, flame: Option<u32>) -> Self {
        Self { mapper, flame, in_use: Mutex::default() }
    }

    fn in_use(&self) -> parking_lot::MutexGuard<'_, UarUse> {
        self.in_use.lock()
    }

    /// Selects the writer of the doorbells before any queue is created. The first queue pair gets the register that was
    /// probed.
    ///
    /// # Errors
    /// [`RdmaError::Unavailable`] if `choice` demands kernels and they cannot access a register.
    pub fn probe(&self, devx: &dyn Devx, choice: DoorbellChoice) -> Result<DoorbellWriter, RdmaError> {
        if choice == DoorbellChoice::Cpu {
            return Ok(DoorbellWriter::Cpu { why: None });
        }
        let mut in_use = self.in_use();
        let probed = match self.flame {
            Some(_) => self.make_of(&mut in_use, devx, true, &[UarKind::BlueFlame]),
            None => self.make(&mut in_use, devx, true),
        };
        match probed {
            Ok(doorbell) => {
                match self.flame {
                    Some(_) => (in_use.first_flame, in_use.flames) = (Some(Arc::new(doorbell)), 1),
                    None => in_use.all.push(Arc::new(doorbell)),
                }
                Ok(DoorbellWriter::Kernels)
            }
            Err(why) if choice == DoorbellChoice::Auto => Ok(DoorbellWriter::Cpu { why: Some(why) }),
            Err(why) => Err(RdmaError::Unavailable {
                transport: Transport::Mlx5,
                reason: format!(
                    "kernels cannot access a doorbell: {why}; set WARPBELL_RDMA_DOORBELL=cpu to write doorbells from a CPU thread"
                ),
            }),
        }
    }

    /// Returns a doorbell for one more queue pair.
    ///
    /// # Errors
    /// [`RdmaError::Unavailable`] if the driver allocates not even one register.
    pub fn take(&self, devx: &dyn Devx, doorbell_writer: &DoorbellWriter) -> Result<Arc<Doorbell>, RdmaError> {
        let mut in_use = self.in_use();
        // Entries of two queue pairs must not mix in one register, so each has a single user. The rest have plain ones.
        if *doorbell_writer == DoorbellWriter::Kernels && self.flame.is_some() {
            if let Some(doorbell) = in_use.first_flame.take() {
                return Ok(doorbell);
            }
            if in_use.flames < MOST_DOORBELLS {
                match self.make_of(&mut in_use, devx, true, &[UarKind::BlueFlame]) {
                    Ok(doorbell) => {
                        in_use.flames += 1;
                        return Ok(Arc::new(doorbell));
                    }
                    Err(reason) => tracing::debug!(reason, "{} BlueFlame registers are all there are", in_use.flames),
                }
            }
        }
        let user = in_use.users;
        if in_use.all.len() <= user && user < MOST_DOORBELLS {
            match self.make(&mut in_use, devx, *doorbell_writer == DoorbellWriter::Kernels) {
                Ok(doorbell) => in_use.all.push(Arc::new(doorbell)),
                Err(reason) if in_use.all.is_empty() => {
                    let reason = format!("no doorbell register: {reason}");
                    return Err(RdmaError::Unavailable { transport: Transport::Mlx5, reason });
                }
                Err(reason) => tracing::debug!(reason, "queue pairs share {} doorbell registers", in_use.all.len()),
            }
        }
        in_use.users += 1;
        Ok(in_use.all[user % in_use.all.len()].clone())
    }

    /// Allocates a dedicated register, or the shared one if the driver has no other. Maps it for kernels if `map`.
    fn make(&self, in_use: &mut UarUse, devx: &dyn Devx, map: bool) -> Result<Doorbell, String> {
        // All users in this process share that register, so only the CPU uses it.
        let kinds: &[UarKind] = match map {
            true => &[UarKind::Uncached, UarKind::BlueFlame],
            false => &[UarKind::Uncached, UarKind::SharedUncached, UarKind::BlueFlame],
        };
        self.make_of(in_use, devx, map, kinds)
    }

    /// Allocates a register of the first kind that is available.
    fn make_of(&self, in_use: &mut UarUse, devx: &dyn Devx, map: bool, kinds: &[UarKind]) -> Result<Doorbell, String> {
        let mut why = Vec::new();
        for &kind in kinds {
            let uar = match devx.alloc_uar(kind) {
                Ok(uar) if !map => return Ok(Doorbell { mapping: None, uar, flame: None }),
                Ok(uar) => uar,
                Err(e) => {
                    why.push(format!("{kind:?} register: {e}"));
                    continue;
                }
            };
            match self.map(in_use, &uar) {
                Ok(mapping) => {
                    let flame = self.flame.filter(|_| kind == UarKind::BlueFlame);
                    return Ok(Doorbell { mapping: Some(mapping), uar, flame });
                }
                Err(e) => why.push(format!("{kind:?} register: {e}")),
            }
        }
        Err(why.join("; "))
    }

    /// Maps the page of a register for kernels. Returns the page and the register's offset in it.
    fn map(&self, in_use: &mut UarUse, uar: &Arc<dyn Uar>) -> Result<(Region, usize), String> {
        let register = uar.register();
        let offset = register.as_ptr() as usize % page_bytes();
        // SAFETY: the register's page begins `offset` bytes before the register.
        let base = unsafe { register.sub(offset) };
        if let Some(page) = in_use.pages.get(&(base.as_ptr() as usize)).and_then(WeakRegion::upgrade) {
            return Ok((page, offset));
        }
        // SAFETY: libmlx5 keeps the page mapped while the allocation lives, and the region keeps the allocation.
        let region = unsafe { self.mapper.map(base, page_bytes(), Arc::new(Keep(uar.clone()))) };
        let region = region.or_else(|refused| {
            let also = |e: &dyn fmt::Display| format!("{refused}; as a dma-buf: {e}");
            let dma_buf = uar.export().map_err(|e| also(&e))?;
            // SAFETY: libmlx5 keeps the page mapped while the allocation lives, and the region keeps the allocation.
            let region = unsafe { self.mapper.map_exported(base, page_bytes(), dma_buf, Arc::new(Keep(uar.clone()))) };
            region.map_err(|e| also(&e))
        })?;
        in_use.pages.insert(base.as_ptr() as usize, region.downgrade());
        Ok((region, offset))
    }
}

/// Forwards a mailbox to a doorbell register.
struct Forwarder {
    mailbox: Region,
    doorbell: Arc<Doorbell>,
    mode: RecordMode,
    last: u64,
}

// SAFETY: a mailbox and a register, both mapped while this lives; one thread at a time accesses them.
unsafe impl Send for Forwarder {}

impl RingUser for Forwarder {
    fn step(&mut self) -> bool {
        let Some(mailbox) = self.mailbox.host() else { return false };
        // SAFETY: an aligned word of the region, which kernels store in one access.
        let now = unsafe { AtomicU64::from_ptr(mailbox.as_ptr().cast()) }.load(Ordering::Acquire);
        if now == self.last {
            return false;
        }
        self.last = now;
        // SAFETY: the register is on a page that `doorbell` keeps mapped.
        unsafe { mmio::store64(self.doorbell.register_of(self.mode).as_ptr().cast(), now) };
        true
    }
}

/// A mailbox that the doorbell thread forwards until the mailbox is dropped.
pub(super) struct Mailbox {
    service: Arc<Service>,
    slot: Arc<Mutex<dyn RingUser>>,
    memory: Region,
}

impl Mailbox {
    /// Creates a mailbox in front of the register of a queue pair of this mode, in memory that kernels of `space` can write.
    ///
    /// # Errors
    /// [`RdmaError::Memory`] if the memory cannot be allocated.
    pub fn new(
        service: &Arc<Service>,
        space: &Space,
        doorbell: &Arc<Doorbell>,
        mode: RecordMode,
    ) -> Result<Self, RdmaError> {
        let memory = space.allocate(Place::Host, size_of::<u64>())?;
        let slot: Arc<Mutex<dyn RingUser>> =
            Arc::new(Mutex::new(Forwarder { mailbox: memory.clone(), doorbell: doorbell.clone(), mode, last: 0 }));
        service.add(slot.clone());
        Ok(Self { service: service.clone(), slot, memory })
    }

    /// Returns the memory that is the mailbox.
    pub fn memory(&self) -> &Region {
        &self.memory
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({:#x})", self.memory.address())
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.service.remove(&self.slot);
        // The thread may be in its last step.
        drop(self.slot.lock());
    }
}
