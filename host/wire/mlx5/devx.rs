//! DevX: firmware commands that create queues and keys (rdma-core `mlx5_ifc.h`). A command is a structure of bit fields
//! in big-endian words. Its reply begins with a status and a syndrome.

pub mod capability;
pub mod cq;
pub mod mkey;
pub mod qp;

internal!(capability::{AtomicCapabilities, Capabilities, Capabilities2, CapabilityKind, QueryHcaCap, RoceCapabilities});
internal!(cq::CreateCq);
internal!(mkey::CreateMkey);
internal!(qp::{CreateQp, ModifyQp, QpCommand, QpContext, QpState, QueryQp, Transition});

use super::MAX_24;
use crate::wire::be::{Field, FieldError};
use std::fmt;

/// Bytes of a reply with only a status, or with the number of a new object.
pub const REPLY_BYTES: usize = 16;

/// Command opcodes: bits 31:16 of the first word.
pub mod opcode {
    #![allow(missing_docs)]
    pub const QUERY_HCA_CAP: u16 = 0x100;
    pub const CREATE_MKEY: u16 = 0x200;
    pub const CREATE_CQ: u16 = 0x400;
    pub const CREATE_QP: u16 = 0x500;
    pub const DESTROY_QP: u16 = 0x501;
    pub const RST2INIT_QP: u16 = 0x502;
    pub const INIT2RTR_QP: u16 = 0x503;
    pub const RTR2RTS_QP: u16 = 0x504;
    pub const RTS2RTS_QP: u16 = 0x505;
    pub const TO_ERROR_QP: u16 = 0x507;
    pub const TO_RESET_QP: u16 = 0x50a;
    pub const QUERY_QP: u16 = 0x50b;
}

pub(super) const OPCODE: Field = Field::new("opcode", 0x00, 31, 16);

/// Checks a command's opcode.
pub(super) fn expect_opcode(bytes: &[u8], opcode: u16) -> Result<(), FieldError> {
    let value = OPCODE.get(bytes);
    if value == u64::from(opcode) { Ok(()) } else { Err(FieldError::Undefined { field: "opcode", value }) }
}

/// Declares a structure of bit fields: its name, then each field as `name: type = byte offset of its word [high :
/// low]`. Generates `FIELDS`, `put` and `get_from`.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = $at:literal [$high:literal : $low:literal],)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// Positions of the fields.
            pub const FIELDS: &[$crate::wire::be::Field] =
                &[$($crate::wire::be::Field::new(stringify!($field), $at, $high, $low),)*];

            /// Writes all fields to a structure.
            ///
            /// # Errors
            /// * [`FieldError::TooLarge`](crate::wire::be::FieldError::TooLarge) if a value has more bits than its
            ///   field.
            /// * [`FieldError::Short`](crate::wire::be::FieldError::Short) if the structure is too short.
            pub fn put(&self, bytes: &mut [u8]) -> Result<(), $crate::wire::be::FieldError> {
                use $crate::wire::be::{Bits, Field};
                $(const { Field::new(stringify!($field), $at, $high, $low) }.set(bytes, self.$field.to_bits())?;)*
                Ok(())
            }
            /// Reads all fields. Missing bytes read as zero.
            ///
            /// # Errors
            /// [`FieldError::Undefined`](crate::wire::be::FieldError::Undefined) if a value has no defined meaning.
            pub fn get_from(bytes: &[u8]) -> Result<Self, $crate::wire::be::FieldError> {
                use $crate::wire::be::{Bits, Field, FieldError};
                $(
                    let value = const { Field::new(stringify!($field), $at, $high, $low) }.get(bytes);
                    let $field = <$type>::from_bits(value)
                        .ok_or(FieldError::Undefined { field: stringify!($field), value })?;
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}
pub(super) use layout;

/// Status of a command: the first byte of its reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

impl Status {
    /// Success.
    pub const OK: Self = Self(0);

    /// Returns the status in words.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0x00 => "success",
            0x01 => "internal error",
            0x02 => "bad opcode",
            0x03 => "bad parameter",
            0x04 => "bad system state",
            0x05 => "bad resource",
            0x06 => "resource busy",
            0x08 => "limit exceeded",
            0x09 => "bad resource state",
            0x0f => "no resources",
            0x10 => "bad QP state",
            0x50 => "bad input length",
            0x51 => "bad output length",
            _ => "status not listed",
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#04x})", self.name(), self.0)
    }
}

/// Error: the firmware rejected a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the firmware refused command {opcode:#05x}: {status}, syndrome {syndrome:#010x}")]
pub struct Refused {
    /// Opcode of the command.
    pub opcode: u16,
    /// Status of the reply.
    pub status: Status,
    /// Precise reason, in the firmware's own numbering.
    pub syndrome: u32,
}

layout! {
    /// Beginning of every reply.
    pub struct Reply {
        /// Status, as in [`Status`].
        status: u8 = 0x00 [31:24],
        /// The firmware's own number of the error.
        syndrome: u32 = 0x04 [31:0],
        /// Number of the new object, if there is one.
        object: u32 = 0x08 [23:0],
    }
}

impl Reply {
    /// Checks the reply to command `opcode`. Returns the number of the new object if the command creates one.
    ///
    /// # Errors
    /// [`Refused`] if the firmware rejected the command. A truncated reply counts as an internal error.
    pub fn check(opcode: u16, reply: &[u8]) -> Result<u32, Refused> {
        let cut_off = Self { status: 1, ..Self::default() };
        let r = if reply.len() < REPLY_BYTES { cut_off } else { Self::get_from(reply).unwrap_or(cut_off) };
        if r.status == Status::OK.0 {
            Ok(r.object & MAX_24)
        } else {
            Err(Refused { opcode, status: Status(r.status), syndrome: r.syndrome })
        }
    }
    /// Encodes the reply.
    ///
    /// # Errors
    /// [`FieldError::TooLarge`] if the object's number has more than 24 bits.
    pub fn to_bytes(&self) -> Result<[u8; REPLY_BYTES], FieldError> {
        let mut bytes = [0; REPLY_BYTES];
        self.put(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
