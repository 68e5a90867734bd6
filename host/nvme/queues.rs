//! I/O queue pairs in memory that kernels reach, and everything that belongs to their slots.

use super::NvmeError;
use super::controller::{Controller, PAGE_BYTES, PAGE_SHIFT, Ready};
use super::doorbell::{DoorbellChoice, DoorbellPath, Forwarder};
use super::layout::{self, Arrays, DEPTHS, Idle, KernelWords};
use crate::engine::{Args, KernelArg, abi};
use crate::memory::{DmaError, DmaRegion, Place, Region, Space};
use crate::wire::nvme::register;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, offset_of};
use std::sync::Arc;

/// Where the data of a command lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// In the memory that the kernel names: the device reaches it.
    Direct,
    /// In a host buffer that belongs to the command's slot; lanes copy it from there.
    Bounce {
        /// Bytes of each slot's buffer: 512, 1024, 2048, or whole pages of 4096 up to 2 MiB.
        bytes_per_slot: usize,
    },
}

impl fmt::Display for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Bounce { .. } => "bounce",
        })
    }
}

/// What queues to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Queue pairs.
    pub count: u32,
    /// Entries of each: a power of two from 2 to 65,536, and not more than the controller has (CAP.MQES).
    pub depth: u32,
    /// Where the rings are. `Device` needs a device that reaches the kernels' memory.
    pub memory: Place,
    /// Submission rings go to the controller memory buffer; completion rings stay where `memory` says.
    pub submission_in_buffer: bool,
    /// Where data lands.
    pub landing: Landing,
    /// Who is to ring.
    pub doorbell: DoorbellChoice,
    /// The first ticket that kernels take, a multiple of twice the depth: the device starts at slot 0 with phase 1, and
    /// the phase that kernels expect follows from the ticket's lap, which must be even. Anything but 0 is for tests
    /// of the wrap-around.
    pub first_ticket: u32,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            count: 1,
            depth: 256,
            memory: Place::Host,
            submission_in_buffer: false,
            doorbell: DoorbellChoice::Auto,
            landing: Landing::Bounce { bytes_per_slot: PAGE_BYTES },
            first_ticket: 0,
        }
    }
}

#[derive(Debug)]
enum Doorbells {
    Window(Arc<Region>),
    Forwarder(Forwarder),
    /// Only the host rings, through the port.
    Host,
}

/// What the controller knows of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    Absent,
    Completion,
    Whole,
}

/// Everything that the device may write to or read from, released together or not at all.
#[derive(Debug)]
struct DeviceMemory {
    rings: DmaRegion,
    /// Submission rings in the controller memory buffer; those in `rings` are not used then.
    submission: Option<DmaRegion>,
    bounce: Option<DmaRegion>,
    lists: Option<DmaRegion>,
}

/// I/O queue pairs of one controller. Dropping deletes them, bounded by the controller's command deadline; if it does not
/// answer, their memory is kept for the rest of the process, because a device may still write to it.
pub struct QueueSet {
    controller: Arc<Controller<Ready>>,
    space: Space,
    options: QueueOptions,
    ids: Vec<u16>,
    pairs: Vec<Pair>,
    /// The controller's resets when the pairs were created.
    generation: u32,
    memory: ManuallyDrop<DeviceMemory>,
    arrays: ManuallyDrop<Region>,
    places: Arrays,
    doorbells: Doorbells,
    doorbell_note: Option<String>,
    max_transfer: usize,
}

/// A queue set lent to a kernel: passed as the address of its `wb_queue[]`. While it lives the set cannot be dropped.
#[derive(Clone, Copy, Debug)]
pub struct LentQueues<'a> {
    address: u64,
    _set: PhantomData<&'a QueueSet>,
}

impl<'a> KernelArg<'a> for LentQueues<'a> {
    fn push(&self, args: &mut Args<'a>) {
        args.push_value(self.address);
    }
}

/// Gives identifiers back unless a set takes them over.
struct Taken<'a> {
    controller: &'a Controller<Ready>,
    ids: Vec<u16>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.ids.iter().for_each(|id| self.controller.state.queues.give_back(*id));
    }
}

impl Controller<Ready> {
    /// Creates queue pairs for kernels of `space`.
    pub fn create_queues(self: &Arc<Self>, space: &Space, options: QueueOptions) -> Result<QueueSet, NvmeError> {
        QueueSet::create(self, space, options, false)
    }

