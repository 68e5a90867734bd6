//! Transfers of block ranges as many commands, several of them in flight. The policy says how to treat
//! commands without completion.

use super::{HostQueue, Slot};
use crate::nvme::{InFlight, Namespace, NvmeError};
use crate::wire::nvme::{CqEntry, SqEntry, io, status};

/// Largest number of blocks of one command (NVM Command Set 1.1, 3.3.4, NLB).
pub(super) const MAX_COMMAND_BLOCKS: usize = 1 << 16;

enum Data<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
}

impl Data<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Read(b) => b.len(),
            Self::Write(b) => b.len(),
        }
    }
}

/// Part of a transfer that one command moves.
#[derive(Clone, Copy)]
struct Piece {
    at: usize,
    bytes: usize,
    /// Number of submissions so far.
    tries: u32,
}

/// A transfer in progress.
struct Job<'a> {
    data: Data<'a>,
    nsid: u32,
    lba: u64,
    block: usize,
    /// Bytes per command.
    each: usize,
    /// Offset of the next new piece.
    next: usize,
    /// Pieces to submit again.
    again: Vec<Piece>,
    /// Command and piece of each slot.
    flying: Vec<Option<(SqEntry, Piece)>>,
}

impl Job<'_> {
    fn take(&mut self) -> Option<Piece> {
        self.again.pop().or_else(|| {
            let bytes = self.each.min(self.data.len() - self.next);
            let piece = Piece { at: self.next, bytes, tries: 0 };
            self.next += bytes;
            (bytes > 0).then_some(piece)
        })
    }

    /// Queues every piece without completion for another submission.
    fn requeue_all(&mut self) {
        let open = self.flying.iter_mut().filter_map(Option::take).map(|(_, piece)| piece);
        self.again.extend(open);
    }
}

