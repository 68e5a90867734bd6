//! Memory of a table: counters, hot rows, and row caches near the kernels and in host memory.

use super::{TableError, TableLayout};
use crate::engine::{Engine, abi};
use crate::memory::{Place, Region};
use crate::storage::StorageError;
use crate::storage::error::size;
use bytemuck::Zeroable;

/// Bits of `wb_row_cache.seen` for each frame.
const SEEN_BITS: u64 = 4;

/// Memory that kernels read by the addresses in the view.
pub(super) struct TableMemory {
    pub(super) stats: Region,
    /// Counters of reads that no program has asked for.
    uncounted: Region,
    pub(super) hot: Option<HotRows>,
    pub(super) caches: Vec<RowCache>,
}

/// Rows that stay in memory near the kernels.
pub(super) struct HotRows {
    /// Numbers of the rows, each once, in the order of their frames.
    pub(super) rows: Vec<u64>,
    pub(super) frames: Region,
    /// The hash table: numbers of rows, and of their frames.
    keys: Region,
    values: Region,
    mask: u32,
}

/// A row cache (`table/cache.cuh`).
pub(super) struct RowCache {
    tags: Region,
    frames: Region,
    sets: u32,
    /// Words of `seen`.
    seen: u32,
}

/// Hashes a row's number as `rows::hash` of `table/batch.cuh` does.
fn hash(row: u64) -> u64 {
    let row = (row ^ row >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let row = (row ^ row >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    row ^ row >> 33
}

impl HotRows {
    /// Allocates frames for these rows, which the caller fills.
    pub(super) fn new(engine: &Engine, name: &str, layout: &TableLayout, rows: &[u64]) -> Result<Self, StorageError> {
        let mut list: Vec<u64> = Vec::new();
        let slots = (rows.len().max(1) * 2).next_power_of_two();
        if u32::try_from(slots).is_err() {
            let most = 1u32 << 30;
            let (count, why) = (rows.len(), "use a row cache for the rest");
            return Err(StorageError::Option(format!(
                "table `{name}`: {count} hot rows, and {most} are possible: {why}"
            )));
        }
        let (mut keys, mut values) = (vec![0u64; slots], vec![0u32; slots]);
        for (position, row) in rows.iter().enumerate() {
            if *row >= layout.rows() {
                let (name, position) = (name.to_owned(), position as u64);
                return Err(TableError::Index { name, position, index: *row, rows: layout.rows() }.into());
            }
            let mut at = hash(*row) as usize & (slots - 1);
            while keys[at] != 0 && keys[at] != row + 1 {
                at = (at + 1) & (slots - 1);
            }
            if keys[at] == 0 {
                (keys[at], values[at]) = (row + 1, list.len() as u32);
                list.push(*row);
            }
        }
        let place = |bytes: usize| engine.allocate(Place::Device, bytes);
        let hot = Self {
            frames: place(list.len() * layout.row_bytes() as usize)?,
            keys: place(slots * 8)?,
            values: place(slots * 4)?,
            mask: slots as u32 - 1,
            rows: list,
        };
        hot.keys.set_slice(0, &keys)?;
        hot.values.set_slice(0, &values)?;
        Ok(hot)
    }

    pub(super) fn enter(&self, view: &mut abi::TableView) {
        view.hot_row = self.keys.address();
        view.hot_frame = self.values.address();
        view.hot_frames = self.frames.address();
        view.hot_mask = self.mask;
    }
}

impl RowCache {
    /// Allocates an empty cache of `bytes` bytes of rows, or of twice the table's rows if they are fewer.
    pub(super) fn new(
        engine: &Engine,
        name: &str,
        layout: &TableLayout,
        bytes: u64,
        place: Place,
    ) -> Result<Self, StorageError> {
        let ways = abi::ROW_WAYS as u64;
        let set = ways * layout.row_bytes();
        let sets = (bytes / set).min((layout.rows() * 2).div_ceil(ways).max(1)).min(u64::from(u32::MAX / 32));
        if sets == 0 {
            return Err(StorageError::Option(format!(
                "table `{name}`: a row cache of {} holds {} rows, but one set needs {ways}: give it {} or more",
                size(bytes),
                bytes / layout.row_bytes(),
                size(set)
            )));
        }
        let seen = (sets * ways * SEEN_BITS).div_ceil(32).next_power_of_two();
        Ok(Self {
            tags: engine.allocate(Place::Device, (sets * ways * 8 + sets * 4 + seen * 4) as usize)?,
            frames: engine.allocate(place, (sets * set) as usize)?,
            sets: sets as u32,
            seen: seen as u32,
        })
    }

    pub(super) fn view(&self) -> abi::RowCache {
        let (sets, tag) = (u64::from(self.sets), self.tags.address());
        let changed = tag + sets * abi::ROW_WAYS as u64 * 8;
        abi::RowCache {
            tag,
            changed,
            seen: changed + sets * 4,
            frames: self.frames.address(),
            sets: self.sets,
            seen_mask: self.seen - 1,
        }
    }
}

impl TableMemory {
    pub(super) fn new(engine: &Engine) -> Result<Self, StorageError> {
        let stats = || engine.allocate(Place::Device, size_of::<abi::TableStats>() * abi::STATS_STRIPES);
        Ok(Self { stats: stats()?, uncounted: stats()?, hot: None, caches: Vec::new() })
    }

    /// Returns the view without caches and hot rows, and with counters that nobody reads.
    pub(super) fn plain(&self, view: &abi::TableView) -> abi::TableView {
        abi::TableView {
            stats: self.uncounted.address(),
            hot_row: 0,
            hot_frame: 0,
            hot_frames: 0,
            hot_mask: 0,
            cache: [abi::RowCache::zeroed(); abi::ROW_TIERS],
            ..*view
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;
    use crate::storage::ElementType;

    #[test]
    fn memory_for_caches_is_used_up() {
        let engine = testing::cpu();
        let layout = TableLayout::new(ElementType::U8, &[100], 1_000_000).unwrap();
        let cache = |bytes, rows| {
            let layout = TableLayout::new(ElementType::U8, &[100], rows).unwrap();
            RowCache::new(&engine, "t", &layout, bytes, Place::Host)
        };
        assert_eq!(cache(1_000_000, 1_000_000).unwrap().view().sets * 16, 10_000);
        assert_eq!(cache(1_000_000, 100).unwrap().view().sets * 16, 208);
        assert!(cache(1599, 100).err().unwrap().to_string().contains("holds 15 rows, but one set needs 16"));
        let hot = HotRows::new(&engine, "t", &layout, &[5, 7, 5, 999_999]).unwrap();
        assert_eq!(hot.rows, [5, 7, 999_999]);
        let bad = HotRows::new(&engine, "t", &layout, &[5, 1_000_000]).err().unwrap().to_string();
        assert!(bad.contains("index 1000000 at position 1"), "{bad}");
    }
}
