//! Memory of a search over a partitioned graph: in the symmetric heap, and on each PE alone.

use super::plan::Whole;
use crate::graph::edges::GraphError;
use crate::graph::params::{PartitionCounters, PartitionHeader};
use crate::graph::{BfsOptions, GraphOnEngine, mirrors};
use crate::memory::{Place, Region};
use crate::shmem::{Sym, World};

/// Bits of a bitmap's word of 4 bytes, one for each slot.
const BITS: u64 = 32;

/// Generous bound of the heap bytes that allocations take beyond their size, and that a world keeps for itself.
const HEAP_SLACK: usize = 4 << 20;
const HEAP_SLACK_FOR_EACH_PE: usize = 64 << 10;
/// Denominator for the share of teams. A world sets an eighth of a heap aside for them, so a sixth on top is enough.
const TEAMS_SHARE: usize = 6;

/// Numbers of elements in the symmetric heap.
struct Sizes {
    depth: usize,
    parent_words: usize,
    inbox_words: usize,
    frontier_words: usize,
    header_words: usize,
}

impl Sizes {
    fn of(whole: &Whole, parents: bool) -> Self {
        let id_words = whole.id_bytes() / size_of::<u32>();
        // A single PE receives nothing.
        let senders = if whole.pes > 1 { whole.pes } else { 0 };
        Self {
            depth: whole.span as usize,
            parent_words: if parents { whole.span as usize * id_words } else { 0 },
            inbox_words: senders * whole.span as usize * 2 * id_words,
            frontier_words: 2 * senders * part_words(whole),
            header_words: 2 * whole.pes * size_of::<PartitionHeader>() / size_of::<u64>(),
        }
    }

    fn bytes(&self, pes: usize) -> usize {
        let words = self.depth + self.parent_words + self.inbox_words + self.frontier_words;
        words * size_of::<u32>() + (self.header_words + 2 * pes) * size_of::<u64>()
    }
}

/// Returns the words of a PE's part of a bitmap.
pub(super) fn part_words(whole: &Whole) -> usize {
    (whole.span / BITS) as usize
}

/// Returns the bytes of symmetric heap that an algorithm over a graph of so many vertices needs on each PE: a search with these
/// options, or one that keeps the values of all vertices on every PE. A search over 64-bit identifiers needs more
/// ([`PartitionPlan::heap_bytes`](super::PartitionPlan::heap_bytes)).
pub fn heap_bytes(vertices: u64, pes: usize, search: Option<&BfsOptions>) -> usize {
    let pes = pes.max(1);
    match search {
        Some(options) => search_heap_bytes(&Whole::new(pes, vertices, 0, 0, false), options.parents),
        None => heap_of(pes, mirrors::heap_bytes(vertices as usize, pes)),
    }
}

/// Returns the bytes of symmetric heap that a search needs on each PE.
pub(super) fn search_heap_bytes(whole: &Whole, parents: bool) -> usize {
    heap_of(whole.pes, Sizes::of(whole, parents).bytes(whole.pes))
}

/// Returns the bytes of a symmetric heap in which allocations of `bytes` bytes fit.
fn heap_of(pes: usize, bytes: usize) -> usize {
    let own = bytes + HEAP_SLACK + pes * HEAP_SLACK_FOR_EACH_PE;
    own + own / TEAMS_SHARE
}

/// Memory that other PEs write, or read results from. A PE index is that of the sender.
#[derive(Debug)]
pub(super) struct Shared {
    /// Depths, u32[span].
    pub depth: Sym<u32>,
    /// Parents: slots of 4 or 8 bytes, [span]; empty without parents.
    pub parent: Sym<u32>,
    /// Received claims of two slots each, [pes][span].
    pub inbox: Sym<u32>,
    /// Received lists or bitmaps of found vertices, u32[2][pes][span / 32].
    pub frontier: Sym<u32>,
    /// Received headers, `wb_partition_header`[2][pes].
    pub header: Sym<u64>,
    pub inbox_signal: Sym<u64>,
    pub frontier_signal: Sym<u64>,
}

impl Shared {
    /// Allocates the shared memory. Collective.
    pub(super) fn new(world: &World, whole: &Whole, parents: bool) -> Result<Self, GraphError> {
        let sizes = Sizes::of(whole, parents);
        Ok(Self {
            depth: world.malloc(sizes.depth)?,
            parent: world.malloc(sizes.parent_words)?,
            inbox: world.malloc(sizes.inbox_words)?,
            frontier: world.malloc(sizes.frontier_words)?,
            header: world.malloc(sizes.header_words)?,
            inbox_signal: world.malloc(whole.pes)?,
            frontier_signal: world.malloc(whole.pes)?,
        })
    }
}

/// Memory that only its own PE accesses.
#[derive(Debug)]
pub(super) struct PeMemory {
    /// Bitmap of all slots.
    pub seen: Region,
    /// Bitmap of the PE's own vertices.
    pub fresh: Region,
    pub queue: [Region; 2],
    /// Claims to send to each PE, [pes][span].
    pub outbox: Region,
    /// Number of claims for each PE, u64[pes].
    pub outbox_count: Region,
    /// Slots found, as many as a message may list.
    pub list: Region,
    pub counters: Region,
}

impl PeMemory {
    pub(super) fn new(graph: &GraphOnEngine, whole: &Whole, list_limit: u64) -> Result<Self, GraphError> {
        let device = |bytes: usize| graph.engine.allocate(Place::Device, bytes);
        let queue = || device(graph.queue_items() * 2 * graph.id_bytes());
        let claims = if whole.pes > 1 { whole.slots() as usize * 2 * whole.id_bytes() } else { 0 };
        Ok(Self {
            seen: device(whole.pes * part_words(whole) * size_of::<u32>())?,
            fresh: device(part_words(whole) * size_of::<u32>())?,
            queue: [queue()?, queue()?],
            outbox: device(claims)?,
            outbox_count: device(whole.pes * size_of::<u64>())?,
            list: device(list_limit as usize * whole.id_bytes())?,
            counters: device(size_of::<PartitionCounters>())?,
        })
    }
}
