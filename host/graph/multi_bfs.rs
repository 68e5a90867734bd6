//! Several breadth-first searches at once, which share their scans of the edges.

use super::edges::{EdgeStore, GraphError, GraphOnEngine, Lists};
use super::launch::{Launcher, ValueKind};
use super::levels::{Direction, LevelReport, Sums, UNREACHED};
use super::parallel;
use super::params::{
    BFS_DEGREES as DEGREES, BFS_FOUND as FOUND, BFS_HUB_HITS as HUB_HITS, BFS_ITEMS as ITEMS, BFS_SCANNED as SCANNED,
    Bfs as Step, GRAPH_HUBS, GraphReport as Report, MULTI_BFS_SEARCHES, MultiBfs as Parameters,
    QueueOrder as QueueParameters,
};
use super::vertex_values::VertexValues;
use crate::args;
use crate::engine::EngineKind;
use crate::memory::{Place, Region, free_host_memory};
use crate::setters::setters;
use crate::storage::Stats;
use std::time::{Duration, Instant};

/// Sum at the end of a level: edges of the vertices that a search has not reached.
const MISSING: usize = SCANNED;
/// A level goes bottom-up if the frontier's edges exceed [`MISSING`] divided by this, as in a search from one source
/// ([`BfsOptions::alpha`](super::BfsOptions::alpha)). A bottom-up step leaves a list once all searches have reached its
/// vertex. On kron:22, 2 to 8 take the same time; with 16, levels go bottom-up before the frontier is large, and read whole
/// lists.
const ALPHA: u64 = 2;

/// Largest number of searches at once.
pub const MOST_SEARCHES: usize = MULTI_BFS_SEARCHES;

/// Options of searches from several sources.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MultiBfsOptions {
    /// True to record the depth of each vertex in each search: 4 bytes x searches x vertices of the engine's memory.
    pub depths: bool,
    /// Largest depth. Vertices further away stay unreached.
    pub max_depth: Option<u32>,
}

setters!(MultiBfsOptions { depths: bool, max_depth: Option<u32> });

impl Default for MultiBfsOptions {
    fn default() -> Self {
        Self { depths: true, max_depth: None }
    }
}

/// Result of searches from several sources.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MultiBfsResult {
    /// For each search the number of edges between its source and each vertex, or [`UNREACHED`]. `None` unless
    /// [`MultiBfsOptions::depths`] is set.
    pub depth: Option<Vec<Vec<u32>>>,
    /// Searches that reach each vertex: bit i belongs to search i.
    pub reached_by: Vec<u64>,
    /// Number of vertices that each search reached, including its source.
    pub reached: Vec<u64>,
    /// Report of each level. A vertex counts once for each search that reaches it in the level.
    pub levels: Vec<LevelReport>,
    /// Wall-clock time from clearing the masks to the end of the last level of all searches.
    pub elapsed: Duration,
    /// Counters of storage and cache during the searches, or `None` for edges in memory.
    pub io: Option<Stats>,
}

/// Result of searches from several sources whose values are in the engine's memory. The program owns the values: a later
/// run of the same [`MultiBfs`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MultiBfsOnEngine {
    /// For each search the number of edges between its source and each vertex, or [`UNREACHED`]: `u32[vertices]`. Empty
    /// unless [`MultiBfsOptions::depths`] is set.
    pub depth: Vec<VertexValues>,
    /// Searches that reach each vertex: bit i belongs to search i. `u64[vertices]`.
    pub reached_by: VertexValues,
    /// Number of searches.
    pub searches: usize,
    /// Report of each level. A vertex counts once for each search that reaches it in the level.
    pub levels: Vec<LevelReport>,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Counters of storage and cache during the searches, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl MultiBfsOnEngine {
    /// Copies depths and masks to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<MultiBfsResult, GraphError> {
        let reached_by = self.masks()?;
        let depth = (0..self.depth.len()).map(|search| self.depths_of(search)).collect::<Result<Vec<_>, _>>()?;
        Ok(MultiBfsResult {
            depth: (!depth.is_empty()).then_some(depth),
            reached: count_bits(&reached_by, self.searches),
            reached_by,
            levels: self.levels,
            elapsed: self.elapsed,
            io: self.io,
        })
    }

    /// Returns the number of vertices that each search reached, including its source.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn reached(&self) -> Result<Vec<u64>, GraphError> {
        Ok(count_bits(&self.masks()?, self.searches))
    }

    /// Copies the masks to the host: bit i of a vertex's mask is set if search i reached the vertex.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn masks(&self) -> Result<Vec<u64>, GraphError> {
        self.reached_by.read()
    }

    /// Copies the depths of one search to the host, so that not all of them are there at once.
    ///
    /// # Errors
    /// [`GraphError::NoSearch`] if there is no such search, or it has no depths; [`GraphError::Memory`] if memory cannot
    /// be allocated or read.
    pub fn depths_of(&self, search: usize) -> Result<Vec<u32>, GraphError> {
        let missing = GraphError::NoSearch { search, searches: self.depth.len() };
        self.depth.get(search).ok_or(missing)?.read()
    }
}

