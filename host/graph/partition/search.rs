//! Breadth-first search over a partitioned graph. Every PE takes the levels of `levels.rs`, as a search of one PE does.

use super::launch::{Launches, list_limit, longest_list};
use super::memory::{PeMemory, Shared};
use super::plan::{Assignment, Part, PartitionPlan};
use crate::graph::edges::{EdgeStore, GraphError, GraphOnEngine, Lists, Placement, PlacementOptions};
use crate::graph::launch::{Launcher, QueueOrder};
use crate::graph::levels::{self, Sizes, Steps, Sums};
use crate::graph::params::{GRAPH_HUBS, Partition as Parameters, PartitionReport as Report};
use crate::graph::{BfsOptions, BfsResult, LevelReport, UNREACHED};
use crate::setters::setters;
use crate::shmem::World;
use crate::storage::Stats;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Form in which owners send the frontier of a top-down step, their vertices found, to all PEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontierFormat {
    /// Lists while they are short, otherwise bitmaps.
    #[default]
    Auto,
    /// Lists as long as they are no larger than a bitmap.
    Lists,
    /// Bitmaps.
    Bitmaps,
}

/// Options of a search.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PartitionedBfsOptions {
    /// Options as for a search of one PE.
    pub search: BfsOptions,
    /// Form of the messages with the frontier.
    pub frontier: FrontierFormat,
}

setters!(PartitionedBfsOptions { search: BfsOptions, frontier: FrontierFormat });

/// A part of a graph that its PE's kernels can read. Clones share the part.
#[derive(Clone, Debug)]
pub struct PartitionedGraph {
    world: World,
    assignment: Arc<Assignment>,
    part: GraphOnEngine,
}

impl PartitionedGraph {
    /// Copies a PE's part to memory that its kernels can read, or with [`Placement::Storage`] to its own volume.
    ///
    /// # Errors
    /// [`GraphError::OtherWorld`] if the partition has another number of PEs than `world`, or `part` is that of another
    /// PE; otherwise as for [`GraphOnEngine::place`].
    pub fn place(
        world: &World,
        plan: &PartitionPlan<'_>,
        part: &Part,
        placement: Placement,
    ) -> Result<Self, GraphError> {
        match plan.pes() {
            partitioned if partitioned != part.assignment.whole.pes => {
                Err(GraphError::OtherWorld { partitioned, pes: world.n_pes() })
            }
            _ => Self::place_own(world, part, placement),
        }
    }

    pub(super) fn place_own(world: &World, part: &Part, placement: Placement) -> Result<Self, GraphError> {
        let (partitioned, pes) = (part.assignment.whole.pes, world.n_pes());
        if partitioned != pes || part.pe != world.my_pe() {
            return Err(GraphError::OtherWorld { partitioned, pes });
        }
        let assignment = part.assignment.clone();
        let part = GraphOnEngine::place_lists(
            world.engine(),
            &part.out,
            part.inward.as_ref(),
            placement,
            PlacementOptions::BFS,
        )?;
        Ok(Self { world: world.clone(), assignment, part })
    }

    /// Returns this PE's part, whose neighbours are slots.
    pub fn part(&self) -> &GraphOnEngine {
        &self.part
    }

    /// Returns the world across which the graph is partitioned.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Sets the time limit of one kernel. A kernel that exceeds the limit is told to stop, and the run fails.
    pub fn set_launch_limit(&mut self, limit: Duration) {
        self.part.set_launch_limit(limit);
    }
}

/// Result of a search without depths and parents, which [`PartitionedBfs::gather`] returns.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionedBfsResult {
    /// Report of each level, with counts of all PEs. Bytes read are those of this PE.
    pub levels: Vec<LevelReport>,
    /// Number of vertices reached, including the source.
    pub reached: u64,
    /// Wall-clock time on this PE, from clearing the depths to the end of the last level.
    pub elapsed: Duration,
    /// Counters of the storage and the caches of all PEs during the search, or `None` for edges in memory.
    pub io: Option<Stats>,
    /// Number of bytes that all PEs put to each other.
    pub put_bytes: u64,
}

