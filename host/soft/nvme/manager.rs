//! Manager thread: register state machine (enable, reset, shutdown), admin queue, asynchronous events.

use super::core::{Core, Message, halt};
use super::fault::{Readiness, Trigger};
use super::feature::Features;
use super::identify;
use super::log::{Event, Kind};
use super::prp::{Extent, Hints};
use super::queue::Answer;
use crate::idle::{Idle, Pace};
use crate::nvme::ring_service::{AdminQueue, Lifecycle, Shell};
use crate::wire::nvme::{SqEntry, Status, csts, status};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Largest supported CC.MPS: pages of 64 KiB (CAP.MPSMAX).
pub(super) const MPS_MAX: u32 = 4;
/// Largest number of admin commands per round.
const BATCH: u32 = 16;
/// Pauses of the thread while there are no admin commands.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: 100, naps: [Duration::from_micros(50), Duration::from_micros(500)] };
/// Interval at which the lengths of files are checked.
const FILE_CHECK: Duration = Duration::from_millis(100);

pub(super) struct Manager {
    pub(super) core: Arc<Core>,
    pub(super) admin: AdminQueue,
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
            admin: AdminQueue::new(&core.shell),
            sqs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            features: Features::new(core.config.max_queue_pairs, identify::has_write_cache(&core)),
            event_requests: Vec::new(),
            pending: Vec::new(),
            masked: Vec::new(),
            hints: Hints::none(),
            extents: Vec::new(),
            ready_at: None,
            started: now,
            checked: now,
            core,
        }
    }

    /// Runs until the controller stops.
    pub(super) fn run(mut self) {
        let mut idle = Idle::new(PACE);
        while !self.core.shell.stops() {
            if self.round() {
                idle.busy();
                continue;
            }
            // A driver that stores to the doorbell's memory, without a register write, does not wake this thread.
            let watches = self.admin.rings.is_some();
            idle.next().make(|nap| std::thread::park_timeout(if watches { nap } else { FILE_CHECK }));
        }
    }

    /// Processes all pending work. Returns true if there was any.
    fn round(&mut self) -> bool {
        let mut busy = self.follow_registers();
        if self.ready_at.is_some_and(|t| t <= Instant::now()) {
            self.ready_at = None;
            self.core.shell.registers.csts.fetch_or(csts::RDY, Ordering::SeqCst);
        }
        let events = std::mem::take(&mut *self.core.events.lock());
        for e in events {
            self.note(e);
        }
        if self.checked.elapsed() > FILE_CHECK {
            self.checked = Instant::now();
            self.core.namespaces.iter().for_each(|n| n.store.check());
        }
        if self.core.halted() == 0 && self.core.shell.registers.csts.load(Ordering::Relaxed) & csts::RDY != 0 {
            self.report_events();
            busy |= self.serve();
        }
        busy
    }

    pub(super) fn note(&mut self, event: Event) {
        if event.kind() == Kind::Error {
            self.core.errors.lock().event();
        }
        if !self.pending.contains(&event) {
            self.pending.push(event);
        }
    }

    /// Completes outstanding requests with events whose kind is not masked.
    fn report_events(&mut self) {
        while let Some(at) = self.pending.iter().position(|e| !self.masked.contains(&e.kind())) {
            if self.event_requests.is_empty() || !self.admin.has_room(1, &*self.core) {
                return;
            }
            let cid = self.event_requests.remove(0);
            let event = self.pending.remove(at);
            self.masked.push(event.kind());
            self.admin.post(cid, Answer { status: status::SUCCESS, result: event.result() });
        }
    }

    /// Executes commands of the admin queue. Returns true if there were any.
    fn serve(&mut self) -> bool {
        let mut any = false;
        for _ in 0..BATCH {
            if !self.admin.has_command(&*self.core) {
                break;
            }
            any = true;
            // Memory that was mapped before the doorbell was written must be known before the command runs.
            if self.admin.is_stale() {
                self.refresh();
                continue;
            }
            let Some(e) = self.admin.take() else { break };
            let outcome = self.execute(&e);
            let answer = match outcome {
                Ok(None) => continue,
                Ok(Some(result)) => Answer { status: status::SUCCESS, result },
                Err(status) => {
                    self.core.errors.lock().admin(&e, status);
                    Answer { status, result: 0 }
                }
            };
            self.admin.post(e.cid(), answer);
        }
        any
    }

    /// Resolves the pages that a command names into `extents`.
    pub(super) fn walk(&mut self, e: &SqEntry, bytes: usize) -> Result<(), Status> {
        let shift = self.core.page_shift.load(Ordering::Relaxed);
        super::prp::walk(&self.admin.table, &mut self.hints, shift, (e.prp1, e.prp2), bytes, &mut self.extents)
    }
}

impl Lifecycle for Manager {
    type Message = Message;

    fn shell(&self) -> &Shell<Message> {
        &self.core.shell
    }

    fn admin(&mut self) -> &mut AdminQueue {
        &mut self.admin
    }

    fn reset_message(reply: mpsc::Sender<()>) -> Message {
        Message::Reset(reply)
    }

    fn on_enable(&mut self) {
        // A shutdown may have been requested while the controller was disabled.
        self.core.halt.fetch_and(halt::GONE, Ordering::SeqCst);
    }

    fn on_invalid(&mut self, reason: &'static str) {
        self.core.fatal(reason);
    }

    fn on_enabled(&mut self, page_shift: u32) {
        let core = &self.core;
        core.page_shift.store(page_shift, Ordering::SeqCst);
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

    fn on_reset(&mut self, stuck: usize) {
        self.ready_at = None;
        self.sqs.clear();
        self.cqs.clear();
        self.event_requests.clear();
        self.pending.clear();
        self.masked.clear();
        let core = &self.core;
        self.features = Features::new(core.config.max_queue_pairs, identify::has_write_cache(core));
        core.write_through.store(false, Ordering::SeqCst);
        if stuck > 0 {
            return core.fatal("a service thread did not finish its commands in time");
        }
        core.halt.fetch_and(halt::GONE, Ordering::SeqCst);
        core.shell.registers.csts.store(0, Ordering::SeqCst);
    }

    /// Finishes commands, flushes, and reports completion.
    fn on_shutdown(&mut self) {
        let Core { shell, halt, namespaces, .. } = &*self.core;
        shell.registers.change_status(csts::SHST_OCCURRING, 0);
        halt.fetch_or(halt::SHUT_DOWN, Ordering::SeqCst);
        for m in &shell.mail {
            shell.request(m, Message::Quiesce);
        }
        for n in namespaces {
            if let Err(s) = n.store.flush() {
                tracing::error!(device = %shell.name, "flush at shutdown: {s}");
            }
        }
        shell.registers.change_status(csts::SHST_COMPLETE, csts::SHST_MASK);
    }

    fn on_new_table(&mut self) {
        self.hints = Hints::none();
    }

    fn on_unmapped(&mut self) {
        self.core.fatal("the memory of the admin queues was unmapped");
    }
}
