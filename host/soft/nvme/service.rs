//! Service of some queues: polls their doorbells, executes the announced commands, posts the completions.
//!
//! A service has a thread. A thread that waits for a command executes rounds, too (`host/assist.rs`): a lock lets one thread at a time
//! do so. A round allocates nothing and does no atomic read-modify-write per command. Rare events (new queues, changed
//! mappings, faults) are checked once per round, by one shared word each.

use super::backend::{Finished, Ring, Store};
use super::config::FileIo;
use super::copy;
use super::core::{Core, Message, halt};
use super::fault::{Damage, FaultAction, QueueFaults};
use super::held::{Held, HeldBack};
use super::io::{self, Context, Outcome};
use super::namespace::Span;
use super::prp::Extent;
use super::queue::{Answer, Cq, Sq};
use crate::assist::{self, Assistant, Assisted};
use crate::contention;
use crate::idle::{Idle, Pace};
use crate::nvme::ring_service::{RingSetup, Snapshot};
use crate::responsive::Responsive;
use crate::soft::model::Flow;
use crate::wire::nvme::{SqEntry, Status, status};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Largest number of commands taken from one queue before the next queue is polled.
const BATCH: u32 = 64;
/// As [`BATCH`], for a thread that waits for a command itself: it should soon look whether that has ended.
const ASSIST_BATCH: u32 = 16;
/// As [`BATCH`], if a model of a drive times the commands: completions wait while a batch is executed. A batch also ends when it has
/// moved this number of bytes.
const TIMED_BATCH: u32 = 8;
const TIMED_BYTES: u64 = 64 << 10;
/// Time after which a completion is late, in nanoseconds.
const LATE: u64 = 5_000;
/// Rounds after the last command in which the thread of a model expects the next one: a host that has got a completion submits again.
const QUIET_ROUNDS: u32 = 64;
/// Commands between the one that is executed and the one whose blocks are prefetched, if commands are small. A block in a mapped file
/// costs a walk of page tables and a read of memory, which take longer than such a command. While a larger block is copied, the next
/// one arrives.
const AHEAD: u32 = 4;
/// Number of completions that share one store fence.
const GROUP: usize = 8;
/// Shortest and longest sleep of a thread with queues. If all sleeps were short, those of a few threads would keep a
/// processor busy.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];
/// Longest sleep of a thread without queues. Messages wake it.
const LONG_NAP: Duration = Duration::from_millis(100);
/// Time that an idle thread only spins, if there is a processor for every thread. Programs pause between runs, and a
/// sleep makes the next run slow: on a virtual machine, a processor that was given back can take milliseconds to
/// return.
const SPIN: Duration = Duration::from_secs(10);
/// Idle rounds that yield the processor.
const YIELDS: u32 = 1_000;

fn pace(core: &Core) -> Pace {
    let processors = crate::processors::to_spin_on();
    // Kernels on CPU threads need the processors more than idle polling does.
    let may_spin = processors >= 4 && core.shell.mail.len() < processors;
    Pace { spin: if may_spin { SPIN } else { Duration::ZERO }, yields: YIELDS, naps: NAPS }
}

/// Completions of a batch that are not stored yet.
struct Group {
    entries: [(u16, Status); GROUP],
    count: usize,
}

impl Group {
    #[inline]
    fn add(&mut self, cid: u16, status: Status) -> bool {
        self.entries[self.count] = (cid, status);
        self.count += 1;
        self.count == GROUP
    }

    /// Stores the completions after their data.
    #[inline]
    fn post(&mut self, sq: &Sq, cq: &mut Cq, wrote: &mut bool) {
        if std::mem::take(wrote) {
            copy::publish();
        }
        for (cid, status) in &self.entries[..self.count] {
            cq.post(sq.id(), sq.head(), *cid, Answer { status: *status, result: 0 }, false);
        }
        self.count = 0;
    }
}

/// A service, and what several threads use of it. Threads that assist keep it for a while: the rest of the controller is in the
/// service alone, and ends with it.
pub(super) struct Shared {
    index: usize,
    doorbells: Range<usize>,
    /// Bytes of doorbells of a queue pair, and number of services.
    pair_bytes: usize,
    services: usize,
    /// `None` once the controller has stopped.
    service: Mutex<Option<Service>>,
    /// Number of rounds of other threads that found work.
    assisted: AtomicU64,
    /// True if other threads may execute commands. Commands in an io_uring end with the thread that submitted them.
    is_assisted: bool,
}

