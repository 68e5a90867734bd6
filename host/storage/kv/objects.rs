//! Objects of a store in memory: a slot for each record, and a hash table of keys.

use super::extent::{Run, Runs};
use super::key::KvKey;
use super::record::Record;
use bytemuck::Zeroable;
use hashbrown::HashTable;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An object without its key, or an empty slot. Further extents are in [`Objects::more`].
#[derive(Clone, Copy, Debug, Default, Zeroable)]
pub(super) struct Entry {
    /// 0 if the slot is empty.
    pub(super) sequence: u64,
    pub(super) checksum: u64,
    first: Run,
    pub(super) bytes: u32,
    /// Number of pins.
    pub(super) pins: u32,
}

impl Entry {
    pub(super) fn of(record: &Record) -> Self {
        let Record { sequence, checksum, bytes, .. } = *record;
        Self { sequence, checksum, first: record.runs.as_slice().first().copied().unwrap_or_default(), bytes, pins: 0 }
    }
}

/// Returns the hash of a key.
pub(super) fn hash(key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// The objects of a store, by slot and by key.
#[derive(Debug)]
pub(super) struct Objects {
    key_bytes: usize,
    /// Keys of all slots, one behind the other.
    keys: Vec<u8>,
    entries: Vec<Entry>,
    /// Runs of objects that have several.
    more: HashMap<u32, Box<[Run]>>,
    table: HashTable<u32>,
    /// Makes hashes unpredictable, since others choose the keys.
    seed: u64,
}

impl Objects {
    /// Makes the objects of a store that was read from the medium. `table` has the slot of each key, by its [`hash`] with
    /// this seed. `more` has the runs of objects with several.
    pub(super) fn loaded(
        key_bytes: usize,
        keys: Vec<u8>,
        entries: Vec<Entry>,
        more: HashMap<u32, Box<[Run]>>,
        table: HashTable<u32>,
        seed: u64,
    ) -> Self {
        Self { key_bytes, keys, entries, more, table, seed }
    }

    pub(super) fn slots(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn key_at(&self, slot: u32) -> &[u8] {
        &self.keys[slot as usize * self.key_bytes..][..self.key_bytes]
    }

    /// Returns the slot of the object with this key.
    pub(super) fn find(&self, key: &KvKey) -> Option<u32> {
        let key = key.as_bytes();
        self.table.find(hash(key, self.seed), |slot| self.key_at(*slot) == key).copied()
    }

    /// Returns the object in a slot, or an entry with sequence number 0.
    pub(super) fn entry(&self, slot: u32) -> Entry {
        self.entries[slot as usize]
    }

    /// Returns the pins of an object, to change them.
    pub(super) fn pins(&mut self, slot: u32) -> &mut u32 {
        &mut self.entries[slot as usize].pins
    }

    /// Returns the runs of the object in a slot that is not empty.
    pub(super) fn runs(&self, slot: u32) -> Runs {
        match self.more.get(&slot) {
            Some(runs) => runs.iter().copied().collect(),
            None => [self.entry(slot).first].into_iter().collect(),
        }
    }

    /// Returns the record of a slot, or `None` if it is empty.
    pub(super) fn record(&self, slot: u32) -> Option<Record> {
        let Entry { sequence, checksum, bytes, .. } = self.entry(slot);
        let key = (sequence != 0).then(|| KvKey::new(self.key_at(slot)).ok())??;
        Some(Record { key, sequence, checksum, bytes, runs: self.runs(slot) })
    }

    /// Puts an object into an empty slot. No other object has its key.
    pub(super) fn insert(&mut self, slot: u32, record: &Record) {
        let key = record.key.as_bytes();
        self.keys[slot as usize * self.key_bytes..][..self.key_bytes].copy_from_slice(key);
        self.entries[slot as usize] = Entry::of(record);
        if let runs @ [_, _, ..] = record.runs.as_slice() {
            self.more.insert(slot, runs.into());
        }
        let (keys, seed, width) = (&self.keys, self.seed, self.key_bytes);
        let hash_of = |slot: &u32| hash(&keys[*slot as usize * width..][..width], seed);
        self.table.insert_unique(hash_of(&slot), slot, hash_of);
    }

    /// Empties a slot. Returns its object.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Record> {
        let record = self.record(slot)?;
        if let Ok(found) = self.table.find_entry(hash(record.key.as_bytes(), self.seed), |s| *s == slot) {
            found.remove();
        }
        self.entries[slot as usize] = Entry::default();
        self.more.remove(&slot);
        Some(record)
    }

    /// Returns the bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let more = self.more.capacity() * (size_of::<u32>() + size_of::<Box<[Run]>>() + 1);
        let runs: usize = self.more.values().map(|r| size_of_val(&**r)).sum();
        self.keys.capacity() + self.entries.capacity() * size_of::<Entry>() + self.table.allocation_size() + more + runs
    }
}
