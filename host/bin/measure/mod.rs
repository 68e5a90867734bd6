//! Measuring programs and their reports.

pub mod array;
pub mod error;
pub mod fio;
pub mod graph;
pub mod histogram;
pub mod nvme;
pub mod post;
pub mod queue;
pub mod rdma;
pub mod report;
pub mod shmem;
