//! I/O commands on every kind of store, and the status codes of invalid ones.

use super::driver::*;
use crate::memory::DmaRegion;
use crate::soft::nvme::{FileIo, SoftConfig, SoftController, SoftError, Streaming};
use crate::wire::nvme::*;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const BYTES: u64 = 8 << 20;
/// More than one page of PRP entries describes.
const TRANSFER: usize = 4 << 20;

fn file(bytes: u64) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("blocks.img");
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    (dir, path)
}

/// Runs a test on memory and on files, with every method of file access that works here.
fn on_all(block: u32, test: impl Fn(&SoftController, &mut Driver)) {
    let limits = |c: SoftConfig| c.block_bytes(block).threads(1).max_transfer_bytes(TRANSFER as u32);
    let (c, mut d) = Driver::start(limits(SoftConfig::memory(BYTES)));
    test(&c, &mut d);
    let (c, mut d) = Driver::start(limits(SoftConfig::memory(BYTES).streaming(Streaming::Always)));
    test(&c, &mut d);
    for (io, direct) in [
        (FileIo::Uring, false),
        (FileIo::Pread, false),
        (FileIo::Mmap, false),
        (FileIo::Uring, true),
        (FileIo::Pread, true),
    ] {
        let (_dir, path) = file(BYTES);
        match SoftController::start(limits(SoftConfig::file_with(&path, io, direct))) {
            Ok(c) => {
                let mut d = Driver::new(&c);
                d.enable();
                test(&c, &mut d);
            }
            Err(SoftError::Direct { .. }) if direct => println!("SKIP: no O_DIRECT with blocks of {block} here"),
            Err(e) => panic!("{io:?}: {e}"),
        }
    }
}

fn buffers(d: &Driver) -> (DmaRegion, DmaRegion) {
    (d.memory(TRANSFER), d.memory(8 * PAGE))
}

