//! A graph where kernels can reach it: everything of size O(vertices) in the engine's memory, the edges where they were
//! asked to be.

use super::csr::{Csr, NeighbourOrder, Neighbours, Weights, with_neighbours};
use super::hub::{hubs, order_by_degree};
use crate::engine::{Args, Engine, EngineError, Grid, KernelArg, RunError};
use crate::memory::{MemoryError, Place, Region};
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use std::fmt;
use std::time::Duration;

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
    /// The algorithm did not come to its end within the rounds that it may take.
    #[error("{algorithm} was not done after {rounds} rounds; raise the limit, or choose a larger delta")]
    TooManyRounds {
        /// Which algorithm.
        algorithm: &'static str,
        /// The limit.
        rounds: u64,
    },
}

/// Where the edges are while kernels read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// The engine's own memory: GPU memory, or the heap.
    Gpu,
    /// Pinned host memory that kernels read over the bus (zero-copy). On the CPU engine the same as [`Placement::Gpu`].
    Pinned,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpu => "gpu",
            Self::Pinned => "pinned",
        })
    }
}

/// What of a graph is placed. An algorithm that finds something missing says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Neighbour lists: breadth-first search, components, and PageRank of undirected graphs.
    pub lists: bool,
    /// In-neighbour lists of a directed graph: PageRank; breadth-first search can then go bottom-up.
    pub inward: bool,
    /// Lists of neighbours with weights: shortest paths.
    pub weighted: bool,
}

impl Needs {
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
}

impl EdgeStore {
    /// The part of a kernel's name that says where its edges are.
    pub(super) fn source(&self) -> &'static str {
        match self {
            Self::Memory(_) => "pointer",
        }
    }
}

impl<'a> KernelArg<'a> for &'a EdgeStore {
    fn push(&self, args: &mut Args<'a>) {
        match self {
            EdgeStore::Memory(region) => region.push(args),
        }
    }
}

/// What an edge's weight is, and how distances are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WeightKind {
    /// Integers; `largest` bounds the distances.
    Integer { largest: u64 },
    /// Real numbers, in this many bytes.
    Real { bytes: usize },
}

/// One direction of a graph.
#[derive(Debug)]
pub(super) struct Lists {
    /// u64[vertices + 1].
    pub offset: Region,
    /// For each vertex its neighbour of highest degree, or all ones.
    pub hub: Region,
    /// For each tile of edges the vertex of its first edge.
    pub tile: Region,
    /// Whether a vertex's hub is the first of its list.
    pub hub_leads: bool,
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
    launch_limit: Duration,
}

/// Edges in a tile: `piece_edges` of `kernels/graph/work.cuh`.
pub(super) const TILE_EDGES: u64 = 1024;

/// How long one kernel may take unless told otherwise.
pub const DEFAULT_LAUNCH_LIMIT: Duration = Duration::from_secs(300);

/// Threads in a block of a graph kernel, and blocks on a multiprocessor: `WB_GRAPH_KERNEL` of `kernels/graph/work.cuh`.
const BLOCK_THREADS: u32 = 256;
const BLOCKS_PER_PROCESSOR: u32 = 4;

/// Bytes that are interleaved at a time when edges with weights are written.
const COPY_BYTES: usize = 16 << 20;

impl GraphOnEngine {
    /// Copies a graph to where kernels can reach it.
    ///
    /// Lists sorted by degree ([`super::csr::NeighbourOrder::ByDegree`]) make breadth-first search read least. A graph
    /// without weights gets the weight 1 for every edge.
    pub fn place(engine: &Engine, csr: &Csr, placement: Placement, needs: Needs) -> Result<Self, GraphError> {
        let store = Store { engine, placement };
        let wide = csr.neighbours().as_u64().is_some();
        let out = store.lists(csr, needs.lists)?;
        let inward = if csr.directed() && needs.inward {
            let mut transpose = csr.transpose();
            if csr.order() == NeighbourOrder::ByDegree {
                order_by_degree(&mut transpose);
            }
            Some((store.lists(&transpose, true)?, transpose))
        } else {
            None
        };
        let isolated = isolated(csr, inward.as_ref().map(|(_, t)| t.offsets()));
        let bitmap = engine.allocate(Place::Device, isolated.len() * 4)?;
        let connected = isolated.par_iter().map(|word| u64::from(word.count_zeros())).sum();
        bitmap.set_slice(0, &isolated)?;
        let weighted = if needs.weighted { Some(store.weighted(csr)?) } else { None };
        Ok(Self {
            engine: engine.clone(),
            placement,
            vertices: csr.vertices(),
            arcs: csr.arcs(),
            directed: csr.directed(),
            wide,
            out,
            inward: inward.map(|(lists, _)| lists),
            weighted,
            isolated: bitmap,
            connected,
            launch_limit: DEFAULT_LAUNCH_LIMIT,
        })
    }

