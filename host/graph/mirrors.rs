//! Exchange between the PEs of a graph whose lists are distributed: each PE computes the values of its own vertices, and has
//! copies of all others (`kernels/graph/mirrors.cu`).

use super::edges::{GraphError, GraphOnEngine};
use super::params::{
    Claims as ClaimParameters, GRAPH_BLOCK_THREADS, GRAPH_BLOCKS_PER_PROCESSOR, GraphReport as Report,
    Mirrors as Parameters, MirrorsCounters as Counters, MirrorsHeader as Header,
};
use super::pe_order::rank;
use crate::engine::{Args, Engine, Grid};
use crate::memory::{Place, Region};
use crate::shmem::{Sym, World};
use bytemuck::Zeroable;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Words of 4 bytes of the widest values that are exchanged.
const WIDEST_WORDS: usize = size_of::<u64>() / size_of::<u32>();
/// Bytes of a claim: a vertex and a value.
const CLAIM_BYTES: usize = 2 * size_of::<u64>();
/// Kernels of exchanges.
const KERNELS: [&str; 5] =
    ["wb_mirrors_values", "wb_mirrors_trees", "wb_mirrors_least_u32", "wb_mirrors_least_u64", "wb_mirrors_sums_u64"];
/// Areas and headers, which are used in turn.
const TURNS: usize = 2;

/// Returns the bytes of symmetric heap that exchanges of the values of `vertices` vertices need on each PE.
pub(super) fn heap_bytes(vertices: usize, pes: usize) -> usize {
    let signals = 2 * pes * size_of::<u64>();
    let claims = pes * capacity(vertices, pes) * CLAIM_BYTES;
    TURNS * (area_words(vertices, pes) * size_of::<u32>() + pes * size_of::<Header>()) + claims + signals
}

/// Returns the words of an area, which has room for a value of each vertex, and for as many of one PE's from each PE.
fn area_words(vertices: usize, pes: usize) -> usize {
    pes * capacity(vertices, pes) * WIDEST_WORDS
}

/// Kind of a union of what all PEs have found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Union {
    /// Trees of 4-byte vertices: the value of a vertex is the one above it, or the vertex itself.
    Trees,
    /// The least value of each vertex.
    Least,
}

/// Memory of claims: vertices that a PE hands over to those that have their lists, with a value each.
#[derive(Debug)]
pub(super) struct Claims {
    grid: Grid,
    outbox: Region,
    count: Region,
    packed: Region,
    inbox: Sym<u64>,
    signal: Sym<u64>,
    /// Most vertices of a PE.
    capacity: u64,
    /// Number of exchanges so far.
    turn: AtomicU64,
}

impl Claims {
    /// Clears the counts, which a failed run may have left in any state.
    pub(super) fn reset(&self) -> Result<(), GraphError> {
        Ok(self.count.fill(0, self.count.len(), 0)?)
    }
}

/// Returns the most vertices that a PE has.
fn capacity(vertices: usize, pes: usize) -> usize {
    vertices.div_ceil(pes)
}

/// Memory and kernels of exchanges. Every PE makes the same calls.
#[derive(Debug)]
pub(super) struct Mirrors {
    engine: Engine,
    world: World,
    grid: Grid,
    /// True if any two PEs of the world run on one GPU. All PEs have the same value, since all come to the barrier.
    shares_gpus: bool,
    limit: Duration,
    /// First vertex of each PE, and the number of vertices.
    firsts: Arc<[u64]>,
    /// Copy of `firsts` on the device.
    first: Region,
    area: Sym<u32>,
    header: Sym<u64>,
    signal: Sym<u64>,
    counters: Region,
    report: Region,
    /// Number of exchanges so far. It continues from run to run, since signals are never cleared.
    turn: AtomicU64,
    /// True if an exchange has failed, so that the PEs' numbers of exchanges may differ.
    failed: AtomicBool,
}

