//! Stored arrays after crashes, with other layouts, and after changes.

use super::plan::Plan;
use crate::engine::Engine;
use crate::storage::cache::Cache;
use crate::storage::disk::Drive;
use crate::storage::element::Element;
use crate::storage::volume::{Volume, VolumeBuilder};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

struct Files {
    paths: Vec<PathBuf>,
    folder: tempfile::TempDir,
}

impl Files {
    fn new(count: usize, bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..count).map(|i| folder.path().join(format!("{i}.img"))).collect();
        paths.iter().for_each(|p| std::fs::File::create(p).unwrap().set_len(bytes).unwrap());
        Self { paths, folder }
    }

    fn on(&self, drives: &[usize], options: &str) -> VolumeBuilder {
        let open = |i: &usize| Drive::open(&format!("soft:{}{options}", self.paths[*i].display())).unwrap();
        Volume::on(&engine(), drives.iter().map(open).collect::<Vec<_>>())
    }
}

/// Returns an engine of few threads on any machine, which is enough for these tests.
fn engine() -> Engine {
    Engine::builder().threads(2).cpu().unwrap()
}

fn values(seed: u64, count: u64) -> Vec<u64> {
    (0..count).map(|i| (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

#[test]
fn another_layout_is_refused_with_both() {
    let files = Files::new(3, 4 * MIB);
    let ids = values(1, 100_000);
    files.on(&[0, 1], "").chunk(131_072).build().unwrap().store_array("ids", &ids).unwrap();
    let opened = |drives: &[usize], chunk, copies| {
        let v = files.on(drives, "").chunk(chunk).replicated(copies).build().unwrap();
        let cache = Cache::on(&v).bytes(MIB).build().unwrap();
        cache.open::<u64>("ids").map(|a| a.read(0..100_000).unwrap()).map_err(|e| e.to_string())
    };
    assert_eq!(opened(&[0, 1], 131_072, false).as_ref(), Ok(&ids));
    let two = "was stored over 2 drives in chunks of 131072 bytes, and is opened ";
    for (drives, chunk, copies, asked) in [
        (&[0, 1][..], 65_536, false, "over 2 drives in chunks of 65536 bytes"),
        (&[0], 131_072, false, "on one drive"),
        (&[1], 131_072, false, "on one drive"),
        (&[0, 1, 2], 131_072, false, "over 3 drives in chunks of 131072 bytes"),
        (&[0, 1], 131_072, true, "as 2 copies"),
    ] {
        let text = opened(drives, chunk, copies).unwrap_err();
        assert!(text.contains(&format!("{two}{asked}")), "{text}");
    }
    let text = opened(&[1, 0], 131_072, false).unwrap_err();
    assert!(text.contains("1.img as drive 2 of 2, and is opened with it as drive 1"), "{text}");
    let text = opened(&[0, 2], 131_072, false).unwrap_err();
    assert!(text.contains("2.img belongs to another volume"), "{text}");
}

/// Returns the contents of both states of a volume.
fn contents() -> [(Vec<u64>, Vec<u8>); 2] {
    [(values(7, 900), vec![1; 3000]), (values(8, 700), vec![2; 6000])]
}

fn store(v: &Volume, content: &(Vec<u64>, Vec<u8>)) -> Result<(), crate::storage::StorageError> {
    let plan = Plan::new().array::<u64>("ids", content.0.len() as u64).array::<u8>("flags", content.1.len() as u64);
    let mut writer = v.store(plan, "it")?;
    writer.append("ids", &content.0)?;
    writer.append("flags", &content.1)?;
    writer.finish().map(drop)
}

/// Returns the index of the state that a volume holds, or `None` if it has no manifest.
fn held(v: &Volume) -> Option<usize> {
    match v.manifest() {
        Err(e) if e.to_string().contains("no manifest") => return None,
        other => other.map(drop).unwrap(),
    }
    let found = (v.read_array::<u64>("ids").unwrap(), v.read_array::<u8>("flags").unwrap());
    let which = contents().iter().position(|c| *c == found);
    Some(which.expect("a mixture"))
}

/// Stores new content over old, cut off after each block that is written. Returns the state that each cut leaves.
fn crashes(drives: usize, copies: bool, bytes: u64) -> Vec<Option<usize>> {
    let files = Files::new(drives, bytes);
    let work = Files {
        paths: files.paths.iter().map(|p| p.with_extension("work")).collect(),
        folder: tempfile::tempdir().unwrap(),
    };
    // Each command is one block, so that a cut falls between two blocks.
    let open = |f: &Files, faults: &[String]| {
        let spec = |(i, p): (usize, &PathBuf)| {
            let fault = faults.get(i).map_or("", String::as_str);
            Drive::open(&format!("soft:{},block=4096{fault}", p.display()))
        };
        let drives: Vec<_> = f.paths.iter().enumerate().map(spec).collect::<Result<_, _>>()?;
        Volume::on(&engine(), drives).chunk(8192).replicated(copies).host_command_bytes(4096).build()
    };
    let [old, new] = contents();
    store(&open(&files, &[]).unwrap(), &old).unwrap();
    let mut seen = Vec::new();
    let mut before = Vec::new();
    // The volume reads the superblocks before the first write; those of copies also when it opens.
    let reads = if copies { 32 } else { 16 };
    for cut in reads.. {
        files.paths.iter().zip(&work.paths).for_each(|(from, to)| assert!(std::fs::copy(from, to).is_ok()));
        // All drives stop at once, as for a killed process: the first drive that is gone ends the store.
        let fault = vec![format!(",disappear=after:{cut}"); drives];
        let stored = open(&work, &fault).and_then(|v| store(&v, &new)).is_ok();
        let bytes: Vec<_> = work.paths.iter().map(|p| std::fs::read(p).unwrap()).collect();
        if !stored && bytes == before {
            // The cut fell on a read.
            continue;
        }
        before = bytes;
        let left = open(&work, &[]).unwrap();
        seen.push(held(&left));
        store(&left, &new).unwrap();
        assert_eq!(held(&left), Some(1), "stored again after cut {cut}");
        if stored {
            assert_eq!(*seen.last().unwrap(), Some(1));
            break;
        }
    }
    drop(files.folder);
    seen
}

#[test]
fn a_crash_leaves_the_old_content_or_the_new() {
    for (drives, copies) in [(1, false), (2, false), (2, true)] {
        let seen = crashes(drives, copies, MIB);
        assert!(seen.len() > 3 && seen.iter().all(Option::is_some), "{drives} {copies}: {seen:?}");
        assert!(seen.is_sorted(), "{drives} {copies}: {seen:?}");
        assert_eq!((seen[0], seen[seen.len() - 1]), (Some(0), Some(1)));
    }
}

#[test]
fn without_room_for_both_a_crash_leaves_one_of_them_or_none() {
    // The arrays of either state take two parts of 64 KiB.
    let seen = crashes(1, false, 192 << 10);
    assert!(seen.len() > 3 && seen.contains(&None), "{seen:?}");
    assert_eq!((seen[0], seen[seen.len() - 1]), (Some(0), Some(1)));
}

#[test]
fn torn_manifests_leave_the_one_before() {
    let files = Files::new(1, MIB);
    let open = || files.on(&[0], "").build().unwrap();
    let [old, new] = contents();
    store(&open(), &old).unwrap();
    let first = std::fs::read(&files.paths[0]).unwrap();
    store(&open(), &new).unwrap();
    assert_eq!(held(&open()), Some(1));
    let mut bytes = std::fs::read(&files.paths[0]).unwrap();
    bytes[(32 << 10) + 200] ^= 4;
    std::fs::write(&files.paths[0], &bytes).unwrap();
    // The store was complete, so the one before is not what was stored last.
    let text = open().manifest().unwrap_err().to_string();
    assert!(text.contains("the manifest of generation 2 is damaged or gone, and generation 1 is older"), "{text}");
    let commit = 60 << 10..64 << 10;
    bytes[commit.clone()].copy_from_slice(&first[commit]);
    std::fs::write(&files.paths[0], &bytes).unwrap();
    assert_eq!(held(&open()), Some(0));
    bytes[8] = 1;
    bytes[32 << 10] = 0;
    std::fs::write(&files.paths[0], &bytes).unwrap();
    let text = open().manifest().unwrap_err().to_string();
    assert!(text.contains("version 1") && text.contains("store the data again"), "{text}");
}

fn changed<T: Element>(v: &Volume, name: &str) -> bool {
    v.manifest().unwrap().find_typed::<T>(name).unwrap().changed
}

#[test]
fn arrays_that_were_changed_and_flushed_can_be_read() {
    for (drives, copies) in [(1, false), (2, false), (2, true)] {
        let files = Files::new(drives, 4 * MIB);
        let all: Vec<usize> = (0..drives).collect();
        let open = || files.on(&all, "").chunk(8192).replicated(copies).build().unwrap();
        let v = open();
        let plan = Plan::new().array::<u64>("ids", 30_000).array::<u64>("others", 30_000);
        let mut writer = v.store(plan, "it").unwrap();
        let mut ids = values(3, 30_000);
        writer.append("ids", &ids).unwrap();
        writer.append("others", &ids).unwrap();
        writer.finish().unwrap();
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        let a = cache.open::<u64>("ids").unwrap();
        let new = values(4, 20_000);
        a.write(5000, &new).unwrap();
        cache.flush().unwrap();
        ids[5000..25_000].copy_from_slice(&new);
        assert_eq!(v.read_array::<u64>("ids").unwrap(), ids);
        assert!(changed::<u64>(&v, "ids") && !changed::<u64>(&v, "others"), "{drives} {copies}");
        drop((a, cache, v));
        // Another program sees the change, and can accept the array as it is.
        let v = open();
        assert_eq!(v.read_array::<u64>("ids").unwrap(), ids);
        v.accept_changes().unwrap();
        assert!(!changed::<u64>(&v, "ids"));
        let v = {
            drop(v);
            open()
        };
        assert_eq!(v.read_array::<u64>("ids").unwrap(), ids);
        let at = v.manifest().unwrap().entries()[0].offset >> v.block_shift();
        v.disk().put_blocks(at, &[0; 512]).unwrap();
        assert!(v.read_array::<u64>("ids").unwrap_err().to_string().contains("is damaged"));
        // Writes of the host count as changes, too.
        v.write_bytes((at << v.block_shift()) + 3, b"x").unwrap();
        assert!(v.read_array::<u64>("ids").is_ok());
        v.flush().unwrap();
        assert!(changed::<u64>(&v, "ids") && open_again(v, open).read_array::<u64>("others").is_ok());
    }
}

#[test]
fn every_flush_ends_the_mark_of_the_writes_before() {
    for (drives, copies, page_checksums) in [(1, false, false), (2, false, true), (2, true, false)] {
        let files = Files::new(drives, 4 * MIB);
        let all: Vec<usize> = (0..drives).collect();
        let open = || files.on(&all, "").chunk(8192).replicated(copies).build().unwrap();
        let add = |v: &Volume, name: &str| {
            let mut writer = v.add(Plan::new().array::<u64>(name, 3), "it").unwrap();
            writer.append(name, &[7u64; 3]).unwrap();
            writer.finish().unwrap();
        };
        let v = open();
        let plan = Plan::new().array::<u64>("ids", 30_000).array::<u64>("others", 10);
        let mut writer = v.store(plan.page_checksums(page_checksums), "it").unwrap();
        writer.append("ids", &values(3, 30_000)).unwrap();
        writer.append("others", &values(3, 10)).unwrap();
        writer.finish().unwrap();
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        let ids = cache.open::<u64>("ids").unwrap();
        for round in 4..7 {
            ids.write(0, &values(round, 20_000)).unwrap();
            cache.flush().unwrap();
        }
        let at = v.manifest().unwrap().find_typed::<u64>("ids").unwrap().offset;
        for round in 7..10u64 {
            v.write_bytes(at, &round.to_le_bytes()).unwrap();
            v.flush().unwrap();
        }
        // The devices have no mark of this content.
        assert!(!v.contents().current().unwrap().interrupted, "{drives} {copies} {page_checksums}");
        add(&v, "more");
        drop((ids, cache));
        let v = open_again(v, open);
        assert_eq!(v.read_array::<u64>("ids").unwrap()[..2], [9, values(6, 2)[1]]);
        add(&v, "still more");
        assert!(changed::<u64>(&v, "ids") && !changed::<u64>(&v, "others"));
    }
}

fn open_again(v: Volume, open: impl Fn() -> Volume) -> Volume {
    drop(v);
    open()
}

/// Environment variable with the name of the file for the program that dies.
const DIES_ON: &str = "WARPBELL_TEST_DIES_ON";

#[test]
fn a_program_that_dies_between_write_and_flush() {
    // The test below runs this as a program of its own. The run of all tests has nothing to do here.
    let Some(path) = std::env::var_os(DIES_ON) else { return };
    let drive = Drive::open(&format!("soft:{}", Path::new(&path).display())).unwrap();
    let v = Volume::on(&engine(), [drive]).build().unwrap();
    // The cache is far smaller than the array, so most of the change is written back before the end.
    let cache = Cache::on(&v).bytes(32 << 10).build().unwrap();
    cache.open::<u64>("ids").unwrap().write(0, &values(6, 20_000)).unwrap();
    std::process::abort();
}

#[test]
fn a_program_that_died_before_its_flush_is_told_apart_from_damage() {
    let files = Files::new(1, 4 * MIB);
    let open = || files.on(&[0], "").build().unwrap();
    let plan = Plan::new().array::<u64>("ids", 30_000).array::<u64>("others", 10);
    {
        let v = open();
        let mut writer = v.store(plan, "it").unwrap();
        writer.append("ids", &values(5, 30_000)).unwrap();
        writer.append("others", &values(5, 10)).unwrap();
        writer.finish().unwrap();
    }
    let this = std::env::current_exe().unwrap();
    let test = "storage::contents::content_tests::a_program_that_dies_between_write_and_flush";
    let ended = Command::new(this).args(["--exact", test]).env(DIES_ON, &files.paths[0]).output().unwrap();
    assert!(!ended.status.success(), "{ended:?}");
    let v = open();
    let text = v.read_array::<u64>("ids").unwrap_err().to_string();
    assert!(text.contains("`ids` was being changed by a program that ended before its flush"), "{text}");
    assert_eq!(v.read_array::<u64>("others").unwrap(), values(5, 10));
    // The array stays interrupted until the changes are accepted.
    v.flush().unwrap();
    let v = open_again(v, open);
    assert!(v.read_array::<u64>("ids").is_err());
    v.accept_changes().unwrap();
    let v = open_again(v, open);
    let ids = v.read_array::<u64>("ids").unwrap();
    assert!(ids[20_000..] == values(5, 30_000)[20_000..]);
}

#[test]
fn a_copy_that_missed_writes_is_left_out_when_it_is_opened_again() {
    let files = Files::new(2, 4 * MIB);
    let open = |fault: &str| {
        let specs = [format!("soft:{}", files.paths[0].display()), format!("soft:{}{fault}", files.paths[1].display())];
        Volume::on(&engine(), specs.iter().map(|s| Drive::open(s).unwrap()).collect::<Vec<_>>())
            .replicated(true)
            .chunk(4096)
            .build()
            .unwrap()
    };
    open("").store_array("ids", &values(1, 1000)).unwrap();
    {
        let v = open(",media-error=write:128-140");
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        cache.open::<u64>("ids").unwrap().write(0, &values(2, 1000)).unwrap();
        cache.flush().unwrap();
        assert_eq!(v.redundancy().unwrap().lost[0].device, 1);
    }
    let v = open("");
    let r = v.redundancy().unwrap();
    assert!(r.lost.len() == 1 && r.lost[0].reason.contains("lacks generation"), "{r}");
    assert_eq!(v.read_array::<u64>("ids").unwrap(), values(2, 1000));
    // Storing everything anew restores both copies.
    v.store_array("ids", &values(3, 1000)).unwrap();
    assert!(v.redundancy().unwrap().lost.is_empty());
    let v = open_again(v, || open(""));
    assert!(v.redundancy().unwrap().lost.is_empty());
    assert_eq!(v.read_array::<u64>("ids").unwrap(), values(3, 1000));
}
