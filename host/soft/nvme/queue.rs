//! The controller's end of submission and completion queues.

use super::address::{Range, Snapshot};
use super::core::{Core, RingSetup};
use super::fault::QueueFaults;
use super::log::Event;
use super::prp::Hints;
use super::statistics::QueueCounters;
use crate::wire::nvme::{CqEntry, SqEntry};
use std::sync::atomic::{Ordering, fence};

/// A ring in memory that a driver also uses.
#[derive(Debug)]
struct Ring<T> {
    setup: RingSetup,
    base: *mut T,
}

impl<T> Ring<T> {
    fn new(setup: RingSetup, table: &Snapshot) -> Option<Self> {
        let mut ring = Self { setup, base: std::ptr::null_mut() };
        ring.resolve(table).then_some(ring)
    }

    /// Finds the memory again after the address table has changed.
    fn resolve(&mut self, table: &Snapshot) -> bool {
        let bytes = self.setup.entries as usize * size_of::<T>();
        let target = table.resolve(self.setup.address, bytes, &mut Range::none());
        // Host and device agree on the offset within a page, so this fails only for an address that was never a page.
        let target = target.filter(|t| t.host.cast::<T>().is_aligned());
        self.base = target.map_or(std::ptr::null_mut(), |t| t.host.cast());
        target.is_some()
    }
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    ring: Ring<CqEntry>,
    tail: u32,
    phase: bool,
    head: u32,
    /// A doorbell value that was refused and reported already.
    refused: Option<u32>,
    /// Completions that will come later: their places are kept free.
    pub(super) held: u32,
}

impl Cq {
    pub(super) fn new(setup: RingSetup, table: &Snapshot) -> Option<Self> {
        Some(Self { ring: Ring::new(setup, table)?, tail: 0, phase: true, head: 0, refused: None, held: 0 })
    }

    pub(super) fn id(&self) -> u16 {
        self.ring.setup.id
    }

    pub(super) fn resolve(&mut self, table: &Snapshot) -> bool {
        self.ring.resolve(table)
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.ring.setup.entries - from }
    }

    /// Free places after those that are kept; looks at the doorbell only when it must.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32, core: &Core) -> u32 {
        let free = |q: &Self| (q.ring.setup.entries - 1 - q.distance(q.head, q.tail)).saturating_sub(q.held);
        if free(self) < wanted {
            self.look(core);
        }
        free(self)
    }

    fn look(&mut self, core: &Core) {
        let Some(word) = core.doorbells.cq_head(self.id()) else { return };
        let head = word.load(Ordering::Acquire);
        if head == self.head || self.refused == Some(head) {
            return;
        }
        // The head may move up to the tail and no further.
        if head < self.ring.setup.entries && self.distance(self.head, head) <= self.distance(self.head, self.tail) {
            self.head = head;
            self.refused = None;
        } else {
            self.refused = Some(head);
            core.raise(Event::InvalidDoorbellValue);
        }
    }

    /// Stores an entry; the caller has seen [`Cq::room`] for it, or holds a place.
    #[inline]
    pub(super) fn post(&mut self, sqid: u16, sq_head: u16, cid: u16, answer: Answer, wrong_phase: bool) {
        let entry = CqEntry::new(answer.result, sq_head, sqid, cid, self.phase ^ wrong_phase, answer.status);
        // SAFETY: `tail` is below the number of entries, all of which `resolve` found mapped and aligned in the
        // snapshot that this thread has announced.
        unsafe { store_entry(self.ring.base.add(self.tail as usize), entry) };
        self.tail += 1;
        if self.tail == self.ring.setup.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
    }
}

/// What a command ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: crate::wire::nvme::Status,
    pub(super) result: u32,
}

/// Stores an entry so that no reader sees its phase without the rest.
///
/// # Safety
/// `to` must be writable and aligned to 16.
#[inline]
unsafe fn store_entry(to: *mut CqEntry, entry: CqEntry) {
    fence(Ordering::Release);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_store_si128};
        // SAFETY: SSE2 is part of x86-64; `entry` is 16 bytes and the caller promises `to`.
        unsafe { _mm_store_si128(to.cast::<__m128i>(), _mm_loadu_si128((&raw const entry).cast())) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::atomic::AtomicU64;
        let halves: [u64; 2] = bytemuck::cast(entry);
        // SAFETY: the caller promises 16 aligned bytes; the half with the phase is stored last.
        unsafe {
            to.cast::<u64>().write_volatile(halves[0]);
            AtomicU64::from_ptr(to.cast::<u64>().add(1)).store(halves[1], Ordering::Release);
        }
    }
}

/// A submission queue.
pub(super) struct Sq {
    ring: Ring<SqEntry>,
    pub(super) cqid: u16,
    /// Index of the completion queue in its thread's list.
    pub(super) cq: usize,
    head: u32,
    refused: Option<u32>,
    pub(super) hints: Hints,
    pub(super) counters: QueueCounters,
    pub(super) faults: Option<QueueFaults>,
}

impl Sq {
    pub(super) fn new(setup: RingSetup, cqid: u16, faults: Option<QueueFaults>, table: &Snapshot) -> Option<Self> {
        Some(Self {
            ring: Ring::new(setup, table)?,
            cqid,
            cq: 0,
            head: 0,
            refused: None,
            hints: Hints::none(),
            counters: QueueCounters::default(),
            faults,
        })
    }

    pub(super) fn id(&self) -> u16 {
        self.ring.setup.id
    }

    pub(super) fn resolve(&mut self, table: &Snapshot) -> bool {
        self.hints = Hints::none();
        self.ring.resolve(table)
    }

    /// Head as completions report it.
    #[inline]
    pub(super) fn head(&self) -> u16 {
        self.head as u16
    }

    /// Entries that the doorbell says are there.
    #[inline]
    pub(super) fn available(&mut self, core: &Core) -> u32 {
        let Some(word) = core.doorbells.sq_tail(self.id()) else { return 0 };
        let tail = word.load(Ordering::Acquire);
        if tail == self.head {
            return 0;
        }
        self.behind(tail, core)
    }

    #[inline]
    fn behind(&mut self, tail: u32, core: &Core) -> u32 {
        let entries = self.ring.setup.entries;
        if tail >= entries {
            if self.refused != Some(tail) {
                self.refused = Some(tail);
                core.raise(Event::InvalidDoorbellValue);
            }
            return 0;
        }
        self.refused = None;
        let there = if tail >= self.head { tail - self.head } else { tail + entries - self.head };
        match &mut self.faults {
            None => there,
            Some(f) => match f.hears(&core.config.faults, &core.faults, tail) {
                true => there.min(f.allowance()),
                false => 0,
            },
        }
    }

    /// The entry `ahead` places behind the head.
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> SqEntry {
        let at = self.head + ahead;
        let at = if at >= self.ring.setup.entries { at - self.ring.setup.entries } else { at };
        // SAFETY: `at` is below the number of entries, all of which `resolve` found mapped and aligned in the snapshot
        // that this thread has announced. The driver may write it meanwhile, hence volatile.
        unsafe { self.ring.base.add(at as usize).read_volatile() }
    }

    /// Moves the head over one entry.
    #[inline]
    pub(super) fn consume(&mut self) {
        self.head += 1;
        if self.head == self.ring.setup.entries {
            self.head = 0;
        }
    }
}

// SAFETY: the base pointers are only used by the thread that has the queue.
unsafe impl Send for Sq {}
// SAFETY: as above.
unsafe impl Send for Cq {}
