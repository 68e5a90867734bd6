//! NVMe over RDMA: private data of connection requests and replies (NVMe RDMA Transport 1.0, 3.2), and keyed data blocks
//! (NVMe Base 2.1, 4.3.2). Parsers accept any bytes.

use super::SqEntry;
use super::fabrics::{self, sgl};

/// Usual port of I/O controllers.
pub const IO_PORT: u16 = 4420;
/// Length in bytes of the private data of a request and of its acceptance.
pub const PRIVATE_BYTES: usize = 32;
/// Bytes of a response capsule.
pub const RESPONSE_BYTES: usize = 16;
/// Bytes of a command without in-capsule data.
pub const COMMAND_BYTES: usize = 64;
/// Largest length of a keyed data block: 24 bits.
pub const MAX_KEYED_BYTES: u32 = 0xff_ffff;

/// Private data of a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Queue identifier, 0 for the admin queue.
    pub queue: u16,
    /// Number of receives that the host posts.
    pub receives: u16,
    /// Number of entries of the submission queue, 2 to 65,536. Zero-based on the wire.
    pub entries: u32,
    /// Identifier of the controller, for I/O queues.
    pub controller: u16,
}

/// Reasons of a rejected connection request (STS).
pub mod reject {
    #![allow(missing_docs)]
    pub const LENGTH: u16 = 1;
    pub const FORMAT: u16 = 2;
    pub const QUEUE: u16 = 3;
    pub const ENTRIES: u16 = 4;
    pub const RECEIVES: u16 = 5;
    pub const RESOURCES: u16 = 6;
    pub const IRD: u16 = 7;
    pub const ORD: u16 = 8;
    pub const CONTROLLER: u16 = 9;

