//! Admin commands, and the status codes of invalid ones.

use super::driver::*;
use crate::soft::nvme::{Backing, NamespaceConfig, SoftConfig};
use crate::wire::nvme::*;

fn start() -> (crate::soft::nvme::SoftController, Driver) {
    Driver::start(SoftConfig::memory(1 << 20).threads(2).max_queue_pairs(4).max_queue_entries(64))
}

fn word<const N: usize>(p: &[u8], at: usize) -> u64 {
    p[at..at + N].iter().rev().fold(0, |a, b| a << 8 | u64::from(*b))
}

#[test]
fn identify_describes_controller_and_namespaces() {
    let small = NamespaceConfig::new(Backing::Memory { bytes: Some(40 << 12) }).block_bytes(4096);
    let (_c, mut d) =
        Driver::start(SoftConfig::memory(1 << 20).namespace(small).threads(1).max_transfer_bytes(1 << 20));
    let c = d.identify(cns::CONTROLLER, 0).unwrap();
    assert_eq!(c[77], 8, "MDTS: 1 MiB in pages of 4 KiB");
    assert_eq!((c[512], c[513]), (0x66, 0x44));
    assert_eq!(word::<4>(&c, 516), 2);
    assert_eq!(word::<4>(&c, 80), u64::from(d.read(register::VS)));
    assert_eq!(c[525] & 1, 0, "memory has no volatile write cache");
    assert!(String::from_utf8_lossy(&c[24..64]).starts_with("warpbell"));
    assert!(c[768..1024].starts_with(b"nqn."));
    let n = d.identify(cns::NAMESPACE, 1).unwrap();
    assert_eq!((word::<8>(&n, 0), n[130]), (2048, 9));
    let n = d.identify(cns::NAMESPACE, 2).unwrap();
    assert_eq!((word::<8>(&n, 0), word::<8>(&n, 8), n[130]), (40, 40, 12));
    let list = d.identify(cns::ACTIVE_NAMESPACES, 0).unwrap();
    assert_eq!([word::<4>(&list, 0), word::<4>(&list, 4), word::<4>(&list, 8)], [1, 2, 0]);
    assert_eq!(word::<4>(&d.identify(cns::ACTIVE_NAMESPACES, 1).unwrap(), 0), 2);
    let one = d.identify(cns::NAMESPACE_DESCRIPTORS, 1).unwrap();
    let two = d.identify(cns::NAMESPACE_DESCRIPTORS, 2).unwrap();
    assert_eq!((one[0], one[1]), (3, 16));
    assert_ne!(one[4..20], two[4..20]);
    for (cns, nsid, expected) in [
        (cns::NAMESPACE, 0, status::INVALID_NAMESPACE),
        (cns::NAMESPACE, 3, status::INVALID_NAMESPACE),
        (cns::NAMESPACE, u32::MAX, status::INVALID_NAMESPACE),
        (cns::NAMESPACE_DESCRIPTORS, 3, status::INVALID_NAMESPACE),
        (cns::ACTIVE_NAMESPACES, u32::MAX, status::INVALID_NAMESPACE),
        (0x7f, 1, status::INVALID_FIELD),
    ] {
        assert_eq!(d.identify(cns, nsid), Err(expected.dnr()), "CNS {cns:#x} of {nsid:#x}");
    }
}

