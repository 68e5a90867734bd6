use warpbell::args;
use warpbell::engine::{Engine, Run};
use warpbell::storage::Volume;

fn main() {}

pub fn run_outlives_volume(engine: &Engine, volume: Volume) -> Run<'static> {
    engine.launch("kernel", engine.grid(128, 1), args!(volume.lend())).unwrap()
}
