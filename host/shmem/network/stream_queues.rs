//! Queue pairs to all PEs whose doorbells a stream rings: one set for each stream that puts, gets and signals over adapters.
//!
//! Kernels have queue pairs of their own, since a doorbell announces everything before it. A set that is no longer used stays open, because
//! the other PEs may still be putting to this one, and is made anew for the next stream.

use super::{Network, WorldParts};
use crate::cuda::MemoryOperation;
use crate::engine::{Outcome, abi};
use crate::memory::{Place, Region};
use crate::rdma::{
    Adapter, PostError, QueueAddress, QueuePair, QueuePlan, RdmaError, Registration, Rights, StreamSendQueue,
};
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::{Failure, Operation, Payload, Remote, Syndrome, VendorSyndrome};
use std::collections::VecDeque;

/// Longest message of a request in bytes (InfiniBand Architecture 1.7, vol. 1, 9.7.8).
const LONGEST: usize = 1 << 30;
/// Outcome of requests behind one that failed.
const FLUSHED: Failure = Failure::new(Syndrome::FLUSHED, VendorSyndrome::FORCED_ERROR);

/// A queue pair to each PE, for one stream.
#[derive(Debug)]
pub(in crate::shmem) struct StreamQueues {
    /// Number of the set, the same on all PEs.
    id: u64,
    lanes: Vec<Lane>,
    /// Address and key of this PE's heap in its own requests.
    heap: (u64, u32),
}

/// The queue pair to one PE.
#[derive(Debug)]
struct Lane {
    queue: StreamSendQueue,
    /// Address of the PE's heap, and its keys for data and for signals.
    heap: u64,
    key: u32,
    strict_key: u32,
    /// Requests that are not known to be over, in their order.
    calls: VecDeque<Call>,
    failed: Option<String>,
}

/// A request of a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::shmem) struct Call {
    /// Number among the requests of the queue pair.
    pub(in crate::shmem) index: u64,
    /// Value of `wb_shmem_call`.
    pub(in crate::shmem) opcode: u32,
    /// Offset in the symmetric heap, in bytes.
    pub(in crate::shmem) offset: usize,
    /// Length in bytes.
    pub(in crate::shmem) bytes: usize,
}

/// Memory of this PE in a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::shmem) struct Local {
    address: u64,
    key: u32,
}

/// Error of a request that could not be prepared.
#[derive(Clone, Debug)]
pub(in crate::shmem) enum PrepareError {
    /// The queue pair has no room for this many requests: free entries, all entries.
    Full(usize, u64, u64),
    /// The queue pair has failed.
    Failed(String),
}

/// A request that did not succeed.
#[derive(Clone, Copy, Debug)]
pub(in crate::shmem) struct Ended {
    pub(in crate::shmem) pe: usize,
    pub(in crate::shmem) call: Call,
    /// `None` if it did not complete.
    pub(in crate::shmem) failure: Option<Failure>,
}

impl Local {
    /// Memory of a region that was registered for one call, from an address on.
    pub(in crate::shmem) fn of(registration: &dyn Registration, region: &Region, address: u64) -> Self {
        Self { address: registration.address() + (address - region.address()), key: registration.local_key() }
    }
}

impl Lane {
    fn check(&self, requests: usize) -> Result<(), PrepareError> {
        if let Some(reason) = &self.failed {
            return Err(PrepareError::Failed(reason.clone()));
        }
        let (room, all) = (self.queue.room(), u64::from(self.queue.queue().memory().blocks()));
        if requests as u64 > room { Err(PrepareError::Full(requests, room, all)) } else { Ok(()) }
    }

    fn post(&mut self, operation: Operation<'_>, opcode: u32, offset: usize, bytes: usize) -> Result<(), PrepareError> {
        let index = self.queue.posted();
        self.queue.post(operation).map_err(|e| PrepareError::Failed(e.to_string()))?;
        self.calls.push_back(Call { index, opcode, offset, bytes });
        Ok(())
    }

