//! Launches the kernels of an algorithm, and reads their reports.

use super::edges::{EdgeStore, GraphError, GraphOnEngine};
use super::mirrors::{Claims, Mirrors, Union};
use super::params::{
    self, GRAPH_BAD_EDGES, GRAPH_BLOCK_THREADS, GRAPH_BLOCKS_PER_PROCESSOR, GRAPH_PIECE_EDGES, GRAPH_SUMS,
    GraphCounters, GraphReport as Report, Order as OutsideParameters, QueueOrder as OrderParameters,
};
use super::vertex_values::VertexValues;
use crate::args;
use crate::engine::{Args, Engine, Grid};
use crate::memory::{Place, Region};
use crate::storage::ElementType;
use bytemuck::Zeroable;
use std::time::Duration;

crate::engine::plain!(
    params::Betweenness,
    params::Bfs,
    params::Cdlp,
    params::Clustering,
    params::Components,
    params::Mirrors,
    params::MultiBfs,
    params::Near,
    params::NearCopy,
    params::Order,
    params::Core,
    params::Pagerank,
    params::Partition,
    params::QueueOrder,
    params::Sssp,
    params::Strong,
    params::Triangles
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
    /// Exchange with the other PEs of a distributed graph.
    mirrors: Option<Mirrors>,
}

/// Values of all vertices. Steps send those of own vertices to the other PEs of a distributed graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    /// Memory of the values.
    pub region: &'a Region,
    /// Bytes of a value: 4 or 8.
    pub bytes: usize,
}

impl Launcher {
    /// Prepares the kernels whose names begin with `prefix`, so that the first step takes no longer than later ones.
    /// `algorithm` runs on one PE.
    pub(super) fn new(graph: &GraphOnEngine, prefix: &str, algorithm: &'static str) -> Result<Self, GraphError> {
        if graph.is_distributed() {
            return Err(GraphError::Distributed { algorithm });
        }
        Self::across(graph, prefix)
    }

