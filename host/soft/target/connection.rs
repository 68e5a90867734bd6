//! One connection of a host: capsules, data and responses, over any transport.

use super::admin::AdminQueue;
use super::config::TargetFaults;
use super::host::RemoteHost;
use super::io::IoQueue;
use super::ports::TargetPort;
use super::transport::{End, Event, Place, Response, Transport, violation};
use super::{NAP, Shared};
use crate::idle::{Idle, Pace, Pause};
use crate::listener::{Limits, Slot, Source};
use crate::responsive::Responsive;
use crate::wire::nvme::fabrics::{self, Connect, ConnectData, fctype};
use crate::wire::nvme::tcp::{PduError, fes};
use crate::wire::nvme::{SqEntry, Status, status};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for the initialization and Connect of a new connection.
pub(super) const INTRODUCTION: Duration = Duration::from_secs(10);
/// Most commands before Connect is accepted, and bytes of the data of one.
const MOST_COMMANDS_BEFORE: u32 = 8;
const MOST_DATA_BEFORE: u32 = fabrics::CONNECT_DATA_BYTES as u32;
/// Pauses while commands run: the device completes without a sign that ends a sleep.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: 500, naps: [Duration::from_micros(50), Duration::from_micros(500)] };

/// A command that arrived, with its data as far as it is there.
pub(super) struct Request {
    pub(super) entry: SqEntry,
    /// Length of the SGL in bytes.
    pub(super) length: u32,
    pub(super) data: Vec<u8>,
    /// Status of a data digest that did not match.
    pub(super) damaged: bool,
}

/// A response, with data for the host.
pub(super) struct Reply {
    pub(super) cid: u16,
    pub(super) status: Status,
    pub(super) result: u64,
    pub(super) data: Vec<u8>,
}

impl Reply {
    pub(super) fn new(cid: u16, status: Status, result: u64) -> Self {
        Self { cid, status, result, data: Vec::new() }
    }
}

/// Kind of queue that the connection carries.
enum Role {
    /// Nothing yet: Connect comes first.
    New,
    /// Connect was accepted. The response to this command follows once the queue is there.
    Accepted(u16),
    Admin(AdminQueue),
    Io(Box<IoQueue>),
}

pub(super) struct Connection {
    shared: Arc<Shared>,
    /// Index of the port.
    port: usize,
    transport: Box<dyn Transport>,
    role: Role,
    source: Source,
    /// The slot that the connection has among all, or among those in handshake.
    slot: Option<Slot>,
    host: Option<Arc<RemoteHost>>,
    queue: u16,
    entries: u32,
    head: u32,
    /// Commands without response, by their identifiers.
    busy: BTreeMap<u16, SqEntry>,
    /// Writes whose data was requested.
    pending: BTreeMap<u16, Request>,
    /// Commands that arrived before Connect was accepted.
    commands_before: u32,
    started: Instant,
}

/// Serves a connection until it ends.
pub(super) fn run(mut c: Connection, peer: SocketAddr) {
    let Err(End::Violation(error)) = c.serve() else { return };
    c.shared.warn_of_rejected(&peer, &error);
    if let Some(host) = &c.host {
        // An error of the host ends its whole association.
        host.close();
    }
    c.transport.terminate(&error);
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(host) = &self.host {
            host.leave(&self.shared, self.queue);
        }
    }
}

impl Connection {
    /// Creates a connection without a host, from this source.
    pub(super) fn new(
        shared: Arc<Shared>,
        port: usize,
        transport: Box<dyn Transport>,
        source: Source,
        slot: Option<Slot>,
    ) -> Self {
        Self {
            shared,
            port,
            transport,
            role: Role::New,
            source,
            slot,
            host: None,
            queue: 0,
            entries: 0,
            head: 0,
            busy: BTreeMap::new(),
            pending: BTreeMap::new(),
            commands_before: 0,
            started: Instant::now(),
        }
    }

    /// Does what can be done before Connect is accepted, without waiting. Returns true once Connect is accepted.
    pub(super) fn handshake(&mut self) -> Result<bool, End> {
        self.check_time()?;
        self.transport.receive()?;
        while !self.is_accepted()
            && let Some(event) = self.transport.next()?
        {
            self.process(event)?;
        }
        self.transport.send()?;
        Ok(self.is_accepted())
    }

