//! Permutation of the numbers below any bound, from a seed, without memory.

/// Rounds of the network. Four mix all bits of both halves (Luby and Rackoff, 1988).
const ROUNDS: u64 = 4;

/// Permutation of the numbers 0 to `count` - 1.
///
/// A balanced Feistel network permutes the numbers of an even number of bits. Results that are too large go through the
/// network again (cycle walking; Black and Rogaway, 2002).
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    count: u64,
    seed: u64,
    /// Bits of half a number.
    half: u32,
}

impl Permutation {
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        // The rounds differ in the low bits, and seeds must not merely exchange them.
        Self { count, seed: mixed(seed), half: bits.div_ceil(2).max(1) }
    }

    /// Returns the number that `n` is mapped to. `n` must be less than the count.
    pub fn of(&self, n: u64) -> u64 {
        debug_assert!(n < self.count);
        let mut n = self.once(n);
        while n >= self.count {
            n = self.once(n);
        }
        n
    }

    fn once(&self, n: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (n >> self.half, n & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (mixed(self.seed ^ right << 8 ^ round) & mask));
        }
        left << self.half | right
    }
}

/// Returns a number whose bits all depend on all bits of `x`: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
pub fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for count in [1, 2, 3, 4, 5, 16, 17, 1000, 65_536, 65_537] {
            let p = Permutation::new(count, 7);
            let mut all: Vec<u64> = (0..count).map(|n| p.of(n)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count), "{count}");
        }
        let large = Permutation::new((1 << 40) - 1, 7);
        assert!((0..1000).all(|n| large.of(n) < (1 << 40) - 1));
    }

    #[test]
    fn neighbours_are_scattered_and_seeds_differ() {
        let (a, b) = (Permutation::new(1 << 20, 1), Permutation::new(1 << 20, 2));
        let near = (1..10_000).filter(|n| a.of(*n).abs_diff(a.of(n - 1)) < 1 << 10).count();
        // Of random pairs, one in 512 is so near.
        assert!(near < 60, "{near}");
        let same = (0..10_000).filter(|n| a.of(*n) == b.of(*n)).count();
        assert!(same < 10, "{same}");
    }
}
