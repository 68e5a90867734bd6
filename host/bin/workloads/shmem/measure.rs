//! Runs the tests on one PE of a world. Every call is collective.

use super::kernel::{elapsed_ns, ns_per_tick};
use super::row::{Figures, Percentiles, Row};
use super::setting::{GUARD, PLACE_BYTES, PLACES, PLACES_BYTES, Setting, Shape, Spans};
use super::test::{CopyPath, Family, Test};
use crate::workloads::error::{MeasureError, refuse};
use crate::workloads::multiprocessors::{Compute, GpuCost};
use crate::workloads::params::{BlockClock, GateWords, ShmemTest as Parameters};
use crate::workloads::spread::Spread;
use bytemuck::{Pod, Zeroable};
use std::time::Duration;
use warpbell::args;
use warpbell::engine::{Args, Grid};
use warpbell::memory::{Place, Region};
use warpbell::shmem::{Sym, World};

/// Time limit of one launch.
const LIMIT: Duration = Duration::from_secs(600);
/// Number of flag words at each place. The flag of a ping-pong and that of the barrier check are in separate cache lines.
const FLAGS: usize = 32;
/// Index of the flag word for the barrier check.
const CHECK_FLAG: usize = 16;
/// Maximum number of rounds in which a barrier is checked.
const CHECKED_ROUNDS: u32 = 200;
/// Seed of the pattern in a PE's source.
const SOURCE_SEED: u64 = 1 << 32;
/// Seed of the pattern in a target before a test.
const BEFORE_SEED: u64 = 2 << 32;
/// Seed of the values of single elements.
const ELEMENT_SEED: u64 = 3 << 32;
/// Seed of the random choice of elements.
const DRAW_SEED: u64 = 4 << 32;

/// One test on one PE, for any number of sizes.
pub struct ShmemBench<'a> {
    world: &'a World,
    setting: Setting,
    source: Sym<u8>,
    target: Sym<u8>,
    flag: Sym<u64>,
    wrong: Region,
    gate: Region,
    /// Number of PEs that share this PE's GPU, including this PE.
    sharing: usize,
    /// Start value of the counters that are never reset.
    turn: u64,
    /// Rate of a computing kernel, where the kernels are kept to some multiprocessors.
    compute: Option<Compute>,
    /// Share of it that the last timed part left.
    compute_left: Option<f64>,
    /// Number of timed parts so far. Each part has its own data pattern.
    part: u64,
    /// Place of the flag and message of a ping-pong.
    place: u64,
}

/// Results of one timed part on one PE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
struct PartReport {
    elapsed_ns: u64,
    wrong: u64,
    /// Median in nanoseconds; 0 without samples.
    p50_ns: f64,
    p99_ns: f64,
    p99_9_ns: f64,
}

impl<'a> ShmemBench<'a> {
    /// Checks the setting and allocates memory. Collective.
    ///
    /// # Errors
    /// * [`MeasureError::Refused`] if the test does not take a parameter, or a size or a grid does not fit the engine.
    /// * [`MeasureError::Shmem`] if the symmetric heap is too small or a collective call fails.
    /// * [`MeasureError::Memory`], [`MeasureError::Engine`] or [`MeasureError::Run`] if memory or a kernel fails.
    pub fn new(world: &'a World, setting: Setting) -> Result<Self, MeasureError> {
        let (engine, sharing) = (world.engine(), world.gpu_sharers()?);
        let most = spans(world, &setting, sharing)?;
        let this = Self {
            world,
            source: world.malloc(most.source as usize)?,
            target: world.malloc(most.target.saturating_add(GUARD) as usize)?,
            flag: world.malloc(FLAGS + PLACES_BYTES as usize / size_of::<u64>())?,
            wrong: engine.allocate(Place::Device, size_of::<u64>())?,
            gate: engine.allocate(Place::Device, size_of::<GateWords>())?,
            sharing,
            turn: 0,
            compute: setting.sms.map(|_| Compute::measure(engine)).transpose()?,
            compute_left: None,
            part: 0,
            place: 0,
            setting,
        };
        match this.setting.test {
            Test::Reduce => {
                let datatype = this.setting.reduced();
                let elements = most.source / datatype.bytes();
                let args = args!(&this.source, elements, SOURCE_SEED, world.my_pe() as u64);
                this.launch(&format!("wb_shmem_bench_summands_{datatype}"), args)?;
            }
            _ => this.fill(this.source.address(), most.source, SOURCE_SEED + world.my_pe() as u64)?,
        }
        world.barrier_host()?;
        Ok(this)
    }

