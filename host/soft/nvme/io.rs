//! NVM command set: checks a command against the specification and moves its data.

use super::backend::{self, Direction, MAX_VECTORS, Request, Ring, Store};
use super::copy;
use super::core::Core;
use super::damage;
use super::fault::Damage;
use super::namespace::{Namespace, Span};
use super::prp::{self, Extent, Hints};
use super::statistics::QueueCounters;
use crate::nvme::ring_service::Snapshot;
use crate::soft::model::{Command, Kind};
use crate::wire::nvme::{SqEntry, Status, io, status};

/// Namespace identifier that stands for all namespaces.
pub(super) const ALL_NAMESPACES: u32 = u32::MAX;
/// PSDT and FUSE in dword 0. This controller reports neither SGLs nor fused operations.
const UNSUPPORTED_FLAGS: u32 = 3 << 14 | 3 << 8;
/// Force unit access (dword 12).
const FUA: u32 = 1 << 30;
/// Deallocate attribute of Dataset Management (dword 11).
const DEALLOCATE: u32 = 1 << 2;
/// Size in bytes of a Dataset Management range (NVM Command Set 1.1, figure "Range Definition").
const DSM_RANGE: usize = 16;
const BAD_FIELD: Status = status::INVALID_FIELD.dnr();

/// State that commands of one batch use.
pub(super) struct Context<'a> {
    pub(super) core: &'a Core,
    pub(super) table: &'a Snapshot,
    pub(super) page_shift: u32,
    pub(super) hints: &'a mut Hints,
    pub(super) counters: &'a mut QueueCounters,
    pub(super) extents: &'a mut Vec<Extent>,
    pub(super) vectors: &'a mut Vec<libc::iovec>,
    pub(super) ring: Option<&'a mut Ring>,
    pub(super) sqid: u16,
    /// True if data was written that must become visible before the next completion.
    pub(super) wrote: bool,
    /// Damage that the fault plan does to the data of the current command.
    pub(super) damage: Damage,
    /// Time before which the current command does not complete, in nanoseconds since the start of the controller.
    pub(super) due: u64,
}

/// State of a command after its execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(Status),
    /// The ring returns the command later.
    InFlight,
}

impl From<Result<(), Status>> for Outcome {
    fn from(r: Result<(), Status>) -> Self {
        Self::Done(r.err().unwrap_or(status::SUCCESS))
    }
}

/// Returns true if a command reads so little that a prefetch fetches all of it.
#[inline]
pub(super) fn is_small(core: &Core, e: &SqEntry) -> bool {
    let namespace = core.namespaces.get(e.nsid.wrapping_sub(1) as usize);
    e.opcode() == io::READ && namespace.is_some_and(|ns| (e.blocks() as usize) << ns.block_shift <= copy::SMALL)
}

/// Returns a command as a model of a drive sees it, or `None` for a command that fails at once.
#[inline]
pub(super) fn modelled(core: &Core, e: &SqEntry) -> Option<Command> {
    let kind = match e.opcode() {
        io::READ | io::COMPARE => Kind::Read,
        io::WRITE => Kind::Write,
        io::FLUSH => Kind::Flush,
        io::WRITE_ZEROES | io::WRITE_UNCORRECTABLE | io::DATASET_MANAGEMENT => Kind::Other,
        _ => return None,
    };
    if !matches!(kind, Kind::Read | Kind::Write) {
        return Some(Command { kind, offset: 0, bytes: 0 });
    }
    let span = core.namespaces.get(e.nsid.wrapping_sub(1) as usize)?.span_of(e).ok()?;
    let fits = span.bytes <= core.config.max_transfer_bytes as usize;
    fits.then_some(Command { kind, offset: span.offset, bytes: span.bytes as u64 })
}

/// Prefetches a command's blocks.
#[inline]
pub(super) fn prefetch(core: &Core, e: &SqEntry) {
    if e.opcode() == io::READ
        && let Some(ns) = core.namespaces.get(e.nsid.wrapping_sub(1) as usize)
        && e.slba() < ns.blocks()
        && let Some(p) = ns.store.peek(e.slba() << ns.block_shift)
    {
        copy::prefetch(p, (e.blocks() as usize) << ns.block_shift);
    }
}

