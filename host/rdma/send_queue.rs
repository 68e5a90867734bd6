//! Posting from the CPU, on the same rings as kernels.
//!
//! One thread drives the queue pair with the same entries, doorbell record and doorbell as kernels (mlx5.cuh).
//! Positions have 64 bits, count blocks of the send ring and never wrap.

use super::{PostRequests, QueuePair, QueueRings};
use crate::mmio;
use crate::wire::mlx5::cqe::{Completion, Cqe, CqeError, Failure};
use crate::wire::mlx5::doorbell::{QpRecord, SendDoorbell};
use crate::wire::mlx5::send_ring::wire_index;
use crate::wire::mlx5::{
    BLOCK_BYTES, CQE_BYTES, CompletionRing, Flags, MAX_24, Opcode, Operation, SendRing, Wqe, WqeError,
};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Error of posting or waiting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The CPU cannot access the rings or the doorbell.
    #[error(
        "queue pair {number:#x}: only the GPU can access its rings or its doorbell; to post from the CPU, create it with a plan for host memory"
    )]
    OutOfReach {
        /// Queue pair.
        number: u32,
    },
    /// The ring's size is not supported.
    #[error(
        "queue pair {number:#x}: a send ring of {blocks} blocks is not supported; use a power of two from 2 to 32768"
    )]
    Ring {
        /// Queue pair.
        number: u32,
        /// Number of blocks.
        blocks: u32,
    },
    /// The work request does not fit an entry.
    #[error("queue pair {number:#x}: {source}")]
    Entry {
        /// Queue pair.
        number: u32,
        /// Reason.
        #[source]
        source: WqeError,
    },
    /// The ring has too few free blocks. An entry longer than the ring never fits.
    #[error(
        "queue pair {number:#x} is full: the entry needs {wanted} blocks, and {in_flight} of {blocks} are in flight; poll for completions first"
    )]
    Full {
        /// Queue pair.
        number: u32,
        /// Blocks of the entry.
        wanted: u64,
        /// Blocks in flight.
        in_flight: u64,
        /// Blocks of the ring.
        blocks: u64,
    },
    /// A work request failed. The queue pair completes no request after it.
    #[error("queue pair {number:#x}: {operation} at block {block} failed: {failure}")]
    Failed {
        /// Queue pair.
        number: u32,
        /// First block of the entry.
        block: u64,
        /// Its operation.
        operation: Opcode,
        /// Syndrome and vendor syndrome.
        failure: Failure,
    },
    /// The adapter wrote an invalid completion entry.
    #[error("queue pair {number:#x}, completion {index}: {source}")]
    Completion {
        /// Queue pair.
        number: u32,
        /// Number of the completion, counted from the queue pair's creation.
        index: u64,
        /// The error in the entry.
        #[source]
        source: CqeError,
    },
    /// A completion names an entry that is not in flight.
    #[error(
        "queue pair {number:#x}, completion {index}: it names queue pair {of:#x}, block {counter:#06x}, which is not in flight"
    )]
    Unknown {
        /// Queue pair.
        number: u32,
        /// Number of the completion, counted from the queue pair's creation.
        index: u64,
        /// Queue pair that it names.
        of: u32,
        /// Block that it names.
        counter: u16,
    },
    /// A verbs call failed.
    #[error("queue pair {number:#x}: {reason}")]
    Verbs {
        /// Queue pair.
        number: u32,
        /// Reason.
        reason: String,
    },
    /// The time of a wait expired without a completion.
    #[error("queue pair {number:#x}: no completion within {waited:?}; {in_flight} in flight from {completed} on")]
    TimedOut {
        /// Queue pair.
        number: u32,
        /// Duration of the wait.
        waited: Duration,
        /// Blocks in flight, or requests where there is no ring.
        in_flight: u64,
        /// Position up to which everything is complete.
        completed: u64,
    },
}

/// Memory of a queue pair that the adapter accesses concurrently. All accesses are atomic words.
#[derive(Clone, Copy, Debug)]
struct SharedMemory(NonNull<u8>);

impl SharedMemory {
    fn word32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: callers stay within the region, whose base is page aligned, at multiples of four. A queue pair keeps
        // its memory while it lives, and the send queue owns the queue pair. Only atomic accesses and the adapter touch
        // the word.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().add(offset).cast()) }
    }

    fn word64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above, at multiples of eight.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().add(offset).cast()) }
    }
}

/// Returns the doorbell: behind the record, or at the adapter's own address. That is an address of this process if
/// kernels run on its threads.
fn doorbell(memory: &QueueRings, records: SharedMemory) -> Option<SharedMemory> {
    let behind = memory.records().address() + QueueRings::doorbell_offset() as u64;
    let at = memory.send_queue(0, 0).doorbell;
    if at == behind {
        // SAFETY: within the region.
        return Some(SharedMemory(unsafe { records.0.add(QueueRings::doorbell_offset()) }));
    }
    let own = memory.plan().space.gpu_context().is_none();
    own.then(|| NonNull::new(at as *mut u8)).flatten().map(SharedMemory)
}

