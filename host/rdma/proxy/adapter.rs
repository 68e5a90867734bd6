//! The verbs proxy as an [`Adapter`]: a device, its thread and its queue pairs.

use super::direct::DirectVerbs;
use super::{Bounce, Engine, Landing, Piece, RingUser, Service, engine::INLINE_BYTES};
use crate::memory::{Place, Space};
use crate::rdma::connection::random_psn;
use crate::rdma::ring_service::{ReceiveService, RingService};
use crate::rdma::verbs::{
    Buffer, Context, DeviceLimits, MemoryKeys, ProtectionDomain, ReceiveSource, Registrar, VerbsQueue,
};
use crate::rdma::{
    Adapter, AdapterPath, Chosen, DeviceChoice, Endpoint, LinkLayer, MemoryRange, PortFacts, QueueAddress, QueuePair,
    QueuePlan, QueueRings, RdmaError, Registration, Rights, Route, Transport, UnconnectedSendQueue,
};
use crate::wire::mlx5::Failure;
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::sync::Arc;

/// Largest number of requests of one queue pair in flight at the device.
const WINDOW: u32 = 256;
/// Largest number of scatter/gather elements per request that the proxy asks of the device.
const PIECES: u32 = 16;
/// Longest message that the other side can send to a queue pair without a receive ring. Such messages land in memory
/// that nothing reads.
const LANDING_BYTES: usize = 1 << 20;

/// Any RDMA device, driven by a CPU thread on behalf of kernels.
#[derive(Debug)]
pub(in crate::rdma) struct VerbsProxy {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    // The thread ends first.
    service: Arc<Service>,
    registrar: Registrar,
    landing: Arc<Buffer>,
    domain: Arc<ProtectionDomain>,
    port: PortFacts,
    limits: DeviceLimits,
    chosen: Chosen,
    choice: DeviceChoice,
    space: Space,
}

impl VerbsProxy {
    /// Opens a device.
    ///
    /// # Errors
    /// * [`RdmaError::Library`] if libibverbs is missing or too old.
    /// * [`RdmaError::Unavailable`] if libibverbs does not show the device, it cannot be opened, or it has no such GID.
    /// * [`RdmaError::System`] if a verbs call fails, or the thread cannot be started.
    /// * [`RdmaError::Memory`] or [`RdmaError::Registration`] if the landing buffer cannot be allocated or registered.
    pub fn open(chosen: &Chosen, choice: &DeviceChoice, space: &Space) -> Result<Self, RdmaError> {
        let context = Context::open(Transport::Verbs, &chosen.device.name)?;
        let port = context.port(Transport::Verbs, chosen, choice)?;
        let limits = context.limits()?;
        let domain = ProtectionDomain::new(&context)?;
        let landing = Arc::new(Buffer::new(&domain, LANDING_BYTES, Rights::LOCAL_WRITE)?);
        let service = Service::start(&format!("wb-{}", chosen.device.name))
            .map_err(|source| RdmaError::System { what: "starting the proxy's thread".to_owned(), source })?;
        let registrar = Registrar::new(domain.clone(), space.clone());
        let (chosen, choice, space) = (chosen.clone(), choice.clone(), space.clone());
        Ok(Self {
            shared: Arc::new(Shared { service, registrar, landing, domain, port, limits, chosen, choice, space }),
        })
    }
}

impl Shared {
    /// Returns the source of a queue pair's receives, if the device supports as many.
    fn source(&self, plan: &QueuePlan) -> Result<ReceiveSource, RdmaError> {
        let Some(receives) = plan.receives else { return Ok(ReceiveSource::Unread(self.landing.clone())) };
        let all = |log: u32| 1u32.checked_shl(log).unwrap_or(u32::MAX);
        let (slots, pieces) = (all(receives.log_slots), all(receives.log_stride));
        let l = &self.limits;
        if slots > l.requests.min(l.completions) || pieces > l.pieces {
            let reason = format!(
                "{slots} receives of {pieces} pieces; {} supports {} of {}",
                self.chosen,
                l.requests.min(l.completions),
                l.pieces
            );
            return Err(RdmaError::Queue { blocks: all(plan.log_blocks), reason });
        }
        Ok(ReceiveSource::Ring { slots, pieces })
    }
}

