//! Workloads of `warpbell bench`, and the reports of them.

pub mod array;
pub mod cufile;
pub mod error;
pub mod fio;
pub mod gather;
pub mod graph;
pub mod histogram;
pub mod kv;
pub mod mapping;
pub mod multiprocessors;
pub mod nvme;
#[allow(dead_code, reason = "generated: the host does not use all of it")]
mod params;
pub mod phases;
pub mod post;
pub mod queue;
pub mod rdma;
pub mod report;
pub mod shmem;
pub mod spread;
pub mod stream;
