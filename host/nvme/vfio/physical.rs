//! Memory for a device without an IOMMU. Its device addresses are physical addresses, read from the kernel's page map.
//! The device can write to any memory of the machine, so the user must choose this mode by name.

use crate::memory::{DmaError, DmaRegion, MemoryError, Region, Space};
use crate::nvme::DmaSpace;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

/// An entry of /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst): 55 bits of frame
/// number, bit 63 for presence.
const ENTRY_BYTES: u64 = 8;
const FRAME_BITS: u32 = 55;
const PRESENT: u64 = 1 << 63;
/// Size of the huge pages to use: the smallest of x86 and arm64.
const HUGE: usize = 2 << 20;
/// Number of additional huge pages to examine for consecutive ones.
const SPARE: usize = 64;

/// Allocates memory with consecutive physical addresses.
#[derive(Debug)]
pub(super) struct PhysicalDma {
    device: String,
    pagemap: File,
    page: usize,
}

/// A mapping of huge pages, in the order of their physical addresses.
#[derive(Debug)]
struct HugePages {
    base: NonNull<u8>,
    bytes: usize,
    _file: OwnedFd,
}

// SAFETY: an address and a length; only users of the range access it.
unsafe impl Send for HugePages {}
// SAFETY: no access goes through a shared `HugePages`; users of the range make theirs.
unsafe impl Sync for HugePages {}