#[test]
fn what_is_written_is_read_at_every_size_and_through_chained_lists() {
    for block in [512u32, 4096] {
        on_all(block, |c, d| {
            let mut p = d.pair(1, 16);
            let (data, lists) = buffers(d);
            // The list starts at a page, near the end of a page (so that it chains soon), or at the last entry of a
            // page.
            for (round, (bytes, begin)) in
                [(4096, 0), (8192, 0), (65_536, 0), (65_536, PAGE - 24), (TRANSFER, PAGE - 8)].into_iter().enumerate()
            {
                let (slba, blocks) = (3 + round as u64, bytes as u32 / block);
                let expected = pattern(slba, bytes, round as u64);
                data.region.write(0, &expected).unwrap();
                let list = Some((&lists, begin));
                assert_eq!(p.status(d, command(io::WRITE, slba, blocks, bytes, &data, list)), status::SUCCESS);
                data.region.fill(0, bytes, 0xcc).unwrap();
                assert_eq!(p.status(d, command(io::READ, slba, blocks, bytes, &data, list)), status::SUCCESS);
                assert_eq!(data.region.get_slice::<u8>(0, bytes).unwrap(), expected, "{} {bytes}", c.name());
            }
            assert_eq!(p.status(d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
            assert_eq!(p.status(d, SqEntry::new(io::FLUSH, 0, u32::MAX)), status::SUCCESS);
        });
    }
}

#[test]
fn pages_may_begin_at_any_dword() {
    on_all(512, |c, d| {
        let mut p = d.pair(1, 16);
        let data = d.memory(4 * PAGE);
        for offset in [4usize, 512, 3000, 4092] {
            let expected = pattern(9, 4096, offset as u64);
            data.region.write(offset, &expected).unwrap();
            let mut e = command(io::WRITE, 9, 8, 0, &data, None);
            (e.prp1, e.prp2) = (data.iova + offset as u64, data.iova + PAGE as u64);
            assert_eq!(p.status(d, e), status::SUCCESS, "{} {offset}", c.name());
            data.region.fill(0, 3 * PAGE, 0).unwrap();
            e.cdw0 = u32::from(io::READ);
            assert_eq!(p.status(d, e), status::SUCCESS);
            assert_eq!(data.region.get_slice::<u8>(offset, 4096).unwrap(), expected, "{} {offset}", c.name());
            assert_eq!(data.region.get::<u8>(offset - 1).unwrap(), 0);
            assert_eq!(data.region.get::<u8>(offset + 4096).unwrap(), 0);
        }
    });
}

#[test]
fn zeroes_holes_compare_and_uncorrectable_blocks() {
    on_all(512, |c, d| {
        let name = c.name().to_owned();
        let mut p = d.pair(1, 16);
        let (data, lists) = buffers(d);
        let bytes = 256 << 10;
        let list = Some((&lists, 0));
        let go = |opcode: u8| command(opcode, 0, 512, bytes, &data, list);
        let expected = pattern(0, bytes, 7);
        data.region.write(0, &expected).unwrap();
        assert_eq!(p.status(d, go(io::WRITE)), status::SUCCESS);
        assert_eq!(p.status(d, go(io::COMPARE)), status::SUCCESS, "{name}");
        data.region.set(bytes - 1, !expected[bytes - 1]).unwrap();
        assert_eq!(p.status(d, go(io::COMPARE)), status::COMPARE_FAILURE, "{name}");

        let mut zeroes = SqEntry::new(io::WRITE_ZEROES, 0, 1);
        zeroes.set_range(3, 200);
        assert_eq!(p.status(d, zeroes), status::SUCCESS);
        let ranges = d.memory(PAGE);
        ranges.region.set_slice(0, &[0u32, 5, 300, 0, 0, 1, 511, 0]).unwrap();
        let mut trim = SqEntry { prp1: ranges.iova, cdw10: 1, cdw11: 0, ..SqEntry::new(io::DATASET_MANAGEMENT, 0, 1) };
        assert_eq!(p.status(d, trim), status::SUCCESS, "without the attribute it is only a hint");
        trim.cdw11 = 4;
        assert_eq!(p.status(d, trim), status::SUCCESS);
        assert_eq!(p.status(d, go(io::READ)), status::SUCCESS);
        let got = data.region.get_slice::<u8>(0, bytes).unwrap();
        for b in 0..512usize {
            let zero = (3..203).contains(&b) || (300..305).contains(&b) || b == 511;
            let range = b * 512..b * 512 + 512;
            let want: &[u8] = if zero { &[0; 512] } else { &expected[range.clone()] };
            assert_eq!(&got[range], want, "{name} block {b}");
        }
        ranges.region.set_slice(0, &[0u32, 5, 300, 0, 0, 2, 0x3fff, 0]).unwrap();
        assert_eq!(p.status(d, trim), status::LBA_OUT_OF_RANGE.dnr());
        trim.cdw10 = 255;
        trim.prp1 = ranges.iova + 2048;
        assert_eq!(p.status(d, trim), status::DATA_TRANSFER_ERROR.dnr(), "256 ranges do not fit into half a page");

        let mut spoil = SqEntry::new(io::WRITE_UNCORRECTABLE, 0, 1);
        spoil.set_range(10, 4);
        assert_eq!(p.status(d, spoil), status::SUCCESS);
        let one = |opcode: u8, slba: u64, n: u32| command(opcode, slba, n, n as usize * 512, &data, None);
        assert_eq!(p.status(d, go(io::READ)), status::UNRECOVERED_READ_ERROR);
        assert_eq!(p.status(d, one(io::READ, 13, 1)), status::UNRECOVERED_READ_ERROR);
        assert_eq!(p.status(d, one(io::READ, 14, 1)), status::SUCCESS);
        assert_eq!(p.status(d, one(io::WRITE, 9, 3)), status::SUCCESS);
        assert_eq!(p.status(d, one(io::READ, 9, 3)), status::SUCCESS, "rewritten");
        assert_eq!(p.status(d, one(io::READ, 12, 1)), status::UNRECOVERED_READ_ERROR);
        assert_eq!(p.status(d, one(io::COMPARE, 12, 1)), status::UNRECOVERED_READ_ERROR);
        zeroes.set_range(12, 2);
        assert_eq!(p.status(d, zeroes), status::SUCCESS);
        assert_eq!(p.status(d, one(io::READ, 8, 8)), status::SUCCESS);
    });
}

#[test]
fn malformed_commands_get_the_status_that_the_specification_names() {
    let config = SoftConfig::memory(1 << 20).threads(1).max_transfer_bytes(64 << 10);
    let (_c, mut d) = Driver::start(config);
    let mut p = d.pair(1, 16);
    let data = d.memory(32 * PAGE);
    let lists = d.memory(PAGE);
    let last = 2047u64;
    let go = |opcode: u8, slba: u64, n: u32| command(opcode, slba, n, n as usize * 512, &data, Some((&lists, 0)));
    let namespace = |e: SqEntry, nsid: u32| SqEntry { nsid, ..e };
    let flags = |e: SqEntry, f: u32| SqEntry { cdw0: e.cdw0 | f, ..e };
    let prps = |e: SqEntry, prp1: u64, prp2: u64| SqEntry { prp1, prp2, ..e };
    let read = go(io::READ, 0, 8);
    for (e, expected) in [
        (go(io::READ, last, 1), Status(0)),
        (go(io::READ, last, 2), status::LBA_OUT_OF_RANGE),
        (go(io::WRITE, last + 1, 1), status::LBA_OUT_OF_RANGE),
        (go(io::READ, u64::MAX, 1), status::LBA_OUT_OF_RANGE),
        (go(io::READ, u64::MAX - 3, 8), status::LBA_OUT_OF_RANGE),
        (go(io::COMPARE, last, 2), status::LBA_OUT_OF_RANGE),
        (go(io::WRITE_ZEROES, last, 2), status::LBA_OUT_OF_RANGE),
        (go(io::WRITE_UNCORRECTABLE, last, 2), status::LBA_OUT_OF_RANGE),
        (go(io::READ, 0, 128), Status(0)),
        (go(io::READ, 0, 129), status::INVALID_FIELD),
        (go(io::WRITE, 0, 129), status::INVALID_FIELD),
        (namespace(read, 0), status::INVALID_NAMESPACE),
        (namespace(read, 2), status::INVALID_NAMESPACE),
        (namespace(read, u32::MAX), status::INVALID_NAMESPACE),
        (namespace(SqEntry::new(io::FLUSH, 0, 0), 2), status::INVALID_NAMESPACE),
        (SqEntry::new(0x7f, 0, 1), status::INVALID_OPCODE),
        (SqEntry::new(0x7f, 0, 9), status::INVALID_OPCODE),
        (flags(read, 1 << 8), status::INVALID_FIELD),
        (flags(read, 2 << 8), status::INVALID_FIELD),
        (flags(read, 1 << 14), status::INVALID_FIELD),
        (prps(read, data.iova + 1, 0), status::INVALID_PRP_OFFSET),
        (prps(read, data.iova + 4, data.iova + 4), status::INVALID_PRP_OFFSET),
        (prps(read, 0, 0), status::DATA_TRANSFER_ERROR),
        (prps(read, u64::MAX - 4095, 0), status::DATA_TRANSFER_ERROR),
        (prps(go(io::READ, 0, 24), data.iova, data.iova + 4), status::INVALID_PRP_OFFSET),
        (prps(go(io::READ, 0, 24), data.iova, 0x10_0000), status::DATA_TRANSFER_ERROR),
    ] {
        let expected = if expected == Status(0) { expected } else { expected.dnr() };
        assert_eq!(p.status(&d, e), expected, "{e:?}");
    }
    // A list entry with an offset, and one whose memory is not mapped.
    for (entry, expected) in [(data.iova + 8, status::INVALID_PRP_OFFSET), (8 << 40, status::DATA_TRANSFER_ERROR)] {
        let e = go(io::READ, 0, 32);
        lists.region.set(8, entry).unwrap();
        assert_eq!(p.status(&d, e), expected.dnr());
    }
}

#[test]
fn queues_wrap_and_full_completion_queues_wait() {
    let (c, mut d) = Driver::start(SoftConfig::memory(1 << 20).threads(2));
    let mut p = d.pair(1, 2);
    for _ in 0..9 {
        assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS, "the smallest queue");
    }
    let mut p = d.pair(2, 8);
    let mut next = 0u16;
    let mut expected = 0u16;
    for round in 0..200 {
        // Places three, five or seven commands at a time; the queue holds seven.
        for _ in 0..[3, 5, 7][round % 3] {
            p.place(SqEntry::new(io::FLUSH, next, 1));
            next += 1;
        }
        p.ring(&d);
        while expected < next {
            let done = p.wait(&d);
            assert_eq!((done.cid(), done.sqid()), (expected, 2));
            expected += 1;
        }
    }
    until("published counts", || c.statistics().total().commands == 9 + u64::from(next));
    assert_eq!(c.statistics().queues.iter().map(|q| q.queue).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn completions_wait_for_room() {
    let (_c, mut d) = Driver::start(SoftConfig::memory(1 << 20).threads(1));
    let mut p = d.pair_memory(1, 32);
    let mut cq = d.create_cq(&p);
    cq.cdw10 = 1 | 3 << 16;
    let sq = d.create_sq(&p);
    assert_eq!(d.admin_status(cq), status::SUCCESS);
    assert_eq!(d.admin_status(sq), status::SUCCESS);
    for cid in 0..20 {
        p.place(SqEntry::new(io::FLUSH, cid, 1));
    }
    p.ring(&d);
    // Four entries hold three completions. The rest follows as completions are taken out.
    p.entries = 4;
    let cids: Vec<u16> = (0..20).map(|_| p.wait(&d).cid()).collect();
    assert_eq!(cids, (0..20).collect::<Vec<_>>());
}

#[test]
fn many_commands_in_flight_over_several_queues() {
    on_all(4096, |c, d| {
        let mut pairs: Vec<Pair> = (1..=4).map(|i| d.pair(i, 64)).collect();
        let data: Vec<DmaRegion> = (0..4).map(|_| d.memory(60 * PAGE)).collect();
        let at = |opcode: u8, q: usize, i: usize| {
            let slba = (q * 60 + i) as u64;
            let mut e = SqEntry::new(opcode, i as u16, 1);
            e.set_range(slba, 1);
            e.prp1 = data[q].iova + (i * PAGE) as u64;
            (e, slba)
        };
        for opcode in [io::WRITE, io::READ] {
            for (q, p) in pairs.iter_mut().enumerate() {
                for i in 0..60 {
                    let (e, slba) = at(opcode, q, i);
                    let bytes = if opcode == io::WRITE { pattern(slba, PAGE, 1) } else { vec![0; PAGE] };
                    data[q].region.write(i * PAGE, &bytes).unwrap();
                    p.place(e);
                }
                p.ring(d);
            }
            for p in &mut pairs {
                let mut cids: Vec<u16> = (0..60)
                    .map(|_| {
                        let done = p.wait(d);
                        assert_eq!(done.status(), status::SUCCESS, "{}", c.name());
                        done.cid()
                    })
                    .collect();
                cids.sort();
                assert_eq!(cids, (0..60).collect::<Vec<_>>());
            }
        }
        for (q, region) in data.iter().enumerate() {
            for i in 0..60 {
                let got = region.region.get_slice::<u8>(i * PAGE, PAGE).unwrap();
                assert_eq!(got, pattern((q * 60 + i) as u64, PAGE, 1), "{} queue {q} block {i}", c.name());
            }
        }
    });
}

#[test]
fn unmapping_waits_for_the_kernel_too() {
    let (_dir, path) = file(BYTES);
    let (_c, mut d) = Driver::start(SoftConfig::file(&path).threads(1));
    let mut p = d.pair(1, 64);
    for _ in 0..20 {
        let data = d.memory(64 * PAGE);
        for i in 0..60u16 {
            let mut e = SqEntry::new(io::READ, i, 1);
            e.set_range(u64::from(i) * 8, 8);
            e.prp1 = data.iova + u64::from(i) * PAGE as u64;
            p.place(e);
        }
        p.ring(&d);
        let region = data.region.clone();
        drop(data);
        region.fill(0, region.len(), 0x77).unwrap();
        for _ in 0..60 {
            let s = p.wait(&d).status();
            assert!(s.is_success() || s == status::DATA_TRANSFER_ERROR.dnr(), "{s}");
        }
        assert!(
            region.get_slice::<u8>(0, region.len()).unwrap().iter().all(|b| *b == 0x77),
            "written after the unmapping"
        );
    }
}

#[test]
fn files_are_locked_checked_and_named() {
    let (dir, path) = file(1 << 20);
    let c = SoftController::start(SoftConfig::file_with(&path, FileIo::Pread, false)).unwrap();
    assert!(c.name().ends_with("blocks.img 1 MiB (pread)"), "{}", c.name());
    let Err(SoftError::Locked { holder, .. }) = SoftController::start(SoftConfig::file(&path)) else {
        panic!("not locked")
    };
    assert!(holder.starts_with(&format!("process {} (", std::process::id())), "{holder}");
    drop(c);
    let again = SoftController::start(SoftConfig::file(&path)).unwrap();
    drop(again);
    let odd = dir.path().join("odd.img");
    fs::write(&odd, vec![0; 1000]).unwrap();
    let text = SoftController::start(SoftConfig::file(&odd)).unwrap_err().to_string();
    assert!(text.contains("odd.img") && text.contains("1000") && text.contains("512"), "{text}");
    fs::write(&odd, []).unwrap();
    assert!(matches!(SoftController::start(SoftConfig::file(&odd)), Err(SoftError::Size { bytes: 0, .. })));
    assert!(matches!(SoftController::start(SoftConfig::file(dir.path())), Err(SoftError::NotAFile { .. })));
    let missing = SoftController::start(SoftConfig::file(dir.path().join("none"))).unwrap_err();
    assert!(matches!(missing, SoftError::File { .. }), "{missing}");
}

#[test]
fn what_is_written_is_in_the_file() {
    for io in [FileIo::Uring, FileIo::Pread, FileIo::Mmap] {
        let (_dir, path) = file(1 << 20);
        let (_c, mut d) = Driver::start(SoftConfig::file_with(&path, io, false).threads(1));
        assert_eq!(d.identify(cns::CONTROLLER, 0).unwrap()[525] & 1, 1, "a file has a volatile write cache");
        let mut p = d.pair(1, 16);
        let data = d.memory(PAGE);
        for (lba, through) in [(1u64, false), (40, true)] {
            // With the write cache off and with force unit access, data is durable before the completion.
            let set = SqEntry { cdw10: 6, cdw11: u32::from(!through), ..SqEntry::new(admin::SET_FEATURES, 0, 0) };
            assert_eq!(d.admin_status(set), status::SUCCESS);
            let expected = pattern(lba, PAGE, 5);
            data.region.write(0, &expected).unwrap();
            let mut e = command(io::WRITE, lba, 8, PAGE, &data, None);
            e.cdw12 |= u32::from(!through) << 30;
            assert_eq!(p.status(&d, e), status::SUCCESS);
            let offset = lba as usize * 512;
            assert_eq!(fs::read(&path).unwrap()[offset..offset + PAGE], expected, "{io:?}");
        }
    }
}

#[test]
fn a_truncated_file_is_a_media_error() {
    for io in [FileIo::Uring, FileIo::Pread, FileIo::Mmap] {
        let (_dir, path) = file(8 << 20);
        let (c, mut d) = Driver::start(SoftConfig::file_with(&path, io, false).threads(1));
        let mut p = d.pair(1, 16);
        let data = d.memory(PAGE);
        let near = command(io::READ, 0, 8, PAGE, &data, None);
        let far = command(io::READ, (6 << 20) / 512, 8, PAGE, &data, None);
        assert_eq!(p.status(&d, near), status::SUCCESS);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4 << 20).unwrap();
        assert_eq!(p.status(&d, far), status::UNRECOVERED_READ_ERROR, "{}", c.name());
        assert_eq!(p.status(&d, near), status::SUCCESS);
    }
}

#[test]
fn a_read_only_file_refuses_writes() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, path) = file(1 << 20);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    // Root may write whatever the permissions are, so the test does not apply.
    if fs::OpenOptions::new().write(true).open(&path).is_ok() {
        println!("SKIP: this user may write to files of mode 0444");
        return;
    }
    let (c, mut d) = Driver::start(SoftConfig::file(&path).threads(1));
    assert!(c.name().contains("read-only"));
    assert_eq!(d.identify(cns::NAMESPACE, 1).unwrap()[99], 1);
    let mut p = d.pair(1, 16);
    let data = d.memory(PAGE);
    assert_eq!(p.status(&d, command(io::READ, 0, 8, PAGE, &data, None)), status::SUCCESS);
    for opcode in [io::WRITE, io::WRITE_ZEROES, io::WRITE_UNCORRECTABLE] {
        let e = command(opcode, 0, 8, PAGE, &data, None);
        assert_eq!(p.status(&d, e), status::NAMESPACE_WRITE_PROTECTED.dnr(), "{opcode}");
    }
    assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
}

