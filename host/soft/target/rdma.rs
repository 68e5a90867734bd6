//! NVMe over RDMA: the target's end of a software NIC's queue pair. Capsules fill receives, and RDMA reads and writes
//! move the data with the keys in the host's capsules (NVMe RDMA Transport 1.0).

use super::Shared;
use super::transport::{End, Event, Place, Response, Transport};
use crate::memory::{Place as Memory, Space};
use crate::rdma::{
    Adapter, Connection, CpuReceiveQueue, CpuSendQueue, PostError, PostRequests, QueuePair, QueuePlan, ReceivePlan,
    Rights,
};
use crate::remote::{Buffer, Buffers};
use crate::soft::nic::{Incoming, SoftNic, SoftNicConfig};
use crate::wire::mlx5::wqe::{Remote, SendWith};
use crate::wire::mlx5::{Operation, Payload};
use crate::wire::nvme::SqEntry;
use crate::wire::nvme::rdma::{self, COMMAND_BYTES, Data, RESPONSE_BYTES, Request, reject};
use crate::wire::nvme::tcp::PduError;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Largest sleep while nothing arrives: what arrives does not end it.
const NAP: Duration = Duration::from_micros(200);
/// Service threads of the NIC that serves one host.
const NIC_THREADS: usize = 1;
/// Largest queue identifier of a host.
const MOST_QUEUES: u16 = 1024;

/// A work request that waits for room in the send ring, or for its completion.
enum Job {
    /// Reads the data of command `cid` from the host.
    Pull { cid: u16, from: Remote, buffer: Buffer, bytes: u32 },
    /// Writes data to the host. The response follows.
    Push { to: Remote, buffer: Buffer, bytes: u32 },
    /// Sends so many bytes of a response.
    Respond([u8; RESPONSE_BYTES], usize),
}

/// A queue pair of a host.
pub(super) struct SoftRdma {
    request: Request,
    reached: IpAddr,
    /// Fields are dropped in this order: the queue pair and registrations before their NIC.
    send: CpuSendQueue,
    receives: CpuReceiveQueue,
    connection: Box<dyn Connection>,
    /// Memory of the receives, `capsule_bytes` for each of `slots`.
    capsules: Buffer,
    capsule_bytes: usize,
    slots: u64,
    buffers: Buffers,
    waiting: VecDeque<Job>,
    /// Posted requests, with the position behind each.
    posted: VecDeque<(u64, Job)>,
    events: VecDeque<Event>,
    _nic: Arc<SoftNic>,
}

impl SoftRdma {
    /// Accepts or rejects the connection request of a host, which has reached this address. Returns the reason if there is no connection.
    pub(super) fn accept(shared: &Shared, incoming: Incoming, reached: IpAddr) -> Result<Self, String> {
        let request = match Request::read(incoming.private()).and_then(|r| shared.check_request(&r).map(|()| r)) {
            Ok(request) => request,
            Err(status) => {
                let reason = format!("rejected: {}", reject::name(status));
                incoming.reject(&rdma::rejection(status)).map_err(|e| e.to_string())?;
                return Err(reason);
            }
        };
        Self::connect(shared, incoming, request, reached)
    }

    fn connect(shared: &Shared, incoming: Incoming, request: Request, reached: IpAddr) -> Result<Self, String> {
        let text = |e: crate::rdma::RdmaError| e.to_string();
        let post = |e: PostError| e.to_string();
        let nic = shared.nic(incoming.key(), reached).map_err(text)?;
        let slots = request.entries.next_power_of_two();
        let in_capsule = if request.queue == 0 { 0 } else { shared.config.in_capsule_bytes };
        let capsule_bytes = COMMAND_BYTES + in_capsule as usize;
        let receives = ReceivePlan { log_slots: slots.ilog2(), log_stride: 0, data_in_entries: false };
        let plan = QueuePlan::new(Space::cpu(), Memory::Host)
            .log_blocks((slots.ilog2() + 1).clamp(2, 13))
            .receives(Some(receives));
        let mut queue: Box<dyn QueuePair> = nic.create(plan).map_err(text)?;
        let capsules = Buffer::new(&*nic, slots as usize * capsule_bytes, Rights::LOCAL_WRITE).map_err(text)?;
        let mut receives = CpuReceiveQueue::new(&*queue).map_err(post)?;
        for i in 0..slots as usize {
            receives.post(&[capsules.piece(i * capsule_bytes, capsule_bytes as u32)]).map_err(post)?;
        }
        let told = rdma::accept(slots.min(u32::from(u16::MAX)) as u16);
        let connection = incoming.accept(&mut *queue, &told).map_err(|e| e.to_string())?;
        Ok(Self {
            request,
            reached,
            send: CpuSendQueue::new(queue).map_err(post)?,
            receives,
            connection,
            capsules,
            capsule_bytes,
            slots: slots.into(),
            buffers: Buffers::new(nic.clone()),
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            events: VecDeque::new(),
            _nic: nic,
        })
    }

