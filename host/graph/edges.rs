//! Graphs that kernels can read: all data of size O(vertices) in the engine's memory, the edges where the caller wants
//! them.

#[cfg(feature = "shmem")]
use super::distribution::Distribution;
use super::import::ImportError;
use super::order::Order;
use super::params::GRAPH_PIECE_EDGES;
use super::stored::StoredError;
use crate::engine::{Args, Engine, EngineError, KernelArg, RunError};
use crate::memory::{MemoryError, Region};
use crate::remedy::{Remedies, Remedy};
#[cfg(feature = "shmem")]
use crate::shmem::ShmemError;
use crate::storage::{Array, Cache, Element, ElementType, Stats, StorageError};
use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Default limit of the time of one kernel.
pub const DEFAULT_LAUNCH_LIMIT: Duration = Duration::from_secs(300);

/// `warpbell::graph::weighted` with a 32-bit identifier. The weight is an integer or the bits of a float.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct NarrowEdge {
    pub(super) id: u32,
    pub(super) weight: u32,
}

/// `warpbell::graph::weighted` with a 64-bit identifier. The weight is an integer or the bits of a double.
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

/// Error of placing a graph, or of running an algorithm.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Memory cannot be allocated or accessed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A kernel could not be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A kernel failed: it could not read an edge, or did not end in time.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The source, or another vertex that a program names, is not a vertex of the graph.
    #[error("vertex {source_vertex} does not exist: the graph has {vertices} vertices, numbered from 0")]
    NoSuchVertex {
        /// The vertex asked for.
        source_vertex: u64,
        /// Number of vertices.
        vertices: u64,
    },
    /// The number of searches at once is outside its range.
    #[error("{searches} searches at once; there must be 1 to {most}, and more in several runs")]
    Searches {
        /// Number of searches asked for.
        searches: usize,
        /// Largest number.
        most: usize,
    },
    /// A result has no depths of such a search.
    #[error("there are no depths of search {search}; the result has those of {searches} searches, numbered from 0")]
    NoSearch {
        /// The search asked for.
        search: usize,
        /// Number of searches with depths.
        searches: usize,
    },
    /// The depths of several searches do not fit into the engine's memory.
    #[error(
        "the depths of {searches} searches over {vertices} vertices need {needed} bytes more of the engine's memory ({reason}); search from fewer sources at once, or keep no depths"
    )]
    Depths {
        /// Number of searches.
        searches: usize,
        /// Number of vertices.
        vertices: u64,
        /// Bytes that are missing.
        needed: u64,
        /// Reason why they cannot be allocated.
        reason: String,
    },
    /// The graph was placed without data that the algorithm reads.
    #[error(
        "the placed graph lacks the {missing}, which {algorithm} reads; place it again with `PlacementOptions` that include them"
    )]
    NotPlaced {
        /// The data that is missing.
        missing: &'static str,
        /// The algorithm that reads it.
        algorithm: &'static str,
    },
    /// The algorithm is one of undirected graphs, and the graph is directed.
    #[error("{algorithm} is defined for undirected graphs, and this graph is directed")]
    Directed {
        /// Name of the algorithm.
        algorithm: &'static str,
    },
    /// The graph could not be written to storage, or the cache could not be emptied or filled.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A stored graph does not exist, exists already, or cannot be read.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// A graph does not fit into memory.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A device holds stored arrays other than those to be placed.
    #[error("{}: it holds {holds}; nothing was written", device.display())]
    Occupied {
        /// The file, or the device as it was named. An [`OverwritePolicy`](crate::storage::OverwritePolicy) has to name
        /// it.
        device: PathBuf,
        /// Description of its contents.
        holds: String,
    },
    /// The edges that were read are not those that were placed.
    #[error(
        "{edges} edge(s) lead to vertices that do not exist: the edge list was overwritten since it was placed; load the graph again"
    )]
    Corrupt {
        /// Number of such edges.
        edges: u64,
    },
    /// Distances might not fit into 64 bits.
    #[error(
        "{vertices} vertices times the largest weight {weight} do not fit 64-bit distances; scale the weights down"
    )]
    DistanceOverflow {
        /// Number of vertices.
        vertices: u64,
        /// The largest weight.
        weight: u64,
    },
    /// More shortest paths lead to a vertex than a 64-bit number can count.
    #[error(
        "more than 1.8e308 shortest paths lead from vertex {source_vertex} to another one, which 64-bit numbers cannot count; choose another source"
    )]
    TooManyPaths {
        /// The source, a vertex number from 0.
        source_vertex: u64,
    },
    /// A parameter is outside its range.
    #[error("{name} is {value}, it must be {range}")]
    Parameter {
        /// Name of the parameter.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Allowed range.
        range: &'static str,
    },
    /// The symmetric heap failed, or a PE did not join.
    #[cfg(feature = "shmem")]
    #[error(transparent)]
    Shmem(#[from] ShmemError),
    /// Another PE of a run over a partitioned graph failed.
    #[error("the run ended because PE {pe} failed; see the error of that PE")]
    OtherPe {
        /// The PE that failed.
        pe: usize,
    },
    /// The algorithm runs on one PE, and the graph's lists are distributed.
    #[error(
        "{algorithm} runs on one PE, and this graph is distributed over the PEs of a world; place the whole graph on one engine"
    )]
    Distributed {
        /// Name of the algorithm.
        algorithm: &'static str,
    },
    /// The PEs are no longer at the same step.
    #[error(
        "an earlier run over this partition failed, so its PEs are no longer at the same step; create a new search or algorithm"
    )]
    OutOfStep,
    /// The partition was made for another world.
    #[error("the graph is partitioned for {partitioned} PEs, and this world has {pes}; partition it for that many")]
    OtherWorld {
        /// Number of PEs of the partition.
        partitioned: usize,
        /// Number of PEs of the world.
        pes: usize,
    },
    /// The algorithm did not end within its limit of rounds.
    #[error("{algorithm} did not finish within {rounds} rounds; raise the limit, or choose a larger delta")]
    TooManyRounds {
        /// Name of the algorithm.
        algorithm: &'static str,
        /// Limit of rounds.
        rounds: u64,
    },
}

