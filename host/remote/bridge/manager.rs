//! Manager thread: register state machine, admin queue, Keep Alive, connections of I/O queues.

use super::events::Events;
use super::kernels::KernelQueue;
use super::{Core, Flow, Message};
use crate::idle::{self, Idle, Pace, Pause};
use crate::nvme::fabrics::{
    Association, Command, DriverMemory, Established, FabricsError, Finished, Limits, Paths, Queue, QueueShape, User,
    admin,
};
use crate::nvme::ring_service::{AdminQueue, Answer, Lifecycle, RingSetup, Shell};
use crate::wire::nvme::fabrics::property_get;
use crate::wire::nvme::{Status, admin as opcode, csts, register, status};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Pauses of the thread while there is nothing to do.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: 100, naps: [Duration::from_micros(50), Duration::from_millis(1)] };
/// Longest sleep while the controller is disabled. Register writes wake the thread.
const LONG_NAP: Duration = Duration::from_millis(100);
/// Interval between two looks at the connections of kernels.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Interval between two attempts to connect a queue whose earlier connection the target still has.
const CONNECT_INTERVAL: Duration = Duration::from_millis(10);
/// Time in which a target notices that a connection was closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for messages to a target that is left anyway.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// State of the association.
pub(super) enum Link {
    /// None: the controller is disabled.
    None,
    /// Connected by `connect` and not enabled by the driver yet.
    Prepared(Box<Established>),
    Up(Box<Established>),
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

/// Facts about the controller of the association, or of the last one.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    limits: Limits,
    /// Largest number of event requests.
    pub(super) event_limit: u16,
    /// Length of the log page of access states in bytes; `None` if the controller reports none.
    pub(super) access_bytes: Option<u32>,
    /// Model and serial number.
    pub(super) subsystem: String,
}

impl Facts {
    pub(super) fn new(e: &Established) -> Self {
        let i = &e.identify;
        Self {
            limits: e.limits,
            event_limit: i.event_limit(),
            access_bytes: e.access_bytes,
            subsystem: format!("{} with serial number {}", i.model(), i.serial()),
        }
    }

    /// Returns the user of a queue's connection.
    pub(super) fn user<'a>(&self, kernels: Option<&'a KernelQueue>) -> User<'a> {
        kernels.map_or(User::Host(self.limits.in_capsule_bytes), |k| User::Kernels(&k.plan.space))
    }

    /// Gives a connected I/O queue the limits of the controller.
    pub(super) fn prepared(&self, mut queue: Queue) -> Box<Queue> {
        queue.link().set_in_capsule(self.limits.in_capsule_bytes);
        if self.limits.max_commands > 0 {
            queue.commands().limit(self.limits.max_commands.into());
        }
        Box::new(queue)
    }
}

pub(super) struct Manager {
    pub(super) core: Arc<Core>,
    pub(super) paths: Paths,
    pub(super) facts: Facts,
    /// The admin queue in memory.
    pub(super) admin: AdminQueue,
    pub(super) link: Link,
    /// When the association was established.
    pub(super) established_at: Instant,
    /// Completion queues without submission queue, and queue pairs.
    pub(super) cqs: BTreeMap<u16, RingSetup>,
    pub(super) sqs: BTreeMap<u16, RingSetup>,
    /// Features that the driver has set: they are set again with a new association.
    pub(super) features: BTreeMap<u8, u32>,
    pub(super) events: Events,
    pub(super) finished: Vec<Finished>,
    /// Keep Alive: the next time to send it, and the time since which a response is due.
    pub(super) next_keep_alive: Instant,
    pub(super) pending_keep_alive: Option<Instant>,
    next_poll: Instant,
}

impl Manager {
    pub(super) fn new(core: Arc<Core>, paths: Paths, established: Established) -> Self {
        Self {
            paths,
            facts: Facts::new(&established),
            admin: AdminQueue::new(&core.shell),
            link: Link::Prepared(Box::new(established)),
            established_at: Instant::now(),
            cqs: BTreeMap::new(),
            sqs: BTreeMap::new(),
            features: BTreeMap::new(),
            events: Events::default(),
            finished: Vec::new(),
            next_keep_alive: Instant::now() + core.config.keep_alive / 2,
            pending_keep_alive: None,
            next_poll: Instant::now(),
            core,
        }
    }

    /// Runs until the controller is closed.
    pub(super) fn run(mut self) {
        let mut idle = Idle::new(PACE);
        while !self.core.shell.stops() {
            if self.round() {
                idle.busy();
                continue;
            }
            match (idle.next(), &self.link) {
                (Pause::Nap(nap), Link::Up(e)) => idle::wait(&[e.association.admin.descriptor()], nap),
                (Pause::Nap(_), _) if self.admin.rings.is_none() => std::thread::park_timeout(LONG_NAP),
                (pause, _) => pause.make(std::thread::park_timeout),
            }
        }
        self.disconnect();
    }

