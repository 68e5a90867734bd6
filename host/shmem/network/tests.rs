//! Tests of worlds over adapters, on the software NIC.

use super::*;
use crate::data_path::{Doorbell, QueueMemory};
use crate::engine::testing::start;
use crate::engine::{Engine, Grid};
use crate::memory::Place as Memory;
use crate::rdma::{DeviceChoice, QueueChoice, QueueRings, RecordChoice, Transport as Adapters, stand_in};
use crate::shmem::bootstrap::{Bootstrap, LocalBootstrap};
use crate::shmem::calls::{Cmp, SignalOp, Sum};
use crate::shmem::{Transport, World, WorldBuilder};
use crate::soft::nic::{SoftNic, SoftNicConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A timeout far longer than any step takes.
const LONG: Duration = Duration::from_secs(60);

/// Builds a world of threads in the way of processes.
pub(super) fn each<T: Send>(n: usize, work: impl Fn(usize, WorldBuilder) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|s| {
        let one = |(rank, ranks): (usize, LocalBootstrap)| {
            let builder = World::builder(&Engine::builder().threads(1).cpu().unwrap());
            let builder = builder.bootstrap(Box::new(ranks)).heap_bytes(1 << 20).timeout(LONG);
            s.spawn(move || work(rank, builder))
        };
        let all: Vec<_> = LocalBootstrap::all(n).into_iter().enumerate().map(one).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Makes calls of all kinds between all PEs.
pub(super) fn everything(world: &World) {
    let (me, n) = (world.my_pe(), world.n_pes());
    let (next, before) = ((me + 1) % n, (me + n - 1) % n);
    // More data than the bounce buffer holds, at an unaligned offset.
    let long = BOUNCE_BYTES + 1001;
    let sym = world.malloc::<u8>(long + 7).unwrap();
    let of =
        |pe: usize| (0..256).map(|i| (i * 31 + pe) as u8).collect::<Vec<_>>().repeat(long / 256 + 1)[..long].to_vec();
    let mine = of(me);
    sym.put(3, &mine, next).unwrap();
    world.barrier_all().unwrap();
    assert!(sym.read(3, long).unwrap() == of(before), "what the PE before put");
    assert!(sym.get(3, long, next).unwrap() == mine, "what this PE put");
    assert_eq!((sym.read(0, 3).unwrap(), sym.get(long + 3, 4, next).unwrap()), (vec![0; 3], vec![0; 4]));

    let out = world.engine().allocate(Memory::Device, 8).unwrap();
    out.set(0, 70 + me as u64).unwrap();
    let (to, flag) = (world.malloc::<u64>(1).unwrap(), world.malloc::<u64>(1).unwrap());
    let grid = Grid { blocks: 1, threads: world.engine().info().warp_width };
    let args = crate::args!(world, &to, &out, 1u64, &flag, 1u64);
    start(world.engine(), "wb_shmem_ring", grid, args).unwrap().finish().unwrap();
    assert_eq!(to.read(0, 1).unwrap(), [70 + before as u64]);

    let counter = world.malloc::<u64>(1).unwrap();
    for _ in 0..10 {
        world.atomic_inc(&counter, 0).unwrap();
    }
    world.barrier_all().unwrap();
    assert_eq!(world.g(&counter, 0).unwrap(), 10 * n as u64);
    let from = world.calloc::<u64>(4).unwrap();
    from.write(0, &[me as u64; 4]).unwrap();
    let (sum, all) = (world.malloc::<u64>(4).unwrap(), world.malloc::<u64>(4 * n).unwrap());
    world.sync_all().unwrap();
    let team = world.team_world();
    team.reduce(Sum, &sum, &from).unwrap();
    assert_eq!(sum.read(0, 4).unwrap(), [(n * (n - 1) / 2) as u64; 4]);
    team.fcollect(&all, &from).unwrap();
    assert_eq!(all.read(0, 4 * n).unwrap(), (0..n as u64).flat_map(|pe| [pe; 4]).collect::<Vec<_>>());

    let signal = world.malloc::<u64>(1).unwrap();
    world.put_signal(&to, from.slice(..1).unwrap(), &signal, (5, SignalOp::Add), next).unwrap();
    world.signal_wait_until(&signal, Cmp::Ge, 5).unwrap();
    assert_eq!(to.read(0, 1).unwrap(), [before as u64]);
    if let Some(some) = team.split_strided(0, 2, n.div_ceil(2)).unwrap() {
        some.barrier().unwrap();
    }
    world.free(signal).unwrap();
    world.barrier_all().unwrap();
}

#[test]
fn bits_that_flip_on_the_way_change_nothing() {
    let options = "sockets,resend=20ms,seed=3,fault=flip@every:13,fault=flip-answer@every:17";
    each(3, |_, builder| {
        let nic = SoftNic::start(SoftNicConfig::new([9; 32]).options(options).unwrap()).unwrap();
        let world = builder.heap_bytes(64 << 20).adapter(Box::new(nic)).build().unwrap();
        everything(&world);
        world.barrier_host().unwrap();
    });
}

#[test]
fn everything_works_over_software_nics() {
    for n in [1, 2, 3] {
        let worlds = World::local_over(n, Transport::Soft).unwrap();
        std::thread::scope(|s| {
            for world in &worlds {
                s.spawn(|| everything(world));
            }
        });
        let path = worlds[0].path();
        assert!(path.to_string().starts_with(&format!("soft {n} PE")), "{path}");
        assert!(path.to_string().ends_with("heap 64 MiB host, atomics by adapter"), "{path}");
        assert_eq!(path.network.as_ref().unwrap().adapter.transport, Adapters::Soft);
    }
}

/// Returns an adapter over a strict NIC. It validates commands, refuses to map a doorbell page twice, and checks the
/// kernels' guarantees.
fn strict(queues: QueueChoice) -> Box<dyn crate::rdma::Adapter> {
    stand_in::adapter(&DeviceChoice { queues, ..DeviceChoice::default() }, "")
}

#[test]
fn everything_works_over_strict_firmware() {
    for n in [1, 2, 3] {
        each(n, |_, builder| {
            let world = builder.adapter(strict(QueueChoice::Auto)).heap_bytes(16 << 20).build().unwrap();
            everything(&world);
            // Long enough for several looks at the queue pairs, each of which queries the firmware.
            std::thread::sleep(6 * super::watch::PACE);
            assert_eq!(world.network_failures(), Vec::<String>::new());
            // The heap is in host memory, so the rings are too.
            let path = &world.path().network.as_ref().unwrap().adapter;
            assert_eq!(
                (path.transport, path.queues, path.doorbell),
                (Adapters::Mlx5, QueueMemory::Host, Doorbell::Gpu)
            );
            everything(&world);
        });
    }
}

#[test]
fn everything_works_without_doorbell_records_and_with_entries_in_registers() {
    let (mut unrecorded, mut flame) = (DeviceChoice::default(), DeviceChoice::default());
    (unrecorded.record, flame.blue_flame) = (RecordChoice::Off, true);
    for (choice, note) in [(unrecorded, "no doorbell records"), (flame, "BlueFlame registers")] {
        each(2, |_, builder| {
            let world = builder.adapter(stand_in::adapter(&choice, "")).heap_bytes(16 << 20).build().unwrap();
            everything(&world);
            let path = &world.path().network.as_ref().unwrap().adapter;
            assert!(path.note.as_ref().unwrap().contains(note), "{path:?}");
            assert_eq!(world.network_failures(), Vec::<String>::new());
        });
    }
}

#[test]
fn more_queue_pairs_than_doorbells_share_them() {
    each(2, |rank, builder| {
        let world =
            builder.adapter(strict(QueueChoice::Auto)).queues_per_peer(16).heap_bytes(16 << 20).build().unwrap();
        let sym = world.malloc::<u64>(64).unwrap();
        for i in 0..64 {
            sym.put(i, &[(rank * 100 + i) as u64], 1 - rank).unwrap();
        }
        world.barrier_all().unwrap();
        let theirs: Vec<u64> = (0..64).map(|i| ((1 - rank) * 100 + i) as u64).collect();
        assert_eq!(sym.read(0, 64).unwrap(), theirs);
        everything(&world);
    });
}

#[test]
fn rings_in_gpu_memory_for_a_heap_in_host_memory_are_refused() {
    let told = each(2, |_, builder| builder.adapter(strict(QueueChoice::Gpu)).build().unwrap_err().to_string());
    for text in told {
        assert!(text.contains("in host memory") && text.contains("WARPBELL_RDMA_QUEUES=gpu"), "{text}");
    }
}

#[test]
fn pes_of_two_hosts_use_both_ways() {
    each(4, |rank, builder| {
        let builder = builder.host_id(if rank < 2 { "one" } else { "two" }).heap_bytes(16 << 20);
        let world = builder.build().unwrap();
        let sym = world.malloc::<u32>(1).unwrap();
        for pe in 0..4 {
            assert_eq!(sym.ptr(pe).is_some(), (pe < 2) == (rank < 2), "PE {rank} and PE {pe}");
        }
        let network = world.path().network.as_ref().unwrap();
        assert_eq!(network.within_reach, [vec![0, 1], vec![2, 3]]);
        assert_eq!((network.between(0, 1), network.between(1, 2)), (Transport::Peer, Transport::Soft));
        let text = world.path().to_string();
        assert!(text.starts_with("peer within hosts (shared memory), soft between 2 hosts ("), "{text}");
        let node = world.team_node().unwrap();
        assert_eq!((node.n_pes(), node.my_pe()), (2, rank % 2));
        drop(sym);
        everything(&world);
    });
}

#[test]
fn ranks_of_hosts_in_turn_map_their_own_only() {
    each(4, |rank, builder| {
        let world = builder.host_id(if rank % 2 == 0 { "even" } else { "odd" }).queues_per_peer(2).build().unwrap();
        let sym = world.malloc::<u32>(8).unwrap();
        assert!((0..4).all(|pe| sym.ptr(pe).is_some() == (pe % 2 == rank % 2)));
        for pe in 0..4 {
            sym.put(rank, &[100 + rank as u32], pe).unwrap();
        }
        world.barrier_all().unwrap();
        assert_eq!(sym.read(0, 4).unwrap(), [100, 101, 102, 103]);
        world.barrier_host().unwrap();
    });
}

#[test]
fn a_transport_that_is_not_there_is_an_error_on_all() {
    let errors = each(2, |_, builder| builder.transport(Transport::Peer).host_id("x").build().map(drop));
    assert!(errors.iter().all(Result::is_ok));
    let errors = each(2, |rank, builder| {
        builder.transport(Transport::Peer).host_id(format!("host-{rank}")).build().unwrap_err().to_string()
    });
    for e in errors {
        assert!(
            e.contains("rank 0 on host-0") && e.contains("rank 1 on host-1") && e.contains("WARPBELL_TRANSPORT"),
            "{e}"
        );
    }
    let errors = each(2, |rank, builder| {
        let transport = if rank == 0 { Transport::Soft } else { Transport::Peer };
        builder.transport(transport).build().unwrap_err().to_string()
    });
    for e in errors {
        assert!(e.contains("rank 0: soft") && e.contains("rank 1: peer"), "{e}");
    }
    if !std::path::Path::new("/sys/class/infiniband").exists() {
        for transport in [Transport::Mlx5, Transport::Verbs] {
            for e in each(2, |_, builder| builder.transport(transport).build().unwrap_err().to_string()) {
                assert!(e.starts_with(&format!("no transport {transport} for 2 PEs: ranks 0-1:")), "{e}");
                assert!(e.contains("no RDMA device"), "{e}");
            }
        }
    }
}

// --- adapters that fail ----------------------------------------------------------------------------------------------

/// The step that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Register(usize),
    Create(usize),
    Connect,
    Nothing,
}

/// A software NIC that fails at one step, and counts its live registrations and queue pairs.
#[derive(Debug)]
struct Failing {
    nic: SoftNic,
    step: Step,
    registered: AtomicUsize,
    created: AtomicUsize,
    alive: Arc<AtomicUsize>,
}

/// Counts one live object.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Key {
    inner: Box<dyn Registration>,
    _counted: Counted,
}

impl Registration for Key {
    fn address(&self) -> u64 {
        self.inner.address()
    }
    fn local_key(&self) -> u32 {
        self.inner.local_key()
    }
    fn remote_key(&self) -> u32 {
        self.inner.remote_key()
    }
}

#[derive(Debug)]
struct Pair {
    inner: Box<dyn QueuePair>,
    fails: bool,
    _counted: Counted,
}

fn wanted(transport: Adapters) -> RdmaError {
    RdmaError::Unavailable { transport, reason: "as the test wants it".to_owned() }
}

impl QueuePair for Pair {
    fn number(&self) -> u32 {
        self.inner.number()
    }
    fn address(&self) -> QueueAddress {
        self.inner.address()
    }
    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        if self.fails { Err(wanted(Adapters::Soft)) } else { self.inner.connect(peer) }
    }
    fn memory(&self) -> &QueueRings {
        self.inner.memory()
    }
    fn flags(&self) -> u32 {
        self.inner.flags()
    }
    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }
    fn reset(&mut self) -> Result<(), RdmaError> {
        self.inner.reset()
    }
}

