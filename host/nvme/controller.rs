//! Bring-up and shutdown: a controller is disabled or ready, and the type says which.

use super::admin::{ADMIN_BYTES, ADMIN_DEPTH, AdminQueue, Wait};
use super::cmb::forget_buffer;
use super::error::{gone, no_longer_ready};
use super::port::touch;
use super::queue_ids::QueueIds;
use super::{Attachment, CommandLimits, DmaSpace, MemoryBuffer, Notice, NvmeError, Port, Quirks, WriteCache};
use crate::memory::mapping::MappingBackends;
use crate::memory::{DmaRegion, Region, Space, WeakRegion};
use crate::wire::nvme::identify::{ControllerType, IdentifyController};
use crate::wire::nvme::{Cap, cc, csts, register};
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// log2 of the memory page that the driver uses (CC.MPS).
pub(super) const PAGE_SHIFT: u32 = 12;
/// Bytes of a memory page.
pub(super) const PAGE_BYTES: usize = 1 << PAGE_SHIFT;
/// The unit of CAP.TO (NVMe Base 2.1, 3.1.4.1).
const TIMEOUT_UNIT: Duration = Duration::from_millis(500);
/// An admin command gets at least this long unless told otherwise, however small CAP.TO is: CAP.TO speaks of enabling, and a busy device may
/// take a second for a queue.
const COMMAND_FLOOR: Duration = Duration::from_secs(5);
/// A shutdown gets as long as a command where RTD3E says less or nothing, and at most this long.
const SHUTDOWN_CEILING: Duration = Duration::from_secs(60);
/// log2 of the queue entries that the driver has: 64 and 16 bytes.
const SQ_ENTRY_SHIFT: u8 = 6;
const CQ_ENTRY_SHIFT: u8 = 4;
/// CAP.CSS: the NVM command set (NVMe Base 2.1, 3.1.4.1).
const CSS_NVM: u8 = 1;

/// The controller takes no commands; registers can be read.
#[derive(Debug)]
pub struct Disabled(());

/// The controller takes commands.
#[derive(Debug)]
pub struct Ready {
    admin: Mutex<AdminQueue>,
    pub(super) identify: IdentifyController,
    pub(super) queues: QueueIds,
    /// Doorbell windows as kernels see them, one for each address space: memory can be registered with a GPU only once.
    windows: Mutex<Vec<WeakRegion>>,
    /// Counts resets: queues of an earlier generation are gone.
    generation: AtomicU32,
    /// The volatile write cache, once somebody has asked for it.
    write_cache: Mutex<Option<WriteCache>>,
    /// The way to GPU memory, once somebody has asked for one.
    pub(super) mapping: OnceLock<MappingBackends>,
    /// The controller memory buffer, once somebody has asked for it.
    pub(super) buffer: Mutex<Option<Arc<MemoryBuffer>>>,
    pub(super) limits: OnceLock<CommandLimits>,
}

/// An NVMe controller. `S` is [`Disabled`] or [`Ready`].
///
/// Dropping a ready controller disables it, waiting no longer than CAP.TO.
#[derive(Debug)]
pub struct Controller<S> {
    // The core comes first: it disables the controller before the state's memory goes.
    pub(super) core: Core,
    pub(super) state: S,
}

/// What both states have. Its drop is what ends a controller that was not shut down.
pub(super) struct Core {
    pub(super) device: String,
    pub(super) port: Arc<dyn Port>,
    pub(super) dma: Arc<dyn DmaSpace>,
    pub(super) cap: Cap,
    pub(super) quirks: Quirks,
    version: u32,
    /// Units of 500 ms.
    ready_units: u32,
    command_deadline_ns: AtomicU64,
    /// Set while CC.EN may be 1: the memory of the admin queues, which the controller may write to.
    admin_memory: Option<DmaRegion>,
}

impl Core {
    fn read(&self, offset: u32, name: &'static str) -> Result<u32, NvmeError> {
        // Once the system has said that it left, its registers are not worth reading, and may not be there to read.
        if self.port.notice() == Some(Notice::Gone) {
            return Err(gone(&self.device, name, u32::MAX));
        }
        let value = self.port.read32(offset)?;
        // No register that is read here can be all ones on a controller that is there.
        if value == u32::MAX {
            return Err(gone(&self.device, name, value));
        }
        Ok(value)
    }

    pub(super) fn csts(&self) -> Result<u32, NvmeError> {
        self.read(register::CSTS, "CSTS")
    }

