//! Completions that wait for their time: those that a model has timed, and those that the fault plan delays.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A completion that is held back until its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    /// Time of the completion in nanoseconds since the start of the controller.
    pub(super) due: u64,
    /// Number of the completion in the order of execution: completions of the same time keep it.
    pub(super) order: u64,
    pub(super) sqid: u16,
    pub(super) cid: u16,
    pub(super) status: u16,
    pub(super) wrong_phase: bool,
    /// True for the repetition of a completion. It has no reserved place, so it waits for a free one.
    pub(super) again: bool,
}

/// Completions of one service thread, by time.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    heap: BinaryHeap<Reverse<Held>>,
    order: u64,
}

impl HeldBack {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Adds a completion, whose order this sets.
    #[inline]
    pub(super) fn push(&mut self, held: Held) {
        self.order += 1;
        self.heap.push(Reverse(Held { order: self.order, ..held }));
    }

    /// Returns a completion to its place: it had no place in its queue.
    pub(super) fn put_back(&mut self, held: Held) {
        self.heap.push(Reverse(held));
    }

    /// Returns the time of the next completion.
    #[inline]
    pub(super) fn due(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(h)| h.due)
    }

    /// Takes the next completion, if its time has come.
    #[inline]
    pub(super) fn pop(&mut self, now: u64) -> Option<Held> {
        self.due().filter(|due| *due <= now)?;
        self.heap.pop().map(|Reverse(h)| h)
    }

    /// Takes one completion that `which` selects.
    pub(super) fn take(&mut self, which: impl Fn(&Held) -> bool) -> Option<Held> {
        let mut all = std::mem::take(&mut self.heap).into_vec();
        let at = all.iter().position(|Reverse(h)| which(h));
        let found = at.map(|i| all.swap_remove(i).0);
        self.heap = all.into();
        found
    }

    /// Takes all completions that `which` selects, in the order of their times.
    pub(super) fn take_all(&mut self, which: impl Fn(&Held) -> bool) -> Vec<Held> {
        let (mut taken, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.heap).into_iter().map(|Reverse(h)| h).partition(|h| which(h));
        self.heap = kept.into_iter().map(Reverse).collect();
        taken.sort_unstable();
        taken
    }

    /// Drops the completions that `which` does not select.
    pub(super) fn retain(&mut self, which: impl Fn(&Held) -> bool) {
        self.heap.retain(|Reverse(h)| which(h));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(due: u64, cid: u16) -> Held {
        Held { due, order: 0, sqid: cid % 2, cid, status: 0, wrong_phase: false, again: false }
    }

    #[test]
    fn completions_leave_by_time_and_then_in_the_order_of_execution() {
        let mut all = HeldBack::default();
        for (due, cid) in [(30, 1), (10, 2), (20, 3), (10, 4), (40, 5)] {
            all.push(held(due, cid));
        }
        assert_eq!((all.due(), all.pop(9)), (Some(10), None));
        let mut cids = Vec::new();
        while let Some(h) = all.pop(30) {
            cids.push(h.cid);
        }
        assert_eq!(cids, [2, 4, 3, 1]);
        assert!(!all.is_empty());
    }

    #[test]
    fn one_or_all_of_a_queue_can_be_taken() {
        let mut all = HeldBack::default();
        for cid in (0..6).rev() {
            all.push(held(100 + u64::from(cid), cid));
        }
        assert_eq!(all.take(|h| h.cid == 3).map(|h| h.due), Some(103));
        assert_eq!(all.take(|h| h.cid == 3), None);
        let odd: Vec<u16> = all.take_all(|h| h.sqid == 1).iter().map(|h| h.cid).collect();
        assert_eq!(odd, [1, 5]);
        all.retain(|h| h.cid > 0);
        assert_eq!(all.due(), Some(102));
    }
}