    /// Checks that a setting can be measured, without memory for it. Collective.
    ///
    /// # Errors
    /// As for [`ShmemBench::new`], but for memory.
    pub fn can_measure(world: &World, setting: &Setting) -> Result<(), MeasureError> {
        spans(world, setting, world.gpu_sharers()?).map(drop)
    }

    /// Returns the grid and the numbers of operations for one size.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if the size or the grid does not fit the engine. [`MeasureError::Engine`] if the query
    /// of the kernel's occupancy fails.
    pub fn shape(&self, bytes: u64) -> Result<Shape, MeasureError> {
        let engine = self.world.engine();
        self.setting.shape(engine, self.sharing, &kernel(&self.setting, bytes, false), bytes)
    }

    /// Measures one size. Every PE gets the same row. Collective.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] as for [`ShmemBench::shape`]. [`MeasureError::Shmem`], [`MeasureError::Memory`],
    /// [`MeasureError::Engine`] or [`MeasureError::Run`] if a collective call, memory or a kernel fails. Wrong data is
    /// no error: the row counts it.
    pub fn measure(&mut self, bytes: u64) -> Result<Row, MeasureError> {
        let shape = self.shape(bytes)?;
        let library = self.figures(&shape, false)?;
        let (engine, sms) = (self.world.engine(), self.setting.sms);
        let gpu = GpuCost::of(engine, &kernel(&self.setting, bytes, false), shape.grid(), sms)?;
        let gpu = gpu.map(|gpu| GpuCost { compute_left: self.compute_left, ..gpu });
        let raw = if self.setting.raw { Some(self.figures(&shape, true)?) } else { None };
        let operations = self.operations(&shape);
        Ok(Row { test: self.setting.test, shape, operations, library, raw, copy: self.setting.copy, sms, gpu })
    }

    /// Returns the number of operations in one timed part of one PE.
    fn operations(&self, shape: &Shape) -> u64 {
        let each = if self.setting.test.family() == Family::Rate { shape.all_threads() } else { 1 };
        each * u64::from(shape.iterations)
    }

    fn figures(&mut self, shape: &Shape, raw: bool) -> Result<Figures, MeasureError> {
        // The first part has all multiprocessors.
        if let Some(compute) = self.compute.take() {
            self.part(shape, raw, true)?;
            self.compute = Some(compute);
        }
        let (mut times, mut wrong, mut percentiles) = (Vec::new(), 0, None);
        for run in 0..self.setting.runs.max(1) {
            let last = run + 1 == self.setting.runs.max(1);
            self.place = if self.setting.test.family() == Family::PingPong { u64::from(run) % PLACES } else { 0 };
            let told = self.part(shape, raw, last)?;
            let of_all = self.setting.everybody() && self.setting.test.family() != Family::PingPong;
            let slowest = told.iter().take(if of_all { told.len() } else { 1 }).map(|t| t.elapsed_ns).max();
            // Half a round of a ping-pong is one operation.
            let halves = if self.setting.test.family() == Family::PingPong { 2.0 } else { 1.0 };
            times.push(slowest.unwrap_or(0).max(1) as f64 / f64::from(shape.iterations.max(1)) / halves);
            wrong += told.iter().map(|t| t.wrong).sum::<u64>();
            let of_first = told.first().filter(|t| t.p50_ns > 0.0);
            percentiles = of_first.map(|t| Percentiles {
                p50_ns: t.p50_ns / halves,
                p99_ns: t.p99_ns / halves,
                p99_9_ns: t.p99_9_ns / halves,
            });
        }
        let each = if self.setting.test.family() == Family::Rate { shape.all_threads() as f64 } else { 1.0 };
        let spread = |rate: &dyn Fn(f64) -> f64| {
            Spread::of(times.iter().map(|t| rate(*t))).unwrap_or(Spread { min: 0.0, median: 0.0, max: 0.0 })
        };
        Ok(Figures {
            time_ns: spread(&|t| t),
            bytes_per_s: spread(&|t| each * shape.bytes as f64 / t * 1e9),
            operations_per_s: spread(&|t| each / t * 1e9),
            percentiles,
            wrong,
        })
    }

