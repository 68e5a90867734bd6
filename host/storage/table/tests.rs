//! Tests of tables against a plain model.

use super::*;
use crate::engine::testing;
use crate::memory::Place;
use crate::storage::{Drive, ElementType, LandingChoice, VolumeBuilder};
use proptest::prelude::*;
use std::time::Duration;

/// Begins a volume on the engine of the tests. Software devices do not reach every GPU's memory.
pub(super) fn on(specs: &[impl AsRef<str>], landing: LandingChoice) -> VolumeBuilder {
    let drives: Vec<_> = specs.iter().map(|s| Drive::open(s.as_ref()).unwrap()).collect();
    let engine = testing::engine(0);
    let landing = if engine.is_gpu() && landing == LandingChoice::Direct { LandingChoice::Auto } else { landing };
    Volume::on(&engine, drives).depth(16).chunk(16384).landing(landing)
}

fn volume(specs: &[&str], landing: LandingChoice) -> Volume {
    on(specs, landing).transfer(8192).build().unwrap()
}

/// Returns the words of rows, each another one.
fn words(rows: u64, each: u64) -> Vec<u32> {
    (0..rows * each).map(|i| (i as u32).wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995).collect()
}

#[test]
fn rows_come_by_their_numbers() {
    for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
        for specs in [&["soft:mem:2M"][..], &["soft:mem:1M,block=4096"; 2]] {
            let v = volume(specs, landing);
            for each in [16, 25, 128, 129, 1024, 5000] {
                let rows = 700_000 / (each * 4);
                let all = words(rows, each);
                let table = Table::from_rows(&v, "t", &all, each).unwrap();
                let indices: Vec<u64> = (0..100).map(|i| i * 7919 % rows).collect();
                let model: Vec<u32> = indices
                    .iter()
                    .flat_map(|i| &all[(i * each) as usize..((i + 1) * each) as usize])
                    .copied()
                    .collect();
                assert!(table.gather_to_vec::<u32>(&indices).unwrap() == model, "{each} on {v}");
                let narrow: Vec<u32> = indices.iter().map(|i| *i as u32).collect();
                let out = v.engine().allocate(Place::Device, model.len() * 4).unwrap();
                table.gather(&narrow, &out).unwrap();
                assert!(out.get_slice::<u32>(0, model.len()).unwrap() == model, "{each} on {v}");
                Table::remove(&v, "t").unwrap();
            }
        }
    }
}

