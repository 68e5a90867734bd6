//! Tests with an adapter that works only on request, so that each test controls the interleaving.

use super::*;
use crate::memory::{Place, Space};
use crate::rdma::PostRequests;
use crate::rdma::{QueueAddress, QueuePlan, QueueRings, RdmaError};
use crate::wire::mlx5::cqe::{Completion, Outcome};
use crate::wire::mlx5::send_ring::wire_index;
use crate::wire::mlx5::{
    BLOCK_BYTES, CompletionRing, Payload, Remote, SendRing, Syndrome, Transport, VendorSyndrome, Wqe,
};
use proptest::prelude::*;
use std::sync::Arc;

const NUMBER: u32 = 0x12_3456;
const DEADLINE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
struct Pair(Arc<QueueRings>);

impl Pair {
    fn new(log_blocks: u32, collapsed: bool) -> Self {
        let plan = QueuePlan { space: Space::cpu(), log_blocks, collapsed, data: Place::Host, receives: None };
        Self(Arc::new(QueueRings::new(plan, Place::Host).expect("memory")))
    }
}

impl QueuePair for Pair {
    fn number(&self) -> u32 {
        NUMBER
    }
    fn address(&self) -> QueueAddress {
        QueueAddress(Vec::new())
    }
    fn connect(&mut self, _: &QueueAddress) -> Result<(), RdmaError> {
        Ok(())
    }
    fn memory(&self) -> &QueueRings {
        &self.0
    }
    fn flags(&self) -> u32 {
        0
    }
    fn failure(&self) -> Option<String> {
        None
    }
    fn reset(&mut self) -> Result<(), RdmaError> {
        self.0.clear()
    }
}

/// Progress of the adapter: entries taken from the ring, completions written.
#[derive(Default)]
struct Adapter {
    taken: u64,
    written: u64,
    /// Payloads of the writes, in order.
    seen: Vec<Vec<u8>>,
}

impl Adapter {
    /// Returns the number of announced blocks.
    fn announced(&self, pair: &Pair) -> u64 {
        let at = QueueRings::doorbell_offset();
        let bytes: [u8; 8] = pair.0.records().get(at).expect("in bounds");
        if bytes == [0; 8] {
            return 0;
        }
        let bell = SendDoorbell::from_bytes(bytes);
        assert_eq!(bell.qpn, NUMBER);
        let record: QpRecord = pair.0.records().get(0).expect("in bounds");
        assert_eq!(record.send.get(), u32::from(bell.next), "the record says what the doorbell says");
        crate::wire::mlx5::send_ring::advance(self.taken, bell.next)
    }

    /// Carries out up to `most` entries. The one at `fail`, counted from the first ever, fails.
    fn serve(&mut self, pair: &Pair, most: usize, fail: Option<(u64, Failure)>) {
        let ring = SendRing::new(pair.0.plan().log_blocks).expect("a ring");
        let mut bytes = vec![0; ring.bytes()];
        pair.0.ring().read(0, &mut bytes).expect("in bounds");
        let announced = self.announced(pair);
        for _ in 0..most {
            if self.taken == announced {
                return;
            }
            let entry = ring.gather(&bytes, self.taken, announced - self.taken).expect("a whole entry");
            let wqe = Wqe::parse(&entry, Transport::ReliableConnection).expect("an entry");
            wqe.expect_at(NUMBER, wire_index(self.taken)).expect("in its place");
            let failure = fail.filter(|(at, _)| *at == self.taken).map(|(_, failure)| failure);
            if let (Operation::Write { payload: Payload::Inline(data), .. }, None) = (wqe.operation, failure) {
                self.seen.push(data.to_vec());
            }
            if wqe.flags.is_signalled() || failure.is_some() {
                let outcome = failure.map_or(Outcome::Done, Outcome::Failed);
                self.complete(pair, wqe.index, wqe.operation.opcode(), outcome);
            }
            self.taken += (entry.len() / BLOCK_BYTES) as u64;
        }
    }

    fn complete(&mut self, pair: &Pair, wqe_counter: u16, opcode: Opcode, outcome: Outcome) {
        let entries = CompletionRing::new(pair.0.entries().ilog2()).expect("a size");
        let completion = Completion {
            qpn: NUMBER,
            user_index: 0,
            wqe_counter,
            opcode: opcode as u8,
            bytes: 0,
            solicited: false,
            outcome,
        };
        let cqe = completion.to_cqe(entries.owner(self.written));
        pair.0.completions().set(entries.offset(self.written), cqe).expect("in bounds");
        self.written += 1;
    }
}

fn write(data: &[u8]) -> Operation<'_> {
    Operation::Write { remote: Remote { address: 0x1000, key: 7 }, payload: Payload::Inline(data), immediate: None }
}

/// Returns the payload of write `i`. An entry has one block up to 28 bytes of payload, and one more for each further 64
/// bytes.
fn payload(i: usize) -> Vec<u8> {
    (0..[8, 28, 29, 92, 93, 200][i % 6]).map(|b| (b + i) as u8).collect()
}

