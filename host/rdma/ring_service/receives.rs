//! Service of a queue pair's receive ring: finds the receive that a message fills, and writes its completion.

use super::{FLUSHED, QueueError, QueueRings, RdmaError, SharedMemory};
use crate::wire::mlx5::cqe::{MAX_DATA, Outcome};
use crate::wire::mlx5::doorbell::QpRecord;
use crate::wire::mlx5::receive::{self, ReceiveRing};
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::send_ring::wire_index;
use crate::wire::mlx5::{Completion, CompletionRing, CqeOpcode, Failure};
use std::mem::offset_of;
use std::sync::Arc;

/// The receive ring of one queue pair, as an adapter sees it.
#[derive(Debug)]
pub struct ReceiveService {
    /// Keeps the memory.
    _memory: Arc<QueueRings>,
    number: u32,
    slots: SharedMemory,
    completions: SharedMemory,
    records: SharedMemory,
    ring: ReceiveRing,
    entries: CompletionRing,
    data_in_entries: bool,
    /// Number of receives that have ended, which is the number of completion entries written.
    taken: u64,
    failed: bool,
}

impl ReceiveService {
    /// Creates the service of queue pair `number`, to which no receive has been posted yet. Returns `None` if the
    /// queue pair has no receive ring.
    ///
    /// # Errors
    /// [`RdmaError::Queue`] if the memory is in a GPU.
    pub fn new(memory: &Arc<QueueRings>, number: u32) -> Result<Option<Self>, RdmaError> {
        let Some(r) = memory.receives() else { return Ok(None) };
        let reason = || "a receive ring cannot have so many".to_owned();
        let entries = CompletionRing::new(r.plan.log_slots);
        let entries = entries.ok_or_else(|| RdmaError::Queue { blocks: memory.blocks(), reason: reason() })?;
        Ok(Some(Self {
            number,
            slots: SharedMemory::of(&r.ring, "receive ring")?,
            completions: SharedMemory::of(&r.completions, "completion ring of receives")?,
            records: SharedMemory::of(memory.records(), "doorbell record")?,
            ring: r.shape,
            entries,
            data_in_entries: r.plan.data_in_entries,
            taken: 0,
            failed: false,
            _memory: memory.clone(),
        }))
    }

    /// Returns the position of the oldest posted receive.
    pub fn position(&self) -> u64 {
        self.taken
    }

    /// Returns the pieces of the oldest posted receive; `None` if there is none.
    ///
    /// # Errors
    /// [`QueueError::ReceiveRecord`] if the doorbell record announces more receives than the ring has, and
    /// [`QueueError::Entry`] if the entry violates the layout.
    pub fn oldest(&self) -> Result<Option<Vec<DataSegment>>, QueueError> {
        self.at(self.taken)
    }

    /// Returns the pieces of the receive at `position`, which has not ended; `None` if it is not posted yet.
    ///
    /// # Errors
    /// As [`Self::oldest`].
    pub fn at(&self, position: u64) -> Result<Option<Vec<DataSegment>>, QueueError> {
        if self.failed || self.posted()? <= position {
            return Ok(None);
        }
        let mut slot = vec![0; self.ring.slot_bytes()];
        self.slots.bytes(self.ring.offset(position), &mut slot);
        Ok(Some(receive::pieces(&slot)?))
    }

    /// Returns true if a receive has failed, or all were flushed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    fn posted(&self) -> Result<u64, QueueError> {
        let record = self.records.be32(offset_of!(QpRecord, receive));
        let slots = self.ring.slots() as u32;
        self.ring.posted(record, self.taken).ok_or(QueueError::ReceiveRecord {
            record,
            taken: wire_index(self.taken),
            slots,
        })
    }

    /// Returns true if a message of `bytes` bytes goes into its completion entry, and not to the receive's memory.
    pub fn lands_in_entry(&self, bytes: u64) -> bool {
        self.data_in_entries && bytes <= MAX_DATA as u64
    }

    /// Completes the oldest receive. `data` is the message if it goes into the entry.
    pub fn complete(&mut self, bytes: u32, what: CqeOpcode, immediate: Option<u32>, data: Option<&[u8]>) {
        self.end(bytes, Outcome::Received { what, immediate }, data);
    }

    /// Fails the oldest receive, if one is posted, and flushes all others. No receive can be posted any more.
    pub fn fail(&mut self, failure: Failure) {
        if self.failed {
            return;
        }
        // After a record that makes no sense one completion tells the failure.
        let posted = self.posted().unwrap_or(self.taken + 1);
        let mut outcome = failure;
        while self.taken < posted {
            self.end(0, Outcome::ReceiveFailed(outcome), None);
            outcome = FLUSHED;
        }
        self.failed = true;
    }

    /// Resets the service. The caller has already cleared the memory.
    pub fn reset(&mut self) {
        (self.taken, self.failed) = (0, false);
    }

    /// Flushes all posted receives. No receive can be posted any more.
    pub fn flush(&mut self) {
        self.fail(FLUSHED);
    }

    fn end(&mut self, bytes: u32, outcome: Outcome, data: Option<&[u8]>) {
        let completion = Completion {
            qpn: self.number,
            user_index: self.number,
            wqe_counter: wire_index(self.taken),
            opcode: 0,
            bytes,
            solicited: false,
            outcome,
        };
        let owner = self.entries.owner(self.taken);
        let cqe = data.map_or_else(|| completion.to_cqe(owner), |d| completion.to_cqe_with_data(owner, d));
        self.completions.publish_entry(self.entries.offset(self.taken), bytemuck::cast_ref(&cqe));
        self.taken += 1;
    }
}
