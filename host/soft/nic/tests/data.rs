//! Data transfer, and requests that are rejected.

use super::*;
use crate::wire::mlx5::wqe::SendWith;
use crate::wire::mlx5::{CqeOpcode, Fence};

#[test]
fn data_goes_both_ways_and_words_are_changed() {
    for way in WAYS {
        let (a, b) = pair_of(way);
        let pattern: Vec<u8> = (0..400_000u32).map(|i| (i * 31 + i / 255) as u8).collect();
        a.heap.write(0, &pattern).unwrap();
        let mut p = a.send_queue();
        // Writes from three pieces, more data than one frame holds. Then reads into two pieces.
        let from = [a.local(0, 7), a.local(7, 300_000), a.local(300_007, 99_993)];
        p.post(Flags::UNSIGNALLED, write(b.remote(5), &from));
        let into = [a.local(500_001, 1000), a.local(501_001, 399_000)];
        p.post(Flags::SIGNALLED, Operation::Read { remote: b.remote(5), into: &into });
        let c = p.wait();
        // The write occupies two blocks.
        assert_eq!((c.wqe_counter, c.bytes, syndrome(&c)), (2, 400_000, 0), "{way}: {:?}", a.pair.failure());
        assert_eq!(b.heap.get_slice::<u8>(5, 400_000).unwrap(), pattern);
        assert_eq!(a.heap.get_slice::<u8>(500_001, 400_000).unwrap(), pattern);

        b.heap.set(1000 * 8, 40u64).unwrap();
        let word = b.remote(8000);
        for action in [
            Atomic::FetchAdd { add: 2 },
            Atomic::CompareSwap { swap: 7, compare: 42 },
            Atomic::CompareSwap { swap: 9, compare: 42 },
            Atomic::MaskedAdd64 { add: 1, boundary: 0 },
            Atomic::MaskedSwap64 { swap: 0xf0, compare: 0, swap_mask: 0xf0, compare_mask: 0 },
        ] {
            let old = b.word(8000);
            p.post(Flags::SIGNALLED, Operation::Atomic { remote: word, action, landing: a.local(8, 8) });
            let c = p.wait();
            assert_eq!((syndrome(&c), c.bytes), (0, 8));
            assert_eq!((a.word(8), b.word(8000)), (old, action.apply(old)), "{action:?}");
        }
        // Results of 32-bit forms are stored big-endian. The other half of the word stays unchanged.
        b.heap.set(8000, 0x1111_1111_0000_0005u64).unwrap();
        let action = Atomic::MaskedAdd32 { add: u32::MAX, boundary: 0 };
        p.post(Flags::SIGNALLED, Operation::Atomic { remote: word, action, landing: a.local(16, 4) });
        assert_eq!(syndrome(&p.wait()), 0);
        assert_eq!(b.word(8000), 0x1111_1111_0000_0004);
        assert_eq!(a.heap.get::<u32>(16).unwrap(), 5u32.to_be());

        p.post(Flags::UNSIGNALLED, Operation::Nop);
        p.post(Flags::UNSIGNALLED, inline(b.remote(64), &[9; 28]));
        p.post(Flags::UNSIGNALLED, inline(Remote { address: 1, key: 1 }, &[]));
        p.post(Flags::SIGNALLED, Operation::Dump { piece: a.local(0, 8) });
        assert_eq!(
            (p.wait().wqe_counter, b.heap.get::<u8>(64).unwrap()),
            (p.next as u16 - 1, 9),
            "{way}: {:?}",
            a.pair.failure()
        );
    }
}

