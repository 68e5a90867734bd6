//! Posting from the CPU, on the same rings as kernels.
//!
//! One thread drives the queue pair with the same entries, doorbell record and doorbell as kernels (mlx5.cuh).
//! Positions have 64 bits, count blocks of the send ring and never wrap.

use super::send_entries::{SendEntries, SharedMemory, shared};
use super::{PostRequests, QueuePair};
use crate::engine::abi;
use crate::mmio;
use crate::wire::mlx5::cqe::{CqeError, Failure};
use crate::wire::mlx5::doorbell::{QpRecord, SendDoorbell};
use crate::wire::mlx5::{Opcode, Operation, WqeError};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
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
    /// A receive failed. The queue pair receives nothing after it.
    #[error("queue pair {number:#x}: receive {position} failed: {failure}")]
    Receive {
        /// Queue pair.
        number: u32,
        /// Position of the receive.
        position: u64,
        /// Syndrome and vendor syndrome.
        failure: Failure,
    },
    /// The queue pair has no receive ring.
    #[error("queue pair {number:#x} has no receive ring; create it with a plan that has receives")]
    NoReceives {
        /// Queue pair.
        number: u32,
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

/// Send queue of one queue pair, which only the owning thread drives.
#[derive(Debug)]
pub struct CpuSendQueue {
    entries: SendEntries,
    records: SharedMemory,
    doorbell: SharedMemory,
    /// False if the queue pair has no doorbell record for sends.
    has_record: bool,
    /// Blocks announced.
    announced: u64,
}

impl CpuSendQueue {
    /// Takes over a connected queue pair, to which nothing has been posted since its creation or reset.
    ///
    /// # Errors
    /// * [`PostError::OutOfReach`] if its rings or its doorbell are the GPU's.
    /// * [`PostError::Ring`] if the size of its rings is not supported.
    pub fn new(queue: Box<dyn QueuePair>) -> Result<Self, PostError> {
        let number = queue.number();
        let entries = SendEntries::new(queue)?;
        let records = shared(number, entries.queue().memory().records())?;
        let doorbell = entries.queue().memory().host_doorbell().ok_or(PostError::OutOfReach { number })?;
        let has_record = entries.queue().flags() & abi::SEND_NO_RECORD == 0;
        Ok(Self { entries, records, doorbell, has_record, announced: 0 })
    }

    /// Returns the queue pair.
    pub fn queue(&self) -> &dyn QueuePair {
        self.entries.queue()
    }

    /// Returns the number of free blocks, which limits the next entry.
    pub fn room(&self) -> u64 {
        self.entries.room()
    }
}

impl PostRequests for CpuSendQueue {
    fn number(&self) -> u32 {
        self.queue().number()
    }

    fn posted(&self) -> u64 {
        self.entries.posted()
    }

    fn completed(&self) -> u64 {
        self.entries.completed()
    }

    fn post(&mut self, operation: Operation<'_>, signalled: bool) -> Result<u64, PostError> {
        self.entries.post(operation, signalled)
    }

    fn ring(&mut self) {
        let posted = self.posted();
        if self.announced == posted {
            return;
        }
        if self.has_record {
            let send = QpRecord::new(0, posted).send;
            let word = u32::from_ne_bytes(bytemuck::cast(send));
            self.records.word32(offset_of!(QpRecord, send)).store(word, Ordering::Release);
        }
        let doorbell = u64::from_ne_bytes(SendDoorbell::new(self.number(), posted).to_bytes());
        // SAFETY: the doorbell is a word in memory, or a register on a mapped page.
        unsafe { mmio::store64(self.doorbell.word64(0).as_ptr(), doorbell) };
        self.announced = posted;
    }

    fn poll(&mut self) -> Result<u64, PostError> {
        self.entries.poll()
    }

    fn failure(&self) -> Option<String> {
        self.queue().failure()
    }
}

#[cfg(test)]
mod tests;
