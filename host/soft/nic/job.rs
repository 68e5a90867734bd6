//! A work request in progress: its memory, and how much of it is done.

use super::execute::{gather, over, scatter};
use super::fault::FaultAction;
use super::frame::{Answer, Command, MAX_DATA};
use super::memory::{Denied, Entry, Memory};
use crate::rdma::Rights;
use crate::rdma::ring_service::Posted;
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::wqe::{Remote, SendWith};
use crate::wire::mlx5::{Atomic, Failure, Fence, Operation, Payload, Syndrome, VendorSyndrome, Wqe};
use std::sync::Arc;
use std::time::Instant;

/// Kind of a work request, with its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Needs no command to the peer.
    Local,
    Write {
        remote: Remote,
        immediate: Option<u32>,
    },
    Read {
        remote: Remote,
    },
    Send {
        immediate: Option<u32>,
    },
    Atomic {
        remote: Remote,
        action: Atomic,
    },
}

/// Reason why a request failed: the failure for the completion, and a text for users.
#[derive(Clone, Debug)]
pub(super) struct RequestError {
    pub(super) failure: Failure,
    pub(super) text: String,
}

impl RequestError {
    pub(super) fn new(failure: Failure, text: impl Into<String>) -> Self {
        Self { failure, text: text.into() }
    }

    /// Returns the error for a peer that does not respond.
    pub(super) fn no_answer(text: impl Into<String>) -> Self {
        Self::new(Failure::new(Syndrome::RETRY_EXCEEDED, VendorSyndrome::RETRY_EXCEEDED), text)
    }

    fn denied(what: &str, denied: Denied) -> Self {
        Self::new(denied.at_requester(), format!("{what}: {denied}"))
    }
}

/// A work request in progress.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) posted: Posted,
    pub(super) kind: Kind,
    places: Vec<(Arc<Entry>, u64, u32)>,
    inline: Vec<u8>,
    total: u64,
    /// Bytes covered by the commands created so far, and bytes whose responses have arrived.
    issued: u64,
    answered: u64,
    /// Number of commands created, and number of responses.
    commands: u64,
    answers: u64,
    /// True once all commands are created.
    pub(super) complete: bool,
    /// True if the request starts only after all requests before it are complete.
    pub(super) fenced: bool,
    pub(super) action: FaultAction,
    /// Earliest time at which the request completes.
    pub(super) due: Option<Instant>,
    pub(super) error: Option<RequestError>,
}

impl Job {
    /// Starts a request. Looks up its memory and checks it.
    pub(super) fn new(posted: Posted, wqe: &Wqe<'_>, memory: &Memory, action: FaultAction) -> Self {
        let mut job = Self {
            posted,
            kind: Kind::Local,
            places: Vec::new(),
            inline: Vec::new(),
            total: wqe.operation.bytes(),
            issued: 0,
            answered: 0,
            commands: 0,
            answers: 0,
            complete: false,
            fenced: !matches!(wqe.flags.fence, Fence::None | Fence::InitiatorSmall),
            action,
            // The time at which the service's round began may be earlier than the post.
            due: (!action.delay.is_zero()).then(|| Instant::now() + action.delay),
            error: None,
        };
        let read = Rights::default();
        let known = match wqe.operation {
            Operation::Nop => Ok(()),
            Operation::Dump { piece } => job.place(memory, &[piece], read),
            Operation::Write { remote, payload, immediate } => {
                job.kind = Kind::Write { remote, immediate };
                job.payload(memory, payload)
            }
            Operation::Send { payload, with: SendWith::Nothing } => {
                job.kind = Kind::Send { immediate: None };
                job.payload(memory, payload)
            }
            Operation::Send { payload, with: SendWith::Immediate(value) } => {
                job.kind = Kind::Send { immediate: Some(value) };
                job.payload(memory, payload)
            }
            Operation::Read { remote, into } => {
                job.kind = Kind::Read { remote };
                job.place(memory, into, Rights::LOCAL_WRITE)
            }
            Operation::Atomic { remote, action, landing } => {
                job.kind = Kind::Atomic { remote, action };
                job.place(memory, &[landing], Rights::LOCAL_WRITE)
            }
            ref other => {
                let failure = Failure::new(Syndrome::LOCAL_QP_OPERATION, VendorSyndrome::default());
                let text = format!("{} is not supported by a software NIC", other.opcode());
                job.error = Some(RequestError::new(failure, text));
                Ok(())
            }
        };
        if let Err(e) = known {
            job.error = Some(RequestError::denied("local memory", e));
        }
        if let Some(failure) = action.failure {
            job.error = Some(RequestError::new(failure, "by the fault plan"));
        }
        job.complete = matches!(job.kind, Kind::Local);
        job
    }

    fn payload(&mut self, memory: &Memory, payload: Payload<'_>) -> Result<(), Denied> {
        match payload {
            Payload::Pieces(pieces) => self.place(memory, pieces, Rights::default()),
            Payload::Inline(bytes) => {
                self.inline = bytes.to_vec();
                Ok(())
            }
        }
    }

