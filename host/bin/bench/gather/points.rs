//! Jobs of the points of a sweep, with what they need: known before anything is measured.

use super::sweep::Point;
use crate::args::{GatherArgs, GatherShape};
use crate::output::Failure;
use crate::workloads::gather::{self, Choice, GatherJob, Indices};
use std::sync::Arc;
use warpbell::memory::free_host_memory;
use warpbell::storage::{TableLayout, Volume};
use warpbell::units::BytesOrShare;

/// Bytes of the table, if neither `--rows` nor the indices say how many rows it has.
const GPU_TABLE: u64 = 1 << 30;
const CPU_TABLE: u64 = 64 << 20;
/// Rows of such a table for each row of a batch, at least: few rows of a batch are then the same.
const GPU_SPREAD: u64 = 16;
const CPU_SPREAD: u64 = 1;
/// Bytes of the largest block of a device, as far as commands for whole rows are concerned.
const BLOCK: u64 = 4096;

/// Values that shape and options have at all points but where a point has its own.
pub struct Setting {
    row_bytes: u64,
    batch: u32,
    rows: Option<u64>,
    pub choice: Choice,
    fanout: Vec<u32>,
    is_gpu: bool,
}

/// A point with its job and its indices.
pub struct Planned {
    pub point: Point,
    pub job: GatherJob,
    pub layout: TableLayout,
    pub indices: Arc<Indices>,
}

/// Indices that were made for a number of rows.
struct IndexSource {
    asked: Option<u64>,
    rows: u64,
    indices: Arc<Indices>,
}

impl Setting {
    /// Reads shape and indices of the arguments.
    ///
    /// # Errors
    /// [`Failure::Usage`] if options contradict each other.
    pub fn new(args: &GatherArgs, is_gpu: bool) -> Result<Self, Failure> {
        let (row_bytes, batch, choice, rows) = match args.shape {
            None => (512, None, Choice::Uniform, None),
            Some(GatherShape::Graphbolt) => (512, Some(669_000), Choice::Uniform, None),
            Some(GatherShape::Gids) => {
                let graph = if is_gpu { "kron:20" } else { "kron:14" };
                (4096, Some(1024), Choice::Sample(graph.to_owned()), None)
            }
            Some(GatherShape::Engram) => (256, Some(12_288), Choice::Uniform, Some(524_288)),
            Some(GatherShape::Kv) => (32 << 10, Some(32_768), Choice::Uniform, None),
        };
        let choice = args.indices.clone().unwrap_or(choice);
        let is_sample = matches!(choice, Choice::Sample(_));
        if !is_sample && !args.fanout.is_empty() {
            return Err(Failure::Usage(format!(
                "--fanout is about sampled indices, and these are {choice}; leave it out, or give --indices sample:GRAPH"
            )));
        }
        let fanout = if args.fanout.is_empty() { vec![10, 5, 5] } else { args.fanout.clone() };
        let batch = batch.unwrap_or(if is_sample { 1024 } else { 1 << 16 });
        Ok(Self { row_bytes, batch, rows, choice, fanout, is_gpu })
    }

    /// Makes the indices of all points, and checks their rows and caches.
    ///
    /// # Errors
    /// [`Failure::Error`] if indices cannot be made, or a point cannot be measured.
    pub fn plan(&self, points: Vec<Point>, args: &GatherArgs) -> Result<Vec<Planned>, Failure> {
        // All batches of a sweep are of the same table.
        let largest = points.iter().map(|point| point.batch.unwrap_or(self.batch)).max().unwrap_or(self.batch);
        let mut made: Vec<IndexSource> = Vec::new();
        let mut all = Vec::new();
        for point in points {
            let row_bytes = point.row_bytes.unwrap_or(self.row_bytes);
            let default = self.default_rows(row_bytes, largest);
            let is_free = matches!(self.choice, Choice::Uniform | Choice::Zipf(_));
            let asked = point.rows.or(self.rows).or(is_free.then_some(default));
            let at = match made.iter().position(|made| made.asked == asked) {
                Some(at) => at,
                None => {
                    let (indices, rows) = Indices::new(&self.choice, &self.fanout, args.seed, asked, default)?;
                    made.push(IndexSource { asked, rows, indices: Arc::new(indices) });
                    made.len() - 1
                }
            };
            let (rows, indices) = (made[at].rows, made[at].indices.clone());
            let job = self.job(&point, (rows, row_bytes), args);
            job.check_caches()?;
            all.push(Planned { layout: job.layout()?, point, job, indices });
        }
        Ok(all)
    }

