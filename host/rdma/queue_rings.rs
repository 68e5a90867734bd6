//! The memory of a queue pair that kernels drive: send ring, completion ring, doorbell record, doorbell, and what only kernels use.

use super::RdmaError;
use crate::engine::abi;
use crate::memory::{Place, Region, Space};
use crate::setters::setters;
use crate::wire::mlx5::{BLOCK_BYTES, CQE_BYTES};
use bytemuck::Zeroable;

/// What a completion ring is filled with before it is used: entries that were never written.
const NEVER_WRITTEN: u8 = 0xff;
/// Bytes of a doorbell record.
const RECORD_BYTES: usize = 8;
/// The doorbell, if it is memory, has a line of its own behind the record's.
const DOORBELL_AT: usize = 128;
/// The largest ring: 16-bit differences tell its laps apart.
pub const MAX_LOG_BLOCKS: u32 = 15;

/// How large a queue pair is to be, and where.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueuePlan {
    /// Where kernels run.
    pub space: Space,
    /// log2 of the send ring's blocks of 64 bytes, at most [`MAX_LOG_BLOCKS`].
    pub log_blocks: u32,
    /// All completions in one entry.
    pub collapsed: bool,
    /// Where all memory is that work requests read from, or that what they fetch lands in: [`Place::Device`] if every byte of it is in the
    /// memory of the GPU that posts.
    ///
    /// It decides where rings can be. A completion must not be seen before the data that it speaks of, and only writes to one memory keep
    /// their order on the bus; so rings are in host memory where any of the data is.
    pub data: Place,
}

impl QueuePlan {
    /// Creates a plan with 128 blocks and an entry for each completion.
    pub fn new(space: Space, data: Place) -> Self {
        Self { space, log_blocks: 7, collapsed: false, data }
    }
}

setters!(QueuePlan { log_blocks: u32, collapsed: bool });

/// Rings and records of one queue pair.
#[derive(Debug)]
pub struct QueueRings {
    plan: QueuePlan,
    place: Place,
    ring: Region,
    completions: Region,
    /// The doorbell record, and the doorbell if it is memory.
    records: Region,
    /// Marks and holds.
    state: Region,
    /// The doorbell, where it is not the one behind the record: a register, or a mailbox elsewhere.
    doorbell: Option<u64>,
}

impl QueueRings {
    /// Fresh memory, rings and records in `place`.
    pub fn new(plan: QueuePlan, place: Place) -> Result<Self, RdmaError> {
        let log = plan.log_blocks;
        if !(1..=MAX_LOG_BLOCKS).contains(&log) {
            let reason = format!("rings have 2 to {} blocks", 1u32 << MAX_LOG_BLOCKS);
            return Err(RdmaError::Queue { blocks: 1u32.checked_shl(log).unwrap_or(u32::MAX), reason });
        }
        let blocks = 1usize << log;
        let entries = if plan.collapsed { 1 } else { blocks };
        let ring = plan.space.allocate(place, blocks * BLOCK_BYTES)?;
        let completions = plan.space.allocate(place, entries * CQE_BYTES)?;
        let records = plan.space.allocate(place, DOORBELL_AT + size_of::<u64>())?;
        let state = plan.space.allocate(Place::Device, 2 * blocks * size_of::<u32>())?;
        let memory = Self { plan, place, ring, completions, records, state, doorbell: None };
        memory.clear()?;
        Ok(memory)
    }

    /// The same over rings and a record that somebody else has made: for who serves them.
    #[cfg(test)]
    pub(crate) fn over(plan: QueuePlan, ring: Region, completions: Region, records: Region) -> Self {
        let state = plan.space.allocate(Place::Host, 1).expect("memory");
        Self { plan, place: Place::Host, ring, completions, records, state, doorbell: None }
    }

    /// As new. Nobody may be using it.
    pub fn clear(&self) -> Result<(), RdmaError> {
        self.ring.fill(0, self.ring.len(), 0)?;
        self.completions.fill(0, self.completions.len(), NEVER_WRITTEN)?;
        self.records.fill(0, self.records.len(), 0)?;
        self.state.fill(0, self.state.len(), 0)?;
        Ok(())
    }

    /// What was asked for.
    pub fn plan(&self) -> &QueuePlan {
        &self.plan
    }

    /// Where rings and records are.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Blocks of the send ring.
    pub fn blocks(&self) -> u32 {
        1 << self.plan.log_blocks
    }

    /// Entries of the completion ring.
    pub fn entries(&self) -> u32 {
        if self.plan.collapsed { 1 } else { self.blocks() }
    }

    /// The send ring.
    pub fn ring(&self) -> &Region {
        &self.ring
    }

    /// The completion ring.
    pub fn completions(&self) -> &Region {
        &self.completions
    }

    /// The doorbell record at 0, and the doorbell that is memory at [`Self::doorbell_offset`].
    pub fn records(&self) -> &Region {
        &self.records
    }

    /// Where in [`Self::records`] the doorbell is that is memory: a mailbox.
    pub const fn doorbell_offset() -> usize {
        DOORBELL_AT
    }

    /// Bytes of a doorbell record.
    pub const fn record_bytes() -> usize {
        RECORD_BYTES
    }

    /// Kernels are to ring at this address.
    pub fn set_doorbell(&mut self, address: u64) {
        self.doorbell = Some(address);
    }

    /// `wb_send_queue` for the queue pair with this number, with nothing staged; the caller fills in the rest. The doorbell is the one in
    /// memory, unless [`Self::set_doorbell`] named another.
    pub fn send_queue(&self, number: u32, flags: u32) -> abi::SendQueue {
        let blocks = self.blocks();
        let collapsed = if self.plan.collapsed { abi::SEND_COLLAPSED } else { 0 };
        abi::SendQueue {
            ring: self.ring.address(),
            completions: self.completions.address(),
            record: self.records.address(),
            doorbell: self.doorbell.unwrap_or(self.records.address() + DOORBELL_AT as u64),
            mark: self.state.address(),
            hold: self.state.address() + u64::from(blocks) * size_of::<u32>() as u64,
            queue_word: (number << 8).to_be(),
            log_blocks: self.plan.log_blocks,
            log_completions: if self.plan.collapsed { 0 } else { self.plan.log_blocks },
            flags: flags | collapsed,
            credit: blocks,
            ..abi::SendQueue::zeroed()
        }
    }
}