#[test]
fn queue_creation_refuses_what_the_specification_refuses() {
    let (_c, mut d) = start();
    let good = d.pair_memory(1, 64);
    let (cq, sq) = (d.create_cq(&good), d.create_sq(&good));
    let id = |e: SqEntry, id: u32| SqEntry { cdw10: e.cdw10 & !0xffff | id, ..e };
    let size = |e: SqEntry, n: u32| SqEntry { cdw10: e.cdw10 & 0xffff | n << 16, ..e };
    assert_eq!(d.admin_status(sq), status::INVALID_CQ.dnr(), "no completion queue yet");
    for (e, expected) in [
        (id(cq, 0), status::INVALID_QUEUE_ID),
        (id(cq, 5), status::INVALID_QUEUE_ID),
        (id(cq, 0xffff), status::INVALID_QUEUE_ID),
        (size(cq, 0), status::INVALID_QUEUE_SIZE),
        (size(cq, 64), status::INVALID_QUEUE_SIZE),
        (SqEntry { cdw11: 0, ..cq }, status::INVALID_FIELD),
        (SqEntry { cdw11: 3 | 9 << 16, ..cq }, status::INVALID_INTERRUPT_VECTOR),
        (SqEntry { prp1: cq.prp1 + 16, ..cq }, status::INVALID_PRP_OFFSET),
        (SqEntry { prp1: 0x1000, ..cq }, status::DATA_TRANSFER_ERROR),
        (cq, Status(0)),
        (cq, status::INVALID_QUEUE_ID),
        (id(sq, 0), status::INVALID_QUEUE_ID),
        (id(sq, 5), status::INVALID_QUEUE_ID),
        (size(sq, 0), status::INVALID_QUEUE_SIZE),
        (size(sq, 64), status::INVALID_QUEUE_SIZE),
        (SqEntry { cdw11: 1 << 16, ..sq }, status::INVALID_FIELD),
        (SqEntry { cdw11: 1, ..sq }, status::INVALID_QUEUE_ID),
        (SqEntry { cdw11: 1 | 2 << 16, ..sq }, status::INVALID_CQ),
        (SqEntry { prp1: sq.prp1 + 64, ..sq }, status::INVALID_PRP_OFFSET),
        (SqEntry { prp1: sq.prp1 + (1 << 30), ..sq }, status::DATA_TRANSFER_ERROR),
        (sq, Status(0)),
        (sq, status::INVALID_QUEUE_ID),
    ] {
        let expected = if expected == Status(0) { expected } else { expected.dnr() };
        assert_eq!(d.admin_status(e), expected, "{e:?}");
    }
    let (del_sq, del_cq) = (d.delete(admin::DELETE_SQ, 1), d.delete(admin::DELETE_CQ, 1));
    assert_eq!(d.admin_status(del_cq), status::INVALID_QUEUE_DELETION.dnr(), "a submission queue still uses it");
    assert_eq!(d.admin_status(del_sq), status::SUCCESS);
    assert_eq!(d.admin_status(del_sq), status::INVALID_QUEUE_ID.dnr());
    assert_eq!(d.admin_status(del_cq), status::SUCCESS);
    assert_eq!(d.admin_status(del_cq), status::INVALID_QUEUE_ID.dnr());
    // A new queue with the same identifier begins with doorbells at zero.
    let mut again = d.pair(1, 32);
    for _ in 0..70 {
        assert_eq!(again.status(&d, SqEntry::new(io::FLUSH, 0, 1)), status::SUCCESS);
    }
}

#[test]
fn several_submission_queues_may_share_a_completion_queue() {
    let (_c, mut d) = start();
    let mut first = d.pair(3, 64);
    let mut second = d.pair_memory(2, 64);
    let mut create = d.create_sq(&second);
    create.cdw11 = 1 | 3 << 16;
    assert_eq!(d.admin_status(create), status::SUCCESS);
    for i in 0..20u16 {
        second.place(SqEntry::new(io::FLUSH, 100 + i, 1));
        first.place(SqEntry::new(io::FLUSH, i, 1));
    }
    second.ring(&d);
    first.ring(&d);
    let mut seen: Vec<(u16, u16)> = (0..40).map(|_| first.wait(&d)).map(|c| (c.sqid(), c.cid())).collect();
    seen.sort();
    let expected: Vec<_> = (100..120).map(|c| (2, c)).chain((0..20).map(|c| (3, c))).collect();
    assert_eq!(seen, expected);
}

#[test]
fn queues_need_entry_sizes_in_cc() {
    let c = crate::soft::nvme::SoftController::start(SoftConfig::memory(1 << 20).threads(1)).unwrap();
    let mut d = Driver::new(&c);
    d.enable_with(0);
    let p = d.pair_memory(1, 16);
    let create = d.create_cq(&p);
    assert_eq!(d.admin_status(create), status::INVALID_QUEUE_SIZE.dnr());
}

