//! I/O queue pairs in memory that kernels reach, and everything that belongs to their slots.

mod kernel_view;
mod memory;
mod options;

pub use options::{Landing, QueueOptions};

use self::memory::DeviceMemory;
use super::NvmeError;
use super::controller::{Controller, PAGE_SHIFT, Ready};
use super::doorbell::Forwarder;
use super::layout::{self, Arrays};
use crate::data_path::{Doorbell, DoorbellChoice};
use crate::memory::{DmaRegion, Place, Region, Space};
use crate::wire::nvme::register;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

#[derive(Debug)]
enum Doorbells {
    Window(Region),
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
        let memory = DeviceMemory::allocate(controller, space, &options, max_transfer)?;
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

    fn doorbells(
        controller: &Controller<Ready>,
        space: &Space,
        ids: &[u16],
        choice: DoorbellChoice,
    ) -> Result<(Doorbells, Option<String>), NvmeError> {
        let stride = controller.cap().doorbell_stride();
        if choice == DoorbellChoice::Cpu {
            let forwarder = Forwarder::start(controller.name(), controller.port().clone(), space, ids, stride)?;
            return Ok((Doorbells::Forwarder(forwarder), None));
        }
        let note = match controller.doorbell_pages(space) {
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
        if choice == DoorbellChoice::Gpu {
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

    /// Returns the part that rings the doorbells.
    pub fn doorbell(&self) -> Doorbell {
        match self.doorbells {
            Doorbells::Window(_) if self.space.gpu_context().is_some() => Doorbell::Gpu,
            Doorbells::Window(_) => Doorbell::CpuEngine,
            Doorbells::Forwarder(_) => Doorbell::Cpu,
            Doorbells::Host => Doorbell::Host,
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
