//! Runs an algorithm of `warpbell graph` on several PEs: partitions the graph, places each PE's part, runs on all PEs,
//! checks on PE 0.

mod store;

use crate::args::{DeviceArgs, Edges, WorldArgs};
use crate::graph::{Job, Outcome, Results, Subject, Vertices, cache_bytes};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::workloads::graph::{GraphRun, Io, Summary};
use crate::workloads::phases::Phases;
use crate::workloads::report::{Report, nanoseconds};
use crate::world;
use crate::{device, engine};
use serde_json::json;
use std::sync::mpsc;
use std::time::Instant;
use store::{Algorithm, Lists, Ran, Store};
use warpbell::graph::partition::{PartitionPlan, heap_bytes};
use warpbell::graph::stored::{GraphName, StoredGraph};
use warpbell::graph::{GraphError, Placement};
use warpbell::shmem::{ShmemError, World};
use warpbell::spec::PE;
use warpbell::storage::{Cache, Stats, Volume};

/// Results on PE 0.
struct Answer {
    runs: Vec<GraphRun>,
    results: Results,
    place_ns: u64,
    parts: Vec<serde_json::Value>,
    transport: serde_json::Value,
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
    let opened = stored.as_ref().map(|name| job.open_part(name, &plan)).transpose()?.flatten();
    let subject = match (opened, &stored) {
        (Some(part), _) => Subject::Stored(Box::new(part)),
        (None, Some(name)) => Subject::Loaded(Box::new(job.read_stored(name, interrupt)?)),
        (None, None) => Subject::Loaded(Box::new(job.load()?)),
    };
    let mut phases = Phases { load_ns: nanoseconds(started.elapsed()), ..Phases::default() };
    let (shape, described) = (subject.shape(), subject.described());
    plan.agree("graph", || subject.identity())?;
    let named = job.vertices(shape)?;
    if plan.speaks() {
        job.warn(shape, &named);
    }
    text.line(format_args!("warpbell {}  {plan}", env!("CARGO_PKG_VERSION")))?;
    text.line(format_args!("{}", described.line()))?;
    described.notices().try_for_each(|notice| text.line(format_args!("{notice}")))?;

    let source = match &subject {
        Subject::Loaded(loaded) => Source::Loaded(PartitionPlan::new(&loaded.csr, plan.pes(), true)),
        Subject::Stored(part) => Source::Stored(part.name()),
    };
    let options = job.bfs_options(&named);
    let heap = match &source {
        Source::Loaded(partition) if job.is_search() => partition.heap_bytes(&options),
        Source::Loaded(partition) => partition.mirrored_heap_bytes(),
        Source::Stored(_) => heap_bytes(shape.vertices(), plan.pes(), job.is_search().then_some(&options)),
    };
    let work =
        Work { job, devices: &devices, subject: &subject, source: &source, named: &named, text: &text, interrupt };
    interrupt.doing("running kernels on all PEs");
    let answers = plan.run(heap, interrupt, |world| work.on(world))?;
    let Some(answer) = answers.into_iter().flatten().next() else { return Ok(()) };
    let summary = if answer.runs.len() > 1 { Summary::of(&answer.runs) } else { None };
    if let Some(s) = &summary {
        text.line(format_args!("{s}"))?;
    }
    interrupt.doing("writing the results");
    let _noted = interrupt.is_noted();
    let started = Instant::now();
    if let Some(output) = output {
        answer.results.write(shape.ids(), output)?;
    }
    phases.place_ns = answer.place_ns;
    phases.end(&answer.runs, started.elapsed());
    if args.verbose {
        text.line(format_args!("{phases}"))?;
    }
    if let Some(path) = &args.report.json {
        let results = json!({ "graph": described.facts(), "pes": answer.parts, "transport": answer.transport, "runs": answer.runs, "summary": summary, "highlights": answer.results.highlights, "phases": phases });
        let engine = &plan.engines()[0];
        output::write_json(job.name(), &Report::new(config(job, plan.pes()), engine, None, results), path)?;
    }
    Ok(())
}