    fn is_accepted(&self) -> bool {
        self.host.is_some()
    }

    /// Returns true if nothing has arrived.
    pub(super) fn is_silent(&self) -> bool {
        self.transport.is_silent()
    }

    /// Tells a host that violated the protocol before its Connect why its connection ends.
    pub(super) fn terminate(&mut self, error: &PduError) {
        self.transport.terminate(error);
    }

    fn serve(&mut self) -> Result<(), End> {
        let _responsive = Responsive::enter();
        let mut idle = Idle::new(PACE);
        loop {
            let is_closed = !self.port().is_open() || self.host.as_ref().is_some_and(|h| h.is_closed());
            if self.shared.stops() || is_closed {
                return Err(End::Closed);
            }
            if self.port().is_silent() {
                std::thread::sleep(NAP);
                continue;
            }
            self.check_time()?;
            self.open_queue()?;
            let mut busy = self.transport.receive()?;
            while let Some(event) = self.transport.next()? {
                self.process(event)?;
                self.open_queue()?;
            }
            busy |= self.complete()?;
            busy |= self.transport.send()?;
            if busy {
                idle.busy();
                continue;
            }
            let running = matches!(&self.role, Role::Io(io) if io.is_busy());
            match idle.next() {
                _ if !running => self.transport.wait(NAP),
                Pause::Nap(nap) => self.transport.wait(nap),
                pause => pause.make(std::thread::sleep),
            }
        }
    }

    fn port(&self) -> &TargetPort {
        &self.shared.ports[self.port]
    }

    fn check_time(&self) -> Result<(), End> {
        match &self.host {
            None if self.started.elapsed() > INTRODUCTION => {
                violation(fes::SEQUENCE, 0, format!("no Connect within {INTRODUCTION:?}"))
            }
            Some(host) if self.queue == 0 && host.is_lost() && !self.shared.config.faults.ignore_keep_alive => {
                tracing::warn!(host = host.controller, "no Keep Alive within {} ms", host.keep_alive_ms());
                Err(End::Closed)
            }
            // A reset or shutdown of the controller ends its I/O queues.
            Some(host) if self.queue != 0 && host.csts() & crate::wire::nvme::csts::RDY == 0 => Err(End::Closed),
            _ => Ok(()),
        }
    }

    fn process(&mut self, event: Event) -> Result<(), End> {
        match event {
            Event::Capsule { entry, data, intact } => self.command(&entry, data, intact),
            Event::Data { cid, data, intact } => match self.pending.remove(&cid) {
                Some(request) => self.execute(Request { data, damaged: !intact, ..request }),
                None => Ok(()),
            },
        }
    }

