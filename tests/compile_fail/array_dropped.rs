use warpbell::args;
use warpbell::engine::Engine;
use warpbell::storage::Array;

fn main() {}

pub fn array_dropped(engine: &Engine, edges: Array<u32>) {
    let run = engine.launch("kernel", engine.grid(128, 1), args!(edges.lend())).unwrap();
    drop(edges);
    run.finish().unwrap();
}
