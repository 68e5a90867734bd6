//! Direction-optimising breadth-first search, level by level.

use super::edges::{EdgeStore, GraphError, GraphOnEngine, Lists};
use super::launch::{Launcher, QueueOrder, ValueKind};
use super::levels::{self, BfsOptions, LevelReport, Sizes, Steps, Sums, UNREACHED};
use super::params::{BFS_ITEMS as ITEMS, Bfs as Parameters, GRAPH_HUBS};
use super::paths::path_to;
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use crate::storage::Stats;
use std::time::{Duration, Instant};

/// Result of a search.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BfsResult {
    /// Number of edges between the source and each vertex, or [`UNREACHED`].
    pub depth: Vec<u32>,
    /// Predecessor of each vertex. The source is its own predecessor. The value is `u64::MAX` for an unreached vertex.
    pub parent: Option<Vec<u64>>,
    /// Report of each level.
    pub levels: Vec<LevelReport>,
    /// Number of vertices reached, including the source.
    pub reached: u64,
    /// Wall-clock time from clearing the depths to the end of the last level. The results are then in the engine's
    /// memory.
    pub elapsed: Duration,
    /// Counters of storage and cache during the search, or `None` for edges in memory.
    pub io: Option<Stats>,
}

/// Result of a search whose values are in the engine's memory, for the next kernel of a program. The program owns the
/// values: a later run of the same [`Bfs`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BfsOnEngine {
    /// Number of edges between the source and each vertex, or [`UNREACHED`]: `u32[vertices]`.
    pub depth: VertexValues,
    /// Predecessor of each vertex: `u32[vertices]`, or `u64[vertices]` for a graph with 64-bit identifiers. The source
    /// is its own predecessor. An unreached vertex has the largest value of the type.
    pub parent: Option<VertexValues>,
    /// Report of each level.
    pub levels: Vec<LevelReport>,
    /// Number of vertices reached, including the source.
    pub reached: u64,
    /// Wall-clock time from clearing the depths to the end of the last level.
    pub elapsed: Duration,
    /// Counters of storage and cache during the search, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl BfsOnEngine {
    /// Copies depths and parents to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<BfsResult, GraphError> {
        Ok(BfsResult {
            depth: self.depth.read()?,
            parent: self.parent.as_ref().map(VertexValues::read_wide).transpose()?,
            levels: self.levels,
            reached: self.reached,
            elapsed: self.elapsed,
            io: self.io,
        })
    }
}

impl BfsResult {
    /// Returns the vertices of a shortest path from the source to `target`, both included. Returns `None` if the search
    /// did not reach `target`, or recorded no parents.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{BfsOptions, Csr, CsrOptions, Graph, Placement};
    ///
    /// let csr = Csr::from_edges(5, &[(0, 1), (1, 2), (2, 3), (3, 4)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.bfs_with(1, &BfsOptions::default().target(Some(3)))?;
    /// assert_eq!(result.path_to(3), Some(vec![1, 2, 3]));
    /// assert_eq!(result.path_to(4), None, "the search ended at vertex 3");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path_to(&self, target: u64) -> Option<Vec<u64>> {
        path_to(self.parent.as_ref()?, target)
    }

    /// Returns the number of edges inspected.
    pub fn scanned(&self) -> u64 {
        self.levels.iter().map(|l| l.scanned).sum()
    }
}

/// Memory and kernels of searches, for any number of sources.
#[derive(Debug)]
pub struct Bfs {
    graph: GraphOnEngine,
    options: BfsOptions,
    launcher: Launcher,
    depth: VertexValues,
    parent: Option<VertexValues>,
    seen: [Region; 2],
    queue: [Region; 2],
    order: QueueOrder,
}

/// Searches from one source, a vertex number from 0.
///
/// # Errors
/// As for [`Bfs::new`] and [`Bfs::run`].
pub fn bfs(graph: &GraphOnEngine, source: u64, options: &BfsOptions) -> Result<BfsResult, GraphError> {
    Bfs::new(graph, options)?.run(source)
}