/// Returns a port's link in words: `RoCE v2 ::ffff:10.0.0.1 (index 3)  MTU 4096`.
pub(in crate::rdma) fn link(chosen: &Chosen, port: &PortFacts) -> String {
    let mtu = port.mtu;
    match (port.link, port.gid) {
        (LinkLayer::InfiniBand, _) => format!("InfiniBand LID {}  MTU {mtu}", port.lid),
        (_, Some((index, gid))) => {
            let entry = chosen.port.gids.iter().find(|e| e.index == u32::from(index));
            let kind = match entry.and_then(|e| e.kind) {
                Some(crate::rdma::GidKind::RoceV2) => "RoCE v2",
                Some(crate::rdma::GidKind::InfiniBandOrRoceV1) => "RoCE v1",
                None => "GID",
            };
            format!("{kind} {gid} (index {index})  MTU {mtu}")
        }
        (_, None) => format!("no GID  MTU {mtu}"),
    }
}

impl Adapter for VerbsProxy {
    fn path(&self) -> AdapterPath {
        let s = &self.shared;
        let mut path = AdapterPath::new(Transport::Verbs, s.chosen.to_string());
        path.link = link(&s.chosen, &s.port);
        path.registration = s.registrar.registration_path().to_string();
        let mut notes = s.domain.context().events();
        if !s.limits.atomics {
            notes.insert(0, "the device has no atomics: signals and atomics will fail".to_owned());
        }
        path.note = (!notes.is_empty()).then(|| notes.join("; "));
        path
    }

    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.shared.registrar.register(memory, rights) }
    }

    fn create(&self, plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError> {
        let s = &self.shared;
        let source = s.source(&plan)?;
        let memory = Arc::new(QueueRings::new(plan, Place::Host)?);
        let window = memory.blocks().min(WINDOW).min(s.limits.requests.max(2) - 1).min(s.limits.completions.max(2) - 1);
        let pieces = s.limits.pieces.clamp(1, PIECES);
        let queue = VerbsQueue::new(&s.domain, window, pieces, s.port.port, source)?;
        let bounce = Places(Buffer::new(&s.domain, (window as usize + 1) * INLINE_BYTES, Rights::LOCAL_WRITE)?);
        let ring = RingService::new(memory.clone(), queue.number())?;
        let receives = ReceiveService::new(&memory, queue.number())?;
        let landing = Found { keys: s.registrar.keys().clone(), space: s.space.clone() };
        let own = Endpoint::new(&s.port, queue.number(), random_psn());
        let engine = Engine::new(queue, ring, bounce, landing, window as usize).with_receives(receives);
        let slot = Arc::new(Mutex::new(Life { engine: Some(engine) }));
        s.service.add(slot.clone());
        Ok(Box::new(ProxyQueuePair { slot, memory, own, shared: s.clone() }))
    }

    fn create_direct(&self, requests: u32) -> Result<Option<Box<dyn UnconnectedSendQueue>>, RdmaError> {
        let s = &self.shared;
        let window = requests.min(s.limits.requests.max(2) - 1).min(s.limits.completions.max(2) - 1);
        let pieces = s.limits.pieces.clamp(1, PIECES);
        let source = ReceiveSource::Unread(s.landing.clone());
        let queue = VerbsQueue::new(&s.domain, window, pieces, s.port.port, source)?;
        let own = Endpoint::new(&s.port, queue.number(), random_psn());
        Ok(Some(Box::new(DirectVerbs::new(queue, own, s.port.clone(), s.chosen.clone(), s.choice.clone(), window))))
    }
}

/// A [`Bounce`] buffer in registered memory.
struct Places(Buffer);

impl Bounce for Places {
    fn piece(&self, slot: usize, bytes: u32) -> Piece {
        Piece { address: self.0.address() + (slot * INLINE_BYTES) as u64, bytes, key: self.0.key() }
    }
    fn write(&self, slot: usize, bytes: &[u8]) {
        self.0.write(slot * INLINE_BYTES, bytes);
    }
    fn read(&self, slot: usize) -> u64 {
        self.0.word(slot * INLINE_BYTES)
    }
}

/// [`Landing`] memory, found by the device's keys.
struct Found {
    keys: Arc<MemoryKeys>,
    space: Space,
}

