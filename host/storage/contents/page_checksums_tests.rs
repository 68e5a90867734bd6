//! Pages whose data differs from the stored data: detection by reads, location, repair. Also checksums that stay
//! correct over changes.

use super::checksum_table::{Extension, KIND, TablePlace};
use super::plan::Plan;
use super::superblock::Superblock;
use super::verify::{ArrayState, Verification};
use crate::engine::{Engine, Outcome, RunError};
use crate::storage::cache::{Array, Cache};
use crate::storage::disk::Drive;
use crate::storage::error::StorageError;
use crate::storage::volume::{Volume, VolumeBuilder};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const COUNT: u64 = 40_000;
const UNIT: u64 = 4096;

struct Files {
    paths: Vec<PathBuf>,
    values: Vec<u64>,
    _folder: tempfile::TempDir,
}

impl Files {
    fn new(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..count).map(|i| folder.path().join(format!("{i}.img"))).collect();
        paths.iter().for_each(|p| std::fs::File::create(p).unwrap().set_len(4 << 20).unwrap());
        Self { paths, values: (0..COUNT).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect(), _folder: folder }
    }

    fn builder(&self) -> VolumeBuilder {
        let engine = Engine::builder().threads(4).cpu().unwrap();
        let drives: Vec<_> =
            self.paths.iter().map(|p| Drive::open(&format!("soft:{}", p.display())).unwrap()).collect();
        Volume::on(&engine, drives).chunk(8192).replicated(drives_are_copies(&self.paths))
    }

    /// Makes files with the values stored, and with page checksums.
    fn stored(count: usize) -> Self {
        let files = Self::new(count);
        let v = files.builder().page_checksums(true).build().unwrap();
        v.store_array("values", &files.values).unwrap();
        assert!(v.has_page_checksums());
        drop(v);
        files
    }

    fn open(&self) -> Volume {
        self.builder().build().unwrap()
    }

    /// Changes a bit of a drive without the volume's knowledge.
    fn flip(&self, drive: usize, at: u64) {
        let file = std::fs::File::options().read(true).write(true).open(&self.paths[drive]).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    }
}

/// Returns true for two files, which are copies. More files are a stripe.
fn drives_are_copies(paths: &[PathBuf]) -> bool {
    paths.len() == 2
}

fn values(v: &Volume) -> (Cache, Array<u64>) {
    let cache = Cache::on(v).bytes(128 << 10).build().unwrap();
    let array = cache.open::<u64>("values").unwrap();
    (cache, array)
}

fn read(v: &Volume) -> Result<Vec<u64>, StorageError> {
    values(v).1.read(0..COUNT)
}

fn is_damage(e: &StorageError) -> bool {
    let StorageError::Run(RunError::Operations { errors, .. }) = e else { return false };
    errors[0].outcome == Outcome::Damaged && e.to_string().contains("match its stored checksum")
}

fn state(found: &Verification) -> Vec<ArrayState> {
    found.arrays.iter().map(|a| a.state).collect()
}

#[test]
fn a_flipped_bit_anywhere_is_an_error_and_is_located() {
    let files = Files::stored(1);
    let start = files.open().manifest().unwrap().entries()[0].offset;
    for at in [0, 1, 4095, 4096, 100_000, COUNT * 8 - 1] {
        files.flip(0, start + at);
        let v = files.open();
        let e = read(&v).unwrap_err();
        assert!(is_damage(&e), "byte {at}: {e}");
        let found = v.verify(false).unwrap();
        assert!(!found.is_intact() && found.page_checksums, "{found:?}");
        let [d] = &found.damaged[..] else { panic!("{found:?}") };
        assert_eq!((d.offset, d.bytes, d.lba), ((start + at) / UNIT * UNIT, UNIT, (start + at) / UNIT * 8));
        assert!(d.device.contains("0.img") && d.array == "values" && d.error.is_none());
        drop(v);
        // Without checksums the cache returns the damaged data.
        let without = files.builder().page_checksums(false).build().unwrap();
        assert!(read(&without).unwrap() != files.values);
        assert_eq!(state(&without.verify(false).unwrap()), [ArrayState::Damaged]);
        drop(without);
        files.flip(0, start + at);
        let v = files.open();
        assert!(read(&v).unwrap() == files.values && v.verify(false).unwrap().is_intact());
    }
}

