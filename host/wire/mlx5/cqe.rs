//! Completion queue entries, 64 bytes (rdma-core `mlx5dv.h`, `struct mlx5_cqe64` and `struct mlx5_err_cqe`).

use super::{CQE_BYTES, MAX_24, Syndrome, VendorSyndrome};
use crate::wire::be::{Be16, Be32, Be64};
use bytemuck::{Pod, Zeroable};
use core::mem::offset_of;
use std::fmt;

/// A completion queue entry as the adapter writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Cqe {
    /// Tag matching fields.
    pub reserved0: [u8; 2],
    /// Identifier of the entry, in a shared receive queue with identifiers.
    pub wqe_id: Be16,
    /// Large receive offload and checksum fields.
    pub reserved4: [u8; 13],
    /// Path bits of an InfiniBand receive.
    pub ml_path: u8,
    /// More offload and checksum fields.
    pub reserved18: [u8; 4],
    /// Source LID of a receive.
    pub slid: Be16,
    /// Remote queue pair in 23:0, for datagrams.
    pub flags_rqpn: Be32,
    /// Ethernet header summary.
    pub hds_ip_ext: u8,
    /// Layer 4 header type.
    pub l4_type: u8,
    /// VLAN tag.
    pub vlan: Be16,
    /// The queue pair's user index in 23:0 (CQE version 1).
    pub user_index: Be32,
    /// Immediate data, or the invalidated key.
    pub immediate: Be32,
    /// Application.
    pub app: u8,
    /// Application operation.
    pub app_op: u8,
    /// Application information.
    pub app_info: Be16,
    /// Length of a receive, a read or an atomic operand in bytes.
    pub bytes: Be32,
    /// Timestamp from the adapter's clock.
    pub timestamp: Be64,
    /// Opcode of the work queue entry in 31:24, queue pair in 23:0.
    pub opcode_qpn: Be32,
    /// Index of the work queue entry's first block.
    pub wqe_counter: Be16,
    /// Checksum, for queues that request it.
    pub signature: u8,
    /// [`CqeOpcode`] in 7:4, inline data in 3:2, solicited event in 1, owner in 0.
    pub op_own: u8,
}

/// A completion queue entry of a failed request or receive.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct ErrorCqe {
    /// Always 0.
    pub reserved0: [u8; 32],
    /// Shared receive queue, or the queue pair's user index, in 23:0.
    pub user_index: Be32,
    /// Always 0.
    pub reserved36: [u8; 16],
    /// Hardware syndrome.
    pub hardware_syndrome: u8,
    /// Type of the hardware syndrome.
    pub hardware_syndrome_type: u8,
    /// [`VendorSyndrome`].
    pub vendor_syndrome: u8,
    /// [`Syndrome`].
    pub syndrome: u8,
    /// Opcode of the work queue entry in 31:24, queue pair in 23:0.
    pub opcode_qpn: Be32,
    /// Index of the work queue entry's first block.
    pub wqe_counter: Be16,
    /// Checksum, for queues that request it.
    pub signature: u8,
    /// As in [`Cqe`].
    pub op_own: u8,
}

const _: () = {
    assert!(size_of::<Cqe>() == CQE_BYTES && align_of::<Cqe>() == 1);
    assert!(offset_of!(Cqe, wqe_id) == 2);
    assert!(offset_of!(Cqe, ml_path) == 17);
    assert!(offset_of!(Cqe, slid) == 22);
    assert!(offset_of!(Cqe, flags_rqpn) == 24);
    assert!(offset_of!(Cqe, hds_ip_ext) == 28);
    assert!(offset_of!(Cqe, l4_type) == 29);
    assert!(offset_of!(Cqe, vlan) == 30);
    assert!(offset_of!(Cqe, user_index) == 32);
    assert!(offset_of!(Cqe, immediate) == 36);
    assert!(offset_of!(Cqe, app) == 40);
    assert!(offset_of!(Cqe, app_op) == 41);
    assert!(offset_of!(Cqe, app_info) == 42);
    assert!(offset_of!(Cqe, bytes) == 44);
    assert!(offset_of!(Cqe, timestamp) == 48);
    assert!(offset_of!(Cqe, opcode_qpn) == 56);
    assert!(offset_of!(Cqe, wqe_counter) == 60);
    assert!(offset_of!(Cqe, signature) == 62);
    assert!(offset_of!(Cqe, op_own) == 63);
    assert!(size_of::<ErrorCqe>() == CQE_BYTES && align_of::<ErrorCqe>() == 1);
    assert!(offset_of!(ErrorCqe, user_index) == 32);
    assert!(offset_of!(ErrorCqe, hardware_syndrome) == 52);
    assert!(offset_of!(ErrorCqe, hardware_syndrome_type) == 53);
    assert!(offset_of!(ErrorCqe, vendor_syndrome) == 54);
    assert!(offset_of!(ErrorCqe, syndrome) == 55);
    assert!(offset_of!(ErrorCqe, opcode_qpn) == 56);
    assert!(offset_of!(ErrorCqe, wqe_counter) == 60);
    assert!(offset_of!(ErrorCqe, op_own) == 63);
};

