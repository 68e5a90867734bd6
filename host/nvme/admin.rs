//! The admin queue. It runs one command at a time, each with a deadline.
//!
//! A command that timed out keeps its identifier and its data page until its late completion arrives. So neither can be
//! confused with those of a later command.

use super::error::{admin_name, gone, no_longer_ready, refused};
use super::{Notice, NvmeError, Port};
use crate::idle::{Idle, Pace, Pause};
use crate::memory::DmaRegion;
use crate::refused::Interface;
use crate::wire::nvme::log::AsyncEvent;
use crate::wire::nvme::{CqEntry, SqEntry, admin, csts, register, status};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// Entries of the admin queues. 64 submission entries fill one page.
pub(super) const ADMIN_DEPTH: u16 = 64;
const PAGE: usize = 4096;
/// Pages for the data of admin commands. More than one, because a command that timed out keeps its page.
const DATA_PAGES: usize = 8;
const SQ_OFFSET: usize = 0;
const CQ_OFFSET: usize = PAGE;
const DATA_OFFSET: usize = 2 * PAGE;
/// Bytes of the admin queues and their data pages.
pub(super) const ADMIN_BYTES: usize = DATA_OFFSET + DATA_PAGES * PAGE;

const _: () = assert!(ADMIN_DEPTH as usize * size_of::<SqEntry>() <= PAGE);

/// Reads a completion entry that the device may write at any time. Reads the word with phase and identifier first.
///
/// # Safety
/// `at` must point to 16 readable bytes, aligned to 4.
pub(super) unsafe fn load_completion(at: NonNull<u8>) -> CqEntry {
    let p = at.as_ptr().cast::<u32>();
    // SAFETY: the caller's promise; atomic loads, because the device may write to the entry.
    let status = unsafe { AtomicU32::from_ptr(p.add(3)) }.load(Ordering::Acquire);
    // SAFETY: the caller promises 16 readable bytes, aligned to 4. The device wrote the other words before the last
    // one, which was loaded with acquire order.
    let word = |i| unsafe { AtomicU32::from_ptr(p.add(i)) }.load(Ordering::Relaxed);
    CqEntry { result: word(0), dw1: word(1), sq: word(2), status }
}

/// Writes a submission entry. The release of the doorbell write makes it visible to the device.
///
/// # Safety
/// `at` must point to 64 writable bytes, aligned to 4, that the device does not read yet.
pub(super) unsafe fn store_command(at: NonNull<u8>, entry: &SqEntry) {
    let words: [u32; 16] = bytemuck::must_cast(*entry);
    for (i, w) in words.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(at.as_ptr().cast::<u32>().add(i)) }.store(*w, Ordering::Relaxed);
    }
    fence(Ordering::SeqCst);
}

/// Direction of a command's data page.
pub(super) enum Data<'a> {
    None,
    /// The controller writes the page. As much of it as fits is copied out.
    In(&'a mut [u8]),
}

#[derive(Debug)]
pub(super) struct AdminQueue {
    device: String,
    port: Arc<dyn Port>,
    memory: DmaRegion,
    host: NonNull<u8>,
    stride: u8,
    deadline: Duration,
    tail: u16,
    head: u16,
    sq_head: u16,
    phase: bool,
    next_cid: u16,
    free_pages: Vec<usize>,
    /// Commands that timed out, each with the data page that the controller may still write to.
    given_up: HashMap<u16, Option<usize>>,
    /// Asynchronous Event Requests in flight. `events_wanted` is how many there should be.
    event_requests: HashSet<u16>,
    events_wanted: usize,
    events: VecDeque<AsyncEvent>,
}

// SAFETY: `host` is the address of `memory`, which the queue owns; all access is by atomic words.
unsafe impl Send for AdminQueue {}

impl AdminQueue {
    /// Creates the queue in zeroed memory of [`ADMIN_BYTES`] bytes that the host can access.
    pub(super) fn new(
        device: String,
        port: Arc<dyn Port>,
        memory: DmaRegion,
        host: NonNull<u8>,
        stride: u8,
        deadline: Duration,
    ) -> Self {
        Self {
            device,
            port,
            memory,
            host,
            stride,
            deadline,
            tail: 0,
            head: 0,
            sq_head: 0,
            phase: true,
            next_cid: 0,
            free_pages: (0..DATA_PAGES).collect(),
            given_up: HashMap::new(),
            event_requests: HashSet::new(),
            events_wanted: 0,
            events: VecDeque::new(),
        }
    }

    /// Returns the device addresses of the submission ring and the completion ring.
    pub(super) fn addresses(memory: &DmaRegion) -> (u64, u64) {
        (memory.iova + SQ_OFFSET as u64, memory.iova + CQ_OFFSET as u64)
    }

