//! Memory of a queue pair that kernels drive: send ring, completion ring, doorbell record, doorbell, and the kernels'
//! own state.

use super::{RdmaError, Transport};
use crate::engine::abi;
use crate::memory::{Place, Region, Space};
use crate::setters::setters;
use crate::wire::mlx5::receive::ReceiveRing;
use crate::wire::mlx5::{BLOCK_BYTES, CQE_BYTES};
use bytemuck::Zeroable;

/// Initial bytes of a completion ring: they mark entries as never written.
const NEVER_WRITTEN: u8 = 0xff;
/// Bytes of a doorbell record.
const RECORD_BYTES: usize = 8;
/// Offset of a doorbell in memory: its own cache line behind the record's.
const DOORBELL_AT: usize = 128;
/// log2 of the largest ring in blocks. Larger laps could not be told apart by 16-bit differences.
pub const MAX_LOG_BLOCKS: u32 = 15;

/// Size and place of a queue pair.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueuePlan {
    /// Space in which kernels run.
    pub space: Space,
    /// log2 of the send ring's blocks of 64 bytes: 1 to [`MAX_LOG_BLOCKS`].
    pub log_blocks: u32,
    /// True if all completions overwrite a single entry.
    pub collapsed: bool,
    /// Place of all memory that work requests read, or that fetched data lands in. [`Place::Device`] means that every
    /// byte of it is in the memory of the GPU that posts.
    ///
    /// The place limits where rings can be. A completion must not become visible before the data that it announces, and
    /// only writes to the same memory keep their order on the bus. Rings are therefore in host memory if any of the
    /// data is.
    pub data: Place,
    /// Receive ring; `None` for a queue pair that receives no messages.
    pub receives: Option<ReceivePlan>,
}

impl QueuePlan {
    /// Creates a plan with 128 blocks and one completion entry for each block, without receives.
    pub fn new(space: Space, data: Place) -> Self {
        Self { space, log_blocks: 7, collapsed: false, data, receives: None }
    }
}

impl QueuePlan {
    /// Checks that the plan has no receives, for an adapter whose queue pairs receive no messages.
    pub(super) fn without_receives(&self, transport: Transport) -> Result<(), RdmaError> {
        match self.receives {
            None => Ok(()),
            Some(_) => {
                let reason = format!("queue pairs of the transport {transport} receive no messages");
                Err(RdmaError::Queue { blocks: 1u32.checked_shl(self.log_blocks).unwrap_or(u32::MAX), reason })
            }
        }
    }
}

setters!(QueuePlan { log_blocks: u32, collapsed: bool, receives: Option<ReceivePlan> });

/// Size of a receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivePlan {
    /// log2 of the number of receives that can be posted: at most [`MAX_LOG_BLOCKS`].
    pub log_slots: u32,
    /// log2 of the pieces of one receive: at most 7.
    pub log_stride: u32,
    /// True if messages of up to 32 bytes go into their completion entry. Adapters leave the receive's memory alone, but
    /// for those of the transport `verbs`, which write the message there, too. That memory is host memory.
    pub data_in_entries: bool,
}

/// Receive ring of a queue pair, with the completion ring of its receives.
#[derive(Debug)]
pub struct ReceiveRings {
    pub(super) plan: ReceivePlan,
    pub(super) shape: ReceiveRing,
    pub(super) ring: Region,
    pub(super) completions: Region,
}

impl ReceiveRings {
    fn new(plan: ReceivePlan, space: &Space, place: Place) -> Result<Self, RdmaError> {
        let shape = ReceiveRing::new(plan.log_slots, plan.log_stride).ok_or_else(|| RdmaError::Queue {
            blocks: 1u32.checked_shl(plan.log_slots).unwrap_or(u32::MAX),
            reason: format!(
                "receives of {} pieces: a receive ring has 1 to {} receives of 1 to 128 pieces",
                1u64.checked_shl(plan.log_stride).unwrap_or(u64::MAX),
                1u32 << MAX_LOG_BLOCKS
            ),
        })?;
        let ring = space.allocate(place, shape.bytes())?;
        let completions = space.allocate(place, shape.slots() as usize * CQE_BYTES)?;
        Ok(Self { plan, shape, ring, completions })
    }

    /// Returns the size of the ring.
    pub fn plan(&self) -> ReceivePlan {
        self.plan
    }

    /// Returns the receive ring.
    pub fn ring(&self) -> &Region {
        &self.ring
    }

    /// Returns the completion ring of the receives, which has an entry for each slot.
    pub fn completions(&self) -> &Region {
        &self.completions
    }
}