#[test]
fn a_stripe_is_compared_too_and_damage_is_one_range_for_each_drive() {
    let files = Files::stored(3);
    let v = files.open();
    let start = v.manifest().unwrap().entries()[0].offset;
    let on_drive = |offset: u64| {
        let (device, lba) = v.disk().stripe.locate(offset >> 9);
        (device, lba << 9)
    };
    // Two of the units are neighbours in one chunk; the third is in the next chunk, which is on another drive.
    for unit in 2..5 {
        let (device, at) = on_drive(start + unit * UNIT);
        files.flip(device, at);
    }
    assert!(is_damage(&read(&v).unwrap_err()));
    let found = v.verify(false).unwrap();
    let ranges: Vec<_> = found.damaged.iter().map(|d| (d.offset - start, d.bytes)).collect();
    assert_eq!(ranges, [(2 * UNIT, 2 * UNIT), (4 * UNIT, UNIT)]);
    assert!(found.damaged[0].device != found.damaged[1].device);
}

#[test]
fn another_copy_has_what_one_gives_wrong() {
    for bad in [0, 1] {
        let files = Files::stored(2);
        let v = files.open();
        let start = v.manifest().unwrap().entries()[0].offset;
        files.flip(bad, start + 9 * UNIT);
        // This unit is in the next chunk, which is read from the other copy.
        files.flip(bad, start + 11 * UNIT);
        assert!(read(&v).unwrap() == files.values, "copy {bad}");
        v.flush().unwrap();
        let r = v.redundancy().unwrap();
        assert!(r.redirected_reads == 1 && r.pending_repairs == 0 && r.lost.is_empty(), "{r}");
        let found = v.verify(true).unwrap();
        assert!(found.is_intact() && found.arrays.len() == 2, "{found:?}");
        assert!(v.verify(false).unwrap().damaged.is_empty());
        drop(v);
        for path in &files.paths {
            let held = std::fs::read(path).unwrap();
            assert!(held[start as usize..][..COUNT as usize * 8] == *bytemuck::cast_slice::<u64, u8>(&files.values));
        }
    }
}

#[test]
fn copies_that_are_damaged_in_different_places_repair_each_other() {
    let files = Files::stored(2);
    let v = files.open();
    let start = v.manifest().unwrap().entries()[0].offset;
    files.flip(0, start + 3 * UNIT);
    files.flip(1, start + 5 * UNIT);
    assert_eq!(state(&v.verify(false).unwrap()), [ArrayState::Damaged; 2]);
    let repaired = v.verify(true).unwrap();
    assert!(state(&repaired) == [ArrayState::Repaired; 2] && repaired.repaired_bytes == 2 * UNIT, "{repaired:?}");
    assert_eq!(state(&v.verify(false).unwrap()), [ArrayState::Intact; 2]);
    // Damage in the same unit of both copies leaves nothing to repair from.
    files.flip(0, start + 3 * UNIT);
    files.flip(1, start + 3 * UNIT + 1);
    assert!(is_damage(&read(&v).unwrap_err()));
    assert_eq!(state(&v.verify(true).unwrap()), [ArrayState::Damaged; 2]);
}

#[test]
fn a_whole_copy_repairs_another_one_without_page_checksums() {
    let files = Files::new(2);
    let v = files.open();
    v.store_array("values", &files.values).unwrap();
    assert!(!v.has_page_checksums());
    let start = v.manifest().unwrap().entries()[0].offset;
    files.flip(1, start + 3 * UNIT);
    files.flip(1, start + COUNT * 8 - 1);
    assert_eq!(state(&v.verify(false).unwrap()), [ArrayState::Intact, ArrayState::Damaged]);
    let repaired = v.verify(true).unwrap();
    assert!(state(&repaired) == [ArrayState::Intact, ArrayState::Repaired] && repaired.repaired_bytes == 2 * UNIT);
    assert_eq!(state(&v.verify(false).unwrap()), [ArrayState::Intact; 2]);
}

#[test]
fn what_is_written_through_a_cache_has_new_checksums() {
    for copies in [1, 2] {
        let files = Files::stored(copies);
        let v = files.open();
        let (cache, array) = values(&v);
        let new: Vec<u64> = (0..20_000u64).map(|i| i * 3 + 1).collect();
        array.write(5_000, &new).unwrap();
        cache.flush().unwrap();
        let start = v.manifest().unwrap().entries()[0].offset;
        drop((array, cache, v));
        let v = files.open();
        let mut all = files.values.clone();
        all[5_000..25_000].copy_from_slice(&new);
        assert!(read(&v).unwrap() == all);
        assert!(state(&v.verify(false).unwrap()).iter().all(|s| *s == ArrayState::Changed));
        drop(v);
        // One byte is among those that were written, and one among the others.
        for at in [10_000 * 8, 30_000 * 8] {
            (0..copies).for_each(|drive| files.flip(drive, start + at));
            let v = files.open();
            assert!(is_damage(&read(&v).unwrap_err()), "{at}");
            assert!(!v.verify(false).unwrap().is_intact());
            (0..copies).for_each(|drive| files.flip(drive, start + at));
        }
        // Once the changes are accepted, the array has a checksum of its own again.
        let v = files.open();
        v.accept_changes().unwrap();
        assert!(state(&v.verify(false).unwrap()).iter().all(|s| *s == ArrayState::Intact));
    }
}

