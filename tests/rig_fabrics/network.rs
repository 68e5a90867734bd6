//! Networks between host and target that are cut and come back.

use crate::ports::move_blocks;
use crate::setting::{ADDRESSES, inside, pattern, target_disk, tool, transport, until};
use crate::{BLOCK, GENEROUS, config, queue};
use std::time::Duration;
use warpbell::engine::Engine;
use warpbell::nvme::fabrics::{FabricsConfig, FabricsError, FabricsTransport, PortAddress};
use warpbell::nvme::{HostQueue, Namespace, RecoveryPolicy};
use warpbell::remote;
use warpbell::storage::{Drive, Volume};

/// Commands that cut a network and bring it back: packets are lost without a sign, or the host's interface is down.
const CUTS: [(&str, &str); 2] = [
    ("tc qdisc add dev eth0 root netem loss 100%", "tc qdisc del dev eth0 root"),
    ("ip link set eth0 down", "ip link set eth0 up"),
];

fn over_network() -> FabricsConfig {
    let c = config().keep_alive(Duration::from_secs(4)).connect_timeout(Duration::from_secs(10));
    c.reconnect_delay(Duration::from_millis(500))
}

/// Returns the cuts that a connection can survive. With the interface of a Soft-RoCE device down, the connection manager
/// of Linux 6.12 gets no replies after it is up again, nor does the kernel's own initiator.
fn cuts() -> &'static [(&'static str, &'static str)] {
    if is_rdma() { &CUTS[..1] } else { &CUTS }
}

fn is_rdma() -> bool {
    transport() == FabricsTransport::Rdma
}

fn by_both_networks() -> FabricsConfig {
    let second = PortAddress { host: ADDRESSES[1].to_owned(), port: over_network().port };
    over_network().more_ports(vec![second])
}

fn patient(mut q: HostQueue<'static>) -> HostQueue<'static> {
    q.set_recovery(RecoveryPolicy::requeue().attempts(1000));
    q.set_deadline(GENEROUS);
    q
}

fn write_and_read(q: &mut HostQueue<'static>, namespace: &Namespace, seed: usize) {
    let data = pattern(2 * BLOCK, seed);
    q.write(namespace, 0, &data).unwrap();
    let mut back = vec![0; data.len()];
    q.read(namespace, 0, &mut back).unwrap();
    assert!(back == data, "seed {seed}");
}

#[test]
#[ignore = "needs the rig"]
fn a_network_that_is_cut_and_comes_back_is_survived() {
    inside();
    for &(cut, join) in cuts() {
        let (connection, q, namespace) = queue(&over_network());
        let mut q = patient(q);
        write_and_read(&mut q, &namespace, 1);
        tool(cut);
        until("the loss", || connection.counters().losses > 0);
        std::thread::scope(|s| {
            let transfer = s.spawn(|| write_and_read(&mut q, &namespace, 2));
            std::thread::sleep(Duration::from_secs(1));
            assert!(!transfer.is_finished(), "the network is cut");
            tool(join);
            transfer.join().unwrap();
        });
        println!("{:?}; {:?}", connection.counters(), connection.last_loss());
    }
}

#[test]
#[ignore = "needs the rig"]
fn kernels_go_on_when_a_cut_network_is_back() {
    inside();
    let connection = remote::connect(&over_network().namespace(Some(2))).unwrap();
    let drive = Drive::attach(connection.attachment(), Some(2)).unwrap();
    let volume = Volume::on(&Engine::cpu().unwrap(), [drive]).queues(1).depth(8).deadline(GENEROUS).build().unwrap();
    let data = pattern(16 * BLOCK, 8);
    let (cut, join) = CUTS[0];
    assert!(move_blocks(&volume, &data, 2), "nothing is lost yet");
    std::thread::scope(|s| {
        let moved = s.spawn(|| {
            tool(cut);
            let moved = move_blocks(&volume, &data, 2);
            assert!(!moved && connection.counters().losses > 0, "the network is cut");
        });
        until("the loss", || connection.counters().losses > 0);
        tool(join);
        moved.join().unwrap();
    });
    // The recovery may have reset the controller before the association came back by itself, which counts as no reconnection.
    until("the association", || move_blocks(&volume, &data, 2));
    println!("{:?}; {:?}", connection.counters(), connection.last_loss());
    assert!(target_disk(2).read(0, data.len()) == data);
}

#[test]
#[ignore = "needs the rig"]
fn the_other_network_carries_the_transfers_when_one_is_cut() {
    inside();
    if is_rdma() {
        println!("SKIP: each network has an RDMA device of its own, and one device reaches all ports");
        return;
    }
    for &(cut, join) in cuts() {
        let (connection, q, namespace) = queue(&by_both_networks());
        let mut q = patient(q);
        write_and_read(&mut q, &namespace, 3);
        assert!(connection.port().starts_with(ADDRESSES[0]), "{}", connection.port());
        tool(cut);
        write_and_read(&mut q, &namespace, 4);
        println!("{:?}; {:?}", connection.counters(), connection.last_loss());
        assert!(connection.port().starts_with(ADDRESSES[1]), "{}", connection.port());
        tool(join);
        write_and_read(&mut q, &namespace, 5);
    }
}

#[test]
#[ignore = "needs the rig"]
fn a_port_behind_another_rdma_device_is_refused_by_name() {
    inside();
    if !is_rdma() {
        println!("SKIP: TCP needs no device");
        return;
    }
    let (cut, join) = CUTS[0];
    tool(cut);
    let refused = remote::connect(&by_both_networks()).map(|c| c.port().to_owned());
    tool(join);
    let e = refused.unwrap_err();
    let FabricsError::NoPort { causes, .. } = &e else { panic!("{e}") };
    assert!(matches!(causes[0], FabricsError::TimedOut { .. }), "{e}");
    let text = causes[1].to_string();
    assert!(["rxe0", "rxe1", ADDRESSES[1]].iter().all(|name| text.contains(name)), "{text}");
    remote::connect(&by_both_networks()).unwrap();
}
