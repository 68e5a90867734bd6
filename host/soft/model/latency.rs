//! Distribution of the time of one command at depth 1.

/// Points of a distribution, in nanoseconds. No time is shorter than the first or longer than the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// Shortest time.
    pub p0: f64,
    /// Median.
    pub p50: f64,
    /// Time that 99 % of the commands do not exceed.
    pub p99: f64,
    /// As `p99`, for 99.9 %.
    pub p99_9: f64,
    /// As `p99`, for 99.99 %: the longest time.
    pub p99_99: f64,
}

impl Percentiles {
    /// Returns the time that the part `below` of the commands, 0 to 1, does not exceed.
    ///
    /// Up to the median, times are evenly distributed. Beyond it, the time grows by the same amount each time that the remaining
    /// part of the commands shrinks by the same factor: an exponential tail through the points.
    pub(crate) fn quantile(&self, below: f64) -> f64 {
        if below <= 0.5 {
            return self.p0 + (self.p50 - self.p0) * (below.max(0.0) * 2.0);
        }
        let decades = -(1.0 - below).log10();
        let points = [(-(0.5f64.log10()), self.p50), (2.0, self.p99), (3.0, self.p99_9), (4.0, self.p99_99)];
        let segment = points.windows(2).find(|pair| decades <= pair[1].0);
        segment.map_or(self.p99_99, |pair| {
            let ((from, low), (to, high)) = (pair[0], pair[1]);
            low + (high - low) * (decades - from) / (to - from)
        })
    }
}

/// Cells of the table.
const CELLS: usize = 256;
/// Cells from here on have the tail, which is computed.
const TAIL: usize = CELLS - 4;

/// A distribution prepared for sampling.
#[derive(Debug)]
pub(super) struct Sampler {
    percentiles: Percentiles,
    /// Quantiles at the start of each cell below the tail, and at the start of the tail, in nanoseconds.
    table: Box<[u64]>,
}

impl Sampler {
    pub(super) fn new(percentiles: Percentiles) -> Self {
        let table = (0..=TAIL).map(|cell| percentiles.quantile(cell as f64 / CELLS as f64).round() as u64).collect();
        Self { percentiles, table }
    }

    /// Returns the time in nanoseconds that belongs to a random number. Uses its upper 32 bits.
    #[inline]
    pub(super) fn sample(&self, random: u64) -> u64 {
        let cell = (random >> 56) as usize;
        let within = random >> 32 & 0x00ff_ffff;
        if cell < TAIL {
            let (low, high) = (self.table[cell], self.table[cell + 1]);
            return low + (((high - low) * within) >> 24);
        }
        self.percentiles.quantile((random >> 32) as f64 / (1u64 << 32) as f64).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{RngCore, SeedableRng};

    const OPTANE: Percentiles = Percentiles { p0: 5e3, p50: 5.5e3, p99: 7e3, p99_9: 9e3, p99_99: 20e3 };

    #[test]
    fn quantiles_meet_the_points() {
        for (below, value) in
            [(0.0, 5e3), (0.25, 5.25e3), (0.5, 5.5e3), (0.99, 7e3), (0.999, 9e3), (0.9999, 20e3), (1.0, 20e3)]
        {
            assert!((OPTANE.quantile(below) - value).abs() < 1e-6 * value, "{below}");
        }
    }

    #[test]
    fn samples_have_the_percentiles() {
        let sampler = Sampler::new(OPTANE);
        let mut random = SmallRng::seed_from_u64(7);
        let mut all: Vec<u64> = (0..1_000_000).map(|_| sampler.sample(random.next_u64())).collect();
        all.sort_unstable();
        for (below, value) in [(0.5, 5.5e3), (0.99, 7e3), (0.999, 9e3)] {
            let found = all[(below * all.len() as f64) as usize] as f64;
            assert!((found / value - 1.0).abs() < 0.02, "{below}: {found}");
        }
        assert!(all[0] >= 5_000 && all[all.len() - 1] <= 20_000);
        // The 100 longest of a million: their number has a standard deviation of 10 %.
        let longest = all.iter().filter(|t| **t >= 19_999).count();
        assert!((50..=150).contains(&longest), "{longest}");
    }

    proptest! {
        #[test]
        fn times_grow_with_the_random_number(a: u64, b: u64, times in prop::array::uniform5(1.0f64..1e9)) {
            let mut times = times;
            times.sort_by(f64::total_cmp);
            let [p0, p50, p99, p99_9, p99_99] = times;
            let sampler = Sampler::new(Percentiles { p0, p50, p99, p99_9, p99_99 });
            let (low, high) = (sampler.sample(a.min(b)), sampler.sample(a.max(b)));
            prop_assert!(low <= high && low + 1 >= p0 as u64 && high <= p99_99.ceil() as u64);
        }
    }
}
