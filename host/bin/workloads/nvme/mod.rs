//! Measures a device from kernels, with fio's parameters and figures.

pub mod distribution;
mod job;
mod run;
mod series;
mod shape;
pub mod sizes;
pub mod steady;
pub mod together;

pub(super) use job::as_nanoseconds;
pub use job::{NvmeJob, Pattern, Rates};
pub use run::NvmeRun;
pub use shape::{DepthLimit, InFlight};

use super::cufile::pattern::Geometry;
use super::error::{MeasureError, refuse};
use super::fio::Direction;
use super::histogram::Histogram;
use super::multiprocessors::{self, Compute, GpuCost};
use super::params::{
    NVME_BENCH_BITS, NVME_BENCH_BUCKETS, NVME_BENCH_PACE_BITS, NVME_BENCH_TOTALS, NvmeBench as Parameters, NvmeSize,
    NvmeZone,
};
use super::report::nanoseconds;
use rayon::prelude::*;
use series::SeriesMemory;
use shape::Shape;
use std::time::{Duration, Instant};
use steady::Steadiness;
use warpbell::engine::{Args, Engine, Grid, KernelArg, Run};
use warpbell::memory::{Place, Region, free_host_memory};
use warpbell::nvme::NvmeError;
use warpbell::storage::{DataBuffer, StorageError, Volume};
use warpbell::units::Bytes;

impl KernelArg for Parameters {
    fn push(&self, args: &mut Args) {
        args.push_value(*self);
    }
}

/// Words of the totals of a run.
const TOTALS: usize = NVME_BENCH_TOTALS as usize;
/// Warps of a block.
const BLOCK_WARPS: u32 = 4;
/// Maximum number of warps on a multiprocessor: enough to copy at full speed from the bus.
const PROCESSOR_WARPS: u32 = 16;

// Kernels with one command in flight per lane, the second for plain jobs, and with several.
const ONE: &str = "wb_nvme_bench_one";
const PLAIN: &str = "wb_nvme_bench_plain";
const MANY: &str = "wb_nvme_bench_many";
/// Bytes that a fill writes at once, between two reports of its progress. The host's queues keep many large commands of
/// them in flight.
const FILL_PART: u64 = 8 << 20;
/// Bytes that kernels write between two reports, where the host has no queue.
const KERNEL_PART: u64 = 64 << 20;
/// Time limit of one part of a fill, and of a job without a runtime, longer than any slow device needs.
const WORK_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Time after the runtime for the last commands to complete.
const GRACE: Duration = Duration::from_secs(30);

/// Time between two looks at the series of a run that ends when it is steady.
const LOOK: Duration = Duration::from_millis(20);

/// Places of the commands in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Units {
    /// Number of places.
    count: u32,
    /// Bytes from place to place.
    stride: u64,
}

impl Units {
    /// Returns the places of a job. Random commands begin at multiples of the smallest size; each sequential one has
    /// room for the largest.
    fn of(job: &NvmeJob) -> Result<Self, MeasureError> {
        let (least, most) = (job.sizes.least(job.reads(), job.writes()), job.most_bytes());
        let (random, region) = (job.rw.is_random(), job.size_bytes);
        let stride = if random { least } else { most.saturating_add(job.skip_bytes) };
        let count = match region.checked_sub(most) {
            None => 0,
            Some(_) if random => region / stride,
            Some(rest) => rest / stride + 1,
        };
        match u32::try_from(count) {
            Ok(count) if count > 0 => Ok(Self { count, stride }),
            _ => refuse!(
                "--size of {region} bytes holds {count} commands of {most} bytes: give one that holds 1 to {}",
                u32::MAX
            ),
        }
    }
}

/// A job with its memory, for any number of runs.
pub struct NvmeBench<'a> {
    volume: &'a Volume,
    job: NvmeJob,
    shape: Shape,
    units: Units,
    buffers: DataBuffer,
    histogram: Region,
    totals: Region,
    zones: Option<Region>,
    sizes: Option<Region>,
    series: Option<SeriesMemory>,
    stop: Region,
    /// Rate of a computing kernel, where the job is kept to some multiprocessors.
    compute: Option<Compute>,
}

/// Copies a table for kernels, if there is one.
fn table<T: bytemuck::Pod>(engine: &Engine, rows: Option<Vec<T>>) -> Result<Option<Region>, MeasureError> {
    let Some(rows) = rows else { return Ok(None) };
    let region = engine.allocate(Place::Device, rows.len() * size_of::<T>())?;
    region.set_slice(0, &rows)?;
    Ok(Some(region))
}

