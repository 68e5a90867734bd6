//! Pinned objects: their space stays as it is while something reads them.

use super::record::Record;
use super::{Inner, KvKey, KvStore};
use crate::storage::error::KvError;
use crate::storage::volume::Extent;

/// Place and checksum of an object's data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvObject {
    /// Bytes of the data.
    pub bytes: u64,
    /// Checksum of the data ([`kv_checksum`](crate::storage::kv_checksum)).
    pub checksum: u64,
    /// Ranges of logical blocks that hold the data, 1 to 8, in the order of the data. They are whole allocation units of
    /// 4096 bytes. Bytes behind the object's last are undefined.
    pub extents: Vec<Extent>,
}

/// Pins of objects, until they are dropped. The space of a pinned object is not used again, also if the object is deleted or
/// replaced meanwhile. Drop the pins once all reads of the objects have ended, also those of kernels.
#[must_use = "objects are pinned until this is dropped"]
#[derive(Debug)]
pub struct KvPins {
    store: KvStore,
    objects: Vec<Option<KvObject>>,
    /// Slots and sequence numbers of the pinned objects.
    pins: Vec<(u32, u64)>,
}

impl KvPins {
    /// Returns the objects in the order of the keys, `None` where there is none with that key.
    pub fn objects(&self) -> &[Option<KvObject>] {
        &self.objects
    }

    /// Drops the pins, whose objects stay pinned until the volume is opened again: something may still read them.
    pub(super) fn abandon(mut self) {
        self.store.0.claim.keep();
        self.pins.clear();
    }
}

impl Drop for KvPins {
    fn drop(&mut self) {
        let mut state = self.store.0.state.lock();
        // The first key counts as the one that was used last.
        self.pins.iter().rev().for_each(|(slot, sequence)| state.unpin(*slot, *sequence));
    }
}

/// Pin of one object while the host reads it.
pub(super) struct Hold<'a> {
    inner: &'a Inner,
    slot: u32,
    sequence: u64,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.inner.state.lock().unpin(self.slot, self.sequence);
    }
}

impl Inner {
    /// Pins the object in a slot, if it still has this sequence number.
    pub(super) fn hold(&self, slot: u32, sequence: u64) -> Option<Hold<'_>> {
        let mut state = self.state.lock();
        (state.objects.entry(slot).sequence == sequence).then(|| state.pin(slot))?;
        Some(Hold { inner: self, slot, sequence })
    }

    /// Pins the object with this key, and counts a hit or a miss.
    pub(super) fn hold_used(&self, key: &KvKey) -> Result<Option<(Hold<'_>, Record)>, KvError> {
        self.check_keys([key])?;
        let mut state = self.state.lock();
        let Some(slot) = state.find_used(key) else { return Ok(None) };
        let sequence = state.pin(slot);
        let record = state.objects.record(slot);
        drop(state);
        Ok(record.map(|record| (Hold { inner: self, slot, sequence }, record)))
    }
}

impl KvStore {
    /// Pins objects: [`KvPins::objects`] says where their data is. Each key counts as a hit or a miss. A pinned object is
    /// the one that was used last once its last pin is dropped. Pins are those of this process: they end with it.
    ///
    /// # Errors
    /// [`KvError::KeySize`] if a key has another size than those of the store.
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
    /// let key = KvKey::from([7; 16]);
    /// store.write(&[(key, &[1; 5000])])?;
    ///
    /// let pins = store.pin(&[key])?;
    /// let object = pins.objects()[0].as_ref().expect("it was just stored");
    /// // A kernel would read these blocks.
    /// let mut data = vec![0; (object.extents[0].blocks << volume.block_shift()) as usize];
    /// volume.read_blocks(object.extents[0].block, &mut data)?;
    /// assert_eq!(data[..5000], [1; 5000]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pin(&self, keys: &[KvKey]) -> Result<KvPins, KvError> {
        self.0.check_keys(keys)?;
        let (mut objects, mut pins) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        let mut state = self.0.state.lock();
        for key in keys {
            let Some(slot) = state.find_used(key) else {
                objects.push(None);
                continue;
            };
            pins.push((slot, state.pin(slot)));
            let entry = state.objects.entry(slot);
            let extents = self.0.medium.extents(&state.objects.runs(slot));
            objects.push(Some(KvObject { bytes: entry.bytes.into(), checksum: entry.checksum, extents }));
        }
        drop(state);
        Ok(KvPins { store: self.clone(), objects, pins })
    }
}
