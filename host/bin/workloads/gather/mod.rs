//! Measures gathers of rows: a table that the benchmark fills, and batches of rows of it, each checked.

mod choice;
mod indices;
mod overlap;
mod permutation;
mod run;
mod sample;
mod trace;

pub use choice::Choice;
pub use indices::Indices;
pub use overlap::Overlap;
pub use run::GatherRun;

use super::error::{MeasureError, refuse};
use super::multiprocessors::{Compute, GpuCost};
use super::nvme::check_memory;
use super::report::nanoseconds;
use rayon::prelude::*;
use run::Counters;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpbell::engine::{Args, Engine, Grid, abi};
use warpbell::memory::{Place, Region, free_host_memory};
use warpbell::storage::{DataBuffer, ElementType, RowIndices, Table, TableLayout, TableWriter, Volume};
use warpbell::units::Bytes;

/// Name of the table.
pub const TABLE: &str = "bench-gather";
/// Word i of the rows has the upper half of i times this factor (`word` of `kernels/bench/table.cu`).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Words that are written at once.
const FILL_WORDS: u64 = 4 << 20;
const THREADS_PER_BLOCK: u32 = 256;
/// Threads of a block of a gather, and its warps on each multiprocessor, unless the job has another number
/// (host/storage/table/batch.rs).
const GATHER_THREADS: u32 = 128;
const GATHER_WARPS: u32 = 8;
/// Most batches between two checks, and most in flight. Each has a buffer that devices reach, and a volume has few of these.
pub const MOST_BATCHES: u64 = 8;
/// Memory for the rows of these batches, unless the batches in flight need more.
const GPU_ROWS: u64 = 8 << 30;
const CPU_ROWS: u64 = 256 << 20;
/// Time limit of a batch and of a check, longer than any slow device needs.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GatherJob {
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Indices of a batch; for sampled indices its starts.
    pub batch: u32,
    /// Batches of a run; absent if the time limits it.
    pub batches: Option<u32>,
    /// Duration of a run.
    #[serde(rename = "runtime_ns", serialize_with = "super::nvme::as_nanoseconds")]
    pub runtime: Duration,
    /// Batches before the first run.
    pub warmup: u32,
    /// Batches in flight.
    pub in_flight: u32,
    /// Bytes of the row cache near the kernels.
    pub cache_bytes: u64,
    /// Bytes of the row cache in host memory.
    pub host_cache_bytes: u64,
    /// Bytes of the hot rows.
    pub hot_bytes: u64,
    /// Reads of a batch in flight; absent for the library's choice.
    pub iodepth: Option<u32>,
    /// Warps of a batch's kernel; absent for the library's choice.
    pub warps: Option<u32>,
    /// Multiprocessors of a GPU that gathers are kept to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
    /// Seed of the indices.
    pub seed: u64,
}

