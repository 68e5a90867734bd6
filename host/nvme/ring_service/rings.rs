//! Submission and completion queues, from the controller's side.

use super::address::{Range, Snapshot};
use super::doorbells::Doorbells;
use crate::wire::nvme::{CqEntry, SqEntry};
use std::sync::atomic::{Ordering, fence};

/// Identifier, device address and size of a queue's ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingSetup {
    pub(crate) id: u16,
    pub(crate) address: u64,
    pub(crate) entries: u32,
}

/// A controller with doorbells, as its queues see it.
pub(crate) trait HasDoorbells {
    fn doorbells(&self) -> &Doorbells;
    /// Reports that a driver wrote an invalid value to a doorbell.
    fn invalid_value(&self);
}

/// A ring in memory that a driver also accesses.
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

    /// Resolves the ring's memory in a new address table. Returns false if it is not mapped.
    fn resolve(&mut self, table: &Snapshot) -> bool {
        let bytes = self.setup.entries as usize * size_of::<T>();
        let target = table.resolve(self.setup.address, bytes, &mut Range::none());
        // Device and host addresses have the same offset in a page, so this fails only for an address that was never
        // page aligned.
        let target = target.filter(|t| t.host.cast::<T>().is_aligned());
        self.base = target.map_or(std::ptr::null_mut(), |t| t.host.cast());
        target.is_some()
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    ring: Ring<CqEntry>,
    tail: u32,
    phase: bool,
    head: u32,
    /// Invalid doorbell value that was reported already.
    refused: Option<u32>,
    /// Number of completions that will be posted later. Their places stay reserved.
    pub(crate) held: u32,
}

impl Cq {
    pub(crate) fn new(setup: RingSetup, table: &Snapshot) -> Option<Self> {
        Some(Self { ring: Ring::new(setup, table)?, tail: 0, phase: true, head: 0, refused: None, held: 0 })
    }

    pub(crate) fn id(&self) -> u16 {
        self.ring.setup.id
    }

    pub(crate) fn resolve(&mut self, table: &Snapshot) -> bool {
        self.ring.resolve(table)
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.ring.setup.entries - from }
    }

    /// Returns the number of free places that are not reserved. Reads the doorbell only if fewer than `wanted` are
    /// known.
    #[inline]
    pub(crate) fn room(&mut self, wanted: u32, controller: &impl HasDoorbells) -> u32 {
        let free = |q: &Self| (q.ring.setup.entries - 1 - q.distance(q.head, q.tail)).saturating_sub(q.held);
        if free(self) < wanted {
            self.read_head(controller);
        }
        free(self)
    }

    fn read_head(&mut self, controller: &impl HasDoorbells) {
        let Some(word) = controller.doorbells().cq_head(self.id()) else { return };
        let head = word.load(Ordering::Acquire);
        if head == self.head || self.refused == Some(head) {
            return;
        }
        // The head may not pass the tail.
        if head < self.ring.setup.entries && self.distance(self.head, head) <= self.distance(self.head, self.tail) {
            self.head = head;
            self.refused = None;
        } else {
            self.refused = Some(head);
            controller.invalid_value();
        }
    }

    /// Stores an entry. The caller has checked [`Cq::room`] or has a reserved place.
    #[inline]
    pub(crate) fn post(&mut self, sqid: u16, sq_head: u16, cid: u16, answer: Answer, wrong_phase: bool) {
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

/// Status and dword 0 of a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: crate::wire::nvme::Status,
    pub(crate) result: u32,
}

/// Stores an entry such that a reader that sees its phase tag also sees the rest.
///
/// # Safety
/// `to` must be writable and aligned to 16.
#[inline]
unsafe fn store_entry(to: *mut CqEntry, entry: CqEntry) {
    fence(Ordering::Release);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_store_si128};
        // SAFETY: SSE2 is part of x86-64; `entry` is 16 bytes and the caller vouches for `to`.
        unsafe { _mm_store_si128(to.cast::<__m128i>(), _mm_loadu_si128((&raw const entry).cast())) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::atomic::AtomicU64;
        let halves: [u64; 2] = bytemuck::cast(entry);
        // SAFETY: the caller vouches for 16 aligned bytes; the half with the phase tag is stored last.
        unsafe {
            to.cast::<u64>().write_volatile(halves[0]);
            AtomicU64::from_ptr(to.cast::<u64>().add(1)).store(halves[1], Ordering::Release);
        }
    }
}

/// A submission queue.
#[derive(Debug)]
pub(crate) struct SubmissionRing {
    ring: Ring<SqEntry>,
    head: u32,
    refused: Option<u32>,
}

impl SubmissionRing {
    pub(crate) fn new(setup: RingSetup, table: &Snapshot) -> Option<Self> {
        Some(Self { ring: Ring::new(setup, table)?, head: 0, refused: None })
    }

    pub(crate) fn id(&self) -> u16 {
        self.ring.setup.id
    }

    pub(crate) fn resolve(&mut self, table: &Snapshot) -> bool {
        self.ring.resolve(table)
    }

    /// Returns the head as completions report it.
    #[inline]
    pub(crate) fn head(&self) -> u16 {
        self.head as u16
    }

    /// Returns the tail behind `there` entries.
    #[inline]
    pub(crate) fn tail(&self, there: u32) -> u32 {
        (self.head + there) % self.ring.setup.entries
    }

    /// Returns the number of entries that the doorbell announces.
    #[inline]
    pub(crate) fn available(&mut self, controller: &impl HasDoorbells) -> u32 {
        let Some(word) = controller.doorbells().sq_tail(self.id()) else { return 0 };
        let tail = word.load(Ordering::Acquire);
        if tail == self.head {
            return 0;
        }
        let entries = self.ring.setup.entries;
        if tail >= entries {
            if self.refused != Some(tail) {
                self.refused = Some(tail);
                controller.invalid_value();
            }
            return 0;
        }
        self.refused = None;
        if tail >= self.head { tail - self.head } else { tail + entries - self.head }
    }

    /// Returns the entry `ahead` places after the head.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> SqEntry {
        let at = self.head + ahead;
        let at = if at >= self.ring.setup.entries { at - self.ring.setup.entries } else { at };
        // SAFETY: `at` is below the number of entries, all of which `resolve` found mapped and aligned in the snapshot
        // that this thread has announced. The read is volatile, because the driver may write the entry meanwhile.
        unsafe { self.ring.base.add(at as usize).read_volatile() }
    }

    /// Advances the head by one entry.
    #[inline]
    pub(crate) fn consume(&mut self) {
        self.head += 1;
        if self.head == self.ring.setup.entries {
            self.head = 0;
        }
    }
}

// SAFETY: only the thread that owns the queue uses the base pointer.
unsafe impl Send for SubmissionRing {}
// SAFETY: only the thread that owns the queue uses the base pointer.
unsafe impl Send for Cq {}
