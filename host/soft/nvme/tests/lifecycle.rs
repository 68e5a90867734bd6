//! Registers, bring-up, reset, shutdown, doorbells, unmapping, dropping.

use super::driver::*;
use crate::memory::Space;
use crate::nvme::Port;
use crate::soft::nvme::{SoftConfig, SoftController, SoftError};
use crate::wire::nvme::*;
use std::sync::Arc;

fn small() -> SoftConfig {
    SoftConfig::memory(1 << 20).threads(2)
}

#[test]
fn capabilities_say_what_was_configured() {
    let c = SoftController::start(
        small().max_queue_entries(256).doorbell_stride(2).ready_timeout(std::time::Duration::from_millis(1200)),
    )
    .unwrap();
    let d = Driver::new(&c);
    let cap = Cap(d.attachment.port.read64(register::CAP).unwrap());
    assert_eq!((cap.max_queue_entries(), cap.doorbell_stride(), cap.timeout_units()), (256, 2, 3));
    assert!(cap.contiguous_queues() && cap.command_sets() & 1 != 0);
    assert_eq!((cap.min_page_shift(), cap.max_page_shift()), (12, 16));
    assert_eq!(d.read(register::VS) >> 16, 1);
    assert_eq!(d.read(register::CSTS), 0);
    d.write(register::CAP, 7);
    assert_eq!(d.attachment.port.read64(register::CAP).unwrap(), cap.0, "read-only");
    d.write(register::INTMS, 0b1010);
    d.write(register::INTMC, 0b0010);
    assert_eq!((d.read(register::INTMS), d.read(register::INTMC)), (0b1000, 0b1000));
    assert_eq!(d.read(0x38), 0, "reserved");
    assert_eq!(d.attachment.port.kind(), "soft");
}

#[test]
fn bring_up_can_be_repeated() {
    let c = SoftController::start(small()).unwrap();
    let mut d = Driver::new(&c);
    for round in 0..3 {
        d.enable();
        let mut p = d.pair(1, 16);
        assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS, "round {round}");
        d.disable();
        assert_eq!(d.read(register::CSTS), 0);
    }
}

#[test]
fn what_cannot_be_enabled_is_fatal_until_a_reset() {
    let c = SoftController::start(small()).unwrap();
    let mut d = Driver::new(&c);
    let good = d.memory(PAGE);
    let sizes = 15 << 16 | 15;
    for (aqa, asq, acq, cc) in [
        (sizes, 0, good.iova, cc::EN),
        (sizes, good.iova, good.iova + 64, cc::EN),
        (15, good.iova, good.iova, cc::EN),
        (sizes, good.iova, good.iova, cc::EN | cc::mps(17)),
        (sizes, good.iova, good.iova, cc::EN | 6 << 4),
        (sizes, good.iova, good.iova, cc::EN | 1 << 11),
        (0xfff << 16 | 0xfff, good.iova, good.iova, cc::EN),
    ] {
        d.write(register::AQA, aqa);
        d.attachment.port.write64(register::ASQ, asq).unwrap();
        d.attachment.port.write64(register::ACQ, acq).unwrap();
        d.write(register::CC, cc);
        until("CSTS.CFS", || d.read(register::CSTS) & csts::CFS != 0);
        assert_eq!(d.read(register::CSTS) & csts::RDY, 0);
        d.write(register::CC, 0);
        until("the reset", || d.read(register::CSTS) == 0);
    }
    d.enable();
    d.identify(cns::CONTROLLER, 0).unwrap();
}

#[test]
fn shutdown_completes_and_a_reset_brings_it_back() {
    let (_c, mut d) = Driver::start(small());
    for shn in [cc::SHN_NORMAL, cc::SHN_ABRUPT] {
        d.write(register::CC, cc::EN | cc::IOSQES_64 | cc::IOCQES_16 | shn);
        until("SHST", || d.read(register::CSTS) & csts::SHST_MASK == csts::SHST_COMPLETE);
        d.disable();
        d.enable();
        d.identify(cns::CONTROLLER, 0).unwrap();
    }
    d.disable();
    d.write(register::CC, cc::SHN_NORMAL);
    until("SHST", || d.read(register::CSTS) & csts::SHST_MASK == csts::SHST_COMPLETE);
    d.enable();
    d.identify(cns::CONTROLLER, 0).unwrap();
}

