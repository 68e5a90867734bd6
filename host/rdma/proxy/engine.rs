//! Engine of one queue pair of the proxy. It translates the entries of a ring into verbs requests, and their
//! completions into completion entries.
//!
//! Verbs lack 4-byte and masked atomics, so the engine emulates them. It repeats a compare-swap of the aligned 8-byte
//! word around the operand until one succeeds. The devices execute all atomics of a world over adapters, so the
//! emulation is atomic with respect to each of them. Until the atomic is complete, the engine takes nothing behind it
//! from the ring. That preserves the order.

use super::receives::{ReceiveError, Receives};
use super::{Action, Done, Piece, PostError, ReceiveQueue, Request, SendQueue};
use crate::rdma::ring_service::{Fetched, Posted, ReceiveService, RingService};
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::{Atomic, Failure, Fence, Operation, Payload, Remote, Syndrome, VendorSyndrome, Wqe};
use std::collections::VecDeque;
use std::fmt;

/// Largest inline payload of an entry in bytes: 63 segments.
pub(in crate::rdma) const INLINE_BYTES: usize = 1024;
/// Position of the queue pair's life in a request's identifier. The life tells completions before and after a reset
/// apart.
pub(super) const LIFE_SHIFT: u32 = 48;
/// Largest number of requests per step, so that other queue pairs get their turn.
const BURST: usize = 64;

/// Registered host memory: one slot of [`INLINE_BYTES`] for each request in flight, and one more for the results of
/// compare-swaps.
pub(in crate::rdma) trait Bounce: Send {
    /// Returns the first `bytes` bytes of a slot as a scatter/gather element.
    fn piece(&self, slot: usize, bytes: u32) -> Piece;
    /// Writes bytes to the beginning of a slot.
    fn write(&self, slot: usize, bytes: &[u8]);
    /// Reads the word at the beginning of a slot.
    fn read(&self, slot: usize) -> u64;
}

/// Memory that kernels name by a key of the device.
pub(in crate::rdma) trait Landing: Send {
    /// Writes bytes to it. Returns `false` if the key or the range is unknown, or the memory cannot be written.
    fn land(&self, key: u32, address: u64, bytes: &[u8]) -> bool;
    /// Reads bytes from it. Returns `false` if the key or the range is unknown, or it is no host memory.
    fn load(&self, key: u32, address: u64, out: &mut [u8]) -> bool;
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: u64,
    /// Position of its entry in the ring; `None` for a step of an emulated atomic.
    index: Option<u64>,
    /// Newest entry of the ring that completes with it. Entries behind its own may need no request.
    completes: Option<u64>,
}

/// An atomic that the engine emulates by compare-swaps.
#[derive(Clone, Copy, Debug)]
struct Emulated {
    posted: Posted,
    action: Atomic,
    landing: DataSegment,
    /// The aligned 8-byte word around the operand.
    word: Remote,
    /// Byte offset of the operand in the word.
    offset: usize,
    /// Expected value of the word.
    guess: u64,
    fence: bool,
    /// Identifier of the compare-swap in flight.
    id: Option<u64>,
}

impl Emulated {
    fn operand(&self, word: u64) -> u64 {
        let bytes = word.to_ne_bytes();
        match self.action.operand_bytes() {
            4 => {
                let mut half = [0; 4];
                half.copy_from_slice(&bytes[self.offset..][..4]);
                u32::from_ne_bytes(half).into()
            }
            _ => word,
        }
    }

    /// Returns the new value of the word if its old value is `word`.
    fn apply(&self, word: u64) -> u64 {
        let new = self.action.apply(self.operand(word));
        match self.action.operand_bytes() {
            4 => {
                let mut bytes = word.to_ne_bytes();
                bytes[self.offset..][..4].copy_from_slice(&(new as u32).to_ne_bytes());
                u64::from_ne_bytes(bytes)
            }
            _ => new,
        }
    }
}

/// Engine of one queue pair of the proxy.
pub(in crate::rdma) struct Engine<Q, B, L> {
    // Dropped first, since it uses memory of other fields.
    pub queue: Q,
    pub ring: RingService,
    bounce: B,
    landing: L,
    /// Receive ring; `None` for a queue pair without, whose device queue posts its own receives.
    receives: Option<Receives>,
    /// Largest number of requests in flight.
    window: usize,
    sent: VecDeque<Sent>,
    next: u64,
    life: u64,
    /// A request taken from the ring that the device's full queue rejected.
    waiting: Option<(Request, Option<u64>)>,
    emulated: Option<Emulated>,
    /// A request that cannot be carried out, with the reason. It fails as soon as all earlier requests are complete.
    doomed: Option<(u64, String)>,
    done: Vec<Done>,
    failure: Option<String>,
    /// True once the failure of a queue pair with a receive ring has ended both directions.
    ended: bool,
    /// Number of messages received from the other side.
    pub received: u64,
}

