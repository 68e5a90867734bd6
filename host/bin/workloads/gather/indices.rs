//! Batches of indices: any batch by its number, the same one on any number of threads.

use super::Choice;
use super::permutation::{Permutation, mixed};
use super::sample::Sampler;
use super::trace;
use crate::workloads::error::{MeasureError, refuse};
use rand::distr::Distribution;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::Zipf;
use rayon::prelude::*;
use std::collections::HashMap;

/// Indices with a random stream of their own.
const PIECE: usize = 1 << 14;

/// Source of batches.
pub enum Indices {
    Uniform,
    Zipf(Zipf<f64>),
    Sample(Box<Sampler>),
    Trace(Vec<u64>),
}

impl Indices {
    /// Reads the trace or the graph of a choice, and returns the indices with the number of rows that they need: `rows`
    /// if it is given, else for a sample one for each vertex, and for a trace as many as it names.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if a file cannot be read, or names other rows than there are.
    pub fn new(
        choice: &Choice,
        fanout: &[u32],
        seed: u64,
        rows: Option<u64>,
        default: u64,
    ) -> Result<(Self, u64), MeasureError> {
        match choice {
            Choice::Uniform => Ok((Self::Uniform, rows.unwrap_or(default))),
            Choice::Zipf(exponent) => {
                let rows = rows.unwrap_or(default);
                match Zipf::new(rows as f64, *exponent) {
                    Ok(zipf) => Ok((Self::Zipf(zipf), rows)),
                    Err(e) => refuse!("--indices zipf:{exponent}: {e}; give another exponent"),
                }
            }
            Choice::Sample(graph) => {
                let sampler = Sampler::new(graph, fanout, seed)?;
                let vertices = sampler.vertices();
                if let Some(rows) = rows.filter(|rows| *rows < vertices) {
                    return refuse!(
                        "--rows {rows}: the graph {graph} has {vertices} vertices with a row each; give that many or more, or leave it out"
                    );
                }
                Ok((Self::Sample(Box::new(sampler)), rows.unwrap_or(vertices)))
            }
            Choice::Trace(path) => {
                let trace = trace::read(path)?;
                let highest = trace.iter().copied().max().unwrap_or(0);
                let least = highest.saturating_add(1);
                if let Some(rows) = rows.filter(|rows| *rows < least) {
                    let at = trace.iter().position(|row| *row >= rows).unwrap_or(0);
                    let (name, row) = (path.display(), trace[at]);
                    return refuse!(
                        "{name}: number {} of the trace is row {row}, and --rows {rows} has rows 0 to {}; give {least} or more",
                        at + 1,
                        rows - 1
                    );
                }
                Ok((Self::Trace(trace), rows.unwrap_or(least)))
            }
        }
    }

    /// Returns the neighbours per vertex for each layer, of sampled indices.
    pub fn fanout(&self) -> Option<&[u32]> {
        match self {
            Self::Sample(sampler) => Some(sampler.fanout()),
            _ => None,
        }
    }

    /// Returns batch `number` of a table of `rows` rows: `count` indices; for a sample those of `count` starts.
    pub fn batch(&self, number: u64, count: u32, rows: u64, seed: u64) -> Vec<u64> {
        match self {
            Self::Sample(sampler) => sampler.batch(number, count),
            Self::Trace(trace) => {
                let first = number.wrapping_mul(count.into());
                let length = trace.len() as u64;
                (0..u64::from(count)).map(|i| trace[(first.wrapping_add(i) % length) as usize]).collect()
            }
            Self::Uniform => drawn(number, count, seed, |random| random.random_range(0..rows)),
            Self::Zipf(zipf) => {
                let rows_by_rank = Permutation::new(rows, seed);
                drawn(number, count, seed, |random| rows_by_rank.of(rank(zipf, random, rows)))
            }
        }
    }

    /// Returns the `count` rows that are most often asked for, as far as the indices have such rows.
    pub fn popular(&self, count: u64, rows: u64, seed: u64) -> Vec<u64> {
        let count = count.min(rows);
        match self {
            Self::Uniform => (0..count).collect(),
            Self::Zipf(_) => {
                let rows_by_rank = Permutation::new(rows, seed);
                (0..count).map(|rank| rows_by_rank.of(rank)).collect()
            }
            Self::Sample(sampler) => sampler.popular(usize::try_from(count).unwrap_or(usize::MAX)),
            Self::Trace(trace) => {
                let mut uses: HashMap<u64, u64> = HashMap::new();
                trace.iter().for_each(|row| *uses.entry(*row).or_default() += 1);
                let mut all: Vec<(u64, u64)> = uses.into_iter().collect();
                all.sort_unstable_by_key(|(row, uses)| (std::cmp::Reverse(*uses), *row));
                all.truncate(usize::try_from(count).unwrap_or(usize::MAX));
                all.into_iter().map(|(row, _)| row).collect()
            }
        }
    }
}

