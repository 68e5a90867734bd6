//! What kernels are told, and what they leave: mirrors `kernels/bench/shmem/run.cuh`.

use bytemuck::{Pod, Zeroable};
use warpbell::engine::{Args, KernelArg};

/// `shmem_bench::test`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Parameters {
    pub source: u64,
    pub target: u64,
    pub flag: u64,
    pub clock: u64,
    pub samples: u64,
    pub gate: u64,
    pub sums: u64,
    pub bytes: u64,
    pub elements: u64,
    pub turn: u64,
    pub seed: u64,
    pub before: u64,
    pub iterations: u32,
    pub warmup: u32,
    pub peer: u32,
    pub everybody: u32,
    pub op: u32,
    pub member: u32,
}

const _: () = assert!(size_of::<Parameters>() == 120);

impl KernelArg for Parameters {
    fn push(&self, args: &mut Args) {
        args.push_value(*self);
    }
}

/// `shmem_bench::block_clock`: when a block was in its timed part.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct BlockClock {
    pub start_ns: u64,
    pub end_ns: u64,
    pub start_ticks: u64,
    pub end_ticks: u64,
}

/// Bytes of `shmem_bench::gate_words`.
pub(super) const GATE_BYTES: usize = 8;

/// From the first block's start to the last block's end.
pub(super) fn elapsed_ns(clocks: &[BlockClock]) -> u64 {
    let start = clocks.iter().map(|c| c.start_ns).min().unwrap_or(0);
    let end = clocks.iter().map(|c| c.end_ns).max().unwrap_or(0);
    end.saturating_sub(start)
}

/// Nanoseconds of one tick, by the block whose time was the longest.
pub(super) fn ns_per_tick(clocks: &[BlockClock]) -> f64 {
    let ticks = |c: &BlockClock| c.end_ticks.saturating_sub(c.start_ticks);
    let longest = clocks.iter().max_by_key(|c| ticks(c)).copied().unwrap_or_default();
    longest.end_ns.saturating_sub(longest.start_ns) as f64 / ticks(&longest).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_all_blocks() {
        let clock =
            |start_ns, end_ns| BlockClock { start_ns, end_ns, start_ticks: 2 * start_ns, end_ticks: 2 * end_ns };
        let clocks = [clock(100, 200), clock(90, 150), clock(120, 320)];
        assert_eq!(elapsed_ns(&clocks), 230);
        assert_eq!(ns_per_tick(&clocks), 0.5);
        assert_eq!(elapsed_ns(&[]), 0);
    }
}
