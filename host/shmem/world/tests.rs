use super::*;
use crate::engine::Grid;
use crate::engine::testing::start;
use crate::shmem::bootstrap::LocalBootstrap;

/// Runs `work` on every PE of a world of threads.
fn each(n: usize, heap_bytes: usize, work: impl Fn(&World) + Sync) {
    let engines = (0..n).map(|_| Engine::cpu().unwrap()).collect();
    let worlds = World::local_on(engines, heap_bytes).unwrap();
    std::thread::scope(|s| {
        for world in &worlds {
            s.spawn(|| work(world));
        }
    });
}

#[test]
fn values_go_round_a_ring() {
    for n in [1, 2, 3, 4] {
        let worlds = World::local(n).unwrap();
        std::thread::scope(|s| {
            for world in &worlds {
                s.spawn(move || {
                    let to = world.malloc::<u64>(100).unwrap();
                    let flag = world.malloc::<u64>(1).unwrap();
                    let mine: Vec<u64> = (0..100).map(|i| (world.my_pe() * 1000 + i) as u64).collect();
                    let from = world.engine().allocate(Place::Device, 800).unwrap();
                    from.set_slice(0, &mine).unwrap();
                    let grid = Grid { blocks: 1, threads: 1 };
                    let args = args!(world, &to, &from, 100u64, &flag, 1u64);
                    start(world.engine(), "wb_shmem_ring", grid, args).unwrap().finish().unwrap();
                    let before = (world.my_pe() + n - 1) % n;
                    let expected: Vec<u64> = (0..100).map(|i| (before * 1000 + i) as u64).collect();
                    assert_eq!(to.read(0, 100).unwrap(), expected);
                    world.barrier_all().unwrap();
                });
            }
        });
    }
}

#[test]
fn memory_of_a_kernel_in_flight_is_not_freed() {
    each(2, 1 << 20, |world| {
        let all = world.heap_free();
        let word = world.malloc::<u64>(1).unwrap();
        let grid = Grid { blocks: 1, threads: 1 };
        // PE 0 waits until its word is 5 (`warpbell::cmp::eq` is 0).
        let waits = (world.my_pe() == 0).then(|| {
            start(world.engine(), "wb_shmem_signal_wait", grid, args!(world, &word, 0u32, 5u64, abi::NO_PE)).unwrap()
        });
        world.barrier_host().unwrap();
        let e = world.free(word).unwrap_err().to_string();
        assert!(e.contains("1 elements at offset") && e.contains("PE(s) [0]"), "{e}");
        assert!(world.heap_free() < all);
        if let Some(run) = waits {
            run.stop().unwrap();
            assert!(run.finish().is_err());
        }
        world.barrier_host().unwrap();
        assert_eq!(world.heap_free(), all, "it came back with the run");
    });
}

#[test]
fn a_run_keeps_its_world() {
    let mut worlds = World::local(1).unwrap();
    let world = worlds.pop().unwrap();
    let word = world.malloc::<u64>(1).unwrap();
    let inner = Arc::downgrade(&world.0);
    let engine = world.engine().clone();
    let grid = Grid { blocks: 1, threads: 1 };
    let run = start(&engine, "wb_shmem_signal_wait", grid, args!(&world, &word, 0u32, 5u64, abi::NO_PE)).unwrap();
    drop((word, world, worlds));
    assert!(inner.upgrade().is_some());
    run.stop().unwrap();
    assert!(run.finish().is_err());
    assert!(inner.upgrade().is_none());
}

#[test]
fn memory_comes_back_when_all_have_dropped_it_or_free_it() {
    each(3, 1 << 20, |world| {
        let all = world.heap_free();
        let a = world.malloc::<u32>(1000).unwrap();
        let at = a.offset();
        a.write(0, &[7; 1000]).unwrap();
        assert_eq!(world.heap_free(), all - 4096);
        drop(a);
        assert_eq!(world.heap_free(), all - 4096, "the others may still use it");
        world.barrier_host().unwrap();
        assert_eq!(world.heap_free(), all);
        let b = world.calloc::<u64>(500).unwrap();
        assert_eq!((b.offset(), b.read(0, 500).unwrap()), (at, vec![0; 500]));
        world.free(b).unwrap();
        assert_eq!(world.heap_free(), all);
        // Freed memory is not given back a second time.
        world.barrier_host().unwrap();
        assert_eq!(world.heap_free(), all);
    });
}

#[test]
fn all_of_the_heap_that_was_asked_for_can_be_had() {
    each(4, 1 << 20, |world| {
        assert_eq!(world.heap_free(), 1 << 20);
        let all = world.malloc::<u8>(1 << 20).unwrap();
        let e = world.malloc::<u8>(1).unwrap_err().to_string();
        assert!(e.contains("0 of") && e.contains("WARPBELL_SYMMETRIC_SIZE"), "{e}");
        drop(all);
        assert!(world.malloc::<u8>(usize::MAX).is_err());
        assert!(matches!(world.malloc::<u64>(usize::MAX / 4), Err(ShmemError::HeapFull { .. })));
        // The failed calls left the heap usable.
        world.malloc::<u8>(1 << 20).unwrap();
    });
}

