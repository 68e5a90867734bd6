//! Runs `warpbell graph bfs` on several PEs: partitions the graph, places each PE's part, searches on all PEs, checks
//! on PE 0.

use crate::args::{DeviceArgs, Edges, WorldArgs};
use crate::device;
use crate::graph::{Described, Job, Outcome, Results, Vertices, cache_bytes};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::workloads::graph::{GraphRun, Io, Summary};
use crate::workloads::phases::Phases;
use crate::workloads::report::{PathReport, Report, nanoseconds};
use crate::world;
use serde::Serialize;
use serde_json::json;
use std::sync::mpsc;
use std::time::Instant;
use warpbell::graph::partition::{
    Part, PartitionPlan, PartitionedBfs, PartitionedBfsOptions, PartitionedBfsResult, PartitionedGraph,
};
use warpbell::graph::{BfsResult, GraphError, Loaded, Placement};
use warpbell::shmem::{ShmemError, World};
use warpbell::storage::{Cache, Volume};
use warpbell::units::{Bytes, counted};

/// Facts about one PE's part, for text and JSON.
#[derive(Serialize)]
struct PartReport {
    vertices: u64,
    stored_edges: u64,
    edge_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathReport>,
}

/// Results on PE 0.
struct Answer {
    runs: Vec<GraphRun>,
    results: Results,
    place_ns: u64,
    parts: Vec<serde_json::Value>,
    transport: serde_json::Value,
}

/// A PE's part of the graph where its kernels reach it, with the volume below it.
struct Store {
    graph: PartitionedGraph,
    volume: Option<Volume>,
    report: PartReport,
}

/// Runs the job on the PEs that the command line or the launcher names.
///
/// # Errors
/// * [`Failure::Usage`] if options contradict each other or the launcher, or if devices and PEs do not fit together.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if the input, a device, the world or a search fails on any PE, or if the result is wrong.
pub fn run(job: &Job, world: &WorldArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let args = &job.graph;
    let plan = world::Plan::new(world, &args.engine)?;
    let stored = job.stored()?;
    // The devices of a stored graph hold the graph. Its parts are where those of a file are if no device is named.
    let devices = if stored.is_some() { device::unnamed(&args.device) } else { args.device.clone() };
    // Invalid device options fail before any device is opened.
    device::of_pe(&devices, 0, plan.pes())?;
    let (text, output) = match plan.speaks() {
        true => Text::beside_results(&args.report, args.out.as_deref())?,
        false => (Text::none(), None),
    };
    interrupt.doing("reading the graph");
    let started = Instant::now();
    let loaded = match &stored {
        Some(name) => job.read_stored(name, interrupt)?,
        None => job.load()?,
    };
    let mut phases = Phases { load_ns: nanoseconds(started.elapsed()), ..Phases::default() };
    let csr = &loaded.csr;
    plan.agree("graph", || Described::from(&loaded).identity(csr))?;
    let named = job.vertices(csr)?;
    if plan.speaks() {
        job.warn(csr, &named);
    }
    let sources = named.sources.iter().flatten().copied().collect::<Vec<_>>();
    text.line(format_args!("warpbell {}  {plan}", env!("CARGO_PKG_VERSION")))?;
    text.line(format_args!("{}", Described::from(&loaded).line()))?;
    Described::from(&loaded).notices().try_for_each(|notice| text.line(format_args!("{notice}")))?;

    let partition = PartitionPlan::new(csr, plan.pes(), true);
    let options = PartitionedBfsOptions::default().search(job.bfs_options(&named));
    let work = Work {
        job,
        devices: &devices,
        loaded: &loaded,
        partition: &partition,
        sources: &sources,
        named: &named,
        options: &options,
        text: &text,
        interrupt,
    };
    interrupt.doing("searching on all PEs");
    let answers = plan.run(partition.heap_bytes(&options.search), interrupt, |world| work.on(world))?;
    let Some(answer) = answers.into_iter().flatten().next() else { return Ok(()) };
    let summary = if answer.runs.len() > 1 { Summary::of(&answer.runs) } else { None };
    if let Some(s) = &summary {
        text.line(format_args!("{s}"))?;
    }
    interrupt.doing("writing the results");
    let _noted = interrupt.is_noted();
    let started = Instant::now();
    if let Some(output) = output {
        answer.results.write(csr.ids(), output)?;
    }
    phases.place_ns = answer.place_ns;
    phases.end(&answer.runs, started.elapsed());
    if args.verbose {
        text.line(format_args!("{phases}"))?;
    }
    if let Some(path) = &args.report.json {
        let results = json!({ "graph": Described::from(&loaded).facts(), "pes": answer.parts, "transport": answer.transport, "runs": answer.runs, "summary": summary, "highlights": answer.results.highlights, "phases": phases });
        let engine = &plan.engines()[0];
        output::write_json(job.name(), &Report::new(config(job, plan.pes()), engine, None, results), path)?;
    }
    Ok(())
}

