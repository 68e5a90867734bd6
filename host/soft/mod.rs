//! Software devices: an NVMe controller and a NIC made of CPU threads, which drivers and kernels use as they use real ones.

#[cfg(feature = "shmem")]
pub mod nic;
#[cfg(feature = "storage")]
pub mod nvme;