impl GatherJob {
    /// Returns the name of the kernel that gathers.
    fn kernel(&self) -> &'static str {
        if self.index_bytes() == 8 { "wb_table_gather_u64" } else { "wb_table_gather_u32" }
    }

    /// Returns the warps of a batch's kernel, unless the library chooses them.
    fn most_warps(&self) -> Option<u32> {
        self.warps.or(self.sms.map(|sms| sms * GATHER_WARPS))
    }

    /// Returns the bytes of an index: 4 where they suffice.
    fn index_bytes(&self) -> usize {
        if self.rows <= 1 << 32 { 4 } else { 8 }
    }

    /// Returns the layout of the table.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if rows cannot have this size.
    pub fn layout(&self) -> Result<TableLayout, MeasureError> {
        let each = self.row_bytes;
        if !each.is_multiple_of(4) {
            return refuse!("--row-size {each}: rows have a multiple of 4 bytes; give {}", each.next_multiple_of(4));
        }
        match TableLayout::new(ElementType::U32, &[each / 4], self.rows) {
            Ok(layout) => Ok(layout),
            Err(e) => refuse!("--row-size {each}, --rows {}: {e}", self.rows),
        }
    }

    /// Checks that each row cache has a set of rows, at least.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] with the option of one that has not.
    pub fn check_caches(&self) -> Result<(), MeasureError> {
        let (ways, each) = (abi::ROW_WAYS as u64, self.row_bytes);
        let set = each.saturating_mul(ways);
        for (option, bytes) in [("--cache", self.cache_bytes), ("--host-cache", self.host_cache_bytes)] {
            if bytes > 0 && bytes < set {
                return refuse!(
                    "{option} {}: a row cache holds whole sets of {ways} rows, and {ways} of {each} bytes have {}; give that or more",
                    Bytes(bytes),
                    Bytes(set)
                );
            }
        }
        Ok(())
    }

    /// Checks that the rows of batches and caches fit into the host's memory, of which `free` bytes are free. Of the rows
    /// of a GPU engine only the cache in pinned memory is there.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] with the option that takes most of the memory.
    pub fn check_memory(&self, is_gpu: bool, free: Option<u64>) -> Result<(), MeasureError> {
        // A cache takes no more than twice the table.
        let table = self.rows.saturating_mul(self.row_bytes);
        let cache = |bytes: u64| bytes.min(table.saturating_mul(2));
        let batches = u64::from(self.batch).saturating_mul(self.row_bytes).saturating_mul(self.in_flight.into());
        let near = [("--cache", cache(self.cache_bytes)), ("--hot", self.hot_bytes.min(table)), ("--batch", batches)];
        let near = near.into_iter().filter(|_| !is_gpu);
        let parts: Vec<(&str, u64)> = near.chain([("--host-cache", cache(self.host_cache_bytes))]).collect();
        let needed = parts.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let largest = parts.iter().max_by_key(|(_, bytes)| *bytes).map_or("--batch", |(option, _)| *option);
        check_memory(needed, free, largest)
    }
}

/// Checks that the devices have room for a table, before any is filled.
///
/// # Errors
/// [`MeasureError::Refused`] if memory devices would take more than the free memory; [`MeasureError::Storage`] if the
/// volume is too small or fails.
pub fn check_devices(volume: &Volume, layout: &TableLayout) -> Result<(), MeasureError> {
    check_memory(volume.memory_bytes(layout.bytes()), free_host_memory(), "--rows")?;
    // A writer that is not finished stores nothing.
    drop(TableWriter::new(volume, TABLE, layout, false)?);
    Ok(())
}

/// Writes the table of a job. Calls `advance` with the bytes written so far and the total.
///
/// # Errors
/// [`MeasureError::Storage`] if the volume is too small or fails.
pub fn fill(volume: &Volume, layout: &TableLayout, mut advance: impl FnMut(u64, u64)) -> Result<(), MeasureError> {
    let (words, mut first) = (layout.bytes() / 4, 0);
    let mut writer = TableWriter::new(volume, TABLE, layout, false)?;
    let mut piece = vec![0u32; FILL_WORDS.min(words) as usize];
    while first < words {
        advance(first * 4, words * 4);
        let now = FILL_WORDS.min(words - first) as usize;
        piece[..now].par_iter_mut().enumerate().for_each(|(i, word)| {
            *word = ((first + i as u64).wrapping_mul(FACTOR) >> 32) as u32;
        });
        writer.append(&piece[..now])?;
        first += now as u64;
    }
    advance(words * 4, words * 4);
    writer.finish()?;
    Ok(())
}

/// A job with its memory, for any number of runs.
pub struct GatherBench {
    table: Table,
    job: GatherJob,
    indices: Arc<Indices>,
    /// Memory of the batches between two checks.
    rows: Vec<DataBuffer>,
    numbers: Vec<Region>,
    totals: Region,
    /// Number of the next batch.
    next: u64,
    /// Rate of a computing kernel, where gathers are kept to some multiprocessors.
    compute: Option<Compute>,
}

