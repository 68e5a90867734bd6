use warpbell::args;
use warpbell::engine::Engine;
use warpbell::nvme::QueueSet;

fn main() {}

pub fn queues_dropped(engine: &Engine, queues: QueueSet) {
    let run = engine.launch("kernel", engine.grid(128, 1), args!(queues.lend())).unwrap();
    drop(queues);
    run.finish().unwrap();
}