impl Remedies for GraphError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::Occupied { device, .. } => {
                vec![Remedy::step("choose another device"), Remedy::Overwrite(device.clone())]
            }
            Self::Directed { .. } => vec![Remedy::LoadUndirected],
            Self::Memory(e) => e.remedies(),
            Self::Engine(e) => e.remedies(),
            Self::Run(e) => e.remedies(),
            Self::Storage(e) => e.remedies(),
            Self::Stored(e) => e.remedies(),
            #[cfg(feature = "shmem")]
            Self::Shmem(e) => e.remedies(),
            _ => Vec::new(),
        }
    }
}

/// Memory or storage of the edges while kernels read them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Placement {
    /// Memory of the engine: GPU memory, or the heap.
    Gpu,
    /// Pinned host memory that kernels read over the bus (zero-copy). On the CPU engine this is the same as
    /// [`Placement::Gpu`].
    Pinned,
    /// A volume, read through this cache.
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

/// Parts of a graph to place. An algorithm that needs a missing part fails with [`GraphError::NotPlaced`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementOptions {
    /// True to place neighbour lists: for all algorithms but shortest paths, and PageRank of directed graphs.
    pub lists: bool,
    /// True to place in-neighbour lists of a directed graph: for PageRank, label propagation, strongly connected
    /// components, clustering coefficients and cores, and for bottom-up steps of breadth-first search.
    pub inward: bool,
    /// True to place lists of neighbours with weights: for shortest paths.
    pub weighted: bool,
}

