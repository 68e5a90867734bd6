//! Stores of objects under keys, such as parts of a KV cache. `docs/kv-store.md` is the manual.
//!
//! A store consists of three arrays of the volume's manifest, beside any others:
//!
//! | array | content |
//! |---|---|
//! | `NAME:kv` | configuration, a record of 128 bytes |
//! | `NAME:objects` | a record of 128 bytes for each object, or zeros (`record.rs`) |
//! | `NAME:slab` | data of the objects, in allocation units of 4096 bytes |
//!
//! The last two have checksums of their own (`medium.rs`). An object is there if its record is. The order of writes
//! (`change.rs`) makes a record appear after its data, and disappear before its space is used again. Opening
//! (`load.rs`) reads the records and makes everything else in memory from them.

mod change;
mod checksum;
mod extent;
mod key;
mod layout;
mod load;
mod medium;
mod objects;
mod pins;
mod recency;
mod record;
mod reservation;
mod scan;
mod segments;
mod space;
mod state;
mod stats;
mod stored;
#[cfg(test)]
mod tests;
mod transfer;

pub use checksum::kv_checksum;
pub use key::KvKey;
pub use layout::KvOptions;
pub use pins::{KvObject, KvPins};
pub use reservation::KvReservation;
pub use segments::{KvLoad, KvStoring};
pub use stats::KvStats;
pub use stored::StoredKv;

use super::Volume;
use crate::storage::error::KvError;
use crate::storage::volume::Claim;
use medium::Medium;
use parking_lot::Mutex;
use state::State;
use std::fmt;
use std::sync::Arc;

/// Objects of a volume under keys, in a space of fixed size: new objects take the place of those that were not used for
/// longest. Cheap to clone. All clones, pins and reservations are one handle, which several threads use at once.
///
/// An object is whole or not there, also after a power failure. [`KvStore::write`] and [`KvStore::read`] move data of the
/// host. For kernels, [`KvStore::reserve`] and [`KvStore::pin`] say where an object's bytes are.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Drive, KvKey, KvOptions, KvStore, OverwritePolicy, Volume};
///
/// let drive = Drive::create("soft:mem", 2 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
/// let options = KvOptions { key_bytes: 16, bytes: 1 << 20, objects: 100 };
/// let store = KvStore::create(&volume, "cache", &options)?;
///
/// let keys = [1u8, 2, 3].map(|n| KvKey::from([n; 16]));
/// store.write(&[(keys[0], &[5; 10_000]), (keys[1], &[6; 20_000])])?;
/// assert_eq!(store.lookup(&keys)?, [Some(10_000), Some(20_000), None]);
/// assert_eq!(store.prefix(&keys)?, 2);
/// let mut data = [0; 20_000];
/// assert_eq!(store.read(&keys[1], &mut data)?, 20_000);
/// assert_eq!(data, [6; 20_000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct KvStore(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Held while records are changed on the medium. Taken before `state`.
    changes: Mutex<()>,
    medium: Medium,
    /// The name, which no other handle of the volume opens meanwhile.
    claim: Claim,
}

impl KvStore {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.medium.name
    }

    /// Returns the sizes of the store.
    pub fn options(&self) -> KvOptions {
        self.0.medium.shape.options()
    }

    /// Returns the volume that holds the store.
    pub fn volume(&self) -> &Volume {
        &self.0.medium.volume
    }

    /// Returns the bytes of each object, or `None` where there is none with that key. Counts as a use: the objects are
    /// evicted later. The first key counts as the one that was used last, so that the end of a sequence is evicted before
    /// its beginning.
    ///
    /// # Errors
    /// [`KvError::KeySize`] if a key has another size than those of the store.
    pub fn lookup(&self, keys: &[KvKey]) -> Result<Vec<Option<u64>>, KvError> {
        self.0.check_keys(keys)?;
        let mut state = self.0.state.lock();
        let mut found = vec![None; keys.len()];
        for (key, bytes) in keys.iter().zip(&mut found).rev() {
            *bytes = state.find_used(key).map(|slot| state.objects.entry(slot).bytes.into());
        }
        Ok(found)
    }

    /// Returns the number of keys before the first one without an object: how much of a sequence is there. Counts as no
    /// use.
    ///
    /// # Errors
    /// As for [`KvStore::lookup`].
    pub fn prefix(&self, keys: &[KvKey]) -> Result<usize, KvError> {
        self.0.check_keys(keys)?;
        let state = self.0.state.lock();
        Ok(keys.iter().take_while(|key| state.objects.find(key).is_some()).count())
    }

    /// Counts a use of each object that is there, in the order of [`KvStore::lookup`]. Hits and misses stay as they are.
    ///
    /// # Errors
    /// As for [`KvStore::lookup`].
    pub fn touch(&self, keys: &[KvKey]) -> Result<(), KvError> {
        self.0.check_keys(keys)?;
        let mut state = self.0.state.lock();
        for key in keys.iter().rev() {
            if let Some(slot) = state.objects.find(key) {
                state.touch(slot);
            }
        }
        Ok(())
    }

    /// Returns the keys of objects that were evicted since the last call, in the order of their eviction. At most 65,536
    /// are kept; [`KvStats::lost_evictions`] counts those that were evicted before them. Deleted and replaced objects are
    /// not among them.
    pub fn take_evictions(&self) -> Vec<KvKey> {
        self.0.state.lock().take_evictions()
    }
}

impl Inner {
    fn check_keys<'a>(&self, keys: impl IntoIterator<Item = &'a KvKey>) -> Result<(), KvError> {
        let stored = self.medium.shape.limits.key_bytes;
        match keys.into_iter().map(|key| key.as_bytes().len()).find(|given| *given != stored) {
            Some(given) => Err(KvError::KeySize { name: self.medium.name.clone(), stored, given }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for KvStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.0.state.lock().objects.len();
        write!(f, "KvStore({}, {objects} objects)", self.name())
    }
}