impl HostQueue<'_> {
    /// Reads whole blocks from block `lba` on into `out`.
    ///
    /// # Errors
    /// - [`NvmeError::Range`] if the length is not a multiple of the block size, or the blocks do not lie within the
    ///   namespace. Also if a block exceeds the largest transfer of one command.
    /// - [`NvmeError::Command`] if the controller completes a command with an error.
    /// - [`NvmeError::QueueStuck`] if no slot is free.
    /// - Those of [`Self::submit`] and [`Self::wait`], and of [`Self::recover`] with [`InFlight::Requeue`].
    /// - Those of [`QueueSet::reset`](crate::nvme::QueueSet::reset) if a reset of the controller ended the queue.
    pub fn read(&mut self, namespace: &Namespace, lba: u64, out: &mut [u8]) -> Result<(), NvmeError> {
        self.transfer(namespace, lba, Data::Read(out))
    }

    /// Writes whole blocks from block `lba` on. They are durable after a [`HostQueue::flush`].
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&mut self, namespace: &Namespace, lba: u64, data: &[u8]) -> Result<(), NvmeError> {
        self.transfer(namespace, lba, Data::Write(data))
    }

    fn transfer(&mut self, namespace: &Namespace, lba: u64, data: Data<'_>) -> Result<(), NvmeError> {
        let total = data.len();
        let block = namespace.block_bytes();
        let range = |reason: String| NvmeError::Range {
            device: self.controller().name().to_owned(),
            nsid: namespace.id(),
            lba,
            bytes: total,
            reason,
        };
        if !total.is_multiple_of(block) {
            return Err(range(format!("not whole blocks of {block} bytes")));
        }
        let blocks = (total / block) as u64;
        if lba.checked_add(blocks).is_none_or(|end| end > namespace.blocks()) {
            return Err(range(format!("the namespace has {} blocks", namespace.blocks())));
        }
        // For example, a buffer of 512 bytes cannot hold a block of 4096 bytes.
        let each = (self.max_transfer_bytes() / block).min(MAX_COMMAND_BLOCKS) * block;
        if each == 0 {
            return Err(range(format!(
                "one command of this queue moves at most {} bytes, less than a block",
                self.max_transfer_bytes()
            )));
        }
        self.refresh()?;
        let flying = vec![None; self.slots.len()];
        let nsid = namespace.id();
        self.run(&mut Job { data, nsid, lba, block, each, next: 0, again: Vec::new(), flying })
    }

    fn run(&mut self, job: &mut Job<'_>) -> Result<(), NvmeError> {
        let mut failed: Option<NvmeError> = None;
        loop {
            while failed.is_none() {
                match self.submit_piece(job) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(e) => failed = Some(e),
                }
            }
            if job.flying.iter().all(Option::is_none) {
                break;
            }
            match self.wait() {
                Ok(done) => {
                    if let Err(e) = self.complete(job, &done, failed.is_none()) {
                        failed.get_or_insert(e);
                    }
                }
                Err(e) if failed.is_none() => {
                    if let Err(e) = self.retry(job, e) {
                        failed = Some(e);
                        self.forget_ended(job);
                    }
                }
                Err(_) => self.forget_ended(job),
            }
        }
        match failed {
            Some(e) => Err(e),
            None if job.next < job.data.len() || !job.again.is_empty() => Err(self.full()),
            None => Ok(()),
        }
    }

    /// Submits the next piece. Returns false if there is no piece or no free slot.
    fn submit_piece(&mut self, job: &mut Job<'_>) -> Result<bool, NvmeError> {
        let Some(cid) = self.reserve() else { return Ok(false) };
        let Some(mut piece) = job.take() else {
            self.release(cid);
            return Ok(false);
        };
        piece.tries += 1;
        let opcode = if matches!(job.data, Data::Read(_)) { io::READ } else { io::WRITE };
        let mut entry = SqEntry::new(opcode, cid, job.nsid);
        entry.set_range(job.lba + (piece.at / job.block) as u64, (piece.bytes / job.block) as u32);
        (entry.prp1, entry.prp2) = self.data_pointers(cid, piece.bytes);
        if let Data::Write(from) = &job.data {
            self.fill_buffer(cid, &from[piece.at..piece.at + piece.bytes])?;
        }
        self.submit(cid, entry)?;
        job.flying[usize::from(cid)] = Some((entry, piece));
        Ok(true)
    }

    fn complete(&mut self, job: &mut Job<'_>, done: &CqEntry, may_retry: bool) -> Result<(), NvmeError> {
        let cid = done.cid();
        let Some((entry, piece)) = job.flying.get_mut(usize::from(cid)).and_then(Option::take) else {
            // The caller submitted this command before the transfer began. Its completion is dropped.
            self.release(cid);
            return Ok(());
        };
        let mut outcome = self.judge(&entry, done);
        if let (Ok(()), Data::Read(out)) = (&outcome, &mut job.data) {
            outcome = self.take_buffer(cid, &mut out[piece.at..piece.at + piece.bytes]);
        }
        self.release(cid);
        match outcome {
            Err(e) if may_retry && self.may_repeat(&e, piece.tries) => {
                job.again.push(piece);
                Ok(())
            }
            other => other,
        }
    }

    /// Returns true if the policy permits another submission of a command that ended with this error. The command must
    /// have been aborted, or have come before the namespace was ready; the error must not be due to the command itself.
    pub(super) fn may_repeat(&self, e: &NvmeError, tries: u32) -> bool {
        let of_no_fault = e.status().is_some_and(|s| match s.without_flags() {
            status::ABORT_REQUESTED | status::SQ_DELETION | status::NAMESPACE_NOT_READY => true,
            // The connection to a controller of another machine was lost, or the namespace is not accessible by its
            // port. Another connection may be established.
            status::HOST_PATHING_ERROR
            | status::ANA_INACCESSIBLE
            | status::ANA_TRANSITION
            | status::ANA_PERSISTENT_LOSS => !s.do_not_retry(),
            _ => false,
        });
        self.policy.in_flight == InFlight::Requeue && of_no_fault && tries < self.policy.attempts
    }

    /// Handles a wait that ended without completion. If the policy permits, recovers the queue and queues the pieces in
    /// flight for another submission.
    fn retry(&mut self, job: &mut Job<'_>, e: NvmeError) -> Result<(), NvmeError> {
        let late = match &e {
            NvmeError::TimedOut { queue, cid, .. } if *queue == self.id => Some(self.slot_of(*cid)),
            _ => None,
        };
        // Only the late command's attempts count; without one the controller is at fault, and all attempts count.
        let used_up = |i: usize| {
            job.flying[i].is_some_and(|(_, p)| p.tries >= self.policy.attempts) && late.is_none_or(|slot| slot == i)
        };
        let used_up = (0..job.flying.len()).any(used_up);
        if used_up || !self.may_retry(&e) {
            return Err(e);
        }
        tracing::debug!(device = self.controller().name(), error = %e, "commands are submitted again");
        if let Some(slot) = late
            && matches!(self.slots.get(slot), Some(Slot::Free))
        {
            // The command was aborted, and the queue works.
            job.again.extend(job.flying[slot].take().map(|(_, piece)| piece));
            return Ok(());
        }
        self.recover_in_budget()?;
        job.requeue_all();
        Ok(())
    }

    /// Drops the pieces of a failed transfer that will get no completion.
    fn forget_ended(&self, job: &mut Job<'_>) {
        for (cid, flying) in job.flying.iter_mut().enumerate() {
            let answered = self.done.iter().any(|d| usize::from(d.cid()) == cid);
            if !answered && !matches!(self.slots[cid], Slot::InFlight { .. }) {
                *flying = None;
            }
        }
    }
}
