//! Options of a disk, their defaults, and their limits.

use super::drive::Drive;
use super::path::{DoorbellChoice, LandingChoice, LandingPath, QueueMemoryChoice};
use crate::engine::{Engine, EngineKind, abi};
use crate::memory::mapping::BackendChoice;
use crate::nvme::{HostQueueOptions, RetryBudget};
use crate::remedy::Remedy;
use crate::storage::error::{StorageError, size};

/// Default stripe unit in bytes: large enough for one command, small enough to spread a sequential read.
pub const DEFAULT_CHUNK: u64 = 128 << 10;
/// Default size in bytes of a command with bounce buffers: a page of most caches.
pub(in crate::storage) const DEFAULT_BOUNCE: usize = 4096;
/// Default number of queue pairs on each device for a GPU. On the CPU engine each thread gets a pair.
const GPU_QUEUES: u32 = 32;
/// Default number of entries of each queue.
const GPU_DEPTH: u32 = 1024;
pub(in crate::storage) const CPU_DEPTH: u32 = 128;
/// Limit for the bounce buffers of one device, in bytes, where the builder chooses the depth.
const BOUNCE_BUDGET: u64 = 256 << 20;
const LEAST_DEPTH: u32 = 16;
/// Bytes of a command and entries of a queue for transfers of segments on a GPU: the data of all commands stays in the host's cache.
const SEGMENT_COMMAND: usize = 128 << 10;
const SEGMENT_DEPTH: u32 = 16;

/// Drives of a new disk, and the options for their queues. [`VolumeBuilder`](crate::storage::VolumeBuilder) documents them.
#[derive(Debug)]
pub(in crate::storage) struct DiskOptions {
    pub(in crate::storage) engine: Engine,
    pub(in crate::storage) drives: Vec<Drive>,
    pub(in crate::storage) queues: Option<u32>,
    pub(in crate::storage) depth: Option<u32>,
    pub(in crate::storage) chunk: u64,
    pub(in crate::storage) replicated: bool,
    pub(in crate::storage) transfer: Option<usize>,
    pub(in crate::storage) for_segments: bool,
    pub(in crate::storage) landing: LandingChoice,
    pub(in crate::storage) queue_memory: QueueMemoryChoice,
    pub(in crate::storage) doorbell: DoorbellChoice,
    pub(in crate::storage) mapping: BackendChoice,
    pub(in crate::storage) retry_budget: RetryBudget,
    pub(in crate::storage) host_command_bytes: usize,
}

impl DiskOptions {
    /// Makes the default options for these drives.
    pub(in crate::storage) fn new(engine: &Engine, drives: Vec<Drive>) -> Self {
        Self {
            engine: engine.clone(),
            drives,
            queues: None,
            depth: None,
            chunk: DEFAULT_CHUNK,
            replicated: false,
            transfer: None,
            for_segments: false,
            landing: LandingChoice::Auto,
            queue_memory: QueueMemoryChoice::Auto,
            doorbell: DoorbellChoice::Auto,
            mapping: BackendChoice::Auto,
            retry_budget: RetryBudget::new(),
            host_command_bytes: HostQueueOptions::default().bytes_per_command,
        }
    }

    pub(in crate::storage) fn name(&self) -> String {
        let names: Vec<String> = self.drives.iter().map(Drive::described).collect();
        let all = match names.split_first() {
            Some((first, rest)) if !rest.is_empty() && rest.iter().all(|n| n == first) => {
                format!("{} x {first}", names.len())
            }
            _ => names.join(" + "),
        };
        if self.replicated && names.len() > 1 { format!("{all} (replicated)") } else { all }
    }

    /// Returns log2 of the common block size.
    pub(in crate::storage) fn check_members(&self) -> Result<u32, StorageError> {
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

    pub(in crate::storage) fn no_path(&self, what: impl Into<String>, reason: impl Into<String>) -> StorageError {
        StorageError::NoPath { what: what.into(), device: self.name(), reason: reason.into(), remedies: Vec::new() }
    }

    /// Returns the error for a path to GPU memory where kernels run on CPU threads.
    pub(in crate::storage) fn needs_gpu(&self, what: impl Into<String>, reason: &str) -> StorageError {
        let (what, remedies) = (what.into(), vec![Remedy::UseGpu]);
        StorageError::NoPath { what, device: self.name(), reason: format!("the engine is cpu, {reason}"), remedies }
    }

    pub(in crate::storage) fn choose_doorbell(&self) -> Result<DoorbellChoice, StorageError> {
        match (self.doorbell, self.engine.kind()) {
            (DoorbellChoice::Gpu, EngineKind::Cpu) => {
                Err(self.needs_gpu("doorbell gpu", "whose threads write the doorbells themselves"))
            }
            (choice, _) => Ok(choice),
        }
    }

    /// Returns the bytes that a command must be able to move, if the program has not given them.
    pub(in crate::storage) fn default_transfer(&self) -> usize {
        if !self.for_segments {
            return DEFAULT_BOUNCE;
        }
        let limits = self.drives.iter().filter_map(|drive| drive.controller().max_data_transfer());
        limits.filter_map(|most| usize::try_from(most).ok()).fold(SEGMENT_COMMAND, usize::min)
    }

    pub(in crate::storage) fn check_transfer(&self, bytes: usize) -> Result<(), StorageError> {
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
    pub(in crate::storage) fn choose_queues(&self, landing: LandingPath, bounce: u64) -> (u32, u32) {
        let gpu = self.engine.is_gpu();
        let free = self.drives.iter().map(|d| d.controller().free_queues()).min().unwrap_or(1);
        let suits = if gpu { GPU_QUEUES } else { u32::try_from(self.engine.threads()).unwrap_or(u32::MAX) };
        // The default leaves one pair for the host.
        let count = self.queues.unwrap_or_else(|| suits.min(free.saturating_sub(1)).max(1));
        let deepest = self.drives.iter().map(|d| d.controller().cap().max_queue_entries()).min().unwrap_or(2);
        let depth = self.depth.unwrap_or_else(|| {
            let mut depth = match (gpu, self.for_segments) {
                (true, true) => SEGMENT_DEPTH,
                (true, false) => GPU_DEPTH,
                (false, _) => CPU_DEPTH,
            };
            let too_much =
                |d: u32| landing == LandingPath::Bounce && u64::from(d) * u64::from(count) * bounce > BOUNCE_BUDGET;
            while depth > LEAST_DEPTH && too_much(depth) {
                depth /= 2;
            }
            depth.min(1 << deepest.max(2).ilog2())
        });
        (count, depth)
    }
}
