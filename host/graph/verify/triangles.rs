//! Verification of triangle counts.

use super::{VerifyError, check_length, name};
use crate::graph::csr::{Csr, VertexId, with_neighbours};
use crate::graph::parallel;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Returns the number of triangles of each vertex of an undirected graph. All threads count: sorted lists are merged.
/// Each vertex has those of its neighbours whose degree is higher, or whose number is if the degrees are equal.
pub fn triangles_of_vertices(csr: &Csr) -> Vec<u64> {
    with_neighbours!(csr.neighbours(), list => merged(csr, list))
}

fn merged<V: VertexId>(csr: &Csr, list: &[V]) -> Vec<u64> {
    let vertices = csr.vertices() as usize;
    let key = |v: u64| (csr.degree(v), v);
    let higher: Vec<Vec<V>> = parallel::map(vertices, |v| {
        let own = key(v as u64);
        let mut of_v: Vec<V> = list[csr.range(v as u64)].iter().copied().filter(|n| key(n.number()) > own).collect();
        of_v.sort_unstable();
        of_v
    });
    let found: Vec<AtomicU64> = (0..vertices).map(|_| AtomicU64::new(0)).collect();
    let add = |v: V| found[v.index()].fetch_add(1, Relaxed);
    parallel::each(vertices, |u| {
        for &v in &higher[u] {
            let (mut a, mut b) = (higher[u].iter().peekable(), higher[v.index()].iter().peekable());
            while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
                let order = x.cmp(y);
                if order == Ordering::Equal {
                    found[u].fetch_add(1, Relaxed);
                    add(v);
                    add(**x);
                }
                if order.is_le() {
                    a.next();
                }
                if order.is_ge() {
                    b.next();
                }
            }
        }
    });
    found.into_iter().map(AtomicU64::into_inner).collect()
}

/// Checks the number of triangles of each vertex, and the total, in which each triangle counts once.
///
/// # Errors
/// [`VerifyError::Length`] if there is not one count for each vertex; [`VerifyError::Triangles`] for the first wrong
/// count; [`VerifyError::TriangleTotal`] if the total is wrong.
pub fn triangles(csr: &Csr, counts: &[u64], total: u64) -> Result<(), VerifyError> {
    check_length(csr, counts.len())?;
    let expected = triangles_of_vertices(csr);
    if let Some(v) = parallel::position(counts.len(), |v| counts[v] != expected[v]) {
        let vertex = name(csr, v as u64);
        return Err(VerifyError::Triangles { vertex, found: counts[v], expected: expected[v] });
    }
    // Each triangle has three vertices.
    let expected = parallel::sum(counts.len(), |v| counts[v]) / 3;
    if total == expected { Ok(()) } else { Err(VerifyError::TriangleTotal { found: total, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{CsrOptions, hub};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merged_lists_have_the_triangles_of_all_triples(
            edges in prop::collection::vec((0u64..14, 0u64..14), 0..60), wide: bool, by_degree: bool,
        ) {
            let options = CsrOptions { wide, keep_self_loops: true, ..Default::default() };
            let mut csr = Csr::from_edges(14, &edges, options).unwrap();
            if by_degree {
                hub::order_by_degree(&mut csr);
            }
            let mut expected = vec![0; 14];
            let mut total = 0;
            for a in 0..14 {
                for b in 0..a {
                    for c in (0..b).filter(|&c| csr.has_arc(a, b) && csr.has_arc(b, c) && csr.has_arc(c, a)) {
                        [a, b, c].into_iter().for_each(|v| expected[v as usize] += 1);
                        total += 1;
                    }
                }
            }
            prop_assert_eq!(&triangles_of_vertices(&csr), &expected);
            prop_assert_eq!(triangles(&csr, &expected, total), Ok(()));
            expected[3] += 1;
            prop_assert!(triangles(&csr, &expected, total).is_err());
        }
    }

    #[test]
    fn a_wrong_count_or_total_is_found() {
        let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 0), (2, 3)], CsrOptions::default()).unwrap();
        assert_eq!(triangles(&csr, &[1, 1, 1, 0], 1), Ok(()));
        let wrong = VerifyError::Triangles { vertex: 3u64.into(), found: 1, expected: 0 };
        assert_eq!(triangles(&csr, &[1, 1, 1, 1], 1), Err(wrong));
        let wrong = VerifyError::TriangleTotal { found: 3, expected: 1 };
        assert_eq!(triangles(&csr, &[1, 1, 1, 0], 3), Err(wrong));
        assert_eq!(triangles(&csr, &[], 0), Err(VerifyError::Length { found: 0, vertices: 4 }));
    }
}
