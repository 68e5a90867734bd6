//! Interface of the target's transports: one connection of a host, which carries the capsules of one queue.

use crate::wire::nvme::tcp::PduError;
use crate::wire::nvme::{CqEntry, SqEntry};
use std::net::IpAddr;
use std::time::Duration;

/// Reason for the end of a connection.
pub(super) enum End {
    /// The host closed it, or the target ends.
    Closed,
    /// The host violated the protocol. NVMe/TCP's codes name the violation with every transport.
    Violation(PduError),
}

impl From<PduError> for End {
    fn from(e: PduError) -> Self {
        Self::Violation(e)
    }
}

pub(super) fn violation<T>(status: u16, information: u32, reason: impl Into<String>) -> Result<T, End> {
    Err(End::Violation(PduError { status, information, reason: reason.into() }))
}

/// Something that arrived.
pub(super) enum Event {
    /// A command capsule, with the data behind the command.
    Capsule { entry: SqEntry, data: Vec<u8>, intact: bool },
    /// All data of a command, after [`Transport::pull`].
    Data { cid: u16, data: Vec<u8>, intact: bool },
}

/// Place of a command's data, as its SGL describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the capsule, from this offset on.
    Capsule(u64),
    /// At the host.
    Host,
    /// A descriptor that the transport does not have.
    Unknown,
}

/// A response to send, with its data before it.
pub(super) struct Response<'a> {
    /// Identifier of the command whose data it is.
    pub(super) cid: u16,
    pub(super) data: &'a [u8],
    pub(super) entry: CqEntry,
    /// Number of times that the response is sent.
    pub(super) times: u32,
    /// True to send half of the response, for a transport whose messages have a length.
    pub(super) is_short: bool,
    /// Damage of digests, for a transport that has them.
    pub(super) damaged_header: bool,
    pub(super) damaged_data: bool,
}

/// A connection of a host.
pub(super) trait Transport: Send {
    /// Receives without waiting. Returns true if something moved.
    fn receive(&mut self) -> Result<bool, End>;

    /// Returns the next event among what was received.
    fn next(&mut self) -> Result<Option<Event>, End>;

    /// Returns place and length of a command's data.
    fn place(&self, entry: &SqEntry) -> (Place, u32);

    /// Returns the largest data of a capsule that is not an I/O command's, in bytes.
    fn admin_in_capsule(&self) -> u32;

    /// Returns the queue and the number of entries that the connection was requested for, if its request names them.
    fn requested(&self) -> Option<(u16, u32)>;

    /// Requests `length` bytes of a command's data from the host. They arrive as one event.
    fn pull(&mut self, entry: &SqEntry, length: u32) -> Result<(), End>;

    /// Sends a response.
    fn respond(&mut self, entry: &SqEntry, response: &Response<'_>) -> Result<(), End>;

    /// Sends without waiting. Returns true if something moved.
    fn send(&mut self) -> Result<bool, End>;

    /// Waits until something arrives, at most for this time. A transport that cannot wait sleeps for a shorter time.
    fn wait(&self, time: Duration);

    /// Returns true if nothing has arrived.
    fn is_silent(&self) -> bool;

    /// Returns the address that the host connected to.
    fn reached(&self) -> Result<IpAddr, End>;

    /// Tells the host why its connection ends, if the transport can.
    fn terminate(&mut self, error: &PduError);
}
