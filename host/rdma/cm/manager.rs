//! Connection manager for connections through the RDMA device on the route to an address.

use super::event::{Kind, ended, failure};
use super::identifier::CmIdentifier;
use super::{Event, Identifier, Request};
use crate::addresses::Addresses;
use crate::idle;
use crate::memory::Space;
use crate::pci::Sysfs;
use crate::rdma::{
    Adapter, AdapterPath, ConnectError, Connection, ConnectionManager, Destination, DeviceChoice, Endpoint, Gid,
    GidKind, QueuePair, RdmaDevice, RdmaError, Transport, open,
};
use parking_lot::Mutex;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest private data of a request in bytes: what the IP addresses in it leave (InfiniBand Architecture 1.7, annex
/// A11).
pub(super) const MOST_PRIVATE: usize = 56;

/// Device and port that reach an address, and the GID from which they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalEnd {
    pub device: String,
    pub port: u8,
    pub gid: Gid,
}

impl LocalEnd {
    /// Returns the index of the GID in the port's table; `None` if the kernel shows no such entry. Of two entries with
    /// the same GID the connection manager takes that of RoCE v2 by default.
    fn gid_index(&self, devices: &[RdmaDevice]) -> Option<u32> {
        let ports = &devices.iter().find(|d| d.name == self.device)?.ports;
        let gids = &ports.iter().find(|p| p.number == u32::from(self.port))?.gids;
        let same = || gids.iter().filter(|e| e.gid == self.gid);
        same().find(|e| e.kind == Some(GidKind::RoceV2)).or_else(|| same().next()).map(|e| e.index)
    }
}

impl fmt::Display for LocalEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {} (GID {})", self.device, self.port, self.gid)
    }
}

/// Connection manager of RDMA devices. Its adapter is that of the device on the route to the address that it was opened
/// for. It connects to all addresses that this device reaches by the same port.
#[derive(Debug)]
pub struct DeviceConnectionManager {
    place: LocalEnd,
    chosen: ChosenAdapter,
    addresses: Addresses,
}

/// An adapter, and the reason why kernels do not drive the mlx5 NIC.
#[derive(Debug)]
pub(super) struct ChosenAdapter {
    pub adapter: Arc<dyn Adapter>,
    pub declined: Option<String>,
}

impl ChosenAdapter {
    /// Opens the first adapter that is available, in the order of worlds: `mlx5` for devices that it supports, then
    /// `verbs`. With `only`, no other is tried.
    ///
    /// # Errors
    /// That of the last adapter.
    pub fn open(
        only: Option<Transport>,
        is_mlx5: bool,
        open: impl Fn(Transport) -> Result<Box<dyn Adapter>, RdmaError>,
    ) -> Result<Self, RdmaError> {
        let mut declined = None;
        if only.is_none() && is_mlx5 {
            match open(Transport::Mlx5) {
                Ok(adapter) => return Ok(Self { adapter: adapter.into(), declined }),
                Err(error) => {
                    tracing::debug!(%error, "kernels do not drive the NIC; a thread makes verbs calls for them");
                    declined = Some(error.to_string());
                }
            }
        }
        Ok(Self { adapter: open(only.unwrap_or(Transport::Verbs))?.into(), declined })
    }

    /// Returns the adapter's path with the reason.
    pub fn path(&self) -> AdapterPath {
        let mut path = self.adapter.path();
        let notes: Vec<String> = self.declined.iter().cloned().chain(path.note).collect();
        path.note = (!notes.is_empty()).then(|| notes.join("; "));
        path
    }
}

impl DeviceConnectionManager {
    /// Finds the RDMA device on the route to an address, and opens it. `adapter` is [`Transport::Mlx5`] or
    /// [`Transport::Verbs`]; `None` takes the first of them that is available. `limit` bounds the search.
    ///
    /// # Errors
    /// * [`ConnectError::Unreachable`] if the name has no address, or no RDMA device is on the route to it.
    /// * [`ConnectError::TimedOut`] if the search takes too long.
    /// * [`ConnectError::Protocol`] if the connection manager reports another event.
    /// * [`ConnectError::Rdma`] if librdmacm is missing, or the device cannot be opened with this adapter.
    pub fn new(to: Destination<'_>, adapter: Option<Transport>, limit: Duration) -> Result<Self, ConnectError> {
        let (peer, deadline) = (to.to_string(), Deadline::new(limit));
        let unreachable = |source| ConnectError::Unreachable { peer: peer.clone(), source };
        let mut last = unreachable(ErrorKind::NotFound.into());
        for address in (to.host, to.port).to_socket_addrs().map_err(unreachable)? {
            match find(&mut CmIdentifier::new()?, &peer, address, deadline) {
                Ok(place) => {
                    let devices = RdmaDevice::all(&Sysfs::system());
                    let choice = DeviceChoice {
                        device: Some(place.device.clone()),
                        port: Some(place.port.into()),
                        gid_index: place.gid_index(&devices),
                        ..DeviceChoice::default()
                    };
                    let is_mlx5 = devices.iter().any(|d| d.name == place.device && d.is_mlx5());
                    let space = Space::cpu();
                    let chosen = ChosenAdapter::open(adapter, is_mlx5, |kind| open(kind, &choice, &space))?;
                    return Ok(Self { place, chosen, addresses: Addresses::default() });
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Returns the reason why kernels do not drive the device, if it is an mlx5 NIC and no adapter was requested.
    #[cfg(feature = "internals")]
    pub fn declined(&self) -> Option<&str> {
        self.chosen.declined.as_deref()
    }
}

/// Limit of a connection, and the time at which it expires.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    since: Instant,
    limit: Duration,
}

impl Deadline {
    pub fn new(limit: Duration) -> Self {
        Self { since: Instant::now(), limit }
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.since.elapsed())
    }
}

/// Waits for an event of this kind. The descriptor is polled anew at least every second.
fn expect(id: &mut impl Identifier, peer: &str, wanted: Kind, deadline: Deadline) -> Result<Event, ConnectError> {
    loop {
        let next = id.next().map_err(|e| ConnectError::Protocol {
            peer: peer.to_owned(),
            reason: format!("reading events of the connection manager: {e}"),
        })?;
        match next {
            Some(event) if event.kind == wanted && event.status == 0 => return Ok(event),
            Some(event) => return Err(failure(peer, event, deadline.since.elapsed())),
            None => {}
        }
        let left = deadline.left();
        if left.is_zero() {
            return Err(ConnectError::TimedOut { peer: peer.to_owned(), waited: deadline.limit });
        }
        idle::wait(&[(id.descriptor(), false)], left.min(Duration::from_secs(1)));
    }
}

/// Finds the device and the port on the route to an address.
pub(super) fn find(
    id: &mut impl Identifier,
    peer: &str,
    address: SocketAddr,
    deadline: Deadline,
) -> Result<LocalEnd, ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { peer: peer.to_owned(), source };
    id.resolve_address(address, deadline.left()).map_err(unreachable)?;
    expect(id, peer, Kind::ADDRESS_RESOLVED, deadline)?;
    id.local_end().ok_or_else(|| unreachable(io::Error::from_raw_os_error(libc::ENODEV)))
}

/// An address, and the end of connections to it on this side.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenRoute<'a> {
    pub address: SocketAddr,
    pub place: &'a LocalEnd,
    pub transport: Transport,
}

