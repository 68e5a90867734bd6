//! Opening: reads all records, and builds the index from them.
//!
//! Threads read and parse records in pieces, while another one enters their keys into the hash table. Nothing on the medium
//! is trusted. A record that is damaged, or contradicts a later one, is dropped: its slot and its space are free once the
//! record was erased (`state.rs`).

use super::extent::{Run, Runs};
use super::layout::Shape;
use super::medium::Medium;
use super::objects::{Entry, Objects, hash};
use super::record::{RECORD, Slot};
use super::scan::read_records;
use super::space::Space;
use crate::storage::disk::in_parallel;
use crate::storage::error::{StorageError, size};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Records that are read at once: 1 MiB, which the thread that parses them still has in its cache.
const PIECE: usize = 8 << 10;
/// Bytes of memory of an object beside its key: entry, order, place in the hash table, list of free slots.
const OVERHEAD: usize = size_of::<Entry>() + 24;
/// Most threads that read.
const READERS: usize = 4;

/// State of a store as its records have it.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) objects: Objects,
    pub(super) space: Space,
    /// Slots whose records on the medium have to be written again before their space is used.
    pub(super) stale: BTreeSet<u32>,
    /// Number of records that were dropped.
    pub(super) damaged: u64,
    /// Largest sequence number.
    pub(super) sequence: u64,
}

/// Consecutive slots, which one thread fills.
struct Piece<'a> {
    first: u32,
    keys: &'a mut [u8],
    entries: &'a mut [Entry],
}

/// Findings in one piece.
#[derive(Default)]
struct Found {
    hashes: Vec<(u32, u64)>,
    more: Vec<(u32, Box<[Run]>)>,
    stale: Vec<u32>,
    damaged: Vec<u32>,
}

