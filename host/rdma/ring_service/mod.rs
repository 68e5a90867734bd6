//! Service of a queue pair's rings by a CPU thread, in place of an adapter's hardware. Kernels write work queue entries
//! and a doorbell, which is a word in host memory. [`RingService`] reads the doorbell, checks it, fetches the entries
//! one by one, strictly by their layout, and writes completion entries like an adapter. The software NIC and the verbs
//! proxy use it.
//!
//! The caller fetches work requests, carries them out in any way, and reports each result with
//! [`RingService::complete`] or [`RingService::fail`]. Both take the position of the request's first block, and
//! complete all earlier requests too. Completion entries follow the order of the ring, as in any queue pair. The first
//! failure ends the queue pair. All requests behind it, fetched or not, signalled or not, are flushed with syndrome
//! 0x05.
//!
//! ```
//! use std::sync::Arc;
//! use warpbell::memory::{Place, Space};
//! use warpbell::rdma::ring_service::{Fetched, RingService};
//! use warpbell::rdma::{QueueRings, QueuePlan};
//!
//! let plan = QueuePlan::new(Space::cpu(), Place::Host).log_blocks(7);
//! let memory = Arc::new(QueueRings::new(plan, Place::Host)?);
//! let mut ring = RingService::new(memory.clone(), 0x1234)?;
//! // ... kernels get `memory.send_queue(0x1234, 0)` and post; a thread carries out the requests:
//! match ring.fetch() {
//!     Fetched::Nothing => {}                      // poll again later
//!     Fetched::Flushed(_) => {}                   // the queue pair had failed before
//!     Fetched::Refused(posted, why) => eprintln!("{why}, {posted:?}"),
//!     Fetched::Request(posted, entry) => {
//!         println!("{:?}", entry.operation);      // carry it out
//!         ring.complete(posted.index);
//!     }
//! }
//! # Ok::<(), warpbell::rdma::RdmaError>(())
//! ```

mod queue_error;
mod receives;
mod shared_memory;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use queue_error::QueueError;
pub use receives::ReceiveService;

use super::{QueueRings, RdmaError};
use crate::wire::mlx5::cqe::Outcome;
use crate::wire::mlx5::doorbell::{QpRecord, SendDoorbell};
use crate::wire::mlx5::segment::{ControlSegment, blocks_of};
use crate::wire::mlx5::send_ring::wire_index;
use crate::wire::mlx5::{
    BLOCK_BYTES, Completion, CompletionRing, Failure, MAX_24, SEGMENT_BYTES, SendRing, Syndrome, Transport,
    VendorSyndrome, Wqe,
};
use shared_memory::SharedMemory;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::Arc;

/// Largest number of blocks of an entry: 63 segments.
const MOST_BLOCKS: usize = blocks_of(63);
/// Fill of fetched blocks with poison: it is no valid opcode, length or key.
const POISON: u8 = 0xff;

/// A request fetched from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Position of its first block, counted from the queue pair's creation; never wraps.
    pub index: u64,
    /// Number of blocks that it fills.
    pub blocks: u32,
    /// Code of its opcode.
    pub opcode: u8,
    /// True if it gets a completion entry on success.
    pub signalled: bool,
    /// Byte count of its completion entry: the length of a read's or an atomic's result.
    pub bytes: u32,
}

/// Result of a fetch.
#[derive(Debug)]
pub enum Fetched<'a> {
    /// All announced requests are fetched.
    Nothing,
    /// This many requests behind a failure were flushed.
    Flushed(usize),
    /// A request. The borrow ends with the next call.
    Request(Posted, Wqe<'a>),
    /// The queue pair was used incorrectly. It fails with this error as soon as all earlier requests are complete.
    /// Nothing more is fetched.
    Refused(Posted, QueueError),
}