    fn check_options(&self, options: &QueueOptions) -> Result<(), NvmeError> {
        let device = || self.name().to_owned();
        let refuse = |reason: String| Err(NvmeError::Options { device: device(), reason });
        let QueueOptions { count, depth, landing, first_ticket, .. } = *options;
        if !depth.is_power_of_two() || !DEPTHS.contains(&depth) {
            return Err(NvmeError::Depth { device: device(), depth });
        }
        let most = self.cap().max_queue_entries();
        if depth > most {
            let fits = 1 << most.ilog2();
            return Err(NvmeError::TooDeep { device: device(), depth, most, fits });
        }
        if count == 0 {
            return refuse("no queue pairs were asked for; ask for one or more".to_owned());
        }
        // Twice 65,536 still divides the range of tickets.
        if !first_ticket.is_multiple_of(2 * depth) {
            return refuse(format!(
                "the first ticket {first_ticket} is not a multiple of {}, twice the depth",
                2 * depth
            ));
        }
        match landing {
            Landing::Direct => Ok(()),
            Landing::Bounce { bytes_per_slot } => layout::check_bounce(bytes_per_slot).or_else(refuse),
        }
    }

    fn take_queues(&self, count: u32) -> Result<Taken<'_>, NvmeError> {
        let queues = &self.state.queues;
        let ids = queues.take(count).ok_or_else(|| NvmeError::TooManyQueues {
            device: self.name().to_owned(),
            asked: count,
            granted: queues.granted(),
            used: queues.used(),
        })?;
        Ok(Taken { controller: self, ids })
    }
}

impl QueueSet {
    /// `host_only`: nobody but the host submits, so kernels get no doorbells.
    pub(super) fn create(
        controller: &Arc<Controller<Ready>>,
        space: &Space,
        options: QueueOptions,
        host_only: bool,
    ) -> Result<Self, NvmeError> {
        controller.check_options(&options)?;
        let mut taken = controller.take_queues(options.count)?;
        let limit = controller.max_data_transfer().map_or(usize::MAX, |m| usize::try_from(m).unwrap_or(usize::MAX));
        let most = match options.landing {
            Landing::Direct => layout::MAX_TRANSFER,
            Landing::Bounce { bytes_per_slot } => bytes_per_slot,
        };
        let max_transfer = most.min(limit);
        let memory = Self::device_memory(controller, space, &options, max_transfer)?;
        let places = Arrays::new(options.count, options.depth);
        let arrays = space.allocate(Place::Device, places.bytes)?;
        let (doorbells, doorbell_note) = if host_only {
            (Doorbells::Host, None)
        } else {
            Self::doorbells(controller, space, &taken.ids, options.doorbell)?
        };
        let ids = std::mem::take(&mut taken.ids);
        let mut set = Self {
            controller: controller.clone(),
            space: space.clone(),
            pairs: vec![Pair::Absent; ids.len()],
            generation: controller.generation(),
            ids,
            memory: ManuallyDrop::new(memory),
            arrays: ManuallyDrop::new(arrays),
            places,
            doorbells,
            doorbell_note,
            max_transfer,
            options,
        };
        set.write_queues(set.options.first_ticket)?;
        set.create_pairs()?;
        Ok(set)
    }

    fn device_memory(
        controller: &Controller<Ready>,
        space: &Space,
        options: &QueueOptions,
        max_transfer: usize,
    ) -> Result<DeviceMemory, NvmeError> {
        let dma = controller.dma();
        let (count, depth) = (options.count as usize, options.depth as usize);
        let too_much = || NvmeError::Options {
            device: controller.name().to_owned(),
            reason: format!("{count} queues of {depth} entries need more memory than can be addressed"),
        };
        let total = |each: usize| each.checked_mul(count).ok_or_else(too_much);
        let slots = total(depth)?;
        let ring_bytes = total(layout::rings(options.depth).bytes)?;
        let rings = match options.memory {
            Place::Host => dma.allocate(space, ring_bytes)?,
            Place::Device => {
                let region = Arc::new(space.allocate(Place::Device, ring_bytes)?);
                let mapped = controller.map_memory(&region)?;
                if !mapped.iova.is_multiple_of(PAGE_BYTES as u64) {
                    let reason = format!("the device's address {:#x} of the rings is not page aligned", mapped.iova);
                    return Err(DmaError::Unreachable { device: controller.name().to_owned(), reason }.into());
                }
                mapped
            }
        };
        let submission = match options.submission_in_buffer {
            true => {
                let bytes = total(layout::rings(options.depth).cq_offset)?;
                Some(controller.memory_buffer()?.allocate(controller.name(), space, bytes)?)
            }
            false => None,
        };
        let bounce = match options.landing {
            Landing::Direct => None,
            Landing::Bounce { bytes_per_slot } => {
                Some(dma.allocate(space, slots.checked_mul(bytes_per_slot).ok_or_else(too_much)?)?)
            }
        };
        let lists = if layout::needs_lists(max_transfer, bounce.is_some()) {
            Some(dma.allocate(space, slots.checked_mul(PAGE_BYTES).ok_or_else(too_much)?)?)
        } else {
            None
        };
        if let (Some(bounce), Some(lists), Landing::Bounce { bytes_per_slot }) = (&bounce, &lists, options.landing) {
            for slot in 0..slots {
                let list = layout::list_of(bounce.iova + (slot * bytes_per_slot) as u64, bytes_per_slot);
                lists.region.set_slice(lists.offset + slot * PAGE_BYTES, &list)?;
            }
        }
        Ok(DeviceMemory { rings, submission, bounce, lists })
    }

