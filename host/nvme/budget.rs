//! Budget of time that commands without completion may take, shared by everything that a program does with its devices.
//!
//! A deadline bounds the wait for one command. Recovery and repeated submissions add further waits, and so does each
//! command that follows on the same device. The budget bounds their sum: see [`RetryBudget`].

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time beyond the first deadline: three more deadlines, or this.
const BEYOND: Duration = Duration::from_secs(2);
/// Time for which a repeated command is waited for at least, if that is less than its deadline.
const LEAST: Duration = Duration::from_millis(500);

/// Budget of time for commands without completion: waits that reached their deadline, and recovery.
///
/// The budget is a deadline and two seconds, or four deadlines if that is less. While a deadline or half a second is left, queues recover
/// and submit such commands again, which then have what is left of the budget. Afterwards a command that misses its deadline fails. The
/// budget grows again by the time that passes without such a command. A program with faulty devices therefore takes at most twice as
/// long as its work, and the budget more.
///
/// Clones share one budget. Times that overlap, of several devices, count once.
#[derive(Clone, Debug, Default)]
pub struct RetryBudget(Arc<Mutex<Used>>);

#[derive(Debug, Default)]
struct Used {
    /// Time that was lost, less what was regained until `last`.
    lost: Duration,
    /// End of the latest wait or recovery that was charged.
    last: Option<Instant>,
}

impl RetryBudget {
    /// Creates a budget of which nothing is used.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all that can be used with this deadline of one command.
    pub(crate) fn whole(deadline: Duration) -> Duration {
        deadline.saturating_add(deadline.saturating_mul(3).min(BEYOND))
    }

    /// Returns the part of the budget with which commands are submitted again, with this deadline of one command.
    pub(crate) fn least(deadline: Duration) -> Duration {
        deadline.min(LEAST)
    }

    /// Returns the time that a command has which is submitted at `now`, with this deadline.
    pub(crate) fn limit(&self, now: Instant, deadline: Duration) -> Duration {
        self.left(now, deadline).clamp(Self::least(deadline), deadline)
    }

    /// Returns the time that is left at `now`, with this deadline of one command.
    pub(crate) fn left(&self, now: Instant, deadline: Duration) -> Duration {
        let used = self.0.lock();
        let regained = used.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        Self::whole(deadline).saturating_sub(used.lost.saturating_sub(regained))
    }

    /// Uses the time from `from` to `to`, but for parts that were used before, with this deadline of one command. At most
    /// the whole is used, so that a deadline later there is a deadline to use again.
    pub(crate) fn charge(&self, from: Instant, to: Instant, deadline: Duration) {
        let mut used = self.0.lock();
        let begun = used.last.map_or(from, |last| from.max(last));
        let regained = used.last.map_or(Duration::ZERO, |last| begun.saturating_duration_since(last));
        let lost = used.lost.saturating_sub(regained).saturating_add(to.saturating_duration_since(begun));
        used.lost = lost.min(Self::whole(deadline));
        used.last = Some(used.last.map_or(to, |last| to.max(last)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_add_up_and_overlapping_ones_count_once() {
        let (budget, start) = (RetryBudget::new(), Instant::now());
        let at = |s: u32| start + SECOND * s;
        assert_eq!(budget.left(at(0), SECOND * 10), SECOND * 12);
        budget.charge(at(0), at(5), SECOND * 10);
        budget.clone().charge(at(2), at(7), SECOND * 10);
        assert_eq!(budget.left(at(7), SECOND * 10), SECOND * 5);
        budget.charge(at(3), at(6), SECOND * 10);
        assert_eq!(budget.left(at(7), SECOND * 10), SECOND * 5);
        budget.charge(at(7), at(55), SECOND * 10);
        assert_eq!(budget.left(at(55), SECOND * 10), Duration::ZERO);
        // A longer deadline leaves more.
        assert_eq!(budget.left(at(55), SECOND * 20), SECOND * 10);
    }

    #[test]
    fn a_command_has_its_deadline_or_what_is_left() {
        let (budget, start) = (RetryBudget::new(), Instant::now());
        let at = |s: u32| start + SECOND * s;
        assert_eq!(budget.limit(at(0), SECOND * 10), SECOND * 10);
        budget.charge(at(0), at(10), SECOND * 10);
        assert_eq!(budget.limit(at(10), SECOND * 10), SECOND * 2);
        budget.charge(at(10), at(12), SECOND * 10);
        assert_eq!(budget.limit(at(12), SECOND * 10), SECOND / 2);
        // Short deadlines are never shortened further.
        assert_eq!(RetryBudget::whole(SECOND / 10), SECOND * 4 / 10);
        assert_eq!(budget.limit(at(12), SECOND / 10), SECOND / 10);
    }

    #[test]
    fn time_without_loss_is_regained_up_to_the_whole() {
        let (budget, start) = (RetryBudget::new(), Instant::now());
        let at = |s: u32| start + SECOND * s;
        budget.charge(at(0), at(50), SECOND * 10);
        assert_eq!(budget.left(at(50), SECOND * 10), Duration::ZERO);
        assert_eq!(budget.left(at(55), SECOND * 10), SECOND * 5);
        budget.charge(at(55), at(56), SECOND * 10);
        assert_eq!(budget.left(at(56), SECOND * 10), SECOND * 4);
        assert_eq!(budget.left(at(500), SECOND * 10), SECOND * 12);
        budget.charge(at(500), at(501), SECOND * 10);
        assert_eq!(budget.left(at(501), SECOND * 10), SECOND * 11);
    }
}