    /// Returns the reason in words.
    pub const fn name(status: u16) -> &'static str {
        match status {
            LENGTH => "invalid length of the private data",
            FORMAT => "invalid record format",
            QUEUE => "invalid queue identifier",
            ENTRIES => "invalid host submission queue size",
            RECEIVES => "invalid host receive queue size",
            RESOURCES => "no resources",
            IRD => "invalid inbound read depth",
            ORD => "invalid outbound read depth",
            CONTROLLER => "invalid controller identifier",
            _ => "a reason that is not listed",
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

impl Request {
    /// Returns the private data.
    pub fn bytes(&self) -> [u8; PRIVATE_BYTES] {
        let mut b = [0; PRIVATE_BYTES];
        let size = self.entries.saturating_sub(1) as u16;
        for (at, value) in [(2, self.queue), (4, self.receives), (6, size), (8, self.controller)] {
            b[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        b
    }

    /// Parses private data. A connection manager may have padded it.
    ///
    /// # Errors
    /// A reason of [`reject`] if it is too short, or has another record format.
    pub fn read(bytes: &[u8]) -> Result<Self, u16> {
        if bytes.len() < PRIVATE_BYTES {
            return Err(reject::LENGTH);
        }
        if word(bytes, 0) != 0 {
            return Err(reject::FORMAT);
        }
        let entries = u32::from(word(bytes, 6)) + 1;
        Ok(Self { queue: word(bytes, 2), receives: word(bytes, 4), entries, controller: word(bytes, 8) })
    }
}

/// Returns the private data of an acceptance. `receives` is the number of receives that the controller posts.
pub fn accept(receives: u16) -> [u8; PRIVATE_BYTES] {
    let mut b = [0; PRIVATE_BYTES];
    b[2..4].copy_from_slice(&receives.to_le_bytes());
    b
}

/// Returns the number of receives that a controller posts; `None` for private data of another format.
pub fn accepted(bytes: &[u8]) -> Option<u16> {
    (bytes.len() >= 4 && word(bytes, 0) == 0).then(|| word(bytes, 2))
}

/// Returns the private data of a rejection.
pub fn rejection(status: u16) -> [u8; 4] {
    let s = status.to_le_bytes();
    [0, 0, s[0], s[1]]
}

/// Returns the status of a rejection; 0 if the private data has none.
pub fn rejected(bytes: &[u8]) -> u16 {
    word(bytes, 2)
}

/// Returns a keyed data block as the two quadwords of SGL1: `length` bytes, at most [`MAX_KEYED_BYTES`], at an address in
/// the memory region of a remote key.
pub const fn keyed(address: u64, length: u32, key: u32) -> (u64, u64) {
    (address, (length & MAX_KEYED_BYTES) as u64 | (key as u64) << 24 | (sgl::KEYED as u64) << 56)
}

/// Data of a command, as its SGL describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Behind the command in its capsule.
    InCapsule {
        /// Offset from the end of the command.
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
    /// In the host's memory; of length 0 for a command without data.
    Keyed {
        /// Address in the memory region's own address range.
        address: u64,
        /// Length in bytes.
        length: u32,
        /// Remote key.
        key: u32,
    },
    /// Another type of descriptor.
    Other(u8),
}

impl Data {
    /// Parses SGL1 of a command.
    pub const fn of(entry: &SqEntry) -> Self {
        let (address, length, kind) = fabrics::descriptor_of(entry);
        match kind {
            sgl::IN_CAPSULE => Self::InCapsule { offset: address, length },
            sgl::KEYED => {
                Self::Keyed { address, length: entry.prp2 as u32 & MAX_KEYED_BYTES, key: (entry.prp2 >> 24) as u32 }
            }
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::io;
    use proptest::prelude::*;

    #[test]
    fn private_data_stands_where_its_fields_are() {
        let r = Request { queue: 3, receives: 0x80, entries: 0x81, controller: 0x1234 };
        let b = r.bytes();
        assert_eq!(b[..12], [0, 0, 3, 0, 0x80, 0, 0x80, 0, 0x34, 0x12, 0, 0]);
        assert_eq!(Request::read(&b), Ok(r));
        assert_eq!(Request::read(&[b.as_slice(), &[9; 164]].concat()), Ok(r), "padded by the connection manager");
        assert_eq!(Request::read(&b[..31]), Err(reject::LENGTH));
        assert_eq!(Request::read(&[1; 32]), Err(reject::FORMAT));
        assert_eq!((accepted(&accept(0x102)), accepted(&[0; 3]), accepted(&[1; 32])), (Some(0x102), None, None));
        assert_eq!((rejection(4), rejected(&rejection(4)), rejected(&[])), ([0, 0, 4, 0], 4, 0));
        assert_eq!(
            (reject::name(9), reject::name(77)),
            ("invalid controller identifier", "a reason that is not listed")
        );
    }

    #[test]
    fn a_keyed_block_has_24_bits_of_length_before_its_key() {
        let mut e = SqEntry::new(io::READ, 5, 1);
        (e.prp1, e.prp2) = keyed(0x1122_3344_5566_7788, 0x01_0203, 0xa1b2_c3d4);
        // Bytes 24 to 39 of the command.
        let bytes: [u8; 16] = bytemuck::cast([e.prp1.to_le(), e.prp2.to_le()]);
        let expected = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 3, 2, 1, 0xd4, 0xc3, 0xb2, 0xa1, 0x40];
        assert_eq!(bytes, expected);
        let data = Data::Keyed { address: 0x1122_3344_5566_7788, length: 0x01_0203, key: 0xa1b2_c3d4 };
        assert_eq!(Data::of(&e), data);
        (e.prp1, e.prp2) = fabrics::descriptor(sgl::IN_CAPSULE, 0, 512);
        assert_eq!(Data::of(&e), Data::InCapsule { offset: 0, length: 512 });
        (e.prp1, e.prp2) = fabrics::descriptor(sgl::TRANSPORT, 0, 512);
        assert_eq!(Data::of(&e), Data::Other(0x5a));
    }

    proptest! {
        #[test]
        fn any_private_data_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(r) = Request::read(&bytes) {
                prop_assert_eq!(&r.bytes()[..10], &bytes[..10]);
            }
            let _ = (accepted(&bytes), reject::name(rejected(&bytes)));
        }
    }
}
