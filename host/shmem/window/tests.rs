//! Tests of windows on worlds of CPU threads: registration, host calls, and who keeps the memory.

use super::Window;
use crate::args;
use crate::engine::testing::engine;
use crate::memory::{Place, Region, Space};
use crate::shmem::calls::{Cmp, LocalSlice, SignalOp};
use crate::shmem::testing::local;
use crate::shmem::{ShmemError, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Worlds by loads and stores, and by software adapters.
fn worlds(n: usize) -> Vec<Vec<World>> {
    let mut all = vec![local(n)];
    if cfg!(feature = "soft") && !engine(0).is_gpu() {
        all.push(World::local_over(n, crate::shmem::Transport::Soft).unwrap());
    }
    all
}

/// Runs `body` on every PE, each in its own thread, and returns the results.
fn each<T: Send>(worlds: &[World], body: impl Fn(&World) -> T + Sync) -> Vec<T> {
    std::thread::scope(|s| {
        let threads: Vec<_> = worlds.iter().map(|world| s.spawn(|| body(world))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

fn memory(world: &World, bytes: usize) -> Region {
    world.engine().allocate(Place::Device, bytes).unwrap()
}

fn window_of<T: bytemuck::Pod>(
    world: &World,
    region: &Region,
    offset: usize,
    len: usize,
) -> Result<Window<T>, ShmemError> {
    world.symmetric_from(LocalSlice::in_region(world, region, offset, len)?)
}

#[test]
fn host_calls_move_data_to_and_from_windows() {
    // More than one piece of a copy through the host, at places that are aligned differently on each PE.
    const LEN: usize = (1 << 20) + 77;
    for worlds in worlds(3) {
        each(&worlds, |world| {
            let (me, n) = (world.my_pe(), world.n_pes());
            let region = memory(world, LEN + 64);
            let window = window_of::<u8>(world, &region, 1 + 5 * me, LEN).unwrap();
            let values: Vec<u8> = (0..LEN).map(|i| (i * 7 + me) as u8).collect();
            world.put(&window, &values, (me + 1) % n).unwrap();
            world.barrier_all().unwrap();
            let before = (me + n - 1) % n;
            let expected: Vec<u8> = (0..LEN).map(|i| (i * 7 + before) as u8).collect();
            assert!(region.get_slice::<u8>(1 + 5 * me, LEN).unwrap() == expected);
            assert_eq!(region.get_slice::<u8>(0, 1 + 5 * me).unwrap(), vec![0; 1 + 5 * me]);
            assert!(world.get(&window, (me + 1) % n).unwrap() == values);
            world.barrier_all().unwrap();

            // Between the engine's memory and windows, with a signal in the heap.
            let (arrived, mine) = (world.calloc::<u64>(1).unwrap(), world.malloc::<u8>(1000).unwrap());
            mine.write(0, &[me as u8 + 100; 1000]).unwrap();
            let part = window.slice(13..1013).unwrap();
            world.put_signal(part, &mine, &arrived, (1, SignalOp::Add), (me + 1) % n).unwrap();
            world.signal_wait_until(&arrived, Cmp::Ge, 1).unwrap();
            assert_eq!(region.get_slice::<u8>(1 + 5 * me + 12, 2).unwrap(), [expected[12], before as u8 + 100]);
            world.barrier_all().unwrap();
            world.get_into(&mine, part, (me + 1) % n).unwrap();
            assert_eq!(mine.read(0, 1000).unwrap(), vec![me as u8 + 100; 1000]);
            world.barrier_all().unwrap();
            world.put_from(window.slice(..1000).unwrap(), &mine, me).unwrap();
            world.p(window.slice(999..).unwrap(), 9, me).unwrap();
            assert_eq!(world.g(window.slice(999..).unwrap(), me).unwrap(), 9);
            assert_eq!(window.slice(5..).unwrap().len(), LEN - 5);
            assert_eq!(window.ptr(me), Some(region.address() + 1 + 5 * me as u64));
            assert_eq!((window.ptr(before).is_some(), window.ptr(3)), (world.path().transport == "peer", None));
        });
    }
}

#[test]
fn streams_put_to_windows_and_keep_them() {
    for worlds in worlds(2) {
        each(&worlds, |world| {
            let region = memory(world, 4096);
            let window = window_of::<u32>(world, &region, 0, 1024).unwrap();
            let mine = world.malloc::<u32>(1024).unwrap();
            mine.write(0, &[world.my_pe() as u32 + 1; 1024]).unwrap();
            let stream = world.engine().stream().unwrap();
            world.put_from_on(&stream, &window, &mine, 1 - world.my_pe()).unwrap();
            drop((window, mine));
            stream.synchronize(std::time::Duration::from_secs(60)).unwrap();
            world.barrier_all().unwrap();
            assert_eq!(region.get_slice::<u32>(0, 1024).unwrap(), vec![2 - world.my_pe() as u32; 1024]);
        });
    }
}

#[test]
fn different_lengths_are_an_error_that_lists_each() {
    for worlds in worlds(3) {
        let errors = each(&worlds, |world| {
            let region = memory(world, 4096);
            let len = if world.my_pe() == 1 { 16 } else { 24 };
            window_of::<u64>(world, &region, 0, len).map(|_| ()).unwrap_err().to_string()
        });
        let expected = "bytes of the memory that symmetric_from registers must be the same on all ranks: ranks 0, 2: 192; rank 1: 128";
        assert_eq!(errors, [expected; 3]);
        // The world still works.
        each(&worlds, |world| window_of::<u64>(world, &memory(world, 4096), 8, 3).map(|_| ()).unwrap());
    }
}

#[test]
fn memory_that_one_pe_cannot_register_is_an_error_on_all() {
    for worlds in worlds(2) {
        let refused = |mine: &(dyn Fn(&World) -> Result<Window<u64>, ShmemError> + Sync)| -> Vec<String> {
            each(&worlds, |world| {
                let array = world.malloc::<u64>(2).unwrap();
                match world.my_pe() {
                    0 => window_of::<u64>(world, &memory(world, 4096), 0, 2),
                    _ => mine(world),
                }
                .map(|_| drop(array))
                .unwrap_err()
                .to_string()
            })
        };
        for (mine, reason) in [
            (
                (&|world: &World| {
                    let region = memory(world, 4096);
                    world.symmetric_from(LocalSlice::in_region(world, &region, 0, 0).unwrap())
                }) as &(dyn Fn(&World) -> Result<Window<u64>, ShmemError> + Sync),
                "rank 1: there is no memory to register; pass at least one element",
            ),
            (
                &|world| {
                    let array = world.engine().allocate(Place::Device, 64).unwrap();
                    // SAFETY: `array` owns the memory, and the new region owns `array`.
                    let odd = unsafe { world.engine().space().import_device(array.address() + 1, 32, Arc::new(array)) };
                    window_of(world, &odd.unwrap(), 0, 2)
                },
                "is no multiple of 8, the alignment of the elements; pass aligned memory",
            ),
            (
                &|world| {
                    let other = engine(1 + world.my_pe());
                    let region = other.allocate(Place::Device, 64).unwrap();
                    let stranger = World::local_on(vec![other], 1 << 20).unwrap().remove(0);
                    world.symmetric_from(LocalSlice::in_region(&stranger, &region, 0, 2).unwrap())
                },
                "rank 1: the memory is that of another engine; pass memory of the world's engine",
            ),
        ] {
            let errors = refused(mine);
            for e in &errors {
                assert!(e.starts_with("symmetric_from failed: rank 1: ") && e.contains(reason), "{e}");
            }
        }
        let errors = each(&worlds, |world| {
            let array = world.malloc::<u64>(2).unwrap();
            world.symmetric_from(LocalSlice::from(&array)).map(|_| ()).unwrap_err().to_string()
        });
        let expected = "symmetric_from failed: ranks 0-1: the memory is in the symmetric heap; use the array itself, which is symmetric";
        assert_eq!(errors, [expected; 2]);
    }
}

#[test]
fn no_region_is_made_of_a_null_pointer() {
    // SAFETY: refused without any access.
    let e = unsafe { Space::cpu().import_device(0, 64, Arc::new(())) }.unwrap_err().to_string();
    assert!(e.contains("an address other than 0"), "{e}");
}

#[test]
fn places_outside_a_window_are_refused_before_any_kernel() {
    for worlds in worlds(2) {
        let other = local(1);
        each(&worlds, |world| {
            let region = memory(world, 4096);
            let window = window_of::<u32>(world, &region, 0, 10).unwrap();
            let text = |r: Result<(), ShmemError>| r.unwrap_err().to_string();
            let bounds = "elements 0..11 are outside a symmetric array of 10";
            assert_eq!(text(world.put(&window, &[1; 11], 0)), bounds);
            let mine = world.malloc::<u32>(11).unwrap();
            assert_eq!(text(world.put_from(&window, &mine, 0)), bounds);
            assert_eq!(text(world.get_into(&mine, &window, 1)), bounds);
            assert_eq!(text(window.slice(9..11).map(|_| ())), "elements 9..11 are outside a symmetric array of 10");
            assert_eq!(
                text(world.get(window.slice(3..).unwrap(), 2).map(|_| ())),
                "PE 2: this world has 2 PEs, 0 to 1"
            );
            assert!(matches!(other[0].put(&window, &[1], 0), Err(ShmemError::Foreign)));
            world.put(window.slice(10..).unwrap(), &[], 1).unwrap();
            world.barrier_all().unwrap();
        });
    }
}

/// Counts how many of these live.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Arc<Self> {
        alive.fetch_add(1, Ordering::SeqCst);
        Arc::new(Self(alive.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Registers host memory of 64 bytes whose owner is counted.
fn counted(world: &World, alive: &Arc<AtomicUsize>) -> Window<u64> {
    let memory = Box::new([0u64; 8]);
    let at = memory.as_ptr() as u64;
    let owner = Arc::new((memory, Counted::new(alive)));
    // SAFETY: `owner` owns the memory, which does not move, and no reference of Rust code to it exists.
    let region = unsafe { world.engine().space().import_device(at, 64, owner) }.unwrap();
    window_of(world, &region, 0, 8).unwrap()
}

#[test]
fn memory_is_kept_until_every_pe_has_dropped_its_window() {
    if engine(0).is_gpu() {
        return;
    }
    for worlds in worlds(2) {
        let alive = Arc::new(AtomicUsize::new(0));
        let windows = each(&worlds, |world| counted(world, &alive));
        assert_eq!(alive.load(Ordering::SeqCst), 2);
        let [a, b] = <[_; 2]>::try_from(windows).ok().unwrap();
        // PE 1 still uses the memory of PE 0, whose window is gone.
        drop(a);
        each(&worlds, |world| world.barrier_host().unwrap());
        worlds[1].put(&b, &[5; 8], 0).unwrap();
        assert_eq!(worlds[1].get(&b, 0).unwrap(), [5; 8]);
        assert_eq!(alive.load(Ordering::SeqCst), 2);
        // A clone is another owner.
        let clone = b.clone();
        drop(b);
        each(&worlds, |world| world.barrier_host().unwrap());
        assert_eq!(alive.load(Ordering::SeqCst), 2);
        drop(clone);
        // The next collective call finds out that both have dropped theirs.
        each(&worlds, |world| world.barrier_host().unwrap());
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn windows_and_worlds_end_in_any_order() {
    if engine(0).is_gpu() {
        return;
    }
    for order in 0..4 {
        for worlds in worlds(2) {
            let alive = Arc::new(AtomicUsize::new(0));
            let mut windows: Vec<_> = each(&worlds, |world| Some(counted(world, &alive)));
            let mut worlds: Vec<_> = worlds.into_iter().map(Some).collect();
            match order {
                // Windows first; worlds first; each PE by itself; one PE ends while the other uses its memory.
                0 => windows.clear(),
                1 => worlds.clear(),
                2 => {
                    windows[0] = None;
                    worlds[0] = None;
                    windows[1] = None;
                }
                _ => {
                    windows[0] = None;
                    worlds[0] = None;
                    let (world, window) = (worlds[1].as_ref().unwrap(), windows[1].as_ref().unwrap());
                    world.put(window, &[1; 8], 0).unwrap();
                    assert_eq!(world.get(window, 0).unwrap(), [1; 8]);
                }
            }
            drop((worlds, windows));
            assert_eq!(alive.load(Ordering::SeqCst), 0, "order {order}");
        }
    }
}

#[test]
fn a_kernel_in_flight_keeps_the_window() {
    for worlds in worlds(2) {
        let alive = Arc::new(AtomicUsize::new(0));
        let is_gpu = engine(0).is_gpu();
        each(&worlds, |world| {
            let region = memory(world, 4096);
            let window = if is_gpu { window_of(world, &region, 0, 8).unwrap() } else { counted(world, &alive) };
            let (flag, mine) = (world.calloc::<u64>(1).unwrap(), memory(world, 64));
            mine.set_slice(0, &[7u64; 8]).unwrap();
            let grid = crate::engine::Grid { blocks: 1, threads: world.engine().warp_width() };
            let how = SignalOp::Set as u32;
            let args = args!(world, &window, &mine, 64u64, &flag, 1u64, how, (1 - world.my_pe()) as u32);
            // SAFETY: the arguments match the kernel's parameters, and keep their memory.
            let run = unsafe { world.engine().launch("wb_shmem_window_put_signal", grid, args) }.unwrap();
            let own = window.clone();
            drop((window, mine));
            run.finish().unwrap();
            world.signal_wait_until(&flag, Cmp::Eq, 1).unwrap();
            assert_eq!(world.get(&own, world.my_pe()).unwrap(), [7; 8]);
            world.barrier_host().unwrap();
        });
        each(&worlds, |world| world.barrier_host().unwrap());
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_pe_that_is_gone_does_not_take_its_memory_along() {
    if engine(0).is_gpu() {
        return;
    }
    let mut worlds = local(2);
    let alive = Arc::new(AtomicUsize::new(0));
    let windows = each(&worlds, |world| counted(world, &alive));
    let (window, theirs) = {
        let mut w = windows.into_iter();
        (w.next().unwrap(), w.next().unwrap())
    };
    let gone = worlds.remove(1);
    gone.abandon();
    drop((theirs, gone));
    // The other PE shares the ownership.
    assert_eq!(alive.load(Ordering::SeqCst), 2);
    assert_eq!(worlds[0].get(&window, 1).unwrap(), [0; 8]);
    let e = worlds[0].barrier_host().unwrap_err().to_string();
    assert!(e.contains("rank 1"), "{e}");
    drop((window, worlds));
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}