#[test]
fn features() {
    let (_c, mut d) = start();
    let set =
        |id: u8, value: u32| SqEntry { cdw10: u32::from(id), cdw11: value, ..SqEntry::new(admin::SET_FEATURES, 0, 0) };
    let get = |id: u8| SqEntry { cdw10: u32::from(id), ..SqEntry::new(admin::GET_FEATURES, 0, 0) };
    assert_eq!(d.admin(get(feature::NUMBER_OF_QUEUES)).result, 3 << 16 | 3);
    assert_eq!(d.admin(set(feature::NUMBER_OF_QUEUES, 1 << 16 | 63)).result, 1 << 16 | 3);
    let three = d.pair_memory(3, 16);
    let create = d.create_cq(&three);
    assert_eq!(d.admin_status(create), status::INVALID_QUEUE_ID.dnr(), "only two completion queues were asked for");
    let _one = d.pair(1, 16);
    assert_eq!(d.admin_status(set(feature::NUMBER_OF_QUEUES, 0)), status::SEQUENCE_ERROR.dnr());
    assert_eq!(d.admin_status(set(feature::ARBITRATION, 0x0102_0304)), status::SUCCESS);
    assert_eq!(d.admin(get(feature::ARBITRATION)).result, 0x0102_0304);
    assert_eq!(d.admin_status(get(0xee)), status::INVALID_FIELD.dnr());
    assert_eq!(d.admin_status(set(feature::POWER_MANAGEMENT, 3)), status::INVALID_FIELD.dnr());
    let mut save = set(feature::ARBITRATION, 0);
    save.cdw10 |= 1 << 31;
    assert_eq!(d.admin_status(save), status::FEATURE_NOT_SAVEABLE.dnr());
    assert_eq!(d.admin_status(SqEntry::new(admin::KEEP_ALIVE, 0, 0)), status::SUCCESS);
}

#[test]
fn logs() {
    let (_c, mut d) = start();
    let page = d.memory(2 * PAGE);
    let log = |id: u8, dwords: u32, offset: u32| SqEntry {
        prp1: page.iova,
        prp2: page.iova + PAGE as u64,
        cdw10: u32::from(id) | (dwords - 1) << 16,
        cdw12: offset,
        ..SqEntry::new(admin::GET_LOG_PAGE, 0, u32::MAX)
    };
    let mut p = d.pair(1, 16);
    let bad = p.run(&d, SqEntry { cdw10: 5_000_000, ..SqEntry::new(io::READ, 0, 1) });
    assert_eq!(bad.status(), status::LBA_OUT_OF_RANGE.dnr());
    let data = d.memory(PAGE);
    assert_eq!(p.status(&d, command(io::READ, 0, 8, PAGE, &data, None)), status::SUCCESS);
    assert_eq!(d.admin_status(log(log_page::ERROR, 1024, 0)), status::SUCCESS);
    assert_eq!(page.region.get::<u64>(0).unwrap(), 1, "error count");
    assert_eq!(page.region.get::<u16>(8).unwrap(), 1, "queue");
    assert_eq!(page.region.get::<u16>(10).unwrap(), bad.cid());
    assert_eq!(page.region.get::<u16>(12).unwrap() >> 1, status::LBA_OUT_OF_RANGE.dnr().0);
    assert_eq!(page.region.get::<u64>(16).unwrap(), 5_000_000);
    until("published counts", || {
        assert_eq!(d.admin_status(log(log_page::HEALTH, 128, 0)), status::SUCCESS);
        page.region.get::<u64>(64).unwrap() == 1
    });
    assert_eq!(page.region.get::<u64>(32).unwrap(), 1, "data units are rounded up");
    assert_eq!(page.region.get::<u8>(0).unwrap(), 0, "no warning");
    assert_eq!(d.admin_status(log(log_page::HEALTH, 32, 64)), status::SUCCESS);
    assert_eq!(page.region.get::<u64>(0).unwrap(), 1, "from an offset");
    assert_eq!(d.admin_status(log(log_page::FIRMWARE_SLOT, 128, 0)), status::SUCCESS);
    assert_eq!(page.region.get::<u8>(0).unwrap(), 1);
    assert_eq!(d.admin_status(log(0xc7, 1, 0)), status::INVALID_LOG_PAGE.dnr());
    assert_eq!(d.admin_status(log(log_page::HEALTH, 1, 3)), status::INVALID_FIELD.dnr());
    assert_eq!(d.admin_status(log(log_page::HEALTH, 1, 1 << 20)), status::INVALID_FIELD.dnr());
    assert_eq!(d.admin_status(SqEntry { cdw11: 0xffff, ..log(log_page::HEALTH, 1, 0) }), status::INVALID_FIELD.dnr());
    assert_eq!(d.admin_status(SqEntry { nsid: 1, ..log(log_page::HEALTH, 1, 0) }), status::INVALID_FIELD.dnr());
}

