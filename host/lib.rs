//! **GPU kernels do their own I/O.** warpbell opens a storage controller, puts its queues where kernels can reach them,
//! maps the doorbells and steps aside: CUDA kernels build NVMe commands, ring the doorbell and poll completions without
//! the CPU. The same device code runs on CPU threads against a software controller, so everything works on any machine.
//!
//! # Modules
//!
//! | module | what lives there |
//! |---|---|
//! | [`doctor`] | what this machine can do, and what mends it |
//! | [`graph`] | graph import, generators, BFS, components, PageRank, shortest paths, verifiers |
//! | [`shmem`] | a world of PEs: symmetric memory, put and get, signals, collectives |
//! | [`storage`] | [`storage::Volume`], page cache and `Array<T>` over NVMe namespaces |
//! | [`soft`] | software devices: an NVMe controller and a NIC, with fault injection |
//! | [`rdma`] | RDMA adapters: send queues that kernels fill, by mlx5 or by verbs; devices, ports, addresses, traffic class |
//! | [`nvme`] | the driver: registers, admin queue, queue pairs, namespaces |
//! | [`engine`] | where kernels run: a GPU or CPU threads |
//! | [`memory`] | bytes with one owner, seen by host, kernels and devices |
//! | [`cuda`] | the CUDA driver calls that are used, as `Result`s |
//! | [`pci`] | PCI functions: addresses, properties, users, drivers |
//! | [`wire`] | bytes that a device reads or writes |
//! | [`destination`] | files that results are written to; stands on nothing |
//! | `handshake` | two ends of a connection prove that they share a secret, and seal what they say; stands on `random` |
//! | `random` | random bytes from the system; stands on nothing |
//! | `this_host` | which host this is, by which addresses it is reached, what memory it has free, and whether another process is on it; stands on nothing |
//! | `data_path` | the axes of a data path: memory of the queues, landing, doorbell; stands on nothing |
//! | [`remedy`] | the ways out that errors carry as data; stands on nothing |
//! | `idle` | pauses of threads that poll; stands on nothing |
//! | [`spec`] | device specifications, as in `soft:mem:1G,block=4096`: read, edited and printed; stands on `suggest` and `units` |
//! | `setters` | methods of option structures; stands on nothing |
//! | [`suggest`] | the word that somebody may have meant; stands on nothing |
//! | [`processors`] | how many processors the program counts on; stands on nothing |
//! | [`units`] | sizes, times and counts as people write them; stands on nothing |
//!
//! Arrows point down only: a module uses those below it.
#![cfg_attr(docsrs, feature(doc_cfg))]
// What families share is not used by each of them. With all of them nothing may be unused.
#![cfg_attr(
    not(all(feature = "storage", feature = "shmem", feature = "graph", feature = "soft", feature = "doctor")),
    allow(dead_code, unused_imports)
)]

// Test files that benchmarks and fuzz targets share name the crate as those do.
#[cfg(test)]
extern crate self as warpbell;

pub mod cuda;
#[cfg(any(feature = "storage", feature = "shmem"))]
mod data_path;
#[cfg(feature = "graph")]
pub mod destination;
#[cfg(feature = "doctor")]
pub mod doctor;
pub mod engine;
#[cfg(feature = "graph")]
pub mod graph;
#[cfg(feature = "shmem")]
mod handshake;
#[cfg(any(feature = "storage", feature = "shmem"))]
mod idle;
pub mod memory;
#[cfg(any(feature = "storage", feature = "shmem"))]
mod mmio;
#[cfg(feature = "storage")]
pub mod nvme;
pub mod pci;
pub mod processors;
#[cfg(any(feature = "storage", feature = "shmem"))]
mod random;
#[cfg(feature = "shmem")]
pub mod rdma;
pub mod remedy;
#[cfg(any(feature = "storage", feature = "shmem"))]
mod setters;
#[cfg(feature = "shmem")]
pub mod shmem;
#[cfg(feature = "soft")]
pub mod soft;
#[cfg(any(feature = "storage", feature = "soft"))]
pub mod spec;
#[cfg(feature = "storage")]
pub mod storage;
pub mod suggest;
mod this_host;
#[cfg(test)]
#[path = "../tests/common/tree.rs"]
mod tree;
pub mod units;
pub mod wire;

/// The folder with the device library's headers, as it was when this crate was built.
///
/// A build script of a dependant reads the same path from `DEP_WARPBELL_INCLUDE`.
pub const INCLUDE_DIR: &str = env!("WARPBELL_INCLUDE_DIR");