    /// How long CSTS.RDY may take to follow CC.EN: CAP.TO, or CRTO where that says more.
    fn ready_timeout(&self) -> Duration {
        TIMEOUT_UNIT * self.ready_units.max(1)
    }

    /// CAP.TO as a time. It speaks of enabling; what a controller may take for that is what its admin commands get at least.
    fn least_command_deadline(cap: Cap) -> Duration {
        TIMEOUT_UNIT * u32::from(cap.timeout_units()).max(1)
    }

    fn command_deadline(&self) -> Duration {
        Duration::from_nanos(self.command_deadline_ns.load(Ordering::Relaxed))
    }

    fn set_command_deadline(&self, deadline: Duration) {
        self.command_deadline_ns.store(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn wait_ready(&self, ready: bool, what: &'static str) -> Result<(), NvmeError> {
        let within = self.ready_timeout();
        let started = Instant::now();
        let mut wait = Wait::new();
        loop {
            // Read the clock first: the register is looked at once more after the time is up.
            let waited = started.elapsed();
            let csts = self.csts()?;
            if (csts & csts::RDY != 0) == ready {
                return Ok(());
            }
            // While a controller is being disabled an old fatal status is what is being cleared.
            if ready && csts & csts::CFS != 0 {
                let during = "while it was being enabled".to_owned();
                return Err(NvmeError::Fatal { device: self.device.clone(), during, csts });
            }
            if waited > within {
                return Err(NvmeError::NotReady { device: self.device.clone(), what, waited: within, csts });
            }
            wait.pause();
        }
    }

    /// Clears CC.EN and waits for CSTS.RDY to follow (NVMe Base 2.1, 3.5.1).
    fn stop(&self) -> Result<(), NvmeError> {
        let config = self.read(register::CC, "CC")?;
        if config & cc::EN != 0 {
            self.port.write32(register::CC, config & !(cc::EN | cc::SHN_MASK))?;
            std::thread::sleep(self.quirks.delay_before_ready);
        }
        self.wait_ready(false, "become idle")
    }

    /// A predecessor may have died while it enabled the controller. CC.EN must not be cleared before CSTS.RDY has followed it
    /// (NVMe Base 2.1, 3.1.4.5); one that never gets ready is stopped all the same.
    fn let_predecessor_finish(&self) -> Result<(), NvmeError> {
        let ready_or_fatal = csts::RDY | csts::CFS;
        if self.read(register::CC, "CC")? & cc::EN == 0 || self.csts()? & ready_or_fatal != 0 {
            return Ok(());
        }
        match self.wait_ready(true, "become ready for its former owner") {
            Err(NvmeError::NotReady { .. } | NvmeError::Fatal { .. }) => Ok(()),
            other => other,
        }
    }

    /// Stops the controller and frees the memory of its admin queues.
    fn disable(&mut self) -> Result<(), NvmeError> {
        self.stop()?;
        self.admin_memory = None;
        Ok(())
    }

    /// The admin queues of a controller that is not enabled yet, over zeroed memory.
    fn admin_queue(&self, memory: &DmaRegion) -> Result<AdminQueue, NvmeError> {
        let host = memory.host().ok_or_else(|| NvmeError::Options {
            device: self.device.clone(),
            reason: "its address space gave memory that the host cannot reach for the admin queue".to_owned(),
        })?;
        let (device, port, stride) = (self.device.clone(), self.port.clone(), self.cap.doorbell_stride());
        Ok(AdminQueue::new(device, port, memory.clone(), host, stride, self.command_deadline()))
    }

    /// Tells a stopped controller where its admin queues are, and enables it.
    fn start(&self, memory: &DmaRegion) -> Result<(), NvmeError> {
        let (sq, cq) = AdminQueue::addresses(memory);
        let size = u32::from(ADMIN_DEPTH - 1);
        // Completions are polled for. Pin interrupts have nobody to answer them; MSI-X has a mask of its own, and these registers are
        // undefined with it (NVMe Base 2.1, 3.1.4.3).
        if !self.port.uses_msix() {
            self.port.write32(register::INTMS, u32::MAX)?;
        }
        self.port.write32(register::AQA, size << 16 | size)?;
        self.port.write64(register::ASQ, sq)?;
        self.port.write64(register::ACQ, cq)?;
        self.port.write32(register::CC, cc::EN | cc::mps(PAGE_SHIFT) | cc::IOSQES_64 | cc::IOCQES_16)?;
        self.wait_ready(true, "become ready")
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.admin_memory.is_none() {
            return;
        }
        if let Err(e) = self.disable() {
            tracing::warn!(device = self.device, error = %e, "not disabled; the memory of its admin queues is kept");
            std::mem::forget(self.admin_memory.take());
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.device, self.cap)
    }
}

impl<S> Controller<S> {
    /// The device in a few words, as the port names it.
    pub fn name(&self) -> &str {
        &self.core.device
    }

    /// The kind of device path: `soft`, `qtest`, ...
    pub fn kind(&self) -> &'static str {
        self.core.port.kind()
    }

    /// Capabilities.
    pub fn cap(&self) -> Cap {
        self.core.cap
    }

    /// Version as major, minor, tertiary (VS).
    pub fn version(&self) -> (u16, u8, u8) {
        ((self.core.version >> 16) as u16, (self.core.version >> 8) as u8, self.core.version as u8)
    }

    /// The registers.
    pub fn port(&self) -> &Arc<dyn Port> {
        &self.core.port
    }

    /// How the device gets addresses for memory.
    pub fn dma(&self) -> &Arc<dyn DmaSpace> {
        &self.core.dma
    }

    /// What is done otherwise than the specification says, because of the controller that this is.
    pub fn quirks(&self) -> Quirks {
        self.core.quirks
    }

    /// How long one admin command may take: CAP.TO, and not less than five seconds unless it was set.
    pub fn command_deadline(&self) -> Duration {
        self.core.command_deadline()
    }
}

impl Controller<Disabled> {
    /// Looks at the registers. Writes nothing: a controller that somebody else drives is not disturbed by it.
    pub fn new(attachment: Attachment) -> Result<Self, NvmeError> {
        let Attachment { port, dma } = attachment;
        let device = port.name();
        let cap = Cap(port.read64(register::CAP)?);
        if cap.0 == u64::MAX {
            return Err(gone(&device, "CAP", u32::MAX));
        }
        let version = port.read32(register::VS)?;
        if version == u32::MAX {
            return Err(gone(&device, "VS", version));
        }
        if cap.0 == 0 || version == 0 {
            return Err(NvmeError::NotAController { device, cap: cap.0, version });
        }
        if cap.min_page_shift() > PAGE_SHIFT {
            return Err(NvmeError::PageSize { device, smallest: 1 << cap.min_page_shift() });
        }
        if cap.command_sets() & CSS_NVM == 0 {
            return Err(NvmeError::CommandSet { device, css: cap.command_sets() });
        }
        let quirks = port.pci_id().map(Quirks::of).unwrap_or_default();
        if quirks.long_entries {
            return Err(NvmeError::EntrySizes { device, sq_shift: SQ_ENTRY_SHIFT + 1, cq_shift: CQ_ENTRY_SHIFT });
        }
        // Ready with media (CRTO 15:0); it may pass what CAP.TO can hold.
        let crto = if cap.ready_timeouts() { port.read32(register::CRTO)? & 0xffff } else { 0 };
        let ready_units = u32::from(cap.timeout_units()).max(crto);
        let command_deadline_ns = AtomicU64::new(0);
        let core =
            Core { device, port, dma, cap, quirks, version, ready_units, command_deadline_ns, admin_memory: None };
        core.set_command_deadline(Core::least_command_deadline(cap).max(COMMAND_FLOOR));
        Ok(Self { core, state: Disabled(()) })
    }

