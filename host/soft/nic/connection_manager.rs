//! Connection manager of software NICs: one TCP connection for each connected queue pair carries the addresses of both
//! ends and their private data. Its end is the end of the connection.
//!
//! A request has the key of the requester's NIC, so that the acceptor's NIC can serve it ([`SoftNicConfig::new`]). It
//! is sent as it is: whoever reads the TCP connection can use the key. As with NVMe over TCP, the network protects it,
//! or nothing does.

use super::{SoftNic, SoftNicConfig};
use crate::addresses::Addresses;
use crate::idle;
use crate::random;
use crate::rdma::{
    Adapter, ConnectError, Connection, ConnectionManager, Destination, QueueAddress, QueuePair, RdmaError,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First bytes of each message.
const MAGIC: [u8; 4] = *b"WBCM";
/// Largest message in bytes.
const MOST_BYTES: usize = 16 << 10;
/// Largest private data in bytes, as that of InfiniBand's connection manager for reliable connections.
const MOST_PRIVATE: usize = 196;

/// A connection request.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    key: [u8; 32],
    address: Vec<u8>,
    private: Vec<u8>,
}

/// Reply to a request.
#[derive(Debug, Serialize, Deserialize)]
struct Reply {
    /// Address of the acceptor's queue pair; `None` for a rejection.
    address: Option<Vec<u8>>,
    private: Vec<u8>,
}

/// One message on a TCP connection, within a time limit.
#[derive(Debug)]
struct Exchange {
    stream: TcpStream,
    peer: String,
    limit: Duration,
    until: Instant,
    /// Bytes of the message that arrives, and the number of them that are known to be needed.
    arrived: Vec<u8>,
    needed: usize,
}

/// Bytes before each message: [`MAGIC`] and its length.
const HEAD: usize = 8;

impl Exchange {
    fn new(stream: TcpStream, peer: String, limit: Duration) -> Result<Self, ConnectError> {
        let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        let until = Instant::now() + limit;
        let this = Self { stream, peer, limit, until, arrived: Vec::new(), needed: HEAD };
        ready.map_err(|e| this.protocol(e.to_string()))?;
        Ok(this)
    }

    fn protocol(&self, reason: impl Into<String>) -> ConnectError {
        ConnectError::Protocol { peer: self.peer.clone(), reason: reason.into() }
    }

    /// Returns the time that is left, or fails when there is none.
    fn left(&self) -> Result<Duration, ConnectError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ConnectError::TimedOut { peer: self.peer.clone(), waited: self.limit });
        }
        Ok(left)
    }

    /// Waits until the socket is ready, or fails when the time has expired.
    fn wait(&self, to_write: bool) -> Result<(), ConnectError> {
        idle::wait(&[(self.stream.as_raw_fd(), to_write)], self.left()?);
        Ok(())
    }

    fn send(&mut self, message: &impl Serialize) -> Result<(), ConnectError> {
        let body = serde_json::to_vec(message).map_err(|e| self.protocol(e.to_string()))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(true)?,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.protocol(e.to_string())),
            }
        }
        Ok(())
    }

    /// Reads what has arrived of a message, without waiting. Returns the message once all of it is there. No byte behind it is read.
    fn poll<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ConnectError> {
        loop {
            if self.arrived.len() == HEAD && self.needed == HEAD {
                let bytes = u32::from_le_bytes([self.arrived[4], self.arrived[5], self.arrived[6], self.arrived[7]]);
                if self.arrived[..4] != MAGIC || bytes as usize > MOST_BYTES {
                    return Err(self.protocol("the program at that address is no connection manager of software NICs"));
                }
                self.needed += bytes as usize;
            }
            if self.arrived.len() == self.needed {
                let message = serde_json::from_slice(&self.arrived[HEAD..]);
                (self.arrived, self.needed) = (Vec::new(), HEAD);
                return message.map(Some).map_err(|e| self.protocol(format!("a message that cannot be read: {e}")));
            }
            let mut bytes = [0; 4096];
            let wanted = (self.needed - self.arrived.len()).min(bytes.len());
            match self.stream.read(&mut bytes[..wanted]) {
                Ok(0) => return Err(self.protocol("the other end closed the connection before its reply")),
                Ok(n) => self.arrived.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return self.left().map(|_| None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.protocol(e.to_string())),
            }
        }
    }

    fn receive<T: DeserializeOwned>(&mut self) -> Result<T, ConnectError> {
        loop {
            if let Some(message) = self.poll()? {
                return Ok(message);
            }
            self.wait(false)?;
        }
    }
}

/// An established connection.
#[derive(Debug)]
struct Established(TcpStream);

impl Connection for Established {
    fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn ended(&self) -> Option<String> {
        match self.0.peek(&mut [0]) {
            Ok(0) => Some("the other end closed it".to_owned()),
            Ok(_) => Some("the other end sent what no connection manager sends".to_owned()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(e) => Some(e.to_string()),
        }
    }
}

/// Connection manager with a software NIC of its own.
#[derive(Debug)]
pub struct SoftConnectionManager {
    key: [u8; 32],
    adapter: Arc<dyn Adapter>,
    addresses: Addresses,
}

impl SoftConnectionManager {
    /// Starts a software NIC with a random key. `adjust` sets other options of the NIC.
    ///
    /// # Errors
    /// As [`SoftNic::start`].
    pub fn new(adjust: impl FnOnce(SoftNicConfig) -> SoftNicConfig) -> Result<Self, RdmaError> {
        let key = random_key()?;
        let adapter = SoftNic::start(adjust(SoftNicConfig::new(key)))?;
        Ok(Self::of(Arc::new(adapter), key))
    }