impl GatherBench {
    /// Opens the table that [`fill`] has written, with the caches of the job.
    ///
    /// # Errors
    /// [`MeasureError::Storage`] or [`MeasureError::Memory`] if the table cannot be opened or memory not be allocated.
    pub fn new(volume: &Volume, job: GatherJob, indices: Arc<Indices>) -> Result<Self, MeasureError> {
        let mut builder =
            Table::open(volume, TABLE).cache_bytes(job.cache_bytes).host_cache_bytes(job.host_cache_bytes);
        if let Some(reads) = job.iodepth {
            builder = builder.in_flight(reads);
        }
        let engine = volume.engine();
        if let Some(warps) = job.most_warps() {
            builder = builder.warps(warps);
        }
        if let (Some(sms), Some(warps)) = (job.sms, job.warps) {
            let width = engine.info().warp_width;
            let most = sms * engine.occupancy(job.kernel(), GATHER_THREADS)? * GATHER_THREADS / width;
            if warps > most {
                return refuse!("--warps {warps}: {sms} multiprocessors run {most} at once; give fewer, or more --sms");
            }
        }
        if job.hot_bytes > 0 {
            builder = builder.hot_rows(&indices.popular(job.hot_bytes / job.row_bytes, job.rows, job.seed));
        }
        let table = builder.build()?;
        let totals = volume.engine().allocate(Place::Device, 2 * size_of::<u64>())?;
        let compute = job.sms.map(|_| Compute::measure(engine)).transpose()?;
        Ok(Self { table, job, indices, rows: Vec::new(), numbers: Vec::new(), totals, next: 0, compute })
    }

    /// Gathers the batches that precede the first run, and checks them. Before these it makes a round that allocates the
    /// memory of batches, and leaves nothing in the caches.
    ///
    /// # Errors
    /// As for [`GatherBench::run`].
    pub fn warm_up(&mut self) -> Result<(), MeasureError> {
        // It has all multiprocessors.
        let compute = self.compute.take();
        self.round(u64::from(self.job.in_flight))?;
        self.compute = compute;
        self.table.drop_caches()?;
        self.next = 0;
        let mut left = u64::from(self.job.warmup);
        while left > 0 {
            left -= self.round(left)?.latencies_ns.len() as u64;
        }
        Ok(())
    }

    /// Measures once.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] if a row is not that of its index. [`MeasureError::Storage`], [`MeasureError::Memory`],
    /// [`MeasureError::Engine`] or [`MeasureError::Run`] if a batch, the memory or a check fails.
    pub fn run(&mut self) -> Result<GatherRun, MeasureError> {
        let before = self.counters()?;
        let mut whole = Round::default();
        loop {
            let left = self.job.batches.map_or(u64::MAX, |n| u64::from(n) - whole.latencies_ns.len() as u64);
            if left == 0 || (self.job.batches.is_none() && whole.elapsed >= self.job.runtime) {
                break;
            }
            let round = self.round(left)?;
            whole.elapsed += round.elapsed;
            whole.rows += round.rows;
            whole.latencies_ns.extend(round.latencies_ns);
            whole.left_s += round.left_s;
        }
        let counters = self.counters()? - before;
        let (engine, left) = (self.engine(), whole.left_s / whole.elapsed.as_secs_f64());
        let per_processor = GATHER_WARPS * engine.info().warp_width / GATHER_THREADS;
        let grid = match self.job.most_warps() {
            Some(warps) => {
                Grid { blocks: (warps * engine.info().warp_width).div_ceil(GATHER_THREADS), threads: GATHER_THREADS }
            }
            None => engine.grid(GATHER_THREADS, per_processor),
        };
        let gpu = GpuCost::of(engine, self.job.kernel(), grid, self.job.sms)?;
        let gpu = gpu.map(|gpu| GpuCost { compute_left: self.job.sms.map(|_| left), ..gpu });
        let run = GatherRun::new(whole.elapsed, whole.rows, self.job.row_bytes, whole.latencies_ns, counters);
        Ok(GatherRun { gpu, ..run })
    }

    fn counters(&self) -> Result<Counters, MeasureError> {
        Ok(Counters { table: self.table.stats()?, volume: self.table.volume().stats()? })
    }

    fn engine(&self) -> &Engine {
        self.table.volume().engine()
    }

    /// Gathers at most `most` batches, then checks them. Only the gathers are timed.
    fn round(&mut self, most: u64) -> Result<Round, MeasureError> {
        let batches = self.choose(most);
        self.prepare(&batches)?;
        let gather = || -> Result<Round, MeasureError> {
            let mut round = Round::default();
            let mut flying = VecDeque::new();
            let started = Instant::now();
            for (at, batch) in batches.iter().enumerate() {
                if flying.len() == self.job.in_flight as usize {
                    round.finish(&mut flying)?;
                }
                let began = Instant::now();
                let indices = self.row_indices(at, batch.len() as u64);
                flying.push_back((began, self.table.start(indices, &self.rows[at])?));
            }
            while !flying.is_empty() {
                round.finish(&mut flying)?;
            }
            round.elapsed = started.elapsed();
            Ok(round)
        };
        let (mut round, left) = Compute::beside(self.compute, self.engine(), self.job.sms, LIMIT, gather)?;
        round.left_s = left.unwrap_or(0.0) * round.elapsed.as_secs_f64();
        for (at, batch) in batches.iter().enumerate() {
            self.check(at, batch)?;
            round.rows += batch.len() as u64;
        }
        self.next += batches.len() as u64;
        Ok(round)
    }

