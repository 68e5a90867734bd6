//! Triangles of an undirected graph: the lists of neighbours of higher degree are intersected.

use super::edges::{EdgeStore, GraphError, GraphOnEngine};
use super::launch::Launcher;
use super::params::{
    GRAPH_MARKER_SLOTS, TRIANGLES_FOUND as FOUND, TRIANGLES_SCANNED as SCANNED, Triangles as Parameters,
};
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use crate::storage::Stats;
use std::time::{Duration, Instant};

/// Report of one step of a count.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CountReport {
    /// Name of the step: `order` finds the neighbours of higher degree of each vertex, `count` intersects lists.
    pub name: &'static str,
    /// Number of vertices whose lists were intersected or ordered.
    pub vertices: u64,
    /// Number of edges read.
    pub scanned: u64,
    /// Number of triangles found.
    pub found: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Triangles of a graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TrianglesResult {
    /// Number of triangles that each vertex belongs to.
    pub triangles: Vec<u64>,
    /// Number of triangles, each counted once.
    pub total: u64,
    /// Report of each step.
    pub steps: Vec<CountReport>,
    /// Wall-clock time. The counts are then in the engine's memory.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

/// Triangles of a graph, with the count of each vertex in the engine's memory, for the next kernel of a program. The
/// program owns the counts: a later run of the same [`Triangles`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TrianglesOnEngine {
    /// Number of triangles that each vertex belongs to: `u64[vertices]`.
    pub triangles: VertexValues,
    /// Number of triangles, each counted once.
    pub total: u64,
    /// Report of each step.
    pub steps: Vec<CountReport>,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl TrianglesOnEngine {
    /// Copies the counts to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<TrianglesResult, GraphError> {
        let Self { triangles, total, steps, elapsed, io } = self;
        Ok(TrianglesResult { triangles: triangles.read()?, total, steps, elapsed, io })
    }
}

impl TrianglesResult {
    /// Returns the number of edges read.
    pub fn scanned(&self) -> u64 {
        self.steps.iter().map(|s| s.scanned).sum()
    }
}

/// Name of the algorithm in errors.
const NAME: &str = "triangle counting";

/// Number of vertices of the first launch. Later ones have more while a launch is short, so that no launch takes longer
/// than the limit.
const FIRST_VERTICES: u64 = 1 << 16;
/// Launches that take less time are followed by one of twice as many vertices.
const SHORT: Duration = Duration::from_secs(1);
/// Launches that take more time are followed by one of half as many vertices.
const LONG: Duration = Duration::from_secs(10);

/// Memory and kernels of a count.
#[derive(Debug)]
pub struct Triangles {
    graph: GraphOnEngine,
    launcher: Launcher,
    triangles: VertexValues,
    /// Number of neighbours of higher rank of each vertex.
    above: Region,
    markers: Region,
}

/// Counts the triangles of an undirected graph, in total and of each vertex. Self-loops are in no triangle.
///
/// # Errors
/// As for [`Triangles::new`] and [`Triangles::run`].
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{Csr, CsrOptions, Graph, Placement, triangles};
///
/// // Two triangles that share the edge 1 - 2.
/// let csr = Csr::from_edges(4, &[(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)], CsrOptions::default())?;
/// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
/// let result = triangles(graph.on_engine())?;
/// assert_eq!(result.total, 2);
/// assert_eq!(result.triangles, [1, 2, 2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn triangles(graph: &GraphOnEngine) -> Result<TrianglesResult, GraphError> {
    Triangles::new(graph)?.run()
}

