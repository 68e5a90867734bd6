//! Verification of core numbers.

use super::{VerifyError, check_length, name};
use crate::graph::csr::Csr;
use crate::graph::parallel;

/// Returns the core number of each vertex, found serially: the vertex of least degree is removed again and again
/// (Matula, Beck, J. ACM 30, 1983). The degree in a directed graph is the number of in-edges and out-edges together;
/// `in_edges` is then the [transpose](Csr::transpose). Self-loops are not counted.
pub fn core_numbers(csr: &Csr, in_edges: Option<&Csr>) -> Vec<u64> {
    let vertices = csr.vertices() as usize;
    let near = |v: usize| {
        let v = v as u64;
        let lists = csr.neighbours_of(v).chain(in_edges.iter().flat_map(move |csr| csr.neighbours_of(v)));
        lists.filter(move |n| *n != v).map(|n| n as usize)
    };
    let mut degree: Vec<usize> = parallel::map(vertices, |v| near(v).count());
    // The vertices by degree. An entry is out of date if the degree has fallen since.
    let mut bucket: Vec<Vec<usize>> = vec![Vec::new(); degree.iter().max().map_or(0, |d| d + 1)];
    for (v, d) in degree.iter().enumerate() {
        bucket[*d].push(v);
    }
    let mut removed = vec![false; vertices];
    for least in 0..bucket.len() {
        while let Some(v) = bucket[least].pop() {
            if removed[v] || degree[v] != least {
                continue;
            }
            removed[v] = true;
            for n in near(v) {
                // The degree of a vertex that remains does not fall below that of the vertex removed last.
                if !removed[n] && degree[n] > least {
                    degree[n] -= 1;
                    bucket[degree[n]].push(n);
                }
            }
        }
    }
    degree.into_iter().map(|d| d as u64).collect()
}

/// Checks core numbers against [`core_numbers`].
///
/// # Errors
/// [`VerifyError::Length`] if there is not one number for each vertex; [`VerifyError::Core`] for the first wrong number.
pub fn cores(csr: &Csr, in_edges: Option<&Csr>, numbers: &[u64]) -> Result<(), VerifyError> {
    check_length(csr, numbers.len())?;
    let expected = core_numbers(csr, in_edges);
    match parallel::position(numbers.len(), |v| numbers[v] != expected[v]) {
        None => Ok(()),
        Some(v) => {
            let vertex = name(csr, v as u64);
            Err(VerifyError::Core { vertex, found: numbers[v], expected: expected[v] })
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
        fn a_core_is_what_remains_when_vertices_of_fewer_edges_go(
            edges in prop::collection::vec((0u64..16, 0u64..16), 0..120), directed: bool, by_degree: bool,
        ) {
            let options = CsrOptions { directed, wide: false, keep_self_loops: true };
            let mut csr = Csr::from_edges(16, &edges, options).unwrap();
            if by_degree {
                hub::order_by_degree(&mut csr);
            }
            let transpose = directed.then(|| csr.transpose());
            // By the definition: drop vertices with fewer than k edges to the others until none is left to drop.
            let arcs = |a, b| u64::from(a != b && csr.has_arc(a, b));
            let mut expected = vec![0; 16];
            for k in 1..=30 {
                let mut inside = vec![true; 16];
                let edges = |v: u64, inside: &[bool]| -> u64 {
                    let others = (0..16).filter(|&n| inside[n as usize]);
                    others.map(|n| arcs(v, n) + if directed { arcs(n, v) } else { 0 }).sum()
                };
                while let Some(v) = (0..16).find(|&v| inside[v as usize] && edges(v, &inside) < k) {
                    inside[v as usize] = false;
                }
                (0..16).filter(|&v| inside[v]).for_each(|v| expected[v] = k);
            }
            prop_assert_eq!(&core_numbers(&csr, transpose.as_ref()), &expected);
            prop_assert_eq!(cores(&csr, transpose.as_ref(), &expected), Ok(()));
            expected[5] += 1;
            prop_assert!(cores(&csr, transpose.as_ref(), &expected).is_err());
        }
    }

    #[test]
    fn a_wrong_core_number_is_found() {
        let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 0)], CsrOptions::default()).unwrap();
        assert_eq!(cores(&csr, None, &[2, 2, 2, 0]), Ok(()));
        let wrong = VerifyError::Core { vertex: 3u64.into(), found: 1, expected: 0 };
        assert_eq!(cores(&csr, None, &[2, 2, 2, 1]), Err(wrong));
        assert_eq!(cores(&csr, None, &[2]), Err(VerifyError::Length { found: 1, vertices: 4 }));
        assert!(core_numbers(&Csr::from_edges(0, &[], CsrOptions::default()).unwrap(), None).is_empty());
    }
}
