use std::time::Duration;
use warpbell::args;
use warpbell::engine::{Engine, Grid};
use warpbell::memory::Place;

fn main() {
    let engine = Engine::cpu().unwrap();
    let stream = engine.stream().unwrap();
    let grid = Grid { blocks: 1, threads: 1 };
    {
        let out = engine.allocate(Place::Device, 8).unwrap();
        engine.launch_on(&stream, "wb_iota", grid, args!(&out, 1u64, 0u64, 0u64)).unwrap();
    }
    stream.synchronize(Duration::from_secs(1)).unwrap();
}
