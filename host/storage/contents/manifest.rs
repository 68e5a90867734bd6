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

use super::checksum_table::{Extension, KIND, TablePlace};
use crate::storage::element::{Element, ElementType};
use crate::storage::error::ManifestError;
use crate::storage::format::{ARRAY_ALIGN, ENTRY_BYTES, MANIFEST_BYTES, MAX_ARRAYS, NAME_BYTES};
use bytemuck::{Pod, Zeroable};
use serde::Serialize;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(in crate::storage) struct RawEntry {
    name: [u8; NAME_BYTES],
    element_type: u32,
    element_bytes: u32,
    count: u64,
    offset: u64,
    checksum: u64,
    changed: u32,
    reserved: [u8; 28],
}

const _: () = assert!(size_of::<RawEntry>() == ENTRY_BYTES);

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
    /// [`Checksum`](crate::storage::Checksum) of the data at the time when it was stored.
    pub checksum: u64,
    /// True if the data was changed since it was stored, so that `checksum` is invalid.
    pub changed: bool,
    /// True if the array has checksums of its own within its data. The host writes it without mark and page checksums.
    /// Such an array counts as changed for ever.
    #[serde(skip)]
    pub(in crate::storage) self_checked: bool,
}

/// Values of [`RawEntry::changed`]. Earlier versions know the first two, and take any other as the second.
const UNCHANGED: u32 = 0;
const CHANGED: u32 = 1;
const SELF_CHECKED: u32 = 3;

impl Entry {
    /// Returns the bytes of data.
    pub fn bytes(&self) -> u64 {
        self.count * u64::from(self.element_bytes)
    }

    /// Returns the first byte after the data.
    pub(crate) fn end(&self) -> u64 {
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
    pub(crate) fn new(entries: Vec<Entry>) -> Result<Self, ManifestError> {
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

    pub(in crate::storage) fn with_extensions(self, extensions: Vec<Extension>) -> Self {
        Self { extensions, ..self }
    }

    /// Removes the table of page checksums. Returns true if there was one.
    pub(in crate::storage) fn drop_page_checksums(&mut self) -> bool {
        let before = self.extensions.len();
        self.extensions.retain(|x| x.kind != KIND);
        self.extensions.len() < before
    }

    /// Returns the position of the table of page checksums, if the arrays have one.
    pub(in crate::storage) fn checksum_table(&self) -> Option<TablePlace> {
        let x = self.extensions().iter().find(|x| x.kind == KIND)?;
        TablePlace::parse(x, 0).ok()
    }

    /// Returns the checksum of the table, if the version that wrote it computed one.
    pub(in crate::storage) fn table_checksum(&self) -> Option<u64> {
        let x = self.extensions().iter().find(|x| x.kind == KIND)?;
        Some(u64::from_le_bytes(*x.bytes.get(16..)?.first_chunk()?))
    }

    /// Puts an extension in the place of those of its kind.
    pub(in crate::storage) fn set_extension(&mut self, extension: Extension) {
        self.extensions.retain(|x| x.kind != extension.kind);
        self.extensions.push(extension);
    }

    pub(in crate::storage) fn extensions(&self) -> &[Extension] {
        &self.extensions
    }

    /// Moves all arrays back by `bytes` bytes.
    pub(in crate::storage) fn move_by(&mut self, bytes: u64) -> Result<(), ManifestError> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.iter_mut().for_each(|e| e.offset = e.offset.saturating_add(bytes));
        let extensions = std::mem::take(&mut self.extensions);
        *self = Self::new(entries)?.with_extensions(extensions);
        Ok(())
    }

    /// Marks arrays as changed since they were stored. Returns true if one of them was not marked yet.
    pub(in crate::storage) fn set_changed(&mut self, is_changed: impl Fn(&Entry) -> bool) -> bool {
        let new = self.entries.iter_mut().filter(|e| !e.changed && is_changed(e));
        new.map(|e| e.changed = true).count() > 0
    }

    /// Sets an array's checksum to that of its current data.
    pub(in crate::storage) fn set_checksum(&mut self, index: usize, checksum: u64) {
        let entry = &mut self.entries[index];
        (entry.checksum, entry.changed) = (checksum, false);
    }

    /// Returns the arrays.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the first byte after all arrays and their page checksums, rounded up to where the next array can start.
    pub(crate) fn end(&self) -> u64 {
        self.checksum_table().map_or(0, TablePlace::end).max(self.arrays_end())
    }

    /// Returns the first byte after all arrays, rounded up to where the next array can start.
    pub(in crate::storage) fn arrays_end(&self) -> u64 {
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
    pub(crate) fn find_typed<T: Element>(&self, name: &str) -> Result<&Entry, ManifestError> {
        self.find_as(name, T::TYPE)
    }

    /// Returns the array called `name`, which must hold elements of type `asked`.
    ///
    /// # Errors
    /// As for [`Manifest::find_typed`].
    pub(crate) fn find_as(&self, name: &str, asked: ElementType) -> Result<&Entry, ManifestError> {
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
    pub(crate) fn check_fits(&self, volume: u64) -> Result<(), ManifestError> {
        if let Some(end) = self.checksum_table().map(TablePlace::end).filter(|end| *end > volume) {
            return Err(ManifestError::Beyond { name: "page checksums".to_owned(), end, volume });
        }
        match self.entries.iter().find(|e| e.end() > volume) {
            Some(e) => Err(ManifestError::Beyond { name: e.name.clone(), end: e.end(), volume }),
            None => Ok(()),
        }
    }
}

impl RawEntry {
    pub(in crate::storage) fn of(e: &Entry) -> Self {
        let mut name = [0; NAME_BYTES];
        name[..e.name.len()].copy_from_slice(e.name.as_bytes());
        Self {
            name,
            element_type: e.element_type.code(),
            element_bytes: e.element_bytes,
            count: e.count,
            offset: e.offset,
            checksum: e.checksum,
            changed: match (e.changed, e.self_checked) {
                (_, true) => SELF_CHECKED,
                (true, false) => CHANGED,
                (false, false) => UNCHANGED,
            },
            reserved: [0; 28],
        }
    }

    pub(in crate::storage) fn parse(self) -> Result<Entry, ManifestError> {
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
        changed: raw.changed != UNCHANGED,
        self_checked: raw.changed == SELF_CHECKED,
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
            self_checked: false,
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
