//! One queue pair: what its owner, the thread that serves it, and the peer's requests share.

use super::core::{Core, Mail};
use super::endpoint::PairAddress;
use super::execute::Responder;
use crate::random;
use crate::rdma::{QueueAddress, QueuePair, QueueRings, RdmaError, Rights};
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::{Completion, Failure};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How much longer the owner waits for the service thread than that waits for the peer.
const GRACE: Duration = Duration::from_secs(5);

/// What changes.
#[derive(Debug, Default)]
pub(super) struct PairState {
    /// Tells this queue pair from the one that had its number before, and from itself before a reset.
    pub(super) nonce: u64,
    pub(super) peer: Option<PairAddress>,
    pub(super) responder: Responder,
}

#[derive(Debug)]
pub(super) struct PairShared {
    pub(super) number: u32,
    /// How many were created before it.
    pub(super) ordinal: u32,
    pub(super) memory: Arc<QueueRings>,
    /// The thread that serves it.
    pub(super) thread: usize,
    pub(super) state: Mutex<PairState>,
    pub(super) closed: AtomicBool,
    pub(super) failure: Mutex<Option<String>>,
    /// What its ring failed with.
    pub(super) fault: Mutex<Option<Failure>>,
}

impl PairShared {
    pub(super) fn address(&self, core: &Core) -> PairAddress {
        PairAddress { at: core.endpoint.clone(), number: self.number, nonce: self.state.lock().nonce }
    }
}

/// A queue pair of a software NIC.
///
/// Beyond what every adapter has, the host can post receives to it, for sends and for writes with immediate.
pub struct SoftQueuePair {
    pub(super) core: Arc<Core>,
    pub(super) shared: Arc<PairShared>,
}

impl fmt::Debug for SoftQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoftQueuePair({:#x} of nic {:032x})", self.shared.number, self.core.endpoint.nic)
    }
}

/// What a receive got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The number that was posted with it.
    pub id: u64,
    /// How it ended, as a responder's completion.
    pub completion: Completion,
}

impl SoftQueuePair {
    /// Posts a receive: a message fills the pieces in their order; a write with immediate uses it up and leaves them alone. Returns once
    /// the pieces are known to be registered and writable.
    ///
    /// # Errors
    /// A piece that is not in registered memory with [`Rights::LOCAL_WRITE`], or too many receives.
    pub fn post_receive(&self, id: u64, pieces: &[DataSegment]) -> Result<(), RdmaError> {
        let refused = |reason: String| RdmaError::Queue { blocks: self.shared.memory.blocks(), reason };
        let mut places = Vec::with_capacity(pieces.len());
        for p in pieces {
            let (address, bytes) = (p.address.get(), p.bytes.get());
            let entry = self.core.memory.find(p.key.get(), address, bytes.into(), Rights::LOCAL_WRITE);
            places.push((
                entry.map_err(|e| refused(format!("a receive whose memory does not do: {e}")))?,
                address,
                bytes,
            ));
        }
        let most = self.shared.memory.blocks() as usize;
        if self.shared.state.lock().responder.post(id, places, most) {
            Ok(())
        } else {
            Err(refused(format!("{most} receives are posted already: poll for those that are done")))
        }
    }

    /// The oldest receive that has ended and was not polled yet.
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
        let nonce = random::bytes()
            .map_err(|source| RdmaError::System { what: "no random bytes from the system".to_owned(), source })?;
        // From here on the peer's requests are for one that is no more.
        *self.shared.state.lock() = PairState { nonce: u64::from_le_bytes(nonce), ..PairState::default() };
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
