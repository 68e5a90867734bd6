//! Host calls on PEs that loads and stores do not reach: small kernels make them, through room in this PE's own heap.

use crate::args;
use crate::engine::RunError;
use crate::shmem::{ShmemError, World};

impl World {
    /// Copies bytes out of the heap of `pe`, a PE of the world, however it is reached.
    pub(in crate::shmem) fn read_heap(&self, pe: usize, offset: usize, out: &mut [u8]) -> Result<(), ShmemError> {
        if self.heap().reaches(pe) {
            return self.heap().read(pe, offset, out);
        }
        let (room, heap, me) = (self.bounce(), self.heap().address(), self.my_pe());
        let mut at = heap + offset as u64;
        for part in out.chunks_mut(room.len().max(1)) {
            let here = heap + room.start as u64;
            let args = args!(self, here, at, part.len() as u64, pe as u32);
            // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
            unsafe { self.call(None, "wb_shmem_get", self.call_grid(part.len()), args) }?;
            self.heap().read(me, room.start, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes into the heap of `pe`, a PE of the world, however it is reached; they are there when it returns.
    pub(in crate::shmem) fn write_heap(&self, pe: usize, offset: usize, data: &[u8]) -> Result<(), ShmemError> {
        if self.heap().reaches(pe) {
            return self.heap().write(pe, offset, data);
        }
        let (room, heap, me) = (self.bounce(), self.heap().address(), self.my_pe());
        let mut at = heap + offset as u64;
        for part in data.chunks(room.len().max(1)) {
            self.heap().write(me, room.start, part)?;
            let here = heap + room.start as u64;
            let args = args!(self, at, here, part.len() as u64, pe as u32);
            // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
            unsafe { self.call(None, "wb_shmem_put", self.call_grid(part.len()), args) }?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Each connection of this PE that has failed, and why: what to look at when a kernel ended with a network error.
    pub fn network_failures(&self) -> Vec<String> {
        self.network().map(|n| n.failures()).unwrap_or_default()
    }

    /// A call's error, with what is known of connections that failed.
    pub(in crate::shmem) fn explained(&self, source: RunError) -> ShmemError {
        match self.network_failures() {
            none if none.is_empty() => source.into(),
            failures => ShmemError::Network { failures, source },
        }
    }
}
