//! Queues in memory, from a controller's side: CPU threads read the rings that drivers and kernels write. The software
//! controller uses this module, and so does the bridge to a controller of another machine (`host/remote/bridge`). A driver
//! finds the same in both: [`Shell`] has the registers, doorbells and threads, [`Lifecycle`] enabling, reset, shutdown and
//! the admin queue.

pub(crate) mod address;
pub(crate) mod copy;
mod doorbells;
mod lifecycle;
mod mailbox;
mod memory;
pub(crate) mod prp;
mod registers;
mod rings;
mod shell;

pub(crate) use address::Snapshot;
pub(crate) use copy::Mover;
pub(crate) use doorbells::Doorbells;
pub(crate) use lifecycle::{AdminQueue, Lifecycle, new_queue};
pub(crate) use memory::MemoryStore;
pub(crate) use registers::{Registers, capabilities};
pub(crate) use rings::{Answer, Cq, HasDoorbells, RingSetup, SubmissionRing};
pub(crate) use shell::{Shell, Threads};
