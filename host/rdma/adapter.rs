//! Interface of RDMA adapters. Three types implement it: an mlx5 NIC driven by kernels, a proxy in front of any verbs
//! device, and the software NIC. Worlds and benchmarks use it. Kernels see mlx5's layouts with every adapter.

use super::{QueuePlan, QueueRings, RdmaError, Route, UnconnectedSendQueue};
use crate::data_path::{Doorbell, LandingPath, QueueMemory};
use crate::memory::{MemoryError, Place, Region};
use crate::wire::mlx5::{Failure, Syndrome, VendorSyndrome};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::BitOr;
use std::ptr::NonNull;

/// Path of kernels' work requests to the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Transport {
    /// Kernels write the rings of an mlx5 NIC and its doorbell.
    Mlx5,
    /// Kernels write the same rings in host memory. A CPU thread translates the entries into verbs calls.
    Verbs,
    /// Kernels write the same rings. CPU threads carry out the entries.
    Soft,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mlx5 => "mlx5",
            Self::Verbs => "verbs",
            Self::Soft => "soft",
        })
    }
}

/// Access rights to registered memory. The owner's adapter may always read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// The owner's adapter may write results of reads and fetching atomics to it.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write. Needs `LOCAL_WRITE`.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(4);
    /// Peers may execute atomics on its words. Needs `LOCAL_WRITE`.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// Writes may become visible out of order: for data, never for signals.
    pub const RELAXED_ORDERING: Self = Self(16);
    /// All rights, with ordered writes.
    pub const ALL: Self = Self(15);

    /// Returns true if the set includes all rights of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Rights {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A memory range to register by address; see [`Adapter::register`].
#[derive(Clone, Copy, Debug)]
pub struct MemoryRange {
    /// Address as kernels see it and as work requests name it.
    pub address: u64,
    /// Length in bytes.
    pub bytes: usize,
    /// Address in this process; `None` for GPU memory.
    pub host: Option<NonNull<u8>>,
    /// Kind of memory. The host can also access [`Place::Device`] memory of a CPU engine.
    pub place: Place,
}

impl From<&Region> for MemoryRange {
    fn from(region: &Region) -> Self {
        Self { address: region.address(), bytes: region.len(), host: region.host(), place: region.place() }
    }
}

// SAFETY: an address and a length; adapters justify each access.
unsafe impl Send for MemoryRange {}
// SAFETY: an address and a length; adapters justify each access, from any thread.
unsafe impl Sync for MemoryRange {}

/// Registered memory. Dropping it invalidates its keys.
pub trait Registration: Send + Sync + fmt::Debug {
    /// Returns the address by which work requests name the first byte.
    fn address(&self) -> u64;
    /// Returns the key for this side's work requests.
    fn local_key(&self) -> u32;
    /// Returns the key for the peer's work requests.
    fn remote_key(&self) -> u32;
}

/// A registration and its memory. Fields are dropped in order: the registration first.
#[derive(Debug)]
struct OfRegion {
    inner: Box<dyn Registration>,
    _region: Region,
}

impl Registration for OfRegion {
    fn address(&self) -> u64 {
        self.inner.address()
    }
    fn local_key(&self) -> u32 {
        self.inner.local_key()
    }
    fn remote_key(&self) -> u32 {
        self.inner.remote_key()
    }
}

/// Connection data of a queue pair, as opaque bytes for the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueAddress(pub Vec<u8>);

/// A reliable connection whose send queue kernels drive. Dropping it closes the connection in any state, without
/// waiting for requests in flight. Its memory is freed last.
pub trait QueuePair: Send + Sync + fmt::Debug {
    /// Returns the 24-bit queue pair number.
    fn number(&self) -> u32;
    /// Returns the connection data that the peer needs.
    fn address(&self) -> QueueAddress;
    /// Connects the queue pair with the peer's, which may be this queue pair itself. May be called once after creation,
    /// and once after each reset.
    ///
    /// # Errors
    /// * [`RdmaError::Connect`] if the peer's address is invalid, the two ends cannot reach each other, or the adapter
    ///   rejects the connection.
    /// * [`RdmaError::Queue`] if the queue pair is closed.
    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError>;
    /// Connects the queue pair along a route that a connection manager has found, in place of [`Self::connect`].
    ///
    /// # Errors
    /// * [`RdmaError::Connect`] if no connection manager connects this adapter's queue pairs by routes, or the adapter
    ///   rejects the connection.
    /// * [`RdmaError::Queue`] if the queue pair is closed.
    fn connect_along(&mut self, route: &Route) -> Result<(), RdmaError> {
        let peer = format!("queue pair {:#x}", route.remote);
        let reason = "this adapter connects queue pairs by addresses of its own".to_owned();
        Err(RdmaError::Connect { number: self.number(), peer, reason })
    }
    /// Returns the rings, the doorbell record and the doorbell.
    fn memory(&self) -> &QueueRings;
    /// Returns the `wb_send_queue` flags that kernels must observe (`abi::SEND_*`).
    fn flags(&self) -> u32;
    /// Returns the reason of a failure as text for users; `None` if the queue pair works.
    fn failure(&self) -> Option<String>;
    /// Returns the failure in the first error completion; `None` if the queue pair works. Adapters that know no details
    /// return "flushed". Callers may poll this several times per second.
    fn fault(&self) -> Option<Failure> {
        self.failure().map(|_| Failure::new(Syndrome::FLUSHED, VendorSyndrome::FORCED_ERROR))
    }
    /// Flushes a failed queue pair and resets its counters to zero. It can then be connected again. The caller ensures
    /// that no kernel uses it.
    ///
    /// # Errors
    /// * [`RdmaError::Queue`] if the queue pair is closed or cannot be created again.
    /// * [`RdmaError::Memory`] if its memory cannot be cleared.
    /// * [`RdmaError::System`] if the driver or the firmware rejects a step.
    fn reset(&mut self) -> Result<(), RdmaError>;
}