/// Kind of entry: bits 7:4 of its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum CqeOpcode {
    /// A work request has succeeded.
    Requester = 0x0,
    /// A write with immediate has arrived.
    WriteImm = 0x1,
    /// A message has arrived.
    Send = 0x2,
    /// A message with immediate has arrived.
    SendImm = 0x3,
    /// A message that invalidates a key has arrived.
    SendInval = 0x4,
    /// The queue was resized.
    Resize = 0x5,
    /// No packet.
    NoPacket = 0x6,
    /// A signature is wrong.
    SignatureError = 0xc,
    /// A work request has failed.
    RequesterError = 0xd,
    /// A receive has failed.
    ResponderError = 0xe,
    /// The adapter has not written the entry.
    Invalid = 0xf,
}

impl CqeOpcode {
    /// Decodes the four bits; `None` if they are not defined.
    pub const fn from_nibble(nibble: u8) -> Option<Self> {
        Some(match nibble {
            0x0 => Self::Requester,
            0x1 => Self::WriteImm,
            0x2 => Self::Send,
            0x3 => Self::SendImm,
            0x4 => Self::SendInval,
            0x5 => Self::Resize,
            0x6 => Self::NoPacket,
            0xc => Self::SignatureError,
            0xd => Self::RequesterError,
            0xe => Self::ResponderError,
            0xf => Self::Invalid,
            _ => return None,
        })
    }
}

/// Owner bit: bit 0 of an entry's last byte.
pub const OWNER: u8 = 1;
/// Initial last byte of an entry: never written, and of the lap before the first.
pub const NEVER_WRITTEN: u8 = 0xf1;
const SOLICITED: u8 = 1 << 1;
const FORMAT: u8 = 3 << 2;
/// [`FORMAT`] of an entry with data in its first bytes (`MLX5_INLINE_SCATTER_32`).
const DATA_IN_ENTRY: u8 = 1 << 2;
/// Most data of a received message in the entry itself.
pub const MAX_DATA: usize = 32;

/// Reason why a work request or a receive failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Syndrome.
    pub syndrome: Syndrome,
    /// Vendor syndrome, which is more precise.
    pub vendor: VendorSyndrome,
    /// Type and value of the hardware syndrome.
    pub hardware: (u8, u8),
}

impl Failure {
    /// Creates a failure without a hardware syndrome.
    pub const fn new(syndrome: Syndrome, vendor: VendorSyndrome) -> Self {
        Self { syndrome, vendor, hardware: (0, 0) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (syndrome {:#04x}, vendor syndrome {})", self.syndrome.name(), self.syndrome.0, self.vendor)?;
        if self.syndrome.cause().is_empty() { Ok(()) } else { write!(f, ": {}", self.syndrome.cause()) }
    }
}

impl std::error::Error for Failure {}

/// Result of a work request or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The work request has succeeded.
    Done,
    /// A receive has succeeded.
    Received {
        /// Kind of the received message.
        what: CqeOpcode,
        /// Immediate data or invalidated key, if the kind has one.
        immediate: Option<u32>,
    },
    /// A work request has failed.
    Failed(Failure),
    /// A receive has failed.
    ReceiveFailed(Failure),
}

/// A decoded completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Queue pair number.
    pub qpn: u32,
    /// The queue pair's user index.
    pub user_index: u32,
    /// Index of the first block of the work queue entry.
    pub wqe_counter: u16,
    /// Code of the work queue entry's opcode.
    pub opcode: u8,
    /// Bytes received, read, or changed by an atomic; otherwise 0.
    pub bytes: u32,
    /// True if the sender requested a solicited event.
    pub solicited: bool,
    /// Result.
    pub outcome: Outcome,
}

/// Error: an entry is not a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CqeError {
    /// The adapter has not written the entry.
    #[error("the entry was never written")]
    NeverWritten,
    /// Queue pairs do not make entries of this kind.
    #[error("a completion entry of kind {0:#x}, which a queue pair does not produce")]
    Kind(u8),
    /// The entry contains data, though the queue pair was created without that.
    #[error(
        "a completion entry with inline data (format {0}); the queue pair must be created with cs_req and cs_res 0"
    )]
    Scattered(u8),
}

