//! A thread that looks after a PE's queue pairs: who waits for its own memory would learn of their failure from nobody else.

use super::Shared;
use crate::shmem::bootstrap::Bootstrap;
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often it looks.
pub(super) const PACE: Duration = Duration::from_millis(100);
/// What one look may take: some adapters have to ask their firmware about each queue pair. The next one goes on where it ended.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// Ends the thread, at the next chance.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    pub(super) fn now(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    /// Waits as long as a pace, or until the end: whether that has come.
    fn within_a_pace(&self) -> bool {
        let mut stopped = self.0.0.lock();
        self.0.1.wait_while_for(&mut stopped, |stopped| !*stopped, PACE);
        *stopped
    }
}

/// Starts the thread. It lets go of the network and the bootstrap between two looks.
pub(super) fn start(shared: Weak<Shared>, bootstrap: Weak<dyn Bootstrap>, stop: Stop) -> std::io::Result<()> {
    let watch = move || {
        while !stop.within_a_pace() {
            let Some(alerts) = shared.upgrade().map(|s| s.look()) else { return };
            for (pe, alert) in alerts {
                tracing::debug!(pe, ?alert, "a connection has failed");
                let Some(bootstrap) = bootstrap.upgrade() else { return };
                if pe != bootstrap.rank() {
                    bootstrap.alert(pe, &alert.to_bytes());
                }
            }
        }
    };
    std::thread::Builder::new().name("wb-network".to_owned()).spawn(watch).map(drop)
}