/// Returns every setting that affects the figures, for the JSON report.
fn config(job: &Job, pes: usize) -> serde_json::Value {
    let args = &job.graph;
    let mut config = json!({
        "input": args.input.to_string_lossy(),
        "seed": args.seed,
        "pes": pes,
        "edges": args.edges,
        "runs": args.runs,
        "verify": !args.no_verify,
        "deadline_ns": nanoseconds(args.engine.deadline),
        "warm": args.warm,
        "page_bytes": args.page.page_size.0,
    });
    job.describe_search(&mut config);
    config
}

/// Inputs of the work that every PE of this process does.
struct Work<'a> {
    job: &'a Job,
    devices: &'a DeviceArgs,
    loaded: &'a Loaded,
    partition: &'a PartitionPlan<'a>,
    sources: &'a [u64],
    named: &'a Vertices,
    options: &'a PartitionedBfsOptions,
    text: &'a Text,
    interrupt: &'a Interrupt,
}

impl Work<'_> {
    fn on(&self, world: &World) -> Result<Option<Answer>, Failure> {
        let args = &self.job.graph;
        let speaks = world.my_pe() == 0;
        let part = self.partition.part(world.my_pe());
        let started = Instant::now();
        // No PE writes its part before all PEs have opened their volumes.
        let volume = self.together(world, self.volume(world, &part))?;
        let mut store = self.together(world, self.store(world, &part, volume))?;
        let line = store.line(args.edges);
        let lines = world.allgather(line.as_bytes())?;
        if speaks {
            self.text.line(format_args!("transport {}", world.path()))?;
            for (pe, line) in lines.iter().enumerate() {
                self.text.line(format_args!("PE {pe:<4}{}", String::from_utf8_lossy(line)))?;
            }
        }
        let mut search = PartitionedBfs::new(&store.graph, self.options)?;
        let mut answer = Answer {
            runs: Vec::new(),
            results: self.job.results(args.out.is_some()),
            place_ns: nanoseconds(started.elapsed()),
            parts: Vec::new(),
            transport: json!(world.path()),
        };
        for &source in self.sources {
            let mut last = None;
            for _ in 0..args.runs {
                let (result, tree) = self.search(world, &store, &mut search, source)?;
                let judged = meanwhile(world, || {
                    let Some(tree) = tree else { return Ok(None) };
                    self.judge(source, &result, tree).map(Some)
                })?;
                if let Some((run, outcome)) = judged {
                    self.text.line(format_args!("{}{run}", self.job.prefix(&run)))?;
                    last = Some((self.job.prefix(&run), outcome));
                    answer.runs.push(run);
                }
            }
            if let Some((prefix, outcome)) = last {
                let highlights = self.job.highlights(&outcome, self.loaded.csr.ids(), Some(source), self.named);
                self.text.line(format_args!("{prefix}{highlights}"))?;
                answer.results.add(highlights, outcome)?;
            }
        }
        drop(search);
        let taken = store.volume.as_ref().map(device::path_after).transpose();
        store.report.path = self.together(world, taken)?;
        let copies = store.report.path.as_ref().map(device::copies).unwrap_or_default();
        for (pe, copies) in world.allgather(copies.as_bytes())?.iter().enumerate().filter(|(_, c)| !c.is_empty()) {
            if speaks {
                self.text.line(format_args!("PE {pe:<4}{}", String::from_utf8_lossy(copies)))?;
            }
        }
        let parts = world.allgather(&serde_json::to_vec(&store.report)?)?;
        answer.parts = parts.iter().map(|p| serde_json::from_slice(p)).collect::<Result<_, _>>()?;
        Ok(speaks.then_some(answer))
    }

    /// Opens the PE's own devices, if edges are stored on devices.
    fn volume(&self, world: &World, part: &Part) -> Result<Option<Volume>, Failure> {
        let args = &self.job.graph;
        if args.edges != Edges::Storage {
            return Ok(None);
        }
        let devices = device::of_pe(self.devices, world.my_pe(), world.n_pes())?;
        let plan = part.plan().page_checksums(args.page_checksums);
        let volume = device::volume(&devices, world.engine(), &plan, args.page.transfer())?;
        part.check_volume(&volume)?;
        Ok(Some(volume))
    }

    fn store(&self, world: &World, part: &Part, volume: Option<Volume>) -> Result<Store, Failure> {
        let args = &self.job.graph;
        let placement = match &volume {
            Some(volume) => {
                let bytes = cache_bytes(args, part.edge_bytes());
                Placement::Storage(Cache::on(volume).bytes(bytes).page(device::page(args.page.page_size)).build()?)
            }
            None if args.edges == Edges::Pinned => Placement::Pinned,
            None => Placement::Gpu,
        };
        let report = PartReport {
            vertices: part.vertices(),
            stored_edges: part.arcs(),
            edge_bytes: part.edge_bytes(),
            path: volume.as_ref().map(device::path),
        };
        Ok(Store { graph: PartitionedGraph::place(world, self.partition, part, placement)?, volume, report })
    }

    /// Searches once, after emptying the cache unless `--warm` is set. Returns depths and parents on PE 0 only.
    fn search(
        &self,
        world: &World,
        store: &Store,
        search: &mut PartitionedBfs,
        source: u64,
    ) -> Result<(PartitionedBfsResult, Option<BfsResult>), Failure> {
        let cooled = if self.job.graph.warm { Ok(()) } else { store.graph.part().cool() };
        self.together(world, cooled.map_err(Failure::from))?;
        let result = match search.run(source) {
            // A kernel that was not launched reports nothing to the others, whose kernels would wait for it until their
            // deadline. The loss of this PE ends them.
            Err(e @ GraphError::Engine(_)) => {
                world.abandon();
                let text = reason(&store.explain(e));
                return Err(Failure::Error(format!("PE {}: {text}", world.my_pe())));
            }
            result => self.together(world, result.map_err(|e| store.explain(e)))?,
        };
        let tree = search.gather(result.clone())?;
        Ok((result, tree))
    }

    /// Computes the figures of a run, and checks its result.
    fn judge(
        &self,
        source: u64,
        result: &PartitionedBfsResult,
        tree: BfsResult,
    ) -> Result<(GraphRun, Outcome), Failure> {
        let args = &self.job.graph;
        let csr = &self.loaded.csr;
        let outcome = Outcome::Bfs(tree);
        let mut run = outcome.figures(csr);
        run.source = Some(csr.ids().id(source).into_owned());
        run.put_bytes = Some(result.put_bytes);
        if let Some(io) = &result.io {
            let stored = if csr.directed() { run.traversed_edges } else { 2 * run.traversed_edges };
            run.io = Some(Io::new(io, run.elapsed(), stored));
        }
        if args.verbose {
            outcome.steps(csr.ids(), self.text)?;
        }
        if !args.no_verify {
            let started = Instant::now();
            self.job.verify(csr, Some(source), self.named, &outcome)?;
            run.verification_ns = nanoseconds(started.elapsed());
            run.verified = true;
        }
        Ok((run, outcome))
    }

    /// Returns this PE's result of a step if the step succeeded on all PEs. Otherwise fails with an error that names the
    /// first PE with an error of its own; this PE's [`Failure::Usage`] is returned as it is. Collective, but for a PE that
    /// a signal has stopped: the others notice the end of its process, while their kernels still wait for it.
    fn together<T>(&self, world: &World, own: Result<T, Failure>) -> Result<T, Failure> {
        if own.is_err() && self.interrupt.end().is_some() {
            return own;
        }
        let mut word = own.as_ref().err().map_or_else(String::new, reason);
        if word.is_empty() && own.is_err() {
            word = "standard output was closed".to_owned();
        }
        let words = match world.allgather(word.as_bytes()) {
            Ok(words) => words,
            // A PE with an error of its own reports that error; the others know only which PE is missing.
            Err(e) => return own.and_then(|_| Err(e.into())),
        };
        let failed: Vec<(usize, String)> = words
            .iter()
            .enumerate()
            .filter(|(_, w)| !w.is_empty())
            .map(|(pe, w)| (pe, String::from_utf8_lossy(w).into_owned()))
            .collect();
        let Some(first) = failed.iter().find(|(_, w)| !is_hearsay(w)).or(failed.first()) else { return own };
        match own {
            Err(Failure::Usage(text)) => Err(Failure::Usage(text)),
            _ => Err(Failure::Error(format!("PE {}: {}", first.0, first.1))),
        }
    }
}

