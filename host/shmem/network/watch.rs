//! A thread that watches a PE's queue pairs. A kernel that waits for its own memory would not learn of their failure
//! otherwise.

use super::Shared;
use crate::shmem::bootstrap::Bootstrap;
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The interval between two looks.
pub(super) const PACE: Duration = Duration::from_millis(100);
/// The longest time of one look: some adapters query their firmware for each queue pair. The next look continues where
/// this one ended.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// A flag that ends the thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    pub(super) fn now(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    /// Waits for one interval, or until the end. Returns true if the end has come.
    fn within_a_pace(&self) -> bool {
        let mut stopped = self.0.0.lock();
        self.0.1.wait_while_for(&mut stopped, |stopped| !*stopped, PACE);
        *stopped
    }
}

/// Starts the thread. The thread holds no reference to the network or the bootstrap between two looks.
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
