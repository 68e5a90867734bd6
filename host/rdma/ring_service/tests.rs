use super::testing::{CpuSendQueue, memory};
use super::*;
use crate::memory::Place;
use crate::rdma::QueuePlan;
use crate::wire::mlx5::cqe::Outcome;
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::wqe::{Remote, WqeError};
use crate::wire::mlx5::{Atomic, Cqe, Flags, Operation, Payload};
use proptest::prelude::*;

const NUMBER: u32 = 0x1234;
const REMOTE: Remote = Remote { address: 0x1000, key: 0x77 };

fn ring_service(log: u32, collapsed: bool) -> (Arc<QueueRings>, RingService) {
    let memory = Arc::new(memory(log, collapsed));
    let ring = RingService::new(memory.clone(), NUMBER).unwrap();
    (memory, ring)
}

fn inline(bytes: &[u8]) -> Operation<'_> {
    Operation::Write { remote: REMOTE, payload: Payload::Inline(bytes), immediate: None }
}

fn failure(c: &Completion) -> (u8, u8) {
    match c.outcome {
        Outcome::Failed(f) => (f.syndrome.0, f.vendor.0),
        _ => (0, 0),
    }
}

fn queue_error(ring: &mut RingService) -> QueueError {
    match ring.fetch() {
        Fetched::Refused(_, why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_come_out_as_they_went_in_over_many_laps() {
    let (memory, mut ring) = ring_service(3, false);
    ring.set_poison(true);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    for turn in 0..40_000u64 {
        // Alternates entries of one and three blocks: they cross the ring's end, and the wire's index wraps.
        let data = vec![turn as u8; if turn % 2 == 0 { 8 } else { 130 }];
        let at = p.post(Flags::SIGNALLED, inline(&data));
        let Fetched::Request(posted, wqe) = ring.fetch() else { panic!("turn {turn}") };
        assert_eq!((posted.index, posted.signalled), (at, true));
        assert!(matches!(wqe.operation, Operation::Write { payload: Payload::Inline(b), .. } if b == data));
        assert!(matches!(ring.fetch(), Fetched::Nothing));
        assert_eq!(p.poll(), None);
        ring.complete(posted.index);
        let c = p.poll().unwrap();
        assert_eq!((c.wqe_counter, c.opcode, c.qpn, c.outcome), (at as u16, 8, NUMBER, Outcome::Done));
    }
    assert!(p.next > 1 << 16);
}

#[test]
fn completing_one_completes_those_before_it_and_tells_of_the_signalled() {
    let (memory, mut ring) = ring_service(4, false);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    for flags in [Flags::SIGNALLED, Flags::UNSIGNALLED, Flags::SIGNALLED, Flags::SIGNALLED] {
        p.write(flags, Operation::Nop);
    }
    let landing = DataSegment::new(0x2000, 5, 8);
    p.post(Flags::SIGNALLED, Operation::Atomic { remote: REMOTE, action: Atomic::FetchAdd { add: 1 }, landing });
    for _ in 0..5 {
        assert!(matches!(ring.fetch(), Fetched::Request(..)));
    }
    assert_eq!(ring.outstanding(), 5);
    ring.complete(2);
    assert_eq!([p.poll(), p.poll()].map(|c| c.unwrap().wqe_counter), [0, 2]);
    assert_eq!(p.poll(), None);
    ring.lose(3);
    assert_eq!(p.poll(), None);
    ring.complete(4);
    let c = p.poll().unwrap();
    assert_eq!((c.wqe_counter, c.bytes, c.opcode), (4, 8, 0x12));
}

#[test]
fn a_failure_ends_the_queue_and_flushes_what_is_behind_it() {
    let (memory, mut ring) = ring_service(3, false);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    for _ in 0..4 {
        p.write(Flags::UNSIGNALLED, Operation::Nop);
    }
    p.ring();
    for _ in 0..3 {
        assert!(matches!(ring.fetch(), Fetched::Request(..)));
    }
    let access = Failure::new(Syndrome::REMOTE_ACCESS, VendorSyndrome::REMOTE_ACCESS);
    ring.fail(1, access);
    assert_eq!(ring.failed(), Some(access));
    let told: Vec<_> = std::iter::from_fn(|| p.poll()).map(|c| (c.wqe_counter, failure(&c))).collect();
    // A request that is not fetched yet is flushed too.
    assert_eq!(told, [(1, (0x13, 0x88)), (2, (5, 0xf9)), (3, (5, 0xf9))]);
    // Later entries are flushed as well, even malformed ones.
    p.write_bytes(&[0xff; BLOCK_BYTES]);
    p.post(Flags::UNSIGNALLED, Operation::Nop);
    assert!(matches!(ring.fetch(), Fetched::Flushed(n) if n >= 1));
    assert_eq!(failure(&p.poll().unwrap()), (5, 0xf9));
    ring.fail(1, FLUSHED);
    ring.complete(9);
    assert_eq!(ring.failed(), Some(access), "the first failure stays");
    memory.clear().unwrap();
    ring.reset();
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    p.post(Flags::SIGNALLED, Operation::Nop);
    assert!(matches!(ring.fetch(), Fetched::Request(Posted { index: 0, .. }, _)));
    ring.flush();
    assert_eq!(failure(&p.poll().unwrap()), (5, 0xf5));
}

#[test]
fn a_malformed_entry_fails_in_its_turn() {
    let (memory, mut ring) = ring_service(3, false);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    p.write(Flags::SIGNALLED, Operation::Nop);
    p.write_bytes(&[0xff; BLOCK_BYTES]);
    p.write(Flags::SIGNALLED, Operation::Nop);
    p.ring();
    assert!(matches!(ring.fetch(), Fetched::Request(..)));
    // ds is 63: more blocks than announced.
    assert!(matches!(queue_error(&mut ring), QueueError::Unfinished { ds: 63, .. }));
    assert!(matches!(ring.fetch(), Fetched::Nothing));
    assert_eq!(p.poll(), None, "the one before it is not complete");
    ring.complete(0);
    let told: Vec<_> = std::iter::from_fn(|| p.poll()).map(|c| (c.wqe_counter, failure(&c))).collect();
    assert_eq!(told, [(0, (0, 0)), (1, (2, 0))]);
}

/// Posts an entry with an error and checks the reason of its rejection.
fn broken(change: impl Fn(&mut Vec<u8>), check: impl Fn(&WqeError) -> bool) {
    let (memory, mut ring) = ring_service(4, false);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    let piece = [DataSegment::new(0x2000, 5, 64)];
    let operation = Operation::Write { remote: REMOTE, payload: Payload::Pieces(&piece), immediate: None };
    let wqe = Wqe { index: 0, qpn: NUMBER, flags: Flags::UNSIGNALLED, target: None, operation };
    let mut bytes = wqe.to_bytes().unwrap();
    change(&mut bytes);
    p.write_bytes(&bytes);
    p.ring();
    match queue_error(&mut ring) {
        QueueError::Entry(e) => assert!(check(&e), "{e}"),
        other => panic!("{other}"),
    }
    assert_eq!(failure(&p.poll().unwrap()), (2, 0));
}

#[test]
fn entries_are_read_strictly() {
    broken(|b| b[3] = 0x7f, |e| matches!(e, WqeError::UnknownOpcode(0x7f)));
    broken(|b| b[3] = 0x0e, |e| matches!(e, WqeError::Unsupported(_)));
    broken(|b| b[0] = 1, |e| matches!(e, WqeError::Modifier { .. }));
    broken(|b| b[2] = 9, |e| matches!(e, WqeError::Misplaced { index: 9, at: 0, .. }));
    broken(|b| b[6] ^= 1, |e| matches!(e, WqeError::Misplaced { .. }));
    broken(|b| b[7] = 0, |e| matches!(e, WqeError::Undefined { field: "ds", .. }));
    broken(|b| b[7] = 1, |e| matches!(e, WqeError::Segments { .. }));
    broken(|b| b[7] |= 0x40, |e| matches!(e, WqeError::Undefined { .. }));
    broken(|b| b[8] = 1, |e| matches!(e, WqeError::Undefined { field: "signature", .. }));
    broken(|b| b[11] |= 1, |e| matches!(e, WqeError::Undefined { field: "fm_ce_se", .. }));
    broken(|b| b[15] = 1, |e| matches!(e, WqeError::Undefined { .. }));
    broken(|b| b[31] = 1, |e| matches!(e, WqeError::Undefined { .. }));
    broken(|b| b[32..36].fill(0), |e| matches!(e, WqeError::PieceLength(0)));
    broken(|b| b[32..36].copy_from_slice(&(1u32 << 31 | 40).to_be_bytes()), |e| matches!(e, WqeError::Segments { .. }));
}

#[test]
fn doorbells_are_checked() {
    let bad = |ring_it: &dyn Fn(&mut CpuSendQueue<'_>)| {
        let (memory, mut ring) = ring_service(3, false);
        let mut p = CpuSendQueue::new(&memory, NUMBER);
        p.post(Flags::SIGNALLED, Operation::Nop);
        assert!(matches!(ring.fetch(), Fetched::Request(..)));
        p.write(Flags::SIGNALLED, Operation::Nop);
        ring_it(&mut p);
        let why = queue_error(&mut ring);
        ring.complete(0);
        assert_eq!(failure(&p.poll().unwrap()), (0, 0));
        assert_eq!(failure(&p.poll().unwrap()), (2, 0), "{why}");
        why
    };
    let other = bad(&|p| p.ring_as(0x99, 2, 2));
    assert_eq!(other, QueueError::Doorbell { qpn: 0x99, of: NUMBER });
    assert!(matches!(bad(&|p| p.ring_as(NUMBER, 0, 0)), QueueError::Index { next: 0, announced: 1, .. }));
    assert!(matches!(bad(&|p| p.ring_as(NUMBER, 9, 9)), QueueError::Index { next: 9, blocks: 8, .. }));
    assert_eq!(bad(&|p| p.ring_as(NUMBER, 2, 1)), QueueError::Record { record: 1, next: 2 });
    // The record may be ahead: another thread is about to write the doorbell.
    let (memory, mut ring) = ring_service(3, false);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    p.write(Flags::SIGNALLED, Operation::Nop);
    p.ring_as(NUMBER, 1, 3);
    assert!(ring.is_announced());
    assert!(matches!(ring.fetch(), Fetched::Request(..)));
    assert!(!ring.is_announced());
}

#[test]
fn an_entry_that_is_not_all_announced_is_refused() {
    let (memory, mut ring) = ring_service(3, false);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    p.write(Flags::SIGNALLED, inline(&[1; 100]));
    p.ring_as(NUMBER, 1, 1);
    assert!(matches!(queue_error(&mut ring), QueueError::Unfinished { blocks: 3, announced: 1, .. }));
}

#[test]
fn poisoned_blocks_show_an_entry_that_was_announced_too_early() {
    let (memory, mut ring) = ring_service(1, false);
    ring.set_poison(true);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    for at in 0..2 {
        p.post(Flags::SIGNALLED, inline(&[1; 8]));
        assert!(matches!(ring.fetch(), Fetched::Request(..)));
        ring.complete(at);
    }
    p.ring_as(NUMBER, 3, 3);
    assert!(matches!(queue_error(&mut ring), QueueError::Unfinished { .. } | QueueError::Entry(_)));
}

#[test]
fn a_collapsed_queue_shows_the_latest_completion() {
    let (memory, mut ring) = ring_service(4, true);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    let entry = |m: &QueueRings| m.completions().get_slice::<Cqe>(0, 1).unwrap()[0];
    assert_eq!(entry(&memory).opcode(), Some(crate::wire::mlx5::CqeOpcode::Invalid));
    for at in 0..70_000u64 {
        p.post(Flags::SIGNALLED, Operation::Nop);
        assert!(matches!(ring.fetch(), Fetched::Request(..)));
        ring.complete(at);
        assert_eq!(entry(&memory).completion().unwrap().wqe_counter, at as u16);
    }
}

#[test]
fn unsupported_requests_are_refused() {
    let memory = Arc::new(memory(3, false));
    assert!(RingService::new(memory.clone(), 0).unwrap_err().to_string().contains("numbers 1 to"));
    assert!(RingService::new(memory, 1 << 24).is_err());
}

#[test]
fn a_storm_adds_completions_behind_a_failure() {
    let (memory, mut ring) = ring_service(3, false);
    let mut p = CpuSendQueue::new(&memory, NUMBER);
    p.post(Flags::SIGNALLED, Operation::Nop);
    assert!(matches!(ring.fetch(), Fetched::Request(..)));
    ring.storm(3);
    assert_eq!(p.poll(), None);
    ring.fail(0, Failure::new(Syndrome::REMOTE_ACCESS, VendorSyndrome::REMOTE_ACCESS));
    ring.storm(3);
    let told: Vec<_> = std::iter::from_fn(|| p.poll()).map(|c| failure(&c).0).collect();
    assert_eq!(told, [0x13, 5, 5, 5]);
}

#[test]
fn rings_and_records_must_be_where_the_host_reaches_them() {
    let plan = QueuePlan {
        space: crate::memory::Space::cpu(),
        log_blocks: 2,
        collapsed: false,
        data: Place::Host,
        receives: None,
    };
    let memory = Arc::new(QueueRings::new(plan, Place::Host).unwrap());
    assert_eq!(RingService::new(memory, 5).unwrap().number(), 5);
}

proptest! {
    #[test]
    fn arbitrary_rings_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 1..40 * 16), announced in 0u64..20, record in 0u64..40, number in 0u32..3, poison: bool,
    ) {
        let (memory, mut ring) = ring_service(3, false);
        ring.set_poison(poison);
        memory.ring().write(0, &bytes[..bytes.len().min(512)]).unwrap();
        // Half of the cases have control segments that are almost valid.
        if bytes[0] % 2 == 0 {
            memory.ring().set(4, (NUMBER << 8 | u32::from(bytes[0] >> 2)).to_be()).unwrap();
        }
        let p = CpuSendQueue::new(&memory, NUMBER);
        p.ring_as(NUMBER + number / 2, announced, record);
        let mut last = None;
        for _ in 0..30 {
            match ring.fetch() {
                Fetched::Request(posted, _) => last = Some(posted.index),
                Fetched::Refused(..) | Fetched::Flushed(_) => {}
                Fetched::Nothing => break,
            }
        }
        if let Some(index) = last {
            ring.complete(index);
        }
        prop_assert!(ring.outstanding() == 0);
    }
}
