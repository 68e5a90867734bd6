//! RDMA devices as the kernel shows them: ports, addresses, and what decides how their packets travel.
//!
//! Everything here reads files under `/sys` and `/etc` through [`Sysfs`](crate::pci::Sysfs): no device is opened and no library
//! is loaded, so it works on a recorded tree and without any rights.

mod congestion;
mod gid;
mod library;
mod port;
#[cfg(test)]
pub(crate) mod recorded;
mod scan;
mod tclass;

pub use congestion::{CongestionControl, CongestionCounters, PRIORITIES, Priorities};
pub use gid::{Gid, GidChoice, GidEntry, GidKind, ParseGidError, Reachability, choose_gid};
pub use library::VerbsLibrary;
pub use port::{LinkLayer, PhysicalState, Port, PortRate, PortState, roce_mtu};
pub use scan::{RdmaDevice, mlx5_model};
pub use tclass::{ClassOverride, TrafficClass};
