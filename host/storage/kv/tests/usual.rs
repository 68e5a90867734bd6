//! Storing, finding, evicting, pinning, and the errors of each call.

use super::*;
use crate::storage::{ArrayState, Plan, Table, kv_checksum};

#[test]
fn objects_come_back_over_all_kinds_of_volumes() {
    for specs in
        [&["soft:mem:4M"][..], &["soft:mem:4M,block=4096"], &["soft:mem:2M"; 3], &["soft:mem:2M,block=4096"; 2]]
    {
        let v = volume(specs);
        let store = create(&v, 300, 40);
        let sizes = [1, 511, 512, 513, 4095, 4096, 4097, 100_000, 300_001];
        let objects: Vec<(KvKey, Vec<u8>)> =
            sizes.iter().enumerate().map(|(i, n)| (key(i as u32), data(i as u32, *n))).collect();
        store.write(&objects.iter().map(|(k, d)| (*k, d.as_slice())).collect::<Vec<_>>()).unwrap();
        let found = store.lookup(&keys(0..10)).unwrap();
        assert_eq!(found[..9], sizes.map(|n| Some(n as u64)));
        assert_eq!((found[9], store.prefix(&keys(0..10)).unwrap()), (None, 9));
        for (key, data) in &objects {
            assert!(read(&store, key).unwrap() == *data, "{specs:?}");
        }
        let stats = store.stats();
        assert_eq!((stats.objects, stats.bytes), (9, sizes.iter().sum::<usize>() as u64));
        assert_eq!((stats.hits, stats.misses, stats.evictions, stats.damaged_records), (18, 1, 0, 0));
        assert!(store.verify().unwrap().is_empty());
        drop(store);
        let store = KvStore::open(&v, "s").unwrap();
        assert_eq!((there(&store).len(), store.stats().bytes), (9, stats.bytes));
        assert_eq!(store.delete(&keys(5..20)).unwrap(), 4);
        assert_eq!(there(&store), [0, 1, 2, 3, 4]);
        check_space(&store);
    }
}

#[test]
fn a_replaced_object_stays_until_the_new_one_is_committed() {
    let v = volume(&["soft:mem:1M"]);
    let store = create(&v, 20, 32);
    write(&store, 1, 9000).unwrap();
    let space = store.reserve(&[(key(1), 20_000)]).unwrap();
    assert_eq!(read(&store, &key(1)).unwrap(), data(1, 9000));
    drop(space);
    assert_eq!(read(&store, &key(1)).unwrap(), data(1, 9000));
    store.write(&[(key(1), &data(2, 20_000))]).unwrap();
    assert_eq!(read(&store, &key(1)).unwrap(), data(2, 20_000));
    assert_eq!((store.stats().objects, store.stats().free_bytes), (1, 15 * 4096));
    drop(store);
    assert_eq!(read(&KvStore::open(&v, "s").unwrap(), &key(1)).unwrap(), data(2, 20_000));
}

#[test]
fn the_least_recently_used_objects_are_evicted() {
    let v = volume(&["soft:mem:1M"]);
    let store = create(&v, 10, 32);
    (0..10).for_each(|n| write(&store, n, 4096).unwrap());
    store.lookup(&[key(0), key(1)]).unwrap();
    store.touch(&[key(2)]).unwrap();
    store.prefix(&[key(3)]).unwrap();
    read(&store, &key(4)).unwrap();
    let space = store.reserve(&[(key(20), 5 * 4096)]).unwrap();
    assert_eq!(space.evicted(), [3, 5, 6, 7, 8].map(key));
    drop(space);
    // Space that was given back is free; nothing more is evicted for it.
    write(&store, 21, 5 * 4096).unwrap();
    assert_eq!(there(&store), [0, 1, 2, 4, 9, 21]);
    // The first key of a call is used last: of 0 and 1, 1 goes first.
    write(&store, 22, 2 * 4096).unwrap();
    assert_eq!(there(&store), [0, 2, 4, 21, 22]);
    assert_eq!(store.take_evictions(), [3, 5, 6, 7, 8, 9, 1].map(key));
    assert!(store.take_evictions().is_empty());
    // After opening again, the order is that of storing.
    drop(store);
    let store = KvStore::open(&v, "s").unwrap();
    store.touch(&[key(0)]).unwrap();
    write(&store, 23, 2 * 4096).unwrap();
    assert_eq!(there(&store), [0, 21, 22, 23]);
    check_space(&store);
}

