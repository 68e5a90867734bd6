//! Measures posting of RDMA work requests alone: kernels that post, against an ideal adapter made of kernels, which
//! completes everything at once. The figures are those of software only: neither PCIe nor a wire takes part.

mod capsules;

use super::error::{MeasureError, refuse};
use super::params::{AdapterSaw, PostClock, QueueSubmitted, WarpPosted};
use super::spread::Spread;
use capsules::CapsuleQueues;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use warpbell::args;
use warpbell::engine::{Args, Engine, Grid, abi};
use warpbell::memory::{Place, Region};
use warpbell::rdma::{MAX_LOG_BLOCKS, QueuePlan, QueueRings};
use warpbell::units::{grouped, three_digits};
use warpbell::wire::mlx5::BLOCK_BYTES;

/// Maximum default number of queue pairs. On an H200, twice as many, each with a warp of the adapter, made everything
/// slower.
const MOST_QUEUES: u32 = 64;

/// Minimum number of blocks of a send queue: a put whose signal is set takes three blocks.
const LEAST_DEPTH: u32 = 4;
/// Number of the first queue pair.
const FIRST_NUMBER: u32 = 0x100;
/// Warps of the ideal adapter in a block: few, so that they have multiprocessors of their own.
const ADAPTER_WARPS: u32 = 4;
/// Time limit of one measurement.
const LIMIT: Duration = Duration::from_secs(120);
/// Posts of a latency run before the timed ones.
const WARMUP: u32 = 200;

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PostSetting {
    /// Thread blocks that post.
    pub blocks: u32,
    /// Threads per block.
    pub threads: u32,
    /// Queue pairs, which the blocks use in turn.
    pub queues: u32,
    /// Size of each send queue in blocks of 64 bytes.
    pub depth: u32,
    /// Posts per thread.
    pub posts_each: u32,
    /// True if the work request carries the data; false if the work request refers to the data.
    pub inline: bool,
    /// True if all completions go into one completion entry.
    pub collapsed: bool,
    /// True if the doorbell is a BlueFlame register, which takes the only new entry.
    pub blue_flame: bool,
    /// True if the posting functions are inlined into the kernel; false if the kernel calls them, as a put does.
    pub inlined: bool,
    /// True if the posts are command capsules (NVMe over Fabrics), of queues with `depth` entries. Each thread waits for
    /// the response before it posts the next.
    pub capsules: bool,
}

impl PostSetting {
    /// Returns parameters that suit `engine`: whole blocks, and enough posts for tenths of a second.
    pub fn suited(engine: &Engine, blocks: u32, depth: u32) -> Self {
        let gpu = engine.is_gpu();
        let width = engine.info().warp_width;
        let (threads, posts_each) = if gpu { (256, 8192) } else { (width, 5_000) };
        // One queue pair per warp, up to the number above which the ideal adapter's own warps would limit the rate.
        let queues = blocks.saturating_mul(threads / width).min(MOST_QUEUES);
        Self {
            blocks,
            threads,
            queues,
            depth,
            posts_each,
            inline: false,
            collapsed: false,
            blue_flame: false,
            inlined: false,
            capsules: false,
        }
    }

    /// Returns the parameters for command capsules: fewer posts take as long, as each is waited for.
    pub fn of_capsules(self) -> Self {
        Self { posts_each: self.posts_each.div_ceil(4), capsules: true, ..self }
    }
}

/// Rate of posts with one setting.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PostRow {
    /// Parameters of the measurement.
    #[serde(flatten)]
    pub setting: PostSetting,
    /// Posts per second.
    pub posts_per_s: Spread,
    /// Work requests per doorbell value that the adapter observed, in the last run.
    pub posts_per_doorbell: f64,
    /// Share of the work requests that the adapter took from a BlueFlame register, from 0 to 1, in the last run.
    pub from_register: f64,
}

/// Head of that table: two lines.
pub const HEAD: [&str; 2] = [
    "# blocks  threads  queues    posts      min   median      max posts per",
    "#                                   Mpost/s  Mpost/s  Mpost/s  doorbell",
];

