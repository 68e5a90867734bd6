//! Controllers with the timing of a model: completions that wait, in every way in which a queue can end.
//!
//! No test depends on the speed of the machine. The models are slow, and times are only compared with what they may not be
//! shorter than.

use super::driver::*;
use crate::soft::model::{DriveModel, Latencies, ModelSource, slow};
use crate::soft::nvme::{SoftConfig, SoftController, SoftError};
use crate::spec::SpecError;
use crate::wire::nvme::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MILLISECOND: f64 = 1e6;
/// Time of commands that do not complete during a test.
const NEVER: f64 = 3600e3 * MILLISECOND;

/// Returns a model whose reads and writes take these times in nanoseconds.
fn model(read_ns: f64, write_ns: f64) -> DriveModel {
    slow().with_times(Latencies { read_ns, write_ns })
}

fn config(model: DriveModel) -> SoftConfig {
    SoftConfig::memory(1 << 20).threads(1).model(ModelSource::Given(Box::new(model)))
}

/// Places `count` reads of one block without waiting. Their identifiers are 100 and so on.
fn place_reads(driver: &Driver, pair: &mut Pair, count: u16) -> crate::memory::DmaRegion {
    let data = driver.memory(PAGE);
    for i in 0..count {
        let mut e = command(io::READ, u64::from(i), 1, 512, &data, None);
        e.cdw0 |= u32::from(100 + i) << 16;
        pair.place(e);
    }
    pair.ring(driver);
    data
}

/// Waits for completions, and returns identifiers and statuses in the order of their arrival.
fn completions(driver: &Driver, pair: &mut Pair, count: usize) -> Vec<(u16, Status)> {
    (0..count).map(|_| pair.wait(driver)).map(|c| (c.cid(), c.status())).collect()
}

/// As [`completions`], in the order of the identifiers.
fn sorted(driver: &Driver, pair: &mut Pair, count: usize) -> Vec<(u16, Status)> {
    let mut all = completions(driver, pair, count);
    all.sort_by_key(|(cid, _)| *cid);
    all
}

#[test]
fn no_completion_is_posted_before_its_time() {
    let (_c, mut d) = Driver::start(config(model(20.0 * MILLISECOND, MILLISECOND)));
    let mut p = d.pair(1, 16);
    let data = d.memory(PAGE);
    data.region.write(0, &pattern(3, PAGE, 0)).unwrap();
    let began = Instant::now();
    assert_eq!(p.status(&d, command(io::WRITE, 8, 8, PAGE, &data, None)), status::SUCCESS);
    assert!(began.elapsed() >= Duration::from_micros(900));
    data.region.fill(0, PAGE, 0).unwrap();
    let began = Instant::now();
    assert_eq!(p.status(&d, command(io::READ, 8, 8, PAGE, &data, None)), status::SUCCESS);
    assert!(began.elapsed() >= Duration::from_millis(18));
    assert_eq!(data.region.get_slice::<u8>(0, PAGE).unwrap(), pattern(3, PAGE, 0));
}

#[test]
fn completions_come_by_time_and_not_by_submission() {
    let (_c, mut d) = Driver::start(config(model(50.0 * MILLISECOND, MILLISECOND)));
    let mut p = d.pair(1, 16);
    let data = place_reads(&d, &mut p, 2);
    let mut write = command(io::WRITE, 16, 1, 512, &data, None);
    write.cdw0 |= 7 << 16;
    p.place(write);
    p.ring(&d);
    let cids: Vec<u16> = completions(&d, &mut p, 3).iter().map(|c| c.0).collect();
    assert_eq!((cids[0], cids.len()), (7, 3), "{cids:?}");
}

