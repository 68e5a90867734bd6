//! Computes figures from time stamps, by perftest's definitions (perftest_parameters.c, print_report_bw and
//! print_report_lat), so that they compare with those of `ib_write_bw` and `ib_write_lat`.

use serde::{Deserialize, Serialize};

/// Maximum number of iterations with a peak. perftest omits the peak above it, because the peak compares every pair of
/// a post and a completion.
pub const MOST_FOR_PEAK: u64 = 20_000;
/// Number of longest samples that the mean and the median omit (perftest's LAT_MEASURE_TAIL).
pub const TAIL: usize = 2;
/// 2^20 bytes, which perftest calls MB.
pub const MEBIBYTE: f64 = (1 << 20) as f64;
/// Bytes in 10^9 bits.
pub const GIGABIT: f64 = 125e6;

/// One row of a bandwidth table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Size of a message in bytes.
    pub bytes: u64,
    /// Number of messages on all queue pairs.
    pub iterations: u64,
    /// Highest rate from any post to any later completion; 0 if it was not computed.
    pub peak_bytes_per_s: f64,
    /// Rate from the first post to the last completion.
    pub average_bytes_per_s: f64,
    /// Messages per second, from the first post to the last completion.
    pub messages_per_s: f64,
}

/// Times at which messages were posted and found complete, in nanoseconds, in the order of their posts.
#[derive(Clone, Debug, Default)]
pub struct Stamps {
    /// Times of the posts.
    pub posted: Vec<u64>,
    /// Times at which the completions were found.
    pub completed: Vec<u64>,
}

impl Stamps {
    /// Merges the stamps of several queue pairs into one list, posts and completions each in ascending order.
    pub fn merged(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.posted.extend(part.posted);
            all.completed.extend(part.completed);
        }
        all.posted.sort_unstable();
        all.completed.sort_unstable();
        all
    }

    /// Returns the minimum mean time of one message, from any post to any completion that is not before its own.
    fn least_mean_ns(&self) -> Option<f64> {
        let n = self.posted.len().min(self.completed.len());
        let mut least = None::<f64>;
        for i in 0..n {
            // Of completions that were found at the same time only the last counts: it has the most messages for that
            // time.
            for j in i..n {
                if self.completed.get(j + 1) == Some(&self.completed[j]) && j + 1 < n {
                    continue;
                }
                let mean = self.completed[j].saturating_sub(self.posted[i]) as f64 / (j - i + 1) as f64;
                least = Some(least.map_or(mean, |l| l.min(mean)));
            }
        }
        least
    }
}

impl Bandwidth {
    /// Computes the rates of `iterations` messages of `bytes` bytes in `elapsed_ns`, and the peak if there are
    /// `stamps`.
    pub fn new(bytes: u64, iterations: u64, elapsed_ns: u64, stamps: Option<&Stamps>) -> Self {
        let seconds = elapsed_ns.max(1) as f64 * 1e-9;
        let peak = stamps.and_then(Stamps::least_mean_ns).map_or(0.0, |ns| bytes as f64 / (ns.max(1e-3) * 1e-9));
        Self {
            bytes,
            iterations,
            peak_bytes_per_s: peak,
            average_bytes_per_s: bytes as f64 * iterations as f64 / seconds,
            messages_per_s: iterations as f64 / seconds,
        }
    }

    /// Adds both directions of a bidirectional test: rates are added, iterations are those of one side, as in perftest.
    pub fn both(self, other: &Self) -> Self {
        Self {
            peak_bytes_per_s: self.peak_bytes_per_s + other.peak_bytes_per_s,
            average_bytes_per_s: self.average_bytes_per_s + other.average_bytes_per_s,
            messages_per_s: self.messages_per_s + other.messages_per_s,
            ..self
        }
    }
}

/// One row of a latency table, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Size of a message in bytes.
    pub bytes: u64,
    /// Number of messages.
    pub iterations: u64,
    /// Shortest sample.
    pub min_us: f64,
    /// Second longest sample: the shorter of the two that the mean omits.
    pub max_us: f64,
    /// Median, without the two longest samples.
    pub typical_us: f64,
    /// Mean, without the two longest samples.
    pub avg_us: f64,
    /// Standard deviation, without the two longest samples.
    pub stdev_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

impl Latency {
    /// Computes the figures from the times at which each message was posted.
    ///
    /// A sample is the time from one post to the next. It is half of that time if a message goes there and another one
    /// comes back before the next post. Returns `None` for fewer than four times.
    pub fn new(bytes: u64, posted_ns: &[u64], there_and_back: bool) -> Option<Self> {
        let factor = if there_and_back { 2000.0 } else { 1000.0 };
        let mut samples: Vec<u64> = posted_ns.windows(2).map(|w| w[1].saturating_sub(w[0])).collect();
        samples.sort_unstable();
        let counted = samples.len().checked_sub(TAIL).filter(|n| *n > 0)?;
        let us = |ns: u64| ns as f64 / factor;
        let body = &samples[..counted];
        let middle = counted / 2;
        let median = if counted.is_multiple_of(2) { (body[middle - 1] + body[middle]) / 2 } else { body[middle] };
        let avg = body.iter().map(|s| us(*s)).sum::<f64>() / counted as f64;
        let variance = body.iter().map(|s| (avg - us(*s)).powi(2)).sum::<f64>() / counted as f64;
        let percentile = |share: f64| us(samples[(counted as f64 * share).ceil() as usize]);
        Some(Self {
            bytes,
            iterations: posted_ns.len() as u64,
            min_us: us(samples[0]),
            max_us: us(samples[counted]),
            typical_us: us(median),
            avg_us: avg,
            stdev_us: variance.sqrt(),
            p99_us: percentile(0.99),
            p999_us: percentile(0.999),
        })
    }
}

