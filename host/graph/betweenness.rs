//! Betweenness centrality by Brandes' algorithm.

use super::edges::{EdgeStore, GraphError, GraphOnEngine};
use super::launch::{Launcher, QueueOrder, ValueKind};
use super::params::{
    BETWEENNESS_FOUND as FOUND, BETWEENNESS_ITEMS as ITEMS, BETWEENNESS_OVERFLOW as OVERFLOW,
    BETWEENNESS_SCANNED as SCANNED, Betweenness as Parameters, GraphReport as Report,
};
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use crate::storage::Stats;
use std::time::{Duration, Instant};

/// Report of the walks from one source.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BrandesReport {
    /// The source, a vertex number from 0.
    pub source: u64,
    /// Number of vertices reached, including the source.
    pub reached: u64,
    /// Number of edges on the longest of the shortest paths.
    pub levels: u32,
    /// Number of edges that lead from reached vertices.
    pub edges: u64,
    /// Number of edges read by both walks.
    pub scanned: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Result of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BetweennessResult {
    /// Score of each vertex: see [`betweenness`].
    pub score: Vec<f64>,
    /// Report of each source.
    pub sources: Vec<BrandesReport>,
    /// Wall-clock time. The scores are then in the engine's memory.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl BetweennessResult {
    /// Returns the number of edges read.
    pub fn scanned(&self) -> u64 {
        self.sources.iter().map(|s| s.scanned).sum()
    }
}

/// Result of a run whose scores are in the engine's memory, for the next kernel of a program. The program owns the
/// scores: a later run of the same [`Betweenness`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BetweennessOnEngine {
    /// Score of each vertex: `f64[vertices]`.
    pub score: VertexValues,
    /// Report of each source.
    pub sources: Vec<BrandesReport>,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl BetweennessOnEngine {
    /// Copies the scores to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<BetweennessResult, GraphError> {
        let Self { score, sources, elapsed, io } = self;
        Ok(BetweennessResult { score: score.read()?, sources, elapsed, io })
    }
}

/// Memory and kernels of runs, for any sources.
#[derive(Debug)]
pub struct Betweenness {
    graph: GraphOnEngine,
    launcher: Launcher,
    score: VertexValues,
    depth: Region,
    paths: Region,
    dependency: Region,
    queue: [Region; 2],
    order: QueueOrder,
}

/// Sums the dependencies of sources on every vertex. The score of v is the sum of `paths(s, t, v) / paths(s, t)` over
/// the sources s and all vertices t that differ from v: the share of the shortest paths from s to t on which v lies.
/// Paths are counted in edges. The sums are not normalised; with all vertices as sources, an undirected graph has each
/// pair of ends twice.
///
/// # Errors
/// As for [`Betweenness::new`] and [`Betweenness::run`].
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{Csr, CsrOptions, GraphOnEngine, Placement, PlacementOptions, betweenness};
///
/// // A path of four vertices.
/// let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 3)], CsrOptions::default())?;
/// let engine = Engine::cpu()?;
/// let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::BETWEENNESS)?;
/// assert_eq!(betweenness(&graph, &[0])?.score, [0.0, 2.0, 1.0, 0.0]);
/// assert_eq!(betweenness(&graph, &[0, 1, 2, 3])?.score, [0.0, 4.0, 4.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn betweenness(graph: &GraphOnEngine, sources: &[u64]) -> Result<BetweennessResult, GraphError> {
    Betweenness::new(graph)?.run(sources)
}

/// Items of one level's queue: the region and the place in it.
struct Level {
    queue: u64,
    items: u64,
}

impl Betweenness {
    /// Allocates the memory of runs.
    ///
    /// # Errors
    /// [`GraphError::NotPlaced`] if the graph was placed without neighbour lists; [`GraphError::Memory`] without
    /// memory; [`GraphError::Engine`] if the kernels cannot be loaded.
    pub fn new(graph: &GraphOnEngine) -> Result<Self, GraphError> {
        let edges = edges(graph)?;
        let vertices = graph.vertices as usize;
        let device = |bytes: usize| graph.engine.allocate(Place::Device, bytes);
        let queue = || device(graph.queue_items() * 2 * graph.id_bytes());
        Ok(Self {
            launcher: Launcher::new(graph, "wb_betweenness_", "betweenness centrality")?,
            score: VertexValues::allocate::<f64>(graph)?,
            depth: device(vertices * size_of::<u32>())?,
            paths: device(vertices * size_of::<f64>())?,
            dependency: device(vertices * size_of::<f64>())?,
            queue: [queue()?, queue()?],
            order: QueueOrder::new(graph, edges)?,
            graph: graph.clone(),
        })
    }

