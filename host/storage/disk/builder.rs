//! Construction of a disk: queues on each drive, the data path, and the structures that kernels read.

use super::Disk;
use super::choose::{self, DataPath};
use super::drive::Drive;
use super::host_side::HostSide;
use super::integrity::Integrity;
use super::mirrors::{Mirrors, Watch};
use super::options::DiskOptions;
use super::path::{Doorbell, DoorbellChoice, LandingPath, Path, QueueMemory, WriteCaches};
use super::region_table::RegisteredRegions;
use super::stats::{self, Counters};
use super::stripe::Stripe;
use super::unit_checksums::UnitChecksums;
use crate::engine::abi;
use crate::memory::Place;
use crate::nvme::{Landing, MappingReport, NvmeError, QueueOptions, QueueSet};
use crate::storage::error::StorageError;
use parking_lot::Mutex;
use std::sync::Arc;

/// One NVMe command counts at most 65,536 blocks (NVM Command Set 1.1, 3.2.4, NLB).
const MAX_COMMAND_BLOCKS: usize = 1 << 16;

/// Blocks of a disk, and their places on its drives.
#[derive(Clone, Copy)]
struct Extent {
    stripe: Stripe,
    block_shift: u32,
    blocks: u64,
}

/// Queues on each drive of a disk.
struct Queues {
    host: HostSide,
    sets: Vec<QueueSet>,
}

impl DiskOptions {
    /// Creates the queues, and returns the disk.
    pub(in crate::storage) fn build(self) -> Result<Disk, StorageError> {
        let extent = self.extent()?;
        let mut notes = Vec::new();
        let doorbell = self.choose_doorbell()?;
        let data_path = self.choose_data_path(&mut notes)?;
        let bounce = self.transfer.unwrap_or_else(|| self.default_transfer()).max(1 << extent.block_shift);
        self.check_transfer(bounce)?;
        let queues = self.create_queues(data_path, doorbell, bounce, &mut notes)?;
        let path = self.describe(data_path, &queues.sets, notes)?;
        self.assemble(extent, queues, path)
    }

    /// Returns the blocks that the drives have together.
    fn extent(&self) -> Result<Extent, StorageError> {
        let block_shift = self.check_members()?;
        let block = 1u64 << block_shift;
        let chunk = self.chunk >> block_shift;
        if self.drives.len() > 1 && (chunk == 0 || !self.chunk.is_multiple_of(block) || chunk > u64::from(u32::MAX)) {
            let reason = format!("a stripe unit of {} bytes is not whole blocks of {block}", self.chunk);
            return Err(StorageError::Option(reason));
        }
        let devices = self.drives.len() as u64;
        let replicated = self.replicated && devices > 1;
        let stripe = Stripe { devices, chunk: chunk.clamp(1, u32::MAX.into()), replicated };
        let blocks = stripe.capacity(self.drives.iter().map(|d| d.namespace().blocks()));
        if blocks == 0 {
            return Err(StorageError::Members {
                reason: format!("{} is smaller than one stripe unit of {} bytes", self.name(), self.chunk),
            });
        }
        Ok(Extent { stripe, block_shift, blocks })
    }

    /// Creates the queues of the host and of kernels on each drive. `bounce` is the size of a slot's buffer in bytes.
    fn create_queues(
        &self,
        data_path: DataPath,
        doorbell: DoorbellChoice,
        bounce: usize,
        notes: &mut Vec<String>,
    ) -> Result<Queues, StorageError> {
        let landing = data_path.landing;
        let (count, depth) = self.choose_queues(landing, bounce as u64);
        let options = QueueOptions {
            count,
            depth,
            memory: data_path.completions,
            submission_in_buffer: data_path.queues == QueueMemory::Cmb,
            doorbell,
            capsules: true,
            landing: match landing {
                LandingPath::Direct => Landing::Direct,
                LandingPath::Bounce => Landing::Bounce { bytes_per_slot: bounce },
            },
            first_ticket: 0,
        };
        let host = HostSide::new(&self.drives, count, self.host_command_bytes, self.retry_budget.clone())?;
        let mut sets = Vec::with_capacity(self.drives.len());
        for (index, drive) in self.drives.iter().enumerate() {
            let capsules = host.has_queue(index);
            if !capsules && drive.controller().port().capsules().is_some() {
                notes.push(format!(
                    "host threads carry the commands to {}: kernels have all its queue pairs, and the host borrows one between runs; \
                     use one queue pair fewer for kernels that post the commands themselves",
                    drive.name()
                ));
            }
            let set = drive.controller().create_queues(self.engine.space(), options.clone().capsules(capsules));
            sets.push(set.map_err(|e| self.explain(e, data_path.queues))?);
        }
        Ok(Queues { host, sets })
    }

