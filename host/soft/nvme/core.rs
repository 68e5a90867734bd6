//! State that the controller's threads and its users share.

use super::config::SoftConfig;
use super::fault::DeviceFaults;
use super::log::{ErrorLog, Event};
use super::namespace::Namespace;
use super::statistics::Counters;
use crate::nvme::ring_service::{Doorbells, HasDoorbells, RingSetup, Shell};
use crate::soft::model::Timing;
use crate::wire::nvme::csts;
use crossbeam::utils::CachePadded;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// Reasons why no command is fetched, as bits.
pub(super) mod halt {
    /// CSTS.CFS is set.
    pub const FATAL: u32 = 1;
    /// The device has disappeared from the bus.
    pub const GONE: u32 = 2;
    /// A shutdown was requested.
    pub const SHUT_DOWN: u32 = 4;
}

/// Message of the manager to a service thread.
#[derive(Debug)]
pub(super) enum Message {
    AddCq(RingSetup),
    AddSq(RingSetup, u16),
    /// Finishes the queue's commands in flight, then drops the queue. Commands that a model has not completed yet are aborted.
    RemoveSq(u16, mpsc::Sender<()>),
    RemoveCq(u16, mpsc::Sender<()>),
    /// Aborts a command. The reply is true if the command's completion was held back, and was now posted as aborted.
    Abort(u16, u16, mpsc::Sender<bool>),
    /// Waits for commands in flight, then drops all queues and held completions.
    Reset(mpsc::Sender<()>),
    /// Finishes all commands in flight, and posts all held completions. Commands that a model has not completed yet are aborted.
    Quiesce(mpsc::Sender<()>),
}

/// One late completion in so many is reported.
const MANY_LATE: u64 = 20;

/// State that the controller's threads and its users share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) shell: Shell<Message>,
    pub(super) config: SoftConfig,
    pub(super) namespaces: Vec<Namespace>,
    /// True if the fault plan affects commands.
    pub(super) faulty: bool,
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
    /// State of the modelled drive, if the controller has the timing of one.
    pub(super) timing: Option<Timing>,
    /// Time in nanoseconds that commands of a modelled drive and their completions are on their way, which its times include.
    pub(super) path_ns: u64,
    /// Time from which completions are timed.
    pub(super) began: Instant,
    /// Completions with the time of the model, and those of them that were posted too late.
    pub(super) timed: AtomicU64,
    pub(super) late: AtomicU64,
}

impl Core {
    /// Returns the time since the start of the controller in nanoseconds.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub(super) fn halted(&self) -> u32 {
        self.halt.load(Ordering::Relaxed)
    }

    /// Reports completions that were posted later than the model says, if there are more than a few.
    pub(super) fn report_late(&self) {
        let (timed, late) = (self.timed.load(Ordering::Relaxed), self.late.load(Ordering::Relaxed));
        if let Some(timing) = self.timing.as_ref().filter(|_| late > timed / MANY_LATE) {
            tracing::warn!(
                device = %self.shell.name, late, completions = timed,
                "{} was too fast for this machine: its threads did not get a processor in time, so rates are lower and times longer than the model's",
                timing.model()
            );
        }
    }

    /// Sets controller fatal status. No command is fetched until a reset.
    pub(super) fn fatal(&self, reason: &str) {
        if self.halt.fetch_or(halt::FATAL, Ordering::SeqCst) & halt::FATAL == 0 {
            tracing::debug!(device = %self.shell.name, reason, "controller fatal status");
            self.shell.registers.csts.fetch_or(csts::CFS, Ordering::SeqCst);
        }
    }

    /// Shrinks the namespaces once the fault plan says so.
    pub(super) fn shrink_if_due(&self) {
        if let Some(blocks) = self.faults.shrinks(&self.config.faults) {
            tracing::debug!(device = %self.shell.name, blocks, "the namespaces shrink");
            self.namespaces.iter().for_each(|n| n.shrink(blocks));
        }
    }

    /// Makes the device disappear from the bus.
    pub(super) fn disappear(&self) {
        tracing::debug!(device = %self.shell.name, "the device disappears");
        self.halt.fetch_or(halt::GONE, Ordering::SeqCst);
    }

    /// Reports an asynchronous event.
    pub(super) fn raise(&self, event: Event) {
        self.events.lock().push(event);
        self.shell.wake_manager();
    }
}

impl HasDoorbells for Core {
    fn doorbells(&self) -> &Doorbells {
        &self.shell.doorbells
    }

    fn invalid_value(&self) {
        self.raise(Event::InvalidDoorbellValue);
    }
}
