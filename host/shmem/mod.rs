//! A world of processing elements (PEs), one for each GPU or CPU engine: symmetric memory, put and get, signals, atomics,
//! collectives, from kernels and from the host.
//!
//! Names and meanings are OpenSHMEM's (OpenSHMEM 1.5) and NVSHMEM's. Kernels make the calls of `warpbell/shmem.cuh`;
//! this module sets up what they need and offers the same calls on the host.
//!
//! # Modules
//!
//! | module | what lives there |
//! |---|---|
//! | [`launcher`] | starts the ranks of a world as processes of this host |
//! | `builder` | builds worlds: ranks meet, agree on a heap, map memory, connect |
//! | [`calls`] | calls on the host: put, get, signals, atomics, collectives |
//! | `team` | some of a world's PEs, numbered anew |
//! | `sym` | symmetric arrays, allocated and freed |
//! | `world` | one PE of a world: meetings of the ranks, host calls, recovery, the end |
//! | `path` | how the PEs reach each other, in words |
//! | `card` | what each PE tells the others of itself, and the heap that all agree on |
//! | `network` | queue pairs to PEs that loads and stores do not reach |
//! | `heap` | the symmetric heap: memory, and how PEs hand it to each other |
//! | `team_slots` | where the words of teams are in the heap |
//! | `book` | what of the heap is taken |
//! | `variable` | environment variables that worlds are set up by |
//! | `error` | how worlds fail |
//! | [`bootstrap`] | how ranks find each other and exchange bytes |
//! | `vote` | what each rank said of a step; stands on nothing |
//! | `transport` | names of the ways between PEs; stands on nothing here |
//!
//! Arrows point down only: a module uses those below it. Tests use all of them.

pub mod bootstrap;
mod builder;
pub mod calls;
mod error;
mod heap;
pub mod launcher;
mod network;
mod path;
mod peer_info;
mod sym;
mod symmetric_allocator;
mod team;
mod team_slots;
mod transport;
mod variable;
mod vote;
mod world;

pub use builder::WorldBuilder;
pub use error::ShmemError;
pub use heap::{HeapKind, NoSuchHeapKind};
pub use network::{NetworkPlan, NetworkSettings, Recovered, Recovery, TransportFacts, transports};
pub use path::{Handover, Link, NetworkPath, WorldPath};
pub use sym::{Sym, SymSlice};
pub use team::Team;
pub use transport::{NoSuchTransport, Transport};
pub use world::World;

#[cfg(test)]
mod testing;
