//! Tests of worlds whose connections fail.

use super::tests::each;
use crate::engine::testing::start;
use crate::engine::{Engine, Outcome, RunError, abi};
use crate::rdma::{Adapter, DeviceChoice, stand_in};
use crate::shmem::bootstrap::{AlertListener, Bootstrap, BootstrapError, LocalBootstrap};
use crate::shmem::calls::{Cmp, SignalOp, Sum};
use crate::shmem::{ShmemError, Sym, World, WorldBuilder};
use crate::soft::nic::{SoftNic, SoftNicConfig};
use crate::wire::mlx5::Syndrome;
use std::sync::mpsc;
use std::time::Duration;

/// The deadline of waits that must end long before it.
const DEADLINE: Duration = Duration::from_secs(60);
/// The longest time that any such wait may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Options of an adapter that soon notices the loss of its peer.
const QUICK: &str = "retry=1500ms,heartbeat=20ms,silence=200ms,resend=20ms";
/// A fault plan: PE 1's signals to PE 0 fail.
const FAILS: &str = "fault=syndrome:0x15@op:masked-swap+queue:0";

fn nic(options: &str) -> Box<dyn Adapter> {
    Box::new(SoftNic::start(SoftNicConfig::new([9; 32]).options(options).unwrap()).unwrap())
}

/// Starts such a NIC behind firmware that takes commands strictly.
fn strict(options: &str) -> Box<dyn Adapter> {
    stand_in::adapter(&DeviceChoice::default(), options)
}

fn build(builder: WorldBuilder, options: &str) -> World {
    build_over(builder, nic(options))
}

fn build_over(builder: WorldBuilder, adapter: Box<dyn Adapter>) -> World {
    let world = builder.adapter(adapter).build().unwrap();
    world.engine().set_deadline(DEADLINE).unwrap();
    world
}

/// Runs work that must not take long.
fn soon<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        let (done, wait) = mpsc::channel();
        s.spawn(move || done.send(work()));
        wait.recv_timeout(LIMIT).expect("it takes long")
    })
}

/// Returns the syndrome and the PE that a call's error names.
fn named(e: &ShmemError) -> (u8, u32) {
    let run = match e {
        ShmemError::Network { source, .. } | ShmemError::Run(source) => source,
        other => panic!("{other}"),
    };
    let RunError::Operations { errors, .. } = run else { panic!("{run}") };
    let Outcome::NetworkError { syndrome, .. } = errors[0].outcome else { panic!("{run}") };
    (syndrome.0, errors[0].device)
}

const GONE: u8 = Syndrome::RETRY_EXCEEDED.0;

#[test]
fn a_wait_ends_when_the_other_end_of_a_connection_fails() {
    for way in ["", "sockets"] {
        each(2, |rank, builder| {
            let world = build(builder, &format!("{way},{}", if rank == 1 { FAILS } else { "" }));
            let signal = world.calloc::<u64>(1).unwrap();
            let e = match rank {
                0 => soon(|| world.signal_wait_until(&signal, Cmp::Ge, 1)).unwrap_err(),
                _ => world.signal_op(&signal, 1, SignalOp::Set, 0).unwrap_err(),
            };
            assert_eq!(named(&e), (GONE, 1 - rank as u32), "{e}");
            let text = e.to_string();
            if rank == 0 {
                assert!(text.contains("wait_until on PE 0, waiting for PE 1"), "{text}");
                assert!(text.contains("PE 1 says: queue pair 0 to PE 0") && text.contains("fault plan"), "{text}");
                assert!(!world.network_failures().is_empty());
                // The next wait sees the failure at once. Its error is again that of the connection.
                let e = soon(|| world.barrier_all()).unwrap_err();
                assert_eq!(named(&e), (GONE, 1), "{e}");
            }
            // Stays until the other PE has seen all this.
            world.barrier_host().unwrap();
            soon(move || drop((signal, world)));
        });
    }
}

