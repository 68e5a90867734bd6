//! Runs `warpbell graph`: loads or opens a graph, places its edges, runs an algorithm, checks and prints the result.

mod export;
mod highlights;
mod outcome;
mod runner;
mod store;
pub mod stored;
mod subject;
mod vertices;

pub use highlights::{Highlights, Results};
pub use outcome::{Outcome, distances};
pub use runner::Runner;
pub use store::cache_bytes;
pub use subject::Subject;
pub use vertices::Vertices;

use store::Store;

use crate::args::{
    GraphArgs, GraphCommand, PathArgs, SourceArgs, SourceList, WeightArgs, Weights, WeightsType, WorldArgs,
};
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text};
use crate::progress::Loading;
use crate::workloads::graph::{GraphRun, Io, Summary};
use crate::workloads::phases::Phases;
use crate::workloads::report::{Report, nanoseconds};
use crate::{device, engine, output, partitioned, world};
use serde_json::json;
use std::slice::Chunks;
use std::time::Instant;
use warpbell::graph::import::Precision;
use warpbell::graph::stored::GraphName;
use warpbell::graph::verify::{self, VerifyError};
use warpbell::graph::{
    CdlpOptions, ComponentsOptions, Csr, GraphError, GraphShape, Ids, LoadOptions, Loaded, MOST_SEARCHES, Orientation,
    PageRankOptions, PageRankResult, SsspOptions, WeightMode, hub,
};
use warpbell::units::counted;

/// Graph algorithm with its options.
pub enum Algorithm {
    /// With the sources of the command, or with all vertices as sources.
    Betweenness {
        all: bool,
    },
    Bfs {
        max_depth: Option<u32>,
        together: bool,
    },
    Cdlp(CdlpOptions),
    Components(ComponentsOptions),
    PageRank(PageRankOptions, Vec<SourceList>),
    Triangles,
    Clustering,
    Cores,
    Sssp(SsspOptions, WeightArgs),
}

/// The input of a command: read before the engine is opened, or to be opened on it.
enum Input {
    Loaded(Box<Loaded>),
    Stored(GraphName),
}

/// One invocation of `warpbell graph`.
pub struct Job {
    algorithm: Algorithm,
    sources: SourceArgs,
    paths: PathArgs,
    pub graph: GraphArgs,
}

/// Runs an algorithm, on several PEs if options or a launcher ask for that.
///
/// # Errors
/// * [`Failure::Usage`] if options contradict each other.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if the input, a device, an engine or a run fails, or if the result is wrong.
pub fn run(command: GraphCommand, interrupt: &Interrupt) -> Result<(), Failure> {
    let without_sources = |algorithm, graph| {
        let sources = SourceArgs { source: Vec::new(), sources: None };
        Job { algorithm, sources, paths: PathArgs::default(), graph }
    };
    let (job, pes) = match command {
        GraphCommand::Import(args) => return stored::import(&args, interrupt),
        GraphCommand::List(args) => return stored::list(&args, interrupt),
        GraphCommand::Info(args) => return stored::info(&args, interrupt),
        GraphCommand::Verify(args) => return stored::verify(&args, interrupt),
        GraphCommand::Delete(args) => return stored::delete(&args, interrupt),
        GraphCommand::Export(args) => return export::run(&args, interrupt),
        GraphCommand::Bfs { sources, together, paths, max_depth, pes, graph } => {
            let together = together.together;
            (Job { algorithm: Algorithm::Bfs { max_depth, together }, sources, paths, graph }, Some(pes))
        }
        GraphCommand::Bc { all, sources, graph } => {
            (Job { algorithm: Algorithm::Betweenness { all }, sources, paths: PathArgs::default(), graph }, None)
        }
        GraphCommand::Cc { strong, pes, graph } => {
            let options = ComponentsOptions::default().strong(strong);
            (without_sources(Algorithm::Components(options), graph), Some(pes))
        }
        GraphCommand::Cdlp { iterations, pes, graph } => {
            let options = CdlpOptions::default().iterations(iterations);
            (without_sources(Algorithm::Cdlp(options), graph), Some(pes))
        }
        GraphCommand::Pagerank { damping, iterations, tolerance, personalize, pes, graph } => {
            let options = PageRankOptions::default().damping(damping);
            let options = match iterations {
                Some(iterations) => options.tolerance(None).iterations(iterations),
                None if tolerance.is_some() => options.tolerance(tolerance),
                None => options,
            };
            (without_sources(Algorithm::PageRank(options, personalize), graph), Some(pes))
        }
        GraphCommand::Tc { pes, graph } => (without_sources(Algorithm::Triangles, graph), Some(pes)),
        GraphCommand::Lcc { pes, graph } => (without_sources(Algorithm::Clustering, graph), Some(pes)),
        GraphCommand::Kcore { graph } => (without_sources(Algorithm::Cores, graph), None),
        GraphCommand::Sssp { sources, paths, delta, max_distance, weights, pes, graph } => {
            let parents = paths.parents || paths.path.is_some();
            let options = SsspOptions::default().delta(delta).parents(parents).max_distance(max_distance);
            (Job { algorithm: Algorithm::Sssp(options, weights), sources, paths, graph }, Some(pes))
        }
    };
    let launched = world::launched()?;
    match (pes, job.on_one_pe(), launched) {
        (Some(pes), None, launched) if pes.pes.is_some() || pes.transport.transport.is_some() || launched.is_some() => {
            partitioned::run(&job, &WorldArgs { pes: pes.pes, transport: pes.transport }, interrupt)
        }
        (Some(pes), Some(option), None) if pes.pes.is_some() || pes.transport.transport.is_some() => {
            Err(Failure::Usage(format!(
                "{option} runs in one process, on one PE; leave {option}, or --pes and --transport, out"
            )))
        }
        (pes, option, Some(launched)) => {
            let name = if pes.is_some() {
                format!("{} {}", job.name(), option.unwrap_or_default())
            } else {
                job.name().to_owned()
            };
            Err(Failure::Usage(format!(
                "{name} runs in one process, and {} started {} ranks, each of which would compute and write the same; start it once, without a launcher or with one rank (all algorithms but graph bc and kcore run on several)",
                launched.via, launched.size
            )))
        }
        _ => job.run(interrupt),
    }
}

