//! An mlx5 NIC whose queues kernels drive: the objects behind such a queue are made by commands to the firmware (DevX), in memory that
//! kernels write.

mod adapter;
mod devx;
mod doorbell;
mod driver;
mod queue;
#[cfg(all(test, feature = "soft"))]
pub(crate) mod stand_in;
#[cfg(all(test, feature = "soft"))]
mod tests;

pub(super) use adapter::Mlx5Adapter;
