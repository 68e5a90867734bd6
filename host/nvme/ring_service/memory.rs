//! An anonymous mapping, whose pages the kernel allocates when they are written: blocks of a namespace, doorbells.

use std::io;
use std::ptr::NonNull;

/// Size in bytes below which a hole is overwritten with zeros, because that is cheaper than freeing its pages.
const GIVE_BACK: usize = 64 << 10;

/// An anonymous mapping. Blocks that were never written read as zeros and take no memory.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    base: NonNull<u8>,
    bytes: usize,
    page: usize,
}

// SAFETY: the store owns the mapping, and only raw copies access it.
unsafe impl Send for MemoryStore {}
// SAFETY: concurrent copies of the same blocks race as on a disk: the result is either, or a mixture.
unsafe impl Sync for MemoryStore {}

impl MemoryStore {
    /// Creates a mapping of `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        let base = NonNull::new(p.cast::<u8>()).filter(|_| p != libc::MAP_FAILED);
        let base = base.ok_or_else(io::Error::last_os_error)?;
        // Random blocks over many gigabytes cause far fewer TLB misses with huge pages. A refusal costs only speed.
        // SAFETY: the range is the mapping created above.
        unsafe { libc::madvise(p, length, libc::MADV_HUGEPAGE) };
        let page = crate::this_host::page_bytes();
        Ok(Self { base, bytes: length, page })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    #[inline]
    pub(crate) fn at(&self, offset: u64, bytes: usize) -> Option<*mut u8> {
        let end = (offset as usize).checked_add(bytes)?;
        // SAFETY: `offset..end` lies within the mapping.
        (end <= self.bytes).then(|| unsafe { self.base.as_ptr().add(offset as usize) })
    }

    pub(crate) fn zero(&self, offset: u64, bytes: u64) {
        let Some(start) = self.at(offset, bytes as usize) else { return };
        let (start, end) = (start as usize, start as usize + bytes as usize);
        let (first, last) = (start.next_multiple_of(self.page), end / self.page * self.page);
        let clear = |from: usize, to: usize| {
            // SAFETY: `start..end` lies within the mapping (`at`), and so do its parts.
            unsafe { std::ptr::write_bytes(from as *mut u8, 0, to - from) }
        };
        if last < first || last - first < GIVE_BACK {
            return clear(start, end);
        }
        clear(start, first);
        clear(last, end);
        // SAFETY: whole pages of a private anonymous mapping, which read as zeros afterwards.
        let given_back = unsafe { libc::madvise(first as *mut _, last - first, libc::MADV_DONTNEED) } == 0;
        if !given_back {
            clear(first, last);
        }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        // SAFETY: the mapping was created in `new` and is not used after the store.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::this_host::testing::with_page_bytes;

    #[test]
    fn unwritten_blocks_are_zero_and_holes_become_zero() {
        // Pages of this system, and of arm64 kernels with larger ones.
        zeroes(MemoryStore::new(1 << 20).unwrap());
        zeroes(with_page_bytes(64 << 10, || MemoryStore::new(1 << 20).unwrap()));
    }

    fn zeroes(m: MemoryStore) {
        let p = m.at(0, 1 << 20).unwrap();
        assert!(m.at(1 << 20, 1).is_none() && m.at(u64::MAX, 2).is_none());
        let byte = |i: usize| {
            // SAFETY: `i` is below the length.
            unsafe { *p.add(i) }
        };
        assert_eq!(byte(777), 0);
        // SAFETY: the whole store.
        unsafe { std::ptr::write_bytes(p, 0xaa, 1 << 20) };
        for (offset, bytes) in [(512u64, 512u64), (5000, 300_000), (0, 4096)] {
            m.zero(offset, bytes);
            assert_eq!((byte(offset as usize), byte((offset + bytes) as usize - 1)), (0, 0));
            assert_eq!(byte((offset + bytes) as usize), 0xaa);
        }
        assert_eq!(byte(4999), 0xaa);
    }

    #[test]
    fn a_size_that_nobody_has_is_an_error() {
        assert!(MemoryStore::new(u64::MAX).is_err());
    }
}