impl Bfs {
    /// Allocates the memory of searches.
    ///
    /// # Errors
    /// [`GraphError::NotPlaced`] if the graph was placed without neighbour lists; [`GraphError::NoSuchVertex`] if the
    /// target is not a vertex; [`GraphError::Memory`] without memory; [`GraphError::Engine`] if the kernels cannot be
    /// loaded.
    pub fn new(graph: &GraphOnEngine, options: &BfsOptions) -> Result<Self, GraphError> {
        options.target.map_or(Ok(()), |v| graph.check_vertex(v))?;
        let Some(edges) = &graph.out.edges else {
            return Err(GraphError::NotPlaced { missing: "neighbour lists", algorithm: "breadth-first search" });
        };
        let vertices = graph.vertices as usize;
        let device = |bytes| graph.engine.allocate(Place::Device, bytes);
        let bitmap = || device(vertices.div_ceil(32) * 4);
        let queue = || device(graph.queue_items() * 2 * graph.id_bytes());
        Ok(Self {
            graph: graph.clone(),
            options: options.clone(),
            launcher: Launcher::new(graph, "wb_bfs_", "`Bfs`, unlike `PartitionedBfs`,")?,
            depth: VertexValues::allocate::<u32>(graph)?,
            parent: options.parents.then(|| VertexValues::allocate_ids(graph)).transpose()?,
            seen: [bitmap()?, bitmap()?],
            queue: [queue()?, queue()?],
            order: QueueOrder::new(graph, edges)?,
        })
    }

    /// Searches from `source`, a vertex number from 0, and copies depths and parents to the host.
    ///
    /// # Errors
    /// * [`GraphError::NoSuchVertex`] if the graph has no such vertex.
    /// * [`GraphError::Run`] if a kernel cannot read an edge, or exceeds the launch limit.
    /// * [`GraphError::Corrupt`] if edges lead to vertices that do not exist.
    /// * [`GraphError::Engine`] if the engine starts no kernel; [`GraphError::Memory`] or [`GraphError::Storage`] if
    ///   memory or counters cannot be read.
    pub fn run(&mut self, source: u64) -> Result<BfsResult, GraphError> {
        self.run_on_device(source)?.into_host()
    }

    /// Searches from `source`, a vertex number from 0, and leaves depths and parents in the engine's memory. The result
    /// shares that memory with this value. If a program still holds the result when the next run begins, that run
    /// allocates memory of its own.
    ///
    /// # Errors
    /// As for [`Bfs::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Bfs, BfsOptions, Csr, CsrOptions, Graph, Placement};
    ///
    /// let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 3)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let mut search = Bfs::new(graph.on_engine(), &BfsOptions::default())?;
    /// let first = search.run_on_device(0)?;
    /// let second = search.run_on_device(3)?;
    /// assert_eq!(first.depth.region().get_slice::<u32>(0, 4)?, [0, 1, 2, 3]);
    /// assert_eq!(second.into_host()?.depth, [3, 2, 1, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on_device(&mut self, source: u64) -> Result<BfsOnEngine, GraphError> {
        self.graph.check_vertex(source)?;
        self.depth.unshare(&self.graph)?;
        if let Some(parent) = &mut self.parent {
            parent.unshare(&self.graph)?;
        }
        self.launcher.reset()?;
        self.order.reset()?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let (levels, reached) = self.search(self.graph.inside(source))?;
        self.launcher.bring_outside(&self.graph, &self.depth, ValueKind::Plain)?;
        if let Some(parent) = &self.parent {
            self.launcher.bring_outside(&self.graph, parent, ValueKind::Ids)?;
        }
        let elapsed = started.elapsed();
        Ok(BfsOnEngine {
            io: self.graph.stats_since(before)?,
            depth: self.depth.clone(),
            parent: self.parent.clone(),
            levels,
            reached,
            elapsed,
        })
    }

    fn parameters(&self, lists: &Lists, source: u64) -> Parameters {
        Parameters {
            offset: lists.offset.address(),
            hubs: lists.hubs.address(),
            isolated: self.graph.isolated.address(),
            seen: 0,
            seen_next: 0,
            open: 0,
            depth: self.depth.address(),
            parent: self.parent.as_ref().map_or(0, VertexValues::address),
            queue: 0,
            queue_next: 0,
            items: 0,
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: self.graph.vertices,
            source,
            level: 0,
            skip: if lists.hubs_first { GRAPH_HUBS } else { 0 },
        }
    }

    fn search(&self, source: u64) -> Result<(Vec<LevelReport>, u64), GraphError> {
        let graph = &self.graph;
        let outward = &graph.out;
        let inward = if graph.directed { graph.inward.as_ref() } else { Some(outward) };
        let pages = |lists: Option<&Lists>| {
            lists.and_then(|lists| lists.edges.as_ref()).and_then(EdgeStore::pages).unwrap_or(u64::MAX)
        };
        let sizes = Sizes {
            vertices: graph.vertices,
            arcs: graph.arcs,
            connected: graph.connected,
            inward: inward.is_some(),
            pages: graph.is_stored().then(|| [pages(Some(outward)), pages(inward)]),
            by_degree: graph.order.is_some(),
        };
        let mut steps = OnePe {
            on: self,
            outward,
            inward: inward.unwrap_or(outward),
            forward: self.parameters(outward, source),
            backward: self.parameters(inward.unwrap_or(outward), source),
            now: 0,
            turn: 0,
            items: 0,
        };
        levels::search(&mut steps, &self.options, sizes)
    }

    /// Runs a step that reads edges.
    fn over(&self, lists: &Lists, kernel: &str, p: Parameters) -> Result<Sums, GraphError> {
        let Some(edges) = &lists.edges else {
            return Err(GraphError::NotPlaced { missing: "neighbour lists", algorithm: "breadth-first search" });
        };
        let kernel = format!("{kernel}_{}_{}", edges.source(), self.graph.id_suffix());
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        Ok(unsafe { self.launcher.step(&kernel, args!(p, edges)) }?.sum)
    }

    /// Runs a step that reads no edges.
    fn step(&self, kernel: &str, p: Parameters) -> Result<Sums, GraphError> {
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        Ok(unsafe { self.launcher.step(&format!("{kernel}_{}", self.graph.id_suffix()), args!(p)) }?.sum)
    }
}

