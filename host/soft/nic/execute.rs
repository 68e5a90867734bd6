//! Responder side of a queue pair: carries out the peer's commands in order, each exactly once.

use super::frame::{Answer, Command, MAX_DATA};
use super::memory::{Denied, Entry, Memory};
use super::pair::Received;
use crate::rdma::Rights;
use crate::rdma::ring_service::ReceiveService;
use crate::wire::mlx5::cqe::Outcome;
use crate::wire::mlx5::{Completion, CqeOpcode, Failure, Syndrome, VendorSyndrome};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most responses that are kept for a peer that has not acknowledged them.
const MOST_ANSWERS: usize = 1024;

/// A posted receive.
#[derive(Debug)]
struct Receive {
    id: u64,
    places: Vec<(Arc<Entry>, u64, u32)>,
}

/// State of the responder side: the peer's commands and the posted receives.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// Sequence number of the next command.
    pub(super) expected: u64,
    /// Encoded responses that the peer may request again, with their sequence numbers.
    pub(super) answers: VecDeque<(u64, Vec<u8>)>,
    /// True once a command has failed: no further command is carried out.
    pub(super) failed: bool,
    receives: VecDeque<Receive>,
    /// Receives that have ended and were not polled yet.
    pub(super) received: VecDeque<Received>,
    /// Receive ring in memory, in place of receives that the host posts by calls.
    ring: Option<ReceiveService>,
}

impl Denied {
    fn at_responder(self) -> Failure {
        match self {
            Self::Misaligned { .. } => Failure::new(Syndrome::REMOTE_INVALID_REQUEST, VendorSyndrome::default()),
            Self::Gpu { .. } => Failure::new(Syndrome::REMOTE_OPERATION, VendorSyndrome::default()),
            _ => Failure::new(Syndrome::REMOTE_ACCESS, VendorSyndrome::REMOTE_ACCESS),
        }
    }

    /// Returns the failure for a request whose own memory was denied.
    pub(super) fn at_requester(self) -> Failure {
        Failure::new(Syndrome::LOCAL_PROTECTION, VendorSyndrome::default())
    }
}

impl Responder {
    /// Creates the state of a queue pair that has carried out nothing yet.
    pub(super) fn new(ring: Option<ReceiveService>) -> Self {
        Self { ring, ..Self::default() }
    }

    /// Returns true if a failure of this side ends the queue pair's send queue, too. That is so for queue pairs with a
    /// receive ring. Others serve one-sided operations, whose two directions fail separately.
    pub(super) fn has_ended(&self) -> bool {
        self.failed && self.ring.is_some()
    }

    /// Flushes the receives in memory, because the queue pair has failed.
    pub(super) fn flush(&mut self) {
        if let Some(ring) = &mut self.ring {
            self.failed = true;
            ring.flush();
        }
    }

    /// Returns the oldest receive, if there is one.
    fn oldest(&mut self, memory: &Memory) -> Result<Option<&Receive>, Failure> {
        if self.receives.is_empty()
            && let Some(ring) = &self.ring
        {
            let wrong = |s: Syndrome| Failure::new(s, VendorSyndrome::default());
            let Some(pieces) = ring.oldest().map_err(|e| wrong(e.syndrome()))? else { return Ok(None) };
            let mut places = Vec::with_capacity(pieces.len());
            for p in pieces {
                let (key, address, bytes) = (p.key.get(), p.address.get(), p.bytes.get());
                let entry = memory.find(key, address, bytes.into(), Rights::LOCAL_WRITE);
                places.push((entry.map_err(|_| wrong(Syndrome::LOCAL_PROTECTION))?, address, bytes));
            }
            self.receives.push_back(Receive { id: ring.position(), places });
        }
        Ok(self.receives.front())
    }

    /// Fails the oldest receive. The requester is told that its request is invalid, or could not be carried out.
    fn refuse(&mut self, here: Failure) -> Failure {
        match &mut self.ring {
            Some(ring) => ring.fail(here),
            None => {
                let id = self.receives.pop_front().map_or(0, |r| r.id);
                self.ended(id, 0, Outcome::ReceiveFailed(here));
            }
        }
        let there = match here.syndrome {
            Syndrome::LOCAL_LENGTH => Syndrome::REMOTE_INVALID_REQUEST,
            _ => Syndrome::REMOTE_OPERATION,
        };
        Failure::new(there, VendorSyndrome::default())
    }

    /// Posts a receive. Returns false if `most` receives are posted or not polled yet.
    #[cfg(feature = "internals")]
    pub(super) fn post(&mut self, id: u64, places: Vec<(Arc<Entry>, u64, u32)>, most: usize) -> bool {
        let room = self.receives.len() + self.received.len() < most;
        if room {
            self.receives.push_back(Receive { id, places });
        }
        room
    }

    /// Drops the responses to commands before number `answered`, which the peer has received.
    pub(super) fn forget(&mut self, answered: u64) {
        while self.answers.front().is_some_and(|(n, _)| *n < answered) {
            self.answers.pop_front();
        }
    }

    /// Returns the stored response to a command that was carried out before.
    pub(super) fn again(&self, sequence: u64) -> Option<&[u8]> {
        self.answers.iter().find(|(n, _)| *n == sequence).map(|(_, bytes)| bytes.as_slice())
    }

    /// Returns true if another response can be kept.
    pub(super) fn has_room(&self) -> bool {
        self.answers.len() < MOST_ANSWERS
    }

