//! Requester side of a queue pair: fetches requests from the ring, sends their commands in order, and completes them.

use super::core::{Core, of_this_process};
use super::endpoint::PairAddress;
use super::fault::{FaultAction, QueueFaults};
use super::frame::{Answer, Frame};
use super::job::{Job, RequestError};
use super::link::Link;
use super::pair::PairShared;
use super::wire::Cut;
use crate::rdma::RdmaError;
use crate::rdma::ring_service::{Fetched, RingService};
use crate::wire::mlx5::{Failure, Syndrome, VendorSyndrome};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Most requests that are fetched and not complete.
const MOST_JOBS: usize = 256;
/// Most commands of one queue pair in flight, and most bytes of their data.
const WINDOW: usize = 256;
const WINDOW_BYTES: usize = 4 << 20;
/// Most bytes that wait for space in a socket.
const MOST_BACKLOG: usize = 4 << 20;
/// Most commands of one queue pair before the next queue pair is processed.
const BATCH: usize = 64;
/// Pause before a message is repeated for which the peer had posted no receive.
const NOT_READY_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause before a command is repeated, as a multiple of the first pause.
const LONGEST_RESEND: u32 = 8;
/// Interval at which an idle queue pair checks a peer of the same process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Multiple of [`Timeouts::retry`](super::Timeouts::retry) after which a request fails although the peer is alive,
/// because it does not respond on this queue pair. Data ahead of the request on a slow connection takes its time.
const DEADLINE: u32 = 10;

/// Route to the peer.
#[derive(Debug)]
pub(super) enum Route {
    Unconnected,
    /// Memory access within this process.
    Direct {
        core: Weak<Core>,
        pair: Weak<PairShared>,
        peer: PairAddress,
    },
    /// Commands through the link to the peer's adapter.
    Linked {
        peer: PairAddress,
    },
}

/// A command that was sent and has no response yet.
#[derive(Debug)]
struct OutstandingRequest {
    sequence: u64,
    frame: Vec<u8>,
    bytes: usize,
    /// True if its response is to be lost once.
    lose_answer: bool,
}

#[derive(Debug)]
pub(super) struct Requester {
    pub(super) shared: Arc<PairShared>,
    ring: RingService,
    nonce: u64,
    route: Route,
    faults: Option<QueueFaults>,
    jobs: VecDeque<Job>,
    /// Index of the first of `jobs` that has commands left to create.
    issuing: usize,
    sequence: u64,
    outstanding: VecDeque<OutstandingRequest>,
    under_way: usize,
    /// Generation of the connection on which all of `outstanding` were sent.
    generation: u64,
    /// Last time at which the peer made progress on this queue pair, or was first asked to.
    progress: Instant,
    resend_at: Option<Instant>,
    resends: u32,
    not_ready_since: Option<Instant>,
    /// True once the owner was notified of the ring's failure.
    told: bool,
    /// Time of the next check of a peer of this process, and the time since which that peer is dead.
    next_poll: Instant,
    dead_since: Option<Instant>,
}

impl Requester {
    pub(super) fn new(core: &Core, shared: Arc<PairShared>) -> Result<Self, RdmaError> {
        let mut ring = RingService::new(shared.memory.clone(), shared.number)?;
        ring.set_poison(core.config.poison);
        let faults =
            (!core.config.faults.faults.is_empty()).then(|| QueueFaults::new(&core.config.faults, shared.ordinal));
        let nonce = shared.state.lock().nonce;
        Ok(Self {
            ring,
            nonce,
            route: Route::Unconnected,
            faults,
            jobs: VecDeque::new(),
            issuing: 0,
            sequence: 0,
            outstanding: VecDeque::new(),
            under_way: 0,
            generation: 0,
            progress: Instant::now(),
            resend_at: None,
            resends: 0,
            not_ready_since: None,
            told: false,
            next_poll: Instant::now(),
            dead_since: None,
            shared,
        })
    }

    pub(super) fn connect(&mut self, route: Route) {
        self.nonce = self.shared.state.lock().nonce;
        self.route = route;
        self.generation = 0;
    }

