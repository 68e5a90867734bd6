//! A batch beside a kernel that computes, as the next batch of a model loads while the model runs.

use super::{GatherBench, LIMIT, THREADS_PER_BLOCK};
use crate::workloads::error::MeasureError;
use crate::workloads::graph::seconds;
use crate::workloads::report::nanoseconds;
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};
use warpbell::engine::{Args, Stream};
use warpbell::memory::{Place, Region};

/// Blocks of the computing kernel on each multiprocessor: as those of a large matrix product.
const BLOCKS: u32 = 2;
/// Rounds of the computing kernel in the first look at its speed.
const FIRST: u64 = 1 << 12;
/// Batches of each of the measurements.
const BATCHES: u64 = 16;

/// Medians of the times of a batch, of a kernel, and of both together.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Overlap {
    /// A batch alone, in nanoseconds.
    pub load_ns: u64,
    /// The kernel alone.
    pub kernel_ns: u64,
    /// Both: the batch is started, then the kernel, then both are waited for.
    pub both_ns: u64,
}

impl Overlap {
    /// Returns the time that both take together beyond the longer of the two, as a share of that.
    fn beyond(&self) -> f64 {
        let longer = self.load_ns.max(self.kernel_ns).max(1) as f64;
        self.both_ns as f64 / longer - 1.0
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: u64| seconds(Duration::from_nanos(ns));
        let (load, kernel, both) = (time(self.load_ns), time(self.kernel_ns), time(self.both_ns));
        write!(
            f,
            "  beside a kernel: batch {load}   kernel {kernel}   both {both}, {:+.1} % of the longer one",
            self.beyond() * 100.0
        )
    }
}

/// The kernel that computes.
struct Model {
    stream: Stream,
    sum: Region,
    rounds: u64,
}

impl Model {
    fn launch(&self) -> Result<(), MeasureError> {
        let engine = self.stream.engine();
        let grid = engine.grid(THREADS_PER_BLOCK, BLOCKS);
        let args = Args::new().with(self.rounds).with(&self.sum);
        // SAFETY: the arguments are this kernel's parameters.
        Ok(unsafe { self.stream.launch("wb_table_bench_compute", grid, args) }?)
    }

    fn finish(&self) -> Result<(), MeasureError> {
        self.stream.synchronize(LIMIT)?;
        Ok(())
    }

    fn time(&self) -> Result<u64, MeasureError> {
        let started = Instant::now();
        self.launch()?;
        self.finish()?;
        Ok(nanoseconds(started.elapsed()))
    }

    /// Sets the rounds so that the kernel takes about this time.
    fn take(&mut self, wanted_ns: u64) -> Result<(), MeasureError> {
        self.rounds = FIRST;
        self.time()?;
        // The time of a launch counts less, the longer the kernel takes.
        while self.time()? < wanted_ns / 2 {
            self.rounds = self.rounds.saturating_mul(2);
        }
        let took = median((0..3).map(|_| self.time()).collect::<Result<_, _>>()?);
        self.rounds = (self.rounds as f64 * wanted_ns as f64 / took.max(1) as f64) as u64;
        Ok(())
    }
}

fn median(mut ns: Vec<u64>) -> u64 {
    ns.sort_unstable();
    ns.get(ns.len() / 2).copied().unwrap_or_default()
}

impl GatherBench {
    /// Measures batches alone, a kernel that takes as long, and both together. The rows of every batch are checked.
    ///
    /// # Errors
    /// As for [`GatherBench::run`].
    pub fn overlap(&mut self) -> Result<Overlap, MeasureError> {
        let engine = self.engine();
        let (stream, sum) = (engine.stream()?, engine.allocate(Place::Device, size_of::<f32>())?);
        let mut model = Model { stream, sum, rounds: 0 };
        let load_ns = self.times(None)?;
        model.take(load_ns)?;
        let kernel_ns = median((0..BATCHES).map(|_| model.time()).collect::<Result<_, _>>()?);
        Ok(Overlap { load_ns, kernel_ns, both_ns: self.times(Some(&model))? })
    }

    /// Returns the median of the times of batches, each with a kernel beside it if there is one.
    fn times(&mut self, model: Option<&Model>) -> Result<u64, MeasureError> {
        let mut ns = Vec::new();
        while (ns.len() as u64) < BATCHES {
            let batches = self.choose(BATCHES - ns.len() as u64);
            self.prepare(&batches)?;
            for (at, batch) in batches.iter().enumerate() {
                let started = Instant::now();
                let indices = self.row_indices(at, batch.len() as u64);
                let gathering = self.table.start(indices, &self.rows[at])?;
                model.map_or(Ok(()), Model::launch)?;
                gathering.finish(LIMIT)?;
                model.map_or(Ok(()), Model::finish)?;
                ns.push(nanoseconds(started.elapsed()));
                self.check(at, batch)?;
            }
            self.next += batches.len() as u64;
        }
        Ok(median(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::gather::tests::{bench, job, volume};
    use crate::workloads::gather::{GatherJob, fill};

    #[test]
    fn a_batch_and_a_kernel_are_timed_alone_and_together() {
        let volume = volume();
        fill(&volume, &job().layout().unwrap(), |_, _| {}).unwrap();
        let mut bench = bench(&volume, GatherJob { warps: Some(1), batch: 20, ..job() }, "uniform");
        let o = bench.overlap().unwrap();
        assert!(o.load_ns > 0 && o.kernel_ns > 0 && o.both_ns > 0, "{o:?}");
        assert_eq!(bench.next, 2 * BATCHES);
    }

    #[test]
    fn the_text_compares_with_the_longer_one() {
        let text = Overlap { load_ns: 5_000_000, kernel_ns: 4_000_000, both_ns: 5_500_000 }.to_string();
        assert_eq!(text, "  beside a kernel: batch 5.00 ms   kernel 4.00 ms   both 5.50 ms, +10.0 % of the longer one");
    }
}
