//! RDMA adapters whose send queues kernels fill, and RDMA devices as the kernel shows them: ports, addresses, and what decides how
//! their packets travel.
//!
//! [`Adapter`] is what all adapters look like to the rest, and [`open()`] opens one: an mlx5 NIC, whose doorbells kernels ring, or any
//! device by verbs calls of a CPU thread. [`QueueRings`] is what kernels share with an adapter; [`served`] is how a CPU thread takes an
//! adapter's place at those rings; [`Poster`] posts to them from the CPU.
//!
//! What describes devices reads files under `/sys` and `/etc` through [`Sysfs`](crate::pci::Sysfs), so it works on a recorded tree; on the
//! machine itself [`Bridging`] asks the kernel as well. That part opens no device and loads no library, and needs no rights.

mod adapter;
mod choice;
mod congestion;
mod connection;
mod dcb;
mod error;
mod gid;
mod library;
mod mlx5;
mod open;
mod port;
mod poster;
mod posting;
mod proxy;
mod queue_rings;
#[cfg(test)]
pub(crate) mod recorded;
mod scan;
pub mod served;
mod sys;
mod tclass;
mod trial;
mod verbs;

#[cfg(all(test, feature = "soft"))]
pub(crate) use mlx5::stand_in;

pub use crate::data_path::{Doorbell, DoorbellChoice, LandingPath, QueueMemory, UnknownWord};
pub use adapter::{Adapter, AdapterPath, MemoryRange, QueueAddress, QueuePair, Registration, Rights, Transport};
pub use choice::{ACK_TIMEOUT, Chosen, DeviceChoice, QueueChoice};
pub use congestion::{CongestionControl, CongestionCounters, PRIORITIES, Priorities};
pub use connection::{Endpoint, PathMtu, PortFacts, Route};
pub use dcb::Bridging;
pub use error::RdmaError;
pub use gid::{Gid, GidChoice, GidEntry, GidKind, ParseGidError, Reachability, choose_gid};
pub use library::VerbsLibrary;
pub use open::open;
pub use port::{LinkLayer, PhysicalState, Port, PortRate, PortState, roce_mtu};
pub use poster::{PostError, Poster};
pub use posting::{DirectPosting, Posting};
pub use queue_rings::{MAX_LOG_BLOCKS, QueuePlan, QueueRings};
pub use scan::{RdmaDevice, mlx5_model};
pub use tclass::{ClassOverride, TrafficClass};
pub use trial::{Trial, TrialStep, try_device};
