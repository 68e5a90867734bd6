//! A remote controller as the driver sees it: registers, doorbells and queues in memory. Threads carry the commands.
//!
//! An I/O queue pair belongs to service thread `(queue - 1) mod threads`. One more thread, the manager, has the
//! registers, the admin queue, Keep Alive and the connection's recovery.

mod admin;
mod events;
mod formats;
mod kernels;
mod manager;
mod recovery;
mod service;

use crate::memory::{DmaError, DmaRegion, Region, RemoteMemory, Space};
use crate::nvme::fabrics::{
    Association, FabricsConfig, FabricsError, First, Limits, PAGE_SHIFT, Paths, Queue, Registrar, TcpTransport,
    Transport,
};
use crate::nvme::ring_service::address::Streaming;
use crate::nvme::ring_service::{Doorbells, HasDoorbells, Registers, RingSetup, Shell, Threads, capabilities};
use crate::nvme::{Attachment, CapsulePlan, CapsuleQueue, CapsuleQueues, DmaSpace, DoorbellPages, Port, PortError};
use crate::wire::nvme::{Cap, cc, register};
use formats::Formats;
#[cfg(feature = "internals")]
use kernels::KernelCounters;
use kernels::{KernelQueue, KernelQueues};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

/// Doorbells are 128 bytes apart: two that different threads poll never share a cache line, nor a pair of lines.
const STRIDE: u8 = 5;
/// Number of I/O queue pairs that are requested unless the options limit them.
const DEFAULT_QUEUES: u16 = 128;
/// Message of the manager to a service thread.
enum Message {
    /// A new queue pair: its rings, and its connection.
    Add(RingSetup, RingSetup, Box<Queue>),
    /// A new connection for a queue pair whose connection was lost.
    Attach(u16, Box<Queue>),
    /// The association was lost: completes all commands in flight with Host Pathing Error.
    Detach(mpsc::Sender<()>),
    /// Drops a queue pair.
    Remove(u16, mpsc::Sender<()>),
    /// Drops all queue pairs, without completions.
    Reset(mpsc::Sender<()>),
    /// Returns the identifier on the wire of a command.
    Find(u16, u16, mpsc::Sender<Option<u16>>),
}

/// State of the association, as the service threads see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Commands are carried.
    Open,
    /// Commands wait for the association.
    Waiting,
    /// Commands fail.
    Closed,
}

/// State that the threads and the users share.
struct Core {
    shell: Shell<Message>,
    config: FabricsConfig,
    formats: Formats,
    /// Registration of memory, if kernels can drive connections of the transport.
    registrar: Option<Arc<dyn Registrar>>,
    kernels: KernelQueues,
    flow: Mutex<Flow>,
    /// First error of a connection since the association was established.
    loss: Mutex<Option<FabricsError>>,
    /// Cause of the last loss of the association.
    last_loss: Mutex<Option<String>>,
    /// Reason why registers cannot be read: no association, after all attempts.
    failure: Mutex<Option<String>>,
    limits: Limits,
    /// Capabilities register of the remote controller.
    capabilities: Cap,
    /// Port in use, or the last one.
    port: Mutex<String>,
    /// Namespace whose access decides which port is used; 0 if the controller does not report it.
    namespace: AtomicU32,
    /// Number of I/O queue pairs that may be created.
    pairs: u16,
    counters: Shared,
}

#[derive(Debug, Default)]
struct Shared {
    commands: AtomicU64,
    failed: AtomicU64,
    losses: AtomicU64,
    reconnects: AtomicU64,
    port_changes: AtomicU64,
    keep_alives: AtomicU64,
    /// Of the kernels' queues that were deleted.
    kernel_commands: AtomicU64,
    host_posts: AtomicU64,
    invalid_doorbells: AtomicU64,
}

/// Counters of a remote controller since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg(feature = "internals")]
pub struct Counters {
    /// I/O commands that host threads carried and that got a response.
    pub commands: u64,
    /// I/O commands among them that completed with an error.
    pub failed: u64,
    /// I/O commands that kernels posted themselves and whose response they took.
    pub kernel_commands: u64,
    /// Work requests that host threads posted on the queue pairs of kernels, after the Connect command of each. 0 unless
    /// the driver is faulty.
    pub host_posts: u64,
    /// Losses of the association.
    pub losses: u64,
    /// Successful attempts to connect again.
    pub reconnects: u64,
    /// Attempts among them that took another port of the subsystem.
    pub port_changes: u64,
    /// Responses to Keep Alive.
    pub keep_alives: u64,
    /// Invalid values that were written to doorbells.
    pub invalid_doorbells: u64,
}

impl Core {
    fn flow(&self) -> Flow {
        *self.flow.lock()
    }

    /// Reports the loss of a connection. The manager recovers all of them.
    fn report(&self, error: FabricsError) {
        self.loss.lock().get_or_insert(error);
        self.shell.wake_manager();
    }

