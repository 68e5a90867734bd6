//! Checksums of pages on the medium: one for each 4096 bytes of the volume's stored arrays.
//!
//! The table lies behind the arrays; an extension of the superblock has its position. Kernels use a copy of the table in
//! memory near them (`unit_checksums.rs`), which they and the host keep correct. A flush writes the table to the medium.
//!
//! The extension has a checksum of the arrays' entries. A table that lacks it is not used: right data would look damaged.
//! Tables of earlier versions have none, and are used as they are. Entries between the arrays do not count, so that new
//! arrays may be added in place.

use super::checksum_table::{Extension, TablePlace};
use super::manifest::{Entry, Manifest};
use super::{Content, Contents};
use crate::memory::Place;
use crate::storage::checksum::Checksum;
use crate::storage::disk::{UNIT, entry_of};
use crate::storage::error::{StorageError, size};

/// Bytes of an array that are read at a time, in whole units.
pub(in crate::storage) const BYTES_AT_ONCE: usize = 4 << 20;

/// A part of an array that is read at a time.
pub(in crate::storage) struct Part {
    /// First byte in the volume.
    pub(in crate::storage) offset: u64,
    /// Bytes of the array.
    pub(in crate::storage) bytes: usize,
    /// Bytes to the end of the last unit, in which no other array begins.
    pub(in crate::storage) whole: usize,
}

/// Divides an array into parts of at most [`BYTES_AT_ONCE`].
pub(in crate::storage) fn parts(entry: &Entry) -> impl Iterator<Item = Part> + use<> {
    let end = entry.end();
    (entry.offset..end).step_by(BYTES_AT_ONCE).map(move |offset| {
        let bytes = BYTES_AT_ONCE.min((end - offset) as usize);
        Part { offset, bytes, whole: bytes.next_multiple_of(UNIT) }
    })
}

/// Table entries that are read or written at a time.
const ENTRIES_AT_ONCE: usize = 1 << 20;

impl Contents {
    /// Returns true if kernels compare pages that they read with checksums: see
    /// [`VolumeBuilder::page_checksums`](crate::storage::VolumeBuilder::page_checksums).
    pub(in crate::storage) fn has_page_checksums(&self) -> bool {
        self.disk.page_checksums.is_open()
    }

    /// Gives kernels the table of the content that was found. If it has none, takes away the kernels' current table.
    pub(in crate::storage) fn open_page_checksums(&self, content: &Content) -> Result<(), StorageError> {
        let place = content.block.manifest.checksum_table().filter(|_| self.use_page_checksums != Some(false));
        let Some(place) = place else { return self.close_page_checksums() };
        if content.interrupted {
            // Some checksums are of data that did not reach the medium.
            tracing::warn!(
                volume = self.disk.name(),
                "page checksums are not used: a program ended while it changed arrays"
            );
            return self.close_page_checksums();
        }
        match self.read_table(place, &content.block.manifest)? {
            Some(table) => self.use_page_checksums(&table),
            None => {
                tracing::warn!(
                    volume = self.disk.name(),
                    "page checksums are not used: their table is damaged; a verification with repair computes it again"
                );
                self.close_page_checksums()
            }
        }
    }