    fn job(&self, point: &Point, (rows, row_bytes): (u64, u64), args: &GatherArgs) -> GatherJob {
        let table_bytes = rows.saturating_mul(row_bytes);
        let bytes = |size: Option<BytesOrShare>| size.map_or(0, |size| size.of(table_bytes));
        GatherJob {
            rows,
            row_bytes,
            batch: point.batch.unwrap_or(self.batch),
            batches: args.batches,
            runtime: args.runtime,
            warmup: args.warmup,
            in_flight: point.in_flight.unwrap_or(1),
            cache_bytes: bytes(point.cache),
            host_cache_bytes: bytes(point.host_cache),
            hot_bytes: bytes(point.hot),
            iodepth: point.iodepth,
            warps: point.warps,
            sms: point.sms,
            seed: args.seed,
        }
    }

    /// Returns the number of rows for indices that need none in particular, and batches of at most `batch` rows.
    fn default_rows(&self, row_bytes: u64, batch: u32) -> u64 {
        let (table, spread) = if self.is_gpu { (GPU_TABLE, GPU_SPREAD) } else { (CPU_TABLE, CPU_SPREAD) };
        (table / row_bytes.max(1)).max(u64::from(batch) * spread)
    }
}

impl Planned {
    /// Returns the rows of the table and their bytes, which tell it from those of other points.
    pub fn table(&self) -> (u64, u64) {
        (self.job.rows, self.job.row_bytes)
    }

    /// Returns the bytes of commands for whole rows. Rows that are no whole blocks begin and end within blocks.
    pub fn transfer(&self) -> u64 {
        let row_bytes = self.job.row_bytes;
        let whole = row_bytes.next_multiple_of(BLOCK);
        if row_bytes.is_multiple_of(BLOCK) { whole } else { whole + BLOCK }
    }
}

/// Returns the point with the largest table.
pub fn largest(all: &[Planned]) -> Option<&Planned> {
    all.iter().max_by_key(|planned| planned.layout.bytes())
}

/// Checks that there is room for the tables, batches and caches of all points: on the devices, and in the memory of this
/// machine.
///
/// # Errors
/// [`Failure::Error`] with an option that needs another value.
pub fn check_room(all: &[Planned], volume: &Volume) -> Result<(), Failure> {
    if let Some(largest) = largest(all) {
        gather::check_devices(volume, &largest.layout)?;
    }
    let (is_gpu, free) = (volume.engine().is_gpu(), free_host_memory());
    Ok(all.iter().try_for_each(|planned| planned.job.check_memory(is_gpu, free))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchCommand, Cli, Command};
    use crate::bench::gather::sweep::Sweep;
    use clap::Parser;

    fn plan(args: &[&str]) -> Result<Vec<Planned>, Failure> {
        let command = Cli::try_parse_from(["warpbell", "bench", "gather"].iter().chain(args)).unwrap().command;
        let Command::Bench(BenchCommand::Gather(args)) = command else { panic!("{command:?}") };
        Setting::new(&args, false)?.plan(Sweep::of(&args).points()?, &args)
    }

    #[test]
    fn batches_of_a_sweep_have_one_table_and_row_sizes_one_each() {
        let all = plan(&["--batch", "100,200000", "--row-size", "512,4k", "--cache", "10%"]).unwrap();
        let tables: Vec<(u64, u64)> = all.iter().map(Planned::table).collect();
        assert_eq!(tables, [(200_000, 512), (200_000, 512), (200_000, 4096), (200_000, 4096)]);
        assert_eq!(all.iter().map(|p| p.job.batch).collect::<Vec<_>>(), [100, 200_000, 100, 200_000]);
        assert_eq!((all[0].job.cache_bytes, all[3].job.cache_bytes), (10_240_000, 81_920_000));
        assert!(Arc::ptr_eq(&all[0].indices, &all[3].indices));
        assert_eq!(largest(&all).unwrap().job.row_bytes, 4096);
        assert_eq!((all[0].transfer(), all[3].transfer()), (8192, 4096));
    }

    #[test]
    fn points_that_cannot_be_measured_are_known_before() {
        let refused = |args: &[&str]| match plan(args) {
            Err(Failure::Error(text)) => text,
            _ => panic!("{args:?}"),
        };
        assert!(refused(&["--row-size", "512,102"]).contains("--row-size 102"));
        assert!(refused(&["--cache", "64k,1k"]).contains("--cache 1 KiB"));
        assert!(refused(&["--indices", "sample:kron:6", "--rows", "64,63"]).contains("--rows 63"));
        let job = plan(&["--batch", "1000,100000", "--rows", "1000", "--in-flight", "8"]).unwrap().remove(1).job;
        let told = job.check_memory(false, Some(100 << 20)).unwrap_err().to_string();
        assert!(told.contains("of memory, and 100 MiB is free; give a smaller --batch"), "{told}");
        // On a GPU, batches are in its memory.
        assert!(job.check_memory(true, Some(100 << 20)).is_ok());
    }
}
