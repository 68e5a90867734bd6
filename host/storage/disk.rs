//! Disk: the drives of a volume as one block address space. Knows blocks, stripes and copies; knows no arrays.

use super::StorageError;
use super::copies::{Copies, Watch};
use super::drive::Drive;
use super::host_side::HostSide;
use super::integrity::Integrity;
use super::path::Path;
use super::region_table::RegisteredRegions;
use super::stats::Counters;
use super::stripe::Stripe;
use super::unit_checksums::UnitChecksums;
use crate::engine::{Engine, abi};
use crate::memory::Region;
use crate::metrics::Registration;
use crate::nvme::QueueSet;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Drives with queues to which kernels submit commands, and all memory that kernels or devices reach by them. Fields are
/// dropped in order: users of the devices first, then the devices.
pub(super) struct Disk {
    /// Counters for monitoring. Dropped first, so that nothing reads them while the devices are closed.
    pub(super) _metrics: Registration,
    pub(super) engine: Engine,
    /// `wb_volume`, which kernels read.
    pub(super) shared: Region,
    /// Thread that watches the copies of a replicated volume. Dropped before the memory that it writes to.
    pub(super) watch: Option<Watch>,
    pub(super) copies: Copies,
    pub(super) integrity: Integrity,
    /// Memory of the mark that kernels write.
    pub(super) mark: Mutex<Option<Region>>,
    pub(super) page_checksums: UnitChecksums,
    pub(super) registered_regions: RegisteredRegions,
    pub(super) counters: Arc<Counters>,
    pub(super) host: HostSide,
    pub(super) sets: Vec<Mutex<QueueSet>>,
    pub(super) drives: Vec<Mutex<Drive>>,
    pub(super) names: Vec<String>,
    pub(super) stripe: Stripe,
    pub(super) block_shift: u32,
    pub(super) blocks: u64,
    pub(super) max_transfer: usize,
    pub(super) queues: u32,
    pub(super) depth: u32,
    pub(super) path: Path,
}

impl Disk {
    /// Returns the devices as they were named, `a + b` for several.
    pub(super) fn name(&self) -> &str {
        &self.path.device
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the number of logical blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns log2 of the logical block size.
    pub(super) fn block_shift(&self) -> u32 {
        self.block_shift
    }

    pub(super) fn block_bytes(&self) -> usize {
        1 << self.block_shift
    }

    /// Returns the size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks << self.block_shift
    }

    /// Returns true if every device holds every block.
    pub(super) fn is_replicated(&self) -> bool {
        self.stripe.replicated
    }

    /// Returns true if all blocks are memory of this process.
    pub(super) fn is_in_memory(&self) -> bool {
        self.drives.iter().all(|d| d.lock().is_in_memory())
    }

    /// Returns the bytes of this process's memory that `bytes` bytes of the disk occupy.
    pub(super) fn memory_bytes(&self, bytes: u64) -> u64 {
        let in_memory = self.drives.iter().filter(|d| d.lock().is_in_memory()).count() as u64;
        let each = if self.is_replicated() { bytes } else { bytes.div_ceil(self.stripe.devices) };
        each.saturating_mul(in_memory)
    }

    /// Checks the state of all devices.
    pub(super) fn check(&self) -> Result<(), StorageError> {
        self.sets.iter().try_for_each(|set| Ok(set.lock().check()?))
    }

    /// Sets the deadline of one wait inside a kernel, and of one command of the host, for the whole engine.
    pub(super) fn set_deadline(&self, deadline: Duration) -> Result<(), StorageError> {
        self.engine.set_deadline(deadline)?;
        self.drives.iter().for_each(|drive| drive.lock().controller().give_commands(deadline));
        Ok(())
    }

    /// Gives files that were made for this disk their names.
    pub(super) fn keep(&self) -> Result<(), StorageError> {
        self.drives.iter().try_for_each(|d| d.lock().keep())
    }

    /// Writes the constant part of `wb_volume`.
    pub(super) fn publish(&self, devices: &[abi::Device]) -> Result<(), StorageError> {
        let mut v: abi::Volume = bytemuck::Zeroable::zeroed();
        v.control = self.engine.control_address();
        v.stats = self.counters.address();
        v.blocks = self.blocks;
        v.block_shift = self.block_shift;
        v.device_count = devices.len() as u32;
        v.chunk_blocks = self.stripe.chunk as u32;
        v.replicated = self.stripe.replicated.into();
        v.integrity = self.integrity.address();
        v.memory_page_shift = self.sets[0].lock().memory_page_shift();
        v.device[..devices.len()].copy_from_slice(devices);
        Ok(self.shared.set(0, v)?)
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Disk({}, {} blocks of {} bytes)", self.path, self.blocks, self.block_bytes())
    }
}