#[test]
fn commands_of_every_kind_complete_and_invalid_ones_fail() {
    let (_c, mut d) = Driver::start(config(model(MILLISECOND, MILLISECOND)));
    let mut p = d.pair(1, 16);
    let data = d.memory(PAGE);
    let range = |opcode| command(opcode, 0, 1, 512, &data, None);
    for opcode in [io::READ, io::WRITE, io::COMPARE, io::WRITE_ZEROES, io::WRITE_UNCORRECTABLE] {
        let zeroed = opcode == io::COMPARE || opcode == io::WRITE;
        if zeroed {
            data.region.fill(0, PAGE, 0).unwrap();
        }
        assert_eq!(p.status(&d, range(opcode)), status::SUCCESS, "{opcode}");
    }
    assert_eq!(p.status(&d, range(io::READ)), status::UNRECOVERED_READ_ERROR);
    assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
    let mut discard = SqEntry::new(io::DATASET_MANAGEMENT, 0, 1);
    discard.prp1 = data.iova;
    assert_eq!(p.status(&d, discard), status::SUCCESS);
    let beyond = command(io::READ, 1 << 40, 1, 512, &data, None);
    assert_eq!(p.status(&d, beyond), status::LBA_OUT_OF_RANGE.dnr());
    assert_eq!(p.status(&d, SqEntry::new(0x77, 0, 1)), status::INVALID_OPCODE.dnr());
    assert_eq!(p.status(&d, SqEntry::new(io::READ, 0, 9)), status::INVALID_NAMESPACE.dnr());
}

#[test]
fn a_deleted_queue_completes_every_command() {
    let (_c, mut d) = Driver::start(config(model(NEVER, MILLISECOND)));
    let (mut p, mut other) = (d.pair(1, 16), d.pair(2, 16));
    let _data = place_reads(&d, &mut p, 5);
    // A command behind the reads that completes: so they were fetched.
    assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
    let waiting = place_reads(&d, &mut other, 1);
    let (delete_sq, delete_cq) = (d.delete(admin::DELETE_SQ, 1), d.delete(admin::DELETE_CQ, 1));
    assert_eq!(d.admin_status(delete_sq), status::SUCCESS);
    let ended = sorted(&d, &mut p, 5);
    assert_eq!(ended, (100..105).map(|cid| (cid, status::SQ_DELETION)).collect::<Vec<_>>());
    assert_eq!(d.admin_status(delete_cq), status::SUCCESS);
    // The other queue waits on, and the deleted one can be made again.
    assert!(other.poll(&d).is_none());
    let mut p = d.pair(1, 16);
    assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
    drop(waiting);
}

#[test]
fn an_aborted_command_completes_once() {
    let (_c, mut d) = Driver::start(config(model(NEVER, MILLISECOND)));
    let mut p = d.pair(1, 16);
    let _data = place_reads(&d, &mut p, 2);
    assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
    let abort = |cid: u32| SqEntry { cdw10: cid << 16 | 1, ..SqEntry::new(admin::ABORT, 0, 0) };
    assert_eq!(d.admin(abort(101)).result & 1, 0, "aborted");
    assert_eq!(completions(&d, &mut p, 1), [(101, status::ABORT_REQUESTED)]);
    assert_eq!(d.admin(abort(101)).result & 1, 1, "there is no such command any more");
    assert!(p.poll(&d).is_none());
}

#[test]
fn a_reset_forgets_what_waits() {
    let (_c, mut d) = Driver::start(config(model(NEVER, MILLISECOND)));
    for _ in 0..3 {
        let mut p = d.pair(1, 16);
        let _data = place_reads(&d, &mut p, 5);
        assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
        d.disable();
        assert!(p.poll(&d).is_none(), "a completion after the reset");
        d.enable();
    }
    let mut p = d.pair(1, 16);
    assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
}

#[test]
fn a_shutdown_completes_every_command() {
    let (_c, mut d) = Driver::start(config(model(NEVER, MILLISECOND)));
    let mut p = d.pair(1, 16);
    let _data = place_reads(&d, &mut p, 3);
    assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
    d.write(register::CC, cc::EN | cc::IOSQES_64 | cc::IOCQES_16 | cc::SHN_NORMAL);
    until("SHST", || d.read(register::CSTS) & csts::SHST_MASK == csts::SHST_COMPLETE);
    let ended = sorted(&d, &mut p, 3);
    assert_eq!(ended, (100..103).map(|cid| (cid, status::ABORT_REQUESTED)).collect::<Vec<_>>());
}

#[test]
fn a_controller_ends_with_completions_that_wait() {
    for rings_first in [true, false] {
        let (c, mut d) = Driver::start(config(model(NEVER, MILLISECOND)));
        let core = Arc::downgrade(&c.0.core);
        let mut p = d.pair(1, 16);
        let data = place_reads(&d, &mut p, 5);
        assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
        drop(c);
        if rings_first {
            drop((p, data, d));
        } else {
            drop(d);
            drop((data, p));
        }
        assert!(core.upgrade().is_none(), "a thread still has the controller");
    }
}

