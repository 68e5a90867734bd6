//! The seam between an RDMA adapter and the rest: an mlx5 NIC driven by kernels, a proxy in front of any verbs device, and the
//! software NIC all look like this. Above it are worlds and benchmarks; the layouts that kernels see are mlx5's in every case.

use super::{QueuePlan, QueueRings, RdmaError, UnconnectedSendQueue};
use crate::data_path::{Doorbell, LandingPath, QueueMemory};
use crate::memory::{Place, Region};
use crate::wire::mlx5::{Failure, Syndrome, VendorSyndrome};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::BitOr;
use std::ptr::NonNull;

/// How work requests of kernels get to the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Transport {
    /// Kernels write the rings of an mlx5 NIC and ring its doorbell.
    Mlx5,
    /// Kernels write the same rings in host memory; a CPU thread makes verbs calls of them.
    Verbs,
    /// Kernels write the same rings; CPU threads carry them out.
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

/// What others may do with registered memory. The owner's adapter may always read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// What reads and fetching atomics bring may land there.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Others write. Needs `LOCAL_WRITE`.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Others read.
    pub const REMOTE_READ: Self = Self(4);
    /// Others change words of it. Needs `LOCAL_WRITE`.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// Writes may be seen out of their order: for data, never for signals.
    pub const RELAXED_ORDERING: Self = Self(16);
    /// Everything, in order.
    pub const ALL: Self = Self(15);

    /// Whether all of `other` are among them.
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

/// Memory to register by its address; see [`Adapter::register`].
#[derive(Clone, Copy, Debug)]
pub struct MemoryRange {
    /// As kernels see it; what work requests name.
    pub address: u64,
    /// How long.
    pub bytes: usize,
    /// Where the host finds it; `None`: it is in GPU memory.
    pub host: Option<NonNull<u8>>,
    /// Which memory it is: a CPU engine's [`Place::Device`] is found by the host too.
    pub place: Place,
}

impl From<&Region> for MemoryRange {
    fn from(region: &Region) -> Self {
        Self { address: region.address(), bytes: region.len(), host: region.host(), place: region.place() }
    }
}

// SAFETY: an address and a length; what is done with them is for the adapter to justify.
unsafe impl Send for MemoryRange {}
// SAFETY: as above.
unsafe impl Sync for MemoryRange {}

/// Registered memory. Dropped, its keys are worth nothing.
pub trait Registration: Send + Sync + fmt::Debug {
    /// What work requests name its first byte by.
    fn address(&self) -> u64;
    /// For this side's work requests.
    fn local_key(&self) -> u32;
    /// For the other side's.
    fn remote_key(&self) -> u32;
}

/// A registration and its memory, in the order in which they go.
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

/// What the other side needs to connect, as bytes to hand over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueAddress(pub Vec<u8>);

/// A reliable connection whose send queue kernels drive. Dropped, it is closed, whatever state it is in, without waiting for
/// what is under way; its memory goes last.
pub trait QueuePair: Send + Sync + fmt::Debug {
    /// Its 24-bit number.
    fn number(&self) -> u32;
    /// For the other side.
    fn address(&self) -> QueueAddress;
    /// Connects it with the other side's queue pair (which may be itself). Once.
    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError>;
    /// Rings, records, doorbell.
    fn memory(&self) -> &QueueRings;
    /// `wb_send_queue` flags that kernels must go by (`abi::SEND_*`).
    fn flags(&self) -> u32;
    /// Why it has failed, if it has: for people.
    fn failure(&self) -> Option<String>;
    /// What its first error completion says, if it has failed; "flushed" where the adapter tells no more than that it has. May be asked
    /// several times in a second.
    fn fault(&self) -> Option<Failure> {
        self.failure().map(|_| Failure::new(Syndrome::FLUSHED, VendorSyndrome::FORCED_ERROR))
    }
    /// After a failure: flushes it, and makes it ready to be connected again, with its counters at zero. The caller sees to it that no
    /// kernel uses it.
    fn reset(&mut self) -> Result<(), RdmaError>;
}

/// Which way an adapter's work requests go, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AdapterPath {
    /// Transport.
    pub transport: Transport,
    /// `mlx5_0 port 1`, `rxe0 port 1`, `soft nic`.
    pub device: String,
    /// `RoCE v2 ::ffff:10.0.0.1 (index 3)  MTU 4096`, `Unix socket`, `tcp 10.0.0.1:4711`.
    pub link: String,
    /// Memory that holds rings and records.
    pub queues: QueueMemory,
    /// Memory that the device writes the data to.
    pub landing: LandingPath,
    /// The part that rings.
    pub doorbell: Doorbell,
    /// How memory was registered: `dma-buf`, `peermem`, `host`; and why not better.
    pub registration: String,
    /// Why the first choice was not to be had.
    pub note: Option<String>,
}

impl AdapterPath {
    /// A path of which nothing but this is known yet.
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
    /// `soft soft nic (Unix socket)  queues host  landing direct  doorbell gpu  registration host`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, device, link, queues, landing, doorbell, registration, .. } = self;
        write!(f, "{transport} {device}")?;
        if !link.is_empty() {
            write!(f, " ({link})")?;
        }
        write!(f, "  queues {queues}  landing {landing}  doorbell {doorbell}  registration {registration}")
    }
}

/// An RDMA adapter.
pub trait Adapter: Send + Sync + fmt::Debug {
    /// What it is, and which way work requests go.
    fn path(&self) -> AdapterPath;
    /// Makes memory known to it.
    ///
    /// # Errors
    /// [`RdmaError::Registration`] for memory that it does not reach, and for rights that do not go together.
    ///
    /// # Safety
    /// The range must be valid for reads and writes until the registration is dropped.
    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError>;
    /// Makes a region known to it; the registration keeps the region.
    ///
    /// # Errors
    /// As [`Adapter::register`].
    fn register_region(&self, region: &Region, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        // SAFETY: the region lives as long as the registration that is returned, and goes after it.
        let inner = unsafe { self.register(region.into(), rights) }?;
        Ok(Box::new(OfRegion { inner, _region: region.clone() }))
    }
    /// A queue pair that is not connected yet.
    fn create(&self, plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError>;
    /// A queue pair without rings that the calling thread posts to by verbs calls, so many requests at once; `None` where there are no
    /// such calls.
    fn create_direct(&self, requests: u32) -> Result<Option<Box<dyn UnconnectedSendQueue>>, RdmaError> {
        let _ = requests;
        Ok(None)
    }
}
