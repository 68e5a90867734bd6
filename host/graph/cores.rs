//! K-core decomposition: vertices are peeled in the order of their degrees.

use super::edges::{EdgeStore, GraphError, GraphOnEngine, InLists};
use super::launch::{Launcher, QueueOrder, ValueKind};
use super::params::{
    CORE_IN_ITEMS as IN_ITEMS, CORE_ITEMS as ITEMS, CORE_PEELED as PEELED, CORE_SCANNED as SCANNED, Core as Parameters,
    GraphReport,
};
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use crate::storage::Stats;
use std::time::{Duration, Instant};

/// Report of one level: of the vertices with one core number.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CoreReport {
    /// The core number.
    pub core: u64,
    /// Number of vertices with this core number.
    pub vertices: u64,
    /// Number of rounds: each peels the vertices that the round before left without enough edges.
    pub rounds: u32,
    /// Number of edges read.
    pub scanned: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Core numbers of a graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CoresResult {
    /// Core number of each vertex: the largest k for which the vertex is in a subgraph whose vertices all have at least k
    /// edges within it.
    pub core: Vec<u64>,
    /// The largest core number, which is the degeneracy of the graph; 0 without edges.
    pub largest: u64,
    /// Report of each level from 1 on that has vertices.
    pub levels: Vec<CoreReport>,
    /// Wall-clock time. The core numbers are then in the engine's memory.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

/// Core numbers of a graph in the engine's memory, for the next kernel of a program. The program owns the numbers: a later
/// run of the same [`Cores`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CoresOnEngine {
    /// Core number of each vertex: `u64[vertices]`.
    pub core: VertexValues,
    /// The largest core number.
    pub largest: u64,
    /// Report of each level from 1 on that has vertices.
    pub levels: Vec<CoreReport>,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl CoresOnEngine {
    /// Copies the core numbers to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<CoresResult, GraphError> {
        let Self { core, largest, levels, elapsed, io } = self;
        Ok(CoresResult { core: core.read()?, largest, levels, elapsed, io })
    }
}

impl CoresResult {
    /// Returns the number of edges read.
    pub fn scanned(&self) -> u64 {
        self.levels.iter().map(|l| l.scanned).sum()
    }
}

/// Name of the algorithm in errors.
const NAME: &str = "k-core decomposition";

/// Memory and kernels of a decomposition.
#[derive(Debug)]
pub struct Cores {
    graph: GraphOnEngine,
    launcher: Launcher,
    /// Degrees among the vertices that remain. Those of peeled vertices are their core numbers.
    core: VertexValues,
    remaining: Region,
    /// The vertices that begin a level, of a directed graph.
    peeled: Option<Region>,
    queue: [Region; 2],
    /// The in-lists of the queues' vertices, of a directed graph.
    in_queue: Option<[Region; 2]>,
    order: QueueOrder,
}

/// The items of a round.
#[derive(Clone, Copy, Default)]
struct Items {
    out: u64,
    inward: u64,
}

/// Computes the core number of each vertex. The degree of a vertex in a directed graph is the number of its in-edges and
/// out-edges together. Self-loops are not counted.
///
/// # Errors
/// As for [`Cores::new`] and [`Cores::run`].
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{Csr, CsrOptions, GraphOnEngine, Placement, PlacementOptions, cores};
///
/// // A triangle, a vertex beside it, and one alone.
/// let csr = Csr::from_edges(5, &[(0, 1), (1, 2), (2, 0), (2, 3)], CsrOptions::default())?;
/// let graph = GraphOnEngine::place(&Engine::cpu()?, &csr, Placement::Gpu, PlacementOptions::CORES)?;
/// let result = cores(&graph)?;
/// assert_eq!(result.core, [2, 2, 2, 1, 0]);
/// assert_eq!(result.largest, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cores(graph: &GraphOnEngine) -> Result<CoresResult, GraphError> {
    Cores::new(graph)?.run()
}

