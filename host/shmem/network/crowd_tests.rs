//! Tests of whole worlds, with store and adapters, amid many connections to every port: silent ones, and hostile ones.

use super::tests::everything;
use crate::engine::Engine;
use crate::handshake::{Initiator, Parties};
use crate::listener::testing::silent_crowd;
use crate::rdma::Adapter;
use crate::shmem::World;
use crate::shmem::bootstrap::store::terms;
use crate::shmem::bootstrap::store::{Member, Server};
use crate::shmem::bootstrap::{Launched, Secret};
use crate::soft::nic::tests::hostile::Target;
use crate::soft::nic::{SoftNic, SoftNicConfig};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const KEY: [u8; 32] = [9; 32];
/// Sockets for all, and times that suffice on a machine that does much else.
const OPTIONS: &str = "sockets,tcp,connect=60s,silence=30s,retry=60s";
/// Number of silent connections, at the store and at each adapter together.
const CROWD: usize = 2000;
/// A timeout far longer than any step takes.
const LONG: Duration = Duration::from_secs(100);

fn secret() -> Secret {
    Secret::new(b"the ranks of this test know it").unwrap()
}

/// Starts an adapter that others reach over TCP only. Also returns its port.
fn nic() -> (SoftNic, SocketAddr) {
    let mut config = SoftNicConfig::new(KEY).options(OPTIONS).unwrap();
    config.listen = Some([127, 0, 0, 1].into());
    let nic = SoftNic::start(config).unwrap();
    let link = nic.path().link;
    let at = link.rsplit("tcp ").next().unwrap().parse().unwrap();
    (nic, at)
}

/// Runs one rank of a world of `size`, from its start to its end. The world works until `over` returns true on rank 0.
fn rank(rank: usize, size: usize, store: String, nic: SoftNic, over: &dyn Fn() -> bool) {
    let launched = Launched {
        rank,
        size,
        local_rank: None,
        local_size: None,
        store: Some(store),
        listener: None,
        has_server: true,
        via: "a test",
    };
    let member = Member::join(&launched, secret(), LONG).unwrap();
    let engine = Engine::builder().threads(1).cpu().unwrap();
    engine.set_deadline(LONG).unwrap();
    let builder = World::builder(&engine).bootstrap(Box::new(member)).heap_bytes(64 << 20).timeout(LONG);
    let world = builder.adapter(Box::new(nic)).build().unwrap();
    let end = world.malloc::<u64>(1).unwrap();
    loop {
        everything(&world);
        end.write(0, &[u64::from(over())]).unwrap();
        world.barrier_all().unwrap();
        let ends = world.g(&end, 0).unwrap() == 1;
        world.barrier_all().unwrap();
        if ends {
            break;
        }
    }
    world.barrier_host().unwrap();
}

#[test]
fn a_whole_world_starts_works_and_ends_in_a_silent_crowd() {
    const PES: usize = 3;
    let server = Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), secret()).unwrap();
    let nics: Vec<_> = (0..PES).map(|_| nic()).collect();
    let ports: Vec<SocketAddr> = nics.iter().map(|(_, at)| *at).chain([server.address()]).collect();
    // Both ends of each connection belong to this process.
    let each = CROWD.min(crate::this_host::descriptor_limit() / 4) / ports.len();
    // Silent connections that exist before any rank. The backlog of a port holds this many that are not accepted yet.
    let first = |at: &SocketAddr| (0..each.min(100)).map(|_| TcpStream::connect(at).unwrap()).collect::<Vec<_>>();
    let before: Vec<_> = ports.iter().flat_map(first).collect();
    let (made, over, store) = (AtomicUsize::new(0), AtomicBool::new(false), server.address().to_string());
    std::thread::scope(|s| {
        let crowds: Vec<_> = ports.iter().map(|at| s.spawn(|| silent_crowd(1, *at, each, &made, &over))).collect();
        let ranks: Vec<_> = nics.into_iter().enumerate().map(|(i, (nic, _))| (i, store.clone(), nic)).collect();
        let ranks = ranks.into_iter().map(|(i, store, nic)| s.spawn(move || rank(i, PES, store, nic, &|| true)));
        let ended: Vec<_> = ranks.collect::<Vec<_>>().into_iter().map(|r| r.join()).collect();
        over.store(true, Ordering::Relaxed);
        crowds.into_iter().for_each(|c| assert!(c.join().is_ok()));
        ended.into_iter().for_each(|e| e.unwrap_or_else(|e| std::panic::resume_unwind(e)));
    });
    drop(before);
}

#[test]
fn a_world_of_4_ranks_works_through_hostile_connections() {
    works_through(1000);
}

#[test]
#[ignore = "takes minutes with the others like it: .ci/run soak"]
fn a_world_of_4_ranks_works_through_10_000_hostile_connections() {
    works_through(10_000);
}

/// Runs a world of 4 ranks while `count` hostile connections are made to its ports.
fn works_through(count: usize) {
    const PES: usize = 4;
    /// Attacks before the first rank starts.
    const BEFORE: usize = 200;
    let server = Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), secret()).unwrap();
    let nics: Vec<SoftNic> = (0..PES).map(|_| nic().0).collect();
    let of_member = |secret: &Secret| Initiator::new(terms(secret), Parties::default()).unwrap().1;
    let wrong = of_member(&Secret::new(b"another secret of 16 bytes or more").unwrap());
    let store = Target { at: server.address(), overheard: of_member(&secret()), wrong };
    let targets: Vec<Target> = nics.iter().map(|nic| Target::of(nic, &KEY)).chain([store]).collect();
    // Both ends of each connection belong to this process.
    let held = (crate::this_host::descriptor_limit() / 8 / targets.len()).min(200);
    let (attacks, made, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let done = || made.load(Ordering::Relaxed) == count;
    std::thread::scope(|s| {
        for target in &targets {
            s.spawn(|| {
                let mut open = VecDeque::new();
                while !over.load(Ordering::Relaxed) {
                    let kind = attacks.fetch_add(1, Ordering::Relaxed);
                    if kind >= count {
                        // Ports of this host are not endless. The sockets that are open stay as they are.
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    // The backlog of the port may be full for a while.
                    while !over.load(Ordering::Relaxed) {
                        if let Ok(stream) = target.attack(kind) {
                            open.push_back(stream);
                            made.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    }
                    open.drain(..open.len().saturating_sub(held));
                }
            });
        }
        while made.load(Ordering::Relaxed) < BEFORE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let at = server.address().to_string();
        let ranks: Vec<_> = nics
            .into_iter()
            .enumerate()
            .map(|(i, nic)| {
                let (at, done) = (at.clone(), &done);
                s.spawn(move || rank(i, PES, at, nic, done))
            })
            .collect();
        let ended: Vec<_> = ranks.into_iter().map(|r| r.join()).collect();
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|e| e.unwrap_or_else(|e| std::panic::resume_unwind(e)));
    });
    assert_eq!(made.into_inner(), count);
}