#[test]
fn event_requests_wait_are_limited_and_can_be_aborted() {
    let (_c, mut d) = start();
    let mut a = d.admin.take().unwrap();
    for cid in 0..4 {
        a.place(SqEntry::new(admin::ASYNC_EVENT_REQUEST, 1000 + cid, 0));
    }
    a.place(SqEntry::new(admin::ASYNC_EVENT_REQUEST, 2000, 0));
    a.ring(&d);
    let c = a.wait(&d);
    assert_eq!((c.cid(), c.status()), (2000, status::ASYNC_EVENT_LIMIT.dnr()));
    let abort = |cid: u32| SqEntry { cdw10: cid << 16, ..SqEntry::new(admin::ABORT, 9, 0) };
    a.place(abort(1002));
    a.ring(&d);
    let (first, second) = (a.wait(&d), a.wait(&d));
    assert_eq!((first.cid(), first.status()), (1002, status::ABORT_REQUESTED));
    assert_eq!((second.cid(), second.status(), second.result), (9, status::SUCCESS, 0));
    assert_eq!(a.run(&d, abort(1002)).result, 1, "gone already");
    // A threshold below the temperature raises an event of another kind, once.
    let set = |id: u8, v: u32| SqEntry { cdw10: u32::from(id), cdw11: v, ..SqEntry::new(admin::SET_FEATURES, 50, 0) };
    assert_eq!(a.status(&d, set(feature::ASYNC_EVENT_CONFIG, 2)), status::SUCCESS);
    a.place(set(feature::TEMPERATURE_THRESHOLD, 280));
    a.ring(&d);
    let mut both = [a.wait(&d), a.wait(&d)];
    both.sort_by_key(CqEntry::cid);
    assert_eq!((both[0].cid(), both[0].status()), (50, status::SUCCESS));
    assert_eq!((both[1].cid(), both[1].result), (1000, 1 | 1 << 8 | u32::from(log_page::HEALTH) << 16));
    d.admin = Some(a);
}

#[test]
fn unknown_and_malformed_admin_commands() {
    let (_c, mut d) = start();
    for opcode in [0x03, 0x0d, 0x10, 0x80, 0xff] {
        assert_eq!(d.admin_status(SqEntry::new(opcode, 0, 0)), status::INVALID_OPCODE.dnr(), "{opcode:#x}");
    }
    let page = d.memory(PAGE);
    let identify = |prp1: u64, prp2: u64| SqEntry { prp1, prp2, cdw10: 1, ..SqEntry::new(admin::IDENTIFY, 0, 0) };
    assert_eq!(d.admin_status(identify(0, 0)), status::DATA_TRANSFER_ERROR.dnr());
    assert_eq!(d.admin_status(identify(page.iova + 2, 0)), status::INVALID_PRP_OFFSET.dnr());
    assert_eq!(d.admin_status(identify(page.iova + 512, 0)), status::DATA_TRANSFER_ERROR.dnr());
    for flag in [1 << 8, 1 << 14, 2 << 14] {
        let mut e = identify(page.iova, 0);
        e.cdw0 |= flag;
        assert_eq!(d.admin_status(e), status::INVALID_FIELD.dnr());
    }
    assert_eq!(d.admin_status(identify(page.iova, 0)), status::SUCCESS);
}
