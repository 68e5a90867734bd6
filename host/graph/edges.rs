//! A graph where kernels can reach it: everything of size O(vertices) in the engine's memory, the edges where they were
//! asked to be.

use super::params::GRAPH_PIECE_EDGES;
use crate::engine::{Args, Engine, EngineError, KernelArg, RunError};
use crate::memory::{MemoryError, Region};
use crate::remedy::{Remedies, Remedy};
#[cfg(feature = "shmem")]
use crate::shmem::ShmemError;
use crate::storage::{Array, Cache, Element, ElementType, Stats, StorageError};
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time of one kernel, unless told otherwise.
pub const DEFAULT_LAUNCH_LIMIT: Duration = Duration::from_secs(300);

/// `warpbell::graph::weighted` of 32-bit identifiers; the weight is an integer or the bits of a float.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct NarrowEdge {
    pub(super) id: u32,
    pub(super) weight: u32,
}

/// `warpbell::graph::weighted` of 64-bit identifiers; the weight is an integer or the bits of a double.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct WideEdge {
    pub(super) id: u64,
    pub(super) weight: u64,
}

impl Element for NarrowEdge {
    const TYPE: ElementType = ElementType::Record;
}

impl Element for WideEdge {
    const TYPE: ElementType = ElementType::Record;
}

/// Why a graph could not be placed, or an algorithm not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A kernel could not be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A kernel failed: an edge could not be read, or it did not end in time.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The source is not a vertex.
    #[error("vertex {source_vertex} does not exist: the graph has {vertices} vertices, numbered from 0")]
    NoSuchVertex {
        /// The vertex asked for.
        source_vertex: u64,
        /// Vertices in the graph.
        vertices: u64,
    },
    /// The graph was placed without something that the algorithm reads.
    #[error("the graph was placed without {missing}, which {algorithm} reads; add it to `Needs` when placing")]
    NotPlaced {
        /// What is missing.
        missing: &'static str,
        /// Who wants it.
        algorithm: &'static str,
    },
    /// The graph could not be written to storage, or the cache not be emptied or filled.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A device holds stored arrays other than those that were to be placed.
    #[error("{}: it holds {holds}; nothing was written", device.display())]
    Occupied {
        /// The file, or the device as it was named: what a [`OverwritePolicy`](crate::storage::Consent) has to name.
        device: PathBuf,
        /// Words for its contents.
        holds: String,
    },
    /// What was read is not the edge list that was placed.
    #[error(
        "{edges} edge(s) lead to vertices that do not exist: the edge list was overwritten since it was placed; load the graph again"
    )]
    Corrupt {
        /// Edges that were found so.
        edges: u64,
    },
    /// Distances might not fit 64 bits.
    #[error(
        "{vertices} vertices times the largest weight {weight} do not fit 64-bit distances; scale the weights down"
    )]
    DistanceOverflow {
        /// Vertices.
        vertices: u64,
        /// The largest weight.
        weight: u64,
    },
    /// A parameter is outside its range.
    #[error("{name} is {value}, it must be {range}")]
    Parameter {
        /// Which one.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        range: &'static str,
    },
    /// The symmetric heap, or a PE that did not come.
    #[cfg(feature = "shmem")]
    #[error(transparent)]
    Shmem(#[from] ShmemError),
    /// Another PE of a search over a partitioned graph failed.
    #[error("the search ended because PE {pe} failed; that one says why")]
    OtherPe {
        /// Which.
        pe: usize,
    },
    /// The PEs' steps no longer belong together.
    #[error(
        "an earlier search over this partition failed, and its PEs are no longer at the same step; set the search up anew"
    )]
    OutOfStep,
    /// A partition was made for another world.
    #[error(
        "the graph was dealt out to {partitioned} PEs, and this world has {pes}; deal it out to as many as there are"
    )]
    OtherWorld {
        /// PEs that it was dealt out to.
        partitioned: usize,
        /// PEs of the world.
        pes: usize,
    },
    /// The algorithm did not come to its end within the rounds that it may take.
    #[error("{algorithm} was not done after {rounds} rounds; raise the limit, or choose a larger delta")]
    TooManyRounds {
        /// Which algorithm.
        algorithm: &'static str,
        /// The limit.
        rounds: u64,
    },
}