#[test]
fn what_is_written_beside_the_cache_is_not_compared_until_it_is_accepted() {
    let files = Files::stored(1);
    let v = files.open();
    let start = v.manifest().unwrap().entries()[0].offset;
    // Kernels write half a unit, the host writes three units and a part of one.
    let buffer = v.allocate_data(2048).unwrap();
    buffer.write(0, &[7; 2048]).unwrap();
    v.start_write((start + 2 * UNIT) >> 9, 4, 1, &buffer).unwrap().finish_within(LIMIT).unwrap();
    v.write_bytes(start + 8 * UNIT - 100, &vec![9; 3 * UNIT as usize + 100]).unwrap();
    // The table ends with the arrays, so this write is beyond it.
    v.write_blocks(v.blocks() - 9, &[1; 9 * 512]).unwrap();
    let known = |v: &Volume, unit: u64| v.disk().page_checksums.is_known(start + unit * UNIT).unwrap();
    let check = |v: &Volume, expected: &[(u64, bool)]| {
        expected.iter().for_each(|(unit, is)| assert_eq!(known(v, *unit), *is, "unit {unit}"));
    };
    check(&v, &[(1, true), (2, false), (3, true), (7, false), (8, true), (10, true), (11, true)]);
    let held = read(&v).unwrap();
    v.flush().unwrap();
    drop((buffer, v));
    let v = files.open();
    assert!(read(&v).unwrap() == held);
    check(&v, &[(1, true), (2, false), (7, false), (8, true)]);
    v.accept_changes().unwrap();
    check(&v, &[(2, true), (7, true)]);
    drop(v);
    files.flip(0, start + 2 * UNIT);
    assert!(is_damage(&read(&files.open()).unwrap_err()));
}

#[test]
fn checksums_of_data_that_was_being_changed_are_not_used() {
    let files = Files::stored(1);
    let v = files.open();
    let entry = v.manifest().unwrap().entries()[0].clone();
    v.write_bytes(entry.offset + UNIT, &[1; 4096]).unwrap();
    v.flush().unwrap();
    // A second change is marked again, and is not flushed.
    v.write_bytes(entry.offset + 2 * UNIT, &[2; 4096]).unwrap();
    let file = std::fs::read(&files.paths[0]).unwrap();
    drop(v);
    std::fs::write(&files.paths[0], file).unwrap();
    let v = files.open();
    let held = read(&v).unwrap();
    assert!(!v.has_page_checksums(), "a program ended between write and flush");
    assert_eq!(held[1024..1536], [0x0202_0202_0202_0202; 512]);
    v.accept_changes().unwrap();
    assert!(v.has_page_checksums());
    drop(v);
    files.flip(0, entry.offset + 2 * UNIT);
    let v = files.open();
    assert!(is_damage(&read(&v).unwrap_err()));
}

#[test]
fn who_does_not_use_checksums_and_changes_data_drops_them() {
    let files = Files::stored(1);
    let v = files.builder().page_checksums(false).build().unwrap();
    assert!(read(&v).unwrap() == files.values && !v.has_page_checksums());
    v.flush().unwrap();
    drop(v);
    let v = files.open();
    v.manifest().unwrap();
    assert!(v.has_page_checksums(), "reading changes nothing");
    drop(v);
    let v = files.builder().page_checksums(false).build().unwrap();
    let start = v.manifest().unwrap().entries()[0].offset;
    v.write_bytes(start, &[5; 512]).unwrap();
    v.flush().unwrap();
    drop(v);
    let v = files.open();
    assert!(read(&v).is_ok() && !v.has_page_checksums());
}

