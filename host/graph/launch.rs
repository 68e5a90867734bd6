//! Launches the kernels of an algorithm, and reads their reports.

use super::edges::{EdgeStore, GraphError, GraphOnEngine};
use super::params::{
    self, GRAPH_BAD_EDGES, GRAPH_BLOCK_THREADS, GRAPH_BLOCKS_PER_PROCESSOR, GRAPH_PIECE_EDGES, GRAPH_SUMS,
    GraphCounters, GraphReport as Report, QueueOrder as OrderParameters,
};
use crate::args;
use crate::engine::{Args, Engine, Grid};
use crate::memory::{Place, Region};
use std::time::Duration;

crate::engine::plain!(
    params::Bfs,
    params::Components,
    params::MultiBfs,
    params::Pagerank,
    params::Partition,
    params::QueueOrder,
    params::Sssp
);

impl Report {
    /// Returns a sum of real numbers.
    pub(super) fn real(&self, which: usize) -> f64 {
        f64::from_bits(self.sum[which])
    }
}

/// Launcher of one algorithm's kernels, which run one after another and report their sums.
#[derive(Debug)]
pub(super) struct Launcher {
    engine: Engine,
    grid: Grid,
    limit: Duration,
    sums: Region,
    report: Region,
}

impl Launcher {
    /// Prepares the kernels whose names begin with `prefix`, so that the first step takes no longer than later ones.
    pub(super) fn new(graph: &GraphOnEngine, prefix: &str) -> Result<Self, GraphError> {
        graph.engine.prepare(prefix)?;
        let sums = graph.engine.allocate(Place::Device, size_of::<GraphCounters>())?;
        let report = graph.engine.allocate(Place::Host, size_of::<Report>())?;
        let this = Self {
            engine: graph.engine.clone(),
            grid: graph.engine.grid(GRAPH_BLOCK_THREADS, GRAPH_BLOCKS_PER_PROCESSOR),
            limit: graph.launch_limit,
            sums,
            report,
        };
        this.reset()?;
        Ok(this)
    }

    /// Clears the counters, which a failed run may have left in any state.
    pub(super) fn reset(&self) -> Result<(), GraphError> {
        Ok(self.sums.set(0, GraphCounters { sum: [0; GRAPH_SUMS], least: u64::MAX, blocks_done: 0, reserved: 0 })?)
    }

    pub(super) fn sums_address(&self) -> u64 {
        self.sums.address()
    }

    pub(super) fn report_address(&self) -> u64 {
        self.report.address()
    }

    /// Runs a kernel to its end, and returns the time that it took.
    ///
    /// # Safety
    /// `args` must be those that this kernel of `kernels/graph` takes. The memory that they name must live until this
    /// returns. It must be in regions, since a region is never freed while a kernel that does not end may use it.
    pub(super) unsafe fn run(&self, kernel: &str, args: Args) -> Result<Duration, GraphError> {
        // SAFETY: the caller makes the same promise.
        let run = unsafe { self.engine.launch(kernel, self.grid, args) }?;
        Ok(run.finish_within(self.limit)?.elapsed)
    }

    /// Runs a kernel that reports its sums.
    ///
    /// # Safety
    /// As for [`Launcher::run`].
    pub(super) unsafe fn step(&self, kernel: &str, args: Args) -> Result<Report, GraphError> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.run(kernel, args) }?;
        let report: Report = self.report.get(0)?;
        match report.sum[GRAPH_BAD_EDGES] {
            0 => Ok(report),
            edges => Err(GraphError::Corrupt { edges }),
        }
    }
}

/// Sorts queues by vertex, where that avoids reading pages twice.
#[derive(Debug)]
pub(super) struct QueueOrder {
    /// A bit for each vertex, all 0 between uses, or `None` where edges are in memory.
    bitmap: Option<Region>,
    vertices: u64,
    /// Number of items below which they seldom share pages.
    least_items: u64,
}

/// Number of pages of edges per queue item above which the order has no effect.
const PAGES_PER_ITEM: u64 = 8;

impl QueueOrder {
    pub(super) fn new(graph: &GraphOnEngine, edges: &EdgeStore) -> Result<Self, GraphError> {
        let words = (graph.vertices as usize).div_ceil(32);
        let bitmap = match edges {
            EdgeStore::Memory(_) => None,
            _ => Some(graph.engine.allocate(Place::Device, words * size_of::<u32>())?),
        };
        Ok(Self { bitmap, vertices: graph.vertices, least_items: graph.arcs / GRAPH_PIECE_EDGES / PAGES_PER_ITEM })
    }

    /// Clears the bitmap, which a failed run may have left in any state.
    pub(super) fn reset(&self) -> Result<(), GraphError> {
        match &self.bitmap {
            Some(bitmap) => Ok(bitmap.fill(0, bitmap.len(), 0)?),
            None => Ok(()),
        }
    }

    /// Copies a queue to `queue_next` in sorted order, if that saves reads. Returns true if it did. `ids` ends the
    /// kernels' names.
    pub(super) fn apply(
        &self,
        launcher: &Launcher,
        ids: &str,
        offset: &Region,
        [queue, queue_next]: [u64; 2],
        items: u64,
    ) -> Result<bool, GraphError> {
        let Some(bitmap) = self.bitmap.as_ref().filter(|_| items > self.least_items) else { return Ok(false) };
        let p = OrderParameters {
            offset: offset.address(),
            queue,
            queue_next,
            bitmap: bitmap.address(),
            items,
            vertices: self.vertices,
            sums: launcher.sums_address(),
            report: launcher.report_address(),
        };
        // SAFETY: these are the parameters of `kernels/graph/queue.cu`. The regions belong to the caller and to `self`.
        unsafe {
            launcher.run(&format!("wb_queue_mark_{ids}"), args!(p))?;
            launcher.step(&format!("wb_queue_collect_{ids}"), args!(p))?;
        }
        Ok(true)
    }
}
