//! Options of a volume and its construction: data path, number of queues, and the notes on paths that were not taken.

use super::choose::{self, DataPath};
use super::contents::Contents;
use super::copies::{Copies, Watch};
use super::disk::Disk;
use super::drive::Drive;
use super::error::size;
use super::host_io::HostSide;
use super::integrity::Integrity;
use super::path::{
    Doorbell, DoorbellChoice, LandingChoice, LandingPath, Path, QueueMemory, QueueMemoryChoice, WriteCaches,
};
use super::stats::{self, Counters};
use super::stripe::Stripe;
use super::unit_checksums::UnitChecksums;
use super::volume::Volume;
use super::{RegisteredRegions, StorageError};
use crate::engine::{Engine, EngineKind, abi};
use crate::memory::Place;
use crate::memory::mapping::BackendChoice;
use crate::nvme::{HostQueueOptions, Landing, MappingReport, NvmeError, QueueOptions, QueueSet, RetryBudget};
use crate::remedy::Remedy;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Default stripe unit in bytes: large enough for one command, small enough to spread a sequential read.
pub const DEFAULT_CHUNK: u64 = 128 << 10;
/// Default size in bytes of a command with bounce buffers: a page of most caches.
const DEFAULT_BOUNCE: usize = 4096;
/// Default number of queue pairs on each device for a GPU. On the CPU engine each thread gets a pair.
const GPU_QUEUES: u32 = 32;
/// Default number of entries of each queue.
const GPU_DEPTH: u32 = 1024;
const CPU_DEPTH: u32 = 128;
/// Limit for the bounce buffers of one device, in bytes, where the builder chooses the depth.
const BOUNCE_BUDGET: u64 = 256 << 20;
const LEAST_DEPTH: u32 = 16;
/// One NVMe command counts at most 65,536 blocks (NVM Command Set 1.1, 3.2.4, NLB).
const MAX_COMMAND_BLOCKS: usize = 1 << 16;

/// Options of a new volume. [`Volume::on`] makes a builder.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Drive, OverwritePolicy, Volume};
///
/// let engine = Engine::cpu()?;
/// let drive = || Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none());
/// // Two devices that hold the same data, each with one queue pair of 64 entries.
/// let volume = Volume::on(&engine, [drive()?, drive()?]).replicated(true).queues(1).depth(64).build()?;
/// assert!(volume.is_replicated());
/// assert_eq!((volume.devices(), volume.queues(), volume.depth()), (2, 1, 64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before build"]
pub struct VolumeBuilder {
    pub(super) engine: Engine,
    pub(super) drives: Vec<Drive>,
    queues: Option<u32>,
    depth: Option<u32>,
    chunk: u64,
    replicated: bool,
    page_checksums: Option<bool>,
    transfer: Option<usize>,
    pub(super) landing: LandingChoice,
    pub(super) queue_memory: QueueMemoryChoice,
    doorbell: DoorbellChoice,
    pub(super) mapping: BackendChoice,
    deadline: Option<Duration>,
    retry_budget: RetryBudget,
    host_command_bytes: usize,
}

impl Volume {
    /// Begins a volume on these drives. Several drives are striped, unless [`VolumeBuilder::replicated`] is set.
    pub fn on(engine: &Engine, drives: impl IntoIterator<Item = Drive>) -> VolumeBuilder {
        VolumeBuilder {
            engine: engine.clone(),
            drives: drives.into_iter().collect(),
            queues: None,
            depth: None,
            chunk: DEFAULT_CHUNK,
            replicated: false,
            page_checksums: None,
            transfer: None,
            landing: LandingChoice::Auto,
            queue_memory: QueueMemoryChoice::Auto,
            doorbell: DoorbellChoice::Auto,
            mapping: BackendChoice::Auto,
            deadline: None,
            retry_budget: RetryBudget::new(),
            host_command_bytes: HostQueueOptions::default().bytes_per_command,
        }
    }
}