/// Returns a rank of the distribution, from 0 on. Rounding may take the largest one a step too far.
fn rank(zipf: &Zipf<f64>, random: &mut SmallRng, rows: u64) -> u64 {
    (zipf.sample(random) as u64).clamp(1, rows) - 1
}

/// Draws the indices of a batch, each piece from a random stream of its own.
fn drawn(number: u64, count: u32, seed: u64, draw: impl Fn(&mut SmallRng) -> u64 + Sync) -> Vec<u64> {
    let mut indices = vec![0; count as usize];
    indices.par_chunks_mut(PIECE).enumerate().for_each(|(i, piece)| {
        let mut random = SmallRng::seed_from_u64(mixed(mixed(mixed(seed) ^ number) ^ i as u64));
        piece.iter_mut().for_each(|index| *index = draw(&mut random));
    });
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(choice: &str, rows: Option<u64>) -> Result<(Indices, u64), MeasureError> {
        Indices::new(&choice.parse().unwrap(), &[2], 3, rows, 1000)
    }

    /// Returns the sum of squared deviations from `expected`, each in units of its variance. For counts of the expected
    /// distribution it is about the number of counts.
    fn chi_squared(counts: &[u64], expected: impl Fn(usize) -> f64) -> f64 {
        counts.iter().enumerate().map(|(i, n)| (*n as f64 - expected(i)).powi(2) / expected(i)).sum()
    }

    #[test]
    fn uniform_indices_are_uniform_and_reproducible() {
        let (uniform, rows) = new("uniform", None).unwrap();
        assert_eq!(rows, 1000);
        let batch = uniform.batch(0, 200_000, 1000, 3);
        assert_eq!(batch, uniform.batch(0, 200_000, 1000, 3));
        assert_ne!(batch, uniform.batch(1, 200_000, 1000, 3));
        assert_ne!(batch, uniform.batch(0, 200_000, 1000, 4));
        let mut counts = [0; 1000];
        batch.iter().for_each(|row| counts[*row as usize] += 1);
        // 999 degrees of freedom: mean 999, standard deviation 45.
        let chi = chi_squared(&counts, |_| 200.0);
        assert!((750.0..1250.0).contains(&chi), "{chi}");
    }

    #[test]
    fn zipf_indices_have_their_distribution_and_popular_rows_are_anywhere() {
        for exponent in ["0.5", "0.99", "1", "1.5"] {
            let (zipf, rows) = new(&format!("zipf:{exponent}"), Some(500)).unwrap();
            let e: f64 = exponent.parse().unwrap();
            let by_rank = zipf.popular(500, rows, 3);
            let place: HashMap<u64, usize> = by_rank.iter().zip(0..).map(|(row, rank)| (*row, rank)).collect();
            assert_eq!(place.len(), 500);
            assert!(by_rank[..10].iter().any(|row| *row >= 100), "{by_rank:?}");
            let mut counts = vec![0; 500];
            for number in 0..4 {
                zipf.batch(number, 100_000, rows, 3).iter().for_each(|row| counts[place[row]] += 1);
            }
            let whole: f64 = (1..=500).map(|k| f64::from(k).powf(-e)).sum();
            // Even the rarest rank has more than ten expected counts for every exponent here.
            let chi = chi_squared(&counts, |rank| 400_000.0 * (rank as f64 + 1.0).powf(-e) / whole);
            // 499 degrees of freedom: mean 499, standard deviation 32.
            assert!((330.0..670.0).contains(&chi), "zipf:{exponent}: {chi}");
        }
        let (one, _) = new("zipf:2", Some(1)).unwrap();
        assert_eq!(one.batch(0, 5, 1, 3), [0; 5]);
    }

    #[test]
    fn traces_go_round_and_know_their_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        std::fs::write(&path, "4\n9\n4\n").unwrap();
        let name = path.to_str().unwrap();
        let (trace, rows) = new(name, None).unwrap();
        assert_eq!((rows, trace.batch(1, 2, rows, 0), trace.popular(1, rows, 0)), (10, vec![4, 4], vec![4]));
        assert_eq!(new(name, Some(20)).unwrap().1, 20);
        let text = new(name, Some(9)).err().unwrap().to_string();
        assert!(text.contains("number 2 of the trace is row 9, and --rows 9 has rows 0 to 8; give 10"), "{text}");
        let (sample, rows) = new("sample:kron:6", None).unwrap();
        assert_eq!((rows, sample.fanout()), (64, Some(&[2][..])));
        assert!(new("sample:kron:6", Some(63)).is_err());
    }
}
