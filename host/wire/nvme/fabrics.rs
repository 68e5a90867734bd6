//! NVMe over Fabrics: capsules' SGLs, Fabrics commands, Connect data, properties, the discovery log (NVMe Base 2.1, 4.3.2,
//! 5.1.12.3.1 and 6). Parsers accept any bytes.

use super::{CqEntry, SqEntry, Status, register};
use std::fmt;

/// Opcode of Fabrics commands (Base 2.1, 6).
pub const OPCODE: u8 = 0x7f;
/// Name of every discovery subsystem (Base 2.1, 4.7).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Largest length in bytes of an NVMe Qualified Name (Base 2.1, 4.7).
pub const MAX_NQN_BYTES: usize = 223;
/// CNTLID with which a host requests any controller (Base 2.1, 6.3).
pub const ANY_CONTROLLER: u16 = 0xffff;
/// Log page identifier of the discovery log (Base 2.1, 5.1.12.3.1).
pub const DISCOVERY_LOG: u8 = 0x70;
/// Feature identifier of the Keep Alive Timer (Base 2.1, 5.1.25.1.8).
pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
/// SQHD of a queue pair without flow control (Base 2.1, 3.3.1.2.1).
pub const NO_FLOW_CONTROL_HEAD: u16 = 0xffff;
/// PSDT 01b in dword 0: SGL1 describes the data, as every capsule requires (Base 2.1, 4.1.1).
pub const SGL_IN_USE: u32 = 1 << 14;

/// Types of Fabrics commands, in FCTYPE (Base 2.1, 6).
pub mod fctype {
    #![allow(missing_docs)]
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// SGL descriptor types and subtypes, as the last byte of a descriptor (Base 2.1, 4.3.2).
pub mod sgl {
    #![allow(missing_docs)]
    /// Data block whose address is an offset into the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Transport data block: the transport's own messages move the data.
    pub const TRANSPORT: u8 = 0x5a;
    /// Keyed data block of RDMA, without remote invalidation.
    pub const KEYED: u8 = 0x40;
}

/// Status codes of Fabrics commands (Base 2.1, figure "Status Code - Command Specific Status Values, Fabrics").
pub mod status {
    use super::Status;
    /// Connect Incompatible Format.
    pub const INCOMPATIBLE_FORMAT: Status = Status::new(1, 0x80);
    /// Connect Controller Busy.
    pub const CONTROLLER_BUSY: Status = Status::new(1, 0x81);
    /// Connect Invalid Parameters. The result names the parameter.
    pub const INVALID_PARAMETERS: Status = Status::new(1, 0x82);
    /// Connect Restart Discovery.
    pub const RESTART_DISCOVERY: Status = Status::new(1, 0x83);
    /// Connect Invalid Host.
    pub const INVALID_HOST: Status = Status::new(1, 0x84);
    /// Authentication Required.
    pub const AUTHENTICATION_REQUIRED: Status = Status::new(1, 0x91);

    /// Returns the specification's name of a status of Connect, or `None` if it is not one of Fabrics commands.
    pub fn connect_name(status: Status) -> Option<&'static str> {
        Some(match status.without_flags() {
            INCOMPATIBLE_FORMAT => "connect incompatible format",
            CONTROLLER_BUSY => "connect controller busy",
            INVALID_PARAMETERS => "connect invalid parameters",
            RESTART_DISCOVERY => "connect restart discovery",
            INVALID_HOST => "connect invalid host",
            AUTHENTICATION_REQUIRED => "authentication required",
            _ => return None,
        })
    }
}

/// Returns an SGL descriptor of 16 bytes as the two quadwords of SGL1. `length` is in bytes.
pub const fn descriptor(kind: u8, address: u64, length: u32) -> (u64, u64) {
    (address, length as u64 | (kind as u64) << 56)
}

/// Returns address, length in bytes and type of the descriptor in SGL1.
pub const fn descriptor_of(entry: &SqEntry) -> (u64, u32, u8) {
    (entry.prp1, entry.prp2 as u32, (entry.prp2 >> 56) as u8)
}

/// Returns the type of a Fabrics command.
pub const fn fctype_of(entry: &SqEntry) -> u8 {
    entry.nsid as u8
}

fn command(fctype: u8) -> SqEntry {
    SqEntry { nsid: fctype.into(), ..SqEntry::new(OPCODE, 0, 0) }
}