    /// Prepares the kernels of an algorithm that may run on several PEs. Collective for a distributed graph: then every PE
    /// runs the same steps.
    pub(super) fn across(graph: &GraphOnEngine, prefix: &str) -> Result<Self, GraphError> {
        graph.engine.prepare(prefix)?;
        if graph.order.is_some() {
            graph.engine.prepare("wb_order_")?;
        }
        let sums = graph.engine.allocate(Place::Device, size_of::<GraphCounters>())?;
        let report = graph.engine.allocate(Place::Host, size_of::<Report>())?;
        let this = Self {
            engine: graph.engine.clone(),
            grid: graph.engine.grid(GRAPH_BLOCK_THREADS, GRAPH_BLOCKS_PER_PROCESSOR),
            limit: graph.launch_limit,
            sums,
            report,
            mirrors: Mirrors::new(graph)?,
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

    /// Returns the number of blocks of a launch.
    pub(super) fn blocks(&self) -> usize {
        self.grid.blocks as usize
    }

    /// Returns the number of warps of a launch.
    pub(super) fn warps(&self) -> usize {
        self.grid.blocks as usize * (self.grid.threads / self.engine.warp_width()) as usize
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
        self.told(unsafe { self.launch(kernel, args) })
    }

    /// Runs a kernel that reports its sums. Returns those of all PEs. Collective for a distributed graph.
    ///
    /// # Safety
    /// As for [`Launcher::run`].
    pub(super) unsafe fn step(&self, kernel: &str, args: Args) -> Result<Report, GraphError> {
        // SAFETY: the caller makes the same promise.
        let own = unsafe { self.step_here(kernel, args) }?;
        self.end(own, 0, None)
    }

    /// Runs a kernel that reports its sums. Returns those of this PE.
    ///
    /// # Safety
    /// As for [`Launcher::run`].
    pub(super) unsafe fn step_here(&self, kernel: &str, args: Args) -> Result<Report, GraphError> {
        // SAFETY: the caller makes the same promise.
        let own = unsafe { self.launch(kernel, args) }.and_then(|_| Ok(self.report.get::<Report>(0)?));
        self.told(own.and_then(|report| match report.sum[GRAPH_BAD_EDGES] {
            0 => Ok(report),
            edges => Err(GraphError::Corrupt { edges }),
        }))
    }

    unsafe fn launch(&self, kernel: &str, args: Args) -> Result<Duration, GraphError> {
        // SAFETY: the caller makes the same promise.
        let run = unsafe { self.engine.launch(kernel, self.grid, args) }?;
        Ok(run.finish_within(self.limit)?.elapsed)
    }
}

/// Exchanges between the PEs of a distributed graph, in which all take part. One PE has nothing to exchange.
impl Launcher {
    /// Adds up the sums of a step on all PEs. Those in the bitmap `reals` are doubles. All PEs then have the values that each of
    /// them computed for its own vertices.
    pub(super) fn end(&self, own: Report, reals: u64, values: Option<Values<'_>>) -> Result<Report, GraphError> {
        match &self.mirrors {
            Some(mirrors) => mirrors.end(&own, reals, values.map(|v| (v.region, v.bytes))),
            None => Ok(own),
        }
    }

    /// Sends the values of own vertices to all PEs.
    pub(super) fn share(&self, values: Values<'_>) -> Result<(), GraphError> {
        self.end(Report { least: u64::MAX, ..Report::zeroed() }, 0, Some(values)).map(drop)
    }

    /// Returns the least of the values of all PEs.
    pub(super) fn least(&self, value: u64) -> Result<u64, GraphError> {
        Ok(self.end(Report { least: value, ..Report::zeroed() }, 0, None)?.least)
    }

    /// Makes what all PEs have found together known on each. Returns false if there is only this PE.
    pub(super) fn unite(&self, union: Union, values: Values<'_>) -> Result<bool, GraphError> {
        let Some(mirrors) = &self.mirrors else { return Ok(false) };
        mirrors.unite(union, (values.region, values.bytes))?;
        Ok(true)
    }

    /// Adds up the counts of each vertex on the PE that has its lists.
    pub(super) fn add_up(&self, counts: &Region) -> Result<(), GraphError> {
        self.mirrors.as_ref().map_or(Ok(()), |mirrors| mirrors.add_up(counts))
    }

    /// Returns the exchange with the other PEs, or `None` if there is only this PE.
    pub(super) fn mirrors(&self) -> Option<&Mirrors> {
        self.mirrors.as_ref()
    }

    /// Allocates the memory of claims, for an algorithm whose kernel of claims has this name; `None` if there is only this PE.
    pub(super) fn claims(&self, kernel: &str, id_bytes: usize) -> Result<Option<Claims>, GraphError> {
        self.mirrors.as_ref().map(|mirrors| mirrors.claims(kernel, id_bytes)).transpose()
    }

    /// Returns the parameters of the next step that claims vertices.
    pub(super) fn next_claims(&self, claims: Option<&Claims>) -> params::Claims {
        match (&self.mirrors, claims) {
            (Some(mirrors), Some(claims)) => mirrors.next_claims(claims),
            _ => params::Claims::zeroed(),
        }
    }

    /// Runs a kernel by which PEs take claims and report sums. Returns those of this PE. [`Launcher::end`] must follow.
    ///
    /// # Safety
    /// As for [`Launcher::run`].
    pub(super) unsafe fn exchange_claims(
        &self,
        claims: &Claims,
        kernel: &str,
        args: Args,
    ) -> Result<Report, GraphError> {
        let Some(mirrors) = &self.mirrors else { return Ok(Report { least: u64::MAX, ..Report::zeroed() }) };
        // SAFETY: the caller makes the same promise.
        unsafe { mirrors.exchange_claims(claims, kernel, args) }?;
        Ok(self.report.get(0)?)
    }

    /// Tells the other PEs if a kernel has failed.
    fn told<T>(&self, own: Result<T, GraphError>) -> Result<T, GraphError> {
        if let (Err(_), Some(mirrors)) = (&own, &self.mirrors) {
            mirrors.fail();
        }
        own
    }
}

/// Meaning of the values of vertices, for graphs whose lists are in an order of their own.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueKind<'a> {
    /// Numbers that name no vertex.
    Plain,
    /// Vertices, or the largest identifier.
    Ids,
    /// A vertex of the same set for all vertices of a set, which becomes the least of the set: `least` is memory for
    /// `u32[vertices]`.
    Labels { least: &'a Region },
}

impl Launcher {
    /// Brings the values of an algorithm into the order in which programs see vertices, if lists are in another one. An
    /// algorithm calls this at its end.
    pub(super) fn bring_outside(
        &self,
        graph: &GraphOnEngine,
        values: &VertexValues,
        kind: ValueKind<'_>,
    ) -> Result<(), GraphError> {
        let (Some(order), Some(to)) = (&graph.order, values.outside_address()) else { return Ok(()) };
        let mut p = OutsideParameters {
            outside: order.outside.address(),
            from: values.address(),
            to,
            least: 0,
            vertices: graph.vertices,
        };
        let wide = values.element_type() != ElementType::U32;
        let kernel = match kind {
            ValueKind::Plain if wide => "wb_order_values_u64",
            ValueKind::Plain => "wb_order_values_u32",
            ValueKind::Ids if wide => "wb_order_ids_u64",
            ValueKind::Ids => "wb_order_ids_u32",
            ValueKind::Labels { .. } => "wb_order_labels",
        };
        if let ValueKind::Labels { least } = kind {
            least.fill(0, least.len(), 0xff)?;
            p.least = least.address();
            // SAFETY: these are the parameters of this kernel. The regions that they name belong to the graph or are
            // borrowed, and this function waits for the kernel.
            unsafe { self.run("wb_order_least", args!(p)) }?;
        }
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to the graph or are borrowed,
        // and this function waits for the kernel.
        unsafe { self.run(kernel, args!(p)) }?;
        Ok(())
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
            EdgeStore::Memory(_) | EdgeStore::PackedMemory { .. } => None,
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
            launcher.step_here(&format!("wb_queue_collect_{ids}"), args!(p))?;
        }
        Ok(true)
    }
}
