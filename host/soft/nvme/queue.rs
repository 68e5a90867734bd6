//! Submission queues of the software controller: a ring, what its commands used last, and its faults.

use super::core::Core;
use super::fault::QueueFaults;
use super::prp::Hints;
use super::statistics::QueueCounters;
use crate::nvme::ring_service::{RingSetup, Snapshot, SubmissionRing};
use crate::soft::model::Flow;
use crate::wire::nvme::SqEntry;

pub(super) use crate::nvme::ring_service::{Answer, Cq};

/// A submission queue.
pub(super) struct Sq {
    ring: SubmissionRing,
    pub(super) cqid: u16,
    /// Index of the completion queue in its thread's list.
    pub(super) cq: usize,
    pub(super) hints: Hints,
    pub(super) counters: QueueCounters,
    pub(super) faults: Option<QueueFaults>,
    /// State for the model of a drive.
    pub(super) flow: Flow,
}

impl Sq {
    pub(super) fn new(
        setup: RingSetup,
        cqid: u16,
        faults: Option<QueueFaults>,
        flow: Flow,
        table: &Snapshot,
    ) -> Option<Self> {
        Some(Self {
            ring: SubmissionRing::new(setup, table)?,
            cqid,
            cq: 0,
            hints: Hints::none(),
            counters: QueueCounters::default(),
            faults,
            flow,
        })
    }

    pub(super) fn id(&self) -> u16 {
        self.ring.id()
    }

    pub(super) fn resolve(&mut self, table: &Snapshot) -> bool {
        self.hints = Hints::none();
        self.ring.resolve(table)
    }

    /// Returns the head as completions report it.
    #[inline]
    pub(super) fn head(&self) -> u16 {
        self.ring.head()
    }

    /// Returns the number of entries that the doorbell announces and the fault plan allows.
    #[inline]
    pub(super) fn available(&mut self, core: &Core) -> u32 {
        let there = self.ring.available(core);
        match &mut self.faults {
            Some(f) if there > 0 => match f.is_delivered(&core.config.faults, &core.faults, self.ring.tail(there)) {
                true => there.min(f.allowance()),
                false => 0,
            },
            _ => there,
        }
    }

    /// Returns the entry `ahead` places after the head.
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> SqEntry {
        self.ring.peek(ahead)
    }

    /// Advances the head by one entry.
    #[inline]
    pub(super) fn consume(&mut self) {
        self.ring.consume();
    }
}
