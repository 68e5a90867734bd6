//! Entries of a send queue that the host writes, and their completions. Who rings the doorbell is the owner's business.

use super::{PostError, QueueAddress, QueuePair, QueueRings, RdmaError};
use crate::memory::Region;
use crate::wire::mlx5::cqe::{Completion, Cqe};
use crate::wire::mlx5::send_ring::wire_index;
use crate::wire::mlx5::{BLOCK_BYTES, CQE_BYTES, CompletionRing, Flags, MAX_24, Opcode, Operation, SendRing, Wqe};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Memory of a queue pair that the adapter accesses concurrently. All accesses are atomic words.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedMemory(pub(super) NonNull<u8>);

// SAFETY: an address; all access is by atomic words, and the owner of the address keeps the memory.
unsafe impl Send for SharedMemory {}
// SAFETY: all access is by atomic words, which threads may make at the same time.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub(super) fn word32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: callers stay within the region, whose base is aligned to a block, at multiples of four. A queue pair keeps
        // its memory while it lives, and the send queue owns the queue pair. Only atomic accesses and the adapter touch
        // the word.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().add(offset).cast()) }
    }

    pub(super) fn word64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: callers stay within the region, whose base is aligned to a block, at multiples of eight. A queue pair
        // keeps its memory while it lives, and the send queue owns the queue pair. Only atomic accesses and the adapter
        // touch the word.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().add(offset).cast()) }
    }
}

/// An entry that is posted and not known to be complete.
#[derive(Clone, Copy, Debug)]
struct Posted {
    first: u64,
    blocks: u64,
    operation: Opcode,
}

/// Entries of one queue pair in memory that the host reaches. One thread at a time drives them. Positions have 64 bits, count blocks of the
/// send ring and never wrap.
#[derive(Debug)]
pub(super) struct SendEntries {
    queue: Box<dyn QueuePair>,
    number: u32,
    ring: SendRing,
    cq: CompletionRing,
    collapsed: bool,
    blocks: SharedMemory,
    completions: SharedMemory,
    /// Next free block, blocks known to be complete, completions consumed.
    posted: u64,
    completed: u64,
    consumed: u64,
    in_flight: VecDeque<Posted>,
    failed: Option<PostError>,
}

impl SendEntries {
    /// Takes over a queue pair, to which nothing has been posted since its creation or reset.
    ///
    /// # Errors
    /// * [`PostError::OutOfReach`] if its rings are the GPU's.
    /// * [`PostError::Ring`] if the size of its rings is not supported.
    pub(super) fn new(queue: Box<dyn QueuePair>) -> Result<Self, PostError> {
        let (memory, number): (&QueueRings, u32) = (queue.memory(), queue.number());
        let plan = memory.plan();
        let no_ring = || PostError::Ring { number, blocks: memory.blocks() };
        let ring = SendRing::new(plan.log_blocks).ok_or_else(no_ring)?;
        let cq = CompletionRing::new(if plan.collapsed { 0 } else { plan.log_blocks }).ok_or_else(no_ring)?;
        let collapsed = plan.collapsed;
        let (blocks, completions) = (shared(number, memory.ring())?, shared(number, memory.completions())?);
        Ok(Self {
            queue,
            number,
            ring,
            cq,
            collapsed,
            blocks,
            completions,
            posted: 0,
            completed: 0,
            consumed: 0,
            in_flight: VecDeque::new(),
            failed: None,
        })
    }

    /// Returns the queue pair.
    pub(super) fn queue(&self) -> &dyn QueuePair {
        self.queue.as_ref()
    }

    /// Returns the number of free blocks, which limits the next entry.
    pub(super) fn room(&self) -> u64 {
        self.ring.blocks() - (self.posted - self.completed)
    }

    /// Returns the position behind the last entry.
    pub(super) fn posted(&self) -> u64 {
        self.posted
    }

    /// Returns the position up to which everything is known to be complete.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the number of completions taken.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns the completion ring.
    pub(super) fn completion_ring(&self) -> CompletionRing {
        self.cq
    }

    /// Returns the last word of completion entry `index`, whose last byte says whether the entry is written.
    pub(super) fn last_word(&self, index: u64) -> &AtomicU32 {
        self.completions.word32(self.cq.offset(index) + CQE_BYTES - size_of::<u32>())
    }