impl<Q, B, L> fmt::Debug for Engine<Q, B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({:#x}, {} under way)", self.ring.number(), self.sent.len())
    }
}

impl<Q: SendQueue + ReceiveQueue, B: Bounce, L: Landing> Engine<Q, B, L> {
    /// Creates an engine that carries out the entries of `ring` on the device's `queue`. `bounce` needs `window` + 1
    /// slots.
    pub fn new(queue: Q, ring: RingService, bounce: B, landing: L, window: usize) -> Self {
        Self {
            receives: None,
            queue,
            ring,
            bounce,
            landing,
            window,
            sent: VecDeque::new(),
            next: 0,
            life: 0,
            waiting: None,
            emulated: None,
            doomed: None,
            done: Vec::new(),
            failure: None,
            ended: false,
            received: 0,
        }
    }

    /// Adds a receive ring. The device's queue then posts no receives of its own.
    pub fn with_receives(self, ring: Option<ReceiveService>) -> Self {
        Self { receives: ring.map(Receives::new), ..self }
    }

    /// Returns the reason of a failure; `None` if the queue pair works.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Resets the engine. The caller has already cleared the ring's memory and reset the device's queue pair.
    pub fn reset(&mut self) {
        self.ring.reset();
        if let Some(r) = &mut self.receives {
            r.reset();
        }
        self.sent.clear();
        self.waiting = None;
        self.emulated = None;
        self.doomed = None;
        self.failure = None;
        self.ended = false;
        self.next = 0;
        // Completions of the previous life may still arrive.
        self.life += 1;
    }

    /// Processes completions and new entries. Returns true if there were any.
    pub fn step(&mut self) -> bool {
        let mut busy = self.post_receives();
        if self.receives.is_none() {
            self.received += self.queue.tend();
        }
        // Before receives: a failure of a request is the cause of flushed receives.
        busy |= self.take_completions();
        busy |= self.take_receives();
        // With requests in flight, their completions say more.
        if self.queue.is_flushed() && self.sent.is_empty() && self.ring.failed().is_none() {
            self.fail_at(None, local_fault(), MOVED.to_owned());
        }
        for _ in 0..BURST {
            if !self.advance() {
                break;
            }
            busy = true;
        }
        self.end_receives();
        busy
    }

    /// Posts new receives. Returns true if there were any.
    fn post_receives(&mut self) -> bool {
        let Some(r) = self.receives.as_mut().filter(|r| !r.has_failed()) else { return false };
        let posted = r.post(&mut self.queue, self.life);
        posted.unwrap_or_else(|e| self.receive_failed(e))
    }

    /// Takes receives that have ended. Returns true if there were any.
    fn take_receives(&mut self) -> bool {
        let Some(r) = self.receives.as_mut().filter(|r| !r.has_failed()) else { return false };
        let taken = r.take(&mut self.queue, &self.landing, self.life);
        taken.unwrap_or_else(|e| self.receive_failed(e))
    }

    fn receive_failed(&mut self, (failure, why): ReceiveError) -> bool {
        let flushed = failure.syndrome == Syndrome::FLUSHED;
        // The completion of a request in flight tells the cause.
        if flushed && !self.sent.is_empty() {
            return true;
        }
        if let Some(r) = &mut self.receives {
            r.fail(failure);
        }
        self.fail_at(None, failure, if flushed { MOVED.to_owned() } else { why });
        true
    }

    /// Ends the receives of a queue pair whose requests have failed, and the other way round: the failure of one direction
    /// ends both.
    fn end_receives(&mut self) {
        if let Some(r) = &mut self.receives
            && self.ring.failed().is_some()
            && !self.ended
        {
            r.flush();
            self.queue.fail();
            self.ended = true;
        }
    }

    fn take_completions(&mut self) -> bool {
        if self.sent.is_empty() {
            return false;
        }
        let mut done = std::mem::take(&mut self.done);
        if let Err(e) = self.queue.poll(&mut done) {
            self.fail_oldest(local_fault(), format!("polling for completions: {e}"));
        }
        let busy = !done.is_empty();
        for d in done.drain(..) {
            self.complete(d);
        }
        self.done = done;
        busy
    }