impl Remedies for GraphError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::Occupied { device, .. } => {
                vec![Remedy::step("choose another device"), Remedy::Overwrite(device.clone())]
            }
            Self::Memory(e) => e.remedies(),
            Self::Engine(e) => e.remedies(),
            Self::Run(e) => e.remedies(),
            Self::Storage(e) => e.remedies(),
            #[cfg(feature = "shmem")]
            Self::Shmem(e) => e.remedies(),
            _ => Vec::new(),
        }
    }
}

/// Where the edges are while kernels read them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Placement {
    /// The engine's own memory: GPU memory, or the heap.
    Gpu,
    /// Pinned host memory that kernels read over the bus (zero-copy). On the CPU engine the same as [`Placement::Gpu`].
    Pinned,
    /// A volume, through this cache.
    Storage(Cache),
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpu => "gpu",
            Self::Pinned => "pinned",
            Self::Storage(_) => "storage",
        })
    }
}

/// What of a graph is placed. An algorithm that finds something missing says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementOptions {
    /// Neighbour lists: breadth-first search, components, and PageRank of undirected graphs.
    pub lists: bool,
    /// In-neighbour lists of a directed graph: PageRank; breadth-first search can then go bottom-up.
    pub inward: bool,
    /// Lists of neighbours with weights: shortest paths.
    pub weighted: bool,
}

impl PlacementOptions {
    /// For breadth-first search.
    pub const BFS: Self = Self { lists: true, inward: true, weighted: false };
    /// For connected components.
    pub const COMPONENTS: Self = Self { lists: true, inward: false, weighted: false };
    /// For PageRank.
    pub const PAGERANK: Self = Self { lists: true, inward: true, weighted: false };
    /// For shortest paths.
    pub const SSSP: Self = Self { lists: false, inward: false, weighted: true };
    /// For all of them.
    pub const ALL: Self = Self { lists: true, inward: true, weighted: true };
}

/// Edges of one kind, as kernels read them.
#[derive(Debug)]
pub(super) enum EdgeStore {
    /// Loads reach it.
    Memory(Region),
    Narrow(Array<u32>),
    Wide(Array<u64>),
    WeightedNarrow(Array<NarrowEdge>),
    WeightedWide(Array<WideEdge>),
}

impl EdgeStore {
    /// The part of a kernel's name that says where its edges are.
    pub(super) fn source(&self) -> &'static str {
        match self {
            Self::Memory(_) => "pointer",
            _ => "storage",
        }
    }

    fn warm(&self) -> Result<(), StorageError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Narrow(array) => array.warm(),
            Self::Wide(array) => array.warm(),
            Self::WeightedNarrow(array) => array.warm(),
            Self::WeightedWide(array) => array.warm(),
        }
    }
}

impl KernelArg for EdgeStore {
    fn push(&self, args: &mut Args) {
        match self {
            EdgeStore::Memory(region) => region.push(args),
            EdgeStore::Narrow(array) => array.push(args),
            EdgeStore::Wide(array) => array.push(args),
            EdgeStore::WeightedNarrow(array) => array.push(args),
            EdgeStore::WeightedWide(array) => array.push(args),
        }
    }
}

/// What an edge's weight is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WeightKind {
    /// An integer; `largest` bounds the distances.
    Integer { largest: u64 },
    /// A real number.
    Real,
}

/// One direction of a graph.
#[derive(Debug)]
pub(super) struct Lists {
    /// u64[vertices + 1].
    pub offset: Region,
    /// For each vertex its neighbours of the highest degrees ([`leads`](super::hub::leads)).
    pub hubs: Region,
    /// For each tile of edges the vertex of its first edge.
    pub tile: Region,
    /// Whether a vertex's leads are the first of its list.
    pub hubs_first: bool,
    pub edges: Option<EdgeStore>,
}

/// Neighbours with weights, interleaved so that one page brings both.
#[derive(Debug)]
pub(super) struct Weighted {
    pub edges: EdgeStore,
    pub kind: WeightKind,
    /// Mean weight.
    pub mean: f64,
    /// Whether identifiers are stored in 64 bits.
    pub wide: bool,
}

