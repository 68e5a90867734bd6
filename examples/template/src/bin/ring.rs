//! Four PEs pass numbers around a ring.

#[path = "../engine.rs"]
mod engine;

use std::error::Error;
use std::thread;
use warpbell::args;
use warpbell::engine::Grid;
use warpbell::memory::Place;
use warpbell::shmem::World;

type Failure = Box<dyn Error + Send + Sync>;

const PES: usize = 4;
const COUNT: usize = 1000;

fn main() -> Result<(), Failure> {
    let engines = (0..PES).map(|_| engine::open()).collect::<Result<Vec<_>, _>>()?;
    println!("engine {}", engines[0]);
    // One PE for each engine, each with a symmetric heap of 8 MiB, and each in a thread of its own.
    let worlds = World::local_on(engines, 8 << 20)?;
    println!("{}", worlds[0].path());
    let pes: Vec<_> = worlds.into_iter().map(|world| thread::spawn(move || pass(&world))).collect();
    for pe in pes {
        pe.join().expect("no panic")?;
    }
    println!("each PE has the numbers of the one before it: correct");
    Ok(())
}

fn pass(world: &World) -> Result<(), Failure> {
    let (me, pes) = (world.my_pe(), world.n_pes());
    // Symmetric memory: every PE allocates the same, at the same offset of its heap.
    let inbox = world.malloc::<u64>(COUNT)?;
    let arrived = world.calloc::<u64>(1)?;
    let of = |pe: usize| (0..COUNT as u64).map(|i| pe as u64 * 1_000_000 + i).collect::<Vec<_>>();
    let numbers = world.engine().allocate(Place::Device, COUNT * 8)?;
    numbers.set_slice(0, &of(me))?;
    world.barrier_host()?;

    // One block: a call with `by_block` is made by all of its threads.
    let grid = Grid { blocks: 1, ..world.engine().grid(256, 1) };
    // SAFETY: the parameters of the kernel `ring` have these types, in this order.
    unsafe { world.engine().launch("ring", grid, args!(world, &inbox, &numbers, &arrived)) }?.finish()?;

    let before = (me + pes - 1) % pes;
    match inbox.read(0, COUNT)? == of(before) {
        true => Ok(()),
        false => Err(format!("PE {me}: the inbox does not have the numbers of PE {before}").into()),
    }
}
