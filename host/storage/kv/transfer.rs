//! Data of objects between the medium and memory of the host, compared with its checksum.

use super::record::Record;
use super::{Inner, KvKey, KvStore, kv_checksum};
use crate::engine::EngineError;
use crate::storage::error::{KvError, StorageError};

impl Inner {
    /// Reads an object from one copy, or from any, and compares it with its checksum.
    fn read_from(&self, record: &Record, copy: Option<usize>, out: &mut [u8]) -> Result<(), StorageError> {
        self.medium.read_data(&record.runs, copy, out)?;
        let computed = kv_checksum(out);
        if computed == record.checksum {
            return Ok(());
        }
        Err(KvError::Data {
            name: self.medium.name.clone(),
            key: record.key.to_string(),
            bytes: record.bytes.into(),
            offset: record.runs.as_slice().first().map_or(0, |run| self.medium.data_at(*run)),
            stored: record.checksum,
            computed,
        }
        .into())
    }

    /// Reads an object whose data is damaged from each copy of a replicated volume. Writes the data of a right copy to all
    /// of them. Nobody else writes to the object's space meanwhile. `damage` is the error if no copy is right.
    fn repair(&self, record: &Record, damage: StorageError, out: &mut [u8]) -> Result<(), StorageError> {
        if !self.medium.volume.is_replicated() || !is_damage(&damage) {
            return Err(damage);
        }
        for copy in self.medium.volume.contents().copies_in_use()? {
            match self.read_from(record, copy, out) {
                Ok(()) => return self.medium.write_data(&record.runs, out),
                Err(e) if is_damage(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Err(damage)
    }
}

/// Returns true for an error of the data itself, and not of the device as a whole.
fn is_damage(e: &StorageError) -> bool {
    match e {
        StorageError::Kv(KvError::Data { .. }) => true,
        StorageError::Nvme(e) => !e.is_without_completion(),
        _ => false,
    }
}

impl KvStore {
    /// Reads an object into the first bytes of `out`, compares it with its checksum, and returns its number of bytes. Counts as a
    /// use. On a replicated volume a damaged copy is written again from a right one.
    ///
    /// # Errors
    /// * [`KvError::Absent`] if there is no object with this key; [`KvError::Short`] if `out` has fewer bytes.
    /// * [`KvError::Data`] if the data is damaged. `out` has it then.
    /// * [`KvError::KeySize`] if the key has another size than those of the store.
    /// * Otherwise as for [`Volume::read_blocks`](crate::storage::Volume::read_blocks).
    pub fn read(&self, key: &KvKey, out: &mut [u8]) -> Result<usize, StorageError> {
        self.read_to(key, |bytes| {
            let given = out.len() as u64;
            let short =
                || KvError::Short { name: self.name().to_owned(), key: key.to_string(), bytes: bytes as u64, given };
            out.get_mut(..bytes).ok_or_else(short)
        })
        .map(|data| data.len())
    }

    /// Reads an object as [`KvStore::read`] does, into memory of its size that this allocates.
    ///
    /// # Errors
    /// As for [`KvStore::read`].
    #[cfg(feature = "internals")]
    pub fn read_whole(&self, key: &KvKey) -> Result<Vec<u8>, StorageError> {
        self.read_to(key, |bytes| Ok(vec![0; bytes]))
    }

    /// Reads an object into the memory that `place` returns for its number of bytes.
    fn read_to<M: AsMut<[u8]>>(
        &self,
        key: &KvKey,
        place: impl FnOnce(usize) -> Result<M, KvError>,
    ) -> Result<M, StorageError> {
        let Some((_hold, record)) = self.0.hold_used(key)? else {
            return Err(KvError::Absent { name: self.name().to_owned(), key: key.to_string() }.into());
        };
        let mut memory = place(record.bytes as usize)?;
        let out = memory.as_mut();
        self.0.read_from(&record, None, out).or_else(|damage| self.0.repair(&record, damage, out))?;
        Ok(memory)
    }

    /// Stores objects, each key once: reserves space, writes the data, and commits all at once. They are durable when this
    /// returns. Takes three flushes at most, however many objects there are.
    ///
    /// # Errors
    /// As for [`KvStore::reserve`] and [`KvReservation::commit`](super::KvReservation::commit).
    pub fn write(&self, objects: &[(KvKey, &[u8])]) -> Result<(), StorageError> {
        let sizes: Vec<(KvKey, u64)> = objects.iter().map(|(key, data)| (*key, data.len() as u64)).collect();
        let space = self.reserve(&sizes)?;
        for (i, (_, data)) in objects.iter().enumerate() {
            space.write(i, data)?;
        }
        let checksums: Vec<u64> = objects.iter().map(|(_, data)| kv_checksum(data)).collect();
        space.commit(&checksums)
    }

    /// Reads all objects, on every copy of a replicated volume, and compares them with their checksums. Returns the keys of
    /// objects that are damaged or cannot be read. A damaged copy is written again from a right one, and its object is not among
    /// them. Counts as no use.
    ///
    /// Others may use the store meanwhile. Objects that they store or remove may be left out.
    ///
    /// # Errors
    /// [`StorageError::Engine`] if the engine was cancelled; [`StorageError::Nvme`] if a device does not complete a command;
    /// otherwise as for [`Volume::write_blocks`](crate::storage::Volume::write_blocks).
    pub fn verify(&self) -> Result<Vec<KvKey>, StorageError> {
        let inner = &self.0;
        let (mut damaged, mut data) = (Vec::new(), Vec::new());
        for slot in 0..inner.medium.shape.objects as u32 {
            let Some(record) = inner.state.lock().objects.record(slot) else { continue };
            if self.volume().engine().is_cancelled() {
                return Err(EngineError::Cancelled.into());
            }
            data.resize(record.bytes as usize, 0);
            for copy in self.volume().contents().copies_in_use()? {
                let Err(damage) = inner.read_from(&record, copy, &mut data) else { continue };
                // The object may be gone, and its space used again. If not, the pin keeps both.
                let Some(_hold) = inner.hold(slot, record.sequence) else { break };
                match inner.repair(&record, damage, &mut data) {
                    Ok(()) => {}
                    Err(e) if is_damage(&e) => {
                        damaged.push(record.key);
                        break;
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(damaged)
    }
}
