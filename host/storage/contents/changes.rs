//! Changes of stored arrays: recorded by a flush, accepted with new checksums.

use super::manifest::{Entry, Manifest};
use super::page_checksums::{BYTES_AT_ONCE, NewTable, parts};
use super::publish::needs_mark;
use super::superblock::Superblock;
use super::{Content, Contents};
use crate::storage::checksum::Checksum;
use crate::storage::disk::UNIT;
use crate::storage::error::{ManifestError, StorageError};

impl Contents {
    /// Records in the manifest which arrays have changed, and which copies are left out. A flush calls this after the
    /// data.
    pub(in crate::storage) fn record_changes(&self) -> Result<(), StorageError> {
        let mut known = self.content.lock();
        let Some(content) = known.as_mut() else { return Ok(()) };
        let mut next = Superblock { generation: content.latest + 1, ..content.block.clone() };
        let changed = self.disk.integrity.changed()?;
        let mut has_new = next.manifest.set_changed(|e| self.is_touched(e, &changed));
        // A write to arrays that are recorded as changed has put a mark, too. It would outlast this program.
        has_new |= !content.interrupted && needs_mark(&content.block) && !self.disk.integrity.is_pending()?;
        if next.manifest.checksum_table().is_some()
            && !self.disk.integrity.is_pending()?
            && changed.iter().any(|w| *w != 0)
        {
            // A mark must precede later writes again, since the table that is written here does not cover them.
            self.arm(&next)?;
            if self.has_page_checksums() {
                if let Some(table) = self.page_checksums(content)? {
                    self.put_table(&table)?;
                    let extension = table.extension(&next.manifest);
                    next.manifest.set_extension(extension);
                }
                has_new = true;
            } else if !content.interrupted {
                has_new |= next.manifest.drop_page_checksums();
            }
        }
        // Copies that are written to and hold other content are no members.
        next.members = self.disk.used()? & content.block.members;
        let is_needed = has_new || next.members != content.block.members;
        if !is_needed && !content.is_behind {
            return Ok(());
        }
        let interrupted = content.interrupted;
        let written = self.write_superblocks(&mut next, 1 - content.slot, interrupted);
        content.latest = next.generation;
        let slot = match written {
            // Nothing has changed. The devices may be read-only.
            Err(error) if !is_needed => {
                tracing::warn!(volume = self.disk.name(), %error, "superblocks that a copy lacks were not written");
                return Ok(());
            }
            other => other?,
        };
        self.arm(&next)?;
        *content = Content { latest: next.generation, block: next, slot, interrupted, is_behind: false };
        Ok(())
    }

    /// Returns true if a block of the array is in a unit that was written to. `changed` has a bit for each unit.
    pub(in crate::storage) fn is_touched(&self, e: &Entry, changed: &[u64]) -> bool {
        let shift = self.disk.block_shift();
        e.bytes() > 0 && self.disk.integrity.is_touched(changed, e.offset >> shift, (e.end() - 1) >> shift)
    }

    /// Compares the checksum of data that was read with the manifest. An array that was changed since it was stored is
    /// not checked.
    pub(in crate::storage) fn check_data(
        &self,
        content: &Content,
        entry: &Entry,
        computed: u64,
    ) -> Result<(), StorageError> {
        if entry.changed || computed == entry.checksum || self.is_touched(entry, &self.disk.integrity.changed()?) {
            return Ok(());
        }
        let (name, found) = (entry.name.clone(), entry.checksum);
        Err(self.wrong_manifest(if content.interrupted {
            ManifestError::Interrupted { name, found, computed }
        } else {
            ManifestError::Data { name, found, computed }
        }))
    }

