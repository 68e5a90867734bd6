//! Flipped bits, arbitrary records, and devices that fail.

use super::*;
use crate::storage::kv::extent::Run;
use crate::storage::kv::record::{RECORD, Record};
use proptest::prelude::*;

/// Byte of the volume at which the first extent of an object begins.
fn data_at(store: &KvStore, n: u32) -> u64 {
    let pins = store.pin(&[key(n)]).unwrap();
    pins.objects()[0].as_ref().unwrap().extents[0].block << store.volume().block_shift()
}

/// Changes bytes of the volume by `change`.
fn change(v: &Volume, at: u64, bytes: usize, change: impl FnOnce(&mut [u8])) {
    let mut held = vec![0; bytes];
    v.read_bytes(at, &mut held).unwrap();
    change(&mut held);
    v.write_bytes(at, &held).unwrap();
}

#[test]
fn a_flipped_bit_of_data_is_an_error_that_can_be_mended() {
    let v = volume(&["soft:mem:1M"]);
    let store = create(&v, 20, 32);
    (0..3).for_each(|n| write(&store, n, 10_000).unwrap());
    let at = data_at(&store, 1);
    for bit in [0, 777, 79_999] {
        change(&v, at + bit / 8, 1, |b| b[0] ^= 1 << (bit % 8));
        let e = kv(read(&store, &key(1)).unwrap_err());
        assert!(matches!(&e, KvError::Data { bytes: 10_000, offset, .. } if *offset == at), "{e}");
        assert!(e.to_string().contains(&key(1).to_string()) && e.to_string().contains("delete the object"), "{e}");
        assert_eq!(store.verify().unwrap(), [key(1)]);
        change(&v, at + bit / 8, 1, |b| b[0] ^= 1 << (bit % 8));
    }
    assert!(store.verify().unwrap().is_empty());
    // Behind the object's last byte nothing counts.
    change(&v, at + 10_001, 1, |b| b[0] ^= 1);
    assert_eq!(read(&store, &key(1)).unwrap(), data(1, 10_000));
    change(&v, at, 1, |b| b[0] ^= 1);
    store.delete(&[key(1)]).unwrap();
    write(&store, 1, 10_000).unwrap();
    assert_eq!(read(&store, &key(1)).unwrap(), data(1, 10_000));
}

#[test]
fn damaged_records_are_dropped_and_counted() {
    let v = volume(&["soft:mem:1M"]);
    let store = create(&v, 40, 32);
    (0..8).for_each(|n| write(&store, n, 4096).unwrap());
    let at = |store: &KvStore, n: u32| {
        let slot = store.0.state.lock().objects.find(&key(n)).unwrap();
        store.0.medium.record_at(slot.into())
    };
    let (third, fifth) = (at(&store, 3), at(&store, 5));
    drop(store);
    change(&v, third + 40, 1, |b| b[0] ^= 4);
    change(&v, fifth, RECORD, |b| b.fill(0xff));
    for _ in 0..2 {
        let store = KvStore::open(&v, "s").unwrap();
        assert_eq!((there(&store), store.stats().damaged_records), (vec![0, 1, 2, 4, 6, 7], 2));
        check_space(&store);
    }
    // The first change erases them.
    let store = KvStore::open(&v, "s").unwrap();
    write(&store, 9, 30 * 4096).unwrap();
    drop(store);
    let store = KvStore::open(&v, "s").unwrap();
    assert_eq!((there(&store), store.stats().damaged_records), (vec![0, 1, 2, 4, 6, 7, 9], 0));
    assert!(store.verify().unwrap().is_empty());
}

#[test]
fn of_records_that_contradict_each_other_the_latest_counts() {
    let v = volume(&["soft:mem:1M"]);
    let store = create(&v, 40, 32);
    let object = |n: u32, sequence: u64, start: u64, units: u64| {
        let runs = [Run::new(start, units)].into_iter().collect();
        Record { key: key(n), sequence, checksum: 1, bytes: units as u32 * 4096, runs }
    };
    let records = [
        object(0, 5, 0, 4),
        object(1, 9, 3, 4),
        object(2, 7, 6, 4),
        object(3, 6, 8, 4),
        // One key twice, and once more with the same number.
        object(4, 3, 20, 2),
        object(4, 4, 22, 2),
        object(4, 4, 24, 2),
    ];
    let place = |i: usize| store.0.medium.record_at(i as u64);
    let all: Vec<(u64, [u8; RECORD])> = records.iter().enumerate().map(|(i, r)| (place(i), r.to_bytes())).collect();
    drop(store);
    all.iter().for_each(|(at, bytes)| v.write_bytes(*at, bytes).unwrap());
    let store = KvStore::open(&v, "s").unwrap();
    // 1 beats 0 and 2, so 3 is alone.
    assert_eq!((there(&store), store.stats().damaged_records), (vec![1, 3, 4], 4));
    assert_eq!(store.0.state.lock().sequence, 9);
    check_space(&store);
}

