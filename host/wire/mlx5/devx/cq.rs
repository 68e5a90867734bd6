//! CREATE_CQ: creates a completion queue.

use super::{OPCODE, expect_opcode, layout, opcode};
use crate::wire::be::FieldError;

layout! {
    /// Creates a completion queue in registered memory.
    pub struct CreateCq {
        /// The doorbell record is in [`CreateCq::dbr_umem_id`].
        dbr_umem_valid: bool = 0x10 [25:25],
        /// Size of an entry: 0 for 64 bytes, 1 for 128.
        cqe_size: u8 = 0x10 [23:21],
        /// All entries overwrite the first one.
        collapsed: bool = 0x10 [20:20],
        /// The adapter does not check for overrun, so the consumer index need not be maintained.
        overrun_ignore: bool = 0x10 [17:17],
        /// Entries may be compressed.
        compression: bool = 0x10 [14:14],
        /// State of event delivery.
        arm_state: u8 = 0x10 [11:8],
        /// Memory of the doorbell record.
        dbr_umem_id: u32 = 0x14 [31:0],
        /// Offset of the first entry in its page, in units of 64 bytes.
        page_offset: u8 = 0x18 [11:6],
        /// log2 of the entries.
        log_size: u8 = 0x1c [28:24],
        /// Page of the arm doorbell.
        uar_page: u32 = 0x1c [23:0],
        /// Event queue.
        eqn: u32 = 0x24 [31:0],
        /// log2 of the page size, in units of 4 KiB.
        log_page_size: u8 = 0x28 [28:24],
        /// Byte offset of the doorbell record.
        dbr_offset: u64 = 0x48 [63:0],
        /// Byte offset of the queue.
        umem_offset: u64 = 0x50 [63:0],
        /// Memory of the queue.
        umem_id: u32 = 0x58 [31:0],
        /// The queue is in [`CreateCq::umem_id`].
        umem_valid: bool = 0x5c [31:31],
    }
}

impl CreateCq {
    /// Bytes of the command.
    pub const BYTES: usize = 272;

    /// Encodes the command.
    ///
    /// # Errors
    /// [`FieldError::TooLarge`] if a value has more bits than its field.
    pub fn to_bytes(&self) -> Result<[u8; Self::BYTES], FieldError> {
        let mut bytes = [0; Self::BYTES];
        OPCODE.set(&mut bytes, opcode::CREATE_CQ.into())?;
        self.put(&mut bytes)?;
        Ok(bytes)
    }
    /// Decodes the command.
    ///
    /// # Errors
    /// [`FieldError::Undefined`] if the bytes are another command, or a value has no defined meaning.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FieldError> {
        expect_opcode(bytes, opcode::CREATE_CQ)?;
        Self::get_from(bytes)
    }
}