    /// Runs one timed part and checks its data, and then a second part with samples if `sampled`. Returns the results
    /// of all PEs.
    fn part(&mut self, shape: &Shape, raw: bool, sampled: bool) -> Result<Vec<PartReport>, MeasureError> {
        let engine = self.world.engine();
        let clocks = engine.allocate(Place::Device, shape.blocks as usize * size_of::<BlockClock>())?;
        let sums = engine.allocate(Place::Device, shape.all_threads() as usize * size_of::<u64>())?;
        let mut told = PartReport::default();
        self.timed(shape, raw, &clocks, &sums, None)?;
        if self.setting.is_active(self.world.my_pe()) {
            told.elapsed_ns = elapsed_ns(&clocks.get_slice(0, shape.blocks as usize)?);
        }
        told.wrong = self.check(shape, &sums)?;
        if sampled && self.setting.test.is_sampled() {
            let samples = engine.allocate(Place::Device, shape.iterations as usize * size_of::<u32>())?;
            self.timed(shape, raw, &clocks, &sums, Some(&samples))?;
            told.wrong += self.check(shape, &sums)?;
            if self.world.my_pe() == 0 {
                let per_tick = ns_per_tick(&clocks.get_slice(0, shape.blocks as usize)?);
                let mut samples = samples.get_slice::<u32>(0, shape.iterations as usize)?;
                if let Some(p) = Percentiles::of(&mut samples, per_tick) {
                    (told.p50_ns, told.p99_ns, told.p99_9_ns) = (p.p50_ns, p.p99_ns, p.p99_9_ns);
                }
            }
        }
        let all = self.world.allgather(bytemuck::bytes_of(&told))?;
        // Every PE contributed the same number of bytes.
        Ok(all.iter().filter_map(|t| bytemuck::try_pod_read_unaligned(t).ok()).collect())
    }

    fn timed(
        &mut self,
        shape: &Shape,
        raw: bool,
        clocks: &Region,
        sums: &Region,
        samples: Option<&Region>,
    ) -> Result<(), MeasureError> {
        self.part += 1;
        let target = self.setting.spans(shape, self.world.n_pes()).target;
        self.fill(self.target.address(), target + GUARD, BEFORE_SEED + self.part)?;
        self.gate.fill(0, size_of::<GateWords>(), 0)?;
        self.wrong.fill(0, size_of::<u64>(), 0)?;
        // After this barrier other PEs may put to this one.
        self.world.barrier_host()?;
        if self.setting.is_active(self.world.my_pe()) {
            let parameters = Parameters {
                clock: clocks.address(),
                samples: samples.map_or(0, Region::address),
                sums: sums.address(),
                ..self.parameters(shape, self.world.my_pe())
            };
            let args = args!(self.world, parameters);
            let kernel = kernel(&self.setting, shape.bytes, raw);
            let engine = self.world.engine();
            let measured = || -> Result<(), MeasureError> {
                // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run
                // has ended.
                unsafe { engine.launch(&kernel, shape.grid(), args) }?.finish_within(LIMIT)?;
                Ok(())
            };
            ((), self.compute_left) = Compute::beside(self.compute, engine, self.setting.sms, 2 * LIMIT, measured)?;
        }
        self.turn += u64::from(shape.warmup) + u64::from(shape.iterations);
        Ok(self.world.barrier_host()?)
    }

