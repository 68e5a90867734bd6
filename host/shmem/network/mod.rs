//! How a PE reaches those that loads and stores do not reach: its RDMA adapter, the queue pairs to every PE, and what kernels find
//! them by.
//!
//! The heap is registered twice: for data, with relaxed ordering where the adapter has it, and strictly, for signals and atomic
//! operations. All atomic operations of such a world go through the adapter, also those on memory that loads and stores reach, since
//! an adapter's atomics are not atomic to a processor's: so every PE has queue pairs to every PE, and to itself.

mod exchange;
mod facts;
mod host_calls;
mod interface;
mod open;
mod settings;
mod tables;
mod transport;

pub(super) use exchange::Offer;
pub use facts::{TransportFacts, transports};
pub(super) use interface::{address_of_setting, reached_at};
pub(super) use open::{Available, Opening, candidates, choose, open};
pub use settings::{NetworkPlan, NetworkSettings};
pub use transport::{NoSuchTransport, Transport};

use crate::engine::abi;
use crate::memory::{Place, Region, Space};
use crate::rdma::{
    Adapter, AdapterPath, MemoryRange, QueueAddress, QueuePair, QueuePlan, RdmaError, Registration, Rights,
};
use std::fmt;
use tables::Tables;

/// Bytes of each heap that host calls move data through to and from PEs out of reach.
pub(super) const BOUNCE_BYTES: usize = 256 << 10;

/// The network of one PE before it knows the others'.
#[derive(Debug)]
pub(super) struct Prepared {
    plan: NetworkPlan,
    space: Space,
    // In the order in which they go.
    queues: Vec<Vec<Box<dyn QueuePair>>>,
    registered: Registered,
    staging: Region,
    adapter: Box<dyn Adapter>,
}

/// What the adapter knows of this PE's memory.
#[derive(Debug)]
struct Registered {
    data: Box<dyn Registration>,
    strict: Box<dyn Registration>,
    staging: Box<dyn Registration>,
}

/// The network of one PE.
pub(super) struct Network {
    /// `None` only while it is dropped.
    parts: Option<Parts>,
    space: Space,
    path: AdapterPath,
    plan: NetworkPlan,
}

struct Parts {
    // In the order in which they go: connections, what kernels read of them, keys, memory, adapter.
    queues: Vec<Vec<Box<dyn QueuePair>>>,
    tables: Tables,
    _registered: Registered,
    _staging: Region,
    _adapter: Box<dyn Adapter>,
}

impl Prepared {
    /// Registers the heap and makes queue pairs to each of `pes` PEs. `place` is where staging goes: beside the heap.
    pub(super) fn new(
        adapter: Box<dyn Adapter>,
        heap: MemoryRange,
        space: &Space,
        place: Place,
        plan: NetworkPlan,
        pes: usize,
    ) -> Result<Self, RdmaError> {
        let data = adapter.register(heap, Rights::ALL | Rights::RELAXED_ORDERING)?;
        let strict = adapter.register(heap, Rights::ALL)?;
        if data.address() != strict.address() {
            let reason = format!(
                "the adapter names it {:#x} by one key and {:#x} by another; kernels need one name",
                data.address(),
                strict.address()
            );
            return Err(RdmaError::Registration { address: heap.address, bytes: heap.bytes, reason });
        }
        let memory = space.allocate(place, pes * plan.queues_per_peer * plan.staging_of_queue())?;
        let range = MemoryRange { address: memory.address(), bytes: memory.len(), host: memory.host() };
        let staging = adapter.register(range, Rights::LOCAL_WRITE)?;
        let log_blocks = plan.queue_blocks.ilog2();
        let one = |_| adapter.create(QueuePlan { space: space.clone(), log_blocks, collapsed: false });
        let to_pe = |_| (0..plan.queues_per_peer).map(one).collect::<Result<Vec<_>, _>>();
        let queues = (0..pes).map(to_pe).collect::<Result<Vec<_>, _>>()?;
        let registered = Registered { data, strict, staging };
        Ok(Self { plan, space: space.clone(), queues, registered, staging: memory, adapter })
    }

    /// What the others have to know.
    pub(super) fn offer(&self) -> Offer {
        let addresses = |queues: &Vec<Box<dyn QueuePair>>| queues.iter().map(|q| q.address()).collect();
        Offer {
            heap: self.registered.data.address(),
            key: self.registered.data.remote_key(),
            strict_key: self.registered.strict.remote_key(),
            queues: self.queues.iter().map(addresses).collect(),
        }
    }

    /// Connects the queue pairs of PE `me` with those that each PE has for it, and makes the tables of its kernels. `near` says whose
    /// heaps loads and stores reach too; `own` is `wb_network` but for what is known only here.
    ///
    /// What there is stays when it fails: others may be connecting with it.
    pub(super) fn connect(
        &mut self,
        me: usize,
        offers: &[Offer],
        near: &[bool],
        own: abi::Network,
    ) -> Result<Tables, String> {
        for (pe, queues) in self.queues.iter_mut().enumerate() {
            let theirs: &[QueueAddress] = offers[pe].queues.get(me).map_or(&[], Vec::as_slice);
            if theirs.len() != queues.len() {
                return Err(format!(
                    "PE {pe} has {} queue pairs for PE {me}, which has {}",
                    theirs.len(),
                    queues.len()
                ));
            }
            for (index, (mine, peer)) in queues.iter_mut().zip(theirs).enumerate() {
                mine.connect(peer).map_err(|e| format!("queue pair {index} to PE {pe}: {e}"))?;
            }
        }
        let Self { plan, space, queues, registered, staging, .. } = self;
        Tables::new(space, *plan, queues, registered, staging, offers, near, own).map_err(|e| e.to_string())
    }

    /// The network, once every PE is connected.
    pub(super) fn connected(self, tables: Tables) -> Network {
        let Self { plan, space, queues, registered, staging, adapter } = self;
        let path = adapter.path();
        let parts = Parts { queues, tables, _registered: registered, _staging: staging, _adapter: adapter };
        Network { parts: Some(parts), space, path, plan }
    }
}

impl Network {
    /// The address of `wb_network`, as kernels see it.
    pub(super) fn address(&self) -> u64 {
        self.parts.as_ref().map_or(0, |p| p.tables.address())
    }

    /// Which way work requests go.
    pub(super) fn path(&self) -> &AdapterPath {
        &self.path
    }

    /// How large it is.
    pub(super) fn plan(&self) -> NetworkPlan {
        self.plan
    }

    /// Each queue pair that has failed, and why.
    pub(super) fn failures(&self) -> Vec<String> {
        let all = self.parts.iter().flat_map(|p| p.queues.iter().enumerate());
        let failed = all.flat_map(|(pe, queues)| {
            let why = queues.iter().enumerate().filter_map(|(i, q)| Some((i, q.failure()?)));
            why.map(move |(index, why)| format!("queue pair {index} to PE {pe}: {why}"))
        });
        failed.collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A kernel that would not end may still write to rings and doorbells: they stay.
        if self.space.is_poisoned() {
            std::mem::forget(self.parts.take());
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Network({})", self.path)
    }
}

#[cfg(test)]
mod tests;