/// One row of a latency test that runs for a time and keeps no samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanLatency {
    /// Size of a message in bytes.
    pub bytes: u64,
    /// Number of messages.
    pub iterations: u64,
    /// Mean of all messages in microseconds.
    pub avg_us: f64,
    /// Messages, or round trips, per second.
    pub messages_per_s: f64,
}

impl MeanLatency {
    /// Computes the figures of `iterations` messages in `elapsed_ns`.
    pub fn new(bytes: u64, iterations: u64, elapsed_ns: u64, there_and_back: bool) -> Self {
        let (n, ns) = (iterations.max(1) as f64, elapsed_ns.max(1) as f64);
        let factor = if there_and_back { 2000.0 } else { 1000.0 };
        Self { bytes, iterations, avg_us: ns / factor / n, messages_per_s: iterations as f64 / (ns * 1e-9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_two_longest_samples_are_left_out() {
        // Samples 1, 2, 3, 4, 100, 1000 us, in some order.
        let mut at = 0;
        let mut posted = vec![0];
        for us in [3, 1000, 1, 4, 100, 2] {
            at += us * 1000;
            posted.push(at);
        }
        let l = Latency::new(8, &posted, false).unwrap();
        assert_eq!((l.iterations, l.min_us, l.max_us), (7, 1.0, 100.0));
        assert_eq!((l.typical_us, l.avg_us), (2.5, 2.5));
        assert!((l.stdev_us - 1.25f64.sqrt()).abs() < 1e-12);
        // ceil(4 * 0.99) and ceil(4 * 0.999) both index the first omitted sample.
        assert_eq!((l.p99_us, l.p999_us), (100.0, 100.0));
        let half = Latency::new(8, &posted, true).unwrap();
        assert_eq!((half.min_us, half.avg_us, half.max_us), (0.5, 1.25, 50.0));
        assert_eq!(Latency::new(8, &posted[..3], false), None);
        assert!(Latency::new(8, &posted[..4], false).is_some());
    }

    #[test]
    fn the_average_is_over_everything_and_the_peak_over_the_best_part() {
        // Four messages: the first takes 10 us, the others 1 us each, back to back.
        let stamps =
            Stamps { posted: vec![0, 10_000, 11_000, 12_000], completed: vec![10_000, 11_000, 12_000, 13_000] };
        let b = Bandwidth::new(1000, 4, 13_000, Some(&stamps));
        assert!((b.peak_bytes_per_s - 1e9).abs() < 1.0, "{b:?}");
        assert!((b.average_bytes_per_s - 4000.0 / 13e-6).abs() < 1.0, "{b:?}");
        assert!((b.messages_per_s - 4.0 / 13e-6).abs() < 1e-3, "{b:?}");
        assert_eq!(Bandwidth::new(1000, 4, 13_000, None).peak_bytes_per_s, 0.0);
        let twice = b.both(&b);
        assert_eq!((twice.iterations, twice.average_bytes_per_s), (4, 2.0 * b.average_bytes_per_s));
    }

    #[test]
    fn means_over_a_time() {
        let m = MeanLatency::new(2, 1000, 4_000_000, true);
        assert_eq!((m.avg_us, m.messages_per_s), (2.0, 250_000.0));
        assert_eq!(MeanLatency::new(2, 1000, 4_000_000, false).avg_us, 4.0);
    }

    proptest! {
        #[test]
        fn the_peak_is_what_looking_at_all_pairs_finds(steps in prop::collection::vec((1u64..50, 0u64..50), 1..40)) {
            let (mut posted, mut completed, mut at) = (Vec::new(), Vec::new(), 0);
            for (step, late) in steps {
                at += step;
                posted.push(at);
                completed.push(at + late);
            }
            let stamps = Stamps::merged([Stamps { posted, completed }]);
            let n = stamps.posted.len();
            let pairs = (0..n).flat_map(|i| (i..n).map(move |j| (i, j)));
            let all = pairs.map(|(i, j)| stamps.completed[j].saturating_sub(stamps.posted[i]) as f64 / (j - i + 1) as f64);
            prop_assert_eq!(stamps.least_mean_ns(), all.min_by(f64::total_cmp));
        }

        #[test]
        fn latencies_are_in_their_order(samples in prop::collection::vec(0u64..1_000_000, 4..300)) {
            let mut at = 0;
            let posted: Vec<u64> = samples.iter().map(|s| { at += s; at }).collect();
            let l = Latency::new(1, &posted, false).expect("enough samples");
            prop_assert!(l.min_us <= l.typical_us && l.typical_us <= l.p99_us && l.p99_us <= l.p999_us && l.p999_us <= l.max_us);
            prop_assert!(l.min_us <= l.avg_us && l.avg_us <= l.max_us);
        }
    }
}
