//! Memory that the driver's commands name by PRPs.

use crate::nvme::ring_service::prp::{self, Extent, Hints};
use crate::nvme::ring_service::{Mover, Snapshot};
use crate::wire::nvme::{SqEntry, Status, status};

/// log2 of the memory page size that the controller offers (CAP.MPSMIN and MPSMAX).
pub(crate) const PAGE_SHIFT: u32 = 12;

/// View of the driver's memory. Valid as long as the thread that made it has announced no later snapshot.
#[derive(Clone, Copy)]
pub(crate) struct DriverMemory<'a> {
    table: Option<&'a Snapshot>,
    mover: Mover,
}

/// Scratch memory of a thread that resolves PRPs.
pub(crate) struct Scratch {
    hints: Hints,
    extents: Vec<Extent>,
    generation: u64,
}

// SAFETY: the extents are plain addresses. Each use resolves them anew.
unsafe impl Send for Scratch {}

impl Default for Scratch {
    fn default() -> Self {
        Self { hints: Hints::none(), extents: Vec::new(), generation: 0 }
    }
}

impl<'a> DriverMemory<'a> {
    /// Returns the view of a thread that has announced this snapshot.
    pub(crate) fn new(table: &'a Snapshot, mover: Mover) -> Self {
        Self { table: Some(table), mover }
    }

    /// Returns the view of a thread whose commands have buffers of their own.
    pub(crate) fn none() -> Self {
        Self { table: None, mover: Mover::detect() }
    }

    /// Resolves the pages of a command of `bytes` bytes.
    pub(crate) fn check(&self, e: &SqEntry, bytes: u32, scratch: &mut Scratch) -> Result<(), Status> {
        let table = self.table.ok_or(status::DATA_TRANSFER_ERROR)?;
        if scratch.generation != table.generation {
            (scratch.hints, scratch.generation) = (Hints::none(), table.generation);
        }
        prp::walk(table, &mut scratch.hints, PAGE_SHIFT, (e.prp1, e.prp2), bytes as usize, &mut scratch.extents)
    }

    /// Copies from the command's pages, from byte `offset` of its `bytes` bytes on.
    pub(crate) fn load(
        &self,
        e: &SqEntry,
        bytes: u32,
        offset: u32,
        mut out: &mut [u8],
        s: &mut Scratch,
    ) -> Result<(), Status> {
        self.check(e, bytes, s)?;
        for_each(&s.extents, offset as usize, out.len(), |x| {
            let (now, later) = std::mem::take(&mut out).split_at_mut(x.bytes);
            // SAFETY: the walk resolved the extents in the snapshot that this thread has announced.
            unsafe { std::ptr::copy_nonoverlapping(x.host.cast_const(), now.as_mut_ptr(), x.bytes) };
            out = later;
        });
        Ok(())
    }

    /// Copies to the command's pages, from byte `offset` of its `bytes` bytes on.
    pub(crate) fn store(
        &self,
        e: &SqEntry,
        bytes: u32,
        offset: u32,
        mut data: &[u8],
        s: &mut Scratch,
    ) -> Result<(), Status> {
        self.check(e, bytes, s)?;
        for_each(&s.extents, offset as usize, data.len(), |x| {
            let (now, later) = data.split_at(x.bytes);
            // SAFETY: the walk resolved the extents in the snapshot that this thread has announced. The source is a
            // buffer of this thread, which no mapped region overlaps.
            unsafe {
                match x.stream {
                    true => self.mover.stream(x.host, now.as_ptr(), x.bytes),
                    false => std::ptr::copy_nonoverlapping(now.as_ptr(), x.host, x.bytes),
                }
            }
            data = later;
        });
        Ok(())
    }
}

/// Calls `visit` with the pieces of the bytes from `offset` on, `bytes` in total, or until the extents end.
fn for_each(extents: &[Extent], mut offset: usize, mut bytes: usize, mut visit: impl FnMut(Extent)) {
    for x in extents {
        if bytes == 0 {
            return;
        }
        if offset >= x.bytes {
            offset -= x.bytes;
            continue;
        }
        let n = (x.bytes - offset).min(bytes);
        visit(Extent { host: x.host.wrapping_add(offset), bytes: n, stream: x.stream });
        (offset, bytes) = (0, bytes - n);
    }
}
