//! Objects that kernels store from and load into segments of memory.

use super::*;
use crate::engine::{Outcome, RunError};
use crate::memory::{Place, Region};
use crate::storage::{Plan, SegmentList, SegmentQueue};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Bytes of an object's page in each of the tensors, and number of tensors.
const PAGE: usize = 1536;
const TENSORS: usize = 6;
const OBJECT: usize = PAGE * TENSORS;

/// A store with a queue, and pages in memory of the engine.
struct Paged {
    store: KvStore,
    queue: SegmentQueue,
    tensors: Vec<Region>,
}

impl Paged {
    fn new(specs: &[&str], units: u64) -> Self {
        let v = volume(specs);
        let queue = SegmentQueue::on(&v.engine().stream().unwrap(), &v).command_bytes(4096).build().unwrap();
        let tensors = (0..TENSORS).map(|_| v.engine().allocate(Place::Device, 64 * PAGE).unwrap()).collect();
        Self { store: create(&v, units, 64), queue, tensors }
    }

    /// Writes the data of a key to a page.
    fn put(&self, n: u32, page: usize) {
        for (tensor, part) in self.tensors.iter().zip(data(n, OBJECT).chunks(PAGE)) {
            tensor.write(page * PAGE, part).unwrap();
        }
    }

    fn page(&self, page: usize) -> Vec<u8> {
        self.tensors.iter().flat_map(|tensor| tensor.get_slice::<u8>(page * PAGE, PAGE).unwrap()).collect()
    }

    fn add(&self, list: &mut SegmentList, extents: &[crate::storage::Extent], page: usize) -> Result<(), StorageError> {
        let tensors: Vec<_> = self.tensors.iter().map(|tensor| (tensor, 0)).collect();
        let tensors = list.tensors(&tensors, PAGE)?;
        list.page(extents, tensors, page as u64)
    }

    /// Stores the pages of keys: key `n` has page `n`.
    fn store(&self, numbers: &[u32]) -> Result<(), StorageError> {
        let objects: Vec<_> = numbers.iter().map(|n| (key(*n), OBJECT as u64)).collect();
        numbers.iter().for_each(|n| self.put(*n, *n as usize));
        let storing =
            self.store.store(&self.queue, &objects, |list, i, extents| self.add(list, extents, numbers[i] as usize))?;
        storing.finish(SOON)
    }

    /// Loads keys: key `n` into page `63 - n`.
    fn load(&self, numbers: &[u32]) -> Vec<Result<u64, StorageError>> {
        let keys: Vec<_> = numbers.iter().map(|n| key(*n)).collect();
        let load = self
            .store
            .load(&self.queue, &keys, |list, i, object| self.add(list, &object.extents, 63 - numbers[i] as usize));
        load.unwrap().finish(SOON).unwrap()
    }

    fn check_loaded(&self, numbers: &[u32]) {
        for n in numbers {
            assert!(self.page(63 - *n as usize) == data(*n, OBJECT), "{n}");
        }
    }
}

#[test]
fn kernels_and_the_host_store_and_load_the_same_objects() {
    for specs in [&["soft:mem:1M"][..], &["soft:mem:512k", "soft:mem:512k"], &["soft:mem:1M,block=4096"]] {
        let p = Paged::new(specs, 100);
        p.store(&[1, 2, 3]).unwrap();
        p.store.write(&[(key(4), &data(4, OBJECT))]).unwrap();
        for n in 1..5 {
            assert_eq!(read(&p.store, &key(n)).unwrap(), data(n, OBJECT), "{n} of {specs:?}");
        }
        let loaded = p.load(&[4, 1, 9, 3]);
        assert!(matches!(loaded[2], Err(StorageError::Kv(KvError::Absent { .. }))));
        assert!([0, 1, 3].iter().all(|i| loaded[*i].as_ref().is_ok_and(|bytes| *bytes == OBJECT as u64)));
        p.check_loaded(&[4, 1, 3]);
        // Another page under another key, and a restart.
        p.put(2, 5);
        let objects = [(key(5), OBJECT as u64)];
        let storing = p.store.store(&p.queue, &objects, |list, _, extents| p.add(list, extents, 5)).unwrap();
        storing.finish(SOON).unwrap();
        assert_eq!(read(&p.store, &key(5)).unwrap(), data(2, OBJECT));
        check_space(&p.store);
        let Paged { store, queue, tensors } = p;
        let v = store.volume().clone();
        drop(store);
        let p = Paged { store: KvStore::open(&v, "s").unwrap(), queue, tensors };
        assert_eq!(there(&p.store), [1, 2, 3, 4, 5]);
        assert!(p.load(&[2, 3]).iter().all(Result::is_ok) && p.store.verify().unwrap().is_empty());
        p.check_loaded(&[2, 3]);
    }
}

