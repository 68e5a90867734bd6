//! Who is lost, and who wants to know.

use super::LostRank;
use std::sync::Arc;

/// What is called for a lost rank.
pub(super) type Tell = Arc<dyn Fn(&LostRank) + Send + Sync>;

/// What is called with what another rank says out of turn.
pub(super) type Hear = Arc<dyn Fn(usize, &[u8]) + Send + Sync>;

/// Lost ranks and those who want to hear of them. It lives behind a lock; what it answers is called without it.
#[derive(Default)]
pub(super) struct Losses {
    lost: Vec<LostRank>,
    tell: Vec<Tell>,
}

impl Losses {
    /// Notes a loss. Who is to hear of it; nobody if it is known.
    pub(super) fn add(&mut self, lost: LostRank) -> Vec<Tell> {
        if self.lost.iter().any(|l| l.rank == lost.rank) {
            return Vec::new();
        }
        self.lost.push(lost);
        self.tell.clone()
    }

    /// Adds one who wants to know. The losses that it is to hear of at once.
    pub(super) fn listen(&mut self, tell: Tell) -> Vec<LostRank> {
        self.tell.push(tell);
        self.lost.clone()
    }

    /// The first that was lost.
    pub(super) fn first(&self) -> Option<&LostRank> {
        self.lost.first()
    }
}

impl std::fmt::Debug for Losses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Losses").field("lost", &self.lost).field("tell", &self.tell.len()).finish()
    }
}
