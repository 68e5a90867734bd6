//! What tests of worlds share.

use super::World;

/// Runs `body` on every PE of a world of `n`, each in a thread of its own.
pub(super) fn on_all(n: usize, body: impl Fn(&World) + Sync) {
    let worlds = World::local(n).unwrap();
    std::thread::scope(|s| {
        for world in &worlds {
            s.spawn(|| body(world));
        }
    });
}