impl fmt::Display for PostRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, r) = (&self.setting, &self.posts_per_s);
        let posts = u64::from(s.blocks) * u64::from(s.threads) * u64::from(s.posts_each);
        let mega = |rate: f64| three_digits(rate / 1e6);
        write!(
            f,
            "{:>8} {:>8} {:>7} {:>8} {:>8} {:>8} {:>8} {:>9}",
            s.blocks,
            s.threads,
            s.queues,
            grouped(posts / 1000) + "k",
            mega(r.min),
            mega(r.median),
            mega(r.max),
            three_digits(self.posts_per_doorbell)
        )
    }
}

/// Durations of a post, and of a post with its completion, if nothing else posts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyRow {
    /// Number of lanes that post together.
    pub lanes: u32,
    /// Number of timed posts per lane.
    pub iterations: u32,
    /// Median duration of the post call in nanoseconds.
    pub post_p50_ns: f64,
    /// 99th percentile of the duration of the post call in nanoseconds.
    pub post_p99_ns: f64,
    /// Median time from the call until the completion was observed, in nanoseconds.
    pub complete_p50_ns: f64,
    /// 99th percentile of the time from the call until the completion was observed, in nanoseconds.
    pub complete_p99_ns: f64,
    /// Share of the work requests that the adapter took from a BlueFlame register, from 0 to 1.
    pub from_register: f64,
}

/// Head of that table: two lines.
pub const LATENCY_HEAD: [&str; 2] = [
    "#   lanes     posts   post p50  post p99  complete p50  complete p99",
    "#                           us        us            us            us",
];

impl fmt::Display for LatencyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: f64| format!("{:.3}", ns / 1e3);
        write!(
            f,
            "{:>9}{:>10}{:>11}{:>10}{:>14}{:>14}",
            self.lanes,
            self.iterations,
            us(self.post_p50_ns),
            us(self.post_p99_ns),
            us(self.complete_p50_ns),
            us(self.complete_p99_ns)
        )
    }
}

/// Queues in the engine's memory that belong to no adapter.
trait PostQueues {
    /// Resets all memory and structures to the state of new queues.
    fn reset(&self) -> Result<(), MeasureError>;
    /// Returns the structures, which the kernels take.
    fn table(&self) -> &Region;
}

/// Queue pairs for work requests.
struct Queues {
    memory: Vec<QueueRings>,
    table: Region,
}

impl Queues {
    fn new(engine: &Engine, setting: &PostSetting) -> Result<Self, MeasureError> {
        let plan = QueuePlan::new(engine.space().clone(), Place::Device)
            .log_blocks(setting.depth.trailing_zeros())
            .collapsed(setting.collapsed);
        let mut memory: Vec<_> =
            (0..setting.queues).map(|_| QueueRings::new(plan.clone(), Place::Device)).collect::<Result<_, _>>()?;
        if setting.blue_flame {
            memory.iter_mut().for_each(|m| m.set_blue_flame(BLOCK_BYTES as u32));
        }
        let table = engine.allocate(Place::Device, setting.queues as usize * size_of::<abi::SendQueue>())?;
        Ok(Self { memory, table })
    }
}

impl PostQueues for Queues {
    fn reset(&self) -> Result<(), MeasureError> {
        for memory in &self.memory {
            memory.clear()?;
        }
        let all: Vec<abi::SendQueue> =
            (FIRST_NUMBER..).zip(&self.memory).map(|(number, m)| m.send_queue(number, abi::SEND_NEAR)).collect();
        self.table.set_slice(0, &all)?;
        Ok(())
    }

    fn table(&self) -> &Region {
        &self.table
    }
}

/// The ideal adapter, with the queue pairs that it completes.
struct IdealAdapter<'a> {
    engine: &'a Engine,
    queues: Box<dyn PostQueues>,
    count: u32,
    /// Its kernel.
    kernel: &'static str,
    saw: Region,
    stop: Region,
}

impl<'a> IdealAdapter<'a> {
    fn new(engine: &'a Engine, setting: &PostSetting) -> Result<Self, MeasureError> {
        let depth = setting.depth;
        if !depth.is_power_of_two() || !(LEAST_DEPTH..=1 << MAX_LOG_BLOCKS).contains(&depth) {
            return refuse!("a send ring of {depth} blocks: choose a power of two from 4 to 32768");
        }
        let (queues, kernel): (Box<dyn PostQueues>, _) = match setting.capsules {
            true => (Box::new(CapsuleQueues::new(engine, setting)?), "wb_bench_ideal_target"),
            false => (Box::new(Queues::new(engine, setting)?), "wb_bench_ideal_adapter"),
        };
        Ok(Self {
            engine,
            queues,
            count: setting.queues,
            kernel,
            saw: engine.allocate(Place::Device, setting.queues as usize * size_of::<AdapterSaw>())?,
            stop: engine.allocate(Place::Host, size_of::<u32>())?,
        })
    }

