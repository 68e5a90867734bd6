//! Verification of strongly connected components, by Tarjan's algorithm (Tarjan, "Depth-first search and linear graph
//! algorithms", SIAM J. Computing 1, 1972).

use super::{VerifyError, check_length, name};
use crate::graph::csr::{Csr, VertexId, with_neighbours};
use crate::graph::parallel;

/// Checks that each label is the smallest vertex of its strongly connected component.
///
/// # Errors
/// [`VerifyError::Length`] if there is not one label for each vertex; [`VerifyError::StrongComponent`] for the first
/// wrong label.
pub fn strong_components<V: VertexId>(csr: &Csr, labels: &[V]) -> Result<(), VerifyError> {
    check_length(csr, labels.len())?;
    let expected = strongly_connected_components(csr);
    let Some(v) = parallel::position(labels.len(), |v| labels[v].number() != expected[v]) else { return Ok(()) };
    let found: u64 = labels[v].number();
    Err(VerifyError::StrongComponent {
        vertex: name(csr, v as u64),
        found: if found < csr.vertices() { name(csr, found) } else { found.into() },
        expected: name(csr, expected[v]),
    })
}

/// Returns the smallest vertex of each vertex's strongly connected component.
pub fn strongly_connected_components(csr: &Csr) -> Vec<u64> {
    with_neighbours!(csr.neighbours(), list => tarjan(csr, list))
}

fn tarjan<V: VertexId>(csr: &Csr, list: &[V]) -> Vec<u64> {
    const NONE: u64 = u64::MAX;
    let vertices = csr.vertices() as usize;
    let mut labels = vec![NONE; vertices];
    // Position of each vertex in the order of visits, and the first position that it is known to reach.
    let (mut order, mut low) = (vec![NONE; vertices], vec![NONE; vertices]);
    let mut visited = 0;
    // Vertices without a component, in the order of visits; and the path of the search, with the next arc of each vertex.
    let (mut open, mut path) = (Vec::new(), Vec::new());
    for root in 0..vertices {
        let mut next = (order[root] == NONE).then_some(root);
        loop {
            if let Some(v) = next.take() {
                (order[v], low[v]) = (visited, visited);
                visited += 1;
                open.push(v);
                path.push((v, csr.range(v as u64).start));
            }
            let Some((v, arc)) = path.last_mut() else { break };
            let v = *v;
            if *arc < csr.range(v as u64).end {
                let n = list[*arc].index();
                *arc += 1;
                if order[n] == NONE {
                    next = Some(n);
                } else if labels[n] == NONE {
                    low[v] = low[v].min(order[n]);
                }
                continue;
            }
            path.pop();
            if let Some((above, _)) = path.last() {
                low[*above] = low[*above].min(low[v]);
            }
            if low[v] == order[v] {
                let first = open.iter().rposition(|o| *o == v).unwrap_or(0);
                let smallest = open[first..].iter().copied().min().unwrap_or(v) as u64;
                open.drain(first..).for_each(|member| labels[member] = smallest);
            }
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::CsrOptions;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn members_of_a_component_reach_each_other(
            edges in prop::collection::vec((0u64..25, 0u64..25), 0..70), wide: bool,
            change in prop::option::of((0usize..25, 0u32..27)),
        ) {
            let options = CsrOptions { directed: true, keep_self_loops: true, wide };
            let csr = Csr::from_edges(25, &edges, options).unwrap();
            // Floyd and Warshall's closure.
            let mut reaches = [[false; 25]; 25];
            (0..25).for_each(|v| reaches[v][v] = true);
            edges.iter().for_each(|&(a, b)| reaches[a as usize][b as usize] = true);
            for k in 0..25 {
                for a in 0..25 {
                    for b in 0..25 {
                        reaches[a][b] |= reaches[a][k] && reaches[k][b];
                    }
                }
            }
            let expected: Vec<u32> =
                (0..25).map(|v| (0..25).find(|&u| reaches[u][v] && reaches[v][u]).unwrap() as u32).collect();
            let mut labels = expected.clone();
            prop_assert_eq!(strong_components(&csr, &labels), Ok(()));
            if let Some((v, label)) = change {
                labels[v] = label;
                prop_assert_eq!(strong_components(&csr, &labels).is_ok(), labels == expected);
            }
        }
    }

    #[test]
    fn a_long_path_takes_no_stack() {
        let edges: Vec<_> = (0..200_000).map(|v| (v, v + 1)).chain([(150_000, 100_000)]).collect();
        let csr = Csr::from_edges(200_001, &edges, CsrOptions::default().directed(true)).unwrap();
        let labels = strongly_connected_components(&csr);
        let expected = |v: u64| if (100_000..=150_000).contains(&v) { 100_000 } else { v };
        assert!((0..200_001).all(|v| labels[v as usize] == expected(v)));
        let mut wrong = labels.clone();
        wrong[120_000] = 120_000;
        let error =
            VerifyError::StrongComponent { vertex: 120_000.into(), found: 120_000.into(), expected: 100_000.into() };
        assert_eq!(strong_components(&csr, &wrong), Err(error));
    }
}
