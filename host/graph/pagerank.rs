//! PageRank: each vertex pulls contributions from its in-neighbours.

use super::edges::{GraphError, GraphOnEngine, Lists};
use super::launch::{Launcher, ValueKind, Values};
use super::params::{
    PAGERANK_CHANGE as CHANGE, PAGERANK_DANGLING as DANGLING, PAGERANK_SCANNED as SCANNED, PAGERANK_TOTAL as TOTAL,
    Pagerank as Parameters,
};
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use crate::setters::setters;
use crate::storage::Stats;
use std::time::{Duration, Instant};

/// Options of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PageRankOptions {
    /// Share of a rank that is passed along the edges, from 0 to 1.
    pub damping: f64,
    /// The run ends when the absolute changes of all ranks in one iteration sum to less than this. `None` runs all
    /// iterations.
    pub tolerance: Option<f64>,
    /// Largest number of iterations.
    pub iterations: u32,
    /// Vertices to which the share of the ranks goes that is not passed along edges, each with a weight of 0 or more
    /// (personalised PageRank: Page, Brin, Motwani, Winograd, 1999). So does the rank of vertices without out-edges. Weights
    /// are divided by their sum, and those of a vertex that occurs more than once are added. If empty, all vertices have
    /// the same weight.
    pub personalization: Vec<(u64, f64)>,
}

/// The least sum of changes that an iteration is compared with: rounding of 64-bit numbers changes ranks by less.
pub const LEAST_TOLERANCE: f64 = 1e-12;

setters!(PageRankOptions {
    damping: f64,
    tolerance: Option<f64>,
    iterations: u32,
    personalization: Vec<(u64, f64)>,
});

impl Default for PageRankOptions {
    /// Returns GAP's options: damping 0.85, tolerance 1e-4, at most 1000 iterations.
    fn default() -> Self {
        Self { damping: 0.85, tolerance: Some(1e-4), iterations: 1000, personalization: Vec::new() }
    }
}

/// Sums that are doubles.
const REALS: u64 = 1 << CHANGE | 1 << DANGLING | 1 << TOTAL;

/// Tolerance below which contributions are doubles: the error of single precision would decide the result.
const SINGLE_TOLERANCE: f64 = 1e-6;

/// Report of one iteration.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct IterationReport {
    /// Number of the iteration, from 1.
    pub iteration: u32,
    /// Sum of the absolute changes of all ranks in this iteration.
    pub change: f64,
    /// Number of edges read.
    pub scanned: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Result of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PageRankResult {
    /// Rank of each vertex. The ranks sum to 1.
    pub rank: Vec<f64>,
    /// Report of each iteration.
    pub iterations: Vec<IterationReport>,
    /// True if the tolerance was reached, or there was none.
    pub converged: bool,
    /// Wall-clock time. The ranks are then in the engine's memory.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

/// Result of a run whose ranks are in the engine's memory, for the next kernel of a program. The program owns the ranks:
/// a later run of the same [`PageRank`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PageRankOnEngine {
    /// Rank of each vertex: `f64[vertices]`. The ranks sum to 1.
    pub rank: VertexValues,
    /// Report of each iteration.
    pub iterations: Vec<IterationReport>,
    /// True if the tolerance was reached, or there was none.
    pub converged: bool,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl PageRankOnEngine {
    /// Copies the ranks to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<PageRankResult, GraphError> {
        let Self { rank, iterations, converged, elapsed, io } = self;
        Ok(PageRankResult { rank: rank.read()?, iterations, converged, elapsed, io })
    }
}

impl PageRankResult {
    /// Returns the number of edges read.
    pub fn scanned(&self) -> u64 {
        self.iterations.iter().map(|i| i.scanned).sum()
    }
}

/// Memory and kernels of a run.
#[derive(Debug)]
pub struct PageRank {
    graph: GraphOnEngine,
    options: PageRankOptions,
    launcher: Launcher,
    double: bool,
    rank: VertexValues,
    sum: Region,
    contribution: Region,
    /// Share of each vertex in what is not passed along edges, or `None` for the same share.
    teleport: Option<Region>,
}

