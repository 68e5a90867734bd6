//! Measures a KV store with what a server does that keeps the caches of earlier requests: pages of a model's KV cache are stored from GPU
//! memory, and loaded into other pages.

mod pages;

pub use pages::KvShape;

use super::error::MeasureError;
use super::multiprocessors::{Compute, GpuCost};
use super::spread::Spread;
use pages::Pages;
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};
use warpbell::engine::Stream;
use warpbell::storage::{
    KvError, KvKey, KvOptions, KvStore, PagedTensors, SegmentList, SegmentQueue, StorageError, Volume,
};
use warpbell::units::{Bytes, three_digits};

/// Time limit of one transfer.
const LIMIT: Duration = Duration::from_secs(300);
/// Name of the store.
pub const STORE: &str = "bench-kv";
/// Bytes of a key, as of a hash of tokens.
const KEY_BYTES: u32 = 16;

/// Settings of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KvJob {
    #[serde(flatten)]
    pub shape: KvShape,
    /// Tokens of a request, in whole pages.
    pub tokens: u64,
    /// Percentage of the tokens whose caches the store holds: the first ones.
    pub hit_percent: u32,
    /// Bytes of the largest command.
    pub command_bytes: u64,
    /// Commands that each warp has in flight.
    pub in_flight: u32,
    /// Multiprocessors of a GPU that the kernels are kept to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
}

impl KvJob {
    /// Returns the number of objects of a request: one for each page of tokens.
    pub fn objects(&self) -> u64 {
        self.tokens.div_ceil(self.shape.page_tokens.into())
    }

    /// Returns the number of objects that are stored.
    fn stored(&self) -> u64 {
        self.objects() * u64::from(self.hit_percent) / 100
    }

    /// Returns the sizes of a store for the job.
    pub fn options(&self) -> KvOptions {
        let bytes = self.objects() * self.shape.object_bytes().next_multiple_of(4096);
        KvOptions { key_bytes: KEY_BYTES, bytes, objects: self.objects() }
    }
}

impl fmt::Display for KvJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, hit, bs) = (self.tokens, self.hit_percent, Bytes(self.command_bytes));
        write!(f, "tokens {tokens}  hit {hit}  bs {bs}  in-flight {}", self.in_flight)?;
        self.sms.map_or(Ok(()), |sms| write!(f, "  sms {sms}"))
    }
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Store,
    Load,
}

/// Figures of one direction.
#[derive(Clone, Debug, Serialize)]
pub struct KvRow {
    #[serde(flatten)]
    pub job: KvJob,
    pub direction: Direction,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Bytes per second, over the whole time.
    pub bytes_per_s: Spread,
    /// Time in seconds from the keys on: of a store until all objects are durable, of a load until all are compared with their checksums.
    pub seconds: Spread,
    /// Time of a load until the pages of the first layer are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_layer_seconds: Option<Spread>,
    /// Part of the time in which the host looks keys up, lists pages and launches the kernel.
    pub prepare_seconds: Spread,
    /// Share of a GPU that the kernel held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuCost>,
}

/// Names of the columns of a row.
pub const HEAD: &str = "what      bytes   GB/s     ms  layer 0 ms  host ms";

impl fmt::Display for KvRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |s: &Spread| three_digits(s.median * 1e3);
        let what = match self.direction {
            Direction::Store => "store",
            Direction::Load => "load",
        };
        write!(
            f,
            "{what:<5}{:>10}{:>7}{:>7}{:>12}{:>9}",
            Bytes(self.bytes).to_string(),
            three_digits(self.bytes_per_s.median / 1e9),
            ms(&self.seconds),
            self.first_layer_seconds.as_ref().map_or("-".to_owned(), ms),
            ms(&self.prepare_seconds),
        )
    }
}

/// Times of transfers in seconds, and what was left of a computing kernel.
#[derive(Default)]
struct Times {
    whole: Vec<f64>,
    first_layer: Vec<f64>,
    prepare: Vec<f64>,
    left: Vec<f64>,
}

/// Time of one transfer.
struct Time {
    whole: Duration,
    first_layer: Duration,
    prepare: Duration,
}

/// A store, its queue, and the pages of a model's KV cache.
pub struct KvBench {
    job: KvJob,
    store: KvStore,
    stream: Stream,
    other: Stream,
    queue: SegmentQueue,
    pages: Pages,
    keys: Vec<KvKey>,
}

impl KvBench {
    /// Creates the store and allocates the pages.
    ///
    /// # Errors
    /// [`MeasureError::Storage`] if the volume has no room or an option is out of its range; [`MeasureError::Memory`] or
    /// [`MeasureError::Engine`] if memory or a stream fails.
    pub fn new(volume: &Volume, job: KvJob) -> Result<Self, MeasureError> {
        let engine = volume.engine();
        let (stream, other) = (engine.stream()?, engine.stream()?);
        let mut options =
            SegmentQueue::on(&stream, volume).in_flight(job.in_flight).command_bytes(job.command_bytes as usize);
        if let Some(sms) = job.sms {
            options = options.multiprocessors(sms);
        }
        let queue = options.build()?;
        let pages = Pages::new(engine, job.shape, job.objects())?;
        let store = KvStore::create(volume, STORE, &job.options())?;
        let keys = (0..job.objects()).map(|i| KvKey::from((u128::from(i) + 1).to_le_bytes())).collect();
        Ok(Self { job, store, stream, other, queue, pages, keys })
    }

