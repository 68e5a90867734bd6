//! Lost ranks, and the callbacks for losses and alerts.

use super::LostRank;
use std::sync::Arc;

/// A callback for a lost rank.
pub(super) type LossCallback = Arc<dyn Fn(&LostRank) + Send + Sync>;

/// A callback for an alert of another rank.
pub(super) type AlertCallback = Arc<dyn Fn(usize, &[u8]) + Send + Sync>;

/// Lost ranks, and the callbacks for losses. A lock protects it; callers run the callbacks without that lock.
#[derive(Default)]
pub(super) struct Losses {
    lost: Vec<LostRank>,
    callbacks: Vec<LossCallback>,
}

impl Losses {
    /// Records a loss. Returns the callbacks to run; none if the loss was already known.
    pub(super) fn add(&mut self, lost: LostRank) -> Vec<LossCallback> {
        if self.lost.iter().any(|l| l.rank == lost.rank) {
            return Vec::new();
        }
        self.lost.push(lost);
        self.callbacks.clone()
    }

    /// Adds a callback. Returns the losses with which the caller must run it at once.
    pub(super) fn listen(&mut self, callback: LossCallback) -> Vec<LostRank> {
        self.callbacks.push(callback);
        self.lost.clone()
    }

    /// Returns the first lost rank.
    pub(super) fn first(&self) -> Option<&LostRank> {
        self.lost.first()
    }
}

impl std::fmt::Debug for Losses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Losses").field("lost", &self.lost).field("callbacks", &self.callbacks.len()).finish()
    }
}