#[test]
fn pinned_objects_stay_and_their_space_too() {
    let v = volume(&["soft:mem:1M"]);
    let store = create(&v, 4, 32);
    (0..4).for_each(|n| write(&store, n, 4096).unwrap());
    let pins = store.pin(&[key(0), key(1), key(9)]).unwrap();
    let object = pins.objects()[0].clone().unwrap();
    assert_eq!((object.bytes, object.checksum), (4096, kv_checksum(&data(0, 4096))));
    assert!(pins.objects()[2].is_none());
    let at_pin = || {
        let mut out = vec![0; 4096];
        v.read_blocks(object.extents[0].block, &mut out).unwrap();
        out
    };
    write(&store, 5, 2 * 4096).unwrap();
    assert_eq!(there(&store), [0, 1, 5]);
    let e = kv(write(&store, 6, 3 * 4096).unwrap_err());
    assert!(matches!(e, KvError::Full { kept: 2, kept_bytes: 8192, objects: 1, bytes: 12_288, .. }), "{e}");
    assert!(e.to_string().contains("drop pins or reservations"), "{e}");
    assert_eq!(there(&store), [0, 1, 5], "nothing is evicted for what cannot be");
    // Deleted and replaced, a pinned object keeps its space, also beside a second pin.
    let again = store.pin(&[key(0)]).unwrap();
    store.delete(&[key(0)]).unwrap();
    store.write(&[(key(1), &data(11, 4096))]).unwrap();
    write(&store, 7, 4096).unwrap();
    assert_eq!((there(&store), at_pin()), (vec![1, 7], data(0, 4096)));
    assert_eq!(store.stats().pinned, 2);
    drop(pins);
    assert_eq!((store.stats().pinned, at_pin()), (1, data(0, 4096)));
    drop(again);
    assert_eq!((store.stats().pinned, store.stats().free_bytes), (0, 2 * 4096));
    write(&store, 8, 2 * 4096).unwrap();
    assert_eq!(there(&store), [1, 7, 8]);
    check_space(&store);
}

#[test]
fn reservations_keep_their_space() {
    let v = volume(&["soft:mem:1M"]);
    let store = create(&v, 4, 32);
    write(&store, 0, 4096).unwrap();
    let first = store.reserve(&[(key(1), 4096), (key(2), 1)]).unwrap();
    assert!(there(&store) == [0] && first.evicted().is_empty());
    let e = kv(store.reserve(&[(key(3), 3 * 4096)]).unwrap_err());
    assert!(matches!(e, KvError::Full { kept: 2, .. }), "{e}");
    let e = kv(store.reserve(&[(key(3), 1)]).unwrap().commit(&[]).unwrap_err());
    assert!(e.to_string().contains("0 checksums for 1 reserved"), "{e}");
    for (i, extents) in first.extents().iter().enumerate() {
        v.write_blocks(extents[0].block, &data(i as u32 + 1, 4096)).unwrap();
    }
    first.commit(&[kv_checksum(&data(1, 4096)), kv_checksum(&data(2, 4096)[..1])]).unwrap();
    assert_eq!(read(&store, &key(1)).unwrap(), data(1, 4096));
    assert_eq!(read(&store, &key(2)).unwrap(), data(2, 4096)[..1]);
    check_space(&store);
}

#[test]
fn mixed_sizes_are_stored_in_parts() {
    let v = volume(&["soft:mem:1M"]);
    let store = create(&v, 64, 96);
    (0..64).for_each(|n| write(&store, n, 4096).unwrap());
    // Every other unit is free, and an object has at most eight parts.
    store.delete(&(0..64).step_by(2).map(key).collect::<Vec<_>>()).unwrap();
    write(&store, 70, 8 * 4096 - 5).unwrap();
    let pins = store.pin(&[key(70)]).unwrap();
    assert_eq!(pins.objects()[0].as_ref().unwrap().extents.len(), 8);
    assert_eq!((store.stats().evictions, read(&store, &key(70)).unwrap() == data(70, 8 * 4096 - 5)), (0, true));
    drop(pins);
    // 24 units are free in parts of one: neighbours are evicted until eight parts have nine.
    write(&store, 71, 9 * 4096).unwrap();
    assert_eq!(store.stats().evictions, 1);
    drop(store);
    let store = KvStore::open(&v, "s").unwrap();
    for n in there(&store) {
        let bytes = [4096, 8 * 4096 - 5, 9 * 4096][(n.max(69) - 69) as usize];
        assert!(read(&store, &key(n)).unwrap() == data(n, bytes));
    }
    // Pins of every other unit leave no place for an object that would have space.
    store.delete(&keys(0..100)).unwrap();
    (0..64).for_each(|n| write(&store, n, 4096).unwrap());
    let pins = store.pin(&(0..64).step_by(2).map(key).collect::<Vec<_>>()).unwrap();
    assert!(matches!(kv(write(&store, 80, 9 * 4096).unwrap_err()), KvError::Full { kept: 32, .. }));
    drop(pins);
    write(&store, 80, 9 * 4096).unwrap();
    check_space(&store);
}