/// Ranks every vertex.
///
/// # Errors
/// As for [`PageRank::new`] and [`PageRank::run`].
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{PageRankOptions, Csr, CsrOptions, GraphOnEngine, Placement, PlacementOptions, pagerank};
///
/// // Vertex 0 is linked with all others.
/// let csr = Csr::from_edges(4, &[(0, 1), (0, 2), (0, 3)], CsrOptions::default())?;
/// let engine = Engine::cpu()?;
/// let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::PAGERANK)?;
/// let result = pagerank(&graph, &PageRankOptions::default())?;
/// assert!(result.rank[0] > result.rank[1]);
/// assert!((result.rank.iter().sum::<f64>() - 1.0).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pagerank(graph: &GraphOnEngine, options: &PageRankOptions) -> Result<PageRankResult, GraphError> {
    PageRank::new(graph, options)?.run()
}

impl PageRank {
    /// Allocates the memory of a run.
    ///
    /// # Errors
    /// [`GraphError::Parameter`] if the damping is not from 0 to 1, the tolerance is below [`LEAST_TOLERANCE`], or weights
    /// of the personalization are negative, not finite, or all 0; [`GraphError::NoSuchVertex`] if one of its vertices does
    /// not exist; [`GraphError::Memory`] without memory; [`GraphError::Engine`] if the kernels cannot be loaded.
    pub fn new(graph: &GraphOnEngine, options: &PageRankOptions) -> Result<Self, GraphError> {
        let wrong = |name, value, range| Err(GraphError::Parameter { name, value, range });
        if !(0.0..=1.0).contains(&options.damping) {
            return wrong("damping", options.damping, "from 0 to 1");
        }
        if let Some(t) = options.tolerance
            && !(t.is_finite() && t >= LEAST_TOLERANCE)
        {
            return wrong("tolerance", t, "1e-12 or more");
        }
        let vertices = graph.vertices as usize;
        let device = |bytes: usize| graph.engine.allocate(Place::Device, bytes);
        let double = options.tolerance.is_none_or(|t| t < SINGLE_TOLERANCE);
        Ok(Self {
            graph: graph.clone(),
            options: options.clone(),
            launcher: Launcher::across(graph, "wb_pagerank_")?,
            double,
            rank: VertexValues::allocate::<f64>(graph)?,
            sum: device(vertices * size_of::<f64>())?,
            teleport: teleport(graph, &options.personalization)?,
            contribution: device(vertices * if double { size_of::<f64>() } else { size_of::<f32>() })?,
        })
    }

    fn inward(&self) -> Result<&Lists, GraphError> {
        let missing = |missing| GraphError::NotPlaced { missing, algorithm: "PageRank" };
        if !self.graph.directed {
            return Ok(&self.graph.out);
        }
        self.graph.inward.as_ref().ok_or(missing("in-neighbour lists"))
    }

    /// Runs the algorithm, and copies the ranks to the host.
    ///
    /// # Errors
    /// * [`GraphError::NotPlaced`] if the graph was placed without neighbour lists, or a directed graph without
    ///   in-neighbour lists.
    /// * [`GraphError::Run`] if a kernel cannot read an edge, or exceeds the launch limit.
    /// * [`GraphError::Corrupt`] if edges lead to vertices that do not exist.
    /// * [`GraphError::Engine`] if the engine starts no kernel; [`GraphError::Memory`] or [`GraphError::Storage`] if
    ///   memory or counters cannot be read.
    pub fn run(&mut self) -> Result<PageRankResult, GraphError> {
        self.run_on_device()?.into_host()
    }

