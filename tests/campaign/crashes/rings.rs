//! Rings of io_uring, read beside their owners: entries as they are submitted, and completions as the system posts them.

use super::interposed::gathered;
use super::recorder::{self, Followed};
use libc::c_int;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

const OP_WRITEV: u8 = 2;
const OP_FSYNC: u8 = 3;
const OFFSET_OF_ENTRIES: i64 = 0x1000_0000;
/// `IORING_FEAT_SINGLE_MMAP`: both rings are in one mapping.
const SINGLE_MAPPING: u32 = 1;

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Parameters {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread: [u32; 2],
    features: u32,
    reserved: [u32; 4],
    /// Offsets of head, tail, mask, number of entries, flags, dropped, array.
    sq: [u32; 10],
    /// Offsets of head, tail, mask, number of entries, overflow, entries.
    cq: [u32; 10],
}

/// `struct io_uring_sqe`, as far as writes and flushes use it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: c_int,
    offset: u64,
    address: u64,
    length: u32,
    operation_flags: u32,
    user_data: u64,
    rest: [u64; 3],
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

#[derive(Clone, Copy)]
enum Pending {
    Write(u64),
    Flush(u64),
}

struct Ring {
    fd: c_int,
    parameters: Parameters,
    /// Addresses of the rings and of the submission entries, once a recorded request was submitted.
    mapped: Option<[usize; 2]>,
    /// Completions before this one were seen.
    seen: u32,
    pending: HashMap<u64, (Followed, Pending)>,
}

static RINGS: Mutex<BTreeMap<c_int, Ring>> = Mutex::new(BTreeMap::new());

impl Ring {
    fn sizes(&self) -> [usize; 2] {
        let p = &self.parameters;
        let rings = (p.sq[6] + 4 * p.sq_entries).max(p.cq[5] + 16 * p.cq_entries);
        [rings as usize, p.sq_entries as usize * size_of::<Entry>()]
    }

    /// Maps the rings once more, beside the mapping of their owner.
    fn map(&mut self) -> Option<[usize; 2]> {
        if self.mapped.is_none() && self.parameters.features & SINGLE_MAPPING != 0 {
            let [rings, entries] = self.sizes();
            let map = |bytes: usize, offset: i64| {
                // SAFETY: a new mapping at an address that the kernel chooses.
                let p = unsafe {
                    libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, self.fd, offset)
                };
                (p != libc::MAP_FAILED).then_some(p as usize)
            };
            self.mapped = map(rings, 0).zip(map(entries, OFFSET_OF_ENTRIES)).map(|(r, e)| [r, e]);
        }
        self.mapped
    }

    fn word(&self, rings: usize, offset: u32) -> u32 {
        // SAFETY: the offset is the system's, within a mapping that lives as long as the ring.
        unsafe { &*((rings + offset as usize) as *const AtomicU32) }.load(Ordering::Acquire)
    }

    /// Records the requests that have ended.
    fn reap(&mut self) {
        let Some([rings, _]) = self.mapped.filter(|_| !self.pending.is_empty()) else { return };
        let (tail, mask) = (self.word(rings, self.parameters.cq[1]), self.word(rings, self.parameters.cq[2]));
        while self.seen != tail {
            let at = rings + self.parameters.cq[5] as usize + (self.seen & mask) as usize * size_of::<Completion>();
            // SAFETY: the system has written the completion, and writes it again only after as many as the ring holds.
            let completion = unsafe { *(at as *const Completion) };
            self.seen = self.seen.wrapping_add(1);
            match self.pending.remove(&completion.user_data) {
                Some((file, Pending::Write(id))) => file.written_now(id, completion.result.max(0) as usize),
                Some((file, Pending::Flush(id))) if completion.result == 0 => file.flushed_now(id),
                _ => {}
            }
        }
    }

    /// Records the next `count` entries, which the system is about to take.
    fn submit(&mut self, count: u32) {
        let Some([rings, entries]) = self.map() else { return };
        let [head, tail, mask, ..] = self.parameters.sq.map(|offset| offset);
        let (head, tail, mask) = (self.word(rings, head), self.word(rings, tail), self.word(rings, mask));
        for i in 0..count.min(tail.wrapping_sub(head)) {
            let slot = self.word(rings, self.parameters.sq[6] + 4 * (head.wrapping_add(i) & mask));
            // SAFETY: an entry of the mapping, which its owner has written and does not change before the system takes it.
            let entry = unsafe { *((entries + (slot & mask) as usize * size_of::<Entry>()) as *const Entry) };
            // The system may have refused the entry before.
            if self.pending.contains_key(&entry.user_data) {
                continue;
            }
            let file = matches!(entry.opcode, OP_WRITEV | OP_FSYNC).then(|| recorder::followed(entry.fd)).flatten();
            let Some(file) = file else { continue };
            if self.pending.is_empty() {
                self.seen = self.word(rings, self.parameters.cq[1]);
            }
            let pending = if entry.opcode == OP_FSYNC {
                Pending::Flush(file.flush_now())
            } else {
                // SAFETY: the vectors of an entry are valid until it has ended.
                let data = unsafe { gathered(entry.address as *const libc::iovec, entry.length as usize) };
                Pending::Write(file.write_now(entry.offset, data, entry.operation_flags & libc::RWF_DSYNC as u32 != 0))
            };
            self.pending.insert(entry.user_data, (file, pending));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for (at, bytes) in self.mapped.into_iter().flatten().zip(self.sizes()) {
            // SAFETY: the mapping of `map`, which nothing else uses.
            unsafe { libc::munmap(at as *mut _, bytes) };
        }
    }
}

/// Takes a new ring, in place of an earlier one whose descriptor it has.
pub(super) fn created(fd: c_int, parameters: &Parameters) {
    let ring = Ring { fd, parameters: *parameters, mapped: None, seen: 0, pending: HashMap::new() };
    RINGS.lock().unwrap().insert(fd, ring);
}

/// Records the entries that a call submits.
pub(super) fn enter(fd: c_int, count: u32) {
    if !recorder::is_recording() {
        return;
    }
    let mut rings = RINGS.lock().unwrap();
    rings.values_mut().for_each(Ring::reap);
    if let Some(ring) = rings.get_mut(&fd) {
        ring.submit(count);
    }
}

/// Records all requests that have ended.
pub(super) fn reap() {
    RINGS.lock().unwrap().values_mut().for_each(Ring::reap);
}

/// Forgets the requests of a recording that is over, and of rings that are gone.
pub(super) fn forget(log: &recorder::Log) {
    for ring in RINGS.lock().unwrap().values_mut() {
        ring.pending.retain(|_, (file, _)| !file.is_of(log));
    }
}
