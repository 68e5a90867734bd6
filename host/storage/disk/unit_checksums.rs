//! Checksums of units of 4096 bytes in memory near the kernels, which compare pages that they have read with them.
//!
//! Entry `i` of the table is the low half of the XXH3-64 of the 4096 bytes from byte `4096 * i` on. It is 1 where that
//! half is 0, and 0 where the checksum is unknown. Kernels and the host keep the table correct: pages that caches write
//! back get new checksums, as do whole units that the host writes. Data written in another way has none.

use super::integrity::Integrity;
use crate::engine::abi;
use crate::memory::{MemoryError, Region};
use parking_lot::Mutex;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that one checksum covers.
pub(in crate::storage) const UNIT: usize = abi::CHECKSUM_BYTES;

/// Returns the table's entry for the bytes of a unit.
pub(in crate::storage) fn entry_of(unit: &[u8]) -> u32 {
    (xxh3_64(unit) as u32).max(1)
}

/// Table of checksums for the units from the first byte of the disk on.
#[derive(Debug)]
struct Table {
    region: Region,
    /// Number of entries.
    count: u64,
}

impl Table {
    /// Returns the range of entries for `units`, limited to the table.
    fn clip(&self, units: &Range<u64>) -> Range<usize> {
        units.start.min(self.count) as usize..units.end.min(self.count) as usize
    }

    fn entries(&self, units: &Range<u64>) -> Result<Vec<u32>, MemoryError> {
        let at = self.clip(units);
        self.region.get_slice(at.start * size_of::<u32>(), at.len())
    }

    fn set(&self, first: u64, entries: &[u32]) -> Result<(), MemoryError> {
        let at = self.clip(&(first..first.saturating_add(entries.len() as u64)));
        self.region.set_slice(at.start * size_of::<u32>(), &entries[..at.len()])
    }
}

/// The current table of a disk, and former tables that running kernels may still read.
#[derive(Debug, Default)]
struct Held {
    table: Option<Table>,
    former: Vec<Region>,
}

/// Checksums that kernels of a disk compare pages with, if there are any.
#[derive(Debug)]
pub(in crate::storage) struct UnitChecksums {
    block_shift: u32,
    held: Mutex<Held>,
}

impl UnitChecksums {
    /// Makes the checksums of a disk with blocks of `1 << block_shift` bytes: none at first.
    pub(in crate::storage) fn new(block_shift: u32) -> Self {
        Self { block_shift, held: Mutex::default() }
    }

    /// Returns true if kernels compare pages that they read with checksums.
    pub(in crate::storage) fn is_open(&self) -> bool {
        self.held.lock().table.is_some()
    }

    /// Gives kernels the `count` entries in `region`. They have no table at the time.
    pub(in crate::storage) fn open(
        &self,
        integrity: &Integrity,
        region: Region,
        count: u64,
    ) -> Result<(), MemoryError> {
        integrity.set_checksums(region.address(), count)?;
        self.held.lock().table = Some(Table { region, count });
        Ok(())
    }

    /// Takes away the kernels' table. Running kernels may read it until they end, which `is_idle` tells.
    pub(in crate::storage) fn close(
        &self,
        integrity: &Integrity,
        is_idle: impl FnOnce() -> bool,
    ) -> Result<(), MemoryError> {
        let mut held = self.held.lock();
        integrity.set_checksums(0, 0)?;
        let table = held.table.take();
        held.former.extend(table.map(|t| t.region));
        if is_idle() {
            held.former.clear();
        }
        Ok(())
    }

    /// Returns all entries, or `None` if there is no table.
    pub(in crate::storage) fn entries(&self) -> Result<Option<Vec<u32>>, MemoryError> {
        self.held.lock().table.as_ref().map(|table| table.entries(&(0..u64::MAX))).transpose()
    }

    /// Runs `use_it` with the table and all units that a range of blocks touches. Returns `None` if there is no table.
    fn with_table<T>(
        &self,
        first: u64,
        blocks: u64,
        use_it: impl FnOnce(&Table, Range<u64>) -> Result<T, MemoryError>,
    ) -> Result<Option<T>, MemoryError> {
        let held = self.held.lock();
        let Some(table) = held.table.as_ref() else { return Ok(None) };
        let (start, end) = (first << self.block_shift, (first + blocks) << self.block_shift);
        let units = start / UNIT as u64..end.div_ceil(UNIT as u64);
        Ok(Some(use_it(table, units)?))
    }

    /// Marks the checksums of these blocks as unknown.
    pub(in crate::storage) fn forget(&self, first: u64, blocks: u64) -> Result<(), MemoryError> {
        let forget = |table: &Table, units: Range<u64>| {
            let at = table.clip(&units);
            table.region.fill(at.start * size_of::<u32>(), at.len() * size_of::<u32>(), 0)
        };
        self.with_table(first, blocks, forget).map(drop)
    }

    /// Stores the checksums of the units that lie completely within blocks that were written.
    pub(in crate::storage) fn store(&self, first: u64, data: &[u8]) -> Result<(), MemoryError> {
        let blocks = (data.len() >> self.block_shift) as u64;
        let start = first << self.block_shift;
        let skip = (start.next_multiple_of(UNIT as u64) - start) as usize;
        let whole = data.get(skip..).unwrap_or_default();
        let store = |table: &Table, _| {
            let entries: Vec<u32> = whole.chunks_exact(UNIT).map(entry_of).collect();
            table.set((start + skip as u64) / UNIT as u64, &entries)
        };
        self.with_table(first, blocks, store).map(drop)
    }

    /// Returns the units of `data` whose known checksum differs. `data` begins with a unit, at byte `offset` of the disk.
    pub(in crate::storage) fn wrong_units(&self, offset: u64, data: &[u8]) -> Result<Vec<u64>, MemoryError> {
        let first = offset / UNIT as u64;
        let compare = |table: &Table, _| {
            let known = table.entries(&(first..first + (data.len() / UNIT) as u64))?;
            let pairs = data.chunks_exact(UNIT).zip(known).enumerate();
            Ok(pairs.filter(|(_, (unit, e))| *e != 0 && entry_of(unit) != *e).map(|(i, _)| first + i as u64).collect())
        };
        let blocks = (data.len() >> self.block_shift) as u64;
        Ok(self.with_table(offset >> self.block_shift, blocks, compare)?.unwrap_or_default())
    }

    /// Returns true if the checksum of the unit at this byte is known.
    pub(in crate::storage) fn is_known(&self, offset: u64) -> Result<bool, MemoryError> {
        let unit = offset / UNIT as u64;
        let known = |table: &Table, _| Ok(table.entries(&(unit..unit + 1))?.first().is_some_and(|e| *e != 0));
        Ok(self.with_table(offset >> self.block_shift, 1, known)?.unwrap_or(false))
    }
}
