//! Strangers, and peers that violate the protocol.

use super::*;
use crate::handshake::recorder::{Recorder, shows};
use crate::handshake::{Greeting, Initiator, Parties, Protection, Step, Terms};
use crate::listener::testing::{
    Crowd, TestProcess, limit_descriptors, say, silent_crowd, take_descriptors, wait_for_parent,
};
use crate::soft::nic::config::Key;
use crate::soft::nic::endpoint::{Endpoint, PairAddress};
use crate::soft::nic::frame::{GREETING, PROTOCOL};
use crate::soft::nic::wire::{Cut, Wire};
use crate::soft::nic::{Answer, Command, Frame};
use proptest::prelude::*;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

fn tcp(side: &Side) -> TcpStream {
    let at = PairAddress::read(&side.pair.address()).unwrap().at.tcp[0];
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Reads until the other end closes the connection, and returns the bytes.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset ends the connection too.
    let _ = stream.read_to_end(&mut all);
    all
}

/// Returns the hello of adapter 5 to the adapter `nic`.
pub(crate) fn hello(nic: u128, key: &[u8; 32], protection: Protection) -> Vec<u8> {
    Initiator::new(Terms::new(&PROTOCOL, key, protection), Parties { from: 5, to: nic }).unwrap().1
}

#[test]
fn strangers_learn_nothing_and_do_no_harm() {
    let (mut a, mut b) = (Side::new("sockets,tcp"), Side::new("sockets,tcp"));
    join(&mut a, &mut b);
    let nic = PairAddress::read(&b.pair.address()).unwrap().at.nic;
    let greeting = |step, to| Greeting::new(&PROTOCOL, step, Protection::Encrypted, Parties { from: 5, to });
    let say = |step, to| Greeting { noise: [1; 48], ..greeting(step, to) }.encode(&PROTOCOL);
    let read = |bytes: &[u8]| Greeting::read(&PROTOCOL, bytes).unwrap().unwrap().0;
    for bytes in [
        &[0u8; GREETING][..],
        b"GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: everything that there is, and more\r\n\r\n\r\n\r\n\r\n\r\n",
    ] {
        let mut s = tcp(&b);
        s.write_all(bytes).unwrap();
        assert_eq!(rest(s), [0u8; 0]);
    }
    // A stranger that names another adapter is told so, and nothing else.
    let mut s = tcp(&b);
    s.write_all(&say(Step::Hello, nic ^ 1)).unwrap();
    let told = rest(s);
    assert_eq!((told.len(), read(&told).step), (GREETING, Step::Mistaken));
    // A stranger whose proof is wrong is rejected.
    let mut s = tcp(&b);
    s.write_all(&say(Step::Hello, nic)).unwrap();
    let told = rest(s);
    assert_eq!((told.len(), read(&told).step), (GREETING, Step::Denied));
    // So is one that replays the hello of a member: it gets a welcome, which it cannot confirm.
    let mut s = tcp(&b);
    s.write_all(&hello(nic, &KEY, Protection::Encrypted)).unwrap();
    s.write_all(&say(Step::Confirm, nic)).unwrap();
    let told = rest(s);
    assert_eq!(
        (told.len(), read(&told).step, read(&told[GREETING..]).step),
        (2 * GREETING, Step::Welcome, Step::Denied)
    );
    // Nobody talks an adapter into plain frames over TCP, not even a member.
    let mut s = tcp(&b);
    s.write_all(&hello(nic, &KEY, Protection::Plain)).unwrap();
    assert_eq!(read(&rest(s)).step, Step::Unlike);
    // So is one with another protocol version. The reply contains this side's version.
    let mut s = tcp(&b);
    s.write_all(&Greeting { version: 9, ..greeting(Step::Hello, nic) }.encode(&PROTOCOL)).unwrap();
    let told = read(&rest(s));
    assert_eq!((told.version, told.step), (PROTOCOL.version, Step::Denied));
    let mut p = a.send_queue();
    p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
    assert_eq!((syndrome(&p.wait()), b.word(0)), (0, 1));
}

