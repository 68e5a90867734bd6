//! Queues of remote controllers for `bench post --capsules`: kernels post command capsules on the rings of RDMA queue
//! pairs that belong to no adapter.

use super::{FIRST_NUMBER, PostQueues, PostSetting};
use crate::workloads::error::MeasureError;
use crate::workloads::params::{QueueSubmitted, WarpPosted};
use crate::workloads::queue::Queues;
use bytemuck::Zeroable;
use warpbell::engine::{Engine, abi};
use warpbell::memory::{Place, Region};
use warpbell::rdma::{QueuePlan, QueueRings, ReceivePlan};
use warpbell::wire::mlx5::doorbell::QpRecord;

/// Key of the capsules.
const CAPSULE_KEY: u32 = 0x10_1200;

/// Queues whose commands go as capsules, with their connections.
pub(super) struct CapsuleQueues {
    queues: Queues,
    /// Rings of each connection. The responses come in the completion entries.
    rings: Vec<QueueRings>,
    connections: Region,
    reports: Region,
    depth: u32,
}

impl CapsuleQueues {
    pub(super) fn new(engine: &Engine, setting: &PostSetting) -> Result<Self, MeasureError> {
        let (count, depth) = (setting.queues as usize, setting.depth);
        let receives = ReceivePlan { log_slots: depth.trailing_zeros(), log_stride: 0, data_in_entries: true };
        let plan = QueuePlan::new(engine.space().clone(), Place::Device)
            .log_blocks(depth.trailing_zeros())
            .receives(Some(receives));
        let rings = (0..count).map(|_| QueueRings::new(plan.clone(), Place::Device)).collect::<Result<_, _>>()?;
        Ok(Self {
            queues: Queues::new(engine, setting.queues, depth)?,
            rings,
            connections: engine.allocate(Place::Device, count * size_of::<abi::Capsules>())?,
            reports: engine.allocate(Place::Host, count * size_of::<abi::CapsulesReport>())?,
            depth,
        })
    }

    /// Returns the connection of queue `index`, which has carried nothing.
    fn connection(&self, index: usize) -> abi::Capsules {
        let rings = &self.rings[index];
        let send = rings.send_queue(FIRST_NUMBER + index as u32, abi::SEND_NEAR);
        abi::Capsules {
            ring: send.ring,
            sent: send.completions,
            received: rings.receives().map_or(0, |r| r.completions().address()),
            record: send.record,
            doorbell: send.doorbell,
            capsules: self.queues.submission_ring(index),
            report: self.reports.address() + (index * size_of::<abi::CapsulesReport>()) as u64,
            capsule_key: CAPSULE_KEY.to_be(),
            queue_word: send.queue_word,
            log_blocks: send.log_blocks,
            log_receives: send.log_blocks,
            flags: send.flags,
            ..Zeroable::zeroed()
        }
    }
}

impl PostQueues for CapsuleQueues {
    fn reset(&self) -> Result<(), MeasureError> {
        for rings in &self.rings {
            rings.clear()?;
            // All receives are posted.
            rings.records().set(0, QpRecord::new(self.depth.into(), 0))?;
        }
        self.reports.fill(0, self.reports.len(), 0)?;
        let all: Vec<abi::Capsules> = (0..self.rings.len()).map(|i| self.connection(i)).collect();
        self.connections.set_slice(0, &all)?;
        self.queues.reset(|i, queue| abi::Queue {
            remote: 1,
            cq: 0,
            sq_doorbell: 0,
            capsules: self.connections.address() + (i * size_of::<abi::Capsules>()) as u64,
            ..queue
        })?;
        Ok(())
    }

    fn table(&self) -> &Region {
        self.queues.table()
    }
}

/// Returns the counts of a warp as those of one that posts work requests.
pub(super) fn posted(w: &QueueSubmitted) -> WarpPosted {
    WarpPosted { posted: w.done, failed: w.failed, sum: w.sum }
}
