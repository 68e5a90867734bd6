//! Eventfds: the kernel signals interrupts, errors and unplugs through them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
#[cfg(feature = "internals")]
use std::time::Duration;

/// A counter that the kernel increments.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// Creates a counter at zero.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain call; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Returns the number of events since the last call, and resets it. Does not wait.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn take(&self) -> io::Result<u64> {
        let mut count = [0u8; 8];
        match (&self.0).read(&mut count) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(e),
        }
    }

    /// Waits at most `within` for an event. Returns the number of events since the last call, 0 if there was none.
    ///
    /// # Errors
    /// The error of the system call. An interruption by a signal is not an error.
    #[cfg(feature = "internals")]
    pub fn wait(&self, within: Duration) -> io::Result<u64> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = i32::try_from(within.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one structure that lives for the call.
        if unsafe { libc::poll(&mut poll, 1, timeout) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        self.take()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn events_are_counted_once() {
        let e = EventFd::new().unwrap();
        assert_eq!((e.take().unwrap(), e.wait(Duration::ZERO).unwrap()), (0, 0));
        (&e.0).write_all(&3u64.to_ne_bytes()).unwrap();
        assert_eq!(e.wait(Duration::from_secs(5)).unwrap(), 3);
        assert_eq!(e.take().unwrap(), 0);
    }
}