    /// Returns the kernel parameters of `pe`, as far as they do not depend on its own memory.
    fn parameters(&self, shape: &Shape, pe: usize) -> Parameters {
        let pes = self.world.n_pes();
        let everybody = self.setting.everybody();
        let peer = match self.setting.test.family() {
            // PEs 0 and 1 are each other's peers.
            Family::PingPong => usize::from(pe == 0 && pes > 1),
            _ => (pe + 1) % pes,
        };
        Parameters {
            source: self.source.address(),
            target: self.target.address() + self.place * PLACE_BYTES,
            flag: self.flag.address() + self.place * PLACE_BYTES,
            gate: self.gate.address(),
            bytes: shape.bytes,
            elements: shape.elements,
            turn: self.turn,
            seed: if self.setting.test == Test::PRate {
                ELEMENT_SEED + self.part + ((pe as u64) << 40)
            } else {
                DRAW_SEED + self.part + ((pe as u64) << 40)
            },
            before: BEFORE_SEED + self.part,
            iterations: shape.iterations,
            warmup: shape.warmup,
            peer: peer as u32,
            everybody: everybody.into(),
            op: self.setting.op as u32,
            member: pe as u32,
            ..Parameters::zeroed()
        }
    }

    /// Returns the PE that put to this PE in the last timed part.
    fn sender(&self) -> Option<usize> {
        let (me, pes) = (self.world.my_pe(), self.world.n_pes());
        match self.setting.test.family() {
            Family::PingPong if pes == 1 => Some(0),
            Family::PingPong => [1, 0].get(me).copied(),
            _ => Some((me + pes - 1) % pes).filter(|s| self.setting.is_active(*s)),
        }
    }

    /// Returns the number of wrong values on this PE, after every PE has checked its own.
    fn check(&mut self, shape: &Shape, sums: &Region) -> Result<u64, MeasureError> {
        let (me, pes, test) = (self.world.my_pe(), self.world.n_pes(), self.setting.test);
        let active = self.setting.is_active(me);
        let before = BEFORE_SEED + self.part;
        let guarded = self.setting.spans(shape, pes).target + GUARD;
        let source_of = |pe: usize| SOURCE_SEED + pe as u64;
        let (target, bytes) = (self.target.address(), shape.bytes);
        // Checks the received data. Before offset `first` and from `filled` on, the target must be unchanged.
        let place = self.place * PLACE_BYTES;
        let first = if test == Test::PutSignalPingPong { place } else { 0 };
        let mut filled = first;
        match test {
            Test::GetBw | Test::GetLatency => {
                if active {
                    filled = shape.written();
                    self.count(target, 0, filled, source_of((me + 1) % pes))?;
                }
            }
            Test::PutSignalPingPong => {
                if let Some(sender) = self.sender() {
                    filled = first + bytes;
                    self.count(target + first, 0, bytes, source_of(sender))?;
                }
            }
            Test::PutBw | Test::PutLatency => {
                if let Some(sender) = self.sender() {
                    filled = shape.written();
                    self.count_messages(filled, bytes, source_of(sender))?;
                }
            }
            Test::PRate => {
                if let Some(sender) = self.sender() {
                    let written = u64::from(shape.warmup.max(shape.iterations)) * shape.all_threads();
                    filled = written.min(shape.elements) * bytes;
                    self.count(target, 0, filled, self.parameters(shape, sender).seed)?;
                }
            }
            Test::GRate => {
                if active {
                    let parameters = Parameters { sums: sums.address(), ..self.parameters(shape, me) };
                    let args = args!(parameters, shape.all_threads(), source_of((me + 1) % pes), &self.wrong);
                    self.launch(&format!("wb_shmem_bench_sums_{bytes}"), args)?;
                }
            }
            Test::AtomicRate => {
                self.compare_with_replay(shape, guarded)?;
                filled = guarded;
            }
            Test::Broadcast => {
                filled = bytes;
                self.count(target, 0, filled, source_of(0))?;
            }
            Test::Fcollect => {
                filled = bytes * pes as u64;
                for pe in 0..pes {
                    self.count(target + pe as u64 * bytes, 0, bytes, source_of(pe))?;
                }
            }
            Test::Alltoall => {
                filled = bytes * pes as u64;
                let mine = me as u64 * bytes;
                for pe in 0..pes {
                    // The data of `pe` was at offset `mine` of its source.
                    let at = (target + pe as u64 * bytes).wrapping_sub(mine);
                    self.count(at, mine, mine + bytes, source_of(pe))?;
                }
            }
            Test::Reduce => {
                filled = bytes;
                let datatype = self.setting.reduced();
                let args = args!(&self.target, bytes / datatype.bytes(), SOURCE_SEED, pes as u32, &self.wrong);
                self.launch(&format!("wb_shmem_bench_reduced_{datatype}"), args)?;
            }
            Test::Barrier => self.check_barrier(shape)?,
            Test::PPingPong | Test::PSignalPingPong | Test::Sync => {}
        }
        self.count(target, 0, first, before)?;
        self.count(target, filled, guarded, before)?;
        let mut wrong: u64 = self.wrong.get(0)?;
        if test.family() == Family::PingPong && me < 2 {
            wrong += u64::from(self.flag.read(place as usize / size_of::<u64>(), 1)? != [self.turn]);
        }
        if test == Test::PSignalPingPong && me < 2 {
            wrong += sums.get::<u64>(0)?;
        }
        self.world.barrier_host()?;
        Ok(wrong)
    }