impl Store {
    /// Returns a line such as `16,384 vertices  262,144 stored edges  1 MiB  soft:mem  queues host  ...`.
    fn line(&self, edges: Edges) -> String {
        let r = &self.report;
        let vertices = counted(r.vertices, "vertex", "vertices");
        let (arcs, bytes) = (counted(r.stored_edges, "stored edge", "stored edges"), Bytes(r.edge_bytes));
        let place = match (&self.volume, self.graph.part().placement()) {
            (Some(v), Placement::Storage(cache)) => {
                format!("{}  {} x {} entries  cache {}", v.path(), v.queues(), v.depth(), Bytes(cache.bytes()))
            }
            _ if edges == Edges::Pinned => "pinned memory".to_owned(),
            _ => "engine's memory".to_owned(),
        };
        format!("{vertices}  {arcs} ({bytes})  {place}")
    }

    /// Converts the error of a failed run; adds the devices' error if there is one.
    fn explain(&self, e: GraphError) -> Failure {
        match (&e, self.volume.as_ref().map(Volume::check)) {
            (GraphError::OtherPe { .. }, _) => e.into(),
            (_, Some(Err(why))) => Failure::Error(format!("{e}; {why}")),
            _ => e.into(),
        }
    }
}

fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Error(text) | Failure::Usage(text) | Failure::Status(text, _) => text.clone(),
        Failure::BrokenPipe => String::new(),
    }
}

