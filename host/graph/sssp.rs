//! Single-source shortest paths: a near queue that is relaxed until it is empty, a far one that waits for its turn.

use super::edges::{GraphError, GraphOnEngine, WeightKind, Weighted};
use super::launch::{Launcher, QueueOrder};
use super::params::{
    GraphReport as Report, SSSP_FAR as FAR, SSSP_LOWERED as LOWERED, SSSP_NEAR as NEAR, SSSP_SCANNED as SCANNED,
    Sssp as Parameters,
};
use crate::args;
use crate::memory::{Place, Region};
use crate::setters::setters;
use crate::storage::Stats;
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// How to search.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SsspOptions {
    /// Width of the range of distances that is relaxed at a time, in units of the weights; `None` chooses.
    pub delta: Option<f64>,
    /// Rounds, at most; 0 is no limit of its own.
    pub rounds: u64,
}

setters!(SsspOptions { delta: Option<f64>, rounds: u64 });

/// Distances from the source.
#[derive(Clone, Debug, PartialEq)]
pub enum Distances {
    /// Of integer weights; `u64::MAX` where a vertex was not reached.
    Integer(Vec<u64>),
    /// Of real weights; infinite where a vertex was not reached.
    Real(Vec<f64>),
}

/// The rounds of one range of distances.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BucketReport {
    /// Distances below this are final.
    pub threshold: f64,
    /// Rounds of relaxing.
    pub rounds: u64,
    /// Items relaxed: vertices, and pieces of long lists.
    pub items: u64,
    /// Edges looked at.
    pub scanned: u64,
    /// Distances lowered.
    pub lowered: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// What a search found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SsspResult {
    /// Distances.
    pub distance: Distances,
    /// Range by range.
    pub buckets: Vec<BucketReport>,
    /// The width of a range.
    pub delta: f64,
    /// Wall-clock time; distances are then in the engine's memory.
    pub elapsed: Duration,
    /// What storage and cache did meanwhile; `None` for edges in memory.
    pub io: Option<Stats>,
}

impl SsspResult {
    /// Edges looked at.
    pub fn scanned(&self) -> u64 {
        self.buckets.iter().map(|b| b.scanned).sum()
    }
}

/// How distances are held: integers in 32 bits where no path can be longer, else in 64; real ones as the bits of a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Narrow,
    Wide,
    Real,
}

impl Word {
    fn bytes(self) -> usize {
        if self == Self::Narrow { 4 } else { 8 }
    }

    /// The threshold `delta` beyond the least distance that waits. It always takes that distance in, however small delta is.
    fn beyond(self, least: u64, delta: f64) -> u64 {
        match self {
            Self::Narrow | Self::Wide => least.saturating_add((delta as u64).max(1)),
            Self::Real => (f64::from_bits(least) + delta).to_bits().max(least + 1),
        }
    }

    fn value(self, word: u64) -> f64 {
        if self == Self::Real { f64::from_bits(word) } else { word as f64 }
    }
}

/// A search with its memory, for any number of sources.
#[derive(Debug)]
pub struct Sssp<'g> {
    graph: &'g GraphOnEngine,
    weighted: &'g Weighted,
    launcher: Launcher<'g>,
    options: SsspOptions,
    delta: f64,
    word: Word,
    /// What kernels' names say of edges and distances.
    edge_suffix: String,
    memory_suffix: String,
    distance: Region,
    stamp: Region,
    in_far: Region,
    near: [Region; 2],
    far: [Region; 2],
    order: QueueOrder,
    ids: &'static str,
}

/// Searches from one source.
pub fn sssp(graph: &GraphOnEngine, source: u64, options: &SsspOptions) -> Result<SsspResult, GraphError> {
    Sssp::new(graph, options)?.run(source)
}

/// Vertices of average degree that a warp's worth of near distances spans (Davidson et al., 3.2: delta is the warp width times
/// the mean weight over the mean degree).
const DELTA_FACTOR: f64 = 32.0;

impl<'g> Sssp<'g> {
    /// Allocates what searches need.
    pub fn new(graph: &'g GraphOnEngine, options: &SsspOptions) -> Result<Self, GraphError> {
        let Some(weighted) = &graph.weighted else {
            return Err(GraphError::NotPlaced { missing: "weighted lists", algorithm: "shortest paths" });
        };
        if let Some(delta) = options.delta
            && !(delta.is_finite() && delta > 0.0)
        {
            return Err(GraphError::Parameter { name: "delta", value: delta, range: "a positive number" });
        }
        let word = match weighted.kind {
            WeightKind::Real => Word::Real,
            WeightKind::Integer { largest } => {
                let longest = u128::from(graph.vertices) * u128::from(largest);
                if longest >= u128::from(u64::MAX) {
                    return Err(GraphError::DistanceOverflow { vertices: graph.vertices, weight: largest });
                }
                if longest < u128::from(u32::MAX) && !weighted.wide { Word::Narrow } else { Word::Wide }
            }
        };
        let weight = match (weighted.kind, weighted.wide) {
            (WeightKind::Integer { .. }, false) => "w32",
            (WeightKind::Integer { .. }, true) => "w64",
            (WeightKind::Real, false) => "f32",
            (WeightKind::Real, true) => "f64",
        };
        let id = if weighted.wide { "u64" } else { "u32" };
        let id_bytes = if weighted.wide { 8 } else { 4 };
        let bits = word.bytes() * 8;
        let mean_degree = graph.arcs as f64 / graph.vertices.max(1) as f64;
        let chosen = DELTA_FACTOR * weighted.mean / mean_degree;
        let delta = options.delta.unwrap_or(if chosen.is_finite() && chosen > 0.0 { chosen } else { 1.0 });
        let vertices = graph.vertices as usize;
        let device = |bytes: usize| graph.engine.allocate(Place::Device, bytes);
        let near = || device(graph.queue_items() * 2 * id_bytes);
        let far = || device(vertices * id_bytes);
        Ok(Self {
            graph,
            weighted,
            launcher: Launcher::new(graph, "wb_sssp_")?,
            options: options.clone(),
            delta,
            word,
            edge_suffix: format!("{}_{id}_{weight}_d{bits}", weighted.edges.source()),
            memory_suffix: format!("{id}_d{bits}"),
            distance: device(vertices * word.bytes())?,
            stamp: device(vertices * size_of::<u32>())?,
            in_far: device(vertices.div_ceil(32) * 4)?,
            near: [near()?, near()?],
            far: [far()?, far()?],
            order: QueueOrder::new(graph, &weighted.edges)?,
            ids: id,
        })
    }

