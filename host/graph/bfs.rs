//! Direction-optimising breadth-first search, level by level.

use super::edges::{EdgeStore, GraphError, GraphOnEngine, Lists};
use super::launch::{Launcher, QueueOrder, ValueKind};
use super::params::{
    BFS_DEGREES as DEGREES, BFS_FOUND as FOUND, BFS_HUB_HITS as HUB_HITS, BFS_ITEMS as ITEMS, BFS_SCANNED as SCANNED,
    Bfs as Parameters, GRAPH_HUBS, GRAPH_PIECE_EDGES, GraphReport as Report,
};
use super::paths::path_to;
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use crate::setters::setters;
use crate::storage::Stats;
use std::fmt;
use std::time::{Duration, Instant};

/// Depth of a vertex that the search did not reach.
pub const UNREACHED: u32 = u32::MAX;

/// Direction in which a level was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From each vertex of the frontier along its edges.
    TopDown,
    /// From each unreached vertex back to the frontier.
    BottomUp,
    /// First from unreached vertices to their hub neighbours in memory, then from the frontier for the remaining
    /// vertices.
    Both,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TopDown => "top-down",
            Self::BottomUp => "bottom-up",
            Self::Both => "both",
        })
    }
}

/// Options of a search.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BfsOptions {
    /// True to record parents as well as depths.
    pub parents: bool,
    /// A level goes bottom-up if the frontier's edges exceed the unexplored edges divided by `alpha`. 0 always stays
    /// top-down. GAP uses 15. The default here is larger, since most vertices find their parent among the hub
    /// neighbours, which makes bottom-up steps cheaper.
    pub alpha: u64,
    /// The search goes top-down again if the frontier shrinks and is at most the vertices divided by `beta` (GAP: 18).
    /// It must also be smaller than the number of unreached vertices, which would otherwise read fewer lists than the
    /// frontier.
    pub beta: u64,
    /// True to record the bytes that each level reads from storage. This copies the counters from the engine's memory
    /// once per level.
    pub trace_io: bool,
    /// Vertex that ends the search: the last level is the one that reaches this vertex. Vertices further away stay
    /// unreached.
    pub target: Option<u64>,
    /// Largest depth. Vertices further away stay unreached.
    pub max_depth: Option<u32>,
}

setters!(BfsOptions {
    parents: bool,
    alpha: u64,
    beta: u64,
    trace_io: bool,
    target: Option<u64>,
    max_depth: Option<u32>,
});

impl Default for BfsOptions {
    fn default() -> Self {
        Self { parents: true, alpha: 40, beta: 18, trace_io: false, target: None, max_depth: None }
    }
}

