//! Binary structures that devices read or write. No I/O and no `unsafe`.

pub mod be;
pub mod mlx5;
pub mod nvme;