impl<'a> NvmeBench<'a> {
    /// Checks the job and allocates its memory.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if the sizes of the commands or the accessed bytes do not fit the volume, options
    /// contradict each other, or a fill would not fit into free memory. [`MeasureError::Storage`],
    /// [`MeasureError::Memory`] or [`MeasureError::Engine`] if an allocation or the query of a kernel's occupancy fails.
    pub fn new(volume: &'a Volume, job: NvmeJob) -> Result<Self, MeasureError> {
        Self::beside(volume, job, 1)
    }

    /// As [`NvmeBench::new`], for one of `kernels` kernels that run at the same time ([`together::run`]). A GPU holds all of
    /// them; CPU threads take turns.
    ///
    /// # Errors
    /// As for [`NvmeBench::new`], and [`MeasureError::Refused`] if a GPU does not hold so many.
    pub fn beside(volume: &'a Volume, job: NvmeJob, kernels: u32) -> Result<Self, MeasureError> {
        check_bytes(volume, &job)?;
        let units = Units::of(&job)?;
        if job.writes() || needs_fill(volume, &job) {
            check_memory(volume.memory_bytes(job.offset_bytes + job.size_bytes), free_host_memory(), "--size")?;
        }
        let engine = volume.engine();
        let info = engine.info();
        let resident = |kernel| -> Result<u32, MeasureError> {
            let blocks = engine.occupancy(kernel, BLOCK_WARPS * info.warp_width)?;
            Ok((blocks * BLOCK_WARPS).clamp(1, PROCESSOR_WARPS))
        };
        let most_warps = match multiprocessors::checked(engine, job.sms)? {
            Some(sms) => together::share(sms * resident(ONE)?.min(resident(PLAIN)?).min(resident(MANY)?), kernels)?,
            None => u32::try_from(info.threads).unwrap_or(u32::MAX),
        };
        let time = job.runtime.map_or(Duration::ZERO, |runtime| job.ramp.saturating_add(runtime));
        if job.sms.is_some() && time >= multiprocessors::MOST {
            let most = multiprocessors::MOST;
            return refuse!("--runtime of {time:?} with its ramp: --sms measures less than {most:?}; give less");
        }
        let shape = Shape::new(job.in_flight(), most_warps, info.warp_width);
        let bytes = u64::from(shape.lanes) * u64::from(shape.per_lane) * job.most_bytes();
        let interval = match &job.steady_state {
            Some(steady) => Some(steady.interval(job.interval)?),
            None => job.interval,
        };
        Ok(Self {
            volume,
            shape,
            units,
            buffers: volume.allocate_data(usize::try_from(bytes).unwrap_or(usize::MAX))?,
            histogram: engine.allocate(Place::Device, 2 * NVME_BENCH_BUCKETS * size_of::<u64>())?,
            totals: engine.allocate(Place::Device, TOTALS * size_of::<u64>())?,
            zones: table::<NvmeZone>(engine, job.distribution.zones(units.count))?,
            sizes: table::<NvmeSize>(engine, job.sizes.tables(volume.block_shift()))?,
            series: interval.map(|interval| SeriesMemory::new(engine, job.runtime, interval)).transpose()?,
            stop: engine.allocate(Place::Host, size_of::<u32>())?,
            compute: job.sms.map(|_| Compute::measure(engine)).transpose()?,
            job,
        })
    }

    /// Returns the job.
    pub fn job(&self) -> &NvmeJob {
        &self.job
    }

    /// Returns the number of commands in flight: requested, and effective after the limits of threads and queues.
    pub fn in_flight(&self) -> InFlight {
        self.shape.in_flight(self.job.in_flight(), self.volume.queues(), self.pair_holds())
    }

    /// Returns the number of commands that all queue pairs of the volume hold.
    pub fn queues_hold(&self) -> u64 {
        self.pair_holds() * u64::from(self.volume.queues())
    }

    /// Returns the number of commands that one queue pair holds, on all devices together.
    fn pair_holds(&self) -> u64 {
        let volume = self.volume;
        // A write to all copies takes a queue entry on each device.
        let together = if volume.is_replicated() && self.job.writes() { 1 } else { volume.devices() };
        // A ring of D entries holds D - 1 commands (NVMe Base 2.1, 3.3.1).
        together * u64::from(volume.depth().saturating_sub(1))
    }

