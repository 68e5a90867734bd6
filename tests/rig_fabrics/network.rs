//! Networks between host and target that are cut and come back. Over Soft-RoCE there is no such test: host and target
//! share a device, whose packets no network carries.

use crate::setting::{far, inside, pattern, tool, transport, until};
use crate::{BLOCK, GENEROUS, config, queue};
use std::time::Duration;
use warpbell::nvme::fabrics::{FabricsConfig, FabricsTransport, PortAddress};
use warpbell::nvme::{HostQueue, Namespace, RecoveryPolicy};

/// Addresses of the target in the two networks of `guest-fabrics.sh`.
const ADDRESSES: [&str; 2] = ["10.8.0.1", "10.8.1.1"];
/// Commands that cut a network and bring it back: packets are lost without a sign, or the host's interface is down.
const CUTS: [(&str, &str); 2] = [
    ("tc qdisc add dev far0 root netem loss 100%", "tc qdisc del dev far0 root"),
    ("ip link set far0 down", "ip link set far0 up"),
];

fn over_network() -> FabricsConfig {
    let mut c = config().keep_alive(Duration::from_secs(4)).connect_timeout(Duration::from_secs(10));
    c.host = ADDRESSES[0].to_owned();
    c.reconnect_delay(Duration::from_millis(500))
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

/// Returns false where there is no network to cut.
fn is_tcp() -> bool {
    if transport() != FabricsTransport::Tcp {
        println!("SKIP: packets of Soft-RoCE stay in their device");
    }
    transport() == FabricsTransport::Tcp
}

#[test]
#[ignore = "needs the rig"]
fn a_network_that_is_cut_and_comes_back_is_survived() {
    inside();
    if !is_tcp() {
        return;
    }
    far(|| {
        for (cut, join) in CUTS {
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
    });
}

#[test]
#[ignore = "needs the rig"]
fn the_other_network_carries_the_transfers_when_one_is_cut() {
    inside();
    if !is_tcp() {
        return;
    }
    far(|| {
        for (cut, join) in CUTS {
            let second = PortAddress { host: ADDRESSES[1].to_owned(), port: over_network().port };
            let (connection, q, namespace) = queue(&over_network().more_ports(vec![second]));
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
    });
}
