//! Tests that run only in the virtual machine of `tests/rig/run --rdma`: adapters over a libibverbs device, which is
//! Soft-RoCE on a network device without a connection. Elsewhere the tests are ignored, and fail if they are run.
#![cfg(feature = "shmem")]

mod adapter;
mod calls;
mod perftest;
mod refusals;
mod setting;
mod tables;