    /// Runs the algorithm for sources, vertex numbers from 0, and copies the scores to the host. A source that is there
    /// several times counts as often.
    ///
    /// # Errors
    /// * [`GraphError::NoSuchVertex`] if the graph lacks one of the sources.
    /// * [`GraphError::TooManyPaths`] if more shortest paths lead to a vertex than a 64-bit number can count.
    /// * [`GraphError::Run`] if a kernel cannot read an edge, or exceeds the launch limit.
    /// * [`GraphError::Corrupt`] if edges lead to vertices that do not exist.
    /// * [`GraphError::Engine`] if the engine starts no kernel; [`GraphError::Memory`] or [`GraphError::Storage`] if
    ///   memory or counters cannot be read.
    pub fn run(&mut self, sources: &[u64]) -> Result<BetweennessResult, GraphError> {
        self.run_on_device(sources)?.into_host()
    }

    /// Runs the algorithm for sources, vertex numbers from 0, and leaves the scores in the engine's memory. The result
    /// shares that memory with this value. If a program still holds the result when the next run begins, that run
    /// allocates memory of its own.
    ///
    /// # Errors
    /// As for [`Betweenness::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, Placement};
    ///
    /// let csr = Csr::from_edges(3, &[(0, 1), (1, 2)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.betweenness_on_device(&[0, 2])?;
    /// assert_eq!(result.score.region().get_slice::<f64>(0, 3)?, [0.0, 2.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on_device(&mut self, sources: &[u64]) -> Result<BetweennessOnEngine, GraphError> {
        sources.iter().try_for_each(|&source| self.graph.check_vertex(source))?;
        self.score.unshare(&self.graph)?;
        self.launcher.reset()?;
        self.order.reset()?;
        let scores = self.score.inside();
        scores.fill(0, scores.len(), 0)?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let sources = sources.iter().map(|&source| self.source(source)).collect::<Result<_, _>>()?;
        self.launcher.bring_outside(&self.graph, &self.score, ValueKind::Plain)?;
        let elapsed = started.elapsed();
        let io = self.graph.stats_since(before)?;
        Ok(BetweennessOnEngine { score: self.score.clone(), sources, elapsed, io })
    }

    /// Adds the dependencies of one source to the scores.
    fn source(&self, source: u64) -> Result<BrandesReport, GraphError> {
        let graph = &self.graph;
        let started = Instant::now();
        let ids = graph.id_suffix();
        let edges = edges(graph)?;
        let p = Parameters {
            offset: graph.out.offset.address(),
            depth: self.depth.address(),
            paths: self.paths.address(),
            dependency: self.dependency.address(),
            score: self.score.address(),
            queue: 0,
            queue_next: self.queue[0].address(),
            items: 0,
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: graph.vertices,
            source: graph.inside(source),
            level: 0,
            reserved: 0,
        };
        let walk = |what, p| -> Result<Report, GraphError> {
            let kernel = format!("wb_betweenness_{what}_{}_{ids}", edges.source());
            // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
            // shares them.
            unsafe { self.launcher.step(&kernel, args!(p, edges)) }
        };
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        let mut report = unsafe { self.launcher.step(&format!("wb_betweenness_start_{ids}"), args!(p)) }?;
        let mut result = BrandesReport { source, reached: 1, levels: 0, edges: 0, scanned: 0, elapsed: Duration::ZERO };
        // The queues of all levels lie one behind the other. A queue that is sorted moves to the second region.
        let mut ends = [self.queue[0].address(), self.queue[1].address()];
        let mut levels: Vec<Level> = Vec::new();
        let item_bytes = 2 * graph.id_bytes() as u64;
        while report.sum[ITEMS] > 0 {
            let items = report.sum[ITEMS];
            let sorted = self.order.apply(&self.launcher, ids, &graph.out.offset, ends, items)?;
            let at = &mut ends[usize::from(sorted)];
            levels.push(Level { queue: *at, items });
            let queue = *at;
            *at += items * item_bytes;
            let level = levels.len() as u32;
            report = walk("forward", Parameters { queue, queue_next: ends[0], items, level, ..p })?;
            if report.sum[FOUND] > 0 {
                result.levels = level;
            }
            result.reached += report.sum[FOUND];
            result.edges += report.sum[SCANNED];
        }
        result.scanned = result.edges;
        for (level, Level { queue, items }) in (1..).zip(levels).collect::<Vec<_>>().into_iter().rev() {
            // The vertices of the last level depend on none.
            if level > result.levels {
                continue;
            }
            let report = walk("back", Parameters { queue, items, level, ..p })?;
            if report.sum[OVERFLOW] > 0 {
                return Err(GraphError::TooManyPaths { source_vertex: source });
            }
            result.scanned += report.sum[SCANNED];
        }
        result.elapsed = started.elapsed();
        Ok(result)
    }
}

fn edges(graph: &GraphOnEngine) -> Result<&EdgeStore, GraphError> {
    let missing = GraphError::NotPlaced { missing: "neighbour lists", algorithm: "betweenness centrality" };
    graph.out.edges.as_ref().ok_or(missing)
}
