//! Puts and gets from kernels: PEs on a ring pass numbers to each other.
//!
//! ```text
//! $ cargo run --example 05_put_get
//! engine cpu (2 threads; ...)
//! peer 2 PEs (threads), heap 1 MiB host, atomics native
//! each of 2 PEs has the 1000 numbers of the one before it, put and got: correct
//! ```
//!
//! `--pes N` chooses the number of PEs. `warpbell run -n 4 -- target/debug/examples/05_put_get` makes each PE a process.

#[path = "support/pes.rs"]
mod pes;
mod support;

use support::{Failure, Options};
use warpbell::args;
use warpbell::engine::Grid;
use warpbell::memory::Place;
use warpbell::shmem::World;

const COUNT: usize = 1000;
/// Size of the symmetric heap of each PE in bytes.
const HEAP: usize = 1 << 20;

fn main() -> Result<(), Failure> {
    let options = Options::parse("--engine auto|gpu|cpu --pes N")?;
    pes::on_each(&options, HEAP, run)
}

fn run(world: &World) -> Result<(), Failure> {
    let (me, pes) = (world.my_pe(), world.n_pes());
    let of = |pe: usize| (0..COUNT as u64).map(|i| pe as u64 * 1_000_000 + i).collect::<Vec<_>>();
    // Symmetric memory: every PE allocates the same, at the same offset of its heap.
    let numbers = world.malloc::<u64>(COUNT)?;
    let inbox = world.malloc::<u64>(COUNT)?;
    let arrived = world.calloc::<u64>(1)?;
    // Memory of this PE alone.
    let fetched = world.engine().allocate(Place::Device, COUNT * 8)?;
    let wrong = world.engine().allocate(Place::Device, 8)?;
    numbers.write(0, &of(me))?;
    wrong.set(0, 0u64)?;
    // No PE reads the numbers of another before they are written.
    world.barrier_host()?;

    // One block: all of its threads make a call with `by_block`.
    let grid = Grid { blocks: 1, ..world.engine().grid(256, 1) };
    let args = args!(world, &numbers, &inbox, &arrived, &fetched, &wrong, COUNT as u64);
    // SAFETY: the kernel's own arguments; memory passed by reference outlives the run.
    unsafe { world.engine().launch("put_get", grid, args) }?.finish()?;

    let before = (me + pes - 1) % pes;
    let different: u64 = wrong.get(0)?;
    if different > 0 || inbox.read(0, COUNT)? != of(before) || fetched.get_slice::<u64>(0, COUNT)? != of(before) {
        return Err(format!("PE {me} does not have the numbers of PE {before} ({different} elements differ)").into());
    }
    // No PE frees its numbers before its neighbour has them.
    world.barrier_host()?;
    if me == 0 {
        println!("each of {pes} PEs has the {COUNT} numbers of the one before it, put and got: correct");
    }
    Ok(())
}
