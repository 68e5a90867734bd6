use warpbell::args;
use warpbell::engine::Engine;
use warpbell::nvme::QueueSet;

fn main() {}

pub fn queues_reset(engine: &Engine, mut queues: QueueSet) {
    let run = engine.launch("kernel", engine.grid(128, 1), args!(queues.lend())).unwrap();
    queues.reset().unwrap();
    run.finish().unwrap();
}
