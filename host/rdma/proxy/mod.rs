//! The verbs proxy: kernels write the rings of an mlx5 NIC in host memory, and a CPU thread translates the entries into
//! verbs calls. Kernels can thus use any device with libibverbs.

mod adapter;
mod direct;
mod engine;
mod receives;
mod service;
#[cfg(test)]
mod tests;

pub(super) use adapter::{VerbsProxy, link};
pub(super) use engine::{Bounce, Engine, Landing};
pub(super) use service::{RingUser, Service};

use crate::wire::mlx5::wqe::SendWith;
use crate::wire::mlx5::{CqeOpcode, Remote};
use std::io;

/// A scatter/gather element: a piece of local memory with the device's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub address: u64,
    pub bytes: u32,
    pub key: u32,
}

/// Operation of a verbs request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Write { remote: Remote, immediate: Option<u32> },
    Read { remote: Remote },
    Send { with: SendWith },
    FetchAdd { remote: Remote, add: u64 },
    CompareSwap { remote: Remote, compare: u64, swap: u64 },
}

/// A verbs request. Each request makes a completion at the device, signalled or not, so that its slot is known to be
/// free again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Identifier, which the completion returns.
    pub id: u64,
    pub action: Action,
    pub local: Vec<Piece>,
    /// True if the pieces are the proxy's own memory. The CPU can read it, so the data may travel inline.
    pub own_bytes: bool,
    pub fence: bool,
    pub solicited: bool,
}

/// A completion of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub id: u64,
    /// `ibv_wc_status`.
    pub status: u8,
    pub vendor: u8,
}

/// A receive that has ended at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveCompletion {
    pub id: u64,
    /// `ibv_wc_status`. The fields behind `vendor` are those of a message, if it is 0.
    pub status: u8,
    pub vendor: u8,
    /// Length of the message in bytes.
    pub bytes: u32,
    pub what: CqeOpcode,
    pub immediate: Option<u32>,
}

/// Reason why the device did not take a request.
#[derive(Debug)]
pub(super) enum PostError {
    /// The queue is full at present.
    Full,
    /// The device rejects the request for good.
    Refused(io::Error),
}

/// A connected queue pair of a device, as the proxy uses it.
pub(super) trait SendQueue: Send {
    /// Returns the largest number of scatter/gather elements of a request.
    fn pieces(&self) -> usize;
    /// Posts a request. Requests complete in order.
    ///
    /// # Errors
    /// * [`PostError::Full`] if the queue has no free space at present.
    /// * [`PostError::Refused`] if the device rejects the request.
    fn post(&mut self, request: &Request) -> Result<(), PostError>;
    /// Appends new completions to `out`. Fails with the error of the device.
    fn poll(&mut self, out: &mut Vec<Done>) -> io::Result<()>;
    /// Reposts receives. Returns the number of messages received.
    fn tend(&mut self) -> u64;
    /// Returns true if a receive was flushed. The queue pair is then in its error state, for example after it rejected
    /// a request of the other side.
    fn is_flushed(&self) -> bool {
        false
    }
}

/// Receives of a connected queue pair of a device, which the proxy posts for the entries of a receive ring.
pub(super) trait ReceiveQueue {
    /// Posts a receive. Receives end in order.
    ///
    /// # Errors
    /// [`PostError`] if the device does not take it.
    fn post_receive(&mut self, id: u64, pieces: &[Piece]) -> Result<(), PostError>;
    /// Appends receives that have ended to `out`. Fails with the error of the device.
    fn poll_receives(&mut self, out: &mut Vec<ReceiveCompletion>) -> io::Result<()>;
    /// Moves the queue pair to its error state, so that the other side learns of a failure that only the proxy found.
    fn fail(&mut self);
}
