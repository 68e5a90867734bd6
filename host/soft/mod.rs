//! Software devices: an NVMe controller and a NIC made of CPU threads, which drivers and kernels use as they use real ones.

pub mod nic;
pub mod nvme;
