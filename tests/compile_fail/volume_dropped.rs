use warpbell::args;
use warpbell::engine::Engine;
use warpbell::storage::Volume;

fn main() {}

pub fn volume_dropped(engine: &Engine, volume: Volume) {
    let run = engine.launch("kernel", engine.grid(128, 1), args!(volume.lend())).unwrap();
    drop(volume);
    run.finish().unwrap();
}
