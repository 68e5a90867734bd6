//! Measures loads through the cache, hits only, against plain loads of the same elements. This is the software cost of
//! an access: no device takes part.

use super::error::{MeasureError, refuse};
use super::report::nanoseconds;
use super::spread::Spread;
use rayon::prelude::*;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use warpbell::engine::{Args, Engine, EngineError};
use warpbell::memory::{Place, Region};
use warpbell::storage::{Array, Cache, Volume};
use warpbell::units::three_digits;

/// Element i has the value i times this factor (odd, so that no two elements are equal).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const THREADS_PER_BLOCK: u32 = 256;
/// Random loads per GPU thread.
const GPU_LOADS: u32 = 512;
/// Random loads per CPU thread.
const CPU_LOADS: u32 = 1 << 20;
/// Time limit of one kernel.
const LIMIT: Duration = Duration::from_secs(120);

/// Parameters that a kernel of `kernels/bench/array.cu` takes after the array.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// Number of elements, loads per thread.
    Counted,
    /// Number of elements.
    Whole,
    /// Number of elements, elements per page.
    Segments,
}

struct Pattern {
    name: &'static str,
    plain: &'static str,
    cached: &'static str,
    shape: Shape,
}

const PATTERNS: [Pattern; 6] = [
    Pattern { name: "random 8 B", plain: "wb_array_plain_random", cached: "wb_array_random", shape: Shape::Counted },
    Pattern { name: "random runs", plain: "wb_array_plain_runs", cached: "wb_array_runs", shape: Shape::Counted },
    Pattern { name: "sequential", plain: "wb_array_plain_stride", cached: "wb_array_stride", shape: Shape::Whole },
    Pattern {
        name: "own segment",
        plain: "wb_array_plain_segment",
        cached: "wb_array_segment",
        shape: Shape::Segments,
    },
    Pattern { name: "page handle", plain: "wb_array_plain_segment", cached: "wb_array_handle", shape: Shape::Segments },
    Pattern {
        name: "for_each_chunk",
        plain: "wb_array_plain_segment",
        cached: "wb_array_chunk",
        shape: Shape::Segments,
    },
];

/// Rates of one access pattern, from plain memory and through the cache.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the access pattern.
    pub pattern: &'static str,
    /// Loads per second from plain memory.
    pub plain_loads_per_s: Spread,
    /// Loads per second through the cache.
    pub cached_loads_per_s: Spread,
    /// Median rate through the cache divided by the median rate from plain memory.
    pub share: f64,
    /// Duration of the median cached run in nanoseconds.
    pub elapsed_ns: u64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let giga = |rate: f64| three_digits(rate / 1e9);
        write!(
            f,
            "{:<16}{:>10}{:>10}{:>10.1}",
            self.pattern,
            giga(self.plain_loads_per_s.median),
            giga(self.cached_loads_per_s.median),
            self.share * 100.0
        )
    }
}

/// Head of the table: two lines that begin with `#`.
pub const HEAD: &str = "# pattern            plain    cached     share\n#                 Gload/s   Gload/s         %";

/// Elements in plain memory, and in an array whose pages are all in the cache.
pub struct ArrayBench<'a> {
    engine: &'a Engine,
    volume: &'a Volume,
    array: Array<u64>,
    plain: Region,
    elements: u64,
    page_elements: u32,
}

impl<'a> ArrayBench<'a> {
    /// Fills `elements` 8-byte elements, in plain memory and in an array at the start of the volume below `cache`.
    ///
    /// Does not read the volume's previous content, and writes to the volume only if the cache is too small.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if the elements are smaller than one page. [`MeasureError::Storage`],
    /// [`MeasureError::Memory`], [`MeasureError::Engine`] or [`MeasureError::Run`] if the array, the memory or a kernel
    /// that fills them fails.
    pub fn new(volume: &'a Volume, cache: &Cache, elements: u64) -> Result<Self, MeasureError> {
        let engine = volume.engine();
        let page = cache.page_bytes() as u64;
        if elements * 8 < page {
            let bytes = elements * 8;
            return refuse!("--size of {bytes} bytes is less than one page of {page}; give a larger one");
        }
        let array: Array<u64> = cache.array(0, elements)?;
        let plain = engine.allocate(Place::Device, usize::try_from(elements * 8).unwrap_or(usize::MAX))?;
        let bench = Self { engine, volume, array, plain, elements, page_elements: (page / 8) as u32 };
        bench.launch("wb_array_fill_plain", Args::new().with(&bench.plain).with(elements).with(FACTOR))?;
        let fill = Args::new().with(&bench.array).with(elements).with(FACTOR).with(bench.page_elements);
        bench.launch("wb_array_fill", fill)?;
        Ok(bench)
    }

