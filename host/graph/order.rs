//! An order of the vertices inside of a stored graph that differs from the order of their identifiers.

use super::parallel;
use rayon::slice::ParallelSliceMut;
use std::cmp::Reverse;

/// A permutation of the vertices of a graph. Outside, vertices are numbered in the order of their identifiers. Inside,
/// lists stand in another order and name neighbours by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    outside: Vec<u32>,
    inside: Vec<u32>,
}

impl Order {
    /// Orders vertices by descending degree, and by number for equal degrees. `degrees` are those of the vertices outside.
    pub(crate) fn by_degree(vertices: usize, degree: impl Fn(usize) -> u64 + Sync) -> Self {
        let mut outside = parallel::map(vertices, |v| v as u32);
        outside.par_sort_unstable_by_key(|&v| (Reverse(degree(v as usize)), v));
        let inside = inverse(&outside);
        Self { outside, inside }
    }

    /// Makes the order of the number outside of each vertex inside. Each number must be there once.
    pub(crate) fn of(outside: Vec<u32>) -> Self {
        let inside = inverse(&outside);
        Self { outside, inside }
    }

    /// Makes the order of the number outside of each vertex inside, or `None` unless each number is there once.
    pub(crate) fn from_outside(outside: Vec<u32>) -> Option<Self> {
        let mut seen = vec![false; outside.len()];
        let is_new = |v: &u32| seen.get_mut(*v as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        let inside = outside.iter().all(is_new).then(|| inverse(&outside))?;
        Some(Self { outside, inside })
    }

    /// Returns the number outside of each vertex inside.
    pub(crate) fn all_outside(&self) -> &[u32] {
        &self.outside
    }

    /// Returns the number outside of a vertex inside.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub(crate) fn outside(&self, v: u64) -> u64 {
        self.outside[v as usize].into()
    }

    /// Returns the number inside of a vertex outside.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub(crate) fn inside(&self, v: u64) -> u64 {
        self.inside[v as usize].into()
    }

    /// Returns offsets of lists that stand in this order. `offsets` are those of the lists outside.
    pub(crate) fn offsets_inside(&self, offsets: &[u64]) -> Vec<u64> {
        offsets_of(&self.outside, offsets)
    }

    /// Returns offsets of lists outside. `offsets` are those of the lists in this order.
    pub(crate) fn offsets_outside(&self, offsets: &[u64]) -> Vec<u64> {
        offsets_of(&self.inside, offsets)
    }
}

fn inverse(order: &[u32]) -> Vec<u32> {
    let mut inverse = vec![0; order.len()];
    for (v, &at) in order.iter().enumerate() {
        inverse[at as usize] = v as u32;
    }
    inverse
}

/// Returns the offsets of the lists in the order in which `order` names them.
fn offsets_of(order: &[u32], offsets: &[u64]) -> Vec<u64> {
    let mut sum = 0;
    let degrees = order.iter().map(|&v| offsets[v as usize + 1] - offsets[v as usize]);
    let ends = degrees.map(|degree| {
        sum += degree;
        sum
    });
    std::iter::once(0).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vertices_of_the_highest_degree_come_first() {
        let degrees = [1u64, 5, 0, 5, 2];
        let order = Order::by_degree(5, |v| degrees[v]);
        assert_eq!(order.all_outside(), [1, 3, 4, 0, 2]);
        assert!((0..5).all(|v| order.outside(order.inside(v)) == v));
        let inside = order.offsets_inside(&[0, 1, 6, 6, 11, 13]);
        assert_eq!(inside, [0, 5, 10, 12, 13, 13]);
        assert_eq!(order.offsets_outside(&inside), [0, 1, 6, 6, 11, 13]);
        assert_eq!(Order::from_outside(order.all_outside().to_vec()), Some(order));
        assert_eq!(Order::from_outside(vec![0, 2]), None);
        assert_eq!(Order::from_outside(vec![0, 0]), None);
    }
}
