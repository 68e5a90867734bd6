//! Strongly connected components: from a pivot first, then by colours.

use super::edges::{EdgeStore, GraphError, GraphOnEngine, Lists};
use super::launch::{Launcher, QueueOrder};
use super::params::{
    GraphReport as Report, STRONG_FOUND as FOUND, STRONG_ITEMS as ITEMS, STRONG_SCANNED as SCANNED,
    Strong as Parameters,
};
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use std::time::{Duration, Instant};

/// Memory of a run, beside the labels.
#[derive(Debug)]
pub(super) struct Strong {
    group: Region,
    colour: Region,
    stamp: Region,
    marks: [Region; 2],
    queue: [Region; 2],
    order: QueueOrder,
}

/// One direction of a run: its lists, their edges, and the kernel that walks them.
#[derive(Clone, Copy)]
struct Walk<'a> {
    lists: &'a Lists,
    edges: &'a EdgeStore,
    kernel: &'static str,
}

/// A run, until all vertices have a component.
struct Run<'a> {
    memory: &'a Strong,
    graph: &'a GraphOnEngine,
    launcher: &'a Launcher,
    spread: Walk<'a>,
    gather: Walk<'a>,
    /// Number of steps that have spread colours.
    steps: u32,
    /// Vertices without a component.
    open: u64,
}

impl Strong {
    /// Allocates the memory of runs over a directed graph.
    pub(super) fn new(graph: &GraphOnEngine) -> Result<Self, GraphError> {
        let vertices = graph.vertices as usize;
        let device = |bytes: usize| graph.engine.allocate(Place::Device, bytes);
        let ids = || device(vertices * graph.id_bytes());
        let bitmap = || device(vertices.div_ceil(32) * size_of::<u32>());
        let queue = || device(graph.queue_items() * 2 * graph.id_bytes());
        Ok(Self {
            group: ids()?,
            colour: ids()?,
            stamp: device(vertices * size_of::<u32>())?,
            marks: [bitmap()?, bitmap()?],
            queue: [queue()?, queue()?],
            order: QueueOrder::new(graph, edges(&graph.out, "neighbour lists")?)?,
        })
    }

    /// Labels every vertex of a directed graph with the smallest vertex of its component. Calls `phase` for each phase
    /// with its name, the number of edges read, that of vertices without a component, and the time. Returns the number of
    /// components.
    pub(super) fn label(
        &self,
        graph: &GraphOnEngine,
        launcher: &Launcher,
        label: &VertexValues,
        mut phase: impl FnMut(&'static str, u64, u64, Duration),
    ) -> Result<u64, GraphError> {
        if graph.vertices == 0 {
            return Ok(0);
        }
        let Some(inward) = &graph.inward else { return Err(missing("in-neighbour lists")) };
        let out = &graph.out;
        self.order.reset()?;
        let vertex_bits = u64::BITS - graph.vertices.leading_zeros();
        let p = Parameters {
            offset: out.offset.address(),
            in_offset: inward.offset.address(),
            root: label.address(),
            group: self.group.address(),
            colour: self.colour.address(),
            stamp: self.stamp.address(),
            leaves: self.marks[0].address(),
            entered: self.marks[1].address(),
            queue: 0,
            queue_next: 0,
            items: 0,
            sums: launcher.sums_address(),
            report: launcher.report_address(),
            vertices: graph.vertices,
            pivot: graph.vertices,
            vertex_bits,
            round: 0,
            seed: 0,
            marks: 0,
        };
        let spread = Walk { lists: out, edges: edges(out, "neighbour lists")?, kernel: "spread" };
        let gather = Walk { lists: inward, edges: edges(inward, "in-neighbour lists")?, kernel: "gather" };
        let mut run = Run { memory: self, graph, launcher, spread, gather, steps: 0, open: graph.vertices };

        let started = Instant::now();
        let report = run.step("start", p)?;
        run.open -= report.sum[FOUND];
        phase("degrees", 0, run.open, started.elapsed());

        // Without such a vertex, all have their component.
        if report.least != u64::MAX {
            let started = Instant::now();
            let pivot = report.least & ((1 << vertex_bits) - 1);
            let scanned = run.round(Parameters { pivot, ..p })?;
            phase("pivot", scanned, run.open, started.elapsed());
        }
        for seed in 0.. {
            if run.open == 0 {
                break;
            }
            let started = Instant::now();
            let scanned = run.round(Parameters { seed, marks: 1, ..p })?;
            phase("colours", scanned, run.open, started.elapsed());
        }
        run.run("clear", p)?;
        run.run("least", p)?;
        Ok(run.step("label", p)?.sum[FOUND])
    }
}

impl Run<'_> {
    /// Spreads colours, and finds the components of the roots. Returns the number of edges read.
    fn round(&mut self, p: Parameters) -> Result<u64, GraphError> {
        let queue = [self.memory.queue[0].address(), self.memory.queue[1].address()];
        let begun = self.step("begin", Parameters { queue_next: queue[0], ..p })?;
        let (spread_scanned, now) = self.walk(self.spread, p, begun.sum[ITEMS], 0)?;
        let in_offset = self.gather.lists.offset.address();
        let p = Parameters { offset: in_offset, ..p };
        let roots = self.step("roots", Parameters { queue_next: queue[now], ..p })?;
        self.open -= roots.sum[FOUND];
        let (gather_scanned, _) = self.walk(self.gather, p, roots.sum[ITEMS], now)?;
        Ok(spread_scanned + gather_scanned)
    }