    /// Describes the data path that the queues have, with notes on the paths that were not taken.
    fn describe(&self, data_path: DataPath, sets: &[QueueSet], mut notes: Vec<String>) -> Result<Path, StorageError> {
        // One queue set whose kernels do not write the doorbells makes the whole volume depend on a host thread.
        let forwarded = sets.iter().map(QueueSet::doorbell).find(|d| *d == Doorbell::Cpu);
        let doorbell = forwarded.unwrap_or_else(|| sets[0].doorbell());
        notes.extend(sets.iter().filter_map(|s| s.doorbell_note().map(|n| format!("doorbell cpu: {n}"))));
        if self.doorbell == DoorbellChoice::Cpu {
            notes.push("doorbell cpu: it was requested".to_owned());
        }
        let by_capsules = self.drives.iter().zip(sets).filter(|(_, set)| set.by_capsules());
        let carriers = by_capsules.filter_map(|(d, _)| d.controller().port().capsules().map(|c| c.path()));
        notes.extend(carriers.map(|path| format!("capsules by {path}")));
        let mapping: Vec<MappingReport> = self.drives.iter().map(|d| d.controller().mapping()).collect();
        let mapping = if mapping.iter().all(|m| m.attempts.is_empty()) { Vec::new() } else { mapping };
        notes.extend(mapping.iter().flat_map(|m| &m.attempts).map(|a| format!("mapping {a}")));
        let gpu = self.engine.space().gpu_context().map(|c| c.info().writes_ordering);
        let unordered =
            || self.no_path("landing direct", "this GPU does not guarantee that data arrives before its completion");
        let order = choose::order(gpu, data_path.completions).ok_or_else(unordered)?;
        notes.dedup();
        let write_cache =
            WriteCaches::of(self.drives.iter().map(|d| d.controller().write_cache()).collect::<Result<Vec<_>, _>>()?);
        let mut models: Vec<String> = self.drives.iter().filter_map(|d| d.model().map(str::to_owned)).collect();
        models.sort();
        models.dedup();
        Ok(Path {
            device: self.name(),
            models,
            queues: data_path.queues,
            landing: data_path.landing,
            doorbell,
            engine: self.engine.kind(),
            order,
            mapping,
            write_cache,
            notes,
        })
    }

    /// Returns the `wb_device` of each drive, and the number of blocks that a command to any of them can move.
    fn devices(&self, extent: Extent, sets: &[QueueSet]) -> (Vec<abi::Device>, usize) {
        let blocks_of = |s: &QueueSet| (s.max_transfer_bytes() >> extent.block_shift).min(MAX_COMMAND_BLOCKS);
        let least = sets.iter().map(blocks_of).min().unwrap_or(0);
        // A write to all copies is one command of the same size on each, so the least limit applies to all.
        let most = |s: &QueueSet| if extent.stripe.replicated { least } else { blocks_of(s) };
        let device = |(drive, set): (&Drive, &QueueSet)| abi::Device {
            queues: set.address(),
            blocks: drive.namespace().blocks(),
            queue_count: set.count(),
            nsid: drive.namespace().id(),
            max_blocks: most(set) as u32,
            ..bytemuck::Zeroable::zeroed()
        };
        (self.drives.iter().zip(sets).map(device).collect(), least)
    }

    /// Allocates what kernels and devices share, and starts the watch of the copies.
    fn assemble(self, extent: Extent, queues: Queues, path: Path) -> Result<Disk, StorageError> {
        let Queues { host, sets } = queues;
        let Extent { stripe, block_shift, blocks } = extent;
        let (devices, least) = self.devices(extent, &sets);
        let (queues, depth) = (sets[0].count(), sets[0].depth());
        let space = self.engine.space();
        let shared = space.allocate(Place::Device, size_of::<abi::Volume>())?;
        let counters = Arc::new(Counters::new(space)?);
        let words = sets.iter().zip(&self.drives).map(|(s, d)| (d.name().to_owned(), s.counting_words())).collect();
        let mut disk = Disk {
            _metrics: stats::register(&path.device, counters.clone(), words),
            shared,
            watch: None,
            mirrors: Mirrors::default(),
            integrity: Integrity::new(space, blocks, self.drives.len())?,
            mark: Mutex::new(None),
            page_checksums: UnitChecksums::new(block_shift),
            registered_regions: RegisteredRegions::default(),
            counters,
            host,
            sets: sets.into_iter().map(Mutex::new).collect(),
            names: self.drives.iter().map(|d| d.name().to_owned()).collect(),
            drives: self.drives.into_iter().map(Mutex::new).collect(),
            engine: self.engine,
            stripe,
            block_shift,
            blocks,
            max_transfer: least << block_shift,
            queues,
            depth,
            path,
        };
        disk.publish(&devices)?;
        if stripe.replicated {
            let controllers = disk.drives.iter().map(|d| d.lock().controller().clone()).collect();
            disk.watch = Some(Watch::start(&disk.shared, controllers)?);
        }
        Ok(disk)
    }

    /// Turns the error for refused queue memory into one about the data path that was chosen.
    fn explain(&self, e: NvmeError, place: QueueMemory) -> StorageError {
        match (e, place) {
            (NvmeError::Dma(e), QueueMemory::Gpu) => self.no_path("queues gpu", e.to_string()),
            (NvmeError::NoMemoryBuffer { reason, .. }, _) => self.no_path("queues cmb", reason),
            (NvmeError::NoKernelDoorbell { reason, .. }, _) => self.no_path("doorbell gpu", reason),
            (e, _) => e.into(),
        }
    }
}
