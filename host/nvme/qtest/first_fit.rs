//! Hands out ranges of an address space: the lowest gap that is wide enough.

use std::collections::BTreeMap;

/// Free ranges of an address space, by start. Neighbours are always merged.
#[derive(Debug)]
pub(super) struct FirstFit {
    free: BTreeMap<u64, u64>,
}

impl FirstFit {
    /// Everything in `range` is free.
    pub(super) fn new(range: std::ops::Range<u64>) -> Self {
        let mut free = BTreeMap::new();
        if range.end > range.start {
            free.insert(range.start, range.end - range.start);
        }
        Self { free }
    }

    /// Bytes free in all.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// `bytes` bytes; what is given out has to come back by `give_back` with the same length.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let (start, length) = self.free.iter().map(|(s, l)| (*s, *l)).find(|(_, l)| *l >= bytes && bytes > 0)?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Frees a range that `take` gave out.
    pub(super) fn give_back(&mut self, start: u64, bytes: u64) {
        let (mut start, mut end) = (start, start + bytes);
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(length) = self.free.remove(&end) {
            end += length;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_are_found_and_merged() {
        let mut f = FirstFit::new(100..200);
        assert_eq!((f.take(40), f.take(40), f.take(40)), (Some(100), Some(140), None));
        f.give_back(100, 40);
        assert_eq!(f.take(41), None);
        f.give_back(140, 40);
        assert_eq!(f.take(100), Some(100));
        assert_eq!((f.free_bytes(), f.take(1), f.take(0)), (0, None, None));
        assert_eq!(FirstFit::new(5..5).take(1), None);
    }

    proptest! {
        #[test]
        fn ranges_never_overlap_and_nothing_is_lost(steps in prop::collection::vec((1u64..400, any::<bool>()), 1..200)) {
            let mut f = FirstFit::new(1000..5000);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (n, take) in steps {
                if take || held.is_empty() {
                    if let Some(at) = f.take(n) {
                        prop_assert!(at >= 1000 && at + n <= 5000);
                        prop_assert!(held.iter().all(|(s, l)| at + n <= *s || s + l <= at));
                        held.push((at, n));
                    } else {
                        prop_assert!(f.free.values().all(|l| *l < n));
                    }
                } else {
                    let (at, l) = held.swap_remove(n as usize % held.len());
                    f.give_back(at, l);
                }
                prop_assert_eq!(f.free_bytes() + held.iter().map(|h| h.1).sum::<u64>(), 4000);
            }
            held.into_iter().for_each(|(at, l)| f.give_back(at, l));
            prop_assert_eq!(f.free.into_iter().collect::<Vec<_>>(), [(1000, 4000)]);
        }
    }
}