    fn complete(&mut self, done: Done) {
        if done.id >> LIFE_SHIFT != self.life || self.ring.failed().is_some() {
            return;
        }
        if done.status != 0 {
            let syndrome = Syndrome::from_verbs_status(done.status).unwrap_or(Syndrome::LOCAL_QP_OPERATION);
            let failure = Failure::new(syndrome, VendorSyndrome(done.vendor));
            let index = self.index_of(done.id);
            return self.fail_at(index, failure, format!("{failure} (ibv_wc_status {})", done.status));
        }
        while let Some(sent) = self.sent.front().copied()
            && sent.id <= done.id
        {
            self.sent.pop_front();
            if let Some(index) = sent.completes {
                self.ring.complete(index);
            }
        }
        if let Some(e) = self.emulated
            && e.id == Some(done.id)
        {
            self.swapped(e);
        }
    }

    /// Handles a completed compare-swap: finishes the atomic, or repeats it with the word's current value.
    fn swapped(&mut self, mut e: Emulated) {
        let old = self.bounce.read(self.window);
        if old != e.guess && e.apply(old) != old {
            e.guess = old;
            e.id = None;
            self.emulated = Some(e);
            return;
        }
        self.emulated = None;
        let bytes = e.action.landing(e.operand(old));
        let count = e.action.operand_bytes() as usize;
        if self.landing.land(e.landing.key.get(), e.landing.address.get(), &bytes[..count]) {
            self.ring.complete(e.posted.index);
        } else {
            let why = format!(
                "the result of an atomic cannot be written at {:#x} with key {:#x}: that memory is not registered for it",
                e.landing.address.get(),
                e.landing.key.get()
            );
            let failure = Failure::new(Syndrome::LOCAL_PROTECTION, VendorSyndrome::default());
            self.fail_at(Some(e.posted.index), failure, why);
        }
    }

    /// Returns the position of the entry that a verbs request belongs to.
    fn index_of(&self, id: u64) -> Option<u64> {
        let of_ring = self.sent.iter().find(|s| s.id == id).and_then(|s| s.index);
        of_ring.or(self.emulated.map(|e| e.posted.index))
    }

    fn fail_at(&mut self, index: Option<u64>, failure: Failure, why: String) {
        match index {
            Some(index) => self.ring.fail(index, failure),
            None => self.ring.flush(),
        }
        self.sent.clear();
        self.waiting = None;
        self.emulated = None;
        self.doomed = None;
        self.failure.get_or_insert(why);
    }

    fn fail_oldest(&mut self, failure: Failure, why: String) {
        let index = self.sent.front().map(|s| s.id).and_then(|id| self.index_of(id));
        self.fail_at(index, failure, why);
    }

    /// Processes one more entry. Returns false if there is nothing to do.
    fn advance(&mut self) -> bool {
        if self.ring.failed().is_some() {
            return matches!(self.ring.fetch(), Fetched::Flushed(n) if n > 0);
        }
        if let Some((index, why)) = self.doomed.take_if(|_| self.sent.is_empty()) {
            self.fail_at(Some(index), local_fault(), why);
            return true;
        }
        if self.doomed.is_some() {
            return false;
        }
        if let Some((request, index)) = self.waiting.take() {
            return self.post(request, index);
        }
        if let Some(e) = self.emulated {
            return e.id.is_none() && self.sent.len() < self.window && self.post_swap(e);
        }
        if self.sent.len() >= self.window {
            return false;
        }
        let (slot, pieces, id) = (self.slot(), self.queue.pieces(), self.id());
        let taken = match self.ring.fetch() {
            Fetched::Nothing | Fetched::Flushed(0) => return false,
            Fetched::Flushed(_) => return true,
            Fetched::Refused(_, why) => {
                self.failure = Some(why.to_string());
                return true;
            }
            Fetched::Request(posted, entry) => (posted, translate(posted, &entry, &self.bounce, slot, pieces, id)),
        };
        match taken {
            (posted, Translated::Request(request)) => self.post(request, Some(posted.index)),
            (_, Translated::Atomic(e)) => {
                self.emulated = Some(e);
                true
            }
            (posted, Translated::Nothing) => {
                match self.sent.back_mut() {
                    Some(last) => last.completes = Some(posted.index),
                    None => self.ring.complete(posted.index),
                }
                true
            }
            (posted, Translated::Impossible(why)) => {
                self.doomed = Some((posted.index, why));
                true
            }
        }
    }

    fn slot(&self) -> usize {
        (self.next % self.window as u64) as usize
    }

    fn id(&self) -> u64 {
        self.life << LIFE_SHIFT | self.next
    }

