//! Transfers between a stored array, by its name, and one range of memory.

use super::list::refuse;
use super::{Inner, SegmentList, SegmentQueue, SegmentTransfer};
use crate::engine::abi;
use crate::memory::Region;
use crate::storage::contents::Entry;
use crate::storage::error::StorageError;
use crate::storage::volume::Extent;
use std::time::Duration;

/// Bytes of which transfers are multiples.
const UNIT: u64 = abi::SEGMENT_UNIT as u64;
/// Bytes of the largest segment of such a transfer.
const SEGMENT: usize = 128 << 20;

impl SegmentQueue {
    /// Adds to the stream the read of bytes of the array called `name`, from its byte `offset` on, into all of `memory`. The array keeps
    /// its place until the transfer has ended: to remove or replace it fails before.
    ///
    /// The offset is a multiple of the volume's block. An array whose bytes are no multiple of 16 ends at the next one, with zeros.
    ///
    /// # Errors
    /// * [`StorageError::Manifest`] if the volume holds no such array.
    /// * [`StorageError::Option`] if the offset is no multiple of a block, or the range is not within the array.
    /// * As for [`SegmentQueue::load`].
    pub fn load_array(&self, name: &str, offset: u64, memory: &Region) -> Result<SegmentTransfer, StorageError> {
        self.launch_within(name, true, |entry| list(&self.0, entry, offset, memory, false))
    }

    /// Adds to the stream the write of all of `memory` to the array called `name`, as [`SegmentQueue::load_array`] reads it. The last
    /// block is the array's last one, or written whole. The array counts as changed, and is durable after
    /// [`Volume::flush`](crate::storage::Volume::flush).
    ///
    /// # Errors
    /// As for [`SegmentQueue::load_array`]; [`StorageError::Option`] also for arrays of KV stores, which have checksums of their own.
    pub fn store_array(&self, name: &str, offset: u64, memory: &Region) -> Result<SegmentTransfer, StorageError> {
        self.launch_within(name, false, |entry| list(&self.0, entry, offset, memory, true))
    }
}

/// Returns the list of one object: bytes of an array, and segments one behind the other in memory.
fn list(queue: &Inner, entry: &Entry, offset: u64, memory: &Region, stores: bool) -> Result<SegmentList, StorageError> {
    let (block, name) = (queue.volume.block_bytes() as u64, &entry.name);
    let (bytes, all) = (memory.len() as u64, entry.bytes().next_multiple_of(UNIT));
    if stores && entry.self_checked {
        return refuse(format!("array `{name}` belongs to a KV store; write objects to the store instead"));
    }
    if !offset.is_multiple_of(block) {
        return refuse(format!("byte {offset} of array `{name}`: transfers begin at a multiple of {block} bytes"));
    }
    let Some(end) = offset.checked_add(bytes).filter(|end| *end <= all) else {
        return refuse(format!(
            "{bytes} bytes from byte {offset} of array `{name}`, which has {}; move less",
            entry.bytes()
        ));
    };
    if stores && end < all && !bytes.is_multiple_of(block) {
        return refuse(format!(
            "{bytes} bytes to array `{name}`: stores have whole blocks of {block} bytes, or go to the array's end"
        ));
    }
    let mut list = SegmentList::new();
    list.object(&[Extent::new((entry.offset + offset) / block, bytes.div_ceil(block))], bytes)?;
    for at in (0..memory.len()).step_by(SEGMENT) {
        list.segment(memory, at, SEGMENT.min(memory.len() - at), 0)?;
    }
    Ok(list)
}

impl SegmentTransfer {
    /// Waits at most `within` for the transfer of `bytes` bytes of an array.
    ///
    /// # Errors
    /// [`StorageError::Run`] with the command that failed, or if the transfer was told to stop; as for [`SegmentTransfer::finish`].
    pub fn finish_array(&self, bytes: u64, within: Duration) -> Result<(), StorageError> {
        let outcomes = self.wait(within)?;
        Ok(outcomes.iter().try_for_each(|outcome| outcome.check("a transfer of an array", bytes))?)
    }
}