    /// Carries out a command. Bytes read go to `data`.
    pub(super) fn execute<'a>(&mut self, memory: &Memory, command: &Command<'_>, data: &'a mut Vec<u8>) -> Answer<'a> {
        let flushed = Failure::new(Syndrome::FLUSHED, VendorSyndrome::FLUSHED);
        if self.failed {
            return Answer::Failed(flushed);
        }
        let answer = if command.is_sound() {
            self.carry_out(memory, command, data)
        } else {
            Err(Failure::new(Syndrome::REMOTE_INVALID_REQUEST, VendorSyndrome::default()))
        };
        answer.unwrap_or_else(|failure| {
            self.failed = true;
            self.flush();
            Answer::Failed(failure)
        })
    }

    fn carry_out<'a>(
        &mut self,
        memory: &Memory,
        command: &Command<'_>,
        out: &'a mut Vec<u8>,
    ) -> Result<Answer<'a>, Failure> {
        let denied = Denied::at_responder;
        match *command {
            Command::Write { remote, total, offset, data, immediate } => {
                if immediate.is_some() && !self.has_receive(memory)? {
                    return Ok(Answer::NotReady);
                }
                // A message without bytes accesses no memory, so its key is not checked.
                if total > 0 {
                    let entry = memory.find(remote.key, remote.address, total, Rights::REMOTE_WRITE).map_err(denied)?;
                    entry.write(remote.address + offset, data).map_err(denied)?;
                }
                if immediate.is_some() {
                    self.received(total, CqeOpcode::WriteImm, immediate, None);
                }
                Ok(Answer::Done)
            }
            Command::Read { remote, total, offset, bytes } => {
                out.clear();
                if total > 0 {
                    let entry = memory.find(remote.key, remote.address, total, Rights::REMOTE_READ).map_err(denied)?;
                    out.resize((bytes as usize).min(MAX_DATA), 0);
                    entry.read(remote.address + offset, out).map_err(denied)?;
                }
                Ok(Answer::Data(out))
            }
            Command::Atomic { remote, action } => {
                memory.change(remote.key, remote.address, &action).map(Answer::Old).map_err(denied)
            }
            Command::Send { total, offset, data, immediate } => self.receive(memory, total, offset, data, immediate),
        }
    }

    fn has_receive(&mut self, memory: &Memory) -> Result<bool, Failure> {
        match self.oldest(memory) {
            Ok(receive) => Ok(receive.is_some()),
            Err(here) => Err(self.refuse(here)),
        }
    }

    /// Puts a part of a message into the oldest receive.
    fn receive<'a>(
        &mut self,
        memory: &Memory,
        total: u64,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
    ) -> Result<Answer<'a>, Failure> {
        let in_entry = self.ring.as_ref().is_some_and(|r| r.lands_in_entry(total));
        let landed = match self.oldest(memory) {
            Ok(None) => return Ok(Answer::NotReady),
            Ok(Some(receive)) => {
                let room: u64 = receive.places.iter().map(|p| u64::from(p.2)).sum();
                match total > room {
                    true => Err(Failure::new(Syndrome::LOCAL_LENGTH, VendorSyndrome::default())),
                    false if in_entry => Ok(()),
                    false => scatter(&receive.places, offset, data).map_err(Denied::at_requester),
                }
            }
            Err(here) => Err(here),
        };
        landed.map_err(|here| self.refuse(here))?;
        if offset + data.len() as u64 == total {
            let what = if immediate.is_some() { CqeOpcode::SendImm } else { CqeOpcode::Send };
            self.received(total, what, immediate, in_entry.then_some(data));
        }
        Ok(Answer::Done)
    }

    /// Completes the oldest receive.
    fn received(&mut self, bytes: u64, what: CqeOpcode, immediate: Option<u32>, in_entry: Option<&[u8]>) {
        let Some(receive) = self.receives.pop_front() else { return };
        let bytes = bytes.min(u32::MAX.into()) as u32;
        match &mut self.ring {
            Some(ring) => ring.complete(bytes, what, immediate, in_entry),
            None => self.ended(receive.id, bytes, Outcome::Received { what, immediate }),
        }
    }

    fn ended(&mut self, id: u64, bytes: u32, outcome: Outcome) {
        let completion =
            Completion { qpn: 0, user_index: 0, wqe_counter: id as u16, opcode: 0, bytes, solicited: false, outcome };
        self.received.push_back(Received { id, completion });
    }
}

/// Writes `data` to consecutive pieces of memory, starting `offset` bytes into them.
pub(super) fn scatter(places: &[(Arc<Entry>, u64, u32)], offset: u64, data: &[u8]) -> Result<(), Denied> {
    over(places, offset, data.len(), |entry, address, at, bytes| entry.write(address, &data[at..at + bytes]))
}

/// Reads `out.len()` bytes from consecutive pieces of memory, starting `offset` bytes into them.
pub(super) fn gather(places: &[(Arc<Entry>, u64, u32)], offset: u64, out: &mut [u8]) -> Result<(), Denied> {
    let bytes = out.len();
    over(places, offset, bytes, |entry, address, at, bytes| entry.read(address, &mut out[at..at + bytes]))
}

/// Splits the range of `bytes` bytes at `offset` at the pieces' borders. Calls `f` with each part's address, position
/// in the range, and length.
pub(super) fn over(
    places: &[(Arc<Entry>, u64, u32)],
    mut offset: u64,
    bytes: usize,
    mut f: impl FnMut(&Entry, u64, usize, usize) -> Result<(), Denied>,
) -> Result<(), Denied> {
    let mut at = 0;
    for (entry, address, length) in places {
        let length = u64::from(*length);
        if at == bytes {
            break;
        }
        if offset >= length {
            offset -= length;
            continue;
        }
        let part = ((length - offset) as usize).min(bytes - at);
        f(entry, address + offset, at, part)?;
        at += part;
        offset = 0;
    }
    Ok(())
}