    /// Connects the queue pair.
    ///
    /// # Errors
    /// Those of [`QueuePair::connect`].
    pub(super) fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        self.queue.connect(peer)
    }

    /// Resets the queue pair, and forgets its entries.
    ///
    /// # Errors
    /// Those of [`QueuePair::reset`].
    pub(super) fn reset(&mut self) -> Result<(), RdmaError> {
        self.queue.reset()?;
        (self.posted, self.completed, self.consumed, self.failed) = (0, 0, 0, None);
        self.in_flight.clear();
        Ok(())
    }

    /// Returns the error of an earlier failure.
    fn sound(&self) -> Result<(), PostError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Writes an entry and returns the position behind it. Nothing announces it.
    ///
    /// # Errors
    /// Those of [`PostRequests::post`](super::PostRequests::post).
    pub(super) fn post(&mut self, operation: Operation<'_>, signalled: bool) -> Result<u64, PostError> {
        self.sound()?;
        let number = self.number;
        let flags = if signalled { Flags::SIGNALLED } else { Flags::UNSIGNALLED };
        let opcode = operation.opcode();
        let wqe = Wqe { index: wire_index(self.posted), qpn: number, flags, target: None, operation };
        let bytes = wqe.to_bytes().map_err(|source| PostError::Entry { number, source })?;
        let wanted = (bytes.len() / BLOCK_BYTES) as u64;
        if wanted > self.room() {
            let in_flight = self.posted - self.completed;
            return Err(PostError::Full { number, wanted, in_flight, blocks: self.ring.blocks() });
        }
        for (i, block) in (self.posted..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let at = self.ring.offset(i);
            for (w, word) in block.chunks_exact(size_of::<u64>()).enumerate() {
                let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
                self.blocks.word64(at + w * size_of::<u64>()).store(word, Ordering::Relaxed);
            }
        }
        self.in_flight.push_back(Posted { first: self.posted, blocks: wanted, operation: opcode });
        self.posted += wanted;
        Ok(self.posted)
    }

    /// Takes new completions. Returns the position up to which everything is complete.
    ///
    /// # Errors
    /// Those of [`PostRequests::poll`](super::PostRequests::poll).
    pub(super) fn poll(&mut self) -> Result<u64, PostError> {
        self.sound()?;
        let result = if self.collapsed { self.poll_collapsed() } else { self.poll_ring() };
        if let Err(e) = result {
            self.failed = Some(e.clone());
            return Err(e);
        }
        Ok(self.completed)
    }

    /// Reads the completion entry at `offset`. Returns `None` unless its last byte satisfies `is_new`.
    fn entry(&self, offset: usize, is_new: impl Fn(u8) -> bool) -> Option<Cqe> {
        read_entry(self.completions, offset, is_new)
    }

    fn poll_ring(&mut self) -> Result<(), PostError> {
        while let Some(cqe) =
            self.entry(self.cq.offset(self.consumed), |op_own| self.cq.is_written(self.consumed, op_own))
        {
            let completion = self.parse(&cqe)?;
            self.complete(&completion, true)?;
            self.consumed += 1;
        }
        Ok(())
    }

    fn poll_collapsed(&mut self) -> Result<(), PostError> {
        const INVALID: u8 = crate::wire::mlx5::CqeOpcode::Invalid as u8;
        // The adapter overwrites the entry: both reads must return the same completion.
        let Some(cqe) = self.entry(0, |op_own| op_own >> 4 != INVALID) else { return Ok(()) };
        let again = self.entry(0, |_| true);
        if again != Some(cqe) {
            return Ok(());
        }
        let completion = self.parse(&cqe)?;
        self.complete(&completion, false)
    }

    fn parse(&self, cqe: &Cqe) -> Result<Completion, PostError> {
        cqe.completion().map_err(|source| PostError::Completion { number: self.number, index: self.consumed, source })
    }

    /// Completes all entries before the one that the completion names, and completes or fails that one. In a collapsed
    /// queue the completion may have been seen already.
    fn complete(&mut self, completion: &Completion, must_be_new: bool) -> Result<(), PostError> {
        let (number, counter) = (self.number, completion.wqe_counter);
        let at = self.in_flight.iter().position(|p| wire_index(p.first) == counter);
        let (true, Some(at)) = (completion.qpn == number & MAX_24, at) else {
            let unknown = PostError::Unknown { number, index: self.consumed, of: completion.qpn, counter };
            return if must_be_new || completion.qpn != number & MAX_24 { Err(unknown) } else { Ok(()) };
        };
        let Some(named) = self.in_flight.drain(..=at).next_back() else { return Ok(()) };
        // Entries complete in order, so all before this one are complete.
        self.completed = named.first;
        if let Err(failure) = completion.ok() {
            return Err(PostError::Failed { number, block: named.first, operation: named.operation, failure });
        }
        self.completed += named.blocks;
        Ok(())
    }
}

/// Reads the completion entry at `offset` of a completion ring. Returns `None` unless its last byte satisfies `is_new`.
pub(super) fn read_entry(ring: SharedMemory, offset: usize, is_new: impl Fn(u8) -> bool) -> Option<Cqe> {
    const WORDS: usize = CQE_BYTES / size_of::<u64>();
    let mut words = [0u64; WORDS];
    // The last word tells if the rest is written.
    for (w, word) in words.iter_mut().enumerate().rev() {
        let order = if w == WORDS - 1 { Ordering::Acquire } else { Ordering::Relaxed };
        *word = ring.word64(offset + w * size_of::<u64>()).load(order);
        if w == WORDS - 1 && !is_new(word.to_ne_bytes()[size_of::<u64>() - 1]) {
            return None;
        }
    }
    Some(bytemuck::cast(words))
}

/// Returns memory of queue pair `number` that the host reaches.
pub(super) fn shared(number: u32, region: &Region) -> Result<SharedMemory, PostError> {
    region.host().map(SharedMemory).ok_or(PostError::OutOfReach { number })
}
