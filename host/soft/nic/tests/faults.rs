//! Injected faults.

use super::*;
use std::time::Instant;

/// Short times, so that lost frames are sent again soon.
const QUICK: &str = "sockets,resend=20ms,heartbeat=20ms,silence=2s";

#[test]
fn requests_fail_with_the_syndrome_that_the_plan_names() {
    for (fault, want) in
        [("syndrome:0x14@nth:2", 0x14), ("syndrome:0x10/0x77@nth:2", 0x10), ("storm:9@nth:2+op:add", 0x13)]
    {
        let (a, b) = (Side::new(&format!("fault={fault}")), Side::new(""));
        let (mut a, mut b) = (a, b);
        join(&mut a, &mut b);
        let mut p = a.send_queue();
        for _ in 0..4 {
            p.write(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
        }
        p.ring();
        assert_eq!(syndrome(&p.wait()), 0);
        assert_eq!(syndrome(&p.wait()), want);
        let flushed = if fault.starts_with("storm") { 2 + 9 } else { 2 };
        for _ in 0..flushed {
            assert_eq!(syndrome(&p.wait()), 5);
        }
        assert_eq!(p.poll(), None);
        assert_eq!(b.word(0), 1, "only the first was carried out");
        assert!(a.pair.failure().unwrap().contains("fault plan"));
    }
}

#[test]
fn a_lost_completion_is_implied_by_the_next() {
    let (mut a, mut b) = (Side::new("fault=lose@nth:2"), Side::new(""));
    join(&mut a, &mut b);
    let mut p = a.send_queue();
    for _ in 0..3 {
        p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
    }
    assert_eq!([p.wait().wqe_counter, p.wait().wqe_counter], [0, 2]);
    assert_eq!(b.word(0), 3);
}

#[test]
fn a_delay_is_waited_for_and_keeps_the_order() {
    let (mut a, mut b) = (Side::new("fault=delay:50ms@nth:1"), Side::new(""));
    join(&mut a, &mut b);
    let mut p = a.send_queue();
    let started = Instant::now();
    p.post(Flags::SIGNALLED, Operation::Nop);
    p.post(Flags::SIGNALLED, Operation::Nop);
    assert_eq!([p.wait().wqe_counter, p.wait().wqe_counter], [0, 1]);
    assert!(started.elapsed() >= Duration::from_millis(50), "it cannot be shorter than it was made");
}

/// Adds 1 to a word many times under a fault plan. Each addition must be done exactly once.
fn exactly_once(options: &str, times: u64) {
    let (mut a, mut b) = (Side::new(options), Side::new(QUICK));
    join(&mut a, &mut b);
    let mut p = a.send_queue();
    let mut olds = Vec::new();
    for i in 0..times {
        p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(8 * (i % 8), 8)));
        if i % 8 == 7 {
            for _ in 0..8 {
                let c = p.wait();
                assert_eq!(syndrome(&c), 0, "{:?}", a.pair.failure());
            }
            olds.extend((0..8).map(|k| a.word(8 * k)));
        }
    }
    assert_eq!(b.word(0), times, "{options}");
    assert_eq!(olds, (0..times).collect::<Vec<_>>(), "each saw what the one before it left");
}

#[test]
fn lost_frames_lost_answers_and_cuts_repeat_nothing() {
    exactly_once(&format!("{QUICK},fault=drop@every:37"), 160);
    exactly_once(&format!("{QUICK},fault=drop-answer@every:41"), 160);
    exactly_once(&format!("{QUICK},fault=cut@every:13"), 160);
    exactly_once(&format!("{QUICK},seed=3,fault=cut@percent:5,fault=drop@percent:3,fault=drop-answer@percent:3"), 160);
    exactly_once("fault=drop@nth:3,resend=1ms", 16);
}

#[test]
fn a_frame_that_was_changed_on_the_way_is_dropped_counted_and_sent_again() {
    exactly_once(&format!("{QUICK},fault=flip@every:37"), 160);
    exactly_once(&format!("{QUICK},fault=flip-answer@every:41"), 160);
    exactly_once("fault=flip@nth:3,resend=1ms", 16);
    for (fault, here, there) in [("flip@nth:2", 0, 1), ("flip-answer@nth:2", 1, 0)] {
        for way in ["sockets", "sockets,tcp"] {
            let (mut a, mut b) =
                (Side::new(&format!("{way},resend=20ms,fault={fault}")), Side::new(&format!("{way},resend=20ms")));
            join(&mut a, &mut b);
            let pattern: Vec<u8> = (0..1 << 18).map(|i: u32| (i ^ i >> 9) as u8).collect();
            a.heap.write(0, &pattern).unwrap();
            let mut p = a.send_queue();
            for i in 0..3 {
                let all = [a.local(0, 1 << 18)];
                p.post(Flags::SIGNALLED, write(b.remote(i << 18), &all));
                assert_eq!(syndrome(&p.wait()), 0, "{fault}: {:?}", a.pair.failure());
            }
            for i in 0..3 {
                assert!(b.heap.get_slice::<u8>(i << 18, 1 << 18).unwrap() == pattern, "{fault}: message {i}");
            }
            let (a, b) = (a.nic.statistics(), b.nic.statistics());
            assert_eq!((a.icrc_errors, b.icrc_errors), (here, there), "{fault}, {way}");
            assert!(a.retransmissions > 0, "{fault}, {way}");
        }
    }
}

#[test]
fn large_messages_survive_cuts() {
    let (mut a, mut b) = (Side::new(&format!("{QUICK},fault=cut@every:2")), Side::new(QUICK));
    join(&mut a, &mut b);
    let pattern: Vec<u8> = (0..1 << 19).map(|i: u32| (i ^ i >> 9) as u8).collect();
    a.heap.write(0, &pattern).unwrap();
    let mut p = a.send_queue();
    for _ in 0..4 {
        let all = [a.local(0, 1 << 19)];
        p.post(Flags::SIGNALLED, write(b.remote(0), &all));
        assert_eq!(syndrome(&p.wait()), 0);
        let back = [a.local(1 << 19, 1 << 19)];
        p.post(Flags::SIGNALLED, Operation::Read { remote: b.remote(0), into: &back });
        assert_eq!(syndrome(&p.wait()), 0);
        assert_eq!(a.heap.get_slice::<u8>(1 << 19, 1 << 19).unwrap(), pattern);
        a.heap.fill(1 << 19, 1 << 19, 0).unwrap();
        b.heap.fill(0, 1 << 19, 0).unwrap();
    }
}

#[test]
fn a_dead_peer_is_noticed_and_named() {
    for way in ["", "sockets", "sockets,tcp"] {
        let times = "retry=500ms,heartbeat=20ms,silence=200ms";
        let (mut a, mut b) = (Side::new(&format!("{way},{times}")), Side::new(&format!("{way},fault=die@nth:1")));
        join(&mut a, &mut b);
        let mut p = a.send_queue();
        p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
        assert_eq!(syndrome(&p.wait()), 0);
        // The first request of `b` kills its adapter.
        b.send_queue().post(Flags::SIGNALLED, Operation::Nop);
        let mut failed = None;
        for _ in 0..100_000 {
            p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
            let c = p.wait();
            if syndrome(&c) != 0 {
                failed = Some(syndrome(&c));
                break;
            }
        }
        assert_eq!(failed, Some(0x15), "{way}");
        let why = a.pair.failure().unwrap();
        assert!(why.contains("answer"), "{why}");
    }
}
