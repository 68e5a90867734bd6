//! NVMe over TCP: initialization, PDUs, data transfers (NVMe/TCP Transport 1.1).

use super::config::TargetConfig;
use super::transport::{End, Event, Place, Response, Transport, violation};
use crate::idle;
use crate::wire::nvme::SqEntry;
use crate::wire::nvme::fabrics::{descriptor_of, sgl};
use crate::wire::nvme::tcp::{
    ADMIN_IN_CAPSULE_BYTES, DataRange, Digests, IcResp, Pdu, PduError, Reader, Received, Writer, fes, flag,
};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Largest data of one H2CData in bytes (MAXH2CDATA), and of one C2HData.
const MOST_DATA: u32 = 64 << 10;

/// Bytes of responses that wait for space in the socket above which no more is read.
const MOST_BACKLOG: usize = 4 << 20;
/// Sleep while that is so: bytes that arrive do not end it.
const BACKLOG_NAP: Duration = Duration::from_millis(1);

/// A write whose data arrives.
struct Pending {
    length: u32,
    data: Vec<u8>,
    damaged: bool,
}

/// A TCP connection of a host.
pub(super) struct Tcp {
    stream: TcpStream,
    reader: Reader,
    writer: Writer,
    out: Vec<u8>,
    initialized: bool,
    /// True until the first byte arrives.
    silent: bool,
    /// False to refuse digests.
    digests: bool,
    /// Writes whose data was requested, by command identifier.
    pending: BTreeMap<u16, Pending>,
}

impl Tcp {
    /// Takes an accepted connection. Returns `None` if the system refuses to configure it.
    pub(super) fn new(stream: TcpStream, config: &TargetConfig) -> Option<Self> {
        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).ok()?;
        Some(Self {
            stream,
            reader: Reader::new(ADMIN_IN_CAPSULE_BYTES.max(MOST_DATA as usize)),
            writer: Writer::default(),
            out: Vec::new(),
            initialized: false,
            silent: true,
            digests: config.digests,
            pending: BTreeMap::new(),
        })
    }

    /// Processes data that was requested. Returns the event if it is all there.
    fn data(&mut self, r: &DataRange, p: &Received) -> Result<Option<Event>, End> {
        let Some(w) = self.pending.get_mut(&r.tag).filter(|_| r.tag == r.cid) else {
            return violation(fes::INVALID_FIELD, 10, format!("no data was requested with tag {}", r.tag));
        };
        let received = w.data.len() as u32;
        if r.offset != received || w.length - received < r.length || r.length > MOST_DATA {
            let reason = format!("{} bytes at offset {}; {received} of {} were there", r.length, r.offset, w.length);
            return violation(fes::OUT_OF_RANGE, 12, reason);
        }
        w.data.extend_from_slice(self.reader.data(p));
        w.damaged |= !p.intact;
        let complete = w.data.len() as u32 == w.length;
        if (p.flags & flag::LAST != 0) != complete {
            return violation(
                fes::INVALID_FIELD,
                1,
                "LAST_PDU is not set at the end of the requested data, and only there",
            );
        }
        if !complete {
            return Ok(None);
        }
        let ended = self.pending.remove(&r.tag);
        Ok(ended.map(|w| Event::Data { cid: r.cid, data: w.data, intact: !w.damaged }))
    }
}