impl Adapter for Failing {
    fn path(&self) -> AdapterPath {
        self.nic.path()
    }
    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        if self.step == Step::Register(self.registered.fetch_add(1, Ordering::SeqCst)) {
            return Err(wanted(Adapters::Soft));
        }
        // SAFETY: the caller's promise is the same.
        let inner = unsafe { self.nic.register(memory, rights) }?;
        Ok(Box::new(Key { inner, _counted: Counted::new(&self.alive) }))
    }
    fn create(&self, plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError> {
        if self.step == Step::Create(self.created.fetch_add(1, Ordering::SeqCst)) {
            return Err(wanted(Adapters::Soft));
        }
        let fails = self.step == Step::Connect;
        Ok(Box::new(Pair { inner: self.nic.create(plan)?, fails, _counted: Counted::new(&self.alive) }))
    }
}

#[test]
fn what_fails_on_one_rank_is_an_error_on_all_and_leaves_nothing() {
    for step in
        [Step::Register(0), Step::Register(1), Step::Register(2), Step::Create(0), Step::Create(2), Step::Connect]
    {
        let alive = Arc::new(AtomicUsize::new(0));
        let errors = each(3, |rank, builder| {
            let step = if rank == 1 { step } else { Step::Nothing };
            builder.adapter(failing(step, &alive)).build().unwrap_err().to_string()
        });
        for e in errors {
            assert!(e.starts_with("no transport soft for 3 PEs: rank 1: "), "{step:?}: {e}");
            assert!(e.contains("as the test wants it"), "{step:?}: {e}");
        }
        assert_eq!(alive.load(Ordering::SeqCst), 0, "{step:?}");
    }
}

