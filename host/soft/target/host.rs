//! Associations: a host with its controller's registers, features and queues.

use super::Shared;
use crate::wire::nvme::fabrics::{self, ANY_CONTROLLER, Connect, ConnectData, DISCOVERY_NQN, nqn_complaint};
use crate::wire::nvme::{Status, cc, csts, status};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Largest number of entries of an admin queue, and of hosts.
pub(super) const ADMIN_ENTRIES: u32 = 4096;
const MOST_HOSTS: usize = 1024;

/// A host with an association.
pub(super) struct RemoteHost {
    pub(super) controller: u16,
    /// Index of the port.
    pub(super) port: usize,
    pub(super) discovery: bool,
    data: ConnectData,
    cc: AtomicU32,
    csts: AtomicU32,
    keep_alive_ms: AtomicU32,
    last_command: Mutex<Instant>,
    closed: AtomicBool,
    queues: Mutex<BTreeSet<u16>>,
    /// Number of I/O queues that were granted.
    pub(super) granted: AtomicU32,
    /// Asynchronous Event Configuration.
    pub(super) events: AtomicU32,
}

/// ConnectError of a Connect: status and result.
pub(super) type ConnectError = (Status, u32);

/// ConnectError that names a parameter (NVMe Base 2.1, 6.3: IPO and IATTR).
fn invalid(offset: u32, in_data: bool) -> ConnectError {
    (fabrics::status::INVALID_PARAMETERS.dnr(), offset | u32::from(in_data) << 16)
}

impl RemoteHost {
    /// Processes a Connect. Returns the host, and its new queue.
    pub(super) fn connect(
        shared: &Shared,
        port: usize,
        format: u16,
        c: &Connect,
        data: &ConnectData,
    ) -> Result<Arc<Self>, ConnectError> {
        let config = &shared.config;
        if format != 0 {
            return Err((fabrics::status::INCOMPATIBLE_FORMAT.dnr(), 0));
        }
        let discovery = data.subsystem == DISCOVERY_NQN;
        if !discovery && data.subsystem != config.subsystem {
            return Err(invalid(256, true));
        }
        if nqn_complaint(&data.host).is_some() {
            return Err(invalid(512, true));
        }
        let most = if c.queue == 0 { ADMIN_ENTRIES } else { config.queue_entries };
        if c.entries < 2 || c.entries > most {
            return Err(invalid(44, false));
        }
        if c.queue != 0 {
            return Self::connect_io(shared, port, c, data);
        }
        if data.controller != ANY_CONTROLLER {
            return Err(invalid(16, true));
        }
        if config.hosts.as_ref().is_some_and(|h| !h.contains(&data.host)) {
            return Err((fabrics::status::INVALID_HOST.dnr(), 0));
        }
        if let Some(status) = config.faults.refuse {
            return Err((status, 0));
        }
        let mut hosts = shared.hosts.lock();
        if hosts.len() >= MOST_HOSTS {
            return Err((fabrics::status::CONTROLLER_BUSY, 0));
        }
        let mut next = shared.next_controller.lock();
        while *next == 0 || *next >= 0xfff0 || hosts.contains_key(&next) {
            *next = if *next >= 0xfff0 { 1 } else { *next + 1 };
        }
        let controller = *next;
        *next += 1;
        let host = Arc::new(Self {
            controller,
            port,
            discovery,
            data: data.clone(),
            cc: AtomicU32::new(0),
            csts: AtomicU32::new(0),
            keep_alive_ms: AtomicU32::new(c.keep_alive_ms),
            last_command: Mutex::new(Instant::now()),
            closed: AtomicBool::new(false),
            queues: Mutex::new(BTreeSet::from([0])),
            granted: AtomicU32::new(config.queues.into()),
            events: AtomicU32::new(0),
        });
        hosts.insert(controller, host.clone());
        Ok(host)
    }

    fn connect_io(shared: &Shared, port: usize, c: &Connect, data: &ConnectData) -> Result<Arc<Self>, ConnectError> {
        let host = shared.hosts.lock().get(&data.controller).cloned();
        // A controller belongs to one port.
        let host = host.filter(|h| h.port == port).ok_or(invalid(16, true))?;
        if host.data.host_id != data.host_id || host.data.host != data.host {
            return Err(invalid(if host.data.host != data.host { 512 } else { 0 }, true));
        }
        if host.discovery || u32::from(c.queue) > host.granted.load(Ordering::Relaxed) {
            return Err(invalid(42, false));
        }
        if !host.is_ready() {
            return Err((status::SEQUENCE_ERROR.dnr(), 0));
        }
        match host.queues.lock().insert(c.queue) {
            true => {}
            false => return Err((status::SEQUENCE_ERROR.dnr(), 0)),
        }
        Ok(host)
    }

    /// Removes a queue whose connection ended. Without its admin queue, the association ends.
    pub(super) fn leave(&self, shared: &Shared, queue: u16) {
        self.queues.lock().remove(&queue);
        if queue == 0 {
            self.close();
            shared.hosts.lock().remove(&self.controller);
        }
    }

    /// Ends all connections of the host.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.csts() & (csts::RDY | csts::CFS) == csts::RDY
    }

    pub(super) fn has_io_queues(&self) -> bool {
        self.queues.lock().iter().any(|q| *q != 0)
    }

    pub(super) fn csts(&self) -> u32 {
        self.csts.load(Ordering::SeqCst)
    }

    pub(super) fn cc(&self) -> u32 {
        self.cc.load(Ordering::SeqCst)
    }

    /// Reports controller fatal status.
    pub(super) fn fail(&self) {
        self.csts.fetch_or(csts::CFS, Ordering::SeqCst);
    }

    /// Processes a write to CC. Queue entries of other sizes are a fatal error.
    pub(super) fn configure(&self, value: u32) {
        let old = self.cc.swap(value, Ordering::SeqCst);
        let sizes = cc::IOSQES_64 | cc::IOCQES_16;
        match (old & cc::EN != 0, value & cc::EN != 0) {
            (false, true) if !self.discovery && value & sizes != sizes => self.fail(),
            (false, true) => self.csts.store(csts::RDY, Ordering::SeqCst),
            (true, false) => {
                self.csts.store(0, Ordering::SeqCst);
                // The connections of I/O queues end: they see that the controller is not ready.
            }
            _ => {}
        }
        if value & cc::SHN_MASK != 0 {
            self.csts.fetch_or(csts::SHST_COMPLETE, Ordering::SeqCst);
        }
    }

    pub(super) fn keep_alive_ms(&self) -> u32 {
        self.keep_alive_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_keep_alive(&self, ms: u32) {
        self.keep_alive_ms.store(ms, Ordering::Relaxed);
    }

    /// Starts the Keep Alive timer again, after a command of the host.
    pub(super) fn on_command(&self) {
        *self.last_command.lock() = Instant::now();
    }

    /// Returns true if the host sent no command within its Keep Alive Timeout.
    pub(super) fn is_lost(&self) -> bool {
        let ms = self.keep_alive_ms();
        ms != 0 && self.last_command.lock().elapsed() > Duration::from_millis(ms.into())
    }
}