    /// Sets how long one admin command may take.
    pub fn set_command_deadline(&mut self, deadline: Duration) {
        self.core.set_command_deadline(deadline);
    }

    /// Sets what is done otherwise, in place of what the table has for this controller.
    pub fn set_quirks(&mut self, quirks: Quirks) {
        self.core.quirks = quirks;
    }

    /// Whether a predecessor left the controller enabled.
    pub fn is_enabled(&self) -> Result<bool, NvmeError> {
        Ok(self.core.read(register::CC, "CC")? & cc::EN != 0)
    }

    /// Enables the controller, disabling it first if a predecessor left it enabled; identifies it and asks for I/O queues
    /// (NVMe Base 2.1, 3.5.1). On failure the controller comes back disabled, as far as it let itself be.
    pub fn enable(mut self) -> Result<Controller<Ready>, (Box<Self>, NvmeError)> {
        let admin = match self.bring_up() {
            Ok(admin) => admin,
            Err(e) => return Err((Box::new(self.disabled_after_failure()), e)),
        };
        let state = Ready {
            admin: Mutex::new(admin),
            identify: IdentifyController::new(&[]),
            queues: QueueIds::new(0),
            windows: Mutex::new(Vec::new()),
            generation: AtomicU32::new(0),
            write_cache: Mutex::new(None),
            mapping: OnceLock::new(),
            buffer: Mutex::new(None),
            limits: OnceLock::new(),
        };
        let mut ready = Controller { core: self.core, state };
        match ready.read_identity() {
            Ok(()) => Ok(ready),
            Err(e) => {
                let disabled = Controller { core: ready.core, state: Disabled(()) };
                Err((Box::new(disabled.disabled_after_failure()), e))
            }
        }
    }

