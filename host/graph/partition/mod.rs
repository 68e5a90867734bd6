//! A graph partitioned by vertex across the PEs of a world, each PE's lists in its own memory or on its own volume, and
//! breadth-first search over it.
//!
//! Kernels exchange what they find among themselves, by puts and signals (`kernels/graph/exchange.cuh`); the host launches one
//! kernel for each step on every PE, and every PE takes the same decisions, since all see the same sums.

mod launch;
mod memory;
mod plan;
mod search;

pub use plan::{Part, PartitionPlan};
pub use search::{News, PartitionedBfs, PartitionedBfsOptions, PartitionedBfsResult, PartitionedGraph};

#[cfg(test)]
mod tests;
