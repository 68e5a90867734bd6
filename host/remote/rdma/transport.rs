//! Connections of queues by RDMA: private data, rings, and the queue pair that a host thread drives.

use super::buffers::Buffer;
use super::link::{ConnectedQueue, RdmaLink};
use crate::memory::{Place, Region, Space};
use crate::nvme::fabrics::{FabricsConfig, FabricsError, Keys, Link, QueueShape, Registrar, Transport, User};
use crate::rdma::{
    ConnectError, ConnectionManager, CpuReceiveQueue, CpuSendQueue, Destination, PostError, QueuePlan, RdmaError,
    ReceivePlan, Registration, Rights,
};
use crate::wire::nvme::rdma::{self, COMMAND_BYTES, RESPONSE_BYTES, Request, reject};
use std::sync::{Arc, OnceLock};

/// Transport over an RDMA adapter.
#[derive(Debug)]
pub(crate) struct RdmaTransport {
    manager: Arc<dyn ConnectionManager>,
    memory: Arc<AdapterMemory>,
    registrar: Arc<dyn Registrar>,
}

/// Registration with the adapter of a connection manager.
#[derive(Debug)]
struct AdapterMemory {
    manager: Arc<dyn ConnectionManager>,
    /// True if the keys of a registration are alike for both ends; not known before the first look.
    has_one_key: OnceLock<bool>,
}

#[derive(Debug)]
struct AdapterKeys(Box<dyn Registration>);

/// Returns the target's rights to memory that commands name.
fn of_target() -> Rights {
    Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_READ
}

impl AdapterMemory {
    /// Returns true if the adapter gives a registration one key for both ends. Most adapters do; verbs do not promise it.
    fn has_one_key(&self) -> bool {
        *self.has_one_key.get_or_init(|| {
            Buffer::new(&**self.manager.adapter(), RESPONSE_BYTES, of_target()).is_ok_and(|b| b.has_one_key())
        })
    }
}

impl Registrar for AdapterMemory {
    fn register(&self, region: &Region, for_target: bool) -> Result<Box<dyn Keys>, String> {
        if region.host().is_none() {
            let reason =
                "completions of its connections are in host memory, and could be seen before data in GPU memory";
            return Err(reason.to_owned());
        }
        let rights = match for_target {
            true => of_target(),
            false => Rights::default(),
        };
        let keys = self.manager.adapter().register_region(region, rights).map_err(|e| e.to_string())?;
        let (local, remote) = (keys.local_key(), keys.remote_key());
        if for_target && local != remote && self.has_one_key.get() == Some(&true) {
            return Err(format!(
                "the adapter gave the keys {local:#x} and {remote:#x}; those of earlier memory were alike"
            ));
        }
        Ok(Box::new(AdapterKeys(keys)))
    }

    fn path(&self) -> String {
        let path = self.manager.path();
        path.note.as_ref().map_or_else(|| path.to_string(), |note| format!("{path}: {note}"))
    }
}

impl Keys for AdapterKeys {
    fn address(&self) -> u64 {
        self.0.address()
    }
    fn local_key(&self) -> u32 {
        self.0.local_key()
    }
    fn remote_key(&self) -> u32 {
        self.0.remote_key()
    }
}

/// Returns the error of a step with an adapter.
pub(super) fn of_adapter(peer: &str, e: &dyn std::fmt::Display) -> FabricsError {
    FabricsError::Adapter { peer: peer.to_owned(), reason: e.to_string() }
}

/// Returns the error of a connection request.
pub(super) fn of_request(config: &FabricsConfig, queue: u16, e: ConnectError) -> FabricsError {
    match e {
        ConnectError::Unreachable { peer, source } => FabricsError::Unreachable { peer, source },
        ConnectError::Rejected { peer, private } => {
            let status = rdma::rejected(&private);
            FabricsError::Rejected {
                peer,
                subsystem: config.subsystem.clone(),
                queue,
                status,
                reason: reject::name(status),
            }
        }
        ConnectError::TimedOut { peer, waited } => {
            FabricsError::TimedOut { peer, what: "the connection request".to_owned(), waited }
        }
        ConnectError::Protocol { peer, reason } => FabricsError::Lost { peer, reason },
        ConnectError::Rdma(e) => of_adapter(&config.peer(), &e),
    }
}