/// Executes a command.
#[inline]
pub(super) fn execute(c: &mut Context<'_>, e: &SqEntry) -> Outcome {
    if e.cdw0 & UNSUPPORTED_FLAGS != 0 {
        return Outcome::Done(BAD_FIELD);
    }
    let core = c.core;
    let index = e.nsid.wrapping_sub(1) as usize;
    let Some(ns) = core.namespaces.get(index) else {
        return without_namespace(core, e);
    };
    let outcome = match e.opcode() {
        io::READ => read(c, e, ns, index),
        io::WRITE => write(c, e, ns, index),
        io::FLUSH => flush(c, e, ns, index),
        io::WRITE_ZEROES => Ok(write_zeroes(e, ns).into()),
        io::WRITE_UNCORRECTABLE => Ok(write_uncorrectable(e, ns).into()),
        io::DATASET_MANAGEMENT => Ok(dataset_management(c, e, ns).into()),
        io::COMPARE => Ok(compare(c, e, ns).into()),
        _ => Err(status::INVALID_OPCODE.dnr()),
    };
    outcome.unwrap_or_else(Outcome::Done)
}

#[cold]
fn without_namespace(core: &Core, e: &SqEntry) -> Outcome {
    match e.opcode() {
        // Flush may name all namespaces (NVM Command Set 1.1, 3.2.3, which refers to Base 2.1, 7.2).
        io::FLUSH if e.nsid == ALL_NAMESPACES => core.namespaces.iter().try_for_each(|n| n.store.flush()).into(),
        io::READ
        | io::WRITE
        | io::FLUSH
        | io::WRITE_ZEROES
        | io::WRITE_UNCORRECTABLE
        | io::DATASET_MANAGEMENT
        | io::COMPARE => Outcome::Done(status::INVALID_NAMESPACE.dnr()),
        _ => Outcome::Done(status::INVALID_OPCODE.dnr()),
    }
}

/// Checks a command that moves data, and returns its blocks. Its pages go to `c.extents`.
#[inline]
fn transfer(c: &mut Context<'_>, e: &SqEntry, ns: &Namespace) -> Result<Span, Status> {
    let span = ns.span_of(e)?;
    if span.bytes > c.core.config.max_transfer_bytes as usize {
        return Err(BAD_FIELD);
    }
    prp::walk(c.table, c.hints, c.page_shift, (e.prp1, e.prp2), span.bytes, c.extents)?;
    c.counters.transfer(e.opcode(), span.bytes);
    Ok(span)
}

#[inline]
fn read(c: &mut Context<'_>, e: &SqEntry, ns: &Namespace, index: usize) -> Result<Outcome, Status> {
    let span = transfer(c, e, ns)?;
    if ns.unreadable.meets(&span) {
        return Err(status::UNRECOVERED_READ_ERROR);
    }
    if let Some(mut from) = ns.store.readable(span.offset, span.bytes)? {
        for x in c.extents.iter() {
            // SAFETY: `readable` returned `span.bytes` bytes, and the extents have as many in total. The walk resolved
            // the extents in the snapshot that this thread has announced. The store and mapped regions never overlap.
            unsafe {
                match x.stream {
                    true => c.core.shell.mover.stream(x.host, from, x.bytes),
                    false => std::ptr::copy_nonoverlapping(from, x.host, x.bytes),
                }
                from = from.add(x.bytes);
            }
        }
        c.wrote = true;
        ns.store.check_read(span.offset, span.bytes)?;
        damage::flip_landed(c);
        return Ok(Outcome::Done(status::SUCCESS));
    }
    start(c, e, ns, index, Direction::Read, span)
}