    /// Processes a command capsule.
    fn command(&mut self, e: &SqEntry, data: Vec<u8>, intact: bool) -> Result<(), End> {
        let (place, length) = self.transport.place(e);
        let reply = |status: Status| Reply::new(e.cid(), status, 0);
        if !matches!(self.role, Role::New) {
            // The queue holds one command less than it has entries (Base 2.1, 3.3.1).
            if self.busy.len() as u32 + 1 >= self.entries {
                return violation(
                    fes::SEQUENCE,
                    0,
                    format!("more commands than the queue of {} entries holds", self.entries),
                );
            }
            self.head = (self.head + 1) % self.entries;
        } else if self.commands_before == MOST_COMMANDS_BEFORE {
            return violation(
                fes::SEQUENCE,
                0,
                format!("{MOST_COMMANDS_BEFORE} commands, and no Connect was accepted"),
            );
        } else {
            self.commands_before += 1;
        }
        if self.busy.insert(e.cid(), *e).is_some() {
            return violation(fes::SEQUENCE, 10, format!("command identifier {} is in use", e.cid()));
        }
        if e.cdw0 & (3 << 14 | 3 << 8) != fabrics::SGL_IN_USE {
            return self.reply(reply(status::INVALID_FIELD.dnr()));
        }
        let is_fabrics = e.opcode() == fabrics::OPCODE;
        let limit = match (&self.role, is_fabrics) {
            (Role::Io(_), false) => self.shared.config.in_capsule_bytes,
            _ => self.transport.admin_in_capsule(),
        };
        let to_controller = match is_fabrics {
            true => fabrics::fctype_of(e) & 3 == 1,
            false => e.opcode() & 3 == 1,
        };
        if matches!(self.role, Role::New) && length > MOST_DATA_BEFORE {
            return self.reply(reply(status::SGL_LENGTH_INVALID.dnr()));
        }
        match place {
            Place::Capsule(offset) => {
                if offset != 0 || length as usize != data.len() || !to_controller {
                    return self.reply(reply(status::SGL_LENGTH_INVALID.dnr()));
                }
                if length > limit {
                    return violation(
                        fes::LIMIT_EXCEEDED,
                        0,
                        format!("{length} bytes in a capsule; the limit is {limit}"),
                    );
                }
                if let (Role::Io(_), false) = (&self.role, is_fabrics) {
                    self.shared.commands_with_data.fetch_add(1, Ordering::Relaxed);
                }
                let request = Request { entry: *e, length, data, damaged: !intact };
                self.execute(request)
            }
            Place::Host => {
                if !data.is_empty() {
                    return violation(fes::INVALID_FIELD, 4, "a capsule with data names data at the host");
                }
                let request = Request { entry: *e, length, data, damaged: false };
                if !to_controller || length == 0 {
                    return self.execute(request);
                }
                if length > self.shared.config.max_transfer_bytes {
                    return self.reply(reply(status::INVALID_FIELD.dnr()));
                }
                self.pending.insert(e.cid(), request);
                self.transport.pull(e, length)
            }
            Place::Unknown => self.reply(reply(status::SGL_TYPE_INVALID.dnr())),
        }
    }

    /// Executes a command whose data is there.
    fn execute(&mut self, request: Request) -> Result<(), End> {
        let e = request.entry;
        if request.damaged {
            return self.reply(Reply::new(e.cid(), status::TRANSIENT_TRANSPORT_ERROR, 0));
        }
        match &mut self.role {
            Role::New => self.connect(&request),
            // The queue is opened before the next command is taken.
            Role::Accepted(_) => Ok(()),
            Role::Admin(admin) => {
                let reached = self.transport.reached()?;
                match admin.execute(&request, reached) {
                    Some(reply) => self.reply(reply),
                    None => Ok(()),
                }
            }
            Role::Io(io) => {
                let count = self.shared.commands.fetch_add(1, Ordering::SeqCst) + 1;
                let faults = &self.shared.config.faults;
                if faults.close_at == Some(count) {
                    self.shared.hosts.lock().values().for_each(|h| h.close());
                    return Err(End::Closed);
                }
                if let Some((_, time)) = faults.silent_at.filter(|(at, _)| *at == count) {
                    self.shared.ports.iter().for_each(|p| p.be_silent(time));
                }
                if faults.fatal_at == Some(count) {
                    self.shared.hosts.lock().values().for_each(|h| h.fail());
                }
                if faults.ignore_io || faults.fatal_at.is_some_and(|at| count >= at) {
                    return Ok(());
                }
                if let Some(status) = self.shared.ports[self.port].access().status() {
                    return self.reply(Reply::new(e.cid(), status, 0));
                }
                match io.submit(request) {
                    Some(reply) => self.reply(reply),
                    None => Ok(()),
                }
            }
        }
    }

