//! Doorbells in memory, which drivers and kernels write with plain stores.

use super::memory::MemoryStore;
use crate::nvme::DoorbellPages;
use crate::wire::nvme::register;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Doorbell memory: one 32-bit word for each tail and head, `4 << stride` bytes apart.
#[derive(Debug)]
pub(crate) struct Doorbells {
    memory: MemoryStore,
    stride: u8,
}

impl Doorbells {
    /// Allocates the doorbells of the admin queue and of `queue_pairs` I/O queue pairs.
    pub(crate) fn new(queue_pairs: u16, stride: u8) -> io::Result<Self> {
        Ok(Self { memory: MemoryStore::new(Self::bytes(queue_pairs, stride))?, stride })
    }

    /// Returns the length of the doorbells in bytes.
    pub(crate) fn bytes(queue_pairs: u16, stride: u8) -> u64 {
        ((u64::from(queue_pairs) + 1) * 2 * (4 << stride)).next_multiple_of(4096)
    }

    /// Sets the doorbells of a queue to 0, their value when the queue is created.
    pub(crate) fn clear(&self, queue: u16) {
        for word in [self.sq_tail(queue), self.cq_head(queue)].into_iter().flatten() {
            word.store(0, Ordering::SeqCst);
        }
    }

    pub(crate) fn window(&self) -> Option<DoorbellPages> {
        let base = NonNull::new(self.memory.base())?;
        Some(DoorbellPages { base, bytes: self.memory.bytes(), io_memory: false })
    }

    /// Returns the word at a register offset, or `None` if the offset is outside the doorbells or between two of them.
    pub(crate) fn word(&self, offset: u32) -> Option<&AtomicU32> {
        let at = offset.checked_sub(register::DOORBELLS)? as usize;
        if !at.is_multiple_of(4 << self.stride) {
            return None;
        }
        let p = self.memory.at(at as u64, 4)?;
        // SAFETY: inside the mapping, aligned to 4, and only accessed as an atomic.
        Some(unsafe { AtomicU32::from_ptr(p.cast()) })
    }

    /// Returns the queue and direction (`true`: completion head) of a register offset.
    pub(crate) fn which(&self, offset: u32) -> Option<(u16, bool)> {
        let index = offset.checked_sub(register::DOORBELLS)? >> (2 + self.stride);
        Some((u16::try_from(index / 2).ok()?, index % 2 == 1))
    }

    pub(crate) fn sq_tail(&self, queue: u16) -> Option<&AtomicU32> {
        self.word(register::sq_tail(queue, self.stride))
    }

    pub(crate) fn cq_head(&self, queue: u16) -> Option<&AtomicU32> {
        self.word(register::cq_head(queue, self.stride))
    }
}

/// Set of the queues that exist. Used to detect writes to doorbells of other queues.
#[derive(Debug)]
pub(crate) struct QueueBits([Box<[AtomicU64]>; 2]);

impl QueueBits {
    /// Creates an empty set of queues 0 to `pairs`. The admin queue is always in it.
    pub(crate) fn new(pairs: u16) -> Self {
        let cleared = || (0..=pairs / 64).map(|_| AtomicU64::new(0)).collect();
        Self([cleared(), cleared()])
    }

    /// Returns true if a submission queue, or a completion queue, exists.
    pub(crate) fn contains(&self, queue: u16, completion: bool) -> bool {
        let words = &self.0[usize::from(completion)];
        queue == 0
            || words.get(usize::from(queue / 64)).is_some_and(|w| w.load(Ordering::Relaxed) >> (queue % 64) & 1 != 0)
    }

    /// Empties the set. Returns the queues that were in it, some of them twice.
    pub(super) fn take(&self) -> impl Iterator<Item = u16> {
        let words = self.0.iter().flat_map(|words| words.iter().enumerate());
        words.flat_map(|(at, word)| {
            let bits = word.swap(0, Ordering::Relaxed);
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| (at * 64 + bit) as u16)
        })
    }

    /// Adds or removes a queue.
    pub(crate) fn set(&self, queue: u16, completion: bool, exists: bool) {
        if let Some(w) = self.0[usize::from(completion)].get(usize::from(queue / 64)) {
            match exists {
                true => w.fetch_or(1 << (queue % 64), Ordering::Relaxed),
                false => w.fetch_and(!(1 << (queue % 64)), Ordering::Relaxed),
            };
        }
    }
}
