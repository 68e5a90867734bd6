//! Anonymous host memory in whole pages, which an IOMMU driver can pin and a GPU driver can register.

use std::io;
use std::ptr::NonNull;

/// Size in bytes that x86 and arm64 map with one entry of a higher level. Memory of this size or more is aligned to it,
/// so that processor and IOMMU need fewer entries.
pub(super) const LARGE_PAGE: u64 = 2 << 20;

/// A private, zeroed mapping. A forked child does not inherit it, so a device always writes to this process's pages.
#[derive(Debug)]
pub(super) struct HostPages {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a length; only users of the range access it.
unsafe impl Send for HostPages {}
// SAFETY: no access goes through a shared `HostPages`; users of the range make theirs.
unsafe impl Sync for HostPages {}

impl HostPages {
    /// Maps `bytes` bytes, whole pages, aligned to `align` (a power of two).
    pub(super) fn new(bytes: usize, align: usize) -> io::Result<Self> {
        let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let wide = bytes.checked_add(align).ok_or_else(out_of_memory)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), wide, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = base as usize;
        let aligned = start.next_multiple_of(align);
        let (before, after) = (aligned - start, start + wide - (aligned + bytes));
        for (at, length) in [(start, before), (aligned + bytes, after)] {
            if length > 0 {
                // SAFETY: a part of the mapping made above, outside of what is kept.
                unsafe { libc::munmap(at as *mut libc::c_void, length) };
            }
        }
        let base = NonNull::new(aligned as *mut u8).ok_or_else(out_of_memory)?;
        // Both calls are advice. The memory works without them.
        // SAFETY: the range that is kept.
        unsafe {
            libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_DONTFORK);
            if bytes as u64 >= LARGE_PAGE {
                libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
            }
        }
        Ok(Self { base, bytes })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: the range that `new` kept; its users hold a share of this owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_zero() {
        for (bytes, align) in [(4096, 4096), (3 << 20, LARGE_PAGE as usize), (65536, 65536)] {
            let p = HostPages::new(bytes, align).unwrap();
            assert_eq!(p.base().as_ptr() as usize % align, 0);
            // SAFETY: within the mapping, which has no other user.
            let all = unsafe { std::slice::from_raw_parts_mut(p.base().as_ptr(), bytes) };
            assert!(all.iter().all(|b| *b == 0));
            all.fill(1);
        }
        assert!(HostPages::new(usize::MAX - 4095, 4096).is_err());
    }
}
