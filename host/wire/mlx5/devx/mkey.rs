//! CREATE_MKEY: creates a memory key.

use super::{OPCODE, expect_opcode, layout, opcode};
use crate::wire::be::FieldError;

/// Queue pair field of a key that is not bound to a queue pair.
pub const ANY_QPN: u32 = 0xff_ffff;
/// Access mode of a key over a list of pages (MTT).
pub const ACCESS_PAGES: u8 = 1;

/// Returns a key as work queue entries name it. `index` is the object number from CREATE_MKEY's reply, `key_byte` the
/// byte chosen by its creator.
pub const fn key(index: u32, key_byte: u8) -> u32 {
    index << 8 | key_byte as u32
}

layout! {
    /// Creates a memory key over registered memory.
    pub struct CreateMkey {
        /// The memory is [`CreateMkey::umem_id`].
        umem_valid: bool = 0x0c [30:30],
        /// The adapter's writes may pass each other.
        relaxed_ordering_write: bool = 0x10 [18:18],
        /// Remote atomics.
        remote_atomic: bool = 0x10 [14:14],
        /// Remote writes.
        remote_write: bool = 0x10 [13:13],
        /// Remote reads.
        remote_read: bool = 0x10 [12:12],
        /// Local writes.
        local_write: bool = 0x10 [11:11],
        /// Local reads.
        local_read: bool = 0x10 [10:10],
        /// Kind of translation: [`ACCESS_PAGES`].
        access_mode: u8 = 0x10 [9:8],
        /// Queue pair that may use the key, or [`ANY_QPN`].
        qpn: u32 = 0x14 [31:8],
        /// Low byte of the key.
        key_byte: u8 = 0x14 [7:0],
        /// Protection domain.
        pd: u32 = 0x1c [23:0],
        /// First address of the key's own address range.
        start: u64 = 0x20 [63:0],
        /// Length in bytes.
        length: u64 = 0x28 [63:0],
        /// The adapter's reads may pass writes.
        relaxed_ordering_read: bool = 0x48 [6:6],
        /// log2 of the page size.
        log_page_size: u8 = 0x48 [4:0],
        /// Size of the translation list in units of 16 bytes.
        translations: u32 = 0x60 [31:0],
        /// Number of the registered memory.
        umem_id: u32 = 0x64 [31:0],
        /// Byte offset of [`CreateMkey::start`] in the registered memory.
        umem_offset: u64 = 0x68 [63:0],
    }
}

impl CreateMkey {
    /// Bytes of the command.
    pub const BYTES: usize = 272;

    /// Encodes the command.
    ///
    /// # Errors
    /// [`FieldError::TooLarge`] if a value has more bits than its field.
    pub fn to_bytes(&self) -> Result<[u8; Self::BYTES], FieldError> {
        let mut bytes = [0; Self::BYTES];
        OPCODE.set(&mut bytes, opcode::CREATE_MKEY.into())?;
        self.put(&mut bytes)?;
        Ok(bytes)
    }
    /// Decodes the command.
    ///
    /// # Errors
    /// [`FieldError::Undefined`] if the bytes are another command, or a value has no defined meaning.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FieldError> {
        expect_opcode(bytes, opcode::CREATE_MKEY)?;
        Self::get_from(bytes)
    }
}
