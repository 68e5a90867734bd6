//! One connection of a host: initialization, capsules, data, responses (NVMe/TCP Transport 1.1).

use super::admin::AdminQueue;
use super::config::TargetFaults;
use super::host::RemoteHost;
use super::io::IoQueue;
use super::{NAP, Shared};
use crate::idle::{self, Idle, Pace, Pause};
use crate::wire::nvme::fabrics::{self, Connect, ConnectData, descriptor_of, fctype, sgl};
use crate::wire::nvme::tcp::{
    ADMIN_IN_CAPSULE_BYTES, DataRange, Digests, IcResp, Pdu, PduError, Reader, Received, Writer, fes, flag,
};
use crate::wire::nvme::{SqEntry, Status, status};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Largest data of one H2CData in bytes (MAXH2CDATA), and of one C2HData.
const MOST_DATA: u32 = 64 << 10;
/// Time for ICReq and Connect of a new connection.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// Pauses while commands run: the device completes without a sign that ends a sleep.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: 500, naps: [Duration::from_micros(50), Duration::from_micros(500)] };

/// Reason for the end of a connection.
pub(super) enum End {
    /// The host closed it, or the target ends.
    Closed,
    /// The host violated the protocol.
    Violation(PduError),
}

impl From<PduError> for End {
    fn from(e: PduError) -> Self {
        Self::Violation(e)
    }
}

fn violation<T>(status: u16, information: u32, reason: impl Into<String>) -> Result<T, End> {
    Err(End::Violation(PduError { status, information, reason: reason.into() }))
}

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

/// A write whose data arrives.
struct Pending {
    request: Request,
    received: u32,
}

pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    stream: TcpStream,
    reader: Reader,
    writer: Writer,
    out: Vec<u8>,
    initialized: bool,
    role: Role,
    host: Option<Arc<RemoteHost>>,
    queue: u16,
    entries: u32,
    head: u32,
    /// Identifiers of commands without response.
    busy: BTreeSet<u16>,
    /// Writes whose data was requested, by command identifier.
    pending: BTreeMap<u16, Pending>,
    started: Instant,
}

/// Serves a connection until it ends.
pub(super) fn run(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
        return;
    }
    let mut c = Connection {
        shared: shared.clone(),
        stream,
        reader: Reader::new(ADMIN_IN_CAPSULE_BYTES.max(MOST_DATA as usize)),
        writer: Writer::default(),
        out: Vec::new(),
        initialized: false,
        role: Role::New,
        host: None,
        queue: 0,
        entries: 0,
        head: 0,
        busy: BTreeSet::new(),
        pending: BTreeMap::new(),
        started: Instant::now(),
    };
    let end = c.serve();
    let Some(host) = c.host.clone() else { return c.part(peer, end) };
    if matches!(end, Err(End::Violation(_))) {
        // An error of the host ends its whole association.
        host.close();
    }
    host.leave(&shared, c.queue);
    c.part(peer, end);
}

impl Connection {
    fn serve(&mut self) -> Result<(), End> {
        let mut idle = Idle::new(PACE);
        loop {
            if self.shared.stops() || self.host.as_ref().is_some_and(|h| h.is_closed()) {
                return Err(End::Closed);
            }
            if self.shared.is_silent() {
                std::thread::sleep(NAP);
                continue;
            }
            self.check_time()?;
            let mut busy = self.receive()?;
            busy |= self.complete()?;
            busy |= self.send()?;
            if busy {
                idle.busy();
                continue;
            }
            let running = matches!(&self.role, Role::Io(io) if io.is_busy());
            match idle.next() {
                _ if !running => idle::wait(&[(self.stream.as_raw_fd(), !self.out.is_empty())], NAP),
                Pause::Nap(nap) => idle::wait(&[(self.stream.as_raw_fd(), !self.out.is_empty())], nap),
                pause => pause.make(std::thread::sleep),
            }
        }
    }

