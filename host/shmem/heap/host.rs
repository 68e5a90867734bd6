//! Host memory for the heaps of all PEs of a host: one memory file, which every process maps whole.

use super::HEAP_ALIGN;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// A mapping that begins at a multiple of [`HEAP_ALIGN`]. New memory is zero.
#[derive(Debug)]
pub(in super::super) struct HostMemory {
    base: NonNull<u8>,
    bytes: usize,
    parts: Vec<Range<usize>>,
}

// SAFETY: a range of addresses that the last owner unmaps, once.
unsafe impl Send for HostMemory {}
// SAFETY: the contents are read and written by copies, as memory that devices write.
unsafe impl Sync for HostMemory {}

/// Seals that fix the size of a memory file, so that nobody can truncate what others have mapped.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// Creates a memory file of `bytes` zero bytes, which [`HostMemory::placed`] maps here and in other processes.
pub(in super::super) fn file(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: a constant name; creates a descriptor.
    let fd = unsafe { libc::memfd_create(c"warpbell-heap".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that no other code knows.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: changes only the file of this descriptor.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: changes only the file of this descriptor.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS | libc::F_SEAL_SEAL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Reserves an address range of `bytes` bytes, aligned to [`HEAP_ALIGN`], without memory. `bytes` is a multiple of
/// [`HEAP_ALIGN`].
fn reserve(bytes: usize) -> io::Result<NonNull<u8>> {
    let room = bytes.checked_add(HEAP_ALIGN).ok_or(io::ErrorKind::OutOfMemory)?;
    // Reserves more addresses than needed, to find an aligned range among them.
    let (none, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at an address that the system chooses.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), room, none, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = p as usize;
    let base = start.next_multiple_of(HEAP_ALIGN);
    let head = base - start;
    let tail = room - head - bytes;
    let base = p.cast::<u8>().wrapping_add(head);
    // SAFETY: both are the unused ends of the reservation.
    unsafe {
        if head > 0 {
            libc::munmap(p, head);
        }
        if tail > 0 {
            libc::munmap(base.wrapping_add(bytes).cast(), tail);
        }
    }
    NonNull::new(base).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl HostMemory {
    /// Maps memory of this process alone.
    pub(in super::super) fn private(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, None, std::slice::from_ref(&(0..bytes)))
    }

    /// Reserves `bytes` bytes of addresses and maps memory at `parts`, which are in ascending order. Accesses elsewhere
    /// fault.
    ///
    /// The memory is that of a file from [`file`], whose bytes fill the parts one after the other. Without a file the
    /// memory is private.
    pub(in super::super) fn placed(
        fd: Option<BorrowedFd<'_>>,
        bytes: usize,
        parts: &[Range<usize>],
    ) -> io::Result<Self> {
        let Some(fd) = fd else { return Self::map(bytes, None, parts) };
        let length: usize = parts.iter().map(Range::len).sum();
        // SAFETY: all zero bytes are a valid value of this type.
        let mut facts: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: fills in `facts`.
        if unsafe { libc::fstat(fd.as_raw_fd(), &mut facts) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: reads the seals.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        if facts.st_size as usize != length || seals < 0 || seals & SEALS != SEALS {
            let text = format!("not the file of a heap: {} bytes instead of {length}, seals {seals:#x}", facts.st_size);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Self::map(bytes, Some(fd), parts)
    }

    fn map(bytes: usize, file: Option<BorrowedFd<'_>>, parts: &[Range<usize>]) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HEAP_ALIGN);
        let base = reserve(bytes)?;
        // From here on a drop of `this` releases the addresses.
        let mut this = Self { base, bytes, parts: Vec::new() };
        let (flags, fd) = match file {
            Some(fd) => (libc::MAP_SHARED, fd.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let mut in_file = 0;
        for part in parts {
            let outside = part.start > part.end || part.end > bytes;
            let place = libc::off_t::try_from(in_file).map_err(|_| io::ErrorKind::OutOfMemory)?;
            if outside || !part.start.is_multiple_of(HEAP_ALIGN) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{part:?} is not an aligned part of {bytes} bytes"),
                ));
            }
            let at = base.as_ptr().wrapping_add(part.start);
            let offset = if file.is_some() { place } else { 0 };
            let length = part.len().max(1);
            // SAFETY: inside the reservation; replaces a part of it that nothing uses yet.
            let q = unsafe { libc::mmap(at.cast(), length, access, flags | libc::MAP_FIXED, fd, offset) };
            if q == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            in_file += part.len();
            // Adjacent parts become one.
            match this.parts.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => this.parts.push(part.clone()),
            }
        }
        Ok(this)
    }

    /// Returns the ranges that are memory, with adjacent ranges merged.
    pub(in super::super) fn parts(&self) -> &[Range<usize>] {
        &self.parts
    }

    /// Returns the address of the first byte.
    pub(in super::super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: the range that `map` mapped; no code uses its addresses any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn whole(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<HostMemory> {
        HostMemory::placed(Some(fd), bytes, std::slice::from_ref(&(0..bytes)))
    }

    #[test]
    fn a_file_is_the_same_memory_wherever_it_is_mapped() {
        let fd = file(2 * HEAP_ALIGN).unwrap();
        let a = whole(fd.as_fd(), 2 * HEAP_ALIGN).unwrap();
        let b = whole(fd.as_fd(), 2 * HEAP_ALIGN).unwrap();
        drop(fd);
        assert_ne!(a.base(), b.base());
        assert!((a.base().as_ptr() as usize).is_multiple_of(HEAP_ALIGN));
        // SAFETY: inside both mappings, which no other code knows.
        unsafe {
            a.base().add(HEAP_ALIGN + 5).write(7);
            assert_eq!(b.base().add(HEAP_ALIGN + 5).read(), 7);
            assert_eq!(b.base().add(2 * HEAP_ALIGN - 1).read(), 0);
        }
    }

    #[test]
    fn parts_of_a_file_lie_where_they_belong() {
        let fd = file(3 * HEAP_ALIGN).unwrap();
        let parts = |all: &[usize]| all.iter().map(|i| i * HEAP_ALIGN..(i + 1) * HEAP_ALIGN).collect::<Vec<_>>();
        let all = whole(fd.as_fd(), 3 * HEAP_ALIGN).unwrap();
        let some = HostMemory::placed(Some(fd.as_fd()), 6 * HEAP_ALIGN, &parts(&[1, 2, 5])).unwrap();
        assert_eq!(some.parts(), [HEAP_ALIGN..3 * HEAP_ALIGN, 5 * HEAP_ALIGN..6 * HEAP_ALIGN]);
        // SAFETY: inside the parts that are memory.
        unsafe {
            some.base().add(5 * HEAP_ALIGN + 3).write(9);
            some.base().add(HEAP_ALIGN).write(8);
            assert_eq!((all.base().read(), all.base().add(2 * HEAP_ALIGN + 3).read()), (8, 9));
        }
        assert!(HostMemory::placed(Some(fd.as_fd()), 6 * HEAP_ALIGN, &parts(&[1, 2])).is_err(), "a part is left over");
        assert!(HostMemory::placed(None, 2 * HEAP_ALIGN, &parts(&[2])).is_err(), "outside");
    }

    #[test]
    fn other_files_are_refused() {
        let fd = file(HEAP_ALIGN).unwrap();
        assert!(whole(fd.as_fd(), 2 * HEAP_ALIGN).is_err());
        let other = tempfile::tempfile().unwrap();
        other.set_len(HEAP_ALIGN as u64).unwrap();
        assert!(whole(other.as_fd(), HEAP_ALIGN).is_err());
        // SAFETY: the file of this descriptor only.
        assert_ne!(unsafe { libc::ftruncate(fd.as_raw_fd(), 0) }, 0, "nobody can cut it off");
    }
}
