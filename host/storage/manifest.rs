//! The manifest: what a volume holds, by name, written in its first blocks.
//!
//! All numbers little-endian. A header of 64 bytes, then one entry of 128 bytes for each array:
//!
//! | header | | entry | |
//! |---|---|---|---|
//! | 0 | `warpbell` | 0 | name, UTF-8, filled with zeros |
//! | 8 | version, u32 | 64 | element type, u32 |
//! | 12 | entries, u32 | 68 | bytes of an element, u32 |
//! | 16 | bytes of the volume that are in use, u64 | 72 | elements, u64 |
//! | 24 | zeros | 80 | first byte in the volume, u64 |
//! | 56 | XXH64 of the header so far and all entries, u64 | 88 | XXH64 of the data, u64 |
//! | | | 96 | zeros |

use super::checksum::Checksum;
use bytemuck::{Pod, Zeroable};
use serde::Serialize;
use std::fmt;

/// Bytes at the start of a volume that belong to the manifest.
pub const MANIFEST_BYTES: usize = 64 << 10;
/// Every array starts at a multiple of this, so at the start of a page of any cache.
pub const ARRAY_ALIGN: u64 = 64 << 10;
/// Longest name of an array, in bytes.
pub const NAME_BYTES: usize = 64;
/// The most arrays that a manifest names.
pub const MAX_ARRAYS: usize = (MANIFEST_BYTES - size_of::<RawHeader>()) / size_of::<RawEntry>();

const MAGIC: [u8; 8] = *b"warpbell";
const VERSION: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RawHeader {
    magic: [u8; 8],
    version: u32,
    entries: u32,
    used_bytes: u64,
    reserved: [u8; 32],
    checksum: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RawEntry {
    name: [u8; NAME_BYTES],
    element_type: u32,
    element_bytes: u32,
    count: u64,
    offset: u64,
    checksum: u64,
    reserved: [u8; 32],
}

const _: () = {
    assert!(size_of::<RawHeader>() == 64);
    assert!(size_of::<RawEntry>() == 128);
    assert!(cfg!(target_endian = "little"), "manifests are read and written as they lie in memory");
};

/// What the elements of an array are.
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
    /// A record that only the program knows.
    Record,
}

const TYPES: [(ElementType, &str, u32); 11] = [
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
];

impl ElementType {
    fn code(self) -> u32 {
        TYPES.iter().position(|(t, ..)| *t == self).unwrap_or(TYPES.len()) as u32
    }

    fn from_code(code: u32) -> Option<Self> {
        TYPES.get(code as usize).map(|(t, ..)| *t)
    }

    /// Bytes of an element, unless it is a record.
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
    /// What the manifest calls it.
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

/// One array of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Name.
    pub name: String,
    /// What the elements are.
    pub element_type: ElementType,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// Elements.
    pub count: u64,
    /// First byte in the volume, a multiple of [`ARRAY_ALIGN`].
    pub offset: u64,
    /// [`Checksum`] of the data, as it was when it was stored.
    pub checksum: u64,
}

impl Entry {
    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        self.count * u64::from(self.element_bytes)
    }

    /// First byte after the data.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes()
    }
}

/// What a volume holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Manifest {
    entries: Vec<Entry>,
}