    /// Tells the host why its connection ends.
    fn part(&mut self, peer: SocketAddr, end: Result<(), End>) {
        if let Err(End::Violation(error)) = end {
            tracing::warn!(%peer, queue = self.queue, %error, "the host violated the protocol");
            self.writer.terminate(&mut self.out, true, &error, &[]);
            // The host may not read it.
            let _ = self.send();
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

    fn send(&mut self) -> Result<bool, End> {
        let mut sent = 0;
        while sent < self.out.len() {
            match self.stream.write(&self.out[sent..]) {
                Ok(0) => return Err(End::Closed),
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(End::Closed),
            }
        }
        self.out.drain(..sent);
        Ok(sent > 0)
    }

    fn receive(&mut self) -> Result<bool, End> {
        match self.stream.read(self.reader.space()) {
            Ok(0) => return Err(End::Closed),
            Ok(n) => self.reader.filled(n),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(_) => return Err(End::Closed),
        }
        while let Some(p) = self.reader.next()? {
            self.process(&p)?;
        }
        Ok(true)
    }

    fn process(&mut self, p: &Received) -> Result<(), End> {
        match p.pdu {
            Pdu::IcReq(r) if !self.initialized => {
                if r.version != 0 {
                    return violation(fes::UNSUPPORTED_PARAMETER, 8, format!("PDU format version {}", r.version));
                }
                if r.alignment > 31 {
                    return violation(fes::INVALID_FIELD, 10, format!("HPDA {}", r.alignment));
                }
                let digests = if self.shared.config.digests { r.digests } else { Digests::default() };
                let reply = IcResp { version: 0, alignment: 0, digests, max_h2c_data: MOST_DATA };
                self.writer.put(&mut self.out, &Pdu::IcResp(reply), 0, &[]);
                self.writer = Writer { digests, alignment: r.alignment };
                self.reader.set_digests(digests);
                self.initialized = true;
                Ok(())
            }
            Pdu::Command(e) if self.initialized => self.command(&e, p),
            Pdu::H2cData(r) if self.initialized => self.data(&r, p),
            Pdu::Terminate { by_controller: false, status, .. } => {
                tracing::debug!(queue = self.queue, "the host ended the connection: {}", fes::name(status));
                Err(End::Closed)
            }
            other => violation(fes::SEQUENCE, 0, format!("a host may not send this now: {other:?}")),
        }
    }

    /// Processes a command capsule.
    fn command(&mut self, e: &SqEntry, p: &Received) -> Result<(), End> {
        let data = self.reader.data(p).to_vec();
        let (address, length, kind) = descriptor_of(e);
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
        if !self.busy.insert(e.cid()) {
            return violation(fes::SEQUENCE, 10, format!("command identifier {} is in use", e.cid()));
        }
        if e.cdw0 & (3 << 14 | 3 << 8) != fabrics::SGL_IN_USE {
            return self.reply(reply(status::INVALID_FIELD.dnr()));
        }
        let is_fabrics = e.opcode() == fabrics::OPCODE;
        let limit = match (&self.role, is_fabrics) {
            (Role::Io(_), false) => self.shared.config.in_capsule_bytes,
            _ => ADMIN_IN_CAPSULE_BYTES as u32,
        };
        let to_controller = match is_fabrics {
            true => fabrics::fctype_of(e) & 3 == 1,
            false => e.opcode() & 3 == 1,
        };
        match kind {
            sgl::IN_CAPSULE => {
                if address != 0 || length as usize != data.len() || !to_controller {
                    return self.reply(reply(status::SGL_LENGTH_INVALID.dnr()));
                }
                if length > limit {
                    return violation(
                        fes::LIMIT_EXCEEDED,
                        0,
                        format!("{length} bytes in a capsule; the limit is {limit}"),
                    );
                }
                let request = Request { entry: *e, length, data, damaged: !p.intact };
                self.execute(request)
            }
            sgl::TRANSPORT => {
                if !data.is_empty() {
                    return violation(fes::INVALID_FIELD, 4, "a capsule with data names a transport data block");
                }
                let request = Request { entry: *e, length, data, damaged: false };
                if !to_controller || length == 0 {
                    return self.execute(request);
                }
                if length > self.shared.config.max_transfer_bytes {
                    return self.reply(reply(status::INVALID_FIELD.dnr()));
                }
                let range = DataRange { cid: e.cid(), tag: e.cid(), offset: 0, length };
                self.pending.insert(e.cid(), Pending { request, received: 0 });
                self.writer.put(&mut self.out, &Pdu::R2t(range), 0, &[]);
                Ok(())
            }
            _ => self.reply(reply(status::SGL_TYPE_INVALID.dnr())),
        }
    }

    /// Processes data that was requested.
    fn data(&mut self, r: &DataRange, p: &Received) -> Result<(), End> {
        let Some(w) = self.pending.get_mut(&r.tag).filter(|w| w.request.entry.cid() == r.cid) else {
            return violation(fes::INVALID_FIELD, 10, format!("no data was requested with tag {}", r.tag));
        };
        if r.offset != w.received || w.request.length - w.received < r.length || r.length > MOST_DATA {
            let reason =
                format!("{} bytes at offset {}; {} of {} were there", r.length, r.offset, w.received, w.request.length);
            return violation(fes::OUT_OF_RANGE, 12, reason);
        }
        w.received += r.length;
        w.request.data.extend_from_slice(self.reader.data(p));
        w.request.damaged |= !p.intact;
        if (p.flags & flag::LAST != 0) != (w.received == w.request.length) {
            return violation(
                fes::INVALID_FIELD,
                1,
                "LAST_PDU is not set at the end of the requested data, and only there",
            );
        }
        if w.received < w.request.length {
            return Ok(());
        }
        match self.pending.remove(&r.tag) {
            Some(w) => self.execute(w.request),
            None => Ok(()),
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
                let reached = self.stream.local_addr().map_err(|_| End::Closed)?.ip();
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
                    *self.shared.silent_until.lock() = Some(Instant::now() + time);
                }
                if faults.fatal_at == Some(count) {
                    self.shared.hosts.lock().values().for_each(|h| h.fail());
                }
                if faults.ignore_io || faults.fatal_at.is_some_and(|at| count >= at) {
                    return Ok(());
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
        if connect.queue != 0 && self.shared.config.faults.close_io_connect {
            return Err(End::Closed);
        }
        let data = ConnectData::read(&request.data);
        let host = match RemoteHost::connect(&self.shared, format, &connect, &data) {
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
        // AUTHREQ in bit 16 and on (Base 2.1, 6.3).
        let demanded = u64::from(self.shared.config.faults.demand_authentication) << 16;
        self.reply(Reply::new(e.cid(), status::SUCCESS, u64::from(host.controller) | demanded))
    }

    /// Sends the responses of I/O commands that the device has completed.
    fn complete(&mut self) -> Result<bool, End> {
        let Role::Io(io) = &mut self.role else { return Ok(false) };
        let replies = io.poll().map_err(|error| {
            tracing::warn!(%error, "the device failed");
            End::Closed
        })?;
        let any = !replies.is_empty();
        replies.into_iter().try_for_each(|r| self.reply(r))?;
        Ok(any)
    }

    /// Sends a response and its data, with the faults that are due.
    fn reply(&mut self, reply: Reply) -> Result<(), End> {
        self.busy.remove(&reply.cid);
        let shared = self.shared.clone();
        let faults = &shared.config.faults;
        let is_io = matches!(self.role, Role::Io(_)) && self.queue != 0;
        let due = |every, count| is_io && TargetFaults::due(every, count);
        if !reply.data.is_empty() {
            let count = if is_io { shared.reads.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
            let whole = reply.data.len();
            let end = if due(faults.short_data, count) { whole / 2 } else { whole };
            for (i, piece) in reply.data[..end].chunks(MOST_DATA as usize).enumerate() {
                let offset = i * MOST_DATA as usize;
                let range = DataRange { cid: reply.cid, tag: 0, offset: offset as u32, length: piece.len() as u32 };
                let last = if offset + piece.len() == end { flag::LAST } else { 0 };
                self.writer.put(&mut self.out, &Pdu::C2hData(range), last, piece);
                if self.writer.digests.data
                    && due(faults.wrong_data_digest, count)
                    && let Some(b) = self.out.last_mut()
                {
                    *b ^= 0xff;
                }
            }
        }
        let count = if is_io { shared.responses.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        let cid = if due(faults.unknown_cid, count) { reply.cid ^ 0x800 } else { reply.cid };
        let head = if due(faults.wrong_head, count) { self.entries + 7 } else { self.head };
        let response = Pdu::Response(fabrics::response(cid, head as u16, reply.result, reply.status));
        let at = self.out.len();
        for _ in 0..if due(faults.repeat_response, count) { 2 } else { 1 } {
            self.writer.put(&mut self.out, &response, 0, &[]);
        }
        if self.writer.digests.header && due(faults.wrong_header_digest, count) {
            // The digest follows the header of 24 bytes.
            self.out[at + 24] ^= 0xff;
        }
        Ok(())
    }
}