    /// Searches from a source and brings the distances to the host.
    pub fn run(&mut self, source: u64) -> Result<SsspResult, GraphError> {
        self.graph.check_source(source)?;
        self.launcher.reset()?;
        self.order.reset()?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let buckets = self.search(source)?;
        let elapsed = started.elapsed();
        let io = self.graph.stats_since(before)?;
        Ok(SsspResult { distance: self.distances()?, buckets, delta: self.delta, elapsed, io })
    }

    fn distances(&self) -> Result<Distances, GraphError> {
        let vertices = self.graph.vertices as usize;
        let real = |bits: u64| if bits == u64::MAX { f64::INFINITY } else { f64::from_bits(bits) };
        let widen = |d: u32| if d == u32::MAX { u64::MAX } else { u64::from(d) };
        Ok(match self.word {
            Word::Narrow => {
                Distances::Integer(self.distance.get_slice(0, vertices)?.into_par_iter().map(widen).collect())
            }
            Word::Wide => Distances::Integer(self.distance.get_slice(0, vertices)?),
            Word::Real => Distances::Real(self.distance.get_slice(0, vertices)?.into_par_iter().map(real).collect()),
        })
    }

    fn search(&self, source: u64) -> Result<Vec<BucketReport>, GraphError> {
        let near = [self.near[0].address(), self.near[1].address()];
        let far = [self.far[0].address(), self.far[1].address()];
        let (mut near_now, mut far_now) = (0, 0);
        let mut p = Parameters {
            offset: self.graph.out.offset.address(),
            distance: self.distance.address(),
            stamp: self.stamp.address(),
            in_far: self.in_far.address(),
            near: near[1],
            near_next: near[0],
            far: far[0],
            far_next: far[1],
            near_items: 0,
            far_items: 0,
            settled: 0,
            threshold: self.word.beyond(0, self.delta),
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: self.graph.vertices,
            source,
            round: 0,
            reserved: 0,
        };
        let mut buckets = Vec::new();
        p.near_items = self.step("start", p)?.sum[NEAR];
        let mut total_rounds = 0;
        // The least distance in the far queue, or less.
        let mut least = u64::MAX;
        loop {
            let started = Instant::now();
            let mut bucket = BucketReport {
                threshold: self.word.value(p.threshold),
                rounds: 0,
                items: 0,
                scanned: 0,
                lowered: 0,
                elapsed: Duration::ZERO,
            };
            while p.near_items > 0 {
                total_rounds += 1;
                if self.options.rounds != 0 && total_rounds > self.options.rounds {
                    let rounds = self.options.rounds;
                    return Err(GraphError::TooManyRounds { algorithm: "shortest paths", rounds });
                }
                let (queue, other) = (near[near_now], near[1 - near_now]);
                if self.order.apply(&self.launcher, self.ids, &self.graph.out.offset, [queue, other], p.near_items)? {
                    near_now = 1 - near_now;
                }
                (p.near, p.near_next) = (near[near_now], near[1 - near_now]);
                near_now = 1 - near_now;
                let report = self.relax(p)?;
                bucket.rounds += 1;
                bucket.items += p.near_items;
                bucket.scanned += report.sum[SCANNED];
                bucket.lowered += report.sum[LOWERED];
                p.near_items = report.sum[NEAR];
                p.far_items += report.sum[FAR];
                p.round = p.round.wrapping_add(1);
                least = least.min(report.least);
            }
            // Every queued distance below the threshold is final. Move it on past the least that waits; that one may have
            // been lowered and settled since, and then the split finds the true one.
            while p.near_items == 0 && p.far_items > 0 {
                p.settled = p.threshold;
                p.threshold = self.word.beyond(least.max(p.settled), self.delta);
                (p.far, p.far_next) = (far[far_now], far[1 - far_now]);
                p.near_next = near[near_now];
                let report = self.step("split", p)?;
                far_now = 1 - far_now;
                p.near_items = report.sum[NEAR];
                p.far_items = report.sum[FAR];
                least = report.least;
            }
            p.far = far[far_now];
            bucket.elapsed = started.elapsed();
            buckets.push(bucket);
            if p.near_items == 0 {
                return Ok(buckets);
            }
        }
    }

    fn relax(&self, p: Parameters) -> Result<Report, GraphError> {
        // SAFETY: the parameters of this kernel; the regions that they name belong to `self`, or are borrowed by it.
        unsafe { self.launcher.step(&format!("wb_sssp_relax_{}", self.edge_suffix), args!(p, &self.weighted.edges)) }
    }

    fn step(&self, what: &str, p: Parameters) -> Result<Report, GraphError> {
        // SAFETY: the parameters of this kernel; the regions that they name belong to `self`, or are borrowed by it.
        unsafe { self.launcher.step(&format!("wb_sssp_{what}_{}", self.memory_suffix), args!(p)) }
    }
}