    fn place(&mut self, memory: &Memory, pieces: &[DataSegment], need: Rights) -> Result<(), Denied> {
        for p in pieces {
            let (address, bytes) = (p.address.get(), p.bytes.get());
            self.places.push((memory.find(p.key.get(), address, bytes.into(), need)?, address, bytes));
        }
        Ok(())
    }

    /// Creates the next command. Returns it with the number of bytes that it moves. Data is gathered into `scratch`.
    pub(super) fn command<'a>(&mut self, scratch: &'a mut Vec<u8>) -> Result<(Command<'a>, usize), RequestError> {
        let (total, offset) = (self.total, self.issued);
        let bytes = ((total - offset) as usize).min(MAX_DATA);
        let last = offset + bytes as u64 == total;
        let command = match self.kind {
            Kind::Write { remote, immediate } => {
                let data = self.data(bytes, scratch)?;
                Command::Write { remote, total, offset, data, immediate: immediate.filter(|_| last) }
            }
            // `Local` requests are complete from the start and never get here.
            Kind::Send { .. } | Kind::Local => {
                let immediate = if let Kind::Send { immediate } = self.kind { immediate } else { None };
                let data = self.data(bytes, scratch)?;
                Command::Send { total, offset, data, immediate: immediate.filter(|_| last) }
            }
            Kind::Read { remote } => Command::Read { remote, total, offset, bytes: bytes as u32 },
            Kind::Atomic { remote, action } => Command::Atomic { remote, action },
        };
        self.issued += bytes as u64;
        self.commands += 1;
        self.complete = last;
        Ok((command, bytes))
    }

    /// Undoes the last command, which was not carried out.
    pub(super) fn take_back(&mut self, bytes: usize) {
        self.issued -= bytes as u64;
        self.commands -= 1;
        self.complete = false;
    }

    fn data<'a>(&self, bytes: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], RequestError> {
        scratch.resize(bytes, 0);
        if self.places.is_empty() {
            let from = self.issued as usize;
            scratch.copy_from_slice(self.inline.get(from..from + bytes).unwrap_or_default());
        } else {
            gather(&self.places, self.issued, scratch).map_err(|e| RequestError::denied("local memory", e))?;
        }
        Ok(scratch)
    }

    /// Copies the next part of a write directly from memory to memory if both are host memory. Returns `None` if that
    /// is not possible.
    pub(super) fn write_through(&mut self, there: &Memory) -> Option<Result<usize, RequestError>> {
        let Kind::Write { remote, immediate: None } = self.kind else { return None };
        if self.places.is_empty() {
            return None;
        }
        let bytes = ((self.total - self.issued) as usize).min(MAX_DATA);
        let target = there.find(remote.key, remote.address, self.total, Rights::REMOTE_WRITE).ok()?;
        let base = remote.address + self.issued;
        let mut by_buffer = false;
        let moved = over(&self.places, self.issued, bytes, |entry, address, at, part| {
            // If one part needs a buffer, the whole is written again through one.
            match entry.copy_to(address, &target, base + at as u64, part).filter(|_| !by_buffer) {
                Some(result) => result,
                None => {
                    by_buffer = true;
                    Ok(())
                }
            }
        });
        if by_buffer || moved.is_err() {
            return None;
        }
        self.issued += bytes as u64;
        self.answered = self.issued;
        self.complete = self.issued == self.total;
        Some(Ok(bytes))
    }

    /// Returns true if the request waits for responses.
    pub(super) fn waits(&self) -> bool {
        self.answers < self.commands
    }

    /// Processes the response to the oldest command without one. An error fails the request.
    pub(super) fn answer(&mut self, answer: &Answer<'_>) -> Result<(), RequestError> {
        self.answers += 1;
        let unfit = || Failure::new(Syndrome::BAD_RESPONSE, VendorSyndrome::default());
        match (self.kind, answer) {
            (Kind::Write { .. } | Kind::Send { .. }, Answer::Done) => Ok(()),
            (Kind::Read { .. }, Answer::Data(data)) => {
                let wanted = ((self.total - self.answered) as usize).min(MAX_DATA);
                if data.len() != wanted {
                    return Err(RequestError::new(
                        unfit(),
                        format!("{} bytes were received, and {wanted} were requested", data.len()),
                    ));
                }
                scatter(&self.places, self.answered, data)
                    .map_err(|e| RequestError::denied("the memory for the result", e))?;
                self.answered += data.len() as u64;
                Ok(())
            }
            (Kind::Atomic { action, .. }, Answer::Old(old)) => {
                let bytes = action.landing(*old);
                let bytes = &bytes[..action.operand_bytes() as usize];
                scatter(&self.places, 0, bytes).map_err(|e| RequestError::denied("the memory for the result", e))
            }
            (_, Answer::Failed(failure)) => Err(RequestError::new(*failure, "refused by the peer")),
            (_, Answer::Gone(why)) => Err(RequestError::no_answer(*why)),
            _ => Err(RequestError::new(unfit(), "a response of another kind than the request")),
        }
    }
}
