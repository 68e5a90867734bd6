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
//! | [`graph`] | graph import, generators, searches, components, label propagation, PageRank, centrality, triangles, cores, verifiers |
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
//! | `listener` | limits of sockets that accept connections; uses `this_host` |
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
//!
//! Without the feature `internals` programs reach what this crate promises. `destination`, `fabrics`, `file_identity`, `listener`,
//! `processors`, `rdma`, `refused`, `suggest`, `units`, `wire`, and parts of other modules are reachable only with that feature, which `cli` turns on.
//! They are for the program, tests and tools, and any release may change them.
#![cfg_attr(docsrs, feature(doc_cfg))]
// With some features off, parts that several families share are unused. With all of them on, nothing may be unused.
#![cfg_attr(
    not(all(feature = "storage", feature = "shmem", feature = "graph", feature = "soft", feature = "doctor")),
    allow(dead_code, unused_imports)
)]

// A dependency of tests on this package would turn the feature on, and have them compiled after the library instead of beside it.
#[cfg(all(test, not(feature = "internals")))]
compile_error!(
    "tests reach what is not promised: add `internals` to the features, as in `cargo test --no-default-features --features storage,internals`"
);

// Benchmarks and fuzz targets include some test files, which therefore name the crate `warpbell`.
#[cfg(test)]
extern crate self as warpbell;

/// Passes names of a module on: inside of the crate always, outside of it with the feature `internals` alone.
macro_rules! internal {
    ($($names:tt)*) => {
        #[cfg(feature = "internals")]
        pub use $($names)*;
        #[cfg(not(feature = "internals"))]
        #[allow(unused_imports, reason = "the crate itself may have no use for a name")]
        pub(crate) use $($names)*;
    };
}

#[cfg(any(feature = "storage", feature = "shmem"))]
mod addresses;
mod assist;
#[cfg(feature = "parquet")]
mod columnar;
mod contention;
pub mod cuda;
#[cfg(any(feature = "storage", feature = "shmem"))]
mod data_path;
#[cfg(all(feature = "graph", feature = "internals"))]
pub mod destination;
#[cfg(feature = "doctor")]
pub mod doctor;
pub mod engine;
pub mod failure;
#[cfg(all(any(feature = "storage", feature = "soft", feature = "graph"), feature = "internals"))]
pub mod file_identity;
#[cfg(all(any(feature = "storage", feature = "soft", feature = "graph"), not(feature = "internals")))]
mod file_identity;
#[cfg(feature = "graph")]
pub mod graph;
#[cfg(feature = "shmem")]
mod handshake;
mod idle;
#[cfg(feature = "internals")]
pub mod listener;
#[cfg(not(feature = "internals"))]
mod listener;
pub mod memory;
pub mod metrics;
mod mmio;
#[cfg(feature = "storage")]
pub mod nvme;
pub mod pci;
mod per_process;
#[cfg(feature = "internals")]
pub mod processors;
#[cfg(not(feature = "internals"))]
mod processors;
#[cfg(any(feature = "storage", feature = "shmem"))]
mod random;
#[cfg(all(feature = "shmem", feature = "internals"))]
pub mod rdma;
#[cfg(all(feature = "shmem", not(feature = "internals")))]
mod rdma;
#[cfg(all(any(feature = "storage", feature = "shmem"), feature = "internals"))]
pub mod refused;
#[cfg(all(any(feature = "storage", feature = "shmem"), not(feature = "internals")))]
mod refused;
pub mod remedy;
#[cfg(all(feature = "storage", feature = "internals"))]
pub mod remote;
#[cfg(all(feature = "storage", not(feature = "internals")))]
mod remote;
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
#[cfg(feature = "internals")]
pub mod suggest;
#[cfg(not(feature = "internals"))]
mod suggest;
#[cfg(test)]
mod test_cases;
mod this_host;
#[cfg(test)]
#[path = "../tests/common/tree.rs"]
mod tree;
#[cfg(feature = "internals")]
pub mod units;
#[cfg(not(feature = "internals"))]
mod units;
#[cfg(feature = "internals")]
pub mod wire;
#[cfg(not(feature = "internals"))]
#[allow(
    dead_code,
    reason = "formats are described whole: the library writes some fields that only tests and tools read"
)]
mod wire;

/// Path of the folder with the device library's headers, at the time this crate was built.
///
/// The build script of a dependent crate reads the same path from `DEP_WARPBELL_INCLUDE`.
pub const INCLUDE_DIR: &str = env!("WARPBELL_INCLUDE_DIR");
