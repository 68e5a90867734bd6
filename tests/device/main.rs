//! Tests the device library and kernels of this folder, which the C++ compiler builds for CPU threads.
//!
//! They are one program, so that they are compiled and run side by side, as many as there are test threads.

mod abi;
mod compiled;
mod embedding;
mod failing_kernels;
mod functions;
#[macro_use]
mod harness;
mod headers;
// Tests of one family need a part of it.
#[cfg_attr(not(all(feature = "storage", feature = "shmem", feature = "soft")), allow(dead_code))]
mod image;
mod mlx5;
mod model;
mod stress;
#[path = "../common/tree.rs"]
mod tree;