#[test]
fn arrays_are_stored_as_those_before_them_and_the_table_has_room() {
    let files = Files::stored(1);
    let v = files.open();
    v.store_array("others", &files.values[..1000]).unwrap();
    assert!(v.has_page_checksums());
    let manifest = v.manifest().unwrap();
    assert!(manifest.end() > manifest.arrays_end());
    drop(v);
    let v = files.builder().page_checksums(false).build().unwrap();
    v.store_array("values", &files.values).unwrap();
    drop(v);
    let v = files.open();
    assert!(read(&v).is_ok() && !v.has_page_checksums());
    let plan = Plan::new().array::<u64>("values", COUNT);
    let with = plan.clone().page_checksums(true);
    assert_eq!(with.bytes() - plan.bytes(), 65_536);
    assert!(with.bytes_for_each(3, 8192) > plan.bytes_for_each(3, 8192));
    // A volume that has space for the arrays, but not for the table, is too small.
    let spec = format!("soft:mem:{}", plan.bytes());
    let v = Volume::on(&Engine::cpu().unwrap(), [Drive::open(&spec).unwrap()]).page_checksums(true).build().unwrap();
    assert!(matches!(v.store(plan, "it").unwrap_err(), StorageError::Capacity { .. }));
}

#[test]
fn small_pages_are_refused_with_a_remedy() {
    let files = Files::stored(1);
    let v = files.open();
    let cache = Cache::on(&v).page(2048).build().unwrap();
    let text = cache.open::<u64>("values").unwrap_err().to_string();
    assert!(text.contains("pages of 2048 bytes") && text.contains("use a page of 4096 or more"), "{text}");
    drop((cache, v));
    let v = files.builder().page_checksums(false).build().unwrap();
    let cache = Cache::on(&v).page(2048).build().unwrap();
    assert!(cache.open::<u64>("values").unwrap().read(0..COUNT).unwrap() == files.values);
}

#[test]
fn blocks_that_cannot_be_read_are_located() {
    let files = Files::stored(1);
    let start = files.open().manifest().unwrap().entries()[0].offset;
    let bad = (start + 6 * UNIT) >> 9;
    let spec = format!("soft:{},media-error=read:{}-{}", files.paths[0].display(), bad + 1, bad + 9);
    let v = Volume::on(&Engine::cpu().unwrap(), [Drive::open(&spec).unwrap()]).build().unwrap();
    let found = v.verify(false).unwrap();
    let [d] = &found.damaged[..] else { panic!("{found:?}") };
    assert_eq!((d.offset, d.bytes, state(&found)), (start + 6 * UNIT, 2 * UNIT, vec![ArrayState::Damaged]));
    assert!(
        d.error.as_ref().is_some_and(|e| e.contains("unrecovered read error") || e.contains("Unrecovered")),
        "{d:?}"
    );
}

#[test]
fn a_table_that_contradicts_itself_is_refused() {
    let parse = |at: u64, count: u64| {
        let bytes = [at.to_le_bytes(), count.to_le_bytes()].concat();
        TablePlace::parse(&Extension { kind: KIND, bytes }, 1 << 17)
    };
    let place = parse(1 << 17, 32).unwrap();
    assert_eq!((place.entries(), place.end()), (32, (1 << 17) + (1 << 16)));
    assert_eq!(TablePlace::parse(&place.extension(), 1 << 17), Ok(place));
    // These lie within the arrays, where no array could end, have another number of entries, or lie beyond any volume.
    for (at, count) in [(1 << 16, 16), ((1 << 17) + 4096, 33), (1 << 17, 31), (u64::MAX, u64::MAX / 4096)] {
        assert!(parse(at, count).is_err(), "{at} {count}");
    }
    let far = u64::MAX - 65_535;
    assert_eq!(parse(far, far / 4096).unwrap().end(), u64::MAX);
    for bytes in [0, 7, 8, 15] {
        assert!(TablePlace::parse(&Extension { kind: KIND, bytes: vec![0; bytes] }, 0).is_err());
    }
}

/// Returns the first byte of the table, and the place of the entry for a unit.
fn table_of(v: &Volume, unit_at: u64) -> (u64, u64) {
    let at = v.contents().current().unwrap().block.manifest.checksum_table().unwrap().at;
    (at, at + unit_at / UNIT * 4)
}

/// Returns true if arrays are compared, all are right, and nothing is wrong with the checksums.
fn is_well(v: &Volume, values: &[u64]) -> bool {
    let found = v.verify(false).unwrap();
    read(v).unwrap() == values && v.has_page_checksums() && found.is_intact() && found.wrong_checksums == 0
}

