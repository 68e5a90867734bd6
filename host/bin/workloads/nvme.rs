//! Measures a device from kernels, with fio's parameters and figures.

use super::cufile::pattern::Geometry;
use super::error::{MeasureError, refuse};
use super::fio::Direction;
use super::histogram::Histogram;
use super::params::{NVME_BENCH_BITS, NVME_BENCH_BUCKETS, NVME_BENCH_PER_LANE, NvmeBench as Parameters};
use rayon::prelude::*;
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::time::Duration;
use warpbell::engine::{Args, Engine, Grid, KernelArg};
use warpbell::memory::{Place, Region, free_host_memory};
use warpbell::nvme::NvmeError;
use warpbell::storage::{DataBuffer, StorageError, Volume};
use warpbell::units::{Bytes, counted};

/// Parameters of a device measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NvmeJob {
    /// Percentage of reads among the commands: 100 only reads, 0 only writes.
    pub read_percent: u32,
    /// True for random addresses. False for consecutive ones, from the start again at the end.
    pub random: bool,
    /// Bytes in each command.
    pub command_bytes: u64,
    /// Total number of commands to keep in flight: see [`NvmeBench::in_flight`].
    pub iodepth: u32,
    /// Duration of the measurement.
    #[serde(rename = "runtime_ns", serialize_with = "as_nanoseconds")]
    pub runtime: Duration,
    /// Bytes from the start of the volume that the commands access.
    pub touched_bytes: u64,
    /// True to check the data that is read, and to write data that a later check expects.
    pub verify: bool,
    /// Seed of the random addresses.
    pub seed: u64,
}

pub(super) fn as_nanoseconds<S: serde::Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(super::report::nanoseconds(*d))
}

impl KernelArg for Parameters {
    fn push(&self, args: &mut Args) {
        args.push_value(*self);
    }
}

/// Warps of a block.
const BLOCK_WARPS: u32 = 4;
/// Maximum number of warps on a multiprocessor: enough to copy at full speed from the bus.
const PROCESSOR_WARPS: u32 = 16;

// Kernels with one command in flight per lane, and with several.
const ONE: &str = "wb_nvme_bench_one";
const MANY: &str = "wb_nvme_bench_many";
/// Bytes that a fill writes at once, between two reports of its progress. The host's queues keep many large commands of
/// them in flight.
const FILL_PART: u64 = 8 << 20;
/// Bytes that kernels write between two reports, where the host has no queue.
const KERNEL_PART: u64 = 64 << 20;
/// Time limit of one part of a fill, longer than any slow device needs.
const FILL_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Time after the runtime for the last commands to complete.
const GRACE: Duration = Duration::from_secs(30);

/// Distribution of the commands in flight over warps and lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Shape {
    lanes: u32,
    warp_lanes: u32,
    per_lane: u32,
    warps: u32,
}

impl Shape {
    /// Uses as many warps as allowed, then as many lanes of each warp as needed, then several commands per lane. A warp
    /// copies faster than a lane, so commands are spread over warps first.
    fn new(iodepth: u32, most_warps: u32, width: u32) -> Self {
        let warps = iodepth.min(most_warps.max(1));
        let warp_lanes = iodepth.div_ceil(warps).min(width);
        let lanes = iodepth.min(warps * warp_lanes);
        let per_lane = iodepth.div_ceil(lanes).min(NVME_BENCH_PER_LANE);
        Self { lanes, warp_lanes, per_lane, warps: lanes.div_ceil(warp_lanes) }
    }

    /// Returns the number of commands in flight on `queues` queue pairs, which the warps use in turn and which hold
    /// `most` commands each.
    fn in_flight(&self, requested: u32, queues: u32, most: u64) -> InFlight {
        let kept = u64::from(self.lanes) * u64::from(self.per_lane);
        let used = queues.clamp(1, self.warps);
        let mut loads = vec![0u64; used as usize];
        for warp in 0..self.warps {
            let lanes = (self.lanes - warp * self.warp_lanes).min(self.warp_lanes);
            loads[(warp % used) as usize] += u64::from(lanes) * u64::from(self.per_lane);
        }
        let held: u64 = loads.iter().map(|load| (*load).min(most)).sum();
        let reason = if held < kept {
            Some(DepthLimit::Queues { pairs: used, most })
        } else if kept != u64::from(requested) {
            Some(DepthLimit::Threads { threads: self.lanes, each: self.per_lane })
        } else {
            None
        };
        InFlight { requested, effective: held, reason }
    }
}