/// Converts the error of a check.
fn right(checked: Result<(), VerifyError>) -> Result<(), Failure> {
    checked.map_err(|e| Failure::Error(format!("the result is wrong: {e}; please report this with the command line")))
}

/// Returns the in-lists of a directed graph.
fn inward(csr: &Csr) -> Option<Csr> {
    csr.directed().then(|| csr.transpose())
}

/// Returns the orientation that `--directed` and `--undirected` choose.
pub fn orientation(directed: bool, undirected: bool) -> Orientation {
    match (directed, undirected) {
        (true, _) => Orientation::Directed,
        (_, true) => Orientation::Undirected,
        _ => Orientation::Auto,
    }
}

impl Job {
    /// Returns true for breadth-first search.
    pub fn is_search(&self) -> bool {
        matches!(self.algorithm, Algorithm::Bfs { .. })
    }

    /// Returns the option that needs one PE, if there is one.
    fn on_one_pe(&self) -> Option<&'static str> {
        match &self.algorithm {
            Algorithm::Bfs { together: true, .. } => Some("--together"),
            Algorithm::Components(options) if options.strong => Some("--strong"),
            _ => None,
        }
    }

    /// Returns the name of the command, as in `graph bfs`.
    pub fn name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Betweenness { .. } => "graph bc",
            Algorithm::Bfs { .. } => "graph bfs",
            Algorithm::Cdlp(_) => "graph cdlp",
            Algorithm::Components(_) => "graph cc",
            Algorithm::PageRank(..) => "graph pagerank",
            Algorithm::Triangles => "graph tc",
            Algorithm::Clustering => "graph lcc",
            Algorithm::Cores => "graph kcore",
            Algorithm::Sssp(..) => "graph sssp",
        }
    }

    fn run(&self, interrupt: &Interrupt) -> Result<(), Failure> {
        let args = &self.graph;
        let stored = self.stored()?;
        // Output files and the input are checked before any device is opened.
        let (text, output) = Text::beside_results(&args.report, args.out.as_deref())?;
        interrupt.doing("reading the graph");
        let mut phases = Phases::default();
        let started = Instant::now();
        let input = match stored {
            Some(name) => Input::Stored(name),
            None => Input::Loaded(Box::new(self.load()?)),
        };
        phases.load_ns = nanoseconds(started.elapsed());
        let early = match &input {
            Input::Loaded(loaded) => Some(self.vertices(&loaded.csr)?),
            Input::Stored(_) => None,
        };
        let engine = engine::open(&args.engine)?;
        text.line(format_args!("warpbell {}  engine {engine}", env!("CARGO_PKG_VERSION")))?;
        let started = Instant::now();
        let (subject, store) = {
            let _stop = interrupt.stops(&engine);
            match input {
                Input::Loaded(loaded) => {
                    interrupt.doing("storing the edges");
                    let store = self.store(&engine, &loaded, &text)?;
                    (Subject::Loaded(loaded), store)
                }
                Input::Stored(name) => {
                    interrupt.doing("opening the stored graph");
                    let (graph, store, opening) = self.open(&engine, &name, &text)?;
                    phases.load_ns = nanoseconds(opening);
                    (Subject::Stored(Box::new(graph)), store)
                }
            }
        };
        let placed = nanoseconds(started.elapsed());
        phases.place_ns =
            if matches!(subject, Subject::Stored(_)) { placed.saturating_sub(phases.load_ns) } else { placed };
        let shape = subject.shape();
        let named = early.map_or_else(|| self.vertices(shape), Ok)?;
        self.warn(shape, &named);
        text.line(format_args!("{}", subject.described().line()))?;
        subject.described().notices().try_for_each(|notice| text.line(format_args!("{notice}")))?;
        let (checked, exact) = match &subject {
            Subject::Loaded(loaded) if !args.no_verify => (Some(&loaded.csr), loaded.exact_weights.as_deref()),
            _ => (store.csr.as_ref(), None),
        };

        let mut runner = self.runner(&store.graph, &named, checked.is_some() || output.is_some())?;
        let mut runs = Vec::new();
        let mut results = self.results(output.is_some());
        for sources in self.runs_from(&named.sources) {
            let source = sources[0];
            let mut last = None;
            for _ in 0..args.runs {
                // A result in the engine's memory gives the memory back to the next run.
                drop(last.take());
                interrupt.doing("running kernels");
                let (mut run, outcome) = {
                    let _stop = interrupt.stops(&engine);
                    self.once(&mut runner, &store, shape, sources)?
                };
                if args.verbose {
                    outcome.steps(shape.ids(), &text)?;
                }
                if let Some(csr) = checked {
                    interrupt.doing("checking the result");
                    self.check((csr, exact), source, &named, &outcome, &mut run)?;
                }
                text.line(format_args!("{}{run}", self.prefix(&run)))?;
                last = Some((self.prefix(&run), outcome));
                runs.push(run);
            }
            if let Some((prefix, outcome)) = last {
                let highlights = self.highlights(&outcome, shape.ids(), source, &named);
                text.line(format_args!("{prefix}{highlights}"))?;
                results.add(highlights, outcome)?;
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
        let started = Instant::now();
        if let Some(output) = output {
            results.write(shape.ids(), output)?;
        }
        phases.end(&runs, started.elapsed());
        if args.verbose {
            text.line(format_args!("{phases}"))?;
        }
        if let Some(path) = &args.report.json {
            let results = json!({ "graph": subject.described().facts(), "runs": runs, "summary": summary, "highlights": results.highlights, "phases": phases });
            let mut config = self.config(&store);
            config["verify"] = json!(checked.is_some());
            output::write_json(self.name(), &Report::new(config, &engine, taken, results), path)?;
        }
        Ok(())
    }

    /// Returns the name of the stored graph that the input is, if it is one.
    ///
    /// # Errors
    /// * [`Failure::Usage`] if an option contradicts a stored graph, whose direction, weights and checksums its import
    ///   chose.
    /// * [`Failure::Error`] if no stored graph can have the name.
    pub fn stored(&self) -> Result<Option<GraphName>, Failure> {
        let args = &self.graph;
        let Some(name) = subject::stored_name(&args.input)? else { return Ok(None) };
        let (weights, weights_type) = match &self.algorithm {
            Algorithm::Sssp(_, choice) => (choice.weights != Weights::Input, choice.weights_type != WeightsType::Auto),
            _ => (false, false),
        };
        let given = [
            ("--format", args.format.is_some()),
            ("--names", args.ids.names),
            ("--numbers", args.ids.numbers),
            ("--columns", args.ids.columns.is_some()),
            ("--vertices", args.ids.vertices.is_some()),
            ("--memory", args.memory.is_some()),
            ("--directed", args.directed),
            ("--undirected", args.undirected),
            ("--page-checksums", args.page_checksums),
            ("--weights", weights),
            ("--weights-type", weights_type),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                let input = args.input.display();
                Err(Failure::Usage(format!("{option} is a choice of `graph import`; leave it out with {input}")))
            }
            None => Ok(Some(name)),
        }
    }

    /// Reads or generates the graph, with the weights and self-loops that the algorithm uses.
    ///
    /// # Errors
    /// [`Failure::Error`] if the input cannot be read.
    pub fn load(&self) -> Result<Loaded, Failure> {
        let args = &self.graph;
        let bar = Loading::new();
        let advance = |p| bar.advance(p);
        let (weights, precision) = match &self.algorithm {
            Algorithm::Sssp(_, choice) => {
                let weights = match choice.weights {
                    Weights::Input => WeightMode::Input,
                    Weights::Integers => WeightMode::RandomIntegers,
                    Weights::Reals => WeightMode::RandomReals,
                };
                (weights, choice.weights_type.precision())
            }
            _ => (WeightMode::Ignore, Precision::Auto),
        };
        let mut loaded = subject::load(
            &args.input,
            &LoadOptions::default()
                .format(args.format)
                .ids(args.ids.kind())
                .columns(args.ids.columns.as_ref())
                .vertices(args.ids.vertices)
                .orientation(orientation(args.directed, args.undirected))
                .weights(weights)
                .precision(precision)
                // The check of the results uses the values of the file.
                .exact_weights(weights == WeightMode::Input && !args.no_verify)
                .keep_self_loops(matches!(self.algorithm, Algorithm::PageRank(..)))
                .seed(args.seed)
                .memory(args.memory.map(|bytes| bytes.0))
                .progress(Some(&advance)),
        )?;
        if matches!(self.algorithm, Algorithm::Triangles) && loaded.csr.directed() {
            return Err(GraphError::Directed { algorithm: "triangle counting" }.into());
        }
        // Searches then visit well-connected neighbours first and read the fewest edges. Triangles are found among the
        // first neighbours of each list.
        if !matches!(self.algorithm, Algorithm::PageRank(..) | Algorithm::Sssp(..)) {
            hub::order_by_degree(&mut loaded.csr);
        }
        Ok(loaded)
    }

    /// Returns the source as the prefix of a result line; empty if the user named exactly one source.
    pub fn prefix(&self, run: &GraphRun) -> String {
        if let Some(sources) = &run.sources {
            return format!("{}  ", counted(sources.len(), "source", "sources"));
        }
        let said = self.sources.named().count() == 1;
        run.source.as_ref().filter(|_| !said).map_or_else(String::new, |s| format!("source {s}  "))
    }

    /// Returns the sources of each run. Betweenness centrality takes all in one run, which has them already.
    fn runs_from<'a>(&self, sources: &'a [Option<u64>]) -> Chunks<'a, Option<u64>> {
        match self.algorithm {
            Algorithm::Betweenness { .. } => [None].chunks(1),
            Algorithm::Bfs { together: true, .. } => sources.chunks(MOST_SEARCHES),
            _ => sources.chunks(1),
        }
    }
}

