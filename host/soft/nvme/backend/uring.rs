//! Reads, writes and flushes in flight through io_uring, one ring for each service thread.

use super::advance;
use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::RawFd;

/// Largest number of commands in flight per service thread.
const IN_FLIGHT: u32 = 256;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Direction {
    Read,
    /// With `durable`, the data is on the medium before the request completes.
    Write {
        durable: bool,
    },
    Flush,
}

/// A command in flight.
#[derive(Debug)]
pub(in super::super) struct Request {
    pub(in super::super) sqid: u16,
    pub(in super::super) cid: u16,
    /// Index of its namespace.
    pub(in super::super) namespace: usize,
    pub(in super::super) direction: Direction,
    pub(in super::super) offset: u64,
    pub(in super::super) bytes: usize,
    /// Submission entry, for the fault plan and the error log.
    pub(in super::super) entry: crate::wire::nvme::SqEntry,
    /// Time before which the command does not complete, in nanoseconds since the start of the controller.
    pub(in super::super) due: u64,
    pub(in super::super) vectors: Vec<libc::iovec>,
}

/// A command whose system call has ended.
#[derive(Debug)]
pub(in super::super) struct Finished {
    pub(in super::super) request: Request,
    pub(in super::super) result: io::Result<()>,
}

/// An io_uring and its requests.
pub(in super::super) struct Ring {
    ring: IoUring,
    slots: Vec<Option<Request>>,
    free: Vec<u32>,
    spare: Vec<Vec<libc::iovec>>,
    pushed: bool,
}

// SAFETY: the vectors in the slots are plain addresses. Only the thread that owns the ring uses them.
unsafe impl Send for Ring {}

impl Ring {
    pub(in super::super) fn new() -> io::Result<Self> {
        let ring = IoUring::builder().setup_clamp().build(IN_FLIGHT)?;
        let slots = ring.params().sq_entries().min(IN_FLIGHT);
        Ok(Self {
            ring,
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            spare: Vec::new(),
            pushed: false,
        })
    }

    /// Returns the number of requests that the ring can still take.
    pub(in super::super) fn room(&self) -> usize {
        self.free.len()
    }

    pub(in super::super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the number of requests in flight of one submission queue.
    pub(in super::super) fn in_flight_of(&self, sqid: u16) -> usize {
        self.slots.iter().flatten().filter(|r| r.sqid == sqid).count()
    }

    /// Returns a vector list to fill for the next request.
    pub(in super::super) fn take_vectors(&mut self) -> Vec<libc::iovec> {
        self.spare.pop().unwrap_or_default()
    }

    /// Queues a request. Returns its vectors if there is no free slot.
    ///
    /// # Safety
    /// The memory that the vectors name, and the descriptor, must stay valid until [`Ring::reap`] returns the request.
    pub(in super::super) unsafe fn push(&mut self, fd: RawFd, request: Request) -> Result<(), Vec<libc::iovec>> {
        let Some(slot) = self.free.pop() else { return Err(request.vectors) };
        let fd = types::Fd(fd);
        let (vectors, count) = (request.vectors.as_ptr(), request.vectors.len() as u32);
        let entry = match request.direction {
            Direction::Read => opcode::Readv::new(fd, vectors, count).offset(request.offset).build(),
            Direction::Write { durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                opcode::Writev::new(fd, vectors, count).offset(request.offset).rw_flags(flags).build()
            }
            Direction::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        // SAFETY: the vector list moves into the slot, which leaves its heap buffer in place until the request is
        // reaped. The caller vouches for the rest.
        let queued = unsafe { self.ring.submission().push(&entry.user_data(u64::from(slot))) };
        if queued.is_err() {
            self.free.push(slot);
            return Err(request.vectors);
        }
        self.slots[slot as usize] = Some(request);
        self.pushed = true;
        Ok(())
    }

    /// Submits queued requests to the kernel, if there are any.
    pub(in super::super) fn submit(&mut self) {
        if self.pushed {
            // After a refusal (EAGAIN, EBUSY, EINTR) the entries stay in the queue for the next call.
            self.pushed = self.ring.submit().is_err();
        }
    }

    /// Waits at most 1 ms for one completion.
    pub(in super::super) fn wait(&mut self) {
        let limit = types::Timespec::new().nsec(1_000_000);
        let args = types::SubmitArgs::new().timespec(&limit);
        // The caller checks for completions next, whatever ended the wait.
        if self.ring.submitter().submit_with_args(1, &args).is_ok() {
            self.pushed = false;
        }
    }

    /// Returns one request that has ended, with its result. After a short transfer, `finish` transfers the rest.
    pub(in super::super) fn reap(
        &mut self,
        finish: impl FnOnce(&mut Request, usize) -> io::Result<()>,
    ) -> Option<Finished> {
        let entry = self.ring.completion().next()?;
        let slot = entry.user_data() as usize;
        let mut request = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot as u32);
        let result = match entry.result() {
            n if n < 0 => Err(io::Error::from_raw_os_error(-n)),
            n if request.direction == Direction::Flush || n as usize == request.bytes => Ok(()),
            n => {
                // A short transfer: system calls transfer the rest.
                advance(&mut request.vectors, n as usize);
                finish(&mut request, n as usize)
            }
        };
        Some(Finished { request, result })
    }

    /// Takes back the vector list of a finished request, for use by another.
    pub(in super::super) fn recycle(&mut self, vectors: Vec<libc::iovec>) {
        self.spare.push(vectors);
    }
}
