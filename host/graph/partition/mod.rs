//! Partitioned graphs: vertices are partitioned across the PEs of a world, and each PE has its lists in its own memory
//! or on its own volume. Also breadth-first search over such graphs.
//!
//! Searches keep the values of a PE's own vertices there alone, and a bit of all others ([`PartitionedGraph`]). Other
//! algorithms have a copy of the values of all vertices on every PE ([`MirroredPart`]): they are those of one PE, with an
//! exchange after each step.
//!
//! Kernels exchange the vertices that they find by puts and signals (`kernels/graph/exchange.cuh`). The host launches
//! one kernel for each step on every PE. All PEs see the same sums, so all make the same decisions.

mod launch;
mod memory;
mod mirrored;
mod plan;
mod search;
mod stored;

pub use memory::heap_bytes;
pub use mirrored::MirroredPart;
pub use plan::{Part, PartitionPlan};
pub use search::{FrontierFormat, PartitionedBfs, PartitionedBfsOptions, PartitionedBfsResult, PartitionedGraph};

#[cfg(test)]
mod mirrored_tests;
#[cfg(test)]
mod tests;
