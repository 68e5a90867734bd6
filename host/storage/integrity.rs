//! The memory in which kernels say which blocks they have written to, and which ones a copy failed to give (`wb_integrity`).

use crate::engine::abi;
use crate::memory::{MemoryError, Place, Region, Space};
use std::mem::offset_of;

/// Bits that stand for the volume.
const UNITS: u64 = abi::CHANGED_WORDS as u64 * 64;

/// A `wb_integrity` in memory near the kernels.
#[derive(Debug)]
pub(super) struct Integrity {
    region: Region,
    unit_shift: u32,
}

impl Integrity {
    /// Allocates the memory for a volume of `blocks` blocks over `devices` devices.
    pub(super) fn new(space: &Space, blocks: u64, devices: usize) -> Result<Self, MemoryError> {
        let region = space.allocate(Place::Device, size_of::<abi::Integrity>())?;
        let unit_shift = blocks.div_ceil(UNITS).max(1).next_power_of_two().ilog2();
        let mut first: abi::Integrity = bytemuck::Zeroable::zeroed();
        first.unit_shift = unit_shift;
        first.copies = u32::MAX >> (u32::BITS as usize - devices);
        region.set(0, first)?;
        Ok(Self { region, unit_shift })
    }

    pub(super) fn address(&self) -> u64 {
        self.region.address()
    }

    /// Takes a device out of those in use. Kernels do the same with one atomic operation, so this is for when none runs.
    pub(super) fn drop_copy(&self, device: usize) -> Result<(), MemoryError> {
        let at = offset_of!(abi::Integrity, copies);
        self.region.set(at, self.region.get::<u32>(at)? & !(1 << device))
    }

    /// Takes a device in again. For when no kernel runs.
    pub(super) fn add_copy(&self, device: usize) -> Result<(), MemoryError> {
        let at = offset_of!(abi::Integrity, copies);
        self.region.set(at, self.region.get::<u32>(at)? | 1 << device)
    }

    /// Returns the number of blocks lists that kernels entered, and those that there was room for.
    pub(super) fn repairs(&self) -> Result<(u32, Vec<abi::Repair>), MemoryError> {
        let count: u32 = self.region.get(offset_of!(abi::Integrity, repair_count))?;
        let held = (count as usize).min(abi::REPAIRS);
        Ok((count, self.region.get_slice(offset_of!(abi::Integrity, repair), held)?))
    }

    /// Empties that list. For when no kernel runs.
    pub(super) fn clear_repairs(&self) -> Result<(), MemoryError> {
        self.region.set(offset_of!(abi::Integrity, repair_count), 0u32)
    }
}
