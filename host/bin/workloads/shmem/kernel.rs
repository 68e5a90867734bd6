//! Computes durations from the clock readings of kernels: start and end of each block's timed part.

use crate::workloads::params::{BlockClock, ShmemTest};
use warpbell::engine::{Args, KernelArg};

impl KernelArg for ShmemTest {
    fn push(&self, args: &mut Args) {
        args.push_value(*self);
    }
}

/// Returns the time from the first block's start to the last block's end, in nanoseconds.
pub(super) fn elapsed_ns(clocks: &[BlockClock]) -> u64 {
    let start = clocks.iter().map(|c| c.start_ns).min().unwrap_or(0);
    let end = clocks.iter().map(|c| c.end_ns).max().unwrap_or(0);
    end.saturating_sub(start)
}

/// Returns the nanoseconds per clock tick, measured by the block that ran longest.
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