impl Job {
    /// Runs once, timed and counted. Empties the cache first unless `--warm` is set.
    fn once(
        &self,
        runner: &mut Runner,
        store: &Store,
        shape: &dyn GraphShape,
        sources: &[Option<u64>],
    ) -> Result<(GraphRun, Outcome), Failure> {
        if !self.graph.warm {
            store.graph.cool()?;
        }
        let before = store.graph.stats()?;
        let source = sources[0];
        let outcome = runner.run(sources).map_err(|e| match e {
            e @ GraphError::Depths { .. } => {
                Failure::Error(format!("{e}: with fewer --sources, or with --no-verify and without --out"))
            }
            e => store.explain(e),
        })?;
        let after = store.graph.stats()?;
        let mut run = outcome.figures(shape);
        if self.is_strong(shape.directed()) {
            run.rules = "Tarjan's algorithm";
        }
        run.source = source.filter(|_| run.sources.is_none()).map(|v| shape.ids().id(v).into_owned());
        if let (Some(before), Some(after)) = (before, after) {
            let stored = if shape.directed() { run.traversed_edges } else { 2 * run.traversed_edges };
            let pages = store.storage.as_ref().map_or(0, |s| s.pages);
            run.io = Some(Io::new(&(after - before), run.elapsed(), stored).of_pages(pages));
        }
        Ok((run, outcome))
    }