    /// Returns the indices of the next batches: as many as their rows fit into the memory for them.
    fn choose(&self, most: u64) -> Vec<Vec<u64>> {
        let job = &self.job;
        let of = |number: u64| self.indices.batch(number, job.batch, job.rows, job.seed);
        let first = of(self.next);
        let memory = if self.engine().is_gpu() { GPU_ROWS } else { CPU_ROWS };
        let fit = memory / (first.len() as u64 * job.row_bytes).max(1);
        let count = fit.max(job.in_flight.into()).min(MOST_BATCHES).min(most);
        let more: Vec<Vec<u64>> = (1..count).into_par_iter().map(|i| of(self.next + i)).collect();
        std::iter::once(first).chain(more).collect()
    }

    /// Writes indices to memory that kernels read, and allocates memory for their rows.
    fn prepare(&mut self, batches: &[Vec<u64>]) -> Result<(), MeasureError> {
        let volume = self.table.volume().clone();
        for (at, batch) in batches.iter().enumerate() {
            let bytes = usize::try_from(batch.len() as u64 * self.job.row_bytes).unwrap_or(usize::MAX);
            if self.rows.get(at).is_none_or(|rows| rows.len() < bytes) {
                // The old buffers make place first.
                self.rows.truncate(at);
                self.rows.push(volume.allocate_data(bytes)?);
            }
            let bytes = batch.len() * self.job.index_bytes();
            if self.numbers.get(at).is_none_or(|numbers| numbers.len() < bytes) {
                self.numbers.truncate(at);
                self.numbers.push(volume.engine().allocate(Place::Device, bytes)?);
            }
            if self.job.index_bytes() == 8 {
                self.numbers[at].set_slice(0, batch)?;
            } else {
                let narrow: Vec<u32> = batch.iter().map(|row| *row as u32).collect();
                self.numbers[at].set_slice(0, &narrow)?;
            }
        }
        Ok(())
    }

    fn row_indices(&self, at: usize, count: u64) -> RowIndices<'_> {
        let numbers = &self.numbers[at];
        if self.job.index_bytes() == 8 { RowIndices::u64(numbers, count) } else { RowIndices::u32(numbers, count) }
    }

    /// Compares the rows of a batch with those that its indices name.
    fn check(&self, at: usize, batch: &[u64]) -> Result<(), MeasureError> {
        let engine = self.engine();
        let kernel = if self.job.index_bytes() == 8 { "wb_table_bench_check_u64" } else { "wb_table_bench_check_u32" };
        let grid: Grid = engine.grid(THREADS_PER_BLOCK, engine.occupancy(kernel, THREADS_PER_BLOCK)?);
        self.totals.fill(0, self.totals.len(), 0)?;
        let words = (self.job.row_bytes / 4) as u32;
        let args = Args::new().with(&self.numbers[at]).with(batch.len() as u64).with(words);
        let args = args.with(&self.rows[at]).with(&self.totals);
        // SAFETY: the arguments are this kernel's parameters; `prepare` has made numbers and rows as long as the batch. The
        // memory that they refer to lives until the run has ended.
        unsafe { engine.launch(kernel, grid, args) }?.finish_within(LIMIT)?;
        let totals = self.totals.get_slice::<u64>(0, 2)?;
        if totals[0] > 0 {
            let position = totals[1] - 1;
            let row = batch.get(position as usize).copied().unwrap_or_default();
            return Err(MeasureError::Wrong(format!(
                "{} of {} rows of batch {} are not those of their indices, one of them row {row} at position {position}",
                totals[0],
                batch.len(),
                self.next + at as u64
            )));
        }
        Ok(())
    }
}

/// Batches between two checks, or all of a run.
#[derive(Default)]
struct Round {
    elapsed: Duration,
    rows: u64,
    latencies_ns: Vec<u64>,
    /// Share of a computing kernel that was left, times the time.
    left_s: f64,
}

