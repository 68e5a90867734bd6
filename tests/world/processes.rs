//! Tests worlds of processes: every rank is this program again, started by the test with its scene and its rank.

use crate::children::{Child, Meeting};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use warpbell::args;
use warpbell::cuda::DeviceInfo;
use warpbell::engine::{Engine, Grid};
use warpbell::memory::Place;
use warpbell::shmem::bootstrap::{Bootstrap, BootstrapError};
use warpbell::shmem::calls::LocalSlice;
use warpbell::shmem::{HeapKind, Link, ShmemError, World, WorldBuilder};

/// Far longer than any step takes on a busy machine, and so the limit of every wait.
const LONG: Duration = Duration::from_secs(120);

/// Printed by a rank when it waits for the others.
const WAITING: &str = "waiting";

// --- bootstraps of these tests
// -------------------------------------------------------------------------------------------

/// A bootstrap of a program with its own allgather: here, files in a folder.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    rank: usize,
    size: usize,
    round: std::sync::atomic::AtomicU64,
}

impl Folder {
    fn file(&self, round: u64, rank: usize) -> PathBuf {
        self.path.join(format!("{round}.{rank}"))
    }
}

impl Bootstrap for Folder {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn allgather(&self, bytes: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let round = self.round.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let draft = self.path.join(format!("draft.{}", self.rank));
        std::fs::write(&draft, bytes).unwrap();
        std::fs::rename(draft, self.file(round, self.rank)).unwrap();
        let until = Instant::now() + within;
        let get = |rank| loop {
            match std::fs::read(self.file(round, rank)) {
                Ok(bytes) => return bytes,
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                Err(e) => panic!("rank {rank} did not come: {e}"),
            }
        };
        Ok((0..self.size).map(get).collect())
    }

    fn via(&self) -> String {
        "a folder".to_owned()
    }
}

// --- the ranks -----------------------------------------------------------------------------------------------------------

/// Parameters of a rank.
struct Me {
    rank: usize,
    size: usize,
    folder: PathBuf,
    on_gpu: bool,
}

impl Me {
    fn from_environment() -> Option<(String, Self)> {
        let get = |name: &str| std::env::var(name).ok();
        let number = |name: &str| get(name)?.parse().ok();
        let me = Self {
            rank: number("WORLD_TEST_RANK")?,
            size: number("WORLD_TEST_SIZE")?,
            folder: get("WORLD_TEST_FOLDER")?.into(),
            on_gpu: get("WORLD_TEST_ENGINE")? == "gpu",
        };
        Some((get("WORLD_TEST_SCENE")?, me))
    }

    /// Returns an engine. Ranks take GPUs in turn, so that several ranks may share one.
    fn engine(&self) -> Engine {
        if self.on_gpu {
            let gpus = DeviceInfo::all().unwrap().len();
            Engine::gpu(self.rank % gpus).unwrap()
        } else {
            Engine::cpu().unwrap()
        }
    }

    fn builder(&self) -> WorldBuilder {
        let round = Default::default();
        let bootstrap = Folder { path: self.folder.clone(), rank: self.rank, size: self.size, round };
        World::builder(&self.engine()).bootstrap(Box::new(bootstrap)).timeout(LONG).heap_bytes(8 << 20)
    }
}

/// Runs a rank. The tests start it as a process.
#[test]
#[ignore = "another test starts it as a process"]
fn rank() {
    let (scene, me) = Me::from_environment().expect("the scene and the rank, which the test that starts it sets");
    match scene.as_str() {
        "ring" => ring(&me.builder().build().unwrap()),
        "ring in host memory" => {
            let world = me.builder().heap(HeapKind::Host).build().unwrap();
            assert!(!world.path().on_device);
            ring(&world);
        }
        "ring in device memory" => {
            let world = me.builder().heap(HeapKind::Device).build().unwrap();
            assert_eq!(world.path().on_device, me.on_gpu);
            ring(&world);
        }
        "unequal" => {
            let e = me.builder().heap_bytes((8 + me.rank / 2) << 20).build().unwrap_err();
            assert!(matches!(e, ShmemError::Unequal { .. }), "{e}");
            println!("{e}");
        }
        "early end" => early_end(&me),
        "ring by the store" => {
            let world = World::builder(&me.engine()).heap_bytes(8 << 20).build().unwrap();
            assert_eq!((world.my_pe(), world.n_pes()), (me.rank, me.size));
            ring(&world);
        }
        "missing" => println!("{}", World::builder(&me.engine()).build().unwrap_err()),
        "killed" => killed(&me),
        "window" => {
            let world = World::builder(&me.engine()).heap_bytes(8 << 20).build().unwrap();
            println!("{}", world.path());
            window(world);
        }
        other => panic!("no scene {other}"),
    }
}