    pub(super) fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Runs one command until its completion. `words` describes the command in error messages.
    pub(super) fn execute(&mut self, mut entry: SqEntry, data: Data<'_>, words: &str) -> Result<CqEntry, NvmeError> {
        self.reap()?;
        if !self.has_room() {
            return Err(self.stuck());
        }
        let page = match data {
            Data::None => None,
            Data::In(_) => Some(self.free_pages.pop().ok_or_else(|| self.stuck())?),
        };
        let cid = self.free_cid();
        entry.cdw0 = entry.cdw0 & 0xffff | u32::from(cid) << 16;
        if let Some(page) = page {
            let offset = DATA_OFFSET + page * PAGE;
            // SAFETY: the page lies within the queue's memory and no command uses it.
            unsafe { std::ptr::write_bytes(self.host.as_ptr().add(offset), 0, PAGE) };
            entry.prp1 = self.memory.iova + offset as u64;
        }
        let started = Instant::now();
        let outcome = self.submit(&entry).and_then(|()| self.wait(&entry, started, words));
        match outcome {
            Ok(done) => {
                if let (Some(page), Data::In(out)) = (page, data) {
                    let n = out.len().min(PAGE);
                    let offset = DATA_OFFSET + page * PAGE;
                    // SAFETY: the page lies within the queue's memory; after the completion the
                    // controller does not use it any more.
                    unsafe { std::ptr::copy_nonoverlapping(self.host.as_ptr().add(offset), out.as_mut_ptr(), n) };
                }
                self.free_pages.extend(page);
                if done.status().is_success() { Ok(done) } else { Err(self.failed(&entry, &done, words)) }
            }
            Err(e) => {
                self.given_up.insert(cid, page);
                Err(e)
            }
        }
    }

    /// Returns true if both rings have a free entry for another command.
    fn has_room(&self) -> bool {
        let outstanding = self.given_up.len() + self.event_requests.len();
        (self.tail + 1) % ADMIN_DEPTH != self.sq_head && outstanding + 1 < usize::from(ADMIN_DEPTH)
    }

    fn submit(&mut self, entry: &SqEntry) -> Result<(), NvmeError> {
        // SAFETY: the tail entry lies within the ring, and the controller has consumed its previous command.
        unsafe { store_command(self.host.add(SQ_OFFSET + usize::from(self.tail) * size_of::<SqEntry>()), entry) };
        self.tail = (self.tail + 1) % ADMIN_DEPTH;
        Ok(self.port.write32(register::sq_tail(0, self.stride), u32::from(self.tail))?)
    }

    fn wait(&mut self, entry: &SqEntry, started: Instant, words: &str) -> Result<CqEntry, NvmeError> {
        let (mut wait, mut looks) = (Wait::new(), false);
        loop {
            while let Some(done) = self.next()? {
                if done.cid() == entry.cid() {
                    return Ok(done);
                }
                self.late(&done)?;
            }
            let waited = started.elapsed();
            // Checks the registers once more when the deadline has passed.
            if looks || waited > self.deadline {
                let left = self.port.notice() == Some(Notice::Gone);
                let csts = if left { u32::MAX } else { self.port.read32(register::CSTS)? };
                if csts == u32::MAX {
                    return Err(gone(&self.device, "CSTS", csts));
                }
                if csts & csts::CFS != 0 {
                    let during = format!("during {}", named(entry, words));
                    return Err(NvmeError::Fatal { device: self.device.clone(), during, csts });
                }
                if csts & csts::RDY == 0 {
                    return Err(no_longer_ready(self.port.as_ref(), &self.device, csts));
                }
                if waited > self.deadline {
                    return Err(NvmeError::TimedOut {
                        device: self.device.clone(),
                        queue: 0,
                        command: named(entry, words),
                        opcode: entry.opcode(),
                        cid: entry.cid(),
                        waited,
                        csts,
                        next: "close the controller and open it again, which resets it",
                    });
                }
            }
            looks = wait.pause();
        }
    }

    /// Takes the completions of commands that no caller waits for.
    fn reap(&mut self) -> Result<(), NvmeError> {
        while let Some(done) = self.next()? {
            self.late(&done)?;
        }
        Ok(())
    }

    // --- asynchronous events -----------------------------------------------------------------------------------------

    /// Keeps `count` Asynchronous Event Requests in flight from now on.
    pub(super) fn keep_event_requests(&mut self, count: usize) -> Result<(), NvmeError> {
        self.events_wanted = count;
        self.request_events()
    }

    pub(super) fn watches_events(&self) -> bool {
        self.events_wanted > 0
    }

