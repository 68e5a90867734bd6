//! NVMe/TCP: one TCP connection for each queue pair (NVMe/TCP Transport 1.1).

use super::commands::{Commands, Direction};
use super::driver_memory::DriverMemory;
use super::link::{Link, QueueShape, Transport, User};
use super::{FabricsConfig, FabricsError};
use crate::addresses::Addresses;
use crate::idle;
use crate::wire::nvme::fabrics::{self, descriptor, sgl};
use crate::wire::nvme::tcp::{
    ADMIN_IN_CAPSULE_BYTES, DataRange, Digests, IcReq, IcResp, Pdu, PduError, Reader, Writer, fes, flag,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Largest number of reads from the socket in one call, so that other queues get their turn.
const READS: usize = 16;
/// Sent bytes are removed from the send buffer once there are this many.
const COMPACT: usize = 1 << 20;
/// Smallest MAXH2CDATA that a controller may report, in bytes (3.6.2.3).
const LEAST_H2C_DATA: u32 = 4096;

/// A connection.
pub(super) struct TcpLink {
    stream: TcpStream,
    peer: String,
    reader: Reader,
    writer: Writer,
    out: Vec<u8>,
    /// Bytes of `out` that were sent.
    sent: usize,
    in_capsule: u32,
    max_h2c_data: u32,
    /// Largest data of a command so far, which bounds a PDU of the target.
    most_data: u32,
}

/// NVMe over TCP.
#[derive(Debug, Default)]
pub(crate) struct TcpTransport(Addresses);

impl Transport for TcpTransport {
    fn open(&self, config: &FabricsConfig, _: QueueShape, _: User<'_>) -> Result<Box<dyn Link>, FabricsError> {
        Ok(Box::new(TcpLink::open(config, &self.0)?))
    }
}

impl TcpLink {
    /// Connects, and agrees on digests and alignment.
    fn open(config: &FabricsConfig, addresses: &Addresses) -> Result<Self, FabricsError> {
        let deadline = Instant::now() + config.connect_timeout;
        let resolve = |source| FabricsError::Resolve { host: config.host.clone(), source };
        let stream = addresses.connect(
            &config.host,
            config.port,
            resolve,
            |_| true,
            |address| {
                let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                let unreachable = |source| FabricsError::Unreachable { peer: config.peer(), source };
                TcpStream::connect_timeout(&address, left).map_err(unreachable)
            },
        )?;
        Self::initialize(stream, config, deadline)
    }

    /// Sends ICReq and waits for ICResp (3.6.2.2, 3.6.2.3).
    fn initialize(stream: TcpStream, config: &FabricsConfig, deadline: Instant) -> Result<Self, FabricsError> {
        let peer = config.peer();
        let lost = |e: io::Error| FabricsError::Lost { peer: peer.clone(), reason: e.to_string() };
        stream.set_nodelay(true).map_err(lost)?;
        stream.set_nonblocking(true).map_err(lost)?;
        let mut link = Self {
            stream,
            reader: Reader::new(ADMIN_IN_CAPSULE_BYTES),
            writer: Writer::default(),
            out: Vec::new(),
            sent: 0,
            in_capsule: ADMIN_IN_CAPSULE_BYTES as u32,
            max_h2c_data: LEAST_H2C_DATA,
            most_data: ADMIN_IN_CAPSULE_BYTES as u32,
            peer: peer.clone(),
        };
        let request = IcReq { version: 0, alignment: 0, digests: config.digests, max_r2t: 0 };
        link.writer.put(&mut link.out, &Pdu::IcReq(request), 0, &[]);
        loop {
            link.send()?;
            link.receive(1)?;
            match link.reader.next() {
                Ok(Some(p)) => match p.pdu {
                    Pdu::IcResp(r) => {
                        link.agree(&r, config.digests)?;
                        return Ok(link);
                    }
                    other => return Err(link.unexpected(&other)),
                },
                Ok(None) => {}
                Err(e) => return Err(link.broken(e)),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = "the initialization of the connection (ICReq)".to_owned();
                return Err(FabricsError::TimedOut { peer, what, waited: config.connect_timeout });
            }
            idle::wait(&[(link.descriptor(), link.backlog() > 0)], left);
        }
    }

    fn agree(&mut self, r: &IcResp, wanted: Digests) -> Result<(), FabricsError> {
        let unsupported = |reason: String| Err(FabricsError::Unsupported { peer: self.peer.clone(), reason });
        if r.version != 0 {
            return unsupported(format!(
                "it speaks version {} of NVMe/TCP PDUs; this host speaks version 0",
                r.version
            ));
        }
        if (wanted.header && !r.digests.header) || (wanted.data && !r.digests.data) {
            let which = if wanted.header && !r.digests.header { "header" } else { "data" };
            return unsupported(format!(
                "it does not use the {which} digest; leave the option out, or turn it on at the target"
            ));
        }
        if r.digests != wanted {
            return self.violation(fes::INVALID_FIELD, 11, "it uses digests that were not requested".to_owned());
        }
        if r.alignment > 31 || r.max_h2c_data < LEAST_H2C_DATA || !r.max_h2c_data.is_multiple_of(4) {
            let (cpda, most) = (r.alignment, r.max_h2c_data);
            return self.violation(fes::INVALID_FIELD, 10, format!("ICResp has CPDA {cpda} and MAXH2CDATA {most}"));
        }
        self.reader.set_digests(r.digests);
        self.writer = Writer { digests: r.digests, alignment: r.alignment };
        self.max_h2c_data = r.max_h2c_data;
        Ok(())
    }

    /// Ends the connection because of an error of the target.
    fn violation<T>(&mut self, status: u16, information: u32, reason: String) -> Result<T, FabricsError> {
        Err(self.broken(PduError { status, information, reason }))
    }

    fn broken(&mut self, e: PduError) -> FabricsError {
        // The request may not fit into the socket, and the target may not read it.
        self.writer.terminate(&mut self.out, false, &e, &[]);
        let _ = self.send();
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        FabricsError::Protocol { peer: self.peer.clone(), reason: e.reason }
    }

    fn unexpected(&mut self, pdu: &Pdu) -> FabricsError {
        match *pdu {
            Pdu::Terminate { by_controller: true, status, information } => {
                let name = fes::name(status);
                FabricsError::Terminated { peer: self.peer.clone(), name, status, information }
            }
            ref other => {
                let reason = format!("it sent a PDU that no controller may send now: {other:?}");
                self.broken(PduError { status: fes::SEQUENCE, information: 0, reason })
            }
        }
    }

    fn lost(&self, e: &io::Error) -> FabricsError {
        FabricsError::Lost { peer: self.peer.clone(), reason: e.to_string() }
    }

    /// Sends as much as the socket takes. Returns true if bytes were sent.
    fn send(&mut self) -> Result<bool, FabricsError> {
        let before = self.sent;
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(self.lost(&ErrorKind::WriteZero.into())),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.lost(&e)),
            }
        }
        let moved = self.sent > before;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent > COMPACT {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(moved)
    }

    /// Receives once, or as often as `reads` says while the buffer fills up. Returns true if bytes arrived.
    fn receive(&mut self, reads: usize) -> Result<bool, FabricsError> {
        for _ in 0..reads {
            let space = self.reader.space();
            match self.stream.read(space) {
                Ok(0) => {
                    let reason = "the target closed it".to_owned();
                    return Err(FabricsError::Lost { peer: self.peer.clone(), reason });
                }
                Ok(n) => {
                    self.reader.filled(n);
                    return Ok(true);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.lost(&e)),
            }
        }
        Ok(false)
    }

    /// Sends the data that an R2T requests, in as many PDUs as MAXH2CDATA demands (3.6.2.8).
    fn transfer(&mut self, r: &DataRange, commands: &mut Commands, memory: &DriverMemory<'_>) -> Result<(), String> {
        commands.request(r.cid, r.offset, r.length)?;
        let mut done = 0;
        while done < r.length {
            let n = (r.length - done).min(self.max_h2c_data);
            let range = DataRange { offset: r.offset + done, length: n, ..*r };
            let last = if done + n == r.length { flag::LAST } else { 0 };
            let start = self.out.len();
            let place = self.writer.begin(&mut self.out, &Pdu::H2cData(range), last, n as usize);
            if let Err(e) = commands.load(r.cid, range.offset, &mut self.out[place.clone()], memory) {
                self.out.truncate(start);
                return Err(e);
            }
            self.writer.seal(&mut self.out, place);
            done += n;
        }
        Ok(())
    }

    /// Processes the received PDUs.
    fn dispatch(&mut self, commands: &mut Commands, memory: &DriverMemory<'_>) -> Result<(), FabricsError> {
        loop {
            let p = match self.reader.next() {
                Ok(Some(p)) => p,
                Ok(None) => return Ok(()),
                Err(e) => return Err(self.broken(e)),
            };
            let handled = match p.pdu {
                Pdu::Response(r) => commands.complete(&r),
                Pdu::C2hData(r) => {
                    let stored = commands.store(r.cid, r.offset, self.reader.data(&p), p.intact, memory);
                    match p.flags & flag::SUCCESS != 0 {
                        true if p.flags & flag::LAST == 0 => Err("C2HData has SUCCESS without LAST_PDU".to_owned()),
                        true => stored.and_then(|()| commands.succeed(r.cid)),
                        false => stored,
                    }
                }
                Pdu::R2t(r) => self.transfer(&r, commands, memory),
                other => return Err(self.unexpected(&other)),
            };
            if let Err(reason) = handled {
                return self.violation(fes::OUT_OF_RANGE, 8, reason);
            }
        }
    }
}

