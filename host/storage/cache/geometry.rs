//! Arrangement of a cache's frames in sets.

use crate::engine::abi;
use crate::storage::error::{StorageError, size};

/// Least number of ways in a set, so that a set does not overflow by chance.
pub(in crate::storage) const MIN_WAYS: u32 = 8;
/// Largest number of ways. With 8 to 15 ways and a power of two of sets, rounding loses less than an eighth of the
/// memory.
pub(in crate::storage) const MAX_WAYS: u32 = 2 * MIN_WAYS - 1;
/// Smallest and largest page size, in bytes.
pub(in crate::storage) const PAGE_BYTES: std::ops::RangeInclusive<usize> = 512..=64 << 10;

/// Sets, ways and page size of a cache. Page p belongs to set p mod sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::storage) struct Geometry {
    pub(in crate::storage) sets: u32,
    pub(in crate::storage) ways: u32,
    pub(in crate::storage) page: usize,
}

impl Geometry {
    /// Arranges as many pages as fit into `bytes`, but no more than the `pages` of the volume need.
    pub(in crate::storage) fn new(bytes: u64, page: usize, pages: u64) -> Result<Self, StorageError> {
        if !page.is_power_of_two() || !PAGE_BYTES.contains(&page) {
            return Err(StorageError::Option(format!(
                "a cache page of {page} bytes: it must be a power of two from {} to {}",
                PAGE_BYTES.start(),
                PAGE_BYTES.end()
            )));
        }
        let frames = bytes / page as u64;
        if frames < u64::from(MIN_WAYS) {
            return Err(StorageError::Option(format!(
                "a cache of {} holds {frames} pages of {page} bytes, but one set needs {MIN_WAYS}: give it {} or more, or a smaller page",
                size(bytes),
                size(u64::from(MIN_WAYS) * page as u64)
            )));
        }
        // Frames are counted in 32 bits.
        let frames = frames.min(u64::from(u32::MAX >> 1));
        let log2_sets = (frames / u64::from(MIN_WAYS)).ilog2();
        let mut g = Self { sets: 1 << log2_sets, ways: (frames >> log2_sets) as u32, page };
        if u64::from(g.sets) * u64::from(g.ways) > pages {
            let log2_sets = (pages / u64::from(MIN_WAYS)).max(1).ilog2();
            let ways = pages.div_ceil(1 << log2_sets).max(MIN_WAYS.into());
            // Rounding up may give one way too many.
            let (log2_sets, ways) =
                if ways > MAX_WAYS.into() { (log2_sets + 1, MIN_WAYS.into()) } else { (log2_sets, ways) };
            if ways << log2_sets < u64::from(g.sets) * u64::from(g.ways) {
                g = Self { sets: 1 << log2_sets, ways: ways as u32, page };
            }
        }
        Ok(g)
    }

    pub(in crate::storage) fn frames(&self) -> usize {
        self.sets as usize * self.ways as usize
    }

    pub(in crate::storage) fn bytes(&self) -> usize {
        self.frames() * self.page
    }

    /// Returns the byte offset of each part of the cache's metadata in one region, at a multiple of a line, and the
    /// region's length.
    pub(in crate::storage) fn parts(&self) -> (MetadataOffsets, usize) {
        const LINE: usize = 128;
        let mut at = 0;
        let mut part = |bytes: usize| {
            let start = at;
            at = (at + bytes).next_multiple_of(LINE);
            start as u64
        };
        let (frames, sets) = (self.frames(), self.sets as usize);
        let parts = MetadataOffsets {
            tag: part(frames * size_of::<u64>()),
            pins: part(frames * size_of::<u32>()),
            fill: part(frames * size_of::<u64>()),
            set_lock: part(sets * size_of::<u32>()),
            hand: part(sets * size_of::<u32>()),
        };
        (parts, at)
    }

    /// Returns the constants of the `wb_cache`, without addresses and the volume.
    pub(in crate::storage) fn constants(&self, block_shift: u32) -> abi::Cache {
        let mut c: abi::Cache = bytemuck::Zeroable::zeroed();
        c.sets = self.sets;
        c.ways = self.ways;
        c.log2_sets = self.sets.ilog2();
        c.page_shift = self.page.ilog2();
        c.blocks_per_page = (self.page >> block_shift) as u32;
        c.set_mask = self.sets - 1;
        c.page_mask = self.page as u32 - 1;
        c.way_reciprocal = (1u64 << 32).div_ceil(self.ways.into()) as u32;
        c
    }
}

/// Byte offsets of the parts of the metadata.
#[derive(Clone, Copy, Debug)]
pub(in crate::storage) struct MetadataOffsets {
    pub(in crate::storage) tag: u64,
    pub(in crate::storage) pins: u64,
    pub(in crate::storage) fill: u64,
    pub(in crate::storage) set_lock: u64,
    pub(in crate::storage) hand: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn little_memory_is_lost(bytes in 4096u64..1 << 40, shift in 9u32..=16, pages in 1u64..1 << 32) {
            let page = 1usize << shift;
            prop_assume!(bytes >> shift >= 8 && bytes >> shift < 1 << 31);
            let g = Geometry::new(bytes, page, pages).unwrap();
            prop_assert!((MIN_WAYS..=MAX_WAYS).contains(&g.ways) && g.sets.is_power_of_two());
            prop_assert!(g.bytes() as u64 <= bytes);
            // Either the frames use most of the memory, or the whole volume fits.
            let used = g.bytes() as u64 > bytes / 8 * 7 - page as u64 || g.frames() as u64 >= pages;
            prop_assert!(used, "{g:?}");
            // The frames never exceed the volume by much.
            prop_assert!(g.frames() as u64 <= (pages + pages / 7).max(8) + 8, "{g:?}");
        }

        /// Checks that the kernels' multiplication gives the quotient of the division that it replaces.
        #[test]
        fn the_reciprocal_divides(ways in MIN_WAYS..=MAX_WAYS, n in 0u64..1 << 28) {
            let g = Geometry { sets: 4, ways, page: 4096 };
            let q = (n * u64::from(g.constants(9).way_reciprocal)) >> 32;
            prop_assert_eq!(q, n / u64::from(ways));
        }
    }

    #[test]
    fn parts_do_not_overlap() {
        let g = Geometry { sets: 4, ways: 9, page: 512 };
        let (p, bytes) = g.parts();
        assert_eq!([p.tag, p.pins, p.fill, p.set_lock, p.hand], [0, 384, 640, 1024, 1152]);
        assert_eq!(bytes, 1280);
    }

    #[test]
    fn a_cache_is_at_least_one_set() {
        let e = Geometry::new(7 * 4096, 4096, 1000).unwrap_err().to_string();
        assert_eq!(
            e,
            "a cache of 28.0 KiB holds 7 pages of 4096 bytes, but one set needs 8: give it 32.0 KiB or more, or a smaller page"
        );
        assert_eq!(Geometry::new(8 * 4096, 4096, 1000).unwrap().frames(), 8);
        assert_eq!(Geometry::new(1 << 30, 4096, 3).unwrap().frames(), 8);
        for page in [0, 256, 3000, 128 << 10] {
            assert!(Geometry::new(1 << 30, page, 1000).unwrap_err().to_string().contains("power of two from 512"));
        }
    }
}
