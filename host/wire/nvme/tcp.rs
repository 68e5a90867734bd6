//! PDUs of NVMe/TCP (NVMe/TCP Transport 1.1, 3.6). [`Reader`] accepts any bytes: it returns PDUs or an error that names the
//! field. [`Writer`] makes PDUs.

use super::{CqEntry, SqEntry};
use std::fmt;
use std::ops::Range;

/// Length of the common header in bytes (3.6.1).
pub const COMMON_BYTES: usize = 8;
/// Length of ICReq and ICResp in bytes (3.6.2.2, 3.6.2.3).
pub const IC_BYTES: usize = 128;
const COMMAND_BYTES: usize = 72;
const SHORT_BYTES: usize = 24;
const DIGEST_BYTES: usize = 4;
/// Largest in-capsule data of admin and Fabrics commands in bytes, which every controller supports (3.3.2.1).
pub const ADMIN_IN_CAPSULE_BYTES: usize = 8192;
/// Largest part of a PDU that a termination request repeats, in bytes (3.6.2.4).
const TERMINATION_DATA_BYTES: usize = 128;
/// Well-known port number of NVMe over Fabrics, and of discovery over TCP.
pub const IO_PORT: u16 = 4420;
/// Port number of discovery controllers over TCP.
pub const DISCOVERY_PORT: u16 = 8009;

/// PDU types (3.6.1).
pub mod kind {
    #![allow(missing_docs)]
    pub const IC_REQ: u8 = 0x00;
    pub const IC_RESP: u8 = 0x01;
    pub const H2C_TERM: u8 = 0x02;
    pub const C2H_TERM: u8 = 0x03;
    pub const COMMAND: u8 = 0x04;
    pub const RESPONSE: u8 = 0x05;
    pub const H2C_DATA: u8 = 0x06;
    pub const C2H_DATA: u8 = 0x07;
    pub const R2T: u8 = 0x09;
}

/// Bits of FLAGS (3.6.2).
pub mod flag {
    #![allow(missing_docs)]
    pub const HEADER_DIGEST: u8 = 1;
    pub const DATA_DIGEST: u8 = 2;
    pub const LAST: u8 = 4;
    /// No response follows: the command has succeeded. C2HData only.
    pub const SUCCESS: u8 = 8;
}

/// Fatal Error Status of a termination request (3.6.2.4).
pub mod fes {
    #![allow(missing_docs)]
    pub const INVALID_FIELD: u16 = 1;
    pub const SEQUENCE: u16 = 2;
    pub const HEADER_DIGEST: u16 = 3;
    pub const OUT_OF_RANGE: u16 = 4;
    pub const LIMIT_EXCEEDED: u16 = 5;
    pub const UNSUPPORTED_PARAMETER: u16 = 6;

    /// Returns the specification's name of a status.
    pub fn name(fes: u16) -> &'static str {
        match fes {
            INVALID_FIELD => "invalid PDU header field",
            SEQUENCE => "PDU sequence error",
            HEADER_DIGEST => "header digest error",
            OUT_OF_RANGE => "data transfer out of range",
            LIMIT_EXCEEDED => "data transfer limit exceeded",
            UNSUPPORTED_PARAMETER => "unsupported parameter",
            _ => "reserved status",
        }
    }
}

/// Digests that both ends of a connection use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC32C of each header.
    pub header: bool,
    /// CRC32C of data.
    pub data: bool,
}

impl Digests {
    /// Returns DGST of ICReq and ICResp.
    pub const fn bits(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }

    /// Parses DGST.
    pub const fn from_bits(bits: u8) -> Self {
        Self { header: bits & 1 != 0, data: bits & 2 != 0 }
    }
}

/// ICReq (3.6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcReq {
    /// PDU format version; 0 is the only one.
    pub version: u16,
    /// Alignment of data towards the host in units of 4 bytes, zero-based.
    pub alignment: u8,
    /// Requested digests.
    pub digests: Digests,
    /// Number of outstanding R2Ts of a command, zero-based.
    pub max_r2t: u32,
}

/// ICResp (3.6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcResp {
    /// PDU format version; 0 is the only one.
    pub version: u16,
    /// Alignment of data towards the controller in units of 4 bytes, zero-based: 0 to 31.
    pub alignment: u8,
    /// Digests in use.
    pub digests: Digests,
    /// Largest data of one H2CData in bytes: 4096 or more.
    pub max_h2c_data: u32,
}

/// Command identifier, tag and range of H2CData, C2HData and R2T (3.6.2.7 to 3.6.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// Identifier of the command.
    pub cid: u16,
    /// Transfer tag; unused by C2HData.
    pub tag: u16,
    /// Offset in the command's data, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub length: u32,
}

