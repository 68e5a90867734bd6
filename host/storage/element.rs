//! Types of the elements of arrays.

use bytemuck::Pod;
use serde::Serialize;
use std::fmt;

/// Type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ElementType {
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// IEEE 754, 32 bits.
    F32,
    /// IEEE 754, 64 bits.
    F64,
    /// A record whose structure only the program knows.
    Record,
    /// IEEE 754, 16 bits.
    F16,
    /// The upper 16 bits of an IEEE 754 number of 32 bits.
    Bf16,
}

/// Types in the order of their codes, which manifests and tables store: new ones come last.
const TYPES: [(ElementType, &str, u32); 13] = [
    (ElementType::U8, "u8", 1),
    (ElementType::U16, "u16", 2),
    (ElementType::U32, "u32", 4),
    (ElementType::U64, "u64", 8),
    (ElementType::I8, "i8", 1),
    (ElementType::I16, "i16", 2),
    (ElementType::I32, "i32", 4),
    (ElementType::I64, "i64", 8),
    (ElementType::F32, "f32", 4),
    (ElementType::F64, "f64", 8),
    (ElementType::Record, "record", 0),
    (ElementType::F16, "f16", 2),
    (ElementType::Bf16, "bf16", 2),
];

impl ElementType {
    pub(super) fn code(self) -> u32 {
        TYPES.iter().position(|(t, ..)| *t == self).unwrap_or(TYPES.len()) as u32
    }

    pub(super) fn from_code(code: u32) -> Option<Self> {
        TYPES.get(code as usize).map(|(t, ..)| *t)
    }

    /// Returns the type of this name: as `Display` prints it (`bf16`), or as NumPy and PyTorch have it (`bfloat16`). Names of
    /// floats of 8 bits (`fp8`, `float8_e4m3fn`) mean bytes. Returns `None` for other names, and for records.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::storage::ElementType;
    ///
    /// assert_eq!(ElementType::from_name("bf16"), Some(ElementType::Bf16));
    /// assert_eq!(ElementType::from_name("float8_e5m2"), Some(ElementType::U8));
    /// assert_eq!(ElementType::from_name("f128"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "fp8" || name.starts_with("fp8_") || name.starts_with("float8_") {
            return Some(Self::U8);
        }
        let short = [("bfloat", "bf"), ("uint", "u"), ("int", "i"), ("float", "f")]
            .iter()
            .find_map(|(long, short)| Some(format!("{short}{}", name.strip_prefix(long)?)));
        let short = short.as_deref().unwrap_or(name);
        TYPES.iter().find(|(_, name, bytes)| *name == short && *bytes > 0).map(|(t, ..)| *t)
    }

    /// Returns the bytes of an element, or `None` for records.
    pub fn bytes(self) -> Option<u32> {
        TYPES.iter().find(|(t, ..)| *t == self).map(|(.., bytes)| *bytes).filter(|b| *b > 0)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TYPES.iter().find(|(t, ..)| t == self).map_or("?", |(_, name, _)| name))
    }
}

/// A plain value that arrays can hold.
pub trait Element: Pod + Send + Sync + fmt::Debug {
    /// Type of the value in the manifest.
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($t:ty: $name:ident),*) => {$(
        impl Element for $t {
            const TYPE: ElementType = ElementType::$name;
        }
    )*};
}
elements!(u8: U8, u16: U16, u32: U32, u64: U64, i8: I8, i16: I16, i32: I32, i64: I64, f32: F32, f64: F64);
