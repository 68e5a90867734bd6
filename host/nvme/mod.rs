//! The NVMe driver: registers, admin queue, namespaces, I/O queue pairs.
//!
//! [`Controller::new`] takes an [`Attachment`] and reads its registers. [`Controller::enable`] brings the
//! controller up. [`Controller::create_queues`] returns a [`QueueSet`] that kernels submit to.
//! [`HostQueue`] submits from the host.

mod admin;
mod budget;
mod capsules;
mod cmb;
mod commands;
mod controller;
mod doorbell;
mod error;
mod events;
pub mod fabrics;
mod failure;
mod features;
mod host_io;
mod layout;
mod limits;
mod logs;
mod namespace;
mod peer;
mod port;
#[cfg(feature = "internals")]
pub mod qtest;
#[cfg(not(feature = "internals"))]
pub(crate) mod qtest;
mod queue_ids;
mod queues;
mod quirks;
mod recovery;
pub(crate) mod ring_service;
mod stream_ring;
#[cfg(test)]
mod tests;
#[cfg(feature = "internals")]
pub mod vfio;
#[cfg(not(feature = "internals"))]
pub(crate) mod vfio;

pub use crate::data_path::{Doorbell, DoorbellChoice};
pub use budget::RetryBudget;
internal!(capsules::{CapsulePlan, CapsuleQueue, CapsuleQueues});
internal!(cmb::MemoryBuffer);
internal!(controller::{Controller, Disabled, Ready});
pub use error::NvmeError;
internal!(features::WriteCache);
internal!(host_io::{HostQueue, HostQueueOptions});
internal!(limits::CommandLimits);
#[cfg(feature = "internals")]
pub use namespace::{FormatCheck, check_format};
internal!(namespace::Namespace);
pub use peer::MappingReport;
internal!(peer::ReadBack);
internal!(port::{Attachment, BarMapping, DmaSpace, DoorbellPages, Notice, Port, PortError});
pub(crate) use queues::QueueWords;
internal!(queues::{Landing, QueueOptions, QueueSet});
internal!(quirks::{PciId, Quirks});
pub use recovery::RecoveryReport;
internal!(recovery::{Ending, InFlight, RecoveryAction, RecoveryPolicy, RecoveryStep, Unfinished});
pub(crate) use stream_ring::{Data, StreamRing};
pub use vfio::VfioError;
