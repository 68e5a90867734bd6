use warpbell::args;
use warpbell::shmem::{Sym, World};

fn main() {}

pub fn sym_freed(world: &World, data: Sym<u64>) {
    let part = data.slice(..10).unwrap();
    let run = world.engine().launch("kernel", world.engine().grid(128, 1), args!(world, part)).unwrap();
    world.free(data).unwrap();
    run.finish().unwrap();
}