/// A PDU without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pdu {
    /// Initialize Connection Request.
    IcReq(IcReq),
    /// Initialize Connection Response.
    IcResp(IcResp),
    /// Termination request: direction, fatal error status and its information.
    Terminate {
        /// True if the controller sent it.
        by_controller: bool,
        /// Fatal Error Status.
        status: u16,
        /// Fatal Error Information.
        information: u32,
    },
    /// Command capsule.
    Command(SqEntry),
    /// Response capsule.
    Response(CqEntry),
    /// Data towards the controller.
    H2cData(DataRange),
    /// Data towards the host.
    C2hData(DataRange),
    /// Ready to Transfer.
    R2t(DataRange),
}

/// Error in the bytes of a PDU. It ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PduError {
    /// Status for the termination request ([`fes`]).
    pub status: u16,
    /// Offset of the invalid field in bytes, or the received digest.
    pub information: u32,
    /// Cause, with the numbers.
    pub reason: String,
}

impl fmt::Display for PduError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for PduError {}

fn field(information: u32, reason: String) -> PduError {
    PduError { status: fes::INVALID_FIELD, information, reason }
}

/// Returns the header length of a PDU type in bytes, or `None` if the type is unknown.
fn header_bytes(kind: u8) -> Option<usize> {
    Some(match kind {
        kind::IC_REQ | kind::IC_RESP => IC_BYTES,
        kind::COMMAND => COMMAND_BYTES,
        kind::H2C_TERM | kind::C2H_TERM | kind::RESPONSE | kind::H2C_DATA | kind::C2H_DATA | kind::R2T => SHORT_BYTES,
        _ => return None,
    })
}

fn carries_data(kind: u8) -> bool {
    matches!(kind, kind::H2C_TERM | kind::C2H_TERM | kind::COMMAND | kind::H2C_DATA | kind::C2H_DATA)
}

/// Returns true if digests apply to a PDU type: not to those that set up and end a connection (3.3.1.1).
fn has_digests(kind: u8) -> bool {
    !matches!(kind, kind::IC_REQ | kind::IC_RESP | kind::H2C_TERM | kind::C2H_TERM)
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

impl Pdu {
    /// Parses a header of a known type that has its whole length.
    fn read(kind: u8, b: &[u8]) -> Self {
        let range = |tag| DataRange { cid: u16_at(b, 8), tag, offset: u32_at(b, 12), length: u32_at(b, 16) };
        match kind {
            kind::IC_REQ => Self::IcReq(IcReq {
                version: u16_at(b, 8),
                alignment: b[10],
                digests: Digests::from_bits(b[11]),
                max_r2t: u32_at(b, 12),
            }),
            kind::IC_RESP => Self::IcResp(IcResp {
                version: u16_at(b, 8),
                alignment: b[10],
                digests: Digests::from_bits(b[11]),
                max_h2c_data: u32_at(b, 12),
            }),
            kind::COMMAND => Self::Command(bytemuck::pod_read_unaligned(&b[COMMON_BYTES..COMMAND_BYTES])),
            kind::RESPONSE => Self::Response(bytemuck::pod_read_unaligned(&b[COMMON_BYTES..SHORT_BYTES])),
            kind::H2C_DATA => Self::H2cData(range(u16_at(b, 10))),
            kind::C2H_DATA => Self::C2hData(range(0)),
            kind::R2T => Self::R2t(range(u16_at(b, 10))),
            _ => Self::Terminate {
                by_controller: kind == kind::C2H_TERM,
                status: u16_at(b, 8),
                information: u32_at(b, 10),
            },
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::IcReq(_) => kind::IC_REQ,
            Self::IcResp(_) => kind::IC_RESP,
            Self::Terminate { by_controller: false, .. } => kind::H2C_TERM,
            Self::Terminate { by_controller: true, .. } => kind::C2H_TERM,
            Self::Command(_) => kind::COMMAND,
            Self::Response(_) => kind::RESPONSE,
            Self::H2cData(_) => kind::H2C_DATA,
            Self::C2hData(_) => kind::C2H_DATA,
            Self::R2t(_) => kind::R2T,
        }
    }

    /// Stores the fields behind the common header.
    fn write(&self, b: &mut [u8]) {
        let mut initial = |version: u16, alignment: u8, digests: Digests, number: u32| {
            b[8..10].copy_from_slice(&version.to_le_bytes());
            (b[10], b[11]) = (alignment, digests.bits());
            b[12..16].copy_from_slice(&number.to_le_bytes());
        };
        match self {
            Self::IcReq(r) => initial(r.version, r.alignment, r.digests, r.max_r2t),
            Self::IcResp(r) => initial(r.version, r.alignment, r.digests, r.max_h2c_data),
            Self::Terminate { status, information, .. } => {
                b[8..10].copy_from_slice(&status.to_le_bytes());
                b[10..14].copy_from_slice(&information.to_le_bytes());
            }
            Self::Command(e) => b[COMMON_BYTES..].copy_from_slice(bytemuck::bytes_of(e)),
            Self::Response(e) => b[COMMON_BYTES..].copy_from_slice(bytemuck::bytes_of(e)),
            Self::H2cData(r) | Self::C2hData(r) | Self::R2t(r) => {
                b[8..10].copy_from_slice(&r.cid.to_le_bytes());
                b[10..12].copy_from_slice(&r.tag.to_le_bytes());
                b[12..16].copy_from_slice(&r.offset.to_le_bytes());
                b[16..20].copy_from_slice(&r.length.to_le_bytes());
            }
        }
    }
}

/// A received PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The PDU without its data.
    pub pdu: Pdu,
    /// FLAGS.
    pub flags: u8,
    /// Place of the data for [`Reader::data`].
    data: Range<usize>,
    /// False if the data digest does not match the data. Only the command fails then (3.3.1.1.2).
    pub intact: bool,
}