/// Number of commands in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Number that the user requested.
    pub requested: u32,
    /// Maximum number that is reached.
    pub effective: u64,
    /// Reason why the two differ, if they do.
    pub reason: Option<DepthLimit>,
}

impl fmt::Display for InFlight {
    /// Prints `32`, or `1,000 (128 in flight)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.requested)?;
        if self.reason.is_some() { write!(f, " ({} in flight)", self.effective) } else { Ok(()) }
    }
}

/// Reason why the number of commands in flight differs from the requested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DepthLimit {
    /// Every thread of the kernel keeps the same number, and at most 64.
    Threads {
        /// Number of threads that submit.
        threads: u32,
        /// Commands in flight per thread.
        each: u32,
    },
    /// The queues hold no more commands.
    Queues {
        /// Number of queue pairs in use.
        pairs: u32,
        /// Commands that each queue pair holds, on all devices together.
        most: u64,
    },
}

impl fmt::Display for DepthLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keep = |n: u32| if n == 1 { "keeps" } else { "keep" };
        match self {
            Self::Threads { threads, each: each @ NVME_BENCH_PER_LANE } => {
                let these = counted(threads, "thread", "threads");
                write!(f, "{these} of the engine {} {each} each at most", keep(*threads))
            }
            Self::Threads { threads, each } => {
                write!(f, "{} of the engine {} {each} each", counted(threads, "thread", "threads"), keep(*threads))
            }
            Self::Queues { pairs, most } => {
                let hold = if *pairs == 1 { "holds" } else { "hold" };
                write!(f, "{} {hold} {most} each at most", counted(pairs, "queue pair", "queue pairs"))
            }
        }
    }
}

/// Results of one measurement.
#[derive(Clone, Debug, Serialize)]
pub struct NvmeRun {
    /// Results of reads, if the job has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Direction>,
    /// Results of writes, if the job has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Direction>,
    /// True if all data read equals the data written; false if it was not checked.
    pub verified: bool,
}

impl NvmeRun {
    /// Returns the commands per second of both directions together.
    pub fn iops(&self) -> f64 {
        [&self.read, &self.write].into_iter().flatten().map(|d| d.iops).sum()
    }
}

impl fmt::Display for NvmeRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in [&self.read, &self.write].into_iter().flatten().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{d}")?;
        }
        Ok(())
    }
}

/// A job with its memory, for any number of runs.
pub struct NvmeBench<'a> {
    volume: &'a Volume,
    job: NvmeJob,
    shape: Shape,
    units: u64,
    buffers: DataBuffer,
    histogram: Region,
    totals: Region,
}

impl<'a> NvmeBench<'a> {
    /// Checks the job and allocates its memory.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if the size of the commands or the accessed bytes do not fit the volume, or a fill
    /// would not fit into free memory. [`MeasureError::Storage`], [`MeasureError::Memory`] or [`MeasureError::Engine`]
    /// if an allocation or the query of a kernel's occupancy fails.
    pub fn new(volume: &'a Volume, job: NvmeJob) -> Result<Self, MeasureError> {
        let (block, most) = (volume.block_bytes() as u64, volume.max_transfer_bytes() as u64);
        let each = job.command_bytes;
        if each == 0 || !each.is_multiple_of(block) || each > most {
            return refuse!("commands of {each} bytes: give whole blocks of {block}, at most {most} bytes");
        }
        if job.touched_bytes > volume.bytes() {
            let (asked, holds) = (job.touched_bytes, volume.bytes());
            return refuse!("--size of {asked} bytes: the device has {holds}; give that or less");
        }
        let units = job.touched_bytes / each;
        if units == 0 || units > u64::from(u32::MAX) {
            let bytes = job.touched_bytes;
            return refuse!(
                "--size of {bytes} bytes holds {units} commands of {each} bytes: give one that holds 1 to {}",
                u32::MAX
            );
        }
        if job.read_percent < 100 || needs_fill(volume, &job) {
            check_memory(volume.memory_bytes(job.touched_bytes), free_host_memory(), "--size")?;
        }
        let engine = volume.engine();
        let info = engine.info();
        let resident = |kernel| -> Result<u32, MeasureError> {
            let blocks = engine.occupancy(kernel, BLOCK_WARPS * info.warp_width)?;
            Ok((blocks * BLOCK_WARPS).clamp(1, PROCESSOR_WARPS))
        };
        let most_warps = match &info.gpu {
            Some(gpu) => gpu.processors * resident(ONE)?.min(resident(MANY)?),
            None => u32::try_from(info.threads).unwrap_or(u32::MAX),
        };
        let shape = Shape::new(job.iodepth.max(1), most_warps, info.warp_width);
        let bytes = u64::from(shape.lanes) * u64::from(shape.per_lane) * each;
        Ok(Self {
            volume,
            job,
            shape,
            units,
            buffers: volume.allocate_data(usize::try_from(bytes).unwrap_or(usize::MAX))?,
            histogram: engine.allocate(Place::Device, 2 * NVME_BENCH_BUCKETS * size_of::<u64>())?,
            totals: engine.allocate(Place::Device, 4 * size_of::<u64>())?,
        })
    }

