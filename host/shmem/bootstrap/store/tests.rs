//! Tests of members and a store, over sockets of this host.

use super::wire::{GREETING, MAX_ALERT, PROTOCOL, sealed, terms};
use super::{Inbox, MAX_BYTES, Member, Message, Server};
use crate::handshake::recorder::{Recorder, shows};
use crate::handshake::{Greeting, Initiator, Next, Parties, Protection, Seal, Step, Terms};
use crate::shmem::bootstrap::{Bootstrap, BootstrapError, LEFT, Launched, LostRank, Secret};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// A timeout far longer than any test takes.
pub(super) const LONG: Duration = Duration::from_secs(100);
const SHORT: Duration = Duration::from_millis(50);

fn secret() -> Secret {
    Secret::new(b"the ranks of this test know it").unwrap()
}

fn launched(rank: usize, size: usize, store: String, has_server: bool) -> Launched {
    Launched {
        rank,
        size,
        local_rank: None,
        local_size: None,
        store: Some(store),
        listener: None,
        has_server,
        via: "a test",
    }
}

/// Starts a store as a launcher does.
pub(super) fn store() -> (Server, String) {
    let server = Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), secret()).unwrap();
    let address = server.address().to_string();
    (server, address)
}

/// A port for rank 0 to listen on. No other socket gets the port while this one, which does not listen, is bound to it.
struct Port(Socket);

impl Port {
    fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        Self(socket)
    }

    fn store(&self) -> String {
        self.0.local_addr().unwrap().as_socket().unwrap().to_string()
    }
}

/// Joins all members of a world.
pub(super) fn members(size: usize, store: &str) -> Vec<Member> {
    let join = |rank| {
        let launched = launched(rank, size, store.to_owned(), true);
        std::thread::spawn(move || Member::join(&launched, secret(), LONG).unwrap())
    };
    let joining: Vec<_> = (0..size).map(join).collect();
    joining.into_iter().map(|j| j.join().unwrap()).collect()
}

fn losses(of: &Member) -> Receiver<LostRank> {
    let (tx, rx) = channel();
    of.on_loss(Box::new(move |lost| {
        let _ = tx.send(lost.clone());
    }));
    rx
}

fn text(e: impl std::fmt::Display, words: &[&str]) {
    let e = e.to_string();
    assert!(words.iter().all(|w| e.contains(w)), "{words:?} in: {e}");
}

#[test]
fn everybody_gets_everybodys_bytes_round_after_round() {
    let (_server, store) = store();
    std::thread::scope(|s| {
        for member in members(5, &store) {
            s.spawn(move || {
                let heard = losses(&member);
                for round in 0..40usize {
                    let of = |rank: usize| vec![rank as u8; (rank * 997 + round * 13) % 3000];
                    let all = member.allgather(&of(member.rank()), LONG).unwrap();
                    assert_eq!(all, (0..5).map(of).collect::<Vec<_>>());
                }
                member.barrier(LONG).unwrap();
                member.leave();
                member.leave();
                assert!(matches!(
                    member.allgather(&[], LONG),
                    Err(BootstrapError::Left { .. } | BootstrapError::Lost(_))
                ));
                assert!(heard.try_recv().is_err());
            });
        }
    });
}

#[test]
fn megabytes_pass() {
    let (_server, store) = store();
    let n = 3 << 20;
    std::thread::scope(|s| {
        for member in members(3, &store) {
            s.spawn(move || {
                let of = |rank: usize| (0..256).map(|i| (i * 7 + rank) as u8).collect::<Vec<_>>().repeat(n / 256);
                let all = member.allgather(&of(member.rank()), LONG).unwrap();
                assert!(all.iter().enumerate().all(|(rank, bytes)| *bytes == of(rank)));
                member.leave();
            });
        }
    });
}

#[test]
fn more_than_an_exchange_takes_is_refused_before_it_is_sent() {
    let (_server, store) = store();
    let alone = Member::join(&launched(0, 1, store, true), secret(), LONG).unwrap();
    let e = alone.allgather(&vec![0; MAX_BYTES + 1], LONG).unwrap_err();
    text(e, &["67108865", "67108864"]);
    assert_eq!(alone.allgather(b"x", LONG).unwrap(), [b"x"]);
}

