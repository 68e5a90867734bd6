//! Volumes: one block address space on one or more namespaces, for kernels and for the host.

mod arrays;
mod blocks;
mod builder;
mod claims;
mod extent;
#[cfg(test)]
mod fault_tests;
mod in_flight;
mod recover;
mod segments;
mod stream_queue;
mod transfer;

pub use builder::VolumeBuilder;
pub(in crate::storage) use claims::Claim;
pub use extent::Extent;
pub(in crate::storage) use in_flight::{Completed, InFlight};
pub use recover::VolumeRecovery;
pub use segments::{PagedTensors, SegmentList, SegmentOutcome, SegmentQueue, SegmentQueueBuilder, SegmentTransfer};
pub use stream_queue::StreamQueue;

use crate::engine::{Args, Engine, KernelArg, abi};
use crate::storage::contents::Contents;
use crate::storage::disk::{Disk, Path, Stats};
use crate::storage::error::StorageError;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Namespaces with queues to which kernels submit commands. Cheap to clone. The devices close when the last clone and
/// the last cache of the volume are dropped.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Drive, OverwritePolicy, Volume};
///
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
///
/// volume.store_array("squares", &(0..1000u64).map(|i| i * i).collect::<Vec<_>>())?;
/// assert_eq!(volume.read_array::<u64>("squares")?[999], 999 * 999);
/// println!("{}", volume.path());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Volume(pub(in crate::storage) Arc<Inner>);

/// State of a volume: the arrays on its disk, and those who use it.
pub(in crate::storage) struct Inner {
    /// Caches of the volume, whose pages in flight are reset by a recovery.
    caches: Mutex<Vec<Weak<dyn InFlight>>>,
    /// Names that one handle has for itself.
    claims: Mutex<BTreeSet<String>>,
    contents: Contents,
}

/// Kernels get a volume as a `warpbell::volume_ref`.
impl KernelArg for Volume {
    fn push(&self, args: &mut Args) {
        args.push_value(self.view());
        args.keep(self.0.clone());
    }
}

impl Volume {
    pub(in crate::storage) fn new(contents: Contents) -> Self {
        Self(Arc::new(Inner { caches: Mutex::default(), claims: Mutex::default(), contents }))
    }

    /// Returns true for a handle of the same volume.
    pub(in crate::storage) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(in crate::storage) fn contents(&self) -> &Contents {
        &self.0.contents
    }

    pub(in crate::storage) fn disk(&self) -> &Arc<Disk> {
        &self.0.contents.disk
    }

    /// Resets the pages in flight of this cache when the volume is recovered.
    pub(in crate::storage) fn recovers(&self, cache: Weak<dyn InFlight>) {
        self.0.caches.lock().push(cache);
    }

    /// Returns the address of the `wb_volume` that kernels read.
    pub fn address(&self) -> u64 {
        self.disk().shared.address()
    }

    /// Returns the `wb_volume_view`, the form in which kernels get the volume: `volume_ref` of `volume.cuh` is made from it.
    ///
    /// The view holds addresses of memory that the volume owns. It stays valid while a clone of the volume lives; kernels that
    /// use it must have ended before the last clone is dropped. A run ensures that for a launch with the volume among its
    /// arguments, and for [`Run::keep`](crate::engine::Run::keep). The values are for kernels of this process and of
    /// the volume's engine.
    pub fn view(&self) -> abi::VolumeView {
        abi::VolumeView { volume: self.address() }
    }

    /// Returns the engine whose kernels can use the volume.
    pub fn engine(&self) -> &Engine {
        &self.disk().engine
    }

    /// Returns the data path of the volume.
    pub fn path(&self) -> &Path {
        &self.disk().path
    }

    /// Returns the devices as they were named, `a + b` for several, each followed by the model of a drive if it has the timing of one.
    pub fn name(&self) -> &str {
        &self.disk().path.device
    }

    /// Returns the name of the device with this index, as errors of runs number devices.
    pub fn device_name(&self, device: usize) -> Option<&str> {
        self.disk().names.get(device).map(String::as_str)
    }

    /// Returns the number of logical blocks.
    pub fn blocks(&self) -> u64 {
        self.disk().blocks
    }

    /// Returns log2 of the logical block size: 9 to 12.
    pub fn block_shift(&self) -> u32 {
        self.disk().block_shift
    }

    /// Returns the bytes of a logical block.
    pub fn block_bytes(&self) -> usize {
        1 << self.disk().block_shift
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.disk().blocks << self.disk().block_shift
    }

    /// Returns true if all blocks of the volume are memory of this process, to which no other program has written.
    pub fn is_in_memory(&self) -> bool {
        self.disk().is_in_memory()
    }