#[test]
fn a_queue_pair_is_connected_with_itself() {
    let mut a = Side::new("");
    let me = a.pair.address();
    a.pair.connect(&me).unwrap();
    let mut p = a.send_queue();
    p.post(Flags::SIGNALLED, add(a.remote(0), 3, a.local(8, 8)));
    assert_eq!((syndrome(&p.wait()), a.word(0)), (0, 3));
    // The two ranges overlap in one region.
    a.heap.write(100, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let piece = [a.local(100, 8)];
    p.post(Flags::SIGNALLED, write(a.remote(200), &piece));
    assert_eq!((syndrome(&p.wait()), a.heap.get_slice::<u8>(200, 8).unwrap()), (0, vec![1, 2, 3, 4, 5, 6, 7, 8]));
    let e = a.pair.connect(&me).unwrap_err().to_string();
    assert!(e.contains("reset it first"), "{e}");
}

#[test]
fn keys_ranges_rights_and_alignment_get_their_syndromes() {
    let all = Rights::ALL;
    let none = Rights::LOCAL_WRITE;
    for way in ["", "sockets"] {
        let check = |rights, want: u8, word: &str, operation: &dyn Fn(&Side, &Side) -> Operation<'static>| {
            let (got, why) = outcome(way, rights, |a, b| (operation(a, b), None));
            assert_eq!(got, want, "{way}: {why}");
            assert!(why.contains(word), "{why}");
        };
        let at = |s: &Side, offset, key: u32| Remote { key: s.keys.remote_key() ^ key, ..s.remote(offset) };
        let write = |remote| Operation::Write { remote, payload: Payload::Inline(&[1; 8]), immediate: None };
        check(all, 0, "", &|_, b| write(at(b, 0, 0)));
        check(all, 0x13, "refused by the peer", &|_, b| write(at(b, 0, 1)));
        check(all, 0x13, "0x13", &|_, b| write(at(b, HEAP as u64 - 7, 0)));
        check(all, 0x13, "0x13", &|_, b| write(Remote { address: u64::MAX - 3, ..at(b, 0, 0) }));
        check(none, 0x13, "0x13", &|_, b| write(at(b, 0, 0)));
        check(none, 0x13, "0x13", &|a, b| add(b.remote(0), 1, a.local(0, 8)));
        check(all, 0x12, "0x12", &|a, b| add(b.remote(4), 1, a.local(0, 8)));
        // Errors in this side's own memory.
        check(all, 0x04, "local memory", &|a, b| add(b.remote(0), 1, DataSegment::new(0x10, a.keys.local_key(), 8)));
        check(all, 0x04, "key", &|a, b| add(b.remote(0), 1, DataSegment::new(a.heap.address(), 0x100, 8)));
        check(all, 0x04, "local memory", &|a, _| Operation::Dump { piece: a.local(HEAP as u64, 1) });
        check(all, 0x02, "not supported", &|_, _| Operation::Wait { cqn: 1, index: 1 });
        check(all, 0x16, "no receive", &|_, _| Operation::Send {
            payload: Payload::Inline(&[1]),
            with: SendWith::Nothing,
        });
    }
    let (got, why) = outcome("", Rights::REMOTE_READ, |a, b| (add(b.remote(0), 1, a.local(0, 8)), None));
    assert_eq!(got, 0x04, "where it lands is not writable: {why}");
}

#[test]
fn nothing_behind_a_refused_request_is_carried_out() {
    for way in WAYS {
        let (a, b) = pair_of(way);
        let mut p = a.send_queue();
        p.write(Flags::UNSIGNALLED, inline(Remote { key: 1, ..b.remote(0) }, &[1; 8]));
        for _ in 0..20 {
            p.write(Flags::UNSIGNALLED, add(b.remote(8), 1, a.local(0, 8)));
        }
        p.ring();
        assert_eq!(syndrome(&p.wait()), 0x13);
        for _ in 0..20 {
            assert_eq!(syndrome(&p.wait()), 5);
        }
        assert_eq!(b.word(8), 0, "{way}: a signal behind data that did not come");
        // The other direction still works.
        let mut q = b.send_queue();
        q.post(Flags::SIGNALLED, add(a.remote(0), 1, b.local(0, 8)));
        assert_eq!(syndrome(&q.wait()), 0);
    }
}