    fn connect(&mut self, request: &Request) -> Result<(), End> {
        let e = &request.entry;
        if e.opcode() != fabrics::OPCODE || fabrics::fctype_of(e) != fctype::CONNECT {
            return self.reply(Reply::new(e.cid(), status::SEQUENCE_ERROR.dnr(), 0));
        }
        let (format, connect) = Connect::read(e);
        if request.data.len() != fabrics::CONNECT_DATA_BYTES {
            return self.reply(Reply::new(e.cid(), status::SGL_LENGTH_INVALID.dnr(), 0));
        }
        if let Some((queue, entries)) = self.transport.requested()
            && (queue, entries) != (connect.queue, connect.entries)
        {
            // The parameter that differs from the connection request: QID or SQSIZE.
            let offset = if queue != connect.queue { 42 } else { 44 };
            return self.reply(Reply::new(e.cid(), fabrics::status::INVALID_PARAMETERS.dnr(), offset));
        }
        if connect.queue != 0 && self.shared.config.faults.close_io_connect {
            return Err(End::Closed);
        }
        let known = self.shared.known.lock().has(self.source);
        let Some(slot) = self.shared.connected.take(self.source, known) else {
            let Limits { all, of_one_source, reserved } = self.shared.connected.limits();
            let why = format!(
                "no slot is free: a target has {all} connections, {of_one_source} of one address, and keeps {reserved} for known hosts"
            );
            self.shared.warn_of_rejected(&self.source, &why);
            return self.reply(Reply::new(e.cid(), fabrics::status::CONTROLLER_BUSY, 0));
        };
        let data = ConnectData::read(&request.data);
        let host = match RemoteHost::connect(&self.shared, self.port, format, &connect, &data) {
            Ok(host) => host,
            Err((status, result)) => return self.reply(Reply::new(e.cid(), status, result.into())),
        };
        self.shared.known.lock().insert(self.source);
        self.slot = Some(slot);
        (self.queue, self.entries, self.head) = (connect.queue, connect.entries, 1 % connect.entries);
        self.host = Some(host);
        self.role = Role::Accepted(e.cid());
        Ok(())
    }

    /// Opens the queue of a host whose Connect was accepted, and sends the response to Connect.
    fn open_queue(&mut self) -> Result<(), End> {
        let (Role::Accepted(cid), Some(host)) = (&self.role, self.host.clone()) else { return Ok(()) };
        let cid = *cid;
        self.role = match self.queue {
            0 => Role::Admin(AdminQueue::new(self.shared.clone(), host.clone())),
            _ => match IoQueue::new(&self.shared, self.entries) {
                Ok(io) => Role::Io(Box::new(io)),
                Err(error) => {
                    tracing::warn!(%error, "no queue pair of the device for a host");
                    host.leave(&self.shared, self.queue);
                    (self.host, self.role) = (None, Role::New);
                    return self.reply(Reply::new(cid, fabrics::status::CONTROLLER_BUSY, 0));
                }
            },
        };
        let demands = self.shared.config.faults.demand_authentication;
        let demanded = if demands { fabrics::TRANSACTION_REQUIRED.into() } else { 0 };
        self.reply(Reply::new(cid, status::SUCCESS, u64::from(host.controller) | demanded))
    }

    /// Sends the responses of I/O commands that the device has completed, and events.
    fn complete(&mut self) -> Result<bool, End> {
        let replies = match &mut self.role {
            Role::New | Role::Accepted(_) => return Ok(false),
            Role::Admin(admin) => admin.event().into_iter().collect(),
            Role::Io(io) => io.poll().map_err(|error| {
                tracing::warn!(%error, "the device failed");
                End::Closed
            })?,
        };
        let any = !replies.is_empty();
        replies.into_iter().try_for_each(|r| self.reply(r))?;
        Ok(any)
    }

    /// Sends a response and its data, with the faults that are due.
    fn reply(&mut self, reply: Reply) -> Result<(), End> {
        let Some(command) = self.busy.remove(&reply.cid) else { return Ok(()) };
        let shared = self.shared.clone();
        let faults = &shared.config.faults;
        let is_io = matches!(self.role, Role::Io(_)) && self.queue != 0;
        let due = |every, count| is_io && TargetFaults::due(every, count);
        let has_data = !reply.data.is_empty();
        let read = if is_io && has_data { shared.reads.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        let count = if is_io { shared.responses.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        let end = if has_data && due(faults.short_data, read) { reply.data.len() / 2 } else { reply.data.len() };
        let cid = if due(faults.unknown_cid, count) { reply.cid ^ 0x800 } else { reply.cid };
        let head = if due(faults.wrong_head, count) { self.entries + 7 } else { self.head };
        let response = Response {
            cid: reply.cid,
            data: &reply.data[..end],
            entry: fabrics::response(cid, head as u16, reply.result, reply.status),
            times: if due(faults.repeat_response, count) { 2 } else { 1 },
            is_short: due(faults.short_response, count),
            damaged_header: due(faults.wrong_header_digest, count),
            damaged_data: has_data && due(faults.wrong_data_digest, read),
        };
        self.transport.respond(&command, &response)
    }
}