#[test]
fn tables_are_stored_by_name_beside_others() {
    let v = volume(&["soft:mem:4M"], LandingChoice::Direct);
    assert!(Table::list(&v).unwrap().is_empty());
    let unknown = Table::open(&v, "a").build().unwrap_err().to_string();
    assert!(unknown.contains("no table is called `a`; none is stored there"), "{unknown}");
    v.store_array("numbers", &[7u64; 100]).unwrap();
    Table::from_rows(&v, "b", &words(10, 32), 32).unwrap();
    let zeros = Table::create(&v, "a", ElementType::F64, 8, 100).unwrap();
    assert!(zeros.gather_to_vec::<f64>(&[99u32]).unwrap() == [0.0; 8]);
    let list = Table::list(&v).unwrap();
    let names: Vec<_> = list.iter().map(|t| (t.name.as_str(), t.layout.as_ref().unwrap().rows(), t.bytes)).collect();
    assert_eq!(names, [("a", 100, 128 + 6400), ("b", 10, 128 + 1280)]);
    let exists = Table::create(&v, "b", ElementType::U8, 64, 1).unwrap_err();
    assert!(matches!(exists, StorageError::Table(TableError::Exists { .. })), "{exists}");
    let replaced = TableLayout::new(ElementType::U8, &[64], 2).unwrap();
    let mut writer = TableWriter::new(&v, "b", &replaced, true).unwrap();
    assert!(matches!(writer.append(&[0u32]), Err(StorageError::Table(TableError::Type { .. }))));
    writer.append(&[3u8; 128]).unwrap();
    assert_eq!(writer.finish().unwrap().gather_to_vec::<u8>(&[1u64, 0]).unwrap(), [3; 128]);
    let layout = TableLayout::new(ElementType::U8, &[64], 10_000).unwrap();
    let mut writer = TableWriter::new(&v, "a", &layout, true).unwrap();
    writer.append(&[3u8; 70]).unwrap();
    writer.append_zeros().unwrap();
    let table = writer.finish().unwrap();
    let mut second = vec![0u8; 64];
    second[..6].fill(3);
    assert_eq!(table.gather_to_vec::<u8>(&[1u64]).unwrap(), second);
    assert_eq!(table.gather_to_vec::<u8>(&[9_999u64]).unwrap(), [0; 64]);
    Table::remove(&v, "a").unwrap();
    assert!(Table::remove(&v, "a").unwrap_err().to_string().contains("there is `b`"));
    assert_eq!(v.read_array::<u64>("numbers").unwrap(), [7; 100]);
    for bad in ["", "a/b", "a b"] {
        assert!(matches!(Table::open(&v, bad).build(), Err(StorageError::Table(TableError::Name(_)))), "{bad}");
    }
    assert!(Table::from_rows(&v, "c", &[1u32; 33], 32).unwrap_err().to_string().contains("no whole rows"));
    assert!(Table::from_rows(&v, "c", &[1u32; 33], 0).is_err());
}

