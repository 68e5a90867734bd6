//! Ranges of logical blocks.

use serde::Serialize;

/// A range of logical blocks of a volume, such as a part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// First block.
    pub block: u64,
    /// Number of blocks.
    pub blocks: u64,
}

impl Extent {
    /// Makes the range of `blocks` blocks from `block` on.
    pub fn new(block: u64, blocks: u64) -> Self {
        Self { block, blocks }
    }
}
