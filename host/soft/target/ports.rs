//! Ports of a target: each listens at an address, and reaches the namespaces in a state of its own (ANA).

use super::{NAP, Shared, TargetError, start_transport};
use crate::idle;
use crate::soft::target::connection;
use crate::wire::nvme::ana::{AccessGroup, AccessLog, AccessState};
use parking_lot::Mutex;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Identifier of the group that has all namespaces.
pub(super) const GROUP: u32 = 1;
/// Largest number of connections at a time.
const MOST_CONNECTIONS: usize = 4096;

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

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts connections at all open ports until the target ends.
pub(super) fn accept(shared: &Arc<Shared>, listeners: Vec<TcpListener>) {
    let mut listeners: Vec<_> = listeners.into_iter().map(Some).collect();
    while !shared.stops() {
        for (port, listener) in shared.ports.iter().zip(&mut listeners) {
            match (port.is_open(), listener.is_some()) {
                (false, true) => *listener = None,
                // The address may be in use for a moment; the next round tries again.
                (true, false) => *listener = bind(port.address).ok(),
                _ => {}
            }
        }
        let heard = shared.ports.iter().zip(&listeners).filter(|(p, _)| !p.is_silent());
        let all: Vec<_> = heard.filter_map(|(_, l)| l.as_ref()).map(|l| (l.as_raw_fd(), false)).collect();
        match all.is_empty() {
            true => std::thread::sleep(NAP),
            false => idle::wait(&all, NAP),
        }
        for (port, listener) in listeners.iter().enumerate() {
            if let Some(listener) = listener
                && !shared.ports[port].is_silent()
            {
                accept_one(shared, port, listener);
            }
        }
    }
}

/// Accepts a connection, if there is one, and starts its thread.
fn accept_one(shared: &Arc<Shared>, port: usize, listener: &TcpListener) {
    let Ok((stream, peer)) = listener.accept() else { return };
    let mut connections = shared.connections.lock();
    connections.retain(|t| !t.is_finished());
    if connections.len() >= MOST_CONNECTIONS {
        return tracing::warn!(%peer, "a connection was refused: {MOST_CONNECTIONS} are open");
    }
    let work = shared.clone();
    let run = move || {
        if let Some(transport) = start_transport(&work, stream, peer) {
            connection::run(&work, transport, port, peer);
        }
    };
    match std::thread::Builder::new().name("soft-target-queue".into()).spawn(run) {
        Ok(t) => connections.push(t),
        Err(error) => tracing::warn!(%peer, %error, "a connection was refused: no thread"),
    }
}