#[test]
fn an_index_that_is_no_row_is_told_with_its_position() {
    let v = volume(&["soft:mem:1M"], LandingChoice::Bounce);
    let table = Table::from_rows(&v, "t", &words(100, 32), 32).unwrap();
    for position in [0, 1, 63, 99] {
        let mut indices = vec![5u64; 100];
        indices[position] = u64::from(u32::MAX) + 100;
        let e = table.gather_to_vec::<u32>(&indices).unwrap_err();
        let text = format!("index 4294967395 at position {position} of the batch is no row; rows are numbered 0 to 99");
        assert!(e.to_string().contains(&text), "{e}");
        assert_eq!(table.gather_to_vec::<u32>(&[0u64]).unwrap(), words(1, 32));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn batches_are_those_of_the_model(
        each in prop_oneof![16..=40u64, Just(128), 100..=600u64, Just(1024), Just(16383), Just(16384)],
        large_blocks: bool,
        devices in 1..=3usize,
        bounce: bool,
        cached: bool,
        in_flight in 1..40u32,
        batches in prop::collection::vec((prop::collection::vec(0..1_000_000u64, 0..120), any::<bool>()), 1..4),
        outside in prop::option::of((any::<prop::sample::Index>(), any::<u64>())),
    ) {
        let landing = if bounce { LandingChoice::Bounce } else { LandingChoice::Direct };
        let spec = format!("soft:mem:2M,block={}", if large_blocks { 4096 } else { 512 });
        let v = volume(&vec![spec.as_str(); devices], landing);
        let count = 80_000 / each + 2;
        let all = words(count, each);
        Table::from_rows(&v, "t", &all, each).unwrap();
        let mut open = Table::open(&v, "t").in_flight(in_flight);
        if cached {
            open = open.cache_bytes(16 * each * 4).host_cache_bytes(48 * each * 4).hot_rows(&[1]);
        }
        let table = open.build().unwrap();
        for (indices, few) in batches {
            let indices: Vec<u64> = indices.iter().map(|i| i % if few { count.min(5) } else { count }).collect();
            let before = table.stats().unwrap();
            let model: Vec<u32> =
                indices.iter().flat_map(|i| &all[(i * each) as usize..((i + 1) * each) as usize]).copied().collect();
            prop_assert!(table.gather_to_vec::<u32>(&indices).unwrap() == model);
            let s = table.stats().unwrap() - before;
            prop_assert_eq!(s.rows, indices.len() as u64);
            prop_assert_eq!(s.rows, s.duplicates + s.hot_hits + s.cache_hits + s.host_hits + s.device_reads);
            if !cached {
                let different: std::collections::HashSet<_> = indices.iter().collect();
                prop_assert_eq!(s.device_reads, different.len() as u64);
            }
            if let (Some((at, index)), false) = (&outside, indices.is_empty()) {
                let mut wrong = indices;
                let position = at.index(wrong.len());
                wrong[position] = (*index).max(count);
                let e = table.gather_to_vec::<u32>(&wrong).unwrap_err().to_string();
                let text = format!("index {} at position {position} of", wrong[position]);
                prop_assert!(e.contains(&text), "{}", e);
            }
        }
    }
}

/// Returns the read commands of kernels during `f`.
fn reads(v: &Volume, f: impl FnOnce()) -> u64 {
    let before = v.stats().unwrap().reads;
    f();
    v.stats().unwrap().reads - before
}

#[test]
fn devices_are_read_for_every_row_that_is_in_no_cache_and_once_for_duplicates() {
    let v = volume(&["soft:mem:2M"], LandingChoice::Direct);
    let all = words(1000, 128);
    let table = Table::from_rows(&v, "t", &all, 128).unwrap();
    let every: Vec<u64> = (0..1000).collect();
    let gather = |table: &Table, indices: &[u64]| {
        table.gather_to_vec::<u32>(indices).unwrap();
    };
    // A second gather reads everything again: no copy of the table is kept.
    for _ in 0..2 {
        assert_eq!(reads(&v, || gather(&table, &every)), 1000);
    }
    assert_eq!(reads(&v, || gather(&table, &[7; 500])), 1);
    // Changes on the devices are seen.
    v.write_bytes(table.view().first + 7 * 512, &[0xff; 512]).unwrap();
    assert_eq!(table.gather_to_vec::<u32>(&[7u64]).unwrap(), [u32::MAX; 128]);

    let cached = Table::open(&v, "t").cache_bytes(320 * 512).hot_rows(&[1, 2, 3]).build().unwrap();
    assert_eq!(reads(&v, || gather(&cached, &[1, 2, 3, 2])), 0);
    // The first rows fill the cache, and are found there. Threads that change a set of frames at the same time give up, so
    // that a small cache takes a few gathers on a GPU.
    let few: Vec<u64> = (10..60).collect();
    for _ in 0..16 {
        gather(&cached, &few);
    }
    let before = cached.stats().unwrap();
    let misses = reads(&v, || gather(&cached, &few));
    let s = cached.stats().unwrap() - before;
    assert_eq!((s.cache_hits + s.device_reads, s.device_reads), (50, misses));
    assert!(s.cache_hits >= 45, "{s:?}");
    assert_eq!(s.hit_ratio(), Some(s.cache_hits as f64 / 50.0));
    cached.drop_caches().unwrap();
    assert_eq!(reads(&v, || gather(&cached, &few)), 50);
    // A pass over everything does not displace rows that are used often.
    for _ in 0..16 {
        gather(&cached, &few);
    }
    gather(&cached, &every);
    let before = cached.stats().unwrap();
    gather(&cached, &few);
    assert!((cached.stats().unwrap() - before).cache_hits >= 40, "{:?}", cached.stats());
    cached.reset_stats().unwrap();
    assert_eq!(cached.stats().unwrap(), TableStats::default());
}

#[test]
fn rows_in_host_memory_move_up_when_they_are_used_often() {
    let v = volume(&["soft:mem:2M"], LandingChoice::Bounce);
    let all = words(1000, 100);
    let table = Table::from_rows(&v, "t", &all, 100).unwrap();
    drop(table);
    let table = Table::open(&v, "t").cache_bytes(16 * 400).host_cache_bytes(640 * 400).build().unwrap();
    let few: Vec<u64> = (0..200).collect();
    for _ in 0..10 {
        assert!(table.gather_to_vec::<u32>(&few).unwrap() == all[..200 * 100]);
    }
    let s = table.stats().unwrap();
    assert!(s.host_hits > 1000 && s.host_admissions >= 150 && s.admissions > 16 && s.cache_hits > 0, "{s:?}");
}

#[test]
fn a_fault_in_the_middle_of_a_gather_is_named_and_the_next_one_works() {
    for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
        // Rows begin at LBA 256.
        let v = volume(&["soft:mem:1M,media-error=read:300"], landing);
        let all = words(100, 128);
        let table = Table::from_rows(&v, "t", &all, 128).unwrap();
        assert_eq!(table.view().first, 256 * 512);
        let every: Vec<u64> = (0..100).collect();
        for _ in 0..3 {
            let e = table.gather_to_vec::<u32>(&every).unwrap_err();
            match e {
                StorageError::Run(RunError::Operations { errors, .. }) => {
                    assert_eq!((errors[0].lba, errors[0].blocks), (300, 1), "{errors:?}");
                    assert!(matches!(errors[0].outcome, crate::engine::Outcome::DeviceError(_)), "{errors:?}");
                }
                other => panic!("{other}"),
            }
            let good: Vec<u64> = (0..100).filter(|i| *i != 44).collect();
            let found = table.gather_to_vec::<u32>(&good).unwrap();
            assert!(found[44 * 128..45 * 128] == all[45 * 128..46 * 128]);
        }
    }
}

