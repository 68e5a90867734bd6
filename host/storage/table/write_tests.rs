//! Tests of writes of rows against a plain model.

use super::tests::on;
use super::*;
use crate::engine::testing;
use crate::memory::Place;
use crate::storage::{Drive, LandingChoice};
use proptest::prelude::*;

fn volume(specs: &[String], landing: LandingChoice) -> Volume {
    on(specs, landing).transfer(8192).build().unwrap()
}

fn memory(devices: usize, block: usize) -> Vec<String> {
    vec![format!("soft:mem:2M,block={block}"); devices]
}

fn words(rows: u64, each: u64, seed: u32) -> Vec<u32> {
    (0..rows * each).map(|i| (i as u32).wrapping_mul(0x9e37_79b9) ^ seed).collect()
}

/// Writes rows to the model as `Table::scatter` does to the table.
fn write(model: &mut [u32], each: usize, indices: &[u64], rows: &[u32], combine: Combine) {
    let mut seen = std::collections::HashSet::new();
    for (i, row) in indices.iter().zip(rows.chunks(each)) {
        let at = &mut model[*i as usize * each..(*i as usize + 1) * each];
        let fresh = seen.insert(*i);
        for (old, new) in at.iter_mut().zip(row) {
            *old = match combine {
                Combine::Last => *new,
                Combine::Sum if fresh => *new,
                Combine::Sum | Combine::Add => old.wrapping_add(*new),
            };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn rows_that_are_written_are_those_of_the_model(
        each in prop_oneof![16..=40u64, Just(128), 100..=600u64, Just(1024), Just(16384)],
        large_blocks: bool,
        devices in 1..=2usize,
        bounce: bool,
        cached: bool,
        batches in prop::collection::vec(
            (prop::collection::vec(0..1_000_000u64, 0..40), 0..3usize, any::<u32>(), any::<bool>()), 1..4),
    ) {
        let landing = if bounce { LandingChoice::Bounce } else { LandingChoice::Direct };
        let v = volume(&memory(devices, if large_blocks { 4096 } else { 512 }), landing);
        let count = 60_000 / each + 3;
        let mut model = words(count, each, 0);
        Table::from_rows(&v, "t", &model, each).unwrap();
        let mut open = Table::open(&v, "t").in_flight(7);
        if cached {
            open = open.cache_bytes(16 * each * 4).host_cache_bytes(32 * each * 4).hot_rows(&[0, 2]);
        }
        let table = open.build().unwrap();
        let all: Vec<u64> = (0..count).collect();
        for (indices, combine, seed, in_region) in batches {
            // Rows are looked up, so that caches have old ones.
            table.gather_to_vec::<u32>(&all).unwrap();
            let indices: Vec<u64> = indices.iter().map(|i| i % count).collect();
            let combine = [Combine::Last, Combine::Sum, Combine::Add][combine];
            let rows = words(indices.len() as u64, each, seed);
            if in_region && !rows.is_empty() {
                let region = v.engine().allocate(Place::Device, rows.len() * 4).unwrap();
                region.set_slice(0, &rows).unwrap();
                table.scatter(&indices, &region, combine).unwrap();
            } else {
                table.scatter(&indices, &rows, combine).unwrap();
            }
            write(&mut model, each as usize, &indices, &rows, combine);
            prop_assert!(table.gather_to_vec::<u32>(&all).unwrap() == model);
        }
        table.flush().unwrap();
        // Without the caches: the devices have the rows.
        let plain = Table::open(&v, "t").build().unwrap();
        prop_assert!(plain.gather_to_vec::<u32>(&all).unwrap() == model);
    }
}

#[test]
fn what_was_written_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let spec = |i: u64| format!("soft:{}", folder.path().join(format!("{i}.img")).display());
    for each in [128u64, 100] {
        let mut model = words(500, each, 1);
        let rows = words(3, each, 77);
        {
            let drive = Drive::create(&spec(each), 1 << 20, &crate::storage::OverwritePolicy::none()).unwrap();
            let v = Volume::on(&testing::engine(0), [drive]).build().unwrap();
            let table = Table::from_rows(&v, "t", &model, each).unwrap();
            table.scatter(&[499u64, 3, 499], &rows, Combine::Last).unwrap();
            table.flush().unwrap();
            assert!(Table::list(&v).unwrap()[0].changed, "the checksum is that of the old rows");
        }
        write(&mut model, each as usize, &[499, 3, 499], &rows, Combine::Last);
        let v = volume(&[spec(each)], LandingChoice::Direct);
        let table = Table::open(&v, "t").build().unwrap();
        assert!(table.gather_to_vec::<u32>(&(0..500u64).collect::<Vec<_>>()).unwrap() == model, "{each}");
    }
}

#[test]
fn numbers_are_added_as_their_type_says() {
    let v = volume(&memory(1, 512), LandingChoice::Direct);
    let table = Table::from_rows(&v, "f64", &[0.5f64; 16 * 10], 16).unwrap();
    table.scatter(&[1u64, 1, 2], &[0.25f64; 48], Combine::Add).unwrap();
    assert_eq!(table.gather_to_vec::<f64>(&[0u64, 1, 2]).unwrap()[15..=32], {
        let mut all = vec![0.5];
        all.extend([1.0; 16]);
        all.push(0.75);
        all
    });
    let table = Table::from_rows(&v, "i64", &[-5i64; 16], 16).unwrap();
    table.scatter(&[0u64], RowInput::bytes(&[1; 128], ElementType::I64), Combine::Last).unwrap();
    assert_eq!(table.gather_to_vec::<i64>(&[0u64]).unwrap(), [0x0101_0101_0101_0101; 16]);
    let other = table.scatter(&[0u64], RowInput::bytes(&[1; 128], ElementType::F64), Combine::Last).unwrap_err();
    assert!(other.to_string().contains("holds i64, not f64"), "{other}");
    table.scatter(&[0u64, 0], &[-1i64; 32], Combine::Sum).unwrap();
    assert_eq!(table.gather_to_vec::<i64>(&[0u64]).unwrap(), [-2; 16]);
    let table = Table::from_rows(&v, "f32", &[1.5f32; 16], 16).unwrap();
    table.scatter(&[0u32, 0, 0], &[2.0f32; 48], Combine::Add).unwrap();
    assert_eq!(table.gather_to_vec::<f32>(&[0u64]).unwrap(), [7.5; 16]);
}

#[test]
fn wrong_writes_are_refused_and_write_nothing() {
    let v = volume(&memory(1, 512), LandingChoice::Bounce);
    let all = words(10, 32, 5);
    let table = Table::from_rows(&v, "t", &all, 32).unwrap();
    let bytes = Table::from_rows(&v, "bytes", &[1u8; 64], 64).unwrap();
    let refused = |e: Result<(), StorageError>| e.unwrap_err().to_string();
    let rows = [9u32; 64];
    assert!(
        refused(table.scatter(&[1u64], &rows, Combine::Last)).contains("1 indices need 128 bytes of rows, and 256")
    );
    assert!(refused(table.scatter(&[1u64, 2, 3], &rows, Combine::Last)).contains("need 384 bytes"));
    assert!(refused(table.scatter(&[1u64], &[1.0f32; 32], Combine::Last)).contains("holds u32, not f32"));
    assert!(refused(bytes.scatter(&[0u64], &[1u8; 64], Combine::Sum)).contains("u8 have no sum"));
    assert!(refused(table.scatter(&[1u64, 10], &rows, Combine::Last)).contains("index 10 at position 1"));
    let other = crate::engine::Engine::cpu().unwrap().allocate(Place::Device, 4096).unwrap();
    assert!(refused(table.scatter(&[1u64], &other, Combine::Last)).contains("another engine"));
    assert!(table.gather_to_vec::<u32>(&(0..10u64).collect::<Vec<_>>()).unwrap() == all);
    table.scatter(&[1u64, 2], &rows, Combine::Last).unwrap();
    assert_eq!(table.gather_to_vec::<u32>(&[2u64]).unwrap(), [9; 32]);
}

#[test]
fn a_write_that_fails_leaves_no_row_in_a_cache_that_differs_from_the_device() {
    for each in [128u64, 100] {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let spec = format!("soft:{}", file.path().display());
        let all = words(100, each, 3);
        drop(Table::from_rows(&volume(std::slice::from_ref(&spec), LandingChoice::Direct), "t", &all, each).unwrap());
        // Rows begin at LBA 256.
        let v = volume(&[format!("{spec},media-error=write:300")], LandingChoice::Direct);
        let table =
            Table::open(&v, "t").cache_bytes(1 << 20).host_cache_bytes(1 << 20).hot_rows(&[0, 44]).build().unwrap();
        assert_eq!(table.view().first, 256 * 512);
        let every: Vec<u64> = (0..100).collect();
        assert!(table.gather_to_vec::<u32>(&every).unwrap() == all);
        // Some of the rows are written before the one that fails.
        let e = table.scatter(&every, &words(100, each, 9), Combine::Last).unwrap_err();
        let StorageError::Run(RunError::Operations { errors, .. }) = &e else { panic!("{e}") };
        let first = errors[0];
        assert!((first.lba..first.lba + u64::from(first.blocks)).contains(&300), "{e}");
        let now = table.gather_to_vec::<u32>(&every).unwrap();
        assert!(now == Table::open(&v, "t").build().unwrap().gather_to_vec::<u32>(&every).unwrap(), "{each}");
        // Rows elsewhere can be written.
        table.scatter(&[0u64], &[5u32; 128][..each as usize], Combine::Last).unwrap();
        assert_eq!(table.gather_to_vec::<u32>(&[0u64]).unwrap(), vec![5; each as usize]);
    }
}

#[test]
fn changes_around_a_table_are_seen_once_its_caches_are_dropped() {
    let v = volume(&memory(1, 512), LandingChoice::Bounce);
    drop(Table::from_rows(&v, "t", &words(100, 128, 3), 128).unwrap());
    let table = Table::open(&v, "t").cache_bytes(1 << 20).hot_rows(&[44]).build().unwrap();
    let changed = words(2, 128, 11);
    for row in [44u64, 45] {
        table.gather_to_vec::<u32>(&[row]).unwrap();
    }
    v.write_bytes(table.view().first + 44 * 512, bytemuck::cast_slice(&changed)).unwrap();
    table.drop_caches().unwrap();
    assert!(table.gather_to_vec::<u32>(&[44u64, 45]).unwrap() == changed);
    // A cancelled engine writes nothing.
    v.engine().cancel().unwrap();
    assert!(table.scatter(&[44u64], &words(1, 128, 9), Combine::Last).is_err());
    v.engine().resume().unwrap();
    assert!(table.gather_to_vec::<u32>(&[44u64, 45]).unwrap() == changed);
}

#[test]
fn a_batch_beside_a_write_has_other_memory_for_its_rows() {
    // Both land in staging memory: rows of the program's own regions.
    let v = volume(&memory(1, 512), LandingChoice::Direct);
    let table = Table::from_rows(&v, "t", &words(400, 128, 0), 128).unwrap();
    let (old, new): (Vec<u64>, Vec<u64>) = (0..400).partition(|row| row % 2 == 0);
    let rows = v.engine().allocate(Place::Device, 200 * 512).unwrap();
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let out = v.engine().allocate(Place::Device, 200 * 512).unwrap();
            let stored = words(400, 128, 0);
            let rows = old.iter().map(|row| &stored[*row as usize * 128..][..128]);
            let model: Vec<u32> = rows.flatten().copied().collect();
            for _ in 0..30 {
                table.gather(&old, &out).unwrap();
                let found = out.get_slice::<u32>(0, 200 * 128).unwrap();
                assert!(found == model, "a row that nobody wrote has changed");
            }
        });
        for round in 1..30 {
            let version = words(200, 128, round);
            rows.set_slice(0, &version).unwrap();
            table.scatter(&new, &rows, Combine::Last).unwrap();
            assert!(table.gather_to_vec::<u32>(&new).unwrap() == version, "round {round}");
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_write_that_was_told_to_stop_is_an_error() {
    for each in [100, 128] {
        let v = volume(&["soft:mem:1M,latency=1ms".to_owned()], LandingChoice::Direct);
        let table = Table::from_rows(&v, "t", &words(300, each, 3), each).unwrap();
        let every: Vec<u64> = (0..300).collect();
        let mut stopped = 0;
        for round in 0..1000 {
            let new = words(300, each, round);
            let wrote = std::thread::scope(|threads| {
                threads.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_micros(u64::from(round % 40) * 100));
                    v.engine().stop_runs().unwrap();
                });
                table.scatter(&every, &new, Combine::Last)
            });
            match wrote {
                Ok(()) => assert!(table.gather_to_vec::<u32>(&every).unwrap() == new, "round {round} lost rows"),
                Err(_) => stopped += 1,
            }
            if stopped > 4 {
                break;
            }
        }
        assert!(stopped > 0, "no write was stopped");
    }
}