    /// Ends a queue of kernels for good. Returns false if there is none.
    fn end_kernel_queue(&self, queue: u16) -> bool {
        let Some(k) = self.kernels.lock().remove(&queue) else { return false };
        k.close(true);
        let c = k.counters();
        self.counters.kernel_commands.fetch_add(c.commands, Ordering::Relaxed);
        self.counters.host_posts.fetch_add(c.host_posts, Ordering::Relaxed);
        true
    }
}

impl HasDoorbells for Core {
    fn doorbells(&self) -> &Doorbells {
        &self.shell.doorbells
    }

    fn invalid_value(&self) {
        self.counters.invalid_doorbells.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the threads when its last clone is dropped.
struct Handle {
    core: Arc<Core>,
    threads: Threads,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.shell.stop();
        self.threads.join(&self.core.shell);
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteController({})", self.core.shell.name)
    }
}

/// A connected controller of another machine. Its clones, and the parts of [`RemoteController::attachment`], keep the
/// connection.
#[derive(Clone, Debug)]
pub struct RemoteController(Arc<Handle>);

impl RemoteController {
    /// Connects the admin queue, identifies the controller and starts the threads. The driver's enable completes the
    /// association; I/O queues connect when the driver creates them.
    ///
    /// # Errors
    /// - [`FabricsError::Options`] or [`FabricsError::Identity`] for invalid options or files.
    /// - [`FabricsError::Resolve`], [`FabricsError::Unreachable`] or [`FabricsError::Lost`] without a connection.
    /// - [`FabricsError::Refused`] or [`FabricsError::AuthenticationRequired`] if the target does not accept this host.
    /// - [`FabricsError::TimedOut`], [`FabricsError::Protocol`], [`FabricsError::Terminated`], [`FabricsError::Command`],
    ///   [`FabricsError::NotReady`] or [`FabricsError::Unsupported`] if the target is faulty, or lacks what is needed.
    /// - [`FabricsError::Inaccessible`] if the port does not execute commands for the namespace now.
    /// - [`FabricsError::NoPort`] if several ports are named and none can be used.
    /// - [`FabricsError::System`] without memory, random bytes or threads.
    pub fn connect(config: &FabricsConfig) -> Result<Self, FabricsError> {
        Self::connect_over(config, Arc::new(TcpTransport::default()))
    }

    /// Connects as [`RemoteController::connect`] does, over any transport.
    pub(crate) fn connect_over(config: &FabricsConfig, transport: Arc<dyn Transport>) -> Result<Self, FabricsError> {
        let mut paths = Paths::new(config, &transport)?;
        let wanted = config.queues.unwrap_or(DEFAULT_QUEUES);
        let (established, pairs) = paths.establish(
            First::Current,
            || false,
            |_, mut e| {
                let pairs = e.association.request_queues(wanted.into())?.min(1024) as u16;
                Ok((e, pairs))
            },
        )?;
        let limits = established.limits;
        let name = config.to_string();
        let threads = config.service_threads().min(pairs.into());
        let system = |what| move |source| FabricsError::System { what, source };
        let core = Arc::new(Core {
            shell: Shell::new(
                name,
                Registers::new(
                    driver_capabilities(&established.association, config, &limits, transport.registrar().is_some()),
                    established.association.version,
                ),
                (pairs, STRIDE),
                Streaming::Auto,
                threads,
            )
            .map_err(system("memory for doorbells"))?,
            formats: Formats::default(),
            registrar: transport.registrar().cloned(),
            kernels: KernelQueues::default(),
            flow: Mutex::new(Flow::Open),
            loss: Mutex::new(None),
            last_loss: Mutex::new(None),
            failure: Mutex::new(None),
            limits,
            capabilities: established.association.cap,
            port: Mutex::new(paths.dialer().config.peer()),
            namespace: AtomicU32::new(0),
            pairs,
            counters: Shared::default(),
            config: config.clone(),
        });
        let handle = Handle { core: core.clone(), threads: Threads::default() };
        let no_thread = system("a thread that carries commands");
        for index in 0..threads {
            let service = service::Service::new(core.clone(), index);
            let started = handle.threads.start(&core.shell, index, format!("wb-nvmf-{index}"), move || service.run());
            started.map_err(no_thread)?;
        }
        let manager = manager::Manager::new(core.clone(), paths, established);
        let started = handle.threads.start(&core.shell, threads, "wb-nvmf-admin".into(), move || manager.run());
        started.map_err(no_thread)?;
        handle.threads.all_started(&core.shell);
        tracing::debug!(device = %core.shell.name, threads, pairs, "connected");
        Ok(Self(Arc::new(handle)))
    }

    /// Returns the registers and the address space for a driver.
    pub fn attachment(&self) -> Attachment {
        Attachment { port: Arc::new(RemotePort(self.0.clone())), dma: Arc::new(RemoteDma(self.0.clone())) }
    }

    /// Returns the limits that the controller reports.
    #[cfg(feature = "internals")]
    pub fn limits(&self) -> Limits {
        self.0.core.limits
    }

    /// Returns address and port of the subsystem's port that is in use, or was the last one.
    #[cfg(feature = "internals")]
    pub fn port(&self) -> String {
        self.0.core.port.lock().clone()
    }

