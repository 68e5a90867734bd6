//! The symmetric heap: as many bytes on every PE, and at the same offsets.
//!
//! Kernels reach the heap of PE `p` at their own heap's address plus `(p - me) * stride`: all heaps of a host lie side by side in
//! one range of addresses, in the same order on every PE.

use super::ShmemError;
use std::ptr::NonNull;
use std::sync::Arc;

/// Where heaps live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeapKind {
    /// GPU memory where peers reach it, pinned host memory where not; shared memory for CPU engines.
    #[default]
    Auto,
    /// Memory of the GPU.
    Device,
    /// Host memory.
    Host,
}

/// One PE's view of all heaps.
#[derive(Debug)]
pub(super) struct Heap {
    all: Arc<Mapping>,
    pe: usize,
    bytes: usize,
}

/// Address space with all heaps in it.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a range of addresses that is unmapped once, by whoever drops it last.
unsafe impl Send for Mapping {}
// SAFETY: as above; what is in it is read and written by copies, as memory that devices write.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(bytes: usize) -> std::io::Result<Self> {
        // SAFETY: a new private mapping at an address that the system chooses.
        let p = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if p == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        NonNull::new(p.cast()).map(|base| Self { base, bytes }).ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range that `new` mapped; nobody has an address in it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Heap {
    /// The heaps of `pes` PEs of this process, on CPU engines.
    pub(super) fn local(pes: usize, bytes: usize) -> Result<Vec<Self>, ShmemError> {
        let all = Mapping::new(pes * bytes);
        let all = all.map_err(|e| ShmemError::Heap { bytes, pes, reason: e.to_string() })?;
        let all = Arc::new(all);
        Ok((0..pes).map(|pe| Self { all: all.clone(), pe, bytes }).collect())
    }

    /// The address of this PE's heap, as its kernels see it.
    pub(super) fn address(&self) -> u64 {
        self.all.base.as_ptr() as u64 + (self.pe * self.bytes) as u64
    }

    /// Bytes of each heap.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes from one heap to the next.
    pub(super) fn stride(&self) -> usize {
        self.bytes
    }

    /// Copies bytes out of the heap of `pe`. The caller has checked the range.
    pub(super) fn read(&self, pe: usize, offset: usize, out: &mut [u8]) {
        let from = self.all.base.as_ptr().wrapping_add(pe * self.bytes + offset);
        // SAFETY: the range is inside the heap, which lives as long as `self`.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    /// Copies bytes into the heap of `pe`. The caller has checked the range.
    pub(super) fn write(&self, pe: usize, offset: usize, data: &[u8]) {
        let to = self.all.base.as_ptr().wrapping_add(pe * self.bytes + offset);
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }
}