    /// Checks that no PE passes a barrier before the puts of all PEs have arrived.
    fn check_barrier(&mut self, shape: &Shape) -> Result<(), MeasureError> {
        let iterations = shape.iterations.min(CHECKED_ROUNDS);
        let flag = self.flag.address() + (CHECK_FLAG * size_of::<u64>()) as u64;
        let parameters = Parameters { flag, iterations, ..self.parameters(shape, self.world.my_pe()) };
        let kernel = format!("wb_shmem_bench_barrier_check_{}", shape.scope);
        let args = args!(self.world, parameters, &self.wrong);
        // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
        // ended.
        unsafe { self.world.engine().launch(&kernel, shape.grid(), args) }?.finish_within(LIMIT)?;
        self.turn += u64::from(iterations);
        Ok(())
    }

    /// Repeats the sender's operations on separate memory of this PE, and compares that memory with the target.
    fn compare_with_replay(&self, shape: &Shape, guarded: u64) -> Result<(), MeasureError> {
        let engine = self.world.engine();
        let bytes = (guarded as usize).next_multiple_of(size_of::<u64>());
        let again = engine.allocate(Place::Device, bytes)?;
        let seed = BEFORE_SEED + self.part;
        self.fill(again.address(), guarded, seed)?;
        if let Some(sender) = self.sender() {
            let parameters = Parameters { target: again.address(), ..self.parameters(shape, sender) };
            let kernel = format!("wb_shmem_bench_replay_{}", shape.bytes);
            self.launch(&kernel, args!(parameters, shape.all_threads()))?;
        }
        let words = guarded / size_of::<u64>() as u64;
        self.launch("wb_shmem_bench_compare", args!(&self.target, &again, words, &self.wrong))
    }

    fn fill(&self, to: u64, bytes: u64, seed: u64) -> Result<(), MeasureError> {
        self.launch("wb_shmem_bench_fill", args!(to, bytes, seed))
    }

    /// Counts bytes of messages that differ from their source. From shared memory, all have the data of the first.
    fn count_messages(&self, written: u64, bytes: u64, seed: u64) -> Result<(), MeasureError> {
        let target = self.target.address();
        if self.setting.copy != Some(CopyPath::Shared) {
            return self.count(target, 0, written, seed);
        }
        (0..written / bytes.max(1)).try_for_each(|place| self.count(target + place * bytes, 0, bytes, seed))
    }

    /// Counts bytes from `first` to `last` that differ from the pattern.
    fn count(&self, at: u64, first: u64, last: u64, seed: u64) -> Result<(), MeasureError> {
        if first >= last {
            return Ok(());
        }
        self.launch("wb_shmem_bench_check", args!(at, first, last, seed, &self.wrong))
    }

