//! An mlx5 NIC as an [`Adapter`].

use super::capability::{NicCapabilities, within};
use super::devx::Devx;
use super::doorbell::{DoorbellWriter, Doorbells, Mailbox, RegisterMapper};
use super::queue::{Common, DirectQueue};
use crate::cuda::WritesOrdering;
use crate::data_path::{Doorbell, QueueMemory};
use crate::engine::abi;
use crate::memory::{Place, Space};
use crate::rdma::connection::{random_psn, udp_source};
use crate::rdma::proxy::Service;
use crate::rdma::{
    Adapter, AdapterPath, DeviceChoice, Endpoint, MemoryRange, PortFacts, QueueAddress, QueueChoice, QueuePair,
    QueuePlan, QueueRings, RdmaError, ReceivePlan, RecordChoice, Registration, Rights, Route, TrafficClass, Transport,
};
use crate::wire::mlx5::doorbell::RecordMode;
use crate::wire::mlx5::{BLOCK_BYTES, SEGMENT_BYTES};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// Registers memory, and reports the way of registration.
pub(super) trait Memories: Send + Sync + std::fmt::Debug {
    /// Registers memory; see [`Adapter::register`].
    ///
    /// # Safety
    /// See [`Adapter::register`].
    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError>;
    fn registration_path(&self) -> String;
}

/// Properties of the NIC and its port.
#[derive(Debug)]
pub(super) struct Facts {
    pub name: String,
    pub link: String,
    pub port: PortFacts,
    /// Class that the driver forces on queue pairs created through verbs. Queue pairs created by commands need it
    /// explicitly.
    pub forced: Option<TrafficClass>,
    /// Priority of each traffic class.
    pub priorities: Vec<u8>,
}

/// The space in which kernels run that drive the NIC.
#[derive(Debug)]
pub(super) struct Kernels {
    pub space: Space,
    pub mapper: Box<dyn RegisterMapper>,
    /// Order in which a GPU sees devices' writes to its memory; `None` if kernels run on CPU threads.
    pub gpu: Option<WritesOrdering>,
}

impl Kernels {
    pub fn of(space: &Space) -> Self {
        let gpu = space.gpu_context().map(|c| c.info().writes_ordering);
        Self { space: space.clone(), mapper: Box::new(space.clone()), gpu }
    }
}

/// Kernels of one GPU, or those on CPU threads, with the doorbells that they write.
#[derive(Debug)]
struct User {
    space: Space,
    gpu: Option<WritesOrdering>,
    doorbells: Doorbells,
    doorbell_writer: DoorbellWriter,
}

impl User {
    /// Selects the writer of the doorbells.
    fn new(
        kernels: Kernels,
        devx: &dyn Devx,
        capabilities: &NicCapabilities,
        choice: &DeviceChoice,
    ) -> Result<Self, RdmaError> {
        let Kernels { space, mapper, gpu } = kernels;
        let doorbells = Doorbells::new(mapper, capabilities.flame);
        let doorbell_writer = doorbells.probe(devx, choice.doorbell)?;
        Ok(Self { space, gpu, doorbells, doorbell_writer })
    }