    /// How long one kernel may take before it is told to stop and the run is an error.
    pub fn set_launch_limit(&mut self, limit: Duration) {
        self.launch_limit = limit;
    }

    /// Vertices.
    pub fn vertices(&self) -> u64 {
        self.vertices
    }

    /// Stored neighbours: see [`Csr::arcs`].
    pub fn arcs(&self) -> u64 {
        self.arcs
    }

    /// Where the edges are.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Where kernels run.
    pub fn engine(&self) -> &Engine {
        &self.engine
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
        (self.vertices + 2 * (self.arcs / TILE_EDGES) + 1) as usize
    }
}

/// Puts a graph's parts where they go.
struct Store<'a> {
    engine: &'a Engine,
    placement: Placement,
}

impl Store<'_> {
    fn lists(&self, csr: &Csr, with_edges: bool) -> Result<Lists, GraphError> {
        let offset = self.device(csr.offsets())?;
        let hub = self.device(hubs(csr).bytes())?;
        let tile = with_neighbours!(csr.neighbours(), list => self.device(&tiles(csr.offsets(), list))?);
        let hub_leads = csr.order() == NeighbourOrder::ByDegree;
        let edges = if with_edges { Some(self.edges(csr.neighbours().bytes())?) } else { None };
        Ok(Lists { offset, hub, tile, hub_leads, edges })
    }

    fn device<T: Pod>(&self, values: &[T]) -> Result<Region, GraphError> {
        let region = self.engine.allocate(Place::Device, size_of_val(values))?;
        region.set_slice(0, values)?;
        Ok(region)
    }

    fn edge_memory(&self, bytes: usize) -> Result<Region, GraphError> {
        let place = match self.placement {
            Placement::Gpu => Place::Device,
            Placement::Pinned => Place::Host,
        };
        Ok(self.engine.allocate(place, bytes)?)
    }

    fn edges(&self, bytes: &[u8]) -> Result<EdgeStore, GraphError> {
        let region = self.edge_memory(bytes.len())?;
        region.write(0, bytes)?;
        Ok(EdgeStore::Memory(region))
    }

    fn weighted(&self, csr: &Csr) -> Result<Weighted, GraphError> {
        let edges = csr.arcs().max(1) as f64;
        let n = csr.neighbours();
        let unit: Vec<u32>;
        let (kind, mean, weights) = match csr.weights() {
            Some(Weights::U32(w)) => {
                let sum: u64 = w.par_iter().map(|&w| u64::from(w)).sum();
                let largest = w.par_iter().copied().max().unwrap_or(0).into();
                (WeightKind::Integer { largest }, sum as f64 / edges, W::U32(w))
            }
            Some(Weights::F32(w)) => {
                let sum: f64 = w.par_iter().map(|&w| f64::from(w)).sum();
                (WeightKind::Real { bytes: 4 }, sum / edges, W::F32(w))
            }
            Some(Weights::F64(w)) => (WeightKind::Real { bytes: 8 }, w.par_iter().sum::<f64>() / edges, W::F64(w)),
            None => {
                unit = vec![1; n.len()];
                (WeightKind::Integer { largest: 1 }, 1.0, W::U32(&unit))
            }
        };
        // Double weights lie beside 64-bit identifiers so that an element stays a power of two.
        let wide = n.as_u64().is_some() || matches!(weights, W::F64(_));
        let region = match (wide, &weights) {
            (false, W::F32(w)) => self.interleave(n, |i| [n.get(i) as u32, w[i].to_bits()])?,
            (false, W::U32(w)) => self.interleave(n, |i| [n.get(i) as u32, w[i]])?,
            (_, W::U32(w)) => self.interleave(n, |i| [n.get(i), u64::from(w[i])])?,
            (_, W::F32(w)) => self.interleave(n, |i| [n.get(i), f64::from(w[i]).to_bits()])?,
            (_, W::F64(w)) => self.interleave(n, |i| [n.get(i), w[i].to_bits()])?,
        };
        Ok(Weighted { edges: EdgeStore::Memory(region), kind, mean, wide })
    }

    fn interleave<T: Pod + Send>(
        &self,
        neighbours: &Neighbours,
        edge: impl Fn(usize) -> [T; 2] + Sync,
    ) -> Result<Region, GraphError>
    where
        [T; 2]: Pod,
    {
        let count = neighbours.len();
        let size = size_of::<[T; 2]>();
        let region = self.edge_memory(count * size)?;
        let step = COPY_BYTES / size;
        for first in (0..count).step_by(step) {
            let part: Vec<[T; 2]> = (first..count.min(first + step)).into_par_iter().map(&edge).collect();
            region.set_slice(first * size, &part)?;
        }
        Ok(region)
    }
}

