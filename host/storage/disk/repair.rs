//! Redundancy of the copies, and repair of blocks that one copy could not read.

use super::Disk;
use super::mirrors::{LostCopy, Redundancy, device_at};
use super::stripe::Piece;
use super::unit_checksums::UNIT;
use crate::engine::abi;
use crate::storage::error::StorageError;
use parking_lot::RwLockWriteGuard;
use std::mem::offset_of;

impl Disk {
    /// Returns the redundancy of the volume: the copies that are left out, and the number of reads that another copy
    /// completed.
    pub(in crate::storage) fn redundancy(&self) -> Result<Redundancy, StorageError> {
        if !self.is_replicated() {
            return Ok(Redundancy { copies: 1, ..Redundancy::default() });
        }
        let used = self.in_use()?;
        let reasons = self.mirrors.reasons.lock().clone();
        let mut lost = Vec::new();
        for device in (0..self.drives.len()).filter(|d| !used.contains(d)) {
            let gone = self.shared.get::<u32>(device_at(device) + offset_of!(abi::Device, gone))? != 0;
            let known = reasons.get(device).cloned().flatten();
            let reason = match known {
                Some(reason) => reason,
                None if gone => "it has left the bus".to_owned(),
                None => {
                    "it did not complete a command within the deadline, or failed a write that another copy completed"
                        .to_owned()
                }
            };
            lost.push(LostCopy { device, name: self.names[device].clone(), reason });
        }
        let stats = self.counters.read()?;
        let pending = u64::from(self.integrity.repairs()?.0) + self.mirrors.pending.lock().len() as u64;
        Ok(Redundancy {
            copies: self.drives.len(),
            lost,
            redirected_reads: stats.redirects,
            repaired_blocks: stats.repairs,
            pending_repairs: pending,
        })
    }

    /// Writes blocks that one copy could not read, and another copy could, back to the first copy. A copy that fails
    /// this write is left out. Does nothing while kernels run, since it could undo their writes.
    pub(in crate::storage) fn repair(&self) -> Result<(), StorageError> {
        if !self.is_replicated() || !self.engine.is_idle() {
            return Ok(());
        }
        let _alone = self.without_writes();
        let (_, entered) = self.integrity.repairs()?;
        let mut pending = std::mem::take(&mut *self.mirrors.pending.lock());
        pending.extend(entered.iter().map(|r| (r.device as usize, r.lba, u64::from(r.blocks))));
        self.integrity.clear_repairs()?;
        let used = self.in_use()?;
        for (device, lba, blocks) in pending {
            let range = lba.checked_add(blocks).is_some_and(|end| end <= self.blocks);
            if !used.contains(&device) || !range {
                continue;
            }
            if self.repair_blocks(device, lba, blocks)? {
                self.counters.repaired(blocks);
            }
        }
        Ok(())
    }

    /// Writes blocks of another copy to one copy, unless they can be read there meanwhile, or the other copy is damaged
    /// too. Returns true if they were written.
    fn repair_blocks(&self, device: usize, lba: u64, blocks: u64) -> Result<bool, StorageError> {
        // Page checksums cover whole units.
        let unit = (UNIT as u64 >> self.block_shift).max(1);
        let (lba, end) = (lba / unit * unit, (lba + blocks).next_multiple_of(unit).min(self.blocks));
        let (offset, blocks) = (lba << self.block_shift, end - lba);
        let mut data = vec![0; (blocks << self.block_shift) as usize];
        let mut own = data.clone();
        let from = Piece { device: (device + 1) % self.drives.len(), lba, at: 0, blocks };
        self.read_copy(&from, &mut data)?;
        if !self.page_checksums.wrong_units(offset, &data)?.is_empty() {
            tracing::warn!(volume = self.name(), block = lba, blocks, "not repaired: the other copy is damaged too");
            return Ok(false);
        }
        let is_read = self.with_queue(device, |q, ns| q.read(ns, lba, &mut own)).is_ok();
        if is_read && self.page_checksums.wrong_units(offset, &own)?.is_empty() {
            if own != data {
                tracing::warn!(
                    device = self.names[device],
                    block = lba,
                    blocks,
                    "not repaired: the copies differ, and nothing tells which is right; verify the volume"
                );
            }
            return Ok(false);
        }
        self.write_back(device, lba, &data)
    }

    /// Blocks writes of the host to copies until the guard is dropped.
    pub(in crate::storage) fn without_writes(&self) -> RwLockWriteGuard<'_, ()> {
        self.mirrors.writes.write()
    }
}
