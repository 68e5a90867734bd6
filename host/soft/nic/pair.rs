//! One queue pair: the state that its owner, its service thread, and the peer's requests share.

use super::core::{Core, Mail};
use super::endpoint::PairAddress;
use super::execute::Responder;
use crate::random;
#[cfg(feature = "internals")]
use crate::rdma::Rights;
use crate::rdma::ring_service::ReceiveService;
use crate::rdma::{QueueAddress, QueuePair, QueueRings, RdmaError};
#[cfg(feature = "internals")]
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::{Completion, Failure};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Time that the owner waits for the service thread, in addition to the service thread's own limit.
const GRACE: Duration = Duration::from_secs(5);

/// Part of a queue pair's state that a reset replaces.
#[derive(Debug)]
pub(super) struct PairState {
    /// Random number that distinguishes this queue pair from an earlier one with the same number, and from itself
    /// before a reset.
    pub(super) nonce: u64,
    pub(super) peer: Option<PairAddress>,
    pub(super) responder: Responder,
}

impl PairState {
    /// Creates the state of queue pair `number` that is not connected, with a random number of its own.
    pub(super) fn new(memory: &Arc<QueueRings>, number: u32) -> Result<Self, RdmaError> {
        let nonce = random::bytes()
            .map_err(|source| RdmaError::System { what: "no random bytes from the system".to_owned(), source })?;
        let responder = Responder::new(ReceiveService::new(memory, number)?);
        Ok(Self { nonce: u64::from_le_bytes(nonce), peer: None, responder })
    }
}

#[derive(Debug)]
pub(super) struct PairShared {
    pub(super) number: u32,
    /// Number of queue pairs of the adapter created before this one.
    pub(super) ordinal: u32,
    pub(super) memory: Arc<QueueRings>,
    /// Index of its service thread.
    pub(super) thread: usize,
    pub(super) state: Mutex<PairState>,
    pub(super) closed: AtomicBool,
    pub(super) failure: Mutex<Option<String>>,
    /// Failure of its ring.
    pub(super) fault: Mutex<Option<Failure>>,
}

impl PairShared {
    pub(super) fn address(&self, core: &Core) -> PairAddress {
        PairAddress { at: core.endpoint.clone(), number: self.number, nonce: self.state.lock().nonce }
    }
}

/// A queue pair of a software NIC.
///
/// Unlike with other adapters, the host can post receives to it, for sends and for writes with immediate.
pub struct SoftQueuePair {
    pub(super) core: Arc<Core>,
    pub(super) shared: Arc<PairShared>,
}

impl fmt::Debug for SoftQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoftQueuePair({:#x} of nic {:032x})", self.shared.number, self.core.endpoint.nic)
    }
}

/// A receive that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Number that was given when the receive was posted.
    pub id: u64,
    /// Outcome, as a responder's completion.
    pub completion: Completion,
}

impl SoftQueuePair {
    /// Posts a receive. A message fills the pieces in order. A write with immediate consumes the receive and leaves the
    /// pieces unchanged. When the function returns, the pieces are known to be registered and writable.
    ///
    /// # Errors
    /// [`RdmaError::Queue`] if a piece is not in registered memory with [`Rights::LOCAL_WRITE`], if there are already
    /// as many receives as the ring has blocks, or if the queue pair has a receive ring, to which receives are posted.
    #[cfg(feature = "internals")]
    pub fn post_receive(&self, id: u64, pieces: &[DataSegment]) -> Result<(), RdmaError> {
        let refused = |reason: String| RdmaError::Queue { blocks: self.shared.memory.blocks(), reason };
        if self.shared.memory.receives().is_some() {
            return Err(refused("it has a receive ring: post receives there".to_owned()));
        }
        let mut places = Vec::with_capacity(pieces.len());
        for p in pieces {
            let (address, bytes) = (p.address.get(), p.bytes.get());
            let entry = self.core.memory.find(p.key.get(), address, bytes.into(), Rights::LOCAL_WRITE);
            places.push((
                entry.map_err(|e| refused(format!("the memory of a receive cannot be used: {e}")))?,
                address,
                bytes,
            ));
        }
        let most = self.shared.memory.blocks() as usize;
        if self.shared.state.lock().responder.post(id, places, most) {
            Ok(())
        } else {
            Err(refused(format!("{most} receives are posted already: poll for completed ones first")))
        }
    }

    /// Returns the oldest receive that has ended and was not polled yet.
    #[cfg(feature = "internals")]
    pub fn poll_receive(&self) -> Option<Received> {
        self.shared.state.lock().responder.received.pop_front()
    }

    fn ask(
        &self,
        what: &str,
        limit: Duration,
        mail: impl FnOnce(mpsc::Sender<Result<(), String>>) -> Mail,
    ) -> Result<(), String> {
        if self.core.stop.load(Ordering::Acquire) {
            return Err("its adapter has ended".to_owned());
        }
        let (reply, answer) = mpsc::channel();
        self.core.post(self.shared.thread, mail(reply));
        match answer.recv_timeout(limit + GRACE) {
            Ok(answer) => answer,
            Err(_) => Err(format!("the service thread did not {what} within {:.1?}", limit + GRACE)),
        }
    }
}

impl QueuePair for SoftQueuePair {
    fn number(&self) -> u32 {
        self.shared.number
    }

    fn address(&self) -> QueueAddress {
        self.shared.address(&self.core).to_queue_address()
    }

    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        let number = self.shared.number;
        let wrong = |peer: String, reason| RdmaError::Connect { number, peer, reason };
        let peer = PairAddress::read(peer).map_err(|reason| wrong("a peer".to_owned(), reason))?;
        let name = format!("queue pair {:#x} of process {}", peer.number, peer.at.process);
        {
            let mut state = self.shared.state.lock();
            if state.peer.is_some() {
                return Err(wrong(name, "it is connected already: reset it first".to_owned()));
            }
            state.peer = Some(peer.clone());
        }
        let answer =
            self.ask("connect", self.core.config.timeouts.connect, |reply| Mail::Connect { number, peer, reply });
        answer.map_err(|reason| {
            self.shared.state.lock().peer = None;
            wrong(name, reason)
        })
    }

    fn memory(&self) -> &QueueRings {
        &self.shared.memory
    }

    fn flags(&self) -> u32 {
        0
    }

    fn failure(&self) -> Option<String> {
        self.shared.failure.lock().clone()
    }

    fn fault(&self) -> Option<Failure> {
        *self.shared.fault.lock()
    }

    fn reset(&mut self) -> Result<(), RdmaError> {
        let number = self.shared.number;
        let failed = |reason| RdmaError::Queue { blocks: self.shared.memory.blocks(), reason };
        // From here on, requests of the peer do not match the nonce.
        let fresh = PairState::new(&self.shared.memory, number)?;
        *self.shared.state.lock() = fresh;
        self.ask("reset the queue pair", Duration::ZERO, |reply| Mail::Reset { number, reply }).map_err(failed)?;
        *self.shared.failure.lock() = None;
        *self.shared.fault.lock() = None;
        Ok(())
    }
}

impl Drop for SoftQueuePair {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.core.pairs.lock().remove(&self.shared.number);
        self.core.post(self.shared.thread, Mail::Close { number: self.shared.number });
    }
}
