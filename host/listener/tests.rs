//! Tests of the limits, and of an acceptor in a process without descriptors.

use super::testing::{TestProcess, limit_descriptors, take_descriptors};
use super::*;
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

fn from(address: u8) -> Source {
    Source::of(IpAddr::from([10, 0, 0, address]))
}

fn stranger(now: Instant, address: u8, age: u64, silent: bool) -> Stranger {
    Stranger { source: from(address), known: false, since: now - Duration::from_secs(age), silent }
}

#[test]
fn the_oldest_that_said_nothing_goes() {
    let now = Instant::now();
    let limits = Limits { all: 4, of_one_source: 2, reserved: 0 };
    let admit = |all: &[Stranger], source| limits.admit(all, source, false, false);
    let mut all = vec![stranger(now, 1, 9, false), stranger(now, 2, 5, true), stranger(now, 3, 7, true)];
    assert_eq!(admit(&all, from(4)), Admission::Keep);
    all.push(stranger(now, 2, 1, true));
    assert_eq!(admit(&all, from(4)), Admission::Replace(2), "the oldest of all that are silent");
    assert_eq!(admit(&all, from(2)), Admission::Replace(1), "its own address has too many");
    assert_eq!(admit(&all, Source::ThisHost), Admission::Replace(2));
    for s in &mut all {
        s.silent = false;
    }
    assert_eq!(admit(&all, from(4)), Admission::Replace(0));
}

#[test]
fn a_process_keeps_descriptors_for_others() {
    assert_eq!(Limits::new(64, 8, 1 << 20), Limits { all: 64, of_one_source: 32, reserved: 16 });
    assert_eq!(Limits::new(64, 16, 256), Limits { all: 16, of_one_source: 8, reserved: 4 });
    assert_eq!(Limits::new(64, 0, 0), Limits { all: 4, of_one_source: 2, reserved: 1 });
}

#[test]
fn hosts_of_one_ipv6_network_are_one_source() {
    let source = |text: &str| Source::of(text.parse().unwrap());
    assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff::9"));
    assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
    assert_eq!(source("::ffff:10.0.0.7"), from(7));
    assert_eq!((source("2001:db8::1").to_string(), from(7).to_string()), ("2001:db8::/64".into(), "10.0.0.7".into()));
}

/// Unknown sources of any number never take the places of known ones, not even of silent ones. The number never exceeds its limit.
#[test]
fn a_flood_from_many_addresses_leaves_known_hosts_their_places() {
    let limits = Limits::new(32, 1, 1 << 20);
    let (mut all, now) = (Vec::<Stranger>::new(), Instant::now());
    let mut arrive = |source, known, at: u64| {
        let new = Stranger { source, known, since: now + Duration::from_millis(at), silent: known };
        match limits.admit(&all, source, known, false) {
            Admission::Keep => all.push(new),
            Admission::Replace(i) => all[i] = new,
            Admission::Refuse => panic!("a new one always finds a place"),
        }
        assert!(all.len() <= limits.all);
        all.iter().filter(|s| s.known).count()
    };
    let flood = |n: u64| Source::of(IpAddr::from([11, 0, (n >> 8) as u8, n as u8]));
    (0..1000).for_each(|n| assert_eq!(arrive(flood(n), false, n), 0));
    for n in 0..limits.reserved as u64 {
        assert_eq!(arrive(from(n as u8), true, 1000 + n), n as usize + 1);
    }
    (2000..5000).for_each(|n| assert_eq!(arrive(flood(n), false, n), limits.reserved));
    // Known ones beyond the reserve compete with all others.
    let many = (0..200).map(|n| arrive(from(n), true, 5000 + u64::from(n))).last();
    assert!(many.is_some_and(|n| n >= limits.reserved));
    assert!((6000..9000).all(|n| arrive(flood(n), false, n) >= limits.reserved));
}

#[test]
fn a_spare_descriptor_is_for_known_hosts_and_for_the_place_of_a_stranger() {
    let (limits, now) = (Limits::new(64, 1, 1 << 20), Instant::now());
    assert_eq!(limits.admit(&[], from(1), false, true), Admission::Refuse);
    assert_eq!(limits.admit(&[], from(1), true, true), Admission::Keep);
    let known = Stranger { known: true, ..stranger(now, 1, 9, true) };
    assert_eq!(limits.admit(&[known], from(2), false, true), Admission::Refuse);
    assert_eq!(limits.admit(&[known, stranger(now, 3, 1, true)], from(2), false, true), Admission::Replace(1));
}

#[test]
#[ignore = "another test starts it as a process"]
fn child_without_descriptors() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let mut acceptor = Acceptor::new("a test");
    assert!(matches!(acceptor.next(Instant::now(), || listener.accept()), Accepted::Nothing));
    limit_descriptors(48);
    let mut clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(at).unwrap()).collect();
    let held = take_descriptors(0);
    let accept = || listener.accept();
    let mut now = Instant::now();
    // Without room the clients still learn that they are refused.
    for n in 0..2 {
        let Accepted::Last((stream, _)) = acceptor.next(now, accept) else { panic!("accept {n}") };
        assert!(stream.as_raw_fd() >= 0);
        drop(stream);
    }
    // One that is kept leaves the other spare descriptor, and then there is none: the listener pauses.
    let Accepted::Last(kept) = acceptor.next(now, accept) else { panic!("the third") };
    let full = || Err::<(), _>(io::Error::from_raw_os_error(libc::EMFILE));
    assert!(matches!(acceptor.next(now, full), Accepted::Nothing));
    let paused = acceptor.paused_until().expect("a pause instead of a busy loop");
    assert!(matches!(acceptor.next(now, || -> io::Result<()> { panic!("during the pause") }), Accepted::Nothing));
    // The listener still works as soon as there is a descriptor.
    now = paused;
    drop((kept, held));
    clients.push(TcpStream::connect(at).unwrap());
    assert!(matches!(acceptor.next(now, accept), Accepted::Connection(_)));
    assert_eq!(acceptor.paused_until(), None);
    assert!(matches!(acceptor.next(now, accept), Accepted::Nothing));
}

#[test]
fn a_process_without_descriptors_keeps_its_listener() {
    TestProcess::start("listener::tests::child_without_descriptors", "").pass();
}

#[test]
fn other_errors_pause_and_ended_connections_are_passed_over() {
    let (mut acceptor, now) = (Acceptor::new("a test"), Instant::now());
    let mut errors = vec![libc::ENOBUFS, libc::EINTR, libc::ECONNABORTED];
    let mut accept = || errors.pop().map_or(Ok(()), |e| Err(io::Error::from_raw_os_error(e)));
    assert!(matches!(acceptor.next(now, &mut accept), Accepted::Nothing));
    let until = acceptor.paused_until().unwrap();
    assert!(matches!(acceptor.next(until, &mut accept), Accepted::Connection(())));
    // A system that only ever reports ended connections gets a bounded number of calls.
    let ended = || Err::<(), _>(io::Error::from_raw_os_error(libc::ECONNABORTED));
    assert!(matches!(acceptor.next(until, ended), Accepted::Nothing));
}
