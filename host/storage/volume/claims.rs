//! Names that one handle of a volume has for itself.

use super::{Inner, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Claim on a name, until it is dropped. Keeps the volume.
pub(in crate::storage) struct Claim {
    volume: Arc<Inner>,
    name: String,
    /// True if the name stays claimed.
    is_kept: AtomicBool,
}

impl Claim {
    /// Keeps the name claimed as long as the volume is open, also after this is dropped.
    pub(in crate::storage) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }
}

impl Volume {
    /// Claims a name. Returns `None` if somebody in this process has claimed it on this volume.
    pub(in crate::storage) fn claim(&self, name: &str) -> Option<Claim> {
        let is_new = self.0.claims.lock().insert(name.to_owned());
        is_new.then(|| Claim { volume: self.0.clone(), name: name.to_owned(), is_kept: AtomicBool::new(false) })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !*self.is_kept.get_mut() {
            self.volume.claims.lock().remove(&self.name);
        }
    }
}
