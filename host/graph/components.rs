//! Connected components: first over the hub neighbours, then a sample, then only the remaining vertices. Strongly
//! connected ones of directed graphs are in `strong`.

use super::edges::{GraphError, GraphOnEngine};
use super::launch::{Launcher, ValueKind, Values};
use super::mirrors::Union;
use super::params::{
    COMPONENTS_ROOTS as ROOTS, COMPONENTS_SCANNED as SCANNED, Components as Parameters, GRAPH_HUBS,
    GraphReport as Report,
};
use super::strong::Strong;
use super::vertex_values::VertexValues;
use crate::args;
use crate::memory::{Place, Region};
use crate::setters::setters;
use crate::storage::Stats;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Options of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ComponentsOptions {
    /// Largest number of rounds that link one neighbour of every vertex (Afforest: 2), at most 3. The neighbours are those
    /// that are kept in memory, so a round reads no edge. Rounds end as soon as `giant` is reached.
    pub rounds: u32,
    /// Share of the sample that must be in one component before the other vertices are read completely.
    pub giant: f64,
    /// True for strongly connected components: vertices that reach each other along the direction of the edges. The other
    /// options then have no effect on a directed graph. In an undirected graph they are the connected components.
    pub strong: bool,
}

setters!(ComponentsOptions { rounds: u32, giant: f64, strong: bool });

impl Default for ComponentsOptions {
    fn default() -> Self {
        Self { rounds: 2, giant: 0.5, strong: false }
    }
}

/// Report of one phase.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PhaseReport {
    /// Name of the phase.
    pub name: &'static str,
    /// Edges inspected.
    pub scanned: u64,
    /// Trees that remained at the end; of strongly connected components, vertices that had none yet.
    pub trees: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Components of a graph. Those of a directed graph are its weakly connected components, unless the options ask for the
/// strongly connected ones.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ComponentsResult {
    /// For each vertex, the smallest vertex of its component.
    pub label: Vec<u64>,
    /// Number of components.
    pub components: u64,
    /// Report of each phase.
    pub phases: Vec<PhaseReport>,
    /// Wall-clock time. The labels are then in the engine's memory.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

/// Components of a graph, with the labels in the engine's memory, for the next kernel of a program. The program owns the
/// labels: a later run of the same [`Components`] does not change them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ComponentsOnEngine {
    /// For each vertex, the smallest vertex of its component: `u32[vertices]`, or `u64[vertices]` for a graph with
    /// 64-bit identifiers.
    pub label: VertexValues,
    /// Number of components.
    pub components: u64,
    /// Report of each phase.
    pub phases: Vec<PhaseReport>,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Counters of storage and cache during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
}

impl ComponentsOnEngine {
    /// Copies the labels to the host.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if memory cannot be allocated or read.
    pub fn into_host(self) -> Result<ComponentsResult, GraphError> {
        let Self { label, components, phases, elapsed, io } = self;
        Ok(ComponentsResult { label: label.read_wide()?, components, phases, elapsed, io })
    }
}

impl ComponentsResult {
    /// Returns the number of edges inspected.
    pub fn scanned(&self) -> u64 {
        self.phases.iter().map(|p| p.scanned).sum()
    }
}

/// Number of vertices whose labels are sampled to find the giant component (as in GAP).
const SAMPLES: usize = 1024;

/// Memory and kernels of a run.
#[derive(Debug)]
pub struct Components {
    graph: GraphOnEngine,
    options: ComponentsOptions,
    launcher: Launcher,
    label: VertexValues,
    sample: Region,
    /// Least vertex of each label, if lists are in an order of their own.
    least: Option<Region>,
    /// Of strongly connected components.
    strong: Option<Strong>,
}

