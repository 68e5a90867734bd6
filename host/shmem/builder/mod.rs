//! Building of worlds: the ranks exchange their peer infos, agree on a heap, and map each other's memory.
//!
//! Every step that can fail on one rank ends in a vote. So an error on one rank is an error on all, and no rank waits
//! for one that has given up.

mod building;
mod heaps;
mod local;
mod ranks;
mod reach;

use super::bootstrap::{self, Bootstrap, BootstrapError, LocalBootstrap, UniqueId};
use super::heap::HeapKind;
use super::network::{self, NetworkSettings};
use super::variable::or_read;
use super::{ShmemError, Transport, World};
use crate::engine::Engine;
use crate::rdma::Adapter;
use crate::units::{Bytes, UnitError};
use building::{Building, Request};
use ranks::Ranks;
use std::time::Duration;

/// Bytes of each heap, if the program does not set them: `64M`, `1G`.
const SIZE_VARIABLE: &str = "WARPBELL_SYMMETRIC_SIZE";
/// Kind of heap, if the program does not set it: `auto`, `device`, `host`.
const KIND_VARIABLE: &str = "WARPBELL_HEAP";

/// Transport between PEs, if the program does not set it: `auto`, `peer`, `mlx5`, `verbs`, `soft`.
const TRANSPORT_VARIABLE: &str = "WARPBELL_TRANSPORT";

/// The settings of a world, and the means to build it.
#[derive(Debug)]
#[must_use]
pub struct WorldBuilder {
    engine: Engine,
    peers: Peers,
    heap_bytes: Option<usize>,
    heap: Option<HeapKind>,
    timeout: Option<Duration>,
    checked: bool,
    transport: Option<Transport>,
    network: NetworkSettings,
    adapter: Option<Box<dyn Adapter>>,
    host: Option<String>,
}

/// The origin of the other ranks.
#[derive(Debug)]
enum Peers {
    /// The launcher that started this process; without one the world has one PE.
    Launcher,
    Given(Box<dyn Bootstrap>),
    Id {
        id: UniqueId,
        rank: usize,
        size: usize,
    },
}

impl Peers {
    /// Meets the other ranks. Also returns the time that ranks wait for each other: `within`, otherwise the default.
    fn bootstrap(self, within: Option<Duration>) -> Result<(Box<dyn Bootstrap>, Duration), BootstrapError> {
        let limit = || within.map_or_else(bootstrap::timeout_from_env, Ok);
        match self {
            Self::Launcher => {
                let (found, within) = bootstrap::from_env_within(within)?;
                Ok((found.unwrap_or_else(|| Box::new(LocalBootstrap::alone())), within))
            }
            Self::Given(bootstrap) => Ok((bootstrap, limit()?)),
            Self::Id { id, rank, size } => {
                let within = limit()?;
                Ok((Box::new(id.join(rank, size, within)?), within))
            }
        }
    }
}

impl World {
    /// Returns default settings for a world of which this process, or thread, is one PE. The PE's kernels run on
    /// `engine`.
    pub fn builder(engine: &Engine) -> WorldBuilder {
        WorldBuilder {
            engine: engine.clone(),
            peers: Peers::Launcher,
            heap_bytes: None,
            heap: None,
            timeout: None,
            checked: cfg!(debug_assertions),
            transport: None,
            network: NetworkSettings::default(),
            adapter: None,
            host: None,
        }
    }
}

impl WorldBuilder {
    /// Sets the bytes of each PE's heap, the same on every rank. A heap does not grow. The default is
    /// `WARPBELL_SYMMETRIC_SIZE` (`64M`, `1G`), otherwise 64 MiB, or less on a GPU with little free memory. NVSHMEM's
    /// default is 1 GiB: programs that rely on it set the size.
    pub fn heap_bytes(mut self, bytes: usize) -> Self {
        self.heap_bytes = Some(bytes);
        self
    }

    /// Sets the kind of memory for heaps. The default is `WARPBELL_HEAP`, otherwise [`HeapKind::Auto`].
    pub fn heap(mut self, kind: HeapKind) -> Self {
        self.heap = Some(kind);
        self
    }

    /// Sets the longest time that collective host calls wait for other PEs. The default is `WARPBELL_TIMEOUT` (`90s`),
    /// otherwise 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the bootstrap by which ranks find each other. By default the launcher's environment selects one. Without a
    /// launcher the world has one PE.
    pub fn bootstrap(mut self, bootstrap: Box<dyn Bootstrap>) -> Self {
        self.peers = Peers::Given(bootstrap);
        self
    }

