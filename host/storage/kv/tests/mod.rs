//! Tests of stores as programs see them, and of what is on the medium.

mod crash;
mod damage;
mod mirrors;
mod model;
mod segments;
mod threads;
mod usual;

use super::{KvKey, KvOptions, KvStore};
use crate::engine::testing;
use crate::storage::{Drive, KvError, StorageError, Volume};

/// Opens a volume over these devices, striped if there are several.
fn volume(specs: &[&str]) -> Volume {
    Volume::on(&testing::cpu(), specs.iter().map(|s| Drive::open(s).unwrap())).chunk(8192).build().unwrap()
}

fn key(n: u32) -> KvKey {
    let mut bytes = [0xab; 16];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    KvKey::from(bytes)
}

fn keys(numbers: std::ops::Range<u32>) -> Vec<KvKey> {
    numbers.map(key).collect()
}

/// Returns data that no other seed gives.
fn data(seed: u32, bytes: usize) -> Vec<u8> {
    (0..bytes as u32)
        .map(|i| (i.wrapping_add(seed.wrapping_mul(77_777)).wrapping_mul(0x9e37_79b9) >> 13) as u8)
        .collect()
}

/// Creates a store for so many allocation units and objects.
fn create(volume: &Volume, units: u64, objects: u64) -> KvStore {
    KvStore::create(volume, "s", &KvOptions { key_bytes: 16, bytes: units * 4096, objects }).unwrap()
}

fn write(store: &KvStore, n: u32, bytes: usize) -> Result<(), StorageError> {
    store.write(&[(key(n), &data(n, bytes))])
}

/// Returns an object's data.
fn read(store: &KvStore, key: &KvKey) -> Result<Vec<u8>, StorageError> {
    let mut out = vec![0; 1 << 20];
    let bytes = store.read(key, &mut out)?;
    out.truncate(bytes);
    Ok(out)
}

/// Returns the numbers of those of the first 100 keys that are there. Counts as no use.
fn there(store: &KvStore) -> Vec<u32> {
    (0..100).filter(|n| store.prefix(&[key(*n)]).unwrap() == 1).collect()
}

/// Checks that the units of all objects, of free space and of what is kept are those of the slab.
fn check_space(store: &KvStore) {
    let state = store.0.state.lock();
    let mut runs: Vec<_> = (0..state.objects.slots() as u32)
        .filter(|slot| state.objects.entry(*slot).sequence != 0)
        .flat_map(|slot| state.objects.runs(slot).as_slice().to_vec())
        .collect();
    runs.sort();
    assert!(runs.windows(2).all(|w| w[0].end() <= w[1].start()), "objects overlap");
    let used: u64 = runs.iter().map(|r| r.units()).sum();
    if state.kept() == 0 {
        assert_eq!(used + state.free_units(), store.0.medium.shape.limits.units);
        assert_eq!(state.kept_units, 0);
    }
}

fn kv(e: StorageError) -> KvError {
    match e {
        StorageError::Kv(e) => e,
        e => panic!("{e}"),
    }
}
