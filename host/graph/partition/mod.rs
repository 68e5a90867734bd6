//! Partitioned graphs: vertices are partitioned across the PEs of a world, and each PE has its lists in its own memory
//! or on its own volume. Also breadth-first search over such graphs.
//!
//! Kernels exchange the vertices that they find by puts and signals (`kernels/graph/exchange.cuh`). The host launches
//! one kernel for each step on every PE. All PEs see the same sums, so all make the same decisions.

mod launch;
mod memory;
mod plan;
mod search;

pub use plan::{Part, PartitionPlan};
pub use search::{FrontierFormat, PartitionedBfs, PartitionedBfsOptions, PartitionedBfsResult, PartitionedGraph};

#[cfg(test)]
mod tests;
