//! Receive rings in memory: messages, failures and their completions.

use super::*;
use crate::rdma::{CpuReceiveQueue, PostError, ReceivePlan};
use crate::wire::mlx5::wqe::SendWith;
use std::time::Instant;

/// Far more time than anything in a test takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A side whose queue pair has `1 << log_slots` receives of two pieces.
fn side(options: &str, log_slots: u32, data_in_entries: bool) -> Side {
    let mut c = config(options);
    c.timeouts.not_ready = Duration::from_millis(100);
    let mut side = Side::with(c, Rights::ALL);
    let receives = ReceivePlan { log_slots, log_stride: 1, data_in_entries };
    side.pair = side.nic.create_pair(plan(6).receives(Some(receives))).expect("a queue pair");
    side
}

fn sides(options: &str, log_slots: u32, data_in_entries: bool) -> (Side, Side) {
    let (mut a, mut b) = (side(options, log_slots, data_in_entries), side(options, log_slots, data_in_entries));
    join(&mut a, &mut b);
    (a, b)
}

fn receives(side: &Side) -> CpuReceiveQueue {
    CpuReceiveQueue::new(&side.pair).expect("a receive ring")
}

fn send(payload: Payload<'_>) -> Operation<'_> {
    Operation::Send { payload, with: SendWith::Nothing }
}

/// Waits for the next message or failure.
fn wait(queue: &mut CpuReceiveQueue) -> Result<crate::rdma::Message, PostError> {
    let started = Instant::now();
    loop {
        match queue.poll() {
            Ok(None) => assert!(started.elapsed() < LIMIT, "no message within {LIMIT:?}"),
            Ok(Some(m)) => return Ok(m),
            Err(e) => return Err(e),
        }
        std::thread::yield_now();
    }
}

fn syndrome_of(e: PostError) -> u8 {
    match e {
        PostError::Receive { failure, .. } => failure.syndrome.0,
        other => panic!("{other}"),
    }
}

#[test]
fn messages_fill_receives_for_many_laps() {
    for way in WAYS {
        for data_in_entries in [false, true] {
            let (a, b) = sides(way, 2, data_in_entries);
            let (mut p, mut r) = (a.send_queue(), receives(&b));
            for i in 0..3u64 {
                r.post(&[b.local(4096 * i, 8), b.local(4096 * i + 64, 256)]).unwrap();
            }
            for i in 0..40u64 {
                let bytes = [16, 32, 33, 200][i as usize % 4];
                let data: Vec<u8> = (0..bytes).map(|n| (n as u64 + i) as u8).collect();
                a.heap.write(0, &data).unwrap();
                b.heap.fill(0, 3 * 4096, 0xee).unwrap();
                let pieces = [a.local(0, 5), a.local(5, bytes - 5)];
                p.post(Flags::SIGNALLED, send(Payload::Pieces(&pieces)));
                assert_eq!(syndrome(&p.wait()), 0, "{way}: {:?}", a.pair.failure());
                let m = wait(&mut r).unwrap();
                assert_eq!((m.position, m.bytes), (i, bytes));
                let at = 4096 * (i as usize % 3);
                let mut landed = b.heap.get_slice::<u8>(at, 8).unwrap();
                landed.extend(b.heap.get_slice::<u8>(at + 64, bytes as usize - 8).unwrap());
                match m.in_entry {
                    Some(entry) => {
                        assert!(data_in_entries && bytes <= 32);
                        assert_eq!(entry[..bytes as usize], data);
                        assert!(landed.iter().all(|b| *b == 0xee), "the receive's memory is left alone");
                    }
                    None => {
                        assert!(!data_in_entries || bytes > 32);
                        assert_eq!(landed, data);
                    }
                }
                r.post(&[b.local(4096 * (i % 3), 8), b.local(4096 * (i % 3) + 64, 256)]).unwrap();
            }
        }
    }
}

#[test]
fn a_receive_that_comes_late_takes_the_message_and_none_at_all_is_syndrome_16() {
    for way in WAYS {
        let (a, b) = sides(way, 1, true);
        let (mut p, mut r) = (a.send_queue(), receives(&b));
        p.post(Flags::SIGNALLED, send(Payload::Inline(&[1; 16])));
        std::thread::sleep(Duration::from_millis(20));
        r.post(&[b.local(0, 16)]).unwrap();
        assert_eq!((syndrome(&p.wait()), wait(&mut r).unwrap().bytes), (0, 16), "{way}");
        p.post(Flags::SIGNALLED, send(Payload::Inline(&[1; 16])));
        assert_eq!(syndrome(&p.wait()), 0x16, "{way}");
        assert!(a.pair.failure().unwrap().contains("no receive"));
    }
}

#[test]
fn failures_end_both_directions_and_flush_receives() {
    for way in ["", "sockets"] {
        // A message longer than the receive; a receive whose key is of no memory; one outside of its region.
        for (here, there, pieces) in
            [(0x01, 0x12, [(0u64, 15u32, 0u32)]), (0x04, 0x14, [(0, 16, 1)]), (0x04, 0x14, [(HEAP as u64 - 8, 16, 0)])]
        {
            let (a, b) = sides(way, 2, false);
            let (mut p, mut r, mut q) = (a.send_queue(), receives(&b), b.send_queue());
            let pieces = pieces
                .map(|(at, bytes, flip)| DataSegment::new(b.heap.address() + at, b.keys.local_key() ^ flip, bytes));
            r.post(&pieces).unwrap();
            r.post(&[b.local(0, 16)]).unwrap();
            p.post(Flags::SIGNALLED, send(Payload::Inline(&[1; 16])));
            assert_eq!(syndrome(&p.wait()), there, "{way}");
            assert_eq!(syndrome_of(wait(&mut r).unwrap_err()), here);
            // The second receive is flushed, and so are requests of this side.
            let second = b.pair.memory().receives().unwrap().completions().get_slice::<u8>(64, 64).unwrap();
            assert_eq!((second[55], second[63]), (0x05, 0xe0), "{way}");
            q.post(Flags::SIGNALLED, inline(a.remote(0), &[1; 8]));
            assert_eq!(syndrome(&q.wait()), 0x05, "{way}: {:?}", b.pair.failure());
        }
        // A failed request of this side flushes its receives.
        let (a, b) = sides(way, 2, true);
        let (mut p, mut r) = (a.send_queue(), receives(&a));
        r.post(&[a.local(0, 16)]).unwrap();
        p.post(Flags::SIGNALLED, inline(Remote { key: b.keys.remote_key() ^ 1, ..b.remote(0) }, &[1; 8]));
        assert_eq!(syndrome(&p.wait()), 0x13);
        assert_eq!(syndrome_of(wait(&mut r).unwrap_err()), 0x05, "{way}");
        assert!(r.poll().is_err(), "the error stays");
    }
}

#[test]
fn a_wrong_record_and_a_wrong_entry_end_the_queue_pair() {
    for (record, entry) in [(9u32, 16u32), (0x1_0000, 16), (1, 0x8000_0001)] {
        let (a, b) = sides("", 3, false);
        let mut p = a.send_queue();
        let memory = b.pair.memory();
        let slot = [entry.to_be(), b.keys.local_key().to_be(), 0, 0];
        memory.receives().unwrap().ring().set_slice(0, &slot).unwrap();
        memory.records().set(0, record.to_be()).unwrap();
        p.post(Flags::SIGNALLED, send(Payload::Inline(&[1; 16])));
        assert_eq!(syndrome(&p.wait()), 0x14, "record {record:#x}, entry {entry:#x}");
        let first = memory.receives().unwrap().completions().get_slice::<u8>(0, 64).unwrap();
        assert_eq!((first[55], first[63]), (0x02, 0xe0), "local QP operation error");
    }
}

#[test]
fn a_queue_pair_receives_again_after_a_reset() {
    for way in WAYS {
        let (mut a, mut b) = sides(way, 2, true);
        let mut r = receives(&b);
        r.post(&[b.local(0, 4)]).unwrap();
        let mut p = a.send_queue();
        p.post(Flags::SIGNALLED, send(Payload::Inline(&[1; 16])));
        assert_eq!(syndrome(&p.wait()), 0x12);
        a.pair.reset().unwrap();
        b.pair.reset().unwrap();
        join(&mut a, &mut b);
        let (mut p, mut r) = (a.send_queue(), receives(&b));
        r.post(&[b.local(0, 16)]).unwrap();
        p.post(Flags::SIGNALLED, send(Payload::Inline(&[7; 16])));
        assert_eq!(syndrome(&p.wait()), 0, "{way}: {:?}", a.pair.failure());
        assert_eq!(wait(&mut r).unwrap().in_entry.unwrap()[..17], [[7; 16].as_slice(), &[0]].concat());
    }
}

#[test]
fn receives_are_refused_where_they_cannot_be() {
    let (a, b) = sides("", 1, false);
    let mut r = receives(&b);
    r.post(&[b.local(0, 16)]).unwrap();
    r.post(&[b.local(0, 16)]).unwrap();
    assert!(matches!(r.post(&[b.local(0, 16)]), Err(PostError::Full { in_flight: 2, .. })));
    let e = b.pair.post_receive(1, &[b.local(0, 16)]).unwrap_err().to_string();
    assert!(e.contains("it has a receive ring"), "{e}");
    let without = a.nic.create_pair(plan(6)).unwrap();
    let e = CpuReceiveQueue::new(&without).unwrap_err().to_string();
    assert!(e.contains("has no receive ring"), "{e}");
    for (log_slots, log_stride) in [(16, 0), (1, 8)] {
        let receives = ReceivePlan { log_slots, log_stride, data_in_entries: false };
        let e = a.nic.create_pair(plan(6).receives(Some(receives))).unwrap_err().to_string();
        assert!(e.contains("1 to 32768 receives of 1 to 128 pieces"), "{e}");
    }
}