    /// Adds the requests that failed, of those that were announced, and forgets the others.
    fn complete(&mut self, pe: usize, ended: &mut Vec<Ended>) {
        let (done, failure) = self.queue.take();
        let announced = self.queue.announced();
        while self.calls.front().is_some_and(|call| call.index < done) {
            self.calls.pop_front();
        }
        if failure.is_none() && done == announced && !self.queue.is_released() {
            return;
        }
        let mut failure = failure.map(|e| match e {
            PostError::Failed { failure, .. } => (failure, e.to_string()),
            other => (FLUSHED, other.to_string()),
        });
        let why = match &failure {
            Some((_, text)) => self.queue.queue().failure().unwrap_or_else(|| text.clone()),
            None => "requests did not complete within the deadline".to_owned(),
        };
        while let Some(call) = self.calls.front().copied().filter(|call| call.index < announced) {
            self.calls.pop_front();
            ended.push(Ended { pe, call, failure: failure.as_ref().map(|(failure, _)| *failure) });
            failure = failure.map(|(_, text)| (FLUSHED, text));
        }
        self.calls.clear();
        self.failed = Some(why);
    }
}

impl StreamQueues {
    /// Connects the queue pairs of PE `me` with those that each PE has for it.
    pub(in crate::shmem) fn connect(&mut self, me: usize, all: &[Vec<QueueAddress>]) -> Result<(), String> {
        for (pe, lane) in self.lanes.iter_mut().enumerate() {
            let wrong = |e: &dyn std::fmt::Display| format!("the stream's queue pair to PE {pe}: {e}");
            let address = all.get(pe).and_then(|of| of.get(me)).ok_or_else(|| wrong(&"its other end is missing"))?;
            lane.queue.connect(address).map_err(|e| wrong(&e))?;
        }
        Ok(())
    }

    /// Returns the number of requests that each queue pair holds until the host has waited for the stream.
    pub(in crate::shmem) fn capacity(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queue.queue().memory().blocks() as usize).min().unwrap_or(0)
    }

    /// Returns memory of this PE's heap.
    pub(in crate::shmem) fn in_heap(&self, offset: usize) -> Local {
        Local { address: self.heap.0 + offset as u64, key: self.heap.1 }
    }

    /// Writes the entries of a put or get of `bytes` bytes between the heap of `pe`, from `offset` on, and memory of this PE.
    pub(in crate::shmem) fn copy(
        &mut self,
        opcode: u32,
        pe: usize,
        offset: usize,
        local: Local,
        bytes: usize,
    ) -> Result<(), PrepareError> {
        let lane = &mut self.lanes[pe];
        lane.check(bytes.div_ceil(LONGEST))?;
        for from in (0..bytes).step_by(LONGEST) {
            let some = LONGEST.min(bytes - from);
            let piece = [DataSegment::new(local.address + from as u64, local.key, some as u32)];
            let remote = Remote { address: lane.heap + (offset + from) as u64, key: lane.key };
            let operation = match opcode {
                abi::CALL_GET => Operation::Read { remote, into: &piece },
                _ => Operation::Write { remote, payload: Payload::Pieces(&piece), immediate: None },
            };
            lane.post(operation, opcode, offset + from, some)?;
        }
        Ok(())
    }

    /// Writes the entry that sets a word in the heap of `pe`.
    pub(in crate::shmem) fn signal(&mut self, pe: usize, offset: usize, value: u64) -> Result<(), PrepareError> {
        let lane = &mut self.lanes[pe];
        lane.check(1)?;
        let bytes = value.to_ne_bytes();
        let remote = Remote { address: lane.heap + offset as u64, key: lane.strict_key };
        let operation = Operation::Write { remote, payload: Payload::Inline(&bytes), immediate: None };
        lane.post(operation, abi::CALL_SIGNAL, offset, bytes.len())
    }

    /// Returns the steps that announce everything prepared for `pe` and wait for it.
    pub(in crate::shmem) fn announce(&mut self, pe: usize, flush: bool) -> Vec<MemoryOperation> {
        self.lanes[pe].queue.announce(flush)
    }

    /// Returns the number of requests announced to each PE.
    pub(in crate::shmem) fn announced(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.queue.announced()).collect()
    }

    /// Returns true if all requests to each PE before these numbers are over.
    pub(in crate::shmem) fn have_reached(&self, ends: &[u64]) -> bool {
        self.lanes.iter().zip(ends).all(|(lane, end)| *end == 0 || lane.queue.is_over(end - 1))
    }

    /// Ends all waits.
    pub(in crate::shmem) fn release(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.queue.release());
    }

    /// Returns the first PE whose queue pair has failed, with the reason.
    pub(in crate::shmem) fn failed(&self) -> Option<(usize, &str)> {
        self.lanes.iter().enumerate().find_map(|(pe, lane)| Some((pe, lane.failed.as_deref()?)))
    }

    /// Takes the completions of all announced requests. Returns those that failed, and an error if the adapter may still use their memory.
    pub(in crate::shmem) fn complete(&mut self) -> (Vec<Ended>, Result<(), RdmaError>) {
        let (mut ended, mut outcome) = (Vec::new(), Ok(()));
        for (pe, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.failed.is_none()) {
            lane.complete(pe, &mut ended);
            if lane.failed.is_some() {
                outcome = outcome.and(lane.queue.reset());
            }
        }
        (ended, outcome)
    }
}

