//! Queue pairs as kernels see them: `wb_queue[]` and the words of the slots.

use super::QueueSet;
use super::options::Landing;
use crate::engine::{Args, KernelArg, abi};
use crate::memory::{DmaRegion, MemoryError, Region};
use crate::nvme::NvmeError;
use crate::nvme::controller::PAGE_BYTES;
use crate::nvme::layout::{self, Idle, KernelWords};
use std::mem::offset_of;
use std::sync::Arc;

/// Passes a set to a kernel as the address of its `wb_queue[]`. The set is shared for that, and a
/// shared set is never reset.
impl KernelArg for Arc<QueueSet> {
    fn push(&self, args: &mut Args) {
        args.push_value(self.address());
        args.keep(self.clone());
    }
}

/// The counting words of a set's queues, which can be read while kernels run. Does not keep the queues.
pub(crate) struct QueueWords {
    arrays: Region,
    count: usize,
    depth: u32,
}

/// Words of a queue: free-running, and 0 again after a reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueCount {
    /// Commands that kernels have taken a ticket for.
    pub(crate) submitted: u32,
    /// Completions that kernels have consumed.
    pub(crate) completed: u32,
}

impl QueueCount {
    /// Returns the commands whose completion no kernel has consumed.
    pub(crate) fn in_flight(self) -> u32 {
        self.submitted.wrapping_sub(self.completed)
    }
}

impl QueueWords {
    /// Returns the number of queues.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of entries of each queue.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Reads the words of all queues, in their order.
    pub(crate) fn read(&self) -> Result<Vec<QueueCount>, MemoryError> {
        let queues = self.arrays.get_slice::<abi::Queue>(0, self.count)?;
        Ok(queues.iter().map(|q| QueueCount { submitted: q.ticket, completed: q.head }).collect())
    }
}

impl QueueSet {
    /// Returns a reader of the queues' counting words.
    pub(crate) fn counting_words(&self) -> QueueWords {
        let (count, depth) = (self.options.count as usize, self.options.depth);
        QueueWords { arrays: Region::clone(&self.arrays), count, depth }
    }

    /// Returns the address of `wb_queue[count]` for kernels.
    pub fn address(&self) -> u64 {
        self.arrays.address()
    }

    fn queue(&self, index: u32, ticket: u32) -> abi::Queue {
        let (depth, slots) = (self.options.depth, index as usize * self.options.depth as usize);
        let ring = layout::rings(depth);
        let rings = self.memory.rings.address() + (index as usize * ring.bytes) as u64;
        let (sq_doorbell, cq_doorbell) = self.doorbell_addresses(index as usize);
        let bounce_bytes = match self.options.landing {
            Landing::Direct => 0,
            Landing::Bounce { bytes_per_slot } => bytes_per_slot,
        };
        let part = |region: &Option<DmaRegion>, each: usize| match region {
            Some(r) => {
                let (device, key) = r.remote.map_or((r.iova, 0), |r| (r.address, r.key));
                (r.address() + (slots * each) as u64, device + (slots * each) as u64, key)
            }
            None => (0, 0, 0),
        };
        let (bounce, bounce_iova, bounce_key) = part(&self.memory.bounce, bounce_bytes);
        let (prp_list, prp_list_iova, _) = part(&self.memory.lists, PAGE_BYTES);
        let array = |offset: usize| self.arrays.address() + offset as u64;
        let submission = self.submission_ring(index);
        abi::Queue {
            sq: submission.0.address() + submission.1 as u64,
            // Responses to capsules come by the connection.
            cq: if self.by_capsules() { 0 } else { rings + ring.cq_offset as u64 },
            sq_doorbell,
            cq_doorbell,
            slot: array(self.places.slot(index)),
            mark: array(self.places.mark(index)),
            outcome: array(self.places.outcome(index)),
            record: array(self.places.record(index)),
            bounce,
            bounce_iova,
            prp_list,
            prp_list_iova,
            depth,
            log2_depth: depth.trailing_zeros(),
            bounce_bytes: bounce_bytes as u32,
            index,
            remote: self.by_capsules().into(),
            bounce_key,
            ticket,
            frontier: ticket,
            tail: ticket,
            head: ticket,
            ..bytemuck::Zeroable::zeroed()
        }
    }

    /// Writes `wb_queue[]` and the slots of all queues: idle, with `ticket` as their next ticket.
    pub(super) fn write_queues(&self, ticket: u32) -> Result<(), NvmeError> {
        (0..self.count()).try_for_each(|index| self.write_idle(index, ticket))
    }

    /// Writes one queue's structures: idle, with `ticket` as its next ticket.
    pub(in crate::nvme) fn write_idle(&self, index: u32, ticket: u32) -> Result<(), NvmeError> {
        let idle = Idle::new(self.options.depth, ticket);
        let slots: Vec<u32> = (0..self.options.depth).map(|s| idle.slot_word(s)).collect();
        let marks: Vec<u32> = (0..self.options.depth).map(|s| idle.mark(s)).collect();
        self.arrays.set_slice(self.places.slot(index), &slots)?;
        self.arrays.set_slice(self.places.mark(index), &marks)?;
        self.arrays.fill(self.places.outcome(index), self.places.rest_bytes(), 0)?;
        self.arrays.set(self.places.queue(index), self.queue(index, ticket))?;
        Ok(())
    }

    /// Gives kernels the connection of a queue: the address of its `wb_capsules`.
    pub(super) fn write_connection(&self, index: u32, address: u64) -> Result<(), NvmeError> {
        Ok(self.arrays.set(self.places.queue(index) + offset_of!(abi::Queue, capsules), address)?)
    }

    /// Returns the next ticket of a queue, or `None` if its words in kernel memory show a command in flight.
    pub(in crate::nvme) fn idle_ticket(&self, index: u32) -> Result<Option<u32>, NvmeError> {
        let at = self.places.queue(index);
        let word = |offset: usize| self.arrays.get::<u32>(at + offset);
        let ticket = word(offset_of!(abi::Queue, ticket))?;
        let (tail, head) = (word(offset_of!(abi::Queue, tail))?, word(offset_of!(abi::Queue, head))?);
        let locked = word(offset_of!(abi::Queue, tail_lock))? | word(offset_of!(abi::Queue, head_lock))?;
        Ok((ticket == tail && tail == head && locked == 0).then_some(ticket))
    }

    /// Reads the words of a queue in kernel memory.
    pub(in crate::nvme) fn kernel_words(&self, index: u32) -> Result<KernelWords, NvmeError> {
        let at = self.places.queue(index);
        let word = |offset: usize| self.arrays.get::<u32>(at + offset);
        let depth = self.options.depth as usize;
        Ok(KernelWords {
            depth: self.options.depth,
            ticket: word(offset_of!(abi::Queue, ticket))?,
            head: word(offset_of!(abi::Queue, head))?,
            slots: self.arrays.get_slice(self.places.slot(index), depth)?,
            marks: self.arrays.get_slice(self.places.mark(index), depth)?,
        })
    }
}
