//! Each fault of the plan, from a driver's side.

use super::driver::*;
use crate::soft::nvme::{SoftConfig, SoftController};
use crate::wire::nvme::*;
use std::time::{Duration, Instant};

fn start(faults: &str) -> (SoftController, Driver) {
    Driver::start(SoftConfig::parse(&format!("mem:1M,threads=1,{faults}")).unwrap())
}

fn read(d: &Driver, slba: u64) -> (SqEntry, crate::memory::DmaRegion) {
    let data = d.memory(PAGE);
    (command(io::READ, slba, 1, 512, &data, None), data)
}

/// Returns command identifiers in the order of their completions: `count` of them, and those that come in the 50 ms after the last.
fn drain(p: &mut Pair, d: &Driver, count: usize) -> Vec<u16> {
    let mut got = Vec::new();
    until("the completions", || {
        got.extend(p.poll(d).map(|c| c.cid()));
        got.len() >= count
    });
    std::thread::sleep(Duration::from_millis(50));
    got.extend(std::iter::from_fn(|| p.poll(d)).map(|c| c.cid()));
    got
}

#[test]
fn media_errors() {
    let (c, mut d) = start("media-error=100-107,media-error=write:200");
    let mut p = d.pair(1, 16);
    let (e, _data) = read(&d, 0);
    let at = |opcode: u8, slba: u64| {
        let mut e = SqEntry { cdw0: u32::from(opcode), ..e };
        e.set_range(slba, 1);
        e
    };
    for (opcode, slba, expected) in [
        (io::READ, 99, status::SUCCESS),
        (io::READ, 100, status::UNRECOVERED_READ_ERROR),
        (io::WRITE, 107, status::WRITE_FAULT),
        (io::WRITE, 108, status::SUCCESS),
        (io::READ, 200, status::SUCCESS),
        (io::WRITE, 200, status::WRITE_FAULT),
    ] {
        assert_eq!(p.status(&d, at(opcode, slba)), expected, "{opcode} {slba}");
    }
    until("published counts", || c.statistics().total().errors == 3);
}

#[test]
fn latency_delays_and_waiting_commands_can_be_aborted() {
    let (_c, mut d) = start("latency=30ms");
    let mut p = d.pair(1, 16);
    let (e, _data) = read(&d, 0);
    let begin = Instant::now();
    assert_eq!(p.status(&d, e), status::SUCCESS);
    assert!(begin.elapsed() >= Duration::from_millis(30));
    drop((p, d));
    let (_c, mut d) = start("latency=1h".replace("1h", "3600s").as_str());
    let mut p = d.pair(1, 16);
    let (mut e, _data) = read(&d, 0);
    e.cdw0 |= 5 << 16;
    p.place(e);
    p.ring(&d);
    let abort = SqEntry { cdw10: 1 | 5 << 16, ..SqEntry::new(admin::ABORT, 0, 0) };
    until("the abort", || d.admin(abort).result == 0);
    let c = p.wait(&d);
    assert_eq!((c.cid(), c.status()), (5, status::ABORT_REQUESTED));
    assert_eq!(d.admin(abort).result, 1, "nothing left to abort");
    // Deleting a queue finishes its outstanding commands.
    p.place(e);
    p.ring(&d);
    let delete = d.delete(admin::DELETE_SQ, 1);
    until("the command to be fetched", || p.sq.region.get::<u32>(0).is_ok() && _c.statistics().total().commands == 2);
    assert_eq!(d.admin_status(delete), status::SUCCESS);
    assert_eq!(p.wait(&d).cid(), 5);
}

#[test]
fn lost_completions_do_not_come() {
    let (_c, mut d) = start("lose-completion=every:3");
    let mut p = d.pair(1, 32);
    for cid in 1..=12 {
        p.place(SqEntry::new(io::FLUSH, cid, 1));
    }
    p.ring(&d);
    assert_eq!(drain(&mut p, &d, 8), [1, 2, 4, 5, 7, 8, 10, 11]);
    drop((p, d));
    let (_c, mut d) = start("lose-completion=7");
    let mut p = d.pair(1, 32);
    let (e, _data) = read(&d, 0);
    for slba in 5..9u16 {
        let mut e = SqEntry { cdw0: u32::from(io::READ) | u32::from(slba) << 16, ..e };
        e.set_range(slba.into(), 1);
        p.place(e);
    }
    p.ring(&d);
    assert_eq!(drain(&mut p, &d, 3), [5, 6, 8]);
}

