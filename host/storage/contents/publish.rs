//! Publishing content: data, Flush, superblocks, Flush, commit. Also the mark, which precedes the first write to stored
//! arrays.

use super::manifest::{Entry, Manifest};
use super::superblock::{COMMIT_AT, MARK_AT, Superblock, commit, mark};
use super::{Content, Contents};
use crate::storage::error::StorageError;
use crate::storage::format::{MANIFEST_BYTES, SLOTS};

/// Returns true if the first write to these arrays has to be marked: some of them have checksums that hold.
pub(in crate::storage) fn needs_mark(block: &Superblock) -> bool {
    let is_checked = |e: &Entry| !e.changed || (block.manifest.checksum_table().is_some() && !e.self_checked);
    block.manifest.entries().iter().any(|e| is_checked(e) && e.count > 0)
}

impl Contents {
    /// Writes the superblocks of new content to its members, and flushes. The data must be on the medium already. While
    /// members fail, writes another generation without them. Returns the slot of the last one.
    pub(in crate::storage) fn write_superblocks(
        &self,
        next: &mut Superblock,
        mut slot: usize,
        interrupted: bool,
    ) -> Result<usize, StorageError> {
        loop {
            if interrupted {
                // The generation is marked, too, so that interrupted arrays stay known as such.
                self.write_mark(next)?;
            }
            let lba = (SLOTS[slot] >> self.disk.block_shift()) as u64;
            let write = |device: usize| {
                let bytes = Superblock { index: device as u32, ..next.clone() }.to_bytes();
                self.disk.with_queue(device, |q, ns| q.write(ns, lba, &bytes))
            };
            self.disk.on_each_of(self.disk.members(next.members), "write", lba, write)?;
            self.disk.flush_devices()?;
            let left = self.disk.written()? & next.members;
            if left == next.members {
                break;
            }
            next.members = left;
            next.generation += 1;
            slot = 1 - slot;
        }
        if self.disk.is_replicated() {
            *self.known.lock() = Some((next.uuid, next.generation));
            self.disk.set_missed(!next.members)?;
        }
        self.write_commit(next);
        Ok(slot)
    }

    /// Records on each drive that a generation is on the medium of all.
    fn write_commit(&self, block: &Superblock) {
        let bytes = commit(block.uuid, block.generation, self.disk.block_bytes());
        let lba = (COMMIT_AT >> self.disk.block_shift()) as u64;
        for device in self.disk.members(block.members) {
            if let Err(error) = self.disk.with_queue(device, |q, ns| q.write(ns, lba, &bytes)) {
                // The content is correct. The commit only tells later damage of its superblock from a write cut off.
                tracing::warn!(device = self.disk.names[device], %error, "a stored generation was not recorded as complete");
            }
        }
    }

    /// Publishes new content, whose data was written to all copies that are written to: flushes the data, then writes
    /// the superblocks.
    pub(in crate::storage) fn publish(&self, next: Superblock, slot: usize) -> Result<(), StorageError> {
        self.publish_as(next, slot, false)
    }

    /// Publishes content as [`Contents::publish`] does, or content whose arrays stay interrupted.
    pub(in crate::storage) fn publish_as(
        &self,
        mut next: Superblock,
        slot: usize,
        interrupted: bool,
    ) -> Result<(), StorageError> {
        let _uses = self.lock_uses(&next.manifest)?;
        self.disk.flush_devices()?;
        next.members = self.disk.written()?;
        let written = self.write_superblocks(&mut next, slot, interrupted);
        let mut known = self.content.lock();
        if let Some(known) = known.as_mut().filter(|k| k.block.uuid == next.uuid) {
            known.latest = known.latest.max(next.generation);
        }
        let slot = written?;
        self.arm(&next)?;
        *known = Some(Content { latest: next.generation, block: next, slot, interrupted, is_behind: false });
        Ok(())
    }

    /// Erases the content, in memory and on the drives.
    pub(in crate::storage) fn erase_content(&self) -> Result<(), StorageError> {
        let _uses = self.lock_uses(&Manifest::default())?;
        *self.content.lock() = None;
        *self.known.lock() = None;
        self.disk.integrity.set_pending(false)?;
        self.close_page_checksums()?;
        self.disk.on_each("write", 0, |device| self.erase_head(device))?;
        self.disk.flush_devices()
    }

    /// Writes zeros over the superblocks of one drive. The older slot is gone from the medium before the newer one is, and both
    /// before the commit: a power failure must not leave an older generation as the content.
    pub(in crate::storage) fn erase_head(&self, device: usize) -> Result<(), StorageError> {
        let bytes = self.disk.drives[device].lock().bytes().min(MANIFEST_BYTES as u64) as usize;
        let newest = self.head(device).ok().and_then(|head| Some(head.whole().first()?.0)).unwrap_or(0);
        let (block, shift) = (self.disk.block_bytes(), self.disk.block_shift());
        for at in [SLOTS[1 - newest], SLOTS[newest]].into_iter().filter(|at| at + block <= bytes) {
            // A slot without its first block is absent, and not damaged.
            self.disk.with_queue(device, |q, ns| q.write(ns, (at >> shift) as u64, &vec![0; block]))?;
            self.disk.with_queue(device, |q, ns| q.flush(ns))?;
        }
        self.disk.with_queue(device, |q, ns| q.write(ns, 0, &vec![0; bytes]))
    }

    /// Arranges that a mark of this generation precedes the next write to the volume.
    pub(in crate::storage) fn arm(&self, block: &Superblock) -> Result<(), StorageError> {
        let pending = needs_mark(block);
        let bytes = mark(block.uuid, block.generation, self.disk.block_bytes());
        let at = (MARK_AT >> self.disk.block_shift()) as u64;
        let stripe = &self.disk.stripe;
        // The mark's place on the first drive, as a block of the volume.
        let row = if stripe.devices == 1 || stripe.replicated { 0 } else { at / stripe.chunk };
        let block = at + row * stripe.chunk * (stripe.devices - 1);
        if let Err(error) = self.disk.arm(&bytes, block, pending) {
            // The content is correct. Without the mark, only arrays that a killed program was changing look damaged.
            tracing::warn!(volume = self.disk.name(), %error, "stored arrays are not marked as changing; if a program is killed while it changes them, they look damaged");
            self.disk.integrity.set_pending(false)?;
        }
        Ok(())
    }

    /// Writes the mark of this generation, and flushes.
    pub(in crate::storage) fn write_mark(&self, block: &Superblock) -> Result<(), StorageError> {
        let bytes = mark(block.uuid, block.generation, self.disk.block_bytes());
        let lba = (MARK_AT >> self.disk.block_shift()) as u64;
        self.disk.on_each("write", lba, |device| self.disk.with_queue(device, |q, ns| q.write(ns, lba, &bytes)))?;
        self.disk.flush_devices()
    }

    /// Records that the host is about to write to blocks, and writes the mark if it is pending.
    pub(in crate::storage) fn announce(&self, first: u64, blocks: u64) -> Result<(), StorageError> {
        if blocks == 0 {
            return Ok(());
        }
        self.disk.integrity.touch(first, first + blocks - 1);
        self.disk.page_checksums.forget(first, blocks)?;
        if self.disk.integrity.is_pending()? {
            let known = self.content.lock();
            if let Some(content) = known.as_ref() {
                self.write_mark(&content.block)?;
                self.disk.integrity.set_pending(false)?;
            }
        }
        Ok(())
    }
}
