//! The error type of worlds.

use super::bootstrap::BootstrapError;
use super::transport::Transport;
use super::vote::{by_rank, failed};
use crate::engine::{EngineError, RunError};
use crate::memory::MemoryError;
use crate::rdma::RdmaError;

/// The error of building a world, of allocating memory in it, or of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmemError {
    /// The ranks could not exchange bytes.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The engine failed, for example because it could not launch a kernel.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A kernel that a host call launched failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Memory could not be allocated, mapped, or copied.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The symmetric heap could not be allocated or mapped on all PEs.
    #[error("no symmetric heap of {bytes} bytes for {pes} PEs: {reason}")]
    Heap {
        /// Bytes of each PE's heap; 0 if no size was known yet.
        bytes: usize,
        /// Number of PEs.
        pes: usize,
        /// Cause and remedy.
        reason: String,
    },
    /// The ranks gave different values for a setting that must be equal.
    #[error("{what} must be the same on all ranks: {}", differences(.asked))]
    Unequal {
        /// The setting.
        what: &'static str,
        /// The value on each rank, from rank 0 on.
        asked: Vec<String>,
    },
    /// The ranks made different collective calls.
    #[error(
        "all ranks must make the same collective calls, in the same order and with the same arguments: {}",
        differences(.calls)
    )]
    OutOfStep {
        /// The call of each rank with its arguments, from rank 0 on.
        calls: Vec<String>,
    },
    /// A collective call failed on some ranks, and therefore on all.
    #[error("{what} failed: {}", failed(.failures))]
    OnRanks {
        /// The call.
        what: String,
        /// The ranks that failed, with their reasons.
        failures: Vec<(usize, String)>,
    },
    /// A GPU has more PEs of this process than kernels that are guaranteed to run on it concurrently.
    #[error(
        "{pes} PEs of this process are on GPU {gpu}, which is guaranteed to run the kernels of only {most} concurrently; start the program with {}={} for {} PEs, or use fewer on one GPU",
        crate::cuda::CONNECTIONS_VARIABLE, crate::cuda::MOST_CONNECTIONS, crate::cuda::MOST_CONNECTIONS - 1
    )]
    Crowded {
        /// The GPU's ordinal.
        gpu: usize,
        /// Number of PEs on the GPU.
        pes: usize,
        /// Number of kernels that are guaranteed to run concurrently ([`crate::cuda::Context::kernels_side_by_side`]).
        most: usize,
    },
    /// An environment variable has an invalid value.
    #[error("{name}: {reason}")]
    Setting {
        /// Name of the variable.
        name: &'static str,
        /// The reason why the value is invalid.
        reason: String,
    },
    /// The alignment is not a power of two, or too large.
    #[error("an alignment of {align} is not valid in a symmetric heap; use a power of two up to {max}")]
    Alignment {
        /// The alignment of the call, in bytes.
        align: usize,
        /// The largest valid alignment, in bytes.
        max: usize,
    },
    /// Memory cannot be freed because a kernel may be using it.
    #[error(
        "{len} elements at offset {offset} of the symmetric heap are in use by running kernels, unfinished streams or other owners on PE(s) {pes:?}; they are freed when those have ended, without another call"
    )]
    InUse {
        /// PEs that use the memory.
        pes: Vec<usize>,
        /// Offset of the first element in the heap, in bytes.
        offset: usize,
        /// Number of elements on each PE.
        len: usize,
    },
    /// Loads and stores reach the PE, so there are no keys to its memory.
    #[error("loads and stores reach PE {pe}, so there are no keys to its memory; use transport mlx5, verbs or soft")]
    NoKeys {
        /// The PE.
        pe: usize,
    },
    /// The symmetric array belongs to another world.
    #[error("this symmetric array belongs to another world; use it with the one that allocated it")]
    Foreign,
    /// The symmetric heap has no free range that is large enough.
    #[error(
        "{bytes} bytes do not fit into the symmetric heap: {free} of {heap} are free, with {live} allocations; use a larger heap (WARPBELL_SYMMETRIC_SIZE, or WorldBuilder::heap_bytes)"
    )]
    HeapFull {
        /// Bytes of the allocation that failed.
        bytes: usize,
        /// Free bytes of the heap.
        free: usize,
        /// Number of live allocations.
        live: usize,
        /// Size of the heap in bytes.
        heap: usize,
    },
    /// A strided split does not describe PEs of the parent team.
    #[error(
        "a team of {size} PEs from PE {start} with stride {stride} does not fit into a team of {pes} PEs: size and stride must be at least 1, and the last PE at most {}", pes - 1
    )]
    NoTeam {
        /// First PE of the new team, as a member number of the parent team.
        start: usize,
        /// Distance between consecutive PEs of the new team.
        stride: usize,
        /// Number of PEs of the new team.
        size: usize,
        /// Number of PEs of the parent team.
        pes: usize,
    },
    /// No team slot is free on all PEs of the team.
    #[error(
        "no team slot is free on all PEs of the new team: a PE can be in {limit} teams at once, including the team of all PEs; drop a team, or use a larger heap (WARPBELL_SYMMETRIC_SIZE, or WorldBuilder::heap_bytes)"
    )]
    TeamLimit {
        /// Number of teams that a PE can be in.
        limit: usize,
    },
    /// The PEs of a host are not equally spaced, so they cannot form a team.
    #[error(
        "the PEs of host {host} are {pes:?}, but a team needs equally spaced PEs; start the ranks host by host, or round-robin over the hosts"
    )]
    ScatteredNode {
        /// Name of the host.
        host: String,
        /// PEs of the host.
        pes: Vec<usize>,
    },
    /// The lengths of destination and source do not match.
    #[error("{call}: {dest} elements in the destination and {source_len} in the source, with {pes} PEs; {rule}")]
    Lengths {
        /// The call.
        call: &'static str,
        /// Number of elements of the destination.
        dest: usize,
        /// Number of elements of the source.
        source_len: usize,
        /// Number of PEs of the team.
        pes: usize,
        /// The rule that relates the two lengths.
        rule: &'static str,
    },
    /// The elements are not aligned, not inside the region, or the region belongs to another engine.
    #[error(
        "{len} elements of {element} bytes from byte {offset} on are not inside a region of {bytes} bytes of this engine"
    )]
    Region {
        /// Offset of the first element in the region, in bytes.
        offset: usize,
        /// Number of elements.
        len: usize,
        /// Bytes of each element.
        element: usize,
        /// Size of the region in bytes.
        bytes: usize,
    },
    /// The memory does not consist of elements of this size.
    #[error(
        "{bytes} bytes from byte {offset} of the symmetric heap on are not elements of {element} bytes each: offset and length must be multiples of it"
    )]
    Cast {
        /// Bytes of the memory.
        bytes: usize,
        /// Offset of the first one in the heap.
        offset: usize,
        /// Bytes of each element.
        element: usize,
    },
    /// Source and destination overlap.
    #[error("{call}: source and destination overlap; use two arrays, or disjoint parts of one")]
    Overlap {
        /// The call.
        call: &'static str,
    },
    /// Loads and stores do not reach the heap of the PE.
    #[error("loads and stores do not reach the heap of PE {pe}; use the put and get calls of the world")]
    OutOfReach {
        /// The PE.
        pe: usize,
    },
    /// The queue pair of a stream has no room for more steps.
    #[error(
        "{requests} requests to PE {pe} do not fit the stream's queue pair, which has room for {room} of {capacity}; trigger and synchronize first, or build the world with larger queues"
    )]
    StreamFull {
        /// The PE.
        pe: usize,
        /// Requests of the step.
        requests: usize,
        /// Requests that fit now.
        room: u64,
        /// Requests that fit when none is in flight.
        capacity: u64,
    },
    /// The queue pair of a stream has failed.
    #[error(
        "the stream's connection to PE {pe} has failed: {reason}; synchronize the streams, then create StreamCalls again on all PEs"
    )]
    StreamConnection {
        /// The PE.
        pe: usize,
        /// Reason.
        reason: String,
    },
    /// The adapter does not reach memory of a step.
    #[error("{0}")]
    Registration(#[source] RdmaError),
    /// The requested transport is not available.
    #[error("no transport {transport} for {pes} PEs: {reason}")]
    Transport {
        /// The requested transport.
        transport: Transport,
        /// Number of PEs.
        pes: usize,
        /// Cause and remedy.
        reason: String,
    },
    /// A call failed, and connections of this PE to other PEs have failed.
    #[error("{source}; {}", failures.join("; "))]
    Network {
        /// Each queue pair that failed, with the reason.
        failures: Vec<String>,
        /// The error of the call.
        #[source]
        source: RunError,
    },
    /// The call is only valid while no kernel runs on this engine.
    #[error("{what}: kernels of this engine are running; wait for them first")]
    Busy {
        /// The call.
        what: &'static str,
    },
    /// The PE number is out of range.
    #[error("PE {pe}: this world has {size} PEs, 0 to {}", size - 1)]
    NoPe {
        /// The PE number of the call.
        pe: usize,
        /// Number of PEs.
        size: usize,
    },
    /// A wait for more signals than the wait can count.
    #[error("a wait for {n} signals: a shadow tells 2^63 - 1 signals apart; wait for fewer at a time")]
    Signals {
        /// Number of signals.
        n: u64,
    },
    /// The elements are outside the symmetric array.
    #[error("elements {first}..{} are outside a symmetric array of {len}", .first.saturating_add(*.count))]
    OutOfBounds {
        /// First element.
        first: usize,
        /// Number of elements.
        count: usize,
        /// Number of elements in the array.
        len: usize,
    },
}

crate::remedy::pass_on!(ShmemError: Engine, Run, Memory);

/// Lists what each rank said, from rank 0 on.
fn differences(said: &[String]) -> String {
    by_rank(said.iter().enumerate())
}