    /// Processes all pending work. Returns true if there was any.
    fn round(&mut self) -> bool {
        let mut busy = self.follow_registers();
        self.poll_kernel_connections();
        let loss = self.core.loss.lock().take();
        if let Some(error) = loss {
            self.on_loss(error);
            busy = true;
        }
        // Responses that have arrived count before Keep Alive is late.
        busy |= self.poll_admin();
        self.follow_events();
        self.keep_alive();
        if self.core.shell.registers.csts.load(Ordering::Relaxed) & csts::RDY != 0 {
            busy |= self.serve();
        }
        busy | self.try_reconnect()
    }

    /// Executes a step that takes long and accesses no memory of commands. Unmappings do not wait for this thread meanwhile.
    pub(super) fn without_memory<T>(&mut self, step: impl FnOnce(&mut Self) -> T) -> T {
        self.admin.retire();
        let done = step(self);
        // A snapshot that is taken from here on is one that an unmapping waits for.
        self.admin.announce();
        self.refresh();
        done
    }

    /// Returns the association while it is established.
    pub(super) fn up(&mut self) -> Option<&mut Association> {
        match &mut self.link {
            Link::Up(e) => Some(&mut e.association),
            _ => None,
        }
    }

    /// Returns address and port of the port in use, or of the last one.
    pub(super) fn peer(&self) -> String {
        self.paths.dialer().config.peer()
    }

    pub(super) fn set_flow(&self, flow: Flow) {
        *self.core.flow.lock() = flow;
    }

    /// Disables the remote controller, if it can be reached, and drops the admin queue.
    fn disconnect(&mut self) {
        if let Link::Up(mut e) | Link::Prepared(mut e) = std::mem::replace(&mut self.link, Link::None) {
            // The connection ends in any case, and the target drops the association with it.
            if let Err(error) = e.association.disable(DISCONNECT_TIMEOUT) {
                tracing::debug!(device = %self.core.shell.name, %error, "the controller was not disabled");
            }
        }
    }

    // --- the association ---------------------------------------------------------------------------------------------

    /// Sends Keep Alive and reads CSTS when it is time. Both responses are due before the next Keep Alive Timeout.
    fn keep_alive(&mut self) {
        let every = self.core.config.keep_alive;
        let now = Instant::now();
        if let Some(since) = self.pending_keep_alive.filter(|s| !every.is_zero() && now - *s > every) {
            let what = "Keep Alive".to_owned();
            let peer = self.peer();
            return self.on_loss(FabricsError::TimedOut { peer, what, waited: now - since });
        }
        if every.is_zero() || self.pending_keep_alive.is_some() || now < self.next_keep_alive {
            return;
        }
        if let Link::Up(e) | Link::Prepared(e) = &mut self.link {
            let none = DriverMemory::none();
            let sent = [admin(opcode::KEEP_ALIVE, 0, 0), property_get(register::CSTS)]
                .into_iter()
                .try_for_each(|entry| e.association.admin.submit(Command::plain(entry), &none).map(drop));
            self.pending_keep_alive = Some(now);
            self.next_keep_alive = now + every / 2;
            if let Err(error) = sent {
                self.on_loss(error);
            }
        }
    }

    /// Sends and receives on the admin connection. Returns true if something moved.
    fn poll_admin(&mut self) -> bool {
        let core = self.core.clone();
        let (Link::Up(e) | Link::Prepared(e)) = &mut self.link else { return false };
        let table = self.admin.table.clone();
        let memory = DriverMemory::new(&table, core.shell.mover);
        let moved = e.association.admin.progress(&memory, &mut self.finished);
        let mut finished = std::mem::take(&mut self.finished);
        let any = !finished.is_empty();
        for f in finished.drain(..) {
            self.end(f);
        }
        match moved {
            Ok(moved) => moved || any,
            Err(error) => {
                self.on_loss(error);
                true
            }
        }
    }

    /// Processes the response to a command of this thread.
    pub(super) fn on_response(&mut self, f: &Finished) {
        match f.command.entry.opcode() {
            opcode::KEEP_ALIVE => {
                // A controller without Keep Alive says so, and lives.
                self.pending_keep_alive = None;
                self.core.counters.keep_alives.fetch_add(1, Ordering::Relaxed);
            }
            opcode::ASYNC_EVENT_REQUEST => self.on_event(f),
            opcode::GET_LOG_PAGE => self.on_access_log(f),
            _ if f.status.is_success() && f.result as u32 & csts::CFS != 0 => {
                tracing::warn!(device = %self.core.shell.name, csts = f.result, "the controller reports a fatal status");
                self.tear_down(status::HOST_PATHING_ERROR);
                self.link = Link::Failed;
                self.set_flow(Flow::Closed);
                self.close_kernels(true);
                self.core.shell.registers.change_status(csts::CFS, 0);
            }
            _ => {}
        }
    }