    /// A failed queue pair is the end of the queue alone. Other queues of the host go on.
    fn failed(&self, error: &dyn std::fmt::Display) -> End {
        tracing::debug!(queue = self.request.queue, %error, "the queue pair failed");
        End::Closed
    }

    /// Takes a command capsule, if one has arrived. Its receive is posted again before the response is sent.
    fn take_capsule(&mut self) -> Result<bool, End> {
        let Some(m) = self.receives.poll().map_err(|e| self.failed(&e))? else { return Ok(false) };
        let at = (m.position % self.slots) as usize * self.capsule_bytes;
        let mut capsule = vec![0; m.bytes as usize];
        self.capsules.region().read(at, &mut capsule).map_err(|e| self.failed(&e))?;
        let piece = [self.capsules.piece(at, self.capsule_bytes as u32)];
        self.receives.post(&piece).map_err(|e| self.failed(&e))?;
        if capsule.len() < COMMAND_BYTES {
            return Err(self.failed(&format!("a capsule of {} bytes", capsule.len())));
        }
        let data = capsule.split_off(COMMAND_BYTES);
        let entry: SqEntry = bytemuck::pod_read_unaligned(&capsule);
        self.events.push_back(Event::Capsule { entry, data, intact: true });
        Ok(true)
    }

    /// Processes completed requests. Returns true if there were any.
    fn complete(&mut self) -> Result<bool, End> {
        let completed = self.send.poll().map_err(|e| self.failed(&e))?;
        let before = self.posted.len();
        while self.posted.front().is_some_and(|(end, _)| *end <= completed) {
            match self.posted.pop_front() {
                Some((_, Job::Pull { cid, buffer, bytes, .. })) => {
                    let mut data = vec![0; bytes as usize];
                    buffer.region().read(0, &mut data).map_err(|e| self.failed(&e))?;
                    self.buffers.give_back(buffer);
                    self.events.push_back(Event::Data { cid, data, intact: true });
                }
                Some((_, Job::Push { buffer, .. })) => self.buffers.give_back(buffer),
                _ => {}
            }
        }
        Ok(self.posted.len() < before)
    }

    fn post(&mut self) -> Result<bool, End> {
        let mut any = false;
        while self.send.room() > 0
            && let Some(job) = self.waiting.pop_front()
        {
            let end = match &job {
                Job::Pull { from, buffer, bytes, .. } => {
                    let into = [buffer.piece(0, *bytes)];
                    self.send.post(Operation::Read { remote: *from, into: &into }, true)
                }
                Job::Push { to, buffer, bytes } => {
                    let piece = [buffer.piece(0, *bytes)];
                    let payload = Payload::Pieces(&piece);
                    self.send.post(Operation::Write { remote: *to, payload, immediate: None }, true)
                }
                Job::Respond(bytes, length) => {
                    let payload = Payload::Inline(&bytes[..*length]);
                    self.send.post(Operation::Send { payload, with: SendWith::Nothing }, true)
                }
            };
            let end = end.map_err(|e| self.failed(&e))?;
            self.posted.push_back((end, job));
            any = true;
        }
        if any {
            self.send.ring();
        }
        Ok(any)
    }
}

