//! Single-source shortest paths with a near queue, which is relaxed until it is empty, and a far queue, which waits for
//! later ranges of distances.

use super::edges::{GraphError, GraphOnEngine, Placement, WeightKind, Weighted};
use super::launch::{Launcher, QueueOrder, ValueKind, Values};
use super::mirrors::{Claims, Union};
use super::params::{
    GRAPH_PIECE_EDGES, GraphReport as Report, SSSP_FAR as FAR, SSSP_LOWERED as LOWERED, SSSP_NEAR as NEAR,
    SSSP_OPEN as OPEN, SSSP_SCANNED as SCANNED, Sssp as Parameters,
};
use super::paths::path_to;
use super::ranges::{RangeWidth, Word};
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use crate::setters::setters;
use crate::storage::{ElementType, Stats};
use std::time::{Duration, Instant};

/// Options of a search.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SsspOptions {
    /// Width of the range of distances that is relaxed at a time, in units of the weights. `None` chooses a width, and
    /// widens the ranges while they have few vertices.
    pub delta: Option<f64>,
    /// Largest number of rounds; 0 is no limit.
    pub rounds: u64,
    /// True to find parents as well as distances. They take one more pass over the edges of the vertices reached, and a
    /// second one if edges of weight 0 lead to vertices.
    pub parents: bool,
    /// Vertex that ends the search. Vertices further away stay unreached.
    pub target: Option<u64>,
    /// Largest distance, 0 or more. Vertices further away stay unreached.
    pub max_distance: Option<f64>,
}

setters!(SsspOptions {
    delta: Option<f64>,
    rounds: u64,
    parents: bool,
    target: Option<u64>,
    max_distance: Option<f64>,
});

/// Distances from the source.
#[derive(Clone, Debug, PartialEq)]
pub enum Distances {
    /// Distances with integer weights. The value is `u64::MAX` for an unreached vertex.
    Integer(Vec<u64>),
    /// Distances with real weights. The value is infinite for an unreached vertex.
    Real(Vec<f64>),
}

/// Report of the rounds of one range of distances.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BucketReport {
    /// Threshold below which distances are final after these rounds.
    pub threshold: f64,
    /// Number of rounds of relaxing.
    pub rounds: u64,
    /// Number of items relaxed: vertices, and pieces of long lists.
    pub items: u64,
    /// Number of edges inspected.
    pub scanned: u64,
    /// Number of distances lowered.
    pub lowered: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Result of a search.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SsspResult {
    /// Distance of each vertex.
    pub distance: Distances,
    /// Predecessor of each vertex on a shortest path. The source is its own predecessor. The value is `u64::MAX` for an
    /// unreached vertex. `None` unless [`SsspOptions::parents`] is set.
    pub parent: Option<Vec<u64>>,
    /// Number of edges inspected to find parents.
    pub parents_scanned: u64,
    /// Report of each range of distances.
    pub buckets: Vec<BucketReport>,
    /// Width of the first range, and of all if it was asked for.
    pub delta: f64,
    /// Wall-clock time. The distances are then in the engine's memory.
    pub elapsed: Duration,
    /// Counters of storage and cache during the search, or `None` for edges in memory.
    pub io: Option<Stats>,
}

/// Result of a search whose distances are in the engine's memory, for the next kernel of a program. The program owns the
/// distances: a later run of the same [`Sssp`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SsspOnEngine {
    /// Distance of each vertex. All bits of an unreached vertex's value are set.
    ///
    /// | weights | values |
    /// |---|---|
    /// | integers, if no path can have a length of 2^32 - 1 or more, and identifiers have 32 bits | `u32[vertices]` |
    /// | other integers | `u64[vertices]` |
    /// | real numbers | `f64[vertices]`; the value of an unreached vertex is not a number |
    pub distance: VertexValues,
    /// Predecessor of each vertex on a shortest path: `u64[vertices]` if identifiers or weights have 64 bits, otherwise
    /// `u32[vertices]`. The source is its own predecessor. An unreached vertex has the largest value of the type. `None`
    /// unless [`SsspOptions::parents`] is set.
    pub parent: Option<VertexValues>,
    /// Number of edges inspected to find parents.
    pub parents_scanned: u64,
    /// Report of each range of distances.
    pub buckets: Vec<BucketReport>,
    /// Width of the first range, and of all if it was asked for.
    pub delta: f64,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Counters of storage and cache during the search, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl SsspOnEngine {
    /// Copies distances and parents to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<SsspResult, GraphError> {
        let Self { distance, parent, parents_scanned, buckets, delta, elapsed, io } = self;
        let parent = parent.as_ref().map(VertexValues::read_wide).transpose()?;
        let real = |d: f64| if d.to_bits() == u64::MAX { f64::INFINITY } else { d };
        let distance = match distance.element_type() {
            ElementType::F64 => {
                let mut found: Vec<f64> = distance.read()?;
                found.iter_mut().for_each(|d| *d = real(*d));
                Distances::Real(found)
            }
            _ => Distances::Integer(distance.read_wide()?),
        };
        Ok(SsspResult { distance, parent, parents_scanned, buckets, delta, elapsed, io })
    }
}