/// Fields of a Connect command (Base 2.1, 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    /// Queue identifier, 0 for the admin queue.
    pub queue: u16,
    /// Number of entries of the submission queue, 2 to 65,536. Zero-based on the wire.
    pub entries: u32,
    /// CATTR.
    pub attributes: u8,
    /// Keep Alive Timeout in milliseconds, 0 for none. Admin queues only.
    pub keep_alive_ms: u32,
}

impl Connect {
    /// Returns the command.
    pub fn entry(&self) -> SqEntry {
        let mut e = command(fctype::CONNECT);
        e.cdw10 = u32::from(self.queue) << 16;
        e.cdw11 = (self.entries.saturating_sub(1) & 0xffff) | u32::from(self.attributes) << 16;
        e.cdw12 = self.keep_alive_ms;
        e
    }

    /// Parses a command. Returns its record format and its fields.
    pub fn read(e: &SqEntry) -> (u16, Self) {
        let fields = Self {
            queue: (e.cdw10 >> 16) as u16,
            entries: (e.cdw11 & 0xffff) + 1,
            attributes: (e.cdw11 >> 16) as u8,
            keep_alive_ms: e.cdw12,
        };
        (e.cdw10 as u16, fields)
    }
}

/// Bits of a Connect's result: Authentication Transaction Required, and Authentication and Secure Channel Required
/// (Base 2.1, 6.3: AUTHREQ).
pub const TRANSACTION_REQUIRED: u32 = 1 << 17;
/// See [`TRANSACTION_REQUIRED`].
pub const SECURE_CHANNEL_REQUIRED: u32 = 1 << 18;

/// Returns true if the result of a Connect demands authentication (Base 2.1, 6.3: AUTHREQ).
pub const fn demands_authentication(result: u32) -> bool {
    result & (TRANSACTION_REQUIRED | SECURE_CHANNEL_REQUIRED) != 0
}

/// Length of the data of a Connect command in bytes.
pub const CONNECT_DATA_BYTES: usize = 1024;

/// Data of a Connect command (Base 2.1, 6.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// Host Identifier.
    pub host_id: [u8; 16],
    /// Controller identifier; [`ANY_CONTROLLER`] on an admin queue of a dynamic controller.
    pub controller: u16,
    /// Name of the subsystem.
    pub subsystem: String,
    /// Name of the host.
    pub host: String,
}

impl ConnectData {
    /// Returns the data. A name that is too long is cut off.
    pub fn bytes(&self) -> [u8; CONNECT_DATA_BYTES] {
        let mut b = [0; CONNECT_DATA_BYTES];
        b[..16].copy_from_slice(&self.host_id);
        b[16..18].copy_from_slice(&self.controller.to_le_bytes());
        put_text(&mut b[256..512], &self.subsystem);
        put_text(&mut b[512..768], &self.host);
        b
    }

    /// Parses the data. Missing bytes count as zeros.
    pub fn read(bytes: &[u8]) -> Self {
        let mut host_id = [0; 16];
        host_id.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self { host_id, controller: u16_at(bytes, 16), subsystem: text(bytes, 256, 256), host: text(bytes, 512, 256) }
    }
}

/// Returns a Property Get command (Base 2.1, 6.5). `offset` is that of the register.
pub fn property_get(offset: u32) -> SqEntry {
    SqEntry { cdw10: u32::from(is_wide(offset)), cdw11: offset, ..command(fctype::PROPERTY_GET) }
}

/// Returns a Property Set command (Base 2.1, 6.6).
pub fn property_set(offset: u32, value: u64) -> SqEntry {
    let mut e = SqEntry { cdw10: u32::from(is_wide(offset)), cdw11: offset, ..command(fctype::PROPERTY_SET) };
    (e.cdw12, e.cdw13) = (value as u32, (value >> 32) as u32);
    e
}

/// Returns true if a property has eight bytes. Message-based controllers have one of them, CAP.
pub const fn is_wide(offset: u32) -> bool {
    offset == register::CAP
}

/// Returns the 64-bit result of a completion.
pub const fn wide_result(done: &CqEntry) -> u64 {
    done.result as u64 | (done.dw1 as u64) << 32
}

/// Returns the command identifier, status and submission queue head of a response. Responses have no phase tag.
pub const fn response(cid: u16, head: u16, result: u64, status: Status) -> CqEntry {
    let mut entry = CqEntry::new(result as u32, head, 0, cid, false, status);
    entry.dw1 = (result >> 32) as u32;
    entry
}

