//! One end of the connections: queue pairs, memory and keys, and the content of the memory before and after a test.

use super::difference::{same_initiators, same_setting};
use super::setting::{Setting, Test, Verb};
use super::table::Address;
use super::{Initiator, Kind, Side, kernel};
use crate::workloads::error::MeasureError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use warpbell::memory::{MemoryError, Place, Region, Space};
use warpbell::rdma::{
    CpuSendQueue, PostRequests, QueueAddress, QueuePair, QueuePlan, RdmaError, Registration, Rights,
    UnconnectedSendQueue,
};
use warpbell::shmem::bootstrap::Bootstrap;

/// Minimum number of blocks of a send queue, as the exponent of a power of two.
const LEAST_LOG_BLOCKS: u32 = 4;
/// Number of values that the last byte of a message takes, from 1 on.
const SIGNS: u64 = 254;
/// Last byte of the last message of a test that runs for a time.
pub(super) const LAST_CALL: u8 = 255;

/// Returns the last byte of message `i` of a ping-pong, as in `kernels/bench/rdma.cu`.
pub(super) fn sign_of(i: u64) -> u8 {
    (i % SIGNS + 1) as u8
}

/// Data that one side needs about the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct EndpointInfo {
    /// Setting of the side: both must measure the same.
    setting: Setting,
    initiator: Initiator,
    queues: Vec<QueueAddress>,
    numbers: Vec<u32>,
    address: u64,
    key: u32,
}

/// Counts of checked messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checked {
    pub verified: u64,
    pub wrong: u64,
}

impl Checked {
    pub(super) fn and(self, other: &Self) -> Self {
        Self { verified: self.verified + other.verified, wrong: self.wrong + other.wrong }
    }

    fn one(&mut self, right: bool) {
        self.verified += 1;
        self.wrong += u64::from(!right);
    }
}

fn log_blocks_of(setting: &Setting) -> u32 {
    setting.tx_depth.next_power_of_two().ilog2().max(LEAST_LOG_BLOCKS)
}

/// Returns the error of a measurement whose other side failed.
pub(super) fn other_side(rank: usize, reason: impl fmt::Display) -> MeasureError {
    MeasureError::Failed(format!("the other side (rank {rank}): {reason}"))
}

/// Returns the error of a measurement that is not between two sides.
pub fn not_two(ranks: usize) -> MeasureError {
    MeasureError::Refused(format!("a measurement needs two ranks, and there are {ranks}; start two"))
}

/// Sends `mine` to the other side, and returns both sides' values in the order of their ranks.
pub(super) fn exchange<T: Serialize + DeserializeOwned>(
    side: &Side<'_>,
    within: Duration,
    mine: &T,
) -> Result<Vec<T>, MeasureError> {
    exchange_between(side.ranks, within, mine)
}

/// Exchanges values as [`exchange`] does, before a [`Side`] exists.
pub(super) fn exchange_between<T: Serialize + DeserializeOwned>(
    ranks: &dyn Bootstrap,
    within: Duration,
    mine: &T,
) -> Result<Vec<T>, MeasureError> {
    if ranks.size() != 2 {
        return Err(not_two(ranks.size()));
    }
    let other = 1 - ranks.rank();
    let unreadable = |reason: String| other_side(other, reason);
    let bytes = serde_json::to_vec(mine).map_err(|e| unreadable(e.to_string()))?;
    let all = ranks.allgather(&bytes, within)?;
    let read = |bytes: &Vec<u8>| {
        serde_json::from_slice(bytes)
            .map_err(|e| unreadable(format!("{e}; use the same version of warpbell on both sides")))
    };
    all.iter().map(read).collect()
}

/// Half of an endpoint's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// Data to send.
    Outbox,
    /// Received data.
    Inbox,
}

/// Queue pairs, by the initiator that drives them.
#[derive(Debug)]
pub(super) enum Driver {
    /// Kernels drive the queue pairs, by a table of them.
    Kernel(Vec<Box<dyn QueuePair>>, kernel::Queues),
    /// The CPU drives the queue pairs.
    Host(Vec<Box<dyn PostRequests>>),
}

/// A queue pair of either kind before it is connected.
enum NewQueuePair {
    Rings(Box<dyn QueuePair>),
    Direct(Box<dyn UnconnectedSendQueue>),
}

impl NewQueuePair {
    fn new(side: &Side<'_>, initiator: Initiator, memory: &Region, setting: &Setting) -> Result<Self, MeasureError> {
        if initiator != Initiator::Verbs {
            let (space, log_blocks) = (memory.space().clone(), log_blocks_of(setting));
            let plan = QueuePlan::new(space, memory.place()).log_blocks(log_blocks);
            return Ok(Self::Rings(side.adapter.create(plan)?));
        }
        let made = side.adapter.create_direct(setting.tx_depth)?;
        made.map(Self::Direct).ok_or_else(|| {
            let transport = side.adapter.path().transport;
            MeasureError::Refused(format!(
                "transport {transport} has no verbs calls: --initiator verbs needs --transport verbs"
            ))
        })
    }

