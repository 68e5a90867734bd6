//! A software target: exports a device to other machines by NVMe over TCP, or over RDMA with software NICs, with strict checks and injected faults.
//!
//! ```
//! use warpbell::nvme::fabrics::FabricsConfig;
//! use warpbell::remote;
//! use warpbell::soft::target::{Target, TargetConfig};
//! use warpbell::storage::Drive;
//!
//! let exported = Drive::open("soft:mem:1M,threads=1")?;
//! let target = Target::start(exported.controller(), TargetConfig::new("nqn.2026-01.org.example:a"))?;
//! let config = FabricsConfig::tcp("127.0.0.1", target.address().port(), "nqn.2026-01.org.example:a");
//! let drive = Drive::attach(remote::connect(&config)?.attachment(), None)?;
//! assert_eq!(drive.bytes(), 1 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads and memory
//!
//! One thread accepts connections at all ports and reads from them until their Connect is accepted, within limits (`handshakes.rs`).
//! From then on each connection has a thread. Over RDMA it has one once its connection request has arrived. An I/O connection has a queue
//! pair of the device, with buffers for all commands of its queue. All threads end when the target is dropped.
//!
//! # Access
//!
//! There is neither authentication nor encryption: whoever reaches the address can read and write the device. The
//! default address is that of the loopback interface.

mod accept;
mod admin;
mod config;
mod connection;
mod handshakes;
mod host;
mod identify;
#[cfg(feature = "shmem")]
mod initiator;
mod io;
mod ports;
#[cfg(feature = "shmem")]
mod rdma;
mod tcp;
#[cfg(test)]
mod tests;
mod transport;

pub use config::{TargetConfig, TargetTransport};
internal!(config::TargetFaults);
#[cfg(all(feature = "shmem", feature = "internals"))]
pub use initiator::check;
#[cfg(feature = "shmem")]
internal!(initiator::connect);

use crate::listener::{KnownSources, NEXT_STEP, Seldom, Slots};
use crate::nvme::{Controller, Namespace, NvmeError, Ready};
#[cfg(feature = "internals")]
use crate::wire::nvme::ana::AccessState;
use host::RemoteHost;
use parking_lot::Mutex;
use ports::TargetPort;
use std::collections::BTreeMap;
#[cfg(feature = "shmem")]
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest sleep of a thread of the target, after which it checks whether the target ends.
const NAP: Duration = Duration::from_millis(20);

/// Error of starting a target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The configuration violates a limit.
    #[error("software target: {reason}")]
    Config {
        /// The violated limit, and the valid range.
        reason: String,
    },
    /// The address cannot be listened at.
    #[error("software target: {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The device does not report its namespaces.
    #[error(transparent)]
    Device(#[from] NvmeError),
}

/// NICs of hosts, by their keys and the addresses that the hosts connected to.
#[cfg(feature = "shmem")]
type HostNics = BTreeMap<([u8; 32], IpAddr), std::sync::Weak<super::nic::SoftNic>>;

/// State that the threads share.
pub(super) struct Shared {
    pub(super) config: TargetConfig,
    ports: Vec<TargetPort>,
    pub(super) device: Arc<Controller<Ready>>,
    pub(super) namespaces: BTreeMap<u32, Namespace>,
    /// Hosts with an association, by controller identifier.
    hosts: Mutex<BTreeMap<u16, Arc<RemoteHost>>>,
    pub(super) next_controller: Mutex<u16>,
    pub(super) commands: AtomicU64,
    reads: AtomicU64,
    responses: AtomicU64,
    commands_with_data: AtomicU64,
    keep_alives: AtomicU64,
    stop: AtomicBool,
    connections: Mutex<Vec<JoinHandle<()>>>,
    /// Sources of hosts whose Connect was accepted.
    known: Mutex<KnownSources>,
    /// Slots of connections whose Connect was accepted.
    connected: Slots,
    rejected: Mutex<Seldom>,
    #[cfg(feature = "shmem")]
    nics: Mutex<HostNics>,
}

impl Shared {
    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Warns of a connection that was rejected, or ended by an error of the host, at most every ten seconds.
    fn warn_of_rejected(&self, from: &dyn std::fmt::Display, why: &dyn std::fmt::Display) {
        if let Some(before) = self.rejected.lock().due(Instant::now()) {
            let connected = self.connected.taken();
            tracing::warn!(
                "a connection from {from} was rejected: {why}; {connected} are connected, and {before} others were rejected since the last \
                 such message; if {from} is no host of this target, {NEXT_STEP}"
            );
        }
    }
}