fn write(c: &mut Context<'_>, e: &SqEntry, ns: &Namespace, index: usize) -> Result<Outcome, Status> {
    ns.check_writable()?;
    let whole = transfer(c, e, ns)?;
    let span = damage::tear(c, ns, whole);
    if span.bytes == 0 {
        return Ok(Outcome::Done(c.damage.torn.unwrap_or_default()));
    }
    let durable = e.cdw12 & FUA != 0 || c.core.write_through.load(std::sync::atomic::Ordering::Relaxed);
    let Some(mut to) = ns.store.writable(span.offset, span.bytes) else {
        return start(c, e, ns, index, Direction::Write { durable }, span);
    };
    for x in c.extents.iter() {
        // SAFETY: `writable` returned `span.bytes` bytes, and the extents have as many in total. The walk resolved the
        // extents in the snapshot that this thread has announced. The store and mapped regions never overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(x.host.cast_const(), to, x.bytes);
            to = to.add(x.bytes);
        }
    }
    ns.unreadable.remove(&span);
    damage::flip_stored(c, ns, &span)?;
    Ok(Outcome::Done(c.damage.torn.unwrap_or(status::SUCCESS)))
}

fn flush(c: &mut Context<'_>, e: &SqEntry, ns: &Namespace, index: usize) -> Result<Outcome, Status> {
    let nothing = Span { slba: 0, blocks: 0, offset: 0, bytes: 0 };
    c.extents.clear();
    match ns.store {
        Store::Memory(_) => Ok(Outcome::Done(status::SUCCESS)),
        Store::File(_) if ns.read_only => Ok(Outcome::Done(status::SUCCESS)),
        Store::File(_) => start(c, e, ns, index, Direction::Flush, nothing),
    }
}

/// Transfers the extents to or from a file: through the ring if the kernel accepts them as they are, otherwise by
/// system calls at once.
fn start(
    c: &mut Context<'_>,
    e: &SqEntry,
    ns: &Namespace,
    index: usize,
    direction: Direction,
    span: Span,
) -> Result<Outcome, Status> {
    let Store::File(file) = &ns.store else { return Err(status::INTERNAL_ERROR) };
    // Damage needs the transferred data, which system calls provide at once.
    if let Some(ring) = c.ring.as_deref_mut().filter(|r| file.wants_ring() && r.room() > 0 && c.damage.is_none()) {
        let mut vectors = ring.take_vectors();
        backend::vectors(c.extents, &mut vectors);
        if vectors.len() <= MAX_VECTORS && file.takes(&vectors) {
            let (sqid, cid) = (c.sqid, e.cid());
            let request = Request {
                sqid,
                cid,
                namespace: index,
                direction,
                offset: span.offset,
                bytes: span.bytes,
                entry: *e,
                due: c.due,
                vectors,
            };
            // SAFETY: the walk resolved the extents in the snapshot that this thread has announced. Before its ring is
            // empty, the thread announces no snapshot that lacks a mapping, and closes no file.
            match unsafe { ring.push(file.fd(), request) } {
                Ok(()) => return Ok(Outcome::InFlight),
                Err(vectors) => ring.recycle(vectors),
            }
        } else {
            ring.recycle(vectors);
        }
    }
    backend::vectors(c.extents, c.vectors);
    // SAFETY: the walk resolved the extents in the snapshot that this thread has announced.
    let result = unsafe {
        match direction {
            Direction::Read => file.read(c.vectors, span.offset),
            Direction::Write { durable } => file.write(c.vectors, span.offset, durable),
            Direction::Flush => file.flush(),
        }
    };
    c.wrote = true;
    finished(ns, direction, &span, &result)?;
    match direction {
        Direction::Read => damage::flip_landed(c),
        Direction::Write { .. } => damage::flip_stored(c, ns, &span)?,
        Direction::Flush => {}
    }
    Ok(Outcome::Done(c.damage.torn.unwrap_or(status::SUCCESS)))
}

/// Returns the status of a command from the result of its system call.
pub(super) fn finished(
    ns: &Namespace,
    direction: Direction,
    span: &Span,
    result: &std::io::Result<()>,
) -> Result<(), Status> {
    #[cfg(test)]
    if let (Store::File(file), Ok(()), false) = (&ns.store, result, matches!(direction, Direction::Read)) {
        let is_write = matches!(direction, Direction::Write { .. });
        super::journal::record(file.place(), is_write.then_some((span.offset, span.bytes)));
    }
    match (direction, result) {
        (Direction::Write { .. }, Ok(())) => {
            ns.unreadable.remove(span);
            Ok(())
        }
        (_, Ok(())) => Ok(()),
        (Direction::Read, Err(e)) => Err(backend::read_status(e)),
        (_, Err(e)) => Err(backend::write_status(e)),
    }
}

