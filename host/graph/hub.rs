//! Orders by degree, and hub neighbours: the neighbours of each vertex with the highest degrees. Searches reach
//! vertices of high degree early. A search that inspects them first, or keeps the first of each list in fast memory,
//! reads few of the other neighbours.

use super::csr::{self, Csr, NeighbourOrder, Neighbours, VertexId, Weights};
use super::params::GRAPH_HUBS;
use crate::graph::parallel;
use std::cmp::Reverse;
use std::ops::Range;

/// Returns the neighbours of each vertex with the highest degrees, at most four per vertex, in descending order of
/// degree. Neighbours of equal degree are ordered by number. The result has the width of the graph's neighbours;
/// missing entries have the largest value of that width.
pub fn hub_neighbours(csr: &Csr) -> Neighbours {
    match csr.neighbours() {
        Neighbours::U32(list) => Neighbours::U32(hubs_in(csr, list)),
        Neighbours::U64(list) => Neighbours::U64(hubs_in(csr, list)),
    }
}

fn hubs_in<V: VertexId>(csr: &Csr, list: &[V]) -> Vec<V> {
    let key = |n: V| (Reverse(csr.degree(n.number())), n);
    hubs_of_lists(csr.offsets(), list, csr.order() == NeighbourOrder::ByDegree, key)
}

/// Returns the neighbours of each vertex with the least keys, in ascending order of their keys: as many as the kernels
/// keep in memory. `offsets` are those of the vertices and their end, and `list` begins at the first. `sorted` lists
/// ascend by their keys.
pub(super) fn hubs_of_lists<V: VertexId, K: Ord>(
    offsets: &[u64],
    list: &[V],
    sorted: bool,
    key: impl Fn(V) -> K + Sync,
) -> Vec<V> {
    const COUNT: usize = GRAPH_HUBS as usize;
    /// Vertices of a part.
    const VERTICES: usize = 1 << 10;
    let mut hubs = vec![V::NONE; (offsets.len() - 1) * COUNT];
    let of_vertex = |v: usize, hubs: &mut [V]| {
        let list = &list[(offsets[v] - offsets[0]) as usize..(offsets[v + 1] - offsets[0]) as usize];
        for (i, &n) in list.iter().enumerate() {
            if i < COUNT {
                hubs[i] = n;
                if !sorted {
                    hubs[..=i].sort_unstable_by_key(|&n| key(n));
                }
            } else if sorted {
                break;
            } else if key(n) < key(hubs[COUNT - 1]) {
                hubs[COUNT - 1] = n;
                hubs.sort_unstable_by_key(|&n| key(n));
            }
        }
    };
    parallel::each_part(hubs.chunks_mut(COUNT * VERTICES).collect(), |(), part, hubs| {
        for (v, hubs) in hubs.chunks_mut(COUNT).enumerate() {
            of_vertex(part * VERTICES + v, hubs);
        }
    });
    hubs
}

/// Sorts each neighbour list by descending degree, and by number for equal degrees. Weights move with their neighbours.
pub fn order_by_degree(csr: &mut Csr) {
    if csr.order() == NeighbourOrder::ByDegree {
        return;
    }
    let (offsets, neighbours, weights, order) = csr.parts_mut();
    *order = NeighbourOrder::ByDegree;
    order_lists(offsets, 0..offsets.len() - 1, neighbours, weights);
}

/// Sorts the lists of some vertices as [`order_by_degree`] does those of all. `offsets` are those of the whole graph.
pub(super) fn order_lists(
    offsets: &[u64],
    vertices: Range<usize>,
    lists: &mut Neighbours,
    weights: Option<&mut Weights>,
) {
    match lists {
        Neighbours::U32(list) => sort_weighted(offsets, vertices, list, weights),
        Neighbours::U64(list) => sort_weighted(offsets, vertices, list, weights),
    }
}

fn sort_weighted<V: VertexId>(all: &[u64], vertices: Range<usize>, list: &mut [V], weights: Option<&mut Weights>) {
    match weights {
        None => {
            let nothing = &mut vec![(); list.len()];
            sort(all, vertices, list, nothing);
        }
        Some(Weights::U32(weights)) => sort(all, vertices, list, weights),
        Some(Weights::F32(weights)) => sort(all, vertices, list, weights),
        Some(Weights::F64(weights)) => sort(all, vertices, list, weights),
    }
}

fn sort<V: VertexId, W: Copy + Send>(all: &[u64], vertices: Range<usize>, list: &mut [V], weights: &mut [W]) {
    let offsets = &all[vertices.start..=vertices.end];
    let degree = |n: V| all[n.index() + 1] - all[n.index()];
    let parts = csr::blocks_mut(offsets, list).into_iter().zip(csr::blocks_mut(offsets, weights)).collect();
    parallel::each_part(parts, |pairs: &mut Vec<(V, W)>, _, ((vertices, list), (_, weights))| {
        let base = offsets[vertices.start];
        for v in vertices {
            let own = (offsets[v] - base) as usize..(offsets[v + 1] - base) as usize;
            let (list, weights) = (&mut list[own.clone()], &mut weights[own]);
            pairs.clear();
            pairs.extend(list.iter().copied().zip(weights.iter().copied()));
            pairs.sort_unstable_by_key(|&(n, _)| (Reverse(degree(n)), n));
            for (i, &(neighbour, weight)) in pairs.iter().enumerate() {
                (list[i], weights[i]) = (neighbour, weight);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::CsrOptions;
    use proptest::prelude::*;

    fn arcs(csr: &Csr, v: u64) -> Vec<(u64, u32)> {
        let Some(Weights::U32(weights)) = csr.weights() else { panic!("integer weights") };
        csr.range(v).map(|i| (csr.neighbours().get(i), weights[i])).collect()
    }

    proptest! {
        #[test]
        fn lists_keep_their_arcs_and_descend_by_degree(
            edges in prop::collection::vec((0u64..30, 0u64..30, 0u32..9), 0..200), directed: bool, wide: bool,
        ) {
            let options = CsrOptions { directed, wide, ..Default::default() };
            let csr = Csr::from_weighted_edges(30, &edges, options).unwrap();
            let mut ordered = csr.clone();
            order_by_degree(&mut ordered);
            let hubs = hub_neighbours(&csr);
            prop_assert_eq!(&super::hub_neighbours(&ordered), &hubs);
            for v in 0..30 {
                let list = arcs(&ordered, v);
                let keys: Vec<_> = list.iter().map(|&(n, _)| (Reverse(csr.degree(n)), n)).collect();
                prop_assert!(keys.is_sorted());
                let none = if wide { u64::MAX } else { u32::MAX.into() };
                for i in 0..GRAPH_HUBS as usize {
                    let hub = hubs.get(v as usize * GRAPH_HUBS as usize + i);
                    prop_assert_eq!(hub, list.get(i).map_or(none, |&(n, _)| n));
                }
                let mut sorted = list;
                sorted.sort_unstable();
                prop_assert_eq!(sorted, arcs(&csr, v));
            }
        }
    }

    #[test]
    fn a_graph_without_weights_is_ordered_too() {
        let mut csr = Csr::from_edges(4, &[(0, 1), (0, 2), (2, 3), (0, 3), (3, 1)], CsrOptions::default()).unwrap();
        order_by_degree(&mut csr);
        assert_eq!(csr.neighbours_of(0).collect::<Vec<_>>(), [3, 1, 2]);
        assert_eq!(csr.order(), NeighbourOrder::ByDegree);
    }
}