#[test]
fn entries_go_round_the_ring_and_past_16_bits() {
    for collapsed in [false, true] {
        let pair = Pair::new(4, collapsed);
        let mut send_queue = CpuSendQueue::new(Box::new(pair.clone())).expect("in host memory");
        let mut adapter = Adapter::default();
        let mut sent = 0;
        while send_queue.posted() < 70_000 {
            let data = payload(sent);
            match send_queue.post(write(&data), true) {
                Ok(_) => sent += 1,
                Err(PostError::Full { .. }) => {
                    send_queue.ring();
                    adapter.serve(&pair, usize::MAX, None);
                    send_queue.wait(send_queue.posted(), DEADLINE).expect("all done");
                    for (i, seen) in (sent - adapter.seen.len()..).zip(adapter.seen.drain(..)) {
                        assert_eq!(seen, payload(i));
                    }
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

#[test]
fn a_full_ring_says_so_and_goes_on_after_a_poll() {
    let pair = Pair::new(2, false);
    let mut send_queue = CpuSendQueue::new(Box::new(pair.clone())).expect("in host memory");
    for _ in 0..4 {
        send_queue.post(write(&[1]), true).expect("room");
    }
    assert_eq!(send_queue.room(), 0);
    let full = send_queue.post(write(&[1]), true).expect_err("full");
    assert_eq!(full, PostError::Full { number: NUMBER, wanted: 1, in_flight: 4, blocks: 4 });
    let mut adapter = Adapter::default();
    adapter.serve(&pair, 1, None);
    assert_eq!(adapter.taken, 0, "nothing was announced");
    send_queue.ring();
    adapter.serve(&pair, 1, None);
    assert_eq!(send_queue.poll(), Ok(1));
    send_queue.post(write(&[2]), true).expect("room again");
    let too_large = send_queue.post(write(&[0; 400]), true).expect_err("it never fits");
    assert!(matches!(too_large, PostError::Full { wanted: 7, .. }), "{too_large}");
}

#[test]
fn unsignalled_entries_complete_with_the_next_signalled_one() {
    let pair = Pair::new(3, false);
    let mut send_queue = CpuSendQueue::new(Box::new(pair.clone())).expect("in host memory");
    for i in 0..6 {
        send_queue.post(write(&[i]), i == 3).expect("room");
    }
    send_queue.ring();
    let mut adapter = Adapter::default();
    adapter.serve(&pair, 3, None);
    assert_eq!(send_queue.poll(), Ok(0));
    adapter.serve(&pair, 3, None);
    assert_eq!(send_queue.poll(), Ok(4));
    assert_eq!(adapter.seen, [[0], [1], [2], [3], [4], [5]]);
}

#[test]
fn the_first_failure_stays() {
    for collapsed in [false, true] {
        let pair = Pair::new(3, collapsed);
        let mut send_queue = CpuSendQueue::new(Box::new(pair.clone())).expect("in host memory");
        for _ in 0..4 {
            send_queue.post(write(&[9]), true).expect("room");
        }
        send_queue.ring();
        let failure = Failure::new(Syndrome::REMOTE_ACCESS, VendorSyndrome::REMOTE_ACCESS);
        let mut adapter = Adapter::default();
        adapter.serve(&pair, 3, Some((2, failure)));
        let error = send_queue.wait(4, DEADLINE).expect_err("it failed");
        assert_eq!(error, PostError::Failed { number: NUMBER, block: 2, operation: Opcode::Write, failure });
        assert!(error.to_string().contains("syndrome 0x13"), "{error}");
        assert_eq!(send_queue.completed(), 2, "those before it are done");
        assert_eq!(send_queue.post(write(&[1]), true), Err(error.clone()));
        assert_eq!(send_queue.poll(), Err(error));
    }
}

#[test]
fn an_adapter_that_does_nothing_is_not_waited_for_for_ever() {
    let pair = Pair::new(3, false);
    let mut send_queue = CpuSendQueue::new(Box::new(pair.clone())).expect("in host memory");
    send_queue.post(write(&[9; 40]), true).expect("room");
    send_queue.ring();
    let error = send_queue.wait(2, Duration::from_millis(1)).expect_err("nobody serves");
    assert!(matches!(error, PostError::TimedOut { in_flight: 2, completed: 0, .. }), "{error}");
    // The completion is late, not lost.
    Adapter::default().serve(&pair, 1, None);
    assert_eq!(send_queue.wait(2, DEADLINE), Ok(()));
}

#[test]
fn what_no_adapter_writes_is_named() {
    let pair = Pair::new(3, false);
    let mut send_queue = CpuSendQueue::new(Box::new(pair.clone())).expect("in host memory");
    send_queue.post(write(&[9]), true).expect("room");
    send_queue.ring();
    Adapter::default().complete(&pair, 5, Opcode::Write, Outcome::Done);
    let error = send_queue.poll().expect_err("block 5 is not in flight");
    assert_eq!(error, PostError::Unknown { number: NUMBER, index: 0, of: NUMBER, counter: 5 });
}

proptest! {
    /// For all interleavings of posts, doorbells, adapter steps and polls: every entry arrives once and in order. No
    /// entry is reported complete before it is.
    #[test]
    fn any_turns(steps in prop::collection::vec((0u8..4, 0usize..6, any::<bool>()), 1..200), collapsed: bool, log in 2u32..6) {
        let pair = Pair::new(log, collapsed);
        let mut send_queue = CpuSendQueue::new(Box::new(pair.clone())).expect("in host memory");
        let mut adapter = Adapter::default();
        let mut sent = Vec::new();
        for (step, n, signalled) in steps {
            match step {
                0 => {
                    let data = payload(n);
                    match send_queue.post(write(&data), signalled) {
                        Ok(end) => {
                            prop_assert_eq!(end, send_queue.posted());
                            sent.push(data);
                        }
                        Err(e) => prop_assert!(matches!(e, PostError::Full { .. }), "{}", e),
                    }
                }
                1 => send_queue.ring(),
                2 => adapter.serve(&pair, n, None),
                _ => prop_assert!(send_queue.poll().expect("no failure") <= adapter.taken),
            }
        }
        send_queue.ring();
        adapter.serve(&pair, usize::MAX, None);
        prop_assert_eq!(&adapter.seen, &sent);
        prop_assert!(send_queue.poll().expect("no failure") <= adapter.taken);
    }
}