    /// Runs a kernel that posts to reset queues, and the adapter's kernel beside it. Returns the duration of the
    /// former.
    fn serve(&self, kernel: &str, grid: Grid, arguments: Args) -> Result<Duration, MeasureError> {
        self.queues.reset()?;
        self.saw.fill(0, self.saw.len(), 0)?;
        self.stop.set(0, 0u32)?;
        let count = self.count;
        let width = self.engine.info().warp_width;
        let warps = if width == 32 { ADAPTER_WARPS.min(count) } else { 1 };
        // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
        // ended.
        let adapter = unsafe {
            self.engine.launch(
                self.kernel,
                Grid { blocks: count.div_ceil(warps), threads: warps * width },
                args!(self.queues.table(), count, &self.stop, LIMIT.as_nanos() as u64, &self.saw),
            )
        }?;
        // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
        // ended.
        let elapsed = unsafe { self.engine.launch(kernel, grid, arguments) }.map(|run| run.finish_within(LIMIT));
        self.stop.set(0, 1u32)?;
        adapter.finish_within(LIMIT)?;
        Ok(elapsed??.elapsed)
    }

    /// Checks that the adapter received exactly `entries` work requests, one for each address from 0 on.
    fn check(&self, entries: u64) -> Result<AdapterSaw, MeasureError> {
        let mut total = AdapterSaw::default();
        for s in self.saw.get_slice::<AdapterSaw>(0, self.count as usize)? {
            total.entries += s.entries;
            total.sum = total.sum.wrapping_add(s.sum);
            total.wrong += s.wrong;
            total.doorbells += s.doorbells;
            total.flames += s.flames;
        }
        self.compare([
            ("the number of work requests that the adapter saw", total.entries, entries),
            ("the sum of their addresses", total.sum, sum_below(entries)),
            ("the number of work requests that it found wrong", total.wrong, 0),
        ])?;
        Ok(total)
    }

