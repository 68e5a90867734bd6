//! Manifest of a volume: the arrays that it holds, by name. The superblock of every drive contains it.
//!
//! Each array has an entry of 128 bytes, with all numbers little-endian:
//!
//! | entry | |
//! |---|---|
//! | 0 | name, UTF-8, filled with zeros |
//! | 64 | element type, u32 |
//! | 68 | bytes of an element, u32 |
//! | 72 | elements, u64 |
//! | 80 | first byte in the volume, u64 |
//! | 88 | XXH64 of the data, u64 |
//! | 96 | 1: changed since it was stored, so that the checksum says nothing, u32 |
//! | 100 | zeros |

use super::page_checksums::{self, TablePlace};
use super::superblock::{Extension, HEADER_BYTES, MAGIC, SLOT_BYTES, VERSION, VERSION_WITHOUT_LAYOUT};
use bytemuck::{Pod, Zeroable};
use serde::Serialize;
use std::fmt;

/// Bytes at the start of every drive that are reserved for superblocks with the manifest.
pub const MANIFEST_BYTES: usize = 64 << 10;
/// Alignment of every array in bytes, so that arrays start at a page of any cache.
pub const ARRAY_ALIGN: u64 = 64 << 10;
/// Longest name of an array, in bytes.
pub const NAME_BYTES: usize = 64;
/// Largest number of arrays in a manifest.
pub const MAX_ARRAYS: usize = (SLOT_BYTES - HEADER_BYTES - MAX_EXTENSION_BYTES) / size_of::<RawEntry>();

/// Bytes that extensions may take beside the largest number of arrays.
const MAX_EXTENSION_BYTES: usize = 4 << 10;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct RawEntry {
    name: [u8; NAME_BYTES],
    element_type: u32,
    element_bytes: u32,
    count: u64,
    offset: u64,
    checksum: u64,
    changed: u32,
    reserved: [u8; 28],
}

const _: () = assert!(size_of::<RawEntry>() == 128);

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

/// Description of one array of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Name of the array.
    pub name: String,
    /// Type of the elements.
    pub element_type: ElementType,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// Number of elements.
    pub count: u64,
    /// First byte in the volume, a multiple of [`ARRAY_ALIGN`].
    pub offset: u64,
    /// [`Checksum`](super::Checksum) of the data at the time when it was stored.
    pub checksum: u64,
    /// True if the data was changed since it was stored, so that `checksum` is invalid.
    pub changed: bool,
}

impl Entry {
    /// Returns the bytes of data.
    pub fn bytes(&self) -> u64 {
        self.count * u64::from(self.element_bytes)
    }

    /// Returns the first byte after the data.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes()
    }
}

/// Arrays that a volume holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Manifest {
    entries: Vec<Entry>,
    #[serde(skip)]
    extensions: Vec<Extension>,
}

