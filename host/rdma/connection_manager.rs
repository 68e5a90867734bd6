//! Interface of connection managers: they connect queue pairs of two machines, and carry private data of both ends.

use super::{Adapter, AdapterPath, QueuePair, RdmaError};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// Error of a connection request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No connection to the address.
    #[error("{peer}: no connection: {source}")]
    Unreachable {
        /// Address and port.
        peer: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The other end rejected the request.
    #[error("{peer} rejected the connection")]
    Rejected {
        /// Address and port.
        peer: String,
        /// Private data of the rejection.
        private: Vec<u8>,
    },
    /// The other end did not reply in time.
    #[error("{peer}: no reply to the connection request within {waited:?}")]
    TimedOut {
        /// Address and port.
        peer: String,
        /// Time limit that expired.
        waited: Duration,
    },
    /// The other end ended the exchange, or is no connection manager.
    #[error("{peer}: {reason}")]
    Protocol {
        /// Address and port.
        peer: String,
        /// Cause.
        reason: String,
    },
    /// This side's queue pair cannot be connected.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
}

/// An established connection. Dropping it tells the other end that the connection has ended.
pub trait Connection: Send + fmt::Debug {
    /// Returns the file descriptor that becomes readable when the connection ends.
    fn descriptor(&self) -> RawFd;
    /// Returns the reason for which the connection has ended; `None` while it is established.
    fn ended(&self) -> Option<String>;
}

/// Address of the other end of connections: the port of its connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination<'a> {
    /// Name or IP address, without brackets.
    pub host: &'a str,
    /// Port.
    pub port: u16,
}

impl fmt::Display for Destination<'_> {
    /// Prints `HOST:PORT`, with brackets around an IPv6 address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Connection manager for connections through one adapter.
pub trait ConnectionManager: Send + Sync + fmt::Debug {
    /// Returns the adapter.
    fn adapter(&self) -> &Arc<dyn Adapter>;
    /// Returns the adapter's device and data path. The note has the reason if a better adapter was not available.
    fn path(&self) -> AdapterPath {
        self.adapter().path()
    }
    /// Connects a queue pair of the adapter, within a time limit. Returns the connection and the private data of its
    /// acceptance.
    ///
    /// # Errors
    /// All of [`ConnectError`].
    fn connect(
        &self,
        to: Destination<'_>,
        queue: &mut dyn QueuePair,
        private: &[u8],
        limit: Duration,
    ) -> Result<(Box<dyn Connection>, Vec<u8>), ConnectError>;
}
