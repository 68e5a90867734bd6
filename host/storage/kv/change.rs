//! Changes of the records on the medium, in the order that keeps every object whole or absent.
//!
//! | step | flushed before |
//! |---|---|
//! | records of evicted, deleted and dropped objects become zeros | their space is given to anybody |
//! | data is written | the record |
//! | records are written; that of a replaced object's key in the same place, by one write | the objects are visible |
//!
//! A batch takes these three flushes once. If a write or a flush fails, the medium may have the old record or the new one.
//! Its slot is `stale` then, and is written again before any space is given away.

use super::key::KvKey;
use super::record::{RECORD, Record};
use super::state::{Place, State};
use super::{Inner, KvStore};
use crate::storage::error::{KvError, StorageError};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Bytes of consecutive records in one write.
const AT_ONCE: usize = 1 << 20;

/// An object that is to be stored.
pub(super) struct Planned {
    pub(super) key: KvKey,
    /// Bytes of its data.
    pub(super) bytes: u32,
    pub(super) place: Place,
}

/// Content for blocks from a byte of the volume on.
type Image = (u64, Vec<u8>);

impl Inner {
    /// Takes places for objects, and evicts others where that is needed. Returns the places, to which data may be written,
    /// and the keys of evicted objects.
    pub(super) fn reserve(&self, objects: &[(KvKey, u64)]) -> Result<(Vec<Planned>, Vec<KvKey>), StorageError> {
        let name = || self.medium.name.clone();
        self.check_keys(objects.iter().map(|(key, _)| key))?;
        let most = self.medium.shape.largest();
        if let Some((_, bytes)) = objects.iter().find(|(_, bytes)| !(1..=most).contains(bytes)) {
            return Err(KvError::Size { name: name(), bytes: *bytes, most }.into());
        }
        let mut seen = HashSet::new();
        if let Some((key, _)) = objects.iter().find(|(key, _)| !seen.insert(key)) {
            return Err(KvError::Twice { name: name(), key: key.to_string() }.into());
        }
        let unit = self.medium.shape.limits.unit;
        let units = |bytes: u64| bytes.div_ceil(unit);
        let all = objects.iter().map(|(_, bytes)| units(*bytes)).sum();
        let _changes = self.changes.lock();
        self.medium.check()?;
        let (mut planned, mut evicted) = (Vec::with_capacity(objects.len()), Vec::new());
        let outcome = {
            let mut state = self.state.lock();
            if !state.can_take(objects.len() as u64, all) {
                return Err(self.full(&state, objects.len(), all).into());
            }
            objects.iter().try_for_each(|(key, bytes)| {
                let place = state.take(units(*bytes), &mut evicted);
                let place = place.ok_or_else(|| self.full(&state, objects.len(), all))?;
                planned.push(Planned { key: *key, bytes: *bytes as u32, place });
                Ok::<(), StorageError>(())
            })
        };
        match outcome.and_then(|()| self.rewrite_stale()) {
            Ok(()) => Ok((planned, evicted)),
            Err(e) => {
                let mut state = self.state.lock();
                planned.iter().for_each(|p| state.give_back(&p.place));
                Err(e)
            }
        }
    }

    fn full(&self, state: &State, objects: usize, units: u64) -> KvError {
        let shape = &self.medium.shape;
        let unit = shape.limits.unit;
        KvError::Full {
            name: self.medium.name.clone(),
            objects: objects as u64,
            bytes: units * unit,
            capacity: shape.limits.units * unit,
            most: shape.objects,
            kept_bytes: state.kept_units * unit,
            kept: state.kept(),
        }
    }

    /// Writes the records again that may differ on the medium, and flushes. The caller holds `changes`.
    fn rewrite_stale(&self) -> Result<(), StorageError> {
        let (slots, images) = {
            let mut state = self.state.lock();
            let slots = std::mem::take(&mut state.stale);
            let images = self.images(&state, &slots, &HashMap::new());
            (slots, images)
        };
        if slots.is_empty() {
            return Ok(());
        }
        let outcome = self.medium.check().map_err(StorageError::from).and_then(|()| self.write_records(images));
        if outcome.is_err() {
            self.state.lock().stale.extend(slots);
        }
        outcome
    }