#[test]
fn a_connection_that_ends_is_a_lost_rank_to_all_others() {
    let (_server, store) = store();
    let mut members = members(3, &store);
    let heard: Vec<_> = members[..2].iter().map(losses).collect();
    let dies = members.pop().unwrap();
    let gone = LostRank::new(2, "connection closed");
    std::thread::scope(|s| {
        let waits: Vec<_> = members.iter().map(|m| s.spawn(|| m.allgather(&[], LONG))).collect();
        drop(dies);
        for wait in waits {
            assert!(matches!(wait.join().unwrap(), Err(BootstrapError::Lost(lost)) if lost == gone));
        }
    });
    for heard in &heard {
        assert_eq!(heard.recv_timeout(LONG).unwrap(), gone);
        assert_eq!(heard.try_recv(), Err(TryRecvError::Empty));
    }
    // A late listener learns of the loss at once, and every later call fails with it.
    assert_eq!(losses(&members[0]).try_recv().unwrap(), gone);
    assert!(matches!(members[1].allgather(&[], LONG), Err(BootstrapError::Lost(lost)) if lost == gone));
}

#[test]
fn an_alert_comes_without_being_waited_for() {
    let (_server, store) = store();
    let members = members(3, &store);
    let (tx, rx) = std::sync::mpsc::channel();
    members[2].on_alert(Box::new(move |from, bytes| tx.send((from, bytes.to_vec())).unwrap()));
    members[0].alert(2, b"hear");
    members[1].alert(2, &[7; MAX_ALERT]);
    members[1].alert(7, b"there is no such rank");
    let mut heard = [rx.recv_timeout(LONG).unwrap(), rx.recv_timeout(LONG).unwrap()];
    heard.sort();
    assert_eq!(heard, [(0, b"hear".to_vec()), (1, vec![7; MAX_ALERT])]);
    // Alerts do not affect exchanges.
    std::thread::scope(|s| {
        for m in &members {
            s.spawn(|| assert_eq!(m.allgather(b"x", LONG).unwrap(), [b"x"; 3]));
        }
    });
}

