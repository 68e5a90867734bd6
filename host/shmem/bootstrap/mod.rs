//! How PEs find each other: ranks, and one way to tell everybody something.

mod local;

pub use local::LocalBootstrap;

use std::fmt;
use std::time::Duration;

/// What a world is built on. Programs that have MPI, or a launcher of their own, bring theirs; the calls are collective, and
/// matched by their order.
pub trait Bootstrap: Send + Sync + fmt::Debug {
    /// This process's (or thread's) number, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Gives bytes to everybody and gets everybody's, in rank order. An error within `within` names the ranks that did not come.
    fn allgather(&self, bytes: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, BootstrapError>;

    /// Returns when all have called it.
    fn barrier(&self, within: Duration) -> Result<(), BootstrapError> {
        self.allgather(&[], within).map(drop)
    }

    /// Calls `tell` when a rank is known to have ended before its time, once for each; for those known already at once. One that
    /// cannot notice does nothing: then a lost rank shows as one that does not come.
    fn on_loss(&self, tell: Box<dyn Fn(&LostRank) + Send + Sync>) {
        drop(tell);
    }

    /// This rank ends in order: its end is no loss to the others.
    fn leave(&self) {}

    /// How the ranks were found, for people: `torchrun`, `local threads`.
    fn via(&self) -> String;
}

/// A rank that ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRank {
    /// Which.
    pub rank: usize,
    /// What is known of its end.
    pub reason: String,
}

impl LostRank {
    /// A lost rank and why.
    pub fn new(rank: usize, reason: impl Into<String>) -> Self {
        Self { rank, reason: reason.into() }
    }
}

impl fmt::Display for LostRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} is gone: {}", self.rank, self.reason)
    }
}

/// Why ranks could not meet.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// Some did not come.
    #[error("rank {rank} of {size} waited {within:?} for {}; see what became of them", ranks(.missing))]
    Missing {
        /// Who waited.
        rank: usize,
        /// How many there are.
        size: usize,
        /// Who did not come.
        missing: Vec<usize>,
        /// How long.
        within: Duration,
    },
    /// One ended.
    #[error("{0}")]
    Lost(LostRank),
}

fn ranks(list: &[usize]) -> String {
    let names: Vec<String> = list.iter().map(usize::to_string).collect();
    format!("rank{} {}", if list.len() == 1 { "" } else { "s" }, names.join(", "))
}