    /// Walks along the edges of a queue's vertices, then of those that were queued meanwhile, until there are none.
    /// Returns the number of edges read, and the queue that is free.
    fn walk(
        &mut self,
        walk: Walk<'_>,
        mut p: Parameters,
        mut items: u64,
        mut now: usize,
    ) -> Result<(u64, usize), GraphError> {
        let queue = [self.memory.queue[0].address(), self.memory.queue[1].address()];
        let ids = self.graph.id_suffix();
        let kernel = format!("wb_strong_{}_{}_{ids}", walk.kernel, walk.edges.source());
        let mut scanned = 0;
        while items > 0 {
            // The first queue of a round is in order.
            if p.marks == 0 {
                let pair = [queue[now], queue[1 - now]];
                if self.memory.order.apply(self.launcher, ids, &walk.lists.offset, pair, items)? {
                    now = 1 - now;
                }
            }
            (p.queue, p.queue_next, p.items, p.round) = (queue[now], queue[1 - now], items, self.steps);
            // SAFETY: these are the parameters of this kernel. The regions that they name belong to `memory` and to the
            // caller.
            let report = unsafe { self.launcher.step(&kernel, args!(p, walk.edges)) }?;
            scanned += report.sum[SCANNED];
            self.open -= report.sum[FOUND];
            items = report.sum[ITEMS];
            now = 1 - now;
            self.steps = self.steps.wrapping_add(1);
            p.marks = 0;
        }
        Ok((scanned, now))
    }

    fn step(&self, what: &str, p: Parameters) -> Result<Report, GraphError> {
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `memory` and to the
        // caller.
        unsafe { self.launcher.step(&format!("wb_strong_{what}_{}", self.graph.id_suffix()), args!(p)) }
    }

    /// Runs a kernel that reports nothing.
    fn run(&self, what: &str, p: Parameters) -> Result<(), GraphError> {
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `memory` and to the
        // caller.
        unsafe { self.launcher.run(&format!("wb_strong_{what}_{}", self.graph.id_suffix()), args!(p)) }?;
        Ok(())
    }
}

fn edges<'a>(lists: &'a Lists, what: &'static str) -> Result<&'a EdgeStore, GraphError> {
    lists.edges.as_ref().ok_or_else(|| missing(what))
}

fn missing(missing: &'static str) -> GraphError {
    GraphError::NotPlaced { missing, algorithm: "strongly connected components" }
}