/// An entry that is posted and not known to be complete.
#[derive(Clone, Copy, Debug)]
struct Posted {
    first: u64,
    blocks: u64,
    operation: Opcode,
}

/// Send queue of one queue pair, which only the owning thread drives.
#[derive(Debug)]
pub struct CpuSendQueue {
    queue: Box<dyn QueuePair>,
    number: u32,
    ring: SendRing,
    cq: CompletionRing,
    collapsed: bool,
    blocks: SharedMemory,
    completions: SharedMemory,
    records: SharedMemory,
    doorbell: SharedMemory,
    /// Next free block, blocks announced, blocks known to be complete, completions consumed.
    posted: u64,
    announced: u64,
    completed: u64,
    consumed: u64,
    in_flight: VecDeque<Posted>,
    failed: Option<PostError>,
}

impl CpuSendQueue {
    /// Takes over a connected queue pair, to which nothing has been posted since its creation or reset.
    ///
    /// # Errors
    /// * [`PostError::OutOfReach`] if its rings or its doorbell are the GPU's.
    /// * [`PostError::Ring`] if the size of its rings is not supported.
    pub fn new(queue: Box<dyn QueuePair>) -> Result<Self, PostError> {
        let (memory, number): (&QueueRings, u32) = (queue.memory(), queue.number());
        let plan = memory.plan();
        let no_ring = || PostError::Ring { number, blocks: memory.blocks() };
        let ring = SendRing::new(plan.log_blocks).ok_or_else(no_ring)?;
        let cq = CompletionRing::new(if plan.collapsed { 0 } else { plan.log_blocks }).ok_or_else(no_ring)?;
        let host =
            |region: &crate::memory::Region| region.host().map(SharedMemory).ok_or(PostError::OutOfReach { number });
        let collapsed = plan.collapsed;
        let (blocks, completions, records) =
            (host(memory.ring())?, host(memory.completions())?, host(memory.records())?);
        let doorbell = doorbell(memory, records).ok_or(PostError::OutOfReach { number })?;
        Ok(Self {
            queue,
            number,
            ring,
            cq,
            collapsed,
            blocks,
            completions,
            records,
            doorbell,
            posted: 0,
            announced: 0,
            completed: 0,
            consumed: 0,
            in_flight: VecDeque::new(),
            failed: None,
        })
    }

    /// Returns the queue pair.
    pub fn queue(&self) -> &dyn QueuePair {
        self.queue.as_ref()
    }

    /// Returns the number of free blocks, which limits the next entry.
    pub fn room(&self) -> u64 {
        self.ring.blocks() - (self.posted - self.completed)
    }

    /// Returns the error of an earlier failure.
    fn sound(&self) -> Result<(), PostError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Reads the completion entry at `offset`. Returns `None` unless its last byte satisfies `is_new`.
    fn entry(&self, offset: usize, is_new: impl Fn(u8) -> bool) -> Option<Cqe> {
        const WORDS: usize = CQE_BYTES / size_of::<u64>();
        let mut words = [0u64; WORDS];
        // The last word tells if the rest is written.
        for (w, word) in words.iter_mut().enumerate().rev() {
            let order = if w == WORDS - 1 { Ordering::Acquire } else { Ordering::Relaxed };
            *word = self.completions.word64(offset + w * size_of::<u64>()).load(order);
            if w == WORDS - 1 && !is_new(word.to_ne_bytes()[size_of::<u64>() - 1]) {
                return None;
            }
        }
        Some(bytemuck::cast(words))
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

impl PostRequests for CpuSendQueue {
    fn number(&self) -> u32 {
        self.number
    }

    fn posted(&self) -> u64 {
        self.posted
    }

    fn completed(&self) -> u64 {
        self.completed
    }

    fn post(&mut self, operation: Operation<'_>, signalled: bool) -> Result<u64, PostError> {
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

    fn ring(&mut self) {
        if self.announced == self.posted {
            return;
        }
        let send = QpRecord::new(0, self.posted).send;
        let word = u32::from_ne_bytes(bytemuck::cast(send));
        self.records.word32(offset_of!(QpRecord, send)).store(word, Ordering::Release);
        let doorbell = u64::from_ne_bytes(SendDoorbell::new(self.number, self.posted).to_bytes());
        // SAFETY: the doorbell is a word in memory, or a register on a mapped page.
        unsafe { mmio::store64(self.doorbell.word64(0).as_ptr(), doorbell) };
        self.announced = self.posted;
    }

    fn poll(&mut self) -> Result<u64, PostError> {
        self.sound()?;
        let result = if self.collapsed { self.poll_collapsed() } else { self.poll_ring() };
        if let Err(e) = result {
            self.failed = Some(e.clone());
            return Err(e);
        }
        Ok(self.completed)
    }

    fn failure(&self) -> Option<String> {
        self.queue.failure()
    }
}

#[cfg(test)]
mod tests;
