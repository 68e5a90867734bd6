//! Recovery of a host queue from commands without completion, and its start after a reset.

use super::{HostQueue, Slot};
use crate::engine::Engine;
use crate::nvme::recovery::{self, Pending};
use crate::nvme::{InFlight, NvmeError, RecoveryPolicy, RecoveryReport, RetryBudget, Unfinished};
use std::time::{Duration, Instant};

/// Longest wait for a command once the engine was told to stop.
const STOP_WAIT: Duration = Duration::from_secs(1);

impl HostQueue<'_> {
    /// Sets the policy for commands without completion of [`HostQueue::read`], [`HostQueue::write`] and the other
    /// methods that use no slots of the caller. By default, a command that is past its deadline fails.
    pub fn set_recovery(&mut self, policy: RecoveryPolicy) {
        self.policy = policy;
    }

    /// Shares a budget of time for commands without completion. Once less than a deadline is left, such commands fail instead of
    /// being submitted again. By default, only the policy limits the submissions.
    pub fn set_retry_budget(&mut self, budget: &RetryBudget) {
        self.budget = Some(budget.clone());
    }

    /// Makes waits end early once `engine` was cancelled or stopped: a command then has one second to complete, and is
    /// not submitted again.
    pub fn stop_with(&mut self, engine: &Engine) {
        self.engine = Some(engine.clone());
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.engine.as_ref().is_some_and(Engine::is_told_to_end)
    }

    /// Returns the time that a command has which is submitted now: less than a deadline once others did not complete.
    pub(super) fn limit(&self) -> Duration {
        self.budget.as_ref().map_or(self.deadline, |budget| budget.limit(Instant::now(), self.deadline))
    }

    /// Returns what is left of the time of a command, from its submission on, once the engine was told to end.
    pub(super) fn limit_now(&self, limit: Duration) -> Duration {
        if self.is_stopped() { limit.min(STOP_WAIT) } else { limit }
    }

    /// Uses the budget for the time since `from`, in which a command did not complete or the queue was recovered.
    pub(super) fn charge(&self, from: Instant) {
        if let Some(budget) = &self.budget {
            budget.charge(from, Instant::now(), self.deadline);
        }
    }

    /// Returns the time that is left for commands without completion; `None` if it is not limited.
    pub(super) fn left(&self) -> Option<Duration> {
        self.budget.as_ref().map(|budget| budget.left(Instant::now(), self.deadline))
    }

    /// Returns true if the policy, the budget and the engine permit that the commands of a wait that ended with this error
    /// are submitted again.
    pub(super) fn may_retry(&mut self, e: &NvmeError) -> bool {
        if !matches!(e, NvmeError::TimedOut { queue, .. } if *queue == self.id) {
            self.left_at_miss = self.left();
        }
        self.policy.in_flight == InFlight::Requeue
            && !self.is_stopped()
            && self.left_at_miss.is_none_or(|left| left >= RetryBudget::least(self.deadline))
    }

    /// Recovers the queue at the expense of the budget.
    pub(super) fn recover_in_budget(&mut self) -> Result<(), NvmeError> {
        let (began, whole) = (Instant::now(), self.policy);
        self.policy.steps_within = self.left_at_miss.or(whole.steps_within);
        let recovered = self.recover();
        self.policy = whole;
        self.charge(began);
        recovered.map(drop)
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
        for slot in &self.slots {
            if let Slot::InFlight { entry, .. } | Slot::GivenUp { entry } = slot {
                commands.push(Unfinished::new(id, entry));
            }
        }
        let idle = commands.is_empty();
        let pending = Pending { set: 0, index: self.index, head: self.head, commands };
        let policy = self.policy;
        let answers = !std::mem::take(&mut self.is_mute);
        let report = recovery::climb(&controller, &mut [self.set.get_mut()], vec![pending], idle, &policy, answers);
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