    /// Returns the number of commands in flight: requested, and effective after the limits of threads and queues.
    pub fn in_flight(&self) -> InFlight {
        let volume = self.volume;
        // A write to all copies takes a queue entry on each device.
        let together = if volume.is_replicated() && self.job.read_percent < 100 { 1 } else { volume.devices() };
        // A ring of D entries holds D - 1 commands (NVMe Base 2.1, 3.3.1).
        let most = together * u64::from(volume.depth().saturating_sub(1));
        self.shape.in_flight(self.job.iodepth, volume.queues(), most)
    }

    /// Returns true if [`NvmeBench::fill`] must precede [`NvmeBench::run`]: the job checks the data that it reads, or
    /// reads memory that has never been written.
    pub fn needs_fill(&self) -> bool {
        needs_fill(self.volume, &self.job)
    }

    /// Writes all accessed blocks once, with the data that a check expects, by large commands. Calls `advance` with the
    /// bytes written so far and the total.
    ///
    /// # Errors
    /// [`MeasureError::Storage`] if the volume fails a write, [`MeasureError::Stopped`] if the engine was cancelled. Where
    /// kernels write, [`MeasureError::Engine`] or [`MeasureError::Run`] if the kernel cannot start or fails.
    pub fn fill(&self, mut advance: impl FnMut(u64, u64)) -> Result<(), MeasureError> {
        let block = self.volume.block_bytes();
        let geometry = Geometry { command_bytes: block, block_bytes: block };
        let (total, mut done) = (self.units * self.job.command_bytes, 0);
        let mut data = vec![0; FILL_PART.min(total) as usize];
        while done < total {
            if self.volume.engine().is_cancelled() {
                return Err(MeasureError::Stopped);
            }
            advance(done, total);
            let first = done >> self.volume.block_shift();
            let part = &mut data[..FILL_PART.min(total - done) as usize];
            part.par_chunks_exact_mut(block).enumerate().for_each(|(i, to)| geometry.fill(first + i as u64, to));
            match self.volume.write_blocks(first, part) {
                // Kernels have all queue pairs, and the host cannot borrow one.
                Err(StorageError::Nvme(NvmeError::Options { .. })) if done == 0 => {
                    return self.fill_by_kernels(advance);
                }
                other => other?,
            }
            done += part.len() as u64;
        }
        advance(total, total);
        Ok(())
    }

    /// Fills by kernels, with commands of the job's size.
    fn fill_by_kernels(&self, mut advance: impl FnMut(u64, u64)) -> Result<(), MeasureError> {
        let each = self.job.command_bytes;
        let part = (KERNEL_PART / each).max(self.shape.lanes.into());
        let mut first = 0;
        while first < self.units {
            advance(first * each, self.units * each);
            let end = self.units.min(first + part);
            self.launch("wb_nvme_bench_fill", first..end, FILL_LIMIT)?;
            first = end;
        }
        advance(self.units * each, self.units * each);
        Ok(())
    }

