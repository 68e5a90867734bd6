//! Bytes that a device reads or writes. No I/O and no `unsafe`.

pub mod be;
pub mod mlx5;
pub mod nvme;
