//! A send queue for tests: writes entries and doorbells, and reads completions, like kernels.

use super::{QueueRings, SharedMemory};
use crate::memory::{Place, Space};
use crate::rdma::QueuePlan;
use crate::wire::mlx5::doorbell::SendDoorbell;
use crate::wire::mlx5::{BLOCK_BYTES, CQE_BYTES, Completion, CompletionRing, Cqe, Flags, Operation, SendRing, Wqe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Far more time than anything in a test takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Allocates rings in host memory.
pub(crate) fn memory(log_blocks: u32, collapsed: bool) -> QueueRings {
    QueueRings::new(
        QueuePlan { space: Space::cpu(), log_blocks, collapsed, data: Place::Host, receives: None },
        Place::Host,
    )
    .expect("memory")
}

/// The posting side of a queue pair.
pub(crate) struct CpuSendQueue<'a> {
    memory: &'a QueueRings,
    pub(crate) number: u32,
    pub(crate) next: u64,
    pub(crate) polled: u64,
}

impl<'a> CpuSendQueue<'a> {
    pub(crate) fn new(memory: &'a QueueRings, number: u32) -> Self {
        Self { memory, number, next: 0, polled: 0 }
    }

    /// Writes an entry. Returns the position of its first block.
    pub(crate) fn write(&mut self, flags: Flags, operation: Operation<'_>) -> u64 {
        let wqe = Wqe { index: self.next as u16, qpn: self.number, flags, target: None, operation };
        self.write_bytes(&wqe.to_bytes().expect("it fits"))
    }

    /// Writes blocks. Returns the position of the first.
    pub(crate) fn write_bytes(&mut self, blocks: &[u8]) -> u64 {
        let ring = SendRing::new(self.memory.blocks().ilog2()).expect("a size");
        let at = self.next;
        for block in blocks.chunks(BLOCK_BYTES) {
            self.memory.ring().write(ring.offset(self.next), block).expect("in bounds");
            self.next += 1;
        }
        at
    }

    /// Writes the doorbell for all written entries.
    pub(crate) fn ring(&self) {
        self.ring_as(self.number, self.next, self.next);
    }

    pub(crate) fn ring_as(&self, number: u32, next: u64, record: u64) {
        let records = self.memory.records();
        records.set(4, u32::from(record as u16).to_be()).expect("in bounds");
        let base = records.host().expect("host memory").as_ptr();
        // SAFETY: the doorbell lies in the region, aligned to 8.
        let bell = unsafe { AtomicU64::from_ptr(base.add(QueueRings::doorbell_offset()).cast()) };
        bell.store(u64::from_ne_bytes(SendDoorbell::new(number, next).to_bytes()), Ordering::Release);
    }

    pub(crate) fn post(&mut self, flags: Flags, operation: Operation<'_>) -> u64 {
        let at = self.write(flags, operation);
        self.ring();
        at
    }

    /// Takes the next completion; `None` if there is none.
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        let ring = CompletionRing::new(self.memory.entries().ilog2()).expect("a size");
        let shared_memory = SharedMemory::of(self.memory.completions(), "completion ring").expect("host memory");
        let at = ring.offset(self.polled);
        let last = shared_memory.acquire(at + CQE_BYTES - size_of::<u64>()).to_ne_bytes();
        if !ring.is_written(self.polled, last[7]) {
            return None;
        }
        let mut bytes = [0; CQE_BYTES];
        shared_memory.block(at, &mut bytes);
        self.polled += 1;
        Some(bytemuck::cast::<_, Cqe>(bytes).completion().expect("a completion"))
    }

    /// Waits for the next completion: busily at first, then with pauses, which leave the processor to others.
    pub(crate) fn wait(&mut self) -> Completion {
        let (started, mut rounds) = (Instant::now(), 0u64);
        loop {
            if let Some(c) = self.poll() {
                return c;
            }
            assert!(started.elapsed() < LIMIT, "no completion {} within {LIMIT:?}", self.polled);
            rounds += 1;
            if rounds < 1000 { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(50)) }
        }
    }
}