impl Ended {
    /// Returns the outcome: `late` if the request did not complete.
    pub(in crate::shmem) fn outcome(&self, late: Outcome) -> Outcome {
        self.failure.map_or(late, |f| Outcome::NetworkError { syndrome: f.syndrome, vendor: f.vendor })
    }
}

impl WorldParts {
    fn lanes(&self, plan: &QueuePlan, reused: Option<StreamQueues>) -> Result<Vec<Lane>, String> {
        let mut queues: Vec<StreamSendQueue> = Vec::with_capacity(self.queues.len());
        match reused {
            Some(set) => {
                for mut lane in set.lanes {
                    lane.queue.reset().map_err(|e| e.to_string())?;
                    queues.push(lane.queue);
                }
            }
            None => {
                for _ in 0..self.queues.len() {
                    let queue: Box<dyn QueuePair> = self.adapter.create(plan.clone()).map_err(|e| e.to_string())?;
                    queues.push(StreamSendQueue::new(queue).map_err(|e| e.to_string())?);
                }
            }
        }
        let lane = |(pe, queue)| {
            let peer = self.tables.peer(pe).map_err(|e| e.to_string())?;
            let (heap, key, strict_key) = (peer.heap, u32::from_be(peer.key), u32::from_be(peer.strict_key));
            Ok(Lane { queue, heap, key, strict_key, calls: VecDeque::new(), failed: None })
        };
        queues.into_iter().enumerate().map(lane).collect()
    }
}

impl Network {
    /// Returns the numbers of the sets that are not used.
    pub(in crate::shmem) fn unused_stream_queues(&self) -> Vec<u64> {
        self.shared.parts().as_ref().map_or_else(Vec::new, |parts| parts.unused.iter().map(|set| set.id).collect())
    }

    /// Opens a set of queue pairs: the unused set `reused`, or else a new one. Returns it with the addresses to which the other PEs
    /// connect. All PEs open the same sets in the same order.
    pub(in crate::shmem) fn open_stream_queues(
        &self,
        reused: Option<u64>,
    ) -> Result<(StreamQueues, Vec<QueueAddress>), String> {
        let mut parts = self.shared.parts();
        let parts = parts.as_mut().ok_or("the network has ended")?;
        let set = reused.and_then(|id| {
            let at = parts.unused.iter().position(|set| set.id == id)?;
            Some(parts.unused.swap_remove(at))
        });
        let id = reused.unwrap_or_else(|| {
            parts.next_set += 1;
            parts.next_set
        });
        // Requests may name memory of any kind, so the rings are in host memory (QueuePlan::data).
        let log_blocks = self.plan.queue_blocks.ilog2();
        let plan =
            QueuePlan { space: self.space.clone(), log_blocks, collapsed: false, data: Place::Host, receives: None };
        let lanes = parts.lanes(&plan, set)?;
        let addresses = lanes.iter().map(|lane| lane.queue.queue().address()).collect();
        let heap = (parts.registered.data.address(), parts.registered.data.local_key());
        Ok((StreamQueues { id, lanes, heap }, addresses))
    }

    /// Keeps a set that is no longer used: the other PEs may still be using its other ends.
    pub(in crate::shmem) fn keep_stream_queues(&self, set: StreamQueues) {
        if let Some(parts) = self.shared.parts().as_mut() {
            parts.unused.push(set);
        }
    }

    /// Registers memory of this PE for its own requests.
    pub(in crate::shmem) fn register(&self, region: &Region) -> Result<Box<dyn Registration>, RdmaError> {
        self.with_adapter(region, |adapter| adapter.register_region(region, Rights::LOCAL_WRITE))
    }

    /// Calls `register`, which registers a region, with the adapter.
    pub(super) fn with_adapter<R>(
        &self,
        region: &Region,
        register: impl FnOnce(&dyn Adapter) -> Result<R, RdmaError>,
    ) -> Result<R, RdmaError> {
        let parts = self.shared.parts();
        let parts = parts.as_ref().ok_or_else(|| RdmaError::Registration {
            address: region.address(),
            bytes: region.len(),
            reason: "the network has ended".to_owned(),
        })?;
        register(&*parts.adapter)
    }
}
