//! One queue's connection by RDMA, which a host thread drives: capsules, keyed data, responses.

use super::buffers::{Buffer, Buffers};
use super::transport::of_adapter;
use crate::engine::abi;
use crate::memory::Region;
use crate::nvme::fabrics::{Commands, Direction, DriverMemory, FabricsError, Link};
use crate::rdma::{Adapter, Connection, CpuReceiveQueue, CpuSendQueue, PostError, PostRequests};
use crate::wire::mlx5::wqe::SendWith;
use crate::wire::mlx5::{Operation, Payload};
use crate::wire::nvme::fabrics::{descriptor, sgl};
use crate::wire::nvme::rdma::{MAX_KEYED_BYTES, RESPONSE_BYTES, keyed};
use crate::wire::nvme::{CqEntry, fabrics};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Responses that are taken before the owner gets to do other work.
const BATCH: usize = 64;
/// Interval between two looks at the state of a queue pair: an mlx5 NIC's firmware is asked for it. A failure with
/// commands in flight comes with their completions.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A connected queue pair with its memory.
#[derive(Debug)]
pub(super) struct ConnectedQueue {
    pub(super) peer: String,
    pub(super) send: CpuSendQueue,
    pub(super) receives: CpuReceiveQueue,
    pub(super) connection: Box<dyn Connection>,
    /// Memory of the receives, [`RESPONSE_BYTES`] for each of `receive_slots`.
    pub(super) responses: Buffer,
    pub(super) receive_slots: u64,
    /// Memory of capsules, `capsule_bytes` for each entry of the queue.
    pub(super) capsules: Buffer,
    pub(super) entries: usize,
    pub(super) capsule_bytes: usize,
    /// Largest data in bytes that goes with a capsule, whatever the target takes.
    pub(super) in_capsule_room: u32,
    pub(super) adapter: Arc<dyn Adapter>,
}

/// A connection that a host thread drives.
#[derive(Debug)]
pub(super) struct RdmaLink {
    queue: ConnectedQueue,
    buffers: Buffers,
    /// Buffer of each command whose data the target reads or writes, by its identifier.
    data: BTreeMap<u16, Buffer>,
    /// Capsule slots that are free, and those whose send may not be complete, with the position behind it.
    free: Vec<usize>,
    sent: VecDeque<(u64, usize)>,
    /// Capsules that wait for room in the send ring, or for a slot: a response may arrive before the adapter tells that
    /// its command was sent.
    waiting: VecDeque<Vec<u8>>,
    in_capsule: u32,
    /// Time of the next look at the state of the queue pair.
    next_poll: Cell<Option<Instant>>,
}

impl RdmaLink {
    pub(super) fn new(queue: ConnectedQueue) -> Self {
        Self {
            buffers: Buffers::new(queue.adapter.clone()),
            data: BTreeMap::new(),
            free: (0..queue.entries).rev().collect(),
            sent: VecDeque::new(),
            waiting: VecDeque::new(),
            in_capsule: 0,
            next_poll: Cell::new(None),
            queue,
        }
    }

    fn lost(&self, e: &PostError) -> FabricsError {
        FabricsError::Lost { peer: self.queue.peer.clone(), reason: e.to_string() }
    }

    fn adapter_error(&self, e: &dyn std::fmt::Display) -> FabricsError {
        of_adapter(&self.queue.peer, e)
    }

    fn violation(&self, reason: String) -> FabricsError {
        FabricsError::Protocol { peer: self.queue.peer.clone(), reason }
    }

    /// Takes completions of sends. Their capsule slots are free again.
    fn reclaim(&mut self) -> Result<(), FabricsError> {
        let completed = self.queue.send.poll().map_err(|e| self.lost(&e))?;
        while let Some((_, slot)) = self.sent.front().copied().filter(|(end, _)| *end <= completed) {
            self.sent.pop_front();
            self.free.push(slot);
        }
        Ok(())
    }

    /// Posts capsules while the send ring has room. Returns true if any was posted.
    fn post(&mut self) -> Result<bool, FabricsError> {
        let mut any = false;
        while self.queue.send.room() > 0
            && let Some(slot) = self.free.last().copied()
            && let Some(capsule) = self.waiting.pop_front()
        {
            let at = slot * self.queue.capsule_bytes;
            self.queue.capsules.region().write(at, &capsule).map_err(|e| self.adapter_error(&e))?;
            let piece = [self.queue.capsules.piece(at, capsule.len() as u32)];
            let send = Operation::Send { payload: Payload::Pieces(&piece), with: SendWith::Nothing };
            let end = self.queue.send.post(send, true).map_err(|e| self.lost(&e))?;
            self.free.pop();
            self.sent.push_back((end, slot));
            any = true;
        }
        if any {
            self.queue.send.ring();
        }
        Ok(any)
    }

