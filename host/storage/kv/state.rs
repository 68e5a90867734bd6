//! State of an open store in memory: objects, free space, the order of uses, pins.
//!
//! Space and slots that are free here may still belong to records on the medium. `stale` has the slots of all such
//! records. Nobody writes to space that was taken from here before these records were written again, and flushed
//! (`change.rs`).

use super::extent::Runs;
use super::key::KvKey;
use super::load::Loaded;
use super::objects::Objects;
use super::recency::Recency;
use super::record::Record;
use super::space::Space;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Keys of evicted objects that are kept for [`KvStore::take_evictions`](super::KvStore::take_evictions).
pub(super) const MOST_EVICTIONS: usize = 1 << 16;

/// Space of an object that was deleted or replaced while it was pinned.
#[derive(Debug)]
struct Held {
    runs: Runs,
    pins: u32,
}

/// Space and slot for an object that is being stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) runs: Runs,
}

/// Counters since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) evictions: u64,
    pub(super) lost_evictions: u64,
}

/// State of an open store.
#[derive(Debug)]
pub(super) struct State {
    pub(super) objects: Objects,
    space: Space,
    /// Units of the slab.
    units: u64,
    /// Bytes of all objects.
    pub(super) bytes: u64,
    recency: Recency,
    /// Objects that were not used since the store was opened, in the order of their storing; the oldest is the last. Made
    /// when an object is evicted for the first time. May have slots that were used or emptied since.
    unused: Option<Vec<u32>>,
    /// Empty slots.
    free: Vec<u32>,
    /// Slots whose records on the medium may differ from those here.
    pub(super) stale: BTreeSet<u32>,
    /// Space of pinned objects that are gone, by sequence number.
    held: HashMap<u64, Held>,
    /// Number of pinned objects that are not gone, and of reserved places.
    pub(super) pinned: u64,
    pub(super) reserved: u64,
    /// Units of pinned and gone objects, and of reserved places.
    pub(super) kept_units: u64,
    evicted: VecDeque<KvKey>,
    pub(super) counters: Counters,
    pub(super) damaged: u64,
    pub(super) sequence: u64,
}

impl State {
    pub(super) fn new(loaded: Loaded, units: u64) -> Self {
        let Loaded { objects, space, stale, damaged, sequence } = loaded;
        let slots = objects.slots() as u32;
        let free: Vec<u32> = (0..slots).rev().filter(|slot| objects.entry(*slot).sequence == 0).collect();
        let bytes = (0..slots).map(|slot| u64::from(objects.entry(slot).bytes)).sum();
        Self {
            space,
            units,
            bytes,
            recency: Recency::new(objects.slots()),
            objects,
            unused: None,
            free,
            stale,
            held: HashMap::new(),
            pinned: 0,
            reserved: 0,
            kept_units: 0,
            evicted: VecDeque::new(),
            counters: Counters::default(),
            damaged,
            sequence,
        }
    }

    /// Returns the number of free units.
    pub(super) fn free_units(&self) -> u64 {
        self.space.free()
    }

    /// Returns the number of objects and places that cannot be evicted.
    pub(super) fn kept(&self) -> u64 {
        self.pinned + self.reserved + self.held.len() as u64
    }

    /// Returns true if places of so many objects and units can be taken at all.
    pub(super) fn can_take(&self, objects: u64, units: u64) -> bool {
        let evictable = self.objects.len() as u64 - self.pinned;
        objects <= self.free.len() as u64 + evictable && units <= self.units - self.kept_units
    }

    /// Makes an object the one that was used last. A pinned one becomes that with its last pin.
    pub(super) fn touch(&mut self, slot: u32) {
        if self.objects.entry(slot).pins == 0 {
            self.recency.touch(slot);
        }
    }

    /// Finds an object, and counts that as a use.
    pub(super) fn find_used(&mut self, key: &KvKey) -> Option<u32> {
        let found = self.objects.find(key);
        match found {
            Some(slot) => {
                self.counters.hits += 1;
                self.touch(slot);
            }
            None => self.counters.misses += 1,
        }
        found
    }

    /// Pins the object in a slot. Returns its sequence number, which [`State::unpin`] takes.
    pub(super) fn pin(&mut self, slot: u32) -> u64 {
        let entry = self.objects.entry(slot);
        if entry.pins == 0 {
            self.recency.remove(slot);
            self.pinned += 1;
            self.kept_units += self.objects.runs(slot).units();
        }
        *self.objects.pins(slot) += 1;
        entry.sequence
    }

