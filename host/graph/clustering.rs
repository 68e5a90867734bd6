//! Local clustering coefficients: how many of a vertex's neighbours are neighbours of each other.

use super::edges::{GraphError, GraphOnEngine};
use super::neighbourhood::{CountReport, NeighbourhoodCount};
use super::vertex_values::VertexValues;
use crate::storage::Stats;
use std::time::{Duration, Instant};

/// Clustering coefficients of a graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusteringResult {
    /// Coefficient of each vertex, from 0 to 1; 0 for a vertex with fewer than two neighbours.
    pub coefficient: Vec<f64>,
    /// Report of each step.
    pub steps: Vec<CountReport>,
    /// Wall-clock time. The coefficients are then in the engine's memory.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

/// Clustering coefficients of a graph in the engine's memory, for the next kernel of a program. The program owns the
/// coefficients: a later run of the same [`Clustering`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusteringOnEngine {
    /// Coefficient of each vertex: `f64[vertices]`.
    pub coefficient: VertexValues,
    /// Report of each step.
    pub steps: Vec<CountReport>,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl ClusteringOnEngine {
    /// Copies the coefficients to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<ClusteringResult, GraphError> {
        let Self { coefficient, steps, elapsed, io } = self;
        Ok(ClusteringResult { coefficient: coefficient.read()?, steps, elapsed, io })
    }
}

impl ClusteringResult {
    /// Returns the mean of the coefficients of all vertices, or `None` if there are no vertices.
    pub fn mean(&self) -> Option<f64> {
        let vertices = self.coefficient.len();
        (vertices > 0).then(|| self.coefficient.iter().sum::<f64>() / vertices as f64)
    }

    /// Returns the number of edges read.
    pub fn scanned(&self) -> u64 {
        self.steps.iter().map(|s| s.scanned).sum()
    }
}

/// Name of the algorithm in errors.
const NAME: &str = "clustering";

/// Memory and kernels of a run.
#[derive(Debug)]
pub struct Clustering {
    count: NeighbourhoodCount,
    arcs: VertexValues,
    coefficient: VertexValues,
}

/// Computes the local clustering coefficient of each vertex by the rule of LDBC Graphalytics (version 1.0, section
/// "Local clustering coefficient"). The neighbours of a vertex are those in either direction, without itself. The
/// coefficient is the number of arcs between them, divided by d (d - 1) for d neighbours, and 0 for d < 2. An edge of an
/// undirected graph is two arcs.
///
/// # Errors
/// As for [`Clustering::new`] and [`Clustering::run`].
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{Csr, CsrOptions, GraphOnEngine, Placement, PlacementOptions, clustering};
///
/// // A triangle, and a vertex beside it.
/// let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 0), (2, 3)], CsrOptions::default())?;
/// let graph = GraphOnEngine::place(&Engine::cpu()?, &csr, Placement::Gpu, PlacementOptions::CLUSTERING)?;
/// assert_eq!(clustering(&graph)?.coefficient, [1.0, 1.0, 1.0 / 3.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn clustering(graph: &GraphOnEngine) -> Result<ClusteringResult, GraphError> {
    Clustering::new(graph)?.run()
}

impl Clustering {
    /// Allocates the memory of a run. Undirected lists sorted by degree need 20 bytes for each vertex. Directed graphs,
    /// and lists in another order, need 24 bytes and marks: at most the larger of 256 MiB and 16 bytes for each vertex. A
    /// graph that is distributed over PEs needs 20 more for each vertex of all PEs, 28 if it is directed. Collective then.
    ///
    /// # Errors
    /// [`GraphError::NotPlaced`] if the graph was placed without neighbour lists, or a directed graph without in-neighbour
    /// lists; [`GraphError::Memory`] without memory; [`GraphError::Engine`] if the kernels cannot be loaded.
    pub fn new(graph: &GraphOnEngine) -> Result<Self, GraphError> {
        let count = NeighbourhoodCount::new(graph, NAME)?;
        graph.engine.prepare("wb_clustering_divide")?;
        Ok(Self {
            count,
            arcs: VertexValues::allocate::<u64>(graph)?,
            coefficient: VertexValues::allocate::<f64>(graph)?,
        })
    }

    /// Runs the algorithm, and copies the coefficients to the host.
    ///
    /// # Errors
    /// * [`GraphError::Run`] if a kernel cannot read an edge, or exceeds the launch limit.
    /// * [`GraphError::Corrupt`] if edges lead to vertices that do not exist.
    /// * [`GraphError::Engine`] if the engine starts no kernel; [`GraphError::Memory`] or [`GraphError::Storage`] if
    ///   memory or counters cannot be read.
    pub fn run(&mut self) -> Result<ClusteringResult, GraphError> {
        self.run_on_device()?.into_host()
    }

    /// Runs the algorithm, and leaves the coefficients in the engine's memory. The result shares that memory with this
    /// value. If a program still holds the result when the next run begins, that run allocates memory of its own.
    ///
    /// # Errors
    /// As for [`Clustering::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, Placement};
    ///
    /// // Vertices 1 and 2 are the neighbours of 0. One of the two arcs between them is there.
    /// let csr = Csr::from_edges(3, &[(0, 1), (0, 2), (1, 2)], CsrOptions::default().directed(true))?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.clustering_on_device()?;
    /// assert_eq!(result.coefficient.region().get_slice::<f64>(0, 3)?, [0.5, 0.5, 0.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on_device(&mut self) -> Result<ClusteringOnEngine, GraphError> {
        let graph = self.count.graph();
        self.coefficient.unshare(graph)?;
        let before = graph.stats()?;
        let started = Instant::now();
        let (steps, _) = self.count.run(&self.arcs)?;
        self.count.divide(&self.arcs, &self.coefficient)?;
        self.count.share(&self.coefficient)?;
        self.count.bring_outside(&self.coefficient)?;
        let elapsed = started.elapsed();
        let io = graph.stats_since(before)?;
        Ok(ClusteringOnEngine { coefficient: self.coefficient.clone(), steps, elapsed, io })
    }
}
