//! Manager thread: register state machine (enable, reset, shutdown), admin queue, asynchronous events.

use super::core::{Core, Mailbox, Message, halt};
use super::fault::{Readiness, Trigger};
use super::feature::Features;
use super::identify;
use super::log::{Event, Kind};
use super::prp::{Extent, Hints};
use super::queue::{Answer, Cq, Sq};
use crate::idle::{Idle, Pace};
use crate::nvme::ring_service::address::Range;
use crate::nvme::ring_service::{RingSetup, Snapshot};
use crate::wire::nvme::{SqEntry, Status, cc, csts, status};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Largest supported CC.MPS: pages of 64 KiB (CAP.MPSMAX).
pub(super) const MPS_MAX: u32 = 4;
/// Longest time to wait for a service thread, which may be in a slow system call.
const THREAD_LIMIT: Duration = Duration::from_secs(5);
/// Interval at which that wait checks whether the controller is being dropped.
const SLICE: Duration = Duration::from_millis(10);
/// Largest number of admin commands per round.
const BATCH: u32 = 16;
/// Pauses of the thread while there are no admin commands.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: 100, naps: [Duration::from_micros(50), Duration::from_micros(500)] };
/// Interval at which the lengths of files are checked.
const FILE_CHECK: Duration = Duration::from_millis(100);

/// The admin submission and completion queues.
pub(super) struct AdminQueues {
    pub(super) sq: Sq,
    pub(super) cq: Cq,
}

pub(super) struct Manager {
    pub(super) core: Arc<Core>,
    /// Index of this reader of the address table.
    reader: usize,
    pub(super) table: Arc<Snapshot>,
    pub(super) admin: Option<AdminQueues>,
    /// Completion queue of each I/O submission queue.
    pub(super) sqs: BTreeMap<u16, u16>,
    /// I/O completion queues, with the number of submission queues that use each.
    pub(super) cqs: BTreeMap<u16, usize>,
    pub(super) features: Features,
    /// Command identifiers of outstanding Asynchronous Event Requests.
    pub(super) event_requests: Vec<u16>,
    pending: Vec<Event>,
    /// Kinds of events that were reported and whose log page has not been read since.
    pub(super) masked: Vec<Kind>,
    pub(super) hints: Hints,
    pub(super) extents: Vec<Extent>,
    cc: u32,
    ready_at: Option<Instant>,
    pub(super) started: Instant,
    checked: Instant,
}

// SAFETY: the extents are plain addresses, which only the thread that owns the manager uses.
unsafe impl Send for Manager {}

impl Manager {
    pub(super) fn new(core: Arc<Core>) -> Self {
        let now = Instant::now();
        Self {
            reader: core.mail.len(),
            table: core.table.snapshot(),
            admin: None,
            sqs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            features: Features::new(core.config.max_queue_pairs, identify::has_write_cache(&core)),
            event_requests: Vec::new(),
            pending: Vec::new(),
            masked: Vec::new(),
            hints: Hints::none(),
            extents: Vec::new(),
            cc: 0,
            ready_at: None,
            started: now,
            checked: now,
            core,
        }
    }

    /// Runs until the controller stops.
    pub(super) fn run(mut self) {
        let mut idle = Idle::new(PACE);
        while !self.core.stop.load(Ordering::Relaxed) {
            if self.round() {
                idle.busy();
                continue;
            }
            // A driver that stores to the doorbell's memory, without a register write, does not wake this thread.
            let watches = self.admin.is_some();
            idle.next().make(|nap| std::thread::park_timeout(if watches { nap } else { FILE_CHECK }));
        }
    }

    /// Processes all pending work. Returns true if there was any.
    fn round(&mut self) -> bool {
        if self.core.table.generation() != self.table.generation {
            self.refresh();
        }
        let writes = self.core.registers.take_configurations();
        let mut busy = !writes.is_empty();
        for value in writes {
            self.configure(value);
        }
        if self.ready_at.is_some_and(|t| t <= Instant::now()) {
            self.ready_at = None;
            self.core.registers.csts.fetch_or(csts::RDY, Ordering::SeqCst);
        }
        let events = std::mem::take(&mut *self.core.events.lock());
        for e in events {
            self.note(e);
        }
        if self.checked.elapsed() > FILE_CHECK {
            self.checked = Instant::now();
            self.core.namespaces.iter().for_each(|n| n.store.check());
        }
        if self.core.halted() == 0 && self.core.registers.csts.load(Ordering::Relaxed) & csts::RDY != 0 {
            self.report_events();
            busy |= self.serve();
        }
        busy
    }

