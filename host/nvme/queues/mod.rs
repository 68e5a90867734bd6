//! I/O queue pairs in memory that kernels access, with the data of their slots.

mod kernel_view;
mod memory;
mod options;
#[cfg(feature = "internals")]
mod refused;

pub(crate) use kernel_view::QueueWords;
pub use options::{Landing, QueueOptions};

use self::memory::DeviceMemory;
use super::controller::{Controller, PAGE_SHIFT, Ready};
use super::doorbell::Forwarder;
use super::layout::{self, Arrays};
use super::{CapsulePlan, CapsuleQueue, NvmeError};
use crate::data_path::{Doorbell, DoorbellChoice};
use crate::memory::{DmaRegion, Place, Region, Space};
use crate::wire::nvme::register;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

#[derive(Debug)]
enum Doorbells {
    Mapped(Region),
    Forwarder(Forwarder),
    /// Only the host writes doorbells, through the port.
    Host,
    /// Kernels post capsules to RDMA queue pairs: one for each queue, once the queues are created.
    Capsules(Vec<Arc<dyn CapsuleQueue>>),
}

/// Users of a queue set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submitter {
    /// Kernels, by the fastest way that the controller offers.
    Kernels,
    /// Streams, which only write to rings and doorbells in memory.
    Streams,
    /// The host. Kernels get no doorbells.
    Host,
}

/// State of a queue pair in the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    Absent,
    Completion,
    Whole,
}

/// I/O queue pairs of one controller.
///
/// Dropping the set deletes its queues, at most for the controller's command deadline. If the controller does not
/// respond, the memory is kept for the rest of the process, because the device may still write to it.
pub struct QueueSet {
    controller: Arc<Controller<Ready>>,
    space: Space,
    options: QueueOptions,
    ids: Vec<u16>,
    pairs: Vec<Pair>,
    /// Number of controller resets when the pairs were created.
    generation: u32,
    memory: ManuallyDrop<DeviceMemory>,
    arrays: ManuallyDrop<Region>,
    places: Arrays,
    doorbells: ManuallyDrop<Doorbells>,
    doorbell_note: Option<String>,
    max_transfer: usize,
}

/// Queue identifiers that are freed on drop, unless a set takes them over.
struct ReservedIds<'a> {
    controller: &'a Controller<Ready>,
    ids: Vec<u16>,
}

impl Drop for ReservedIds<'_> {
    fn drop(&mut self) {
        self.ids.iter().for_each(|id| self.controller.state.queues.give_back(*id));
    }
}

impl Controller<Ready> {
    /// Creates queue pairs for kernels of `space`.
    ///
    /// # Errors
    /// - [`NvmeError::Depth`], [`NvmeError::TooDeep`] or [`NvmeError::Options`] if an option is invalid.
    /// - [`NvmeError::TooManyQueues`] if fewer queue pairs are free.
    /// - [`NvmeError::Dma`] or [`NvmeError::Memory`] if memory cannot be allocated or mapped.
    /// - [`NvmeError::NoMemoryBuffer`] if submission rings were to go there and do not fit.
    /// - [`NvmeError::NoKernelDoorbell`], [`NvmeError::NoDoorbell`] or [`NvmeError::Forwarder`] if
    ///   kernels get no doorbells.
    /// - Those of any admin command: see [`Controller::feature`].
    pub fn create_queues(self: &Arc<Self>, space: &Space, options: QueueOptions) -> Result<QueueSet, NvmeError> {
        QueueSet::create(self, space, options, Submitter::Kernels)
    }

    fn take_queues(&self, count: u32) -> Result<ReservedIds<'_>, NvmeError> {
        let queues = &self.state.queues;
        let ids = queues.take(count).ok_or_else(|| NvmeError::TooManyQueues {
            device: self.name().to_owned(),
            asked: count,
            granted: queues.granted(),
            used: queues.used(),
        })?;
        Ok(ReservedIds { controller: self, ids })
    }
}

