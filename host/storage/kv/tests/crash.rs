//! Power failures: after each prefix of the writes and flushes, with any of the unflushed blocks lost.

use super::*;
use crate::pci::fixture::folder_in_memory;
use crate::soft::nvme::journal::{Change, Cut, Journal};
use crate::test_cases;
use std::collections::BTreeMap;

/// Objects by number: the seed and size of their data.
type Dictionary = BTreeMap<u32, (u32, usize)>;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ z >> 31
    }
}

/// A store on a file, whose changes are known.
struct Trace {
    base: [Vec<u8>; 1],
    changes: Vec<Change>,
    /// Number of changes after each operation, with the objects that are there then.
    states: Vec<(usize, Dictionary)>,
}

/// Stores, replaces, evicts and deletes objects, and records what that changes on the medium.
fn record(spec: &str, path: &std::path::Path) -> Trace {
    let v = volume(&[spec]);
    let store = create(&v, 16, 64);
    let mut held = Dictionary::new();
    let write = |held: &mut Dictionary, objects: &[(u32, u32, usize)]| {
        let all: Vec<(KvKey, Vec<u8>)> =
            objects.iter().map(|(n, seed, bytes)| (key(*n), data(*seed, *bytes))).collect();
        store.write(&all.iter().map(|(k, d)| (*k, d.as_slice())).collect::<Vec<_>>()).unwrap();
        held.extend(objects.iter().map(|(n, seed, bytes)| (*n, (*seed, *bytes))));
        store.take_evictions().iter().for_each(|k| held.retain(|n, _| key(*n) != *k));
    };
    write(&mut held, &[(0, 0, 4096), (1, 1, 9000), (2, 2, 4096), (3, 3, 5000)]);
    let base = [std::fs::read(path).unwrap()];
    let journal = Journal::of(&[path.to_owned()]);
    let mut states = vec![(0, held.clone())];
    let operations: [&dyn Fn(&mut Dictionary); 7] = [
        &|held| write(held, &[(4, 14, 6000)]),
        &|held| write(held, &[(2, 22, 4096), (5, 25, 4096)]),
        &|held| write(held, &[(6, 26, 20_000), (7, 27, 4096), (0, 30, 700)]),
        &|held| {
            store.delete(&[key(6), key(5)]).unwrap();
            held.retain(|n, _| ![5, 6].contains(n));
        },
        &|held| write(held, &[(8, 48, 30_000)]),
        &|held| write(held, &[(8, 58, 30_001)]),
        &|held| {
            drop(store.reserve(&[(key(9), 50_000)]).unwrap());
            store.take_evictions().iter().for_each(|k| held.retain(|n, _| key(*n) != *k));
        },
    ];
    for operation in operations {
        operation(&mut held);
        let done = journal.len();
        assert_eq!(there(&store), held.keys().copied().collect::<Vec<_>>());
        states.push((done, held.clone()));
    }
    let changes = journal.take();
    Trace { base, changes, states }
}

impl Trace {
    /// Returns the medium after the first `done` changes. Blocks of writes that were not flushed are there if `keeps` says so.
    fn image(&self, done: usize, block: usize, mut keeps: impl FnMut() -> bool) -> Vec<u8> {
        Cut::after(&self.changes[..done], &self.base, block).files(|_| keeps()).remove(0)
    }