    /// Reads the table from any copy that has the right one. Returns `None` if there is none.
    pub(in crate::storage) fn read_table(
        &self,
        place: TablePlace,
        manifest: &Manifest,
    ) -> Result<Option<NewTable>, StorageError> {
        let checksum = manifest.table_checksum();
        // Damage that one read of all copies together finds may have passed at the next read.
        let mut sources = vec![None, None];
        if self.disk.is_replicated() {
            sources.extend(self.disk.in_use()?.into_iter().map(Some));
        }
        let mut table = self.new_table(place)?;
        for source in sources {
            match self.read_table_from(&mut table, source) {
                Ok(()) if checksum.is_none_or(|sum| sum == table.checksum(manifest)) => return Ok(Some(table)),
                Ok(()) => {}
                Err(StorageError::Nvme(error)) if checksum.is_some() => {
                    tracing::warn!(volume = self.disk.name(), %error, "page checksums cannot be read");
                }
                Err(StorageError::NoCopy { .. }) if checksum.is_some() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    /// Reads the table from one copy, or from the volume.
    pub(in crate::storage) fn read_table_from(
        &self,
        table: &mut NewTable,
        copy: Option<usize>,
    ) -> Result<(), StorageError> {
        let mut at = table.place.at;
        for part in table.entries.chunks_mut(ENTRIES_AT_ONCE) {
            let part: &mut [u8] = bytemuck::cast_slice_mut(part);
            let mut bytes = vec![0; part.len().next_multiple_of(self.disk.block_bytes())];
            self.read_from(copy, at, &mut bytes)?;
            at += bytes.len() as u64;
            part.copy_from_slice(&bytes[..part.len()]);
        }
        Ok(())
    }

    /// Makes a table for this position in which all checksums are unknown.
    pub(in crate::storage) fn new_table(&self, place: TablePlace) -> Result<NewTable, StorageError> {
        let mut entries = Vec::new();
        let count = usize::try_from(place.entries()).unwrap_or(usize::MAX);
        entries.try_reserve_exact(count).map_err(|e| self.no_table(place, &e))?;
        entries.resize(count, 0);
        Ok(NewTable { place, entries })
    }

    fn no_table(&self, place: TablePlace, e: &dyn std::error::Error) -> StorageError {
        let size = size(place.entries().saturating_mul(size_of::<u32>() as u64));
        StorageError::NoPath {
            what: "page checksums".to_owned(),
            device: self.disk.name().to_owned(),
            reason: format!("their table takes {size}: {e}; open the volume without them"),
            remedies: Vec::new(),
        }
    }

    /// Gives kernels this table.
    pub(in crate::storage) fn use_page_checksums(&self, new: &NewTable) -> Result<(), StorageError> {
        self.close_page_checksums()?;
        let NewTable { place, entries } = new;
        let region = self.disk.engine.allocate(Place::Device, size_of_val(entries.as_slice()));
        let region = region.map_err(|e| self.no_table(*place, &e))?;
        region.set_slice(0, entries)?;
        Ok(self.disk.page_checksums.open(&self.disk.integrity, region, entries.len() as u64)?)
    }

    /// Takes away the kernels' table. Running kernels may read it until they end.
    pub(in crate::storage) fn close_page_checksums(&self) -> Result<(), StorageError> {
        let disk = &self.disk;
        Ok(disk.page_checksums.close(&disk.integrity, || disk.engine.is_idle())?)
    }

    /// Returns the current table of this content. After an interruption all its checksums are unknown.
    pub(in crate::storage) fn page_checksums(&self, content: &Content) -> Result<Option<NewTable>, StorageError> {
        let Some(place) = content.block.manifest.checksum_table() else { return Ok(None) };
        match self.disk.page_checksums.entries()? {
            Some(entries) => Ok(Some(NewTable { place, entries })),
            None => self.new_table(place).map(Some),
        }
    }

    /// Returns the extensions for some of the arrays of this content, whose table stays as it is.
    pub(in crate::storage) fn extensions_for(
        &self,
        content: &Content,
        some: &Manifest,
    ) -> Result<Vec<Extension>, StorageError> {
        let old = &content.block.manifest;
        let mut kept = Manifest::default().with_extensions(old.extensions().to_vec());
        if let (Some(place), Some(_)) = (old.checksum_table(), old.table_checksum()) {
            // A damaged table keeps its old checksum, so that it stays known as damaged.
            let table = match self.page_checksums(content)?.filter(|_| self.has_page_checksums()) {
                Some(table) => Some(table),
                None => self.read_table(place, old)?,
            };
            table.iter().for_each(|table| kept.set_extension(table.extension(some)));
        }
        Ok(kept.extensions().to_vec())
    }

    /// Writes a table to the medium, padded with zeros to a whole block.
    pub(in crate::storage) fn put_table(&self, table: &NewTable) -> Result<(), StorageError> {
        let mut at = table.place.at;
        for part in table.entries.chunks(ENTRIES_AT_ONCE) {
            let mut bytes = bytemuck::cast_slice::<u32, u8>(part).to_vec();
            bytes.resize(bytes.len().next_multiple_of(self.disk.block_bytes()), 0);
            self.disk.put_blocks(at >> self.disk.block_shift(), &bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }
}

/// A table that is filled while data is written.
#[derive(Debug)]
pub(in crate::storage) struct NewTable {
    pub(in crate::storage) place: TablePlace,
    entries: Vec<u32>,
}

impl NewTable {
    /// Returns the XXH64 of the entries of these arrays.
    pub(in crate::storage) fn checksum(&self, manifest: &Manifest) -> u64 {
        let mut sum = Checksum::default();
        for e in manifest.entries().iter().filter(|e| e.bytes() > 0) {
            let units = (e.offset / UNIT as u64) as usize..e.end().div_ceil(UNIT as u64) as usize;
            sum.update(bytemuck::cast_slice(self.entries.get(units).unwrap_or_default()));
        }
        sum.finish()
    }

    /// Returns the extension that describes the table for these arrays.
    pub(in crate::storage) fn extension(&self, manifest: &Manifest) -> Extension {
        let mut extension = self.place.extension();
        extension.bytes.extend(self.checksum(manifest).to_le_bytes());
        extension
    }

    /// Marks the checksums of an array as unknown.
    pub(in crate::storage) fn forget(&mut self, entry: &Entry) {
        let units = (entry.offset / UNIT as u64) as usize..entry.end().div_ceil(UNIT as u64) as usize;
        if let Some(entries) = self.entries.get_mut(units) {
            entries.fill(0);
        }
    }

    /// Stores the checksums of data that begins with a unit. An incomplete unit at the end gets none.
    pub(in crate::storage) fn take(&mut self, offset: u64, data: &[u8]) {
        let first = (offset / UNIT as u64) as usize;
        for (i, unit) in data.chunks_exact(UNIT).enumerate() {
            if let Some(entry) = self.entries.get_mut(first + i) {
                *entry = entry_of(unit);
            }
        }
    }
}

impl NewTable {
    /// Takes the entries of another table for units whose checksum is unknown here.
    pub(in crate::storage) fn take_unknown(&mut self, other: &Self) {
        self.entries.iter_mut().zip(&other.entries).filter(|(own, _)| **own == 0).for_each(|(own, e)| *own = *e);
    }
}