    /// Takes a response capsule, if one has arrived.
    fn respond(&mut self, commands: &mut Commands, memory: &DriverMemory<'_>) -> Result<bool, FabricsError> {
        let Some(message) = self.queue.receives.poll().map_err(|e| self.lost(&e))? else { return Ok(false) };
        if message.bytes as usize != RESPONSE_BYTES {
            return Err(self.violation(format!("a response capsule of {} bytes", message.bytes)));
        }
        let at = (message.position % self.queue.receive_slots) as usize * RESPONSE_BYTES;
        let bytes: [u8; RESPONSE_BYTES] = match message.in_entry {
            Some(data) => bytemuck::pod_read_unaligned(&data[..RESPONSE_BYTES]),
            None => self.queue.responses.region().get(at).map_err(|e| self.adapter_error(&e))?,
        };
        let response: CqEntry = bytemuck::cast(bytes);
        // The receive is posted again before another command can make use of it.
        let piece = [self.queue.responses.piece(at, RESPONSE_BYTES as u32)];
        self.queue.receives.post(&piece).map_err(|e| self.lost(&e))?;
        let cid = response.cid();
        if let Some(buffer) = self.data.remove(&cid) {
            let c = commands.get(cid).map_err(|e| self.violation(e))?;
            if c.direction == Direction::In && response.status().is_success() {
                let mut data = vec![0; c.bytes as usize];
                buffer.region().read(0, &mut data).map_err(|e| self.adapter_error(&e))?;
                commands.store(cid, 0, &data, true, memory).map_err(|e| self.violation(e))?;
            }
            self.buffers.give_back(buffer);
        }
        commands.complete(&response).map_err(|e| self.violation(e))?;
        Ok(true)
    }
}

impl Link for RdmaLink {
    fn submit(&mut self, cid: u16, commands: &mut Commands, memory: &DriverMemory<'_>) -> Result<(), FabricsError> {
        let c = commands.get(cid).map_err(|e| self.violation(e))?;
        let mut entry = c.capsule(cid);
        let (direction, bytes) = (c.direction, c.bytes);
        if bytes > MAX_KEYED_BYTES {
            return Err(self.violation(format!("a command of {bytes} bytes; a keyed data block has at most 16777215")));
        }
        let room = if entry.opcode() == fabrics::OPCODE { 0 } else { self.in_capsule };
        let carries = direction == Direction::Out && bytes > 0 && bytes <= room;
        let mut data = vec![0; if direction == Direction::Out { bytes as usize } else { 0 }];
        if !data.is_empty() {
            let lost = |reason| FabricsError::Lost { peer: self.queue.peer.clone(), reason };
            commands.load(cid, 0, &mut data, memory).map_err(lost)?;
            commands.carried(cid);
        }
        (entry.prp1, entry.prp2) = match (carries, direction) {
            (true, _) => descriptor(sgl::IN_CAPSULE, 0, bytes),
            (false, Direction::None) => keyed(0, 0, 0),
            (false, _) => {
                let buffer = self.buffers.take(bytes as usize).map_err(|e| self.adapter_error(&e))?;
                buffer.region().write(0, &data).map_err(|e| self.adapter_error(&e))?;
                let block = keyed(buffer.address(), bytes, buffer.remote_key());
                self.data.insert(cid, buffer);
                block
            }
        };
        let mut capsule = bytemuck::bytes_of(&entry).to_vec();
        if carries {
            capsule.extend(data);
        }
        self.waiting.push_back(capsule);
        self.post().map(drop)
    }

    fn progress(&mut self, commands: &mut Commands, memory: &DriverMemory<'_>) -> Result<bool, FabricsError> {
        let mut moved = false;
        for _ in 0..BATCH {
            if !self.respond(commands, memory)? {
                break;
            }
            moved = true;
        }
        self.reclaim()?;
        moved |= self.post()?;
        if !moved && let Some(reason) = self.queue.connection.ended() {
            return Err(FabricsError::Lost { peer: self.queue.peer.clone(), reason });
        }
        Ok(moved)
    }

    fn backlog(&self) -> usize {
        self.waiting.iter().map(Vec::len).sum()
    }

    fn descriptor(&self) -> RawFd {
        self.queue.connection.descriptor()
    }

    fn wakes(&self) -> bool {
        false
    }

    fn peer(&self) -> &str {
        &self.queue.peer
    }

    fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule = bytes.min(self.queue.in_capsule_room);
    }

    fn rings(&self) -> Option<abi::Capsules> {
        let pair = self.queue.send.queue();
        let memory = pair.memory();
        let receives = memory.receives()?;
        let send = memory.send_queue(pair.number(), pair.flags());
        Some(abi::Capsules {
            ring: send.ring,
            sent: send.completions,
            received: receives.completions().address(),
            responses: self.queue.responses.region().address(),
            record: send.record,
            doorbell: send.doorbell,
            queue_word: send.queue_word,
            log_blocks: send.log_blocks,
            log_receives: receives.plan().log_slots,
            flags: send.flags,
            posted: self.queue.send.posted() as u32,
            in_capsule_bytes: self.in_capsule,
            taken: self.queue.receives.consumed() as u32,
            ..bytemuck::Zeroable::zeroed()
        })
    }

    fn posts(&self) -> u64 {
        self.queue.send.posted() + self.queue.receives.posted()
    }

    fn failure(&self) -> Option<String> {
        if let Some(reason) = self.queue.connection.ended() {
            return Some(reason);
        }
        let now = Instant::now();
        if self.next_poll.get().is_some_and(|next| now < next) {
            return None;
        }
        self.next_poll.set(Some(now + POLL_INTERVAL));
        self.queue.send.failure()
    }

    fn retire(self: Box<Self>) -> Vec<Region> {
        let memory = self.queue.send.queue().memory();
        let mut kept = vec![memory.work(), memory.completions(), memory.records(), memory.doorbell_memory()];
        kept.extend(memory.receives().map(|r| r.completions()));
        kept.push(self.queue.responses.region());
        // The queue pair is closed here; its memory is not freed.
        kept.into_iter().cloned().collect()
    }
}