#[test]
fn larger_memory_pages_change_what_prps_mean() {
    let c = SoftController::start(small()).unwrap();
    let mut d = Driver::new(&c);
    d.enable_with(cc::IOSQES_64 | cc::IOCQES_16 | cc::mps(13));
    // Two pages of 8 KiB: 16 KiB without a list, from a start that is page aligned on the device's side.
    let data = d.memory(8 * PAGE);
    let start = data.iova.next_multiple_of(2 * PAGE as u64);
    let base = (start - data.iova) as usize;
    let mut p = d.pair_memory(1, 16);
    for (r, n) in [(&mut p.sq, 16 * 64), (&mut p.cq, 16 * 16)] {
        // Rings must be page aligned too.
        let bigger = d.memory(n + 3 * PAGE);
        let at = bigger.iova.next_multiple_of(2 * PAGE as u64);
        let offset = (at - bigger.iova) as usize;
        *r = crate::memory::DmaRegion { iova: at, offset, ..bigger };
    }
    let (cq, sq) = (d.create_cq(&p), d.create_sq(&p));
    assert_eq!(d.admin_status(cq), status::SUCCESS);
    assert_eq!(d.admin_status(sq), status::SUCCESS);
    let bytes = pattern(4, 16 << 10, 0);
    data.region.write(base, &bytes).unwrap();
    let mut e = SqEntry::new(io::WRITE, 1, 1);
    e.set_range(4, 32);
    (e.prp1, e.prp2) = (start, start + 2 * PAGE as u64);
    for opcode in [io::WRITE, io::READ] {
        e.cdw0 = u32::from(opcode) | 7 << 16;
        let host = p.sq.host().unwrap().as_ptr().cast::<SqEntry>();
        // SAFETY: inside the ring.
        unsafe { host.add(p.tail as usize).write_volatile(e) };
        p.tail += 1;
        p.ring(&d);
        assert_eq!(p.wait(&d).status(), status::SUCCESS);
        if opcode == io::WRITE {
            data.region.fill(base, bytes.len(), 0).unwrap();
        }
    }
    assert_eq!(data.region.get_slice::<u8>(base, bytes.len()).unwrap(), bytes);
}

#[test]
fn bad_doorbells_are_events_and_never_accesses() {
    let (_c, mut d) = Driver::start(small());
    let mut p = d.pair(1, 16);
    let event = SqEntry::new(admin::ASYNC_EVENT_REQUEST, 77, 0);
    let mut a = d.admin.take().unwrap();
    let mut expect = |d: &Driver, what: &str, information: u32, act: &dyn Fn(&Driver)| {
        a.place(event);
        a.ring(d);
        act(d);
        let c = a.wait(d);
        assert_eq!((c.cid(), c.result), (77, information << 8 | u32::from(log_page::ERROR) << 16), "{what}");
        // Reading the error log unmasks events of this kind.
        let page = d.memory(PAGE);
        let mut log = SqEntry::new(admin::GET_LOG_PAGE, 0, 0);
        (log.prp1, log.cdw10) = (page.iova, u32::from(log_page::ERROR) | 15 << 16);
        assert_eq!(a.status(d, log), status::SUCCESS);
        assert_eq!(page.region.get::<u16>(8).unwrap(), 0xffff, "an error of no queue");
    };
    expect(&d, "tail beyond the queue", 1, &|d| d.doorbell(register::sq_tail(1, d.stride), 16, true));
    expect(&d, "tail far beyond", 1, &|d| d.doorbell(register::sq_tail(1, d.stride), u32::MAX, true));
    expect(&d, "no such queue", 0, &|d| d.doorbell(register::sq_tail(9, d.stride), 1, false));
    expect(&d, "outside the window", 0, &|d| d.doorbell(0x7fff_fff0, 1, false));
    d.admin = Some(a);
    d.doorbell(register::sq_tail(1, d.stride), 0, true);
    // The queue still works.
    for _ in 0..40 {
        assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
    }
}