/// Memory and kernels of searches, for any number of sources. Every PE makes the same calls.
#[derive(Debug)]
pub struct PartitionedBfs {
    graph: PartitionedGraph,
    options: BfsOptions,
    list_limit: u64,
    sizes: Sizes,
    steps: Launches,
    launcher: Launcher,
    order: QueueOrder,
    shared: Shared,
    own: PeMemory,
    /// True if a search has failed, so that the PEs' exchange numbers may differ.
    failed: bool,
}

impl PartitionedBfs {
    /// Allocates the memory of searches. Collective.
    ///
    /// # Errors
    /// [`GraphError::NotPlaced`] if the graph was placed without neighbour lists; [`GraphError::Memory`] without
    /// memory; [`GraphError::Engine`] if the kernels cannot be loaded; [`GraphError::Shmem`] if the symmetric heap is
    /// too small.
    pub fn new(graph: &PartitionedGraph, options: &PartitionedBfsOptions) -> Result<Self, GraphError> {
        let (world, part, whole) = (&graph.world, &graph.part, &graph.assignment.whole);
        let Some(edges) = &part.out.edges else { return Err(not_placed()) };
        let list_limit = match options.frontier {
            FrontierFormat::Auto => list_limit(whole),
            FrontierFormat::Lists => longest_list(whole),
            FrontierFormat::Bitmaps => 0,
        };
        Ok(Self {
            graph: graph.clone(),
            options: options.search.clone(),
            list_limit,
            sizes: Sizes {
                vertices: whole.vertices,
                arcs: whole.arcs,
                connected: whole.connected,
                inward: inward(part).is_some(),
                pages: all_pages(world, part)?,
                by_degree: part.order.is_some(),
            },
            steps: Launches::new(world, part, edges.source())?,
            launcher: Launcher::across(part, "wb_partition_")?,
            order: QueueOrder::new(part, edges)?,
            shared: Shared::new(world, whole, options.search.parents)?,
            own: PeMemory::new(part, whole, list_limit)?,
            failed: false,
        })
    }

    /// Searches from `source`, a vertex number of the graph that was partitioned. Collective.
    ///
    /// # Errors
    /// * [`GraphError::NoSuchVertex`] if the source or the target is not a vertex; [`GraphError::OutOfStep`] after a search
    ///   that failed.
    /// * [`GraphError::OtherPe`] if another PE failed; [`GraphError::Shmem`] if a PE did not come to a barrier.
    /// * [`GraphError::Run`], [`GraphError::Corrupt`], [`GraphError::Engine`], [`GraphError::Memory`] and
    ///   [`GraphError::Storage`] as for [`Bfs::run`](crate::graph::Bfs::run).
    pub fn run(&mut self, source: u64) -> Result<PartitionedBfsResult, GraphError> {
        let graph = self.graph.clone();
        let vertices = graph.assignment.whole.vertices;
        if let Some(v) = [Some(source), self.options.target].into_iter().flatten().find(|v| *v >= vertices) {
            return Err(GraphError::NoSuchVertex { source_vertex: v, vertices });
        }
        if self.failed {
            return Err(GraphError::OutOfStep);
        }
        graph.world.barrier_host()?;
        let before = graph.part.stats()?;
        self.failed = true;
        let started = Instant::now();
        let (options, sizes) = (self.options.clone(), self.sizes);
        let mut search = Search::new(self, &graph, graph.assignment.slot(source));
        let (levels, reached) = levels::search(&mut search, &options, sizes)?;
        let elapsed = started.elapsed();
        let put_bytes = search.put_bytes;
        let io = self.sum(graph.part.stats_since(before)?)?;
        self.failed = false;
        Ok(PartitionedBfsResult { levels, reached, elapsed, io, put_bytes })
    }

    /// Returns the sum of the counters of all PEs.
    fn sum(&self, own: Option<Stats>) -> Result<Option<Stats>, GraphError> {
        let all = self.graph.world.allgather(own.as_ref().map_or(&[], bytemuck::bytes_of))?;
        Ok(all.iter().filter_map(|b| bytemuck::try_pod_read_unaligned::<Stats>(b).ok()).reduce(|a, b| a + b))
    }

