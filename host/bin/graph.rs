//! Runs `warpbell graph`: loads a graph, places its edges, runs an algorithm, checks and prints the result.

use crate::args::{Edges, GraphArgs, GraphCommand, SourceArgs, Weights, WorldArgs};
use crate::interrupt::Interrupt;
use crate::measure::graph::{GraphRun, Io, Summary, seconds};
use crate::measure::report::{Report, nanoseconds};
use crate::output::{Failure, Text};
use crate::progress::Loading;
use crate::{device, engine, output, partitioned, world};
use serde_json::json;
use std::time::Instant;
use warpbell::engine::Engine;
use warpbell::graph::import::{ImportError, OrientationReason};
use warpbell::graph::output::Values;
use warpbell::graph::verify::{self, VerifyError};
use warpbell::graph::{
    Bfs, BfsOptions, BfsResult, Components, ComponentsOptions, ComponentsResult, Csr, Distances, GraphError,
    GraphOnEngine, Input, LoadOptions, Loaded, Orientation, PageRank, PageRankOptions, PageRankResult, Placement,
    PlacementOptions, Sssp, SsspOptions, SsspResult, UNREACHED, WeightMode, hub, teps,
};
use warpbell::storage::{Cache, Volume};
use warpbell::units::{Bytes, BytesOrShare, grouped};

/// Graph algorithm with its options.
pub enum Algorithm {
    Bfs,
    Components,
    PageRank(PageRankOptions),
    Sssp(SsspOptions, Weights),
}

/// Result of an algorithm.
pub enum Outcome {
    Bfs(BfsResult),
    Components(ComponentsResult),
    PageRank(PageRankResult),
    Sssp(SsspResult),
}