#[test]
fn a_wait_ends_when_the_peer_falls_silent() {
    for way in ["", "sockets"] {
        each(2, |rank, builder| {
            let dies = "fault=die@op:masked-swap+queue:0";
            let gives_up = QUICK.replace("retry=1500ms", "retry=500ms");
            let world = build(builder, &format!("{way},connect=300ms,{}", if rank == 1 { dies } else { &gives_up }));
            let signal = world.calloc::<u64>(1).unwrap();
            if rank == 1 {
                // No PE alerts this one.
                world.engine().set_deadline(Duration::from_millis(200)).unwrap();
                assert!(world.signal_op(&signal, 1, SignalOp::Set, 0).is_err());
            } else {
                let e = soon(|| world.signal_wait_until(&signal, Cmp::Ge, 1)).unwrap_err();
                assert_eq!(named(&e), (GONE, 1), "{e}");
                assert!(e.to_string().contains("queue pair 0 to PE 1"), "{e}");
            }
            if way == "sockets" {
                // There is no peer to connect to.
                let e = soon(|| world.recover()).unwrap_err().to_string();
                assert!(e.starts_with("recover failed: rank 0: queue pair 0 to PE 1: "), "{e}");
                assert!(e.contains("could not be reached"), "{e}");
            }
            world.barrier_host().unwrap();
            soon(move || drop((signal, world)));
        });
    }
}

#[test]
fn another_world_of_the_same_engines_is_not_disturbed() {
    let others = LocalBootstrap::all(2);
    let others = parking_lot::Mutex::new(others.into_iter().map(Some).collect::<Vec<_>>());
    each(2, |rank, builder| {
        let world = build(builder, if rank == 1 { FAILS } else { "" });
        let ranks = others.lock()[rank].take().unwrap();
        let second = World::builder(world.engine()).bootstrap(Box::new(ranks)).heap_bytes(1 << 20).timeout(DEADLINE);
        let second = build(second, "");
        let (signal, other) = (world.calloc::<u64>(1).unwrap(), second.calloc::<u64>(1).unwrap());
        match rank {
            0 => assert!(soon(|| world.signal_wait_until(&signal, Cmp::Ge, 1)).is_err()),
            _ => assert!(world.signal_op(&signal, 1, SignalOp::Set, 0).is_err()),
        }
        if rank == 0 {
            soon(|| second.signal_wait_until(&other, Cmp::Ge, 1)).unwrap();
        } else {
            // Long after the wait has begun to read the word that ends it.
            std::thread::sleep(Duration::from_millis(300));
            second.signal_op(&other, 1, SignalOp::Set, 0).unwrap();
        }
        assert!(second.network_failures().is_empty());
        second.barrier_all().unwrap();
        world.barrier_host().unwrap();
    });
}

/// Makes calls of several kinds, in both directions.
fn works(world: &World, signal: &Sym<u64>, round: u64) {
    let (me, n) = (world.my_pe(), world.n_pes());
    world.signal_op(signal, round, SignalOp::Set, (me + 1) % n).unwrap();
    world.signal_wait_until(signal, Cmp::Ge, round).unwrap();
    world.barrier_all().unwrap();
    let (sum, from) = (world.calloc::<u64>(1).unwrap(), world.calloc::<u64>(1).unwrap());
    from.write(0, &[round + me as u64]).unwrap();
    world.sync_all().unwrap();
    world.team_world().reduce(Sum, &sum, &from).unwrap();
    assert_eq!(sum.read(0, 1).unwrap(), [n as u64 * round + (0..n as u64).sum::<u64>()]);
    world.barrier_all().unwrap();
}

#[test]
fn a_recovered_world_works_and_notices_the_next_failure() {
    for (way, strictly) in [("", false), ("sockets", false), ("sockets,poison", false), ("", true)] {
        each(3, |rank, builder| {
            // The faults hit the second and the fifth signal of PE 1 to PE 2.
            let faults =
                "fault=syndrome:0x13@nth:2+op:masked-swap+queue:2,fault=syndrome:0x14@nth:5+op:masked-swap+queue:2";
            let options = format!("{way},{}", if rank == 1 { faults } else { "" });
            let world = build_over(builder, if strictly { strict(&options) } else { nic(&options) });
            let (signal, round) = (world.calloc::<u64>(1).unwrap(), world.calloc::<u64>(1).unwrap());
            works(&world, &round, 1);
            assert!(world.recover().unwrap().pes.is_empty(), "nothing to recover");
            let mut at = 1;
            // A queue pair that firmware recreates is a new one to the fault plan, and has no fault any more.
            let failures = [(0x13, 2), (0x14, 1)];
            for &(syndrome, rounds) in if strictly { &failures[..1] } else { &failures[..] } {
                match rank {
                    0 => assert!(world.network_failures().is_empty()),
                    1 => {
                        let e = world.signal_op(&signal, 1, SignalOp::Set, 2).unwrap_err();
                        assert_eq!(named(&e), (syndrome, 2), "{e}");
                        assert!(world.put(&round, &[9u64][..], 2).is_err(), "it stays failed");
                    }
                    // This PE is alone in the barrier, which leaves the synchronisation words of the team of all PEs
                    // out of step.
                    _ => {
                        let e = soon(|| world.barrier_all()).unwrap_err();
                        // Firmware reports only the state. The cause is known only if PE 1's kernel saw it before the
                        // state was queried.
                        let flushed = strictly && named(&e) == (Syndrome::FLUSHED.0, 1);
                        assert!(flushed || named(&e) == (syndrome, 1), "{e}");
                    }
                }
                let recovery = world.recover().unwrap();
                let pes: Vec<_> = recovery.pes.iter().map(|r| (r.pe, r.queue_pairs)).collect();
                assert_eq!(pes, [vec![], vec![(2, 1)], vec![(1, 1)]][rank], "{recovery}");
                let why = if strictly { "is in its error state" } else { "fault plan" };
                assert!(rank == 0 || recovery.to_string().contains(why), "{recovery}");
                assert!(world.network_failures().is_empty());
                for _ in 0..rounds {
                    at += 1;
                    works(&world, &round, at);
                }
            }
        });
    }
}