/// Puts by kernels and by the host, on memory that is allocated and freed, at all distances.
fn ring(world: &World) {
    const COUNT: usize = 10_000;
    let (me, n) = (world.my_pe(), world.n_pes());
    println!("{}", world.path());
    let width = world.engine().info().warp_width;
    for turn in 1..=3u64 {
        let to = world.malloc::<u64>(COUNT).unwrap();
        let flag = world.malloc::<u64>(1).unwrap();
        assert_eq!(to.read(0, COUNT).unwrap(), vec![0; COUNT], "memory that was used before is cleared");
        let value = |pe: usize, i: usize| (pe * 1_000_000 + i) as u64 + turn;
        let mine: Vec<u64> = (0..COUNT).map(|i| value(me, i)).collect();
        let from = world.engine().allocate(Place::Device, COUNT * 8).unwrap();
        from.set_slice(0, &mine).unwrap();
        world.barrier_host().unwrap();
        let args = args!(world, &to, &from, COUNT as u64, &flag, turn);
        // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
        unsafe { world.engine().launch("wb_shmem_ring", Grid { blocks: 1, threads: width }, args) }
            .unwrap()
            .finish()
            .unwrap();
        let before = (me + n - 1) % n;
        let expected: Vec<u64> = (0..COUNT).map(|i| value(before, i)).collect();
        assert_eq!(to.read(0, COUNT).unwrap(), expected);
        world.barrier_all().unwrap();
        // Every PE has the data that its neighbour put there.
        for pe in 0..n {
            assert_eq!(to.get(COUNT - 1, 1, pe).unwrap(), [value((pe + n - 1) % n, COUNT - 1)]);
        }
        world.barrier_host().unwrap();
        let all = world.malloc::<u32>(n).unwrap();
        for pe in 0..n {
            all.put(me, &[(me * 100 + pe) as u32], pe).unwrap();
        }
        world.barrier_host().unwrap();
        let expected: Vec<u32> = (0..n).map(|pe| (pe * 100 + me) as u32).collect();
        assert_eq!(all.read(0, n).unwrap(), expected);
        world.free(all).unwrap();
        world.free(to).unwrap();
    }
}