    /// Returns to the initial state, and clears the queue pair's memory.
    pub(super) fn reset(&mut self) -> Result<(), RdmaError> {
        self.drop_jobs();
        self.route = Route::Unconnected;
        (self.told, self.dead_since) = (false, None);
        self.sequence = 0;
        self.shared.memory.clear()?;
        self.ring.reset();
        self.nonce = self.shared.state.lock().nonce;
        Ok(())
    }

    fn drop_jobs(&mut self) {
        self.jobs.clear();
        self.outstanding.clear();
        (self.issuing, self.under_way, self.resends) = (0, 0, 0);
        (self.resend_at, self.not_ready_since) = (None, None);
    }

    /// Returns the adapter that the queue pair reaches through a link.
    pub(super) fn link(&self) -> Option<u128> {
        match &self.route {
            Route::Linked { peer } => Some(peer.at.nic),
            _ => None,
        }
    }

    /// Returns true if the queue pair needs its connection. It also does while it has no requests, to notice the loss
    /// of the peer.
    pub(super) fn needs_link(&self) -> bool {
        !self.jobs.is_empty() || self.ring.failed().is_none()
    }

    /// Fails a queue pair without requests because its peer is gone.
    pub(super) fn lose(&mut self, why: &str) {
        if self.jobs.is_empty() && self.ring.failed().is_none() {
            let RequestError { failure, text } = RequestError::no_answer(why);
            let text = format!("{} (syndrome {:#04x}): {text}", failure.syndrome.name(), failure.syndrome.0);
            self.shared.failure.lock().get_or_insert(text);
            self.ring.fail(0, failure);
            self.tell();
        }
    }

    /// Notifies the owner of the ring's failure, once.
    fn tell(&mut self) {
        if !self.told
            && let Some(failure) = self.ring.failed()
        {
            *self.shared.fault.lock() = Some(failure);
            self.told = true;
            self.shared.state.lock().responder.flush();
        }
    }

    /// Detects the end of a peer in this process, as a link does for other peers.
    fn look_at_peer(&mut self, limit: Duration, now: Instant) {
        let Route::Direct { core: there, .. } = &self.route else { return };
        if now < self.next_poll {
            return;
        }
        self.next_poll = now + POLL_INTERVAL;
        if !there.upgrade().is_some_and(|there| there.is_dead()) {
            self.dead_since = None;
        } else if now.duration_since(*self.dead_since.get_or_insert(now)) >= limit {
            self.lose(&format!("the peer has been silent for {limit:.1?}"));
        }
    }

