//! Ranges of blocks as many commands: several in flight, and those that get no completion dealt with as the policy says.

use super::{HostQueue, Slot};
use crate::nvme::{InFlight, Namespace, NvmeError};
use crate::wire::nvme::{CqEntry, SqEntry, io, status};

/// One command counts at most so many blocks (NVM Command Set 1.1, 3.3.4, NLB).
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

/// A command's share of a transfer.
#[derive(Clone, Copy)]
struct Piece {
    at: usize,
    bytes: usize,
    /// How often it was submitted.
    tries: u32,
}

/// A transfer under way.
struct Job<'a> {
    data: Data<'a>,
    nsid: u32,
    lba: u64,
    block: usize,
    /// Bytes of a command.
    each: usize,
    /// Where the next new piece begins.
    next: usize,
    /// Pieces to submit once more.
    again: Vec<Piece>,
    /// The piece that each slot's command moves.
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

    /// Everything without completion is submitted again.
    fn requeue_all(&mut self) {
        let open = self.flying.iter_mut().filter_map(Option::take).map(|(_, piece)| piece);
        self.again.extend(open);
    }
}

impl HostQueue<'_> {
    /// Reads whole blocks from `lba` on.
    pub fn read(&mut self, namespace: &Namespace, lba: u64, out: &mut [u8]) -> Result<(), NvmeError> {
        self.transfer(namespace, lba, Data::Read(out))
    }

    /// Writes whole blocks from `lba` on. They are on the medium after a [`HostQueue::flush`].
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
        // Blocks of 4096 bytes and buffers of 512 do not go together.
        let each = (self.max_transfer_bytes() / block).min(MAX_COMMAND_BLOCKS) * block;
        if each == 0 {
            return Err(range(format!("one command of this queue moves {} bytes", self.max_transfer_bytes())));
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

    /// Submits the next piece. False when there is none, or no slot for it.
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
            // Somebody submitted it before the transfer began; it is theirs no more.
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

    /// Whether the policy lets a command that ended like this be submitted once more: it ended because it was aborted, or
    /// before the namespace was ready, and not because of what it asked for.
    pub(super) fn may_repeat(&self, e: &NvmeError, tries: u32) -> bool {
        let ended = e.status().map(|s| s.without_flags());
        let of_no_fault = ended
            .is_some_and(|s| [status::ABORT_REQUESTED, status::SQ_DELETION, status::NAMESPACE_NOT_READY].contains(&s));
        self.policy.in_flight == InFlight::Requeue && of_no_fault && tries < self.policy.attempts
    }

    /// Deals with a wait that ended without completion: as the policy says, the queue is made to work again and what was in
    /// flight is submitted once more.
    fn retry(&mut self, job: &mut Job<'_>, e: NvmeError) -> Result<(), NvmeError> {
        let late = match &e {
            NvmeError::TimedOut { queue, cid, .. } if *queue == self.id => Some(usize::from(*cid)),
            _ => None,
        };
        // Who is to blame has its attempts counted; where it is the controller, all are.
        let spent = |i: usize| {
            job.flying[i].is_some_and(|(_, p)| p.tries >= self.policy.attempts) && late.is_none_or(|cid| cid == i)
        };
        if self.policy.in_flight == InFlight::Fail || (0..job.flying.len()).any(spent) {
            return Err(e);
        }
        tracing::debug!(device = self.controller().name(), error = %e, "commands are submitted again");
        if let Some(cid) = late
            && matches!(self.slots.get(cid), Some(Slot::Free))
        {
            // It was aborted, and the queue is well.
            job.again.extend(job.flying[cid].take().map(|(_, piece)| piece));
            return Ok(());
        }
        self.recover()?;
        job.requeue_all();
        Ok(())
    }

    /// Commands of a transfer that has failed, which nothing will be heard of.
    fn forget_ended(&self, job: &mut Job<'_>) {
        for (cid, flying) in job.flying.iter_mut().enumerate() {
            let answered = self.done.iter().any(|d| usize::from(d.cid()) == cid);
            if !answered && !matches!(self.slots[cid], Slot::InFlight { .. }) {
                *flying = None;
            }
        }
    }
}