/// An algorithm with its memory, for any number of runs.
enum Runner<'g> {
    Bfs(Bfs<'g>),
    Components(Components<'g>),
    PageRank(PageRank<'g>),
    Sssp(Sssp<'g>),
}

/// One invocation of `warpbell graph`.
pub struct Job {
    algorithm: Algorithm,
    sources: SourceArgs,
    pub graph: GraphArgs,
}

/// Runs an algorithm; breadth-first search runs on several PEs if options or a launcher ask for that.
///
/// # Errors
/// * [`Failure::Usage`] if options contradict each other.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if the input, a device, an engine or a run fails, or if the result is wrong.
pub fn run(command: GraphCommand, interrupt: &Interrupt) -> Result<(), Failure> {
    let none = SourceArgs { source: Vec::new(), sources: None };
    let job = match command {
        GraphCommand::Bfs { sources, pes, transport, graph } => {
            let job = Job { algorithm: Algorithm::Bfs, sources, graph };
            if pes.is_some() || transport.transport.is_some() || world::launched()?.is_some() {
                return partitioned::run(&job, &WorldArgs { pes, transport }, interrupt);
            }
            job
        }
        GraphCommand::Cc { graph } => Job { algorithm: Algorithm::Components, sources: none, graph },
        GraphCommand::Pagerank { damping, iterations, tolerance, graph } => {
            let options = PageRankOptions::default().damping(damping);
            let options = match iterations {
                Some(iterations) => options.tolerance(None).iterations(iterations),
                None if tolerance.is_some() => options.tolerance(tolerance),
                None => options,
            };
            Job { algorithm: Algorithm::PageRank(options), sources: none, graph }
        }
        GraphCommand::Sssp { sources, delta, weights, graph } => {
            let options = SsspOptions::default().delta(delta);
            Job { algorithm: Algorithm::Sssp(options, weights), sources, graph }
        }
    };
    job.run(interrupt)
}

impl Job {
    /// Returns the name of the command, as in `graph bfs`.
    pub fn name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Bfs => "graph bfs",
            Algorithm::Components => "graph cc",
            Algorithm::PageRank(_) => "graph pagerank",
            Algorithm::Sssp(..) => "graph sssp",
        }
    }

    fn run(&self, interrupt: &Interrupt) -> Result<(), Failure> {
        let args = &self.graph;
        // Output files and the input are checked before any device is opened.
        let (text, output) = Text::beside_results(&args.report, args.out.as_deref())?;
        interrupt.doing("reading the graph");
        let loaded = self.load()?;
        let csr = &loaded.csr;
        let sources = self.sources(csr)?;
        self.warn(csr, &sources);
        let engine = engine::open(&args.engine)?;
        text.line(format_args!("warpbell {}  engine {engine}", env!("CARGO_PKG_VERSION")))?;
        interrupt.doing("storing the edges");
        let store = {
            let _stop = interrupt.stops(&engine);
            self.store(&engine, csr, &text)?
        };
        text.line(format_args!("{}", shape(&loaded)))?;

        let mut runner = self.runner(&store.graph)?;
        let mut runs = Vec::new();
        let mut last = None;
        for &source in &sources {
            for _ in 0..args.runs {
                interrupt.doing("running kernels");
                let (mut run, outcome) = {
                    let _stop = interrupt.stops(&engine);
                    self.once(&mut runner, &store, csr, source)?
                };
                if args.verbose {
                    outcome.steps(&text)?;
                }
                if !args.no_verify {
                    let started = Instant::now();
                    interrupt.doing("checking the result");
                    self.verify(csr, source, &outcome)?;
                    run.verification_ns = nanoseconds(started.elapsed());
                    run.verified = true;
                }
                text.line(format_args!("{}{run}", self.prefix(&run)))?;
                runs.push(run);
                last = Some(outcome);
            }
        }
        let summary = if runs.len() > 1 { Summary::of(&runs) } else { None };
        if let Some(s) = &summary {
            text.line(format_args!("{s}"))?;
        }
        let taken = store.storage.as_ref().map(|s| device::path_after(&s.volume)).transpose()?;
        if let Some(taken) = taken.as_ref().filter(|t| t.redundancy.is_some()) {
            text.line(format_args!("{}", device::copies(taken)))?;
        }
        interrupt.doing("writing the results");
        let _noted = interrupt.is_noted();
        if let (Some(output), Some(outcome)) = (output, &last) {
            output::write_values(outcome.values(), csr.ids(), output)?;
        }
        if let Some(path) = &args.report.json {
            let results = json!({ "graph": facts(&loaded), "runs": runs, "summary": summary });
            output::write_json(self.name(), &Report::new(self.config(&store), &engine, taken, results), path)?;
        }
        Ok(())
    }

    /// Reads or generates the graph, with the weights and self-loops that the algorithm uses.
    ///
    /// # Errors
    /// [`Failure::Error`] if the input cannot be read.
    pub fn load(&self) -> Result<Loaded, Failure> {
        let args = &self.graph;
        let input = Input::of(&args.input)?;
        let bar = Loading::new();
        let advance = |p| bar.advance(p);
        let mut loaded = input
            .load(
                &LoadOptions::default()
                    .format(args.format)
                    .orientation(match (args.directed, args.undirected) {
                        (true, _) => Orientation::Directed,
                        (_, true) => Orientation::Undirected,
                        _ => Orientation::Auto,
                    })
                    .weights(match self.algorithm {
                        Algorithm::Sssp(_, Weights::Input) => WeightMode::Input,
                        Algorithm::Sssp(_, Weights::Integers) => WeightMode::RandomIntegers,
                        Algorithm::Sssp(_, Weights::Reals) => WeightMode::RandomReals,
                        _ => WeightMode::Ignore,
                    })
                    .keep_self_loops(matches!(self.algorithm, Algorithm::PageRank(_)))
                    .seed(args.seed)
                    .progress(Some(&advance)),
            )
            .map_err(|e| match e {
                ImportError::NoFormat { .. } => Failure::Usage(format!("{e}, with --format")),
                ImportError::UnknownEnding { .. } => Failure::Error(format!("{e}; or name the format with --format")),
                e => e.into(),
            })?;
        // Searches then visit well-connected neighbours first and read the fewest edges.
        if matches!(self.algorithm, Algorithm::Bfs | Algorithm::Components) {
            hub::order_by_degree(&mut loaded.csr);
        }
        Ok(loaded)
    }

    /// Returns the source vertices. Algorithms without a source get one `None`.
    ///
    /// # Errors
    /// [`Failure::Error`] if the graph lacks a vertex that `--source` names, or has no edges to draw a source from.
    pub fn sources(&self, csr: &Csr) -> Result<Vec<Option<u64>>, Failure> {
        if matches!(self.algorithm, Algorithm::Components | Algorithm::PageRank(_)) {
            return Ok(vec![None]);
        }
        if self.sources.source.is_empty() {
            let count = self.sources.sources.unwrap_or(1) as usize;
            let picked = teps::pick_sources(csr, count, self.graph.seed);
            if picked.is_empty() {
                let (input, vertices) = (self.graph.input.display(), grouped(csr.vertices()));
                return Err(Failure::Error(format!(
                    "{input}: its {vertices} vertices have no edges, so no source can be chosen; name one with --source"
                )));
            }
            return Ok(picked.into_iter().map(Some).collect());
        }
        let vertex = |id: &u64| {
            csr.ids().vertex(*id).map(Some).ok_or_else(|| {
                let range = match csr.ids().bounds() {
                    Some((low, high)) => format!("its identifiers go from {low} to {high}"),
                    None => "it has no vertices".to_owned(),
                };
                Failure::Error(format!("--source {id}: {} has no such vertex; {range}", self.graph.input.display()))
            })
        };
        self.sources.source.iter().map(vertex).collect()
    }

    /// Warns about each vertex of `--source` without outgoing edges.
    pub fn warn(&self, csr: &Csr, sources: &[Option<u64>]) {
        let named = if self.sources.source.is_empty() { &[] } else { sources };
        for source in named.iter().flatten().filter(|v| csr.degree(**v) == 0) {
            let why = if csr.directed() { "no edge leaves the vertex" } else { "the vertex has no edges" };
            let id = csr.ids().id(*source);
            output::warn(format_args!("--source {id}: {why}, so the search reaches no other vertex"));
        }
    }

    /// Returns the source as the prefix of a result line; empty if the user named exactly one source.
    pub fn prefix(&self, run: &GraphRun) -> String {
        let said = self.sources.source.len() == 1;
        run.source.filter(|_| !said).map_or_else(String::new, |s| format!("source {s}  "))
    }

    fn needs(&self) -> PlacementOptions {
        match self.algorithm {
            Algorithm::Bfs => PlacementOptions::BFS,
            Algorithm::Components => PlacementOptions::COMPONENTS,
            Algorithm::PageRank(_) => PlacementOptions::PAGERANK,
            Algorithm::Sssp(..) => PlacementOptions::SSSP,
        }
    }

    fn runner<'g>(&self, graph: &'g GraphOnEngine) -> Result<Runner<'g>, Failure> {
        Ok(match &self.algorithm {
            Algorithm::Bfs => Runner::Bfs(Bfs::new(graph, &BfsOptions::default())?),
            Algorithm::Components => Runner::Components(Components::new(graph, &ComponentsOptions::default())?),
            Algorithm::PageRank(options) => Runner::PageRank(PageRank::new(graph, options)?),
            Algorithm::Sssp(options, _) => Runner::Sssp(Sssp::new(graph, options)?),
        })
    }
}

