//! Sources of searches, and counts and rates of traversed edges.

use super::shape::GraphShape;
use crate::graph::parallel;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Picks `count` random sources among the vertices with an edge to another vertex, as GAP's source picker does. The
/// same seed always gives the same sources, and a source may occur twice. A graph without such edges has no sources.
pub fn pick_sources(csr: &(impl GraphShape + ?Sized), count: usize, seed: u64) -> Vec<u64> {
    let hubs = |v: &u64| csr.degree(*v) > u64::from(csr.has_self_loop(*v));
    // If few vertices have edges, random tries would take too long, so the vertices are listed.
    const TRIES: u32 = 1000;
    let mut random = SmallRng::seed_from_u64(seed);
    let mut listed: Option<Vec<u64>> = None;
    let draw = |_| {
        if listed.is_none() && csr.vertices() > 0 {
            let tries = (0..TRIES).map(|_| random.random_range(0..csr.vertices()));
            if let found @ Some(_) = tries.into_iter().find(hubs) {
                return found;
            }
        }
        let list = listed.get_or_insert_with(|| (0..csr.vertices()).filter(hubs).collect());
        (!list.is_empty()).then(|| list[random.random_range(0..list.len())])
    };
    (0..count).map_while(draw).collect()
}

/// Returns the edges that a search has traversed, by Graph500's rule: the edges of the component that it reached, each
/// counted once, without self-loops. In a directed graph these are the out-edges of reached vertices.
pub fn traversed_edges(csr: &(impl GraphShape + ?Sized), reached: impl Fn(u64) -> bool + Sync) -> u64 {
    let arcs: u64 = parallel::sum(csr.vertices() as usize, |v| {
        let v = v as u64;
        if reached(v) { csr.degree(v) - u64::from(csr.has_self_loop(v)) } else { 0 }
    });
    if csr.directed() { arcs } else { arcs / 2 }
}

/// Returns the mean of rates that Graph500 prescribes, the harmonic mean. Returns `None` without rates, or if a rate is
/// zero.
pub fn harmonic_mean(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().map(|r| r.recip()).sum();
    (!rates.is_empty() && rates.iter().all(|&r| r > 0.0)).then(|| rates.len() as f64 / sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Csr, CsrOptions};

    #[test]
    fn sources_have_out_edges_and_repeat_with_the_seed() {
        let edges: Vec<_> = (0..50).map(|i| (2 * i, 2 * i + 1)).collect();
        let csr = Csr::from_edges(100, &edges, CsrOptions { directed: true, ..Default::default() }).unwrap();
        let sources = pick_sources(&csr, 64, 1);
        assert_eq!(sources.len(), 64);
        assert!(sources.iter().all(|&v| csr.degree(v) > 0));
        assert_eq!(sources, pick_sources(&csr, 64, 1));
        assert_ne!(sources, pick_sources(&csr, 64, 2));
    }

    #[test]
    fn one_vertex_among_many_is_found() {
        let csr = Csr::from_edges(1_000_000, &[(77, 5)], CsrOptions { directed: true, ..Default::default() }).unwrap();
        assert_eq!(pick_sources(&csr, 3, 9), [77; 3]);
        let empty = Csr::from_edges(3, &[], CsrOptions::default()).unwrap();
        assert!(pick_sources(&empty, 2, 0).is_empty(), "isolated vertices are no sources");
        let options = CsrOptions { keep_self_loops: true, ..Default::default() };
        let loops = Csr::from_edges(3, &[(0, 0), (1, 1), (1, 2), (2, 2)], options).unwrap();
        assert!(pick_sources(&loops, 64, 0).iter().all(|&v| v != 0), "an edge to itself leads nowhere");
        assert!(pick_sources(&Csr::from_edges(0, &[], CsrOptions::default()).unwrap(), 2, 0).is_empty());
    }

    #[test]
    fn loops_do_not_count_and_undirected_edges_count_once() {
        let edges = [(0, 1), (1, 2), (2, 0), (2, 2), (3, 4)];
        let options = CsrOptions { keep_self_loops: true, ..Default::default() };
        let csr = Csr::from_edges(5, &edges, options).unwrap();
        assert_eq!(traversed_edges(&csr, |v| v < 3), 3);
        assert_eq!(csr.edges(), 5);
        let directed = Csr::from_edges(5, &edges, CsrOptions { directed: true, ..options }).unwrap();
        assert_eq!(traversed_edges(&directed, |_| true), 4);
    }

    #[test]
    fn the_harmonic_mean_is_that_of_the_times() {
        assert_eq!(harmonic_mean(&[1.0, 3.0]), Some(1.5));
        assert_eq!(harmonic_mean(&[]), None);
        assert_eq!(harmonic_mean(&[0.0, 3.0]), None);
    }
}