    /// Removes a pin. With the last one the object is the one that was used last, or its space is free if it is gone.
    pub(super) fn unpin(&mut self, slot: u32, sequence: u64) {
        if self.objects.entry(slot).sequence == sequence {
            let pins = self.objects.pins(slot);
            *pins -= 1;
            if *pins == 0 {
                self.pinned -= 1;
                self.kept_units -= self.objects.runs(slot).units();
                self.recency.touch(slot);
            }
            return;
        }
        let Some(held) = self.held.get_mut(&sequence) else { return };
        held.pins -= 1;
        if held.pins == 0
            && let Some(Held { runs, .. }) = self.held.remove(&sequence)
        {
            self.kept_units -= runs.units();
            self.space.give_back(&runs);
        }
    }

    /// Removes an object from a slot, which is not free yet. Its space is, unless the object is pinned.
    fn remove(&mut self, slot: u32) -> Option<Record> {
        let pins = self.objects.entry(slot).pins;
        let record = self.objects.remove(slot)?;
        self.recency.remove(slot);
        self.bytes -= u64::from(record.bytes);
        if pins > 0 {
            self.pinned -= 1;
            self.held.insert(record.sequence, Held { runs: record.runs, pins });
        } else {
            self.space.give_back(&record.runs);
        }
        Some(record)
    }

    /// Removes an object, whose record has to be erased. Returns its key.
    pub(super) fn delete(&mut self, slot: u32) -> Option<KvKey> {
        let record = self.remove(slot)?;
        self.free.push(slot);
        self.stale.insert(slot);
        Some(record.key)
    }

    /// Returns the object that was used least recently, of those that are not pinned.
    fn oldest(&mut self) -> Option<u32> {
        let (objects, recency) = (&self.objects, &self.recency);
        let is_unused = |slot: u32| {
            let entry = objects.entry(slot);
            entry.sequence != 0 && entry.pins == 0 && !recency.contains(slot)
        };
        let unused = self.unused.get_or_insert_with(|| {
            let slots = (0..objects.slots() as u32).filter(|slot| is_unused(*slot));
            let mut by_age: Vec<(u64, u32)> = slots.map(|slot| (objects.entry(slot).sequence, slot)).collect();
            by_age.sort_unstable_by(|a, b| b.cmp(a));
            by_age.into_iter().map(|(_, slot)| slot).collect()
        });
        while let Some(slot) = unused.pop() {
            if is_unused(slot) {
                return Some(slot);
            }
        }
        *unused = Vec::new();
        self.recency.oldest()
    }

    /// Evicts the object that was used least recently. Returns its key.
    fn evict(&mut self) -> Option<KvKey> {
        let key = self.oldest().and_then(|slot| self.delete(slot))?;
        self.counters.evictions += 1;
        if self.evicted.len() == MOST_EVICTIONS {
            self.evicted.pop_front();
            self.counters.lost_evictions += 1;
        }
        self.evicted.push_back(key);
        Some(key)
    }

    /// Takes a place of so many units. Evicts objects as long as there is none, and adds their keys to `evicted`. Returns
    /// `None` if nothing is left to evict.
    pub(super) fn take(&mut self, units: u64, evicted: &mut Vec<KvKey>) -> Option<Place> {
        loop {
            if let Some(&slot) = self.free.last()
                && let Some(runs) = self.space.take(units)
            {
                self.free.pop();
                self.reserved += 1;
                self.kept_units += units;
                return Some(Place { slot, runs });
            }
            evicted.push(self.evict()?);
        }
    }

    /// Gives a place back that was taken.
    pub(super) fn give_back(&mut self, place: &Place) {
        self.is_no_more_reserved(place);
        self.space.give_back(&place.runs);
        self.free.push(place.slot);
    }

    fn is_no_more_reserved(&mut self, place: &Place) {
        self.reserved -= 1;
        self.kept_units -= place.runs.units();
    }

    /// Puts a stored object in the place that was taken for it, or in the slot of the object that it replaces. That one
    /// is pinned by the caller, with this sequence number.
    pub(super) fn put(&mut self, place: &Place, record: &Record, replaced: Option<(u32, u64)>) {
        self.is_no_more_reserved(place);
        let slot = match replaced {
            Some((slot, sequence)) => {
                self.remove(slot);
                self.unpin(slot, sequence);
                self.free.push(place.slot);
                slot
            }
            None => place.slot,
        };
        self.objects.insert(slot, record);
        self.bytes += u64::from(record.bytes);
        self.recency.touch(slot);
    }

    /// Returns the keys of evicted objects that nobody has taken yet.
    pub(super) fn take_evictions(&mut self) -> Vec<KvKey> {
        std::mem::take(&mut self.evicted).into()
    }

    /// Returns the bytes of memory of the index.
    pub(super) fn memory(&self) -> u64 {
        let words = self.free.capacity() + self.unused.as_ref().map_or(0, Vec::capacity);
        let evicted = self.evicted.capacity() * size_of::<KvKey>();
        (self.objects.memory() + self.recency.memory() + words * size_of::<u32>() + evicted) as u64
    }
}