    fn launch(&self, kernel: &str, args: Args) -> Result<(), MeasureError> {
        let engine = self.world.engine();
        let grid: Grid = engine.grid(256, 4);
        // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
        // ended.
        unsafe { engine.launch(kernel, grid, args) }?.finish_within(LIMIT)?;
        Ok(())
    }
}

/// Checks a setting, and returns the memory that its largest size needs. `sharing` PEs share this PE's GPU.
fn spans(world: &World, setting: &Setting, sharing: usize) -> Result<Spans, MeasureError> {
    setting.check()?;
    if setting.raw && world.path().network.is_some() {
        return refuse!(
            "--raw measures plain loads and stores, and transport {} reaches some PEs without them; leave --raw out",
            world.path().transport
        );
    }
    let engine = world.engine();
    let mut most = Spans { source: 0, target: 0 };
    for bytes in setting.sizes(engine) {
        let kernel = kernel(setting, bytes, false);
        let shape = setting.shape(engine, sharing, &kernel, bytes)?;
        engine.check_grid(&kernel, shape.grid())?;
        let spans = setting.spans(&shape, world.n_pes());
        most = Spans { source: most.source.max(spans.source), target: most.target.max(spans.target) };
    }
    Ok(most)
}

/// Returns the name of a test's kernel.
fn kernel(setting: &Setting, bytes: u64, raw: bool) -> String {
    let (test, raw) = (setting.test, if raw { "_raw" } else { "" });
    let copy = match setting.copy {
        Some(copy) if raw.is_empty() && copy != CopyPath::Loads => format!("_{copy}"),
        _ => String::new(),
    };
    match test {
        Test::PRate | Test::GRate | Test::AtomicRate => format!("wb_shmem_{test}{raw}_{bytes}"),
        Test::PPingPong | Test::PSignalPingPong => format!("wb_shmem_{test}{raw}"),
        Test::Barrier | Test::Sync => format!("wb_shmem_bench_{test}_{}", setting.scope()),
        Test::Reduce => format!("wb_shmem_{test}_{}_{}", setting.reduced(), setting.scope()),
        _ => format!("wb_shmem_{test}{raw}{copy}_{}", setting.scope()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::shmem::AtomicOp;
    use parking_lot::Mutex;
    use warpbell::engine::Engine;

    /// Runs `work` on two PEs, each on one thread.
    fn on_two(work: impl Fn(&World) + Sync) {
        let engines = (0..2).map(|_| Engine::cpu()).collect::<Result<Vec<_>, _>>().unwrap();
        let worlds = World::local_on(engines, 16 << 20).unwrap();
        let work = &work;
        std::thread::scope(|s| worlds.iter().for_each(|world| drop(s.spawn(move || work(world)))));
    }

    fn setting(test: Test) -> Setting {
        Setting {
            iterations: Some(20),
            warmup: Some(1),
            window_bytes: (test.family() == Family::Rate).then_some(4096),
            runs: 1,
            ..Setting::new(test)
        }
    }

    /// Returns the number of errors that the checks count on both PEs after one byte of PE 1's target was changed.
    fn wrong_after_a_change(setting: &Setting, bytes: u64, changed: usize) -> u64 {
        let counted = std::sync::atomic::AtomicU64::new(0);
        on_two(|world| {
            let mut bench = ShmemBench::new(world, setting.clone()).unwrap();
            let shape = bench.shape(bytes).unwrap();
            let engine = world.engine();
            let clocks = engine.allocate(Place::Device, shape.blocks as usize * size_of::<BlockClock>()).unwrap();
            let sums = engine.allocate(Place::Device, shape.all_threads() as usize * 8).unwrap();
            bench.timed(&shape, false, &clocks, &sums, None).unwrap();
            if world.my_pe() == 1 {
                let old = bench.target.read(changed, 1).unwrap()[0];
                bench.target.write(changed, &[old ^ 1]).unwrap();
            }
            let wrong = bench.check(&shape, &sums).unwrap();
            counted.fetch_add(wrong, std::sync::atomic::Ordering::Relaxed);
        });
        counted.into_inner()
    }

    #[test]
    fn one_wrong_byte_is_counted() {
        assert_eq!(wrong_after_a_change(&setting(Test::PutBw), 100, 99), 1);
        // Behind the message no PE may write.
        assert_eq!(wrong_after_a_change(&setting(Test::PutBw), 100, 100), 1);
        // PE 1 gets nothing when PE 0 gets.
        assert_eq!(wrong_after_a_change(&setting(Test::GetLatency), 100, 7), 1);
        assert_eq!(wrong_after_a_change(&setting(Test::PRate), 4, 3), 1);
        assert_eq!(wrong_after_a_change(&setting(Test::PutSignalPingPong), 24, 9), 1);
        assert_eq!(wrong_after_a_change(&setting(Test::Alltoall), 12, 20), 1);
        assert_eq!(wrong_after_a_change(&setting(Test::Fcollect), 12, 20), 1);
        assert_eq!(wrong_after_a_change(&setting(Test::Reduce), 12, 8), 1);
    }

    #[test]
    fn each_run_of_a_ping_pong_has_a_place_of_its_own() {
        for test in [Test::PPingPong, Test::PSignalPingPong, Test::PutSignalPingPong] {
            // More runs than places: the last ones use the first places again.
            let setting = Setting { runs: PLACES as u32 + 2, raw: true, ..setting(test) };
            on_two(|world| {
                let mut bench = ShmemBench::new(world, setting.clone()).unwrap();
                assert_eq!((bench.measure(8).unwrap().wrong(), bench.place), (0, 1), "{test}");
                // A byte before the message belongs to no run.
                bench.place = 1;
                let shape = bench.shape(8).unwrap();
                let engine = world.engine();
                let clocks = engine.allocate(Place::Device, size_of::<BlockClock>()).unwrap();
                let sums = engine.allocate(Place::Device, 8).unwrap();
                bench.timed(&shape, false, &clocks, &sums, None).unwrap();
                bench.target.write(0, &[bench.target.read(0, 1).unwrap()[0] ^ 1]).unwrap();
                assert_eq!(bench.check(&shape, &sums).unwrap(), 1, "{test}");
            });
        }
    }

    #[test]
    fn messages_go_round_in_a_window() {
        for test in [Test::PutBw, Test::GetBw] {
            // Seven of eight places are used.
            let of_eight = Setting { window_bytes: Some(850), iterations: Some(7), raw: true, ..setting(test) };
            on_two(|world| {
                let mut bench = ShmemBench::new(world, of_eight.clone()).unwrap();
                assert_eq!(bench.measure(100).unwrap().wrong(), 0);
            });
            // The messages use the seven places more than once.
            let of_seven = Setting { window_bytes: Some(700), ..setting(test) };
            on_two(|world| {
                assert_eq!(ShmemBench::new(world, of_seven.clone()).unwrap().measure(100).unwrap().wrong(), 0)
            });
            let wrong_at = |at| wrong_after_a_change(&of_eight, 100, at);
            // PE 1 takes no part in gets, but a change anywhere in its target is still one error.
            assert_eq!([wrong_at(0), wrong_at(650), wrong_at(750)], [1, 1, 1]);
        }
    }

    #[test]
    fn one_wrong_word_of_a_window_is_counted() {
        for op in [AtomicOp::Inc, AtomicOp::FetchXor, AtomicOp::CompareSwap] {
            assert_eq!(wrong_after_a_change(&Setting { op, ..setting(Test::AtomicRate) }, 8, 1000), 1);
        }
    }

    #[test]
    fn rows_are_the_same_on_every_pe() {
        let rows = Mutex::new(Vec::new());
        on_two(|world| {
            let mut bench = ShmemBench::new(world, Setting { raw: true, ..setting(Test::PutSignalPingPong) }).unwrap();
            let row = bench.measure(40).unwrap();
            rows.lock().push(row);
        });
        let rows = rows.into_inner();
        assert_eq!(rows[0].to_string(), rows[1].to_string());
        assert_eq!((rows[0].operations, rows[0].wrong()), (20, 0));
        assert!(rows[0].library.percentiles.is_some() && rows[0].raw.is_some());
    }
}
