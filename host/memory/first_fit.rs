//! First-fit allocator for ranges of an address space: takes the lowest aligned gap that is wide enough.

use std::collections::BTreeMap;
use std::ops::Range;

/// Free ranges of an address space, by start. Adjacent ranges are always merged.
#[derive(Debug)]
pub(crate) struct FirstFit {
    free: BTreeMap<u64, u64>,
}

impl FirstFit {
    /// Creates an allocator in which all of `ranges` is free. The ranges may touch, but not overlap.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut all = Self { free: BTreeMap::new() };
        ranges.into_iter().filter(|r| r.end > r.start).for_each(|r| all.give_back(r.start, r.end - r.start));
        all
    }

    /// Returns the total number of free bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.values().fold(0, |sum, l| sum.saturating_add(*l))
    }

    /// Takes `bytes` bytes at a multiple of `align`, a power of two. Returns `None` if no gap fits. The range must be
    /// returned by `give_back` with the same length.
    pub(crate) fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        self.take_from(0, bytes, align)
    }

    /// As [`Self::take`], at or above `least`.
    pub(crate) fn take_from(&mut self, least: u64, bytes: u64, align: u64) -> Option<u64> {
        let place = |(start, length): (&u64, &u64)| {
            let at = (*start).max(least).checked_next_multiple_of(align)?;
            let end = at.checked_add(bytes)?;
            (bytes > 0 && end - start <= *length).then_some((*start, *length, at))
        };
        let (start, length, at) = self.free.iter().find_map(place)?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        let (end, rest) = (at + bytes, start + length - (at + bytes));
        if rest > 0 {
            self.free.insert(end, rest);
        }
        Some(at)
    }

    /// Frees a range that `take` returned.
    pub(crate) fn give_back(&mut self, start: u64, bytes: u64) {
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
        let mut f = FirstFit::new(Some(100..200));
        assert_eq!((f.take(40, 1), f.take(40, 1), f.take(40, 1)), (Some(100), Some(140), None));
        f.give_back(100, 40);
        assert_eq!(f.take(41, 1), None);
        f.give_back(140, 40);
        assert_eq!(f.take(100, 1), Some(100));
        assert_eq!((f.free_bytes(), f.take(1, 1), f.take(0, 1)), (0, None, None));
        assert_eq!(FirstFit::new(Some(5..5)).take(1, 1), None);
    }

    #[test]
    fn holes_alignment_and_a_lowest_address_are_honoured() {
        let mut f = FirstFit::new([0x1000..0xf000, 0x20000..0x40000]);
        assert_eq!(f.take(0xf000, 0x1000), Some(0x20000));
        assert_eq!(f.take(0x1000, 0x4000), Some(0x4000));
        assert_eq!(f.take_from(0x8800, 0x1000, 0x1000), Some(0x9000));
        assert_eq!(f.take(0x3000, 0x1000), Some(0x1000));
        assert_eq!(f.take_from(u64::MAX - 5, 0x1000, 0x1000), None);
        assert_eq!(FirstFit::new([0..10, 10..20]).take(20, 1), Some(0));
    }

    proptest! {
        #[test]
        fn ranges_never_overlap_and_nothing_is_lost(
            steps in prop::collection::vec((1u64..400, 0u32..7, any::<bool>()), 1..200),
        ) {
            let ranges = [1000..3000, 3100..5000];
            let inside = |at: u64, n: u64| ranges.iter().any(|r| at >= r.start && at + n <= r.end);
            let mut f = FirstFit::new(ranges.clone());
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (n, align, take) in steps {
                let align = 1 << align;
                if take || held.is_empty() {
                    if let Some(at) = f.take(n, align) {
                        prop_assert!(inside(at, n) && at % align == 0);
                        prop_assert!(held.iter().all(|(s, l)| at + n <= *s || s + l <= at));
                        held.push((at, n));
                    } else {
                        prop_assert!(f.free.iter().all(|(s, l)| s.next_multiple_of(align) + n > s + l));
                    }
                } else {
                    let (at, l) = held.swap_remove(n as usize % held.len());
                    f.give_back(at, l);
                }
                prop_assert_eq!(f.free_bytes() + held.iter().map(|h| h.1).sum::<u64>(), 3900);
            }
            held.into_iter().for_each(|(at, l)| f.give_back(at, l));
            prop_assert_eq!(f.free.into_iter().collect::<Vec<_>>(), [(1000, 2000), (3100, 1900)]);
        }
    }
}
