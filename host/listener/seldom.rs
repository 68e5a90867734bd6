//! Messages that are sent at most once in a while.

use std::time::{Duration, Instant};

/// Time between two messages.
const EVERY: Duration = Duration::from_secs(10);

/// Limit of the rate of one message.
#[derive(Debug, Default)]
pub struct Seldom {
    last: Option<Instant>,
    suppressed: u64,
}

impl Seldom {
    /// Counts an event. Returns the number of events without a message since the last one, if a message is due.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_between_two_messages_are_counted() {
        let (mut seldom, now) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.due(now), Some(0));
        assert!((0..1000).all(|_| seldom.due(now + EVERY / 2).is_none()));
        assert_eq!(seldom.due(now + EVERY), Some(1000));
        assert_eq!(seldom.due(now + EVERY), None);
        assert_eq!(seldom.due(now + 2 * EVERY), Some(1));
    }
}