    /// Returns the next time at which the queue pair has work.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let due = self.jobs.front().filter(|j| j.complete && !j.waits()).and_then(|j| j.due);
        due.into_iter().chain(self.resend_at).min()
    }

    /// Advances all requests as far as possible now. Returns the number of steps done.
    pub(super) fn serve(
        &mut self,
        core: &Core,
        links: &mut HashMap<u128, Link>,
        scratch: &mut (Vec<u8>, Vec<u8>),
        now: Instant,
    ) -> usize {
        if matches!(self.route, Route::Unconnected) {
            return 0;
        }
        let done = self.advance(core, links, scratch, now);
        self.tell();
        done
    }

    fn advance(
        &mut self,
        core: &Core,
        links: &mut HashMap<u128, Link>,
        scratch: &mut (Vec<u8>, Vec<u8>),
        now: Instant,
    ) -> usize {
        if self.shared.memory.receives().is_some() && self.ring.failed().is_none() {
            let ended = self.shared.state.lock().responder.has_ended();
            if ended {
                self.shared.failure.lock().get_or_insert("a request of the peer, or a receive, has failed".to_owned());
                self.drop_jobs();
                self.ring.flush();
                return 1;
            }
        }
        let mut done = self.fetch(core);
        if self.jobs.is_empty() {
            self.look_at_peer(core.config.timeouts.retry, now);
            return done;
        }
        match self.link() {
            None => done += self.serve_directly(core, scratch, now),
            Some(nic) => {
                if let Some(link) = links.get_mut(&nic) {
                    done += self.send(core, link, &mut scratch.0, now);
                }
            }
        }
        done + self.retire(now)
    }

    fn fetch(&mut self, core: &Core) -> usize {
        let mut done = 0;
        while self.jobs.len() < MOST_JOBS && done < BATCH && !core.is_dead() {
            match self.ring.fetch() {
                Fetched::Nothing => break,
                Fetched::Flushed(n) => done += n,
                Fetched::Refused(posted, why) => {
                    let text = format!("block {:#x}: {why}", posted.index);
                    self.shared.failure.lock().get_or_insert(text);
                    done += 1;
                    break;
                }
                Fetched::Request(posted, wqe) => {
                    let action = match &mut self.faults {
                        None => FaultAction::default(),
                        Some(f) => f.look(&core.config.faults, posted.opcode),
                    };
                    if action.die {
                        tracing::warn!(nic = %format_args!("{:032x}", core.endpoint.nic), "stopped by its fault plan");
                        core.dead.store(true, Ordering::Relaxed);
                        break;
                    }
                    self.jobs.push_back(Job::new(posted, &wqe, &core.memory, action));
                    done += 1;
                }
            }
        }
        done
    }

    /// Completes finished requests, the oldest first.
    fn retire(&mut self, now: Instant) -> usize {
        let mut done = 0;
        while let Some(job) = self.jobs.front_mut() {
            if job.due.is_some_and(|due| due > now) {
                break;
            }
            if let Some(error) = job.error.take() {
                let (index, storm) = (job.posted.index, job.action.storm);
                self.fail(index, storm, &error);
                return done + 1;
            }
            if !job.complete || job.waits() {
                break;
            }
            match job.action.lose {
                true => self.ring.lose(job.posted.index),
                false => self.ring.complete(job.posted.index),
            }
            self.jobs.pop_front();
            self.issuing = self.issuing.saturating_sub(1);
            done += 1;
        }
        done
    }

    fn fail(&mut self, index: u64, storm: u32, error: &RequestError) {
        let RequestError { failure, text } = error;
        let text =
            format!("block {index:#x}: {} (syndrome {:#04x}): {text}", failure.syndrome.name(), failure.syndrome.0);
        tracing::debug!(pair = self.shared.number, "{text}");
        self.shared.failure.lock().get_or_insert(text);
        self.drop_jobs();
        self.ring.fail(index, *failure);
        self.ring.storm(storm);
    }

    /// Returns the next job with commands to create, if it may start.
    fn next_job(&mut self) -> Option<&mut Job> {
        while self.jobs.get(self.issuing).is_some_and(|j| j.complete && j.error.is_none()) {
            self.issuing += 1;
        }
        let first = self.issuing == 0;
        self.jobs.get_mut(self.issuing).filter(|j| j.error.is_none() && (first || !j.fenced))
    }

    /// Carries out requests on memory of this process.
    fn serve_directly(&mut self, core: &Core, scratch: &mut (Vec<u8>, Vec<u8>), now: Instant) -> usize {
        let Route::Direct { core: there, pair, peer } = &self.route else { return 0 };
        let (there, pair, nonce) = (there.upgrade(), pair.upgrade(), peer.nonce);
        let me = (core.endpoint.nic, self.shared.number, self.nonce);
        if self.resend_at.is_some_and(|at| at > now) {
            return 0;
        }
        self.resend_at = None;
        let mut done = 0;
        while done < BATCH {
            self.retire(now);
            if self.next_job().is_none() {
                break;
            }
            let (limit, not_ready) = (core.config.timeouts.retry, core.config.timeouts.not_ready);
            let (progress, not_ready_since) = (self.progress, self.not_ready_since);
            let Some(job) = self.jobs.get_mut(self.issuing) else { break };
            // A peer is gone if it has closed the queue pair or does not respond.
            let target = there.as_ref().zip(pair.as_ref()).filter(|(_, p)| !p.closed.load(Ordering::Acquire));
            let Some((there, pair)) = target else {
                job.error = Some(RequestError::no_answer("the peer has closed its queue pair"));
                break;
            };
            let flipped = job.action.flip.take().is_some();
            if std::mem::take(&mut job.action.drop) || std::mem::take(&mut job.action.cut) || flipped {
                // No frame is sent here, so the request is delayed for as long as a repetition would take.
                self.resend_at = Some(now + core.config.timeouts.resend);
                break;
            }
            if there.is_dead() {
                // The first check of a dead peer starts the clock.
                let since = *self.not_ready_since.get_or_insert(now);
                if now.duration_since(since) >= limit {
                    job.error = Some(RequestError::no_answer(format!("no answer within {limit:.1?}")));
                } else {
                    self.resend_at = Some(now + NOT_READY_PAUSE);
                }
                break;
            }
            let mut state = pair.state.lock();
            let known = state.nonce == nonce && state.peer.as_ref().is_none_or(|p| (p.at.nic, p.number, p.nonce) == me);
            if !known {
                job.error =
                    Some(RequestError::no_answer("the peer's queue pair was reset, or is connected with another"));
                break;
            }
            if !state.responder.failed
                && let Some(through) = job.write_through(&there.memory)
            {
                if let Err(error) = through {
                    job.error = Some(error);
                }
                done += 1;
                continue;
            }
            let (command, bytes) = match job.command(&mut scratch.0) {
                Ok(made) => made,
                Err(error) => {
                    job.error = Some(error);
                    break;
                }
            };
            let answer = state.responder.execute(&there.memory, &command, &mut scratch.1);
            drop(state);
            if answer == Answer::NotReady {
                job.take_back(bytes);
                let since = not_ready_since.unwrap_or(now);
                self.not_ready_since = Some(since);
                if now.duration_since(since) >= not_ready {
                    job.error = Some(no_receive(not_ready));
                } else {
                    self.resend_at = Some(now + NOT_READY_PAUSE);
                }
                break;
            }
            self.not_ready_since = None;
            if let Err(error) = job.answer(&answer) {
                job.error = Some(error);
            }
            self.progress = progress.max(now);
            done += 1;
        }
        done
    }

    /// Sends commands over a connection, as many as may be in flight.
    fn send(&mut self, core: &Core, link: &mut Link, scratch: &mut Vec<u8>, now: Instant) -> usize {
        if self.give_up(core, link, now) {
            return 1;
        }
        if !link.is_open() {
            return 0;
        }
        let mut done = 0;
        if link.generation != self.generation || self.resend_at.is_some_and(|at| at <= now) {
            // After a reconnection, or without a response on this connection: repeats all, the oldest first.
            done += self.send_again(core, link, now);
        }
        let Route::Linked { peer } = &self.route else { return done };
        let (pair, nonce) = (peer.number, peer.nonce);
        let (from, from_nonce) = (self.shared.number, self.nonce);
        while done < BATCH && self.outstanding.len() < WINDOW && self.under_way < WINDOW_BYTES {
            let (sequence, answered) = (self.sequence, self.outstanding.front().map_or(self.sequence, |u| u.sequence));
            let Some(job) = self.next_job() else { break };
            let Some(wire) = link.wire.as_mut().filter(|w| w.backlog() < MOST_BACKLOG) else { break };
            let (command, bytes) = match job.command(scratch) {
                Ok(made) => made,
                Err(error) => {
                    job.error = Some(error);
                    break;
                }
            };
            let frame = Frame::Request { pair, nonce, from, from_nonce, sequence, answered, command }.encode();
            let lose_answer = std::mem::take(&mut job.action.drop_answer);
            let (drop, cut) = (std::mem::take(&mut job.action.drop), std::mem::take(&mut job.action.cut));
            match job.action.flip.take() {
                _ if drop => {}
                Some(random) => wire.send_flipped(&frame, random),
                None => wire.send(&frame),
            }
            if let Some(random) = job.action.flip_answer.take() {
                wire.flip_next(random);
            }
            if self.outstanding.is_empty() {
                self.progress = now;
                self.resend_at = Some(now + core.config.timeouts.resend);
            }
            self.under_way += bytes;
            self.outstanding.push_back(OutstandingRequest { sequence, frame, bytes, lose_answer });
            self.sequence += 1;
            done += 1;
            if cut {
                // Some of the frames may have been sent.
                let _ = wire.pump();
                link.cut(&Cut::Fault, now);
                break;
            }
        }
        done
    }

    fn send_again(&mut self, core: &Core, link: &mut Link, now: Instant) -> usize {
        let Some(wire) = &mut link.wire else { return 0 };
        let anew = link.generation != self.generation;
        self.generation = link.generation;
        if self.outstanding.is_empty() {
            self.resend_at = None;
            return 0;
        }
        self.resends = if anew { 0 } else { (self.resends + 1).min(LONGEST_RESEND) };
        self.resend_at = Some(now + core.config.timeouts.resend * (1 << self.resends.min(LONGEST_RESEND.ilog2())));
        // Frames that wait for space in the socket will be sent anyway.
        if !anew && wire.backlog() > 0 {
            return 0;
        }
        for u in &self.outstanding {
            wire.send(&u.frame);
        }
        core.counters.retransmissions.fetch_add(self.outstanding.len() as u64, Ordering::Relaxed);
        self.outstanding.len()
    }

    /// Fails the oldest unfinished request if the peer has been silent for too long.
    fn give_up(&mut self, core: &Core, link: &Link, now: Instant) -> bool {
        let t = &core.config.timeouts;
        let Some(job) = self.jobs.iter_mut().find(|j| j.error.is_none() && (j.waits() || !j.complete)) else {
            return false;
        };
        if self.outstanding.is_empty() && (link.is_open() || self.resend_at.is_none()) {
            // Nothing was sent, or nothing could be: the clock starts now.
            self.progress = now;
            self.resend_at = (!link.is_open()).then(|| now + t.retry);
        }
        let silent = now.duration_since(self.progress.max(link.heard));
        let stuck = now.duration_since(self.progress);
        if silent < t.retry && stuck < t.retry * DEADLINE && !link.denied {
            return false;
        }
        let name = link.name();
        let text = if silent >= t.retry || link.denied {
            format!("{name} has not answered for {:.1?}: {}", silent.max(Duration::from_millis(1)), link.why)
        } else {
            format!("{name} is connected, but has not answered on this queue pair for {stuck:.1?}")
        };
        job.error = Some(RequestError::no_answer(text));
        // Responses that arrive later are ignored.
        self.outstanding.clear();
        true
    }

    /// Processes a response that arrived over the link.
    pub(super) fn answered(&mut self, core: &Core, nonce: u64, sequence: u64, answer: &Answer<'_>, now: Instant) {
        let Some(first) = self.outstanding.front_mut() else { return };
        // Ignores a response from before a reset, and a repeated one.
        if nonce != self.nonce || first.sequence != sequence {
            return;
        }
        if std::mem::take(&mut first.lose_answer) {
            return;
        }
        self.progress = now;
        if *answer == Answer::NotReady {
            let since = *self.not_ready_since.get_or_insert(now);
            if now.duration_since(since) < core.config.timeouts.not_ready {
                self.resend_at = Some(now + NOT_READY_PAUSE);
                return;
            }
        } else {
            self.not_ready_since = None;
        }
        let Some(gone) = self.outstanding.pop_front() else { return };
        self.under_way -= gone.bytes.min(self.under_way);
        self.resends = 0;
        self.resend_at = (!self.outstanding.is_empty()).then(|| now + core.config.timeouts.resend);
        let Some(job) = self.jobs.iter_mut().find(|j| j.waits()) else { return };
        let result = match answer {
            Answer::NotReady => Err(no_receive(core.config.timeouts.not_ready)),
            other => job.answer(other),
        };
        if let Err(error) = result {
            job.error.get_or_insert(error);
        }
    }
}

fn no_receive(limit: Duration) -> RequestError {
    let failure = Failure::new(Syndrome::RNR_RETRY_EXCEEDED, VendorSyndrome::default());
    RequestError::new(failure, format!("the peer has posted no receive within {limit:.1?}"))
}

impl Route {
    /// Returns the route to a peer: direct if the peer is in this process and the configuration allows that.
    pub(super) fn find(core: &Core, peer: PairAddress) -> Result<Self, String> {
        let near = if core.config.direct { of_this_process(peer.at.nic) } else { None };
        match near {
            None => Ok(Self::Linked { peer }),
            Some(there) => {
                let pair = there.pair(peer.number).filter(|p| p.state.lock().nonce == peer.nonce);
                let pair = pair.ok_or("it has closed that queue pair, or reset it")?;
                Ok(Self::Direct { core: Arc::downgrade(&there), pair: Arc::downgrade(&pair), peer })
            }
        }
    }
}
