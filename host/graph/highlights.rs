//! Facts that a result shows at a glance: the farthest vertex, how many vertices are how far, the largest components and
//! cores, the highest ranks, the most triangles.

use super::verify::Distances;
use crate::graph::parallel;
use serde::Serialize;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

/// Returns the number of vertices at each depth, from depth 0 on. Vertices of depth [`UNREACHED`](super::UNREACHED) are
/// not counted.
pub fn level_histogram(depths: &[u32]) -> Vec<u64> {
    let mut found: Vec<u64> = Vec::new();
    for depth in depths.iter().filter(|d| **d != super::UNREACHED) {
        let level = *depth as usize;
        if level >= found.len() {
            found.resize(level + 1, 0);
        }
        found[level] += 1;
    }
    found
}

/// Returns the vertex with the largest distance of all that were reached, and this distance, which is the eccentricity of
/// the source. Of several such vertices, returns the first. `None` if no vertex was reached.
pub fn farthest(distances: &Distances<'_>) -> Option<(u64, f64)> {
    let further = |a: Option<(u64, f64)>, b: Option<(u64, f64)>| match (a, b) {
        (Some(first), Some(second)) => Some(if second.1.total_cmp(&first.1).is_gt() { second } else { first }),
        (first, second) => first.or(second),
    };
    let of = |v: usize| Some((v as u64, distances.real(v)?));
    parallel::fold(distances.len(), || None, |farthest, v| further(farthest, of(v)), further)
}

/// A range of distances.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DistanceRange {
    /// Smallest distance in the range. The range ends before the smallest distance of the next one.
    pub from: f64,
    /// Number of vertices at these distances.
    pub vertices: u64,
}

/// Divides the distances up to the largest one into at most `ranges` ranges of equal width, and counts the vertices in
/// each. Integer distances give ranges that begin at integers. Vertices that were not reached are not counted. Returns no
/// range if no vertex was reached, or if `ranges` is 0.
pub fn distance_histogram(distances: &Distances<'_>, ranges: usize) -> Vec<DistanceRange> {
    let Some((_, largest)) = farthest(distances).filter(|_| ranges > 0) else { return Vec::new() };
    let width = match distances {
        Distances::U32(_) | Distances::U64(_) => (largest / ranges as f64).floor() + 1.0,
        Distances::F32(_) | Distances::F64(_) => largest / ranges as f64,
    };
    // Without a width, all distances are 0. The largest distance belongs to the last range, not to one behind it.
    let range = |d: f64| if width > 0.0 { ((d / width) as usize).min(ranges - 1) } else { 0 };
    let mut found: Vec<DistanceRange> =
        (0..=range(largest)).map(|i| DistanceRange { from: i as f64 * width, vertices: 0 }).collect();
    for distance in (0..distances.len()).filter_map(|v| distances.real(v)) {
        found[range(distance)].vertices += 1;
    }
    found
}

/// Returns the `count` largest components as pairs of label and number of vertices, the largest first. Of components of
/// the same size, the one with the smaller label comes first. Labels are vertices, as
/// [`ComponentsResult`](super::ComponentsResult) has them; others are not counted.
pub fn largest_components(labels: &[u64], count: usize) -> Vec<(u64, u64)> {
    let mut sizes = vec![0u64; labels.len()];
    for label in labels {
        if let Some(size) = sizes.get_mut(*label as usize) {
            *size += 1;
        }
    }
    let components = sizes.into_iter().enumerate().filter(|(_, size)| *size > 0);
    let components = components.map(|(label, size)| (label as u64, size)).collect();
    first(components, count, |a, b| Reverse(a.1).cmp(&Reverse(b.1)).then(a.0.cmp(&b.0)))
}

/// Returns the `count` vertices with the highest ranks, and their ranks, the highest first. Of vertices with the same
/// rank, the smaller one comes first.
pub fn highest_ranks(ranks: &[f64], count: usize) -> Vec<(u64, f64)> {
    let ranks = parallel::map(ranks.len(), |v| (v as u64, ranks[v]));
    first(ranks, count, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)))
}

/// Returns the `count` vertices with the most triangles, and their numbers, the most first. Of vertices with as many, the
/// smaller one comes first.
pub fn most_triangles(triangles: &[u64], count: usize) -> Vec<(u64, u64)> {
    let triangles = parallel::map(triangles.len(), |v| (v as u64, triangles[v]));
    first(triangles, count, |a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)))
}

/// Returns the `count` largest core numbers, the largest first, each with the number of vertices that have it.
pub fn largest_cores(cores: &[u64], count: usize) -> Vec<(u64, u64)> {
    let mut vertices: BTreeMap<u64, u64> = BTreeMap::new();
    for core in cores {
        *vertices.entry(*core).or_default() += 1;
    }
    vertices.into_iter().rev().take(count).collect()
}

