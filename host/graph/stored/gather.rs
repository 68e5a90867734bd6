//! Lists of some vertices in a new order, with the arcs of each list under other names.

use crate::graph::build::EdgeWeight;
use crate::graph::csr::{self, Weights};
use crate::graph::parallel;
use std::ops::Range;

/// Gathers the lists of some vertices, with their weights, and sorts each list. `offsets` are those of the lists that are
/// returned, `row` has the places of a vertex's arcs, and `neighbour` the name of each in the new lists. `weights` are in the
/// order of the places.
pub(crate) fn gathered(
    offsets: &[u64],
    weights: Option<&Weights>,
    row: impl Fn(usize) -> Range<usize> + Sync,
    neighbour: impl Fn(usize) -> u32 + Sync,
) -> (Vec<u32>, Option<Weights>) {
    match weights {
        None => gathered_as::<()>(offsets, |_| (), row, neighbour),
        Some(Weights::U32(list)) => gathered_as(offsets, |i| list[i], row, neighbour),
        Some(Weights::F32(list)) => gathered_as(offsets, |i| list[i], row, neighbour),
        Some(Weights::F64(list)) => gathered_as(offsets, |i| list[i], row, neighbour),
    }
}

fn gathered_as<W: EdgeWeight>(
    offsets: &[u64],
    weight: impl Fn(usize) -> W + Sync,
    row: impl Fn(usize) -> Range<usize> + Sync,
    neighbour: impl Fn(usize) -> u32 + Sync,
) -> (Vec<u32>, Option<Weights>) {
    let count = (offsets[offsets.len() - 1] - offsets[0]) as usize;
    let (mut list, mut weights) = (vec![0; count], vec![W::default(); count]);
    let parts = csr::blocks_mut(offsets, &mut list).into_iter().zip(csr::blocks_mut(offsets, &mut weights)).collect();
    parallel::each_part(parts, |pairs: &mut Vec<(u32, W)>, _, ((vertices, list), (_, weights))| {
        let mut at = 0;
        for v in vertices {
            pairs.clear();
            pairs.extend(row(v).map(|i| (neighbour(i), weight(i))));
            pairs.sort_unstable_by_key(|&(n, _)| n);
            for &(neighbour, weight) in pairs.iter() {
                (list[at], weights[at]) = (neighbour, weight);
                at += 1;
            }
        }
    });
    (list, W::wrap(weights))
}
