//! Time series of a measurement: what completed in each interval.

use crate::workloads::error::{MeasureError, refuse};
use crate::workloads::fio::TimeSeries;
use crate::workloads::params::NvmeInterval;
use crate::workloads::report::nanoseconds;
use std::time::Duration;
use warpbell::engine::Engine;
use warpbell::memory::{MemoryError, Place, Region};

/// Minimum length of an interval.
const LEAST: Duration = Duration::from_micros(1);
/// Maximum number of intervals of a run.
const MOST: u64 = 1 << 20;

/// Memory in which a kernel counts what completes in each interval, while the host reads it.
pub struct SeriesMemory {
    region: Region,
    interval: Duration,
    intervals: u32,
}

impl SeriesMemory {
    /// Allocates memory for a run of `runtime`.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] for a run without a limit of time, intervals below a microsecond, or more than 2^20 of
    /// them; [`MeasureError::Memory`] if the allocation fails.
    pub fn new(engine: &Engine, runtime: Option<Duration>, interval: Duration) -> Result<Self, MeasureError> {
        let Some(runtime) = runtime else {
            return refuse!("a time series or a steady state needs a limit of time; give --runtime, as in 60s");
        };
        if interval < LEAST {
            return refuse!(
                "intervals of {interval:?} are too short; give at least {LEAST:?} to --time-series, and ten times that to --steady-state-duration"
            );
        }
        let wanted = nanoseconds(runtime).div_ceil(nanoseconds(interval));
        if wanted > MOST {
            return refuse!(
                "--time-series {interval:?} is {wanted} intervals of a run of {runtime:?}; give a longer one, for at most {MOST}"
            );
        }
        let intervals = wanted.max(1) as u32;
        let region = engine.allocate(Place::Host, 2 * intervals as usize * size_of::<NvmeInterval>())?;
        Ok(Self { region, interval, intervals })
    }

    /// Returns the address for kernels.
    pub fn address(&self) -> u64 {
        self.region.address()
    }

    /// Returns the length of an interval.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the number of intervals.
    pub fn intervals(&self) -> u32 {
        self.intervals
    }

    /// Sets all counts to 0.
    ///
    /// # Errors
    /// [`MemoryError`] if the memory cannot be written.
    pub fn clear(&self) -> Result<(), MemoryError> {
        self.region.fill(0, self.region.len(), 0)
    }

    /// Returns the counts of all intervals: reads and writes of each.
    ///
    /// # Errors
    /// [`MemoryError`] if the memory cannot be read.
    pub fn read(&self) -> Result<Vec<[NvmeInterval; 2]>, MemoryError> {
        let all = self.region.get_slice::<NvmeInterval>(0, 2 * self.intervals as usize)?;
        Ok(all.as_chunks().0.to_vec())
    }

    /// Returns the series of reads (0) or writes (1), for blocks of `2^block_shift` bytes. It ends with the last interval
    /// that lies wholly within the `elapsed` time.
    ///
    /// # Errors
    /// [`MemoryError`] if the memory cannot be read.
    pub fn of(&self, direction: usize, elapsed: Duration, block_shift: u32) -> Result<TimeSeries, MemoryError> {
        let interval_ns = nanoseconds(self.interval);
        let whole = usize::try_from(nanoseconds(elapsed) / interval_ns.max(1)).unwrap_or(usize::MAX);
        let all: Vec<NvmeInterval> = self.read()?.into_iter().take(whole).map(|both| both[direction]).collect();
        let seconds = self.interval.as_secs_f64();
        Ok(TimeSeries {
            interval_ns,
            iops: all.iter().map(|i| i.commands as f64 / seconds).collect(),
            bytes_per_s: all.iter().map(|i| (i.blocks << block_shift) as f64 / seconds).collect(),
            mean_latency_ns: all.iter().map(|i| i.latency_ns as f64 / i.commands.max(1) as f64).collect(),
        })
    }
}
