//! How a measurement fails.

use super::SettingError;
use crate::engine::{EngineError, Outcome, RunError};
use crate::memory::MemoryError;
use crate::rdma::{PostError, RdmaError};
use crate::shmem::bootstrap::BootstrapError;

/// Why a measurement did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaBenchError {
    /// What was asked for cannot be.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The adapter.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A launch.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The other side cannot be reached.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The rings cannot be posted to from the CPU.
    #[error(transparent)]
    Poster(#[from] PostError),
    /// Verbs calls were asked for.
    #[error("transport {transport} has no verbs calls: --initiator verbs needs --transport verbs")]
    NoVerbs {
        /// Which.
        transport: crate::rdma::Transport,
    },
    /// The CPU's messages.
    #[error("messages of {bytes} bytes posted by the CPU: after {done} of them, {source}{}", because(.failure))]
    Posting {
        /// Of one message.
        bytes: u64,
        /// Messages of this queue pair that were complete.
        done: u64,
        /// Why.
        #[source]
        source: PostError,
        /// What the adapter says.
        failure: Option<String>,
    },
    /// A kernel's messages.
    #[error("messages of {bytes} bytes posted by kernels: queue pair {number:#x}: after {done} of them, {outcome}{}", because(.failure))]
    Kernel {
        /// Of one message.
        bytes: u64,
        /// Queue pair.
        number: u32,
        /// Its messages that were complete.
        done: u64,
        /// Why.
        outcome: Outcome,
        /// What the adapter says.
        failure: Option<String>,
    },
    /// The other side's message did not come.
    #[error(
        "messages of {bytes} bytes: message {number} of the other side did not come within {waited:?}; see what became of it"
    )]
    NotComing {
        /// Of one message.
        bytes: u64,
        /// Which, from 0.
        number: u64,
        /// How long it was waited for.
        waited: std::time::Duration,
    },
    /// The other side failed.
    #[error("the other side (rank {rank}): {reason}")]
    OtherSide {
        /// Its rank.
        rank: usize,
        /// What it says.
        reason: String,
    },
    /// The sides do not measure the same.
    #[error("the two sides do not measure the same: here {here}, there {there}; give both the same flags")]
    Different {
        /// Here.
        here: String,
        /// There.
        there: String,
    },
    /// It takes two.
    #[error("a measurement is between two sides, and there are {0} ranks; start two")]
    NotTwo(usize),
    /// Too little for the figures that are asked for.
    #[error(
        "{done} messages of {bytes} bytes are too few for a row of the table; give more --iters or a longer --duration"
    )]
    TooFew {
        /// Of one message.
        bytes: u64,
        /// Messages.
        done: u64,
    },
    /// No adapter that was asked for can be had.
    #[error("no adapter: {reasons}")]
    NoAdapter {
        /// Why not, one for each kind.
        reasons: String,
    },
    /// Somebody pressed Ctrl-C.
    #[error("stopped")]
    Stopped,
}

crate::remedy::pass_on!(RdmaBenchError: Memory, Engine, Run);

fn because(failure: &Option<String>) -> String {
    failure.as_ref().map_or_else(String::new, |f| format!(" ({f})"))
}
