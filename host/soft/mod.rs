//! Software devices: an NVMe controller, a target for other machines, and a NIC. They run on CPU threads. Drivers, hosts
//! and kernels use them like hardware.

mod failure;
#[cfg(feature = "shmem")]
pub mod nic;
#[cfg(feature = "storage")]
pub mod nvme;
#[cfg(feature = "storage")]
pub mod target;

// Programs that name the target by the protocol keep compiling.
#[cfg(feature = "storage")]
#[doc(hidden)]
pub use target as fabrics;