/// Registers memory that is not in the heap, several times. In the end rank 0 leaves while the others still use its memory.
fn window(world: World) {
    const COUNT: usize = 100_000;
    let (me, n) = (world.my_pe(), world.n_pes());
    let (next, before) = ((me + 1) % n, (me + n - 1) % n);
    let mine = world.malloc::<u32>(COUNT).unwrap();
    let mut last = None;
    for turn in 0..3u32 {
        let value = |pe: usize, i: usize| pe as u32 * 10_000_000 + i as u32 + turn;
        mine.write(0, &(0..COUNT).map(|i| value(me, i)).collect::<Vec<_>>()).unwrap();
        // Another place in the memory of each PE.
        let (region, at) = (world.engine().allocate(Place::Device, 8 * COUNT).unwrap(), 4 * (me + 7));
        let window = world.symmetric_from(LocalSlice::<u32>::in_region(&world, &region, at, COUNT).unwrap()).unwrap();
        world.put_from(&window, &mine, next).unwrap();
        world.barrier_all().unwrap();
        let expected: Vec<u32> = (0..COUNT).map(|i| value(before, i)).collect();
        assert!(region.get_slice::<u32>(at, COUNT).unwrap() == expected, "turn {turn}");
        assert!(region.get_slice::<u8>(0, at).unwrap().iter().all(|b| *b == 0));
        let expected: Vec<u32> = (0..COUNT).map(|i| value(me, i)).collect();
        assert!(world.get(&window, next).unwrap() == expected, "turn {turn}");
        // A PE does not change memory that its neighbour still gets.
        world.barrier_all().unwrap();
        last = Some(window);
    }
    let window = last.expect("three turns");
    if me == 0 {
        return;
    }
    for _ in 0..20 {
        assert_eq!(world.get(window.slice(1..2).unwrap(), 0).unwrap(), [(n as u32 - 1) * 10_000_000 + 3]);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends rank 0 while the others still write to its memory, which stays.
fn early_end(me: &Me) {
    let world = me.builder().build().unwrap();
    let sym = world.malloc::<u64>(1000).unwrap();
    world.barrier_host().unwrap();
    if me.rank == 0 {
        return;
    }
    for i in 0..50u64 {
        sym.put(0, &[i; 1000], 0).unwrap();
        assert_eq!(sym.get(999, 1, 0).unwrap(), [i]);
        std::thread::sleep(Duration::from_millis(2));
        if me.size > 2 {
            break;
        }
    }
}

/// Waits in a kernel for the last rank, which is killed.
fn killed(me: &Me) {
    let world = World::builder(&me.engine()).heap_bytes(8 << 20).build().unwrap();
    let engine = world.engine();
    // The news ends the kernel, not the deadline.
    engine.set_deadline(10 * LONG).unwrap();
    if me.rank + 1 == me.size {
        println!("{WAITING}");
        std::thread::sleep(10 * LONG);
        return;
    }
    let grid = Grid { blocks: 1, threads: engine.info().warp_width };
    // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
    let run = unsafe { engine.launch("wb_shmem_barrier", grid, args!(&world)) }.unwrap();
    println!("{WAITING}");
    println!("kernel: {}", run.finish().unwrap_err());
    println!("call: {}", world.malloc::<u8>(1).unwrap_err());
    // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
    println!("launch: {}", unsafe { engine.launch("wb_shmem_barrier", grid, args!(&world)) }.unwrap_err());
}

// --- the tests -----------------------------------------------------------------------------------------------------------

/// Starts the ranks of a scene, and returns the output of each. All must succeed.
fn play(scene: &str, engine: &str, size: usize) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let ranks: Vec<Child> = (0..size).map(|rank| start(scene, engine, rank, size, folder.path())).collect();
    all_well(ranks, scene)
}

/// Returns the output of ranks, which must all succeed.
fn all_well(ranks: Vec<Child>, scene: &str) -> Vec<String> {
    let size = ranks.len();
    let ended: Vec<_> = ranks.into_iter().map(|r| r.finish(LONG)).collect();
    let all = || ended.iter().map(|(status, said)| format!("{status}\n{said}")).collect::<Vec<_>>().join("\n\n");
    assert!(ended.iter().all(|(status, _)| status.success()), "`{scene}`, {size} ranks:\n{}", all());
    ended.into_iter().map(|(_, said)| said).collect()
}

fn start(scene: &str, engine: &str, rank: usize, size: usize, folder: &Path) -> Child {
    Child::start(command(scene, engine, rank, size, folder))
}

/// Starts the ranks of a scene that meet at a store, as a launcher does.
fn launch(scene: &str, engine: &str, ranks: std::ops::Range<usize>, size: usize, more: &[(&str, &str)]) -> Vec<Child> {
    let meeting = Meeting::new();
    let one = |rank: usize| {
        let mut command = command(scene, engine, rank, size, Path::new("/nonexistent"));
        command
            .env("WARPBELL_RANK", rank.to_string())
            .env("WARPBELL_SIZE", size.to_string())
            .env("WARPBELL_STORE", meeting.store())
            .env("WARPBELL_SECRET", "a secret of these tests that is long enough")
            .env("WARPBELL_TIMEOUT", format!("{}s", LONG.as_secs()))
            .envs(more.iter().copied());
        if rank == 0 {
            meeting.hand_to(&mut command);
        }
        Child::start(command)
    };
    ranks.map(one).collect()
}

fn command(scene: &str, engine: &str, rank: usize, size: usize, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["processes::rank", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env("WORLD_TEST_SCENE", scene)
        .env("WORLD_TEST_ENGINE", engine)
        .env("WORLD_TEST_RANK", rank.to_string())
        .env("WORLD_TEST_SIZE", size.to_string())
        .env("WORLD_TEST_FOLDER", folder);
    command
}

/// Kills the last rank as soon as all wait, and returns the output of the others.
fn kill_the_last(engine: &str, size: usize) -> Vec<String> {
    let mut ranks = launch("killed", engine, 0..size, size, &[]);
    for rank in &mut ranks {
        rank.until(LONG, |line| line.contains(WAITING).then_some(()));
    }
    let mut victim = ranks.pop().expect("a world has a rank");
    // Sends SIGKILL.
    victim.kill();
    let killed = Instant::now();
    let (_, said) = victim.finish(LONG);
    let printed = all_well(ranks, "killed");
    assert!(killed.elapsed() < LONG, "not by the deadline of the kernels; the one that was killed said:\n{said}");
    printed
}

/// Returns the number of GPUs. Fails the test if no kernel runs on a GPU.
fn gpus() -> usize {
    Engine::gpu(0).expect("a GPU, and an image for it");
    DeviceInfo::all().expect("the driver's list of GPUs").len()
}

#[test]
fn processes_share_memory() {
    for n in [2, 3, 4, 8] {
        for out in play("ring", "cpu", n) {
            assert!(out.contains(&format!("peer {n} PEs (shared memory), heap 8 MiB host, atomics native")), "{out}");
        }
    }
}

#[test]
fn processes_that_ask_for_different_heaps_are_told_who() {
    for out in play("unequal", "cpu", 4) {
        assert!(out.contains("ranks 0-1: 8 MiB; ranks 2-3: 9 MiB"), "{out}");
    }
}

#[test]
fn memory_of_a_process_that_has_ended_stays_for_the_others() {
    play("early end", "cpu", 2);
}

#[test]
fn ranks_of_a_launcher_meet_at_the_store() {
    let ranks = launch("ring by the store", "cpu", 0..3, 3, &[("WARPBELL_HEAP", "host")]);
    for out in all_well(ranks, "ring by the store") {
        assert!(out.contains("peer 3 PEs (shared memory), heap 8 MiB"), "{out}");
    }
}

#[test]
fn processes_reach_each_other_over_software_nics() {
    for n in [2, 4] {
        let ranks = launch("ring by the store", "cpu", 0..n, n, &[("WARPBELL_TRANSPORT", "soft")]);
        for out in all_well(ranks, "ring by the store") {
            assert!(
                out.contains(&format!("soft {n} PEs (Unix sockets), heap 8 MiB host, atomics by adapter")),
                "{out}"
            );
        }
    }
}

#[test]
fn processes_use_registered_memory_over_software_nics() {
    for n in [2, 3] {
        all_well(launch("window", "cpu", 0..n, n, &[("WARPBELL_TRANSPORT", "soft")]), "window");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    for out in all_well(launch("missing", "cpu", 0..2, 3, &[("WARPBELL_TIMEOUT", "3s")]), "missing") {
        assert!(out.contains("rank 2"), "{out}");
    }
}

#[test]
fn a_killed_rank_ends_the_kernels_of_the_others() {
    for n in [2, 4] {
        for out in kill_the_last("cpu", n) {
            let lost = format!("rank {} is gone", n - 1);
            for what in ["kernel: ", "call: ", "launch: "] {
                assert!(out.lines().any(|l| l.starts_with(what) && l.contains(&lost)), "{out}");
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn processes_on_gpus_reach_each_other() {
    let gpus = gpus();
    // One rank on each GPU, and two.
    for n in [gpus, 2 * gpus] {
        for scene in ["ring", "ring in device memory", "ring in host memory"] {
            for (rank, out) in play(scene, "gpu", n).iter().enumerate() {
                println!("{scene}, rank {rank}: {}", out.lines().find(|l| l.contains("peer")).unwrap_or_default());
            }
        }
    }
    for n in [2, gpus, 2 * gpus] {
        for transport in ["peer", "soft"] {
            all_well(launch("window", "gpu", 0..n, n, &[("WARPBELL_TRANSPORT", transport)]), "window");
        }
    }
    play("early end", "gpu", 2);
    for out in kill_the_last("gpu", 2) {
        assert!(out.contains("kernel: ") && out.contains("rank 1 is gone"), "{out}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn threads_on_gpus_reach_each_other() {
    let gpus = gpus();
    for n in [1, gpus, 2 * gpus] {
        let engines = (0..n).map(|i| Engine::gpu(i % gpus).unwrap()).collect();
        let worlds = World::local_on(engines, 8 << 20).unwrap();
        std::thread::scope(|s| {
            for world in worlds {
                s.spawn(move || {
                    ring(&world);
                    window(world);
                });
            }
        });
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpus_and_cpu_threads_meet_in_host_memory() {
    let worlds = World::local_on(vec![Engine::gpu(0).unwrap(), Engine::cpu().unwrap()], 8 << 20).unwrap();
    assert!(worlds.iter().all(|w| w.path().link == Link::HostMemory));
    std::thread::scope(|s| {
        for world in worlds {
            s.spawn(move || ring(&world));
        }
    });
}
