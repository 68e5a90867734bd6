//! Verification of connected components, in directed graphs of the weakly connected ones.

use super::bfs::Sweep;
use super::{VerifyError, check_length, name};
use crate::graph::csr::{Csr, VertexId, with_neighbours};
use crate::graph::parallel;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Returns the smallest vertex of each vertex's component, found serially. Undirected graphs are searched; for directed
/// graphs all edges go through union-find.
pub fn connected_components(csr: &Csr) -> Vec<u64> {
    with_neighbours!(csr.neighbours(), list => {
        if csr.directed() { united(csr, list) } else { swept(csr, list) }
    })
}

/// Checks that each label is the smallest vertex of its component. All threads check rules that hold for these labels
/// alone. The serial search runs only if a rule does not hold, and then determines the right label.
///
/// # Errors
/// [`VerifyError::Length`] if there is not one label for each vertex; [`VerifyError::Component`] for the first wrong
/// label.
pub fn components<V: VertexId>(csr: &Csr, labels: &[V]) -> Result<(), VerifyError> {
    check_length(csr, labels.len())?;
    if with_neighbours!(csr.neighbours(), list => are_components(csr, list, labels)) {
        return Ok(());
    }
    let expected = connected_components(csr);
    let wrong = parallel::position(labels.len(), |v| labels[v].number() != expected[v]);
    let Some(v) = wrong else { return Ok(()) };
    let found: u64 = labels[v].number();
    Err(VerifyError::Component {
        vertex: name(csr, v as u64),
        found: if found < csr.vertices() { name(csr, found) } else { found.into() },
        expected: name(csr, expected[v]),
    })
}

/// Returns true if each label is the smallest vertex of its component.
///
/// A label is a vertex with this label, and no vertex with the label is smaller. Each arc joins vertices of one label, so
/// a label belongs to whole components. There are then at least as many components as labels. A forest of arcs has at
/// least as many trees as there are components. If it has as many trees as there are labels, each label has one component.
fn are_components<N: VertexId, V: VertexId>(csr: &Csr, list: &[N], labels: &[V]) -> bool {
    let vertices = labels.len();
    let arcs = |v: usize| list[csr.range(v as u64)].iter().map(|n| n.index());
    let is_named = |v: usize| {
        let label = labels[v];
        label.number() <= v as u64 && labels[label.index()] == label
    };
    // An undirected edge between two labels is in the lists of both ends, so the vertices of one label, here a frequent
    // one, need not be looked at.
    let best_connected = parallel::fold(
        vertices,
        || None,
        |best: Option<usize>, v| best.filter(|&b| csr.degree(b as u64) > csr.degree(v as u64)).or(Some(v)),
        |a, b| b.filter(|&b| a.is_none_or(|a| csr.degree(b as u64) >= csr.degree(a as u64))).or(a),
    );
    let skipped = best_connected.filter(|_| !csr.directed()).map(|v| labels[v]);
    let is_closed = |v: usize| skipped == Some(labels[v]) || arcs(v).all(|n| labels[n] == labels[v]);
    if !parallel::all(vertices, |v| is_named(v) && is_closed(v)) {
        return false;
    }
    let names = parallel::sum(vertices, |v| usize::from(labels[v].index() == v));
    let forest = Forest::new(labels.len());
    // One or two arcs of each vertex connect most of a graph.
    parallel::each(vertices, |v| arcs(v).take(2).for_each(|n| forest.join(v, n)));
    if forest.trees() == names {
        return true;
    }
    // If an arc leads from a tree to that of the label, an undirected graph also has the opposite one. So only vertices
    // outside of that tree need their arcs.
    let is_apart = |v: usize| csr.directed() || forest.root(v) != forest.root(labels[v].index());
    parallel::each(vertices, |v| {
        if is_apart(v) {
            arcs(v).for_each(|n| forest.join(v, n));
        }
    });
    forest.trees() == names
}

/// Disjoint sets of vertices that all threads join. Of two roots, the smaller one remains a root (Anderson, Woll,
/// "Wait-free parallel algorithms for the union-find problem", STOC 1991).
struct Forest(Vec<AtomicUsize>);

impl Forest {
    fn new(vertices: usize) -> Self {
        Self((0..vertices).map(AtomicUsize::new).collect())
    }

    /// Returns the root of `v`'s tree, and halves the path to it.
    fn root(&self, mut v: usize) -> usize {
        loop {
            let above = self.0[v].load(Relaxed);
            let top = self.0[above].load(Relaxed);
            if above == top {
                return above;
            }
            // If another thread has shortened the path meanwhile, its value is as good.
            let _ = self.0[v].compare_exchange_weak(above, top, Relaxed, Relaxed);
            v = top;
        }
    }

