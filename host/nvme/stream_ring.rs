//! A queue pair whose entries the host writes ahead, and whose doorbell and completions belong to a stream: the stream stores the tail
//! and waits for the phase of the last completion.

use super::admin::{load_completion, store_command};
use super::controller::{Controller, PAGE_BYTES, Ready};
use super::queues::Submitter;
use super::{Landing, Namespace, NvmeError, QueueOptions, QueueSet};
use crate::cuda::MemoryOperation;
use crate::memory::Space;
use crate::wire::nvme::{CqEntry, SqEntry, Status};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Phase tag in the last word of a completion entry, and the word's offset (NVMe Base 2.0, 4.2.1).
const PHASE: u32 = 1 << 16;
const PHASE_WORD: usize = 12;
/// Identifier in completions that the host writes to end a wait. No command has it.
const NO_COMMAND: u16 = u16::MAX;

/// Data of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    /// Memory at this device address.
    Direct(u64),
    /// The command's own buffer.
    Bounce,
}

/// A command that has ended, with its status. `None` if the device did not complete it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) entry: SqEntry,
    pub(crate) ticket: u32,
    pub(crate) status: Option<Status>,
}

#[derive(Clone, Copy)]
struct Command {
    entry: SqEntry,
    ticket: u32,
}

/// Tickets count commands, as those of kernels do: ticket `t` has entry `t % depth` of both rings, and phase 1 on even laps.
pub(crate) struct StreamRing {
    set: QueueSet,
    sq: NonNull<u8>,
    cq: NonNull<u8>,
    log2_depth: u32,
    /// Next ticket to be prepared, next to be announced, and the first without a completion.
    prepared: u32,
    announced: u32,
    head: u32,
    /// Commands by identifier.
    commands: Vec<Option<Command>>,
    /// Identifiers of commands that are prepared and not announced, in their order.
    waiting: Vec<u16>,
    /// True if the host has ended waits: completions may be the host's own.
    is_released: bool,
}

// SAFETY: the addresses are of memory that the set owns; all access is by atomic words.
unsafe impl Send for StreamRing {}

impl StreamRing {
    /// Creates a queue pair in host memory that streams of `space` reach.
    ///
    /// # Errors
    /// As [`Controller::create_queues`], and [`NvmeError::Options`] if the host cannot access the rings.
    pub(crate) fn create(
        controller: &Arc<Controller<Ready>>,
        space: &Space,
        options: QueueOptions,
    ) -> Result<Self, NvmeError> {
        let set = QueueSet::create(controller, space, options, Submitter::Streams)?;
        let refuse = || NvmeError::Options {
            device: controller.name().to_owned(),
            reason: "its address space returned rings that the host cannot access".to_owned(),
        };
        let ring = super::layout::rings(set.depth());
        let rings = set.ring_memory().host().ok_or_else(refuse)?;
        let (submission, at) = set.submission_ring(0);
        // SAFETY: both rings lie at these offsets of their memory.
        let (sq, cq) = unsafe { (submission.host().ok_or_else(refuse)?.add(at), rings.add(ring.cq_offset)) };
        Ok(Self {
            sq,
            cq,
            log2_depth: set.depth().trailing_zeros(),
            prepared: 0,
            announced: 0,
            head: 0,
            commands: vec![None; set.depth() as usize - 1],
            waiting: Vec::new(),
            is_released: false,
            set,
        })
    }

    fn mask(&self) -> u32 {
        (1 << self.log2_depth) - 1
    }

    fn phase_of(&self, ticket: u32) -> bool {
        ticket >> self.log2_depth & 1 == 0
    }

    /// Returns the number of commands that can be prepared now.
    pub(crate) fn room(&self) -> usize {
        self.commands.iter().filter(|c| c.is_none()).count()
    }

