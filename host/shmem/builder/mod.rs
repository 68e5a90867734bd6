//! How a world comes to be: the ranks tell each other what they are, agree on a heap, and map each other's memory.
//!
//! Every step that can fail on one rank ends in a vote, so that a failure on one is an error on all, and no rank waits for one that
//! has given up.

mod building;
mod heaps;
mod local;
mod ranks;
mod reach;

use super::bootstrap::{self, Bootstrap, LocalBootstrap};
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

/// What each heap has, if the program does not say: `64M`, `1G`.
const SIZE_VARIABLE: &str = "WARPBELL_SYMMETRIC_SIZE";
/// Where heaps live, if the program does not say: `auto`, `device`, `host`.
const KIND_VARIABLE: &str = "WARPBELL_HEAP";

/// How PEs reach each other, if the program does not say: `auto`, `peer`, `mlx5`, `verbs`, `soft`.
const TRANSPORT_VARIABLE: &str = "WARPBELL_TRANSPORT";

/// Settings of a world before it exists.
#[derive(Debug)]
#[must_use]
pub struct WorldBuilder {
    engine: Engine,
    bootstrap: Option<Box<dyn Bootstrap>>,
    heap_bytes: Option<usize>,
    heap: Option<HeapKind>,
    timeout: Option<Duration>,
    checked: bool,
    transport: Option<Transport>,
    network: NetworkSettings,
    adapter: Option<Box<dyn Adapter>>,
    host: Option<String>,
}

impl World {
    /// Settings of a world of which this process (or thread) is one PE, with kernels on `engine`.
    pub fn builder(engine: &Engine) -> WorldBuilder {
        WorldBuilder {
            engine: engine.clone(),
            bootstrap: None,
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
    /// Bytes of each PE's heap, the same on every rank. Without it: `WARPBELL_SYMMETRIC_SIZE` (`64M`, `1G`), else 1 GiB on GPUs, less
    /// if less is free, and 64 MiB on CPU engines.
    pub fn heap_bytes(mut self, bytes: usize) -> Self {
        self.heap_bytes = Some(bytes);
        self
    }

    /// Where heaps live. Without it: `WARPBELL_HEAP`, else [`HeapKind::Auto`].
    pub fn heap(mut self, kind: HeapKind) -> Self {
        self.heap = Some(kind);
        self
    }

    /// How long collective calls of the host wait for the others. Without it: `WARPBELL_TIMEOUT` (`90s`), else 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How ranks find each other. Without it: what the launcher's environment says, else a world of one.
    pub fn bootstrap(mut self, bootstrap: Box<dyn Bootstrap>) -> Self {
        self.bootstrap = Some(bootstrap);
        self
    }

    /// Whether kernels that were built with checks (`WB_CHECKED`) find out which bytes of the heap are allocated. Costs an eighth of a
    /// byte of the engine's memory for each 64 of the heap. Without it: in debug builds.
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// How PEs reach each other. Without it: `WARPBELL_TRANSPORT`, else [`Transport::Auto`]. One that is not to be had is an error.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Queue pairs to each PE out of reach, a power of two up to 64. Without it: `WARPBELL_QUEUES_PER_PEER`, else 1 on CPU engines
    /// and 4 on GPUs.
    pub fn queues_per_peer(mut self, queues: usize) -> Self {
        self.network.queues_per_peer = Some(queues);
        self
    }

    /// Blocks of 64 bytes in the send ring of each queue pair, a power of two up to 32768. Without it: `WARPBELL_QUEUE_BLOCKS`, else
    /// 256 on CPU engines and 1024 on GPUs.
    pub fn queue_blocks(mut self, blocks: u32) -> Self {
        self.network.queue_blocks = Some(blocks);
        self
    }

    /// Bytes of staging for each of these blocks, a multiple of 64: data that is in no symmetric heap goes through it, in pieces of
    /// this size. Without it: `WARPBELL_STAGING_BYTES`, else 4 KiB on CPU engines and 2 KiB on GPUs.
    pub fn staging_bytes(mut self, bytes: usize) -> Self {
        self.network.staging_bytes = Some(bytes);
        self
    }

    /// The RDMA adapter of this PE, in place of one that is looked for; the world then uses its transport between all PEs. Every rank
    /// brings one of the same kind.
    pub fn adapter(mut self, adapter: Box<dyn Adapter>) -> Self {
        self.adapter = Some(adapter);
        self
    }

    /// What this PE's host is called. PEs share memory only with PEs of the same machine that call it the same. Without it:
    /// `WARPBELL_HOST_ID`, else its name.
    pub fn host_id(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// Builds the world. Collective.
    pub fn build(self) -> Result<World, ShmemError> {
        let heap_bytes = or_read(self.heap_bytes, SIZE_VARIABLE, size)?;
        let kind = or_read(self.heap, KIND_VARIABLE, str::parse)?.unwrap_or_default();
        let transport = match &self.adapter {
            Some(adapter) => adapter.path().transport.into(),
            None => or_read(self.transport, TRANSPORT_VARIABLE, str::parse)?.unwrap_or_default(),
        };
        let network = self.network.or_from_env()?;
        let address = network::address_of_setting()?;
        let (bootstrap, timeout) = match (self.bootstrap, self.timeout) {
            (Some(given), Some(timeout)) => (given, timeout),
            (Some(given), None) => (given, bootstrap::timeout_from_env()?),
            (None, timeout) => {
                let (found, timeout) = bootstrap::from_env_within(timeout)?;
                (found.unwrap_or_else(|| Box::new(LocalBootstrap::alone())), timeout)
            }
        };
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
            Ok(parts) => World::new(self.engine, parts, bootstrap, timeout),
            Err(e) => {
                // An end in order: the others have an error of their own.
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
