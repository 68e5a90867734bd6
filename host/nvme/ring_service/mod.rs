//! Queues in memory, from a controller's side: CPU threads read the rings that drivers and kernels write. The software
//! controller uses this module, and so does a controller of another machine ([`super::fabrics`]).

pub(crate) mod address;
pub(crate) mod copy;
mod doorbells;
mod mailbox;
mod memory;
pub(crate) mod prp;
mod registers;
mod rings;

pub(crate) use address::{AddressTable, Snapshot};
pub(crate) use copy::Mover;
pub(crate) use doorbells::{Doorbells, QueueBits};
pub(crate) use mailbox::Mailbox;
pub(crate) use memory::MemoryStore;
pub(crate) use registers::{Registers, Written};
pub(crate) use rings::{Answer, Cq, HasDoorbells, RingSetup, SubmissionRing};