    fn doorbells(
        controller: &Controller<Ready>,
        space: &Space,
        ids: &[u16],
        choice: DoorbellChoice,
    ) -> Result<(Doorbells, Option<String>), NvmeError> {
        let stride = controller.cap().doorbell_stride();
        if choice == DoorbellChoice::Forwarded {
            let forwarder = Forwarder::start(controller.name(), controller.port().clone(), space, ids, stride)?;
            return Ok((Doorbells::Forwarder(forwarder), None));
        }
        let note = match controller.doorbell_window(space) {
            Ok(Some(window)) => {
                for &id in ids {
                    let offset = (register::cq_head(id, stride) - register::DOORBELLS) as usize;
                    if offset + size_of::<u32>() > window.len() {
                        let (device, window) = (controller.name().to_owned(), window.len());
                        return Err(NvmeError::NoDoorbell { device, queue: id, offset, window });
                    }
                }
                return Ok((Doorbells::Window(window), None));
            }
            Ok(None) => "the device has no doorbells that a store reaches".to_owned(),
            Err(e) => format!("the doorbells cannot be mapped for kernels: {e}"),
        };
        if choice == DoorbellChoice::Kernel {
            return Err(NvmeError::NoKernelDoorbell { device: controller.name().to_owned(), reason: note });
        }
        tracing::debug!(device = controller.name(), reason = note, "a host thread forwards doorbells");
        let forwarder = Forwarder::start(controller.name(), controller.port().clone(), space, ids, stride)?;
        Ok((Doorbells::Forwarder(forwarder), Some(note)))
    }

