//! Disk: the drives of a volume as one block address space. Knows blocks, stripes and copies; knows no arrays.

mod blocks;
mod builder;
mod choose;
mod drive;
mod host_commands;
mod host_io;
mod host_side;
mod integrity;
mod membership;
mod mirror_io;
mod mirrors;
#[cfg(test)]
mod mirrors_tests;
mod options;
mod path;
mod recover;
mod region_table;
mod registered_region;
mod repair;
mod stats;
mod stripe;
mod unit_checksums;

pub use drive::{Drive, DriveSpec, OpenController, OverwritePolicy};
pub(in crate::storage) use host_io::in_parallel;
pub(in crate::storage) use membership::Receiving;
pub use mirrors::{LostCopy, Redundancy};
#[cfg(test)]
pub(in crate::storage) use options::CPU_DEPTH;
pub use options::DEFAULT_CHUNK;
pub(in crate::storage) use options::DiskOptions;
pub use path::{
    Doorbell, DoorbellChoice, LandingChoice, LandingPath, Path, QueueMemory, QueueMemoryChoice, WriteCaches,
    WritesOrder,
};
pub use registered_region::{DataBuffer, RegisteredRegion};
pub use stats::Stats;
pub(in crate::storage) use stats::counters;
pub(in crate::storage) use stripe::Stripe;
pub(in crate::storage) use unit_checksums::{UNIT, entry_of};

use crate::engine::{Engine, abi};
use crate::memory::Region;
use crate::metrics::Registration;
use crate::nvme::QueueSet;
use crate::storage::error::StorageError;
use host_side::HostSide;
use integrity::Integrity;
use mirrors::{Mirrors, Watch};
use parking_lot::Mutex;
use region_table::RegisteredRegions;
use stats::Counters;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use unit_checksums::UnitChecksums;

/// Drives with queues to which kernels submit commands, and all memory that kernels or devices reach by them. Fields are
/// dropped in order: users of the devices first, then the devices.
pub(in crate::storage) struct Disk {
    /// Counters for monitoring. Dropped first, so that nothing reads them while the devices are closed.
    _metrics: Registration,
    pub(in crate::storage) engine: Engine,
    /// `wb_volume`, which kernels read.
    pub(in crate::storage) shared: Region,
    /// Thread that watches the copies of a replicated volume. Dropped before the memory that it writes to.
    watch: Option<Watch>,
    pub(in crate::storage) mirrors: Mirrors,
    pub(in crate::storage) integrity: Integrity,
    /// Memory of the mark that kernels write, and its first byte there.
    mark: Mutex<Option<(Region, usize)>>,
    pub(in crate::storage) page_checksums: UnitChecksums,
    registered_regions: RegisteredRegions,
    pub(in crate::storage) counters: Arc<Counters>,
    host: HostSide,
    pub(in crate::storage) sets: Vec<Mutex<QueueSet>>,
    pub(in crate::storage) drives: Vec<Mutex<Drive>>,
    pub(in crate::storage) names: Vec<String>,
    pub(in crate::storage) stripe: Stripe,
    pub(in crate::storage) block_shift: u32,
    pub(in crate::storage) blocks: u64,
    pub(in crate::storage) max_transfer: usize,
    pub(in crate::storage) queues: u32,
    pub(in crate::storage) depth: u32,
    pub(in crate::storage) path: Path,
}

impl Disk {
    /// Returns the devices as they were named, `a + b` for several.
    pub(in crate::storage) fn name(&self) -> &str {
        &self.path.device
    }

    pub(in crate::storage) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the number of logical blocks.
    pub(in crate::storage) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns log2 of the logical block size.
    pub(in crate::storage) fn block_shift(&self) -> u32 {
        self.block_shift
    }

    pub(in crate::storage) fn block_bytes(&self) -> usize {
        1 << self.block_shift
    }

    /// Returns the size in bytes.
    pub(in crate::storage) fn bytes(&self) -> u64 {
        self.blocks << self.block_shift
    }

    /// Returns true if every device holds every block.
    pub(in crate::storage) fn is_replicated(&self) -> bool {
        self.stripe.replicated
    }

    /// Returns true if all blocks are memory of this process.
    pub(in crate::storage) fn is_in_memory(&self) -> bool {
        self.drives.iter().all(|d| d.lock().is_in_memory())
    }

    /// Returns the bytes of this process's memory that `bytes` bytes of the disk occupy.
    #[cfg(feature = "internals")]
    pub(in crate::storage) fn memory_bytes(&self, bytes: u64) -> u64 {
        let in_memory = self.drives.iter().filter(|d| d.lock().is_in_memory()).count() as u64;
        let each = if self.is_replicated() { bytes } else { bytes.div_ceil(self.stripe.devices) };
        each.saturating_mul(in_memory)
    }

    /// Checks the state of all devices.
    pub(in crate::storage) fn check(&self) -> Result<(), StorageError> {
        self.sets.iter().try_for_each(|set| Ok(set.lock().check()?))
    }

    /// Sets the deadline of one wait inside a kernel, and of one command of the host, for the whole engine.
    pub(in crate::storage) fn set_deadline(&self, deadline: Duration) -> Result<(), StorageError> {
        self.engine.set_deadline(deadline)?;
        self.drives.iter().for_each(|drive| drive.lock().controller().give_commands(deadline));
        Ok(())
    }

    /// Gives files that were made for this disk their names.
    pub(in crate::storage) fn keep(&self) -> Result<(), StorageError> {
        self.drives.iter().try_for_each(|d| d.lock().keep())
    }

    /// Writes the constant part of `wb_volume`.
    pub(in crate::storage) fn publish(&self, devices: &[abi::Device]) -> Result<(), StorageError> {
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

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({}, {} blocks of {} bytes)", self.path, self.blocks, self.block_bytes())
    }
}
