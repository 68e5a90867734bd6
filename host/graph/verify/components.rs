//! Verification of connected components, in directed graphs of the weakly connected ones.

use super::bfs::Sweep;
use super::{VerifyError, check_length, name};
use crate::graph::csr::{Csr, VertexId, with_neighbours};
use rayon::prelude::*;

/// Returns the smallest vertex of each vertex's component, found serially. Undirected graphs are searched; for directed
/// graphs all edges go through union-find.
pub fn connected_components(csr: &Csr) -> Vec<u64> {
    with_neighbours!(csr.neighbours(), list => {
        if csr.directed() { united(csr, list) } else { swept(csr, list) }
    })
}

/// Checks that each label is the smallest vertex of its component.
///
/// # Errors
/// [`VerifyError::Length`] if there is not one label for each vertex; [`VerifyError::Component`] for the first wrong
/// label.
pub fn components<V: VertexId>(csr: &Csr, labels: &[V]) -> Result<(), VerifyError> {
    check_length(csr, labels.len())?;
    let expected = connected_components(csr);
    let wrong = labels.par_iter().zip(&expected).position_first(|(&a, &b)| a.number() != b);
    let Some(v) = wrong else { return Ok(()) };
    let found: u64 = labels[v].number();
    Err(VerifyError::Component {
        vertex: name(csr, v as u64),
        found: if found < csr.vertices() { name(csr, found) } else { found.into() },
        expected: name(csr, expected[v]),
    })
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
    use crate::graph::CsrOptions;
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
