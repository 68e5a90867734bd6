//! **GPU kernels do their own I/O.** warpbell opens a storage controller, places its queues in memory that kernels can
//! access, and maps its doorbells. CUDA kernels then build NVMe commands, write the doorbells and poll completions
//! without the CPU. The same device code also runs on CPU threads against a software controller, so all of it works on
//! any machine.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`doctor`] | diagnosis: the data paths that this machine supports, and how to fix the others |
//! | [`graph`] | graph import, generators, BFS, components, PageRank, shortest paths, verifiers |
//! | [`shmem`] | a world of PEs: symmetric memory, put and get, signals, collectives |
//! | [`storage`] | [`storage::Volume`], page cache and `Array<T>` over NVMe namespaces |
//! | [`soft`] | software devices: an NVMe controller and a NIC, with fault injection |
//! | [`remote`] | NVMe controllers of other machines, over TCP or RDMA |
//! | [`rdma`] | RDMA adapters: send queues that kernels fill, through mlx5 or verbs; devices, ports, addresses, traffic class |
//! | [`nvme`] | the NVMe driver: registers, admin queue, queue pairs, namespaces |
//! | [`engine`] | engines that run kernels: a GPU or CPU threads |
//! | [`memory`] | regions of memory with one owner, which host, kernels and devices access |
//! | [`cuda`] | the CUDA driver calls that the crate uses, as `Result`s |
//! | [`metrics`] | counters of this process, for monitoring; uses no other module |
//! | [`pci`] | PCI functions: addresses, properties, users, drivers |
//! | [`wire`] | layouts of the bytes that a device reads or writes |
//! | [`destination`] | files that results are written to; uses `failure` and `remedy` |
//! | `handshake` | mutual authentication of two ends that share a secret, and encrypted frames; uses no other module |
//! | `columnar` | Parquet and Arrow files as bytes for their decoders; uses no other module |
//! | `random` | random bytes from the system; uses no other module |
//! | `this_host` | identity of this host, its addresses and free memory, and a test whether another process is on it; uses no other module |
//! | `data_path` | the choices of a data path: queue memory, landing, doorbell; uses `failure` and `remedy` |
//! | `refused` | commands that devices refused, with their bytes; uses no other module |
//! | `idle` | pauses of polling threads; uses `contention` |
//! | `contention` | what the program does beside others that compute; uses `per_process`, `processors` and `responsive` |
//! | `mmio` | stores to device registers; uses no other module |
//! | [`spec`] | device specifications such as `soft:mem:1G,block=4096`: read, edited and printed; uses `suggest` and `units` |
//! | `setters` | methods of option structures; uses no other module |
//! | [`suggest`] | suggestions for mistyped words; uses no other module |
//! | [`processors`] | number of processors that the program uses; uses `failure` and `remedy` |
//! | [`units`] | sizes, times and counts as users write them; uses `failure` and `remedy` |
//! | [`failure`] | kinds of errors, and the command that failed; uses `remedy` |
//! | [`remedy`] | remedies that errors carry as data; uses no other module |
//!
//! A module uses only modules that stand below it in this table.
#![cfg_attr(docsrs, feature(doc_cfg))]
// With some features off, parts that several families share are unused. With all of them on, nothing may be unused.
#![cfg_attr(
    not(all(feature = "storage", feature = "shmem", feature = "graph", feature = "soft", feature = "doctor")),
    allow(dead_code, unused_imports)
)]

// Benchmarks and fuzz targets include some test files, which therefore name the crate `warpbell`.
#[cfg(test)]
extern crate self as warpbell;

#[cfg(any(feature = "storage", feature = "shmem"))]
mod addresses;
mod assist;
#[cfg(feature = "parquet")]
mod columnar;
mod contention;
pub mod cuda;
#[cfg(any(feature = "storage", feature = "shmem"))]
mod data_path;
#[cfg(feature = "graph")]
pub mod destination;
#[cfg(feature = "doctor")]
pub mod doctor;
pub mod engine;
pub mod failure;
#[cfg(any(feature = "storage", feature = "soft", feature = "graph"))]
pub mod file_identity;
#[cfg(feature = "graph")]
pub mod graph;
#[cfg(feature = "shmem")]
mod handshake;
mod idle;
pub mod memory;
pub mod metrics;
mod mmio;
#[cfg(feature = "storage")]
pub mod nvme;
pub mod pci;
mod per_process;
pub mod processors;
#[cfg(any(feature = "storage", feature = "shmem"))]
mod random;
#[cfg(feature = "shmem")]
pub mod rdma;
#[cfg(any(feature = "storage", feature = "shmem"))]
pub mod refused;
pub mod remedy;
#[cfg(feature = "storage")]
pub mod remote;
mod responsive;
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

/// Path of the folder with the device library's headers, at the time this crate was built.
///
/// The build script of a dependent crate reads the same path from `DEP_WARPBELL_INCLUDE`.
pub const INCLUDE_DIR: &str = env!("WARPBELL_INCLUDE_DIR");
