//! An mlx5 NIC whose queues kernels drive. Firmware commands (DevX) create the queues in memory that kernels write.

mod adapter;
mod capability;
mod devx;
mod doorbell;
mod driver;
mod queue;
#[cfg(all(test, feature = "soft"))]
pub(crate) mod stand_in;
#[cfg(all(test, feature = "soft"))]
mod tests;

pub(super) use adapter::Mlx5Adapter;
