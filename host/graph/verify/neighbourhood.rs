//! Verification of triangle counts and clustering coefficients.

use super::{VerifyError, check_length, name};
use crate::graph::csr::Csr;
use crate::graph::parallel;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Largest relative difference of a coefficient from the quotient of the counts.
const COEFFICIENT_TOLERANCE: f64 = 1e-12;

/// Returns for each vertex the number of arcs between its neighbours, and the number of neighbours. Neighbours are those
/// in either direction, without the vertex itself. An edge of an undirected graph is one arc here, so the first numbers
/// are then those of the triangles.
///
/// All threads count: sorted lists are merged. Each vertex has a list of those of its neighbours that have more
/// neighbours, or as many and a larger number. `in_edges` is the [transpose](Csr::transpose) of a directed graph.
pub fn arcs_between_neighbours(csr: &Csr, in_edges: Option<&Csr>) -> (Vec<u64>, Vec<u64>) {
    let vertices = csr.vertices() as usize;
    // The neighbours of a vertex in ascending order, each with the number of arcs.
    let near = |v: usize| {
        let v = v as u64;
        let lists = csr.neighbours_of(v).chain(in_edges.iter().flat_map(|csr| csr.neighbours_of(v)));
        let mut all: Vec<u64> = lists.filter(|n| *n != v).collect();
        all.sort_unstable();
        all.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)).collect::<Vec<_>>()
    };
    let neighbours: Vec<u64> = parallel::map(vertices, |v| near(v).len() as u64);
    let key = |v: u64| (neighbours[v as usize], v);
    let higher: Vec<Vec<(u64, u64)>> = parallel::map(vertices, |v| {
        let mut near = near(v);
        near.retain(|&(n, _)| key(n) > key(v as u64));
        near.shrink_to_fit();
        near
    });
    let found: Vec<AtomicU64> = (0..vertices).map(|_| AtomicU64::new(0)).collect();
    let add = |v: u64, arcs: u64| found[v as usize].fetch_add(arcs, Relaxed);
    parallel::each(vertices, |u| {
        for &(v, arcs_uv) in &higher[u] {
            let (mut a, mut b) = (higher[u].iter().peekable(), higher[v as usize].iter().peekable());
            while let (Some(&&(x, arcs_ux)), Some(&&(y, arcs_vy))) = (a.peek(), b.peek()) {
                let order = x.cmp(&y);
                if order == Ordering::Equal {
                    add(u as u64, arcs_vy);
                    add(v, arcs_ux);
                    add(x, arcs_uv);
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
    (found.into_iter().map(AtomicU64::into_inner).collect(), neighbours)
}

/// Checks the number of triangles of each vertex of an undirected graph, and the total, in which each triangle counts
/// once.
///
/// # Errors
/// [`VerifyError::Length`] if there is not one count for each vertex; [`VerifyError::Triangles`] for the first wrong
/// count; [`VerifyError::TriangleTotal`] if the total is wrong.
pub fn triangles(csr: &Csr, counts: &[u64], total: u64) -> Result<(), VerifyError> {
    check_length(csr, counts.len())?;
    let (expected, _) = arcs_between_neighbours(csr, None);
    if let Some(v) = parallel::position(counts.len(), |v| counts[v] != expected[v]) {
        let vertex = name(csr, v as u64);
        return Err(VerifyError::Triangles { vertex, found: counts[v], expected: expected[v] });
    }
    // Each triangle has three vertices.
    let expected = parallel::sum(counts.len(), |v| counts[v]) / 3;
    if total == expected { Ok(()) } else { Err(VerifyError::TriangleTotal { found: total, expected }) }
}

/// Checks the local clustering coefficient of each vertex by the rule of LDBC Graphalytics: the arcs between its d
/// neighbours in either direction, divided by d (d - 1), and 0 for d < 2. An edge of an undirected graph is two arcs.
/// `in_edges` is the [transpose](Csr::transpose) of a directed graph.
///
/// # Errors
/// [`VerifyError::Length`] if there is not one coefficient for each vertex; [`VerifyError::Coefficient`] for the first
/// that differs by more than rounding.
pub fn clustering(csr: &Csr, in_edges: Option<&Csr>, coefficients: &[f64]) -> Result<(), VerifyError> {
    check_length(csr, coefficients.len())?;
    let (arcs, neighbours) = arcs_between_neighbours(csr, in_edges);
    let of_edge = if csr.directed() { 1.0 } else { 2.0 };
    let expected = |v: usize| {
        let d = neighbours[v] as f64;
        if d < 2.0 { 0.0 } else { of_edge * arcs[v] as f64 / (d * (d - 1.0)) }
    };
    // A number that is none differs, too.
    let is_right = |v: usize| (coefficients[v] - expected(v)).abs() <= COEFFICIENT_TOLERANCE * expected(v);
    match parallel::position(coefficients.len(), |v| !is_right(v)) {
        None => Ok(()),
        Some(v) => {
            Err(VerifyError::Coefficient { vertex: name(csr, v as u64), found: coefficients[v], expected: expected(v) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{CsrOptions, hub};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merged_lists_have_the_arcs_of_all_triples(
            edges in prop::collection::vec((0u64..14, 0u64..14), 0..90), directed: bool, wide: bool, by_degree: bool,
        ) {
            let options = CsrOptions { directed, wide, keep_self_loops: true };
            let mut csr = Csr::from_edges(14, &edges, options).unwrap();
            if by_degree {
                hub::order_by_degree(&mut csr);
            }
            let transpose = directed.then(|| csr.transpose());
            let near = |a, b| a != b && (csr.has_arc(a, b) || csr.has_arc(b, a));
            let (arcs, neighbours) = arcs_between_neighbours(&csr, transpose.as_ref());
            let mut coefficients = Vec::new();
            for v in 0..14 {
                let of_v: Vec<u64> = (0..14).filter(|&n| near(v, n)).collect();
                let ordered = || of_v.iter().flat_map(|&a| of_v.iter().map(move |&b| (a, b)));
                let between = ordered().filter(|&(a, b)| a != b && csr.has_arc(a, b)).count() as u64;
                prop_assert_eq!(neighbours[v as usize], of_v.len() as u64);
                prop_assert_eq!(arcs[v as usize] * if directed { 1 } else { 2 }, between);
                let pairs = (of_v.len() * of_v.len().saturating_sub(1)) as f64;
                coefficients.push(if pairs > 0.0 { between as f64 / pairs } else { 0.0 });
            }
            prop_assert_eq!(clustering(&csr, transpose.as_ref(), &coefficients), Ok(()));
            if !directed {
                let total = arcs.iter().sum::<u64>() / 3;
                prop_assert_eq!(triangles(&csr, &arcs, total), Ok(()));
            }
            coefficients[3] += 1e-9;
            prop_assert!(clustering(&csr, transpose.as_ref(), &coefficients).is_err());
        }
    }

    #[test]
    fn a_wrong_count_total_or_coefficient_is_found() {
        let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 0), (2, 3)], CsrOptions::default()).unwrap();
        assert_eq!(triangles(&csr, &[1, 1, 1, 0], 1), Ok(()));
        let wrong = VerifyError::Triangles { vertex: 3u64.into(), found: 1, expected: 0 };
        assert_eq!(triangles(&csr, &[1, 1, 1, 1], 1), Err(wrong));
        let wrong = VerifyError::TriangleTotal { found: 3, expected: 1 };
        assert_eq!(triangles(&csr, &[1, 1, 1, 0], 3), Err(wrong));
        assert_eq!(triangles(&csr, &[], 0), Err(VerifyError::Length { found: 0, vertices: 4 }));
        let third = 1.0 / 3.0;
        assert_eq!(clustering(&csr, None, &[1.0, 1.0, third, 0.0]), Ok(()));
        let wrong = VerifyError::Coefficient { vertex: 2u64.into(), found: 0.5, expected: third };
        assert_eq!(clustering(&csr, None, &[1.0, 1.0, 0.5, 0.0]), Err(wrong));
        assert!(clustering(&csr, None, &[1.0, 1.0, third, f64::NAN]).is_err());
    }
}