    /// Returns true if kernels of this space are the same user: they run on the same GPU, or on CPU threads, too.
    fn has(&self, space: &Space) -> bool {
        match (self.space.gpu_context(), space.gpu_context()) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}

/// An mlx5 NIC whose queues kernels drive.
#[derive(Debug)]
pub(in crate::rdma) struct Mlx5Adapter {
    shared: Arc<Shared>,
}

/// Fields are dropped in order: everything that the NIC can access before the NIC itself.
#[derive(Debug)]
struct Shared {
    /// Thread that writes doorbells, once a user needs one.
    service: Mutex<Option<Arc<Service>>>,
    /// The first is that for which the adapter was opened.
    users: Mutex<Vec<Arc<User>>>,
    memories: Box<dyn Memories>,
    devx: Box<dyn Devx>,
    event_queue: u32,
    capabilities: NicCapabilities,
    facts: Facts,
    choice: DeviceChoice,
    /// Place of the queue memory and way of its registration, with the reason if it is not in the GPU.
    queues: Mutex<Option<(Place, String)>>,
    /// Doorbell record mode of new queue pairs, with the reason if it is not the one that the NIC can have.
    record: Mutex<(RecordMode, Option<String>)>,
}

impl Mlx5Adapter {
    /// Checks the NIC's capabilities and selects the writer of its doorbell.
    ///
    /// # Errors
    /// * [`RdmaError::Unavailable`] if the NIC lacks a required capability, or kernels cannot write the doorbell as
    ///   `choice` demands.
    /// * [`RdmaError::System`] if a command fails, or the doorbell thread cannot be started.
    pub(super) fn new(
        devx: Box<dyn Devx>,
        memories: Box<dyn Memories>,
        facts: Facts,
        choice: &DeviceChoice,
        kernels: Kernels,
    ) -> Result<Self, RdmaError> {
        let capabilities = NicCapabilities::read(&*devx, &facts, choice)?;
        let event_queue = devx.event_queue().map_err(|source| RdmaError::System {
            what: format!("asking {} for an event queue", facts.name),
            source,
        })?;
        let user = User::new(kernels, &*devx, &capabilities, choice)?;
        let mode = if capabilities.no_record { RecordMode::NoneExternal } else { RecordMode::Valid };
        let shared = Shared {
            service: Mutex::new(None),
            users: Mutex::new(vec![Arc::new(user)]),
            memories,
            devx,
            event_queue,
            record: Mutex::new((mode, None)),
            capabilities,
            facts,
            choice: choice.clone(),
            queues: Mutex::new(None),
        };
        shared.users.lock().iter().try_for_each(|user| shared.prepare(user))?;
        Ok(Self { shared: Arc::new(shared) })
    }
}

/// Returns the text of an error with its cause.
fn with_cause(e: &RdmaError) -> String {
    std::error::Error::source(e).map_or_else(|| e.to_string(), |cause| format!("{e}: {cause}"))
}

impl Shared {
    fn common(&self) -> Common<'_> {
        Common {
            device: &self.facts.name,
            devx: &*self.devx,
            event_queue: self.event_queue,
            port: self.facts.port.port,
            scatter_to_cqe: self.capabilities.scatter_to_cqe,
        }
    }

    /// Starts the thread that writes the doorbells of a user, if its kernels do not and it does not run yet.
    fn prepare(&self, user: &User) -> Result<(), RdmaError> {
        if let (DoorbellWriter::Cpu { .. }, service @ None) = (&user.doorbell_writer, &mut *self.service.lock()) {
            *service = Some(Service::start("wb-doorbell").map_err(|source| RdmaError::System {
                what: "starting the thread that writes doorbells".to_owned(),
                source,
            })?);
        }
        Ok(())
    }

    /// Returns the user whose kernels run in a space.
    fn user(&self, space: &Space) -> Result<Arc<User>, RdmaError> {
        // Locked all the time: a user's page of registers is mapped for its GPU only once.
        let mut users = self.users.lock();
        if let Some(user) = users.iter().find(|u| u.has(space)) {
            return Ok(user.clone());
        }
        let user = Arc::new(User::new(Kernels::of(space), &*self.devx, &self.capabilities, &self.choice)?);
        self.prepare(&user)?;
        users.push(user.clone());
        Ok(user)
    }

