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
    #[error("{what} must be the same on all ranks: {}", differences(.asked))]
    Unequal {
        /// What.
        what: &'static str,
        /// What each rank asked for.
        asked: Vec<String>,
    },
    /// The ranks make different calls.
    #[error(
        "collective calls are made by all ranks, in the same order and with the same arguments: {}",
        differences(.calls)
    )]
    OutOfStep {
        /// What each rank called.
        calls: Vec<String>,
    },
    /// A collective call failed on some ranks, and so on all.
    #[error("{what} failed: {}", by_rank(.failures.iter().map(|(rank, reason)| (*rank, reason.as_str()))))]
    OnRanks {
        /// The call.
        what: String,
        /// The ranks that failed, and why.
        failures: Vec<(usize, String)>,
    },
    /// An environment variable that cannot be read.
    #[error("{name}: {reason}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Not an alignment.
    #[error("{align} is no alignment of memory in a symmetric heap: powers of two up to {max} are")]
    Alignment {
        /// What was asked for.
        align: usize,
        /// The largest.
        max: usize,
    },
    /// Memory of another world.
    #[error("this symmetric array belongs to another world")]
    Foreign,
    /// The heap is full.
    #[error(
        "{bytes} bytes do not fit into the symmetric heap: {free} of {heap} are free, beside {live} allocations; ask for a larger heap (WARPBELL_SYMMETRIC_SIZE, or WorldBuilder::heap_bytes)"
    )]
    HeapFull {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes free.
        free: usize,
        /// Allocations there are.
        live: usize,
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

/// What each rank said, from rank 0 on.
fn differences(said: &[String]) -> String {
    by_rank(said.iter().map(String::as_str).enumerate())
}

/// What ranks said, each thing once: `ranks 0, 2-3: malloc; rank 1: free`.
pub(super) fn by_rank<'a>(said: impl Iterator<Item = (usize, &'a str)>) -> String {
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    for (rank, what) in said {
        match groups.iter_mut().find(|(w, _)| *w == what) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((what, vec![rank])),
        }
    }
    let text = |(what, ranks): &(&str, Vec<usize>)| {
        let s = if ranks.len() == 1 { "" } else { "s" };
        format!("rank{s} {}: {what}", super::card::ranges(ranks))
    };
    groups.iter().map(text).collect::<Vec<_>>().join("; ")
}
