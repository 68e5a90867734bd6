//! Many connections that are no hosts: silent ones, slow ones, from one address and from many, and a process with few descriptors.

use super::*;
use crate::listener::testing::{
    Crowd, TestProcess, argument, limit_descriptors, say, take_descriptors, wait_for_parent,
};
use crate::soft::target::connection::INTRODUCTION;
use crate::soft::target::handshakes::MOST_HANDSHAKES;
use crate::wire::nvme::fabrics as wire;
use crate::wire::nvme::tcp::{Digests, IcReq, Pdu, Reader, Writer, fes};
use crate::wire::nvme::{CqEntry, SqEntry, status};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

each_transport!(
    a_silent_crowd_keeps_no_host_out_and_gets_no_threads,
    strangers_that_are_silent_slow_or_half_done_are_closed,
    a_crowd_at_a_target_without_descriptors_keeps_no_known_host_out
);

/// Writes and reads back blocks.
fn work(r: &Remote, seed: usize) {
    let (mut q, data) = (r.queue(), pattern(16 << 10, seed));
    let mut back = vec![0; data.len()];
    q.write(&r.namespace, 0, &data).unwrap();
    q.read(&r.namespace, 0, &mut back).unwrap();
    assert!(back == data, "round {seed}");
}

fn a_silent_crowd_keeps_no_host_out_and_gets_no_threads(transport: TargetTransport) {
    /// Silent connections before the work ends: many times as many as are kept.
    const CROWD: usize = 8 * MOST_HANDSHAKES;
    let e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    let known = e.connect();
    // One of the addresses is that of the hosts.
    Crowd::around(1..=3, e.target().address(), |crowd| {
        let (mut rounds, began) = (0, Instant::now());
        while crowd.made() < CROWD || rounds < 4 {
            work(&known, rounds);
            // A host that was not connected before.
            work(&e.connect(), rounds + 100);
            let threads = e.target().shared.connections.lock().iter().filter(|t| !t.is_finished()).count();
            assert!(threads <= 16, "{threads} threads for two hosts with few queues");
            rounds += 1;
            assert!(began.elapsed() < GENEROUS, "{} connections were made", crowd.made());
        }
    });
    assert_eq!(known.connection.counters().losses, 0);
}

/// Returns true once the other end has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 512]) {
        Ok(n) => n == 0,
        Err(e) => !matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted),
    }
}

fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = IcReq { version: 0, alignment: 0, digests: Digests::default(), max_r2t: 0 };
    Writer::default().put(&mut bytes, &Pdu::IcReq(hello), 0, &[]);
    bytes
}

fn strangers_that_are_silent_slow_or_half_done_are_closed(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    let known = e.connect();
    // The begin of what a host says first: for software NICs a message of 16 KiB.
    let first = match transport {
        TargetTransport::Tcp => hello(),
        TargetTransport::Soft => [&b"WBCM"[..], &(16u32 << 10).to_le_bytes(), &[b' '; 256]].concat(),
    };
    let mut all: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(e.target().address()).unwrap()).collect();
    all[1].write_all(&first).unwrap();
    all.iter().for_each(|s| s.set_nonblocking(true).unwrap());
    let began = Instant::now();
    let (mut sent, mut closed) = (0, [false; 3]);
    while closed.contains(&false) {
        assert!(began.elapsed() < GENEROUS, "{closed:?}, a slow one after {sent} bytes");
        // The third one sends a byte now and then, and is never done.
        if !closed[2] && sent + 1 < first.len() && all[2].write_all(&first[sent..=sent]).is_ok() {
            sent += 1;
        }
        closed.iter_mut().zip(&mut all).for_each(|(closed, stream)| *closed = *closed || is_closed(stream));
        std::thread::sleep(INTRODUCTION / 100);
    }
    work(&known, 1);
    assert_eq!(known.connection.counters().losses, 0);
}

