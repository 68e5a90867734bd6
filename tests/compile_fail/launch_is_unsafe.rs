use warpbell::args;
use warpbell::engine::Engine;

fn main() {}

/// Launches a kernel with 0x1000, which is the address of no cache: the kernel would read there.
pub fn launch_is_unsafe(engine: &Engine) {
    engine.launch("wb_cache_flush", engine.grid(128, 1), args!(0x1000u64)).unwrap().finish().unwrap();
}