    fn refresh(&mut self) {
        self.table = self.core.table.snapshot();
        self.hints = Hints::none();
        let table = &*self.table;
        if self.admin.as_mut().is_some_and(|a| !(a.sq.resolve(table) && a.cq.resolve(table))) {
            self.admin = None;
            self.core.fatal("the memory of the admin queues was unmapped");
        }
        self.core.table.announce(self.reader, self.table.generation);
    }

    /// Processes a write to CC (NVMe Base 2.1, 3.1.4.5).
    fn configure(&mut self, value: u32) {
        let old = std::mem::replace(&mut self.cc, value);
        match (old & cc::EN != 0, value & cc::EN != 0) {
            (false, true) => self.enable(),
            (true, false) => self.reset(),
            _ => {}
        }
        if value & cc::SHN_MASK != 0 && old & cc::SHN_MASK != value & cc::SHN_MASK {
            self.shut_down();
        }
    }

    fn enable(&mut self) {
        let core = self.core.clone();
        let r = &core.registers;
        // A shutdown may have been requested while the controller was disabled.
        core.halt.fetch_and(halt::GONE, Ordering::SeqCst);
        r.csts.store(0, Ordering::SeqCst);
        let aqa = r.aqa.load(Ordering::SeqCst);
        let setup = |address: u64, size: u32| RingSetup { id: 0, address, entries: (size & 0xfff) + 1 };
        let sq = setup(r.asq.load(Ordering::SeqCst), aqa);
        let cq = setup(r.acq.load(Ordering::SeqCst), aqa >> 16);
        let mps = self.cc >> 7 & 0xf;
        let complaint = [
            (mps > MPS_MAX, "CC.MPS is larger than CAP.MPSMAX"),
            (self.cc >> 4 & 7 != 0, "CC.CSS is not the NVM command set"),
            (self.cc >> 11 & 7 != 0, "CC.AMS is not round robin"),
            (sq.entries < 2 || cq.entries < 2, "AQA names a queue of one entry"),
            ((sq.address | cq.address) & 0xfff != 0, "ASQ or ACQ is not aligned to a page"),
        ];
        if let Some((_, reason)) = complaint.iter().find(|(bad, _)| *bad) {
            return core.fatal(reason);
        }
        core.page_shift.store(12 + mps, Ordering::SeqCst);
        self.core.doorbells.clear(0);
        self.refresh();
        match (Sq::new(sq, 0, None, &self.table), Cq::new(cq, &self.table)) {
            (Some(sq), Some(cq)) => self.admin = Some(AdminQueues { sq, cq }),
            _ => return core.fatal("ASQ or ACQ is not mapped"),
        }
        let plan = &core.config.faults;
        if plan.disappear == Some(Trigger::After(0)) {
            return core.disappear();
        }
        if plan.fatal == Some(Trigger::After(0)) {
            return core.fatal("fault plan");
        }
        self.ready_at = match plan.ready {
            Readiness::Prompt => Some(Instant::now()),
            Readiness::Slow(d) => Some(Instant::now() + d),
            Readiness::Never => None,
        };
    }

    /// Resets the controller, which deletes all queues (NVMe Base 2.1, 3.7.2).
    fn reset(&mut self) {
        let core = self.core.clone();
        let stuck = core.mail.iter().filter(|m| !self.ask(m, Message::Reset)).count();
        self.admin = None;
        self.ready_at = None;
        for id in std::mem::take(&mut self.sqs).into_keys() {
            core.existing.set(id, false, false);
            self.core.doorbells.clear(id);
        }
        for id in std::mem::take(&mut self.cqs).into_keys() {
            core.existing.set(id, true, false);
            self.core.doorbells.clear(id);
        }
        self.core.doorbells.clear(0);
        self.event_requests.clear();
        self.pending.clear();
        self.masked.clear();
        self.features = Features::new(core.config.max_queue_pairs, identify::has_write_cache(&core));
        core.write_through.store(false, Ordering::SeqCst);
        if stuck > 0 {
            return core.fatal("a service thread did not finish its commands in time");
        }
        core.halt.fetch_and(halt::GONE, Ordering::SeqCst);
        core.registers.csts.store(0, Ordering::SeqCst);
    }

