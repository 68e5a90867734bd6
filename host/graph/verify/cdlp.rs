//! Verification of label propagation, by the rule of LDBC Graphalytics (specification, "Community Detection using Label
//! Propagation"). The labels of each iteration follow from those before it, so the check repeats all iterations.

use super::{VerifyError, check_length, name};
use crate::graph::csr::{Csr, VertexId, with_neighbours};
use crate::graph::parallel;

/// Checks that `labels` are those of the synchronous rule after `iterations` iterations. `in_edges` is the
/// [transpose](Csr::transpose) of a directed graph; an undirected graph does not need it.
///
/// # Errors
/// [`VerifyError::Length`] if there is not one label for each vertex; [`VerifyError::Label`] for the first wrong label.
pub fn cdlp<V: VertexId>(csr: &Csr, in_edges: Option<&Csr>, iterations: u32, labels: &[V]) -> Result<(), VerifyError> {
    check_length(csr, labels.len())?;
    let expected = propagated_labels(csr, in_edges, iterations);
    let Some(v) = parallel::position(labels.len(), |v| labels[v].number() != expected[v]) else { return Ok(()) };
    let found: u64 = labels[v].number();
    Err(VerifyError::Label {
        vertex: name(csr, v as u64),
        found: if found < csr.vertices() { name(csr, found) } else { found.into() },
        expected: name(csr, expected[v]),
    })
}

/// Returns the label of each vertex after a number of iterations: the vertex whose label it was at the start.
pub fn propagated_labels(csr: &Csr, in_edges: Option<&Csr>, iterations: u32) -> Vec<u64> {
    let mut labels: Vec<u64> = (0..csr.vertices()).collect();
    for _ in 0..iterations {
        let next = parallel::map(labels.len(), |v| {
            let mut around = Vec::new();
            for lists in [Some(csr), in_edges.filter(|_| csr.directed())].into_iter().flatten() {
                with_neighbours!(lists.neighbours(), list => {
                    let others = list[lists.range(v as u64)].iter().map(|n| n.index()).filter(|n| *n != v);
                    around.extend(others.map(|n| labels[n]));
                });
            }
            most_frequent(around).unwrap_or(labels[v])
        });
        if next == labels {
            break;
        }
        labels = next;
    }
    labels
}

/// Returns the most frequent label, of several the smallest; `None` without labels.
fn most_frequent(mut labels: Vec<u64>) -> Option<u64> {
    labels.sort_unstable();
    let runs = labels.chunk_by(|a, b| a == b);
    // The first of the longest runs. `max_by_key` would return the last one.
    runs.reduce(|best, run| if run.len() > best.len() { run } else { best }).map(|run| run[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::CsrOptions;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const UNDIRECTED: CsrOptions = CsrOptions { directed: false, keep_self_loops: false, wide: false };

    #[test]
    fn the_smallest_of_the_most_frequent_labels_wins() {
        assert_eq!(most_frequent(vec![]), None);
        assert_eq!(most_frequent(vec![7]), Some(7));
        assert_eq!(most_frequent(vec![9, 3, 5, 3, 5]), Some(3));
        assert_eq!(most_frequent(vec![1, 5, 5, 9]), Some(5));
    }

    /// Labels of a list of edges by the rule as it is written: a count for each neighbour of each edge's end.
    fn by_edges(vertices: u64, edges: &[(u64, u64)], directed: bool, iterations: u32) -> Vec<u64> {
        let mut edges: Vec<_> = edges.iter().copied().filter(|(a, b)| a != b).collect();
        if !directed {
            edges.iter_mut().for_each(|e| *e = (e.0.min(e.1), e.0.max(e.1)));
        }
        edges.sort_unstable();
        edges.dedup();
        let mut labels: Vec<u64> = (0..vertices).collect();
        for _ in 0..iterations {
            let mut counts = vec![HashMap::new(); vertices as usize];
            for &(a, b) in &edges {
                *counts[a as usize].entry(labels[b as usize]).or_insert(0) += 1;
                *counts[b as usize].entry(labels[a as usize]).or_insert(0) += 1;
            }
            for (label, counts) in labels.iter_mut().zip(counts) {
                let best = counts.into_iter().max_by_key(|&(l, n)| (n, std::cmp::Reverse(l)));
                *label = best.map_or(*label, |(l, _)| l);
            }
        }
        labels
    }

    proptest! {
        #[test]
        fn lists_and_edges_give_the_same_labels(
            edges in prop::collection::vec((0u64..30, 0u64..30), 0..90), directed: bool, iterations in 0u32..6,
            change in prop::option::of((0usize..30, 0u32..32)),
        ) {
            let options = CsrOptions { directed, keep_self_loops: true, ..UNDIRECTED };
            let csr = Csr::from_edges(30, &edges, options).unwrap();
            let turned = csr.transpose();
            let expected = by_edges(30, &edges, directed, iterations);
            let mut labels: Vec<u32> = expected.iter().map(|l| *l as u32).collect();
            prop_assert_eq!(cdlp(&csr, Some(&turned), iterations, &labels), Ok(()));
            if let Some((v, label)) = change {
                labels[v] = label;
                let found = cdlp(&csr, Some(&turned), iterations, &labels);
                prop_assert_eq!(found.is_ok(), expected[v] == u64::from(label));
            }
        }
    }

    #[test]
    fn a_wrong_label_is_named() {
        let csr = Csr::from_edges(4, &[(0, 1), (1, 2)], UNDIRECTED).unwrap();
        assert_eq!(propagated_labels(&csr, None, 1), [1, 0, 1, 3]);
        let wrong = cdlp(&csr, None, 1, &[1u64, 0, 9, 3]);
        assert_eq!(wrong, Err(VerifyError::Label { vertex: 2.into(), found: 9.into(), expected: 1.into() }));
        assert_eq!(cdlp(&csr, None, 1, &[0u32]), Err(VerifyError::Length { found: 1, vertices: 4 }));
    }
}
