//! Stores on replicated volumes: copies that fail, that are damaged, and that disagree.

use super::*;
use crate::storage::kv::record::RECORD;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

struct Copies {
    _folder: tempfile::TempDir,
    paths: [PathBuf; 2],
}

impl Copies {
    fn new() -> Self {
        let folder = crate::pci::fixture::folder_in_memory();
        let paths = ["a.img", "b.img"].map(|n| folder.path().join(n));
        paths.iter().for_each(|p| std::fs::File::create(p).unwrap().set_len(1 << 20).unwrap());
        Self { _folder: folder, paths }
    }

    fn open(&self, faults: [&str; 2]) -> Volume {
        let spec =
            |(p, fault): (&PathBuf, &str)| Drive::open(&format!("soft:{},threads=1{fault}", p.display())).unwrap();
        let drives = self.paths.iter().zip(faults).map(spec);
        Volume::on(&testing::cpu(), drives).replicated(true).chunk(8192).build().unwrap()
    }

    fn flip(&self, copy: usize, at: u64) {
        let file = std::fs::File::options().read(true).write(true).open(&self.paths[copy]).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

#[test]
fn a_copy_that_fails_is_left_out_and_nothing_is_lost() {
    for command in [3, 40, 47, 52, 61] {
        let copies = Copies::new();
        let v = copies.open(["", ""]);
        drop(create(&v, 20, 32));
        drop(v);
        let v = copies.open(["", &format!(",disappear=after:{command}")]);
        let store = KvStore::open(&v, "s").unwrap();
        for n in 0..20 {
            write(&store, n % 9, 9000 + n as usize).unwrap();
            if n % 4 == 3 {
                store.delete(&[key(n % 9)]).unwrap();
            }
        }
        let found: Vec<(u32, Vec<u8>)> = there(&store).iter().map(|n| (*n, read(&store, &key(*n)).unwrap())).collect();
        assert!(!found.is_empty() && v.redundancy().unwrap().lost.len() == 1);
        drop((store, v));
        // The copy is back, with old content.
        let v = copies.open(["", ""]);
        let store = KvStore::open(&v, "s").unwrap();
        assert_eq!(found.iter().map(|(n, _)| *n).collect::<Vec<_>>(), there(&store), "after {command}");
        found.iter().for_each(|(n, data)| assert!(read(&store, &key(*n)).unwrap() == *data));
        assert_eq!(v.redundancy().unwrap().lost.len(), 1);
        assert!(v.verify(true).unwrap().is_intact() && v.redundancy().unwrap().lost.is_empty());
        drop((store, v));
        // Now it has all data, and the other one is gone.
        let v = copies.open([",media-error=read:256-2047", ""]);
        let store = KvStore::open(&v, "s").unwrap();
        found.iter().for_each(|(n, data)| assert!(read(&store, &key(*n)).unwrap() == *data));
    }
}

#[test]
fn damage_of_one_copy_is_repaired_from_the_other() {
    let copies = Copies::new();
    let v = copies.open(["", ""]);
    let store = create(&v, 40, 32);
    (0..4).for_each(|n| write(&store, n, 30_000).unwrap());
    let at = |n: u32| store.pin(&[key(n)]).unwrap().objects()[0].as_ref().unwrap().extents[0].block << 9;
    let (first, second) = (at(1), at(2));
    let record = store.0.medium.record_at(0);
    drop((store, v));
    copies.flip(0, first + 100);
    copies.flip(1, first + 20_000);
    copies.flip(0, second);
    copies.flip(1, record);
    let v = copies.open(["", ""]);
    let store = KvStore::open(&v, "s").unwrap();
    // The record of the other copy is right. The first object is damaged on both, at different places.
    assert_eq!((there(&store), store.stats().damaged_records), (vec![0, 1, 2, 3], 0));
    assert!(matches!(kv(read(&store, &key(1)).unwrap_err()), KvError::Data { .. }));
    assert!(read(&store, &key(2)).unwrap() == data(2, 30_000));
    assert_eq!(store.verify().unwrap(), [key(1)]);
    store.delete(&[key(1)]).unwrap();
    drop((store, v));
    for faults in [[",media-error=read:256-2047", ""], ["", ",media-error=read:256-2047"]] {
        let v = copies.open(faults);
        let store = KvStore::open(&v, "s").unwrap();
        assert_eq!(there(&store), [0, 2, 3]);
        [0, 2, 3].iter().for_each(|n| assert!(read(&store, &key(*n)).unwrap() == data(*n, 30_000), "{faults:?}"));
    }
}

#[test]
fn copies_that_disagree_after_a_power_failure_are_made_alike() {
    let copies = Copies::new();
    let v = copies.open(["", ""]);
    let store = create(&v, 40, 32);
    (0..4).for_each(|n| write(&store, n, 8000).unwrap());
    let (at, bytes) = (store.0.medium.record_at(0), 32 * RECORD);
    let records = |copy: usize| {
        let mut held = vec![0; bytes];
        std::fs::File::open(&copies.paths[copy]).unwrap().read_exact_at(&mut held, at).unwrap();
        held
    };
    let old = records(1);
    store.write(&[(key(1), &data(11, 8000)), (key(5), &data(5, 8000))]).unwrap();
    store.delete(&[key(3)]).unwrap();
    drop((store, v));
    // The writes of these records did not reach the second copy.
    std::fs::File::options().write(true).open(&copies.paths[1]).unwrap().write_all_at(&old, at).unwrap();
    for _ in 0..2 {
        let v = copies.open(["", ""]);
        let store = KvStore::open(&v, "s").unwrap();
        // The latest record of each slot counts, and a record more than none.
        assert_eq!((there(&store), store.stats().damaged_records), (vec![0, 1, 2, 3, 5], 0));
        assert!(read(&store, &key(1)).unwrap() == data(11, 8000));
        assert_ne!(records(0), records(1));
    }
    let v = copies.open(["", ""]);
    let store = KvStore::open(&v, "s").unwrap();
    store.delete(&[key(0)]).unwrap();
    assert_eq!(records(0), records(1));
    assert_eq!(there(&store), [1, 2, 3, 5]);
    assert!(store.verify().unwrap().is_empty());
}