impl Drop for HugePages {
    fn drop(&mut self) {
        // SAFETY: mapped in `map_file` with this length; users hold a share.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl PhysicalDma {
    /// Creates the allocator. Physical addresses are readable only with CAP_SYS_ADMIN.
    pub(super) fn new(device: String) -> Result<Self, DmaError> {
        let refused = |reason: String| DmaError::Unreachable { device: device.clone(), reason };
        let pagemap = File::open("/proc/self/pagemap").map_err(|e| refused(format!("/proc/self/pagemap: {e}")))?;
        let page = crate::this_host::page_bytes();
        Ok(Self { device, pagemap, page })
    }

    fn unreachable(&self, reason: String) -> DmaError {
        DmaError::Unreachable { device: self.device.clone(), reason }
    }

    /// Returns the physical address of a page that is present.
    fn physical(&self, host: NonNull<u8>) -> Result<u64, DmaError> {
        let mut entry = [0; 8];
        let at = (host.as_ptr() as usize / self.page) as u64 * ENTRY_BYTES;
        self.pagemap.read_exact_at(&mut entry, at).map_err(|e| self.unreachable(format!("/proc/self/pagemap: {e}")))?;
        frame(u64::from_ne_bytes(entry))
            .map(|f| f * self.page as u64)
            .ok_or_else(|| self.unreachable("its physical address is hidden; run as root (CAP_SYS_ADMIN)".to_owned()))
    }

    /// Returns the physical address of the first byte, or `None` if the pages are not consecutive.
    fn consecutive(&self, base: NonNull<u8>, bytes: usize) -> Result<Option<u64>, DmaError> {
        let first = self.physical(base)?;
        for offset in (self.page..bytes).step_by(self.page) {
            // SAFETY: within the range that the caller names.
            if self.physical(unsafe { base.add(offset) })? != first + offset as u64 {
                return Ok(None);
            }
        }
        Ok(Some(first))
    }

    /// Maps the huge pages of the file at these offsets, one after the other.
    fn map_file(&self, file: &OwnedFd, offsets: &[usize]) -> io::Result<HugePages> {
        let bytes = offsets.len() * HUGE;
        // SAFETY: only reserves addresses.
        let reserved = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), bytes + HUGE, libc::PROT_NONE, flags, -1, 0)
        };
        if reserved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = (reserved as usize).next_multiple_of(HUGE);
        let unmap = |at: usize, length: usize| {
            if length > 0 {
                // SAFETY: a part of the reservation made above.
                unsafe { libc::munmap(at as *mut libc::c_void, length) };
            }
        };
        for (i, offset) in offsets.iter().enumerate() {
            let at = (start + i * HUGE) as *mut libc::c_void;
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
            // SAFETY: replaces a part of the reservation, which has no user.
            let mapped = unsafe { libc::mmap(at, HUGE, protection, flags, file.as_raw_fd(), *offset as libc::off_t) };
            if mapped == libc::MAP_FAILED {
                let error = io::Error::last_os_error();
                unmap(reserved as usize, bytes + HUGE);
                return Err(error);
            }
        }
        unmap(reserved as usize, start - reserved as usize);
        unmap(start + bytes, reserved as usize + HUGE - start);
        let base = NonNull::new(start as *mut u8).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the mapping made above; a child process must not inherit it.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
        Ok(HugePages { base, bytes, _file: file.try_clone()? })
    }

    /// Allocates zeroed huge pages with consecutive physical addresses.
    fn huge(&self, bytes: usize) -> Result<(HugePages, u64), DmaError> {
        let needed = bytes.div_ceil(HUGE);
        let none = |e: io::Error| {
            let more = format!("sysctl vm.nr_hugepages={}", needed + SPARE);
            self.unreachable(format!(
                "without an IOMMU, {needed} contiguous huge pages of 2 MiB are needed ({e}); reserve more ({more})"
            ))
        };
        // SAFETY: the name is a C string, and the result is checked.
        let fd = unsafe {
            libc::memfd_create(c"warpbell-dma".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_HUGETLB | libc::MFD_HUGE_2MB)
        };
        if fd < 0 {
            return Err(none(io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor that nothing else owns.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut have = 0;
        let mut found = Vec::new();
        while have < needed + SPARE {
            let more = if have == 0 { needed } else { 1 };
            // SAFETY: allocates the file's pages, or fails without any.
            if unsafe { libc::fallocate(fd, 0, (have * HUGE) as libc::off_t, (more * HUGE) as libc::off_t) } != 0 {
                return Err(none(io::Error::last_os_error()));
            }
            for page in have..have + more {
                let one = self.map_file(&file, &[page * HUGE]).map_err(none)?;
                // SAFETY: within the mapping, which has no other user. The write makes the page present in the page
                // map.
                unsafe { one.base.write_volatile(0) };
                found.push((self.physical(one.base)?, page * HUGE));
            }
            have += more;
            if let Some((address, offsets)) = run(&mut found, needed) {
                self.release_others(fd, &found, &offsets);
                let pages = self.map_file(&file, &offsets).map_err(none)?;
                // SAFETY: the whole mapping, which has no other user. The write also makes its pages present.
                unsafe { std::ptr::write_bytes(pages.base.as_ptr(), 0, pages.bytes) };
                return Ok((pages, address));
            }
        }
        Err(none(io::Error::other("the free ones are not contiguous")))
    }

    /// Returns examined pages that are not kept to the system.
    fn release_others(&self, fd: i32, found: &[(u64, usize)], kept: &[usize]) {
        for (_, offset) in found.iter().filter(|(_, o)| !kept.contains(o)) {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: frees pages of the file that nothing maps; a failure keeps them until the file is closed.
            unsafe { libc::fallocate(fd, mode, *offset as libc::off_t, HUGE as libc::off_t) };
        }
    }
}

/// Returns the frame number of an entry; `None` if the page is not present or the number is hidden.
fn frame(entry: u64) -> Option<u64> {
    let number = entry & ((1 << FRAME_BITS) - 1);
    (entry & PRESENT != 0 && number != 0).then_some(number)
}

/// Finds `needed` consecutive huge pages. Returns the address of the first, and the offsets of all in the file.
fn run(found: &mut [(u64, usize)], needed: usize) -> Option<(u64, Vec<usize>)> {
    found.sort_unstable();
    let window = found.windows(needed).find(|w| w.windows(2).all(|p| p[1].0 == p[0].0 + HUGE as u64))?;
    Some((window.first()?.0, window.iter().map(|p| p.1).collect()))
}

impl DmaSpace for PhysicalDma {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        let too_much = || MemoryError::Host { bytes, source: io::ErrorKind::OutOfMemory.into() };
        let length = bytes.max(1).checked_next_multiple_of(self.page).ok_or_else(too_much)?;
        let (pages, iova) = self.huge(length)?;
        let (base, pages) = (pages.base, Arc::new(pages));
        // SAFETY: the pages are valid while their owner lives, which the region keeps.
        let region = unsafe { space.import_host(base, length, false, pages.clone()) }?;
        Ok(DmaRegion { region, offset: 0, bytes: length, iova, remote: None, guard: pages })
    }

    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        let Some(host) = region.host() else {
            return Err(
                self.unreachable("it is GPU memory; put queues in host memory and use bounce landing".to_owned())
            );
        };
        let bytes = region.len();
        // SAFETY: the range of a live region. It is locked so that its pages stay present. Compaction may still move
        // them, which is one more reason for an IOMMU.
        if unsafe { libc::mlock(host.as_ptr().cast(), bytes) } != 0 {
            return Err(self.unreachable(format!("its pages cannot be locked: {}", io::Error::last_os_error())));
        }
        let Some(iova) = self.consecutive(host, bytes)? else {
            let reason =
                "its pages are not contiguous in physical memory; use bounce landing, or turn the IOMMU on".to_owned();
            return Err(self.unreachable(reason));
        };
        Ok(DmaRegion { region: region.clone(), offset: 0, bytes, iova, remote: None, guard: region.owner() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_of_the_page_map() {
        assert_eq!(frame(PRESENT | 0x1234), Some(0x1234));
        assert_eq!(frame(PRESENT), None);
        assert_eq!(frame(0x1234), None);
        assert_eq!(frame(PRESENT | 1 << 61 | 1 << 55 | 7), Some(7));
    }

    #[test]
    fn neighbours_are_found_among_scattered_pages() {
        let at = |n: u64| n * HUGE as u64;
        let mut found = vec![(at(9), 0), (at(4), HUGE), (at(5), 2 * HUGE), (at(3), 3 * HUGE)];
        assert_eq!(run(&mut found, 3), Some((at(3), vec![3 * HUGE, HUGE, 2 * HUGE])));
        assert_eq!(run(&mut found, 4), None);
        assert_eq!(run(&mut found, 1), Some((at(3), vec![3 * HUGE])));
    }

    #[test]
    fn memory_is_consecutive_for_the_device_and_for_the_host() {
        let dma = PhysicalDma::new("0000:65:00.0".into()).unwrap();
        let bytes = 2 * HUGE + 5000;
        let got = match dma.allocate(&Space::cpu(), bytes) {
            Ok(got) => got,
            Err(e) => {
                // Physical addresses need root, and huge pages need `sysctl vm.nr_hugepages`.
                let text = e.to_string();
                assert!(text.contains("vm.nr_hugepages=67") || text.contains("run as root"), "{text}");
                println!("SKIP: {text}");
                return;
            }
        };
        assert_eq!((got.bytes, got.iova as usize % HUGE), (bytes.next_multiple_of(dma.page), 0));
        assert_eq!(dma.consecutive(got.host().unwrap(), got.bytes).unwrap(), Some(got.iova));
        let words: Vec<u64> = (0..got.bytes as u64 / 8).collect();
        assert!(got.region.get_slice::<u64>(0, words.len()).unwrap().iter().all(|w| *w == 0));
        got.region.set_slice(0, &words).unwrap();
        assert!(got.region.get_slice::<u64>(0, words.len()).unwrap() == words);
        // Existing memory is mapped if it is consecutive.
        let one = Space::cpu().allocate(crate::memory::Place::Host, 1).unwrap();
        let mapped = dma.map(&one).unwrap();
        assert_eq!(mapped.iova, dma.physical(one.host().unwrap()).unwrap());
    }

    proptest! {
        #[test]
        fn runs_are_runs(pages in prop::collection::btree_set(0u64..40, 1..30), needed in 1usize..6) {
            let mut found: Vec<_> = pages.iter().enumerate().map(|(i, p)| (p * HUGE as u64, i * HUGE)).collect();
            let expected = pages.iter().any(|p| (0..needed as u64).all(|k| pages.contains(&(p + k))));
            let got = run(&mut found, needed);
            prop_assert_eq!(got.is_some(), expected);
            if let Some((first, offsets)) = got {
                for (i, o) in offsets.iter().enumerate() {
                    prop_assert!(found.contains(&(first + (i * HUGE) as u64, *o)));
                }
            }
        }
    }
}