impl SsspResult {
    /// Returns the number of edges inspected.
    pub fn scanned(&self) -> u64 {
        self.buckets.iter().map(|b| b.scanned).sum::<u64>() + self.parents_scanned
    }

    /// Returns the vertices of a shortest path from the source to `target`, both included. Returns `None` if the search
    /// did not reach `target`, or found no parents.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, Placement, SsspOptions};
    ///
    /// // The way round over vertex 1 is shorter than the direct edge.
    /// let csr = Csr::from_weighted_edges(3, &[(0, 1, 2), (1, 2, 3), (0, 2, 9)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.sssp_with(0, &SsspOptions::default().parents(true))?;
    /// assert_eq!(result.path_to(2), Some(vec![0, 1, 2]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path_to(&self, target: u64) -> Option<Vec<u64>> {
        path_to(self.parent.as_ref()?, target)
    }
}

/// Memory and kernels of searches, for any number of sources.
#[derive(Debug)]
pub struct Sssp {
    graph: GraphOnEngine,
    weighted: Weighted,
    launcher: Launcher,
    options: SsspOptions,
    delta: f64,
    word: Word,
    /// Parts of the kernels' names that tell the kinds of edges and distances.
    edge_suffix: String,
    memory_suffix: String,
    distance: VertexValues,
    parent: Option<VertexValues>,
    /// Distances with which items were relaxed. `None` for edges in GPU memory: reading them again takes less time.
    relaxed: Option<Region>,
    stamp: Region,
    in_far: Region,
    near: [Region; 2],
    far: [Region; 2],
    order: QueueOrder,
    ids: &'static str,
    /// Vertices whose lists are on other PEs, for a graph that is distributed over several.
    claims: Option<Claims>,
}

/// Searches from one source, a vertex number from 0.
///
/// # Errors
/// As for [`Sssp::new`] and [`Sssp::run`].
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{Csr, CsrOptions, Distances, GraphOnEngine, Placement, PlacementOptions, SsspOptions, sssp};
///
/// // The way round over vertex 1 is shorter than the direct edge.
/// let csr = Csr::from_weighted_edges(3, &[(0, 1, 2), (1, 2, 3), (0, 2, 9)], CsrOptions::default())?;
/// let engine = Engine::cpu()?;
/// let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::SSSP)?;
/// let result = sssp(&graph, 0, &SsspOptions::default())?;
/// assert!(matches!(&result.distance, Distances::Integer(d) if d[..] == [0, 2, 5]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sssp(graph: &GraphOnEngine, source: u64, options: &SsspOptions) -> Result<SsspResult, GraphError> {
    Sssp::new(graph, options)?.run(source)
}

/// Factor for the width of the first range: it is this times the mean weight over the mean degree (Davidson et al., 3.2, with 32).
/// Measured: on CPU threads it is the fastest of 1 to 32, or nearly so. On a GPU it is faster than 32 for Kronecker and uniform graphs; for
/// some of them a smaller one takes two thirds of its time.
const DELTA_FACTOR: f64 = 8.0;

