//! A queue that the host submits to. Loaders use it, and it runs I/O without any kernel.

mod blocks;
mod recover;
mod transfer;

use super::admin::{Wait, load_completion, store_command};
use super::controller::{Controller, PAGE_BYTES, Ready};
use super::error::{io_name, refused};
use super::layout;
use super::queues::Submitter;
use super::{Landing, NvmeError, QueueOptions, QueueSet, RecoveryPolicy, RetryBudget};
use crate::engine::Engine;
use crate::memory::{DmaRegion, Space};
use crate::refused::Interface;
use crate::setters::setters;
use crate::wire::nvme::{CqEntry, SqEntry, csts, io, status};
use std::collections::VecDeque;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default deadline of one command.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);
/// Number and size in bytes of the staging buffers of a queue whose own data lands directly.
const STAGING_SLOTS: usize = 32;
const STAGING_BYTES: usize = 128 << 10;

/// Options of a host queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostQueueOptions {
    /// Ring entries: a power of two. One command less than that can be in flight at once.
    pub depth: u32,
    /// Largest transfer of one command in bytes: 512, 1024, 2048, or whole pages of 4096. MDTS limits it further.
    pub bytes_per_command: usize,
}

setters!(HostQueueOptions { depth: u32, bytes_per_command: usize });

impl Default for HostQueueOptions {
    fn default() -> Self {
        Self { depth: 32, bytes_per_command: 128 << 10 }
    }
}

/// The queue set that contains the host's queue, owned or borrowed.
enum Set<'a> {
    Owned(Box<QueueSet>),
    Borrowed(&'a mut QueueSet),
}

impl Set<'_> {
    fn get(&self) -> &QueueSet {
        match self {
            Set::Owned(s) => s,
            Set::Borrowed(s) => s,
        }
    }

    fn get_mut(&mut self) -> &mut QueueSet {
        match self {
            Set::Owned(s) => s,
            Set::Borrowed(s) => s,
        }
    }
}

/// A data buffer and a PRP list for each command.
struct Staging {
    buffers: DmaRegion,
    host: NonNull<u8>,
    lists: Option<DmaRegion>,
    /// Size of each buffer in bytes.
    bytes: usize,
    /// True if the buffers do not belong to the set. The queue then must not free them while the device may use them.
    separate: bool,
}

/// Time for an aborted command to complete, where nothing is left of the budget.
const SHORT_GRACE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
enum Slot {
    Free,
    /// Returned by `reserve`, not submitted yet.
    Reserved,
    InFlight {
        entry: SqEntry,
        started: Instant,
        /// Time from the submission on that it has to complete.
        limit: Duration,
        /// Time of the Abort, if one was requested.
        asked: Option<Instant>,
    },
    /// The caller has its error. The device may still write to the buffer.
    GivenUp {
        entry: SqEntry,
    },
}

/// One I/O queue pair that the host drives. Several commands can be in flight. Calls block, at most until the deadline.
pub struct HostQueue<'a> {
    set: Set<'a>,
    index: u32,
    id: u16,
    sq: NonNull<u8>,
    cq: NonNull<u8>,
    log2_depth: u32,
    /// Number of commands submitted. `head` is the number of completions taken. They count like a kernel's tickets.
    tail: u32,
    head: u32,
    slots: Vec<Slot>,
    /// Number of commands that each slot has had. A command identifier has it beside the slot: a completion that the controller repeats
    /// belongs to none of the slot's later commands.
    laps: Vec<u16>,
    staging: Option<Staging>,
    /// Completions that were taken while another was waited for. Their command identifiers are slots.
    done: VecDeque<CqEntry>,
    deadline: Duration,
    policy: RecoveryPolicy,
    budget: Option<RetryBudget>,
    /// Part of the budget that was left when the latest command missed its deadline, before it was aborted.
    left_at_miss: Option<Duration>,
    /// True if the controller did not complete the latest Abort.
    is_mute: bool,
    /// The engine whose stop ends waits early.
    engine: Option<Engine>,
}

// SAFETY: the addresses are of memory that the set and the staging own; all access is by atomic words, or copies of
// buffers that the device does not use.
unsafe impl Send for HostQueue<'_> {}

