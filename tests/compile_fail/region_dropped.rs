use warpbell::args;
use warpbell::engine::Engine;
use warpbell::memory::Region;

fn main() {}

pub fn region_dropped(engine: &Engine, region: Region) {
    let run = engine.launch("kernel", engine.grid(128, 1), args!(&region)).unwrap();
    drop(region);
    run.finish().unwrap();
}