#[test]
fn unmapped_memory_is_not_touched_again() {
    let (_c, mut d) = Driver::start(small());
    let mut p = d.pair(1, 64);
    let data = d.memory(PAGE);
    let region = data.region.clone();
    let read = command(io::READ, 0, 8, PAGE, &data, None);
    assert_eq!(p.status(&d, read), status::SUCCESS);
    // Keeps the queue busy while the mapping ends.
    let busy = std::thread::scope(|s| {
        let runner = s.spawn(|| {
            let mut statuses = Vec::new();
            for _ in 0..500 {
                statuses.push(p.status(&d, read));
            }
            statuses
        });
        std::thread::sleep(std::time::Duration::from_millis(2));
        drop(data);
        region.fill(0, PAGE, 0x5a).unwrap();
        runner.join().unwrap()
    });
    let first_bad = busy.iter().position(|s| !s.is_success()).unwrap_or(busy.len());
    assert!(busy[first_bad..].iter().all(|s| *s == status::DATA_TRANSFER_ERROR.dnr()));
    assert_eq!(p.status(&d, read), status::DATA_TRANSFER_ERROR.dnr());
    assert_eq!(region.get_slice::<u8>(0, PAGE).unwrap(), vec![0x5a; PAGE], "written after the unmapping");
}

#[test]
fn unmapping_a_live_ring_is_fatal_and_a_reset_recovers() {
    let (_c, mut d) = Driver::start(small());
    let p = d.pair(1, 16);
    drop(p);
    until("CSTS.CFS", || d.read(register::CSTS) & csts::CFS != 0);
    d.disable();
    d.enable();
    let mut p = d.pair(1, 16);
    assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
}

#[test]
fn existing_host_memory_can_be_mapped() {
    let (_c, mut d) = Driver::start(small());
    let mut p = d.pair(1, 16);
    let region = Space::cpu().allocate(crate::memory::Place::Host, 2 * PAGE).unwrap();
    let mapped = d.attachment.dma.map(&region).unwrap();
    let bytes = pattern(0, 2 * PAGE, 3);
    region.write(0, &bytes).unwrap();
    assert_eq!(p.status(&d, command(io::WRITE, 0, 16, 2 * PAGE, &mapped, None)), status::SUCCESS);
    region.fill(0, 2 * PAGE, 0).unwrap();
    assert_eq!(p.status(&d, command(io::READ, 0, 16, 2 * PAGE, &mapped, None)), status::SUCCESS);
    assert_eq!(region.get_slice::<u8>(0, 2 * PAGE).unwrap(), bytes);
}

#[test]
fn any_handle_keeps_it_running_and_the_last_one_ends_it() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    for order in 0..3 {
        let (c, mut d) = Driver::start(small());
        let core = Arc::downgrade(&c.0.core);
        let mut p = d.pair(1, 16);
        let port: Arc<dyn Port> = d.attachment.port.clone();
        drop(c);
        assert_eq!(p.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
        assert!(threads() > 3);
        match order {
            0 => {
                drop(p);
                drop(d);
                assert!(core.upgrade().is_some());
                drop(port);
            }
            1 => {
                drop(port);
                drop(d);
                drop(p);
            }
            _ => {
                drop(d);
                drop(port);
                // The rings are unmapped after the controller is gone.
                drop(p);
            }
        }
        assert!(core.upgrade().is_none(), "order {order}: a thread still has the controller");
    }
}

#[test]
fn impossible_configurations_are_errors() {
    let config = |c: SoftConfig| SoftController::start(c).unwrap_err();
    assert!(matches!(config(small().threads(0)), SoftError::Config { .. }));
    assert!(matches!(config(SoftConfig::parse("mem").unwrap()), SoftError::NoSize));
    assert!(matches!(config(SoftConfig::memory(0)), SoftError::Size { bytes: 0, block: 512, .. }));
    assert!(matches!(config(SoftConfig::memory(1000)), SoftError::Size { .. }));
    let text = config(SoftConfig::memory(5120).block_bytes(4096)).to_string();
    assert!(text.contains("5120") && text.contains("4096"), "{text}");
}
