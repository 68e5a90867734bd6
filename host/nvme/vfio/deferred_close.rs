//! Closing a file whose close may take long. The kernel resets a device when its last VFIO file is closed, and waits more than
//! a minute for one that has left the bus; a thread would keep even the process from ending. So a process of its own closes it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Closes `fd` without waiting for what the kernel does then. The file must not be mapped into this process any more, unless
/// with `MADV_DONTFORK`.
pub(super) fn close(fd: OwnedFd) {
    if let Err(fd) = hand_over(fd) {
        // No process to be had: a thread at least keeps the caller from waiting.
        let spawned = std::thread::Builder::new().name("wb-close".to_owned()).spawn(move || drop(fd));
        if let Err(e) = spawned {
            tracing::warn!(error = %e, "a device that is gone is closed in place; this takes more than a minute");
        }
    }
}

/// Makes a process that has `fd` open until this one has closed it, and belongs to nobody. It ends by itself.
fn hand_over(fd: OwnedFd) -> Result<(), OwnedFd> {
    let mut pipe = [0; 2];
    // SAFETY: room for the two descriptors.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(fd);
    }
    // SAFETY: the child makes system calls only, as a process with several threads must after a fork, and never returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above. The second fork gives the keeper to the system's init process, so that nobody has to wait for it.
        unsafe {
            if libc::fork() == 0 {
                keep(fd.as_raw_fd(), pipe[0]);
            }
            libc::_exit(0);
        }
    }
    let close = |fd: RawFd| {
        // SAFETY: an end of the pipe, ours alone, closed once.
        unsafe { libc::close(fd) };
    };
    close(pipe[0]);
    let kept = if child < 0 {
        Err(fd)
    } else {
        let mut status = 0;
        // SAFETY: the child of this function, and room for its status.
        while unsafe { libc::waitpid(child, &mut status, 0) } < 0 && interrupted() {}
        drop(fd);
        Ok(())
    };
    // Only now does the keeper let go of the file: before, this process would have been the last that has it.
    close(pipe[1]);
    kept
}

fn interrupted() -> bool {
    io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

/// In the keeper: everything is closed but the file and the pipe, whose end it waits for.
///
/// # Safety
/// Only after a fork, in the child.
unsafe fn keep(fd: RawFd, pipe: RawFd) -> ! {
    let (low, high) = (fd.min(pipe) as libc::c_uint, fd.max(pipe) as libc::c_uint);
    let close = |first: libc::c_uint, last: libc::c_uint| {
        if first <= last {
            // SAFETY: closing descriptors of this process, which uses none but the two that are left out.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    };
    if low > 0 {
        close(0, low - 1);
    }
    close(low + 1, high.saturating_sub(1));
    close(high + 1, libc::c_uint::MAX);
    let mut byte = 0u8;
    // SAFETY: one byte of room; the end of the process closes the rest.
    unsafe {
        while libc::read(pipe, (&raw mut byte).cast(), 1) < 0 && interrupted() {}
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::FromRawFd;

    #[test]
    fn the_file_is_closed_here_and_in_the_end_everywhere() {
        let mut ends = [0; 2];
        // SAFETY: room for the two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: fresh descriptors.
        let (mut reading, writing) = unsafe { (std::fs::File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        close(writing);
        // The end of the pipe comes when the last process has closed the writing end: neither early end nor leak.
        assert_eq!(reading.read(&mut [0; 8]).unwrap(), 0);
    }
}