    /// Lets this process be rank `rank` of `size` that find each other by an id, which rank 0 has created.
    ///
    /// [`WorldBuilder::build`] fails with the errors of [`UniqueId::join`].
    pub fn unique_id(mut self, id: &UniqueId, rank: usize, size: usize) -> Self {
        self.peers = Peers::Id { id: id.clone(), rank, size };
        self
    }

    /// Enables or disables the allocation map, by which kernels with checks (`WB_CHECKED`) see which bytes of the heap
    /// are allocated. The map costs one bit of the engine's memory for each 64 bytes of the heap. Enabled by default in
    /// debug builds.
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// Sets the transport between PEs. The default is `WARPBELL_TRANSPORT`, otherwise [`Transport::Auto`].
    /// [`WorldBuilder::build`] fails if the transport is not available.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Sets the number of queue pairs to each PE that loads and stores do not reach: a power of two up to 64. The
    /// default is `WARPBELL_QUEUES_PER_PEER`, otherwise 1 on CPU engines and 4 on GPUs.
    pub fn queues_per_peer(mut self, queues: usize) -> Self {
        self.network.queues_per_peer = Some(queues);
        self
    }

    /// Sets the number of 64-byte blocks in the send ring of each queue pair: a power of two from 16 to 32768. The
    /// default is `WARPBELL_QUEUE_BLOCKS`, otherwise 256 on CPU engines and 1024 on GPUs.
    pub fn queue_blocks(mut self, blocks: u32) -> Self {
        self.network.queue_blocks = Some(blocks);
        self
    }

    /// Sets the bytes of staging memory for each block of a send ring: a multiple of 64, up to 1 MiB. Data outside the
    /// symmetric heap goes through staging memory, in pieces of this size. The default is `WARPBELL_STAGING_BYTES`,
    /// otherwise 4 KiB on CPU engines and 2 KiB on GPUs.
    pub fn staging_bytes(mut self, bytes: usize) -> Self {
        self.network.staging_bytes = Some(bytes);
        self
    }

    /// Sets the RDMA adapter of this PE, instead of an automatic choice. The world then uses the adapter's transport
    /// between all PEs. Every rank must provide an adapter of the same kind.
    pub fn adapter(mut self, adapter: Box<dyn Adapter>) -> Self {
        self.adapter = Some(adapter);
        self
    }

    /// Sets the name of this PE's host. PEs share memory only with PEs of the same machine that use the same name. The
    /// default is `WARPBELL_HOST_ID`, otherwise the host's own name.
    pub fn host_id(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// Builds the world. Collective: every rank builds it at the same time.
    ///
    /// # Errors
    /// - [`ShmemError::Setting`] if an environment variable or a network setting is invalid.
    /// - [`ShmemError::Bootstrap`] if the ranks do not find each other in time, or a rank is lost.
    /// - [`ShmemError::Unequal`] if the ranks request different settings.
    /// - [`ShmemError::Heap`] if the heaps cannot be allocated and mapped on all PEs.
    /// - [`ShmemError::Transport`] if the transport is not available between all PEs.
    /// - [`ShmemError::Memory`] if the allocation map of kernels with checks cannot be written.
    pub fn build(self) -> Result<World, ShmemError> {
        let heap_bytes = or_read(self.heap_bytes, SIZE_VARIABLE, size)?;
        let kind = or_read(self.heap, KIND_VARIABLE, str::parse)?.unwrap_or_default();
        let transport = match &self.adapter {
            Some(adapter) => adapter.path().transport.into(),
            None => or_read(self.transport, TRANSPORT_VARIABLE, str::parse)?.unwrap_or_default(),
        };
        let network = self.network.or_from_env()?;
        let address = network::address_of_setting()?;
        let (bootstrap, timeout) = self.peers.bootstrap(self.timeout)?;
        let ranks = Ranks { bootstrap: &*bootstrap, within: timeout };
        let asked = Request {
            heap_bytes,
            heap_kind: kind,
            transport,
            network,
            address,
            adapter: self.adapter,
            host: self.host,
        };
        let built = Building { engine: &self.engine, ranks, checked: self.checked }.run(asked);
        match built {
            Ok(parts) => {
                let world = World::new(self.engine, parts, bootstrap, timeout)?;
                tracing::info!(pe = world.my_pe(), "joined a world by {}: {}", world.path().via, world.path());
                Ok(world)
            }
            Err(e) => {
                // This rank leaves in order: the other ranks report an error of their own.
                bootstrap.leave();
                Err(e)
            }
        }
    }
}

fn size(text: &str) -> Result<usize, String> {
    let bytes: Bytes = text.parse().map_err(|e: UnitError| e.to_string())?;
    usize::try_from(bytes.0).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests;