#[test]
fn rows_have_two_copies_on_a_replicated_volume() {
    for each in [128u64, 100] {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|n| folder.path().join(n));
        paths.iter().for_each(|path| std::fs::write(path, vec![0; 1 << 20]).unwrap());
        let open = |faults: [&str; 2], landing| {
            let specs = [0, 1].map(|i| format!("soft:{}{}", paths[i].display(), faults[i]));
            on(&specs, landing).replicated(true).build().unwrap()
        };
        let mut model = words(300, each, 3);
        drop(Table::from_rows(&open(["", ""], LandingChoice::Direct), "t", &model, each).unwrap());
        let every: Vec<u64> = (0..300).collect();
        for (round, landing) in [LandingChoice::Direct, LandingChoice::Bounce].into_iter().enumerate() {
            // Rows begin at LBA 256. Each copy has blocks that only the other one can read.
            let v = open([",media-error=read:300-310", ",media-error=read:330-340"], landing);
            let table = Table::open(&v, "t").build().unwrap();
            assert!(table.gather_to_vec::<u32>(&every).unwrap() == model, "{each}");
            model = words(300, each, 20 + round as u32);
            table.scatter(&every, &model, Combine::Last).unwrap();
            table.flush().unwrap();
            assert!(table.gather_to_vec::<u32>(&every).unwrap() == model, "{each}");
        }
        // Both copies have the rows that were written.
        for faults in [[",media-error=read:256-500", ""], ["", ",media-error=read:256-500"]] {
            let v = open(faults, LandingChoice::Direct);
            let table = Table::open(&v, "t").build().unwrap();
            assert!(table.gather_to_vec::<u32>(&every).unwrap() == model, "{each}");
        }
    }
}
