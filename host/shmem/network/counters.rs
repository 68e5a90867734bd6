//! Counters of a PE and its connections, for monitoring.

use super::Network;
use crate::engine::abi;
use crate::metrics::{self, Registration, Wide, family};
use crate::shmem::bootstrap::LostRank;
use std::sync::{Arc, OnceLock};

/// Registers PE `me` of `pes`, with the connections that it has. Puts and gets by loads and stores are not counted.
pub(in super::super) fn register(
    me: usize,
    pes: usize,
    lost: Arc<OnceLock<LostRank>>,
    network: Option<&Network>,
) -> Registration {
    // The network's owner closes it, so the reader holds it only while it reads.
    let shared = network.map(|n| Arc::downgrade(&n.shared));
    let mut posted = Vec::new();
    metrics::register("pe", &me.to_string(), move |to| {
        let queues = match shared.as_ref().and_then(|s| s.upgrade()) {
            Some(shared) => match shared.parts().as_ref().map(|p| p.tables.all_queues(p.plan, p.queues.len())) {
                Some(Ok(queues)) => queues,
                Some(Err(_)) => return false,
                // The network is closed.
                None => Vec::new(),
            },
            None => Vec::new(),
        };
        to.add(&family::WORLD_PES, &[], pes as u64);
        to.add(&family::WORLD_LOST, &[], u64::from(lost.get().is_some()));
        posted.resize(queues.len(), Wide::default());
        for (queue, posted) in queues.iter().zip(&mut posted) {
            let (peer, index) = (queue.pe.to_string(), queue.index.to_string());
            let labels = [("peer", &*peer), ("queue", &*index)];
            to.add(&family::WORLD_POSTED, &labels, posted.at(queue.ticket));
            to.add(&family::WORLD_IN_FLIGHT, &labels, in_flight(queue));
            to.add(&family::WORLD_FAILED, &labels, u64::from(queue.failed != 0));
        }
        true
    })
}

/// Returns the posted blocks that are not known to be complete. Kernels may have posted between the reads of the two words.
fn in_flight(queue: &abi::SendQueue) -> u64 {
    u64::from(queue.ticket.wrapping_sub(queue.completed).min(1 << queue.log_blocks))
}