/// Why bytes are not a manifest, or an array cannot be in one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Nothing was stored there, or by another program.
    #[error("no manifest: the first bytes are not `warpbell`; nothing was stored there yet, or it is not warpbell's")]
    Absent,
    /// Cut off.
    #[error("the manifest is cut off: {bytes} bytes of {needed}; store the data again")]
    Truncated {
        /// Bytes given.
        bytes: usize,
        /// Bytes that it takes.
        needed: usize,
    },
    /// Written by a later version.
    #[error("the manifest has version {0}, this program reads version {VERSION}: use a newer warpbell")]
    Version(u32),
    /// Damaged.
    #[error(
        "the manifest is damaged: its checksum is {found:#018x}, its contents have {computed:#018x}; store the data again"
    )]
    Checksum {
        /// As written.
        found: u64,
        /// As computed.
        computed: u64,
    },
    /// More arrays than fit.
    #[error("{0} arrays: a manifest names at most {MAX_ARRAYS}")]
    TooMany(usize),
    /// A name that cannot be one.
    #[error("`{0}` cannot be an array's name: 1 to {NAME_BYTES} bytes, no control characters")]
    Name(String),
    /// The same name twice.
    #[error("two arrays are called `{0}`")]
    Twice(String),
    /// An entry that contradicts itself.
    #[error("array `{name}`: {reason}")]
    Entry {
        /// Which.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// Arrays that share bytes.
    #[error("arrays `{first}` and `{second}` overlap at byte {at}")]
    Overlap {
        /// The one in front.
        first: String,
        /// The other.
        second: String,
        /// First shared byte.
        at: u64,
    },
    /// Data outside the volume.
    #[error(
        "array `{name}` ends at byte {end}, the volume at {volume}: it was made on a larger one, or with another stripe"
    )]
    Beyond {
        /// Which.
        name: String,
        /// First byte after it.
        end: u64,
        /// Bytes of the volume.
        volume: u64,
    },
    /// No array of this name.
    #[error("no array `{name}`; there {}", listing(.there))]
    Unknown {
        /// The name asked for.
        name: String,
        /// Names that exist.
        there: Vec<String>,
    },
    /// An array of another type.
    #[error("array `{name}` holds {found}, not {asked}")]
    Type {
        /// Which.
        name: String,
        /// What it holds.
        found: ElementType,
        /// What was asked for.
        asked: ElementType,
    },
    /// Stored data does not have the checksum that the manifest names.
    #[error(
        "array `{name}` is damaged: its data has checksum {computed:#018x}, the manifest says {found:#018x}; store it again"
    )]
    Data {
        /// Which.
        name: String,
        /// As in the manifest.
        found: u64,
        /// As computed.
        computed: u64,
    },
}