impl VolumeBuilder {
    /// Sets the largest command of the host, in bytes.
    #[cfg(test)]
    pub(super) fn host_command_bytes(mut self, bytes: usize) -> Self {
        self.host_command_bytes = bytes;
        self
    }

    /// Sets the number of queue pairs on each device. The default suits engine and controller.
    pub fn queues(mut self, count: u32) -> Self {
        self.queues = Some(count);
        self
    }

    /// Sets the number of entries of each queue: a power of two, 2 or more.
    pub fn depth(mut self, entries: u32) -> Self {
        self.depth = Some(entries);
        self
    }

    /// Sets the stripe unit in bytes, for several devices: a multiple of the block size. It should be a multiple of the
    /// caches' page size.
    pub fn chunk(mut self, bytes: u64) -> Self {
        self.chunk = bytes;
        self
    }

    /// Makes every drive hold every block. Reads are spread over the drives chunk by chunk; writes go to all drives.
    /// Has no effect with one drive.
    ///
    /// A block that one drive cannot read is read from another one and written back ([`Volume::repair`]). The volume
    /// leaves a drive out that does not respond, or that fails a write which another drive completes
    /// ([`Volume::redundancy`]).
    pub fn replicated(mut self, replicated: bool) -> Self {
        self.replicated = replicated;
        self
    }

    /// Stores arrays with a checksum for each 4096 bytes (`true`), or ignores stored page checksums (`false`). By
    /// default arrays are stored as those before them were, and stored checksums are used.
    ///
    /// Kernels compare each page that they read into a cache with its checksums. If they differ, the kernel reads the
    /// page once more, and from the other copies of a replicated volume. If no read gives the right data, the run fails
    /// with [`Outcome::Damaged`](crate::engine::Outcome::Damaged).
    ///
    /// Data written through a cache gets new checksums. Data that kernels write in another way has none until
    /// [`Volume::accept_changes`]. Reads of the host, and reads of kernels around the cache, are not compared
    /// ([`Volume::verify`]). Checksums take a thousandth of the arrays' size, on the medium and in memory near the
    /// kernels. They need cache pages of at least 4096 bytes.
    pub fn page_checksums(mut self, wanted: bool) -> Self {
        self.page_checksums = Some(wanted);
        self
    }

    /// Sets the number of bytes that one command must be able to move. With bounce landing every queue slot gets a
    /// buffer of this size.
    pub fn transfer(mut self, bytes: usize) -> Self {
        self.transfer = Some(bytes);
        self
    }

    /// Chooses the memory to which devices write data.
    pub fn landing(mut self, choice: LandingChoice) -> Self {
        self.landing = choice;
        self
    }

    /// Chooses the memory that holds the queues.
    pub fn queue_memory(mut self, choice: QueueMemoryChoice) -> Self {
        self.queue_memory = choice;
        self
    }

    /// Chooses the part that writes the doorbells.
    pub fn doorbell(mut self, choice: DoorbellChoice) -> Self {
        self.doorbell = choice;
        self
    }

    /// Chooses the mapping backend by which devices get addresses for GPU memory. Anything but `auto` needs kernels on
    /// a GPU.
    pub fn mapping(mut self, choice: BackendChoice) -> Self {
        self.mapping = choice;
        self
    }

    /// Sets the deadline of one wait inside a kernel, and of one command of the host. Applies to the whole engine. The
    /// default is the engine's deadline.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Shares a budget of time for the host's commands without completion. By default each volume has a budget of its
    /// own. Volumes that one operation of a program opens may share one, so that their waits do not add up.
    pub fn retry_budget(mut self, budget: &RetryBudget) -> Self {
        self.retry_budget = budget.clone();
        self
    }