impl Cqe {
    /// Creates an entry in the initial state of a queue: never written.
    pub fn never_written() -> Self {
        Self { op_own: NEVER_WRITTEN, ..Self::zeroed() }
    }
    /// Returns the kind of entry; `None` if it is not defined.
    pub const fn opcode(&self) -> Option<CqeOpcode> {
        CqeOpcode::from_nibble(self.op_own >> 4)
    }
    /// Returns the owner bit, which alternates from lap to lap.
    pub const fn owner(&self) -> bool {
        self.op_own & OWNER != 0
    }
    /// Reinterprets the entry as one of a failure.
    pub fn as_error(&self) -> &ErrorCqe {
        bytemuck::cast_ref(self)
    }

    /// Decodes the entry.
    ///
    /// # Errors
    /// * [`CqeError::NeverWritten`] if the adapter has not written it.
    /// * [`CqeError::Kind`] if its kind is not defined, or queue pairs do not make it.
    /// * [`CqeError::Scattered`] if it contains data.
    pub fn completion(&self) -> Result<Completion, CqeError> {
        match self.completion_with_data()? {
            (c, None) => Ok(c),
            (_, Some(_)) => Err(CqeError::Scattered((self.op_own & FORMAT) >> 2)),
        }
    }

    /// Decodes an entry that may contain the data of a received message. Returns the completion, and the data if the
    /// entry has it. The receive's own memory is then unchanged.
    ///
    /// # Errors
    /// As [`Cqe::completion`], but [`CqeError::Scattered`] only for data in another place or of another kind, or if the
    /// message is longer than [`MAX_DATA`].
    pub fn completion_with_data(&self) -> Result<(Completion, Option<&[u8]>), CqeError> {
        let nibble = self.op_own >> 4;
        let kind = self.opcode().ok_or(CqeError::Kind(nibble))?;
        if kind == CqeOpcode::Invalid {
            return Err(CqeError::NeverWritten);
        }
        let format = (self.op_own & FORMAT) >> 2;
        let e = self.as_error();
        let failure = Failure {
            syndrome: Syndrome(e.syndrome),
            vendor: VendorSyndrome(e.vendor_syndrome),
            hardware: (e.hardware_syndrome_type, e.hardware_syndrome),
        };
        let received = |immediate| Outcome::Received { what: kind, immediate };
        let outcome = match kind {
            CqeOpcode::Requester => Outcome::Done,
            CqeOpcode::Send => received(None),
            CqeOpcode::WriteImm | CqeOpcode::SendImm | CqeOpcode::SendInval => received(Some(self.immediate.get())),
            CqeOpcode::RequesterError => Outcome::Failed(failure),
            CqeOpcode::ResponderError => Outcome::ReceiveFailed(failure),
            _ => return Err(CqeError::Kind(nibble)),
        };
        let failed = matches!(outcome, Outcome::Failed(_) | Outcome::ReceiveFailed(_));
        let completion = Completion {
            qpn: self.opcode_qpn.get() & MAX_24,
            user_index: self.user_index.get() & MAX_24,
            wqe_counter: self.wqe_counter.get(),
            opcode: (self.opcode_qpn.get() >> 24) as u8,
            bytes: if failed { 0 } else { self.bytes.get() },
            solicited: self.op_own & SOLICITED != 0,
            outcome,
        };
        if format == 0 || failed {
            return Ok((completion, None));
        }
        let is_message = matches!(kind, CqeOpcode::Send | CqeOpcode::SendImm | CqeOpcode::SendInval);
        match bytemuck::bytes_of(self)[..MAX_DATA].get(..completion.bytes as usize) {
            Some(data) if self.op_own & FORMAT == DATA_IN_ENTRY && is_message => Ok((completion, Some(data))),
            _ => Err(CqeError::Scattered(format)),
        }
    }
}