impl PlacementOptions {
    /// Parts for breadth-first search.
    pub const BFS: Self = Self { lists: true, inward: true, weighted: false };
    /// Parts for connected components.
    pub const COMPONENTS: Self = Self { lists: true, inward: false, weighted: false };
    /// Parts for PageRank.
    pub const PAGERANK: Self = Self { lists: true, inward: true, weighted: false };
    /// Parts for betweenness centrality.
    pub const BETWEENNESS: Self = Self { lists: true, inward: false, weighted: false };
    /// Parts for strongly connected components.
    pub const STRONG_COMPONENTS: Self = Self { lists: true, inward: true, weighted: false };
    /// Parts for label propagation.
    pub const CDLP: Self = Self { lists: true, inward: true, weighted: false };
    /// Parts for shortest paths.
    pub const SSSP: Self = Self { lists: false, inward: false, weighted: true };
    /// Parts for triangle counting.
    pub const TRIANGLES: Self = Self { lists: true, inward: false, weighted: false };
    /// Parts for local clustering coefficients.
    pub const CLUSTERING: Self = Self { lists: true, inward: true, weighted: false };
    /// Parts for k-core decomposition.
    pub const CORES: Self = Self { lists: true, inward: true, weighted: false };
    /// Parts for all algorithms.
    pub const ALL: Self = Self { lists: true, inward: true, weighted: true };

    /// Returns the parts for all algorithms that a graph has the edges for, with weights or without.
    pub const fn all_of(has_weights: bool) -> Self {
        Self { weighted: has_weights, ..Self::ALL }
    }
}

/// Edges of one kind, in the form in which kernels read them.
#[derive(Clone, Debug)]
pub(super) enum EdgeStore {
    /// Memory that kernels read by loads.
    Memory(Region),
    Narrow(Array<u32>),
    Wide(Array<u64>),
    WeightedNarrow(Array<NarrowEdge>),
    WeightedWide(Array<WideEdge>),
    /// Packed lists ([`packed`](super::packed)) in memory that kernels read by loads: words, and the first word of each
    /// block.
    PackedMemory {
        words: Region,
        positions: Region,
    },
    /// Packed lists on a volume.
    PackedStorage {
        words: Array<u32>,
        positions: Region,
    },
}

impl EdgeStore {
    /// Returns the part of a kernel's name that tells where its edges are.
    pub(super) fn source(&self) -> &'static str {
        match self {
            Self::Memory(_) => "pointer",
            Self::PackedMemory { .. } => "packed_pointer",
            Self::PackedStorage { .. } => "packed_storage",
            _ => "storage",
        }
    }

    /// Returns the number of pages that the edges take, or `None` for edges in memory.
    pub(super) fn pages(&self) -> Option<u64> {
        let pages = match self {
            Self::Memory(_) | Self::PackedMemory { .. } => return None,
            Self::Narrow(array) | Self::PackedStorage { words: array, .. } => array.pages(),
            Self::Wide(array) => array.pages(),
            Self::WeightedNarrow(array) => array.pages(),
            Self::WeightedWide(array) => array.pages(),
        };
        Some(pages.end - pages.start)
    }

    fn warm(&self) -> Result<(), StorageError> {
        match self {
            Self::Memory(_) | Self::PackedMemory { .. } => Ok(()),
            Self::Narrow(array) | Self::PackedStorage { words: array, .. } => array.warm(),
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
            EdgeStore::PackedMemory { words, positions } => {
                words.push(args);
                positions.push(args);
            }
            EdgeStore::PackedStorage { words, positions } => {
                words.push(args);
                positions.push(args);
            }
        }
    }
}

/// Order of the lists of a placed graph, if it is not that of the identifiers.
#[derive(Clone, Debug)]
pub(super) struct PlacedOrder {
    pub host: Arc<Order>,
    /// Number outside of each vertex, u32[vertices].
    pub outside: Region,
}

/// Kind of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WeightKind {
    /// Integers, of which `largest` bounds the distances.
    Integer { largest: u64 },
    /// Real numbers.
    Real,
}

/// Data of one direction of a graph.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    /// Index of each vertex's first edge, u64[vertices + 1].
    pub offset: Region,
    /// Number of edges.
    pub arcs: u64,
    /// Neighbours of each vertex with the highest degrees ([`hub_neighbours`](super::hub::hub_neighbours)).
    pub hubs: Region,
    /// For each tile of edges, the vertex that holds the tile's first edge.
    pub tile: Region,
    /// True if a vertex's hub neighbours are the first of its list, and a run may begin behind them.
    pub hubs_first: bool,
    /// True if lists descend by the degrees of the neighbours, and by number for equal degrees.
    pub by_degree: bool,
    pub edges: Option<EdgeStore>,
}