#[test]
fn a_store_without_free_records_evicts() {
    let v = volume(&["soft:mem:1M"]);
    let store = create(&v, 100, 1);
    assert_eq!(store.options().objects, 32);
    for n in 0..32 {
        write(&store, n, 10).unwrap();
    }
    store.write(&[(key(40), &[1]), (key(41), &[2])]).unwrap();
    assert_eq!(store.take_evictions(), [0, 1].map(key));
    let all = store.pin(&there(&store).into_iter().map(key).collect::<Vec<_>>()).unwrap();
    let e = kv(write(&store, 50, 1).unwrap_err());
    assert!(e.to_string().contains("in 32 objects, of which pins and reservations keep"), "{e}");
    drop(all);
    write(&store, 50, 1).unwrap();
}

#[test]
fn what_cannot_be_is_refused_with_the_next_step() {
    let v = volume(&["soft:mem:1M"]);
    let options = KvOptions { key_bytes: 32, bytes: 40_960, objects: 10 };
    assert!(KvStore::list(&v).unwrap().is_empty());
    let text = |e: StorageError| e.to_string();
    assert!(text(KvStore::open(&v, "s").unwrap_err()).contains("none is stored there"));
    assert!(text(KvStore::create(&v, "a/b", &options).unwrap_err()).contains("1 to 40 letters"));
    assert!(text(KvStore::create(&v, "s", &KvOptions { bytes: 1 << 30, ..options }).unwrap_err()).contains("1.0 GiB"));
    let store = KvStore::create(&v, "s", &options).unwrap();
    assert!(text(KvStore::create(&v, "s", &options).unwrap_err()).contains("already; nothing was written"));
    assert!(text(KvStore::open(&v, "s").unwrap_err()).contains("use a clone of that handle"));
    assert!(text(KvStore::remove(&v, "s").unwrap_err()).contains("drop its clones"));
    assert!(store.lookup(&[key(1)]).unwrap_err().to_string().contains("keys of 32 bytes, not 16"));
    let long = KvKey::from([3; 32]);
    assert!(text(store.reserve(&[(long, 0)]).unwrap_err()).contains("1 to 40960"));
    assert!(text(store.reserve(&[(long, 40_961)]).unwrap_err()).contains("divide the object"));
    assert!(text(store.reserve(&[(long, 1), (long, 1)]).unwrap_err()).contains("twice in one call"));
    assert!(matches!(kv(store.read(&long, &mut []).unwrap_err()), KvError::Absent { .. }));
    store.write(&[(long, &[1; 100])]).unwrap();
    assert!(matches!(kv(store.read(&long, &mut [0; 99]).unwrap_err()), KvError::Short { bytes: 100, given: 99, .. }));
    let held = store.pin(&[long]).unwrap();
    drop(store);
    assert!(matches!(kv(KvStore::open(&v, "s").unwrap_err()), KvError::Open { .. }), "a pin is part of the handle");
    drop(held);
    KvStore::open(&v, "s").unwrap();
    KvStore::remove(&v, "s").unwrap();
    assert!(matches!(kv(KvStore::remove(&v, "s").unwrap_err()), KvError::Unknown { .. }));
}

#[test]
fn a_store_lives_beside_other_arrays() {
    let v = Volume::on(&testing::cpu(), [Drive::open("soft:mem:4M").unwrap()]).page_checksums(true).build().unwrap();
    Table::from_rows(&v, "rows", &vec![7u32; 16 * 5000], 16).unwrap();
    let store = create(&v, 100, 32);
    write(&store, 1, 50_000).unwrap();
    let listed = KvStore::list(&v).unwrap();
    assert_eq!((listed.len(), &*listed[0].name, listed[0].bytes), (1, "s", 128 + 32 * 128 + 100 * 4096));
    assert_eq!(listed[0].options.as_ref().unwrap(), &store.options());
    // Other arrays come and go, and stay proven, while the store is written.
    let mut writer = v.add(Plan::new().array::<u8>("other", 10_000), "it").unwrap();
    writer.append("other", &[3u8; 10_000]).unwrap();
    write(&store, 2, 50_000).unwrap();
    writer.finish().unwrap();
    write(&store, 3, 50_000).unwrap();
    let found = v.verify(false).unwrap();
    assert!(found.is_intact() && found.damaged.is_empty(), "{found:?}");
    for array in &found.arrays {
        let own = array.name == "s:objects" || array.name == "s:slab";
        assert_eq!(array.state, if own { ArrayState::Changed } else { ArrayState::Intact }, "{}", array.name);
    }
    v.accept_changes().unwrap();
    write(&store, 4, 50_000).unwrap();
    assert!(v.verify(false).unwrap().is_intact() && store.verify().unwrap().is_empty());
    // A store that was removed below its handle writes nothing any more.
    v.remove(&["s:kv", "s:objects", "s:slab"]).unwrap();
    for e in [write(&store, 5, 10).unwrap_err(), store.delete(&[key(1)]).unwrap_err()] {
        assert!(matches!(kv(e), KvError::Removed { .. }));
    }
}
