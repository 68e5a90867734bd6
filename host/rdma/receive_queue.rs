//! Receives that the CPU posts and polls, on the same rings as kernels.

use super::send_entries::{SharedMemory, read_entry, shared};
use super::{PostError, QueuePair};
use crate::memory::Region;
use crate::wire::be::Be32;
use crate::wire::mlx5::cqe::MAX_DATA;
use crate::wire::mlx5::doorbell::QpRecord;
use crate::wire::mlx5::receive::{self, ReceiveRing};
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::{CompletionRing, MAX_24};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Position of its receive, as [`CpuReceiveQueue::post`] returned it.
    pub position: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// First bytes of the message, if it came in the completion entry and not in the receive's memory.
    pub in_entry: Option<[u8; MAX_DATA]>,
}

/// Receive queue of one queue pair, which only the owning thread drives. Positions count receives and never wrap.
#[derive(Debug)]
pub struct CpuReceiveQueue {
    number: u32,
    ring: ReceiveRing,
    log_stride: u32,
    cq: CompletionRing,
    slots: SharedMemory,
    completions: SharedMemory,
    records: SharedMemory,
    posted: u64,
    consumed: u64,
    failed: Option<PostError>,
    /// Keeps the memory.
    _memory: [Region; 3],
}

impl CpuReceiveQueue {
    /// Takes over the receive ring of a queue pair, to which no receive has been posted since its creation or reset.
    ///
    /// # Errors
    /// * [`PostError::NoReceives`] if the queue pair has no receive ring.
    /// * [`PostError::OutOfReach`] if its rings are the GPU's.
    pub fn new(queue: &dyn QueuePair) -> Result<Self, PostError> {
        let (memory, number) = (queue.memory(), queue.number());
        let none = || PostError::NoReceives { number };
        let r = memory.receives().ok_or_else(none)?;
        Ok(Self {
            number,
            ring: r.shape,
            log_stride: r.plan.log_stride,
            cq: CompletionRing::new(r.plan.log_slots).ok_or_else(none)?,
            slots: shared(number, &r.ring)?,
            completions: shared(number, &r.completions)?,
            records: shared(number, memory.records())?,
            posted: 0,
            consumed: 0,
            failed: None,
            _memory: [r.ring.clone(), r.completions.clone(), memory.records().clone()],
        })
    }

    /// Returns the position of the next receive, which is the number of receives posted.
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Returns the number of messages taken.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns the number of receives that can be posted now.
    pub fn room(&self) -> u64 {
        self.ring.slots() - (self.posted - self.consumed)
    }

    /// Posts a receive, whose pieces a message fills in order, and announces it. Returns its position.
    ///
    /// # Errors
    /// * [`PostError::Full`] if all slots are in use.
    /// * [`PostError::Entry`] if the pieces do not fit a slot, or have no valid length.
    pub fn post(&mut self, pieces: &[DataSegment]) -> Result<u64, PostError> {
        let number = self.number;
        if self.room() == 0 {
            let blocks = self.ring.slots();
            return Err(PostError::Full { number, wanted: 1, in_flight: blocks, blocks });
        }
        let slot = receive::slot(pieces, self.log_stride).map_err(|source| PostError::Entry { number, source })?;
        let at = self.ring.offset(self.posted);
        for (i, word) in slot.chunks_exact(size_of::<u64>()).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            self.slots.word64(at + i * size_of::<u64>()).store(word, Ordering::Relaxed);
        }
        let position = self.posted;
        self.posted += 1;
        let record: Be32 = QpRecord::new(self.posted, 0).receive;
        let word = u32::from_ne_bytes(bytemuck::cast(record));
        self.records.word32(offset_of!(QpRecord, receive)).store(word, Ordering::Release);
        Ok(position)
    }

    /// Takes the next received message; `None` if there is none yet.
    ///
    /// # Errors
    /// * [`PostError::Receive`] if a receive has failed.
    /// * [`PostError::Completion`] or [`PostError::Unknown`] if the adapter wrote an invalid completion.
    /// * The earlier error if the queue pair has failed.
    pub fn poll(&mut self) -> Result<Option<Message>, PostError> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        let taken = self.take();
        if let Err(e) = &taken {
            self.failed = Some(e.clone());
        }
        taken
    }

    fn take(&mut self) -> Result<Option<Message>, PostError> {
        let (number, index) = (self.number, self.consumed);
        let at = self.cq.offset(index);
        let Some(cqe) = read_entry(self.completions, at, |op_own| self.cq.is_written(index, op_own)) else {
            return Ok(None);
        };
        let wrong = |source| PostError::Completion { number, index, source };
        let (c, data) = cqe.completion_with_data().map_err(wrong)?;
        // Receives complete in their order.
        if c.qpn != number & MAX_24 || c.wqe_counter != index as u16 || index == self.posted {
            return Err(PostError::Unknown { number, index, of: c.qpn, counter: c.wqe_counter });
        }
        c.ok().map_err(|failure| PostError::Receive { number, position: index, failure })?;
        self.consumed += 1;
        let in_entry = data.map(|d| {
            let mut all = [0; MAX_DATA];
            all[..d.len()].copy_from_slice(d);
            all
        });
        Ok(Some(Message { position: index, bytes: c.bytes, in_entry }))
    }
}