impl Job {
    /// Opens the part of this process's first PE, if its devices have a part of the graph.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the results of parts are to be verified, if there are other numbers of parts than of PEs, or if devices for
    /// each PE hold a whole graph; [`Failure::Error`] if such a device cannot be read.
    fn open_part(&self, name: &GraphName, plan: &world::Plan) -> Result<Option<StoredGraph>, Failure> {
        let args = &self.graph;
        let open = || -> Result<StoredGraph, Failure> {
            let devices = device::of_pe(&args.device, plan.first(), plan.pes())?;
            let volume = device::stored(&devices, &engine::for_host(args.engine.deadline)?, args.page.transfer())?;
            Ok(StoredGraph::open(&volume, name)?)
        };
        let opened = open();
        let part = opened.as_ref().ok().and_then(|stored| stored.info().part);
        let (stored, own) = match (opened, part) {
            (Ok(stored), Some(own)) => (stored, own),
            // Devices for each PE hold parts. Others may hold a whole graph together, and say what is wrong if they do not.
            (Ok(_), None) if device::has_pe(&args.device)? => {
                return Err(Failure::Usage(format!("stored:{name} is whole; name its device without {PE}")));
            }
            (Err(e), _) if device::has_pe(&args.device)? => return Err(e),
            _ => return Ok(None),
        };
        if args.verify {
            return Err(Failure::Usage(format!(
                "--verify needs all edges in one place, and stored:{name} is in {} parts; import it whole to check results, or leave --verify out",
                own.parts
            )));
        }
        if own.parts != plan.pes() {
            let (parts, pes) = (own.parts, plan.pes());
            return Err(Failure::Usage(format!(
                "stored:{name} is in {parts} parts, and there are {pes} PEs; run it with --pes {parts}, or {parts} ranks"
            )));
        }
        Ok(Some(stored))
    }
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

/// Origin of the lists of all PEs.
enum Source<'a> {
    /// Partition of a graph that was loaded.
    Loaded(PartitionPlan<'a>),
    /// Name of a stored graph, of which each PE opens its part.
    Stored(&'a GraphName),
}

/// Inputs of the work that every PE of this process does.
struct Work<'a> {
    job: &'a Job,
    devices: &'a DeviceArgs,
    /// The graph, or the part of this process's first PE.
    subject: &'a Subject,
    source: &'a Source<'a>,
    named: &'a Vertices,
    text: &'a Text,
    interrupt: &'a Interrupt,
}

impl Work<'_> {
    fn on(&self, world: &World) -> Result<Option<Answer>, Failure> {
        let args = &self.job.graph;
        let speaks = world.my_pe() == 0;
        let part = self.together(world, self.lists(world))?;
        let started = Instant::now();
        // No PE writes its part before all PEs have opened their volumes.
        let volume = self.together(world, self.volume(world, &part))?;
        let placement = self.together(world, self.placement(&part, volume.as_ref()))?;
        let report = self.together(world, part.report(volume.as_ref()).map_err(Failure::from))?;
        // All PEs place their lists, or none: stored parts are compared.
        let graph = self.together(world, part.place(world, placement).map_err(Failure::from))?;
        let mut store = Store { graph, volume, report };
        let line = store.line(args.edges);
        let lines = world.allgather(line.as_bytes())?;
        if speaks {
            self.text.line(format_args!("transport {}", world.path()))?;
            for (pe, line) in lines.iter().enumerate() {
                self.text.line(format_args!("PE {pe:<4}{}", String::from_utf8_lossy(line)))?;
            }
        }
        let mut algorithm = Algorithm::new(self.job, &store.graph, world, self.named)?;
        let mut answer = Answer {
            runs: Vec::new(),
            results: self.job.results(args.out.is_some()),
            place_ns: nanoseconds(started.elapsed()),
            parts: Vec::new(),
            transport: json!(world.path()),
        };
        for &source in &self.named.sources {
            let mut last = None;
            for _ in 0..args.runs {
                let ran = self.once(world, &store, &mut algorithm, source)?;
                let judged = meanwhile(world, || {
                    let Some(outcome) = ran.outcome else { return Ok(None) };
                    self.judge(source, ran.io, ran.put_bytes, outcome).map(Some)
                })?;
                if let Some((run, outcome)) = judged {
                    self.text.line(format_args!("{}{run}", self.job.prefix(&run)))?;
                    last = Some((self.job.prefix(&run), outcome));
                    answer.runs.push(run);
                }
            }
            if let Some((prefix, outcome)) = last {
                let highlights = self.job.highlights(&outcome, self.subject.shape().ids(), source, self.named);
                self.text.line(format_args!("{prefix}{highlights}"))?;
                answer.results.add(highlights, outcome)?;
            }
        }
        drop(algorithm);
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

    /// Returns the lists of a PE: of the graph that was loaded, or in its part of a stored one.
    fn lists(&self, world: &World) -> Result<Lists, Failure> {
        let (args, pe) = (&self.job.graph, world.my_pe());
        let name = match self.source {
            Source::Loaded(partition) => return Lists::of(self.job, partition, pe),
            Source::Stored(name) => name,
        };
        let devices = device::of_pe(&args.device, pe, world.n_pes())?;
        let volume = device::stored(&devices, world.engine(), args.page.transfer())?;
        let stored = StoredGraph::open(&volume, name)?;
        Lists::stored(self.job, stored, volume)
    }

    /// Opens the PE's own devices, if edges are stored on devices.
    fn volume(&self, world: &World, part: &Lists) -> Result<Option<Volume>, Failure> {
        let args = &self.job.graph;
        if args.edges != Edges::Storage {
            return Ok(None);
        }
        if let Some(volume) = part.own_volume() {
            return Ok(Some(volume.clone()));
        }
        let devices = device::of_pe(self.devices, world.my_pe(), world.n_pes())?;
        let plan = part.plan().page_checksums(args.page_checksums);
        let volume = device::volume(&devices, world.engine(), &plan, args.page.transfer())?;
        part.check_volume(&volume)?;
        Ok(Some(volume))
    }

    fn placement(&self, part: &Lists, volume: Option<&Volume>) -> Result<Placement, Failure> {
        let args = &self.job.graph;
        Ok(match volume {
            Some(volume) => {
                let bytes = cache_bytes(args, part.edge_bytes()?);
                Placement::Storage(Cache::on(volume).bytes(bytes).page(device::page(args.page.page_size)).build()?)
            }
            None if args.edges == Edges::Pinned => Placement::Pinned,
            None => Placement::Gpu,
        })
    }

    /// Runs once, after emptying the cache unless `--warm` is set.
    fn once(
        &self,
        world: &World,
        store: &Store,
        algorithm: &mut Algorithm,
        source: Option<u64>,
    ) -> Result<Ran, Failure> {
        let cooled = if self.job.graph.warm { Ok(()) } else { store.graph.on_engine().cool() };
        self.together(world, cooled.map_err(Failure::from))?;
        match algorithm.run(source) {
            // A kernel that was not launched reports nothing to the others, whose kernels would wait for it until their
            // deadline. The loss of this PE ends them.
            Err(e @ GraphError::Engine(_)) => {
                world.abandon();
                let text = reason(&store.explain(e));
                Err(Failure::Error(format!("PE {}: {text}", world.my_pe())))
            }
            result => self.together(world, result.map_err(|e| store.explain(e))),
        }
    }

    /// Computes the figures of a run on PE 0, and checks its result. Returns nothing on other PEs.
    fn judge(
        &self,
        source: Option<u64>,
        io: Option<Stats>,
        put_bytes: Option<u64>,
        outcome: Outcome,
    ) -> Result<(GraphRun, Outcome), Failure> {
        let args = &self.job.graph;
        let shape = self.subject.shape();
        let mut run = outcome.figures(shape);
        run.source = source.map(|v| shape.ids().id(v).into_owned());
        run.put_bytes = put_bytes;
        if let Some(io) = &io {
            let stored = if shape.directed() { run.traversed_edges } else { 2 * run.traversed_edges };
            run.io = Some(Io::new(io, run.elapsed(), stored));
        }
        if args.verbose {
            outcome.steps(shape.ids(), self.text)?;
        }
        if let (Subject::Loaded(loaded), false) = (self.subject, args.no_verify) {
            let exact = loaded.exact_weights.as_deref();
            self.job.check((&loaded.csr, exact), source, self.named, &outcome, &mut run)?;
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

fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Error(text) | Failure::Usage(text) | Failure::Status(text, _) => text.clone(),
        Failure::BrokenPipe | Failure::Printed(_) => String::new(),
    }
}

/// Returns true if the text of an error only says that another PE has failed.
fn is_hearsay(text: &str) -> bool {
    text.starts_with("the run ended because PE ")
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
