//! The admin queue: one command at a time, each with a deadline. A command that was given up keeps its identifier and its
//! data page until its late completion arrives, so that neither confuses a later command.

use super::error::{admin_name, gone, no_longer_ready};
use super::{Notice, NvmeError, Port};
use crate::idle::{Idle, Pace, Pause};
use crate::memory::DmaRegion;
use crate::wire::nvme::log::AsyncEvent;
use crate::wire::nvme::{CqEntry, SqEntry, admin, csts, register, status};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// Entries in the admin queues; 64 submission entries are one page.
pub(super) const ADMIN_DEPTH: u16 = 64;
const PAGE: usize = 4096;
/// Pages for the data of admin commands. More than one, because a command that was given up keeps its page.
const DATA_PAGES: usize = 8;
const SQ_OFFSET: usize = 0;
const CQ_OFFSET: usize = PAGE;
const DATA_OFFSET: usize = 2 * PAGE;
/// Bytes that the admin queues and their data take.
pub(super) const ADMIN_BYTES: usize = DATA_OFFSET + DATA_PAGES * PAGE;

const _: () = assert!(ADMIN_DEPTH as usize * size_of::<SqEntry>() <= PAGE);

/// Reads a completion entry that a device may write at any time: the word with phase and identifier first.
///
/// # Safety
/// `at` must point to 16 readable bytes, aligned to 4.
pub(super) unsafe fn load_completion(at: NonNull<u8>) -> CqEntry {
    let p = at.as_ptr().cast::<u32>();
    // SAFETY: the caller's promise; an atomic load because the device writes to it.
    let status = unsafe { AtomicU32::from_ptr(p.add(3)) }.load(Ordering::Acquire);
    // SAFETY: as above; the rest was written before the last word.
    let word = |i| unsafe { AtomicU32::from_ptr(p.add(i)) }.load(Ordering::Relaxed);
    CqEntry { result: word(0), dw1: word(1), sq: word(2), status }
}

/// Writes a submission entry; the doorbell's release makes it visible.
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

/// Which way a command's data page goes.
pub(super) enum Data<'a> {
    None,
    /// The controller writes; as much as fits is copied out.
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
    /// Commands that were given up, with the data page that the controller may still write to.
    given_up: HashMap<u16, Option<usize>>,
    /// Asynchronous Event Requests that wait, and how many should.
    event_requests: HashSet<u16>,
    events_wanted: usize,
    events: VecDeque<AsyncEvent>,
}

// SAFETY: `host` is the address of `memory`, which the queue keeps; access is by atomic words.
unsafe impl Send for AdminQueue {}

impl AdminQueue {
    /// Over zeroed memory of [`ADMIN_BYTES`] bytes that the host can reach.
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

    /// Device addresses of the submission and the completion ring.
    pub(super) fn addresses(memory: &DmaRegion) -> (u64, u64) {
        (memory.iova + SQ_OFFSET as u64, memory.iova + CQ_OFFSET as u64)
    }

    pub(super) fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Runs one command to its completion. `words` is what the command is in words, for the error.
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
                    // SAFETY: the page lies within the queue's memory; the completion says that the controller is done.
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

    /// Whether another command finds a place in both rings.
    fn has_room(&self) -> bool {
        let outstanding = self.given_up.len() + self.event_requests.len();
        (self.tail + 1) % ADMIN_DEPTH != self.sq_head && outstanding + 1 < usize::from(ADMIN_DEPTH)
    }

    fn submit(&mut self, entry: &SqEntry) -> Result<(), NvmeError> {
        // SAFETY: the slot at the tail is within the ring and the controller has consumed what was in it.
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
            // Once more at the end.
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

    /// Takes the completions of commands that nobody waits for now.
    fn reap(&mut self) -> Result<(), NvmeError> {
        while let Some(done) = self.next()? {
            self.late(&done)?;
        }
        Ok(())
    }

    // --- asynchronous events -----------------------------------------------------------------------------------------

    /// Lets `count` Asynchronous Event Requests wait at the controller from now on.
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

    /// What has been reported, oldest first; requests that were answered are made again.
    pub(super) fn take_events(&mut self) -> Result<Vec<AsyncEvent>, NvmeError> {
        self.reap()?;
        self.request_events()?;
        Ok(self.events.drain(..).collect())
    }

    /// Takes over what the queue before a reset had: events that nobody has seen, and how many requests should wait. They are
    /// made by the next look for events.
    pub(super) fn inherit_events(&mut self, before: &mut Self) {
        self.events = std::mem::take(&mut before.events);
        self.events_wanted = before.events_wanted;
    }

    fn event(&mut self, done: &CqEntry) {
        if done.status().is_success() {
            self.events.push_back(AsyncEvent(done.result));
            return;
        }
        // It takes no more than those that wait now, or none at all.
        tracing::debug!(device = self.device, status = %done.status(), "an event request came back");
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
                tracing::debug!(device = self.device, cid, "late completion of an admin command that was given up");
                self.free_pages.extend(page);
                Ok(())
            }
            None => Err(NvmeError::StrayCompletion { device: self.device.clone(), queue: 0, cid }),
        }
    }

    /// The next completion, if there is one; moves the head and tells the controller.
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
            // 0xffff is kept free: in the error log it means that an error belongs to no command.
            self.next_cid = (cid + 1) % u16::MAX;
            if !self.given_up.contains_key(&cid) && !self.event_requests.contains(&cid) {
                return cid;
            }
        }
    }

    fn failed(&self, entry: &SqEntry, done: &CqEntry, words: &str) -> NvmeError {
        NvmeError::Command {
            device: self.device.clone(),
            queue: 0,
            command: named(entry, words),
            opcode: entry.opcode(),
            status: done.status(),
        }
    }

    fn stuck(&self) -> NvmeError {
        NvmeError::QueueStuck { device: self.device.clone(), queue: 0, outstanding: self.given_up.len() }
    }
}

/// Pauses of a host wait: short and long ones, and on a machine with two processors.
const PACE: Pace =
    Pace { spin: Duration::from_micros(2), yields: 512, naps: [Duration::from_micros(50), Duration::from_millis(1)] };
/// Naps between two looks at registers.
const LOOK_EVERY: u32 = 8;

/// A wait of the host for a controller.
pub(super) struct Wait {
    idle: Idle,
    naps: u32,
}

impl Wait {
    pub(super) fn new() -> Self {
        Self { idle: Idle::new(PACE), naps: 0 }
    }

    /// Pauses. Returns true when it is time to see in the registers whether the controller is there: not while the wait is short, since reads
    /// are slow, and every few milliseconds from then on.
    pub(super) fn pause(&mut self) -> bool {
        let pause = self.idle.next();
        pause.make(std::thread::sleep);
        let naps = matches!(pause, Pause::Nap(_));
        self.naps += u32::from(naps);
        naps && self.naps % LOOK_EVERY == 1
    }
}

fn named(entry: &SqEntry, words: &str) -> String {
    let name = admin_name(entry.opcode());
    if words.is_empty() { name } else { format!("{name} ({words})") }
}