impl Received {
    /// Returns the length of the data in bytes.
    pub fn data_bytes(&self) -> usize {
        self.data.len()
    }
}

/// Splits a stream of bytes into PDUs.
#[derive(Debug)]
pub struct Reader {
    digests: Digests,
    /// Largest PLEN that is accepted, in bytes.
    most: usize,
    buffer: Vec<u8>,
    /// Bytes before `start` were consumed; bytes from `end` on are not filled.
    start: usize,
    end: usize,
}

impl Reader {
    /// Creates a reader without digests that accepts data of at most `most_data` bytes in one PDU.
    pub fn new(most_data: usize) -> Self {
        let most = most_data + 512;
        Self { digests: Digests::default(), most, buffer: vec![0; 16 << 10], start: 0, end: 0 }
    }

    /// Sets the digests, once they are negotiated.
    pub fn set_digests(&mut self, digests: Digests) {
        self.digests = digests;
    }

    /// Sets the largest data of one PDU in bytes.
    pub fn set_most_data(&mut self, bytes: usize) {
        self.most = bytes + 512;
    }

    /// Returns space for received bytes: at least one byte.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let wanted = match self.length() {
            Some(length) => length,
            None => COMMON_BYTES,
        };
        if self.buffer.len() - self.start < wanted.max(1) || self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let least = wanted.max(self.end + 1).max(self.buffer.len());
            self.buffer.resize(least, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Counts bytes that were stored in [`Reader::space`].
    pub fn filled(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.buffer.len());
    }

    /// Appends bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space();
            let n = space.len().min(bytes.len());
            space[..n].copy_from_slice(&bytes[..n]);
            self.filled(n);
            bytes = &bytes[n..];
        }
    }

    /// Returns the length of the PDU that has begun, limited to the valid lengths.
    fn length(&self) -> Option<usize> {
        let b = &self.buffer[self.start..self.end];
        (b.len() >= COMMON_BYTES).then(|| (u32_at(b, 4) as usize).min(self.most))
    }

    /// Returns the next PDU, or `None` until all its bytes have arrived.
    ///
    /// # Errors
    /// [`PduError`] if a header is invalid or its digest does not match. The stream cannot be read on.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Received>, PduError> {
        let b = &self.buffer[self.start..self.end];
        if b.len() < COMMON_BYTES {
            return Ok(None);
        }
        let (kind, flags, hlen, pdo, plen) = (b[0], b[1], usize::from(b[2]), usize::from(b[3]), u32_at(b, 4) as usize);
        let header = header_bytes(kind).ok_or_else(|| field(0, format!("PDU type {kind:#04x} is unknown")))?;
        if hlen != header {
            return Err(field(2, format!("a PDU of type {kind:#04x} has HLEN {hlen} instead of {header}")));
        }
        let digests = if has_digests(kind) { self.digests } else { Digests::default() };
        if (flags & flag::HEADER_DIGEST != 0) != digests.header {
            let said = if digests.header { "lacks" } else { "has" };
            return Err(field(1, format!("a PDU of type {kind:#04x} {said} a header digest, against the negotiation")));
        }
        let behind = header + if digests.header { DIGEST_BYTES } else { 0 };
        if plen < behind || plen > self.most {
            let most = self.most;
            return Err(field(4, format!("a PDU of type {kind:#04x} has PLEN {plen}; valid are {behind} to {most}")));
        }
        let has_data = carries_data(kind) && plen > behind;
        if !has_data && plen != behind {
            return Err(field(4, format!("a PDU of type {kind:#04x} has PLEN {plen} instead of {behind}")));
        }
        let with_digest = has_data && digests.data && has_digests(kind);
        if has_digests(kind) && (flags & flag::DATA_DIGEST != 0) != with_digest {
            return Err(field(1, format!("a PDU of type {kind:#04x} contradicts the negotiated data digest")));
        }
        let tail = if with_digest { DIGEST_BYTES } else { 0 };
        // Termination requests have no PDO; their data follows the header.
        let first = if has_digests(kind) && has_data { pdo } else { behind };
        if has_data && (first < behind || first + tail >= plen) {
            return Err(field(3, format!("a PDU of {plen} bytes has PDO {pdo}; its header ends at {behind}")));
        }
        if b.len() < plen {
            return Ok(None);
        }
        if digests.header {
            let (sent, computed) = (u32_at(b, header), crc32c::crc32c(&b[..header]));
            if sent != computed {
                let reason = format!("the header digest is {sent:#010x} and the header's CRC32C {computed:#010x}");
                return Err(PduError { status: fes::HEADER_DIGEST, information: sent, reason });
            }
        }
        let pdu = Pdu::read(kind, b);
        let data = if has_data { first..plen - tail } else { 0..0 };
        let intact = !with_digest || u32_at(b, plen - DIGEST_BYTES) == crc32c::crc32c(&b[data.clone()]);
        if let Pdu::H2cData(r) | Pdu::C2hData(r) = &pdu
            && r.length as usize != data.len()
        {
            return Err(field(16, format!("DATAL is {} in a PDU with {} bytes of data", r.length, data.len())));
        }
        let at = self.start;
        self.start += plen;
        Ok(Some(Received { pdu, flags, data: at + data.start..at + data.end, intact }))
    }

    /// Returns the data of the PDU that [`Reader::next`] returned last.
    pub fn data(&self, received: &Received) -> &[u8] {
        self.buffer.get(received.data.clone()).unwrap_or_default()
    }
}