    fn compare<const N: usize>(&self, checks: [(&'static str, u64, u64); N]) -> Result<(), MeasureError> {
        let queues = self.count;
        match checks.into_iter().find(|(_, found, expected)| found != expected) {
            None => Ok(()),
            Some((what, found, expected)) => {
                Err(MeasureError::Wrong(format!("{queues} queue pair(s): {what} is {found}, expected {expected}")))
            }
        }
    }
}

/// Returns 0 + 1 + ... + (n - 1), modulo 2^64.
fn sum_below(n: u64) -> u64 {
    let n = u128::from(n);
    (n * n.saturating_sub(1) / 2) as u64
}

/// Measures the rate of one setting `runs` times.
///
/// # Errors
/// [`MeasureError::Refused`] if the depth is no power of two from 4 to 32768, or the number of posts is too large.
/// [`MeasureError::Wrong`] if a post failed, or the adapter received other work requests than were posted. Other
/// variants if memory, queue pairs or a kernel fail.
pub fn measure(engine: &Engine, setting: PostSetting, runs: u32) -> Result<PostRow, MeasureError> {
    let width = engine.info().warp_width;
    // Whole warps: every lane posts. A block of CPU threads is one warp.
    let threads = if width == 32 { setting.threads.next_multiple_of(width) } else { width };
    let setting = PostSetting { threads, ..setting };
    let all = u64::from(setting.blocks) * u64::from(threads);
    let each = setting.posts_each;
    let Some(posts) = all.checked_mul(u64::from(each)).filter(|n| *n <= u64::MAX / 2) else {
        return refuse!(
            "{all} threads with {each} posts each are too many: give fewer --blocks, --threads-per-block or --posts"
        );
    };
    let adapter = IdealAdapter::new(engine, &setting)?;
    let warps = (all / u64::from(width)) as usize;
    let posted = engine.allocate(Place::Device, warps * size_of::<WarpPosted>().max(size_of::<QueueSubmitted>()))?;

    let mut rates = Vec::new();
    let (mut per_doorbell, mut from_register) = (0.0, 0.0);
    // One run more than requested: the first is a warm-up and does not count.
    for turn in 0..=runs {
        posted.fill(0, posted.len(), 0)?;
        let (table, inline) = (adapter.queues.table(), u32::from(setting.inline));
        let (queues, control) = (setting.queues, engine.control_address());
        let (kernel, arguments) = match (setting.capsules, setting.inlined) {
            (true, _) => ("wb_bench_queue", args!(table, queues, control, each, &posted)),
            (false, true) => ("wb_bench_post_inlined", args!(table, queues, control, each, inline, &posted)),
            (false, false) => ("wb_bench_post", args!(table, queues, control, each, inline, &posted)),
        };
        let elapsed = adapter.serve(kernel, Grid { blocks: setting.blocks, threads }, arguments)?;
        let all: Vec<WarpPosted> = match setting.capsules {
            true => posted.get_slice::<QueueSubmitted>(0, warps)?.iter().map(capsules::posted).collect(),
            false => posted.get_slice(0, warps)?,
        };
        let mut total = WarpPosted::default();
        for w in all {
            total.posted += w.posted;
            total.failed += w.failed;
            total.sum = total.sum.wrapping_add(w.sum);
        }
        adapter.compare([
            ("the number of posts that failed", total.failed, 0),
            ("the number of posts", total.posted, posts),
            ("the sum of their addresses", total.sum, sum_below(posts)),
        ])?;
        let saw = adapter.check(posts)?;
        per_doorbell = posts as f64 / saw.doorbells.max(1) as f64;
        from_register = saw.flames as f64 / posts as f64;
        if turn > 0 {
            rates.push(posts as f64 / elapsed.as_secs_f64());
        }
    }
    let posts_per_s = Spread::of(rates).unwrap_or(Spread { min: 0.0, median: 0.0, max: 0.0 });
    Ok(PostRow { setting, posts_per_s, posts_per_doorbell: per_doorbell, from_register })
}

/// Measures the latency of posts of `lanes` lanes (1 to the warp width) that are alone on one queue pair of `setting`.
///
/// # Errors
/// [`MeasureError::Refused`] if the depth is no power of two from 4 to 32768. [`MeasureError::Wrong`] if a post failed,
/// or the adapter received other work requests than were posted. Other variants if memory, queue pairs or a kernel
/// fail.
pub fn measure_latency(
    engine: &Engine,
    setting: PostSetting,
    lanes: u32,
    iterations: u32,
) -> Result<LatencyRow, MeasureError> {
    let width = engine.info().warp_width;
    let lanes = lanes.clamp(1, width);
    let adapter = IdealAdapter::new(engine, &PostSetting { queues: 1, ..setting })?;
    let samples = engine.allocate(Place::Device, 2 * iterations as usize * size_of::<u32>())?;
    let clock = engine.allocate(Place::Device, size_of::<PostClock>())?;
    clock.fill(0, clock.len(), 0)?;
    let (table, inline, control) = (adapter.queues.table(), u32::from(setting.inline), engine.control_address());
    let of_posts = || args!(table, control, lanes, WARMUP, iterations, inline, &samples, &clock);
    let (kernel, arguments) = match (setting.capsules, setting.inlined) {
        (true, _) => ("wb_bench_capsules_latency", args!(table, control, lanes, WARMUP, iterations, &samples, &clock)),
        (false, true) => ("wb_bench_post_latency_inlined", of_posts()),
        (false, false) => ("wb_bench_post_latency", of_posts()),
    };
    adapter.serve(kernel, Grid { blocks: 1, threads: width }, arguments)?;
    let at = clock.get::<PostClock>(0)?;
    adapter.compare([("the number of posts that failed", at.failed, 0)])?;
    let posts = u64::from(WARMUP + iterations) * u64::from(lanes);
    let from_register = adapter.check(posts)?.flames as f64 / posts as f64;
    let ns_per_tick = (at.end_ns - at.start_ns) as f64 / (at.end_ticks - at.start_ticks).max(1) as f64;
    let all = samples.get_slice::<u32>(0, 2 * iterations as usize)?;
    let (post, complete) = all.split_at(iterations as usize);
    let of = |samples: &[u32], percent: usize| percentile(samples, percent) * ns_per_tick;
    Ok(LatencyRow {
        lanes,
        iterations,
        post_p50_ns: of(post, 50),
        post_p99_ns: of(post, 99),
        complete_p50_ns: of(complete, 50),
        complete_p99_ns: of(complete, 99),
        from_register,
    })
}

/// Returns the smallest sample that `percent` percent of the samples do not exceed; 0 if there are no samples.
fn percentile(samples: &[u32], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(0.0, |ticks| f64::from(*ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_percentiles() {
        assert_eq!((sum_below(0), sum_below(1), sum_below(5)), (0, 0, 10));
        assert_eq!(sum_below(1 << 33), ((1u128 << 33) * ((1u128 << 33) - 1) / 2) as u64);
        assert_eq!(percentile(&[], 50), 0.0);
        assert_eq!(percentile(&[5], 99), 5.0);
        let hundred: Vec<u32> = (1..=100).rev().collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 99)), (50.0, 99.0));
    }

    #[test]
    fn every_post_is_seen_once() {
        let engine = Engine::cpu().unwrap();
        for (collapsed, inline, inlined) in
            [(false, false, false), (true, true, false), (true, false, true), (false, true, true)]
        {
            let suited = PostSetting::suited(&engine, 2, 16);
            let setting = PostSetting { posts_each: 400, collapsed, inline, inlined, ..suited };
            let row = measure(&engine, setting, 1).unwrap();
            assert!(row.posts_per_s.median > 0.0 && row.posts_per_doorbell >= 1.0, "{row:?}");
            let row = measure_latency(&engine, setting, 32, 100).unwrap();
            assert_eq!(row.lanes, engine.info().warp_width);
            assert!(row.post_p50_ns > 0.0 && row.complete_p50_ns >= row.post_p50_ns, "{row:?}");
        }
    }

    #[test]
    fn an_entry_that_is_announced_alone_comes_through_the_register() {
        let engine = Engine::cpu().unwrap();
        for (collapsed, inline, inlined) in [(false, false, false), (true, true, true)] {
            let suited = PostSetting::suited(&engine, 2, 16);
            let setting = PostSetting { posts_each: 400, blue_flame: true, collapsed, inline, inlined, ..suited };
            let row = measure(&engine, setting, 1).unwrap();
            assert!((0.0..=1.0).contains(&row.from_register), "{row:?}");
            // Alone, every post is announced by itself, and the adapter sees each before the next one.
            let row = measure_latency(&engine, setting, 1, 100).unwrap();
            assert_eq!(row.from_register, 1.0, "{row:?}");
            let plain = PostSetting { blue_flame: false, ..setting };
            assert_eq!(measure_latency(&engine, plain, 1, 100).unwrap().from_register, 0.0);
        }
    }

    #[test]
    fn every_capsule_is_seen_once_and_gets_its_response() {
        let engine = Engine::cpu().unwrap();
        // Rings wrap; with four entries lanes wait for each other's slots.
        for (queues, depth, posts_each) in [(1, 4, 100), (2, 64, 400), (3, 1024, 400)] {
            let suited = PostSetting::suited(&engine, 2, depth).of_capsules();
            let setting = PostSetting { queues, posts_each, ..suited };
            let row = measure(&engine, setting, 1).unwrap();
            assert!(row.posts_per_s.median > 0.0 && row.posts_per_doorbell > 0.0, "{row:?}");
            let width = engine.info().warp_width;
            let row = measure_latency(&engine, setting, width.min(depth / 2), 100).unwrap();
            assert!(row.post_p50_ns > 0.0 && row.complete_p50_ns >= row.post_p50_ns, "{row:?}");
        }
    }

    #[test]
    fn rings_that_no_queue_pair_has_are_refused() {
        let engine = Engine::cpu().unwrap();
        for depth in [0, 2, 100, 65_536] {
            let suited = PostSetting::suited(&engine, 1, depth);
            for setting in [suited, suited.of_capsules()] {
                let refused = measure(&engine, setting, 1).unwrap_err().to_string();
                assert!(refused.contains(&depth.to_string()) && refused.contains("power of two"), "{refused}");
            }
        }
    }
}
