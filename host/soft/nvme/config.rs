//! Configuration of a software controller.

use super::fault::FaultPlan;
use crate::nvme::ring_service::address::Streaming;
use crate::soft::model::{DriveModel, ModelError, ModelSource};
#[cfg(feature = "internals")]
use crate::spec::{DeviceSpec, Scheme, SpecError};
#[cfg(feature = "internals")]
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

/// Method of reading and writing a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileIo {
    /// io_uring, batched; `Pread` if the kernel refuses it.
    #[default]
    Uring,
    /// `preadv2` and `pwritev2` by the service threads.
    Pread,
    /// Reads copy from a mapping of the page cache; writes use `pwritev2`. If the file is truncated, reads beyond its
    /// end fail with "unrecovered read error". For this, the process gets a SIGBUS handler. It handles addresses of
    /// such mappings only, and passes other signals on.
    Mmap,
}

/// Storage for the blocks of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// Memory, allocated as it is written. Its contents are lost with the controller.
    Memory {
        /// Size in bytes; `None` until [`SoftConfig::set_bytes`].
        bytes: Option<u64>,
    },
    /// A whole regular file or block device.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Method of access.
        io: FileIo,
        /// True to bypass the page cache (O_DIRECT).
        direct: bool,
    },
}

/// Configuration of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceConfig {
    /// Storage for the blocks.
    pub backing: Backing,
    /// Size of a logical block in bytes, 512 or 4096.
    pub block_bytes: u32,
    /// True to open a file for reading alone, together with other readers. Writes fail with the status Namespace is
    /// Write Protected.
    pub read_only: bool,
    /// Final path of a new file, if it is opened under another one.
    pub(crate) final_path: Option<PathBuf>,
}

impl NamespaceConfig {
    /// Returns a namespace of 512-byte blocks.
    pub fn new(backing: Backing) -> Self {
        Self { backing, block_bytes: DEFAULT_BLOCK, read_only: false, final_path: None }
    }

    /// Sets the size of a logical block in bytes, 512 or 4096.
    #[cfg(feature = "internals")]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Sets whether a file is opened for reading alone.
    #[cfg(feature = "internals")]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}

const DEFAULT_BLOCK: u32 = 512;
const DEFAULT_QUEUE_ENTRIES: u32 = 4096;
const DEFAULT_QUEUE_PAIRS: u16 = 128;
const DEFAULT_TRANSFER: u32 = 2 << 20;
/// 128 bytes between doorbells: two that different threads poll never share a cache line, nor a pair of lines.
const DEFAULT_STRIDE: u8 = 5;
const DEFAULT_READY: Duration = Duration::from_secs(5);

/// Configuration of a software controller. Start with [`SoftConfig::memory`], [`SoftConfig::file`] or
/// [`SoftConfig::parse`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SoftConfig {
    /// Namespaces 1, 2 and so on.
    pub namespaces: Vec<NamespaceConfig>,
    /// Number of service threads, 1 to 1024. `None`: half of the processors, so that the program has the others.
    pub threads: Option<usize>,
    /// Number of entries of the largest queue (CAP.MQES + 1), 2 to 65,536.
    pub max_queue_entries: u32,
    /// Number of I/O queue pairs, 1 to 4095.
    pub max_queue_pairs: u16,
    /// Size of the largest transfer in bytes (MDTS): a power of two, 4 KiB to 64 MiB.
    pub max_transfer_bytes: u32,
    /// Doorbell stride, 0 to 10 (CAP.DSTRD): doorbells are `4 << doorbell_stride` bytes apart.
    pub doorbell_stride: u8,
    /// Time limit for becoming ready that CAP.TO reports, in steps of 500 ms up to 127.5 s.
    pub ready_timeout: Duration,
    /// Use of stores that bypass the CPU's cache.
    pub streaming: Streaming,
    /// Injected faults.
    pub faults: FaultPlan,
    /// Model of a drive, whose timing the controller has. It replaces the limits of queues and transfers.
    pub model: Option<ModelSource>,
}

