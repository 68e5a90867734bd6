//! Launching the kernels of an algorithm, and reading what they report.

use super::edges::{GraphError, GraphOnEngine};
use crate::engine::{Args, Engine, Grid};
use crate::memory::{Place, Region};
use bytemuck::{Pod, Zeroable};
use std::time::Duration;

/// How long one kernel may take unless told otherwise.
pub const DEFAULT_LAUNCH_LIMIT: Duration = Duration::from_secs(300);

/// Threads in a block of a graph kernel, and blocks on a multiprocessor: `WB_GRAPH_KERNEL` of `kernels/graph/work.cuh`.
const BLOCK_THREADS: u32 = 256;
const BLOCKS_PER_PROCESSOR: u32 = 4;

/// `wb_graph_tally` and `wb_graph_report` of `kernels/graph/work.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Report {
    pub sum: [u64; 6],
    pub least: u64,
    reserved: u64,
}

/// The sum that counts edges which lead nowhere.
const BAD_EDGES: usize = 5;

impl Report {
    /// A sum of real numbers.
    pub(super) fn real(&self, which: usize) -> f64 {
        f64::from_bits(self.sum[which])
    }
}

/// Launches the kernels of one algorithm, one after another, and reads what each reports.
#[derive(Debug)]
pub(super) struct Launcher<'g> {
    engine: &'g Engine,
    grid: Grid,
    limit: Duration,
    tally: Region,
    report: Region,
}

impl<'g> Launcher<'g> {
    pub(super) fn new(graph: &'g GraphOnEngine) -> Result<Self, GraphError> {
        let tally = graph.engine.allocate(Place::Device, size_of::<Report>())?;
        let report = graph.engine.allocate(Place::Host, size_of::<Report>())?;
        let this = Self {
            engine: &graph.engine,
            grid: graph.engine.grid(BLOCK_THREADS, BLOCKS_PER_PROCESSOR),
            limit: graph.launch_limit,
            tally,
            report,
        };
        this.reset()?;
        Ok(this)
    }

    /// Clears what a failed run may have left behind.
    pub(super) fn reset(&self) -> Result<(), GraphError> {
        Ok(self.tally.set(0, Report { sum: [0; 6], least: u64::MAX, reserved: 0 })?)
    }

    pub(super) fn tally_address(&self) -> u64 {
        self.tally.address()
    }

    pub(super) fn report_address(&self) -> u64 {
        self.report.address()
    }

    /// Runs a kernel to its end; how long it took.
    pub(super) fn run(&self, kernel: &str, args: Args<'_>) -> Result<Duration, GraphError> {
        Ok(self.engine.launch(kernel, self.grid, args)?.finish_within(self.limit)?.elapsed)
    }

    /// Runs a kernel that publishes its sums.
    pub(super) fn step(&self, kernel: &str, args: Args<'_>) -> Result<Report, GraphError> {
        self.run(kernel, args)?;
        let report: Report = self.report.get(0)?;
        match report.sum[BAD_EDGES] {
            0 => Ok(report),
            edges => Err(GraphError::Corrupt { edges }),
        }
    }
}

/// Lets a parameter block be passed by value.
macro_rules! kernel_parameters {
    ($name:ident, $bytes:literal) => {
        const _: () = assert!(size_of::<$name>() == $bytes);
        impl<'a> $crate::engine::KernelArg<'a> for $name {
            fn push(&self, args: &mut $crate::engine::Args<'a>) {
                args.push_value(*self);
            }
        }
    };
}
pub(super) use kernel_parameters;
