//! Reads by which kernels move rows, and the number of reads that a batch has in flight.

use super::TableLayout;
use crate::storage::Volume;

/// Reads that all warps of a batch together have in flight, unless the builder sets another number.
const IN_FLIGHT: u64 = 8192;
/// Most bytes of the staging memory of a batch.
const STAGING: u64 = 64 << 20;

/// Arrangement of a table's rows in blocks and parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowReads {
    /// Most blocks of a row that one read moves.
    pub(super) blocks: u32,
    /// Most parts of a row.
    pub(super) count: u32,
    /// True if each row is whole blocks.
    pub(super) aligned: bool,
    /// Bytes of the staging memory of one read.
    pub(super) bytes: u32,
}

impl RowReads {
    pub(super) fn new(volume: &Volume, layout: &TableLayout) -> Self {
        let block = volume.block_bytes() as u64;
        let row = layout.row_bytes();
        let aligned = row.is_multiple_of(block);
        let most = blocks_of(row, block);
        let at_once = (volume.max_transfer_bytes() as u64).min(volume.chunk_bytes()) / block;
        let blocks = most.min(at_once.max(1));
        Self { blocks: blocks as u32, count: most.div_ceil(blocks) as u32, aligned, bytes: (blocks * block) as u32 }
    }

    /// Returns the number of reads in flight, which has memory for all of them if they need it.
    pub(super) fn in_flight(&self, volume: &Volume, wanted: Option<u32>, staged: bool) -> u32 {
        let slots = volume.devices() * u64::from(volume.queues()) * u64::from(volume.depth() - 1);
        let wanted = wanted.map_or(IN_FLIGHT.min(slots), u64::from);
        let most = if staged { (STAGING / u64::from(self.bytes)).max(1) } else { u64::MAX };
        wanted.min(most).max(1) as u32
    }
}

/// Returns the most blocks that a row touches, if row 0 begins with a block.
fn blocks_of(row: u64, block: u64) -> u64 {
    // Rows begin at different bytes of a block, in turn; the turn ends after `block` rows at the latest.
    let touched = |i: u64| {
        let begin = i * row;
        (begin + row - 1) / block - begin / block + 1
    };
    (0..block).map(touched).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;
    use crate::storage::{Drive, ElementType, LandingChoice};

    #[test]
    fn rows_touch_as_many_blocks_as_the_worst_of_them() {
        for (row, block, most) in [
            (512, 512, 1),
            (256, 512, 1),
            (400, 512, 2),
            (516, 512, 2),
            (772, 512, 3),
            (64, 4096, 1),
            (65536, 4096, 16),
            (65532, 512, 129),
        ] {
            assert_eq!(blocks_of(row, block), most, "{row} in {block}");
        }
    }

    #[test]
    fn long_rows_are_moved_in_parts() {
        let drive = Drive::open("soft:mem:1M").unwrap();
        let volume =
            Volume::on(&testing::cpu(), [drive]).landing(LandingChoice::Bounce).transfer(8192).build().unwrap();
        let parts = |bytes| RowReads::new(&volume, &TableLayout::new(ElementType::U8, &[bytes], 3).unwrap());
        assert_eq!(parts(512), RowReads { blocks: 1, count: 1, aligned: true, bytes: 512 });
        assert_eq!(parts(65536), RowReads { blocks: 16, count: 8, aligned: true, bytes: 8192 });
        assert_eq!(parts(65532), RowReads { blocks: 16, count: 9, aligned: false, bytes: 8192 });
        assert_eq!(parts(65532).in_flight(&volume, Some(1 << 20), true), 8192);
        assert_eq!(parts(65532).in_flight(&volume, Some(0), true), 1);
    }
}