/// Data path of an adapter's work requests, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AdapterPath {
    /// Kind of adapter.
    pub transport: Transport,
    /// Device and port: `mlx5_0 port 1`, `rxe0 port 1`, `soft nic`.
    pub device: String,
    /// Link and address: `RoCE v2 ::ffff:10.0.0.1 (index 3)  MTU 4096`, `Unix socket`, `tcp 10.0.0.1:4711`.
    pub link: String,
    /// Memory that holds rings and records.
    pub queues: QueueMemory,
    /// Memory that the device writes data to.
    pub landing: LandingPath,
    /// Writer of the doorbell.
    pub doorbell: Doorbell,
    /// Way of registering memory: `dma-buf`, `peermem`, `host`; with the reason if a better one failed.
    pub registration: String,
    /// Reason why the preferred path is not available.
    pub note: Option<String>,
}

impl AdapterPath {
    /// Creates a path with the given transport and device, and defaults for all other fields.
    pub fn new(transport: Transport, device: impl Into<String>) -> Self {
        Self {
            transport,
            device: device.into(),
            link: String::new(),
            queues: QueueMemory::Host,
            landing: LandingPath::Direct,
            doorbell: Doorbell::Cpu,
            registration: "host".to_owned(),
            note: None,
        }
    }
}

impl fmt::Display for AdapterPath {
    /// Writes `soft soft nic (Unix socket)  queues host  landing direct  doorbell gpu  registration host`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, device, link, queues, landing, doorbell, registration, .. } = self;
        write!(f, "{transport} {device}")?;
        if !link.is_empty() {
            write!(f, " ({link})")?;
        }
        write!(f, "  queues {queues}  landing {landing}  doorbell {doorbell}  registration {registration}")
    }
}

/// Checks that adapters reach the region. Called before any attempt to register it, whose error would not name the kind of
/// memory.
pub(super) fn check_reach(region: &Region) -> Result<(), RdmaError> {
    region.reaches_devices().map_err(|e| match e {
        MemoryError::NotReachable { pointer: address, bytes, cause, next } => {
            RdmaError::Registration { address, bytes, reason: format!("{cause}; {next}") }
        }
        e => e.into(),
    })
}

/// An RDMA adapter.
pub trait Adapter: Send + Sync + fmt::Debug {
    /// Returns the adapter's device and data path.
    fn path(&self) -> AdapterPath;
    /// Registers memory with the adapter.
    ///
    /// # Errors
    /// [`RdmaError::Registration`] if the adapter cannot reach the memory, the range is empty, or the rights are
    /// inconsistent.
    ///
    /// # Safety
    /// The range must be valid for reads and writes until the registration is dropped.
    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError>;
    /// Registers a region with the adapter. The registration keeps the region alive.
    ///
    /// # Errors
    /// [`RdmaError::Registration`] also for imported memory of a kind that devices do not reach; otherwise as for
    /// [`Adapter::register`].
    fn register_region(&self, region: &Region, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        check_reach(region)?;
        // SAFETY: the region lives as long as the returned registration, and is dropped after it.
        let inner = unsafe { self.register(region.into(), rights) }?;
        Ok(Box::new(OfRegion { inner, _region: region.clone() }))
    }
    /// Creates a queue pair that is not connected yet.
    ///
    /// # Errors
    /// * [`RdmaError::Queue`] if the adapter does not support the plan's ring size or place.
    /// * [`RdmaError::Memory`] if the rings cannot be allocated.
    /// * [`RdmaError::Registration`] if the adapter cannot register the rings.
    /// * [`RdmaError::Unavailable`] if the driver has no doorbell register left.
    /// * [`RdmaError::System`] if the driver or the firmware rejects a step.
    fn create(&self, plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError>;
    /// Creates a queue pair without rings, to which the calling thread posts by verbs calls. At most `requests`
    /// requests can be in flight. Returns `None` if the adapter has no verbs calls.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device rejects the queue pair.
    fn create_direct(&self, requests: u32) -> Result<Option<Box<dyn UnconnectedSendQueue>>, RdmaError> {
        let _ = requests;
        Ok(None)
    }
}