impl Job {
    /// Runs once, timed and counted. Empties the cache first unless `--warm` is set.
    fn once(
        &self,
        runner: &mut Runner<'_>,
        store: &Store,
        csr: &Csr,
        source: Option<u64>,
    ) -> Result<(GraphRun, Outcome), Failure> {
        if !self.graph.warm {
            store.graph.cool()?;
        }
        let before = store.graph.stats()?;
        let start = source.unwrap_or_default();
        let outcome = match runner {
            Runner::Bfs(bfs) => bfs.run(start).map(Outcome::Bfs),
            Runner::Components(components) => components.run().map(Outcome::Components),
            Runner::PageRank(pagerank) => pagerank.run().map(Outcome::PageRank),
            Runner::Sssp(sssp) => sssp.run(start).map(Outcome::Sssp),
        };
        let outcome = outcome.map_err(|e| store.explain(e))?;
        let after = store.graph.stats()?;
        let mut run = outcome.figures(csr);
        run.source = source.map(|v| csr.ids().id(v));
        if let (Some(before), Some(after)) = (before, after) {
            let stored = if csr.directed() { run.traversed_edges } else { 2 * run.traversed_edges };
            run.io = Some(Io::new(&(after - before), run.elapsed(), stored));
        }
        Ok((run, outcome))
    }

