//! A software NVMe controller: registers, admin and I/O queues, PRPs, namespaces in memory or in files, fault
//! injection.
//!
//! A driver uses it through [`crate::nvme::Port`] and [`crate::nvme::DmaSpace`], as it uses hardware. Doorbells are
//! ordinary memory that service threads poll, so kernels write them with plain stores. Interrupts are not delivered:
//! drivers poll for completions.
//!
//! ```
//! use warpbell::soft::nvme::{SoftConfig, SoftController};
//!
//! let controller = SoftController::start(SoftConfig::parse("mem:1M,block=4096,threads=1")?)?;
//! let attachment = controller.attachment();
//! assert_eq!(attachment.port.name(), "soft:mem 1 MiB");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads
//!
//! A completion queue and the submission queues that complete to it belong to one service thread: number
//! `(queue - 1) mod threads`. One more thread handles the registers and the admin queue; it sleeps most of the time.
//! The threads end when the last of controller, port and DMA space is dropped.

mod admin;
mod backend;
mod config;
mod core;
mod damage;
mod fault;
mod feature;
mod held;
mod identify;
mod io;
#[cfg(test)]
pub(crate) mod journal;
mod log;
mod manager;
mod namespace;
mod port;
mod queue;
mod service;
mod spec;
mod statistics;
#[cfg(test)]
mod tests;

internal!(crate::nvme::ring_service::address::Streaming);
internal!(config::{Backing, FileIo, NamespaceConfig, SoftConfig});
internal!(fault::{Access, Corruption, FaultPlan, Latency, MediaError, Readiness, Selector, Shrink, SlowDrain, StuckQueue, TornWrite, Trigger});
#[cfg(feature = "internals")]
pub use statistics::Statistics;
internal!(statistics::QueueStatistics);

use self::core::Core;
use crate::assist::Registration;
use crate::nvme::Attachment;
use crate::nvme::ring_service::{Doorbells, Registers, Shell, Threads, copy, prp};
use crate::soft::model::Timing;
use crate::soft::model::capacity::Capacity;
use crate::soft::model::host_path;
use crossbeam::utils::CachePadded;
use namespace::Namespace;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Instant;

