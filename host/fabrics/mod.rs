//! NVMe over Fabrics by RDMA: queue pairs of an adapter carry capsules. Uses `nvme::fabrics`, which has the rules that
//! all transports share, and `rdma`, whose adapters all have the same rings.
//!
//! A command capsule is a SEND. The other end reads or writes the data by RDMA, with the remote key in the capsule, and
//! sends the response capsule, which fills a receive. Here host threads drive the queue pairs of the admin queue and of
//! the driver's own transfers. Kernels drive the others.
//!
//! [`connect`], [`check`] and [`discover`] take both transports between machines: TCP, and RDMA by the devices of this
//! machine. Software NICs are those of `soft::fabrics`.

mod buffers;
mod link;
mod remote;
mod transport;

#[cfg(feature = "internals")]
pub use remote::{TargetRoute, check, discover, route};
internal!(remote::connect);

pub(crate) use buffers::{Buffer, Buffers};
pub(crate) use transport::RdmaTransport;
