//! How worlds fail.

use super::bootstrap::BootstrapError;
use crate::engine::{EngineError, RunError};
use crate::memory::MemoryError;

/// Why a world, or memory in it, could not be had, or a call in it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmemError {
    /// Ranks did not meet.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A kernel that a host call launched.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Memory for a heap.
    #[error("no symmetric heap of {bytes} bytes for {pes} PEs: {reason}")]
    Heap {
        /// Bytes of each PE's heap.
        bytes: usize,
        /// PEs.
        pes: usize,
        /// Why, and what to do.
        reason: String,
    },
    /// The ranks do not ask for the same.
    #[error("{what} is collective, and its ranks differ: {}", differences(.asked))]
    Unequal {
        /// The call.
        what: &'static str,
        /// What each rank asked for.
        asked: Vec<String>,
    },
    /// The heap is full.
    #[error(
        "{bytes} bytes do not fit into the symmetric heap: {free} of {heap} are free; ask for a larger heap (WARPBELL_SYMMETRIC_SIZE, or WorldBuilder::heap_bytes)"
    )]
    HeapFull {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes free.
        free: usize,
        /// Bytes of the heap.
        heap: usize,
    },
    /// No such PE.
    #[error("PE {pe}: this world has {size} PEs, 0 to {}", size - 1)]
    NoPe {
        /// The number given.
        pe: usize,
        /// How many there are.
        size: usize,
    },
    /// Elements outside a symmetric array.
    #[error("elements {first}..{} of a symmetric array of {len}", first + count)]
    OutOfBounds {
        /// First element.
        first: usize,
        /// Number of elements.
        count: usize,
        /// Elements in the array.
        len: usize,
    },
}

fn differences(asked: &[String]) -> String {
    let all: Vec<String> = asked.iter().enumerate().map(|(rank, a)| format!("rank {rank} {a}")).collect();
    all.join(", ")
}