#[test]
fn a_full_completion_queue_loses_nothing() {
    let (_c, mut d) = Driver::start(config(model(MILLISECOND, MILLISECOND)));
    // 15 commands, and three places for completions.
    let mut p = d.pair_memory(1, 16);
    let mut small = d.pair_memory(1, 4);
    let (cq, sq) = (d.create_cq(&small), d.create_sq(&p));
    assert_eq!(d.admin_status(cq), status::SUCCESS);
    assert_eq!(d.admin_status(sq), status::SUCCESS);
    let _data = place_reads(&d, &mut p, 15);
    let cids: Vec<u16> = sorted(&d, &mut small, 15).iter().map(|c| c.0).collect();
    assert_eq!(cids, (100..115).collect::<Vec<u16>>());
}

#[test]
fn files_and_faults_keep_to_the_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.img");
    std::fs::write(&path, pattern(0, 1 << 20, 5)).unwrap();
    for spec in [path.display().to_string(), format!("{},io=pread", path.display()), "mem:1M,reorder".to_owned()] {
        let config = SoftConfig::parse(&spec).unwrap().threads(1);
        let slow = model(10.0 * MILLISECOND, MILLISECOND);
        let (_c, mut d) = Driver::start(config.model(ModelSource::Given(Box::new(slow))));
        let mut p = d.pair(1, 16);
        let began = Instant::now();
        let data = place_reads(&d, &mut p, 3);
        let ended = completions(&d, &mut p, 3);
        assert!(began.elapsed() >= Duration::from_millis(9), "{spec}");
        assert!(ended.iter().all(|(_, status)| *status == status::SUCCESS), "{spec}: {ended:?}");
        drop(data);
    }
}

#[test]
fn the_controller_reports_the_limits_and_the_name_of_the_model() {
    let (c, mut d) = Driver::start(config(slow()));
    assert_eq!(c.name(), "soft:mem 1 MiB, model slow");
    assert_eq!(d.attachment.port.model(), Some("slow"));
    assert_eq!(Cap(d.attachment.port.read64(register::CAP).unwrap()).max_queue_entries(), 1024);
    let page = d.identify(cns::CONTROLLER, 0).unwrap();
    assert_eq!(&page[24..64], format!("{:<40}", "warpbell model slow").as_bytes());
    assert_eq!(page[77], 5, "128 KiB");
    let mut queues = SqEntry::new(admin::SET_FEATURES, 0, 0);
    (queues.cdw10, queues.cdw11) = (u32::from(feature::NUMBER_OF_QUEUES), 99 << 16 | 99);
    assert_eq!(d.admin(queues).result, 7 << 16 | 7);
}

#[test]
fn options_that_a_model_sets_are_refused_beside_it() {
    let said = |spec: &str| SoftConfig::parse(spec).unwrap_err().to_string();
    for option in ["latency=5us", "entries=64", "queues=3", "transfer=64k"] {
        let text = said(&format!("mem,{option},model=pm1743"));
        assert!(text.starts_with(&format!("`{option}`: `model=pm1743` sets this; leave it out")), "{text}");
    }
    let unknown = said("mem,model=pm1734");
    assert!(unknown.contains("`model=pm1734`: there is no such model; there are 990-pro, "), "{unknown}");
    assert!(matches!(SoftConfig::parse("mem,model="), Err(SpecError::BadOption { .. })));
    let missing = SoftController::start(SoftConfig::parse("mem:1M,model=nowhere.toml").unwrap()).unwrap_err();
    assert!(matches!(missing, SoftError::Model(_)) && missing.to_string().contains("nowhere.toml: cannot read it"));
}

#[test]
fn a_model_that_no_machine_keeps_up_with_is_refused() {
    let mut fast = slow();
    fast.read.iops = vec![(512, 1e12)];
    fast.read.bandwidth = 1e6;
    let error = SoftController::start(config(fast)).unwrap_err();
    assert!(matches!(error, SoftError::Config { .. }));
    let text = error.to_string();
    assert!(text.contains("model slow completes 1000000000000 commands of 512 bytes per second"), "{text}");
}