    fn disabled_after_failure(mut self) -> Self {
        if self.core.admin_memory.is_some()
            && let Err(e) = self.core.disable()
        {
            tracing::warn!(device = self.core.device, error = %e, "not disabled after a failed start; its admin memory is kept");
            std::mem::forget(self.core.admin_memory.take());
        }
        self
    }

    fn bring_up(&mut self) -> Result<AdminQueue, NvmeError> {
        self.core.let_predecessor_finish()?;
        self.core.disable()?;
        forget_buffer(self.core.port.as_ref(), self.core.cap)?;
        // Only the host uses the admin queue, so its memory is the process's own whatever kernels run on.
        let memory = self.core.dma.allocate(&Space::cpu(), ADMIN_BYTES)?;
        let admin = self.core.admin_queue(&memory)?;
        self.core.admin_memory = Some(memory.clone());
        self.core.start(&memory)?;
        Ok(admin)
    }
}

impl Controller<Ready> {
    pub(super) fn admin(&self) -> MutexGuard<'_, AdminQueue> {
        self.state.admin.lock()
    }

    /// What the controller says about itself, and how many I/O queues it grants.
    fn read_identity(&mut self) -> Result<(), NvmeError> {
        self.state.identify = self.read_identify()?;
        let device = || self.core.device.clone();
        let identify = &self.state.identify;
        let (sq_shift, cq_shift) = (identify.sq_entry_shift().0, identify.cq_entry_shift().0);
        // Zero is what a controller says that fills in nothing; the specification leaves it only 6 and 4.
        if sq_shift > SQ_ENTRY_SHIFT || cq_shift > CQ_ENTRY_SHIFT {
            return Err(NvmeError::EntrySizes { device: device(), sq_shift, cq_shift });
        }
        match identify.controller_type() {
            ControllerType::Discovery => {
                return Err(NvmeError::NotIo { device: device(), kind: "a discovery controller" });
            }
            ControllerType::Administrative => {
                return Err(NvmeError::NotIo { device: device(), kind: "an administrative controller" });
            }
            _ => {}
        }
        self.state.queues = QueueIds::new(self.negotiate_queues()?);
        Ok(())
    }

    /// Sets how long one admin command may take.
    pub fn set_command_deadline(&mut self, deadline: Duration) {
        self.follow_deadline(deadline, Duration::ZERO);
    }

    /// Gives admin commands what the commands of a volume get, and not less than CAP.TO.
    pub(crate) fn give_commands(&self, deadline: Duration) {
        self.follow_deadline(deadline, Core::least_command_deadline(self.core.cap));
    }

    fn follow_deadline(&self, deadline: Duration, least: Duration) {
        self.core.set_command_deadline(deadline.max(least));
        self.admin().set_deadline(self.core.command_deadline());
    }

    /// Whether the controller is there and well: reads CSTS once.
    pub fn check(&self) -> Result<(), NvmeError> {
        let csts = self.core.csts()?;
        let device = || self.core.device.clone();
        if csts & csts::CFS != 0 {
            return Err(NvmeError::Fatal { device: device(), during: "while it was ready".to_owned(), csts });
        }
        if csts & csts::RDY == 0 {
            return Err(no_longer_ready(self.core.port.as_ref(), &self.core.device, csts));
        }
        Ok(())
    }

    pub(super) fn known_write_cache(&self) -> Option<WriteCache> {
        *self.state.write_cache.lock()
    }

    pub(super) fn remember_write_cache(&self, cache: Option<WriteCache>) {
        *self.state.write_cache.lock() = cache;
    }