    /// Returns the number of commands that the queue can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.commands.len()
    }

    /// Returns the largest transfer of one command, in bytes.
    pub(crate) fn max_transfer_bytes(&self) -> usize {
        self.set.max_transfer_bytes()
    }

    /// Fails if the controller is gone. Creates the queue again if a reset of the controller has ended it.
    pub(crate) fn check(&mut self) -> Result<(), NvmeError> {
        if self.set.is_stale() && self.head == self.announced {
            self.start_over()?;
        }
        self.set.check()
    }

    /// Writes the entry of a command that moves `blocks` blocks. Returns the address of the command's own buffer, as streams see it,
    /// if the data lands there.
    ///
    /// # Errors
    /// [`NvmeError::Memory`] if the command's list of pages cannot be written; [`NvmeError::QueueStuck`] if the queue is full.
    pub(crate) fn prepare(
        &mut self,
        opcode: u8,
        namespace: &Namespace,
        lba: u64,
        blocks: u32,
        data: Data,
    ) -> Result<Option<u64>, NvmeError> {
        let Some(cid) = self.commands.iter().position(Option::is_none) else {
            let (device, outstanding) = (self.set.controller().name().to_owned(), self.commands.len());
            return Err(NvmeError::QueueStuck { device, queue: self.set.queue_id(0).unwrap_or(0), outstanding });
        };
        let bytes = (blocks as usize) << namespace.block_bytes().trailing_zeros();
        let mut entry = SqEntry::new(opcode, cid as u16, namespace.id());
        entry.set_range(lba, blocks);
        let mut buffer = None;
        let first = match (data, self.set.landing(), self.set.slot_memory().0) {
            (Data::Bounce, Landing::Bounce { bytes_per_slot }, Some(all)) => {
                let at = (cid * bytes_per_slot) as u64;
                buffer = Some(all.address() + at);
                all.iova + at
            }
            (Data::Direct(iova), ..) => iova,
            (Data::Bounce, ..) => {
                let reason = "its data lands directly, and a command has no buffer of its own".to_owned();
                return Err(NvmeError::Options { device: self.set.controller().name().to_owned(), reason });
            }
        };
        (entry.prp1, entry.prp2) = (first, self.second_pointer(cid, first, bytes)?);
        self.commands[cid] = Some(Command { entry, ticket: self.prepared });
        self.store(&entry);
        self.waiting.push(cid as u16);
        Ok(buffer)
    }

    /// Returns the second PRP entry: none, the second page, or a list of all pages but the first (NVMe Base 2.0, 4.1.1).
    fn second_pointer(&self, cid: usize, first: u64, bytes: usize) -> Result<u64, NvmeError> {
        let page = PAGE_BYTES as u64;
        let start = first & !(page - 1);
        match ((first - start) as usize + bytes).div_ceil(PAGE_BYTES) {
            0 | 1 => Ok(0),
            2 => Ok(start + page),
            pages => {
                let lists = self.set.slot_memory().1.ok_or_else(|| NvmeError::Options {
                    device: self.set.controller().name().to_owned(),
                    reason: format!("a command of {bytes} bytes needs a list of pages, and the queue has none"),
                })?;
                let list: Vec<u64> = (1..pages as u64).map(|p| start + p * page).collect();
                lists.region.set_slice(lists.offset + cid * PAGE_BYTES, &list)?;
                Ok(lists.iova + (cid * PAGE_BYTES) as u64)
            }
        }
    }

    fn store(&mut self, entry: &SqEntry) {
        let at = (self.prepared & self.mask()) as usize * size_of::<SqEntry>();
        // SAFETY: within the ring. Fewer commands than entries are outstanding, so the controller has consumed this entry.
        unsafe { store_command(self.sq.add(at), entry) };
        self.prepared = self.prepared.wrapping_add(1);
    }

    /// Returns the steps that announce all prepared commands and wait for the last completion, or `None` if none is prepared.
    pub(crate) fn announce(&mut self, flush: bool) -> Option<(MemoryOperation, MemoryOperation)> {
        if self.waiting.is_empty() {
            return None;
        }
        self.waiting.clear();
        self.announced = self.prepared;
        let store =
            MemoryOperation::Store32 { address: self.set.doorbell_addresses(0).0, value: self.announced & self.mask() };
        let last = self.announced.wrapping_sub(1);
        let ring = super::layout::rings(self.set.depth());
        let at = ring.cq_offset + (last & self.mask()) as usize * size_of::<CqEntry>() + PHASE_WORD;
        let address = self.set.ring_memory().address() + at as u64;
        Some((store, MemoryOperation::AwaitBit { address, mask: PHASE, set: self.phase_of(last), flush }))
    }

    /// Returns the ticket behind the last announced command.
    pub(crate) fn announced(&self) -> u32 {
        self.announced
    }

    fn completion(&self, ticket: u32) -> CqEntry {
        // SAFETY: within the completion ring.
        unsafe { load_completion(self.cq.add((ticket & self.mask()) as usize * size_of::<CqEntry>())) }
    }

    /// Returns true if all commands before this ticket have a completion, the host's own included.
    pub(crate) fn has_reached(&self, end: u32) -> bool {
        let last = end.wrapping_sub(1);
        // Completions that were taken may have been overwritten since.
        end.wrapping_sub(self.head) as i32 <= 0 || self.completion(last).phase() == self.phase_of(last)
    }

    /// Writes completions for all announced commands that have none, so that waits for them end.
    pub(crate) fn release(&mut self) {
        self.is_released = true;
        let mut ticket = self.head;
        while ticket != self.announced {
            let phase = self.phase_of(ticket);
            if self.completion(ticket).phase() != phase {
                let at = (ticket & self.mask()) as usize * size_of::<CqEntry>() + PHASE_WORD;
                let word = u32::from(NO_COMMAND) | if phase { PHASE } else { 0 };
                // SAFETY: an aligned word of the completion ring. The device may store to it at the same time; whichever
                // store is last, the phase is the same.
                unsafe { AtomicU32::from_ptr(self.cq.add(at).as_ptr().cast()) }.store(word, Ordering::Release);
            }
            ticket = ticket.wrapping_add(1);
        }
    }

    /// Takes the completions of all announced commands. After a release, or if completions are missing or make no sense, creates the
    /// queue again: the device then uses no memory of these commands any more.
    ///
    /// # Errors
    /// Those of [`QueueSet::reset`]. The device may then still use the memory of the commands.
    pub(crate) fn complete(&mut self) -> (Vec<Ended>, Result<(), NvmeError>) {
        let mut ended = Vec::new();
        let mut is_sound = !self.is_released;
        while self.head != self.announced {
            let entry = self.completion(self.head);
            if entry.phase() != self.phase_of(self.head) {
                is_sound = false;
                break;
            }
            self.head = self.head.wrapping_add(1);
            let cid = entry.cid();
            let is_announced = !self.waiting.contains(&cid);
            match self.commands.get_mut(usize::from(cid)).filter(|_| is_announced).and_then(Option::take) {
                Some(Command { entry: command, ticket }) => {
                    ended.push(Ended { entry: command, ticket, status: Some(entry.status()) });
                }
                None => is_sound = false,
            }
        }
        let waiting = &self.waiting;
        for (cid, command) in self.commands.iter_mut().enumerate() {
            if !waiting.contains(&(cid as u16))
                && let Some(Command { entry, ticket }) = command.take()
            {
                is_sound = false;
                ended.push(Ended { entry, ticket, status: None });
            }
        }
        self.head = self.announced;
        let outcome = match is_sound {
            true => self.set.ring(0, true, self.head & self.mask()),
            false => self.start_over(),
        };
        (ended, outcome)
    }

    /// Creates the queue again, with the commands that are prepared and not announced.
    fn start_over(&mut self) -> Result<(), NvmeError> {
        self.set.reset()?;
        (self.prepared, self.announced, self.head, self.is_released) = (0, 0, 0, false);
        for cid in self.waiting.clone() {
            let ticket = self.prepared;
            if let Some(command) = &mut self.commands[usize::from(cid)] {
                command.ticket = ticket;
                let entry = command.entry;
                self.store(&entry);
            }
        }
        Ok(())
    }
}
