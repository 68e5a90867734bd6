use warpbell::args;
use warpbell::engine::Engine;
use warpbell::storage::Cache;

fn main() {}

pub fn cache_dropped(engine: &Engine, cache: Cache) {
    let run = engine.launch("kernel", engine.grid(128, 1), args!(cache.lend())).unwrap();
    drop(cache);
    run.finish().unwrap();
}
