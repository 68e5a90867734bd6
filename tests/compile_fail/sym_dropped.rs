use warpbell::args;
use warpbell::shmem::{Sym, World};

fn main() {}

pub fn sym_dropped(world: &World, data: Sym<u64>) {
    let run = world.engine().launch("kernel", world.engine().grid(128, 1), args!(world, &data)).unwrap();
    drop(data);
    run.finish().unwrap();
}