/// Labels every vertex with the smallest vertex of its component.
///
/// # Errors
/// As for [`Components::new`] and [`Components::run`].
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{ComponentsOptions, Csr, CsrOptions, GraphOnEngine, Placement, PlacementOptions, components};
///
/// let csr = Csr::from_edges(5, &[(0, 1), (3, 4)], CsrOptions::default())?;
/// let engine = Engine::cpu()?;
/// let graph = GraphOnEngine::place(&engine, &csr, Placement::Gpu, PlacementOptions::COMPONENTS)?;
/// let result = components(&graph, &ComponentsOptions::default())?;
/// assert_eq!(result.label, [0, 0, 2, 3, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn components(graph: &GraphOnEngine, options: &ComponentsOptions) -> Result<ComponentsResult, GraphError> {
    Components::new(graph, options)?.run()
}

impl Components {
    /// Allocates the memory of a run.
    ///
    /// # Errors
    /// [`GraphError::Memory`] without memory; [`GraphError::Engine`] if the kernels cannot be loaded; for strongly
    /// connected components also [`GraphError::NotPlaced`] if the graph was placed without neighbour lists.
    pub fn new(graph: &GraphOnEngine, options: &ComponentsOptions) -> Result<Self, GraphError> {
        let strong = options.strong && graph.directed;
        let least_bytes = graph.vertices as usize * size_of::<u32>();
        Ok(Self {
            graph: graph.clone(),
            options: options.clone(),
            launcher: if strong {
                Launcher::new(graph, "wb_strong_", "strongly connected components")
            } else {
                Launcher::across(graph, "wb_components_")
            }?,
            label: VertexValues::allocate_ids(graph)?,
            sample: graph.engine.allocate(Place::Host, SAMPLES * graph.id_bytes())?,
            least: graph.order.as_ref().map(|_| graph.engine.allocate(Place::Device, least_bytes)).transpose()?,
            strong: strong.then(|| Strong::new(graph)).transpose()?,
        })
    }

    /// Runs the algorithm, and copies the labels to the host.
    ///
    /// # Errors
    /// * [`GraphError::NotPlaced`] if the graph was placed without neighbour lists, or for strongly connected components
    ///   without in-neighbour lists.
    /// * [`GraphError::Run`] if a kernel cannot read an edge, or exceeds the launch limit.
    /// * [`GraphError::Corrupt`] if edges lead to vertices that do not exist.
    /// * [`GraphError::Engine`] if the engine starts no kernel; [`GraphError::Memory`] or [`GraphError::Storage`] if
    ///   memory or counters cannot be read.
    pub fn run(&mut self) -> Result<ComponentsResult, GraphError> {
        self.run_on_device()?.into_host()
    }

