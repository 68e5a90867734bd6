//! Breadth-first search over a partitioned graph: the decisions of `bfs.rs`, taken alike on every PE.

use super::launch::{Steps, list_limit, longest_list};
use super::memory::{PeMemory, Shared};
use super::plan::{Part, PartitionPlan, Whole};
use crate::graph::edges::{GraphError, GraphOnEngine, Lists, Placement, PlacementOptions};
use crate::graph::launch::{Launcher, QueueOrder};
use crate::graph::params::{
    BFS_DEGREES as DEGREES, BFS_FOUND as FOUND, BFS_HUB_HITS as HUB_HITS, BFS_ITEMS as ITEMS, BFS_SCANNED as SCANNED,
    GRAPH_HUBS, GRAPH_PIECE_EDGES, Partition as Parameters, PartitionReport as Report,
};
use crate::graph::{BfsOptions, BfsResult, Direction, LevelReport, UNREACHED};
use crate::setters::setters;
use crate::shmem::World;
use crate::storage::Stats;
use std::time::{Duration, Instant};

/// How owners tell everybody which of their vertices top-down steps have found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum News {
    /// As lists while they are short, else as bitmaps.
    #[default]
    Auto,
    /// As lists as long as they are no larger than a bitmap.
    Lists,
    /// As bitmaps.
    Bitmaps,
}

/// How to search.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PartitionedBfsOptions {
    /// As for a search of one PE.
    pub search: BfsOptions,
    /// What PEs send each other.
    pub news: News,
}

setters!(PartitionedBfsOptions { search: BfsOptions, news: News });

/// One PE's part of a graph, where its kernels reach it.
#[derive(Debug)]
pub struct PartitionedGraph {
    world: World,
    whole: Whole,
    part: GraphOnEngine,
}

impl PartitionedGraph {
    /// Copies a PE's part to where its kernels can reach it: with [`Placement::Storage`] to its own volume.
    pub fn place(
        world: &World,
        plan: &PartitionPlan<'_>,
        part: &Part,
        placement: Placement,
    ) -> Result<Self, GraphError> {
        let (partitioned, pes) = (plan.pes(), world.n_pes());
        if partitioned != pes || part.pe != world.my_pe() {
            return Err(GraphError::OtherWorld { partitioned, pes });
        }
        let part = GraphOnEngine::place_lists(
            world.engine(),
            &part.out,
            part.inward.as_ref(),
            placement,
            PlacementOptions::BFS,
        )?;
        Ok(Self { world: world.clone(), whole: plan.whole(), part })
    }

    /// This PE's part. Its neighbours are slots.
    pub fn part(&self) -> &GraphOnEngine {
        &self.part
    }

    /// The world that it is dealt out to.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// How long one kernel may take before it is told to stop and the run is an error.
    pub fn set_launch_limit(&mut self, limit: Duration) {
        self.part.set_launch_limit(limit);
    }
}

/// What a search found, but for depths and parents: see [`PartitionedBfs::gather`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionedBfsResult {
    /// Level by level, counts of all PEs together. Bytes read are those of this PE.
    pub levels: Vec<LevelReport>,
    /// Vertices reached, with the source.
    pub reached: u64,
    /// Wall-clock time on this PE, from clearing the depths to the last level's end.
    pub elapsed: Duration,
    /// What the storage and the caches of all PEs did meanwhile; `None` for edges in memory.
    pub io: Option<Stats>,
    /// Bytes that all PEs together put to each other.
    pub put_bytes: u64,
}

/// A search with its memory, for any number of sources. Every PE makes the same calls.
#[derive(Debug)]
pub struct PartitionedBfs<'g> {
    graph: &'g PartitionedGraph,
    options: BfsOptions,
    list_limit: u64,
    steps: Steps<'g>,
    launcher: Launcher<'g>,
    order: QueueOrder,
    shared: Shared,
    own: PeMemory,
    /// A search has failed: the PEs' turns may differ.
    failed: bool,
}

impl<'g> PartitionedBfs<'g> {
    /// Allocates what searches need. Collective.
    pub fn new(graph: &'g PartitionedGraph, options: &PartitionedBfsOptions) -> Result<Self, GraphError> {
        let (world, part, whole) = (&graph.world, &graph.part, &graph.whole);
        let Some(edges) = &part.out.edges else { return Err(not_placed()) };
        let list_limit = match options.news {
            News::Auto => list_limit(whole),
            News::Lists => longest_list(whole),
            News::Bitmaps => 0,
        };
        Ok(Self {
            graph,
            options: options.search.clone(),
            list_limit,
            steps: Steps::new(world, part, edges.source())?,
            launcher: Launcher::new(part, "wb_partition_")?,
            order: QueueOrder::new(part, edges)?,
            shared: Shared::new(world, whole, options.search.parents)?,
            own: PeMemory::new(part, whole, list_limit)?,
            failed: false,
        })
    }