#[test]
fn a_rank_that_left_is_named_and_is_no_loss() {
    let (_server, store) = store();
    let mut members = members(2, &store);
    let leaves = members.pop().unwrap();
    let heard = losses(&members[0]);
    std::thread::scope(|s| {
        // Its part of the first exchange counts, although it may be gone when the other rank calls.
        let gives = s.spawn(|| leaves.allgather(b"b", LONG).unwrap());
        assert_eq!(members[0].allgather(b"a", LONG).unwrap(), [b"a", b"b"]);
        gives.join().unwrap();
    });
    leaves.leave();
    drop(leaves);
    let e = members[0].allgather(&[], LONG).unwrap_err();
    assert!(matches!(&e, BootstrapError::Lost(lost) if *lost == LostRank::new(1, LEFT)), "{e}");
    assert_eq!(heard.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let (_server, store) = store();
    let e = Member::join(&launched(1, 3, store.clone(), true), secret(), SHORT).unwrap_err();
    text(e, &["rank 1 of 3 waited", "for ranks 0, 2"]);

    // The world begins if the missing ranks come after all.
    let members = members(3, &store);
    let e = members[2].allgather(b"old", SHORT).unwrap_err();
    text(e, &["rank 2 of 3 waited", "for ranks 0, 1"]);
    std::thread::scope(|s| {
        for member in &members {
            s.spawn(|| assert_eq!(member.allgather(b"new", LONG).unwrap(), [b"new"; 3]));
        }
    });
}

#[test]
fn a_wrong_secret_is_said_on_both_sides() {
    let port = Port::new();
    let store = port.store();
    std::thread::scope(|s| {
        let host = launched(0, 2, store.clone(), false);
        // Long enough for the other rank to be turned away first.
        let waits = s.spawn(move || Member::join(&host, secret(), Duration::from_secs(2)));
        let other = Secret::new(b"0123456789abcdef").unwrap();
        let e = Member::join(&launched(1, 2, store.clone(), false), other, LONG).unwrap_err();
        text(e, &["rank 1", &store, "different secrets", "WARPBELL_SECRET"]);
        text(waits.join().unwrap().unwrap_err(), &["for rank 1", "rejected connections", "127.0.0.1 (another secret)"]);
    });
}

#[test]
fn rank_0_may_be_late_and_worlds_may_follow_each_other() {
    let port = Port::new();
    let store = port.store();
    for world in 0..3 {
        let join = |rank| Member::join(&launched(rank, 3, store.clone(), false), secret(), LONG).unwrap();
        std::thread::scope(|s| {
            for rank in [2, 1, 0] {
                let join = &join;
                s.spawn(move || {
                    let member = join(rank);
                    let all = member.allgather(&[world, rank as u8], LONG).unwrap();
                    assert_eq!(all, [[world, 0], [world, 1], [world, 2]]);
                    member.leave();
                });
                // The other ranks try while nobody listens.
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    }
}

/// A launcher that passes on a listening socket. No port is chosen before it is bound, and early ranks wait at the
/// socket.
#[test]
fn rank_0_may_inherit_the_socket_at_which_ranks_meet() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = listener.local_addr().unwrap().to_string();
    for world in 0..2 {
        std::thread::scope(|s| {
            for rank in [1, 0] {
                let descriptor = Some(listener.as_raw_fd());
                let launched = Launched { listener: descriptor, ..launched(rank, 2, store.clone(), false) };
                s.spawn(move || {
                    let member = Member::join(&launched, secret(), LONG).unwrap();
                    assert_eq!(member.allgather(&[world, rank as u8], LONG).unwrap(), [[world, 0], [world, 1]]);
                    member.leave();
                });
            }
        });
    }
    // Rejects a descriptor of another kind, and one that is not open.
    let connected = TcpStream::connect(&store).unwrap();
    for (descriptor, what) in [(connected.as_raw_fd(), "connected"), (i32::MAX, "not there")] {
        let launched = Launched { listener: Some(descriptor), ..launched(0, 2, store.clone(), false) };
        let e = Member::join(&launched, secret(), LONG).expect_err(what);
        text(e, &[&format!("WARPBELL_STORE_FD is `{descriptor}`"), "no listening TCP socket"]);
    }
}

/// Joins both ranks of a world, of which rank 0 runs the store.
fn ranks_with_their_own_store() -> [Member; 2] {
    let port = Port::new();
    let store = port.store();
    let join = |rank| {
        let launched = launched(rank, 2, store.clone(), false);
        std::thread::spawn(move || Member::join(&launched, secret(), LONG).unwrap())
    };
    [0, 1].map(join).map(|rank| rank.join().unwrap())
}

#[test]
fn rank_0_that_leaves_or_goes_is_named() {
    for orderly in [true, false] {
        let [zero, one] = ranks_with_their_own_store();
        let heard = losses(&one);
        if orderly {
            zero.leave();
        }
        drop(zero);
        let e = one.allgather(&[], LONG).unwrap_err();
        let reason = if orderly { LEFT } else { "connection closed" };
        assert!(matches!(&e, BootstrapError::Lost(lost) if *lost == LostRank::new(0, reason)), "{e}");
        if !orderly {
            assert_eq!(heard.recv_timeout(LONG).unwrap().rank, 0);
        }
    }
}

#[test]
fn a_rank_that_leaves_after_rank_0_warns_of_nothing() {
    /// Counts the warnings of a thread.
    struct Warnings(Arc<AtomicUsize>);

    impl tracing::Subscriber for Warnings {
        fn enabled(&self, event: &tracing::Metadata<'_>) -> bool {
            *event.level() <= tracing::Level::WARN
        }
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    let [zero, one] = ranks_with_their_own_store();
    zero.leave();
    drop(zero);
    // The store of a process that has ended takes no more messages.
    one.run_out_after(0);
    let warnings = Arc::default();
    tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
        tracing::warn!("counted");
        one.leave();
    });
    assert_eq!(warnings.load(Ordering::Relaxed), 1, "only that of this test");
}

#[test]
fn a_port_in_use_is_said_at_once() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = taken.local_addr().unwrap().to_string();
    let e = Member::join(&launched(0, 2, store.clone(), false), secret(), LONG).unwrap_err();
    text(e, &[&store, "in use", "WARPBELL_STORE"]);
}

#[test]
fn a_store_that_is_not_there_is_tried_for_as_long_as_there_is_time() {
    let port = Port::new();
    let store = port.store();
    let start = Instant::now();
    let e = Member::join(&launched(1, 2, store.clone(), false), secret(), SHORT).unwrap_err();
    assert!(start.elapsed() >= SHORT);
    text(e, &["rank 1 could not reach rank 0", &store, "50ms", "refused"]);
    let e = Member::join(&launched(1, 2, "no.such.host.invalid:1".to_owned(), false), secret(), SHORT).unwrap_err();
    text(e, &["no.such.host.invalid:1"]);
}

#[test]
fn what_is_no_store_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
        // The next connection gets no reply at all.
        listener.accept().unwrap()
    });
    let e = Member::join(&launched(1, 2, store.clone(), false), secret(), LONG).unwrap_err();
    text(e, &[&store, "is not a warpbell store"]);
    let e = Member::join(&launched(1, 2, store.clone(), false), secret(), SHORT).unwrap_err();
    text(e, &[&store, "does not answer"]);
    drop(other);
}

