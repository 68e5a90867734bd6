//! Verification of the parents of shortest paths.

use super::rules::Bitmap;
use super::sssp::Distances;
use super::{Found, ParentFault, Search, VerifyError, check_length, name, sssp};
use crate::graph::csr::{Csr, VertexId, Weights};
use crate::graph::parallel;

/// Checks distances as [`sssp`] does, and that parents are those of shortest paths. The source must be its own parent, and
/// vertices that are not reached must have [`VertexId::NONE`].
///
/// * The edge from the parent of each other vertex gives the vertex its distance: exactly for integers, and within the
///   tolerance of [`sssp`] for real numbers.
/// * Parents lead from each reached vertex to the source. Edges of weight 0 could otherwise form a circle.
///
/// # Errors
/// As for [`sssp`]; also [`VerifyError::Parent`] for the first wrong parent.
pub fn sssp_parents<P: VertexId>(
    csr: &Csr,
    search: impl Into<Search>,
    distances: Distances<'_>,
    parents: &[P],
) -> Result<(), VerifyError> {
    let search = search.into();
    check_length(csr, parents.len())?;
    sssp(csr, search, distances)?;
    let source = search.source as usize;
    // Vertices with an edge from their parent that gives them their distance.
    let tight = Bitmap::new(parents.len());
    parallel::all(parents.len(), |u| {
        csr.range(u as u64).for_each(|arc| {
            let v = csr.neighbours().get(arc) as usize;
            if parents[v] != P::NONE && parents[v].index() == u && is_tight(csr, distances, u, v, arc) {
                tight.insert(v);
            }
        });
        true
    });
    let fault = |v: usize| -> Option<ParentFault> {
        let parent = parents[v];
        if v == source {
            return (parent.number() != search.source).then_some(ParentFault::OfSource);
        }
        match (distances.reached(v), parent == P::NONE) {
            (false, true) => None,
            (false, false) => Some(ParentFault::OfUnreached),
            (true, true) => Some(ParentFault::Missing),
            (true, false) if tight.contains(v) => None,
            (true, false) if parent.number() < csr.vertices() && csr.has_arc(parent.number(), v as u64) => {
                Some(ParentFault::Distance)
            }
            (true, false) => Some(ParentFault::NoEdge),
        }
    };
    let wrong = |v: usize, reason: ParentFault| {
        let parent = parents[v];
        let known = parent.number() < csr.vertices();
        let parent =
            (parent != P::NONE).then(|| if known { name(csr, parent.number()) } else { parent.number().into() });
        VerifyError::Parent { vertex: name(csr, v as u64), parent: Found(parent), reason }
    };
    if let Some((v, reason)) = parallel::find_first(parents.len(), |v| fault(v).map(|reason| (v, reason))) {
        return Err(wrong(v, reason));
    }
    in_circle(parents, source).map_or(Ok(()), |v| Err(wrong(v, ParentFault::Circle)))
}

/// Returns true if the arc number `arc` from `u` gives `v` its distance.
fn is_tight(csr: &Csr, distances: Distances<'_>, u: usize, v: usize, arc: usize) -> bool {
    if let (Some(from), Some(to), Some(weight)) = (distances.integer(u), distances.integer(v), whole(csr, arc)) {
        return from.checked_add(weight) == Some(to);
    }
    let weight = match csr.weights() {
        None => 1.0,
        Some(Weights::U32(w)) => w[arc].into(),
        Some(Weights::F32(w)) => w[arc].into(),
        Some(Weights::F64(w)) => w[arc],
    };
    match (distances.real(u), distances.real(v)) {
        (Some(from), Some(to)) => (from + weight - to).abs() <= distances.tolerance().unwrap_or_default() * to,
        _ => false,
    }
}

/// Returns the weight of an arc if it is an integer.
fn whole(csr: &Csr, arc: usize) -> Option<u64> {
    match csr.weights() {
        None => Some(1),
        Some(Weights::U32(w)) => Some(w[arc].into()),
        Some(Weights::F32(_) | Weights::F64(_)) => None,
    }
}

/// Returns a vertex from which parents do not lead to the source. All parents are vertices or [`VertexId::NONE`].
fn in_circle<P: VertexId>(parents: &[P], source: usize) -> Option<usize> {
    let mut rooted = vec![false; parents.len()];
    rooted[source] = true;
    let mut path = Vec::new();
    for first in 0..parents.len() {
        let mut v = first;
        while !rooted[v] && parents[v] != P::NONE {
            if path.len() == parents.len() {
                return Some(first);
            }
            path.push(v);
            v = parents[v].index();
        }
        path.drain(..).for_each(|v| rooted[v] = true);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::verify::dijkstra;
    use crate::graph::{CsrOptions, VertexName};

    const DIRECTED: CsrOptions = CsrOptions { directed: true, keep_self_loops: false, wide: false };

    #[test]
    fn wrong_parents_of_shortest_paths_are_named() {
        // Vertices 1, 2 and 3 are a circle of weight 0, entered at 1; vertex 5 is not reached.
        let edges = [(0, 1, 5), (1, 2, 0), (2, 3, 0), (3, 1, 0), (0, 4, 9), (3, 4, 4), (5, 4, 1), (0, 3, 6)];
        let csr = Csr::from_weighted_edges(6, &edges, DIRECTED).unwrap();
        let distances = dijkstra(&csr, 0).unwrap();
        assert_eq!(distances, [0, 5, 5, 5, 9, u64::MAX]);
        let good = [0, 0, 1, 2, 3, u32::NONE];
        let check = |parents: &[u32; 6]| sssp_parents(&csr, 0, Distances::U64(&distances), parents);
        assert_eq!(check(&good), Ok(()));
        assert_eq!(check(&[0, 0, 1, 2, 0, u32::NONE]), Ok(()), "both edges to 4 give it its distance");
        for (vertex, parent, fault) in [
            (0, 1, ParentFault::OfSource),
            (1, 3, ParentFault::Circle),
            (2, u32::NONE, ParentFault::Missing),
            (3, 0, ParentFault::Distance),
            (2, 4, ParentFault::NoEdge),
            (2, 77, ParentFault::NoEdge),
            (5, 4, ParentFault::OfUnreached),
        ] {
            let mut parents = good;
            parents[vertex] = parent;
            match check(&parents) {
                Err(VerifyError::Parent { vertex: v, reason, .. }) => {
                    assert_eq!((v, reason), (VertexName::from(vertex as u64), fault));
                }
                other => panic!("{other:?} for {vertex}, {parent}"),
            }
        }
    }

    #[test]
    fn parents_of_real_distances_agree_within_rounding() {
        let csr = Csr::from_real_edges(3, &[(0, 1, 0.1), (1, 2, 0.2), (0, 2, 0.7)], DIRECTED).unwrap();
        let (a, b) = (f64::from(0.1f32), f64::from(0.2f32));
        let distances = [0.0, a, (a + b) * (1.0 + 1e-12)];
        let check = |parents: [u64; 3]| sssp_parents(&csr, 0, Distances::F64(&distances), &parents);
        assert_eq!(check([0, 0, 1]), Ok(()));
        assert!(matches!(check([0, 0, 0]), Err(VerifyError::Parent { reason: ParentFault::Distance, .. })));
    }
}
