//! Pauses of a host thread that waits for a GPU.

use crate::assist;
use crate::contention;
use crate::idle::{Idle, Pace};
use std::time::Duration;

/// The thread yields for as long as no other program wants its processor: a sleep would make short waits longer.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: u32::MAX, naps: [Duration::from_micros(20), Duration::from_millis(1)] };

/// One wait.
pub(super) struct Wait(Idle);

impl Wait {
    pub(super) fn new() -> Self {
        Self(Idle::new(PACE))
    }

    /// Pauses between two looks at the GPU. Beside programs that compute, the thread does work of software devices meanwhile: kernels
    /// may wait for it, and the devices' threads for a processor.
    pub(super) fn pause(&mut self) {
        let contended = self.0.is_contended();
        contention::respond(contended);
        if contended && assist::assist() > 0 {
            return self.0.busy();
        }
        self.0.rest();
    }
}