#[test]
fn alignments_are_of_addresses() {
    each(2, 8 << 20, |world| {
        for align in [1, 64, 128, 4096, 1 << 20, HEAP_ALIGN] {
            let sym = world.align::<u8>(3, align).unwrap();
            assert!(sym.address().is_multiple_of(align as u64));
            assert!(sym.ptr(1 - world.my_pe()).unwrap().is_multiple_of(align as u64));
        }
        for align in [0, 3, 2 * HEAP_ALIGN] {
            assert!(matches!(world.align::<u8>(3, align), Err(ShmemError::Alignment { .. })));
        }
        world.barrier_host().unwrap();
    });
}

#[test]
fn ranks_that_call_different_things_are_named() {
    each(3, 1 << 20, |world| {
        let one = world.malloc::<u8>(8).unwrap();
        let e = if world.my_pe() == 1 { world.free(one).unwrap_err() } else { world.malloc::<u8>(8).unwrap_err() };
        let e = e.to_string();
        assert!(e.contains("ranks 0, 2: malloc of 8 elements") && e.contains("rank 1: free of 8 elements"), "{e}");
        let e = world.malloc::<u8>(10 + world.my_pe() / 2).unwrap_err().to_string();
        assert!(e.contains("ranks 0-1: malloc of 10") && e.contains("rank 2: malloc of 11"), "{e}");
        let e = match world.my_pe() {
            0 => world.barrier_host().unwrap_err(),
            1 => world.malloc::<u16>(10).map(drop).unwrap_err(),
            _ => world.malloc::<u32>(10).map(drop).unwrap_err(),
        };
        let e = e.to_string();
        assert!(e.contains("rank 0: barrier_host") && e.contains("of 2 bytes") && e.contains("of 4 bytes"), "{e}");
        // All ranks are in step again.
        let bytes = world.allgather(&[world.my_pe() as u8; 3]).unwrap();
        assert_eq!(bytes, [[0; 3], [1; 3], [2; 3]]);
    });
}

#[test]
fn a_pe_that_abandons_its_world_is_lost_for_the_others() {
    let mut worlds = World::local(2).unwrap();
    let (b, a) = (worlds.pop().unwrap(), worlds.pop().unwrap());
    a.abandon();
    assert_eq!(b.lost(), None);
    drop(a);
    assert_eq!(b.lost().map(|lost| lost.rank), Some(0));
    let e = b.barrier_all().unwrap_err().to_string();
    assert!(e.contains("rank 0 is gone"), "{e}");
}

#[test]
fn memory_of_another_world_is_not_freed() {
    let a = World::local(1).unwrap().remove(0);
    let b = World::local(1).unwrap().remove(0);
    let sym = a.malloc::<u8>(1).unwrap();
    assert!(matches!(b.free(sym), Err(ShmemError::Foreign)));
}

#[test]
fn slices_are_parts() {
    each(2, 1 << 20, |world| {
        let sym = world.malloc::<u32>(10).unwrap();
        let other = 1 - world.my_pe();
        let part = sym.slice(4..8).unwrap();
        assert_eq!((part.len(), part.offset(), part.address()), (4, sym.offset() + 16, sym.address() + 16));
        part.slice(1..=2).unwrap().put(0, &[5, 6], other).unwrap();
        world.barrier_host().unwrap();
        assert_eq!(sym.read(0, 10).unwrap(), [0, 0, 0, 0, 0, 5, 6, 0, 0, 0]);
        assert_eq!(part.ptr(other), sym.ptr(other).map(|p| p + 16));
        assert_eq!((part.ptr(2), sym.ptr(usize::MAX)), (None, None));
        assert!(sym.slice(..).is_ok_and(|s| s.len() == 10) && sym.slice(10..).is_ok_and(|s| s.is_empty()));
        assert!(matches!(part.get(3, 2, other), Err(ShmemError::OutOfBounds { first: 3, count: 2, len: 4 })));
        assert!(matches!(part.put(0, &[1], 2), Err(ShmemError::NoPe { pe: 2, size: 2 })));
        assert!(sym.slice(8..11).is_err() && sym.slice(usize::MAX..).is_err());
        #[expect(clippy::reversed_empty_ranges, reason = "what a program may come to")]
        let reversed = sym.slice(5..4);
        assert!(reversed.is_err());
        // No PE writes to the other while the other still reads.
        world.barrier_host().unwrap();
    });
}