    /// Runs the algorithm, and leaves the labels in the engine's memory. The result shares that memory with this value.
    /// If a program still holds the result when the next run begins, that run allocates memory of its own.
    ///
    /// # Errors
    /// As for [`Components::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{Csr, CsrOptions, Graph, Placement};
    ///
    /// let csr = Csr::from_edges(5, &[(0, 1), (3, 4)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let result = graph.components_on_device()?;
    /// assert_eq!(result.components, 3);
    /// assert_eq!(result.label.region().get_slice::<u32>(0, 5)?, [0, 0, 2, 3, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on_device(&mut self) -> Result<ComponentsOnEngine, GraphError> {
        self.label.unshare(&self.graph)?;
        self.launcher.reset()?;
        let before = self.graph.stats()?;
        let started = Instant::now();
        let (phases, components) = match &self.strong {
            Some(strong) => {
                let mut phases = Vec::new();
                let components =
                    strong.label(&self.graph, &self.launcher, &self.label, |name, scanned, trees, elapsed| {
                        phases.push(PhaseReport { name, scanned, trees, elapsed });
                    })?;
                (phases, components)
            }
            None => {
                let phases = self.phases()?;
                let trees = phases.last().map_or(0, |p| p.trees);
                (phases, trees)
            }
        };
        if let Some(least) = &self.least {
            self.launcher.bring_outside(&self.graph, &self.label, ValueKind::Labels { least })?;
        }
        let elapsed = started.elapsed();
        let io = self.graph.stats_since(before)?;
        Ok(ComponentsOnEngine { label: self.label.clone(), components, phases, elapsed, io })
    }

    fn phases(&self) -> Result<Vec<PhaseReport>, GraphError> {
        let graph = &self.graph;
        let lists = &graph.out;
        let mut phases = Vec::new();
        if graph.vertices == 0 {
            return Ok(phases);
        }
        let p = Parameters {
            offset: lists.offset.address(),
            hubs: lists.hubs.address(),
            label: self.label.address(),
            tile: lists.tile.address(),
            sample: self.sample.address(),
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: graph.vertices,
            edges: graph.arcs,
            giant: graph.none(),
            hub: 0,
            samples: SAMPLES as u32,
        };
        let ids = graph.id_suffix();
        let hubs = format!("wb_components_hubs_{ids}");
        let mut phase = |name, started: Instant, scanned, trees| {
            phases.push(PhaseReport { name, scanned, trees, elapsed: started.elapsed() });
        };

        let started = Instant::now();
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        unsafe { self.launcher.run(&format!("wb_components_start_{ids}"), args!(p)) }?;
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        unsafe { self.launcher.run(&hubs, args!(p)) }?;
        let trees = self.unite(p)?;
        phase("hubs", started, 0, trees);

        // Without in-edges, only vertices inside the giant component see an arc that leads out of it, so none may be
        // skipped.
        let skips = !graph.directed;
        let mut giant = if skips { self.giant(p)? } else { None };
        for round in 0..self.options.rounds.min(GRAPH_HUBS - 1) {
            if !skips || giant.is_some() {
                break;
            }
            let started = Instant::now();
            // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
            // shares them.
            unsafe { self.launcher.run(&hubs, args!(Parameters { hub: round + 1, ..p })) }?;
            let trees = self.unite(p)?;
            phase("hubs", started, 0, trees);
            giant = self.giant(p)?;
        }

        let started = Instant::now();
        let report = self.over("wb_components_rest", Parameters { giant: giant.unwrap_or(graph.none()), ..p })?;
        let trees = self.unite(p)?;
        phase("rest", started, report.sum[SCANNED], trees);
        Ok(phases)
    }

    /// Points every vertex at its root, and returns the number of roots. All PEs then have the trees of all.
    fn unite(&self, p: Parameters) -> Result<u64, GraphError> {
        let roots = self.compress(p)?;
        let labels = Values { region: self.label.inside(), bytes: self.graph.id_bytes() };
        if self.launcher.unite(Union::Trees, labels)? { self.compress(p) } else { Ok(roots) }
    }

    fn compress(&self, p: Parameters) -> Result<u64, GraphError> {
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        let report = unsafe {
            self.launcher.step_here(&format!("wb_components_compress_{}", self.graph.id_suffix()), args!(p))
        }?;
        Ok(report.sum[ROOTS])
    }

    /// Returns the label that enough of the sample has, if there is one.
    fn giant(&self, p: Parameters) -> Result<Option<u64>, GraphError> {
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        unsafe { self.launcher.run(&format!("wb_components_sample_{}", self.graph.id_suffix()), args!(p)) }?;
        let sample: Vec<u64> = if self.graph.wide {
            self.sample.get_slice(0, SAMPLES)?
        } else {
            self.sample.get_slice::<u32>(0, SAMPLES)?.into_iter().map(u64::from).collect()
        };
        let mut votes = HashMap::new();
        for label in sample {
            *votes.entry(label).or_insert(0u32) += 1;
        }
        let commonest = votes.into_iter().max_by_key(|&(label, count)| (count, std::cmp::Reverse(label)));
        let enough = self.options.giant * SAMPLES as f64;
        Ok(commonest.filter(|&(_, count)| f64::from(count) >= enough).map(|(label, _)| label))
    }

    /// Runs a step that reads edges.
    fn over(&self, kernel: &str, p: Parameters) -> Result<Report, GraphError> {
        let Some(edges) = &self.graph.out.edges else {
            return Err(GraphError::NotPlaced { missing: "neighbour lists", algorithm: "connected components" });
        };
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or `self`
        // shares them.
        unsafe {
            self.launcher.step(&format!("{kernel}_{}_{}", edges.source(), self.graph.id_suffix()), args!(p, edges))
        }
    }
}