/// In-lists of a directed graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct InLists<'a> {
    pub lists: &'a Lists,
    pub edges: &'a EdgeStore,
}

/// Neighbours with weights, interleaved so that one page holds both.
#[derive(Clone, Debug)]
pub(super) struct Weighted {
    pub edges: EdgeStore,
    pub kind: WeightKind,
    /// Mean of the weights.
    pub mean: f64,
    /// True if identifiers are stored in 64 bits.
    pub wide: bool,
}

/// A graph that kernels can read.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{BfsOptions, Csr, CsrOptions, GraphOnEngine, Placement, PlacementOptions, bfs};
/// use warpbell::storage::{Cache, Drive, OverwritePolicy, Volume};
///
/// // A path of four vertices: 0 - 1 - 2 - 3.
/// let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 3)], CsrOptions::default())?;
/// let plan = GraphOnEngine::plan(&csr, PlacementOptions::BFS);
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", plan.bytes(), &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
/// let cache = Cache::on(&volume).bytes(1 << 20).build()?;
/// // Kernels read the edges from storage, through the cache.
/// let graph = GraphOnEngine::place(&engine, &csr, Placement::Storage(cache), PlacementOptions::BFS)?;
/// let result = bfs(&graph, 0, &BfsOptions::default())?;
/// assert_eq!(result.depth, [0, 1, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GraphOnEngine {
    pub(super) engine: Engine,
    pub(super) placement: Placement,
    pub(super) vertices: u64,
    pub(super) arcs: u64,
    pub(super) directed: bool,
    /// True if identifiers have 64 bits.
    pub(super) wide: bool,
    pub(super) out: Lists,
    /// In-edges of a directed graph, if they are placed.
    pub(super) inward: Option<Lists>,
    pub(super) weighted: Option<Weighted>,
    pub(super) order: Option<PlacedOrder>,
    /// Bitmap of vertices without edges, and of bits past the last vertex.
    pub(super) isolated: Region,
    /// Bitmap of vertices with an edge to themselves, or `None` if there are none.
    pub(super) loops: Option<Region>,
    /// Number of vertices that have edges, as far as is known.
    pub(super) connected: u64,
    pub(super) launch_limit: Duration,
    /// Set if the graph has only the lists of some vertices here.
    #[cfg(feature = "shmem")]
    pub(super) distribution: Option<Distribution>,
}

impl GraphOnEngine {
    /// Returns the vertices, in the order of the lists, whose lists are here.
    pub(super) fn own_vertices(&self) -> Range<u64> {
        #[cfg(feature = "shmem")]
        if let Some(distribution) = &self.distribution {
            return distribution.own();
        }
        0..self.vertices
    }

    /// Returns true if the graph has only the lists of some vertices here.
    pub(super) fn is_distributed(&self) -> bool {
        #[cfg(feature = "shmem")]
        return self.distribution.is_some();
        #[cfg(not(feature = "shmem"))]
        return false;
    }

    /// Returns the number of stored neighbours on all PEs.
    pub(super) fn all_arcs(&self) -> u64 {
        #[cfg(feature = "shmem")]
        if let Some(distribution) = &self.distribution {
            return distribution.arcs;
        }
        self.arcs
    }

    /// Sets the time limit of one kernel. A kernel that exceeds the limit is told to stop, and the run fails.
    pub fn set_launch_limit(&mut self, limit: Duration) {
        self.launch_limit = limit;
    }

    /// Returns the number of vertices.
    pub fn vertices(&self) -> u64 {
        self.vertices
    }

    /// Returns the number of stored neighbours: see [`super::Csr::arcs`].
    pub fn arcs(&self) -> u64 {
        self.arcs
    }

    /// Returns true if edges have a direction.
    pub fn directed(&self) -> bool {
        self.directed
    }

    /// Returns true if edges are placed with weights.
    pub fn is_weighted(&self) -> bool {
        self.weighted.is_some()
    }

