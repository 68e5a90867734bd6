//! Communities by synchronous label propagation (CDLP of LDBC Graphalytics).

use super::batches::{self, Batch};
use super::edges::{EdgeStore, GraphError, GraphOnEngine, Lists};
use super::launch::{Launcher, ValueKind, Values};
use super::params::{
    CDLP_CHANGED as CHANGED, CDLP_LABELS as LABELS, CDLP_SCANNED as SCANNED, Cdlp as Parameters, GRAPH_PIECE_EDGES,
};
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use crate::setters::setters;
use crate::storage::Stats;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Options of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CdlpOptions {
    /// Number of iterations. A run ends earlier if an iteration changes no label: no later one would.
    pub iterations: u32,
    /// Size in bytes of the work space in the engine's memory, in which labels are counted. A graph whose edges need more
    /// is processed in batches of vertices. The work space is larger if the longest list needs that.
    pub work_space: u64,
}

setters!(CdlpOptions { iterations: u32, work_space: u64 });

impl Default for CdlpOptions {
    /// Returns 10 iterations, and a work space of 16 MiB.
    fn default() -> Self {
        Self { iterations: 10, work_space: 16 << 20 }
    }
}

/// Report of one iteration.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PropagationReport {
    /// Number of the iteration, from 1.
    pub iteration: u32,
    /// Number of vertices whose label changed.
    pub changed: u64,
    /// Number of edges read.
    pub scanned: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Result of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CdlpResult {
    /// Label of each vertex: the vertex whose label it was at the start.
    pub label: Vec<u64>,
    /// Number of communities, that is, of different labels.
    pub communities: u64,
    /// Report of each iteration.
    pub iterations: Vec<PropagationReport>,
    /// Wall-clock time. The labels are then in the engine's memory.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl CdlpResult {
    /// Returns the number of edges read.
    pub fn scanned(&self) -> u64 {
        self.iterations.iter().map(|i| i.scanned).sum()
    }
}

/// Result of a run whose labels are in the engine's memory, for the next kernel of a program. The program owns the
/// labels: a later run of the same [`Cdlp`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CdlpOnEngine {
    /// Label of each vertex: `u32[vertices]`, or `u64[vertices]` for a graph with 64-bit identifiers.
    pub label: VertexValues,
    /// Number of communities, that is, of different labels.
    pub communities: u64,
    /// Report of each iteration.
    pub iterations: Vec<PropagationReport>,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl CdlpOnEngine {
    /// Copies the labels to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<CdlpResult, GraphError> {
        let Self { label, communities, iterations, elapsed, io } = self;
        Ok(CdlpResult { label: label.read_wide()?, communities, iterations, elapsed, io })
    }
}

/// Memory and kernels of a run.
#[derive(Debug)]
pub struct Cdlp {
    graph: GraphOnEngine,
    options: CdlpOptions,
    launcher: Launcher,
    label: VertexValues,
    best: Region,
    table: Region,
    batches: Vec<Batch>,
    label_bits: u32,
}

/// Detects communities: each vertex starts with its own number as its label, and takes the most frequent label of its
/// neighbours in each iteration, of several the smallest. In a directed graph in- and out-neighbours count, and a vertex
/// that is both counts twice. A self-loop does not count.
///
/// # Errors
/// As for [`Cdlp::new`] and [`Cdlp::run`].
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{CdlpOptions, Csr, CsrOptions, GraphOnEngine, Placement, PlacementOptions, cdlp};
///
/// // Two triangles, joined by an edge.
/// let edges = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)];
/// let csr = Csr::from_edges(6, &edges, CsrOptions::default())?;
/// let engine = Engine::cpu()?;
/// let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::CDLP)?;
/// let result = cdlp(&graph, &CdlpOptions::default().iterations(3))?;
/// assert_eq!(result.label, [0, 0, 0, 2, 2, 2]);
/// assert_eq!(result.communities, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cdlp(graph: &GraphOnEngine, options: &CdlpOptions) -> Result<CdlpResult, GraphError> {
    Cdlp::new(graph, options)?.run()
}

