//! Transfers of stored arrays by name: contents, places that stay, devices that do not reply.

use super::tests::{memory, random_bytes};
use super::*;
use crate::engine::{Engine, testing};
use crate::memory::Region;
use crate::storage::{Drive, Extent, Plan};
use proptest::prelude::*;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn add(v: &Volume, name: &str, data: &[u8]) -> u64 {
    let mut writer = v.add(Plan::new().array::<u8>(name, data.len() as u64), "it").unwrap();
    writer.append(name, data).unwrap();
    writer.finish().unwrap().find(name).unwrap().offset
}

proptest! {
    #[test]
    fn parts_of_an_array_are_loaded_and_stored(
        bytes in 1usize..60_000, at in 0usize..100, units in 1usize..2000, checksums: bool, striped: bool,
    ) {
        let engine = testing::engine(0);
        let specs: &[&str] = if striped { &["soft:mem:1M"; 3] } else { &["soft:mem:2M"] };
        let drives = specs.iter().map(|s| Drive::open(s).unwrap());
        let v = Volume::on(&engine, drives).chunk(8192).page_checksums(checksums).build().unwrap();
        let (mut data, new) = (random_bytes(bytes, 3), random_bytes(units * 16, 9));
        add(&v, "before", &[1; 700]);
        add(&v, "a", &data);
        let stream = engine.stream().unwrap();
        let queue = SegmentQueue::on(&stream, &v).command_bytes(4096).build().unwrap();
        // Regions have whole pages.
        let m = memory(&engine, units * 16).part(0, units * 16).unwrap();
        m.write(0, &new).unwrap();
        let (offset, end) = (at as u64 * 512, at * 512 + units * 16);
        let fits = end <= bytes.next_multiple_of(16);
        let stored = queue.store_array("a", offset, &m);
        let is_whole = (units * 16).is_multiple_of(512) || end == bytes.next_multiple_of(16);
        prop_assert_eq!(stored.is_ok(), fits && is_whole, "{:?}", stored);
        if let Ok(stored) = stored {
            stored.finish_array(units as u64 * 16, SOON).unwrap();
            v.flush().unwrap();
            let known = end.min(bytes) - at * 512;
            data[at * 512..][..known].copy_from_slice(&new[..known]);
        }
        m.fill(0, units * 16, 0).unwrap();
        let loaded = queue.load_array("a", offset, &m);
        prop_assert_eq!(loaded.is_ok(), fits, "{:?}", loaded);
        if let Ok(loaded) = loaded {
            loaded.finish_array(units as u64 * 16, SOON).unwrap();
            let mut found = vec![0; end.min(bytes) - at * 512];
            m.read(0, &mut found).unwrap();
            prop_assert!(found == data[at * 512..][..found.len()]);
        }
        stream.synchronize(SOON).unwrap();
        prop_assert!(v.read_array::<u8>("a").unwrap() == data);
        prop_assert!(v.read_array::<u8>("before").unwrap() == [1; 700]);
        v.accept_changes().unwrap();
        prop_assert!(v.verify(false).unwrap().is_intact());
    }
}

/// Stores arrays of 8 KiB in a file, and opens it so that a block of the first one gets no completion.
fn late(engine: &Engine, folder: &std::path::Path) -> Volume {
    let path = folder.join("v.img");
    std::fs::File::create(&path).unwrap().set_len(2 << 20).unwrap();
    let spec = format!("soft:{}", path.display());
    let v = Volume::on(engine, [Drive::open(&spec).unwrap()]).build().unwrap();
    let place = add(&v, "a", &random_bytes(8192, 3)) / 512;
    add(&v, "b", &random_bytes(8192, 5));
    drop(v);
    let drive = Drive::open(&format!("{spec},lose-completion={}", place + 3)).unwrap();
    Volume::on(engine, [drive]).deadline(Duration::from_secs(1)).build().unwrap()
}

#[test]
fn a_used_array_keeps_its_place_until_the_transfer_has_ended() {
    let (engine, folder) = (testing::engine(0), tempfile::tempdir().unwrap());
    let v = late(&engine, folder.path());
    let stream = engine.stream().unwrap();
    let queue = SegmentQueue::on(&stream, &v).build().unwrap();
    let m = memory(&engine, 8192);
    let transfer = queue.load_array("a", 0, &m).unwrap();
    // New content would erase both arrays, or takes the place of the first one.
    let large = random_bytes(1_500_000, 7);
    let refused = [
        v.remove(&["b", "a"]).map(drop),
        v.store_array("c", &large).map(drop),
        v.replace(Plan::new().array::<u8>("a", 0), "it", &["a"]).unwrap().finish().map(drop),
    ];
    for refused in refused {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("data of array `a`"), "{text}");
    }
    v.remove(&["b"]).unwrap();
    drop(transfer);
    assert!(v.remove(&["a"]).is_err());
    stream.synchronize(SOON).unwrap();
    v.remove(&["a"]).unwrap();
    assert!(queue.load_array("a", 0, &m).unwrap_err().to_string().contains("no array `a`"));
}

#[test]
fn an_array_to_which_a_device_may_still_write_keeps_its_place() {
    let (engine, folder) = (testing::engine(0), tempfile::tempdir().unwrap());
    let v = late(&engine, folder.path());
    let stream = engine.stream().unwrap();
    let queue = SegmentQueue::on(&stream, &v).build().unwrap();
    let stored = queue.store_array("a", 0, &memory(&engine, 4096).part(0, 4096).unwrap()).unwrap();
    assert!(stored.finish_array(4096, SOON).unwrap_err().to_string().contains("timed out"));
    drop((stored, queue, stream));
    assert!(v.remove(&["a"]).unwrap_err().to_string().contains("a device did not reply"));
    v.remove(&["b"]).unwrap();
}

#[test]
fn memory_is_released_when_the_transfer_has_ended() {
    let engine = testing::engine(0);
    let v = Volume::on(&engine, [Drive::open("soft:mem:1M").unwrap()]).build().unwrap();
    let stream = engine.stream().unwrap();
    let queue = SegmentQueue::on(&stream, &v).build().unwrap();
    let list = |m: &Region| {
        let mut list = SegmentList::new();
        list.object(&[Extent::new(0, 1)], 512).unwrap();
        list.segment(m, 0, 512, 0).unwrap();
        list
    };
    let (m, other) = (memory(&engine, 512), memory(&engine, 512));
    let gone = m.downgrade();
    let transfer = queue.load(list(&m)).unwrap();
    drop(m);
    assert!(gone.upgrade().is_some());
    transfer.finish(SOON).unwrap();
    assert!(gone.upgrade().is_none());
    // Without an end that the program has seen, the next transfer finds out.
    let m = memory(&engine, 512);
    let gone = m.downgrade();
    drop(queue.load(list(&m)).unwrap());
    drop(m);
    stream.synchronize(SOON).unwrap();
    queue.load(list(&other)).unwrap().finish(SOON).unwrap();
    assert!(gone.upgrade().is_none());
}