impl Triangles {
    /// Allocates the memory of a count: 12 bytes for each vertex, and two sets of 2048 identifiers for each warp.
    ///
    /// # Errors
    /// * [`GraphError::Directed`] if the graph is directed.
    /// * [`GraphError::NotPlaced`] if the graph was placed without neighbour lists, or with lists that are not sorted by
    ///   degree.
    /// * [`GraphError::Memory`] without memory; [`GraphError::Engine`] if the kernels cannot be loaded.
    pub fn new(graph: &GraphOnEngine) -> Result<Self, GraphError> {
        if graph.directed {
            return Err(GraphError::Directed { algorithm: NAME });
        }
        let missing = |missing| Err(GraphError::NotPlaced { missing, algorithm: NAME });
        match &graph.out.edges {
            None => return missing("neighbour lists"),
            Some(_) if !graph.out.hubs_first => return missing("neighbour lists in descending order of degree"),
            Some(_) => {}
        }
        let launcher = Launcher::new(graph, "wb_triangles_")?;
        let device = |bytes: usize| graph.engine.allocate(Place::Device, bytes);
        Ok(Self {
            triangles: VertexValues::allocate::<u64>(graph)?,
            above: device(graph.vertices as usize * size_of::<u32>())?,
            markers: device(launcher.warps() * 2 * GRAPH_MARKER_SLOTS * graph.id_bytes())?,
            graph: graph.clone(),
            launcher,
        })
    }

    /// Counts, and copies the counts to the host.
    ///
    /// # Errors
    /// * [`GraphError::Run`] if a kernel cannot read an edge, or exceeds the launch limit.
    /// * [`GraphError::Corrupt`] if edges lead to vertices that do not exist.
    /// * [`GraphError::Engine`] if the engine starts no kernel; [`GraphError::Memory`] or [`GraphError::Storage`] if
    ///   memory or counters cannot be read.
    pub fn run(&mut self) -> Result<TrianglesResult, GraphError> {
        self.run_on_device()?.into_host()
    }

    /// Counts, and leaves the counts in the engine's memory. The result shares that memory with this value. If a program
    /// still holds the result when the next run begins, that run allocates memory of its own.
    ///
    /// # Errors
    /// As for [`Triangles::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, Placement};
    ///
    /// let csr = Csr::from_edges(3, &[(0, 1), (1, 2), (2, 0)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.triangles_on_device()?;
    /// assert_eq!(result.triangles.region().get_slice::<u64>(0, 3)?, [1, 1, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on_device(&mut self) -> Result<TrianglesOnEngine, GraphError> {
        self.triangles.unshare(&self.graph)?;
        self.launcher.reset()?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let steps = self.steps()?;
        let elapsed = started.elapsed();
        let io = self.graph.stats_since(before)?;
        let total = steps.iter().map(|s| s.found).sum();
        Ok(TrianglesOnEngine { triangles: self.triangles.clone(), total, steps, elapsed, io })
    }

    fn steps(&self) -> Result<Vec<CountReport>, GraphError> {
        let graph = &self.graph;
        let lists = &graph.out;
        let mut steps = Vec::new();
        let Some(edges) = lists.edges.as_ref().filter(|_| graph.vertices > 0) else { return Ok(steps) };
        for region in [self.triangles.region(), &self.above] {
            region.fill(0, region.len(), 0)?;
        }
        let p = Parameters {
            offset: lists.offset.address(),
            tile: lists.tile.address(),
            above: self.above.address(),
            found: self.triangles.address(),
            markers: self.markers.address(),
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: graph.vertices,
            edges: graph.arcs,
            first: 0,
            last: graph.vertices,
        };
        steps.push(self.step("order", p, edges)?);
        let mut count = FIRST_VERTICES;
        let mut first = 0;
        while first < graph.vertices {
            let last = graph.vertices.min(first.saturating_add(count));
            let step = self.step("count", Parameters { first, last, ..p }, edges)?;
            match step.elapsed {
                t if t < SHORT => count = count.saturating_mul(2),
                t if t > LONG => count = (count / 2).max(1),
                _ => {}
            }
            steps.push(step);
            first = last;
        }
        Ok(steps)
    }

    fn step(&self, name: &'static str, p: Parameters, edges: &EdgeStore) -> Result<CountReport, GraphError> {
        let started = Instant::now();
        let kernel = format!("wb_triangles_{name}_{}_{}", edges.source(), self.graph.id_suffix());
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        let sum = unsafe { self.launcher.step(&kernel, args!(p, edges)) }?.sum;
        let vertices = p.last - p.first;
        Ok(CountReport { name, vertices, scanned: sum[SCANNED], found: sum[FOUND], elapsed: started.elapsed() })
    }
}
