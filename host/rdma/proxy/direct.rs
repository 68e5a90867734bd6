//! Verbs calls by the posting thread itself, without a ring or a proxy.

use super::{Action, Done, Piece, PostError as Refused, Request, SendQueue};
use crate::rdma::verbs::VerbsQueue;
use crate::rdma::{
    Chosen, DeviceChoice, Endpoint, PortFacts, PostError, PostRequests, QueueAddress, RdmaError, Route,
    UnconnectedSendQueue,
};
use crate::wire::mlx5::cqe::Failure;
use crate::wire::mlx5::{Atomic, Opcode, Operation, Payload, Syndrome, VendorSyndrome};
use std::fmt;

/// A connection to which its own thread posts by `ibv_post_send`.
pub(super) struct DirectVerbs {
    queue: VerbsQueue,
    own: Endpoint,
    port: PortFacts,
    chosen: Chosen,
    choice: DeviceChoice,
    /// Largest number of requests in flight.
    window: u64,
    posted: u64,
    completed: u64,
    opcodes: Vec<Opcode>,
    done: Vec<Done>,
    failed: Option<PostError>,
}

impl fmt::Debug for DirectVerbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectVerbs({:#x} on {})", self.own.number, self.chosen)
    }
}

impl DirectVerbs {
    /// Wraps a queue pair that is not connected yet. `window` is the largest number of requests in flight.
    pub(super) fn new(
        queue: VerbsQueue,
        own: Endpoint,
        port: PortFacts,
        chosen: Chosen,
        choice: DeviceChoice,
        window: u32,
    ) -> Self {
        let opcodes = vec![Opcode::Nop; window as usize];
        let (done, failed) = (Vec::new(), None);
        Self { queue, own, port, chosen, choice, window: window.into(), posted: 0, completed: 0, opcodes, done, failed }
    }

    fn refuse(&mut self, error: PostError) -> PostError {
        self.failed = Some(error.clone());
        error
    }

    /// Translates an operation into a verbs request; `None` if verbs calls do not support it.
    fn request(&self, operation: Operation<'_>) -> Option<Request> {
        let pieces = |of: &[crate::wire::mlx5::segment::DataSegment]| {
            of.iter()
                .map(|p| Piece { address: p.address.get(), bytes: p.bytes.get(), key: p.key.get() })
                .collect::<Vec<_>>()
        };
        let (action, local, own_bytes) = match operation {
            Operation::Write { remote, payload, immediate } => {
                let (local, own) = match payload {
                    Payload::Pieces(of) => (pieces(of), false),
                    // The device's library reads inline data during the call, from any memory and without a key.
                    Payload::Inline(data) => {
                        let (address, bytes) = (data.as_ptr() as u64, data.len() as u32);
                        (vec![Piece { address, bytes, key: 0 }], true)
                    }
                };
                (Action::Write { remote, immediate }, local, own)
            }
            Operation::Read { remote, into } => (Action::Read { remote }, pieces(into), false),
            Operation::Atomic { remote, action, landing } => {
                let action = match action {
                    Atomic::FetchAdd { add } => Action::FetchAdd { remote, add },
                    Atomic::CompareSwap { swap, compare } => Action::CompareSwap { remote, compare, swap },
                    _ => return None,
                };
                (action, pieces(&[landing]), false)
            }
            _ => return None,
        };
        Some(Request { id: self.posted, action, local, own_bytes, fence: false, solicited: false })
    }

    fn operation_of(&self, status: Done) -> Opcode {
        self.opcodes.get((status.id % self.window) as usize).copied().unwrap_or(Opcode::Nop)
    }
}

impl PostRequests for DirectVerbs {
    fn number(&self) -> u32 {
        self.own.number
    }

    fn posted(&self) -> u64 {
        self.posted
    }

    fn completed(&self) -> u64 {
        self.completed
    }

    fn inline_bytes(&self) -> u64 {
        self.queue.inline_bytes().into()
    }

    /// Posts a request. Every request makes a completion at the device, signalled or not.
    fn post(&mut self, operation: Operation<'_>, _: bool) -> Result<u64, PostError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let (number, in_flight) = (self.own.number, self.posted - self.completed);
        let full = PostError::Full { number, wanted: 1, in_flight, blocks: self.window };
        if in_flight == self.window {
            return Err(full);
        }
        let opcode = operation.opcode();
        let Some(request) = self.request(operation) else {
            return Err(PostError::Verbs { number, reason: format!("verbs calls cannot post {opcode}") });
        };
        match self.queue.post(&request) {
            Ok(()) => {
                self.opcodes[(self.posted % self.window) as usize] = opcode;
                self.posted += 1;
                Ok(self.posted)
            }
            Err(Refused::Full) => Err(full),
            Err(Refused::Refused(e)) => {
                Err(self.refuse(PostError::Verbs { number, reason: format!("posting {opcode}: {e}") }))
            }
        }
    }

    /// Does nothing: posting already announces each request to the device.
    fn ring(&mut self) {}

    fn poll(&mut self) -> Result<u64, PostError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let number = self.own.number;
        self.done.clear();
        if let Err(e) = self.queue.poll(&mut self.done) {
            return Err(self.refuse(PostError::Verbs { number, reason: e.to_string() }));
        }
        for i in 0..self.done.len() {
            let done = self.done[i];
            if done.status != 0 {
                let syndrome = Syndrome::from_verbs_status(done.status).unwrap_or(Syndrome::LOCAL_QP_OPERATION);
                let failure = Failure::new(syndrome, VendorSyndrome(done.vendor));
                let operation = self.operation_of(done);
                return Err(self.refuse(PostError::Failed { number, block: done.id, operation, failure }));
            }
            // Requests complete in order.
            self.completed = self.completed.max(done.id + 1);
        }
        Ok(self.completed)
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

impl UnconnectedSendQueue for DirectVerbs {
    fn address(&self) -> QueueAddress {
        self.own.to_address()
    }

    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        let peer = Endpoint::from_address(peer, self.own.number)?;
        let port = &self.chosen.port;
        let forced = port.traffic_class.forced();
        let route = Route::between(&self.port, &self.own, &peer, &self.choice, forced, |c| port.priority_of(c))?;
        self.queue.connect(&route).map_err(|e| RdmaError::Connect {
            number: self.own.number,
            peer: peer.to_string(),
            reason: e.to_string(),
        })
    }

    fn into_send_queue(self: Box<Self>) -> Box<dyn PostRequests> {
        self
    }
}
