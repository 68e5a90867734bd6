//! How worlds fail.

use super::bootstrap::BootstrapError;
use super::transport::Transport;
use super::vote::{by_rank, failed};
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
    #[error("{what} failed: {}", failed(.failures))]
    OnRanks {
        /// The call.
        what: String,
        /// The ranks that failed, and why.
        failures: Vec<(usize, String)>,
    },
    /// More PEs of this process on one GPU than it is sure to run kernels of at the same time.
    #[error(
        "{pes} PEs of this process are on GPU {gpu}, which is sure to run the kernels of {most} at the same time; start the program with {}={} for {} PEs, or use fewer on one GPU",
        crate::cuda::CONNECTIONS_VARIABLE, crate::cuda::MOST_CONNECTIONS, crate::cuda::MOST_CONNECTIONS - 1
    )]
    Crowded {
        /// The GPU's ordinal.
        gpu: usize,
        /// PEs on it.
        pes: usize,
        /// Kernels that are sure to run at the same time ([`crate::cuda::Context::kernels_side_by_side`]).
        most: usize,
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
    /// Memory that a kernel may be using.
    #[error(
        "{len} elements at offset {offset} of the symmetric heap are used by kernels in flight, or streams that were not waited for, on PE(s) {pes:?}; they come back when those have ended, without another call"
    )]
    InUse {
        /// PEs that use it.
        pes: Vec<usize>,
        /// Offset of the first element in the heap, in bytes.
        offset: usize,
        /// Elements on each PE.
        len: usize,
    },
    /// Memory of another world.
    #[error("this symmetric array belongs to another world; use it with the one that allocated it")]
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
    /// No such team.
    #[error(
        "a team of {size} PEs from {start} on, {stride} apart, is not in one of {pes}: there must be at least one, a stride of at least 1, and the last must be one of PEs 0 to {}", pes - 1
    )]
    NoTeam {
        /// First PE.
        start: usize,
        /// From one to the next.
        stride: usize,
        /// How many.
        size: usize,
        /// PEs of the team that is split.
        pes: usize,
    },
    /// Too many teams.
    #[error(
        "no room for another team: its PEs can be in {limit} at once, the team of all among them, and have used them up between them; drop some, or ask for a larger heap (WARPBELL_SYMMETRIC_SIZE, or WorldBuilder::heap_bytes)"
    )]
    TeamLimit {
        /// Teams that a PE can be in.
        limit: usize,
    },
    /// PEs of a host that are no team.
    #[error(
        "the PEs of host {host} are {pes:?}: those of a team are equally far apart; start the ranks host by host, or one on each host in turn"
    )]
    ScatteredNode {
        /// The host.
        host: String,
        /// Its PEs.
        pes: Vec<usize>,
    },
    /// Arrays of lengths that do not go together.
    #[error("{call}: {dest} elements to write and {source_len} to read, with {pes} PEs; {rule}")]
    Lengths {
        /// The call.
        call: &'static str,
        /// Elements of the destination.
        dest: usize,
        /// Elements of the source.
        source_len: usize,
        /// PEs of the team.
        pes: usize,
        /// How they must go together.
        rule: &'static str,
    },
    /// Elements that are not in a region of the engine.
    #[error(
        "{len} elements of {element} bytes from byte {offset} on are not inside a region of {bytes} bytes of this engine"
    )]
    Region {
        /// First byte.
        offset: usize,
        /// Elements.
        len: usize,
        /// Bytes of each.
        element: usize,
        /// Bytes of the region.
        bytes: usize,
    },
    /// Source and destination are not apart.
    #[error("{call}: source and destination overlap; give it two arrays, or parts that do not")]
    Overlap {
        /// The call.
        call: &'static str,
    },
    /// Loads and stores do not reach it.
    #[error("loads and stores do not reach the heap of PE {pe}; calls of the world do")]
    OutOfReach {
        /// The PE.
        pe: usize,
    },
    /// The transport that was asked for is not to be had.
    #[error("no transport {transport} for {pes} PEs: {reason}")]
    Transport {
        /// What was asked for.
        transport: Transport,
        /// PEs.
        pes: usize,
        /// Why not, and what to do.
        reason: String,
    },
    /// A call failed, and connections to other PEs have.
    #[error("{source}; {}", failures.join("; "))]
    Network {
        /// Each queue pair that failed, and why.
        failures: Vec<String>,
        /// The call's own error.
        #[source]
        source: RunError,
    },
    /// A call that is made between kernels.
    #[error("{what}: kernels of this engine are running; finish them first")]
    Busy {
        /// The call.
        what: &'static str,
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

crate::remedy::pass_on!(ShmemError: Engine, Run, Memory);

/// What each rank said, from rank 0 on.
fn differences(said: &[String]) -> String {
    by_rank(said.iter().enumerate())
}
