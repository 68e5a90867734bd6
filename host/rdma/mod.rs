//! RDMA devices as the kernel shows them: ports, addresses, and what decides how their packets travel.
//!
//! Everything here reads files under `/sys` and `/etc` through [`Sysfs`](crate::pci::Sysfs), so it works on a recorded tree; on the
//! machine itself [`Bridging`] asks the kernel as well. No device is opened and no library is loaded: no rights are needed.

mod congestion;
mod dcb;
mod gid;
mod library;
mod port;
#[cfg(test)]
pub(crate) mod recorded;
mod scan;
mod tclass;

pub use congestion::{CongestionControl, CongestionCounters, PRIORITIES, Priorities};
pub use dcb::Bridging;
pub use gid::{Gid, GidChoice, GidEntry, GidKind, ParseGidError, Reachability, choose_gid};
pub use library::VerbsLibrary;
pub use port::{LinkLayer, PhysicalState, Port, PortRate, PortState, roce_mtu};
pub use scan::{RdmaDevice, mlx5_model};
pub use tclass::{ClassOverride, TrafficClass};
