//! Enabling, reset and shutdown of a controller in software, and its admin queue. The manager thread has both.

use super::address::{AddressTable, Range, Snapshot};
use super::copy;
use super::rings::{Answer, Cq, HasDoorbells, RingSetup, SubmissionRing};
use super::shell::Shell;
use crate::wire::nvme::{SqEntry, Status, cc, status};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

/// log2 of the page size of CC.MPS 0 in bytes.
const SMALLEST_PAGE_SHIFT: u32 = 12;

/// Rings of the admin queue.
pub(crate) struct AdminRings {
    pub(crate) sq: SubmissionRing,
    pub(crate) cq: Cq,
}

/// The admin queue, with the register CC and the address table as the manager has processed them.
pub(crate) struct AdminQueue {
    addresses: Arc<AddressTable>,
    /// Index of the manager among the readers of the address table.
    reader: usize,
    pub(crate) table: Arc<Snapshot>,
    /// `None` while the controller is disabled, and after the memory of the rings was unmapped.
    pub(crate) rings: Option<AdminRings>,
    cc: u32,
}

impl AdminQueue {
    /// Returns the admin queue of a disabled controller.
    pub(crate) fn new<M>(shell: &Shell<M>) -> Self {
        let addresses = shell.table.clone();
        Self { reader: shell.mail.len(), table: addresses.snapshot(), rings: None, cc: 0, addresses }
    }

    /// Returns true if memory was mapped or unmapped since the last refresh.
    pub(crate) fn is_stale(&self) -> bool {
        self.addresses.generation() != self.table.generation
    }

    /// Lets unmappings no longer wait for this thread, which accesses no memory of the driver until [`Self::announce`].
    pub(crate) fn retire(&self) {
        self.addresses.retire(self.reader);
    }

    /// Announces that this thread uses its snapshot of the table, and no earlier one.
    pub(crate) fn announce(&self) {
        self.addresses.announce(self.reader, self.table.generation);
    }

    /// Takes the current table. Returns false if the rings are not in it any more.
    fn resolve(&mut self) -> bool {
        self.table = self.addresses.snapshot();
        let table = &*self.table;
        let is_whole = self.rings.as_mut().is_none_or(|r| r.sq.resolve(table) && r.cq.resolve(table));
        if !is_whole {
            self.rings = None;
        }
        is_whole
    }

    /// Makes the rings. Returns false if their memory is not mapped.
    fn open(&mut self, (sq, cq): (RingSetup, RingSetup)) -> bool {
        let rings = SubmissionRing::new(sq, &self.table).zip(Cq::new(cq, &self.table));
        self.rings = rings.map(|(sq, cq)| AdminRings { sq, cq });
        self.rings.is_some()
    }

    /// Returns true if there is a command, and space for its completion.
    pub(crate) fn has_command(&mut self, controller: &impl HasDoorbells) -> bool {
        self.rings.as_mut().is_some_and(|r| r.sq.available(controller) > 0 && r.cq.room(1, controller) > 0)
    }

    /// Takes the command that [`Self::has_command`] has found.
    pub(crate) fn take(&mut self) -> Option<SqEntry> {
        let sq = &mut self.rings.as_mut()?.sq;
        let e = sq.peek(0);
        sq.consume();
        Some(e)
    }

    /// Returns true if the completion queue has space for `places` completions.
    pub(crate) fn has_room(&mut self, places: u32, controller: &impl HasDoorbells) -> bool {
        self.rings.as_mut().is_some_and(|r| r.cq.room(places, controller) >= places)
    }

    /// Posts a completion, after the data of its command. There is space for it.
    pub(crate) fn post(&mut self, cid: u16, answer: Answer) {
        if let Some(r) = &mut self.rings {
            copy::publish();
            r.cq.post(0, r.sq.head(), cid, answer, false);
        }
    }

    /// Returns true if CC.IOSQES, or CC.IOCQES for a completion queue, is the size of an entry.
    pub(crate) fn entry_sizes_fit(&self, completion: bool) -> bool {
        match completion {
            true => self.cc >> 20 & 0xf == 4,
            false => self.cc >> 16 & 0xf == 6,
        }
    }

    /// Checks the memory of a queue to be created, whose entries have `entry_bytes` bytes.
    ///
    /// # Errors
    /// Invalid Field if it is not contiguous, PRP Offset Invalid if it does not begin with a page, Data Transfer Error if
    /// it is not mapped.
    pub(crate) fn check_memory(
        &self,
        e: &SqEntry,
        setup: &RingSetup,
        entry_bytes: usize,
        page_shift: u32,
    ) -> Result<(), Status> {
        /// Bit in dword 11: the queue is contiguous in memory, as CAP.CQR requires.
        const PHYSICALLY_CONTIGUOUS: u32 = 1;
        if e.cdw11 & PHYSICALLY_CONTIGUOUS == 0 {
            return Err(status::INVALID_FIELD.dnr());
        }
        if setup.address & ((1 << page_shift) - 1) != 0 {
            return Err(status::INVALID_PRP_OFFSET.dnr());
        }
        let bytes = setup.entries as usize * entry_bytes;
        match self.table.resolve(setup.address, bytes, &mut Range::none()) {
            Some(_) => Ok(()),
            None => Err(status::DATA_TRANSFER_ERROR.dnr()),
        }
    }
}