#[test]
fn what_passes_over_tcp_is_read_by_nobody_else() {
    for (options, readable) in [("sockets,tcp", false), ("sockets,tcp,encrypt=off", true)] {
        let (mut a, mut b) = (Side::new(options), Side::new(options));
        let mut to_b = PairAddress::read(&b.pair.address()).unwrap();
        let recorder = Recorder::before(to_b.at.tcp[0]);
        to_b.at.tcp = vec![recorder.at];
        let to_a = a.pair.address();
        a.pair.connect(&to_b.to_queue_address()).unwrap();
        b.pair.connect(&to_a).unwrap();
        let (mine, theirs) = (b"put by a kernel, for one peer", b"got by a kernel, from one peer");
        a.heap.write(0, mine).unwrap();
        b.heap.write(512, theirs).unwrap();
        let mut p = a.send_queue();
        p.post(Flags::SIGNALLED, write(b.remote(0), &[a.local(0, mine.len() as u32)]));
        assert_eq!(syndrome(&p.wait()), 0);
        let into = [a.local(512, theirs.len() as u32)];
        p.post(Flags::SIGNALLED, Operation::Read { remote: b.remote(512), into: &into });
        assert_eq!(syndrome(&p.wait()), 0);
        assert_eq!(b.heap.get_slice::<u8>(0, mine.len()).unwrap(), mine);
        assert_eq!(a.heap.get_slice::<u8>(512, theirs.len()).unwrap(), theirs);
        drop((a, b));
        let overheard = recorder.finish();
        assert_eq!((shows(&overheard, mine), shows(&overheard, theirs)), (readable, readable), "{options}");
    }
}

/// A port under attack, and what an attacker can have overheard there.
pub(crate) struct Target {
    pub(crate) at: std::net::SocketAddr,
    /// The hello of a member.
    pub(crate) overheard: Vec<u8>,
    /// A hello with another secret.
    pub(crate) wrong: Vec<u8>,
}

impl Target {
    /// Returns the port of an adapter with this key.
    pub(crate) fn of(nic: &SoftNic, key: &[u8; 32]) -> Self {
        let (at, number) = (nic.core.endpoint.tcp[0], nic.core.endpoint.nic);
        let [overheard, wrong] = [key, &[0; 32]].map(|key| hello(number, key, Protection::Encrypted));
        Self { at, overheard, wrong }
    }

    /// Makes a hostile connection. Returns its socket, which is kept open for a while.
    pub(crate) fn attack(&self, kind: usize) -> std::io::Result<TcpStream> {
        let mut s = TcpStream::connect_timeout(&self.at, Duration::from_secs(1))?;
        let (hello, n) = (&self.overheard, self.overheard.len());
        let mut changed = hello.clone();
        changed[kind % n] ^= 1 << (kind % 8);
        // The victim may close the connection at any time.
        let _ = match kind % 8 {
            0 => Ok(()),
            1 => s.write_all(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"),
            2 => s.write_all(&vec![0xff; 100_000]),
            3 => s.write_all(&self.wrong),
            4 => s.write_all(&changed),
            // A replayed hello, and nothing behind it.
            5 => s.write_all(hello),
            // A replayed hello, a confirmation with a wrong proof, and bytes that look like a long frame.
            6 => s.write_all(&[&hello[..], &hello[..10], &[3], &hello[11..], &[0x7f; 4000]].concat()),
            // Half a hello, one byte at a time.
            _ => hello[..n / 2].iter().try_for_each(|b| s.write_all(&[*b])),
        };
        Ok(s)
    }
}

#[test]
fn a_silent_crowd_keeps_nobody_out() {
    let (mut a, mut b) = (Side::new("sockets,tcp,fault=cut@nth:3"), Side::new("sockets,tcp"));
    let at = PairAddress::read(&b.pair.address()).unwrap().at.tcp[0];
    // Connections that are silent from the start: more than are kept, from the address that the members use too.
    let at_a_time = 2000.min(crate::this_host::descriptor_limit() / 4);
    let before: Vec<TcpStream> = (0..at_a_time.min(200)).map(|_| TcpStream::connect(at).unwrap()).collect();
    let (made, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| silent_crowd(1, at, at_a_time, &made, &over));
        let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            join(&mut a, &mut b);
            let mut p = a.send_queue();
            // The third request is cut off, and is repeated over another connection.
            for i in 0..6 {
                p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
                assert_eq!(syndrome(&p.wait()), 0, "{:?}", a.pair.failure());
                assert_eq!(a.word(0), i);
            }
        }));
        over.store(true, Ordering::Relaxed);
        work.unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
    drop(before);
    assert_eq!(b.word(0), 6);
    assert!(made.into_inner() > 0);
}

