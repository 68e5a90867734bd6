//! QUERY_HCA_CAP: the adapter's capabilities.

use super::{OPCODE, expect_opcode, layout, opcode};
use crate::wire::be::{Field, FieldError};

const OP_MOD: Field = Field::new("op_mod", 0x04, 15, 0);
/// Bit of `op_mod` that requests current values instead of maxima.
const CURRENT: u64 = 1;
/// Byte offset of the capabilities in the reply.
const REPLY_AT: usize = 0x10;

/// Groups of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[non_exhaustive]
pub enum CapabilityKind {
    /// [`Capabilities`].
    General = 0,
    /// [`AtomicCapabilities`].
    Atomic = 3,
    /// [`RoceCapabilities`].
    Roce = 4,
    /// [`Capabilities2`].
    General2 = 0x20,
}

/// The command that queries the current values of a group of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryHcaCap {
    /// The group.
    pub kind: CapabilityKind,
}

impl QueryHcaCap {
    /// Bytes of the command.
    pub const BYTES: usize = 16;
    /// Bytes of the reply. A group of capabilities has 4 KiB.
    pub const REPLY_BYTES: usize = REPLY_AT + 4096;

    /// Encodes the command.
    ///
    /// # Errors
    /// Never fails in practice: every group fits its field.
    pub fn to_bytes(&self) -> Result<[u8; Self::BYTES], FieldError> {
        let mut bytes = [0; Self::BYTES];
        OPCODE.set(&mut bytes, opcode::QUERY_HCA_CAP.into())?;
        OP_MOD.set(&mut bytes, (self.kind as u64) << 1 | CURRENT)?;
        Ok(bytes)
    }
    /// Decodes the command.
    ///
    /// # Errors
    /// [`FieldError::Undefined`] if the bytes are another command, or request an undefined group or values other than
    /// current ones.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FieldError> {
        expect_opcode(bytes, opcode::QUERY_HCA_CAP)?;
        let value = OP_MOD.get(bytes);
        let kinds = [CapabilityKind::General, CapabilityKind::Atomic, CapabilityKind::Roce, CapabilityKind::General2];
        let kind = kinds.into_iter().find(|k| (*k as u64) << 1 | CURRENT == value);
        Ok(Self { kind: kind.ok_or(FieldError::Undefined { field: "op_mod", value })? })
    }
    /// Returns the capabilities in a reply. The caller has checked its status with [`super::Reply::check`].
    pub fn capabilities(reply: &[u8]) -> &[u8] {
        reply.get(REPLY_AT..).unwrap_or_default()
    }
}

layout! {
    /// General capabilities.
    pub struct Capabilities {
        /// There are [`Capabilities2`].
        has_more: bool = 0x04 [31:31],
        /// log2 of the largest queue, in blocks.
        log_max_qp_size: u8 = 0x10 [23:16],
        /// Version of completion entries. Version 1 has the user index.
        cqe_version: u8 = 0x3c [3:0],
        /// Messages can go into their completion entry.
        scatter_to_cqe: bool = 0x40 [10:10],
        /// Completion queues may ignore overrun.
        cq_overrun_ignore: bool = 0x44 [31:31],
        /// Doorbell registers accept whole entries.
        blue_flame: bool = 0x4c [31:31],
        /// log2 of the size of such a register in bytes.
        log_blue_flame_bytes: u8 = 0x4c [20:16],
        /// Largest send entry in bytes.
        max_wqe_bytes: u16 = 0x50 [15:0],
        /// Largest receive entry in bytes.
        max_receive_bytes: u16 = 0x54 [15:0],
    }
}

layout! {
    /// More general capabilities.
    pub struct Capabilities2 {
        /// Queue pairs can work without a doorbell record.
        no_doorbell_record: bool = 0x5c [30:30],
    }
}

layout! {
    /// Capabilities of atomics.
    pub struct AtomicCapabilities {
        /// Byte order of 8-byte results: 0 for big-endian, 1 for this machine's order
        /// (`atomic_req_8B_endianness_mode`).
        endianness_modes: u8 = 0x08 [31:30],
        /// Supported operations: bits of [`atomic_operation`].
        operations: u16 = 0x10 [15:0],
        /// Operand sizes on connected queue pairs: bit n for 2^n bytes.
        sizes_qp: u16 = 0x14 [15:0],
    }
}

/// Bits of [`AtomicCapabilities::operations`].
pub mod atomic_operation {
    /// Compare and swap.
    pub const COMPARE_SWAP: u16 = 1 << 0;
    /// Fetch and add.
    pub const FETCH_ADD: u16 = 1 << 1;
    /// Masked compare and swap.
    pub const MASKED_COMPARE_SWAP: u16 = 1 << 2;
    /// Masked fetch and add.
    pub const MASKED_FETCH_ADD: u16 = 1 << 3;
}

impl AtomicCapabilities {
    /// Returns true if connected queue pairs have extended atomics on operands of `bytes` bytes.
    pub const fn has_extended(&self, bytes: u16) -> bool {
        let both = atomic_operation::MASKED_COMPARE_SWAP | atomic_operation::MASKED_FETCH_ADD;
        bytes.is_power_of_two() && self.operations & both == both && self.sizes_qp & bytes != 0
    }
}

layout! {
    /// RDMA over Converged Ethernet.
    pub struct RoceCapabilities {
        /// UDP destination port of packets.
        udp_destination: u16 = 0x14 [15:0],
        /// Largest UDP source port.
        udp_source_max: u16 = 0x18 [31:16],
        /// Smallest UDP source port.
        udp_source_min: u16 = 0x18 [15:0],
    }
}