impl Cdlp {
    /// Allocates the memory of a run, and plans its batches.
    ///
    /// # Errors
    /// * [`GraphError::Parameter`] if a list is so long that a label and its count do not fit into 64 bits.
    /// * [`GraphError::Memory`] without memory; [`GraphError::Engine`] if the kernels cannot be loaded.
    pub fn new(graph: &GraphOnEngine, options: &CdlpOptions) -> Result<Self, GraphError> {
        let slot = 2 * graph.id_bytes();
        let most = (options.work_space / (2 * slot as u64)).max(1);
        let inward = graph.inward.as_ref().filter(|_| graph.directed);
        let offsets = (&graph.out.offset, inward.map(|lists| &lists.offset));
        let (batches, longest) = batches::plan(offsets, 0..graph.vertices, most)?;
        let label_bits = (u64::BITS - graph.vertices.saturating_sub(1).leading_zeros()).max(1);
        if longest >= u64::MAX >> label_bits {
            let range = "below 2^64 divided by the number of vertices";
            return Err(GraphError::Parameter { name: "largest degree", value: longest as f64, range });
        }
        let table = batches.iter().map(Batch::edges).max().unwrap_or(0) as usize * 2 * slot;
        let device = |bytes: usize| graph.engine.allocate(Place::Device, bytes);
        Ok(Self {
            graph: graph.clone(),
            options: options.clone(),
            launcher: Launcher::across(graph, "wb_cdlp_")?,
            label: VertexValues::allocate_ids(graph)?,
            best: device(graph.vertices as usize * size_of::<u64>())?,
            table: device(table)?,
            batches,
            label_bits,
        })
    }

    /// Runs the algorithm, and copies the labels to the host.
    ///
    /// # Errors
    /// * [`GraphError::NotPlaced`] if the graph was placed without neighbour lists, or a directed graph without
    ///   in-neighbour lists.
    /// * [`GraphError::Run`] if a kernel cannot read an edge, or exceeds the launch limit.
    /// * [`GraphError::Corrupt`] if edges lead to vertices that do not exist.
    /// * [`GraphError::Engine`] if the engine starts no kernel; [`GraphError::Memory`] or [`GraphError::Storage`] if
    ///   memory or counters cannot be read.
    pub fn run(&mut self) -> Result<CdlpResult, GraphError> {
        self.run_on_device()?.into_host()
    }