#[test]
fn a_flipped_bit_is_an_error_of_its_object_alone() {
    let p = Paged::new(&["soft:mem:1M"], 100);
    p.store(&[1, 2, 3]).unwrap();
    let v = p.store.volume();
    let pins = p.store.pin(&[key(2)]).unwrap();
    let block = pins.objects()[0].as_ref().unwrap().extents[0].block + 7;
    let mut held = vec![0; 512];
    v.read_blocks(block, &mut held).unwrap();
    held[100] ^= 16;
    v.write_blocks(block, &held).unwrap();
    let mut loaded = p.load(&[1, 2, 3]);
    let e = kv(loaded.remove(1).unwrap_err());
    assert!(matches!(&e, KvError::Data { bytes, .. } if *bytes == OBJECT as u64), "{e}");
    assert!(e.to_string().contains(&key(2).to_string()), "{e}");
    assert!(loaded.iter().all(Result::is_ok));
    p.check_loaded(&[1, 3]);
}

#[test]
fn a_store_that_fails_leaves_nothing_and_gives_its_space_back() {
    let p = Paged::new(&["soft:mem:1M,media-error=900-2047"], 190);
    p.store(&[1, 2]).unwrap();
    // Objects that reach the bad blocks sooner or later.
    let mut failed = 0;
    for n in 3..60u32 {
        match p.store(&[n]) {
            Ok(()) => {}
            Err(StorageError::Run(RunError::Operations { errors, .. })) => {
                assert!(matches!(errors[0].outcome, Outcome::DeviceError(_)), "{errors:?}");
                assert_eq!(p.store.prefix(&[key(n)]).unwrap(), 0);
                failed += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(failed > 0);
    assert_eq!(p.store.0.state.lock().kept(), 0);
    check_space(&p.store);
    assert_eq!(read(&p.store, &key(1)).unwrap(), data(1, OBJECT));
}

#[test]
fn a_command_that_is_given_up_keeps_its_space() {
    let p = Paged::new(&["soft:mem:1M,lose-completion=every:200"], 100);
    p.store.volume().engine().set_deadline(Duration::from_millis(100)).unwrap();
    let mut given_up = 0;
    for n in 0..40 {
        match p.store(&[n % 8]) {
            Ok(()) => {}
            Err(StorageError::Run(RunError::Operations { errors, .. })) if errors[0].outcome == Outcome::TimedOut => {
                given_up += 1
            }
            // A record or a flush of the host.
            Err(e) => assert!(e.to_string().contains("no completion"), "{e}"),
        }
        if given_up > 0 {
            break;
        }
    }
    if given_up > 0 {
        assert!(p.store.0.state.lock().kept() > 0, "space to which a device may still write is not used again");
    }
}

#[test]
fn what_is_dropped_is_waited_for() {
    let p = Paged::new(&["soft:mem:1M"], 100);
    let objects = [(key(1), OBJECT as u64)];
    p.put(1, 1);
    let storing = p.store.store(&p.queue, &objects, |list, _, extents| p.add(list, extents, 1)).unwrap();
    assert!(p.store.0.state.lock().kept() > 0);
    drop(storing);
    assert_eq!(p.store.0.state.lock().kept(), 0);
    assert!(there(&p.store).is_empty());
    p.store(&[1]).unwrap();
    let load = p.store.load(&p.queue, &[key(1)], |list, _, object| p.add(list, &object.extents, 9)).unwrap();
    drop(load);
    assert!(p.page(9) == data(1, OBJECT));
    assert_eq!(p.store.0.state.lock().kept(), 0);
    check_space(&p.store);
}

#[test]
fn lists_that_are_not_those_of_the_objects_are_refused() {
    let p = Paged::new(&["soft:mem:1M"], 100);
    p.store(&[1]).unwrap();
    let none = p.store.load(&p.queue, &[key(1)], |_, _, _| Ok(())).unwrap_err().to_string();
    assert!(none.contains("to be object 1 of a list that has 0"), "{none}");
    let objects = [(key(2), OBJECT as u64 + 16)];
    let other = p.store.store(&p.queue, &objects, |list, _, extents| p.add(list, extents, 1)).unwrap_err().to_string();
    assert!(other.contains("has 9232 bytes, and its memory 9216"), "{other}");
    let twice = p.store.load(&p.queue, &[key(1)], |list, _, object| {
        p.add(list, &object.extents, 1)?;
        p.add(list, &object.extents, 2)
    });
    assert!(twice.unwrap_err().to_string().contains("a list that has 2"));
    let foreign = volume(&["soft:mem:1M"]);
    let queue = SegmentQueue::on(&foreign.engine().stream().unwrap(), &foreign).build().unwrap();
    let e = p.store.load(&queue, &[key(1)], |list, _, object| p.add(list, &object.extents, 1)).unwrap_err();
    assert!(e.to_string().contains("make a queue for the store's volume"), "{e}");
    assert_eq!(p.store.0.state.lock().kept(), 0);
    assert_eq!(there(&p.store), [1]);
}

#[test]
fn a_store_of_kernels_leaves_no_trace_in_other_arrays() {
    for specs in [&["soft:mem:1M"][..], &["soft:mem:512k", "soft:mem:512k"]] {
        let p = Paged::new(specs, 100);
        let v = p.store.volume();
        // Units of `changed` are larger than the space between two arrays.
        let mut writer = v.contents().add(Plan::new().array::<u8>("other", 64), "it").unwrap();
        writer.append("other", &[3u8; 64]).unwrap();
        writer.finish().unwrap();
        v.flush().unwrap();
        p.store(&[1, 2, 3]).unwrap();
        assert!(p.load(&[1, 2, 3]).iter().all(Result::is_ok));
        p.check_loaded(&[1, 2, 3]);
        assert!(v.disk().integrity.is_pending().unwrap(), "no mark was needed");
        let manifest = v.manifest().unwrap();
        assert!(!v.contents().is_touched(manifest.find("other").unwrap(), &v.disk().integrity.changed().unwrap()));
        // Blocks outside of the store are recorded as ever.
        let mut list = SegmentList::new();
        let other = manifest.find("other").unwrap().offset >> v.block_shift();
        list.object(&[crate::storage::Extent::new(other, 1)], 16).unwrap();
        list.segment(&p.tensors[0], 0, 16, 0).unwrap();
        p.queue.store(list).unwrap().finish(SOON).unwrap();
        assert!(!v.disk().integrity.is_pending().unwrap());
        assert!(v.contents().is_touched(manifest.find("other").unwrap(), &v.disk().integrity.changed().unwrap()));
    }
}

#[test]
fn a_store_keeps_its_place_until_its_transfers_have_ended() {
    let p = Paged::new(&["soft:mem:2M,latency=20ms"], 64);
    let v = p.store.volume().clone();
    p.store(&[1]).unwrap();
    let arrays = ["s:kv", "s:objects", "s:slab"];
    let load = || p.store.load(&p.queue, &[key(1)], |list, _, object| p.add(list, &object.extents, 5));
    // They follow each other, and take longer than the volume, which reads its manifest.
    let loads: Vec<_> = (0..30).map(|_| load().unwrap()).collect();
    let text = v.remove(&arrays).unwrap_err().to_string();
    assert!(text.contains("data of array `s:slab`"), "{text}");
    loads.into_iter().for_each(|load| assert!(load.finish(SOON).unwrap()[0].is_ok()));
    let object = |n| [(key(n), OBJECT as u64)];
    let store = |n| p.store.store(&p.queue, &object(n), |list, _, extents| p.add(list, extents, 5)).unwrap();
    let storing: Vec<_> = (10..30).map(store).collect();
    assert!(v.remove(&arrays).is_err());
    drop(storing);
    v.remove(&arrays).unwrap();
    assert!(matches!(kv(load().unwrap_err()), KvError::Removed { .. }));
}

#[test]
fn a_load_that_finds_nothing_makes_no_stream_wait() {
    let p = Paged::new(&["soft:mem:2M"], 64);
    let other = p.queue.volume().engine().stream().unwrap();
    let load = p.store.load(&p.queue, &[key(1)], |_, _, _| unreachable!("no object is there")).unwrap();
    load.transfer().wait_group(&other, 3).unwrap();
    other.synchronize(SOON).unwrap();
    assert!(matches!(kv(load.finish(SOON).unwrap().remove(0).unwrap_err()), KvError::Absent { .. }));
}
