//! Connections until their Connect is accepted. The thread that accepts them serves them all, within limits, and never waits for one.

use super::Shared;
use super::config::TargetTransport;
use super::connection::{self, Connection, INTRODUCTION};
#[cfg(feature = "shmem")]
use super::rdma::SoftRdma;
use super::tcp::Tcp;
use super::transport::End;
use crate::listener::{Admission, Limits, Seldom, Slots, Source, Stranger, warn_of_crowd};
#[cfg(feature = "shmem")]
use crate::soft::nic::Arriving;
use crate::this_host::descriptor_limit;
#[cfg(feature = "shmem")]
use std::net::IpAddr;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

/// Name of the listener in warnings.
pub(super) const LISTENER: &str = "nvme target";
/// Most connections without an accepted Connect, at most one in so many descriptors of the process.
pub(super) const MOST_HANDSHAKES: usize = 256;
const HANDSHAKE_SHARE: usize = 4;
/// Most connections with an accepted Connect, at most one in so many descriptors of the process.
const MOST_CONNECTIONS: usize = 4096;
const CONNECTION_SHARE: usize = 2;
/// Most threads of connections over RDMA whose request has arrived, and whose Connect has not.
#[cfg(feature = "shmem")]
const MOST_HANDSHAKE_THREADS: usize = 32;

/// Returns the slots of connections whose Connect is accepted.
pub(super) fn connected() -> Slots {
    Slots::new(Limits::new(MOST_CONNECTIONS, CONNECTION_SHARE, descriptor_limit()))
}

enum Stage {
    Tcp(Box<Connection>),
    #[cfg(feature = "shmem")]
    Soft {
        request: Box<Arriving>,
        reached: IpAddr,
        is_complete: bool,
    },
}

struct Handshake {
    stage: Stage,
    /// The descriptor that `stage` owns.
    fd: RawFd,
    peer: SocketAddr,
    port: usize,
    source: Source,
    known: bool,
    since: Instant,
}

impl Handshake {
    fn as_stranger(&self) -> Stranger {
        let silent = match &self.stage {
            Stage::Tcp(connection) => connection.is_silent(),
            #[cfg(feature = "shmem")]
            Stage::Soft { request, .. } => request.is_silent(),
        };
        Stranger { source: self.source, known: self.known, since: self.since, silent }
    }

    /// Returns true if bytes that arrive are read.
    fn is_read(&self) -> bool {
        match &self.stage {
            Stage::Tcp(_) => true,
            #[cfg(feature = "shmem")]
            Stage::Soft { is_complete, .. } => !is_complete,
        }
    }
}

/// All connections in handshake.
pub(super) struct Handshakes {
    shared: Arc<Shared>,
    limits: Limits,
    crowd: Seldom,
    all: Vec<Handshake>,
    #[cfg(feature = "shmem")]
    threads: Slots,
}

impl Handshakes {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            limits: Limits::new(MOST_HANDSHAKES, HANDSHAKE_SHARE, descriptor_limit()),
            crowd: Seldom::default(),
            all: Vec::new(),
            #[cfg(feature = "shmem")]
            threads: Slots::new(Limits::new(MOST_HANDSHAKE_THREADS, 1, usize::MAX)),
        }
    }

    /// Returns the descriptors to wait for.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (RawFd, bool)> {
        let heard = self.all.iter().filter(|h| h.is_read() && !self.shared.ports[h.port].is_silent());
        heard.map(|h| (h.fd, false))
    }

    /// Takes an accepted connection. `is_last` is true if it has a spare descriptor.
    pub(super) fn add(&mut self, stream: TcpStream, peer: SocketAddr, port: usize, is_last: bool) {
        let source = Source::of(peer.ip());
        let known = self.shared.known.lock().has(source);
        let all: Vec<Stranger> = self.all.iter().map(Handshake::as_stranger).collect();
        let since = Instant::now();
        match self.limits.admit(&all, source, known, is_last) {
            Admission::Keep => {}
            Admission::Refuse => return,
            Admission::Replace(goes) => {
                warn_of_crowd(&mut self.crowd, LISTENER, all.len(), self.limits, since);
                self.all.swap_remove(goes);
            }
        }
        let fd = stream.as_raw_fd();
        let stage = match self.shared.config.transport {
            TargetTransport::Tcp => Tcp::new(stream, &self.shared.config).map(|tcp| {
                Stage::Tcp(Box::new(Connection::new(self.shared.clone(), port, Box::new(tcp), source, None)))
            }),
            #[cfg(feature = "shmem")]
            TargetTransport::Soft => stream.local_addr().ok().and_then(|reached| {
                let request = Box::new(Arriving::new(stream, peer.to_string(), INTRODUCTION).ok()?);
                Some(Stage::Soft { request, reached: reached.ip(), is_complete: false })
            }),
        };
        let Some(stage) = stage else { return };
        // A host has often sent its first bytes by now.
        self.all.extend(self.advanced(Handshake { stage, fd, peer, port, source, known, since }));
    }

    /// Does for each connection what can be done without waiting.
    pub(super) fn advance(&mut self) {
        let all = std::mem::take(&mut self.all);
        self.all = all.into_iter().filter_map(|h| self.advanced(h)).collect();
    }

    /// Returns the connection if it is still in handshake.
    fn advanced(&self, mut h: Handshake) -> Option<Handshake> {
        let port = &self.shared.ports[h.port];
        if !port.is_open() {
            return None;
        }
        if port.is_silent() {
            return Some(h);
        }
        match h.stage {
            Stage::Tcp(mut connection) => match connection.handshake() {
                Ok(false) => return Some(Handshake { stage: Stage::Tcp(connection), ..h }),
                Ok(true) => self.start(h.peer, move || connection::run(*connection, h.peer)),
                Err(End::Closed) => {}
                Err(End::Violation(error)) => {
                    connection.terminate(&error);
                    self.shared.warn_of_rejected(&h.peer, &error);
                }
            },
            #[cfg(feature = "shmem")]
            Stage::Soft { mut request, reached, .. } => match request.poll() {
                Ok(is_complete) => {
                    let slot = if is_complete { self.threads.take(h.source, h.known) } else { None };
                    let Some(slot) = slot else {
                        h.stage = Stage::Soft { request, reached, is_complete };
                        return Some(h);
                    };
                    let (work, source, port, peer) = (self.shared.clone(), h.source, h.port, h.peer);
                    self.start(peer, move || {
                        let Some(request) = request.into_request() else { return };
                        match SoftRdma::accept(&work, request, reached) {
                            Ok(rdma) => {
                                connection::run(Connection::new(work, port, Box::new(rdma), source, Some(slot)), peer)
                            }
                            Err(reason) => work.warn_of_rejected(&peer, &reason),
                        }
                    });
                }
                Err(error) => self.shared.warn_of_rejected(&h.peer, &error),
            },
        }
        None
    }

    /// Starts the thread of a connection.
    fn start(&self, peer: SocketAddr, run: impl FnOnce() + Send + 'static) {
        let mut connections = self.shared.connections.lock();
        connections.retain(|t| !t.is_finished());
        match std::thread::Builder::new().name("soft-target-queue".into()).spawn(run) {
            Ok(t) => connections.push(t),
            Err(error) => {
                let why = format!("no thread for it beside {} others: {error}; raise ulimit -u", connections.len());
                self.shared.warn_of_rejected(&peer, &why);
            }
        }
    }
}