    /// Measures once.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] if a command read wrong data. [`MeasureError::Memory`], [`MeasureError::Engine`] or
    /// [`MeasureError::Run`] if the kernel or the access to its counters fails.
    pub fn run(&self) -> Result<NvmeRun, MeasureError> {
        self.histogram.fill(0, self.histogram.len(), 0)?;
        self.totals.fill(0, self.totals.len(), 0)?;
        let kernel = if self.shape.per_lane == 1 { ONE } else { MANY };
        let elapsed = self.launch(kernel, 0..self.units, self.job.runtime + GRACE)?;
        let totals = self.totals.get_slice::<u64>(0, 4)?;
        let (reads, writes, wrong, one) = (totals[0], totals[1], totals[2], totals[3]);
        if wrong > 0 {
            let offset = (one - 1) * self.job.command_bytes;
            return Err(MeasureError::Wrong(format!(
                "{wrong} commands read other data than was written, one of them at byte {offset}"
            )));
        }
        let direction = |name, commands, first| -> Result<Direction, MeasureError> {
            let counts =
                self.histogram.get_slice::<u64>(first * NVME_BENCH_BUCKETS * size_of::<u64>(), NVME_BENCH_BUCKETS)?;
            let latency = Histogram::new(NVME_BENCH_BITS, counts).latency();
            Ok(Direction::new(name, commands, commands * self.job.command_bytes, elapsed, latency))
        };
        Ok(NvmeRun {
            read: if self.job.read_percent > 0 { Some(direction("read", reads, 0)?) } else { None },
            write: if self.job.read_percent < 100 { Some(direction("write", writes, 1)?) } else { None },
            verified: self.job.verify && self.job.read_percent > 0,
        })
    }

    fn launch(&self, kernel: &str, units: Range<u64>, limit: Duration) -> Result<Duration, MeasureError> {
        let engine: &Engine = self.volume.engine();
        let width = engine.info().warp_width;
        let each = if engine.is_gpu() { BLOCK_WARPS.min(self.shape.warps) } else { 1 };
        let grid = Grid { blocks: self.shape.warps.div_ceil(each), threads: each * width };
        let parameters = Parameters {
            buffers: self.buffers.address(),
            histogram: self.histogram.address(),
            totals: self.totals.address(),
            units: units.end,
            seed: self.job.seed,
            runtime_ns: super::report::nanoseconds(self.job.runtime),
            blocks: (self.job.command_bytes >> self.volume.block_shift()) as u32,
            lanes: self.shape.lanes,
            warp_lanes: self.shape.warp_lanes,
            per_lane: self.shape.per_lane,
            read_percent: self.job.read_percent,
            random: self.job.random.into(),
            verify: self.job.verify.into(),
            // The index of a unit fits 32 bits: `new` checks the number of units.
            first: units.start as u32,
        };
        // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
        // ended.
        let run = unsafe { engine.launch(kernel, grid, Args::new().with(self.volume).with(parameters)) }?;
        let done = run.finish_within(limit);
        if let Err(e) = &done {
            self.volume.keep_refused(e);
        }
        Ok(done?.elapsed)
    }
}

/// Returns true if blocks must be written before they are read: for a check, or because reading never written memory
/// takes no time.
fn needs_fill(volume: &Volume, job: &NvmeJob) -> bool {
    job.read_percent > 0 && (job.verify || volume.is_in_memory())
}

