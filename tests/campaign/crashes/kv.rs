//! A KV store: after a loss of power each object is whole or not there.

use super::image::Progress;
use super::recorder::Log;
use super::scenario::Scenario;
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use warpbell::storage::{KvError, KvKey, KvOptions, KvStore, StorageError, Volume};

const NAME: &str = "cache";
const KEYS: u64 = 24;

/// Data of objects by the number of their keys.
type Objects = BTreeMap<u64, Vec<u8>>;

pub(super) struct Kv {
    rounds: usize,
    random: Random,
    /// Objects before the first call, and after each.
    states: Vec<Objects>,
    /// Keys that each call stores or removes.
    touched: Vec<BTreeSet<u64>>,
}

fn text(e: impl Display) -> String {
    e.to_string()
}

fn key(number: u64) -> Result<KvKey, String> {
    KvKey::new(&[number as u8; 16]).map_err(text)
}

impl Kv {
    pub(super) fn new(random: &mut Random) -> Self {
        let rounds = 1 + random.below(4) as usize;
        Self { rounds, random: Random::new(random.next()), states: Vec::new(), touched: Vec::new() }
    }

    /// Calls the store once. Returns the keys that the call stores or removes, and their objects.
    fn call(&mut self) -> (BTreeSet<u64>, Objects) {
        let keys: BTreeSet<u64> = (0..1 + self.random.below(4)).map(|_| self.random.below(KEYS)).collect();
        if self.random.once_in(4) {
            return (keys, Objects::new());
        }
        let mut data = |_| {
            let (bytes, seed) = (1 + self.random.below(14_000), self.random.next());
            (0..bytes).map(|i| (seed >> (i % 57)) as u8 ^ i as u8).collect::<Vec<u8>>()
        };
        let objects = keys.iter().map(|k| (*k, data(*k))).collect();
        (keys, objects)
    }

    fn make(store: &KvStore, keys: &BTreeSet<u64>, objects: &Objects) -> Result<(), String> {
        if objects.is_empty() {
            let keys = keys.iter().map(|k| key(*k)).collect::<Result<Vec<_>, _>>()?;
            return store.delete(&keys).map(drop).map_err(text);
        }
        let named: Vec<(KvKey, &[u8])> =
            objects.iter().map(|(k, data)| Ok((key(*k)?, &data[..]))).collect::<Result<_, String>>()?;
        store.write(&named).map_err(text)
    }

    /// Reads all objects.
    fn objects(store: &KvStore) -> Result<Objects, String> {
        let mut objects = Objects::new();
        for number in 0..KEYS {
            match store.read_whole(&key(number)?) {
                Ok(data) => drop(objects.insert(number, data)),
                Err(StorageError::Kv(KvError::Absent { .. })) => {}
                Err(e) => return Err(format!("object {number}: {e}")),
            }
        }
        Ok(objects)
    }
}

impl Scenario for Kv {
    fn prepare(&mut self, v: &Volume) -> Result<(), String> {
        let options = KvOptions { key_bytes: 16, bytes: 96 << 10, objects: 32 };
        let store = KvStore::create(v, NAME, &options).map_err(text)?;
        for _ in 0..self.random.below(6) {
            let (keys, objects) = self.call();
            Self::make(&store, &keys, &objects)?;
        }
        Ok(())
    }

    fn run(&mut self, v: &Volume, log: &Log) -> Result<(), String> {
        let store = KvStore::open(v, NAME).map_err(text)?;
        self.states.push(Self::objects(&store)?);
        for _ in 0..self.rounds {
            let (keys, objects) = self.call();
            log.begun();
            Self::make(&store, &keys, &objects)?;
            log.done();
            let held = Self::objects(&store)?;
            if let Some((number, _)) = objects.iter().find(|(k, data)| held.get(k) != Some(data)) {
                return Err(format!("object {number} was stored, and is not there"));
            }
            self.states.push(held);
            self.touched.push(keys);
        }
        Ok(())
    }

    fn check(&self, v: &Volume, at: Progress) -> Result<&'static str, String> {
        let store = KvStore::open(v, NAME).map_err(|e| format!("the store does not open: {e}"))?;
        let damaged = store.stats().damaged_records;
        if damaged > 0 {
            return Err(format!("{damaged} damaged records"));
        }
        let found = Self::objects(&store)?;
        let allowed = &self.states[at.done..=at.begun];
        for number in 0..KEYS {
            let held = found.get(&number);
            // A call may evict the object that it replaces before it stores the new one.
            let is_replaced = self.touched[at.done..at.begun].iter().any(|keys| keys.contains(&number));
            if !(allowed.iter().any(|s| s.get(&number) == held) || held.is_none() && is_replaced) {
                return Err(format!("object {number} is {:?}, which it was not at {at:?}", held.map(Vec::len)));
            }
        }
        let wrong = store.verify().map_err(text)?;
        if !wrong.is_empty() {
            return Err(format!("damaged objects: {wrong:?}"));
        }
        Ok(if at.begun == at.done {
            "acknowledged"
        } else if found == allowed[0] {
            "before"
        } else if Some(&found) == allowed.last() {
            "after"
        } else {
            "between"
        })
    }

    fn follow_up(&self, _v: &Volume, random: &mut Random) -> Result<Box<dyn Scenario>, String> {
        Ok(Box::new(Self::new(random)))
    }
}
