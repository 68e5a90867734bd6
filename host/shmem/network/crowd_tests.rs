//! A test of a whole world, with store and adapters, amid many connections to every port that send nothing.

use super::tests::everything;
use crate::engine::Engine;
use crate::rdma::Adapter;
use crate::shmem::World;
use crate::shmem::bootstrap::store::{Member, Server};
use crate::shmem::bootstrap::{Launched, Secret};
use crate::soft::nic::tests::hostile::silent_crowd;
use crate::soft::nic::{SoftNic, SoftNicConfig};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PES: usize = 3;
/// Number of silent connections, at the store and at each adapter together.
const CROWD: usize = 2000;
/// A timeout far longer than any step takes.
const LONG: Duration = Duration::from_secs(100);

fn secret() -> Secret {
    Secret::new(b"the ranks of this test know it").unwrap()
}

/// Starts an adapter that others reach over TCP only. Also returns its port.
fn nic() -> (SoftNic, SocketAddr) {
    let mut config = SoftNicConfig::new([9; 32]).options("sockets,tcp").unwrap();
    config.listen = Some([127, 0, 0, 1].into());
    let nic = SoftNic::start(config).unwrap();
    let link = nic.path().link;
    let at = link.rsplit("tcp ").next().unwrap().parse().unwrap();
    (nic, at)
}

/// Runs one rank of the world, from its start to its end.
fn rank(rank: usize, store: String, nic: SoftNic) {
    let launched = Launched {
        rank,
        size: PES,
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
    everything(&world);
    world.barrier_host().unwrap();
}

#[test]
fn a_whole_world_starts_works_and_ends_in_a_silent_crowd() {
    let server = Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), secret()).unwrap();
    let nics: Vec<_> = (0..PES).map(|_| nic()).collect();
    let ports: Vec<SocketAddr> = nics.iter().map(|(_, at)| *at).chain([server.address()]).collect();
    // Both ends of each connection belong to this process.
    let each = CROWD.min(crate::this_host::descriptor_limit() / 4) / ports.len();
    // Silent connections that exist before any rank. The backlog of a port holds this many that are not accepted yet.
    let first = |at: &SocketAddr| (0..each.min(100)).map(|_| TcpStream::connect(at).unwrap()).collect::<Vec<_>>();
    let before: Vec<_> = ports.iter().flat_map(first).collect();
    let (over, store) = (AtomicBool::new(false), server.address().to_string());
    std::thread::scope(|s| {
        let crowds: Vec<_> = ports.iter().map(|at| s.spawn(|| silent_crowd(*at, each, &over))).collect();
        let ranks: Vec<_> = nics.into_iter().enumerate().map(|(i, (nic, _))| (i, store.clone(), nic)).collect();
        let ranks: Vec<_> = ranks.into_iter().map(|(i, store, nic)| s.spawn(move || rank(i, store, nic))).collect();
        let ended: Vec<_> = ranks.into_iter().map(|r| r.join()).collect();
        over.store(true, Ordering::Relaxed);
        crowds.into_iter().for_each(|c| assert!(c.join().is_ok()));
        ended.into_iter().for_each(|e| e.unwrap_or_else(|e| std::panic::resume_unwind(e)));
    });
    drop(before);
}
