use warpbell::args;
use warpbell::engine::{Grid, Stream};
use warpbell::memory::Region;

fn main() {}

pub fn add<'short>(stream: &Stream<'static>, out: &'short Region) {
    let shorter: &Stream<'short> = stream;
    shorter.launch("wb_iota", Grid { blocks: 1, threads: 1 }, args!(out, 1u64, 0u64, 0u64)).unwrap();
}
