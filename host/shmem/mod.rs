//! A world of processing elements (PEs), one for each GPU or CPU engine: symmetric memory, put and get, signals, atomics,
//! collectives, from kernels and from the host.
//!
//! Names and meanings are OpenSHMEM's (OpenSHMEM 1.5) and NVSHMEM's. Kernels make the calls of `warpbell/shmem.cuh`;
//! this module sets up what they need and offers the same calls on the host.

mod book;
pub mod bootstrap;
mod builder;
pub mod calls;
mod card;
mod error;
mod heap;
pub mod launcher;
mod network;
mod path;
mod sym;
mod team;
mod world;

pub use builder::WorldBuilder;
pub use error::ShmemError;
pub use heap::{HeapKind, NoSuchHeapKind};
pub use network::{
    NetworkPlan, NetworkSettings, NoSuchTransport, Recovered, Recovery, Transport, TransportFacts, transports,
};
pub use path::{Handover, Link, NetworkPath, WorldPath};
pub use sym::{Sym, SymSlice};
pub use team::Team;
pub use world::World;

#[cfg(test)]
mod testing;