    fn queues(&self) -> MutexGuard<'_, Option<(Place, String)>> {
        self.queues.lock()
    }

    fn build(&self, user: &User, plan: &QueuePlan, place: Place) -> Result<DirectQueue, RdmaError> {
        let doorbell = user.doorbells.take(&*self.devx, &user.doorbell_writer)?;
        let service = match user.doorbell_writer {
            DoorbellWriter::Kernels => None,
            DoorbellWriter::Cpu { .. } => self.service.lock().clone(),
        };
        let build = |mode| {
            let mailbox = service.as_ref().map(|s| Mailbox::new(s, &user.space, &doorbell, mode)).transpose()?;
            DirectQueue::new(&self.common(), plan.clone(), place, doorbell.clone(), mode, mailbox)
        };
        let mode = self.record.lock().0;
        match build(mode) {
            // The firmware has the capability and refuses the queue pair all the same.
            Err(e @ RdmaError::System { .. }) if mode != RecordMode::Valid => {
                if self.choice.record == RecordChoice::Off {
                    return Err(RdmaError::Unavailable {
                        transport: Transport::Mlx5,
                        reason: format!(
                            "{}: no queue pair without a doorbell record: {}; set WARPBELL_RDMA_RECORD=on",
                            self.facts.name,
                            with_cause(&e)
                        ),
                    });
                }
                let queue = build(RecordMode::Valid)?;
                *self.record.lock() = (RecordMode::Valid, Some(with_cause(&e)));
                Ok(queue)
            }
            result => result,
        }
    }

    /// Checks that the NIC supports the plan's receive ring.
    fn check_receives(&self, blocks: u32, plan: &QueuePlan) -> Result<(), RdmaError> {
        let Some(r) = plan.receives else { return Ok(()) };
        let (most, bytes) = (self.capabilities.log_max_blocks, SEGMENT_BYTES.checked_shl(r.log_stride));
        if r.log_slots > most || bytes.is_none_or(|b| b > self.capabilities.max_receive_bytes) {
            let number = |log: u32| 1u64.checked_shl(log).unwrap_or(u64::MAX);
            let reason = format!(
                "{} receives of {} pieces; {} supports at most {} (log_max_qp_sz) of {} (max_wqe_sz_rq)",
                number(r.log_slots),
                number(r.log_stride),
                self.facts.name,
                number(most),
                self.capabilities.max_receive_bytes / SEGMENT_BYTES
            );
            return Err(RdmaError::Queue { blocks, reason });
        }
        Ok(())
    }

    /// Creates a queue in GPU memory if `plan` and the NIC allow it and all data is there too, else in host memory.
    fn create(&self, user: &User, plan: &QueuePlan) -> Result<DirectQueue, RdmaError> {
        let blocks = 1u32.checked_shl(plan.log_blocks).unwrap_or(u32::MAX);
        if plan.log_blocks > self.capabilities.log_max_blocks {
            let reason = format!(
                "{} supports at most {} blocks (log_max_qp_sz)",
                self.facts.name,
                1u64 << self.capabilities.log_max_blocks.min(63)
            );
            return Err(RdmaError::Queue { blocks, reason });
        }
        self.check_receives(blocks, plan)?;
        let known = self.queues().clone();
        let far = plan.data != Place::Device;
        let mut why = (far && self.choice.queues == QueueChoice::Auto).then(|| "the data is in host memory".to_owned());
        if far && self.choice.queues == QueueChoice::Gpu {
            let reason = "its data is in host memory, and a completion in GPU memory can arrive before it; unset \
                          WARPBELL_RDMA_QUEUES=gpu, or use a heap in GPU memory (WARPBELL_HEAP=device)";
            return Err(RdmaError::Queue { blocks, reason: reason.to_owned() });
        }
        let near =
            !far && self.choice.queues != QueueChoice::Host && known.as_ref().is_none_or(|(p, _)| *p == Place::Device);
        if near {
            match self.build(user, plan, Place::Device) {
                Ok(queue) => {
                    *self.queues() = Some((Place::Device, queue.registration.clone()));
                    return Ok(queue);
                }
                // Host memory fixes only errors that concern GPU memory.
                Err(e @ (RdmaError::Registration { .. } | RdmaError::Memory(_)))
                    if self.choice.queues == QueueChoice::Auto =>
                {
                    why = Some(e.to_string());
                }
                Err(e) => return Err(e),
            }
        }
        let queue = self.build(user, plan, Place::Host)?;
        let registration = why.map_or(queue.registration.clone(), |w| format!("host ({w})"));
        self.queues().get_or_insert((Place::Host, registration));
        Ok(queue)
    }
}

/// Returns the plan with receive entries that together fill a block at least: the send ring begins at the next block.
fn fill_a_block(plan: ReceivePlan) -> ReceivePlan {
    let least = (BLOCK_BYTES / SEGMENT_BYTES).ilog2().saturating_sub(plan.log_slots);
    ReceivePlan { log_stride: plan.log_stride.max(least), ..plan }
}

impl Adapter for Mlx5Adapter {
    fn path(&self) -> AdapterPath {
        let s = &self.shared;
        // Kernels of a GPU are shown rather than host threads.
        let users = s.users.lock().clone();
        let Some(user) = users.iter().find(|u| u.gpu.is_some()).or(users.first()) else {
            return AdapterPath::new(Transport::Mlx5, s.facts.name.clone());
        };
        let mut path = AdapterPath::new(Transport::Mlx5, s.facts.name.clone());
        path.link = s.facts.link.clone();
        path.registration = s.memories.registration_path();
        let on_cpu = user.gpu.is_none();
        path.doorbell = match &user.doorbell_writer {
            DoorbellWriter::Kernels if on_cpu => Doorbell::CpuEngine,
            DoorbellWriter::Kernels => Doorbell::Gpu,
            DoorbellWriter::Cpu { .. } => Doorbell::Cpu,
        };
        let mut notes = Vec::new();
        if let Some((place, how)) = &*s.queues() {
            path.queues = if *place == Place::Device && !on_cpu { QueueMemory::Gpu } else { QueueMemory::Host };
            notes.push(format!("queue memory: {how}"));
        }
        if let DoorbellWriter::Cpu { why: Some(why) } = &user.doorbell_writer {
            notes.push(format!("a CPU thread writes the doorbells: {why}"));
        }
        match &*s.record.lock() {
            (RecordMode::Valid, Some(why)) => {
                notes.push(format!("queue pairs have doorbell records: the firmware refused one without ({why})"));
            }
            (RecordMode::Valid, None) => {}
            _ => notes.push("queue pairs have no doorbell records".to_owned()),
        }
        match (&user.doorbell_writer, s.capabilities.flame) {
            (DoorbellWriter::Kernels, Some(_)) => {
                notes.push("entries posted alone go to BlueFlame registers".to_owned())
            }
            (DoorbellWriter::Cpu { .. }, Some(_)) => {
                notes.push("BlueFlame is not used: kernels do not write the doorbells".to_owned());
            }
            _ => {}
        }
        notes.extend(s.capabilities.notes.iter().cloned());
        path.note = (!notes.is_empty()).then(|| notes.join("; "));
        path
    }

    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.shared.memories.register(memory, rights) }
    }

    fn create(&self, mut plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError> {
        plan.receives = plan.receives.map(fill_a_block);
        let user = self.shared.user(&plan.space)?;
        let inner = self.shared.create(&user, &plan)?;
        let (shared, psn) = (self.shared.clone(), random_psn());
        let own = Endpoint::new(&shared.facts.port, inner.number(), psn);
        Ok(Box::new(Mlx5QueuePair { inner, own, psn, user, shared, asking: Mutex::new(()) }))
    }
}