impl Completion {
    /// Encodes the entry as an adapter does in a lap with this owner bit.
    pub fn to_cqe(&self, owner: bool) -> Cqe {
        let kind = match self.outcome {
            Outcome::Done => CqeOpcode::Requester,
            Outcome::Received { what, .. } => what,
            Outcome::Failed(_) => CqeOpcode::RequesterError,
            Outcome::ReceiveFailed(_) => CqeOpcode::ResponderError,
        };
        let op_own = (kind as u8) << 4 | if self.solicited { SOLICITED } else { 0 } | u8::from(owner);
        let opcode_qpn = Be32::new(u32::from(self.opcode) << 24 | self.qpn & MAX_24);
        let (wqe_counter, user_index) = (self.wqe_counter.into(), Be32::new(self.user_index & MAX_24));
        match self.outcome {
            Outcome::Failed(f) | Outcome::ReceiveFailed(f) => bytemuck::cast(ErrorCqe {
                user_index,
                hardware_syndrome: f.hardware.1,
                hardware_syndrome_type: f.hardware.0,
                vendor_syndrome: f.vendor.0,
                syndrome: f.syndrome.0,
                opcode_qpn,
                wqe_counter,
                op_own,
                ..ErrorCqe::zeroed()
            }),
            Outcome::Done | Outcome::Received { .. } => {
                let immediate = match self.outcome {
                    Outcome::Received { immediate: Some(v), .. } => v,
                    _ => 0,
                };
                let (immediate, bytes) = (immediate.into(), self.bytes.into());
                Cqe { user_index, immediate, bytes, opcode_qpn, wqe_counter, op_own, ..Cqe::zeroed() }
            }
        }
    }
    /// Encodes the entry of a received message with the message's data in it, at most [`MAX_DATA`] bytes. Data beyond
    /// that is left out.
    pub fn to_cqe_with_data(&self, owner: bool, data: &[u8]) -> Cqe {
        let mut cqe = self.to_cqe(owner);
        cqe.op_own |= DATA_IN_ENTRY;
        for (to, from) in bytemuck::bytes_of_mut(&mut cqe)[..MAX_DATA].iter_mut().zip(data) {
            *to = *from;
        }
        cqe
    }
    /// Checks that the work request or the receive has succeeded.
    ///
    /// # Errors
    /// The [`Failure`] if it has not.
    pub fn ok(&self) -> Result<(), Failure> {
        match self.outcome {
            Outcome::Failed(f) | Outcome::ReceiveFailed(f) => Err(f),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mlx5::vectors;
    use proptest::prelude::*;

    fn write(outcome: Outcome) -> Completion {
        Completion { qpn: 0xabcd, user_index: 0, wqe_counter: 0x1234, opcode: 8, bytes: 0, solicited: false, outcome }
    }

    #[test]
    fn golden_entries() {
        let tail =
            |c: Completion, owner| <[u8; 16]>::try_from(&bytemuck::bytes_of(&c.to_cqe(owner))[48..]).expect("16 bytes");
        let mut good = [0; 16];
        good[8..].copy_from_slice(&[0x08, 0, 0xab, 0xcd, 0x12, 0x34, 0, 0]);
        assert_eq!(tail(write(Outcome::Done), false), good);
        good[15] = 1;
        assert_eq!(tail(write(Outcome::Done), true), good);
        let failure = Failure::new(Syndrome::REMOTE_ACCESS, VendorSyndrome::REMOTE_ACCESS);
        (good[6], good[7], good[15]) = (0x88, 0x13, 0xd0);
        assert_eq!(tail(write(Outcome::Failed(failure)), false), good);
    }

    #[test]
    fn golden_entries_of_received_messages() {
        let mut seen = 0;
        for v in vectors::all().filter(|v| v.what == "received") {
            let cqe: Cqe = bytemuck::pod_read_unaligned(&v.bytes);
            let (c, data) = cqe.completion_with_data().expect("a completion");
            let owner = v.get("owner") != 0;
            assert_eq!((u64::from(c.qpn), u64::from(c.wqe_counter)), (v.get("qpn"), v.get("counter")));
            assert_eq!((u64::from(c.bytes), cqe.owner()), (v.or_zero("length"), owner));
            assert_eq!(data.is_some(), v.or_zero("in_entry") != 0);
            match c.outcome {
                Outcome::ReceiveFailed(f) => assert_eq!(u64::from(f.syndrome.0), v.get("syndrome")),
                other => assert_eq!(other, Outcome::Received { what: CqeOpcode::Send, immediate: None }),
            }
            let again = data.map_or_else(|| c.to_cqe(owner), |d| c.to_cqe_with_data(owner, d));
            assert_eq!(bytemuck::bytes_of(&again), v.bytes, "{v:x?}");
            if let Some(data) = data {
                assert_eq!(u64::from(u32::from_le_bytes(data[12..16].try_into().unwrap())), v.get("word"));
                assert_eq!(cqe.completion(), Err(CqeError::Scattered(1)), "the queue pair is without");
                // Longer than what fits, and data that is not a message's.
                let long = Cqe { bytes: 33.into(), ..cqe };
                assert_eq!(long.completion_with_data(), Err(CqeError::Scattered(1)));
                let of_request = Cqe { op_own: DATA_IN_ENTRY, ..cqe };
                assert_eq!(of_request.completion_with_data(), Err(CqeError::Scattered(1)));
                let before = Cqe { op_own: 0x28, ..cqe };
                assert_eq!(before.completion_with_data(), Err(CqeError::Scattered(2)));
            }
            seen += 1;
        }
        assert_eq!(seen, 3);
    }

    #[test]
    fn a_failure_says_all_that_is_known() {
        let failure = Failure::new(Syndrome::RETRY_EXCEEDED, VendorSyndrome::RETRY_EXCEEDED);
        let c = write(Outcome::Failed(failure)).to_cqe(true).completion().expect("a completion");
        assert_eq!(
            c.ok().expect_err("it failed").to_string(),
            "transport retry count exceeded (syndrome 0x15, vendor syndrome 0x81, no answer): the peer does not answer: it is \
             gone, or the address, MTU, route or traffic class is wrong"
        );
        assert_eq!(
            Failure::new(Syndrome(0x99), VendorSyndrome(2)).to_string(),
            "syndrome not listed (syndrome 0x99, vendor syndrome 0x02)"
        );
    }

    #[test]
    fn what_is_not_a_completion_is_refused() {
        assert_eq!(Cqe::never_written().completion(), Err(CqeError::NeverWritten));
        let filled: Cqe = bytemuck::cast([0xffu8; 64]);
        assert_eq!(filled.completion(), Err(CqeError::NeverWritten));
        let with = |op_own| Cqe { op_own, ..Cqe::zeroed() }.completion();
        assert_eq!(with(0x70), Err(CqeError::Kind(7)));
        assert_eq!(with(0x50), Err(CqeError::Kind(5)));
        assert_eq!(with(0x05), Err(CqeError::Scattered(1)));
        assert!(with(0x02).expect("a completion").solicited);
    }

    fn outcomes() -> impl Strategy<Value = Outcome> {
        let failure = (any::<u8>(), any::<u8>(), any::<(u8, u8)>()).prop_map(|(s, v, hardware)| Failure {
            syndrome: Syndrome(s),
            vendor: VendorSyndrome(v),
            hardware,
        });
        let received = any::<u32>().prop_flat_map(|v| {
            let with = |what| Outcome::Received { what, immediate: Some(v) };
            let without = Outcome::Received { what: CqeOpcode::Send, immediate: None };
            prop::sample::select(vec![
                with(CqeOpcode::WriteImm),
                with(CqeOpcode::SendImm),
                with(CqeOpcode::SendInval),
                without,
            ])
        });
        prop_oneof![
            Just(Outcome::Done),
            failure.clone().prop_map(Outcome::Failed),
            failure.prop_map(Outcome::ReceiveFailed),
            received,
        ]
    }

    proptest! {
        #[test]
        fn completions_come_back(
            outcome in outcomes(), qpn in 0..=MAX_24, user_index in 0..=MAX_24, wqe_counter: u16, opcode: u8,
            bytes: u32, solicited: bool, owner: bool,
        ) {
            let failed = matches!(outcome, Outcome::Failed(_) | Outcome::ReceiveFailed(_));
            let bytes = if failed { 0 } else { bytes };
            let c = Completion { qpn, user_index, wqe_counter, opcode, bytes, solicited, outcome };
            let cqe = c.to_cqe(owner);
            prop_assert_eq!(cqe.owner(), owner);
            prop_assert_eq!(cqe.completion(), Ok(c));
            prop_assert_eq!(c.ok().is_err(), failed);
        }

        #[test]
        fn arbitrary_entries_are_read_or_refused(low: [u8; 32], high: [u8; 32]) {
            let bytes: [u8; 64] = [low, high].concat().try_into().expect("64 bytes");
            let cqe: Cqe = bytemuck::cast(bytes);
            match cqe.completion() {
                Ok(c) => {
                    prop_assert_eq!(c.wqe_counter, u16::from_be_bytes([bytes[60], bytes[61]]));
                    prop_assert!(bytes[63] >> 4 <= 4 || matches!(bytes[63] >> 4, 0xd | 0xe));
                }
                Err(e) => prop_assert!(!e.to_string().is_empty()),
            }
        }
    }
}
