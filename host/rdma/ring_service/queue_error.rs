//! Incorrect uses of a queue pair.

use crate::wire::mlx5::Syndrome;
use crate::wire::mlx5::wqe::WqeError;

/// Reason why a ring service rejects an entry or a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The layout does not allow the entry, or the entry stands at the wrong block.
    #[error(transparent)]
    Entry(#[from] WqeError),
    /// The entry has more blocks than the doorbell has announced.
    #[error("an entry of {ds} segments fills {blocks} blocks, but the doorbell announced {announced}")]
    Unfinished {
        /// Number of segments.
        ds: usize,
        /// Number of blocks that they fill.
        blocks: u64,
        /// Number of blocks that were announced.
        announced: u64,
    },
    /// The doorbell names another queue pair.
    #[error("the doorbell of queue pair {of:#x} names queue pair {qpn:#x}")]
    Doorbell {
        /// Queue pair that the doorbell names.
        qpn: u32,
        /// Queue pair that the doorbell belongs to.
        of: u32,
    },
    /// The doorbell moves backwards, or further ahead than the ring is long.
    #[error(
        "the doorbell announces blocks up to {next:#x}, but those up to {announced:#x} were announced before, and of {blocks} blocks only \
         those before {completed:#x} are free again"
    )]
    Index {
        /// Index in the doorbell.
        next: u16,
        /// Index announced before.
        announced: u16,
        /// Index up to which blocks are complete.
        completed: u16,
        /// Number of blocks in the ring.
        blocks: u32,
    },
    /// The doorbell record is behind its doorbell: its wrong word was written, or none.
    #[error("the doorbell record's send word is {record:#x}, behind the doorbell's {next:#x}")]
    Record {
        /// Send word of the record.
        record: u32,
        /// Index in the doorbell.
        next: u16,
    },
    /// The doorbell record announces more receives than the receive ring has slots.
    #[error(
        "the doorbell record's receive word is {record:#x}, but {taken:#x} receives were taken, and the ring has {slots} slots"
    )]
    ReceiveRecord {
        /// Receive word of the record.
        record: u32,
        /// Number of receives that were taken, modulo 65,536.
        taken: u16,
        /// Number of slots of the receive ring.
        slots: u32,
    },
}

impl QueueError {
    /// Returns the syndrome of the completion.
    pub const fn syndrome(&self) -> Syndrome {
        match self {
            Self::Entry(e) => e.syndrome(),
            _ => Syndrome::LOCAL_QP_OPERATION,
        }
    }
}
