//! Distribution of commands over the threads of a kernel, and the number of them that is in flight.

use crate::workloads::params::NVME_BENCH_PER_LANE;
use serde::Serialize;
use std::fmt;
use warpbell::units::counted;

/// Distribution of the commands in flight over warps and lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Shape {
    pub lanes: u32,
    pub warp_lanes: u32,
    pub per_lane: u32,
    pub warps: u32,
}

impl Shape {
    /// Uses as many warps as allowed, then as many lanes of each warp as needed, then several commands per lane. A warp
    /// copies faster than a lane, so commands are spread over warps first.
    pub fn new(iodepth: u32, most_warps: u32, width: u32) -> Self {
        let warps = iodepth.min(most_warps.max(1));
        let warp_lanes = iodepth.div_ceil(warps).min(width);
        let lanes = iodepth.min(warps * warp_lanes);
        let per_lane = iodepth.div_ceil(lanes).min(NVME_BENCH_PER_LANE);
        Self { lanes, warp_lanes, per_lane, warps: lanes.div_ceil(warp_lanes) }
    }

    /// Returns the number of commands in flight on `queues` queue pairs, which the warps use in turn and which hold
    /// `most` commands each.
    pub fn in_flight(&self, requested: u32, queues: u32, most: u64) -> InFlight {
        let kept = u64::from(self.lanes) * u64::from(self.per_lane);
        let used = queues.clamp(1, self.warps);
        let mut loads = vec![0u64; used as usize];
        for warp in 0..self.warps {
            let lanes = (self.lanes - warp * self.warp_lanes).min(self.warp_lanes);
            loads[(warp % used) as usize] += u64::from(lanes) * u64::from(self.per_lane);
        }
        let held: u64 = loads.iter().map(|load| (*load).min(most)).sum();
        let reason = if held < kept {
            Some(DepthLimit::Queues { pairs: used, most })
        } else if kept != u64::from(requested) {
            Some(DepthLimit::Threads { threads: self.lanes, each: self.per_lane })
        } else {
            None
        };
        InFlight { requested, effective: held, reason }
    }
}

/// Number of commands in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Number that the user requested.
    pub requested: u32,
    /// Maximum number that is reached.
    pub effective: u64,
    /// Reason why the two differ, if they do.
    pub reason: Option<DepthLimit>,
}

impl fmt::Display for InFlight {
    /// Prints `32`, or `1,000 (128 in flight)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.requested)?;
        if self.reason.is_some() { write!(f, " ({} in flight)", self.effective) } else { Ok(()) }
    }
}

/// Reason why the number of commands in flight differs from the requested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DepthLimit {
    /// Every thread of the kernel keeps the same number, and at most 64.
    Threads {
        /// Number of threads that submit.
        threads: u32,
        /// Commands in flight per thread.
        each: u32,
    },
    /// The queues hold no more commands.
    Queues {
        /// Number of queue pairs in use.
        pairs: u32,
        /// Commands that each queue pair holds, on all devices together.
        most: u64,
    },
}

impl fmt::Display for DepthLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keep = |n: u32| if n == 1 { "keeps" } else { "keep" };
        match self {
            Self::Threads { threads, each: each @ NVME_BENCH_PER_LANE } => {
                let these = counted(threads, "thread", "threads");
                write!(f, "{these} of the engine {} {each} each at most", keep(*threads))
            }
            Self::Threads { threads, each } => {
                write!(f, "{} of the engine {} {each} each", counted(threads, "thread", "threads"), keep(*threads))
            }
            Self::Queues { pairs, most } => {
                let hold = if *pairs == 1 { "holds" } else { "hold" };
                write!(f, "{} {hold} {most} each at most", counted(pairs, "queue pair", "queue pairs"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_spread_over_warps_first() {
        let shape = |iodepth, warps, width| Shape::new(iodepth, warps, width);
        assert_eq!(shape(1, 2112, 32), Shape { lanes: 1, warp_lanes: 1, per_lane: 1, warps: 1 });
        assert_eq!(shape(32, 2112, 32), Shape { lanes: 32, warp_lanes: 1, per_lane: 1, warps: 32 });
        assert_eq!(shape(65_536, 2112, 32), Shape { lanes: 65_536, warp_lanes: 32, per_lane: 1, warps: 2048 });
        assert_eq!(shape(32, 2, 1), Shape { lanes: 2, warp_lanes: 1, per_lane: 16, warps: 2 });
    }

    #[test]
    fn commands_in_flight_are_those_that_threads_and_queues_keep() {
        let in_flight = |iodepth, warps, width, queues, most| {
            let f = Shape::new(iodepth, warps, width).in_flight(iodepth, queues, most);
            (f.effective, f.to_string(), f.reason.map(|r| r.to_string()).unwrap_or_default())
        };
        let says = |n: u64, text: &str, why: &str| (n, text.to_owned(), why.to_owned());
        assert_eq!(in_flight(32, 2, 1, 2, 127), says(32, "32", ""));
        let why = "2 threads of the engine keep 64 each at most";
        assert_eq!(in_flight(1000, 2, 1, 2, 127), says(128, "1000 (128 in flight)", why));
        let why = "2 threads of the engine keep 17 each";
        assert_eq!(in_flight(33, 2, 1, 2, 127), says(34, "33 (34 in flight)", why));
        let why = "1 queue pair holds 15 each at most";
        assert_eq!(in_flight(32, 2, 1, 1, 15), says(15, "32 (15 in flight)", why));
        // One warp submits to one queue; the other stays empty.
        assert_eq!(in_flight(32, 1, 1, 2, 15), says(15, "32 (15 in flight)", why));
        assert_eq!(in_flight(65_536, 2112, 32, 132, 1023), says(65_536, "65536", ""));
    }
}