    /// Checks a result against a serial computation, also over the exact weights of the input if edges have rounded ones.
    /// Notes that in the run's figures.
    ///
    /// # Errors
    /// [`Failure::Error`] if the result is wrong, or if PageRank's ranks did not converge.
    pub fn check(
        &self,
        (csr, exact): (&Csr, Option<&[f64]>),
        source: Option<u64>,
        named: &Vertices,
        outcome: &Outcome,
        run: &mut GraphRun,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        self.verify(csr, source, named, outcome)?;
        if let (Some(exact), Outcome::Sssp(result)) = (exact, outcome) {
            let (search, found) = (self.search(source, named), distances(&result.distance));
            right(verify::sssp_of_exact_weights(csr, exact, search, found))?;
            run.weight_tolerance = Some(verify::ROUNDED_WEIGHTS_TOLERANCE);
        }
        run.verification_ns = nanoseconds(started.elapsed());
        run.verified = true;
        Ok(())
    }

    /// Checks a result against a serial computation.
    fn verify(&self, csr: &Csr, source: Option<u64>, named: &Vertices, outcome: &Outcome) -> Result<(), Failure> {
        let search = self.search(source, named);
        let wrong = match outcome {
            Outcome::Betweenness(r) => {
                let sources: Vec<u64> = r.sources.iter().map(|s| s.source).collect();
                verify::betweenness(csr, &sources, &r.score)
            }
            Outcome::Bfs(r) => match &r.parent {
                Some(parents) => verify::bfs_parents(csr, search, &r.depth, parents),
                None => verify::bfs(csr, search, &r.depth),
            },
            Outcome::MultiBfs(batch) => {
                batch.check(|source, depths| verify::bfs(csr, verify::Search { source, ..search }, depths))?
            }
            Outcome::Cdlp(r) => {
                let Algorithm::Cdlp(options) = &self.algorithm else { return Ok(()) };
                verify::cdlp(csr, inward(csr).as_ref(), options.iterations, &r.label)
            }
            Outcome::Components(r) if self.is_strong(csr.directed()) => verify::strong_components(csr, &r.label),
            Outcome::Components(r) => verify::components(csr, &r.label),
            Outcome::PageRank(r) => self.verify_ranks(csr, r, &named.personalization())?,
            Outcome::Triangles(r) => verify::triangles(csr, &r.triangles, r.total),
            Outcome::Clustering(r) => verify::clustering(csr, inward(csr).as_ref(), &r.coefficient),
            Outcome::Cores(r) => verify::cores(csr, inward(csr).as_ref(), &r.core),
            Outcome::Sssp(r) => match &r.parent {
                Some(parents) => verify::sssp_parents(csr, search, distances(&r.distance), parents),
                None => verify::sssp(csr, search, distances(&r.distance)),
            },
        };
        right(wrong)
    }

