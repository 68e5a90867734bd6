//! Merging of sorted runs, range by range.

use super::runs::{Key, SAMPLE, Sorted};
use super::spill::SpillError;
use crate::graph::build::{Arc, EdgeWeight};
use crate::graph::csr::VertexId;

/// Merged arcs of one or two sets of runs, divided into ranges of keys that are the same for both.
///
/// Ranges are divided between arcs, not between vertices, so that the arcs of a vertex with many neighbours need not fit
/// into memory.
pub(crate) struct Merge<V, W> {
    sides: Vec<Sorted<V, W>>,
    /// Keys at which the second and later ranges begin.
    splits: Vec<Key<V>>,
}

impl<V: VertexId, W: EdgeWeight> Merge<V, W> {
    /// Divides the arcs of all sides into ranges of about `most` arcs, duplicates in different runs included.
    pub(crate) fn new(sides: Vec<Sorted<V, W>>, most: u64) -> Self {
        let mut samples: Vec<Key<V>> = sides.iter().flat_map(Sorted::samples).collect();
        samples.sort_unstable();
        let step = (most / SAMPLE).max(1) as usize;
        let mut splits: Vec<Key<V>> = samples.into_iter().step_by(step).skip(1).collect();
        splits.dedup();
        Self { sides, splits }
    }

    /// Returns the number of ranges.
    pub(crate) fn ranges(&self) -> usize {
        self.splits.len() + 1
    }

    /// Returns the arcs of a range of one side, sorted and without duplicates: none if there is no such side.
    pub(crate) fn range(&self, side: usize, range: usize) -> Result<Vec<Arc<V, W>>, SpillError> {
        let low = range.checked_sub(1).map(|before| self.splits[before]);
        let high = self.splits.get(range).copied();
        self.sides.get(side).map_or_else(|| Ok(Vec::new()), |sorted| sorted.between(low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Runs;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Sorts edges in runs of `run` arcs and merges them in ranges of `most`.
    fn merged(edges: &[(u64, u64, u32)], run: usize, most: u64) -> (Vec<(u64, u64, u32)>, usize) {
        let runs = Runs::<u64, u32>::create(&std::env::temp_dir()).unwrap();
        for part in edges.chunks(run) {
            let mut arcs = part.iter().map(|&(from, to, weight)| Arc { from, to, weight }).collect();
            runs.add(&mut arcs).unwrap();
        }
        let merge = Merge::new(vec![runs.finish()], most);
        let arcs = (0..merge.ranges()).flat_map(|r| merge.range(0, r).unwrap());
        (arcs.map(|a| (a.from, a.to, a.weight)).collect(), merge.ranges())
    }

    proptest! {
        #[test]
        fn runs_of_any_size_give_the_sorted_arcs(
            edges in prop::collection::vec((0u64..40, 0u64..40, 0u32..5), 0..3000), run in 1usize..4000, most in 1u64..5000,
        ) {
            let mut expected = BTreeMap::new();
            for &(from, to, weight) in &edges {
                let least = expected.entry((from, to)).or_insert(weight);
                *least = weight.min(*least);
            }
            let expected: Vec<_> = expected.into_iter().map(|((from, to), weight)| (from, to, weight)).collect();
            prop_assert_eq!(merged(&edges, run, most).0, expected);
        }
    }

    #[test]
    fn one_vertex_with_all_arcs_is_divided() {
        let edges: Vec<_> = (0..50_000u64).map(|i| (7, i * 7919 % 50_000, 0)).collect();
        let (arcs, ranges) = merged(&edges, 9_000, 5_000);
        assert!((10..=13).contains(&ranges), "{ranges} ranges");
        assert!(arcs.iter().map(|a| a.1).eq(0..50_000));
    }
}
