//! Big-endian integers as structure fields, and bit fields of big-endian words.

use bytemuck::{Pod, Zeroable};
use std::fmt;

macro_rules! integer {
    ($name:ident, $int:ty, $bytes:literal, $text:literal) => {
        #[doc = $text]
        #[repr(transparent)]
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Stores a value, most significant byte first.
            pub const fn new(value: $int) -> Self {
                Self(value.to_be_bytes())
            }
            /// Returns the value.
            pub const fn get(self) -> $int {
                <$int>::from_be_bytes(self.0)
            }
        }

        impl From<$int> for $name {
            fn from(value: $int) -> Self {
                Self::new(value)
            }
        }

        impl From<$name> for $int {
            fn from(value: $name) -> Self {
                value.get()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.get())
            }
        }
    };
}

integer!(Be16, u16, 2, "16 bits, big-endian, with the alignment of a byte.");
integer!(Be32, u32, 4, "32 bits, big-endian, with the alignment of a byte.");
integer!(Be64, u64, 8, "64 bits, big-endian, with the alignment of a byte.");

/// Error of a bit field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The value has more bits than the field.
    #[error("{field} is {value:#x}, but its field has {bits} bits")]
    TooLarge {
        /// Name of the field.
        field: &'static str,
        /// The value.
        value: u64,
        /// Number of bits in the field.
        bits: u32,
    },
    /// The value has no defined meaning.
    #[error("{field} is {value:#x}, which the layout does not define")]
    Undefined {
        /// Name of the field.
        field: &'static str,
        /// The value.
        value: u64,
    },
    /// The structure ends before the field does.
    #[error("{field} ends at byte {needs}, but there are {bytes} bytes")]
    Short {
        /// Name of the field.
        field: &'static str,
        /// Bytes up to the end of the field.
        needs: usize,
        /// Bytes of the structure.
        bytes: usize,
    },
}

/// Bits `high` down to `low` of the big-endian word at a byte offset. The word has 32 bits, or 64 bits if `high` is
/// above 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the field.
    pub name: &'static str,
    /// Byte offset of the word, a multiple of 4.
    pub at: usize,
    /// Most significant bit; bit 0 is the least significant one of the word.
    pub high: u32,
    /// Least significant bit.
    pub low: u32,
}

impl Field {
    /// Creates a field. The checks run at compile time if the field is a constant.
    ///
    /// # Panics
    /// Panics if `at` is not a multiple of 4, `high` is above 63, or `low` is above `high`.
    pub const fn new(name: &'static str, at: usize, high: u32, low: u32) -> Self {
        assert!(at.is_multiple_of(4) && high < 64 && low <= high, "not a field of a word");
        Self { name, at, high, low }
    }
    /// Returns the number of bits.
    pub const fn bits(&self) -> u32 {
        self.high - self.low + 1
    }
    /// Returns the largest value.
    pub const fn max(&self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }
    /// Returns the offset of the first byte after the field's word.
    pub const fn end(&self) -> usize {
        self.at + if self.high < 32 { 4 } else { 8 }
    }
    /// Reads the field from a structure. Returns 0 if the structure ends before the field's word does.
    pub fn get(&self, bytes: &[u8]) -> u64 {
        let word = bytes.get(self.at..self.end()).unwrap_or_default();
        word.iter().fold(0u64, |n, b| n << 8 | u64::from(*b)) >> self.low & self.max()
    }
    /// Writes a value to the field. Other bits stay unchanged.
    ///
    /// # Errors
    /// * [`FieldError::TooLarge`] if the value has more bits than the field.
    /// * [`FieldError::Short`] if the structure ends before the field does.
    pub fn set(&self, bytes: &mut [u8], value: u64) -> Result<(), FieldError> {
        if value > self.max() {
            return Err(FieldError::TooLarge { field: self.name, value, bits: self.bits() });
        }
        let length = bytes.len();
        let short = FieldError::Short { field: self.name, needs: self.end(), bytes: length };
        let word = bytes.get_mut(self.at..self.end()).ok_or(short)?;
        let old = word.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let mut new = (old & !(self.max() << self.low)) | value << self.low;
        for b in word.iter_mut().rev() {
            *b = new as u8;
            new >>= 8;
        }
        Ok(())
    }
}

/// A value of a bit field.
pub trait Bits: Copy {
    /// Encodes the value as bits.
    fn to_bits(self) -> u64;
    /// Decodes bits; `None` if they are not defined.
    fn from_bits(bits: u64) -> Option<Self>;
}

impl Bits for bool {
    fn to_bits(self) -> u64 {
        self.into()
    }
    fn from_bits(bits: u64) -> Option<Self> {
        match bits {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

macro_rules! integer_bits {
    ($($int:ty)*) => {$(
        impl Bits for $int {
            fn to_bits(self) -> u64 {
                self.into()
            }
            fn from_bits(bits: u64) -> Option<Self> {
                bits.try_into().ok()
            }
        }
    )*};
}

integer_bits!(u8 u16 u32 u64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_stand_with_the_most_significant_byte_first() {
        assert_eq!(bytemuck::bytes_of(&Be32::new(0x0102_0304)), [1, 2, 3, 4]);
        assert_eq!(bytemuck::bytes_of(&Be16::from(0x0102)), [1, 2]);
        assert_eq!(u64::from(Be64::new(9)), 9);
        assert_eq!((align_of::<Be64>(), size_of::<Be64>()), (1, 8));
        assert_eq!(format!("{:?}", Be32::new(0xabc)), "0xabc");
    }

    #[test]
    fn a_field_refuses_what_it_cannot_hold() {
        let f = Field::new("log_size", 4, 28, 24);
        let mut b = [0xff; 8];
        f.set(&mut b, 0xa).expect("it fits");
        assert_eq!(b, [0xff, 0xff, 0xff, 0xff, 0xea, 0xff, 0xff, 0xff]);
        let e = f.set(&mut b, 32).expect_err("six bits");
        assert_eq!(e.to_string(), "log_size is 0x20, but its field has 5 bits");
        let e = f.set(&mut b[..7], 1).expect_err("seven bytes");
        assert_eq!(e, FieldError::Short { field: "log_size", needs: 8, bytes: 7 });
        assert_eq!(f.get(&b[..7]), 0);
    }

    proptest! {
        #[test]
        fn a_field_keeps_its_value_and_its_neighbours(
            mut bytes in any::<[u8; 16]>(), word in 0usize..3, a in 0u32..64, b in 0u32..64, value: u64,
        ) {
            let f = Field::new("f", 4 * word, a.max(b), a.min(b));
            let before = bytes;
            let value = value & f.max();
            f.set(&mut bytes, value).expect("it fits");
            prop_assert_eq!(f.get(&bytes), value);
            f.set(&mut bytes, f.get(&before)).expect("it fits");
            prop_assert_eq!(bytes, before);
        }
    }
}
