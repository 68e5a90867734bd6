//! RDMA adapters whose send queues kernels fill, and a description of RDMA devices from the kernel's files: ports,
//! addresses, traffic class, priorities, congestion control.
//!
//! [`Adapter`] is the interface of all adapters. [`open()`] opens one of two: an mlx5 NIC, whose doorbells kernels
//! write, or any verbs device, which a CPU thread drives. [`QueueRings`] is the memory that kernels share with an
//! adapter. [`ring_service`] lets a CPU thread take an adapter's place at those rings. [`CpuSendQueue`] posts to them
//! from the CPU.
//!
//! The description reads files under `/sys` and `/etc` through [`Sysfs`](crate::pci::Sysfs), so it also works on a
//! fixture tree. On the machine itself [`Bridging`] queries the kernel as well. This part opens no device, loads no
//! library and needs no privileges.

mod adapter;
mod choice;
mod cm;
mod congestion;
mod connection;
mod connection_manager;
mod dcb;
mod error;
mod failure;
#[cfg(test)]
pub(crate) mod fixture;
mod gid;
mod library;
mod mlx5;
mod open;
mod port;
mod post;
mod probe;
mod proxy;
mod queue_rings;
mod receive_queue;
pub mod ring_service;
mod scan;
mod send_entries;
mod send_queue;
mod stream_send_queue;
mod sys;
mod tclass;
mod verbs;

#[cfg(all(test, feature = "soft"))]
pub(crate) use mlx5::stand_in;

pub use crate::data_path::{Doorbell, DoorbellChoice, LandingPath, QueueMemory, UnknownWord};
pub use adapter::{Adapter, AdapterPath, MemoryRange, QueueAddress, QueuePair, Registration, Rights, Transport};
pub use choice::{ACK_TIMEOUT, Chosen, DeviceChoice, QueueChoice, RecordChoice};
pub use cm::DeviceConnectionManager;
pub use congestion::{CongestionControl, CongestionCounters, PRIORITIES, Priorities};
pub use connection::{Endpoint, PathMtu, PortFacts, Route};
pub use connection_manager::{ConnectError, Connection, ConnectionManager, Destination};
pub use dcb::Bridging;
pub use error::RdmaError;
pub use gid::{Gid, GidChoice, GidEntry, GidKind, ParseGidError, Reachability, choose_gid};
pub use library::VerbsLibrary;
pub use open::open;
pub use port::{LinkLayer, PhysicalState, Port, PortRate, PortState, roce_mtu};
pub use post::{PostRequests, UnconnectedSendQueue};
pub use probe::{Probe, ProbeStep, try_device};
pub use queue_rings::{MAX_LOG_BLOCKS, QueuePlan, QueueRings, ReceivePlan, ReceiveRings};
pub use receive_queue::{CpuReceiveQueue, Message};
pub use scan::{RdmaDevice, mlx5_model};
pub use send_queue::{CpuSendQueue, PostError};
pub(crate) use stream_send_queue::StreamSendQueue;
pub use tclass::{ClassOverride, TrafficClass};