/// Descriptors of the process below, and those that are left once its adapters are there: a few more than strangers may have.
const FEW: u64 = 120;
const LEFT: usize = 30;

#[test]
#[ignore = "another test starts it as a process"]
fn child_with_few_descriptors() {
    limit_descriptors(FEW);
    let (mut a, mut b) = (Side::new("sockets,tcp,fault=cut@nth:3"), Side::new("sockets,tcp"));
    say(&format!("adapter at {}", PairAddress::read(&b.pair.address()).unwrap().at.tcp[0]));
    let _taken = take_descriptors(LEFT);
    wait_for_parent();
    join(&mut a, &mut b);
    let mut p = a.send_queue();
    for i in 0..6 {
        p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
        assert_eq!(syndrome(&p.wait()), 0, "{:?}", a.pair.failure());
        assert_eq!(a.word(0), i);
    }
}

#[test]
fn a_crowd_takes_no_descriptors_from_members() {
    let mut few = TestProcess::start("soft::nic::tests::hostile::child_with_few_descriptors", "");
    let at = few.line("adapter at ").parse().unwrap();
    Crowd::around(1..=3, at, |crowd| {
        crowd.wait_for(2 * FEW as usize);
        few.go_on();
        few.pass();
    });
}

#[test]
fn strangers_have_two_seconds() {
    let b = Side::new("sockets,tcp");
    let (mut quiet, mut slow) = (tcp(&b), tcp(&b));
    // `slow` starts the handshake and does not continue.
    let nic = PairAddress::read(&b.pair.address()).unwrap().at.nic;
    slow.write_all(&hello(nic, &KEY, Protection::Encrypted)).unwrap();
    let (mut welcome, mut end) = (vec![0; GREETING], [0; 1]);
    slow.read_exact(&mut welcome).unwrap();
    // 8 s is more than the limit of a handshake (2 s) and less than that of a connection (10 s).
    for stream in [&mut quiet, &mut slow] {
        stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        assert!(!matches!(stream.read(&mut end), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock), "kept");
    }
}