/// Returns what a target says to commands that come before Connect: the responses, and the last PDU.
fn said_before_connect(e: &Exported, commands: &[SqEntry]) -> (Vec<CqEntry>, Option<Pdu>) {
    let mut stream = TcpStream::connect(e.target().address()).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    let mut bytes = hello();
    commands.iter().for_each(|c| Writer::default().put(&mut bytes, &Pdu::Command(*c), 0, &[]));
    stream.write_all(&bytes).unwrap();
    let (mut reader, mut responses) = (Reader::new(4096), Vec::new());
    loop {
        while let Some(received) = reader.next().unwrap() {
            match received.pdu {
                Pdu::IcResp(_) => {}
                Pdu::Response(entry) => responses.push(entry),
                other => return (responses, Some(other)),
            }
        }
        match stream.read(reader.space()) {
            Ok(n) if n > 0 => reader.filled(n),
            _ => return (responses, None),
        }
    }
}

#[test]
fn before_connect_a_host_gets_neither_buffers_nor_many_responses() {
    let e = Exported::new(TargetTransport::Tcp, "soft:mem:1M,threads=1", |c| c);
    // Writes whose data is at the host: each would have a buffer of 128 KiB, and a host has 65,536 identifiers for them.
    let write = |cid: u32| {
        let (prp1, prp2) = wire::descriptor(wire::sgl::TRANSPORT, 0, 128 << 10);
        SqEntry { cdw0: 1 | wire::SGL_IN_USE | cid << 16, prp1, prp2, ..bytemuck::Zeroable::zeroed() }
    };
    let (responses, last) = said_before_connect(&e, &(0..100).map(write).collect::<Vec<_>>());
    assert_eq!(responses.len(), 8);
    let refused = status::SGL_LENGTH_INVALID;
    assert!(responses.iter().all(|r| r.status().without_flags() == refused), "{responses:?}");
    assert!(matches!(last, Some(Pdu::Terminate { status: fes::SEQUENCE, .. })), "{last:?}");
    work(&e.connect(), 1);
}

/// Descriptors of the process below, and those that are left once it has opened files.
const FEW: u64 = 200;
const LEFT: usize = 30;

#[test]
#[ignore = "another test starts it as a process"]
fn child_target_with_few_descriptors() {
    limit_descriptors(FEW);
    let transport = match argument().as_str() {
        "soft" => TargetTransport::Soft,
        _ => TargetTransport::Tcp,
    };
    let e = Exported::new(transport, "soft:mem:1M,threads=1", |c| c);
    say(&format!("target at {}", e.target().address()));
    // A host is connected by then.
    wait_for_parent();
    let _taken = take_descriptors(LEFT);
    say("full");
    wait_for_parent();
}

fn a_crowd_at_a_target_without_descriptors_keeps_no_known_host_out(transport: TargetTransport) {
    let name = "soft::target::tests::crowd::child_target_with_few_descriptors";
    let mut few = TestProcess::start(name, if transport == TargetTransport::Tcp { "tcp" } else { "soft" });
    let at: SocketAddr = few.line("target at ").parse().unwrap();
    let fabrics = match transport {
        TargetTransport::Tcp => FabricsTransport::Tcp,
        TargetTransport::Soft => FabricsTransport::Soft,
    };
    let config = FabricsConfig::tcp("127.0.0.1", at.port(), NQN)
        .transport(fabrics)
        .threads(Some(1))
        .queues(Some(2))
        .connect_timeout(GENEROUS)
        .keep_alive(GENEROUS);
    let known = Remote::new(&config);
    few.go_on();
    few.line("full");
    // From other addresses than that of the hosts.
    Crowd::around(2..=4, at, |crowd| {
        crowd.wait_for(2 * FEW as usize);
        for round in 0..3 {
            work(&known, round);
            // Over RDMA each host has a NIC at the target, with descriptors of its own.
            if transport == TargetTransport::Tcp {
                work(&Remote::new(&config), round + 100);
            }
        }
    });
    assert_eq!(known.connection.counters().losses, 0);
    few.go_on();
    few.pass();
}
