//! Software devices: an NVMe controller, a target for other machines, and a NIC. They run on CPU threads. Drivers, hosts
//! and kernels use them like hardware.

#[cfg(feature = "storage")]
pub mod fabrics;
mod failure;
#[cfg(feature = "shmem")]
pub mod nic;
#[cfg(feature = "storage")]
pub mod nvme;