    /// Accepts the arrays as they are. Computes the checksums of arrays that were changed since they were stored, or
    /// that a program was changing when it ended. Writes the checksums to the manifest. Reads these arrays completely.
    pub(in crate::storage) fn accept_changes(&self) -> Result<Manifest, StorageError> {
        if !self.disk.engine.is_idle() {
            let reason = "kernels run, which could change the arrays; finish the run first".to_owned();
            return Err(StorageError::NoPath {
                what: "checksums".to_owned(),
                device: self.disk.name().to_owned(),
                reason,
                remedies: Vec::new(),
            });
        }
        self.flush()?;
        let content = self.current()?;
        let mut next = Superblock { generation: content.latest + 1, ..content.block.clone() };
        let mut table = self.page_checksums(&content)?;
        for (i, entry) in content.block.manifest.entries().iter().enumerate() {
            if !entry.self_checked && (entry.changed || content.interrupted) {
                if self.disk.is_replicated() {
                    self.make_alike(entry)?;
                }
                next.manifest.set_checksum(i, self.checksum_of(entry, table.as_mut())?);
            }
        }
        if next.manifest != content.block.manifest || content.interrupted {
            if let Some(table) = &table {
                self.put_table(table)?;
                let extension = table.extension(&next.manifest);
                next.manifest.set_extension(extension);
            }
            self.publish(next.clone(), 1 - content.slot)?;
            self.disk.integrity.clear_changed()?;
            if let Some(table) = &table {
                self.use_page_checksums(table)?;
            }
        }
        Ok(next.manifest)
    }

    /// Writes the data of an array that reads return to each copy with other data. A loss of power may leave each copy with
    /// other parts of what was not flushed, and no checksum would fit both.
    fn make_alike(&self, entry: &Entry) -> Result<(), StorageError> {
        // Concurrent writes of the host could be undone.
        let _alone = self.disk.without_writes();
        let (mut data, mut held) = (vec![0; BYTES_AT_ONCE], vec![0; BYTES_AT_ONCE]);
        for part in parts(entry) {
            let (data, held) = (&mut data[..part.whole], &mut held[..part.whole]);
            self.disk.read_bytes(part.offset, data)?;
            for copy in self.disk.in_use()? {
                let is_read = match self.read_from(Some(copy), part.offset, held) {
                    Ok(()) => true,
                    Err(StorageError::Nvme(_)) => false,
                    Err(e) => return Err(e),
                };
                let units = data.chunks(UNIT).zip(held.chunks(UNIT)).zip((part.offset..).step_by(UNIT));
                for ((unit, _), offset) in units.filter(|((unit, held), _)| !is_read || unit != held) {
                    if !self.disk.write_back(copy, offset >> self.disk.block_shift(), unit)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a whole array and returns its checksum. Stores the page checksums of its units in `table`.
    pub(in crate::storage) fn checksum_of(
        &self,
        entry: &Entry,
        mut table: Option<&mut NewTable>,
    ) -> Result<u64, StorageError> {
        let (mut sum, mut buffer) = (Checksum::default(), vec![0; BYTES_AT_ONCE]);
        for part in parts(entry) {
            let data = &mut buffer[..part.whole];
            self.disk.read_bytes(part.offset, data)?;
            sum.update(&data[..part.bytes]);
            if let Some(table) = table.as_deref_mut() {
                table.take(part.offset, data);
            }
        }
        Ok(sum.finish())
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::Engine;
    use crate::storage::{Drive, Volume};

    #[test]
    fn copies_that_differ_are_alike_once_changes_are_accepted() {
        for page_checksums in [false, true] {
            let drives = ["soft:mem:1M"; 2].map(|s| Drive::open(s).unwrap());
            let builder = Volume::on(&Engine::cpu().unwrap(), drives).replicated(true).chunk(4096);
            let v = builder.page_checksums(page_checksums).build().unwrap();
            let manifest = v.store_array("a", &vec![1u64; 20_000]).unwrap();
            let at = manifest.entries()[0].offset;
            v.write_bytes(at, &[2; 512]).unwrap();
            v.flush().unwrap();
            // As after a loss of power: what was not flushed is on one copy or the other.
            for (copy, block) in [(0, 5), (1, 5), (0, 100), (1, 140)] {
                let data = [3 + copy as u8; 512];
                v.disk().with_queue(copy, |q, ns| q.write(ns, (at >> 9) + block, &data)).unwrap();
            }
            v.accept_changes().unwrap();
            let found = v.verify(false).unwrap();
            assert!(found.is_intact() && found.arrays.iter().all(|a| a.copy.is_some()), "{found:?}");
            assert_eq!(v.read_array::<u64>("a").unwrap()[0], 0x0202_0202_0202_0202);
        }
    }
}