#[test]
fn a_lost_doorbell_is_made_up_for_by_the_next() {
    let (_c, mut d) = start("lose-doorbell=every:2");
    let mut p = d.pair(1, 32);
    for (cid, expected) in [(1, vec![1]), (2, vec![]), (3, vec![2, 3])] {
        p.place(SqEntry::new(io::FLUSH, cid, 1));
        p.ring(&d);
        assert_eq!(drain(&mut p, &d, expected.len()), expected);
    }
}

#[test]
fn a_stuck_queue_leaves_the_others_alone() {
    let (_c, mut d) = start("stuck-queue=2:after:3");
    let (mut one, mut two) = (d.pair(1, 16), d.pair(2, 16));
    for cid in 0..6 {
        two.place(SqEntry::new(io::FLUSH, cid, 1));
    }
    two.ring(&d);
    assert_eq!(drain(&mut two, &d, 3), [0, 1, 2]);
    assert_eq!(one.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
    let delete = d.delete(admin::DELETE_SQ, 2);
    assert_eq!(d.admin_status(delete), status::SUCCESS);
}

#[test]
fn fatal_status_stops_everything_until_a_reset() {
    for (faults, good) in [("fatal=after:3", 3), ("fatal=40-50", 5)] {
        let (_c, mut d) = start(faults);
        let mut p = d.pair(1, 16);
        let (e, _data) = read(&d, 0);
        for i in 0..good {
            assert_eq!(p.status(&d, e), status::SUCCESS, "{faults} {i}");
        }
        let mut bad = e;
        bad.set_range(45, 1);
        p.place(bad);
        p.ring(&d);
        until("CSTS.CFS", || d.read(register::CSTS) & csts::CFS != 0);
        assert_eq!(drain(&mut p, &d, 0), [0u16; 0]);
        d.disable();
        d.enable();
        d.identify(cns::CONTROLLER, 0).unwrap();
    }
}

#[test]
fn a_device_that_disappears_reads_all_ones() {
    let (_c, mut d) = start("disappear=after:2");
    let mut p = d.pair(1, 16);
    for cid in 0..4 {
        p.place(SqEntry::new(io::FLUSH, cid, 1));
    }
    p.ring(&d);
    until("the device to disappear", || d.read(register::CSTS) == u32::MAX);
    assert_eq!(d.attachment.port.read64(register::CAP).unwrap(), u64::MAX);
    d.write(register::CC, 0);
    assert_eq!(d.read(register::CC), u32::MAX);
    // Unmapping still works, so nothing leaks and nothing blocks.
    drop((p, d));
}

#[test]
fn readiness_can_be_slow_or_never_come() {
    let c = SoftController::start(SoftConfig::parse("mem:1M,threads=1,slow-ready=60ms").unwrap()).unwrap();
    let mut d = Driver::new(&c);
    let begin = Instant::now();
    d.enable();
    assert!(begin.elapsed() >= Duration::from_millis(60));
    let c = SoftController::start(SoftConfig::parse("mem:1M,threads=1,never-ready").unwrap()).unwrap();
    let mut d = Driver::new(&c);
    d.begin(16);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(d.read(register::CSTS), 0);
    d.write(register::CC, 0);
}

#[test]
fn a_wrong_phase_hides_a_completion() {
    let (_c, mut d) = start("wrong-phase=every:2");
    let mut p = d.pair(1, 16);
    for cid in 1..=2 {
        p.place(SqEntry::new(io::FLUSH, cid, 1));
    }
    p.ring(&d);
    assert_eq!(drain(&mut p, &d, 1), [1]);
    let hidden: CqEntry = p.cq.region.get(16).unwrap();
    assert_eq!((hidden.cid(), hidden.phase()), (2, false));
}

#[test]
fn reordering_answers_everything_once_in_another_order() {
    let (_c, mut d) = start("reorder,seed=11");
    let mut p = d.pair(1, 64);
    let mut disorder = 0;
    for lap in 0..10u16 {
        let cids: Vec<u16> = (0..50).map(|i| lap * 50 + i).collect();
        for cid in &cids {
            p.place(SqEntry::new(io::FLUSH, *cid, 1));
        }
        p.ring(&d);
        let mut got: Vec<u16> = cids.iter().map(|_| p.wait(&d).cid()).collect();
        disorder += usize::from(!got.is_sorted());
        got.sort();
        assert_eq!(got, cids);
    }
    assert!(disorder > 0, "500 completions came in order");
}

/// Returns specifications of a device in memory and of two over a file. The second part keeps the file.
fn both(faults: &str) -> ([String; 3], tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let path = file.path().display();
    (
        ["mem:1M".to_owned(), format!("{path}"), format!("{path},io=pread")].map(|d| format!("{d},threads=1,{faults}")),
        file,
    )
}

/// Returns a command that reads or writes the eight blocks from 64 on.
fn eight(opcode: u8, data: &crate::memory::DmaRegion) -> SqEntry {
    command(opcode, 64, 8, PAGE, data, None)
}

fn page_of(data: &crate::memory::DmaRegion) -> Vec<u8> {
    data.region.get_slice(0, PAGE).unwrap()
}

fn bits_that_differ(a: &[u8], b: &[u8]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

#[test]
fn each_nth_flush_of_the_device_fails() {
    let (_c, mut d) = start("fail-flush=every:2");
    let mut pairs = [d.pair(1, 16), d.pair(2, 16)];
    let (read, _data) = read(&d, 0);
    let mut told = Vec::new();
    for i in 0..6 {
        assert_eq!(pairs[i % 2].status(&d, read), status::SUCCESS, "reads are not counted");
        told.push(pairs[i / 2 % 2].status(&d, SqEntry::new(io::FLUSH, 0, 1)));
    }
    assert_eq!(told, [status::SUCCESS, status::WRITE_FAULT].repeat(3));
}

#[test]
fn a_repeated_completion_comes_twice_and_waits_for_its_place() {
    let (_c, mut d) = start("repeat-completion=every:3");
    let mut p = d.pair(1, 32);
    for cid in 1..=7 {
        p.place(SqEntry::new(io::FLUSH, cid, 1));
    }
    p.ring(&d);
    assert_eq!(drain(&mut p, &d, 9), [1, 2, 3, 3, 4, 5, 6, 6, 7]);
    drop((p, d));
    // A ring of four entries has three places, all of which the commands in flight need.
    let (_c, mut d) = start("repeat-completion=every:1");
    let mut p = d.pair(1, 4);
    for cid in 1..=3 {
        p.place(SqEntry::new(io::FLUSH, cid, 1));
    }
    p.ring(&d);
    let mut got = drain(&mut p, &d, 6);
    got.sort();
    assert_eq!(got, [1, 1, 2, 2, 3, 3]);
}

#[test]
fn a_torn_write_stores_the_first_half_of_its_blocks() {
    for (faults, expected) in
        [("torn-write=every:2", status::WRITE_FAULT), ("torn-write=silent:every:2", status::SUCCESS)]
    {
        let (specs, _file) = both(faults);
        for spec in specs {
            let (_c, mut d) = Driver::start(SoftConfig::parse(&spec).unwrap());
            let mut p = d.pair(1, 16);
            let (old, new, back) = (d.memory(PAGE), d.memory(PAGE), d.memory(PAGE));
            old.region.fill(0, PAGE, 0x11).unwrap();
            new.region.fill(0, PAGE, 0x22).unwrap();
            assert_eq!(p.status(&d, eight(io::WRITE, &old)), status::SUCCESS);
            assert_eq!(p.status(&d, eight(io::WRITE, &new)), expected, "{spec}");
            assert_eq!(p.status(&d, eight(io::READ, &back)), status::SUCCESS);
            assert_eq!(page_of(&back), [[0x22; PAGE / 2], [0x11; PAGE / 2]].concat(), "{spec}");
            // Half of one block, rounded down, is no block.
            assert_eq!(p.status(&d, eight(io::WRITE, &old)), status::SUCCESS);
            assert_eq!(p.status(&d, command(io::WRITE, 64, 1, 512, &new, None)), expected, "{spec}");
            assert_eq!(p.status(&d, eight(io::READ, &back)), status::SUCCESS);
            assert_eq!(page_of(&back), [0x11; PAGE], "{spec}");
        }
    }
}

#[test]
fn one_bit_of_what_is_read_or_stored_is_flipped_and_nothing_says_so() {
    let (specs, _file) = both("corrupt=read:every:2,seed=5");
    let mut flipped = Vec::new();
    for spec in specs {
        let (_c, mut d) = Driver::start(SoftConfig::parse(&spec).unwrap());
        let mut p = d.pair(1, 16);
        let (data, back) = (d.memory(PAGE), d.memory(PAGE));
        data.region.write(0, &pattern(64, PAGE, 9)).unwrap();
        assert_eq!(p.status(&d, eight(io::WRITE, &data)), status::SUCCESS);
        for differ in [0, 1, 0, 1] {
            assert_eq!(p.status(&d, eight(io::READ, &back)), status::SUCCESS);
            assert_eq!(bits_that_differ(&page_of(&data), &page_of(&back)), differ, "{spec}");
            flipped.push(page_of(&back));
        }
    }
    assert!(flipped.chunks(4).all(|c| *c == flipped[..4]), "the seed chooses the bits, not the device");
    assert_ne!(flipped[1], flipped[3]);
    let (specs, _file) = both("corrupt=write:66-67");
    for spec in specs {
        let (_c, mut d) = Driver::start(SoftConfig::parse(&spec).unwrap());
        let mut p = d.pair(1, 16);
        let (data, back) = (d.memory(PAGE), d.memory(PAGE));
        data.region.write(0, &pattern(64, PAGE, 9)).unwrap();
        for _ in 0..2 {
            assert_eq!(p.status(&d, eight(io::WRITE, &data)), status::SUCCESS);
            assert_eq!(page_of(&data), pattern(64, PAGE, 9), "the driver's own memory is left alone");
            assert_eq!(p.status(&d, eight(io::READ, &back)), status::SUCCESS);
            assert_eq!(bits_that_differ(&page_of(&data), &page_of(&back)), 1, "{spec}");
        }
        assert_eq!(p.status(&d, command(io::WRITE, 60, 1, 512, &data, None)), status::SUCCESS);
        assert_eq!(p.status(&d, command(io::READ, 60, 1, 512, &back, None)), status::SUCCESS);
        assert_eq!(page_of(&back)[..512], page_of(&data)[..512], "other blocks are as written");
    }
}

#[test]
fn a_slow_queue_trickles_in_order_and_the_others_do_not_wait() {
    let (_c, mut d) = start("slow-drain=2:25ms");
    let (mut one, mut two) = (d.pair(1, 16), d.pair(2, 16));
    let begin = Instant::now();
    for cid in 0..4 {
        two.place(SqEntry::new(io::FLUSH, cid, 1));
    }
    two.ring(&d);
    assert_eq!(one.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
    let got: Vec<u16> = (0..4).map(|_| two.wait(&d).cid()).collect();
    assert_eq!(got, [0, 1, 2, 3]);
    assert!(begin.elapsed() >= Duration::from_millis(75), "three pauses cannot be shorter than they were made");
}

#[test]
fn a_namespace_that_shrinks_says_so_when_it_is_asked() {
    let (_c, mut d) = start("namespaces=2,shrink=100:after:2");
    let mut p = d.pair(1, 16);
    let (e, _data) = read(&d, 0);
    let at = |slba: u64, nsid: u32| {
        let mut e = SqEntry { nsid, ..e };
        e.set_range(slba, 1);
        e
    };
    let size = |d: &mut Driver| u64::from_le_bytes(d.identify(cns::NAMESPACE, 2).unwrap()[..8].try_into().unwrap());
    assert_eq!(size(&mut d), 2048);
    for _ in 0..2 {
        assert_eq!(p.status(&d, at(2047, 1)), status::SUCCESS);
    }
    for (slba, nsid, expected) in
        [(2047, 1, status::LBA_OUT_OF_RANGE.dnr()), (99, 1, status::SUCCESS), (100, 2, status::LBA_OUT_OF_RANGE.dnr())]
    {
        assert_eq!(p.status(&d, at(slba, nsid)), expected, "{slba} of {nsid}");
    }
    assert_eq!(size(&mut d), 100);
}