    /// Collects the depths and parents of the last search on PE 0, for each vertex of the graph that was partitioned.
    /// Returns `None` on other PEs. Collective.
    ///
    /// # Errors
    /// [`GraphError::Shmem`] if another PE's memory cannot be read, or a PE did not come to a barrier.
    pub fn gather(&self, result: PartitionedBfsResult) -> Result<Option<BfsResult>, GraphError> {
        let world = &self.graph.world;
        world.barrier_host()?;
        let gathered = if world.my_pe() == 0 { Some(self.gather_here(result)?) } else { None };
        // No PE continues before PE 0 has read everything.
        world.barrier_host()?;
        Ok(gathered)
    }

    fn gather_here(&self, result: PartitionedBfsResult) -> Result<BfsResult, GraphError> {
        let assignment = &self.graph.assignment;
        let whole = &assignment.whole;
        let pes = 0..whole.pes;
        let own = |pe| whole.vertices_of(pe) as usize;
        let depths = pes.clone().map(|pe| self.shared.depth.get(0, own(pe), pe)).collect::<Result<Vec<_>, _>>()?;
        let parent = if self.options.parents {
            let words = whole.id_bytes() / size_of::<u32>();
            let slots = |pe| -> Result<Vec<u64>, GraphError> {
                let words = self.shared.parent.get(0, own(pe) * words, pe)?;
                Ok(if whole.wide {
                    words.chunks_exact(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect()
                } else {
                    words.into_iter().map(u64::from).collect()
                })
            };
            let mut parents = pes.map(slots).collect::<Result<Vec<_>, _>>()?;
            // An empty slot stands for "no parent".
            parents.iter_mut().flatten().for_each(|slot| *slot = assignment.vertex_in(*slot));
            Some(assignment.gather(&parents))
        } else {
            None
        };
        Ok(BfsResult {
            depth: assignment.gather(&depths),
            parent,
            levels: result.levels,
            reached: result.reached,
            elapsed: result.elapsed,
            io: result.io,
        })
    }
}

fn not_placed() -> GraphError {
    GraphError::NotPlaced { missing: "neighbour lists", algorithm: "breadth-first search" }
}

/// Steps of one search. Every PE sees the same sums, and so makes the same decisions. Each PE has its own queues.
struct Search<'s, 'g> {
    on: &'s mut PartitionedBfs,
    graph: &'g PartitionedGraph,
    common: Parameters,
    put_bytes: u64,
    /// Index of the next queue to expand, and the number of this PE's items in it.
    turn: usize,
    own_items: u64,
}

impl<'s, 'g> Search<'s, 'g> {
    fn new(on: &'s mut PartitionedBfs, graph: &'g PartitionedGraph, source: u64) -> Self {
        let common = Parameters {
            isolated: graph.part.isolated.address(),
            list_limit: on.list_limit,
            ..on.steps.parameters(&graph.assignment.whole, &on.own, &on.shared, source)
        };
        Self { on, graph, common, put_bytes: 0, turn: 0, own_items: 0 }
    }

    /// Returns the lists by which frontiers are expanded.
    fn outward(&self) -> &'g Lists {
        &self.graph.part.out
    }

    /// Returns the lists by which unreached vertices look for the frontier, if they are placed.
    fn inward(&self) -> Option<&'g Lists> {
        inward(&self.graph.part)
    }

    fn parameters(&self, lists: &Lists, level: u32) -> Parameters {
        Parameters {
            offset: lists.offset.address(),
            hubs: lists.hubs.address(),
            skip: if lists.hubs_first { GRAPH_HUBS } else { 0 },
            level,
            ..self.common
        }
    }

    /// Runs a step that reads edges.
    fn over(&mut self, lists: &'g Lists, kernel: &str, p: Parameters) -> Result<Report, GraphError> {
        let Some(edges) = &lists.edges else { return Err(not_placed()) };
        let ids = self.graph.part.id_suffix();
        let name = format!("wb_partition_{kernel}_{}_{ids}", edges.source());
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to the search, or to
        // the graph that `self` borrows.
        let report = unsafe { self.on.steps.step(&name, p, kernel == "top_down", Some(edges)) }?;
        self.put_bytes += report.put_bytes;
        Ok(report)
    }

    /// Runs a step that reads no edges.
    fn step(&mut self, kernel: &str, p: Parameters) -> Result<Report, GraphError> {
        let name = format!("wb_partition_{kernel}_{}", self.graph.part.id_suffix());
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to the search, or to
        // the graph that `self` borrows.
        let report = unsafe { self.on.steps.step(&name, p, false, None::<u64>) }?;
        self.put_bytes += report.put_bytes;
        Ok(report)
    }
}