/// The rings of one queue pair, as an adapter sees them.
#[derive(Debug)]
pub struct RingService {
    memory: Arc<QueueRings>,
    number: u32,
    send: SharedMemory,
    completions: SharedMemory,
    records: SharedMemory,
    ring: SendRing,
    entries: CompletionRing,
    poison: bool,
    /// Last seen value of the doorbell, in memory order.
    heard: u64,
    /// Position up to which blocks are announced.
    announced: u64,
    /// Position up to which blocks are fetched.
    fetched: u64,
    /// Position up to which blocks are complete.
    completed: u64,
    /// Number of completion entries written.
    written: u64,
    /// Requests that are fetched but not complete, oldest first.
    outstanding: VecDeque<Posted>,
    /// Failure of the newest request in `outstanding`, which takes effect in its turn. Nothing is fetched behind it.
    refused: Option<Failure>,
    /// The first failure.
    failed: Option<Failure>,
    scratch: Box<[u8; MOST_BLOCKS * BLOCK_BYTES]>,
}

impl RingService {
    /// Creates the service of queue pair `number`, to which nothing has been posted yet.
    ///
    /// # Errors
    /// [`RdmaError::Queue`] if the memory is in a GPU, or `number` is 0 or has more than 24 bits.
    pub fn new(memory: Arc<QueueRings>, number: u32) -> Result<Self, RdmaError> {
        let wrong = |reason: String| RdmaError::Queue { blocks: memory.blocks(), reason };
        if number == 0 || number > MAX_24 {
            return Err(wrong(format!("queue pairs have numbers 1 to {MAX_24:#x}, not {number:#x}")));
        }
        let log = memory.blocks().ilog2();
        let ring = SendRing::new(log).ok_or_else(|| wrong("a send ring cannot have so many".to_owned()))?;
        let entries = CompletionRing::new(memory.entries().ilog2());
        let entries = entries.ok_or_else(|| wrong("a completion ring cannot have so many".to_owned()))?;
        Ok(Self {
            number,
            send: SharedMemory::of(memory.ring(), "send ring")?,
            completions: SharedMemory::of(memory.completions(), "completion ring")?,
            records: SharedMemory::of(memory.records(), "doorbell")?,
            ring,
            entries,
            poison: false,
            heard: 0,
            announced: 0,
            fetched: 0,
            completed: 0,
            written: 0,
            outstanding: VecDeque::new(),
            refused: None,
            failed: None,
            scratch: Box::new([0; MOST_BLOCKS * BLOCK_BYTES]),
            memory,
        })
    }

    /// Enables poison: blocks are overwritten with 0xff when they are fetched. An entry that is announced before it is
    /// completely written then violates the layout.
    pub fn set_poison(&mut self, poison: bool) {
        self.poison = poison;
    }

    /// Returns the queue pair number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the memory of the rings.
    #[cfg(feature = "internals")]
    pub fn memory(&self) -> &Arc<QueueRings> {
        &self.memory
    }

    /// Returns the number of requests that are fetched but not complete.
    #[cfg(feature = "internals")]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Returns the first failure; `None` if there is none. Everything behind it is flushed.
    pub fn failed(&self) -> Option<Failure> {
        self.failed
    }

    /// Returns true if announced blocks are not fetched yet, or the doorbell has changed since the last fetch. Costs
    /// one load.
    #[cfg(feature = "internals")]
    pub fn is_announced(&self) -> bool {
        self.announced != self.fetched || self.records.acquire(QueueRings::doorbell_offset()) != self.heard
    }