impl SoftConfig {
    fn empty() -> Self {
        Self {
            namespaces: Vec::new(),
            threads: None,
            max_queue_entries: DEFAULT_QUEUE_ENTRIES,
            max_queue_pairs: DEFAULT_QUEUE_PAIRS,
            max_transfer_bytes: DEFAULT_TRANSFER,
            doorbell_stride: DEFAULT_STRIDE,
            ready_timeout: DEFAULT_READY,
            streaming: Streaming::Auto,
            faults: FaultPlan::default(),
            model: None,
        }
    }

    /// Returns a controller with one namespace of `bytes` bytes in memory.
    #[cfg(feature = "internals")]
    pub fn memory(bytes: u64) -> Self {
        Self::empty().namespace(NamespaceConfig::new(Backing::Memory { bytes: Some(bytes) }))
    }

    /// Returns a controller with one namespace on a file or a block device.
    #[cfg(feature = "internals")]
    pub fn file(path: impl AsRef<Path>) -> Self {
        Self::file_with(path, FileIo::default(), false)
    }

    /// Returns a controller as [`SoftConfig::file`] does, with the given method of access. `direct` bypasses the page
    /// cache.
    #[cfg(feature = "internals")]
    pub fn file_with(path: impl AsRef<Path>, io: FileIo, direct: bool) -> Self {
        let path = path.as_ref().to_path_buf();
        Self::empty().namespace(NamespaceConfig::new(Backing::File { path, io, direct }))
    }

    pub(super) fn from_namespaces(namespaces: Vec<NamespaceConfig>) -> Self {
        Self { namespaces, ..Self::empty() }
    }

    /// Parses the part of a specification after `soft:`, for example `mem:64M,block=4096,latency=20us` or
    /// `edges.img,io=mmap`.
    ///
    /// | key | meaning |
    /// |---|---|
    /// | `mem`, `mem:SIZE` | a namespace in memory; if the size is missing, [`SoftConfig::set_bytes`] sets it |
    /// | `FILE`, `file:FILE` | a namespace on a file or block device; [`DeviceSpec`] documents escapes for commas in the name |
    /// | `file=FILE` | another namespace on another file |
    /// | `namespaces=N` | N namespaces of that size (memory only) |
    /// | `block=512`, `block=4096` | size of a logical block in bytes |
    /// | `io=uring`, `io=pread`, `io=mmap`, `direct` | method of reading and writing files |
    /// | `read-only` | files are opened for reading alone; several programs may do so at the same time |
    /// | `threads=N` | number of service threads |
    /// | `entries=N`, `queues=N`, `transfer=SIZE`, `stride=N`, `ready-timeout=TIME` | limits that the controller reports |
    /// | `streaming=auto`, `always`, `never` | use of stores that bypass the CPU's cache |
    /// | `media-error=[read:\|write:]A-B` | blocks on which commands fail; may be repeated |
    /// | `latency=TIME`, `TIME-TIME`, `exp:TIME` | fixed, uniform or exponential time per command |
    /// | `lose-completion=every:N` or `A-B` | each Nth command of the device, or commands on these blocks, get no completion |
    /// | `wrong-phase=every:N` or `A-B` | each Nth completion of the device, or those for these blocks, have the wrong phase tag |
    /// | `lose-doorbell=every:N` | each Nth doorbell value of the device is ignored |
    /// | `stuck-queue=[Q:]after:N` | queue Q (or each) stops after N of its own commands |
    /// | `fatal=after:N`, `once:N` or `A-B` | controller fatal status; with `once`, at command N only, and not again after a reset |
    /// | `disappear=after:N` or `A-B` | the device disappears: registers read all ones |
    /// | `fail-flush=every:N` | each Nth Flush of the device fails with "write fault" |
    /// | `repeat-completion=every:N` or `A-B` | completions that are posted twice |
    /// | `torn-write=[silent:]every:N` or `A-B` | first half of the blocks stored; fails with "write fault", or succeeds (`silent:`) |
    /// | `corrupt=[read:\|write:]every:N` or `A-B` | one bit of the data read or stored is flipped; may be repeated |
    /// | `slow-drain=[Q:]TIME` | completions of queue Q (or each) are posted one by one, TIME apart |
    /// | `shrink=BLOCKS:after:N` | after N commands of the device, its namespaces have this many blocks |
    /// | `slow-ready=TIME`, `never-ready` | time to CSTS.RDY |
    /// | `reorder`, `seed=N` | completions in random order; seed of all random choices |
    /// | `model=NAME`, `model=FILE.toml` | timing of a modelled drive (`docs/drive-models.md`) |
    ///
    /// Sizes take `k`, `M`, `G`, `T` (powers of 1024). Times take `ns`, `us`, `ms`, `s`.
    ///
    /// # Errors
    /// As [`DeviceSpec::of`], and [`SpecError::BadOption`] if a value is invalid or options exclude each other.
    #[cfg(feature = "internals")]
    pub fn parse(spec: &str) -> Result<Self, SpecError> {
        Self::try_from(&DeviceSpec::of(Scheme::Soft, spec.as_ref())?)
    }

