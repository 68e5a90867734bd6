//! Writes of the host to blocks that may hold stored arrays. The mark precedes them, and page checksums follow them. Arrays
//! with checksums of their own have neither.

use super::Contents;
use crate::storage::error::StorageError;
use crate::storage::format::ARRAY_ALIGN;
use std::ops::Range;

impl Contents {
    /// Makes all completed writes durable. Repairs blocks that a copy could not read, flushes the devices, and records in
    /// the manifest which arrays have changed.
    pub(in crate::storage) fn flush(&self) -> Result<(), StorageError> {
        self.disk.repair()?;
        self.disk.flush_devices()?;
        self.record_changes()
    }

    /// Writes whole blocks from block `first` on.
    pub(in crate::storage) fn write_blocks(&self, first: u64, data: &[u8]) -> Result<(), StorageError> {
        let blocks = self.disk.check_range(first, data.len())?;
        if self.is_self_checked(first, blocks) {
            return self.disk.put_blocks(first, data);
        }
        self.announce(first, blocks)?;
        self.disk.put_blocks(first, data)?;
        Ok(self.disk.page_checksums.store(first, data)?)
    }

    /// Returns true if these blocks are part of one array with checksums of its own, or behind its end.
    pub(in crate::storage) fn is_self_checked(&self, first: u64, blocks: u64) -> bool {
        let shift = self.disk.block_shift();
        let (start, end) = (first << shift, (first + blocks) << shift);
        let known = self.content.lock();
        let entries = known.as_ref().map_or(&[][..], |c| c.block.manifest.entries());
        entries.iter().any(|e| e.self_checked && e.offset <= start && end <= e.end().next_multiple_of(ARRAY_ALIGN))
    }

    /// Writes bytes at any byte offset of the volume. Partly covered blocks are read first, so nobody else may write to
    /// these blocks meanwhile.
    pub(in crate::storage) fn write_bytes(&self, offset: u64, data: &[u8]) -> Result<(), StorageError> {
        let block = self.disk.block_bytes();
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let skip = (at % block as u64) as usize;
            let first = at / block as u64;
            if skip == 0 && rest.len() >= block {
                let (now, later) = rest.split_at(rest.len() / block * block);
                self.write_blocks(first, now)?;
                (at, rest) = (at + now.len() as u64, later);
                continue;
            }
            let n = rest.len().min(block - skip);
            let mut whole = vec![0; block];
            self.disk.read_blocks(first, &mut whole)?;
            whole[skip..skip + n].copy_from_slice(&rest[..n]);
            self.write_blocks(first, &whole)?;
            (at, rest) = (at + n as u64, &rest[n..]);
        }
        Ok(())
    }

    /// Makes `blocks` read as zeros. With `deallocate` a device may free them.
    pub(in crate::storage) fn write_zeroes(&self, blocks: Range<u64>, deallocate: bool) -> Result<(), StorageError> {
        self.announce(blocks.start, self.disk.count_of(&blocks)?)?;
        self.disk.write_zeroes(blocks, deallocate)
    }

    /// Tells the devices that the contents of `blocks` are no longer needed.
    pub(in crate::storage) fn deallocate(&self, blocks: Range<u64>) -> Result<(), StorageError> {
        self.announce(blocks.start, self.disk.count_of(&blocks)?)?;
        self.disk.deallocate(blocks)
    }
}
