//! Records and data of a store on its volume.
//!
//! The arrays have checksums of their own, which the volume knows. It writes them without mark and page checksums, so that
//! neither other arrays nor the whole volume look changed or interrupted by a store that is always being written.

use super::extent::{Run, Runs};
use super::layout::{Shape, records_of, slab_of};
use super::record::RECORD;
use crate::storage::error::{KvError, StorageError};
use crate::storage::volume::Extent;
use crate::storage::{Entry, Volume};

/// Places of a store's arrays on a volume.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) volume: Volume,
    pub(super) name: String,
    pub(super) shape: Shape,
    /// First byte of the records, and of the data, in the volume.
    records: u64,
    slab: u64,
}

impl Medium {
    /// Makes the medium of a store whose arrays begin at these bytes of the volume, at a multiple of its blocks.
    pub(super) fn new(volume: &Volume, name: &str, shape: Shape, records: u64, slab: u64) -> Self {
        Self { volume: volume.clone(), name: name.to_owned(), shape, records, slab }
    }

    /// Returns the number of records in a block of the volume.
    pub(super) fn records_of_block(&self) -> u32 {
        (self.volume.block_bytes() / RECORD) as u32
    }

    /// Returns the first byte of a slot's record in the volume.
    pub(super) fn record_at(&self, slot: u64) -> u64 {
        self.records + slot * RECORD as u64
    }

    /// Returns the first byte of a run in the volume.
    pub(super) fn data_at(&self, run: Run) -> u64 {
        self.slab + run.start() * self.shape.limits.unit
    }

    /// Returns the blocks of an object.
    pub(super) fn extents(&self, runs: &Runs) -> Vec<Extent> {
        let (unit, shift) = (self.shape.limits.unit, self.volume.block_shift());
        let extent = |run: &Run| Extent::new(self.data_at(*run) >> shift, (run.units() * unit) >> shift);
        runs.as_slice().iter().map(extent).collect()
    }

    /// Checks that the volume still holds the store where it was.
    ///
    /// # Errors
    /// [`KvError::Removed`] if it does not.
    pub(super) fn check(&self) -> Result<(), KvError> {
        let known = self.volume.contents().content.lock();
        let is_at = |name: &str, at: u64| {
            let find = |e: &&Entry| e.name == name && e.offset == at && e.self_checked;
            known.as_ref().is_some_and(|c| c.block.manifest.entries().iter().any(|e| find(&e)))
        };
        match is_at(&records_of(&self.name), self.records) && is_at(&slab_of(&self.name), self.slab) {
            true => Ok(()),
            false => Err(KvError::Removed { name: self.name.clone() }),
        }
    }

    /// Returns true if the data of objects begins at this byte of the volume.
    pub(super) fn data_is_at(&self, offset: u64) -> bool {
        self.slab == offset
    }

    /// Writes whole blocks from byte `offset` of the volume on.
    pub(super) fn write(&self, offset: u64, blocks: &[u8]) -> Result<(), StorageError> {
        self.volume.write_blocks(offset >> self.volume.block_shift(), blocks)
    }

    /// Makes all completed writes durable, also those of kernels.
    pub(super) fn flush(&self) -> Result<(), StorageError> {
        self.volume.flush()
    }

    /// Writes the data of an object to its runs. Zeros complete the last block.
    pub(super) fn write_data(&self, runs: &Runs, data: &[u8]) -> Result<(), StorageError> {
        let mut rest = data;
        for run in runs.as_slice() {
            let bytes = (run.units() * self.shape.limits.unit) as usize;
            let (now, later) = rest.split_at(bytes.min(rest.len()));
            let block = self.volume.block_bytes();
            let (whole, end) = now.split_at(now.len() / block * block);
            if !whole.is_empty() {
                self.write(self.data_at(*run), whole)?;
            }
            if !end.is_empty() {
                let mut last = end.to_vec();
                last.resize(block, 0);
                self.write(self.data_at(*run) + whole.len() as u64, &last)?;
            }
            rest = later;
        }
        Ok(())
    }

    /// Reads the data of an object, from one copy of a replicated volume or from any.
    pub(super) fn read_data(&self, runs: &Runs, copy: Option<usize>, out: &mut [u8]) -> Result<(), StorageError> {
        let mut rest = out;
        for run in runs.as_slice() {
            let bytes = (run.units() * self.shape.limits.unit) as usize;
            let (now, later) = rest.split_at_mut(bytes.min(rest.len()));
            let block = self.volume.block_bytes();
            let (whole, end) = now.split_at_mut(now.len() / block * block);
            let at = self.data_at(*run);
            if !whole.is_empty() {
                self.volume.contents().read_from(copy, at, whole)?;
            }
            if !end.is_empty() {
                let mut last = vec![0; block];
                self.volume.contents().read_from(copy, at + whole.len() as u64, &mut last)?;
                end.copy_from_slice(&last[..end.len()]);
            }
            rest = later;
        }
        Ok(())
    }
}
