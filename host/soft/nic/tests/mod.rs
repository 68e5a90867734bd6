//! Two adapters and the traffic between them: in one process, through a Unix socket, and over TCP.

mod data;
mod faults;
pub(crate) mod hostile;
mod life;
mod receives;

use super::{SoftNic, SoftNicConfig, SoftQueuePair};
use crate::memory::{Place, Region, Space};
use crate::rdma::ring_service::testing::CpuSendQueue;
use crate::rdma::{Adapter, QueuePair, QueuePlan, Registration, Rights};
use crate::wire::mlx5::cqe::Outcome;
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::wqe::Remote;
use crate::wire::mlx5::{Atomic, Completion, Flags, Operation, Payload};
use std::time::Duration;

const KEY: [u8; 32] = [0x5a; 32];
const HEAP: usize = 1 << 20;

/// Options for each kind of connection between two adapters.
const WAYS: [&str; 3] = ["", "sockets", "sockets,tcp"];

/// An adapter with some memory and one queue pair. Fields are dropped in their order.
struct Side {
    pair: SoftQueuePair,
    keys: Box<dyn Registration>,
    heap: Region,
    nic: SoftNic,
}

fn config(options: &str) -> SoftNicConfig {
    let mut c = SoftNicConfig::new(KEY).options(options).expect("options");
    if !c.unix {
        c.listen = Some("127.0.0.1".parse().expect("an address"));
    }
    c
}

fn plan(log_blocks: u32) -> QueuePlan {
    QueuePlan { space: Space::cpu(), log_blocks, collapsed: false, data: Place::Host, receives: None }
}

impl Side {
    fn new(options: &str) -> Self {
        Self::with(config(options), Rights::ALL)
    }

    fn with(config: SoftNicConfig, rights: Rights) -> Self {
        let nic = SoftNic::start(config).expect("an adapter");
        let heap = Space::cpu().allocate(Place::Host, HEAP).expect("memory");
        let keys = nic.register_region(&heap, rights).expect("registered");
        let pair = nic.create_pair(plan(6)).expect("a queue pair");
        Self { pair, keys, heap, nic }
    }

    fn send_queue(&self) -> CpuSendQueue<'_> {
        CpuSendQueue::new(self.pair.memory(), self.pair.number())
    }

    fn local(&self, offset: u64, bytes: u32) -> DataSegment {
        DataSegment::new(self.heap.address() + offset, self.keys.local_key(), bytes)
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.heap.address() + offset, key: self.keys.remote_key() }
    }

    fn word(&self, offset: usize) -> u64 {
        self.heap.get(offset).expect("in bounds")
    }
}

fn join(a: &mut Side, b: &mut Side) {
    let (to_a, to_b) = (a.pair.address(), b.pair.address());
    a.pair.connect(&to_b).expect("connected");
    b.pair.connect(&to_a).expect("connected");
}

fn pair_of(options: &str) -> (Side, Side) {
    let (mut a, mut b) = (Side::new(options), Side::new(options));
    join(&mut a, &mut b);
    (a, b)
}

fn write<'a>(remote: Remote, pieces: &'a [DataSegment]) -> Operation<'a> {
    Operation::Write { remote, payload: Payload::Pieces(pieces), immediate: None }
}

fn inline(remote: Remote, bytes: &[u8]) -> Operation<'_> {
    Operation::Write { remote, payload: Payload::Inline(bytes), immediate: None }
}

fn add(remote: Remote, add: u64, landing: DataSegment) -> Operation<'static> {
    Operation::Atomic { remote, action: Atomic::FetchAdd { add }, landing }
}

fn syndrome(c: &Completion) -> u8 {
    match c.outcome {
        Outcome::Failed(f) => f.syndrome.0,
        _ => 0,
    }
}

/// Posts one request to a new queue pair. Returns the syndrome of its completion, and the failure as text.
fn outcome(
    options: &str,
    rights: Rights,
    operation: impl Fn(&Side, &Side) -> (Operation<'static>, Option<Duration>),
) -> (u8, String) {
    let (mut a, mut b) = (Side::with(config(options), rights), Side::with(config(options), rights));
    join(&mut a, &mut b);
    let (operation, _) = operation(&a, &b);
    let mut p = a.send_queue();
    p.post(Flags::UNSIGNALLED, operation);
    p.post(Flags::SIGNALLED, Operation::Nop);
    let c = p.wait();
    if syndrome(&c) != 0 {
        assert_eq!(syndrome(&p.wait()), 5, "what is behind it is flushed");
    }
    (syndrome(&c), a.pair.failure().unwrap_or_default())
}
