//! Counters of a table.

use super::Table;
use crate::engine::abi;
use crate::memory::{MemoryError, Region};
use crate::metrics::{self, Registration, family};
use crate::storage::StorageError;
use crate::storage::disk::counters;

counters! {
    /// Counters of the rows that kernels gathered and wrote, since the table was opened or the counters were last reset.
    /// The difference of two values counts the events between them. Counters of a batch are complete when the batch is.
    TableStats of abi::TableStats {
        /// Rows that were gathered. In batches that succeeded it is the sum of the next five.
        rows,
        /// Rows that were copied from another row of their batch.
        duplicates,
        /// Rows that were found among the hot rows.
        hot_hits,
        /// Rows that were found in the row cache near the kernels.
        cache_hits,
        /// Rows that were found in the row cache in host memory.
        host_hits,
        /// Rows that were read from the devices.
        device_reads,
        /// Rows that entered the row cache near the kernels.
        admissions,
        /// Rows that entered the row cache in host memory.
        host_admissions,
        /// Hits whose frame was given to another row meanwhile: such rows were read from elsewhere.
        retries,
        /// Rows that were written.
        written,
    }
}

impl TableStats {
    /// Returns the share of the gathered rows that came from one source, 0 to 1, or `None` before the first row.
    pub(crate) fn share(&self, rows: u64) -> Option<f64> {
        (self.rows > 0).then(|| rows as f64 / self.rows as f64)
    }

    /// Returns the share of the gathered rows that were not read from the devices, 0 to 1, or `None` before the first
    /// row.
    pub fn hit_ratio(&self) -> Option<f64> {
        self.share(self.rows - self.device_reads.min(self.rows))
    }
}

impl Table {
    /// Returns the counters. The commands that read the rows are among the volume's ([`Volume::stats`]).
    ///
    /// [`Volume::stats`]: crate::storage::Volume::stats
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the counters cannot be read.
    pub fn stats(&self) -> Result<TableStats, StorageError> {
        Ok(sum(&self.0.memory.stats)?)
    }

    /// Sets all counters to 0. Do not call it while kernels run, since counts at that time may be lost.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the counters cannot be written.
    pub fn reset_stats(&self) -> Result<(), StorageError> {
        Ok(self.0.memory.stats.fill(0, size_of::<abi::TableStats>() * abi::STATS_STRIPES, 0)?)
    }
}

/// Returns the sum of the stripes.
fn sum(stripes: &Region) -> Result<TableStats, MemoryError> {
    let mut sum = TableStats::default();
    stripes.get_slice::<abi::TableStats>(0, abi::STATS_STRIPES)?.iter().for_each(|s| sum.add_stripe(s));
    Ok(sum)
}

/// Registers the counters of a table of this volume.
pub(super) fn register(table: &str, volume: &str, stripes: Region) -> Registration {
    let volume = volume.to_owned();
    metrics::register("table", table, move |to| {
        let Ok(s) = sum(&stripes) else { return false };
        for (tier, rows) in [
            ("duplicate", s.duplicates),
            ("hot", s.hot_hits),
            ("cache", s.cache_hits),
            ("host", s.host_hits),
            ("device", s.device_reads),
        ] {
            to.add(&family::TABLE_ROWS, &[("tier", tier), ("volume", &volume)], rows);
        }
        for (tier, rows) in [("cache", s.admissions), ("host", s.host_admissions)] {
            to.add(&family::TABLE_ADMISSIONS, &[("tier", tier), ("volume", &volume)], rows);
        }
        to.add(&family::TABLE_RETRIES, &[("volume", &volume)], s.retries);
        to.add(&family::TABLE_WRITTEN, &[("volume", &volume)], s.written);
        true
    })
}
