//! Receive rings: receives that the device gets, messages, and failures of either direction.

use super::*;
use crate::rdma::{CpuReceiveQueue, Message, PostError as QueueError, QueueAddress, QueuePair, RdmaError};
use crate::wire::mlx5::CqeOpcode;
use crate::wire::mlx5::wqe::SendWith;

const LOG_SLOTS: u32 = 2;

/// A queue pair for [`CpuReceiveQueue`]: the rings alone.
#[derive(Debug)]
struct Rings(Arc<QueueRings>);

impl QueuePair for Rings {
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
        Ok(())
    }
}

struct Bench {
    kernel: Kernel,
    engine: Engine<Fake, Fake, Fake>,
    fake: Fake,
    receives: CpuReceiveQueue,
}

fn bench(data_in_entries: bool) -> Bench {
    let plan = ReceivePlan { log_slots: LOG_SLOTS, log_stride: 1, data_in_entries };
    let (kernel, engine, fake) = rig_with(Some(plan));
    let receives = CpuReceiveQueue::new(&Rings(kernel.memory.clone())).unwrap();
    Bench { kernel, engine, fake, receives }
}

fn local(address: u64, bytes: u32) -> DataSegment {
    DataSegment::new(address, LOCAL_KEY, bytes)
}

impl Bench {
    /// Posts a receive for messages of up to 16 bytes.
    fn post(&mut self) {
        self.receives.post(&[local(0, 16)]).unwrap();
    }

    /// Lets a message arrive at the device, in its oldest receive.
    fn arrive(&mut self, message: &[u8]) {
        let mut m = self.fake.lock();
        let (id, pieces) = m.receives.pop_front().expect("a receive");
        let mut rest = message;
        for p in &pieces {
            let (now, later) = rest.split_at(rest.len().min(p.bytes as usize));
            m.buffer(p.key)[p.address as usize..][..now.len()].copy_from_slice(now);
            rest = later;
        }
        assert!(rest.is_empty(), "the message fits");
        m.receive_completions.push(receive_completion(id, 0, message.len() as u32));
    }

    /// Ends the oldest receive of the device with a status.
    fn end(&mut self, status: u8) {
        let mut m = self.fake.lock();
        let (id, _) = m.receives.pop_front().expect("a receive");
        m.receive_completions.push(receive_completion(id, status, 0));
    }

    fn message(&mut self) -> Option<Message> {
        self.engine.step();
        self.receives.poll().unwrap()
    }

    /// Returns the syndromes of the receives that have ended, oldest first.
    fn syndromes(&self, count: u64) -> Vec<u8> {
        let (ring, rings) = (CompletionRing::new(LOG_SLOTS).unwrap(), self.kernel.memory.receives().unwrap());
        let entry = |i| {
            let mut bytes = [0; CQE_BYTES];
            rings.completions().read(ring.offset(i), &mut bytes).unwrap();
            let cqe: Cqe = bytemuck::cast(bytes);
            ring.is_written(i, cqe.op_own).then(|| cqe.completion().unwrap())
        };
        (0..count).filter_map(entry).map(|c| c.ok().err().map_or(0, |f| f.syndrome.0)).collect()
    }
}

fn receive_completion(id: u64, status: u8, bytes: u32) -> ReceiveCompletion {
    ReceiveCompletion { id, status, vendor: 7, bytes, what: CqeOpcode::Send, immediate: None }
}

#[test]
fn messages_fill_receives_for_many_laps() {
    for data_in_entries in [false, true] {
        let mut b = bench(data_in_entries);
        b.fake.lock().receive_room = 3;
        for _ in 0..4 {
            b.receives.post(&[local(0, 8), local(64, 64)]).unwrap();
        }
        for i in 0..50u8 {
            assert_eq!(b.message(), None);
            assert_eq!(b.fake.lock().receives.len(), 3, "as many as the device takes");
            let message: Vec<u8> = (0..[16, 32, 33, 72][usize::from(i) % 4]).map(|n| n + i).collect();
            b.arrive(&message);
            let m = b.message().expect("a message");
            assert_eq!((m.position, m.bytes), (i.into(), message.len() as u32));
            match m.in_entry {
                Some(entry) => assert_eq!((entry[..message.len()] == message, data_in_entries), (true, true)),
                None => {
                    assert!(!data_in_entries || message.len() > 32);
                    let m = b.fake.lock();
                    assert_eq!([&m.local[..8], &m.local[64..56 + message.len()]].concat(), message);
                }
            }
            b.receives.post(&[local(0, 8), local(64, 64)]).unwrap();
        }
        assert_eq!(b.engine.failure(), None);
    }
}

#[test]
fn a_receive_is_at_the_device_before_a_request_that_was_posted_behind_it() {
    let mut b = bench(false);
    b.engine.step();
    // As a kernel does that posts a receive and then the request whose reply fills it, in the middle of a step.
    b.fake.lock().room = 1;
    b.kernel.post(inline(0, &[1]));
    b.engine.step();
    b.post();
    let piece = [local(0, 16)];
    b.kernel.post(Operation::Send { payload: Payload::Pieces(&piece), with: SendWith::Nothing });
    run(&mut b.engine);
    assert_eq!(b.fake.lock().receives_at_posts, [0, 1]);
    assert_eq!(done(&b.kernel.completions()), [0, 1]);
}