    /// Checks a store that is opened after the first `done` changes.
    fn check(&self, v: &Volume, done: usize) {
        let store = KvStore::open(v, "s").unwrap();
        let stats = store.stats();
        assert_eq!(stats.damaged_records, 0, "after {done}");
        check_space(&store);
        let next = self.states.partition_point(|(end, _)| *end < done);
        let (before, after) = (&self.states[next.max(1) - 1].1, &self.states[next].1);
        let allowed = |n: u32| {
            if self.states[next].0 == done { vec![after.get(&n)] } else { vec![before.get(&n), after.get(&n)] }
        };
        let mut found = Dictionary::new();
        for n in 0..10 {
            let object = match read(&store, &key(n)) {
                Ok(bytes) => allowed(n).into_iter().flatten().find(|(seed, size)| data(*seed, *size) == bytes).copied(),
                Err(e) => {
                    assert!(matches!(kv(e), KvError::Absent { .. }), "object {n} after {done}");
                    None
                }
            };
            let is_there = store.prefix(&[key(n)]).unwrap() == 1;
            assert!(
                is_there == object.is_some() && allowed(n).contains(&object.as_ref()),
                "object {n} after {done} changes"
            );
            found.extend(object.map(|o| (n, o)));
        }
        // Objects that were found stay right when space is used again, and when the store is opened once more.
        store.write(&[(key(20), &data(99, 40_000))]).unwrap();
        store.take_evictions().iter().for_each(|k| found.retain(|n, _| key(*n) != *k));
        store.delete(&[key(2)]).unwrap();
        found.remove(&2);
        drop(store);
        let store = KvStore::open(v, "s").unwrap();
        let numbers: Vec<u32> = found.keys().copied().chain([20]).collect();
        assert_eq!((there(&store), store.stats().damaged_records), (numbers, 0), "after {done} changes");
        for (n, (seed, size)) in &found {
            assert!(read(&store, &key(*n)).unwrap() == data(*seed, *size), "object {n} after {done} changes");
        }
        assert!(store.verify().unwrap().is_empty());
    }
}

#[test]
fn every_object_is_whole_or_absent_after_a_power_failure_at_any_point() {
    let mut random = Random(1);
    for block in [512, 4096] {
        let folder = folder_in_memory();
        let path = folder.path().join("store.img");
        std::fs::File::create(&path).unwrap().set_len(384 << 10).unwrap();
        let spec = format!("soft:{},block={block},threads=1", path.display());
        let trace = record(&spec, &path);
        // Three flushes for an operation that evicts, two for others, one to delete.
        let flushes = |from: usize, to: usize| {
            trace.changes[from..to].iter().filter(|c| matches!(c, Change::Flush { .. })).count()
        };
        let ends: Vec<usize> = trace.states.iter().map(|(end, _)| *end).collect();
        let each: Vec<usize> = ends.windows(2).map(|w| flushes(w[0], w[1])).collect();
        assert_eq!(each, [2, 2, 3, 1, 2, 3, 1]);
        let rounds = if test_cases::all_are_wanted() { 40 } else { 2 };
        for done in 0..=trace.changes.len() {
            for round in 0..2 + rounds {
                let keeps = || match round {
                    0 => false,
                    1 => true,
                    _ => random.next().is_multiple_of(2),
                };
                std::fs::write(&path, trace.image(done, block, keeps)).unwrap();
                trace.check(&volume(&[&spec]), done);
            }
        }
    }
}

#[test]
fn a_store_that_was_not_created_completely_is_not_there() {
    let folder = folder_in_memory();
    let path = folder.path().join("store.img");
    for command in (1..).step_by(2) {
        std::fs::write(&path, vec![0xa5; 384 << 10]).unwrap();
        std::fs::write(&path, vec![0; 64 << 10]).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(384 << 10).unwrap();
        let spec = format!("soft:{},threads=1", path.display());
        let faulty = volume(&[&format!("{spec},disappear=after:{command}")]);
        let options = KvOptions { key_bytes: 16, bytes: 65_536, objects: 64 };
        let created = KvStore::create(&faulty, "s", &options).map(drop);
        drop(faulty);
        let v = volume(&[&spec]);
        match KvStore::open(&v, "s") {
            Ok(store) => assert_eq!((store.stats().objects, store.stats().damaged_records), (0, 0)),
            Err(e) => assert!(created.is_err() && matches!(kv(e), KvError::Unknown { .. })),
        }
        if created.is_ok() {
            return;
        }
    }
}