impl HostQueue<'static> {
    /// Creates a queue pair in host memory.
    ///
    /// # Errors
    /// As [`Controller::create_queues`], and [`NvmeError::Options`] if the host cannot access the queue's memory.
    pub fn create(controller: &Arc<Controller<Ready>>, options: HostQueueOptions) -> Result<Self, NvmeError> {
        let limit = controller.max_data_transfer().unwrap_or(u64::MAX);
        let bytes_per_slot = options.bytes_per_command.min(usize::try_from(limit).unwrap_or(usize::MAX));
        let options = QueueOptions {
            count: 1,
            depth: options.depth,
            landing: Landing::Bounce { bytes_per_slot },
            ..QueueOptions::default()
        };
        let set = QueueSet::create(controller, &Space::cpu(), options, Submitter::Host)?;
        Self::over(Set::Owned(Box::new(set)), 0)
    }
}

impl<'a> HostQueue<'a> {
    /// Drives the queue at `index` of a set that no kernel uses now. Tokens of earlier runs are void. If a run left
    /// commands in flight on the queue, the whole set is reset.
    ///
    /// # Errors
    /// - [`NvmeError::Options`] if there is no such queue, its rings or buffers are not in host memory, or kernels post its
    ///   commands to a remote controller themselves.
    /// - [`NvmeError::Memory`] or [`NvmeError::Dma`] if its words cannot be read, or there is no memory for buffers.
    /// - Those of [`QueueSet::reset`] if it has to be reset.
    pub fn on(set: &'a mut QueueSet, index: u32) -> Result<Self, NvmeError> {
        if set.queue_id(index).is_none() {
            return Err(set.no_queue(index));
        }
        if set.by_capsules() {
            let reason = "kernels post the commands of these queues themselves; create a separate queue for the host";
            return Err(NvmeError::Options { device: set.controller().name().to_owned(), reason: reason.to_owned() });
        }
        if set.idle_ticket(index)?.is_none() {
            tracing::debug!(device = set.controller().name(), index, "commands in flight; the queues are reset");
            set.reset()?;
        }
        Self::over(Set::Borrowed(set), index)
    }

    fn over(set: Set<'a>, index: u32) -> Result<Self, NvmeError> {
        let s = set.get();
        let refuse =
            |reason: &str| NvmeError::Options { device: s.controller().name().to_owned(), reason: reason.to_owned() };
        let id = s.queue_id(index).ok_or_else(|| s.no_queue(index))?;
        let ticket = s.idle_ticket(index)?.ok_or_else(|| refuse("the queue is not idle after a reset"))?;
        let ring = layout::rings(s.depth());
        let rings = s.ring_memory().host().ok_or_else(|| {
            refuse("these rings are in GPU memory, which the host does not use; create a separate queue for the host")
        })?;
        // SAFETY: the set's rings have `ring.bytes` bytes for each queue.
        let cq = unsafe { rings.add(index as usize * ring.bytes + ring.cq_offset) };
        let (submission, at) = s.submission_ring(index);
        let submission = submission.host().ok_or_else(|| refuse("the host cannot access its submission ring"))?;
        // SAFETY: the ring lies at this offset of its memory.
        let sq = unsafe { submission.add(at) };
        let staging = Self::staging(s, index)?;
        let slots = (staging.buffers.bytes / staging.bytes).min(s.depth() as usize - 1);
        Ok(Self {
            index,
            id,
            sq,
            cq,
            log2_depth: s.depth().trailing_zeros(),
            tail: ticket,
            head: ticket,
            slots: vec![Slot::Free; slots],
            laps: vec![0; slots],
            staging: Some(staging),
            done: VecDeque::new(),
            deadline: DEFAULT_DEADLINE,
            policy: RecoveryPolicy::default(),
            budget: None,
            left_at_miss: None,
            is_mute: false,
            engine: None,
            set,
        })
    }

