//! How a queue pair is used wrongly.

use crate::wire::mlx5::Syndrome;
use crate::wire::mlx5::wqe::WqeError;

/// Why a queue pair was refused service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// An entry that the layout does not allow, or that stands in the wrong place.
    #[error(transparent)]
    Entry(#[from] WqeError),
    /// An entry of more blocks than were rung for.
    #[error("an entry of {ds} segments fills {blocks} blocks, but the doorbell announced {announced}")]
    Unfinished {
        /// Segments.
        ds: usize,
        /// Blocks that they fill.
        blocks: u64,
        /// Blocks that were announced.
        announced: u64,
    },
    /// A doorbell of another queue pair.
    #[error("the doorbell of queue pair {of:#x} names queue pair {qpn:#x}")]
    Doorbell {
        /// Which it names.
        qpn: u32,
        /// Whose it is.
        of: u32,
    },
    /// A doorbell that goes back, or further ahead than the ring is long.
    #[error(
        "the doorbell announces blocks up to {next:#x}, but those up to {announced:#x} were announced before, and of {blocks} blocks only \
         those before {completed:#x} are free again"
    )]
    Index {
        /// What it says.
        next: u16,
        /// What was known.
        announced: u16,
        /// What is complete.
        completed: u16,
        /// Blocks of the ring.
        blocks: u32,
    },
    /// A doorbell record that is behind its doorbell: the wrong word of it was written, or none.
    #[error("the doorbell record's send word is {record:#x}, behind the doorbell's {next:#x}")]
    Record {
        /// The send word.
        record: u32,
        /// The doorbell's index.
        next: u16,
    },
}

impl QueueError {
    /// The syndrome of the completion.
    pub const fn syndrome(&self) -> Syndrome {
        match self {
            Self::Entry(e) => e.syndrome(),
            _ => Syndrome::LOCAL_QP_OPERATION,
        }
    }
}
