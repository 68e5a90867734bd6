//! Launching one step of a partitioned search, and reading what all PEs say about it.

use super::deal::Whole;
use super::memory::{Own, Shared, part_words};
use crate::engine::{Args, Engine, Grid};
use crate::graph::edges::{GraphError, GraphOnEngine};
use crate::graph::launch::{BLOCK_THREADS, BLOCKS_PER_PROCESSOR, kernel_parameters};
use crate::memory::{Place, Region};
use crate::shmem::World;
use bytemuck::{Pod, Zeroable};
use std::time::Duration;

/// `wb_partition` of `kernels/graph/partitioned.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Parameters {
    pub offset: u64,
    pub leads: u64,
    pub isolated: u64,
    pub seen: u64,
    pub fresh: u64,
    pub queue: u64,
    pub queue_next: u64,
    pub items: u64,
    pub outbox: u64,
    pub outbox_count: u64,
    pub list: u64,
    pub tally: u64,
    pub counters: u64,
    pub report: u64,
    pub depth: u64,
    pub parent: u64,
    pub inbox: u64,
    pub inbox_signal: u64,
    pub news: u64,
    pub header: u64,
    pub news_signal: u64,
    pub vertices: u64,
    pub span: u64,
    pub source: u64,
    pub claim_turn: u64,
    pub turn: u64,
    pub list_limit: u64,
    pub level: u32,
    pub skip: u32,
    pub resume: u32,
    pub reserved: [u32; 3],
}
kernel_parameters!(Parameters, 240);

/// `wb_partition_report` of `kernels/graph/exchange.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Report {
    /// Sums over all PEs, as a search of one PE has them.
    pub sum: [u64; 6],
    /// Bytes that all PEs put.
    pub put_bytes: u64,
    /// Items in this PE's next queue.
    pub own_items: u64,
    failed: u64,
    reserved: [u64; 7],
}
const _: () = assert!(size_of::<Report>() == 128);

/// The sum that counts edges which lead nowhere.
const BAD_EDGES: usize = 5;

/// Kernels whose blocks must all be resident: the ones with the most registers.
const LARGEST_KERNELS: [&str; 2] = ["wb_partition_top_down", "wb_partition_bottom_up"];

/// Launches steps, one after another, and reads what each reports.
#[derive(Debug)]
pub(super) struct Steps<'g> {
    engine: &'g Engine,
    world: &'g World,
    grid: Grid,
    limit: Duration,
    tally: Region,
    report: Region,
    /// Exchanges so far. They go on from search to search: signals are never cleared.
    turn: u64,
    claim_turn: u64,
}

impl<'g> Steps<'g> {
    /// Collective. `edges` is the part of a kernel's name that says where the edges are.
    pub(super) fn new(world: &'g World, graph: &'g GraphOnEngine, edges: &str) -> Result<Self, GraphError> {
        let engine = &graph.engine;
        Ok(Self {
            engine,
            world,
            grid: resident_grid(world, engine, edges, graph.id_suffix())?,
            limit: graph.launch_limit,
            tally: engine.allocate(Place::Device, 64)?,
            report: engine.allocate(Place::Host, size_of::<Report>())?,
            turn: 0,
            claim_turn: 0,
        })
    }

    /// What every step of a search has in common.
    pub(super) fn parameters(&self, whole: &Whole, own: &Own, shared: &Shared, source: u64) -> Parameters {
        Parameters {
            seen: own.seen.address(),
            fresh: own.fresh.address(),
            outbox: own.outbox.address(),
            outbox_count: own.outbox_count.address(),
            list: own.list.address(),
            tally: self.tally.address(),
            counters: own.counters.address(),
            report: self.report.address(),
            depth: shared.depth.address(),
            parent: if shared.parent.is_empty() { 0 } else { shared.parent.address() },
            inbox: shared.inbox.address(),
            inbox_signal: shared.inbox_signal.address(),
            news: shared.news.address(),
            header: shared.header.address(),
            news_signal: shared.news_signal.address(),
            vertices: whole.vertices_of(self.world.my_pe()),
            span: whole.span,
            source,
            ..Parameters::zeroed()
        }
    }

    /// One step; `args` follow the parameters and the world. `claims` when PEs hand vertices over in it.
    ///
    /// # Safety
    /// The step is one of `kernels/graph/partition`, and the memory that the parameters name lives until this returns.
    pub(super) unsafe fn step(
        &mut self,
        kernel: &str,
        p: Parameters,
        claims: bool,
        edges: Option<impl crate::engine::KernelArg>,
    ) -> Result<Report, GraphError> {
        self.turn += 1;
        self.claim_turn += u64::from(claims);
        let p = Parameters { turn: self.turn, claim_turn: self.claim_turn, ..p };
        let mut args = Args::new().with(p).with(self.world);
        if let Some(edges) = edges {
            args = args.with(edges);
        }
        // SAFETY: the caller's promise.
        let run = unsafe { self.engine.launch(kernel, self.grid, args) }?;
        run.finish_within(self.limit)?;
        let report: Report = self.report.get(0)?;
        match (report.failed, report.sum[BAD_EDGES]) {
            (0, 0) => Ok(report),
            (0, edges) => Err(GraphError::Corrupt { edges }),
            (failed, _) => Err(GraphError::OtherPe { pe: failed as usize - 1 }),
        }
    }
}

/// A grid whose blocks are all resident, also beside those of other PEs on the same GPU. Collective.
fn resident_grid(world: &World, engine: &Engine, edges: &str, ids: &str) -> Result<Grid, GraphError> {
    let mut fit = BLOCKS_PER_PROCESSOR;
    for kernel in LARGEST_KERNELS {
        fit = fit.min(engine.occupancy(&format!("{kernel}_{edges}_{ids}"), BLOCK_THREADS)?);
    }
    let mut grid = engine.grid(BLOCK_THREADS, fit.max(1));
    grid.blocks = (grid.blocks / world.gpu_sharers()? as u32).max(1);
    Ok(grid)
}

/// Identifiers beyond which a bitmap is sent instead of a list: as many as take an eighth of the bitmap's bytes. A list's bits are
/// set one by one, so it has to be much shorter to cost less.
pub(super) fn list_limit(whole: &Whole) -> u64 {
    longest_list(whole) / 8
}

/// Identifiers that fit where a bitmap does.
pub(super) fn longest_list(whole: &Whole) -> u64 {
    (part_words(whole) * size_of::<u32>() / whole.id_bytes()) as u64
}
