//! The tables of a network that kernels read: `wb_network`, `wb_peer` of each PE, `wb_send_queue` of each queue pair.

use super::{ConnectionInfo, NetworkPlan, Registered};
use crate::engine::abi;
use crate::memory::{MemoryError, Place, Region, Space};
use crate::rdma::QueuePair;
use bytemuck::Zeroable;

/// The tables, in memory near the kernels. Send queues are ordered by PE: those of PE 0, then of PE 1, and so on.
#[derive(Debug)]
pub(in super::super) struct Tables {
    network: Region,
    peers: Region,
    /// Send queues. Kernels write them all the time, so they share no cache line with other data.
    queues: Region,
}

/// Difference of a wrong key: in the lowest byte, which is a key's own variant.
#[cfg(feature = "internals")]
const WRONG: u32 = 0x55;

const QUEUE_BYTES: usize = size_of::<abi::SendQueue>();

/// Returns the `wb_send_queue` of an unused queue pair: number `index` of those to `pe`.
pub(super) fn fresh(
    plan: NetworkPlan,
    registered: &Registered,
    staging: &Region,
    (pe, index): (usize, usize),
    queue: &dyn QueuePair,
) -> abi::SendQueue {
    let at = (nth(plan, (pe, index)) * plan.staging_of_queue()) as u64;
    abi::SendQueue {
        staging: staging.address() + at,
        staging_address: registered.staging.address() + at,
        staging_key: registered.staging.local_key().to_be(),
        staging_bytes: plan.staging_bytes as u32,
        pe: pe as u32,
        index: index as u32,
        ..queue.memory().send_queue(queue.number(), queue.flags())
    }
}

/// Returns the index of a queue pair among all queue pairs.
fn nth(plan: NetworkPlan, (pe, index): (usize, usize)) -> usize {
    pe * plan.queues_per_peer + index
}

impl Tables {
    #[allow(clippy::too_many_arguments, reason = "all that kernels see of a network comes together here")]
    pub(super) fn new(
        space: &Space,
        plan: NetworkPlan,
        queues: &[Vec<Box<dyn QueuePair>>],
        registered: &Registered,
        staging: &Region,
        connection_infos: &[ConnectionInfo],
        near: &[bool],
        own: abi::Network,
    ) -> Result<Self, MemoryError> {
        let count = queues.len() * plan.queues_per_peer;
        let memory = space.allocate(Place::Device, count * QUEUE_BYTES)?;
        let mut sends = Vec::with_capacity(count);
        for (pe, to) in queues.iter().enumerate() {
            let all = to.iter().enumerate();
            sends.extend(all.map(|(index, queue)| fresh(plan, registered, staging, (pe, index), &**queue)));
        }
        memory.set_slice(0, &sends)?;

        let peer = |(pe, connection_info): (usize, &ConnectionInfo)| abi::Peer {
            queues: memory.address() + (nth(plan, (pe, 0)) * QUEUE_BYTES) as u64,
            heap: connection_info.heap,
            key: connection_info.key.to_be(),
            strict_key: connection_info.strict_key.to_be(),
            queue_count: plan.queues_per_peer as u32,
            flags: if near[pe] { abi::PEER_LOAD_STORE } else { 0 },
            ..abi::Peer::zeroed()
        };
        let all: Vec<abi::Peer> = connection_infos.iter().enumerate().map(peer).collect();
        let peers = space.allocate(Place::Device, size_of_val(&all[..]))?;
        peers.set_slice(0, &all)?;

        let network = space.allocate(Place::Device, size_of::<abi::Network>())?;
        let own = abi::Network {
            peers: peers.address(),
            heap: registered.data.address(),
            key: registered.data.local_key().to_be(),
            ..own
        };
        network.set(0, own)?;
        Ok(Self { network, peers, queues: memory })
    }

    /// Returns the address of `wb_network`.
    pub(super) fn address(&self) -> u64 {
        self.network.address()
    }

    /// Changes the keys by which kernels name the heap of a PE; the second call undoes the first. No kernel may be using
    /// them.
    #[cfg(feature = "internals")]
    pub(super) fn flip_keys(&self, pe: usize) -> Result<(), MemoryError> {
        let at = pe * size_of::<abi::Peer>();
        let mut peer: abi::Peer = self.peers.get(at)?;
        peer.key ^= WRONG.to_be();
        peer.strict_key ^= WRONG.to_be();
        self.peers.set(at, peer)
    }

    /// Returns what kernels know of a PE.
    pub(super) fn peer(&self, pe: usize) -> Result<abi::Peer, MemoryError> {
        self.peers.get(pe * size_of::<abi::Peer>())
    }

    /// Returns the send queue of a queue pair, as kernels have left it.
    pub(super) fn queue(&self, plan: NetworkPlan, which: (usize, usize)) -> Result<abi::SendQueue, MemoryError> {
        self.queues.get(nth(plan, which) * QUEUE_BYTES)
    }

    /// Returns the send queues of all queue pairs to `pes` PEs, ordered by PE, as kernels have left them.
    pub(super) fn all_queues(&self, plan: NetworkPlan, pes: usize) -> Result<Vec<abi::SendQueue>, MemoryError> {
        self.queues.get_slice(0, pes * plan.queues_per_peer)
    }

    /// Writes the send queue of a queue pair. No kernel may be using it.
    pub(super) fn set_queue(
        &self,
        plan: NetworkPlan,
        which: (usize, usize),
        queue: abi::SendQueue,
    ) -> Result<(), MemoryError> {
        self.queues.set(nth(plan, which) * QUEUE_BYTES, queue)
    }
}