    /// Runs the algorithm, and leaves the ranks in the engine's memory. The result shares that memory with this value.
    /// If a program still holds the result when the next run begins, that run allocates memory of its own.
    ///
    /// # Errors
    /// As for [`PageRank::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, PageRankOptions, Placement};
    ///
    /// let csr = Csr::from_edges(2, &[(0, 1)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.pagerank_on_device(&PageRankOptions::default())?;
    /// assert_eq!(result.rank.region().get_slice::<f64>(0, 2)?, [0.5, 0.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on_device(&mut self) -> Result<PageRankOnEngine, GraphError> {
        self.rank.unshare(&self.graph)?;
        self.launcher.reset()?;
        let lists = self.inward()?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let (iterations, converged) = self.iterate(lists)?;
        self.launcher.share(Values { region: self.rank.inside(), bytes: size_of::<f64>() })?;
        self.launcher.bring_outside(&self.graph, &self.rank, ValueKind::Plain)?;
        let elapsed = started.elapsed();
        let io = self.graph.stats_since(before)?;
        Ok(PageRankOnEngine { rank: self.rank.clone(), iterations, converged, elapsed, io })
    }

    fn iterate(&self, lists: &Lists) -> Result<(Vec<IterationReport>, bool), GraphError> {
        let graph = &self.graph;
        let mut iterations = Vec::new();
        if graph.vertices == 0 {
            return Ok((iterations, true));
        }
        let Some(edges) = &lists.edges else {
            return Err(GraphError::NotPlaced { missing: "neighbour lists", algorithm: "PageRank" });
        };
        let own = graph.own_vertices();
        let p = Parameters {
            offset: lists.offset.address(),
            out_offset: graph.out.offset.address(),
            tile: lists.tile.address(),
            rank: self.rank.address(),
            sum: self.sum.address(),
            contribution: self.contribution.address(),
            teleport: self.teleport.as_ref().map_or(0, Region::address),
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: graph.vertices,
            edges: lists.arcs,
            base: 0.0,
            damping: self.options.damping,
            first: own.start,
            last: own.end,
            backward: 0,
            reserved: 0,
        };
        let (real, bytes) = if self.double { ("f64", 8) } else { ("f32", 4) };
        let contributions = Some(Values { region: &self.contribution, bytes });
        let pull = format!("wb_pagerank_pull_{real}_{}_{}", edges.source(), graph.id_suffix());
        let apply = format!("wb_pagerank_apply_{real}");
        // The base rank is divided evenly, or by the shares of the vertices.
        let parts = if self.teleport.is_some() { 1.0 } else { graph.vertices as f64 };
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        let start = unsafe { self.launcher.step_here(&format!("wb_pagerank_start_{real}"), args!(p)) }?;
        let mut dangling = self.launcher.end(start, REALS, contributions)?.real(DANGLING);
        for iteration in 1..=self.options.iterations {
            let started = Instant::now();
            let base = (1.0 - p.damping + p.damping * dangling) / parts;
            // Every other sweep runs backwards, so that it begins with the pages that the cache still holds.
            let p = Parameters { base, backward: u32::from(iteration % 2 == 0), ..p };
            // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
            // shares them.
            let pulled = unsafe { self.launcher.step_here(&pull, args!(p, edges)) }?;
            // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
            // shares them.
            let mut own = unsafe { self.launcher.step_here(&apply, args!(p)) }?;
            own.sum[SCANNED] = pulled.sum[SCANNED];
            let report = self.launcher.end(own, REALS, contributions)?;
            let (change, scanned) = (report.real(CHANGE), report.sum[SCANNED]);
            dangling = report.real(DANGLING);
            iterations.push(IterationReport { iteration, change, scanned, elapsed: started.elapsed() });
            if self.options.tolerance.is_some_and(|t| change < t) {
                return Ok((iterations, true));
            }
        }
        Ok((iterations, self.options.tolerance.is_none()))
    }
}

/// Returns the share of each vertex, or `None` if no vertex is named.
fn teleport(graph: &GraphOnEngine, personalization: &[(u64, f64)]) -> Result<Option<Region>, GraphError> {
    if personalization.is_empty() {
        return Ok(None);
    }
    let mut shares = vec![0.0; graph.vertices as usize];
    for &(v, weight) in personalization {
        graph.check_vertex(v)?;
        if !(weight.is_finite() && weight >= 0.0) {
            let name = "a weight of the personalization";
            return Err(GraphError::Parameter { name, value: weight, range: "finite and 0 or more" });
        }
        shares[graph.inside(v) as usize] += weight;
    }
    let sum: f64 = shares.iter().sum();
    if !(sum.is_finite() && sum > 0.0) {
        let name = "the sum of the personalization's weights";
        return Err(GraphError::Parameter { name, value: sum, range: "finite and above 0" });
    }
    shares.iter_mut().for_each(|share| *share /= sum);
    let region = graph.engine.allocate(Place::Device, size_of_val(&shares[..]))?;
    region.set_slice(0, &shares)?;
    Ok(Some(region))
}