impl Cores {
    /// Allocates the memory of a decomposition: 25 bytes for each vertex, 41 for a directed graph; with 64-bit identifiers
    /// 41 and 73.
    ///
    /// # Errors
    /// [`GraphError::NotPlaced`] if the graph was placed without neighbour lists, or a directed graph without in-neighbour
    /// lists; [`GraphError::Memory`] without memory; [`GraphError::Engine`] if the kernels cannot be loaded.
    pub fn new(graph: &GraphOnEngine) -> Result<Self, GraphError> {
        let (edges, inward) = graph.both_lists(NAME)?;
        let device = |bytes| graph.engine.allocate(Place::Device, bytes);
        // As many words as the bitmap of self-loops has.
        let bitmap = || device((graph.vertices as usize).div_ceil(64) * 8);
        let queue = || device(graph.queue_items() * 2 * graph.id_bytes());
        let queues = || -> Result<[Region; 2], GraphError> { Ok([queue()?, queue()?]) };
        Ok(Self {
            graph: graph.clone(),
            launcher: Launcher::new(graph, "wb_core_", "k-core decomposition")?,
            core: VertexValues::allocate::<u64>(graph)?,
            remaining: bitmap()?,
            peeled: inward.map(|_| bitmap()).transpose()?,
            queue: queues()?,
            in_queue: inward.map(|_| queues()).transpose()?,
            order: QueueOrder::new(graph, edges)?,
        })
    }

    /// Runs the algorithm, and copies the core numbers to the host.
    ///
    /// # Errors
    /// * [`GraphError::Run`] if a kernel cannot read an edge, or exceeds the launch limit.
    /// * [`GraphError::Corrupt`] if edges lead to vertices that do not exist, or the lists are not those of the graph.
    /// * [`GraphError::Engine`] if the engine starts no kernel; [`GraphError::Memory`] or [`GraphError::Storage`] if
    ///   memory or counters cannot be read.
    pub fn run(&mut self) -> Result<CoresResult, GraphError> {
        self.run_on_device()?.into_host()
    }