fn listing(names: &[String]) -> String {
    match names {
        [] => "are none".to_owned(),
        [one] => format!("is `{one}`"),
        many => format!("are {}", many.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")),
    }
}

fn good_name(name: &str) -> bool {
    (1..=NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

impl Manifest {
    /// A manifest of these arrays. Their order stays.
    pub fn new(entries: Vec<Entry>) -> Result<Self, ManifestError> {
        if entries.len() > MAX_ARRAYS {
            return Err(ManifestError::TooMany(entries.len()));
        }
        for e in &entries {
            if !good_name(&e.name) {
                return Err(ManifestError::Name(e.name.clone()));
            }
            let refuse = |reason: String| Err(ManifestError::Entry { name: e.name.clone(), reason });
            if e.element_bytes == 0 || e.element_type.bytes().is_some_and(|b| b != e.element_bytes) {
                return refuse(format!("elements of type {} and {} bytes", e.element_type, e.element_bytes));
            }
            let end = e.count.checked_mul(e.element_bytes.into()).and_then(|bytes| bytes.checked_add(e.offset));
            if end.and_then(|end| end.checked_next_multiple_of(ARRAY_ALIGN)).is_none() {
                return refuse(format!("{} elements of {} bytes at byte {}", e.count, e.element_bytes, e.offset));
            }
            if e.offset < MANIFEST_BYTES as u64 || !e.offset.is_multiple_of(ARRAY_ALIGN) {
                return refuse(format!(
                    "it starts at byte {}, not at a multiple of {ARRAY_ALIGN} after the manifest",
                    e.offset
                ));
            }
        }
        let mut by_name: Vec<&Entry> = entries.iter().collect();
        by_name.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(w) = by_name.windows(2).find(|w| w[0].name == w[1].name) {
            return Err(ManifestError::Twice(w[0].name.clone()));
        }
        let mut by_place = by_name;
        by_place.retain(|e| e.count > 0);
        by_place.sort_by_key(|e| e.offset);
        if let Some([a, b]) = by_place.windows(2).find(|w| w[0].end() > w[1].offset) {
            return Err(ManifestError::Overlap { first: a.name.clone(), second: b.name.clone(), at: b.offset });
        }
        Ok(Self { entries })
    }

    /// Reads the first bytes of a volume. Nothing in them is trusted.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let truncated = |needed| ManifestError::Truncated { bytes: bytes.len(), needed };
        if bytes.len() < MAGIC.len() || bytes[..MAGIC.len()] != MAGIC {
            return Err(ManifestError::Absent);
        }
        let head = bytes.get(..size_of::<RawHeader>()).ok_or_else(|| truncated(size_of::<RawHeader>()))?;
        let header: RawHeader = bytemuck::pod_read_unaligned(head);
        if header.version != VERSION {
            return Err(ManifestError::Version(header.version));
        }
        let count = header.entries as usize;
        if count > MAX_ARRAYS {
            return Err(ManifestError::TooMany(count));
        }
        let needed = size_of::<RawHeader>() + count * size_of::<RawEntry>();
        let body = bytes.get(size_of::<RawHeader>()..needed).ok_or_else(|| truncated(needed))?;
        let computed = Self::checksum(head, body);
        if computed != header.checksum {
            return Err(ManifestError::Checksum { found: header.checksum, computed });
        }
        let entries = body.chunks_exact(size_of::<RawEntry>()).map(|b| parse_entry(bytemuck::pod_read_unaligned(b)));
        Self::new(entries.collect::<Result<_, _>>()?)
    }

    /// The bytes as they are stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut header = RawHeader {
            magic: MAGIC,
            version: VERSION,
            entries: self.entries.len() as u32,
            used_bytes: self.end(),
            reserved: [0; 32],
            checksum: 0,
        };
        let mut body = Vec::with_capacity(self.entries.len() * size_of::<RawEntry>());
        for e in &self.entries {
            let mut name = [0; NAME_BYTES];
            name[..e.name.len()].copy_from_slice(e.name.as_bytes());
            let raw = RawEntry {
                name,
                element_type: e.element_type.code(),
                element_bytes: e.element_bytes,
                count: e.count,
                offset: e.offset,
                checksum: e.checksum,
                reserved: [0; 32],
            };
            body.extend_from_slice(bytemuck::bytes_of(&raw));
        }
        header.checksum = Self::checksum(bytemuck::bytes_of(&header), &body);
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        bytes.append(&mut body);
        bytes
    }

    fn checksum(head: &[u8], body: &[u8]) -> u64 {
        let mut sum = Checksum::default();
        sum.update(&head[..std::mem::offset_of!(RawHeader, checksum)]);
        sum.update(body);
        sum.finish()
    }

    /// The arrays.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// First byte after all arrays, rounded up to where the next one can start.
    pub fn end(&self) -> u64 {
        let end = self.entries.iter().map(Entry::end).max().unwrap_or(0);
        end.max(MANIFEST_BYTES as u64).next_multiple_of(ARRAY_ALIGN)
    }

    /// The array of this name.
    pub fn find(&self, name: &str) -> Result<&Entry, ManifestError> {
        self.entries.iter().find(|e| e.name == name).ok_or_else(|| ManifestError::Unknown {
            name: name.to_owned(),
            there: self.entries.iter().map(|e| e.name.clone()).collect(),
        })
    }

    /// The array of this name, which must hold elements of type `T`.
    pub fn find_typed<T: Element>(&self, name: &str) -> Result<&Entry, ManifestError> {
        let e = self.find(name)?;
        if e.element_type != T::TYPE {
            return Err(ManifestError::Type { name: name.to_owned(), found: e.element_type, asked: T::TYPE });
        }
        Ok(e)
    }

    /// Refuses arrays that end beyond a volume of this many bytes.
    pub fn check_fits(&self, volume: u64) -> Result<(), ManifestError> {
        match self.entries.iter().find(|e| e.end() > volume) {
            Some(e) => Err(ManifestError::Beyond { name: e.name.clone(), end: e.end(), volume }),
            None => Ok(()),
        }
    }

    /// Whether these bytes, the first of a file or device, say that it is warpbell's. The manifest itself may be damaged.
    pub fn is_ours(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }
}