    /// Fetches the next request from the ring, if there is one.
    pub fn fetch(&mut self) -> Fetched<'_> {
        if self.refused.is_some() {
            return Fetched::Nothing;
        }
        let heard = self.listen();
        if self.failed.is_some() {
            return match self.flush_announced() {
                0 => Fetched::Nothing,
                n => Fetched::Flushed(n),
            };
        }
        match heard {
            Ok(()) if self.announced == self.fetched => return Fetched::Nothing,
            Ok(()) => {}
            Err(why) => return self.refuse(1, 0, why),
        }
        let available = self.announced - self.fetched;
        let control = self.gather_first();
        let blocks = control.blocks().max(1) as u64;
        if blocks > available {
            let (ds, opcode) = (control.ds(), control.opcode());
            return self.refuse(available as u32, opcode, QueueError::Unfinished { ds, blocks, announced: available });
        }
        self.gather_rest(blocks);
        let index = self.fetched;
        let parsed = Wqe::parse(&self.scratch[..blocks as usize * BLOCK_BYTES], Transport::ReliableConnection)
            .and_then(|w| w.expect_at(self.number, wire_index(index)).map(|()| w))
            .map(|w| {
                let answers = matches!(w.operation.opcode() as u8, READ_FIRST..=MASKED_LAST);
                let bytes = if answers { w.operation.bytes().min(u64::from(u32::MAX)) as u32 } else { 0 };
                (w.flags.is_signalled(), bytes)
            });
        match parsed {
            Err(why) => self.refuse(blocks as u32, control.opcode(), QueueError::Entry(why)),
            Ok((signalled, bytes)) => {
                let posted = Posted { index, blocks: blocks as u32, opcode: control.opcode(), signalled, bytes };
                self.fetched += blocks;
                self.outstanding.push_back(posted);
                match Wqe::parse(&self.scratch[..blocks as usize * BLOCK_BYTES], Transport::ReliableConnection) {
                    Ok(entry) => Fetched::Request(posted, entry),
                    // Unreachable: the same bytes were parsed above.
                    Err(why) => Fetched::Refused(posted, QueueError::Entry(why)),
                }
            }
        }
    }

    /// Completes the request that begins at position `index`, and all earlier ones.
    pub fn complete(&mut self, index: u64) {
        self.finish(index, true);
    }

    /// Completes like [`Self::complete`], but without a completion entry for the request at `index`. Models a lost
    /// completion.
    pub fn lose(&mut self, index: u64) {
        self.finish(index, false);
    }

    /// Fails the request that begins at position `index` and completes all earlier ones. Requests behind it are
    /// flushed.
    pub fn fail(&mut self, index: u64, failure: Failure) {
        while let Some(p) = self.outstanding.front().copied()
            && p.index < index
            && self.failed.is_none()
        {
            self.pass(p, true);
        }
        self.fail_first(failure);
    }

    /// Moves the queue pair to its error state: outstanding requests are flushed, and so are those announced later.
    pub fn flush(&mut self) {
        self.fail_first(Failure::new(Syndrome::FLUSHED, VendorSyndrome::FORCED_ERROR));
    }

    /// Writes `entries` more flush completions, at most one for each completion entry of the ring. Models an adapter
    /// that repeats itself; only fault plans use it. Does nothing before a failure.
    pub fn storm(&mut self, entries: u32) {
        if self.failed.is_some() {
            let last = self.completed.saturating_sub(1);
            for _ in 0..entries.min(self.memory.entries()) {
                self.answer(last, 0, 0, Outcome::Failed(FLUSHED));
            }
        }
    }

    /// Resets the service. The caller has already cleared the memory.
    pub fn reset(&mut self) {
        (self.heard, self.announced, self.fetched, self.completed, self.written) = (0, 0, 0, 0, 0);
        self.outstanding.clear();
        (self.refused, self.failed) = (None, None);
    }

    /// Reads the doorbell, and then the doorbell record.
    fn listen(&mut self) -> Result<(), QueueError> {
        let value = self.records.acquire(QueueRings::doorbell_offset());
        if value == self.heard {
            return Ok(());
        }
        self.heard = value;
        let bell = SendDoorbell::from_bytes(value.to_ne_bytes());
        if bell.qpn != self.number {
            return Err(QueueError::Doorbell { qpn: bell.qpn, of: self.number });
        }
        // Blocks that are not complete fit the ring, so the new index is at most one ring length ahead of the completed
        // ones.
        let ahead = u64::from(bell.next.wrapping_sub(wire_index(self.completed)));
        let announced = self.completed + ahead;
        if ahead > self.ring.blocks() || announced < self.announced {
            let (completed, known) = (wire_index(self.completed), wire_index(self.announced));
            return Err(QueueError::Index {
                next: bell.next,
                announced: known,
                completed,
                blocks: self.memory.blocks(),
            });
        }
        // Kernels store the record first: it may be ahead of the doorbell, but never behind it.
        let record = self.records.be32(offset_of!(QpRecord, send));
        let lead = u64::from((record as u16).wrapping_sub(bell.next));
        if record > u32::from(u16::MAX) || lead > self.ring.blocks() {
            return Err(QueueError::Record { record, next: bell.next });
        }
        self.announced = announced;
        Ok(())
    }

    fn offset(&self, index: u64) -> usize {
        self.ring.offset(index)
    }

    fn take_block(&mut self, nth: usize) {
        let offset = self.offset(self.fetched + nth as u64);
        let mut block = [0; BLOCK_BYTES];
        self.send.block(offset, &mut block);
        self.scratch[nth * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&block);
    }

    fn gather_first(&mut self) -> ControlSegment {
        self.take_block(0);
        bytemuck::pod_read_unaligned(&self.scratch[..SEGMENT_BYTES])
    }

    fn gather_rest(&mut self, blocks: u64) {
        for i in 1..blocks as usize {
            self.take_block(i);
        }
        if self.poison {
            for i in 0..blocks {
                self.send.fill_block(self.offset(self.fetched + i), POISON);
            }
        }
    }

    /// Takes unreadable blocks as one request that will fail.
    fn refuse(&mut self, blocks: u32, opcode: u8, why: QueueError) -> Fetched<'_> {
        let posted = Posted { index: self.fetched, blocks, opcode, signalled: true, bytes: 0 };
        self.fetched += u64::from(blocks);
        self.announced = self.announced.max(self.fetched);
        let failure = Failure::new(why.syndrome(), VendorSyndrome::default());
        if self.outstanding.is_empty() {
            self.outstanding.push_back(posted);
            self.fail_first(failure);
        } else {
            self.outstanding.push_back(posted);
            self.refused = Some(failure);
        }
        Fetched::Refused(posted, why)
    }

    fn finish(&mut self, index: u64, tell: bool) {
        while let Some(p) = self.outstanding.front().copied()
            && p.index <= index
            && self.failed.is_none()
        {
            // A refused request does not succeed.
            if self.refused.is_some() && self.outstanding.len() == 1 {
                break;
            }
            self.pass(p, tell || p.index != index);
        }
        if self.outstanding.len() == 1
            && let Some(failure) = self.refused.take()
        {
            self.fail_first(failure);
        }
    }

    /// Completes the oldest request.
    fn pass(&mut self, p: Posted, tell: bool) {
        self.outstanding.pop_front();
        self.completed = p.index + u64::from(p.blocks);
        if p.signalled && tell {
            self.answer(p.index, p.opcode, p.bytes, Outcome::Done);
        }
    }

    /// Fails the oldest request and flushes all others.
    fn fail_first(&mut self, failure: Failure) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(failure);
        self.refused = None;
        let mut outcome = failure;
        while let Some(p) = self.outstanding.pop_front() {
            self.completed = p.index + u64::from(p.blocks);
            self.answer(p.index, p.opcode, 0, Outcome::Failed(outcome));
            outcome = FLUSHED;
        }
        self.flush_announced();
    }

    /// Flushes announced requests behind a failure. Returns their number.
    fn flush_announced(&mut self) -> usize {
        let mut count = 0;
        while self.fetched < self.announced {
            let control = self.gather_first();
            let blocks = (control.blocks().max(1) as u64).min(self.announced - self.fetched);
            let index = self.fetched;
            self.fetched += blocks;
            self.completed = self.fetched;
            self.answer(index, control.opcode(), 0, Outcome::Failed(FLUSHED));
            count += 1;
        }
        count
    }

    fn answer(&mut self, index: u64, opcode: u8, bytes: u32, outcome: Outcome) {
        let completion = Completion {
            qpn: self.number,
            user_index: self.number,
            wqe_counter: wire_index(index),
            opcode,
            bytes,
            solicited: false,
            outcome,
        };
        // A collapsed queue has one entry, so each completion is a lap of its own. Readers use the counter.
        let cqe = completion.to_cqe(self.entries.owner(self.written));
        self.completions.publish_entry(self.entries.offset(self.written), bytemuck::cast_ref(&cqe));
        self.written += 1;
    }
}

/// Failure of each request behind a failed one.
pub const FLUSHED: Failure = Failure::new(Syndrome::FLUSHED, VendorSyndrome::FLUSHED);

/// First and last opcode of reads and atomics, whose completion entries carry the number of bytes.
const READ_FIRST: u8 = crate::wire::mlx5::Opcode::Read as u8;
const MASKED_LAST: u8 = crate::wire::mlx5::Opcode::MaskedFa as u8;