/// A running target.
pub struct Target {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    /// Exports all namespaces of a device that this driver can use.
    ///
    /// # Errors
    /// - [`TargetError::Config`] if a limit is violated, or the device has no namespace that can be used.
    /// - [`TargetError::Device`] if the device does not report its namespaces.
    /// - [`TargetError::Listen`] if the address cannot be listened at.
    pub fn start(device: &Arc<Controller<Ready>>, config: TargetConfig) -> Result<Self, TargetError> {
        if let Some(reason) = config.complaint() {
            return Err(TargetError::Config { reason });
        }
        let mut namespaces = BTreeMap::new();
        for nsid in device.namespaces()? {
            match device.namespace(nsid) {
                Ok(n) => drop(namespaces.insert(nsid, n)),
                Err(NvmeError::Format { reason, .. }) => {
                    tracing::warn!(device = device.name(), nsid, reason, "the namespace is not exported");
                }
                Err(e) => return Err(e.into()),
            }
        }
        if namespaces.is_empty() {
            let reason = format!("{} has no namespace that can be exported", device.name());
            return Err(TargetError::Config { reason });
        }
        let addresses = std::iter::once(&config.listen).chain(&config.more_ports);
        let listening = addresses.map(|a| TargetPort::listen(*a)).collect::<Result<Vec<_>, _>>()?;
        let (ports, listeners) = listening.into_iter().unzip();
        let shared = Arc::new(Shared {
            device: device.clone(),
            namespaces,
            ports,
            hosts: Mutex::default(),
            next_controller: Mutex::new(1),
            commands: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            responses: AtomicU64::new(0),
            commands_with_data: AtomicU64::new(0),
            keep_alives: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            connections: Mutex::default(),
            known: Mutex::default(),
            connected: handshakes::connected(),
            rejected: Mutex::default(),
            #[cfg(feature = "shmem")]
            nics: Mutex::default(),
            config,
        });
        let work = shared.clone();
        let thread =
            std::thread::Builder::new().name("soft-target".into()).spawn(move || accept::accept(&work, listeners));
        let thread = thread.map_err(|source| TargetError::Listen { address: shared.ports[0].address, source })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the address of the first port.
    pub fn address(&self) -> SocketAddr {
        self.shared.ports[0].address
    }

    /// Returns the addresses of all ports. Other functions take the index of a port in this list.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.shared.ports.iter().map(|p| p.address).collect()
    }

    /// Sets the state in which a port reaches the namespaces (ANA), and notifies its hosts. Hosts of a target with one
    /// port see the status of their commands alone. Has no effect if there is no such port.
    #[cfg(feature = "internals")]
    pub fn set_access(&self, port: usize, state: AccessState) {
        if let Some(port) = self.shared.ports.get(port) {
            port.set_access(state);
        }
    }

    /// Closes a port: its connections end, and nothing listens at its address. Has no effect if there is no such port.
    #[cfg(feature = "internals")]
    pub fn close_port(&self, port: usize) {
        if let Some(port) = self.shared.ports.get(port) {
            port.set_open(false);
        }
    }

    /// Opens a port that was closed. It listens soon after. Has no effect if there is no such port.
    #[cfg(feature = "internals")]
    pub fn open_port(&self, port: usize) {
        if let Some(port) = self.shared.ports.get(port) {
            port.set_open(true);
        }
    }

    /// Returns the number of hosts with an association.
    #[cfg(feature = "internals")]
    pub fn hosts(&self) -> usize {
        self.shared.hosts.lock().len()
    }

    /// Returns the number of I/O commands that arrived since the start.
    #[cfg(feature = "internals")]
    pub fn commands(&self) -> u64 {
        self.shared.commands.load(Ordering::Relaxed)
    }

    /// Returns the number of I/O commands whose data came in their capsules, since the start.
    #[cfg(feature = "internals")]
    pub fn commands_with_data(&self) -> u64 {
        self.shared.commands_with_data.load(Ordering::Relaxed)
    }

    /// Returns the number of Keep Alive commands that arrived since the start.
    #[cfg(feature = "internals")]
    pub fn keep_alives(&self) -> u64 {
        self.shared.keep_alives.load(Ordering::Relaxed)
    }

    /// Closes all connections, as a target that dies does. It still accepts new ones.
    #[cfg(feature = "internals")]
    pub fn close_connections(&self) {
        self.shared.hosts.lock().values().for_each(|h| h.close());
    }

    /// Sends nothing for this time, as if the network was cut.
    #[cfg(feature = "internals")]
    pub fn be_silent(&self, time: Duration) {
        self.shared.ports.iter().for_each(|p| p.be_silent(time));
    }

    /// Sends nothing by one port for this time, as if its network was cut. Has no effect if there is no such port.
    #[cfg(feature = "internals")]
    pub fn cut_port(&self, port: usize, time: Duration) {
        if let Some(port) = self.shared.ports.get(port) {
            port.be_silent(time);
        }
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({} at {})", self.shared.config.subsystem, self.address())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let threads = std::mem::take(&mut *self.shared.connections.lock());
        for t in self.thread.take().into_iter().chain(threads) {
            // Each thread looks at the flag every few milliseconds. A panic was reported by its thread.
            let _ = t.join();
        }
    }
}