impl Steps for Search<'_, '_> {
    const HUBS_END_A_LEVEL: bool = false;

    fn start(&mut self) -> Result<Sums, GraphError> {
        let queue_next = self.on.own.queue[0].address();
        let report = self.step("start", Parameters { queue_next, ..self.parameters(self.outward(), 0) })?;
        self.own_items = report.own_items;
        Ok(report.sum)
    }

    fn top_down(&mut self, level: u32, resumes: bool) -> Result<Sums, GraphError> {
        let lists = self.outward();
        let on = &*self.on;
        let queue = [on.own.queue[self.turn].address(), on.own.queue[1 - self.turn].address()];
        let ids = self.graph.part.id_suffix();
        if on.order.apply(&on.launcher, ids, &lists.offset, queue, self.own_items)? {
            self.turn = 1 - self.turn;
        }
        let [from, to] = [self.turn, 1 - self.turn].map(|i| self.on.own.queue[i].address());
        let p = Parameters {
            queue: from,
            queue_next: to,
            items: self.own_items,
            resume: resumes.into(),
            ..self.parameters(lists, level)
        };
        let report = self.over(lists, "top_down", p)?;
        self.turn = 1 - self.turn;
        self.own_items = report.own_items;
        Ok(report.sum)
    }

    fn bottom_up(&mut self, level: u32, resumes: bool) -> Result<Sums, GraphError> {
        let Some(inward) = self.inward() else { return Err(not_placed()) };
        let p = Parameters { resume: resumes.into(), ..self.parameters(inward, level) };
        Ok(self.over(inward, "bottom_up", p)?.sum)
    }

    fn by_hubs(&mut self, level: u32) -> Result<Sums, GraphError> {
        let Some(inward) = self.inward() else { return Err(not_placed()) };
        Ok(self.step("by_hubs", self.parameters(inward, level))?.sum)
    }

    fn collect(&mut self, level: u32) -> Result<Sums, GraphError> {
        let queue_next = self.on.own.queue[self.turn].address();
        let report = self.step("collect", Parameters { queue_next, ..self.parameters(self.outward(), level) })?;
        self.own_items = report.own_items;
        Ok(report.sum)
    }

    /// Returns true on all PEs if the owner of the target has reached it. Collective if there is a target.
    fn has_reached_target(&self) -> Result<bool, GraphError> {
        let Some(target) = self.on.options.target else { return Ok(false) };
        let world = &self.graph.world;
        let (pe, own) = self.graph.assignment.place(target);
        let reached = pe == world.my_pe() && self.on.shared.depth.get(own as usize, 1, pe)? != [UNREACHED];
        Ok(world.allgather(if reached { b"reached" } else { b"" })?.iter().any(|word| !word.is_empty()))
    }

    fn graph(&self) -> &GraphOnEngine {
        &self.graph.part
    }

    fn put_bytes(&self) -> Option<u64> {
        Some(self.put_bytes)
    }
}

/// Returns the lists by which unreached vertices look for the frontier, if they are placed.
fn inward(part: &GraphOnEngine) -> Option<&Lists> {
    if part.directed { part.inward.as_ref() } else { Some(&part.out) }
}

/// Returns the pages of the out-lists and of the lists for bottom-up steps on all PEs, if edges are read in pages.
/// Collective.
fn all_pages(world: &World, part: &GraphOnEngine) -> Result<Option<[u64; 2]>, GraphError> {
    let of = |lists: Option<&Lists>| lists.and_then(|l| l.edges.as_ref()).and_then(EdgeStore::pages);
    let own = [of(Some(&part.out)), of(inward(part))].map(|pages| pages.unwrap_or_default());
    let all = world.allgather(bytemuck::cast_slice(&own))?;
    let pages = all.iter().filter_map(|bytes| bytemuck::try_pod_read_unaligned::<[u64; 2]>(bytes).ok());
    let sums = pages.fold([0u64; 2], |sums, own| [sums[0] + own[0], sums[1] + own[1]]);
    Ok(part.is_stored().then_some(sums))
}