/// Error in the bytes of a manifest, in a new entry, or in a request for an array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Nothing was stored there, or another program stored it.
    #[error(
        "no manifest: the first bytes are not `warpbell`, so no warpbell data is stored there; store data first, or name another device"
    )]
    Absent,
    /// The manifest is cut off.
    #[error("the manifest is cut off: {bytes} bytes of {needed}; store the data again")]
    Truncated {
        /// Bytes given.
        bytes: usize,
        /// Bytes that the manifest needs.
        needed: usize,
    },
    /// Another version wrote the manifest.
    #[error("{}", other_version(*.0))]
    Version(u32),
    /// An extension of a kind that this version does not know, or that is cut off.
    #[error(
        "the manifest has an extension of kind {kind:#x} and {bytes} bytes, which this program cannot read: use a newer warpbell"
    )]
    Extension {
        /// Kind of the extension.
        kind: u32,
        /// Bytes of its data.
        bytes: usize,
    },
    /// The drives are not put together as they were when the data was stored.
    #[error("the data was stored {stored}, and is opened {asked}; open it as it was stored, or store it again")]
    Layout {
        /// Layout when the data was stored.
        stored: String,
        /// Layout of the volume that is open.
        asked: String,
    },
    /// A drive that belongs to another volume, or to another state of this one.
    #[error(
        "{drive} belongs to another volume, or holds another state of this one; name the drives that were stored together, or store the data again"
    )]
    Member {
        /// The drive as it was named.
        drive: String,
    },
    /// The manifest of the last generation that was stored completely is gone; an older one is there.
    #[error(
        "the manifest of generation {generation} is damaged or gone{}; what it described cannot be found: store the data again", before(*.found)
    )]
    Lost {
        /// Generation that was stored.
        generation: u64,
        /// Generation of the newest manifest that is intact; 0 if there is none.
        found: u64,
    },
    /// Two copies of which neither is older: each was changed without the other.
    #[error(
        "{first} and {second} were changed without each other, so neither is a copy of the other; name an empty device in place of the one whose data is to be given up"
    )]
    Diverged {
        /// One copy as it was named.
        first: String,
        /// The other copy as it was named.
        second: String,
    },
    /// A program ended while it changed the array.
    #[error(
        "array `{name}` was being changed by a program that ended before its flush: its data has checksum {computed:#018x}, what was stored has {found:#018x}; store it again, or accept the changes (`Volume::accept_changes`)"
    )]
    Interrupted {
        /// Name of the array.
        name: String,
        /// Checksum in the manifest.
        found: u64,
        /// Checksum of the data that was read.
        computed: u64,
    },
    /// The manifest does not have its checksum.
    #[error(
        "the manifest is damaged: its checksum is {found:#018x}, its contents have {computed:#018x}; store the data again"
    )]
    Checksum {
        /// Checksum in the header.
        found: u64,
        /// Checksum of the contents that were read.
        computed: u64,
    },
    /// More arrays than fit into a manifest.
    #[error("{0} arrays: a manifest names at most {MAX_ARRAYS}; remove stored arrays, or use another device")]
    TooMany(usize),
    /// An invalid name of an array.
    #[error("`{0}` cannot be an array's name: 1 to {NAME_BYTES} bytes, no control characters")]
    Name(String),
    /// Two arrays of the same name.
    #[error("two arrays are called `{0}`")]
    Twice(String),
    /// An entry with invalid or contradictory values.
    #[error("array `{name}`: {reason}")]
    Entry {
        /// Name of the array.
        name: String,
        /// Description of the contradiction.
        reason: String,
    },
    /// Arrays that share bytes.
    #[error("arrays `{first}` and `{second}` overlap at byte {at}")]
    Overlap {
        /// Name of the array that begins first.
        first: String,
        /// Name of the other array.
        second: String,
        /// First shared byte.
        at: u64,
    },
    /// Data that ends beyond the volume.
    #[error(
        "array `{name}` ends at byte {end}, the volume at {volume}: the data was stored on a larger volume, or with another stripe unit; open it as it was stored"
    )]
    Beyond {
        /// Name of the array.
        name: String,
        /// First byte after the array.
        end: u64,
        /// Bytes of the volume.
        volume: u64,
    },
    /// No array of this name.
    #[error("no array `{name}`; there {}", listing(.there))]
    Unknown {
        /// The name asked for.
        name: String,
        /// Names of the arrays that exist.
        there: Vec<String>,
    },
    /// An array of another type than asked for.
    #[error("array `{name}` holds {found}, not {asked}")]
    Type {
        /// Name of the array.
        name: String,
        /// Type of its elements.
        found: ElementType,
        /// Type asked for.
        asked: ElementType,
    },
    /// Data that does not have its checksum in the manifest.
    #[error(
        "array `{name}` is damaged: its data has checksum {computed:#018x}, the manifest says {found:#018x}; store it again"
    )]
    Data {
        /// Name of the array.
        name: String,
        /// Checksum in the manifest.
        found: u64,
        /// Checksum of the data that was read.
        computed: u64,
    },
}

fn other_version(version: u32) -> String {
    if version == VERSION_WITHOUT_LAYOUT {
        return format!(
            "the manifest has version {version}, which does not say how the data lies on its drives; this program reads version {VERSION}: store the data again"
        );
    }
    format!("the manifest has version {version}, this program reads version {VERSION}: use a newer warpbell")
}

