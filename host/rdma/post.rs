//! Posting from the CPU: through the rings of a queue pair ([`CpuSendQueue`](super::CpuSendQueue)), or by verbs calls.

use super::{PostError, QueueAddress, RdmaError};
use crate::wire::mlx5::Operation;
use std::fmt;
use std::time::{Duration, Instant};

/// Polls between two reads of the clock.
const POLLS_PER_CHECK: u32 = 256;
/// Polls before a wait yields the processor to other threads: on few processors the adapter may be one of them.
const SPINS: u32 = 64;

/// Send queue of one connection, to which one CPU thread posts. Positions count blocks of the send ring, or requests if
/// there is no ring. [`Self::post`] returns the position that [`Self::wait`] takes.
pub trait PostRequests: fmt::Debug {
    /// Returns the queue pair number.
    fn number(&self) -> u32;

    /// Returns the position behind the last posted work request.
    fn posted(&self) -> u64;

    /// Returns the position up to which everything is known to be complete.
    fn completed(&self) -> u64;

    /// Posts a work request and returns the position behind it. The adapter may not see the request before
    /// [`Self::ring`]. Only `signalled` requests make completions, so the last request before a wait must be
    /// `signalled`.
    ///
    /// # Errors
    /// * [`PostError::Full`] if the queue has no free space.
    /// * [`PostError::Entry`] if the request does not fit an entry.
    /// * [`PostError::Verbs`] if the device rejects the request, or verbs calls do not support it.
    /// * The earlier error if the queue pair has failed.
    fn post(&mut self, operation: Operation<'_>, signalled: bool) -> Result<u64, PostError>;

    /// Writes the doorbell: announces everything posted to the adapter.
    fn ring(&mut self);

    /// Takes new completions and returns [`Self::completed`].
    ///
    /// # Errors
    /// * [`PostError::Failed`] if a work request has failed.
    /// * [`PostError::Completion`] or [`PostError::Unknown`] if the adapter wrote an invalid completion.
    /// * [`PostError::Verbs`] if polling fails.
    /// * The earlier error if the queue pair has failed.
    fn poll(&mut self) -> Result<u64, PostError>;

    /// Returns the largest payload of a work request that carries its own data, in bytes.
    fn inline_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Returns the adapter's description of a failure; `None` if it knows none.
    fn failure(&self) -> Option<String>;

    /// Polls until everything up to position `end` is complete, for at most about `within`.
    ///
    /// # Errors
    /// * [`PostError::TimedOut`] if the time expires.
    /// * An error of [`Self::poll`].
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
            if turns.is_multiple_of(POLLS_PER_CHECK) {
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                if waited > within {
                    return Err(self.late(waited));
                }
            }
        }
        Ok(())
    }

    /// Returns the error of a wait whose time has expired.
    fn late(&self, waited: Duration) -> PostError {
        let (number, completed) = (self.number(), self.completed());
        PostError::TimedOut { number, waited, in_flight: self.posted() - completed, completed }
    }
}

/// A send queue that is not connected yet.
pub trait UnconnectedSendQueue: PostRequests {
    /// Returns the connection data that the peer needs.
    fn address(&self) -> QueueAddress;

    /// Connects the send queue with the peer's. May be called once.
    ///
    /// # Errors
    /// [`RdmaError::Connect`] if the peer's address is invalid, the two ends cannot reach each other, or the device
    /// rejects the connection.
    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError>;

    /// Converts a connected send queue into its posting interface.
    fn into_send_queue(self: Box<Self>) -> Box<dyn PostRequests>;
}