#[test]
fn several_files_are_several_namespaces() {
    let (_a, one) = file(1 << 20);
    let (_b, two) = file(2 << 20);
    let spec = format!("{},file={},block=4096,threads=1", one.display(), two.display());
    let (c, mut d) = Driver::start(SoftConfig::parse(&spec).unwrap());
    assert!(c.name().contains("1 MiB") && c.name().contains("2 MiB"));
    let mut p = d.pair(1, 16);
    let data = d.memory(PAGE);
    for nsid in [1, 2] {
        data.region.write(0, &pattern(0, PAGE, u64::from(nsid))).unwrap();
        let e = SqEntry { nsid, ..command(io::WRITE, 255, 1, PAGE, &data, None) };
        assert_eq!(p.status(&d, e), status::SUCCESS);
    }
    assert_eq!(fs::read(&one).unwrap()[255 * PAGE..][..PAGE], pattern(0, PAGE, 1));
    assert_eq!(fs::read(&two).unwrap()[255 * PAGE..][..PAGE], pattern(0, PAGE, 2));
    let beyond = SqEntry { nsid: 1, ..command(io::READ, 256, 1, PAGE, &data, None) };
    assert_eq!(p.status(&d, beyond), status::LBA_OUT_OF_RANGE.dnr());
    assert_eq!(p.status(&d, SqEntry { nsid: 2, ..beyond }), status::SUCCESS);
}