/// Returns the number of masks in which each bit is set.
fn count_bits(masks: &[u64], searches: usize) -> Vec<u64> {
    (0..searches).map(|bit| parallel::sum(masks.len(), |v| masks[v] >> bit & 1)).collect()
}

/// Memory and kernels of searches that share their scans of the edges (MS-BFS: Then et al., "The More the Merrier:
/// Efficient Multi-Source Graph Traversal", VLDB 2014). In each level, the list of a vertex is read once for all searches
/// that reached the vertex in the level before, or, if that is less, for all that have not reached it. A run takes 28 bytes
/// for each vertex, the queue, and depths if they are asked for.
#[derive(Debug)]
pub struct MultiBfs {
    graph: GraphOnEngine,
    options: MultiBfsOptions,
    launcher: Launcher,
    depth: Vec<VertexValues>,
    seen: VertexValues,
    frontier: Region,
    next: Region,
    fresh: Region,
    queue: Region,
    /// Sources, and the addresses of the depths of each search.
    lists: [Region; 2],
}

impl MultiBfs {
    /// Allocates the memory of searches but for their depths, which [`MultiBfs::run`] allocates for as many searches as it
    /// has.
    ///
    /// # Errors
    /// [`GraphError::NotPlaced`] if the graph was placed without neighbour lists; [`GraphError::Memory`] without memory;
    /// [`GraphError::Engine`] if the kernels cannot be loaded.
    pub fn new(graph: &GraphOnEngine, options: &MultiBfsOptions) -> Result<Self, GraphError> {
        if graph.out.edges.is_none() {
            return Err(not_placed());
        }
        let vertices = graph.vertices as usize;
        let device = |bytes| graph.engine.allocate(Place::Device, bytes);
        let masks = || device(vertices * size_of::<u64>());
        let list = || device(MOST_SEARCHES * size_of::<u64>());
        Ok(Self {
            graph: graph.clone(),
            options: options.clone(),
            launcher: Launcher::new(graph, "wb_multi_bfs_", "breadth-first search from several sources")?,
            depth: Vec::new(),
            seen: VertexValues::allocate::<u64>(graph)?,
            frontier: masks()?,
            next: masks()?,
            fresh: device(vertices.div_ceil(32) * size_of::<u32>())?,
            queue: device(graph.queue_items() * 2 * graph.id_bytes())?,
            lists: [list()?, list()?],
        })
    }