fn parse_entry(raw: RawEntry) -> Result<Entry, ManifestError> {
    let end = raw.name.iter().position(|b| *b == 0).unwrap_or(NAME_BYTES);
    let text = String::from_utf8_lossy(&raw.name[..end]).into_owned();
    if std::str::from_utf8(&raw.name[..end]).is_err() || raw.name[end..].iter().any(|b| *b != 0) {
        return Err(ManifestError::Name(text.escape_debug().to_string()));
    }
    let Some(element_type) = ElementType::from_code(raw.element_type) else {
        let reason = format!("element type {} is unknown to this version", raw.element_type);
        return Err(ManifestError::Entry { name: text, reason });
    };
    Ok(Entry {
        name: text,
        element_type,
        element_bytes: raw.element_bytes,
        count: raw.count,
        offset: raw.offset,
        checksum: raw.checksum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(name: &str, offset: u64, count: u64) -> Entry {
        Entry { name: name.into(), element_type: ElementType::U32, element_bytes: 4, count, offset, checksum: 7 }
    }

    fn sample() -> Manifest {
        Manifest::new(vec![entry("offsets", 1 << 16, 3), entry("edges", 2 << 16, 20_000)]).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let m = sample();
        assert_eq!(Manifest::parse(&m.to_bytes()).unwrap(), m);
        assert_eq!(m.end(), 4 << 16);
        assert_eq!(m.find("edges").unwrap().bytes(), 80_000);
        assert_eq!(Manifest::parse(&Manifest::default().to_bytes()).unwrap(), Manifest::default());
    }

    #[test]
    fn names_and_types_are_checked_when_asked_for() {
        let m = sample();
        let text = m.find("weights").unwrap_err().to_string();
        assert!(text.contains("`weights`") && text.contains("`offsets`, `edges`"), "{text}");
        let text = m.find_typed::<f32>("edges").unwrap_err().to_string();
        assert!(text.contains("holds u32, not f32"), "{text}");
        assert!(m.find_typed::<u32>("edges").is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |entries| Manifest::new(entries).unwrap_err().to_string();
        assert!(refused(vec![entry("a", 1 << 16, 20_000), entry("b", 2 << 16, 1)]).contains("`a` and `b` overlap"));
        assert!(refused(vec![entry("a", 1 << 16, 1), entry("a", 2 << 16, 1)]).contains("called `a`"));
        assert!(refused(vec![entry("", 1 << 16, 1)]).contains("cannot be"));
        assert!(refused(vec![entry(&"n".repeat(65), 1 << 16, 1)]).contains("cannot be"));
        assert!(refused(vec![entry("a", 100, 1)]).contains("byte 100"));
        assert!(refused(vec![entry("a", 0, 1)]).contains("after the manifest"));
        assert!(refused(vec![entry("a", 1 << 16, u64::MAX / 2)]).contains("`a`"));
        assert!(refused(vec![Entry { element_bytes: 8, ..entry("a", 1 << 16, 1) }]).contains("u32 and 8 bytes"));
        assert!(refused(vec![entry("a", 1 << 16, 1); MAX_ARRAYS + 1]).contains("at most"));
        let text = sample().check_fits(100_000).unwrap_err().to_string();
        assert!(text.contains("`edges`") && text.contains("100000"), "{text}");
    }

    #[test]
    fn damage_is_named() {
        let good = sample().to_bytes();
        assert_eq!(Manifest::parse(&[0; 4096]), Err(ManifestError::Absent));
        assert!(matches!(Manifest::parse(&good[..good.len() - 1]), Err(ManifestError::Truncated { .. })));
        assert!(matches!(Manifest::parse(&good[..20]), Err(ManifestError::Truncated { .. })));
        let mut later = good.clone();
        later[8] = 9;
        assert_eq!(Manifest::parse(&later), Err(ManifestError::Version(9)));
        assert!(Manifest::is_ours(&later) && !Manifest::is_ours(b"PK"));
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_noticed(at in 0usize..320, bit in 0u8..8) {
            let mut bytes = sample().to_bytes();
            prop_assert_eq!(bytes.len(), 320);
            bytes[at] ^= 1 << bit;
            prop_assert!(Manifest::parse(&bytes).is_err());
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..600), entries in 0u32..5, magic: bool) {
            if magic && bytes.len() >= 64 {
                bytes[..8].copy_from_slice(&MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
                bytes[12..16].copy_from_slice(&entries.to_le_bytes());
                let end = (64 + entries as usize * 128).min(bytes.len());
                let sum = Manifest::checksum(&bytes[..64], &bytes[64..end]);
                bytes[56..64].copy_from_slice(&sum.to_le_bytes());
            }
            if let Ok(m) = Manifest::parse(&bytes) {
                prop_assert_eq!(Manifest::parse(&m.to_bytes()), Ok(m));
            }
        }
    }
}