impl Landing for Found {
    fn land(&self, key: u32, address: u64, bytes: &[u8]) -> bool {
        let Some((range, offset)) = self.keys.find(key, address, bytes.len()) else { return false };
        match (range.host, self.space.gpu_context()) {
            (Some(host), _) => {
                // SAFETY: within the range, which its owner keeps valid while it is registered; others may access it
                // concurrently.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), host.as_ptr().add(offset), bytes.len()) };
                true
            }
            // By a copy engine, which does not wait for kernels.
            (None, Some(gpu)) => gpu.copy_to_device(address, bytes).is_ok(),
            (None, None) => false,
        }
    }

    fn load(&self, key: u32, address: u64, out: &mut [u8]) -> bool {
        let Some((range, offset)) = self.keys.find(key, address, out.len()) else { return false };
        let Some(host) = range.host else { return false };
        // SAFETY: within the range, which its owner keeps valid while it is registered. The device has completed its
        // write, and the owner posts no other receive there before its completion.
        unsafe { std::ptr::copy_nonoverlapping(host.as_ptr().add(offset), out.as_mut_ptr(), out.len()) };
        true
    }
}

type ProxyEngine = Engine<VerbsQueue, Places, Found>;

/// A queue pair's engine, until the queue pair is closed.
struct Life {
    engine: Option<ProxyEngine>,
}

impl RingUser for Life {
    fn step(&mut self) -> bool {
        self.engine.as_mut().is_some_and(Engine::step)
    }
}

struct ProxyQueuePair {
    slot: Arc<Mutex<Life>>,
    memory: Arc<QueueRings>,
    own: Endpoint,
    shared: Arc<Shared>,
}

impl ProxyQueuePair {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.slot.lock()
    }

    fn connect_by(&self, route: &Route, peer: &str) -> Result<(), RdmaError> {
        let mut life = self.life();
        let engine = life.engine.as_mut().ok_or_else(|| self.closed())?;
        let refused =
            |e: RdmaError| RdmaError::Connect { number: self.own.number, peer: peer.to_owned(), reason: e.to_string() };
        engine.queue.connect(route).map_err(refused)
    }

    fn closed(&self) -> RdmaError {
        RdmaError::Queue { blocks: self.memory.blocks(), reason: "it is closed".to_owned() }
    }
}

impl fmt::Debug for ProxyQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyQueuePair({:#x} on {})", self.own.number, self.shared.chosen)
    }
}

impl QueuePair for ProxyQueuePair {
    fn number(&self) -> u32 {
        self.own.number
    }

    fn address(&self) -> QueueAddress {
        self.own.to_address()
    }

    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        let peer = Endpoint::from_address(peer, self.own.number)?;
        let s = &self.shared;
        // The driver itself applies the forced class to queue pairs of verbs. The route states the same class.
        let forced = s.chosen.port.traffic_class.forced();
        let route = Route::between(&s.port, &self.own, &peer, &s.choice, forced, |c| s.chosen.port.priority_of(c))?;
        self.connect_by(&route, &peer.to_string())
    }

    fn connect_along(&mut self, route: &Route) -> Result<(), RdmaError> {
        self.connect_by(route, &format!("queue pair {:#x}", route.remote))
    }

    fn memory(&self) -> &QueueRings {
        &self.memory
    }

    fn flags(&self) -> u32 {
        0
    }

    fn failure(&self) -> Option<String> {
        let life = self.life();
        let engine = life.engine.as_ref()?;
        engine.failure().map(str::to_owned).or_else(|| engine.ring.failed().map(|f| f.to_string()))
    }

    fn fault(&self) -> Option<Failure> {
        self.life().engine.as_ref()?.ring.failed()
    }

    fn reset(&mut self) -> Result<(), RdmaError> {
        let mut life = self.life();
        let engine = life.engine.as_mut().ok_or_else(|| self.closed())?;
        engine.queue.reset()?;
        self.memory.clear()?;
        engine.reset();
        Ok(())
    }
}

impl Drop for ProxyQueuePair {
    fn drop(&mut self) {
        let slot: Arc<Mutex<dyn RingUser>> = self.slot.clone();
        self.shared.service.remove(&slot);
        // Closed here, not when the thread drops its last reference: the device must not access freed memory.
        drop(self.life().engine.take());
    }
}