    fn join(&self, a: usize, b: usize) {
        loop {
            let (a, b) = (self.root(a), self.root(b));
            let (low, high) = (a.min(b), a.max(b));
            // Fails if `high` is no root any more.
            if low == high || self.0[high].compare_exchange(high, low, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    fn trees(&self) -> usize {
        parallel::sum(self.0.len(), |v| usize::from(self.0[v].load(Relaxed) == v))
    }
}

fn swept<V: VertexId>(csr: &Csr, list: &[V]) -> Vec<u64> {
    const NONE: u64 = u64::MAX;
    let mut labels = vec![NONE; csr.vertices() as usize];
    let mut sweep = Sweep::new(csr);
    for v in 0..csr.vertices() {
        // Vertices are visited in ascending order, so the first of a component is its smallest.
        if labels[v as usize] == NONE {
            sweep.spread(list, v, &mut labels, NONE, |_| v);
        }
    }
    labels
}

fn united<V: VertexId>(csr: &Csr, list: &[V]) -> Vec<u64> {
    let mut up: Vec<u64> = (0..csr.vertices()).collect();
    /// Returns the root of a tree, and halves the path to it (Tarjan, van Leeuwen, "Worst-case analysis of set union
    /// algorithms", J. ACM 31, 1984).
    fn root(up: &mut [u64], mut v: u64) -> u64 {
        while up[v as usize] != v {
            up[v as usize] = up[up[v as usize] as usize];
            v = up[v as usize];
        }
        v
    }
    for u in 0..csr.vertices() {
        for &n in &list[csr.range(u)] {
            // The smaller root remains a root, so each root is the smallest vertex of its tree.
            let (a, b) = (root(&mut up, u), root(&mut up, n.number()));
            up[a.max(b) as usize] = a.min(b);
        }
    }
    for v in 0..csr.vertices() {
        up[v as usize] = root(&mut up, v);
    }
    up
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{CsrOptions, hub};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn searching_and_uniting_agree(edges in prop::collection::vec((0u64..80, 0u64..80), 0..120), wide: bool) {
            let options = CsrOptions { wide, ..Default::default() };
            let undirected = Csr::from_edges(80, &edges, options).unwrap();
            let directed = Csr::from_edges(80, &edges, CsrOptions { directed: true, ..options }).unwrap();
            let labels = connected_components(&undirected);
            prop_assert_eq!(&connected_components(&directed), &labels);
            // Both ends of each edge have the same label, and a label is a member of its component.
            for &(a, b) in &edges {
                prop_assert_eq!(labels[a as usize], labels[b as usize]);
            }
            for (v, &label) in labels.iter().enumerate() {
                prop_assert!(label <= v as u64 && labels[label as usize] == label);
            }
            // There are as many components as a forest of these edges has trees.
            let mut forest = spread(80, &edges);
            forest.sort_unstable();
            let mut roots: Vec<u64> = labels.clone();
            roots.sort_unstable();
            roots.dedup();
            prop_assert_eq!(roots, forest);
            prop_assert_eq!(components(&undirected, &labels), Ok(()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn the_rules_hold_for_the_labels_of_the_serial_search_alone(
            edges in prop::collection::vec((0u64..16, 0u64..16), 0..24), directed: bool, wide: bool, by_degree: bool,
            changes in prop::collection::vec((0usize..16, 0u32..18), 0..4), merged in prop::option::of((0u64..16, 0u64..16)),
        ) {
            let options = CsrOptions { directed, wide, keep_self_loops: true };
            let mut csr = Csr::from_edges(16, &edges, options).unwrap();
            if by_degree {
                hub::order_by_degree(&mut csr);
            }
            let right = connected_components(&csr);
            let mut labels: Vec<u32> = right.iter().map(|l| *l as u32).collect();
            // Several components get one label, or some vertices others.
            if let Some((a, b)) = merged {
                let (a, b) = (right[a as usize] as u32, right[b as usize] as u32);
                labels.iter_mut().filter(|l| **l == a.max(b)).for_each(|l| *l = a.min(b));
            }
            for (v, label) in changes {
                labels[v] = label;
            }
            let is_right = labels.iter().zip(&right).all(|(l, r)| u64::from(*l) == *r);
            let hold = with_neighbours!(csr.neighbours(), list => are_components(&csr, list, &labels));
            prop_assert_eq!(hold, is_right, "{:?} for {:?}", labels, right);
            prop_assert_eq!(components(&csr, &labels).is_ok(), is_right);
        }
    }

    #[test]
    fn threads_join_sets_as_one_does() {
        const VERTICES: usize = 20_000;
        let pairs: Vec<_> = (0..VERTICES).map(|i| (i, i.wrapping_mul(0x9e37_79b9) / 7 % VERTICES)).collect();
        let edges: Vec<_> = pairs.iter().map(|&(a, b)| (a as u64, b as u64)).collect();
        let expected = connected_components(&Csr::from_edges(VERTICES as u64, &edges, CsrOptions::default()).unwrap());
        let forest = Forest::new(VERTICES);
        parallel::each(pairs.len(), |i| forest.join(pairs[i].0, pairs[i].1));
        assert!((0..VERTICES).all(|v| forest.root(v) as u64 == expected[v]));
    }

    /// Returns the smallest vertices of the components, by spreading minima until nothing changes.
    fn spread(vertices: u64, edges: &[(u64, u64)]) -> Vec<u64> {
        let mut least: Vec<u64> = (0..vertices).collect();
        loop {
            let before = least.clone();
            for &(a, b) in edges {
                let m = least[a as usize].min(least[b as usize]);
                (least[a as usize], least[b as usize]) = (m, m);
            }
            if least == before {
                least.dedup();
                least.sort_unstable();
                least.dedup();
                return least;
            }
        }
    }

    #[test]
    fn a_component_that_is_split_or_merged_or_misnamed_is_found() {
        let csr = Csr::from_edges(5, &[(0, 1), (1, 2), (3, 4)], CsrOptions::default()).unwrap();
        assert_eq!(components(&csr, &[0u32, 0, 0, 3, 3]), Ok(()));
        let wrong = |labels: [u32; 5], vertex: u64, found: u64, expected: u64| {
            assert_eq!(
                components(&csr, &labels),
                Err(VerifyError::Component { vertex: vertex.into(), found: found.into(), expected: expected.into() })
            );
        };
        wrong([0, 0, 2, 3, 3], 2, 2, 0);
        wrong([0, 0, 0, 0, 0], 3, 0, 3);
        wrong([1, 1, 1, 3, 3], 0, 1, 0);
        wrong([0, 0, 0, 3, 99], 4, 99, 3);
    }
}
