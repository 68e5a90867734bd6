//! Random operations against a dictionary with an exact order of uses.

use super::*;
use crate::storage::KvPins;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Stores objects: number and units of each, at most one for each number.
    Write(Vec<(u32, usize)>),
    /// Reserves space, and gives it back.
    Abandon(u32, usize),
    Read(u32),
    Lookup(Vec<u32>),
    Touch(Vec<u32>),
    Delete(Vec<u32>),
    Pin(Vec<u32>),
    Unpin,
    Reopen,
}

fn steps(uniform: bool) -> impl Strategy<Value = Vec<Step>> {
    let number = 0u32..24;
    let numbers = prop::collection::vec(number.clone(), 1..4);
    let units = if uniform { 1usize..2 } else { 1..7 };
    let objects = prop::collection::btree_map(number.clone(), units.clone(), 1..4);
    let step = prop_oneof![
        8 => objects.prop_map(|m| Step::Write(m.into_iter().collect())),
        1 => (number.clone(), units).prop_map(|(n, u)| Step::Abandon(n, u)),
        3 => number.prop_map(Step::Read),
        2 => numbers.clone().prop_map(Step::Lookup),
        2 => numbers.clone().prop_map(Step::Touch),
        1 => numbers.clone().prop_map(Step::Delete),
        2 => numbers.prop_map(Step::Pin),
        2 => Just(Step::Unpin),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

const UNITS: usize = 16;

#[derive(Clone, Debug)]
struct Object {
    seed: u32,
    units: usize,
    /// Number of the store that made it.
    stored: u64,
    pins: usize,
}

/// A dictionary whose keys are in the order of their uses, the last one at the end. Pinned ones have no place there.
#[derive(Default)]
struct Model {
    objects: std::collections::BTreeMap<u32, Object>,
    order: Vec<u32>,
    stored: u64,
    /// Units of deleted and replaced objects that are pinned, by pin.
    gone: Vec<(u64, usize, usize)>,
}

impl Model {
    fn touch(&mut self, n: u32) {
        if self.objects.get(&n).is_some_and(|o| o.pins == 0) {
            self.order.retain(|m| *m != n);
            self.order.push(n);
        }
    }

    fn remove(&mut self, n: u32) {
        self.order.retain(|m| *m != n);
        if let Some(o) = self.objects.remove(&n).filter(|o| o.pins > 0) {
            self.gone.push((o.stored, o.units, o.pins));
        }
    }

    fn unpin(&mut self, n: u32, stored: u64) {
        if let Some(o) = self.objects.get_mut(&n).filter(|o| o.stored == stored) {
            o.pins -= 1;
            self.touch(n);
        } else {
            let gone = self.gone.iter_mut().find(|(s, ..)| *s == stored).unwrap();
            gone.2 -= 1;
            self.gone.retain(|(.., pins)| *pins > 0);
        }
    }

    fn kept(&self) -> usize {
        let pinned = self.objects.values().filter(|o| o.pins > 0).map(|o| o.units).sum::<usize>();
        pinned + self.gone.iter().map(|(_, units, _)| units).sum::<usize>()
    }

    fn free(&self) -> usize {
        let used: usize = self.objects.values().map(|o| o.units).sum();
        UNITS - used - self.gone.iter().map(|(_, units, _)| units).sum::<usize>()
    }

    /// Follows a reservation of so many units: what was evicted is the beginning of the order, and no more than needed.
    fn evict(&mut self, evicted: &[KvKey], units: usize, uniform: bool) {
        let expected: Vec<KvKey> = self.order.iter().take(evicted.len()).map(|n| key(*n)).collect();
        assert_eq!(evicted, expected, "order {:?}", self.order);
        let needed = units.saturating_sub(self.free());
        for _ in 0..evicted.len() {
            let oldest = self.order[0];
            self.remove(oldest);
        }
        assert!(self.free() >= units && (!uniform || evicted.len() == needed), "{} evicted", evicted.len());
    }
}

struct Run {
    volume: Volume,
    store: Option<KvStore>,
    model: Model,
    pins: Vec<(KvPins, Vec<(u32, u64)>)>,
    uniform: bool,
    seed: u32,
}

impl Run {
    fn reserve(&mut self, objects: &[(u32, usize)]) -> Option<crate::storage::KvReservation> {
        let sizes: Vec<(KvKey, u64)> = objects.iter().map(|(n, u)| (key(*n), (*u * 4096 - 9) as u64)).collect();
        let units = objects.iter().map(|(_, u)| u).sum();
        let store = self.store.as_ref().unwrap();
        store.take_evictions();
        match store.reserve(&sizes) {
            Ok(space) => {
                self.model.evict(space.evicted(), units, self.uniform);
                assert_eq!(store.take_evictions(), space.evicted());
                Some(space)
            }
            Err(e) => {
                let full = kv(e);
                assert!(matches!(full, KvError::Full { .. }), "{full}");
                let fits = self.model.kept() + units <= UNITS;
                assert!(!fits || !self.uniform, "{full}");
                // Pins left no eight parts, which was found when everything else was evicted.
                for key in store.take_evictions() {
                    let oldest = self.model.order[0];
                    assert_eq!(key, super::key(oldest));
                    self.model.remove(oldest);
                }
                None
            }
        }
    }

    fn write(&mut self, objects: &[(u32, usize)]) {
        let Some(space) = self.reserve(objects) else { return };
        let mut sums = Vec::new();
        for (i, (_, units)) in objects.iter().enumerate() {
            let data = data(self.seed + i as u32, units * 4096 - 9);
            space.write(i, &data).unwrap();
            sums.push(crate::storage::kv_checksum(&data));
        }
        space.commit(&sums).unwrap();
        for (i, (n, units)) in objects.iter().enumerate().rev() {
            self.model.remove(*n);
            self.model.stored += 1;
            let (stored, seed) = (self.model.stored, self.seed + i as u32);
            self.model.objects.insert(*n, Object { seed, units: *units, stored, pins: 0 });
            self.model.touch(*n);
        }
        self.seed += objects.len() as u32;
    }

    fn step(&mut self, step: &Step) {
        let all = |numbers: &[u32]| numbers.iter().map(|n| key(*n)).collect::<Vec<_>>();
        if let Step::Write(objects) = step {
            return self.write(objects);
        }
        if let Step::Abandon(n, units) = step {
            return drop(self.reserve(&[(*n, *units)]));
        }
        let store = self.store.as_ref().unwrap();
        match step {
            Step::Write(_) | Step::Abandon(..) => {}
            Step::Read(n) => match self.model.objects.get(n).cloned() {
                Some(o) => {
                    assert!(read(store, &key(*n)).unwrap() == data(o.seed, o.units * 4096 - 9));
                    self.model.touch(*n);
                }
                None => assert!(matches!(kv(read(store, &key(*n)).unwrap_err()), KvError::Absent { .. })),
            },
            Step::Lookup(numbers) | Step::Touch(numbers) => {
                if matches!(step, Step::Lookup(_)) {
                    let bytes = |n: &u32| self.model.objects.get(n).map(|o| o.units as u64 * 4096 - 9);
                    assert_eq!(store.lookup(&all(numbers)).unwrap(), numbers.iter().map(bytes).collect::<Vec<_>>());
                } else {
                    store.touch(&all(numbers)).unwrap();
                }
                numbers.iter().rev().for_each(|n| self.model.touch(*n));
            }
            Step::Delete(numbers) => {
                let deleted = store.delete(&all(numbers)).unwrap();
                let before = self.model.objects.len();
                numbers.iter().for_each(|n| self.model.remove(*n));
                assert_eq!(deleted, (before - self.model.objects.len()) as u64);
            }
            Step::Pin(numbers) => {
                let pins = store.pin(&all(numbers)).unwrap();
                let mut pinned = Vec::new();
                for (n, object) in numbers.iter().zip(pins.objects()) {
                    assert_eq!(object.is_some(), self.model.objects.contains_key(n));
                    if let Some(o) = self.model.objects.get_mut(n) {
                        self.model.order.retain(|m| m != n);
                        o.pins += 1;
                        pinned.push((*n, o.stored));
                    }
                }
                self.pins.push((pins, pinned));
            }
            Step::Unpin => {
                if !self.pins.is_empty() {
                    let (pins, pinned) = self.pins.remove(0);
                    drop(pins);
                    pinned.iter().rev().for_each(|(n, stored)| self.model.unpin(*n, *stored));
                }
            }
            Step::Reopen => {
                self.pins.clear();
                self.store = None;
                self.store = Some(KvStore::open(&self.volume, "s").unwrap());
                self.model.gone.clear();
                self.model.objects.values_mut().for_each(|o| o.pins = 0);
                let mut order: Vec<u32> = self.model.objects.keys().copied().collect();
                order.sort_by_key(|n| self.model.objects[n].stored);
                self.model.order = order;
            }
        }
    }
}

fn run(steps: &[Step], uniform: bool, specs: &[&str]) {
    let volume = volume(specs);
    let store = Some(create(&volume, UNITS as u64, 64));
    let mut run = Run { volume, store, model: Model::default(), pins: Vec::new(), uniform, seed: 0 };
    for step in steps {
        run.step(step);
        let store = run.store.as_ref().unwrap();
        check_space(store);
        assert_eq!(there(store), run.model.objects.keys().copied().collect::<Vec<_>>(), "{step:?}");
        assert_eq!(store.stats().free_bytes, run.model.free() as u64 * 4096, "{step:?}");
    }
    run.step(&Step::Reopen);
    let objects: Vec<u32> = run.model.objects.keys().copied().collect();
    objects.iter().for_each(|n| run.step(&Step::Read(*n)));
    assert_eq!(there(run.store.as_ref().unwrap()), objects);
}

proptest! {
    #[test]
    fn objects_of_one_size_are_those_of_the_model(steps in steps(true)) {
        run(&steps, true, &["soft:mem:1M"]);
    }

    #[test]
    fn objects_of_all_sizes_are_those_of_the_model(steps in steps(false), large_blocks: bool) {
        run(&steps, false, if large_blocks { &["soft:mem:1M,block=4096"] } else { &["soft:mem:512k", "soft:mem:512k"] });
    }
}
