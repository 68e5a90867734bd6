//! System calls of the mapping backends, as a trait: Linux in production, fake kernel modules in tests.

use crate::pci::Sysfs;
use std::ffi::{CString, c_void};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// open, ioctl, mmap, munmap and close. Descriptors come from `open`, or are files that the process holds otherwise.
pub trait Syscalls: Send + Sync + fmt::Debug {
    /// Opens a file for reading and writing, with close-on-exec.
    ///
    /// # Errors
    /// The error of the system call, or `InvalidInput` if the path contains a zero byte.
    fn open(&self, path: &Path) -> io::Result<RawFd>;

    /// Makes one ioctl request. Returns the result of the system call.
    ///
    /// # Errors
    /// The error of the system call.
    ///
    /// # Safety
    /// `argument` must point to the data that `request` reads and writes on this file.
    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> io::Result<i32>;

    /// Maps `bytes` bytes of a file from `offset`, shared, for reading and writing, at an
    /// address that the system chooses.
    ///
    /// # Errors
    /// The error of the system call.
    fn map(&self, fd: RawFd, offset: u64, bytes: usize) -> io::Result<NonNull<u8>>;

    /// Removes a mapping.
    ///
    /// # Errors
    /// The error of the system call.
    ///
    /// # Safety
    /// `base` and `bytes` must describe a mapping that [`map`](Self::map) made and that has no users any more.
    unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize) -> io::Result<()>;

    /// Closes a descriptor that [`open`](Self::open) returned. Ignores errors, as callers cannot handle them.
    fn close(&self, fd: RawFd);

    /// Returns the size of the host's pages in bytes, in which files are mapped: 4096, or 65536 on some arm64 kernels.
    fn page_bytes(&self) -> u64 {
        crate::this_host::page_bytes() as u64
    }

    /// Returns true if the processor encrypts memory. A CPU mapping of GPU memory then shows
    /// other bytes than the GPU sees.
    fn encrypts_memory(&self) -> bool {
        false
    }
}

/// The system calls of this machine.
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
        // SAFETY: this function's caller makes the promise.
        let answer = unsafe { libc::ioctl(fd, request as _, argument) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
    }

    fn map(&self, fd: RawFd, offset: u64, bytes: usize) -> io::Result<NonNull<u8>> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses; the result is checked.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, offset as libc::off_t) };
        match NonNull::new(at.cast()) {
            Some(p) if at != libc::MAP_FAILED => Ok(p),
            _ => Err(io::Error::last_os_error()),
        }
    }

    unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: this function's caller makes the promise.
        let answer = unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn close(&self, fd: RawFd) {
        // SAFETY: the caller owns the descriptor and does not use it any more.
        unsafe { libc::close(fd) };
    }

    fn encrypts_memory(&self) -> bool {
        Sysfs::system().encrypts_memory()
    }
}

/// A file that is closed on drop.
pub(super) struct File {
    pub(super) sys: Arc<dyn Syscalls>,
    pub(super) fd: RawFd,
}

impl File {
    pub(super) fn open(sys: &Arc<dyn Syscalls>, path: &Path) -> io::Result<Self> {
        Ok(Self { sys: sys.clone(), fd: sys.open(path)? })
    }

    /// Makes one ioctl request with a plain structure.
    ///
    /// # Safety
    /// `request` must read and write at most a `T` on this file. Addresses in the structure must be valid
    /// for the module's use of them.
    pub(super) unsafe fn control<T>(&self, request: u32, argument: &mut T) -> io::Result<i32> {
        // SAFETY: this function's caller makes the promise.
        unsafe { self.sys.ioctl(self.fd, request, std::ptr::from_mut(argument).cast()) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.sys.close(self.fd);
    }
}

/// A shared mapping that is removed on drop.
pub(super) struct Mapping {
    sys: Arc<dyn Syscalls>,
    pub(super) base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a length; all accesses to the bytes are volatile.
unsafe impl Send for Mapping {}
// SAFETY: all accesses to the bytes are volatile, from whichever thread.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(sys: &Arc<dyn Syscalls>, fd: RawFd, offset: u64, bytes: usize) -> io::Result<Self> {
        Ok(Self { sys: sys.clone(), base: sys.map(fd, offset, bytes)?, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made in `new` with this length; the owner has ended every use of it.
        if let Err(error) = unsafe { self.sys.unmap(self.base, self.bytes) } {
            tracing::warn!(%error, "a CPU mapping of GPU memory could not be removed");
        }
    }
}

/// Direction in which a request transfers its structure (asm-generic/ioctl.h).
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Write = 1,
    ReadWrite = 3,
}

/// Returns the number of an ioctl request (asm-generic/ioctl.h: direction in 31:30, size in 29:16,
/// type in 15:8, number in 7:0).
pub(super) const fn request(direction: Direction, kind: u8, number: u8, bytes: usize) -> u32 {
    (direction as u32) << 30 | (bytes as u32) << 16 | (kind as u32) << 8 | number as u32
}

/// linux/errno.h. Not meant for user space.
pub(super) const ENOTSUPP: i32 = 524;

/// Returns the text of a system error. Drivers return `ENOTSUPP` (524), for which libc has no text.
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
        // DMA_BUF_IOCTL_SYNC of linux/dma-buf.h: _IOW('b', 0, u64).
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