/// Rings and records of one queue pair.
#[derive(Debug)]
pub struct QueueRings {
    plan: QueuePlan,
    place: Place,
    ring: Region,
    completions: Region,
    receives: Option<ReceiveRings>,
    /// The doorbell record, and the doorbell if it is in memory.
    records: Region,
    /// `mark` and `hold` of `wb_send_queue`, one word each per block. Only kernels use them.
    state: Region,
    /// Address of a doorbell outside `records`: a register, or a mailbox elsewhere.
    doorbell: Option<u64>,
    /// Bytes from one half of a BlueFlame register to the other; 0 if the doorbell takes no entries.
    flame: u32,
}

impl QueueRings {
    /// Allocates and clears the memory, with rings and records in `place`.
    ///
    /// # Errors
    /// * [`RdmaError::Queue`] if the plan's ring size is not supported.
    /// * [`RdmaError::Memory`] if the memory cannot be allocated or cleared.
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
        let records = plan.space.allocate(place, DOORBELL_AT + 2 * BLOCK_BYTES)?;
        let state = plan.space.allocate(Place::Device, 2 * blocks * size_of::<u32>())?;
        let receives = plan.receives.map(|r| ReceiveRings::new(r, &plan.space, place)).transpose()?;
        let memory = Self { plan, place, ring, completions, receives, records, state, doorbell: None, flame: 0 };
        memory.clear()?;
        Ok(memory)
    }

    /// Wraps existing rings and an existing record for a ring service.
    #[cfg(test)]
    pub(crate) fn over(plan: QueuePlan, ring: Region, completions: Region, records: Region) -> Self {
        let state = plan.space.allocate(Place::Host, 1).expect("memory");
        Self { plan, place: Place::Host, ring, completions, receives: None, records, state, doorbell: None, flame: 0 }
    }

    /// Resets the memory to its initial state. Nothing may use it meanwhile.
    ///
    /// # Errors
    /// [`RdmaError::Memory`] if the memory cannot be written.
    pub fn clear(&self) -> Result<(), RdmaError> {
        self.ring.fill(0, self.ring.len(), 0)?;
        self.completions.fill(0, self.completions.len(), NEVER_WRITTEN)?;
        if let Some(r) = &self.receives {
            r.ring.fill(0, r.ring.len(), 0)?;
            r.completions.fill(0, r.completions.len(), NEVER_WRITTEN)?;
        }
        self.records.fill(0, self.records.len(), 0)?;
        self.state.fill(0, self.state.len(), 0)?;
        Ok(())
    }

    /// Returns the plan.
    pub fn plan(&self) -> &QueuePlan {
        &self.plan
    }

    /// Returns the place of rings and records.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the number of blocks in the send ring.
    pub fn blocks(&self) -> u32 {
        1 << self.plan.log_blocks
    }

    /// Returns the number of entries in the completion ring.
    pub fn entries(&self) -> u32 {
        if self.plan.collapsed { 1 } else { self.blocks() }
    }

    /// Returns the send ring.
    pub fn ring(&self) -> &Region {
        &self.ring
    }

    /// Returns the completion ring.
    pub fn completions(&self) -> &Region {
        &self.completions
    }

    /// Returns the receive ring, if the queue pair has one.
    pub fn receives(&self) -> Option<&ReceiveRings> {
        self.receives.as_ref()
    }

    /// Returns the memory of the doorbell record, at offset 0, and of a doorbell in memory, at
    /// [`Self::doorbell_offset`].
    pub fn records(&self) -> &Region {
        &self.records
    }

    /// Returns the byte offset of a doorbell in memory (a mailbox) within [`Self::records`].
    pub const fn doorbell_offset() -> usize {
        DOORBELL_AT
    }

    /// Returns the size of a doorbell record in bytes.
    pub const fn record_bytes() -> usize {
        RECORD_BYTES
    }

    /// Sets the address of the doorbell that kernels write.
    pub fn set_doorbell(&mut self, address: u64) {
        self.doorbell = Some(address);
    }

    /// Sets the doorbell to a BlueFlame register, which also takes whole entries. `half` is the distance of its halves
    /// in bytes, at least a block. A doorbell in memory has space for halves of one block.
    pub fn set_blue_flame(&mut self, half: u32) {
        self.flame = half;
    }

    /// Returns the `wb_send_queue` of queue pair `number` without staged entries; the caller fills in the rest. Its
    /// doorbell is the one in memory, unless [`Self::set_doorbell`] has set another.
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
            flame: self.flame,
            credit: blocks,
            ..abi::SendQueue::zeroed()
        }
    }
}