impl Link for TcpLink {
    fn submit(&mut self, cid: u16, commands: &mut Commands, memory: &DriverMemory<'_>) -> Result<(), FabricsError> {
        let in_capsule = self.in_capsule;
        let wrong = |reason| FabricsError::Protocol { peer: String::new(), reason };
        let c = commands.get(cid).map_err(wrong)?;
        let mut entry = c.capsule(cid);
        let (direction, bytes) = (c.direction, c.bytes);
        let is_fabrics = entry.opcode() == fabrics::OPCODE;
        let room = if is_fabrics { ADMIN_IN_CAPSULE_BYTES as u32 } else { in_capsule };
        let carries = direction == Direction::Out && bytes <= room;
        let kind = if carries { sgl::IN_CAPSULE } else { sgl::TRANSPORT };
        (entry.prp1, entry.prp2) = descriptor(kind, 0, bytes);
        let start = self.out.len();
        let data = if carries { bytes as usize } else { 0 };
        let place = self.writer.begin(&mut self.out, &Pdu::Command(entry), 0, data);
        if carries {
            if let Err(reason) = commands.load(cid, 0, &mut self.out[place.clone()], memory) {
                self.out.truncate(start);
                return Err(FabricsError::Lost { peer: self.peer.clone(), reason });
            }
            self.writer.seal(&mut self.out, place);
            commands.carried(cid);
        } else if direction == Direction::In && bytes > self.most_data {
            self.most_data = bytes;
            self.reader.set_most_data(bytes as usize);
        }
        Ok(())
    }

    fn progress(&mut self, commands: &mut Commands, memory: &DriverMemory<'_>) -> Result<bool, FabricsError> {
        let mut moved = self.send()?;
        for _ in 0..READS {
            if !self.receive(2)? {
                break;
            }
            moved = true;
            self.dispatch(commands, memory)?;
        }
        moved |= self.send()?;
        Ok(moved)
    }

    fn backlog(&self) -> usize {
        self.out.len() - self.sent
    }

    fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    fn peer(&self) -> &str {
        &self.peer
    }

    fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule = bytes;
    }
}
