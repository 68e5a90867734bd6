//! Transfers on a software controller: contents and checksums, groups, failures, late devices, stops, memory that is used again.

use super::*;
use crate::args;
use crate::engine::{Engine, Outcome, RunError, testing};
use crate::memory::{Place, Region};
use crate::storage::{Drive, Extent, LandingChoice};
use proptest::prelude::*;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn volume(engine: &Engine, specs: &[&str], landing: LandingChoice) -> Volume {
    Volume::on(engine, specs.iter().map(|s| Drive::open(s).unwrap())).chunk(8192).landing(landing).build().unwrap()
}

pub(super) fn random_bytes(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(bytes)
    .collect()
}

/// Sum of the terms of an object's words, as `segments.cuh` defines it.
fn terms_of(data: &[u8]) -> u64 {
    let term = |(i, word): (usize, &[u8])| {
        let place = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = u64::from_le_bytes(word.try_into().unwrap()).wrapping_add(place);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    data.chunks(8).enumerate().map(term).fold(0, u64::wrapping_add)
}

pub(super) fn memory(engine: &Engine, bytes: usize) -> Region {
    engine.allocate(Place::Device, bytes).unwrap()
}

/// An object in consecutive blocks from one segment.
fn simple(list: &mut SegmentList, block: u64, memory: &Region, offset: usize, bytes: usize, group: u32) {
    list.object(&[Extent::new(block, (bytes as u64).div_ceil(512))], bytes as u64).unwrap();
    list.segment(memory, offset, bytes, group).unwrap();
}

#[test]
fn objects_are_stored_from_scattered_segments_and_loaded_into_others() {
    let engine = testing::engine(0);
    let (one, three) = (&["soft:mem:8M"][..], &["soft:mem:4M", "soft:mem:4M", "soft:mem:4M"][..]);
    for (specs, landing) in [
        (one, LandingChoice::Bounce),
        (one, LandingChoice::Auto),
        (three, LandingChoice::Bounce),
        (three, LandingChoice::Auto),
    ] {
        let v = volume(&engine, specs, landing);
        let stream = engine.stream().unwrap();
        let queue = SegmentQueue::on(&stream, &v).command_bytes(4096).build().unwrap();
        let (from, to) = (memory(&engine, 1 << 20), memory(&engine, 1 << 20));
        let data = random_bytes(1 << 20, 9);
        from.write(0, &data).unwrap();
        // Objects of 60,000 bytes in two extents each, of pages of 400 bytes that are 1,024 bytes apart.
        let list = |memory: &Region, page: &dyn Fn(usize) -> usize| {
            let mut list = SegmentList::new();
            for object in 0..5u64 {
                list.object(&[Extent::new(object * 1000, 50), Extent::new(object * 1000 + 500, 68)], 60_000).unwrap();
                for part in 0..150 {
                    list.segment(memory, page(object as usize * 150 + part) * 1024, 400, part as u32 % 4).unwrap();
                }
            }
            list
        };
        let stored = queue.store(list(&from, &|i| i)).unwrap();
        let loaded = queue.load(list(&to, &|i| 1023 - i)).unwrap();
        let (loaded, stored) = (loaded.finish(SOON).unwrap(), stored.finish(SOON).unwrap());
        assert_eq!(stored, loaded, "{specs:?} {landing:?}");
        let mut arrived = vec![0; 1 << 20];
        to.read(0, &mut arrived).unwrap();
        for (object, outcome) in stored.iter().enumerate() {
            let pages = || object * 150..(object + 1) * 150;
            let expected: Vec<u8> = pages().flat_map(|i| &data[i * 1024..i * 1024 + 400]).copied().collect();
            let found: Vec<u8> = pages().flat_map(|i| &arrived[(1023 - i) * 1024..][..400]).copied().collect();
            assert!(found == expected, "object {object} of {specs:?} {landing:?}");
            assert_eq!((outcome.bytes, &outcome.error, outcome.terms), (60_000, &None, terms_of(&expected)));
            let mut blocks = vec![1; 68 * 512];
            v.read_blocks(object as u64 * 1000 + 500, &mut blocks).unwrap();
            assert!(
                blocks[..60_000 - 50 * 512] == expected[50 * 512..]
                    && blocks[60_000 - 50 * 512..].iter().all(|b| *b == 0)
            );
        }
        // Nothing between the pages was touched.
        assert!((273..1024).all(|page| arrived[page * 1024 + 400..(page + 1) * 1024].iter().all(|b| *b == 0)));
    }
}

#[test]
fn a_group_is_complete_for_another_stream() {
    let engine = testing::engine(0);
    let v = volume(&engine, &["soft:mem:1M"], LandingChoice::Bounce);
    let data = random_bytes(64 << 10, 3);
    v.write_blocks(0, &data).unwrap();
    let (stream, other) = (engine.stream().unwrap(), engine.stream().unwrap());
    let queue = SegmentQueue::on(&stream, &v).command_bytes(1024).in_flight(1).build().unwrap();
    let pages = memory(&engine, 64 << 10);
    for round in 0..20u64 {
        pages.fill(0, 64 << 10, 0).unwrap();
        let mut list = SegmentList::new();
        for object in 0..8 {
            list.object(&[Extent::new(object * 16, 16)], 8192).unwrap();
            for group in 0..4 {
                list.segment(&pages, (group as usize * 8 + object as usize) * 2048, 2048, group).unwrap();
            }
        }
        let transfer = queue.load(list).unwrap();
        for group in 0..4u64 {
            transfer.wait_group(&other, group as u32).unwrap();
            // A kernel there copies the group to blocks behind the objects.
            let part = pages.part(group as usize * (16 << 10), 16 << 10).unwrap();
            let args = args!(&v, 512 + group * 32, 32u64, 1u32, &part);
            testing::put(&other, "wb_write_blocks", engine.grid(32, 1), args).unwrap();
        }
        other.synchronize(SOON).unwrap();
        let mut found = vec![0; 64 << 10];
        v.read_blocks(512, &mut found).unwrap();
        for (object, group) in (0..8).flat_map(|o| (0..4).map(move |g| (o, g))) {
            let at = (group * 8 + object) * 2048;
            let from = object * 8192 + group * 2048;
            assert!(found[at..at + 2048] == data[from..from + 2048], "round {round} object {object} group {group}");
        }
        assert!(transfer.wait_group(&other, 4).unwrap_err().to_string().contains("group 4 of a transfer that has 4"));
        assert!(transfer.finish(SOON).unwrap().iter().all(|o| o.error.is_none()));
    }
    stream.synchronize(SOON).unwrap();
    assert!(engine.is_idle());
}

#[test]
fn pages_of_tensors_are_stored_and_loaded_to_other_pages() {
    let engine = testing::engine(0);
    let v = volume(&engine, &["soft:mem:1M"], LandingChoice::Auto);
    let stream = engine.stream().unwrap();
    let queue = SegmentQueue::on(&stream, &v).command_bytes(2048).build().unwrap();
    let tensors: Vec<Region> = (0..6).map(|_| memory(&engine, 16 * 272)).collect();
    let data: Vec<Vec<u8>> = (0..6).map(|i| random_bytes(16 * 272, 40 + i)).collect();
    tensors.iter().zip(&data).for_each(|(tensor, data)| tensor.write(0, data).unwrap());
    let list = |page: &dyn Fn(u64) -> u64| {
        let mut list = SegmentList::new();
        let all: Vec<_> = tensors.iter().zip(0..).map(|(tensor, i)| (tensor, i / 2)).collect();
        let tensors = list.tensors(&all, 272).unwrap();
        for object in 0..16 {
            list.page(&[Extent::new(object * 4, 4)], tensors, page(object)).unwrap();
        }
        (list, tensors)
    };
    queue.store(list(&|object| object).0).unwrap().finish(SOON).unwrap();
    tensors.iter().for_each(|tensor| tensor.fill(0, 16 * 272, 0).unwrap());
    let outcomes = queue.load(list(&|object| (object * 5 + 3) % 16).0).unwrap().finish(SOON).unwrap();
    for object in 0..16 {
        let page = (object * 5 + 3) % 16;
        let expected: Vec<u8> = data.iter().flat_map(|d| &d[object * 272..(object + 1) * 272]).copied().collect();
        let found: Vec<u8> = tensors.iter().flat_map(|t| t.get_slice::<u8>(page * 272, 272).unwrap()).collect();
        assert!(found == expected, "object {object}");
        assert_eq!((outcomes[object].bytes, outcomes[object].terms), (6 * 272, terms_of(&expected)));
    }
    let (mut ours, known) = list(&|object| object);
    assert!(
        ours.page(&[Extent::new(0, 4)], known, 999).unwrap_err().to_string().contains("page 999 of tensors that have")
    );
    assert!(SegmentList::new().page(&[Extent::new(0, 4)], known, 0).unwrap_err().to_string().contains("another list"));
    assert!(ours.tensors(&[(&tensors[0], 0)], 1 << 20).unwrap_err().to_string().contains("no page of"));
    assert!(ours.tensors(&[(&tensors[0], 0)], 24).unwrap_err().to_string().contains("multiple of 16"));
    assert!(ours.tensors(&[], 16).is_err());
}

#[test]
fn a_command_that_fails_is_an_outcome_of_its_object_alone() {
    let engine = testing::engine(0);
    let v = volume(&engine, &["soft:mem:1M,media-error=100-100"], LandingChoice::Auto);
    let data = random_bytes(48 << 10, 5);
    v.write_blocks(0, &data[..32 << 10]).unwrap();
    let (stream, other) = (engine.stream().unwrap(), engine.stream().unwrap());
    let queue = SegmentQueue::on(&stream, &v).command_bytes(4096).build().unwrap();
    let pages = memory(&engine, 48 << 10);
    let mut list = SegmentList::new();
    for object in 0..3 {
        simple(&mut list, object * 32, &pages, object as usize * (16 << 10), 16 << 10, object as u32);
    }
    simple(&mut list, 96, &pages, 0, 8192, 3);
    let transfer = queue.load(list).unwrap();
    // The group of the object that fails does not keep the stream.
    transfer.wait_group(&other, 3).unwrap();
    other.synchronize(SOON).unwrap();
    let outcomes = transfer.finish(SOON).unwrap();
    assert!(outcomes[..3].iter().all(|o| o.error.is_none() && o.bytes == 16 << 10));
    let error = outcomes[3].error.as_ref().unwrap();
    assert!(matches!(error.outcome, Outcome::DeviceError(_)) && error.lba == 96 && error.device == 0, "{error:?}");
    assert_eq!(outcomes[3].bytes, 4096);
    assert!(pages.get_slice::<u8>(16 << 10, 16 << 10).unwrap() == data[16 << 10..32 << 10]);
}

#[test]
fn a_lost_completion_ends_at_the_deadline_and_the_next_transfer_works() {
    let engine = testing::engine(0);
    engine.set_deadline(Duration::from_millis(100)).unwrap();
    for landing in [LandingChoice::Bounce, LandingChoice::Auto] {
        let v = volume(&engine, &["soft:mem:1M,lose-completion=40-40"], landing);
        let data = random_bytes(4096, 7);
        v.write_blocks(64, &data).unwrap();
        let stream = engine.stream().unwrap();
        let queue = SegmentQueue::on(&stream, &v).build().unwrap();
        let pages = memory(&engine, 8192);
        for lost in [true, false, true, false] {
            let mut list = SegmentList::new();
            if lost {
                simple(&mut list, 40, &pages, 4096, 512, 0);
            }
            simple(&mut list, 64, &pages, 0, 4096, 0);
            let outcomes = queue.load(list).unwrap().finish(SOON).unwrap();
            let last = outcomes.last().unwrap();
            assert_eq!(last.error, None);
            assert_eq!(outcomes[0].error.as_ref().map(|e| e.outcome), lost.then_some(Outcome::TimedOut));
            // A warp with direct landing takes no command after one that was given up, and others may have no time for it.
            assert!(last.bytes == 4096 || lost && last.bytes == 0, "{landing:?}");
            assert!(last.bytes == 0 || pages.get_slice::<u8>(0, 4096).unwrap() == data);
            pages.fill(0, 8192, 0).unwrap();
        }
        stream.synchronize(SOON).unwrap();
        assert!(engine.is_idle() && !engine.space().is_poisoned());
    }
}

#[test]
fn commands_that_were_given_up_are_counted_beside_another_failure() {
    let engine = testing::engine(0);
    engine.set_deadline(Duration::from_millis(100)).unwrap();
    let v = volume(&engine, &["soft:mem:1M,media-error=100-100,lose-completion=101-101"], LandingChoice::Auto);
    let stream = engine.stream().unwrap();
    let queue = SegmentQueue::on(&stream, &v).command_bytes(512).build().unwrap();
    let pages = memory(&engine, 8192);
    let mut list = SegmentList::new();
    simple(&mut list, 100, &pages, 0, 1024, 0);
    let outcome = queue.load(list).unwrap().finish(SOON).unwrap().remove(0);
    // Whichever was first: the device may still execute the other one.
    let error = outcome.error.unwrap();
    assert!(matches!(error.outcome, Outcome::DeviceError(_) | Outcome::TimedOut), "{error:?}");
    assert_eq!((outcome.bytes, outcome.given_up, error.opcode, error.blocks), (0, 1, 2, 1));
}

#[test]
fn a_transfer_behind_one_that_spoiled_its_staging_memory_moves_nothing() {
    let engine = testing::engine(0);
    engine.set_deadline(Duration::from_millis(100)).unwrap();
    for (landing, moved) in [(LandingChoice::Direct, 0), (LandingChoice::Bounce, 4096)] {
        let v = volume(&engine, &["soft:mem:1M,lose-completion=40-40"], landing);
        let data = random_bytes(4096, 7);
        v.write_blocks(64, &data).unwrap();
        let stream = engine.stream().unwrap();
        let queue = SegmentQueue::on(&stream, &v).build().unwrap();
        let pages = memory(&engine, 8192);
        let load = |block, bytes| {
            let mut list = SegmentList::new();
            simple(&mut list, block, &pages, 0, bytes, 0);
            queue.load(list).unwrap()
        };
        let (lost, behind) = (load(40, 512), load(64, 4096));
        let lost = lost.finish(SOON).unwrap().remove(0);
        assert_eq!((lost.bytes, lost.given_up), (0, 1));
        let behind = behind.finish(SOON).unwrap().remove(0);
        assert_eq!((behind.bytes, behind.given_up, behind.error), (moved, 0, None), "{landing:?}");
        // The memory was replaced, once.
        assert_eq!(load(64, 4096).finish(SOON).unwrap().remove(0).bytes, 4096);
        assert!(pages.get_slice::<u8>(0, 4096).unwrap() == data);
    }
}

#[test]
fn a_transfer_that_is_stopped_says_so_and_releases_who_waits_for_it() {
    let engine = testing::engine(0);
    engine.set_deadline(Duration::from_secs(3600)).unwrap();
    let v = volume(&engine, &["soft:mem:1M,lose-completion=40-40"], LandingChoice::Auto);
    let (stream, other) = (engine.stream().unwrap(), engine.stream().unwrap());
    let queue = SegmentQueue::on(&stream, &v).build().unwrap();
    let pages = memory(&engine, 4096);
    let list = |block| {
        let mut list = SegmentList::new();
        simple(&mut list, block, &pages, 0, 512, 0);
        list
    };
    let (stuck, behind) = (queue.load(list(40)).unwrap(), queue.load(list(64)).unwrap());
    behind.wait_group(&other, 0).unwrap();
    assert!(!stuck.is_ended());
    let e = stream.synchronize(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(e, RunError::TimedOut { .. }), "{e}");
    // The wait of the other stream ends with its own limit at the latest.
    let _ = other.synchronize(Duration::from_secs(1));
    let ends = |transfer: SegmentTransfer| match transfer.finish(SOON) {
        Ok(outcomes) => outcomes[0].error.is_some() || outcomes[0].bytes < 512,
        Err(StorageError::Run(_)) => true,
        Err(e) => panic!("{e}"),
    };
    assert!(ends(stuck) && ends(behind));
    assert!(engine.is_idle() && !engine.space().is_poisoned());
    engine.set_deadline(Duration::from_secs(10)).unwrap();
    let outcomes = queue.load(list(64)).unwrap().finish(SOON).unwrap();
    assert_eq!((outcomes[0].bytes, &outcomes[0].error), (512, &None));
}

#[test]
fn transfers_that_are_dropped_leave_their_memory_to_later_ones() {
    let engine = testing::engine(0);
    let v = volume(&engine, &["soft:mem:1M"], LandingChoice::Auto);
    let drives = Arc::downgrade(&v.0);
    let stream = engine.stream().unwrap();
    let queue = SegmentQueue::on(&stream, &v).build().unwrap();
    let pages = memory(&engine, 8192);
    for round in 0..100u64 {
        pages.set(0, round).unwrap();
        let mut list = SegmentList::new();
        simple(&mut list, round, &pages, 0, 512, 0);
        drop(queue.store(list).unwrap());
        stream.synchronize(SOON).unwrap();
    }
    for round in 0..100u64 {
        let mut block = [0; 512];
        v.read_blocks(round, &mut block).unwrap();
        assert_eq!(u64::from_ne_bytes(block[..8].try_into().unwrap()), round);
    }
    assert_eq!(queue.0.state.lock().dropped.len(), 1);
    // An empty list is a transfer, too.
    assert_eq!(queue.load(SegmentList::new()).unwrap().finish(SOON).unwrap(), []);
    let mut last = SegmentList::new();
    simple(&mut last, 0, &pages, 0, 512, 0);
    drop(queue.load(last).unwrap());
    drop((queue, v));
    stream.synchronize(SOON).unwrap();
    assert!(drives.upgrade().is_none() && engine.is_idle());
}

#[test]
fn mistakes_are_refused_before_anything_is_launched() {
    let (engine, other) = (testing::engine(0), Engine::cpu().unwrap());
    let v = volume(&engine, &["soft:mem:64k"], LandingChoice::Auto);
    let stream = engine.stream().unwrap();
    let queue = SegmentQueue::on(&stream, &v).build().unwrap();
    let (ours, theirs) = (memory(&engine, 4096), memory(&other, 4096));
    let refused = |block, memory: &Region, bytes| {
        let mut list = SegmentList::new();
        simple(&mut list, block, memory, 0, bytes, 0);
        queue.load(list).unwrap_err().to_string()
    };
    assert!(refused(127, &ours, 1024).contains("128 blocks"));
    assert!(refused(0, &theirs, 512).contains("another engine"));
    let mut open = SegmentList::new();
    open.object(&[Extent::new(0, 1)], 512).unwrap();
    assert!(queue.store(open).unwrap_err().to_string().contains("have 0 bytes, and it has 512"));
    let built = |b: SegmentQueueBuilder<'_>| b.build().unwrap_err().to_string();
    assert!(built(SegmentQueue::on(&stream, &v).in_flight(0)).contains("give 1 to"));
    assert!(built(SegmentQueue::on(&stream, &v).command_bytes(100)).contains("commands of 0 bytes; give 512"));
    assert!(built(SegmentQueue::on(&stream, &v).command_bytes(1 << 30)).contains("give 512"));
    assert!(built(SegmentQueue::on(&stream, &v).multiprocessors(0)).contains("0 multiprocessors"));
    assert!(built(SegmentQueue::on(&other.stream().unwrap(), &v)).contains("another engine"));
    assert!(engine.is_idle());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Objects of any sizes, extents and segments come back.
    #[test]
    fn what_was_stored_is_loaded(
        objects in prop::collection::vec((1u64..2000, prop::collection::vec(1u64..300, 1..5), 1usize..9), 1..12),
        in_flight in 1u32..5,
        command_blocks in 1usize..9,
        seed: u64,
    ) {
        let engine = testing::engine(0);
        let v = volume(&engine, &["soft:mem:4M,block=512"], LandingChoice::Auto);
        let stream = engine.stream().unwrap();
        let in_flight = in_flight.min(engine.warp_width());
        let queue = SegmentQueue::on(&stream, &v).in_flight(in_flight).command_bytes(command_blocks * 512).build().unwrap();
        let total: u64 = objects.iter().flat_map(|(_, segments, _)| segments).map(|units| units * 16).sum();
        let (from, to) = (memory(&engine, total as usize), memory(&engine, total as usize));
        let data = random_bytes(total as usize, seed);
        from.write(0, &data).unwrap();
        let list = |memory: &Region| {
            let (mut list, mut at, mut block) = (SegmentList::new(), 0, 0);
            for (gap, segments, extents) in &objects {
                let bytes: u64 = segments.iter().map(|units| units * 16).sum();
                let blocks = bytes.div_ceil(512);
                // As many extents as wanted, one block at least, one behind the other with a gap.
                let each = blocks.div_ceil(*extents as u64);
                let extents: Vec<_> = (0..blocks.div_ceil(each)).map(|i| Extent::new(block + i * (each + 1), each.min(blocks - i * each))).collect();
                block += blocks + extents.len() as u64 + gap % 3;
                list.object(&extents, bytes).unwrap();
                for (i, units) in segments.iter().enumerate() {
                    list.segment(memory, at, *units as usize * 16, i as u32).unwrap();
                    at += *units as usize * 16;
                }
            }
            list
        };
        let before = v.stats().unwrap();
        let stored = queue.store(list(&from)).unwrap().finish(SOON).unwrap();
        let loaded = queue.load(list(&to)).unwrap().finish(SOON).unwrap();
        prop_assert_eq!(&stored, &loaded);
        // Each block is moved once.
        let moved = v.stats().unwrap() - before;
        let blocks: u64 = objects.iter().map(|(_, segments, _)| (segments.iter().sum::<u64>() * 16).div_ceil(512)).sum();
        prop_assert_eq!((moved.write_bytes, moved.read_bytes), (blocks * 512, blocks * 512));
        prop_assert!(stored.iter().all(|o| o.error.is_none()));
        prop_assert!(to.get_slice::<u8>(0, total as usize).unwrap() == data);
    }
}

#[test]
fn a_host_that_finds_no_queue_pair_is_told_what_helps() {
    let engine = testing::engine(0);
    for (spec, queues, other) in
        [("soft:mem:1M,queues=1", 1, "two or more"), ("soft:mem:1M,queues=2", 2, "one queue pair fewer")]
    {
        let v = Volume::on(&engine, [Drive::open(spec).unwrap()]).queues(queues).build().unwrap();
        let queue = SegmentQueue::on(&engine.stream().unwrap(), &v).build().unwrap();
        let mut list = SegmentList::new();
        let m = memory(&engine, 4096);
        list.object(&[Extent::new(0, 8)], 4096).unwrap();
        list.segment(&m, 0, 4096, 0).unwrap();
        // The engine is busy until the stream was waited for.
        let loading = queue.load(list).unwrap();
        let text = v.read_blocks(0, &mut [0; 512]).unwrap_err().to_string();
        assert!(text.contains(&format!("({queues})")) && text.contains(other), "{text}");
        // Also when the end was seen before, and nothing waited for the stream.
        while !loading.is_ended() {
            std::thread::yield_now();
        }
        loading.finish(SOON).unwrap();
        v.read_blocks(0, &mut [0; 512]).unwrap();
    }
}