    /// Checks a result against a serial computation.
    ///
    /// # Errors
    /// [`Failure::Error`] if the result is wrong, or if PageRank's ranks did not converge.
    pub fn verify(&self, csr: &Csr, source: Option<u64>, outcome: &Outcome) -> Result<(), Failure> {
        let source = source.unwrap_or_default();
        let wrong = match outcome {
            Outcome::Bfs(r) => match &r.parent {
                Some(parents) => verify::bfs_parents(csr, source, &r.depth, parents),
                None => verify::bfs(csr, source, &r.depth),
            },
            Outcome::Components(r) => verify::components(csr, &r.label),
            Outcome::PageRank(r) => self.verify_ranks(csr, r)?,
            Outcome::Sssp(r) => verify::sssp(csr, source, distances(&r.distance)),
        };
        wrong.map_err(|e| Failure::Error(format!("the result is wrong: {e}; please report this with the command line")))
    }

    fn verify_ranks(&self, csr: &Csr, result: &PageRankResult) -> Result<Result<(), VerifyError>, Failure> {
        let Algorithm::PageRank(options) = &self.algorithm else { return Ok(Ok(())) };
        let inward = csr.directed().then(|| csr.transpose());
        let last = result.iterations.last().map_or(0.0, |i| i.change);
        match options.tolerance {
            Some(tolerance) if !result.converged => Err(Failure::Error(format!(
                "PageRank did not converge: the ranks still changed by {last:.1e} after {} iterations, more than {tolerance:e}; raise --tolerance, or fix the number with --iterations",
                result.iterations.len()
            ))),
            Some(tolerance) => {
                let rule = verify::PageRank { damping: options.damping, tolerance };
                Ok(verify::pagerank(csr, inward.as_ref(), rule, &result.rank))
            }
            None => {
                let rule = verify::PageRank { damping: options.damping, ..Default::default() };
                Ok(verify::pagerank_after(csr, inward.as_ref(), rule, options.iterations, &result.rank))
            }
        }
    }
}

fn distances(of: &Distances) -> verify::Distances<'_> {
    match of {
        Distances::Integer(d) => verify::Distances::U64(d),
        Distances::Real(d) => verify::Distances::F64(d),
    }
}

/// Returns a line such as
/// `36,692 vertices  183,831 edges (undirected: each edge is there in both directions)  32-bit`.
pub fn shape(loaded: &Loaded) -> String {
    let (csr, summary) = (&loaded.csr, &loaded.summary);
    let once = summary.orientation == OrientationReason::Once;
    let mut text = format!(
        "{} vertices  {} edges ({}, {}{})  {}-bit",
        grouped(csr.vertices()),
        grouped(csr.edges()),
        if csr.directed() { "directed" } else { "undirected" },
        summary.orientation,
        if once { "; give --undirected if edges lead both ways" } else { "" },
        8 * csr.neighbours().width(),
    );
    if csr.weights().is_some() {
        text += &format!("  {}", summary.weights);
    }
    text
}

/// Returns the properties of a graph for the JSON report.
pub fn facts(loaded: &Loaded) -> serde_json::Value {
    let (csr, summary) = (&loaded.csr, &loaded.summary);
    json!({
        "vertices": csr.vertices(),
        "edges": csr.edges(),
        "stored_edges": csr.arcs(),
        "directed": csr.directed(),
        "neighbour_bytes": csr.neighbours().width(),
        "format": summary.format.to_string(),
        "orientation": summary.orientation.to_string(),
        "weights": summary.weights.to_string(),
        "input_edges": summary.input_edges,
        "self_loops": summary.self_loops,
        "duplicates": summary.duplicates,
    })
}

