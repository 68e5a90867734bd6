//! Measures cuFile (GPUDirect Storage) on the file of a `bench nvme` job: the job's commands, addresses and data.
//!
//! Threads make rounds of operations. With a check, a stage of rounds ends when one thread has used its part of the
//! buffer. The threads then check all data that was read. Only the stages of rounds are timed.

mod abi;
mod api;
mod error;
mod library;
pub(super) mod pattern;
mod stages;

pub use api::{Api, Buffer, Registered, Shape};
pub use error::CufileError;
pub use library::{Cufile, Facts, Session};

use super::error::{MeasureError, refuse};
use super::fio::Direction;
use super::histogram::{Histogram, PERCENTILES};
use super::nvme::{NvmeJob, NvmeRun};
use super::params::{NVME_BENCH_BITS, NVME_BENCH_BUCKETS};
use pattern::Geometry;
use serde::Serialize;
use stages::{Counts, Settings};
use std::path::Path;
use std::time::Duration;
use warpbell::engine::Engine;
use warpbell::memory::Place;

/// Bytes of the buffers of all threads together, as far as a round of each fits.
const GPU_BUFFERS: usize = 512 << 20;
const CPU_BUFFERS: usize = 32 << 20;
/// Most rounds of a stage.
const ROUNDS: usize = 4096;

/// Commands of a job, as cuFile gets them.
#[derive(Clone, Debug)]
pub struct CufileJob<'a> {
    /// The file that the device holds.
    pub path: &'a Path,
    /// True to bypass the page cache.
    pub direct: bool,
    /// The job.
    pub job: NvmeJob,
    /// Bytes of a logical block of the device.
    pub block_bytes: usize,
    /// Threads that call `cuFileRead`; `None` for one for each command in flight, at most 128.
    pub threads: Option<u32>,
}

/// Figures of one interface.
#[derive(Clone, Debug, Serialize)]
pub struct CufileRow {
    /// Interface.
    pub api: Api,
    /// Threads, and operations in flight for each.
    #[serde(flatten)]
    pub shape: Shape,
    /// Reason why the memory is not registered with cuFile; `None` if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unregistered: Option<String>,
    /// Figures.
    #[serde(flatten)]
    pub run: NvmeRun,
}

/// Measures one interface once.
///
/// # Errors
/// [`MeasureError::Cufile`] if a call fails, [`MeasureError::Wrong`] if a command read wrong data,
/// [`MeasureError::Stopped`] if the engine was told to stop.
pub fn measure(session: &Session, engine: &Engine, of: &CufileJob<'_>, api: Api) -> Result<CufileRow, MeasureError> {
    let Some(runtime) = of.job.runtime else {
        return refuse!("cuFile is measured for a time; give --runtime, as in 5s");
    };
    let shape = Shape::of(api, of.job.in_flight(), of.threads, session.properties.max_batch);
    let writes = of.job.writes();
    let file = Registered::open(session, of.path, writes, of.direct)?;
    let bytes = of.job.most_bytes() as usize;
    let (threads, each) = (shape.threads as usize, shape.each as usize);
    let wanted = if engine.is_gpu() { GPU_BUFFERS } else { CPU_BUFFERS };
    let rounds = (wanted / (threads * each * bytes)).clamp(1, ROUNDS);
    let region = engine.allocate(Place::Device, threads * each * rounds * bytes)?;
    let buffer = Buffer::new(session, region);
    let settings = Settings {
        engine,
        file: &file,
        buffer: &buffer,
        api,
        shape,
        rounds,
        job: &of.job,
        runtime,
        geometry: Geometry { command_bytes: bytes, block_bytes: of.block_bytes },
    };
    let counts = stages::run(&settings)?;
    let run = of_counts(&of.job, &counts);
    let unregistered = buffer.unregistered.clone();
    Ok(CufileRow { api, shape, unregistered, run })
}

fn of_counts(job: &NvmeJob, counts: &Counts) -> NvmeRun {
    let direction = |name, side: usize| {
        let (h, commands) = (&counts.histograms[side], counts.commands[side]);
        Direction::new(name, commands, commands * job.most_bytes(), counts.elapsed, h.latency(&PERCENTILES))
    };
    NvmeRun {
        read: job.reads().then(|| direction("read", 0)),
        write: job.writes().then(|| direction("write", 1)),
        verified: job.verify && job.reads(),
        started: None,
        steadiness: None,
        gpu: None,
        histograms: counts.histograms.clone(),
    }
}

/// Returns an empty histogram with the buckets of the kernels'.
fn histogram() -> Histogram {
    Histogram::empty(NVME_BENCH_BITS, NVME_BENCH_BUCKETS)
}

/// Time limit of a round, at least.
const LEAST_DEADLINE: Duration = Duration::from_secs(10);