    /// Creates the queues, and returns the volume.
    ///
    /// # Errors
    /// * [`StorageError::Members`] if there are no drives, more than a volume takes, drives of different block sizes,
    ///   or drives smaller than a stripe unit.
    /// * [`StorageError::Option`] if the stripe unit is not a multiple of the block size, or a command exceeds a
    ///   controller's limit (MDTS).
    /// * [`StorageError::NoPath`] if a chosen landing, queue memory, doorbell or mapping backend is not available.
    /// * [`StorageError::Nvme`] if a controller refuses the queues, or is gone.
    /// * [`StorageError::Memory`] if memory for kernels cannot be allocated.
    pub fn build(self) -> Result<Volume, StorageError> {
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
        let mut notes = Vec::new();
        let doorbell = self.choose_doorbell()?;
        let data_path = self.choose_data_path(&mut notes)?;
        let landing = data_path.landing;
        let bounce = self.transfer.unwrap_or(DEFAULT_BOUNCE).max(block as usize);
        self.check_transfer(bounce)?;
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
        self.finish(host, sets, Layout { stripe, block_shift, blocks, data_path, notes })
    }

    fn finish(self, host: HostSide, sets: Vec<QueueSet>, layout: Layout) -> Result<Volume, StorageError> {
        let Layout { stripe, block_shift, blocks, data_path, mut notes } = layout;
        // One queue set whose kernels do not write the doorbells makes the whole volume depend on a host thread.
        let forwarded = sets.iter().map(QueueSet::doorbell).find(|d| *d == Doorbell::Cpu);
        let doorbell = forwarded.unwrap_or_else(|| sets[0].doorbell());
        notes.extend(sets.iter().filter_map(|s| s.doorbell_note().map(|n| format!("doorbell cpu: {n}"))));
        if self.doorbell == DoorbellChoice::Cpu {
            notes.push("doorbell cpu: it was requested".to_owned());
        }
        let by_capsules = self.drives.iter().zip(&sets).filter(|(_, set)| set.by_capsules());
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
        let path = Path {
            device: self.name(),
            queues: data_path.queues,
            landing: data_path.landing,
            doorbell,
            engine: self.engine.kind(),
            order,
            mapping,
            write_cache,
            notes,
        };
        let blocks_of = |s: &QueueSet| (s.max_transfer_bytes() >> block_shift).min(MAX_COMMAND_BLOCKS);
        let least = sets.iter().map(blocks_of).min().unwrap_or(0);
        // A write to all copies is one command of the same size on each, so the least limit applies to all.
        let most = |s: &QueueSet| if stripe.replicated { least } else { blocks_of(s) };
        let devices: Vec<abi::Device> = self
            .drives
            .iter()
            .zip(&sets)
            .map(|(drive, set)| abi::Device {
                queues: set.address(),
                blocks: drive.namespace().blocks(),
                queue_count: set.count(),
                nsid: drive.namespace().id(),
                max_blocks: most(set) as u32,
                ..bytemuck::Zeroable::zeroed()
            })
            .collect();
        let max_transfer = least << block_shift;
        let (queues, depth) = (sets[0].count(), sets[0].depth());
        let space = self.engine.space();
        let shared = space.allocate(Place::Device, size_of::<abi::Volume>())?;
        let counters = Arc::new(Counters::new(space)?);
        let words = sets.iter().zip(&self.drives).map(|(s, d)| (d.name().to_owned(), s.counting_words())).collect();
        let mut disk = Disk {
            _metrics: stats::register(&path.device, counters.clone(), words),
            shared,
            watch: None,
            copies: Copies::default(),
            integrity: Integrity::new(space, blocks, self.drives.len())?,
            mark: Mutex::new(None),
            page_checksums: UnitChecksums::new(block_shift),
            registered_regions: Mutex::new(RegisteredRegions::default()),
            counters,
            host,
            sets: sets.into_iter().map(Mutex::new).collect(),
            names: self.drives.iter().map(|d| d.name().to_owned()).collect(),
            drives: self.drives.into_iter().map(Mutex::new).collect(),
            engine: self.engine,
            stripe,
            block_shift,
            blocks,
            max_transfer,
            queues,
            depth,
            path,
        };
        disk.publish(&devices)?;
        if stripe.replicated {
            let controllers = disk.drives.iter().map(|d| d.lock().controller().clone()).collect();
            disk.watch = Some(Watch::start(&disk.shared, controllers)?);
        }
        let volume = Volume::new(Contents::new(disk, self.page_checksums));
        volume.set_deadline(self.deadline.unwrap_or_else(|| volume.engine().deadline()))?;
        if stripe.replicated {
            // Outdated copies must not be read, so they are found and left out here. Without stored arrays all copies
            // are alike. Without superblocks it is unknown which are outdated; then no stored array is read.
            match volume.contents().find_content() {
                Ok(_) | Err(StorageError::Manifest { .. } | StorageError::Unread { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(volume)
    }

    fn name(&self) -> String {
        let names: Vec<&str> = self.drives.iter().map(Drive::name).collect();
        let all = match names.split_first() {
            Some((first, rest)) if !rest.is_empty() && rest.iter().all(|n| n == first) => {
                format!("{} x {first}", names.len())
            }
            _ => names.join(" + "),
        };
        if self.replicated && names.len() > 1 { format!("{all} (replicated)") } else { all }
    }

    /// Returns log2 of the common block size.
    fn check_members(&self) -> Result<u32, StorageError> {
        let refuse = |reason: String| Err(StorageError::Members { reason });
        let Some(first) = self.drives.first() else {
            return refuse("a volume needs at least one drive".to_owned());
        };
        if self.drives.len() > abi::MAX_DEVICES {
            return refuse(format!("{} drives: a volume has at most {}", self.drives.len(), abi::MAX_DEVICES));
        }
        let shift = first.namespace().block_shift();
        if let Some(other) = self.drives.iter().find(|d| d.namespace().block_shift() != shift) {
            let (a, b) = (first.namespace().block_bytes(), other.namespace().block_bytes());
            return refuse(format!(
                "{} has blocks of {a} bytes, {} of {b}: the drives of a volume must have the same block size",
                first.name(),
                other.name()
            ));
        }
        Ok(shift)
    }

    pub(super) fn no_path(&self, what: impl Into<String>, reason: impl Into<String>) -> StorageError {
        StorageError::NoPath { what: what.into(), device: self.name(), reason: reason.into(), remedies: Vec::new() }
    }

    /// Returns the error for a path to GPU memory where kernels run on CPU threads.
    pub(super) fn needs_gpu(&self, what: impl Into<String>, reason: &str) -> StorageError {
        let (what, remedies) = (what.into(), vec![Remedy::UseGpu]);
        StorageError::NoPath { what, device: self.name(), reason: format!("the engine is cpu, {reason}"), remedies }
    }

    fn choose_doorbell(&self) -> Result<DoorbellChoice, StorageError> {
        match (self.doorbell, self.engine.kind()) {
            (DoorbellChoice::Gpu, EngineKind::Cpu) => {
                Err(self.needs_gpu("doorbell gpu", "whose threads write the doorbells themselves"))
            }
            (choice, _) => Ok(choice),
        }
    }

    fn check_transfer(&self, bytes: usize) -> Result<(), StorageError> {
        for drive in &self.drives {
            if let Some(most) = drive.controller().max_data_transfer()
                && bytes as u64 > most
            {
                return Err(StorageError::Option(format!(
                    "commands of {bytes} bytes: {} moves at most {} with one (MDTS)",
                    drive.name(),
                    size(most)
                )));
            }
        }
        Ok(())
    }

    /// Returns count and depth of the queues: those given, or defaults that suit engine, controllers and bounce
    /// buffers.
    fn choose_queues(&self, landing: LandingPath, bounce: u64) -> (u32, u32) {
        let gpu = self.engine.is_gpu();
        let free = self.drives.iter().map(|d| d.controller().free_queues()).min().unwrap_or(1);
        let suits = if gpu { GPU_QUEUES } else { u32::try_from(self.engine.threads()).unwrap_or(u32::MAX) };
        // The default leaves one pair for the host.
        let count = self.queues.unwrap_or_else(|| suits.min(free.saturating_sub(1)).max(1));
        let deepest = self.drives.iter().map(|d| d.controller().cap().max_queue_entries()).min().unwrap_or(2);
        let depth = self.depth.unwrap_or_else(|| {
            let mut depth = if gpu { GPU_DEPTH } else { CPU_DEPTH };
            let too_much =
                |d: u32| landing == LandingPath::Bounce && u64::from(d) * u64::from(count) * bounce > BOUNCE_BUDGET;
            while depth > LEAST_DEPTH && too_much(depth) {
                depth /= 2;
            }
            depth.min(1 << deepest.max(2).ilog2())
        });
        (count, depth)
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

struct Layout {
    stripe: Stripe,
    block_shift: u32,
    blocks: u64,
    data_path: DataPath,
    notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(specs: &[&str]) -> VolumeBuilder {
        Volume::on(&Engine::builder().threads(2).cpu().unwrap(), specs.iter().map(|s| Drive::open(s).unwrap()))
    }

    #[test]
    fn the_default_path_on_cpu_threads() {
        let v = on(&["soft:mem:1M"]).build().unwrap();
        assert_eq!(v.path().to_string(), "device soft:mem:1M  queues host  landing direct  doorbell cpu-engine");
        assert_eq!((v.queues(), v.depth(), v.blocks(), v.block_bytes()), (2, CPU_DEPTH, 2048, 512));
        assert!(v.path().notes.is_empty());
        v.check().unwrap();
    }

    #[test]
    fn what_was_asked_for_is_what_there_is() {
        let v = on(&["soft:mem:1M"]).queues(3).depth(16).landing(LandingChoice::Bounce).transfer(8192).build().unwrap();
        assert_eq!((v.queues(), v.depth(), v.max_transfer_bytes()), (3, 16, 8192));
        assert_eq!(v.path().landing, LandingPath::Bounce);
        let text = on(&["soft:mem:1M"]).queue_memory(QueueMemoryChoice::Gpu).build().unwrap_err().to_string();
        assert!(text.starts_with("queues gpu is not available on soft:mem:1M: the engine is cpu"), "{text}");
    }

    #[test]
    fn options_that_cannot_be_say_why() {
        let refused = |b: VolumeBuilder| b.build().unwrap_err().to_string();
        assert!(refused(on(&["soft:mem:1M"]).depth(48)).contains("48"));
        assert!(refused(on(&["soft:mem:1M,queues=4"]).queues(5)).contains('5'));
        assert!(refused(on(&["soft:mem:1M,transfer=64k"]).transfer(128 << 10)).contains("64.0 KiB"));
        let mixed = refused(on(&["soft:mem:1M", "soft:mem:1M,block=4096"]));
        assert!(mixed.contains("512 bytes") && mixed.contains("4096"), "{mixed}");
        assert!(refused(on(&["soft:mem:1M"; 2]).chunk(100)).contains("100"));
        assert!(refused(on(&["soft:mem:4k"; 2]).chunk(8192)).contains("smaller"));
        assert!(refused(on(&[])).contains("at least one"));
        assert!(refused(on(&["soft:mem:4k"; 17])).contains("17"));
    }

    #[test]
    fn drives_of_the_same_name_are_counted() {
        assert_eq!(on(&["soft:mem:1M"; 3]).build().unwrap().name(), "3 x soft:mem:1M");
        let v = on(&["soft:mem:1M", "soft:mem:2M"]).build().unwrap();
        assert_eq!(
            (v.name(), v.device_name(1), v.device_name(2)),
            ("soft:mem:1M + soft:mem:2M", Some("soft:mem:2M"), None)
        );
    }

    #[test]
    fn bounce_buffers_keep_to_their_budget_when_the_depth_is_free() {
        let v = on(&["soft:mem:1M"]).queues(8).landing(LandingChoice::Bounce).transfer(1 << 20).build().unwrap();
        assert_eq!(v.depth(), 32);
    }
}