    /// Returns the cause of the last loss of the association; `None` if it was never lost.
    #[cfg(feature = "internals")]
    pub fn last_loss(&self) -> Option<String> {
        self.0.core.last_loss.lock().clone()
    }

    /// Returns the counters since the controller was opened.
    #[cfg(feature = "internals")]
    pub fn counters(&self) -> Counters {
        let c = &self.0.core.counters;
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let now =
            self.0.core.kernels.lock().values().map(|k| k.counters()).fold(
                KernelCounters { commands: read(&c.kernel_commands), host_posts: read(&c.host_posts) },
                |a, b| KernelCounters { commands: a.commands + b.commands, host_posts: a.host_posts + b.host_posts },
            );
        Counters {
            kernel_commands: now.commands,
            host_posts: now.host_posts,
            commands: read(&c.commands),
            failed: read(&c.failed),
            losses: read(&c.losses),
            reconnects: read(&c.reconnects),
            port_changes: read(&c.port_changes),
            keep_alives: read(&c.keep_alives),
            invalid_doorbells: read(&c.invalid_doorbells),
        }
    }
}

/// Returns the Controller Capabilities for the driver: those of the remote controller that hold for queues in memory.
fn driver_capabilities(a: &Association, config: &FabricsConfig, limits: &Limits, by_kernels: bool) -> u64 {
    const { assert!(PAGE_SHIFT == 12) };
    // Kernels have as many commands in flight as a queue has entries, less one.
    let entries = match (limits.max_commands, by_kernels) {
        (0, _) | (_, false) => limits.queue_entries,
        (most, true) => limits.queue_entries.min(1 << (u32::from(most) + 1).ilog2()).max(2),
    };
    // The driver's enable may include a new connection, whose steps have time limits of their own.
    let ports = config.addresses().count() as u128;
    let steps = (config.connect_timeout.as_millis() * 4 * ports).div_ceil(500).min(255) as u64;
    let timeout = (u64::from(a.cap.timeout_units()) + steps).min(255);
    capabilities(entries, timeout, STRIDE, 0)
}

#[derive(Debug)]
struct RemotePort(Arc<Handle>);

impl Port for RemotePort {
    fn read32(&self, offset: u32) -> Result<u32, PortError> {
        let core = &self.0.core;
        // The other registers tell nothing about the controller's state, so they stay readable.
        if offset == register::CSTS
            && let Some(reason) = &*core.failure.lock()
        {
            return Err(PortError::Lost { device: core.shell.name.clone(), offset, reason: reason.clone() });
        }
        Ok(core.shell.registers.read(offset))
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
        let core = &self.0.core;
        if offset == register::CC && value & cc::EN == 0 {
            // A reset connects again. Until the manager has processed it, the controller is still ready.
            *core.failure.lock() = None;
        }
        if !core.shell.write(offset, value) {
            core.invalid_value();
        }
        Ok(())
    }

    fn doorbells(&self) -> Option<DoorbellPages> {
        self.0.core.shell.doorbells.window()
    }

    fn remote_capabilities(&self) -> Option<Cap> {
        Some(self.0.core.capabilities)
    }

    fn capsules(&self) -> Option<&dyn CapsuleQueues> {
        self.0.core.registrar.is_some().then_some(self as &dyn CapsuleQueues)
    }

    fn name(&self) -> String {
        self.0.core.shell.name.clone()
    }

    fn kind(&self) -> &'static str {
        "nvmf"
    }
}

impl CapsuleQueues for RemotePort {
    fn announce(&self, queue: u16, plan: CapsulePlan) -> Arc<dyn CapsuleQueue> {
        let core = &self.0.core;
        core.end_kernel_queue(queue);
        let kernels = Arc::new(KernelQueue::new(plan, core.registrar.clone()));
        core.kernels.lock().insert(queue, kernels.clone());
        kernels
    }

    fn path(&self) -> String {
        self.0.core.registrar.as_ref().map_or_else(String::new, |r| r.path())
    }
}

#[derive(Debug)]
struct RemoteDma(Arc<Handle>);

impl DmaSpace for RemoteDma {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        self.0.core.shell.table.allocate(space, bytes)
    }

    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        let core = &self.0.core;
        let mapped = core.shell.table.map(region);
        let Some(registrar) = &core.registrar else { return mapped };
        let keys = match (registrar.register(region, true), &mapped) {
            (Ok(keys), _) => keys,
            (Err(_), Err(_)) => return mapped,
            (Err(reason), Ok(_)) => return Err(DmaError::Unreachable { device: core.shell.name.clone(), reason }),
        };
        let remote = Some(RemoteMemory { address: keys.address(), key: keys.remote_key() });
        Ok(match mapped {
            Ok(m) => DmaRegion { remote, guard: Arc::new((keys, m.guard.clone())), ..m },
            // Memory of a GPU has a key alone, as no host thread reaches it.
            Err(_) => DmaRegion {
                region: region.clone(),
                offset: 0,
                bytes: region.len(),
                iova: keys.address(),
                remote,
                guard: Arc::new(keys),
            },
        })
    }
}
