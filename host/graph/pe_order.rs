//! Vertices of each PE of a world: in descending order of degree they go to the first PE, the second, and so on, then back in reverse
//! order, and so on. Vertices and edges are thus balanced for any degrees.

use super::order::Order;
use std::ops::Range;

/// Returns the place, in descending order of degree, of the vertex that a PE got as its number `local`.
pub(super) fn rank(pes: usize, pe: usize, local: u64) -> u64 {
    let turn = if local.is_multiple_of(2) { pe } else { pes - 1 - pe };
    local * pes as u64 + turn as u64
}

/// Returns the number of vertices that a PE gets of `vertices`.
pub(super) fn count(vertices: u64, pes: usize, pe: usize) -> u64 {
    let rounds = vertices / pes as u64;
    rounds + u64::from(rank(pes, pe, rounds) < vertices)
}

/// Returns the first vertex of each PE in the order in which those of a PE stand together, and the number of vertices.
pub(super) fn firsts(vertices: u64, pes: usize) -> Vec<u64> {
    let ends = (0..pes).scan(0, |sum, pe| {
        *sum += count(vertices, pes, pe);
        Some(*sum)
    });
    std::iter::once(0).chain(ends).collect()
}

/// Returns the order in which the vertices of a PE stand together, each PE's by descending degree. `by_degree` is the order by
/// descending degree alone.
pub(super) fn order(by_degree: &Order, pes: usize) -> Order {
    let sorted = by_degree.all_outside();
    let vertices = sorted.len() as u64;
    let of = |pe| (0..count(vertices, pes, pe)).map(move |local| sorted[rank(pes, pe, local) as usize]);
    Order::of((0..pes).flat_map(of).collect())
}

/// Returns the offsets of the lists of some vertices, where those of all others are empty. `all` are those of all lists.
pub(super) fn offsets_of(own: &Range<u64>, all: Vec<u64>) -> Vec<u64> {
    let (first, last) = (all[own.start as usize], all[own.end as usize]);
    if (first, last) == (0, all[all.len() - 1]) {
        return all;
    }
    all.into_iter().map(|offset| offset.clamp(first, last) - first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vertex_has_one_pe() {
        for vertices in [0u64, 1, 2, 5, 12, 13] {
            for pes in 1..6 {
                let degrees: Vec<u64> = (0..vertices).map(|v| v * 7 % 5).collect();
                let by_degree = Order::by_degree(vertices as usize, |v| degrees[v]);
                let by_pe = order(&by_degree, pes);
                let firsts = firsts(vertices, pes);
                assert_eq!((firsts.len(), firsts[pes]), (pes + 1, vertices));
                let mut seen: Vec<u32> = by_pe.all_outside().to_vec();
                seen.sort_unstable();
                assert_eq!(seen, (0..vertices as u32).collect::<Vec<_>>());
                for own in firsts.windows(2) {
                    let of = |v: u64| degrees[by_pe.outside(v) as usize];
                    assert!((own[0]..own[1]).map(of).is_sorted_by(|a, b| a >= b));
                    assert!((own[1] - own[0]).abs_diff(vertices / pes as u64) <= 1);
                }
            }
        }
        assert_eq!(offsets_of(&(1..3), vec![0, 2, 5, 9, 9, 11]), [0, 0, 3, 7, 7, 7]);
        // The third goes to PE 2, and so does the fourth.
        assert_eq!(firsts(5, 3), [0, 1, 3, 5]);
    }
}