    /// Returns the number of elements of the array.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Measures every access pattern `runs` times. Calls `each` with every row as soon as it is complete.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] if a kernel read wrong values, [`MeasureError::Refused`] if an access missed the cache.
    /// [`MeasureError::Storage`], [`MeasureError::Memory`], [`MeasureError::Engine`] or [`MeasureError::Run`] if the
    /// counters, the memory or a kernel fails.
    pub fn run(&self, runs: u32, mut each: impl FnMut(&Row)) -> Result<Vec<Row>, MeasureError> {
        let mut rows = Vec::new();
        for pattern in &PATTERNS {
            let plain = self.measure(pattern, pattern.plain, false, runs)?;
            let cached = self.measure(pattern, pattern.cached, true, runs)?;
            let (Some(p), Some(c)) = (Spread::of(plain.rates), Spread::of(cached.rates)) else { continue };
            let elapsed_ns = (cached.loads as f64 / c.median * 1e9) as u64;
            let row = Row {
                pattern: pattern.name,
                plain_loads_per_s: p,
                cached_loads_per_s: c,
                share: c.median / p.median,
                elapsed_ns,
            };
            each(&row);
            rows.push(row);
        }
        Ok(rows)
    }

    fn grid(&self, kernel: &str) -> Result<warpbell::engine::Grid, EngineError> {
        let blocks = self.engine.occupancy(kernel, THREADS_PER_BLOCK)?;
        Ok(self.engine.grid(THREADS_PER_BLOCK, blocks))
    }

    fn launch(&self, kernel: &str, args: Args) -> Result<Duration, MeasureError> {
        // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
        // ended.
        let run = unsafe { self.engine.launch(kernel, self.grid(kernel)?, args) }?;
        Ok(run.finish_within(LIMIT)?.elapsed)
    }

    fn measure(&self, p: &Pattern, kernel: &str, cached: bool, runs: u32) -> Result<Measured, MeasureError> {
        let grid = self.grid(kernel)?;
        let threads = u64::from(grid.blocks) * u64::from(grid.threads);
        let width = u64::from(self.engine.info().warp_width);
        let count = if self.engine.is_gpu() { GPU_LOADS } else { CPU_LOADS };
        let out = self.engine.allocate(Place::Device, threads as usize * 8)?;
        let (loads, expected) = match p.shape {
            Shape::Counted if p.name == "random 8 B" => (threads * u64::from(count), self.random_sum(threads, count)),
            Shape::Counted => (threads * u64::from(count), self.runs_sum(threads / width, width, count)),
            Shape::Whole | Shape::Segments => (self.elements, self.whole_sum()),
        };
        let mut rates = Vec::new();
        // One run more than requested: the first is a warm-up and does not count.
        for turn in 0..=runs {
            let misses = self.volume.stats()?.misses;
            let args = match cached {
                true => Args::new().with(&self.array),
                false => Args::new().with(&self.plain),
            };
            let args = args.with(self.elements);
            let args = match p.shape {
                Shape::Counted => args.with(count),
                Shape::Whole => args,
                Shape::Segments => args.with(self.page_elements),
            };
            // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has
            // ended.
            let elapsed = unsafe { self.engine.launch(kernel, grid, args.with(&out)) }?.finish_within(LIMIT)?.elapsed;
            let found = out.get_slice::<u64>(0, threads as usize)?.iter().fold(0u64, |a, b| a.wrapping_add(*b));
            if found != expected {
                let sums = format!("the sum of the elements is {found:#018x}, expected {expected:#018x}");
                return Err(MeasureError::Wrong(format!("{kernel}: {sums}")));
            }
            let misses = self.volume.stats()?.misses - misses;
            if misses > 0 {
                return refuse!(
                    "{kernel}: {misses} accesses missed the cache, and the test measures hits only; give a smaller --size"
                );
            }
            if turn > 0 {
                rates.push(loads as f64 / (nanoseconds(elapsed).max(1) as f64 / 1e9));
            }
        }
        Ok(Measured { loads, rates })
    }

    /// Returns (0 + 1 + ... + n - 1) times the factor.
    fn whole_sum(&self) -> u64 {
        let n = u128::from(self.elements);
        ((n * (n - 1) / 2) as u64).wrapping_mul(FACTOR)
    }

    /// Returns the sum that `random` of `kernels/bench/array.cu` computes.
    fn random_sum(&self, threads: u64, count: u32) -> u64 {
        let of = |thread: u64| {
            let mut x = seed(thread);
            (0..count).fold(0u64, |sum, _| sum.wrapping_add(below(next(&mut x), self.elements)))
        };
        (0..threads).into_par_iter().map(of).reduce(|| 0, u64::wrapping_add).wrapping_mul(FACTOR)
    }

    /// Returns the sum that `runs` computes: each warp starts at a random element and reads one element per lane.
    fn runs_sum(&self, warps: u64, width: u64, count: u32) -> u64 {
        let of = |warp: u64| {
            let mut x = seed(warp);
            (0..count).fold(0u64, |sum, _| {
                let first = below(next(&mut x), self.elements - width + 1);
                sum.wrapping_add(first.wrapping_mul(width)).wrapping_add(width * (width - 1) / 2)
            })
        };
        (0..warps).into_par_iter().map(of).reduce(|| 0, u64::wrapping_add).wrapping_mul(FACTOR)
    }
}

struct Measured {
    loads: u64,
    rates: Vec<f64>,
}

// xorshift64, as in the kernels.
fn seed(i: u64) -> u64 {
    (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn next(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

fn below(random: u64, n: u64) -> u64 {
    ((random >> 32) * n) >> 32
}
