//! The transport RDMA of NVMe over Fabrics: queue pairs of an adapter carry capsules.
//!
//! A command capsule is a SEND. The other end reads or writes the data by RDMA, with the remote key in the capsule, and
//! sends the response capsule, which fills a receive. Here host threads drive the queue pairs of the admin queue and of
//! the driver's own transfers. Kernels drive the others.

mod buffers;
mod link;
mod route;
mod transport;

#[cfg(feature = "internals")]
pub use route::{TargetRoute, route};

pub(crate) use buffers::{Buffer, Buffers};
pub(crate) use route::transport;
pub(crate) use transport::RdmaTransport;