    /// Returns the placement of the edges.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Empties the cache, so that the next run reads every edge from storage. Does nothing for edges in memory.
    ///
    /// # Errors
    /// [`GraphError::Storage`] if the cache cannot be emptied.
    #[cfg(feature = "internals")]
    pub fn cool(&self) -> Result<(), GraphError> {
        match &self.placement {
            Placement::Storage(cache) => Ok(cache.reset()?),
            _ => Ok(()),
        }
    }

    /// Reads edges into the cache, as far as they fit. Does nothing for edges in memory.
    ///
    /// # Errors
    /// [`GraphError::Storage`] if edges cannot be read.
    pub fn warm(&self) -> Result<(), GraphError> {
        let stores = [
            self.out.edges.as_ref(),
            self.inward.as_ref().and_then(|lists| lists.edges.as_ref()),
            self.weighted.as_ref().map(|w| &w.edges),
        ];
        stores.into_iter().flatten().try_for_each(|edges| Ok(edges.warm()?))
    }

    /// Returns the counters of the volume and its caches, or `None` for edges in memory.
    ///
    /// # Errors
    /// [`GraphError::Storage`] if the counters cannot be read.
    pub fn stats(&self) -> Result<Option<Stats>, GraphError> {
        match &self.placement {
            Placement::Storage(cache) => Ok(Some(cache.stats()?)),
            _ => Ok(None),
        }
    }

    /// Returns the counters since `earlier`.
    pub(super) fn stats_since(&self, earlier: Option<Stats>) -> Result<Option<Stats>, GraphError> {
        let Some(then) = earlier else { return Ok(None) };
        Ok(self.stats()?.map(|now| now - then))
    }

    /// Returns the engine whose kernels can read the graph.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns true if edges are read in pages from a device.
    pub(super) fn is_stored(&self) -> bool {
        matches!(self.placement, Placement::Storage(_))
    }

    /// Returns the bits of an identifier in the edge list: 32 or 64.
    pub fn id_bits(&self) -> u32 {
        if self.wide { 64 } else { 32 }
    }

    pub(super) fn id_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Returns the address of the bitmap of vertices with an edge to themselves, or null.
    pub(super) fn loops_address(&self) -> u64 {
        self.loops.as_ref().map_or(0, Region::address)
    }

    /// Returns the out-lists' edges, and the in-lists with their edges if the graph is directed.
    pub(super) fn both_lists(&self, algorithm: &'static str) -> Result<(&EdgeStore, Option<InLists<'_>>), GraphError> {
        let missing = |missing| GraphError::NotPlaced { missing, algorithm };
        let out = self.out.edges.as_ref().ok_or(missing("neighbour lists"))?;
        if !self.directed {
            return Ok((out, None));
        }
        let lists = self.inward.as_ref().ok_or(missing("in-neighbour lists"))?;
        let edges = lists.edges.as_ref().ok_or(missing("in-neighbour lists"))?;
        Ok((out, Some(InLists { lists, edges })))
    }

    /// Returns the part of a kernel's name that tells the width of its identifiers.
    pub(super) fn id_suffix(&self) -> &'static str {
        if self.wide { "u64" } else { "u32" }
    }

    /// Returns the identifier that stands for "no vertex".
    pub(super) fn none(&self) -> u64 {
        if self.wide { u64::MAX } else { u64::from(u32::MAX) }
    }

    pub(super) fn check_vertex(&self, vertex: u64) -> Result<(), GraphError> {
        if vertex < self.vertices {
            return Ok(());
        }
        Err(GraphError::NoSuchVertex { source_vertex: vertex, vertices: self.vertices })
    }

    /// Returns the number of a vertex in the order of the lists.
    pub(super) fn inside(&self, v: u64) -> u64 {
        self.order.as_ref().map_or(v, |order| order.host.inside(v))
    }

    /// Returns the largest number of items in a queue: one for each vertex, and the further pieces of long lists.
    pub(super) fn queue_items(&self) -> usize {
        (self.vertices + 2 * (self.arcs / GRAPH_PIECE_EDGES) + 1) as usize
    }
}