/// Work of one thread.
enum Work<'a> {
    Read(Sender<(Piece<'a>, Found)>),
    Enter(Receiver<(Piece<'a>, Found)>),
}

/// The hash table, and the findings of all pieces.
#[derive(Default)]
struct Index {
    table: HashTable<u32>,
    more: HashMap<u32, Box<[Run]>>,
    stale: BTreeSet<u32>,
    damaged: BTreeSet<u32>,
}

/// Reads the records of a store.
pub(super) fn load(medium: &Medium, seed: u64) -> Result<Loaded, StorageError> {
    let Shape { limits, objects: slots } = medium.shape;
    let (slots, width) = (slots as usize, limits.key_bytes);
    check_memory(medium, slots * (width + OVERHEAD))?;
    // Pages that the threads below touch first.
    let (mut keys, mut entries) = (vec![0u8; slots * width], bytemuck::zeroed_vec::<Entry>(slots));
    let pieces = keys.chunks_mut(PIECE * width).zip(entries.chunks_mut(PIECE)).enumerate();
    let pieces = Mutex::new(pieces.map(|(i, (keys, entries))| Piece { first: (i * PIECE) as u32, keys, entries }));
    let readers = crate::processors::count().clamp(1, READERS).min(slots.div_ceil(PIECE));
    let (to, from) = channel();
    let mut work: Vec<Work<'_>> = (0..readers).map(|_| Work::Read(to.clone())).collect();
    work.push(Work::Enter(from));
    drop(to);
    let done = in_parallel(work, |work| match work {
        Work::Read(to) => {
            let mut bytes = vec![0; PIECE * RECORD];
            loop {
                let next = pieces.lock().next();
                let Some(mut piece) = next else { return Ok(None) };
                let found = read(medium, &mut piece, &mut bytes, seed)?;
                if to.send((piece, found)).is_err() {
                    return Ok(None);
                }
            }
        }
        Work::Enter(from) => Ok(Some(enter(&from, slots, width))),
    })?;
    let index = done.into_iter().flatten().next().unwrap_or_default();
    let Index { table, more, mut stale, damaged } = index;
    let mut dropped = damaged;
    let mut objects = Objects::loaded(width, keys, entries, more, table, seed);
    let (runs, overlapping) = match runs_of(&objects) {
        (runs, true) => (runs, Vec::new()),
        (_, false) => {
            let overlapping = overlapping(&objects);
            for slot in &overlapping {
                objects.remove(*slot);
            }
            (runs_of(&objects).0, overlapping)
        }
    };
    dropped.extend(overlapping);
    stale.extend(&dropped);
    let sequence = (0..slots as u32).map(|slot| objects.entry(slot).sequence).max().unwrap_or(0);
    let space = Space::around(limits.units, &runs);
    Ok(Loaded { objects, space, stale, damaged: dropped.len() as u64, sequence })
}

/// Fails if there is no memory for an index of so many bytes.
fn check_memory(medium: &Medium, bytes: usize) -> Result<(), StorageError> {
    let (name, objects) = (&medium.name, medium.shape.objects);
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|e| {
        let size = size(bytes as u64);
        StorageError::Option(format!(
            "KV store `{name}`: the index of {objects} objects takes {size} of memory: {e}; create a store of fewer objects"
        ))
    })
}

/// Reads and parses the records of a piece. `bytes` is memory for those of the largest one.
fn read(medium: &Medium, piece: &mut Piece<'_>, bytes: &mut [u8], seed: u64) -> Result<Found, StorageError> {
    let limits = &medium.shape.limits;
    let bytes = &mut bytes[..piece.entries.len() * RECORD];
    let mut found = Found { stale: read_records(medium, piece.first, bytes)?, ..Found::default() };
    let slots = piece.entries.iter_mut().zip(piece.keys.chunks_exact_mut(limits.key_bytes));
    for ((slot, record), (entry, key)) in (piece.first..).zip(bytes.as_chunks::<RECORD>().0).zip(slots) {
        match Slot::parse(record, limits) {
            Slot::Empty => {}
            Slot::Damaged => found.damaged.push(slot),
            Slot::Object(record) => {
                key.copy_from_slice(record.key.as_bytes());
                *entry = Entry::of(&record);
                if let runs @ [_, _, ..] = record.runs.as_slice() {
                    found.more.push((slot, runs.into()));
                }
                found.hashes.push((slot, hash(key, seed)));
            }
        }
    }
    Ok(found)
}

/// Enters pieces into a hash table as they come. Of two records with one key the later one stays.
fn enter(from: &Receiver<(Piece<'_>, Found)>, slots: usize, width: usize) -> Index {
    let mut index = Index { table: HashTable::with_capacity(slots), ..Index::default() };
    let mut pieces: BTreeMap<usize, Piece<'_>> = BTreeMap::new();
    for (piece, found) in from {
        pieces.insert(piece.first as usize / PIECE, piece);
        index.more.extend(found.more);
        index.stale.extend(found.stale);
        index.damaged.extend(found.damaged);
        for (slot, hash_of_slot) in found.hashes {
            let at = |slot: u32| (slot as usize / PIECE, slot as usize % PIECE);
            let key = |slot: u32| {
                let (piece, i) = at(slot);
                pieces.get(&piece).map(|p| &p.keys[i * width..][..width])
            };
            let sequence = |slot: u32| {
                let (piece, i) = at(slot);
                pieces.get(&piece).map(|p| p.entries[i].sequence)
            };
            // The table has space for all slots, so it never hashes again.
            let dropped = match index.table.entry(hash_of_slot, |other| key(*other) == key(slot), |_| 0) {
                Place::Vacant(place) => {
                    place.insert(slot);
                    continue;
                }
                Place::Occupied(mut place) if sequence(*place.get()) < sequence(slot) => {
                    std::mem::replace(place.get_mut(), slot)
                }
                Place::Occupied(_) => slot,
            };
            let (piece, i) = at(dropped);
            if let Some(piece) = pieces.get_mut(&piece) {
                piece.entries[i] = Entry::default();
            }
            index.more.remove(&dropped);
            index.damaged.insert(dropped);
        }
    }
    index
}

/// Returns the runs of all objects in their order, and true if none overlap.
fn runs_of(objects: &Objects) -> (Vec<Run>, bool) {
    let mut runs = Vec::with_capacity(objects.len());
    let slots = (0..objects.slots() as u32).filter(|slot| objects.entry(*slot).sequence != 0);
    slots.for_each(|slot| runs.extend_from_slice(objects.runs(slot).as_slice()));
    runs.sort_unstable();
    let are_apart = runs.windows(2).all(|w| w[0].end() <= w[1].start());
    (runs, are_apart)
}

/// Returns the slots of objects that overlap one of a later sequence number.
fn overlapping(objects: &Objects) -> Vec<u32> {
    let slots = 0..objects.slots() as u32;
    let mut latest_first: Vec<(u64, u32)> = slots.map(|slot| (objects.entry(slot).sequence, slot)).collect();
    latest_first.retain(|(sequence, _)| *sequence != 0);
    latest_first.sort_unstable_by(|a, b| b.cmp(a));
    let (mut ends, mut dropped) = (BTreeMap::new(), Vec::new());
    for (_, slot) in latest_first {
        let runs: Runs = objects.runs(slot);
        let is_taken = |run: &Run| ends.range(..run.end()).next_back().is_some_and(|(_, end)| *end > run.start());
        if runs.as_slice().iter().any(is_taken) {
            dropped.push(slot);
        } else {
            ends.extend(runs.as_slice().iter().map(|run| (run.start(), run.end())));
        }
    }
    dropped
}
