//! The verbs proxy: kernels write the rings of an mlx5 NIC in host memory, and a CPU thread makes verbs calls of what they wrote, so that
//! any device with libibverbs serves them.

mod adapter;
mod direct;
mod engine;
mod service;
#[cfg(test)]
mod tests;

pub(super) use adapter::{VerbsProxy, link};
pub(super) use engine::{Bounce, Engine, Landing};
pub(super) use service::{RingUser, Service};

use crate::wire::mlx5::Remote;
use crate::wire::mlx5::wqe::SendWith;
use std::io;

/// A piece of local memory, as the device knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub address: u64,
    pub bytes: u32,
    pub key: u32,
}

/// What a verbs request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Write { remote: Remote, immediate: Option<u32> },
    Read { remote: Remote },
    Send { with: SendWith },
    FetchAdd { remote: Remote, add: u64 },
    CompareSwap { remote: Remote, compare: u64, swap: u64 },
}

/// A verbs request. Each makes a completion at the device: so its place is known to be free again, whatever the kernel asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Comes back with the completion.
    pub id: u64,
    pub action: Action,
    pub local: Vec<Piece>,
    /// The pieces are the proxy's own memory, which the CPU may read: they may travel in the request.
    pub own_bytes: bool,
    pub fence: bool,
    pub solicited: bool,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub id: u64,
    /// `ibv_wc_status`.
    pub status: u8,
    pub vendor: u8,
}

/// Why a request was not taken.
#[derive(Debug)]
pub(super) enum PostError {
    /// There is no room now.
    Full,
    /// It never will be.
    Refused(io::Error),
}

/// A connected queue pair of a device, as the proxy uses it.
pub(super) trait SendQueue: Send {
    /// Pieces of local memory that a request may have.
    fn pieces(&self) -> usize;
    /// Hands a request over. Requests complete in their order.
    fn post(&mut self, request: &Request) -> Result<(), PostError>;
    /// Takes completions.
    fn poll(&mut self, out: &mut Vec<Done>) -> io::Result<()>;
    /// Looks after the receiving side; how many messages came.
    fn tend(&mut self) -> u64;
    /// Whether the receiving side has been flushed: the queue pair is in its error state, for a request of the other side that it refused,
    /// for instance.
    fn is_flushed(&self) -> bool {
        false
    }
}
