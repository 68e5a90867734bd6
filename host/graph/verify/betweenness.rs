//! Verification of betweenness centrality, by Brandes' algorithm as GAP's verifier has it: a serial search from each
//! source, then sums from the farthest vertices to the nearest.

use super::{VerifyError, check_length, check_source, name};
use crate::graph::csr::{Csr, VertexId, with_neighbours};
use crate::graph::parallel;

/// Largest relative difference of a score from that of the serial sums. Sums of positive numbers lose little more than
/// their number of roundings.
pub const SCORE_TOLERANCE: f64 = 1e-6;

/// Checks scores against those of a serial computation for each source, within [`SCORE_TOLERANCE`].
///
/// # Errors
/// [`VerifyError::Length`] if there is not one score for each vertex; [`VerifyError::Source`] if a source is not a
/// vertex; [`VerifyError::Score`] for the first wrong score.
pub fn betweenness(csr: &Csr, sources: &[u64], scores: &[f64]) -> Result<(), VerifyError> {
    check_length(csr, scores.len())?;
    let expected = betweenness_scores(csr, sources)?;
    // Written so that a score that is NaN does not pass.
    let is_right = |v: usize| (scores[v] - expected[v]).abs() <= SCORE_TOLERANCE * expected[v].max(1.0);
    match parallel::position(scores.len(), |v| !is_right(v)) {
        None => Ok(()),
        Some(v) => Err(VerifyError::Score { vertex: name(csr, v as u64), found: scores[v], expected: expected[v] }),
    }
}

/// Returns the sum of the dependencies of the sources on each vertex.
///
/// # Errors
/// [`VerifyError::Source`] if a source is not a vertex.
pub fn betweenness_scores(csr: &Csr, sources: &[u64]) -> Result<Vec<f64>, VerifyError> {
    sources.iter().try_for_each(|&source| check_source(csr, source))?;
    let none = || vec![0.0; csr.vertices() as usize];
    let add = |mut scores: Vec<f64>, i: usize| {
        with_neighbours!(csr.neighbours(), list => add_dependencies(csr, list, sources[i], &mut scores));
        scores
    };
    let merge = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).map(|(a, b)| a + b).collect();
    Ok(parallel::fold(sources.len(), none, add, merge))
}

fn add_dependencies<V: VertexId>(csr: &Csr, list: &[V], source: u64, scores: &mut [f64]) {
    let neighbours = |v: usize| list[csr.range(v as u64)].iter().map(|n| n.index());
    let (mut depth, mut paths) = (vec![u32::MAX; scores.len()], vec![0.0; scores.len()]);
    let source = source as usize;
    (depth[source], paths[source]) = (0, 1.0);
    let mut reached = vec![source];
    let mut at = 0;
    while let Some(&v) = reached.get(at) {
        at += 1;
        for n in neighbours(v) {
            if depth[n] == u32::MAX {
                depth[n] = depth[v] + 1;
                reached.push(n);
            }
            if depth[n] == depth[v] + 1 {
                paths[n] += paths[v];
            }
        }
    }
    let mut dependency = vec![0.0; scores.len()];
    for &v in reached.iter().rev() {
        let behind = neighbours(v).filter(|&n| depth[n] == depth[v] + 1);
        dependency[v] = behind.map(|n| paths[v] / paths[n] * (1.0 + dependency[n])).sum();
        if v != source {
            scores[v] += dependency[v];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::CsrOptions;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn scores_are_shares_of_all_shortest_paths(
            edges in prop::collection::vec((0u64..9, 0u64..9), 0..24), directed: bool, wide: bool,
            sources in prop::collection::vec(0u64..9, 0..6), change in prop::option::of((0usize..9, -1.0f64..1.0)),
        ) {
            let csr = Csr::from_edges(9, &edges, CsrOptions { directed, wide, keep_self_loops: true }).unwrap();
            // Distances and numbers of paths between all pairs, by the lengths of walks.
            let mut walks = [[0.0f64; 9]; 9];
            (0..9).for_each(|v| walks[v][v] = 1.0);
            let mut paths = vec![walks];
            for _ in 1..9 {
                let mut longer = [[0.0; 9]; 9];
                for (longer, walks) in longer.iter_mut().zip(&walks) {
                    for b in 0..9u64 {
                        csr.neighbours_of(b).for_each(|n| longer[n as usize] += walks[b as usize]);
                    }
                }
                walks = longer;
                paths.push(walks);
            }
            let distance = |a: usize, b: usize| (0..9).find(|&k| paths[k][a][b] > 0.0);
            let mut expected = [0.0; 9];
            for &s in &sources {
                for t in 0..9 {
                    let s = s as usize;
                    let Some(whole) = distance(s, t) else { continue };
                    for v in (0..9).filter(|&v| v != s && v != t) {
                        if let (Some(a), Some(b)) = (distance(s, v), distance(v, t)) && a + b == whole {
                            expected[v] += paths[a][s][v] * paths[b][v][t] / paths[whole][s][t];
                        }
                    }
                }
            }
            let mut scores = expected.to_vec();
            prop_assert_eq!(betweenness(&csr, &sources, &scores), Ok(()));
            if let Some((v, by)) = change {
                scores[v] += by;
                prop_assert_eq!(betweenness(&csr, &sources, &scores).is_ok(), by.abs() <= 1e-6 * expected[v].max(1.0));
            }
        }
    }

    #[test]
    fn wrong_scores_and_sources_are_named() {
        let csr = Csr::from_edges(3, &[(0, 1), (1, 2)], CsrOptions::default()).unwrap();
        assert_eq!(betweenness(&csr, &[0, 2], &[0.0, 2.0, 0.0]), Ok(()));
        let wrong = VerifyError::Score { vertex: 1.into(), found: 1.0, expected: 2.0 };
        assert_eq!(betweenness(&csr, &[0, 2], &[0.0, 1.0, 0.0]), Err(wrong));
        assert!(betweenness(&csr, &[0], &[0.0, f64::NAN, 0.0]).is_err());
        assert_eq!(betweenness(&csr, &[3], &[0.0; 3]), Err(VerifyError::Source { vertex: 3, vertices: 3 }));
    }
}
