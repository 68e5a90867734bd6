//! Memory of a queue pair that kernels drive: send ring, completion ring, doorbell record, doorbell, and the kernels'
//! own state.

use super::RdmaError;
use super::send_entries::SharedMemory;
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

setters!(QueuePlan { log_blocks: u32, collapsed: bool, receives: Option<ReceivePlan> });

/// Size of a receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivePlan {
    /// log2 of the number of receives that can be posted: at most [`MAX_LOG_BLOCKS`].
    pub log_slots: u32,
    /// log2 of the pieces of one receive: at most 7.
    pub log_stride: u32,
    /// True if messages of up to 32 bytes may go into their completion entry, which tells where the message is. mlx5 NICs
    /// without that ability write the receive's memory. Adapters of the transport `verbs` write both, and that memory is
    /// host memory.
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

impl ReceivePlan {
    fn shape(self) -> Result<ReceiveRing, RdmaError> {
        ReceiveRing::new(self.log_slots, self.log_stride).ok_or_else(|| RdmaError::Queue {
            blocks: 1u32.checked_shl(self.log_slots).unwrap_or(u32::MAX),
            reason: format!(
                "receives of {} pieces: a receive ring has 1 to {} receives of 1 to 128 pieces",
                1u64.checked_shl(self.log_stride).unwrap_or(u64::MAX),
                1u32 << MAX_LOG_BLOCKS
            ),
        })
    }
}

impl ReceiveRings {
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
    /// Both work queues: the receive ring, if there is one, and behind it the send ring.
    work: Region,
    ring: Region,
    completions: Region,
    receives: Option<ReceiveRings>,
    /// The doorbell record, and the doorbell if it is in memory.
    records: Region,
    /// `mark` and `hold` of `wb_send_queue`, one word each per block. Only kernels use them.
    state: Region,
    /// A doorbell outside `records`, as memory and the offset in it: a register, or a mailbox elsewhere.
    doorbell: Option<(Region, usize)>,
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
        let shape = plan.receives.map(ReceivePlan::shape).transpose()?;
        let front = shape.map_or(0, |s| s.bytes().next_multiple_of(BLOCK_BYTES));
        let work = plan.space.allocate(place, front + blocks * BLOCK_BYTES)?;
        let ring = work.part(front, blocks * BLOCK_BYTES)?;
        let completions = plan.space.allocate(place, entries * CQE_BYTES)?;
        let records = plan.space.allocate(place, DOORBELL_AT + 2 * BLOCK_BYTES)?;
        let state = plan.space.allocate(Place::Device, 2 * blocks * size_of::<u32>())?;
        let receives = match (plan.receives, shape) {
            (Some(plan_of), Some(shape)) => {
                let completions = plan.space.allocate(place, shape.slots() as usize * CQE_BYTES)?;
                Some(ReceiveRings { plan: plan_of, shape, ring: work.part(0, shape.bytes())?, completions })
            }
            _ => None,
        };
        let memory = Self { plan, place, work, ring, completions, receives, records, state, doorbell: None, flame: 0 };
        memory.clear()?;
        Ok(memory)
    }

    /// Wraps existing rings and an existing record for a ring service. `received` is the ring of the plan's receives and
    /// that of their completions.
    #[cfg(test)]
    pub(crate) fn over(
        plan: QueuePlan,
        ring: Region,
        completions: Region,
        received: Option<(Region, Region)>,
        records: Region,
    ) -> Self {
        let state = plan.space.allocate(Place::Host, 1).expect("memory");
        let (place, work) = (Place::Host, ring.clone());
        let receives = plan.receives.zip(received).map(|(plan, (ring, completions))| {
            let shape = plan.shape().expect("a size of receive rings");
            ReceiveRings { plan, shape, ring, completions }
        });
        Self { plan, place, work, ring, completions, receives, records, state, doorbell: None, flame: 0 }
    }

    /// Resets the memory to its initial state. Nothing may use it meanwhile.
    ///
    /// # Errors
    /// [`RdmaError::Memory`] if the memory cannot be written.
    pub fn clear(&self) -> Result<(), RdmaError> {
        self.work.fill(0, self.work.len(), 0)?;
        self.completions.fill(0, self.completions.len(), NEVER_WRITTEN)?;
        if let Some(r) = &self.receives {
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

    /// Returns the memory of both work queues: the receive ring, if there is one, and at the next multiple of 64 bytes the
    /// send ring.
    pub fn work(&self) -> &Region {
        &self.work
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

    /// Sets the doorbell: the word at a byte offset of memory, which may be a mapped page of registers.
    pub(super) fn set_doorbell(&mut self, memory: Region, offset: usize) {
        self.doorbell = Some((memory, offset));
    }

    /// Returns the memory that has the doorbell. Kernels that post may write it.
    pub(crate) fn doorbell_memory(&self) -> &Region {
        self.doorbell.as_ref().map_or(&self.records, |(memory, _)| memory)
    }

    /// Returns the doorbell in this process; `None` if only a GPU reaches it.
    pub(super) fn host_doorbell(&self) -> Option<SharedMemory> {
        // SAFETY: within the region.
        self.doorbell_memory().host().map(|base| SharedMemory(unsafe { base.add(self.doorbell_at()) }))
    }

    /// Returns the byte offset of the doorbell in its memory.
    fn doorbell_at(&self) -> usize {
        self.doorbell.as_ref().map_or(DOORBELL_AT, |(_, offset)| *offset)
    }

    /// Sets the doorbell to a BlueFlame register, which also takes whole entries. `half` is the distance of its halves
    /// in bytes, at least a block. A doorbell in memory has space for halves of one block.
    pub fn set_blue_flame(&mut self, half: u32) {
        self.flame = half;
    }

    /// Returns the `wb_send_queue` of queue pair `number` without staged entries; the caller fills in the rest. Its
    /// doorbell is the one in memory, unless the adapter has set another.
    pub fn send_queue(&self, number: u32, flags: u32) -> abi::SendQueue {
        let blocks = self.blocks();
        let collapsed = if self.plan.collapsed { abi::SEND_COLLAPSED } else { 0 };
        abi::SendQueue {
            ring: self.ring.address(),
            completions: self.completions.address(),
            record: self.records.address(),
            doorbell: self.doorbell_memory().address() + self.doorbell_at() as u64,
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