#[test]
fn batches_are_in_flight_side_by_side() {
    const SOON: Duration = Duration::from_secs(60);
    for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
        let v = volume(&["soft:mem:1M"], landing);
        let all = words(1000, 64);
        let table = Table::from_rows(&v, "t", &all, 64).unwrap();
        let batch = |first: u64| -> Vec<u64> { (0..50).map(|i| (first * 37 + i * 7) % 1000).collect() };
        let model = |first: u64| -> Vec<u32> {
            batch(first).iter().flat_map(|i| &all[(i * 64) as usize..((i + 1) * 64) as usize]).copied().collect()
        };
        // More than the volume can register memory for.
        let flying: Vec<_> = (0..20).map(|i| table.prefetch(&batch(i)).unwrap()).collect();
        for (i, prefetch) in flying.into_iter().enumerate() {
            if i % 5 == 4 {
                drop(prefetch);
                continue;
            }
            let rows = prefetch.take(SOON).unwrap();
            assert_eq!(rows.rows(), 50);
            assert!(rows.to_vec::<u32>().unwrap() == model(i as u64), "batch {i} on {v}");
        }
        assert!(v.engine().is_idle());
        let none: [u64; 0] = [];
        let nothing = table.prefetch(&none).unwrap().take(SOON).unwrap();
        assert!(nothing.buffer().is_none() && nothing.to_vec::<u32>().unwrap().is_empty());

        // Behind a kernel on the caller's stream, and before another.
        let stream = v.engine().stream().unwrap();
        let (indices, out) = (v.engine().allocate(Place::Device, 400).unwrap(), v.allocate_data(50 * 256).unwrap());
        let grid = v.engine().grid(128, 1);
        testing::put(&stream, "wb_iota", grid, crate::args!(&indices, 50u64, 100u64, 3u64)).unwrap();
        let gathering = table.start_on(&stream, RowIndices::u64(&indices, 50), &out).unwrap();
        gathering.finish(SOON).unwrap();
        assert!(out.get_slice::<u32>(49 * 256, 64).unwrap() == all[(100 + 49 * 3) * 64..(101 + 49 * 3) * 64]);
        // Numbers in a buffer.
        let numbers = v.allocate_data(8).unwrap();
        numbers.write(0, bytemuck::bytes_of(&[7u32, 999])).unwrap();
        table.gather(RowIndices::u32(&numbers, 2), &out).unwrap();
        assert!(out.get_slice::<u32>(256, 64).unwrap() == all[999 * 64..]);
        let few = table.gather(RowIndices::u64(&numbers, 2), &out).unwrap_err().to_string();
        assert!(few.contains("2 indices have 16 bytes and their memory has 8"), "{few}");
        let other = testing::engine(0);
        let foreign = table.start_on(&other.stream().unwrap(), &[1u64], &out).unwrap_err();
        assert!(foreign.to_string().contains("another engine"), "{foreign}");
        let small = table.start(&[1u64, 2], &v.allocate_data(256).unwrap()).unwrap_err();
        assert!(small.to_string().contains("2 indices need 512 bytes of rows, and 256 were given"), "{small}");
    }
}

