//! Closes a device file whose close may take long.
//!
//! The kernel resets a device when its last VFIO file is closed. For a device that has left the bus, it waits more than
//! a minute. A thread that closes the file would delay even the end of the process. So another process closes it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Closes `fd` without waiting for the kernel's work. The file must not be mapped into this process any more,
/// except with `MADV_DONTFORK`.
pub(super) fn close(fd: OwnedFd) {
    if let Err(fd) = hand_over(fd) {
        // No process is available. With a thread, at least the caller does not wait.
        let spawned = std::thread::Builder::new().name("wb-close".to_owned()).spawn(move || drop(fd));
        if let Err(e) = spawned {
            tracing::warn!(error = %e, "a device that is gone is closed by this process, which takes more than a minute");
        }
    }
}

/// Creates a process, the keeper, that holds `fd` open until this process has closed it. It has no parent that waits
/// for it, and ends by itself.
fn hand_over(fd: OwnedFd) -> Result<(), OwnedFd> {
    let mut pipe = [0; 2];
    // SAFETY: room for the two descriptors.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(fd);
    }
    // SAFETY: the child makes system calls only, as a process with several threads must after a fork, and never returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the child makes system calls only, as a process with several threads must after a fork. The second
        // fork makes init the keeper's parent, so that this process need not wait for it.
        unsafe {
            if libc::fork() == 0 {
                keep(fd.as_raw_fd(), pipe[0]);
            }
            libc::_exit(0);
        }
    }
    let close = |fd: RawFd| {
        // SAFETY: one end of the pipe, owned by this function and closed once.
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
    // The keeper closes the file only now: before, this process would have been the last to close it.
    close(pipe[1]);
    kept
}

fn interrupted() -> bool {
    io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

/// Runs in the keeper: closes all descriptors except the file and the pipe, and waits for the end of the pipe.
///
/// # Safety
/// To be called only in the child of a fork.
unsafe fn keep(fd: RawFd, pipe: RawFd) -> ! {
    let (low, high) = (fd.min(pipe) as libc::c_uint, fd.max(pipe) as libc::c_uint);
    let close = |first: libc::c_uint, last: libc::c_uint| {
        if first <= last {
            // SAFETY: closes descriptors of this process, which uses only the two that are left out.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    };
    if low > 0 {
        close(0, low - 1);
    }
    close(low + 1, high.saturating_sub(1));
    close(high + 1, libc::c_uint::MAX);
    let mut byte = 0u8;
    // SAFETY: a buffer of one byte; the end of the process closes the other descriptors.
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
        // The pipe ends when the last process has closed the writing end, so this detects an early close and a leak.
        assert_eq!(reading.read(&mut [0; 8]).unwrap(), 0);
    }
}