/// Length in bytes of the discovery log's header, and of each record.
pub const DISCOVERY_RECORD_BYTES: usize = 1024;

/// Header of the discovery log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveryHeader {
    /// Generation counter. It changes with the contents.
    pub generation: u64,
    /// Number of records.
    pub records: u64,
    /// Record format; 0 is the only known one.
    pub format: u16,
}

impl DiscoveryHeader {
    /// Parses the header. Missing bytes count as zeros.
    pub fn read(bytes: &[u8]) -> Self {
        Self { generation: u64_at(bytes, 0), records: u64_at(bytes, 8), format: u16_at(bytes, 16) }
    }

    /// Returns the header's bytes.
    pub fn bytes(&self) -> [u8; DISCOVERY_RECORD_BYTES] {
        let mut b = [0; DISCOVERY_RECORD_BYTES];
        b[..8].copy_from_slice(&self.generation.to_le_bytes());
        b[8..16].copy_from_slice(&self.records.to_le_bytes());
        b[16..18].copy_from_slice(&self.format.to_le_bytes());
        b
    }
}

/// Transport types (TRTYPE; Base 2.1, 5.1.12.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportType(pub u8);

impl TransportType {
    /// RDMA.
    pub const RDMA: Self = Self(1);
    /// Fibre Channel.
    pub const FC: Self = Self(2);
    /// TCP.
    pub const TCP: Self = Self(3);
}

impl fmt::Display for TransportType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RDMA => f.write_str("rdma"),
            Self::FC => f.write_str("fc"),
            Self::TCP => f.write_str("tcp"),
            Self(254) => f.write_str("loop"),
            Self(other) => write!(f, "type {other}"),
        }
    }
}

/// Record of the discovery log: a subsystem at a port (Base 2.1, 5.1.12.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryRecord {
    /// Transport.
    pub transport: TransportType,
    /// Address family: 1 for IPv4, 2 for IPv6, 3 for InfiniBand.
    pub family: u8,
    /// Type of the subsystem: 1 refers to another discovery subsystem, 2 has namespaces, 3 is this discovery subsystem.
    pub subtype: u8,
    /// Transport requirements: bits 1:0 tell whether a secure channel is required (1) or not (2).
    pub requirements: u8,
    /// Identifier of the port in its subsystem.
    pub port: u16,
    /// Controller identifier, or [`ANY_CONTROLLER`].
    pub controller: u16,
    /// Largest number of entries of the admin submission queue.
    pub admin_entries: u16,
    /// Service identifier: the port number of TCP and RDMA.
    pub service: String,
    /// Name of the subsystem.
    pub subsystem: String,
    /// Address of the port.
    pub address: String,
    /// Security type of TCP: 0 for none, 2 for TLS 1.3.
    pub security: u8,
}

impl DiscoveryRecord {
    /// Parses a record. Missing bytes count as zeros.
    pub fn read(b: &[u8]) -> Self {
        let byte = |at: usize| b.get(at).copied().unwrap_or(0);
        Self {
            transport: TransportType(byte(0)),
            family: byte(1),
            subtype: byte(2),
            requirements: byte(3),
            port: u16_at(b, 4),
            controller: u16_at(b, 6),
            admin_entries: u16_at(b, 8),
            service: text(b, 32, 32),
            subsystem: text(b, 256, 256),
            address: text(b, 512, 256),
            security: byte(768),
        }
    }

    /// Returns the record's bytes. Texts that are too long are cut off.
    pub fn bytes(&self) -> [u8; DISCOVERY_RECORD_BYTES] {
        let mut b = [0; DISCOVERY_RECORD_BYTES];
        b[..4].copy_from_slice(&[self.transport.0, self.family, self.subtype, self.requirements]);
        b[4..6].copy_from_slice(&self.port.to_le_bytes());
        b[6..8].copy_from_slice(&self.controller.to_le_bytes());
        b[8..10].copy_from_slice(&self.admin_entries.to_le_bytes());
        put_text(&mut b[32..64], &self.service);
        put_text(&mut b[256..512], &self.subsystem);
        put_text(&mut b[512..768], &self.address);
        b[768] = self.security;
        b
    }
}

