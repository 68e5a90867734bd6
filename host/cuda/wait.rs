//! Pauses of a host thread that waits for a GPU.

use crate::assist;
use crate::idle::{Idle, Pace};
use crate::responsive::Responsive;
use std::time::Duration;

/// The thread yields for as long as no other program wants its processor: a sleep would make short waits longer.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: u32::MAX, naps: [Duration::from_micros(20), Duration::from_millis(1)] };

/// One wait.
pub(super) struct Wait {
    idle: Idle,
    responsive: Option<Responsive>,
}

impl Wait {
    pub(super) fn new() -> Self {
        Self { idle: Idle::of_this_thread(PACE), responsive: None }
    }

    /// Pauses between two looks at the GPU. Beside programs that compute, the thread does work of software devices meanwhile: kernels
    /// may wait for it, and the devices' threads for a processor.
    pub(super) fn pause(&mut self) {
        if self.idle.is_contended() {
            self.responsive.get_or_insert_with(Responsive::enter);
            if assist::assist() > 0 {
                return self.idle.busy();
            }
        }
        self.idle.rest();
    }
}