#[test]
fn what_does_not_fit_together_is_said_to_all() {
    let (_server, store) = store();
    let join = |rank, size| {
        let launched = launched(rank, size, store.clone(), true);
        std::thread::spawn(move || Member::join(&launched, secret(), LONG).map(drop).unwrap_err())
    };
    for (a, b, words) in [
        ([0, 3], [1, 4], ["world of", "ranks", "one of"]),
        ([1, 3], [1, 3], ["two processes have rank 1", "process ", " on "]),
    ] {
        for joined in [a, b].map(|[rank, size]| join(rank, size)) {
            text(joined.join().unwrap(), &words);
        }
    }
}

// --- strangers -----------------------------------------------------------------------------------------------------------

/// Reads everything until the other end closes.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut all = Vec::new();
    // A reset also ends the stream.
    let _ = stream.read_to_end(&mut all);
    all
}

fn greeting(step: Step, byte: u8) -> Vec<u8> {
    let said = Greeting::new(&PROTOCOL, step, Protection::Encrypted, Parties::default());
    Greeting { noise: [byte; 48], ..said }.encode(&PROTOCOL)
}

fn of_version_9(step: Step) -> Vec<u8> {
    let said = Greeting::new(&PROTOCOL, step, Protection::Encrypted, Parties::default());
    Greeting { version: 9, ..said }.encode(&PROTOCOL)
}

fn read(bytes: &[u8]) -> Greeting {
    Greeting::read(&PROTOCOL, bytes).unwrap().unwrap().0
}

#[test]
fn strangers_learn_nothing() {
    let (_server, store) = store();
    let _inside = members(2, &store);
    let address: SocketAddr = store.parse().unwrap();

    let mut http = TcpStream::connect(address).unwrap();
    http.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(rest(&mut http), b"");

    let mut guesses = TcpStream::connect(address).unwrap();
    guesses.write_all(&greeting(Step::Hello, 1)).unwrap();
    assert_eq!(rest(&mut guesses), greeting(Step::Denied, 0));

    // A confirmation before a hello, and a welcome, which only the store may send.
    for first in [Step::Confirm, Step::Welcome] {
        let mut hasty = TcpStream::connect(address).unwrap();
        hasty.write_all(&greeting(first, 1)).unwrap();
        assert_eq!(rest(&mut hasty), b"");
    }

    // Nobody talks the store into plain messages, not even a rank.
    let plain = Terms::new(&PROTOCOL, secret().bytes(), Protection::Plain);
    let mut weak = TcpStream::connect(address).unwrap();
    weak.write_all(&Initiator::new(plain, Parties::default()).unwrap().1).unwrap();
    assert_eq!(read(&rest(&mut weak)).step, Step::Unlike);

    let mut newer = TcpStream::connect(address).unwrap();
    newer.write_all(&of_version_9(Step::Hello)).unwrap();
    let denied = read(&rest(&mut newer));
    assert_eq!((denied.version, denied.step), (PROTOCOL.version, Step::Denied));
}

