//! Queues of the host on the devices of a disk, beside those of kernels.

use super::drive::Drive;
use crate::nvme::{HostQueue, HostQueueOptions, RecoveryPolicy, RetryBudget};
use crate::storage::error::StorageError;
use parking_lot::Mutex;

/// The host's own queue on each device, where the controller has a spare pair.
pub(in crate::storage) struct HostSide {
    pub(in crate::storage) queues: Vec<Option<Mutex<HostQueue<'static>>>>,
    pub(in crate::storage) policy: Mutex<RecoveryPolicy>,
    pub(in crate::storage) budget: RetryBudget,
    /// For each device, the command that it left without completion when too little was left of the budget.
    /// Until a deadline is regained, it gets no other.
    pub(in crate::storage) given_up: Vec<Mutex<Option<String>>>,
}

impl HostSide {
    /// Creates the queues. `count` queue pairs of each controller stay for kernels. A command moves at most
    /// `bytes_per_command` bytes.
    pub(in crate::storage) fn new(
        drives: &[Drive],
        count: u32,
        bytes_per_command: usize,
        budget: RetryBudget,
    ) -> Result<Self, StorageError> {
        let queues = drives.iter().map(|drive| {
            let controller = drive.controller();
            if controller.free_queues() <= count {
                // Kernels have all pairs; the host borrows one between runs.
                return Ok(None);
            }
            let deepest = 1 << controller.cap().max_queue_entries().max(2).ilog2();
            let options = HostQueueOptions::default();
            let options = HostQueueOptions { depth: options.depth.min(deepest), bytes_per_command };
            Ok(Some(Mutex::new(HostQueue::create(controller, options)?)))
        });
        let queues = queues.collect::<Result<_, StorageError>>()?;
        let given_up = drives.iter().map(|_| Mutex::new(None)).collect();
        Ok(Self { queues, policy: Mutex::new(RecoveryPolicy::requeue()), budget, given_up })
    }

    /// Returns true if the host has a queue of its own on a device.
    pub(in crate::storage) fn has_queue(&self, device: usize) -> bool {
        self.queues[device].is_some()
    }

    #[cfg(feature = "internals")]
    pub(in crate::storage) fn set_policy(&self, policy: RecoveryPolicy) {
        *self.policy.lock() = policy;
    }

    /// Permits commands to a device that was recovered.
    pub(in crate::storage) fn take_in(&self, device: usize) {
        *self.given_up[device].lock() = None;
    }
}
