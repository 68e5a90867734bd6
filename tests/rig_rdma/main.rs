//! What runs in the virtual machine of `tests/rig/run --rdma` and nowhere else: adapters over a libibverbs device, which is Soft-RoCE
//! on a network device that leads nowhere. Anywhere else the tests are ignored, and fail if
//! they are run.
#![cfg(feature = "shmem")]

mod adapter;
mod calls;
mod perftest;
mod refusals;
mod setting;
mod tables;