/// An eavesdropper sees all bytes of a rank, and sends the same to the store.
#[test]
fn an_overheard_rank_is_not_let_in() {
    let (server, _) = store();
    let recorder = Recorder::before(server.address());
    let member = Member::join(&launched(0, 1, recorder.at.to_string(), true), secret(), LONG).unwrap();
    let text_of_rank = b"only the ranks of this world may read this";
    assert_eq!(member.allgather(text_of_rank, LONG).unwrap(), [text_of_rank]);
    member.leave();
    drop(member);
    let heard = recorder.finish();
    for word in [&text_of_rank[..], env!("CARGO_PKG_VERSION").as_bytes(), b"process "] {
        assert!(!shows(&heard, word), "it can be read on the way");
    }
    let [sent, _] = heard;
    let mut replay = TcpStream::connect(server.address()).unwrap();
    replay.write_all(&sent).unwrap();
    let told = rest(&mut replay);
    // A reset may take the store's last words along.
    if told.len() >= 2 * GREETING {
        assert_eq!((read(&told).step, read(&told[GREETING..]).step), (Step::Welcome, Step::Denied));
        assert_eq!(told.len(), 2 * GREETING);
    }
}

#[test]
fn a_connection_without_numbers_ends_and_the_others_learn_of_it() {
    let (_server, store) = store();
    let members = members(2, &store);
    let heard = losses(&members[0]);
    members[1].run_out_after(1);
    members[1].alert(0, b"the last message");
    members[1].alert(0, b"no number is left");
    assert_eq!(heard.recv_timeout(LONG).unwrap().rank, 1);
    assert!(matches!(members[1].allgather(&[], LONG), Err(BootstrapError::Lost(_))));
}

#[test]
fn another_version_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&of_version_9(Step::Denied)).unwrap();
        stream
    });
    let e = Member::join(&launched(1, 2, store, false), secret(), LONG).unwrap_err();
    text(e, &["version 9", "version 2", "same warpbell"]);
    drop(other);
}

/// Opens a connection that knows the secret and can send anything.
fn insider(store: &str) -> (TcpStream, Seal) {
    let mut stream = TcpStream::connect(store).unwrap();
    let (mut initiator, hello) = Initiator::new(terms(&secret()), Parties::default()).unwrap();
    stream.write_all(&hello).unwrap();
    loop {
        let mut answer = [0; GREETING];
        stream.read_exact(&mut answer).unwrap();
        match initiator.read_message(&read(&answer)).unwrap() {
            Next::Say(bytes) => stream.write_all(&bytes).unwrap(),
            Next::Open { say, seals, .. } => {
                stream.write_all(&say).unwrap();
                return (stream, seals.ours);
            }
        }
    }
}

fn join_message(rank: u32, size: u32) -> Message {
    Message::Join {
        rank,
        size,
        fingerprint: crate::engine::abi::fingerprint(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        who: "a test".to_owned(),
    }
}

#[test]
fn a_replayed_or_changed_message_ends_its_connection() {
    let (_server, store) = store();
    let attacks: [fn(&mut Seal) -> Vec<u8>; 4] = [
        // A replayed message.
        |seal| {
            let give = sealed(&Message::Give { round: 0, bytes: vec![7; 100] }, seal).unwrap();
            [give.clone(), give].concat()
        },
        // A changed message.
        |seal| {
            let mut give = sealed(&Message::Give { round: 0, bytes: vec![7; 100] }, seal).unwrap();
            give[50] ^= 1;
            give
        },
        // A missing message.
        |seal| {
            sealed(&Message::Withdraw { round: 5 }, seal).unwrap();
            sealed(&Message::Give { round: 0, bytes: Vec::new() }, seal).unwrap()
        },
        // A length above the limit.
        |_| u32::MAX.to_le_bytes().to_vec(),
    ];
    for attack in attacks {
        let (zero, (mut one, mut seal)) = std::thread::scope(|s| {
            let zero = s.spawn(|| Member::join(&launched(0, 2, store.clone(), true), secret(), LONG).unwrap());
            let (mut stream, mut seal) = insider(&store);
            stream.write_all(&sealed(&join_message(1, 2), &mut seal).unwrap()).unwrap();
            (zero.join().unwrap(), (stream, seal))
        });
        let heard = losses(&zero);
        one.write_all(&attack(&mut seal)).unwrap();
        let lost = heard.recv_timeout(LONG).unwrap();
        assert_eq!(lost.rank, 1);
        assert!(lost.reason.contains("it sent a message that is"), "{lost}");
    }
}

#[test]
fn fuzz_input_is_digested() {
    assert_eq!(Inbox::digest(b""), 0);
    let hello = greeting(Step::Hello, 1);
    assert_eq!(Inbox::digest(&hello), 1);
}
