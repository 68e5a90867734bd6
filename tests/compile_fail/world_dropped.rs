use warpbell::args;
use warpbell::engine::Engine;
use warpbell::shmem::World;

fn main() {}

pub fn world_dropped(engine: &Engine, world: World) {
    let run = engine.launch("kernel", engine.grid(128, 1), args!(&world)).unwrap();
    drop(world);
    run.finish().unwrap();
}
