//! Bring-up and shutdown of a controller. Its type tells whether it is disabled or ready.

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

/// log2 of the memory page size that the driver uses (CC.MPS).
pub(super) const PAGE_SHIFT: u32 = 12;
/// Memory page size in bytes.
pub(super) const PAGE_BYTES: usize = 1 << PAGE_SHIFT;
/// Unit of CAP.TO (NVMe Base 2.1, 3.1.4.1).
const TIMEOUT_UNIT: Duration = Duration::from_millis(500);
/// Default minimum deadline of an admin command, however small CAP.TO is. CAP.TO covers only enabling, and a busy
/// device may take a second to create a queue.
const COMMAND_FLOOR: Duration = Duration::from_secs(5);
/// Upper bound of a shutdown's deadline, which is RTD3E or the command deadline, whichever is longer.
const SHUTDOWN_CEILING: Duration = Duration::from_secs(60);
/// log2 of the sizes of queue entries that the driver uses: 64 and 16 bytes.
const SQ_ENTRY_SHIFT: u8 = 6;
const CQ_ENTRY_SHIFT: u8 = 4;
/// CAP.CSS: the NVM command set (NVMe Base 2.1, 3.1.4.1).
const CSS_NVM: u8 = 1;

/// State: the controller accepts no commands; registers can be read.
#[derive(Debug)]
pub struct Disabled(());

/// State: the controller accepts commands.
#[derive(Debug)]
pub struct Ready {
    admin: Mutex<AdminQueue>,
    pub(super) identify: IdentifyController,
    pub(super) queues: QueueIds,
    /// Doorbell pages as regions for kernels, one for each address space: memory can be
    /// registered with a GPU only once.
    windows: Mutex<Vec<WeakRegion>>,
    /// Number of resets. Queues of an earlier generation no longer exist.
    generation: AtomicU32,
    /// State of the volatile write cache, once it was read.
    write_cache: Mutex<Option<WriteCache>>,
    /// Mapping backends for GPU memory, once GPU memory was mapped or a backend was chosen.
    pub(super) mapping: OnceLock<MappingBackends>,
    /// The controller memory buffer, once it was enabled.
    pub(super) buffer: Mutex<Option<Arc<MemoryBuffer>>>,
    pub(super) limits: OnceLock<CommandLimits>,
}

/// An NVMe controller. `S` is [`Disabled`] or [`Ready`].
///
/// Dropping a ready controller disables it, and waits no longer than CAP.TO.
#[derive(Debug)]
pub struct Controller<S> {
    // The core comes first: its drop disables the controller before the state's memory is freed.
    pub(super) core: Core,
    pub(super) state: S,
}

/// State of both kinds of controllers. Its drop disables a controller that was not shut down.
pub(super) struct Core {
    pub(super) device: String,
    pub(super) port: Arc<dyn Port>,
    pub(super) dma: Arc<dyn DmaSpace>,
    pub(super) cap: Cap,
    pub(super) quirks: Quirks,
    version: u32,
    /// Time limit for becoming ready, in units of 500 ms.
    ready_units: u32,
    command_deadline_ns: AtomicU64,
    /// Memory of the admin queues. Set while CC.EN may be 1, because the controller may then write to it.
    admin_memory: Option<DmaRegion>,
}

impl Core {
    fn read(&self, offset: u32, name: &'static str) -> Result<u32, NvmeError> {
        // Once the system has reported that the device left, a read is useless, and the registers may not be mapped.
        if self.port.notice() == Some(Notice::Gone) {
            return Err(gone(&self.device, name, u32::MAX));
        }
        let value = self.port.read32(offset)?;
        // None of the registers that are read here can be all ones while the controller is present.
        if value == u32::MAX {
            return Err(gone(&self.device, name, value));
        }
        Ok(value)
    }

    pub(super) fn csts(&self) -> Result<u32, NvmeError> {
        self.read(register::CSTS, "CSTS")
    }

    /// Returns the longest time from CC.EN to CSTS.RDY: CAP.TO, or CRTO if that is longer.
    fn ready_timeout(&self) -> Duration {
        TIMEOUT_UNIT * self.ready_units.max(1)
    }

