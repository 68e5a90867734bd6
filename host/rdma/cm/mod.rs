//! Connections by rdma-core's connection manager (librdmacm), which finds the device and the path to an IP address, and
//! carries the private data of both ends.
//!
//! Queue pairs stay those of an adapter: the connection manager sends their numbers, and tells the attributes for the
//! path ([`Route`]). Every wait is bounded.

mod event;
mod identifier;
mod manager;
#[cfg(test)]
mod tests;

pub use manager::DeviceConnectionManager;

use super::{RdmaError, Route};
use event::Event;
use manager::LocalEnd;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// Parameters of a connection request.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    private: &'a [u8],
    /// Number of the queue pair.
    queue: u32,
    /// Largest number of the other end's outstanding reads.
    reads_in: u8,
}

/// A connection identifier. Calls return at once; their outcomes are events. Dropping it ends the connection.
trait Identifier: Send + std::fmt::Debug {
    /// Finds the device and the port that reach an address.
    fn resolve_address(&mut self, to: SocketAddr, limit: Duration) -> io::Result<()>;
    /// Finds the path.
    fn resolve_route(&mut self, limit: Duration) -> io::Result<()>;
    /// Returns the device and the port, once the address is resolved.
    fn local_end(&self) -> Option<LocalEnd>;
    /// Sends the connection request.
    fn request(&mut self, request: Request<'_>) -> io::Result<()>;
    /// Returns the attributes of the queue pair, once the reply has arrived.
    fn route(&mut self) -> Result<Route, RdmaError>;
    /// Tells the other end that the queue pair is ready.
    fn establish(&mut self) -> io::Result<()>;
    /// Takes the next event; `None` if there is none.
    fn next(&mut self) -> io::Result<Option<Event>>;
    /// Returns the file descriptor that becomes readable with the next event.
    fn descriptor(&self) -> RawFd;
}
