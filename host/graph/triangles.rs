//! Triangles of an undirected graph.

use super::edges::{GraphError, GraphOnEngine};
use super::neighbourhood::{CountReport, NeighbourhoodCount};
use super::vertex_values::VertexValues;
use crate::storage::Stats;
use std::time::{Duration, Instant};

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

/// Memory and kernels of a count.
#[derive(Debug)]
pub struct Triangles {
    count: NeighbourhoodCount,
    triangles: VertexValues,
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
/// use warpbell::graph::{Csr, CsrOptions, GraphOnEngine, Placement, PlacementOptions, triangles};
///
/// // Two triangles that share the edge 1 - 2.
/// let csr = Csr::from_edges(4, &[(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)], CsrOptions::default())?;
/// let graph = GraphOnEngine::place(&Engine::cpu()?, &csr, Placement::Gpu, PlacementOptions::TRIANGLES)?;
/// let result = triangles(&graph)?;
/// assert_eq!(result.total, 2);
/// assert_eq!(result.triangles, [1, 2, 2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn triangles(graph: &GraphOnEngine) -> Result<TrianglesResult, GraphError> {
    Triangles::new(graph)?.run()
}

impl Triangles {
    /// Allocates the memory of a count. Lists sorted by degree need 12 bytes for each vertex, and are read least. For
    /// lists in another order there are marks: at most the larger of 256 MiB and 16 bytes for each vertex. A graph that is
    /// distributed over PEs needs 20 more for each vertex of all PEs. Collective then.
    ///
    /// # Errors
    /// * [`GraphError::Directed`] if the graph is directed.
    /// * [`GraphError::NotPlaced`] if the graph was placed without neighbour lists.
    /// * [`GraphError::Memory`] without memory; [`GraphError::Engine`] if the kernels cannot be loaded.
    pub fn new(graph: &GraphOnEngine) -> Result<Self, GraphError> {
        if graph.directed {
            return Err(GraphError::Directed { algorithm: NAME });
        }
        Ok(Self { count: NeighbourhoodCount::new(graph, NAME)?, triangles: VertexValues::allocate::<u64>(graph)? })
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
        let graph = self.count.graph();
        self.triangles.unshare(graph)?;
        let before = graph.stats()?;
        let started = Instant::now();
        // Each triangle is counted at its three vertices.
        let (steps, counts) = self.count.run(&self.triangles)?;
        self.count.share(&self.triangles)?;
        self.count.bring_outside(&self.triangles)?;
        let elapsed = started.elapsed();
        let io = graph.stats_since(before)?;
        Ok(TrianglesOnEngine { triangles: self.triangles.clone(), total: counts / 3, steps, elapsed, io })
    }
}
