//! Hash of a graph, by which processes compare the graphs that each of them has read.

use super::csr::Csr;
use super::ids::Ids;
use super::lists::Weights;
use crate::graph::parallel;

/// Steps of splitmix64 (Steele, Lea and Flood 2014), a bijection of words that changes half of all bits.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns a hash of two words in this order.
fn pair(first: u64, second: u64) -> u64 {
    mix(mix(first.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(second))
}

impl Csr {
    /// Returns a hash of the vertices, their identifiers, the arcs and the weights. It is the same in every process, and
    /// does not depend on the order of neighbours in a list.
    pub fn digest(&self) -> u64 {
        let weight = |arc: usize| match self.weights() {
            None => 0,
            Some(Weights::U32(w)) => w[arc].into(),
            Some(Weights::F32(w)) => w[arc].to_bits().into(),
            Some(Weights::F64(w)) => w[arc].to_bits(),
        };
        let of_vertex = |v: u64| {
            let arcs = self.range(v).map(|arc| pair(pair(v, self.neighbours().get(arc)), weight(arc)));
            arcs.fold(0, u64::wrapping_add)
        };
        let arcs = parallel::fold(
            self.vertices() as usize,
            || 0,
            |sum: u64, v| sum.wrapping_add(of_vertex(v as u64)),
            u64::wrapping_add,
        );
        let facts = [self.vertices(), self.arcs(), self.directed().into(), of_ids(self.ids()), arcs];
        facts.into_iter().fold(0, pair)
    }
}

fn of_ids(ids: &Ids) -> u64 {
    let hash = |bytes: &[u8]| xxhash_rust::xxh64::xxh64(bytes, 0);
    match ids {
        Ids::Dense { base, .. } => *base,
        Ids::Sparse(ids) => pair(1, hash(bytemuck::cast_slice(ids))),
        Ids::Named(names) => pair(hash(names.text().as_bytes()), hash(bytemuck::cast_slice(names.offsets()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Csr, CsrOptions, hub};

    fn graph(edges: &[(u64, u64)]) -> Csr {
        Csr::from_edges(5, edges, CsrOptions::default()).unwrap()
    }

    #[test]
    fn every_part_of_a_graph_counts() {
        let edges = [(0, 1), (1, 2), (2, 3), (3, 4)];
        let reference = graph(&edges);
        let other_edge = graph(&[(0, 1), (1, 2), (2, 4), (3, 4)]);
        let more_vertices = Csr::from_edges(6, &edges, CsrOptions::default()).unwrap();
        let other_ids = reference.clone().with_ids(Ids::dense(1, 5));
        let sparse = reference.clone().with_ids(Ids::Sparse(vec![0, 1, 2, 3, 9]));
        let weighted = reference.clone().with_weights(Weights::U32(vec![1; reference.arcs() as usize]));
        let others = [&other_edge, &more_vertices, &other_ids, &sparse, &weighted];
        let mut all: Vec<u64> = others.iter().map(|g| g.digest()).chain([reference.digest()]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), others.len() + 1);
    }

    #[test]
    fn the_order_of_lists_and_of_edges_does_not_matter() {
        let reference = graph(&[(0, 1), (0, 2), (0, 3), (3, 4)]);
        let mut by_degree = reference.clone();
        hub::order_by_degree(&mut by_degree);
        assert_eq!(by_degree.digest(), reference.digest());
        assert_eq!(graph(&[(3, 4), (0, 3), (0, 2), (0, 1)]).digest(), reference.digest());
    }
}