    fn doorbell_addresses(&self, index: usize) -> (u64, u64) {
        let stride = self.controller.cap().doorbell_stride();
        match &self.doorbells {
            Doorbells::Window(window) => {
                let at = |register| window.address() + u64::from(register - register::DOORBELLS);
                (at(register::sq_tail(self.ids[index], stride)), at(register::cq_head(self.ids[index], stride)))
            }
            Doorbells::Forwarder(f) => f.addresses(index),
            Doorbells::Host => (0, 0),
        }
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
            Some(r) => (r.address() + (slots * each) as u64, r.iova + (slots * each) as u64),
            None => (0, 0),
        };
        let (bounce, bounce_iova) = part(&self.memory.bounce, bounce_bytes);
        let (prp_list, prp_list_iova) = part(&self.memory.lists, PAGE_BYTES);
        let array = |offset: usize| self.arrays.address() + offset as u64;
        let submission = self.submission_ring(index);
        abi::Queue {
            sq: submission.0.address() + submission.1 as u64,
            cq: rings + ring.cq_offset as u64,
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
            ticket,
            frontier: ticket,
            tail: ticket,
            head: ticket,
            ..bytemuck::Zeroable::zeroed()
        }
    }

    /// Writes `wb_queue[]` and the slots of all queues, idle with this next ticket.
    fn write_queues(&self, ticket: u32) -> Result<(), NvmeError> {
        (0..self.count()).try_for_each(|index| self.write_idle(index, ticket))
    }

    /// Writes one queue's structures, idle with this next ticket.
    pub(super) fn write_idle(&self, index: u32, ticket: u32) -> Result<(), NvmeError> {
        let idle = Idle::new(self.options.depth, ticket);
        let slots: Vec<u32> = (0..self.options.depth).map(|s| idle.slot_word(s)).collect();
        let marks: Vec<u32> = (0..self.options.depth).map(|s| idle.mark(s)).collect();
        self.arrays.set_slice(self.places.slot(index), &slots)?;
        self.arrays.set_slice(self.places.mark(index), &marks)?;
        self.arrays.fill(self.places.outcome(index), self.places.rest_bytes(), 0)?;
        self.arrays.set(self.places.queue(index), self.queue(index, ticket))?;
        Ok(())
    }

    /// The next ticket of a queue if nothing is in flight on it, as its words in kernel memory say.
    pub(super) fn idle_ticket(&self, index: u32) -> Result<Option<u32>, NvmeError> {
        let at = self.places.queue(index);
        let word = |offset: usize| self.arrays.get::<u32>(at + offset);
        let ticket = word(offset_of!(abi::Queue, ticket))?;
        let (tail, head) = (word(offset_of!(abi::Queue, tail))?, word(offset_of!(abi::Queue, head))?);
        let locked = word(offset_of!(abi::Queue, tail_lock))? | word(offset_of!(abi::Queue, head_lock))?;
        Ok((ticket == tail && tail == head && locked == 0).then_some(ticket))
    }

    /// What kernels keep about a queue.
    pub(super) fn kernel_words(&self, index: u32) -> Result<KernelWords, NvmeError> {
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

    /// Whether the controller was reset since the queues were created, which ended them.
    pub fn is_stale(&self) -> bool {
        self.generation != self.controller.generation()
    }

    fn create_pairs(&mut self) -> Result<(), NvmeError> {
        let ring = layout::rings(self.options.depth);
        for (i, &id) in self.ids.iter().enumerate() {
            let at = i * ring.bytes;
            self.controller.create_cq(id, self.options.depth, &self.memory.rings, at + ring.cq_offset)?;
            self.pairs[i] = Pair::Completion;
            let (ring, at) = self.submission_ring(i as u32);
            self.controller.create_sq(id, self.options.depth, ring, at)?;
            self.pairs[i] = Pair::Whole;
        }
        Ok(())
    }

    /// Deletes all pairs, submission queues first. Once the controller does not answer it is not asked again.
    fn delete_pairs(&mut self) -> Result<(), NvmeError> {
        if self.generation != self.controller.generation() {
            self.pairs.fill(Pair::Absent);
            self.generation = self.controller.generation();
        }
        for i in 0..self.ids.len() {
            if self.pairs[i] == Pair::Whole {
                self.controller.delete_sq(self.ids[i])?;
                self.pairs[i] = Pair::Completion;
            }
        }
        for i in 0..self.ids.len() {
            if self.pairs[i] == Pair::Completion {
                self.controller.delete_cq(self.ids[i])?;
                self.pairs[i] = Pair::Absent;
            }
        }
        Ok(())
    }

    /// Deletes the queues and creates them again, empty: commands in flight are dropped, tokens of them are void. This is
    /// how queues become usable again after a run that ended with commands without completion.
    pub fn reset(&mut self) -> Result<(), NvmeError> {
        if let Doorbells::Forwarder(f) = &mut self.doorbells {
            f.stop();
        }
        self.delete_pairs()?;
        self.memory.rings.region.fill(self.memory.rings.offset, self.memory.rings.bytes, 0)?;
        if let Doorbells::Forwarder(_) = self.doorbells {
            let stride = self.controller.cap().doorbell_stride();
            let port = self.controller.port().clone();
            self.doorbells =
                Doorbells::Forwarder(Forwarder::start(self.controller.name(), port, &self.space, &self.ids, stride)?);
        }
        self.write_queues(0)?;
        self.create_pairs()
    }

    /// The address of `wb_queue[count]` as kernels see it.
    pub fn address(&self) -> u64 {
        self.arrays.address()
    }

    /// Lends the queues to a kernel: a launch argument that keeps the set borrowed.
    pub fn lend(&self) -> LentQueues<'_> {
        LentQueues { address: self.address(), _set: PhantomData }
    }

    /// Queue pairs.
    pub fn count(&self) -> u32 {
        self.options.count
    }

    /// Entries of each queue.
    pub fn depth(&self) -> u32 {
        self.options.depth
    }

    /// Where the rings are; with [`submission_in_buffer`](Self::submission_in_buffer) the completion rings alone.
    pub fn memory(&self) -> Place {
        self.options.memory
    }

    /// Whether the submission rings are in the controller memory buffer.
    pub fn submission_in_buffer(&self) -> bool {
        self.options.submission_in_buffer
    }

    /// Where data lands.
    pub fn landing(&self) -> Landing {
        self.options.landing
    }

    /// Who rings.
    pub fn doorbell(&self) -> DoorbellPath {
        match self.doorbells {
            Doorbells::Window(_) => DoorbellPath::Kernel,
            Doorbells::Forwarder(_) => DoorbellPath::Forwarded,
            Doorbells::Host => DoorbellPath::Host,
        }
    }

    /// Why kernels do not ring themselves, if they do not.
    pub fn doorbell_note(&self) -> Option<&str> {
        self.doorbell_note.as_deref()
    }

    /// The most bytes that one command may move: the least of MDTS, the bounce buffer and one PRP list.
    pub fn max_transfer_bytes(&self) -> usize {
        self.max_transfer
    }

    /// log2 of the controller's memory page, for PRP entries (CC.MPS).
    pub fn memory_page_shift(&self) -> u32 {
        PAGE_SHIFT
    }

    /// The controller.
    pub fn controller(&self) -> &Arc<Controller<Ready>> {
        &self.controller
    }

    /// The address space of the kernels.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The identifier that the controller knows the queue at `index` by.
    pub fn queue_id(&self, index: u32) -> Option<u16> {
        self.ids.get(index as usize).copied()
    }

    /// Asks the controller to abort a command of the queue at `index`; whether it did.
    pub fn abort(&self, index: u32, cid: u16) -> Result<bool, NvmeError> {
        let id = self.queue_id(index).ok_or_else(|| self.no_queue(index))?;
        self.controller.abort(id, cid)
    }

    /// Whether these queues can work: doorbells are forwarded, and the controller is there and well. Asked after a run
    /// ended with time-outs, it says why.
    pub fn check(&self) -> Result<(), NvmeError> {
        if let Doorbells::Forwarder(f) = &self.doorbells
            && let Some(reason) = f.error()
        {
            return Err(NvmeError::Forwarder { device: self.controller.name().to_owned(), reason });
        }
        self.controller.check()?;
        if self.is_stale() {
            return Err(NvmeError::QueuesLost { device: self.controller.name().to_owned() });
        }
        Ok(())
    }

    pub(super) fn no_queue(&self, index: u32) -> NvmeError {
        let reason = format!("there is no queue {index}; the set has {}", self.count());
        NvmeError::Options { device: self.controller.name().to_owned(), reason }
    }

    /// Rings a doorbell from the host.
    pub(super) fn ring(&self, index: u32, completion: bool, value: u32) -> Result<(), NvmeError> {
        if let Doorbells::Forwarder(f) = &self.doorbells {
            // Not past the forwarder: it must know the last value to see that a kernel's is new.
            f.store(index as usize, completion, value);
            return Ok(());
        }
        let stride = self.controller.cap().doorbell_stride();
        let id = self.ids[index as usize];
        let register = if completion { register::cq_head(id, stride) } else { register::sq_tail(id, stride) };
        Ok(self.controller.port().write32(register, value)?)
    }

    /// Where the submission ring of the queue at `index` is, and its offset there.
    pub(super) fn submission_ring(&self, index: u32) -> (&DmaRegion, usize) {
        let ring = layout::rings(self.options.depth);
        match &self.memory.submission {
            Some(buffer) => (buffer, index as usize * ring.cq_offset),
            None => (&self.memory.rings, index as usize * ring.bytes),
        }
    }

    pub(super) fn ring_memory(&self) -> &DmaRegion {
        &self.memory.rings
    }

    /// Bounce buffers and PRP lists of all slots.
    pub(super) fn slot_memory(&self) -> (Option<&DmaRegion>, Option<&DmaRegion>) {
        (self.memory.bounce.as_ref(), self.memory.lists.as_ref())
    }
}

impl fmt::Debug for QueueSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueSet({}: {:?}, doorbell {})", self.controller.name(), self.options, self.doorbell())
    }
}

impl Drop for QueueSet {
    fn drop(&mut self) {
        if let Doorbells::Forwarder(forwarder) = &mut self.doorbells {
            forwarder.stop();
        }
        let deleted = self.delete_pairs();
        // A kernel that would not end still uses the rings, and may ring for these identifiers.
        let in_use = self.space.is_poisoned();
        for (id, pair) in self.ids.iter().zip(&self.pairs) {
            if *pair == Pair::Absent && !in_use {
                self.controller.state.queues.give_back(*id);
            } else {
                self.controller.state.queues.lose(*id);
            }
        }
        if let Err(e) = &deleted {
            tracing::warn!(device = self.controller.name(), error = %e, "queues not deleted; their memory is kept");
        }
        if deleted.is_ok() && !in_use {
            // SAFETY: neither is used again; this is their owner's drop.
            unsafe {
                ManuallyDrop::drop(&mut self.memory);
                ManuallyDrop::drop(&mut self.arrays);
            }
        }
    }
}
