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

internal!(crate::data_path::{Doorbell, DoorbellChoice, LandingPath, QueueMemory, UnknownWord});
internal!(adapter::{Adapter, AdapterPath, MemoryRange, QueueAddress, QueuePair, Registration, Rights, Transport});
internal!(choice::{ACK_TIMEOUT, Chosen, DeviceChoice, QueueChoice, RecordChoice});
internal!(cm::DeviceConnectionManager);
internal!(congestion::{CongestionControl, CongestionCounters, PRIORITIES, Priorities});
internal!(connection::{Endpoint, PathMtu, PortFacts, Route});
internal!(connection_manager::{ConnectError, Connection, ConnectionManager, Destination});
internal!(dcb::Bridging);
internal!(error::RdmaError);
internal!(gid::{Gid, GidChoice, GidEntry, GidKind, ParseGidError, Reachability, choose_gid});
internal!(library::VerbsLibrary);
internal!(open::open);
internal!(port::{LinkLayer, PhysicalState, Port, PortRate, PortState, roce_mtu});
internal!(post::{PostRequests, UnconnectedSendQueue});
internal!(probe::{Probe, ProbeStep, try_device});
internal!(queue_rings::{MAX_LOG_BLOCKS, QueuePlan, QueueRings, ReceivePlan, ReceiveRings});
internal!(receive_queue::{CpuReceiveQueue, Message});
internal!(scan::{RdmaDevice, mlx5_model});
internal!(send_queue::{CpuSendQueue, PostError});
pub(crate) use stream_send_queue::StreamSendQueue;
internal!(tclass::{ClassOverride, TrafficClass});
