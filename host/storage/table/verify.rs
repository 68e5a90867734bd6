//! Complete verification of a stored table.

use super::Table;
use super::layout::rows_of;
use crate::engine::EngineError;
use crate::storage::{Checksum, StorageError};

/// Bytes that are read at once.
const PIECE: usize = 4 << 20;

impl Table {
    /// Reads all rows in pieces, past the caches, and compares them with the checksum that was stored. Returns false if
    /// rows were written since, so that the checksum says nothing about them: then they were read, but not compared.
    ///
    /// Call it after a flush, and while no kernel writes rows.
    ///
    /// # Errors
    /// * [`StorageError::Manifest`] if the rows are damaged.
    /// * [`StorageError::Table`] with [`TableError::Unknown`](super::TableError::Unknown) if the table was removed meanwhile.
    /// * [`StorageError::Engine`] if the engine was cancelled; otherwise as for
    ///   [`Volume::read_bytes`](crate::storage::Volume::read_bytes).
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Drive, OverwritePolicy, Table, Volume};
    ///
    /// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
    /// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
    /// assert!(Table::from_rows(&volume, "vectors", &[1.0f32; 64 * 100], 64)?.verify()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(&self) -> Result<bool, StorageError> {
        let volume = self.volume();
        let content = volume.contents().current()?;
        let Ok(entry) = content.block.manifest.find(&rows_of(self.name())).cloned() else {
            return Err(super::stored::unknown(volume, self.name())?.into());
        };
        let mut checksum = Checksum::default();
        let mut piece = vec![0; PIECE];
        let (mut at, end) = (entry.offset, entry.end());
        while at < end {
            if volume.engine().is_cancelled() {
                return Err(EngineError::Cancelled.into());
            }
            let now = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
            volume.read_bytes(at, &mut piece[..now])?;
            checksum.update(&piece[..now]);
            at += now as u64;
        }
        volume.contents().check_data(&content, &entry, checksum.finish())?;
        Ok(!entry.changed && !volume.contents().is_touched(&entry, &volume.disk().integrity.changed()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;
    use crate::storage::{Drive, TableError, Volume};

    #[test]
    fn written_rows_are_read_and_not_compared() {
        let v = Volume::on(&testing::cpu(), [Drive::open("soft:mem:8M").unwrap()]).build().unwrap();
        let table = Table::from_rows(&v, "t", &vec![7u32; 1_500_000], 30).unwrap();
        assert!(table.verify().unwrap());
        let rows = v.manifest().unwrap().find("t:rows").unwrap().clone();
        let last = (rows.end() - 1) >> v.block_shift();
        let mut block = vec![0; v.block_bytes()];
        v.read_blocks(last, &mut block).unwrap();
        block[0] ^= 1;
        v.write_blocks(last, &block).unwrap();
        assert!(!table.verify().unwrap(), "not flushed yet");
        v.flush().unwrap();
        assert!(!table.verify().unwrap(), "flushed");
        Table::remove(&v, "t").unwrap();
        assert!(matches!(table.verify(), Err(StorageError::Table(TableError::Unknown { .. }))));
    }
}