    /// Returns CAP.TO as a time. CAP.TO covers enabling; admin commands get at least as long.
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
            // Reads the clock first, so that the register is read once more after the time has passed.
            let waited = started.elapsed();
            let csts = self.csts()?;
            if (csts & csts::RDY != 0) == ready {
                return Ok(());
            }
            // While the controller is being disabled, it clears an old fatal status.
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

    /// Clears CC.EN and waits until CSTS.RDY is clear (NVMe Base 2.1, 3.5.1).
    fn stop(&self) -> Result<(), NvmeError> {
        let config = self.read(register::CC, "CC")?;
        if config & cc::EN != 0 {
            self.port.write32(register::CC, config & !(cc::EN | cc::SHN_MASK))?;
            std::thread::sleep(self.quirks.delay_before_ready);
        }
        self.wait_ready(false, "become idle")
    }

    /// Waits for an enable that a previous driver began. That driver may have died meanwhile, and CC.EN must
    /// not be cleared before CSTS.RDY has followed it (NVMe Base 2.1, 3.1.4.5). A controller that does not
    /// become ready is stopped anyway.
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

    /// Creates the admin queues of a controller that is not enabled yet, in zeroed memory.
    fn admin_queue(&self, memory: &DmaRegion) -> Result<AdminQueue, NvmeError> {
        let host = memory.host().ok_or_else(|| NvmeError::Options {
            device: self.device.clone(),
            reason: "its address space returned memory for the admin queue that the host cannot access".to_owned(),
        })?;
        let (device, port, stride) = (self.device.clone(), self.port.clone(), self.cap.doorbell_stride());
        Ok(AdminQueue::new(device, port, memory.clone(), host, stride, self.command_deadline()))
    }

    /// Sets the addresses of the admin queues in a stopped controller, and enables it.
    fn start(&self, memory: &DmaRegion) -> Result<(), NvmeError> {
        let (sq, cq) = AdminQueue::addresses(memory);
        let size = u32::from(ADMIN_DEPTH - 1);
        // Completions are polled, so pin-based interrupts, which have no handler, are masked. MSI-X has its own mask.
        // With MSI-X these registers are undefined (NVMe Base 2.1, 3.1.4.3).
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
            tracing::warn!(device = self.device, error = %e, "the controller was not disabled; its admin queues stay allocated");
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
    /// Returns the name of the device, as the port reports it.
    pub fn name(&self) -> &str {
        &self.core.device
    }

    /// Returns the kind of the port: `soft`, `qtest`, ...
    pub fn kind(&self) -> &'static str {
        self.core.port.kind()
    }

    /// Returns the capabilities register (CAP).
    pub fn cap(&self) -> Cap {
        self.core.cap
    }

    /// Returns the version as major, minor, tertiary (VS).
    pub fn version(&self) -> (u16, u8, u8) {
        ((self.core.version >> 16) as u16, (self.core.version >> 8) as u8, self.core.version as u8)
    }

    /// Returns the port to the controller's registers.
    pub fn port(&self) -> &Arc<dyn Port> {
        &self.core.port
    }

    /// Returns the address space through which the device accesses memory.
    pub fn dma(&self) -> &Arc<dyn DmaSpace> {
        &self.core.dma
    }

    /// Returns the deviations from the specification that the driver applies for this controller.
    pub fn quirks(&self) -> Quirks {
        self.core.quirks
    }

    /// Returns the deadline of one admin command. The default is CAP.TO, but at least five seconds.
    pub fn command_deadline(&self) -> Duration {
        self.core.command_deadline()
    }
}