/// A graph that kernels can reach.
#[derive(Debug)]
pub struct GraphOnEngine {
    pub(super) engine: Engine,
    pub(super) placement: Placement,
    pub(super) vertices: u64,
    pub(super) arcs: u64,
    pub(super) directed: bool,
    /// Whether identifiers have 64 bits.
    pub(super) wide: bool,
    pub(super) out: Lists,
    /// In-edges of a directed graph.
    pub(super) inward: Option<Lists>,
    pub(super) weighted: Option<Weighted>,
    /// Bitmap of vertices without edges, and of those past the last.
    pub(super) isolated: Region,
    /// Vertices that have edges, as far as is known.
    pub(super) connected: u64,
    pub(super) launch_limit: Duration,
}

impl GraphOnEngine {
    /// How long one kernel may take before it is told to stop and the run is an error.
    pub fn set_launch_limit(&mut self, limit: Duration) {
        self.launch_limit = limit;
    }

    /// Vertices.
    pub fn vertices(&self) -> u64 {
        self.vertices
    }

    /// Stored neighbours: see [`super::Csr::arcs`].
    pub fn arcs(&self) -> u64 {
        self.arcs
    }

    /// Where the edges are.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Empties the cache, so that the next run reads every edge from storage. Nothing to do for edges in memory.
    pub fn cool(&self) -> Result<(), GraphError> {
        match &self.placement {
            Placement::Storage(cache) => Ok(cache.reset()?),
            _ => Ok(()),
        }
    }

    /// Brings edges into the cache, as far as they fit. Nothing to do for edges in memory.
    pub fn warm(&self) -> Result<(), GraphError> {
        let stores = [
            self.out.edges.as_ref(),
            self.inward.as_ref().and_then(|lists| lists.edges.as_ref()),
            self.weighted.as_ref().map(|w| &w.edges),
        ];
        stores.into_iter().flatten().try_for_each(|edges| Ok(edges.warm()?))
    }

    /// What the volume and its caches counted; `None` for edges in memory.
    pub fn stats(&self) -> Result<Option<Stats>, GraphError> {
        match &self.placement {
            Placement::Storage(cache) => Ok(Some(cache.stats()?)),
            _ => Ok(None),
        }
    }

    /// What was counted since then.
    pub(super) fn stats_since(&self, earlier: Option<Stats>) -> Result<Option<Stats>, GraphError> {
        let Some(then) = earlier else { return Ok(None) };
        Ok(self.stats()?.map(|now| now - then))
    }

    /// Where kernels run.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether edges are read in pages from a device.
    pub(super) fn is_stored(&self) -> bool {
        matches!(self.placement, Placement::Storage(_))
    }

    /// Bits of an identifier in the edge list: 32 or 64.
    pub fn id_bits(&self) -> u32 {
        if self.wide { 64 } else { 32 }
    }

    pub(super) fn id_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The part of a kernel's name that says how wide its identifiers are.
    pub(super) fn id_suffix(&self) -> &'static str {
        if self.wide { "u64" } else { "u32" }
    }

    /// "No vertex", as identifiers have it.
    pub(super) fn none(&self) -> u64 {
        if self.wide { u64::MAX } else { u64::from(u32::MAX) }
    }

    pub(super) fn check_source(&self, source: u64) -> Result<(), GraphError> {
        if source < self.vertices {
            return Ok(());
        }
        Err(GraphError::NoSuchVertex { source_vertex: source, vertices: self.vertices })
    }

    /// Identifiers from the engine's memory; `u64::MAX` stands for none.
    pub(super) fn read_ids(&self, region: &Region) -> Result<Vec<u64>, GraphError> {
        let count = self.vertices as usize;
        if self.wide {
            return Ok(region.get_slice(0, count)?);
        }
        let narrow = region.get_slice::<u32>(0, count)?;
        Ok(narrow.into_par_iter().map(|v| if v == u32::MAX { u64::MAX } else { u64::from(v) }).collect())
    }

    /// Items that a queue may have to hold: one for each vertex, and the pieces of long lists beyond the first.
    pub(super) fn queue_items(&self) -> usize {
        (self.vertices + 2 * (self.arcs / GRAPH_PIECE_EDGES) + 1) as usize
    }
}