/// Weights by reference.
enum W<'a> {
    U32(&'a [u32]),
    F32(&'a [f32]),
    F64(&'a [f64]),
}

/// Bits of vertices that have no edge in either direction, and of those past the last.
fn isolated(csr: &Csr, inward: Option<&[u64]>) -> Vec<u32> {
    let vertices = csr.vertices() as usize;
    let alone = |offsets: &[u64], v: usize| offsets[v] == offsets[v + 1];
    // Without in-lists nobody knows that nothing leads to a vertex, and nothing asks.
    let known = !csr.directed() || inward.is_some();
    (0..vertices.div_ceil(32))
        .into_par_iter()
        .map(|word| {
            (0..32).fold(0, |bits, bit| {
                let v = word * 32 + bit;
                let set = v >= vertices || known && alone(csr.offsets(), v) && inward.is_none_or(|i| alone(i, v));
                bits | u32::from(set) << bit
            })
        })
        .collect()
}

/// For each tile of edges the vertex that holds its first one.
fn tiles<V: super::csr::VertexId>(offsets: &[u64], neighbours: &[V]) -> Vec<V> {
    let tiles = (neighbours.len() as u64).div_ceil(TILE_EDGES);
    (0..tiles).into_par_iter().map(|t| V::from_index(offsets.partition_point(|&o| o <= t * TILE_EDGES) - 1)).collect()
}

/// `wb_graph_tally` and `wb_graph_report` of `kernels/graph/work.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Report {
    pub sum: [u64; 6],
    pub least: u64,
    reserved: u64,
}

/// The sum that counts edges which lead nowhere.
const BAD_EDGES: usize = 5;

impl Report {
    /// A sum of real numbers.
    pub(super) fn real(&self, which: usize) -> f64 {
        f64::from_bits(self.sum[which])
    }
}

/// Launches the kernels of one algorithm, one after another, and reads what each reports.
#[derive(Debug)]
pub(super) struct Launcher<'g> {
    engine: &'g Engine,
    grid: Grid,
    limit: Duration,
    tally: Region,
    report: Region,
}

impl<'g> Launcher<'g> {
    pub(super) fn new(graph: &'g GraphOnEngine) -> Result<Self, GraphError> {
        let tally = graph.engine.allocate(Place::Device, size_of::<Report>())?;
        let report = graph.engine.allocate(Place::Host, size_of::<Report>())?;
        let this = Self {
            engine: &graph.engine,
            grid: graph.engine.grid(BLOCK_THREADS, BLOCKS_PER_PROCESSOR),
            limit: graph.launch_limit,
            tally,
            report,
        };
        this.reset()?;
        Ok(this)
    }

    /// Clears what a failed run may have left behind.
    pub(super) fn reset(&self) -> Result<(), GraphError> {
        Ok(self.tally.set(0, Report { sum: [0; 6], least: u64::MAX, reserved: 0 })?)
    }

    pub(super) fn tally_address(&self) -> u64 {
        self.tally.address()
    }

    pub(super) fn report_address(&self) -> u64 {
        self.report.address()
    }

    /// Runs a kernel to its end; how long it took.
    pub(super) fn run(&self, kernel: &str, args: Args<'_>) -> Result<Duration, GraphError> {
        Ok(self.engine.launch(kernel, self.grid, args)?.finish_within(self.limit)?.elapsed)
    }

    /// Runs a kernel that publishes its sums.
    pub(super) fn step(&self, kernel: &str, args: Args<'_>) -> Result<Report, GraphError> {
        self.run(kernel, args)?;
        let report: Report = self.report.get(0)?;
        match report.sum[BAD_EDGES] {
            0 => Ok(report),
            edges => Err(GraphError::Corrupt { edges }),
        }
    }
}

/// Lets a parameter block be passed by value.
macro_rules! kernel_parameters {
    ($name:ident, $bytes:literal) => {
        const _: () = assert!(size_of::<$name>() == $bytes);
        impl<'a> $crate::engine::KernelArg<'a> for $name {
            fn push(&self, args: &mut $crate::engine::Args<'a>) {
                args.push_value(*self);
            }
        }
    };
}
pub(super) use kernel_parameters;
