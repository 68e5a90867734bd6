//! Manager thread: register state machine, admin queue, Keep Alive, recovery of a lost association.

use super::super::FabricsError;
use super::super::association::Association;
use super::super::commands::{Command, Finished};
use super::super::driver_memory::DriverMemory;
use super::super::link::{Dialer, QueueShape, User};
use super::super::queue::{Queue, admin};
use super::kernels::KernelQueue;
use super::{Core, Flow, Message, READY, change_status};
use crate::idle::{self, Idle, Pace, Pause};
use crate::nvme::ring_service::{Answer, Cq, Mailbox, RingSetup, Snapshot, SubmissionRing, copy};
use crate::wire::nvme::fabrics::property_get;
use crate::wire::nvme::{SqEntry, Status, admin as opcode, cc, csts, register, status};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Longest time to wait for a service thread.
const THREAD_LIMIT: Duration = Duration::from_secs(5);
/// Interval at which that wait checks whether the controller is being closed.
const SLICE: Duration = Duration::from_millis(10);
/// Pauses of the thread while there is nothing to do.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: 100, naps: [Duration::from_micros(50), Duration::from_millis(1)] };
/// Longest sleep while the controller is disabled. Register writes wake the thread.
const LONG_NAP: Duration = Duration::from_millis(100);
/// Interval between two looks at the connections of kernels.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time in which a target notices that a connection was closed.
const CLOSE_NOTICE: Duration = Duration::from_secs(2);
/// Time for messages to a target that is left anyway.
const PARTING: Duration = Duration::from_secs(1);

/// The admin queue in memory.
pub(super) struct AdminRings {
    pub(super) sq: SubmissionRing,
    pub(super) cq: Cq,
}

/// State of the association.
enum Link {
    /// None: the controller is disabled.
    None,
    /// Connected by `connect` and not enabled by the driver yet.
    Prepared(Box<Association>),
    Up(Box<Association>),
    /// Lost. The controller is ready for the driver, and commands wait.
    Down {
        since: Instant,
        next: Instant,
        reason: String,
        last: String,
    },
    /// Not established again in time.
    Failed,
}

pub(super) struct Manager {
    pub(super) core: Arc<Core>,
    dialer: Dialer,
    /// Index of this reader of the address table.
    reader: usize,
    pub(super) table: Arc<Snapshot>,
    pub(super) rings: Option<AdminRings>,
    link: Link,
    /// Completion queues without submission queue, and queue pairs.
    pub(super) cqs: BTreeMap<u16, RingSetup>,
    pub(super) sqs: BTreeMap<u16, RingSetup>,
    /// Features that the driver has set: they are set again with a new association.
    pub(super) features: BTreeMap<u8, u32>,
    /// Event requests of the driver that wait for an association.
    pub(super) event_requests: Vec<SqEntry>,
    pub(super) finished: Vec<Finished>,
    cc: u32,
    /// Keep Alive: the next time to send it, and the time since which a response is due.
    next_beat: Instant,
    pending_beat: Option<Instant>,
    next_look: Instant,
}

impl Manager {
    pub(super) fn new(core: Arc<Core>, dialer: Dialer, association: Association) -> Self {
        Self {
            dialer,
            reader: core.mail.len(),
            table: core.table.snapshot(),
            rings: None,
            link: Link::Prepared(Box::new(association)),
            cqs: BTreeMap::new(),
            sqs: BTreeMap::new(),
            features: BTreeMap::new(),
            event_requests: Vec::new(),
            finished: Vec::new(),
            cc: 0,
            next_beat: Instant::now() + core.config.keep_alive / 2,
            pending_beat: None,
            next_look: Instant::now(),
            core,
        }
    }

    /// Runs until the controller is closed.
    pub(super) fn run(mut self) {
        let mut idle = Idle::new(PACE);
        while !self.core.stops() {
            if self.round() {
                idle.busy();
                continue;
            }
            match (idle.next(), &self.link) {
                (Pause::Nap(nap), Link::Up(a)) => idle::wait(&[a.admin.descriptor()], nap),
                (Pause::Nap(_), _) if self.rings.is_none() => std::thread::park_timeout(LONG_NAP),
                (pause, _) => pause.make(std::thread::park_timeout),
            }
        }
        self.part();
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
        self.look_at_kernels();
        let loss = self.core.loss.lock().take();
        if let Some(error) = loss {
            self.lose(error);
            busy = true;
        }
        // Responses that have arrived count before Keep Alive is late.
        busy |= self.carry();
        self.beat();
        if self.core.registers.csts.load(Ordering::Relaxed) & READY != 0 {
            busy |= self.serve();
        }
        busy | self.try_again()
    }