    /// Searches from a source, the vertex of this number in the graph that was dealt out. Collective.
    pub fn run(&mut self, plan: &PartitionPlan<'_>, source: u64) -> Result<PartitionedBfsResult, GraphError> {
        let vertices = self.graph.whole.vertices;
        if source >= vertices {
            return Err(GraphError::NoSuchVertex { source_vertex: source, vertices });
        }
        if self.failed {
            return Err(GraphError::OutOfStep);
        }
        self.graph.world.barrier_host()?;
        let before = self.graph.part.stats()?;
        self.failed = true;
        let started = Instant::now();
        let mut search = Search::new(self, plan.slot(source));
        search.run()?;
        let elapsed = started.elapsed();
        let (levels, reached, put_bytes) = (search.levels, search.reached, search.put_bytes);
        let io = self.sum(self.graph.part.stats_since(before)?)?;
        self.failed = false;
        Ok(PartitionedBfsResult { levels, reached, elapsed, io, put_bytes })
    }

    /// The counters of all PEs together.
    fn sum(&self, own: Option<Stats>) -> Result<Option<Stats>, GraphError> {
        let all = self.graph.world.allgather(own.as_ref().map_or(&[], bytemuck::bytes_of))?;
        Ok(all.iter().filter_map(|b| bytemuck::try_pod_read_unaligned::<Stats>(b).ok()).reduce(|a, b| a + b))
    }

    /// Brings the depths and parents of the last search together: on PE 0, for each vertex of the graph that was dealt out. `None`
    /// on other PEs. Collective.
    pub fn gather(
        &self,
        plan: &PartitionPlan<'_>,
        result: PartitionedBfsResult,
    ) -> Result<Option<BfsResult>, GraphError> {
        let (world, whole) = (&self.graph.world, &self.graph.whole);
        world.barrier_host()?;
        let gathered = if world.my_pe() == 0 { Some(self.gather_here(plan, result)?) } else { None };
        // Nobody goes on before everything is read.
        world.barrier_host()?;
        debug_assert_eq!(plan.pes(), whole.pes);
        Ok(gathered)
    }