    fn staging(set: &QueueSet, index: u32) -> Result<Staging, NvmeError> {
        let part = |all: &DmaRegion, each: usize, first: usize, count: usize| DmaRegion {
            offset: all.offset + first * each,
            bytes: count * each,
            iova: all.iova + (first * each) as u64,
            ..all.clone()
        };
        let first = index as usize * set.depth() as usize;
        let (bounce, lists) = set.slot_memory();
        let (buffers, bytes, lists, separate) = match (set.landing(), bounce) {
            (Landing::Bounce { bytes_per_slot }, Some(bounce)) => {
                let count = set.depth() as usize;
                let lists = lists.map(|l| part(l, PAGE_BYTES, first, count));
                (part(bounce, bytes_per_slot, first, count), bytes_per_slot, lists, false)
            }
            _ => {
                let bytes = STAGING_BYTES.min(set.max_transfer_bytes());
                let count = STAGING_SLOTS.min(set.depth() as usize);
                let dma = set.controller().dma();
                let buffers = dma.allocate(set.space(), count * bytes)?;
                let lists = match layout::needs_lists(bytes, true) {
                    true => Some(dma.allocate(set.space(), count * PAGE_BYTES)?),
                    false => None,
                };
                if let Some(lists) = &lists {
                    for slot in 0..count {
                        let list = layout::list_of(buffers.iova + (slot * bytes) as u64, bytes);
                        lists.region.set_slice(lists.offset + slot * PAGE_BYTES, &list)?;
                    }
                }
                (DmaRegion { bytes: count * bytes, ..buffers }, bytes, lists, true)
            }
        };
        let host = buffers.host().ok_or_else(|| NvmeError::Options {
            device: set.controller().name().to_owned(),
            reason: "its address space returned buffers that the host cannot access".to_owned(),
        })?;
        Ok(Staging { buffers, host, lists, bytes, separate })
    }

    /// Returns the controller.
    pub fn controller(&self) -> &Arc<Controller<Ready>> {
        self.set.get().controller()
    }

    /// Returns the queue identifier, as the controller knows it.
    #[cfg(feature = "internals")]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Returns the number of commands that may be in flight at once.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the largest transfer of one command, in bytes.
    pub fn max_transfer_bytes(&self) -> usize {
        let buffer = self.staging.as_ref().map_or(0, |s| s.bytes);
        buffer.min(self.set.get().max_transfer_bytes())
    }

    /// Sets the deadline of one command, after which it is aborted. The default is ten seconds.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Returns the deadline of one command, after which it is aborted.
    #[cfg(feature = "internals")]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    // --- single commands ---------------------------------------------------------------------------------------------

    /// Takes a free slot. Completions name it as their command identifier. Returns `None` if all slots are in use.
    pub fn reserve(&mut self) -> Option<u16> {
        let free = self.slots.iter().position(|s| matches!(s, Slot::Free))?;
        self.slots[free] = Slot::Reserved;
        Some(free as u16)
    }

    /// Frees a slot that was reserved and not submitted, or whose completion was taken.
    pub fn release(&mut self, cid: u16) {
        if let Some(slot @ Slot::Reserved) = self.slots.get_mut(usize::from(cid)) {
            *slot = Slot::Free;
        }
    }

    /// Returns the first and the second PRP entry for `bytes` bytes in a slot's buffer.
    pub fn data_pointers(&self, cid: u16, bytes: usize) -> (u64, u64) {
        let Some(staging) = &self.staging else { return (0, 0) };
        let slot = usize::from(cid);
        let first = staging.buffers.iova + (slot * staging.bytes) as u64;
        // A packed buffer may start inside a page, but does not reach past its end.
        let second = match bytes.div_ceil(PAGE_BYTES) {
            0 | 1 => 0,
            2 => first + PAGE_BYTES as u64,
            _ => staging.lists.as_ref().map_or(0, |l| l.iova + (slot * PAGE_BYTES) as u64),
        };
        (first, second)
    }

    fn buffer(&self, cid: u16, bytes: usize) -> Result<NonNull<u8>, NvmeError> {
        match (&self.staging, self.slots.get(usize::from(cid))) {
            (Some(staging), Some(Slot::Reserved)) if bytes <= staging.bytes => {
                // SAFETY: every slot has a buffer of `staging.bytes`.
                Ok(unsafe { staging.host.add(usize::from(cid) * staging.bytes) })
            }
            _ => {
                let reason = format!("slot {cid} is not reserved, or its buffer is smaller than {bytes} bytes");
                Err(NvmeError::Options { device: self.controller().name().to_owned(), reason })
            }
        }
    }

