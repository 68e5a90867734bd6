//! Memory in which kernels record the blocks that they wrote, and the blocks that a copy could not read
//! (`wb_integrity`).

use crate::engine::abi;
use crate::memory::{MemoryError, Place, Region, Space};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits that cover the volume.
const UNITS: u64 = abi::CHANGED_WORDS as u64 * 64;

/// A `wb_integrity` in memory near the kernels.
#[derive(Debug)]
pub(in crate::storage) struct Integrity {
    region: Region,
    unit_shift: u32,
    /// Units that the host has written to, a bit for each.
    own: [AtomicU64; abi::CHANGED_WORDS],
}

impl Integrity {
    /// Allocates the memory for a volume of `blocks` blocks over `devices` devices.
    pub(in crate::storage) fn new(space: &Space, blocks: u64, devices: usize) -> Result<Self, MemoryError> {
        let region = space.allocate(Place::Device, size_of::<abi::Integrity>())?;
        let unit_shift = blocks.div_ceil(UNITS).max(1).next_power_of_two().ilog2();
        let mut first: abi::Integrity = bytemuck::Zeroable::zeroed();
        first.unit_shift = unit_shift;
        first.copies = u32::MAX >> (u32::BITS as usize - devices);
        region.set(0, first)?;
        Ok(Self { region, unit_shift, own: std::array::from_fn(|_| AtomicU64::new(0)) })
    }

    /// Records that the host writes to blocks `first` to `last`, inclusive.
    pub(in crate::storage) fn touch(&self, first: u64, last: u64) {
        for unit in first >> self.unit_shift..=last >> self.unit_shift {
            self.own[(unit / 64) as usize].fetch_or(1 << (unit % 64), Ordering::Relaxed);
        }
    }

    /// Returns the units that kernels or the host have written to, a bit for each.
    pub(in crate::storage) fn changed(&self) -> Result<Vec<u64>, MemoryError> {
        let mut all = self.region.get_slice::<u64>(offset_of!(abi::Integrity, changed), abi::CHANGED_WORDS)?;
        all.iter_mut().zip(&self.own).for_each(|(word, own)| *word |= own.load(Ordering::Relaxed));
        Ok(all)
    }

    /// Returns true if a block from `first` to `last`, inclusive, is in a unit that was written to.
    pub(in crate::storage) fn is_touched(&self, changed: &[u64], first: u64, last: u64) -> bool {
        let is_set = |unit: u64| changed[(unit / 64) as usize] >> (unit % 64) & 1 != 0;
        (first >> self.unit_shift..=last >> self.unit_shift).any(is_set)
    }

    /// Clears the record of written units. Call it only while no kernel runs.
    pub(in crate::storage) fn clear_changed(&self) -> Result<(), MemoryError> {
        self.own.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.region.fill(offset_of!(abi::Integrity, changed), abi::CHANGED_WORDS * size_of::<u64>(), 0)
    }

    /// Returns true if a mark must be written before the next write.
    pub(in crate::storage) fn is_pending(&self) -> Result<bool, MemoryError> {
        Ok(self.region.get::<u32>(offset_of!(abi::Integrity, mark_pending))? != 0)
    }

    pub(in crate::storage) fn set_pending(&self, pending: bool) -> Result<(), MemoryError> {
        self.region.set(offset_of!(abi::Integrity, mark_pending), u32::from(pending))
    }

    /// Sets the address of the mark's bytes, and the block to which kernels write the mark.
    pub(in crate::storage) fn set_mark(&self, buffer: u64, block: u64) -> Result<(), MemoryError> {
        self.region.set(offset_of!(abi::Integrity, mark_buffer), buffer)?;
        self.region.set(offset_of!(abi::Integrity, mark_block), block)
    }

    /// Sets the address and the number of entries of the table of page checksums.
    pub(in crate::storage) fn set_checksums(&self, address: u64, count: u64) -> Result<(), MemoryError> {
        // Kernels read the number first, so it is 0 while the address changes.
        self.region.set(offset_of!(abi::Integrity, checksum_count), 0u64)?;
        self.region.set(offset_of!(abi::Integrity, checksum), address)?;
        self.region.set(offset_of!(abi::Integrity, checksum_count), count)
    }

    pub(in crate::storage) fn address(&self) -> u64 {
        self.region.address()
    }

    /// Adds a device to those in use, or removes it. Kernels remove a device by one atomic operation, so call this only
    /// while no kernel runs.
    pub(in crate::storage) fn set_copy(&self, device: usize, used: bool) -> Result<(), MemoryError> {
        let at = offset_of!(abi::Integrity, copies);
        let others = self.region.get::<u32>(at)? & !(1 << device);
        self.region.set(at, others | u32::from(used) << device)
    }

    /// Returns the number of reads that kernels entered for repair, and the entries that fit into the list.
    pub(in crate::storage) fn repairs(&self) -> Result<(u32, Vec<abi::Repair>), MemoryError> {
        let count: u32 = self.region.get(offset_of!(abi::Integrity, repair_count))?;
        let held = (count as usize).min(abi::REPAIRS);
        Ok((count, self.region.get_slice(offset_of!(abi::Integrity, repair), held)?))
    }

    /// Empties the list of repairs. Call it only while no kernel runs.
    pub(in crate::storage) fn clear_repairs(&self) -> Result<(), MemoryError> {
        self.region.set(offset_of!(abi::Integrity, repair_count), 0u32)
    }
}
