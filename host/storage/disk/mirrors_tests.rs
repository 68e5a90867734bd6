//! Copies that fail: reads go to another copy, writes go to the remaining copies.

use super::drive::Drive;
use super::path::LandingChoice;
use crate::engine::{Engine, Outcome, RunError};
use crate::storage::cache::Cache;
use crate::storage::volume::Volume;
use std::path::PathBuf;
use std::time::Duration;

/// Deadline of waits in these tests; no result depends on how long something takes.
const LIMIT: Duration = Duration::from_secs(60);
const BLOCKS: u64 = 512;
const THREADS: usize = 16;
/// Blocks of a chunk that is read from each copy.
const CHUNKS: [std::ops::Range<usize>; 2] = [48..56, 40..48];
/// Faults that make these blocks unreadable on each copy.
const BAD: [&str; 2] = [",media-error=read:48-55", ",media-error=read:40-47"];

struct Pair {
    paths: [PathBuf; 2],
    data: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl Pair {
    /// Makes two files of the same content. The file of copy `bad` holds zeros where it cannot be read.
    fn new(bad: Option<usize>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..BLOCKS << 9).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8 | 1).collect();
        let paths = ["a.img", "b.img"].map(|n| folder.path().join(n));
        for (i, path) in paths.iter().enumerate() {
            let mut held = data.clone();
            if bad == Some(i) {
                held[CHUNKS[i].start << 9..CHUNKS[i].end << 9].fill(0);
            }
            std::fs::write(path, held).unwrap();
        }
        Self { paths, data, _folder: folder }
    }

    fn open(&self, landing: LandingChoice, faults: [&str; 2]) -> Volume {
        let spec = |i: usize| format!("soft:{}{}", self.paths[i].display(), faults[i]);
        let drives = [0, 1].map(|i| Drive::open(&spec(i)).unwrap());
        // There are as many threads as frames in the smallest cache: some get no frame while others wait for a copy
        // that does not respond.
        let engine = Engine::builder().threads(THREADS).cpu().unwrap();
        let builder = Volume::on(&engine, drives).replicated(true).chunk(4096).landing(landing);
        builder.depth(16).queues(2).build().unwrap()
    }

    /// Returns the content of one drive, read without the volume.
    fn held(&self, copy: usize) -> Vec<u8> {
        std::fs::read(&self.paths[copy]).unwrap()
    }
}

fn read_by_kernels(v: &Volume) -> Result<Vec<u8>, RunError> {
    let buffer = v.allocate_data((BLOCKS << 9) as usize).unwrap();
    v.start_read(0, BLOCKS, 4, &buffer).unwrap().finish_within(LIMIT)?;
    let mut out = vec![0; (BLOCKS << 9) as usize];
    buffer.read(0, &mut out).unwrap();
    Ok(out)
}

fn read_by_host(v: &Volume) -> Vec<u8> {
    let mut out = vec![0; (BLOCKS << 9) as usize];
    v.read_blocks(0, &mut out).unwrap();
    out
}

fn read_through_a_cache(v: &Volume) -> Vec<u8> {
    let cache = Cache::on(v).bytes(64 << 10).build().unwrap();
    let out = cache.array::<u8>(0, BLOCKS << 9).unwrap().read(0..BLOCKS << 9).unwrap();
    assert_eq!(cache.occupancy().unwrap().pinned, 0);
    out
}

const LANDINGS: [LandingChoice; 2] = [LandingChoice::Direct, LandingChoice::Bounce];

