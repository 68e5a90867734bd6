//! NVMe over Fabrics: the protocol that a host speaks with controllers of other machines, and its transport TCP. The bridge
//! that makes such a controller one for the driver is above this module, and so are other transports.
//!
//! # Loss of the connection
//!
//! A connection is lost when TCP ends it, when Keep Alive gets no response within its time-out, or when the target
//! violates the protocol. Commands in flight then complete with the status Host Pathing Error. The outcome of a write
//! among them is unknown. New commands wait while the association is established again, every
//! [`FabricsConfig::reconnect_delay`]. Their deadlines still apply. After [`FabricsConfig::controller_loss`] all
//! commands fail with Host Pathing Error, and registers tell the cause. A reset of the controller
//! ([`Controller::reset`](super::Controller::reset)) connects again at once.
//!
//! # Several ports
//!
//! [`FabricsConfig::more_ports`] names further ports of the subsystem. One of them is in use at a time. When it is lost,
//! or when its controller reports that the namespace is not accessible any more (ANA), the association ends, as at a
//! loss, and the next port is tried at once.
//!
//! # Modules
//!
//! Only `tcp` knows the transport. `link` is the interface that a transport implements; `commands`, `queue` and
//! `association` have the rules that all transports share.

mod access;
mod association;
mod commands;
mod config;
#[cfg(feature = "internals")]
mod discover;
mod driver_memory;
mod error;
mod host_identity;
mod link;
mod paths;
mod queue;
mod tcp;

pub(crate) use access::{Access, Established, read_log};
pub(crate) use association::Association;
pub(crate) use commands::{Command, Commands, Direction, Finished, Place};
#[cfg(feature = "internals")]
pub(crate) use discover::{check_over, discover_over};
pub(crate) use driver_memory::{DriverMemory, PAGE_SHIFT, Scratch};
pub(crate) use link::{Dialer, Keys, Link, QueueShape, Registrar, Transport, User};
pub(crate) use paths::{First, Paths};
pub(crate) use queue::{Queue, admin};
pub(crate) use tcp::TcpTransport;

internal!(association::Limits);
internal!(config::{AdapterChoice, FabricsConfig, FabricsTransport, PortAddress});
#[cfg(feature = "internals")]
pub use discover::{ConnectReport, PortReport, check, discover};
pub use error::FabricsError;
internal!(host_identity::{HostIdentity, uuid_text});