impl Outcome {
    /// Returns the time, the traversed edges and the other figures of the result line.
    pub fn figures(&self, csr: &Csr) -> GraphRun {
        match self {
            Self::Bfs(r) => {
                let edges = teps::traversed_edges(csr, |v| r.depth[v as usize] != UNREACHED);
                // The last level finds no vertices and is not counted.
                let levels = r.levels.iter().filter(|l| l.found > 0).count();
                GraphRun { reached: Some(r.reached), ..GraphRun::new(r.elapsed, edges, (levels, "levels")) }
            }
            Self::Components(r) => GraphRun {
                components: Some(r.components),
                ..GraphRun::new(r.elapsed, teps::traversed_edges(csr, |_| true), (r.phases.len(), "phases"))
            },
            Self::PageRank(r) => GraphRun {
                residual: r.iterations.last().map(|i| i.change),
                ..GraphRun::new(
                    r.elapsed,
                    // Every iteration reads every edge.
                    teps::traversed_edges(csr, |_| true) * r.iterations.len() as u64,
                    (r.iterations.len(), "iterations"),
                )
            },
            Self::Sssp(r) => {
                let d = distances(&r.distance);
                let edges = teps::traversed_edges(csr, |v| d.reached(v as usize));
                let reached = (0..d.len()).filter(|v| d.reached(*v)).count() as u64;
                GraphRun { reached: Some(reached), ..GraphRun::new(r.elapsed, edges, (r.buckets.len(), "ranges")) }
            }
        }
    }

    /// Returns the result: one value for each vertex.
    pub fn values(&self) -> Values<'_> {
        match self {
            Self::Bfs(r) => Values::Depths(&r.depth),
            Self::Components(r) => Values::WideComponents(&r.label),
            Self::PageRank(r) => Values::Ranks64(&r.rank),
            Self::Sssp(r) => Values::Distances(distances(&r.distance)),
        }
    }

    /// Prints a line for each level, phase, iteration or range.
    ///
    /// # Errors
    /// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if it cannot be written.
    pub fn steps(&self, text: &Text) -> Result<(), Failure> {
        match self {
            Self::Bfs(r) => r.levels.iter().try_for_each(|l| {
                let (found, scanned) = (grouped(l.found), grouped(l.scanned));
                let put = l.put_bytes.map_or_else(String::new, |b| format!("   exchanged {}", Bytes(b)));
                text.line(format_args!(
                    "level {:<3} {:<10} found {found:>12}   scanned {scanned:>13}   by hub {:>12}   {}{put}",
                    l.level,
                    l.direction.to_string(),
                    grouped(l.hub_hits),
                    seconds(l.elapsed),
                ))
            }),
            Self::Components(r) => r.phases.iter().try_for_each(|p| {
                let (scanned, trees) = (grouped(p.scanned), grouped(p.trees));
                text.line(format_args!(
                    "{:<12} scanned {scanned:>13}   trees {trees:>12}   {}",
                    p.name,
                    seconds(p.elapsed)
                ))
            }),
            Self::PageRank(r) => r.iterations.iter().try_for_each(|i| {
                let scanned = grouped(i.scanned);
                text.line(format_args!(
                    "iteration {:<4} change {:<10.3e} scanned {scanned:>13}   {}",
                    i.iteration,
                    i.change,
                    seconds(i.elapsed)
                ))
            }),
            Self::Sssp(r) => r.buckets.iter().try_for_each(|b| {
                let (items, scanned, lowered) = (grouped(b.items), grouped(b.scanned), grouped(b.lowered));
                text.line(format_args!(
                    "below {:<10} rounds {:<5} items {items:>12}   scanned {scanned:>13}   lowered {lowered:>12}   {}",
                    b.threshold,
                    b.rounds,
                    seconds(b.elapsed)
                ))
            }),
        }
    }
}

/// A graph placed where kernels reach it, with the volume below it.
struct Store {
    graph: GraphOnEngine,
    storage: Option<Storage>,
}

/// Volume and cache of a graph whose edges are on devices.
struct Storage {
    volume: Volume,
    cache: Cache,
}

