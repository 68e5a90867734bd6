//! Free allocation units of a slab.

use super::extent::{LONGEST, MOST, Run, Runs};
use std::collections::{BTreeMap, BTreeSet};

/// Free ranges of units, by place and by length.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Length of each free range, by its first unit. No two ranges touch.
    by_start: BTreeMap<u64, u64>,
    /// Length and first unit of each free range.
    by_length: BTreeSet<(u64, u64)>,
    free: u64,
}

impl Space {
    /// Makes the free space of a slab of `units` units. `used` are the runs in use, ordered and without overlap.
    pub(super) fn around(units: u64, used: &[Run]) -> Self {
        let starts = used.iter().map(|r| r.start()).chain([units]);
        let ends = std::iter::once(0).chain(used.iter().map(|r| r.end()));
        let gaps = ends.zip(starts).filter(|(from, to)| from < to).map(|(from, to)| (from, to - from));
        let by_start: BTreeMap<u64, u64> = gaps.collect();
        let by_length = by_start.iter().map(|(start, length)| (*length, *start)).collect();
        let free = by_start.values().sum();
        Self { by_start, by_length, free }
    }

    /// Returns the number of free units.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Takes `units` units: the smallest free range that has them, or the largest ranges. Returns `None`, and takes
    /// nothing, if they are in more than [`MOST`] ranges.
    pub(super) fn take(&mut self, units: u64) -> Option<Runs> {
        if let Some(&(length, start)) = self.by_length.range((units, 0)..).next() {
            self.cut(start, length, units);
            return Some([Run::new(start, units)].into_iter().collect());
        }
        let largest: Vec<(u64, u64)> = self.by_length.iter().rev().take(MOST).copied().collect();
        if largest.iter().map(|(length, _)| length).sum::<u64>() < units {
            return None;
        }
        let (mut runs, mut rest) = (Runs::default(), units);
        for (length, start) in largest {
            let part = length.min(rest);
            if part == 0 {
                break;
            }
            self.cut(start, length, part);
            runs.push(Run::new(start, part));
            rest -= part;
        }
        Some(runs)
    }

    /// Takes the first `units` units of a free range.
    fn cut(&mut self, start: u64, length: u64, units: u64) {
        debug_assert!(units <= length && units <= LONGEST);
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        if units < length {
            self.by_start.insert(start + units, length - units);
            self.by_length.insert((length - units, start + units));
        }
        self.free -= units;
    }

    /// Gives the units of an object back.
    pub(super) fn give_back(&mut self, runs: &Runs) {
        for run in runs.as_slice() {
            let (mut start, mut length) = (run.start(), run.units());
            self.free += length;
            if let Some((&before, &its)) = self.by_start.range(..start).next_back().filter(|(s, l)| *s + *l == start) {
                self.by_start.remove(&before);
                self.by_length.remove(&(its, before));
                (start, length) = (before, its + length);
            }
            if let Some(its) = self.by_start.remove(&(start + length)) {
                self.by_length.remove(&(its, start + length));
                length += its;
            }
            self.by_start.insert(start, length);
            self.by_length.insert((length, start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(space: &mut Space, units: u64) -> Vec<(u64, u64)> {
        let runs = space.take(units).map(|r| r.as_slice().to_vec()).unwrap_or_default();
        runs.iter().map(|r| (r.start(), r.units())).collect()
    }

    #[test]
    fn the_smallest_range_that_is_large_enough_is_taken() {
        let used = [Run::new(10, 5), Run::new(18, 2), Run::new(50, 1)];
        let mut space = Space::around(100, &used);
        assert_eq!(space.free(), 92);
        assert_eq!(taken(&mut space, 3), [(15, 3)]);
        assert_eq!(taken(&mut space, 20), [(20, 20)]);
        // 49 behind, 10 before and 10 between are left.
        assert_eq!(taken(&mut space, 60), [(51, 49), (40, 10), (0, 1)]);
        assert_eq!((taken(&mut space, 10), space.free()), (vec![], 9));
    }

    #[test]
    fn at_most_eight_ranges_hold_an_object() {
        let used: Vec<Run> = (0..20).map(|i| Run::new(i * 2 + 1, 1)).collect();
        let mut space = Space::around(40, &used);
        assert_eq!((space.take(9), space.free()), (None, 20));
        assert_eq!(space.take(8).unwrap().as_slice().len(), 8);
    }

    proptest! {
        #[test]
        fn no_unit_is_taken_twice_and_none_is_lost(
            steps in prop::collection::vec((any::<bool>(), 1u64..40, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut space = Space::around(300, &[]);
            let mut held: Vec<Runs> = Vec::new();
            for (takes, units, which) in steps {
                if takes {
                    held.extend(space.take(units));
                } else if !held.is_empty() {
                    let back = held.swap_remove(which.index(held.len()));
                    space.give_back(&back);
                }
                let mut used: Vec<Run> = held.iter().flat_map(|r| r.as_slice().to_vec()).collect();
                used.sort();
                prop_assert!(used.windows(2).all(|w| w[0].end() <= w[1].start()));
                let expected = Space::around(300, &used);
                prop_assert_eq!(&space.by_start, &expected.by_start);
                prop_assert_eq!(&space.by_length, &expected.by_length);
                prop_assert_eq!(space.free(), expected.free());
            }
        }
    }
}
