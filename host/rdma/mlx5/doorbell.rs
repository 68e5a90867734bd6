//! Who rings: kernels, at a register that is mapped into the GPU, or a CPU thread that forwards a mailbox to it.

use super::devx::{Devx, Uar, UarKind};
use crate::memory::{Place, Region, Space};
use crate::rdma::proxy::{Served, Service};
use crate::rdma::{DoorbellChoice, RdmaError, Transport};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

/// A page of registers, mapped into the address space of kernels.
pub(super) struct DoorbellPage {
    // The mapping goes before the page.
    mapping: Option<(Region, usize)>,
    uar: Arc<dyn Uar>,
}

impl fmt::Debug for DoorbellPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DoorbellPage({}, {})", self.uar.page(), if self.mapping.is_some() { "mapped" } else { "host" })
    }
}

fn page_bytes() -> usize {
    // SAFETY: asks for a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Keeps the page while it is mapped.
struct Keep(#[expect(dead_code, reason = "held, not used")] Arc<dyn Uar>);

impl DoorbellPage {
    /// A page of its own, or the shared one where the driver gives no other; mapped for kernels if `map`.
    ///
    /// # Errors
    /// When the driver gives none, or the GPU does not map it.
    fn new(devx: &dyn Devx, space: &Space, map: bool) -> Result<Self, String> {
        // The shared one can be registered with a GPU once only, so it serves the CPU alone.
        let kinds: &[UarKind] = match map {
            true => &[UarKind::Uncached, UarKind::BlueFlame],
            false => &[UarKind::Uncached, UarKind::SharedUncached, UarKind::BlueFlame],
        };
        let mut why = Vec::new();
        for &kind in kinds {
            match devx.alloc_uar(kind).map_err(|e| format!("{kind:?} page: {e}")) {
                Ok(uar) if !map => return Ok(Self { mapping: None, uar }),
                Ok(uar) => match Self::map(space, &uar) {
                    Ok(mapping) => return Ok(Self { mapping: Some(mapping), uar }),
                    Err(e) => why.push(format!("{kind:?} page: {e}")),
                },
                Err(e) => why.push(e),
            }
        }
        Err(why.join("; "))
    }

    fn map(space: &Space, uar: &Arc<dyn Uar>) -> Result<(Region, usize), String> {
        let register = uar.register();
        let offset = register.as_ptr() as usize % page_bytes();
        // SAFETY: the page that the register is in begins so far before it.
        let base = unsafe { register.sub(offset) };
        // SAFETY: libmlx5 has the page mapped for as long as the allocation lives, which the region keeps.
        let region = unsafe { space.import_host(base, page_bytes(), true, Arc::new(Keep(uar.clone()))) };
        region.map(|r| (r, offset)).map_err(|e| e.to_string())
    }

    /// As commands name it.
    pub fn page(&self) -> u32 {
        self.uar.page()
    }

    /// The register, as kernels see it; `None` if they do not.
    pub fn kernel_address(&self) -> Option<u64> {
        self.mapping.as_ref().map(|(r, offset)| r.address() + *offset as u64)
    }

    /// The register, in this process.
    pub fn register(&self) -> NonNull<u8> {
        self.uar.register()
    }
}

/// Whether kernels ring, and why not if they do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ringer {
    Kernels,
    Cpu {
        /// `None` if it was asked for.
        why: Option<String>,
    },
}

impl Ringer {
    /// Finds out, with a page that is mapped and given back: before any queue is made.
    ///
    /// # Errors
    /// When kernels are to ring, and cannot.
    pub fn probe(devx: &dyn Devx, space: &Space, choice: DoorbellChoice) -> Result<Self, RdmaError> {
        if choice == DoorbellChoice::Cpu {
            return Ok(Self::Cpu { why: None });
        }
        match DoorbellPage::new(devx, space, true) {
            Ok(_) => Ok(Self::Kernels),
            Err(why) if choice == DoorbellChoice::Auto => Ok(Self::Cpu { why: Some(why) }),
            Err(why) => Err(RdmaError::Unavailable {
                transport: Transport::Mlx5,
                reason: format!(
                    "no doorbell that kernels reach: {why}; set WARPBELL_RDMA_DOORBELL=cpu to let a CPU thread ring"
                ),
            }),
        }
    }
}

/// Doorbell pages of an adapter: each queue pair has its own while there are few, later ones share.
#[derive(Debug, Default)]
pub(super) struct Pages {
    all: Mutex<(Vec<Arc<DoorbellPage>>, usize)>,
}

/// Pages that an adapter takes at most: they are few on a NIC, and one 64-bit store serves any number of queue pairs.
const MOST_PAGES: usize = 16;

impl Pages {
    /// A page for one more queue pair.
    ///
    /// # Errors
    /// When the driver gives not even one.
    pub fn take(&self, devx: &dyn Devx, space: &Space, ringer: &Ringer) -> Result<Arc<DoorbellPage>, RdmaError> {
        let mut all = self.all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (pages, next) = &mut *all;
        if pages.len() < MOST_PAGES {
            match DoorbellPage::new(devx, space, *ringer == Ringer::Kernels) {
                Ok(page) => {
                    let page = Arc::new(page);
                    pages.push(page.clone());
                    return Ok(page);
                }
                Err(reason) if pages.is_empty() => {
                    return Err(RdmaError::Unavailable {
                        transport: Transport::Mlx5,
                        reason: format!("no doorbell page: {reason}"),
                    });
                }
                Err(_) => {}
            }
        }
        *next += 1;
        Ok(pages[*next % pages.len()].clone())
    }
}

/// Forwards a mailbox to a register.
struct Forwarder {
    mailbox: Arc<Region>,
    page: Arc<DoorbellPage>,
    last: u64,
}

// SAFETY: a mailbox and a register, both valid while this lives; accessed by one thread at a time.
unsafe impl Send for Forwarder {}

impl Served for Forwarder {
    fn step(&mut self) -> bool {
        let Some(mailbox) = self.mailbox.host() else { return false };
        // SAFETY: a word of the region, aligned; kernels store it whole.
        let now = unsafe { AtomicU64::from_ptr(mailbox.as_ptr().cast()) }.load(Ordering::Acquire);
        if now == self.last {
            return false;
        }
        self.last = now;
        // What kernels wrote before goes before the register.
        fence(Ordering::SeqCst);
        // SAFETY: the register of a page that this holds; one 64-bit store.
        unsafe { self.page.register().as_ptr().cast::<u64>().write_volatile(now) };
        // A write-combining page keeps the store until a fence pushes it out.
        fence(Ordering::SeqCst);
        true
    }
}

/// A mailbox that a thread forwards, until dropped.
pub(super) struct Mailbox {
    service: Arc<Service>,
    slot: Arc<Mutex<dyn Served>>,
    memory: Arc<Region>,
}

impl Mailbox {
    /// A mailbox that kernels of this space reach, in front of a page.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(service: &Arc<Service>, space: &Space, page: &Arc<DoorbellPage>) -> Result<Self, RdmaError> {
        let memory = Arc::new(space.allocate(Place::Host, size_of::<u64>())?);
        let slot: Arc<Mutex<dyn Served>> =
            Arc::new(Mutex::new(Forwarder { mailbox: memory.clone(), page: page.clone(), last: 0 }));
        service.add(slot.clone());
        Ok(Self { service: service.clone(), slot, memory })
    }

    /// As kernels see it.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({:#x})", self.address())
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.service.remove(&self.slot);
        // The thread may be at it for the last time.
        drop(self.slot.lock());
    }
}