/// Fields are dropped in order: the queue pair before its adapter.
#[derive(Debug)]
struct Mlx5QueuePair {
    inner: DirectQueue,
    own: Endpoint,
    psn: u32,
    user: Arc<User>,
    shared: Arc<Shared>,
    /// Serialises queries to the firmware about this queue pair.
    asking: Mutex<()>,
}

impl Mlx5QueuePair {
    /// Returns the priority of a traffic class.
    fn priority(&self, class: TrafficClass) -> u8 {
        let priorities = &self.shared.facts.priorities;
        priorities.get(usize::from(class.0)).copied().unwrap_or(class.default_priority())
    }

    fn connect_by(&mut self, mut route: Route, peer: &str) -> Result<(), RdmaError> {
        let s = &self.shared;
        if let (Some(range), true) = (&s.capabilities.udp_source, route.udp_source != 0) {
            route.udp_source = within(route.udp_source, range);
        }
        self.inner.connect(&s.common(), &route).map_err(|e| RdmaError::Connect {
            number: self.own.number,
            peer: peer.to_owned(),
            reason: with_cause(&e),
        })
    }
}

impl QueuePair for Mlx5QueuePair {
    fn number(&self) -> u32 {
        self.inner.number()
    }

    fn address(&self) -> QueueAddress {
        self.own.to_address()
    }

    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        let peer = Endpoint::from_address(peer, self.own.number)?;
        let s = &self.shared;
        let f = &s.facts;
        let route = Route::between(&f.port, &self.own, &peer, &s.choice, f.forced, |c| self.priority(c))?;
        self.connect_by(route, &peer.to_string())
    }

    fn connect_along(&mut self, route: &Route) -> Result<(), RdmaError> {
        let s = &self.shared;
        let mut route = route.clone();
        // The driver sets both on queue pairs of verbs, and does not know those created by commands.
        if let (Some(class), true) = (s.choice.traffic_class.or(s.facts.forced), route.global.is_some()) {
            route.traffic_class = class;
            if route.ethernet {
                route.service_level = s.choice.service_level.unwrap_or_else(|| self.priority(class));
            }
        }
        if route.ethernet && s.facts.port.udp {
            route.udp_source = udp_source(self.own.number, route.remote);
        }
        let peer = format!("queue pair {:#x}", route.remote);
        self.connect_by(route, &peer)
    }

    fn memory(&self) -> &QueueRings {
        &self.inner.memory
    }

    fn flags(&self) -> u32 {
        let user = &self.user;
        let unrecorded = if self.inner.mode == RecordMode::Valid { 0 } else { abi::SEND_NO_RECORD };
        let Some(ordering) = user.gpu else { return unrecorded };
        let memory = &self.inner.memory;
        let all_near = memory.place() == Place::Device && memory.plan().data == Place::Device;
        // With a CPU thread behind the doorbell, the thread must see the kernels' writes too.
        let near = all_near && user.doorbell_writer == DoorbellWriter::Kernels;
        let unordered = ordering == WritesOrdering::None;
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        flag(near, abi::SEND_NEAR) | flag(unordered, abi::SEND_CONSISTENCY) | unrecorded
    }

    fn failure(&self) -> Option<String> {
        let _one = self.asking.lock();
        self.inner.failure()
    }

    fn reset(&mut self) -> Result<(), RdmaError> {
        self.inner.reset(&self.shared.common())?;
        self.own = Endpoint::new(&self.shared.facts.port, self.inner.number(), self.psn);
        Ok(())
    }
}
