//! Reserved space, to which the data of new objects is written before they appear.

use super::change::Planned;
use super::{KvKey, KvStore};
use crate::storage::error::{KvError, StorageError};
use crate::storage::volume::Extent;

/// Space of new objects, until they are committed. Dropping it gives the space back: do so once all writes to it have ended,
/// also those of kernels.
#[must_use = "the space is given back when this is dropped"]
pub struct KvReservation {
    store: KvStore,
    planned: Vec<Planned>,
    extents: Vec<Vec<Extent>>,
    evicted: Vec<KvKey>,
}

impl KvReservation {
    /// Returns the ranges of logical blocks of each object, in the order in which the objects were given. An object has 1
    /// to 8 ranges, in the order of its data. They are whole allocation units of 4096 bytes: the last one may exceed the object.
    pub fn extents(&self) -> &[Vec<Extent>] {
        &self.extents
    }

    /// Returns the keys of the objects that were evicted for this space.
    pub fn evicted(&self) -> &[KvKey] {
        &self.evicted
    }

    /// Stores the objects, all at once for those who look them up: their data was written, and all writes have completed.
    /// `checksums` has the [`kv_checksum`](crate::storage::kv_checksum) of each. When this returns, the objects are durable. Those of
    /// the same keys are replaced.
    ///
    /// # Errors
    /// * [`KvError::Checksums`] if there is not one for each object, and [`KvError::Removed`] if the volume holds the store
    ///   no more.
    /// * As for [`Volume::flush`](crate::storage::Volume::flush) and
    ///   [`Volume::write_blocks`](crate::storage::Volume::write_blocks).
    ///
    /// After an error, this process finds none of the objects, and those that they would have replaced are there. If the store is opened again before a
    /// later call has changed it, some of the new ones may be there, whole.
    pub fn commit(mut self, checksums: &[u64]) -> Result<(), StorageError> {
        let (objects, given) = (self.planned.len(), checksums.len());
        if objects != given {
            return Err(KvError::Checksums { name: self.store.name().to_owned(), objects, given }.into());
        }
        self.store.0.commit(&self.planned, checksums)?;
        self.planned.clear();
        Ok(())
    }

    /// Drops the reservation, whose space stays reserved until the volume is opened again: something may still write to it.
    pub(super) fn abandon(mut self) {
        self.store.0.claim.keep();
        self.planned.clear();
    }

    /// Writes the data of an object, the `index`th.
    pub(super) fn write(&self, index: usize, data: &[u8]) -> Result<(), StorageError> {
        self.planned.get(index).map_or(Ok(()), |p| self.store.0.medium.write_data(&p.place.runs, data))
    }
}

impl Drop for KvReservation {
    fn drop(&mut self) {
        let mut state = self.store.0.state.lock();
        self.planned.iter().for_each(|p| state.give_back(&p.place));
    }
}

impl std::fmt::Debug for KvReservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KvReservation({:?}, {} objects)", self.store, self.extents.len())
    }
}

impl KvStore {
    /// Reserves space for objects: their keys, each once, with 1 to 2^30 bytes. Evicts objects as far as that is needed,
    /// first those that were not used for longest. An object that has one of the keys stays until
    /// [`KvReservation::commit`], unless it is evicted.
    ///
    /// # Errors
    /// * [`KvError::Full`] if pins and other reservations leave too little space.
    /// * [`KvError::KeySize`], [`KvError::Size`] or [`KvError::Twice`] if objects cannot be; [`KvError::Removed`] if the
    ///   volume holds the store no more.
    /// * As for [`Volume::flush`](crate::storage::Volume::flush) and
    ///   [`Volume::write_blocks`](crate::storage::Volume::write_blocks), if the records of evicted objects cannot be erased.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Drive, KvKey, KvOptions, KvStore, OverwritePolicy, Volume, kv_checksum};
    ///
    /// let drive = Drive::create("soft:mem", 2 << 20, &OverwritePolicy::none())?;
    /// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
    /// let options = KvOptions { key_bytes: 16, bytes: 1 << 20, objects: 100 };
    /// let store = KvStore::create(&volume, "cache", &options)?;
    ///
    /// let key = KvKey::from([7; 16]);
    /// let space = store.reserve(&[(key, 4096)])?;
    /// // A kernel would write to these blocks.
    /// volume.write_blocks(space.extents()[0][0].block, &[9; 4096])?;
    /// space.commit(&[kv_checksum(&[9; 4096])])?;
    /// assert_eq!(store.lookup(&[key])?, [Some(4096)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self, objects: &[(KvKey, u64)]) -> Result<KvReservation, StorageError> {
        let (planned, evicted) = self.0.reserve(objects)?;
        let extents = planned.iter().map(|p| self.0.medium.extents(&p.place.runs)).collect();
        Ok(KvReservation { store: self.clone(), planned, extents, evicted })
    }
}