    /// Processes a shutdown notification (NVMe Base 2.1, 3.6.1): finishes commands, flushes, and reports completion.
    fn shut_down(&mut self) {
        let core = self.core.clone();
        core.registers.csts.fetch_or(1 << 2, Ordering::SeqCst);
        core.halt.fetch_or(halt::SHUT_DOWN, Ordering::SeqCst);
        for m in &core.mail {
            self.ask(m, Message::Quiesce);
        }
        for n in &core.namespaces {
            if let Err(s) = n.store.flush() {
                tracing::error!(device = %core.name, "flush at shutdown: {s}");
            }
        }
        let done = |s: u32| Some(s & !csts::SHST_MASK | csts::SHST_COMPLETE);
        // The closure always returns a value, so the update always succeeds.
        let _ = core.registers.csts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, done);
    }

    /// Sends a message and waits for its reply. Returns false if no reply comes in time.
    pub(super) fn ask(&self, to: &Mailbox, message: impl FnOnce(mpsc::Sender<bool>) -> Message) -> bool {
        let (sender, answer) = mpsc::channel();
        to.send(message(sender));
        let deadline = Instant::now() + THREAD_LIMIT;
        while Instant::now() < deadline && !self.core.stop.load(Ordering::Relaxed) {
            match answer.recv_timeout(SLICE) {
                Ok(a) => return a,
                Err(mpsc::RecvTimeoutError::Timeout) => to.wake(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return false,
            }
        }
        false
    }

    fn note(&mut self, event: Event) {
        if event.kind() == Kind::Error {
            self.core.errors.lock().event();
        }
        if !self.pending.contains(&event) {
            self.pending.push(event);
        }
    }

    pub(super) fn raise(&mut self, event: Event) {
        self.note(event);
    }

    /// Completes outstanding requests with events whose kind is not masked.
    fn report_events(&mut self) {
        while let Some(at) = self.pending.iter().position(|e| !self.masked.contains(&e.kind())) {
            let Some(admin) = &mut self.admin else { return };
            if self.event_requests.is_empty() || admin.cq.room(1, &*self.core) == 0 {
                return;
            }
            let cid = self.event_requests.remove(0);
            let event = self.pending.remove(at);
            self.masked.push(event.kind());
            let answer = Answer { status: status::SUCCESS, result: event.result() };
            admin.cq.post(0, admin.sq.head(), cid, answer, false);
        }
    }

    /// Executes commands of the admin queue. Returns true if there were any.
    fn serve(&mut self) -> bool {
        let mut any = false;
        for _ in 0..BATCH {
            let Some(admin) = &mut self.admin else { break };
            if admin.sq.available(&self.core) == 0 || admin.cq.room(1, &*self.core) == 0 {
                break;
            }
            any = true;
            // Memory that was mapped before the doorbell was written must be known before the command runs.
            if self.core.table.generation() != self.table.generation {
                self.refresh();
                continue;
            }
            let e = admin.sq.peek(0);
            admin.sq.consume();
            let outcome = self.execute(&e);
            let answer = match outcome {
                Ok(None) => continue,
                Ok(Some(result)) => Answer { status: status::SUCCESS, result },
                Err(status) => {
                    self.core.errors.lock().admin(&e, status);
                    Answer { status, result: 0 }
                }
            };
            self.post(e.cid(), answer);
        }
        any
    }

    pub(super) fn post(&mut self, cid: u16, answer: Answer) {
        if let Some(admin) = &mut self.admin {
            super::copy::publish();
            admin.cq.post(0, admin.sq.head(), cid, answer, false);
        }
    }

    /// Returns true if the admin completion queue has space for `places` completions.
    pub(super) fn has_room(&mut self, places: u32) -> bool {
        self.admin.as_mut().is_some_and(|a| a.cq.room(places, &*self.core) >= places)
    }

    /// Returns true if the memory of a ring is mapped, in one piece.
    pub(super) fn reaches(&mut self, address: u64, bytes: usize) -> bool {
        if self.core.table.generation() != self.table.generation {
            self.refresh();
        }
        self.table.resolve(address, bytes, &mut Range::none()).is_some()
    }

    /// Returns true if CC.IOSQES or CC.IOCQES is the entry size that this controller supports.
    pub(super) fn entry_sizes_fit(&self, completion: bool) -> bool {
        match completion {
            true => self.cc >> 20 & 0xf == 4,
            false => self.cc >> 16 & 0xf == 6,
        }
    }

    /// Resolves the pages that a command names into `extents`.
    pub(super) fn walk(&mut self, e: &SqEntry, bytes: usize) -> Result<(), Status> {
        let shift = self.core.page_shift.load(Ordering::Relaxed);
        super::prp::walk(&self.table, &mut self.hints, shift, (e.prp1, e.prp2), bytes, &mut self.extents)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.core.table.retire(self.reader);
    }
}