/// Returns true if the text of an error only says that another PE has failed.
fn is_hearsay(text: &str) -> bool {
    text.starts_with("the search ended because PE ")
}

/// Runs `work`, which may take long, on PE 0. The other PEs wait without reaching their deadline. Returns `None` on
/// them.
fn meanwhile<R: Send>(
    world: &World,
    work: impl FnOnce() -> Result<Option<R>, Failure> + Send,
) -> Result<Option<R>, Failure> {
    const BUSY: &[u8] = b"busy";
    const DONE: &[u8] = b"done";
    let said = |mine: &[u8]| -> Result<bool, ShmemError> {
        let all = world.allgather(mine)?;
        Ok(all.first().is_some_and(|first| first == DONE))
    };
    if world.my_pe() != 0 {
        while !said(&[])? {}
        return Ok(None);
    }
    std::thread::scope(|s| {
        let (tell, hear) = mpsc::channel();
        let thread = std::thread::Builder::new().name("wb-check".to_owned());
        if let Err(e) = thread.spawn_scoped(s, move || tell.send(work())) {
            said(DONE)?;
            return Err(Failure::about("the thread that checks the result cannot be started", e));
        }
        loop {
            match hear.recv_timeout(world.timeout() / 4) {
                Ok(result) => {
                    said(DONE)?;
                    return result;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => said(BUSY).map(drop)?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Error(
                        "the thread that checks the result panicked; please report this with the command line"
                            .to_owned(),
                    ));
                }
            }
        }
    })
}
