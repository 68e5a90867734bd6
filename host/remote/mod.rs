//! Controllers of other machines, as the driver uses them.
//!
//! [`connect`] connects to a subsystem by NVMe over Fabrics, over TCP or over RDMA by the devices of this machine. The
//! [`RemoteController`] that it returns has an [`Attachment`](crate::nvme::Attachment) as hardware has one. The driver
//! creates queues in memory, kernels write commands and doorbells there, and host threads send the commands to the target
//! as capsules. The threads write data and completions back. Kernels, volumes and caches see no difference to a software
//! controller.
//!
//! ```no_run
//! use warpbell::nvme::fabrics::FabricsConfig;
//! use warpbell::remote;
//! use warpbell::storage::Drive;
//!
//! let config = FabricsConfig::tcp("10.0.0.2", 4420, "nqn.2026-01.org.example:data");
//! let drive = Drive::attach(remote::connect(&config)?.attachment(), None)?;
//! println!("{} bytes", drive.bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Uses `nvme::fabrics`, which has the rules that all transports share, and `rdma`, whose adapters all have the same rings.
//! Software NICs are those of `soft::target`.

mod bridge;
mod connect;
#[cfg(feature = "shmem")]
mod rdma;

#[cfg(feature = "internals")]
pub use bridge::Counters;
internal!(bridge::RemoteController);
internal!(connect::connect);
#[cfg(feature = "internals")]
pub use connect::{check, discover};
#[cfg(all(feature = "shmem", feature = "internals"))]
pub use rdma::{TargetRoute, route};

#[cfg(feature = "shmem")]
pub(crate) use rdma::{Buffer, Buffers, RdmaTransport};