#[test]
fn records_that_cannot_be_read_are_dropped() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let spec = format!("soft:{}", file.path().display());
    let v = volume(&[&spec]);
    let store = create(&v, 40, 32);
    (0..8).for_each(|n| write(&store, n, 4096).unwrap());
    let (lba, data_lba) = (store.0.medium.record_at(4) >> 9, data_at(&store, 2) >> 9);
    drop((store, v));
    let v = volume(&[&format!("{spec},media-error=read:{lba}-{lba}")]);
    let store = KvStore::open(&v, "s").unwrap();
    assert_eq!((there(&store), store.stats().damaged_records), (vec![0, 1, 2, 3], 4));
    drop((store, v));
    let v = volume(&[&format!("{spec},media-error=read:{data_lba}-{data_lba}")]);
    let store = KvStore::open(&v, "s").unwrap();
    assert!(matches!(read(&store, &key(2)), Err(StorageError::Nvme(_))));
    assert_eq!(store.verify().unwrap(), [key(2)]);
}

#[test]
fn failed_writes_and_flushes_leave_the_old_objects() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let spec = format!("soft:{}", file.path().display());
    for faults in ["fail-flush=every:1", "media-error=write:128-2047"] {
        let v = volume(&[&spec]);
        let store = create(&v, 8, 32);
        (0..4).for_each(|n| write(&store, n, 8000).unwrap());
        drop((store, v));
        let v = volume(&[&format!("{spec},{faults}")]);
        let store = KvStore::open(&v, "s").unwrap();
        // No space is free, so 0 is evicted; its record cannot be erased.
        for _ in 0..3 {
            assert!(matches!(write(&store, 9, 8000), Err(StorageError::Nvme(_))), "{faults}");
            assert_eq!(there(&store), [1, 2, 3]);
        }
        assert!(matches!(store.delete(&[key(1)]), Err(StorageError::Nvme(_))));
        check_space(&store);
        drop((store, v));
        let v = volume(&[&spec]);
        let store = KvStore::open(&v, "s").unwrap();
        assert!(store.verify().unwrap().is_empty() && [2, 3].iter().all(|n| there(&store).contains(n)));
        drop(store);
        KvStore::remove(&v, "s").unwrap();
    }
}

#[test]
fn a_failed_commit_keeps_the_replaced_object() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let spec = format!("soft:{}", file.path().display());
    let v = volume(&[&spec]);
    let store = create(&v, 20, 32);
    (0..2).for_each(|n| write(&store, n, 8000).unwrap());
    drop((store, v));
    // Of a replacement, the first flush is of the data, and the second of the record.
    let v = volume(&[&format!("{spec},fail-flush=every:2")]);
    let store = KvStore::open(&v, "s").unwrap();
    assert!(matches!(store.write(&[(key(0), &data(7, 9000)), (key(5), &[1])]), Err(StorageError::Nvme(_))));
    assert_eq!((there(&store), read(&store, &key(0)).unwrap()), (vec![0, 1], data(0, 8000)));
    assert_eq!(store.stats().pinned, 0);
    check_space(&store);
    // The record that may be there is written again first.
    assert!(write(&store, 6, 10).is_err());
    drop((store, v));
    let store = KvStore::open(&volume(&[&spec]), "s").unwrap();
    assert_eq!((there(&store), read(&store, &key(0)).unwrap()), (vec![0, 1], data(0, 8000)));
}

proptest! {
    #[test]
    fn arbitrary_records_are_opened_and_used(
        blocks in prop::collection::vec((0usize..32, prop::collection::vec(any::<u8>(), RECORD)), 0..6),
        changes in prop::collection::vec((0usize..32 * RECORD, any::<u8>(), any::<bool>()), 0..40),
    ) {
        let v = volume(&["soft:mem:1M"]);
        let store = create(&v, 40, 32);
        (0..20).for_each(|n| write(&store, n, 6000).unwrap());
        let first = store.0.medium.record_at(0);
        drop(store);
        change(&v, first, 32 * RECORD, |records| {
            for (slot, bytes) in &blocks {
                records[slot * RECORD..][..RECORD].copy_from_slice(bytes);
            }
            for (at, value, mends_crc) in &changes {
                records[*at] = *value;
                if *mends_crc {
                    let record = &mut records[at / RECORD * RECORD..][..RECORD];
                    let crc = crc32c::crc32c(&record[..124]);
                    record[124..].copy_from_slice(&crc.to_le_bytes());
                }
            }
        });
        let store = KvStore::open(&v, "s").unwrap();
        check_space(&store);
        let left = store.stats().objects;
        (60..64).for_each(|n| write(&store, n, 30_000).unwrap());
        for n in 60..64 {
            prop_assert!(read(&store, &key(n)).unwrap() == data(n, 30_000));
        }
        store.verify().unwrap();
        check_space(&store);
        drop(store);
        let store = KvStore::open(&v, "s").unwrap();
        prop_assert!(store.stats().damaged_records == 0 && store.stats().objects <= left + 4);
    }
}