/// Returns the first `count` items in this order.
fn first<T: Send>(mut items: Vec<T>, count: usize, order: impl Fn(&T, &T) -> Ordering + Sync) -> Vec<T> {
    if count == 0 {
        return Vec::new();
    }
    // Only the items that are returned are sorted.
    if count < items.len() {
        items.select_nth_unstable_by(count - 1, &order);
        items.truncate(count);
    }
    items.sort_by(order);
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::UNREACHED;
    use proptest::prelude::*;

    #[test]
    fn levels_are_counted_without_the_unreached() {
        assert_eq!(level_histogram(&[1, 0, UNREACHED, 1, 3]), [1, 2, 0, 1]);
        assert!(level_histogram(&[UNREACHED]).is_empty());
    }

    #[test]
    fn the_farthest_vertex_is_the_first_of_the_largest_distance() {
        assert_eq!(farthest(&Distances::U32(&[1, 7, u32::MAX, 7])), Some((1, 7.0)));
        assert_eq!(farthest(&Distances::F64(&[0.5, f64::INFINITY, 0.75])), Some((2, 0.75)));
        assert_eq!(farthest(&Distances::U64(&[u64::MAX])), None);
        assert_eq!(farthest(&Distances::F32(&[])), None);
    }

    fn ranges(distances: &Distances<'_>, count: usize) -> Vec<(f64, u64)> {
        distance_histogram(distances, count).iter().map(|r| (r.from, r.vertices)).collect()
    }

    #[test]
    fn distances_are_counted_in_ranges() {
        let integers = [0, 1, 1, 2, 9, u64::MAX];
        assert_eq!(ranges(&Distances::U64(&integers), 3), [(0.0, 4), (4.0, 0), (8.0, 1)]);
        assert_eq!(ranges(&Distances::U64(&integers), 100).len(), 10);
        assert_eq!(ranges(&Distances::F64(&[0.0, 1.0, 0.4, f64::INFINITY]), 2), [(0.0, 2), (0.5, 1)]);
        assert_eq!(ranges(&Distances::F32(&[0.0, 0.0]), 4), [(0.0, 2)]);
        assert_eq!(ranges(&Distances::U32(&[u32::MAX]), 4), []);
        assert_eq!(ranges(&Distances::U32(&[1]), 0), []);
    }

    #[test]
    fn components_of_the_same_size_come_by_their_label() {
        let labels = [0, 1, 1, 0, 4, 5, 5, 5];
        assert_eq!(largest_components(&labels, 3), [(5, 3), (0, 2), (1, 2)]);
        assert_eq!(largest_components(&labels, 0), []);
        assert_eq!(largest_components(&labels, 9).len(), 4);
        assert_eq!(largest_components(&[7], 9), [], "a label that is no vertex");
    }

    #[test]
    fn the_largest_cores_and_counts_come_first() {
        assert_eq!(largest_cores(&[1, 3, 0, 1, 3, 3], 2), [(3, 3), (1, 2)]);
        assert_eq!(largest_cores(&[], 2), []);
        assert_eq!(most_triangles(&[1, 3, 0, 3], 3), [(1, 3), (3, 3), (0, 1)]);
    }

    proptest! {
        #[test]
        fn the_highest_ranks_are_those_of_a_sort(ranks in prop::collection::vec(0u8..9, 0..60), count in 0usize..70) {
            let ranks: Vec<f64> = ranks.into_iter().map(f64::from).collect();
            let mut all: Vec<(u64, f64)> = (0u64..).zip(ranks.iter().copied()).collect();
            // Stable, so equal ranks stay in the order of their vertices.
            all.sort_by(|a, b| b.1.total_cmp(&a.1));
            all.truncate(count);
            prop_assert_eq!(highest_ranks(&ranks, count), all);
        }

        #[test]
        fn every_vertex_that_was_reached_is_in_a_range(
            distances in prop::collection::vec(prop::option::of(0.0f64..1e9), 0..60), count in 1usize..20,
        ) {
            let reals: Vec<f64> = distances.iter().map(|d| d.unwrap_or(f64::INFINITY)).collect();
            let integers: Vec<u64> = distances.iter().map(|d| d.map_or(u64::MAX, |d| d as u64)).collect();
            for distances in [Distances::F64(&reals), Distances::U64(&integers)] {
                let found = distance_histogram(&distances, count);
                prop_assert!(found.len() <= count);
                let reached = (0..distances.len()).filter(|v| distances.reached(*v)).count() as u64;
                prop_assert_eq!(found.iter().map(|r| r.vertices).sum::<u64>(), reached);
            }
        }
    }
}
