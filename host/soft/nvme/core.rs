//! State that the controller's threads and its users share.

use super::address::AddressTable;
use super::backend::MemoryStore;
use super::config::SoftConfig;
use super::copy::Mover;
use super::fault::DeviceFaults;
use super::log::{ErrorLog, Event};
use super::namespace::Namespace;
use super::statistics::Counters;
use crate::nvme::DoorbellPages;
use crate::wire::nvme::{csts, register};
use crossbeam::utils::CachePadded;
use parking_lot::Mutex;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread::Thread;

/// Reasons why no command is fetched, as bits.
pub(super) mod halt {
    /// CSTS.CFS is set.
    pub const FATAL: u32 = 1;
    /// The device has disappeared from the bus.
    pub const GONE: u32 = 2;
    /// A shutdown was requested.
    pub const SHUT_DOWN: u32 = 4;
}

/// Identifier, device address and size of a queue's ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSetup {
    pub(super) id: u16,
    pub(super) address: u64,
    pub(super) entries: u32,
}

/// Message of the manager to a service thread.
#[derive(Debug)]
pub(super) enum Message {
    AddCq(RingSetup),
    AddSq(RingSetup, u16),
    /// Finishes the queue's commands in flight, then drops the queue.
    RemoveSq(u16, mpsc::Sender<bool>),
    RemoveCq(u16, mpsc::Sender<bool>),
    /// Aborts a command. The reply is true if the command's completion was held back, and was now posted as aborted.
    Abort(u16, u16, mpsc::Sender<bool>),
    /// Waits for commands in flight, then drops all queues and held completions.
    Reset(mpsc::Sender<bool>),
    /// Finishes all commands in flight, and posts all held completions.
    Quiesce(mpsc::Sender<bool>),
}

/// Queue of messages to one service thread.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    pub(super) waiting: AtomicBool,
    pub(super) messages: Mutex<Vec<Message>>,
    pub(super) thread: OnceLock<Thread>,
}

impl Mailbox {
    pub(super) fn send(&self, message: Message) {
        self.messages.lock().push(message);
        self.waiting.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn wake(&self) {
        if let Some(t) = self.thread.get() {
            t.unpark();
        }
    }
}

/// Doorbell memory: one 32-bit word for each tail and head, `4 << stride` bytes apart.
#[derive(Debug)]
pub(super) struct Doorbells {
    memory: MemoryStore,
    stride: u8,
}

impl Doorbells {
    pub(super) fn new(queue_pairs: u16, stride: u8) -> Result<Self, super::SoftError> {
        let bytes = (u64::from(queue_pairs) + 1) * 2 * (4 << stride);
        Ok(Self { memory: MemoryStore::new(bytes.next_multiple_of(4096))?, stride })
    }

    pub(super) fn window(&self) -> Option<DoorbellPages> {
        let base = NonNull::new(self.memory.base())?;
        Some(DoorbellPages { base, bytes: self.memory.bytes(), io_memory: false })
    }

    /// Returns the word at a register offset, or `None` if the offset is outside the doorbells or between two of them.
    pub(super) fn word(&self, offset: u32) -> Option<&AtomicU32> {
        let at = offset.checked_sub(register::DOORBELLS)? as usize;
        if !at.is_multiple_of(4 << self.stride) {
            return None;
        }
        let p = self.memory.at(at as u64, 4)?;
        // SAFETY: inside the mapping, aligned to 4, and only accessed as an atomic.
        Some(unsafe { AtomicU32::from_ptr(p.cast()) })
    }

    /// Returns the queue and direction (`true`: completion head) of a register offset.
    pub(super) fn which(&self, offset: u32) -> Option<(u16, bool)> {
        let index = offset.checked_sub(register::DOORBELLS)? >> (2 + self.stride);
        Some((u16::try_from(index / 2).ok()?, index % 2 == 1))
    }

    pub(super) fn sq_tail(&self, queue: u16) -> Option<&AtomicU32> {
        self.word(register::sq_tail(queue, self.stride))
    }