    fn gather_here(&self, plan: &PartitionPlan<'_>, result: PartitionedBfsResult) -> Result<BfsResult, GraphError> {
        let whole = &self.graph.whole;
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
            // A slot that no vertex has stands for none.
            parents.iter_mut().flatten().for_each(|slot| *slot = plan.vertex_in(*slot));
            Some(plan.gather(&parents))
        } else {
            None
        };
        Ok(BfsResult {
            depth: plan.gather(&depths),
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

/// One search under way. Every PE sees the same sums, and so takes the same decisions; the queues are each PE's own.
struct Search<'s, 'g> {
    on: &'s mut PartitionedBfs<'g>,
    common: Parameters,
    levels: Vec<LevelReport>,
    reached: u64,
    put_bytes: u64,
    /// Which queue is the next to expand, and how many items this PE has in it.
    turn: usize,
    own_items: u64,
}

impl<'s, 'g> Search<'s, 'g> {
    fn new(on: &'s mut PartitionedBfs<'g>, source: u64) -> Self {
        let graph = on.graph;
        let common = Parameters {
            isolated: graph.part.isolated.address(),
            list_limit: on.list_limit,
            ..on.steps.parameters(&graph.whole, &on.own, &on.shared, source)
        };
        Self { on, common, levels: Vec::new(), reached: 1, put_bytes: 0, turn: 0, own_items: 0 }
    }

    /// The lists that frontiers are expanded by.
    fn outward(&self) -> &'g Lists {
        &self.on.graph.part.out
    }

    /// The lists by which vertices look back, if they are here.
    fn inward(&self) -> Option<&'g Lists> {
        let part = &self.on.graph.part;
        if part.directed { part.inward.as_ref() } else { Some(&part.out) }
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

    fn run(&mut self) -> Result<(), GraphError> {
        let whole = self.on.graph.whole;
        let (alpha, beta) = (self.on.options.alpha, self.on.options.beta.max(1));
        let queue = self.on.own.queue[0].address();
        let start = self.step("start", Parameters { queue_next: queue, ..self.parameters(self.outward(), 0) })?;
        self.own_items = start.own_items;
        let (mut items, mut degrees, mut frontier) = (start.sum[ITEMS], start.sum[DEGREES], 1);
        let (mut unexplored, mut bottom_up) = (whole.arcs, false);
        for level in 1..UNREACHED {
            let before = if self.on.options.trace_io { self.on.graph.part.stats()? } else { None };
            let (started, put_before) = (Instant::now(), self.put_bytes);
            let queued = !bottom_up;
            if !bottom_up {
                if items == 0 {
                    break;
                }
                bottom_up = self.inward().is_some() && alpha != 0 && degrees > unexplored / alpha;
                unexplored = unexplored.saturating_sub(degrees);
            }
            let (direction, report) = match (bottom_up, self.inward()) {
                (true, Some(inward)) => {
                    if queued && self.on.graph.part.is_stored() {
                        self.first_bottom_up(inward, level, items + degrees / GRAPH_PIECE_EDGES)?
                    } else {
                        (Direction::BottomUp, self.bottom_up(inward, level, false)?)
                    }
                }
                _ => {
                    let report = self.top_down(level, false)?;
                    (items, degrees) = (report.sum[ITEMS], report.sum[DEGREES]);
                    (Direction::TopDown, report)
                }
            };
            let found = report.sum[FOUND];
            self.reached += found;
            let small = found < frontier && found <= whole.vertices / beta;
            if bottom_up && found != 0 && small && found < whole.connected.saturating_sub(self.reached) {
                let queue_next = self.on.own.queue[self.turn].address();
                let p = Parameters { queue_next, ..self.parameters(self.outward(), level) };
                let report = self.step("collect", p)?;
                self.own_items = report.own_items;
                (items, degrees, bottom_up) = (report.sum[ITEMS], report.sum[DEGREES], false);
            }
            let elapsed = started.elapsed();
            self.levels.push(LevelReport {
                level,
                direction,
                frontier,
                found,
                scanned: report.sum[SCANNED],
                hub_hits: report.sum[HUB_HITS],
                read_bytes: self.on.graph.part.stats_since(before)?.map(|io| io.read_bytes),
                put_bytes: Some(self.put_bytes - put_before),
                elapsed,
            });
            frontier = found;
            if found == 0 {
                break;
            }
        }
        Ok(())
    }

    fn top_down(&mut self, level: u32, resume: bool) -> Result<Report, GraphError> {
        let lists = self.outward();
        let on = &*self.on;
        let queue = [on.own.queue[self.turn].address(), on.own.queue[1 - self.turn].address()];
        let ids = on.graph.part.id_suffix();
        if on.order.apply(&on.launcher, ids, &lists.offset, queue, self.own_items)? {
            self.turn = 1 - self.turn;
        }
        let [from, to] = [self.turn, 1 - self.turn].map(|i| self.on.own.queue[i].address());
        let p = Parameters {
            queue: from,
            queue_next: to,
            items: self.own_items,
            resume: resume.into(),
            ..self.parameters(lists, level)
        };
        let report = self.over(lists, "top_down", p)?;
        self.turn = 1 - self.turn;
        self.own_items = report.own_items;
        Ok(report)
    }

    fn bottom_up(&mut self, inward: &'g Lists, level: u32, resume: bool) -> Result<Report, GraphError> {
        let p = Parameters { resume: resume.into(), ..self.parameters(inward, level) };
        self.over(inward, "bottom_up", p)
    }

    /// The first bottom-up step after top-down ones, when edges are read in pages: see `Bfs::first_bottom_up`.
    fn first_bottom_up(
        &mut self,
        inward: &'g Lists,
        level: u32,
        pages: u64,
    ) -> Result<(Direction, Report), GraphError> {
        let by_hubs = self.step("by_leads", self.parameters(inward, level))?;
        let (direction, mut report) = if by_hubs.sum[ITEMS] <= pages {
            (Direction::BottomUp, self.bottom_up(inward, level, true)?)
        } else {
            (Direction::Both, self.top_down(level, true)?)
        };
        report.sum[FOUND] += by_hubs.sum[FOUND];
        report.sum[HUB_HITS] += by_hubs.sum[HUB_HITS];
        Ok((direction, report))
    }

    /// A step that reads edges.
    fn over(&mut self, lists: &'g Lists, kernel: &str, p: Parameters) -> Result<Report, GraphError> {
        let Some(edges) = &lists.edges else { return Err(not_placed()) };
        let ids = self.on.graph.part.id_suffix();
        let name = format!("wb_partition_{kernel}_{}_{ids}", edges.source());
        // SAFETY: the parameters of this kernel; the regions that they name belong to `self`, or are borrowed by it.
        let report = unsafe { self.on.steps.step(&name, p, kernel == "top_down", Some(edges)) }?;
        self.put_bytes += report.put_bytes;
        Ok(report)
    }

    /// A step that reads none.
    fn step(&mut self, kernel: &str, p: Parameters) -> Result<Report, GraphError> {
        let name = format!("wb_partition_{kernel}_{}", self.on.graph.part.id_suffix());
        // SAFETY: the parameters of this kernel; the regions that they name belong to `self`, or are borrowed by it.
        let report = unsafe { self.on.steps.step(&name, p, false, None::<u64>) }?;
        self.put_bytes += report.put_bytes;
        Ok(report)
    }
}
