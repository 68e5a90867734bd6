//! QEMU's RAM as memory for the model's DMA: a shared file, mapped into this process, from which ranges are allocated.

use super::QtestError;
use crate::memory::{DmaError, DmaRegion, FirstFit, Region, Space};
use crate::nvme::DmaSpace;
use parking_lot::Mutex;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE: u64 = 4096;
/// First address to allocate. Below it are the legacy holes of a PC: video memory and ROM shadows.
const FIRST: u64 = 1 << 20;

/// This process's mapping of QEMU's RAM.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a length; only the holders of ranges access the memory.
unsafe impl Send for Mapping {}
// SAFETY: no access goes through a shared `Mapping`; holders of ranges make theirs.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `Ram::new` with this length; every range holds a share of the mapping, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

struct Shared {
    mapping: Mapping,
    free: Mutex<FirstFit>,
}

/// One allocation. It is freed with the last region that uses it.
struct Range {
    shared: Arc<Shared>,
    start: u64,
    bytes: u64,
}

impl Drop for Range {
    fn drop(&mut self) {
        self.shared.free.lock().give_back(self.start, self.bytes);
    }
}

/// Allocates ranges of QEMU's RAM.
pub(super) struct Ram {
    device: String,
    shared: Arc<Shared>,
}

impl Ram {
    /// Creates an unnamed file of `bytes` bytes and maps it.
    pub(super) fn new(device: String, bytes: u64) -> Result<(Self, File), QtestError> {
        let refused = |source: std::io::Error| QtestError::Ram { bytes, source };
        // SAFETY: the name is a C string, and the result is checked.
        let fd = unsafe { libc::memfd_create(c"warpbell-qtest".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(refused(std::io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor that nothing else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes).map_err(refused)?;
        let length = usize::try_from(bytes).map_err(|_| refused(std::io::ErrorKind::OutOfMemory.into()))?;
        // SAFETY: a new shared mapping of the whole file, at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(p) if base != libc::MAP_FAILED => p,
            _ => return Err(refused(std::io::Error::last_os_error())),
        };
        let free = Mutex::new(FirstFit::new(Some(FIRST..bytes)));
        Ok((Self { device, shared: Arc::new(Shared { mapping: Mapping { base, bytes: length }, free }) }, file))
    }
}

impl DmaSpace for Ram {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        let exhausted = |bytes: usize, free: u64| DmaError::Exhausted {
            device: self.device.clone(),
            bytes,
            free: usize::try_from(free).unwrap_or(usize::MAX),
        };
        let wanted = (bytes.max(1) as u64).checked_next_multiple_of(PAGE);
        let taken = {
            let mut free = self.shared.free.lock();
            let left = free.free_bytes();
            wanted.and_then(|w| Some((free.take(w, PAGE)?, w))).ok_or_else(|| exhausted(bytes, left))
        };
        let (start, length) = taken?;
        let range = Arc::new(Range { shared: self.shared.clone(), start, bytes: length });
        // SAFETY: the range lies within the mapping.
        let base = unsafe { self.shared.mapping.base.add(start as usize) };
        // SAFETY: the range has no other user: earlier users have freed it.
        unsafe { std::ptr::write_bytes(base.as_ptr(), 0, length as usize) };
        // SAFETY: the range holds a share of the mapping, and stays allocated while it lives.
        let region = unsafe { space.import_host(base, length as usize, false, range.clone()) }?;
        Ok(DmaRegion { region, offset: 0, bytes: length as usize, iova: start, remote: None, guard: range })
    }

    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        let Mapping { base, bytes } = &self.shared.mapping;
        let unreachable =
            |reason: &str| DmaError::Unreachable { device: self.device.clone(), reason: reason.to_owned() };
        let Some(host) = region.host() else {
            return Err(unreachable(
                "it is GPU memory, and QEMU reaches only its own RAM; put queues and data in host memory",
            ));
        };
        let offset = (host.as_ptr() as usize).wrapping_sub(base.as_ptr() as usize);
        if offset.checked_add(region.len()).is_none_or(|end| end > *bytes) {
            return Err(unreachable(
                "it lies outside QEMU's RAM, the only memory that its model reaches; put queues in host memory and use bounce landing",
            ));
        }
        // The region itself keeps its range allocated.
        let guard = region.owner();
        Ok(DmaRegion {
            region: region.clone(),
            offset: 0,
            bytes: region.len(),
            iova: offset as u64,
            remote: None,
            guard,
        })
    }
}

impl fmt::Debug for Ram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ram({}, {} bytes)", self.device, self.shared.mapping.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Place;

    const BYTES: u64 = 16 << 20;

    #[test]
    fn ranges_are_zero_page_aligned_and_come_back() {
        let (ram, _file) = Ram::new("q".into(), BYTES).unwrap();
        let space = Space::cpu();
        let a = ram.allocate(&space, 5000).unwrap();
        assert_eq!((a.bytes, a.iova), (8192, FIRST));
        a.region.fill(0, 8192, 0xff).unwrap();
        // The region alone keeps the range.
        let (region, mapped) = (a.region.clone(), ram.map(&a.region).unwrap());
        assert_eq!(mapped.iova, FIRST);
        drop((a, mapped));
        assert_eq!(ram.allocate(&space, 1).unwrap().iova, FIRST + 8192);
        drop(region);
        let again = ram.allocate(&space, 1).unwrap();
        assert_eq!((again.iova, again.region.get::<u64>(0).unwrap()), (FIRST, 0));
    }

    #[test]
    fn foreign_memory_and_too_much_are_refused() {
        let (ram, _file) = Ram::new("q".into(), BYTES).unwrap();
        let space = Space::cpu();
        let foreign = space.allocate(Place::Host, 4096).unwrap();
        let text = ram.map(&foreign).unwrap_err().to_string();
        assert!(text.contains("q cannot address") && text.contains("QEMU's RAM"), "{text}");
        assert!(matches!(ram.allocate(&space, BYTES as usize), Err(DmaError::Exhausted { .. })));
        assert!(matches!(ram.allocate(&space, usize::MAX), Err(DmaError::Exhausted { .. })));
    }
}
