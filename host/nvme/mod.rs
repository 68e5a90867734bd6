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
pub mod qtest;
mod queue_ids;
mod queues;
mod quirks;
mod recovery;
pub(crate) mod ring_service;
mod stream_ring;
#[cfg(test)]
mod tests;
pub mod vfio;

pub use crate::data_path::{Doorbell, DoorbellChoice};
pub use budget::RetryBudget;
pub use capsules::{CapsulePlan, CapsuleQueue, CapsuleQueues};
pub use cmb::MemoryBuffer;
pub use controller::{Controller, Disabled, Ready};
pub use error::NvmeError;
pub use features::WriteCache;
pub use host_io::{HostQueue, HostQueueOptions};
pub use limits::CommandLimits;
pub use namespace::{FormatCheck, Namespace, check_format};
pub use peer::{MappingReport, ReadBack};
pub use port::{Attachment, BarMapping, DmaSpace, DoorbellPages, Notice, Port, PortError};
pub(crate) use queues::QueueWords;
pub use queues::{Landing, QueueOptions, QueueSet};
pub use quirks::{PciId, Quirks};
pub use recovery::{Ending, InFlight, RecoveryAction, RecoveryPolicy, RecoveryReport, RecoveryStep, Unfinished};
pub(crate) use stream_ring::{Data, StreamRing};
