//! Start and end of adapters, connections and queue pairs.

use super::*;
use crate::rdma::{Adapter, QueueAddress};

const QUICK: &str = "retry=700ms,heartbeat=20ms,silence=200ms,connect=1s";

#[test]
fn a_wrong_key_is_refused_in_words() {
    for way in ["sockets", "sockets,tcp"] {
        let b = Side::new(way);
        let mut stranger = config(way);
        stranger.key = crate::soft::nic::config::Key([1; 32]);
        let mut a = Side::with(stranger, Rights::ALL);
        let e = a.pair.connect(&b.pair.address()).unwrap_err().to_string();
        assert!(e.contains("keys of the two sides differ") && e.contains("process"), "{e}");
    }
}

#[test]
fn both_sides_encrypt_or_neither_does() {
    // Over Unix sockets, `auto` and `off` are the same. Over TCP, `auto` and `on` are.
    for (here, there, fits) in [
        ("sockets,tcp", "sockets,tcp,encrypt=on", true),
        ("sockets,tcp,encrypt=off", "sockets,tcp,encrypt=off", true),
        ("sockets,tcp,encrypt=off", "sockets,tcp", false),
        ("sockets,tcp", "sockets,tcp,encrypt=off", false),
        ("sockets,encrypt=on", "sockets,encrypt=on", true),
        ("sockets,encrypt=on", "sockets", false),
    ] {
        let (mut a, mut b) = (Side::new(here), Side::new(there));
        let (to_a, to_b) = (a.pair.address(), b.pair.address());
        let result = a.pair.connect(&to_b);
        assert_eq!(result.is_ok(), fits, "{here} and {there}: {result:?}");
        match result {
            Ok(()) => {
                b.pair.connect(&to_a).unwrap();
                let mut p = a.send_queue();
                p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
                assert_eq!((syndrome(&p.wait()), b.word(0)), (0, 1));
            }
            Err(e) => assert!(e.to_string().contains("the same `encrypt` option on both"), "{e}"),
        }
    }
}

#[test]
fn a_peer_that_is_not_there_is_named() {
    let a = Side::new(&format!("sockets,tcp,{QUICK}"));
    let b = Side::new("sockets,tcp");
    let address = b.pair.address();
    drop(b);
    let mut a = a;
    let e = a.pair.connect(&address).unwrap_err().to_string();
    assert!(e.contains("could not be reached") && e.contains("127.0.0.1"), "{e}");
    // The queue pair can then be connected with another peer.
    let mut c = Side::new("sockets,tcp");
    join(&mut a, &mut c);
    let e = a.pair.connect(&QueueAddress(b"nonsense".to_vec())).unwrap_err().to_string();
    assert!(e.contains("not that of a software NIC"), "{e}");
}

#[test]
fn a_peer_that_goes_away_fails_requests() {
    for way in WAYS {
        let (a, b) = (Side::new(&format!("{way},{QUICK}")), Side::new(way));
        let (mut a, mut b) = (a, b);
        join(&mut a, &mut b);
        let (word, mut p) = (b.remote(0), a.send_queue());
        p.post(Flags::SIGNALLED, add(word, 1, a.local(0, 8)));
        assert_eq!(syndrome(&p.wait()), 0);
        drop(b);
        p.post(Flags::SIGNALLED, add(word, 1, a.local(0, 8)));
        assert_eq!(syndrome(&p.wait()), 0x15, "{way}");
        assert!(a.pair.failure().unwrap().contains("0x15"));
    }
}

#[test]
fn memory_that_is_no_longer_registered_is_refused() {
    for way in ["", "sockets"] {
        let (a, mut b) = pair_of(way);
        let old = b.remote(0);
        let again = b.nic.register_region(&b.heap, Rights::ALL).unwrap();
        drop(std::mem::replace(&mut b.keys, again));
        let mut p = a.send_queue();
        p.post(Flags::SIGNALLED, inline(old, &[1; 8]));
        assert_eq!(syndrome(&p.wait()), 0x13);
        assert_eq!(b.word(0), 0);
    }
}

#[test]
fn a_queue_pair_that_failed_is_reset_and_connected_again() {
    for way in WAYS {
        let (mut a, mut b) = pair_of(way);
        for round in 0..3u64 {
            let mut p = a.send_queue();
            p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
            assert_eq!(syndrome(&p.wait()), 0, "{way}, round {round}");
            p.post(Flags::SIGNALLED, inline(Remote { key: 3, ..b.remote(0) }, &[1; 8]));
            assert_eq!(syndrome(&p.wait()), 0x13);
            assert!(a.pair.failure().is_some());
            let old = a.pair.address();
            a.pair.reset().unwrap();
            b.pair.reset().unwrap();
            assert!(a.pair.failure().is_none());
            assert_ne!(a.pair.address(), old, "its old address leads nowhere");
            join(&mut a, &mut b);
        }
        assert_eq!(b.word(0), 3);
    }
}

#[test]
fn a_peer_that_was_reset_does_not_take_old_requests() {
    for way in ["", "sockets"] {
        let (a, mut b) = pair_of(&format!("{way},{QUICK}"));
        b.pair.reset().unwrap();
        let mut p = a.send_queue();
        p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
        assert_eq!((syndrome(&p.wait()), b.word(0)), (0x15, 0));
        assert!(a.pair.failure().unwrap().contains("reset"));
    }
}