    /// Runs the algorithm, and leaves the core numbers in the engine's memory. The result shares that memory with this
    /// value. If a program still holds the result when the next run begins, that run allocates memory of its own.
    ///
    /// # Errors
    /// As for [`Cores::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, Placement};
    ///
    /// let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 0)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.cores_on_device()?;
    /// assert_eq!(result.core.region().get_slice::<u64>(0, 4)?, [2, 2, 2, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on_device(&mut self) -> Result<CoresOnEngine, GraphError> {
        self.core.unshare(&self.graph)?;
        self.launcher.reset()?;
        self.order.reset()?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let levels = self.levels()?;
        self.launcher.bring_outside(&self.graph, &self.core, ValueKind::Plain)?;
        let elapsed = started.elapsed();
        let io = self.graph.stats_since(before)?;
        let largest = levels.last().map_or(0, |l| l.core);
        Ok(CoresOnEngine { core: self.core.clone(), largest, levels, elapsed, io })
    }

    fn levels(&self) -> Result<Vec<CoreReport>, GraphError> {
        let graph = &self.graph;
        let mut levels = Vec::new();
        let (edges, inward) = graph.both_lists(NAME)?;
        let address = |region: Option<&Region>| region.map_or(0, Region::address);
        let p = Parameters {
            offset: graph.out.offset.address(),
            in_offset: address(inward.map(|i| &i.lists.offset)),
            loops: graph.loops_address(),
            read: 0,
            degree: self.core.address(),
            remaining: self.remaining.address(),
            peeled: address(self.peeled.as_ref()),
            queue: 0,
            queue_next: self.queue[0].address(),
            in_queue_next: address(self.in_queue.as_ref().map(|q| &q[0])),
            items: 0,
            level: 0,
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: graph.vertices,
        };
        let report = self.step("start", p)?;
        let (mut left, mut core) = (report.sum[PEELED], report.least);
        while left > 0 {
            let started = Instant::now();
            let report = self.step("collect", Parameters { level: core, ..p })?;
            if report.sum[PEELED] == 0 {
                // Vertices remain, so one of them has the least degree, unless the lists are not those of the offsets.
                core =
                    if report.least > core { report.least } else { return Err(GraphError::Corrupt { edges: left }) };
                continue;
            }
            let mut level =
                CoreReport { core, vertices: report.sum[PEELED], rounds: 0, scanned: 0, elapsed: Duration::ZERO };
            self.peel(p, &mut level, items_of(&report), edges, inward)?;
            level.elapsed = started.elapsed();
            left = left.saturating_sub(level.vertices);
            core += 1;
            levels.push(level);
        }
        Ok(levels)
    }

    /// Peels the queued vertices of a level, and those that it leaves without enough edges.
    fn peel(
        &self,
        p: Parameters,
        level: &mut CoreReport,
        mut items: Items,
        edges: &EdgeStore,
        inward: Option<InLists<'_>>,
    ) -> Result<(), GraphError> {
        let graph = &self.graph;
        let kernel = |edges: &EdgeStore| format!("wb_core_peel_{}_{}", edges.source(), graph.id_suffix());
        let addresses = |queue: &[Region; 2]| queue.each_ref().map(Region::address);
        // The first of each pair has the items of this round, the second gets those of the next.
        let (mut out, mut in_lists) = (addresses(&self.queue), self.in_queue.as_ref().map_or([0; 2], addresses));
        let in_offset = inward.map(|i| &i.lists.offset);
        while items.out > 0 || items.inward > 0 {
            // The first queue of a level is sorted.
            if level.rounds > 0 {
                let both = [(&mut out, Some(&graph.out.offset), items.out), (&mut in_lists, in_offset, items.inward)];
                for (queue, offset, count) in both {
                    let Some(offset) = offset.filter(|_| count > 0) else { continue };
                    if self.order.apply(&self.launcher, graph.id_suffix(), offset, *queue, count)? {
                        queue.swap(0, 1);
                    }
                }
            }
            let mut next = Items::default();
            let mut read = |queue: u64, count: u64, offset: &Region, edges: &EdgeStore| -> Result<(), GraphError> {
                if count == 0 {
                    return Ok(());
                }
                let behind = |queue: u64, items: u64| queue + items * 2 * graph.id_bytes() as u64;
                let (queue_next, in_queue_next) = (behind(out[1], next.out), behind(in_lists[1], next.inward));
                let core = level.core;
                let p = Parameters {
                    read: offset.address(),
                    queue,
                    items: count,
                    queue_next,
                    in_queue_next,
                    level: core,
                    ..p
                };
                // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
                // shares them.
                let report = unsafe { self.launcher.step(&kernel(edges), args!(p, edges)) }?;
                let found = items_of(&report);
                next = Items { out: next.out + found.out, inward: next.inward + found.inward };
                level.vertices += report.sum[PEELED];
                level.scanned += report.sum[SCANNED];
                Ok(())
            };
            read(out[0], items.out, &graph.out.offset, edges)?;
            if let Some(i) = inward {
                read(in_lists[0], items.inward, &i.lists.offset, i.edges)?;
            }
            level.rounds += 1;
            items = next;
            out.swap(0, 1);
            in_lists.swap(0, 1);
        }
        Ok(())
    }

    /// Runs a step that reads no edge.
    fn step(&self, name: &str, p: Parameters) -> Result<GraphReport, GraphError> {
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self` shares
        // them.
        unsafe { self.launcher.step(&format!("wb_core_{name}_{}", self.graph.id_suffix()), args!(p)) }
    }
}

fn items_of(report: &GraphReport) -> Items {
    Items { out: report.sum[ITEMS], inward: report.sum[IN_ITEMS] }
}
