//! Position of the table of page checksums on the medium, and the extension of the superblock that has it.

use crate::storage::disk::UNIT;
use crate::storage::error::ManifestError;
use crate::storage::format::ARRAY_ALIGN;

/// Data of a kind beside the arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::storage) struct Extension {
    pub(in crate::storage) kind: u32,
    pub(in crate::storage) bytes: Vec<u8>,
}

/// Kind of the extension. Its data are the first byte of the table, the number of entries, and the XXH64 of the
/// arrays' entries, u64 each. Earlier versions wrote no XXH64. The extension is not optional: a program that does not know it would change arrays without updating their checksums.
pub(in crate::storage) const KIND: u32 = 1;

/// Position of a table on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::storage) struct TablePlace {
    /// First byte of the table in the volume, which is also the end of the bytes that it covers.
    pub(in crate::storage) at: u64,
}

impl TablePlace {
    /// Returns the position of the table for arrays that end at byte `end`, a multiple of [`ARRAY_ALIGN`].
    pub(in crate::storage) fn behind(end: u64) -> Self {
        Self { at: end }
    }

    pub(in crate::storage) fn entries(self) -> u64 {
        self.at / UNIT as u64
    }

    pub(in crate::storage) fn end(self) -> u64 {
        self.at.saturating_add((self.entries() * size_of::<u32>() as u64).next_multiple_of(ARRAY_ALIGN))
    }

    pub(in crate::storage) fn extension(self) -> Extension {
        let mut bytes = self.at.to_le_bytes().to_vec();
        bytes.extend(self.entries().to_le_bytes());
        Extension { kind: KIND, bytes }
    }

    /// Parses an extension from the medium, whose contents are untrusted. `arrays_end` is the least position of the
    /// table.
    pub(in crate::storage) fn parse(x: &Extension, arrays_end: u64) -> Result<Self, ManifestError> {
        let word = |i: usize| Some(u64::from_le_bytes(*x.bytes.get(i * 8..)?.first_chunk()?));
        let place = word(0).map(Self::behind);
        match (place, word(1)) {
            (Some(p), Some(count))
                if p.at >= arrays_end && p.at.is_multiple_of(ARRAY_ALIGN) && count == p.entries() =>
            {
                Ok(p)
            }
            _ => Err(ManifestError::Extension { kind: x.kind, bytes: x.bytes.len() }),
        }
    }
}