fn before(found: u64) -> String {
    if found == 0 { String::new() } else { format!(", and generation {found} is older") }
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
    /// Makes a manifest of these arrays, in this order.
    ///
    /// # Errors
    /// [`ManifestError::TooMany`], [`ManifestError::Name`], [`ManifestError::Twice`], [`ManifestError::Overlap`];
    /// [`ManifestError::Entry`] if an array's element size does not fit its type, or it is not aligned, begins within
    /// the manifest, or is too large.
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
        Ok(Self { entries, extensions: Vec::new() })
    }

    pub(super) fn with_extensions(self, extensions: Vec<Extension>) -> Self {
        Self { extensions, ..self }
    }

    /// Removes the table of page checksums. Returns true if there was one.
    pub(super) fn drop_page_checksums(&mut self) -> bool {
        let before = self.extensions.len();
        self.extensions.retain(|x| x.kind != page_checksums::KIND);
        self.extensions.len() < before
    }

    /// Puts an extension in the place of those of its kind.
    pub(super) fn set_extension(&mut self, extension: Extension) {
        self.extensions.retain(|x| x.kind != extension.kind);
        self.extensions.push(extension);
    }

    pub(super) fn extensions(&self) -> &[Extension] {
        &self.extensions
    }

    /// Moves all arrays back by `bytes` bytes.
    pub(super) fn move_by(&mut self, bytes: u64) -> Result<(), ManifestError> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.iter_mut().for_each(|e| e.offset = e.offset.saturating_add(bytes));
        let extensions = std::mem::take(&mut self.extensions);
        *self = Self::new(entries)?.with_extensions(extensions);
        Ok(())
    }

    /// Marks arrays as changed since they were stored. Returns true if one of them was not marked yet.
    pub(super) fn set_changed(&mut self, is_changed: impl Fn(&Entry) -> bool) -> bool {
        let new = self.entries.iter_mut().filter(|e| !e.changed && is_changed(e));
        new.map(|e| e.changed = true).count() > 0
    }

    /// Sets an array's checksum to that of its current data.
    pub(super) fn set_checksum(&mut self, index: usize, checksum: u64) {
        let entry = &mut self.entries[index];
        (entry.checksum, entry.changed) = (checksum, false);
    }

    /// Returns the arrays.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the first byte after all arrays and their page checksums, rounded up to where the next array can start.
    pub fn end(&self) -> u64 {
        self.checksum_table().map_or(0, TablePlace::end).max(self.arrays_end())
    }

    /// Returns the first byte after all arrays, rounded up to where the next array can start.
    pub(super) fn arrays_end(&self) -> u64 {
        let end = self.entries.iter().map(Entry::end).max().unwrap_or(0);
        end.max(MANIFEST_BYTES as u64).next_multiple_of(ARRAY_ALIGN)
    }

    /// Returns the array called `name`.
    ///
    /// # Errors
    /// [`ManifestError::Unknown`] if there is none.
    pub fn find(&self, name: &str) -> Result<&Entry, ManifestError> {
        self.entries.iter().find(|e| e.name == name).ok_or_else(|| ManifestError::Unknown {
            name: name.to_owned(),
            there: self.entries.iter().map(|e| e.name.clone()).collect(),
        })
    }

    /// Returns the array called `name`, which must hold elements of type `T`.
    ///
    /// # Errors
    /// [`ManifestError::Unknown`] if there is none; [`ManifestError::Type`] if its elements have another type.
    pub fn find_typed<T: Element>(&self, name: &str) -> Result<&Entry, ManifestError> {
        self.find_as(name, T::TYPE)
    }

    /// Returns the array called `name`, which must hold elements of type `asked`.
    ///
    /// # Errors
    /// As for [`Manifest::find_typed`].
    pub fn find_as(&self, name: &str, asked: ElementType) -> Result<&Entry, ManifestError> {
        let e = self.find(name)?;
        if e.element_type != asked {
            return Err(ManifestError::Type { name: name.to_owned(), found: e.element_type, asked });
        }
        Ok(e)
    }

    /// Checks that all arrays and the page checksums end within a volume of `volume` bytes.
    ///
    /// # Errors
    /// [`ManifestError::Beyond`] for the first that does not.
    pub fn check_fits(&self, volume: u64) -> Result<(), ManifestError> {
        if let Some(end) = self.checksum_table().map(TablePlace::end).filter(|end| *end > volume) {
            return Err(ManifestError::Beyond { name: "page checksums".to_owned(), end, volume });
        }
        match self.entries.iter().find(|e| e.end() > volume) {
            Some(e) => Err(ManifestError::Beyond { name: e.name.clone(), end: e.end(), volume }),
            None => Ok(()),
        }
    }

    /// Returns true if these bytes, the first of a file or device, mark it as warpbell's. The manifest itself may be
    /// damaged.
    pub(super) fn is_ours(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }
}

impl RawEntry {
    pub(super) fn of(e: &Entry) -> Self {
        let mut name = [0; NAME_BYTES];
        name[..e.name.len()].copy_from_slice(e.name.as_bytes());
        Self {
            name,
            element_type: e.element_type.code(),
            element_bytes: e.element_bytes,
            count: e.count,
            offset: e.offset,
            checksum: e.checksum,
            changed: e.changed.into(),
            reserved: [0; 28],
        }
    }

    pub(super) fn parse(self) -> Result<Entry, ManifestError> {
        parse_entry(self)
    }
}

fn parse_entry(raw: RawEntry) -> Result<Entry, ManifestError> {
    let end = raw.name.iter().position(|b| *b == 0).unwrap_or(NAME_BYTES);
    let text = String::from_utf8_lossy(&raw.name[..end]).into_owned();
    if std::str::from_utf8(&raw.name[..end]).is_err() || raw.name[end..].iter().any(|b| *b != 0) {
        return Err(ManifestError::Name(crate::units::visible(&text)));
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
        changed: raw.changed != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, offset: u64, count: u64) -> Entry {
        Entry {
            name: name.into(),
            element_type: ElementType::U32,
            element_bytes: 4,
            count,
            offset,
            checksum: 7,
            changed: false,
        }
    }

    fn sample() -> Manifest {
        Manifest::new(vec![entry("offsets", 1 << 16, 3), entry("edges", 2 << 16, 20_000)]).unwrap()
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
}