    /// Searches from each of `sources`, vertex numbers from 0, and copies depths and masks to the host. A vertex may occur
    /// more than once.
    ///
    /// # Errors
    /// * [`GraphError::Searches`] if there is no source, or more than [`MOST_SEARCHES`]; [`GraphError::NoSuchVertex`] if a
    ///   source is not a vertex.
    /// * [`GraphError::Depths`] if the depths do not fit into memory.
    /// * [`GraphError::Run`], [`GraphError::Corrupt`], [`GraphError::Engine`], [`GraphError::Memory`] and
    ///   [`GraphError::Storage`] as for [`Bfs::run`](super::Bfs::run).
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, MultiBfs, MultiBfsOptions, Placement};
    ///
    /// let csr = Csr::from_edges(4, &[(0, 1), (1, 2)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let mut searches = MultiBfs::new(graph.on_engine(), &MultiBfsOptions::default())?;
    /// let result = searches.run(&[0, 3])?;
    /// assert_eq!(result.reached, [3, 1]);
    /// assert_eq!(result.reached_by, [0b01, 0b01, 0b01, 0b10]);
    /// assert_eq!(result.depth.expect("recorded by default")[0], [0, 1, 2, u32::MAX]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run(&mut self, sources: &[u64]) -> Result<MultiBfsResult, GraphError> {
        self.run_on_device(sources)?.into_host()
    }

    /// Searches from each of `sources`, and leaves depths and masks in the engine's memory. The result shares that memory
    /// with this value. If a program still holds the result when the next run begins, that run allocates memory of its
    /// own.
    ///
    /// # Errors
    /// As for [`MultiBfs::run`].
    pub fn run_on_device(&mut self, sources: &[u64]) -> Result<MultiBfsOnEngine, GraphError> {
        let searches = sources.len();
        if !(1..=MOST_SEARCHES).contains(&searches) {
            return Err(GraphError::Searches { searches, most: MOST_SEARCHES });
        }
        sources.iter().try_for_each(|v| self.graph.check_vertex(*v))?;
        self.seen.unshare(&self.graph)?;
        if self.options.depths {
            // The memory of the CPU engine is the host's, which grants more than it has.
            let free = free_host_memory().filter(|_| self.graph.engine.kind() == EngineKind::Cpu);
            self.allocate_depths(searches, free)?;
        }
        let inside: Vec<u64> = sources.iter().map(|&v| self.graph.inside(v)).collect();
        self.lists[0].set_slice(0, &inside)?;
        let addresses: Vec<u64> = self.depth.iter().map(VertexValues::address).collect();
        self.lists[1].set_slice(0, &addresses)?;
        self.launcher.reset()?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let levels = self.search(searches)?;
        let depth = &self.depth[..if self.options.depths { searches } else { 0 }];
        for values in depth.iter().chain([&self.seen]) {
            self.launcher.bring_outside(&self.graph, values, ValueKind::Plain)?;
        }
        let elapsed = started.elapsed();
        Ok(MultiBfsOnEngine {
            depth: depth.to_vec(),
            reached_by: self.seen.clone(),
            searches,
            levels,
            elapsed,
            io: self.graph.stats_since(before)?,
        })
    }

    /// Allocates the depths of as many searches, and gives up those that an earlier result still has. `free` is the memory
    /// that may be used, if it is known.
    fn allocate_depths(&mut self, searches: usize, free: Option<u64>) -> Result<(), GraphError> {
        self.depth.retain_mut(VertexValues::is_unique);
        let vertices = self.graph.vertices;
        let missing = searches.saturating_sub(self.depth.len()) as u64;
        // Lists in an order of their own have depths in both orders.
        let orders = if self.graph.order.is_some() { 2 } else { 1 };
        let needed = missing.saturating_mul(vertices).saturating_mul(orders * size_of::<u32>() as u64);
        let refuse = |reason| Err(GraphError::Depths { searches, vertices, needed, reason });
        if let Some(free) = free.filter(|free| needed > *free) {
            return refuse(format!("{free} bytes are free"));
        }
        while self.depth.len() < searches {
            match VertexValues::allocate::<u32>(&self.graph) {
                Ok(depth) => self.depth.push(depth),
                Err(e) => {
                    self.depth.clear();
                    return refuse(e.to_string());
                }
            }
        }
        Ok(())
    }

    fn step_over(&self, lists: &Lists) -> Step {
        Step {
            offset: lists.offset.address(),
            hubs: lists.hubs.address(),
            queue: self.queue.address(),
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: self.graph.vertices,
            skip: if lists.hubs_first { GRAPH_HUBS } else { 0 },
            ..bytemuck::Zeroable::zeroed()
        }
    }

    fn search(&self, searches: usize) -> Result<Vec<LevelReport>, GraphError> {
        let graph = &self.graph;
        let inward = if graph.directed { graph.inward.as_ref() } else { Some(&graph.out) };
        let inward = inward.filter(|lists| lists.edges.is_some());
        let mut p = Parameters {
            step: self.step_over(&graph.out),
            seen: self.seen.address(),
            frontier: self.frontier.address(),
            next: self.next.address(),
            fresh: self.fresh.address(),
            source: self.lists[0].address(),
            depth: if self.options.depths { self.lists[1].address() } else { 0 },
            pull_offset: inward.map_or(0, |lists| lists.offset.address()),
            searches: searches as u64,
        };
        // SAFETY: these are the parameters of these kernels. The regions that they name belong to `self`, or `self` shares
        // them.
        unsafe {
            self.launcher.run("wb_multi_bfs_start", args!(p))?;
            self.launcher.run("wb_multi_bfs_seed", args!(p))?;
        }
        let mut before = self.advance(&p)?;
        let mut levels = Vec::new();
        for level in 1..=self.options.max_depth.unwrap_or(UNREACHED - 1) {
            let started = Instant::now();
            p.step.level = level;
            let (direction, sums) = match inward.filter(|_| before[DEGREES] > before[MISSING] / ALPHA) {
                Some(lists) => {
                    let step = Step { level, ..self.step_over(lists) };
                    (Direction::BottomUp, self.over(lists, "wb_multi_bfs_pull", Parameters { step, ..p })?.sum)
                }
                None => {
                    p.step.items = self.collect()?;
                    if p.step.items == 0 {
                        break;
                    }
                    (Direction::TopDown, self.over(&graph.out, "wb_multi_bfs_expand", p)?.sum)
                }
            };
            let after = self.advance(&p)?;
            levels.push(LevelReport {
                level,
                direction,
                frontier: before[FOUND],
                found: after[FOUND],
                scanned: sums[SCANNED],
                hub_hits: sums[HUB_HITS],
                read_bytes: None,
                put_bytes: None,
                elapsed: started.elapsed(),
            });
            if after[FOUND] == 0 || (inward.is_some() && after[MISSING] == 0) {
                break;
            }
            before = after;
        }
        Ok(levels)
    }

    /// Ends a level. Returns the number of vertices that searches reached in it, and how many edges the next level has to
    /// read in either direction.
    fn advance(&self, p: &Parameters) -> Result<Sums, GraphError> {
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self` shares
        // them.
        Ok(unsafe { self.launcher.step("wb_multi_bfs_advance", args!(*p)) }?.sum)
    }

    /// Queues the vertices of the frontier in the order of their lists. Returns the number of items.
    fn collect(&self) -> Result<u64, GraphError> {
        let p = QueueParameters {
            offset: self.graph.out.offset.address(),
            queue: 0,
            queue_next: self.queue.address(),
            bitmap: self.fresh.address(),
            items: 0,
            vertices: self.graph.vertices,
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
        };
        let kernel = format!("wb_queue_collect_{}", self.graph.id_suffix());
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self` shares
        // them.
        Ok(unsafe { self.launcher.step(&kernel, args!(p)) }?.sum[ITEMS])
    }

    /// Runs a step that reads edges.
    fn over(&self, lists: &Lists, kernel: &str, p: Parameters) -> Result<Report, GraphError> {
        let edges: &EdgeStore = lists.edges.as_ref().ok_or_else(not_placed)?;
        let kernel = format!("{kernel}_{}_{}", edges.source(), self.graph.id_suffix());
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self` shares
        // them.
        unsafe { self.launcher.step(&kernel, args!(p, edges)) }
    }
}

fn not_placed() -> GraphError {
    GraphError::NotPlaced { missing: "neighbour lists", algorithm: "breadth-first search" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;
    use crate::graph::algorithm_tests::{on_storage, serial_depths, shapes, skewed, sources};
    use crate::graph::{Csr, CsrOptions, Placement, PlacementOptions, verify};

    #[test]
    fn each_search_has_the_depths_of_a_search_of_its_own() {
        let engine = testing::cpu();
        for (i, shape) in shapes().into_iter().enumerate() {
            let csr = &shape.csr;
            let stored = i % 2 == 0;
            let placement = if stored { on_storage(&engine, csr, PlacementOptions::BFS, "") } else { Placement::Gpu };
            let graph = GraphOnEngine::place(&engine, csr, placement, PlacementOptions::BFS).unwrap();
            let some = sources(csr);
            // One search; a few, two of them from one vertex; all bits of a mask.
            for count in [1, 5, MOST_SEARCHES] {
                let sources: Vec<u64> = (0..count).map(|k| (some[k % 4] + k as u64 / 5 * 3) % csr.vertices()).collect();
                for max_depth in [None, Some(2)] {
                    let options = MultiBfsOptions::default().max_depth(max_depth);
                    let found = MultiBfs::new(&graph, &options).unwrap().run(&sources).unwrap();
                    let depths = found.depth.unwrap();
                    assert_eq!((depths.len(), found.reached.len()), (count, count));
                    let mut total = 0;
                    for (search, &source) in sources.iter().enumerate() {
                        let last = max_depth.unwrap_or(UNREACHED - 1);
                        let mut expected = serial_depths(csr, source);
                        expected.iter_mut().filter(|d| **d > last).for_each(|d| *d = UNREACHED);
                        assert_eq!(depths[search], expected, "{}: search {search} of {count}", shape.name);
                        let reached = expected.iter().filter(|d| **d != UNREACHED).count() as u64;
                        assert_eq!(found.reached[search], reached);
                        for (mask, depth) in found.reached_by.iter().zip(&expected) {
                            assert_eq!(mask >> search & 1 == 1, *depth != UNREACHED);
                        }
                        let limit = max_depth.map(f64::from);
                        verify::bfs(csr, verify::Search { limit, ..source.into() }, &depths[search]).unwrap();
                        total += reached;
                    }
                    assert!(found.reached_by.iter().all(|mask| count == 64 || mask >> count == 0), "no other bits");
                    let by_level: u64 = found.levels.iter().map(|l| l.found).sum();
                    assert_eq!(by_level + count as u64, total);
                    assert_eq!(found.io.is_some(), stored);
                }
            }
        }
    }

    #[test]
    fn searches_together_read_the_edges_less_often() {
        let csr = Csr::from_edges(3000, &skewed(3000, 30_000, 4), CsrOptions::default()).unwrap();
        let graph = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::BFS).unwrap();
        let sources: Vec<u64> = (0..64).collect();
        let options = MultiBfsOptions::default().depths(false);
        let found = MultiBfs::new(&graph, &options).unwrap().run(&sources).unwrap();
        assert!(found.depth.is_none());
        let scanned: u64 = found.levels.iter().map(|l| l.scanned).sum();
        assert!(scanned < 2 * csr.arcs(), "{scanned} edges read, of {} in the graph", csr.arcs());
        let directions: Vec<Direction> = found.levels.iter().map(|l| l.direction).collect();
        assert!([Direction::TopDown, Direction::BottomUp].iter().all(|d| directions.contains(d)), "{directions:?}");
    }

    #[test]
    fn without_lists_inwards_all_levels_go_top_down() {
        let options = CsrOptions { directed: true, ..CsrOptions::default() };
        let csr = Csr::from_edges(3000, &skewed(3000, 30_000, 4), options).unwrap();
        let sources: Vec<u64> = (0..64).collect();
        let levels = |options| {
            let graph = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, options).unwrap();
            let found = MultiBfs::new(&graph, &MultiBfsOptions::default()).unwrap().run(&sources).unwrap();
            (found.levels.iter().any(|l| l.direction == Direction::BottomUp), found.reached_by)
        };
        let both = levels(PlacementOptions::BFS);
        let outwards = levels(PlacementOptions { inward: false, ..PlacementOptions::BFS });
        assert_eq!((both.0, outwards.0), (true, false));
        assert_eq!(both.1, outwards.1);
    }

    #[test]
    fn results_stay_and_wrong_calls_are_errors() {
        let csr = Csr::from_edges(4, &[(0, 1), (1, 2)], CsrOptions::default()).unwrap();
        let graph = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::BFS).unwrap();
        let mut searches = MultiBfs::new(&graph, &MultiBfsOptions::default()).unwrap();
        let first = searches.run_on_device(&[0, 3]).unwrap();
        let second = searches.run(&[2]).unwrap();
        assert_eq!(second.depth.unwrap(), [[2, 1, 0, UNREACHED]]);
        assert_eq!(first.depths_of(1).unwrap(), [UNREACHED, UNREACHED, UNREACHED, 0]);
        let error = first.depths_of(2).unwrap_err().to_string();
        assert_eq!(error, "there are no depths of search 2; the result has those of 2 searches, numbered from 0");
        assert_eq!(first.into_host().unwrap().reached, [3, 1]);
        let error = searches.allocate_depths(3, Some(15)).unwrap_err().to_string();
        assert!(error.starts_with("the depths of 3 searches over 4 vertices need 32 bytes more"), "{error}");
        assert!(error.contains("(15 bytes are free); search from fewer sources at once"), "{error}");
        for (sources, error) in [
            (vec![], "0 searches at once; there must be 1 to 64, and more in several runs"),
            (vec![0; 65], "65 searches at once; there must be 1 to 64, and more in several runs"),
            (vec![0, 4], "vertex 4 does not exist: the graph has 4 vertices, numbered from 0"),
        ] {
            assert_eq!(searches.run(&sources).unwrap_err().to_string(), error);
        }
    }
}