    pub(super) fn cq_head(&self, queue: u16) -> Option<&AtomicU32> {
        self.word(register::cq_head(queue, self.stride))
    }
}

/// Registers that change.
#[derive(Debug)]
pub(super) struct Registers {
    pub(super) cap: u64,
    pub(super) cc: AtomicU32,
    pub(super) csts: AtomicU32,
    pub(super) interrupt_mask: AtomicU32,
    pub(super) aqa: AtomicU32,
    pub(super) asq: AtomicU64,
    pub(super) acq: AtomicU64,
    /// Values written to CC that the manager has not processed yet. None may be lost.
    pub(super) cc_writes: Mutex<Vec<u32>>,
}

/// State that the controller's threads and its users share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) name: String,
    pub(super) config: SoftConfig,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) registers: Registers,
    pub(super) doorbells: Doorbells,
    pub(super) table: std::sync::Arc<AddressTable>,
    pub(super) mover: Mover,
    /// True if the fault plan affects commands.
    pub(super) faulty: bool,
    pub(super) stop: AtomicBool,
    /// Bits of [`halt`].
    pub(super) halt: AtomicU32,
    /// log2 of the memory page size in bytes (CC.MPS).
    pub(super) page_shift: AtomicU32,
    /// True if the volatile write cache is off: every write waits for the medium.
    pub(super) write_through: AtomicBool,
    /// Counters of the fault plan over all queues. Unused if the plan does not affect commands.
    pub(super) faults: DeviceFaults,
    pub(super) counters: Box<[CachePadded<Counters>]>,
    pub(super) errors: Mutex<ErrorLog>,
    pub(super) events: Mutex<Vec<Event>>,
    pub(super) mail: Box<[Mailbox]>,
    pub(super) manager: OnceLock<Thread>,
    /// Existing I/O submission and completion queues, one bit each. Used to detect writes to doorbells of other queues.
    pub(super) existing: [Box<[AtomicU64]>; 2],
}

impl Core {
    /// Returns the service thread of a completion queue and of all submission queues that complete to it.
    pub(super) fn thread_of(&self, cqid: u16) -> &Mailbox {
        &self.mail[usize::from(cqid.wrapping_sub(1)) % self.mail.len()]
    }

    pub(super) fn halted(&self) -> u32 {
        self.halt.load(Ordering::Relaxed)
    }

    /// Sets controller fatal status. No command is fetched until a reset.
    pub(super) fn fatal(&self, reason: &str) {
        if self.halt.fetch_or(halt::FATAL, Ordering::SeqCst) & halt::FATAL == 0 {
            tracing::debug!(device = %self.name, reason, "controller fatal status");
            self.registers.csts.fetch_or(csts::CFS, Ordering::SeqCst);
        }
    }

    /// Shrinks the namespaces once the fault plan says so.
    pub(super) fn shrink_if_due(&self) {
        if let Some(blocks) = self.faults.shrinks(&self.config.faults) {
            tracing::debug!(device = %self.name, blocks, "the namespaces shrink");
            self.namespaces.iter().for_each(|n| n.shrink(blocks));
        }
    }

    /// Makes the device disappear from the bus.
    pub(super) fn disappear(&self) {
        tracing::debug!(device = %self.name, "the device disappears");
        self.halt.fetch_or(halt::GONE, Ordering::SeqCst);
    }

    /// Reports an asynchronous event.
    pub(super) fn raise(&self, event: Event) {
        self.events.lock().push(event);
        self.wake_manager();
    }

    pub(super) fn wake_manager(&self) {
        if let Some(t) = self.manager.get() {
            t.unpark();
        }
    }

    pub(super) fn exists(&self, queue: u16, completion: bool) -> bool {
        let words = &self.existing[usize::from(completion)];
        queue == 0
            || words.get(usize::from(queue / 64)).is_some_and(|w| w.load(Ordering::Relaxed) >> (queue % 64) & 1 != 0)
    }

    pub(super) fn set_exists(&self, queue: u16, completion: bool, exists: bool) {
        if let Some(w) = self.existing[usize::from(completion)].get(usize::from(queue / 64)) {
            match exists {
                true => w.fetch_or(1 << (queue % 64), Ordering::Relaxed),
                false => w.fetch_and(!(1 << (queue % 64)), Ordering::Relaxed),
            };
        }
    }
}

/// Returns cleared bits for queues 0 to `pairs`.
pub(super) fn queue_bits(pairs: u16) -> Box<[AtomicU64]> {
    (0..=pairs / 64).map(|_| AtomicU64::new(0)).collect()
}