    /// Resets the controller: the way out when it no longer answers. All I/O queues are gone with it and what was in flight
    /// is dropped; each [`QueueSet`](super::QueueSet) works again after its own
    /// [`reset`](super::QueueSet::reset). Not while kernels use the queues: they would run into their deadlines.
    pub fn reset(&self) -> Result<(), NvmeError> {
        let mut admin = self.admin();
        let Some(memory) = &self.core.admin_memory else { return self.check() };
        self.core.stop()?;
        self.state.generation.fetch_add(1, Ordering::AcqRel);
        memory.region.fill(memory.offset, memory.bytes, 0)?;
        self.remember_write_cache(None);
        // Not the old queue over new memory, whatever comes: it would take zeros for completions.
        let mut before = std::mem::replace(&mut *admin, self.core.admin_queue(memory)?);
        admin.inherit_events(&mut before);
        self.core.start(memory)?;
        admin.request_events()?;
        let watched = admin.watches_events();
        drop(admin);
        if watched {
            self.configure_events()?;
        }
        let granted = self.negotiate_queues()?;
        if granted < self.granted_queues() {
            let (device, asked) = (self.core.device.clone(), self.granted_queues());
            return Err(NvmeError::TooManyQueues { device, asked, granted, used: 0 });
        }
        self.restore_buffer()?;
        self.state.queues.find_lost();
        Ok(())
    }

    /// How often the controller was reset.
    pub(super) fn generation(&self) -> u32 {
        self.state.generation.load(Ordering::Acquire)
    }

    /// Ends orderly: deletes I/O queues that are left, notifies the controller of a normal shutdown, waits for it to
    /// finish (NVMe Base 2.1, 3.6.1), then disables it. Bounded by RTD3E, the command deadline and
    /// CAP.TO.
    pub fn shutdown(self) -> Result<Controller<Disabled>, NvmeError> {
        self.delete_left_queues();
        let config = self.core.read(register::CC, "CC")?;
        self.core.port.write32(register::CC, config & !cc::SHN_MASK | cc::SHN_NORMAL)?;
        let reported = Duration::from_micros(u64::from(self.state.identify.shutdown_us()));
        let within = reported.max(self.core.command_deadline()).min(SHUTDOWN_CEILING);
        let started = Instant::now();
        let mut wait = Wait::new();
        loop {
            let waited = started.elapsed();
            let csts = self.core.csts()?;
            if csts & csts::SHST_MASK == csts::SHST_COMPLETE {
                break;
            }
            if csts & csts::CFS != 0 {
                let during = "while it was being shut down".to_owned();
                return Err(NvmeError::Fatal { device: self.core.device.clone(), during, csts });
            }
            if waited > within {
                let what = "finish its shutdown";
                return Err(NvmeError::NotReady { device: self.core.device.clone(), what, waited: within, csts });
            }
            wait.pause();
        }
        self.disable()
    }

    /// Ends at once, without a shutdown notification: commands in flight are dropped.
    pub fn disable(mut self) -> Result<Controller<Disabled>, NvmeError> {
        self.core.disable()?;
        Ok(Controller { core: self.core, state: Disabled(()) })
    }

    /// Queue pairs whose deletion failed: the shutdown that follows ends them, this only says so first.
    fn delete_left_queues(&self) {
        for id in self.state.queues.lost() {
            if let Err(e) = self.delete_sq(id).and_then(|()| self.delete_cq(id)) {
                tracing::debug!(device = self.core.device, queue = id, error = %e, "queue not deleted before the shutdown");
                return;
            }
        }
    }

    /// Bytes of whole pages that the doorbells of all queues lie in. What follows them in the registers is nobody's business.
    pub(super) fn doorbell_bytes(&self) -> usize {
        let last = u16::try_from(self.granted_queues()).unwrap_or(u16::MAX);
        let end = register::cq_head(last, self.core.cap.doorbell_stride()) - register::DOORBELLS;
        (end as usize + size_of::<u32>()).next_multiple_of(PAGE_BYTES)
    }

    /// The doorbell window as kernels of `space` see it; `None` if kernels cannot ring. The error is why not, though there
    /// is a window.
    pub(super) fn doorbell_pages(&self, space: &Space) -> Result<Option<Region>, crate::memory::MemoryError> {
        let Some(window) = self.core.port.doorbells() else { return Ok(None) };
        let mut known = self.state.windows.lock();
        known.retain(|w| w.upgrade().is_some());
        if let Some(region) = known.iter().filter_map(WeakRegion::upgrade).find(|r| r.space().same(space)) {
            return Ok(Some(region));
        }
        let bytes = self.doorbell_bytes().min(window.bytes);
        if window.io_memory && space.gpu_context().is_some() {
            // SAFETY: the port promises that its window is mapped; doorbells may be read, though not what for.
            unsafe { touch(window.base, bytes) };
        }
        let keep = Arc::new(self.core.port.clone());
        // SAFETY: the port promises that its window stays valid while it lives, and `keep` is a share of the port.
        let region = unsafe { space.import_host(window.base, bytes, window.io_memory, keep) }?;
        known.push(region.downgrade());
        Ok(Some(region))
    }
}