    fn number(&self) -> u32 {
        match self {
            Self::Rings(pair) => pair.number(),
            Self::Direct(direct) => direct.number(),
        }
    }

    fn address(&self) -> QueueAddress {
        match self {
            Self::Rings(pair) => pair.address(),
            Self::Direct(direct) => direct.address(),
        }
    }

    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        match self {
            Self::Rings(pair) => pair.connect(peer),
            Self::Direct(direct) => direct.connect(peer),
        }
    }
}

impl Driver {
    fn new(side: &Side<'_>, initiator: Initiator, made: Vec<NewQueuePair>) -> Result<Self, MeasureError> {
        let mut pairs = Vec::new();
        let mut send_queues = Vec::new();
        for one in made {
            match one {
                NewQueuePair::Rings(pair) if initiator == Initiator::Kernel => pairs.push(pair),
                NewQueuePair::Rings(pair) => {
                    send_queues.push(Box::new(CpuSendQueue::new(pair)?) as Box<dyn PostRequests>)
                }
                NewQueuePair::Direct(direct) => send_queues.push(direct.into_send_queue()),
            }
        }
        if initiator != Initiator::Kernel {
            return Ok(Self::Host(send_queues));
        }
        let table = kernel::Queues::new(side, &pairs)?;
        Ok(Self::Kernel(pairs, table))
    }
}

#[derive(Debug)]
pub(super) struct Endpoint {
    // Fields are in drop order: the registration must not outlive the memory.
    registration: Box<dyn Registration>,
    memory: Region,
    peer: EndpointInfo,
    numbers: Vec<u32>,
    initiator: Initiator,
    span: u64,
    /// Bytes of each half; the memory may be longer.
    half: u64,
}

impl Endpoint {
    pub(super) fn new(
        side: &Side<'_>,
        setting: &Setting,
        initiator: Initiator,
    ) -> Result<(Self, Driver), MeasureError> {
        // A CPU that waits for a byte must be able to read it, so CPU initiators use host memory.
        let space = match initiator {
            Initiator::Kernel => side.engine.space().clone(),
            Initiator::Host | Initiator::Verbs => Space::cpu(),
        };
        let span = setting.span();
        let half = span * u64::from(setting.queue_pairs);
        let bytes = 2 * half as usize;
        let made = (|| -> Result<_, MeasureError> {
            let (memory, registration) = Self::memory(side, &space, bytes)?;
            let create = |_| NewQueuePair::new(side, initiator, &memory, setting);
            let queues = (0..setting.queue_pairs).map(create).collect::<Result<Vec<_>, _>>()?;
            Ok((memory, registration, queues))
        })();
        let info = made.as_ref().map_err(ToString::to_string).map(|(_, registration, queues)| EndpointInfo {
            setting: setting.clone(),
            initiator,
            queues: queues.iter().map(NewQueuePair::address).collect(),
            numbers: queues.iter().map(NewQueuePair::number).collect(),
            address: registration.address(),
            key: registration.remote_key(),
        });
        let infos: Vec<Result<EndpointInfo, String>> = exchange(side, super::LIMIT, &info)?;
        let (memory, registration, mut queues) = made?;
        let rank = 1 - side.ranks.rank();
        let peer = match infos.into_iter().nth(rank) {
            Some(Ok(peer)) => peer,
            Some(Err(reason)) => return Err(other_side(rank, reason)),
            None => return Err(other_side(rank, "it sent no message")),
        };
        same_initiators(&[initiator], &[peer.initiator])?;
        same_setting(setting, &peer.setting)?;
        let connected = queues.iter_mut().zip(&peer.queues).try_for_each(|(mine, theirs)| mine.connect(theirs));
        // No side sends before both are connected.
        let mine: Result<(), String> = connected.as_ref().map_err(ToString::to_string).copied();
        let all = exchange(side, super::LIMIT, &mine)?;
        connected?;
        if let Some(Err(reason)) = all.into_iter().nth(rank) {
            return Err(other_side(rank, reason));
        }
        let numbers = queues.iter().map(NewQueuePair::number).collect();
        let endpoint = Self { registration, memory, peer, numbers, initiator, span, half };
        let driver = Driver::new(side, initiator, queues)?;
        Ok((endpoint, driver))
    }

    /// Allocates and registers memory near the initiator, or in host memory if the adapter cannot register that.
    fn memory(side: &Side<'_>, space: &Space, bytes: usize) -> Result<(Region, Box<dyn Registration>), MeasureError> {
        let register = |place| {
            let memory = space.allocate(place, bytes)?;
            let registration = side.adapter.register_region(&memory, Rights::ALL)?;
            Ok((memory, registration))
        };
        match register(Place::Device) {
            Err(_) if space.gpu_context().is_some() => register(Place::Host),
            other => other,
        }
    }