#[test]
fn memory_outlives_the_worlds_that_it_came_from() {
    let mut worlds = World::local(2).unwrap();
    let (b, a) = (worlds.pop().unwrap(), worlds.pop().unwrap());
    let (of_a, of_b) = std::thread::scope(|s| {
        let b = s.spawn(move || b.malloc::<u8>(4).unwrap());
        (a.malloc::<u8>(4).unwrap(), b.join().unwrap())
    });
    drop(a);
    of_b.put(0, &[1, 2, 3, 4], 0).unwrap();
    assert_eq!(of_a.read(0, 4).unwrap(), [1, 2, 3, 4]);
    drop(of_a);
    // Writes to a PE that has left do no harm. Its absence is reported.
    of_b.put(0, &[9; 4], 0).unwrap();
    let e = of_b.world().barrier_host().unwrap_err().to_string();
    assert!(e.contains("rank 0"), "{e}");
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "worlds keep the map in debug builds")]
fn kernels_of_checked_builds_see_what_is_allocated() {
    each(2, 1 << 20, |world| {
        let view = world.view();
        let map = world.0.own.allocated.as_ref().expect("tests are debug builds");
        assert_eq!(view.allocated, map.address());
        let bit = |offset: usize| {
            let granule = offset / abi::HEAP_GRANULE;
            map.get::<u32>(granule / 32 * 4).unwrap() >> (granule % 32) & 1 == 1
        };
        let sync = (view.team.sync - view.heap) as usize;
        assert!(bit(sync));
        let sym = world.malloc::<u8>(200).unwrap();
        let at = sym.offset();
        assert_eq!([0, 64, 128, 192, 256].map(|i| bit(at + i)), [true, true, true, true, false]);
        let next = world.malloc::<u8>(1).unwrap();
        assert!(bit(next.offset()));
        world.free(sym).unwrap();
        assert_eq!([0, 64, 128, 192].map(|i| bit(at + i)), [false; 4]);
        assert!(bit(next.offset()));
        let dropped = next.offset();
        drop(next);
        assert!(bit(dropped));
        world.barrier_host().unwrap();
        assert!(!bit(dropped));
    });
}

/// A bootstrap whose test reports a lost rank.
#[derive(Debug)]
struct Telling {
    inner: LocalBootstrap,
    told: Arc<Mutex<Vec<LossCallback>>>,
}

struct LossCallback(Box<dyn Fn(&LostRank) + Send + Sync>);

impl fmt::Debug for LossCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LossCallback")
    }
}

impl Bootstrap for Telling {
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn size(&self) -> usize {
        self.inner.size()
    }
    fn allgather(&self, bytes: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.inner.allgather(bytes, within)
    }
    fn on_loss(&self, tell: Box<dyn Fn(&LostRank) + Send + Sync>) {
        self.told.lock().push(LossCallback(tell));
    }
    fn via(&self) -> String {
        self.inner.via()
    }
}

#[test]
fn a_lost_rank_ends_the_others_kernels_and_calls() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut all = LocalBootstrap::all(2);
    let gone = all.pop().unwrap();
    let bootstrap = Telling { inner: all.pop().unwrap(), told: told.clone() };
    let builder = |b: Box<dyn Bootstrap>| World::builder(&Engine::cpu().unwrap()).heap_bytes(1 << 20).bootstrap(b);
    let (world, other) = std::thread::scope(|s| {
        let other = s.spawn(|| builder(Box::new(gone)).build().unwrap());
        (builder(Box::new(bootstrap)).build().unwrap(), other.join().unwrap())
    });
    assert_eq!(world.lost(), None);
    world.engine().set_deadline(Duration::from_secs(600)).unwrap();
    let error = std::thread::scope(|s| {
        let waits = s.spawn(|| world.barrier_all().unwrap_err().to_string());
        // The loss may come before or during the kernel: the kernel ends either way.
        (told.lock()[0].0)(&LostRank::new(1, "killed by signal 9"));
        waits.join().unwrap()
    });
    assert!(error.contains("rank 1 is gone: killed by signal 9"), "{error}");
    for e in [world.barrier_host().unwrap_err(), world.malloc::<u8>(1).unwrap_err()] {
        assert!(e.to_string().contains("rank 1 is gone"), "{e}");
    }
    assert_eq!(world.lost().map(|l| l.rank), Some(1));
    drop(other);
}

#[test]
#[ignore = "needs a GPU"]
fn more_pes_on_one_gpu_than_it_runs_kernels_of_at_the_same_time_are_refused() {
    let gpu = Engine::gpu(0).unwrap();
    let most = gpu.space().gpu_context().unwrap().kernels_side_by_side();
    let engines = |n| (0..n).map(|_| Engine::gpu(0).unwrap()).collect::<Vec<_>>();
    let e = World::local_on(engines(most + 1), 1 << 20).unwrap_err();
    assert!(matches!(e, ShmemError::Crowded { gpu: 0, pes, most: m } if (pes, m) == (most + 1, most)), "{e}");
    assert!(e.to_string().contains("CUDA_DEVICE_MAX_CONNECTIONS=32"), "{e}");
}