/// Returns the connection of a peer that knows the key.
fn member(side: &Side, me: u128) -> Wire {
    let at = PairAddress::read(&side.pair.address()).unwrap().at;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.connect(&SockAddr::unix(format!("\0{}", at.unix.unwrap())).unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut wire = Wire::initiate(socket, me, at.nic, &Key(KEY), Protection::Plain);
    until(|| {
        wire.pump().unwrap();
        wire.is_open()
    });
    wire
}

fn until(mut f: impl FnMut() -> bool) {
    let started = Instant::now();
    while !f() {
        assert!(started.elapsed() < crate::rdma::ring_service::testing::LIMIT);
        std::thread::yield_now();
    }
}

fn is_cut(mut wire: Wire) -> bool {
    let mut cut = false;
    until(|| {
        cut = matches!(wire.pump(), Err(Cut::Closed | Cut::Io(_)));
        while !cut && matches!(wire.next(), Ok(true)) {}
        cut
    });
    cut
}

#[test]
fn members_that_break_the_rules_are_cut_off() {
    let b = Side::new("sockets");
    for bad in [&[][..], &[9, 9, 9], &Frame::Pong.encode()] {
        let mut wire = member(&b, 7);
        wire.send(bad);
        assert!(is_cut(wire));
    }
    let mut wire = member(&b, 7);
    wire.send(&vec![1; crate::soft::nic::frame::MAX_FRAME + 1]);
    assert!(is_cut(wire), "too long");
    // A well-formed request gets no response if the queue pair is not connected, but it gets one if the queue pair does
    // not exist.
    let request = |pair| Frame::Request {
        pair,
        nonce: 1,
        from: 1,
        from_nonce: 1,
        sequence: 0,
        answered: 0,
        command: Command::Read { remote: b.remote(0), total: 8, offset: 0, bytes: 8 },
    };
    let mut wire = member(&b, 7);
    wire.send(&request(0x999).encode());
    let mut answer = None;
    until(|| {
        wire.pump().unwrap();
        answer = wire.next().unwrap().then(|| wire.frame().to_vec());
        answer.is_some()
    });
    let answer = answer.unwrap();
    assert!(matches!(Frame::decode(&answer), Some(Frame::Response { answer: crate::soft::nic::Answer::Gone(_), .. })));
}

/// Marks the queue pair as connected with queue pair 1 of adapter 7, and returns its address.
fn promise(pair: &SoftQueuePair) -> PairAddress {
    let me = PairAddress { at: Endpoint::new(7, None, Vec::new()), number: 1, nonce: 1 };
    pair.shared.state.lock().peer = Some(me);
    PairAddress::read(&pair.address()).unwrap()
}

/// Returns a connection to the queue pair, and a function that creates its requests. Each request adds 1 to the first
/// word.
fn connected(b: &Side) -> (Wire, impl Fn(u64, u64) -> Vec<u8> + use<>) {
    let at = promise(&b.pair);
    let (remote, pair, nonce) = (b.remote(0), at.number, at.nonce);
    let request = move |sequence, answered| {
        let command = Command::Atomic { remote, action: Atomic::FetchAdd { add: 1 } };
        Frame::Request { pair, nonce, from: 1, from_nonce: 1, sequence, answered, command }.encode()
    };
    (member(b, 7), request)
}

fn answer(wire: &mut Wire) -> Vec<u8> {
    let mut answer = None;
    until(|| {
        wire.pump().unwrap();
        answer = wire.next().unwrap().then(|| wire.frame().to_vec());
        answer.is_some()
    });
    answer.unwrap()
}

#[test]
fn a_request_that_comes_twice_is_carried_out_once() {
    let b = Side::new("sockets");
    let (mut wire, request) = connected(&b);
    wire.send(&request(0, 0));
    let first = answer(&mut wire);
    assert!(matches!(Frame::decode(&first), Some(Frame::Response { sequence: 0, answer: Answer::Old(0), .. })));
    // Repeats it on this connection and on a new one. A request with a later number is ignored until the ones before it
    // have arrived.
    wire.send(&request(0, 0));
    assert_eq!(answer(&mut wire), first);
    drop(wire);
    let mut wire = member(&b, 7);
    wire.send(&request(2, 0));
    wire.send(&request(0, 0));
    assert_eq!(answer(&mut wire), first);
    wire.send(&request(1, 1));
    let second = answer(&mut wire);
    assert!(matches!(Frame::decode(&second), Some(Frame::Response { sequence: 1, answer: Answer::Old(1), .. })));
    // The response to the first is not kept any more, and the command is not carried out again either.
    wire.send(&request(0, 1));
    wire.send(&Frame::Ping.encode());
    assert_eq!(Frame::decode(&answer(&mut wire)), Some(Frame::Pong));
    assert_eq!(b.word(0), 2);
}

#[test]
fn a_connection_without_numbers_is_over_once_all_is_sent() {
    let b = Side::new("sockets");
    let (mut wire, request) = connected(&b);
    wire.run_out_after(2);
    for sequence in 0..3 {
        wire.send(&request(sequence, 0));
    }
    let mut over = None;
    until(|| {
        over = wire.pump().err();
        over.is_some()
    });
    let why = over.unwrap().to_string();
    assert!(why.contains("all numbers of its records are used"), "{why}");
    // The frames that had numbers arrive, and the third comes over another connection, which has new ones.
    let mut wire = member(&b, 7);
    wire.send(&request(2, 0));
    assert!(matches!(Frame::decode(&answer(&mut wire)), Some(Frame::Response { answer: Answer::Old(2), .. })));
}

#[test]
fn a_peer_that_takes_no_answers_is_cut_off() {
    let b = Side::new("sockets");
    let (mut wire, request) = connected(&b);
    for i in 0..2000 {
        wire.send(&request(i, 0));
    }
    until(|| {
        let cut = wire.pump().is_err();
        while !cut && matches!(wire.next(), Ok(true)) {}
        cut
    });
    assert_eq!(b.word(0), 1024, "as many as responses are kept");
}

#[test]
fn a_slow_peer_is_not_waited_for() {
    let (mut a, mut b) = (Side::new("sockets"), Side::new("sockets"));
    join(&mut a, &mut b);
    // The peer requests much data and reads little.
    let end = b.nic.create_pair(plan(6)).unwrap();
    let PairAddress { number: pair, nonce, .. } = promise(&end);
    let mut wire = member(&b, 7);
    for sequence in 0..400 {
        let bytes = crate::soft::nic::MAX_DATA as u32;
        let command = Command::Read { remote: b.remote(0), total: bytes.into(), offset: 0, bytes };
        let answered = sequence;
        wire.send(&Frame::Request { pair, nonce, from: 1, from_nonce: 1, sequence, answered, command }.encode());
    }
    wire.pump().unwrap();
    let mut p = a.send_queue();
    for _ in 0..100 {
        p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
        assert_eq!(syndrome(&p.wait()), 0);
    }
    assert_eq!(b.word(0), 100);
}

#[test]
fn the_two_ends_of_a_connection_are_told_apart() {
    let b = Side::new("sockets");
    let mut wires: Vec<_> = (0..10).map(|i| member(&b, i)).collect();
    for w in &mut wires {
        w.send(&Frame::Ping.encode());
        until(|| {
            w.pump().unwrap();
            w.next().unwrap()
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn random_entries_never_stop_an_adapter(entries in proptest::collection::vec(any::<[u8; 32]>(), 1..12), near: bool) {
        let (a, b) = pair_of("");
        let mut p = a.send_queue();
        for e in &entries {
            let mut block = [0; 64];
            block[..32].copy_from_slice(e);
            if near {
                // A control segment that is valid except for its opcode and length.
                block[0..4].copy_from_slice(&[0, (p.next >> 8) as u8, p.next as u8, e[3] % 0x24]);
                block[4..8].copy_from_slice(&(a.pair.number() << 8 | u32::from(e[7] % 5)).to_be_bytes());
                block[8..16].copy_from_slice(&[0, 0, 0, 8, 0, 0, 0, 0]);
            }
            p.write_bytes(&block);
        }
        p.write(Flags::SIGNALLED, Operation::Nop);
        p.ring();
        loop {
            let c = p.wait();
            if usize::from(c.wqe_counter) + 1 >= p.next as usize || syndrome(&c) != 0 {
                break;
            }
        }
        // The adapter still processes another queue pair.
        let mut q = b.send_queue();
        q.post(Flags::SIGNALLED, add(a.remote(0), 1, b.local(0, 8)));
        prop_assert_eq!(syndrome(&q.wait()), 0);
    }
}
