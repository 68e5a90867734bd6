//! Software devices: an NVMe controller and a NIC that run on CPU threads. Drivers and kernels use them like hardware.

#[cfg(feature = "shmem")]
pub mod nic;
#[cfg(feature = "storage")]
pub mod nvme;