/// Returns the private data of a queue's connection request.
pub(super) fn request(shape: QueueShape) -> Request {
    let QueueShape { id, controller, entries } = shape;
    let receives = entries.min(u32::from(u16::MAX)) as u16;
    Request { queue: id, receives, entries, controller: if id == 0 { 0 } else { controller } }
}

impl RdmaTransport {
    pub(crate) fn new(manager: Arc<dyn ConnectionManager>) -> Self {
        let memory = Arc::new(AdapterMemory { manager: manager.clone(), has_one_key: OnceLock::new() });
        Self { manager, registrar: memory.clone(), memory }
    }

    fn connect(
        &self,
        config: &FabricsConfig,
        shape: QueueShape,
        user: User<'_>,
    ) -> Result<ConnectedQueue, FabricsError> {
        let (space, in_capsule) = match user {
            User::Host(in_capsule) => (&Space::cpu(), in_capsule),
            User::Kernels(space) => (space, 0),
        };
        // Kernels send data from where it is: they know the key by which the target would read it.
        let in_capsule_room = match user {
            User::Kernels(_) if self.memory.has_one_key() => u32::MAX,
            _ => in_capsule,
        };
        let peer = config.peer();
        let rdma = |e: RdmaError| of_adapter(&peer, &e);
        let post = |e: PostError| of_adapter(&peer, &e);
        let adapter = self.manager.adapter();
        let slots = shape.entries.next_power_of_two();
        // Kernels then read a response with its completion entry.
        let data_in_entries = matches!(user, User::Kernels(_));
        let receives = ReceivePlan { log_slots: slots.ilog2(), log_stride: 0, data_in_entries };
        let log_blocks = slots.ilog2().max(1);
        let plan = QueuePlan::new(space.clone(), Place::Host).log_blocks(log_blocks).receives(Some(receives));
        let mut queue = adapter.create(plan).map_err(rdma)?;
        let mut receives = CpuReceiveQueue::new(&*queue).map_err(post)?;
        let response_bytes = slots as usize * RESPONSE_BYTES;
        let responses = Buffer::within(space, &**adapter, response_bytes, Rights::LOCAL_WRITE).map_err(rdma)?;
        let capsule_bytes = COMMAND_BYTES + in_capsule as usize;
        let capsules =
            Buffer::new(&**adapter, shape.entries as usize * capsule_bytes, Rights::default()).map_err(rdma)?;
        for i in 0..slots as usize {
            receives.post(&[responses.piece(i * RESPONSE_BYTES, RESPONSE_BYTES as u32)]).map_err(post)?;
        }
        let to = Destination { host: &config.host, port: config.port };
        let (connection, private) = self
            .manager
            .connect(to, &mut *queue, &request(shape).bytes(), config.connect_timeout)
            .map_err(|e| of_request(config, shape.id, e))?;
        if rdma::accepted(&private).is_none() {
            let reason = "its acceptance of the connection has another record format".to_owned();
            return Err(FabricsError::Protocol { peer, reason });
        }
        let send = CpuSendQueue::new(queue).map_err(post)?;
        Ok(ConnectedQueue {
            peer,
            send,
            receives,
            connection,
            responses,
            receive_slots: slots.into(),
            capsules,
            entries: shape.entries as usize,
            capsule_bytes,
            in_capsule_room,
            adapter: adapter.clone(),
        })
    }
}

impl Transport for RdmaTransport {
    fn open(&self, config: &FabricsConfig, shape: QueueShape, user: User<'_>) -> Result<Box<dyn Link>, FabricsError> {
        Ok(Box::new(RdmaLink::new(self.connect(config, shape, user)?)))
    }

    fn registrar(&self) -> Option<&Arc<dyn Registrar>> {
        Some(&self.registrar)
    }
}
