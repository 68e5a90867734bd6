//! Neighbourhoods of vertices, as graph networks sample them for training (Hamilton, Ying and Leskovec, 2017).

use super::permutation::{Permutation, mixed};
use crate::workloads::error::{MeasureError, refuse};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::HashSet;
use std::ffi::OsStr;
use warpbell::graph::{Csr, Input, LoadOptions};

/// Sampler of a graph.
pub struct Sampler {
    csr: Csr,
    /// Vertices with neighbours.
    starts: Vec<u64>,
    fanout: Vec<u32>,
    seed: u64,
}

impl Sampler {
    /// Reads or generates the graph.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if the graph cannot be read, or has no edges.
    pub fn new(graph: &str, fanout: &[u32], seed: u64) -> Result<Self, MeasureError> {
        let options = LoadOptions::default();
        let loaded = match Input::of(OsStr::new(graph)).and_then(|input| input.load(&options)) {
            Ok(loaded) => loaded,
            Err(e) => return refuse!("--indices sample:{graph}: {e}"),
        };
        let csr = loaded.csr;
        let starts: Vec<u64> = (0..csr.vertices()).filter(|v| csr.degree(*v) > 0).collect();
        if starts.is_empty() {
            return refuse!("--indices sample:{graph}: the graph has no edges; give another one");
        }
        Ok(Self { csr, starts, fanout: fanout.to_vec(), seed })
    }

    /// Returns the number of vertices, each of which has a row.
    pub fn vertices(&self) -> u64 {
        self.csr.vertices()
    }

    /// Returns the neighbours per vertex for each layer.
    pub fn fanout(&self) -> &[u32] {
        &self.fanout
    }

    /// Returns the vertices of a batch, each once: `count` vertices to start from, then for each layer the sampled
    /// neighbours of all vertices so far. Batches take all vertices as starts in a random order, then in another one.
    pub fn batch(&self, number: u64, count: u32) -> Vec<u64> {
        let mut random = SmallRng::seed_from_u64(mixed(self.seed ^ mixed(number)));
        let (mut vertices, mut seen) = (Vec::new(), HashSet::new());
        let starts = self.starts.len() as u64;
        for i in 0..u64::from(count) {
            let at = number.wrapping_mul(count.into()).wrapping_add(i);
            let order = Permutation::new(starts, mixed(self.seed ^ (at / starts)));
            let vertex = self.starts[order.of(at % starts) as usize];
            if seen.insert(vertex) {
                vertices.push(vertex);
            }
        }
        for fanout in &self.fanout {
            for at in 0..vertices.len() {
                let range = self.csr.range(vertices[at]);
                let wanted = (*fanout as usize).min(range.len());
                for i in rand::seq::index::sample(&mut random, range.len(), wanted) {
                    let neighbour = self.csr.neighbours().get(range.start + i);
                    if seen.insert(neighbour) {
                        vertices.push(neighbour);
                    }
                }
            }
        }
        vertices
    }

    /// Returns the `count` vertices with most neighbours, which are most often sampled.
    pub fn popular(&self, count: usize) -> Vec<u64> {
        let mut all = self.starts.clone();
        all.sort_unstable_by_key(|v| std::cmp::Reverse(self.csr.degree(*v)));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_neighbourhoods() {
        let s = Sampler::new("kron:10", &[3, 2], 5).unwrap();
        let batch = s.batch(4, 16);
        assert_eq!(batch, s.batch(4, 16));
        assert_ne!(batch, s.batch(5, 16));
        let distinct: HashSet<u64> = batch.iter().copied().collect();
        assert_eq!(distinct.len(), batch.len());
        // At most 16 starts, 3 more for each of them, 2 more for each of these.
        assert!((17..=16 * 4 * 3).contains(&batch.len()), "{}", batch.len());
        for (at, vertex) in batch.iter().enumerate().skip(16) {
            let is_neighbour = batch[..at].iter().any(|v| s.csr.neighbours_of(*v).any(|n| n == *vertex));
            assert!(is_neighbour, "vertex {vertex} is the neighbour of none before it");
        }
    }

    #[test]
    fn every_vertex_is_a_start_once_before_any_is_again() {
        let s = Sampler::new("urand:6", &[1], 5).unwrap();
        let alone = Sampler { fanout: Vec::new(), ..s };
        let count = alone.starts.len() as u32;
        let mut first = alone.batch(0, count);
        let second = alone.batch(1, count);
        assert_ne!(first, second);
        first.sort_unstable();
        assert_eq!(first, alone.starts);
    }

    #[test]
    fn popular_vertices_have_many_neighbours() {
        let s = Sampler::new("kron:8", &[1], 5).unwrap();
        let popular = s.popular(10);
        let least = popular.iter().map(|v| s.csr.degree(*v)).min().unwrap();
        assert_eq!(popular.len(), 10);
        assert!(s.starts.iter().filter(|v| s.csr.degree(**v) > least).count() < 10);
        assert!(Sampler::new("kron:0", &[1], 5).is_err() && Sampler::new("kron:x", &[1], 5).is_err());
    }
}
