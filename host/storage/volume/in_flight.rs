//! Pages of caches that are in flight when their volume is recovered.

use crate::storage::error::StorageError;

/// Numbers of pages that were in flight when their commands were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::storage) struct Completed {
    /// Pages being read, whose frames are empty now.
    pub(in crate::storage) emptied: u64,
    /// Pages being written, which are dirty again.
    pub(in crate::storage) dirty: u64,
}

/// A cache, whose pages in flight a recovery of its volume resets.
pub(in crate::storage) trait InFlight: Send + Sync {
    /// Resets the state of pages in flight, after all their commands were dropped and while no kernel runs.
    fn complete(&self) -> Result<Completed, StorageError>;
}