impl Transport for Tcp {
    fn receive(&mut self) -> Result<bool, End> {
        if self.out.len() > MOST_BACKLOG {
            return Ok(false);
        }
        match self.stream.read(self.reader.space()) {
            Ok(0) => Err(End::Closed),
            Ok(n) => {
                self.reader.filled(n);
                self.silent = false;
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(_) => Err(End::Closed),
        }
    }

    fn next(&mut self) -> Result<Option<Event>, End> {
        while let Some(p) = self.reader.next()? {
            match p.pdu {
                Pdu::IcReq(r) if !self.initialized => {
                    if r.version != 0 {
                        return violation(fes::UNSUPPORTED_PARAMETER, 8, format!("PDU format version {}", r.version));
                    }
                    if r.alignment > 31 {
                        return violation(fes::INVALID_FIELD, 10, format!("HPDA {}", r.alignment));
                    }
                    let digests = if self.digests { r.digests } else { Digests::default() };
                    let reply = IcResp { version: 0, alignment: 0, digests, max_h2c_data: MOST_DATA };
                    self.writer.put(&mut self.out, &Pdu::IcResp(reply), 0, &[]);
                    self.writer = Writer { digests, alignment: r.alignment };
                    self.reader.set_digests(digests);
                    self.initialized = true;
                }
                Pdu::Command(entry) if self.initialized => {
                    let data = self.reader.data(&p).to_vec();
                    return Ok(Some(Event::Capsule { entry, data, intact: p.intact }));
                }
                Pdu::H2cData(r) if self.initialized => {
                    if let Some(event) = self.data(&r, &p)? {
                        return Ok(Some(event));
                    }
                }
                Pdu::Terminate { by_controller: false, status, .. } => {
                    tracing::debug!("the host ended the connection: {}", fes::name(status));
                    return Err(End::Closed);
                }
                other => return violation(fes::SEQUENCE, 0, format!("a host may not send this now: {other:?}")),
            }
        }
        Ok(None)
    }

    fn place(&self, entry: &SqEntry) -> (Place, u32) {
        let (address, length, kind) = descriptor_of(entry);
        match kind {
            sgl::IN_CAPSULE => (Place::Capsule(address), length),
            sgl::TRANSPORT => (Place::Host, length),
            _ => (Place::Unknown, length),
        }
    }

    fn admin_in_capsule(&self) -> u32 {
        ADMIN_IN_CAPSULE_BYTES as u32
    }

    fn requested(&self) -> Option<(u16, u32)> {
        None
    }

    fn pull(&mut self, entry: &SqEntry, length: u32) -> Result<(), End> {
        let cid = entry.cid();
        self.pending.insert(cid, Pending { length, data: Vec::new(), damaged: false });
        self.writer.put(&mut self.out, &Pdu::R2t(DataRange { cid, tag: cid, offset: 0, length }), 0, &[]);
        Ok(())
    }

    fn respond(&mut self, _: &SqEntry, r: &Response<'_>) -> Result<(), End> {
        for (i, piece) in r.data.chunks(MOST_DATA as usize).enumerate() {
            let offset = i * MOST_DATA as usize;
            let range = DataRange { cid: r.cid, tag: 0, offset: offset as u32, length: piece.len() as u32 };
            let last = if offset + piece.len() == r.data.len() { flag::LAST } else { 0 };
            self.writer.put(&mut self.out, &Pdu::C2hData(range), last, piece);
            if self.writer.digests.data
                && r.damaged_data
                && let Some(b) = self.out.last_mut()
            {
                *b ^= 0xff;
            }
        }
        let at = self.out.len();
        for _ in 0..r.times {
            self.writer.put(&mut self.out, &Pdu::Response(r.entry), 0, &[]);
        }
        if self.writer.digests.header && r.damaged_header {
            // The digest follows the header of 24 bytes.
            self.out[at + 24] ^= 0xff;
        }
        Ok(())
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

    fn wait(&self, time: Duration) {
        if self.out.len() > MOST_BACKLOG {
            return std::thread::sleep(time.min(BACKLOG_NAP));
        }
        idle::wait(&[(self.stream.as_raw_fd(), !self.out.is_empty())], time);
    }

    fn is_silent(&self) -> bool {
        self.silent
    }

    fn reached(&self) -> Result<IpAddr, End> {
        self.stream.local_addr().map(|a| a.ip()).map_err(|_| End::Closed)
    }

    fn terminate(&mut self, error: &PduError) {
        self.writer.terminate(&mut self.out, true, error, &[]);
        // The host may not read it.
        let _ = self.send();
    }
}