/// Rejects a job that fills more than the free memory, by its size in `option`. Accepts every job if the system does not
/// report free memory.
pub(super) fn check_memory(needed: u64, free: Option<u64>, option: &str) -> Result<(), MeasureError> {
    match free {
        Some(free) if needed > free => refuse!(
            "the job fills {} of memory, and {} is free; give a smaller {option}, or free memory",
            Bytes(needed),
            Bytes(free)
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::storage::{Drive, LandingChoice, OverwritePolicy};

    #[test]
    fn commands_are_spread_over_warps_first() {
        let shape = |iodepth, warps, width| Shape::new(iodepth, warps, width);
        assert_eq!(shape(1, 2112, 32), Shape { lanes: 1, warp_lanes: 1, per_lane: 1, warps: 1 });
        assert_eq!(shape(32, 2112, 32), Shape { lanes: 32, warp_lanes: 1, per_lane: 1, warps: 32 });
        assert_eq!(shape(65_536, 2112, 32), Shape { lanes: 65_536, warp_lanes: 32, per_lane: 1, warps: 2048 });
        assert_eq!(shape(32, 2, 1), Shape { lanes: 2, warp_lanes: 1, per_lane: 16, warps: 2 });
    }

    #[test]
    fn commands_in_flight_are_those_that_threads_and_queues_keep() {
        let in_flight = |iodepth, warps, width, queues, most| {
            let f = Shape::new(iodepth, warps, width).in_flight(iodepth, queues, most);
            (f.effective, f.to_string(), f.reason.map(|r| r.to_string()).unwrap_or_default())
        };
        let says = |n: u64, text: &str, why: &str| (n, text.to_owned(), why.to_owned());
        assert_eq!(in_flight(32, 2, 1, 2, 127), says(32, "32", ""));
        let why = "2 threads of the engine keep 64 each at most";
        assert_eq!(in_flight(1000, 2, 1, 2, 127), says(128, "1000 (128 in flight)", why));
        let why = "2 threads of the engine keep 17 each";
        assert_eq!(in_flight(33, 2, 1, 2, 127), says(34, "33 (34 in flight)", why));
        let why = "1 queue pair holds 15 each at most";
        assert_eq!(in_flight(32, 2, 1, 1, 15), says(15, "32 (15 in flight)", why));
        // One warp submits to one queue; the other stays empty.
        assert_eq!(in_flight(32, 1, 1, 2, 15), says(15, "32 (15 in flight)", why));
        assert_eq!(in_flight(65_536, 2112, 32, 132, 1023), says(65_536, "65536", ""));
    }

    #[test]
    fn memory_that_is_not_there_is_not_filled() {
        let check = |needed, free| check_memory(needed, free, "--size");
        assert!(check(100, Some(100)).is_ok() && check(u64::MAX, None).is_ok());
        let text = check(1 << 40, Some(3 << 30)).unwrap_err().to_string();
        let says = "the job fills 1 TiB of memory, and 3 GiB is free; give a smaller --size, or free memory";
        assert_eq!(text, says);
        let volume = volume();
        assert_eq!((volume.is_in_memory(), volume.memory_bytes(4096)), (true, 4096));
    }

    #[test]
    fn only_what_is_read_is_filled_and_that_in_parts() {
        let volume = volume();
        let bench = |job| NvmeBench::new(&volume, job).unwrap();
        for (read_percent, verify, needed) in
            [(0, true, false), (0, false, false), (100, false, true), (50, true, true)]
        {
            let job = NvmeJob { verify, ..job(4096, read_percent) };
            assert_eq!(bench(job).needs_fill(), needed, "{read_percent} {verify}");
        }
        let half = bench(NvmeJob { touched_bytes: 512 << 10, ..job(4096, 100) });
        let mut seen = Vec::new();
        let before = volume.stats().unwrap();
        half.fill(|done, all| seen.push((done, all))).unwrap();
        // The host's large commands are not among the kernels'.
        assert_eq!((volume.stats().unwrap() - before).writes, 0);
        assert_eq!(seen, [(0, 512 << 10), (512 << 10, 512 << 10)]);
        let mut rest = vec![1; 512 << 10];
        volume.read_bytes(512 << 10, &mut rest).unwrap();
        assert!(rest.iter().all(|byte| *byte == 0));
        half.run().unwrap();
    }

    /// Each way of filling writes what the kernels expect.
    #[test]
    fn kernels_fill_where_the_host_cannot() {
        let volume = volume();
        let bench = NvmeBench::new(&volume, job(4096, 100)).unwrap();
        let content = || {
            let mut bytes = vec![0; 1 << 20];
            volume.read_bytes(0, &mut bytes).map(|()| bytes).unwrap()
        };
        bench.fill(|_, _| {}).unwrap();
        let by_host = content();
        volume.write_bytes(0, &vec![0; 1 << 20]).unwrap();
        bench.fill_by_kernels(|_, _| {}).unwrap();
        assert!(content() == by_host);
        assert!(bench.run().unwrap().verified);
    }

    #[test]
    fn a_fill_ends_when_the_engine_is_told_to_end() {
        let volume = volume();
        let bench = NvmeBench::new(&volume, job(4096, 100)).unwrap();
        volume.engine().cancel().unwrap();
        assert!(matches!(bench.fill(|_, _| {}), Err(MeasureError::Stopped)));
    }

    fn job(command_bytes: u64, read_percent: u32) -> NvmeJob {
        NvmeJob {
            read_percent,
            random: true,
            command_bytes,
            iodepth: 8,
            runtime: Duration::from_millis(50),
            touched_bytes: 1 << 20,
            verify: true,
            seed: 7,
        }
    }

    fn volume() -> Volume {
        let engine = Engine::cpu().unwrap();
        let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none()).unwrap();
        Volume::on(&engine, [drive]).transfer(8192).build().unwrap()
    }

    #[test]
    fn reads_and_writes_are_counted_timed_and_checked() {
        let volume = volume();
        for percent in [0, 50, 100] {
            let bench = NvmeBench::new(&volume, job(8192, percent)).unwrap();
            bench.fill(|_, _| {}).unwrap();
            let before = volume.stats().unwrap();
            let run = bench.run().unwrap();
            let counted = volume.stats().unwrap() - before;
            let of = |d: &Option<Direction>| d.as_ref().map_or(0, |d| d.commands);
            assert_eq!((of(&run.read), of(&run.write)), (counted.reads, counted.writes));
            assert_eq!((run.read.is_some(), run.write.is_some()), (percent > 0, percent < 100));
            for d in [run.read, run.write].into_iter().flatten() {
                assert_eq!(d.latency.unwrap().samples, d.commands);
                assert!(d.commands > 0);
            }
        }
    }

    /// With many commands in flight, the thread that owns a failed read repeats it on the other copy, even if another
    /// thread found its completion.
    #[test]
    fn reads_that_one_copy_fails_are_made_on_the_other() {
        for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
            let specs = ["soft:mem:1M", "soft:mem:1M,media-error=read:100-1000"];
            let drives = specs.map(|s| Drive::open(s).unwrap());
            let engine = Engine::builder().threads(4).cpu().unwrap();
            let builder = Volume::on(&engine, drives).replicated(true).chunk(8192).landing(landing);
            let volume = builder.transfer(8192).build().unwrap();
            for iodepth in [1, 64] {
                let bench = NvmeBench::new(&volume, NvmeJob { iodepth, ..job(4096, 100) }).unwrap();
                bench.fill(|_, _| {}).unwrap();
                // On a busy machine a run may end before it has read one of the many bad blocks.
                let r = loop {
                    assert!(bench.run().unwrap().verified, "{landing}");
                    let r = volume.redundancy().unwrap();
                    if r.redirected_reads > 0 {
                        break r;
                    }
                };
                assert!(r.lost.is_empty(), "{landing}: {r}");
                assert_eq!(volume.stats().unwrap().errors, 0, "{landing}");
                volume.repair().unwrap();
                volume.reset_stats().unwrap();
            }
        }
    }

    #[test]
    fn other_data_than_was_written_is_an_error() {
        let volume = volume();
        let bench = NvmeBench::new(&volume, job(4096, 100)).unwrap();
        bench.fill(|_, _| {}).unwrap();
        bench.run().unwrap();
        volume.write_blocks(0, &vec![0; 1 << 20]).unwrap();
        assert!(matches!(bench.run(), Err(MeasureError::Wrong(_))));
    }

    #[test]
    fn sizes_that_do_not_fit_are_named() {
        let volume = volume();
        let refused = |job| NvmeBench::new(&volume, job).err().unwrap().to_string();
        assert!(refused(job(1000, 100)).contains("commands of 1000 bytes: give whole blocks of 512"));
        assert!(refused(job(1 << 30, 100)).contains("commands of 1073741824 bytes"));
        let large = NvmeJob { touched_bytes: 1 << 40, ..job(4096, 100) };
        assert!(refused(large).contains("the device has"));
        let small = NvmeJob { touched_bytes: 100, ..job(4096, 100) };
        assert!(refused(small).contains("holds 0 commands"));
    }
}