impl QueueSet {
    /// Creates the queues.
    pub(super) fn create(
        controller: &Arc<Controller<Ready>>,
        space: &Space,
        options: QueueOptions,
        submitter: Submitter,
    ) -> Result<Self, NvmeError> {
        controller.check_options(&options)?;
        let mut taken = controller.take_queues(options.count)?;
        let limit = controller.max_data_transfer().map_or(usize::MAX, |m| usize::try_from(m).unwrap_or(usize::MAX));
        let most = match options.landing {
            Landing::Direct => layout::MAX_TRANSFER,
            Landing::Bounce { bytes_per_slot } => bytes_per_slot,
        };
        let max_transfer = most.min(limit);
        // With forwarded doorbells, and with entries in the controller's memory, host threads carry the commands.
        let by_capsules = submitter == Submitter::Kernels
            && options.doorbell != DoorbellChoice::Cpu
            && !options.submission_in_buffer
            && options.capsules
            && controller.port().capsules().is_some();
        let memory = DeviceMemory::allocate(controller, space, &options, max_transfer, by_capsules)?;
        let places = Arrays::new(options.count, options.depth);
        let arrays = space.allocate(Place::Device, places.bytes)?;
        let (doorbells, doorbell_note) = match submitter {
            Submitter::Host => (Doorbells::Host, None),
            _ if by_capsules => (Doorbells::Capsules(Vec::new()), None),
            _ => Self::doorbells(controller, space, &taken.ids, options.doorbell)?,
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
            doorbells: ManuallyDrop::new(doorbells),
            doorbell_note,
            max_transfer,
            options,
        };
        let first = set.options.first_ticket;
        set.write_queues(first)?;
        set.create_pairs(first)?;
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
                return Ok((Doorbells::Mapped(window), None));
            }
            Ok(None) => "the device has no doorbells in mapped memory".to_owned(),
            Err(e) => format!("the doorbells cannot be mapped for kernels: {e}"),
        };
        if choice == DoorbellChoice::Gpu {
            return Err(NvmeError::NoKernelDoorbell { device: controller.name().to_owned(), reason: note });
        }
        tracing::debug!(device = controller.name(), reason = note, "a host thread forwards doorbells");
        let forwarder = Forwarder::start(controller.name(), controller.port().clone(), space, ids, stride)?;
        Ok((Doorbells::Forwarder(forwarder), Some(note)))
    }

    pub(super) fn doorbell_addresses(&self, index: usize) -> (u64, u64) {
        let stride = self.controller.cap().doorbell_stride();
        match &*self.doorbells {
            Doorbells::Mapped(window) => {
                let at = |register| window.address() + u64::from(register - register::DOORBELLS);
                (at(register::sq_tail(self.ids[index], stride)), at(register::cq_head(self.ids[index], stride)))
            }
            Doorbells::Forwarder(f) => f.addresses(index),
            Doorbells::Host | Doorbells::Capsules(_) => (0, 0),
        }
    }

    /// Returns true if the controller was reset since the queues were created. The reset ended them.
    pub fn is_stale(&self) -> bool {
        self.generation != self.controller.generation()
    }

    /// Creates the pairs, whose next ticket is `ticket`.
    fn create_pairs(&mut self, ticket: u32) -> Result<(), NvmeError> {
        let ring = layout::rings(self.options.depth);
        for (i, &id) in self.ids.iter().enumerate() {
            let at = i * ring.bytes;
            self.controller.create_cq(id, self.options.depth, &self.memory.rings, at + ring.cq_offset)?;
            self.pairs[i] = Pair::Completion;
            let (ring, at) = self.submission_ring(i as u32);
            let capsules = self.controller.port().capsules().filter(|_| self.by_capsules()).map(|c| {
                let (space, ring) = (self.space.clone(), ring.clone());
                c.announce(id, CapsulePlan { space, ring, offset: at, entries: self.options.depth, ticket })
            });
            self.controller.create_sq(id, self.options.depth, ring, at)?;
            self.pairs[i] = Pair::Whole;
            if let (Some(queue), Doorbells::Capsules(all)) = (capsules, &mut *self.doorbells) {
                let address = queue.address().unwrap_or_default();
                all.push(queue);
                self.write_connection(i as u32, address)?;
            }
        }
        Ok(())
    }

    /// Returns true if kernels post capsules themselves.
    pub(crate) fn by_capsules(&self) -> bool {
        matches!(*self.doorbells, Doorbells::Capsules(_))
    }

    /// Deletes all pairs, submission queues first. Stops at the first command that the controller does not complete.
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

    /// Deletes the queues and creates them again, empty. Drops commands in flight, and their tokens become void. Makes
    /// queues usable again after a run that left commands without completion.
    ///
    /// # Errors
    /// - [`NvmeError::Memory`] if memory of the queues cannot be written.
    /// - [`NvmeError::Forwarder`] if the thread that forwards doorbells does not start.
    /// - Those of any admin command: see [`Controller::feature`].
    pub fn reset(&mut self) -> Result<(), NvmeError> {
        if let Doorbells::Forwarder(f) = &mut *self.doorbells {
            f.stop();
        }
        self.delete_pairs()?;
        self.memory.rings.region.fill(self.memory.rings.offset, self.memory.rings.bytes, 0)?;
        if let Doorbells::Forwarder(_) = *self.doorbells {
            let stride = self.controller.cap().doorbell_stride();
            let port = self.controller.port().clone();
            *self.doorbells =
                Doorbells::Forwarder(Forwarder::start(self.controller.name(), port, &self.space, &self.ids, stride)?);
        }
        if let Doorbells::Capsules(queues) = &mut *self.doorbells {
            queues.clear();
        }
        self.write_queues(0)?;
        self.create_pairs(0)
    }

    /// Returns the number of queue pairs.
    pub fn count(&self) -> u32 {
        self.options.count
    }

    /// Returns the number of entries of each queue.
    pub fn depth(&self) -> u32 {
        self.options.depth
    }

    /// Returns the place of the rings. With [`submission_in_buffer`](Self::submission_in_buffer),
    /// that of the completion rings.
    pub fn memory(&self) -> Place {
        self.options.memory
    }

    /// Returns true if the submission rings are in the controller memory buffer.
    pub fn submission_in_buffer(&self) -> bool {
        self.options.submission_in_buffer
    }

    /// Returns where the data of commands lands.
    pub fn landing(&self) -> Landing {
        self.options.landing
    }

    /// Returns the writer of the doorbells.
    pub fn doorbell(&self) -> Doorbell {
        match *self.doorbells {
            Doorbells::Mapped(_) | Doorbells::Capsules(_) if self.space.gpu_context().is_some() => Doorbell::Gpu,
            Doorbells::Mapped(_) | Doorbells::Capsules(_) => Doorbell::CpuEngine,
            Doorbells::Forwarder(_) => Doorbell::Cpu,
            Doorbells::Host => Doorbell::Host,
        }
    }

    /// Returns the reason why kernels cannot write doorbells themselves; `None` if they can, or if they were not to.
    pub fn doorbell_note(&self) -> Option<&str> {
        self.doorbell_note.as_deref()
    }

    /// Returns the largest transfer of one command in bytes: the least of MDTS, the bounce buffer and one PRP list.
    pub fn max_transfer_bytes(&self) -> usize {
        self.max_transfer
    }

    /// Returns log2 of the controller's memory page size, for PRP entries (CC.MPS).
    pub fn memory_page_shift(&self) -> u32 {
        PAGE_SHIFT
    }

    /// Returns the controller.
    pub fn controller(&self) -> &Arc<Controller<Ready>> {
        &self.controller
    }

    /// Returns the address space of the kernels.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Returns the identifier of the queue at `index`, as the controller knows it.
    pub fn queue_id(&self, index: u32) -> Option<u16> {
        self.ids.get(index as usize).copied()
    }

    /// Requests the abort of command `cid` of the queue at `index`. Returns true if the controller aborted it.
    ///
    /// # Errors
    /// [`NvmeError::Options`] if there is no such queue; otherwise as any admin command: see [`Controller::feature`].
    pub fn abort(&self, index: u32, cid: u16) -> Result<bool, NvmeError> {
        let id = self.queue_id(index).ok_or_else(|| self.no_queue(index))?;
        self.controller.abort(id, cid)
    }

    /// Checks that these queues can work: doorbells are forwarded, and the controller is present and works. After a run
    /// that ended with time-outs, the error tells the cause.
    ///
    /// # Errors
    /// - [`NvmeError::Forwarder`] if doorbells are no longer forwarded.
    /// - [`NvmeError::QueuesLost`] if the controller was reset since the queues were created.
    /// - Those of [`Controller::check`].
    pub fn check(&self) -> Result<(), NvmeError> {
        if let Doorbells::Forwarder(f) = &*self.doorbells
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

    /// Writes a doorbell from the host.
    pub(super) fn ring(&self, index: u32, completion: bool, value: u32) -> Result<(), NvmeError> {
        if let Doorbells::Forwarder(f) = &*self.doorbells {
            // Goes through the forwarder, which must know the last value to notice that a kernel's is new.
            f.store(index as usize, completion, value);
            return Ok(());
        }
        let stride = self.controller.cap().doorbell_stride();
        let id = self.ids[index as usize];
        let register = if completion { register::cq_head(id, stride) } else { register::sq_tail(id, stride) };
        Ok(self.controller.port().write32(register, value)?)
    }

    /// Returns the memory of the submission ring of the queue at `index`, and the ring's offset in it.
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

    /// Returns the bounce buffers and PRP lists of all slots.
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
        if let Doorbells::Forwarder(forwarder) = &mut *self.doorbells {
            forwarder.stop();
        }
        let deleted = self.delete_pairs();
        // A kernel that did not end still uses the rings, and may write the doorbells of these identifiers.
        let in_use = self.space.is_poisoned();
        for (id, pair) in self.ids.iter().zip(&self.pairs) {
            if *pair == Pair::Absent && !in_use {
                self.controller.state.queues.give_back(*id);
            } else {
                self.controller.state.queues.lose(*id);
            }
        }
        if let Err(e) = &deleted {
            tracing::warn!(device = self.controller.name(), error = %e, "queues were not deleted; their memory stays allocated");
        }
        let frees = deleted.is_ok() && !in_use;
        // Kernels that did not end may still use the rings of their connections. Doorbells have owners of their own.
        if frees || !self.by_capsules() {
            // SAFETY: this is the owner's drop, and the doorbells are not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.doorbells) };
        }
        if frees {
            // SAFETY: this is the owner's drop, and neither is used afterwards.
            unsafe {
                ManuallyDrop::drop(&mut self.memory);
                ManuallyDrop::drop(&mut self.arrays);
            }
        }
    }
}
