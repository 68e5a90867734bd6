//! Types of elements.

/// Unsigned, 8 bits.
pub const WB_U8: u32 = 1;
/// Unsigned, 16 bits.
pub const WB_U16: u32 = 2;
/// Unsigned, 32 bits.
pub const WB_U32: u32 = 3;
/// Unsigned, 64 bits.
pub const WB_U64: u32 = 4;
/// Signed, 8 bits.
pub const WB_I8: u32 = 5;
/// Signed, 16 bits.
pub const WB_I16: u32 = 6;
/// Signed, 32 bits.
pub const WB_I32: u32 = 7;
/// Signed, 64 bits.
pub const WB_I64: u32 = 8;
/// IEEE 754, 32 bits.
pub const WB_F32: u32 = 9;
/// IEEE 754, 64 bits.
pub const WB_F64: u32 = 10;
/// A record whose structure only the program knows.
pub const WB_RECORD: u32 = 11;
