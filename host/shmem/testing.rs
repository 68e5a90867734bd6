//! Helpers that the tests of worlds share.

use super::World;
use super::peer_info::DEFAULT_HEAP;
use crate::engine::testing::engine;

/// Builds a world of `n` PEs in this process, on the tests' engines.
pub(super) fn local(n: usize) -> Vec<World> {
    if !engine(0).is_gpu() { World::local(n) } else { World::local_on((0..n).map(engine).collect(), DEFAULT_HEAP) }
        .unwrap()
}

/// Runs `body` on every PE of a world of `n`, each PE in its own thread.
pub(super) fn on_all(n: usize, body: impl Fn(&World) + Sync) {
    let worlds = local(n);
    std::thread::scope(|s| {
        for world in &worlds {
            s.spawn(|| body(world));
        }
    });
}