impl Mirrors {
    /// Allocates the memory of exchanges, or nothing unless the graph is distributed over several PEs. Collective.
    pub(super) fn new(graph: &GraphOnEngine) -> Result<Option<Self>, GraphError> {
        let Some(distribution) = graph.distribution.as_ref().filter(|d| d.world.n_pes() > 1) else { return Ok(None) };
        let (engine, world) = (&graph.engine, &distribution.world);
        let pes = world.n_pes();
        engine.prepare("wb_mirrors_")?;
        let headers = TURNS * pes * size_of::<Header>() / size_of::<u64>();
        let first = engine.allocate(Place::Device, size_of_val(&distribution.firsts[..]))?;
        first.set_slice(0, &distribution.firsts)?;
        Ok(Some(Self {
            engine: engine.clone(),
            world: world.clone(),
            grid: resident_grid(world, engine, &KERNELS)?,
            shares_gpus: world.shares_gpus()?,
            limit: graph.launch_limit,
            firsts: distribution.firsts.clone(),
            first,
            area: world.malloc(TURNS * area_words(graph.vertices as usize, pes))?,
            header: world.malloc(headers)?,
            signal: world.malloc(pes)?,
            counters: engine.allocate(Place::Device, size_of::<Counters>())?,
            report: engine.allocate(Place::Host, size_of::<Report>())?,
            turn: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }))
    }

    /// Ends a step that every PE has done: adds up its sums, of which those in the bitmap `reals` are doubles, and sends the
    /// values of own vertices to all PEs. `values` are their memory and the bytes of a value, 4 or 8.
    ///
    /// # Errors
    /// [`GraphError::OtherPe`] if the step failed on another PE; [`GraphError::Shmem`] if a PE did not come to a barrier;
    /// [`GraphError::OutOfStep`] after an exchange that failed.
    pub(super) fn end(
        &self,
        step: &Report,
        reals: u64,
        values: Option<(&Region, usize)>,
    ) -> Result<Report, GraphError> {
        let range = values.map_or(0..0, |(region, bytes)| words(region, self.own(), bytes));
        let p = Parameters {
            values: values.map_or(0, |(region, _)| region.address()),
            receiver: self.world.n_pes() as u64,
            reals,
            own: Header {
                sum: step.sum,
                least: step.least,
                first: range.start,
                words: range.end - range.start,
                ..Header::zeroed()
            },
            ..Parameters::zeroed()
        };
        // SAFETY: these are the parameters of this kernel. The values are borrowed, and all PEs send those of their own vertices.
        unsafe { self.exchange("wb_mirrors_values", p) }
    }

    /// Tells the other PEs that this PE's step has failed. They get [`GraphError::OtherPe`] from the exchange at the end of
    /// the step.
    pub(super) fn fail(&self) {
        let p = Parameters {
            receiver: self.world.n_pes() as u64,
            own: Header { failed: 1, ..Header::zeroed() },
            ..Parameters::zeroed()
        };
        // SAFETY: these are the parameters of this kernel; it sends no values. The step's own error is what the caller
        // returns.
        let _ = unsafe { self.exchange("wb_mirrors_values", p) };
    }

    /// Makes what all PEs have found together known on each PE. `values` are the memory and the bytes of a value of each
    /// vertex. Each PE passes its own on to the PE 1, 2, 4, ... after itself, with what it has got itself until then.
    ///
    /// # Errors
    /// [`GraphError::OtherPe`] if another PE fails.
    pub(super) fn unite(&self, union: Union, (region, bytes): (&Region, usize)) -> Result<(), GraphError> {
        let kernel = match (union, bytes) {
            (Union::Trees, _) => "wb_mirrors_trees",
            (Union::Least, 4) => "wb_mirrors_least_u32",
            (Union::Least, _) => "wb_mirrors_least_u64",
        };
        let (me, pes) = (self.world.my_pe(), self.world.n_pes());
        let (values, words) = (region.address(), words(region, 0..self.firsts[pes], bytes).end);
        let mut away = 1;
        while away < pes {
            let receiver = ((me + away) % pes) as u64;
            let own = Header { least: u64::MAX, words, ..Header::zeroed() };
            // SAFETY: these are the parameters of this kernel. The values are borrowed until this returns.
            unsafe { self.exchange(kernel, Parameters { values, receiver, own, ..Parameters::zeroed() }) }?;
            away *= 2;
        }
        Ok(())
    }

