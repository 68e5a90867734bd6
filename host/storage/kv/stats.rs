//! Counters of a store.

use super::KvStore;
use serde::Serialize;

/// Sizes and counters of a store: [`KvStore::stats`]. Counters begin when the store is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KvStats {
    /// Number of objects.
    pub objects: u64,
    /// Bytes of the objects.
    pub bytes: u64,
    /// Bytes of the space that no object, pin or reservation has. Objects have whole allocation units of 4096 bytes.
    pub free_bytes: u64,
    /// Number of pinned objects and reserved places, deleted ones with pins included.
    pub pinned: u64,
    /// Keys with an object in calls of [`KvStore::lookup`], [`KvStore::pin`] and [`KvStore::read`].
    pub hits: u64,
    /// Keys without an object in these calls.
    pub misses: u64,
    /// Number of evicted objects.
    pub evictions: u64,
    /// Number of these that [`KvStore::take_evictions`] does not return any more.
    pub lost_evictions: u64,
    /// Number of records that were dropped when the store was opened: damaged, outside of the store, or contradicting a
    /// later one.
    pub damaged_records: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
}

impl KvStore {
    /// Returns sizes and counters.
    pub fn stats(&self) -> KvStats {
        let state = self.0.state.lock();
        KvStats {
            objects: state.objects.len() as u64,
            bytes: state.bytes,
            free_bytes: state.free_units() * self.0.medium.shape.limits.unit,
            pinned: state.kept(),
            hits: state.counters.hits,
            misses: state.counters.misses,
            evictions: state.counters.evictions,
            lost_evictions: state.counters.lost_evictions,
            damaged_records: state.damaged,
            index_bytes: state.memory(),
        }
    }
}