/// Error of starting a software controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SoftError {
    /// The configuration violates a limit.
    #[error("software controller: {reason}")]
    Config {
        /// The violated limit, and the valid range.
        reason: String,
    },
    /// A namespace in memory has no size.
    #[error("software controller: `mem` has no size here; write `mem:SIZE`, for example mem:64M")]
    NoSize,
    /// A size is not a whole number of blocks, or zero.
    #[error(
        "{what}: {bytes} bytes are not a whole number (1 or more) of blocks of {block} bytes; \
         `truncate -s %{block} FILE` rounds a file up"
    )]
    Size {
        /// `memory`, or the path of the file.
        what: String,
        /// Its size in bytes.
        bytes: u64,
        /// Size of a logical block in bytes.
        block: u32,
    },
    /// No address space is available for the blocks.
    #[error("no address space for {bytes} bytes of blocks: {source}")]
    Memory {
        /// Requested size in bytes.
        bytes: u64,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// A file operation failed.
    #[error("{}: {action}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Operation that failed.
        action: &'static str,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The path is neither a regular file nor a block device.
    #[error("{}: neither a regular file nor a block device", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Another controller has the file locked.
    #[error("{}: {holder} has it locked; end that process, or use a copy", path.display())]
    Locked {
        /// Path of the file.
        path: PathBuf,
        /// Numbers and names of the processes that hold the lock, as far as this user may see them.
        holder: String,
    },
    /// O_DIRECT does not work with this file.
    #[error("{}: {reason}", path.display())]
    Direct {
        /// Path of the file.
        path: PathBuf,
        /// Reason, and remedy.
        reason: String,
    },
    /// A thread could not be started.
    #[error("cannot start service thread {index} of {threads}: {source}; use fewer with `threads=N`")]
    Thread {
        /// Index of the thread.
        index: usize,
        /// Number of service threads.
        threads: usize,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The specification is invalid.
    #[error("software controller: {0}")]
    Spec(#[from] crate::spec::SpecError),
    /// The model of a drive cannot be read.
    #[error("software controller: {0}")]
    Model(#[from] crate::soft::model::ModelError),
}

/// Handle that ends the threads when its last clone is dropped.
#[derive(Debug)]
struct Handle {
    core: Arc<Core>,
    threads: Threads,
    /// Services that waiting threads assist.
    assisted: Mutex<Vec<Registration>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.shell.stop();
        self.assisted.lock().clear();
        self.threads.join(&self.core.shell);
        self.core.report_late();
    }
}

/// A running software controller. Its clones, and the parts of [`SoftController::attachment`], keep it running.
#[derive(Clone, Debug)]
pub struct SoftController(Arc<Handle>);

impl SoftController {
    /// Opens the stores and starts the threads. The controller is disabled, as after power-on.
    ///
    /// # Errors
    /// - [`SoftError::Config`] if a limit is violated; [`SoftError::NoSize`] or [`SoftError::Size`] if a namespace has
    ///   no size or no whole blocks.
    /// - [`SoftError::Memory`] if no address space is available for blocks or doorbells.
    /// - [`SoftError::NotAFile`], [`SoftError::Locked`], [`SoftError::Direct`] or [`SoftError::File`] if a file cannot
    ///   be used.
    /// - [`SoftError::Model`] if the model of a drive cannot be read, and [`SoftError::Config`] if this machine is too slow for it.
    /// - [`SoftError::Thread`] if a thread cannot be started.
    pub fn start(config: SoftConfig) -> Result<Self, SoftError> {
        Self::start_with(config, service::Shared::run)
    }

    /// Starts a controller whose service threads do nothing until its end, as if they never got a processor.
    #[cfg(test)]
    pub(crate) fn start_without_service(config: SoftConfig) -> Result<Self, SoftError> {
        Self::start_with(config, service::Shared::stand_by)
    }

    fn start_with(mut config: SoftConfig, run: fn(&service::Shared, &Core)) -> Result<Self, SoftError> {
        let model = config.take_limits_of_model()?;
        if let Some(reason) = config.complaint() {
            return Err(SoftError::Config { reason });
        }
        let namespaces = config.namespaces.iter().map(Namespace::open).collect::<Result<Vec<_>, _>>()?;
        let threads = config.service_threads();
        if let Some(model) = &model {
            let capacity = Capacity::measure(model);
            let checked = capacity.check(model, threads, crate::processors::to_spin_on());
            checked.map_err(|reason| SoftError::Config { reason })?;
        }
        let described: Vec<String> = namespaces.iter().map(|n| n.store.describe()).collect();
        let timed_by = model.as_ref().map_or_else(String::new, |model| format!(", {model}"));
        let name = format!("soft:{}{timed_by}", described.join(" + "));
        let pairs = config.max_queue_pairs;
        let core = Arc::new(Core {
            shell: Shell::new(
                name,
                Registers::new(port::capabilities(&config), identify::VERSION),
                (pairs, config.doorbell_stride),
                config.streaming,
                threads,
            )
            .map_err(|source| SoftError::Memory { bytes: Doorbells::bytes(pairs, config.doorbell_stride), source })?,
            faulty: config.faults.touches_commands(),
            halt: AtomicU32::new(0),
            page_shift: AtomicU32::new(12),
            write_through: AtomicBool::new(false),
            faults: fault::DeviceFaults::default(),
            counters: (0..=pairs).map(|_| CachePadded::default()).collect(),
            errors: Mutex::default(),
            events: Mutex::default(),
            namespaces,
            config,
            path_ns: model.as_ref().map_or(0, |_| host_path::measure()),
            timing: model.map(Timing::new),
            began: Instant::now(),
            timed: AtomicU64::new(0),
            late: AtomicU64::new(0),
        });
        let shell = &core.shell;
        let handle = Arc::new(Handle { core: core.clone(), threads: Threads::default(), assisted: Mutex::default() });
        let unstarted = |index| move |source| SoftError::Thread { index, threads, source };
        for index in 0..threads {
            let service = Arc::new(service::Shared::new(core.clone(), index));
            handle.assisted.lock().push(Registration::new(service.clone()));
            let (core, idle) = (core.clone(), service.clone());
            let started =
                handle.threads.start(shell, index, format!("soft-nvme-{index}"), move || run(&service, &core));
            started.inspect_err(|_| idle.end()).map_err(unstarted(index))?;
        }
        let manager = manager::Manager::new(core.clone());
        let started = handle.threads.start(shell, threads, "soft-nvme-admin".into(), move || manager.run());
        started.map_err(unstarted(threads))?;
        handle.threads.all_started(shell);
        tracing::debug!(device = %core.shell.name, threads, path_ns = core.path_ns, "software controller started");
        if core.config.faults != fault::FaultPlan::default() {
            tracing::info!(device = %core.shell.name, plan = ?core.config.faults, "faults are injected");
        }
        Ok(Self(handle))
    }

    /// Returns the registers and the address space for a driver. The controller runs as long as one of them lives.
    pub fn attachment(&self) -> Attachment {
        Attachment { port: Arc::new(port::SoftPort(self.0.clone())), dma: Arc::new(port::SoftDma(self.0.clone())) }
    }

    /// Returns the controller's name, as in `soft:mem 256 MiB` or `soft:file edges.img 1 GiB (io_uring), model pm1743`.
    #[cfg(feature = "internals")]
    pub fn name(&self) -> &str {
        &self.0.core.shell.name
    }

    /// Returns the configuration that the controller was started with.
    #[cfg(feature = "internals")]
    pub fn config(&self) -> &SoftConfig {
        &self.0.core.config
    }

    /// Returns the number of threads that process I/O queues.
    #[cfg(feature = "internals")]
    pub fn service_threads(&self) -> usize {
        self.0.core.shell.mail.len()
    }

    /// Returns the counters of the I/O queues since the start. Counters of active queues may lag by one batch.
    #[cfg(feature = "internals")]
    pub fn statistics(&self) -> Statistics {
        let counts = self.0.core.counters.iter().enumerate().map(|(i, c)| c.read(i as u16));
        Statistics { queues: counts.filter(|q| q.commands > 0).collect() }
    }
}