impl Shared {
    /// Checks the private data of a connection request. Returns the status of the rejection.
    fn check_request(&self, r: &Request) -> Result<(), u16> {
        let most = if r.queue == 0 { super::host::ADMIN_ENTRIES } else { self.config.queue_entries };
        let known = || self.hosts.lock().contains_key(&r.controller);
        match r {
            r if r.queue > MOST_QUEUES => Err(reject::QUEUE),
            r if r.entries < 2 || r.entries > most => Err(reject::ENTRIES),
            r if u32::from(r.receives) + 1 < r.entries => Err(reject::RECEIVES),
            r if r.queue != 0 && !known() => Err(reject::CONTROLLER),
            _ => Ok(()),
        }
    }

    /// Returns the NIC for a host whose NIC has this key and that has connected to this address.
    fn nic(&self, key: [u8; 32], reached: IpAddr) -> Result<Arc<SoftNic>, crate::rdma::RdmaError> {
        let mut nics = self.nics.lock();
        nics.retain(|_, nic| nic.strong_count() > 0);
        if let Some(nic) = nics.get(&(key, reached)).and_then(std::sync::Weak::upgrade) {
            return Ok(nic);
        }
        let mut config = SoftNicConfig::new(key);
        config.threads = NIC_THREADS;
        config.listen = Some(reached).filter(|a| !a.is_loopback());
        let nic = Arc::new(SoftNic::start(config)?);
        nics.insert((key, reached), Arc::downgrade(&nic));
        Ok(nic)
    }
}

impl Transport for SoftRdma {
    fn receive(&mut self) -> Result<bool, End> {
        let mut moved = false;
        while self.take_capsule()? {
            moved = true;
        }
        moved |= self.complete()?;
        if !moved && self.connection.ended().is_some() {
            return Err(End::Closed);
        }
        Ok(moved)
    }

    fn next(&mut self) -> Result<Option<Event>, End> {
        Ok(self.events.pop_front())
    }

    fn place(&self, entry: &SqEntry) -> (Place, u32) {
        match Data::of(entry) {
            Data::InCapsule { offset, length } => (Place::Capsule(offset), length),
            Data::Keyed { length, .. } => (Place::Host, length),
            Data::Other(_) => (Place::Unknown, 0),
        }
    }

    fn admin_in_capsule(&self) -> u32 {
        0
    }

    fn requested(&self) -> Option<(u16, u32)> {
        Some((self.request.queue, self.request.entries))
    }

    fn pull(&mut self, entry: &SqEntry, bytes: u32) -> Result<(), End> {
        let Data::Keyed { address, key, .. } = Data::of(entry) else { return Ok(()) };
        let buffer = self.buffers.take(bytes as usize).map_err(|e| self.failed(&e))?;
        self.waiting.push_back(Job::Pull { cid: entry.cid(), from: Remote { address, key }, buffer, bytes });
        Ok(())
    }

    fn respond(&mut self, entry: &SqEntry, r: &Response<'_>) -> Result<(), End> {
        if let Data::Keyed { address, key, .. } = Data::of(entry)
            && !r.data.is_empty()
        {
            let buffer = self.buffers.take(r.data.len()).map_err(|e| self.failed(&e))?;
            buffer.region().write(0, r.data).map_err(|e| self.failed(&e))?;
            let bytes = r.data.len() as u32;
            self.waiting.push_back(Job::Push { to: Remote { address, key }, buffer, bytes });
        }
        let bytes: [u8; RESPONSE_BYTES] = bytemuck::cast(r.entry);
        let length = if r.is_short { RESPONSE_BYTES / 2 } else { RESPONSE_BYTES };
        self.waiting.extend((0..r.times).map(|_| Job::Respond(bytes, length)));
        Ok(())
    }

    fn send(&mut self) -> Result<bool, End> {
        self.post()
    }

    fn wait(&self, time: Duration) {
        std::thread::sleep(time.min(NAP));
    }

    fn is_silent(&self) -> bool {
        // There is no such connection before its request has arrived.
        false
    }

    fn reached(&self) -> Result<IpAddr, End> {
        Ok(self.reached)
    }

    fn terminate(&mut self, _: &PduError) {
        // RDMA has no message for this: the end of the connection tells the host.
    }
}
