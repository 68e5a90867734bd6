//! Software devices.

pub mod nic;
pub mod nvme;
