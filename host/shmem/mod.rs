//! A world of processing elements (PEs), one for each GPU or CPU engine: symmetric memory, put and get, signals, atomics,
//! collectives, from kernels and from the host.
//!
//! Names and semantics follow OpenSHMEM 1.5 and NVSHMEM. Kernels make the calls of `warpbell/shmem.cuh`.
//! This module sets up the state that kernels need and offers the same calls on the host.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`launcher`] | starts the ranks of a world as processes of this host |
//! | `builder` | builds worlds: ranks meet, agree on a heap, map memory, connect |
//! | [`calls`] | calls on the host: put, get, signals, atomics, collectives |
//! | `team` | teams: subsets of a world's PEs with their own numbering |
//! | `window` | memory that was allocated elsewhere and registered as symmetric |
//! | `sym` | symmetric arrays: allocation and release |
//! | `world` | one PE of a world: collective host exchanges, host calls, recovery, shutdown |
//! | `path` | a printable description of the links between PEs |
//! | `peer_info` | the data that each PE sends to all others, and the heap plan that follows from it |
//! | `registered` | registered memory, kept until no PE uses it |
//! | `network` | queue pairs to PEs that loads and stores do not reach |
//! | `heap` | the symmetric heap: its memory, and how PEs share it with each other |
//! | `team_slots` | the areas of the heap that teams use for synchronisation and scratch |
//! | `symmetric_allocator` | allocations in the heap |
//! | `variable` | environment variables that configure worlds |
//! | `error` | the error type of worlds |
//! | [`bootstrap`] | how ranks find each other and exchange bytes |
//! | `vote` | the result of a step on each rank; uses no other module |
//! | `transport` | names of the transports between PEs; uses no other module of this folder |
//!
//! A module uses only modules below it in this table. Tests use all of them.

pub mod bootstrap;
mod builder;
pub mod calls;
mod error;
mod failure;
mod heap;
#[cfg(feature = "internals")]
pub mod launcher;
mod network;
mod path;
mod peer_info;
mod registered;
mod sym;
mod symmetric_allocator;
mod team;
mod team_slots;
mod transport;
mod variable;
mod vote;
mod window;
mod world;

pub use builder::WorldBuilder;
pub use error::ShmemError;
pub use heap::{HeapKind, NoSuchHeapKind};
pub(crate) use network::NetworkSettings;
pub use network::{NetworkPlan, Recovered, Recovery};
#[cfg(feature = "internals")]
pub use network::{TransportFacts, transports};
pub use path::{Handover, Link, NetworkPath, WorldPath};
pub use sym::{Sym, SymSlice};
pub use team::Team;
pub use transport::{NoSuchTransport, Transport};
pub use window::{Window, WindowSlice};
pub use world::World;

#[cfg(test)]
mod testing;