impl Controller<Disabled> {
    /// Reads the controller's registers. Writes nothing, so it does not disturb another driver of the controller.
    ///
    /// # Errors
    /// - [`NvmeError::Port`] if a register access fails, [`NvmeError::Gone`] if the registers read as all ones.
    /// - [`NvmeError::NotAController`] if CAP or VS is 0.
    /// - [`NvmeError::PageSize`], [`NvmeError::CommandSet`] or [`NvmeError::EntrySizes`] if this driver does not
    ///   support the controller's memory pages, command sets or queue entries.
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
        // Time until ready with media (CRTO 15:0). It can exceed the largest value of CAP.TO.
        let crto = if cap.ready_timeouts() { port.read32(register::CRTO)? & 0xffff } else { 0 };
        let ready_units = u32::from(cap.timeout_units()).max(crto);
        let command_deadline_ns = AtomicU64::new(0);
        let core =
            Core { device, port, dma, cap, quirks, version, ready_units, command_deadline_ns, admin_memory: None };
        core.set_command_deadline(Core::least_command_deadline(cap).max(COMMAND_FLOOR));
        Ok(Self { core, state: Disabled(()) })
    }

    /// Sets the deadline of one admin command.
    pub fn set_command_deadline(&mut self, deadline: Duration) {
        self.core.set_command_deadline(deadline);
    }

    /// Replaces the deviations from the specification that the table lists for this controller.
    pub fn set_quirks(&mut self, quirks: Quirks) {
        self.core.quirks = quirks;
    }

    /// Returns true if a previous driver left the controller enabled.
    ///
    /// # Errors
    /// [`NvmeError::Gone`] if the controller has left, [`NvmeError::Port`] if the register access fails.
    pub fn is_enabled(&self) -> Result<bool, NvmeError> {
        Ok(self.core.read(register::CC, "CC")? & cc::EN != 0)
    }

    /// Enables the controller, identifies it and negotiates I/O queues (NVMe Base 2.1, 3.5.1). Disables it first if a
    /// previous driver left it enabled.
    ///
    /// # Errors
    /// Returns the controller, disabled if that was possible, and one of:
    /// - [`NvmeError::NotReady`] or [`NvmeError::Fatal`] if it does not become idle or ready.
    /// - [`NvmeError::Gone`] or [`NvmeError::Port`] if it has left or a register access fails.
    /// - [`NvmeError::Dma`] if there is no memory for the admin queues, [`NvmeError::Options`] if
    ///   the host cannot access it.
    /// - [`NvmeError::EntrySizes`] or [`NvmeError::NotIo`] if this driver does not support its queue entries or type.
    /// - Those of any admin command: see [`Controller::feature`].
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
            tracing::warn!(device = self.core.device, error = %e, "the controller was not disabled after a failed start; its admin queues stay allocated");
            std::mem::forget(self.core.admin_memory.take());
        }
        self
    }

    fn bring_up(&mut self) -> Result<AdminQueue, NvmeError> {
        self.core.let_predecessor_finish()?;
        self.core.disable()?;
        forget_buffer(self.core.port.as_ref(), self.core.cap)?;
        // Only the host uses the admin queue, so its memory is host memory wherever kernels run.
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

    /// Reads the Identify Controller data, and negotiates the number of I/O queues.
    fn read_identity(&mut self) -> Result<(), NvmeError> {
        self.state.identify = self.read_identify()?;
        let device = || self.core.device.clone();
        let identify = &self.state.identify;
        let (sq_shift, cq_shift) = (identify.sq_entry_shift().0, identify.cq_entry_shift().0);
        // A controller that fills in nothing reports zero. The specification allows only 6 and 4.
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

    /// Sets the deadline of one admin command.
    pub fn set_command_deadline(&mut self, deadline: Duration) {
        self.follow_deadline(deadline, Duration::ZERO);
    }

    /// Sets the deadline of admin commands to that of a volume's commands, but at least CAP.TO.
    pub(crate) fn give_commands(&self, deadline: Duration) {
        self.follow_deadline(deadline, Core::least_command_deadline(self.core.cap));
    }

    fn follow_deadline(&self, deadline: Duration, least: Duration) {
        self.core.set_command_deadline(deadline.max(least));
        self.admin().set_deadline(self.core.command_deadline());
    }

    /// Checks that the controller is present and works, with one read of CSTS.
    ///
    /// # Errors
    /// - [`NvmeError::Fatal`] if it reports a fatal status, [`NvmeError::NoLongerReady`] if it is not ready.
    /// - [`NvmeError::Gone`] if it has left, [`NvmeError::Port`] if the register access fails.
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

    /// Resets the controller. This helps when the controller no longer completes commands.
    ///
    /// The reset ends all I/O queues and drops commands in flight. Each [`QueueSet`](super::QueueSet) works
    /// again after its own [`reset`](super::QueueSet::reset). Kernels must not use the queues meanwhile: they
    /// would run into their deadlines.
    ///
    /// # Errors
    /// - [`NvmeError::NotReady`] or [`NvmeError::Fatal`] if it does not become idle or ready.
    /// - [`NvmeError::Gone`] or [`NvmeError::Port`] if it has left or a register access fails.
    /// - [`NvmeError::TooManyQueues`] if it grants fewer queues than before.
    /// - [`NvmeError::NoMemoryBuffer`] if it rejects the address of its memory buffer.
    /// - [`NvmeError::Memory`] if the memory of the admin queues cannot be cleared.
    /// - Those of any admin command: see [`Controller::feature`].
    pub fn reset(&self) -> Result<(), NvmeError> {
        let mut admin = self.admin();
        let Some(memory) = &self.core.admin_memory else { return self.check() };
        self.core.stop()?;
        self.state.generation.fetch_add(1, Ordering::AcqRel);
        memory.region.fill(memory.offset, memory.bytes, 0)?;
        self.remember_write_cache(None);
        // Replaced even if a later step fails: the old queue in cleared memory would take zeros for completions.
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

    /// Returns the number of resets of the controller.
    pub(super) fn generation(&self) -> u32 {
        self.state.generation.load(Ordering::Acquire)
    }

    /// Shuts the controller down in order. Deletes I/O queues that are left, notifies the controller of a
    /// normal shutdown, waits for it to finish (NVMe Base 2.1, 3.6.1), and disables it. RTD3E, the command
    /// deadline and CAP.TO bound the time.
    ///
    /// # Errors
    /// - [`NvmeError::NotReady`] if it does not finish the shutdown, or does not become idle, in time.
    /// - [`NvmeError::Fatal`] if it reports a fatal status.
    /// - [`NvmeError::Gone`] or [`NvmeError::Port`] if it has left or a register access fails.
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

    /// Disables the controller at once, without a shutdown notification. Drops commands in flight.
    ///
    /// # Errors
    /// - [`NvmeError::NotReady`] if it does not become idle in time.
    /// - [`NvmeError::Gone`] or [`NvmeError::Port`] if it has left or a register access fails.
    pub fn disable(mut self) -> Result<Controller<Disabled>, NvmeError> {
        self.core.disable()?;
        Ok(Controller { core: self.core, state: Disabled(()) })
    }

    /// Deletes queue pairs whose deletion failed before. The shutdown that follows ends them in any case.
    fn delete_left_queues(&self) {
        for id in self.state.queues.lost() {
            if let Err(e) = self.delete_sq(id).and_then(|()| self.delete_cq(id)) {
                tracing::debug!(device = self.core.device, queue = id, error = %e, "queue not deleted before the shutdown");
                return;
            }
        }
    }

    /// Returns the length in bytes, in whole pages, of the doorbells of all queues. Nothing behind them is mapped.
    pub(super) fn doorbell_bytes(&self) -> usize {
        let last = u16::try_from(self.granted_queues()).unwrap_or(u16::MAX);
        let end = register::cq_head(last, self.core.cap.doorbell_stride()) - register::DOORBELLS;
        (end as usize + size_of::<u32>()).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the doorbell pages as a region for kernels of `space`, or `None` if the device has none that a store
    /// reaches. An error tells why existing pages cannot be mapped.
    pub(super) fn doorbell_pages(&self, space: &Space) -> Result<Option<Region>, crate::memory::MemoryError> {
        let Some(window) = self.core.port.doorbells() else { return Ok(None) };
        let mut known = self.state.windows.lock();
        known.retain(|w| w.upgrade().is_some());
        if let Some(region) = known.iter().filter_map(WeakRegion::upgrade).find(|r| r.space().same(space)) {
            return Ok(Some(region));
        }
        let bytes = self.doorbell_bytes().min(window.bytes);
        if window.io_memory && space.gpu_context().is_some() {
            // SAFETY: the port promises that its window is mapped. Doorbells may be read,
            // although the value has no meaning.
            unsafe { touch(window.base, bytes) };
        }
        let keep = Arc::new(self.core.port.clone());
        // SAFETY: the port promises that its window stays valid while the port lives, and
        // `keep` is a share of the port.
        let region = unsafe { space.import_host(window.base, bytes, window.io_memory, keep) }?;
        known.push(region.downgrade());
        Ok(Some(region))
    }
}