#[test]
fn messages_go_into_receives() {
    for way in ["", "sockets"] {
        let (a, b) = pair_of(way);
        a.heap.write(0, &[7; 300_000]).unwrap();
        b.pair.post_receive(11, &[b.local(0, 100), b.local(200, 400_000)]).unwrap();
        b.pair.post_receive(12, &[]).unwrap();
        b.pair.post_receive(13, &[b.local(0, 4)]).unwrap();
        assert!(
            b.pair.post_receive(14, &[DataSegment::new(0, 1, 1)]).unwrap_err().to_string().contains("cannot be used")
        );
        let mut p = a.send_queue();
        let pieces = [a.local(0, 300_000)];
        p.post(Flags::SIGNALLED, Operation::Send { payload: Payload::Pieces(&pieces), with: SendWith::Immediate(77) });
        assert_eq!(syndrome(&p.wait()), 0, "{way}: {:?}", a.pair.failure());
        p.post(
            Flags::SIGNALLED,
            Operation::Write { remote: b.remote(8), payload: Payload::Inline(&[1; 8]), immediate: Some(5) },
        );
        assert_eq!(syndrome(&p.wait()), 0);
        p.post(Flags::SIGNALLED, Operation::Send { payload: Payload::Inline(&[1; 8]), with: SendWith::Nothing });
        assert_eq!(syndrome(&p.wait()), 0x12, "longer than the receive");
        let got: Vec<_> = std::iter::from_fn(|| b.pair.poll_receive())
            .map(|r| (r.id, r.completion.bytes, r.completion.outcome))
            .collect();
        let received = |what, immediate| Outcome::Received { what, immediate: Some(immediate) };
        assert_eq!(got[0], (11, 300_000, received(CqeOpcode::SendImm, 77)));
        assert_eq!(got[1], (12, 8, received(CqeOpcode::WriteImm, 5)));
        assert!(matches!(got[2], (13, 0, Outcome::ReceiveFailed(f)) if f.syndrome.0 == 1));
        assert_eq!((b.heap.get::<u8>(200).unwrap(), b.heap.get::<u8>(150).unwrap()), (7, 0));
    }
}

#[test]
fn a_fence_waits_for_what_lands_before_it() {
    for way in WAYS {
        let (a, b) = pair_of(way);
        let mut p = a.send_queue();
        for i in 0..50u64 {
            b.heap.set(0, i + 1).unwrap();
            let into = [a.local(0, 8)];
            p.write(Flags::UNSIGNALLED, Operation::Read { remote: b.remote(0), into: &into });
            let flags = Flags { fence: Fence::FenceAndSmall, ..Flags::SIGNALLED };
            p.post(flags, write(b.remote(64), &into));
            assert_eq!(syndrome(&p.wait()), 0);
            assert_eq!(b.word(64), i + 1, "{way}");
        }
    }
}

#[test]
fn many_queue_pairs_add_to_one_word() {
    for way in WAYS {
        let mut b = Side::new(&format!("threads=2,{way}"));
        let mut others: Vec<_> = (0..3).map(|_| Side::new(way)).collect();
        let mut ends = Vec::new();
        for o in &mut others {
            let mut end = b.nic.create_pair(plan(6)).unwrap();
            o.pair.connect(&end.address()).unwrap();
            end.connect(&o.pair.address()).unwrap();
            ends.push(end);
        }
        let to_b = b.pair.address();
        b.pair.connect(&to_b).unwrap();
        const EACH: u64 = 300;
        std::thread::scope(|scope| {
            for o in others.iter().chain([&b]) {
                let word = b.remote(0);
                scope.spawn(move || {
                    let mut p = o.send_queue();
                    for i in 0..EACH {
                        p.post(Flags::SIGNALLED, add(word, 1, o.local(8, 8)));
                        if i >= 16 {
                            assert_eq!(syndrome(&p.wait()), 0);
                        }
                    }
                    for _ in 0..16 {
                        assert_eq!(syndrome(&p.wait()), 0);
                    }
                });
            }
        });
        assert_eq!(b.word(0), 4 * EACH, "{way}");
    }
}

#[test]
fn a_signal_is_seen_after_its_data() {
    for way in ["", "sockets"] {
        let (a, b) = pair_of(way);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut p = a.send_queue();
                for i in 1..=200u64 {
                    a.heap.write(0, &[i as u8; 4096]).unwrap();
                    let piece = [a.local(0, 4096)];
                    p.write(Flags::UNSIGNALLED, write(b.remote(4096), &piece));
                    p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(8192, 8)));
                    assert_eq!(syndrome(&p.wait()), 0);
                }
            });
            let base = b.heap.host().unwrap().as_ptr();
            // SAFETY: the word is in the region and aligned.
            let signal = unsafe { std::sync::atomic::AtomicU64::from_ptr(base.cast()) };
            let mut last = 0;
            let started = std::time::Instant::now();
            while last < 200 {
                assert!(started.elapsed() < crate::rdma::ring_service::testing::LIMIT);
                let seen = signal.load(std::sync::atomic::Ordering::Acquire);
                if seen > last {
                    let data = b.heap.get_slice::<u8>(4096, 4096).unwrap();
                    // Even if this thread was descheduled in between: data that is overwritten meanwhile is newer,
                    // never older.
                    assert!(data.iter().all(|d| u64::from(*d) >= seen), "{way}: {seen}");
                    last = seen;
                }
                std::thread::yield_now();
            }
        });
    }
}