    /// Posts a request to the device: that of the entry at `index`, or a step of an atomic.
    fn post(&mut self, request: Request, index: Option<u64>) -> bool {
        // Receives that were posted before this request may be meant for the reply to it.
        self.post_receives();
        if self.ring.failed().is_some() {
            return true;
        }
        match self.queue.post(&request) {
            Ok(()) => {
                self.sent.push_back(Sent { id: request.id, index, completes: index });
                self.next += 1;
                return true;
            }
            Err(PostError::Full) if !self.sent.is_empty() => {
                // Kept until a completion frees space: the entry is no longer in the ring and must not be lost.
                self.waiting = Some((request, index));
                return false;
            }
            Err(PostError::Full) => {
                self.doom(index, "the device rejects a request although none is in flight".to_owned())
            }
            Err(PostError::Refused(e)) => self.doom(index, format!("ibv_post_send: {e}")),
        }
        true
    }

    fn doom(&mut self, index: Option<u64>, why: String) {
        let index = index.or(self.emulated.take().map(|e| e.posted.index));
        self.doomed = index.map(|i| (i, why));
    }

    fn post_swap(&mut self, mut e: Emulated) -> bool {
        let id = self.id();
        let request = Request {
            id,
            action: Action::CompareSwap { remote: e.word, compare: e.guess, swap: e.apply(e.guess) },
            local: vec![self.bounce.piece(self.window, size_of::<u64>() as u32)],
            own_bytes: false,
            fence: e.fence,
            solicited: false,
        };
        e.id = Some(id);
        self.emulated = Some(e);
        self.post(request, None)
    }
}

/// Reason of a failure that the device told by flushed receives alone.
const MOVED: &str = "the device has moved the queue pair to its error state";

pub(super) fn local_fault() -> Failure {
    Failure::new(Syndrome::LOCAL_QP_OPERATION, VendorSyndrome::default())
}

enum Translated {
    Request(Request),
    Atomic(Emulated),
    /// The entry needs no verbs request.
    Nothing,
    /// Verbs cannot express the entry.
    Impossible(String),
}

pub(super) fn piece(p: &DataSegment) -> Piece {
    Piece { address: p.address.get(), bytes: p.bytes.get(), key: p.key.get() }
}

fn translate(posted: Posted, entry: &Wqe<'_>, bounce: &impl Bounce, slot: usize, most: usize, id: u64) -> Translated {
    let fence = !matches!(entry.flags.fence, Fence::None);
    let request = |action: Action, local: Vec<Piece>, own_bytes: bool| {
        Translated::Request(Request { id, action, local, own_bytes, fence, solicited: entry.flags.solicited })
    };
    let too_many =
        |n: usize| Translated::Impossible(format!("a request of {n} pieces; this device supports at most {most}"));
    let carried = |action: Action, payload: &Payload<'_>| match payload {
        Payload::Pieces(pieces) if pieces.len() > most => too_many(pieces.len()),
        Payload::Pieces(pieces) => request(action, pieces.iter().map(piece).collect(), false),
        Payload::Inline(bytes) => {
            bounce.write(slot, bytes);
            let local = if bytes.is_empty() { Vec::new() } else { vec![bounce.piece(slot, bytes.len() as u32)] };
            request(action, local, true)
        }
    };
    match &entry.operation {
        // Rings are in host memory: data that the device wrote before a completion is visible.
        Operation::Nop | Operation::Dump { .. } => Translated::Nothing,
        Operation::Wait { .. } => {
            Translated::Impossible("a wait for another completion queue, which verbs do not support".to_owned())
        }
        Operation::Write { remote, payload, immediate } => {
            carried(Action::Write { remote: *remote, immediate: *immediate }, payload)
        }
        Operation::Send { payload, with } => carried(Action::Send { with: *with }, payload),
        Operation::Read { into, .. } if into.len() > most => too_many(into.len()),
        Operation::Read { remote, into } => {
            request(Action::Read { remote: *remote }, into.iter().map(piece).collect(), false)
        }
        Operation::Atomic { remote, action, landing } => {
            let (remote, local) = (*remote, || vec![piece(landing)]);
            match *action {
                Atomic::FetchAdd { add } | Atomic::MaskedAdd64 { add, boundary: 0 } => {
                    request(Action::FetchAdd { remote, add }, local(), false)
                }
                Atomic::CompareSwap { swap, compare }
                | Atomic::MaskedSwap64 { swap, compare, swap_mask: u64::MAX, compare_mask: u64::MAX } => {
                    request(Action::CompareSwap { remote, compare, swap }, local(), false)
                }
                action => {
                    let offset = (remote.address % size_of::<u64>() as u64) as usize;
                    if !(offset as u32).is_multiple_of(action.operand_bytes()) {
                        return Translated::Impossible(format!(
                            "an atomic at {:#x}, which is not aligned",
                            remote.address
                        ));
                    }
                    let word = Remote { address: remote.address - offset as u64, key: remote.key };
                    let landing = *landing;
                    Translated::Atomic(Emulated { posted, action, landing, word, offset, guess: 0, fence, id: None })
                }
            }
        }
    }
}