fn write_zeroes(e: &SqEntry, ns: &Namespace) -> Result<(), Status> {
    ns.check_writable()?;
    let span = ns.span_of(e)?;
    ns.store.zero(span.offset, span.bytes as u64)?;
    ns.unreadable.remove(&span);
    Ok(())
}

fn write_uncorrectable(e: &SqEntry, ns: &Namespace) -> Result<(), Status> {
    ns.check_writable()?;
    ns.unreadable.insert(&ns.span_of(e)?);
    Ok(())
}

fn dataset_management(c: &mut Context<'_>, e: &SqEntry, ns: &Namespace) -> Result<(), Status> {
    let count = (e.cdw10 & 0xff) as usize + 1;
    prp::walk(c.table, c.hints, c.page_shift, (e.prp1, e.prp2), count * DSM_RANGE, c.extents)?;
    let mut list = [[0u8; DSM_RANGE]; 256];
    // SAFETY: the walk resolved the extents in the announced snapshot.
    unsafe { gather(c.extents, list[..count].as_flattened_mut()) };
    let field = |r: &[u8; DSM_RANGE], at: usize| u32::from_le_bytes([r[at], r[at + 1], r[at + 2], r[at + 3]]);
    let spans = list[..count].iter().map(|r| {
        let slba = u64::from(field(r, 8)) | u64::from(field(r, 12)) << 32;
        ns.span(slba, u64::from(field(r, 4)))
    });
    // Checks all ranges before the first one is changed.
    spans.clone().try_for_each(|s| s.map(drop))?;
    if e.cdw11 & DEALLOCATE == 0 {
        return Ok(());
    }
    ns.check_writable()?;
    for span in spans.filter_map(Result::ok).filter(|s| s.bytes > 0) {
        ns.store.zero(span.offset, span.bytes as u64)?;
        ns.unreadable.remove(&span);
    }
    Ok(())
}

fn compare(c: &mut Context<'_>, e: &SqEntry, ns: &Namespace) -> Result<(), Status> {
    let span = transfer(c, e, ns)?;
    if ns.unreadable.meets(&span) {
        return Err(status::UNRECOVERED_READ_ERROR);
    }
    let mut copy = Vec::new();
    let mut at = match (ns.store.readable(span.offset, span.bytes)?, &ns.store) {
        (Some(p), _) => p,
        (None, Store::File(file)) => {
            copy.resize(span.bytes, 0u8);
            let mut whole = vec![libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: span.bytes }];
            // SAFETY: the buffer has `span.bytes` bytes.
            unsafe { file.read(&mut whole, span.offset) }.map_err(|e| backend::read_status(&e))?;
            copy.as_ptr()
        }
        (None, Store::Memory(_)) => return Err(status::INTERNAL_ERROR),
    };
    for x in c.extents.iter() {
        // SAFETY: `at` has `span.bytes` bytes, the extents have as many in total, and both are mapped. memcmp creates
        // no reference to memory that the driver may change meanwhile.
        let same = unsafe { libc::memcmp(at.cast(), x.host.cast(), x.bytes) } == 0;
        if !same {
            ns.store.check_read(span.offset, span.bytes)?;
            return Err(status::COMPARE_FAILURE);
        }
        at = at.wrapping_add(x.bytes);
    }
    ns.store.check_read(span.offset, span.bytes)
}

/// Copies extents to a buffer, until either ends.
///
/// # Safety
/// The extents must be mapped.
pub(super) unsafe fn gather(extents: &[Extent], mut out: &mut [u8]) {
    for x in extents {
        let n = x.bytes.min(out.len());
        // SAFETY: the caller vouches for the extents; `out` has `n` bytes.
        unsafe { std::ptr::copy_nonoverlapping(x.host, out.as_mut_ptr(), n) };
        out = &mut out[n..];
    }
}

/// Copies a buffer to extents, until either ends.
///
/// # Safety
/// The extents must be mapped.
pub(super) unsafe fn scatter(extents: &[Extent], mut data: &[u8]) {
    for x in extents {
        let n = x.bytes.min(data.len());
        // SAFETY: the caller vouches for the extents; `data` has `n` bytes.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), x.host, n) };
        data = &data[n..];
    }
}