    /// Returns true if [`NvmeBench::fill`] must precede [`NvmeBench::run`]: the job checks the data that it reads, or
    /// reads memory that has never been written.
    pub fn needs_fill(&self) -> bool {
        needs_fill(self.volume, &self.job)
    }

    /// Writes all blocks of the region once, with the data that a check expects, by large commands. Calls `advance` with
    /// the bytes written so far and the total.
    ///
    /// # Errors
    /// [`MeasureError::Storage`] if the volume fails a write, [`MeasureError::Stopped`] if the engine was cancelled. Where
    /// kernels write, [`MeasureError::Engine`] or [`MeasureError::Run`] if the kernel cannot start or fails.
    pub fn fill(&self, mut advance: impl FnMut(u64, u64)) -> Result<(), MeasureError> {
        let block = self.volume.block_bytes();
        let geometry = Geometry { command_bytes: block, block_bytes: block };
        let (from, total, mut done) = (self.job.offset_bytes, self.region_bytes(), 0);
        let mut data = vec![0; FILL_PART.min(total) as usize];
        while done < total {
            if self.volume.engine().is_cancelled() {
                return Err(MeasureError::Stopped);
            }
            advance(done, total);
            let first = (from + done) >> self.volume.block_shift();
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

    /// Returns the bytes of the region that commands can reach: whole blocks.
    fn region_bytes(&self) -> u64 {
        self.job.size_bytes >> self.volume.block_shift() << self.volume.block_shift()
    }

    /// Fills by kernels, with commands of one block each.
    fn fill_by_kernels(&self, mut advance: impl FnMut(u64, u64)) -> Result<(), MeasureError> {
        let each = self.volume.block_bytes() as u64;
        let (units, part) = (self.region_bytes() / each, (KERNEL_PART / each).max(self.shape.lanes.into()));
        let mut first = 0;
        while first < units {
            advance(first * each, units * each);
            let end = units.min(first + part);
            let parameters = Parameters { read_blocks: 1, first, units: end, ..self.parameters() };
            self.finish(self.launch("wb_nvme_bench_fill", parameters)?, WORK_LIMIT)?;
            first = end;
        }
        advance(units * each, units * each);
        Ok(())
    }

    /// Measures once.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] if a command read wrong data. [`MeasureError::Memory`], [`MeasureError::Engine`] or
    /// [`MeasureError::Run`] if the kernel or the access to its counters fails.
    pub fn run(&self) -> Result<NvmeRun, MeasureError> {
        if self.compute.is_some() {
            self.warm_up()?;
        }
        self.clear()?;
        self.measure()
    }

    /// Runs the kernel once without commands: its first launch may wait for all running kernels.
    fn warm_up(&self) -> Result<(), MeasureError> {
        self.finish(self.launch(self.kernel(), Parameters { runtime_ns: 0, ..self.parameters() })?, GRACE).map(drop)
    }

    /// Sets all counters to 0, and takes a request to end back.
    fn clear(&self) -> Result<(), MeasureError> {
        self.histogram.fill(0, self.histogram.len(), 0)?;
        self.totals.fill(0, self.totals.len(), 0)?;
        self.stop.set(0, 0u32)?;
        Ok(self.series.iter().try_for_each(SeriesMemory::clear)?)
    }

    /// Measures once, with counters that are 0.
    fn measure(&self) -> Result<NvmeRun, MeasureError> {
        let kernel = self.kernel();
        let limit = match self.job.runtime {
            Some(runtime) => self.job.ramp.saturating_add(runtime).saturating_add(GRACE),
            None => WORK_LIMIT,
        };
        let measured = || -> Result<Duration, MeasureError> {
            let mut run = self.launch(kernel, self.parameters())?;
            self.watch(&mut run, limit)?;
            self.finish(run, limit)
        };
        let engine = self.volume.engine();
        let within = limit.saturating_add(GRACE);
        let (elapsed, compute_left) = Compute::beside(self.compute, engine, self.job.sms, within, measured)?;
        let elapsed = elapsed.saturating_sub(self.job.ramp);
        let gpu = GpuCost::of(engine, kernel, self.grid(), self.job.sms)?;
        let totals = self.totals.get_slice::<u64>(0, TOTALS)?;
        let (wrong, one) = (totals[4], totals[5]);
        if wrong > 0 {
            let offset = (one - 1) << self.volume.block_shift();
            return Err(MeasureError::Wrong(format!(
                "{wrong} commands read other data than was written, one of them at byte {offset}"
            )));
        }
        let histograms = [self.latencies(0)?, self.latencies(1)?];
        let direction = |name, number: usize| self.direction(name, number, &totals, elapsed, &histograms[number]);
        Ok(NvmeRun {
            read: self.job.reads().then(|| direction("read", 0)).transpose()?,
            write: self.job.writes().then(|| direction("write", 1)).transpose()?,
            verified: self.job.verify && self.job.reads(),
            started: None,
            steadiness: self.steadiness()?,
            gpu: gpu.map(|gpu| GpuCost { compute_left, ..gpu }),
            histograms,
        })
    }

    /// Returns the latencies of reads (0) or writes (1).
    fn latencies(&self, number: usize) -> Result<Histogram, MeasureError> {
        let first = number * NVME_BENCH_BUCKETS * size_of::<u64>();
        Ok(Histogram::new(NVME_BENCH_BITS, self.histogram.get_slice::<u64>(first, NVME_BENCH_BUCKETS)?))
    }

    /// Returns the results of reads (0) or writes (1).
    fn direction(
        &self,
        name: &'static str,
        number: usize,
        totals: &[u64],
        elapsed: Duration,
        latencies: &Histogram,
    ) -> Result<Direction, MeasureError> {
        let (shift, latency) = (self.volume.block_shift(), latencies.latency(&self.job.percentiles));
        let time_series = match (&self.series, self.job.interval) {
            (Some(series), Some(_)) => Some(series.of(number, elapsed, shift)?),
            _ => None,
        };
        let direction = Direction::new(name, totals[number], totals[2 + number] << shift, elapsed, latency);
        Ok(Direction { time_series, ..direction })
    }

    /// Ends a run that has become steady, if the job has a criterion. Returns when it has ended, or is told to.
    fn watch(&self, run: &mut Run, limit: Duration) -> Result<(), MeasureError> {
        let started = Instant::now();
        while self.job.steady_state.is_some() && started.elapsed() < limit && !run.is_finished()? {
            std::thread::sleep(LOOK);
            if self.steadiness()?.is_some_and(|s| s.attained) {
                self.stop.set(0, 1u32)?;
                break;
            }
        }
        Ok(())
    }

    /// Judges the series by the job's criterion; `None` if there is none, or before a window is over.
    fn steadiness(&self) -> Result<Option<Steadiness>, MeasureError> {
        let (Some(steady), Some(series)) = (&self.job.steady_state, &self.series) else { return Ok(None) };
        let counts = series.read()?;
        // Lanes write an interval when their next command completes: the last two may be incomplete.
        let begun = counts.iter().rposition(|both| both.iter().any(|i| i.commands > 0)).map_or(0, |last| last + 1);
        let whole = &counts[..begun.saturating_sub(2)];
        Ok(steady.judge(whole, series.interval(), self.volume.block_shift()))
    }

    /// Returns the kernel that makes the job.
    fn kernel(&self) -> &'static str {
        let job = &self.job;
        // Commands of two sizes do not all fit at the last place.
        let has_sizes = job.sizes.least(job.reads(), job.writes()) != job.most_bytes();
        let has_tables = self.zones.is_some() || self.sizes.is_some() || self.series.is_some();
        let is_drawn = job.rw.is_random() && job.norandommap;
        let is_full = has_tables
            || has_sizes
            || is_drawn
            || self.shape.lanes > self.units.count
            || !job.rate.is_none()
            || !job.ramp.is_zero()
            || job.io_bytes.is_some()
            || job.run > 1;
        match self.shape.per_lane {
            1 if is_full => ONE,
            1 => PLAIN,
            _ => MANY,
        }
    }

    fn parameters(&self) -> Parameters {
        let (job, shape, shift) = (&self.job, self.shape, self.volume.block_shift());
        let blocks = |bytes: u64| (bytes >> shift) as u32;
        let (read, write) = job.sizes.means();
        let warps = shape.lanes.div_ceil(shape.warp_lanes);
        let pace = |rate: Option<u64>| {
            // Each warp has an equal part of the rate.
            let ns = rate.map_or(0.0, |rate| self.volume.block_bytes() as f64 * 1e9 * f64::from(warps) / rate as f64);
            // The commands of one turn of a warp have a time that 64 bits count: half a year at most.
            let most = (1u64 << 62) / (u64::from(shape.warp_lanes) * u64::from(blocks(job.most_bytes())).max(1));
            ((ns * f64::from(1u32 << NVME_BENCH_PACE_BITS)) as u64).min(most)
        };
        let address = |region: &Option<Region>| region.as_ref().map_or(0, Region::address);
        Parameters {
            buffers: self.buffers.address(),
            histogram: self.histogram.address(),
            totals: self.totals.address(),
            zones: address(&self.zones),
            sizes: address(&self.sizes),
            series: self.series.as_ref().map_or(0, SeriesMemory::address),
            stop: self.stop.address(),
            first_block: job.offset_bytes >> shift,
            region_blocks: job.size_bytes >> shift,
            stride_blocks: self.units.stride >> shift,
            units: self.units.count.into(),
            commands: job.io_bytes.map_or(u64::MAX, |bytes| (bytes as f64 / job.mean_bytes()).ceil() as u64),
            seed: job.seed,
            ramp_ns: nanoseconds(job.ramp),
            runtime_ns: job.runtime.map_or(u64::MAX, |runtime| nanoseconds(job.ramp.saturating_add(runtime))),
            interval_ns: self.series.as_ref().map_or(0, |series| nanoseconds(series.interval())),
            pace: [pace(job.rate.read), pace(job.rate.write)],
            first: 0,
            intervals: self.series.as_ref().map_or(0, SeriesMemory::intervals),
            buffer_blocks: blocks(job.most_bytes()),
            read_blocks: blocks(read as u64),
            write_blocks: blocks(write as u64),
            lanes: shape.lanes,
            warp_lanes: shape.warp_lanes,
            per_lane: shape.per_lane,
            read_percent: job.read_percent,
            random: job.rw.is_random().into(),
            map: (!job.norandommap).into(),
            scatter: job.distribution.is_scattered().into(),
            run: job.run,
            verify: job.verify.into(),
            padding: 0,
        }
    }

    fn grid(&self) -> Grid {
        let engine = self.volume.engine();
        let each = if engine.is_gpu() { BLOCK_WARPS.min(self.shape.warps) } else { 1 };
        Grid { blocks: self.shape.warps.div_ceil(each), threads: each * engine.info().warp_width }
    }

    fn launch(&self, kernel: &str, parameters: Parameters) -> Result<Run, MeasureError> {
        let (engine, grid) = (self.volume.engine(), self.grid());
        // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
        // ended.
        Ok(unsafe { engine.launch(kernel, grid, Args::new().with(self.volume).with(parameters)) }?)
    }

    fn finish(&self, run: Run, limit: Duration) -> Result<Duration, MeasureError> {
        let done = run.finish_within(limit);
        if let Err(e) = &done {
            self.volume.keep_refused(e);
        }
        Ok(done?.elapsed)
    }
}

/// Checks the sizes of the commands, the region and what the job leaves out, against blocks and bytes of the volume.
fn check_bytes(volume: &Volume, job: &NvmeJob) -> Result<(), MeasureError> {
    let (block, most) = (volume.block_bytes() as u64, volume.max_transfer_bytes() as u64);
    for each in job.sizes.each(job.reads(), job.writes()) {
        if each == 0 || !each.is_multiple_of(block) || each > most {
            return refuse!("commands of {each} bytes: give whole blocks of {block}, at most {most} bytes");
        }
    }
    for (bytes, option) in [(job.offset_bytes, "--offset"), (job.skip_bytes, "what a sequential job leaves out")] {
        if !bytes.is_multiple_of(block) {
            return refuse!("{option} of {bytes} bytes: give whole blocks of {block}");
        }
    }
    let (asked, holds) = (job.size_bytes, volume.bytes());
    match holds.checked_sub(job.offset_bytes) {
        Some(rest) if asked <= rest => Ok(()),
        Some(rest) if job.offset_bytes > 0 => {
            let offset = job.offset_bytes;
            refuse!(
                "--size of {asked} bytes from --offset {offset} on: the device has {holds}; give a size of {rest} or less"
            )
        }
        Some(_) => refuse!("--size of {asked} bytes: the device has {holds}; give that or less"),
        None => {
            let offset = job.offset_bytes;
            refuse!("--offset of {offset} bytes: the device has {holds}; give less")
        }
    }
}

/// Returns true if blocks must be written before they are read: for a check, or because reading never written memory
/// takes no time.
fn needs_fill(volume: &Volume, job: &NvmeJob) -> bool {
    job.reads() && (job.verify || volume.is_in_memory())
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
mod tests;
