//! Service thread: takes commands from rings in memory, carries them over the connections, posts the completions.

use super::formats::KnownFormats;
use super::{Core, Flow, Message};
use crate::idle::{self, Idle, Pace, Pause};
use crate::nvme::fabrics::{Command, Direction, DriverMemory, FabricsError, Finished, Place, Queue};
use crate::nvme::ring_service::copy;
use crate::nvme::ring_service::{Answer, Cq, RingSetup, Snapshot, SubmissionRing};
use crate::responsive::Responsive;
use crate::wire::nvme::ana::AccessState;
use crate::wire::nvme::{SqEntry, Status, status};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Largest number of commands taken from one ring before the next one is polled.
const BATCH: u32 = 64;
/// Shortest and longest sleep of a thread with queues. What arrives ends a sleep.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];
/// Longest sleep of a thread without queues. Messages wake it.
const LONG_NAP: Duration = Duration::from_millis(100);
/// Time that an idle thread only spins, if there is a processor for every thread.
const SPIN: Duration = Duration::from_millis(100);
/// Idle rounds that yield the processor.
const YIELDS: u32 = 200;
/// Idle rounds between two looks at connections without commands in flight, which find out that the target closed them.
const POLL_ROUNDS: u32 = 256;

/// A queue pair: its rings in memory, and its connection while there is one.
struct Pair {
    sq: SubmissionRing,
    cq: Cq,
    queue: Option<Box<Queue>>,
}

impl Pair {
    /// Posts a completion. Its place is reserved.
    fn post(&mut self, core: &Core, cid: u16, answer: Answer) {
        core.counters.commands.fetch_add(1, Ordering::Relaxed);
        if !answer.status.is_success() {
            core.counters.failed.fetch_add(1, Ordering::Relaxed);
        }
        self.cq.held -= 1;
        self.cq.post(self.sq.id(), self.sq.head(), cid, answer, false);
    }

    /// Posts the completions of commands that ended.
    fn finish(&mut self, core: &Core, finished: &mut Vec<Finished>) {
        if finished.is_empty() {
            return;
        }
        copy::publish();
        for f in finished.drain(..) {
            self.post(core, f.command.entry.cid(), Answer { status: f.status, result: f.result as u32 });
        }
    }

    /// Completes the commands in flight with a status, and drops the connection.
    fn detach(&mut self, core: &Core, status: Status) {
        let Some(mut queue) = self.queue.take() else { return };
        copy::publish();
        for command in queue.abandon() {
            self.post(core, command.entry.cid(), Answer { status, result: 0 });
        }
    }
}

pub(super) struct Service {
    core: Arc<Core>,
    index: usize,
    table: Arc<Snapshot>,
    pairs: Vec<Pair>,
    formats: KnownFormats,
    finished: Vec<Finished>,
    descriptors: Vec<(RawFd, bool)>,
    rounds: u32,
}

impl Service {
    pub(super) fn new(core: Arc<Core>, index: usize) -> Self {
        Self {
            table: core.shell.table.snapshot(),
            pairs: Vec::new(),
            formats: KnownFormats::default(),
            finished: Vec::new(),
            descriptors: Vec::new(),
            rounds: 0,
            core,
            index,
        }
    }

    /// Runs until the controller is closed.
    pub(super) fn run(mut self) {
        let core = self.core.clone();
        let processors = crate::processors::to_spin_on();
        // Kernels on CPU threads need the processors more than idle polling does.
        let may_spin = processors >= 4 && core.shell.mail.len() < processors;
        let spin = if may_spin { SPIN } else { Duration::ZERO };
        let _responsive = Responsive::enter();
        let mut idle = Idle::new(Pace { spin, yields: YIELDS, naps: NAPS });
        while !core.shell.stops() {
            if core.shell.mail[self.index].waits() {
                self.read_mail();
            }
            if core.shell.table.generation() != self.table.generation {
                self.refresh();
            }
            let flow = core.flow();
            let mut busy = false;
            self.rounds = self.rounds.wrapping_add(1);
            for i in 0..self.pairs.len() {
                busy |= self.fetch(i, flow);
                busy |= self.poll_connection(i);
            }
            if busy {
                idle.busy();
            } else if self.pairs.is_empty() {
                std::thread::park_timeout(LONG_NAP);
            } else {
                self.pause(idle.next());
            }
        }
    }

    fn pause(&mut self, pause: Pause) {
        let Pause::Nap(nap) = pause else { return pause.make(|_| {}) };
        self.descriptors.clear();
        self.descriptors.extend(self.pairs.iter().filter_map(|p| p.queue.as_ref().map(|q| q.descriptor())));
        match self.descriptors.is_empty() {
            true => std::thread::park_timeout(nap),
            false => idle::wait(&self.descriptors, nap),
        }
        // Whatever ended the sleep: the next round looks at all connections.
        self.rounds = 0;
    }

    /// Takes commands from a ring. Returns true if there were any.
    fn fetch(&mut self, index: usize, flow: Flow) -> bool {
        let core = &*self.core;
        let pair = &mut self.pairs[index];
        match (&pair.queue, flow) {
            (Some(_), _) | (None, Flow::Closed) => {}
            (None, _) => return false,
        }
        let there = pair.sq.available(core);
        // Memory that was mapped before the doorbell was written must be known before the commands run. The next round
        // has the new table.
        if there == 0 || core.shell.table.generation() != self.table.generation {
            return false;
        }
        let wanted = there.min(BATCH);
        let count = wanted.min(pair.cq.room(wanted, core));
        let memory = DriverMemory::new(&self.table, core.shell.mover);
        let mut taken = 0;
        while taken < count && pair.queue.as_ref().is_none_or(|q| q.has_room()) {
            let e = pair.sq.peek(0);
            pair.sq.consume();
            pair.cq.held += 1;
            taken += 1;
            let started = match &mut pair.queue {
                Some(queue) => start(queue, &e, &mut self.formats, core, &memory),
                None => Ok(Some(status::HOST_PATHING_ERROR.dnr())),
            };
            match started {
                Ok(None) => {}
                Ok(Some(status)) => pair.post(core, e.cid(), Answer { status, result: 0 }),
                Err(error) => {
                    pair.detach(core, status::HOST_PATHING_ERROR);
                    core.report(error);
                    break;
                }
            }
        }
        taken > 0
    }