impl Sssp {
    /// Allocates the memory of searches.
    ///
    /// # Errors
    /// * [`GraphError::NotPlaced`] if the graph was placed without weighted lists.
    /// * [`GraphError::NoSuchVertex`] if the target is not a vertex.
    /// * [`GraphError::Parameter`] if delta is not a positive number, or the largest distance is below 0.
    /// * [`GraphError::DistanceOverflow`] if distances might not fit into 64 bits.
    /// * [`GraphError::Memory`] without memory; [`GraphError::Engine`] if the kernels cannot be loaded.
    pub fn new(graph: &GraphOnEngine, options: &SsspOptions) -> Result<Self, GraphError> {
        let Some(weighted) = &graph.weighted else {
            return Err(GraphError::NotPlaced { missing: "weighted lists", algorithm: "shortest paths" });
        };
        if let Some(delta) = options.delta
            && !(delta.is_finite() && delta > 0.0)
        {
            return Err(GraphError::Parameter { name: "delta", value: delta, range: "a positive number" });
        }
        if let Some(most) = options.max_distance
            && (most.is_nan() || most < 0.0)
        {
            return Err(GraphError::Parameter { name: "the largest distance", value: most, range: "0 or more" });
        }
        options.target.map_or(Ok(()), |v| graph.check_vertex(v))?;
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
        let bits = word.bits();
        let mean_degree = graph.all_arcs() as f64 / graph.vertices.max(1) as f64;
        let chosen = DELTA_FACTOR * weighted.mean / mean_degree;
        let delta = options.delta.unwrap_or(if chosen.is_finite() && chosen > 0.0 { chosen } else { 1.0 });
        let vertices = graph.vertices as usize;
        let device = |bytes: usize| graph.engine.allocate(Place::Device, bytes);
        let near = || device(graph.queue_items() * 2 * id_bytes);
        let far = || device(vertices * id_bytes);
        let launcher = Launcher::across(graph, "wb_sssp_")?;
        Ok(Self {
            graph: graph.clone(),
            weighted: weighted.clone(),
            claims: launcher.claims(&format!("wb_sssp_claims_{id}_d{bits}"), id_bytes)?,
            launcher,
            options: options.clone(),
            delta,
            word,
            edge_suffix: format!("{}_{id}_{weight}_d{bits}", weighted.edges.source()),
            memory_suffix: format!("{id}_d{bits}"),
            distance: word.allocate(graph)?,
            parent: options
                .parents
                .then(|| {
                    if weighted.wide {
                        VertexValues::allocate::<u64>(graph)
                    } else {
                        VertexValues::allocate::<u32>(graph)
                    }
                })
                .transpose()?,
            relaxed: (!matches!(graph.placement(), Placement::Gpu))
                .then(|| device((vertices + (graph.arcs / GRAPH_PIECE_EDGES) as usize + 1) * (bits / 8) as usize))
                .transpose()?,
            stamp: device(vertices * size_of::<u32>())?,
            in_far: device(vertices.div_ceil(32) * 4)?,
            near: [near()?, near()?],
            far: [far()?, far()?],
            order: QueueOrder::new(graph, &weighted.edges)?,
            ids: id,
        })
    }

    /// Searches from `source`, a vertex number from 0, and copies distances and parents to the host.
    ///
    /// # Errors
    /// * [`GraphError::NoSuchVertex`] if the graph has no such vertex; [`GraphError::TooManyRounds`] if the limit of
    ///   rounds is reached.
    /// * [`GraphError::Run`] if a kernel cannot read an edge, or exceeds the launch limit.
    /// * [`GraphError::Corrupt`] if edges lead to vertices that do not exist.
    /// * [`GraphError::Engine`] if the engine starts no kernel; [`GraphError::Memory`] or [`GraphError::Storage`] if
    ///   memory or counters cannot be read.
    pub fn run(&mut self, source: u64) -> Result<SsspResult, GraphError> {
        self.run_on_device(source)?.into_host()
    }

