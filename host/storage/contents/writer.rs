//! Writer of planned arrays: the data is streamed, and named in the manifest last.

use super::Contents;
use super::manifest::{Entry, Manifest};
use super::page_checksums::NewTable;
use super::superblock::Superblock;
use crate::engine::EngineError;
use crate::storage::checksum::Checksum;
use crate::storage::disk::{Receiving, UNIT};
use crate::storage::element::{Element, ElementType};
use crate::storage::error::{ManifestError, StorageError};

/// Bytes that are gathered into one write.
const GATHER: usize = 4 << 20;

/// Writer of the planned arrays. Takes their data in any order, in pieces of any size.
#[derive(Debug)]
#[must_use = "nothing has a name before finish"]
pub struct VolumeWriter<'a> {
    pub(in crate::storage) contents: &'a Contents,
    pub(in crate::storage) arrays: Vec<Filling>,
    pub(in crate::storage) checksums: Option<NewTable>,
    pub(in crate::storage) next: Superblock,
    pub(in crate::storage) slot: usize,
    pub(in crate::storage) keeps_old: bool,
    /// For arrays that are added to those that the volume holds: names of the arrays that they replace.
    pub(in crate::storage) beside: Option<Vec<String>>,
    /// Copies that were left out and receive the data.
    pub(in crate::storage) receiving: Option<Receiving<'a>>,
}

/// Destination of the data of all arrays.
struct Target<'a> {
    contents: &'a Contents,
    checksums: &'a mut Option<NewTable>,
}

#[derive(Debug)]
pub(in crate::storage) struct Filling {
    entry: Entry,
    checksum: Checksum,
    /// Bytes written: a multiple of the block size until the end.
    written: u64,
    /// Bytes that were taken and are not written yet.
    gathered: Vec<u8>,
}

impl Filling {
    pub(in crate::storage) fn new(entry: &Entry) -> Self {
        Self { entry: entry.clone(), checksum: Checksum::default(), written: 0, gathered: Vec::new() }
    }

    fn given(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    fn complete(&self) -> Result<(), StorageError> {
        let is_complete = self.entry.self_checked || self.given() == self.entry.bytes();
        if is_complete { Ok(()) } else { Err(self.count_error(0)) }
    }

    fn count_error(&self, more: u64) -> StorageError {
        let each = u64::from(self.entry.element_bytes).max(1);
        let given = (self.given() + more) / each;
        StorageError::Count { name: self.entry.name.clone(), given, planned: self.entry.count }
    }

    fn take(&mut self, to: &mut Target<'_>, mut bytes: &[u8]) -> Result<(), StorageError> {
        if self.given() + bytes.len() as u64 > self.entry.bytes() {
            return Err(self.count_error(bytes.len() as u64));
        }
        self.checksum.update(bytes);
        while !bytes.is_empty() {
            // Large pieces are written directly; small ones are gathered.
            let whole = bytes.len() / GATHER * GATHER;
            if self.gathered.is_empty() && whole > 0 {
                self.write(to, &bytes[..whole])?;
                bytes = &bytes[whole..];
                continue;
            }
            let n = bytes.len().min(GATHER - self.gathered.len());
            self.gathered.extend_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            if self.gathered.len() == GATHER {
                let full = std::mem::take(&mut self.gathered);
                self.write(to, &full)?;
                self.gathered = full;
                self.gathered.clear();
            }
        }
        Ok(())
    }

    fn write(&mut self, to: &mut Target<'_>, blocks: &[u8]) -> Result<(), StorageError> {
        let Target { contents, checksums } = to;
        if contents.disk.engine.is_cancelled() {
            return Err(EngineError::Cancelled.into());
        }
        let at = self.entry.offset + self.written;
        contents.disk.put_blocks(at >> contents.disk.block_shift(), blocks)?;
        if let Some(table) = checksums {
            table.take(at, blocks);
        }
        self.written += blocks.len() as u64;
        Ok(())
    }

    /// Writes the gathered bytes, padded with zeros to a whole block, or to a whole unit of page checksums. The next
    /// array begins behind that.
    fn finish(&mut self, to: &mut Target<'_>) -> Result<(), StorageError> {
        let whole = if to.checksums.is_some() { UNIT } else { to.contents.disk.block_bytes() };
        let bytes = self.gathered.len();
        self.gathered.resize(bytes.next_multiple_of(whole), 0);
        let rest = std::mem::take(&mut self.gathered);
        if !rest.is_empty() {
            self.write(to, &rest)?;
        }
        self.entry.checksum = if self.entry.self_checked { 0 } else { self.checksum.finish() };
        Ok(())
    }
}

impl VolumeWriter<'_> {
    /// Appends elements to an array.
    ///
    /// # Errors
    /// * [`StorageError::Manifest`] if the plan has no such array, or one of another type.
    /// * [`StorageError::Count`] if the array gets more elements than planned.
    /// * [`StorageError::Engine`] if the engine was cancelled; otherwise as for [`Volume::write_blocks`](crate::storage::Volume::write_blocks).
    pub fn append<T: Element>(&mut self, name: &str, values: &[T]) -> Result<(), StorageError> {
        self.append_bytes(name, T::TYPE, bytemuck::cast_slice(values))
    }