#[test]
fn a_failed_request_flushes_the_receives() {
    let mut b = bench(false);
    b.post();
    b.post();
    b.kernel.post(inline(0, &[1]));
    b.engine.step();
    // The device flushes its receives as well, and their completions are polled with that of the request.
    b.fake.lock().status = 12;
    b.end(5);
    run(&mut b.engine);
    assert_eq!(b.kernel.completions()[0].ok().unwrap_err().syndrome, Syndrome::RETRY_EXCEEDED);
    assert_eq!(b.syndromes(3), [5, 5]);
    assert!(matches!(b.receives.poll(), Err(QueueError::Receive { position: 0, .. })));
    let said = b.engine.failure().unwrap();
    assert!(said.contains("ibv_wc_status 12"), "{said}");
    assert_eq!(b.fake.lock().failed, 1, "the other side learns of it once");
    // Nothing is posted any more.
    b.end(5);
    assert!(b.fake.lock().receives.is_empty());
    b.post();
    run(&mut b.engine);
    assert!(b.fake.lock().receives.is_empty());
    assert_eq!(b.syndromes(4), [5, 5]);
}

#[test]
fn a_failed_receive_ends_both_directions() {
    // A message longer than its receive: local length error.
    let mut b = bench(false);
    b.post();
    b.post();
    b.engine.step();
    b.end(1);
    b.kernel.post(inline(0, &[1]));
    b.engine.step();
    assert_eq!(b.syndromes(3), [Syndrome::LOCAL_LENGTH.0, 5]);
    run(&mut b.engine);
    let all = b.kernel.completions();
    assert_eq!(all.iter().map(|c| c.ok().unwrap_err().syndrome).collect::<Vec<_>>(), [Syndrome::FLUSHED]);
    assert!(b.engine.failure().unwrap().contains("ibv_wc_status 1"), "{:?}", b.engine.failure());
    assert_eq!(b.fake.lock().failed, 1);
}

#[test]
fn flushed_receives_alone_tell_that_the_device_has_failed_the_queue_pair() {
    let mut b = bench(false);
    b.post();
    b.engine.step();
    b.end(5);
    b.engine.step();
    assert_eq!(b.syndromes(2), [5]);
    assert!(b.engine.failure().unwrap().contains("error state"), "{:?}", b.engine.failure());
    assert!(b.engine.ring.failed().is_some());
}

#[test]
fn receives_that_cannot_be_posted_fail_with_the_reason() {
    // The device refuses.
    let mut b = bench(false);
    b.fake.lock().refuse_receives = true;
    b.post();
    b.engine.step();
    assert_eq!(b.syndromes(2), [Syndrome::LOCAL_QP_OPERATION.0]);
    assert!(b.engine.failure().unwrap().contains("ibv_post_recv of 1 pieces"), "{:?}", b.engine.failure());
    // The device takes none.
    let mut b = bench(false);
    b.fake.lock().receive_room = 0;
    b.post();
    b.engine.step();
    assert_eq!(b.syndromes(2), [Syndrome::LOCAL_QP_OPERATION.0]);
    // The record announces more than the ring has.
    let mut b = bench(false);
    b.kernel.memory.records().write(0, bytemuck::bytes_of(&QpRecord::new(9, 0))).unwrap();
    b.engine.step();
    assert_eq!(b.syndromes(1), [Syndrome::LOCAL_QP_OPERATION.0]);
    assert!(b.engine.failure().unwrap().contains("receive word"), "{:?}", b.engine.failure());
    // A message for its completion entry, in memory that is not registered.
    let mut b = bench(true);
    b.receives.post(&[DataSegment::new(BYTES as u64, LOCAL_KEY, 16)]).unwrap();
    b.engine.step();
    let (id, _) = b.fake.lock().receives.pop_front().unwrap();
    b.fake.lock().receive_completions.push(receive_completion(id, 0, 16));
    b.engine.step();
    assert_eq!(b.syndromes(2), [Syndrome::LOCAL_PROTECTION.0]);
}

#[test]
fn an_invalid_entry_of_the_send_ring_flushes_the_receives() {
    let mut b = bench(false);
    b.post();
    b.engine.step();
    let bell = SendDoorbell::new(NUMBER + 1, 1).to_bytes();
    b.kernel.memory.records().write(QueueRings::doorbell_offset(), &bell).unwrap();
    b.engine.step();
    assert_eq!(b.syndromes(2), [5]);
    assert_eq!(b.fake.lock().failed, 1);
}

#[test]
fn a_second_life_begins_with_an_empty_ring() {
    let mut b = bench(false);
    b.post();
    b.engine.step();
    let (old, _) = b.fake.lock().receives.pop_front().unwrap();
    b.kernel.memory.clear().unwrap();
    b.engine.reset();
    b.receives = CpuReceiveQueue::new(&Rings(b.kernel.memory.clone())).unwrap();
    b.post();
    // The completion of the first life's receive comes late.
    b.fake.lock().receive_completions.push(receive_completion(old, 5, 0));
    assert_eq!(b.message(), None);
    b.arrive(&[3; 16]);
    assert_eq!(b.message().map(|m| (m.position, m.bytes)), Some((0, 16)));
    assert_eq!(b.engine.failure(), None);
}
