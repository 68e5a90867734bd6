//! One connection of a host: capsules, data and responses, over any transport.

use super::admin::AdminQueue;
use super::config::TargetFaults;
use super::host::RemoteHost;
use super::io::IoQueue;
use super::ports::TargetPort;
use super::transport::{End, Event, Place, Response, Transport, violation};
use super::{NAP, Shared};
use crate::idle::{Idle, Pace, Pause};
use crate::responsive::Responsive;
use crate::wire::nvme::fabrics::{self, Connect, ConnectData, fctype};
use crate::wire::nvme::tcp::fes;
use crate::wire::nvme::{SqEntry, Status, status};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for the initialization and Connect of a new connection.
pub(super) const INTRODUCTION: Duration = Duration::from_secs(10);
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
    Admin(AdminQueue),
    Io(Box<IoQueue>),
}

pub(super) struct Connection {
    shared: Arc<Shared>,
    /// Index of the port.
    port: usize,
    transport: Box<dyn Transport>,
    role: Role,
    host: Option<Arc<RemoteHost>>,
    queue: u16,
    entries: u32,
    head: u32,
    /// Commands without response, by their identifiers.
    busy: BTreeMap<u16, SqEntry>,
    /// Writes whose data was requested.
    pending: BTreeMap<u16, Request>,
    started: Instant,
}

/// Serves a connection until it ends.
pub(super) fn run(shared: &Arc<Shared>, transport: Box<dyn Transport>, port: usize, peer: SocketAddr) {
    let mut c = Connection {
        shared: shared.clone(),
        port,
        transport,
        role: Role::New,
        host: None,
        queue: 0,
        entries: 0,
        head: 0,
        busy: BTreeMap::new(),
        pending: BTreeMap::new(),
        started: Instant::now(),
    };
    let end = c.serve();
    let Some(host) = c.host.clone() else { return c.part(peer, end) };
    if matches!(end, Err(End::Violation(_))) {
        // An error of the host ends its whole association.
        host.close();
    }
    host.leave(shared, c.queue);
    c.part(peer, end);
}

impl Connection {
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
            let mut busy = self.transport.receive()?;
            while let Some(event) = self.transport.next()? {
                self.process(event)?;
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

    /// Tells the host why its connection ends.
    fn part(&mut self, peer: SocketAddr, end: Result<(), End>) {
        if let Err(End::Violation(error)) = end {
            tracing::warn!(%peer, queue = self.queue, %error, "the host violated the protocol");
            self.transport.terminate(&error);
        }
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
        let data = ConnectData::read(&request.data);
        let host = match RemoteHost::connect(&self.shared, self.port, format, &connect, &data) {
            Ok(host) => host,
            Err((status, result)) => return self.reply(Reply::new(e.cid(), status, result.into())),
        };
        (self.queue, self.entries, self.head) = (connect.queue, connect.entries, 1 % connect.entries);
        self.host = Some(host.clone());
        self.role = match connect.queue {
            0 => Role::Admin(AdminQueue::new(self.shared.clone(), host.clone())),
            _ => match IoQueue::new(&self.shared, connect.entries) {
                Ok(io) => Role::Io(Box::new(io)),
                Err(error) => {
                    tracing::warn!(%error, "no queue pair of the device for a host");
                    return self.reply(Reply::new(e.cid(), fabrics::status::CONTROLLER_BUSY, 0));
                }
            },
        };
        let demands = self.shared.config.faults.demand_authentication;
        let demanded = if demands { fabrics::TRANSACTION_REQUIRED.into() } else { 0 };
        self.reply(Reply::new(e.cid(), status::SUCCESS, u64::from(host.controller) | demanded))
    }

    /// Sends the responses of I/O commands that the device has completed, and events.
    fn complete(&mut self) -> Result<bool, End> {
        let replies = match &mut self.role {
            Role::New => return Ok(false),
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
