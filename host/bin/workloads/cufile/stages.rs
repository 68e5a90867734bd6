//! Stages of a measurement: all threads prepare their buffers, then make rounds of operations, then check what they read.

use super::api::{self, Api, Buffer, Registered, Rounds, Shape, Site};
use super::error::CufileError;
use super::pattern::{Choice, Geometry, Operation};
use super::{LEAST_DEADLINE, histogram};
use crate::workloads::error::MeasureError;
use crate::workloads::histogram::Histogram;
use crate::workloads::nvme::NvmeJob;
use crate::workloads::report::nanoseconds;
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use warpbell::engine::Engine;

/// Engine, file, memory and job of all threads.
pub struct Settings<'a> {
    pub engine: &'a Engine,
    pub file: &'a Registered<'a>,
    pub buffer: &'a Buffer<'a>,
    pub api: Api,
    pub shape: Shape,
    /// Rounds that a thread's part of the buffer holds.
    pub rounds: usize,
    pub job: &'a NvmeJob,
    /// Duration of the measurement.
    pub runtime: Duration,
    pub geometry: Geometry,
}

/// Counts of all threads together: reads, then writes.
pub struct Counts {
    pub commands: [u64; 2],
    pub histograms: [Histogram; 2],
    /// Time of all timed stages.
    pub elapsed: Duration,
}

/// Work that the threads do next.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Choose operations, and fill the buffer.
    Prepare,
    /// Make operations until this time.
    Run(Instant),
    /// Check what was read.
    Check,
    Quit,
}

struct Order {
    /// Number of the stage, from 1; 0 before the first.
    number: u64,
    stage: Stage,
    /// Threads that have done the stage.
    finished: usize,
}

/// Where the threads wait for stages.
struct Gate {
    order: Mutex<Order>,
    changed: Condvar,
    /// Ends the rounds of all threads.
    stop: AtomicBool,
}