impl Round {
    /// Waits for the oldest batch in flight.
    fn finish(&mut self, flying: &mut VecDeque<(Instant, warpbell::storage::Gathering)>) -> Result<(), MeasureError> {
        if let Some((began, batch)) = flying.pop_front() {
            batch.finish(LIMIT)?;
            self.latencies_ns.push(nanoseconds(began.elapsed()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::storage::{Drive, OverwritePolicy};

    pub(super) fn job() -> GatherJob {
        GatherJob {
            rows: 5000,
            row_bytes: 100,
            batch: 300,
            batches: Some(10),
            runtime: Duration::from_secs(5),
            warmup: 1,
            in_flight: 3,
            cache_bytes: 0,
            host_cache_bytes: 0,
            hot_bytes: 0,
            iodepth: None,
            warps: None,
            sms: None,
            seed: 1,
        }
    }

    pub(super) fn volume() -> Volume {
        let drive = Drive::create("soft:mem", 4 << 20, &OverwritePolicy::none()).unwrap();
        Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap()
    }

    pub(super) fn bench(volume: &Volume, job: GatherJob, choice: &str) -> GatherBench {
        let (indices, rows) = Indices::new(&choice.parse().unwrap(), &[2], 1, Some(job.rows), 0).unwrap();
        assert_eq!(rows, job.rows);
        GatherBench::new(volume, job, Arc::new(indices)).unwrap()
    }

    #[test]
    fn rows_come_from_where_the_job_says() {
        let volume = volume();
        fill(&volume, &job().layout().unwrap(), |_, _| {}).unwrap();
        let plain = bench(&volume, job(), "uniform").run().unwrap();
        assert_eq!((plain.rows, plain.batches, plain.latency.samples), (3000, 10, 10));
        let c = plain.counters.table;
        assert_eq!((c.rows, c.duplicates + c.device_reads, c.cache_hits + c.hot_hits + c.host_hits), (3000, 3000, 0));
        // A hidden copy of the table would need fewer reads.
        assert!(plain.counters.volume.reads >= c.device_reads && c.device_reads > 2500, "{c:?}");

        let hot = bench(&volume, GatherJob { hot_bytes: 100_000, ..job() }, "zipf:1.1").run().unwrap();
        assert!(hot.counters.table.hot_hits > hot.counters.table.device_reads, "{:?}", hot.counters.table);
        let cached = GatherJob { cache_bytes: 200_000, host_cache_bytes: 200_000, warmup: 40, ..job() };
        let mut cached = bench(&volume, cached, "zipf:0.99");
        cached.warm_up().unwrap();
        let c = cached.run().unwrap().counters.table;
        assert!(c.cache_hits > c.device_reads, "{c:?}");
    }

    #[test]
    fn rows_that_are_not_those_asked_for_are_an_error() {
        let volume = volume();
        fill(&volume, &job().layout().unwrap(), |_, _| {}).unwrap();
        let mut bench = bench(&volume, job(), "uniform");
        bench.run().unwrap();
        // One word of one row, which nearly every run of 3,000 rows among 5,000 reads.
        let first = volume.manifest().unwrap().find(&format!("{TABLE}:rows")).unwrap().offset;
        let mut block = vec![0; 4096];
        volume.read_blocks(first >> volume.block_shift(), &mut block).unwrap();
        block[400] ^= 1;
        volume.write_blocks(first >> volume.block_shift(), &block).unwrap();
        let wrong = (0..20).find_map(|_| bench.run().err()).unwrap();
        assert!(matches!(wrong, MeasureError::Wrong(ref text) if text.contains("row 4 at position")), "{wrong}");
    }

    #[test]
    fn sizes_that_do_not_fit_are_named() {
        let layout = |row_bytes, rows| GatherJob { row_bytes, rows, ..job() }.layout().map_err(|e| e.to_string());
        assert!(layout(101, 1).unwrap_err().contains("--row-size 101: rows have a multiple of 4 bytes; give 104"));
        assert!(layout(32, 1).unwrap_err().contains("64 to 65536"));
        let large = layout(65_536, 1 << 39).unwrap();
        assert!(fill(&volume(), &large, |_, _| {}).is_err());
    }
}
