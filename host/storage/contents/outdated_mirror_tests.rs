//! Copies that missed writes, and superblocks that cannot be read: an outdated copy is left out or the volume refuses;
//! only a repair, or a complete new store, brings it back.

use super::plan::Plan;
use crate::engine::Engine;
use crate::remedy::Remedies;
use crate::storage::cache::Cache;
use crate::storage::disk::Drive;
use crate::storage::error::{ManifestError, StorageError};
use crate::storage::volume::Volume;
use std::path::PathBuf;

const BYTES: u64 = 4 << 20;
const COUNT: u64 = 20_000;
/// A block of the superblocks that cannot be read.
const UNREAD: &str = ",media-error=read:11";
/// No block of the data can be written.
const NO_WRITES: &str = ",media-error=write:128-8191";

struct Mirrors {
    paths: Vec<PathBuf>,
    _folder: tempfile::TempDir,
}

impl Mirrors {
    fn new(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..count).map(|i| folder.path().join(format!("{i}.img"))).collect();
        paths.iter().for_each(|p| std::fs::File::create(p).unwrap().set_len(BYTES).unwrap());
        Self { paths, _folder: folder }
    }

    /// Makes copies with two states of an array, of which copy 0 has missed the second.
    fn outdated(count: usize) -> Self {
        let copies = Self::new(count);
        store(&copies.open(&[]), &values(1));
        let v = copies.open(&[NO_WRITES]);
        store(&v, &values(2));
        assert_eq!(lost(&v), [0]);
        copies
    }

    fn open(&self, faults: &[&str]) -> Volume {
        let spec = |(i, p): (usize, &PathBuf)| format!("soft:{}{}", p.display(), faults.get(i).unwrap_or(&""));
        let drives = self.paths.iter().enumerate().map(|i| Drive::open(&spec(i)).unwrap()).collect::<Vec<_>>();
        let engine = Engine::builder().threads(2).cpu().unwrap();
        Volume::on(&engine, drives).replicated(true).chunk(4096).page_checksums(true).build().unwrap()
    }

    fn held(&self) -> Vec<Vec<u8>> {
        self.paths.iter().map(|p| std::fs::read(p).unwrap()).collect()
    }

    fn holds(&self, copy: usize, values: &[u64]) -> bool {
        let held = std::fs::read(&self.paths[copy]).unwrap();
        let bytes: &[u8] = bytemuck::cast_slice(values);
        (0..held.len()).step_by(64 << 10).any(|at| held[at..].starts_with(bytes))
    }
}

