//! Controllers of other machines: NVMe over Fabrics. This module has the transport TCP; others are above it.
//!
//! [`open`] connects to a subsystem and returns an [`Attachment`] as hardware has one. The driver creates queues in
//! memory, kernels write commands and doorbells there, and host threads carry the commands to the target as capsules.
//! The threads write data and completions back. Kernels, volumes and caches see no difference to a software
//! controller.
//!
//! ```no_run
//! use warpbell::nvme::fabrics::{self, FabricsConfig};
//! use warpbell::storage::Drive;
//!
//! let config = FabricsConfig::tcp("10.0.0.2", 4420, "nqn.2026-01.org.example:data");
//! let drive = Drive::attach(fabrics::open(&config)?, None)?;
//! println!("{} bytes", drive.bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
mod bridge;
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

pub(crate) use commands::{Commands, Direction};
#[cfg(feature = "internals")]
pub(crate) use discover::{check_over, discover_over};
pub(crate) use driver_memory::DriverMemory;
#[cfg(feature = "shmem")]
pub(crate) use link::Keys;
pub(crate) use link::{Link, QueueShape, Registrar, Transport, User};

internal!(association::Limits);
#[cfg(feature = "internals")]
pub use bridge::Counters;
internal!(bridge::{RemoteController, open});
internal!(config::{AdapterChoice, FabricsConfig, FabricsTransport, PortAddress});
#[cfg(feature = "internals")]
pub use discover::{ConnectReport, PortReport, check, discover};
pub use error::FabricsError;
internal!(host_identity::{HostIdentity, uuid_text});

#[cfg(doc)]
use super::Attachment;