    /// Stores the pages and loads them into others, `runs` times, and compares every byte.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] if a byte is wrong; otherwise those of the store, devices and kernels.
    pub fn run(&self, runs: u32) -> Result<[KvRow; 2], MeasureError> {
        let engine = self.stream.engine();
        let compute = self.job.sms.map(|_| Compute::measure(engine)).transpose()?;
        let (mut stores, mut loads) = (Times::default(), Times::default());
        // The first turn is a warm-up, and has all multiprocessors.
        for turn in 0..=runs {
            let compute = compute.filter(|_| turn > 0);
            self.store.delete(&self.keys)?;
            self.pages.fill(&self.stream)?;
            let stored = Compute::beside(compute, engine, self.job.sms, LIMIT, || self.store_pages())?;
            self.pages.clear(&self.stream)?;
            let loaded = Compute::beside(compute, engine, self.job.sms, LIMIT, || self.load_pages())?;
            self.pages.verify(self.job.stored())?;
            if turn > 0 {
                stores.push(stored);
                loads.push(loaded);
            }
        }
        Ok([self.row(Direction::Store, stores)?, self.row(Direction::Load, loads)?])
    }

    fn store_pages(&self) -> Result<Time, MeasureError> {
        let began = Instant::now();
        let bytes = self.job.shape.object_bytes();
        let objects: Vec<(KvKey, u64)> =
            self.keys.iter().take(self.job.stored() as usize).map(|key| (*key, bytes)).collect();
        let mut tensors = None;
        let storing = self.store.store(&self.queue, &objects, |list, i, extents| {
            let tensors = self.tensors(&mut tensors, list)?;
            list.page(extents, tensors, self.pages.page(i as u64, false))
        })?;
        let prepare = began.elapsed();
        storing.finish(LIMIT)?;
        Ok(Time { whole: began.elapsed(), first_layer: Duration::ZERO, prepare })
    }

    fn load_pages(&self) -> Result<Time, MeasureError> {
        let began = Instant::now();
        let mut tensors = None;
        let load = self.store.load(&self.queue, &self.keys, |list, i, object| {
            let tensors = self.tensors(&mut tensors, list)?;
            list.page(&object.extents, tensors, self.pages.page(i as u64, true))
        })?;
        let prepare = began.elapsed();
        let mut first_layer = Duration::ZERO;
        if self.job.stored() > 0 {
            load.transfer().wait_group(&self.other, 0)?;
            self.other.synchronize(LIMIT)?;
            first_layer = began.elapsed();
        }
        let loaded = load.finish(LIMIT)?;
        let whole = began.elapsed();
        for (i, object) in (0..).zip(loaded) {
            match object {
                Ok(_) if i < self.job.stored() => {}
                Err(StorageError::Kv(KvError::Absent { .. })) if i >= self.job.stored() => {}
                Ok(_) => return Err(MeasureError::Wrong(format!("object {i} was not stored, and is there"))),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Time { whole, first_layer, prepare })
    }

    /// Describes the tensors to a list, once.
    fn tensors(&self, known: &mut Option<PagedTensors>, list: &mut SegmentList) -> Result<PagedTensors, StorageError> {
        match known {
            Some(tensors) => Ok(*tensors),
            None => Ok(*known.insert(self.pages.describe(list)?)),
        }
    }

    fn row(&self, direction: Direction, times: Times) -> Result<KvRow, MeasureError> {
        let bytes = self.job.shape.object_bytes() * self.job.stored();
        let spread = |all: Vec<f64>| Spread::of(all).unwrap_or(Spread { min: 0.0, median: 0.0, max: 0.0 });
        let rates = times.whole.iter().map(|s| bytes as f64 / s).collect();
        let (kernel, grid) = self.queue.kernel(direction == Direction::Load);
        let gpu = GpuCost::of(self.stream.engine(), kernel, grid, self.job.sms)?;
        let left = Spread::of(times.left).map(|left| left.median);
        Ok(KvRow {
            job: self.job,
            direction,
            bytes,
            bytes_per_s: spread(rates),
            seconds: spread(times.whole),
            first_layer_seconds: (direction == Direction::Load).then(|| spread(times.first_layer)),
            prepare_seconds: spread(times.prepare),
            gpu: gpu.map(|gpu| GpuCost { compute_left: left, ..gpu }),
        })
    }
}

impl Times {
    fn push(&mut self, (time, left): (Time, Option<f64>)) {
        self.whole.push(time.whole.as_secs_f64());
        self.first_layer.push(time.first_layer.as_secs_f64());
        self.prepare.push(time.prepare.as_secs_f64());
        self.left.extend(left);
    }
}