    /// Returns the first vertex of each PE, and the number of vertices.
    pub(super) fn firsts(&self) -> &[u64] {
        &self.firsts
    }

    /// Returns the place of each vertex in descending order of degree.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let pes = self.world.n_pes();
        let of = |pe: usize| (0..self.firsts[pe + 1] - self.firsts[pe]).map(move |local| rank(pes, pe, local) as u32);
        (0..pes).flat_map(of).collect()
    }

    /// Adds up the counts of each vertex on the PE that has its lists; those of other vertices are then of no use.
    ///
    /// # Errors
    /// [`GraphError::OtherPe`] if another PE fails.
    pub(super) fn add_up(&self, counts: &Region) -> Result<(), GraphError> {
        let own = words(counts, self.own(), size_of::<u64>());
        let own = Header { least: u64::MAX, first: own.start, words: own.end - own.start, ..Header::zeroed() };
        let p = Parameters { values: counts.address(), own, ..Parameters::zeroed() };
        // SAFETY: these are the parameters of this kernel. The counts are borrowed, one of 8 bytes for each vertex.
        unsafe { self.exchange("wb_mirrors_sums_u64", p) }.map(drop)
    }

    /// Returns the most words that [`Mirrors::send`] sends.
    pub(super) fn message_words(&self) -> usize {
        self.area.len() / TURNS
    }

    /// Sends the first `count` words of `data`, which are at most [`Mirrors::message_words`], to all other PEs. One PE sends; the
    /// others pass 0, and get the words in `data`.
    ///
    /// # Errors
    /// [`GraphError::OtherPe`] if another PE fails.
    pub(super) fn send(&self, data: &Region, count: usize) -> Result<(), GraphError> {
        let p = Parameters {
            values: data.address(),
            receiver: self.world.n_pes() as u64,
            own: Header { least: u64::MAX, words: count as u64, ..Header::zeroed() },
            ..Parameters::zeroed()
        };
        // SAFETY: these are the parameters of this kernel. The data is borrowed, and has as many words as a message.
        unsafe { self.exchange("wb_mirrors_values", p) }.map(drop)
    }

    /// Allocates the memory of claims, for an algorithm whose kernel of claims has this name. Collective.
    pub(super) fn claims(&self, kernel: &str, id_bytes: usize) -> Result<Claims, GraphError> {
        let (engine, pes) = (&self.engine, self.world.n_pes());
        let device = |bytes: usize| engine.allocate(Place::Device, bytes);
        let vertices = self.firsts[pes] as usize;
        let capacity = capacity(vertices, pes);
        let claims = Claims {
            grid: resident_grid(&self.world, engine, &[kernel])?,
            outbox: device(vertices * id_bytes)?,
            count: device(pes * size_of::<u64>())?,
            packed: device(vertices * CLAIM_BYTES)?,
            inbox: self.world.malloc(pes * capacity * CLAIM_BYTES / size_of::<u64>())?,
            signal: self.world.malloc(pes)?,
            capacity: capacity as u64,
            turn: AtomicU64::new(0),
        };
        claims.reset()?;
        Ok(claims)
    }

    /// Returns the parameters of the next step that claims, and of the exchange after it.
    pub(super) fn next_claims(&self, claims: &Claims) -> ClaimParameters {
        ClaimParameters {
            first: self.first.address(),
            outbox: claims.outbox.address(),
            count: claims.count.address(),
            packed: claims.packed.address(),
            counters: self.counters.address(),
            inbox: claims.inbox.address(),
            signal: claims.signal.address(),
            capacity: claims.capacity,
            turn: claims.turn.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }

    /// Runs a kernel that exchanges claims. The exchange of its sums must follow.
    ///
    /// # Safety
    /// `args` must be those that this kernel takes before the world. The memory that they name must be in regions, and live
    /// until this returns.
    pub(super) unsafe fn exchange_claims(&self, claims: &Claims, kernel: &str, args: Args) -> Result<(), GraphError> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.launch(kernel, claims.grid, args) }
    }

    /// Runs a kernel that takes the world last.
    ///
    /// # Safety
    /// As for [`Mirrors::exchange`] and [`Mirrors::exchange_claims`].
    unsafe fn launch(&self, kernel: &str, grid: Grid, args: Args) -> Result<(), GraphError> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(GraphError::OutOfStep);
        }
        // The kernel waits for those of the other PEs. Until it ends, no kernel that uses shared memory may start on the
        // multiprocessors: how much of their L1 is shared memory changes only while no block is on them. So if PEs share
        // a GPU, all PEs end their steps before any of them launches this.
        let ready = if self.shares_gpus { self.world.barrier_host() } else { Ok(()) };
        let ended = ready.map_err(GraphError::from).and_then(|()| {
            // SAFETY: the caller makes the same promise.
            let run = unsafe { self.engine.launch(kernel, grid, args.with(&self.world)) }?;
            Ok(run.finish_within(self.limit)?)
        });
        self.failed.store(ended.is_err(), Ordering::Relaxed);
        ended.map(drop)
    }

    fn own(&self) -> Range<u64> {
        let pe = self.world.my_pe();
        self.firsts[pe]..self.firsts[pe + 1]
    }

    /// Runs an exchange.
    ///
    /// # Safety
    /// The kernel must be one of `kernels/graph/mirrors.cu`. The values must live until this returns, in a region or in the
    /// symmetric heap.
    unsafe fn exchange(&self, kernel: &str, p: Parameters) -> Result<Report, GraphError> {
        let p = Parameters {
            counters: self.counters.address(),
            report: self.report.address(),
            first: self.first.address(),
            area: self.area.address(),
            header: self.header.address(),
            signal: self.signal.address(),
            area_words: (self.area.len() / TURNS) as u64,
            turn: self.turn.fetch_add(1, Ordering::Relaxed) + 1,
            ..p
        };
        // SAFETY: the caller makes the same promise, and the other regions belong to `self`.
        unsafe { self.launch(kernel, self.grid, Args::new().with(p)) }?;
        let report: Report = self.report.get(0)?;
        match report.failed {
            0 => Ok(report),
            pe => Err(GraphError::OtherPe { pe: pe as usize - 1 }),
        }
    }
}

/// Returns the range of the words of 4 bytes that the values of some vertices take, as far as the memory goes.
fn words(region: &Region, vertices: Range<u64>, bytes: usize) -> Range<u64> {
    let (most, each) = ((region.len() / size_of::<u32>()) as u64, (bytes / size_of::<u32>()) as u64);
    (vertices.start * each).min(most)..(vertices.end * each).min(most)
}

/// Returns a grid whose blocks are all resident when it runs one of these kernels, also beside those of other PEs on the same
/// GPU. Collective.
pub(super) fn resident_grid(world: &World, engine: &Engine, kernels: &[impl AsRef<str>]) -> Result<Grid, GraphError> {
    let mut fit = GRAPH_BLOCKS_PER_PROCESSOR;
    for kernel in kernels {
        fit = fit.min(engine.occupancy(kernel.as_ref(), GRAPH_BLOCK_THREADS)?);
    }
    let mut grid = engine.grid(GRAPH_BLOCK_THREADS, fit.max(1));
    grid.blocks = (grid.blocks / world.gpu_sharers()? as u32).max(1);
    Ok(grid)
}