    pub(super) fn request_events(&mut self) -> Result<(), NvmeError> {
        while self.event_requests.len() < self.events_wanted && self.has_room() {
            let cid = self.free_cid();
            self.event_requests.insert(cid);
            self.submit(&SqEntry::new(admin::ASYNC_EVENT_REQUEST, cid, 0))?;
        }
        Ok(())
    }

    /// Returns the reported events, oldest first, and submits completed event requests again.
    pub(super) fn take_events(&mut self) -> Result<Vec<AsyncEvent>, NvmeError> {
        self.reap()?;
        self.request_events()?;
        Ok(self.events.drain(..).collect())
    }

    /// Takes over state of the queue before a reset: events that no caller has taken, and the wanted number of event
    /// requests. The next [`Self::request_events`] submits the requests.
    pub(super) fn inherit_events(&mut self, before: &mut Self) {
        self.events = std::mem::take(&mut before.events);
        self.events_wanted = before.events_wanted;
    }

    fn event(&mut self, done: &CqEntry) {
        if done.status().is_success() {
            self.events.push_back(AsyncEvent(done.result));
            return;
        }
        // The controller accepts no more requests than are in flight now, or none at all.
        tracing::debug!(device = self.device, status = %done.status(), "an asynchronous event request failed");
        if done.status().without_flags() != status::ABORT_REQUESTED {
            self.events_wanted = self.event_requests.len();
        }
    }

    fn late(&mut self, done: &CqEntry) -> Result<(), NvmeError> {
        let cid = done.cid();
        if self.event_requests.remove(&cid) {
            self.event(done);
            return Ok(());
        }
        match self.given_up.remove(&cid) {
            Some(page) => {
                tracing::debug!(device = self.device, cid, "late completion of an admin command that had timed out");
                self.free_pages.extend(page);
                Ok(())
            }
            None => Err(NvmeError::StrayCompletion { device: self.device.clone(), queue: 0, cid }),
        }
    }

    /// Returns the next completion, if there is one. Advances the head and writes the completion doorbell.
    fn next(&mut self) -> Result<Option<CqEntry>, NvmeError> {
        let offset = CQ_OFFSET + usize::from(self.head) * size_of::<CqEntry>();
        // SAFETY: within the completion ring, which is page aligned.
        let entry = unsafe { load_completion(self.host.add(offset)) };
        if entry.phase() != self.phase {
            return Ok(None);
        }
        self.sq_head = entry.sq_head() % ADMIN_DEPTH;
        self.head += 1;
        if self.head == ADMIN_DEPTH {
            self.head = 0;
            self.phase = !self.phase;
        }
        self.port.write32(register::cq_head(0, self.stride), u32::from(self.head))?;
        Ok(Some(entry))
    }

    fn free_cid(&mut self) -> u16 {
        loop {
            let cid = self.next_cid;
            // 0xffff is not used: in the error log it marks an error that belongs to no command.
            self.next_cid = (cid + 1) % u16::MAX;
            if !self.given_up.contains_key(&cid) && !self.event_requests.contains(&cid) {
                return cid;
            }
        }
    }

    fn failed(&self, entry: &SqEntry, done: &CqEntry, words: &str) -> NvmeError {
        refused(Interface::NvmeAdmin, &self.device, 0, named(entry, words), entry, done)
    }

    fn stuck(&self) -> NvmeError {
        NvmeError::QueueStuck { device: self.device.clone(), queue: 0, outstanding: self.given_up.len() }
    }
}

/// Pauses of a thread that waits for the controller. They suit short and long waits, and machines with two processors.
const PACE: Pace =
    Pace { spin: Duration::from_micros(2), yields: 512, naps: [Duration::from_micros(50), Duration::from_millis(1)] };
/// Number of naps between two register checks.
const NAPS_PER_CHECK: u32 = 8;

/// A wait of the host for a controller.
pub(super) struct Wait {
    idle: Idle,
    naps: u32,
}

impl Wait {
    pub(super) fn new() -> Self {
        Self { idle: Idle::new(PACE), naps: 0 }
    }

    /// Pauses. Returns true if the caller should read registers to see whether the controller is still present.
    /// Register reads are slow, so this is false during a short wait, and true every few milliseconds later on.
    pub(super) fn pause(&mut self) -> bool {
        if crate::assist::assist() != 0 {
            return false;
        }
        let pause = self.idle.next();
        pause.make(std::thread::sleep);
        let naps = matches!(pause, Pause::Nap(_));
        self.naps += u32::from(naps);
        naps && self.naps % NAPS_PER_CHECK == 1
    }
}

fn named(entry: &SqEntry, words: &str) -> String {
    let name = admin_name(entry.opcode());
    if words.is_empty() { name } else { format!("{name} ({words})") }
}