    /// Appends whole elements, as bytes, to an array whose elements have the type `asked`.
    ///
    /// # Errors
    /// As for [`VolumeWriter::append`].
    pub fn append_bytes(&mut self, name: &str, asked: ElementType, bytes: &[u8]) -> Result<(), StorageError> {
        let there = || self.arrays.iter().map(|a| a.entry.name.clone()).collect();
        let wrong = |source| StorageError::Manifest { device: self.contents.disk.name().to_owned(), source };
        let Some(i) = self.arrays.iter().position(|a| a.entry.name == name) else {
            return Err(wrong(ManifestError::Unknown { name: name.to_owned(), there: there() }));
        };
        let found = self.arrays[i].entry.element_type;
        if found != asked {
            return Err(wrong(ManifestError::Type { name: name.to_owned(), found, asked }));
        }
        self.arrays[i].take(&mut Target { contents: self.contents, checksums: &mut self.checksums }, bytes)
    }

    /// Returns true if the volume keeps its old content until [`VolumeWriter::finish`] returns, and if `finish` is
    /// never called.
    pub fn keeps_old(&self) -> bool {
        self.keeps_old
    }

    /// Writes the remaining data, flushes, and then writes the manifest. With that the new content replaces the old, or
    /// joins it after [`Volume::add`](crate::storage::Volume::add). A file that was made for the volume gets its name.
    ///
    /// # Errors
    /// [`StorageError::Count`] if an array lacks elements; [`StorageError::File`] if a new file cannot get its name;
    /// otherwise as for [`VolumeWriter::append`].
    pub fn finish(mut self) -> Result<Manifest, StorageError> {
        let contents = self.contents;
        self.arrays.iter().try_for_each(Filling::complete)?;
        let mut to = Target { contents, checksums: &mut self.checksums };
        self.arrays.iter_mut().try_for_each(|a| a.finish(&mut to))?;
        let mut entries: Vec<Entry> = self.arrays.into_iter().map(|a| a.entry).collect();
        if let Some(replaced) = &self.beside {
            let content = contents.flushed_content()?;
            if let (Some(new), Some(old)) = (&mut self.checksums, contents.page_checksums(&content)?) {
                new.take_unknown(&old);
            }
            (self.next.generation, self.slot) = (content.latest + 1, 1 - content.slot);
            let others = content.block.manifest.entries().iter().filter(|e| !replaced.contains(&e.name));
            entries.splice(0..0, others.cloned());
        }
        if let Some(table) = &mut self.checksums {
            // Their owners write them without page checksums, and others may have been there before.
            entries.iter().filter(|e| e.self_checked).for_each(|e| table.forget(e));
        }
        let mut manifest = Manifest::new(entries).map_err(|source| contents.wrong_manifest(source))?;
        if let Some(table) = &self.checksums {
            contents.put_table(table)?;
            let extension = table.extension(&manifest);
            manifest.set_extension(extension);
        }
        if self.beside.is_none() || contents.disk.engine.is_idle() {
            contents.disk.integrity.clear_changed()?;
        }
        contents.publish(Superblock { manifest: manifest.clone(), ..self.next }, self.slot)?;
        if let Some(receiving) = self.receiving {
            let members = contents.content.lock().as_ref().map_or(0, |c| c.block.members);
            receiving.take_in(members)?;
        }
        contents.disk.keep()?;
        match &self.checksums {
            Some(table) => contents.use_page_checksums(table)?,
            None => contents.close_page_checksums()?,
        }
        Ok(manifest)
    }
}