    pub(super) fn close_kernels(&self, is_last: bool) {
        self.core.kernels.lock().values().for_each(|k| k.close(is_last));
    }

    /// Looks for failed connections of kernels. Connects those queues whose kernels have noticed an earlier loss only
    /// now.
    fn poll_kernel_connections(&mut self) {
        let now = Instant::now();
        if now < self.next_poll || !matches!(self.link, Link::Up(_)) {
            return;
        }
        self.next_poll = now + POLL_INTERVAL;
        let kernels = self.core.kernels.lock().clone();
        for (id, k) in kernels {
            if let Some(error) = k.poll() {
                tracing::debug!(device = %self.core.shell.name, queue = id, %error, "connection of kernels lost");
                return self.core.report(error);
            }
            if !k.wants_connection() {
                continue;
            }
            // The association is established anew if that fails.
            let connected = self.connect_queue(id, k.plan.entries, User::Kernels(&k.plan.space)).map_err(|status| {
                let (peer, command) = (self.peer(), format!("Connect of queue {id}"));
                FabricsError::Command { peer, command, status }
            });
            if let Err(error) = connected.and_then(|queue| k.attach(queue.into_link())) {
                return self.core.report(error);
            }
        }
    }

    /// Connects an I/O queue of the current association.
    pub(super) fn connect_queue(&mut self, id: u16, entries: u32, user: User<'_>) -> Result<Box<Queue>, Status> {
        let (core, dialer) = (self.core.clone(), self.paths.dialer().clone());
        let Some(a) = self.up() else { return Err(status::HOST_PATHING_ERROR) };
        let shape = QueueShape { id, controller: a.controller, entries };
        let started = Instant::now();
        // The target may not have noticed yet that an earlier connection of this queue was closed.
        let connected = loop {
            match Queue::connect(&dialer, shape, user) {
                Err(FabricsError::Refused { status: s, .. })
                    if s.without_flags() == status::SEQUENCE_ERROR
                        && started.elapsed() < CLOSE_TIMEOUT
                        && !core.shell.stops() =>
                {
                    std::thread::sleep(CONNECT_INTERVAL);
                }
                other => break other,
            }
        };
        match connected {
            Ok((queue, _)) => Ok(self.facts.prepared(queue)),
            Err(FabricsError::Refused { status, .. }) => Err(status),
            Err(error) => {
                core.report(error);
                Err(status::HOST_PATHING_ERROR)
            }
        }
    }

    /// Posts a completion of the admin queue. Its place is reserved.
    pub(super) fn post(&mut self, cid: u16, answer: Answer) {
        if let Some(r) = &mut self.admin.rings {
            r.cq.held -= 1;
        }
        self.admin.post(cid, answer);
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

    fn on_invalid(&mut self, reason: &'static str) {
        self.fail(reason.to_owned());
    }

    fn on_enabled(&mut self, _: u32) {
        let prepared = std::mem::replace(&mut self.link, Link::None);
        let association = match prepared {
            Link::Prepared(e) => Ok(e),
            _ => self.associate(),
        };
        match association {
            Ok(e) => {
                self.establish(e);
                self.core.shell.registers.change_status(csts::RDY, 0);
            }
            Err(e) => self.fail(e.to_string()),
        }
    }

    /// Ends the association.
    fn on_disable(&mut self) {
        self.disconnect();
        for id in std::mem::take(&mut self.sqs).into_keys() {
            self.core.end_kernel_queue(id);
        }
    }

    fn on_reset(&mut self, _: usize) {
        self.cqs.clear();
        self.events = Events::default();
        self.finished.clear();
        self.features.clear();
        *self.core.loss.lock() = None;
        *self.core.failure.lock() = None;
        self.set_flow(Flow::Open);
        self.core.shell.registers.csts.store(0, Ordering::SeqCst);
    }

    fn on_shutdown(&mut self) {
        let core = self.core.clone();
        if let Some(a) = self.up()
            && let Err(error) = a.shut_down()
        {
            tracing::warn!(device = %core.shell.name, %error, "the controller did not report the end of its shutdown");
        }
        core.shell.registers.change_status(csts::SHST_COMPLETE, csts::SHST_MASK);
    }

    fn on_unmapped(&mut self) {
        self.core.shell.registers.change_status(csts::CFS, 0);
    }
}