/// Result of a round.
struct Round {
    commands: usize,
    /// True if the service has queues, or completions to deliver.
    watches: bool,
    /// Time at which the next held completion is due, in nanoseconds since the start of the controller.
    due: Option<u64>,
    /// True if the thread has to be awake when that completion is due, and when the next command comes.
    is_timed: bool,
}

impl Shared {
    pub(super) fn new(core: Arc<Core>, index: usize) -> Self {
        let window = core.shell.doorbells.window();
        let doorbells = window.map_or(0..0, |w| w.base.addr().get()..w.base.addr().get() + w.bytes);
        let (pair_bytes, services) = (8 << core.config.doorbell_stride, core.shell.mail.len());
        let service = Service::new(core, index);
        let is_assisted = service.ring.is_none();
        Self {
            index,
            doorbells,
            pair_bytes,
            services,
            service: Mutex::new(Some(service)),
            assisted: AtomicU64::new(0),
            is_assisted,
        }
    }

    /// Runs the service's thread until the controller stops.
    pub(super) fn run(&self, core: &Core) {
        let _responsive = Responsive::enter();
        let mut idle = Idle::new(pace(core));
        let (processors, contention) = (crate::processors::to_spin_on(), contention::of_process());
        let mut assisted = 0;
        while !core.shell.stops() {
            // Kernels keep all processors busy, or share them with other programs, and execute the commands that they wait for. This
            // thread would take a processor from them, and then only execute what they do next.
            let shares = contention.holds();
            let crowded = self.is_assisted && Assistant::count() >= if shares { 1 } else { processors };
            let before = std::mem::replace(&mut assisted, self.assisted.load(Ordering::Relaxed));
            if crowded && (shares || before != assisted) && !self.is_called(core) {
                std::thread::park_timeout(NAPS[1]);
                // Kernels may wait for nothing, and execute nothing then.
                if assisted != self.assisted.load(Ordering::Relaxed) {
                    continue;
                }
            }
            // Another thread that has the lock executes commands, or reads the messages.
            let round = self.service.try_lock().and_then(|mut service| service.as_mut().map(|s| s.round(BATCH)));
            match round {
                Some(Round { commands: 1.., .. }) => idle.busy(),
                Some(Round { watches: false, .. }) => std::thread::park_timeout(LONG_NAP),
                _ => {
                    // The thread of another service may be waiting for its processor.
                    if idle.is_contended() && assist::assist() > 0 {
                        idle.busy();
                        continue;
                    }
                    let due = round.as_ref().and_then(|r| r.due);
                    let nap = |nap: Duration| {
                        let until_due = |due: u64| Duration::from_nanos(due.saturating_sub(core.now()));
                        std::thread::park_timeout(due.map_or(nap, |due| until_due(due).min(nap)));
                    };
                    let is_timed = round.is_some_and(|r| r.is_timed);
                    let pause = if is_timed { idle.next_awake() } else { idle.next() };
                    pause.make(nap);
                }
            }
        }
        self.end();
    }

    /// Waits until the controller stops.
    #[cfg(test)]
    pub(super) fn stand_by(&self, core: &Core) {
        while !core.shell.stops() {
            std::thread::park_timeout(LONG_NAP);
        }
        self.end();
    }

    /// Waits for commands in flight: the kernel must not write to memory that is about to be freed.
    pub(super) fn end(&self) {
        drop(self.service.lock().take());
    }

    /// Returns true if there is a message, or a new table.
    fn is_called(&self, core: &Core) -> bool {
        core.shell.mail[self.index].waits() || core.shell.table.is_stale(self.index)
    }
}

