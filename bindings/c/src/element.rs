//! Types of the elements of arrays and of results.

use crate::error::Error;
use warpbell::storage::ElementType;

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
/// IEEE 754, 16 bits.
pub const WB_F16: u32 = 12;
/// The upper 16 bits of an IEEE 754 number of 32 bits.
pub const WB_BF16: u32 = 13;

const TYPES: [(u32, ElementType); 13] = [
    (WB_U8, ElementType::U8),
    (WB_U16, ElementType::U16),
    (WB_U32, ElementType::U32),
    (WB_U64, ElementType::U64),
    (WB_I8, ElementType::I8),
    (WB_I16, ElementType::I16),
    (WB_I32, ElementType::I32),
    (WB_I64, ElementType::I64),
    (WB_F32, ElementType::F32),
    (WB_F64, ElementType::F64),
    (WB_RECORD, ElementType::Record),
    (WB_F16, ElementType::F16),
    (WB_BF16, ElementType::Bf16),
];

/// Returns the type that a constant stands for.
pub(crate) fn element_type(dtype: u32) -> Result<ElementType, Error> {
    let found = TYPES.iter().find(|(number, _)| *number == dtype).map(|(_, element)| *element);
    found.ok_or_else(|| Error::argument(format!("`dtype` is {dtype}; use one of WB_U8 to WB_BF16")))
}

/// Returns the constant of a type.
pub(crate) fn dtype_of(element: ElementType) -> u32 {
    // Types that are added to the library without a constant are plain bytes for the program.
    TYPES.iter().find(|(_, e)| *e == element).map_or(WB_RECORD, |(number, _)| *number)
}

/// Returns the type and the size of its elements. `record_bytes` is the size of a record, and 0 or the size of the type
/// otherwise.
pub(crate) fn sized(dtype: u32, record_bytes: u32) -> Result<(ElementType, u32), Error> {
    let element = element_type(dtype)?;
    match (element.bytes(), record_bytes) {
        (None, 0) => Err(Error::argument("`element_bytes` is 0; records need their size in bytes")),
        (None, bytes) => Ok((element, bytes)),
        (Some(bytes), given) if given == 0 || given == bytes => Ok((element, bytes)),
        (Some(bytes), given) => {
            Err(Error::argument(format!("`element_bytes` is {given}, and elements of type {element} have {bytes}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_belong_to_types() {
        assert_eq!(sized(WB_F64, 0).unwrap(), (ElementType::F64, 8));
        assert_eq!(sized(WB_U16, 2).unwrap(), (ElementType::U16, 2));
        assert_eq!(sized(WB_RECORD, 12).unwrap(), (ElementType::Record, 12));
        for (dtype, bytes) in [(0, 0), (14, 4), (WB_BF16, 4), (WB_U8, 4), (WB_RECORD, 0)] {
            assert!(sized(dtype, bytes).is_err(), "{dtype} {bytes}");
        }
        for (number, element) in TYPES {
            assert_eq!(dtype_of(element), number);
        }
    }
}
