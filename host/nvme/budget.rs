//! Budget of time that commands without completion may take, shared by everything that a program does with its devices.
//!
//! A deadline bounds the wait for one command. Recovery and repeated submissions add further waits, and so does each
//! command that follows on the same device. The budget bounds their sum: see [`RetryBudget`].

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Deadlines that commands without completion may take before none is submitted again.
const DEADLINES: u32 = 4;

/// Budget of time for commands without completion: waits that reached their deadline, and recovery.
///
/// The budget is four deadlines. While one of them is left, queues recover and submit such commands again. Afterwards
/// a command that misses its deadline fails. The budget grows again, up to four deadlines, by the time that passes
/// without such a command. A program with faulty devices therefore takes at most twice as long as its work, and five
/// deadlines more: the abort of the last command may take one.
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
        deadline.saturating_mul(DEADLINES)
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
        assert_eq!(budget.left(at(0), SECOND * 10), SECOND * 40);
        budget.charge(at(0), at(10), SECOND * 10);
        budget.clone().charge(at(2), at(12), SECOND * 10);
        assert_eq!(budget.left(at(12), SECOND * 10), SECOND * 28);
        budget.charge(at(3), at(9), SECOND * 10);
        assert_eq!(budget.left(at(12), SECOND * 10), SECOND * 28);
        budget.charge(at(12), at(55), SECOND * 10);
        assert_eq!(budget.left(at(55), SECOND * 10), Duration::ZERO);
        // A longer deadline leaves more.
        assert_eq!(budget.left(at(55), SECOND * 20), SECOND * 40);
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
        assert_eq!(budget.left(at(500), SECOND * 10), SECOND * 40);
        budget.charge(at(500), at(501), SECOND * 10);
        assert_eq!(budget.left(at(501), SECOND * 10), SECOND * 39);
    }
}