    fn refresh(&mut self) {
        self.table = self.core.table.snapshot();
        let table = &*self.table;
        if self.rings.as_mut().is_some_and(|r| !(r.sq.resolve(table) && r.cq.resolve(table))) {
            self.rings = None;
            change_status(&self.core, csts::CFS, 0);
        }
        self.core.table.announce(self.reader, self.table.generation);
    }

    /// Returns the association while it is established.
    pub(super) fn up(&mut self) -> Option<&mut Association> {
        match &mut self.link {
            Link::Up(a) => Some(a),
            _ => None,
        }
    }

    fn set_flow(&self, flow: Flow) {
        *self.core.flow.lock() = flow;
    }

    // --- registers ---------------------------------------------------------------------------------------------------

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
        r.csts.store(0, Ordering::SeqCst);
        let aqa = r.aqa.load(Ordering::SeqCst);
        let setup = |address: u64, size: u32| RingSetup { id: 0, address, entries: (size & 0xfff) + 1 };
        let sq = setup(r.asq.load(Ordering::SeqCst), aqa);
        let cq = setup(r.acq.load(Ordering::SeqCst), aqa >> 16);
        let complaint = [
            (self.cc >> 7 & 0xf != 0, "CC.MPS is larger than CAP.MPSMAX"),
            (self.cc >> 4 & 7 != 0, "CC.CSS is not the NVM command set"),
            (sq.entries < 2 || cq.entries < 2, "AQA names a queue of one entry"),
            ((sq.address | cq.address) & 0xfff != 0, "ASQ or ACQ is not aligned to a page"),
        ];
        if let Some((_, reason)) = complaint.iter().find(|(bad, _)| *bad) {
            return self.fail((*reason).to_owned());
        }
        core.doorbells.clear(0);
        self.refresh();
        let (Some(sq), Some(cq)) = (SubmissionRing::new(sq, &self.table), Cq::new(cq, &self.table)) else {
            return self.fail("ASQ or ACQ is not mapped".to_owned());
        };
        self.rings = Some(AdminRings { sq, cq });
        let prepared = std::mem::replace(&mut self.link, Link::None);
        let association = match prepared {
            Link::Prepared(a) => Ok(a),
            _ => self.associate(),
        };
        match association {
            Ok(a) => {
                self.raise(a);
                change_status(&core, READY, 0);
            }
            Err(e) => self.fail(e.to_string()),
        }
    }

    /// Establishes an association, without I/O queues.
    fn associate(&mut self) -> Result<Box<Association>, FabricsError> {
        let mut a = Association::open(&self.dialer)?;
        a.enable()?;
        let identify = a.identify()?;
        let limits = a.limits(&identify)?;
        let wanted = u32::from(self.core.pairs);
        let granted = a.request_queues(wanted)?;
        let before = self.core.limits;
        let unsupported = |reason: String| Err(FabricsError::Unsupported { peer: self.core.config.peer(), reason });
        if granted < wanted {
            return unsupported(format!("it grants {granted} I/O queues now, and granted {wanted} before"));
        }
        if limits.queue_entries < before.queue_entries || limits.max_transfer_bytes != before.max_transfer_bytes {
            return unsupported("its limits have changed since it was opened; open it again".to_owned());
        }
        Ok(Box::new(a))
    }

    /// Starts to use an association.
    fn raise(&mut self, association: Box<Association>) {
        self.link = Link::Up(association);
        self.next_beat = Instant::now() + self.core.config.keep_alive / 2;
        self.pending_beat = None;
        *self.core.failure.lock() = None;
        self.set_flow(Flow::Open);
    }

    /// Marks the controller as failed. Reads of CSTS fail with the reason.
    fn fail(&mut self, reason: String) {
        tracing::debug!(device = %self.core.name, reason, "the controller failed");
        self.link = Link::Failed;
        *self.core.failure.lock() = Some(reason);
        self.set_flow(Flow::Closed);
        self.close_kernels(true);
    }

    /// Ends the association, which deletes all queues (NVMe Base 2.1, 3.7.2).
    fn reset(&mut self) {
        let core = self.core.clone();
        self.part();
        for m in &core.mail {
            self.ask(m, Message::Reset);
        }
        self.rings = None;
        for id in std::mem::take(&mut self.sqs).into_keys() {
            core.end_kernel_queue(id);
            core.existing.set(id, false, false);
            core.doorbells.clear(id);
        }
        for id in std::mem::take(&mut self.cqs).into_keys() {
            core.existing.set(id, true, false);
            core.doorbells.clear(id);
        }
        core.doorbells.clear(0);
        self.event_requests.clear();
        self.finished.clear();
        self.features.clear();
        *core.loss.lock() = None;
        *core.failure.lock() = None;
        self.set_flow(Flow::Open);
        core.registers.csts.store(0, Ordering::SeqCst);
    }

    /// Disables the remote controller, if it can be reached, and drops the admin queue.
    fn part(&mut self) {
        if let Link::Up(mut a) | Link::Prepared(mut a) = std::mem::replace(&mut self.link, Link::None) {
            // The connection ends in any case, and the target drops the association with it.
            if let Err(error) = a.disable(PARTING) {
                tracing::debug!(device = %self.core.name, %error, "the controller was not disabled");
            }
        }
    }

    /// Processes a shutdown notification (NVMe Base 2.1, 3.6.2).
    fn shut_down(&mut self) {
        let name = self.core.name.clone();
        if let Some(a) = self.up()
            && let Err(error) = a.shut_down()
        {
            tracing::warn!(device = %name, %error, "the controller did not report the end of its shutdown");
        }
        change_status(&self.core, csts::SHST_COMPLETE, csts::SHST_MASK);
    }

    // --- the association ---------------------------------------------------------------------------------------------

    /// Sends Keep Alive and reads CSTS when it is time. Both responses are due before the next Keep Alive Timeout.
    fn beat(&mut self) {
        let every = self.core.config.keep_alive;
        let now = Instant::now();
        if let Some(since) = self.pending_beat.filter(|s| !every.is_zero() && now - *s > every) {
            let what = "Keep Alive".to_owned();
            let peer = self.core.config.peer();
            return self.lose(FabricsError::TimedOut { peer, what, waited: now - since });
        }
        if every.is_zero() || self.pending_beat.is_some() || now < self.next_beat {
            return;
        }
        if let Link::Up(a) | Link::Prepared(a) = &mut self.link {
            let none = DriverMemory::none();
            let sent = [admin(opcode::KEEP_ALIVE, 0, 0), property_get(register::CSTS)]
                .into_iter()
                .try_for_each(|entry| a.admin.submit(Command::plain(entry), &none).map(drop));
            self.pending_beat = Some(now);
            self.next_beat = now + every / 2;
            if let Err(error) = sent {
                self.lose(error);
            }
        }
    }

    /// Sends and receives on the admin connection. Returns true if something moved.
    fn carry(&mut self) -> bool {
        let core = self.core.clone();
        let (Link::Up(a) | Link::Prepared(a)) = &mut self.link else { return false };
        let table = self.table.clone();
        let memory = DriverMemory::new(&table, core.mover);
        let moved = a.admin.progress(&memory, &mut self.finished);
        let mut finished = std::mem::take(&mut self.finished);
        let any = !finished.is_empty();
        for f in finished.drain(..) {
            self.end(f);
        }
        match moved {
            Ok(moved) => moved || any,
            Err(error) => {
                self.lose(error);
                true
            }
        }
    }

    /// Processes the response to a command of this thread: Keep Alive and Property Get.
    pub(super) fn heard(&mut self, f: &Finished) {
        match f.command.entry.opcode() {
            opcode::KEEP_ALIVE => {
                // A controller without Keep Alive says so, and lives.
                self.pending_beat = None;
                self.core.counters.keep_alives.fetch_add(1, Ordering::Relaxed);
            }
            _ if f.status.is_success() && f.result as u32 & csts::CFS != 0 => {
                tracing::warn!(device = %self.core.name, csts = f.result, "the controller reports a fatal status");
                self.leave(status::HOST_PATHING_ERROR);
                self.link = Link::Failed;
                self.set_flow(Flow::Closed);
                self.close_kernels(true);
                change_status(&self.core, csts::CFS, 0);
            }
            _ => {}
        }
    }

    /// Ends all connections. Commands in flight complete with a status.
    fn leave(&mut self, status: Status) {
        self.core.counters.losses.fetch_add(1, Ordering::Relaxed);
        self.set_flow(Flow::Waiting);
        self.pending_beat = None;
        if let Link::Up(mut a) = std::mem::replace(&mut self.link, Link::None) {
            for command in a.admin.abandon() {
                self.orphan(command, status);
            }
        }
        let core = self.core.clone();
        for m in &core.mail {
            self.ask(m, Message::Detach);
        }
        self.close_kernels(false);
        // The threads may have reported the same loss meanwhile.
        *core.loss.lock() = None;
    }

    /// Handles the loss of a connection, which ends the association.
    fn lose(&mut self, error: FabricsError) {
        match self.link {
            Link::Up(_) => {}
            Link::Prepared(_) => {
                self.link = Link::None;
                self.pending_beat = None;
                return;
            }
            _ => return,
        }
        tracing::warn!(device = %self.core.name, %error, "the association was lost");
        self.leave(status::HOST_PATHING_ERROR);
        let now = Instant::now();
        let reason = error.to_string();
        *self.core.last_loss.lock() = Some(reason.clone());
        if self.core.config.controller_loss == Some(Duration::ZERO) {
            return self.fail(reason);
        }
        let next = now + self.core.config.reconnect_delay;
        self.link = Link::Down { since: now, next, last: reason.clone(), reason };
    }

    /// Connects again when it is time. Returns true after an attempt.
    fn try_again(&mut self) -> bool {
        let Link::Down { since, next, reason, last } = &self.link else { return false };
        let (since, reason, last) = (*since, reason.clone(), last.clone());
        let now = Instant::now();
        if self.core.config.controller_loss.is_some_and(|limit| now - since > limit) {
            self.fail(format!(
                "the association was lost {:.1?} ago ({reason}) and not established again: {last}; reset the controller when the target is back",
                now - since
            ));
            return true;
        }
        if now < *next {
            return false;
        }
        match self.reconnect() {
            Ok(()) => {
                self.core.counters.reconnects.fetch_add(1, Ordering::Relaxed);
                tracing::info!(device = %self.core.name, after = ?since.elapsed(), "the association is established again");
            }
            Err(error) => {
                tracing::debug!(device = %self.core.name, %error, "no association yet");
                let next = Instant::now() + self.core.config.reconnect_delay;
                self.link = Link::Down { since, next, reason, last: error.to_string() };
            }
        }
        true
    }

    /// Establishes the association anew, with all queues and features of the driver.
    fn reconnect(&mut self) -> Result<(), FabricsError> {
        let mut a = self.associate()?;
        for (&id, &value) in &self.features {
            let entry = admin(opcode::SET_FEATURES, id.into(), value);
            let what = format!("Set Features ({id:#04x})");
            a.admin.run_well(Command::plain(entry), self.core.config.connect_timeout, &what)?;
        }
        let mut queues = Vec::new();
        let kernels = self.core.kernels.lock().clone();
        for (&id, setup) in &self.sqs {
            let by = kernels.get(&id);
            if by.is_some_and(|k| !k.wants_connection()) {
                continue;
            }
            if self.core.stops() {
                let reason = "the controller is being closed".to_owned();
                return Err(FabricsError::Lost { peer: self.core.config.peer(), reason });
            }
            let connected = Queue::connect(
                &self.dialer,
                QueueShape { id, controller: a.controller, entries: setup.entries },
                self.user(by.map(|k| &**k)),
            )?;
            queues.push((by.cloned(), self.prepared(connected.0)));
        }
        self.raise(a);
        for (kernels, queue) in queues {
            let id = queue.id();
            match kernels {
                Some(k) => k.attach(queue.into_link()).unwrap_or_else(|error| self.core.report(error)),
                None => self.core.thread_of(id).send(Message::Attach(id, queue)),
            }
        }
        for entry in std::mem::take(&mut self.event_requests) {
            self.forward(&entry);
        }
        Ok(())
    }

    /// Gives a connected I/O queue the limits of the controller.
    fn prepared(&self, mut queue: Queue) -> Box<Queue> {
        let limits = &self.core.limits;
        queue.link().set_in_capsule(limits.in_capsule_bytes);
        if limits.max_commands > 0 {
            queue.commands().limit(limits.max_commands.into());
        }
        Box::new(queue)
    }

    /// Returns the user of a queue's connection.
    pub(super) fn user<'a>(&self, kernels: Option<&'a KernelQueue>) -> User<'a> {
        kernels.map_or(User::Host(self.core.limits.in_capsule_bytes), |k| User::Kernels(&k.plan.space))
    }

    fn close_kernels(&self, is_last: bool) {
        self.core.kernels.lock().values().for_each(|k| k.close(is_last));
    }

    /// Looks for failed connections of kernels. Connects those queues whose kernels have noticed an earlier loss only
    /// now.
    fn look_at_kernels(&mut self) {
        let now = Instant::now();
        if now < self.next_look || !matches!(self.link, Link::Up(_)) {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        let kernels = self.core.kernels.lock().clone();
        for (id, k) in kernels {
            if let Some(error) = k.look() {
                tracing::debug!(device = %self.core.name, queue = id, %error, "connection of kernels lost");
                return self.core.report(error);
            }
            if !k.wants_connection() {
                continue;
            }
            // The association is established anew if that fails.
            let connected = self.connect_queue(id, k.plan.entries, User::Kernels(&k.plan.space)).map_err(|status| {
                let (peer, command) = (self.core.config.peer(), format!("Connect of queue {id}"));
                FabricsError::Command { peer, command, status }
            });
            if let Err(error) = connected.and_then(|queue| k.attach(queue.into_link())) {
                return self.core.report(error);
            }
        }
    }

    /// Connects an I/O queue of the current association.
    pub(super) fn connect_queue(&mut self, id: u16, entries: u32, user: User<'_>) -> Result<Box<Queue>, Status> {
        let (core, dialer) = (self.core.clone(), self.dialer.clone());
        let Some(a) = self.up() else { return Err(status::HOST_PATHING_ERROR) };
        let shape = QueueShape { id, controller: a.controller, entries };
        let started = Instant::now();
        // The target may not have noticed yet that an earlier connection of this queue was closed.
        let connected = loop {
            match Queue::connect(&dialer, shape, user) {
                Err(FabricsError::Refused { status: s, .. })
                    if s.without_flags() == status::SEQUENCE_ERROR
                        && started.elapsed() < CLOSE_NOTICE
                        && !core.stops() =>
                {
                    std::thread::sleep(SLICE);
                }
                other => break other,
            }
        };
        match connected {
            Ok((queue, _)) => Ok(self.prepared(queue)),
            Err(FabricsError::Refused { status, .. }) => Err(status),
            Err(error) => {
                core.report(error);
                Err(status::HOST_PATHING_ERROR)
            }
        }
    }

    /// Sends a message and waits for its reply. Returns `None` if no reply comes in time.
    pub(super) fn ask<T>(&self, to: &Mailbox<Message>, message: impl FnOnce(mpsc::Sender<T>) -> Message) -> Option<T> {
        let (sender, answer) = mpsc::channel();
        to.send(message(sender));
        let deadline = Instant::now() + THREAD_LIMIT;
        while Instant::now() < deadline && !self.core.stops() {
            match answer.recv_timeout(SLICE) {
                Ok(a) => return Some(a),
                Err(mpsc::RecvTimeoutError::Timeout) => to.wake(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Posts a completion of the admin queue. Its place is reserved.
    pub(super) fn post(&mut self, cid: u16, answer: Answer) {
        if let Some(r) = &mut self.rings {
            copy::publish();
            r.cq.held -= 1;
            r.cq.post(0, r.sq.head(), cid, answer, false);
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.core.table.retire(self.reader);
    }
}