    pub(super) fn memory_name(&self) -> &'static str {
        if self.memory.host().is_some() { "host memory" } else { "GPU memory" }
    }

    pub(super) fn region(&self) -> &Region {
        &self.memory
    }

    /// Returns the size in bytes of a queue pair's part of each half.
    pub(super) fn span(&self) -> u64 {
        self.span
    }

    pub(super) fn keys(&self) -> (u32, u32) {
        (self.registration.local_key(), self.peer.key)
    }

    /// Returns the offset of a half in the memory, in bytes.
    pub(super) fn offset(&self, half: Half) -> u64 {
        match half {
            Half::Outbox => 0,
            Half::Inbox => self.half,
        }
    }

    /// Returns the addresses of the local and the remote half that a message uses, as work requests name them.
    pub(super) fn ways(&self, verb: Verb) -> (u64, u64) {
        let (local, remote) =
            if verb == Verb::Read { (Half::Inbox, Half::Outbox) } else { (Half::Outbox, Half::Inbox) };
        (self.registration.address() + self.offset(local), self.peer.address + self.offset(remote))
    }

    /// Returns the addresses of the local and of the remote queue pairs.
    pub(super) fn addresses(&self) -> (Vec<Address>, Vec<Address>) {
        let (key, address) = (self.registration.remote_key(), self.registration.address());
        let local = self.numbers.iter().map(|&number| Address { number, key, address });
        let (key, address) = (self.peer.key, self.peer.address);
        let remote = self.peer.numbers.iter().map(|&number| Address { number, key, address });
        (local.collect(), remote.collect())
    }

    /// Returns the data that side `rank` sends for a size: a half with zeros where it has no messages of that size.
    fn pattern(&self, setting: &Setting, rank: usize, bytes: u64) -> Vec<u8> {
        let seed = mix(bytes << 8 | (rank as u64) << 4 | self.initiator as u64);
        let used = (setting.slots(bytes) * Setting::stride(bytes)) as usize;
        let mut pattern = vec![0; self.half as usize];
        let mut next = seed;
        for part in pattern.chunks_exact_mut(self.span as usize) {
            for word in part[..used].as_chunks_mut().0 {
                *word = mix(next).to_le_bytes();
                next = next.wrapping_add(1);
            }
        }
        pattern
    }

    /// Fills the outbox with data and clears the inbox. No side may send during this call.
    pub(super) fn prepare(&self, setting: &Setting, rank: usize, bytes: u64) -> Result<(), MemoryError> {
        self.memory.write(self.offset(Half::Outbox) as usize, &self.pattern(setting, rank, bytes))?;
        self.memory.fill(self.offset(Half::Inbox) as usize, self.half as usize, 0)
    }

    /// Checks the received data. `mine` and `theirs` are the numbers of messages that each side sent on each queue
    /// pair.
    pub(super) fn check(
        &self,
        setting: &Setting,
        bytes: u64,
        rank: usize,
        mine: &[u64],
        theirs: &[u64],
    ) -> Result<Checked, MemoryError> {
        let mut checked = Checked::default();
        let half = self.offset(Half::Inbox) as usize;
        let (mut outbox, mut inbox) = (vec![0; half], vec![0; half]);
        self.memory.read(0, &mut outbox)?;
        self.memory.read(half, &mut inbox)?;
        let (slots, stride) = (setting.slots(bytes), Setting::stride(bytes));
        let Test { verb, kind } = setting.test;
        let word = |from: &[u8], at: usize| {
            from.get(at..at + size_of::<u64>()).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        if verb == Verb::Atomic {
            for (pair, (mine, theirs)) in (0u64..).zip(mine.iter().zip(theirs)) {
                let at = (pair * self.span) as usize;
                // Each operation of the other side has incremented the word.
                if *theirs > 0 {
                    checked.one(word(&inbox, at) == *theirs);
                }
                // Each operation of this side has returned the value that the previous one left. Each place holds the
                // last value that was returned to it.
                for slot in 0..slots.min(*mine) {
                    let last = (mine - 1 - slot) / slots * slots + slot;
                    checked.one(word(&outbox, at + (slot * stride) as usize) == last);
                }
            }
            return Ok(checked);
        }
        // The inbox holds what this side read, or what the other side wrote.
        let sent = if verb == Verb::Read { mine } else { theirs };
        let expected = self.pattern(setting, 1 - rank, bytes);
        for (pair, sent) in (0u64..).zip(sent) {
            for slot in 0..slots.min(*sent) {
                let at = (pair * self.span + slot * stride) as usize;
                let (came, meant) = (&inbox[at..at + bytes as usize], &expected[at..at + bytes as usize]);
                let right = if kind == Kind::Latency && verb == Verb::Write {
                    let sign = if setting.duration.is_some() { LAST_CALL } else { sign_of(sent - 1) };
                    let last = came.len() - 1;
                    came[..last] == meant[..last] && came[last] == sign
                } else {
                    came == meant
                };
                checked.one(right);
            }
        }
        Ok(checked)
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
