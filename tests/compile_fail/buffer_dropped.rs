use warpbell::args;
use warpbell::engine::Engine;
use warpbell::storage::DataBuffer;

fn main() {}

pub fn buffer_dropped(engine: &Engine, buffer: DataBuffer) {
    let run = engine.launch("kernel", engine.grid(128, 1), args!(&buffer)).unwrap();
    drop(buffer);
    run.finish().unwrap();
}