/// Report of one level of a search.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LevelReport {
    /// Depth of the vertices that the level found.
    pub level: u32,
    /// Direction of the search.
    pub direction: Direction,
    /// Vertices of the frontier from which the level started.
    pub frontier: u64,
    /// Vertices found.
    pub found: u64,
    /// Edges inspected.
    pub scanned: u64,
    /// Vertices found without reading an edge, since one of the hub neighbours kept in memory was in the frontier.
    pub hub_hits: u64,
    /// Bytes read from storage; `None` unless [`BfsOptions::trace_io`] is set and the edges are on storage.
    pub read_bytes: Option<u64>,
    /// Bytes that PEs put to each other, or `None` for a search of one PE.
    pub put_bytes: Option<u64>,
    /// Wall-clock time.
    pub elapsed: Duration,
}

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
        let ids = graph.id_suffix();
        let outward = &graph.out;
        let inward = if graph.directed { graph.inward.as_ref() } else { Some(outward) };
        let seen = [self.seen[0].address(), self.seen[1].address()];
        let queue = [self.queue[0].address(), self.queue[1].address()];
        let forward = self.parameters(outward, source);
        let backward = inward.map(|lists| self.parameters(lists, source));

        let (mut now, mut turn) = (0, 0);
        let start = Parameters { seen: seen[0], queue_next: queue[0], ..forward };
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        let first = unsafe { self.launcher.step(&format!("wb_bfs_start_{ids}"), args!(start)) }?;
        let (mut items, mut degrees, mut frontier) = (first.sum[ITEMS], first.sum[DEGREES], 1);
        let (mut unexplored, mut reached, mut bottom_up) = (graph.arcs, 1, false);
        let mut levels = Vec::new();
        for level in 1..=self.options.max_depth.unwrap_or(UNREACHED - 1) {
            if self.has_reached_target()? {
                break;
            }
            let before = if self.options.trace_io { graph.stats()? } else { None };
            let started = Instant::now();
            let queued = !bottom_up;
            if !bottom_up {
                if items == 0 {
                    break;
                }
                bottom_up = backward.is_some() && self.options.alpha != 0 && degrees > unexplored / self.options.alpha;
                unexplored = unexplored.saturating_sub(degrees);
            }
            let (direction, report) = match (bottom_up, inward, backward) {
                (true, Some(lists), Some(backward)) => {
                    let p =
                        Parameters { seen: seen[now], seen_next: seen[1 - now], open: seen[now], level, ..backward };
                    now = 1 - now;
                    if queued && graph.is_stored() {
                        let frontier = Parameters {
                            seen: seen[now],
                            queue: queue[turn],
                            queue_next: queue[1 - turn],
                            items,
                            level,
                            ..forward
                        };
                        self.first_bottom_up(p, frontier, lists, outward, items + degrees / GRAPH_PIECE_EDGES)?
                    } else {
                        (Direction::BottomUp, self.over(lists, "wb_bfs_bottom_up", p)?)
                    }
                }
                _ => {
                    if self.order.apply(&self.launcher, ids, &outward.offset, [queue[turn], queue[1 - turn]], items)? {
                        turn = 1 - turn;
                    }
                    let (from, to) = (queue[turn], queue[1 - turn]);
                    let p = Parameters { seen: seen[now], queue: from, queue_next: to, items, level, ..forward };
                    turn = 1 - turn;
                    let report = self.over(outward, "wb_bfs_top_down", p)?;
                    (items, degrees) = (report.sum[ITEMS], report.sum[DEGREES]);
                    (Direction::TopDown, report)
                }
            };
            let found = report.sum[FOUND];
            reached += found;
            let small = found < frontier && found <= graph.vertices / self.options.beta.max(1);
            if bottom_up && found != 0 && small && found < graph.connected.saturating_sub(reached) {
                // The frontier is small again, also compared with the unreached vertices that a bottom-up step would
                // inspect. The next step is top-down and needs a queue.
                let p = Parameters { seen: seen[now], seen_next: seen[1 - now], queue_next: queue[turn], ..forward };
                // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or
                // `self` shares them.
                let report = unsafe { self.launcher.step(&format!("wb_bfs_collect_{ids}"), args!(p)) }?;
                (items, degrees, bottom_up) = (report.sum[ITEMS], report.sum[DEGREES], false);
            }
            let elapsed = started.elapsed();
            let read_bytes = graph.stats_since(before)?.map(|io| io.read_bytes);
            levels.push(LevelReport {
                level,
                direction,
                frontier,
                found,
                scanned: report.sum[SCANNED],
                hub_hits: report.sum[HUB_HITS],
                read_bytes,
                put_bytes: None,
                elapsed,
            });
            frontier = found;
            if found == 0 {
                break;
            }
        }
        Ok((levels, reached))
    }

    fn has_reached_target(&self) -> Result<bool, GraphError> {
        let Some(v) = self.options.target else { return Ok(false) };
        let at = self.graph.inside(v) as usize * size_of::<u32>();
        Ok(self.depth.inside().get::<u32>(at)? != UNREACHED)
    }

    /// Does the first bottom-up step after top-down ones, for edges that are read in pages. It first uses the hub
    /// neighbours in memory. The number of vertices that remain then decides between two ways. One reads the lists of
    /// these vertices; the other reads the frontier's lists, which are about `pages` pages. Neither reads a page twice,
    /// as both go through the lists in order.
    fn first_bottom_up(
        &self,
        p: Parameters,
        frontier: Parameters,
        inward: &Lists,
        outward: &Lists,
        pages: u64,
    ) -> Result<(Direction, Report), GraphError> {
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        let by_hubs = unsafe { self.launcher.step(&format!("wb_bfs_by_hubs_{}", self.graph.id_suffix()), args!(p)) }?;
        let left = by_hubs.sum[ITEMS];
        let at_most = |lists: &Lists| lists.edges.as_ref().and_then(EdgeStore::pages).unwrap_or(u64::MAX);
        let (direction, mut report) = if left == 0 {
            return Ok((Direction::BottomUp, by_hubs));
        } else if left.min(at_most(inward)) <= pages.min(at_most(outward)) {
            (Direction::BottomUp, self.over(inward, "wb_bfs_bottom_up", Parameters { open: p.seen_next, ..p })?)
        } else {
            let (ids, queues) = (self.graph.id_suffix(), [frontier.queue, frontier.queue_next]);
            let ordered = self.order.apply(&self.launcher, ids, &outward.offset, queues, frontier.items)?;
            let [queue_next, queue] = if ordered { queues } else { [queues[1], queues[0]] };
            let frontier = Parameters { queue, queue_next, ..frontier };
            (Direction::Both, self.over(outward, "wb_bfs_top_down", frontier)?)
        };
        report.sum[FOUND] += by_hubs.sum[FOUND];
        report.sum[HUB_HITS] += by_hubs.sum[HUB_HITS];
        Ok((direction, report))
    }

    /// Runs a step that reads edges.
    fn over(&self, lists: &Lists, kernel: &str, p: Parameters) -> Result<Report, GraphError> {
        let Some(edges) = &lists.edges else {
            return Err(GraphError::NotPlaced { missing: "neighbour lists", algorithm: "breadth-first search" });
        };
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        unsafe {
            self.launcher.step(&format!("{kernel}_{}_{}", edges.source(), self.graph.id_suffix()), args!(p, edges))
        }
    }
}