    /// Returns true for strongly connected components. In an undirected graph they are the connected ones.
    fn is_strong(&self, directed: bool) -> bool {
        directed && matches!(&self.algorithm, Algorithm::Components(options) if options.strong)
    }

    /// Returns the search from a source, as the check takes it.
    fn search(&self, source: Option<u64>, named: &Vertices) -> verify::Search {
        let limit = match &self.algorithm {
            Algorithm::Bfs { max_depth, .. } => max_depth.map(f64::from),
            Algorithm::Sssp(options, _) => options.max_distance,
            _ => None,
        };
        verify::Search { source: source.unwrap_or_default(), target: named.target, limit }
    }

    /// Returns an empty collection of results, which keeps values, and parents if they are to be written.
    pub fn results(&self, keeps_values: bool) -> Results {
        Results::new(keeps_values, self.paths.parents)
    }

    /// Computes the highlights from a result.
    pub fn highlights(&self, outcome: &Outcome, ids: &Ids, source: Option<u64>, named: &Vertices) -> Highlights {
        let highlights = Highlights::of(outcome, ids, source, self.graph.top);
        match named.target {
            Some(target) => highlights.to(target, self.paths.path.is_some(), outcome, ids),
            None => highlights,
        }
    }

    fn verify_ranks(
        &self,
        csr: &Csr,
        result: &PageRankResult,
        personalization: &[(u64, f64)],
    ) -> Result<Result<(), VerifyError>, Failure> {
        let Algorithm::PageRank(options, _) = &self.algorithm else { return Ok(Ok(())) };
        let inward = inward(csr);
        let last = result.iterations.last().map_or(0.0, |i| i.change);
        match options.tolerance {
            Some(tolerance) if !result.converged => Err(Failure::Error(format!(
                "PageRank did not converge: the ranks still changed by {last:.1e} after {} iterations, more than {tolerance:e}; raise --tolerance, or fix the number with --iterations",
                result.iterations.len()
            ))),
            Some(tolerance) => {
                let rule = verify::PageRank { damping: options.damping, tolerance, personalization };
                Ok(verify::pagerank(csr, inward.as_ref(), rule, &result.rank))
            }
            None => {
                let rule = verify::PageRank { damping: options.damping, personalization, ..Default::default() };
                Ok(verify::pagerank_after(csr, inward.as_ref(), rule, options.iterations, &result.rank))
            }
        }
    }
}