impl Assisted for Shared {
    fn assist(&self) -> usize {
        if !self.is_assisted {
            return 0;
        }
        let Some(mut service) = self.service.try_lock() else { return 0 };
        let Some(service) = service.as_mut().filter(|s| !s.core.shell.stops()) else { return 0 };
        let done = service.round(ASSIST_BATCH).commands;
        if done > 0 {
            self.assisted.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    fn has_doorbell(&self, address: usize) -> bool {
        let queue = address.wrapping_sub(self.doorbells.start) / self.pair_bytes;
        self.doorbells.contains(&address) && queue > 0 && (queue - 1) % self.services == self.index
    }
}

struct Service {
    core: Arc<Core>,
    index: usize,
    table: Arc<Snapshot>,
    sqs: Vec<Sq>,
    cqs: Vec<Cq>,
    extents: Vec<Extent>,
    vectors: Vec<libc::iovec>,
    ring: Option<Ring>,
    held: HeldBack,
    /// Index of each submission queue in the list by its identifier; [`NO_QUEUE`] for those of other threads.
    places: Vec<u16>,
    /// Rounds without a command.
    quiet: u32,
    /// Start of the last round of a modelled drive, in nanoseconds since the start of the controller, and half of the time between
    /// it and the one before: that long ago commands came on average which a round finds.
    looked: u64,
    unseen: u64,
    /// Completions of a model since they were last added to those of the controller, and those of them that were late.
    timed: u64,
    late: u64,
}

/// Place of a queue that a thread does not have.
const NO_QUEUE: u16 = u16::MAX;

// SAFETY: the vectors and extents are plain addresses, which only the thread that has the lock uses.
unsafe impl Send for Service {}

impl Service {
    fn new(core: Arc<Core>, index: usize) -> Self {
        let wants_ring = core.namespaces.iter().any(|n| matches!(&n.store, Store::File(f) if f.wants_ring()));
        let ring = wants_ring.then(Ring::new).and_then(|r| {
            r.inspect_err(
                |e| tracing::warn!(device = %core.shell.name, "thread {index} cannot use {:?}: {e}", FileIo::Uring),
            )
            .ok()
        });
        Self {
            table: core.shell.table.snapshot(),
            sqs: Vec::new(),
            cqs: Vec::new(),
            extents: Vec::with_capacity(core.config.max_transfer_bytes as usize / 4096 + 2),
            vectors: Vec::new(),
            ring,
            held: HeldBack::default(),
            places: vec![NO_QUEUE; usize::from(core.config.max_queue_pairs) + 1],
            quiet: QUIET_ROUNDS,
            looked: 0,
            unseen: 0,
            timed: 0,
            late: 0,
            core,
            index,
        }
    }

    /// Reads messages, executes at most `batch` commands of each queue, and delivers held completions.
    fn round(&mut self, batch: u32) -> Round {
        if self.core.shell.mail[self.index].waits() {
            self.read_mail();
        }
        if self.core.shell.table.generation() != self.table.generation {
            self.refresh();
        }
        if self.core.timing.is_some() {
            let now = self.core.now();
            self.unseen = now.saturating_sub(self.looked).min(LATE) / 2;
            self.looked = now;
        }
        let mut commands = 0;
        if self.core.halted() == 0 {
            for i in 0..self.sqs.len() {
                let taken = self.serve(i, batch);
                commands += taken;
                if taken > 0 && self.core.timing.is_some() {
                    commands += self.deliver();
                }
            }
        }
        commands += self.reap() + self.deliver();
        let waits = !self.held.is_empty();
        self.quiet = if commands > 0 { 0 } else { self.quiet.saturating_add(1) };
        let is_timed = self.core.timing.is_some() && (waits || self.quiet < QUIET_ROUNDS);
        Round { commands, watches: waits || !self.sqs.is_empty(), due: self.held.due(), is_timed }
    }

    /// Executes at most `batch` commands of one queue. Returns their number.
    fn serve(&mut self, index: usize, batch: u32) -> usize {
        let core = &*self.core;
        let sq = &mut self.sqs[index];
        let available = sq.available(core);
        // Memory that was mapped before the doorbell was written must be known before the commands run. The next round
        // has the new table.
        if available == 0 || core.shell.table.generation() != self.table.generation {
            return 0;
        }
        let cq = &mut self.cqs[sq.cq];
        let timing = core.timing.as_ref();
        let wanted = available.min(if timing.is_some() { batch.min(TIMED_BATCH) } else { batch });
        let mut count = wanted.min(cq.room(wanted, core));
        if let Some(r) = &self.ring {
            count = count.min(r.room() as u32);
        }
        if count == 0 {
            return 0;
        }
        let sqid = sq.id();
        let mut counters = std::mem::take(&mut sq.counters);
        let mut hints = std::mem::replace(&mut sq.hints, super::prp::Hints::none());
        let mut context = Context {
            core,
            table: &self.table,
            page_shift: core.page_shift.load(Ordering::Relaxed),
            hints: &mut hints,
            counters: &mut counters,
            extents: &mut self.extents,
            vectors: &mut self.vectors,
            ring: self.ring.as_mut(),
            sqid,
            wrote: false,
            damage: Damage::default(),
            due: 0,
        };
        let arrived = if timing.is_some() { core.now().saturating_sub(self.unseen) } else { 0 };
        let mut moved = 0;
        let mut group = Group { entries: [(0, status::SUCCESS); GROUP], count: 0 };
        // Commands of one queue are alike, so the first one decides.
        let ahead = if io::is_small(core, &sq.peek(0)) { AHEAD } else { 1 };
        for near in 1..ahead.min(count) {
            io::prefetch(core, &sq.peek(near));
        }
        let mut taken = 0;
        while taken < count && moved < TIMED_BYTES {
            let e = sq.peek(0);
            if taken + ahead < count {
                io::prefetch(core, &sq.peek(ahead));
            }
            sq.consume();
            taken += 1;
            context.counters.command();
            if let Some(timing) = timing {
                let command = io::modelled(core, &e);
                let completion = command.map_or(arrived, |command| timing.completion(&mut sq.flow, arrived, &command));
                context.due = completion.saturating_sub(core.path_ns);
                moved += command.map_or(0, |command| command.bytes);
            }
            let outcome = match (core.faulty, &mut sq.faults) {
                (true, Some(f)) => match f.fetch(&core.config.faults, &core.faults, &e) {
                    FaultAction::Run(damage) => {
                        core.shrink_if_due();
                        context.damage = damage;
                        io::execute(&mut context, &e)
                    }
                    FaultAction::Fail(status) => Outcome::Done(status),
                    FaultAction::Fatal => {
                        core.fatal("fault plan");
                        break;
                    }
                    FaultAction::Disappear => {
                        core.disappear();
                        break;
                    }
                },
                _ => io::execute(&mut context, &e),
            };
            match outcome {
                Outcome::InFlight => cq.held += 1,
                Outcome::Done(status) => {
                    if !status.is_success() {
                        context.counters.error();
                        core.errors.lock().command(sqid, &e, status);
                    }
                    if core.faulty {
                        cq.held += 1;
                        hold(&mut self.held, core, sq, cq, &e, status, context.due);
                    } else if timing.is_some() {
                        cq.held += 1;
                        self.held.push(timed(sqid, e.cid(), status, context.due));
                    } else if group.add(e.cid(), status) {
                        group.post(sq, cq, &mut context.wrote);
                    }
                }
            }
        }
        group.post(sq, cq, &mut context.wrote);
        sq.hints = hints;
        sq.counters = counters;
        core.counters[usize::from(sqid)].publish(&mut sq.counters);
        if let Some(r) = &mut self.ring {
            r.submit();
        }
        taken as usize
    }

    /// Completes commands whose system calls have ended. Returns their number.
    fn reap(&mut self) -> usize {
        let Some(ring) = &mut self.ring else { return 0 };
        if ring.in_flight() == 0 {
            return 0;
        }
        // Submits requests that were queued while the kernel was busy.
        ring.submit();
        let core = &*self.core;
        let mut count = 0;
        loop {
            let finish = |r: &mut super::backend::Request, done: usize| {
                let Store::File(file) = &core.namespaces[r.namespace].store else { return Ok(()) };
                let offset = r.offset + done as u64;
                // SAFETY: the vectors still name the memory given to `push`, which stays valid until the request is
                // reaped.
                unsafe {
                    match r.direction {
                        super::backend::Direction::Write { durable } => file.write(&mut r.vectors, offset, durable),
                        _ => file.read(&mut r.vectors, offset),
                    }
                }
            };
            let Some(Finished { request, result }) = ring.reap(finish) else { break };
            count += 1;
            let ns = &core.namespaces[request.namespace];
            let span = Span {
                slba: request.offset >> ns.block_shift,
                blocks: (request.bytes >> ns.block_shift) as u64,
                offset: request.offset,
                bytes: request.bytes,
            };
            let status = io::finished(ns, request.direction, &span, &result).err().unwrap_or(status::SUCCESS);
            let queue = self.sqs.iter_mut().find(|q| q.id() == request.sqid);
            if let Some(sq) = queue {
                let cq = &mut self.cqs[sq.cq];
                if !status.is_success() {
                    sq.counters.error();
                    core.errors.lock().command(request.sqid, &request.entry, status);
                }
                if core.faulty {
                    hold(&mut self.held, core, sq, cq, &request.entry, status, request.due);
                } else if core.timing.is_some() {
                    self.held.push(timed(request.sqid, request.cid, status, request.due));
                } else {
                    cq.held -= 1;
                    if core.halted() & (halt::FATAL | halt::GONE) == 0 {
                        copy::publish();
                        cq.post(request.sqid, sq.head(), request.cid, Answer { status, result: 0 }, false);
                    }
                }
            }
            ring.recycle(request.vectors);
        }
        count
    }

    /// Posts the held completions that are due. Returns their number.
    fn deliver(&mut self) -> usize {
        if self.held.is_empty() {
            return 0;
        }
        // A completion is posted at the look that is nearer to its time on average: this one or the next.
        let now = self.core.now() + self.unseen;
        let mut count = 0;
        let mut waiting = Vec::new();
        while let Some(h) = self.held.pop(now) {
            if self.post_held(&h) {
                count += 1;
                self.late += u64::from(now - h.due > LATE);
            } else {
                waiting.push(h);
            }
        }
        waiting.into_iter().for_each(|h| self.held.put_back(h));
        self.timed += count as u64;
        count
    }

    /// Posts a held completion before its time: as it is, or as aborted if a model says that the command takes longer.
    fn post_early(&mut self, h: &Held, aborted: Status) {
        let is_due = self.core.timing.is_none() || h.due <= self.core.now();
        self.post_held(&Held { status: if is_due { h.status } else { aborted.0 }, ..*h });
    }

    /// Posts a held completion. Returns false if there is no place for it yet.
    fn post_held(&mut self, h: &Held) -> bool {
        let Some(sq) = self.sqs.get(usize::from(self.places[usize::from(h.sqid)])) else { return true };
        let cq = &mut self.cqs[sq.cq];
        if h.again && cq.room(1, &*self.core) == 0 {
            return false;
        }
        cq.held -= u32::from(!h.again);
        if self.core.halted() & (halt::FATAL | halt::GONE) == 0 {
            copy::publish();
            let answer = Answer { status: Status(h.status), result: 0 };
            cq.post(h.sqid, sq.head(), h.cid, answer, h.wrong_phase);
        }
        true
    }

    /// Waits until no command of a queue is in flight in the kernel, or none of any queue for `None`.
    fn drain(&mut self, sqid: Option<u16>) {
        loop {
            let Some(ring) = &mut self.ring else { return };
            let left = sqid.map_or_else(|| ring.in_flight(), |q| ring.in_flight_of(q));
            if left == 0 {
                return;
            }
            ring.wait();
            self.reap();
        }
    }

    /// Switches to the current address table, and announces it once nothing uses the old one.
    fn refresh(&mut self) {
        let table = self.core.shell.table.snapshot();
        if table.unmapped != self.table.unmapped {
            self.drain(None);
        }
        self.table = table;
        let table = &*self.table;
        let mut whole = true;
        for q in &mut self.sqs {
            whole &= q.resolve(table);
        }
        for q in &mut self.cqs {
            whole &= q.resolve(table);
        }
        if !whole {
            // Rings without memory can neither be processed nor report the error to the driver.
            self.core.fatal("the memory of a queue was unmapped");
            self.forget(|_| true);
        }
        self.core.shell.table.announce(self.index, self.table.generation);
    }

    /// Drops the queues whose completion queue `which` selects.
    fn forget(&mut self, which: impl Fn(u16) -> bool) {
        self.sqs.retain(|q| !which(q.cqid));
        self.cqs.retain(|q| !which(q.id()));
        self.relink();
    }

    /// Updates the indices of completion queues after their list has changed. Drops submission queues and held
    /// completions without a queue.
    fn relink(&mut self) {
        let cqs = &self.cqs;
        self.sqs.retain_mut(|q| {
            let at = cqs.iter().position(|c| c.id() == q.cqid);
            q.cq = at.unwrap_or_default();
            at.is_some()
        });
        self.places.fill(NO_QUEUE);
        for (place, sq) in self.sqs.iter().enumerate() {
            self.places[usize::from(sq.id())] = place as u16;
        }
        let places = &self.places;
        self.held.retain(|h| places[usize::from(h.sqid)] != NO_QUEUE);
    }

    fn read_mail(&mut self) {
        let core = self.core.clone();
        let messages = core.shell.mail[self.index].take();
        // The memory of new queues may have been mapped after the last refresh.
        self.refresh();
        for m in messages {
            match m {
                Message::AddCq(setup) => match Cq::new(setup, &self.table) {
                    Some(q) => self.cqs.push(q),
                    None => core.fatal("the memory of a new completion queue was unmapped"),
                },
                Message::AddSq(setup, cqid) => self.add_sq(setup, cqid),
                Message::RemoveSq(id, reply) => {
                    self.drain(Some(id));
                    for h in self.held.take_all(|h| h.sqid == id) {
                        self.post_early(&h, status::SQ_DELETION);
                    }
                    self.sqs.retain(|q| q.id() != id);
                    self.relink();
                    answer(&reply, ());
                }
                Message::RemoveCq(id, reply) => {
                    self.forget(|q| q == id);
                    answer(&reply, ());
                }
                Message::Abort(sqid, cid, reply) => {
                    let found = self.held.take(|h| h.sqid == sqid && h.cid == cid && !h.again);
                    if let Some(h) = &found {
                        self.post_held(&Held { status: status::ABORT_REQUESTED.0, ..*h });
                    }
                    answer(&reply, found.is_some());
                }
                Message::Reset(reply) => {
                    self.drain(None);
                    self.forget(|_| true);
                    answer(&reply, ());
                }
                Message::Quiesce(reply) => {
                    self.drain(None);
                    for h in self.held.take_all(|_| true) {
                        self.post_early(&h, status::ABORT_REQUESTED);
                    }
                    answer(&reply, ());
                }
            }
        }
    }

    fn add_sq(&mut self, setup: RingSetup, cqid: u16) {
        let faults = self.core.faulty.then(|| QueueFaults::new(&self.core.config.faults, setup.id));
        let flow = Flow::new(self.core.config.faults.seed, setup.id);
        match Sq::new(setup, cqid, faults, flow, &self.table) {
            Some(q) => self.sqs.push(q),
            None => self.core.fatal("the memory of a new submission queue was unmapped"),
        }
        self.relink();
    }
}

/// Returns the completion of a command whose time a model has computed.
fn timed(sqid: u16, cid: u16, status: Status, due: u64) -> Held {
    Held { due, order: 0, sqid, cid, status: status.0, wrong_phase: false, again: false }
}

/// Holds a completion back as the fault plan says, and until the time of the model, or drops it.
fn hold(held: &mut HeldBack, core: &Core, sq: &mut Sq, cq: &mut Cq, e: &SqEntry, status: Status, due: u64) {
    let sqid = sq.id();
    let delivery = sq.faults.as_mut().map(|f| f.complete(&core.config.faults, &core.faults, e)).unwrap_or_default();
    if delivery.lost {
        cq.held -= 1;
        return;
    }
    let due = due.max(core.now()) + delivery.delay.as_nanos() as u64;
    let once = |again| Held { wrong_phase: delivery.wrong_phase, again, ..timed(sqid, e.cid(), status, due) };
    held.push(once(false));
    if delivery.repeated {
        held.push(once(true));
    }
}

/// Replies to the manager, which may have given up waiting.
fn answer<T>(reply: &std::sync::mpsc::Sender<T>, value: T) {
    let _ = reply.send(value);
}

impl Drop for Service {
    fn drop(&mut self) {
        // The kernel must not write to memory that is about to be freed.
        self.drain(None);
        self.core.timed.fetch_add(self.timed, Ordering::Relaxed);
        self.core.late.fetch_add(self.late, Ordering::Relaxed);
        self.core.shell.table.retire(self.index);
    }
}