    /// Creates the connection manager of an adapter whose software NIC has this key.
    pub(crate) fn of(adapter: Arc<dyn Adapter>, key: [u8; 32]) -> Self {
        Self { key, adapter, addresses: Addresses::default() }
    }
}

fn random_key() -> Result<[u8; 32], RdmaError> {
    random::bytes().map_err(|source| RdmaError::System { what: "no random bytes from the system".to_owned(), source })
}

impl ConnectionManager for SoftConnectionManager {
    fn adapter(&self) -> &Arc<dyn Adapter> {
        &self.adapter
    }

    fn connect(
        &self,
        to: Destination<'_>,
        queue: &mut dyn QueuePair,
        private: &[u8],
        limit: Duration,
    ) -> Result<(Box<dyn Connection>, Vec<u8>), ConnectError> {
        let until = Instant::now() + limit;
        let unreachable = |source| ConnectError::Unreachable { peer: to.to_string(), source };
        let stream = self.addresses.connect(
            to.host,
            to.port,
            unreachable,
            |_| true,
            |address| {
                let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                TcpStream::connect_timeout(&address, left).map_err(unreachable)
            },
        )?;
        let mut exchange = Exchange::new(stream, to.to_string(), limit)?;
        if private.len() > MOST_PRIVATE {
            let reason = format!("{} bytes of private data; the limit is {MOST_PRIVATE}", private.len());
            return Err(exchange.protocol(reason));
        }
        exchange.send(&Request { key: self.key, address: queue.address().0, private: private.to_vec() })?;
        let reply: Reply = exchange.receive()?;
        let Some(address) = reply.address else {
            return Err(ConnectError::Rejected { peer: to.to_string(), private: reply.private });
        };
        queue.connect(&QueueAddress(address))?;
        Ok((Box::new(Established(exchange.stream)), reply.private))
    }
}

/// A connection request that arrives.
#[derive(Debug)]
pub struct Arriving {
    exchange: Exchange,
    request: Option<Request>,
}

impl Arriving {
    /// Takes an accepted TCP connection, whose request has to arrive within a time limit.
    ///
    /// # Errors
    /// [`ConnectError::Protocol`] if the system refuses to configure the connection.
    pub fn new(stream: TcpStream, peer: String, limit: Duration) -> Result<Self, ConnectError> {
        Ok(Self { exchange: Exchange::new(stream, peer, limit)?, request: None })
    }

    /// Reads what has arrived, without waiting. Returns true once the request is complete.
    ///
    /// # Errors
    /// [`ConnectError::TimedOut`] or [`ConnectError::Protocol`] if no request arrives.
    pub fn poll(&mut self) -> Result<bool, ConnectError> {
        if self.request.is_some() {
            return self.exchange.left().map(|_| true);
        }
        self.request = self.exchange.poll()?;
        match &self.request {
            Some(r) if r.private.len() > MOST_PRIVATE => {
                Err(self.exchange.protocol(format!("{} bytes of private data", r.private.len())))
            }
            request => Ok(request.is_some()),
        }
    }

    /// Returns true if the other end has sent nothing.
    pub fn is_silent(&self) -> bool {
        self.request.is_none() && self.exchange.arrived.is_empty()
    }

    /// Returns the request, if it is complete.
    pub fn into_request(self) -> Option<Incoming> {
        let Self { exchange, request } = self;
        request.map(|request| Incoming { exchange, request })
    }
}

/// A connection request that has arrived.
#[derive(Debug)]
pub struct Incoming {
    exchange: Exchange,
    request: Request,
}

impl Incoming {
    /// Returns the key of the requester's NIC: the acceptor's NIC must have it, too.
    pub fn key(&self) -> [u8; 32] {
        self.request.key
    }

    /// Returns the private data of the request.
    pub fn private(&self) -> &[u8] {
        &self.request.private
    }

    /// Accepts the request with a queue pair of a NIC with the requester's key.
    ///
    /// # Errors
    /// All of [`ConnectError`] but a rejection.
    pub fn accept(mut self, queue: &mut dyn QueuePair, private: &[u8]) -> Result<Box<dyn Connection>, ConnectError> {
        queue.connect(&QueueAddress(std::mem::take(&mut self.request.address)))?;
        self.exchange.send(&Reply { address: Some(queue.address().0), private: private.to_vec() })?;
        Ok(Box::new(Established(self.exchange.stream)))
    }

    /// Rejects the request.
    ///
    /// # Errors
    /// [`ConnectError::TimedOut`] or [`ConnectError::Protocol`] if the reply cannot be sent.
    pub fn reject(mut self, private: &[u8]) -> Result<(), ConnectError> {
        self.exchange.send(&Reply { address: None, private: private.to_vec() })
    }
}
