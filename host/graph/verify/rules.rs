//! Rules that prove distances from a source to be those of shortest paths. All threads check them, where a search would
//! run on one. Breadth-first search is the case in which each arc has length 1; the rules are then those of the Graph500
//! specification's validation.

use crate::graph::csr::{Csr, VertexId};
use crate::graph::parallel;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Key of vertices that are not reached.
pub(crate) const FAR: u64 = u64::MAX;

/// Returns true if `key` is the length of a shortest path from `source` for each vertex that has one of at most `last`,
/// and [`FAR`] for each other vertex. `add` returns the key behind an arc. It must not descend, and must be monotonic.
///
/// These rules hold for the keys of shortest paths, and for no others:
///
/// 1. The source has key 0.
/// 2. No key other than [`FAR`] exceeds `last`. Each arc u -> v with u reached and `add(key(u)) <= last` has
///    `key(v) <= add(key(u))`, and v is reached.
/// 3. Each other reached vertex v has an arc u -> v with `key(v) == add(key(u))` from a vertex u of a smaller key, or from
///    a vertex u of the same key for which this rule was shown before.
///
/// By 1 and 2, no key along a shortest path of at most `last` exceeds the length of the path, and every vertex on it is
/// reached. By 3, a
/// path of the length `key(v)` leads back from v to the source: keys descend along it, and stay equal only for as many
/// steps as the rule was applied.
pub(super) fn are_shortest<V: VertexId>(
    csr: &Csr,
    list: &[V],
    source: u64,
    last: u64,
    key: impl Fn(usize) -> u64 + Sync,
    add: impl Fn(u64, usize) -> u64 + Sync,
) -> bool {
    let (key, add) = (&key, &add);
    let vertices = csr.vertices() as usize;
    // Vertices for which rule 3 was shown.
    let shown = Bitmap::new(vertices);
    shown.insert(source as usize);
    let bounded = |u: usize| {
        let from = key(u);
        if from == FAR || from > last {
            return from == FAR;
        }
        csr.range(u as u64).all(|arc| {
            let v = list[arc].index();
            let (to, next) = (key(v), add(from, arc));
            if to == next && from < to {
                shown.insert(v);
            }
            next > last || (to <= next && to != FAR)
        })
    };
    if key(source as usize) != 0 || !parallel::all(vertices, bounded) {
        return false;
    }
    let open = &|v: usize| !shown.contains(v) && key(v) != FAR;
    let none_open = || parallel::all(vertices, |v| !open(v));
    if none_open() {
        return true;
    }
    // All others lie behind arcs of length 0.
    let level_and_open = |u: usize| {
        let level = key(u);
        csr.range(u as u64)
            .filter(move |&arc| add(level, arc) == level)
            .map(|arc| list[arc].index())
            .filter(move |&v| key(v) == level && open(v))
    };
    let mut queue = parallel::filter(vertices, |u| shown.contains(u) && level_and_open(u).next().is_some());
    while let Some(u) = queue.pop() {
        for v in level_and_open(u) {
            shown.insert(v);
            queue.push(v);
        }
    }
    none_open()
}

/// Set of vertices to which all threads add.
pub(super) struct Bitmap(Vec<AtomicU64>);

impl Bitmap {
    pub(super) fn new(vertices: usize) -> Self {
        Self((0..vertices.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn contains(&self, v: usize) -> bool {
        self.0[v / 64].load(Relaxed) >> (v % 64) & 1 == 1
    }

    pub(super) fn insert(&self, v: usize) {
        // A load is cheaper than an exchange, and most vertices are inserted many times.
        if !self.contains(v) {
            self.0[v / 64].fetch_or(1 << (v % 64), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::csr::{Weights, with_neighbours};
    use crate::graph::verify::{breadth_first, dijkstra};
    use crate::graph::{CsrOptions, UNREACHED, hub};
    use proptest::prelude::*;

    fn hold(csr: &Csr, source: u64, keys: &[u64]) -> bool {
        hold_within(csr, source, FAR, keys)
    }

    fn hold_within(csr: &Csr, source: u64, last: u64, keys: &[u64]) -> bool {
        let weight = |arc: usize| match csr.weights() {
            Some(Weights::U32(w)) => w[arc].into(),
            _ => 1,
        };
        with_neighbours!(csr.neighbours(), list => {
            are_shortest(csr, list, source, last, |v| keys[v], |key, arc| key.saturating_add(weight(arc)))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn the_rules_hold_for_the_distances_of_dijkstra_alone(
            edges in prop::collection::vec((0u64..12, 0u64..12, prop_oneof![3 => 0u32..3, 1 => Just(u32::MAX)]), 0..40),
            directed: bool, wide: bool, by_degree: bool, source in 0u64..12, last in prop_oneof![0u64..6, Just(FAR)],
            changes in prop::collection::vec((0usize..12, prop_oneof![0u64..6, Just(FAR), Just(FAR - 1)]), 0..5),
        ) {
            let options = CsrOptions { directed, wide, keep_self_loops: true };
            let mut csr = Csr::from_weighted_edges(12, &edges, options).unwrap();
            if by_degree {
                hub::order_by_degree(&mut csr);
            }
            let mut right = dijkstra(&csr, source).unwrap();
            right.iter_mut().filter(|key| **key > last).for_each(|key| *key = FAR);
            let mut keys = right.clone();
            for (v, key) in changes {
                keys[v] = key;
            }
            prop_assert_eq!(hold_within(&csr, source, last, &keys), keys == right, "{:?} for {:?}", keys, right);
        }

        #[test]
        fn shifted_groups_of_vertices_are_refused(
            edges in prop::collection::vec((0u64..20, 0u64..20), 0..60), directed: bool,
            group: [bool; 20], by in prop_oneof![Just(-1i64), Just(1), Just(2)],
        ) {
            let csr = Csr::from_edges(20, &edges, CsrOptions { directed, ..Default::default() }).unwrap();
            let widen = |d: &u32| if *d == UNREACHED { FAR } else { u64::from(*d) };
            let right: Vec<u64> = breadth_first(&csr, 0).unwrap().iter().map(widen).collect();
            let shift = |(v, key): (usize, &u64)| if group[v] && *key != FAR { key.wrapping_add_signed(by) } else { *key };
            let keys: Vec<u64> = right.iter().enumerate().map(shift).collect();
            prop_assert_eq!(hold(&csr, 0, &keys), keys == right, "{:?} for {:?}", keys, right);
        }
    }

    #[test]
    fn vertices_that_hold_each_other_up_are_not_reached() {
        // A cycle of length 0 that the source does not reach, and one that it reaches over a longer path.
        let edges = [(0, 1, 5), (1, 2, 0), (2, 3, 0), (3, 1, 0), (4, 5, 0), (5, 4, 0)];
        let csr = Csr::from_weighted_edges(6, &edges, CsrOptions::default().directed(true)).unwrap();
        assert!(hold(&csr, 0, &[0, 5, 5, 5, FAR, FAR]));
        assert!(!hold(&csr, 0, &[0, 5, 5, 5, 7, 7]));
        assert!(!hold(&csr, 0, &[0, 3, 3, 3, FAR, FAR]));
        assert!(!hold(&csr, 0, &[0, 5, 5, FAR, FAR, FAR]));
    }
}
