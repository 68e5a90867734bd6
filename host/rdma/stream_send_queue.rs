//! Send queue whose doorbell a stream rings: the host writes entries ahead, and the stream waits for their completions.
//!
//! Every request makes a completion, so that request `n` has completion entry `n`, whether it succeeds or fails.

use super::send_entries::SendEntries;
use super::{PostError, QueueAddress, QueuePair, RdmaError};
use crate::cuda::MemoryOperation;
use crate::engine::abi;
use crate::wire::mlx5::cqe::{NEVER_WRITTEN, OWNER};
use crate::wire::mlx5::doorbell::{QpRecord, SendDoorbell};
use crate::wire::mlx5::{CQE_BYTES, Operation};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// Send queue of one queue pair with rings in host memory. One thread at a time drives it.
#[derive(Debug)]
pub(crate) struct StreamSendQueue {
    entries: SendEntries,
    /// Requests posted, and requests announced.
    posted: u64,
    announced: u64,
    /// True if the host has ended waits: completions may be the host's own.
    is_released: bool,
}

impl StreamSendQueue {
    /// Takes over a queue pair with one completion entry for each block, to which nothing has been posted.
    ///
    /// # Errors
    /// As for [`CpuSendQueue::new`](super::CpuSendQueue::new).
    pub(crate) fn new(queue: Box<dyn QueuePair>) -> Result<Self, PostError> {
        Ok(Self { entries: SendEntries::new(queue)?, posted: 0, announced: 0, is_released: false })
    }

    /// Returns the queue pair.
    pub(crate) fn queue(&self) -> &dyn QueuePair {
        self.entries.queue()
    }

    /// Connects the queue pair.
    ///
    /// # Errors
    /// Those of [`QueuePair::connect`].
    pub(crate) fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        self.entries.connect(peer)
    }

    /// Resets the queue pair. The adapter uses no memory of earlier requests afterwards. It can be connected again.
    ///
    /// # Errors
    /// Those of [`QueuePair::reset`].
    pub(crate) fn reset(&mut self) -> Result<(), RdmaError> {
        self.entries.reset()?;
        (self.posted, self.announced, self.is_released) = (0, 0, false);
        Ok(())
    }

    /// Returns the number of free blocks.
    pub(crate) fn room(&self) -> u64 {
        self.entries.room()
    }

    /// Returns the number of requests that were posted.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Returns the number of requests that were announced.
    pub(crate) fn announced(&self) -> u64 {
        self.announced
    }

    /// Writes the entry of a request. Nothing announces it.
    ///
    /// # Errors
    /// Those of [`PostRequests::post`](super::PostRequests::post).
    pub(crate) fn post(&mut self, operation: Operation<'_>) -> Result<(), PostError> {
        self.entries.post(operation, true)?;
        self.posted += 1;
        Ok(())
    }

    /// Returns the steps that announce all posted requests and wait for the last completion; none if nothing was posted. With `flush` they
    /// also wait until what the adapter has written to GPU memory is visible.
    pub(crate) fn announce(&mut self, flush: bool) -> Vec<MemoryOperation> {
        if self.announced == self.posted {
            return Vec::new();
        }
        self.announced = self.posted;
        let queue = self.entries.queue();
        let (memory, number, end) = (queue.memory(), queue.number(), self.entries.posted());
        let mut steps = Vec::with_capacity(3);
        if queue.flags() & abi::SEND_NO_RECORD == 0 {
            let value = u32::from_ne_bytes(bytemuck::cast(QpRecord::new(0, end).send));
            let address = memory.records().address() + offset_of!(QpRecord, send) as u64;
            steps.push(MemoryOperation::Store32 { address, value });
        }
        let value = u64::from_ne_bytes(SendDoorbell::new(number, end).to_bytes());
        steps.push(MemoryOperation::Store64 { address: memory.send_queue(number, 0).doorbell, value });
        let last = self.posted - 1;
        let ring = self.entries.completion_ring();
        // An entry that was never written has the owner bit of odd laps.
        let at = ring.offset(last) + CQE_BYTES - size_of::<u32>();
        steps.push(MemoryOperation::AwaitBit {
            address: memory.completions().address() + at as u64,
            mask: u32::from_ne_bytes([0, 0, 0, OWNER]),
            set: ring.owner(last),
            flush,
        });
        steps
    }

    /// Returns true if request `index` has a completion, the host's own included.
    pub(crate) fn is_over(&self, index: u64) -> bool {
        index < self.entries.consumed() || self.has_owner(index)
    }

    fn has_owner(&self, index: u64) -> bool {
        let [.., op_own] = self.entries.last_word(index).load(Ordering::Acquire).to_ne_bytes();
        (op_own & OWNER != 0) == self.entries.completion_ring().owner(index)
    }

    /// Writes completions for all announced requests that have none, so that waits for them end.
    pub(crate) fn release(&mut self) {
        for index in self.entries.consumed()..self.announced {
            if self.has_owner(index) {
                continue;
            }
            self.is_released = true;
            let owner = if self.entries.completion_ring().owner(index) { OWNER } else { 0 };
            let word = [NEVER_WRITTEN, NEVER_WRITTEN, NEVER_WRITTEN, NEVER_WRITTEN & !OWNER | owner];
            // The adapter may store at the same time. The owner bit is the same then.
            self.entries.last_word(index).store(u32::from_ne_bytes(word), Ordering::Release);
        }
    }

    /// Takes completions. Returns the number of requests that succeeded since the last reset, and the error of the next one if it failed.
    pub(crate) fn take(&mut self) -> (u64, Option<PostError>) {
        let failure = self.entries.poll().err();
        (self.entries.consumed(), failure)
    }

    /// Returns true if the host has ended waits since the last reset.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released
    }
}
