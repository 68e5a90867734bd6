//! Recovery of a host queue from commands without completion, and its start after a reset.

use super::{HostQueue, Slot};
use crate::nvme::recovery::{self, Pending};
use crate::nvme::{NvmeError, RecoveryPolicy, RecoveryReport, Unfinished};

impl HostQueue<'_> {
    /// Sets the policy for commands without completion of [`HostQueue::read`], [`HostQueue::write`] and the other
    /// methods that use no slots of the caller. By default, a command that is past its deadline fails.
    pub fn set_recovery(&mut self, policy: RecoveryPolicy) {
        self.policy = policy;
    }

    /// Makes the queue work again, as [`Controller::recover`](crate::nvme::Controller::recover) does. Afterwards every slot is free
    /// and no command is in flight.
    ///
    /// # Errors
    /// As [`Controller::recover`](crate::nvme::Controller::recover), and [`NvmeError::Options`] if the queue is not idle after a reset.
    pub fn recover(&mut self) -> Result<RecoveryReport, NvmeError> {
        let controller = self.controller().clone();
        let id = self.id;
        let mut commands = Vec::new();
        for (cid, slot) in self.slots.iter().enumerate() {
            if let Slot::InFlight { entry, .. } | Slot::GivenUp { entry } = slot {
                commands.push(Unfinished { cid: cid as u16, ..Unfinished::new(id, entry) });
            }
        }
        let idle = commands.is_empty();
        let pending = Pending { set: 0, index: self.index, head: self.head, commands };
        let policy = self.policy;
        let report = recovery::climb(&controller, &mut [self.set.get_mut()], vec![pending], idle, &policy);
        match report {
            Ok(report) if report.steps.is_empty() => Ok(report),
            Ok(report) => {
                self.start_over()?;
                Ok(report)
            }
            Err(e) => {
                self.give_up_all();
                Err(e)
            }
        }
    }

    /// Resets the state of this queue after the controller's queue was created again.
    fn start_over(&mut self) -> Result<(), NvmeError> {
        let set = self.set.get();
        let ticket = set.idle_ticket(self.index)?.ok_or_else(|| NvmeError::Options {
            device: set.controller().name().to_owned(),
            reason: "the queue is not idle after a reset".to_owned(),
        })?;
        (self.tail, self.head) = (ticket, ticket);
        self.slots.fill(Slot::Free);
        self.done.clear();
        Ok(())
    }

    /// Creates the queue again if a reset of the controller ended it.
    pub(super) fn refresh(&mut self) -> Result<(), NvmeError> {
        if self.set.get().is_stale() {
            self.set.get_mut().reset()?;
            self.start_over()?;
        }
        Ok(())
    }
}