    /// Makes the data of objects durable, then their records, and then shows the objects. Those that have failed keep
    /// their places.
    pub(super) fn commit(&self, planned: &[Planned], checksums: &[u64]) -> Result<(), StorageError> {
        if planned.is_empty() {
            return Ok(());
        }
        self.medium.flush()?;
        let _changes = self.changes.lock();
        self.medium.check()?;
        let (records, replaced, images) = {
            let mut state = self.state.lock();
            let last = state.sequence + planned.len() as u64;
            state.sequence = last;
            let record = |(i, (p, checksum)): (usize, (&Planned, &u64))| Record {
                key: p.key,
                // The first object of a batch counts as the latest one.
                sequence: last - i as u64,
                checksum: *checksum,
                bytes: p.bytes,
                runs: p.place.runs,
            };
            let records: Vec<Record> = planned.iter().zip(checksums).enumerate().map(record).collect();
            // Nobody evicts the objects that are replaced, whose slots the new records take.
            let mut hold = |p: &Planned| state.objects.find(&p.key).map(|slot| (slot, state.pin(slot)));
            let replaced: Vec<Option<(u32, u64)>> = planned.iter().map(&mut hold).collect();
            let slots = planned.iter().zip(&replaced).map(|(p, old)| old.map_or(p.place.slot, |(slot, _)| slot));
            let new: HashMap<u32, &Record> = slots.zip(&records).collect();
            let images = self.images(&state, &new.keys().copied().collect(), &new);
            (records, replaced, images)
        };
        let outcome = self.write_records(images);
        let mut state = self.state.lock();
        // From the last to the first, which is then the one that was used last.
        for ((p, record), old) in planned.iter().zip(&records).zip(replaced).rev() {
            match (&outcome, old) {
                (Ok(()), _) => state.put(&p.place, record, old),
                (Err(_), Some((slot, sequence))) => {
                    state.stale.insert(slot);
                    state.unpin(slot, sequence);
                }
                (Err(_), None) => drop(state.stale.insert(p.place.slot)),
            }
        }
        outcome
    }

    /// Returns the content of all blocks with the records of `slots`: the objects of `new`, and others as they are.
    fn images(&self, state: &State, slots: &BTreeSet<u32>, new: &HashMap<u32, &Record>) -> Vec<Image> {
        let each = self.medium.records_of_block();
        let blocks: BTreeSet<u32> = slots.iter().map(|slot| slot / each).collect();
        let mut images: Vec<Image> = Vec::new();
        for block in blocks {
            let at = self.medium.record_at(u64::from(block) * u64::from(each));
            match images.last_mut() {
                Some((start, bytes)) if *start + bytes.len() as u64 == at && bytes.len() < AT_ONCE => {}
                _ => images.push((at, Vec::new())),
            }
            let Some((_, bytes)) = images.last_mut() else { continue };
            for slot in block * each..(block + 1) * each {
                let record = match new.get(&slot) {
                    Some(record) => Some(record.to_bytes()),
                    None => state.objects.record(slot).map(|r| r.to_bytes()),
                };
                bytes.extend_from_slice(&record.unwrap_or([0; RECORD]));
            }
        }
        images
    }

    fn write_records(&self, images: Vec<Image>) -> Result<(), StorageError> {
        images.iter().try_for_each(|(at, bytes)| self.medium.write(*at, bytes))?;
        self.medium.flush()
    }
}

impl KvStore {
    /// Deletes objects. Keys without object count as nothing. Returns the number of deleted objects, which do not come back
    /// when the store is opened again. The space of pinned ones is free after their last pin.
    ///
    /// # Errors
    /// * [`KvError::KeySize`] if a key has another size than those of the store, and [`KvError::Removed`] if the volume
    ///   holds the store no more.
    /// * As for [`Volume::flush`](crate::storage::Volume::flush) and
    ///   [`Volume::write_blocks`](crate::storage::Volume::write_blocks). The objects are gone then, and may come back when
    ///   the store is opened again, unless a later call succeeds that deletes or reserves.
    pub fn delete(&self, keys: &[KvKey]) -> Result<u64, StorageError> {
        let inner = &self.0;
        inner.check_keys(keys)?;
        let _changes = inner.changes.lock();
        inner.medium.check()?;
        let deleted = {
            let mut state = inner.state.lock();
            let delete = |key: &&KvKey| state.objects.find(key).and_then(|slot| state.delete(slot)).is_some();
            keys.iter().filter(delete).count()
        };
        inner.rewrite_stale()?;
        Ok(deleted as u64)
    }
}