    /// Adds a namespace.
    #[cfg(feature = "internals")]
    pub fn namespace(mut self, namespace: NamespaceConfig) -> Self {
        self.namespaces.push(namespace);
        self
    }

    /// Sets the size of a logical block in bytes, 512 or 4096, for every namespace added so far.
    #[cfg(feature = "internals")]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        for n in &mut self.namespaces {
            n.block_bytes = bytes;
        }
        self
    }

    /// Sets the number of service threads.
    #[cfg(feature = "internals")]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the number of entries of the largest queue, 2 to 65,536.
    #[cfg(feature = "internals")]
    pub fn max_queue_entries(mut self, entries: u32) -> Self {
        self.max_queue_entries = entries;
        self
    }

    /// Sets the number of I/O queue pairs, 1 to 4095.
    #[cfg(feature = "internals")]
    pub fn max_queue_pairs(mut self, pairs: u16) -> Self {
        self.max_queue_pairs = pairs;
        self
    }

    /// Sets the size of the largest transfer in bytes: a power of two, 4 KiB to 64 MiB.
    #[cfg(feature = "internals")]
    pub fn max_transfer_bytes(mut self, bytes: u32) -> Self {
        self.max_transfer_bytes = bytes;
        self
    }

    /// Sets the doorbell stride, 0 to 10: doorbells are `4 << stride` bytes apart.
    #[cfg(feature = "internals")]
    pub fn doorbell_stride(mut self, stride: u8) -> Self {
        self.doorbell_stride = stride;
        self
    }

    /// Sets the time limit for becoming ready that CAP.TO reports.
    #[cfg(feature = "internals")]
    pub fn ready_timeout(mut self, timeout: Duration) -> Self {
        self.ready_timeout = timeout;
        self
    }

    /// Sets the use of stores that bypass the CPU's cache.
    #[cfg(feature = "internals")]
    pub fn streaming(mut self, streaming: Streaming) -> Self {
        self.streaming = streaming;
        self
    }

    /// Sets the injected faults.
    #[cfg(feature = "internals")]
    pub fn faults(mut self, plan: FaultPlan) -> Self {
        self.faults = plan;
        self
    }

    /// Sets the model of a drive.
    #[cfg(feature = "internals")]
    pub fn model(mut self, model: ModelSource) -> Self {
        self.model = Some(model);
        self
    }

    /// Reads the model, if there is one, and takes its limits.
    pub(super) fn take_limits_of_model(&mut self) -> Result<Option<DriveModel>, ModelError> {
        let Some(model) = self.model.as_ref().map(ModelSource::load).transpose()? else { return Ok(None) };
        self.max_queue_pairs = model.queues.pairs;
        self.max_queue_entries = model.queues.entries;
        self.max_transfer_bytes = model.queues.transfer_bytes;
        Ok(Some(model))
    }

    /// Returns true if a namespace in memory has no size yet.
    pub fn needs_bytes(&self) -> bool {
        self.namespaces.iter().any(|n| n.backing == Backing::Memory { bytes: None })
    }

    /// Sets the size of each namespace in memory that has none yet: `size` bytes, rounded up to whole blocks.
    pub fn set_bytes(&mut self, size: u64) {
        for n in &mut self.namespaces {
            let block = u64::from(n.block_bytes.max(1));
            if let Backing::Memory { bytes: bytes @ None } = &mut n.backing {
                *bytes = Some(size.max(1).div_ceil(block).saturating_mul(block));
            }
        }
    }

    /// Returns the number of service threads that [`super::SoftController::start`] will use.
    pub fn service_threads(&self) -> usize {
        self.threads.unwrap_or_else(|| crate::processors::count() / 2).max(1)
    }

    /// Returns the first rule that the configuration violates, as a sentence.
    pub(super) fn complaint(&self) -> Option<String> {
        let namespaces = self.namespaces.len();
        let checks = [
            (namespaces == 0, "a controller needs a namespace: give `mem:SIZE` or a file".to_owned()),
            (namespaces > 1024, format!("{namespaces} namespaces: the limit is 1024")),
            (
                !(2..=65_536).contains(&self.max_queue_entries),
                format!("{} entries for a queue: choose 2 to 65536", self.max_queue_entries),
            ),
            (
                !(1..=4095).contains(&self.max_queue_pairs),
                format!("{} queue pairs: choose 1 to 4095", self.max_queue_pairs),
            ),
            (
                !self.max_transfer_bytes.is_power_of_two() || !(4096..=64 << 20).contains(&self.max_transfer_bytes),
                format!("{} bytes as the largest transfer: choose a power of two, 4k to 64M", self.max_transfer_bytes),
            ),
            (self.doorbell_stride > 10, format!("doorbell stride {}: choose 0 to 10", self.doorbell_stride)),
            (
                self.threads.is_some_and(|t| t == 0 || t > 1024),
                format!("{} service threads: choose 1 to 1024", self.threads.unwrap_or(0)),
            ),
        ];
        let blocks = self.namespaces.iter().map(|n| n.block_bytes).find(|b| ![512, 4096].contains(b));
        let blocks = blocks.map(|b| format!("blocks of {b} bytes: choose 512 or 4096"));
        let processors = crate::processors::checked().err().map(|e| e.to_string());
        checks.into_iter().find(|(bad, _)| *bad).map(|(_, text)| text).or(blocks).or(processors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_without_a_size_gets_it_later() {
        let mut c = SoftConfig::parse("mem,block=4096").unwrap();
        assert!(c.needs_bytes());
        c.set_bytes(5000);
        assert!(!c.needs_bytes());
        assert_eq!(c.namespaces[0].backing, Backing::Memory { bytes: Some(8192) });
        c.set_bytes(1 << 20);
        assert_eq!(c.namespaces[0].backing, Backing::Memory { bytes: Some(8192) }, "a given size stays");
    }

    #[test]
    fn limits_are_checked() {
        let ok = SoftConfig::memory(1 << 20);
        assert_eq!(ok.complaint(), None);
        for (bad, word) in [
            (ok.clone().max_queue_entries(1), "entries"),
            (ok.clone().max_queue_pairs(0), "pairs"),
            (ok.clone().max_transfer_bytes(5000), "transfer"),
            (ok.clone().doorbell_stride(11), "stride"),
            (ok.clone().threads(0), "threads"),
            (ok.clone().block_bytes(1024), "1024"),
            (SoftConfig::from_namespaces(Vec::new()), "namespace"),
        ] {
            assert!(bad.complaint().unwrap().contains(word), "{:?}", bad.complaint());
        }
    }
}