    /// Runs the algorithm, and leaves the labels in the engine's memory. The result shares that memory with this value.
    /// If a program still holds the result when the next run begins, that run allocates memory of its own.
    ///
    /// # Errors
    /// As for [`Cdlp::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{CdlpOptions, Csr, CsrOptions, Graph, Placement};
    ///
    /// let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 0)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.cdlp_on_device(&CdlpOptions::default())?;
    /// assert_eq!(result.communities, 2);
    /// assert_eq!(result.label.region().get_slice::<u32>(0, 4)?, [0, 0, 0, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on_device(&mut self) -> Result<CdlpOnEngine, GraphError> {
        self.label.unshare(&self.graph)?;
        self.launcher.reset()?;
        self.table.fill(0, self.table.len(), 0xff)?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let (iterations, communities) = self.iterate()?;
        self.launcher.bring_outside(&self.graph, &self.label, ValueKind::Plain)?;
        let elapsed = started.elapsed();
        let io = self.graph.stats_since(before)?;
        Ok(CdlpOnEngine { label: self.label.clone(), communities, iterations, elapsed, io })
    }

    fn iterate(&self) -> Result<(Vec<PropagationReport>, u64), GraphError> {
        let graph = &self.graph;
        let mut iterations = Vec::new();
        if graph.vertices == 0 {
            return Ok((iterations, 0));
        }
        let inward = match (graph.directed, &graph.inward) {
            (false, _) => None,
            (true, Some(lists)) => Some(with_edges(lists)?),
            (true, None) => return Err(missing("in-neighbour lists")),
        };
        let out = with_edges(&graph.out)?;
        let p = Parameters {
            offset: 0,
            out_offset: graph.out.offset.address(),
            in_offset: inward.map_or(0, |(lists, _)| lists.offset.address()),
            tile: 0,
            label: self.label.address(),
            outside: graph.order.as_ref().map_or(0, |order| order.outside.address()),
            best: self.best.address(),
            table: self.table.address(),
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: graph.vertices,
            first: 0,
            last: 0,
            edges_from: 0,
            edges_to: 0,
            label_bits: self.label_bits,
            backward: 0,
        };
        let labels = Values { region: self.label.inside(), bytes: graph.id_bytes() };
        let ids = graph.id_suffix();
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        unsafe { self.launcher.run(&format!("wb_cdlp_start_{ids}"), args!(p)) }?;
        for iteration in 1..=self.options.iterations {
            let started = Instant::now();
            // Every other sweep runs backwards, so that it begins with the pages that the cache still holds.
            let backward = iteration % 2 == 0;
            let p = Parameters { backward: backward.into(), ..p };
            let mut scanned = 0;
            for i in 0..self.batches.len() {
                let batch = &self.batches[if backward { self.batches.len() - 1 - i } else { i }];
                scanned += self.count(p, batch, out, &batch.out)?;
                if let Some(inward) = inward {
                    scanned += self.count(p, batch, inward, &batch.inward)?;
                }
                self.clear(batch)?;
            }
            // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
            // shares them.
            let mut own = unsafe { self.launcher.step_here(&format!("wb_cdlp_apply_{ids}"), args!(p)) }?;
            own.sum[SCANNED] = scanned;
            let report = self.launcher.end(own, 0, Some(labels))?;
            let (changed, scanned) = (report.sum[CHANGED], report.sum[SCANNED]);
            iterations.push(PropagationReport { iteration, changed, scanned, elapsed: started.elapsed() });
            if changed == 0 {
                break;
            }
        }
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        unsafe { self.launcher.run(&format!("wb_cdlp_mark_{ids}"), args!(p)) }?;
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        let communities = unsafe { self.launcher.step_here("wb_cdlp_labels", args!(p)) }?.sum[LABELS];
        Ok((iterations, communities))
    }

    /// Counts the labels at the ends of a batch's edges of one direction. Returns the number of edges read.
    fn count(
        &self,
        p: Parameters,
        batch: &Batch,
        (lists, edges): (&Lists, &EdgeStore),
        range: &Range<u64>,
    ) -> Result<u64, GraphError> {
        if range.is_empty() {
            return Ok(0);
        }
        let tile = range.start / GRAPH_PIECE_EDGES;
        let p = Parameters {
            offset: lists.offset.address(),
            tile: lists.tile.address() + tile * self.graph.id_bytes() as u64,
            first: batch.vertices.start,
            last: batch.vertices.end,
            edges_from: tile * GRAPH_PIECE_EDGES,
            edges_to: range.end,
            ..p
        };
        let kernel = format!("wb_cdlp_count_{}_{}", edges.source(), self.graph.id_suffix());
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        Ok(unsafe { self.launcher.step_here(&kernel, args!(p, edges)) }?.sum[SCANNED])
    }

    /// Empties the tables of a batch.
    fn clear(&self, batch: &Batch) -> Result<(), GraphError> {
        let entries = (batch.out.end - batch.out.start) + (batch.inward.end - batch.inward.start);
        Ok(self.table.fill(0, entries as usize * 4 * self.graph.id_bytes(), 0xff)?)
    }
}

fn missing(missing: &'static str) -> GraphError {
    GraphError::NotPlaced { missing, algorithm: "label propagation" }
}

fn with_edges(lists: &Lists) -> Result<(&Lists, &EdgeStore), GraphError> {
    Ok((lists, lists.edges.as_ref().ok_or_else(|| missing("neighbour lists"))?))
}