impl Drop for AdminQueue {
    fn drop(&mut self) {
        self.retire();
    }
}

/// Returns the ring of the queue that a command creates, whose identifier is at most `last` and that has at most
/// `most_entries` entries.
///
/// # Errors
/// Invalid Queue Identifier, also if the queue `exists`; Invalid Queue Size.
pub(crate) fn new_queue(e: &SqEntry, last: u16, exists: bool, most_entries: u32) -> Result<RingSetup, Status> {
    let (id, size) = (e.cdw10 as u16, e.cdw10 >> 16);
    if id == 0 || id > last || exists {
        return Err(status::INVALID_QUEUE_ID.dnr());
    }
    if size == 0 || size >= most_entries {
        return Err(status::INVALID_QUEUE_SIZE.dnr());
    }
    Ok(RingSetup { id, address: e.prp1, entries: size + 1 })
}

/// Register states of a controller in software (NVMe Base 2.1, 3.1.4.5). A manager implements what its controller does
/// in each transition; the order of steps is here.
pub(crate) trait Lifecycle {
    /// Message to a service thread.
    type Message;

    fn shell(&self) -> &Shell<Self::Message>;
    fn admin(&mut self) -> &mut AdminQueue;
    /// Returns the message that makes a service thread drop its queues, after their commands in flight.
    fn reset_message(reply: mpsc::Sender<()>) -> Self::Message;

    /// The driver enables the controller.
    fn on_enable(&mut self) {}
    /// The driver enables the controller with registers that it does not support.
    fn on_invalid(&mut self, reason: &'static str);
    /// The admin queue is there. The controller becomes ready, now or later.
    fn on_enabled(&mut self, page_shift: u32);
    /// The driver disables the controller, whose queues are there yet.
    fn on_disable(&mut self) {}
    /// All queues are dropped, but those of `stuck` threads. Clears CSTS, which ends the reset.
    fn on_reset(&mut self, stuck: usize);
    /// The driver requests a shutdown (NVMe Base 2.1, 3.6).
    fn on_shutdown(&mut self);
    /// The address table has changed.
    fn on_new_table(&mut self) {}
    /// The memory of the admin queue was unmapped.
    fn on_unmapped(&mut self);

    /// Processes the writes to CC since the last call. Returns true if there were any.
    fn follow_registers(&mut self) -> bool {
        if self.admin().is_stale() {
            self.refresh();
        }
        let writes = self.shell().registers.take_configurations();
        for value in &writes {
            self.configure(*value);
        }
        !writes.is_empty()
    }

    /// Switches to the current address table, and announces it.
    fn refresh(&mut self) {
        self.on_new_table();
        if !self.admin().resolve() {
            self.on_unmapped();
        }
        self.admin().announce();
    }

    /// Processes a write to CC.
    fn configure(&mut self, value: u32) {
        let old = std::mem::replace(&mut self.admin().cc, value);
        match (old & cc::EN != 0, value & cc::EN != 0) {
            (false, true) => self.enable(value),
            (true, false) => self.reset(),
            _ => {}
        }
        if value & cc::SHN_MASK != 0 && old & cc::SHN_MASK != value & cc::SHN_MASK {
            self.on_shutdown();
        }
    }

    /// Makes the admin queue.
    fn enable(&mut self, cc: u32) {
        self.on_enable();
        let r = &self.shell().registers;
        r.csts.store(0, Ordering::SeqCst);
        let rings = r.admin_rings();
        let mps = cc >> 7 & 0xf;
        let complaint = [
            (mps > r.mps_max(), "CC.MPS is larger than CAP.MPSMAX"),
            (cc >> 4 & 7 != 0, "CC.CSS is not the NVM command set"),
            (cc >> 11 & 7 != 0, "CC.AMS is not round robin"),
            (rings.0.entries < 2 || rings.1.entries < 2, "AQA names a queue of one entry"),
            ((rings.0.address | rings.1.address) & 0xfff != 0, "ASQ or ACQ is not aligned to a page"),
        ];
        if let Some((_, reason)) = complaint.into_iter().find(|(bad, _)| *bad) {
            return self.on_invalid(reason);
        }
        self.shell().doorbells.clear(0);
        self.refresh();
        match self.admin().open(rings) {
            true => self.on_enabled(SMALLEST_PAGE_SHIFT + mps),
            false => self.on_invalid("ASQ or ACQ is not mapped"),
        }
    }

    /// Resets the controller, which deletes all queues (NVMe Base 2.1, 3.7.2).
    fn reset(&mut self) {
        self.on_disable();
        let shell = self.shell();
        let is_stuck = |m: &&_| shell.request(m, Self::reset_message).is_none();
        let stuck = shell.mail.iter().filter(is_stuck).count();
        self.admin().rings = None;
        self.shell().delete_queues();
        self.on_reset(stuck);
    }
}
