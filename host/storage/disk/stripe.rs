//! Layout of a volume's blocks on its devices: chunk by chunk in turn, or all blocks on each. `volume.cuh` computes the
//! same layout.

/// Number of devices and blocks per chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::storage) struct Stripe {
    pub(in crate::storage) devices: u64,
    pub(in crate::storage) chunk: u64,
    /// True if every device holds every block; chunks then only spread reads.
    pub(in crate::storage) replicated: bool,
}

/// Blocks that are consecutive on one device and in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::storage) struct Piece {
    pub(in crate::storage) device: usize,
    pub(in crate::storage) lba: u64,
    /// First block, relative to the start of the range.
    pub(in crate::storage) at: u64,
    pub(in crate::storage) blocks: u64,
}

impl Stripe {
    /// Returns the blocks of a volume on devices with these numbers of blocks. The ends of larger devices stay unused.
    pub(in crate::storage) fn capacity(&self, blocks: impl IntoIterator<Item = u64>) -> u64 {
        let least = blocks.into_iter().min().unwrap_or(0);
        let whole_device = self.devices == 1 || self.replicated;
        if whole_device { least } else { least / self.chunk * self.chunk * self.devices }
    }

    /// Returns the blocks that each device needs for a volume of `blocks` blocks.
    pub(in crate::storage) fn needed(&self, blocks: u64) -> u64 {
        if self.devices == 1 || self.replicated {
            return blocks;
        }
        blocks.div_ceil(self.chunk).div_ceil(self.devices).saturating_mul(self.chunk)
    }

    /// Returns the device from which a block is read, and the block's address there.
    pub(in crate::storage) fn locate(&self, block: u64) -> (usize, u64) {
        if self.devices == 1 {
            return (0, block);
        }
        let (chunk, within) = (block / self.chunk, block % self.chunk);
        let lba = if self.replicated { block } else { chunk / self.devices * self.chunk + within };
        ((chunk % self.devices) as usize, lba)
    }

    /// Divides a range of a replicated volume into one part for each device to read. The first part goes to the device
    /// from which the first block is read.
    pub(in crate::storage) fn shares(self, first: u64, blocks: u64) -> impl Iterator<Item = Piece> {
        let share = blocks.div_ceil(self.devices).max(1);
        let (home, _) = self.locate(first);
        (0..blocks.div_ceil(share)).map(move |i| Piece {
            device: (home + i as usize) % self.devices as usize,
            lba: first + i * share,
            at: i * share,
            blocks: share.min(blocks - i * share),
        })
    }

    /// Returns the pieces of a range, in order.
    pub(in crate::storage) fn pieces(self, first: u64, blocks: u64) -> impl Iterator<Item = Piece> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let left = blocks.checked_sub(at).filter(|left| *left > 0)?;
            let (device, lba) = self.locate(first + at);
            let whole = if self.devices == 1 { left } else { self.chunk - (first + at) % self.chunk };
            let piece = Piece { device, lba, at, blocks: whole.min(left) };
            at += piece.blocks;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn one_device_is_not_cut_into_chunks() {
        let s = Stripe { devices: 1, chunk: 8, replicated: false };
        assert_eq!(s.capacity([1001]), 1001);
        assert_eq!(s.pieces(3, 500).collect::<Vec<_>>(), [Piece { device: 0, lba: 3, at: 0, blocks: 500 }]);
        assert_eq!(s.pieces(3, 0).count(), 0);
    }

    #[test]
    fn the_smallest_device_decides() {
        let s = Stripe { devices: 3, chunk: 8, replicated: false };
        assert_eq!(s.capacity([100, 47, 64]), 40 * 3);
        assert_eq!(s.needed(120), 40);
        assert_eq!(s.needed(121), 48);
        let s = Stripe { replicated: true, ..s };
        assert_eq!((s.capacity([100, 47, 64]), s.needed(121)), (47, 121));
    }

    #[test]
    fn copies_are_read_in_turn() {
        let s = Stripe { devices: 2, chunk: 8, replicated: true };
        assert_eq!([7, 8, 15, 16].map(|b| s.locate(b)), [(0, 7), (1, 8), (1, 15), (0, 16)]);
        let parts: Vec<_> = s.shares(9, 5).map(|p| (p.device, p.lba, p.at, p.blocks)).collect();
        assert_eq!(parts, [(1, 9, 0, 3), (0, 12, 3, 2)]);
        assert_eq!(s.shares(9, 1).count(), 1);
        assert_eq!(s.shares(9, 0).count(), 0);
    }

    proptest! {
        #[test]
        fn every_block_has_its_own_place(devices in 1u64..6, chunk in 1u64..9, sizes in 1u64..60) {
            let s = Stripe { devices, chunk, replicated: false };
            let capacity = s.capacity((0..devices).map(|d| sizes + d));
            let places: HashSet<_> = (0..capacity).map(|b| s.locate(b)).collect();
            prop_assert_eq!(places.len() as u64, capacity);
            prop_assert!(places.iter().all(|(d, lba)| (*d as u64) < devices && *lba < sizes));
            prop_assert!(s.capacity(vec![s.needed(capacity); devices as usize]) >= capacity);
        }

        #[test]
        fn pieces_cover_the_range_in_order(devices in 1u64..6, chunk in 1u64..9, first in 0u64..100, blocks in 0u64..100) {
            let s = Stripe { devices, chunk, replicated: false };
            let mut at = 0;
            for p in s.pieces(first, blocks) {
                prop_assert_eq!(p.at, at);
                for i in 0..p.blocks {
                    prop_assert_eq!(s.locate(first + at + i), (p.device, p.lba + i));
                }
                at += p.blocks;
            }
            prop_assert_eq!(at, blocks);
        }

        #[test]
        fn shares_cover_the_range_once(devices in 1u64..6, chunk in 1u64..9, first in 0u64..100, blocks in 0u64..100) {
            let s = Stripe { devices, chunk, replicated: true };
            let (mut at, mut used) = (0, HashSet::new());
            for p in s.shares(first, blocks) {
                prop_assert_eq!((p.at, p.lba), (at, first + at));
                prop_assert!(p.blocks > 0 && (p.device as u64) < devices && used.insert(p.device));
                at += p.blocks;
            }
            prop_assert_eq!(at, blocks);
        }
    }
}