#[test]
fn a_cancelled_engine_ends_batches_and_works_again_after_that() {
    // Reads take long enough to be cancelled.
    let v = volume(&["soft:mem:1M,latency=20ms"], LandingChoice::Bounce);
    let all = words(1000, 64);
    let table = Table::from_rows(&v, "t", &all, 64).unwrap();
    let every: Vec<u64> = (0..1000).collect();
    let flying: Vec<_> = (0..3).map(|_| table.prefetch(&every).unwrap()).collect();
    v.engine().cancel().unwrap();
    let ended: Vec<_> = flying.into_iter().map(|p| p.take(Duration::from_secs(60)).map(|rows| rows.rows())).collect();
    assert!(ended.iter().any(|e| e.is_err()), "{ended:?}");
    assert!(table.prefetch(&[1u64]).unwrap_err().to_string().contains("cancelled"));
    v.engine().resume().unwrap();
    assert!(table.gather_to_vec::<u32>(&[5u64, 5]).unwrap()[64..] == all[5 * 64..6 * 64]);
}

#[test]
fn memory_that_another_volume_registered_takes_part() {
    let (v, other) = (volume(&["soft:mem:1M"], LandingChoice::Direct), Drive::open("soft:mem:1M").unwrap());
    let other = Volume::on(v.engine(), [other]).build().unwrap();
    let all = words(100, 128);
    let table = Table::from_rows(&v, "t", &all, 128).unwrap();
    let every: Vec<u64> = (0..100).collect();
    let foreign = other.allocate_data(100 * 512).unwrap();
    table.gather(&every, &foreign).unwrap();
    assert!(foreign.get_slice::<u32>(0, 12800).unwrap() == all);
    let back: Vec<u64> = (0..100).rev().collect();
    table.scatter(&back, &foreign, Combine::Last).unwrap();
    assert!(table.gather_to_vec::<u32>(&back).unwrap() == all);
}

#[test]
fn a_batch_knows_that_the_wait_of_another_on_its_stream_has_failed() {
    const SOON: Duration = Duration::from_secs(60);
    let v = volume(&["soft:mem:1M"], LandingChoice::Direct);
    let table = Table::from_rows(&v, "t", &words(100, 128), 128).unwrap();
    let stream = v.engine().stream().unwrap();
    let out = v.allocate_data(1024).unwrap();
    let wrong = table.start_on(&stream, &[1u64, 100], &out).unwrap();
    let lost = table.start_on(&stream, &[5u64, 6], &out).unwrap();
    let e = wrong.finish(SOON).unwrap_err().to_string();
    assert!(e.contains("index 100 at position 1"), "{e}");
    let e = lost.finish(SOON).unwrap_err();
    assert!(matches!(e, StorageError::Run(RunError::Stopped { .. })), "{e}");
    assert!(e.to_string().contains("an earlier wait for its stream has failed"), "{e}");
    table.start_on(&stream, &[5u64, 6], &out).unwrap().finish(SOON).unwrap();
    assert!(out.get_slice::<u32>(0, 256).unwrap() == words(7, 128)[5 * 128..]);
}
