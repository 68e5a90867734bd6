//! The system calls that the ladder makes, as a trait: the machine's own, and in tests modules that are not there.

use crate::pci::Sysfs;
use std::ffi::{CString, c_void};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// open, ioctl, mmap, munmap and close. Descriptors are those that `open` gave, or of files that the process holds otherwise.
pub trait Syscalls: Send + Sync + fmt::Debug {
    /// Opens a file for reading and writing, not inherited by child processes.
    fn open(&self, path: &Path) -> io::Result<RawFd>;

    /// One control request; answers what the call returns.
    ///
    /// # Safety
    /// `argument` must point to what `request` reads and writes on this file.
    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> io::Result<i32>;

    /// Maps `bytes` bytes of a file from `offset`, shared, for reading and writing, at an address of the system's choice.
    fn map(&self, fd: RawFd, offset: u64, bytes: usize) -> io::Result<NonNull<u8>>;

    /// Ends a mapping.
    ///
    /// # Safety
    /// `base` and `bytes` must be of a mapping that [`map`](Self::map) made, which nobody uses any more.
    unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize) -> io::Result<()>;

    /// Closes a descriptor that [`open`](Self::open) gave. Errors of it help nobody.
    fn close(&self, fd: RawFd);

    /// Returns the bytes of a page of the host, in which files are mapped: 4096, and 65536 on some arm64 kernels.
    fn page_bytes(&self) -> u64 {
        crate::this_host::page_bytes() as u64
    }

    /// Returns true if the processor encrypts memory, and with it what the CPU reads through a mapping of GPU memory.
    fn encrypts_memory(&self) -> bool {
        false
    }
}

/// The machine's own system calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Syscalls for Linux {
    fn open(&self, path: &Path) -> io::Result<RawFd> {
        let path =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: a C string; the result is checked.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> io::Result<i32> {
        // SAFETY: the caller's promise.
        let answer = unsafe { libc::ioctl(fd, request as _, argument) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
    }

    fn map(&self, fd: RawFd, offset: u64, bytes: usize) -> io::Result<NonNull<u8>> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, offset as libc::off_t) };
        match NonNull::new(at.cast()) {
            Some(p) if at != libc::MAP_FAILED => Ok(p),
            _ => Err(io::Error::last_os_error()),
        }
    }

    unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: the caller's promise.
        let answer = unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn close(&self, fd: RawFd) {
        // SAFETY: the caller owns the descriptor and gives it up.
        unsafe { libc::close(fd) };
    }

    fn encrypts_memory(&self) -> bool {
        Sysfs::system().encrypts_memory()
    }
}

/// A file that is closed when it is dropped.
pub(super) struct File {
    pub(super) sys: Arc<dyn Syscalls>,
    pub(super) fd: RawFd,
}

impl File {
    pub(super) fn open(sys: &Arc<dyn Syscalls>, path: &Path) -> io::Result<Self> {
        Ok(Self { sys: sys.clone(), fd: sys.open(path)? })
    }

    /// One control request with a plain structure.
    ///
    /// # Safety
    /// `request` must be one that reads and writes at most a `T` on this file, and any addresses in it must be valid for what
    /// the module does with them.
    pub(super) unsafe fn control<T>(&self, request: u32, argument: &mut T) -> io::Result<i32> {
        // SAFETY: the caller's promise.
        unsafe { self.sys.ioctl(self.fd, request, std::ptr::from_mut(argument).cast()) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.sys.close(self.fd);
    }
}

/// A shared mapping that ends when it is dropped.
pub(super) struct Mapping {
    sys: Arc<dyn Syscalls>,
    pub(super) base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a length; whoever accesses the bytes does so with volatile accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(sys: &Arc<dyn Syscalls>, fd: RawFd, offset: u64, bytes: usize) -> io::Result<Self> {
        Ok(Self { sys: sys.clone(), base: sys.map(fd, offset, bytes)?, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made in `new` with this length; its owner has ended every use of it.
        if let Err(error) = unsafe { self.sys.unmap(self.base, self.bytes) } {
            tracing::warn!(%error, "a CPU mapping of GPU memory was not ended");
        }
    }
}

/// Which way a request's structure goes (asm-generic/ioctl.h).
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Write = 1,
    ReadWrite = 3,
}

/// The number of a control request (asm-generic/ioctl.h: direction in 31:30, size in 29:16, type in 15:8, number in 7:0).
pub(super) const fn request(direction: Direction, kind: u8, number: u8, bytes: usize) -> u32 {
    (direction as u32) << 30 | (bytes as u32) << 16 | (kind as u32) << 8 | number as u32
}

/// linux/errno.h, not meant for user space.
pub(super) const ENOTSUPP: i32 = 524;

/// An error of the system with its name: `ENOTSUPP` is 524, which drivers let through and libc has no text for.
pub(super) fn words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(ENOTSUPP) => "the driver does not support it (ENOTSUPP, 524)".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_numbers_are_those_of_the_macros() {
        // DMA_BUF_IOCTL_SYNC and VFIO_GET_API_VERSION's neighbours in linux/dma-buf.h: _IOW('b', 0, u64).
        assert_eq!(request(Direction::Write, b'b', 0, 8), 0x4008_6200);
        assert_eq!(request(Direction::ReadWrite, 0xda, 1, 40), 0xc028_da01);
    }

    #[test]
    fn the_machines_own_calls_answer_errors() {
        let sys: Arc<dyn Syscalls> = Arc::new(Linux);
        let Err(e) = File::open(&sys, Path::new("/nowhere/at/all")) else { panic!("opened") };
        assert_eq!(e.raw_os_error(), Some(libc::ENOENT));
        let null = File::open(&sys, Path::new("/dev/null")).unwrap();
        let mut word = 0u32;
        // SAFETY: /dev/null takes no requests at all.
        let e = unsafe { null.control(request(Direction::Write, 0x80, 1, 4), &mut word) }.unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ENOTTY));
        assert!(Mapping::new(&sys, null.fd, 0, 4096).is_err());
        assert!(words(&io::Error::from_raw_os_error(524)).contains("ENOTSUPP"));
    }

    #[test]
    fn a_file_is_mapped_shared() {
        let sys: Arc<dyn Syscalls> = Arc::new(Linux);
        let temp = tempfile::NamedTempFile::new().unwrap();
        temp.as_file().set_len(8192).unwrap();
        let file = File::open(&sys, temp.path()).unwrap();
        let mapping = Mapping::new(&sys, file.fd, 4096, 4096).unwrap();
        // SAFETY: within the mapping.
        unsafe { mapping.base.as_ptr().write_volatile(7) };
        drop(mapping);
        assert_eq!(std::fs::read(temp.path()).unwrap()[4096], 7);
    }
}
