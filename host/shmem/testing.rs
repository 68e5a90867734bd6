//! What tests of worlds share.

use super::World;
use crate::engine::testing::engine;

/// Bytes of a heap on a GPU.
const GPU_HEAP: usize = 64 << 20;

/// A world of `n` PEs in this process, on the tests' engines.
pub(super) fn local(n: usize) -> Vec<World> {
    if !engine(0).is_gpu() { World::local(n) } else { World::local_on((0..n).map(engine).collect(), GPU_HEAP) }.unwrap()
}

/// Runs `body` on every PE of a world of `n`, each in a thread of its own.
pub(super) fn on_all(n: usize, body: impl Fn(&World) + Sync) {
    let worlds = local(n);
    std::thread::scope(|s| {
        for world in &worlds {
            s.spawn(|| body(world));
        }
    });
}