/// Makes PDUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writer {
    /// Digests in use.
    pub digests: Digests,
    /// Alignment of data in units of 4 bytes, zero-based.
    pub alignment: u8,
}

impl Writer {
    /// Appends a PDU with space for `bytes` bytes of data. Returns the place of the data in `out`. After the data is
    /// stored there, [`Writer::seal`] completes the PDU. `flags` are those of the PDU without digests.
    pub fn begin(&self, out: &mut Vec<u8>, pdu: &Pdu, flags: u8, bytes: usize) -> Range<usize> {
        let kind = pdu.kind();
        let digests = if has_digests(kind) { self.digests } else { Digests::default() };
        let header = header_bytes(kind).unwrap_or(SHORT_BYTES);
        let at = out.len();
        let behind = header + if digests.header { DIGEST_BYTES } else { 0 };
        let unit = if has_digests(kind) { 4 * (usize::from(self.alignment) + 1) } else { 1 };
        let first = if bytes > 0 { behind.next_multiple_of(unit) } else { behind };
        let tail = if bytes > 0 && digests.data { DIGEST_BYTES } else { 0 };
        let plen = first + bytes + tail;
        out.resize(at + plen, 0);
        let b = &mut out[at..];
        let digest_flags = u8::from(digests.header) | if tail > 0 { flag::DATA_DIGEST } else { 0 };
        (b[0], b[1], b[2]) = (kind, flags | digest_flags, header as u8);
        b[3] = if bytes > 0 && has_digests(kind) { first as u8 } else { 0 };
        b[4..8].copy_from_slice(&(plen as u32).to_le_bytes());
        pdu.write(&mut b[..header]);
        if digests.header {
            let crc = crc32c::crc32c(&b[..header]);
            b[header..behind].copy_from_slice(&crc.to_le_bytes());
        }
        at + first..at + first + bytes
    }

    /// Computes the data digest of a PDU that [`Writer::begin`] appended, if data digests are in use.
    pub fn seal(&self, out: &mut [u8], data: Range<usize>) {
        if self.digests.data && !data.is_empty() && out.len() >= data.end + DIGEST_BYTES {
            let crc = crc32c::crc32c(&out[data.clone()]);
            out[data.end..data.end + DIGEST_BYTES].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Appends a PDU with its data.
    pub fn put(&self, out: &mut Vec<u8>, pdu: &Pdu, flags: u8, data: &[u8]) {
        let place = self.begin(out, pdu, flags, data.len());
        out[place.clone()].copy_from_slice(data);
        if has_digests(pdu.kind()) {
            self.seal(out, place);
        }
    }

    /// Appends a termination request for an error. `header` is the start of the PDU with the error, as far as known.
    pub fn terminate(&self, out: &mut Vec<u8>, by_controller: bool, error: &PduError, header: &[u8]) {
        let pdu = Pdu::Terminate { by_controller, status: error.status, information: error.information };
        self.put(out, &pdu, 0, &header[..header.len().min(TERMINATION_DATA_BYTES)]);
    }
}

#[cfg(test)]
mod tests;