fn failing(step: Step, alive: &Arc<AtomicUsize>) -> Box<dyn Adapter> {
    let nic = SoftNic::start(SoftNicConfig::new([9; 32])).unwrap();
    let (registered, created) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Box::new(Failing { nic, step, registered, created, alive: alive.clone() })
}

#[test]
fn what_a_world_had_goes_with_its_last_pe() {
    let alive = Arc::new(AtomicUsize::new(0));
    let mut worlds = each(2, |_, builder| builder.adapter(failing(Step::Nothing, &alive)).build().unwrap());
    // Three registrations and two queue pairs each.
    assert_eq!(alive.load(Ordering::SeqCst), 2 * 5);
    let last = worlds.pop().unwrap();
    drop(worlds);
    // The other PE may still get data from it.
    assert_eq!(alive.load(Ordering::SeqCst), 2 * 5);
    drop(last);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn a_kernel_that_is_stuck_keeps_its_queues() {
    let alive = Arc::new(AtomicUsize::new(0));
    let worlds = each(1, |_, builder| builder.adapter(failing(Step::Nothing, &alive)).build().unwrap());
    worlds[0].engine().space().poison();
    drop(worlds);
    assert_eq!(alive.load(Ordering::SeqCst), 4, "never given back under a kernel");
}

#[test]
fn pes_of_one_process_need_no_secret() {
    /// A program's own bootstrap, which has no secret.
    #[derive(Debug)]
    struct Plain(LocalBootstrap);
    impl Bootstrap for Plain {
        fn rank(&self) -> usize {
            self.0.rank()
        }
        fn size(&self) -> usize {
            self.0.size()
        }
        fn allgather(
            &self,
            bytes: &[u8],
            within: Duration,
        ) -> Result<Vec<Vec<u8>>, crate::shmem::bootstrap::BootstrapError> {
            self.0.allgather(bytes, within)
        }
        fn via(&self) -> String {
            "a test".to_owned()
        }
    }
    let builder = World::builder(&Engine::cpu().unwrap()).bootstrap(Box::new(Plain(LocalBootstrap::alone())));
    let world = builder.transport(Transport::Soft).heap_bytes(4 << 20).build().unwrap();
    everything(&world);
    // PEs of several processes need a secret.
    let nobody = Opening { space: Space::cpu(), key: None, address: None, across: false, sharers: 1 };
    let e = open(Adapters::Soft, &nobody).unwrap_err().to_string();
    assert!(e.starts_with("soft adapter: ") && e.contains("WARPBELL_SECRET"), "{e}");
}
