//! Options of a volume, and its construction.

use super::Volume;
use crate::engine::Engine;
use crate::memory::mapping::BackendChoice;
use crate::nvme::RetryBudget;
use crate::storage::contents::Contents;
use crate::storage::disk::{DiskOptions, DoorbellChoice, Drive, LandingChoice, QueueMemoryChoice};
use crate::storage::error::StorageError;
use std::time::Duration;

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
    disk: DiskOptions,
    page_checksums: Option<bool>,
    deadline: Option<Duration>,
}

impl Volume {
    /// Begins a volume on these drives. Several drives are striped, unless [`VolumeBuilder::replicated`] is set.
    pub fn on(engine: &Engine, drives: impl IntoIterator<Item = Drive>) -> VolumeBuilder {
        let disk = DiskOptions::new(engine, drives.into_iter().collect());
        VolumeBuilder { disk, page_checksums: None, deadline: None }
    }
}

impl VolumeBuilder {
    /// Sets the largest command of the host, in bytes.
    #[cfg(test)]
    pub(in crate::storage) fn host_command_bytes(mut self, bytes: usize) -> Self {
        self.disk.host_command_bytes = bytes;
        self
    }

    /// Sets the number of queue pairs on each device. The default suits engine and controller.
    pub fn queues(mut self, count: u32) -> Self {
        self.disk.queues = Some(count);
        self
    }

    /// Sets the number of entries of each queue: a power of two, 2 or more.
    pub fn depth(mut self, entries: u32) -> Self {
        self.disk.depth = Some(entries);
        self
    }

    /// Sets the stripe unit in bytes, for several devices: a multiple of the block size. It should be a multiple of the
    /// caches' page size.
    pub fn chunk(mut self, bytes: u64) -> Self {
        self.disk.chunk = bytes;
        self
    }

    /// Makes every drive hold every block. Reads are spread over the drives chunk by chunk; writes go to all drives.
    /// Has no effect with one drive.
    ///
    /// A block that one drive cannot read is read from another one and written back ([`Volume::repair`]). The volume
    /// leaves a drive out that does not respond, or that fails a write which another drive completes
    /// ([`Volume::redundancy`]).
    pub fn replicated(mut self, replicated: bool) -> Self {
        self.disk.replicated = replicated;
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

    /// Sets the number of bytes that one command must be able to move, 4096 without this. With bounce landing every queue slot gets a
    /// buffer of this size.
    pub fn transfer(mut self, bytes: usize) -> Self {
        self.disk.transfer = Some(bytes);
        self
    }

    /// Suits the queues to [`SegmentQueue`](crate::storage::SegmentQueue) and KV stores: where [`transfer`](Self::transfer) and
    /// [`depth`](Self::depth) are not given, commands move 128 KiB, or what the devices take, and on a GPU queues have 16 entries.
    pub fn for_segments(mut self, wanted: bool) -> Self {
        self.disk.for_segments = wanted;
        self
    }

    /// Chooses the memory to which devices write data.
    pub fn landing(mut self, choice: LandingChoice) -> Self {
        self.disk.landing = choice;
        self
    }

    /// Chooses the memory that holds the queues.
    pub fn queue_memory(mut self, choice: QueueMemoryChoice) -> Self {
        self.disk.queue_memory = choice;
        self
    }

    /// Chooses the part that writes the doorbells.
    pub fn doorbell(mut self, choice: DoorbellChoice) -> Self {
        self.disk.doorbell = choice;
        self
    }

    /// Chooses the mapping backend by which devices get addresses for GPU memory. Anything but `auto` needs kernels on
    /// a GPU.
    pub fn mapping(mut self, choice: BackendChoice) -> Self {
        self.disk.mapping = choice;
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
        self.disk.retry_budget = budget.clone();
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
        let disk = self.disk.build()?;
        let is_replicated = disk.is_replicated();
        let volume = Volume::new(Contents::new(disk, self.page_checksums));
        volume.set_deadline(self.deadline.unwrap_or_else(|| volume.engine().deadline()))?;
        if is_replicated {
            // Outdated copies must not be read, so they are found and left out here. Without stored arrays all copies
            // are alike. Without superblocks it is unknown which are outdated; then no stored array is read.
            match volume.contents().find_content() {
                Ok(_) | Err(StorageError::Manifest { .. } | StorageError::Unread { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LandingPath;
    use crate::storage::disk::CPU_DEPTH;

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
    fn commands_for_segments_are_as_large_as_the_devices_take() {
        let bytes = |specs: &[&str]| {
            let v = on(specs).landing(LandingChoice::Bounce).for_segments(true).build().unwrap();
            v.max_transfer_bytes()
        };
        assert_eq!(bytes(&["soft:mem:1M"]), 128 << 10);
        assert_eq!(bytes(&["soft:mem:1M,transfer=256k", "soft:mem:1M,transfer=64k"]), 64 << 10);
        let given =
            on(&["soft:mem:1M"]).landing(LandingChoice::Bounce).for_segments(true).transfer(8192).build().unwrap();
        assert_eq!(given.max_transfer_bytes(), 8192);
    }

    #[test]
    fn bounce_buffers_keep_to_their_budget_when_the_depth_is_free() {
        let v = on(&["soft:mem:1M"]).queues(8).landing(LandingChoice::Bounce).transfer(1 << 20).build().unwrap();
        assert_eq!(v.depth(), 32);
    }
}