/// Reads by `by` from two copies of which one cannot read some blocks. Then checks the drive that was repaired.
fn reads_go_to_the_other_copy(by: impl Fn(&Volume) -> Vec<u8>) {
    for (landing, bad) in [(LANDINGS[0], 0), (LANDINGS[0], 1), (LANDINGS[1], 0), (LANDINGS[1], 1)] {
        let pair = Pair::new(Some(bad));
        let mut faults = [""; 2];
        faults[bad] = BAD[bad];
        let v = pair.open(landing, faults);
        assert!(by(&v) == pair.data, "copy {bad}, {landing}");
        v.flush().unwrap();
        let r = v.redundancy().unwrap();
        assert!(r.redirected_reads > 0 && r.repaired_blocks > 0 && r.pending_repairs == 0 && r.lost.is_empty(), "{r}");
        assert_eq!((v.stats().unwrap().redirects, r.copies), (r.redirected_reads, 2));
        drop(v);
        assert!(pair.held(bad) == pair.data, "copy {bad}, {landing}: the drive still lacks the blocks");
    }
}

#[test]
fn kernels_read_the_other_copy_of_a_bad_block() {
    reads_go_to_the_other_copy(|v| read_by_kernels(v).unwrap());
}

#[test]
fn caches_read_the_other_copy_of_a_bad_block() {
    reads_go_to_the_other_copy(read_through_a_cache);
}

#[test]
fn the_host_reads_the_other_copy_of_a_bad_block() {
    // The bad blocks are in the first half of the range, which is read from the copy of block 0, or of block 8.
    for (first, bad) in [(0, 0), (8, 1)] {
        let pair = Pair::new(Some(bad));
        let mut faults = [""; 2];
        faults[bad] = BAD[bad];
        let v = pair.open(LandingChoice::Direct, faults);
        let mut out = vec![0; 256 << 9];
        v.read_blocks(first, &mut out).unwrap();
        assert!(out == pair.data[(first << 9) as usize..][..out.len()]);
        v.repair().unwrap();
        let r = v.redundancy().unwrap();
        assert!(r.redirected_reads == 1 && r.repaired_blocks == 128 && !r.is_whole(), "{r}");
        drop(v);
        assert!(pair.held(bad) == pair.data);
    }
}

#[test]
fn a_block_that_no_copy_gives_is_an_error() {
    for landing in LANDINGS {
        let pair = Pair::new(None);
        let v = pair.open(landing, [",media-error=read:40-55"; 2]);
        let Err(RunError::Operations { errors, .. }) = read_by_kernels(&v) else { panic!("{landing}: no error") };
        assert!(
            (40..56).contains(&errors[0].lba) && matches!(errors[0].outcome, Outcome::DeviceError(_)),
            "{errors:?}"
        );
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        let e = cache.array::<u8>(0, BLOCKS << 9).unwrap().read(0..BLOCKS << 9).unwrap_err().to_string();
        // The threads decide which of the two pages fails first.
        assert!(
            ["at LBA 40", "at LBA 48"].iter().any(|at| e.contains(at)) && e.contains("nrecovered read error"),
            "{e}"
        );
        let e = v.read_blocks(40, &mut [0; 512]).unwrap_err().to_string();
        assert!(e.starts_with("read of 1 block(s) at 40 of ") && e.contains("every copy failed"), "{e}");
        assert!(e.contains("a.img") && e.contains("b.img"), "{e}");
    }
}

#[test]
fn runs_go_on_without_a_copy_that_has_disappeared() {
    for landing in LANDINGS {
        for gone in [0, 1] {
            let pair = Pair::new(None);
            let mut faults = [""; 2];
            faults[gone] = ",disappear=after:9";
            let v = pair.open(landing, faults);
            v.set_deadline(Duration::from_secs(1)).unwrap();
            assert!(read_by_kernels(&v).unwrap_or_else(|e| panic!("copy {gone}, {landing}: {e}")) == pair.data);
            assert!(read_through_a_cache(&v) == pair.data);
            assert!(read_by_host(&v) == pair.data);
            let r = v.redundancy().unwrap();
            assert!(r.lost.len() == 1 && r.lost[0].device == gone, "{r}");
            assert!(r.to_string().contains("copies 1 of 2") && r.to_string().contains("degraded: soft:"), "{r}");
        }
    }
}

