//! Launches the steps of a partitioned search, and reads the report of all PEs.

use super::memory::{PeMemory, Shared, part_words};
use super::plan::Whole;
use crate::engine::{Args, Engine, Grid};
use crate::graph::edges::{GraphError, GraphOnEngine};
use crate::graph::mirrors::resident_grid;
use crate::graph::params::{GRAPH_BAD_EDGES, GraphCounters, Partition as Parameters, PartitionReport as Report};
use crate::memory::{Place, Region};
use crate::shmem::World;
use bytemuck::Zeroable;
use std::time::Duration;

/// Kernels of a search with the most registers, which limit the number of blocks that are resident together.
const LARGEST_KERNELS: [&str; 2] = ["wb_partition_top_down", "wb_partition_bottom_up"];

/// Launcher of steps, which run one after another and report the sums of all PEs.
#[derive(Debug)]
pub(super) struct Launches {
    engine: Engine,
    world: World,
    grid: Grid,
    limit: Duration,
    sums: Region,
    report: Region,
    /// Number of exchanges so far. It continues from search to search, since signals are never cleared.
    turn: u64,
    claim_turn: u64,
}

impl Launches {
    /// Prepares the launches. Collective. `edges` is the part of a kernel's name that tells where the edges are.
    pub(super) fn new(world: &World, graph: &GraphOnEngine, edges: &str) -> Result<Self, GraphError> {
        let engine = &graph.engine;
        Ok(Self {
            engine: engine.clone(),
            world: world.clone(),
            grid: resident_grid(world, engine, &LARGEST_KERNELS.map(|k| format!("{k}_{edges}_{}", graph.id_suffix())))?,
            limit: graph.launch_limit,
            sums: engine.allocate(Place::Device, size_of::<GraphCounters>())?,
            report: engine.allocate(Place::Host, size_of::<Report>())?,
            turn: 0,
            claim_turn: 0,
        })
    }

    /// Returns the parameters that all steps of a search have in common.
    pub(super) fn parameters(&self, whole: &Whole, own: &PeMemory, shared: &Shared, source: u64) -> Parameters {
        Parameters {
            seen: own.seen.address(),
            fresh: own.fresh.address(),
            outbox: own.outbox.address(),
            outbox_count: own.outbox_count.address(),
            list: own.list.address(),
            sums: self.sums.address(),
            counters: own.counters.address(),
            report: self.report.address(),
            depth: shared.depth.address(),
            parent: if shared.parent.is_empty() { 0 } else { shared.parent.address() },
            inbox: shared.inbox.address(),
            inbox_signal: shared.inbox_signal.address(),
            frontier: shared.frontier.address(),
            header: shared.header.address(),
            frontier_signal: shared.frontier_signal.address(),
            vertices: whole.vertices_of(self.world.my_pe()),
            span: whole.span,
            source,
            ..Parameters::zeroed()
        }
    }

    /// Runs one step. `args` follow the parameters and the world. `claims` is true if PEs pass vertices to their owners
    /// in it.
    ///
    /// # Safety
    /// The step must be one of `kernels/graph/partition`, and the memory that the parameters name must live until this
    /// returns.
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
        let mut args = Args::new().with(p).with(&self.world);
        if let Some(edges) = edges {
            args = args.with(edges);
        }
        // SAFETY: the caller makes the same promise.
        let run = unsafe { self.engine.launch(kernel, self.grid, args) }?;
        run.finish_within(self.limit)?;
        let report: Report = self.report.get(0)?;
        match (report.failed, report.sum[GRAPH_BAD_EDGES]) {
            (0, 0) => Ok(report),
            (0, edges) => Err(GraphError::Corrupt { edges }),
            (failed, _) => Err(GraphError::OtherPe { pe: failed as usize - 1 }),
        }
    }
}

/// Returns the number of identifiers above which a bitmap is sent instead of a list: that many take an eighth of the
/// bitmap's bytes. Bits of a list are set one by one, so a list must be much shorter than the bitmap to cost less.
pub(super) fn list_limit(whole: &Whole) -> u64 {
    longest_list(whole) / 8
}

/// Returns the number of identifiers that fit into the space of a bitmap.
pub(super) fn longest_list(whole: &Whole) -> u64 {
    (part_words(whole) * size_of::<u32>() / whole.id_bytes()) as u64
}