fn values(seed: u64) -> Vec<u64> {
    (0..COUNT).map(|i| (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

fn store(v: &Volume, values: &[u64]) {
    v.store_array("ids", values).unwrap();
}

fn add(v: &Volume, name: &str) {
    let mut writer = v.add(Plan::new().array::<u64>(name, 3), "it").unwrap();
    writer.append(name, &[7u64; 3]).unwrap();
    writer.finish().unwrap();
}

fn read(v: &Volume) -> Vec<u64> {
    let cache = Cache::on(v).bytes(128 << 10).build().unwrap();
    let by_kernels = cache.open::<u64>("ids").unwrap().read(0..COUNT).unwrap();
    assert!(v.read_array::<u64>("ids").unwrap() == by_kernels);
    by_kernels
}

fn lost(v: &Volume) -> Vec<usize> {
    v.redundancy().unwrap().lost.iter().map(|l| l.device).collect()
}

#[test]
fn an_outdated_copy_that_cannot_be_read_is_left_out_and_named() {
    for count in [2, 3] {
        let copies = Mirrors::outdated(count);
        let v = copies.open(&[UNREAD]);
        assert!(read(&v) == values(2));
        let r = v.redundancy().unwrap();
        assert!(r.lost.len() == 1 && r.lost[0].reason.contains("its superblock cannot be read: "), "{r}");
        // A store in this state does not make it a member.
        add(&v, "more");
        v.remove(&["more"]).unwrap();
        v.flush().unwrap();
        drop(v);
        let v = copies.open(&[]);
        assert!(read(&v) == values(2) && lost(&v) == [0]);
    }
}

#[test]
fn an_older_generation_is_not_taken_for_the_newest() {
    for count in [2, 3] {
        let copies = Mirrors::outdated(count);
        let before = copies.held();
        let mut faults = vec![UNREAD; count];
        faults[0] = "";
        let v = copies.open(&faults);
        let doubts = [v.manifest().unwrap_err(), v.verify(true).unwrap_err(), v.read_array::<u64>("ids").unwrap_err()];
        for e in doubts.iter().chain([&v.store(Plan::new().array::<u8>("b", 1), "it").unwrap_err()]) {
            let StorageError::Unread { copies: unread, newest, .. } = e else { panic!("{e}") };
            assert!(unread[0].ends_with("1.img,media-error=read:11") && unread.len() == count - 1, "{e}");
            assert!(newest.as_ref().is_some_and(|(name, _)| name.ends_with("0.img")), "{e}");
            assert!(e.to_string().contains("newer data than generation") && e.to_string().contains("0.img"), "{e}");
            assert!(e.remedies()[0].to_string() == "try again" && e.remedies().len() == 2);
        }
        v.flush().unwrap();
        drop(v);
        assert!(copies.held() == before, "a refused volume was written to");
        let v = copies.open(&[]);
        assert!(read(&v) == values(2) && lost(&v) == [0]);
    }
}

#[test]
fn superblocks_that_cannot_be_read_are_not_taken_for_empty() {
    let copies = Mirrors::outdated(2);
    let before = copies.held();
    let v = copies.open(&[UNREAD; 2]);
    for e in [v.manifest().unwrap_err(), v.verify(false).unwrap_err(), v.add(Plan::new(), "it").unwrap_err()] {
        let StorageError::Unread { newest: None, copies, .. } = &e else { panic!("{e}") };
        assert!(copies.len() == 2 && e.to_string().contains("it is unknown what is stored there"), "{e}");
    }
    drop(v);
    assert!(copies.held() == before);
    // One drive is no different.
    let drive = Drive::open(&format!("soft:{}{UNREAD}", copies.paths[1].display())).unwrap();
    let v = Volume::on(&Engine::builder().threads(2).cpu().unwrap(), [drive]).build().unwrap();
    let e = v.store(Plan::new().array::<u8>("b", 1), "it").unwrap_err();
    assert!(matches!(e, StorageError::Nvme(_)), "{e}");
}

/// Page checksums of an outdated copy match its data. The intact copy must not be repaired from it.
#[test]
fn a_repair_writes_nothing_over_the_copy_that_is_right() {
    let copies = Mirrors::outdated(2);
    let v = copies.open(&[UNREAD]);
    assert!(read(&v) == values(2));
    v.flush().unwrap();
    drop(v);
    let v = copies.open(&[]);
    assert_eq!(lost(&v), [0]);
    let found = v.verify(true).unwrap();
    assert!(found.is_intact() && found.restored.len() == 1 && found.restored[0].ends_with("0.img"), "{found:?}");
    assert!(lost(&v).is_empty() && read(&v) == values(2));
    drop(v);
    assert!(copies.holds(0, &values(2)) && copies.holds(1, &values(2)));
    // It is a member now: the other one may be left out.
    let v = copies.open(&["", NO_WRITES]);
    store(&v, &values(3));
    assert_eq!(lost(&v), [1]);
    drop(v);
    assert!(read(&copies.open(&["", UNREAD])) == values(3));
}

#[test]
fn a_superblock_that_is_damaged_on_the_way_hides_nothing() {
    let copies = Mirrors::outdated(2);
    // Wherever the bit is, it is the newest superblock, an older one, the commit or zeros.
    for block in [0, 1, 55, 56, 64, 65, 119, 120, 127] {
        for faults in [["", ",corrupt=read:"], [",corrupt=read:", ""]] {
            let faults = faults.map(|f| if f.is_empty() { String::new() } else { format!("{f}{block}") });
            let v = copies.open(&[&faults[0], &faults[1]]);
            match v.read_array::<u64>("ids") {
                Ok(found) => assert!(found == values(2), "{faults:?}"),
                Err(e) => assert!(!faults[1].is_empty(), "{faults:?}: {e}"),
            }
        }
    }
}

#[test]
fn a_failure_that_passes_does_no_harm() {
    let copies = Mirrors::outdated(2);
    // The device's first read is that of the superblocks; the next one is right.
    for every in [1, 2, 3] {
        let fault = format!(",corrupt=read:every:{every}");
        let v = copies.open(&["", &fault]);
        match v.read_array::<u64>("ids") {
            Ok(found) => assert!(found == values(2)),
            Err(e) => assert!(every < 3, "every {every}: {e}"),
        }
    }
}

#[test]
fn an_empty_device_replaces_a_copy_and_the_replaced_one_is_refused() {
    let copies = Mirrors::outdated(2);
    let away = copies.paths[1].with_extension("away");
    std::fs::rename(&copies.paths[1], &away).unwrap();
    std::fs::File::create(&copies.paths[1]).unwrap().set_len(BYTES).unwrap();
    let v = copies.open(&[]);
    assert!(read(&v) == values(1) && lost(&v) == [1], "the user gives up what the other copy held");
    v.flush().unwrap();
    drop(v);
    let empty = std::fs::read(&copies.paths[1]).unwrap();
    std::fs::rename(&away, &copies.paths[1]).unwrap();
    let e = copies.open(&[]).manifest().unwrap_err();
    assert!(matches!(&e, StorageError::Manifest { source: ManifestError::Diverged { .. }, .. }), "{e}");
    std::fs::write(&copies.paths[1], &empty).unwrap();
    let v = copies.open(&[]);
    assert!(v.verify(true).unwrap().restored.len() == 1 && lost(&v).is_empty());
    drop(v);
    assert!(copies.holds(1, &values(1)));
    // Another volume's drive in its place is neither read nor written.
    std::fs::write(&copies.paths[1], [&[1; 512][..], &empty[512..]].concat()).unwrap();
    let v = copies.open(&[]);
    let found = v.verify(true).unwrap();
    assert!(found.restored.is_empty() && lost(&v) == [1] && read(&v) == values(1), "{found:?}");
    drop(v);
    assert!(std::fs::read(&copies.paths[1]).unwrap()[..512] == [1; 512]);
}

#[test]
fn a_store_that_is_not_finished_does_not_bring_a_copy_back() {
    let copies = Mirrors::outdated(2);
    let v = copies.open(&[]);
    let mut writer = v.store(Plan::new().array::<u64>("others", COUNT), "it").unwrap();
    assert!(writer.keeps_old());
    writer.append("others", &values(5)[..10_000]).unwrap();
    assert!(read(&v) == values(2), "old data is read from a copy that has it");
    v.flush().unwrap();
    assert!(read(&v) == values(2));
    drop(writer);
    v.flush().unwrap();
    drop(v);
    let v = copies.open(&[]);
    assert!(read(&v) == values(2) && lost(&v) == [0]);
    store(&v, &values(3));
    assert!(lost(&v).is_empty() && read(&v) == values(3));
    drop(v);
    assert!(copies.holds(0, &values(3)) && lost(&copies.open(&[])).is_empty());
}

#[test]
fn data_that_only_an_outdated_copy_has_is_used_if_its_checksum_proves_it() {
    let copies = Mirrors::new(2);
    let v = copies.open(&[]);
    store(&v, &values(1));
    let at = v.manifest().unwrap().entries()[0].offset;
    drop(v);
    let v = copies.open(&[NO_WRITES]);
    add(&v, "more");
    drop(v);
    // The array is damaged on the only copy in use, and the outdated one still has it.
    let mut held = std::fs::read(&copies.paths[1]).unwrap();
    held[at as usize + 5000] ^= 1;
    std::fs::write(&copies.paths[1], held).unwrap();
    let v = copies.open(&[]);
    assert!(lost(&v) == [0] && v.read_array::<u64>("ids").is_err());
    let found = v.verify(true).unwrap();
    assert!(found.is_intact() && lost(&v).is_empty() && read(&v) == values(1), "{found:?}");
    assert_eq!(v.read_array::<u64>("more").unwrap(), [7; 3]);
}
