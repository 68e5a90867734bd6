//! Loads and stores of memory that kernels access concurrently.

use crate::memory::Region;
use crate::rdma::RdmaError;
use crate::wire::mlx5::{BLOCK_BYTES, CQE_BYTES};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Number of 8-byte words in a block or in a completion entry.
const WORDS: usize = BLOCK_BYTES / size_of::<u64>();
const _: () = assert!(CQE_BYTES == BLOCK_BYTES);

/// Host memory that kernels access too. All accesses are atomic words, never references.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedMemory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a length; every access is atomic, and the accessing owner keeps the region alive.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Wraps a region, which must be accessible to the host. The caller keeps the region alive while it uses the
    /// wrapper.
    pub(super) fn of(region: &Region, what: &str) -> Result<Self, RdmaError> {
        let base = region.host().ok_or_else(|| RdmaError::Queue {
            blocks: (region.len() / BLOCK_BYTES) as u32,
            reason: format!("its {what} is in GPU memory, which CPU threads cannot access: allocate it in host memory"),
        })?;
        Ok(Self { base, bytes: region.len() })
    }

    /// Returns the address of a word inside the region. Offsets come from the caller's own arithmetic, so an invalid
    /// one just becomes 0.
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        let inside = offset.is_multiple_of(bytes) && offset + bytes <= self.bytes;
        debug_assert!(inside, "{offset} + {bytes} of {}", self.bytes);
        let offset = if inside { offset } else { 0 };
        // SAFETY: `offset` lies within the region.
        unsafe { self.base.as_ptr().add(offset) }
    }

    fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: regions are aligned to a block at least, and the offset to 8. The word lies within the region. The borrow ends
        // within the call that creates it.
        unsafe { AtomicU64::from_ptr(self.at(offset, size_of::<u64>()).cast()) }
    }

    fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: regions are aligned to a block at least, and the offset to 4. The word lies within the region. The
        // borrow ends within the call that creates it.
        unsafe { AtomicU32::from_ptr(self.at(offset, size_of::<u32>()).cast()) }
    }

    /// Loads a doorbell with acquire order: everything stored before it is visible afterwards.
    pub(super) fn acquire(&self, offset: usize) -> u64 {
        self.u64(offset).load(Ordering::Acquire)
    }

    /// Loads a big-endian word with acquire order.
    pub(super) fn be32(&self, offset: usize) -> u32 {
        u32::from_be(self.u32(offset).load(Ordering::Acquire))
    }

    /// Copies a block to `out`.
    pub(super) fn block(&self, offset: usize, out: &mut [u8; BLOCK_BYTES]) {
        self.bytes(offset, out);
    }

    /// Copies bytes to `out`, whose length is a multiple of 8.
    pub(super) fn bytes(&self, offset: usize, out: &mut [u8]) {
        for (i, word) in out.chunks_exact_mut(size_of::<u64>()).enumerate() {
            word.copy_from_slice(&self.u64(offset + i * size_of::<u64>()).load(Ordering::Relaxed).to_ne_bytes());
        }
    }

    /// Sets all bytes of a block to one value.
    pub(super) fn fill_block(&self, offset: usize, byte: u8) {
        for i in 0..WORDS {
            self.u64(offset + i * size_of::<u64>()).store(u64::from_ne_bytes([byte; 8]), Ordering::Relaxed);
        }
    }

    /// Writes a completion entry: first its body, then its last 16 bytes with syndrome, counter and owner. A reader
    /// that sees the new owner or counter also sees the rest, and everything written earlier.
    pub(super) fn publish_entry(&self, offset: usize, entry: &[u8; CQE_BYTES]) {
        let word = |i: usize| {
            let mut w = [0; size_of::<u64>()];
            w.copy_from_slice(&entry[i * size_of::<u64>()..][..size_of::<u64>()]);
            u64::from_ne_bytes(w)
        };
        for i in 0..WORDS - 2 {
            self.u64(offset + i * size_of::<u64>()).store(word(i), Ordering::Relaxed);
        }
        let tail = offset + (WORDS - 2) * size_of::<u64>();
        fence(Ordering::Release);
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{__m128i, _mm_set_epi64x};
            // One store: a reader of 16 bytes never sees half of an entry that overwrites another one (a collapsed
            // queue). This processor's stores become visible in order. SAFETY: SSE2 is part of x86-64; the 16 bytes lie
            // within the region, as the two words do, and entries are aligned to 64.
            unsafe {
                let both = _mm_set_epi64x(word(WORDS - 1) as i64, word(WORDS - 2) as i64);
                self.at(tail, size_of::<__m128i>()).cast::<__m128i>().write_volatile(both);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self.u64(tail).store(word(WORDS - 2), Ordering::Relaxed);
            self.u64(tail + size_of::<u64>()).store(word(WORDS - 1), Ordering::Release);
        }
    }
}