    /// Searches from `source`, a vertex number from 0, and leaves distances and parents in the engine's memory. The result
    /// shares that memory with this value. If a program still holds the result when the next run begins, that run
    /// allocates memory of its own.
    ///
    /// # Errors
    /// As for [`Sssp::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, Placement, SsspOptions};
    ///
    /// let csr = Csr::from_weighted_edges(4, &[(0, 1, 2), (1, 2, 3)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.sssp_on_device(0, &SsspOptions::default())?;
    /// assert_eq!(result.distance.region().get_slice::<u32>(0, 4)?, [0, 2, 5, u32::MAX]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on_device(&mut self, source: u64) -> Result<SsspOnEngine, GraphError> {
        self.graph.check_vertex(source)?;
        self.distance.unshare(&self.graph)?;
        if let Some(parent) = &mut self.parent {
            parent.unshare(&self.graph)?;
        }
        self.launcher.reset()?;
        self.order.reset()?;
        self.claims.as_ref().map_or(Ok(()), Claims::reset)?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let mut p = self.parameters(self.graph.inside(source));
        let buckets = self.search(&mut p)?;
        self.launcher
            .share(Values { region: self.distance.inside(), bytes: (self.word.bits() / u8::BITS) as usize })?;
        self.cut(p)?;
        let parents_scanned = self.find_parents(p)?;
        self.launcher.bring_outside(&self.graph, &self.distance, ValueKind::Plain)?;
        if let Some(parent) = &self.parent {
            self.launcher.bring_outside(&self.graph, parent, ValueKind::Ids)?;
        }
        let elapsed = started.elapsed();
        Ok(SsspOnEngine {
            io: self.graph.stats_since(before)?,
            distance: self.distance.clone(),
            parent: self.parent.clone(),
            parents_scanned,
            buckets,
            delta: self.delta,
            elapsed,
        })
    }

    fn parameters(&self, source: u64) -> Parameters {
        let own = self.graph.own_vertices();
        Parameters {
            offset: self.graph.out.offset.address(),
            distance: self.distance.address(),
            relaxed: self.relaxed.as_ref().map_or(0, Region::address),
            stamp: self.stamp.address(),
            in_far: self.in_far.address(),
            near: 0,
            near_next: 0,
            near_held: 0,
            far: 0,
            far_next: 0,
            parent: self.parent.as_ref().map_or(0, VertexValues::address),
            near_items: 0,
            far_items: 0,
            settled: 0,
            threshold: self.word.beyond(0, self.delta),
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: self.graph.vertices,
            source,
            first: own.start,
            last: own.end,
            claims: self.launcher.next_claims(None),
            round: 0,
            reserved: 0,
        }
    }

    fn search(&self, p: &mut Parameters) -> Result<Vec<BucketReport>, GraphError> {
        let near = [self.near[0].address(), self.near[1].address()];
        let far = [self.far[0].address(), self.far[1].address()];
        let (mut near_now, mut far_now) = (0, 0);
        (p.near_next, p.far, p.far_next) = (near[0], far[0], far[1]);
        let mut buckets = Vec::new();
        // Parameters have the lengths of this PE's queues. All PEs decide by those of all.
        let (own, all) = self.step("start", *p)?;
        p.near_items = own.sum[NEAR];
        let (mut near_items, mut far_items) = (all.sum[NEAR], 0);
        let mut total_rounds = 0;
        let mut width = RangeWidth::new(self.delta, self.graph.engine.kind());
        // Lower bound of the distances in the far queues.
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
            while near_items > 0 {
                total_rounds += 1;
                if self.options.rounds != 0 && total_rounds > self.options.rounds {
                    let rounds = self.options.rounds;
                    return Err(GraphError::TooManyRounds { algorithm: "shortest paths", rounds });
                }
                self.next_queue(p, &mut near_now)?;
                bucket.rounds += 1;
                bucket.items += near_items;
                let (own, all) = self.relax(*p)?;
                bucket.scanned += all.sum[SCANNED];
                bucket.lowered += all.sum[LOWERED];
                (p.near_items, near_items) = (own.sum[NEAR], all.sum[NEAR]);
                p.far_items += own.sum[FAR];
                far_items += all.sum[FAR];
                p.round = p.round.wrapping_add(1);
                least = least.min(all.least);
            }
            // Every queued distance below the threshold is final. The threshold moves past the least waiting distance.
            // If that vertex was lowered and settled since, the split finds the true least distance.
            let ended = self.last_word()? < p.threshold;
            if self.options.delta.is_none() {
                width.note(bucket.items / bucket.rounds.max(1));
            }
            while !ended && near_items == 0 && far_items > 0 {
                p.settled = p.threshold;
                p.threshold = self.word.beyond(least.max(p.settled), width.now);
                (p.far, p.far_next) = (far[far_now], far[1 - far_now]);
                p.near_next = near[near_now];
                let (own, all) = self.step("split", *p)?;
                far_now = 1 - far_now;
                (p.near_items, near_items) = (own.sum[NEAR], all.sum[NEAR]);
                (p.far_items, far_items) = (own.sum[FAR], all.sum[FAR]);
                least = all.least;
            }
            p.far = far[far_now];
            bucket.elapsed = started.elapsed();
            buckets.push(bucket);
            if near_items == 0 {
                return Ok(buckets);
            }
        }
    }

    /// Relaxes the near queue once. Returns the sums of this PE and of all PEs.
    fn relax(&self, p: Parameters) -> Result<(Report, Report), GraphError> {
        let p = Parameters { claims: self.launcher.next_claims(self.claims.as_ref()), ..p };
        let (mut own, mut all) = self.over("relax", p)?;
        if let Some(claims) = &self.claims {
            // The vertices that other PEs lowered follow those that this PE has queued.
            let held = Parameters { near_held: own.sum[NEAR], far_items: p.far_items + own.sum[FAR], ..p };
            let kernel = format!("wb_sssp_claims_{}", self.memory_suffix);
            // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
            // shares them.
            let taken = unsafe { self.launcher.exchange_claims(claims, &kernel, args!(held)) }?;
            let taken_by_all = self.launcher.end(taken, 0, None)?;
            for (sums, taken) in [(&mut own, taken), (&mut all, taken_by_all)] {
                for (sum, more) in sums.sum.iter_mut().zip(taken.sum) {
                    *sum += more;
                }
                sums.least = sums.least.min(taken.least);
            }
        }
        Ok((own, all))
    }

    /// Makes the near queue the one to read, sorted if that saves reads, and the other one the next queue.
    fn next_queue(&self, p: &mut Parameters, now: &mut usize) -> Result<(), GraphError> {
        let near = [self.near[0].address(), self.near[1].address()];
        let queues = [near[*now], near[1 - *now]];
        if self.order.apply(&self.launcher, self.ids, &self.graph.out.offset, queues, p.near_items)? {
            *now = 1 - *now;
        }
        (p.near, p.near_next) = (near[*now], near[1 - *now]);
        *now = 1 - *now;
        Ok(())
    }

    /// Returns the largest distance that is asked for: that of the target, as far as it is known, or the limit.
    fn last_word(&self) -> Result<u64, GraphError> {
        let limit = self.options.max_distance.map_or(u64::MAX, |most| self.word.of(most));
        let Some(target) = self.options.target.map(|v| self.graph.inside(v)) else { return Ok(limit) };
        // The PE that has the target's list knows its distance first.
        let own = self.graph.own_vertices().contains(&target);
        let found = if own { self.word.read(&self.distance, target)? } else { u64::MAX };
        Ok(limit.min(self.launcher.least(found)?))
    }

    /// Makes the vertices unreached that are further away than what is asked for.
    fn cut(&self, p: Parameters) -> Result<(), GraphError> {
        match self.last_word()? {
            u64::MAX => Ok(()),
            threshold => self.step("cut", Parameters { threshold, ..p }).map(drop),
        }
    }

    /// Finds the parents, if they are asked for. Returns the number of edges inspected.
    fn find_parents(&self, mut p: Parameters) -> Result<u64, GraphError> {
        let mut scanned = 0;
        let Some(parent) = &self.parent else { return Ok(scanned) };
        let parents = Values { region: parent.inside(), bytes: if self.weighted.wide { 8 } else { 4 } };
        // Unless this PE has all lists, the capacity of the claims tells the kernels.
        p.claims = self.launcher.next_claims(self.claims.as_ref());
        let (mut now, mut spread) = (0, 0);
        loop {
            // In round 1, vertices behind edges of length 0 are searched from those that have their parents.
            p = Parameters { round: spread.min(1), near_next: self.near[now].address(), ..p };
            let (own, all) = self.step("spread", p)?;
            spread += 1;
            if all.sum[NEAR] == 0 || p.round == 1 && all.sum[OPEN] == 0 {
                return Ok(scanned);
            }
            p.near_items = own.sum[NEAR];
            let mut near_items = all.sum[NEAR];
            while near_items > 0 {
                self.next_queue(&mut p, &mut now)?;
                let (own, all) = self.over("parents", p)?;
                scanned += all.sum[SCANNED];
                (p.near_items, near_items) = (own.sum[NEAR], all.sum[NEAR]);
            }
            // With several PEs, what they have found is queued next. Otherwise all are found after round 1.
            if !self.launcher.unite(Union::Least, parents)? && p.round == 1 {
                return Ok(scanned);
            }
        }
    }

    /// Runs a step that reads edges. Returns the sums of this PE and of all PEs.
    fn over(&self, what: &str, p: Parameters) -> Result<(Report, Report), GraphError> {
        let kernel = format!("wb_sssp_{what}_{}", self.edge_suffix);
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        let own = unsafe { self.launcher.step_here(&kernel, args!(p, &self.weighted.edges)) }?;
        Ok((own, self.launcher.end(own, 0, None)?))
    }

    fn step(&self, what: &str, p: Parameters) -> Result<(Report, Report), GraphError> {
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        let own = unsafe { self.launcher.step_here(&format!("wb_sssp_{what}_{}", self.memory_suffix), args!(p)) }?;
        Ok((own, self.launcher.end(own, 0, None)?))
    }
}