    /// Sends and receives on a connection. Returns true if something moved.
    fn poll_connection(&mut self, index: usize) -> bool {
        let core = &*self.core;
        let pair = &mut self.pairs[index];
        let Some(queue) = &mut pair.queue else { return false };
        if !queue.is_busy() && !self.rounds.is_multiple_of(POLL_ROUNDS) && self.rounds > 1 {
            return false;
        }
        let memory = DriverMemory::new(&self.table, core.shell.mover);
        let mut moved = queue.progress(&memory, &mut self.finished);
        if let Some(status) = inaccessible(core, &self.finished) {
            let (peer, command) = (queue.peer(), "a command for its namespace".to_owned());
            moved = Err(FabricsError::Command { peer, command, status });
        }
        pair.finish(core, &mut self.finished);
        moved.unwrap_or_else(|error| {
            tracing::debug!(device = %core.shell.name, queue = pair.sq.id(), %error, "connection lost");
            pair.detach(core, status::HOST_PATHING_ERROR);
            core.report(error);
            true
        })
    }

    /// Switches to the current address table, and announces it. Commands in flight resolve their pages when their data
    /// moves, so nothing uses the old table.
    fn refresh(&mut self) {
        self.table = self.core.shell.table.snapshot();
        let table = &*self.table;
        let core = &*self.core;
        self.pairs.retain_mut(|p| {
            let whole = p.sq.resolve(table) && p.cq.resolve(table);
            if !whole {
                // Rings without memory can neither be processed nor report the error to the driver.
                tracing::error!(device = %core.shell.name, queue = p.sq.id(), "the memory of a queue was unmapped; the queue is dropped");
            }
            whole
        });
        self.core.shell.table.announce(self.index, self.table.generation);
    }

    fn read_mail(&mut self) {
        let core = self.core.clone();
        let messages = core.shell.mail[self.index].take();
        // The memory of new queues may have been mapped after the last refresh.
        self.refresh();
        for m in messages {
            match m {
                Message::Add(sq, cq, queue) => self.add(sq, cq, queue),
                Message::Attach(id, queue) => {
                    if let Some(p) = self.pairs.iter_mut().find(|p| p.sq.id() == id) {
                        p.queue = Some(queue);
                    }
                }
                Message::Detach(reply) => {
                    self.pairs.iter_mut().for_each(|p| p.detach(&core, status::HOST_PATHING_ERROR));
                    // The manager may have given up waiting.
                    let _ = reply.send(());
                }
                Message::Remove(id, reply) => {
                    if let Some(p) = self.pairs.iter_mut().find(|p| p.sq.id() == id) {
                        p.detach(&core, status::SQ_DELETION);
                    }
                    self.pairs.retain(|p| p.sq.id() != id);
                    let _ = reply.send(());
                }
                Message::Reset(reply) => {
                    self.pairs.clear();
                    let _ = reply.send(());
                }
                Message::Find(id, cid, reply) => {
                    let queue = self.pairs.iter_mut().find(|p| p.sq.id() == id).and_then(|p| p.queue.as_mut());
                    let _ = reply.send(queue.and_then(|q| q.commands().find(cid)));
                }
            }
        }
    }

    fn add(&mut self, sq: RingSetup, cq: RingSetup, queue: Box<Queue>) {
        match (SubmissionRing::new(sq, &self.table), Cq::new(cq, &self.table)) {
            (Some(sq), Some(cq)) => self.pairs.push(Pair { sq, cq, queue: Some(queue) }),
            _ => {
                tracing::error!(device = %self.core.shell.name, queue = sq.id, "the memory of a new queue was unmapped")
            }
        }
    }
}

/// Returns the status by which a command reports that the namespace is not accessible by this port.
fn inaccessible(core: &Core, finished: &[Finished]) -> Option<Status> {
    let namespace = core.namespace.load(Ordering::Relaxed);
    let of_access = |f: &&Finished| f.command.entry.nsid == namespace && AccessState::of_status(f.status).is_some();
    finished.iter().find(of_access).map(|f| f.status)
}

/// Starts a command. Returns the status if it ends at once.
fn start(
    queue: &mut Queue,
    e: &SqEntry,
    formats: &mut KnownFormats,
    core: &Core,
    memory: &DriverMemory<'_>,
) -> Result<Option<Status>, FabricsError> {
    let (direction, bytes) = match formats.transfer(e, &core.formats) {
        Ok(t) => t,
        Err(status) => return Ok(Some(status)),
    };
    if direction != Direction::None && core.limits.max_transfer_bytes.is_some_and(|most| u64::from(bytes) > most) {
        return Ok(Some(status::INVALID_FIELD.dnr()));
    }
    Ok(queue.submit(Command::new(*e, direction, bytes, Place::Prps), memory)?.err())
}

impl Drop for Service {
    fn drop(&mut self) {
        self.core.shell.table.retire(self.index);
    }
}
