//! Ports of a target: each listens at an address, and reaches the namespaces in a state of its own (ANA).

use super::TargetError;
use crate::wire::nvme::ana::{AccessGroup, AccessLog, AccessState};
use parking_lot::Mutex;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Identifier of the group that has all namespaces.
pub(super) const GROUP: u32 = 1;

/// A port.
#[derive(Debug)]
pub(super) struct TargetPort {
    pub(super) address: SocketAddr,
    access: AtomicU8,
    /// Number of changes of the access state.
    changes: AtomicU64,
    open: AtomicBool,
    /// End of the time in which nothing is sent.
    silent_until: Mutex<Option<Instant>>,
}

impl TargetPort {
    /// Listens at an address.
    pub(super) fn listen(address: SocketAddr) -> Result<(Self, TcpListener), TargetError> {
        let refused = |source| TargetError::Listen { address, source };
        let listener = bind(address).map_err(refused)?;
        let port = Self {
            address: listener.local_addr().map_err(refused)?,
            access: AtomicU8::new(AccessState::Optimized.field()),
            changes: AtomicU64::new(0),
            open: AtomicBool::new(true),
            silent_until: Mutex::new(None),
        };
        Ok((port, listener))
    }

    pub(super) fn access(&self) -> AccessState {
        AccessState::of(self.access.load(Ordering::SeqCst))
    }

    #[cfg(feature = "internals")]
    pub(super) fn set_access(&self, state: AccessState) {
        self.access.store(state.field(), Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    #[cfg(feature = "internals")]
    pub(super) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }

    /// Returns true if nothing may be sent now.
    pub(super) fn is_silent(&self) -> bool {
        self.silent_until.lock().is_some_and(|t| Instant::now() < t)
    }

    pub(super) fn be_silent(&self, time: Duration) {
        *self.silent_until.lock() = Some(Instant::now() + time);
    }

    /// Returns the log page of access states for a host at this port.
    pub(super) fn access_log(&self, namespaces: impl IntoIterator<Item = u32>) -> AccessLog {
        let group = AccessGroup { id: GROUP, state: self.access(), namespaces: namespaces.into_iter().collect() };
        AccessLog { changes: self.changes(), groups: vec![group] }
    }
}

/// Returns a listening socket that does not wait.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