/// Connects a queue pair of the adapter at `place`. Returns the private data of the acceptance.
pub(super) fn connect(
    id: &mut impl Identifier,
    peer: &str,
    to: OpenRoute<'_>,
    queue: &mut dyn QueuePair,
    private: &[u8],
    deadline: Deadline,
) -> Result<Vec<u8>, ConnectError> {
    let refused = |reason: String| ConnectError::Protocol { peer: peer.to_owned(), reason };
    if private.len() > MOST_PRIVATE {
        return Err(refused(format!("{} bytes of private data; the limit is {MOST_PRIVATE}", private.len())));
    }
    let OpenRoute { address, place, transport } = to;
    let found = find(id, peer, address, deadline)?;
    // Attributes of a queue pair have its GID; another one of the same port serves as well.
    if (&found.device, found.port) != (&place.device, place.port) {
        let reason = format!("the route to {address} goes through {found}, and the open device is {place}");
        return Err(RdmaError::Unavailable { transport, reason }.into());
    }
    let unreachable = |source| ConnectError::Unreachable { peer: peer.to_owned(), source };
    id.resolve_route(deadline.left()).map_err(unreachable)?;
    expect(id, peer, Kind::ROUTE_RESOLVED, deadline)?;
    let own = Endpoint::from_address(&queue.address(), queue.number())?;
    id.request(Request { private, queue: queue.number(), reads_in: own.reads_in }).map_err(unreachable)?;
    let response = expect(id, peer, Kind::RESPONSE, deadline)?;
    queue.connect_along(&id.route()?)?;
    id.establish().map_err(|e| refused(format!("completing the connection: {e}")))?;
    Ok(response.private)
}

impl ConnectionManager for DeviceConnectionManager {
    fn adapter(&self) -> &Arc<dyn Adapter> {
        &self.chosen.adapter
    }

    fn path(&self) -> AdapterPath {
        self.chosen.path()
    }

    fn connect(
        &self,
        to: Destination<'_>,
        queue: &mut dyn QueuePair,
        private: &[u8],
        limit: Duration,
    ) -> Result<(Box<dyn Connection>, Vec<u8>), ConnectError> {
        let (peer, deadline) = (to.to_string(), Deadline::new(limit));
        let transport = self.chosen.adapter.path().transport;
        let unreachable = |source| ConnectError::Unreachable { peer: peer.clone(), source };
        // After such an error the queue pair is as it was: it changes after the reply alone.
        let goes_on = |e: &ConnectError| matches!(e, ConnectError::Unreachable { .. });
        self.addresses.connect(to.host, to.port, unreachable, goes_on, |address| {
            let mut id = CmIdentifier::new()?;
            let route = OpenRoute { address, place: &self.place, transport };
            let private = connect(&mut id, &peer, route, queue, private, deadline)?;
            Ok((Box::new(Established::new(id)) as Box<dyn Connection>, private))
        })
    }
}

/// An established connection.
#[derive(Debug)]
pub(super) struct Established<I> {
    descriptor: RawFd,
    state: Mutex<(I, Option<String>)>,
}

impl<I: Identifier> Established<I> {
    pub(super) fn new(id: I) -> Self {
        Self { descriptor: id.descriptor(), state: Mutex::new((id, None)) }
    }
}

impl<I: Identifier> Connection for Established<I> {
    fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    fn ended(&self) -> Option<String> {
        let (id, reason) = &mut *self.state.lock();
        while reason.is_none() {
            match id.next() {
                Ok(None) => break,
                Ok(Some(event)) => *reason = ended(event.kind).map(str::to_owned),
                Err(e) => *reason = Some(format!("reading events of the connection manager: {e}")),
            }
        }
        reason.clone()
    }
}