#[test]
fn a_cache_goes_on_without_a_copy_that_has_disappeared() {
    for landing in LANDINGS {
        let pair = Pair::new(None);
        let v = pair.open(landing, ["", ",disappear=after:9"]);
        v.set_deadline(Duration::from_secs(1)).unwrap();
        assert!(read_through_a_cache(&v) == pair.data, "{landing}");
        assert_eq!(v.redundancy().unwrap().lost.len(), 1);
    }
}

#[test]
fn writes_go_to_the_copies_that_are_left() {
    for landing in LANDINGS {
        for bad in [0, 1] {
            let pair = Pair::new(None);
            let mut faults = [""; 2];
            faults[bad] = ",media-error=write:100-100";
            let v = pair.open(landing, faults);
            let new: Vec<u8> = pair.data.iter().map(|b| b ^ 0x5a).collect();
            let buffer = v.allocate_data(new.len()).unwrap();
            buffer.write(0, &new).unwrap();
            let run = v.start_write(0, BLOCKS, 4, &buffer).unwrap();
            run.finish_within(LIMIT).unwrap();
            let r = v.redundancy().unwrap();
            assert!(r.lost.len() == 1 && r.lost[0].device == bad, "{r}");
            assert!(read_by_kernels(&v).unwrap() == new && read_by_host(&v) == new, "{landing}, copy {bad}");
            v.write_blocks(100, &[7; 512]).unwrap();
            v.flush().unwrap();
            drop(v);
            assert!(pair.held(1 - bad)[100 << 9..][..512] == [7; 512]);
        }
    }
}

#[test]
fn a_write_that_no_copy_takes_is_an_error() {
    let pair = Pair::new(None);
    let v = pair.open(LandingChoice::Direct, [",media-error=write:331"; 2]);
    let e = v.write_blocks(331, &[0; 512]).unwrap_err().to_string();
    assert!(e.starts_with("write of 1 block(s) at 331 of ") && e.contains("every copy failed"), "{e}");
    let buffer = v.allocate_data(256 << 10).unwrap();
    let run = v.start_write(0, 512, 1, &buffer).unwrap();
    let Err(RunError::Operations { errors, .. }) = run.finish_within(LIMIT) else { panic!("no error") };
    assert_eq!(errors[0].lba, 331, "{:?}", errors[0]);
    assert!(v.redundancy().unwrap().lost.is_empty(), "the last copy is never left out");
    drop((buffer, v));
    // The host leaves out a copy that fails a write which another copy completes.
    let v = pair.open(LandingChoice::Direct, ["", ",media-error=write:331"]);
    v.write_blocks(331, &[0; 512]).unwrap();
    assert!(v.redundancy().unwrap().lost[0].reason.contains("write failed"), "{:?}", v.redundancy());
}

#[test]
fn pages_are_written_back_to_the_copies_that_are_left() {
    for landing in LANDINGS {
        let pair = Pair::new(None);
        let v = pair.open(landing, [",media-error=write:100-100", ""]);
        let cache = Cache::on(&v).bytes(32 << 10).build().unwrap();
        let all = cache.array::<u8>(0, BLOCKS << 9).unwrap();
        let new: Vec<u8> = pair.data.iter().map(|b| b ^ 0x3c).collect();
        all.write(0, &new).unwrap();
        cache.flush().unwrap();
        assert!(all.read(0..BLOCKS << 9).unwrap() == new);
        assert_eq!(v.redundancy().unwrap().lost[0].device, 0);
        drop((cache, all, v));
        assert!(pair.held(1) == new);
    }
}

#[test]
fn a_block_that_can_be_read_again_is_not_overwritten() {
    // The other copy holds zeros there, and no checksum tells which of them is right.
    let pair = Pair::new(Some(1));
    let v = pair.open(LandingChoice::Direct, [""; 2]);
    let blocks = &CHUNKS[1];
    v.disk().mirrors.pending.lock().insert((0, blocks.start as u64, blocks.len() as u64));
    v.flush().unwrap();
    let r = v.redundancy().unwrap();
    assert!(r.repaired_blocks == 0 && r.pending_repairs == 0 && r.lost.is_empty(), "{r}");
    drop(v);
    assert!(pair.held(0) == pair.data);
}