/// Steps of a search on one PE.
struct OnePe<'a> {
    on: &'a Bfs,
    outward: &'a Lists,
    /// Lists for bottom-up steps.
    inward: &'a Lists,
    forward: Parameters,
    backward: Parameters,
    /// Index of the bitmap of seen vertices.
    now: usize,
    /// Index of the queue to expand, and its length.
    turn: usize,
    items: u64,
}

impl OnePe<'_> {
    fn seen(&self) -> [u64; 2] {
        [self.on.seen[self.now].address(), self.on.seen[1 - self.now].address()]
    }

    fn queues(&self) -> [u64; 2] {
        [self.on.queue[self.turn].address(), self.on.queue[1 - self.turn].address()]
    }
}

impl Steps for OnePe<'_> {
    const HUBS_END_A_LEVEL: bool = true;

    fn start(&mut self) -> Result<Sums, GraphError> {
        let p = Parameters { seen: self.seen()[0], queue_next: self.queues()[0], ..self.forward };
        let sums = self.on.step("wb_bfs_start", p)?;
        self.items = sums[ITEMS];
        Ok(sums)
    }

    fn top_down(&mut self, level: u32, _: bool) -> Result<Sums, GraphError> {
        let (on, ids) = (self.on, self.on.graph.id_suffix());
        if on.order.apply(&on.launcher, ids, &self.outward.offset, self.queues(), self.items)? {
            self.turn = 1 - self.turn;
        }
        let [queue, queue_next] = self.queues();
        let p = Parameters { seen: self.seen()[0], queue, queue_next, items: self.items, level, ..self.forward };
        let sums = on.over(self.outward, "wb_bfs_top_down", p)?;
        self.turn = 1 - self.turn;
        self.items = sums[ITEMS];
        Ok(sums)
    }

    fn bottom_up(&mut self, level: u32, resumes: bool) -> Result<Sums, GraphError> {
        // The step by hubs has found vertices that are in the next bitmap already.
        if !resumes {
            self.now = 1 - self.now;
        }
        let [seen_next, seen] = self.seen();
        let open = if resumes { seen_next } else { seen };
        let p = Parameters { seen, seen_next, open, level, ..self.backward };
        self.on.over(self.inward, "wb_bfs_bottom_up", p)
    }

    fn by_hubs(&mut self, level: u32) -> Result<Sums, GraphError> {
        self.now = 1 - self.now;
        let [seen_next, seen] = self.seen();
        self.on.step("wb_bfs_by_hubs", Parameters { seen, seen_next, open: seen, level, ..self.backward })
    }

    fn collect(&mut self, _: u32) -> Result<Sums, GraphError> {
        let ([seen, seen_next], queue_next) = (self.seen(), self.queues()[0]);
        let sums = self.on.step("wb_bfs_collect", Parameters { seen, seen_next, queue_next, ..self.forward })?;
        self.items = sums[ITEMS];
        Ok(sums)
    }

    fn has_reached_target(&self) -> Result<bool, GraphError> {
        let Some(v) = self.on.options.target else { return Ok(false) };
        let at = self.on.graph.inside(v) as usize * size_of::<u32>();
        Ok(self.on.depth.inside().get::<u32>(at)? != UNREACHED)
    }

    fn graph(&self) -> &GraphOnEngine {
        &self.on.graph
    }

    fn put_bytes(&self) -> Option<u64> {
        None
    }
}
