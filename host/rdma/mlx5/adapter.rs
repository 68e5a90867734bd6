//! An mlx5 NIC as an [`Adapter`].

use super::capability::{Abilities, within};
use super::devx::Devx;
use super::doorbell::{Doorbells, Mailbox, RegisterMapper, Ringer};
use super::queue::{Common, DirectQueue};
use crate::cuda::WritesOrdering;
use crate::data_path::{Doorbell, QueueMemory};
use crate::engine::abi;
use crate::memory::{Place, Space};
use crate::rdma::connection::random_psn;
use crate::rdma::proxy::Service;
use crate::rdma::{
    Adapter, AdapterPath, DeviceChoice, Endpoint, MemoryRange, PortFacts, QueueAddress, QueueChoice, QueuePair,
    QueuePlan, QueueRings, RdmaError, RecordChoice, Registration, Rights, Route, TrafficClass, Transport,
};
use crate::wire::mlx5::doorbell::RecordMode;
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

/// An mlx5 NIC whose queues kernels drive.
#[derive(Debug)]
pub(in crate::rdma) struct Mlx5Adapter {
    shared: Arc<Shared>,
}

/// Fields are dropped in order: everything that the NIC can access before the NIC itself.
#[derive(Debug)]
struct Shared {
    service: Option<Arc<Service>>,
    doorbells: Doorbells,
    memories: Box<dyn Memories>,
    devx: Box<dyn Devx>,
    event_queue: u32,
    abilities: Abilities,
    ringer: Ringer,
    facts: Facts,
    choice: DeviceChoice,
    space: Space,
    gpu: Option<WritesOrdering>,
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
        let Kernels { space, mapper, gpu } = kernels;
        let abilities = Abilities::read(&*devx, &facts, choice)?;
        let event_queue = devx.event_queue().map_err(|source| RdmaError::System {
            what: format!("asking {} for an event queue", facts.name),
            source,
        })?;
        let doorbells = Doorbells::new(mapper, abilities.flame);
        let ringer = doorbells.probe(&*devx, choice.doorbell)?;
        let service = match ringer {
            Ringer::Kernels => None,
            Ringer::Cpu { .. } => Some(Service::start("wb-doorbell").map_err(|source| RdmaError::System {
                what: "starting the thread that writes doorbells".to_owned(),
                source,
            })?),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                service,
                doorbells,
                memories,
                devx,
                event_queue,
                record: Mutex::new((
                    if abilities.no_record { RecordMode::NoneExternal } else { RecordMode::Valid },
                    None,
                )),
                abilities,
                ringer,
                facts,
                choice: choice.clone(),
                space,
                gpu,
                queues: Mutex::new(None),
            }),
        })
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
        }
    }

    fn queues(&self) -> MutexGuard<'_, Option<(Place, String)>> {
        self.queues.lock()
    }

    fn build(&self, plan: &QueuePlan, place: Place) -> Result<DirectQueue, RdmaError> {
        let doorbell = self.doorbells.take(&*self.devx, &self.ringer)?;
        let build = |mode| {
            let mailbox = match &self.service {
                Some(service) => Some(Mailbox::new(service, &self.space, &doorbell, mode)?),
                None => None,
            };
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

    /// Creates a queue in GPU memory if `plan` and the NIC allow it and all data is there too, else in host memory.
    fn create(&self, plan: &QueuePlan) -> Result<DirectQueue, RdmaError> {
        let blocks = 1u32.checked_shl(plan.log_blocks).unwrap_or(u32::MAX);
        if plan.log_blocks > self.abilities.log_max_blocks {
            let reason = format!(
                "{} supports at most {} blocks (log_max_qp_sz)",
                self.facts.name,
                1u64 << self.abilities.log_max_blocks.min(63)
            );
            return Err(RdmaError::Queue { blocks, reason });
        }
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
            match self.build(plan, Place::Device) {
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
        let queue = self.build(plan, Place::Host)?;
        let registration = why.map_or(queue.registration.clone(), |w| format!("host ({w})"));
        self.queues().get_or_insert((Place::Host, registration));
        Ok(queue)
    }
}

impl Adapter for Mlx5Adapter {
    fn path(&self) -> AdapterPath {
        let s = &self.shared;
        let mut path = AdapterPath::new(Transport::Mlx5, s.facts.name.clone());
        path.link = s.facts.link.clone();
        path.registration = s.memories.registration_path();
        let on_cpu = s.gpu.is_none();
        path.doorbell = match &s.ringer {
            Ringer::Kernels if on_cpu => Doorbell::CpuEngine,
            Ringer::Kernels => Doorbell::Gpu,
            Ringer::Cpu { .. } => Doorbell::Cpu,
        };
        let mut notes = Vec::new();
        if let Some((place, how)) = &*s.queues() {
            path.queues = if *place == Place::Device && !on_cpu { QueueMemory::Gpu } else { QueueMemory::Host };
            notes.push(format!("queue memory: {how}"));
        }
        if let Ringer::Cpu { why: Some(why) } = &s.ringer {
            notes.push(format!("a CPU thread writes the doorbells: {why}"));
        }
        match &*s.record.lock() {
            (RecordMode::Valid, Some(why)) => {
                notes.push(format!("queue pairs have doorbell records: the firmware refused one without ({why})"));
            }
            (RecordMode::Valid, None) => {}
            _ => notes.push("queue pairs have no doorbell records".to_owned()),
        }
        match (&s.ringer, s.abilities.flame) {
            (Ringer::Kernels, Some(_)) => notes.push("entries posted alone go to BlueFlame registers".to_owned()),
            (Ringer::Cpu { .. }, Some(_)) => {
                notes.push("BlueFlame is not used: kernels do not write the doorbells".to_owned());
            }
            _ => {}
        }
        notes.extend(s.abilities.notes.iter().cloned());
        path.note = (!notes.is_empty()).then(|| notes.join("; "));
        path
    }

    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.shared.memories.register(memory, rights) }
    }

    fn create(&self, plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError> {
        plan.without_receives(Transport::Mlx5)?;
        let queue = self.shared.create(&plan)?;
        let psn = random_psn();
        let own = Endpoint::new(&self.shared.facts.port, queue.number(), psn);
        Ok(Box::new(Mlx5QueuePair { inner: queue, own, psn, shared: self.shared.clone(), asking: Mutex::new(()) }))
    }
}

/// Fields are dropped in order: the queue pair before its adapter.
#[derive(Debug)]
struct Mlx5QueuePair {
    inner: DirectQueue,
    own: Endpoint,
    psn: u32,
    shared: Arc<Shared>,
    /// Serialises queries to the firmware about this queue pair.
    asking: Mutex<()>,
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
        let priority = |c: TrafficClass| f.priorities.get(usize::from(c.0)).copied().unwrap_or(c.default_priority());
        let mut route = Route::between(&f.port, &self.own, &peer, &s.choice, f.forced, priority)?;
        if let (Some(range), true) = (&s.abilities.udp_source, route.udp_source != 0) {
            route.udp_source = within(route.udp_source, range);
        }
        self.inner.connect(&s.common(), &route).map_err(|e| RdmaError::Connect {
            number: self.own.number,
            peer: peer.to_string(),
            reason: e.to_string(),
        })
    }

    fn memory(&self) -> &QueueRings {
        &self.inner.memory
    }

    fn flags(&self) -> u32 {
        let s = &self.shared;
        let unrecorded = if self.inner.mode == RecordMode::Valid { 0 } else { abi::SEND_NO_RECORD };
        let Some(ordering) = s.gpu else { return unrecorded };
        let memory = &self.inner.memory;
        let all_near = memory.place() == Place::Device && memory.plan().data == Place::Device;
        // With a CPU thread behind the doorbell, the thread must see the kernels' writes too.
        let near = all_near && s.ringer == Ringer::Kernels;
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