#[test]
fn a_recovery_names_who_is_gone() {
    let errors = each(3, |rank, builder| {
        let world = build(builder.timeout(Duration::from_millis(500)), "");
        if rank == 2 {
            return None;
        }
        // A rank that ended in order cannot join either. The other two stay until both have the error.
        Some((soon(|| world.recover()).unwrap_err().to_string(), world))
    });
    for (e, _) in errors.iter().flatten() {
        assert!(e.contains("rank 2"), "{e}");
    }
    let worlds = each(2, |_, builder| build(builder.timeout(Duration::from_millis(100)), ""));
    let e = worlds[0].recover().unwrap_err();
    assert!(matches!(&e, ShmemError::Bootstrap(BootstrapError::Missing { missing, .. }) if *missing == [1]), "{e}");
}

#[test]
fn nothing_is_recovered_under_a_kernel() {
    each(2, |rank, builder| {
        let world = build(builder, "");
        let signal = world.calloc::<u64>(1).unwrap();
        let grid = crate::engine::Grid { blocks: 1, threads: world.engine().warp_width() };
        let args = crate::args!(&world, &signal, Cmp::Ge as u32, 1u64, abi::NO_PE);
        let run = (rank == 1).then(|| start(world.engine(), "wb_shmem_signal_wait", grid, args).unwrap());
        let e = world.recover().unwrap_err().to_string();
        assert!(e.contains("rank 1: recover: kernels of this engine are running"), "{e}");
        world.barrier_host().unwrap();
        if rank == 0 {
            world.signal_op(&signal, 1, SignalOp::Set, 1).unwrap();
        }
        if let Some(run) = run {
            run.finish().unwrap();
        }
        assert!(world.recover().unwrap().pes.is_empty());
    });
}

/// A bootstrap whose ranks wait for each other's deferred close, as processes do.
#[derive(Debug)]
struct Polite(LocalBootstrap);

impl Bootstrap for Polite {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn allgather(&self, bytes: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.0.allgather(bytes, within)
    }
    fn alert(&self, rank: usize, bytes: &[u8]) {
        self.0.alert(rank, bytes);
    }
    fn on_alert(&self, tell: AlertListener) {
        self.0.on_alert(tell);
    }
    fn via(&self) -> String {
        "a test".to_owned()
    }
}

#[test]
fn a_world_with_a_failed_connection_ends_without_the_others() {
    let (ended, wait) = mpsc::channel();
    let wait = &parking_lot::Mutex::new(wait);
    std::thread::scope(|s| {
        for (rank, ranks) in LocalBootstrap::all(2).into_iter().enumerate() {
            let ended = ended.clone();
            s.spawn(move || {
                let builder = World::builder(&Engine::cpu().unwrap()).bootstrap(Box::new(Polite(ranks)));
                let world = build(builder.heap_bytes(1 << 20).timeout(DEADLINE), if rank == 1 { FAILS } else { "" });
                let signal = world.calloc::<u64>(1).unwrap();
                match rank {
                    0 => {
                        assert!(soon(|| world.signal_wait_until(&signal, Cmp::Ge, 1)).is_err());
                        drop((signal, world));
                        ended.send(()).unwrap();
                    }
                    _ => {
                        assert!(world.signal_op(&signal, 1, SignalOp::Set, 0).is_err());
                        // This PE does not end yet, and the other PE ends without it.
                        wait.lock().recv_timeout(LIMIT).unwrap();
                        soon(move || drop((signal, world)));
                    }
                }
            });
        }
    });
}