    /// Copies `data` to the buffer of a reserved slot.
    ///
    /// # Errors
    /// [`NvmeError::Options`] if the slot is not reserved, or its buffer is too small.
    pub fn fill_buffer(&self, cid: u16, data: &[u8]) -> Result<(), NvmeError> {
        let to = self.buffer(cid, data.len())?;
        // SAFETY: the buffer has that many bytes, and no command uses it while its slot is only reserved.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to.as_ptr(), data.len()) };
        Ok(())
    }

    /// Copies the buffer of a slot whose completion was taken into `out`.
    ///
    /// # Errors
    /// As [`Self::fill_buffer`].
    pub fn take_buffer(&self, cid: u16, out: &mut [u8]) -> Result<(), NvmeError> {
        let from = self.buffer(cid, out.len())?;
        // SAFETY: the buffer has that many bytes, and no command uses it any more once the slot's completion was taken.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Submits a command in a reserved slot, and writes the doorbell.
    ///
    /// # Errors
    /// [`NvmeError::Options`] if the slot is not reserved, [`NvmeError::Port`] if the doorbell cannot be written.
    pub fn submit(&mut self, cid: u16, mut entry: SqEntry) -> Result<(), NvmeError> {
        self.buffer(cid, 0)?;
        let slot = usize::from(cid);
        entry.cdw0 = entry.cdw0 & 0xffff | u32::from(self.next_identifier(slot)) << 16;
        let mask = (1u32 << self.log2_depth) - 1;
        let at = (self.tail & mask) as usize * size_of::<SqEntry>();
        // SAFETY: within the ring. Fewer commands than entries are in flight, so the controller has consumed this
        // entry.
        unsafe { store_command(self.sq.add(at), &entry) };
        self.tail = self.tail.wrapping_add(1);
        self.slots[slot] = Slot::InFlight { entry, started: Instant::now(), limit: self.limit(), asked: None };
        self.set.get().ring(self.index, false, self.tail & mask)
    }

    /// Returns the slot of a command.
    fn slot_of(&self, cid: u16) -> usize {
        usize::from(cid) % self.slots.len().max(1)
    }

    /// Returns the number of identifiers that each slot has. FFFFh is none: error log entries use it for errors of no command (NVMe Base
    /// 2.1, 5.1.12.1.2).
    fn laps_of_slot(&self) -> usize {
        (usize::from(u16::MAX) / self.slots.len().max(1)).max(1)
    }

    /// Returns the identifier of a slot's next command: the slot and the lap.
    fn next_identifier(&mut self, slot: usize) -> u16 {
        let lap = usize::from(self.laps[slot]);
        self.laps[slot] = ((lap + 1) % self.laps_of_slot()) as u16;
        (lap * self.slots.len() + slot) as u16
    }

    /// Returns the identifier of a slot's latest command.
    fn identifier(&self, slot: usize) -> u16 {
        let laps = self.laps_of_slot();
        let lap = (usize::from(self.laps[slot]) + laps - 1) % laps;
        (lap * self.slots.len() + slot) as u16
    }

    /// Returns the next completion, if there is one. Its slot stays reserved, including the
    /// buffer, until it is released.
    ///
    /// # Errors
    /// [`NvmeError::StrayCompletion`] if a completion belongs to no command, [`NvmeError::Port`] if the
    /// doorbell cannot be written.
    pub fn poll(&mut self) -> Result<Option<CqEntry>, NvmeError> {
        if let Some(done) = self.done.pop_front() {
            return Ok(Some(done));
        }
        self.next()
    }

    fn next(&mut self) -> Result<Option<CqEntry>, NvmeError> {
        loop {
            let mask = (1u32 << self.log2_depth) - 1;
            let at = (self.head & mask) as usize * size_of::<CqEntry>();
            // SAFETY: within the completion ring.
            let entry = unsafe { load_completion(self.cq.add(at)) };
            // The controller writes the first lap of a new ring with phase 1.
            if entry.phase() != (self.head >> self.log2_depth & 1 == 0) {
                return Ok(None);
            }
            self.head = self.head.wrapping_add(1);
            let cid = entry.cid();
            let at = self.slot_of(cid);
            let before = match self.slots.get(at) {
                Some(slot @ (Slot::InFlight { entry, .. } | Slot::GivenUp { entry })) if entry.cid() == cid => *slot,
                _ => Slot::Free,
            };
            match before {
                Slot::InFlight { .. } => self.slots[at] = Slot::Reserved,
                // A late completion: no caller waits for it, and the device does not use its buffer any more.
                Slot::GivenUp { .. } => self.slots[at] = Slot::Free,
                Slot::Free | Slot::Reserved => {}
            }
            self.set.get().ring(self.index, true, self.head & mask)?;
            match before {
                Slot::InFlight { .. } => return Ok(Some(entry.of_command(at as u16))),
                Slot::GivenUp { .. } => {}
                Slot::Free | Slot::Reserved => {
                    // A controller that completes commands that were not submitted is not
                    // trusted: it might do so forever.
                    self.give_up_all();
                    let device = self.controller().name().to_owned();
                    return Err(NvmeError::StrayCompletion { device, queue: self.id, cid });
                }
            }
        }
    }

    /// Waits for the next completion. Aborts a command that is past its deadline. If that command completes by itself
    /// meanwhile, returns its completion. Otherwise the error names the command. The slot of an aborted command is
    /// free. The slot of a command that did not complete stays in use until the controller completes it.
    ///
    /// # Errors
    /// - [`NvmeError::TimedOut`] if a command was aborted, or did not complete at all.
    /// - [`NvmeError::Options`] if no command is in flight.
    /// - Those of [`Self::poll`] and [`QueueSet::check`].
    pub fn wait(&mut self) -> Result<CqEntry, NvmeError> {
        let (mut wait, mut looks) = (Wait::new(), false);
        loop {
            if let Some(done) = self.poll()? {
                return Ok(done);
            }
            let left = self.slots.iter().enumerate().filter_map(|(cid, s)| match s {
                Slot::InFlight { entry, started, limit, .. } => {
                    Some((self.limit_now(*limit).saturating_sub(started.elapsed()), *started, cid as u16, *entry))
                }
                _ => None,
            });
            let Some((left, started, cid, entry)) = left.min_by_key(|o| o.0) else {
                let reason = "nothing is in flight; submit before waiting".to_owned();
                return Err(NvmeError::Options { device: self.controller().name().to_owned(), reason });
            };
            if looks {
                self.set.get().check().inspect_err(|_| self.give_up_all())?;
            }
            if left.is_zero() {
                return self.end_late(cid, &entry, started);
            }
            looks = wait.pause();
        }
    }

    /// Submits one command and waits for its completion, whatever its status.
    ///
    /// # Errors
    /// As [`Self::submit`] and [`Self::wait`].
    pub fn execute(&mut self, cid: u16, entry: SqEntry) -> Result<CqEntry, NvmeError> {
        self.submit(cid, entry)?;
        let mut others = VecDeque::new();
        let outcome = loop {
            match self.wait() {
                Ok(done) if done.cid() == cid => break Ok(done),
                Ok(done) => others.push_back(done),
                Err(e) => break Err(e),
            }
        };
        self.done.append(&mut others);
        outcome
    }

    /// Requests the abort of every command that is past its deadline, so that the waits for them overlap.
    fn abort_late(&mut self) -> Result<(), NvmeError> {
        for slot in 0..self.slots.len() {
            if let Slot::InFlight { entry, started, limit, asked: None } = self.slots[slot]
                && started.elapsed() >= self.limit_now(limit)
            {
                self.slots[slot] = Slot::InFlight { entry, started, limit, asked: Some(Instant::now()) };
                self.controller().abort(self.id, entry.cid())?;
            }
        }
        Ok(())
    }

    fn end_late(&mut self, cid: u16, entry: &SqEntry, started: Instant) -> Result<CqEntry, NvmeError> {
        let controller = self.controller().clone();
        self.set.get().check().inspect_err(|_| self.give_up_all())?;
        let missed = Instant::now();
        self.charge(started);
        self.left_at_miss = self.left();
        let asked = self.abort_late();
        self.is_mute = matches!(asked, Err(NvmeError::TimedOut { .. } | NvmeError::QueueStuck { .. }));
        // An abort that the controller executes takes less than this, also when nothing of the budget is left.
        let grace = self
            .left_at_miss
            .map_or(self.policy.abort_grace, |left| self.policy.abort_grace.min(left.max(SHORT_GRACE)));
        let (mut wait, mut aborted) = (Wait::new(), false);
        // Even a command that the controller says it did not abort may complete now.
        while asked.is_ok()
            && !aborted
            && matches!(self.slots[usize::from(cid)], Slot::InFlight { asked: Some(t), .. } if t.elapsed() < grace)
        {
            while let Some(done) = self.next()? {
                if done.cid() != cid {
                    self.done.push_back(done);
                } else if done.status().without_flags() == status::ABORT_REQUESTED {
                    aborted = true;
                } else {
                    return Ok(done);
                }
            }
            wait.pause();
        }
        self.charge(missed);
        let next = match asked {
            Ok(_) if aborted => "it was aborted, the queue can still be used",
            Ok(_) => "the controller was asked to abort it and did not; reset the queues",
            Err(_) => "it did not complete Abort either; close the controller and open it again, which resets it",
        };
        let csts = controller.core.csts().unwrap_or(u32::MAX);
        if asked.is_err() || csts & csts::RDY == 0 {
            self.give_up_all();
        }
        self.slots[usize::from(cid)] = if aborted { Slot::Free } else { Slot::GivenUp { entry: *entry } };
        Err(NvmeError::TimedOut {
            device: controller.name().to_owned(),
            queue: self.id,
            command: named(entry),
            opcode: entry.opcode(),
            cid: entry.cid(),
            waited: missed.duration_since(started),
            csts,
            next,
        })
    }

    fn give_up_all(&mut self) {
        for slot in &mut self.slots {
            if let Slot::InFlight { entry, .. } = slot {
                *slot = Slot::GivenUp { entry: *entry };
            }
        }
    }

    fn full(&self) -> NvmeError {
        let outstanding = self.slots.iter().filter(|s| !matches!(s, Slot::Free)).count();
        NvmeError::QueueStuck { device: self.controller().name().to_owned(), queue: self.id, outstanding }
    }

    fn judge(&self, entry: &SqEntry, done: &CqEntry) -> Result<(), NvmeError> {
        if done.status().is_success() {
            return Ok(());
        }
        // As the controller knows the command.
        let cid = self.identifier(self.slot_of(done.cid()));
        let sent = SqEntry { cdw0: entry.cdw0 & 0xffff | u32::from(cid) << 16, ..*entry };
        Err(refused(Interface::NvmeIo, self.controller().name(), self.id, named(entry), &sent, &done.of_command(cid)))
    }
}

fn named(entry: &SqEntry) -> String {
    let name = io_name(entry.opcode());
    match entry.opcode() {
        io::READ | io::WRITE | io::WRITE_ZEROES => {
            format!("{name} of {} block(s) at LBA {} of namespace {}", entry.blocks(), entry.slba(), entry.nsid)
        }
        _ => format!("{name} of namespace {}", entry.nsid),
    }
}

impl fmt::Debug for HostQueue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostQueue({} queue {}, {} slots)", self.controller().name(), self.id, self.slots.len())
    }
}

impl Drop for HostQueue<'_> {
    fn drop(&mut self) {
        let busy = self.slots.iter().any(|s| matches!(s, Slot::InFlight { .. } | Slot::GivenUp { .. }));
        let Set::Borrowed(set) = &mut self.set else {
            // The drop of the set deletes the queue, which ends its commands in flight.
            return;
        };
        let handed_back = if busy { set.reset() } else { set.write_idle(self.index, self.tail) };
        if let Err(e) = handed_back {
            tracing::warn!(device = set.controller().name(), error = %e, "a queue could not be returned to the kernels");
            if let Some(staging) = self.staging.take_if(|s| s.separate && busy) {
                std::mem::forget(staging);
            }
        }
    }
}
