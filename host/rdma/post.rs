//! Posting from the CPU, whatever it goes through: the rings of a queue pair ([`CpuSendQueue`](super::Poster)), or verbs calls.

use super::{PostError, QueueAddress, RdmaError};
use crate::wire::mlx5::Operation;
use std::fmt;
use std::time::{Duration, Instant};

/// Looks at the completions between two looks at the clock.
const LOOK_EVERY: u32 = 256;
/// Looks before a wait lets others have the processor: where there are few, the adapter may be a thread.
const SPINS: u32 = 64;

/// One side of a connection that one CPU thread posts to. Counters are of whatever a work request takes in the queue: what
/// [`Self::post`] answers is what [`Self::wait`] takes.
pub trait PostRequests: fmt::Debug {
    /// The queue pair's number.
    fn number(&self) -> u32;

    /// The count at the end of what was posted so far.
    fn posted(&self) -> u64;

    /// The count up to which everything is known complete.
    fn completed(&self) -> u64;

    /// Hands a work request over, though the adapter may only hear of it by [`Self::ring`]; answers the count at its end. Completions are
    /// found by signalled requests, so at the latest the last one before a wait must be `signalled`.
    fn post(&mut self, operation: Operation<'_>, signalled: bool) -> Result<u64, PostError>;

    /// Tells the adapter of everything posted.
    fn ring(&mut self);

    /// Takes what has completed; answers [`Self::completed`].
    fn poll(&mut self) -> Result<u64, PostError>;

    /// Most bytes of data that a work request may carry itself.
    fn inline_bytes(&self) -> u64 {
        u64::MAX
    }

    /// What the adapter says of a failure.
    fn failure(&self) -> Option<String>;

    /// Polls until everything up to `end` is complete, at most `within`.
    fn wait(&mut self, end: u64, within: Duration) -> Result<(), PostError> {
        let mut turns = 0u32;
        let mut since = None;
        while self.poll()? < end {
            turns = turns.wrapping_add(1);
            if turns > SPINS {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            if turns.is_multiple_of(LOOK_EVERY) {
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                if waited > within {
                    return Err(self.late(waited));
                }
            }
        }
        Ok(())
    }

    /// The error of who has polled for so long and seen nothing.
    fn late(&self, waited: Duration) -> PostError {
        let (number, completed) = (self.number(), self.completed());
        PostError::TimedOut { number, waited, in_flight: self.posted() - completed, completed }
    }
}

/// A [`PostRequests`] that is connected first.
pub trait UnconnectedSendQueue: PostRequests {
    /// For the other side.
    fn address(&self) -> QueueAddress;

    /// Connects it with the other side's. Once.
    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError>;

    /// As what it goes on once it is connected.
    fn into_send_queue(self: Box<Self>) -> Box<dyn PostRequests>;
}