/// Checks a name of a host or subsystem (Base 2.1, 4.7). Returns the reason if it is invalid.
pub fn nqn_complaint(name: &str) -> Option<String> {
    if name.len() > MAX_NQN_BYTES {
        return Some(format!("it has {} bytes; the limit is {MAX_NQN_BYTES}", name.len()));
    }
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    // nvmet accepts any name, so this is no stricter than a C string without control characters.
    name.chars().any(char::is_control).then(|| "it has control characters".to_owned())
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u64_at(b.get(..b.len().min(at + 2)).unwrap_or_default(), at) as u16
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    (0..8).rev().fold(0, |n, i| n << 8 | u64::from(b.get(at + i).copied().unwrap_or(0)))
}

/// Returns a text field: up to its first NUL, without spaces at its end.
fn text(b: &[u8], at: usize, bytes: usize) -> String {
    let field = b.get(at..b.len().min(at + bytes)).unwrap_or_default();
    let end = field.iter().position(|c| *c == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim_end().to_owned()
}

/// Stores a text, with at least one NUL behind it.
fn put_text(to: &mut [u8], text: &str) {
    let n = text.len().min(to.len().saturating_sub(1));
    to[..n].copy_from_slice(&text.as_bytes()[..n]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_where_the_specification_has_them() {
        let e = Connect { queue: 3, entries: 128, attributes: 4, keep_alive_ms: 5000 }.entry();
        let b: [u8; 64] = bytemuck::must_cast(e);
        assert_eq!((b[0], b[4]), (0x7f, 0x01));
        assert_eq!((&b[40..42], &b[42..44], &b[44..46], b[46]), (&[0, 0][..], &[3, 0][..], &[127, 0][..], 4));
        assert_eq!(b[48..52], 5000u32.to_le_bytes());
        // AUTHREQ: ATR and ASCR are its bits 1 and 2; bit 0 is reserved.
        assert_eq!([1, 1 << 16, 1 << 17, 1 << 18].map(demands_authentication), [false, false, true, true]);
        let b: [u8; 64] = bytemuck::must_cast(property_get(register::CAP));
        assert_eq!((b[4], b[40], b[44]), (0x04, 1, 0));
        let b: [u8; 64] = bytemuck::must_cast(property_set(register::CC, 0x46_0001));
        assert_eq!((b[4], b[40], b[44], &b[48..52]), (0x00, 0, 0x14, &[1, 0, 0x46, 0][..]));
        let mut e = SqEntry::default();
        (e.prp1, e.prp2) = descriptor(sgl::KEYED, 0x1122, 4096);
        let b: [u8; 64] = bytemuck::must_cast(e);
        assert_eq!((b[24], b[33], b[39]), (0x22, 0x10, 0x40));
        assert_eq!(descriptor_of(&e), (0x1122, 4096, sgl::KEYED));
    }

    #[test]
    fn names_are_checked() {
        assert_eq!(nqn_complaint(DISCOVERY_NQN), None);
        for (bad, word) in [(String::new(), "empty"), ("a".repeat(224), "224"), ("a\nb".to_owned(), "control")] {
            assert!(nqn_complaint(&bad).unwrap().contains(word));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
            DiscoveryHeader::read(&bytes);
            let record = DiscoveryRecord::read(&bytes);
            let again = DiscoveryRecord::read(&record.bytes());
            prop_assert_eq!((again.transport, again.port, again.controller), (record.transport, record.port, record.controller));
            ConnectData::read(&bytes);
        }

        #[test]
        fn a_connect_reads_back(queue in any::<u16>(), entries in 1u32..=65_536, attributes in any::<u8>(), keep_alive_ms in any::<u32>()) {
            let c = Connect { queue, entries, attributes, keep_alive_ms };
            prop_assert_eq!(Connect::read(&c.entry()), (0, c));
        }

        #[test]
        fn connect_data_and_records_read_back(host_id in any::<[u8; 16]>(), controller in any::<u16>(), a in "[!-~]{1,223}", b in "[!-~]{1,223}") {
            let data = ConnectData { host_id, controller, subsystem: a.clone(), host: b.clone() };
            prop_assert_eq!(ConnectData::read(&data.bytes()), data);
            let record = DiscoveryRecord {
                transport: TransportType::TCP, family: 1, subtype: 2, requirements: 0, port: controller, controller,
                admin_entries: 32, service: "4420".into(), subsystem: a, address: b, security: 0,
            };
            prop_assert_eq!(DiscoveryRecord::read(&record.bytes()), record);
        }
    }
}
