//! Histogram of latencies that kernels record: log-linear buckets, whose error is a fixed share of the value.
//!
//! Each value below 2^`bits` has its own bucket. Above, every power of two is split into 2^`bits` equal buckets.

use serde::{Serialize, Serializer};

/// Counts of values in log-linear buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    bits: u32,
    counts: Vec<u64>,
}

/// fio's default percentiles.
pub const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// Statistics of the values in nanoseconds, exact to the width of a bucket.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Number of values.
    pub samples: u64,
    /// Minimum.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub stddev_ns: f64,
    /// Maximum.
    pub max_ns: u64,
    /// Pairs of percentile and value; in JSON an object, as in `{"99.9": 81234}`.
    #[serde(serialize_with = "as_object")]
    pub percentiles_ns: Vec<(f64, u64)>,
}

fn as_object<S: Serializer>(pairs: &[(f64, u64)], s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(pairs.iter().map(|(percent, ns)| (percent.to_string(), ns)))
}

impl Histogram {
    /// Creates a histogram from `counts`, whose powers of two are split into `2^bits` buckets.
    pub fn new(bits: u32, counts: Vec<u64>) -> Self {
        debug_assert!(bits < 32);
        Self { bits, counts }
    }

    /// Creates an empty histogram of `buckets` buckets.
    pub fn empty(bits: u32, buckets: usize) -> Self {
        Self::new(bits, vec![0; buckets])
    }

    /// Returns the bucket of a value, as kernels compute it.
    pub fn bucket(bits: u32, value: u64) -> usize {
        if value >> bits == 0 {
            return value as usize;
        }
        let log2 = 63 - value.leading_zeros();
        let fraction = (value >> (log2 - bits)) & ((1 << bits) - 1);
        (((log2 - bits + 1) as usize) << bits) + fraction as usize
    }

    /// Counts `times` values. Values beyond the last bucket count as its values.
    pub fn add(&mut self, value: u64, times: u64) {
        let last = self.counts.len().saturating_sub(1);
        if let Some(count) = self.counts.get_mut(Self::bucket(self.bits, value).min(last)) {
            *count += times;
        }
    }

    /// Adds the counts of another histogram with the same buckets.
    pub fn merge(&mut self, other: &Self) {
        debug_assert_eq!((self.bits, self.counts.len()), (other.bits, other.counts.len()));
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
    }

    /// Returns the smallest and the largest value of a bucket.
    pub fn range(bits: u32, bucket: usize) -> (u64, u64) {
        let (row, fraction) = ((bucket >> bits) as u32, bucket as u64 & ((1 << bits) - 1));
        if row == 0 {
            return (fraction, fraction);
        }
        let low = (1 << bits | fraction) << (row - 1);
        (low, low + ((1 << (row - 1)) - 1))
    }

    /// Returns the number of values.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the largest value of the bucket in which the smallest `percent` percent of the values end.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let samples = self.samples();
        let wanted = ((percent / 100.0 * samples as f64).ceil() as u64).clamp(1, samples.max(1));
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(i, n)| {
            seen += n;
            (*n > 0 && seen >= wanted).then(|| Self::range(self.bits, i).1)
        })
    }

    /// Returns the statistics with these percentiles; `None` if there are no values.
    pub fn latency(&self, percentiles: &[f64]) -> Option<Latency> {
        let samples = self.samples();
        let used = || self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        let (first, _) = used().next()?;
        let (last, _) = used().next_back()?;
        let middle = |i: usize| {
            let (low, high) = Self::range(self.bits, i);
            (low as f64 + high as f64) / 2.0
        };
        let mean_ns = used().map(|(i, n)| middle(i) * *n as f64).sum::<f64>() / samples as f64;
        let variance = used().map(|(i, n)| (middle(i) - mean_ns).powi(2) * *n as f64).sum::<f64>() / samples as f64;
        let percentiles_ns = percentiles.iter().filter_map(|p| Some((*p, self.percentile(*p)?))).collect();
        Some(Latency {
            samples,
            min_ns: Self::range(self.bits, first).0,
            mean_ns,
            stddev_ns: variance.sqrt(),
            max_ns: Self::range(self.bits, last).1,
            percentiles_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bucket(bits: u32, value: u64) -> usize {
        Histogram::bucket(bits, value)
    }

    #[test]
    fn an_even_spread_has_its_percentiles() {
        let bits = 5;
        let mut counts = vec![0; bucket(bits, 100_000) + 1];
        for v in 1..=10_000u64 {
            counts[bucket(bits, v)] += 1;
        }
        let h = Histogram::new(bits, counts);
        let l = h.latency(&PERCENTILES).unwrap();
        assert_eq!(l.samples, 10_000);
        assert_eq!(l.min_ns, 1);
        assert!((l.mean_ns - 5000.5).abs() < 5000.0 / 32.0, "{}", l.mean_ns);
        for (p, v) in l.percentiles_ns {
            let exact = p * 100.0;
            assert!(v as f64 >= exact && v as f64 <= exact * (1.0 + 1.0 / 32.0) + 1.0, "{p}: {v}");
        }
    }

    #[test]
    fn nothing_counted_is_no_latency() {
        assert!(Histogram::new(5, vec![0; 64]).latency(&PERCENTILES).is_none());
        assert_eq!(Histogram::new(5, vec![]).percentile(50.0), None);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(bits in 1u32..8, value: u64) {
            let b = bucket(bits, value);
            let (low, high) = Histogram::range(bits, b);
            prop_assert!(low <= value && value <= high);
            prop_assert!((high - low) as f64 <= value as f64 / f64::from(1u32 << bits));
            if let Some(next) = high.checked_add(1) {
                prop_assert_eq!(bucket(bits, next), b + 1);
                prop_assert_eq!(Histogram::range(bits, b + 1).0, next);
            }
        }
    }
}