    /// Returns the bytes of this process's memory that `bytes` bytes of the volume occupy once they have been written.
    /// Returns 0 where no device is in memory.
    #[cfg(feature = "internals")]
    pub fn memory_bytes(&self, bytes: u64) -> u64 {
        self.disk().memory_bytes(bytes)
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> u64 {
        self.disk().stripe.devices
    }

    /// Returns the number of queue pairs on each device.
    pub fn queues(&self) -> u32 {
        self.disk().queues
    }

    /// Returns the number of entries of each queue.
    pub fn depth(&self) -> u32 {
        self.disk().depth
    }

    /// Returns the most bytes that one command moves. Longer transfers become several commands. With several
    /// devices a command does not cross a chunk's end.
    pub fn max_transfer_bytes(&self) -> usize {
        self.disk().max_transfer
    }

    /// Returns true if every device holds every block.
    pub fn is_replicated(&self) -> bool {
        self.disk().stripe.replicated
    }

    /// Returns the bytes of the stripe unit, or of the whole volume on one device.
    pub fn chunk_bytes(&self) -> u64 {
        if self.disk().stripe.devices == 1 { self.bytes() } else { self.disk().stripe.chunk << self.disk().block_shift }
    }

    /// Returns the counters since the volume was made, or since the last [`Volume::reset_stats`].
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the counters cannot be read.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Drive, OverwritePolicy, Volume};
    ///
    /// let engine = Engine::cpu()?;
    /// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
    /// let volume = Volume::on(&engine, [drive]).build()?;
    ///
    /// volume.store_array("zeros", &[0u32; 5000])?;
    /// // Counters of kernels: the host's own reads and writes are not among them.
    /// assert_eq!(volume.stats()?.reads, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Result<Stats, StorageError> {
        Ok(self.disk().counters.read()?)
    }

    /// Sets all counters to 0. Do not call it while kernels run, since counts at that time may be lost.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the counters cannot be written.
    pub fn reset_stats(&self) -> Result<(), StorageError> {
        Ok(self.disk().counters.reset()?)
    }

    /// Checks the state of all devices. After a run that ended with time-outs, the error is the reason.
    ///
    /// # Errors
    /// [`StorageError::Nvme`] if a controller is gone, has failed, is no longer ready, or has lost its queues. Also if
    /// the thread that forwards doorbells has failed.
    pub fn check(&self) -> Result<(), StorageError> {
        self.disk().check()
    }

    /// Sets the deadline of one wait inside a kernel, and of one command of the host, for the whole engine. Admin
    /// commands get the same time, but at least the time in which the controller may become ready (CAP.TO).
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the engine's control block cannot be written.
    pub fn set_deadline(&self, deadline: Duration) -> Result<(), StorageError> {
        self.disk().set_deadline(deadline)
    }

    /// Gives files that were made for this volume their names, which they otherwise get with the first stored array: see
    /// [`Drive::keep`](crate::storage::Drive::keep).
    ///
    /// # Errors
    /// [`StorageError::File`] if a file cannot get its name.
    pub fn keep(&self) -> Result<(), StorageError> {
        self.disk().keep()
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk().path.fmt(f)
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume({}, {} blocks of {} bytes)", self.disk().path, self.disk().blocks, self.block_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Outcome, RunError};
    use crate::storage::{Drive, LandingChoice};

    /// Copies blocks from one place of the volume to another by kernels, through memory.
    fn kernels_move_blocks(volume: &Volume, each: u32) {
        let (blocks, shift) = (volume.blocks() / 3, volume.block_shift());
        let data: Vec<u8> = (0..blocks << shift).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        volume.write_blocks(0, &data).unwrap();
        let buffer = volume.allocate_data(data.len()).unwrap();
        volume.start_read(0, blocks, each, &buffer).unwrap().finish_within(Duration::from_secs(60)).unwrap();
        let mut moved = vec![0; data.len()];
        buffer.read(0, &mut moved).unwrap();
        assert!(moved == data, "{volume}: what kernels read is not what the host wrote");
        volume.start_write(2 * blocks, blocks, each, &buffer).unwrap().finish_within(Duration::from_secs(60)).unwrap();
        volume.read_blocks(2 * blocks, &mut moved).unwrap();
        assert!(moved == data, "{volume}: what the host read is not what kernels wrote");
        let s = volume.stats().unwrap();
        assert_eq!((s.read_bytes, s.write_bytes, s.errors), (data.len() as u64, data.len() as u64, 0));
        assert!(s.reads >= blocks / u64::from(each) && s.doorbells > 0);
        volume.reset_stats().unwrap();
        assert_eq!(volume.stats().unwrap(), Stats::default());
    }

    #[test]
    fn kernels_and_host_see_the_same_blocks() {
        for specs in [&["soft:mem:768k"][..], &["soft:mem:256k,block=4096"; 3]] {
            for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
                let drives = specs.iter().map(|s| Drive::open(s).unwrap());
                let builder = Volume::on(&Engine::cpu().unwrap(), drives).chunk(16384).landing(landing);
                let volume = builder.depth(8).transfer(8192).build().unwrap();
                for each in [1, 5, 40] {
                    kernels_move_blocks(&volume, each);
                }
            }
        }
    }

    #[test]
    fn the_same_over_a_controller_that_nobody_here_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let drive = match Drive::open(&format!("qtest:{},block=4096,ram=64M", path.display())) {
            Ok(drive) => drive,
            Err(e) if e.to_string().contains("no QEMU") => {
                println!("SKIP: {e}");
                return;
            }
            Err(e) => panic!("{e}"),
        };
        let volume = Volume::on(&Engine::cpu().unwrap(), [drive]).queues(2).build().unwrap();
        assert!(volume.path().to_string().ends_with("queues host  landing direct  doorbell cpu"), "{}", volume.path());
        kernels_move_blocks(&volume, 3);
    }

    #[test]
    fn every_device_holds_what_was_written_to_a_replicated_volume() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|n| dir.path().join(n));
        for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
            for (path, kib) in paths.iter().zip([768, 800, 768]) {
                std::fs::File::create(path).unwrap().set_len(kib << 10).unwrap();
            }
            let drives = paths.iter().map(|p| Drive::open(&format!("soft:{}", p.display())).unwrap());
            let builder = Volume::on(&Engine::cpu().unwrap(), drives).replicated(true).chunk(8192);
            let volume = builder.landing(landing).depth(8).transfer(8192).build().unwrap();
            assert!(volume.is_replicated() && volume.name().ends_with("(replicated)"), "{}", volume.name());
            assert_eq!(volume.bytes(), 768 << 10);
            let data: Vec<u8> = (0..200u32 << 10).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
            let buffer = volume.allocate_data(data.len()).unwrap();
            buffer.write(0, &data).unwrap();
            let blocks = (data.len() / 512) as u64;
            volume.start_write(3, blocks, 7, &buffer).unwrap().finish_within(Duration::from_secs(60)).unwrap();
            volume.write_blocks(700, &data).unwrap();
            volume.flush().unwrap();
            for path in &paths {
                let held = std::fs::read(path).unwrap();
                assert!(
                    held[3 * 512..][..data.len()] == data,
                    "{landing:?}: {} lacks what kernels wrote",
                    path.display()
                );
                assert!(
                    held[700 * 512..][..data.len()] == data,
                    "{landing:?}: {} lacks what the host wrote",
                    path.display()
                );
            }
            // Reads come from all copies: each copy now holds data of its own.
            for (i, path) in paths.iter().enumerate() {
                std::fs::write(path, vec![i as u8 + 1; 768 << 10]).unwrap();
            }
            for by_host in [false, true] {
                let mut out = vec![0; data.len()];
                if by_host {
                    volume.read_blocks(16, &mut out).unwrap();
                } else {
                    volume.start_read(16, blocks, 16, &buffer).unwrap().finish_within(Duration::from_secs(60)).unwrap();
                    buffer.read(0, &mut out).unwrap();
                }
                let from: std::collections::BTreeSet<u8> = out.chunks(512).map(|c| c[0]).collect();
                assert_eq!(from.into_iter().collect::<Vec<_>>(), [1, 2, 3], "{landing:?}, by host {by_host}");
            }
        }
    }

    fn failed_read(spec: &str, deadline: Duration) -> Vec<crate::engine::OperationError> {
        let volume =
            Volume::on(&Engine::cpu().unwrap(), [Drive::open(spec).unwrap()]).deadline(deadline).build().unwrap();
        let buffer = volume.allocate_data(256 << 10).unwrap();
        let run = volume.start_read(0, 512, 8, &buffer).unwrap();
        match run.finish_within(Duration::from_secs(60)) {
            Err(RunError::Operations { errors, .. }) => errors,
            other => panic!("{spec}: {other:?}"),
        }
    }

    #[test]
    fn a_media_error_ends_a_run_with_its_place() {
        let errors = failed_read("soft:mem:1M,media-error=331-331", Duration::from_secs(10));
        let (lba, blocks) = (errors[0].lba, u64::from(errors[0].blocks));
        assert!((lba..lba + blocks).contains(&331), "{:?}", errors[0]);
        assert!(matches!(errors[0].outcome, Outcome::DeviceError(_)), "{:?}", errors[0]);
    }

    #[test]
    fn a_lost_completion_ends_a_run_by_time() {
        let errors = failed_read("soft:mem:1M,lose-completion=every:20", Duration::from_millis(300));
        assert!(errors.iter().any(|e| e.outcome == Outcome::TimedOut && e.opcode == 2), "{errors:?}");
    }

    #[test]
    fn a_controller_that_dies_is_reported() {
        let drive = Drive::open("soft:mem:1M,fatal=after:30").unwrap();
        let builder = Volume::on(&Engine::cpu().unwrap(), [drive]).deadline(Duration::from_millis(300));
        let volume = builder.build().unwrap();
        let buffer = volume.allocate_data(256 << 10).unwrap();
        let run = volume.start_read(0, 512, 8, &buffer).unwrap();
        assert!(run.finish_within(Duration::from_secs(60)).is_err());
        assert!(volume.check().unwrap_err().to_string().contains("fatal"));
    }
}