impl Gate {
    fn new() -> Self {
        let order = Mutex::new(Order { number: 0, stage: Stage::Prepare, finished: 0 });
        Self { order, changed: Condvar::new(), stop: AtomicBool::new(false) }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn begin(&self, stage: Stage) {
        self.stop.store(false, Ordering::Relaxed);
        let mut order = self.order.lock();
        *order = Order { number: order.number + 1, stage, finished: 0 };
        self.changed.notify_all();
    }

    /// Lets `threads` threads do a stage. Ends its rounds early if the engine was told to stop.
    fn stage(&self, stage: Stage, threads: usize, engine: &Engine) {
        /// Time between two looks at the engine.
        const LOOK: Duration = Duration::from_millis(50);
        self.begin(stage);
        let mut order = self.order.lock();
        while order.finished < threads {
            self.changed.wait_for(&mut order, LOOK);
            if is_stopped(engine) {
                self.stop();
            }
        }
    }

    /// Waits for the stage after `number`.
    fn next(&self, number: u64) -> (u64, Stage) {
        let mut order = self.order.lock();
        self.changed.wait_while(&mut order, |order| order.number == number);
        (order.number, order.stage)
    }

    fn finish(&self) {
        self.order.lock().finished += 1;
        self.changed.notify_all();
    }
}

fn is_stopped(engine: &Engine) -> bool {
    engine.is_cancelled() || engine.stopped_for().is_some()
}

/// State of one thread, which the main thread reads between stages.
struct Record {
    choices: Vec<Choice>,
    /// Operations of the stage, by slot.
    operations: Vec<Operation>,
    /// Operations that have completed, from the first slot on.
    completed: usize,
    commands: [u64; 2],
    histograms: [Histogram; 2],
    /// Begin and end of the rounds of the last stage.
    span: Option<(Instant, Instant)>,
    failure: Option<MeasureError>,
}

/// Runs all stages.
///
/// # Errors
/// The first error of a thread, or [`MeasureError::Stopped`].
pub fn run(settings: &Settings<'_>) -> Result<Counts, MeasureError> {
    let (threads, each) = (settings.shape.threads as usize, settings.shape.each as usize);
    let units = settings.job.size_bytes / settings.job.most_bytes();
    let lanes = (threads * each) as u64;
    let records: Vec<Mutex<Record>> = (0..threads as u64)
        .map(|t| {
            Mutex::new(Record {
                choices: Choice::of(t * each as u64..(t + 1) * each as u64, lanes, settings.job, units),
                operations: Vec::new(),
                completed: 0,
                commands: [0; 2],
                histograms: [histogram(), histogram()],
                span: None,
                failure: None,
            })
        })
        .collect();
    let gate = Gate::new();
    let elapsed = std::thread::scope(|scope| {
        let mut started = 0;
        let spawned = records.iter().enumerate().try_for_each(|(i, record)| {
            let (gate, name) = (&gate, format!("wb-cufile-{i}"));
            let work = move || worker(settings, gate, i, record);
            let done = std::thread::Builder::new().name(name).spawn_scoped(scope, work);
            started += usize::from(done.is_ok());
            done.map(drop)
        });
        let result = match spawned {
            Ok(()) => stages(settings, &gate, &records),
            Err(source) => Err(CufileError::Setup { what: "starting a thread that calls cuFile", source }.into()),
        };
        gate.begin(Stage::Quit);
        result
    })?;
    let mut all = Counts { commands: [0; 2], histograms: [histogram(), histogram()], elapsed };
    for record in records {
        let record = record.into_inner();
        for side in 0..2 {
            all.commands[side] += record.commands[side];
            all.histograms[side].merge(&record.histograms[side]);
        }
    }
    Ok(all)
}

/// Runs the stages until the time is over. Returns the time of the rounds.
fn stages(settings: &Settings<'_>, gate: &Gate, records: &[Mutex<Record>]) -> Result<Duration, MeasureError> {
    let (threads, engine, runtime) = (records.len(), settings.engine, settings.runtime);
    let mut elapsed = Duration::ZERO;
    loop {
        let stage = |stage| -> Result<(), MeasureError> {
            gate.stage(stage, threads, engine);
            // Another thread's failure stops the others, so the failure itself comes first.
            match records.iter().find_map(|r| r.lock().failure.take()) {
                Some(failure) => Err(failure),
                None if is_stopped(engine) => Err(MeasureError::Stopped),
                None => Ok(()),
            }
        };
        stage(Stage::Prepare)?;
        stage(Stage::Run(Instant::now() + (runtime - elapsed)))?;
        let spans: Vec<_> = records.iter().filter_map(|r| r.lock().span.take()).collect();
        let (first, last) = (spans.iter().map(|s| s.0).min(), spans.iter().map(|s| s.1).max());
        elapsed += last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first);
        if settings.job.verify {
            stage(Stage::Check)?;
        }
        if elapsed >= runtime || !settings.job.verify {
            return Ok(elapsed);
        }
    }
}

/// One thread: does stages until it is told to quit.
fn worker(settings: &Settings<'_>, gate: &Gate, index: usize, record: &Mutex<Record>) {
    let (bytes, each) = (settings.geometry.command_bytes, settings.shape.each as usize);
    let base = index * each * settings.rounds * bytes;
    let site = Site {
        engine: settings.engine,
        file: settings.file,
        buffer: settings.buffer,
        base,
        bytes,
        each,
        deadline: settings.engine.deadline().max(LEAST_DEADLINE),
    };
    // In stage order: the first stage reports an error of the preparation.
    let all_stages = || {
        let mut rounds = api::rounds(settings.api, site);
        let mut number = 0;
        loop {
            let (next, stage) = gate.next(number);
            number = next;
            if let Stage::Quit = stage {
                return;
            }
            let mut record = record.lock();
            let done = catch_unwind(AssertUnwindSafe(|| match (&mut rounds, stage) {
                (Err(_), _) => match std::mem::replace(&mut rounds, Err(CufileError::Panicked)) {
                    Err(e) => Err(e.into()),
                    Ok(_) => Ok(()),
                },
                (Ok(_), Stage::Prepare) => prepare(settings, base, &mut record),
                (Ok(rounds), Stage::Run(until)) => operate(settings, gate, rounds.as_mut(), &mut record, until),
                (Ok(_), Stage::Check) => check(settings, base, &record),
                (Ok(_), Stage::Quit) => Ok(()),
            }));
            if let Err(failure) = done.unwrap_or_else(|_| Err(CufileError::Panicked.into())) {
                record.failure = Some(failure);
                gate.stop();
            }
            drop(record);
            gate.finish();
        }
    };
    if let Err(e) = settings.engine.within_context(all_stages) {
        // The context is lost: only takes part in the stages.
        record.lock().failure = Some(e.into());
        let mut number = 0;
        loop {
            let (next, stage) = gate.next(number);
            number = next;
            if let Stage::Quit = stage {
                return;
            }
            gate.finish();
        }
    }
}

