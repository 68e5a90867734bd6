//! Reads, writes and flushes in flight through io_uring, one ring for each service thread.

use super::advance;
use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::RawFd;

/// Commands in flight per service thread.
const IN_FLIGHT: u32 = 256;

/// What a request moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Direction {
    Read,
    /// `durable`: the medium has it before the completion.
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
    /// Index of the namespace.
    pub(in super::super) namespace: usize,
    pub(in super::super) direction: Direction,
    pub(in super::super) offset: u64,
    pub(in super::super) bytes: usize,
    /// What the fault plan and the error log want to know about it.
    pub(in super::super) entry: crate::wire::nvme::SqEntry,
    pub(in super::super) vectors: Vec<libc::iovec>,
}

/// A command whose system call has ended.
#[derive(Debug)]
pub(in super::super) struct Finished {
    pub(in super::super) request: Request,
    pub(in super::super) result: io::Result<()>,
}

/// One io_uring and what is in it.
pub(in super::super) struct Ring {
    ring: IoUring,
    slots: Vec<Option<Request>>,
    free: Vec<u32>,
    spare: Vec<Vec<libc::iovec>>,
    pushed: bool,
}

// SAFETY: the vectors in the slots are plain addresses; the thread that owns the ring owns their use.
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

    /// Requests that it still takes.
    pub(in super::super) fn room(&self) -> usize {
        self.free.len()
    }

    pub(in super::super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Requests of one submission queue.
    pub(in super::super) fn in_flight_of(&self, sqid: u16) -> usize {
        self.slots.iter().flatten().filter(|r| r.sqid == sqid).count()
    }

    /// A vector list to fill for the next request.
    pub(in super::super) fn take_vectors(&mut self) -> Vec<libc::iovec> {
        self.spare.pop().unwrap_or_default()
    }

    /// Queues a request; gives its vectors back when there is no room.
    ///
    /// # Safety
    /// The memory that the vectors name and the descriptor must stay valid until the request comes out of
    /// [`Ring::reap`].
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
        // SAFETY: the vector list moves into the slot with its heap buffer in place and stays there until it is reaped;
        // the rest is the caller's promise.
        let queued = unsafe { self.ring.submission().push(&entry.user_data(u64::from(slot))) };
        if queued.is_err() {
            self.free.push(slot);
            return Err(request.vectors);
        }
        self.slots[slot as usize] = Some(request);
        self.pushed = true;
        Ok(())
    }

    /// Hands queued requests to the kernel, if there are any.
    pub(in super::super) fn submit(&mut self) {
        if self.pushed {
            // A refusal (EAGAIN, EBUSY, EINTR) leaves the entries in the queue for the next call.
            self.pushed = self.ring.submit().is_err();
        }
    }

    /// Waits a short while for one completion.
    pub(in super::super) fn wait(&mut self) {
        let limit = types::Timespec::new().nsec(1_000_000);
        let args = types::SubmitArgs::new().timespec(&limit);
        // Whatever ends the wait, the caller looks at the completions next.
        if self.ring.submitter().submit_with_args(1, &args).is_ok() {
            self.pushed = false;
        }
    }

    /// Takes out one request that has ended, with the memory that it moved or the system's error.
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
                // A short transfer: the rest goes the plain way.
                advance(&mut request.vectors, n as usize);
                finish(&mut request, n as usize)
            }
        };
        Some(Finished { request, result })
    }

    /// Takes back the vector list of a finished request.
    pub(in super::super) fn recycle(&mut self, vectors: Vec<libc::iovec>) {
        self.spare.push(vectors);
    }
}
