//! Software devices: an NVMe controller, a target for other machines, and a NIC. They run on CPU threads. Drivers, hosts
//! and kernels use them like hardware.

mod failure;
#[cfg(all(feature = "storage", feature = "internals"))]
pub mod model;
#[cfg(all(feature = "storage", not(feature = "internals")))]
pub(crate) mod model;
#[cfg(all(feature = "shmem", feature = "internals"))]
pub mod nic;
#[cfg(all(feature = "shmem", not(feature = "internals")))]
pub(crate) mod nic;
#[cfg(all(feature = "storage", feature = "internals"))]
pub mod nvme;
#[cfg(all(feature = "storage", not(feature = "internals")))]
pub(crate) mod nvme;
#[cfg(feature = "storage")]
pub mod target;

// Programs that name the target by the protocol keep compiling.
#[cfg(feature = "storage")]
#[doc(hidden)]
pub use target as fabrics;
