//! Software devices.

pub mod nvme;