#[test]
fn ends_in_any_order_while_busy() {
    for way in WAYS {
        for order in 0..4 {
            let (a, b) = pair_of(&format!("{way},{QUICK}"));
            let mut p = a.send_queue();
            for _ in 0..60 {
                p.write(Flags::UNSIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
            }
            p.ring();
            let Side { pair, keys, heap, nic } = a;
            match order {
                0 => drop((nic, pair, keys, heap)),
                1 => drop((keys, nic, pair, heap)),
                2 => drop((pair, keys, heap, nic)),
                _ => {
                    drop(b);
                    drop((keys, pair, nic, heap));
                    continue;
                }
            }
            assert!(b.word(0) <= 60);
        }
    }
}

#[test]
fn all_addresses_of_a_host_lead_to_it() {
    let mut any = config("sockets,tcp");
    any.listen = Some(std::net::Ipv6Addr::UNSPECIFIED.into());
    let (mut a, mut b) = (Side::with(any.clone(), Rights::ALL), Side::with(any, Rights::ALL));
    join(&mut a, &mut b);
    let mut p = a.send_queue();
    p.post(Flags::SIGNALLED, add(b.remote(0), 1, a.local(0, 8)));
    assert_eq!((syndrome(&p.wait()), b.word(0)), (0, 1));
}

#[test]
fn a_firewall_can_name_the_ports() {
    let port =
        |side: &Side| crate::soft::nic::endpoint::PairAddress::read(&side.pair.address()).unwrap().at.tcp[0].port();
    // A port that was free a moment ago, and is not taken by others meanwhile: it is below those that the system chooses.
    let first = (21_000..).step_by(2).find(|p| std::net::TcpListener::bind(("127.0.0.1", *p)).is_ok()).unwrap();
    let options = format!("sockets,tcp,ports={first}-{}", first + 20);
    let (mut a, mut b) = (Side::new(&options), Side::new(&options));
    join(&mut a, &mut b);
    assert!((first..=first + 20).contains(&port(&a)) && port(&a) < port(&b));
    let taken = format!("tcp,ports={}", port(&a));
    let e = SoftNic::start(config(&taken)).unwrap_err().to_string();
    assert!(e.contains(&format!("ports {0} to {0}", port(&a))), "{e}");
}

#[test]
fn an_adapter_that_ended_is_not_waited_for() {
    let a = Side::new("");
    let Side { mut pair, keys: _keys, heap: _heap, nic } = a;
    drop(nic);
    let me = pair.address();
    assert!(pair.connect(&me).unwrap_err().to_string().contains("has ended"));
    assert!(pair.reset().is_err());
}

#[test]
fn a_path_says_how_it_is_reached() {
    let text = |options: &str| SoftNic::start(config(options)).unwrap().path().to_string();
    assert!(text("").starts_with("soft soft nic (one process, Unix socket)  queues host"), "{}", text(""));
    assert!(text("tcp").contains("tcp 127.0.0.1:") && !text("tcp").contains("insecure"));
    assert!(text("tcp,encrypt=off").contains(" insecure: not encrypted"));
    let e = SoftNic::start(config("threads=0")).unwrap_err().to_string();
    assert!(e.starts_with("soft adapter: 0 service threads"), "{e}");
}

const OTHER: &str = "SOFT_NIC_OTHER";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// Child process of `another_process_is_reached_and_missed`: an adapter that exchanges addresses over standard input
/// and output.
#[test]
#[ignore = "another test starts it as a process"]
fn other_process() {
    assert!(std::env::var_os(OTHER).is_some(), "{OTHER}, which the test that starts it sets, is missing");
    let mut side = Side::new("");
    println!("\n{OTHER} {} {:x} {:x}", hex(&side.pair.address().0), side.heap.address(), side.keys.remote_key());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    side.pair.connect(&QueueAddress(unhex(line.trim()))).unwrap();
    println!("{OTHER} connected");
    // Blocks until the process is killed or its parent ends.
    std::io::stdin().read_line(&mut line).unwrap();
}

#[test]
fn another_process_is_reached_and_missed() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["soft::nic::tests::life::other_process", "--exact", "--ignored", "--nocapture"])
        .env(OTHER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut lines = lines.filter(|l| l.starts_with(OTHER));
    let said = lines.next().unwrap();
    let words: Vec<_> = said.split(' ').collect();
    let number = |i: usize| u64::from_str_radix(words[i], 16).unwrap();
    let (address, word) = (QueueAddress(unhex(words[1])), Remote { address: number(2), key: number(3) as u32 });
    let mut a = Side::new(QUICK);
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", hex(&a.pair.address().0)).unwrap();
    a.pair.connect(&address).unwrap();
    assert!(lines.next().unwrap().ends_with("connected"));
    let mut p = a.send_queue();
    for i in 0..50u64 {
        p.post(Flags::SIGNALLED, add(word, 1, a.local(0, 8)));
        assert_eq!((syndrome(&p.wait()), a.word(0)), (0, i), "{:?}", a.pair.failure());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    p.post(Flags::SIGNALLED, add(word, 1, a.local(0, 8)));
    assert_eq!(syndrome(&p.wait()), 0x15);
    let why = a.pair.failure().unwrap();
    assert!(why.contains(&format!("process {}", child.id())) && why.contains("Unix socket"), "{why}");
}