/// Chooses the operations of a stage, and fills the buffer: with data to write, and zeros for reads.
fn prepare(settings: &Settings<'_>, base: usize, record: &mut Record) -> Result<(), MeasureError> {
    let rounds = if settings.job.verify { settings.rounds } else { 0 };
    record.operations.clear();
    record.completed = 0;
    for _ in 0..rounds {
        let Record { choices, operations, .. } = &mut *record;
        operations.extend(choices.iter_mut().map(Choice::next));
    }
    let (bytes, region) = (settings.geometry.command_bytes, &settings.buffer.region);
    if record.operations.is_empty() {
        return Ok(());
    }
    if record.operations.iter().all(|o| o.is_read) {
        return Ok(region.fill(base, record.operations.len() * bytes, 0)?);
    }
    let mut image = vec![0; record.operations.len() * bytes];
    for (o, data) in record.operations.iter().zip(image.chunks_exact_mut(bytes)).filter(|(o, _)| !o.is_read) {
        settings.geometry.fill(o.unit, data);
    }
    Ok(region.write(base, &image)?)
}

/// Makes rounds until the time is over, a thread has used its buffer, or the measurement is stopped.
fn operate(
    settings: &Settings<'_>,
    gate: &Gate,
    rounds: &mut dyn Rounds,
    record: &mut Record,
    until: Instant,
) -> Result<(), MeasureError> {
    let each = settings.shape.each as usize;
    let Record { choices, operations, completed, commands, histograms, span, .. } = record;
    let mut round = Vec::with_capacity(each);
    let began = Instant::now();
    let mut now = began;
    let mut slot = 0;
    loop {
        round.clear();
        if settings.job.verify {
            round.extend_from_slice(&operations[slot..slot + each]);
        } else {
            round.extend(choices.iter_mut().map(Choice::next));
        }
        let submitted = now;
        rounds.run(&round, slot, &mut |i| {
            now = Instant::now();
            let side = usize::from(!round[i].is_read);
            histograms[side].add(nanoseconds(now - submitted), 1);
            commands[side] += 1;
        })?;
        slot += each;
        *completed = slot;
        if slot == settings.rounds * each {
            if settings.job.verify {
                gate.stop();
            }
            slot = 0;
        }
        if now >= until || gate.stopped() {
            *span = Some((began, now));
            return Ok(());
        }
    }
}

/// Checks the data of the reads that have completed.
fn check(settings: &Settings<'_>, base: usize, record: &Record) -> Result<(), MeasureError> {
    let bytes = settings.geometry.command_bytes;
    let mut data = vec![0; record.completed * bytes];
    settings.buffer.region.read(base, &mut data)?;
    let read = record.operations.iter().zip(data.chunks_exact(bytes)).filter(|(o, _)| o.is_read);
    let wrong: Vec<u64> = read.filter(|(o, found)| !settings.geometry.is(o.unit, found)).map(|(o, _)| o.unit).collect();
    match wrong.first() {
        None => Ok(()),
        Some(unit) => Err(MeasureError::Wrong(format!(
            "{}: {} commands read other data than was written, one of them at byte {}",
            settings.shape.words(settings.api),
            wrong.len(),
            unit * bytes as u64
        ))),
    }
}