#[test]
fn a_damaged_table_is_not_used_and_is_computed_again() {
    for copies in [1, 2, 3] {
        let files = Files::stored(copies);
        let v = files.open();
        let start = v.manifest().unwrap().entries()[0].offset;
        let (_, at) = table_of(&v, start + 3 * UNIT);
        for drive in 0..copies {
            let (on, lba) = v.disk().stripe.locate(at >> 9);
            if copies == 2 || on == drive {
                files.flip(drive, (lba << 9) + at % 512);
            }
        }
        drop(v);
        let v = files.open();
        assert!(read(&v).unwrap() == files.values, "the data is right");
        assert!(!v.has_page_checksums());
        let found = v.verify(false).unwrap();
        assert!(!found.is_intact() && found.wrong_checksums > 0 && found.damaged.is_empty(), "{found:?}");
        let found = v.verify(true).unwrap();
        assert!(found.is_intact() && found.rebuilt_checksums == found.wrong_checksums, "{found:?}");
        assert!(is_well(&v, &files.values));
        drop(v);
        assert!(is_well(&files.open(), &files.values));
    }
}

#[test]
fn a_table_that_is_damaged_on_one_copy_is_read_from_the_other() {
    for bad in [0, 1] {
        let files = Files::stored(2);
        let v = files.open();
        let start = v.manifest().unwrap().entries()[0].offset;
        files.flip(bad, table_of(&v, start + 3 * UNIT).1);
        drop(v);
        let v = files.open();
        assert!(read(&v).unwrap() == files.values && v.has_page_checksums());
        let found = v.verify(false).unwrap();
        assert!(!found.is_intact() && found.wrong_checksums > 0, "{found:?}");
        assert!(v.verify(true).unwrap().is_intact() && is_well(&v, &files.values));
    }
}

#[test]
fn a_bit_that_flips_while_an_import_reads_the_table_is_not_stored() {
    let files = Files::stored(1);
    let v = files.open();
    let start = v.manifest().unwrap().entries()[0].offset;
    let lba = table_of(&v, start + 3 * UNIT).1 >> 9;
    drop(v);
    let spec = format!("soft:{},corrupt=read:{lba}", files.paths[0].display());
    let v = Volume::on(&Engine::cpu().unwrap(), [Drive::open(&spec).unwrap()]).build().unwrap();
    let mut writer = v.add(Plan::new().array::<u64>("more", 3), "it").unwrap();
    writer.append("more", &[7u64; 3]).unwrap();
    writer.finish().unwrap();
    drop(v);
    let v = files.open();
    assert!(read(&v).unwrap() == files.values, "an intact array fails");
    assert!(v.verify(true).unwrap().is_intact() && is_well(&v, &files.values));
}

#[test]
fn tables_of_earlier_versions_are_used_and_repaired() {
    let files = Files::stored(1);
    let v = files.open();
    let content = v.contents().current().unwrap();
    let mut next = Superblock { generation: content.latest + 1, ..content.block.clone() };
    next.manifest.set_extension(content.block.manifest.checksum_table().unwrap().extension());
    v.contents().publish(next, 1 - content.slot).unwrap();
    let start = v.manifest().unwrap().entries()[0].offset;
    let at = table_of(&v, start + 3 * UNIT).1;
    drop(v);
    assert!(is_well(&files.open(), &files.values));
    files.flip(0, at);
    let v = files.open();
    assert!(is_damage(&read(&v).unwrap_err()), "the table has no checksum");
    let found = v.verify(false).unwrap();
    assert!((found.wrong_checksums, state(&found)) == (1, vec![ArrayState::Intact]) && !found.is_intact(), "{found:?}");
    assert!(v.verify(true).unwrap().is_intact() && is_well(&v, &files.values));
    drop(v);
    assert!(is_well(&files.open(), &files.values));
}

#[test]
fn added_and_removed_arrays_leave_the_table_valid() {
    let files = Files::stored(1);
    let add = |v: &Volume, name: &str| {
        let mut writer = v.add(Plan::new().array::<u64>(name, 5000), "it").unwrap();
        writer.append(name, &files.values[..5000]).unwrap();
        writer.finish().unwrap();
    };
    let v = files.open();
    add(&v, "more");
    add(&v, "others");
    drop(v);
    let v = files.open();
    v.remove(&["more"]).unwrap();
    assert!(is_well(&v, &files.values));
    drop(v);
    let v = files.open();
    assert!(is_well(&v, &files.values));
    // An array in the gap is described by the same table. A program that ends before the manifest leaves it valid.
    let before = std::fs::read(&files.paths[0]).unwrap();
    add(&v, "more");
    drop(v);
    let mut torn = std::fs::read(&files.paths[0]).unwrap();
    torn[..64 << 10].copy_from_slice(&before[..64 << 10]);
    std::fs::write(&files.paths[0], torn).unwrap();
    assert!(is_well(&files.open(), &files.values));
}