impl Store {
    /// Converts the error of a failed run; adds the devices' error if there is one.
    fn explain(&self, e: GraphError) -> Failure {
        match self.storage.as_ref().map(|s| s.volume.check()) {
            Some(Err(why)) => Failure::Error(format!("{e}; {why}")),
            _ => e.into(),
        }
    }
}

/// Minimum size of the cache in bytes, if `--cache` is absent.
const LEAST_CACHE: u64 = 1 << 20;
/// Share of the edges that the cache holds, if `--cache` is absent.
const DEFAULT_CACHE: BytesOrShare = BytesOrShare::Share(0.25);

/// Returns the size of the cache in bytes for `edges` bytes of edges.
pub fn cache_bytes(args: &GraphArgs, edges: u64) -> u64 {
    match args.cache {
        Some(asked) => asked.of(edges),
        None => DEFAULT_CACHE.of(edges).max(LEAST_CACHE),
    }
}

impl Job {
    fn store(&self, engine: &Engine, csr: &Csr, text: &Text) -> Result<Store, Failure> {
        let args = &self.graph;
        let (placement, storage) = match args.edges {
            Edges::Pinned => (Placement::Pinned, None),
            Edges::Gpu => (Placement::Gpu, None),
            Edges::Storage => {
                let plan = GraphOnEngine::plan(csr, self.needs()).page_checksums(args.page_checksums);
                let volume = device::volume(&args.device, engine, &plan, args.page.page_size)?;
                GraphOnEngine::check_volume(&volume, csr, self.needs())?;
                let bytes = cache_bytes(args, self.edge_bytes(csr));
                let cache = Cache::on(&volume).bytes(bytes).page(device::page(args.page.page_size)).build()?;
                (Placement::Storage(cache.clone()), Some(Storage { volume, cache }))
            }
        };
        match &storage {
            None => text.line(format_args!("edges in {placement} memory ({})", Bytes(self.edge_bytes(csr))))?,
            Some(s) => {
                let (page, cache, edges) = (args.page.page_size, Bytes(s.cache.bytes()), Bytes(self.edge_bytes(csr)));
                let rest = format!("  page {page}  cache {cache} (of {edges} of edges)");
                device::announce(&s.volume, &rest, args.verbose, text)?;
            }
        }
        let graph = GraphOnEngine::place(engine, csr, placement, self.needs())?;
        Ok(Store { graph, storage })
    }

    /// Returns the size in bytes of the edges that the kernels read.
    fn edge_bytes(&self, csr: &Csr) -> u64 {
        let needs = self.needs();
        let width = csr.neighbours().width() as u64;
        let mut bytes = 0;
        if needs.lists {
            bytes += width;
        }
        if needs.inward && csr.directed() {
            bytes += width;
        }
        if needs.weighted {
            // A neighbour and its weight are adjacent, and each is as wide as the wider of the two.
            bytes += 2 * width.max(csr.weights().map_or(0, |w| w.width() as u64));
        }
        bytes * csr.arcs()
    }

    /// Returns every setting that affects the figures, for the JSON report.
    fn config(&self, store: &Store) -> serde_json::Value {
        let args = &self.graph;
        let mut config = json!({
            "input": args.input.to_string_lossy(),
            "seed": args.seed,
            "edges": args.edges,
            "runs": args.runs,
            "verify": !args.no_verify,
            "deadline_ns": nanoseconds(args.engine.deadline),
        });
        match &self.algorithm {
            Algorithm::Bfs | Algorithm::Components => {}
            Algorithm::PageRank(options) => {
                config["damping"] = json!(options.damping);
                config["tolerance"] = json!(options.tolerance);
                config["iterations_at_most"] = json!(options.iterations);
            }
            Algorithm::Sssp(options, weights) => {
                config["delta"] = json!(options.delta);
                config["weights"] = json!(weights);
            }
        }
        if let Some(s) = &store.storage {
            config["warm"] = json!(args.warm);
            config["page_bytes"] = json!(s.cache.page_bytes());
            config["cache_bytes"] = json!(s.cache.bytes());
        }
        config
    }
}
